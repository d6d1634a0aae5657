//! `type = "file"` without `--once`: files are read as they grow, through rotation, truncation and restarts.

pub mod disk;
mod gone;
pub mod machine;
mod packed;
pub mod pattern;
mod turn;
