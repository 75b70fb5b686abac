//! The registration of Vulkan as a device API of torchlet.

use crate::ShaderTarget;
use crate::device::{DeviceInfo, PIPELINE_CACHE_VARIABLE};
use crate::{BACKEND_NAME, VulkanBackend, VulkanBackendBuilder, VulkanTarget};
use std::sync::Arc;
use torchlet_core::{Backend, DelegateError, Rates};
use torchlet_graph::Target;
use torchlet_graph::device::{DeviceApi, DeviceListing, DeviceOptions, Property, format_bytes};
use torchlet_graph::operators::Operator;

/// Vulkan as a device API, for torchlet's list of devices.
pub static DEVICE_API: &dyn DeviceApi = &Vulkan;

struct Vulkan;

impl DeviceApi for Vulkan {
    fn name(&self) -> &'static str {
        "vulkan"
    }

    fn description(&self) -> &'static str {
        "a GPU through Vulkan"
    }

    fn backend_name(&self) -> &'static str {
        BACKEND_NAME
    }

    fn backend(&self, options: &DeviceOptions) -> Arc<dyn Backend + Send + Sync> {
        Arc::new(builder(options).build())
    }

    fn target(&self, rates: Option<Rates>) -> Box<dyn Target> {
        Box::new(VulkanTarget::any().with_rates(rates))
    }

    fn shader_target(&self, rates: Option<Rates>) -> Option<Box<dyn Target>> {
        Some(Box::new(ShaderTarget::new(rates)))
    }

    fn supports(&self, operator: Operator) -> bool {
        torchlet_gpu::supports(operator) || operator == Operator::SHADER
    }

    fn devices(&self, options: &DeviceOptions) -> Result<Vec<DeviceListing>, DelegateError> {
        Ok(builder(options).devices()?.iter().map(listing).collect())
    }

    fn cache_variable(&self) -> Option<&'static str> {
        Some(PIPELINE_CACHE_VARIABLE)
    }
}

fn builder(options: &DeviceOptions) -> VulkanBackendBuilder {
    let mut builder = VulkanBackend::builder();
    if let Some(device) = &options.device {
        builder = builder.device(device);
    }
    if let Some(folder) = &options.cache {
        builder = builder.pipeline_cache(folder);
    }
    if let Some(longest) = options.tune {
        builder = builder.tune(longest);
    }
    builder
}

fn listing(device: &DeviceInfo) -> DeviceListing {
    DeviceListing { lines: lines(device), properties: properties(device) }
}

fn kind(device: &DeviceInfo) -> String {
    format!("{:?}", device.kind).to_lowercase()
}

fn version(device: &DeviceInfo) -> String {
    let (major, minor, patch) = device.version;
    format!("{major}.{minor}.{patch}")
}

fn lines(device: &DeviceInfo) -> Vec<String> {
    let DeviceInfo { index, name, features, limits, driver, workarounds, .. } = device;
    let (kind, version, memory) = (kind(device), version(device), format_bytes(device.memory));
    let note = device.unusable.as_ref().map(|why| format!("; not usable: {why}"));
    let note = note.unwrap_or_default();
    let mut lines = vec![
        format!("{index}  {name}, {kind}, Vulkan {version}, {memory}{note}"),
        format!("driver {driver}"),
    ];
    let names: Vec<&str> = features.iter().map(|feature| feature.name()).collect();
    if !names.is_empty() {
        lines.push(format!("{}; subgroups of {}", names.join(", "), features.subgroup_size));
    }
    let cores = device.cores.map(|it| {
        let plural = if it.count == 1 { "" } else { "s" };
        format!("{} core{plural} of {} invocations; ", it.count, it.invocations)
    });
    let transfers = if device.transfer_queue { "; transfer queue" } else { "" };
    let units = match device.matrix_units {
        Some(false) => "; matrix units are not used, because they are slower here",
        _ => "",
    };
    lines.push(format!(
        "{}tensors up to {}, {} of shared memory{transfers}{units}",
        cores.unwrap_or_default(),
        format_bytes(limits.tensor),
        format_bytes(limits.shared_memory.into()),
    ));
    if !workarounds.is_empty() {
        lines.push(format!("workarounds: without {}", workarounds.join(", ")));
    }
    lines
}

fn properties(device: &DeviceInfo) -> Vec<(&'static str, Property)> {
    let DeviceInfo { features, limits, .. } = device;
    let matrices = features.cooperative_matrices.iter().map(|it| {
        let element = |element| Property::Text(format!("{element:?}").to_lowercase());
        Property::Object(vec![
            ("m", it.m.into()),
            ("n", it.n.into()),
            ("k", it.k.into()),
            ("a", element(it.a)),
            ("b", element(it.b)),
            ("c", element(it.c)),
            ("result", element(it.result)),
        ])
    });
    let cores = device.cores.map(|it| {
        Property::Object(vec![("count", it.count.into()), ("invocations", it.invocations.into())])
    });
    vec![
        ("index", (device.index as u64).into()),
        ("name", device.name.as_str().into()),
        ("kind", kind(device).into()),
        ("version", version(device).into()),
        ("memory", device.memory.into()),
        ("features", features.iter().map(|feature| feature.name()).collect()),
        ("subgroup_size", features.subgroup_size.into()),
        ("cooperative_matrices", Property::List(matrices.collect())),
        ("cores", cores.into()),
        ("limits", (*limits).into()),
        ("transfer_queue", device.transfer_queue.into()),
        (
            "matrix_units",
            device.matrix_units.map(|used| if used { "used" } else { "slower" }).into(),
        ),
        ("driver", device.driver.as_str().into()),
        ("workarounds", device.workarounds.iter().copied().collect()),
        ("unusable", device.unusable.as_deref().into()),
    ]
}
