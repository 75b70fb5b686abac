//! The Walsh–Hadamard transform.

use crate::compute::split::for_each_chunk_with;
use crate::number::{load, store, unsupported};
use crate::real::Real;
use crate::scratch;
use crate::shape::{bad, contiguous, same_type};
use crate::table::kernels;
use torchlet_core::Param::{Out, Tensor};
use torchlet_core::{Invoke, Kernel, KernelError, Plan, Prepare, ScalarType};

kernels! { HADAMARD:
    /// `llama::fast_hadamard_transform.out(mat, out)`: transforms each vector of the last
    /// dim. Its length is a power of two, or 28 times a power of two. In the latter case, the
    /// vector is divided into 28 parts. Each part is transformed, then [`ORDER_28`] is applied to
    /// the elements with the same index in all parts.
    FAST_HADAMARD_TRANSFORM_OUT =
        Kernel::new("llama::fast_hadamard_transform.out", &[Tensor, Out], prepare);
}

/// Order of the additional Hadamard matrix, for lengths that are not powers of two.
const ORDER: usize = 28;

/// ExecuTorch's Hadamard matrix of order 28. It consists of 4×4 circulant matrices of order 7,
/// given by their first rows. Set bits are -1; the lowest bit is the first element.
const ORDER_28: [[u8; 4]; 4] = [
    [0b111_1110, 0b011_1100, 0b101_1010, 0b110_0110],
    [0b100_0011, 0b111_1110, 0b001_1001, 0b101_1010],
    [0b010_0101, 0b110_0110, 0b111_1110, 0b100_0011],
    [0b001_1001, 0b010_0101, 0b011_1100, 0b111_1110],
];

/// Length of the fast transform for vectors of this length.
fn power_of_two(length: usize) -> Option<usize> {
    let part = if length.is_multiple_of(ORDER) { length / ORDER } else { length };
    part.is_power_of_two().then_some(part)
}

fn prepare(ctx: &mut Prepare) -> Result<Plan, KernelError> {
    let info = ctx.info(0)?;
    ctx.resize(1, &info.sizes)?;
    same_type(ctx, 0, 1)?;
    for arg in [0, 1] {
        contiguous(arg, &ctx.info(arg)?)?;
    }
    let length = info.rank().checked_sub(1).map_or(1, |last| info.size(last));
    let len = length.saturating_mul(ctx.threads().max(1));
    let (invoke, size): (torchlet_core::InvokeFn, usize) = match info.scalar_type {
        ScalarType::Float | ScalarType::Half | ScalarType::BFloat16 => (invoke::<f32>, 4),
        ScalarType::Double => (invoke::<f64>, 8),
        other => return Err(unsupported(0, other)),
    };
    let scratch = scratch::bytes_for(len, size)?;
    ctx.scratch_at_most(scratch);
    if info.numel() > 0 && power_of_two(length).is_none() {
        return Err(bad(0, "last dim: expected a power of two, or 28 times a power of two"));
    }
    Ok(Plan::new(invoke).with_scratch(scratch))
}

fn invoke<C: Real>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let input = ctx.tensor(0)?;
    let length = input.rank().checked_sub(1).map_or(1, |last| input.size(last));
    let (scalar_type, size) = (input.scalar_type, input.scalar_type.size());
    let parallel = ctx.parallel();
    let workspace = bytemuck::try_cast_slice_mut::<u8, C>(ctx.scratch()).unwrap_or_default();
    let out = ctx.out(1)?.into_bytes();
    // A scalar (rank 0) is its own transform.
    let task = |index: usize, out: &mut [u8], own: &mut [C]| {
        let own = own.get_mut(..length).unwrap_or_default();
        load(scalar_type, input.bytes(), (index * length) as isize, 1, own);
        transform(own);
        store(scalar_type, out, own);
    };
    for_each_chunk_with(parallel, out, length.saturating_mul(size), workspace, length, &task);
    Ok(())
}

fn transform<C: Real>(vector: &mut [C]) {
    let Some(part) = power_of_two(vector.len()).filter(|part| *part > 0) else { return };
    let factor = C::real(1.0) / C::count(part).sqrt();
    for vector in vector.chunks_exact_mut(part) {
        let mut half = 1;
        while half < part {
            for pair in vector.chunks_exact_mut(half * 2) {
                let (low, high) = pair.split_at_mut(half);
                for (low, high) in low.iter_mut().zip(high) {
                    (*low, *high) = (*low + *high, *low - *high);
                }
            }
            half *= 2;
        }
        vector.iter_mut().for_each(|x| *x = *x * factor);
    }
    if vector.len() == part {
        return;
    }
    for offset in 0..part {
        let mut column = [C::default(); ORDER];
        for (slot, x) in column.iter_mut().zip(vector.iter().skip(offset).step_by(part)) {
            *slot = *x;
        }
        for (row, x) in vector.iter_mut().skip(offset).step_by(part).enumerate() {
            *x = product(row, &column);
        }
    }
}

/// A row of [`ORDER_28`] times a vector.
fn product<C: Real>(row: usize, column: &[C; ORDER]) -> C {
    let mut sum = C::default();
    for (at, x) in column.iter().enumerate() {
        let first = ORDER_28[row / 7][at / 7];
        // Each row of a circulant matrix is the previous one, rotated by one.
        let bit = (at % 7 + 7 - row % 7) % 7;
        sum = if first >> bit & 1 == 0 { sum + *x } else { sum - *x };
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_the_matrix_are_orthogonal() {
        for a in 0..ORDER {
            let mut column = [0f64; ORDER];
            column[a] = 1.0;
            let values: Vec<f64> = (0..ORDER).map(|row| product(row, &column)).collect();
            for b in 0..ORDER {
                let mut column = [0f64; ORDER];
                column[b] = 1.0;
                let dot: f64 = (0..ORDER).map(|row| values[row] * product(row, &column)).sum();
                assert_eq!(dot, if a == b { 28.0 } else { 0.0 }, "{a} {b}");
            }
        }
    }
}
