//! Integer average pooling.

use super::{Scale, contiguous, expect_type, list, positive, zero_point};
use crate::compute::split::{chunk_of_work, for_each_chunk_mut};
use crate::number::{load, store};
use crate::shape::bad;
use crate::table::kernels;
use torchlet_core::Param::{Int, IntList, Out, Tensor};
use torchlet_core::{Elements, Invoke, Kernel, KernelError, Plan, ScalarType};

kernels! { POOLING:
    /// `tosa::avg_pool2d.out(input, kernel_size, stride, padding, input_zp, output_zp, out)`:
    /// averages of int8 or int16 values over the part of each window that is inside the image.
    AVG_POOL2D_OUT = Kernel::new(
        "tosa::avg_pool2d.out",
        &[Tensor, IntList, IntList, IntList, Int, Int, Out],
        |ctx| {
            expect_type(ctx, 0, &[ScalarType::Char, ScalarType::Short])?;
            let info = contiguous(ctx, 0, 4)?;
            expect_type(ctx, 6, &[info.scalar_type])?;
            let (kernel, stride) = (positive::<2>(ctx, 1)?, positive::<2>(ctx, 2)?);
            let pad = list::<4>(ctx, 3)?;
            zero_point(ctx, 4)?;
            zero_point(ctx, 5)?;
            let mut sizes = info.sizes.clone();
            for (at, [before, after]) in pad.as_chunks::<2>().0.iter().enumerate() {
                let kernel = kernel[at];
                let fits = (0..kernel).contains(before) && (0..kernel).contains(after);
                let room = info.size(at + 1) as i64 + before + after - kernel;
                if !fits || room < 0 {
                    return Err(bad(3, "window or padding does not fit the input"));
                }
                if let Some(size) = sizes.get_mut(at + 1) {
                    *size = i32::try_from(room / stride[at] + 1).map_err(|_| bad(6, "too large"))?;
                }
            }
            // The sum of a window must fit the accumulator, and its size a reciprocal.
            if kernel[0].saturating_mul(kernel[1]) > 1 << 16 {
                return Err(bad(1, "must have at most 65536 elements"));
            }
            ctx.resize(6, &sizes)?;
            contiguous(ctx, 6, 4)?;
            Ok(Plan::new(average))
        },
    )
    .with_elements(Elements::Typed);
}

/// Minimum number of additions for each thread.
const GRAIN: usize = 1 << 14;

fn average(ctx: &mut Invoke) -> Result<(), KernelError> {
    let input = ctx.tensor(0)?;
    let (kernel, stride) = (positive::<2>(ctx, 1)?, positive::<2>(ctx, 2)?);
    let [top, _, left, _] = list::<4>(ctx, 3)?;
    let (from, to) = (i64::from(zero_point(ctx, 4)?), i64::from(zero_point(ctx, 5)?));
    let [height, width, channels] = [1, 2, 3].map(|dim| input.size(dim));
    let out = ctx.out(6)?;
    let (scalar_type, tall, wide) =
        (out.info().scalar_type, out.info().size(1), out.info().size(2));
    let size = scalar_type.size();
    let limit = if scalar_type == ScalarType::Char { 1i64 << 7 } else { 1 << 15 };
    let (parallel, row) = (ctx.parallel(), channels.max(1));
    let pixels = out.info().numel() / row;
    let work = row.saturating_mul((kernel[0] * kernel[1]) as usize);
    let count = chunk_of_work(parallel, pixels, work, GRAIN);
    // Part of a window that is inside the image: start, and end.
    let part = |at: usize, axis: usize, before: i64, size: usize| {
        let start = at as i64 * stride[axis] - before;
        let end = (start + kernel[axis]).min(size as i64);
        (start.max(0) as usize, end.max(0) as usize)
    };
    for_each_chunk_mut(parallel, out.into_bytes(), count * row * size, &|chunk, bytes| {
        for (number, bytes) in bytes.chunks_mut(row * size).enumerate() {
            let position = chunk * count + number;
            let (x, rest) = (position % wide.max(1), position / wide.max(1));
            let (y, batch) = (rest % tall.max(1), rest / tall.max(1));
            let (top, bottom) = part(y, 0, top, height);
            let (left, right) = part(x, 1, left, width);
            let elements = bottom.saturating_sub(top) * right.saturating_sub(left);
            let scale = Scale::reciprocal(elements as u32);
            for (channel, bytes) in bytes.chunks_mut(size).enumerate() {
                let mut sum = 0;
                for y in top..bottom {
                    for x in left..right {
                        let at = ((batch * height + y) * width + x) * channels + channel;
                        let mut value = [0i64];
                        load(scalar_type, input.bytes(), at as isize, 1, &mut value);
                        sum += value[0] - from;
                    }
                }
                let value = (scale.apply(sum) + to).clamp(-limit, limit - 1);
                store(scalar_type, bytes, &[value]);
            }
        }
    });
    Ok(())
}
