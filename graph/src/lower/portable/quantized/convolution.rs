//! Lowers convolutions with quantized weights.

use super::linear::{first, rounded};
use super::weights::by_channel;
use super::{dequantize, finish, is_relu, pair, quantize, through_codes};
use crate::error::Error;
use crate::graph::{Value, ValueId};
use crate::lower::portable::Rule;
use crate::lower::portable::builder::{Builder, Info};
use crate::operators::{
    Conv2dQ8cswArgs, Conv2dQ8taQ8cswArgs, DynamicConvolutionArgs, Operator, Q8taConv2dArgs,
    Q8taConv2dTestArgs, Q8taConv2dTransposedArgs, QuantizedConvolution,
};
use alloc::format;
use alloc::vec::Vec;
use torchlet_core::ScalarType;

pub(in crate::lower::portable) const RULES: &[(Operator, Rule)] = &[
    (Operator::ET_VK_Q8TA_CONV2D, q8ta_conv2d),
    (Operator::ET_VK_Q8TA_CONV2D_DW, q8ta_conv2d),
    (Operator::ET_VK_Q8TA_CONV2D_PW, q8ta_conv2d),
    (Operator::ET_VK_Q8TA_CONV2D_GENERAL, q8ta_conv2d),
    (Operator::ET_VK_Q8TA_CONV2D_IM2COL, q8ta_conv2d),
    (Operator::ET_VK_CONV2D_Q8TA_Q8CSW_Q8TO, q8ta_conv2d),
    (Operator::ET_VK_CONV2D_Q8TA_Q8CSW_Q8TO_DW, q8ta_conv2d),
    (Operator::ETVK_TEST_CONV2D_Q8TA_Q8CSW_Q8TO, |b, args| {
        // Quantizes its input and dequantizes its output. The schema has a layout argument before
        // the output.
        let call = Q8taConv2dTestArgs::of(args)?;
        let (sums, _) = convolve(b, &call.into())?;
        let parameters = pair(b, [call.output_scale, call.output_zero_point])?;
        let codes = quantize(b, sums, parameters, ScalarType::Char)?;
        let numbers = dequantize(b, codes, parameters)?;
        b.finish_with(numbers, call.out)
    }),
    (Operator::ET_VK_Q8TA_CONV2D_TRANSPOSED, |b, args| {
        convolution(b, &Q8taConv2dTransposedArgs::of(args)?.into())
    }),
    (Operator::DYNAMIC_CONVOLUTION, dynamic),
    (Operator::ET_VK_CONV2D_Q8TA_Q8CSW, |b, args| {
        convolution(b, &Conv2dQ8taQ8cswArgs::of(args)?.into())
    }),
    (Operator::ET_VK_CONV2D_Q8CSW, |b, args| convolution(b, &Conv2dQ8cswArgs::of(args)?.into())),
];

fn q8ta_conv2d(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    convolution(b, &Q8taConv2dArgs::of(args)?.into())
}

fn convolution(b: &mut Builder<'_, '_>, call: &QuantizedConvolution) -> Result<(), Error> {
    let (sums, relu) = convolve(b, call)?;
    let output = call.output_parameters.map(|parameters| pair(b, parameters)).transpose()?;
    finish(b, sums, relu, output, call.out)
}

/// A dynamically quantized convolution, with parameters per image.
fn dynamic(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = DynamicConvolutionArgs::of(args)?;
    let (input, info) = b.tensor(call.input)?;
    let transposed = b.truth(call.transposed)?;
    let (Some(batch), 4) = (info.sizes.first().copied(), info.rank()) else {
        return Err(Error::Invalid(format!(
            "input: expected 4 dims, found shape {:?}",
            info.sizes
        )));
    };
    // The minimum and maximum of an image give the same parameters as the whole image.
    let (dims, keep) = (b.new_ints(&[1, 2, 3]), b.push(Value::Bool(true)));
    let one = info.with_sizes([batch, 1, 1, 1].to_vec());
    let least = b.call(Operator::AMIN, &[input, dims, keep], one.clone());
    let largest = b.call(Operator::AMAX, &[input, dims, keep], one.clone());
    let (list, last) = (b.push(Value::List([least, largest].to_vec())), b.new_int(-1));
    let ends = info.with_sizes([batch, 1, 1, 2].to_vec());
    let ends = b.call(Operator::CAT, &[list, last], ends);
    let scale = b.new_tensor(one.with_type(ScalarType::Float));
    let zero = b.new_tensor(one.with_type(ScalarType::Long));
    let list = b.push(Value::List([scale, zero].to_vec()));
    let number = b.new_int(ScalarType::Char as i64);
    let choose = Operator::QUANTIZED_DECOMPOSED_CHOOSE_QPARAMS_PER_TOKEN_ASYMMETRIC;
    b.call_into(choose, &[ends, number], list);
    let zero = b.cast(zero, ScalarType::Float)?;
    let input = rounded(b, input, scale, zero)?;
    let output_padding = transposed.then_some(call.output_padding);
    let call = QuantizedConvolution { input, output_padding, ..call.into() };
    convolution(b, &call)
}

/// Shape of the weights.
struct Kernels {
    groups: usize,
    /// Input and output channels per group.
    group_in: usize,
    group_out: usize,
    size: [usize; 2],
    transposed: bool,
}

/// Adds the convolution in floating point. Returns its result, and whether a relu follows.
fn convolve(
    b: &mut Builder<'_, '_>,
    call: &QuantizedConvolution,
) -> Result<(ValueId, bool), Error> {
    let (input, info) = b.tensor(call.input)?;
    let (stored, weight) = b.tensor(call.weights)?;
    let bad = || {
        Error::Invalid(format!(
            "input shape {:?} does not match weight shape {:?}, the groups or the kernel size",
            info.sizes, weight.sizes
        ))
    };
    let channels = info.rank().checked_sub(3).map(|dim| info.size(dim)).ok_or_else(bad)?;
    let groups = usize::try_from(b.int(call.groups)?).ok();
    let groups = groups.filter(|groups| *groups > 0).ok_or_else(bad)?;
    let depthwise = weight.rank() == 3;
    // Depthwise weights have one column per channel, perhaps with padding.
    let out_channels = if depthwise { weight.last().min(channels) } else { weight.size(0) };
    let size = match b.ints(call.kernel_size)?[..] {
        [both] => [both, both],
        [y, x] => [y, x],
        _ => return Err(bad()),
    };
    let size = size.map(|size| usize::try_from(size).unwrap_or(0));
    let kernels = Kernels {
        groups,
        group_in: channels / groups,
        group_out: out_channels / groups,
        size,
        transposed: call.output_padding.is_some(),
    };
    let codes = if depthwise {
        depthwise_codes(b, stored, &weight, out_channels, size)?
    } else {
        kernels.codes(b, stored, &weight)?
    };
    // The groups of a transposed convolution share the scales of one.
    let (axis, count) = if kernels.transposed { (1, kernels.group_out) } else { (0, out_channels) };
    let scales = first(b, call.weight_scales, count)?;
    let weight = by_channel(b, codes, scales, axis)?;
    let input = match call.input_parameters {
        Some(parameters) => through_codes(b, input, pair(b, parameters)?)?,
        None => b.cast(input, ScalarType::Float)?,
    };
    let bias = match b.optional(call.bias) {
        Some(bias) => first(b, bias, out_channels)?,
        None => b.none(),
    };
    let transposed = b.push(Value::Bool(kernels.transposed));
    let output_padding = call.output_padding.unwrap_or_else(|| b.new_ints(&[0, 0]));
    let inputs = [
        input,
        weight,
        bias,
        call.stride,
        call.padding,
        call.dilation,
        transposed,
        output_padding,
        call.groups,
    ];
    let relu = is_relu(b, call.activation)?;
    let made = b.info(call.out)?;
    let made = Info { scalar_type: ScalarType::Float, dynamic: info.dynamic, ..made };
    Ok((b.call(Operator::CONVOLUTION, &inputs, made), relu))
}

/// Rearranges depthwise weights from `[y][x][channel]` to `[channel, 1, y, x]`.
fn depthwise_codes(
    b: &mut Builder<'_, '_>,
    stored: ValueId,
    weight: &Info,
    channels: usize,
    [y, x]: [usize; 2],
) -> Result<ValueId, Error> {
    let (taps, columns) = (y.saturating_mul(x), weight.last());
    let rows = weight.size(0).saturating_mul(weight.size(1));
    if taps == 0 || taps > rows {
        return Err(Error::Invalid(format!(
            "depthwise weight shape {:?} does not match a {y}x{x} kernel",
            weight.sizes
        )));
    }
    let flat = b.view_known(stored, &[rows, columns])?;
    let part = b.slice_known(flat, 0, 0, taps, 1)?;
    let part = b.slice_known(part, 1, 0, channels, 1)?;
    let split = b.view_known(part, &[y, x, 1, channels])?;
    b.permute(split, &[3, 2, 0, 1])
}

impl Kernels {
    /// Rearranges weights from `[output channel][y][x][input channel]` to `[out, in, y, x]`, or
    /// `[in, out, y, x]` for transposed convolutions.
    fn codes(
        &self,
        b: &mut Builder<'_, '_>,
        stored: ValueId,
        weight: &Info,
    ) -> Result<ValueId, Error> {
        let [y, x] = self.size;
        let Kernels { groups, group_in, group_out, .. } = *self;
        let row = y.saturating_mul(x).saturating_mul(group_in);
        let fits = weight.rank() == 2
            && row > 0
            && row <= weight.size(1)
            && group_out > 0
            && groups.checked_mul(group_out) == Some(weight.size(0));
        if !fits {
            let weight = &weight.sizes;
            return Err(Error::Invalid(format!(
                "weight shape {weight:?} does not match a {y}x{x} kernel over {group_in} channels \
                 per group"
            )));
        }
        let part = b.slice_known(stored, 1, 0, row, 1)?;
        let split = b.view_known(part, &[groups, group_out, y, x, group_in])?;
        let order: &[usize] = if self.transposed { &[0, 4, 1, 2, 3] } else { &[0, 1, 4, 2, 3] };
        let ordered = b.permute(split, order)?;
        let sizes: Vec<usize> = if self.transposed {
            [groups * group_in, group_out, y, x].to_vec()
        } else {
            [groups * group_out, group_in, y, x].to_vec()
        };
        b.view_known(ordered, &sizes)
    }
}
