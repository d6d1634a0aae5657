//! The few things that people say in `ruby` filters again and again: the time in hex for an id, a digest, a field
//! set, removed or copied, an event dropped. Anything else is not understood.

use std::collections::HashMap;

use super::Mapping;
use super::effects::{Writes, path};
use super::flow::Step;
use super::toml::{Block, Toml, variables};
use super::tree::Plugin;

/// A piece of a text that is made of an event.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    Text(String),
    Field(String),
    /// `@timestamp` in whole seconds, decimal.
    Seconds,
    /// The same in lower-case hex.
    HexSeconds,
    Digest(Digest),
    /// A placeholder that is no field, as written.
    Placeholder(String),
}

/// A digest of fields, as Logstash's fingerprint filter makes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Digest {
    pub method: String,
    pub key: Option<String>,
    pub sources: Vec<String>,
    pub is_concatenated: bool,
    pub is_of_all: bool,
    pub is_base64: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    Set(String, Vec<Part>),
    /// To `@timestamp` in whole seconds, a number.
    SetSeconds(String),
    Remove(String),
    Tag(String),
    Cancel,
}

/// What the code does to an event; none if any of it is not understood.
pub fn statements(code: &str) -> Option<Vec<Statement>> {
    let mut reader = Reader { tokens: tokens(code)?, at: 0, known: HashMap::new(), depth: 0 };
    let mut out = Vec::new();
    while reader.at < reader.tokens.len() {
        if reader.eat(";") {
            continue;
        }
        out.extend(reader.statement()?);
        if reader.at < reader.tokens.len() && !reader.eat(";") {
            return None;
        }
    }
    Some(out)
}

/// `@metadata[tsprefix]`, which is often published, means `[@metadata][tsprefix]`.
pub fn canonical(field: &str) -> String {
    let names = path(field);
    if names.len() == 1 && !field.contains('[') {
        return field.to_string();
    }
    names.iter().map(|name| format!("[{name}]")).collect()
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Word(String),
    Number(i64),
    /// Texts and code in turn.
    Text(Vec<(String, bool)>),
    Sign(String),
}

fn tokens(code: &str) -> Option<Vec<Token>> {
    let mut out = Vec::new();
    let mut rest = code;
    while let Some(c) = rest.chars().next() {
        let mut used = c.len_utf8();
        match c {
            '\n' => out.push(Token::Sign(";".to_string())),
            c if c.is_whitespace() => {}
            '#' => used = rest.find('\n').unwrap_or(rest.len()),
            '"' | '\'' => {
                let (text, len) = string(rest)?;
                used = len;
                out.push(Token::Text(text));
            }
            c if c.is_ascii_digit() => {
                used = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
                out.push(Token::Number(rest[..used].parse().ok()?));
            }
            c if c.is_ascii_alphabetic() || c == '_' => {
                used = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
                out.push(Token::Word(rest[..used].to_string()));
            }
            _ => {
                let sign = if rest.starts_with("::") { "::" } else { &rest[..used] };
                used = sign.len();
                out.push(Token::Sign(sign.to_string()));
            }
        }
        rest = &rest[used..];
    }
    Some(out)
}

/// A string with its quotes: its parts and its length.
fn string(text: &str) -> Option<(Vec<(String, bool)>, usize)> {
    let quote = text.chars().next()?;
    let (mut parts, mut plain) = (Vec::new(), String::new());
    let mut at = 1;
    loop {
        let rest = &text[at..];
        let c = rest.chars().next()?;
        if c == quote {
            parts.push((plain, false));
            return Some((parts, at + 1));
        }
        if c == '\\' {
            let next = rest[1..].chars().next()?;
            if !matches!(next, '"' | '\'' | '\\') {
                return None;
            }
            plain.push(next);
            at += 2;
        } else if quote == '"' && rest.starts_with("#{") {
            let end = rest.find('}')?;
            parts.push((std::mem::take(&mut plain), false));
            parts.push((rest[2..end].to_string(), true));
            at += end + 1;
        } else {
            plain.push(c);
            at += c.len_utf8();
        }
    }
}

#[derive(Clone, Debug)]
enum Thing {
    Event,
    /// `@timestamp`.
    Time,
    Seconds,
    Field(String),
    Text(Vec<Part>),
    Number(i64),
    List(Vec<Thing>),
    /// A name with its colons.
    Constant(String),
    Done(Vec<Statement>),
}

struct Reader {
    tokens: Vec<Token>,
    at: usize,
    known: HashMap<String, Thing>,
    depth: usize,
}

/// What may be called without parentheses around what it is given.
const LOOSE: [&str; 9] = ["to_s", "set", "get", "remove", "tag", "rjust", "sprintf", "format", "require"];

impl Reader {
    fn peek(&self, sign: &str) -> bool {
        matches!(self.tokens.get(self.at), Some(Token::Sign(found)) if found == sign)
    }

    fn eat(&mut self, sign: &str) -> bool {
        let is = self.peek(sign);
        self.at += usize::from(is);
        is
    }

    fn statement(&mut self) -> Option<Vec<Statement>> {
        if let (Some(Token::Word(name)), Some(Token::Sign(sign))) =
            (self.tokens.get(self.at), self.tokens.get(self.at + 1))
            && sign == "="
            && name != "event"
        {
            let name = name.clone();
            self.at += 2;
            let value = self.sum()?;
            self.known.insert(name, value);
            return Some(Vec::new());
        }
        match self.sum()? {
            Thing::Done(statements) => Some(statements),
            // `event['x'] = …`, as it was before Logstash 5
            Thing::Field(field) if self.eat("=") => {
                let value = self.sum()?;
                Some(vec![Statement::Set(field, text(value)?)])
            }
            _ => None,
        }
    }

    fn sum(&mut self) -> Option<Thing> {
        self.depth += 1;
        if self.depth > 50 {
            return None;
        }
        let mut left = self.product()?;
        while self.eat("+") {
            let right = self.product()?;
            left = Thing::Text([text(left)?, text(right)?].concat());
        }
        self.depth -= 1;
        Some(left)
    }

    fn product(&mut self) -> Option<Thing> {
        let mut left = self.chain()?;
        while self.eat("%") {
            let right = self.chain()?;
            left = formatted(left, right)?;
        }
        Some(left)
    }

    fn chain(&mut self) -> Option<Thing> {
        let mut thing = self.primary()?;
        loop {
            if self.eat(".") {
                let Some(Token::Word(name)) = self.tokens.get(self.at).cloned() else { return None };
                self.at += 1;
                let given = self.arguments(&name)?;
                thing = called(thing, &name, given)?;
            } else if self.eat("::") {
                let Some(Token::Word(name)) = self.tokens.get(self.at).cloned() else { return None };
                self.at += 1;
                let Thing::Constant(before) = thing else { return None };
                thing = Thing::Constant(format!("{before}::{name}"));
            } else if matches!(thing, Thing::Event) && self.eat("[") {
                let field = self.sum()?;
                thing = self.eat("]").then(|| called(Thing::Event, "get", vec![field]))??;
            } else {
                return Some(thing);
            }
        }
    }

    fn arguments(&mut self, name: &str) -> Option<Vec<Thing>> {
        if self.eat("(") {
            return self.list(")");
        }
        let follows = matches!(self.tokens.get(self.at), Some(Token::Text(_) | Token::Number(_) | Token::Word(_)));
        if !follows || !LOOSE.contains(&name) {
            return Some(Vec::new());
        }
        let mut given = vec![self.sum()?];
        while self.eat(",") {
            given.push(self.sum()?);
        }
        Some(given)
    }

    fn list(&mut self, end: &str) -> Option<Vec<Thing>> {
        let mut list = Vec::new();
        while !self.eat(end) {
            if !list.is_empty() && !self.eat(",") {
                return None;
            }
            list.push(self.sum()?);
        }
        Some(list)
    }

    fn primary(&mut self) -> Option<Thing> {
        let token = self.tokens.get(self.at)?.clone();
        self.at += 1;
        match token {
            Token::Number(number) => Some(Thing::Number(number)),
            Token::Text(parts) => {
                let mut out = Vec::new();
                for (part, is_code) in parts {
                    match is_code {
                        true => out.extend(self.inner(&part)?),
                        false if !part.is_empty() => out.push(Part::Text(part)),
                        false => {}
                    }
                }
                Some(Thing::Text(out))
            }
            Token::Sign(sign) if sign == "(" => {
                let inner = self.sum()?;
                self.eat(")").then_some(inner)
            }
            Token::Sign(sign) if sign == "[" => self.list("]").map(Thing::List),
            Token::Sign(_) => None,
            Token::Word(word) if word == "event" => Some(Thing::Event),
            Token::Word(word) if word == "require" => {
                self.arguments("require")?;
                Some(Thing::Done(Vec::new()))
            }
            Token::Word(word) if word == "sprintf" || word == "format" => {
                let mut given = self.arguments(&word)?.into_iter();
                formatted(given.next()?, given.next()?)
            }
            Token::Word(word) if word.starts_with(|c: char| c.is_ascii_uppercase()) => Some(Thing::Constant(word)),
            Token::Word(word) => self.known.get(&word).cloned(),
        }
    }

    /// The code within a string.
    fn inner(&mut self, code: &str) -> Option<Vec<Part>> {
        let mut reader = Reader { tokens: tokens(code)?, at: 0, known: self.known.clone(), depth: self.depth };
        let thing = reader.sum()?;
        (reader.at == reader.tokens.len()).then(|| text(thing))?
    }
}

fn text(thing: Thing) -> Option<Vec<Part>> {
    match thing {
        Thing::Text(parts) => Some(parts),
        Thing::Field(field) => Some(vec![Part::Field(field)]),
        Thing::Seconds => Some(vec![Part::Seconds]),
        _ => None,
    }
}

fn constant(thing: &Thing) -> Option<&str> {
    match thing {
        Thing::Text(parts) => match &parts[..] {
            [Part::Text(text)] => Some(text),
            _ => None,
        },
        _ => None,
    }
}

fn formatted(format: Thing, value: Thing) -> Option<Thing> {
    let value = match value {
        Thing::List(mut list) if list.len() == 1 => list.remove(0),
        other => other,
    };
    match (constant(&format)?, value) {
        ("%x" | "%08x" | "%.8x", Thing::Seconds) => Some(Thing::Text(vec![Part::HexSeconds])),
        ("%d" | "%s" | "%i", Thing::Seconds) => Some(Thing::Text(vec![Part::Seconds])),
        _ => None,
    }
}

fn called(thing: Thing, name: &str, given: Vec<Thing>) -> Option<Thing> {
    match (thing, name, &given[..]) {
        (Thing::Event, "get", [field]) => {
            let field = canonical(constant(field)?);
            Some(if path(&field)[..] == ["@timestamp"] { Thing::Time } else { Thing::Field(field) })
        }
        (Thing::Event, "timestamp", []) => Some(Thing::Time),
        (Thing::Event, "set", [field, value]) => {
            let field = canonical(constant(field)?);
            Some(Thing::Done(vec![match value {
                Thing::Seconds => Statement::SetSeconds(field),
                value => Statement::Set(field, text(value.clone())?),
            }]))
        }
        (Thing::Event, "remove", [field]) => Some(Thing::Done(vec![Statement::Remove(canonical(constant(field)?))])),
        (Thing::Event, "tag", [tag]) => Some(Thing::Done(vec![Statement::Tag(constant(tag)?.to_string())])),
        (Thing::Event, "cancel", []) => Some(Thing::Done(vec![Statement::Cancel])),
        (Thing::Time, "time" | "utc" | "to_time" | "to_f", []) => Some(Thing::Time),
        (Thing::Time | Thing::Seconds, "to_i", []) => Some(Thing::Seconds),
        (Thing::Seconds, "to_s", [Thing::Number(16)]) => Some(Thing::Text(vec![Part::HexSeconds])),
        (Thing::Seconds, "to_s", [] | [Thing::Number(10)]) => Some(Thing::Text(vec![Part::Seconds])),
        (Thing::Text(parts), "to_s", []) => Some(Thing::Text(parts)),
        (Thing::Text(parts), "rjust", [Thing::Number(8), zero])
            if parts == [Part::HexSeconds] && constant(zero) == Some("0") =>
        {
            Some(Thing::Text(parts))
        }
        (Thing::Text(parts), "downcase", []) if parts == [Part::HexSeconds] => Some(Thing::Text(parts)),
        (Thing::Field(field), "to_s", []) => Some(Thing::Text(vec![Part::Field(field)])),
        (Thing::Constant(class), "hexdigest", [of]) => digest(class.strip_prefix("Digest::")?, None, of),
        (Thing::Constant(class), "hexdigest", [by, key, of]) if class == "OpenSSL::HMAC" => {
            let Thing::Constant(method) = by else { return None };
            digest(method.strip_prefix("OpenSSL::Digest::")?, Some(constant(key)?), of)
        }
        (Thing::Constant(class), "new", []) if class.starts_with("OpenSSL::Digest::") => Some(Thing::Constant(class)),
        (Thing::Constant(class), "new", [name]) if class == "OpenSSL::Digest" => {
            Some(Thing::Constant(format!("{class}::{}", constant(name)?.to_uppercase())))
        }
        _ => None,
    }
}

fn digest(method: &str, key: Option<&str>, of: &Thing) -> Option<Thing> {
    let [Part::Field(field)] = &text(of.clone())?[..] else { return None };
    if !["MD5", "SHA1", "SHA256", "SHA384", "SHA512"].contains(&method) {
        return None;
    }
    Some(Thing::Text(vec![Part::Digest(Digest {
        method: method.to_string(),
        key: key.map(str::to_string),
        sources: vec![field.clone()],
        is_concatenated: false,
        is_of_all: false,
        is_base64: false,
    })]))
}

/// A template of ours; none where there is no placeholder for a part.
pub fn template(parts: &[Part]) -> Option<String> {
    parts.iter().try_fold(String::new(), |mut out, part| {
        match part {
            Part::Text(text) if text.contains("%{") => return None,
            Part::Text(text) | Part::Placeholder(text) => out += text,
            Part::Field(field) => out += &format!("%{{{field}}}"),
            Part::Seconds => out += "%{+%s}",
            Part::HexSeconds | Part::Digest(_) => return None,
        }
        Some(out)
    })
}

impl Mapping<'_> {
    /// A `ruby` filter as filters of ours; none if it is not understood.
    pub fn ruby(&mut self, plugin: &Plugin) -> Option<Vec<Step>> {
        if plugin.settings.iter().any(|setting| !matches!(setting.name.as_str(), "code" | "id" | "enable_metric")) {
            return None;
        }
        let statements = statements(&plugin.text("code")?)?;
        let (mut steps, mut reads_fields) = (Vec::new(), false);
        for statement in &statements {
            let mut block = Block::new("[[filter]]").text("type", "mutate");
            let mut writes = Writes::default();
            match statement {
                Statement::Set(field, parts) => {
                    writes.add(field);
                    let (key, from, to) = match &parts[..] {
                        [Part::Field(from)] => ("copy", from.clone(), field.clone()),
                        parts => ("replace", field.clone(), template(parts)?),
                    };
                    block.add(key, Toml::Table(vec![(from, Toml::Text(variables(&to)?))]));
                    reads_fields |= parts.iter().any(|part| matches!(part, Part::Field(_)));
                }
                Statement::SetSeconds(field) => {
                    writes.add(field);
                    let entry = |value: &str| Toml::Table(vec![(field.clone(), Toml::Text(value.to_string()))]);
                    block.add("replace", entry("%{+%s}"));
                    block.add("convert", entry("integer"));
                }
                Statement::Remove(field) => {
                    writes.add(field);
                    block.add("remove_field", Toml::List(vec![Toml::Text(variables(field)?)]));
                }
                Statement::Tag(tag) if !tag.contains("%{") => {
                    writes.tag(tag);
                    block.add("add_tag", Toml::List(vec![Toml::Text(variables(tag)?)]));
                }
                Statement::Tag(_) => return None,
                Statement::Cancel => block = Block::new("[[filter]]").text("type", "drop"),
            }
            steps.push(Step::new(block, writes));
        }
        let first = steps.first_mut()?;
        first.block.comments = self.heading(plugin);
        if reads_fields {
            let why =
                "a field that is missing is left out here, or stands as its placeholder: in Ruby it is nil, or no text";
            first.block.comments.push(why.to_string());
            self.note(plugin.place, "ruby", why);
        }
        Some(steps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the code does, shown shortly; empty if it is not understood.
    fn check(code: &str, want: &str) {
        let statements = statements(code).unwrap_or_default();
        let shown = statements.iter().map(|statement| match statement {
            Statement::Set(field, parts) => {
                let parts = parts.iter().map(|part| match part {
                    Part::Text(text) | Part::Placeholder(text) => format!("{text:?}"),
                    Part::Field(field) => field.clone(),
                    Part::Seconds => "seconds".to_string(),
                    Part::HexSeconds => "hex".to_string(),
                    Part::Digest(digest) => format!("{}({})", digest.method, digest.sources.join(",")),
                });
                format!("{field}={}", parts.collect::<Vec<_>>().join("+"))
            }
            Statement::SetSeconds(field) => format!("{field}=seconds as a number"),
            Statement::Remove(field) => format!("remove {field}"),
            Statement::Tag(tag) => format!("tag {tag}"),
            Statement::Cancel => "cancel".to_string(),
        });
        assert_eq!(shown.collect::<Vec<_>>().join("; "), want, "{code}");
    }

    #[test]
    fn what_is_understood() {
        check("event.cancel", "cancel");
        check("event.remove('[a][b]')\n\n event.tag \"t\" # why", "remove [a][b]; tag t");
        check("event.set('@metadata[a]', event.get('b'))", "[@metadata][a]=b");
        check("event.set('a', \"x-#{event.get('b')}-#{event.timestamp.to_i}\")", "a=\"x-\"+b+\"-\"+seconds");
        check("require 'digest'; event['a'] = Digest::SHA256.hexdigest(event['[m]'].to_s)", "a=SHA256([m])");
        check("event.set('a', OpenSSL::HMAC.hexdigest(OpenSSL::Digest::MD5.new, 'k', event.get('m')))", "a=MD5(m)");
        check("x = event.get('@timestamp').to_f.to_i\nevent.set('a', '%.8x' % x)", "a=hex");
    }

    #[test]
    fn what_is_not() {
        for code in [
            "event.set('a', 1)",
            "event.set('a', event.get('@timestamp').to_i.to_s(16).upcase)",
            "event.set('a', (event.get('@timestamp').to_f * 1000).to_i.to_s(16))",
            "event.set('a', event.get('time').to_i.to_s(16))",
            "event.cancel if event.get('a')",
            "event.set('a', \"\\u0041\")",
            "event.set('a', 'open",
            "((((((",
            "exit",
        ] {
            check(code, "");
        }
        check(&format!("event.set('a', {}'x'{})", "(".repeat(1000), ")".repeat(1000)), "");
    }
}
