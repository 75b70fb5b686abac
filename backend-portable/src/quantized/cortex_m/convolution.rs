//! int8 convolution.

use super::relayout::{Relayout, copies_len};
use super::{Order, int};
use crate::compute::q8::Results;
use crate::compute::q8::convolve::{self, Convolution};
use crate::compute::q8::depthwise::{self, Depthwise};
use crate::compute::simd::Tier;
use crate::machine;
use crate::scratch::bytes_for;
use crate::shape::bad;
use crate::table::kernels;
use torchlet_core::Param;
use torchlet_core::Param::{Int, IntList, OptionalTensor, Out, Scratch, Tensor};
use torchlet_core::rules::window::{Window, Windows, windows};
use torchlet_core::{
    Arguments, Elements, Invoke, InvokeFn, Kernel, KernelError, Plan, Prepare, ScalarType,
    TensorInfo,
};

const PLAIN_PARAMS: &[Param] = &[
    Tensor,
    Tensor,
    OptionalTensor,
    IntList,
    IntList,
    IntList,
    Int,
    Int,
    Tensor,
    Tensor,
    Int,
    Int,
    Scratch,
    Out,
];
const DEPTHWISE_PARAMS: &[Param] = &[
    Tensor,
    Tensor,
    OptionalTensor,
    IntList,
    IntList,
    IntList,
    Int,
    Int,
    Int,
    Tensor,
    Tensor,
    Int,
    Int,
    Scratch,
    Out,
];
const TRANSPOSED_PARAMS: &[Param] = &[
    Tensor,
    Tensor,
    OptionalTensor,
    IntList,
    IntList,
    IntList,
    IntList,
    Int,
    Int,
    Tensor,
    Tensor,
    Int,
    Int,
    Scratch,
    Scratch,
    Out,
];

/// Kernel of grouped convolution.
macro_rules! plain {
    ($name:literal, $order:expr) => {
        Kernel::new($name, PLAIN_PARAMS, |ctx| {
            const ARGS: ArgIndices = ArgIndices::plain($order);
            let (_, from) = ARGS.order.image(ctx, 0)?;
            let weight = ctx.info(1)?;
            let (channels, depth) = (from.channels, weight.size(3));
            let outputs = weight.sizes.first().copied().unwrap_or(0);
            if depth == 0
                || channels % depth != 0
                || channels == 0
                || weight.size(0) % (channels / depth) != 0
            {
                return Err(bad(
                    1,
                    "weights: input and output channels are not divisible into groups",
                ));
            }
            let size = |window: &Window, _: usize, size: usize| window.convolved(size);
            let plan = prepare(ctx, ARGS, outputs, &size, |ctx| convolve(ctx, ARGS))?;
            with_patches(ctx, ARGS, plan)
        })
        .with_elements(Elements::Typed)
    };
}

/// Kernel of depthwise convolution.
macro_rules! depthwise {
    ($name:literal, $order:expr) => {
        Kernel::new($name, DEPTHWISE_PARAMS, |ctx| {
            const ARGS: ArgIndices = ArgIndices::depthwise($order);
            let (_, from) = ARGS.order.image(ctx, 0)?;
            let weight = ctx.info(1)?;
            let outputs = weight.sizes.get(3).copied().unwrap_or(0);
            let channels = i64::try_from(from.channels).unwrap_or(0);
            if weight.size(0) != 1
                || channels.checked_mul(ctx.int(6)?) != Some(outputs.into())
                || outputs == 0
            {
                return Err(bad(
                    1,
                    "weights: expected as many channels as the input times the depth multiplier",
                ));
            }
            let size = |window: &Window, _: usize, size: usize| window.convolved(size);
            prepare(ctx, ARGS, outputs, &size, |ctx| depthwise(ctx, ARGS))
        })
        .with_elements(Elements::Typed)
    };
}

/// Kernel of transposed convolution.
macro_rules! transposed {
    ($name:literal, $order:expr) => {
        Kernel::new($name, TRANSPOSED_PARAMS, |ctx| {
            const ARGS: ArgIndices = ArgIndices::transposed($order);
            let (_, from) = ARGS.order.image(ctx, 0)?;
            let weight = ctx.info(1)?;
            let outputs = weight.sizes.first().copied().unwrap_or(0);
            if weight.size(3) != from.channels || outputs == 0 {
                return Err(bad(
                    1,
                    "weights: expected as many input channels as the input, and at \
                                   least one output",
                ));
            }
            let extra = [ctx.list_int(5, 0)?, ctx.list_int(5, ctx.list_len(5)?.saturating_sub(1))?];
            let extra = extra.map(|extra| usize::try_from(extra).ok());
            let size = |window: &Window, dim: usize, size: usize| {
                window.transposed(size, extra.get(dim).copied()??)
            };
            let plan = prepare(ctx, ARGS, outputs, &size, |ctx| convolve(ctx, ARGS))?;
            with_patches(ctx, ARGS, plan)
        })
        .with_elements(Elements::Typed)
    };
}

kernels! { CONVOLUTION:
    /// `cortex_m::quantized_conv2d.out(input, weight, bias, stride,
    /// padding, dilation, input_offset, output_offset, requantize_multipliers,
    /// requantize_shifts, activation_min, activation_max, scratch, out)`: the weight is
    /// `[output channel, row, column, input channel of the group]`.
    QUANTIZED_CONV2D_OUT = plain!("cortex_m::quantized_conv2d.out", Order::Logical);
    /// `cortex_m::quantized_conv2d_nhwc.out`: like [`QUANTIZED_CONV2D_OUT`], for tensors with NHWC
    /// sizes.
    QUANTIZED_CONV2D_NHWC_OUT = plain!("cortex_m::quantized_conv2d_nhwc.out", Order::Memory);
    /// `cortex_m::quantized_depthwise_conv2d.out(input, weight, bias,
    /// stride, padding, dilation, depth_multiplier, input_offset, output_offset,
    /// requantize_multipliers, requantize_shifts, activation_min, activation_max, scratch, out)`:
    /// the weight is `[1, row, column, output channel]`.
    QUANTIZED_DEPTHWISE_CONV2D_OUT = depthwise!(
        "cortex_m::quantized_depthwise_conv2d.out",
        Order::Logical
    );
    /// `cortex_m::quantized_depthwise_conv2d_nhwc.out`: like [`QUANTIZED_DEPTHWISE_CONV2D_OUT`],
    /// for tensors with NHWC sizes.
    QUANTIZED_DEPTHWISE_CONV2D_NHWC_OUT = depthwise!(
        "cortex_m::quantized_depthwise_conv2d_nhwc.out",
        Order::Memory
    );
    /// `cortex_m::quantized_transpose_conv2d.out(input, weight, bias,
    /// stride, padding, output_padding, dilation, input_offset, output_offset,
    /// requantize_multipliers, requantize_shifts, activation_min, activation_max,
    /// scratch, output_scratch, out)`: the weight is
    /// `[output channel, row, column, input channel]`.
    QUANTIZED_TRANSPOSE_CONV2D_OUT = transposed!(
        "cortex_m::quantized_transpose_conv2d.out",
        Order::Logical
    );
    /// `cortex_m::quantized_transpose_conv2d_nhwc.out`: like [`QUANTIZED_TRANSPOSE_CONV2D_OUT`],
    /// for tensors with NHWC sizes.
    QUANTIZED_TRANSPOSE_CONV2D_NHWC_OUT = transposed!(
        "cortex_m::quantized_transpose_conv2d_nhwc.out",
        Order::Memory
    );
}

/// Argument indices that differ between the operators.
#[derive(Debug, Clone, Copy)]
struct ArgIndices {
    dilation: usize,
    /// The input offset, followed by output offset, multipliers, shifts, minimum and maximum of the
    /// result.
    offset: usize,
    out: usize,
    /// Order of the sizes of input and output.
    order: Order,
}

impl ArgIndices {
    const fn plain(order: Order) -> Self {
        ArgIndices { dilation: 5, offset: 6, out: 13, order }
    }

    const fn depthwise(order: Order) -> Self {
        ArgIndices { dilation: 5, offset: 7, out: 14, order }
    }

    const fn transposed(order: Order) -> Self {
        ArgIndices { dilation: 6, offset: 7, out: 15, order }
    }

    fn is_transposed(self) -> bool {
        self.out == ArgIndices::transposed(self.order).out
    }
}

/// Returns the windows of a convolution with this weight.
fn windows_of(
    ctx: &Arguments,
    weight: &TensorInfo,
    args: ArgIndices,
) -> Result<Windows, KernelError> {
    let &[_, rows, columns, _] = &weight.sizes[..] else {
        return Err(KernelError::rank(1, weight.rank()));
    };
    let (stride, padding) = (ctx.ints(3)?, ctx.ints(4)?);
    windows(2, &[rows.into(), columns.into()], &stride, &padding, &ctx.ints(args.dilation)?)
        .filter(|_| !stride.is_empty())
        .ok_or(bad(3, "stride, padding or dilation is out of range"))
}

/// Checks the arguments that all convolutions have, and resizes the output. `size` computes its
/// rows and columns.
fn prepare(
    ctx: &mut Prepare,
    args: ArgIndices,
    channels: i32,
    size: &dyn Fn(&Window, usize, usize) -> Option<usize>,
    invoke: InvokeFn,
) -> Result<Plan, KernelError> {
    let (batch, from) = args.order.image(ctx, 0)?;
    let weight = ctx.info(1)?;
    super::expect_type(ctx, 1, ScalarType::Char)?;
    if !weight.is_contiguous() {
        return Err(KernelError::layout(1));
    }
    let windows = windows_of(ctx, &weight, args)?;
    let mut sizes = [0i32; 2];
    for (dim, (size_of, window)) in sizes.iter_mut().zip(&windows).enumerate() {
        let found = size(window, dim, if dim == 0 { from.rows } else { from.columns })
            .and_then(|size| i32::try_from(size).ok());
        *size_of = found.ok_or(bad(1, "kernel is larger than the padded input"))?;
    }
    let count = usize::try_from(channels).unwrap_or(0);
    for arg in [args.offset + 2, args.offset + 3] {
        super::expect_type(ctx, arg, ScalarType::Int)?;
        if ctx.info(arg)?.numel() != count {
            return Err(bad(arg, "expected an element for each output channel"));
        }
    }
    if let Some(bias) = ctx.optional_info(2)? {
        super::expect_type(ctx, 2, ScalarType::Int)?;
        if bias.numel() != count {
            return Err(bad(2, "expected an element for each output channel"));
        }
    }
    let [rows, columns] = sizes;
    ctx.resize(args.out, &args.order.sizes([batch, rows, columns, channels]))?;
    args.order.image(ctx, args.out)?;
    Ok(Plan::new(invoke).with_scratch(copies_len(ctx, &[0, args.out], args.order)?))
}

/// Adds scratch memory for im2col patches to a plan.
fn with_patches(ctx: &Prepare, args: ArgIndices, plan: Plan) -> Result<Plan, KernelError> {
    let (weight, tier) = (ctx.info(1)?, machine::tier(ctx));
    let taps = weight.size(1).saturating_mul(weight.size(2));
    let (batch, to) = args.order.image(ctx, args.out)?;
    let rows = usize::try_from(batch).unwrap_or(0).saturating_mul(to.rows);
    let slots = ctx.threads().min(rows);
    let len = convolve::workspace_len(tier, weight.size(3), taps).checked_mul(slots);
    let bytes = bytes_for(len.unwrap_or(usize::MAX), size_of::<i16>())?;
    let copies = copies_len(ctx, &[0, args.out], args.order)?;
    Ok(plan.with_scratch(bytes_for(bytes.saturating_add(copies), 1)?))
}

/// Requantization parameters. `bias` is argument 2.
fn results<'a>(ctx: &Invoke<'a, '_>, args: ArgIndices) -> Result<Results<'a>, KernelError> {
    let at = args.offset;
    let (multipliers, shifts) = (ctx.tensor(at + 2)?, ctx.tensor(at + 3)?);
    let (multipliers, shifts) = (multipliers.data::<i32>()?, shifts.data::<i32>()?);
    let bias = ctx.optional_tensor(2)?;
    let bias = bias.as_ref().map(|bias| bias.data::<i32>()).transpose()?.unwrap_or(&[]);
    let bounds = (int(ctx, at + 4)?, int(ctx, at + 5)?);
    Results::per_channel(multipliers, shifts, bias, int(ctx, at + 1)?, bounds)
        .ok_or(bad(at + 3, "shifts, or the multipliers before them, are out of range"))
}

/// Runs a plain or transposed convolution; the weight is
/// `[output channel, row, column, input channel of the group]`.
fn convolve(ctx: &mut Invoke, args: ArgIndices) -> Result<(), KernelError> {
    let (input, weight) = (ctx.tensor(0)?, ctx.tensor(1)?);
    let windows = windows_of(ctx, weight.info(), args)?;
    let &[down, across] = &windows[..] else { return Err(bad(3, "stride: expected two values")) };
    let (tier, depth, taps) = (Tier::detect(), weight.size(3), weight.size(1) * weight.size(2));
    let results = results(ctx, args)?;
    let offset = int(ctx, args.offset)?;
    let info = ctx.info(args.out)?;
    let to = args.order.extent(&info);
    let slots = ctx.parallel().threads().min(info.size(0).saturating_mul(to.rows));
    let slot = convolve::workspace_len(tier, depth, taps);
    let mut relayout = Relayout::new(ctx, args.order);
    let (data, out) = (relayout.input(ctx, 0)?, relayout.output(ctx, args.out)?);
    let workspace = relayout.workspace::<i16>(slot.saturating_mul(slots))?;
    let convolution = Convolution {
        from: args.order.extent(input.info()),
        to,
        windows: [down, across],
        transposed: args.is_transposed(),
        depth,
        offset,
        results,
    };
    let weight = weight.data::<i8>()?;
    convolve::convolve(tier, ctx.parallel(), &convolution, data, weight, out.values, workspace);
    out.finish(ctx.parallel())
}

fn depthwise(ctx: &mut Invoke, args: ArgIndices) -> Result<(), KernelError> {
    let (input, weight) = (ctx.tensor(0)?, ctx.tensor(1)?);
    let windows = windows_of(ctx, weight.info(), args)?;
    let &[down, across] = &windows[..] else { return Err(bad(3, "stride: expected two values")) };
    let results = results(ctx, args)?;
    let offset = int(ctx, args.offset)?;
    let mut relayout = Relayout::new(ctx, args.order);
    let (data, out) = (relayout.input(ctx, 0)?, relayout.output(ctx, args.out)?);
    let [from, to] = [args.order.extent(input.info()), args.order.extent(&ctx.info(args.out)?)];
    let multiplier = (to.channels / from.channels.max(1)).max(1);
    let depthwise = Depthwise { from, to, windows: [down, across], multiplier, offset, results };
    let weight = weight.data::<i8>()?;
    depthwise::convolve(Tier::detect(), ctx.parallel(), &depthwise, data, weight, out.values);
    out.finish(ctx.parallel())
}
