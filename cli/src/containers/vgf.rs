//! Parts of Arm's VGF files, as the compiler's front end reads them.

use super::{MAX_PARTS, Part};
use std::ops::Range;
use torchlet::graph::front::vgf::{Code, Container, Module, SegmentKind, sections};

/// File name of a file as a whole.
const FILE: &str = "model.vgf";
/// File name of each section.
const SECTIONS: [&str; 4] = ["modules.fb", "sequence.fb", "resources.fb", "constants.section"];

/// Returns the file itself, the sections, the code modules and the constants.
pub(super) fn parts(bytes: &[u8]) -> Option<Vec<Part>> {
    let sections = sections(bytes).ok()?;
    let mut parts = vec![Part { name: FILE.to_owned(), range: 0..bytes.len() }];
    for (name, section) in SECTIONS.into_iter().zip(sections) {
        push(&mut parts, bytes, name.to_owned(), section);
    }
    // Sections that cannot be parsed are still extracted as a whole.
    let Ok(container) = Container::read(bytes) else { return Some(parts) };
    for (number, module) in container.modules.iter().enumerate() {
        let (code, ending) = code(module);
        let name: String = module.name.chars().take(80).collect();
        let name = name.replace(['/', '\\'], "_");
        let name = format!("modules/{number}_{}_{name}.{ending}", kind(module.kind));
        push(&mut parts, bytes, name, code);
    }
    for constant in &container.constants {
        push(&mut parts, bytes, format!("constants/{}.bin", constant.resource), constant.bytes);
    }
    Some(parts)
}

/// Adds a part, unless it is empty or there are too many.
fn push(parts: &mut Vec<Part>, container: &[u8], name: String, bytes: &[u8]) {
    if let Some(range) = range_of(container, bytes).filter(|range| !range.is_empty())
        && parts.len() < MAX_PARTS
    {
        parts.push(Part { name, range });
    }
}

/// The range of a slice of `container`.
fn range_of(container: &[u8], bytes: &[u8]) -> Option<Range<usize>> {
    let start = bytes.as_ptr().addr().checked_sub(container.as_ptr().addr())?;
    let end = start.checked_add(bytes.len()).filter(|end| *end <= container.len())?;
    Some(start..end)
}

/// The code of a module, and the ending of its file.
fn code<'p>(module: &Module<'p>) -> (&'p [u8], &'static str) {
    match module.code {
        Code::SpirV(bytes) => (bytes, "spv"),
        Code::Glsl(text) => (text.as_bytes(), "glsl"),
        Code::Hlsl(text) => (text.as_bytes(), "hlsl"),
        _ => (&[], ""),
    }
}

fn kind(kind: SegmentKind) -> &'static str {
    match kind {
        SegmentKind::Graph => "graph",
        SegmentKind::Compute => "compute",
    }
}

/// Maximum number of lines about each kind of part.
const MAX_LINES: usize = 40;

/// Describes modules, segments and resources, a line each; empty if the file cannot be read.
pub(crate) fn describe(bytes: &[u8]) -> Vec<String> {
    let Ok(container) = Container::read(bytes) else { return Vec::new() };
    let [major, minor, patch] = container.version;
    let mut lines = vec![format!("VGF {major}.{minor}.{patch}")];
    for (number, module) in container.modules.iter().enumerate().take(MAX_LINES) {
        let (code, ending) = code(module);
        let (kind, name) = (kind(module.kind), printable(module.name));
        lines.push(format!("module {number}  {kind} {name}, {} bytes of {ending}", code.len()));
    }
    for (number, segment) in container.segments.iter().enumerate().take(MAX_LINES) {
        let (kind, name) = (kind(segment.kind), printable(segment.name));
        let (bindings, constants) = (segment.bindings.len(), segment.constants.len());
        lines.push(format!(
            "segment {number}  {kind} {name} of module {}: {bindings} bindings, {constants} \
             constants",
            segment.module
        ));
    }
    for (number, resource) in container.resources.iter().enumerate().take(MAX_LINES) {
        let format = resource
            .format_name()
            .map_or_else(|| format!("format {}", resource.format), |name| name.to_owned());
        let shape: Vec<u64> = resource.shape.iter().copied().take(8).collect();
        let name = name(&container, number).map(|name| format!(" {name}")).unwrap_or_default();
        lines.push(format!(
            "resource {number}  {}{name} {format} {shape:?}",
            resource.category.name()
        ));
    }
    lines
}

/// The name of a resource that is an input or output of the model, if the file has one.
fn name(container: &Container<'_>, resource: usize) -> Option<String> {
    let inputs = container.inputs.iter().zip(&container.input_names);
    let mut named = inputs.chain(container.outputs.iter().zip(&container.output_names));
    named.find(|(slot, _)| **slot == resource).map(|(_, name)| printable(name))
}

/// The start of a name, without control characters.
fn printable(name: &str) -> String {
    name.chars().filter(|letter| !letter.is_control()).take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A modules section with one graph module, encoded by hand: table, vector, table with a union.
    pub(crate) const MODULES: &[u32] = &[
        // Root offset; vtable (6 of 8 bytes); the table: offset of its vtable, offset of the
        // vector.
        12,
        0,
        0x0008_0006,
        0x0000_0004,
        8,
        4,
        1,
        24, // 32: the vector's only offset leads to 52.
        // Module's vtable at 32: 14 bytes, for a table of 20: kind at 4, name at 8, no entry point,
        // language at 5, code at 12.
        0x0014_000E,
        0x0008_0004,
        0x0005_0000,
        0x0000_000C,
        0,
        // 52: the module table: vtable offset, kind 1 and language 1, name, code.
        20,
        0x0000_0101,
        12,
        20,
        0,
        // 72: the name "a/b". 80: the vtable of the code. 88: its table, followed by the words.
        3,
        0x0062_2F61,
        0x0008_0006,
        0x0000_0004,
        8,
        4,
        2,
        0x0723_0203,
        0x0001_0000,
    ];

    fn file(constants: &[u8]) -> Vec<u8> {
        let modules: Vec<u8> = MODULES.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut bytes = b"VGF1".to_vec();
        bytes.resize(16, 0);
        let second = 128 + modules.len() as u64;
        let sections =
            [(128, modules.len() as u64), (0, 0), (0, 0), (second, constants.len() as u64)];
        for (start, size) in sections {
            bytes.extend(u64::to_le_bytes(start));
            bytes.extend(u64::to_le_bytes(size));
        }
        bytes.resize(128, 0);
        bytes.extend(modules);
        bytes.extend(constants);
        bytes
    }

    fn constants_table() -> Vec<u8> {
        let mut table = b"CONST00\0".to_vec();
        table.extend(1u64.to_le_bytes());
        table.extend(7u32.to_le_bytes());
        table.extend((-1i32).to_le_bytes());
        table.extend(4u64.to_le_bytes());
        table.extend(2u64.to_le_bytes());
        table.extend([0, 0, 1, 2, 3, 4]);
        table
    }

    #[test]
    fn modules_and_constants_are_extracted() {
        let bytes = file(&constants_table());
        let parts = parts(&bytes).unwrap();
        let names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
        let expected = [
            "model.vgf",
            "modules.fb",
            "constants.section",
            "modules/0_graph_a_b.spv",
            "constants/7.bin",
        ];
        assert_eq!(names, expected);
        assert_eq!(parts[0].range, 0..bytes.len());
        assert_eq!(bytes[parts[3].range.clone()][..4], 0x0723_0203u32.to_le_bytes());
        assert_eq!(bytes[parts[4].range.clone()], [1, 2, 3, 4]);
    }

    #[test]
    fn parts_of_damaged_files_are_in_bounds() {
        let bytes = file(&constants_table());
        for at in 0..bytes.len() {
            for value in [0, 1, 0x7F, 0xFF] {
                let mut damaged = bytes.clone();
                damaged[at] = value;
                for bytes in [&damaged[..], &damaged[..at]] {
                    let found = parts(bytes).unwrap_or_default();
                    assert!(found.iter().all(|part| part.range.end <= bytes.len()));
                }
            }
        }
    }
}
