//! JSON numbers as text that is hashed: exact decimals, and floats the way JRuby prints them.

use std::io::Write;

/// Longer exponents than this many digits are not reckoned with.
const EXPONENT_DIGITS_MAX: usize = 18;

/// Appends a JSON number so that equal values of any spelling and any size are equal, without rounding:
/// `n`, the digits without zeros at either end, `e`, the exponent of the last digit, `;`. Zero is `n0;`.
/// An exponent of more than 18 digits is not reckoned with: `N`, the number as written in lower case, `;`.
pub fn exact(text: &str, out: &mut Vec<u8>) {
    let (negative, unsigned) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
    let (whole, decimals) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = || whole.bytes().chain(decimals.bytes());
    let Some(first) = digits().position(|digit| digit != b'0') else {
        return out.extend_from_slice(b"n0;");
    };
    let Some(exponent) = exponent_of(exponent) else {
        out.push(b'N');
        out.extend(text.bytes().map(|byte| byte.to_ascii_lowercase()));
        return out.push(b';');
    };
    out.push(b'n');
    if negative {
        out.push(b'-');
    }
    let start = out.len();
    out.extend(digits().skip(first));
    let zeros = out[start..].iter().rev().take_while(|digit| **digit == b'0').count();
    out.truncate(out.len() - zeros);
    out.push(b'e');
    integer(exponent - decimals.len() as i64 + zeros as i64, out);
    out.push(b';');
}

fn exponent_of(text: &str) -> Option<i64> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text).trim_start_matches('0');
    if unsigned.len() > EXPONENT_DIGITS_MAX {
        return None;
    }
    let value: i64 = if unsigned.is_empty() { 0 } else { unsigned.parse().ok()? };
    Some(if text.starts_with('-') { -value } else { value })
}

fn integer(value: i64, out: &mut Vec<u8>) {
    if value < 0 {
        out.push(b'-');
    }
    crate::time::digits(out, value.unsigned_abs(), 1);
}

/// Whether Logstash reads a JSON number as an integer.
pub fn is_integer(text: &str) -> bool {
    !text.contains(['.', 'e', 'E'])
}

/// Appends a JSON number as Logstash's filters see it as text: integers of any size as they are, everything else
/// as a 64-bit float.
pub fn logstash(text: &str, out: &mut Vec<u8>) {
    if is_integer(text) {
        out.extend_from_slice(if text == "-0" { b"0" } else { text.as_bytes() });
    } else {
        float(text.parse().unwrap_or(f64::NAN), out);
    }
}

/// A float as JRuby's `Float#to_s`: plain from 1e-4 to below 1e19, else with an exponent of at least two digits;
/// always a decimal point. The digits are the fewest that read back as the same float (JRuby's are, but for rare ones).
fn float(value: f64, out: &mut Vec<u8>) {
    if !value.is_finite() {
        let name = if value.is_nan() { "NaN" } else { "Infinity" };
        out.extend_from_slice(if value < 0.0 { b"-" } else { b"" });
        return out.extend_from_slice(name.as_bytes());
    }
    if value.is_sign_negative() {
        out.push(b'-');
    }
    // at most 17 digits, a point and an exponent
    let mut text = [0; 32];
    let mut rest = &mut text[..];
    let room = rest.len();
    let written = write!(rest, "{:e}", value.abs()).map_or(0, |()| room - rest.len());
    let text = &text[..written];
    let at = text.iter().position(|byte| *byte == b'e').unwrap_or(written);
    let exponent = std::str::from_utf8(text.get(at + 1..).unwrap_or_default()).unwrap_or_default();
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let mut digits = [0; 32];
    let mut count = 0;
    for digit in text[..at].iter().filter(|byte| **byte != b'.') {
        digits[count] = *digit;
        count += 1;
    }
    let digits = &digits[..count];
    match exponent {
        0..19 => plain(digits, exponent as usize + 1, out),
        -4..0 => {
            out.extend_from_slice(b"0.");
            out.resize(out.len() + (-exponent - 1) as usize, b'0');
            out.extend_from_slice(digits);
        }
        _ => {
            plain(digits, 1, out);
            out.extend_from_slice(if exponent < 0 { b"e-" } else { b"e+" });
            crate::time::digits(out, u64::from(exponent.unsigned_abs()), 2);
        }
    }
}

/// Digits with a decimal point after `whole` of them, and at least one on either side.
fn plain(digits: &[u8], whole: usize, out: &mut Vec<u8>) {
    let end = out.len() + whole;
    out.extend_from_slice(&digits[..whole.min(digits.len())]);
    out.resize(end, b'0');
    out.push(b'.');
    out.extend_from_slice(digits.get(whole..).filter(|decimals| !decimals.is_empty()).unwrap_or(b"0"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text_of(write: fn(&str, &mut Vec<u8>), number: &str) -> String {
        let mut out = Vec::new();
        write(number, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn equal_values_are_equal() {
        let huge = "1".repeat(400);
        let huge_exact = format!("n{huge}e0;");
        for (spellings, want) in [
            (&["1", "1.0", "10e-1", "1E0", "0.1e+1", "1.000e000", "100E-02"][..], "n1e0;"),
            (&["0", "-0", "0.0", "-0.0e5", "0e99999999999999999999"], "n0;"),
            (&["-1500", "-1.5e3", "-15E2"], "n-15e2;"),
            (&["0.001", "1e-3", "1e-000000000000000000003"], "n1e-3;"),
            (&["9007199254740993"], "n9007199254740993e0;"),
            (&["9007199254740992"], "n9007199254740992e0;"),
            (&["1e400"], "n1e400;"),
            (&["1e999999999999999999"], "n1e999999999999999999;"),
            (&["1E+1000000000000000000"], "N1e+1000000000000000000;"),
            (&[&huge], &huge_exact),
        ] {
            for spelling in spellings {
                assert_eq!(text_of(exact, spelling), want, "{spelling}");
            }
        }
    }

    #[test]
    fn logstash_numbers() {
        for (number, want) in [
            ("0", "0"),
            ("-0", "0"),
            ("-42", "-42"),
            ("123456789012345678901234567890", "123456789012345678901234567890"),
            ("100.0", "100.0"),
            ("1.5", "1.5"),
            ("1.50", "1.5"),
            ("1e2", "100.0"),
            ("-0.0", "-0.0"),
            ("1e16", "10000000000000000.0"),
            ("123456789.125", "123456789.125"),
            ("9.999e18", "9999000000000000000.0"),
            ("1e19", "1.0e+19"),
            ("1e20", "1.0e+20"),
            ("1.25e-7", "1.25e-07"),
            ("0.0001", "0.0001"),
            ("0.00012", "0.00012"),
            ("0.00001", "1.0e-05"),
            ("1.7976931348623157e308", "1.7976931348623157e+308"),
            ("1e999", "Infinity"),
            ("-1e999", "-Infinity"),
        ] {
            assert_eq!(text_of(logstash, number), want, "{number}");
        }
    }

    proptest! {
        #[test]
        fn spelling_does_not_matter(digits in -1_000_000_000_000_000_000i64..1_000_000_000_000_000_000,
                                    exponent in -30i64..30, shift in 0i64..5) {
            let one = format!("{digits}e{exponent}");
            let other = format!("{digits}{}E{}", "0".repeat(shift as usize), exponent - shift);
            prop_assert_eq!(text_of(exact, &one), text_of(exact, &other));
            prop_assert_ne!(text_of(exact, &one), text_of(exact, &format!("{}e{exponent}", digits + 1)));
        }

        #[test]
        fn floats_read_back(value: f64) {
            prop_assume!(value.is_finite());
            let json = format!("{value:?}");
            let json = if is_integer(&json) { format!("{json}.0") } else { json };
            prop_assert_eq!(text_of(logstash, &json).parse::<f64>().unwrap().to_bits(), value.to_bits());
        }
    }
}
