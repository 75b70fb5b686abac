//! The operators: every one that a front-end can meet, resolved once to an entry of this table.
//!
//! Names are those of functional ATen, as PyTorch's exporter writes them (`aten.add.Tensor`), and
//! of the operators that lowerings to a processor add. A program's instructions call the forms with
//! outputs among their arguments (`aten::add.out`); the table tells which is which. `torchlet.*`
//! are forms that passes make of several calls:
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

mod table;

use table::TABLE;

/// An operator of the table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Operator(u16);

/// What the table says of an operator.
struct Entry {
    /// The name of the functional form.
    name: &'static str,
    /// The form that instructions call, with the outputs behind the inputs.
    instruction: Option<&'static str>,
    /// Arguments of the functional form, from the first number and before the second, that the
    /// other lacks: what the output tells anyway, such as its type.
    lacking: (u8, u8),
}

impl Operator {
    /// How many operators there are.
    pub const COUNT: usize = TABLE.len();

    /// The operator of this functional name.
    pub fn named(name: &str) -> Option<Self> {
        TABLE.binary_search_by(|entry| entry.name.cmp(name)).ok().map(Self::at)
    }

    /// The operator that instructions call by this name, such as `aten::add.out`.
    pub fn of_instruction(name: &str) -> Option<Self> {
        TABLE.iter().position(|entry| entry.instruction == Some(name)).map(Self::at)
    }

    /// All operators.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..Self::COUNT).map(Self::at)
    }

    fn at(index: usize) -> Self {
        Operator(index as u16)
    }

    fn entry(self) -> &'static Entry {
        &TABLE[self.index()]
    }

    /// Its number in the table.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The name of its functional form.
    pub fn name(self) -> &'static str {
        self.entry().name
    }

    /// The name of the form that instructions call, if there is one.
    pub fn instruction(self) -> Option<&'static str> {
        self.entry().instruction
    }

    /// The arguments of the functional form that the form of instructions lacks.
    pub fn lacking(self) -> core::ops::Range<usize> {
        let (first, end) = self.entry().lacking;
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
    fn the_table_is_sorted_and_names_nothing_twice() {
        assert!(TABLE.windows(2).all(|pair| pair[0].name < pair[1].name));
        let mut instructions: Vec<_> = TABLE.iter().filter_map(|entry| entry.instruction).collect();
        let count = instructions.len();
        instructions.sort_unstable();
        instructions.dedup();
        assert_eq!(instructions.len(), count);
    }

    #[test]
    fn constants_lead_to_their_names() {
        assert_eq!(Operator::ADD_TENSOR.name(), "aten.add.Tensor");
        assert_eq!(Operator::named("aten.add.Tensor"), Some(Operator::ADD_TENSOR));
        assert_eq!(Operator::of_instruction("aten::full.out"), Some(Operator::FULL));
        assert_eq!(Operator::FULL.lacking(), 2..6);
    }
}
