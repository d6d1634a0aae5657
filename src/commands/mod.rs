//! Commands that are more than a few lines.

pub mod import;
pub mod letters;
pub mod positions;
pub mod run;
pub mod test;
