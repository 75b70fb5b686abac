//! Convolutions: channels last, with weights packed beforehand and limits in the same pass.

use super::moves::{channels_last, channels_last_order};
use super::{argument, output};
use crate::compute::conv::{Conv, ConvParams, Finish, Layout, WeightForm, Weights};
use crate::compute::gemm::ShapeMismatch;
use crate::compute::simd::Tier;
use crate::engine::builder::{Builder, Refusal};
use crate::engine::packed::{Constant, Form};
use crate::engine::plan::{Io, Step};
use std::vec::Vec;
use torchlet_graph::graph::{Value, ValueId};

pub(super) fn convolution(builder: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Refusal> {
    let input = builder.view(argument(args, 0)?)?;
    let weights = argument(args, 1)?;
    let sizes = builder.sizes(weights)?;
    let rank = sizes.len();
    if !(3..=4).contains(&rank) || input.sizes.len() != rank {
        return Err("the engine convolves batches of rows and of pictures".into());
    }
    let conv = geometry(builder, args, &input.sizes, sizes)?;
    if !builder.is_constant(weights) {
        return Err("the engine packs weights beforehand, and these are not constant".into());
    }
    let bias = match builder.value(argument(args, 2)?) {
        Value::None => None,
        _ => {
            let bias = builder.constant(argument(args, 2)?);
            bias.map_err(|why| std::format!("its bias: {why}"))?
        }
    };
    let (tier, p) = (builder.machine.tier, *conv.params());
    let (input, order) = match p.layout {
        Layout::ChannelsLast => (channels_last(builder, &input)?, channels_last_order(rank)),
        Layout::ChannelsFirst => (builder.contiguous(&input)?, (0..rank).collect()),
    };
    let [depth, height, width] = conv.output();
    let pixels = if rank == 3 { &[width][..] } else { &[height, width] };
    let shape: Vec<usize> = [p.batch, p.out_channels].iter().chain(pixels).copied().collect();
    if depth != 1 {
        return Err("a picture of one more dimension".into());
    }
    let out = builder.make_in_order(&shape, &order)?;
    if !builder.is_question() {
        let second = if p.transposed { p.out_channels } else { p.in_channels } / p.groups.max(1);
        let plain = WeightForm::contiguous(second, p.kernel);
        let (weights, form) = match conv.packed_weights_len(tier) {
            None => return Err("weights that are too large".into()),
            // The convolution takes them as they are.
            Some(0) => (builder.constant(weights)?.unwrap_or(Constant::Lent(&[])), plain),
            Some(len) => {
                let WeightForm::Strided(strides) = plain else {
                    return Err("weights that are packed".into());
                };
                let form = Form::of_convolution(&p);
                let weights = builder.packed(weights, form, len, |context, data, packed| {
                    let packed = conv.pack_weights(context, data, strides, packed);
                    packed.map_err(|_| "weights that are cut short".into())
                })?;
                (weights, WeightForm::Packed)
            }
        };
        let (min, max) = (f32::NEG_INFINITY, f32::INFINITY);
        let from = input.offset;
        let step = Prepared { conv, from, weights, form, bias, beta: 0.0, min, max };
        builder.push(step, &[&input], &out);
    }
    builder.define(output(args)?, out)
}

/// The numbers of a call, of which the weights have these sizes.
fn geometry(
    builder: &Builder<'_, '_>,
    args: &[ValueId],
    input: &[usize],
    weights: &[usize],
) -> Result<Conv, Refusal> {
    let spatial = weights.len() - 2;
    let three = |sizes: &[usize]| match *sizes {
        [_, _, width] => [1, 1, width],
        [_, _, height, width] => [1, height, width],
        _ => [1, 1, 1],
    };
    let list = |at, absent: usize| {
        let given = builder.integers(argument(args, at)?)?;
        let mut all = [absent; 3];
        for (dim, slot) in all.iter_mut().skip(3 - spatial).enumerate() {
            let number = match given[..] {
                [one] => one,
                ref several => *several.get(dim).ok_or("a list that is too short")?,
            };
            *slot = usize::try_from(number).map_err(|_| "a negative number")?;
        }
        Ok::<_, Refusal>(all)
    };
    let transposed = builder.truth(argument(args, 6)?)?;
    let groups = usize::try_from(builder.integer(argument(args, 8)?)?).unwrap_or(0);
    let (first, second) = (weights.first().copied().unwrap_or(0), weights.get(1).copied());
    let second = second.unwrap_or(0).checked_mul(groups).ok_or("too many groups")?;
    let (in_channels, out_channels) = if transposed { (first, second) } else { (second, first) };
    if input.get(1) != Some(&in_channels) {
        return Err("input and weights have different channels".into());
    }
    // Groups of few channels fill no vector when channels are innermost, unless there is one each.
    let is_depthwise = groups == in_channels && groups == out_channels && !transposed;
    let few = groups > 1 && !is_depthwise && out_channels / groups.max(1) < 8;
    let layout = if few { Layout::ChannelsFirst } else { Layout::ChannelsLast };
    let params = ConvParams {
        batch: input.first().copied().unwrap_or(0),
        in_channels,
        out_channels,
        groups,
        input: three(input),
        kernel: three(weights),
        stride: list(3, 1)?,
        padding: list(4, 0)?,
        dilation: list(5, 1)?,
        output_padding: if transposed { list(7, 0)? } else { [0; 3] },
        transposed,
        layout,
    };
    Conv::new(params).ok_or_else(|| "numbers that no convolution has".into())
}

/// A convolution with its weights.
struct Prepared<'p> {
    conv: Conv,
    /// Where the input begins.
    from: usize,
    weights: Constant<'p>,
    form: WeightForm,
    bias: Option<Constant<'p>>,
    beta: f32,
    min: f32,
    max: f32,
}

impl Step for Prepared<'_> {
    fn workspace(&self, tier: Tier, threads: usize) -> usize {
        self.conv.workspace_len(tier, threads, self.form).unwrap_or(0)
    }

    fn limit(&mut self, min: f32, max: f32) -> bool {
        let is_free = self.min == f32::NEG_INFINITY && self.max == f32::INFINITY;
        if is_free {
            (self.min, self.max) = (min, max);
        }
        is_free
    }

    fn accumulate(&mut self) -> bool {
        let is_free = self.min == f32::NEG_INFINITY && self.max == f32::INFINITY;
        is_free && core::mem::replace(&mut self.beta, 1.0) == 0.0
    }

    fn run(&self, io: Io<'_>) -> Result<(), ShapeMismatch> {
        let [input, ..] = io.inputs;
        let input = input.get(self.from..).ok_or(ShapeMismatch)?;
        let weights = Weights { data: self.weights.as_slice(), form: self.form };
        let finish = Finish {
            bias: self.bias.as_ref().map(Constant::as_slice),
            beta: self.beta,
            min: self.min,
            max: self.max,
        };
        self.conv.run(io.context, input, weights, &finish, io.out, io.workspace)
    }
}
