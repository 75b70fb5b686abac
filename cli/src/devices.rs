//! `torchlet devices`.

use crate::terminal::{FAINT, NAME, count, paint};
use std::thread::available_parallelism;
use torchlet::portable::compute::simd::Tier;

/// Shows what programs can run on here.
pub(crate) fn devices() {
    let threads = available_parallelism().map_or(1, usize::from);
    let architecture = std::env::consts::ARCH;
    let tier = Tier::detect().name();
    let threads = count(threads, "thread");
    anstream::println!("{}  {architecture}, {tier}, {threads}", paint(NAME, "portable"));
    vulkan();
}

#[cfg(not(feature = "vulkan"))]
fn vulkan() {
    anstream::println!("{}    {}", paint(NAME, "vulkan"), paint(FAINT, "built without Vulkan"));
}

#[cfg(feature = "vulkan")]
fn vulkan() {
    use crate::terminal::bytes;
    let found = match torchlet::vulkan::devices() {
        Ok(found) => found,
        Err(error) => {
            anstream::println!("{}    {}", paint(NAME, "vulkan"), paint(FAINT, error.to_string()));
            return;
        }
    };
    for device in found {
        let (major, minor, patch) = device.version;
        let kind = format!("{:?}", device.kind).to_lowercase();
        let memory = bytes(device.memory);
        let note = device.unusable.map(|why| format!("; not usable: {why}")).unwrap_or_default();
        anstream::println!(
            "{}  {}  {}, {kind}, Vulkan {major}.{minor}.{patch}, {memory}{note}",
            paint(NAME, "vulkan"),
            device.index,
            device.name,
        );
        let features: Vec<&str> = device.features.iter().map(|feature| feature.name()).collect();
        if !features.is_empty() {
            let (features, size) = (features.join(", "), device.features.subgroup_size);
            let line = format!("           {features}; subgroups of {size}");
            anstream::println!("{}", paint(FAINT, line));
        }
    }
}
