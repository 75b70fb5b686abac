//! What is done to a graph: each pass computes the same with less.

pub mod attention;
pub mod common;
mod constant;
pub mod dead;
pub mod linear;
mod masks;
pub mod redundant;
mod rewrite;
#[cfg(test)]
mod text;
pub mod uses;
pub mod verify;
mod views;
