//! Lowers quantized embeddings.

use crate::error::Error;
use crate::graph::{Value, ValueId};
use crate::lower::portable::Rule;
use crate::lower::portable::builder::{Builder, Info};
use crate::operators::{EmbeddingQ4gswArgs, Operator};
use alloc::format;
use torchlet_core::ScalarType;

pub(in crate::lower::portable) const RULES: &[(Operator, Rule)] =
    &[(Operator::ET_VK_EMBEDDING_Q4GSW, embedding)];

/// An int4 embedding: packed rows are looked up, then unpacked.
fn embedding(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = EmbeddingQ4gswArgs::of(args)?;
    let (table, info) = b.tensor(call.weight)?;
    let (scales, scale_info) = b.tensor(call.weight_scales)?;
    let group = usize::try_from(b.int(call.group_size)?).ok().filter(|group| *group > 0);
    let (index, index_info) = b.tensor(call.indices)?;
    let low_first = b.truth(call.is_linear_weight)?;
    let out = b.out(args)?;
    let depth = info.last().saturating_mul(2);
    let bad = || {
        let (table, scales) = (&info.sizes, &scale_info.sizes);
        Error::Invalid(format!(
            "embedding weight shape {table:?} does not match scale shape {scales:?} or the group \
             size"
        ))
    };
    let group = group.ok_or_else(bad)?.min(depth);
    let groups = depth.checked_div(group).filter(|groups| groups * group == depth);
    let groups = groups.filter(|_| info.rank() == 2).ok_or_else(bad)?;
    // Scale rows may have padding after the last group.
    let by_row = scale_info.rank() > 1;
    if by_row && (scale_info.last() < groups || scale_info.rank() != 2) {
        return Err(bad());
    }
    let rank = index_info.rank();
    let pick = |b: &mut Builder<'_, '_>, table: ValueId| {
        let own = b.info(table)?;
        let mut sizes = index_info.sizes.clone();
        sizes.push(own.last());
        let (minus, no) = (b.new_int(-1), b.push(Value::Bool(false)));
        let made = Info { sizes, dynamic: index_info.dynamic, ..own };
        Ok::<_, Error>(b.call(Operator::EMBEDDING, &[table, index, minus, no, no], made))
    };
    let packed = pick(b, table)?;
    let bytes = b.cast(packed, ScalarType::Int)?;
    let low = b.with_number(Operator::BITWISE_AND_SCALAR, bytes, 15.0)?;
    let high = b.with_number(Operator::BITWISE_RIGHT_SHIFT_TENSOR_SCALAR, bytes, 4.0)?;
    let high = b.with_number(Operator::BITWISE_AND_SCALAR, high, 15.0)?;
    let [first, second] = if low_first { [low, high] } else { [high, low] };
    let codes = b.interleave(first, second)?;
    let codes = b.with_number(Operator::SUB_SCALAR, codes, 8.0)?;
    let codes = b.cast(codes, ScalarType::Float)?;
    let scales = b.cast(scales, ScalarType::Float)?;
    if !by_row {
        let numbers = b.slice_known(scales, 0, 0, 1, 1)?;
        let numbers = b.binary(Operator::MUL_TENSOR, codes, numbers)?;
        return b.finish_with(numbers, out);
    }
    let scales = b.slice_known(scales, 1, 0, groups, 1)?;
    let scales = pick(b, scales)?;
    let mut sizes = alloc::vec::Vec::new();
    for dim in 0..rank {
        sizes.push(b.size(index, dim)?);
    }
    let whole = sizes.clone();
    sizes.extend([b.known(groups), b.known(group)]);
    let codes = b.view(codes, &sizes)?;
    let scales = b.unsqueeze(scales, rank + 1)?;
    let numbers = b.binary(Operator::MUL_TENSOR, codes, scales)?;
    let mut sizes = whole;
    sizes.push(b.known(depth));
    let numbers = b.view(numbers, &sizes)?;
    b.finish_with(numbers, out)
}
