//! Named patterns: the standard ones, those of files and those of the pipeline file; and how `%{NAME:field:int}` in
//! a pattern becomes a group.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::standard::{self, Names};
use crate::config::{Fault, Help, nearest};

/// Patterns by their names; of two with one name the later counts.
#[derive(Clone, Debug, Default)]
pub struct Library {
    patterns: HashMap<String, String>,
}

/// A pattern that has grown beyond this, by patterns within patterns, is refused.
const EXPANDED_MAX: usize = 1 << 20;

/// Files of patterns are read up to here.
const FILE_BYTES_MAX: u64 = 16 << 20;

impl Library {
    pub fn standard(names: Names) -> Library {
        let mut library = Library::default();
        standard::files(names).for_each(|text| library.read_text(text));
        library
    }

    pub fn define(&mut self, name: &str, pattern: &str) {
        self.patterns.insert(name.to_string(), pattern.to_string());
    }

    pub fn add(&mut self, other: Library) {
        self.patterns.extend(other.patterns);
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.patterns.get(name).map(String::as_str)
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.patterns.keys().map(String::as_str)
    }

    /// A line each: a name, white space, the pattern. A `#` at the beginning makes a comment.
    pub fn read_text(&mut self, text: &str) {
        for line in text.lines() {
            let line = line.trim_start();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, pattern) = line.split_once(|c: char| c.is_ascii_whitespace()).unwrap_or((line, ""));
            self.define(name, pattern.trim_start_matches(|c: char| c.is_ascii_whitespace()));
        }
    }

    /// A file, or all files of a directory whose names fit `glob`, in the order of their names.
    pub fn of_path(path: &Path, glob: &str) -> Result<Library, String> {
        let shown = path.display();
        let metadata = std::fs::metadata(path);
        let files: Vec<PathBuf> = match (&metadata, path.to_str()) {
            (Ok(metadata), Some(path)) if metadata.is_dir() => fitting(&glob::Pattern::escape(path), Some(glob))?,
            (Ok(_), _) => vec![path.to_path_buf()],
            (Err(_), Some(path)) => fitting(path, None)?,
            (Err(_), None) => Vec::new(),
        };
        if let (Err(error), true) = (metadata, files.is_empty()) {
            return Err(format!("{shown}: {error}"));
        }
        let mut library = Library::default();
        for file in files {
            let shown = file.display();
            let metadata = std::fs::metadata(&file).map_err(|e| format!("{shown}: {e}"))?;
            if metadata.is_dir() {
                continue;
            }
            if metadata.len() > FILE_BYTES_MAX {
                return Err(format!("{shown}: more than {FILE_BYTES_MAX} bytes are no file of patterns"));
            }
            let bytes = std::fs::read(&file).map_err(|e| format!("{shown}: {e}"))?;
            library.read_text(&String::from_utf8_lossy(&bytes));
        }
        Ok(library)
    }

    /// The pattern with every `%{…}` in it replaced: by a group of that name where it names a field, or where all
    /// are wanted.
    pub fn expand(&self, pattern: &str, named_only: bool) -> Result<String, Fault> {
        let mut expansion = Expansion { library: self, own: HashMap::new(), named_only, out: String::new() };
        let mut within = Vec::new();
        expansion.write(pattern, &mut within)?;
        Ok(expansion.out)
    }
}

fn fitting(path: &str, glob: Option<&str>) -> Result<Vec<PathBuf>, String> {
    let pattern = glob.map_or(path.to_string(), |glob| format!("{path}/{glob}"));
    let paths = glob::glob(&pattern).map_err(|e| format!("`{pattern}`: {e}"))?;
    paths.collect::<Result<_, _>>().map_err(|e| e.to_string())
}

struct Expansion<'a> {
    library: &'a Library,
    /// Those of `%{NAME=pattern}`.
    own: HashMap<String, String>,
    named_only: bool,
    out: String,
}

impl Expansion<'_> {
    /// `within` are the names of the patterns that this one is in.
    fn write(&mut self, pattern: &str, within: &mut Vec<String>) -> Result<(), Fault> {
        let mut from = 0;
        while let Some(open) = pattern[from..].find("%{").map(|at| from + at) {
            let Some(found) = Placeholder::read(pattern, open) else {
                self.out.push_str(&pattern[from..open + 2]);
                from = open + 2;
                continue;
            };
            self.out.push_str(&pattern[from..open]);
            from = found.range.end;
            let range = found.range.clone();
            self.write_one(&found, within).map_err(|fault| if within.is_empty() { fault.at(range) } else { fault })?;
        }
        self.out.push_str(&pattern[from..]);
        Ok(())
    }

    fn write_one(&mut self, found: &Placeholder<'_>, within: &mut Vec<String>) -> Result<(), Fault> {
        if let Some(definition) = found.definition {
            self.own.insert(found.name.to_string(), definition.to_string());
        }
        let Some(pattern) = self.own.get(found.name).map(String::as_str).or_else(|| self.library.get(found.name))
        else {
            return Err(self.unknown(found.name, within));
        };
        if within.iter().any(|name| name == found.name) {
            let way = within.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            return Err(Fault::new(format!("pattern `{}` holds itself, by way of {way}", found.name)));
        }
        if self.out.len() + pattern.len() > EXPANDED_MAX {
            return Err(Fault::new(format!("with all patterns in it, it has more than {EXPANDED_MAX} bytes")));
        }
        let pattern = pattern.to_string();
        match found.group {
            Some(group) => self.out.push_str(&format!("(?<{group}>")),
            None if self.named_only => self.out.push_str("(?:"),
            None => self.out.push_str(&format!("(?<{}>", found.name)),
        }
        within.push(found.name.to_string());
        let written = self.write(&pattern, within);
        within.pop();
        self.out.push(')');
        written
    }

    fn unknown(&self, name: &str, within: &[String]) -> Fault {
        let known: Vec<&str> = self.library.names().chain(self.own.keys().map(String::as_str)).collect();
        let holder = within.last().map_or(String::new(), |holder| format!(", which `{holder}` holds"));
        let help = Help { nearest: nearest(name, &known), ..Help::default() };
        Fault::new(format!("no pattern is named `{name}`{holder}")).help(help)
    }
}

/// `%{NAME}`, `%{NAME:field}`, `%{NAME:field:int}`, `%{NAME=pattern}`.
struct Placeholder<'a> {
    range: Range<usize>,
    name: &'a str,
    /// `NAME:field:int`, where there is a field.
    group: Option<&'a str>,
    definition: Option<&'a str>,
}

impl<'a> Placeholder<'a> {
    /// The one that opens at `open`. What stands behind names and definition is passed over, as in Logstash.
    fn read(text: &'a str, open: usize) -> Option<Placeholder<'a>> {
        let bytes = text.as_bytes();
        let end_of = |from: usize, fits: fn(u8) -> bool| {
            bytes[from..].iter().position(|byte| !fits(*byte)).map_or(bytes.len(), |len| from + len)
        };
        let start = open + 2;
        let name_end = end_of(start, |byte| matches!(byte, b'A'..=b'z' | b'0'..=b'9'));
        if name_end == start {
            return None;
        }
        let mut at = name_end;
        if bytes.get(at) == Some(&b':') {
            let field = end_of(at + 1, |b| matches!(b, b'@' | b'A'..=b'z' | b'0'..=b'9' | b':' | b'.' | b'-'));
            at = if field > at + 1 { field } else { at };
        }
        let group = (at > name_end).then(|| &text[start..at]);
        let definition = (bytes.get(at) == Some(&b'=')).then(|| definition(&text[at + 1..])).flatten();
        if let Some(definition) = definition {
            at += 1 + definition.len();
        }
        let close = text[at..].find('}')?;
        Some(Placeholder { range: open..at + close + 1, name: &text[start..name_end], group, definition })
    }
}

/// Up to the bracket that closes the placeholder: neither one of a pair within, nor an escaped one.
fn definition(text: &str) -> Option<&str> {
    let (mut depth, mut escaped) = (0usize, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'{' => depth += 1,
            b'}' if depth == 0 => return (at > 0).then_some(&text[..at]),
            b'}' => depth -= 1,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, named_only: bool, want: Result<&str, &str>) {
        let mut library = Library::default();
        library.read_text("# no\n  A  a+ \nB (%{A:x}|b)\nC c%{D}\nD %{C}\nE\nF %{NOPE}\n\nG {%{A}}");
        let got = library.expand(pattern, named_only).map_err(|fault| fault.message);
        assert_eq!(got.as_deref().map_err(String::as_str), want, "{pattern}");
    }

    #[test]
    fn placeholders() {
        check("x%{A}y", true, Ok("x(?:a+ )y"));
        check("%{A}%{B:b}", false, Ok("(?<A>a+ )(?<B:b>((?<A:x>a+ )|b))"));
        check("%{A:[a][b]:int}", true, Ok("(?<A:[a][b]:int>a+ )"));
        check("%{A:f-g.h}%{A:@t}", true, Ok("(?<A:f-g.h>a+ )(?<A:@t>a+ )"));
        check("%{A:a?}%{A: x}%{A:}", true, Ok("(?<A:a>a+ )(?:a+ )(?:a+ )"));
        check("%{} %{-} %{A %", true, Ok("%{} %{-} %{A %"));
        check("%{E}%{G}", true, Ok("(?:)(?:{(?:a+ )})"));
        check(r"%{Z=\d{2}\}}%{Z:z} %{A}", true, Ok(r"(?:\d{2}\})(?<Z:z>\d{2}\}) (?:a+ )"));
        check("%{NOPE}", true, Err("no pattern is named `NOPE`"));
        check("%{F}", true, Err("no pattern is named `NOPE`, which `F` holds"));
        check("%{C}", true, Err("pattern `C` holds itself, by way of `C`, `D`"));
    }

    #[test]
    fn growth_is_limited() {
        let mut library = Library::default();
        library.define("L0", "0123456789");
        for i in 0..30 {
            library.define(&format!("L{}", i + 1), &format!("%{{L{i}}}%{{L{i}}}"));
        }
        let fault = library.expand("%{L30}", true).unwrap_err();
        assert!(fault.message.contains("bytes"), "{}", fault.message);
    }

    #[test]
    fn files_and_directories() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("b.pattern"), "A second\nB b\r\n").unwrap();
        std::fs::write(at("a.pattern"), "A first\n").unwrap();
        std::fs::write(at("c.old"), "A old\n").unwrap();
        std::fs::create_dir(at("d.pattern")).unwrap();
        for (path, glob, want) in
            [("", "*.pattern", Some("second")), ("", "*", Some("old")), ("a.*", "", Some("first")), ("no", "*", None)]
        {
            let library = Library::of_path(&at(path), glob);
            assert_eq!(library.is_ok(), want.is_some(), "{path} {glob}");
            assert_eq!(library.unwrap_or_default().get("A"), want, "{path} {glob}");
        }
    }
}
