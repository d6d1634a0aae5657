//! Conditions written for `when`, turned round, and asked what they read.

use super::expression::{Asked, Expr, Join, Operand, Sign};
use super::toml::variables;
use super::tree::Value;
use crate::condition::Condition as Ours;

/// Where a condition is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Plain,
    File,
}

impl Expr {
    /// Both, in the order given.
    pub fn all(terms: Vec<Expr>) -> Option<Expr> {
        terms.into_iter().reduce(|left, right| Expr::Join(Join::And, Box::new(left), Box::new(right)))
    }

    /// True where this is false.
    pub fn negated(&self) -> Expr {
        match self {
            Expr::Not(inner) => (**inner).clone(),
            Expr::Compare(Sign::Equal, left, right) => Expr::Compare(Sign::Differs, left.clone(), right.clone()),
            Expr::Compare(Sign::Differs, left, right) => Expr::Compare(Sign::Equal, left.clone(), right.clone()),
            Expr::Match { found, left, pattern } => {
                Expr::Match { found: !found, left: left.clone(), pattern: pattern.clone() }
            }
            other => Expr::Not(Box::new(other.clone())),
        }
    }

    /// As a condition of ours; none where that cannot say it.
    pub fn when(&self) -> Option<String> {
        let mut text = String::new();
        self.write(Form::Plain, &mut text)?;
        Ours::parse(&text).ok().map(|_| text)
    }

    /// The same for a pipeline file: variables are those of texts and fields, none of patterns.
    pub fn written(&self) -> Option<String> {
        self.when()?;
        let mut text = String::new();
        self.write(Form::File, &mut text)?;
        Some(text)
    }

    fn write(&self, form: Form, out: &mut String) -> Option<()> {
        match self {
            Expr::Join(join, left, right) => {
                self.write_side(*join, left, form, out)?;
                *out += &format!(" {} ", join.name());
                self.write_side(*join, right, form, out)
            }
            Expr::Not(inner) => match &**inner {
                Expr::Truthy(field) | Expr::Field(field) => {
                    out.push('!');
                    Operand::Field(field.clone()).write(form, out)
                }
                Expr::In(item, place) => {
                    item.write(form, out)?;
                    *out += " not in ";
                    place.write(form, out)
                }
                other => {
                    *out += "not (";
                    other.write(form, out)?;
                    *out += ")";
                    Some(())
                }
            },
            Expr::Truthy(field) | Expr::Field(field) => Operand::Field(field.clone()).write(form, out),
            Expr::Constant(operand) => operand.write(form, out),
            Expr::Compare(sign, left, right) => {
                left.write(form, out)?;
                *out += &format!(" {} ", sign.name());
                right.write(form, out)
            }
            Expr::Match { found, left, pattern } => {
                left.write(form, out)?;
                *out += if *found { " =~ " } else { " !~ " };
                let pattern = slashed(pattern);
                *out += &if form == Form::File { pattern.replace("${", "$${") } else { pattern };
                Some(())
            }
            Expr::In(item, place) => {
                item.write(form, out)?;
                *out += " in ";
                place.write(form, out)
            }
        }
    }

    fn write_side(&self, join: Join, side: &Expr, form: Form, out: &mut String) -> Option<()> {
        let is_plain = match side {
            Expr::Join(inner, ..) => match join {
                Join::And | Join::Or => *inner == join,
                Join::Xor | Join::Nand => false,
            },
            _ => true,
        };
        if is_plain {
            return side.write(form, out);
        }
        out.push('(');
        side.write(form, out)?;
        out.push(')');
        Some(())
    }

    /// The fields it reads.
    pub fn operands<'a>(&'a self, visit: &mut impl FnMut(Asked<'a>)) {
        match self {
            Expr::Join(_, left, right) => {
                left.operands(visit);
                right.operands(visit);
            }
            Expr::Not(inner) => inner.operands(visit),
            Expr::Truthy(field) | Expr::Field(field) => visit(Asked::Field(field)),
            Expr::In(Operand::Text(text), Operand::Field(field)) if field == "[tags]" => visit(Asked::Tag(text)),
            Expr::Constant(operand) | Expr::Match { left: operand, .. } => operand.visit(visit),
            Expr::Compare(_, left, right) | Expr::In(left, right) => {
                left.visit(visit);
                right.visit(visit);
            }
        }
    }

    /// The terms that `and` joins.
    pub fn terms(&self) -> Vec<&Expr> {
        match self {
            Expr::Join(Join::And, left, right) => [left.terms(), right.terms()].concat(),
            other => vec![other],
        }
    }

    /// Whether this being true makes `other` false for sure: one field, and different texts.
    pub fn excludes(&self, other: &Expr) -> bool {
        let values = |expr: &Expr| -> Option<(String, Vec<String>)> {
            match expr {
                Expr::Compare(Sign::Equal, Operand::Field(field), Operand::Text(text)) => {
                    Some((field.clone(), vec![text.clone()]))
                }
                Expr::In(Operand::Field(field), Operand::List(list)) => {
                    let texts = list.iter().map(|value| match value {
                        Value::Text(text) => Some(text.clone()),
                        _ => None,
                    });
                    Some((field.clone(), texts.collect::<Option<_>>()?))
                }
                _ => None,
            }
        };
        self.terms().into_iter().filter_map(values).any(|(field, these)| {
            other
                .terms()
                .into_iter()
                .filter_map(values)
                .any(|(other_field, those)| field == other_field && these.iter().all(|text| !those.contains(text)))
        })
    }
}

impl Operand {
    fn visit<'a>(&'a self, visit: &mut impl FnMut(Asked<'a>)) {
        match self {
            Operand::Field(field) => visit(Asked::Field(field)),
            Operand::Call(arguments) => arguments.iter().for_each(|argument| argument.visit(visit)),
            _ => {}
        }
    }

    fn write(&self, form: Form, out: &mut String) -> Option<()> {
        let formed = |text: String| if form == Form::File { variables(&text) } else { Some(text) };
        match self {
            Operand::Field(field) => *out += &formed(field.clone())?,
            Operand::Text(text) => *out += &formed(quoted(text)?)?,
            Operand::Number(number) => *out += &number.to_string(),
            Operand::List(list) => {
                let items: Option<Vec<String>> = list
                    .iter()
                    .map(|value| match value {
                        Value::Text(text) => formed(quoted(text)?),
                        Value::Number(number) => Some(number.to_string()),
                        _ => None,
                    })
                    .collect();
                *out += &format!("[{}]", items?.join(", "));
            }
            Operand::Pattern(_) | Operand::Call(_) => return None,
        }
        Some(())
    }
}

/// Text in the quotes that give it back.
fn quoted(text: &str) -> Option<String> {
    let closes = |quote: char| {
        let mut escaped = false;
        text.chars().any(|c| {
            let closes = c == quote && !escaped;
            escaped = c == '\\' && !escaped;
            closes
        }) || escaped
    };
    ['"', '\''].into_iter().find(|quote| !closes(*quote)).map(|quote| format!("{quote}{text}{quote}"))
}

/// A pattern in slashes; those within it are escaped.
fn slashed(pattern: &str) -> String {
    let (mut out, mut escaped) = ("/".to_string(), false);
    for c in pattern.chars() {
        if c == '/' && !escaped {
            out.push('\\');
        }
        escaped = c == '\\' && !escaped;
        out.push(c);
    }
    out.push('/');
    out
}
