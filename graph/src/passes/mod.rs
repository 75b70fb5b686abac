//! What is done to a graph: each pass computes the same with less.
//!
//! A pass is a file with its contract at the top: what it needs, what it keeps, what it does to rounding. Its `run` says how often it
//! changed something. [`run`] runs all of them in the order of [`PASSES`], over a graph that [`verify`](verify::verify) accepts.

pub mod activations;
pub mod attention;
pub mod batch_norm;
pub mod common;
mod constant;
pub mod dead;
pub mod linear;
mod masks;
pub mod narrow;
pub mod redundant;
mod rewrite;
pub mod rms_norm;
pub mod strided;
#[cfg(test)]
mod text;
pub mod uses;
pub mod verify;
mod views;

use crate::error::Error;
use crate::graph::Graph;
use alloc::format;

/// A pass.
pub struct Pass {
    /// Its name.
    pub name: &'static str,
    /// Runs it, and says how often it changed something.
    pub run: fn(&mut Graph<'_>) -> usize,
}

/// Makes a list of passes by their modules.
macro_rules! passes {
    ($($module:ident),* $(,)?) => { &[$(Pass { name: stringify!($module), run: $module::run }),*] };
}

/// All passes, in the order that they run. Patterns are of calls that do something, each made once: what does nothing goes before, and
/// what patterns leave behind goes after.
pub const PASSES: &[Pass] = passes![
    redundant,
    common,
    dead,
    attention,
    linear,
    dead,
    batch_norm,
    rms_norm,
    activations,
    narrow,
    redundant,
    common,
    dead,
];

/// Runs all passes.
///
/// # Errors
/// The graph is not right, or (in debug builds, which ask after each) a pass made it so.
pub fn run(graph: &mut Graph<'_>) -> Result<(), Error> {
    verify::verify(graph)?;
    for pass in PASSES {
        (pass.run)(graph);
        if cfg!(debug_assertions) {
            let named = |error| Error::Invalid(format!("{error}, after the pass {}", pass.name));
            verify::verify(graph).map_err(named)?;
        }
    }
    Ok(())
}
