//! Where an event's record begins, as fields: `[@metadata][file]` for pipelines that name it, `[log]` for those that
//! store it. Others pay nothing.

use crate::batch::{Batch, Fate, New};
use crate::field::FieldRef;

/// Which fields are set.
#[derive(Debug)]
pub struct Location {
    metadata: Option<[FieldRef; 4]>,
    fields: Option<[FieldRef; 2]>,
}

/// What a pipeline file contains that uses the metadata.
pub const NAMED: &str = "[@metadata][file]";

impl Location {
    pub fn new(metadata: bool, fields: bool) -> Location {
        // a reference of the program's own that is wrong sets nothing, which its tests would tell
        let parse = |name: &str| FieldRef::parse(name).unwrap_or_else(|_| FieldRef::top(name));
        let names = ["path", "offset", "inode", "device"].map(|name| parse(&format!("{NAMED}[{name}]")));
        let log = ["[log][file][path]", "[log][offset]"].map(parse);
        Location { metadata: metadata.then_some(names), fields: fields.then_some(log) }
    }

    /// Whether it sets any.
    pub fn is_wanted(&self) -> bool {
        self.metadata.is_some() || self.fields.is_some()
    }

    /// Sets the fields of all events that are alive, where their source is a file.
    pub fn apply(&self, batch: &mut Batch) {
        if !self.is_wanted() {
            return;
        }
        let Some((device, inode)) = batch.source().inode else { return };
        let name = batch.source().name.clone();
        let path = batch.write(name.as_bytes());
        for index in 0..batch.len() {
            let mut event = batch.event_mut(index);
            if !matches!(event.read().fate(), Fate::Live) {
                continue;
            }
            let offset = event.read().offset().to_string();
            let number = |number: u64| number.to_string();
            if let Some([at_path, at_offset, at_inode, at_device]) = &self.metadata {
                event.set_span(at_path, path);
                event.set(at_offset, New::Json(offset.as_bytes()));
                event.set(at_inode, New::Json(number(inode).as_bytes()));
                event.set(at_device, New::Json(number(device).as_bytes()));
            }
            if let Some([at_path, at_offset]) = &self.fields {
                event.set_span(at_path, path);
                event.set(at_offset, New::Json(offset.as_bytes()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{Source, Span};
    use std::sync::Arc;

    fn check(inode: Option<(u64, u64)>, location: &Location, want: &str, metadata: &str) {
        let text = "xx";
        let source = Source { name: "/a \"b\"".into(), inode, ..Source::default() };
        let mut batch = Batch::new(text.as_bytes().to_vec(), Arc::new(source));
        batch.push(Span::new(0, 2), 7).set(&FieldRef::top("m"), New::Int(1));
        location.apply(&mut batch);
        let (mut fields, mut found) = (Vec::new(), Vec::new());
        batch.event(0).write_source(&mut fields);
        crate::batch::View::Object(batch.event(0).metadata()).write_json(&mut found);
        assert_eq!(String::from_utf8(fields).unwrap(), want);
        assert_eq!(String::from_utf8(found).unwrap(), metadata);
    }

    #[test]
    fn only_what_is_asked_for() {
        let (plain, none) = (r#"{"m":1}"#, "{}");
        let log = r#"{"m":1,"log":{"file":{"path":"/a \"b\""},"offset":7}}"#;
        let file = r#"{"file":{"path":"/a \"b\"","offset":7,"inode":5,"device":3}}"#;
        let inode = Some((3, 5));
        check(inode, &Location::new(false, false), plain, none);
        check(inode, &Location::new(false, true), log, none);
        check(inode, &Location::new(true, false), plain, file);
        check(inode, &Location::new(true, true), log, file);
        check(None, &Location::new(true, true), plain, none);
    }
}
