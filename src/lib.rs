//! onceline: every event, indexed once.

pub mod config;
pub mod time;
