//! From any call to calls that a kind of processor has.

pub mod portable;
pub mod widen;
