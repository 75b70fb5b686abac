//! Sorted distinct values: `_unique2`.

use super::keys::{Entry, fill, is_wide};
use super::order::{copy_element, put_index};
use crate::number::unsupported;
use crate::reduce::expect_type;
use crate::scratch;
use crate::table::kernels;
use torchlet_core::Param::{Bool, Out, Tensor};
use torchlet_core::{Invoke, InvokeFn, Kernel, KernelError, Plan, ScalarType};

kernels! {
    /// `aten::_unique2.out(self, sorted, return_inverse, return_counts, out0, out1, out2)`: the
    /// distinct values, always sorted; the index of each element's value among them; and the number
    /// of occurrences of each value. Each NaN is distinct.
    UNIQUE2_OUT = Kernel::new(
        "aten::_unique2.out",
        &[Tensor, Bool, Bool, Bool, Out, Out, Out],
        |ctx| {
            let input = ctx.info(0)?;
            let wide = is_wide(input.scalar_type).ok_or(unsupported(0, input.scalar_type))?;
            expect_type(ctx, 4, input.scalar_type)?;
            expect_type(ctx, 5, ScalarType::Long)?;
            expect_type(ctx, 6, ScalarType::Long)?;
            let inverse = ctx.info(5)?;
            let inverse_rank = if ctx.bool(2)? { input.rank() } else { inverse.rank() };
            let ranks = [(4, 1), (5, inverse_rank), (6, 1)];
            for (arg, rank) in ranks {
                let found = ctx.info(arg)?.rank();
                if found != rank {
                    return Err(KernelError::rank(arg, found));
                }
            }
            // Elements are indexed in memory order.
            if ctx.bool(2)? && inverse.dim_order != input.dim_order {
                return Err(KernelError::layout(5));
            }
            if u32::try_from(input.numel()).is_err() {
                return Err(KernelError::argument(0, "more than 2^32 - 1 elements"));
            }
            let scratch = scratch::bytes_for(input.numel(), if wide { 16 } else { 8 })?;
            let functions: [InvokeFn; 2] = [unique::<u64>, unique::<u128>];
            Ok(Plan::new(functions[usize::from(wide)]).with_scratch(scratch))
        },
    );
}

fn unique<E: Entry>(ctx: &mut Invoke) -> Result<(), KernelError> {
    let input = ctx.tensor(0)?;
    let (wants_inverse, wants_counts) = (ctx.bool(2)?, ctx.bool(3)?);
    let floating = input.scalar_type.is_floating();
    let entries = scratch::take::<E>(ctx, input.numel())?;
    fill(&input, 0, 1, false, entries);
    super::blocks::sort(ctx.parallel(), entries);
    let entries = &*entries;
    let same = |a: &E, b: &E| a.key() == b.key() && !(floating && a.key() == E::NAN);
    let count = entries.chunk_by(same).count();
    let count = i32::try_from(count)
        .map_err(|_| KernelError::unsupported("more than 2^31 - 1 distinct values"))?;
    ctx.resize(4, &[count])?;
    if wants_inverse {
        ctx.resize(5, &input.sizes)?;
    } else {
        let none = [0; torchlet_core::layout::MAX_RANK];
        let rank = ctx.info(5)?.rank();
        ctx.resize(5, none.get(..rank).unwrap_or_default())?;
    }
    ctx.resize(6, &[if wants_counts { count } else { 0 }])?;
    let (mut values, mut inverse_out, mut counts) = (ctx.out(4)?, ctx.out(5)?, ctx.out(6)?);
    for (number, run) in entries.chunk_by(same).enumerate() {
        if let Some(first) = run.first() {
            copy_element(&input, first.position() as isize, &mut values, number as isize);
        }
        if wants_inverse {
            for entry in run {
                put_index(&mut inverse_out, entry.position() as isize, number as i64);
            }
        }
        if wants_counts {
            put_index(&mut counts, number as isize, run.len() as i64);
        }
    }
    Ok(())
}
