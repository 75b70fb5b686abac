//! Front end for VGF files: SPIR-V data graphs with operators of TOSA. The blob of a delegate of
//! ExecuTorch's `VgfPartitioner` is an unmodified VGF file.
//!
//! [`Container`] reads the file, `spirv` its modules. Graph segments become one graph in the order
//! of the model sequence. Floating-point operators become ATen's; integer operators whose
//! arithmetic ATen lacks become `tosa.*` operators, and [`passes::tosa`](crate::passes::tosa)
//! replaces them by int8 operators where a processor has those. Compute segments, which are
//! foreign shaders, become calls of `torchlet.shader`.

mod builder;
mod calls;
mod container;
mod layers;
mod nodes;
mod ops;
mod program;
mod schema;
mod shaders;
mod spectral;
mod spirv;
pub(crate) mod tosa;

use crate::budget::{Budget, Computed};
use crate::error::Error;
use crate::front::Summary;
use crate::front::vulkan::{Argument, Bound};
use crate::graph::{Tensor, ValueId};
use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use builder::Builder;
use calls::Calls;
pub use container::{
    Binding, Category, Code, Constant, Container, Module, Resource, Segment, SegmentKind, sections,
};
pub(crate) use container::{MAGIC, is_blob};
pub(crate) use program::{program, tosa_program};
pub(crate) use shaders::refuse as refuse_shaders;
use spirv::{Id, Step, TensorType};
use torchlet_core::ScalarType;
use torchlet_core::layout::MAX_RANK;

/// Limit on the code of all compute segments, in sizes of the file: segments may share a module.
const SHADER_USES: usize = 64;

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
    for segment in &container.segments {
        let Some((module, code)) = graph_module(&container, segment, &mut budget)? else {
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
    segment: &Segment<'_>,
    budget: &mut Budget,
) -> Result<Option<(spirv::Module, &'c str)>, Error> {
    let found = container.modules.get(segment.module);
    let Some(module) = found.filter(|_| segment.kind == SegmentKind::Graph) else {
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
/// the inputs of the model sequence, then its outputs. `computed` is shared by all delegates of the
/// program.
///
/// # Errors
/// The file is malformed or has a compute segment, a call is unsupported, or the arguments do not
/// fit.
pub(crate) fn read<'p>(
    bytes: &'p [u8],
    arguments: &[Argument],
    computed: &Computed,
) -> Result<Bound<'p>, Error> {
    let container = Container::read(bytes)?;
    container.check()?;
    let (inputs, outputs) = (&container.inputs, &container.outputs);
    if inputs.len() + outputs.len() != arguments.len() || outputs.is_empty() {
        return Err(Error::Invalid(format!(
            "a VGF file with {} inputs and {} outputs is called with {} arguments",
            inputs.len(),
            outputs.len(),
            arguments.len()
        )));
    }
    let mut sequence = Sequence {
        container: &container,
        storages: storages(&container),
        budget: Budget::of(bytes),
        shader_code: Budget::of_uses(bytes, SHADER_USES),
        calls: Calls::new(computed.clone()),
        values: BTreeMap::new(),
    };
    let arguments = arguments.split_at_checked(inputs.len()).unwrap_or_default();
    for (resource, argument) in inputs.iter().zip(arguments.0) {
        sequence.add_input(*resource, argument)?;
    }
    for (at, segment) in container.segments.iter().enumerate() {
        sequence.add_segment(at, segment)?;
    }
    for (resource, argument) in outputs.iter().zip(arguments.1) {
        sequence.add_output(*resource, argument)?;
    }
    Ok(Bound { first_output: inputs.len(), graph: sequence.calls.finish() })
}

/// The model sequence under translation.
struct Sequence<'c, 'p> {
    container: &'c Container<'p>,
    /// For each resource, the first one with the same memory.
    storages: Vec<usize>,
    budget: Budget,
    /// Code of shaders, which several segments may share.
    shader_code: Budget,
    calls: Calls<'p>,
    /// Tensors by the [index](Self::storage) of their resource.
    values: BTreeMap<usize, ValueId>,
}

/// Number of `VK_DESCRIPTOR_TYPE_TENSOR_ARM`.
const TENSOR_DESCRIPTOR: u32 = 1_000_460_000;

/// For each resource, the first one of its alias group, or itself.
fn storages(container: &Container<'_>) -> Vec<usize> {
    let mut first = BTreeMap::new();
    let resources = container.resources.iter().enumerate();
    let storage = |(at, resource): (usize, &container::Resource)| match resource.alias_group {
        Some(group) => *first.entry(group).or_insert(at),
        None => at,
    };
    resources.map(storage).collect()
}

impl<'p> Sequence<'_, 'p> {
    /// The resource that stands for all resources with the same memory.
    fn storage(&self, resource: usize) -> usize {
        self.storages.get(resource).copied().unwrap_or(resource)
    }

    fn define(&mut self, resource: usize, value: ValueId) -> Result<(), Error> {
        let is_alone =
            self.container.resources.get(resource).is_none_or(|it| it.alias_group.is_none());
        match self.values.insert(self.storage(resource), value) {
            Some(_) if is_alone => {
                Err(Error::Invalid(format!("VGF resource {resource} is written twice")))
            }
            _ => Ok(()),
        }
    }

    /// The tensor of a resource, in the shape of that resource: others in its alias group may have
    /// other shapes.
    fn value(&mut self, resource: usize) -> Result<ValueId, Error> {
        let value = self.values.get(&self.storage(resource)).copied();
        let value = value.ok_or_else(|| {
            Error::Invalid(format!("VGF resource {resource} is read before it is written"))
        })?;
        let is_alias =
            self.container.resources.get(resource).is_some_and(|it| it.alias_group.is_some());
        if !is_alias {
            return Ok(value);
        }
        let (of, found) = (tensor_type(self.container, resource)?, self.calls.tensor(value)?);
        let numel = found.sizes.iter().try_fold(1usize, |numel, size| numel.checked_mul(*size));
        if found.scalar_type != of.scalar_type || numel != of.numel() {
            return Err(Error::Unsupported(format!(
                "VGF resource {resource}: an alias group with tensors of different types or sizes"
            )));
        }
        self.calls.view(value, &of.sizes)
    }

    /// Adds an input: an argument, converted to the resource's dtype and memory order.
    fn add_input(&mut self, resource: usize, argument: &Argument) -> Result<(), Error> {
        let of = tensor_type(self.container, resource)?;
        let value = bind_input(&mut self.calls, argument, &of)?;
        self.define(resource, value)
    }

    /// Adds an output: a tensor, converted to the argument's dtype and memory order.
    fn add_output(&mut self, resource: usize, argument: &Argument) -> Result<(), Error> {
        let value = self.value(resource)?;
        bind_output(&mut self.calls, value, argument)
    }

    /// Adds the calls of a segment.
    fn add_segment(&mut self, at: usize, segment: &Segment<'p>) -> Result<(), Error> {
        let container = self.container;
        let named = |error: Error| match error {
            Error::Unsupported(what) => {
                Error::Unsupported(format!("VGF segment {at} ({:?}): {what}", segment.name))
            }
            other => other,
        };
        let Some((module, entry_point)) = graph_module(container, segment, &mut self.budget)?
        else {
            return shaders::add(self, at, segment).map_err(named);
        };
        let entry = module.entry(entry_point).map_err(named)?;
        let bound = segment.bindings.iter().rev().map(|it| ([it.set, it.binding], it.resource));
        let bound: BTreeMap<[u32; 2], usize> = bound.collect();
        let resource = |[set, binding]: [u32; 2]| {
            bound.get(&[set, binding]).copied().ok_or_else(|| {
                Error::Invalid(format!(
                    "VGF segment {at}: no resource at set {set}, binding {binding}"
                ))
            })
        };
        let outside = segment.constants.iter().filter_map(|(number, constant)| {
            Some((*number, Cow::Borrowed(container.constants.get(*constant)?.bytes)))
        });
        let mut inputs = Vec::new();
        for (index, id) in &entry.body.inputs {
            let (of, place) = entry.inputs.get(*index).copied().unwrap_or_default();
            inputs.push((*id, of, self.value(resource(place)?)?));
        }
        let mut builder = Builder::new(&module, &mut self.calls, outside.collect());
        for (id, of, value) in inputs {
            expect(&builder, of, value)?;
            builder.define(id, vec![value])?;
        }
        for step in &entry.body.steps {
            add_step(&mut builder, step).map_err(named)?;
        }
        let mut outputs = Vec::new();
        for (index, id) in &entry.body.outputs {
            let (of, place) = entry.outputs.get(*index).copied().unwrap_or_default();
            let value = builder.read(*id)?;
            expect(&builder, of, value)?;
            outputs.push((resource(place)?, value));
        }
        outputs.into_iter().try_for_each(|(resource, value)| self.define(resource, value))
    }
}

/// Adds an input: an argument, converted to a dtype and memory order.
fn bind_input(
    calls: &mut Calls<'_>,
    argument: &Argument,
    of: &TensorType,
) -> Result<ValueId, Error> {
    let (tensor, order) = fitting(argument, of)?;
    let given = calls.input(tensor);
    let value = calls.cast(given, of.scalar_type)?;
    match order {
        [] => calls.view(value, &of.sizes),
        order if order.is_sorted() => Ok(value),
        order => calls.permute(value, order),
    }
}

/// Adds an output: a tensor, converted to the argument's dtype and memory order.
fn bind_output(calls: &mut Calls<'_>, value: ValueId, argument: &Argument) -> Result<(), Error> {
    let (scalar_type, sizes) = (calls.scalar_type(value)?, calls.sizes(value)?);
    let (tensor, order) = fitting(argument, &TensorType { scalar_type, sizes })?;
    let value = match order {
        [] => calls.view(value, &[])?,
        order if order.is_sorted() => value,
        order => {
            let mut places: Vec<usize> = (0..order.len()).collect();
            places.sort_unstable_by_key(|place| order.get(*place).copied());
            calls.permute(value, &places)?
        }
    };
    let value = calls.cast(value, tensor.scalar_type)?;
    calls.output(value)
}

/// Adds the calls of an instruction.
fn add_step(builder: &mut Builder<'_, '_>, step: &Step) -> Result<(), Error> {
    match step {
        Step::Call(call) => nodes::add(builder, call),
        Step::Extract { result, from, index } => {
            let item = builder.items(*from)?.get(*index).copied();
            let item = item.ok_or_else(|| Error::invalid("SPIR-V: an item out of range"))?;
            builder.define(*result, vec![item])
        }
    }
}

/// Checks that a tensor has the type of an input or output of the graph.
fn expect(builder: &Builder<'_, '_>, of: Id, value: ValueId) -> Result<(), Error> {
    let (of, found) = (builder.module.tensor(of)?, builder.tensor(value)?);
    match of.scalar_type == found.scalar_type && of.sizes == found.sizes {
        true => Ok(()),
        false => Err(Error::Invalid(format!(
            "a graph input or output: expected ({:?}, {:?}), found ({:?}, {:?})",
            of.scalar_type, of.sizes, found.scalar_type, found.sizes
        ))),
    }
}

/// Type and shape of a resource.
///
/// # Errors
/// The resource is missing, or is not a contiguous tensor of a known format.
fn tensor_type(container: &Container<'_>, resource: usize) -> Result<TensorType, Error> {
    let described = container.resources.get(resource);
    let described = described.ok_or_else(|| Error::invalid("a VGF resource is missing"))?;
    if !described.is_contiguous() {
        return Err(Error::Unsupported(format!("VGF resource {resource}: strided tensors")));
    }
    let sizes = described.shape.iter().map(|size| usize::try_from(*size).ok());
    let sizes = sizes.collect::<Option<Vec<usize>>>().filter(|sizes| sizes.len() <= MAX_RANK);
    let mut sizes = sizes.ok_or_else(|| {
        Error::Unsupported(format!(
            "VGF resource {resource}: expected a fixed shape of at most {MAX_RANK} dims"
        ))
    })?;
    // Tensors of SPIR-V have at least one dim.
    if sizes.is_empty() {
        sizes.push(1);
    }
    Ok(TensorType { scalar_type: scalar_type(described)?, sizes })
}

/// The dtype of a resource's format.
fn scalar_type(resource: &Resource) -> Result<ScalarType, Error> {
    Ok(match resource.format_name() {
        Some(
            "R8_SINT" | "R8_UINT" | "R8G8_UINT" | "R8G8_SINT" | "R8G8B8A8_UNORM" | "R8G8B8A8_SNORM"
            | "R8G8B8A8_UINT" | "R8G8B8A8_SINT",
        ) => ScalarType::Char,
        Some("R8_BOOL_ARM") => ScalarType::Bool,
        Some(
            "R16_SINT" | "R16_UINT" | "R16G16_UINT" | "R16G16_SINT" | "R16G16B16A16_UINT"
            | "R16G16B16A16_SINT",
        ) => ScalarType::Short,
        Some("R32_SINT" | "R32_UINT" | "R32G32B32A32_UINT" | "R32G32B32A32_SINT") => {
            ScalarType::Int
        }
        Some("R64_SINT" | "R64_UINT") => ScalarType::Long,
        Some("R16_SFLOAT" | "R16G16_SFLOAT" | "R16G16B16A16_SFLOAT") => ScalarType::Half,
        Some("R16_SFLOAT_FPENCODING_BFLOAT16_ARM") => ScalarType::BFloat16,
        Some("R32_SFLOAT" | "R32G32_SFLOAT" | "R32G32B32_SFLOAT" | "R32G32B32A32_SFLOAT") => {
            ScalarType::Float
        }
        name => {
            let name = name.map_or_else(|| resource.format.to_string(), String::from);
            return Err(Error::Unsupported(format!("a tensor of Vulkan format {name}")));
        }
    })
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

#[cfg(test)]
mod tests;
