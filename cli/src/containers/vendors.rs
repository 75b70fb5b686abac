//! Containers with a small index at their start, or, for Core ML, at their end. Formats are as
//! ExecuTorch and OpenVINO publish them.

use super::{MOST_PARTS, Part, part, u32_at, u64_at};
use serde_json::Value;

/// XNNPACK and Vulkan: a header with offset and size of the graph (32 bits each), and offset (32
/// bits) and size (64 bits) of the constants.
pub(super) fn with_header(bytes: &[u8]) -> Option<Vec<Part>> {
    let all = bytes.len();
    let graph = part("graph.fb", u32_at(bytes, 10)?, u32_at(bytes, 14)?, all)?;
    let constants = part("constants.bin", u32_at(bytes, 18)?, u64_at(bytes, 22)?, all);
    Some([Some(graph), constants].into_iter().flatten().collect())
}

/// MLX and MPS: an identifier, then offset and size of the constants; the graph lies before them.
pub(super) fn with_constants_behind(bytes: &[u8]) -> Option<Vec<Part>> {
    const HEADER: usize = 24;
    let (start, size) = (u64_at(bytes, 8)?, u64_at(bytes, 16)?);
    let graph = part("graph.fb", HEADER, start.checked_sub(HEADER)?, bytes.len())?;
    let constants = part("constants.bin", start, size, bytes.len());
    Some(
        [Some(graph), constants.filter(|part| !part.range.is_empty())]
            .into_iter()
            .flatten()
            .collect(),
    )
}

/// Vela (Ethos-U): blocks, each with a name of 16 bytes and a length, padded to 16 bytes.
pub(super) fn vela(bytes: &[u8]) -> Option<Vec<Part>> {
    const HEADER: usize = 32;
    let (mut at, mut parts) = (0usize, Vec::new());
    while let Some(name) = super::number::<16>(bytes, at) {
        let length = u32_at(bytes, at + 16)?;
        let name = String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned();
        if name == "vela_end_stream" || parts.len() == MOST_PARTS {
            break;
        }
        let start = at.checked_add(HEADER)?;
        if length > 0 {
            parts.push(part(name, start, length, bytes.len())?);
        }
        at = start.checked_add(length.checked_next_multiple_of(16)?)?;
    }
    Some(parts)
}

/// QNN: a header of 256 bytes, of which only the size of the context binary is known.
pub(super) fn qnn(bytes: &[u8]) -> Option<Vec<Part>> {
    Some(vec![part("context.bin", 256, u64_at(bytes, 12)?, bytes.len())?])
}

/// MediaTek: a version, numbers of inputs and outputs, and the size of the model that follows.
pub(super) fn mediatek(bytes: &[u8]) -> Option<Vec<Part>> {
    Some(vec![part("model.dla", 13, u32_at(bytes, 9)?, bytes.len())?])
}

/// Neutron: a header (numbers of inputs, outputs and arguments, their layouts and order, a
/// version), then microcode, weights and kernels, each aligned to 16 bytes. The microcode states
/// its own size and that of the weights.
pub(super) fn neutron(bytes: &[u8]) -> Option<Vec<Part>> {
    const MICROCODE: u32 = 0x6443_4D6E;
    let [inputs, outputs] = [*bytes.first()?, *bytes.get(1)?].map(usize::from);
    let header = 4 + 2 * inputs + 2 * outputs;
    let start = header.next_multiple_of(16);
    if u32_at(bytes, start)? != MICROCODE as usize {
        return None;
    }
    let (microcode, weights) = (u32_at(bytes, start + 24)?, u32_at(bytes, start + 28)?);
    let second = start.checked_add(microcode.checked_next_multiple_of(16)?)?;
    let third = second.checked_add(weights.checked_next_multiple_of(16)?)?;
    let all = bytes.len();
    let parts = [
        part("header.bin", 0, header, all)?,
        part("microcode.bin", start, microcode, all)?,
        part("weights.bin", second, weights, all)?,
        part("kernels.bin", third, all.checked_sub(third)?, all)?,
    ];
    Some(parts.into_iter().filter(|part| !part.range.is_empty()).collect())
}

/// OpenVINO, as its CPU plugin exports a model. Newer versions start with a text of requirements.
/// Then follow offset and size of custom data, constants and the model, relative to the start of
/// that table. The model is XML, scrambled by default.
pub(super) fn openvino(bytes: &[u8]) -> Option<Vec<Part>> {
    const NEEDS: &[u8] = b"RR_UPCVO";
    const NUMBERS: usize = 48;
    let mut parts = Vec::new();
    let base = if bytes.starts_with(NEEDS) {
        let needs = part("needs.txt", 20, u64_at(bytes, 12)?, bytes.len())?;
        let end = needs.range.end;
        parts.push(needs);
        end
    } else {
        0
    };
    let mut end = base.checked_add(NUMBERS)?;
    for (number, name) in ["custom.xml", "constants.bin", "model"].into_iter().enumerate() {
        let at = base.checked_add(16 * number)?;
        let (start, size) = (base.checked_add(u64_at(bytes, at)?)?, u64_at(bytes, at + 8)?);
        if start < end {
            return None;
        }
        let mut found = part(name, start, size, bytes.len())?;
        end = found.range.end;
        if name == "model" {
            let is_xml = bytes.get(start) == Some(&b'<');
            found.name.push_str(if is_xml { ".xml" } else { ".scrambled" });
        }
        parts.push(found);
    }
    parts.retain(|part| !part.range.is_empty());
    Some(parts)
}

/// AOTInductor: keys of named data, one per line: a shared library and its weights.
pub(super) fn aoti(bytes: &[u8]) -> Option<Vec<Part>> {
    let text = std::str::from_utf8(bytes).ok()?;
    let is_key = |line: &str| line.ends_with("_so_blob") || line.ends_with("_weights_blob");
    (!text.is_empty() && text.lines().all(is_key)).then_some(())?;
    super::whole("keys.txt", bytes)
}

/// Core ML: files, followed by JSON metadata with their names, offsets and sizes, stored backwards.
pub(super) fn core_ml(bytes: &[u8]) -> Option<Vec<Part>> {
    let backwards = bytes.iter().rev().copied().collect::<Vec<u8>>();
    let metadata =
        serde_json::Deserializer::from_slice(&backwards).into_iter::<Value>().next()?.ok()?;
    let nodes = metadata["nodes"].as_array()?;
    let (mut parts, mut waiting) = (Vec::new(), vec![(0usize, String::new())]);
    // Bounds the sums of name lengths and file sizes: metadata that refers to nodes repeatedly
    // could expand without limit.
    let (mut names, mut left) = (backwards.len(), bytes.len());
    while let Some((index, path)) = waiting.pop() {
        let node = nodes.get(index)?;
        let region = &node["dataRegion"];
        let size = |key: &str| region[key].as_u64().and_then(|size| usize::try_from(size).ok());
        match (node["children"].as_object(), size("offset"), size("size")) {
            (Some(children), ..) if !children.is_empty() => {
                for (name, child) in children {
                    let child = child.as_u64().and_then(|child| usize::try_from(child).ok())?;
                    let path =
                        if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
                    names = names.checked_sub(path.len() + 1)?;
                    waiting.push((child, path));
                }
            }
            (_, Some(start), Some(size)) if size > 0 => {
                left = left.checked_sub(size)?;
                parts.extend(part(path, start, size, bytes.len()));
            }
            _ => {}
        }
    }
    parts.sort_by(|a, b| a.name.cmp(&b.name));
    Some(parts)
}
