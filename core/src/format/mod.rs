//! File formats: flatbuffer access, headers and schemas.

pub(crate) mod bundled_schema;
pub(crate) mod flat_tensor_schema;
pub mod flatbuffer;
pub mod header;
mod malformed;
pub(crate) mod program_schema;

pub use malformed::{Malformed, Part};

// Not under Miri: too slow, and only the generated readers contain unsafe code.
#[cfg(all(test, not(miri)))]
#[path = "../../tests/readers_agree/mod.rs"]
mod readers_agree;
