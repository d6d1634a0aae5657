//! Asks the reader of pipeline files whether it takes what was written: so an import follows what onceline has, and
//! never writes what `check` refuses.

use std::path::Path;

use crate::config::Severity;
use crate::pipeline::read::{self, Options};

/// What a variable may hold, where only a number, a boolean or a URL will do.
const VALUES: [&str; 6] = ["1", "true", "UTC", "a", "http://127.0.0.1:9200", "SHA256"];

/// What is wrong with a part of a pipeline file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems {
    pub unknown_keys: Vec<String>,
    /// In words; they never quote a value that may be a secret.
    pub other: Vec<String>,
}

impl Problems {
    pub fn is_empty(&self) -> bool {
        self.unknown_keys.is_empty() && self.other.is_empty()
    }
}

/// Reads some tables of a pipeline file, the rest being made up.
pub fn problems(tables: &str) -> Problems {
    let text = completed(tables);
    let mut best: Option<Problems> = None;
    for value in VALUES {
        let found = read(&text, value);
        let count = |problems: &Problems| problems.unknown_keys.len() + problems.other.len();
        if best.as_ref().is_none_or(|best| count(&found) < count(best)) {
            best = Some(found);
        }
        if best.as_ref().is_some_and(Problems::is_empty) || !text.contains("${") {
            break;
        }
    }
    best.unwrap_or_default()
}

fn completed(tables: &str) -> String {
    let mut out = tables.to_string();
    for (header, stub) in [
        ("[[input]]", "[[input]]\ntype = \"stdin\"\n"),
        ("[id]", "[id]\nscheme = \"hash\"\nmethod = \"SHA256\"\n"),
        ("[index]", "[index]\nname = \"stub\"\n"),
        ("[output]", "[output]\ntype = \"stdout\"\n"),
    ] {
        if !tables.lines().any(|line| line == header) {
            out.push('\n');
            out += stub;
        }
    }
    out
}

fn read(text: &str, value: &str) -> Problems {
    let env = |name: &str| text.contains(&format!("${{{name}}}")).then(|| value.to_string());
    let (_, report) = read::read(Path::new("imported.toml"), text.as_bytes(), &Options::default(), &env);
    let mut problems = Problems::default();
    for problem in report.problems().iter().filter(|problem| problem.severity == Severity::Error) {
        let message = problem.message.as_str();
        match message.split_once("unknown key `").and_then(|(_, rest)| rest.split_once('`')) {
            Some((key, _)) => problems.unknown_keys.push(key.to_string()),
            None => problems.other.push(unlabelled(message).to_string()),
        }
    }
    problems
}

/// Without the `filter 1 (grok): ` in front.
fn unlabelled(message: &str) -> &str {
    match message.split_once("): ") {
        Some((label, rest)) if label.contains(" (") && !label.contains('`') => rest,
        _ => message,
    }
}
