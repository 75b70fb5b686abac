//! Autotuning: calls with several kernel variants, and the selection of the fastest.

use crate::common::{Fixture, check, fixture, open};
use crate::device::device_is_there;
use crate::fixtures::check_delegated;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use torchlet::vulkan::{VulkanBackend, VulkanBackendBuilder};
use torchlet::{Module, RunOn};

/// Maximum number of variants of a call here; with cooperative matrices, there are more.
const VARIANTS: u8 = 11;

/// Matrix multiplications with and without tiles, wide and direct convolutions, depthwise
/// convolutions and their epilogues, attention. fp16 uses the same variants.
fn has_variants(fixture: &Fixture) -> bool {
    let folders = ["/product/", "/tiled/", "/convolution/", "/separable/", "/attention/"];
    folders.iter().any(|folder| fixture.file.contains(folder)) && !fixture.file.contains("fp16")
}

/// Every variant is correct, on small devices and on large ones.
#[test]
fn all_variants_are_correct() {
    if !device_is_there() {
        return;
    }
    for variant in 1..VARIANTS {
        let busy = if variant % 2 == 0 { 160 } else { 1 << 16 };
        let backend =
            VulkanBackend::builder().busy_invocations(busy).force_variant(variant).build();
        let cases = check_delegated(backend, has_variants);
        assert!(cases > 40, "{cases} cases");
    }
}

/// A temporary folder, removed on drop.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Folder {
    /// Contents of the file with the tuning results.
    fn found(&self) -> Option<Vec<u8>> {
        let files = std::fs::read_dir(&self.0).ok()?.flatten();
        let mut files =
            files.filter(|file| file.path().extension().is_some_and(|it| it == "choices"));
        std::fs::read(files.next()?.path()).ok()
    }
}

fn run(backend: VulkanBackendBuilder, fixture: &Fixture) {
    let builder =
        Module::builder().threads(1).run_on(RunOn::Device("vulkan")).without_default_backends();
    let source = open(fixture, builder.backend(Arc::new(backend.build()))).unwrap();
    check(&mut source.share(), &source, fixture).unwrap();
}

/// Programs are measured once: later loads, also in other processes, reuse the results, and outputs
/// stay the same.
#[test]
fn tuning_results_are_kept_and_correct() {
    if !device_is_there() {
        return;
    }
    let folder = std::env::temp_dir().join(format!("torchlet-tuning-{}", std::process::id()));
    let folder = Folder(folder);
    let backend = || VulkanBackend::builder().pipeline_cache(&folder.0).busy_invocations(160);
    let measured = || backend().tune(Duration::from_secs(600));
    // With state, which measuring must not change; with weights; and with dynamic shapes, for which
    // nothing is measured.
    let files = ["product/mm_dynamic", "program/running_sum", "model/residual"];
    let fixtures = files.map(|file| fixture(&format!("vulkan/{file}.bpte")));
    fixtures.iter().for_each(|fixture| run(backend(), fixture));
    assert_eq!(folder.found(), None, "nothing was to be measured");
    fixtures.iter().for_each(|fixture| run(measured(), fixture));
    let found = folder.found().expect("what was found");
    fixtures.iter().for_each(|fixture| run(measured(), fixture));
    fixtures.iter().for_each(|fixture| run(backend(), fixture));
    assert_eq!(folder.found(), Some(found), "nothing is left to be measured");
}
