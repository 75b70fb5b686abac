//! Rescaling: multiplication by a fixed-point scale, between zero points.

use super::{Scale, contiguous, expect_type, zero_point};
use crate::compute::split::{chunk_len, for_each_chunk_mut};
use crate::number::{load, store};
use crate::shape::bad;
use crate::table::kernels;
use torchlet_core::Param::{Bool, Int, Out, Tensor};
use torchlet_core::{Element, Elements, Invoke, Kernel, KernelError, Plan, ScalarType};

kernels! { RESCALING:
    /// `tosa::rescale.out(input, multiplier, shift, input_zp, output_zp, scale32, double_round,
    /// per_channel, input_unsigned, output_unsigned, out)`: `(input - input_zp) * multiplier /
    /// 2^shift + output_zp`, rounded half up and saturated. `multiplier` is int32 with `scale32`,
    /// else int16. With `per_channel`, multiplier and shift have a value for each element of the
    /// last dim. Unsigned values are stored in signed tensors.
    RESCALE_OUT = Kernel::new(
        "tosa::rescale.out",
        &[Tensor, Tensor, Tensor, Int, Int, Bool, Bool, Bool, Bool, Bool, Out],
        |ctx| {
            use ScalarType::{Char, Int, Long, Short};
            let info = ctx.info(0)?;
            if !info.is_contiguous() {
                return Err(bad(0, "must be contiguous"));
            }
            expect_type(ctx, 0, &[Char, Short, Int, Long])?;
            expect_type(ctx, 1, &[if ctx.bool(5)? { Int } else { Short }])?;
            expect_type(ctx, 2, &[Char])?;
            expect_type(ctx, 10, &[Char, Short, Int])?;
            let channels = info.sizes.last().copied().unwrap_or(1);
            let count = if ctx.bool(7)? { channels } else { 1 };
            for arg in [1, 2] {
                if contiguous(ctx, arg, 1)?.sizes[..] != [count] {
                    return Err(bad(arg, "must have one value, or one for each channel"));
                }
            }
            zero_point(ctx, 3)?;
            zero_point(ctx, 4)?;
            ctx.resize(10, &info.sizes)?;
            if !ctx.info(10)?.is_contiguous() {
                return Err(bad(10, "must be contiguous"));
            }
            Ok(Plan::new(if ctx.bool(5)? { rescale::<i32> } else { rescale::<i16> }))
        },
    )
    .with_elements(Elements::Typed);
}

/// Number of elements that are converted at a time.
const BLOCK: usize = 256;
/// Minimum number of elements for each thread.
const GRAIN: usize = 4096;

/// Values of an integer type, and the mask of its bits if it is unsigned.
fn limits(scalar_type: ScalarType, is_unsigned: bool) -> ([i64; 2], Option<i64>) {
    let bits = 8 * scalar_type.size().min(7) as u32;
    let whole = (1i64 << bits) - 1;
    match is_unsigned {
        true => ([0, whole], Some(whole)),
        false => ([-(1 << (bits - 1)), whole >> 1], None),
    }
}

fn rescale<M: Element + Into<i64> + Sync>(ctx: &mut Invoke) -> Result<(), KernelError> {
    let (input, multiplier, shift) = (ctx.tensor(0)?, ctx.tensor(1)?, ctx.tensor(2)?);
    let (from, to) = (i64::from(zero_point(ctx, 3)?), i64::from(zero_point(ctx, 4)?));
    let (double_round, input_unsigned) = (ctx.bool(6)?, ctx.bool(8)?);
    let out = ctx.out(10)?;
    let (in_type, out_type) = (input.info().scalar_type, out.info().scalar_type);
    let ([low, high], _) = limits(out_type, ctx.bool(9)?);
    let (_, mask) = limits(in_type, input_unsigned && in_type != ScalarType::Long);
    let (multipliers, shifts): (&[M], &[i8]) = (multiplier.data()?, shift.data()?);
    // Shifts that TOSA allows.
    if !shifts.iter().all(|shift| (0..63).contains(shift)) {
        return Err(bad(2, "must be from 0 to 62"));
    }
    let scaled = |value: i64, (multiplier, shift): (&M, &i8)| {
        let shift = u32::from(shift.unsigned_abs());
        let scale = Scale { multiplier: (*multiplier).into(), shift, double_round };
        let bits = mask.map_or(value, |mask| value & mask);
        scale.apply(bits.wrapping_sub(from)).wrapping_add(to).clamp(low, high)
    };
    let parallel = ctx.parallel();
    let size = out_type.size();
    let grain = chunk_len(parallel, out.info().numel(), GRAIN);
    for_each_chunk_mut(parallel, out.into_bytes(), grain * size, &|chunk, bytes| {
        let mut block = [0i64; BLOCK];
        for (number, bytes) in bytes.chunks_mut(BLOCK * size).enumerate() {
            let start = chunk * grain + number * BLOCK;
            let block = block.get_mut(..bytes.len() / size).unwrap_or_default();
            load(in_type, input.bytes(), start as isize, 1, block);
            if let ([multiplier], [shift]) = (multipliers, shifts) {
                block.iter_mut().for_each(|value| *value = scaled(*value, (multiplier, shift)));
            } else {
                let channels = multipliers.iter().zip(shifts).cycle();
                for (value, scale) in block.iter_mut().zip(channels.skip(start % shifts.len())) {
                    *value = scaled(*value, scale);
                }
            }
            store(out_type, bytes, block);
        }
    });
    Ok(())
}
