//! Ruby's patterns: refused with words, or asked within bounds, and consistent. The first line is the text that is
//! searched, the second what stands for a match, the rest the pattern.

use onceline::regexp::Regexp;

use super::first_line;

pub fn check(bytes: &[u8]) {
    let (text, rest) = first_line(bytes);
    let (replacement, pattern) = first_line(rest);
    let [text, replacement, pattern] = [text, replacement, pattern].map(String::from_utf8_lossy);
    let regexp = match Regexp::parse(&pattern) {
        Ok(regexp) => regexp,
        Err(why) => return assert!(!why.is_empty() && !why.contains('\n'), "{why:?}"),
    };
    assert_eq!(regexp.as_str(), pattern);
    let (mut changed, mut same) = (Vec::new(), Vec::new());
    let found = regexp.is_match(&text);
    let replaced = regexp.replace_all(&text, &replacement, &mut changed);
    let kept = regexp.replace_all(&text, r"\0", &mut same);
    if let (Ok(found), Ok(replaced)) = (found, replaced) {
        assert_eq!(found, replaced, "found, and replaced");
        assert!(std::str::from_utf8(&changed).is_ok(), "a character is cut");
    }
    if kept.is_ok() {
        assert_eq!(same, text.as_bytes(), "every match replaced by itself");
    }
    if pattern.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b' ') {
        assert_eq!(found, Ok(text.contains(&*pattern)), "a plain text");
    }
}
