//! `onceline bench`: what a user measures on their own machine.

pub mod ids;
