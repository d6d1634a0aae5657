//! A Logstash configuration as a tree, each part with its place, and where places are in the files.

use std::fmt;

/// One configuration file.
#[derive(Clone, Debug)]
pub struct Source {
    pub name: String,
    pub text: String,
}

/// A byte of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    pub file: usize,
    pub at: usize,
}

impl Place {
    /// Line and column, from 1; a column is a character.
    pub fn line_column(self, sources: &[Source]) -> (usize, usize) {
        let text = sources.get(self.file).map_or("", |source| source.text.as_str());
        let before = text.get(..self.at).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
    }

    /// `apache.conf:12`.
    pub fn line(self, sources: &[Source]) -> String {
        format!("{}:{}", name(sources, self.file), self.line_column(sources).0)
    }

    /// `apache.conf:12:3`.
    pub fn full(self, sources: &[Source]) -> String {
        let (line, column) = self.line_column(sources);
        format!("{}:{line}:{column}", name(sources, self.file))
    }
}

fn name(sources: &[Source], file: usize) -> &str {
    sources.get(file).map_or("?", |source| source.name.as_str())
}

/// What is wrong with a file, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    pub place: Place,
    pub message: String,
}

impl Wrong {
    /// With the line that it is in.
    pub fn render(&self, sources: &[Source]) -> String {
        let text = sources.get(self.place.file).map_or("", |source| source.text.as_str());
        let (number, column) = self.place.line_column(sources);
        let line = text.split('\n').nth(number - 1).unwrap_or("").trim_end_matches('\r');
        let head: String = line.chars().take(column - 1).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        let margin = " ".repeat(number.to_string().len());
        format!("{}: {}\n  {number} | {line}\n  {margin} | {head}^\n", self.place.full(sources), self.message,)
    }
}

/// All files together: the sections of one kind follow one another.
#[derive(Clone, Debug, Default)]
pub struct Config {
    pub inputs: Vec<Node>,
    pub filters: Vec<Node>,
    pub outputs: Vec<Node>,
    /// Comments that no plugin follows.
    pub comments: Vec<String>,
}

#[derive(Clone, Debug)]
pub enum Node {
    Plugin(Plugin),
    Branch(Branch),
}

/// An `if` with its `else if` and `else`.
#[derive(Clone, Debug)]
pub struct Branch {
    pub arms: Vec<Arm>,
}

#[derive(Clone, Debug)]
pub struct Arm {
    pub place: Place,
    /// None: `else`.
    pub condition: Option<super::expression::Condition>,
    pub body: Vec<Node>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Plugin {
    pub place: Place,
    /// The byte after its brace.
    pub end: usize,
    /// As written, with its quotes if it has any.
    pub name: String,
    /// Each name once: what is given several times is put together as Logstash does.
    pub settings: Vec<Setting>,
    /// Comments before it, without their `#`.
    pub comments: Vec<String>,
    pub inner_comments: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    pub place: Place,
    pub name: String,
    pub value: Value,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A word or a string.
    Text(String),
    Number(Number),
    List(Vec<Value>),
    Hash(Vec<(Value, Value)>),
    Plugin(Box<Plugin>),
}

#[derive(Clone, Debug)]
pub enum Number {
    /// Decimal digits, with a sign if it is negative.
    Integer(String),
    Float(f64),
}

impl Number {
    fn as_f64(&self) -> f64 {
        match self {
            Number::Integer(digits) => digits.parse().unwrap_or(f64::NAN),
            Number::Float(number) => *number,
        }
    }
}

impl PartialEq for Number {
    fn eq(&self, other: &Number) -> bool {
        match (self, other) {
            (Number::Integer(a), Number::Integer(b)) => a == b,
            _ => self.as_f64() == other.as_f64(),
        }
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Number::Integer(digits) => f.write_str(digits),
            Number::Float(number) => write!(f, "{number:?}"),
        }
    }
}

impl Plugin {
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.settings.iter().find(|setting| setting.name == name).map(|setting| &setting.value)
    }

    pub fn text(&self, name: &str) -> Option<String> {
        self.get(name).and_then(Value::scalar)
    }

    /// The value, or each of a list, as text.
    pub fn texts(&self, name: &str) -> Vec<String> {
        self.get(name).map(Value::texts).unwrap_or_default()
    }

    /// A hash, or a list that Logstash reads as one, as texts.
    pub fn pairs(&self, name: &str) -> Vec<(String, Value)> {
        self.get(name).and_then(Value::pairs).unwrap_or_default()
    }

    pub fn flag(&self, name: &str) -> bool {
        self.text(name).is_some_and(|text| text == "true")
    }

    pub fn place_of(&self, name: &str) -> Place {
        self.settings.iter().find(|setting| setting.name == name).map_or(self.place, |setting| setting.place)
    }

    /// Every text in it, keys of hashes too.
    pub fn each_text<'a>(&'a self, visit: &mut impl FnMut(&'a str)) {
        self.settings.iter().for_each(|setting| setting.value.each_text(visit));
    }
}

impl Value {
    /// Text or a number, as text.
    pub fn scalar(&self) -> Option<String> {
        match self {
            Value::Text(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            Value::List(list) if list.len() == 1 => list[0].scalar(),
            _ => None,
        }
    }

    pub fn texts(&self) -> Vec<String> {
        match self {
            Value::List(list) => list.iter().filter_map(Value::scalar).collect(),
            other => other.scalar().into_iter().collect(),
        }
    }

    /// A list is taken for keys and values in turn, the values of a key that comes again being put together.
    pub fn pairs(&self) -> Option<Vec<(String, Value)>> {
        match self {
            Value::Hash(entries) => entries.iter().map(|(key, value)| Some((key.scalar()?, value.clone()))).collect(),
            Value::List(list) if list.len().is_multiple_of(2) => {
                let mut pairs: Vec<(String, Value)> = Vec::new();
                for pair in list.chunks_exact(2) {
                    let key = pair[0].scalar()?;
                    match pairs.iter_mut().find(|(other, _)| *other == key) {
                        None => pairs.push((key, pair[1].clone())),
                        Some((_, Value::List(values))) => values.push(pair[1].clone()),
                        Some((_, value)) => *value = Value::List(vec![value.clone(), pair[1].clone()]),
                    }
                }
                Some(pairs)
            }
            _ => None,
        }
    }

    pub fn each_text<'a>(&'a self, visit: &mut impl FnMut(&'a str)) {
        match self {
            Value::Text(text) => visit(text),
            Value::Number(_) => {}
            Value::List(list) => list.iter().for_each(|value| value.each_text(visit)),
            Value::Hash(entries) => entries.iter().for_each(|(key, value)| {
                key.each_text(visit);
                value.each_text(visit);
            }),
            Value::Plugin(plugin) => plugin.each_text(visit),
        }
    }
}

/// Calls `visit` with each plugin in the order written.
pub fn each_plugin<'a>(nodes: &'a [Node], visit: &mut impl FnMut(&'a Plugin)) {
    for node in nodes {
        match node {
            Node::Plugin(plugin) => visit(plugin),
            Node::Branch(branch) => branch.arms.iter().for_each(|arm| each_plugin(&arm.body, visit)),
        }
    }
}

/// Calls `visit` with each condition in the order written.
pub fn each_condition<'a>(nodes: &'a [Node], visit: &mut impl FnMut(&'a super::expression::Condition)) {
    for node in nodes {
        let Node::Branch(branch) = node else { continue };
        for arm in &branch.arms {
            arm.condition.iter().for_each(&mut *visit);
            each_condition(&arm.body, visit);
        }
    }
}

/// Puts a setting beside those before it: hashes are merged, a list goes on, different values become a list.
pub fn add_setting(settings: &mut Vec<Setting>, new: Setting) -> Result<(), Wrong> {
    let Some(held) = settings.iter_mut().find(|held| held.name == new.name) else {
        settings.push(new);
        return Ok(());
    };
    if new.name == "codec" {
        return Err(Wrong { place: new.place, message: "a plugin has one codec".to_string() });
    }
    match (&mut held.value, new.value) {
        (Value::Hash(held), Value::Hash(more)) => more.into_iter().for_each(|(key, value)| add_entry(held, key, value)),
        (Value::Hash(_), _) => {
            let message = format!("`{}` is a hash before, and cannot be put together with anything else", new.name);
            return Err(Wrong { place: new.place, message });
        }
        (Value::List(held), Value::List(more)) => held.extend(more),
        (Value::List(held), more) => held.push(more),
        (held, more) if *held == more => {}
        (held, more) => *held = Value::List(vec![held.clone(), more]),
    }
    Ok(())
}

fn add_entry(entries: &mut Vec<(Value, Value)>, key: Value, value: Value) {
    let Some((_, held)) = entries.iter_mut().find(|(other, _)| *other == key) else {
        entries.push((key, value));
        return;
    };
    match (held, value) {
        (Value::Hash(held), Value::Hash(more)) => more.into_iter().for_each(|(key, value)| add_entry(held, key, value)),
        (Value::List(held), Value::List(more)) => held.extend(more),
        (Value::List(held), more) => held.push(more),
        (held, Value::List(more)) => {
            let mut list = vec![held.clone()];
            list.extend(more);
            *held = Value::List(list);
        }
        (held, more) => *held = Value::List(vec![held.clone(), more]),
    }
}
