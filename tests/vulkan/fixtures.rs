//! All Vulkan fixtures match PyTorch's outputs, and cover the operators.

use crate::common::{Fixture, check, check_all, fixtures, open};
use crate::device::{device_is_there, on_device};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use torchlet::vulkan::{DeviceFeature, VulkanBackend, devices};

/// Fixtures with Vulkan delegates.
pub(crate) fn delegated() -> Vec<Fixture> {
    let needs = |fixture: &Fixture| fixture.backends.iter().any(|name| name == "VulkanBackend");
    fixtures().into_iter().filter(needs).collect()
}

/// Checks the fixtures that match `wanted` against PyTorch's outputs. Returns the number of test
/// cases.
pub(crate) fn check_delegated(backend: VulkanBackend, wanted: fn(&Fixture) -> bool) -> usize {
    let mut fixtures = delegated();
    assert!(fixtures.len() > 400, "the manifest lists {} files for Vulkan", fixtures.len());
    fixtures.retain(wanted);
    let cases = AtomicUsize::new(0);
    let backend = Arc::new(backend);
    let failures = check_all(&fixtures, |fixture| {
        let builder = on_device().backend(backend.clone()).threads(1);
        let module = open(fixture, builder).map_err(|e| e.to_string())?;
        cases.fetch_add(check(&mut module.share(), &module, fixture)?, Ordering::Relaxed);
        Ok(())
    });
    assert!(failures.is_empty(), "{} files differ:\n{}", failures.len(), failures.join("\n"));
    println!("{} files", fixtures.len());
    cases.into_inner()
}

#[test]
fn outputs_match_pytorch() {
    if device_is_there() {
        println!("{} cases", check_delegated(VulkanBackend::new(), |_| true));
    }
}

/// Devices limit the number of workgroups in each dim, here to two. Further workgroups
/// continue in the next dim, and further batches in another dispatch.
#[test]
fn workgroups_fold_into_the_next_dimension() {
    if device_is_there() {
        let backend = VulkanBackend::builder().fold_workgroups_at(2).build();
        println!("{} cases", check_delegated(backend, |_| true));
    }
}

/// Simulates more parallel invocations: a software device has few, and would never select tiled
/// kernels.
#[test]
fn wide_convolutions_and_large_gemms_are_tiled() {
    if device_is_there() {
        let backend = VulkanBackend::builder().busy_invocations(160).build();
        let wanted = |fixture: &Fixture| {
            fixture.file.contains("/convolution/") || fixture.file.contains("/tiled/")
        };
        let cases = check_delegated(backend, wanted);
        assert!(cases > 40, "{cases} cases");
    }
}

/// Large GPUs use other kernels for small shapes than software devices, and others again when
/// shapes change.
#[test]
fn kernels_of_large_devices_are_correct() {
    if device_is_there() {
        let backend = VulkanBackend::builder().busy_invocations(1 << 16).build();
        let cases = check_delegated(backend, |fixture| fixture.kind != "model");
        assert!(cases > 500, "{cases} cases");
    }
}

/// One fixture for each kind of kernel with variants for device features: matrix multiplication,
/// convolution, attention, row reductions, recurrent layers, quantized values.
const VARIED: &[&str] = &[
    "attention/causal_long_fp16",
    "attention/rows",
    "attention/rows_fp16",
    "convolution/conv2d_depthwise",
    "convolution/conv2d_depthwise_fp16",
    "convolution/conv2d_pointwise_fp16",
    "feed_forward/floats_fp16",
    "feed_forward/rows_fp16",
    "long_rows/q4gsw_fp16",
    "normalization/layer_norm_long",
    "normed_products/three_fp16",
    "normed_sums/post_norm_fp16",
    "normed_sums/turns",
    "product/mm_fp16",
    "product/mm_odd",
    "product/mm_row_fp16",
    "quantized_codes/by_row",
    "quantized_linear/dq8ca_q4gsw",
    "quantized_linear/q4gsw_fp16",
    "quantized_linear/q4gsw_many_fp16",
    "quantized_places/separable",
    "recurrent/gru",
    "recurrent/lstm_fp16",
    "rotary/one_position",
    "softmax/softmax_long",
    "tiled/convolution_fp16",
    "tiled/linear_fp16",
    "transposed/transposed_fp16",
];

/// Disables each available feature in turn, with kernels chosen as for a GPU: other kernels yield
/// PyTorch's outputs.
#[test]
fn each_feature_can_be_missing() {
    if !device_is_there() {
        return;
    }
    // Features that no shader uses affect no kernel.
    let of_host = [
        DeviceFeature::TimelineSemaphore,
        DeviceFeature::MemoryBudget,
        DeviceFeature::CalibratedTimestamps,
        DeviceFeature::ShaderIdentifiers,
    ];
    let varied = |fixture: &Fixture| VARIED.iter().any(|name| is_named(fixture, name));
    let there = delegated().into_iter().filter(varied).count();
    assert_eq!(there, VARIED.len(), "files that the manifest lists");
    let found = devices().unwrap();
    let features = found.iter().flat_map(|device| device.features.iter());
    let features: BTreeSet<&str> =
        features.filter(|it| !of_host.contains(it)).map(DeviceFeature::name).collect();
    for feature in DeviceFeature::ALL.iter().filter(|it| features.contains(it.name())) {
        println!("without {}", feature.name());
        let backend = VulkanBackend::builder().disable(*feature).busy_invocations(1 << 16);
        check_delegated(backend.build(), varied);
    }
}

/// Whether this is the fixture with a family and name.
fn is_named(fixture: &Fixture, name: &str) -> bool {
    fixture.file.strip_suffix(".bpte").is_some_and(|file| file.ends_with(&format!("vulkan/{name}")))
}

/// Names of the operators that the public sources declare for delegated graphs.
fn declared() -> BTreeSet<&'static str> {
    let list = include_str!("../../gpu/src/ops/names.txt");
    list.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
}

/// Operators without a fixture, since the current exporter never emits them: old names, names of
/// its own tests, and operators that its passes always replace.
const NOT_EXPORTED: &[&str] = &[
    "aten.hardshrink.default",
    "aten.hardsigmoid.default",
    "aten.max_pool2d.default",
    "aten.ones.default",
    "aten.ones_like.default",
    "aten.permute.default",
    "aten.relu6.default",
    "aten.repeat_interleave.self_int",
    "aten.scalar_tensor.default",
    "aten.select.int",
    "aten.slice.Tensor",
    "aten.tan.default",
    "aten.var.dim",
    "aten.zeros.default",
    "aten.zeros_like.default",
    "conv_with_clamp.default",
    "et_vk.adamw_step.default",
    "et_vk.conv1d_dw.default",
    "et_vk.conv1d_pw.default",
    "et_vk.conv2d_gemm.default",
    "et_vk.conv2d_q8csw.default",
    "et_vk.conv2d_q8ta_q8csw.default",
    "et_vk.conv2d_q8ta_q8csw_q8to.default",
    "et_vk.conv2d_q8ta_q8csw_q8to_dw.default",
    "et_vk.linear_q4gsw_backward.default",
    "et_vk.linear_q8csw.default",
    "et_vk.linear_q8ta_q8csw.default",
    "et_vk.q4gsw_linear.default",
    "et_vk.q4gsw_requant.default",
    "et_vk.q8ta_conv2d_general.default",
    "et_vk.q8ta_conv2d_im2col.default",
    "etvk.choose_qparams_per_row.default",
    "etvk.test_conv2d_q8ta_q8csw_q8to.default",
    "floordiv",
    "llama.custom_sdpa.default",
    "testing.compute_attn_weight_with_kv_cache.default",
];

#[test]
fn every_operator_has_a_fixture() {
    let called: BTreeSet<String> =
        delegated().into_iter().flat_map(|fixture| fixture.delegated).collect();
    let without: Vec<&str> =
        declared().into_iter().filter(|name| !called.contains(*name)).collect();
    assert_eq!(without, NOT_EXPORTED, "operators that no fixture calls");
}
