//! Target machine that a method is prepared for.

/// Pointer width of a machine, which determines the size of a method's tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum PointerWidth {
    /// Microcontrollers: Cortex-M, RV32.
    Bits32,
    /// Servers, laptops, phones.
    Bits64,
}

impl PointerWidth {
    /// Pointer width of the compilation target.
    pub const TARGET: Self =
        if cfg!(target_pointer_width = "64") { PointerWidth::Bits64 } else { PointerWidth::Bits32 };
}

/// Target machine that a method is [prepared](crate::MethodMeta::prepare) for. Packed weights and
/// scratch memory of kernels depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Machine {
    /// This machine, with its instruction set.
    #[default]
    Here,
    /// Another machine, with this pointer width and scalar kernels only (no SIMD), such as a
    /// microcontroller. A method that is prepared for it reports the memory needs there and cannot
    /// be [finished](crate::Prepared::finish). Only with the feature `std`, since hosts use it.
    #[cfg(feature = "std")]
    Scalar(PointerWidth),
}

impl Machine {
    /// Pointer width of the machine.
    pub fn pointer_width(self) -> PointerWidth {
        match self {
            Machine::Here => PointerWidth::TARGET,
            #[cfg(feature = "std")]
            Machine::Scalar(width) => width,
        }
    }
}
