//! Devices with lower limits than this one.

use crate::device::{device_is_there, on_device};
use std::sync::Arc;
use torchlet::vulkan::{VulkanBackend, VulkanBackendBuilder};
use torchlet::{ProfileKind, Profiler, Tensor};

/// Logits for some tokens, one at a time and several at once, and the names of all dispatches.
fn language_model(backend: VulkanBackendBuilder) -> (Vec<Vec<f32>>, Vec<String>) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/llm/model/vulkan_4bit.pte");
    let profiler = Arc::new(Profiler::new());
    let builder = on_device().backend(Arc::new(backend.build()));
    let mut module = builder.event_tracer(profiler.clone()).load(path).unwrap();
    let logits = [(0i64, 1i64), (1, 1), (2, 3), (5, 9), (14, 1), (15, 4)].map(|(first, count)| {
        let tokens = (first..first + count).map(|at| at * at % 61).collect();
        let tokens = Tensor::from_vec(&[1, count as usize], tokens).unwrap();
        let position = Tensor::from_vec(&[1], vec![first]).unwrap();
        let outputs = module.forward([&tokens, &position]).unwrap();
        outputs[0].tensor().unwrap().as_slice::<f32>().unwrap().to_vec()
    });
    let entries = profiler.entries();
    let commands = entries.iter().filter(|entry| entry.kind == ProfileKind::DelegatePart);
    (logits.to_vec(), commands.map(|entry| entry.name.clone()).collect())
}

/// Matrix multiplications with fused RoPE and cache writes bind nine buffers. With a limit of
/// eight, separate dispatches do that.
#[test]
fn rotary_fusion_respects_the_buffer_limit() {
    if !device_is_there() {
        return;
    }
    let ran = |names: &[String], shader: &str| names.iter().any(|name| name.contains(shader));
    let (expected, usual) = language_model(VulkanBackend::builder());
    if !ran(&usual, "(gemv_placed") {
        println!("not run: the device does not add up by subgroups");
        return;
    }
    for most in [8, 7] {
        let (found, names) = language_model(VulkanBackend::builder().storage_buffers(most));
        assert!(!ran(&names, "(gemv_placed"), "{names:?}");
        assert!(ran(&names, "(rotary") && ran(&names, "(gemv_"), "{names:?}");
        for (found, expected) in found.iter().zip(&expected) {
            let largest = expected.iter().fold(0.0f32, |most, it| most.max(it.abs()));
            assert_eq!(found.len(), expected.len());
            for (found, expected) in found.iter().zip(expected) {
                let near = (found - expected).abs() <= 0.001 * largest;
                assert!(near, "{most} buffers: {found}, {expected}");
            }
        }
    }
}
