//! Lowers KV cache updates. Caches are tensors that keep their contents between runs and are
//! updated in place.

use super::Rule;
use super::builder::Builder;
use crate::error::Error;
use crate::graph::{Tensor, Value, ValueId};
use crate::operators::{Operator, UpdateCacheArgs};
use alloc::borrow::Cow;
use alloc::format;
use alloc::vec;

pub(super) const RULES: &[(Operator, Rule)] =
    &[(Operator::UPDATE_CACHE, update_cache), (Operator::LLAMA_UPDATE_CACHE, update_cache)];

fn update_cache(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = UpdateCacheArgs::of(args)?;
    let (value, cache, start) = (call.value, call.cache, call.start_pos);
    if b.is_state(cache) {
        return store(b, value, cache, start);
    }
    // The result is the updated cache.
    let out = b.out(args)?;
    let [indices, value] = rows(b, value, cache, start)?;
    let no = b.push(Value::Bool(false));
    if b.info(out)?.sizes != b.info(cache)?.sizes {
        return Err(Error::Unsupported(format!(
            "update of a KV cache of shape {:?} that is not state, with an output of shape {:?}",
            b.info(cache)?.sizes,
            b.info(out)?.sizes
        )));
    }
    b.call_into(Operator::INDEX_PUT, &[cache, indices, value, no], out);
    Ok(())
}

/// Writes `[batch, position, head, dim]` to a cache, from a position on.
pub(super) fn store(
    b: &mut Builder<'_, '_>,
    value: ValueId,
    cache: ValueId,
    start: ValueId,
) -> Result<(), Error> {
    let [indices, value] = rows(b, value, cache, start)?;
    let (cache_info, no) = (b.info(cache)?, b.push(Value::Bool(false)));
    b.call(Operator::INDEX_PUT_ATEN, &[cache, indices, value, no], cache_info);
    Ok(())
}

/// The index argument for the written positions, and the value converted to the type of the cache.
fn rows(
    b: &mut Builder<'_, '_>,
    value: ValueId,
    cache: ValueId,
    start: ValueId,
) -> Result<[ValueId; 2], Error> {
    let (info, cache_info) = (b.info(value)?, b.info(cache)?);
    if info.rank() != 4 || cache_info.rank() != 4 {
        let (value, cache) = (&info.sizes, &cache_info.sizes);
        return Err(Error::Invalid(format!(
            "value and cache: expected 4 dims, found shapes {value:?} and {cache:?}"
        )));
    }
    let value = b.cast(value, cache_info.scalar_type)?;
    let length = b.size(value, 1)?;
    let end = b.sum(start, length.value)?;
    let positions = b.range(start, end, length.bound)?;
    let none = b.none();
    Ok([b.push(Value::List(vec![none, positions])), value])
}

/// The cache of a call if it is state, else a new state tensor.
pub(super) fn persistent(b: &mut Builder<'_, '_>, cache: ValueId) -> Result<ValueId, Error> {
    if b.is_state(cache) {
        return Ok(cache);
    }
    let info = b.info(cache)?;
    Ok(b.push(Value::Tensor(Tensor {
        scalar_type: info.scalar_type,
        host_type: info.scalar_type,
        sizes: info.sizes,
        dynamic: false,
        // State without data starts as zeros.
        data: Some(Cow::Borrowed(&[])),
        changes: Some(true),
    })))
}
