//! Pooling of 8-bit pictures.

use super::picture;
use crate::compute::split::for_each_chunk_mut;
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
                let add = |sum: i64, value: i8| sum + i64::from(value);
                for_each_window(ctx, &windows, 9, 0i64, &add, &|sum, count| {
                    // To nearest, half away from zero.
                    let count = (count as i64).max(1);
                    let half = if sum > 0 { count / 2 } else { -(count / 2) };
                    ((sum + half) / count).clamp(-128, 127) as i8
                })
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
                let (low, high) = (ctx.int(8)?, ctx.int(9)?);
                let add = |largest: i8, value: i8| largest.max(value);
                for_each_window(ctx, &windows, 10, i8::MIN, &add, &|largest, _| {
                    i64::from(largest).max(low).min(high) as i8
                })
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

/// Calls `pool(values, out)` for each channel of each pixel: `values` visits the inputs of the window.
fn for_each_window<S>(
    ctx: &mut Invoke,
    windows: &[Window],
    out: usize,
    start: S,
    add: &(dyn Fn(S, i8) -> S + Sync),
    finish: &(dyn Fn(S, usize) -> i8 + Sync),
) -> Result<(), KernelError>
where
    S: Copy + Send + Sync,
{
    let &[down, across] = windows else { return Err(bad(1, "must have two numbers")) };
    let input = ctx.tensor(0)?;
    let (rows, columns, channels) = (input.size(2), input.size(3), input.size(1));
    let data = input.data::<i8>()?;
    let out = ctx.out(out)?;
    let (out_rows, out_columns) = (out.size(2), out.size(3));
    let out = out.into_data::<i8>()?;
    for_each_chunk_mut(ctx.parallel(), out, out_columns * channels, &|index, out: &mut [i8]| {
        let (batch, row) = (index / out_rows.max(1), index % out_rows.max(1));
        let tall = down.taps(row, rows);
        for (column, out) in out.chunks_mut(channels.max(1)).enumerate() {
            let wide = across.taps(column, columns);
            for (channel, out) in out.iter_mut().enumerate() {
                let mut state = start;
                for y in 0..tall.count {
                    for x in 0..wide.count {
                        let y = tall.start + y * down.dilation();
                        let x = wide.start + x * across.dilation();
                        let at = ((batch * rows + y) * columns + x) * channels + channel;
                        state = add(state, data.get(at).copied().unwrap_or(0));
                    }
                }
                *out = finish(state, tall.count * wide.count);
            }
        }
    });
    Ok(())
}
