//! Writes TOML as a person would: a table with its keys aligned, long lists on several lines, patterns in literal
//! quotes.

/// Longer lines are broken where they can be.
const WIDTH_MAX: usize = 110;

#[derive(Clone, Debug, PartialEq)]
pub enum Toml {
    Text(String),
    /// A number or a boolean.
    Raw(String),
    List(Vec<Toml>),
    /// A list of so many in a row each.
    Rows(usize, Vec<Toml>),
    Table(Vec<(String, Toml)>),
}

/// A table of the file, or comments alone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Block {
    pub comments: Vec<String>,
    /// `[[filter]]`; empty where there are only comments.
    pub header: String,
    pub lines: Vec<Line>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Line {
    Entry(String, Toml),
    Comment(String),
}

impl Block {
    pub fn new(header: &str) -> Block {
        Block { header: header.to_string(), ..Block::default() }
    }

    pub fn comment(mut self, text: impl Into<String>) -> Block {
        self.comments.push(text.into());
        self
    }

    pub fn add(&mut self, key: &str, value: Toml) {
        self.lines.push(Line::Entry(key.to_string(), value));
    }

    pub fn text(mut self, key: &str, text: impl Into<String>) -> Block {
        self.add(key, Toml::Text(text.into()));
        self
    }

    pub fn raw(mut self, key: &str, value: impl ToString) -> Block {
        self.add(key, Toml::Raw(value.to_string()));
        self
    }

    pub fn remark(&mut self, text: impl Into<String>) {
        self.lines.push(Line::Comment(text.into()));
    }

    pub fn remove(&mut self, key: &str) -> bool {
        let before = self.lines.len();
        self.lines.retain(|line| !matches!(line, Line::Entry(name, _) if name == key));
        self.lines.len() < before
    }

    pub fn has(&self, key: &str) -> bool {
        self.lines.iter().any(|line| matches!(line, Line::Entry(name, _) if name == key))
    }

    pub fn render(&self) -> String {
        let mut out = String::new();
        self.comments.iter().for_each(|comment| write_comment(comment, &mut out));
        if self.header.is_empty() {
            return out;
        }
        out += &self.header;
        out.push('\n');
        let name = self.header.trim_matches(['[', ']']);
        let is_inline = |line: &&Line| matches!(line, Line::Entry(key, value) if !is_apart(key, value));
        let widths = self.lines.iter().filter(is_inline).map(|line| match line {
            Line::Entry(key, _) => written_key(key).chars().count(),
            Line::Comment(_) => 0,
        });
        let width = widths.filter(|width| *width <= 16).max().unwrap_or(0);
        for line in &self.lines {
            match line {
                Line::Comment(text) => write_comment(text, &mut out),
                Line::Entry(key, value) if !is_apart(key, value) => write_entry(key, width, value, &mut out),
                Line::Entry(..) => {}
            }
        }
        // tables of their own come last, or what follows would be theirs
        for line in &self.lines {
            let Line::Entry(key, value @ Toml::Table(entries)) = line else { continue };
            if is_apart(key, value) {
                out += &format!("[{name}.{}]\n", written_key(key));
                entries.iter().for_each(|(key, value)| write_entry(key, 0, value, &mut out));
            }
        }
        out
    }
}

/// A table that is too long for a line.
fn is_apart(key: &str, value: &Toml) -> bool {
    matches!(value, Toml::Table(_)) && (inline(value).len() + key.len() + 3 > WIDTH_MAX || has_lines(value))
}

fn has_lines(value: &Toml) -> bool {
    match value {
        Toml::Text(text) => text.contains('\n'),
        Toml::Raw(_) => false,
        Toml::List(items) | Toml::Rows(_, items) => items.iter().any(has_lines),
        Toml::Table(entries) => entries.iter().any(|(_, value)| has_lines(value)),
    }
}

/// Comments of several lines, broken at blanks; lines that begin with a blank are kept as they are.
fn write_comment(text: &str, out: &mut String) {
    for line in text.lines() {
        let line = line.trim_end();
        if line.is_empty() {
            out.push_str("#\n");
            continue;
        }
        if line.starts_with([' ', '\t']) {
            *out += &format!("# {}\n", clean(line));
            continue;
        }
        let mut width = 0;
        for (number, word) in line.split(' ').enumerate() {
            if number > 0 && width + word.chars().count() + 1 > WIDTH_MAX {
                out.push('\n');
                width = 0;
            }
            *out += if width == 0 { "# " } else { " " };
            *out += &clean(word);
            width += word.chars().count() + 1;
        }
        out.push('\n');
    }
}

/// No comment may hold control characters.
fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\t' { '\u{fffd}' } else { c }).collect()
}

fn write_entry(key: &str, width: usize, value: &Toml, out: &mut String) {
    let key = written_key(key);
    *out += &format!("{key:width$} = ");
    let line = inline(value);
    let (items, row) = match value {
        Toml::List(items) if line.chars().count() + key.len().max(width) + 3 > WIDTH_MAX => (items, 1),
        Toml::Rows(row, items) if items.len() > *row => (items, *row),
        _ => {
            *out += &line;
            out.push('\n');
            return;
        }
    };
    out.push_str("[\n");
    for items in items.chunks(row.max(1)) {
        let items: Vec<String> = items.iter().map(inline).collect();
        *out += &format!("  {},\n", items.join(", "));
    }
    out.push_str("]\n");
}

fn inline(value: &Toml) -> String {
    match value {
        Toml::Text(text) => written(text),
        Toml::Raw(text) => text.clone(),
        Toml::List(items) | Toml::Rows(_, items) => {
            format!("[{}]", items.iter().map(inline).collect::<Vec<_>>().join(", "))
        }
        Toml::Table(entries) if entries.is_empty() => "{}".to_string(),
        Toml::Table(entries) => {
            let entries = entries.iter().map(|(key, value)| format!("{} = {}", written_key(key), inline(value)));
            format!("{{ {} }}", entries.collect::<Vec<_>>().join(", "))
        }
    }
}

fn written_key(key: &str) -> String {
    let is_bare = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if is_bare { key.to_string() } else { quoted(key, false) }
}

fn written(text: &str) -> String {
    let is_odd = text.chars().any(|c| c.is_control() && c != '\t' && c != '\n') || text.contains("'''");
    if text.contains('\n') && !is_odd && !text.ends_with('\'') && !text.trim_matches('\n').is_empty() && text.len() > 40
    {
        return format!("'''\n{text}'''");
    }
    quoted(text, true)
}

/// On one line; three quotes are for values only.
fn quoted(text: &str, is_value: bool) -> String {
    let is_odd = text.chars().any(|c| c.is_control());
    if !text.contains(['"', '\\']) && !is_odd {
        return format!("\"{text}\"");
    }
    if !text.contains('\'') && !is_odd {
        return format!("'{text}'");
    }
    if is_value && !text.contains("'''") && !text.ends_with('\'') && !is_odd {
        return format!("'''{text}'''");
    }
    let mut out = "\"".to_string();
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => out += &format!("\\u{:04X}", c as u32),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// `${VAR}` and `${VAR:default}` stay what they are, and what Logstash takes for no variable is made a plain text.
/// None for a variable that we cannot say.
pub fn variables(text: &str) -> Option<String> {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find("${") {
        out += &rest[..at];
        rest = &rest[at..];
        let end = rest.find('}').filter(|end| is_variable(&rest[2..*end]));
        let Some(end) = end else {
            out += "$${";
            rest = &rest[2..];
            continue;
        };
        let (name, default) = match rest[2..end].split_once(':') {
            Some((name, default)) => (name, Some(default)),
            None => (&rest[2..end], None),
        };
        // a dollar before it would make it a plain text, and braces in a default must pair
        let braces = |text: &str, brace| text.matches(brace).count();
        let open = default.map_or(0, |default| braces(default, '{'));
        let closing = rest[end..].bytes().take_while(|b| *b == b'}').count() - 1;
        if out.ends_with('$') || open > closing {
            return None;
        }
        out += "${";
        out += &name.replace('.', "_");
        if let Some(default) = default {
            out.push(':');
            out += default;
        }
        out.push_str(&"}".repeat(open + 1));
        rest = &rest[end + 1 + open..];
    }
    out += rest;
    Some(out)
}

fn is_variable(inner: &str) -> bool {
    let name = inner.split(':').next().unwrap_or("");
    let is_named = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.');
    is_named && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c == '.')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn variables_as_we_write_them() {
        for (text, want) in [
            ("a", Some("a")),
            ("${A}-${B:x}", Some("${A}-${B:x}")),
            ("${a.b}", Some("${a_b}")),
            ("${1x}", Some("$${1x}")),
            ("${A", Some("$${A")),
            ("$${1x}", Some("$$${1x}")),
            ("${}", Some("$${}")),
            ("${A:logs-%{+yyyy}}-x", Some("${A:logs-%{+yyyy}}-x")),
            ("${A:{b}", None),
            ("$${A}", None),
        ] {
            assert_eq!(variables(text).as_deref(), want, "{text}");
        }
    }

    #[test]
    fn tables() {
        let mut block = Block::new("[[filter]]").comment("a\n  b").text("type", "x").raw("n", 1);
        let texts = ["a", "\\d", "'", "b", "\"'", ""];
        block.add("gsub", Toml::Rows(3, texts.map(|t| Toml::Text(t.to_string())).to_vec()));
        block.add("match", Toml::Table(vec![("a b".to_string(), Toml::Text("y".repeat(120)))]));
        block.remark("c");
        let got = block.render();
        let want = [
            "# a",
            "#   b",
            "[[filter]]",
            "type = \"x\"",
            "n    = 1",
            "gsub = [",
            "  \"a\", '\\d', \"'\",",
            "  \"b\", \"\\\"'\", \"\",",
            "]",
            "# c",
            "[filter.match]",
        ];
        assert_eq!(got.lines().take(11).collect::<Vec<_>>(), want);
        assert!(::toml::from_str::<::toml::Table>(&got).is_ok(), "{got}");
    }

    proptest! {
        #[test]
        fn texts_are_read_back(text: String, plain in "[ -~\\n\\t']{0,60}", key: String) {
            prop_assume!(key != "same");
            for text in [text, plain] {
                let mut block = Block::new("[t]").comment(text.as_str());
                block.add(&key, Toml::List(vec![Toml::Text(text.clone())]));
                block.add("same", Toml::Text(text.clone()));
                let rendered = block.render();
                let read = ::toml::from_str::<::toml::Table>(&rendered);
                prop_assert!(read.is_ok(), "{:?}\n{}", read, rendered);
                let read = read.unwrap();
                prop_assert_eq!(read["t"]["same"].as_str(), Some(text.as_str()));
                prop_assert_eq!(read["t"][&key][0].as_str(), Some(text.as_str()));
            }
        }
    }
}
