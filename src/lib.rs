//! Runs PyTorch programs that were exported with ExecuTorch (`.pte` files), in pure Rust.
//!
//! This crate is the high-level API: [`Module`] opens a file, methods accept and return [`Tensor`]s
//! and other [`Value`]s.
//!
//! ```
//! use torchlet::{Module, Tensor};
//!
//! let seven = [
//!     "        ",
//!     "  ####  ",
//!     "     #  ",
//!     "    #   ",
//!     "   ###  ",
//!     "   #    ",
//!     "   #    ",
//!     "   #    ",
//! ];
//! let pixels: Vec<f32> =
//!     seven.concat().chars().map(|pixel| if pixel == '#' { 1.0 } else { 0.0 }).collect();
//!
//! let mut module = Module::load("tests/fixtures/digits/digits.pte")?;
//! let image = Tensor::from_slice(&[1, 1, 8, 8], &pixels)?;
//! let outputs = module.forward(&image)?;
//! assert_eq!(outputs[0].tensor()?.argmax()?, Some(7));
//! # Ok::<(), torchlet::Error>(())
//! ```
//!
//! # Firmware
//!
//! The runtime is [`core`] and the CPU kernels are `portable`. Firmware uses these two with
//! `default-features = false`, which disables the heap-based API of this crate. [`program!`] embeds
//! a program in a [firmware] image and allocates all of its memory statically. The low-level API
//! below it is public too; a prepared method reports the memory that it needs:
//!
//! ```
//! use torchlet::core::{
//!     AlignedBytes, ArenaBlock, LoadOptions, MethodMemory, Program, Registry, TensorRef, ValueRef,
//! };
//!
//! // On a board, `include_bytes!` puts the file into flash, and the buffers are statics of the
//! // exact sizes.
//! let file = std::fs::read("tests/fixtures/digits/digits.pte")?;
//! let mut tables = [ArenaBlock::UNINIT; 1 << 10];
//! let mut arena = [ArenaBlock::UNINIT; 4 << 10];
//! let mut scratch = AlignedBytes([0; 256 << 10]);
//! let mut planned = AlignedBytes([0; 16 << 10]);
//!
//! let program = Program::from_bytes(&file)?;
//! // A table that lists only the kernels in use keeps the others out of the image.
//! let registry = Registry::new().with_kernels(&torchlet::portable::KERNELS)?;
//! let tables = ArenaBlock::bytes(&mut tables);
//! let meta = program.method_meta("forward")?;
//! let prepared = meta.prepare(tables, &registry, LoadOptions::default())?;
//! // Exact sizes; nothing is reserved yet.
//! println!("{:?}", prepared.needs());
//! let mut method = prepared.finish(MethodMemory {
//!     arena: ArenaBlock::bytes(&mut arena),
//!     planned: &mut [&mut planned.0],
//!     scratch: &mut scratch.0,
//! })?;
//!
//! let image = TensorRef::from_slice(&[1, 1, 8, 8], &[0.5f32; 64]).ok_or("not 64 elements")?;
//! method.set_input_tensor(0, &image)?;
//! method.execute()?;
//! let ValueRef::Tensor(logits) = method.output(0)? else { return Err("no tensor".into()) };
//! assert_eq!(logits.data::<f32>()?.len(), 10);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Features
//!
//! | feature | default | |
//! |---|---|---|
//! | `std` | yes | [`Module`], [`Tensor`], files, memory maps, threads, run-time SIMD detection |
//! | `portable` | yes | the CPU kernels |
//! | `linalg-special` | yes | kernels of `torch.linalg` and `torch.special`, beyond ExecuTorch's own |
//! | `vulkan` | | any program on GPUs, through Vulkan |
//! | `llm` | | language models: `llm::Runner` over a [`Module`] |
//! | `grammar` | | language model output constrained to a JSON schema |
//! | `sounds` | | decoders for FLAC and MP3, in addition to WAV, for speech models |
//! | `ndarray` | | conversions between [`Tensor`] and `ndarray` arrays |
//! | `lazy` | | `lazy`: PyTorch's operators as methods, compiled before they run |
//! | `safetensors` | | `Module::save_state` and `load_state`, `save_training`, and `lazy::Weights` |
//! | `selected-dtypes` | | firmware links kernels only for the element types that its [`program!`]s use |
//! | `small-mem` | | `memcpy` and related functions in 170 bytes, for Cortex-M3 and up |
//! | `log`, `defmt` | | log lines of the runtime; errors and events through `defmt` |
//!
//! Start reading at [`Module`], then [`Tensor`]. The source file `module/group.rs` explains how a
//! loaded method owns the memory that it borrows from.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(not(feature = "std"), no_std)]

#[doc(no_inline)]
pub use torchlet_core as core;
#[cfg(feature = "std")]
#[doc(no_inline)]
pub use torchlet_graph as graph;
#[cfg(feature = "portable")]
#[doc(no_inline)]
pub use torchlet_portable as portable;

#[cfg(feature = "llm")]
#[doc(no_inline)]
pub use torchlet_llm as llm;

pub use torchlet_core::{
    Bool, DeviceMemory, Element, Limits, Machine, OutputMemory, PointerWidth, ScalarType,
    TensorRef, ValueRef,
};

#[cfg(feature = "std")]
mod buffer;
#[cfg(feature = "std")]
mod devices;
#[cfg(feature = "std")]
mod error;
#[cfg(feature = "std")]
mod files;
pub mod firmware;
#[cfg(feature = "std")]
mod foreign;
#[cfg(feature = "llm")]
mod language;
#[cfg(feature = "lazy")]
pub mod lazy;
#[cfg(feature = "std")]
mod module;
#[cfg(feature = "std")]
mod processor;
#[cfg(feature = "std")]
mod profile;
#[cfg(feature = "std")]
mod tensor;
#[cfg(feature = "std")]
mod threads;
#[cfg(feature = "std")]
pub mod training;
#[cfg(feature = "std")]
mod value;

#[cfg(feature = "std")]
#[allow(unreachable_pub, unused_imports, reason = "not all builds have devices")]
pub use devices::crates::*;
#[cfg(feature = "std")]
pub use devices::{DEVICE_APIS, DEVICE_NAMES, device_backend};
#[cfg(feature = "std")]
pub use error::{Error, TensorError};
#[cfg(feature = "std")]
pub use files::FileAccess;
#[cfg(feature = "std")]
pub use module::{
    BackendOptionValue, Canceller, DEFAULT_MEMORY_LIMIT, MemoryReport, Method, MethodOptions,
    Module, ModuleBuilder, ModuleGroup, StateTensor,
};
#[cfg(feature = "std")]
pub use processor::{Origin, RunOn, UnknownProcessor};
#[cfg(feature = "std")]
pub use profile::{ProfileEntry, ProfileKind, Profiler};
#[cfg(feature = "std")]
pub use tensor::{Comparison, Tensor};
#[cfg(feature = "std")]
pub use torchlet_cache::user_cache_folder;
#[cfg(feature = "std")]
pub use value::{Inputs, Value};

/// Backends of the enabled features. All modules share them, including the devices that they open.
#[cfg(feature = "std")]
#[allow(unused_mut, reason = "not all builds have kernels")]
fn default_backends() -> Vec<std::sync::Arc<dyn torchlet_core::Backend + Send + Sync>> {
    let mut backends = devices::shared_backends().to_vec();
    #[cfg(feature = "portable")]
    {
        use std::sync::{Arc, LazyLock};
        use torchlet_portable::engine::CpuEngine;
        static ENGINE: LazyLock<Arc<CpuEngine>> = LazyLock::new(Arc::default);
        backends.push(ENGINE.clone());
    }
    backends
}

/// Kernel tables of the enabled features.
#[cfg(feature = "std")]
fn default_kernels() -> impl Iterator<Item = &'static [torchlet_core::Kernel]> {
    #[cfg(feature = "portable")]
    let tables = [&torchlet_portable::KERNELS[..]];
    #[cfg(not(feature = "portable"))]
    let tables: [&'static [torchlet_core::Kernel]; 0] = [];
    tables.into_iter()
}

/// Compiles the examples of the book as doctests.
#[cfg(all(doctest, feature = "std", feature = "portable"))]
mod book {
    #[doc = include_str!("../docs/backend.md")]
    struct Backend;
    #[doc = include_str!("../docs/exporting.md")]
    struct Exporting;
    #[doc = include_str!("../docs/first-result.md")]
    struct FirstResult;
    #[cfg(feature = "pt2")]
    #[doc = include_str!("../docs/from-pytorch.md")]
    struct FromPyTorch;
    #[doc = include_str!("../docs/hostile-files.md")]
    struct HostileFiles;
    #[doc = include_str!("../docs/kernel.md")]
    struct Kernel;
    #[cfg(feature = "lazy")]
    #[doc = include_str!("../docs/lazy-tensors.md")]
    struct LazyTensors;
    #[doc = include_str!("../docs/microcontrollers.md")]
    struct Microcontrollers;
    #[doc = include_str!("../docs/performance.md")]
    struct Performance;
    #[doc = include_str!("../docs/porting.md")]
    struct Porting;
    #[doc = include_str!("../docs/processors.md")]
    struct Processors;
    #[doc = include_str!("../docs/profiling.md")]
    struct Profiling;
    #[doc = include_str!("../docs/training.md")]
    struct Training;
}
