//! Reader of the container: a header locates four sections (modules, model sequence, resources,
//! constants), each a flatbuffer. In newer files the constants section is a table of offsets.
//!
//! The facts are those of Arm's `ai-ml-sdk-vgf-library`, versions 0.3 to 0.5 of the format.

use super::schema::{
    DescriptionTable, ModulesTable, OldConstantsTable, ResourcesTable, SegmentTable, SequenceTable,
    SlotTable, TextTable,
};
use crate::budget::Budget;
use crate::error::Error;
use alloc::format;
use alloc::vec::Vec;
use torchlet_core::format::flatbuffer::{Item, Table, Vector};

/// Magic bytes of a file, and of older files.
pub(crate) const MAGIC: [[u8; 4]; 2] = [*b"VGF1", 0xF0E1_D2C3u32.to_le_bytes()];
/// Size of the header in bytes.
const HEADER: usize = 128;
/// Header offsets of the position and size of each section.
const SECTIONS: [usize; 4] = [16, 32, 48, 64];
/// Magic bytes of a constants section that is a table of offsets.
const TABLE_MAGIC: &[u8] = b"CONST00\0";
const TABLE_HEADER: usize = 16;
const TABLE_ENTRY: usize = 24;

/// Whether bytes start like a VGF file.
pub(crate) fn is_blob(bytes: &[u8]) -> bool {
    MAGIC.iter().any(|magic| bytes.starts_with(magic))
}

/// A VGF file: what its sections describe. Names, code and constants are borrowed.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Container<'p> {
    /// Version of the format: major, minor, patch.
    pub version: [u8; 3],
    /// Code modules.
    pub modules: Vec<Module<'p>>,
    /// Model sequence.
    pub segments: Vec<Segment<'p>>,
    /// Inputs of the model, as indices of resources.
    pub inputs: Vec<usize>,
    /// Outputs of the model, as indices of resources.
    pub outputs: Vec<usize>,
    /// Names of the inputs, if the exporter kept them.
    pub input_names: Vec<&'p str>,
    /// Names of the outputs, if the exporter kept them.
    pub output_names: Vec<&'p str>,
    /// Tensors, buffers and images.
    pub resources: Vec<Resource>,
    /// Constants.
    pub constants: Vec<Constant<'p>>,
    /// Size of the file.
    size: usize,
}

/// Kind of a module or segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SegmentKind {
    /// A compute shader.
    Compute,
    /// A data graph.
    Graph,
}

/// Code of a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Code<'p> {
    /// The file has no code for the module.
    Absent,
    /// SPIR-V words, little-endian.
    SpirV(&'p [u8]),
    /// GLSL source.
    Glsl(&'p str),
    /// HLSL source.
    Hlsl(&'p str),
}

/// A code module.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Module<'p> {
    /// Kind of the code.
    pub kind: SegmentKind,
    /// Name.
    pub name: &'p str,
    /// Name of the entry point.
    pub entry_point: &'p str,
    /// The code.
    pub code: Code<'p>,
}

/// Resource that is bound to a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Binding {
    /// Descriptor set.
    pub set: u32,
    /// Binding in the set.
    pub binding: u32,
    /// Index of the resource.
    pub resource: usize,
}

/// Step of the model sequence.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Segment<'p> {
    /// Kind of the segment.
    pub kind: SegmentKind,
    /// Name.
    pub name: &'p str,
    /// Index of the module.
    pub module: usize,
    /// Bound resources.
    pub bindings: Vec<Binding>,
    /// Constants: number in the module, and index in [`Container::constants`].
    pub constants: Vec<(u32, usize)>,
    /// Workgroups of a compute segment.
    pub dispatch_shape: Vec<u32>,
    /// Resources that the segment reads.
    pub inputs: Vec<usize>,
    /// Resources that the segment writes.
    pub outputs: Vec<usize>,
    /// Ranges of push constants of a compute segment: offset and size in bytes.
    pub push_constants: Vec<[u32; 2]>,
}

/// Use of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Category {
    /// Input of the model.
    Input,
    /// Output of the model.
    Output,
    /// Intermediate value between segments.
    Intermediate,
    /// Constant.
    Constant,
}

impl Category {
    /// The category's name.
    pub fn name(self) -> &'static str {
        match self {
            Category::Input => "input",
            Category::Output => "output",
            Category::Intermediate => "intermediate",
            Category::Constant => "constant",
        }
    }
}

/// Tensor, buffer or image.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Resource {
    /// Use of the resource.
    pub category: Category,
    /// Number of the `VkFormat`.
    pub format: u32,
    /// Number of the `VkDescriptorType`; `None` for constants.
    pub descriptor_type: Option<u32>,
    /// Shape.
    pub shape: Vec<u64>,
    /// Strides in bytes; empty if the elements are contiguous.
    pub strides: Vec<u64>,
    /// Sampler of an image: `VkFilter` for minification and magnification, `VkSamplerAddressMode`
    /// of the two dims, and `VkBorderColor`.
    pub sampler: Option<[u32; 5]>,
    /// Group of the resources that share their memory with this one.
    pub alias_group: Option<u32>,
}

impl Resource {
    /// Name of the format without `VK_FORMAT_`, for the formats that tensors have.
    pub fn format_name(&self) -> Option<&'static str> {
        let found = FORMATS.iter().find(|(number, _)| *number == self.format);
        found.map(|(_, name)| *name)
    }

    /// Whether the strides are those of contiguous elements.
    pub fn is_contiguous(&self) -> bool {
        let Some(last) = self.strides.last() else { return true };
        let mut expected = Some(*last);
        self.strides.len() == self.shape.len()
            && self.strides.iter().zip(&self.shape).rev().all(|(stride, size)| {
                let fits = expected == Some(*stride) || *size == 1;
                expected = expected.and_then(|stride| stride.checked_mul(*size));
                fits
            })
    }
}

/// Formats of tensors and images, by their numbers in `vulkan_core.h`.
const FORMATS: [(u32, &str); 33] = [
    (9, "R8_UNORM"),
    (10, "R8_SNORM"),
    (13, "R8_UINT"),
    (14, "R8_SINT"),
    (20, "R8G8_UINT"),
    (21, "R8G8_SINT"),
    (37, "R8G8B8A8_UNORM"),
    (38, "R8G8B8A8_SNORM"),
    (41, "R8G8B8A8_UINT"),
    (42, "R8G8B8A8_SINT"),
    (74, "R16_UINT"),
    (75, "R16_SINT"),
    (76, "R16_SFLOAT"),
    (81, "R16G16_UINT"),
    (82, "R16G16_SINT"),
    (83, "R16G16_SFLOAT"),
    (95, "R16G16B16A16_UINT"),
    (96, "R16G16B16A16_SINT"),
    (97, "R16G16B16A16_SFLOAT"),
    (98, "R32_UINT"),
    (99, "R32_SINT"),
    (100, "R32_SFLOAT"),
    (103, "R32G32_SFLOAT"),
    (106, "R32G32B32_SFLOAT"),
    (107, "R32G32B32A32_UINT"),
    (108, "R32G32B32A32_SINT"),
    (109, "R32G32B32A32_SFLOAT"),
    (110, "R64_UINT"),
    (111, "R64_SINT"),
    (112, "R64_SFLOAT"),
    (1_000_460_000, "R8_BOOL_ARM"),
    (1_000_460_001, "R16_SFLOAT_FPENCODING_BFLOAT16_ARM"),
    (1_000_460_002, "R8_SFLOAT_FPENCODING_FLOAT8E4M3_ARM"),
];

/// A constant.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Constant<'p> {
    /// Index of the resource that describes it.
    pub resource: usize,
    /// Dim with 2:4 sparsity, if the exporter promises it.
    pub sparse_dim: Option<usize>,
    /// Contents.
    pub bytes: &'p [u8],
}

/// The sections of a file: modules, model sequence, resources, constants.
///
/// # Errors
/// The header is truncated, has another magic or major version, or points outside the file.
pub fn sections(bytes: &[u8]) -> Result<[&[u8]; 4], Error> {
    if !is_blob(bytes) {
        return Err(Error::invalid("a VGF file starts with VGF1"));
    }
    if bytes.len() < HEADER {
        return Err(Error::Invalid(format!(
            "the VGF header is truncated: expected {HEADER} bytes, found {}",
            bytes.len()
        )));
    }
    let [major, minor, _] = version(bytes);
    if major > 0 {
        return Err(Error::Unsupported(format!(
            "VGF format version {major}.{minor}: expected version 0"
        )));
    }
    let mut sections = [&bytes[..0]; 4];
    for (section, at) in sections.iter_mut().zip(SECTIONS) {
        let range = number(bytes, at).zip(number(bytes, at + 8));
        let found = range.and_then(|(start, size)| part(bytes, start, size));
        *section = found.ok_or_else(|| {
            Error::Invalid(format!("the VGF section at header offset {at} exceeds the file"))
        })?;
    }
    Ok(sections)
}

fn version(bytes: &[u8]) -> [u8; 3] {
    let part = |at| bytes.get(at).copied().unwrap_or(0);
    [part(8), part(9), part(10)]
}

/// Reads 64 bits, as an index.
fn number(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(at..at.checked_add(8)?)?;
    usize::try_from(u64::from_le_bytes(bytes.try_into().ok()?)).ok()
}

fn part(bytes: &[u8], start: usize, size: usize) -> Option<&[u8]> {
    // Empty sections have any position.
    if size == 0 { bytes.get(..0) } else { bytes.get(start..start.checked_add(size)?) }
}

fn index(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

impl<'p> Container<'p> {
    /// Reads a file.
    ///
    /// # Errors
    /// The file is malformed, or has another major version.
    pub fn read(bytes: &'p [u8]) -> Result<Self, Error> {
        let [modules, sequence, resources, constants] = sections(bytes)?;
        let mut budget = Budget::of(bytes);
        let mut container = Container {
            version: version(bytes),
            modules: read_modules(modules, &mut budget)?,
            segments: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            input_names: Vec::new(),
            output_names: Vec::new(),
            resources: read_resources(resources, &mut budget)?,
            constants: read_constants(constants, &mut budget)?,
            size: bytes.len(),
        };
        if !sequence.is_empty() {
            let table = SequenceTable(Table::root(sequence)?);
            for segment in budget.all(table.segments()?)? {
                container.segments.push(read_segment(&segment, &mut budget)?);
            }
            container.inputs = slots(table.inputs()?, &mut budget)?;
            container.outputs = slots(table.outputs()?, &mut budget)?;
            container.input_names = texts(table.input_names()?, &mut budget)?;
            container.output_names = texts(table.output_names()?, &mut budget)?;
        }
        Ok(container)
    }

    /// Checks that all indices are in range, and that constants do not overlap.
    ///
    /// # Errors
    /// An index is out of range, or the file has fewer bytes than its constants.
    pub fn check(&self) -> Result<(), Error> {
        let bad = |what: &str, index: usize, count: usize| {
            Err(Error::Invalid(format!("VGF {what} {index} is out of range: the file has {count}")))
        };
        let (resources, constants) = (self.resources.len(), self.constants.len());
        let bound = self.segments.iter().flat_map(|segment| &segment.bindings);
        let used = self.inputs.iter().chain(&self.outputs).copied();
        let used = used.chain(bound.map(|binding| binding.resource));
        let segments = self.segments.iter();
        let used = used.chain(segments.flat_map(|it| it.inputs.iter().chain(&it.outputs)).copied());
        for resource in used.chain(self.constants.iter().map(|constant| constant.resource)) {
            if resource >= resources {
                return bad("resource", resource, resources);
            }
        }
        let all = self.constants.iter().map(|constant| constant.bytes.len());
        if all.fold(0, usize::saturating_add) > self.size {
            return Err(Error::invalid("the constants of a VGF file overlap"));
        }
        for segment in &self.segments {
            if segment.module >= self.modules.len() {
                return bad("module", segment.module, self.modules.len());
            }
            for (_, constant) in &segment.constants {
                if *constant >= constants {
                    return bad("constant", *constant, constants);
                }
            }
        }
        Ok(())
    }
}

fn kind(number: u8) -> Result<SegmentKind, Error> {
    match number {
        0 => Ok(SegmentKind::Compute),
        1 => Ok(SegmentKind::Graph),
        other => Err(Error::Unsupported(format!("VGF module type {other}: expected 0 or 1"))),
    }
}

/// Reads the modules, also those of a section on its own.
///
/// # Errors
/// The section is malformed.
fn read_modules<'p>(section: &'p [u8], budget: &mut Budget) -> Result<Vec<Module<'p>>, Error> {
    if section.is_empty() {
        return Ok(Vec::new());
    }
    let mut modules = Vec::new();
    for module in budget.all(ModulesTable(Table::root(section)?).modules()?)? {
        let code = match (module.language()?, module.code()?) {
            (0, _) | (_, None) => Code::Absent,
            (1, Some(code)) => {
                let words = code.words()?.bytes();
                budget.spend(words.len())?;
                Code::SpirV(words)
            }
            (2, Some(code)) => Code::Glsl(budget.text(TextTable(code.0).text()?)?),
            (3, Some(code)) => Code::Hlsl(budget.text(TextTable(code.0).text()?)?),
            (other, _) => {
                return Err(Error::Unsupported(format!("VGF code type {other}: expected 1 to 3")));
            }
        };
        let (name, entry_point) =
            (budget.text(module.name()?)?, budget.text(module.entry_point()?)?);
        modules.push(Module { kind: kind(module.kind()?)?, name, entry_point, code });
    }
    Ok(modules)
}

fn slots(vector: Vector<'_, SlotTable<'_>>, budget: &mut Budget) -> Result<Vec<usize>, Error> {
    let slots = budget.all(vector)?.into_iter();
    slots.map(|slot| Ok(index(slot.resource()?))).collect()
}

fn texts<'p>(vector: Vector<'p, &'p str>, budget: &mut Budget) -> Result<Vec<&'p str>, Error> {
    budget.spend(vector.len().saturating_mul(<&str as Item<'_>>::SIZE))?;
    // Each string is counted before the next one is decoded.
    vector.iter().map(|text| budget.text(Some(text?))).collect()
}

fn read_segment<'p>(table: &SegmentTable<'p>, budget: &mut Budget) -> Result<Segment<'p>, Error> {
    let mut bindings = Vec::new();
    for (position, set) in (0..).zip(budget.all(table.sets()?)?) {
        let number = set.set()?.and_then(|number| u32::try_from(number).ok()).unwrap_or(position);
        for slot in budget.all(set.bindings()?)? {
            let (binding, resource) = (slot.binding()?, index(slot.resource()?));
            bindings.push(Binding { set: number, binding, resource });
        }
    }
    let listed = budget.all(table.constants()?)?;
    let mut constants = Vec::new();
    for binding in budget.all(table.constant_bindings()?)? {
        constants.push((binding.graph_constant()?, index(binding.constant()?)));
    }
    if constants.is_empty() {
        constants = (0..).zip(listed.into_iter().map(index)).collect();
    }
    let mut push_constants = Vec::new();
    for range in budget.all(table.push_constants()?)? {
        push_constants.push([range.offset()?, range.size()?]);
    }
    Ok(Segment {
        kind: kind(table.kind()?)?,
        name: budget.text(table.name()?)?,
        module: index(table.module()?),
        bindings,
        constants,
        dispatch_shape: budget.all(table.dispatch_shape()?)?,
        inputs: slots(table.inputs()?, budget)?,
        outputs: slots(table.outputs()?, budget)?,
        push_constants,
    })
}

fn read_resources(section: &[u8], budget: &mut Budget) -> Result<Vec<Resource>, Error> {
    if section.is_empty() {
        return Ok(Vec::new());
    }
    let mut resources = Vec::new();
    for table in budget.all(ResourcesTable(Table::root(section)?).resources()?)? {
        let category = match table.category()? {
            0 => Category::Input,
            1 => Category::Output,
            2 => Category::Intermediate,
            3 => Category::Constant,
            other => {
                return Err(Error::Unsupported(format!(
                    "VGF resource category {other}: expected 0 to 3"
                )));
            }
        };
        let description: Option<DescriptionTable<'_>> = table.description()?;
        let (mut shape, mut strides) = (Vec::new(), Vec::new());
        if let Some(description) = description {
            shape = budget.all(description.shape()?)?;
            strides = budget.all(description.strides()?)?;
        }
        let descriptor_type = Some(table.descriptor_type()?).filter(|it| *it != u32::MAX);
        let format = table.format()?;
        let sampler = match (table.extra()?, table.sampler()?) {
            (1, Some(it)) => {
                let [u, v] = [it.address_mode_u()?, it.address_mode_v()?];
                Some([it.min_filter()?, it.mag_filter()?, u, v, it.border_color()?])
            }
            _ => None,
        };
        let alias_group = table.alias_group()?.map(i32::cast_unsigned);
        let alias_group = alias_group.filter(|group| *group != u32::MAX);
        resources.push(Resource {
            category,
            format,
            descriptor_type,
            shape,
            strides,
            sampler,
            alias_group,
        });
    }
    Ok(resources)
}

fn read_constants<'p>(section: &'p [u8], budget: &mut Budget) -> Result<Vec<Constant<'p>>, Error> {
    let outside = || Error::invalid("a VGF constant exceeds its section");
    if section.is_empty() {
        return Ok(Vec::new());
    }
    let mut constants = Vec::new();
    if !section.starts_with(TABLE_MAGIC) {
        for table in budget.all(OldConstantsTable(Table::root(section)?).constants()?)? {
            let (resource, bytes) = (index(table.resource()?), table.raw()?.bytes());
            constants.push(Constant { resource, sparse_dim: None, bytes });
        }
        return Ok(constants);
    }
    let count = number(section, TABLE_MAGIC.len()).ok_or_else(outside)?;
    let data = count.checked_mul(TABLE_ENTRY).and_then(|size| size.checked_add(TABLE_HEADER));
    let data = data.filter(|data| *data <= section.len()).ok_or_else(outside)?;
    let entries = section.get(TABLE_HEADER..data).unwrap_or_default();
    for entry in entries.chunks_exact(TABLE_ENTRY) {
        let word = |at: usize| {
            let bytes = entry.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            u32::from_le_bytes(bytes.unwrap_or_default())
        };
        let (size, offset) = number(entry, 8).zip(number(entry, 16)).ok_or_else(outside)?;
        let start = data.checked_add(offset).ok_or_else(outside)?;
        let bytes = part(section, start, size).ok_or_else(outside)?;
        let sparse_dim = usize::try_from(word(4).cast_signed()).ok();
        constants.push(Constant { resource: index(word(0)), sparse_dim, bytes });
    }
    Ok(constants)
}
