//! onceline: every event, indexed once.

pub mod bench;
pub mod id;
pub mod time;
