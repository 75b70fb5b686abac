//! The operators: one description of each that a front end can meet.
//!
//! The descriptions lie in a file for each family, in the form that [`describe`] explains: schema,
//! names, and the [`Traits`] that passes, targets and the cost model read. Nothing else in the
//! compiler lists operators by their properties.
//!
//! Names are those of functional ATen, as PyTorch's exporter writes them (`aten.add.Tensor`), and
//! of the operators that lowerings to a processor add. A program's instructions call the forms with
//! outputs among their arguments (`aten::add.out`). `torchlet.*` are forms that passes make of
//! several calls:
//!
//! - `torchlet.attention(q, k, v, mask, scale, offset)` is `softmax(q · kᵀ · scale + mask) · v`
//!   with sums in `f32` at least. `q` is `[batch, heads, rows, width]`, `k`
//!   `[batch, key heads, keys, width]` and `v` `[batch, key heads, keys, value width]`; heads are a
//!   multiple of key heads, and as many neighbours share each. The mask, if it is not none, is of
//!   floating-point numbers that broadcast to `[batch, heads, rows, keys]`. The offset, if there is
//!   one and it is not none, is no less than zero: row `i` sees keys up to `offset + i`, and of
//!   these what the mask shows. A row of which every score is minus infinity has zeros.
//!   (`et_vk.sdpa.default` is the same with as many key heads as heads, and such rows are not
//!   numbers.)
//! - `torchlet.dynamic_convolution(input, codes, scales, bias, kernel,
//!   stride, padding, output_padding, dilation, groups, transposed)` is `convolution` over height
//!   and width with `input` as it is when each picture of the batch is quantized to 8 bits by
//!   `choose_qparams_per_token_asymmetric`. `codes` `[outputs, row]` are constant, rows of all taps
//!   of the channels of a group each, by place and then by channel, and stand for themselves times
//!   `scales` `[outputs]`.
//! - `torchlet.depthwise_last(input, weight, bias, stride, padding, dilation)` is a convolution of
//!   each channel by itself, with one result for each, of `input`
//!   `[batch, height, width, channels]`, to a result of the same order. `weight` is
//!   `[channels, 1, height, width]`.
//! - `torchlet.dynamic_linear(input, codes, scales, sums, bias, bits)` is `linear` with `input` as
//!   it is when its rows are quantized to 8 bits by `choose_qparams_per_token_asymmetric`. `codes`
//!   `[outputs, inputs]` are constant, of so many bits, and stand for themselves times `scales`
//!   `[outputs, groups]`, of as many neighbours each; `sums` are those of what each row of them
//!   stands for.
//! - `torchlet.linear_of_codes(input, codes, scales, bias, bits)` is `linear` with such codes and
//!   scales, and `input` as it is.
//! - `torchlet.packed(data, form)` is constant weights, whose elements `data` has in the order in
//!   which one kind of machine reads them; `form` says which, in numbers that the back-end gives a
//!   meaning. It stands only in regions that are compiled for the machine that they run on.
//! - `torchlet.places(codes)` `[batch, height * width, channels and what pads them to 16]` has the
//!   channels of each place of `codes` `[batch, channels, height, width]` beside each other;
//!   `torchlet.planes` is the way back. What pads them may be anything.
//!   `torchlet.convolution_by_place` is a convolution of codes that takes and gives such, perhaps
//!   with what makes codes of another scale of its result. They are what a back-end makes of calls.
//! - `torchlet.q8ta_avg_pool2d(x, kernel, stride, padding, ceil)` averages int8 values over the
//!   part of each window that is inside the image, rounded to the nearest; halves are rounded to
//!   either side.
//! - `torchlet.q8ta_lookup(codes, table)` is the code of 8 bits that `table` `[256]` has for each
//!   code, the one for -128 first.
//! - `torchlet.q8ta_mul(a, b, scale, zero, scale, zero, scale, zero)` is the product of what codes
//!   of 8 bits stand for, `(code - zero) * scale` by the first two pairs, which broadcast, in codes
//!   by the third.
//! - `torchlet.q8ta_softmax(x, scale, zero, dim)` is the softmax of int8 values over a dim,
//!   quantized with scale 1/256 and zero point -128.
//! - `torchlet.recurrent(x, h, c, weight, bias, cell, steps, first, next, first_out, next_out)` is
//!   so many steps of a recurrent layer, whose cell is one of LSTM, GRU, tanh and ReLU, in this
//!   order, as PyTorch defines them. `x` `[places, rows, gates * hidden]` are the inputs times
//!   their weights, of which the steps take place `first` and each one `next` places further; `h`
//!   and, of LSTMs, `c` `[1, rows, hidden]` are the states before; `weight`
//!   `[gates * hidden, hidden]` and, if it is not none, `bias` are those of the state. The states
//!   behind the steps go to the places of the result that the last two numbers say; of LSTMs, a
//!   second result may be the cell's last one.
//! - `torchlet.rotary(x, cosine, sine, form)` rotates pairs of elements of `x`
//!   `[batch, a, b, depth]` by angles that broadcast to `[1, a, b, angles]`. Form 0: of neighbours,
//!   with an angle for each pair, and `x` is `[batch, a, b, pairs, 2]`; form 1: of element `i` of
//!   the first half with element `i` of the second, with an angle for each element.
//! - `torchlet.rounded_rows(x)` is what is left of `x` when its rows are quantized to 8 bits by
//!   `choose_qparams_per_token_asymmetric`.

mod describe;
mod shared;

pub use describe::{ArgumentCount, ArgumentSet, Batching, DataDependent, Kind, Parameter, Traits};
pub(crate) use describe::{Cost, Integers, MemoryLayout, Outputs, Range, Saturation, Shape};

pub use shared::{QuantizedConvolution, QuantizedLinear, WeightPacking};

use crate::graph::{Node, ValueId};
use describe::Description;

/// The families, a file each, and their tables.
macro_rules! families {
    ($($family:ident),* $(,)?) => {
        $(mod $family;)*
        #[allow(unused_imports, unreachable_pub, reason = "not all families have named arguments")]
        mod arguments {
            $(pub use super::$family::*;)*
        }
        pub use arguments::*;

        /// The families, in the order of the numbers of their operators.
        #[allow(non_camel_case_types, reason = "variants are named like their modules")]
        #[derive(Clone, Copy)]
        enum Family { $($family),* }

        const COUNTS: &[usize] = &[$($family::COUNT),*];

        /// All descriptions, by the numbers of their operators.
        static DESCRIPTIONS: [Description; Operator::COUNT] = {
            let mut all = [const { Description::EMPTY }; Operator::COUNT];
            let mut number = 0;
            $(
                let mut at = 0;
                while at < $family::COUNT {
                    all[number] = $family::DESCRIPTIONS[at];
                    (number, at) = (number + 1, at + 1);
                }
            )*
            all
        };

        impl Operator {
            /// The parameters of the functional form. Empty for fused forms whose arguments depend
            /// on their parts.
            pub fn parameters(self) -> &'static [Parameter] {
                let schemas = [$(&$family::PARAMETERS[..]),*];
                schemas.iter().copied().flatten().nth(self.index()).copied().unwrap_or_default()
            }
        }
    };
}

families! {
    attention, convolution, cortex_m, creation, elementwise, fused, indexing, linear,
    linear_algebra, normalization, pooling, quantized, random, reduction, shape, special, symbolic,
}

/// The number of a family's first operator.
const fn start(family: Family) -> u16 {
    let (mut first, mut before) = (0, 0);
    while before < family as usize {
        first += COUNTS[before];
        before += 1;
    }
    first as u16
}

/// An operator, by its number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Operator(u16);

impl Operator {
    /// How many operators there are.
    pub const COUNT: usize = {
        let (mut count, mut family) = (0, 0);
        while family < COUNTS.len() {
            count += COUNTS[family];
            family += 1;
        }
        count
    };

    /// The operator of this functional name.
    pub fn named(name: &str) -> Option<Self> {
        DESCRIPTIONS.iter().position(|it| it.name == name).map(Self::at)
    }

    /// The operator that instructions call by this name, such as `aten::add.out`.
    pub fn of_instruction(name: &str) -> Option<Self> {
        DESCRIPTIONS.iter().position(|it| it.instruction == Some(name)).map(Self::at)
    }

    /// All operators.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..Self::COUNT).map(Self::at)
    }

    fn at(index: usize) -> Self {
        Operator(index as u16)
    }

    fn description(self) -> &'static Description {
        &DESCRIPTIONS[self.index()]
    }

    /// Its properties.
    pub fn traits(self) -> &'static Traits {
        &self.description().traits
    }

    /// Its number, less than [`Operator::COUNT`].
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The name of its functional form.
    pub fn name(self) -> &'static str {
        self.description().name
    }

    /// The name of the form that instructions call, if there is one.
    pub fn instruction(self) -> Option<&'static str> {
        self.description().instruction
    }

    /// The parameters of the functional form that the form of instructions lacks.
    pub fn lacking(self) -> core::ops::Range<usize> {
        let (first, end) = self.description().lacking;
        first.into()..end.into()
    }
}

impl core::fmt::Debug for Operator {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn names_are_unique() {
        let functional = DESCRIPTIONS.iter().map(|it| it.name);
        let instructions = DESCRIPTIONS.iter().filter_map(|it| it.instruction);
        let mut names: Vec<_> = functional.chain(instructions).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn traits_name_parameters_that_exist() {
        for operator in Operator::all() {
            let parameters = operator.parameters();
            let (traits, name) = (operator.traits(), operator.name());
            let is_tensor =
                |at: usize| parameters.get(at).is_some_and(|it| it.kind == Kind::Tensor);
            assert!(traits.elementwise.iter().all(is_tensor), "{name}");
            assert!(
                traits.writes == ArgumentSet::ALL || traits.writes.iter().all(is_tensor),
                "{name}"
            );
            assert!(operator.lacking().end <= parameters.len(), "{name}");
            let is_named = |at: u8, name: &str| parameters[usize::from(at)].name == name;
            assert!(traits.non_blocking.is_none_or(|at| is_named(at, "non_blocking")), "{name}");
            assert!(
                match traits.layout {
                    MemoryLayout::Any => true,
                    MemoryLayout::DimOrder(at) => is_named(at, "dim_order"),
                    MemoryLayout::MemoryFormat(at) => is_named(at, "memory_format"),
                },
                "{name}"
            );
            for parameter in operator.lacking().map(|at| &parameters[at]) {
                let known = ["dtype", "layout", "device", "pin_memory"];
                assert!(known.contains(&parameter.name), "{name}: {}", parameter.name);
            }
        }
    }

    #[test]
    fn arguments_are_named_by_the_schema() {
        let named = ConvolutionArgs::of(&[10, 11, 12, 13, 14, 15, 16, 17, 18, 19][..]).unwrap();
        assert_eq!((named.input, named.groups, named.out), (10, 18, 19));
        let names: Vec<_> = Operator::CONVOLUTION.parameters().iter().map(|it| it.name).collect();
        assert_eq!(names[3..6], ["stride", "padding", "dilation"]);
        let add = AddArgs::of(&[1, 2, 3][..]).unwrap();
        assert_eq!((add.other, add.alpha, add.out), (2, None, 3));
        let error = AddArgs::of(&[1, 2][..]).err().unwrap();
        assert_eq!(
            alloc::format!("{error}"),
            "expected 2 to 3 arguments and an output, found 2 values"
        );
    }

    #[test]
    fn constants_lead_to_their_names() {
        assert_eq!(Operator::ADD_TENSOR.name(), "aten.add.Tensor");
        assert_eq!(Operator::named("aten.add.Tensor"), Some(Operator::ADD_TENSOR));
        assert_eq!(Operator::of_instruction("aten::full.out"), Some(Operator::FULL));
        assert_eq!(Operator::FULL.lacking(), 2..6);
    }
}
