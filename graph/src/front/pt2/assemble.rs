//! A method with kernel instructions and planned memory, made from a graph.

use super::signature::{State, Translated};
use crate::budget::Computed;
use crate::emit::Emitter;
use crate::error::Error;
use crate::graph::{Graph, Node, Value, ValueId};
use crate::lower::portable;
use crate::method::{Instruction, Method, MethodTensor, MethodValue, TensorData};
use crate::operators::Operator;
use crate::passes::dead;
use alloc::borrow::ToOwned;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::{ShapeDynamism, TensorInfo};

/// Number of the planned buffer that holds the state.
const STATE_BUFFER: usize = 1;
/// Alignment of state, in bytes.
const ALIGN: usize = 16;
/// Maximum number of times that rules apply to the results of rules.
const ROUNDS: usize = 4;

/// Makes a method of a converted program.
///
/// # Errors
/// Calls have no kernel; the message lists all of them.
pub(super) fn method<'p>(
    translated: Translated<'p>,
    name: &str,
    computed: &Computed,
) -> Result<Method<'p>, Error> {
    let Translated { mut graph, state, varying, flow } = translated;
    // Passes see values that events write as inputs, and values that events read as outputs.
    let (inputs, outputs) = (graph.inputs.len(), graph.outputs.len());
    let written: BTreeSet<ValueId> = flow.written().collect();
    graph.inputs.extend(&written);
    graph.outputs.extend(flow.read());
    dead::run(&mut graph);
    for _ in 0..ROUNDS {
        if !portable::run_composites(&mut graph, &varying, computed)? {
            break;
        }
    }
    dead::run(&mut graph);
    let lacks = |node: &&Node| node.operator.instruction().is_none();
    let lacking: BTreeSet<&str> =
        graph.nodes.iter().filter(lacks).map(|node| node.operator.name()).collect();
    if !lacking.is_empty() {
        let lacking: Vec<&str> = lacking.into_iter().collect();
        return Err(Error::Unsupported(lacking.join("; ")));
    }
    crate::passes::verify::verify(&graph)?;
    graph.inputs.truncate(inputs);
    graph.outputs.truncate(outputs);
    copy_given_values(&mut graph, written);
    let mut method = Method { name: name.to_owned(), ..Method::default() };
    let states = place(&mut method, &graph, state)?;
    let mut emitter = Emitter::new(&mut method);
    for (id, value) in &states {
        emitter.bind(*id, *value);
    }
    let mut inputs = Vec::with_capacity(graph.inputs.len());
    for id in &graph.inputs {
        inputs.push(emitter.value(&graph, *id)?);
    }
    flow.emit(&mut emitter, &graph)?;
    let mut outputs = Vec::with_capacity(graph.outputs.len());
    for id in &graph.outputs {
        outputs.push(emitter.value(&graph, *id)?);
    }
    for (new, old) in &graph.updates {
        let (source, target) = (emitter.value(&graph, *new)?, emitter.value(&graph, *old)?);
        let flag = emitter.truth(false);
        let args = vec![target, source, flag, target];
        let (name, overload) = ("aten::copy_".to_owned(), String::new());
        emitter.push(Instruction::Kernel { name, overload, args });
    }
    let instructions = emitter.finish();
    (method.instructions, method.inputs, method.outputs) = (instructions, inputs, outputs);
    method.plan()?;
    Ok(method)
}

/// Adds the state to a method. Returns the values of the graph and those of the method.
fn place<'p>(
    method: &mut Method<'p>,
    graph: &Graph<'p>,
    state: Vec<State<'p>>,
) -> Result<Vec<(ValueId, usize)>, Error> {
    let mut end = 0usize;
    let mut states = Vec::with_capacity(state.len());
    for State { value, name, data } in state {
        let tensor = graph.tensor(value);
        let tensor = tensor.ok_or_else(|| Error::invalid("state that is no tensor"))?;
        let info: TensorInfo = crate::emit::tensor_info(tensor)?;
        let start = end;
        end = end
            .checked_add(info.nbytes())
            .and_then(|end| end.checked_next_multiple_of(ALIGN))
            .ok_or_else(|| Error::unsupported("the size of the state overflows"))?;
        let own = method.add(MethodValue::Tensor(MethodTensor {
            info,
            dynamism: ShapeDynamism::Static,
            location: Some((STATE_BUFFER, start)),
            data: TensorData::Inside(data),
            name: Some(name),
        }));
        states.push((value, own));
    }
    if !states.is_empty() {
        method.planned = [0, end].to_vec();
    }
    Ok(states)
}

/// Inserts a copy where an output or a new state is itself an input, a constant or a state: outputs
/// have memory of their own, and state may be overwritten before it is read.
fn copy_given_values(graph: &mut Graph<'_>, written: BTreeSet<ValueId>) {
    let mut made = written;
    let results = graph
        .nodes
        .iter()
        .filter_map(|node| node.args.last())
        .flat_map(|out| graph.items(out).iter().copied());
    made.extend(results);
    let mut outputs = core::mem::take(&mut graph.outputs);
    let mut updates = core::mem::take(&mut graph.updates);
    let mut seen = BTreeSet::new();
    let leaving = outputs.iter_mut().chain(updates.iter_mut().map(|(new, _)| new));
    for id in leaving {
        let is_first = seen.insert(*id);
        if made.contains(id) && is_first {
            continue;
        }
        let Some(Value::Tensor(tensor)) = graph.values.get(*id) else { continue };
        let mut copied = tensor.clone();
        (copied.data, copied.changes) = (None, None);
        graph.values.extend([Value::None, Value::Tensor(copied)]);
        let (none, copy) = (graph.values.len() - 2, graph.values.len() - 1);
        // After all calls and events.
        let copying = Node::new(Operator::CLONE, vec![*id, none, copy]);
        graph.nodes.push(Node { id: u32::MAX, ..copying });
        *id = copy;
    }
    (graph.outputs, graph.updates) = (outputs, updates);
}
