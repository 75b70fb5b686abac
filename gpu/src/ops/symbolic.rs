//! Symbolic integers, which are computed on the host during encoding.

use super::{Entry, operator};
use crate::encoder::Encoder;
use crate::error::Error;
use crate::state::State;
use crate::tensors::Operand;
use std::collections::HashSet;
use torchlet_core::rules::normalize_index;
use torchlet_graph::graph::{Graph, Node, ValueId};
use torchlet_graph::operators::{
    AddArgs, ClampArgs, DimArgs, Operator, SelectArgs, SliceArgs, SymBinaryArgs,
};
use torchlet_shaders::Element;

pub(super) const OPERATORS: &[Entry] = &[
    operator(Operator::SYM_ADD, |e, args| binary(e, args, |a, b| a.checked_add(b))),
    operator(Operator::SYM_SUB, |e, args| binary(e, args, |a, b| a.checked_sub(b))),
    operator(Operator::SYM_MUL, |e, args| binary(e, args, |a, b| a.checked_mul(b))),
    operator(Operator::SYM_FLOORDIV, |e, args| {
        binary(e, args, |a, b| {
            let (quotient, rest) = (a.checked_div(b)?, a.checked_rem(b)?);
            Some(if rest != 0 && (rest < 0) != (b < 0) { quotient - 1 } else { quotient })
        })
    }),
    operator(Operator::SYM_SIZE_INT, |e, args| {
        let call = DimArgs::of(args)?;
        let input = e.tensor(call.input)?;
        let dim = input.dim(e.int(call.dim)?)?;
        e.set_int(call.out, input.size(dim) as i64)
    }),
    operator(Operator::ET_VK_SELECT_AS_SYMINT, |e, args| {
        let call = SelectArgs::of(args)?;
        let input = e.tensor(call.input)?;
        let dim = input.dim(e.int(call.dim)?)?;
        let (given, size) = (e.int(call.index)?, input.size(dim));
        let index = normalize_index(given, size);
        let index = index.ok_or_else(|| {
            Error::Invalid(format!("index {given} is out of range for dim {dim} of size {size}"))
        })?;
        let at = index * input.strides().get(dim).copied().unwrap_or(1);
        // While memory is planned, the contents of inputs are unknown. The integer then keeps its
        // bound, or the exporter's sample value.
        match element(e, input.id, at, &mut MAX_CALLS.clone())? {
            Some(value) => e.set_int(call.out, value),
            None => Ok(()),
        }
    }),
];

/// The maximum number of calls that are evaluated on the host to compute one integer.
const MAX_CALLS: usize = 256;

/// Computes element `at` of an integer tensor on the host. The tensor must be a constant, an input,
/// or a result of simple operators on these. Returns `None` if the element depends on an input
/// while memory is planned.
fn element(
    e: &mut Encoder<'_, '_>,
    id: ValueId,
    at: usize,
    calls: &mut usize,
) -> Result<Option<i64>, Error> {
    let unknown = match e.host_int(id, at) {
        Err(error @ Error::Unsupported(_)) => error,
        known => return known,
    };
    let (Some(node), Some(left)) = (e.producer(id), calls.checked_sub(1)) else {
        return Err(unknown);
    };
    *calls = left;
    if e.tensor(id)?.element != Element::I32 {
        return Err(unknown);
    }
    let (source, _) = e.ends(&node.args)?;
    let input = e.tensor(source)?;
    match node.operator {
        _ if is_view(node) && input.numel() == e.tensor(id)?.numel() => {
            element(e, source, at, calls)
        }
        Operator::CLAMP if input.numel() == e.tensor(id)?.numel() => {
            let call = ClampArgs::of(node)?;
            let (low, high) = (e.optional_int(call.min)?, e.optional_int(call.max)?);
            let value = element(e, source, at, calls)?;
            let bounded =
                |value: i64| value.max(low.unwrap_or(value)).min(high.unwrap_or(i64::MAX));
            Ok(value.map(bounded))
        }
        Operator::SELECT_COPY_INT | Operator::SELECT_INT => {
            let call = SelectArgs::of(node)?;
            let dim = input.dim(e.int(call.dim)?)?;
            let (given, size) = (e.int(call.index)?, input.size(dim));
            let index = normalize_index(given, size);
            let index = index.ok_or_else(|| {
                Error::Invalid(format!(
                    "index {given} is out of range for dim {dim} of size {size}"
                ))
            })?;
            element(e, source, picked(at, &input, dim, 1, [index, 1]), calls)
        }
        Operator::SLICE_COPY_TENSOR | Operator::SLICE_TENSOR => {
            let call = SliceArgs::of(node)?;
            let dim = input.dim(e.optional_int(call.dim)?.unwrap_or(0))?;
            let size = input.size(dim) as i64;
            let start = e.optional_int(call.start)?.unwrap_or(0);
            let start = if start < 0 { start.saturating_add(size).max(0) } else { start.min(size) };
            let step = e.optional_int(call.step)?.unwrap_or(1).clamp(1, size.max(1));
            let count = e.tensor(id)?.size(dim);
            let place = picked(at, &input, dim, count, [start as usize, step as usize]);
            element(e, source, place, calls)
        }
        Operator::ADD_TENSOR | Operator::SUB_TENSOR | Operator::MUL_TENSOR => {
            let AddArgs { other, alpha, .. } = AddArgs::of(node)?;
            // Each operand has one element, or as many as the output.
            let place = |numel: usize| if numel == 1 { 0 } else { at };
            let numel = e.tensor(id)?.numel();
            let numels = [input.numel(), e.tensor(other)?.numel()];
            if numels.iter().any(|count| *count != 1 && *count != numel) {
                return Err(unknown);
            }
            let a = element(e, source, place(numels[0]), calls)?;
            let b = element(e, other, place(numels[1]), calls)?;
            let (Some(a), Some(b)) = (a, b) else { return Ok(None) };
            let factor = e.optional_int(alpha)?.unwrap_or(1);
            // Arithmetic wraps around at 32 bits, as on the device.
            let [a, b, factor] = [a, b, factor].map(|number| number as i32);
            let result = match node.operator {
                Operator::ADD_TENSOR => a.wrapping_add(factor.wrapping_mul(b)),
                Operator::SUB_TENSOR => a.wrapping_sub(factor.wrapping_mul(b)),
                _ => a.wrapping_mul(b),
            };
            Ok(Some(result.into()))
        }
        _ => Err(unknown),
    }
}

/// Maps the index `at` of an output element to an index of the input. The output has `count`
/// elements of one of the input's dims, starting at `start`.
fn picked(
    at: usize,
    input: &Operand,
    dim: usize,
    count: usize,
    [start, step]: [usize; 2],
) -> usize {
    let inner = input.sizes.iter().skip(dim + 1).product::<usize>().max(1);
    let (outer, index) = (at / inner / count.max(1), at / inner % count.max(1));
    (outer * input.size(dim) + start + index * step) * inner + at % inner
}

/// Whether the output of a call has the elements of its input in the same order.
fn is_view(node: &Node) -> bool {
    matches!(
        node.operator,
        Operator::VIEW_COPY
            | Operator::UNSQUEEZE_COPY
            | Operator::SQUEEZE_COPY_DIMS
            | Operator::EXPAND_COPY
            | Operator::CLONE
            | Operator::TO_COPY
            | Operator::DIM_ORDER_OPS_TO_DIM_ORDER_COPY
            | Operator::DIM_ORDER_OPS_CLONE_DIM_ORDER
    )
}

/// Returns the integer inputs whose contents operators read on the host.
pub(crate) fn watched_inputs(graph: &Graph<'_>, state: &State) -> Vec<ValueId> {
    let mut waiting: Vec<ValueId> = graph
        .nodes
        .iter()
        .filter(|node| node.operator == Operator::ET_VK_SELECT_AS_SYMINT)
        .filter_map(|node| node.args.first().copied())
        .collect();
    let mut seen = HashSet::new();
    let mut watched = Vec::new();
    while let Some(id) = waiting.pop() {
        let Ok(tensor) = state.tensor(id) else { continue };
        if tensor.element != Element::I32 || !seen.insert(id) {
            continue;
        }
        let root = state.root(id);
        if graph.inputs.contains(&root) {
            watched.push(root);
        } else if let Some(node) = graph.producer(id) {
            waiting.extend(node.args.iter().take(2));
        }
    }
    watched.sort_unstable();
    watched.dedup();
    watched
}

fn binary(
    e: &mut Encoder<'_, '_>,
    args: &[ValueId],
    function: impl FnOnce(i64, i64) -> Option<i64>,
) -> Result<(), Error> {
    let call = SymBinaryArgs::of(args)?;
    let (a, b) = (e.int(call.a)?, e.int(call.b)?);
    let result = function(a, b).ok_or_else(|| {
        Error::Invalid(format!("the result for {a} and {b} is not a 64-bit integer"))
    })?;
    e.set_int(call.out, result)
}
