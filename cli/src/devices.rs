//! `torchlet devices`.

use crate::terminal::{FAINT, NAME, count, paint};
use serde_json::{Value, json};
use std::thread::available_parallelism;
use torchlet::portable::compute::simd::Tier;

/// Lists the processors and GPUs that programs can run on.
pub(crate) fn devices(json: bool) {
    let threads = available_parallelism().map_or(1, usize::from);
    if json {
        let tiers: Vec<&str> = Tier::available().map(Tier::name).collect();
        let architecture = std::env::consts::ARCH;
        let portable = json!({ "architecture": architecture, "tiers": tiers, "threads": threads });
        println!("{:#}", json!({ "portable": portable, "vulkan": vulkan_as_json() }));
        return;
    }
    let architecture = std::env::consts::ARCH;
    let tier = Tier::detect().name();
    let threads = count(threads, "thread");
    anstream::println!("{}  {architecture}, {tier}, {threads}", paint(NAME, "portable"));
    vulkan();
}

/// The GPUs, with cached findings of earlier loads of this command.
#[cfg(feature = "vulkan")]
fn listed() -> Result<Vec<torchlet::vulkan::DeviceInfo>, torchlet::core::DelegateError> {
    let builder = torchlet::vulkan::VulkanBackend::builder();
    match crate::model::pipeline_folder(None) {
        Some(folder) => builder.pipeline_cache(folder).devices(),
        None => builder.devices(),
    }
}

/// The GPUs, or the reason why Vulkan is unavailable.
#[cfg(feature = "vulkan")]
fn vulkan_as_json() -> Value {
    let found = match listed() {
        Ok(found) => found,
        Err(error) => return json!({ "error": error.to_string() }),
    };
    let device = |device: torchlet::vulkan::DeviceInfo| {
        let (major, minor, patch) = device.version;
        let limits = device.limits;
        let matrices = device.features.cooperative_matrices.iter().map(|it| {
            let element = |element| format!("{element:?}").to_lowercase();
            let [a, b, c, result] = [it.a, it.b, it.c, it.result].map(element);
            json!({ "m": it.m, "n": it.n, "k": it.k, "a": a, "b": b, "c": c, "result": result })
        });
        json!({
            "index": device.index,
            "name": device.name,
            "kind": format!("{:?}", device.kind).to_lowercase(),
            "version": format!("{major}.{minor}.{patch}"),
            "memory": device.memory,
            "features": device.features.iter().map(|feature| feature.name()).collect::<Vec<_>>(),
            "subgroup_size": device.features.subgroup_size,
            "cooperative_matrices": matrices.collect::<Vec<_>>(),
            "cores": device.cores.map(|it| json!({
                "count": it.count, "invocations": it.invocations
            })),
            "limits": {
                "invocations": limits.invocations,
                "workgroups": limits.workgroups,
                "shared_memory": limits.shared_memory,
                "storage_buffers": limits.storage_buffers,
                "tensor": limits.tensor,
                "allocation": limits.allocation,
            },
            "transfer_queue": device.transfer_queue,
            "matrix_units": device.matrix_units.map(|used| if used { "used" } else { "slower" }),
            "driver": device.driver,
            "workarounds": device.workarounds,
            "unusable": device.unusable,
        })
    };
    json!({ "devices": found.into_iter().map(device).collect::<Vec<_>>() })
}

#[cfg(not(feature = "vulkan"))]
fn vulkan_as_json() -> Value {
    json!({ "error": "built without Vulkan" })
}

#[cfg(not(feature = "vulkan"))]
fn vulkan() {
    anstream::println!("{}    {}", paint(NAME, "vulkan"), paint(FAINT, "built without Vulkan"));
}

#[cfg(feature = "vulkan")]
fn vulkan() {
    use crate::terminal::bytes;
    let found = match listed() {
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
        anstream::println!("{}", paint(FAINT, format!("           driver {}", device.driver)));
        let features: Vec<&str> = device.features.iter().map(|feature| feature.name()).collect();
        if !features.is_empty() {
            let (features, size) = (features.join(", "), device.features.subgroup_size);
            let line = format!("           {features}; subgroups of {size}");
            anstream::println!("{}", paint(FAINT, line));
        }
        let limits = device.limits;
        let cores = device.cores.map(|it| {
            format!("{} of {} invocations; ", count(it.count as usize, "core"), it.invocations)
        });
        let transfers = if device.transfer_queue { "; transfer queue" } else { "" };
        let units = match device.matrix_units {
            Some(false) => "; matrix units are not used, because they are slower here",
            _ => "",
        };
        let line = format!(
            "           {}tensors up to {}, {} of shared memory{transfers}{units}",
            cores.unwrap_or_default(),
            bytes(limits.tensor),
            bytes(limits.shared_memory.into()),
        );
        anstream::println!("{}", paint(FAINT, line));
        if !device.workarounds.is_empty() {
            let line = format!("           workarounds: without {}", device.workarounds.join(", "));
            anstream::println!("{}", paint(FAINT, line));
        }
    }
}
