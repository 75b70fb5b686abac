//! Arm's VGF files, version 0, as published in `ai-ml-sdk-vgf-library`. A header locates four
//! sections (modules, model sequence, resources, constants), each a flatbuffer. In newer files the
//! constants section is a table of offsets instead.

use super::{MOST_PARTS, Part, part, u32_at, u64_at};
use std::ops::Range;
use torchlet::core::format::Malformed;
use torchlet::core::format::flatbuffer::{Table, Vector};

torchlet::core::flatbuffer_table! { ModuleTable { 0 modules: Vector<'a, Module<'a>>, } }
torchlet::core::flatbuffer_table! {
    Module {
        0 kind: u8,
        1 name: &'a str,
        3 language: u8,
        4 code: Code<'a>,
    }
}
torchlet::core::flatbuffer_table! {
    /// SPIR-V words.
    Code { 0 words: Vector<'a, u32>, }
}
torchlet::core::flatbuffer_table! {
    /// GLSL or HLSL source.
    Text { 0 text: &'a str, }
}
torchlet::core::flatbuffer_table! { OldConstants { 0 data: Vector<'a, OldConstant<'a>>, } }
torchlet::core::flatbuffer_table! { OldConstant { 2 raw: Vector<'a, u8>, } }

/// Header offset of each section's position and size, and the section's file name.
const SECTIONS: [(usize, &str); 4] =
    [(16, "modules.fb"), (32, "sequence.fb"), (48, "resources.fb"), (64, "constants.section")];

/// Magic of a constants section that is a table.
const TABLE_MARK: &[u8] = b"CONST00\0";
const TABLE_HEADER: usize = 16;
const TABLE_ENTRY: usize = 24;

/// Returns the sections, the code modules and the constants.
pub(super) fn parts(bytes: &[u8]) -> Option<Vec<Part>> {
    let mut parts = Vec::new();
    for (at, name) in SECTIONS {
        let (start, size) = (u64_at(bytes, at)?, u64_at(bytes, at + 8)?);
        if size > 0 {
            parts.push(part(name, start, size, bytes.len())?);
        }
    }
    let section = |name: &str| {
        let found = parts.iter().find(|part| part.name == name);
        found.map(|part| part.range.clone()).unwrap_or_default()
    };
    let (modules, constants) = (section(SECTIONS[0].1), section(SECTIONS[3].1));
    // Sections that cannot be parsed are still extracted as a whole.
    let modules = self::modules(bytes, modules).unwrap_or_default();
    let constants = self::constants(bytes, constants).unwrap_or_default();
    parts.extend(modules.into_iter().chain(constants).take(MOST_PARTS));
    Some(parts)
}

/// The range of a slice of `container`.
fn range_of(container: &[u8], bytes: &[u8]) -> Option<Range<usize>> {
    let start = bytes.as_ptr().addr().checked_sub(container.as_ptr().addr())?;
    let end = start.checked_add(bytes.len()).filter(|end| *end <= container.len())?;
    Some(start..end)
}

fn modules(bytes: &[u8], section: Range<usize>) -> Result<Vec<Part>, Malformed> {
    let Some(table) = bytes.get(section).filter(|section| !section.is_empty()) else {
        return Ok(Vec::new());
    };
    let mut parts = Vec::new();
    for (number, module) in ModuleTable(Table::root(table)?).modules()?.iter().enumerate() {
        let module = module?;
        let Some(code) = module.code()? else { continue };
        let (code, ending) = match module.language()? {
            1 => (code.words()?.bytes(), "spv"),
            2 => (Text(code.0).text()?.unwrap_or("").as_bytes(), "glsl"),
            3 => (Text(code.0).text()?.unwrap_or("").as_bytes(), "hlsl"),
            _ => continue,
        };
        let kind = if module.kind()? == 1 { "graph" } else { "compute" };
        let name: String = module.name()?.unwrap_or("").chars().take(80).collect();
        let name = format!("modules/{number}_{kind}_{}.{ending}", name.replace(['/', '\\'], "_"));
        if let Some(range) = range_of(bytes, code).filter(|range| !range.is_empty()) {
            parts.push(Part { name, range });
        }
        if parts.len() == MOST_PARTS {
            break;
        }
    }
    Ok(parts)
}

fn constants(bytes: &[u8], section: Range<usize>) -> Option<Vec<Part>> {
    let table = bytes.get(section.clone())?;
    let name = |number: usize| format!("constants/{number}.bin");
    if table.starts_with(TABLE_MARK) {
        let count = u64_at(table, TABLE_MARK.len())?;
        let data = count.checked_mul(TABLE_ENTRY)?.checked_add(TABLE_HEADER)?;
        let mut parts = Vec::new();
        for number in 0..count.min(MOST_PARTS) {
            let entry = TABLE_HEADER + number * TABLE_ENTRY;
            let (size, offset) = (u64_at(table, entry + 8)?, u64_at(table, entry + 16)?);
            let start = section.start.checked_add(data)?.checked_add(offset)?;
            parts.push(part(name(u32_at(table, entry)?), start, size, section.end)?);
        }
        return Some(parts);
    }
    let table = OldConstants(Table::root(table).ok()?);
    let mut parts = Vec::new();
    for (number, constant) in table.data().ok()?.iter().take(MOST_PARTS).enumerate() {
        let raw = constant.ok()?.raw().ok()?;
        parts.push(Part { name: name(number), range: range_of(bytes, raw.bytes())? });
    }
    Some(parts)
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
        let mut table = TABLE_MARK.to_vec();
        table.extend(1u64.to_le_bytes());
        table.extend(7u32.to_le_bytes());
        table.extend((-1i32).to_le_bytes());
        table.extend(4u64.to_le_bytes());
        table.extend(2u64.to_le_bytes());
        table.extend([0, 0, 1, 2, 3, 4]);
        table
    }

    #[test]
    fn modules_and_constants_are_taken_out() {
        let bytes = file(&constants_table());
        let parts = parts(&bytes).unwrap();
        let names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
        let expected =
            ["modules.fb", "constants.section", "modules/0_graph_a_b.spv", "constants/7.bin"];
        assert_eq!(names, expected);
        assert_eq!(bytes[parts[2].range.clone()][..4], 0x0723_0203u32.to_le_bytes());
        assert_eq!(bytes[parts[3].range.clone()], [1, 2, 3, 4]);
    }

    #[test]
    fn damaged_files_have_parts_within_them() {
        let bytes = file(&constants_table());
        for place in 0..bytes.len() {
            for value in [0, 1, 0x7F, 0xFF] {
                let mut damaged = bytes.clone();
                damaged[place] = value;
                for bytes in [&damaged[..], &damaged[..place]] {
                    let found = parts(bytes).unwrap_or_default();
                    assert!(found.iter().all(|part| part.range.end <= bytes.len()));
                }
            }
        }
    }
}
