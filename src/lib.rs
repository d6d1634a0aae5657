//! onceline: every event, indexed once.

pub mod ack;
pub mod batch;
pub mod bench;
pub mod codec;
pub mod condition;
pub mod config;
pub mod date;
pub mod field;
pub mod filter;
pub mod id;
pub mod index;
pub mod input;
pub mod json;
pub mod output;
pub mod pipeline;
pub mod regexp;
pub mod stamp;
pub mod template;
pub mod time;
