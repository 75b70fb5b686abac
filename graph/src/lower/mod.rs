//! Lowering: replaces calls by those that a kind of processor supports.

pub mod portable;
pub mod widen;
