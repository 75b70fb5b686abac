//! Constant folding: what is computed from constants alone is computed once, with the kernels that
//! would compute it in every run.
//!
//! All calls that can be are found first, and those left out from the end on whose results would
//! take too much room: then what they are made of is kept. The rest becomes a program of its own,
//! which runs once.

mod choice;

use crate::emit::Emitter;
use crate::error::Error;
use crate::graph::{Graph, Tensor, Value, ValueId};
use crate::method::{Method, MethodValue, Program};
use crate::operators::Operator;
use crate::run::run as run_once;
use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use choice::{Choice, choose};
use torchlet_core::Registry;

/// Memory that may be used on the way, as a multiple of all constants, and beyond that.
const MEMORY: usize = 16;
const LEAST_MEMORY: usize = 64 << 20;
/// At what multiples results start.
const ALIGN: usize = 16;

/// Computes what depends on constants alone, with kernels of a registry: results become constants,
/// the calls are gone. Gives how many calls there were. Results take at most four times the room of
/// the constants that they are made of, which is that of bytes as 32-bit numbers, and little more.
///
/// # Errors
/// The graph is malformed. If a kernel fails, everything stays as it is: the program fails there
/// when it runs, if it comes there.
pub fn run(graph: &mut Graph<'_>, registry: &Registry<'_>) -> Result<usize, Error> {
    run_but(graph, registry, &[])
}

/// The same, but for calls of these operators, and what is computed of their results.
///
/// # Errors
/// As [`run`].
pub(crate) fn run_but(
    graph: &mut Graph<'_>,
    registry: &Registry<'_>,
    left: &[Operator],
) -> Result<usize, Error> {
    let Choice { calls, gone, results } = choose(graph, registry, left);
    if results.is_empty() {
        return Ok(0);
    }
    let program = program(graph, &calls, &results)?;
    let planned = program.methods.iter().flat_map(|method| &method.planned);
    let memory = planned.fold(0usize, |bytes, size| bytes.saturating_add(*size));
    if memory > choice::constant_bytes(graph).saturating_mul(MEMORY).saturating_add(LEAST_MEMORY) {
        return Ok(0);
    }
    let package = program.write()?;
    let mut made: BTreeMap<ValueId, Vec<u8>> = BTreeMap::new();
    let ran = run_once(&package, registry, &[], |index, tensor| {
        if let Some(id) = results.get(index) {
            made.insert(*id, tensor.bytes().to_vec());
        }
        Ok(())
    });
    drop(package);
    // Shapes that follow from contents would be others than those that the graph has.
    let whole = |(id, data): (&ValueId, &Vec<u8>)| {
        graph.tensor(*id).is_some_and(|tensor| bytes_of(tensor) == data.len())
    };
    if ran.is_err() || !made.iter().all(whole) {
        return Ok(0);
    }
    for (id, data) in made {
        if let Some(Value::Tensor(tensor)) = graph.values.get_mut(id) {
            tensor.data = Some(Cow::Owned(data));
            (tensor.changes, tensor.dynamic) = (Some(false), false);
        }
    }
    let mut number = 0..graph.nodes.len();
    graph.nodes.retain(|_| number.next().is_none_or(|index| gone.binary_search(&index).is_err()));
    Ok(gone.len())
}

/// Some calls of a graph as a program without inputs.
fn program<'p>(
    graph: &Graph<'p>,
    calls: &[usize],
    results: &[ValueId],
) -> Result<Program<'p>, Error> {
    let mut method = Method { name: String::from("forward"), ..Method::default() };
    let mut emitter = Emitter::new(&mut method);
    for node in calls.iter().filter_map(|index| graph.nodes.get(*index)) {
        emitter.emit(graph, node)?;
    }
    let mut outputs = Vec::with_capacity(results.len());
    for id in results {
        outputs.push(emitter.value(graph, *id)?);
    }
    method.instructions = emitter.finish();
    // Results stay until the end, in a buffer that nothing else is in.
    let mut size = 0usize;
    for value in &outputs {
        if let Some(MethodValue::Tensor(tensor)) = method.values.get_mut(*value) {
            tensor.place = Some((1, size));
            let end = size.checked_add(tensor.info.nbytes());
            let end = end.and_then(|end| end.checked_next_multiple_of(ALIGN));
            size = end.ok_or_else(|| Error::unsupported("constants that exceed all memory"))?;
        }
    }
    method.outputs = outputs;
    method.planned = [0, size].to_vec();
    method.plan()?;
    Ok(Program { methods: [method].to_vec(), named: Vec::new() })
}

/// The bytes of a tensor.
fn bytes_of(tensor: &Tensor<'_>) -> usize {
    let bytes = tensor.scalar_type.size();
    tensor.sizes.iter().fold(bytes, |bytes, size| bytes.saturating_mul(*size))
}

#[cfg(test)]
mod tests;
