//! Conditions of `if`: read by Logstash's grammar, with its precedence, and written for `when`.
//!
//! Logstash groups `a and b and c or d` as `a and ((b and c) or d)`; such a condition is kept in that meaning and
//! marked as odd.

use super::parse::{Parser, is_word};
use super::tree::{Number, Place, Value, Wrong};

#[derive(Clone, Debug)]
pub struct Condition {
    pub place: Place,
    pub expr: Expr,
    /// What Logstash makes of it that is hardly meant.
    pub odd: Vec<&'static str>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    Join(Join, Box<Expr>, Box<Expr>),
    Not(Box<Expr>),
    /// A field alone as a whole condition.
    Truthy(String),
    /// A field alone beside an operator.
    Field(String),
    Constant(Operand),
    Compare(Sign, Operand, Operand),
    /// The pattern, and whether it was in slashes.
    Match {
        found: bool,
        left: Operand,
        pattern: String,
    },
    In(Operand, Operand),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    And,
    Or,
    Xor,
    Nand,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    Equal,
    Differs,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Operand {
    /// As written, with its brackets.
    Field(String),
    Text(String),
    Number(Number),
    List(Vec<Value>),
    Pattern(String),
    /// A method, with what it is called with.
    Call(Vec<Operand>),
}

/// What a condition asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Asked<'a> {
    Field(&'a str),
    /// Whether this tag is there.
    Tag(&'a str),
}

impl Join {
    const NAMES: [(&'static str, Join); 4] =
        [("and", Join::And), ("or", Join::Or), ("xor", Join::Xor), ("nand", Join::Nand)];

    pub fn name(self) -> &'static str {
        Join::NAMES.iter().find(|(_, join)| *join == self).map_or("and", |(name, _)| name)
    }
}

impl Sign {
    const NAMES: [(&'static str, Sign); 6] = [
        ("==", Sign::Equal),
        ("!=", Sign::Differs),
        ("<=", Sign::LessEqual),
        (">=", Sign::GreaterEqual),
        ("<", Sign::Less),
        (">", Sign::Greater),
    ];

    pub fn name(self) -> &'static str {
        Sign::NAMES.iter().find(|(_, sign)| *sign == self).map_or("==", |(name, _)| name)
    }
}

/// A longer chain of `and` and `or` is refused.
const JOINS_MAX: usize = 1000;

const GROUPING: &str = "Logstash reads `a and b and c or d` as `a and ((b and c) or d)`, and so it is written here";
const LONE_LIST: &str =
    "Logstash takes a list of one text for the name of a field and never finds it; here it is a list";
const LIST_COMPARED: &str = "Logstash compares with the first element of a list only, and so it is written here";
const METHOD: &str = "Logstash passes over the method and takes what it is called with";

pub(super) fn condition(parser: &mut Parser<'_>) -> Result<Condition, Wrong> {
    let (place, mut odd) = (parser.place(parser.at), Vec::new());
    let expr = parser.deeper(|parser| whole(parser, &mut odd))?;
    Ok(Condition { place, expr, odd })
}

fn whole(p: &mut Parser<'_>, odd: &mut Vec<&'static str>) -> Result<Expr, Wrong> {
    let mut operands = vec![expression(p, odd)?];
    let mut joins = Vec::new();
    loop {
        let end = p.at;
        p.blanks();
        let at = p.at;
        let Some((_, join)) = Join::NAMES.into_iter().find(|(name, _)| p.eat(name)) else {
            p.at = end;
            break;
        };
        if joins.len() == JOINS_MAX {
            return p.wrong_at(at, format!("more than {JOINS_MAX} operators in one condition"));
        }
        p.blanks();
        operands.push(expression(p, odd)?);
        joins.push((join, at));
    }
    if joins.is_empty() {
        return Ok(match operands.swap_remove(0) {
            Expr::Field(field) => Expr::Truthy(field),
            other => other,
        });
    }
    joined(p, operands, &joins, odd)
}

/// Puts operands and operators together as Logstash does: an operator that binds less takes one from the stack, not
/// all that bind more.
fn joined(
    p: &Parser<'_>,
    operands: Vec<Expr>,
    joins: &[(Join, usize)],
    odd: &mut Vec<&'static str>,
) -> Result<Expr, Wrong> {
    if joins.len() > 1
        && let Some((_, at)) = joins.iter().find(|(join, _)| matches!(join, Join::Xor | Join::Nand))
    {
        return p.wrong_at(*at, "`xor` and `nand` beside another operator want parentheses");
    }
    let mut operands = operands.into_iter();
    let mut out: Vec<Expr> = operands.next().into_iter().collect();
    let mut stack: Vec<Join> = Vec::new();
    let reduce = |join: Join, out: &mut Vec<Expr>| {
        if let (Some(right), Some(left)) = (out.pop(), out.pop()) {
            out.push(Expr::Join(join, Box::new(left), Box::new(right)));
        }
    };
    for ((join, _), operand) in joins.iter().zip(operands) {
        if *join == Join::Or && stack.last() == Some(&Join::And) {
            stack.pop();
            reduce(Join::And, &mut out);
            if stack.last() == Some(&Join::And) {
                odd.push(GROUPING);
            }
        }
        stack.push(*join);
        out.push(operand);
    }
    while let Some(join) = stack.pop() {
        reduce(join, &mut out);
    }
    match out.pop() {
        Some(expr) => Ok(expr),
        None => p.wrong("a condition is wanted"),
    }
}

fn expression(p: &mut Parser<'_>, odd: &mut Vec<&'static str>) -> Result<Expr, Wrong> {
    if p.rest().starts_with('(') {
        return parenthesis(p, odd);
    }
    if p.eat("!") {
        p.blanks();
        let inner = match p.rest().chars().next() {
            Some('(') => parenthesis(p, odd)?,
            Some('[') => match selector(p) {
                Some(field) => Expr::Field(field),
                None => return p.wrong("a field in brackets is wanted"),
            },
            _ => return p.wrong("after `!` a field in brackets or a parenthesis is wanted"),
        };
        return Ok(Expr::Not(Box::new(inner)));
    }
    let from = p.at;
    let left = operand(p)?;
    let end = p.at;
    p.blanks();
    if let Some(expr) = compared(p, from, left.clone(), odd)? {
        return Ok(expr);
    }
    p.at = end;
    alone(p, from, left, odd)
}

fn parenthesis(p: &mut Parser<'_>, odd: &mut Vec<&'static str>) -> Result<Expr, Wrong> {
    let open = p.at;
    p.at += 1;
    p.blanks();
    let inner = p.deeper(|p| whole(p, odd))?;
    p.blanks();
    if p.rest().is_empty() {
        return p.wrong_at(open, "this `(` is not closed");
    }
    if !p.eat(")") {
        return p.wrong(format!("`)`, `and`, `or`, `xor` or `nand` is wanted, found {}", p.found()));
    }
    Ok(inner)
}

/// An operand without anything it is compared with.
fn alone(p: &Parser<'_>, from: usize, operand: Operand, odd: &mut Vec<&'static str>) -> Result<Expr, Wrong> {
    match operand {
        Operand::Field(field) => Ok(Expr::Field(field)),
        Operand::Call(_) => match single(operand, odd) {
            Some(Operand::Field(field)) => Ok(Expr::Field(field)),
            _ => p.wrong_at(from, "Logstash has no methods in conditions"),
        },
        constant => Ok(Expr::Constant(constant)),
    }
}

/// What is left of an operand where Logstash picks out fields, texts and numbers.
fn single(operand: Operand, odd: &mut Vec<&'static str>) -> Option<Operand> {
    match operand {
        Operand::List(list) => {
            odd.push(LIST_COMPARED);
            match list.into_iter().find(|value| matches!(value, Value::Text(_) | Value::Number(_)))? {
                Value::Number(number) => Some(Operand::Number(number)),
                value => value.scalar().map(Operand::Text),
            }
        }
        Operand::Call(mut arguments) if arguments.len() == 1 => {
            odd.push(METHOD);
            arguments.pop()
        }
        Operand::Pattern(_) | Operand::Call(_) => None,
        other => Some(other),
    }
}

/// The rest of a comparison, if there is one.
fn compared(
    p: &mut Parser<'_>,
    from: usize,
    left: Operand,
    odd: &mut Vec<&'static str>,
) -> Result<Option<Expr>, Wrong> {
    if p.eat("in") {
        return membership(p, left, odd).map(Some);
    }
    let before = p.at;
    if p.eat("not ") {
        p.blanks();
        if p.eat("in") {
            return membership(p, left, odd).map(|inner| Some(Expr::Not(Box::new(inner))));
        }
        p.at = before;
    }
    if p.rest().starts_with("=~") || p.rest().starts_with("!~") {
        return matched(p, from, left).map(Some);
    }
    let Some((_, sign)) = Sign::NAMES.into_iter().find(|(name, _)| p.eat(name)) else { return Ok(None) };
    p.blanks();
    let right_at = p.at;
    let right = operand(p)?;
    if matches!(left, Operand::List(_)) {
        return p.wrong_at(from, "a list may stand only after `in`");
    }
    let Some(left) = single(left, odd) else { return p.wrong_at(from, "this cannot be compared") };
    let Some(right) = single(right, odd) else { return p.wrong_at(right_at, "this cannot be compared") };
    Ok(Some(Expr::Compare(sign, left, right)))
}

fn membership(p: &mut Parser<'_>, item: Operand, odd: &mut Vec<&'static str>) -> Result<Expr, Wrong> {
    p.blanks();
    let place = operand(p)?;
    let place = match &place {
        Operand::Field(field) if field.starts_with("[\"") || field.starts_with("['") => {
            odd.push(LONE_LIST);
            let inner = &field[2..field.len() - 1];
            Operand::List(vec![Value::Text(inner.trim_end_matches(['"', '\'']).to_string())])
        }
        _ => place,
    };
    Ok(Expr::In(item, place))
}

fn matched(p: &mut Parser<'_>, from: usize, left: Operand) -> Result<Expr, Wrong> {
    let found = p.eat("=~");
    p.at += if found { 0 } else { 2 };
    p.blanks();
    let pattern = match p.rest().chars().next() {
        Some('/') => p.quoted()?.to_string(),
        Some('"' | '\'') => p.string()?,
        _ => return p.wrong(format!("a pattern is wanted, `/…/` or in quotes, found {}", p.found())),
    };
    let left = match left {
        Operand::Call(mut arguments) if arguments.len() == 1 => arguments.swap_remove(0),
        other => other,
    };
    match left {
        Operand::Field(_) | Operand::Text(_) => Ok(Expr::Match { found, left, pattern }),
        _ => p.wrong_at(from, "only a field is matched"),
    }
}

fn operand(p: &mut Parser<'_>) -> Result<Operand, Wrong> {
    match p.rest().chars().next() {
        Some('"' | '\'') => return Ok(Operand::Text(p.string()?)),
        Some('[') => {
            return match selector(p) {
                Some(field) => Ok(Operand::Field(field)),
                None => Ok(Operand::List(p.deeper(Parser::list)?)),
            };
        }
        Some('/') => return Ok(Operand::Pattern(p.quoted()?.to_string())),
        _ => {}
    }
    if let Some(number) = p.number()? {
        return Ok(Operand::Number(number));
    }
    let from = p.at;
    if p.word().is_some() {
        p.blanks();
        if p.rest().starts_with('(') {
            return p.deeper(call);
        }
    }
    p.at = from;
    let hint = match p.rest() {
        rest if rest.starts_with("not") => ": `not` alone is no operator, write `!`",
        rest if rest.starts_with(is_word) => ": a field stands in brackets, text in quotes",
        _ => "",
    };
    p.wrong(format!("a field, text, number or list is wanted, found {}{hint}", p.found()))
}

fn call(p: &mut Parser<'_>) -> Result<Operand, Wrong> {
    let open = p.at;
    p.at += 1;
    p.blanks();
    let mut arguments = Vec::new();
    while !p.eat(")") {
        if !arguments.is_empty() {
            if !p.eat(",") {
                return p.wrong_at(open, "this `(` is not closed");
            }
            p.blanks();
        }
        arguments.push(operand(p)?);
        p.blanks();
    }
    Ok(Operand::Call(arguments))
}

/// `[a][b]`; none if there is no such thing, and nothing is read then.
fn selector(p: &mut Parser<'_>) -> Option<String> {
    let rest = p.rest();
    let mut end = 0;
    while rest[end..].starts_with('[') {
        let inner = &rest[end + 1..];
        match inner.find(['[', ']', ',']) {
            Some(len) if len > 0 && inner[len..].starts_with(']') => end += len + 2,
            _ => break,
        }
    }
    p.at += end;
    (end > 0).then(|| rest[..end].to_string())
}
