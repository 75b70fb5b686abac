//! Prefetching weights does not change results.

use crate::common::{Fixture, check, check_all, open, programs};
use crate::device::device_is_there;
use std::sync::Arc;
use torchlet::vulkan::VulkanBackend;
use torchlet::{Module, Profiler, RunOn};

#[test]
fn weights_are_prefetched() {
    if !device_is_there() {
        return;
    }
    let mut fixtures = programs();
    fixtures.retain(|fixture| fixture.file.starts_with("models/"));
    assert!(fixtures.len() > 10, "{} files", fixtures.len());
    let backend = Arc::new(VulkanBackend::builder().prefetch(true).build());
    let profiler = Arc::new(Profiler::new());
    let failures = check_all(&fixtures, |fixture: &Fixture| {
        let builder = Module::builder().threads(1).run_on(RunOn::Device("vulkan"));
        let builder = builder.event_tracer(profiler.clone());
        let source = open(fixture, builder.without_default_backends().backend(backend.clone()));
        let source = source.map_err(|error| error.to_string())?;
        check(&mut source.share(), &source, fixture).map(|_| ())
    });
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    let entries = profiler.entries();
    let read = entries.iter().filter(|entry| entry.name.starts_with("weights (prefetch)"));
    let read: u64 = read.map(|entry| entry.count).sum();
    assert!(read > 10, "{read} of {} parts", entries.len());
}
