//! CPU kernels: the operators of ExecuTorch's portable library, with PyTorch's semantics, in
//! portable Rust. The feature `linalg-special` adds those of `torch.linalg` and `torch.special`.
//!
//! The same source runs on a microcontroller (`no_std`, no heap, one thread, scalar code) and, with
//! feature `std`, on servers (threads through [`torchlet_core::Parallel`], SIMD chosen at run
//! time). The crate is independent of files and methods.
//!
//! Every operator is a constant, such as [`elementwise::arithmetic::ADD_OUT`]; [`KERNELS`] is the
//! sorted table of all. A firmware image lists the operators that it uses in its own table, and the
//! linker drops the rest. Start reading at `elementwise/mod.rs`; `RECIPE.md` explains how to add an
//! operator.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(not(test), no_std)]

#[cfg(any(test, feature = "std"))]
extern crate std;

pub mod attention;
pub mod compiled;
pub mod compute;
pub mod copies;
pub mod creation;
pub mod elementwise;
#[cfg(feature = "engine")]
pub mod engine;
#[cfg(feature = "linalg-special")]
pub mod factor;
pub mod index;
pub mod linear;
mod lines;
mod machine;
mod map;
pub mod normalize;
mod number;
/// Threading interface of the engine in [`compute`].
mod parallel {
    pub(crate) use torchlet_core::Parallel;
}
pub mod prims;
pub mod quantized;
mod real;
pub mod reduce;
mod scratch;
pub mod shape;
pub mod sort;
pub mod spatial;
#[cfg(feature = "linalg-special")]
mod special;
pub mod spectral;
mod table;
pub mod tosa;
mod types;
mod variants;
mod walk;

#[cfg(feature = "std")]
pub use compute::threads::ThreadPool;

pub use types::Types;
#[cfg(all(feature = "selected-dtypes", feature = "std"))]
pub use types::choose as select_dtypes;
pub use variants::Variants;
#[cfg(feature = "std")]
pub use variants::record_variants;
#[cfg(all(feature = "selected-dtypes", feature = "std"))]
pub use variants::select_variants;

use torchlet_core::Kernel;

/// Kernels by operator family. A new operator goes into the list of its family.
const FAMILIES: &[&[Kernel]] = &[
    attention::ATTENTION,
    attention::CACHES,
    attention::RECURRENCES,
    attention::SLOTS,
    copies::KERNELS,
    creation::KERNELS,
    creation::drawn::DRAWN,
    creation::multinomial::MULTINOMIAL,
    creation::normal::NORMAL,
    creation::random::KERNELS,
    prims::KERNELS,
    elementwise::activation::KERNELS,
    elementwise::arithmetic::KERNELS,
    elementwise::bitwise::KERNELS,
    elementwise::choice::KERNELS,
    elementwise::comparison::KERNELS,
    elementwise::complex::KERNELS,
    elementwise::division::KERNELS,
    elementwise::elementary::KERNELS,
    elementwise::logic::KERNELS,
    elementwise::next::KERNELS,
    elementwise::power::KERNELS,
    elementwise::rounding::KERNELS,
    elementwise::exponent::KERNELS,
    reduce::distances::KERNELS,
    reduce::distances_backward::KERNELS,
    reduce::histogramdd::BINS,
    reduce::bincount::KERNELS,
    reduce::bin_edges::KERNELS,
    reduce::histogram::KERNELS,
    reduce::scans::KERNELS,
    reduce::segments::KERNELS,
    reduce::sums::KERNELS,
    reduce::min_max::KERNELS,
    shape::VIEWS,
    linear::ADDBMM,
    linear::EXPERTS,
    linear::HADAMARD,
    linear::PRODUCTS,
    linear::TRILINEAR,
    linear::WHOLE,
    spatial::BACKWARD,
    spatial::COLUMNS,
    spatial::CONVOLUTION,
    spatial::FRACTIONAL,
    spatial::GRID,
    spatial::GRID_BACKWARD,
    spatial::POOLING,
    spatial::PADDING_BACKWARD,
    spatial::POOLING_BACKWARD,
    spatial::RESAMPLING,
    spatial::RESAMPLING_BACKWARD,
    spectral::FOURIER,
    shape::PADDING,
    shape::JOINING,
    shape::BLOCKS,
    normalize::backward::KERNELS,
    normalize::batch::KERNELS,
    normalize::group::KERNELS,
    normalize::layer::KERNELS,
    normalize::softmax::KERNELS,
    index::READING,
    index::ADVANCED,
    index::WRITING,
    index::REDUCING,
    index::MASKED,
    index::BAGS,
    index::GRADIENTS,
    sort::distinct::KERNELS,
    sort::order::KERNELS,
    sort::search::KERNELS,
    sort::select::KERNELS,
    sort::unique::KERNELS,
    quantized::AFFINE,
    quantized::FAKE,
    quantized::PARAMETERS,
    quantized::WEIGHTS,
    quantized::cortex_m::ELEMENTWISE,
    quantized::cortex_m::LINEAR,
    quantized::cortex_m::CONVOLUTION,
    quantized::cortex_m::POOLING,
    tosa::CONVOLUTION,
    tosa::ELEMENTWISE,
    tosa::POOLING,
    tosa::PRODUCT,
    tosa::RESCALING,
    tosa::RESIZING,
];

/// Kernels of the feature `linalg-special`: `torch.linalg` and `torch.special`, beyond ExecuTorch's
/// own libraries.
#[cfg(feature = "linalg-special")]
pub const LINALG_SPECIAL: &[&[Kernel]] = &[
    elementwise::polynomial::KERNELS,
    elementwise::special::KERNELS,
    factor::KNOWN,
    factor::EIGEN,
    factor::INDEFINITE,
    factor::LU,
    factor::TRIANGULAR,
    factor::ORTHOGONAL,
    factor::PSEUDO,
    factor::EXPONENTIAL,
    factor::SYMMETRIC,
];
#[cfg(not(feature = "linalg-special"))]
const LINALG_SPECIAL: &[&[Kernel]] = &[];

const ALL: &[&[&[Kernel]]] = &[FAMILIES, LINALG_SPECIAL];

/// Feature with more kernels that this build lacks, for error messages.
pub const OMITTED_FEATURE: Option<&str> =
    if cfg!(feature = "linalg-special") { None } else { Some("linalg-special") };

/// All kernels, sorted by name, for
/// [`Registry::with_kernels`](torchlet_core::Registry::with_kernels).
pub static KERNELS: [Kernel; table::count(ALL)] = table::sorted(ALL);

/// Returns the kernel named `name`, for tables of firmware images. When evaluated in a constant, it
/// links no other kernel.
///
/// ```
/// use torchlet_core::Kernel;
/// static KERNELS: [Kernel; 1] = [torchlet_portable::kernel("aten::relu.out")];
/// # assert_eq!(KERNELS[0].name, "aten::relu.out");
/// ```
///
/// # Panics
/// If no kernel has this name. In a constant, this is a compile-time error.
pub const fn kernel(name: &str) -> Kernel {
    table::named(ALL, name)
}
