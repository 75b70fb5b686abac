//! The WebGPU delegate, on the crate `wgpu`: runs graph regions that the torchlet compiler assigns
//! to it on GPUs behind Metal, Direct3D 12 and Vulkan.
//!
//! Graphs are planned by [`torchlet_gpu`], as for Vulkan: the same passes, operators, tilings and
//! memory plan, for a device without optional features and with WebGPU's limits. This crate has the
//! devices, buffers, pipelines and submission. Shaders are those of [`torchlet_shaders`]: when a
//! pipeline is created, its SPIR-V gets the values of the specialisation constants and loses the
//! constructs that WGSL lacks, and `wgpu` translates it.
//!
//! WebGPU tracks one usage per buffer and dispatch, and tensors share buffers. So, shaders declare
//! all buffers as writable except the one with their parameters.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::expect_used, clippy::panic))]
#![allow(rustdoc::private_intra_doc_links)]

mod api;
mod device;
mod error;
mod limits;
mod memory;
mod pipelines;
mod recorded;
mod session;
mod upload;
mod wait;

pub use api::DEVICE_API;
pub use device::DEVICE_VARIABLE;

use device::{Context, Options, adapters, choose, kind_of};
use error::Error;
use session::Session;
use std::sync::Arc;
use std::time::Duration;
use torchlet_core::{
    Backend, DelegateBox, DelegateError, DelegateInfo, InitContext, OptionValue, Processed, Rates,
    delegate_size,
};
use torchlet_gpu::device::Profile;
use torchlet_gpu::{DevicePool, GraphDelegate};

/// The backend id that compiled programs use for this backend.
pub const BACKEND_NAME: &str = "TorchletWebGpu";

/// The backend for regions compiled for WebGPU. All its delegates share one device.
///
/// It uses the best adapter, unless the [builder](Self::builder) or the environment variable
/// `TORCHLET_WEBGPU_DEVICE` selects another by index or by part of its name. The runtime option
/// `device` selects the adapter of a single module.
#[derive(Default)]
pub struct WebGpuBackend {
    options: Options,
    pool: DevicePool<Context>,
}

/// Configures how a [`WebGpuBackend`] opens its device.
#[derive(Debug, Clone, Default)]
#[must_use = "a builder does nothing until it builds"]
pub struct WebGpuBackendBuilder {
    options: Options,
}

impl WebGpuBackendBuilder {
    /// Selects the adapter by index or by part of its name.
    pub fn device(mut self, device: impl Into<String>) -> Self {
        self.options.device = Some(device.into());
        self
    }

    /// Sets the timeout of one delegate call; zero disables it. A call that exceeds it fails, and
    /// the device counts as lost. The default is one minute on GPUs, and no timeout on software
    /// devices.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.options.timeout = Some(timeout);
        self
    }

    /// Requests only the limits that every WebGPU device supports, and refuses what only browsers
    /// refuse. For tests.
    #[doc(hidden)]
    pub fn as_browsers(mut self) -> Self {
        self.options.limits = Some(wgpu::Limits::default());
        self.options.refuses_overlaps = true;
        self
    }

    /// Requests at most `most` storage buffers per shader. For tests.
    #[doc(hidden)]
    pub fn storage_buffers(mut self, most: u32) -> Self {
        let limits = self.options.limits.get_or_insert_default();
        limits.max_storage_buffers_per_shader_stage = most;
        self
    }

    /// Chooses kernels as for a device that `count` invocations saturate. For tests.
    #[doc(hidden)]
    pub fn busy_invocations(mut self, count: usize) -> Self {
        self.options.busy = Some(count);
        self
    }

    /// Builds the backend, which opens its device on first use.
    pub fn build(self) -> WebGpuBackend {
        WebGpuBackend { options: self.options, pool: DevicePool::default() }
    }
}

impl WebGpuBackend {
    /// Creates a backend that opens its device on first use.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a builder with default options.
    pub fn builder() -> WebGpuBackendBuilder {
        WebGpuBackendBuilder::default()
    }

    /// Makes the open devices behave as if they were lost: calls fail, and later loads reopen them.
    /// For tests.
    #[doc(hidden)]
    pub fn lose_devices(&self) {
        self.pool.open().iter().for_each(|context| context.lose());
    }

    /// Returns the number of pipelines that the open devices have created. For tests.
    #[doc(hidden)]
    pub fn pipelines(&self) -> usize {
        self.pool.open().iter().map(|context| context.pipelines.count()).sum()
    }

    /// Returns the context of the adapter that `named` selects by index or by part of its name.
    /// Without `named`, returns the context of the backend's adapter.
    fn context(&self, named: Option<&str>) -> Result<Arc<Context>, Error> {
        self.pool.find_or_open(named, |named| {
            let device = named.or_else(|| self.options.device.clone());
            Context::open(&Options { device, ..self.options.clone() })
        })
    }
}

impl Backend for WebGpuBackend {
    fn name(&self) -> &'static str {
        BACKEND_NAME
    }

    fn is_available(&self) -> Result<(), DelegateError> {
        self.context(None).map(drop).map_err(DelegateError::from)
    }

    fn rates(&self) -> Option<Rates> {
        // A device that is just being opened is not waited for: its kind is known without opening
        // it.
        let open = self.pool.chosen().map(|context| context.kind);
        let kind = open.or_else(|| {
            let adapters = adapters();
            let index = choose(&adapters, self.options.wanted().as_deref()).ok()?;
            adapters.get(index).map(|it| kind_of(&it.info))
        })?;
        Some(Profile::of(kind).rates(kind, None))
    }

    fn arena_bytes(&self, _delegate: &DelegateInfo<'_>) -> Result<usize, DelegateError> {
        Ok(delegate_size::<GraphDelegate<Session>>())
    }

    fn init<'m>(
        &'m self,
        context: &mut InitContext<'_, 'm>,
    ) -> Result<DelegateBox<'m>, DelegateError> {
        let named = context.options().find_map(|(key, value)| match (key, value) {
            ("device", OptionValue::String(name)) => Some(name),
            _ => None,
        });
        let device = self.context(named)?;
        let info = *context.info();
        let named = |key: &str| info.named_data(key);
        let (graph, state_tensors) = torchlet_gpu::read(context.processed().bytes(), &named)?;
        let lasts = matches!(context.processed(), Processed::Lent(_));
        let session = Session::new(&device, graph, state_tensors, context.parallel(), lasts);
        let session = Box::new(self.pool.checked(&device, session)?);
        context.place(GraphDelegate::new(session, device, self.pool.clone()))
    }
}
