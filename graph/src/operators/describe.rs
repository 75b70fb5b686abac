//! The form of an operator's description, and the macro in which a family's descriptions are
//! written.
//!
//! An entry reads like a line of PyTorch's `native_functions.yaml`:
//!
//! ```text
//! GELU(GeluArgs { input: Tensor, approximate: Str = "none" }) = aten::gelu.default <- out
//!     { cost: Cost::Function, shape: Shape::Same };
//! ```
//!
//! - The constant, [`Operator::GELU`](super::Operator::GELU).
//! - The schema of the functional form: names, kinds and defaults of its parameters. With a name in
//!   front of it, it is also a structure of named arguments. Further operators with the same schema
//!   give that name alone; `(..)` stands for arguments that depend on what was fused. The tensor
//!   that PyTorch calls `self`, a keyword of Rust, is `input`.
//! - The name of the functional form, `namespace::name.overload`, or a string if it has another
//!   form.
//! - Behind `<-`, the form that instructions call: its overload, or a string. `without 1..5` are
//!   the parameters that this form lacks, because its output has them: dtype, device and so on.
//! - The [`Traits`] that differ from [`Traits::DEFAULT`].

use super::ValueId;
use crate::error::Error;
use alloc::format;
use alloc::string::String;

/// Description of an operator.
#[derive(Clone, Copy)]
pub(super) struct Description {
    /// The name of the functional form.
    pub(super) name: &'static str,
    /// The form that instructions call, with the outputs behind the inputs.
    pub(super) instruction: Option<&'static str>,
    /// First and end of the parameters that the form of instructions lacks.
    pub(super) lacking: (u8, u8),
    /// The structure of named arguments, by the number of the operator that declares it.
    pub(super) arguments: u16,
    /// Everything else that passes, targets and the cost model ask.
    pub(super) traits: Traits,
}

impl Description {
    pub(super) const EMPTY: Self = Description {
        name: "",
        instruction: None,
        lacking: (0, 0),
        arguments: u16::MAX,
        traits: Traits::DEFAULT,
    };
}

/// Properties of an operator that passes, targets and the cost model read.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Traits {
    /// The arguments that a call may write: calls before and after it see different contents.
    pub writes: ArgumentSet,
    /// Whether a call stops a run that violates an assertion.
    pub(crate) checks: bool,
    /// Whether two calls with the same arguments may give different results.
    pub is_random: bool,
    /// Whether the shape of the output depends on the elements of the inputs.
    pub data_dependent: DataDependent,
    /// How an instruction lists its outputs.
    pub(crate) outputs: Outputs,
    /// The parameter of the functional form that sets the memory layout of the output.
    pub(crate) layout: MemoryLayout,
    /// The parameter that allows a copy to be incomplete when the call returns.
    pub(crate) non_blocking: Option<u8>,
    /// Whether the output has the elements of the first argument in the same order, perhaps in
    /// another shape or dtype.
    pub is_view: bool,
    /// Whether each element of the output is an element of the first argument, or of the tensors in
    /// that list, or padding. Kernels support that for elements of any dtype.
    pub moves_elements: bool,
    /// Whether the output is the first argument with some of its elements replaced: kernels do not
    /// copy the others if the output lies there.
    pub(crate) updates_input: bool,
    /// The tensor arguments of an element-wise call that stands between layers of networks: an
    /// element of the output depends on the elements at the same index, whatever the memory order.
    pub elementwise: ArgumentSet,
    /// Whether the output is a function of each element, and of arguments that are not tensors.
    pub(crate) is_unary_function: bool,
    /// How many of the first arguments may be 16-bit floats if the output is one: the operator
    /// computes in `f32` in any case, and rounds once.
    pub(crate) narrow_inputs: u8,
    /// The argument with weights, if the operator has weights in trained networks.
    pub weights: Option<u8>,
    /// Whether the call transforms its weights when a program is loaded, in delegates of
    /// ExecuTorch's Vulkan backend.
    pub(crate) prepacks_weights: bool,
    /// How the arithmetic follows from the shapes.
    pub(crate) cost: Cost,
    /// Whether constant folding runs it. See [`Traits::is_foldable`].
    pub(crate) folds: bool,
    /// The shape of the output, where passes check it.
    pub(crate) shape: Shape,
    /// The interval of the output's elements, for integers.
    pub(crate) range: Range,
    /// The arguments that may be clamped to 32 bits.
    pub(crate) saturation: Saturation,
    /// Whether the number that a call gives is an integer.
    pub(crate) integers: Integers,
    /// Whether graphs follow the integer that a call gives.
    pub(crate) is_symbolic: bool,
    /// The rule for an added leading dim.
    pub batching: Batching,
}

impl Traits {
    /// The traits that most operators have.
    pub const DEFAULT: Traits = Traits {
        writes: ArgumentSet::of(&[]),
        checks: false,
        is_random: false,
        data_dependent: DataDependent::Never,
        outputs: Outputs::Each,
        layout: MemoryLayout::Any,
        non_blocking: None,
        is_view: false,
        moves_elements: false,
        updates_input: false,
        elementwise: ArgumentSet::of(&[]),
        is_unary_function: false,
        narrow_inputs: 0,
        weights: None,
        prepacks_weights: false,
        cost: Cost::Other,
        folds: true,
        shape: Shape::Unchecked,
        range: Range::Unknown,
        saturation: Saturation::Never,
        integers: Integers::Unknown,
        is_symbolic: false,
        batching: Batching::Unspecified,
    };

    /// Whether a call writes to its arguments: calls cannot move past it.
    pub fn writes_arguments(&self) -> bool {
        !self.writes.is_empty()
    }

    /// Whether a call has to stay even if its output is not used: it writes, or it stops runs.
    pub fn has_effect(&self) -> bool {
        self.checks || self.writes_arguments()
    }

    /// Whether elements are multiplied and summed over a dim: where most of the time of a network
    /// goes.
    pub fn is_contraction(&self) -> bool {
        matches!(self.cost, Cost::Gemm(_) | Cost::Convolution | Cost::Attention { .. })
    }

    /// Whether constant folding runs it: it takes about as many steps as it has elements, and gives
    /// the same each time.
    pub(crate) fn is_foldable(&self) -> bool {
        self.folds
            && !self.writes_arguments()
            && !self.is_random
            && !self.is_contraction()
            && self.data_dependent != DataDependent::Always
    }
}

/// Set of argument positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArgumentSet(u16);

impl ArgumentSet {
    /// All arguments: no operator with this set has more than 16.
    pub const ALL: Self = ArgumentSet(u16::MAX);

    /// The set of these positions.
    pub const fn of(positions: &[u8]) -> Self {
        let (mut set, mut at) = (0, 0);
        while at < positions.len() {
            set |= 1 << positions[at];
            at += 1;
        }
        ArgumentSet(set)
    }

    /// Whether it has no positions.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether it has a position.
    pub fn contains(self, position: usize) -> bool {
        position < 16 && self.0 >> position & 1 == 1
    }

    /// The positions, in order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..16).filter(move |position| self.contains(*position))
    }
}

/// Whether the shape of an output depends on the elements of the inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataDependent {
    /// It depends on the shapes of the inputs.
    Never,
    /// It depends on elements. An integer that is read from a tensor counts as well, since shapes
    /// are computed from it.
    Always,
    /// It depends on elements if there is a mask in the list that is the second argument.
    Masks,
}

/// How an instruction lists its outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outputs {
    /// Each is an argument.
    Each,
    /// They are one argument, a list.
    List,
    /// The first argument is written in place, and is the output.
    InPlace,
}

/// The parameter that sets the memory layout of an output, by its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemoryLayout {
    /// No parameter does.
    Any,
    /// A list of dims, from the outermost on.
    DimOrder(u8),
    /// A memory format of PyTorch.
    MemoryFormat(u8),
}

/// How the arithmetic of a call follows from its shapes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cost {
    /// One operation for each element of the output.
    Arithmetic,
    /// A function such as `exp` for each element of the output.
    Function,
    /// Elements are read from somewhere: only those count.
    Selection,
    /// Twice the length of a row of this argument, the left operand, for each output element.
    Gemm(u8),
    /// Twice the weights for each position that they are applied at.
    Convolution,
    /// Two matrix multiplications, of queries with keys and of the scores with values. The argument
    /// with the keys has them over a dim; queries and the output have their rows over the same one.
    Attention { keys: u8, dim: u8 },
    /// A few operations for each element that is read.
    Other,
}

/// The shape of an output, as far as the verifier checks it where all shapes are fixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// It is not checked.
    Unchecked,
    /// That of the first argument.
    Same,
    /// Any with as many elements as the first argument.
    SameNumel,
    /// That of the first arguments, this many, broadcast.
    Broadcast(u8),
    /// The dims of the first argument in another order.
    Permuted,
    /// That of the matrix product of two arguments, the first of them at this position.
    Gemm(u8),
    /// Rows of the first argument times the transposed second one.
    Linear,
    /// The same, where weights are the fourth argument and their rows may be padded.
    QuantizedLinear,
    /// Channels as the weights, the fourth argument, have; spatial dims are not checked.
    QuantizedConvolution,
    /// The same, where weights are the second argument.
    DynamicConvolution,
    /// Batch and channels of the first argument.
    Pool,
    /// Batch, heads and rows of the queries, columns of the values.
    Attention,
}

/// The interval of the elements of an output, from those of the arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Range {
    /// It is not known.
    Unknown,
    /// The elements are elements of the first argument, or of the tensors in that list.
    Selected,
    /// That of an argument.
    Argument(u8),
    /// That of either of two arguments.
    Either(u8, u8),
    /// These ends.
    Within(i8, i8),
    /// `a + b * alpha`.
    Sum,
    /// `a - b * alpha`.
    Difference,
    /// `b - a * alpha`.
    ReversedDifference,
    /// `a * b`.
    Product,
    /// `-a`.
    Negated,
    /// `|a|`.
    Absolute,
    /// `max(a, 0)`.
    Relu,
    /// `min(a, b)`.
    Minimum,
    /// `max(a, b)`.
    Maximum,
    /// Between the second and the third argument.
    Clamped,
    /// That of the first argument and of the padding, the third.
    Padded,
    /// Integers from 0 on.
    Counted,
    /// Numbers from the first argument on, in steps of the third.
    CountedFrom,
    /// Indices of elements of the first argument.
    Index,
    /// Two outputs: elements of the first argument, and their indices.
    ValuesAndIndices,
    /// Two outputs, of which only the indices are known.
    OnlyIndices,
    /// Sums of up to all elements of the first argument.
    SumOfMany,
    /// Positions at which this argument, which is sorted, would be extended.
    Insertion(u8),
    /// `a / b`, rounded to an integer.
    Quotient,
    /// `a` modulo `b`, with the sign of `b`.
    Remainder,
    /// Between `a` and 0, or -1 where `a` is negative.
    TowardsZero,
    /// `a << b`.
    ShiftedLeft,
    /// Bitwise and.
    And,
    /// Bitwise or, and exclusive or.
    Or,
    /// Bitwise not.
    Not,
}

/// The integer arguments of which values beyond 32 bits may be replaced by the nearest that fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Saturation {
    /// None.
    Never,
    /// Indices, at this position: what is out of range stays out of range.
    Index(u8),
    /// The first, if it is clamped to 32 bits anyway.
    Clamped,
    /// The first two, if the other one does not reach the ends of 32 bits.
    Compared,
    /// The same, and the order of elements, the sixth.
    ComparedInOrder,
    /// The first two: only their signs matter, and whether they are zero.
    Sign,
    /// The first, if the output has truth values.
    Truth,
}

/// Whether the number that a call gives is an integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Integers {
    /// It can be anything.
    Unknown,
    /// If all its arguments are integers, or tensors of integers.
    IfArguments,
    /// In any case.
    Always,
}

/// The rule that computes several samples at once by an added leading dim, as `vmap` does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Batching {
    /// No rule yet: the batching transform fills these in.
    Unspecified,
}

/// Parameter of an operator's schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// The kind of its arguments.
    pub kind: Kind,
    /// Its default, as PyTorch writes it.
    pub default: Option<&'static str>,
}

/// The kind of arguments that a parameter has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of PyTorch's schemas")]
#[non_exhaustive]
pub enum Kind {
    Tensor,
    OptionalTensor,
    Tensors,
    OptionalTensors,
    Int,
    OptionalInt,
    Ints,
    OptionalInts,
    Float,
    OptionalFloat,
    Floats,
    OptionalFloats,
    Scalar,
    OptionalScalar,
    Scalars,
    Bool,
    OptionalBool,
    Bools,
    Str,
    OptionalStr,
    Dtype,
    OptionalDtype,
    Layout,
    OptionalLayout,
    OptionalDevice,
    MemoryFormat,
    OptionalMemoryFormat,
    OptionalGenerator,
}

/// A call whose number of arguments is not that of its operator's schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArgumentCount {
    /// The fewest and the most arguments, without the output.
    expected: (usize, usize),
    /// The number of arguments, with the output.
    found: usize,
}

impl ArgumentCount {
    /// Splits the output from the arguments of a call, if there are as many as expected.
    pub(super) fn check(
        call: &[ValueId],
        expected: (usize, usize),
    ) -> Result<(ValueId, &[ValueId]), Self> {
        match call.split_last() {
            Some((out, inputs)) if (expected.0..=expected.1).contains(&inputs.len()) => {
                Ok((*out, inputs))
            }
            _ => Err(ArgumentCount { expected, found: call.len() }),
        }
    }
}

impl core::fmt::Display for ArgumentCount {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let ArgumentCount { expected: (fewest, most), found } = *self;
        match fewest == most {
            true => write!(f, "expected {most} arguments")?,
            false => write!(f, "expected {fewest} to {most} arguments")?,
        }
        write!(f, " and an output, found {found} values")
    }
}

impl core::error::Error for ArgumentCount {}

impl From<ArgumentCount> for String {
    fn from(count: ArgumentCount) -> Self {
        format!("{count}")
    }
}

impl From<ArgumentCount> for Error {
    fn from(count: ArgumentCount) -> Self {
        Error::Invalid(count.into())
    }
}

/// The operators of a family, and the structures of their arguments.
macro_rules! operators {
    ($family:ident; $(
        $constant:ident $schema:tt =
        $($name:literal)? $($space:ident :: $function:ident . $overload:ident)?
        $(<- $($instruction:literal)? $($out:ident)? $(without $first:literal .. $end:literal)?)?
        $({ $($field:ident: $value:expr),* $(,)? })?;
    )*) => {
        #[allow(
            non_camel_case_types,
            clippy::upper_case_acronyms,
            reason = "they number the constants"
        )]
        #[repr(u16)]
        enum Index { $($constant),* }

        const START: u16 = start(Family::$family);

        impl Operator {
            $(
                #[doc = concat!(
                    "`", operators!(@name $($name)? $($space $function $overload)?), "`"
                )]
                pub const $constant: Operator = Operator(START + Index::$constant as u16);
            )*
        }

        /// How many operators the family has.
        pub(super) const COUNT: usize = [$(Index::$constant as u16),*].len();

        pub(super) const DESCRIPTIONS: [Description; COUNT] = [$(
            Description {
                name: operators!(@name $($name)? $($space $function $overload)?),
                instruction: operators!(
                    @instruction [$($space $function)?] $($($instruction)? $($out)?)?
                ),
                lacking: operators!(@lacking $($($first $end)?)?),
                arguments: operators!(@arguments $schema),
                traits: Traits { $($($field: $value,)*)? ..Traits::DEFAULT },
            }
        ),*];

        pub(super) static PARAMETERS: [&[Parameter]; COUNT] =
            [$(operators!(@parameters $schema)),*];

        $(operators! { @structure $constant $schema })*
    };
    (@name $name:literal) => { $name };
    (@name $space:ident $function:ident $overload:ident) => {
        concat!(stringify!($space), ".", stringify!($function), ".", stringify!($overload))
    };
    (@instruction [$($part:ident)*]) => { None };
    (@instruction [$($part:ident)*] $instruction:literal) => { Some($instruction) };
    (@instruction [$space:ident $function:ident] $out:ident) => {
        Some(concat!(stringify!($space), "::", stringify!($function), ".", stringify!($out)))
    };
    (@lacking) => { (0, 0) };
    (@lacking $first:literal $end:literal) => { ($first, $end) };
    (@parameters (..)) => { &[] };
    (@parameters ($structure:ident)) => { $structure::PARAMETERS };
    (@parameters ($structure:ident $parameters:tt)) => { $structure::PARAMETERS };
    (@parameters ($($parameter:ident: $kind:ident $(= $default:expr)?),*)) => {
        &[$(
            Parameter {
                name: stringify!($parameter),
                kind: Kind::$kind,
                default: operators!(@default $($default)?),
            }
        ),*]
    };
    (@default) => { None };
    (@default $default:expr) => { Some(stringify!($default)) };
    (@arguments ($structure:ident)) => { $structure::DECLARED_BY };
    (@arguments ($structure:ident { $($rest:tt)* })) => { $structure::DECLARED_BY };
    (@arguments $schema:tt) => { u16::MAX };
    (@structure $constant:ident (
        $structure:ident { $($parameter:ident: $kind:ident $(= $default:expr)?),* }
    )) => {
        /// Named arguments of a call. Those with a default are `None` if the call lacks them.
        #[derive(Clone, Copy)]
        #[allow(missing_docs, reason = "the names are those of PyTorch's schemas")]
        pub struct $structure {
            $(pub $parameter: operators!(@type $($default)?),)*
            pub out: ValueId,
        }

        impl $structure {
            pub(super) const PARAMETERS: &[Parameter] =
                operators!(@parameters ($($parameter: $kind $(= $default)?),*));

            pub(super) const DECLARED_BY: u16 = Operator::$constant.0;

            /// How many arguments a call has, without the output.
            pub const COUNT: usize = $structure::PARAMETERS.len();

            /// The arguments of a call, if there are as many as the schema says.
            ///
            /// # Errors
            /// The number of arguments is another one.
            #[inline]
            pub fn of(call: &(impl AsRef<[ValueId]> + ?Sized)) -> Result<Self, ArgumentCount> {
                const FEWEST: usize = fewest($structure::PARAMETERS);
                let expected = (FEWEST, $structure::COUNT);
                let (out, inputs) = ArgumentCount::check(call.as_ref(), expected)?;
                let mut inputs = inputs.iter().copied();
                Ok($structure { $($parameter: operators!(@next inputs $($default)?),)* out })
            }

            /// The arguments of a call whose operator has this schema.
            #[inline]
            pub fn matching(node: &Node) -> Option<Self> {
                let matches = node.operator.description().arguments == Self::DECLARED_BY;
                Self::of(node).ok().filter(|_| matches)
            }
        }
    };
    (@structure $constant:ident $schema:tt) => {};
    (@type) => { ValueId };
    (@type $default:expr) => { Option<ValueId> };
    (@next $inputs:ident) => { $inputs.next().unwrap_or_default() };
    (@next $inputs:ident $default:expr) => { $inputs.next() };
}
pub(super) use operators;

/// How many parameters have no default.
pub(super) const fn fewest(parameters: &[Parameter]) -> usize {
    let mut count = 0;
    while count < parameters.len() && parameters[count].default.is_none() {
        count += 1;
    }
    count
}
