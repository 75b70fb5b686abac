//! Front end for VGF files of ExecuTorch's `VgfPartitioner`, which are the delegate's blob as they
//! are: SPIR-V data graphs with operators of TOSA.
//!
//! [`Container`] reads the file, `spirv` its modules. Graph segments become one graph in the order
//! of the model sequence. Floating-point operators become ATen's; integer operators whose
//! arithmetic ATen lacks become `tosa.*` operators, and [`passes::tosa`](crate::passes::tosa)
//! replaces them by int8 operators where a processor has those. Compute segments, which are
//! foreign shaders, are unsupported.

mod builder;
mod container;
mod layers;
mod nodes;
mod ops;
mod schema;
mod spectral;
mod spirv;

use crate::budget::Budget;
use crate::error::Error;
use crate::front::Summary;
use crate::front::vulkan::{Argument, Bound};
use crate::graph::{Graph, Tensor, Value, ValueId};
use crate::operators::Operator;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use builder::Builder;
pub(crate) use container::is_blob;
pub use container::{
    Binding, Category, Code, Constant, Container, Module, Resource, Segment, SegmentKind, sections,
};
use spirv::{Id, Step, TensorType};
use torchlet_core::ScalarType;

/// Backend id of VGF delegates.
pub const BACKEND: &str = "VgfBackend";

/// Summarizes a file. Names of calls are those of TOSA.
///
/// # Errors
/// The file is malformed, or has unknown instructions.
pub(crate) fn summarize(bytes: &[u8]) -> Result<Summary, Error> {
    let container = Container::read(bytes)?;
    container.check()?;
    let mut budget = Budget::of(bytes);
    let mut calls = Vec::new();
    for (at, segment) in container.segments.iter().enumerate() {
        let Some((module, code)) = graph_module(&container, at, &mut budget)? else {
            calls.push(format!("compute segment {:?}", segment.name));
            continue;
        };
        for step in &module.entry(code)?.body.steps {
            if let Step::Call(call) = step {
                calls.push(format!("{:?}", ops::op(call.number)?));
            }
        }
    }
    Ok(Summary::new(calls, container.constants.iter().map(|it| it.bytes.len() as u64)))
}

/// The module of a graph segment and the name of its entry point; `None` for a compute segment.
fn graph_module<'c>(
    container: &'c Container<'_>,
    segment: usize,
    budget: &mut Budget,
) -> Result<Option<(spirv::Module, &'c str)>, Error> {
    let found = container.segments.get(segment);
    let found = found.filter(|segment| segment.kind == SegmentKind::Graph);
    let Some(module) = found.and_then(|segment| container.modules.get(segment.module)) else {
        return Ok(None);
    };
    match module.code {
        Code::SpirV(code) => {
            // Segments may share a module, but few do.
            budget.spend(code.len())?;
            Ok(Some((spirv::Module::read(code)?, module.entry_point)))
        }
        _ => Err(Error::Unsupported(format!("module {:?}: expected SPIR-V", module.name))),
    }
}

/// Reads the graph of a delegate from its processed bytes, and binds it to the arguments of a call:
/// the inputs of the model sequence, then its outputs.
///
/// # Errors
/// The file is malformed or has a compute segment, a call is unsupported, or the arguments do not
/// fit.
pub(crate) fn read<'p>(bytes: &'p [u8], arguments: &[Argument]) -> Result<Bound<'p>, Error> {
    let container = Container::read(bytes)?;
    container.check()?;
    let mut budget = Budget::of(bytes);
    let (inputs, outputs) = (&container.inputs, &container.outputs);
    if inputs.len() + outputs.len() != arguments.len() || outputs.is_empty() {
        return Err(Error::Invalid(format!(
            "a VGF file with {} inputs and {} outputs is called with {} arguments",
            inputs.len(),
            outputs.len(),
            arguments.len()
        )));
    }
    let mut graph = Graph::default();
    let mut left = builder::MAX_OWN_BYTES;
    // Tensors by the index of their resource.
    let mut resources: BTreeMap<usize, ValueId> = BTreeMap::new();
    let arguments = arguments.split_at_checked(inputs.len()).unwrap_or_default();
    for (resource, argument) in inputs.iter().zip(arguments.0) {
        let value = input(&mut graph, &container, *resource, argument)?;
        define(&mut resources, *resource, value)?;
    }
    for at in 0..container.segments.len() {
        add_segment(&mut graph, &container, at, &mut resources, (&mut budget, &mut left))?;
    }
    for (resource, argument) in outputs.iter().zip(arguments.1) {
        let value = resources.get(resource).copied();
        let value = value
            .ok_or_else(|| Error::Invalid(format!("VGF resource {resource} is never written")))?;
        output(&mut graph, value, argument)?;
    }
    Ok(Bound { first_output: graph.inputs.len(), graph })
}

fn define(
    resources: &mut BTreeMap<usize, ValueId>,
    resource: usize,
    value: ValueId,
) -> Result<(), Error> {
    match resources.insert(resource, value) {
        None => Ok(()),
        Some(_) => Err(Error::Invalid(format!("VGF resource {resource} is written twice"))),
    }
}

/// Adds the calls of a segment.
fn add_segment<'p>(
    graph: &mut Graph<'p>,
    container: &Container<'p>,
    at: usize,
    resources: &mut BTreeMap<usize, ValueId>,
    (budget, left): (&mut Budget, &mut usize),
) -> Result<(), Error> {
    let Some(segment) = container.segments.get(at) else { return Ok(()) };
    let Some((module, entry_point)) = graph_module(container, at, budget)? else {
        return Err(Error::Unsupported(format!(
            "VGF segment {at} ({:?}) is a compute shader: export the model without operators that \
             VgfPartitioner lowers to shaders",
            segment.name
        )));
    };
    let named = |error: Error| match error {
        Error::Unsupported(what) => {
            Error::Unsupported(format!("VGF segment {at} ({:?}): {what}", segment.name))
        }
        other => other,
    };
    let entry = module.entry(entry_point).map_err(named)?;
    let resource = |[set, binding]: [u32; 2]| {
        let mut bound = segment.bindings.iter();
        let found = bound.find(|it| it.set == set && it.binding == binding);
        found.map(|it| it.resource).ok_or_else(|| {
            Error::Invalid(format!("VGF segment {at}: no resource at set {set}, binding {binding}"))
        })
    };
    let outside = segment.constants.iter().filter_map(|(number, constant)| {
        Some((*number, container.constants.get(*constant)?.bytes))
    });
    let mut builder = Builder::new(&module, graph, outside.collect(), left);
    for (index, id) in &entry.body.inputs {
        let (of, place) = entry.inputs.get(*index).copied().unwrap_or_default();
        let resource = resource(place)?;
        let value = resources.get(&resource).copied();
        let value = value.ok_or_else(|| {
            Error::Invalid(format!("VGF resource {resource} is read before it is written"))
        })?;
        expect(&builder, &module, of, value)?;
        builder.define(*id, vec![value])?;
    }
    for step in &entry.body.steps {
        match step {
            Step::Call(call) => nodes::add(&mut builder, call).map_err(named)?,
            Step::Extract { result, from, index } => {
                let item = builder.items(*from)?.get(*index).copied();
                let item = item.ok_or_else(|| Error::invalid("SPIR-V: an item out of range"))?;
                builder.define(*result, vec![item])?;
            }
        }
    }
    for (index, id) in &entry.body.outputs {
        let (of, place) = entry.outputs.get(*index).copied().unwrap_or_default();
        let value = builder.read(*id)?;
        expect(&builder, &module, of, value)?;
        define(resources, resource(place)?, value)?;
    }
    Ok(())
}

/// Checks that a tensor has the type of an input or output of the graph.
fn expect(
    builder: &Builder<'_, '_>,
    module: &spirv::Module,
    of: Id,
    value: ValueId,
) -> Result<(), Error> {
    let (of, found) = (module.tensor(of)?, builder.tensor(value)?);
    match of.scalar_type == found.scalar_type && of.sizes == found.sizes {
        true => Ok(()),
        false => Err(Error::Invalid(format!(
            "a graph input or output: expected ({:?}, {:?}), found ({:?}, {:?})",
            of.scalar_type, of.sizes, found.scalar_type, found.sizes
        ))),
    }
}

/// The dtype of a resource's format.
fn scalar_type(resource: &Resource) -> Result<ScalarType, Error> {
    Ok(match resource.format_name() {
        Some("R8_SINT" | "R8_UINT") => ScalarType::Char,
        Some("R8_BOOL_ARM") => ScalarType::Bool,
        Some("R16_SINT" | "R16_UINT") => ScalarType::Short,
        Some("R32_SINT" | "R32_UINT") => ScalarType::Int,
        Some("R64_SINT" | "R64_UINT") => ScalarType::Long,
        Some("R16_SFLOAT") => ScalarType::Half,
        Some("R16_SFLOAT_FPENCODING_BFLOAT16_ARM") => ScalarType::BFloat16,
        Some("R32_SFLOAT") => ScalarType::Float,
        name => {
            let name = name.map_or_else(|| resource.format.to_string(), String::from);
            return Err(Error::Unsupported(format!("a tensor of Vulkan format {name}")));
        }
    })
}

fn new_tensor(graph: &mut Graph<'_>, tensor: Tensor<'static>) -> ValueId {
    graph.values.push(Value::Tensor(tensor));
    graph.values.len() - 1
}

fn like(of: &TensorType) -> Tensor<'static> {
    Tensor {
        scalar_type: of.scalar_type,
        host_type: of.scalar_type,
        sizes: of.sizes.clone(),
        dynamic: false,
        data: None,
        changes: None,
    }
}

fn call(graph: &mut Graph<'_>, operator: Operator, args: Vec<ValueId>) {
    graph.nodes.push(crate::graph::Node::new(operator, args));
}

/// Whether tensors of two dtypes have the same bits: SPIR-V integers are signless.
fn have_same_bits(one: ScalarType, other: ScalarType) -> bool {
    let signless = |of: ScalarType| match of {
        ScalarType::Byte => ScalarType::Char,
        ScalarType::UInt16 => ScalarType::Short,
        ScalarType::UInt32 => ScalarType::Int,
        of => of,
    };
    signless(one) == signless(other)
}

/// Arguments of a call that converts a tensor to the dtype of its output.
fn cast_args(graph: &mut Graph<'_>, value: ValueId, out: ValueId) -> Vec<ValueId> {
    graph.values.extend([Value::None, Value::Bool(false)]);
    let (none, no) = (graph.values.len() - 2, graph.values.len() - 1);
    vec![value, none, none, none, none, no, none, out]
}

/// Describes the tensor that an argument has as an input or output of the sequence, and its dim
/// order.
///
/// # Errors
/// Dtype or sizes in memory order differ.
fn fitting<'a>(
    argument: &'a Argument,
    of: &TensorType,
) -> Result<(Tensor<'static>, &'a [usize]), Error> {
    let (Argument::Tensor { order, dynamic, .. }, Some(tensor)) = (argument, argument.tensor())
    else {
        return Err(Error::invalid("an argument of a VGF delegate is not a tensor"));
    };
    let sizes = &tensor.sizes;
    let lies: Vec<usize> = order.iter().filter_map(|dim| sizes.get(*dim).copied()).collect();
    // A scalar has one element.
    let is_shape = of.sizes == lies || (sizes.is_empty() && of.sizes == [1]);
    if *dynamic || !is_shape || !have_same_bits(of.scalar_type, tensor.scalar_type) {
        return Err(Error::Invalid(format!(
            "an argument of a VGF delegate: expected ({:?}, {:?}), found ({:?}, {lies:?}) in \
             memory order{}",
            of.scalar_type,
            of.sizes,
            tensor.scalar_type,
            if *dynamic { ", with a dynamic shape" } else { "" }
        )));
    }
    Ok((tensor, order))
}

/// Adds an input: an argument, converted to the resource's dtype and memory order.
fn input(
    graph: &mut Graph<'_>,
    container: &Container<'_>,
    resource: usize,
    argument: &Argument,
) -> Result<ValueId, Error> {
    let described = container.resources.get(resource);
    let described = described.ok_or_else(|| Error::invalid("a VGF resource is missing"))?;
    if !described.strides.is_empty() && !described.is_contiguous() {
        return Err(Error::Unsupported(format!("VGF resource {resource}: strided tensors")));
    }
    let sizes = described.shape.iter().map(|size| usize::try_from(*size));
    let sizes: Result<Vec<usize>, _> = sizes.collect();
    let sizes = sizes.map_err(|_| Error::invalid("a VGF resource whose size is out of range"))?;
    let of = TensorType { scalar_type: scalar_type(described)?, sizes };
    let (tensor, order) = fitting(argument, &of)?;
    let (order, sizes) = (order.to_vec(), tensor.sizes.clone());
    let given_type = tensor.scalar_type;
    let given = new_tensor(graph, tensor);
    graph.inputs.push(given);
    let mut value = given;
    if given_type != of.scalar_type {
        let out = new_tensor(graph, like(&TensorType { scalar_type: of.scalar_type, sizes }));
        let args = cast_args(graph, value, out);
        call(graph, Operator::TO_COPY, args);
        value = out;
    }
    if order.is_empty() && !of.sizes.is_empty() {
        value = reordered(graph, value, Operator::VIEW_COPY, &of.sizes, &of);
    } else if !order.is_sorted() {
        value = reordered(graph, value, Operator::PERMUTE_COPY, &order, &of);
    }
    Ok(value)
}

/// Adds a view or permutation.
fn reordered(
    graph: &mut Graph<'_>,
    value: ValueId,
    operator: Operator,
    list: &[usize],
    of: &TensorType,
) -> ValueId {
    // Sizes and dims fit into 32 bits.
    graph.values.push(Value::IntList(list.iter().map(|item| *item as i64).collect()));
    let list = graph.values.len() - 1;
    let out = new_tensor(graph, like(of));
    call(graph, operator, vec![value, list, out]);
    out
}

/// Adds an output: a tensor, converted to the argument's dtype and memory order.
fn output(graph: &mut Graph<'_>, value: ValueId, argument: &Argument) -> Result<(), Error> {
    let found = graph.tensor(value).map(|it| (it.scalar_type, it.sizes.clone()));
    let (scalar_type, sizes) = found.ok_or_else(|| Error::invalid("an output is no tensor"))?;
    let of = TensorType { scalar_type, sizes };
    let (tensor, order) = fitting(argument, &of)?;
    let mut value = value;
    let made = TensorType { scalar_type, sizes: tensor.sizes.clone() };
    if order.is_empty() && !of.sizes.is_empty() {
        value = reordered(graph, value, Operator::VIEW_COPY, &[], &made);
    } else if !order.is_sorted() {
        let mut places: Vec<usize> = (0..order.len()).collect();
        places.sort_unstable_by_key(|place| order.get(*place).copied());
        value = reordered(graph, value, Operator::PERMUTE_COPY, &places, &made);
    }
    if tensor.scalar_type != scalar_type {
        let out = new_tensor(graph, tensor);
        let args = cast_args(graph, value, out);
        call(graph, Operator::TO_COPY, args);
        value = out;
    }
    // The emitter binds each output to a value of its own.
    let is_taken = graph.outputs.contains(&value) || graph.inputs.contains(&value);
    if is_taken || graph.tensor(value).is_some_and(|it| it.data.is_some()) {
        let out = new_tensor(graph, like(&TensorType { scalar_type, sizes: made.sizes }));
        graph.values.push(Value::None);
        let none = graph.values.len() - 1;
        call(graph, Operator::CLONE, vec![value, none, out]);
        value = out;
    }
    graph.outputs.push(value);
    Ok(())
}
