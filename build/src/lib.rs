//! Build-script support for firmware that runs exported PyTorch programs. Analyses a program
//! (`.pte`) and generates code with its exact requirements on the target machine, which
//! `torchlet::program!` includes as a module.
//!
//! ```no_run
//! // build.rs
//! fn main() -> Result<(), torchlet_build::Error> {
//!     torchlet_build::Program::new("models/digits.pte").lowered().write()
//! }
//! ```
//!
//! ```ignore
//! // main.rs
//! torchlet::program!(digits);
//! let mut model = digits::load()?;
//! let logits: &[[f32; 10]; 1] = model.forward(&image)?;
//! ```
//!
//! The generated code contains:
//!
//! - the file, aligned for its weights,
//! - a table of exactly the kernels that it calls,
//! - the element types of the image's programs,
//! - for each method, the sizes of its arena, planned buffers and scratch memory, static memory of
//!   those sizes, and a function with its inputs and outputs as arrays.
//!
//! All of it is derived from the file, so changing the file only requires a rebuild. A missing
//! operator or backend fails the build with its name.
//!
//! [`Program::compiled`] writes calls in order instead, without file, kernel table and interpreter;
//! [`Program::to_c`] writes them in C.
//!
//! Several programs in one image form an [`Image`]. The analysis is also available without a build
//! ([`Analysis`]; `torchlet size`).
//!
//! The crate runs on the host. It depends on `torchlet-core` and the portable kernels, whose
//! prepare functions report requirements on another machine; it computes nothing itself. Start
//! reading at [`Image`], then at `analysis.rs` and `code/mod.rs`; for compiled programs, at
//! `compiled/mod.rs`.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod analysis;
mod c;
mod code;
mod compiled;
mod error;
mod image;
mod load;
mod names;
mod program;
mod target;
mod types;

pub use analysis::{Analysis, CompiledSizes, MethodAnalysis, Missing, Slot};
pub use c::CSource;
pub use error::Error;
pub use image::{Image, Written};
pub use program::Program;
pub use target::Target;
