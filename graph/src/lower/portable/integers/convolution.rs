//! Lowers int8 convolutions.

use super::{
    Channels, Entry, RANGE, constant, lowest, new_constant, new_integers, no_scratch, on_image,
};
use crate::error::Error;
use crate::graph::{Value, ValueId};
use crate::lower::portable::builder::Builder;
use crate::operators::{Operator, Q8taConv2dArgs, Q8taConv2dTransposedArgs};
use alloc::borrow::Cow;
use alloc::format;
use alloc::vec::Vec;
use torchlet_core::ScalarType;

pub(super) const RULES: &[Entry] = &[
    (Operator::ET_VK_Q8TA_CONV2D, convolution, Operator::CORTEX_M_QUANTIZED_CONV2D_NHWC),
    (Operator::ET_VK_Q8TA_CONV2D_DW, depthwise, Operator::CORTEX_M_QUANTIZED_DEPTHWISE_CONV2D_NHWC),
    (
        Operator::ET_VK_Q8TA_CONV2D_TRANSPOSED,
        transposed,
        Operator::CORTEX_M_QUANTIZED_TRANSPOSE_CONV2D_NHWC,
    ),
];

/// A convolution with groups: `(input, scale, zero, weight, sums, scales, scale, zero, bias,
/// kernel, stride, padding, dilation, groups, activation)`.
fn convolution(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = Q8taConv2dArgs::of(args)?;
    let groups = b.int(call.groups)?;
    let channels = b.tensor(call.input)?.1.size(1) as i64;
    let depth = channels.checked_div(groups).filter(|depth| depth * groups == channels);
    let depth = depth.and_then(|depth| usize::try_from(depth).ok());
    let depth = depth.ok_or_else(|| {
        Error::Invalid(format!("{channels} channels are not divisible into {groups} groups"))
    })?;
    let [height, width] = kernel(b, call.kernel_size)?;
    let (weight, count) = weight(b, call.weights, |rows| [rows, height, width, depth], 0)?;
    let (channels, [from, to]) =
        Channels::of_convolution(b, &call.into(), count, product([height, width, depth]))?;
    let low = lowest(b, call.activation, to)?;
    let mut rest = [weight, channels.bias(b), call.stride, call.padding, call.dilation].to_vec();
    rest.push(b.new_int(-from.zero));
    finish(b, args, Operator::CORTEX_M_QUANTIZED_CONV2D_NHWC, rest, &channels, [to.zero, low])
}

/// A depthwise convolution, with weights `[height, width, channels]`.
fn depthwise(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = Q8taConv2dArgs::of(args)?;
    let [height, width] = kernel(b, call.kernel_size)?;
    let inputs = b.tensor(call.input)?.1.size(1);
    let (weight, _) = weight(b, call.weights, |_| [1, height, width, inputs], 2)?;
    let (channels, [from, to]) =
        Channels::of_convolution(b, &call.into(), inputs, product([height, width, 1]))?;
    let low = lowest(b, call.activation, to)?;
    let mut rest = [weight, channels.bias(b), call.stride, call.padding, call.dilation].to_vec();
    rest.extend([b.new_int(1), b.new_int(-from.zero)]);
    let operator = Operator::CORTEX_M_QUANTIZED_DEPTHWISE_CONV2D_NHWC;
    finish(b, args, operator, rest, &channels, [to.zero, low])
}

/// A transposed convolution with one group. Its output padding comes before the dilation.
fn transposed(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = Q8taConv2dTransposedArgs::of(args)?;
    if b.int(call.groups)? != 1 {
        return Err(Error::unsupported("quantized transposed convolution with several groups"));
    }
    let [height, width] = kernel(b, call.kernel_size)?;
    let depth = b.tensor(call.input)?.1.size(1);
    let (weight, count) = weight(b, call.weights, |rows| [rows, height, width, depth], 0)?;
    let (channels, [from, to]) =
        Channels::of_convolution(b, &call.into(), count, product([height, width, depth]))?;
    let low = lowest(b, Some(call.activation), to)?;
    let mut rest = [weight, channels.bias(b), call.stride, call.padding].to_vec();
    rest.extend([call.output_padding, call.dilation]);
    rest.push(b.new_int(-from.zero));
    let operator = Operator::CORTEX_M_QUANTIZED_TRANSPOSE_CONV2D_NHWC;
    finish(b, args, operator, rest, &channels, [to.zero, low])
}

/// Number of products per sum.
fn product(sizes: [usize; 3]) -> usize {
    sizes.iter().fold(1, |all: usize, size| all.saturating_mul(*size))
}

/// Height and width of the kernel.
fn kernel(b: &Builder<'_, '_>, kernel_size: ValueId) -> Result<[usize; 2], Error> {
    let sizes = b.ints(kernel_size)?;
    let size = |at: usize| sizes.get(at).and_then(|size| usize::try_from(*size).ok());
    match (sizes.len(), size(0), size(1)) {
        (2, Some(height), Some(width)) => Ok([height, width]),
        _ => Err(Error::Invalid(format!(
            "kernel_size: expected 2 nonnegative integers, found {sizes:?}"
        ))),
    }
}

/// Reshapes weights to the layout of the kernel, with the same order of elements. Also returns the
/// size of dim `dim` before that.
fn weight(
    b: &mut Builder<'_, '_>,
    id: ValueId,
    sizes: impl FnOnce(usize) -> [usize; 4],
    dim: usize,
) -> Result<(ValueId, usize), Error> {
    let (tensor, _) = constant(b, id)?;
    let (found, scalar_type) = (tensor.sizes.clone(), tensor.scalar_type);
    let count = found.get(dim).copied().unwrap_or(0);
    let sizes = sizes(count);
    let numel = |sizes: &[usize]| sizes.iter().try_fold(1usize, |all, size| all.checked_mul(*size));
    if scalar_type != ScalarType::Char || numel(&found) != numel(&sizes) {
        return Err(Error::Unsupported(format!(
            "weights of {scalar_type} {found:?}; expected int8 of shape {sizes:?}"
        )));
    }
    let data = match b.value(id)? {
        Value::Tensor(tensor) => tensor.data.clone(),
        _ => None,
    };
    let data = data.unwrap_or(Cow::Borrowed(&[]));
    Ok((new_constant(b, scalar_type, sizes.to_vec(), data), count))
}

/// Adds the call, with the arguments that all three operators have after the input offset.
fn finish(
    b: &mut Builder<'_, '_>,
    args: &[ValueId],
    operator: Operator,
    mut rest: Vec<ValueId>,
    channels: &Channels,
    [zero, low]: [i64; 2],
) -> Result<(), Error> {
    let [_, high] = RANGE;
    rest.push(b.new_int(zero));
    rest.push(new_integers(b, &channels.fractions()));
    rest.push(new_integers(b, &channels.shifts()));
    rest.extend([b.new_int(low), b.new_int(high), no_scratch(b)]);
    if operator == Operator::CORTEX_M_QUANTIZED_TRANSPOSE_CONV2D_NHWC {
        rest.push(no_scratch(b));
    }
    let (input, out) = b.ends(args)?;
    on_image(b, operator, input, &rest, out)
}
