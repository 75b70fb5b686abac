//! Writes to slices of a dim, to linear indices and to strided windows: `index_reduce`, `put`,
//! `as_strided_scatter`.

use super::writing::{Reduce, dim_of, reduce, reduction_arg};
use super::{Indices, index_type, steps};
use crate::number::{ComputeType, elements_mut, unsupported, with_number};
use crate::shape::moves::{by_size, items, items_mut};
use crate::shape::{bad, same_type, updated, views::position};
use crate::table::kernels;
use crate::walk::{Steps, Walk};
use torchlet_core::Param::{Bool, Int, IntList, OptionalInt, Out, String, Tensor};
use torchlet_core::layout::MAX_RANK;
use torchlet_core::rules::View;
use torchlet_core::{Invoke, Kernel, KernelError, Plan, Prepare};

kernels! { REDUCING:
    /// `aten::index_reduce.out(self, dim, index, source, reduce, include_self, out)`: reduces the
    /// slices of `source` into the slices of `self` at the given indices. Without `include_self`,
    /// the previous values of those slices are ignored.
    INDEX_REDUCE_OUT = Kernel::new(
        "aten::index_reduce.out",
        &[Tensor, Int, Tensor, Tensor, String, Bool, Out],
        prepare_index_reduce,
    )
    .updating(6, 0);
    /// `aten::put.out(self, index, source, accumulate, out)`: sets elements by row-major linear
    /// index, or adds to them. Negative indices count from the end.
    PUT_OUT = Kernel::new("aten::put.out", &[Tensor, Tensor, Tensor, Bool, Out], |ctx| {
        let (input, index, source) = (ctx.info(0)?, ctx.info(1)?, ctx.info(2)?);
        if index.scalar_type != torchlet_core::ScalarType::Long {
            return Err(unsupported(1, index.scalar_type));
        }
        if source.numel() != index.numel() {
            return Err(bad(2, "expected a value per index"));
        }
        if ctx.bool(3)? {
            ComputeType::of(input.scalar_type).ok_or(unsupported(0, input.scalar_type))?;
        }
        same_type(ctx, 0, 2)?;
        ctx.resize(4, &input.sizes)?;
        same_type(ctx, 0, 4)?;
        Ok(Plan::new(put))
    })
    .updating(4, 0);
    /// `aten::as_strided_scatter.out(self, src, size, stride, storage_offset, out)`: `self` with
    /// the elements of a strided window replaced by `src`.
    AS_STRIDED_SCATTER_OUT = Kernel::new(
        "aten::as_strided_scatter.out",
        &[Tensor, Tensor, IntList, IntList, OptionalInt, Out],
        |ctx| {
            let (input, source) = (ctx.info(0)?, ctx.info(1)?);
            let sizes = ctx.ints(2)?;
            let own = source.sizes.iter().map(|&size| i64::from(size));
            if !own.eq(sizes.iter().copied()) {
                return Err(bad(1, "source shape differs from argument 2 (`size`)"));
            }
            let offset = ctx.optional_int(4)?.unwrap_or(0);
            View::as_strided(input.numel(), &sizes, &ctx.ints(3)?, offset)
                .ok_or(bad(3, "the strided view exceeds the input"))?;
            same_type(ctx, 0, 1)?;
            ctx.resize(5, &input.sizes)?;
            same_type(ctx, 0, 5)?;
            // The strides refer to memory, so both tensors must have the same layout.
            if !ctx.info(5)?.same_layout_as(&input) {
                return Err(KernelError::layout(5));
            }
            Ok(Plan::new(strided_scatter))
        },
    )
    .updating(5, 0);
}

fn prepare_index_reduce(ctx: &mut Prepare) -> Result<Plan, KernelError> {
    let (input, index, source) = (ctx.info(0)?, ctx.info(2)?, ctx.info(3)?);
    index_type(2, &index)?;
    ComputeType::of(input.scalar_type).ok_or(unsupported(0, input.scalar_type))?;
    if reduction_arg(ctx)? == Reduce::Sum {
        return Err(bad(4, "expected 'prod', 'mean', 'amax' or 'amin'"));
    }
    let counted = reduction_arg(ctx)? == Reduce::Mean || !ctx.bool(5)?;
    let scratch = if counted { crate::scratch::bytes_for(input.numel(), 4)? } else { 0 };
    ctx.scratch_at_most(scratch);
    let dim = dim_of(ctx, &input)?;
    if index.rank() > 1 {
        return Err(KernelError::rank(2, index.rank()));
    }
    let alike = |(at, (own, size)): (usize, (&i32, &i32))| at == dim || own == size;
    let fits = source.rank() == input.rank()
        && source.sizes.iter().zip(&input.sizes).enumerate().all(alike)
        && (source.rank() == 0 || source.size(dim) == index.numel());
    if !fits {
        return Err(bad(3, "source: expected a slice of the input's shape per index"));
    }
    same_type(ctx, 0, 3)?;
    ctx.resize(6, &input.sizes)?;
    same_type(ctx, 0, 6)?;
    Ok(Plan::new(index_reduce).with_scratch(scratch))
}

fn index_reduce(ctx: &mut Invoke) -> Result<(), KernelError> {
    let (kind, include_self) = (reduction_arg(ctx)?, ctx.bool(5)?);
    let (input, index, source) = (ctx.info(0)?, ctx.tensor(2)?, ctx.tensor(3)?);
    let dim = dim_of(ctx, &input)?;
    let indices =
        Indices::checked(&index, 2, 0, if input.rank() == 0 { 1 } else { input.size(dim) })?;
    let out = updated(ctx, 6)?;
    let info = out.info().clone();
    let (to, from) = (info.strides(), source.strides());
    let step = |strides: &[usize], at: usize| strides.get(at).map_or(0, |&step| step as isize);
    let walk = Walk::new(
        source.info(),
        &[
            steps(|at| if at == dim { 0 } else { step(&to, at) }),
            steps(|at| step(&from, at)),
            steps(|at| isize::from(at == dim)),
        ],
    );
    let (along, inner) = (step(&to, dim), walk.inner_steps());
    let for_each = |visit: &mut dyn FnMut(usize, usize)| {
        walk.for_each_run(0, walk.numel(), &mut |_, [mut to, mut from, mut position], len| {
            for _ in 0..len {
                let target = to.wrapping_add(indices.offset(position, along));
                visit(target as usize, from as usize);
                to = to.wrapping_add(inner[0]);
                from = from.wrapping_add(inner[1]);
                position = position.wrapping_add(inner[2]);
            }
        });
    };
    // Number of writes to each element.
    let scratch = ctx.scratch().as_chunks_mut::<4>().0.as_flattened_mut();
    let counts = elements_mut::<u32>(scratch).get_mut(..info.numel());
    let out = out.into_bytes();
    with_number!(source.scalar_type, |T| {
        reduce::<T>(&for_each, (out, source.bytes()), kind, include_self, counts);
    }, else ());
    Ok(())
}

fn put(ctx: &mut Invoke) -> Result<(), KernelError> {
    let (index, source, adds) = (ctx.tensor(1)?, ctx.tensor(2)?, ctx.bool(3)?);
    let out = updated(ctx, 4)?;
    let info = out.info().clone();
    let count = info.numel();
    let lowest = i64::try_from(count).map_or(i64::MIN, |count| -count);
    let indices = Indices::checked(&index, 1, lowest, count)?;
    // Both are visited in row-major order, whatever their memory order.
    let for_each = |visit: &mut dyn FnMut(usize, usize)| {
        for i in 0..index.numel() {
            let number = indices.at(position(index.info(), i) as isize);
            let number = if number < 0 { number.wrapping_add(count as i64) } else { number };
            visit(position(&info, number as usize), position(source.info(), i));
        }
    };
    let out = out.into_bytes();
    if adds {
        with_number!(source.scalar_type, |T| {
            reduce::<T>(&for_each, (out, source.bytes()), Reduce::Sum, true, None);
        }, else ());
        return Ok(());
    }
    by_size!(source.scalar_type.size(), |E| {
        let (out, source) = (items_mut::<E>(out), items::<E>(source.bytes()));
        for_each(&mut |target, from| {
            if let (Some(out), Some(value)) = (out.get_mut(target), source.get(from)) {
                *out = *value;
            }
        });
    });
    Ok(())
}

fn strided_scatter(ctx: &mut Invoke) -> Result<(), KernelError> {
    let (source, given) = (ctx.tensor(1)?, ctx.ints(3)?);
    let base = isize::try_from(ctx.optional_int(4)?.unwrap_or(0)).unwrap_or(0);
    let mut strides = [0; MAX_RANK];
    for (stride, &given) in strides.iter_mut().zip(given.iter()) {
        *stride = isize::try_from(given).unwrap_or(0);
    }
    let own = source.strides();
    let own = steps(|at| own.get(at).map_or(0, |&stride| stride as isize));
    let walk = Walk::new(source.info(), &[Steps { strides, base }, own]);
    let [to_step, from_step] = walk.inner_steps();
    let out = updated(ctx, 5)?.into_bytes();
    by_size!(source.scalar_type.size(), |E| {
        let (out, source) = (items_mut::<E>(out), items::<E>(source.bytes()));
        walk.for_each_run(0, walk.numel(), &mut |_, [mut to, mut from], len| {
            for _ in 0..len {
                if let (Some(out), Some(value)) =
                    (out.get_mut(to as usize), source.get(from as usize))
                {
                    *out = *value;
                }
                to = to.wrapping_add(to_step);
                from = from.wrapping_add(from_step);
            }
        });
    });
    Ok(())
}
