//! int8 matrix multiplication, and softmax.

use super::relayout::{Output, Relayout, copies_len};
use super::{Order, expect_type, int, scale};
use crate::compute::q8::gemm::{self, Product, Weights};
use crate::compute::q8::softmax::{self, Softmax};
use crate::compute::q8::{Results, Scale};
use crate::compute::simd::Tier;
use crate::machine;
use crate::scratch::bytes_for;
use crate::shape::bad;
use crate::table::kernels;
use torchlet_core::Param::{Int, IntList, OptionalTensor, Out, Scratch, Tensor};
use torchlet_core::rules::normalize_dim;
use torchlet_core::{Arguments, Elements, Invoke, Kernel, KernelError, Plan, Prepare, ScalarType};

kernels! { LINEAR:
    /// `cortex_m::quantized_linear.out(input, weights, bias, kernel_sum,
    /// input_offset, filter_offset, output_offset, requantize_multipliers,
    /// requantize_shifts, activation_max, activation_min, out)`. `kernel_sum`, if present, includes
    /// the bias and the contribution of the input offset.
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
            check_types(ctx, &[0, 1, 11])?;
            let (info, weights) = (ctx.info(0)?, ctx.info(1)?);
            let &[outputs, inputs] = &weights.sizes[..] else {
                return Err(KernelError::rank(1, weights.rank()));
            };
            let mut sizes = info.sizes.clone();
            let width = sizes.last_mut().ok_or(KernelError::rank(0, 0))?;
            if core::mem::replace(width, outputs) != inputs {
                return Err(bad(1, "weights: expected as many columns as the last dim of the \
                                   input"));
            }
            for arg in [2, 3] {
                let Some(added) = ctx.optional_info(arg)? else { continue };
                if added.scalar_type != ScalarType::Int {
                    return Err(KernelError::scalar_type(arg, added.scalar_type));
                }
                if added.numel() != weights.size(0) {
                    return Err(bad(arg, "expected an element for each row of the weights"));
                }
            }
            linear_scale(ctx)?;
            ctx.resize(11, &sizes)?;
            let count = info.numel().checked_div(inputs as usize).unwrap_or(0);
            let scratch = scratch(ctx, inputs as usize, count, &[0, 1, 11])?;
            Ok(Plan::new(linear).with_scratch(scratch))
        },
    )
    .with_elements(Elements::Typed);
    /// `cortex_m::quantized_batch_matmul.out(lhs, lhs_zero_point, rhs_transposed,
    /// rhs_zero_point, output_zero_point, output_multiplier, output_shift, scratch, out)`. The zero
    /// points of the inputs are negated.
    QUANTIZED_BATCH_MATMUL_OUT = Kernel::new(
        "cortex_m::quantized_batch_matmul.out",
        &[Tensor, Int, Tensor, Int, Int, Int, Int, Scratch, Out],
        |ctx| {
            check_types(ctx, &[0, 2, 8])?;
            let (a, b) = (ctx.info(0)?, ctx.info(2)?);
            let (&[batch, rows, depth], &[other, columns, shared]) = (&a.sizes[..], &b.sizes[..])
            else {
                return Err(KernelError::rank(0, a.rank()));
            };
            if batch != other || depth != shared {
                return Err(bad(2, "operand shapes do not match"));
            }
            scale(ctx, 5)?;
            ctx.resize(8, &[batch, rows, columns])?;
            let count = a.size(0).saturating_mul(a.size(1));
            let scratch = scratch(ctx, a.size(2), count, &[0, 2, 8])?;
            Ok(Plan::new(batch_matmul).with_scratch(scratch))
        },
    )
    .with_elements(Elements::Typed);
    /// `cortex_m::softmax.out(input, dim, input_zero_point, output_zero_point,
    /// input_multiplier, input_shift, diff_min, out)`: over the last dim; the output scale is
    /// 1/256.
    SOFTMAX_OUT =
        Kernel::new("cortex_m::softmax.out", &[Tensor, Int, Int, Int, Int, Int, Int, Out], |ctx| {
            check_types(ctx, &[0, 7])?;
            let info = ctx.info(0)?;
            let dim = normalize_dim(ctx.int(1)?, info.rank());
            if dim.map(|dim| dim + 1) != Some(info.rank().max(1)) {
                return Err(bad(1, "expected the last dim"));
            }
            if scale(ctx, 4)?.shift() < 0 {
                return Err(bad(5, "shift: expected at least 0"));
            }
            if ctx.int(3)? != -128 {
                return Err(bad(3, "output zero point: expected -128"));
            }
            ctx.resize(7, &info.sizes)?;
            Ok(Plan::new(softmax).with_scratch(copies_len(ctx, &[0, 7], ORDER)?))
        });
}

/// Memory order of the matrices.
const ORDER: Order = Order::Memory;

fn check_types(ctx: &Arguments, args: &[usize]) -> Result<(), KernelError> {
    args.iter().try_for_each(|&arg| expect_type(ctx, arg, ScalarType::Char))
}

/// Bytes of scratch memory for `count` rows of this depth, and for copies of these arguments.
fn scratch(
    ctx: &Prepare,
    depth: usize,
    count: usize,
    args: &[usize],
) -> Result<usize, KernelError> {
    let tier = machine::tier(ctx);
    let slots = ctx.threads().min(count.div_ceil(gemm::rows(tier)));
    let len = gemm::workspace_len(tier, depth).and_then(|len| len.checked_mul(slots));
    let bytes = bytes_for(len.unwrap_or(usize::MAX), size_of::<i16>())?;
    bytes_for(bytes.saturating_add(copies_len(ctx, args, ORDER)?), 1)
}

fn multiply<'c>(
    ctx: &Invoke<'c, '_>,
    relayout: Relayout<'c>,
    product: Product,
    out: Output,
) -> Result<(), KernelError> {
    let (tier, parallel) = (Tier::detect(), ctx.parallel());
    let len = product.workspace_len(tier, parallel, out.values.len());
    let workspace = relayout.workspace::<i16>(len)?;
    gemm::multiply_all(tier, parallel, product, out.values, workspace);
    out.finish(ctx.parallel())
}

fn linear_scale(ctx: &Arguments) -> Result<Scale, KernelError> {
    Scale::new(ctx.list_int(7, 0)?, ctx.list_int(8, 0)?)
        .ok_or(bad(7, "multiplier, or the shift in the next argument, is out of range"))
}

fn linear(ctx: &mut Invoke) -> Result<(), KernelError> {
    let weights = ctx.info(1)?;
    let (bias, sums) = (ctx.optional_tensor(2)?, ctx.optional_tensor(3)?);
    let (mut offset, filter_offset) = (int(ctx, 4)?, int(ctx, 5)?);
    if sums.is_some() {
        offset = 0;
    }
    let added = sums.or(bias);
    let added = added.as_ref().map(|added| added.data::<i32>()).transpose()?.unwrap_or(&[]);
    let bounds = (int(ctx, 10)?, int(ctx, 9)?);
    let results = Results::uniform(linear_scale(ctx)?, added, int(ctx, 6)?, bounds);
    let (channels, depth) = (weights.size(0), weights.size(1));
    let mut relayout = Relayout::new(ctx, ORDER);
    let (lhs, data) = (relayout.input(ctx, 0)?, relayout.input(ctx, 1)?);
    let out = relayout.output(ctx, 11)?;
    let weights = Weights { data, depth, channels, offset: filter_offset };
    let product = Product { lhs, offset, weights, results, rows: usize::MAX, step: 0 };
    multiply(ctx, relayout, product, out)
}

fn batch_matmul(ctx: &mut Invoke) -> Result<(), KernelError> {
    let (a, b) = (ctx.info(0)?, ctx.info(2)?);
    let results = Results::uniform(scale(ctx, 5)?, &[], int(ctx, 4)?, (-128, 127));
    let (rows, depth, channels) = (a.size(1), a.size(2), b.size(1));
    let mut relayout = Relayout::new(ctx, ORDER);
    let (lhs, data) = (relayout.input(ctx, 0)?, relayout.input(ctx, 2)?);
    let out = relayout.output(ctx, 8)?;
    let weights = Weights { data, depth, channels, offset: int(ctx, 3)? };
    let (offset, step) = (int(ctx, 1)?, depth * channels);
    multiply(ctx, relayout, Product { lhs, offset, weights, results, rows, step }, out)
}

fn softmax(ctx: &mut Invoke) -> Result<(), KernelError> {
    let input = ctx.tensor(0)?;
    let scale = scale(ctx, 4)?;
    let softmax = Softmax {
        multiplier: scale.multiplier(),
        shift: scale.shift().unsigned_abs(),
        least: int(ctx, 6)?,
    };
    let width = input.rank().checked_sub(1).map_or(1, |last| input.size(last)).max(1);
    let mut relayout = Relayout::new(ctx, ORDER);
    let (data, out) = (relayout.input(ctx, 0)?, relayout.output(ctx, 7)?);
    softmax::rows(ctx.parallel(), softmax, width, data, out.values);
    out.finish(ctx.parallel())
}
