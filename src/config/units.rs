//! Durations (`90s`, `10m`, `60d`, `500ms`) and sizes (`1MiB`, `64kB`), read and written back.

use std::time::Duration;

const DURATIONS: [(&str, u64, &str); 6] = [
    ("w", 7 * 86_400_000, "week"),
    ("d", 86_400_000, "day"),
    ("h", 3_600_000, "hour"),
    ("m", 60_000, "minute"),
    ("s", 1000, "second"),
    ("ms", 1, "millisecond"),
];

const BYTES: [(&str, u64); 7] = [
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("kB", 1000),
    ("B", 1),
];

/// A whole number and one unit of `ms`, `s`, `m`, `h`, `d`, `w`.
pub fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = number_and_unit(text)?;
    let (_, factor, _) = DURATIONS.iter().find(|(name, ..)| *name == unit)?;
    number.checked_mul(*factor).map(Duration::from_millis)
}

/// A whole number and one unit of `B`, `kB`, `MB`, `GB`, `KiB`, `MiB`, `GiB`; without a unit, bytes.
pub fn bytes(text: &str) -> Option<u64> {
    let (number, unit) = number_and_unit(text)?;
    let factor = match unit {
        "" => 1,
        "KB" => 1000,
        _ => BYTES.iter().find(|(name, _)| *name == unit)?.1,
    };
    number.checked_mul(factor)
}

fn number_and_unit(text: &str) -> Option<(u64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, text[end..].trim_start()))
}

/// As it would be written in a file, in the largest unit that holds it exactly. Finer than milliseconds is cut.
pub fn duration_text(duration: Duration) -> String {
    let millis = millis(duration);
    let exact =
        |&&(unit, factor, _): &&(&str, u64, &str)| unit != "w" && millis >= factor && millis.is_multiple_of(factor);
    match DURATIONS.iter().find(exact) {
        Some((unit, factor, _)) => format!("{}{unit}", millis / factor),
        None => "0s".to_owned(),
    }
}

/// In words: `1 minute 30 seconds`.
pub fn duration_words(duration: Duration) -> String {
    let mut rest = millis(duration);
    let mut words = Vec::new();
    for (_, factor, name) in DURATIONS.iter().filter(|(unit, ..)| *unit != "w") {
        match rest / factor {
            0 => {}
            1 => words.push(format!("1 {name}")),
            count => words.push(format!("{count} {name}s")),
        }
        rest %= factor;
    }
    if words.is_empty() { "0 seconds".to_owned() } else { words.join(" ") }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// As it would be written in a file, in the largest unit that holds it exactly, with a space.
pub fn bytes_text(bytes: u64) -> String {
    let exact = |(_, factor): &&(&str, u64)| bytes >= *factor && bytes.is_multiple_of(*factor);
    match BYTES.iter().find(exact) {
        Some((unit, factor)) => format!("{} {unit}", bytes / factor),
        None => "0 B".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (text, millis, written, words) in [
            ("90s", 90_000, "90s", "1 minute 30 seconds"),
            ("10m", 600_000, "10m", "10 minutes"),
            ("60d", 5_184_000_000, "60d", "60 days"),
            ("2w", 1_209_600_000, "14d", "14 days"),
            ("500ms", 500, "500ms", "500 milliseconds"),
            (" 1 h ", 3_600_000, "1h", "1 hour"),
            ("120m", 7_200_000, "2h", "2 hours"),
            ("0s", 0, "0s", "0 seconds"),
        ] {
            let read = duration(text);
            assert_eq!(read, Some(Duration::from_millis(millis)), "{text}");
            assert_eq!(duration_text(read.unwrap_or_default()), written);
            assert_eq!(duration_words(read.unwrap_or_default()), words);
        }
        for text in
            ["", "s", "10", "1.5h", "-1s", "1d12h", "10 years", "10M", "99999999999999999999s", "18446744073709551615w"]
        {
            assert_eq!(duration(text), None, "{text}");
        }
    }

    #[test]
    fn sizes() {
        for (text, size, written) in [
            ("1MiB", 1_048_576, "1 MiB"),
            ("64kB", 64_000, "64 kB"),
            ("64 KB", 64_000, "64 kB"),
            ("1024", 1024, "1 KiB"),
            ("5B", 5, "5 B"),
            ("2GiB", 2 << 30, "2 GiB"),
            ("1536KiB", 1536 << 10, "1536 KiB"),
            ("0", 0, "0 B"),
        ] {
            assert_eq!(bytes(text), Some(size), "{text}");
            assert_eq!(bytes_text(size), written);
        }
        for text in ["", "MiB", "1Mib", "1.5MiB", "-1", "1mb", "99999999999GiB", "99999999999999999999"] {
            assert_eq!(bytes(text), None, "{text}");
        }
    }
}
