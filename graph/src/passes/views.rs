//! Helpers for calls that move elements without changing them.

use super::rewrite::Rewriter;
use super::uses::inputs;
use crate::graph::{Node, Value, ValueId};
use crate::operators::Operator;
use alloc::vec::Vec;
use torchlet_core::ScalarType;

/// Maximum length of a chain of views that is followed. Exporters write a handful, but a file could
/// contain a long chain with many users.
pub(super) const VIEWS: usize = 16;

/// If a call is a permutation: its input, and the input dim of each output dim.
pub(super) fn permutation(
    rewriter: &Rewriter<'_, '_>,
    node: &Node,
) -> Option<(ValueId, Vec<usize>)> {
    let inputs = inputs(node);
    let input = *inputs.first()?;
    let rank = rewriter.sizes(input)?.len();
    let dim = |dim: i64| {
        let dim = if dim < 0 { dim.checked_add_unsigned(rank as u64)? } else { dim };
        usize::try_from(dim).ok().filter(|dim| *dim < rank)
    };
    let mut order: Vec<usize> = (0..rank).collect();
    match node.operator {
        Operator::PERMUTE_COPY | Operator::PERMUTE => {
            let dims = rewriter.ints(*inputs.get(1)?)?;
            order = dims.iter().map(|size| dim(*size)).collect::<Option<_>>()?;
            let mut sorted = order.clone();
            sorted.sort_unstable();
            if !sorted.into_iter().eq(0..rank) {
                return None;
            }
        }
        Operator::TRANSPOSE_COPY_INT => {
            let [first, second] = [inputs.get(1)?, inputs.get(2)?].map(|id| rewriter.int(*id));
            order.swap(dim(first?)?, dim(second?)?);
        }
        Operator::T_COPY if rank <= 2 => order.reverse(),
        _ => return None,
    }
    Some((input, order))
}

/// If a call is a reshape that keeps the order of elements: its input.
pub(super) fn reshaped(rewriter: &Rewriter<'_, '_>, node: &Node) -> Option<ValueId> {
    let (out, input) = (*node.args.last()?, *inputs(node).first()?);
    if !rewriter.has_fixed_shapes() {
        return None;
    }
    match node.operator {
        Operator::VIEW_COPY
        | Operator::UNSQUEEZE_COPY
        | Operator::SQUEEZE_COPY_DIM
        | Operator::SQUEEZE_COPY_DIMS => {}
        Operator::EXPAND_COPY if numel(rewriter, input)? == numel(rewriter, out)? => {}
        _ => return None,
    }
    Some(input)
}

/// Number of elements of a tensor.
pub(super) fn numel(rewriter: &Rewriter<'_, '_>, id: ValueId) -> Option<usize> {
    rewriter.sizes(id)?.iter().try_fold(1usize, |numel, size| numel.checked_mul(*size))
}

/// Follows views to the tensor that they reshape.
pub(super) fn peeled_views(rewriter: &Rewriter<'_, '_>, mut id: ValueId) -> ValueId {
    for _ in 0..VIEWS {
        let Some(source) = rewriter.producer(id).and_then(|node| reshaped(rewriter, node)) else {
            break;
        };
        id = source;
    }
    id
}

/// If a call multiplies by a known number: its input and the number.
pub(super) fn scaled(rewriter: &Rewriter<'_, '_>, node: &Node) -> Option<(ValueId, f64)> {
    let [a, b] = [inputs(node).first()?, inputs(node).get(1)?];
    let (input, factor) = match node.operator {
        Operator::MUL_SCALAR | Operator::MUL_TENSOR => match rewriter.number(*b) {
            Some(factor) => (*a, factor),
            None => (*b, rewriter.number(*a)?),
        },
        Operator::DIV_SCALAR | Operator::DIV_TENSOR => (*a, 1.0 / rewriter.number(*b)?),
        _ => return None,
    };
    let out = rewriter.tensor(*node.args.last()?)?;
    let tensor = rewriter.tensor(input)?;
    // A constant operand may broadcast the result, or promote its type.
    let same = tensor.sizes == out.sizes && tensor.scalar_type == out.scalar_type;
    (same && tensor.scalar_type.is_floating()).then_some((input, factor))
}

/// The input of a conversion from `f32` to a 16-bit float type.
fn narrowed(rewriter: &Rewriter<'_, '_>, node: &Node) -> Option<ValueId> {
    conversion(rewriter, node, |from, to| from == ScalarType::Float && is_narrow(to))
}

/// The input of a conversion from this 16-bit float type to `f32`.
fn widened(rewriter: &Rewriter<'_, '_>, node: &Node, narrow: ScalarType) -> Option<ValueId> {
    conversion(rewriter, node, |from, to| from == narrow && to == ScalarType::Float)
}

fn is_narrow(scalar_type: ScalarType) -> bool {
    matches!(scalar_type, ScalarType::Half | ScalarType::BFloat16)
}

fn conversion(
    rewriter: &Rewriter<'_, '_>,
    node: &Node,
    fits: impl Fn(ScalarType, ScalarType) -> bool,
) -> Option<ValueId> {
    if !matches!(node.operator, Operator::TO_COPY | Operator::DIM_ORDER_OPS_TO_DIM_ORDER_COPY) {
        return None;
    }
    let input = *inputs(node).first()?;
    let (from, to) = (rewriter.scalar_type(input)?, rewriter.scalar_type(*node.args.last()?)?);
    fits(from, to).then_some(input)
}

/// As [`peeled`], but also through a multiplication in `f32` between conversions from a 16-bit type
/// and back. For callers that apply the factor with `f32` precision.
pub(super) fn peeled_exactly(rewriter: &Rewriter<'_, '_>, id: ValueId) -> (ValueId, f64) {
    let (id, factor) = peeled(rewriter, id);
    let found = || {
        let narrow = rewriter.scalar_type(id).filter(|narrow| is_narrow(*narrow))?;
        let wide = narrowed(rewriter, rewriter.producer(id)?)?;
        let (wide, own) = peeled(rewriter, wide);
        let source = widened(rewriter, rewriter.producer(wide)?, narrow)?;
        let (source, last) = peeled(rewriter, source);
        Some((source, factor * own * last))
    };
    found().unwrap_or((id, factor))
}

/// Follows views and multiplications by numbers. Returns the source and the product of the numbers.
pub(super) fn peeled(rewriter: &Rewriter<'_, '_>, mut id: ValueId) -> (ValueId, f64) {
    let mut factor = 1.0;
    for _ in 0..VIEWS {
        let Some(node) = rewriter.producer(id) else { break };
        if let Some(source) = reshaped(rewriter, node) {
            id = source;
        } else if let Some((source, own)) = scaled(rewriter, node) {
            (id, factor) = (source, factor * own);
        } else {
            break;
        }
    }
    (id, factor)
}

/// Views a value in another shape with the same number of elements. Adds no call if the shape is
/// the same.
pub(super) fn viewed_as(
    rewriter: &mut Rewriter<'_, '_>,
    id: ValueId,
    sizes: &[usize],
) -> Option<ValueId> {
    let tensor = rewriter.tensor(id)?;
    if tensor.sizes == sizes {
        return Some(id);
    }
    let wanted = sizes.iter().try_fold(1usize, |numel, size| numel.checked_mul(*size));
    if wanted != numel(rewriter, id) {
        return None;
    }
    let out = rewriter.new_tensor(tensor.scalar_type, sizes.to_vec());
    view_into(rewriter, id, out).map(|()| out)
}

/// Produces `out` as a view of a value with the same number of elements.
pub(super) fn view_into(rewriter: &mut Rewriter<'_, '_>, id: ValueId, out: ValueId) -> Option<()> {
    let shape = rewriter.sizes(out)?.iter().map(|size| *size as i64).collect();
    let shape = rewriter.value(Value::IntList(shape));
    rewriter.call(Operator::VIEW_COPY, &[id, shape], out);
    Some(())
}

/// Adds a permutation of a value.
pub(super) fn permuted(
    rewriter: &mut Rewriter<'_, '_>,
    id: ValueId,
    order: &[usize],
) -> Option<ValueId> {
    let tensor = rewriter.tensor(id)?;
    let sizes = order.iter().map(|dim| tensor.sizes.get(*dim).copied()).collect::<Option<_>>()?;
    let scalar_type = tensor.scalar_type;
    let order = order.iter().map(|dim| *dim as i64).collect();
    let order = rewriter.value(Value::IntList(order));
    Some(rewriter.call_new(Operator::PERMUTE_COPY, &[id, order], scalar_type, sizes))
}
