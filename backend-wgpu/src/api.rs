//! The registration of WebGPU as a device API of torchlet.

use crate::device::{Listed, adapters, kind_of};
use crate::limits::{features, plan_limits, reported};
use crate::{BACKEND_NAME, WebGpuBackend};
use std::sync::Arc;
use torchlet_core::{Backend, DelegateError, Rates};
use torchlet_gpu::{GpuTarget, Support};
use torchlet_graph::Target;
use torchlet_graph::device::{DeviceApi, DeviceListing, DeviceOptions, Property, format_bytes};
use torchlet_graph::operators::Operator;

/// WebGPU as a device API, for torchlet's list of devices.
pub static DEVICE_API: &dyn DeviceApi = &WebGpu;

struct WebGpu;

impl DeviceApi for WebGpu {
    fn name(&self) -> &'static str {
        "webgpu"
    }

    fn description(&self) -> &'static str {
        "a GPU through Metal, Direct3D 12 or Vulkan (wgpu)"
    }

    fn backend_name(&self) -> &'static str {
        BACKEND_NAME
    }

    fn backend(&self, options: &DeviceOptions) -> Arc<dyn Backend + Send + Sync> {
        // Pipelines are not cached, and kernel variants are not measured.
        let mut builder = WebGpuBackend::builder();
        if let Some(device) = &options.device {
            builder = builder.device(device);
        }
        Arc::new(builder.build())
    }

    fn target(&self, rates: Option<Rates>) -> Box<dyn Target> {
        let support = Support::new(features(), plan_limits(&wgpu::Limits::default()));
        Box::new(GpuTarget::new(BACKEND_NAME, support, rates))
    }

    fn supports(&self, operator: Operator) -> bool {
        torchlet_gpu::supports(operator)
    }

    fn devices(&self, _options: &DeviceOptions) -> Result<Vec<DeviceListing>, DelegateError> {
        Ok(adapters().iter().enumerate().map(listing).collect())
    }
}

fn listing((index, adapter): (usize, &Listed)) -> DeviceListing {
    let Listed { info, unusable, .. } = adapter;
    let limits = reported(&adapter.limits);
    let kind = format!("{:?}", kind_of(info)).to_lowercase();
    let api = info.backend.to_str();
    let note = unusable.as_ref().map(|why| format!("; not usable: {why}")).unwrap_or_default();
    let lines = vec![
        format!("{index}  {}, {kind}, {api}{note}", info.name),
        format!("driver {} {}", info.driver, info.driver_info),
        format!(
            "tensors up to {}, {} of shared memory, {} storage buffers per shader",
            format_bytes(limits.tensor),
            format_bytes(limits.shared_memory.into()),
            limits.storage_buffers,
        ),
    ];
    let properties = vec![
        ("index", Property::from(index as u64)),
        ("name", info.name.as_str().into()),
        ("kind", kind.into()),
        ("api", api.into()),
        ("driver", info.driver.as_str().into()),
        ("limits", limits.into()),
        ("unusable", unusable.as_deref().into()),
    ];
    DeviceListing { lines, properties }
}
