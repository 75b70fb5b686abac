//! RMS norms that GEMVs compute themselves ([`crate::passes`] fuses them). If a GEMV kernel does
//! not support the norm after all, the norm is dispatched separately.

use super::gemm_rows::FEW_ROWS;
use super::row_norms::{Sum, emit_rms_norm};
use crate::encoder::Encoder;
use crate::error::Error;
use crate::tensors::Operand;
use torchlet_graph::graph::ValueId;
use torchlet_graph::operators::RmsNormArgs;

/// The RMS norm of the rows of a GEMM.
#[derive(Debug)]
pub(super) struct Norm {
    pub(super) input: Operand,
    pub(super) weight: Operand,
    pub(super) epsilon: f64,
    /// Whether the GEMVs compute the norm for the current number of rows. With more rows, the norm
    /// is dispatched separately.
    pub(super) is_left: bool,
}

impl Norm {
    /// If `normed` is the result of a norm that can be fused, returns that norm.
    pub(super) fn of(e: &mut Encoder<'_, '_>, normed: &Operand) -> Result<Option<Self>, Error> {
        let Some(call) = e.prologue(normed.value) else { return Ok(None) };
        let norm = Self::of_call(e, &call.args)?;
        // The norm's inputs must stay alive until the GEMM for any shape.
        e.reserve(&norm.input);
        e.reserve(&norm.weight);
        Ok(Some(norm))
    }

    /// Parses a call as a norm.
    pub(super) fn of_call(e: &Encoder<'_, '_>, args: &[ValueId]) -> Result<Self, Error> {
        let call = RmsNormArgs::of(args)?;
        let (input, weight) = (e.tensor(call.input)?, e.tensor(call.weight)?);
        let epsilon = e.float(call.eps)?;
        let is_left = input.numel() / input.sizes.last().copied().unwrap_or(1).max(1) <= FEW_ROWS;
        Ok(Norm { input, weight, epsilon, is_left })
    }

    /// Emits a separate dispatch for the norm, with a fused sum if the rows are short.
    pub(super) fn emit(
        &self,
        e: &mut Encoder<'_, '_>,
        out: &Operand,
        sum: Option<&Sum>,
    ) -> Result<(), Error> {
        emit_rms_norm(e, &self.input, sum, &self.weight, self.epsilon, out)
    }
}

#[cfg(test)]
mod tests {
    use crate::encode::encode;
    use crate::ops::testing::tensor;
    use crate::passes;
    use crate::state::State;
    use std::collections::HashSet;
    use torchlet_core::ScalarType;
    use torchlet_graph::graph::{Graph, Node, Value};
    use torchlet_graph::operators::Operator;

    /// A norm of `rows` rows and a GEMM of the result; `other` is an additional reader of the
    /// result.
    fn graph(rows: usize, other: Option<Operator>) -> Graph<'static> {
        let float = ScalarType::Float;
        let values = vec![
            tensor(float, &[rows, 64], false),
            tensor(float, &[64], true),
            Value::Double(1e-5),
            tensor(float, &[rows, 64], false),
            tensor(ScalarType::Char, &[8, 64], true),
            tensor(float, &[8], true),
            tensor(float, &[rows, 8], false),
            tensor(float, &[rows, 64], false),
        ];
        let mut nodes = vec![
            Node::new(Operator::ET_VK_RMS_NORM, vec![0, 1, 2, 3]),
            Node::new(Operator::WEIGHT_INT8PACK_MM, vec![3, 4, 5, 6]),
        ];
        nodes.extend(other.map(|operator| Node::new(operator, vec![3, 7])));
        let outputs = if other.is_some() { vec![6, 7] } else { vec![6] };
        Graph { values, nodes, inputs: vec![0], outputs, ..Graph::default() }
    }

    /// Returns the shaders for the planned number of rows, and for another one.
    fn shaders(graph: &Graph<'_>, rows: usize) -> [Vec<&'static str>; 2] {
        let graph = &mut graph.clone();
        passes::run(graph);
        let mut state = State::new(graph, HashSet::new()).unwrap();
        let planned = encode(graph, &mut state, true).unwrap().0;
        state.tensors[0].as_mut().unwrap().sizes[0] = rows;
        let other = encode(graph, &mut state, false).unwrap().0;
        [planned, other].map(|steps| steps.iter().map(|step| step.key.module.name).collect())
    }

    #[test]
    fn few_rows_leave_a_norm_to_the_product() {
        let [many, few] = shaders(&graph(72, None), 3);
        assert_eq!(many[0], "row");
        assert_eq!(few, ["gemv"]);
        assert_eq!(shaders(&graph(2, None), 1), [["gemv"], ["gemv"]]);
    }

    #[test]
    fn a_norm_that_others_take_is_done() {
        let [planned, fewer] = shaders(&graph(2, Some(Operator::ABS)), 1);
        assert_eq!(planned, ["row", "gemv", "unary"]);
        assert_eq!(fewer, planned);
    }

    #[test]
    fn a_norm_that_gives_its_result_another_shape_is_done() {
        let mut graph = graph(2, None);
        graph.values[3] = tensor(ScalarType::Float, &[1, 2, 64], false);
        graph.values[6] = tensor(ScalarType::Float, &[1, 2, 8], false);
        assert_eq!(shaders(&graph, 2)[0], ["row", "gemv"]);
    }
}
