//! Pooling of 8-bit pictures.

use super::{extent, int, picture};
use crate::compute::q8::pool::{Pooling, pool};
use crate::compute::simd::Tier;
use crate::shape::bad;
use crate::table::kernels;
use torchlet_core::Param::{Bool, Int, IntList, Out, Tensor};
use torchlet_core::rules::window::{Window, Windows, pooling, windows};
use torchlet_core::{Arguments, Invoke, Kernel, KernelError, Plan, Prepare};

kernels! { POOLING:
    /// `cortex_m::quantized_avg_pool2d.out(input, kernel_size, stride, padding, ceil_mode, zero_point, multiplier, shift, scratch, out)`:
    /// padding does not count. Scale and zero point are those of input and output alike, so that neither matters.
    QUANTIZED_AVG_POOL2D_OUT = Kernel::new(
        "cortex_m::quantized_avg_pool2d.out",
        &[Tensor, IntList, IntList, IntList, Bool, Int, Int, Int, Tensor, Out],
        |ctx| {
            let windows = windows_of(ctx, None)?;
            prepare(ctx, &windows, ctx.bool(4)?, 9)?;
            Ok(Plan::new(|ctx| {
                let windows = windows_of(ctx, None)?;
                compute(ctx, &windows, 9, Pooling::Average)
            }))
        },
    );
    /// `cortex_m::quantized_max_pool2d.out(input, kernel_size, stride, padding, dilation, ceil_mode, input_zero_point, output_zero_point,
    /// activation_min, activation_max, out)`.
    QUANTIZED_MAX_POOL2D_OUT = Kernel::new(
        "cortex_m::quantized_max_pool2d.out",
        &[Tensor, IntList, IntList, IntList, IntList, Bool, Int, Int, Int, Int, Out],
        |ctx| {
            if ctx.int(6)? != ctx.int(7)? {
                return Err(bad(7, "must be the input's zero point"));
            }
            let windows = windows_of(ctx, Some(4))?;
            prepare(ctx, &windows, ctx.bool(5)?, 10)?;
            Ok(Plan::new(|ctx| {
                let windows = windows_of(ctx, Some(4))?;
                let pooling = Pooling::Largest(int(ctx, 8)?, int(ctx, 9)?);
                compute(ctx, &windows, 10, pooling)
            }))
        },
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

fn prepare(
    ctx: &mut Prepare,
    windows: &[Window],
    ceil: bool,
    out: usize,
) -> Result<(), KernelError> {
    let input = picture(ctx, 0)?;
    let sizes = pooling(&input.sizes, windows, ceil).ok_or(bad(1, "does not fit the input"))?;
    ctx.resize(out, &sizes)?;
    picture(ctx, out).map(|_| ())
}

fn compute(
    ctx: &mut Invoke,
    windows: &[Window],
    out: usize,
    pooling: Pooling,
) -> Result<(), KernelError> {
    let &[down, across] = windows else { return Err(bad(1, "must have two numbers")) };
    let input = ctx.tensor(0)?;
    let out = ctx.out(out)?;
    let extents = [extent(input.info()), extent(out.info())];
    let (data, out) = (input.data::<i8>()?, out.into_data::<i8>()?);
    pool(Tier::detect(), ctx.parallel(), pooling, [down, across], extents, data, out);
    Ok(())
}
