//! Operator names of other exporter versions.

use crate::blob::{Blob, Site};
use crate::common::{check, fixture, folder};
use crate::device::device_is_there;
use torchlet::Module;

/// A fixture, an operator name in it, and an equivalent name that is not longer.
const SAME: &[(&str, &str, &str)] = &[
    ("vulkan/reading/select.bpte", "aten.select_copy.int", "aten.select.int"),
    ("vulkan/reading/slice.bpte", "aten.slice_copy.Tensor", "aten.slice.Tensor"),
    ("vulkan/move/permute.bpte", "aten.permute_copy.default", "aten.permute.default"),
    (
        "vulkan/convolution/conv2d_relu.bpte",
        "et_vk.conv_with_clamp.default",
        "conv_with_clamp.default",
    ),
    (
        "vulkan/quantized_linear/q4gsw.bpte",
        "et_vk.linear_q4gsw.default",
        "et_vk.q4gsw_linear.default",
    ),
    (
        "vulkan/convolution/conv2d_hardtanh.bpte",
        "et_vk.conv_with_clamp.default",
        "et_vk.conv2d_gemm.default",
    ),
    (
        "vulkan/quantized_layers/linear_one.bpte",
        "et_vk.q8ta_linear_gemv.default",
        "et_vk.q8ta_linear.default",
    ),
];

#[test]
fn old_operator_names_are_equivalent() {
    if !device_is_there() {
        return;
    }
    for (file, name, other) in SAME {
        let fixture = fixture(file);
        let mut bytes = std::fs::read(folder().join(file)).unwrap();
        let mut renamed = 0;
        for blob in Blob::find(&bytes) {
            for site in &blob.sites {
                let Site::Name(at) = *site else { continue };
                if bytes[at + 4..].starts_with(name.as_bytes()) {
                    bytes[at..at + 4].copy_from_slice(&(other.len() as u32).to_le_bytes());
                    bytes[at + 4..][..other.len()].copy_from_slice(other.as_bytes());
                    bytes[at + 4 + other.len()] = 0;
                    renamed += 1;
                }
            }
        }
        assert!(renamed > 0, "{file} does not call {name}");
        let source = Module::from_bytes(bytes).unwrap();
        check(&mut source.share(), &source, &fixture)
            .unwrap_or_else(|what| panic!("{file} with {other}: {what}"));
    }
}
