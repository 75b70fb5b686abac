//! Removes conversions from 16-bit floats to `f32` and back around calls that compute in `f32`
//! anyway.
//!
//! Exporters write attention, activations and reflection padding of 16-bit graphs with such
//! conversions. Views, permutations and index selections may stand between a conversion and the
//! call.
//!
//! Needs: a graph in which each value is produced once, before its uses. Keeps: calls whose `f32`
//! output has other uses, and calls with an input that was not converted from the 16-bit type.
//! Rounding: unchanged, as these operators compute in `f32` for all types and round once, like the
//! conversion.

use super::rewrite::{Rewriter, each_call};
use super::uses::inputs;
use super::views::{VIEWS, permutation, permuted, reshaped, view_into, viewed_as};
use crate::graph::{Graph, Node, ValueId};
use crate::operators::Operator;
use torchlet_core::ScalarType;

/// Removes conversions to `f32` and back. Returns the number of changed calls.
pub fn run(graph: &mut Graph<'_>) -> usize {
    each_call(graph, |rewriter, node| narrow(rewriter, node).is_some())
}

fn narrow(rewriter: &mut Rewriter<'_, '_>, node: &Node) -> Option<()> {
    let (out, wide) = (*node.args.last()?, conversion(rewriter, node)?);
    let scalar_type = rewriter.scalar_type(out)?;
    let is_narrow = matches!(scalar_type, ScalarType::Half | ScalarType::BFloat16);
    if !is_narrow || rewriter.scalar_type(wide) != Some(ScalarType::Float) {
        return None;
    }
    let mut result = wide;
    for _ in 0..VIEWS {
        if rewriter.uses(result) != 1 {
            return None;
        }
        match rewriter.producer(result).and_then(|node| reshaped(rewriter, node)) {
            Some(source) => result = source,
            None => break,
        }
    }
    let call = rewriter.producer(result)?;
    let (operator, mut args) = (call.operator, inputs(call).to_vec());
    let narrow = usize::from(operator.traits().narrow_inputs);
    if narrow == 0 {
        return None;
    }
    for arg in args.get_mut(..narrow)? {
        *arg = source(rewriter, *arg, scalar_type, 4)?;
    }
    if result == wide {
        rewriter.call(operator, &args, out);
        return Some(());
    }
    let sizes = rewriter.sizes(result)?.to_vec();
    let result = rewriter.call_new(operator, &args, scalar_type, sizes);
    view_into(rewriter, result, out)
}

/// The input of a conversion.
fn conversion(rewriter: &Rewriter<'_, '_>, node: &Node) -> Option<ValueId> {
    if !matches!(node.operator, Operator::TO_COPY | Operator::DIM_ORDER_OPS_TO_DIM_ORDER_COPY) {
        return None;
    }
    let input = *inputs(node).first()?;
    rewriter.is_lasting(input).then_some(input)
}

/// The 16-bit source of a value, with the views, permutations and selections after its conversion
/// repeated.
fn source(
    rewriter: &mut Rewriter<'_, '_>,
    id: ValueId,
    scalar_type: ScalarType,
    depth: usize,
) -> Option<ValueId> {
    let producer = rewriter.producer(id)?;
    if let Some(input) = conversion(rewriter, producer) {
        return (rewriter.scalar_type(input) == Some(scalar_type)).then_some(input);
    }
    let depth = depth.checked_sub(1)?;
    if let Some((input, order)) = permutation(rewriter, producer) {
        let input = source(rewriter, input, scalar_type, depth)?;
        return permuted(rewriter, input, &order);
    }
    let sizes = rewriter.sizes(id)?.to_vec();
    if matches!(producer.operator, Operator::INDEX_SELECT | Operator::INDEX_TENSOR)
        && rewriter.uses(id) == 1
        && rewriter.has_fixed_shapes()
    {
        let (operator, mut args) = (producer.operator, inputs(producer).to_vec());
        let slot = args.first_mut()?;
        *slot = source(rewriter, *slot, scalar_type, depth)?;
        return Some(rewriter.call_new(operator, &args, scalar_type, sizes));
    }
    let input = reshaped(rewriter, producer)?;
    let input = source(rewriter, input, scalar_type, depth)?;
    viewed_as(rewriter, input, &sizes)
}

#[cfg(test)]
mod tests {
    use crate::graph::Graph;
    use crate::passes::{redundant, text};
    use alloc::string::String;
    use alloc::vec::Vec;

    fn narrowed(text: &str) -> Vec<String> {
        let pass = |graph: &mut Graph<'_>| super::run(graph) + redundant::run(graph);
        text::calls(&text::after(text, pass))
    }

    #[test]
    fn chosen_elements_are_chosen_as_they_were() {
        let text = "in x f16[1,2,4,4]
             in i i64[6]
             w f32[1,2,4,4] = aten._to_copy.default(x)
             a f32[1,2,6,4] = aten.index_select.default(w, 2, i)
             b f32[1,2,6,6] = aten.index_select.default(a, 3, i)
             n f16[1,2,6,6] = aten._to_copy.default(b)
             out n";
        let calls = narrowed(text);
        let names: Vec<&str> = calls.iter().map(|call| call.split('(').next().unwrap()).collect();
        assert_eq!(names.len(), 2, "{calls:#?}");
        assert!(names.iter().all(|name| name.contains("aten.index_select")), "{calls:#?}");
        // A selection whose `f32` result has other uses stays.
        assert_eq!(narrowed(&text.replace("out n", "out n b")).len(), 4);
    }

    const ATTENTION: &str = "in q f16[2,4,16,8]
         in k f16[2,16,4,8]
         in v f16[2,4,16,8]
         in m f32[16,16]
         qf f32[2,4,16,8] = aten._to_copy.default(q)
         kf f32[2,16,4,8] = aten._to_copy.default(k)
         kp f32[2,4,16,8] = aten.permute_copy.default(kf, [0, 2, 1, 3])
         vf f32[2,4,16,8] = aten._to_copy.default(v)
         a f32[2,4,16,8] = et_vk.sdpa.default(qf, kp, vf, m, 0.5)
         w f32[8,16,8] = aten.view_copy.default(a, [8, 16, 8])
         o f16[8,16,8] = aten._to_copy.default(w)
         out o";

    #[test]
    fn attention_of_16_bits() {
        let calls = narrowed(ATTENTION);
        assert_eq!(calls.len(), 3, "{calls:#?}");
        assert!(calls[0].ends_with("aten.permute_copy.default(%1, [0, 2, 1, 3])"));
        assert!(
            calls[1].contains("et_vk.sdpa.default(%0, ") && calls[1].ends_with(", %2, %3, 0.5)")
        );
        assert!(calls[2].starts_with("%10 = aten.view_copy.default("));
    }

    #[test]
    fn what_is_taken_in_32_bits_stays() {
        for other in [
            ATTENTION.replace("out o", "out o w"),
            ATTENTION.replace("in k f16", "in k f64"),
            ATTENTION.replace("in v f16", "in v bf16"),
        ] {
            assert!(narrowed(&other).len() > 3);
        }
    }

    #[test]
    fn activations_of_16_bits() {
        let calls = narrowed(
            "in x bf16[4]
             f f32[4] = aten._to_copy.default(x)
             g f32[4] = aten.gelu.default(f, \"none\")
             o bf16[4] = aten._to_copy.default(g)
             out o",
        );
        assert_eq!(calls, ["%3 = aten.gelu.default(%0, \"none\")"]);
    }
}
