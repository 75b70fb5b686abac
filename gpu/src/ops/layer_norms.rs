//! Layer norms fused into the GEMMs that read their result. A separate norm needs a dispatch with
//! two barriers. In a tiled GEMM, which loads all elements of the rows anyway, the norm adds only a
//! few instructions.
//!
//! A norm is fused only if all its readers are GEMMs that support it. These use weights that are
//! scaled ahead of time, so the weights must be constant and fp16 ([`Normed`]).

use super::gemm_rows::{FEW_ROWS, takes_rows};
use super::matmul::Product;
use super::quantized::Weighted;
use super::tiling::{Constraints, Factors, Shape, Tiling};
use super::window::checked_numel;
use crate::derived::{Derived, Matrices, Normed, Source};
use crate::encoder::Encoder;
use crate::error::Error;
use crate::stages::Epilogue;
use crate::state::LateFusion;
use crate::tensors::Operand;
use torchlet_core::ScalarType;
use torchlet_graph::graph::{Node, ValueId};
use torchlet_graph::operators::{LayerNormArgs, Operator};
use torchlet_shaders::Element;

/// A layer norm over the last dim.
#[derive(Debug)]
pub(super) struct LayerNorm {
    pub(super) input: Operand,
    pub(super) weight: Option<Operand>,
    pub(super) bias: Option<Operand>,
    pub(super) epsilon: f64,
}

impl LayerNorm {
    /// Returns the norm that was fused into a GEMM with the input `normed`.
    pub(super) fn of(e: &Encoder<'_, '_>, normed: &Operand) -> Result<Option<Self>, Error> {
        match e.left(normed.value, LateFusion::LayerNorm) {
            Some((call, _)) => Self::of_call(e, &call.args).map(Some),
            None => Ok(None),
        }
    }

    /// Parses a call as a norm over the last dim.
    pub(super) fn of_call(e: &Encoder<'_, '_>, args: &[ValueId]) -> Result<Self, Error> {
        let call = LayerNormArgs::of(args)?;
        Ok(LayerNorm {
            input: e.tensor(call.input)?,
            weight: e.optional_tensor(call.weight)?,
            bias: e.optional_tensor(call.bias)?,
            epsilon: e.float(call.eps)?,
        })
    }

    /// Fuses the current call, a norm, into the readers of its result, if all of them support it.
    pub(super) fn leave(&self, e: &mut Encoder<'_, '_>, out: &Operand) -> bool {
        let value = out.value;
        let mut parameters = [&self.weight, &self.bias].into_iter().flatten();
        out.sizes == self.input.sizes
            && out.element == self.input.element
            && !e.is_dynamic(out)
            && parameters.all(|it| is_constant(e, it))
            && e.leave(LateFusion::LayerNorm, (out, 0), &[&self.input], |e| {
                let readers = e.readers(value);
                let does = |product: &Node| self.is_done_by(e, product);
                let done = readers.iter().all(|node| takes_rows(node, value, does));
                (done && !readers.is_empty()).then(Vec::new)
            })
    }

    /// Whether a GEMM that reads the rows can normalise them itself.
    fn is_done_by(&self, e: &Encoder<'_, '_>, product: &Node) -> bool {
        let (Operator::LINEAR, [_, weight, rest @ .., out]) = (product.operator, &product.args[..])
        else {
            return false;
        };
        let Ok(weight) = e.tensor(*weight) else { return false };
        let bias = match rest {
            [bias] => e.optional_tensor(*bias),
            _ => Ok(None),
        };
        let is_known = bias.is_ok_and(|bias| bias.is_none_or(|it| is_constant(e, &it)))
            && is_constant(e, &weight)
            && e.tensor(*out).is_ok_and(|out| !e.is_dynamic(&out))
            && e.scalar_type(&weight) != Some(ScalarType::BFloat16);
        let (Some((k, outer)), [n, weight_k]) = (self.input.sizes.split_last(), &weight.sizes[..])
        else {
            return false;
        };
        let Ok(m) = checked_numel(outer) else { return false };
        let matrices = Matrices { count: 1, rows: *n, columns: *k };
        let fits = matrices.pitch().checked_mul(*k).is_some_and(|numel| numel <= i32::MAX as usize);
        let factors = Factors::of(e, &self.input, &weight);
        let are_halves = [self.input.element, weight.element] == [Element::F16; 2];
        let shape = Shape { octets: k.is_multiple_of(8), ..Shape::of([1, m, *n, *k]) };
        is_known
            && fits
            && are_halves
            && k == weight_k
            && m > FEW_ROWS
            && Tiling::normed(shape, &Constraints::of(e, factors)).is_some()
    }

    /// Emits the GEMM of the normalised rows.
    pub(super) fn multiply(
        self,
        e: &mut Encoder<'_, '_>,
        it: Weighted,
        epilogue: Epilogue,
    ) -> Result<(), Error> {
        let constant = |operand: &Operand| -> Result<Source, Error> {
            let missing = || {
                Error::invalid(
                    "internal error: a layer norm was fused into a GEMM whose weights are not \
                     constant",
                )
            };
            e.constant(operand.id).ok_or_else(missing)
        };
        let optional = |operand: &Option<Operand>| operand.as_ref().map(constant).transpose();
        let normed = Normed {
            weight: constant(&it.weight)?,
            matrices: Matrices { count: 1, rows: it.n, columns: it.k },
            bias: optional(&it.bias)?,
            norm: [optional(&self.weight)?, optional(&self.bias)?],
            epsilon: (self.epsilon as f32).to_bits(),
        };
        let weights = e.derived(Derived::NormedWeights(normed))?;
        let shifts = e.derived(Derived::NormedShifts(normed))?;
        let mut product = Product::new(self.input, weights, it.out, [it.m, it.n, it.k]);
        product.norm = Some(e.derived(Derived::NormedColumns(normed))?);
        product.bias = Some((shifts, 0, [0, 1]));
        product.epilogue = Some(epilogue);
        product.bound = Some([1, it.m, it.n]);
        product.encode(e)
    }
}

/// Whether a tensor is a whole constant whose elements have their original order.
fn is_constant(e: &Encoder<'_, '_>, it: &Operand) -> bool {
    e.constant(it.id).is_some() && e.whole(it) == Some(it.id)
}

#[cfg(test)]
mod tests {
    use crate::derived::Derived;
    use crate::device::DeviceKind;
    use crate::encode::encode;
    use crate::ops::testing::tensor;
    use crate::state::{Contents, State, Storage};
    use std::collections::HashSet;
    use torchlet_core::ScalarType;
    use torchlet_graph::graph::{Graph, Node, Tensor, Value};
    use torchlet_graph::operators::Operator;

    /// A norm over rows of 128 elements, and a GEMM of it with 256 columns.
    fn graph(scalar_type: ScalarType, rows: usize) -> Graph<'static> {
        let fixed = |sizes: &[usize], is_constant| match tensor(scalar_type, sizes, is_constant) {
            Value::Tensor(tensor) => Value::Tensor(Tensor { dynamic: false, ..tensor }),
            other => other,
        };
        let values = vec![
            fixed(&[1, rows, 128], false),
            Value::IntList(vec![128]),
            fixed(&[128], true),
            fixed(&[128], true),
            Value::Double(1e-5),
            fixed(&[1, rows, 128], false),
            fixed(&[1, rows, 1], false),
            fixed(&[1, rows, 1], false),
            Value::List(vec![5, 6, 7]),
            fixed(&[256, 128], true),
            fixed(&[256], true),
            fixed(&[1, rows, 256], false),
            fixed(&[1, rows, 128], false),
        ];
        let nodes = vec![
            Node::new(Operator::NATIVE_LAYER_NORM, vec![0, 1, 2, 3, 4, 8]),
            Node::new(Operator::LINEAR, vec![5, 9, 10, 11]),
        ];
        Graph { values, nodes, inputs: vec![0], outputs: vec![11], ..Graph::default() }
    }

    /// Returns the shaders used, and whether the GEMM normalises rows.
    fn shaders(graph: &Graph<'_>) -> (Vec<&'static str>, bool) {
        let mut state = State::new(graph, HashSet::new()).unwrap();
        state.busy = DeviceKind::Cpu.busy_invocations();
        let (steps, _) = encode(graph, &mut state, true).unwrap();
        let normed = state.tensors.iter().flatten().any(|tensor| {
            matches!(
                tensor.storage,
                Storage::Constant(Contents::Derived(Derived::NormedColumns(_)))
            )
        });
        (steps.iter().map(|step| step.key.module.name).collect(), normed)
    }

    #[test]
    fn products_of_halves_normalise_their_rows() {
        assert_eq!(shaders(&graph(ScalarType::Half, 64)), (vec!["matmul_tiled"], true));
        // The norm is fused into each of several GEMMs.
        let mut several = graph(ScalarType::Half, 64);
        several.nodes.push(Node::new(Operator::LINEAR, vec![5, 9, 10, 13]));
        several.values.push(several.values[11].clone());
        several.outputs.push(13);
        assert_eq!(shaders(&several), (vec!["matmul_tiled"; 2], true));
    }

    #[test]
    fn norms_are_made_that_products_cannot() {
        let made = |graph: &Graph<'_>| {
            let (names, normed) = shaders(graph);
            assert!(!normed);
            names[0].starts_with("row")
        };
        assert!(made(&graph(ScalarType::Float, 64)));
        assert!(made(&graph(ScalarType::Half, 3)));
        let half = || graph(ScalarType::Half, 64);
        // Another call reads the normalised rows.
        let mut taken = half();
        taken.nodes.push(Node::new(Operator::ABS, vec![5, 12]));
        taken.outputs.push(12);
        assert!(made(&taken));
        let mut given = half();
        given.outputs.push(5);
        assert!(made(&given));
        // Computed weights, and a dynamic number of rows.
        for (value, change) in [
            (9, (|it: &mut Tensor<'_>| it.data = None) as fn(&mut Tensor<'_>)),
            (10, |it| it.data = None),
            (2, |it| it.data = None),
            (5, |it| it.dynamic = true),
        ] {
            let mut other = half();
            let Value::Tensor(tensor) = &mut other.values[value] else { panic!("{value}") };
            change(tensor);
            if value != 5 {
                other.inputs.push(value);
            }
            assert!(made(&other), "{value}");
        }
    }
}
