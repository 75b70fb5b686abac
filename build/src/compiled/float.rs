//! Translation of single-precision instructions.

use super::operators::{Args, call, windows};
use super::{Bytes, Call, ConvParams, Layout, Step};
use std::borrow::Cow;
use torchlet_core::layout::channels_last_order;
use torchlet_core::rules::window::convolution_windows;
use torchlet_core::{ScalarType, TensorInfo};
use torchlet_graph::method::MethodValue;
use torchlet_portable::compiled::{ConvolveFloat, LinearFloat};

const FLOAT: ScalarType = ScalarType::Float;

/// Layout of input and output of a convolution, chosen as by its kernel.
fn layout(from: &TensorInfo, to: &TensorInfo) -> Option<Layout> {
    let is_last =
        |info: &TensorInfo| channels_last_order(info.rank()) == Some(info.dim_order.clone());
    let is_first = |info: &TensorInfo| info.dim_order.is_sorted();
    if is_last(from) && is_last(to) {
        Some(Layout::ChannelsLast)
    } else if is_first(from) && is_first(to) {
        Some(Layout::ChannelsFirst)
    } else if from.is_channels_last() && to.is_channels_last() {
        Some(Layout::ChannelsLast)
    } else if from.is_contiguous() && to.is_contiguous() {
        Some(Layout::ChannelsFirst)
    } else {
        None
    }
}

/// A contiguous constant.
fn weight<'p>(args: Args<'p>, arg: usize) -> Result<(Bytes<'p>, &'p TensorInfo), String> {
    let data = args.constant(arg, FLOAT)?;
    let info = &args.tensor(arg)?.1.info;
    match info.is_contiguous() {
        true => Ok((data, info)),
        false => Err(format!("argument {arg} is not contiguous")),
    }
}

/// A bias with an element for each of `count` channels; empty if absent.
fn bias(args: Args<'_>, arg: usize, count: usize) -> Result<Bytes<'_>, String> {
    if matches!(args.value(arg)?, MethodValue::None) {
        return Ok(Cow::Borrowed(&[]));
    }
    let (data, info) = weight(args, arg)?;
    match info.numel() == count {
        true => Ok(data),
        false => Err(format!("argument {arg} does not have an element for each channel")),
    }
}

pub(super) fn convolve(args: Args<'_>) -> Result<Step<'_>, String> {
    let ((input, from), (out, to)) = (args.computed(0, FLOAT)?, args.computed(9, FLOAT)?);
    let layout = layout(from, to).ok_or("has images in different memory orders")?;
    let (weights, weight) = weight(args, 1)?;
    let rank = from.rank().checked_sub(2).filter(|rank| (1..=3).contains(rank));
    let rank = rank.ok_or("is not a convolution of one to three spatial dims")?;
    let windows =
        convolution_windows(&weight.sizes, &args.ints(3)?, &args.ints(4)?, &args.ints(5)?);
    let windows = windows.filter(|windows| windows.len() == rank);
    let windows = windows.ok_or("stride, padding or dilation does not match the weights")?;
    let extra = args.ints(7)?;
    let mut params = ConvParams {
        batch: from.size(0),
        in_channels: from.size(1),
        out_channels: to.size(1),
        groups: usize::try_from(args.int(8)?).map_err(|_| "argument 8 is negative")?,
        input: [1; 3],
        kernel: [1; 3],
        stride: [1; 3],
        padding: [0; 3],
        dilation: [1; 3],
        output_padding: [0; 3],
        transposed: args.bool(6)?,
        layout,
    };
    for (dim, window) in windows.iter().enumerate() {
        let axis = 3 - rank + dim;
        params.input[axis] = from.size(2 + dim);
        params.kernel[axis] = window.kernel();
        params.stride[axis] = window.stride();
        params.padding[axis] = window.padding();
        params.dilation[axis] = window.dilation();
        let given = if let [one] = extra[..] { one } else { extra.get(dim).copied().unwrap_or(0) };
        params.output_padding[axis] = usize::try_from(given).unwrap_or(0);
    }
    let workspace = ConvolveFloat::workspace_bytes(params);
    let workspace = workspace.ok_or("the compute engine does not support these parameters")?;
    let bias = bias(args, 2, params.out_channels)?;
    Ok(call(Call::ConvolveFloat { params, weights, bias }, vec![input], out, workspace))
}

pub(super) fn linear(args: Args<'_>) -> Result<Step<'_>, String> {
    let ((input, from), (out, to)) = (args.computed(0, FLOAT)?, args.computed(3, FLOAT)?);
    let (weights, weight) = weight(args, 1)?;
    if !from.is_contiguous() || !to.is_contiguous() || weight.rank() != 2 {
        return Err("is not a contiguous linear layer".into());
    }
    let (channels, depth) = (weight.size(0), weight.size(1));
    let sizes = [from.numel().checked_div(depth).unwrap_or(0), depth, channels];
    let workspace = LinearFloat::workspace_bytes(sizes).ok_or("is too large")?;
    let call_ = Call::LinearFloat { sizes, weights, bias: bias(args, 2, channels)? };
    Ok(call(call_, vec![input], out, workspace))
}

pub(super) fn relu(args: Args<'_>) -> Result<Step<'_>, String> {
    let ((input, from), (out, to)) = (args.computed(0, FLOAT)?, args.computed(1, FLOAT)?);
    match from.same_layout_as(to) {
        true => Ok(call(Call::Relu, vec![input], out, 0)),
        false => Err("changes the memory order".into()),
    }
}

/// Max pooling whose indices nothing reads: the plan refuses other programs.
pub(super) fn max_pool(args: Args<'_>) -> Result<Step<'_>, String> {
    let ((input, from), (out, to)) = (args.computed(0, FLOAT)?, args.computed(6, FLOAT)?);
    let windows = windows(args.pair(1)?, args.strides(2, 1)?, args.pair(3)?, args.pair(4)?)?;
    let rank = from.rank();
    let [rows, columns] = [2, 1].map(|last| rank.checked_sub(last));
    let (Some(rows), Some(columns)) = (rows, columns) else { return Err("is not an image".into()) };
    let channels = from.size(rows.saturating_sub(1));
    let (outer, inner) = match () {
        () if from.is_contiguous() && to.is_contiguous() => (0, 1),
        () if from.is_channels_last() && to.is_channels_last() => (from.size(0), channels),
        () => return Err("has images in different memory orders".into()),
    };
    let area = from.size(rows).saturating_mul(from.size(columns));
    let outer = if inner == 1 { from.numel().checked_div(area).unwrap_or(0) } else { outer };
    let call_ = Call::MaxPoolFloat {
        from: [outer, from.size(rows), from.size(columns), inner],
        to: [to.size(rows), to.size(columns)],
        windows,
    };
    Ok(call(call_, vec![input], out, 0))
}
