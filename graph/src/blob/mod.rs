//! Graphs as bytes: what compiled programs keep as their delegates' data.
//!
//! A flatbuffer with the identifier `TLG1`. Operators are by name, so that the table of operators
//! can change. Constants are not in it but in the program's named data, under keys. Nothing is left
//! to be concluded: inputs and then outputs are the arguments of the delegate's call, updates name
//! all buffers, and a constant says whether it changes, and its name if it does.

mod read;
mod write;

pub(crate) use read::keys;
pub use read::{Contents, contents, read};
pub use write::write;

/// What is at byte 4.
const IDENTIFIER: &str = "TLG1";

/// Whether bytes are those of a graph.
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

// What is known of a constant's changes.
const UNKNOWN: u8 = 0;
const STAYS: u8 = 1;
const CHANGES: u8 = 2;
/// It changes, and starts as zeros.
const STARTS_AS_ZEROS: u8 = 3;

/// How deep calls that others were made of are nested at most.
const DEPTH: usize = 4;

#[cfg(test)]
mod tests;
