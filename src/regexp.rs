//! Regular expressions as Ruby spells them, which is how Logstash configurations hold them. They are rewritten for
//! the linear-time engine, or, where they look around, refer back or must not give back, for the one that
//! backtracks; that one stops after [`STEPS_MAX`] steps, so no event can hold a worker up.
//!
//! [`Capturing`] is for patterns whose named groups are wanted from every event: it has a machine of its own.
//! [`First`] is for many patterns of which the first that fits is wanted.
//! [`OfLine`] is for patterns that are asked of every line, and say yes or no.
//!
//! What differs in Ruby: `^` and `$` are the ends of lines, `(?m)` lets the dot match a line end, `\d \w \s \h` are
//! ASCII while `[[:alpha:]]` is not, `\Z` is before a last line end, a `{` that counts nothing is a plain character,
//! and round brackets do not capture where a group has a name. `(?i)` reaches over `|` to the end of its group.

mod capturing;
mod compile;
mod first;
mod line;
mod literals;
mod machine;
mod tree;

use std::fmt;
use std::time::Duration;

pub use capturing::Capturing;
pub use first::First;
pub use line::OfLine;
pub use machine::Found;

/// Where a backtracking match is given up.
pub const STEPS_MAX: usize = 1_000_000;
/// Where replacing in one text is given up: many matches can each look through all the rest of it.
const REPLACE_CPU_MAX: Duration = Duration::from_secs(2);
/// How often that is looked at by the linear engine, in matches.
const REPLACE_WATCH: usize = 256;
/// The longest pattern.
const PATTERN_BYTES_MAX: usize = 64 << 10;
/// A pattern that an event brings is short, and makes a small program.
const OWN_PATTERN_BYTES_MAX: usize = 1000;
const OWN_PROGRAM_BYTES_MAX: usize = 256 << 10;

#[derive(Clone, Debug)]
pub struct Regexp {
    text: Box<str>,
    engine: Engine,
    /// Of each group, where groups have names; the engines know them by number only, since in Ruby several may share
    /// a name and a name may hold any character.
    names: Vec<String>,
}

#[derive(Clone, Debug)]
enum Engine {
    Linear(regex::Regex),
    Backtracking(Box<fancy_regex::Regex>),
}

/// A match was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runaway {
    /// After [`STEPS_MAX`] steps.
    Steps,
    /// After [`REPLACE_CPU_MAX`].
    Time,
}

impl fmt::Display for Runaway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Runaway::Steps => write!(f, "the pattern was given up after {STEPS_MAX} steps"),
            Runaway::Time => write!(f, "the pattern was given up after {REPLACE_CPU_MAX:?} in one text"),
        }
    }
}

/// Where a match and its groups stand.
pub type Groups = Vec<Option<(usize, usize)>>;

impl Regexp {
    pub fn parse(text: &str) -> Result<Regexp, String> {
        Regexp::build(text, PATTERN_BYTES_MAX, None)
    }

    /// A pattern that an event brings, which may be hostile.
    pub fn parse_of_event(text: &str) -> Result<Regexp, String> {
        Regexp::build(text, OWN_PATTERN_BYTES_MAX, Some(OWN_PROGRAM_BYTES_MAX))
    }

    fn build(text: &str, pattern_bytes_max: usize, program_bytes_max: Option<usize>) -> Result<Regexp, String> {
        if text.len() > pattern_bytes_max {
            return Err(format!("the pattern is longer than {pattern_bytes_max} bytes"));
        }
        let Translated { pattern, backtracks, names } = translate(text, false).map_err(|why| one_line(&why))?;
        let mut builder = regex::RegexBuilder::new(&pattern);
        let mut fancy = fancy_regex::RegexBuilder::new(&pattern);
        if let Some(bytes) = program_bytes_max {
            builder.size_limit(bytes);
            fancy.delegate_size_limit(bytes);
        }
        let linear = if backtracks { None } else { Some(builder.build()) };
        let engine = match linear {
            Some(Ok(regex)) => Engine::Linear(regex),
            Some(Err(regex::Error::CompiledTooBig(_))) => return Err("the pattern is too big".to_string()),
            _ => {
                let built = fancy.backtrack_limit(STEPS_MAX).build();
                Engine::Backtracking(Box::new(built.map_err(|e| one_line(&e.to_string()))?))
            }
        };
        Ok(Regexp { text: text.into(), engine, names })
    }

    /// Only if the linear engine can have it.
    fn linear(text: &str) -> Option<Regexp> {
        let Translated { pattern, backtracks, names } = translate(text, false).ok()?;
        let regex = if backtracks { None } else { regex::Regex::new(&pattern).ok() };
        Some(Regexp { text: text.into(), engine: Engine::Linear(regex?), names })
    }

    /// For texts without a line end, where `^` is their beginning and `$` their end; only if the linear engine can
    /// have it.
    fn linear_of_line(text: &str) -> Option<regex::Regex> {
        let Translated { pattern, backtracks, .. } = translate(text, true).ok()?;
        if backtracks { None } else { regex::Regex::new(&pattern).ok() }
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// As the engine has it.
    fn engines_text(&self) -> &str {
        match &self.engine {
            Engine::Linear(regex) => regex.as_str(),
            Engine::Backtracking(regex) => regex.as_str(),
        }
    }

    /// Whether matching takes time in proportion to the text, whatever the text.
    pub fn is_linear(&self) -> bool {
        matches!(self.engine, Engine::Linear(_))
    }

    pub fn is_match(&self, text: &str) -> Result<bool, Runaway> {
        match &self.engine {
            Engine::Linear(regex) => Ok(regex.is_match(text)),
            Engine::Backtracking(regex) => regex.is_match(text).map_err(|_| Runaway::Steps),
        }
    }

    /// Ruby's `gsub`: writes `text` with every match replaced, and says whether there was one. The replacement may
    /// hold `\1`, `\0` or `\&`, `\k<name>`, and `\\`.
    pub fn replace_all(&self, text: &str, replacement: &str, out: &mut Vec<u8>) -> Result<bool, Runaway> {
        self.replace_within(REPLACE_CPU_MAX, text, replacement, out)
    }

    fn replace_within(
        &self,
        cpu_max: Duration,
        text: &str,
        replacement: &str,
        out: &mut Vec<u8>,
    ) -> Result<bool, Runaway> {
        let (mut copied, mut from, mut any) = (0, 0, false);
        let (mut matches, mut started) = (0, None);
        while from <= text.len() {
            matches += 1;
            if !self.is_linear() || matches % REPLACE_WATCH == 0 {
                let now = cpu_time();
                if now.saturating_sub(*started.get_or_insert(now)) > cpu_max {
                    return Err(Runaway::Time);
                }
            }
            let Some(groups) = self.groups_from(text, from)? else { break };
            let Some((start, end)) = groups.first().copied().flatten() else { break };
            any = true;
            out.extend_from_slice(&text.as_bytes()[copied..start]);
            self.expand(replacement, text, &groups, out);
            copied = end;
            // an empty match moves on by one character, which stays
            from = if end > start { end } else { end + text[end..].chars().next().map_or(1, char::len_utf8) };
        }
        out.extend_from_slice(&text.as_bytes()[copied..]);
        Ok(any)
    }

    /// The first match at `from` or behind, and its groups.
    pub fn groups_from(&self, text: &str, from: usize) -> Result<Option<Groups>, Runaway> {
        match &self.engine {
            Engine::Linear(regex) => {
                let found = regex.captures_at(text, from);
                Ok(found.map(|c| c.iter().map(|g| g.map(|g| (g.start(), g.end()))).collect()))
            }
            Engine::Backtracking(regex) => {
                let found = regex.captures_from_pos(text, from).map_err(|_| Runaway::Steps)?;
                Ok(found.map(|c| c.iter().map(|g| g.map(|g| (g.start(), g.end()))).collect()))
            }
        }
    }

    /// Of several groups of that name the last one that took part.
    fn group_named(&self, name: &str, groups: &Groups) -> Option<usize> {
        let named = |number: &usize| self.names[number - 1] == name;
        let taken = |number: &usize| groups.get(*number).is_some_and(Option::is_some);
        (1..=self.names.len()).rev().find(|number| named(number) && taken(number))
    }

    fn expand(&self, replacement: &str, text: &str, groups: &Groups, out: &mut Vec<u8>) {
        let group = |number: usize, out: &mut Vec<u8>| {
            if let Some((start, end)) = groups.get(number).copied().flatten() {
                out.extend_from_slice(&text.as_bytes()[start..end]);
            }
        };
        let mut rest = replacement;
        while let Some(at) = rest.find('\\') {
            out.extend_from_slice(&rest.as_bytes()[..at]);
            let after = &rest[at + 1..];
            let used = match after.as_bytes().first() {
                Some(digit @ b'0'..=b'9') => {
                    group(usize::from(digit - b'0'), out);
                    1
                }
                Some(b'&') => {
                    group(0, out);
                    1
                }
                Some(b'k') if after.starts_with("k<") && after.contains('>') => {
                    let end = after.find('>').unwrap_or(1);
                    if let Some(number) = self.group_named(&after[2..end], groups) {
                        group(number, out);
                    }
                    end + 1
                }
                Some(b'\\') => {
                    out.push(b'\\');
                    1
                }
                _ => {
                    out.push(b'\\');
                    0
                }
            };
            rest = &after[used..];
        }
        out.extend_from_slice(rest.as_bytes());
    }
}

/// Of this thread.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn one_line(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

/// A pattern in the engines' spelling.
struct Translated {
    pattern: String,
    /// It needs the engine that backtracks.
    backtracks: bool,
    /// The names of its groups, in their order; empty if they have none.
    names: Vec<String>,
}

/// `of_line`: the texts hold no line end.
fn translate(text: &str, of_line: bool) -> Result<Translated, String> {
    let chars: Vec<char> = text.chars().collect();
    let mut writer = Writer::new(&chars);
    if !of_line {
        writer.out.push_str("(?m)");
    }
    writer.pattern()?;
    Ok(Translated { pattern: writer.out, backtracks: writer.backtracks, names: writer.names })
}

struct Writer<'a> {
    chars: &'a [char],
    at: usize,
    out: String,
    backtracks: bool,
    /// A group has a name, so those without one do not capture.
    named: bool,
    names: Vec<String>,
    /// How many groups that capture have begun.
    captures: usize,
    open: Vec<Open>,
    depth: usize,
}

/// A group that is open, or the whole pattern.
#[derive(Clone, Copy, Default)]
struct Open {
    /// How many more end with it: `(?i)` reaches to the end of its group.
    more: usize,
    /// `(?x)`: blanks and comments say nothing.
    extended: bool,
}

/// A count such as `{10,200}` is no longer.
const COUNT_CHARS_MAX: usize = 24;

/// Nested classes beyond this are refused.
const DEPTH_MAX: usize = 50;

const DIGIT: &str = "0-9";
const WORD: &str = "0-9A-Za-z_";
const SPACE: &str = r"\t-\r\x20";
const HEX: &str = "0-9A-Fa-f";

impl Writer<'_> {
    fn new(chars: &[char]) -> Writer<'_> {
        let named = (0..chars.len()).any(|i| {
            chars[i..].starts_with(&['(', '?', '<']) && !matches!(chars.get(i + 3), Some('=' | '!'))
                || chars[i..].starts_with(&['(', '?', '\''])
        });
        let (out, names, open) = (String::new(), Vec::new(), vec![Open::default()]);
        Writer { chars, at: 0, out, backtracks: false, named, names, captures: 0, open, depth: 0 }
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek(0)?;
        self.at += 1;
        Some(c)
    }

    /// The characters up to `end`, which is passed too.
    fn until(&mut self, end: char) -> Result<String, String> {
        let rest = &self.chars[self.at..];
        let len = rest.iter().position(|c| *c == end).ok_or_else(|| format!("`{end}` is missing"))?;
        self.at += len + 1;
        Ok(rest[..len].iter().collect())
    }

    fn pattern(&mut self) -> Result<(), String> {
        while let Some(c) = self.next() {
            match c {
                '#' if self.is_extended() => while self.next().is_some_and(|c| c != '\n') {},
                ' ' | '\t'..='\r' if self.is_extended() => {}
                '\\' => drop(self.escape(false)?),
                '[' => self.class()?,
                '(' => self.group()?,
                ')' => self.close()?,
                '{' => match self.interval() {
                    Some((low, Some(high))) if low == high => self.out.push_str(&format!("{{{low}}}")),
                    Some((low, high)) => {
                        let high = high.map_or(String::new(), |high| high.to_string());
                        self.out.push_str(&format!("{{{low},{high}}}"));
                    }
                    None => self.out.push_str(r"\{"),
                },
                '*' | '+' | '?' => {
                    self.out.push(c);
                    match self.peek(0) {
                        Some('+') => {
                            self.backtracks = true;
                            self.at += 1;
                            self.out.push('+');
                        }
                        Some('?') => {
                            self.at += 1;
                            self.out.push('?');
                        }
                        _ => {}
                    }
                }
                c => self.out.push(c),
            }
        }
        let last = self.open.pop().ok_or("a bracket closes that was not opened")?;
        self.out.extend(std::iter::repeat_n(')', last.more));
        Ok(())
    }

    /// After `)`.
    fn close(&mut self) -> Result<(), String> {
        let group = self.open.pop().ok_or("a bracket closes that was not opened")?;
        self.out.extend(std::iter::repeat_n(')', group.more + 1));
        Ok(())
    }

    fn is_extended(&self) -> bool {
        self.open.last().is_some_and(|group| group.extended)
    }

    fn begin_group(&mut self, extended: bool) {
        self.open.push(Open { more: 0, extended });
    }

    /// After `{`: the least and the greatest count, or nothing where it is a plain bracket.
    fn interval(&mut self) -> Option<(u32, Option<u32>)> {
        let rest = &self.chars[self.at..];
        // no count is longer, and a text of brackets only is not searched to its end for each
        let len = rest.iter().take(COUNT_CHARS_MAX).position(|c| *c == '}')?;
        let inner: String = rest[..len].iter().collect();
        let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then_some(());
        let (low, high) = match inner.split_once(',') {
            None => (inner.parse().ok()?, Some(inner.parse().ok()?)),
            Some(("", "")) => return None,
            Some((low, high)) => {
                digits(low).and(digits(high))?;
                let low = if low.is_empty() { 0 } else { low.parse().ok()? };
                (low, if high.is_empty() { None } else { Some(high.parse().ok()?) })
            }
        };
        digits(inner.split(',').next()?)?;
        self.at += len + 1;
        Some((low, high))
    }

    /// After `(`.
    fn group(&mut self) -> Result<(), String> {
        if self.peek(0) != Some('?') {
            self.out.push_str(if self.named { "(?:" } else { "(" });
            self.captures += usize::from(!self.named);
            self.begin_group(self.is_extended());
            return Ok(());
        }
        self.at += 1;
        match (self.peek(0), self.peek(1)) {
            (Some('#'), _) => return self.until(')').map(drop),
            (Some('='), _) | (Some('!'), _) | (Some('>'), _) | (Some('('), _) | (Some('<'), Some('=' | '!')) => {
                self.backtracks = true;
                self.out.push_str("(?");
            }
            (Some(open @ ('<' | '\'')), _) => {
                self.at += 1;
                let name = self.until(if open == '<' { '>' } else { open })?;
                self.names.push(name);
                self.captures += 1;
                self.out.push('(');
            }
            (Some('~'), _) => return Err("the absence operator `(?~` is not supported".to_string()),
            _ => return self.flags(),
        }
        self.begin_group(self.is_extended());
        Ok(())
    }

    /// After `(?`: `(?i)`, `(?m-x:` and the like.
    fn flags(&mut self) -> Result<(), String> {
        let (mut on, mut off, mut negative, mut extended) = (String::new(), String::new(), false, self.is_extended());
        loop {
            let flag = match self.next() {
                Some('-') => {
                    negative = true;
                    continue;
                }
                Some(end @ (':' | ')')) => {
                    let off = if off.is_empty() { off } else { format!("-{off}") };
                    self.out.push_str(&format!("(?{on}{off}:"));
                    match self.open.last_mut() {
                        Some(group) if end == ')' => *group = Open { more: group.more + 1, extended },
                        _ => self.begin_group(extended),
                    }
                    return Ok(());
                }
                Some('m') => 's',
                Some('i') => 'i',
                // what it passes over is not written
                Some('x') => {
                    extended = !negative;
                    continue;
                }
                Some('a' | 'u' | 'd') => continue,
                _ => return Err("an unknown group after `(?`".to_string()),
            };
            if negative { off.push(flag) } else { on.push(flag) }
        }
    }

    /// After `[`.
    fn class(&mut self) -> Result<(), String> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err("character classes are nested too deeply".to_string());
        }
        self.out.push('[');
        if self.peek(0) == Some('^') {
            self.at += 1;
            self.out.push('^');
        }
        // a set such as \w cannot be the end of a range, so a hyphen beside it stands for itself
        let (mut first, mut set) = (true, false);
        loop {
            let c = self.next().ok_or("a character class is not closed")?;
            let after_set = std::mem::take(&mut set);
            match c {
                ']' if first => self.out.push_str(r"\]"),
                ']' => break,
                '[' if self.is_posix() => {
                    self.posix()?;
                    set = true;
                }
                '[' => {
                    self.class()?;
                    set = true;
                }
                '\\' => set = self.escape(true)?,
                '&' if self.peek(0) == Some('&') => {
                    self.at += 1;
                    self.out.push_str("&&");
                }
                '-' => {
                    let before_set =
                        self.peek(0) == Some('\\') && matches!(self.peek(1), Some(c) if "dwshDWSHpP".contains(c));
                    let plain = first || after_set || before_set || matches!(self.peek(0), Some(']' | '-' | '['));
                    self.out.push_str(if plain { r"\-" } else { "-" });
                }
                ' ' => self.out.push_str(r"\x20"),
                '&' | '~' | '#' => {
                    self.out.push('\\');
                    self.out.push(c);
                }
                c => self.out.push(c),
            }
            first = false;
        }
        self.depth -= 1;
        self.out.push(']');
        Ok(())
    }

    /// After `[`: whether it begins `[:name:]`, and not a class with a colon in it.
    fn is_posix(&self) -> bool {
        let mut rest = self.chars[self.at..].iter();
        if rest.next() != Some(&':') {
            return false;
        }
        while let Some(c) = rest.next() {
            match c {
                ':' if rest.as_slice().first() == Some(&']') => return true,
                ']' => return false,
                '\\' => drop(rest.next()),
                _ => {}
            }
        }
        false
    }

    /// After `[` of `[:name:]`, inside a class.
    fn posix(&mut self) -> Result<(), String> {
        self.at += 1;
        let negative = self.peek(0) == Some('^');
        self.at += usize::from(negative);
        let name = self.until(':')?;
        if self.next() != Some(']') {
            return Err(format!("`[:{name}:]` is not closed"));
        }
        let set = match name.as_str() {
            "alpha" => r"\p{Alphabetic}",
            "digit" => r"\p{Nd}",
            "alnum" => r"\p{Alphabetic}\p{Nd}",
            "upper" => r"\p{Uppercase}",
            "lower" => r"\p{Lowercase}",
            "space" => r"\s",
            "blank" => r"\p{Zs}\t",
            "cntrl" => r"\p{Cc}",
            "punct" => r"\p{P}$+<=>\^`|\~",
            "word" => r"\w",
            "xdigit" => HEX,
            "graph" => r"[^\s\p{Cc}\p{Cs}\p{Cn}]",
            "print" => r"[^\p{Cc}\p{Cs}\p{Cn}]",
            "ascii" => r"\x00-\x7f",
            _ => return Err(format!("an unknown class `[:{name}:]`")),
        };
        self.out.push_str(&if negative { format!("[^{set}]") } else { set.to_string() });
        Ok(())
    }

    /// After a backslash; says whether a set of characters was written.
    fn escape(&mut self, class: bool) -> Result<bool, String> {
        let c = self.next().ok_or("a backslash ends the pattern")?;
        let set = match c.to_ascii_lowercase() {
            'd' => Some(DIGIT),
            'w' => Some(WORD),
            's' => Some(SPACE),
            'h' => Some(HEX),
            _ => None,
        };
        if let Some(set) = set {
            self.out.push_str(&match (class, c.is_ascii_uppercase()) {
                (true, false) => set.to_string(),
                (false, false) => format!("[{set}]"),
                (_, true) => format!("[^{set}]"),
            });
            return Ok(true);
        }
        match c {
            'p' | 'P' => {
                self.property(c)?;
                return Ok(true);
            }
            'x' | 'u' | '0' => self.numbered(c)?,
            '1'..='7' if class => self.numbered(c)?,
            '1'..='9' if !class => self.group_or_octal(c)?,
            'n' | 't' | 'r' | 'f' | 'v' | 'a' => self.out.push_str(&format!("\\{c}")),
            'e' => self.out.push_str(r"\x1b"),
            'b' if class => self.out.push_str(r"\x08"),
            'b' | 'B' | 'A' | 'z' if !class => self.out.push_str(&format!("\\{c}")),
            'Z' if !class => {
                self.backtracks = true;
                self.out.push_str(r"(?=\n?\z)");
            }
            'K' if !class => {
                self.backtracks = true;
                self.out.push_str(r"\K");
            }
            'k' if !class && self.peek(0) == Some('<') => {
                self.backtracks = true;
                self.at += 1;
                let name = self.until('>')?;
                let numbers = (1..=self.names.len()).rev().filter(|n| self.names[n - 1] == name);
                let mut numbers: Vec<String> = numbers.map(|n| format!("\\{n}")).collect();
                numbers.extend(name.parse::<u8>().map(|n| format!("\\{n}")));
                if numbers.is_empty() {
                    return Err(format!("`\\k<{name}>`: no group before it has that name"));
                }
                self.out.push_str(&format!("(?:{})", numbers.join("|")));
            }
            'R' if !class => self.out.push_str(r"(?:\r\n|[\n-\r\x{85}\x{2028}\x{2029}])"),
            'G' | 'X' | 'g' if !class => return Err(format!("`\\{c}` is not supported")),
            ' ' => self.out.push_str(r"\x20"),
            c if c.is_ascii_punctuation() => self.out.push_str(&regex::escape(c.encode_utf8(&mut [0; 4]))),
            c => self.out.push(c),
        }
        Ok(false)
    }

    /// After `\1`: a group before it, or, of more digits where there are not so many groups, a character's number.
    fn group_or_octal(&mut self, first: char) -> Result<(), String> {
        let rest = &self.chars[self.at..];
        let digits: String = std::iter::once(&first).chain(rest).take_while(|c| c.is_ascii_digit()).take(4).collect();
        let number: usize = digits.parse().unwrap_or(usize::MAX);
        if number <= 9.max(self.captures) {
            self.at += digits.len() - 1;
            self.backtracks = true;
            self.out.push_str(&format!("(?:\\{number})"));
            return Ok(());
        }
        match first {
            '8' | '9' => self.out.push(first),
            _ => self.numbered(first)?,
        }
        Ok(())
    }

    fn property(&mut self, c: char) -> Result<(), String> {
        if self.next() != Some('{') {
            return Err(format!("`\\{c}` wants a name in curly brackets"));
        }
        let name = self.until('}')?;
        let (name, negative) = match name.strip_prefix('^') {
            Some(name) => (name, c == 'p'),
            None => (name.as_str(), c == 'P'),
        };
        self.out.push_str(&format!("\\{}{{{name}}}", if negative { 'P' } else { 'p' }));
        Ok(())
    }

    /// `\x41`, `\u00e9`, `\u{1f600}`, `\012`.
    fn numbered(&mut self, c: char) -> Result<(), String> {
        let (radix, len) = match c {
            'x' => (16, 2),
            'u' if self.peek(0) == Some('{') => {
                self.at += 1;
                let digits = self.until('}')?;
                self.out.push_str(&format!("\\x{{{digits}}}"));
                return Ok(());
            }
            'u' => (16, 4),
            _ => {
                self.at -= 1;
                (8, 3)
            }
        };
        let digits: String = self.chars[self.at..].iter().take(len).take_while(|d| d.is_digit(radix)).collect();
        self.at += digits.len();
        let value = u32::from_str_radix(&digits, radix).map_err(|_| format!("`\\{c}` wants digits"))?;
        self.out.push_str(&format!("\\x{{{value:x}}}"));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(pattern: &str, linear: bool, hits: &[&str], misses: &[&str]) {
        let regexp = Regexp::parse(pattern).unwrap_or_else(|e| panic!("{pattern}: {e}"));
        assert_eq!(regexp.is_linear(), linear, "{pattern}");
        for hit in hits {
            assert!(regexp.is_match(hit).unwrap(), "{pattern} on {hit:?}");
        }
        for miss in misses {
            assert!(!regexp.is_match(miss).unwrap(), "{pattern} on {miss:?}");
        }
    }

    #[test]
    fn ruby_spellings() {
        check(r"^b$", true, &["a\nb\nc", "b"], &["ab"]);
        check(r"\Ab\z", true, &["b"], &["a\nb", "b\n"]);
        check(r"b\Z", false, &["b", "b\n"], &["b\nc"]);
        check(r"a.c", true, &["abc"], &["a\nc"]);
        check(r"(?m)a.c", true, &["a\nc"], &[]);
        check(r"(?m:a.)c(?-m:.)", true, &["a\ncd"], &["a\nc\n"]);
        check(r"(?i)HELLO", true, &["hello"], &[]);
        check(r"^\h+$", true, &["00aF"], &["xyz"]);
        check(r"^[\h_]+\H$", true, &["a_z"], &["g"]);
        check(r"^\d+$", true, &["12"], &["\u{661}"]);
        check(r"^[[:alpha:]]+$", true, &["é"], &["1"]);
        check(r"^\w+$", true, &["ab_1"], &["é"]);
        check(r"^[\w-.]+$", true, &["a-b.c"], &["a b"]);
        check(r"^[a\-z]+$", true, &["a-z"], &["b"]);
        check(r"^[a--]+$", true, &["a-"], &["b"]);
        check(r"x\/y", true, &["x/y"], &[]);
        check(r"\<b\>", true, &["<b>"], &["b"]);
        check(r"%{a} {,2}x{2}", true, &["%{a} xx"], &[]);
        check(r"(?<a>x)(y)", true, &["xy"], &[]);
        check(r"(?'a'x)", true, &["x"], &[]);
        check(r"a(?#no)b", true, &["ab"], &[]);
        check(r"\u00e9\x41\e\R", true, &["éA\u{1b}\r\n"], &[]);
        check(r"[\u{e9}[xy]&&[^y]]", true, &["x"], &["y"]);
        check(r"^[a[:.]x]+$", true, &["a:.x"], &["[", "b"]);
        check(r"^[[:.,]\]]+$", true, &[":.,]"], &["["]);
        check("^(?x) a b # c ) (\n [ #]$", true, &["ab ", "ab#"], &["a b "]);
        check("(?x: a (?-x: b) # c\n)d e", true, &["a bd e"], &["abd e"]);
        check(r"^\141\12$", true, &["a\n"], &["141"]);
        check(r"^(.)(.)(.)(.)(.)(.)(.)(.)(.)(.)\10$", false, &["abcdefghijj"], &["abcdefghija0"]);
        check(r"foo(?!bar)", false, &["foobaz"], &["foobar"]);
        check(r"(?<=a)b", false, &["ab"], &["b"]);
        check(r"(a)\1", false, &["aa"], &["ab"]);
        check(r"(?<q>['\x22]).*\k<q>", false, &["'x'"], &["'x\""]);
        check(r"a++ab", false, &[], &["aaab"]);
        check(r"(?>a+)b", false, &["aab"], &[]);
        for bad in ["(", "[a", "\\", "a)", r"\g<x>", "[[:nope:]]", "[a[:.]", "*", r"(?~a)", r"\p{Nope}", "[z-a]"] {
            assert!(Regexp::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn replacing() {
        for (pattern, replacement, text, want) in [
            ("l*", "-", "hello", "-h-e--o-"),
            ("(l)(o)", r"<\2\1\0\\\9\&\x>", "hello", r"hel<ollo\lo\x>"),
            ("(?<a>l)(o)", r"\1\k<a>\k<b>", "hello", "helll"),
            ("é", "e", "été", "ete"),
            ("(?<=a)b", "", "abb", "ab"),
            ("", "-", "é", "-é-"),
            ("x", "y", "abc", "abc"),
        ] {
            let mut out = Vec::new();
            Regexp::parse(pattern).unwrap().replace_all(text, replacement, &mut out).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), want, "{pattern}");
        }
    }

    #[test]
    fn a_runaway_pattern_is_given_up() {
        let regexp = Regexp::parse(r"^(?:(a|aa)(?=a|b))+\1c").unwrap();
        assert_eq!(regexp.is_match(&format!("{}b", "a".repeat(60))), Err(Runaway::Steps));
    }

    #[test]
    fn many_matches_that_each_look_through_the_rest_are_given_up() {
        let text = "A".repeat(64 << 10);
        for pattern in [".*[^A-Z]|[A-Z]", "(?:A(?=.*[^A-Z]))|[A-Z]"] {
            let regexp = Regexp::parse(pattern).unwrap();
            let given_up = regexp.replace_within(Duration::from_millis(20), &text, "", &mut Vec::new());
            assert!(given_up.is_err(), "{pattern}");
        }
        let mut out = Vec::new();
        assert_eq!(Regexp::parse("A").unwrap().replace_all(&text, "b", &mut out), Ok(true));
        assert_eq!(out.len(), text.len());
    }

    #[test]
    fn a_pattern_that_an_event_brings_is_small() {
        for hostile in
            [&"(".repeat(2000), &"{".repeat(1 << 20), r"[[:alpha:]]{900}{900}", r"(?=(?:[[:alpha:]]{99}){99})x"]
        {
            assert!(Regexp::parse_of_event(hostile).is_err(), "{}", hostile.len());
        }
        let deep = format!("{}a{}", "(?:".repeat(240), ")".repeat(240));
        drop(Regexp::parse_of_event(&deep));
        let deep = format!("{}a{}", "(?=".repeat(240), ")".repeat(240));
        drop(Regexp::parse_of_event(&deep));
        assert!(Regexp::parse_of_event(r"\[(\d+)\](?!x)").is_ok());
        assert!(Regexp::parse(&"{".repeat(PATTERN_BYTES_MAX)).is_ok());
    }

    proptest! {
        #[test]
        fn any_pattern_never_panics(pattern in r"[\[\](){}?<>'\\+*^$|a-cdhpZ:&,.0-9é -]{0,20}", text in ".{0,8}") {
            if let Ok(regexp) = Regexp::parse(&pattern) {
                let mut out = Vec::new();
                let _ = regexp.replace_all(&text, r"\1", &mut out);
            }
        }
    }
}
