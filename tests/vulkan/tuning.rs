//! Calls that can be computed in several ways, and which of these are found to be the fastest.

use crate::common::{Fixture, check, fixture, open};
use crate::device::device_is_there;
use crate::fixtures::check_delegated;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use torchlet::vulkan::{VulkanBackend, VulkanBackendBuilder};
use torchlet::{Module, RunOn};

/// The most ways that a call has, here: where subgroups multiply matrices, there are more.
const WAYS: u8 = 11;

/// Products in tiles and without, wide and direct convolutions, depthwise ones and what is behind
/// these, attention. Halves go the same ways.
fn has_ways(fixture: &Fixture) -> bool {
    let folders = ["/product/", "/tiled/", "/convolution/", "/separable/", "/attention/"];
    folders.iter().any(|folder| fixture.file.contains(folder)) && !fixture.file.contains("fp16")
}

/// Whatever way is the fastest somewhere, it is right: on devices that few invocations keep busy,
/// and on large ones.
#[test]
fn all_ways_are_right() {
    if !device_is_there() {
        return;
    }
    for way in 1..WAYS {
        let busy = if way % 2 == 0 { 160 } else { 1 << 16 };
        let backend = VulkanBackend::builder().busy_invocations(busy).go_way(way).build();
        let cases = check_delegated(backend, has_ways);
        assert!(cases > 40, "{cases} cases");
    }
}

/// A folder that is gone at the end of its test.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Folder {
    /// What is in the file of what was found.
    fn found(&self) -> Option<Vec<u8>> {
        let files = std::fs::read_dir(&self.0).ok()?.flatten();
        let mut files =
            files.filter(|file| file.path().extension().is_some_and(|it| it == "choices"));
        std::fs::read(files.next()?.path()).ok()
    }
}

fn run(backend: VulkanBackendBuilder, fixture: &Fixture) {
    let builder = Module::builder().threads(1).run_on(RunOn::Vulkan).without_default_backends();
    let source = open(fixture, builder.backend(Arc::new(backend.build()))).unwrap();
    check(&mut source.share(), &source, fixture).unwrap();
}

/// Programs are measured once: what was found serves later loads, in other processes too, and
/// results stay what they are.
#[test]
fn what_was_found_is_right_and_remembered() {
    if !device_is_there() {
        return;
    }
    let folder = std::env::temp_dir().join(format!("torchlet-tuning-{}", std::process::id()));
    let folder = Folder(folder);
    let backend = || VulkanBackend::builder().pipeline_cache(&folder.0).busy_invocations(160);
    let measured = || backend().tune(Duration::from_secs(600));
    // With state, which measuring must not change; with weights; with shapes that vary, for which
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
