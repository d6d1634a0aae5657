//! Commands that are more than a few lines.

pub mod letters;
pub mod run;
