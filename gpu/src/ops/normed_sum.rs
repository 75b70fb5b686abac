//! Norms with a fused sum: `norm(x + added)`, where the sum may be a second output.
//!
//! [`crate::passes`] creates calls of `torchlet.normed_sum` where [`terms`] allows a single
//! dispatch. For other shapes at run time, the sum is dispatched separately.

use super::elementwise::{apply_binary, broadcast_sizes};
use super::normalize::layer_norm;
use super::normed::Norm;
use super::row_norms::{LONGEST_ROW, Sum};
use super::{Entry, operator};
use crate::encoder::Encoder;
use crate::error::Error;
use crate::tensors::Operand;
use torchlet_graph::graph::ValueId;
use torchlet_graph::operators::{AddArgs, LayerNormArgs, Operator};
use torchlet_shaders::functions::binary;

pub(super) const OPERATORS: &[Entry] = &[operator(Operator::NORMED_SUM, encode)];

/// Returns the operands of a sum of shape `sizes`, whose last `normalized` dims are
/// normalised. The first operand has that shape; the second may broadcast over rows. Returns `None`
/// if a single dispatch does not suffice: the shader needs whole groups of four elements of one
/// type.
pub(crate) fn terms(
    a: &Operand,
    b: &Operand,
    sizes: &[usize],
    normalized: usize,
) -> Option<[Operand; 2]> {
    let row = sizes.get(sizes.len().checked_sub(normalized)?..)?;
    let count: usize = row.iter().product();
    if count == 0 || !count.is_multiple_of(4) || count > LONGEST_ROW {
        return None;
    }
    // Leading dims of size one are irrelevant.
    let own = |operand: &Operand| -> Vec<usize> {
        operand.sizes.iter().copied().skip_while(|size| *size == 1).collect()
    };
    let is_whole = |operand: &Operand| operand.numel() == sizes.iter().product::<usize>();
    let comes_again =
        |operand: &Operand| sizes.ends_with(&own(operand)) && operand.numel().is_multiple_of(count);
    let fits = |[x, added]: [&Operand; 2]| {
        let one_type = x.element == added.element && x.element.is_floating();
        (one_type && is_whole(x) && comes_again(x) && comes_again(added))
            .then(|| [x.clone(), added.clone()])
    };
    fits([a, b]).or_else(|| fits([b, a]))
}

fn encode(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let [add, norm] = e.parts() else {
        return Err(Error::invalid("internal error: expected an addition and a norm"));
    };
    let call = AddArgs::of(add)?;
    let (a, b) = (e.tensor(call.input)?, e.tensor(call.other)?);
    let sum = e.out(&add.args)?;
    let sum = e.resize(sum.id, &broadcast_sizes(&a.sizes, &b.sizes)?)?;
    let is_kept = e.outs(args)?.contains(&sum.value);
    let normalized = match norm.operator {
        Operator::NATIVE_LAYER_NORM => e.ints(LayerNormArgs::of(norm)?.normalized_shape)?.len(),
        Operator::ET_VK_RMS_NORM => 1,
        other => {
            return Err(Error::Invalid(format!(
                "internal error: {other:?} cannot be fused with a sum"
            )));
        }
    };
    let one_type = |terms: &[Operand; 2]| terms.iter().all(|term| term.element == sum.element);
    let terms = terms(&a, &b, &sum.sizes, normalized).filter(one_type);
    let whole = match terms {
        Some(terms) => {
            // Smaller shapes may need it.
            if !is_kept && [&a, &b].into_iter().any(|term| e.is_dynamic(term)) {
                e.reserve(&sum);
            }
            Some(Sum { terms, is_kept })
        }
        None => {
            apply_binary(e, binary::ADD, [&a, &b], sum.id, 1.0)?;
            None
        }
    };
    if norm.operator == Operator::NATIVE_LAYER_NORM {
        return layer_norm(e, &norm.args, whole.as_ref());
    }
    let norm_of = Norm::of_call(e, &norm.args)?;
    let out = e.out(&norm.args)?;
    let out = e.resize(out.id, &norm_of.input.sizes)?;
    norm_of.emit(e, &out, whole.as_ref())
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
    use torchlet_graph::graph::{Graph, Node, Value};
    use torchlet_graph::operators::Operator;

    /// For all shapes, the planned memory suffices, whether the sum is dispatched separately or
    /// fused.
    #[test]
    fn sums_take_a_dispatch_where_rows_lie_otherwise() {
        let float = ScalarType::Float;
        let stream = || tensor(float, &[4, 6, 8], false);
        let values = vec![
            stream(),
            stream(),
            Value::Int(1),
            stream(),
            tensor(float, &[8], true),
            Value::Double(1e-5),
            stream(),
        ];
        let nodes = vec![
            Node::new(Operator::ADD_TENSOR, vec![0, 1, 2, 3]),
            Node::new(Operator::ET_VK_RMS_NORM, vec![3, 4, 5, 6]),
        ];
        for outputs in [vec![6], vec![6, 3]] {
            let (values, nodes) = (values.clone(), nodes.clone());
            let is_kept = outputs.len() == 2;
            let mut graph =
                Graph { values, nodes, inputs: vec![0, 1], outputs, ..Graph::default() };
            passes::run(&mut graph);
            let mut state = State::new(&graph, HashSet::new()).unwrap();
            let (steps, _) = encode(&graph, &mut state, true).unwrap();
            let plan = plan_memory(&graph, &state, &steps, 256, u64::MAX, |_| Kind::Own).unwrap();
            assert_eq!(steps.len(), 1);
            let sum = steps[0].accesses[5].tensor;
            assert_eq!(sum, if is_kept { 3 } else { 6 });
            let shapes: [([usize; 3], [usize; 3], bool); 4] = [
                ([4, 6, 8], [1, 6, 8], true),
                ([1, 1, 8], [2, 5, 8], true),
                ([3, 2, 8], [3, 1, 8], false),
                ([3, 2, 8], [3, 2, 1], false),
            ];
            for (a, b, is_one) in shapes {
                state.tensors[0].as_mut().unwrap().sizes = a.to_vec();
                state.tensors[1].as_mut().unwrap().sizes = b.to_vec();
                let (steps, _) = encode(&graph, &mut state, false).unwrap();
                let modules: Vec<_> = steps.iter().map(|step| step.key.module.name).collect();
                let expected: &[&str] = if is_one { &["row"] } else { &["binary", "row"] };
                assert_eq!(modules, expected, "{a:?}, {b:?}");
                for access in steps.iter().flat_map(|step| &step.accesses) {
                    assert!(plan.places.contains_key(&state.root(access.tensor)), "{a:?}, {b:?}");
                }
                if is_one {
                    let added: usize = a.iter().product::<usize>().min(b.iter().product());
                    let rows = steps[0].parameters.last_chunk::<4>().unwrap();
                    assert_eq!(u32::from_le_bytes(*rows) as usize, added / 8);
                }
            }
        }
    }
}
