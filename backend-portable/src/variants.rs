//! Algorithm variants ("paths") that kernels choose by shapes and arguments. With the feature
//! `selected-dtypes`, a firmware image only contains the paths that its programs use.
//!
//! The prepare function of a kernel [requests](take) a path before it selects it. On hosts,
//! requests are recorded for `torchlet-build`, which prepares the programs of an image as the image
//! will. In the image, requesting a path that no program uses is an error. Code guarded by [`has`]
//! is removed if the path is not used, like the code of unused [types](crate::types).

use torchlet_core::KernelError;

/// A set of paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct Variants(u32);

impl Variants {
    /// The empty set.
    pub const NONE: Self = Variants(0);
    /// The set of all paths.
    pub const ALL: Self = Variants(u32::MAX);
    /// Convolution of any layout, element by element.
    pub(crate) const PLAIN_CONVOLUTION: Self = Variants(1);
    /// Direct convolution, in loops over groups of channels.
    pub(crate) const DIRECT_CONVOLUTION: Self = Variants(1 << 1);
    /// Convolution as matrix multiplication.
    pub(crate) const GEMM_CONVOLUTION: Self = Variants(1 << 2);
    /// Average pooling.
    pub(crate) const AVERAGE_POOLING: Self = Variants(1 << 3);
    /// Max pooling.
    pub(crate) const MAX_POOLING: Self = Variants(1 << 4);
    /// Adaptive pooling.
    pub(crate) const ADAPTIVE_POOLING: Self = Variants(1 << 5);

    /// Copies of int8 tensors to the memory order of the kernels.
    pub(crate) const REORDERED_COPY: Self = Variants(1 << 6);

    /// Converts the set to bits, for [`from_bits`](Self::from_bits).
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Restores a set from its [`bits`](Self::bits).
    pub const fn from_bits(bits: u32) -> Self {
        Variants(bits)
    }

    /// The union of both sets.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Variants(self.0 | other.0)
    }

    /// Whether this set contains all of `other`.
    #[inline(always)]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

#[cfg(all(feature = "selected-dtypes", not(feature = "std")))]
#[allow(unsafe_code)]
mod image {
    unsafe extern "C" {
        // SAFETY: `torchlet-build` defines this symbol as a static of this type that is never
        // written. Without the definition, the image does not link.
        pub(super) safe static torchlet_variants: super::Variants;
    }
}

/// Whether kernels may use this path.
#[inline(always)]
pub(crate) fn has(variant: Variants) -> bool {
    #[cfg(all(feature = "selected-dtypes", not(feature = "std")))]
    return image::torchlet_variants.has(variant);
    #[cfg(all(feature = "selected-dtypes", feature = "std"))]
    return trial::chosen().has(variant);
    #[cfg(not(feature = "selected-dtypes"))]
    return Variants::ALL.has(variant);
}

/// Requests a path while a call is prepared.
///
/// # Errors
/// If no program of the image uses the path.
#[inline(always)]
pub(crate) fn require(variant: Variants) -> Result<(), KernelError> {
    #[cfg(feature = "std")]
    record::note(variant);
    if has(variant) {
        return Ok(());
    }
    Err(KernelError::unsupported(
        "an algorithm that this image omits; rebuild it with this program (torchlet-build)",
    ))
}

#[cfg(feature = "std")]
mod record {
    use super::Variants;
    use core::cell::Cell;

    std::thread_local! {
        static REQUESTED: Cell<Variants> = const { Cell::new(Variants::NONE) };
    }

    pub(super) fn note(variant: Variants) {
        REQUESTED.set(REQUESTED.get().union(variant));
    }

    /// Runs `prepare` and returns the paths that kernels of this thread requested meanwhile.
    pub fn record_variants<T>(prepare: impl FnOnce() -> T) -> (T, Variants) {
        let before = REQUESTED.replace(Variants::NONE);
        let prepared = prepare();
        let requested = REQUESTED.replace(before);
        (prepared, requested)
    }
}
#[cfg(feature = "std")]
pub use record::record_variants;

#[cfg(all(feature = "selected-dtypes", feature = "std"))]
mod trial {
    use super::Variants;
    use core::cell::Cell;

    std::thread_local! {
        static PATHS: Cell<Variants> = const { Cell::new(Variants::ALL) };
    }

    pub(super) fn chosen() -> Variants {
        PATHS.get()
    }

    /// Restricts the kernels that this thread prepares to these paths, as in an image; for tests on
    /// hosts.
    pub fn select_variants(paths: Variants) {
        PATHS.set(paths);
    }
}
#[cfg(all(feature = "selected-dtypes", feature = "std"))]
pub use trial::select_variants;
