//! The operator table: one description of each operator that front ends and passes use.
//!
//! Each family of operators has a file of descriptions, in the notation that [`describe`] explains:
//! schema, names, and the [`Traits`] that passes, targets and the cost model read. No other part of
//! the compiler lists operators by their properties.
//!
//! Names are those of functional ATen, as PyTorch's exporter writes them (`aten.add.Tensor`), and
//! those of operators that backend lowerings add. Instructions of a program call the out variants
//! (`aten::add.out`). Some have a second form: `et_vk.q8ta_conv2d`, `q8ta_conv2d_dw` and
//! `q8ta_linear` may have `weight_scales` and `bias` of shape `[2, outputs]`, constants, with other
//! scales of 1. The two rows add up to scales of up to 31 bits, and to biases in units of the sums.
//! The result is that of integers, rounded once, ties up. Passes create this form for targets that
//! accept it.
//!
//! Passes fuse several calls into `torchlet.*` operators:
//!
//! - `torchlet.attention(q, k, v, mask, scale, offset)` computes
//!   `softmax(q · kᵀ · scale + mask) · v` and accumulates in `f32` or wider. `q` has shape
//!   `[batch, heads, rows, width]`, `k` `[batch, key heads, keys, width]` and `v`
//!   `[batch, key heads, keys, value width]`. `heads` is a multiple of `key heads`; consecutive
//!   heads share a key head (grouped-query attention). The optional floating-point mask broadcasts
//!   to `[batch, heads, rows, keys]`. With the optional offset, at least 0, attention is causal:
//!   row `i` sees keys up to `offset + i`, subject to the mask. A row whose scores are all minus
//!   infinity is zero. (`et_vk.sdpa.default` computes the same, except that `k` and `v` have as
//!   many heads as `q`, and that a row whose scores are all minus infinity is NaN.)
//! - `torchlet.depthwise_last(input, weight, bias, stride, padding, dilation)` is a channels-last
//!   depthwise convolution with one output channel per input channel. Input and output have shape
//!   `[batch, height, width, channels]`, the weights `[channels, 1, height, width]`.
//! - `torchlet.dynamic_convolution(input, weights, weight_scales,
//!   bias, kernel_size, stride, padding, output_padding, dilation, groups, transposed)` is a
//!   dynamically quantized 2D convolution: each image of the batch is quantized to 8 bits with the
//!   parameters of `choose_qparams_per_token_asymmetric`. The int8 weights are constant, of shape
//!   `[outputs, row]`; a row holds all taps of the channels of a group, ordered by kernel position,
//!   then by channel. Their scales have shape `[outputs]`.
//! - `torchlet.dynamic_linear(input, weights, weight_scales, weight_sums, bias, bits)` is a
//!   dynamically quantized `linear`: each row of the input is quantized to 8 bits with the
//!   parameters of `choose_qparams_per_token_asymmetric`. The weights are constant integers of
//!   `bits` bits and shape `[outputs, inputs]`. Their scales have shape `[outputs, groups]`;
//!   consecutive weights of a row form a group. `weight_sums` holds the sum of each row of
//!   dequantized weights.
//! - `torchlet.linear_int8(input, weights, weight_scales, bias, bits)` is `linear` of a
//!   floating-point input, with quantized weights as in `torchlet.dynamic_linear`.
//! - `torchlet.packed(data, form)` holds constant weights in the memory order of a specific
//!   machine. `form` identifies the order, in integers that the backend defines. The operator
//!   occurs only in regions compiled for the current machine.
//! - `torchlet.shader(inputs, code, name, entry, bindings, groups, push)` runs a foreign compute
//!   shader, the SPIR-V module `code`, with `groups` workgroups. Its results are a list of tensors,
//!   zero-initialised. `bindings` has ten integers for each descriptor: set, binding,
//!   `VkDescriptorType`, `VkFormat`, index of the tensor (of the inputs, then of the results), and
//!   the sampler's filters, address modes and border color. `push` has offset and size of each
//!   range of push constants, which are zeros. `name` is the shader's name in error messages.
//! - `torchlet.slots_put(state, slots, positions, value, dim)` replaces parts of `state`, which has
//!   a slot for each of several sequences. `torchlet.slots_sdpa(query, key, value, slots, starts,
//!   attn_mask, dropout_p, is_causal, scale)` is `llama.custom_sdpa` of several rows, each over a
//!   slot of the caches. The kernels of these names describe the arguments.
//! - `torchlet.to_channels_last(x)` converts an int8 image `[batch, channels, height, width]` to
//!   channels-last, `[batch, height * width, channels padded to a multiple of 16]`;
//!   `torchlet.to_channels_first` converts it back. The padding is undefined.
//!   `torchlet.convolution_channels_last` is a quantized convolution of channels-last images, with
//!   an optional fused requantization of the output. Backends create these calls.
//! - `torchlet.q8ta_avg_pool2d(x, kernel_size, stride, padding, ceil_mode)` averages int8 values
//!   over the part of each window that is inside the image, rounded to nearest. Ties may be rounded
//!   up or down.
//! - `torchlet.q8ta_lookup(x, lut)` maps each int8 value through a table of 256 int8 values, whose
//!   first entry is for -128.
//! - `torchlet.q8ta_mul(a, b, a_scale, a_zero_point, b_scale, b_zero_point,
//!   output_scale, output_zero_point)` multiplies two int8 tensors, with broadcasting: dequantizes
//!   them by `(value - zero_point) * scale` and requantizes the result.
//! - `torchlet.q8ta_softmax(x, scale, zero_point, dim)` is the softmax of int8 values over a dim.
//!   The output has scale 1/256 and zero point -128.
//! - `torchlet.recurrent(x, h, c, weight, bias, cell, steps, first, next, first_out, next_out)`
//!   runs `steps` time steps of an LSTM, GRU, tanh or ReLU cell (0 to 3 in `cell`), with PyTorch's
//!   formulas. `x` `[time, rows, gates * hidden]` is the projected input. Step 0 reads time index
//!   `first`, and each further step moves by `next`. `h` and, for LSTMs, `c` are the initial
//!   states, `[1, rows, hidden]`. `weight` `[gates * hidden, hidden]` and the optional `bias`
//!   belong to the state projection. Step 0 writes its state to index `first_out` of the output,
//!   and each further step moves by `next_out`. For LSTMs, an optional second output is the last
//!   cell state.
//! - `torchlet.rescaled_arithmetic(a, b, tables, operation, scale, zero_point)` adds, subtracts or
//!   multiplies (0 to 2 in `operation`) functions of two int8 tensors, with broadcasting, and
//!   rescales the int32 result as `q8ta_conv2d` with exact scales does. `tables` has the 256 int32
//!   values of each function, from -128 on, as int8 bytes in little-endian order.
//! - `torchlet.rotary(x, cosine, sine, form)` is a rotary embedding (RoPE): it rotates pairs of
//!   elements of `x` `[batch, a, b, depth]` by angles that broadcast to `[1, a, b, angles]`. Form 0
//!   pairs adjacent elements: `x` is `[batch, a, b, pairs, 2]`, with one angle per pair. Form 1
//!   pairs element `i` of the first half with element `i` of the second half, with one angle per
//!   element.
//! - `torchlet.rounded_rows(x)` quantizes each row of `x` to 8 bits with the parameters of
//!   `choose_qparams_per_token_asymmetric`, and dequantizes it again.
//!
//! `tosa.*` operators have TOSA's exact integer arithmetic; their meaning is that of the TOSA 1.0
//! specification. Images are channels-last; attributes that are constant in TOSA are integers.

pub mod aten;
mod defaults;
mod describe;
mod shared;
pub mod views;

pub use describe::{
    ArgumentCount, ArgumentSet, Batching, DataDependent, FirstSize, Kind, Parameter, Traits,
};
pub(crate) use describe::{Cost, Integers, MemoryLayout, Outputs, Range, Saturation, Shape};

pub use shared::{QuantizedConvolution, QuantizedLinear, WeightPacking};

use crate::graph::{Node, ValueId};
use describe::Description;

/// Declares the families, each in a file, and their tables.
macro_rules! families {
    ($($family:ident),* $(,)?) => {
        $(mod $family;)*
        #[allow(unused_imports, unreachable_pub, reason = "not all families have named arguments")]
        mod arguments {
            $(pub use super::$family::*;)*
        }
        pub use arguments::*;

        /// The families, in the order of their operators' indices.
        #[allow(non_camel_case_types, reason = "variants are named like their modules")]
        #[derive(Clone, Copy)]
        enum Family { $($family),* }

        const COUNTS: &[usize] = &[$($family::COUNT),*];

        /// All descriptions, by operator index.
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
            /// Returns the parameters of the functional operator. Empty for fused operators whose
            /// arguments depend on the fused calls.
            pub fn parameters(self) -> &'static [Parameter] {
                let schemas = [$(&$family::PARAMETERS[..]),*];
                schemas.iter().copied().flatten().nth(self.index()).copied().unwrap_or_default()
            }
        }
    };
}

families! {
    attention, composite, convolution, cortex_m, creation, elementwise, fused, indexing, linear,
    linear_algebra, loss, matrices, normalization, pooling, quantized, random, rearrangement,
    reduction, sampling, shape, signal, special, statistics, symbolic, tosa,
}

/// All operators, sorted by functional name.
static BY_NAME: [Operator; Operator::COUNT] = {
    let (mut names, mut at) = ([""; Operator::COUNT], 0);
    while at < names.len() {
        names[at] = DESCRIPTIONS[at].name;
        at += 1;
    }
    sorted(&names)
};

/// All operators, sorted by instruction; those without one come first.
static BY_INSTRUCTION: [Operator; Operator::COUNT] = {
    let (mut names, mut at) = ([""; Operator::COUNT], 0);
    while at < names.len() {
        if let Some(name) = DESCRIPTIONS[at].instruction {
            names[at] = name;
        }
        at += 1;
    }
    sorted(&names)
};

/// Sorts the operators by their names, by binary insertion.
const fn sorted(names: &[&str; Operator::COUNT]) -> [Operator; Operator::COUNT] {
    let (mut all, mut count) = ([Operator(0); Operator::COUNT], 0);
    while count < all.len() {
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = (low + high) / 2;
            match torchlet_core::is_less(names[count], names[all[middle].0 as usize]) {
                true => high = middle,
                false => low = middle + 1,
            }
        }
        let mut to = count;
        while to > low {
            all[to] = all[to - 1];
            to -= 1;
        }
        all[low] = Operator(count as u16);
        count += 1;
    }
    all
}

/// Returns the index of a family's first operator.
const fn start(family: Family) -> u16 {
    let (mut first, mut before) = (0, 0);
    while before < family as usize {
        first += COUNTS[before];
        before += 1;
    }
    first as u16
}

/// Operator, identified by its index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Operator(u16);

impl Operator {
    /// Number of operators.
    pub const COUNT: usize = {
        let (mut count, mut family) = (0, 0);
        while family < COUNTS.len() {
            count += COUNTS[family];
            family += 1;
        }
        count
    };

    /// Returns the operator with this functional name.
    pub fn named(name: &str) -> Option<Self> {
        let found = BY_NAME.binary_search_by(|it| it.description().name.cmp(name));
        found.ok().map(|position| BY_NAME[position])
    }

    /// Returns the operator of an instruction, such as `aten::add.out`.
    pub fn of_instruction(name: &str) -> Option<Self> {
        let found =
            BY_INSTRUCTION.binary_search_by(|it| it.description().instruction.cmp(&Some(name)));
        found.ok().map(|position| BY_INSTRUCTION[position])
    }

    /// Returns all operators.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..Self::COUNT).map(Self::at)
    }

    fn at(index: usize) -> Self {
        Operator(index as u16)
    }

    fn description(self) -> &'static Description {
        &DESCRIPTIONS[self.index()]
    }

    /// Returns the properties of the operator.
    pub fn traits(self) -> &'static Traits {
        &self.description().traits
    }

    /// Returns the index of the operator, less than [`Operator::COUNT`].
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns the functional name.
    pub fn name(self) -> &'static str {
        self.description().name
    }

    /// Returns the name that instructions use, such as `aten::add.out`; `None` if no instruction
    /// exists.
    pub fn instruction(self) -> Option<&'static str> {
        self.description().instruction
    }

    /// Returns the range of functional parameters that the instruction does not have.
    pub fn omitted_arguments(self) -> core::ops::Range<usize> {
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
            assert!(operator.omitted_arguments().end <= parameters.len(), "{name}");
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
            for parameter in operator.omitted_arguments().map(|at| &parameters[at]) {
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
        assert_eq!(Operator::FULL.omitted_arguments(), 2..6);
        for operator in Operator::all() {
            assert_eq!(Operator::named(operator.name()), Some(operator));
            if let Some(instruction) = operator.instruction() {
                assert_eq!(Operator::of_instruction(instruction), Some(operator));
            }
        }
    }
}
