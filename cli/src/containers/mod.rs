//! Container formats of delegate payloads, by vendor, and their parts.
//!
//! Payloads are untrusted: a part that exceeds its container is ignored.

mod vendors;
pub(crate) mod vgf;

use crate::failure::Failure;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::ops::Range;
use torchlet::Module;
use torchlet::core::DelegateInfo;
use vendors::{
    aoti, core_ml, mediatek, neutron, openvino, qnn, vela, with_constants_behind, with_header,
};

/// The payload of a delegate.
pub(crate) struct Container {
    pub(crate) method: String,
    pub(crate) delegate: usize,
    pub(crate) backend: String,
    /// The format's name.
    pub(crate) container: &'static str,
    pub(crate) bytes: usize,
    pub(crate) parts: Vec<Part>,
}

/// A part of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    /// Name, or path if the container is a folder.
    pub(crate) name: String,
    pub(crate) range: Range<usize>,
}

/// Maximum number of parts that are listed per container.
const MAX_PARTS: usize = 4096;

impl Container {
    pub(crate) fn object(&self) -> Value {
        let parts =
            self.parts.iter().map(|part| json!({ "name": part.name, "bytes": part.range.len() }));
        json!({
            "method": self.method,
            "delegate": self.delegate,
            "backend": self.backend,
            "container": self.container,
            "bytes": self.bytes,
            "parts": parts.collect::<Vec<_>>(),
        })
    }
}

/// Returns the containers of all delegates of a program.
pub(crate) fn of(module: &Module) -> Result<Vec<Container>, Failure> {
    let mut containers = Vec::new();
    each(module, |method, delegate, backend, bytes| {
        let (container, parts) = parts(backend, bytes);
        let (method, backend) = (method.to_owned(), backend.to_owned());
        containers.push(Container {
            method,
            delegate,
            backend,
            container,
            bytes: bytes.len(),
            parts,
        });
        Ok(())
    })?;
    Ok(containers)
}

/// Calls `visit` with the method, index, backend and payload of each delegate.
pub(crate) fn each(
    module: &Module,
    mut visit: impl FnMut(&str, usize, &str, &[u8]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let malformed = |error| Failure::new(format!("the file is malformed: {error}"));
    for method in module.method_names()? {
        let meta = module.method_meta(&method)?;
        for index in 0..meta.delegate_count() {
            let info = meta.delegate(index, module.data()).map_err(malformed)?;
            visit(&method, index, info.backend(), &bytes_of(&info)?)?;
        }
    }
    Ok(())
}

fn bytes_of<'p>(info: &DelegateInfo<'p>) -> Result<Cow<'p, [u8]>, Failure> {
    let blob = info.processed();
    if let Some(lent) = blob.lend() {
        return Ok(Cow::Borrowed(lent));
    }
    let mut bytes = vec![0; blob.size()];
    blob.read(0, &mut bytes).map_err(|error| Failure::new(error.to_string()))?;
    Ok(Cow::Owned(bytes))
}

fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn u32_at(bytes: &[u8], at: usize) -> Option<usize> {
    usize::try_from(u32::from_le_bytes(bytes_at(bytes, at)?)).ok()
}

fn u64_at(bytes: &[u8], at: usize) -> Option<usize> {
    usize::try_from(u64::from_le_bytes(bytes_at(bytes, at)?)).ok()
}

fn part(name: impl Into<String>, start: usize, len: usize, whole: usize) -> Option<Part> {
    let end = start.checked_add(len).filter(|end| *end <= whole)?;
    Some(Part { name: name.into(), range: start..end })
}

/// Identifies a payload: its format and its parts.
pub(crate) fn parts(backend: &str, bytes: &[u8]) -> (&'static str, Vec<Part>) {
    let identifier = bytes.get(4..8).unwrap_or_default();
    let (container, parts) = match identifier {
        b"XH00" => ("XNNPACK: graph (XN01) and constants", with_header(bytes)),
        b"VH00" => ("Vulkan: graph (VK00) and constants", with_header(bytes)),
        b"XN01" => ("XNNPACK: graph", whole("graph.xn01", bytes)),
        b"TLG1" => ("torchlet: compiled graph", whole("graph.tlg1", bytes)),
        b"MLX0" => ("MLX: graph and constants", with_constants_behind(bytes)),
        // Without a header, these four bytes are the identifier of the graph's flatbuffer.
        b"MP00" if bytes.starts_with(&[0; 4]) => {
            ("MPS: graph (MP00) and constants", with_constants_behind(bytes))
        }
        b"MP00" => ("MPS: graph (MP00)", whole("graph.fb", bytes)),
        b"TOSA" => ("TOSA: graph with its constants", whole("model.tosa", bytes)),
        _ if bytes.starts_with(b"vela_bin_stream\0") => {
            ("Ethos-U: stream of Vela blocks", vela(bytes))
        }
        _ if bytes.starts_with(b"CMJR") => {
            ("Core ML: reference to a model in named data", whole("reference.json", bytes))
        }
        _ if bytes.starts_with(&0x5678_ABCDu32.to_le_bytes()) => {
            ("Qualcomm: QNN context binary", qnn(bytes))
        }
        _ if backend == "CoreMLBackend" => ("Core ML: files in memory", core_ml(bytes)),
        _ if backend == "NeuropilotBackend" => ("MediaTek: compiled Neuron model", mediatek(bytes)),
        _ if bytes.starts_with(b"VGF1") || bytes.starts_with(&0xF0E1_D2C3u32.to_le_bytes()) => {
            ("Arm VGF: SPIR-V modules, target information, and constants", vgf::parts(bytes))
        }
        _ if backend == "NeutronBackend" => {
            ("Neutron: microcode, weights and kernels", neutron(bytes))
        }
        _ if backend == "OpenvinoBackend" => ("OpenVINO: exported model", openvino(bytes)),
        _ if backend == "EnnBackend" => ("Samsung: compiled ENN model", whole("model.nnc", bytes)),
        _ if backend == "CudaBackend" || backend == "MetalBackend" => {
            ("AOTInductor: names of a library and weights in named data", aoti(bytes))
        }
        _ => ("unknown format", None),
    };
    // Malformed payloads are still extracted, as one part.
    let parts = parts.filter(|parts| !parts.is_empty());
    (container, parts.or_else(|| whole("data.bin", bytes)).unwrap_or_default())
}

fn whole(name: &str, bytes: &[u8]) -> Option<Vec<Part>> {
    Some(vec![part(name, 0, bytes.len(), bytes.len())?])
}

/// Returns the hardware that a backend unsupported by torchlet requires.
pub(crate) fn needs(backend: &str) -> Option<&'static str> {
    Some(match backend {
        "CoreMLBackend" => "Apple's Core ML, on Macs, iPhones and iPads",
        "MPSBackend" | "MetalBackend" => "Apple's GPUs (Metal)",
        "MLXBackend" => "Apple's MLX, on Macs",
        "QnnBackend" => "Qualcomm's AI Engine, on Snapdragon processors",
        "NeuropilotBackend" => "MediaTek's NPUs, on Dimensity processors",
        "EnnBackend" => "Samsung's NPUs, on Exynos processors",
        "NeutronBackend" => "NXP's Neutron NPUs, on i.MX processors",
        "EthosUBackend" | "ArmBackend" => "Arm's Ethos-U NPUs, beside Cortex-M processors",
        "OpenvinoBackend" => "Intel's OpenVINO, on Intel's processors",
        "CudaBackend" => "NVIDIA's GPUs (AOTInductor)",
        "CadenceBackend" => "Cadence's DSPs",
        _ => return None,
    })
}

/// Suggests how to export the program instead, so that it runs here, on hardware close to the
/// intended one.
pub(crate) fn instead(backend: &str) -> &'static str {
    match backend {
        // These NPUs accompany microcontrollers.
        "EthosUBackend" | "ArmBackend" | "NeutronBackend" | "CadenceBackend" => {
            "To run it on the Cortex-M or other host processor, quantize it with \
             CortexMQuantizer, or export it without a partitioner"
        }
        "OpenvinoBackend" => {
            "To run it here, export it with XnnpackPartitioner or without a partitioner"
        }
        _ => {
            "To run it here, export it with VulkanPartitioner for GPUs, with XnnpackPartitioner, \
             or without a partitioner"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(backend: &str, bytes: &[u8]) -> Vec<(String, Range<usize>)> {
        parts(backend, bytes).1.into_iter().map(|part| (part.name, part.range)).collect()
    }

    fn block(name: &str, data: &[u8]) -> Vec<u8> {
        let mut bytes = name.as_bytes().to_vec();
        bytes.resize(16, 0);
        bytes.extend((data.len() as u32).to_le_bytes());
        bytes.resize(32, 0);
        bytes.extend(data);
        bytes.resize(bytes.len().next_multiple_of(16), 0);
        bytes
    }

    fn core_ml_file() -> Vec<u8> {
        let metadata = r#"{"nodes":[{"name":"root","kind":1,"children":{"Data":1,"Manifest.json":2}},
            {"name":"Data","kind":1,"children":{"model.mlmodel":3}},
            {"name":"Manifest.json","kind":0,"dataRegion":{"offset":0,"size":3}},
            {"name":"model.mlmodel","kind":0,"dataRegion":{"offset":64,"size":5}}]}"#;
        let mut bytes = b"{ }".to_vec();
        bytes.resize(64, 0);
        bytes.extend(b"model");
        bytes.resize(128, 0);
        bytes.extend(metadata.bytes().rev());
        bytes
    }

    /// A payload with one input and one output.
    fn neutron_file() -> Vec<u8> {
        let mut bytes = vec![1, 1, 1, 0, 1, 0, 0, 1];
        bytes.resize(16, 0);
        let words = [0x6443_4D6Eu32, 0, 0, 0, 0, 0, 40, 3, 0, 0];
        bytes.extend(words.into_iter().flat_map(u32::to_le_bytes));
        bytes.resize(64, 0);
        bytes.extend([1, 2, 3]);
        bytes.resize(80, 0);
        bytes.extend([9; 5]);
        bytes
    }

    #[test]
    fn containers_are_split_into_parts() {
        let stream = [
            block("vela_bin_stream", b""),
            block("cmd_data", &[7; 20]),
            block("weight_data", &[1; 16]),
            block("vela_end_stream", b""),
        ];
        let expected = [("cmd_data".to_owned(), 64..84), ("weight_data".to_owned(), 128..144)];
        assert_eq!(names("EthosUBackend", &stream.concat()), expected);
        let expected =
            [("Data/model.mlmodel".to_owned(), 64..69), ("Manifest.json".to_owned(), 0..3)];
        assert_eq!(names("CoreMLBackend", &core_ml_file()), expected);
        let mut qnn = 0x5678_ABCDu32.to_le_bytes().to_vec();
        qnn.extend([0; 8]);
        qnn.extend(4u64.to_le_bytes());
        qnn.resize(260, 9);
        assert_eq!(names("QnnBackend", &qnn), [("context.bin".to_owned(), 256..260)]);
        assert_eq!(names("NoBackend", b"abc"), [("data.bin".to_owned(), 0..3)]);
        let mut mps = b"\0\0\0\0MP00".to_vec();
        mps.extend([32u64, 16].into_iter().flat_map(u64::to_le_bytes));
        mps.resize(48, 5);
        let expected = [("graph.fb".to_owned(), 24..32), ("constants.bin".to_owned(), 32..48)];
        assert_eq!(names("MPSBackend", &mps), expected);
        let expected = [
            ("header.bin", 0..8),
            ("microcode.bin", 16..56),
            ("weights.bin", 64..67),
            ("kernels.bin", 80..85),
        ];
        let expected = expected.map(|(name, range)| (name.to_owned(), range));
        assert_eq!(names("NeutronBackend", &neutron_file()), expected);
        let mut openvino: Vec<u8> =
            [48u64, 0, 48, 4, 52, 6].into_iter().flat_map(u64::to_le_bytes).collect();
        openvino.extend(b"1234<net/>");
        let expected = [("constants.bin".to_owned(), 48..52), ("model.xml".to_owned(), 52..58)];
        assert_eq!(names("OpenvinoBackend", &openvino), expected);
        let mut newer = b"RR_UPCVO\x01\0\0\0".to_vec();
        newer.extend(3u64.to_le_bytes());
        newer.extend(b"isa");
        newer.extend(&openvino);
        let expected = [
            ("needs.txt".to_owned(), 20..23),
            ("constants.bin".to_owned(), 71..75),
            ("model.xml".to_owned(), 75..81),
        ];
        assert_eq!(names("OpenvinoBackend", &newer), expected);
        assert_eq!(names("CudaBackend", b"1f_so_blob\n2e_weights_blob")[0].0, "keys.txt");
    }

    #[test]
    fn parts_of_damaged_containers_are_in_bounds() {
        let stream = [block("vela_bin_stream", b""), block("cmd_data", &[7; 20])].concat();
        let files = [
            ("EthosUBackend", stream),
            ("CoreMLBackend", core_ml_file()),
            ("NeutronBackend", neutron_file()),
        ];
        for (backend, bytes) in files {
            for at in 0..bytes.len() {
                for value in [0, 0x7F, 0xFF] {
                    let mut damaged = bytes.clone();
                    damaged[at] = value;
                    for bytes in [&damaged[..], &damaged[..at]] {
                        let (_, found) = parts(backend, bytes);
                        assert!(found.iter().all(|part| part.range.end <= bytes.len()));
                    }
                }
            }
        }
    }

    #[test]
    fn nested_files_are_rejected() {
        let children: Vec<String> = (0..9).map(|at| format!("\"{at}\":0")).collect();
        let endless = format!("{{\"nodes\":[{{\"children\":{{{}}}}}]}}", children.join(","));
        let many =
            r#"{"nodes":[{"children":{"a":1,"b":1}},{"dataRegion":{"offset":0,"size":80}}]}"#;
        for metadata in [&endless[..], many] {
            let bytes: Vec<u8> = [0; 80].into_iter().chain(metadata.bytes().rev()).collect();
            let whole = [("data.bin".to_owned(), 0..bytes.len())];
            assert_eq!(names("CoreMLBackend", &bytes), whole, "{metadata}");
        }
    }
}
