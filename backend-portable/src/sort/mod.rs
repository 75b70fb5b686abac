//! Sorting, selecting, searching: results that depend on how values compare, or whose number
//! depends on the data.

pub mod distinct;
pub mod keys;
pub mod order;
pub mod search;
pub mod select;
pub mod unique;
