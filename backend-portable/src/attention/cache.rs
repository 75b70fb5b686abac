//! Writes to a KV cache of shape `[batch, position, head, depth]`.

use super::four;
use crate::index::Indices;
use crate::shape::{bad, contiguous, of_type, same_type};
use crate::table::kernels;
use torchlet_core::Param::{Int, Out, Tensor};
use torchlet_core::{Arguments, Invoke, Kernel, KernelError, Plan, ScalarType, TensorInfo};

kernels! { CACHES:
    /// `llama::update_cache.out(value, cache, start_pos, out)`: writes `value` to `cache`, starting
    /// at position `start_pos`. The output is unused.
    UPDATE_CACHE_OUT =
        Kernel::new("llama::update_cache.out", &[Tensor, Out, Int, Out], |ctx| {
            check(ctx, 0, 1)?;
            Ok(Plan::new(|ctx| {
                let (value, start) = (ctx.tensor(0)?, ctx.int(2)?);
                let info = ctx.info(1)?;
                let first = first_position(&value, &info, start, 2)?;
                let cache = ctx.out(1)?.into_bytes();
                write(value.info(), value.bytes(), &info, cache, &|_, position| first + position);
                Ok(())
            }))
        });
    /// `llama::update_cache_with_indices.out(value, cache, start_pos, indices, out)`: writes each
    /// position of `value` to the position of `cache` given by `indices` (`[batch, position]`).
    /// `start_pos` and the output are unused.
    UPDATE_CACHE_WITH_INDICES_OUT = Kernel::new(
        "llama::update_cache_with_indices.out",
        &[Tensor, Out, Int, Tensor, Out],
        |ctx| {
            let value = check(ctx, 0, 1)?;
            let indices = ctx.info(3)?;
            of_type(3, &indices, ScalarType::Long)?;
            contiguous(3, &indices)?;
            if indices.sizes != value.sizes.get(..2).unwrap_or_default() {
                return Err(bad(3, "expected an index for each batch entry and position of the \
                                   values"));
            }
            Ok(Plan::new(indexed))
        },
    );
}

fn indexed(ctx: &mut Invoke) -> Result<(), KernelError> {
    let (value, indices) = (ctx.tensor(0)?, ctx.tensor(3)?);
    let info = ctx.info(1)?;
    let indices = Indices::checked(&indices, 3, 0, info.size(1))?;
    let length = value.size(1);
    let cache = ctx.out(1)?.into_bytes();
    // `Indices::checked` has rejected indices out of range, so nothing is written in that case.
    write(value.info(), value.bytes(), &info, cache, &|sample, position| {
        usize::try_from(indices.at((sample * length + position) as isize)).unwrap_or(usize::MAX)
    });
    Ok(())
}

/// Checks that `value` fits `cache`: they may differ only in the number of positions.
pub(super) fn check(
    args: &Arguments,
    value: usize,
    cache: usize,
) -> Result<TensorInfo, KernelError> {
    let (info, cache_info) = (four(args, value)?, four(args, cache)?);
    same_type(args, value, cache)?;
    for dim in [0, 2, 3] {
        if info.size(dim) != cache_info.size(dim) {
            return Err(bad(
                cache,
                "cache and new values differ in batch size, number of heads or head size",
            ));
        }
    }
    Ok(info)
}

/// Returns the start position in argument `arg`, or an error if the cache has too few positions for
/// all of `value` from there on.
pub(super) fn first_position(
    value: &TensorInfo,
    cache: &TensorInfo,
    start: i64,
    arg: usize,
) -> Result<usize, KernelError> {
    let last_start = cache.size(1).checked_sub(value.size(1));
    let start =
        usize::try_from(start).ok().filter(|start| last_start.is_some_and(|last| *start <= last));
    start.ok_or(bad(
        arg,
        "start position is negative, or the new values exceed the cache from there on",
    ))
}

/// Copies each position of each sample to the position of the cache that `target_position` returns.
pub(super) fn write(
    value: &TensorInfo,
    source: &[u8],
    cache: &TensorInfo,
    target: &mut [u8],
    target_position: &dyn Fn(usize, usize) -> usize,
) {
    let (length, capacity) = (value.size(1), cache.size(1));
    let row = value.size(2).saturating_mul(value.size(3)).saturating_mul(value.scalar_type.size());
    if row == 0 {
        return;
    }
    for (number, source) in source.chunks_exact(row).enumerate() {
        let (sample, position) = (number / length.max(1), number % length.max(1));
        let target_position = target_position(sample, position);
        // No overflow: both indices were checked against their tensors.
        let at =
            sample.saturating_mul(capacity).saturating_add(target_position).saturating_mul(row);
        if let Some(target) = target.get_mut(at..at.saturating_add(row))
            && target_position < capacity
        {
            target.copy_from_slice(source);
        }
    }
}
