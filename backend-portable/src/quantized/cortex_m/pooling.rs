//! Pooling of int8 images.

use super::relayout::{Relayout, copies_len};
use super::{Order, int};
use crate::compute::q8::pool::{Pooling, pool};
use crate::compute::simd::Tier;
use crate::shape::bad;
use crate::table::kernels;
use torchlet_core::Param::{Bool, Int, IntList, Out, Scratch, Tensor};
use torchlet_core::rules::window::{Window, Windows, pooling, windows};
use torchlet_core::{Arguments, Elements, Invoke, Kernel, KernelError, Plan, Prepare};

/// Kernel of average pooling.
macro_rules! average {
    ($name:literal, $order:expr) => {
        Kernel::new(
            $name,
            &[Tensor, IntList, IntList, IntList, Bool, Int, Int, Int, Scratch, Out],
            |ctx| {
                let windows = windows_of(ctx, None)?;
                let scratch = prepare(ctx, &windows, ctx.bool(4)?, 9, $order)?;
                let plan = Plan::new(|ctx| {
                    let windows = windows_of(ctx, None)?;
                    compute(ctx, &windows, 9, Pooling::Average, $order)
                });
                Ok(plan.with_scratch(scratch))
            },
        )
        .with_elements(Elements::Typed)
    };
}

/// Kernel of max pooling.
macro_rules! largest {
    ($name:literal, $order:expr) => {
        Kernel::new(
            $name,
            &[Tensor, IntList, IntList, IntList, IntList, Bool, Int, Int, Int, Int, Out],
            |ctx| {
                if ctx.int(6)? != ctx.int(7)? {
                    return Err(bad(
                        7,
                        "output zero point: expected that of the input (argument 6)",
                    ));
                }
                let windows = windows_of(ctx, Some(4))?;
                let scratch = prepare(ctx, &windows, ctx.bool(5)?, 10, $order)?;
                let plan = Plan::new(|ctx| {
                    let windows = windows_of(ctx, Some(4))?;
                    let pooling = Pooling::Max(int(ctx, 8)?, int(ctx, 9)?);
                    compute(ctx, &windows, 10, pooling, $order)
                });
                Ok(plan.with_scratch(scratch))
            },
        )
        .with_elements(Elements::Typed)
    };
}

kernels! { POOLING:
    /// `cortex_m::quantized_avg_pool2d.out(input, kernel_size, stride,
    /// padding, ceil_mode, zero_point, multiplier, shift, scratch, out)`: padding does not count.
    /// Input and output share scale and zero point, which therefore have no effect.
    QUANTIZED_AVG_POOL2D_OUT = average!("cortex_m::quantized_avg_pool2d.out", Order::Logical);
    /// `cortex_m::quantized_avg_pool2d_nhwc.out`: like [`QUANTIZED_AVG_POOL2D_OUT`], for tensors
    /// with NHWC sizes.
    QUANTIZED_AVG_POOL2D_NHWC_OUT = average!(
        "cortex_m::quantized_avg_pool2d_nhwc.out",
        Order::Memory
    );
    /// `cortex_m::quantized_max_pool2d.out(input, kernel_size, stride,
    /// padding, dilation, ceil_mode, input_zero_point, output_zero_point,
    /// activation_min, activation_max, out)`: max pooling, clamped.
    QUANTIZED_MAX_POOL2D_OUT = largest!("cortex_m::quantized_max_pool2d.out", Order::Logical);
    /// `cortex_m::quantized_max_pool2d_nhwc.out`: like [`QUANTIZED_MAX_POOL2D_OUT`], for tensors
    /// with NHWC sizes.
    QUANTIZED_MAX_POOL2D_NHWC_OUT = largest!(
        "cortex_m::quantized_max_pool2d_nhwc.out",
        Order::Memory
    );
}

fn windows_of(ctx: &Arguments, dilation: Option<usize>) -> Result<Windows, KernelError> {
    let dilation = match dilation {
        Some(arg) => ctx.ints(arg)?,
        None => [1].into_iter().collect(),
    };
    windows(2, &ctx.ints(1)?, &ctx.ints(2)?, &ctx.ints(3)?, &dilation)
        .ok_or(bad(1, "kernel, stride, padding or dilation is out of range"))
}

/// Checks the arguments and resizes the output; returns the bytes of scratch memory.
fn prepare(
    ctx: &mut Prepare,
    windows: &[Window],
    ceil: bool,
    out: usize,
    order: Order,
) -> Result<usize, KernelError> {
    let (batch, from) = order.image(ctx, 0)?;
    let sizes = [from.channels, from.rows, from.columns].map(|size| i32::try_from(size).ok());
    let [Some(channels), Some(rows), Some(columns)] = sizes else {
        return Err(bad(0, "shape is too large"));
    };
    let sizes = pooling(&[batch, channels, rows, columns], windows, ceil);
    let Some(&[batch, channels, rows, columns]) = sizes.as_deref() else {
        return Err(bad(1, "kernel is larger than the padded input"));
    };
    ctx.resize(out, &order.sizes([batch, rows, columns, channels]))?;
    order.image(ctx, out)?;
    copies_len(ctx, &[0, out], order)
}

fn compute(
    ctx: &mut Invoke,
    windows: &[Window],
    out: usize,
    pooling: Pooling,
    order: Order,
) -> Result<(), KernelError> {
    let &[down, across] = windows else { return Err(bad(1, "kernel_size: expected two values")) };
    let extents = [order.extent(&ctx.info(0)?), order.extent(&ctx.info(out)?)];
    let mut relayout = Relayout::new(ctx, order);
    let (data, out) = (relayout.input(ctx, 0)?, relayout.output(ctx, out)?);
    pool(Tier::detect(), ctx.parallel(), pooling, [down, across], extents, data, out.values);
    out.finish(ctx.parallel())
}
