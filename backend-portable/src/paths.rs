//! Ways to compute among which kernels choose by shapes and arguments: all of them, or, with the
//! feature `chosen-types`, those that the programs of a firmware image take.
//!
//! A kernel's prepare function [takes](take) a path before it decides for it. On hosts that is
//! noted, for `torchlet-build`, which prepares the programs of an image as the image will; in the
//! image, a path that none of them took is an error there, and the code that asks whether [there
//! is](has) such a path is left out, as with the [types](crate::types).

use torchlet_core::KernelError;

/// A set of paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct Paths(u32);

impl Paths {
    /// None.
    pub const NONE: Self = Paths(0);
    /// All.
    pub const ALL: Self = Paths(u32::MAX);
    /// Convolutions of any layout, element by element.
    pub(crate) const PLAIN_CONVOLUTION: Self = Paths(1);
    /// Convolutions in plain loops, by groups of channels.
    pub(crate) const DIRECT_CONVOLUTION: Self = Paths(1 << 1);
    /// Convolutions as products of matrices.
    pub(crate) const PRODUCT_CONVOLUTION: Self = Paths(1 << 2);
    /// Averages of windows.
    pub(crate) const AVERAGES: Self = Paths(1 << 3);
    /// The largest of windows.
    pub(crate) const LARGEST: Self = Paths(1 << 4);
    /// Windows that are spread over the input.
    pub(crate) const ADAPTIVE: Self = Paths(1 << 5);

    /// Copies of int8 tensors to the memory order of the kernels.
    pub(crate) const REORDERED: Self = Paths(1 << 6);

    /// The set as a number, for [`from_bits`](Self::from_bits).
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The set that [`bits`](Self::bits) gave.
    pub const fn from_bits(bits: u32) -> Self {
        Paths(bits)
    }

    /// What is in either set.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Paths(self.0 | other.0)
    }

    /// Whether all of the other set is in this one.
    #[inline(always)]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

#[cfg(all(feature = "chosen-types", not(feature = "std")))]
#[allow(unsafe_code)]
mod image {
    unsafe extern "C" {
        // SAFETY: `torchlet-build` defines it, as a static of this type that nothing writes;
        // without it nothing links.
        pub(super) safe static torchlet_paths: super::Paths;
    }
}

/// Whether kernels may take this path.
#[inline(always)]
pub(crate) fn has(path: Paths) -> bool {
    #[cfg(all(feature = "chosen-types", not(feature = "std")))]
    return image::torchlet_paths.has(path);
    #[cfg(all(feature = "chosen-types", feature = "std"))]
    return trial::chosen().has(path);
    #[cfg(not(feature = "chosen-types"))]
    return Paths::ALL.has(path);
}

/// Decides for a path, when a call is prepared.
///
/// # Errors
/// No program of the image takes it.
#[inline(always)]
pub(crate) fn take(path: Paths) -> Result<(), KernelError> {
    #[cfg(feature = "std")]
    record::note(path);
    if has(path) {
        return Ok(());
    }
    Err(KernelError::unsupported(
        "a way to compute that this image was built without; build it with this program (torchlet-build)",
    ))
}

#[cfg(feature = "std")]
mod record {
    use super::Paths;
    use core::cell::Cell;

    std::thread_local! {
        static TAKEN: Cell<Paths> = const { Cell::new(Paths::NONE) };
    }

    pub(super) fn note(path: Paths) {
        TAKEN.set(TAKEN.get().and(path));
    }

    /// Prepares something, and gives the paths that kernels of this thread took meanwhile.
    pub fn record_paths<T>(prepare: impl FnOnce() -> T) -> (T, Paths) {
        let before = TAKEN.replace(Paths::NONE);
        let prepared = prepare();
        let taken = TAKEN.replace(before);
        (prepared, taken)
    }
}
#[cfg(feature = "std")]
pub use record::record_paths;

#[cfg(all(feature = "chosen-types", feature = "std"))]
mod trial {
    use super::Paths;
    use core::cell::Cell;

    std::thread_local! {
        static PATHS: Cell<Paths> = const { Cell::new(Paths::ALL) };
    }

    pub(super) fn chosen() -> Paths {
        PATHS.get()
    }

    /// Lets kernels that this thread prepares take these paths alone, as those of an image do: for
    /// tests on hosts.
    pub fn choose_paths(paths: Paths) {
        PATHS.set(paths);
    }
}
#[cfg(all(feature = "chosen-types", feature = "std"))]
pub use trial::choose_paths;
