//! Translation of instructions to steps. The kernels' prepare functions have already accepted the
//! arguments for the exported shapes (`analysis.rs`); this adds what compiled calls require.

use super::{Call, Extent, Results, Scales, Span, Step, Window, float};
use crate::names::escaped;
use std::borrow::Cow;
use torchlet_core::layout::{DimOrder, channels_last_order, contiguous_order, same_layout};
use torchlet_core::{Scalar, ScalarType, TensorInfo};
use torchlet_graph::method::{Instruction, Method, MethodTensor, MethodValue, TensorData};
use torchlet_portable::compiled::{Convolve, Linear, Scale};

/// Maximum number of instructions. The plan compares all pairs of values.
const MAX_INSTRUCTIONS: usize = 4096;

/// Maximum size in bytes of the constants of all calls, each counted as often as it is used: more
/// than the flash of any microcontroller. Some calls copy theirs.
const MAX_CONSTANTS: usize = 64 << 20;

/// Bytes of the constants that an instruction uses.
fn constant_bytes(method: &Method<'_>, args: &[usize]) -> usize {
    let tensors = args.iter().filter_map(|&arg| method.tensor(arg));
    let sizes = tensors.filter(|tensor| tensor.is_constant()).map(|tensor| tensor.info.nbytes());
    sizes.fold(0, usize::saturating_add)
}

/// Checks that compiling a method takes limited time and memory.
pub(super) fn check_limits(method: &Method<'_>) -> Result<(), String> {
    if method.instructions.len() > MAX_INSTRUCTIONS {
        let found = method.instructions.len();
        return Err(format!("has {found} instructions, more than {MAX_INSTRUCTIONS}"));
    }
    let mut constants = 0usize;
    for instruction in &method.instructions {
        let Instruction::Kernel { args, .. } = instruction else { continue };
        constants = constants.saturating_add(constant_bytes(method, args));
    }
    match constants > MAX_CONSTANTS {
        true => {
            Err(format!("its calls use {constants} bytes of constants, more than {MAX_CONSTANTS}"))
        }
        false => Ok(()),
    }
}

/// The steps of a method.
///
/// # Errors
/// All instructions that cannot be compiled, each with the reason.
pub(super) fn steps<'p>(method: &'p Method<'p>) -> Result<Vec<Step<'p>>, Vec<String>> {
    let (mut steps, mut reasons) = (Vec::new(), Vec::new());
    for (index, instruction) in method.instructions.iter().enumerate() {
        let Instruction::Kernel { name, overload, args } = instruction else { continue };
        let name = if overload.is_empty() { name.clone() } else { format!("{name}.{overload}") };
        match step(&name, Args { method, args }) {
            Ok(step) => steps.push(step),
            Err(reason) => {
                reasons.push(format!("instruction {index}, {}: {reason}", escaped(&name)));
            }
        }
    }
    if reasons.is_empty() { Ok(steps) } else { Err(reasons) }
}

fn step<'p>(name: &str, args: Args<'p>) -> Result<Step<'p>, String> {
    let (operator, is_nhwc) = match name.strip_suffix("_nhwc.out") {
        Some(operator) => (operator, true),
        None => (name.strip_suffix(".out").unwrap_or(name), false),
    };
    let order = if is_nhwc { Order::Memory } else { Order::Logical };
    match operator {
        "cortex_m::quantize_per_tensor" | "quantized_decomposed::quantize_per_tensor" => {
            quantize(args)
        }
        "cortex_m::dequantize_per_tensor" => dequantize(args, 6),
        "quantized_decomposed::dequantize_per_tensor" => dequantize(args, 7),
        "cortex_m::quantized_conv2d" => convolve(args, order, false),
        "cortex_m::quantized_transpose_conv2d" => convolve(args, order, true),
        "cortex_m::quantized_depthwise_conv2d" => depthwise(args, order),
        "cortex_m::quantized_linear" => linear(args),
        "cortex_m::quantized_add" => add(args),
        "cortex_m::quantized_avg_pool2d" => average_pool(args, order),
        "cortex_m::quantized_max_pool2d" => max_pool(args, order),
        "cortex_m::softmax" => softmax(args),
        "cortex_m::pad" => pad(args),
        "aten::view_copy" | "aten::clone" | "dim_order_ops::_clone_dim_order" => view(args),
        "aten::convolution" => float::convolve(args),
        "aten::linear" => float::linear(args),
        "aten::relu" => float::relu(args),
        "aten::max_pool2d_with_indices" => float::max_pool(args),
        _ => Err("has no compiled form".into()),
    }
}

/// Arguments of an instruction.
#[derive(Clone, Copy)]
pub(super) struct Args<'p> {
    pub(super) method: &'p Method<'p>,
    args: &'p [usize],
}

impl<'p> Args<'p> {
    pub(super) fn bool(self, arg: usize) -> Result<bool, String> {
        match self.scalar(self.value(arg)?, arg)? {
            Scalar::Bool(value) => Ok(value),
            _ => Err(format!("argument {arg} is not a boolean")),
        }
    }

    pub(super) fn value(self, arg: usize) -> Result<&'p MethodValue<'p>, String> {
        let value = self.args.get(arg).and_then(|&value| self.method.values.get(value));
        value.ok_or_else(|| format!("argument {arg} is missing"))
    }

    fn scalar(self, value: &MethodValue<'_>, arg: usize) -> Result<Scalar, String> {
        match value {
            MethodValue::Scalar(scalar) => Ok(*scalar),
            _ => Err(format!("argument {arg} is not a number")),
        }
    }

    pub(super) fn int(self, arg: usize) -> Result<i64, String> {
        match self.scalar(self.value(arg)?, arg)? {
            Scalar::Int(value) => Ok(value),
            _ => Err(format!("argument {arg} is not an integer")),
        }
    }

    fn int32(self, arg: usize) -> Result<i32, String> {
        i32::try_from(self.int(arg)?).map_err(|_| format!("argument {arg} is out of range"))
    }

    fn double(self, arg: usize) -> Result<f64, String> {
        match self.scalar(self.value(arg)?, arg)? {
            Scalar::Double(value) => Ok(value),
            Scalar::Int(value) => Ok(value as f64),
            Scalar::Bool(_) => Err(format!("argument {arg} is not a number")),
        }
    }

    pub(super) fn ints(self, arg: usize) -> Result<Vec<i64>, String> {
        let MethodValue::Ints(items) = self.value(arg)? else {
            return Err(format!("argument {arg} is not a list of integers"));
        };
        let item = |&item: &usize| match self.method.values.get(item) {
            Some(MethodValue::Scalar(Scalar::Int(value))) => Ok(*value),
            _ => Err(format!("argument {arg} is not a list of integers")),
        };
        items.iter().map(item).collect()
    }

    /// Two integers; a single one counts for both.
    pub(super) fn pair(self, arg: usize) -> Result<[i64; 2], String> {
        match self.ints(arg)?[..] {
            [one] => Ok([one, one]),
            [first, second] => Ok([first, second]),
            _ => Err(format!("argument {arg} is not a pair")),
        }
    }

    fn bounds(self, arg: usize) -> Result<(i32, i32), String> {
        let bounds = (self.int32(arg)?, self.int32(arg + 1)?);
        bounds_within(bounds).ok_or_else(|| format!("argument {arg}: bounds exceed int8"))
    }

    fn scale(self, arg: usize) -> Result<(i32, i32), String> {
        let scale = Scale::new(self.int(arg)?, self.int(arg + 1)?);
        let scale = scale.ok_or_else(|| format!("argument {arg}: the scale is out of range"))?;
        Ok((scale.multiplier(), scale.shift()))
    }

    /// A tensor argument: its value, and the tensor.
    pub(super) fn tensor(self, arg: usize) -> Result<(usize, &'p MethodTensor<'p>), String> {
        let value = self.args.get(arg).copied();
        let tensor = value.and_then(|value| Some((value, self.method.tensor(value)?)));
        tensor.ok_or_else(|| format!("argument {arg} is not a tensor"))
    }

    /// A tensor of a dtype that a call computes: not a constant.
    pub(super) fn computed(
        self,
        arg: usize,
        dtype: ScalarType,
    ) -> Result<(usize, &'p TensorInfo), String> {
        let (value, tensor) = self.tensor(arg)?;
        if tensor.is_constant() {
            return Err(format!("argument {arg} is a constant"));
        }
        if tensor.info.scalar_type != dtype {
            let found = tensor.info.scalar_type;
            return Err(format!("argument {arg}: expected {dtype:?}, found {found:?}"));
        }
        Ok((value, &tensor.info))
    }

    /// An int8 tensor with this memory order.
    fn quantized(self, arg: usize, order: Order) -> Result<(usize, &'p TensorInfo), String> {
        let (value, info) = self.computed(arg, ScalarType::Char)?;
        if !same_layout(&info.sizes, &info.dim_order, &order.dim_order(info.rank())) {
            return Err(format!("argument {arg} ({info}) is in another memory order"));
        }
        Ok((value, info))
    }

    /// An int8 image with this order of sizes.
    fn image(self, arg: usize, order: Order) -> Result<(usize, Extent), String> {
        let (value, info) = self.quantized(arg, order)?;
        if info.rank() != 4 {
            return Err(format!("argument {arg} is not an image"));
        }
        let dims = match order {
            Order::Logical => [2, 3, 1],
            Order::Memory => [1, 2, 3],
        };
        Ok((value, dims.map(|dim| info.size(dim))))
    }

    /// The data of a constant.
    pub(super) fn constant(self, arg: usize, dtype: ScalarType) -> Result<Cow<'p, [u8]>, String> {
        let (_, tensor) = self.tensor(arg)?;
        let TensorData::Inside(data) = &tensor.data else {
            return Err(format!("argument {arg} is not a constant"));
        };
        if !tensor.is_constant() || tensor.info.scalar_type != dtype {
            return Err(format!("argument {arg} is not a constant of {dtype:?}"));
        }
        let data = data.get(..tensor.info.nbytes());
        let data = data.ok_or_else(|| format!("argument {arg} has less data than its shape"))?;
        Ok(Cow::Borrowed(data))
    }

    fn constant_ints(self, arg: usize) -> Result<Vec<i32>, String> {
        let data = self.constant(arg, ScalarType::Int)?;
        let (words, _) = data.as_chunks::<4>();
        Ok(words.iter().map(|word| i32::from_le_bytes(*word)).collect())
    }

    /// Constants for each of `count` channels, or an empty list for `None`.
    fn optional_ints(self, arg: usize, count: usize) -> Result<Vec<i32>, String> {
        let values = match self.value(arg)? {
            MethodValue::None => return Ok(Vec::new()),
            _ => self.constant_ints(arg)?,
        };
        match values.len() == count {
            true => Ok(values),
            false => Err(format!("argument {arg} does not have an element for each channel")),
        }
    }

    /// Sizes of a constant contiguous int8 weight of this rank.
    fn weight<const RANK: usize>(
        self,
        arg: usize,
    ) -> Result<(Cow<'p, [u8]>, [usize; RANK]), String> {
        let data = self.constant(arg, ScalarType::Char)?;
        let (_, tensor) = self.tensor(arg)?;
        if tensor.info.rank() != RANK || !tensor.info.is_contiguous() {
            return Err(format!("argument {arg} is not a contiguous weight of rank {RANK}"));
        }
        Ok((data, std::array::from_fn(|dim| tensor.info.size(dim))))
    }

    fn windows(
        self,
        kernel: [usize; 2],
        stride: usize,
        dilation: usize,
    ) -> Result<Windows, String> {
        let (padding, dilation) = (self.pair(stride + 1)?, self.pair(dilation)?);
        windows(kernel.map(|size| size as i64), self.pair(stride)?, padding, dilation)
    }

    /// Requantization of a convolution: output offset, multipliers, shifts, and bounds.
    fn results(self, offset: usize, count: usize) -> Result<Results, String> {
        let [multipliers, shifts] = [offset + 1, offset + 2].map(|arg| self.constant_ints(arg));
        let (multipliers, shifts) = (multipliers?, shifts?);
        if multipliers.len() != count || shifts.len() != count {
            return Err("multipliers or shifts do not have an element for each channel".into());
        }
        let is_valid = |(&multiplier, &shift): (&i32, &i32)| {
            Scale::new(multiplier.into(), shift.into()).is_some()
        };
        if !multipliers.iter().zip(&shifts).all(is_valid) {
            return Err("a multiplier or a shift is out of range".into());
        }
        Ok(Results {
            scales: Scales::PerChannel(multipliers, shifts),
            bias: self.optional_ints(2, count)?,
            offset: self.int32(offset)?,
            bounds: self.bounds(offset + 3)?,
        })
    }
}

pub(super) type Windows = [Window; 2];

pub(super) fn windows(
    kernel: [i64; 2],
    stride: [i64; 2],
    padding: [i64; 2],
    dilation: [i64; 2],
) -> Result<Windows, String> {
    let windows = [0, 1].map(|dim| [kernel[dim], stride[dim], padding[dim], dilation[dim]]);
    let is_valid = |[kernel, stride, padding, dilation]: &Window| {
        torchlet_portable::compiled::Window::new(*kernel, *stride, *padding, *dilation).is_some()
    };
    match windows.iter().all(is_valid) {
        true => Ok(windows),
        false => Err("kernel, stride, padding or dilation is out of range".into()),
    }
}

fn bounds_within((low, high): (i32, i32)) -> Option<(i32, i32)> {
    (-128 <= low && low <= high && high <= 127).then_some((low, high))
}

/// Order of the sizes of an image, as in the kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// NCHW; the dim order is channels last.
    Logical,
    /// NHWC.
    Memory,
}

impl Order {
    fn dim_order(self, rank: usize) -> DimOrder {
        let channels_last = channels_last_order(rank).filter(|_| self == Order::Logical);
        channels_last.unwrap_or_else(|| contiguous_order(rank))
    }
}

pub(super) fn call<'p>(
    call: Call<'p>,
    inputs: Vec<usize>,
    out: usize,
    workspace: usize,
) -> Step<'p> {
    Step { call, inputs, out, workspace: (workspace, Span::EMPTY) }
}

fn quantize(args: Args<'_>) -> Result<Step<'_>, String> {
    let ((input, from), (out, to)) =
        (args.computed(0, ScalarType::Float)?, args.computed(6, ScalarType::Char)?);
    // Quantization keeps positions in memory, so both must have the same order.
    if !from.same_layout_as(to) {
        return Err("changes the memory order".into());
    }
    let Some(input) = args.method.inputs.iter().position(|&value| value == input) else {
        return Err("quantizes a value that is not an input of the method".into());
    };
    let (inverse, zero) = ((1.0 / args.double(1)?) as f32, args.int32(2)?);
    let call_ = Call::Quantize { input, inverse, zero, bounds: args.bounds(3)? };
    Ok(call(call_, vec![], out, 0))
}

fn dequantize(args: Args<'_>, out: usize) -> Result<Step<'_>, String> {
    let ((input, from), (out, to)) =
        (args.computed(0, ScalarType::Char)?, args.computed(out, ScalarType::Float)?);
    if !from.same_layout_as(to) {
        return Err("changes the memory order".into());
    }
    let (scale, zero) = (args.double(1)? as f32, args.int32(2)?);
    Ok(call(Call::Dequantize { scale, zero }, vec![input], out, 0))
}

fn convolve(args: Args<'_>, order: Order, transposed: bool) -> Result<Step<'_>, String> {
    let (dilation, offset, out) = if transposed { (6, 7, 15) } else { (5, 6, 13) };
    let ((input, from), (out, to)) = (args.image(0, order)?, args.image(out, order)?);
    let (weights, [channels, rows, columns, depth]) = args.weight::<4>(1)?;
    if channels != to[2] {
        return Err("the weight does not have as many channels as the output".into());
    }
    let call_ = Call::Convolve {
        from,
        to,
        windows: args.windows([rows, columns], 3, dilation)?,
        transposed,
        depth,
        offset: args.int32(offset)?,
        results: args.results(offset + 1, channels)?,
        weights,
    };
    let workspace = Convolve::workspace_bytes(depth, rows.saturating_mul(columns));
    Ok(call(call_, vec![input], out, workspace))
}

fn depthwise(args: Args<'_>, order: Order) -> Result<Step<'_>, String> {
    let ((input, from), (out, to)) = (args.image(0, order)?, args.image(14, order)?);
    let (weights, [_, rows, columns, channels]) = args.weight::<4>(1)?;
    if channels != to[2] {
        return Err("the weight does not have as many channels as the output".into());
    }
    let call_ = Call::Depthwise {
        from,
        to,
        windows: args.windows([rows, columns], 3, 5)?,
        multiplier: (channels / from[2].max(1)).max(1),
        offset: args.int32(7)?,
        results: args.results(8, channels)?,
        weights,
    };
    Ok(call(call_, vec![input], out, 0))
}

fn linear(args: Args<'_>) -> Result<Step<'_>, String> {
    let (input, from) = args.quantized(0, Order::Memory)?;
    let (out, _) = args.quantized(11, Order::Memory)?;
    let (weights, [channels, depth]) = args.weight::<2>(1)?;
    let (bias, sums) = (args.optional_ints(2, channels)?, args.optional_ints(3, channels)?);
    let one = |arg| match args.ints(arg)?.first() {
        Some(&value) => Ok(value),
        None => Err(format!("argument {arg} is empty")),
    };
    let scale: (i64, i64) = (one(7)?, one(8)?);
    let scale = Scale::new(scale.0, scale.1).ok_or("the scale is out of range")?;
    // The sums of the weights include the bias and the contribution of the offset.
    let (bias, offset) = match sums.is_empty() {
        true => (bias, args.int32(4)?),
        false => (sums, 0),
    };
    let bounds = bounds_within((args.int32(10)?, args.int32(9)?)).ok_or("bounds exceed int8")?;
    let scales = Scales::One(scale.multiplier(), scale.shift());
    let call_ = Call::Linear {
        depth,
        channels,
        weight_offset: args.int32(5)?,
        offset,
        results: Results { scales, bias, offset: args.int32(6)?, bounds },
        weights,
    };
    let rows = from.numel().checked_div(depth).unwrap_or(0);
    Ok(call(call_, vec![input], out, Linear::workspace_bytes(depth, rows)))
}

fn add(args: Args<'_>) -> Result<Step<'_>, String> {
    let char = ScalarType::Char;
    let [a, b, out] = [0, 4, 13].map(|arg| args.computed(arg, char));
    let ((a, a_info), (b, b_info), (out, out_info)) = (a?, b?, out?);
    if !a_info.same_layout_as(out_info) || !b_info.same_layout_as(out_info) {
        return Err("the operands have different shapes or memory orders".into());
    }
    let call_ = Call::Add {
        zeros: [args.int32(1)?, args.int32(5)?],
        scales: [args.scale(2)?, args.scale(6)?, args.scale(9)?],
        offset: args.int32(8)?,
        bounds: args.bounds(11)?,
    };
    Ok(call(call_, vec![a, b], out, 0))
}

fn average_pool(args: Args<'_>, order: Order) -> Result<Step<'_>, String> {
    let ((input, from), (out, to)) = (args.image(0, order)?, args.image(9, order)?);
    let windows = windows(args.pair(1)?, args.strides(2, 1)?, args.pair(3)?, [1, 1])?;
    Ok(call(Call::AveragePool { images: [from, to], windows }, vec![input], out, 0))
}

fn max_pool(args: Args<'_>, order: Order) -> Result<Step<'_>, String> {
    let ((input, from), (out, to)) = (args.image(0, order)?, args.image(10, order)?);
    let windows = windows(args.pair(1)?, args.strides(2, 1)?, args.pair(3)?, args.pair(4)?)?;
    let bounds = args.bounds(8)?;
    Ok(call(Call::MaxPool { images: [from, to], windows, bounds }, vec![input], out, 0))
}

impl Args<'_> {
    /// Strides of a pooling; an empty list means the kernel's size.
    pub(super) fn strides(self, arg: usize, kernel: usize) -> Result<[i64; 2], String> {
        if self.ints(arg)?.is_empty() { self.pair(kernel) } else { self.pair(arg) }
    }
}

fn softmax(args: Args<'_>) -> Result<Step<'_>, String> {
    let ((input, info), (out, _)) =
        (args.quantized(0, Order::Memory)?, args.quantized(7, Order::Memory)?);
    let (multiplier, shift) = args.scale(4)?;
    let shift = u32::try_from(shift).map_err(|_| "argument 5 is negative")?;
    let width = info.rank().checked_sub(1).map_or(1, |last| info.size(last)).max(1);
    let call_ = Call::Softmax { multiplier, shift, least: args.int32(6)?, width };
    Ok(call(call_, vec![input], out, 0))
}

/// Padding. The lists have four elements, right-aligned to the dims; in memory order for images.
fn pad(args: Args<'_>) -> Result<Step<'_>, String> {
    let ((input, from), (out, to)) =
        (args.computed(0, ScalarType::Char)?, args.computed(4, ScalarType::Char)?);
    let order = if from.rank() == 4 { Order::Logical } else { Order::Memory };
    let order = order.dim_order(from.rank());
    let has_order = |info: &TensorInfo| same_layout(&info.sizes, &info.dim_order, &order);
    // The kernel reads the lists in memory order only in these cases.
    let is_image = from.rank() == 4;
    let is_last = from.size(1) == 1
        || from.size(2) == 1 && from.size(3) == 1
        || from.dim_order == [0, 2, 3, 1];
    if !has_order(from) || !has_order(to) || from.rank() > 4 || is_image && !is_last {
        return Err("the memory order is neither contiguous nor channels last".into());
    }
    let (before, after) = (args.ints(1)?, args.ints(2)?);
    let (Ok(before), Ok(after)) = (<[i64; 4]>::try_from(before), <[i64; 4]>::try_from(after))
    else {
        return Err("padding does not have four elements".into());
    };
    let missing = 4 - from.rank();
    let sizes = |info: &TensorInfo| -> [usize; 4] {
        std::array::from_fn(|axis| {
            let dim = axis.checked_sub(missing).and_then(|axis| order.get(axis).copied());
            dim.map_or(1, |dim| info.size(usize::from(dim)))
        })
    };
    let (from, to) = (sizes(from), sizes(to));
    let is_valid = |axis: usize| {
        let padded = before[axis].checked_add(after[axis]);
        let padded = padded.and_then(|padded| padded.checked_add(from[axis] as i64));
        before[axis] >= 0 && after[axis] >= 0 && padded == Some(to[axis] as i64)
    };
    if !(0..4).all(is_valid) {
        return Err("padding does not match the shapes".into());
    }
    let before = before.map(|before| before as usize);
    let call_ = match from == to {
        true => Call::View,
        false => Call::Pad { from, to, before, value: args.int(3)? as i8 },
    };
    Ok(call(call_, vec![input], out, 0))
}

/// The same values under another shape, or in another memory order.
fn view(args: Args<'_>) -> Result<Step<'_>, String> {
    let (input, tensor) = args.tensor(0)?;
    let last = args.args.last().copied();
    let out = last.and_then(|out| Some((out, args.method.tensor(out)?)));
    let (out, to) = out.ok_or("has no output")?;
    let (from, to) = (&tensor.info, &to.info);
    if tensor.is_constant() {
        return Err("argument 0 is a constant".into());
    }
    if from.scalar_type != to.scalar_type || from.numel() != to.numel() {
        return Err("changes dtype or size".into());
    }
    if from.same_layout_as(to) || from.is_contiguous() && to.is_contiguous() {
        return Ok(call(Call::View, vec![input], out, 0));
    }
    // The elements of the input in the order of its shape.
    if !to.is_contiguous() || from.rank() > 4 {
        return Err(format!("copies {from} to another memory order"));
    }
    let (missing, own) = (4 - from.rank(), from.strides());
    let at = |axis: usize| axis.checked_sub(missing);
    let call_ = Call::Permute {
        sizes: std::array::from_fn(|axis| at(axis).map_or(1, |dim| from.size(dim))),
        strides: std::array::from_fn(|axis| {
            at(axis).and_then(|dim| own.get(dim).copied()).unwrap_or(0)
        }),
        size: from.scalar_type.size(),
    };
    Ok(call(call_, vec![input], out, 0))
}
