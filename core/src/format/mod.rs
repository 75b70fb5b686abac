//! The file formats: flatbuffer access, headers and schemas.

pub(crate) mod bundled_schema;
pub(crate) mod flat_tensor_schema;
pub mod flatbuffer;
pub mod header;
pub(crate) mod program_schema;

#[cfg(test)]
#[path = "../../tests/readers_agree/mod.rs"]
mod readers_agree;
