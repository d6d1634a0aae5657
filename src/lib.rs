//! onceline: every event, indexed once.

pub mod date;
pub mod time;
