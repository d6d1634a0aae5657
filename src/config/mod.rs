//! Pipeline files: the only code that knows TOML. It does not know what a key means; each component reads its own.
//!
//! A component has a `Config` and reads it from a [`Section`]. Every getter hands back what was read and notes what
//! is wrong, so reading goes on and one run shows all errors of a file:
//!
//! - `.required()` gives `Option<T>`: `None` means that an error has been noted.
//! - `.or(default)` gives `T`: the default too when the value was wrong (the error has been noted).
//! - `.optional()` gives `Option<T>`: `None` when the key is absent, or wrong and noted.
//!
//! So a component reads everything first, checks what belongs together, and only then uses `?`:
//!
//! ```
//! use std::time::Duration;
//! use onceline::config::{self, Help, Section};
//!
//! #[derive(Clone, Copy, Debug, PartialEq)]
//! enum Action { Index, Create }
//!
//! #[derive(Debug)]
//! struct Output { hosts: Vec<String>, action: Action, in_flight: usize, wait: Duration, password: Option<config::Secret> }
//!
//! impl Output {
//!     fn read(t: &Section<'_>) -> Option<Output> {
//!         let hosts = t.texts("hosts").required();
//!         let action = t.one_of("action", &[("index", Action::Index), ("create", Action::Create)]).or(Action::Index);
//!         let in_flight = t.integer("in_flight", 1..=64).or(4);
//!         let wait = t.duration("wait", Duration::from_millis(1)..).or(Duration::from_secs(1));
//!         let user = t.text("user").optional();
//!         let password = t.secret("password").optional();
//!         if password.is_some() && user.is_none() {
//!             t.fail_at("password", "a password without `user`", Help::default().note("give both or none"));
//!         }
//!         Some(Output { hosts: hosts?, action, in_flight, wait, password })
//!     }
//! }
//!
//! let text = "[output]\nhosts = 'http://127.0.0.1:9200'\nin_flight = 100\nactoin = 'create'\n";
//! let (output, report) = config::read("a.toml", text.as_bytes(), &[], &|_| None, |root| {
//!     let t = root.table("output").required()?;
//!     let output = Output::read(&t);
//!     t.finish(); // what nobody asked for is an error
//!     output
//! });
//! assert!(output.is_none());
//! assert_eq!(report.render(false), "\
//! a.toml:3:13: `in_flight` is out of range
//!   3 | in_flight = 100
//!     |             ^^^
//!     = allowed: 1 to 64
//!
//! a.toml:4:1: unknown key `actoin` in `[output]`
//!   4 | actoin = 'create'
//!     | ^^^^^^
//!     = allowed: hosts, action, in_flight, wait, user, password
//!     = did you mean `action`?
//!
//! 2 errors in a.toml
//! ");
//! ```
//!
//! Components chosen by `type` are a list in one place: `t.one_of("type", KINDS)` with a function in each row, then
//! `t.skip_rest()` if it gave none, because nothing is known about the other keys.

mod item;
mod overrides;
mod report;
mod section;
mod tree;
pub mod units;
mod variables;

use std::cell::RefCell;
use std::fmt;
use std::sync::LazyLock;

use regex::Regex;

pub use item::{Fault, Item, Keyed};
pub use report::{Help, Problem, Report, Severity, nearest, printable};
pub use section::{Read, Section};
pub use tree::{Origin, Place};
pub use units::{bytes, bytes_text, duration, duration_text, duration_words};

use tree::{Kind, Node, Table};

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// The text itself, for the one place that needs it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// One pipeline file: its text, its tree after `--set` and variables, and the problems noted so far.
pub struct File {
    name: String,
    text: String,
    sets: Vec<String>,
    root: Node,
    problems: RefCell<Vec<Problem>>,
    secrets: RefCell<Vec<Place>>,
    /// False after a syntax error: the tree is a guess, and nothing more is said about it.
    readable: bool,
}

impl File {
    /// Never fails: what is wrong is in the [`Report`].
    pub fn parse(name: &str, text: &[u8], sets: &[String], env: &dyn Fn(&str) -> Option<String>) -> File {
        let mut problems = Vec::new();
        let utf8 = std::str::from_utf8(text);
        let text = String::from_utf8_lossy(text).into_owned();
        let mut root = match utf8 {
            Ok(_) => tree::parse(&text, &mut problems),
            Err(error) => {
                let at = error.valid_up_to();
                let place = Place { origin: Origin::File, span: at..at + '\u{fffd}'.len_utf8() };
                problems.push(Problem::error(place, "not UTF-8"));
                empty()
            }
        };
        let readable = problems.is_empty();
        if readable {
            for (number, argument) in sets.iter().enumerate() {
                overrides::apply(&mut root, argument, number, &mut problems);
            }
            let source = |node: &Node| source(&text, sets, &node.place).to_owned();
            variables::expand(&mut root, env, &source, &mut problems);
        } else {
            root = empty();
        }
        let secrets = RefCell::new(likely_secrets(&text, sets));
        let (name, sets, problems) = (name.to_owned(), sets.to_vec(), RefCell::new(problems));
        File { name, text, sets, root, problems, secrets, readable }
    }

    /// The top level. Tables that are missing in it are missed at the end of the file.
    pub fn root(&self) -> Section<'_> {
        Section::root(self)
    }

    /// Notes an error at a place kept from reading ([`Section::place`]): for checks across sections.
    pub fn fail(&self, place: &Place, message: impl Into<String>, help: impl Into<Help>) {
        self.push(Problem::error(place.clone(), message).help(help));
    }

    pub fn warn(&self, place: &Place, message: impl Into<String>, help: impl Into<Help>) {
        self.push(Problem::warning(place.clone(), message).help(help));
    }

    pub fn has_errors(&self) -> bool {
        self.problems.borrow().iter().any(|p| p.severity == Severity::Error)
    }

    pub fn report(&self) -> Report {
        let (problems, secrets) = (self.problems.borrow().clone(), self.secrets.borrow().clone());
        Report::new(&self.name, &self.text, &self.sets, problems, secrets)
    }

    fn push(&self, problem: Problem) {
        if self.readable {
            self.problems.borrow_mut().push(problem);
        }
    }

    fn problem_count(&self) -> usize {
        self.problems.borrow().len()
    }

    fn hide(&self, place: &Place) {
        self.secrets.borrow_mut().push(place.clone());
    }

    /// The text as written at a place.
    fn written(&self, place: &Place) -> &str {
        source(&self.text, &self.sets, place)
    }
}

/// Reads a whole file: `Some` only if nothing is wrong with it. Warnings may be in the report all the same.
pub fn read<T>(
    name: &str,
    text: &[u8],
    sets: &[String],
    env: &dyn Fn(&str) -> Option<String>,
    build: impl FnOnce(&Section<'_>) -> Option<T>,
) -> (Option<T>, Report) {
    let file = File::parse(name, text, sets, env);
    let root = file.root();
    let built = build(&root);
    let head = root.head();
    root.finish();
    if built.is_none() && !file.has_errors() {
        file.fail(&head, "this does not make a pipeline", ());
    }
    let built = built.filter(|_| !file.has_errors());
    (built, file.report())
}

/// The variables of this process; one whose text is not UTF-8 counts as not set.
pub fn process_env(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn empty() -> Node {
    Node { place: Place::default(), kind: Kind::Table(Table::default()) }
}

fn source<'t>(text: &'t str, sets: &'t [String], place: &Place) -> &'t str {
    let whole = match place.origin {
        Origin::File => text,
        Origin::Set(number) => sets.get(number).map_or("", String::as_str),
    };
    whole.get(place.span.clone()).unwrap_or("")
}

/// A name that says that its value is nobody's business.
const SECRET_NAME: &str = r"\w*(?:passw|passphrase|secret|token|api_?key|credential)\w*|key";

fn is_secret_name(name: &str) -> bool {
    static NAME: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(&format!("(?i)^(?:{SECRET_NAME})$")).ok());
    NAME.as_ref().is_some_and(|secret| secret.is_match(name))
}

/// Values that look like secrets, found without reading: a broken line, or a misspelt key, is shown too.
fn likely_secrets(text: &str, sets: &[String]) -> Vec<Place> {
    static VALUE: LazyLock<Option<Regex>> = LazyLock::new(|| {
        let value = r#""(?:[^"\n\\]|\\.)*"?|'[^'\n]*'?|[^\s,}\]"'][^\s,}\]]*"#;
        let after_key = format!(r#"(?i)\b(?:{SECRET_NAME})["']?[ \t]*=[ \t]*(?<value>{value})"#);
        Regex::new(&format!(r#"{after_key}|://[^/\s:@"']*:(?<login>[^/\s@"']+)@"#)).ok()
    });
    static VARIABLE: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r#"^["']?\$\{\w*\}?["']?$"#).ok());
    let (Some(value), Some(variable)) = (VALUE.as_ref(), VARIABLE.as_ref()) else { return Vec::new() };
    let texts = std::iter::once((Origin::File, text))
        .chain(sets.iter().enumerate().map(|(number, set)| (Origin::Set(number), set.as_str())));
    let mut places = Vec::new();
    for (origin, text) in texts {
        for found in value.captures_iter(text) {
            let Some(secret) = found.name("value").or(found.name("login")) else { continue };
            if !variable.is_match(secret.as_str()) {
                let end = if origin == Origin::File { secret.end() } else { text.len() };
                places.push(Place { origin, span: secret.start()..end });
            }
        }
    }
    places
}
