//! Compute segments: foreign shaders, as calls of `torchlet.shader`.
//!
//! Resources are bound as the model sequence says. Push constants have the declared ranges; their
//! contents, which the file does not have, are zeros.

use super::{Category, Code, Segment, SegmentKind, Sequence, TENSOR_DESCRIPTOR, tensor_type};
use crate::error::Error;
use crate::graph::{Graph, Value, ValueId};
use crate::operators::{Operator, ShaderArgs};
use alloc::borrow::Cow;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use torchlet_core::ScalarType;

/// Numbers of `VkDescriptorType` that shaders may bind.
const COMBINED_IMAGE_SAMPLER: u32 = 1;
const SAMPLED_IMAGE: u32 = 2;
const STORAGE_IMAGE: u32 = 3;
const STORAGE_BUFFER: u32 = 7;

/// Adds the call of a compute segment.
///
/// # Errors
/// The segment is malformed, or is not SPIR-V with buffers and images.
pub(super) fn add<'p>(
    sequence: &mut Sequence<'_, 'p>,
    at: usize,
    segment: &Segment<'p>,
) -> Result<(), Error> {
    let container = sequence.container;
    let module = container.modules.get(segment.module);
    let module = module.ok_or_else(|| Error::invalid("a VGF module is missing"))?;
    if module.kind != SegmentKind::Compute {
        return Err(Error::Invalid(format!(
            "VGF segment {at} ({:?}) is a compute shader, but its module is a graph",
            segment.name
        )));
    }
    let code = match module.code {
        Code::SpirV(code) => code,
        Code::Glsl(_) | Code::Hlsl(_) => {
            let language = if matches!(module.code, Code::Glsl(_)) { "GLSL" } else { "HLSL" };
            return Err(Error::Unsupported(format!(
                "a compute shader in {language}: compile module {:?} to SPIR-V before the file is \
                 written, for example with glslc",
                module.name
            )));
        }
        Code::Absent => {
            return Err(Error::Unsupported(format!("module {:?} without code", module.name)));
        }
    };
    let &[x, y, z] = &segment.dispatch_shape[..] else {
        return Err(Error::Unsupported(format!(
            "a dispatch shape of {:?}: expected three numbers",
            segment.dispatch_shape
        )));
    };
    let mut bound = Bound::default();
    let written: BTreeSet<usize> =
        segment.outputs.iter().map(|resource| sequence.storage(*resource)).collect();
    let is_written = |sequence: &Sequence<'_, '_>, resource: usize| {
        let own = sequence.storage(resource);
        match segment.inputs.is_empty() && segment.outputs.is_empty() {
            false => written.contains(&own),
            // Older converters do not list them.
            true => match container.resources.get(resource).map(|it| it.category) {
                Some(Category::Output) => true,
                Some(Category::Intermediate) => !sequence.values.contains_key(&own),
                _ => false,
            },
        }
    };
    for binding in &segment.bindings {
        let resource = binding.resource;
        let described = container.resources.get(resource);
        let described = described.ok_or_else(|| Error::invalid("a VGF resource is missing"))?;
        let kind = described.descriptor_type.unwrap_or(TENSOR_DESCRIPTOR);
        let place = format!("set {}, binding {}", binding.set, binding.binding);
        match kind {
            COMBINED_IMAGE_SAMPLER | SAMPLED_IMAGE | STORAGE_IMAGE | STORAGE_BUFFER => {}
            TENSOR_DESCRIPTOR => {
                return Err(Error::Unsupported(format!(
                    "a compute shader with a tensor at {place}, which requires VK_ARM_tensors: \
                     use a storage buffer instead"
                )));
            }
            _ => {
                return Err(Error::Unsupported(format!(
                    "a compute shader with descriptor type {kind} at {place}"
                )));
            }
        }
        if kind == COMBINED_IMAGE_SAMPLER && described.sampler.is_none() {
            return Err(Error::Unsupported(format!("a sampled image without sampler at {place}")));
        }
        let is_written = is_written(sequence, resource);
        check_alias(sequence, segment, resource, is_written)?;
        let tensor = bound.tensor(sequence, resource, is_written)?;
        let [min, mag, u, v, border] = described.sampler.unwrap_or_default();
        let words = [binding.set, binding.binding, kind, described.format];
        bound.words.extend(words.into_iter().map(i64::from));
        bound.words.push(tensor);
        bound.words.extend([min, mag, u, v, border].into_iter().map(i64::from));
    }
    if bound.outputs.is_empty() {
        return Err(Error::unsupported("a compute shader that writes no resource"));
    }
    sequence.shader_code.spend(code.len())?;
    let Bound { inputs, outputs, words, .. } = bound;
    let count = i64::try_from(inputs.len()).unwrap_or(i64::MAX);
    // Outputs follow the inputs.
    let mut bindings = words;
    for record in bindings.chunks_exact_mut(RECORD) {
        if let Some(tensor) = record.get_mut(TENSOR).filter(|tensor| **tensor < 0) {
            *tensor = count.saturating_sub(*tensor).saturating_sub(1);
        }
    }
    let calls = &mut sequence.calls;
    let of = super::TensorType { scalar_type: ScalarType::Byte, sizes: [code.len()].to_vec() };
    let push = segment.push_constants.iter().flatten().map(|it| i64::from(*it)).collect();
    let made: Vec<(usize, ValueId)> = outputs
        .into_iter()
        .map(|(resource, of)| (resource, calls.new_tensor(of.scalar_type, &of.sizes)))
        .collect();
    let args = [
        calls.push(Value::List(inputs)),
        calls.constant(&of, Cow::Borrowed(code)),
        calls.push(Value::String(format!("VGF segment {at} ({:?})", segment.name))),
        calls.push(Value::String(String::from(module.entry_point))),
        calls.push(Value::IntList(bindings)),
        calls.ints(&[x, y, z].map(i64::from)),
        calls.push(Value::IntList(push)),
    ];
    let out = calls.push(Value::List(made.iter().map(|(_, value)| *value).collect()));
    calls.call_into(Operator::SHADER, &args, out);
    made.into_iter().try_for_each(|(resource, value)| sequence.define(resource, value))
}

/// Refuses resources whose contents would be those of another resource, or be lost.
fn check_alias(
    sequence: &Sequence<'_, '_>,
    segment: &Segment<'_>,
    resource: usize,
    is_written: bool,
) -> Result<(), Error> {
    let resources = &sequence.container.resources;
    let storage = sequence.storage(resource);
    // Results begin as zeros, so a resource cannot be read and written. Without lists, it is not
    // known whether one that has contents is read.
    let is_read = match segment.inputs.is_empty() && segment.outputs.is_empty() {
        false => segment.inputs.iter().any(|it| sequence.storage(*it) == storage),
        true => sequence.values.contains_key(&storage),
    };
    if is_written && is_read {
        return Err(Error::Unsupported(format!(
            "a compute shader that updates resource {resource}, which is an input and an output: \
             use two resources without a common alias group"
        )));
    }
    let group = resources.get(resource).and_then(|it| it.alias_group);
    let inputs = resources
        .iter()
        .filter(|it| it.alias_group == group && it.category == Category::Input)
        .count();
    match group {
        Some(group) if inputs > 1 => Err(Error::Unsupported(format!(
            "a compute shader with resource {resource}, whose alias group {group} has {inputs} \
             inputs of the model: expected at most one"
        ))),
        _ => Ok(()),
    }
}

/// Refuses a foreign shader among the calls without a processor, `is_left`, by its name.
///
/// # Errors
/// There is one.
pub(crate) fn refuse(graph: &Graph<'_>, is_left: impl Fn(usize) -> bool) -> Result<(), Error> {
    let mut nodes = graph.nodes.iter().enumerate();
    let found = nodes.find(|(at, node)| node.operator == Operator::SHADER && is_left(*at));
    let Some((_, node)) = found else { return Ok(()) };
    let name = ShaderArgs::of(node).ok().and_then(|call| match graph.values.get(call.name) {
        Some(Value::String(name)) => Some(name.as_str()),
        _ => None,
    });
    Err(Error::Unsupported(format!(
        "{} is a compute shader, code of the file's author: it runs only on Vulkan devices, and \
         only if the caller allows it (`--allow-foreign-shaders`, \
         `ModuleBuilder::allow_foreign_shaders`)",
        name.unwrap_or("a call")
    )))
}

/// Integers of a binding, and the position of its tensor among them.
const RECORD: usize = 10;
const TENSOR: usize = 4;

/// The tensors of a segment.
#[derive(Default)]
struct Bound {
    inputs: Vec<ValueId>,
    outputs: Vec<(usize, super::TensorType)>,
    words: Vec<i64>,
    /// The number of each tensor by its storage: the index of an input, or minus one minus the
    /// index of an output; and the resource that was bound first.
    known: BTreeMap<usize, (i64, usize)>,
}

impl Bound {
    /// The number of a resource's tensor.
    fn tensor(
        &mut self,
        sequence: &mut Sequence<'_, '_>,
        resource: usize,
        is_written: bool,
    ) -> Result<i64, Error> {
        let storage = sequence.storage(resource);
        if let Some((number, first)) = self.known.get(&storage) {
            if *first == resource {
                return Ok(*number);
            }
            return Err(Error::unsupported("a compute shader that binds an alias group twice"));
        }
        let number = match is_written {
            true => {
                if sequence.values.contains_key(&storage)
                    && sequence
                        .container
                        .resources
                        .get(resource)
                        .is_none_or(|it| it.alias_group.is_none())
                {
                    return Err(Error::unsupported("a compute shader that updates a resource"));
                }
                self.outputs.push((resource, tensor_type(sequence.container, resource)?));
                -i64::try_from(self.outputs.len()).unwrap_or(i64::MAX)
            }
            false => {
                let value = match constant(sequence, resource)? {
                    Some(value) => value,
                    None => sequence.value(resource)?,
                };
                self.inputs.push(value);
                i64::try_from(self.inputs.len() - 1).unwrap_or(i64::MAX)
            }
        };
        self.known.insert(storage, (number, resource));
        Ok(number)
    }
}

/// The tensor of a resource that is a constant.
fn constant(sequence: &mut Sequence<'_, '_>, resource: usize) -> Result<Option<ValueId>, Error> {
    let container = sequence.container;
    let Some(found) = container.constants.iter().find(|it| it.resource == resource) else {
        return Ok(None);
    };
    let of = tensor_type(container, resource)?;
    if of.bytes() != Some(found.bytes.len()) {
        return Err(Error::Invalid(format!(
            "VGF resource {resource}: a constant of {} bytes, expected {:?}",
            found.bytes.len(),
            of.bytes()
        )));
    }
    Ok(Some(sequence.calls.constant(&of, Cow::Borrowed(found.bytes))))
}
