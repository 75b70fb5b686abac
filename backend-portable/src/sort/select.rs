//! Selections whose size depends on the data: `nonzero`, `masked_select`.

use super::order::{copy_element, put_index};
use crate::elementwise::by_compute;
use crate::number::{Compute, ComputeType, load, unsupported};
use crate::reduce::expect_type;
use crate::table::kernels;
use crate::walk::Walk;
use torchlet_core::Param::{Int, Out, Tensor};
use torchlet_core::rules::broadcast;
use torchlet_core::{
    Invoke, Kernel, KernelError, Plan, Prepare, ScalarType, TensorInfo, TensorMut, TensorRef,
};

kernels! {
    /// `aten::nonzero.out(self, out)`: the indices of each nonzero value, as a row.
    NONZERO_OUT = Kernel::new("aten::nonzero.out", &[Tensor, Out], prepare_nonzero);
    /// `aten::nonzero_static.out(self, size, fill_value, out)`: like [`NONZERO_OUT`], with `size`
    /// rows; missing rows are filled with `fill_value`.
    NONZERO_STATIC_OUT = Kernel::new("aten::nonzero_static.out", &[Tensor, Int, Int, Out], |ctx| {
        let input = ctx.info(0)?;
        let compute = ComputeType::of(input.scalar_type).ok_or(unsupported(0, input.scalar_type))?;
        let size = i32::try_from(ctx.int(1)?).ok().filter(|size| *size >= 0);
        let size = size.ok_or(KernelError::argument(1, "size: expected 0 to 2^31 - 1"))?;
        ctx.resize(3, &[size, input.rank() as i32])?;
        expect_type(ctx, 3, ScalarType::Long)?;
        Ok(Plan::new(by_compute!(nonzero_static).choose(compute)))
    });
    /// `aten::masked_select.out(self, mask, out)`: the values where the mask is true.
    MASKED_SELECT_OUT = Kernel::new(
        "aten::masked_select.out",
        &[Tensor, Tensor, Out],
        prepare_masked_select,
    );
}

/// Number of values that are converted at a time, to a buffer on the stack.
const BLOCK: usize = 64;

/// Calls `found(number, position)` for each nonzero value in row-major order. `number` is its
/// row-major index, `position` its memory position. The tensor is input `which` of the walk.
fn each_true<C: Compute, const N: usize>(
    walk: &Walk<N>,
    mask: &TensorRef,
    which: usize,
    found: &mut dyn FnMut(usize, [isize; N]),
) {
    let steps = walk.inner_steps();
    let mut block = [C::default(); BLOCK];
    walk.for_each_run(0, walk.numel(), &mut |number, at, len| {
        for from in (0..len).step_by(BLOCK) {
            let block = &mut block[..BLOCK.min(len - from)];
            let offset = |i: usize, n: usize| at[i].wrapping_add(steps[i].wrapping_mul(n as isize));
            load(mask.scalar_type, mask.bytes(), offset(which, from), steps[which], block);
            for (i, value) in block.iter().enumerate() {
                if value.truth() {
                    let positions = core::array::from_fn(|input| offset(input, from + i));
                    found(number + from + i, positions);
                }
            }
        }
    });
}

/// A contiguous tensor of this shape.
fn in_order(sizes: &[i32]) -> Result<TensorInfo, KernelError> {
    TensorInfo::contiguous(ScalarType::Byte, sizes)
        .ok_or(KernelError::argument(0, "shape is too large"))
}

/// A count as the size of an output dim.
fn size_of_count(count: usize) -> Result<i32, KernelError> {
    i32::try_from(count).map_err(|_| KernelError::unsupported("more than 2^31 - 1 results"))
}

fn prepare_nonzero(ctx: &mut Prepare) -> Result<Plan, KernelError> {
    let found = ctx.info(0)?.scalar_type;
    let compute = ComputeType::of(found).ok_or(unsupported(0, found))?;
    expect_type(ctx, 1, ScalarType::Long)?;
    let out = ctx.info(1)?;
    if out.rank() != 2 {
        return Err(KernelError::rank(1, out.rank()));
    }
    Ok(Plan::new(by_compute!(nonzero).choose(compute)))
}

fn nonzero<C: Compute>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let input = ctx.tensor(0)?;
    let walk = Walk::broadcast(&in_order(&input.sizes)?, [input.info()])?;
    let mut count = 0;
    each_true::<C, 1>(&walk, &input, 0, &mut |_, _| count += 1);
    let rank = input.rank();
    // The rank is at most 16, so it fits.
    ctx.resize(1, &[size_of_count(count)?, rank as i32])?;
    let mut out = ctx.out(1)?;
    write_indices::<C>(&walk, &input, &mut out);
    Ok(())
}

fn nonzero_static<C: Compute>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let input = ctx.tensor(0)?;
    let fill = ctx.int(2)?;
    let mut out = ctx.out(3)?;
    out.data_mut::<i64>()?.fill(fill);
    let walk = Walk::broadcast(&in_order(&input.sizes)?, [input.info()])?;
    write_indices::<C>(&walk, &input, &mut out);
    Ok(())
}

/// Writes the indices of nonzero values, up to the number of output rows.
fn write_indices<C: Compute>(walk: &Walk<1>, input: &TensorRef, out: &mut TensorMut) {
    let (rank, rows) = (input.rank(), out.size(0));
    let strides = out.strides();
    let (row, column) = (strides[0] as isize, strides[1] as isize);
    let mut written = 0;
    each_true::<C, 1>(walk, input, 0, &mut |mut number, _| {
        if written == rows {
            return;
        }
        let at = row.wrapping_mul(written as isize);
        for dim in (0..rank).rev() {
            let size = input.size(dim).max(1);
            put_index(out, at + dim as isize * column, (number % size) as i64);
            number /= size;
        }
        written += 1;
    });
}

fn prepare_masked_select(ctx: &mut Prepare) -> Result<Plan, KernelError> {
    let (input, mask) = (ctx.info(0)?, ctx.info(1)?);
    if !matches!(mask.scalar_type, ScalarType::Bool | ScalarType::Byte) {
        return Err(unsupported(1, mask.scalar_type));
    }
    if broadcast(&input.sizes, &mask.sizes).is_none() {
        return Err(KernelError::argument(1, "shapes of mask and input do not broadcast"));
    }
    expect_type(ctx, 2, input.scalar_type)?;
    let out = ctx.info(2)?;
    if out.rank() != 1 {
        return Err(KernelError::rank(2, out.rank()));
    }
    Ok(Plan::new(masked_select))
}

fn masked_select(ctx: &mut Invoke) -> Result<(), KernelError> {
    let (input, mask) = (ctx.tensor(0)?, ctx.tensor(1)?);
    let what = "shapes of mask and input do not broadcast";
    let sizes = broadcast(&input.sizes, &mask.sizes);
    let sizes = sizes.ok_or(KernelError::argument(1, what))?;
    let walk = Walk::broadcast(&in_order(&sizes)?, [input.info(), mask.info()])?;
    let mut count = 0;
    each_true::<i64, 2>(&walk, &mask, 1, &mut |_, _| count += 1);
    ctx.resize(2, &[size_of_count(count)?])?;
    let mut out = ctx.out(2)?;
    let mut to = 0;
    each_true::<i64, 2>(&walk, &mask, 1, &mut |_, [from, _]| {
        copy_element(&input, from, &mut out, to);
        to += 1;
    });
    Ok(())
}
