//! Rescaling: multiplication by a fixed-point scale, between zero points.

use super::{Scale, contiguous, expect_type, zero_point};
use crate::compute::split::{chunk_len, for_each_chunk_mut};
use crate::number::{load, store};
use crate::shape::bad;
use crate::table::kernels;
use torchlet_core::Param::{Bool, Int, Out, Tensor};
use torchlet_core::{Arguments, Elements, Invoke, Kernel, KernelError, Plan, ScalarType};

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
            Ok(Plan::new(rescale))
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

/// The scale of a channel; shifts are limited to those that TOSA allows.
fn scale(
    ctx: &Arguments,
    multipliers: (ScalarType, &[u8]),
    shifts: &[i8],
    at: usize,
) -> Result<Scale, KernelError> {
    let mut multiplier = [0i64];
    load(multipliers.0, multipliers.1, at as isize, 1, &mut multiplier);
    let shift = shifts.get(at).copied().and_then(|shift| u32::try_from(shift).ok());
    let shift = shift.filter(|shift| *shift < 63);
    let shift = shift.ok_or(bad(2, "must be from 0 to 62"))?;
    Ok(Scale { multiplier: multiplier[0], shift, double_round: ctx.bool(6)? })
}

fn rescale(ctx: &mut Invoke) -> Result<(), KernelError> {
    let (input, multiplier, shift) = (ctx.tensor(0)?, ctx.tensor(1)?, ctx.tensor(2)?);
    let (from, to) = (i64::from(zero_point(ctx, 3)?), i64::from(zero_point(ctx, 4)?));
    let (per_channel, input_unsigned) = (ctx.bool(7)?, ctx.bool(8)?);
    let out = ctx.out(10)?;
    let (in_type, out_type) = (input.info().scalar_type, out.info().scalar_type);
    let ([low, high], _) = limits(out_type, ctx.bool(9)?);
    let (_, mask) = limits(in_type, input_unsigned && in_type != ScalarType::Long);
    let multipliers = (multiplier.info().scalar_type, multiplier.bytes());
    let shifts: &[i8] = shift.data()?;
    // Checks all of them before the loop, which cannot fail.
    for at in 0..shifts.len() {
        scale(ctx, multipliers, shifts, at)?;
    }
    let whole = match per_channel {
        true => None,
        false => Some(scale(ctx, multipliers, shifts, 0)?),
    };
    let parallel = ctx.parallel();
    let size = out_type.size();
    let grain = chunk_len(parallel, out.info().numel(), GRAIN);
    let ctx = &*ctx;
    for_each_chunk_mut(parallel, out.into_bytes(), grain * size, &|chunk, bytes| {
        let mut block = [0i64; BLOCK];
        for (number, bytes) in bytes.chunks_mut(BLOCK * size).enumerate() {
            let start = chunk * grain + number * BLOCK;
            let block = block.get_mut(..bytes.len() / size).unwrap_or_default();
            load(in_type, input.bytes(), start as isize, 1, block);
            for (at, value) in block.iter_mut().enumerate() {
                let scale = match whole {
                    Some(scale) => scale,
                    None => match scale(ctx, multipliers, shifts, (start + at) % shifts.len()) {
                        Ok(scale) => scale,
                        Err(_) => continue,
                    },
                };
                let bits = mask.map_or(*value, |mask| *value & mask);
                let scaled = scale.apply(bits.wrapping_sub(from)).wrapping_add(to);
                *value = scaled.clamp(low, high);
            }
            store(out_type, bytes, block);
        }
    });
    Ok(())
}
