//! 3-d convolutions run without copying planes, with every kernel variant.

use crate::common::{Fixture, check, check_all, open, programs};
use crate::device::device_is_there;
use std::sync::Arc;
use torchlet::graph::Location;
use torchlet::vulkan::VulkanBackend;
use torchlet::{Module, RunOn};

/// Operators that would copy or rearrange planes.
const COPIES: &[&str] = &["pad", "as_strided", "permute"];

#[test]
fn convolutions_over_volumes_copy_no_planes() {
    if !device_is_there() {
        return;
    }
    let mut fixtures = programs();
    fixtures.retain(|fixture| fixture.file.starts_with("ops/volumes/"));
    assert!(fixtures.len() > 10, "{} files", fixtures.len());
    // As small devices, large devices and software devices.
    let some = |busy: usize| VulkanBackend::builder().busy_invocations(busy).build();
    for backend in [VulkanBackend::new(), some(160), some(1 << 16)].map(Arc::new) {
        let failures = check_all(&fixtures, |fixture: &Fixture| {
            let builder = Module::builder().threads(1).run_on(RunOn::Device("vulkan"));
            let source = open(fixture, builder.without_default_backends().backend(backend.clone()));
            let source = source.map_err(|error| error.to_string())?;
            let plan = source.plan().ok_or("is not compiled")?;
            for call in plan.methods.iter().flat_map(|method| &method.calls) {
                let copies = COPIES.iter().any(|name| call.operator.contains(name));
                if copies || call.location == Location::Host {
                    return Err(format!("{}: {} {}", fixture.file, call.operator, call.reason));
                }
            }
            check(&mut source.share(), &source, fixture).map(|_| ())
        });
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }
}
