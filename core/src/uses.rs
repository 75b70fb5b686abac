//! What programs make use of: anything, or, with the feature `chosen-uses`, what the programs of a
//! firmware image do.
//!
//! A program file can hold more than most programs do: delegates, jumps, external data, lists,
//! shapes that change. An image links what handles that, and its programs, which are known when it
//! is built, have no use for it. There, the code that `torchlet-build` writes defines a constant
//! symbol that says what there is, as it does for the element types of kernels; what handles the
//! rest asks first, and the optimiser, which sees the whole image (`lto = "fat"`), leaves it out. A
//! program that needs what was left out is refused when it is loaded.

use core::fmt;

/// A set of things that programs make use of.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct Uses(u32);

impl Uses {
    /// Nothing but what all programs do.
    pub const NONE: Self = Uses(0);
    /// Everything.
    pub const ALL: Self = Uses(u32::MAX);
    /// Calls of delegates.
    pub const DELEGATES: Self = Uses(1);
    /// Moves, and jumps.
    pub const CONTROL: Self = Uses(1 << 1);
    /// Data outside of the program's file.
    pub const EXTERNAL_DATA: Self = Uses(1 << 2);
    /// Lists of tensors.
    pub const TENSOR_LISTS: Self = Uses(1 << 3);
    /// Lists of numbers and of truth values.
    pub const NUMBER_LISTS: Self = Uses(1 << 4);
    /// Texts.
    pub const TEXTS: Self = Uses(1 << 5);
    /// Shapes and numbers that can differ from run to run.
    pub const VARIABLE: Self = Uses(1 << 6);
    /// Outputs that lie over inputs, which are copied for it or updated in place.
    pub const SHARING: Self = Uses(1 << 7);
    /// Views that have no place of their own.
    pub const VIEWS: Self = Uses(1 << 8);
    /// Weights that kernels pack.
    pub const PACKING: Self = Uses(1 << 9);
    /// Numbers with fractions.
    pub const FRACTIONS: Self = Uses(1 << 10);
    /// Methods that use memory in turn ([`SharedMemory`](crate::SharedMemory)). No file says so: it
    /// takes several methods.
    pub const TURNS: Self = Uses(1 << 11);

    /// State that has initial data and no place in the memory plan.
    pub const UNPLANNED_STATE: Self = Uses(1 << 12);

    /// The set as a number, for [`from_bits`](Self::from_bits).
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The set that [`bits`](Self::bits) gave.
    pub const fn from_bits(bits: u32) -> Self {
        Uses(bits)
    }

    /// What is in both sets, or in one of them.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Uses(self.0 | other.0)
    }

    /// What is in this set and not in the other.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Uses(self.0 & !other.0)
    }

    /// Whether all of the other set is in this one.
    #[inline(always)]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl fmt::Debug for Uses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Uses({:#x})", self.0)
    }
}

#[cfg(not(feature = "chosen-uses"))]
#[inline(always)]
fn chosen() -> Uses {
    Uses::ALL
}

#[cfg(all(feature = "chosen-uses", not(feature = "std")))]
#[allow(unsafe_code)]
mod image {
    unsafe extern "C" {
        // SAFETY: `torchlet-build` defines it, as a static of this type that nothing writes;
        // without it nothing links.
        pub(super) safe static torchlet_uses: super::Uses;
    }
}

#[cfg(all(feature = "chosen-uses", not(feature = "std")))]
#[inline(always)]
fn chosen() -> Uses {
    image::torchlet_uses
}

#[cfg(all(feature = "chosen-uses", feature = "std"))]
mod trial {
    use super::Uses;
    use core::cell::Cell;

    std::thread_local! {
        static USES: Cell<Uses> = const { Cell::new(Uses::ALL) };
    }

    pub(super) fn chosen() -> Uses {
        USES.get()
    }

    /// Lets this thread load and run programs that make use of this alone, as an image does: for
    /// tests on hosts.
    pub fn choose_uses(uses: Uses) {
        USES.set(uses);
    }
}

#[cfg(all(feature = "chosen-uses", feature = "std"))]
pub use trial::choose_uses;
#[cfg(all(feature = "chosen-uses", feature = "std"))]
use trial::chosen;

/// Why a program is refused.
pub(crate) const OUTSIDE: &str =
    "not among what this image was built for; build it with this program (torchlet-build)";

/// Whether programs make use of this.
#[inline(always)]
pub(crate) fn has(uses: Uses) -> bool {
    chosen().has(uses)
}

/// Whether outputs of calls may lie over inputs.
#[inline(always)]
pub(crate) fn may_share() -> bool {
    has(Uses::SHARING) || has(Uses::VIEWS)
}
