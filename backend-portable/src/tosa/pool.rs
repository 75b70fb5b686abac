//! Integer average pooling.

use super::{
    Operand, Scale, Sum, contiguous, expect_type, list, positive, window_count, zero_point,
};
use crate::compute::split::{chunk_of_work, for_each_chunk_mut};
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
            for (at, pad) in pad.as_chunks::<2>().0.iter().enumerate() {
                let (kernel, stride) = (kernel[at], stride[at]);
                let fits = pad.iter().all(|pad| (0..kernel).contains(pad));
                let count = window_count(info.size(at + 1), kernel, *pad, [stride, 1]);
                let count = count.filter(|_| fits);
                let count = count.ok_or(bad(3, "window or padding does not fit the input"))?;
                if let Some(size) = sizes.get_mut(at + 1) {
                    *size = i32::try_from(count).map_err(|_| bad(6, "too large"))?;
                }
            }
            // The sum of a window must fit the accumulator, and its size a reciprocal.
            if kernel[0].saturating_mul(kernel[1]) > 1 << 16 {
                return Err(bad(1, "must have at most 65536 elements"));
            }
            ctx.resize(6, &sizes)?;
            contiguous(ctx, 6, 4)?;
            let is_char = info.scalar_type == ScalarType::Char;
            Ok(Plan::new(if is_char { average::<i8> } else { average::<i16> }))
        },
    )
    .with_elements(Elements::Typed);
}

/// Minimum number of additions for each thread.
const GRAIN: usize = 1 << 14;

/// Number of channels that are summed at a time.
const BLOCK: usize = 64;

fn average<T: Operand + Send>(ctx: &mut Invoke) -> Result<(), KernelError> {
    let input = ctx.tensor(0)?;
    let (kernel, stride) = (positive::<2>(ctx, 1)?, positive::<2>(ctx, 2)?);
    let [top, _, left, _] = list::<4>(ctx, 3)?;
    let (from, to) = (zero_point(ctx, 4)?, i64::from(zero_point(ctx, 5)?));
    let [height, width, channels] = [1, 2, 3].map(|dim| input.size(dim));
    let input = input.data::<T>()?;
    let out = ctx.out(6)?;
    let (tall, wide) = (out.info().size(1).max(1), out.info().size(2).max(1));
    let out = out.into_data::<T>()?;
    let (parallel, row) = (ctx.parallel(), channels.max(1));
    let work = row.saturating_mul((kernel[0] * kernel[1]) as usize);
    let count = chunk_of_work(parallel, out.len() / row, work, GRAIN);
    // Part of a window that is inside the image.
    let part = |at: usize, axis: usize, before: i64, size: usize| {
        let start = at as i64 * stride[axis] - before;
        let end = (start + kernel[axis]).min(size as i64);
        start.max(0) as usize..end.max(0) as usize
    };
    for_each_chunk_mut(parallel, out, count * row, &|chunk, out| {
        for (number, out) in out.chunks_mut(row).enumerate() {
            let position = chunk * count + number;
            let (x, rest) = (position % wide, position / wide);
            let (y, batch) = (rest % tall, rest / tall);
            let (rows, columns) = (part(y, 0, top, height), part(x, 1, left, width));
            let scale = Scale::reciprocal((rows.len() * columns.len()) as u32);
            for (block, out) in out.chunks_mut(BLOCK).enumerate() {
                let mut sums = [T::Sum::default(); BLOCK];
                for y in rows.clone() {
                    let line = (batch * height + y) * width;
                    for x in columns.clone() {
                        let values = input.get((line + x) * row + block * BLOCK..);
                        for (sum, value) in
                            sums.iter_mut().take(out.len()).zip(values.unwrap_or_default())
                        {
                            *sum = sum.add(value.less(from));
                        }
                    }
                }
                for (out, sum) in out.iter_mut().zip(sums) {
                    *out = T::saturated(scale.apply(sum.into()) + to);
                }
            }
        }
    });
    Ok(())
}
