//! Helpers for tests of graphs.

use crate::emit::Emitter;
use crate::graph::{Graph, Tensor, Value};
use crate::method::{Method, MethodValue, Program};
use crate::run::run;
use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;
use torchlet_core::{Registry, ScalarType, ShapeDynamism, TensorRef};

/// Creates a tensor.
pub(crate) fn typed(
    sizes: &[usize],
    scalar_type: ScalarType,
    data: Option<Vec<u8>>,
) -> Value<'static> {
    Value::Tensor(Tensor {
        scalar_type,
        host_type: scalar_type,
        sizes: sizes.to_vec(),
        dynamic: false,
        data: data.map(Cow::Owned),
        changes: None,
    })
}

/// Creates an `f32` tensor without data.
pub(crate) fn tensor(sizes: &[usize]) -> Value<'static> {
    typed(sizes, ScalarType::Float, None)
}

/// Creates an `f32` constant.
pub(crate) fn constant(sizes: &[usize], numbers: &[f32]) -> Value<'static> {
    let bytes = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    typed(sizes, ScalarType::Float, Some(bytes))
}

/// Creates an `i8` constant.
pub(crate) fn codes(sizes: &[usize], codes: &[i8]) -> Value<'static> {
    typed(sizes, ScalarType::Char, Some(codes.iter().map(|code| *code as u8).collect()))
}

/// Returns a registry with all portable kernels.
pub(crate) fn registry() -> Registry<'static> {
    Registry::new().with_kernels(&torchlet_portable::KERNELS).unwrap()
}

/// Runs a graph as a method of a program, and returns its outputs as `f32`. Input shapes may be
/// smaller than the bounds. Tensors with `changes` become state.
pub(crate) fn outputs(graph: &Graph<'_>, inputs: &[TensorRef<'_>]) -> Vec<Vec<f32>> {
    let mut method = Method { name: String::from("forward"), ..Method::default() };
    let mut emitter = Emitter::new(&mut method);
    // Inputs, outputs and state get separate slots, which the planner does not reuse.
    let mut own = Vec::new();
    for id in 0..graph.values.len() {
        let Value::Tensor(Tensor { changes: Some(true), .. }) = &graph.values[id] else { continue };
        own.push(emitter.value(graph, id).unwrap());
    }
    let mut given = Vec::new();
    for id in &graph.inputs {
        let value = emitter.value(graph, *id).unwrap();
        if let Some(MethodValue::Tensor(tensor)) = emitter.method().values.get_mut(value) {
            tensor.dynamism = ShapeDynamism::DynamicBound;
        }
        given.push(value);
    }
    for node in &graph.nodes {
        emitter.emit(graph, node).unwrap();
    }
    let taken = graph.outputs.iter().map(|id| emitter.value(graph, *id).unwrap()).collect();
    let instructions = emitter.finish();
    (method.inputs, method.outputs, method.instructions) = (given, taken, instructions);
    own.extend(method.inputs.iter().chain(&method.outputs));
    own.sort_unstable();
    own.dedup();
    let mut size = 0;
    for value in own {
        if let Some(MethodValue::Tensor(tensor)) = method.values.get_mut(value) {
            tensor.location = Some((1, size));
            size = (size + tensor.info.nbytes()).next_multiple_of(16);
        }
    }
    method.planned = [0, size].to_vec();
    method.plan().unwrap();
    let package = Program { methods: [method].to_vec(), named: Vec::new() }.write().unwrap();
    let mut found = Vec::new();
    run(&package, &registry(), inputs, |_, tensor| {
        found.push(numbers(tensor));
        Ok(())
    })
    .unwrap();
    found
}

fn numbers(tensor: &TensorRef<'_>) -> Vec<f32> {
    let as_f32 = |bytes: &[u8]| bytes.iter().map(|byte| f32::from(*byte)).collect();
    match tensor.scalar_type {
        ScalarType::Float => tensor.data::<f32>().unwrap().to_vec(),
        ScalarType::Char => tensor.data::<i8>().unwrap().iter().map(|x| f32::from(*x)).collect(),
        ScalarType::Int => tensor.data::<i32>().unwrap().iter().map(|x| *x as f32).collect(),
        ScalarType::Long => tensor.data::<i64>().unwrap().iter().map(|x| *x as f32).collect(),
        _ => as_f32(tensor.bytes()),
    }
}
