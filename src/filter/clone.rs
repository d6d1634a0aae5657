//! `clone`: makes copies of an event, each with a name of its own; the event itself goes on as it was.
//!
//! ```toml
//! [[filter]]
//! type = "clone"
//! clones = ["audit", "metrics"]
//! ```
//!
//! The name goes to `type`, or with `ecs_compatibility = "v1"` or `"v8"` to `tags`. The options that all filters have
//! apply to the copies.

use super::{Applied, Clock, Filter};
use crate::batch::{EventMut, New};
use crate::config::Section;
use crate::field::FieldRef;

#[derive(Clone, Debug)]
pub struct Config {
    pub clones: Vec<String>,
    pub ecs: bool,
}

impl Config {
    pub fn read(t: &Section<'_>) -> Option<Config> {
        let clones = t.texts("clones").required()?;
        if clones.is_empty() {
            t.fail_at("clones", "no clone is named", ());
        }
        let ecs = t.one_of("ecs_compatibility", &[("disabled", false), ("v1", true), ("v8", true)]).or(false);
        Some(Config { clones, ecs })
    }
}

#[derive(Clone, Debug)]
pub struct Clone {
    config: Config,
    kind: FieldRef,
}

impl Clone {
    pub fn build(config: Config) -> Result<Clone, String> {
        Ok(Clone { config, kind: FieldRef::top("type") })
    }
}

impl Filter for Clone {
    fn apply(&self, event: &mut EventMut<'_>, _: &Clock) -> Applied {
        for name in &self.config.clones {
            let mut copy = event.copy();
            if self.config.ecs {
                copy.add_tag(name);
            } else {
                copy.set(&self.kind, New::Text(name));
            }
        }
        Applied::Unmatched
    }
}
