//! onceline: every event, indexed once.

pub mod time;
