//! A method with kernel instructions and planned memory, made from a graph.

use super::signature::{State, Translated};
use crate::budget::Computed;
use crate::emit::Emitter;
use crate::error::Error;
use crate::front::kernels;
use crate::graph::{Graph, ValueId};
use crate::method::{Instruction, Method, MethodTensor, MethodValue, TensorData};
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
    kernels::lower(&mut graph, &varying, computed)?;
    graph.inputs.truncate(inputs);
    graph.outputs.truncate(outputs);
    kernels::copy_given_values(&mut graph, written);
    let mut method = Method { name: name.to_owned(), ..Method::default() };
    let states = place(&mut method, &graph, state)?;
    let mut emitter = Emitter::new(&mut method);
    for (id, value) in &states {
        emitter.bind(*id, *value);
    }
    let inputs = emitter.all(&graph, &graph.inputs)?;
    flow.emit(&mut emitter, &graph)?;
    let outputs = emitter.all(&graph, &graph.outputs)?;
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
