//! What the targets share: the properties, which are the program's tests too.

#[path = "../../tests/properties/mod.rs"]
pub mod properties;
