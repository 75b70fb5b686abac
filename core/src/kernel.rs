//! Kernels: a name, a signature, and a prepare function.
//!
//! A kernel consists of two functions. *Prepare* runs when a method is loaded, and again before an
//! instruction whose shapes or scalars may have changed. It checks dtypes, ranks and layouts, sets
//! the shapes of outputs, requests scratch memory and selects the *invoke* function, which
//! computes.

use crate::call::{Invoke, Prepare};
use crate::dtype::ScalarType;
use crate::error::KernelError;
use crate::param::Param;

/// Computes outputs from inputs. All checks were done by prepare.
pub type InvokeFn = fn(&mut Invoke<'_, '_>) -> Result<(), KernelError>;
/// Packs weights: fills memory with the lifetime of the method from constant arguments.
pub type PackFn = fn(&mut Invoke<'_, '_>, &mut [u8]) -> Result<(), KernelError>;
/// Checks the arguments and selects how to compute.
pub type PrepareFn = fn(&mut Prepare<'_, '_>) -> Result<Plan, KernelError>;

/// Result of preparing a call.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub(crate) invoke: InvokeFn,
    pub(crate) scratch: usize,
    /// Whether the kernel also works with less scratch memory.
    pub(crate) scratch_optional: bool,
    pub(crate) packed: Option<(usize, PackFn)>,
}

impl Plan {
    /// Creates a plan that computes with `invoke`.
    pub const fn new(invoke: InvokeFn) -> Self {
        Plan { invoke, scratch: 0, scratch_optional: false, packed: None }
    }

    /// Requests scratch memory, in bytes.
    #[must_use]
    pub const fn with_scratch(mut self, bytes: usize) -> Self {
        self.scratch = bytes;
        self
    }

    /// Requests up to this many bytes of scratch memory. The kernel is fastest with all of it, and
    /// correct with less. Loading a method reserves the full amount. Later plans, for shapes that
    /// would benefit from more, get the available amount.
    #[must_use]
    pub const fn with_scratch_up_to(mut self, bytes: usize) -> Self {
        self.scratch = bytes;
        self.scratch_optional = true;
        self
    }

    /// Requests memory that `pack` fills once, when the method is loaded. Only valid if the packed
    /// argument [is constant](crate::Arguments::is_constant); later plans for the same instruction
    /// must request the same size.
    #[must_use]
    pub const fn with_packed(mut self, bytes: usize, pack: PackFn) -> Self {
        self.packed = Some((bytes, pack));
        self
    }
}

/// Dtype and dim order that a specialised kernel requires of each tensor argument, in order.
///
/// An empty dim order matches any.
pub type KernelKey = &'static [(ScalarType, &'static [u8])];

/// Memory sharing between an output and an input of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// No sharing.
    None,
    /// The first argument, an output, becomes a view of the second.
    Alias(u8, u8),
    /// The kernel can update the second argument in place if the first, an output, has the same
    /// memory.
    Update(u8, u8),
}

/// How a kernel processes elements. Firmware images use it to link only the code that their dtypes
/// need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Elements {
    /// Computes in the compute type of its tensors' dtypes, or converts them.
    Computed,
    /// Computes in floating point, and converts from or to quantized values.
    Float,
    /// Copies elements, looking only at their size.
    Moved,
    /// Is written for specific dtypes and converts nothing.
    Typed,
}

/// Implementation of an operator.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Kernel {
    /// Operator name with namespace and overload, such as `aten::add.out`.
    pub name: &'static str,
    /// Kinds of the arguments.
    pub params: &'static [Param],
    /// Dtypes and layouts that the kernel is specialised for; `None` for the fallback that handles
    /// all others.
    pub key: Option<KernelKey>,
    /// Prepare function.
    pub prepare: PrepareFn,
    /// How the kernel processes elements.
    pub elements: Elements,
    pub(crate) sharing: Sharing,
}

impl Kernel {
    /// Creates a kernel for all dtypes and layouts.
    pub const fn new(name: &'static str, params: &'static [Param], prepare: PrepareFn) -> Self {
        let elements = Elements::Computed;
        Kernel { name, params, key: None, prepare, elements, sharing: Sharing::None }
    }

    /// Restricts the kernel to these dtypes and layouts.
    #[must_use]
    pub const fn keyed(mut self, key: KernelKey) -> Self {
        self.key = Some(key);
        self
    }

    /// Changes the operator name.
    #[must_use]
    pub const fn renamed(mut self, name: &'static str) -> Self {
        self.name = name;
        self
    }

    /// Declares how the kernel processes elements.
    #[must_use]
    pub const fn with_elements(mut self, elements: Elements) -> Self {
        self.elements = elements;
        self
    }

    /// Declares that output `out` shares the memory of tensor `input`, as in `et_view`. The kernel
    /// cannot write its outputs, only [alias](crate::Invoke::alias) them.
    ///
    /// # Panics
    /// The arguments are not an output and an input of the operator.
    #[must_use]
    pub const fn aliasing(mut self, out: u8, input: u8) -> Self {
        self.check_pair(out, input);
        self.sharing = Sharing::Alias(out, input);
        self
    }

    /// Declares that the kernel can work in place. If the exporter planned output `out` exactly
    /// over tensor `input`, nothing is copied: [`Invoke::is_in_place`](crate::Invoke::is_in_place)
    /// returns true, the output already holds the input's contents, and the input cannot be read
    /// separately. Otherwise the kernel copies the contents itself.
    ///
    /// # Panics
    /// As [`aliasing`](Self::aliasing).
    #[must_use]
    pub const fn updating(mut self, out: u8, input: u8) -> Self {
        self.check_pair(out, input);
        self.sharing = Sharing::Update(out, input);
        self
    }

    /// Panics at compile time, since kernels are constants.
    const fn check_pair(&self, out: u8, input: u8) {
        let (out, input) = (out as usize, input as usize);
        assert!(out < self.params.len() && input < self.params.len());
        #[allow(clippy::indexing_slicing, reason = "asserted above; evaluated at compile time")]
        let (out, input) = (self.params[out], self.params[input]);
        assert!(matches!(out, Param::Out) && matches!(input, Param::Tensor));
    }

    /// The output that is updated in place, and the input that it updates.
    pub(crate) fn in_place(&self) -> Option<(usize, usize)> {
        match self.sharing {
            Sharing::Update(out, input) => Some((out.into(), input.into())),
            _ => None,
        }
    }

    /// The output that becomes a view, and the input that it views.
    pub(crate) fn view(&self) -> Option<(usize, usize)> {
        match self.sharing {
            Sharing::Alias(out, input) => Some((out.into(), input.into())),
            _ => None,
        }
    }
}

/// Whether a name sorts before another one, for tables that are built at compile time.
#[allow(clippy::indexing_slicing, reason = "both indices are below the lengths")]
pub const fn is_less(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut i = 0;
    while i < a.len() && i < b.len() {
        if a[i] != b[i] {
            return a[i] < b[i];
        }
        i += 1;
    }
    a.len() < b.len()
}
