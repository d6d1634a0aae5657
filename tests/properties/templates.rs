//! Templates and field references. The first line is an event, the rest a template.

use onceline::field::FieldRef;
use onceline::template::{FieldName, Template};

use super::{event, first_line};

pub fn check(bytes: &[u8]) {
    let (line, text) = first_line(bytes);
    let text = String::from_utf8_lossy(text);
    check_field(&text);
    let Ok(template) = Template::parse(&text) else {
        return assert!(text.contains("%{"), "a text without placeholders is refused");
    };
    assert_eq!(template.as_str(), text);
    assert_eq!(template.is_constant(), template.constant().is_some());
    assert!(template.unit().is_none() || template.date_parts().count() > 0);
    let batch = event(line);
    let event = batch.event(0);
    let (mut shown, mut strict) = (Vec::new(), Vec::new());
    template.render(&event, &mut shown);
    if template.is_constant() {
        assert_eq!(shown, text.as_bytes());
    }
    if template.render_strict(&event, &mut strict).is_ok() {
        assert_eq!(strict, shown, "rendered strictly");
        assert!(!template.shows_now());
    }
    if let Ok(name) = FieldName::parse(&text) {
        name.of(&event).inspect(|field| check_field(field.as_str()));
    }
}

/// Its one spelling leads to the same place.
fn check_field(text: &str) {
    let Ok(field) = FieldRef::parse(text) else { return };
    assert_eq!(field.as_str(), text);
    let again = FieldRef::parse(&field.canonical()).expect("the one spelling can be read");
    assert_eq!((again.path(), again.is_metadata()), (field.path(), field.is_metadata()));
}
