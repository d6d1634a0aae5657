//! Conditions: whatever the text is, it is refused at a place or has an answer for any event. The first line is an
//! event, the rest a condition.

use onceline::condition::Condition;

use super::{event, first_line};

pub fn check(bytes: &[u8]) {
    let (line, text) = first_line(bytes);
    let text = String::from_utf8_lossy(text);
    let strict = Condition::parse_logstash(&text);
    let condition = match Condition::parse(&text) {
        Ok(condition) => condition,
        Err(wrong) => {
            assert!(strict.is_err(), "taken only as Logstash's: {wrong:?}");
            return assert!(text.is_char_boundary(wrong.at) && !wrong.message.is_empty(), "{wrong:?}");
        }
    };
    assert_eq!(condition.as_str(), text);
    condition.fields();
    let batch = event(line);
    let holds = condition.holds(&batch.event(0));
    // a comment at its end must not hide the bracket
    match Condition::parse(&format!("!({text}\n)")) {
        Ok(opposite) => assert_eq!(opposite.holds(&batch.event(0)), holds.map(|is| !is), "the opposite"),
        Err(wrong) => assert!(wrong.message.contains("nested"), "{wrong:?}"),
    }
}
