//! Element-wise integer operators.

use super::{Scale, contiguous, expect_type};
use crate::elementwise::{ByCompute, TypeRule, prepare};
use crate::map::{Two, map};
use crate::shape::bad;
use crate::table::kernels;
use torchlet_core::Param::{Bool, Int, Out, Tensor};
use torchlet_core::{Elements, Invoke, InvokeFn, Kernel, KernelError, Plan, Prepare, ScalarType};

kernels! { ELEMENTWISE:
    /// `tosa::mul.out(self, other, shift, out)`: int32 products divided by `2^shift`, rounded half
    /// up.
    MUL_OUT = Kernel::new("tosa::mul.out", &[Tensor, Tensor, Int, Out], |ctx| {
        if !(0..63).contains(&ctx.int(2)?) {
            return Err(bad(2, "must be from 0 to 62"));
        }
        prepare_integers(ctx, &[0, 1], 3, |ctx| {
            let shift = u32::try_from(ctx.int(2)?).unwrap_or(0);
            map(ctx, [0, 1], 3, &Two(move |a: i64, b: i64| {
                Scale { multiplier: a, shift, double_round: false }.apply(b)
            }))
        })
    });
    /// `tosa::arithmetic_right_shift.out(self, other, round, out)`: `self >> other`, rounded half
    /// up with `round`.
    ARITHMETIC_RIGHT_SHIFT_OUT = Kernel::new(
        "tosa::arithmetic_right_shift.out",
        &[Tensor, Tensor, Bool, Out],
        |ctx| {
            prepare_integers(ctx, &[0, 1], 3, |ctx| {
                let round = ctx.bool(2)?;
                map(ctx, [0, 1], 3, &Two(move |a: i64, b: i64| {
                    let b = b.clamp(0, 63);
                    let up = round && b > 0 && a >> (b - 1) & 1 == 1;
                    (a >> b) + i64::from(up)
                }))
            })
        },
    );
    /// `tosa::logical_right_shift.out(self, other, out)`: shifts in zeros.
    LOGICAL_RIGHT_SHIFT_OUT = Kernel::new(
        "tosa::logical_right_shift.out",
        &[Tensor, Tensor, Out],
        |ctx| {
            prepare_integers(ctx, &[0, 1], 2, |ctx| {
                let unused = 64 - 8 * ctx.info(0)?.scalar_type.size().clamp(1, 8) as u32;
                map(ctx, [0, 1], 2, &Two(move |a: i64, b: i64| {
                    let bits = a.cast_unsigned() << unused >> unused;
                    if (0..64).contains(&b) { (bits >> b).cast_signed() } else { 0 }
                }))
            })
        },
    );
    /// `tosa::clz.out(self, out)`: the number of leading zero bits of an int32.
    CLZ_OUT = Kernel::new("tosa::clz.out", &[Tensor, Out], |ctx| {
        expect_type(ctx, 0, &[ScalarType::Int])?;
        prepare_integers(ctx, &[0], 1, |ctx| {
            map(ctx, [0], 1, &|a: i64| i64::from((a as i32).leading_zeros()))
        })
    });
    /// `tosa::table.out(self, lut, out)`: a table of 256 int8 values, whose first entry is for
    /// -128; or a table of 513 int16 values, 128 apart, between which int16 values are
    /// interpolated to int32 with 7 fractional bits.
    TABLE_OUT = Kernel::new("tosa::table.out", &[Tensor, Tensor, Out], |ctx| {
        use ScalarType::{Char, Int, Short};
        expect_type(ctx, 0, &[Char, Short])?;
        let info = ctx.info(0)?;
        let (entries, made) = if info.scalar_type == Char { (256, Char) } else { (513, Int) };
        expect_type(ctx, 1, &[info.scalar_type])?;
        expect_type(ctx, 2, &[made])?;
        if contiguous(ctx, 1, 1)?.size(0) != entries {
            return Err(bad(1, "must have 256 int8 or 513 int16 values"));
        }
        ctx.resize(2, &info.sizes)?;
        if !info.same_layout_as(&ctx.info(2)?) {
            return Err(bad(2, "must have the memory order of the input"));
        }
        Ok(Plan::new(if made == Char { look_up } else { interpolate }))
    })
    .with_elements(Elements::Typed);
}

/// Prepares a function of integers, which broadcast.
fn prepare_integers(
    ctx: &mut Prepare,
    inputs: &[usize],
    out: usize,
    invoke: InvokeFn,
) -> Result<Plan, KernelError> {
    for arg in inputs {
        let found = ctx.info(*arg)?.scalar_type;
        if !found.is_integral(false) {
            return Err(KernelError::scalar_type(*arg, found));
        }
    }
    let functions = ByCompute { f32: invoke, f64: invoke, i64: Some(invoke), u64: None };
    prepare(ctx, inputs, &[], out, TypeRule::Common, functions)
}

fn look_up(ctx: &mut Invoke) -> Result<(), KernelError> {
    let (input, table) = (ctx.tensor(0)?, ctx.tensor(1)?);
    let (input, table) = (input.data::<i8>()?, table.data::<i8>()?);
    for (out, value) in ctx.out(2)?.data_mut::<i8>()?.iter_mut().zip(input) {
        let at = usize::from(value.cast_unsigned() ^ 0x80);
        *out = table.get(at).copied().unwrap_or(0);
    }
    Ok(())
}

fn interpolate(ctx: &mut Invoke) -> Result<(), KernelError> {
    let (input, table) = (ctx.tensor(0)?, ctx.tensor(1)?);
    let (input, table) = (input.data::<i16>()?, table.data::<i16>()?);
    for (out, value) in ctx.out(2)?.data_mut::<i32>()?.iter_mut().zip(input) {
        let place = i32::from(*value) + 32768;
        let entry = |at: i32| table.get(at as usize).map_or(0, |entry| i32::from(*entry));
        let base = entry(place >> 7);
        *out = (base << 7) + (entry((place >> 7) + 1) - base) * (place & 127);
    }
    Ok(())
}
