//! Verifier of the invariants that hold between passes.
//!
//! - Every value that a call, list, input or output names exists. Lists are not nested.
//! - The total number of list members that calls refer to is at most [`MEMBERS`].
//! - Each value is produced once, before its uses, so there are no cycles.
//! - No call produces inputs, constants, or state that updates overwrite.
//! - The size of a tensor in bytes does not overflow, in any order of dims and even without its
//!   zero-sized dims. The data of constants matches their sizes.
//! - With fixed shapes, output shapes match the operator, for operators that passes match or
//!   produce.

use super::rewrite::has_fixed_shapes;
use super::uses::inputs;
use crate::error::Error;
use crate::graph::{Graph, Node, Value, ValueId};
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

/// Verifies a graph.
///
/// # Errors
/// An invariant does not hold; the message names the invariant and the value or call.
pub fn verify(graph: &Graph<'_>) -> Result<(), Error> {
    for (id, value) in graph.values.iter().enumerate() {
        self::value(graph, value).map_err(|what| invalid(id, what))?;
    }
    let edges = graph.inputs.iter().chain(&graph.outputs);
    let updates = graph.updates.iter().flat_map(|(new, old)| [new, old]);
    for id in edges.chain(updates).chain(graph.nodes.iter().flat_map(|node| &node.args)) {
        graph.values.get(*id).ok_or_else(|| invalid(*id, "does not exist"))?;
    }
    members(graph)?;
    order(graph)?;
    if has_fixed_shapes(graph) {
        for node in &graph.nodes {
            super::shapes::check(graph, node).ok_or_else(|| {
                Error::Invalid(format!(
                    "call {}, {:?}: the shape of the output does not match the inputs",
                    node.id, node.operator
                ))
            })?;
        }
    }
    Ok(())
}

/// Checks that the list members of all calls can be visited in reasonable time.
///
/// # Errors
/// Calls refer to more than [`MEMBERS`] list members.
pub(crate) fn members(graph: &Graph<'_>) -> Result<(), Error> {
    let lengths = graph.nodes.iter().flat_map(|node| &node.args).map(|id| length(graph, *id));
    if lengths.fold(0, usize::saturating_add) > MEMBERS {
        return Err(Error::Invalid(format!(
            "the calls of a graph refer to more than {MEMBERS} list members"
        )));
    }
    Ok(())
}

/// Maximum number of list members, counted for each call that names the list. (Small files can have
/// many calls that name one long list.)
const MEMBERS: usize = 1 << 24;

fn length(graph: &Graph<'_>, id: ValueId) -> usize {
    match graph.values.get(id) {
        Some(Value::List(items)) => items.len(),
        _ => 0,
    }
}

fn invalid(id: ValueId, what: &str) -> Error {
    Error::Invalid(format!("value {id} of a graph {what}"))
}

fn value(graph: &Graph<'_>, value: &Value<'_>) -> Result<(), &'static str> {
    match value {
        Value::List(items) => items.iter().try_for_each(|item| match graph.values.get(*item) {
            None => Err("is a list with an item that does not exist"),
            Some(Value::List(_)) => Err("is a list of lists"),
            Some(_) => Ok(()),
        }),
        Value::Tensor(tensor) => {
            let element = tensor.scalar_type.size().max(1);
            let mut whole = tensor.sizes.iter().copied().map(|size| size.max(1));
            let bytes = whole
                .try_fold(element, usize::checked_mul)
                .ok_or("is a tensor that exceeds the address space")?;
            let bytes = if tensor.sizes.contains(&0) { 0 } else { bytes };
            match &tensor.data {
                Some(data) if data.len() != bytes => {
                    Err("is a constant whose data does not match its dtype and shape")
                }
                _ => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

/// Progress of a value while the calls are visited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// No call produces it.
    Given,
    /// A later call produces it.
    Awaited,
    /// A previous call produced it.
    Made,
}

fn order(graph: &Graph<'_>) -> Result<(), Error> {
    let mut stages = vec![Stage::Given; graph.values.len()];
    for node in &graph.nodes {
        for id in outputs(graph, node) {
            let Some(stage) = stages.get_mut(id) else { continue };
            if *stage != Stage::Given {
                return Err(invalid(id, "is produced by two calls"));
            }
            *stage = Stage::Awaited;
        }
    }
    let overwritten = graph.updates.iter().map(|(_, old)| old);
    for id in graph.inputs.iter().chain(overwritten) {
        if stages.get(*id) != Some(&Stage::Given) {
            return Err(invalid(*id, "is an input or state, but produced by a call"));
        }
    }
    for (id, value) in graph.values.iter().enumerate() {
        let constant = matches!(value, Value::Tensor(tensor) if tensor.data.is_some());
        if constant && stages.get(id) != Some(&Stage::Given) {
            return Err(invalid(id, "is constant, but produced by a call"));
        }
    }
    for node in &graph.nodes {
        for id in inputs(node) {
            for &id in graph.items(id) {
                if stages.get(id) == Some(&Stage::Awaited) {
                    return Err(invalid(id, "is used before the call that produces it"));
                }
            }
        }
        for id in outputs(graph, node) {
            if let Some(stage) = stages.get_mut(id) {
                *stage = Stage::Made;
            }
        }
    }
    Ok(())
}

/// The values that a call produces.
fn outputs(graph: &Graph<'_>, node: &Node) -> Vec<ValueId> {
    let made =
        |id: &ValueId| matches!(graph.values.get(*id), Some(Value::Tensor(_) | Value::SymInt(_)));
    let mut outputs = node.args.last().map_or(Vec::new(), |out| graph.items(out).to_vec());
    outputs.retain(made);
    outputs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::text;
    use alloc::string::ToString;

    const TEXT: &str = "in x f32[2,4]
        const w f32[3,4] = 0.5
        var state f32[2,3]
        a f32[2,3] = aten.linear.default(x, w, none)
        b f32[3,2] = aten.permute_copy.default(a, [1, 0])
        c f32[2,3] = aten.permute_copy.default(b, [1, 0])
        update a state
        out c";

    fn refused(change: impl FnOnce(&mut Graph<'_>)) -> alloc::string::String {
        let mut graph = text::parse(TEXT);
        change(&mut graph);
        verify(&graph).unwrap_err().to_string()
    }

    #[test]
    fn a_graph_that_is_right_passes() {
        verify(&text::parse(TEXT)).unwrap();
    }

    #[test]
    fn what_is_wrong_is_named() {
        let tensor = |graph: &mut Graph<'_>, at: usize, sizes: &[usize]| {
            let Value::Tensor(tensor) = &mut graph.values[at] else { unreachable!() };
            tensor.sizes = sizes.to_vec();
        };
        assert!(refused(|graph| graph.outputs.push(99)).contains("value 99"));
        assert!(refused(|graph| graph.nodes[0].args[0] = 99).contains("does not exist"));
        assert!(
            refused(|graph| graph.values.push(Value::List(vec![99])))
                .contains("an item that does not exist")
        );
        assert!(
            refused(|graph| graph.nodes.swap(0, 1))
                .contains("used before the call that produces it")
        );
        let twice = refused(|graph| *graph.nodes[1].args.last_mut().unwrap() = 3);
        assert!(twice.contains("produced by two calls"));
        assert!(
            refused(|graph| graph.inputs.push(3))
                .contains("input or state, but produced by a call")
        );
        assert!(
            refused(|graph| graph.updates.push((0, 3)))
                .contains("input or state, but produced by a call")
        );
        let constant = refused(|graph| *graph.nodes[0].args.last_mut().unwrap() = 1);
        assert!(constant.contains("is constant, but produced by a call"));
        assert!(
            refused(|graph| tensor(graph, 1, &[3, 5]))
                .contains("data does not match its dtype and shape")
        );
        assert!(
            refused(|graph| tensor(graph, 0, &[usize::MAX, 2]))
                .contains("exceeds the address space")
        );
        assert!(
            refused(|graph| tensor(graph, 0, &[0, usize::MAX, 2]))
                .contains("exceeds the address space")
        );
        assert!(
            refused(|graph| tensor(graph, 3, &[2, 4]))
                .contains("shape of the output does not match")
        );
    }
}
