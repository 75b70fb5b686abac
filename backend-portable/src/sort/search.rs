//! Where values belong among sorted ones.

use crate::compute::split::for_each_chunk_mut;
use crate::elementwise::by_compute;
use crate::number::{Compute, ComputeType, load, store, unsupported};
use crate::table::kernels;
use crate::walk::Walk;
use torchlet_core::Param::{Bool, Out, Tensor};
use torchlet_core::rules::{Operand, result_type};
use torchlet_core::{Invoke, Kernel, KernelError, Plan, Prepare, ScalarType, TensorRef};

kernels! {
    /// `aten::bucketize.Tensor_out(self, boundaries, out_int32, right, out)`: how many boundaries lie below each value, or
    /// (`right`) at it or below.
    BUCKETIZE_OUT = Kernel::new(
        "aten::bucketize.Tensor_out",
        &[Tensor, Tensor, Bool, Bool, Out],
        prepare,
    );
}

/// Searches worth a thread of their own.
const GRAIN: usize = 1 << 10;

fn prepare(ctx: &mut Prepare) -> Result<Plan, KernelError> {
    let (input, boundaries) = (ctx.info(0)?, ctx.info(1)?);
    if boundaries.rank() != 1 {
        return Err(KernelError::rank(1, boundaries.rank()));
    }
    for (arg, info) in [(0, &input), (1, &boundaries)] {
        ComputeType::of(info.scalar_type).ok_or(unsupported(arg, info.scalar_type))?;
    }
    ctx.resize(4, &input.sizes)?;
    let found = ctx.info(4)?.scalar_type;
    if found != if ctx.bool(2)? { ScalarType::Int } else { ScalarType::Long } {
        return Err(unsupported(4, found));
    }
    let common = result_type([Operand::from(&input), Operand::from(&boundaries)]);
    let compute = common.and_then(ComputeType::of);
    let compute = compute.ok_or(unsupported(1, boundaries.scalar_type))?;
    Ok(Plan::new(by_compute!(bucketize).choose(compute)))
}

fn bucketize<C: Compute>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let (input, boundaries) = (ctx.tensor(0)?, ctx.tensor(1)?);
    let right = ctx.bool(3)?;
    let out = ctx.out(4)?;
    let walk = Walk::broadcast(out.info(), [input.info()])?;
    let [step] = walk.inner_steps();
    let (scalar_type, size) = (out.scalar_type, out.scalar_type.size());
    let bytes = out.into_bytes();
    for_each_chunk_mut(ctx.parallel(), bytes, GRAIN * size, &|index, bytes: &mut [u8]| {
        let from = index * GRAIN;
        let mut places = bytes.chunks_exact_mut(size);
        let to = from + places.len();
        walk.for_each_run(from, to, &mut |_, [at], len| {
            for (i, place) in (0..len as isize).zip(&mut places) {
                let value: C = read(&input, at.wrapping_add(step.wrapping_mul(i)));
                let bucket = bucket(&boundaries, value, right);
                store(scalar_type, place, &[bucket as i64]);
            }
        });
    });
    Ok(())
}

fn read<C: Compute>(tensor: &TensorRef, at: isize) -> C {
    let mut value = [C::default()];
    load(tensor.scalar_type, tensor.bytes(), at, 1, &mut value);
    value[0]
}

/// The first boundary that is not less than the value (`right`: that is greater). NaN passes all.
fn bucket<C: Compute>(boundaries: &TensorRef, value: C, right: bool) -> usize {
    let (mut start, mut end) = (0, boundaries.numel());
    while start < end {
        let middle = start + (end - start) / 2;
        let boundary: C = read(boundaries, middle as isize);
        let stops = if right { boundary > value } else { boundary >= value };
        if stops { end = middle } else { start = middle + 1 }
    }
    start
}
