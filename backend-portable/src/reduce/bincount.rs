//! Counts of integer values: `bincount`.

use super::expect_type;
use crate::number::{elements, elements_mut, load, unsupported, with_number};
use crate::table::kernels;
use torchlet_core::Param::{Int, OptionalTensor, Out, Tensor};
use torchlet_core::{Invoke, Kernel, KernelError, Plan, ScalarType, TensorRef};

kernels! {
    /// `aten::bincount.out(self, weights, minlength, out)`: the number of occurrences of each
    /// integer, or the sum of their weights. The output extends from 0 to the maximum, and has at
    /// least `minlength` elements.
    BINCOUNT_OUT =
        Kernel::new("aten::bincount.out", &[Tensor, OptionalTensor, Int, Out], |ctx| {
            let input = ctx.info(0)?;
            if !input.scalar_type.is_integral(false) {
                return Err(unsupported(0, input.scalar_type));
            }
            if input.rank() != 1 {
                return Err(KernelError::rank(0, input.rank()));
            }
            let mut made = ScalarType::Long;
            if let Some(weights) = ctx.optional_info(1)? {
                if weights.sizes != input.sizes {
                    return Err(KernelError::argument(1, "expected a weight per value"));
                }
                made = match weights.scalar_type {
                    ScalarType::Float => ScalarType::Float,
                    found if found.is_floating() || found.is_integral(true) => ScalarType::Double,
                    found => return Err(unsupported(1, found)),
                };
            }
            if ctx.int(2)? < 0 {
                return Err(KernelError::argument(2, "minlength: expected at least 0"));
            }
            expect_type(ctx, 3, made)?;
            let rank = ctx.info(3)?.rank();
            if rank != 1 {
                return Err(KernelError::rank(3, rank));
            }
            Ok(Plan::new(bincount))
        });
}

/// Calls `visit` with the position and value of each element.
fn for_each(tensor: &TensorRef, visit: &mut dyn FnMut(usize, i64)) {
    with_number!(tensor.scalar_type, |T| {
        let step = tensor.strides().first().copied().unwrap_or(1).max(1);
        let elements_iter = elements::<T>(tensor.bytes()).iter().step_by(step);
        for (position, number) in elements_iter.take(tensor.numel()).enumerate() {
            visit(position, crate::number::Number::to_i64(*number));
        }
    }, else ());
}

fn bincount(ctx: &mut Invoke) -> Result<(), KernelError> {
    let (input, weights) = (ctx.tensor(0)?, ctx.optional_tensor(1)?);
    let (mut least, mut largest) = (0, -1);
    for_each(&input, &mut |_, number| {
        least = least.min(number);
        largest = largest.max(number);
    });
    if least < 0 {
        return Err(KernelError::argument(0, "values: expected at least 0"));
    }
    let count = i32::try_from(largest.saturating_add(1).max(ctx.int(2)?));
    ctx.resize(
        3,
        &[count.map_err(|_| {
            KernelError::argument(0, "the largest value or minlength exceeds 2^31 - 2")
        })?],
    )?;
    let mut out = ctx.out(3)?;
    let scalar_type = out.scalar_type;
    out.bytes_mut().fill(0);
    let Some(weights) = weights else {
        let counts = elements_mut::<i64>(out.bytes_mut());
        for_each(&input, &mut |_, number| {
            if let Some(count) = usize::try_from(number).ok().and_then(|at| counts.get_mut(at)) {
                *count += 1;
            }
        });
        return Ok(());
    };
    let step = weights.strides().first().copied().unwrap_or(1);
    macro_rules! sum {
        ($t:ty) => {{
            let sums = elements_mut::<$t>(out.bytes_mut());
            for_each(&input, &mut |position, number| {
                let mut weight: [$t; 1] = [0.0];
                load(
                    weights.scalar_type,
                    weights.bytes(),
                    (position * step) as isize,
                    1,
                    &mut weight,
                );
                if let Some(sum) = usize::try_from(number).ok().and_then(|at| sums.get_mut(at)) {
                    *sum += weight[0];
                }
            });
        }};
    }
    if scalar_type == ScalarType::Float {
        sum!(f32)
    } else {
        sum!(f64)
    }
    Ok(())
}
