//! Constant folding: evaluates calls at compile time, with the kernels that would otherwise compute
//! the same values in every run.
//!
//! First, all calls that depend only on constants are found. Then, starting with the last one,
//! calls whose results would need too much memory are excluded, and their inputs are stored
//! instead. The remaining calls become a program that runs once.

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

/// Memory limit of the folding program: a multiple of all constants, plus a fixed amount.
const MEMORY: usize = 16;
const MIN_MEMORY: usize = 64 << 20;
/// Alignment of results.
const ALIGN: usize = 16;

/// Evaluates calls that depend only on constants, with the kernels of a registry. The results
/// become constants, and the calls are removed. Returns the number of removed calls. A result needs
/// at most about four times the memory of the constants that it is computed from. That is enough to
/// convert bytes to 32-bit values.
///
/// # Errors
/// The graph is malformed. If a kernel fails, folding is skipped without an error, and the graph
/// stays unchanged: the program fails at run time, if it reaches that call.
pub fn run(graph: &mut Graph<'_>, registry: &Registry<'_>) -> Result<usize, Error> {
    run_but(graph, registry, &[])
}

/// Like [`run`], but keeps the calls of the operators in `left` and all calls that depend on their
/// results.
///
/// # Errors
/// The graph is malformed.
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
    if memory > choice::constant_bytes(graph).saturating_mul(MEMORY).saturating_add(MIN_MEMORY) {
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
    // Shapes that depend on contents would not match the graph.
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

/// A program without inputs from some calls of a graph.
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
    // Results get a separate buffer, as they must survive until the end.
    let mut size = 0usize;
    for value in &outputs {
        if let Some(MethodValue::Tensor(tensor)) = method.values.get_mut(*value) {
            tensor.location = Some((1, size));
            let end = size.checked_add(tensor.info.nbytes());
            let end = end.and_then(|end| end.checked_next_multiple_of(ALIGN));
            size = end.ok_or_else(|| {
                Error::unsupported("folded constants that exceed the address space")
            })?;
        }
    }
    method.outputs = outputs;
    method.planned = [0, size].to_vec();
    method.plan()?;
    Ok(Program { methods: [method].to_vec(), named: Vec::new() })
}

/// The size of a tensor in bytes.
fn bytes_of(tensor: &Tensor<'_>) -> usize {
    let bytes = tensor.scalar_type.size();
    tensor.sizes.iter().fold(bytes, |bytes, size| bytes.saturating_mul(*size))
}

#[cfg(test)]
mod tests;
