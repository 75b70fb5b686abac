//! Sorting, selection and searching: operators that compare values, or whose output size depends on
//! the data.

mod blocks;
pub mod distinct;
pub mod keys;
pub mod order;
pub mod search;
pub mod select;
pub mod unique;
