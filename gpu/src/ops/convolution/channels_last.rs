//! Depthwise convolutions in channels-last layout.

use crate::derived::Matrices;
use crate::encoder::{Encoder, read, u32_of, write};
use crate::error::Error;
use crate::ops::weights::transposed;
use crate::ops::window::{Window, checked_numel, pair};
use crate::ops::{Entry, operator};
use torchlet_graph::graph::ValueId;
use torchlet_graph::operators::{DepthwiseLastArgs, Operator};
use torchlet_shaders::{DepthwiseLast, DepthwiseLastPush};

pub(in crate::ops) const OPERATORS: &[Entry] = &[operator(Operator::DEPTHWISE_LAST, depthwise)];

/// The maximum number of neighbouring input elements that the shader keeps in registers.
const MAX_NEIGHBOURS: i64 = 16;

/// Arguments: input, weight, bias, stride, padding, dilation, output.
fn depthwise(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = DepthwiseLastArgs::of(args)?;
    let (input, weight) = (e.tensor(call.input)?, e.tensor(call.weight)?);
    let bias = e.optional_tensor(call.bias)?;
    let misfit = || {
        let (input, weight) = (&input.sizes, &weight.sizes);
        Error::Invalid(format!(
            "channels-last input shape {input:?} does not match weight shape {weight:?}"
        ))
    };
    let (&[batch, height, width, channels], &[rows, 1, kernel_y, kernel_x]) =
        (&input.sizes[..], &weight.sizes[..])
    else {
        return Err(misfit());
    };
    let operands = [Some(&input), Some(&weight), bias.as_ref()];
    let floats = operands.into_iter().flatten().all(|operand| operand.element.is_floating());
    let fits = floats
        && rows == channels
        && channels.is_multiple_of(4)
        && bias.as_ref().is_none_or(|bias| bias.sizes == [channels]);
    if !fits {
        return Err(misfit());
    }
    let kernel = [kernel_y, kernel_x].map(|size| i64::try_from(size).unwrap_or(i64::MAX));
    let lists = [e.ints(call.stride)?, e.ints(call.padding)?, e.ints(call.dilation)?];
    let [stride, padding, dilation] =
        [pair(&lists[0], None)?, pair(&lists[1], None)?, pair(&lists[2], None)?];
    let window = |dim: usize| Window::new(kernel[dim], stride[dim], padding[dim], dilation[dim]);
    let (y, x) = (window(0)?, window(1)?);
    let (out_y, out_x) = (y.count(height, false)?, x.count(width, false)?);
    let sizes = [batch, out_y, out_x, channels];
    checked_numel(&sizes)?;
    let out = e.resize(e.out_id(args)?, &sizes)?;
    if !out.element.is_floating() {
        return Err(misfit());
    }
    if out.numel() == 0 {
        return Ok(());
    }

    let taps = kernel_y.checked_mul(kernel_x).ok_or_else(misfit)?;
    let weights = transposed(e, &weight, Matrices { count: 1, rows: channels, columns: taps })?;
    let quads = out.numel() / 4;
    // Neighbouring outputs share inputs if there is enough work.
    let columns = if quads / 4 >= e.busy() { 4 } else { 1 };
    let question = ("depthwise_last", input.element, out.sizes.clone(), [y, x]);
    let columns = e.choose(&out, question, columns, |usual| {
        [1, 2, 4].into_iter().filter(|columns| columns != usual).collect()
    });
    let reach = i64::from(columns - 1) * i64::from(x.stride) + x.reach();
    let pipeline = DepthwiseLast {
        input: input.element,
        weight: weights.element,
        bias: bias.as_ref().unwrap_or(&weights).element,
        output: out.element,
        columns,
        kernel_x: x.kernel as u32,
        stride_x: x.stride as u32,
        dilation_x: x.dilation as u32,
        neighbours: if reach <= MAX_NEIGHBOURS { reach as u32 } else { 1 },
        has_bias: bias.is_some(),
    };
    let push = DepthwiseLastPush {
        batch: u32_of(batch)?,
        channels: u32_of(channels)?,
        pitch: u32_of(weights.size(2))?,
        in_y: i32::try_from(height).map_err(|_| misfit())?,
        in_x: i32::try_from(width).map_err(|_| misfit())?,
        out_y: u32_of(out_y)?,
        out_x: u32_of(out_x)?,
        padding_y: y.padding,
        padding_x: x.padding,
        kernel_y: y.kernel as u32,
        stride_y: y.stride as u32,
        dilation_y: y.dilation as u32,
    };
    let accesses = [
        read(input.id),
        read(weights.id),
        read(bias.as_ref().unwrap_or(&weights).id),
        write(out.id),
    ];
    let invocations = batch * out_y * out_x.div_ceil(columns as usize) * (channels / 4);
    e.dispatch_along_x(&pipeline, accesses, &push, invocations)
}
