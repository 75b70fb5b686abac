//! Weighted random sampling: `multinomial`.

use super::random::{hash, next_key};
use crate::number::{elements_mut, load, unsupported};
use crate::scratch;
use crate::table::kernels;
use torchlet_core::Param::{Bool, Int, OptionalInt, Out, Tensor};
use torchlet_core::{Invoke, Kernel, KernelError, Plan, ScalarType};

kernels! { MULTINOMIAL:
    /// `aten::multinomial.out(self, num_samples, replacement, generator, out)`: indices, drawn with
    /// probabilities proportional to the weights in each row; without `replacement`, all distinct.
    MULTINOMIAL_OUT =
        Kernel::new("aten::multinomial.out", &[Tensor, Int, Bool, OptionalInt, Out], |ctx| {
            let weights = ctx.info(0)?;
            if !weights.scalar_type.is_floating() {
                return Err(unsupported(0, weights.scalar_type));
            }
            if !(1..=2).contains(&weights.rank()) {
                return Err(KernelError::rank(0, weights.rank()));
            }
            let count = weights.size(weights.rank() - 1);
            let scratch = scratch::bytes_for(count, size_of::<f64>())?;
            ctx.scratch_at_most(scratch);
            let samples = usize::try_from(ctx.int(1)?).ok().filter(|samples| *samples > 0);
            let samples = samples.ok_or(KernelError::argument(1, "number of samples: expected at \
                                                                  least 1"))?;
            if samples > count && !ctx.bool(2)? {
                return Err(KernelError::argument(1, "number of samples exceeds the number of \
                                                     weights; sample with replacement"));
            }
            let mut sizes = weights.sizes.clone();
            let too_many = KernelError::argument(1, "number of samples exceeds 2^31 - 1");
            if let Some(last) = sizes.last_mut() {
                *last = i32::try_from(samples).map_err(|_| too_many)?;
            }
            ctx.resize(4, &sizes)?;
            let out = ctx.info(4)?;
            if out.scalar_type != ScalarType::Long {
                return Err(unsupported(4, out.scalar_type));
            }
            if !out.is_contiguous() {
                return Err(KernelError::layout(4));
            }
            Ok(Plan::new(multinomial).with_scratch(scratch))
        });
}

fn multinomial(ctx: &mut Invoke) -> Result<(), KernelError> {
    let weights = ctx.tensor(0)?;
    let (samples, again) = (usize::try_from(ctx.int(1)?).unwrap_or(0), ctx.bool(2)?);
    let last = weights.rank().saturating_sub(1);
    let (count, strides) = (weights.size(last), weights.strides());
    let step = |dim: usize| strides.get(dim).map_or(0, |&step| step as isize);
    let row_step = if last > 0 { step(0) } else { 0 };
    let remaining = scratch::take::<f64>(ctx, count)?;
    let key = next_key();
    let mut out = ctx.out(4)?;
    let drawn = elements_mut::<i64>(out.bytes_mut());
    for (row, drawn) in drawn.chunks_exact_mut(samples.max(1)).enumerate() {
        load(weights.scalar_type, weights.bytes(), row as isize * row_step, step(last), remaining);
        if remaining.iter().any(|weight| !weight.is_finite() || *weight < 0.0) {
            return Err(KernelError::argument(
                0,
                "weights: expected finite and nonnegative values",
            ));
        }
        let positive = remaining.iter().filter(|weight| **weight > 0.0).count();
        if positive == 0 {
            return Err(KernelError::argument(
                0,
                "weights: expected at least one positive value in every row",
            ));
        }
        for (i, slot) in drawn.iter_mut().enumerate() {
            let number = key ^ hash((row as u64) << 32 ^ i as u64);
            let choice = draw(remaining, hash(number));
            *slot = choice as i64;
            if !again {
                // A negative weight marks a used index. Zero-weight indices are drawn only after
                // all others are used.
                remaining[choice] = -1.0;
            }
        }
    }
    Ok(())
}

/// Draws an index by weight, skipping negative weights.
fn draw(weights: &[f64], bits: u64) -> usize {
    let total: f64 = weights.iter().filter(|weight| **weight > 0.0).sum();
    // A 53-bit fraction in 0..1.
    let mut target = (bits >> 11) as f64 / (1u64 << 53) as f64 * total;
    let wanted = |weight: f64| if total > 0.0 { weight > 0.0 } else { weight == 0.0 };
    let mut choice = 0;
    for (i, &weight) in weights.iter().enumerate().filter(|(_, weight)| wanted(**weight)) {
        choice = i;
        if target < weight {
            break;
        }
        target -= weight;
    }
    choice
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequencies_match_weights() {
        let weights = [0.0, 1.0, 3.0, 0.0, 4.0];
        let mut counts = [0usize; 5];
        for key in 0..80_000 {
            counts[draw(&weights, hash(key))] += 1;
        }
        for (count, weight) in counts.into_iter().zip(weights) {
            let expected = weight * 10_000.0;
            assert!((count as f64 - expected).abs() < 400.0, "{counts:?}");
        }
        assert_eq!(draw(&[-1.0, 2.0, -1.0], u64::MAX), 1);
        assert_eq!(draw(&[-1.0, 0.0, -1.0], 7), 1);
    }
}
