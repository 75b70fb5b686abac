//! The rules of operators, by [`Batching`].

use super::transform::{Batcher, Form, Reason};
use crate::graph::{Value, ValueId};
use crate::operators::{
    ArgumentSet, Batching, CustomSdpaArgs, FirstSize, IndexArgs, IndexPutArgs, IndexSelectArgs,
    Operator, SliceArgs, SlotsSdpaArgs, UpdateCacheArgs,
};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::ScalarType;
use torchlet_core::rules::normalize_dim;

/// Transforms a call with an argument that differs from sequence to sequence.
pub(super) fn apply(
    b: &mut Batcher<'_>,
    operator: Operator,
    inputs: Vec<ValueId>,
    out: ValueId,
) -> Result<(), Reason> {
    match operator.traits().batching {
        Batching::Unspecified => Err("an operator without a rule".to_string()),
        Batching::Broadcast => broadcast(b, operator, inputs, out, false),
        Batching::Into => broadcast(b, operator, inputs, out, true),
        Batching::Leading(args) => leading(b, operator, inputs, out, args),
        Batching::Folded(args) => folded(b, operator, inputs, out, args),
        Batching::Dims(args) => dims(b, operator, inputs, out, args),
        Batching::Permutation => permutation(b, operator, inputs, out),
        Batching::Sizes(first) => sizes(b, operator, inputs, out, first),
        Batching::Selection => selection(b, operator, inputs, out),
        Batching::Index => index(b, operator, inputs, out),
        Batching::IndexPut => index_put(b, inputs, out),
        Batching::CacheUpdate => update_cache(b, inputs, out),
        Batching::CachedAttention => attention(b, inputs, out),
        Batching::Integers => integers(b, operator, inputs, out),
        Batching::Integer => integer(b, inputs, out),
        Batching::Filled => filled(b, inputs, out),
        Batching::Size => size(b, inputs, out),
        Batching::Check => Ok(()),
    }
}

/// Adds the call, whose result has rows.
fn finish(
    b: &mut Batcher<'_>,
    operator: Operator,
    args: Vec<ValueId>,
    out: ValueId,
) -> Result<(), Reason> {
    b.has_rows(out)?;
    b.emit(operator, args, out);
    Ok(())
}

/// Whether an argument is a tensor for one sequence, or a list of tensors.
fn is_tensor(b: &Batcher<'_>, operator: Operator, at: usize, id: ValueId) -> bool {
    use crate::operators::Kind;
    let kind = operator.parameters().get(at).map(|it| it.kind);
    let is_tensor = matches!(
        kind,
        Some(Kind::Tensor | Kind::OptionalTensor | Kind::Tensors | Kind::OptionalTensors)
    );
    is_tensor && !b.is_none(id)
}

fn differing_number() -> Reason {
    "an argument that is a number and differs from sequence to sequence".to_string()
}

/// Gives rows to all tensors of a call, and refuses numbers that differ.
fn with_rows(
    b: &mut Batcher<'_>,
    operator: Operator,
    inputs: &mut [ValueId],
) -> Result<(), Reason> {
    for (at, id) in inputs.iter_mut().enumerate() {
        if !is_tensor(b, operator, at, *id) {
            if b.differs(*id) {
                return Err(differing_number());
            }
            continue;
        }
        *id = match b.graph.values.get(*id) {
            Some(Value::List(_)) => {
                let items = b.items(*id);
                let items = items.into_iter().map(|id| b.rows_of(id));
                let items = items.collect::<Result<Vec<ValueId>, Reason>>()?;
                b.push(Value::List(items))
            }
            _ => b.rows_of(*id)?,
        };
    }
    Ok(())
}

fn broadcast(
    b: &mut Batcher<'_>,
    operator: Operator,
    mut inputs: Vec<ValueId>,
    out: ValueId,
    is_into: bool,
) -> Result<(), Reason> {
    let (mut operator, mut rank) = (operator, 0);
    let second = inputs.get(1).filter(|id| !is_tensor(b, operator, 1, **id));
    if second.is_some_and(|id| b.form(*id) == Form::Rows) {
        operator = of_tensors(b, operator, &inputs).ok_or_else(differing_number)?;
    }
    for (at, id) in inputs.iter().enumerate() {
        if is_tensor(b, operator, at, *id) {
            rank = rank.max(b.sizes(*id)?.len());
        } else if b.differs(*id) {
            return Err(differing_number());
        }
    }
    for (at, id) in inputs.iter_mut().enumerate() {
        if !is_tensor(b, operator, at, *id) {
            continue;
        }
        // Tensors that all sequences share broadcast to the rows.
        if b.form(*id) != Form::Same || is_into && at == 0 {
            let rows = b.rows_of(*id)?;
            *id = b.padded(rows, rank)?;
        }
    }
    finish(b, operator, inputs, out)
}

/// The operator of two tensors that does what another does with a tensor and a number.
fn of_tensors(b: &Batcher<'_>, operator: Operator, inputs: &[ValueId]) -> Option<Operator> {
    let name = operator.name().strip_suffix(".Scalar")?;
    let found = Operator::named(&format!("{name}.Tensor"))?;
    // A tensor with a number keeps its dtype; with a tensor, the dtypes are promoted.
    let keeps = |dtype| dtype == ScalarType::Long || dtype == ScalarType::Float;
    let first = b.graph.tensor(*inputs.first()?)?.scalar_type;
    (keeps(first) && found.parameters().len() == operator.parameters().len()).then_some(found)
}

fn leading(
    b: &mut Batcher<'_>,
    operator: Operator,
    mut inputs: Vec<ValueId>,
    out: ValueId,
    args: ArgumentSet,
) -> Result<(), Reason> {
    for (at, id) in inputs.iter_mut().enumerate() {
        if args.contains(at) && is_tensor(b, operator, at, *id) {
            *id = b.rows_of(*id)?;
        } else if b.differs(*id) {
            return Err(format!("argument {at} differs from sequence to sequence"));
        }
    }
    finish(b, operator, inputs, out)
}

/// Merges the rows with the first dim of some arguments.
fn folded(
    b: &mut Batcher<'_>,
    operator: Operator,
    mut inputs: Vec<ValueId>,
    out: ValueId,
    args: ArgumentSet,
) -> Result<(), Reason> {
    let mut rows = None;
    if operator == Operator::ADDMM
        && let Some(bias) = inputs.first().filter(|_| !args.contains(0))
        && b.sizes(*bias)?.len() > 1
    {
        return Err("a bias with a row for each row".to_string());
    }
    for (at, id) in inputs.iter_mut().enumerate() {
        if !args.contains(at) || !is_tensor(b, operator, at, *id) {
            if b.differs(*id) {
                return Err(format!("argument {at} differs from sequence to sequence"));
            }
            continue;
        }
        *id = b.rows_of(*id)?;
        let tensor = b.tensor(*id)?;
        let (scalar_type, mut merged) = (tensor.scalar_type, tensor.sizes.clone());
        if merged.len() < 2 {
            return Err(format!("argument {at}: expected a tensor with dims"));
        }
        let count = merged.remove(0);
        let first = merged.first().copied().unwrap_or(1);
        rows = rows.or(Some((*id, first)));
        if let Some(size) = merged.first_mut() {
            *size =
                size.checked_mul(count).ok_or_else(|| "a shape that is too large".to_string())?;
        }
        let mut list = vec![b.int(-1)];
        for dim in 1..merged.len() {
            list.push(b.size(*id, dim + 1)?);
        }
        let list = b.push(Value::List(list));
        *id = b.add(Operator::VIEW_COPY, vec![*id, list], scalar_type, merged, true);
    }
    let (source, first) = rows.ok_or_else(|| "expected a tensor with rows".to_string())?;
    let Some(Value::Tensor(tensor)) = b.graph.values.get(out) else {
        return Err("expected one result".to_string());
    };
    let (scalar_type, sizes, dynamic) = (tensor.scalar_type, tensor.sizes.clone(), tensor.dynamic);
    if sizes.first() != Some(&first) {
        return Err("a result whose first dim is not that of the argument".to_string());
    }
    let mut merged = sizes.clone();
    if let Some(size) = merged.first_mut() {
        *size = size.saturating_mul(b.bound());
    }
    let made = b.add(operator, inputs, scalar_type, merged, true);
    // `size` takes the sizes of `source` as known if it does not vary.
    let mut list = vec![b.row_count()];
    for (dim, size) in sizes.iter().enumerate() {
        list.push(match (dim, dynamic) {
            (_, false) => b.int(*size as i64),
            (0, true) => b.size(source, 1)?,
            (_, true) => b.size(made, dim)?,
        });
    }
    let list = b.push(Value::List(list));
    finish(b, Operator::VIEW_COPY, vec![made, list], out)
}

/// The integers of an argument that lists dims; `None` for an absent one.
fn constants(b: &Batcher<'_>, id: Option<ValueId>) -> Result<Option<Vec<i64>>, Reason> {
    let Some(id) = id else { return Ok(None) };
    Ok(match b.graph.values.get(id) {
        Some(Value::Int(dim)) => Some(vec![*dim]),
        Some(Value::IntList(dims)) => Some(dims.clone()),
        Some(Value::None) => None,
        _ => return Err("dims: expected constant integers".to_string()),
    })
}

/// An argument that is a dim, 0 by default; `None` if it is out of range.
fn one_dim(b: &Batcher<'_>, id: Option<ValueId>, rank: usize) -> Result<Option<usize>, Reason> {
    let dim = constants(b, id)?.and_then(|dims| dims.first().copied());
    Ok(normalize_dim(dim.unwrap_or(0), rank))
}

/// Adds 1 to dims.
fn shifted(dims: &[i64], rank: usize) -> Result<Vec<i64>, Reason> {
    let shift = |dim: &i64| {
        // Tensors without dims have a dim 0.
        let dim = normalize_dim(*dim, rank).filter(|dim| *dim < rank);
        dim.map(|dim| dim as i64 + 1).ok_or_else(|| "a dim is out of range".to_string())
    };
    dims.iter().map(shift).collect()
}

fn dims(
    b: &mut Batcher<'_>,
    operator: Operator,
    mut inputs: Vec<ValueId>,
    out: ValueId,
    args: ArgumentSet,
) -> Result<(), Reason> {
    let first = inputs.first().map(|id| b.items(*id)).unwrap_or_default();
    let first = *first.first().ok_or_else(|| "expected a tensor".to_string())?;
    let mut rank = b.sizes(first)?.len();
    if [Operator::UNSQUEEZE_COPY, Operator::STACK].contains(&operator) {
        rank += 1;
    }
    if rank == 0 {
        return Err("dims of a tensor without dims".to_string());
    }
    with_rows(b, operator, &mut inputs)?;
    for at in args.iter() {
        let given = constants(b, inputs.get(at).copied())?;
        let parameter = operator.parameters().get(at);
        let default = parameter.and_then(|it| it.default_value());
        let given = match (given, default) {
            (None, Some(Value::Int(dim))) => Some(vec![dim]),
            (given, _) => given,
        };
        let is_list = match parameter.map(|it| it.kind) {
            Some(crate::operators::Kind::Int) => false,
            Some(crate::operators::Kind::Ints | crate::operators::Kind::OptionalInts) => true,
            _ => return Err("dims: expected integers".to_string()),
        };
        let dims = match given {
            // An absent or empty list means all dims of the tensor.
            None => (1..=rank as i64).collect(),
            Some(dims) if dims.is_empty() && is_list => {
                use Operator as O;
                if [O::FLIP, O::SQUEEZE_COPY_DIMS, O::ANY_DIMS, O::ALL_DIMS].contains(&operator) {
                    return Err("an empty list of dims".to_string());
                }
                (1..=rank as i64).collect()
            }
            Some(dims) => shifted(&dims, rank)?,
        };
        let value = match (&dims[..], is_list) {
            ([dim], false) => Value::Int(*dim),
            (_, true) => Value::IntList(dims),
            _ => return Err("a dim: expected an integer".to_string()),
        };
        let id = b.push(value);
        while inputs.len() < at {
            // Absent arguments before this one have their defaults.
            let parameter = operator.parameters().get(inputs.len());
            let value = parameter.and_then(|it| it.default_value()).unwrap_or(Value::None);
            let value = b.push(value);
            inputs.push(value);
        }
        match inputs.get_mut(at) {
            Some(slot) => *slot = id,
            None => inputs.push(id),
        }
    }
    finish(b, operator, inputs, out)
}

fn permutation(
    b: &mut Batcher<'_>,
    operator: Operator,
    mut inputs: Vec<ValueId>,
    out: ValueId,
) -> Result<(), Reason> {
    let rank = inputs.first().map(|id| b.sizes(*id)).transpose()?.unwrap_or_default().len();
    with_rows(b, operator, &mut inputs)?;
    let dims = constants(b, inputs.get(1).copied())?.unwrap_or_default();
    let dims = [vec![0], shifted(&dims, rank)?].concat();
    let list = b.push(Value::IntList(dims));
    let input = inputs.first().copied().unwrap_or_default();
    finish(b, operator, vec![input, list], out)
}

fn sizes(
    b: &mut Batcher<'_>,
    operator: Operator,
    mut inputs: Vec<ValueId>,
    out: ValueId,
    first: FirstSize,
) -> Result<(), Reason> {
    with_rows(b, operator, &mut inputs)?;
    let [input, list, ..] = inputs[..] else { return Err("expected a shape".to_string()) };
    let items = match b.graph.values.get(list) {
        Some(Value::IntList(sizes)) => {
            let sizes = sizes.clone();
            sizes.into_iter().map(|size| b.int(size)).collect()
        }
        Some(Value::List(_)) => b.items(list),
        _ => return Err("a shape: expected integers".to_string()),
    };
    let leading = match first {
        FirstSize::Batch => b.row_count(),
        FirstSize::Kept => b.int(-1),
        FirstSize::Once => b.int(1),
    };
    let input = match first {
        FirstSize::Batch => input,
        // The shape may have more dims than the tensor.
        FirstSize::Kept | FirstSize::Once => b.padded(input, items.len())?,
    };
    let items = b.push(Value::List([vec![leading], items].concat()));
    for (slot, id) in inputs.iter_mut().zip([input, items]) {
        *slot = id;
    }
    finish(b, operator, inputs, out)
}

/// `select` and `slice`.
fn selection(
    b: &mut Batcher<'_>,
    operator: Operator,
    inputs: Vec<ValueId>,
    out: ValueId,
) -> Result<(), Reason> {
    let numbers = inputs.get(1..).unwrap_or_default();
    if numbers.iter().all(|id| b.form(*id) == Form::Same) {
        return dims(b, operator, inputs, out, ArgumentSet::of(&[1]));
    }
    // A position that differs: rows of a table that all sequences share.
    let table = inputs.first().copied().unwrap_or_default();
    let rank = b.sizes(table)?.len();
    let dim = one_dim(b, inputs.get(1).copied(), rank)?;
    if b.form(table) != Form::Same || dim != Some(0) {
        return Err("a position that differs, in a tensor that differs, or of an inner dim".into());
    }
    let indices = if operator == Operator::SELECT_COPY_INT {
        let index = *inputs.get(2).ok_or("expected an index")?;
        b.integers(index)?
    } else {
        let call = SliceArgs::of(&[&inputs[..], &[out]].concat()[..]).map_err(String::from)?;
        let is_one = match call.step.map(|id| b.graph.values.get(id)) {
            None => true,
            Some(value) => matches!(value, Some(Value::Int(1))),
        };
        let (Some(start), Some(end), true) = (call.start, call.end, is_one) else {
            return Err("a range that differs, with a step or an open end".into());
        };
        let length = b.length(start, end)?;
        let bound = b.sizes(out)?.first().copied().unwrap_or(0);
        b.positions(start, length, bound)?
    };
    let list = b.push(Value::List(vec![indices]));
    finish(b, Operator::INDEX_TENSOR, vec![table, list], out)
}

fn index(
    b: &mut Batcher<'_>,
    operator: Operator,
    inputs: Vec<ValueId>,
    out: ValueId,
) -> Result<(), Reason> {
    let call = [&inputs[..], &[out]].concat();
    let (input, indices) = if operator == Operator::INDEX_SELECT {
        let call = IndexSelectArgs::of(&call[..]).map_err(String::from)?;
        if b.sizes(call.index)?.is_empty() {
            return Err("an index without dims".to_string());
        }
        let rank = b.sizes(call.input)?.len();
        let dim = one_dim(b, Some(call.dim), rank)?.ok_or("a dim is out of range")?;
        let mut indices = Vec::new();
        for _ in 0..dim {
            indices.push(b.none());
        }
        indices.push(call.index);
        (call.input, indices)
    } else {
        let call = IndexArgs::of(&call[..]).map_err(String::from)?;
        (call.input, b.items(call.indices))
    };
    let given: Vec<usize> = (0..indices.len())
        .filter(|at| indices.get(*at).is_some_and(|id| !b.is_none(*id)))
        .collect();
    let (Some(first), Some(last)) = (given.first(), given.last()) else {
        return Err("expected indices".to_string());
    };
    let are_masks = given.iter().any(|at| {
        let types = [ScalarType::Bool, ScalarType::Byte];
        let tensor = indices.get(*at).and_then(|id| b.graph.tensor(*id));
        tensor.is_some_and(|tensor| types.contains(&tensor.scalar_type))
    });
    if are_masks {
        return Err("a mask as index".to_string());
    }
    let differ = indices.iter().any(|id| b.form(*id) != Form::Same);
    if b.form(input) != Form::Same {
        if differ || last - first + 1 != given.len() {
            return Err("indices that differ, in a tensor that differs".to_string());
        }
        // Neighbouring indices stay where they are.
        let input = b.rows_of(input)?;
        let mut list = vec![b.none()];
        list.extend(indices);
        let list = b.push(Value::List(list));
        return finish(b, Operator::INDEX_TENSOR, vec![input, list], out);
    }
    // The rows are the leading dim of the indices. The result has the dims of the indices first if
    // they index the first dims.
    if *first != 0 || last - first + 1 != given.len() {
        return Err("indices that differ, of inner dims".to_string());
    }
    let rank = given.iter().filter_map(|at| indices.get(*at)).map(|id| b.sizes(*id));
    let rank = rank.collect::<Result<Vec<_>, Reason>>()?.iter().map(Vec::len).max().unwrap_or(0);
    let mut list = Vec::new();
    for id in indices {
        list.push(match b.form(id) {
            Form::Same => id,
            _ => {
                let rows = b.rows_of(id)?;
                b.padded(rows, rank)?
            }
        });
    }
    let list = b.push(Value::List(list));
    finish(b, Operator::INDEX_TENSOR, vec![input, list], out)
}

/// Writes to positions of state.
fn index_put(b: &mut Batcher<'_>, inputs: Vec<ValueId>, out: ValueId) -> Result<(), Reason> {
    let call = IndexPutArgs::of(&[&inputs[..], &[out]].concat()[..]).map_err(String::from)?;
    let accumulates = call
        .accumulate
        .is_some_and(|id| !matches!(b.graph.values.get(id), Some(Value::Bool(false))));
    if accumulates {
        return Err("sums of elements that differ from sequence to sequence".to_string());
    }
    let input = match b.form(call.input) {
        Form::Same => b.rows_of(call.input)?,
        Form::Rows | Form::Slots => call.input,
    };
    let indices = b.items(call.indices);
    let mut given = indices.iter().enumerate().filter(|(_, id)| !b.is_none(**id));
    let (Some((dim, index)), None) = (given.next(), given.next()) else {
        return Err("expected indices of one dim".to_string());
    };
    let index = *index;
    let positions = b.rows_of(index)?;
    let length = match b.sizes(positions)?[..] {
        [length] => length,
        _ => return Err("indices: expected one dim".to_string()),
    };
    let positions = b.long(positions)?;
    // The written part has the shape of the state, with a position for each index.
    let mut part = b.sizes(input)?;
    *part.get_mut(dim).ok_or("more indices than dims")? = length;
    let rows = b.rows_of(call.values)?;
    let mut value = b.padded(rows, part.len())?;
    if b.sizes(value)? != part {
        let mut list = vec![b.int(-1)];
        for (at, size) in part.iter().enumerate() {
            list.push(match at == dim {
                true => b.size(positions, 1)?,
                false => b.int(*size as i64),
            });
        }
        let (list, no) = (b.push(Value::List(list)), b.push(Value::Bool(false)));
        let (scalar_type, varies) = (b.tensor(value)?.scalar_type, b.varies(positions));
        let args = vec![value, list, no];
        value = b.add_rows(Operator::EXPAND_COPY, args, scalar_type, part, varies);
    }
    let new = b.put(input, Some(positions), value, dim)?;
    b.rename(out, new);
    Ok(())
}

fn update_cache(b: &mut Batcher<'_>, inputs: Vec<ValueId>, out: ValueId) -> Result<(), Reason> {
    let call = UpdateCacheArgs::of(&[&inputs[..], &[out]].concat()[..]).map_err(String::from)?;
    if b.form(call.cache) != Form::Slots {
        return Err("a cache that is not state".to_string());
    }
    let value = b.rows_of(call.value)?;
    let bound = b.sizes(value)?.get(1).copied().ok_or("a value: expected 4 dims")?;
    let length = b.size(value, 2)?;
    let positions = b.positions(call.start_pos, length, bound)?;
    let new = b.put(call.cache, Some(positions), value, 1)?;
    b.rename(out, new);
    Ok(())
}

fn attention(b: &mut Batcher<'_>, inputs: Vec<ValueId>, out: ValueId) -> Result<(), Reason> {
    let call = CustomSdpaArgs::of(&[&inputs[..], &[out]].concat()[..]).map_err(String::from)?;
    if b.form(call.key) != Form::Slots || b.form(call.value) != Form::Slots {
        return Err("keys and values that are not state".to_string());
    }
    let (query, starts) = (b.rows_of(call.query)?, b.integers(call.start_pos)?);
    let or = |b: &mut Batcher<'_>, id: Option<ValueId>, value| match id {
        Some(id) => id,
        None => b.push(value),
    };
    let attn_mask = or(b, call.attn_mask, Value::None);
    let attn_mask = match b.form(attn_mask) {
        Form::Slots => b.rows_of(attn_mask)?,
        Form::Rows | Form::Same => attn_mask,
    };
    let dropout_p = or(b, call.dropout_p, Value::Double(0.0));
    let is_causal = or(b, call.is_causal, Value::Bool(false));
    let scale = or(b, call.scale, Value::None);
    let (key, value, slots) = (call.key, call.value, b.slots);
    let call = SlotsSdpaArgs {
        query,
        key,
        value,
        slots,
        starts,
        attn_mask,
        dropout_p,
        is_causal,
        scale,
        out,
    };
    finish(b, Operator::SLOTS_SDPA, call.inputs(), out)
}

/// Arithmetic on two integers. One or both differ from sequence to sequence.
fn integers(
    b: &mut Batcher<'_>,
    operator: Operator,
    inputs: Vec<ValueId>,
    out: ValueId,
) -> Result<(), Reason> {
    let [x, y] = inputs[..] else { return Err("expected two integers".to_string()) };
    let (first, second) = (b.form(x) == Form::Rows, b.form(y) == Form::Rows);
    let one = b.int(1);
    use Operator as O;
    let (operator, args) = match (operator, first, second) {
        (O::SYM_ADD, true, false) => {
            b.is_sum(out, x, y);
            (O::ADD_SCALAR, vec![x, y, one])
        }
        (O::SYM_ADD, false, true) => {
            b.is_sum(out, y, x);
            (O::ADD_SCALAR, vec![y, x, one])
        }
        (O::SYM_ADD, true, true) => (O::ADD_TENSOR, vec![x, y, one]),
        (O::SYM_SUB, true, false) => (O::SUB_SCALAR, vec![x, y, one]),
        (O::SYM_SUB, true, true) => (O::SUB_TENSOR, vec![x, y, one]),
        (O::SYM_MUL, true, false) => (O::MUL_SCALAR, vec![x, y]),
        (O::SYM_MUL, false, true) => (O::MUL_SCALAR, vec![y, x]),
        (O::EXECUTORCH_PRIM_MOD_SCALAR, true, false) => (O::REMAINDER_SCALAR, vec![x, y]),
        _ => return Err("integers that differ from sequence to sequence".to_string()),
    };
    finish(b, operator, args, out)
}

/// Reads an integer of each row.
fn integer(b: &mut Batcher<'_>, inputs: Vec<ValueId>, out: ValueId) -> Result<(), Reason> {
    let input = inputs.first().copied().unwrap_or_default();
    let rows = b.rows_of(input)?;
    let rows = b.long(rows)?;
    let sizes = b.sizes(rows)?;
    if sizes.iter().any(|size| *size != 1) {
        return Err("expected a tensor with one element".to_string());
    }
    let rows = match sizes.is_empty() {
        true => rows,
        false => {
            let list = vec![b.row_count()];
            let list = b.push(Value::List(list));
            let args = vec![rows, list];
            b.add_rows(Operator::VIEW_COPY, args, ScalarType::Long, Vec::new(), false)
        }
    };
    b.rename(out, rows);
    Ok(())
}

/// A tensor without dims, with an integer of each row.
fn filled(b: &mut Batcher<'_>, inputs: Vec<ValueId>, out: ValueId) -> Result<(), Reason> {
    let number = inputs.first().copied().unwrap_or_default();
    let (number, dtype) = (b.integers(number)?, b.tensor(out)?.scalar_type);
    let (dtype, none) = (b.int(dtype as i64), b.none());
    finish(b, Operator::TO_COPY, vec![number, dtype, none, none, none, none, none], out)
}

fn size(b: &mut Batcher<'_>, inputs: Vec<ValueId>, out: ValueId) -> Result<(), Reason> {
    let [input, dim] = inputs[..] else { return Err("expected a tensor and a dim".to_string()) };
    let rank = b.sizes(input)?.len();
    let dim = constants(b, Some(dim))?.unwrap_or_default();
    let [dim] = shifted(&dim, rank)?[..] else { return Err("expected a dim".to_string()) };
    let dim = b.int(dim);
    b.emit(Operator::SYM_SIZE_INT, vec![input, dim], out);
    Ok(())
}
