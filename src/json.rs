//! JSON as text: one pass over a record proves that it is one JSON value and finds its top-level fields, so that
//! an event which no filter changes is forwarded as the bytes it came as. No tree is built here.
//!
//! Three verdicts. *Clean*: forward it. *Odd*: it can be read, but no engine should be sent it as it stands
//! (a repeated key, a lone surrogate, bytes that are not UTF-8, an escaped key), so it is written anew by
//! [`repair`]. *Bad*: not one JSON value.

use std::borrow::Cow;
use std::collections::HashMap;

use wide::u8x16;

/// Nesting beyond this is refused: no engine takes it, and it bounds the recursion here.
pub const DEPTH_MAX: usize = 100;
/// So many fields an event may have unless the pipeline file says otherwise, at all depths together.
pub const FIELDS_MAX: usize = 10_000;
/// What is said of nesting that is too deep.
pub const TOO_DEEP: &str = "nested more than 100 levels deep";
/// Up to this many keys an object's hashes are compared pair by pair, beyond it they are sorted first.
const PAIRWISE_MAX: usize = 24;

/// Why a text is not one JSON value, and at which byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bad {
    pub at: usize,
    pub what: &'static str,
}

/// A member of the outermost object: where its key stands (without quotes) and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub key: (u32, u32),
    pub value: (u32, u32),
}

/// What a clean or odd text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scanned {
    /// First byte of the value: `{`, `[`, `"`, a digit, …
    pub first: u8,
    /// Needs [`repair`] before it may be sent.
    pub odd: bool,
    pub start: usize,
    pub end: usize,
}

/// Scratch space of the scanner, kept between records so that scanning allocates nothing.
#[derive(Default)]
pub struct Scanner {
    hashes: Vec<u32>,
    sorted: Vec<u32>,
    fields: usize,
}

impl Scanner {
    /// Scans one JSON value with white space around it. Members of an outermost object are appended to
    /// `entries` as offsets into `text`; `utf8` says that `text` is known to be UTF-8.
    pub fn scan(&mut self, text: &[u8], utf8: bool, entries: &mut Vec<Entry>) -> Result<Scanned, Bad> {
        self.hashes.clear();
        self.fields = 0;
        let mut cursor = Cursor { text, at: 0, odd: !utf8 && std::str::from_utf8(text).is_err() };
        cursor.blanks();
        let (start, first) = (cursor.at, cursor.peek());
        if first == b'{' {
            self.object(&mut cursor, 0, Some(entries))?
        } else {
            self.value(&mut cursor, 0)?
        }
        let end = cursor.at;
        cursor.blanks();
        if cursor.at < text.len() {
            return Err(cursor.bad("text after the value"));
        }
        Ok(Scanned { first, odd: cursor.odd, start, end })
    }

    /// How many keys the text has that was scanned last, at all depths.
    pub fn fields(&self) -> usize {
        self.fields
    }

    fn value(&mut self, cursor: &mut Cursor<'_>, depth: usize) -> Result<(), Bad> {
        match cursor.peek() {
            b'"' => cursor.string().map(drop),
            b'{' => self.object(cursor, depth, None),
            b'[' => self.array(cursor, depth),
            b't' => cursor.word(b"true"),
            b'f' => cursor.word(b"false"),
            b'n' => cursor.word(b"null"),
            _ => cursor.number(),
        }
    }

    fn array(&mut self, cursor: &mut Cursor<'_>, depth: usize) -> Result<(), Bad> {
        cursor.deeper(depth)?;
        if cursor.closed(b']') {
            return Ok(());
        }
        loop {
            self.value(cursor, depth + 1)?;
            cursor.blanks();
            if !cursor.more(b']')? {
                return Ok(());
            }
        }
    }

    fn object(
        &mut self,
        cursor: &mut Cursor<'_>,
        depth: usize,
        mut entries: Option<&mut Vec<Entry>>,
    ) -> Result<(), Bad> {
        cursor.deeper(depth)?;
        if cursor.closed(b'}') {
            return Ok(());
        }
        let first_hash = self.hashes.len();
        loop {
            let key_at = cursor.at;
            if cursor.peek() != b'"' {
                return Err(cursor.bad("a key in double quotes is wanted"));
            }
            let escaped = cursor.string()?;
            cursor.odd |= escaped;
            let key = &cursor.text[key_at + 1..cursor.at - 1];
            self.hashes.push(key_hash(key));
            self.fields += 1;
            cursor.blanks();
            if cursor.peek() != b':' {
                return Err(cursor.bad("a colon is wanted"));
            }
            cursor.at += 1;
            cursor.blanks();
            let value_at = cursor.at;
            self.value(cursor, depth + 1)?;
            if let Some(entries) = entries.as_deref_mut() {
                let value = (value_at as u32, (cursor.at - value_at) as u32);
                entries.push(Entry { key: (key_at as u32 + 1, key.len() as u32), value });
            }
            cursor.blanks();
            if !cursor.more(b'}')? {
                break;
            }
        }
        cursor.odd |= self.repeated(first_hash);
        self.hashes.truncate(first_hash);
        Ok(())
    }

    /// Whether two hashes from `first` on are equal: perhaps a repeated key, which [`repair`] then decides.
    fn repeated(&mut self, first: usize) -> bool {
        let hashes = &self.hashes[first..];
        if hashes.len() <= PAIRWISE_MAX {
            return (1..hashes.len()).any(|i| hashes[..i].contains(&hashes[i]));
        }
        self.sorted.clear();
        self.sorted.extend_from_slice(hashes);
        self.sorted.sort_unstable();
        self.sorted.windows(2).any(|pair| pair[0] == pair[1])
    }
}

/// Equal for equal keys. What others have it too is sorted out by [`repair`].
fn key_hash(key: &[u8]) -> u32 {
    const MIX: u64 = 0x9E37_79B9_7F4A_7C15;
    let mut hash = key.len() as u64;
    let (words, rest) = key.as_chunks::<8>();
    for word in words {
        hash = (hash ^ u64::from_le_bytes(*word)).wrapping_mul(MIX);
        hash ^= hash >> 29;
    }
    let tail = match (key.last_chunk::<8>(), rest.first_chunk::<4>(), rest.last_chunk::<4>()) {
        (Some(last), _, _) => u64::from_le_bytes(*last),
        (_, Some(first), Some(last)) => {
            u64::from(u32::from_le_bytes(*first)) << 32 | u64::from(u32::from_le_bytes(*last))
        }
        _ => rest.iter().fold(0, |tail, byte| tail << 8 | u64::from(*byte)),
    };
    hash = (hash ^ tail).wrapping_mul(MIX);
    (hash >> 32) as u32
}

struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
    odd: bool,
}

impl Cursor<'_> {
    fn peek(&self) -> u8 {
        self.text.get(self.at).copied().unwrap_or(0)
    }

    fn bad(&self, what: &'static str) -> Bad {
        let what = if self.at >= self.text.len() { "the text ends too early" } else { what };
        Bad { at: self.at, what }
    }

    fn blanks(&mut self) {
        while let Some(blank @ (b' ' | b'\t' | b'\r' | b'\n')) = self.text.get(self.at) {
            // of several lines: what is stored is one
            self.odd |= *blank == b'\n';
            self.at += 1;
        }
    }

    fn deeper(&mut self, depth: usize) -> Result<(), Bad> {
        if depth >= DEPTH_MAX {
            return Err(self.bad(TOO_DEEP));
        }
        self.at += 1;
        self.blanks();
        Ok(())
    }

    fn closed(&mut self, end: u8) -> bool {
        let closed = self.peek() == end;
        self.at += usize::from(closed);
        closed
    }

    /// After a member: a comma (and what follows must be another) or the end.
    fn more(&mut self, end: u8) -> Result<bool, Bad> {
        match self.peek() {
            b',' => {
                self.at += 1;
                self.blanks();
                Ok(true)
            }
            byte if byte == end => {
                self.at += 1;
                Ok(false)
            }
            _ => Err(self.bad("a comma or the end of the list is wanted")),
        }
    }

    fn word(&mut self, word: &'static [u8]) -> Result<(), Bad> {
        if !self.text[self.at..].starts_with(word) {
            return Err(self.bad("a value is wanted"));
        }
        self.at += word.len();
        Ok(())
    }

    fn digits(&mut self) -> Result<(), Bad> {
        let from = self.at;
        while self.peek().is_ascii_digit() {
            self.at += 1;
        }
        if self.at == from { Err(self.bad("a value is wanted")) } else { Ok(()) }
    }

    fn number(&mut self) -> Result<(), Bad> {
        self.at += usize::from(self.peek() == b'-');
        if self.peek() == b'0' {
            self.at += 1;
            if self.peek().is_ascii_digit() {
                return Err(self.bad("a number begins with 0"));
            }
        } else {
            self.digits()?;
        }
        if self.peek() == b'.' {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), b'e' | b'E') {
            self.at += 1;
            self.at += usize::from(matches!(self.peek(), b'+' | b'-'));
            self.digits()?;
        }
        Ok(())
    }

    /// A string from its opening quote on; says whether it holds an escape.
    fn string(&mut self) -> Result<bool, Bad> {
        self.at += 1;
        let mut escaped = false;
        loop {
            self.plain_text();
            match self.text.get(self.at) {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(escaped);
                }
                Some(b'\\') => {
                    escaped = true;
                    self.escape()?;
                }
                Some(_) => return Err(self.bad("a control character in a string")),
                None => return Err(self.bad("")),
            }
        }
    }

    /// Moves to the next quote, backslash or control character.
    fn plain_text(&mut self) {
        while let Some(chunk) = self.text.get(self.at..).and_then(<[u8]>::first_chunk::<16>) {
            let odd = odd_bits(chunk);
            if odd != 0 {
                self.at += odd.trailing_zeros() as usize;
                return;
            }
            self.at += 16;
        }
        while self.text.get(self.at).is_some_and(|byte| !is_odd(*byte)) {
            self.at += 1;
        }
    }

    fn escape(&mut self) -> Result<(), Bad> {
        self.at += 1;
        match self.peek() {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.at += 1,
            b'u' => {
                let unit = self.hex4()?;
                let paired = (0xD800..0xDC00).contains(&unit) && self.text[self.at..].starts_with(b"\\u") && {
                    let back = self.at;
                    self.at += 1;
                    let low = self.hex4()?;
                    let is_low = (0xDC00..0xE000).contains(&low);
                    if !is_low {
                        self.at = back;
                    }
                    is_low
                };
                self.odd |= !paired && (0xD800..0xE000).contains(&unit);
            }
            _ => return Err(self.bad("an unknown escape in a string")),
        }
        Ok(())
    }

    /// The four digits after `\u`, the cursor being on the `u`.
    fn hex4(&mut self) -> Result<u32, Bad> {
        let digits = self.text.get(self.at + 1..self.at + 5);
        let unit = digits.and_then(|d| d.iter().try_fold(0u32, |n, b| Some(n << 4 | char::from(*b).to_digit(16)?)));
        let Some(unit) = unit else { return Err(self.bad("four hex digits are wanted after \\u")) };
        self.at += 5;
        Ok(unit)
    }
}

/// The text between a string's quotes, escapes resolved; a lone surrogate becomes U+FFFD.
pub fn unescape(inner: &[u8]) -> Cow<'_, str> {
    let Some(first) = memchr::memchr(b'\\', inner) else { return String::from_utf8_lossy(inner) };
    let mut out = String::with_capacity(inner.len());
    let (mut rest, mut next) = (inner, Some(first));
    while let Some(at) = next {
        out.push_str(&String::from_utf8_lossy(&rest[..at]));
        let (resolved, used) = escape_char(&rest[at..]);
        out.push(resolved);
        rest = &rest[at + used..];
        next = memchr::memchr(b'\\', rest);
    }
    out.push_str(&String::from_utf8_lossy(rest));
    Cow::Owned(out)
}

fn escape_char(text: &[u8]) -> (char, usize) {
    let simple = |c| (c, 2);
    match text.get(1) {
        Some(b'n') => simple('\n'),
        Some(b't') => simple('\t'),
        Some(b'r') => simple('\r'),
        Some(b'b') => simple('\u{8}'),
        Some(b'f') => simple('\u{c}'),
        Some(b'u') => {
            let Some(unit) = unit_at(text, 2) else { return ('\u{fffd}', text.len().min(2)) };
            let low = (text.get(6..8) == Some(b"\\u")).then(|| unit_at(text, 8)).flatten();
            match low {
                Some(low) if (0xD800..0xDC00).contains(&unit) && (0xDC00..0xE000).contains(&low) => {
                    let point = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
                    (char::from_u32(point).unwrap_or('\u{fffd}'), 12)
                }
                _ => (char::from_u32(unit).unwrap_or('\u{fffd}'), 6),
            }
        }
        Some(byte) => simple(char::from(*byte)),
        None => ('\\', 1),
    }
}

fn unit_at(text: &[u8], at: usize) -> Option<u32> {
    text.get(at..at + 4)?.iter().try_fold(0u32, |n, b| Some(n << 4 | char::from(*b).to_digit(16)?))
}

/// Writes `text` as a JSON string, with quotes.
pub fn write_string(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    let (mut from, (chunks, rest)) = (0, text.as_chunks::<16>());
    for (number, chunk) in chunks.iter().enumerate() {
        let odd = odd_bits(chunk);
        if odd != 0 {
            from = write_odd(text, from, number * 16, odd, out);
        }
    }
    let odd = odd_bits_of_rest(text, rest);
    if odd != 0 {
        from = write_odd(text, from, text.len() - rest.len(), odd, out);
    }
    out.extend_from_slice(&text[from..]);
    out.push(b'"');
}

/// Writes what stands from `from` on up to the last of the odd bytes, which are told by bits from `begin` on. Says up
/// to where that is.
fn write_odd(text: &[u8], mut from: usize, begin: usize, mut odd: u32, out: &mut Vec<u8>) -> usize {
    while odd != 0 {
        let at = begin + odd.trailing_zeros() as usize;
        out.extend_from_slice(&text[from..at]);
        write_escaped(text[at], out);
        from = at + 1;
        odd &= odd - 1;
    }
    from
}

fn write_escaped(byte: u8, out: &mut Vec<u8>) {
    match byte {
        b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
        b'\n' => out.extend_from_slice(b"\\n"),
        b'\t' => out.extend_from_slice(b"\\t"),
        b'\r' => out.extend_from_slice(b"\\r"),
        _ => {
            const HEX: &[u8; 16] = b"0123456789abcdef";
            out.extend_from_slice(b"\\u00");
            out.extend_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
    }
}

/// Whether a string holds these bytes as they are.
pub fn is_plain(text: &[u8]) -> bool {
    let (chunks, rest) = text.as_chunks::<16>();
    chunks.iter().all(|chunk| odd_bits(chunk) == 0) && odd_bits_of_rest(text, rest) == 0
}

/// Whether a string holds this byte only escaped.
fn is_odd(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

/// A bit for each of sixteen bytes that a string holds only escaped.
fn odd_bits(chunk: &[u8; 16]) -> u32 {
    let bytes = u8x16::new(*chunk);
    let is = |byte| bytes.simd_eq(u8x16::splat(byte));
    let is_control = bytes.min(u8x16::splat(0x1f)).simd_eq(bytes);
    (is_control | is(b'"') | is(b'\\')).to_bitmask()
}

/// As [`odd_bits`], of the less than sixteen bytes that end the text.
#[inline]
fn odd_bits_of_rest(text: &[u8], rest: &[u8]) -> u32 {
    if let Some(last) = text.last_chunk() {
        return odd_bits(last) >> (16 - rest.len());
    }
    // most strings are short: eight bytes from either end are all of them
    let has_odd = match (rest.first_chunk(), rest.last_chunk()) {
        (Some(first), Some(last)) => has_odd(u64::from_le_bytes(*first)) || has_odd(u64::from_le_bytes(*last)),
        _ => {
            let mut eight = [b' '; 8];
            eight[..rest.len()].copy_from_slice(rest);
            has_odd(u64::from_le_bytes(eight))
        }
    };
    if !has_odd {
        return 0;
    }
    rest.iter().enumerate().fold(0, |bits, (at, byte)| bits | u32::from(is_odd(*byte)) << at)
}

/// Whether one of eight bytes is a control character, a quote or a backslash.
fn has_odd(eight: u64) -> bool {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let has_zero = |of: u64| of.wrapping_sub(EACH) & !of;
    let is_below_blank = eight.wrapping_sub(EACH * 0x20) & !eight;
    let odd = is_below_blank | has_zero(eight ^ (EACH * u64::from(b'"'))) | has_zero(eight ^ (EACH * u64::from(b'\\')));
    odd & (EACH * 0x80) != 0
}

/// Members of a container that is known to be valid JSON, one level deep: key (empty in arrays) and value, as
/// the text they came as. A text that is no container has none.
pub fn members(container: &[u8]) -> Members<'_> {
    let keyed = container.first() == Some(&b'{');
    let mut cursor = Cursor { text: container, at: 0, odd: false };
    let open = keyed || container.first() == Some(&b'[');
    if open {
        cursor.at = 1;
        cursor.blanks();
    } else {
        cursor.at = container.len();
    }
    Members { cursor, keyed }
}

pub struct Members<'a> {
    cursor: Cursor<'a>,
    keyed: bool,
}

impl<'a> Iterator for Members<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let c = &mut self.cursor;
        if matches!(c.peek(), 0 | b'}' | b']') {
            return None;
        }
        let mut key: &[u8] = &[];
        if self.keyed {
            let from = c.at + 1;
            c.string().ok()?;
            key = c.text.get(from..c.at - 1)?;
            c.blanks();
            c.at += 1;
            c.blanks();
        }
        let from = c.at;
        skip(c)?;
        let value = c.text.get(from..c.at)?;
        c.blanks();
        if c.peek() == b',' {
            c.at += 1;
            c.blanks();
        }
        Some((key, value))
    }
}

/// Passes one value of a text that is known to be valid: containers by counting brackets.
fn skip(c: &mut Cursor<'_>) -> Option<()> {
    match c.peek() {
        b'"' => c.string().map(drop).ok(),
        b'{' | b'[' => {
            let mut depth = 0usize;
            loop {
                match c.text.get(c.at)? {
                    b'"' => {
                        c.string().ok()?;
                        continue;
                    }
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' => depth -= 1,
                    _ => {}
                }
                c.at += 1;
                if depth == 0 {
                    return Some(());
                }
            }
        }
        _ => {
            while !matches!(c.peek(), 0 | b',' | b'}' | b']' | b' ' | b'\t' | b'\r' | b'\n') {
                c.at += 1;
            }
            Some(())
        }
    }
}

/// Writes an odd text anew: bytes that are not UTF-8 and lone surrogates become U+FFFD, and of a repeated key
/// the last value is kept, at the place of the first. The text must have passed the scanner.
pub fn repair(text: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(text);
    let mut out = Vec::with_capacity(text.len());
    repair_value(text.trim_matches([' ', '\t', '\r', '\n']).as_bytes(), &mut out);
    out
}

fn repair_value(text: &[u8], out: &mut Vec<u8>) {
    match text.first() {
        Some(b'"') => write_string(unescape(&text[1..text.len() - 1]).as_bytes(), out),
        Some(b'[') => {
            out.push(b'[');
            for (i, (_, value)) in members(text).enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                repair_value(value, out);
            }
            out.push(b']');
        }
        Some(b'{') => repair_object(text, out),
        _ => out.extend_from_slice(text),
    }
}

fn repair_object(text: &[u8], out: &mut Vec<u8>) {
    let mut kept: Vec<(Cow<'_, str>, &[u8])> = Vec::new();
    let mut places: HashMap<Cow<'_, str>, usize> = HashMap::new();
    for (key, value) in members(text) {
        let key = unescape(key);
        let place = *places.entry(key.clone()).or_insert(kept.len());
        if place == kept.len() {
            kept.push((key, value));
        } else {
            kept[place].1 = value;
        }
    }
    out.push(b'{');
    for (i, (key, value)) in kept.into_iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        write_string(key.as_bytes(), out);
        out.push(b':');
        repair_value(value, out);
    }
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn scan(text: &[u8]) -> Result<(Scanned, Vec<Entry>), Bad> {
        let mut entries = Vec::new();
        Scanner::default().scan(text, false, &mut entries).map(|s| (s, entries))
    }

    #[test]
    fn clean_text_gives_its_members() {
        let text = br#" {"a":1 , "b c":{"x":[1,2,{"y":null}]},"t":"q\"uo","e":[]} "#;
        let (scanned, entries) = scan(text).unwrap();
        assert!(!scanned.odd);
        let cut = |(at, len): (u32, u32)| std::str::from_utf8(&text[at as usize..(at + len) as usize]).unwrap();
        let got: Vec<_> = entries.iter().map(|e| (cut(e.key), cut(e.value))).collect();
        let want = [("a", "1"), ("b c", r#"{"x":[1,2,{"y":null}]}"#), ("t", r#""q\"uo""#), ("e", "[]")];
        assert_eq!(got, want);
        let again: Vec<_> = members(&text[scanned.start..scanned.end]).map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
        let want: Vec<_> = want.iter().map(|(k, v)| (k.as_bytes().to_vec(), v.as_bytes().to_vec())).collect();
        assert_eq!(again, want);
    }

    #[test]
    fn odd_text_is_repaired() {
        for (text, want) in [
            (&br#"{"a":1,"a":2}"#[..], r#"{"a":2}"#),
            (br#"{"a":1,"b":3,"\u0061":2}"#, r#"{"a":2,"b":3}"#),
            (br#"{"x":{"k":1,"k":[2]}}"#, r#"{"x":{"k":[2]}}"#),
            (b"{\"m\":\"bad \xff here\"}", "{\"m\":\"bad \u{fffd} here\"}"),
            (br#"{"m":"lone \ud800 escape"}"#, "{\"m\":\"lone \u{fffd} escape\"}"),
            (br#"{"m":"\ude00\ud83d\ude00","m2":1,"m2":2}"#, "{\"m\":\"\u{fffd}\u{1f600}\",\"m2\":2}"),
        ] {
            assert!(scan(text).unwrap().0.odd, "{want}");
            assert_eq!(String::from_utf8(repair(text)).unwrap(), want);
        }
        let many: String = (0..40).map(|i| format!("\"k{i}\":{i},")).collect();
        assert!(!scan(format!("{{{many}\"z\":1}}").as_bytes()).unwrap().0.odd);
        assert!(scan(format!("{{{many}\"k7\":1}}").as_bytes()).unwrap().0.odd);
    }

    #[test]
    fn bad_text_is_refused() {
        let deep = "[".repeat(DEPTH_MAX + 1);
        for text in [
            "",
            " ",
            "{",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{a:1}",
            "{'a':1}",
            "[1,]",
            "01",
            "1.",
            "-",
            "+1",
            ".5",
            "1e",
            "tru",
            "\"a",
            "\"\t\"",
            "\"\\x\"",
            "\"\\u12g4\"",
            "{\"a\":1} x",
            "{\"a\":1}{}",
            "\u{feff}{}",
            "nul",
            &deep,
        ] {
            assert!(scan(text.as_bytes()).is_err(), "{text}");
        }
    }

    proptest! {
        /// As byte by byte, wherever in its sixteen bytes a character stands that is escaped.
        #[test]
        fn a_string_is_what_it_was(text in proptest::collection::vec(prop_oneof![9 => b' '..=b'~', 1 => any::<u8>()], 0..80)) {
            let (mut out, mut want) = (Vec::new(), vec![b'"']);
            write_string(&text, &mut out);
            text.iter().for_each(|byte| match byte {
                0..0x20 | b'"' | b'\\' => write_escaped(*byte, &mut want),
                _ => want.push(*byte),
            });
            want.push(b'"');
            prop_assert_eq!(is_plain(&text), want.len() == text.len() + 2);
            prop_assert_eq!(out, want);
        }

        #[test]
        fn agrees_with_serde_json(text in r#"[\[\]{}",:0-9a-e\\u \-+.tfnrlse]{0,24}"#) {
            let ours = scan(text.as_bytes());
            match serde_json::from_str::<serde_json::Value>(&text) {
                Ok(theirs) => {
                    let odd = ours.unwrap().0.odd;
                    let again = if odd { repair(text.as_bytes()) } else { text.clone().into_bytes() };
                    prop_assert_eq!(serde_json::from_slice::<serde_json::Value>(&again).unwrap(), theirs);
                }
                // theirs also refuses numbers and surrogates that ours passes on or repairs
                Err(e) => prop_assert!(ours.is_err() || e.to_string().contains("out of range") || ours.unwrap().0.odd),
            }
        }

        #[test]
        fn any_bytes_never_panic(text in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Ok((scanned, _)) = scan(&text) && scanned.odd {
                let again = repair(&text);
                let theirs: Result<serde_json::Value, _> = serde_json::from_slice(&again);
                prop_assert!(theirs.is_ok() || theirs.unwrap_err().to_string().contains("out of range"));
            }
        }

        #[test]
        fn strings_there_and_back(text in ".*") {
            let mut out = Vec::new();
            write_string(text.as_bytes(), &mut out);
            prop_assert_eq!(&serde_json::from_slice::<String>(&out).unwrap(), &text);
            prop_assert_eq!(unescape(&out[1..out.len() - 1]), text);
        }
    }
}
