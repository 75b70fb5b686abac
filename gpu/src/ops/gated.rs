//! Gated GEMMs: `activation(x · a) * (x · b)`, as in the feed-forward layers of language models
//! (SwiGLU).
//!
//! [`crate::passes`] fuses them into calls of `torchlet.gated`. For few rows, a single kernel
//! computes the call if it supports the weight layout. Otherwise, each original call is dispatched
//! separately.

use super::elementwise::{apply_binary, stage_of};
use super::quantized::{gated, weighs_floats};
use super::{Entry, find, operator};
use crate::encoder::Encoder;
use crate::error::Error;
use crate::stages::{Epilogue, Stage};
use torchlet_graph::graph::{Node, ValueId};
use torchlet_graph::operators::{BinaryArgs, Operator};
use torchlet_shaders::functions::binary;

pub(super) const OPERATORS: &[Entry] = &[operator(Operator::GATED, encode)];

/// The original calls of a gated GEMM: the gate GEMM with views of its result and an activation,
/// the other GEMM with views of its result, and the multiplication of both.
fn encode(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let parts = e.parts();
    let is_activation = |part: &&Node| find(part.operator).is_some_and(|it| it.is_activation);
    let mut products = parts.iter().filter(|part| weighs_floats(part.operator));
    let (Some(product), Some(other), Some(activation), Some(last)) =
        (products.next(), products.next(), parts.iter().find(is_activation), parts.last())
    else {
        return Err(Error::invalid(
            "internal error: expected two GEMMs, an activation and a multiplication",
        ));
    };
    // For few rows, one dispatch reads and writes memory that several dispatches use for many rows.
    e.reserve(&e.out(args)?);
    let stage = stage_of(e, activation.operator, &activation.args)?;
    let Stage::Unary(function, _, parameters) = stage else {
        return Err(Error::Invalid(format!(
            "internal error: the activation {} is not a unary function",
            activation.operator.name()
        )));
    };
    let epilogue = Epilogue::function(function, parameters);
    let gated = gated(e, [product, other], &epilogue)?;
    if gated.is_none() {
        e.set_epilogue(epilogue);
        super::encode(e, product)?;
        super::encode(e, other)?;
    }
    for view in parts.iter().filter(|part| part.operator.traits().is_view) {
        super::encode(e, view)?;
    }
    // Finds the gate before its activation, and the other operand of the multiplication.
    let (gate, _) = e.ends(&activation.args)?;
    let activated = e.out(&activation.args)?.value;
    let last = BinaryArgs::of(last)?;
    let other = [last.input, last.other].into_iter().find(|id| *id != activated).unwrap_or(gate);
    let (gate, other, out) = (e.tensor(gate)?, e.tensor(other)?, e.out(args)?);
    match gated {
        Some(gated) => {
            let out = e.resize(out.id, &other.sizes)?;
            if out.numel() != gated.numel() || out.element != gate.element {
                return Err(Error::Invalid(format!(
                    "gate shape {:?} and type {:?} do not match shape {:?} and type {:?}",
                    gate.sizes, gate.element, other.sizes, out.element
                )));
            }
            gated.emit(e, &out)
        }
        None => apply_binary(e, binary::MUL, [&gate, &other], out.id, 1.0),
    }
}

#[cfg(test)]
mod tests {
    use crate::encode::encode;
    use crate::memory_plan::{Kind, plan_memory};
    use crate::ops::testing::tensor;
    use crate::passes;
    use crate::state::State;
    use std::collections::HashSet;
    use torchlet_core::ScalarType;
    use torchlet_graph::graph::{Graph, Node, Value, ValueId};
    use torchlet_graph::operators::Operator;

    /// At most `rows` rows of 64: an RMS norm with computed weights, two GEMMs of which one gates
    /// the other, and a GEMM of the result.
    fn feed_forward(rows: usize) -> Graph<'static> {
        let (float, char) = (ScalarType::Float, ScalarType::Char);
        let rows_of = |width| tensor(float, &[rows, width], false);
        let values = vec![
            rows_of(64),
            tensor(float, &[64], true),
            tensor(float, &[64], false),
            Value::Double(1e-5),
            rows_of(64),
            tensor(char, &[128, 64], true),
            tensor(char, &[128, 64], true),
            tensor(float, &[128], true),
            rows_of(128),
            rows_of(128),
            rows_of(128),
            rows_of(128),
            tensor(char, &[64, 128], true),
            tensor(float, &[64], true),
            rows_of(64),
        ];
        let calls: [(Operator, &[ValueId]); 7] = [
            (Operator::ABS, &[1, 2]),
            (Operator::ET_VK_RMS_NORM, &[0, 2, 3, 4]),
            (Operator::WEIGHT_INT8PACK_MM, &[4, 5, 7, 8]),
            (Operator::SILU, &[8, 9]),
            (Operator::WEIGHT_INT8PACK_MM, &[4, 6, 7, 10]),
            (Operator::MUL_TENSOR, &[9, 10, 11]),
            (Operator::WEIGHT_INT8PACK_MM, &[11, 12, 13, 14]),
        ];
        let nodes = calls.map(|(operator, args)| Node::new(operator, args.to_vec())).to_vec();
        let mut graph =
            Graph { values, nodes, inputs: vec![0], outputs: vec![14], ..Graph::default() };
        passes::run(&mut graph);
        graph
    }

    #[test]
    fn nothing_is_written_where_the_same_dispatch_reads() {
        for most in [8, 72, 300] {
            let graph = feed_forward(most);
            let mut state = State::new(&graph, HashSet::new()).unwrap();
            let (steps, _) = encode(&graph, &mut state, true).unwrap();
            let plan = plan_memory(&graph, &state, &steps, 256, u64::MAX, |_| Kind::Own).unwrap();
            for rows in [1, 3, 4, 5, most] {
                state.tensors[0].as_mut().unwrap().sizes[0] = rows;
                let (steps, _) = encode(&graph, &mut state, false).unwrap();
                let gated = steps.iter().any(|step| step.key.module.name == "gemv_gated");
                assert_eq!(gated, rows <= 4);
                for step in &steps {
                    let place = |id| plan.places[&state.root(id)];
                    for written in step.accesses.iter().filter(|access| access.written) {
                        let to = place(written.tensor);
                        let others = step.accesses.iter().filter(|access| {
                            state.root(access.tensor) != state.root(written.tensor)
                        });
                        for read in others {
                            let from = place(read.tensor);
                            let apart = from.offset + from.bytes <= to.offset
                                || to.offset + to.bytes <= from.offset;
                            let elsewhere = (from.memory, from.buffer) != (to.memory, to.buffer);
                            assert!(apart || elsewhere, "{} of {most}", step.key.module.name);
                        }
                    }
                }
            }
        }
    }
}
