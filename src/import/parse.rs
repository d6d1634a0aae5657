//! Reads Logstash's language: sections, plugins, settings and values. Conditions are read by [`super::expression`].
//!
//! What Logstash's own parser takes is taken, and nothing else, with its oddities: a word has two characters at
//! least, a backslash before a quote keeps the string open even if it is itself escaped, no comment may stand between
//! the entries of a hash, and settings want white space between them.

use super::expression;
use super::tree::{Arm, Branch, Config, Node, Number, Place, Plugin, Setting, Value, Wrong, add_setting};

/// Nesting beyond this is refused.
const DEPTH_MAX: usize = 200;

/// Reads one file into `config`. With `escapes`, `\n`, `\"` and the like are resolved in strings.
pub fn file(number: usize, text: &str, escapes: bool, config: &mut Config) -> Result<(), Wrong> {
    let mut parser = Parser { file: number, text, at: 0, escapes, depth: 0, comments: Vec::new(), comments_to: 0 };
    loop {
        parser.blanks();
        if parser.at == text.len() {
            break;
        }
        parser.section(config)?;
    }
    config.comments.append(&mut parser.comments);
    Ok(())
}

pub(super) struct Parser<'a> {
    file: usize,
    text: &'a str,
    pub(super) at: usize,
    escapes: bool,
    pub(super) depth: usize,
    /// Read and not given to a plugin yet.
    comments: Vec<String>,
    /// Up to where comments were noted: what is read a second time is not noted again.
    comments_to: usize,
}

const BLANKS: [char; 4] = [' ', '\t', '\r', '\n'];

pub(super) fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

impl<'a> Parser<'a> {
    pub(super) fn place(&self, at: usize) -> Place {
        Place { file: self.file, at }
    }

    pub(super) fn wrong_at<T>(&self, at: usize, message: impl Into<String>) -> Result<T, Wrong> {
        Err(Wrong { place: self.place(at), message: message.into() })
    }

    pub(super) fn wrong<T>(&self, message: impl Into<String>) -> Result<T, Wrong> {
        self.wrong_at(self.at, message)
    }

    pub(super) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    pub(super) fn eat(&mut self, token: &str) -> bool {
        let is = self.rest().starts_with(token);
        self.at += if is { token.len() } else { 0 };
        is
    }

    /// What is there, for messages.
    pub(super) fn found(&self) -> String {
        match self.rest().chars().next() {
            None => "the end of the file".to_string(),
            Some(c) => format!("`{}`", c.escape_debug()),
        }
    }

    pub(super) fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, Wrong>) -> Result<T, Wrong> {
        if self.depth == DEPTH_MAX {
            return self.wrong("nested too deeply");
        }
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        result
    }

    /// White space and comments.
    pub(super) fn blanks(&mut self) {
        loop {
            self.at = self.text.len() - self.rest().trim_start_matches(BLANKS).len();
            if !self.rest().starts_with('#') {
                return;
            }
            let line = self.rest().find('\n').unwrap_or(self.rest().len());
            if self.at >= self.comments_to {
                self.comments.push(self.rest()[1..line].trim_end_matches('\r').to_string());
            }
            self.at += line;
            self.comments_to = self.comments_to.max(self.at);
        }
    }

    fn section(&mut self, config: &mut Config) -> Result<(), Wrong> {
        let from = self.at;
        let names = ["input", "filter", "output"];
        let Some(name) = names.into_iter().find(|name| self.eat(name)) else {
            return self.wrong(format!("`input`, `filter` or `output` is wanted, found {}", self.found()));
        };
        if self.rest().starts_with(|c| is_word(c) || c == '-') {
            return self.wrong_at(from, "a section is called `input`, `filter` or `output`");
        }
        let body = self.body()?;
        let nodes = match name {
            "input" => &mut config.inputs,
            "filter" => &mut config.filters,
            _ => &mut config.outputs,
        };
        nodes.extend(body);
        config.comments.append(&mut self.comments);
        Ok(())
    }

    /// `{`, plugins and branches, `}`.
    fn body(&mut self) -> Result<Vec<Node>, Wrong> {
        self.blanks();
        let open = self.at;
        if !self.eat("{") {
            return self.wrong(format!("`{{` is wanted, found {}", self.found()));
        }
        let mut nodes = Vec::new();
        loop {
            self.blanks();
            if self.eat("}") {
                return Ok(nodes);
            }
            if self.rest().is_empty() {
                return self.wrong_at(open, "this `{` is not closed");
            }
            nodes.push(self.deeper(Self::node)?);
        }
    }

    fn node(&mut self) -> Result<Node, Wrong> {
        if self.rest().starts_with("if") {
            let from = self.at;
            match self.head() {
                Ok(condition) => return self.branch(from, condition).map(Node::Branch),
                // a plugin whose name begins with `if`
                Err(wrong) => {
                    self.at = from;
                    if !self.is_plugin() {
                        return Err(wrong);
                    }
                }
            }
        }
        self.plugin().map(Node::Plugin)
    }

    /// `if` and its condition, up to the brace.
    fn head(&mut self) -> Result<expression::Condition, Wrong> {
        self.at += "if".len();
        self.blanks();
        let condition = expression::condition(self)?;
        self.blanks();
        if !self.rest().starts_with('{') {
            let wanted = "`{`, `and`, `or`, `xor` or `nand` is wanted after a condition";
            let hint = match self.rest() {
                rest if rest.starts_with("&&") => ": write `and`",
                rest if rest.starts_with("||") => ": write `or`",
                rest if rest.starts_with("=~") || rest.starts_with("!~") => ": a pattern stands in slashes or quotes",
                rest if rest.starts_with('=') => ": `==` compares, with a field, text or number after it",
                rest if rest.starts_with(|c: char| c.is_ascii_alphabetic()) && self.text[..self.at].ends_with('/') => {
                    ": a pattern takes no flags, begin it with `(?i)`"
                }
                _ => "",
            };
            return self.wrong(format!("{wanted}, found {}{hint}", self.found()));
        }
        Ok(condition)
    }

    fn branch(&mut self, from: usize, condition: expression::Condition) -> Result<Branch, Wrong> {
        let body = self.body()?;
        let mut arms = vec![Arm { place: self.place(from), condition: Some(condition), body }];
        loop {
            let end = self.at;
            self.blanks();
            let from = self.at;
            if !self.eat("else") {
                self.at = end;
                return Ok(Branch { arms });
            }
            self.blanks();
            if self.rest().starts_with("if") {
                let condition = self.head()?;
                let body = self.body()?;
                arms.push(Arm { place: self.place(from), condition: Some(condition), body });
            } else if self.rest().starts_with('{') {
                let body = self.body()?;
                arms.push(Arm { place: self.place(from), condition: None, body });
                return Ok(Branch { arms });
            } else {
                // a plugin whose name begins with `else`
                self.at = end;
                return Ok(Branch { arms });
            }
        }
    }

    /// A name and a brace.
    fn is_plugin(&mut self) -> bool {
        let from = self.at;
        let is = self.name().is_ok() && {
            self.blanks();
            self.rest().starts_with('{')
        };
        self.at = from;
        is
    }

    /// As it is written, with its quotes if it has any.
    fn name(&mut self) -> Result<&'a str, Wrong> {
        let from = self.at;
        let bare = self.rest().find(|c| !is_word(c) && c != '-').unwrap_or(self.rest().len());
        if bare > 0 {
            self.at += bare;
        } else if self.rest().starts_with(['"', '\'']) {
            self.quoted()?;
        } else {
            let hint = match self.rest().chars().next() {
                Some(',') => ": settings and entries are separated by white space, not by commas",
                Some('\u{feff}') => ": a byte order mark",
                Some(c) if c.is_whitespace() => ": only blanks, tabs and line ends are white space",
                _ => "",
            };
            return self.wrong(format!("a name is wanted, found {}{hint}", self.found()));
        }
        Ok(&self.text[from..self.at])
    }

    fn plugin(&mut self) -> Result<Plugin, Wrong> {
        let from = self.at;
        let comments = std::mem::take(&mut self.comments);
        let name = self.name()?.to_string();
        self.blanks();
        let open = self.at;
        if !self.eat("{") {
            let hint = if self.rest().starts_with("=>") { ": a setting stands within a plugin" } else { "" };
            return self.wrong(format!("`{{` is wanted after `{name}`, found {}{hint}", self.found()));
        }
        let mut settings = Vec::new();
        let mut is_apart = true;
        loop {
            self.blanks();
            if self.eat("}") {
                break;
            }
            if self.rest().is_empty() {
                return self.wrong_at(open, "this `{` is not closed");
            }
            if !is_apart && !self.rest().starts_with(',') {
                return self.wrong("white space is wanted before the next setting");
            }
            let setting = self.deeper(Self::setting)?;
            add_setting(&mut settings, setting)?;
            is_apart = self.rest().starts_with(BLANKS);
        }
        let inner_comments = std::mem::take(&mut self.comments);
        Ok(Plugin { place: self.place(from), end: self.at, name, settings, comments, inner_comments })
    }

    fn setting(&mut self) -> Result<Setting, Wrong> {
        let place = self.place(self.at);
        let name = self.name()?;
        let name = if name.starts_with(['"', '\'']) { &name[1..name.len() - 1] } else { name };
        self.arrow(name)?;
        let value = self.value()?;
        Ok(Setting { place, name: name.to_string(), value })
    }

    fn arrow(&mut self, name: &str) -> Result<(), Wrong> {
        self.blanks();
        if !self.eat("=>") {
            return self.wrong(format!("`=>` is wanted after `{name}`, found {}", self.found()));
        }
        self.blanks();
        Ok(())
    }

    pub(super) fn value(&mut self) -> Result<Value, Wrong> {
        let from = self.at;
        match self.rest().chars().next() {
            Some('[') => return self.deeper(Self::list).map(Value::List),
            Some('{') => return self.deeper(Self::hash).map(Value::Hash),
            _ => {}
        }
        if self.is_plugin() {
            let mut plugin = self.deeper(Self::plugin)?;
            // they belong to the plugin around it
            self.comments.append(&mut plugin.comments);
            self.comments.append(&mut plugin.inner_comments);
            return Ok(Value::Plugin(Box::new(plugin)));
        }
        self.at = from;
        match self.scalar()? {
            Some(value) => Ok(value),
            None if self.rest().starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') => {
                self.wrong("a word has two characters at least: put it in quotes")
            }
            None => self.wrong(format!("a value is wanted, found {}", self.found())),
        }
    }

    /// A word, a string or a number.
    fn scalar(&mut self) -> Result<Option<Value>, Wrong> {
        if let Some(word) = self.word() {
            return Ok(Some(Value::Text(word.to_string())));
        }
        if self.rest().starts_with(['"', '\'']) {
            return Ok(Some(Value::Text(self.string()?)));
        }
        Ok(self.number()?.map(Value::Number))
    }

    pub(super) fn word(&mut self) -> Option<&'a str> {
        let rest = self.rest();
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        if end < 2 || rest.starts_with(|c: char| c.is_ascii_digit()) {
            return None;
        }
        self.at += end;
        Some(&rest[..end])
    }

    /// The text between quotes or slashes, as it is written.
    pub(super) fn quoted(&mut self) -> Result<&'a str, Wrong> {
        let from = self.at;
        let quote = self.rest().chars().next().unwrap_or('"');
        let body = &self.rest()[1..];
        let mut before = '\0';
        for (at, c) in body.char_indices() {
            if c == quote && before != '\\' {
                self.at += at + 2;
                return Ok(&body[..at]);
            }
            before = c;
        }
        let what = if quote == '/' { "pattern" } else { "string" };
        let hint = if body.contains(&format!("\\{quote}")) {
            format!(": a backslash before {quote} keeps it open")
        } else {
            String::new()
        };
        self.wrong_at(from, format!("this {what} is not closed{hint}"))
    }

    pub(super) fn string(&mut self) -> Result<String, Wrong> {
        let text = self.quoted()?;
        Ok(if self.escapes { unescaped(text) } else { text.to_string() })
    }

    pub(super) fn number(&mut self) -> Result<Option<Number>, Wrong> {
        let rest = self.rest();
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let sign = usize::from(rest.starts_with('-'));
        let whole = digits(&rest[sign..]);
        if whole == 0 {
            return Ok(None);
        }
        let mut end = sign + whole;
        if rest[end..].starts_with('.') {
            end += 1 + digits(&rest[end + 1..]);
            self.at += end;
            return Ok(Some(Number::Float(rest[..end].parse().unwrap_or(f64::INFINITY))));
        }
        let text = &rest[sign..end];
        let is_octal = text.len() > 1 && text.starts_with('0');
        let value = match is_octal {
            true => match u128::from_str_radix(text, 8) {
                Ok(value) => value.to_string(),
                Err(_) => return self.wrong("a number that begins with 0 is octal, and this is none"),
            },
            false => text.to_string(),
        };
        self.at += end;
        let minus = if sign == 1 && value != "0" { "-" } else { "" };
        Ok(Some(Number::Integer(format!("{minus}{value}"))))
    }

    pub(super) fn list(&mut self) -> Result<Vec<Value>, Wrong> {
        let open = self.at;
        self.at += 1;
        self.blanks();
        let mut list = Vec::new();
        if self.eat("]") {
            return Ok(list);
        }
        loop {
            match self.value()? {
                // Logstash picks the values out of it
                Value::Plugin(plugin) => list.extend(plugin.settings.into_iter().map(|setting| setting.value)),
                value => list.push(value),
            }
            self.blanks();
            if self.eat("]") {
                return Ok(list);
            }
            if self.rest().is_empty() {
                return self.wrong_at(open, "this `[` is not closed");
            }
            if !self.eat(",") {
                return self.wrong(format!("a comma or `]` is wanted, found {}", self.found()));
            }
            self.blanks();
            if self.rest().starts_with(']') {
                return self.wrong("a value is wanted after the comma");
            }
        }
    }

    fn hash(&mut self) -> Result<Vec<(Value, Value)>, Wrong> {
        let open = self.at;
        self.at += 1;
        self.blanks();
        let mut entries: Vec<(Value, Value)> = Vec::new();
        let mut written: Vec<&str> = Vec::new();
        let mut is_apart = true;
        loop {
            if self.eat("}") {
                return Ok(entries);
            }
            if self.rest().is_empty() {
                return self.wrong_at(open, "this `{` is not closed");
            }
            if !is_apart && !self.rest().starts_with(',') {
                return self.wrong("white space and no comment is wanted between the entries of a hash");
            }
            let from = self.at;
            let key = self.key()?;
            let name = &self.text[from..self.at];
            if written.contains(&name) {
                return self.wrong_at(from, format!("{name} is given twice"));
            }
            written.push(name);
            self.arrow(name)?;
            let value_at = self.at;
            let value = self.value()?;
            if matches!(value, Value::Plugin(_)) {
                return self.wrong_at(value_at, "no plugin can stand in a hash");
            }
            match entries.iter_mut().find(|(other, _)| *other == key) {
                Some((_, held)) => *held = value,
                None => entries.push((key, value)),
            }
            let end = self.at;
            self.at = self.text.len() - self.rest().trim_start_matches(BLANKS).len();
            is_apart = self.at > end && !self.rest().starts_with('#');
            self.blanks();
        }
    }

    fn key(&mut self) -> Result<Value, Wrong> {
        if let Some(number) = self.number()? {
            return Ok(Value::Number(number));
        }
        match self.scalar()? {
            Some(key) => Ok(key),
            None => {
                self.name()?;
                self.wrong("a word has two characters at least: put it in quotes")
            }
        }
    }
}

fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('t') => out.push('\t'),
            Some(c @ ('"' | '\'' | '\\')) => out.push(c),
            Some(c) => out.extend(['\\', c]),
            None => out.push('\\'),
        }
    }
    out
}
