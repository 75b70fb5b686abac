//! For build scripts of firmware that runs exported PyTorch programs: looks at a program (`.pte`)
//! and writes down what running it takes, exactly, on the machine that is built for.
//! `torchlet::program!` makes a module of that.
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
//! What is written has the file, aligned for its weights; a table of the kernels that it calls, and
//! no others; the element types that the image's programs have; for each method, how large its
//! arena, planned buffers and scratch memory are, static memory of those sizes, and a function with
//! its inputs and outputs as arrays. All follows from the file: another file, another build, and
//! nothing else to edit. An operator or backend that nobody has fails the build, by name.
//!
//! Several programs in one image are one [`Image`]. What is found can be looked at without a build
//! ([`Analysis`]; `torchlet size`).
//!
//! The crate runs on the host. It knows core and the portable kernels, whose prepare functions say
//! what they take on another machine; it computes nothing itself. Start reading at [`Image`], then
//! at `analysis.rs` and `code.rs`.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod analysis;
mod code;
mod error;
mod image;
mod load;
mod program;
mod target;
mod types;

pub use analysis::{Analysis, MethodAnalysis, Missing, Slot};
pub use error::Error;
pub use image::{Image, Written};
pub use program::Program;
pub use target::Target;
