//! `uuid`: writes a random UUID to a field.
//!
//! ```toml
//! [[filter]]
//! type = "uuid"
//! target = "trace"
//! ```
//!
//! The event has another one at each reading: an id made of it finds nothing again.

use super::{Applied, Clock, Filter};
use crate::batch::{EventMut, New, View};
use crate::config::Section;
use crate::field::FieldRef;

#[derive(Clone, Debug)]
pub struct Config {
    pub target: FieldRef,
    pub overwrite: bool,
}

impl Config {
    pub fn read(t: &Section<'_>) -> Option<Config> {
        let target = t.parsed("target", FieldRef::parse).required();
        let overwrite = t.bool("overwrite").or(false);
        Some(Config { target: target?, overwrite })
    }
}

#[derive(Clone, Debug)]
pub struct Uuid {
    config: Config,
}

impl Uuid {
    pub fn build(config: Config) -> Result<Uuid, String> {
        Ok(Uuid { config })
    }
}

impl Filter for Uuid {
    fn apply(&self, event: &mut EventMut<'_>, _: &Clock) -> Applied {
        let target = &self.config.target;
        if self.config.overwrite || matches!(event.get(target), None | Some(View::Null)) {
            let mut text = ::uuid::Uuid::encode_buffer();
            event.set(target, New::Text(::uuid::Uuid::new_v4().hyphenated().encode_lower(&mut text)));
        }
        Applied::Matched
    }

    fn random(&self) -> Option<&FieldRef> {
        Some(&self.config.target)
    }
}
