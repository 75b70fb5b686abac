//! What a delegate keeps from run to run becomes state of the method that calls it.
//!
//! Then its graph is like any other: values go in, among them what it keeps, and new values come out, that take their place. A call that
//! writes a cache where it lies becomes one that makes a cache of a cache; who runs it may still do so in place. What writes to its
//! arguments in other ways keeps its delegate.

use crate::emit::{first_bytes, tensor_info};
use crate::error::Error;
use crate::graph::{Graph, Node, Tensor, Value, ValueId};
use crate::method::{Instruction, Method, MethodTensor, MethodValue, TensorData};
use crate::operators::Operator;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::ShapeDynamism;

/// At what multiples state starts.
const ALIGN: usize = 16;
/// How many planned buffers all methods that get state may have: each has those of the methods before it, too, which are empty. A
/// thousand methods have fewer.
pub(crate) const MOST_BUFFERS: usize = 1 << 20;

/// The name of what a delegate keeps, where the exporter left it none.
pub(crate) fn name_of(graph: &Graph<'_>, delegate: usize, id: ValueId) -> String {
    let own = graph.names.get(&id).cloned();
    own.unwrap_or_else(|| format!("delegate {delegate}, value {id}"))
}

/// The values of a graph that keep their contents.
fn kept(graph: &Graph<'_>) -> BTreeSet<ValueId> {
    let values = graph.values.iter().enumerate();
    let kept = values.filter_map(|(id, value)| match value {
        Value::Tensor(Tensor { data: Some(_), changes: Some(true), .. }) => Some(id),
        _ => None,
    });
    kept.collect()
}

/// Whether a delegate with this graph keeps anything.
pub(crate) fn keeps_state(graph: &Graph<'_>) -> bool {
    !graph.updates.is_empty()
        || !kept(graph).is_empty()
        || graph.nodes.iter().any(|node| node.operator.writes_arguments())
}

/// Which value stands for another one while calls are gone through.
struct Versions {
    /// What is kept, by the values that only say that it is packed.
    packed: BTreeMap<ValueId, ValueId>,
    /// What became of what is kept.
    latest: BTreeMap<ValueId, ValueId>,
}

impl Versions {
    /// What is kept that a value stands for; or itself.
    fn root(&self, id: ValueId) -> ValueId {
        self.packed.get(&id).copied().unwrap_or(id)
    }

    fn of(&self, id: ValueId) -> ValueId {
        let root = self.root(id);
        self.latest.get(&root).copied().unwrap_or(root)
    }

    /// The same; a list of which some have another version is a list of its own.
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

/// Attention that writes its caches first, as calls for each; any other call as it is.
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

/// Makes new values of all that calls write in place, and an update of each value that is kept.
fn without_writes(graph: &mut Graph<'_>, kept: &BTreeSet<ValueId>) -> Result<(), Error> {
    let mut versions = Versions { packed: BTreeMap::new(), latest: BTreeMap::new() };
    // What calls return that write: nobody reads it.
    let mut returned = BTreeSet::new();
    let mut nodes = Vec::with_capacity(graph.nodes.len());
    let calls = core::mem::take(&mut graph.nodes);
    let calls: Vec<Node> = calls.into_iter().flat_map(|node| taken_apart(graph, node)).collect();
    for mut node in calls {
        let Some((out, inputs)) = node.args.split_last_mut() else { continue };
        // There is nothing to be packed where shaders do not ask for it.
        let packed = inputs.first().filter(|_| node.operator == Operator::ET_VK_PREPACK);
        if let Some(packed) = packed.filter(|id| kept.contains(id)) {
            versions.packed.insert(*out, *packed);
            continue;
        }
        let cache = inputs.get(1).map_or(usize::MAX, |cache| versions.root(*cache));
        for id in inputs.iter_mut() {
            *id = versions.renamed(graph, *id);
            if graph.items(id).iter().any(|id| returned.contains(id)) {
                return Err(Error::unsupported("what a call returns that writes is read"));
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
            (operator, _) if operator.writes_arguments() => {
                let name = operator.name();
                return Err(Error::Unsupported(format!("{name} writes to its arguments")));
            }
            _ => {}
        }
        nodes.push(node);
    }
    graph.nodes = nodes;
    for id in &mut graph.outputs {
        if returned.contains(id) {
            return Err(Error::unsupported("what a call returns that writes is an output"));
        }
        *id = versions.of(*id);
    }
    for (new, old) in &mut graph.updates {
        (*new, *old) = (versions.of(*new), versions.root(*old));
    }
    graph.updates.extend(versions.latest.iter().map(|(old, new)| (*new, *old)));
    let updated: BTreeSet<ValueId> = graph.updates.iter().map(|(_, old)| *old).collect();
    let tensor = |id: ValueId| match graph.values.get(id) {
        Some(Value::Tensor(Tensor { scalar_type, sizes, .. })) => Some((scalar_type, sizes)),
        _ => None,
    };
    let are_alike = graph.updates.iter().all(|(new, old)| tensor(*new) == tensor(*old));
    if updated != *kept || updated.len() != graph.updates.len() || !are_alike {
        return Err(Error::unsupported("it does not show which new value is whose"));
    }
    Ok(())
}

/// Makes what a delegate keeps state of the method: it gets a place in a planned buffer, is an input of the graph behind the others, and
/// an argument of the delegate's call.
///
/// # Errors
/// The graph does not say what becomes of all that is kept, or there is no buffer for it. The method is as it was.
pub(crate) fn join<'p>(
    method: &mut Method<'p>,
    delegate: usize,
    mut graph: Graph<'p>,
    buffer: Option<usize>,
) -> Result<Graph<'p>, Error> {
    let buffer =
        buffer.ok_or_else(|| Error::unsupported("state of so many methods in a buffer each"))?;
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
        let place = Some((buffer, end));
        end = end
            .checked_add(info.nbytes())
            .and_then(|end| end.checked_next_multiple_of(ALIGN))
            .ok_or_else(|| Error::unsupported("more state than a program can say"))?;
        let dynamism = ShapeDynamism::Static;
        graph.inputs.push(id);
        state.push(MethodTensor { info, dynamism, place, data, name: Some(name) });
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
