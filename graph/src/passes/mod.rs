//! What is done to a graph: each pass computes the same with less.

pub mod common;
mod constant;
pub mod dead;
mod rewrite;
#[cfg(test)]
mod text;
pub mod uses;
pub mod verify;

use crate::graph::Graph;

/// Runs all passes.
pub fn run(graph: &mut Graph<'_>) {
    dead::run(graph);
}
