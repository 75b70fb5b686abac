//! Upload paths of weights to the device.

use crate::common::{Fixture, check, fixture, open};
use crate::device::{device_is_there, on_device};
use crate::fixtures::check_delegated;
use std::sync::Arc;
use torchlet::Tensor;
use torchlet::vulkan::{Upload, VulkanBackend, VulkanBackendBuilder};

/// The upload paths, and whether each uses a transfer queue. Without a dedicated one, the compute
/// queue can take its role.
fn upload_paths() -> [(VulkanBackendBuilder, Option<bool>); 4] {
    let builder = VulkanBackend::builder;
    [
        (builder().upload(Upload::Host).transfer_on_compute_queue(), None),
        (builder().upload(Upload::Copy).transfer_on_compute_queue(), Some(false)),
        // Depends on whether the device has a transfer queue.
        (builder().upload(Upload::Transfer), None),
        (builder().upload(Upload::Transfer).transfer_on_compute_queue(), Some(true)),
    ]
}

/// Concatenated logits of a prompt and the following tokens.
fn logits(backend: Arc<VulkanBackend>) -> Vec<f32> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/llm/model/vulkan_4bit.pte");
    let mut module = on_device().backend(backend).load(path).unwrap();
    let mut all = Vec::new();
    for (first, count) in [(0i64, 24i64), (24, 1), (25, 1)] {
        let tokens = (first..first + count).map(|at| at * at % 61).collect();
        let tokens = Tensor::from_vec(&[1, count as usize], tokens).unwrap();
        let position = Tensor::from_vec(&[1], vec![first]).unwrap();
        let outputs = module.forward([&tokens, &position]).unwrap();
        all.extend_from_slice(outputs[0].tensor().unwrap().as_slice::<f32>().unwrap());
    }
    all
}

#[test]
fn all_upload_paths_are_equivalent() {
    if !device_is_there() {
        return;
    }
    let expected = logits(Arc::new(VulkanBackend::new()));
    for (builder, by_queue) in upload_paths() {
        let what = format!("{builder:?}");
        let backend = Arc::new(builder.build());
        assert!(logits(backend.clone()) == expected, "{what}");
        if let Some(by_queue) = by_queue {
            assert_eq!(backend.transfers() > 0, by_queue, "{what}");
        }
    }
}

/// Also for buffers that are written later and reset to their initial contents.
#[test]
fn transfer_queue_uploads_state_and_constants() {
    if !device_is_there() {
        return;
    }
    let backend = || {
        let [.., (builder, _)] = upload_paths();
        builder.build()
    };
    let wanted = |file: &Fixture| file.kind == "model" || file.file.contains("/program/");
    let cases = check_delegated(backend(), wanted);
    assert!(cases > 10, "{cases} cases");
    for file in ["vulkan/program/running_sum.bpte", "vulkan/state/linear.bpte"] {
        let (fixture, backend) = (fixture(file), Arc::new(backend()));
        let source = open(&fixture, on_device().backend(backend.clone())).unwrap();
        let mut module = source.share();
        for turn in 0..3 {
            check(&mut module, &source, &fixture)
                .unwrap_or_else(|what| panic!("{file}, turn {turn}: {what}"));
            let before = backend.transfers();
            module.reset("forward").unwrap();
            assert!(backend.transfers() > before, "{file}, turn {turn}");
        }
    }
}
