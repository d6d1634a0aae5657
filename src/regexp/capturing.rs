//! A pattern whose named groups are wanted from every event. It runs on the machine, which is the fastest where a
//! pattern hardly goes back; one that goes back too often is matched by the linear engine instead, if it can be.
//! Several groups may share a name.

use std::sync::OnceLock;

use super::machine::{Machine, Start};
use super::{Engine, Found, Regexp, Runaway, compile, tree};

#[derive(Debug)]
pub struct Capturing {
    text: Box<str>,
    names: Vec<String>,
    machine: Option<Machine>,
    /// The other engines' form of it, made when it is needed.
    regexp: OnceLock<Option<Regexp>>,
}

/// How often the machine may go back before the linear engine is asked, and how often more for each byte.
const PATIENCE: u64 = 500;
const PATIENCE_PER_BYTE: u64 = 8;

impl Capturing {
    pub fn parse(text: &str) -> Result<Capturing, String> {
        if let Some(tree) = tree::parse(text) {
            let names = tree.names.clone();
            if let Some(machine) = compile::compile(tree) {
                return Ok(Capturing { text: text.into(), names, machine: Some(machine), regexp: OnceLock::new() });
            }
        }
        let regexp = Regexp::parse(text)?;
        let names = regexp.names.clone();
        Ok(Capturing { text: text.into(), names, machine: None, regexp: OnceLock::from(Some(regexp)) })
    }

    #[cfg(test)]
    pub fn on_machine(&self) -> bool {
        self.machine.is_some()
    }

    /// Whether the machine looks at the beginning of a line only.
    pub(super) fn is_anchored(&self) -> bool {
        self.machine.as_ref().is_some_and(|machine| machine.start != Start::Anywhere)
    }

    /// Matched by the other engines only.
    #[cfg(test)]
    pub fn otherwise(text: &str) -> Option<Capturing> {
        let regexp = Regexp::parse(text).ok()?;
        let names = regexp.names.clone();
        Some(Capturing { text: text.into(), names, machine: None, regexp: OnceLock::from(Some(regexp)) })
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The names of the groups, in their order.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Looks for the first match and says in `found` where its groups stand. What it costs is taken from `steps`.
    pub fn find(&self, text: &str, found: &mut Found, steps: &mut u64) -> Result<bool, Runaway> {
        let Some(machine) = &self.machine else { return self.find_otherwise(text, found) };
        let patience = (PATIENCE + PATIENCE_PER_BYTE * text.len() as u64).min(*steps);
        let mut left = patience;
        let result = machine.find(text, found, &mut left);
        *steps -= patience - left;
        if result.is_ok() || *steps == 0 {
            return result;
        }
        if self.is_linear() { self.find_otherwise(text, found) } else { machine.find(text, found, steps) }
    }

    fn other(&self) -> Option<&Regexp> {
        self.regexp.get_or_init(|| Regexp::linear(&self.text)).as_ref()
    }

    /// Whether a match can be looked for in time that is in proportion to the text.
    pub fn is_linear(&self) -> bool {
        self.other().is_some_and(Regexp::is_linear)
    }

    fn find_otherwise(&self, text: &str, found: &mut Found) -> Result<bool, Runaway> {
        let Some(regexp) = self.other() else { return Ok(false) };
        let named = |number: &usize| *number < self.names.len();
        match &regexp.engine {
            Engine::Linear(regex) => {
                let Some(groups) = regex.captures(text) else { return Ok(false) };
                found
                    .fill((0..groups.len() - 1).filter(named).map(|n| groups.get(n + 1).map(|g| (g.start(), g.end()))));
            }
            Engine::Backtracking(regex) => {
                let Some(groups) = regex.captures(text).map_err(|_| Runaway::Steps)? else { return Ok(false) };
                found
                    .fill((0..groups.len() - 1).filter(named).map(|n| groups.get(n + 1).map(|g| (g.start(), g.end()))));
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `want`: the groups of the first match, `-` where one took no part; `None` if nothing matches.
    fn check(pattern: &str, text: &str, want: Option<&[&str]>) {
        let capturing = Capturing::parse(pattern).unwrap_or_else(|e| panic!("{pattern}: {e}"));
        assert!(capturing.on_machine(), "{pattern}");
        let mut found = Found::default();
        let matched = capturing.find(text, &mut found, &mut 1_000_000).unwrap();
        let groups = (0..capturing.names().len()).map(|n| found.group(n).map_or("-", |range| &text[range]));
        let got = matched.then(|| groups.collect::<Vec<_>>());
        assert_eq!(got.as_deref(), want, "{pattern} on {text:?}");
    }

    #[test]
    fn as_in_ruby() {
        check("(?<a>b+)(?<c>d)?", "abbe", Some(&["bb", "-"]));
        check("(?<a>a|ab)(?<b>c|bcd)(?<c>d*)", "abcd", Some(&["a", "bcd", ""]));
        check("(?<x>a.?c)", "a\nc ac", Some(&["ac"]));
        check("(?m)(?<x>a.c)", "a\nc", Some(&["a\nc"]));
        check("^(?<x>b)$", "a\nb\nc", Some(&["b"]));
        check("(?<x>^)", "a\n", Some(&[""]));
        check(r"\A(?<x>.*)\n\Z", "a\n", Some(&["a"]));
        check(r"\A(?<x>.*)\Z", "a\n", Some(&["a"]));
        check(r"(?<x>\w+)\b", "é-ab", Some(&["ab"]));
        check("(?<x>[[:alpha:]]+)", "1éa2", Some(&["éa"]));
        check("(?<x>(?i)é|AB)c", "aBc", Some(&["aB"]));
        check("a(?i)b|(?<x>c)", "aC", Some(&["C"]));
        check("(?i:(?<x>k))k", "\u{212a}k", Some(&["\u{212a}"]));
        check("(?<x>a++)a|(?<y>b?+)", "aab", Some(&["-", ""]));
        check("(?>(?<x>a*))b", "aaab", Some(&["aaa"]));
        check("(?<x>(?>a|ab))c", "abc", None);
        check("(?<x>a{2,3}?)(?<y>a*)", "aaaa", Some(&["aa", "aa"]));
        check("(?<x>a{2}?)(?<y>.)", "ab", Some(&["", "a"]));
        check("(?<x>a{,2})(?<y>a{2,})", "aaaaa", Some(&["aa", "aaa"]));
        check("(?<x>a{1,2}+)b", "aaaab", Some(&["aaaa"]));
        check("(?<=a|bb)(?<x>c+)", "cbbcc", Some(&["cc"]));
        check("(?<!\\d)(?<x>\\d)(?!\\d)", "12 3", Some(&["3"]));
        check("(?<![^x]y)(?<x>z)", "ayz xyz", Some(&["z"]));
        check("(?=(?<x>a+))a(?<y>b|a)", "aab", Some(&["aa", "a"]));
        check("(?!(?<x>a)b)(?<y>a)", "abac", Some(&["-", "a"]));
        check("(?<q>['`]).*?\\k<q>(?<x>.)", "'a`b'c", Some(&["'", "c"]));
        check("(?<a>x)?(?<a>y)?\\k<a>z", "xyyz", Some(&["x", "y"]));
        check("(?:(?<a>a)|(?<b>b))+", "aba", Some(&["a", "b"]));
        check("(?:(?<a>a?)b?)*c", "abac", Some(&[""]));
        check("(?<x>(?:a*)*)$", "aab", Some(&[""]));
        check("(?<x>.*?)(?<y>,.*)?;", "a,b;c", Some(&["a", ",b"]));
        check(r"(?<x>.*)\d(?<y>.*)", "a1b2é", Some(&["a1b", "é"]));
        check("(?<x>é.)[^a]", "éébé", Some(&["éé"]));
        check("(?x) a (?<x> b ) # no", "ab", Some(&["b"]));
        check("x(?#no)(?<x>{)(?<y>}){", "x{}{", Some(&["{", "}"]));
        check("", "", Some(&[]));
    }

    #[test]
    fn what_runs_away_is_linear_or_given_up() {
        let text = "a".repeat(200);
        let mut found = Found::default();
        let linear = Capturing::parse("(?<x>(?:a*)*)*b|(?<y>(?:.*a){30})").unwrap();
        assert_eq!(linear.find(&text, &mut found, &mut 1_000_000), Ok(true));
        assert_eq!((found.group(0), found.group(1)), (None, Some(0..200)));
        let looking = Capturing::parse("(?:a|aa)+(?=b)").unwrap();
        assert_eq!(looking.find(&text, &mut found, &mut 10_000), Err(Runaway::Steps));
    }

    fn piece() -> impl Strategy<Value = String> {
        let atom = proptest::sample::select(&[
            "a", "b", "ab", "é", "[ab]", "[^a]", r"\d", r"\w", ".", r"\b", "1", " ", "[é1]", r"\s", "$", "a?", "(?i:A)",
        ]);
        atom.prop_map(str::to_string).prop_recursive(4, 24, 4, |inner| {
            let many = proptest::collection::vec(inner.clone(), 1..4);
            let count = proptest::sample::select(&["*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{0,2}?", "{2,}"]);
            prop_oneof![
                many.clone().prop_map(|pieces| pieces.concat()),
                many.prop_map(|pieces| format!("(?:{})", pieces.join("|"))),
                (inner.clone(), count).prop_map(|(piece, count)| format!("(?:{piece}){count}")),
                inner.clone().prop_map(|piece| format!("(?<x>{piece})")),
                inner.clone().prop_map(|piece| format!("(?>{piece})")),
                inner.clone().prop_map(|piece| format!("(?={piece})")),
                inner.clone().prop_map(|piece| format!("(?!{piece})")),
                proptest::sample::select(&["(?<=a)", "(?<!b)", r"(?<![\d ])", "(?<=a|é1)"]).prop_map(str::to_string),
                inner.prop_map(|piece| format!("(?<y>{piece}).*")),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]
        /// The machine finds what the other engines find.
        #[test]
        fn the_engines_agree(pattern in piece(), text in "[ab1é ]{0,12}") {
            let (Ok(machine), Some(other)) = (Capturing::parse(&pattern), Capturing::otherwise(&pattern)) else {
                return Ok(());
            };
            let (mut one, mut two) = (Found::default(), Found::default());
            let results = (
                machine.find(&text, &mut one, &mut 1_000_000),
                other.find(&text, &mut two, &mut 1_000_000),
            );
            if let (Ok(got), Ok(want)) = results {
                prop_assert_eq!(got, want, "{} on {:?}", pattern, text);
                if got && !loops_over_nothing(&pattern) {
                    let of = |found: &Found| (0..machine.names().len()).map(|n| found.group(n)).collect::<Vec<_>>();
                    prop_assert_eq!(of(&one), of(&two), "{} on {:?}", pattern, text);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn any_pattern_never_panics(pattern in r"[\[\](){}?<>'\\+*^$|a-cikhpZ:&,.0-9é -]{0,24}", text in "[abc1é\n ]{0,8}") {
            if let Ok(capturing) = Capturing::parse(&pattern) {
                let mut found = Found::default();
                if let Ok(true) = capturing.find(&text, &mut found, &mut 10_000) {
                    for range in (0..capturing.names().len()).filter_map(|n| found.group(n)) {
                        prop_assert!(text.get(range).is_some());
                    }
                }
            }
        }
    }

    /// What a group in a loop holds after a turn that took nothing is told differently by every engine.
    fn loops_over_nothing(pattern: &str) -> bool {
        pattern.contains(")*") || pattern.contains(")+") || pattern.contains("){")
    }
}
