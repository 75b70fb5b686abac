//! The machine that a method is prepared for.

/// The width of pointers on a machine, which decides how large a method's tables are there.
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
    /// That of the machine that this is compiled for.
    pub const HERE: Self =
        if cfg!(target_pointer_width = "64") { PointerWidth::Bits64 } else { PointerWidth::Bits32 };
}

/// The machine that a method is [prepared](crate::MethodMeta::prepare) for: what a kernel packs and
/// how much scratch memory it asks for depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Machine {
    /// This one, with the instructions that it has.
    #[default]
    Here,
    /// Another (with the feature `std`: hosts ask), with pointers of this width and kernels that
    /// use no vector instructions: a microcontroller, say. A method that is prepared for it tells
    /// what it needs there, and cannot be [finished](crate::Prepared::finish).
    #[cfg(feature = "std")]
    Scalar(PointerWidth),
}

impl Machine {
    /// The width of its pointers.
    pub fn pointer_width(self) -> PointerWidth {
        match self {
            Machine::Here => PointerWidth::HERE,
            #[cfg(feature = "std")]
            Machine::Scalar(width) => width,
        }
    }
}
