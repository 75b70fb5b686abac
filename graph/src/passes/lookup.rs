//! Replaces functions of int8 values by lookup tables: [`Operator::Q8TA_LOOKUP`].
//!
//! The pattern is `dequantize_per_tensor` of int8 values, a few elementwise functions, and
//! `quantize_per_tensor` to int8. Only 256 int8 values exist. To compute the table, the pass adds
//! the same calls on a constant that contains all of these values, and [`fold`](crate::fold)
//! evaluates them.
//!
//! Needs: as [`super::quantized`], after which it runs, for the remaining patterns; and constant
//! folding afterwards. A call is produced only if `takes` accepts it. Keeps: intermediate values
//! that other calls read. Rounding: functions are evaluated on the CPU, so a result close to the
//! middle between two quantized values may be rounded to the other one.

use super::quantized::{Quantized, dequantized};
use super::rewrite::{Rewriter, each_call};
use super::uses::inputs;
use crate::graph::{Graph, Node, Tensor, Value, ValueId};
use crate::operators::Operator;
use alloc::borrow::Cow;
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::ScalarType;

/// Replaces functions of int8 values by lookups. `takes` decides whether the processor supports a
/// call. Returns the number of changes.
pub fn run(graph: &mut Graph<'_>, takes: &mut dyn FnMut(&Graph<'_>, &Node) -> bool) -> usize {
    each_call(graph, |rewriter, node| lookup(rewriter, node, takes).is_some())
}

/// Number of int8 values.
const CODES: usize = 256;
/// Maximum number of functions per table.
const FUNCTIONS: usize = 4;

fn lookup(
    rewriter: &mut Rewriter<'_, '_>,
    node: &Node,
    takes: &mut dyn FnMut(&Graph<'_>, &Node) -> bool,
) -> Option<()> {
    let Quantized { made, out, .. } = Quantized::of(rewriter, node)?;
    // From the last function to the first.
    let (mut functions, mut id) = (vec![], made);
    let source = loop {
        if let Some((source, _)) = dequantized(rewriter, id) {
            break source;
        }
        let call = rewriter.producer(id).filter(|_| rewriter.uses(id) == 1)?;
        let ([input, rest @ ..], true) = (inputs(call), call.operator.traits().is_unary_function)
        else {
            return None;
        };
        let is_number = |id: &ValueId| rewriter.tensor(*id).is_none();
        if functions.len() == FUNCTIONS || !rest.iter().all(is_number) {
            return None;
        }
        let is_same = rewriter.tensor(id)?.sizes == rewriter.tensor(*input)?.sizes
            && rewriter.scalar_type(id)? == ScalarType::Float;
        if !is_same {
            return None;
        }
        functions.push((call.operator, rest.to_vec()));
        id = *input;
    };
    if functions.is_empty() {
        return None;
    }
    let operator = Operator::QUANTIZED_DECOMPOSED_DEQUANTIZE_PER_TENSOR;
    // Kernels need the ranges and types that exporters of some backends leave out.
    let char = rewriter.value(Value::Int(ScalarType::Char as i64));
    let none = rewriter.value(Value::None);
    let ends = [i8::MIN, i8::MAX].map(|end| rewriter.value(Value::Int(end.into())));
    let whole = |rewriter: &Rewriter<'_, '_>, parameters: &[ValueId]| {
        let [scale, zero, bounds @ ..] = parameters else { return None };
        let bound = |(given, end): (&ValueId, ValueId)| match rewriter.is_none(Some(given)) {
            true => end,
            false => *given,
        };
        let bounds = bounds.iter().zip(ends).map(bound);
        Some([*scale, *zero].into_iter().chain(bounds).chain([char]).collect::<Vec<_>>())
    };
    let mut taken = whole(rewriter, rewriter.call_of(id, operator)?.get(1..5)?)?;
    taken.push(none);
    let parameters = whole(rewriter, inputs(node).get(1..5)?)?;
    let all = (i8::MIN..=i8::MAX).map(i8::cast_unsigned).collect();
    let all = Tensor {
        scalar_type: ScalarType::Char,
        host_type: ScalarType::Char,
        sizes: vec![CODES],
        dynamic: false,
        data: Some(Cow::Owned(all)),
        changes: None,
    };
    let all = rewriter.value(Value::Tensor(all));
    if !rewriter.is_taken(Operator::Q8TA_LOOKUP, &[source, all], out, takes) {
        return None;
    }
    let mut call = |operator: Operator, input: ValueId, rest: &[ValueId], scalar_type| {
        let taken = [&[input], rest].concat();
        rewriter.call_new(operator, &taken, scalar_type, vec![CODES])
    };
    let mut numbers = call(operator, all, &taken, ScalarType::Float);
    for (operator, rest) in functions.iter().rev() {
        numbers = call(*operator, numbers, rest, ScalarType::Float);
    }
    let table = call(node.operator, numbers, &parameters, ScalarType::Char);
    rewriter.call(Operator::Q8TA_LOOKUP, &[source, table], out);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::text::{after, calls, operators, parse};

    const FUNCTION: &str = "in x i8[2,3]
        f f32[2,3] = quantized_decomposed.dequantize_per_tensor.default(x, 0.25, 3, -128, 127, \
            1, none)
        g f32[2,3] = aten.leaky_relu.default(f, 0.1)
        h f32[2,3] = aten.clamp.default(g, -1, 2)
        y i8[2,3] = quantized_decomposed.quantize_per_tensor.default(h, 0.5, -1, -128, 127, 1)
        out y";

    #[test]
    fn functions_of_codes_become_functions_of_all_codes() {
        let graph = after(FUNCTION, |graph| run(graph, &mut |_, _| true));
        let expected = [
            "quantized_decomposed.dequantize_per_tensor.default",
            "aten.leaky_relu.default",
            "aten.clamp.default",
            "quantized_decomposed.quantize_per_tensor.default",
            "torchlet.q8ta_lookup",
        ];
        assert_eq!(operators(&graph), expected, "{:?}", calls(&graph));
        let Value::Tensor(all) = &graph.values[graph.nodes[0].args[0]] else { panic!() };
        assert_eq!(all.data.as_deref().unwrap()[..2], [128, 129]);
        assert_eq!(graph.nodes[4].args[0], graph.inputs[0]);
    }

    #[test]
    fn what_is_otherwise_stays() {
        for (from, to) in [
            ("out y", "out y g"),
            ("aten.leaky_relu.default(f, 0.1)", "aten.cumsum.default(f, 1)"),
            ("x, 0.25, 3, -128", "x, 0.25, 3, -127"),
            ("h, 0.5, -1, -128", "h, 0.5, -1, -100"),
        ] {
            let mut graph = parse(&FUNCTION.replace(from, to));
            assert_eq!(run(&mut graph, &mut |_, _| true), 0, "{to}");
        }
        assert_eq!(run(&mut parse(FUNCTION), &mut |_, _| false), 0);
    }
}
