//! A pattern that is asked of every line whether it matches, and nothing else. What is bound to the beginning of the
//! line runs on the machine, which mostly sees at the first byte that it does not match; what may stand anywhere runs
//! on the linear engine, if that can have it.

use std::cell::RefCell;

use super::{Capturing, Found, Regexp, Runaway, STEPS_MAX};

#[derive(Debug)]
pub struct OfLine {
    engine: Engine,
}

#[derive(Debug)]
enum Engine {
    Machine(Box<Capturing>),
    Linear(regex::Regex),
}

thread_local! {
    /// The memory of matching, of each thread.
    static FOUND: RefCell<Found> = RefCell::default();
}

impl OfLine {
    pub fn parse(text: &str) -> Result<OfLine, String> {
        let capturing = Box::new(Capturing::parse(text)?);
        if capturing.is_anchored() {
            return Ok(OfLine { engine: Engine::Machine(capturing) });
        }
        let linear = Regexp::linear_of_line(text).map(Engine::Linear);
        Ok(OfLine { engine: linear.unwrap_or(Engine::Machine(capturing)) })
    }

    /// `line` holds no line end.
    pub fn is_match(&self, line: &str) -> Result<bool, Runaway> {
        match &self.engine {
            Engine::Linear(regex) => Ok(regex.is_match(line)),
            Engine::Machine(capturing) => {
                let mut steps = STEPS_MAX as u64;
                FOUND.with_borrow_mut(|found| capturing.find(line, found, &mut steps))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PATTERNS: &[&str] = &[
        r"^\s",
        r"\s$",
        r"\\$",
        r"^(?>\d\d){1,2}-\d",
        r"^(\s|Caused by:)",
        r"^\s+at |^Caused",
        r"\D",
        "^$",
        "",
        r"(?<!a)b",
        r"\A\d+\z",
        r"\d\Z",
        "(?i)ERROR",
        "(?m)a.b",
        r"(a)\1",
    ];

    #[test]
    fn engines() {
        for (pattern, on_machine) in [
            (r"^\s", true),
            (r"^(?>\d\d){1,2}-", true),
            (r"^(\s|Caused by:)", true),
            (r"\\$", false),
            (r"\D", false),
            (r"(?<!a)b", true),
        ] {
            let of_line = OfLine::parse(pattern).unwrap();
            assert_eq!(matches!(of_line.engine, Engine::Machine(_)), on_machine, "{pattern}");
        }
        assert!(OfLine::parse("(").is_err());
    }

    proptest! {
        /// On a line it is the pattern that it is anywhere else.
        #[test]
        fn as_on_any_text(line in "[ab \\\\\t\rEr0-9é:-]{0,12}", at in 0..PATTERNS.len()) {
            let pattern = PATTERNS[at];
            let want = Regexp::parse(pattern).unwrap().is_match(&line);
            prop_assert_eq!(OfLine::parse(pattern).unwrap().is_match(&line), want, "{} on {:?}", pattern, line);
        }
    }
}
