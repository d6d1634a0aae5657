//! Lines of CSV as their fields. What Ruby's CSV refuses, and so Logstash, is refused here too: a quote within a
//! field that has none around it, text behind a closing quote, a quote that is not closed.

/// How fields are told apart.
#[derive(Clone, Debug)]
pub struct Csv {
    separator: u8,
    quote: Option<u8>,
}

/// Why a line is not CSV.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl Csv {
    /// `quote` may be empty or a NUL: then no character quotes.
    pub fn new(separator: &str, quote: &str) -> Result<Csv, String> {
        let &[separator] = separator.as_bytes() else {
            return Err(format!("the separator `{separator}` is not one ASCII character"));
        };
        let quote = match quote.as_bytes() {
            [] | [0] | b"\\x00" => None,
            [byte] => Some(*byte),
            _ => return Err(format!("the quote `{quote}` is not one ASCII character")),
        };
        if quote == Some(separator) || matches!(separator, b'\n' | b'\r') {
            return Err("a separator that is a quote or a line end tells nothing apart".to_string());
        }
        Ok(Csv { separator, quote })
    }

    /// The fields of the first line: none for one that is empty and not quoted.
    pub fn fields(&self, text: &str) -> Result<Vec<Option<String>>, Malformed> {
        let (quoted, end) = self.shape(text.as_bytes())?;
        let mut builder = csv::ReaderBuilder::new();
        builder.has_headers(false).flexible(true).delimiter(self.separator).quoting(self.quote.is_some());
        if let Some(quote) = self.quote {
            builder.quote(quote);
        }
        let mut reader = builder.buffer_capacity(end.max(1)).from_reader(&text.as_bytes()[..end]);
        let mut record = csv::StringRecord::new();
        reader.read_record(&mut record).map_err(|_| Malformed("no text"))?;
        let fields = record.iter().zip(quoted).map(|(field, quoted)| {
            // an empty field and none are told apart by their quotes alone
            (quoted || !field.is_empty()).then(|| field.to_string())
        });
        Ok(fields.collect())
    }

    /// Whether each field is quoted, and where the line ends.
    fn shape(&self, text: &[u8]) -> Result<(Vec<bool>, usize), Malformed> {
        let (mut quoted, mut at) = (Vec::new(), 0);
        let ends = |at: usize| matches!(text.get(at), None | Some(b'\n' | b'\r'));
        loop {
            let is_quoted = self.quote.is_some() && text.get(at).copied() == self.quote;
            quoted.push(is_quoted);
            if is_quoted {
                at = self.behind_quotes(text, at + 1)?;
                if !ends(at) && text[at] != self.separator {
                    return Err(Malformed("text behind a closing quote"));
                }
            }
            while !ends(at) && text[at] != self.separator {
                if Some(text[at]) == self.quote {
                    return Err(Malformed("a quote within a field"));
                }
                at += 1;
            }
            if ends(at) {
                return Ok((quoted, at));
            }
            at += 1;
        }
    }

    /// The place behind the quote that closes; two of them are one within.
    fn behind_quotes(&self, text: &[u8], mut at: usize) -> Result<usize, Malformed> {
        loop {
            let next = text[at..].iter().position(|byte| Some(*byte) == self.quote);
            at += next.ok_or(Malformed("a quote that is not closed"))? + 1;
            if text.get(at).copied() != self.quote {
                return Ok(at);
            }
            at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines() {
        let csv = Csv::new(",", "\"").unwrap();
        for (text, want) in [
            ("a,b,c", Ok(vec![Some("a"), Some("b"), Some("c")])),
            ("a,,\"\"", Ok(vec![Some("a"), None, Some("")])),
            ("\"a,\"\"b\"\"\",c", Ok(vec![Some("a,\"b\""), Some("c")])),
            ("\"a\nb\",c\nd", Ok(vec![Some("a\nb"), Some("c")])),
            (" a , b", Ok(vec![Some(" a "), Some(" b")])),
            ("a,", Ok(vec![Some("a"), None])),
            ("é,ü\r\n", Ok(vec![Some("é"), Some("ü")])),
            ("a\"b,c", Err("a quote within a field")),
            (" \"a\"", Err("a quote within a field")),
            ("\"a\"b", Err("text behind a closing quote")),
            ("\"a", Err("a quote that is not closed")),
        ] {
            let want: Result<Vec<Option<String>>, Malformed> =
                want.map(|fields| fields.into_iter().map(|f| f.map(str::to_string)).collect()).map_err(Malformed);
            assert_eq!(csv.fields(text), want, "{text}");
        }
        let tabs = Csv::new("\t", "").unwrap();
        assert_eq!(tabs.fields("a\"\tb").unwrap(), [Some("a\"".to_string()), Some("b".to_string())]);
        for (separator, quote) in [("||", "\""), ("é", "\""), (",", ","), (",", "''"), ("\n", "\"")] {
            assert!(Csv::new(separator, quote).is_err(), "{separator} {quote}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(fields in prop::collection::vec("[a,\"é\n ]{0,4}", 1..5)) {
            let quoted: Vec<String> = fields.iter().map(|f| format!("\"{}\"", f.replace('"', "\"\""))).collect();
            let read = Csv::new(",", "\"").unwrap().fields(&quoted.join(",")).unwrap();
            prop_assert_eq!(read, fields.into_iter().map(Some).collect::<Vec<_>>());
        }

        #[test]
        fn any_text_has_an_answer(text in ".{0,20}|[a,\" \n\r]{0,12}") {
            let csv = Csv::new(",", "\"").unwrap();
            if let Ok(fields) = csv.fields(&text) {
                let (quoted, _) = csv.shape(text.as_bytes()).unwrap();
                prop_assert!(fields.len() == quoted.len() || fields.is_empty() && quoted.len() == 1);
            }
        }
    }
}
