//! What a kernel is: a name, a signature, and how to prepare it.
//!
//! A kernel is two functions. *Prepare* runs when a method is loaded, and again before an
//! instruction whose shapes or scalars may have changed: it checks types, ranks and layouts, gives
//! outputs their shapes, says how much scratch memory is needed and chooses the *invoke* function.
//! Invoke then computes.

use crate::call::{Invoke, Prepare};
use crate::dtype::ScalarType;
use crate::error::KernelError;
use crate::value::kind;

/// The kind of one argument of an operator, as in its schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Param {
    /// `Tensor`.
    Tensor,
    /// `Tensor?`.
    OptionalTensor,
    /// `Tensor[]`.
    TensorList,
    /// `Tensor?[]`.
    OptionalTensorList,
    /// `Tensor(a!)`: written. An operator that works in place declares its `self` so.
    Out,
    /// `Tensor(a!)` that exporters reserve for an operator to compute in: its contents mean nothing
    /// before a call and after it, and no kernel sees it, as kernels ask for [scratch
    /// memory](Plan::with_scratch).
    Scratch,
    /// `Tensor(a!)[]`: all written.
    OutList,
    /// `int`, `SymInt`, and the enumerations that are stored as integers (`ScalarType`,
    /// `MemoryFormat`).
    Int,
    /// `int?`.
    OptionalInt,
    /// `int[]`. Where a single integer stands in the file, it is a list of one.
    IntList,
    /// `int[]?`.
    OptionalIntList,
    /// `float`; an integer is accepted.
    Float,
    /// `float?`.
    OptionalFloat,
    /// `float[]?`.
    OptionalFloatList,
    /// `bool`.
    Bool,
    /// `bool?`.
    OptionalBool,
    /// `bool[]`.
    BoolList,
    /// `Scalar`: an integer, float or bool.
    Scalar,
    /// `Scalar?`.
    OptionalScalar,
    /// `str`.
    String,
    /// `str?`.
    OptionalString,
    /// A number or truth value that is written, as by the `executorch_prim` operators.
    OutScalar,
}

impl Param {
    /// The kind's name, for error messages.
    pub fn name(self) -> &'static str {
        match self {
            Param::Tensor | Param::Out | Param::Scratch => "tensor",
            Param::OptionalTensor => "tensor or None",
            Param::TensorList | Param::OutList => "tensor list",
            Param::OptionalTensorList => "optional tensor list",
            Param::Int => "int",
            Param::OptionalInt => "int or None",
            Param::IntList => "int list",
            Param::OptionalIntList => "int list or None",
            Param::Float => "float",
            Param::OptionalFloat => "float or None",
            Param::OptionalFloatList => "float list or None",
            Param::Bool => "bool",
            Param::OptionalBool => "bool or None",
            Param::BoolList => "bool list",
            Param::Scalar | Param::OutScalar => "number",
            Param::OptionalScalar => "number or None",
            Param::String => "string",
            Param::OptionalString => "string or None",
        }
    }

    /// The kinds of value that fit: several [kinds](kind) in one.
    pub(crate) const fn kinds(self) -> u16 {
        const NUMBER: u16 = kind::INT | kind::BOOL | kind::DOUBLE;
        match self {
            Param::Tensor | Param::Out | Param::Scratch => kind::TENSOR,
            Param::OptionalTensor => kind::TENSOR | kind::NONE,
            Param::TensorList | Param::OutList => kind::TENSOR_LIST,
            Param::OptionalTensorList => kind::TENSOR_LIST | kind::OPTIONAL_TENSOR_LIST,
            Param::Int | Param::Bool => kind::INT | kind::BOOL,
            Param::OptionalInt | Param::OptionalBool => kind::INT | kind::BOOL | kind::NONE,
            Param::IntList => kind::INT_LIST | kind::INT,
            Param::OptionalIntList => kind::INT_LIST | kind::INT | kind::NONE,
            Param::Float => kind::DOUBLE | kind::INT,
            Param::OptionalFloat => kind::DOUBLE | kind::INT | kind::NONE,
            Param::OptionalFloatList => kind::DOUBLE_LIST | kind::NONE,
            Param::BoolList => kind::BOOL_LIST,
            Param::Scalar => NUMBER,
            // A number that is written may not be there yet, if a jump skipped what writes it
            // first.
            Param::OptionalScalar | Param::OutScalar => NUMBER | kind::NONE,
            Param::String => kind::STRING,
            Param::OptionalString => kind::STRING | kind::NONE,
        }
    }

    /// Whether the argument is written.
    pub fn is_out(self) -> bool {
        matches!(self, Param::Out | Param::OutList | Param::OutScalar)
    }
}

/// Computes: all checks are done, what remains is to read inputs and write outputs.
pub type InvokeFn = fn(&mut Invoke<'_, '_>) -> Result<(), KernelError>;
/// Fills memory that lives as long as the method, from constant arguments: packs weights.
pub type PackFn = fn(&mut Invoke<'_, '_>, &mut [u8]) -> Result<(), KernelError>;
/// Checks the arguments and decides how to compute.
pub type PrepareFn = fn(&mut Prepare<'_, '_>) -> Result<Plan, KernelError>;

/// What prepare decided.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub(crate) invoke: InvokeFn,
    pub(crate) scratch: usize,
    /// Whether less scratch memory will do.
    pub(crate) scratch_optional: bool,
    pub(crate) packed: Option<(usize, PackFn)>,
}

impl Plan {
    /// Compute with this function.
    pub const fn new(invoke: InvokeFn) -> Self {
        Plan { invoke, scratch: 0, scratch_optional: false, packed: None }
    }

    /// The function needs this many bytes of scratch memory.
    #[must_use]
    pub const fn with_scratch(mut self, bytes: usize) -> Self {
        self.scratch = bytes;
        self
    }

    /// The function is at its best with this many bytes of scratch memory, and right with fewer. A
    /// method is loaded with as much; a plan made later, for shapes that happen to want more, is
    /// content with what there is.
    #[must_use]
    pub const fn with_scratch_up_to(mut self, bytes: usize) -> Self {
        self.scratch = bytes;
        self.scratch_optional = true;
        self
    }

    /// The function needs this many bytes that `pack` fills once, when the method is loaded. Ask
    /// for it only if what is packed [is constant](crate::Arguments::is_constant); plans made later
    /// for the same instruction must ask for the same.
    #[must_use]
    pub const fn with_packed(mut self, bytes: usize, pack: PackFn) -> Self {
        self.packed = Some((bytes, pack));
        self
    }
}

/// Element type and dim order that a specialised kernel takes for each of its tensor arguments, in
/// order.
///
/// An empty dim order means any.
pub type KernelKey = &'static [(ScalarType, &'static [u8])];

/// What a kernel does to the memory of an output beyond writing it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// Nothing.
    None,
    /// It makes the first argument, an output, share the memory of the second.
    Alias(u8, u8),
    /// It can update the second argument where it lies, if the first, an output, lies there.
    Update(u8, u8),
}

/// What a kernel does with elements, so that an image links no more than that for each of their
/// types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Elements {
    /// It computes in the type that goes with those of its tensors, or converts them.
    Computed,
    /// It computes in floating-point numbers, to or from which it converts codes.
    Fractions,
    /// It moves them, and looks at their size alone.
    Moved,
    /// It is made for the types that it takes, and converts nothing.
    Typed,
}

/// An operator's implementation.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Kernel {
    /// The operator's name with namespace and overload, such as `aten::add.out`.
    pub name: &'static str,
    /// Its arguments.
    pub params: &'static [Param],
    /// Only for these types and layouts; `None` for a kernel that serves all that no other is keyed
    /// for.
    pub key: Option<KernelKey>,
    /// How to prepare it.
    pub prepare: PrepareFn,
    /// What it does with elements.
    pub elements: Elements,
    pub(crate) sharing: Sharing,
}

impl Kernel {
    /// A kernel for all types and layouts.
    pub const fn new(name: &'static str, params: &'static [Param], prepare: PrepareFn) -> Self {
        let elements = Elements::Computed;
        Kernel { name, params, key: None, prepare, elements, sharing: Sharing::None }
    }

    /// The same, for these types and layouts only.
    #[must_use]
    pub const fn keyed(mut self, key: KernelKey) -> Self {
        self.key = Some(key);
        self
    }

    /// The same under another name.
    #[must_use]
    pub const fn renamed(mut self, name: &'static str) -> Self {
        self.name = name;
        self
    }

    /// The same, declared to do this with elements.
    #[must_use]
    pub const fn with_elements(mut self, elements: Elements) -> Self {
        self.elements = elements;
        self
    }

    /// The same, declared to make output `out` share the memory of tensor `input`, as `et_view`
    /// does. It cannot write its outputs, only [alias](crate::Invoke::alias) them.
    ///
    /// # Panics
    /// The arguments are not an output and an input of the operator.
    #[must_use]
    pub const fn aliasing(mut self, out: u8, input: u8) -> Self {
        self.check_pair(out, input);
        self.sharing = Sharing::Alias(out, input);
        self
    }

    /// The same, declared to work in place: where exporters put output `out` exactly over tensor
    /// `input`, nothing is copied, [`Invoke::is_in_place`](crate::Invoke::is_in_place) holds, the
    /// output has the input's contents already and the input cannot be read apart. Where not, the
    /// kernel copies them itself.
    ///
    /// # Panics
    /// As [`aliasing`](Self::aliasing).
    #[must_use]
    pub const fn updating(mut self, out: u8, input: u8) -> Self {
        self.check_pair(out, input);
        self.sharing = Sharing::Update(out, input);
        self
    }

    /// Fails when the kernel is declared, since kernels are constants.
    const fn check_pair(&self, out: u8, input: u8) {
        let (out, input) = (out as usize, input as usize);
        assert!(out < self.params.len() && input < self.params.len());
        #[allow(clippy::indexing_slicing, reason = "asserted above, for a constant")]
        let (out, input) = (self.params[out], self.params[input]);
        assert!(matches!(out, Param::Out) && matches!(input, Param::Tensor));
    }

    /// The output that updates an input in place, and that input.
    pub(crate) fn in_place(&self) -> Option<(usize, usize)> {
        match self.sharing {
            Sharing::Update(out, input) => Some((out.into(), input.into())),
            _ => None,
        }
    }

    /// The output that becomes a view, and what it is a view of.
    pub(crate) fn view(&self) -> Option<(usize, usize)> {
        match self.sharing {
            Sharing::Alias(out, input) => Some((out.into(), input.into())),
            _ => None,
        }
    }
}
