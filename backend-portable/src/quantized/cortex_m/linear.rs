//! Products of 8-bit matrices, and softmax.

use super::{Scale, dot, expect_type, finish, int};
use crate::compute::split::{chunk_len, for_each_chunk_mut};
use crate::real::Real;
use crate::shape::bad;
use crate::table::kernels;
use torchlet_core::Param::{Int, IntList, OptionalTensor, Out, Tensor};
use torchlet_core::rules::normalize_dim;
use torchlet_core::{Arguments, Invoke, Kernel, KernelError, Plan, ScalarType};

kernels! { LINEAR:
    /// `cortex_m::quantized_linear.out(input, weights, bias, kernel_sum, input_offset, filter_offset, output_offset,
    /// requantize_multipliers, requantize_shifts, activation_max, activation_min, out)`. The sums over the weights, if given, have the
    /// bias and the input's offset in them.
    QUANTIZED_LINEAR_OUT = Kernel::new(
        "cortex_m::quantized_linear.out",
        &[
            Tensor,
            Tensor,
            OptionalTensor,
            OptionalTensor,
            Int,
            Int,
            Int,
            IntList,
            IntList,
            Int,
            Int,
            Out,
        ],
        |ctx| {
            check_matrices(ctx, &[0, 1, 11])?;
            let (info, weights) = (ctx.info(0)?, ctx.info(1)?);
            let &[outputs, inputs] = &weights.sizes[..] else {
                return Err(KernelError::Rank { arg: 1, found: weights.rank() });
            };
            let mut sizes = info.sizes.clone();
            let width = sizes.last_mut().ok_or(KernelError::Rank { arg: 0, found: 0 })?;
            if core::mem::replace(width, outputs) != inputs {
                return Err(bad(1, "has another number of inputs than the input"));
            }
            for arg in [2, 3] {
                let Some(added) = ctx.optional_info(arg)? else { continue };
                if added.scalar_type != ScalarType::Int {
                    return Err(KernelError::ScalarType { arg, found: added.scalar_type });
                }
                if added.numel() != weights.size(0) {
                    return Err(bad(arg, "must have a number for each output"));
                }
            }
            linear_scale(ctx)?;
            ctx.resize(11, &sizes)?;
            Ok(Plan::new(linear))
        },
    );
    /// `cortex_m::quantized_batch_matmul.out(lhs, lhs_zero_point, rhs_transposed, rhs_zero_point, output_zero_point,
    /// output_multiplier, output_shift, scratch, out)`. The inputs' zero points come with their sign changed.
    QUANTIZED_BATCH_MATMUL_OUT = Kernel::new(
        "cortex_m::quantized_batch_matmul.out",
        &[Tensor, Int, Tensor, Int, Int, Int, Int, Tensor, Out],
        |ctx| {
            check_matrices(ctx, &[0, 2, 8])?;
            let (a, b) = (ctx.info(0)?, ctx.info(2)?);
            let (&[batch, rows, depth], &[other, columns, shared]) = (&a.sizes[..], &b.sizes[..])
            else {
                return Err(KernelError::Rank { arg: 0, found: a.rank() });
            };
            if batch != other || depth != shared {
                return Err(bad(2, "does not fit the first matrix"));
            }
            Scale::of(ctx, 5)?;
            ctx.resize(8, &[batch, rows, columns])?;
            Ok(Plan::new(batch_matmul))
        },
    );
    /// `cortex_m::softmax.out(input, dim, input_zero_point, output_zero_point, input_multiplier, input_shift, diff_min, out)`: over the last
    /// dimension; a quantum of the output is 1/256.
    SOFTMAX_OUT =
        Kernel::new("cortex_m::softmax.out", &[Tensor, Int, Int, Int, Int, Int, Int, Out], |ctx| {
            check_matrices(ctx, &[0, 7])?;
            let info = ctx.info(0)?;
            let dim = normalize_dim(ctx.int(1)?, info.rank());
            if dim.map(|dim| dim + 1) != Some(info.rank().max(1)) {
                return Err(bad(1, "must be the last dimension"));
            }
            Scale::of(ctx, 4)?;
            ctx.resize(7, &info.sizes)?;
            Ok(Plan::new(softmax))
        });
}

fn check_matrices(ctx: &Arguments, args: &[usize]) -> Result<(), KernelError> {
    for &arg in args {
        expect_type(ctx, arg, ScalarType::Char)?;
        if !ctx.info(arg)?.is_contiguous() {
            return Err(KernelError::Layout { arg });
        }
    }
    Ok(())
}

/// Fills rows of an output; rows are dealt out to threads.
fn for_each_row(
    ctx: &Invoke,
    out: &mut [i8],
    columns: usize,
    work: usize,
    row: &(dyn Fn(usize, &mut [i8]) + Sync),
) {
    let columns = columns.max(1);
    let rows = (chunk_len(ctx.parallel(), out.len(), 64 * 1024 / work.max(1)) / columns).max(1);
    for_each_chunk_mut(ctx.parallel(), out, rows * columns, &|chunk, out: &mut [i8]| {
        for (index, out) in out.chunks_mut(columns).enumerate() {
            row(chunk * rows + index, out);
        }
    });
}

fn linear_scale(ctx: &Arguments) -> Result<Scale, KernelError> {
    Scale::new(ctx.list_int(7, 0)?, ctx.list_int(8, 0)?)
        .ok_or(bad(7, "this multiplier or the shift behind it is out of range"))
}

fn linear(ctx: &mut Invoke) -> Result<(), KernelError> {
    let (input, weights) = (ctx.tensor(0)?, ctx.tensor(1)?);
    let (bias, sums) = (ctx.optional_tensor(2)?, ctx.optional_tensor(3)?);
    let (mut input_offset, filter_offset, offset) = (int(ctx, 4)?, int(ctx, 5)?, int(ctx, 6)?);
    let (scale, bounds) = (linear_scale(ctx)?, (int(ctx, 10)?, int(ctx, 9)?));
    if sums.is_some() {
        input_offset = 0;
    }
    let added = sums.or(bias);
    let added = added.as_ref().map(|added| added.data::<i32>()).transpose()?.unwrap_or(&[]);
    let (outputs, inputs) = (weights.size(0), weights.size(1));
    let (data, weights) = (input.data::<i8>()?, weights.data::<i8>()?);
    let out = ctx.out(11)?.into_data::<i8>()?;
    for_each_row(ctx, out, outputs, inputs, &|row, out| {
        let data = data.get(row * inputs..(row + 1) * inputs).unwrap_or(&[]);
        // What the weights' offset adds is the same for all outputs.
        let shared = if filter_offset == 0 {
            0
        } else {
            let sum = data.iter().fold(0i32, |sum, &value| {
                sum.wrapping_add(i32::from(value).wrapping_add(input_offset))
            });
            sum.wrapping_mul(filter_offset)
        };
        for (index, out) in out.iter_mut().enumerate() {
            let weights = weights.get(index * inputs..(index + 1) * inputs).unwrap_or(&[]);
            let sum = dot(data, weights, input_offset)
                .wrapping_add(shared)
                .wrapping_add(added.get(index).copied().unwrap_or(0));
            *out = finish(scale.requantize(sum), offset, bounds);
        }
    });
    Ok(())
}

fn batch_matmul(ctx: &mut Invoke) -> Result<(), KernelError> {
    let (a, b) = (ctx.tensor(0)?, ctx.tensor(2)?);
    let (a_offset, b_offset, offset) = (int(ctx, 1)?, int(ctx, 3)?, int(ctx, 4)?);
    let scale = Scale::of(ctx, 5)?;
    let (rows, depth, columns) = (a.size(1), a.size(2), b.size(1));
    let (a, b) = (a.data::<i8>()?, b.data::<i8>()?);
    let out = ctx.out(8)?.into_data::<i8>()?;
    for_each_row(ctx, out, columns, depth, &|row, out| {
        let batch = row / rows.max(1);
        let a = a.get(row * depth..(row + 1) * depth).unwrap_or(&[]);
        let sum = a
            .iter()
            .fold(0i32, |sum, &value| sum.wrapping_add(i32::from(value).wrapping_add(a_offset)));
        let shared = sum.wrapping_mul(b_offset);
        for (column, out) in out.iter_mut().enumerate() {
            let from = (batch * columns + column) * depth;
            let b = b.get(from..from + depth).unwrap_or(&[]);
            let sum = dot(a, b, a_offset).wrapping_add(shared);
            *out = finish(scale.requantize(sum), offset, (-128, 127));
        }
    });
    Ok(())
}

/// Bits before the point of the differences that CMSIS-NN takes exponentials of.
const INTEGER_BITS: i32 = 5;

fn softmax(ctx: &mut Invoke) -> Result<(), KernelError> {
    let input = ctx.tensor(0)?;
    let (scale, zero) = (Scale::of(ctx, 4)?, int(ctx, 3)?);
    let exponent = scale.shift - 31 - (31 - INTEGER_BITS);
    let step = libm::ldexpf(scale.multiplier as f32, exponent);
    let width = input.rank().checked_sub(1).map_or(1, |last| input.size(last));
    let data = input.data::<i8>()?;
    let out = ctx.out(7)?.into_data::<i8>()?;
    for_each_row(ctx, out, width, 32, &|row, out| {
        let data = data.get(row * width..(row + 1) * width).unwrap_or(&[]);
        let largest = f32::from(data.iter().copied().max().unwrap_or(0));
        let power = |value: i8| libm::expf((f32::from(value) - largest) * step);
        let sum: f32 = data.iter().map(|&value| power(value)).sum();
        for (out, &value) in out.iter_mut().zip(data) {
            let number = (power(value) / sum * 256.0).round_even() as i32;
            *out = finish(number, zero, (-128, 127));
        }
    });
    Ok(())
}
