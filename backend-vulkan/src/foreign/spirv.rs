//! Checks of a foreign SPIR-V module against its bindings and the device.
//!
//! Drivers trust SPIR-V. The checks find modules that the device cannot run, and bindings that do
//! not match the model sequence. They are no validator: a module that violates other rules reaches
//! the driver, which is why foreign shaders need the caller's permission.

use super::layout::Layouts;
use super::texel::{Sampled, Texel};
use crate::error::Error;
use std::collections::{HashMap, HashSet};
use torchlet_gpu::device::{DeviceFeature, DeviceFeatures};

const MAGIC: u32 = 0x0723_0203;
const HEADER: usize = 5;
/// `ExecutionModel` of compute shaders.
const GL_COMPUTE: u32 = 5;

/// Opcodes, of the SPIR-V specification.
mod op {
    pub(super) const ENTRY_POINT: u16 = 15;
    pub(super) const EXECUTION_MODE: u16 = 16;
    pub(super) const CAPABILITY: u16 = 17;
    pub(super) const TYPE_INT: u16 = 21;
    pub(super) const TYPE_FLOAT: u16 = 22;
    pub(super) const TYPE_IMAGE: u16 = 25;
    pub(super) const TYPE_SAMPLER: u16 = 26;
    pub(super) const TYPE_SAMPLED_IMAGE: u16 = 27;
    pub(super) const TYPE_STRUCT: u16 = 30;
    pub(super) const TYPE_POINTER: u16 = 32;
    pub(super) const VARIABLE: u16 = 59;
    pub(super) const DECORATE: u16 = 71;
    pub(super) const MEMBER_DECORATE: u16 = 72;
    pub(super) const GROUP_DECORATE: u16 = 74;
    pub(super) const GROUP_MEMBER_DECORATE: u16 = 75;
    pub(super) const EXECUTION_MODE_ID: u16 = 331;
    pub(super) const DECORATE_ID: u16 = 332;
    pub(super) const DECORATE_STRING: u16 = 5632;
    pub(super) const MEMBER_DECORATE_STRING: u16 = 5633;
    /// Types and constants. Decorations precede them.
    pub(super) const DEFINITIONS: std::ops::RangeInclusive<u16> = 19..=52;
}

const LOCAL_SIZE: u32 = 17;
const DECORATION_BLOCK: u32 = 2;
const DECORATION_BUFFER_BLOCK: u32 = 3;
const DECORATION_BUILT_IN: u32 = 11;
const DECORATION_NON_WRITABLE: u32 = 24;
const DECORATION_BINDING: u32 = 33;
const DECORATION_SET: u32 = 34;
/// Decorations that the checks depend on: those above, and those of layouts.
const READ: [u32; 10] = [2, 3, 4, 5, 6, 7, 11, 33, 34, 35];
const WORKGROUP_SIZE: u32 = 25;

const CLASS_UNIFORM_CONSTANT: u32 = 0;
const CLASS_UNIFORM: u32 = 2;
const CLASS_WORKGROUP: u32 = 4;
const CLASS_PRIVATE: u32 = 6;
const CLASS_FUNCTION: u32 = 7;
const CLASS_PUSH_CONSTANT: u32 = 9;
const CLASS_STORAGE_BUFFER: u32 = 12;

/// Limit on the bytes of a module's private variables and variables of functions. Vulkan has none:
/// drivers put them on a stack, for each invocation.
const MAX_VARIABLE_BYTES: u64 = 64 << 10;
/// `Image Format` of an image whose texels have any format.
const UNKNOWN_FORMAT: u32 = 0;

/// Kind of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Buffer,
    StorageImage,
    SampledImage,
    /// A sampled image with its sampler.
    Combined,
}

/// Descriptors by set and binding, with the format of images.
pub(crate) type Bindings = HashMap<(u32, u32), (Kind, Option<Texel>)>;

/// Limits of the device that the checks need.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// SPIR-V version that the device supports: major and minor.
    pub(crate) version: [u8; 2],
    pub(crate) invocations: u32,
    pub(crate) workgroup: [u32; 3],
    /// Bytes of the memory that a workgroup shares.
    pub(crate) shared: u32,
}

/// A type, as far as descriptors depend on it.
#[derive(Debug, Clone, Copy)]
enum Type {
    /// Whether all members are decorated as `NonWritable`.
    Struct(bool),
    StorageImage(Image),
    SampledImage(Image),
    Combined(Image),
    Pointer(u32),
    Scalar(Sampled),
    Other,
}

/// What a shader declares of an image: its components, unless they are of another type, and its
/// `Image Format`.
#[derive(Debug, Clone, Copy)]
struct Image {
    sampled: Option<Sampled>,
    format: u32,
}

impl Image {
    /// Checks the declaration against the format of the bound image.
    fn check(self, kind: Kind, texel: Option<Texel>, place: &str) -> Result<(), Error> {
        let texel = texel.ok_or_else(|| bad("an image of an unknown Vulkan format"))?;
        if self.format == UNKNOWN_FORMAT && kind == Kind::StorageImage {
            return Err(Error::unsupported(format!(
                "{place}: a storage image without a format, which requires \
                 StorageImageReadWithoutFormat or StorageImageWriteWithoutFormat"
            )));
        }
        if self.format != UNKNOWN_FORMAT && self.format != texel.spirv {
            return Err(Error::Invalid(format!(
                "{place}: the shader declares image format {}, the resource has {}",
                self.format, texel.spirv
            )));
        }
        if self.sampled != Some(texel.sampled) {
            return Err(Error::Invalid(format!(
                "{place}: the shader declares components that are {}, the resource has {}",
                self.sampled.map_or("of another type", Sampled::name),
                texel.sampled.name()
            )));
        }
        Ok(())
    }
}

fn bad(what: &str) -> Error {
    Error::Invalid(format!("SPIR-V: {what}"))
}

/// Reads a literal string, and returns the words after it.
fn text(words: &[u32]) -> Result<(String, &[u32]), Error> {
    let mut bytes = Vec::new();
    for (at, word) in words.iter().enumerate() {
        for byte in word.to_le_bytes() {
            if byte == 0 {
                let text = String::from_utf8(bytes).map_err(|_| bad("a name that is not UTF-8"))?;
                return Ok((text, words.get(at + 1..).unwrap_or_default()));
            }
            bytes.push(byte);
        }
    }
    Err(bad("a name without an end"))
}

/// Checks a module. `push` is the number of bytes of push constants. Returns the sets and bindings
/// of the buffers that the shader may write.
///
/// # Errors
/// The module is malformed, needs features that the device lacks or that are not enabled, or does
/// not match the bindings.
pub(crate) fn check(
    words: &[u32],
    entry: &str,
    bindings: &Bindings,
    push: u32,
    features: &DeviceFeatures,
    limits: &Limits,
) -> Result<HashSet<(u32, u32)>, Error> {
    let [MAGIC, version, _, _, 0, ..] = *words else {
        return Err(bad("the module does not start with a header"));
    };
    let [_, minor, major, _] = version.to_le_bytes();
    if [major, minor] > limits.version {
        let [most, second] = limits.version;
        return Err(Error::unsupported(format!(
            "SPIR-V {major}.{minor}: the device supports up to {most}.{second}"
        )));
    }
    let mut rest = words.get(HEADER..).unwrap_or_default();
    let (mut entries, mut sizes, mut built_in) = (Vec::new(), HashMap::new(), Vec::new());
    let mut types: HashMap<u32, Type> = HashMap::new();
    let (mut sets, mut places, mut blocks) = (HashMap::new(), HashMap::new(), HashMap::new());
    let (mut variables, mut layouts, mut defined) =
        (Vec::new(), Layouts::default(), HashSet::new());
    // Variables, and members of structures, that are decorated as `NonWritable`. Those of later
    // decorations count as written, which is safe.
    let (mut read_only, mut read_only_members) = (HashSet::new(), HashSet::new());
    while let [first, ..] = rest {
        let (len, opcode) = ((first >> 16) as usize, (first & 0xFFFF) as u16);
        let operands = rest.get(1..len).filter(|_| len > 0);
        let operands = operands.ok_or_else(|| bad("a truncated instruction"))?;
        rest = rest.get(len..).unwrap_or_default();
        if let Some(id) = defined_id(opcode, operands)
            && !defined.insert(id)
        {
            return Err(Error::Invalid(format!("SPIR-V: id {id} is defined twice")));
        }
        match (opcode, operands) {
            (op::CAPABILITY, [number]) => check_capability(*number, features)?,
            (op::ENTRY_POINT, [GL_COMPUTE, id, name @ ..]) => {
                let (name, _) = text(name)?;
                if name == entry {
                    entries.push(*id);
                }
            }
            (op::ENTRY_POINT, [_, _, _, ..]) => {}
            (op::EXECUTION_MODE, [id, LOCAL_SIZE, x, y, z]) => {
                if sizes.insert(*id, [*x, *y, *z]).is_some() {
                    return Err(bad("an entry point with two workgroup sizes"));
                }
            }
            (op::EXECUTION_MODE, [_, mode, ..]) if *mode != LOCAL_SIZE => {}
            (op::EXECUTION_MODE_ID, _) => {
                return Err(Error::unsupported(
                    "a shader whose workgroup size is a specialization constant",
                ));
            }
            (op::GROUP_DECORATE | op::GROUP_MEMBER_DECORATE, _) => {
                return Err(Error::unsupported("a shader with groups of decorations"));
            }
            (op::DECORATE | op::DECORATE_ID | op::DECORATE_STRING, [_, kind, ..])
            | (op::MEMBER_DECORATE | op::MEMBER_DECORATE_STRING, [_, _, kind, ..])
                if READ.contains(kind)
                    && !(defined.is_empty()
                        && [op::DECORATE, op::MEMBER_DECORATE].contains(&opcode)) =>
            {
                return Err(bad("a decoration after types, or by another instruction"));
            }
            (op::DECORATE, [id, DECORATION_SET, set]) => once(&mut sets, *id, *set)?,
            (op::DECORATE, [id, DECORATION_BINDING, binding]) => {
                once(&mut places, *id, *binding)?;
            }
            (op::DECORATE, [id, kind @ (DECORATION_BLOCK | DECORATION_BUFFER_BLOCK)]) => {
                once(&mut blocks, *id, *kind)?;
            }
            (op::DECORATE, [id, DECORATION_BUILT_IN, number]) => {
                if *number == WORKGROUP_SIZE {
                    built_in.push(*id);
                }
            }
            (
                op::DECORATE,
                [
                    _,
                    DECORATION_SET
                    | DECORATION_BINDING
                    | DECORATION_BLOCK
                    | DECORATION_BUFFER_BLOCK
                    | DECORATION_BUILT_IN,
                    ..,
                ],
            ) => return Err(bad("a decoration of another length")),
            (op::DECORATE, [id, DECORATION_NON_WRITABLE]) => {
                read_only.insert(*id);
            }
            (op::MEMBER_DECORATE, [id, member, DECORATION_NON_WRITABLE]) => {
                read_only_members.insert((*id, *member));
            }
            (op::DECORATE, [id, kind, more @ ..]) => layouts.decorate(*id, *kind, more)?,
            (op::MEMBER_DECORATE, _) => layouts.decorate_member(operands)?,
            (op::TYPE_INT, [id, 32, sign]) => {
                let of = if *sign == 0 { Sampled::Unsigned } else { Sampled::Signed };
                types.insert(*id, Type::Scalar(of));
                layouts.define(opcode, operands)?;
            }
            (op::TYPE_FLOAT, [id, 32]) => {
                types.insert(*id, Type::Scalar(Sampled::Float));
                layouts.define(opcode, operands)?;
            }
            (op::TYPE_STRUCT, [id, members @ ..]) => {
                let all = u32::try_from(members.len()).unwrap_or(u32::MAX);
                let is_read_only = |member: u32| read_only_members.contains(&(*id, member));
                types.insert(*id, Type::Struct((0..all).all(is_read_only)));
                layouts.define(opcode, operands)?;
            }
            (
                op::TYPE_IMAGE,
                [id, of, dim, _, arrayed, multisampled, sampled, format, _access @ ..],
            ) if operands.len() <= 9 => {
                let components = match types.get(of) {
                    Some(Type::Scalar(scalar)) => Some(*scalar),
                    _ => None,
                };
                let image = Image { sampled: components, format: *format };
                // Two-dimensional, not arrayed, not multisampled.
                let is_plain = [*dim, *arrayed, *multisampled] == [1, 0, 0];
                let of = match sampled {
                    1 if is_plain => Type::SampledImage(image),
                    2 if is_plain => Type::StorageImage(image),
                    _ => Type::Other,
                };
                types.insert(*id, of);
            }
            (op::TYPE_SAMPLED_IMAGE, [id, image]) => {
                let of = match types.get(image) {
                    Some(Type::SampledImage(image)) => Type::Combined(*image),
                    _ => Type::Other,
                };
                types.insert(*id, of);
            }
            (op::TYPE_SAMPLER, [id]) => {
                types.insert(*id, Type::Other);
            }
            (op::TYPE_POINTER, [id, _, to]) => {
                types.insert(*id, Type::Pointer(*to));
            }
            (op::VARIABLE, [pointer, id, class] | [pointer, id, class, _]) => {
                variables.push((*pointer, *id, *class));
            }
            (
                op::CAPABILITY
                | op::ENTRY_POINT
                | op::EXECUTION_MODE
                | op::DECORATE
                | op::TYPE_STRUCT
                | op::TYPE_IMAGE
                | op::TYPE_SAMPLED_IMAGE
                | op::TYPE_SAMPLER
                | op::TYPE_POINTER
                | op::VARIABLE,
                _,
            ) => {
                return Err(Error::Invalid(format!(
                    "SPIR-V: an instruction {opcode} of {len} words, which is not its length"
                )));
            }
            _ => layouts.define(opcode, operands)?,
        }
    }
    let [id] = entries[..] else {
        return Err(Error::Invalid(format!(
            "SPIR-V: expected one compute entry point {entry:?}, found {}",
            entries.len()
        )));
    };
    check_workgroup(sizes.get(&id).copied(), limits)?;
    // A constant decorated as `WorkgroupSize` overrides the execution mode `LocalSize`.
    for id in built_in {
        let size = layouts.triple(id);
        let size = size.ok_or_else(|| {
            Error::unsupported("a shader whose workgroup size is not three integer constants")
        })?;
        check_workgroup(Some(size), limits)?;
    }
    let pointee = |pointer: u32| match types.get(&pointer) {
        Some(Type::Pointer(to)) => Ok(*to),
        _ => Err(bad("a variable whose type is not a pointer")),
    };
    check_shared(&variables, pointee, &layouts, limits)?;
    check_variables(&variables, pointee, &layouts)?;
    let mut written = HashSet::new();
    for (pointer, id, class) in variables {
        if class == CLASS_PUSH_CONSTANT {
            let needed = layouts.extent(pointee(pointer)?);
            let needed = needed.ok_or_else(|| {
                Error::unsupported("a shader with push constants whose layout is unknown")
            })?;
            if needed > u64::from(push) {
                return Err(Error::Invalid(format!(
                    "SPIR-V: {needed} bytes of push constants; the ranges of the segment have \
                     {push}"
                )));
            }
        }
        if ![CLASS_UNIFORM_CONSTANT, CLASS_UNIFORM, CLASS_STORAGE_BUFFER].contains(&class) {
            continue;
        }
        let (Some(set), Some(binding)) = (sets.get(&id), places.get(&id)) else {
            return Err(bad("a resource without descriptor set or binding"));
        };
        let place = format!("set {set}, binding {binding}");
        let pointee = pointee(pointer)?;
        let of = types.get(&pointee).copied().unwrap_or(Type::Other);
        let block = blocks.get(&pointee).copied();
        let (kind, image) = match (class, of, block) {
            (CLASS_STORAGE_BUFFER, Type::Struct(is_read_only), _)
            | (CLASS_UNIFORM, Type::Struct(is_read_only), Some(DECORATION_BUFFER_BLOCK)) => {
                if !is_read_only && !read_only.contains(&id) {
                    written.insert((*set, *binding));
                }
                (Kind::Buffer, None)
            }
            (CLASS_UNIFORM_CONSTANT, Type::StorageImage(it), _) => (Kind::StorageImage, Some(it)),
            (CLASS_UNIFORM_CONSTANT, Type::SampledImage(it), _) => (Kind::SampledImage, Some(it)),
            (CLASS_UNIFORM_CONSTANT, Type::Combined(it), _) => (Kind::Combined, Some(it)),
            _ => {
                return Err(Error::unsupported(format!(
                    "a shader with another resource than a storage buffer or a 2D image at {place}"
                )));
            }
        };
        let texel = match bindings.get(&(*set, *binding)) {
            Some((found, texel)) if *found == kind => *texel,
            Some((found, _)) => {
                return Err(Error::Invalid(format!(
                    "{place}: the shader declares {kind:?}, the segment binds {found:?}"
                )));
            }
            None => {
                return Err(Error::Invalid(format!(
                    "{place}: declared by the shader, but not bound by the segment"
                )));
            }
        };
        if let Some(image) = image {
            image.check(kind, texel, &place)?;
        }
    }
    // Bindings that the shader does not declare are harmless.
    Ok(written)
}

/// Notes a decoration that an id has at most once.
fn once(decorations: &mut HashMap<u32, u32>, id: u32, value: u32) -> Result<(), Error> {
    match decorations.insert(id, value) {
        None => Ok(()),
        Some(_) => Err(Error::Invalid(format!("SPIR-V: id {id} is decorated twice"))),
    }
}

/// The id that a type, constant or variable defines.
fn defined_id(opcode: u16, operands: &[u32]) -> Option<u32> {
    match opcode {
        // `OpTypeForwardPointer` defines nothing; constants state their type first.
        39 => None,
        41.. if op::DEFINITIONS.contains(&opcode) => operands.get(1).copied(),
        op::VARIABLE => operands.get(1).copied(),
        _ if op::DEFINITIONS.contains(&opcode) => operands.first().copied(),
        _ => None,
    }
}

/// Checks the memory that workgroups share: that of all variables of the module.
fn check_shared(
    variables: &[(u32, u32, u32)],
    pointee: impl Fn(u32) -> Result<u32, Error>,
    layouts: &Layouts,
    limits: &Limits,
) -> Result<(), Error> {
    let mut used = 0u64;
    for (pointer, ..) in variables.iter().filter(|(_, _, class)| *class == CLASS_WORKGROUP) {
        let (size, align) = layouts
            .size(pointee(*pointer)?)
            .ok_or_else(|| Error::unsupported("a shader with shared memory of unknown size"))?;
        let end = used.checked_next_multiple_of(align).and_then(|start| start.checked_add(size));
        used = end.unwrap_or(u64::MAX);
        if used > u64::from(limits.shared) {
            return Err(Error::unsupported(format!(
                "a shader with {used} bytes of shared memory or more; the device limit is {}",
                limits.shared
            )));
        }
    }
    Ok(())
}

/// Checks the memory of variables that each invocation has for itself, those of all functions.
fn check_variables(
    variables: &[(u32, u32, u32)],
    pointee: impl Fn(u32) -> Result<u32, Error>,
    layouts: &Layouts,
) -> Result<(), Error> {
    let mut used = 0u64;
    for (pointer, _, class) in variables {
        if ![CLASS_PRIVATE, CLASS_FUNCTION].contains(class) {
            continue;
        }
        let (size, align) = layouts.size(pointee(*pointer)?).ok_or_else(|| {
            Error::unsupported("a shader with a private or local variable of unknown size")
        })?;
        let end = used.checked_next_multiple_of(align).and_then(|start| start.checked_add(size));
        used = end.unwrap_or(u64::MAX);
        if used > MAX_VARIABLE_BYTES {
            return Err(Error::unsupported(format!(
                "a shader with {used} bytes of private and local variables or more; the limit is \
                 {MAX_VARIABLE_BYTES}"
            )));
        }
    }
    Ok(())
}

fn check_workgroup(size: Option<[u32; 3]>, limits: &Limits) -> Result<(), Error> {
    let size = size.ok_or_else(|| bad("a compute shader without a workgroup size"))?;
    let count = size.iter().try_fold(1u32, |count, size| count.checked_mul(*size));
    let fits = size.iter().zip(limits.workgroup).all(|(size, most)| (1..=most).contains(size));
    match count.is_some_and(|count| count <= limits.invocations) && fits {
        true => Ok(()),
        false => Err(Error::unsupported(format!(
            "a workgroup of {size:?} invocations; the device limit is {}",
            limits.invocations
        ))),
    }
}

/// Checks that a capability is one that the device is opened with.
fn check_capability(number: u32, features: &DeviceFeatures) -> Result<(), Error> {
    let needed = match number {
        // Matrix, Shader, ImageQuery, Image1D is not included.
        0 | 1 | 50 => return Ok(()),
        9 => DeviceFeature::Float16Arithmetic,
        22 => DeviceFeature::Int16Arithmetic,
        39 => DeviceFeature::Int8Arithmetic,
        4433 => DeviceFeature::Float16Storage,
        4448 => DeviceFeature::Storage8Bit,
        // TensorsARM and StorageTensorArrayDynamicIndexingEXT.
        4174 | 4175 => {
            return Err(Error::unsupported(
                "a shader with tensors (VK_ARM_tensors): use storage buffers instead",
            ));
        }
        _ => {
            return Err(Error::unsupported(format!(
                "a shader with SPIR-V capability {number}, which is not enabled"
            )));
        }
    };
    match features.has(needed) {
        true => Ok(()),
        false => Err(Error::unsupported(format!(
            "a shader that needs {}, which the device lacks",
            needed.name()
        ))),
    }
}
