//! Moves the persistent state of delegates into the methods that call them.
//!
//! The state becomes inputs of the delegate's graph, and updates return its new values. A call that
//! writes a cache in place becomes a functional call that returns a new cache; a backend may still
//! run it in place. Delegates with any other in-place write are kept as delegates.

use crate::emit::{first_bytes, tensor_info};
use crate::error::Error;
use crate::graph::{Graph, Node, Tensor, Value, ValueId};
use crate::method::{Instruction, Method, MethodTensor, MethodValue, TensorData};
use crate::operators::Operator;
use crate::passes::verify::members;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::ShapeDynamism;

/// Alignment of state in bytes.
const ALIGN: usize = 16;

/// Returns the name of a state tensor, or a made-up one if the exporter left it unnamed.
pub(crate) fn name_of(graph: &Graph<'_>, delegate: usize, id: ValueId) -> String {
    let own = graph.names.get(&id).cloned();
    own.unwrap_or_else(|| format!("delegate {delegate}, value {id}"))
}

/// Returns the state tensors of a graph.
fn kept(graph: &Graph<'_>) -> BTreeSet<ValueId> {
    let values = graph.values.iter().enumerate();
    let kept = values.filter_map(|(id, value)| match value {
        Value::Tensor(Tensor { data: Some(_), changes: Some(true), .. }) => Some(id),
        _ => None,
    });
    kept.collect()
}

/// Whether a delegate with this graph has state.
pub(crate) fn keeps_state(graph: &Graph<'_>) -> bool {
    !graph.updates.is_empty()
        || !kept(graph).is_empty()
        || graph.nodes.iter().any(|node| node.operator.traits().writes_arguments())
}

/// Current version of each state tensor while the calls are rewritten.
struct Versions {
    /// Maps prepacked copies to the state tensors that they copy.
    packed: BTreeMap<ValueId, ValueId>,
    /// Latest value of each state tensor.
    latest: BTreeMap<ValueId, ValueId>,
}

impl Versions {
    /// Returns the state tensor that a value is a prepacked copy of, or the value itself.
    fn root(&self, id: ValueId) -> ValueId {
        self.packed.get(&id).copied().unwrap_or(id)
    }

    fn of(&self, id: ValueId) -> ValueId {
        let root = self.root(id);
        self.latest.get(&root).copied().unwrap_or(root)
    }

    /// Replaces a value by its current version. A list with replaced items becomes a new list.
    fn renamed(&self, graph: &mut Graph<'_>, id: ValueId) -> ValueId {
        match graph.values.get(id) {
            Some(Value::List(items)) if items.iter().any(|id| self.of(*id) != *id) => {
                let items = items.iter().map(|id| self.of(*id)).collect();
                graph.values.push(Value::List(items));
                graph.values.len() - 1
            }
            _ => self.of(id),
        }
    }
}

/// Splits attention with a KV cache into a call for each cache update and the attention; returns
/// any other call unchanged.
fn taken_apart(graph: &mut Graph<'_>, node: Node) -> Vec<Node> {
    let call =
        |operator, args: &[ValueId]| Node { id: node.id, ..Node::new(operator, args.to_vec()) };
    let (
        Operator::SDPA_WITH_KV_CACHE,
        [q, k, v, keys, values, start, _, mask, dropout, causal, scale, out],
    ) = (node.operator, &node.args[..])
    else {
        return vec![node];
    };
    graph.values.extend([Value::None, Value::None]);
    let [first, second] = [graph.values.len() - 2, graph.values.len() - 1];
    vec![
        call(Operator::UPDATE_CACHE, &[*k, *keys, *start, first]),
        call(Operator::UPDATE_CACHE, &[*v, *values, *start, second]),
        call(
            Operator::LLAMA_CUSTOM_SDPA,
            &[*q, *keys, *values, *start, *mask, *dropout, *causal, *scale, *out],
        ),
    ]
}

/// Turns in-place writes into new values, and adds an update for each state tensor.
fn without_writes(graph: &mut Graph<'_>, kept: &BTreeSet<ValueId>) -> Result<(), Error> {
    let mut versions = Versions { packed: BTreeMap::new(), latest: BTreeMap::new() };
    // Return values of in-place calls, which nothing may read.
    let mut returned = BTreeSet::new();
    let mut nodes = Vec::with_capacity(graph.nodes.len());
    let calls = core::mem::take(&mut graph.nodes);
    let calls: Vec<Node> = calls.into_iter().flat_map(|node| taken_apart(graph, node)).collect();
    for mut node in calls {
        let Some((out, inputs)) = node.args.split_last_mut() else { continue };
        // Prepacking only matters to shaders, so it is skipped for state.
        let packed = inputs.first().filter(|_| node.operator == Operator::ET_VK_PREPACK);
        if let Some(packed) = packed.filter(|id| kept.contains(id)) {
            versions.packed.insert(*out, *packed);
            continue;
        }
        let cache = inputs.get(1).map_or(usize::MAX, |cache| versions.root(*cache));
        for id in inputs.iter_mut() {
            *id = versions.renamed(graph, *id);
            if graph.items(id).iter().any(|id| returned.contains(id)) {
                return Err(Error::unsupported(
                    "a call that reads the return value of an in-place cache update",
                ));
            }
        }
        match (node.operator, graph.values.get(cache)) {
            (
                Operator::UPDATE_CACHE | Operator::LLAMA_UPDATE_CACHE,
                Some(Value::Tensor(tensor)),
            ) if kept.contains(&cache) => {
                let new = Tensor { data: None, changes: None, ..tensor.clone() };
                graph.values.push(Value::Tensor(new));
                returned.insert(*out);
                *out = graph.values.len() - 1;
                versions.latest.insert(cache, *out);
            }
            (operator, _) if operator.traits().writes_arguments() => {
                let name = operator.name();
                return Err(Error::Unsupported(format!("the in-place operator {name} on state")));
            }
            _ => {}
        }
        nodes.push(node);
    }
    graph.nodes = nodes;
    for id in &mut graph.outputs {
        if returned.contains(id) {
            return Err(Error::unsupported(
                "a delegate that returns the return value of an in-place cache update",
            ));
        }
        *id = versions.of(*id);
    }
    for (new, old) in &mut graph.updates {
        (*new, *old) = (versions.of(*new), versions.root(*old));
    }
    graph.updates.extend(versions.latest.iter().map(|(old, new)| (*new, *old)));
    let updated: BTreeSet<ValueId> = graph.updates.iter().map(|(_, old)| *old).collect();
    let are_alike = graph.updates.iter().all(|(new, old)| graph.are_alike(*new, *old));
    if updated != *kept || updated.len() != graph.updates.len() || !are_alike {
        return Err(Error::unsupported("state with missing or ambiguous updates"));
    }
    Ok(())
}

/// Moves the state of a delegate into the method. Each state tensor is placed in a planned buffer,
/// becomes an input of the graph after the existing ones, and an argument of the delegate call.
///
/// # Errors
/// The graph does not determine the new values of all state, or no buffer is left. The method is
/// unchanged.
pub(crate) fn join<'p>(
    method: &mut Method<'p>,
    delegate: usize,
    mut graph: Graph<'p>,
    buffer: Option<usize>,
) -> Result<Graph<'p>, Error> {
    let buffer = buffer.ok_or_else(|| {
        Error::unsupported("state in a program whose methods have too many planned buffers")
    })?;
    members(&graph)?;
    let kept = kept(&graph);
    without_writes(&mut graph, &kept)?;
    let mut end = method.planned.get(buffer).copied().unwrap_or(0);
    let mut state = Vec::with_capacity(kept.len());
    let inputs = graph.inputs.len();
    for id in kept {
        let name = name_of(&graph, delegate, id);
        let Some(Value::Tensor(tensor)) = graph.values.get_mut(id) else { continue };
        let info = tensor_info(tensor)?;
        let data = match tensor.data.take() {
            Some(bytes) if !bytes.is_empty() => TensorData::Inside(first_bytes(&bytes, &info)?),
            _ => TensorData::None,
        };
        (tensor.changes, tensor.dynamic) = (None, false);
        let location = Some((buffer, end));
        end = end
            .checked_add(info.nbytes())
            .and_then(|end| end.checked_next_multiple_of(ALIGN))
            .ok_or_else(|| Error::unsupported("state that exceeds the address space"))?;
        let dynamism = ShapeDynamism::Static;
        graph.inputs.push(id);
        state.push(MethodTensor { info, dynamism, location, data, name: Some(name) });
    }
    method.planned.resize(method.planned.len().max(buffer + 1), 0);
    if let Some(size) = method.planned.get_mut(buffer) {
        *size = end;
    }
    let state = state.into_iter().map(|tensor| method.add(MethodValue::Tensor(tensor)));
    let state: Vec<usize> = state.collect();
    for instruction in &mut method.instructions {
        if let Instruction::Delegate { delegate: called, args } = instruction
            && *called == delegate
        {
            let at = inputs.min(args.len());
            args.splice(at..at, state.iter().copied());
        }
    }
    Ok(graph)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::text;
    use alloc::borrow::Cow;

    /// Parses a graph and makes the values with these ids state.
    fn graph(text: &str, kept: &[ValueId]) -> Graph<'static> {
        let mut graph = text::parse(text);
        for id in kept {
            let Value::Tensor(tensor) = &mut graph.values[*id] else { panic!() };
            tensor.data = Some(Cow::Borrowed(&[]));
            tensor.changes = Some(true);
        }
        graph
    }

    const CACHE: &str = "var cache f32[1,8,1,4]
        in x f32[1,1,1,4]
        before f32[1,8,1,4] = aten.abs.default(cache)
        nothing f32[1] = llama.update_cache.default(x, cache, 3)
        after f32[1,8,1,4] = aten.neg.default(cache)
        out before after";

    #[test]
    fn a_cache_that_is_written_is_a_new_one_from_then_on() {
        let (mut method, graph) = (Method::default(), graph(CACHE, &[0]));
        method.instructions = vec![Instruction::Delegate { delegate: 0, args: vec![7, 8, 9] }];
        let graph = join(&mut method, 0, graph, Some(2)).unwrap();
        let new = graph.nodes[1].args[3];
        let reads: Vec<ValueId> = graph.nodes.iter().map(|node| node.args[0]).collect();
        assert_eq!(reads, [0, 1, new]);
        assert_eq!((&graph.updates[..], &graph.inputs[..]), (&[(new, 0)][..], &[1, 0][..]));
        // The state now belongs to the method and follows the inputs of the call.
        let Instruction::Delegate { args, .. } = &method.instructions[0] else { panic!() };
        assert_eq!((args[0], &args[2..]), (7, &[8, 9][..]));
        let state = method.tensor(args[1]).unwrap();
        assert_eq!(
            (state.location, state.name.as_deref()),
            (Some((2, 0)), Some("delegate 0, value 0"))
        );
        assert_eq!(method.planned, [0, 0, 128]);
    }

    #[test]
    fn what_is_not_clear_is_refused() {
        let refused = |text: &str, kept: &[ValueId]| {
            let mut method = Method::default();
            let refused = join(&mut method, 0, graph(text, kept), Some(0)).is_err();
            assert_eq!(refused, method == Method::default());
            refused
        };
        assert!(!refused(CACHE, &[0]));
        // The cache is not state, or a state tensor has no update.
        assert!(refused(CACHE, &[]));
        assert!(refused(&CACHE.replace("out before", "var other f32[2]\n out before"), &[0, 5]));
        // The return value of the in-place call is read, or the cache is not a state tensor.
        assert!(refused(&CACHE.replace("out before after", "out before nothing"), &[0]));
        let view = CACHE.replace("update_cache.default(x, cache", "update_cache.default(x, before");
        assert!(refused(&view, &[0]));
        assert!(join(&mut Method::default(), 0, graph(CACHE, &[0]), None).is_err());
    }
}
