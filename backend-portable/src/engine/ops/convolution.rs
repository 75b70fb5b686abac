//! Convolutions, channels-last, with weights packed ahead of time and a fused clamp.

use super::moves::{channels_last, channels_last_order, copy};
use super::phases::{Phase, Taps};
use crate::compute::conv::{Conv, ConvParams, Finish, Layout, WeightForm, Weights, share_vectors};
use crate::compute::gemm::ShapeMismatch;
use crate::compute::simd::Tier;
use crate::engine::builder::{Builder, Refusal};
use crate::engine::packed::{Constant, Form};
use crate::engine::plan::{Io, Step};
use crate::engine::view::View;
use std::vec::Vec;
use torchlet_core::rules::window::Window;
use torchlet_graph::graph::{Value, ValueId};
use torchlet_graph::operators::ConvolutionArgs;

pub(super) fn convolution(builder: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Refusal> {
    let call = ConvolutionArgs::of(args)?;
    let input = builder.view(call.input)?;
    let weights = call.weight;
    let sizes = builder.sizes(weights)?;
    let rank = sizes.len();
    if !(3..=4).contains(&rank) || input.sizes.len() != rank {
        return Err(std::format!(
            "convolution of input shape {:?} with weight shape {sizes:?}; expected 3 or 4 dims",
            input.sizes
        ));
    }
    let conv = geometry(builder, &call, &input.sizes, sizes)?;
    if !builder.is_constant(weights) {
        return Err("weights that are not constant".into());
    }
    let bias = match builder.value(call.bias) {
        Value::None => None,
        _ => {
            let bias = builder.constant(call.bias);
            bias.map_err(|why| std::format!("bias: {why}"))?
        }
    };
    let p = *conv.params();
    let mut epilogue = builder.take_epilogue();
    if let Some(phases) = phases(&conv) {
        let out = in_phases(builder, &input, weights, bias, (&conv, phases))?;
        let out = epilogue.apply(builder, out)?;
        return builder.define(call.out, out);
    }
    let tier = builder.machine.tier;
    let (input, order) = match p.layout {
        Layout::ChannelsLast => (channels_last(builder, &input)?, channels_last_order(rank)),
        Layout::ChannelsFirst => (builder.contiguous(&input)?, (0..rank).collect()),
    };
    let [depth, height, width] = conv.output();
    if depth != 1 {
        return Err("convolution over more than two spatial dims".into());
    }
    let shape = shape(&p, rank, [height, width]);
    let mut out = builder.make_in_order(&shape, &order)?;
    if !builder.is_question() {
        let conv = conv.along_rows();
        let second = if p.transposed { p.out_channels } else { p.in_channels } / p.groups.max(1);
        let plain = WeightForm::contiguous(second, p.kernel);
        let (weights, form) = match conv.packed_weights_len(tier) {
            None => return Err("weights that exceed the address space".into()),
            // No packed form: the convolution reads the weights unpacked.
            Some(0) => (builder.constant(weights)?.unwrap_or(Constant::Lent(&[])), plain),
            Some(len) => {
                let WeightForm::Strided(strides) = plain else {
                    return Err("internal error: weights that are already packed".into());
                };
                let form = Form::of_convolution(&p);
                let weights = builder.packed(weights, form, len, |context, data, packed| {
                    let packed = conv.pack_weights(context, data, strides, packed);
                    packed.map_err(|_| "weights with less data than their shape requires".into())
                })?;
                (weights, WeightForm::Packed)
            }
        };
        let (from, beta) = (input.offset, epilogue.add_in_place(builder, &mut out));
        let [min, max] = epilogue.take_limits();
        let step = Prepared { conv, from, weights, form, bias, beta, min, max };
        builder.push(step, &[&input], &out);
    }
    let out = epilogue.apply(builder, out)?;
    builder.define(call.out, out)
}

/// Output shape of a convolution with one or two spatial dims.
fn shape(p: &ConvParams, rank: usize, [height, width]: [usize; 2]) -> Vec<usize> {
    let pixels = if rank == 3 { &[width][..] } else { &[height, width] };
    [p.batch, p.out_channels].iter().chain(pixels).copied().collect()
}

/// Decomposes a transposed convolution into phases: plain convolutions for the outputs that use the
/// same taps, over height and width. `None` if that saves no work; with stride one, the whole is a
/// plain convolution anyway.
fn phases(conv: &Conv) -> Option<[Vec<Phase>; 2]> {
    let p = conv.params();
    let [_, tall, wide] = p.stride;
    if !p.transposed || tall.max(wide) == 1 || p.kernel[0] != 1 {
        return None;
    }
    let [_, height, width] = conv.output();
    let along = |dim: usize, output: usize| {
        let values = [p.kernel[dim], p.stride[dim], p.padding[dim], p.dilation[dim]];
        let [kernel, stride, padding, dilation] = values.map(|it| i64::try_from(it).ok());
        let window = Window::new(kernel?, stride?, padding?, dilation?)?;
        Phase::of_transposed(window, p.input[dim], output)
    };
    Some([along(1, height)?, along(2, width)?])
}

/// Lowers a transposed convolution to one plain convolution for each phase. Their results are
/// interleaved in the output.
fn in_phases<'p>(
    builder: &mut Builder<'_, 'p>,
    input: &View,
    weights: ValueId,
    bias: Option<Constant<'p>>,
    (whole, phases): (&Conv, [Vec<Phase>; 2]),
) -> Result<View, Refusal> {
    let (rank, p) = (input.sizes.len(), *whole.params());
    let layout = layout(p.groups, [p.in_channels, p.out_channels], builder.machine.tier);
    let (input, order) = match layout {
        Layout::ChannelsLast => (channels_last(builder, input)?, channels_last_order(rank)),
        Layout::ChannelsFirst => (builder.contiguous(input)?, (0..rank).collect()),
    };
    let [_, height, width] = whole.output();
    let out = builder.make_in_order(&shape(&p, rank, [height, width]), &order)?;
    for tall in &phases[0] {
        for wide in &phases[1] {
            if builder.is_question() {
                break;
            }
            let params = ConvParams {
                kernel: [1, tall.taps.count, wide.taps.count],
                stride: [1; 3],
                padding: [0, tall.window.padding(), wide.window.padding()],
                dilation: [1, tall.window.dilation(), wide.window.dilation()],
                output_padding: [0; 3],
                transposed: false,
                layout,
                ..p
            };
            let conv =
                Conv::new(params).ok_or("internal error: the parameters of a phase are invalid")?;
            let [_, rows, columns] = conv.output();
            let conv = conv.along_rows();
            let made = builder.make_in_order(&shape(&p, rank, [rows, columns]), &order)?;
            let (weights, form) = phase_weights(builder, weights, &conv, [tall.taps, wide.taps])?;
            let (min, max) = (f32::NEG_INFINITY, f32::INFINITY);
            let (from, bias) = (input.offset, bias.clone());
            let step = Prepared { conv, from, weights, form, bias, beta: 0.0, min, max };
            builder.push(step, &[&input], &made);
            let (mut made, mut target) = (Some(made), Some(out.clone()));
            // Convolutions with one spatial dim have no height.
            let dims = if rank == 3 {
                &[(2, wide, width)][..]
            } else {
                &[(2, tall, height), (3, wide, width)]
            };
            for (dim, phase, size) in dims.iter().copied() {
                let end = phase.skip + phase.count;
                made = made.and_then(|made| made.sliced(dim, phase.skip, end, 1));
                target =
                    target.and_then(|target| target.sliced(dim, phase.start, size, phase.every));
            }
            let parts =
                made.zip(target).ok_or("internal error: a phase lies outside the output")?;
            copy(builder, &parts.0, &parts.1);
        }
    }
    Ok(out)
}

/// Selects and packs the weights of a phase from the weights `[in, out per group, height, width]`
/// of the transposed convolution.
fn phase_weights<'p>(
    builder: &mut Builder<'_, 'p>,
    id: ValueId,
    conv: &Conv,
    taps: [Taps; 2],
) -> Result<(Constant<'p>, WeightForm), Refusal> {
    let p = *conv.params();
    let (channels, groups) = ([p.in_channels, p.out_channels], p.groups.max(1));
    let form =
        Form::Phase { channels, groups, channels_last: p.layout == Layout::ChannelsLast, taps };
    let [inputs, outputs] = channels.map(|count| count / groups);
    let [tall, wide] = taps;
    let plain = WeightForm::contiguous(inputs, p.kernel);
    let WeightForm::Strided(strides) = plain else {
        return Err("internal error: weights that are already packed".into());
    };
    let count = inputs.saturating_mul(p.out_channels).saturating_mul(tall.count * wide.count);
    let packed_len = conv.packed_weights_len(builder.machine.tier);
    let packed_len = packed_len.ok_or("weights that exceed the address space")?;
    let len = if packed_len == 0 { count } else { packed_len };
    let all = tall.kernel.saturating_mul(wide.kernel);
    let made = builder.packed(id, form, len, |context, data, packed| {
        let weights = (0..count).map(|at| {
            let (at, x) = (at / wide.count, wide.at(at % wide.count));
            let (at, y) = (at / tall.count, tall.at(at % tall.count));
            let (input, output) = (at % inputs, at / inputs);
            let input = output / outputs * inputs + input;
            let at = (input * outputs + output % outputs) * all + y * wide.kernel + x;
            data.get(at).copied()
        });
        let weights: Option<Vec<f32>> = weights.collect();
        let weights = weights.ok_or("weights with less data than their shape requires")?;
        if packed_len == 0 {
            packed.copy_from_slice(&weights);
            return Ok(());
        }
        let packed = conv.pack_weights(context, &weights, strides, packed);
        packed.map_err(|_| "weights with less data than their shape requires".into())
    })?;
    Ok((made, if packed_len == 0 { plain } else { WeightForm::Packed }))
}

/// Selects the memory layout in which a plain convolution with these channels is computed.
fn layout(groups: usize, [inputs, outputs]: [usize; 2], tier: Tier) -> Layout {
    let group = [inputs, outputs].map(|channels| channels / groups.max(1));
    // With channels last, groups of few channels do not fill a vector, unless the convolution is
    // depthwise or several groups share a vector.
    let is_depthwise = groups == inputs && groups == outputs;
    let few = groups > 1 && !is_depthwise && group[1] < 8 && !share_vectors(groups, group, tier);
    if few { Layout::ChannelsFirst } else { Layout::ChannelsLast }
}

/// Decodes the geometry of a call, for weights of these sizes.
fn geometry(
    builder: &Builder<'_, '_>,
    call: &ConvolutionArgs,
    input: &[usize],
    weights: &[usize],
) -> Result<Conv, Refusal> {
    let spatial = weights.len() - 2;
    let three = |sizes: &[usize]| match *sizes {
        [_, _, width] => [1, 1, width],
        [_, _, height, width] => [1, height, width],
        _ => [1, 1, 1],
    };
    let list = |id: ValueId, absent: usize| {
        let given = builder.integers(id)?;
        let mut all = [absent; 3];
        for (dim, slot) in all.iter_mut().skip(3 - spatial).enumerate() {
            let number = match given[..] {
                [one] => one,
                ref several => *several.get(dim).ok_or_else(|| {
                    std::format!("expected one or {spatial} values, found {several:?}")
                })?,
            };
            *slot = usize::try_from(number).map_err(|_| {
                std::format!("stride, padding or dilation: expected at least 0, found {number}")
            })?;
        }
        Ok::<_, Refusal>(all)
    };
    let transposed = builder.truth(call.transposed)?;
    let groups = usize::try_from(builder.integer(call.groups)?).unwrap_or(0);
    let (first, second) = (weights.first().copied().unwrap_or(0), weights.get(1).copied());
    let second = second
        .unwrap_or(0)
        .checked_mul(groups)
        .ok_or("groups: expected a number that does not overflow the channels")?;
    let (in_channels, out_channels) = if transposed { (first, second) } else { (second, first) };
    if input.get(1) != Some(&in_channels) {
        return Err(std::format!(
            "input shape {input:?} does not match weight shape {weights:?} in {groups} groups"
        ));
    }
    let layout = match layout(groups, [in_channels, out_channels], builder.machine.tier) {
        // Transposed convolutions have no depthwise loops.
        Layout::ChannelsLast if transposed && groups > 1 && out_channels / groups.max(1) < 8 => {
            Layout::ChannelsFirst
        }
        layout => layout,
    };
    let params = ConvParams {
        batch: input.first().copied().unwrap_or(0),
        in_channels,
        out_channels,
        groups,
        input: three(input),
        kernel: three(weights),
        stride: list(call.stride, 1)?,
        padding: list(call.padding, 0)?,
        dilation: list(call.dilation, 1)?,
        output_padding: if transposed { list(call.output_padding, 0)? } else { [0; 3] },
        transposed,
        layout,
    };
    Conv::new(params).ok_or_else(|| {
        std::format!(
            "stride, padding, dilation or groups do not match input shape {input:?} and weight \
             shape {weights:?}"
        )
    })
}

/// Step of a convolution, with its weights.
struct Prepared<'p> {
    conv: Conv,
    /// Offset of the input in its buffer.
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
