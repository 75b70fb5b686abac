//! Containers that say where their parts are in a few bytes at their front (or, Core ML's, at their
//! end). What is known of them is what ExecuTorch publishes, and OpenVINO of its own.

use super::{MOST_PARTS, Part, part, u32_at, u64_at};
use serde_json::Value;

/// The header of XNNPACK and Vulkan: where the graph is (32 bits each), and where constants are,
/// whose size has 64.
pub(super) fn with_header(bytes: &[u8]) -> Option<Vec<Part>> {
    let all = bytes.len();
    let graph = part("graph.fb", u32_at(bytes, 10)?, u32_at(bytes, 14)?, all)?;
    let constants = part("constants.bin", u32_at(bytes, 18)?, u64_at(bytes, 22)?, all);
    Some([Some(graph), constants].into_iter().flatten().collect())
}

/// That of MLX and MPS: a mark, then where constants are and how many bytes; the graph lies
/// between.
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

/// Blocks, each with a name of 16 bytes, a length, and padding to 16.
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

/// A header of 256 bytes, of which the size of what follows is known.
pub(super) fn qnn(bytes: &[u8]) -> Option<Vec<Part>> {
    Some(vec![part("context.bin", 256, u64_at(bytes, 12)?, bytes.len())?])
}

/// A version, numbers of inputs and outputs, and the size of what follows.
pub(super) fn mediatek(bytes: &[u8]) -> Option<Vec<Part>> {
    Some(vec![part("model.dla", 13, u32_at(bytes, 9)?, bytes.len())?])
}

/// A header (how many inputs, outputs and arguments, their layouts and order, a version), then
/// microcode, which says how long it and the weights are, weights and kernels; each at a multiple
/// of 16.
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

/// What OpenVINO's plugin for CPUs exports: in newer versions a text of what it needs, then six
/// numbers that say where its own data, constants and the model are, counted from there. The model
/// is XML, scrambled by default.
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

/// Names of named data, one a line: a shared library and weights of AOTInductor.
pub(super) fn aoti(bytes: &[u8]) -> Option<Vec<Part>> {
    let text = std::str::from_utf8(bytes).ok()?;
    let is_key = |line: &str| line.ends_with("_so_blob") || line.ends_with("_weights_blob");
    (!text.is_empty() && text.lines().all(is_key)).then_some(())?;
    super::whole("keys.txt", bytes)
}

/// Files, and at the end, written backwards, what they are called and where they lie.
pub(super) fn core_ml(bytes: &[u8]) -> Option<Vec<Part>> {
    let backwards = bytes.iter().rev().copied().collect::<Vec<u8>>();
    let metadata =
        serde_json::Deserializer::from_slice(&backwards).into_iter::<Value>().next()?.ok()?;
    let nodes = metadata["nodes"].as_array()?;
    let (mut parts, mut waiting) = (Vec::new(), vec![(0usize, String::new())]);
    // Files have names and bytes of their own: what lists say more than once could be without end.
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
