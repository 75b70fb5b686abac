//! The syntax of operator descriptions, and the macro that reads them.
//!
//! An entry reads like a line of PyTorch's `native_functions.yaml`:
//!
//! ```text
//! GELU(GeluArgs { input: Tensor, approximate: Str = "none" }) = aten::gelu.default <- out
//!     { cost: Cost::Function, shape: Shape::Same };
//! ```
//!
//! - The constant, [`Operator::GELU`](super::Operator::GELU).
//! - The parameters of the functional operator: names, kinds and defaults. `NAME { ... }` also
//!   declares a structure `NAME` of named arguments; later operators with the same parameters write
//!   only `NAME`. `(..)` means that the arguments depend on the fused calls. The tensor that
//!   PyTorch calls `self`, a keyword of Rust, is `input`.
//! - The functional name, `namespace::name.overload`; a string if the name has another syntax.
//! - After `<-`: the overload that instructions call, or its whole name as a string.
//!   `without 1..5`: the overload lacks these parameters, because its output has them (dtype,
//!   device and so on).
//! - The [`Traits`] that differ from those of the family: [`Traits::DEFAULT`], unless the family
//!   names others, as in `elementwise: ELEMENTWISE;`.

use super::ValueId;
use crate::error::Error;
use alloc::format;
use alloc::string::String;

/// Description of an operator.
#[derive(Clone, Copy)]
pub(super) struct Description {
    /// Name of the functional operator.
    pub(super) name: &'static str,
    /// Name of the `out` variant that instructions call, whose outputs follow the inputs.
    pub(super) instruction: Option<&'static str>,
    /// Range of the functional parameters that the `out` variant lacks: first index, and the index
    /// after the last one.
    pub(super) lacking: (u8, u8),
    /// Structure of named arguments, identified by the index of the operator that declares it.
    pub(super) arguments: u16,
    /// Properties that passes, targets and the cost model read.
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
    /// Arguments that a call may write in place, so that calls before and after it see different
    /// contents.
    pub writes: ArgumentSet,
    /// Whether a call is an assertion, which stops the run if it fails.
    pub(crate) checks: bool,
    /// Whether two calls with the same arguments may give different results.
    pub is_random: bool,
    /// Whether the shape of the output depends on the elements of the inputs.
    pub data_dependent: DataDependent,
    /// How an instruction lists its outputs.
    pub(crate) outputs: Outputs,
    /// Parameter of the functional operator that sets the memory layout of the output.
    pub(crate) layout: MemoryLayout,
    /// The parameter that allows a copy to be incomplete when the call returns.
    pub(crate) non_blocking: Option<u8>,
    /// Whether the output has the elements of the first argument, in the same order. Shape and
    /// dtype can differ from those of the argument.
    pub is_view: bool,
    /// Whether each output element is either padding or a copy of an element of the first argument.
    /// If the first argument is a list, this applies to the tensors in the list. Kernels support
    /// such operators for all dtypes.
    pub moves_elements: bool,
    /// Whether the output is the first argument with some elements replaced. If the output shares
    /// the memory of the argument, kernels do not copy the other elements.
    pub(crate) updates_input: bool,
    /// Tensor arguments of an element-wise call that typically follows a layer. Each output element
    /// depends only on the elements of these arguments at the same index, whatever the memory
    /// order.
    pub elementwise: ArgumentSet,
    /// Whether each output element is a function of one input element and of non-tensor arguments.
    pub(crate) is_unary_function: bool,
    /// Number of leading arguments that may be fp16 or bf16 if the output is. The operator computes
    /// in `f32` in any case, and rounds once.
    pub(crate) narrow_inputs: u8,
    /// Position of the weights argument; `None` if the operator has no weights in trained networks.
    pub weights: Option<u8>,
    /// Whether the call transforms its weights at load time, in delegates of ExecuTorch's Vulkan
    /// backend.
    pub(crate) prepacks_weights: bool,
    /// Formula for the number of arithmetic operations.
    pub(crate) cost: Cost,
    /// Whether constant folding runs it. See [`Traits::is_foldable`].
    pub(crate) folds: bool,
    /// Shape rule of the output, for verification.
    pub(crate) shape: Shape,
    /// Interval rule of the output's elements, for integers.
    pub(crate) range: Range,
    /// Arguments that may be clamped to 32 bits.
    pub(crate) saturation: Saturation,
    /// Whether the scalar output of a call is an integer.
    pub(crate) integers: Integers,
    /// Whether graphs track the integer output of a call symbolically.
    pub(crate) is_symbolic: bool,
    /// Rule for evaluating the operator on several samples at once, over an added leading dim.
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

    /// The traits of element-wise operators.
    pub(super) const ELEMENTWISE: Traits =
        Traits { batching: Batching::Broadcast, ..Traits::DEFAULT };

    /// Whether a call writes to its arguments: calls cannot move past it.
    pub fn writes_arguments(&self) -> bool {
        !self.writes.is_empty()
    }

    /// Whether a call must stay even if its output is unused: it writes to arguments or checks an
    /// assertion.
    pub fn has_effect(&self) -> bool {
        self.checks || self.writes_arguments()
    }

    /// Whether the operator is a contraction, such as a GEMM, a convolution or attention. Networks
    /// spend most of their time in contractions.
    pub fn is_contraction(&self) -> bool {
        matches!(self.cost, Cost::Gemm(_) | Cost::Convolution | Cost::Attention { .. })
    }

    /// Whether constant folding runs the operator: it is deterministic, and its cost is about
    /// linear in the number of elements.
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

    /// Creates the set of these positions.
    pub const fn of(positions: &[u8]) -> Self {
        let (mut set, mut at) = (0, 0);
        while at < positions.len() {
            set |= 1 << positions[at];
            at += 1;
        }
        ArgumentSet(set)
    }

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether the set contains a position.
    pub fn contains(self, position: usize) -> bool {
        position < 16 && self.0 >> position & 1 == 1
    }

    /// Returns the positions in ascending order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..16).filter(move |position| self.contains(*position))
    }
}

/// Whether the shape of an output depends on the elements of the inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataDependent {
    /// The shape depends on the shapes of the inputs only.
    Never,
    /// The shape depends on elements. Integers read from a tensor count as well, since shapes are
    /// computed from them.
    Always,
    /// The shape depends on elements if the list in the second argument contains a mask.
    Masks,
}

/// How an instruction lists its outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outputs {
    /// Each output is an argument.
    Each,
    /// The outputs are one argument, a list.
    List,
    /// The first argument is written in place and is the output.
    InPlace,
}

/// The parameter that sets the memory layout of an output, by its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemoryLayout {
    /// No such parameter.
    Any,
    /// A list of dims, from the outermost on.
    DimOrder(u8),
    /// A memory format of PyTorch.
    MemoryFormat(u8),
}

/// Formula for the number of arithmetic operations of a call, from its shapes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cost {
    /// One operation for each element of the output.
    Arithmetic,
    /// A function such as `exp` for each element of the output.
    Function,
    /// One operation for each output element. Only the selected elements are read.
    Selection,
    /// Twice the row length of the left operand for each output element. Holds the position of the
    /// left operand.
    Gemm(u8),
    /// Twice the number of weights for each output position.
    Convolution,
    /// Two matrix multiplications: queries with keys, and scores with values. `keys` is the
    /// position of the keys; `dim` is the dim of the rows in keys, queries and output.
    Attention { keys: u8, dim: u8 },
    /// A few operations for each input element.
    Other,
}

/// Shape of an output. The verifier checks it for static shapes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Not checked.
    Unchecked,
    /// Shape of the first argument.
    Same,
    /// Any shape with as many elements as the first argument.
    SameNumel,
    /// Broadcast shape of this many leading arguments.
    Broadcast(u8),
    /// Dims of the first argument, permuted.
    Permuted,
    /// Shape of a matrix multiplication. Holds the position of the left operand; the right one
    /// follows.
    Gemm(u8),
    /// First argument times the transposed second argument.
    Linear,
    /// Like [`Linear`](Self::Linear), with the weights in the fourth argument. The weight rows may
    /// be padded.
    QuantizedLinear,
    /// Leading dims of the input; at most as many channels as the weights, the fourth argument.
    /// Spatial dims are not checked.
    QuantizedConvolution,
    /// Batch of the input; channels of the weights, the second argument. Spatial dims are not
    /// checked.
    DynamicConvolution,
    /// Batch and channels of the first argument. Spatial dims are not checked.
    Pool,
    /// Batch, heads and rows of the queries; columns of the values.
    Attention,
}

/// Interval rule of the output elements, from the intervals of the arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Range {
    /// Unknown.
    Unknown,
    /// Interval of the first argument, or of the tensors in that list.
    Selected,
    /// Interval of the argument at this position.
    Argument(u8),
    /// Union of the intervals of two arguments.
    Either(u8, u8),
    /// Fixed bounds.
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
    /// Union of the intervals of the first argument and of the padding, the third argument.
    Padded,
    /// Counts up from 0.
    Counted,
    /// Counts up from the first argument, in steps of the third.
    CountedFrom,
    /// Indices of elements of the first argument.
    Index,
    /// Two outputs: elements of the first argument, and their indices.
    ValuesAndIndices,
    /// Two outputs; only the interval of the second, the indices, is known.
    OnlyIndices,
    /// Sums of up to as many elements as the first argument has.
    SumOfMany,
    /// Insertion indices into the sorted argument at this position.
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

/// Integer arguments whose values can be clamped to 32 bits without changing the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Saturation {
    /// No argument.
    Never,
    /// Indices at this position: an index that is out of range remains so.
    Index(u8),
    /// The first argument, if the call clamps it to a 32-bit range anyway.
    Clamped,
    /// Each of the first two arguments, if the other one excludes the limits of 32 bits.
    Compared,
    /// Like [`Compared`](Self::Compared), for the first and the sixth argument, a sort order.
    ComparedInOrder,
    /// The first two arguments: only their signs matter, zero included.
    Sign,
    /// The first argument, if the output is boolean.
    Truth,
}

/// Whether the scalar output of a call is an integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Integers {
    /// Unknown.
    Unknown,
    /// Yes, if all arguments are integers or integer tensors.
    IfArguments,
    /// Yes.
    Always,
}

/// Rule for evaluating several samples at once over an added leading dim, like `vmap`. A call whose
/// arguments are the same for all samples needs no rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Batching {
    /// No rule.
    Unspecified,
    /// Element-wise over tensors that broadcast.
    Broadcast,
    /// Like [`Broadcast`](Self::Broadcast), with the shape of the first argument.
    Into,
    /// The operator repeats over the leading dims of these arguments. All other tensors must be the
    /// same for all samples.
    Leading(ArgumentSet),
    /// The operator repeats over the first dim of these arguments, which the samples extend. All
    /// other tensors must be the same for all samples.
    Folded(ArgumentSet),
    /// These arguments are dims of the tensors.
    Dims(ArgumentSet),
    /// The second argument lists all dims, permuted.
    Permutation,
    /// The second argument has a number for each dim of the output.
    Sizes(FirstSize),
    /// `select` or `slice`: the dim follows the tensor. The position may differ from sample to
    /// sample.
    Selection,
    /// Elements of the first argument at indices.
    Index,
    /// `index_put`, also to the state of samples.
    IndexPut,
    /// Writes to a KV cache, from a position on.
    CacheUpdate,
    /// Attention over KV caches.
    CachedAttention,
    /// Arithmetic on integers, which may differ from sample to sample.
    Integers,
    /// Reads an integer from a tensor.
    Integer,
    /// A tensor without dims, from an integer.
    Filled,
    /// Reads a size.
    Size,
    /// An assertion. It is dropped if it concerns values that differ from sample to sample.
    Check,
}

/// The number that [`Batching::Sizes`] adds for the leading dim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstSize {
    /// The number of samples.
    Batch,
    /// -1, which keeps the size of the argument.
    Kept,
    /// 1: the samples are not repeated.
    Once,
}

/// Parameter of an operator's schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Parameter {
    /// Name.
    pub name: &'static str,
    /// Kind of the argument.
    pub kind: Kind,
    /// Default value, in PyTorch's notation.
    pub default: Option<&'static str>,
}

/// Kind of a schema parameter.
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

/// Error: the number of arguments does not match the operator's schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArgumentCount {
    /// Minimum and maximum number of arguments, without the output.
    expected: (usize, usize),
    /// Number of arguments found, including the output.
    found: usize,
}

impl ArgumentCount {
    /// Splits the output from the arguments of a call, and checks their number.
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

/// Defines the operators of a family and the structures of their arguments.
macro_rules! operators {
    ($family:ident; $($entries:tt)*) => { operators! { $family: DEFAULT; $($entries)* } };
    ($family:ident: $base:ident; $(
        $constant:ident $schema:tt =
        $($name:literal)? $($space:ident :: $function:ident . $overload:ident)?
        $(<- $($instruction:literal)? $($out:ident)? $(without $first:literal .. $end:literal)?)?
        $({ $($field:ident: $value:expr),* $(,)? })?;
    )*) => {
        #[allow(
            non_camel_case_types,
            clippy::upper_case_acronyms,
            reason = "variants are named like the constants"
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

        /// Number of operators in the family.
        pub(super) const COUNT: usize = [$(Index::$constant as u16),*].len();

        pub(super) const DESCRIPTIONS: [Description; COUNT] = [$(
            Description {
                name: operators!(@name $($name)? $($space $function $overload)?),
                instruction: operators!(
                    @instruction [$($space $function)?] $($($instruction)? $($out)?)?
                ),
                lacking: operators!(@lacking $($($first $end)?)?),
                arguments: operators!(@arguments $schema),
                traits: Traits { $($($field: $value,)*)? ..Traits::$base },
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
        /// Named arguments of a call. An absent argument with a default is `None`.
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

            /// Maximum number of arguments of a call, without the output.
            pub const COUNT: usize = $structure::PARAMETERS.len();

            /// Returns the named arguments of a call.
            ///
            /// # Errors
            /// The number of arguments does not match the schema.
            #[inline]
            pub fn of(call: &(impl AsRef<[ValueId]> + ?Sized)) -> Result<Self, ArgumentCount> {
                const FEWEST: usize = fewest($structure::PARAMETERS);
                let expected = (FEWEST, $structure::COUNT);
                let (out, inputs) = ArgumentCount::check(call.as_ref(), expected)?;
                let mut inputs = inputs.iter().copied();
                Ok($structure { $($parameter: operators!(@next inputs $($default)?),)* out })
            }

            /// Returns the arguments in the order of the schema, without the output. After an
            /// absent argument, all further arguments must be absent.
            #[allow(dead_code, reason = "passes build calls of some operators only")]
            pub(crate) fn inputs(&self) -> alloc::vec::Vec<ValueId> {
                let mut inputs = alloc::vec::Vec::with_capacity(Self::COUNT);
                $(inputs.extend(operators!(@write self.$parameter; $($default)?));)*
                inputs
            }

            /// Returns the named arguments of a call if its operator has this schema.
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
    (@write $argument:expr;) => { Some($argument) };
    (@write $argument:expr; $default:expr) => { $argument };
    (@next $inputs:ident) => { $inputs.next().unwrap_or_default() };
    (@next $inputs:ident $default:expr) => { $inputs.next() };
}
pub(super) use operators;

/// Returns the number of parameters without a default.
pub(super) const fn fewest(parameters: &[Parameter]) -> usize {
    let mut count = 0;
    while count < parameters.len() && parameters[count].default.is_none() {
        count += 1;
    }
    count
}
