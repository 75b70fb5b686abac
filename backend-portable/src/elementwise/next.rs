//! Next representable value: `nextafter`.

use super::{ByCompute, TypeRule, prepare};
use crate::map::{Rounded, map};
use crate::number::unsupported;
use crate::table::kernels;
use half::{bf16, f16};
use torchlet_core::Param::{Out, Tensor};
use torchlet_core::rules::{Operand, result_type};
use torchlet_core::{Invoke, Kernel, KernelError, ScalarType};

kernels! {
    /// `aten::nextafter.out(self, other, out)`: the next representable value after `self` towards
    /// `other`.
    NEXTAFTER_OUT = Kernel::new("aten::nextafter.out", &[Tensor, Tensor, Out], |ctx| {
        let (a, b) = (ctx.info(0)?, ctx.info(1)?);
        let common = result_type([Operand::from(&a), Operand::from(&b)]);
        let common = common.filter(|common| common.is_floating());
        let common = common.ok_or(unsupported(0, a.scalar_type))?;
        let f32 = match common {
            ScalarType::Half => of_halves,
            ScalarType::BFloat16 => of_bfloats,
            _ => of_floats,
        };
        let functions = ByCompute { f32, f64: of_doubles, i64: None, u64: None };
        let plan = prepare(ctx, &[0, 1], &[], 2, TypeRule::Common, functions)?;
        // In another dtype, the result would not be the next representable value.
        let found = ctx.info(2)?.scalar_type;
        if found == common { Ok(plan) } else { Err(unsupported(2, found)) }
    });
}

/// Defines `nextafter` for a type with an integer bit representation, on values in its compute
/// type.
macro_rules! next_of {
    ($name:ident, $compute:ty, $from:expr, $to:expr, $of_bits:expr) => {
        fn $name(ctx: &mut Invoke) -> Result<(), KernelError> {
            crate::types::expect::<$compute>()?;
            let next = |from: $compute, to: $compute| {
                if from.is_nan() || to.is_nan() {
                    return <$compute>::NAN;
                }
                if from == to {
                    return to;
                }
                if from == 0.0 {
                    // The smallest subnormal, with the sign of the direction.
                    return $to($of_bits(1)).copysign(to);
                }
                // For either sign, larger bits are farther from zero.
                let bits = $from(from).to_bits();
                let is_farther = (from < to) == (from > 0.0);
                $to($of_bits(if is_farther { bits + 1 } else { bits - 1 }))
            };
            map(ctx, [0, 1], 2, &Rounded(next))
        }
    };
}

next_of!(of_floats, f32, |x: f32| x, |x: f32| x, f32::from_bits);
next_of!(of_doubles, f64, |x: f64| x, |x: f64| x, f64::from_bits);
next_of!(of_halves, f32, f16::from_f32, f16::to_f32, f16::from_bits);
next_of!(of_bfloats, f32, bf16::from_f32, bf16::to_f32, bf16::from_bits);
