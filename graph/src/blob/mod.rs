//! Serialized graphs: the delegate data of compiled programs.
//!
//! A blob is a flatbuffer with the identifier `TLG1`. It refers to operators by name, so that the
//! operator table may change. Constants are stored by key in the program's named data.
//!
//! Unlike a delegate of ExecuTorch's Vulkan backend, a blob leaves nothing to infer. The arguments
//! of the delegate call are the graph's inputs, followed by its outputs. Updates list every mutable
//! buffer, and each constant states whether it changes. Constants that change also have names.

mod read;
mod write;

pub use read::read;
pub(crate) use read::{keys, summarize};
pub use write::write;

/// File identifier, at byte 4.
const IDENTIFIER: &str = "TLG1";

/// Whether bytes are a serialized graph.
pub fn is_blob(bytes: &[u8]) -> bool {
    bytes.get(4..8) == Some(IDENTIFIER.as_bytes())
}

// Kinds of values.
const NONE: u8 = 0;
const INT: u8 = 1;
const DOUBLE: u8 = 2;
const BOOL: u8 = 3;
const STRING: u8 = 4;
const INTS: u8 = 5;
const DOUBLES: u8 = 6;
const BOOLS: u8 = 7;
const LIST: u8 = 8;
const SYMBOLIC: u8 = 9;
const TENSOR: u8 = 10;

// Mutability of a constant.
const UNKNOWN: u8 = 0;
const STAYS: u8 = 1;
const CHANGES: u8 = 2;
/// The constant changes, and is zero-initialised.
const STARTS_AS_ZEROS: u8 = 3;

/// Maximum nesting depth of fused calls.
const DEPTH: usize = 4;

#[cfg(test)]
mod tests;
