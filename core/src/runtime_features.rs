//! Selection of runtime features that are linked: all of them or, with the feature
//! `selected-features`, those that the programs of a firmware image use.
//!
//! Delegates, jumps, external data, lists, dynamic shapes: most programs use few of these features,
//! and an image knows its programs at build time. The code that `torchlet-build` generates defines
//! a constant symbol with the set of used features, as it does for the dtypes of kernels. The
//! runtime checks the set before each feature, and whole-program optimisation (`lto = "fat"`)
//! removes the unused code. Loading a program that needs a removed feature fails.

use core::fmt;

/// A set of runtime features that programs use.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct RuntimeFeatures(u32);

impl RuntimeFeatures {
    /// Only the features that all programs use.
    pub const NONE: Self = RuntimeFeatures(0);
    /// All features.
    pub const ALL: Self = RuntimeFeatures(u32::MAX);
    /// Delegate calls.
    pub const DELEGATES: Self = RuntimeFeatures(1);
    /// Moves and jumps.
    pub const CONTROL: Self = RuntimeFeatures(1 << 1);
    /// External data (`.ptd` files).
    pub const EXTERNAL_DATA: Self = RuntimeFeatures(1 << 2);
    /// Lists of tensors.
    pub const TENSOR_LISTS: Self = RuntimeFeatures(1 << 3);
    /// Lists of numbers and booleans.
    pub const NUMERIC_LISTS: Self = RuntimeFeatures(1 << 4);
    /// Strings.
    pub const STRINGS: Self = RuntimeFeatures(1 << 5);
    /// Dynamic shapes, and scalars that change between runs.
    pub const VARIABLE: Self = RuntimeFeatures(1 << 6);
    /// Outputs that overlap inputs, which are copied or updated in place.
    pub const SHARING: Self = RuntimeFeatures(1 << 7);
    /// Views without planned memory of their own.
    pub const VIEWS: Self = RuntimeFeatures(1 << 8);
    /// Weight packing by kernels.
    pub const PACKING: Self = RuntimeFeatures(1 << 9);
    /// Floating-point scalars.
    pub const FLOAT_SCALARS: Self = RuntimeFeatures(1 << 10);
    /// Methods that use the same memory alternately ([`SharedMemory`](crate::SharedMemory)). A
    /// single file does not show whether this is needed.
    pub const SHARED_MEMORY: Self = RuntimeFeatures(1 << 11);

    /// Unplanned state: mutable tensors with initial data that are not memory-planned.
    pub const UNPLANNED_STATE: Self = RuntimeFeatures(1 << 12);

    /// Bits of the set, for [`from_bits`](Self::from_bits).
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Creates a set from [`bits`](Self::bits).
    pub const fn from_bits(bits: u32) -> Self {
        RuntimeFeatures(bits)
    }

    /// Union of two sets.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        RuntimeFeatures(self.0 | other.0)
    }

    /// Set difference.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        RuntimeFeatures(self.0 & !other.0)
    }

    /// Whether `other` is a subset of this set.
    #[inline(always)]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl fmt::Debug for RuntimeFeatures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RuntimeFeatures({:#x})", self.0)
    }
}

#[cfg(not(feature = "selected-features"))]
#[inline(always)]
fn chosen() -> RuntimeFeatures {
    RuntimeFeatures::ALL
}

#[cfg(all(feature = "selected-features", not(feature = "std")))]
#[allow(unsafe_code)]
mod image {
    unsafe extern "C" {
        // SAFETY: `torchlet-build` defines this symbol, as a static of this type that is never
        // written. Without it, linking fails.
        pub(super) safe static torchlet_features: super::RuntimeFeatures;
    }
}

#[cfg(all(feature = "selected-features", not(feature = "std")))]
#[inline(always)]
fn chosen() -> RuntimeFeatures {
    image::torchlet_features
}

#[cfg(all(feature = "selected-features", feature = "std"))]
mod trial {
    use super::RuntimeFeatures;
    use core::cell::Cell;

    std::thread_local! {
        static USES: Cell<RuntimeFeatures> = const { Cell::new(RuntimeFeatures::ALL) };
    }

    pub(super) fn chosen() -> RuntimeFeatures {
        USES.get()
    }

    /// Restricts this thread to programs that use only these features, as in a firmware image. For
    /// tests on hosts.
    pub fn select_features(uses: RuntimeFeatures) {
        USES.set(uses);
    }
}

#[cfg(all(feature = "selected-features", feature = "std"))]
use trial::chosen;
#[cfg(all(feature = "selected-features", feature = "std"))]
pub use trial::select_features;

/// Error text for programs that need an unlinked feature.
pub(crate) const UNSUPPORTED_BY_IMAGE: &str =
    "not supported by this image; build it for this program (torchlet-build)";

/// Whether the image supports these features.
#[inline(always)]
pub(crate) fn has(uses: RuntimeFeatures) -> bool {
    chosen().has(uses)
}

/// Whether outputs of calls may overlap inputs.
#[inline(always)]
pub(crate) fn may_share() -> bool {
    has(RuntimeFeatures::SHARING) || has(RuntimeFeatures::VIEWS)
}
