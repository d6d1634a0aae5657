//! Conditions: the language of `if` in Logstash, for `when` on any filter.
//!
//! Truth: a field is true unless it is missing, null, `false`, empty text or the text `false`. Equality never
//! converts: `5` is neither `"5"` nor `5.0`. `<` and the like compare numbers with numbers and text with text;
//! anything else, a missing field too, has no order and is a [`Fault`] of that event (Logstash stops its worker).
//! `in` looks for text within text, or for an element of a list; against a list of constants it compares as text.
//! `and` binds tighter than `or`; `xor` and `nand` want parentheses beside other operators. `not` before a field or
//! a parenthesis means `!` (an addition of ours, which [`Condition::parse_logstash`] refuses).

mod parse;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt;

use crate::batch::{EventRef, View};
use crate::field::FieldRef;
use crate::regexp::Regexp;
use crate::template::number_text;

/// A condition that can be asked of events.
#[derive(Clone, Debug)]
pub struct Condition {
    text: Box<str>,
    expr: Expr,
}

/// What is wrong with a condition's text, and at which byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    pub at: usize,
    pub message: String,
}

impl From<Wrong> for crate::config::Fault {
    fn from(wrong: Wrong) -> Self {
        crate::config::Fault::new(wrong.message).at(wrong.at..wrong.at + 1)
    }
}

/// Why a condition has no answer for an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault(pub String);

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Clone, Debug)]
enum Expr {
    /// Joined by `and`: lists, since there may be more of them than the stack is deep.
    All(Box<[Expr]>),
    Any(Box<[Expr]>),
    Xor(Box<Expr>, Box<Expr>),
    Not(Box<Expr>),
    True(Operand),
    Equal(Operand, Operand),
    Order(Sign, Operand, Operand),
    Match(Operand, Regexp),
    In(Operand, Operand),
}

#[derive(Clone, Copy, Debug)]
enum Sign {
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

#[derive(Clone, Debug)]
enum Operand {
    Field(FieldRef),
    Text(Box<str>),
    /// As JSON would write it.
    Number(Box<str>),
    List(Box<[Operand]>),
}

impl Condition {
    pub fn parse(text: &str) -> Result<Condition, Wrong> {
        Condition::read(text, false)
    }

    /// As [`Condition::parse`], but refuses what Logstash's own grammar has not.
    pub fn parse_logstash(text: &str) -> Result<Condition, Wrong> {
        Condition::read(text, true)
    }

    fn read(text: &str, strict: bool) -> Result<Condition, Wrong> {
        let expr = parse::expr(text, strict)?;
        Ok(Condition { text: text.into(), expr })
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the event meets the condition.
    pub fn holds(&self, event: &EventRef<'_>) -> Result<bool, Fault> {
        self.expr.holds(event)
    }

    /// The fields it asks for.
    pub fn fields(&self) -> Vec<&FieldRef> {
        let mut found = Vec::new();
        self.expr.operands(&mut |operand| {
            if let Operand::Field(field) = operand {
                found.push(field);
            }
        });
        found
    }
}

impl Expr {
    fn holds(&self, event: &EventRef<'_>) -> Result<bool, Fault> {
        Ok(match self {
            Expr::All(terms) => all_hold(terms, event, true)?,
            Expr::Any(terms) => !all_hold(terms, event, false)?,
            Expr::Xor(left, right) => left.holds(event)? != right.holds(event)?,
            Expr::Not(inner) => !inner.holds(event)?,
            Expr::True(operand) => operand.view(event).is_some_and(|view| is_true(&view)),
            Expr::Equal(left, right) => equal(left.view(event).as_ref(), right.view(event).as_ref()),
            Expr::Order(sign, left, right) => {
                let (a, b) = (left.view(event), right.view(event));
                let order = a.as_ref().zip(b.as_ref()).and_then(|(a, b)| order(a, b));
                let Some(order) = order else { return Err(no_order(left, a.as_ref(), right, b.as_ref())) };
                match sign {
                    Sign::Less => order.is_lt(),
                    Sign::LessEqual => order.is_le(),
                    Sign::Greater => order.is_gt(),
                    Sign::GreaterEqual => order.is_ge(),
                }
            }
            Expr::Match(operand, regexp) => match operand.view(event).as_ref().and_then(View::as_text) {
                Some(text) => regexp.is_match(text).map_err(|e| Fault(format!("/{}/: {e}", regexp.as_str())))?,
                None => false,
            },
            Expr::In(item, place) => within(item, place, event)?,
        })
    }

    fn operands<'a>(&'a self, visit: &mut impl FnMut(&'a Operand)) {
        match self {
            Expr::All(terms) | Expr::Any(terms) => terms.iter().for_each(|term| term.operands(visit)),
            Expr::Xor(left, right) => {
                left.operands(visit);
                right.operands(visit);
            }
            Expr::Not(inner) => inner.operands(visit),
            Expr::True(operand) | Expr::Match(operand, _) => visit(operand),
            Expr::Equal(left, right) | Expr::Order(_, left, right) | Expr::In(left, right) => {
                visit(left);
                visit(right);
            }
        }
    }
}

/// Whether each of `terms` is as `wanted`; those behind one that is not are not asked.
fn all_hold(terms: &[Expr], event: &EventRef<'_>, wanted: bool) -> Result<bool, Fault> {
    for term in terms {
        if term.holds(event)? != wanted {
            return Ok(false);
        }
    }
    Ok(true)
}

impl Operand {
    /// None for a missing field and for a null one, which are the same to a condition.
    fn view<'a>(&'a self, event: &EventRef<'a>) -> Option<View<'a>> {
        match self {
            Operand::Field(field) => event.get(field).filter(|view| !matches!(view, View::Null)),
            Operand::Text(text) => Some(View::Text(Cow::Borrowed(text))),
            Operand::Number(text) => Some(View::Number(text)),
            Operand::List(_) => None,
        }
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operand::Field(field) => write!(f, "{}", field.as_str()),
            Operand::Text(text) => write!(f, "\"{text}\""),
            Operand::Number(text) => f.write_str(text),
            Operand::List(_) => f.write_str("a list"),
        }
    }
}

fn is_true(view: &View<'_>) -> bool {
    match view {
        View::Null | View::Bool(false) => false,
        View::Text(text) => !text.is_empty() && text != "false",
        _ => true,
    }
}

fn is_float(number: &str) -> bool {
    number.contains(['.', 'e', 'E'])
}

fn float(number: &str) -> f64 {
    number.parse().unwrap_or(f64::NAN)
}

fn equal(left: Option<&View<'_>>, right: Option<&View<'_>>) -> bool {
    let (Some(left), Some(right)) = (left, right) else { return left.is_none() && right.is_none() };
    match (left, right) {
        (View::Null, View::Null) => true,
        (View::Bool(a), View::Bool(b)) => a == b,
        (View::Text(a), View::Text(b)) => a == b,
        (View::Number(a), View::Number(b)) => match (is_float(a), is_float(b)) {
            (true, true) => float(a) == float(b),
            (false, false) => a == b || a.parse::<i128>().ok().is_some_and(|a| Some(a) == b.parse().ok()),
            _ => false,
        },
        (View::Array(a), View::Array(b)) => {
            let (mut a, mut b) = (a.entries(), b.entries());
            loop {
                match (a.next(), b.next()) {
                    (None, None) => return true,
                    (Some((_, x)), Some((_, y))) if equal(Some(&x), Some(&y)) => {}
                    _ => return false,
                }
            }
        }
        (View::Object(a), View::Object(b)) => {
            let b: HashMap<Cow<'_, str>, View<'_>> = b.entries().collect();
            let mut count = 0;
            let is_there = |(key, x): (Cow<'_, str>, View<'_>)| {
                count += 1;
                b.get(&key).is_some_and(|y| equal(Some(&x), Some(y)))
            };
            a.entries().all(is_there) && count == b.len()
        }
        _ => false,
    }
}

fn order(left: &View<'_>, right: &View<'_>) -> Option<Ordering> {
    match (left, right) {
        (View::Text(a), View::Text(b)) => Some(a.as_bytes().cmp(b.as_bytes())),
        (View::Number(a), View::Number(b)) => {
            let whole = |text: &str| if is_float(text) { None } else { text.parse::<i128>().ok() };
            match (whole(a), whole(b)) {
                (Some(a), Some(b)) => Some(a.cmp(&b)),
                _ => float(a).partial_cmp(&float(b)),
            }
        }
        (View::Bool(a), View::Bool(b)) if a == b => Some(Ordering::Equal),
        _ => None,
    }
}

fn no_order(left: &Operand, a: Option<&View<'_>>, right: &Operand, b: Option<&View<'_>>) -> Fault {
    let kind = |view: Option<&View<'_>>| match view {
        None => "missing",
        Some(View::Null) => "null",
        Some(View::Bool(_)) => "a boolean",
        Some(View::Number(_)) => "a number",
        Some(View::Text(_)) => "text",
        Some(View::Array(_)) => "a list",
        Some(View::Object(_)) => "an object",
    };
    Fault(format!("{left} is {} and {right} is {}: they have no order", kind(a), kind(b)))
}

/// The text that a list of constants is compared by.
fn plain<'a>(view: &'a View<'a>) -> Cow<'a, str> {
    match view {
        View::Null => Cow::Borrowed(""),
        View::Bool(is) => Cow::Borrowed(if *is { "true" } else { "false" }),
        View::Text(text) => Cow::Borrowed(text),
        View::Number(text) => {
            let mut out = Vec::new();
            number_text(text, &mut out);
            Cow::Owned(String::from_utf8_lossy(&out).into_owned())
        }
        View::Array(_) | View::Object(_) => {
            let mut out = Vec::new();
            view.write_json(&mut out);
            Cow::Owned(String::from_utf8_lossy(&out).into_owned())
        }
    }
}

fn within(item: &Operand, place: &Operand, event: &EventRef<'_>) -> Result<bool, Fault> {
    let found = item.view(event);
    if let Operand::List(list) = place {
        let Some(found) = found else { return Ok(false) };
        let text = plain(&found);
        return Ok(list.iter().filter_map(|c| c.view(event)).any(|c| plain(&c) == text));
    }
    let Some(held) = place.view(event) else { return Ok(false) };
    match (&found, &held) {
        (Some(View::Array(_) | View::Object(_)), _) => Ok(false),
        (Some(View::Text(part)), View::Text(whole)) => {
            Ok(memchr::memmem::find(whole.as_bytes(), part.as_bytes()).is_some())
        }
        // in a number that is written there, its digits
        (Some(View::Text(part)), View::Number(_))
            if matches!(item, Operand::Field(_)) && !matches!(place, Operand::Field(_)) =>
        {
            Ok(plain(&held).contains(part.as_ref()))
        }
        (None, View::Array(list)) if list.is_empty() => Ok(false),
        (None, View::Array(_)) => Err(Fault(format!("{item} is missing and is looked for in the list {place}"))),
        (_, View::Array(list)) => Ok(list.entries().any(|(_, element)| equal(found.as_ref(), Some(&element)))),
        // a constant number in a plain field is never found, two fields may be equal
        (Some(_), _) if matches!(item, Operand::Field(_)) && matches!(place, Operand::Field(_)) => {
            Ok(equal(found.as_ref(), Some(&held)))
        }
        _ => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::tests::of;
    use proptest::prelude::*;

    const EVENT: &str = r#"{"n":5,"f":5.0,"t":"abc","s":"5","e":"","no":"false","b":true,"c":false,"z":null,
        "l":["a","b",5,null],"o":{"k":1,"m":{"x y":"q"}},"empty":[],"same":"abc","big":12345678901234567890,
        "u":"Grüße","path":"/a/b","l2":["a","b",5,null]}"#;

    /// `fault` for what has no answer, `wrong N` for text refused at byte N.
    fn check(text: &str, want: &str) {
        let batch = of(EVENT);
        let got = match Condition::parse(text) {
            Err(wrong) => format!("wrong {}", wrong.at),
            Ok(condition) => match condition.holds(&batch.event(0)) {
                Ok(is) => is.to_string(),
                Err(_) => "fault".to_string(),
            },
        };
        assert_eq!(got, want, "{text}: {:?}", Condition::parse(text).err());
    }

    #[test]
    fn truth() {
        for (text, want) in [
            ("[t]", "true"),
            ("[n]", "true"),
            ("[e]", "false"),
            ("[no]", "false"),
            ("[b]", "true"),
            ("[c]", "false"),
            ("[z]", "false"),
            ("[missing]", "false"),
            ("[empty]", "true"),
            ("[o]", "true"),
            ("[o][m][x y]", "true"),
            ("[l][0]", "true"),
            ("![missing]", "true"),
            ("! [t]", "false"),
            ("!([t] == \"abc\")", "false"),
            ("not [t]", "false"),
            ("not([t])", "false"),
            ("\"x\"", "true"),
            ("''", "false"),
            ("0", "true"),
        ] {
            check(text, want);
        }
    }

    #[test]
    fn equality() {
        for (text, want) in [
            ("[n] == 5", "true"),
            ("[n]==5", "true"),
            ("[n] == 05", "true"),
            ("5 == [n]", "true"),
            ("[n] == 5.0", "false"),
            ("[f] == 5", "false"),
            ("[f] == 5.", "true"),
            ("[s] == 5", "false"),
            ("[s] == \"5\"", "true"),
            ("[n] == \"5\"", "false"),
            ("[n] != \"5\"", "true"),
            ("[missing] == \"\"", "false"),
            ("[missing] != \"x\"", "true"),
            ("[missing] == [gone]", "true"),
            ("[missing] == [z]", "true"),
            ("[t] == [same]", "true"),
            ("[l] == [l2]", "true"),
            ("[l] == \"a\"", "false"),
            ("[b] == \"true\"", "false"),
            ("[big] == 12345678901234567890", "true"),
            ("'a' == \"a\"", "true"),
        ] {
            check(text, want);
        }
    }

    #[test]
    fn order() {
        for (text, want) in [
            ("[n] > 4", "true"),
            ("[n] >= 5.0", "true"),
            ("[f] <= 5", "true"),
            ("4.5 < [n]", "true"),
            ("[n] < -1", "false"),
            ("[t] > \"abb\"", "true"),
            ("[t] >= [same]", "true"),
            ("[big] > 9", "true"),
            ("1 < 2", "true"),
            ("[b] >= [b]", "true"),
            ("[s] > 4", "fault"),
            ("[n] > \"4\"", "fault"),
            ("[missing] > 4", "fault"),
            ("[z] < 4", "fault"),
            ("[l] < 4", "fault"),
            ("[t] and [missing] > 4", "fault"),
            ("[c] and [missing] > 4", "false"),
            ("[t] or [missing] > 4", "true"),
            ("!([missing] > 4)", "fault"),
            ("1 < \"2\"", "wrong 0"),
        ] {
            check(text, want);
        }
    }

    #[test]
    fn as_many_terms_as_there_may_be() {
        let many = |join: &str| vec!["[t]"; 100_000].join(join);
        check(&many(" and "), "true");
        check(&format!("{} and [missing]", many(" and ")), "false");
        check(&format!("[missing] or {}", many(" or ")), "true");
    }

    #[test]
    fn membership_and_patterns() {
        for (text, want) in [
            ("\"a\" in [l]", "true"),
            ("5 in [l]", "true"),
            ("5.0 in [l]", "false"),
            ("\"5\" in [l]", "false"),
            ("\"c\" not in [l]", "true"),
            ("\"c\" not   in [l]", "true"),
            ("\"b\" in [t]", "true"),
            ("\"x\" in [missing]", "false"),
            ("\"_f\" not in [missing]", "true"),
            ("5 in [n]", "false"),
            ("[t] in [\"abc\", \"d\"]", "true"),
            ("[t] in ['abc']", "true"),
            ("[n] in [\"5\"]", "true"),
            ("[n] in [4, 5]", "true"),
            ("[f] in [5, 6]", "false"),
            ("[b] in [true, x1]", "true"),
            ("[missing] in [\"a\", \"b\"]", "false"),
            ("[t] in []", "false"),
            ("[t] in \"xabcx\"", "true"),
            ("[n] in \"12345\"", "false"),
            ("[s] in 12345", "true"),
            ("[n] in 12345", "false"),
            ("[s] in [n]", "false"),
            ("[t] in [same]", "true"),
            ("[n] in [n]", "true"),
            ("[n] in [l]", "true"),
            ("[l] in [l]", "false"),
            ("[missing] in [l]", "fault"),
            ("[missing] in [empty]", "false"),
            ("\"b\" in \"abc\"", "true"),
            ("[t] =~ /^a.c$/", "true"),
            ("[t] =~ \"b\"", "true"),
            ("[t] !~ /b/", "false"),
            ("[missing] =~ /b/", "false"),
            ("[missing] !~ /b/", "true"),
            ("[n] =~ /5/", "false"),
            ("[path] =~ /^\\/a\\//", "true"),
            ("[u] =~ /gr(?=ü)/", "false"),
            ("[u] =~ /Gr(?=ü)/", "true"),
            ("'x' =~ /x/", "true"),
        ] {
            check(text, want);
        }
    }

    #[test]
    fn joined() {
        for (text, want) in [
            ("[t] and [c] or [b]", "true"),
            ("[b] or [t] and [c]", "true"),
            ("([b] or [t]) and [c]", "false"),
            ("[c] or [c] or [b]", "true"),
            ("[b] xor [t]", "false"),
            ("[b] xor [c]", "true"),
            ("[b] nand [t]", "false"),
            ("[b]nand[c]", "true"),
            ("[b] xor ([c] and [t])", "true"),
            ("( [b] )\n # why\n and\t[t]", "true"),
            ("[b] xor [c] and [t]", "wrong 4"),
            ("[b] and [c] nand [t]", "wrong 12"),
        ] {
            check(text, want);
        }
    }

    #[test]
    fn refusals() {
        for (text, at) in [
            ("", 0),
            ("foo == \"bar\"", 0),
            ("[a] == bar", 7),
            ("[a] = \"b\"", 4),
            ("[a] =~ /a/i", 10),
            ("[a] =~ /(/", 7),
            ("[a] =~ [b]", 7),
            ("[a] ==", 6),
            ("[a] and", 7),
            ("([a]", 0),
            ("([a] [b])", 5),
            ("[a])", 3),
            ("[a", 0),
            ("[a] == \"x", 7),
            ("[a] in [\"x\", ", 7),
            ("[a] == [\"x\", \"y\"]", 7),
            ("[a] in [[\"x\"]]", 7),
            ("\"x\" and [a]", 0),
            ("[a] == /x/", 7),
            ("! \"x\"", 2),
            ("-", 0),
        ] {
            check(text, &format!("wrong {at}"));
        }
        check(&format!("{}[a]{}", "(".repeat(500), ")".repeat(500)), "wrong 100");
        assert!(Condition::parse_logstash("not [a]").is_err());
        assert!(Condition::parse_logstash("\"a\" not in [a]").is_ok());
        let fields = Condition::parse("[a] == 1 or !([b][c] in [d])").unwrap();
        let fields: Vec<_> = fields.fields().into_iter().map(FieldRef::as_str).collect();
        assert_eq!(fields, ["[a]", "[b][c]", "[d]"]);
    }

    proptest! {
        #[test]
        fn any_text_never_panics(text in r#"(\[a\]|\[n\]|[(!)=~<>"'/,.#\[\]é -]|in|not|and|or|xor|nand|5){0,14}"#) {
            let batch = of(EVENT);
            if let Ok(condition) = Condition::parse(&text) {
                let _ = condition.holds(&batch.event(0));
            }
        }
    }
}
