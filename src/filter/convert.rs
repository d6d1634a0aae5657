//! `mutate`'s conversions, as Ruby does them: what a text is as an integer, a float or a boolean, and what a number
//! is as text.

use std::borrow::Cow;
use std::io::Write;

use crate::batch::{EventMut, Span, Value, View};

/// What a field is converted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Integer,
    Float,
    /// `.` groups digits and `,` begins the decimals.
    IntegerEu,
    FloatEu,
    Text,
    Boolean,
}

pub const KINDS: &[(&str, Kind)] = &[
    ("integer", Kind::Integer),
    ("float", Kind::Float),
    ("integer_eu", Kind::IntegerEu),
    ("float_eu", Kind::FloatEu),
    ("string", Kind::Text),
    ("boolean", Kind::Boolean),
];

/// What was written in place of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Nothing: it stays.
    Same,
    Text,
    Json,
}

/// An operation that Logstash ends with an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed(pub String);

/// A whole number with more digits than this is refused.
const DIGITS_MAX: i64 = 400;

/// Writes one value, neither list nor object, as `kind`.
pub fn convert(kind: Kind, view: &View<'_>, out: &mut Vec<u8>) -> Result<Form, Failed> {
    match (kind, view) {
        (_, View::Null | View::Array(_) | View::Object(_)) => Ok(Form::Same),
        (Kind::Text, view) => Ok(as_text(view, out)),
        (Kind::Boolean, view) => Ok(as_boolean(view, out)),
        (Kind::Integer | Kind::IntegerEu, View::Bool(is)) => json(out, if *is { "1" } else { "0" }),
        (Kind::Float | Kind::FloatEu, View::Bool(is)) => json(out, if *is { "1.0" } else { "0.0" }),
        (Kind::Integer | Kind::IntegerEu, View::Number(text)) => whole(text, out),
        (Kind::Float | Kind::FloatEu, View::Number(text)) => {
            if is_float(text) {
                Ok(Form::Same)
            } else {
                finite(text.parse().ok(), text, out)
            }
        }
        (Kind::Integer, View::Text(text)) => integer_of(&stripped(text, ','), out),
        (Kind::IntegerEu, View::Text(text)) => integer_of(&swapped(text), out),
        (Kind::Float, View::Text(text)) => float_of(&stripped(text, ','), out),
        (Kind::FloatEu, View::Text(text)) => float_of(&swapped(text), out),
    }
}

fn json(out: &mut Vec<u8>, text: &str) -> Result<Form, Failed> {
    out.extend_from_slice(text.as_bytes());
    Ok(Form::Json)
}

fn is_float(number: &str) -> bool {
    number.contains(['.', 'e', 'E'])
}

/// White space as Ruby strips it.
pub fn strip(text: &str) -> &str {
    text.trim_matches(|c: char| matches!(c, '\0' | '\t'..='\r' | ' '))
}

fn stripped(text: &str, group: char) -> String {
    strip(text).chars().filter(|c| *c != group).collect()
}

/// European to American: `1.234,5` to `1234.5`.
fn swapped(text: &str) -> String {
    strip(text).chars().filter(|c| *c != '.').map(|c| if c == ',' { '.' } else { c }).collect()
}

fn whole(number: &str, out: &mut Vec<u8>) -> Result<Form, Failed> {
    if !is_float(number) {
        return Ok(Form::Same);
    }
    match number.parse::<f64>() {
        Ok(value) if value.is_finite() => {
            let text = format!("{:.0}", value.trunc());
            json(out, if text == "-0" { "0" } else { &text })
        }
        _ => Err(Failed(format!("{number} is no integer"))),
    }
}

fn integer_of(text: &str, out: &mut Vec<u8>) -> Result<Form, Failed> {
    if let Some((negative, digits)) = hex(text) {
        if digits.contains('.') {
            let value = hex_float(digits).ok_or_else(|| failed(text, "an integer"))?;
            return whole(&format!("{:?}", if negative { -value } else { value }), out);
        }
        let value = u128::from_str_radix(digits, 16).map_err(|_| failed(text, "an integer"))?;
        return json(out, &format!("{}{value}", if negative && value > 0 { "-" } else { "" }));
    }
    json(out, &decimal(text).ok_or_else(|| failed(text, "an integer"))?)
}

fn failed(text: &str, wanted: &str) -> Failed {
    Failed(format!("`{}` is not {wanted}", text.chars().take(64).collect::<String>()))
}

/// The digits a text begins with, as a number; 0 if it begins with none.
pub fn leading_digits(text: &str) -> String {
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let (mut digits, mut after_digit) = (String::new(), false);
    for c in rest.chars() {
        match c {
            '0'..='9' => digits.push(c),
            '_' if after_digit => {}
            _ => break,
        }
        after_digit = c != '_';
    }
    signed(sign == "-", &digits)
}

/// Without leading zeros and without `-0`.
fn signed(negative: bool, digits: &str) -> String {
    match digits.trim_start_matches('0') {
        "" => "0".to_string(),
        digits => format!("{}{digits}", if negative { "-" } else { "" }),
    }
}

/// `1_250.5` or `12.505e2` as a whole number, cut; none of what is not a number to its end.
fn decimal(text: &str) -> Option<String> {
    let (negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (mantissa, exponent) = rest.split_once(['e', 'E']).unwrap_or((rest, "0"));
    let (head, tail) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let (head, tail) = (ungrouped(head)?, ungrouped(tail)?);
    let digits = format!("{head}{tail}");
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let places = head.len() as i64 + exponent.parse::<i64>().ok()?;
    if places > DIGITS_MAX {
        return digits.bytes().all(|b| b == b'0').then(|| "0".to_string());
    }
    let places = usize::try_from(places).unwrap_or(0);
    let whole: String = digits.chars().chain(std::iter::repeat('0')).take(places).collect();
    Some(signed(negative, &whole))
}

/// Digits without the underscores between them, as Ruby groups them.
fn ungrouped(digits: &str) -> Option<String> {
    let is_grouped = !digits.starts_with('_') && !digits.ends_with('_') && !digits.contains("__");
    is_grouped.then(|| digits.replace('_', ""))
}

/// The sign and digits of `0x1f`.
fn hex(text: &str) -> Option<(bool, &str)> {
    let (negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    rest.strip_prefix("0x").or_else(|| rest.strip_prefix("0X")).map(|digits| (negative, digits))
}

/// `1a.8p4`: digits to the base of 16, times a power of two.
fn hex_float(text: &str) -> Option<f64> {
    let (digits, power) = match text.split_once(['p', 'P']) {
        Some((digits, power)) => (digits, power.parse().ok()?),
        None => (text, 0),
    };
    let (head, tail) = digits.split_once('.').unwrap_or((digits, "0"));
    let whole = u128::from_str_radix(head, 16).ok()? as f64;
    let part = u64::from_str_radix(tail.get(..tail.len().min(13))?, 16).ok()? as f64;
    Some((whole + part / 16f64.powi(tail.len().min(13) as i32)) * 2f64.powi(power))
}

/// A text as a float, as Ruby's code has it; none if it is none.
pub fn float(text: &str) -> Option<String> {
    let mut out = Vec::new();
    float_of(text, &mut out).ok()?;
    String::from_utf8(out).ok()
}

fn float_of(text: &str, out: &mut Vec<u8>) -> Result<Form, Failed> {
    if let Some((negative, digits)) = hex(text) {
        return finite(hex_float(digits).map(|value| if negative { -value } else { value }), text, out);
    }
    let plain = ungrouped(text).ok_or_else(|| failed(text, "a number"))?;
    let bytes = plain.as_bytes();
    let spelt = bytes.iter().all(|b| b.is_ascii_digit() || matches!(b, b'+' | b'-' | b'.' | b'e' | b'E'));
    let dotted = (0..bytes.len()).all(|i| bytes[i] != b'.' || bytes.get(i + 1).is_some_and(u8::is_ascii_digit));
    let value = if spelt && dotted { plain.parse().ok() } else { None };
    finite(value, text, out)
}

fn finite(value: Option<f64>, text: &str, out: &mut Vec<u8>) -> Result<Form, Failed> {
    match value {
        Some(value) if value.is_finite() => json(out, &format!("{value:?}")),
        _ => Err(failed(text, "a number")),
    }
}

fn as_boolean(view: &View<'_>, out: &mut Vec<u8>) -> Form {
    let text = match view {
        View::Text(text) => text.as_ref(),
        View::Number(text) => text,
        _ => return Form::Same,
    };
    let one_of = |words: [&str; 5], digit: u8| {
        text.split('\n').any(|line| {
            words.iter().any(|word| line.eq_ignore_ascii_case(word))
                || matches!(line.as_bytes(), [d, _, b'0'] if *d == digit)
        })
    };
    let value = if one_of(["true", "t", "yes", "y", "1"], b'1') {
        "true"
    } else if text.is_empty() || one_of(["false", "f", "no", "n", "0"], b'0') {
        "false"
    } else {
        return Form::Same;
    };
    out.extend_from_slice(value.as_bytes());
    Form::Json
}

fn as_text(view: &View<'_>, out: &mut Vec<u8>) -> Form {
    match view {
        View::Bool(is) => out.extend_from_slice(if *is { b"true" } else { b"false" }),
        View::Number(text) => ruby_number(text, out),
        _ => return Form::Same,
    }
    Form::Text
}

/// A value as text: a number as Ruby prints it, nothing for null, a list or object as JSON.
pub fn text_of<'a>(view: &'a View<'_>) -> Cow<'a, str> {
    let mut out = Vec::new();
    match view {
        View::Text(text) => return Cow::Borrowed(text),
        View::Null => {}
        View::Number(text) => ruby_number(text, &mut out),
        other => other.write_json(&mut out),
    }
    Cow::Owned(String::from_utf8_lossy(&out).into_owned())
}

/// Where a value stands as [`text_of`] it: what is no text is written there first.
pub fn place_of_text(event: &mut EventMut<'_>, value: Value) -> Span {
    if let Some(span) = event.text_span(value) {
        return span;
    }
    let text = text_of(&event.view(value)).into_owned();
    event.write(text.as_bytes())
}

/// The first character in upper case, the others in lower case.
pub fn capital(text: &str) -> String {
    let mut chars = text.chars();
    let first: String = chars.next().into_iter().flat_map(char::to_uppercase).collect();
    first + &chars.as_str().to_lowercase()
}

/// A number as Ruby prints it: floats with an exponent below 1e-4 and from 1e16 on (`1.0e+16`).
pub fn ruby_number(text: &str, out: &mut Vec<u8>) {
    let value = match text.parse::<f64>() {
        Ok(value) if is_float(text) => value,
        _ => return out.extend_from_slice(text.as_bytes()),
    };
    if value.is_infinite() {
        return out.extend_from_slice(if value > 0.0 { b"Infinity" } else { b"-Infinity" });
    }
    let shown = format!("{value:?}");
    let Some((mantissa, exponent)) = shown.split_once('e') else {
        return out.extend_from_slice(shown.as_bytes());
    };
    let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |digits| ('-', digits));
    let point = if mantissa.contains('.') { "" } else { ".0" };
    // writing to memory does not fail
    drop(write!(out, "{mantissa}{point}e{sign}{exponent:0>2}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `same`, `failed`, or what was written: text in quotes.
    fn check(kind: Kind, value: &str, want: &str) {
        let mut out = Vec::new();
        let form = convert(kind, &View::of_json(value.as_bytes()), &mut out);
        let out = String::from_utf8(out).unwrap();
        let got = match form {
            Err(_) => "failed".to_string(),
            Ok(Form::Same) => "same".to_string(),
            Ok(Form::Text) => format!("\"{out}\""),
            Ok(Form::Json) => out,
        };
        assert_eq!(got, want, "{kind:?} of {value}");
    }

    #[test]
    fn conversions() {
        for (value, integer, float, text, boolean) in [
            ("\"12\"", "12", "12.0", "same", "same"),
            ("\" 1,234 \"", "1234", "1234.0", "same", "same"),
            ("\"12.7\"", "12", "12.7", "same", "same"),
            ("\"-012abc\"", "failed", "failed", "same", "same"),
            ("\"abc\"", "failed", "failed", "same", "same"),
            ("\"hello\"", "failed", "failed", "same", "same"),
            ("\"\"", "failed", "failed", "same", "false"),
            ("\"1_000\"", "1000", "1000.0", "same", "same"),
            ("\"1__0\"", "failed", "failed", "same", "same"),
            ("\"1e3\"", "1000", "1000.0", "same", "same"),
            ("\"-12.5e1\"", "-125", "-125.0", "same", "same"),
            ("\"1e-3\"", "0", "0.001", "same", "same"),
            ("\"1E3\"", "1000", "1000.0", "same", "same"),
            ("\"1e99999999999\"", "failed", "failed", "same", "same"),
            ("\"0x1A\"", "26", "26.0", "same", "same"),
            ("\"-0X1a.8\"", "-26", "-26.5", "same", "same"),
            ("\"0x1.edcdp6\"", "123", "123.4501953125", "same", "same"),
            ("\"-0x1.8P1\"", "-3", "-3.0", "same", "same"),
            ("\"0x1p4\"", "failed", "16.0", "same", "same"),
            ("\"0x1.8p\"", "failed", "failed", "same", "same"),
            ("\"5.\"", "5", "failed", "same", "same"),
            ("\".5\"", "0", "0.5", "same", "same"),
            ("\"NaN\"", "failed", "failed", "same", "same"),
            ("\"-0\"", "0", "-0.0", "same", "same"),
            ("\"99999999999999999999\"", "99999999999999999999", "1e20", "same", "same"),
            ("\"Yes\"", "failed", "failed", "same", "true"),
            ("\"T\"", "failed", "failed", "same", "true"),
            ("\"1.0\"", "1", "1.0", "same", "true"),
            ("\"n\"", "failed", "failed", "same", "false"),
            ("\"0\"", "0", "0.0", "same", "false"),
            ("1", "same", "1.0", "\"1\"", "true"),
            ("0.0", "0", "same", "\"0.0\"", "false"),
            ("-12.9", "-12", "same", "\"-12.9\"", "same"),
            ("-0.5", "0", "same", "\"-0.5\"", "same"),
            ("1e20", "100000000000000000000", "same", "\"1.0e+20\"", "same"),
            ("10000000.0", "10000000", "same", "\"10000000.0\"", "same"),
            ("0.00001", "0", "same", "\"1.0e-05\"", "same"),
            ("true", "1", "1.0", "\"true\"", "same"),
            ("false", "0", "0.0", "\"false\"", "same"),
            ("null", "same", "same", "same", "same"),
        ] {
            check(Kind::Integer, value, integer);
            check(Kind::Float, value, float);
            check(Kind::Text, value, text);
            check(Kind::Boolean, value, boolean);
        }
        check(Kind::IntegerEu, "\"1.234,56\"", "1234");
        check(Kind::FloatEu, "\"1.234,56\"", "1234.56");
        check(Kind::FloatEu, "1234.56", "same");
    }
}
