//! The Vulkan delegate. Runs graphs lowered by ExecuTorch's `VulkanPartitioner`, and graph regions
//! that the torchlet compiler assigns to the GPU, on any Vulkan 1.1 device.
//!
//! A delegate blob, from either source, is parsed into a graph ([`torchlet_graph`]) that is
//! independent of the blob. The graph is planned without Vulkan ([`torchlet_gpu`]); the plan
//! consists of dispatches over named buffers, a memory plan, and constants. The plan is loaded onto
//! the device ([`load`]), recorded once ([`recorded`]) and replayed ([`session`]). All Vulkan calls
//! are in [`device`].
//!
//! Memory layouts in the blob are hints for mobile GPUs and are ignored: tensors are row-major
//! buffers. 64-bit types are narrowed, as the exporter does. The Vulkan loader is opened at run
//! time; without a loader, the backend reports itself as unavailable.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::expect_used, clippy::panic))]
#![allow(rustdoc::private_intra_doc_links)]

mod api;
mod compile;
mod device;
mod error;
mod foreign;
mod load;
mod matrix_benchmark;
mod memory;
mod recorded;
mod recording_cache;
mod session;
mod stopwatch;
mod target;
mod trace;
mod trial;
mod tuning;
mod upload;

pub use api::DEVICE_API;
pub use device::{
    DEVICE_VARIABLE, DISABLE_VARIABLE, DeviceInfo, MATRICES_VARIABLE, MEMORY_LIMIT_VARIABLE,
    PIPELINE_CACHE_VARIABLE, PREFETCH_VARIABLE, TIMEOUT_VARIABLE, TUNE_VARIABLE, UPLOAD_VARIABLE,
    Upload, devices,
};
pub use target::{ShaderTarget, VulkanTarget};
pub use torchlet_cache::user_cache_folder;
pub use torchlet_gpu::device::{
    CooperativeMatrix, Cores, DeviceFeature, DeviceFeatures, DeviceKind, DeviceLimits,
    MatrixElement,
};

use compile::compile;
use device::{Context, Options};
use error::Error;
use foreign::ForeignDelegate;
use load::Build;
use session::Session;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use stopwatch::Stopwatch;
use torchlet_core::{
    Backend, DelegateBox, DelegateError, DelegateInfo, DeviceMemory, InitContext, OptionValue,
    Processed, Rates, delegate_size,
};
use torchlet_gpu::device::Profile;
use torchlet_gpu::{DevicePool, GraphDelegate};
use torchlet_graph::front;

/// The backend id that programs use for this backend.
pub const BACKEND_NAME: &str = front::vulkan::BACKEND;

/// The backend for programs lowered with `VulkanPartitioner`. All its delegates share one device
/// context.
///
/// It uses the most capable device, unless the [builder](Self::builder) or the environment variable
/// `TORCHLET_VULKAN_DEVICE` selects another by index or by part of its name. The runtime option
/// `device` selects the device of a single module.
#[derive(Default)]
pub struct VulkanBackend {
    options: Options,
    pool: DevicePool<Context>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Poisoning can be ignored: a panic cannot leave the guarded data half-changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Configures how a [`VulkanBackend`] opens its device.
#[derive(Debug, Clone, Default)]
#[must_use = "a builder does nothing until it builds"]
pub struct VulkanBackendBuilder {
    options: Options,
}

impl VulkanBackendBuilder {
    /// Selects the device by index or by part of its name.
    pub fn device(mut self, device: impl Into<String>) -> Self {
        self.options.device = Some(device.into());
        self
    }

    /// Caches compiled pipelines in this folder, in one file per device and driver, which makes
    /// later loads faster. The value `off` disables the cache. The default is the environment
    /// variable `TORCHLET_VULKAN_PIPELINE_CACHE`; without it, nothing is written.
    /// [`user_cache_folder`] returns a suitable folder.
    pub fn pipeline_cache(mut self, folder: impl Into<PathBuf>) -> Self {
        self.options.pipeline_cache = Some(folder.into());
        self
    }

    /// Disables a feature even if the device has it. May be called several times. The environment
    /// variable `TORCHLET_VULKAN_DISABLE` does the same for a comma-separated list of
    /// [names](DeviceFeature::name), or `all`.
    pub fn disable(mut self, feature: DeviceFeature) -> Self {
        self.options.disabled.push(feature);
        self
    }

    /// Limits the device memory for tensors and weights, in bytes. A program that exceeds the limit
    /// fails to load. The default is the environment variable `TORCHLET_VULKAN_MEMORY_LIMIT`;
    /// without it, memory is not limited.
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.options.memory_limit = Some(bytes);
        self
    }

    /// Sets the timeout of one delegate call; zero disables it. A call that exceeds it fails, and
    /// the memory that the device still uses for the call is leaked. The default is the environment
    /// variable `TORCHLET_VULKAN_TIMEOUT`, in seconds; without it, one minute on GPUs and no
    /// timeout on software devices.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.options.timeout = Some(timeout);
        self
    }

    /// Autotunes each program when it is loaded, for roughly this long. Calls that have several
    /// kernel variants run with each variant, and the fastest variant is used from then on. Results
    /// are stored with the [pipelines](Self::pipeline_cache) and apply to all programs with the
    /// same kernel shapes, even when tuning is off. The default is the environment variable
    /// `TORCHLET_VULKAN_TUNE`, in seconds; without it, nothing is measured.
    ///
    /// Tuning does not change state or outputs. It requires device memory for a second copy of the
    /// program; if that memory is not available, tuning is skipped.
    pub fn tune(mut self, longest: Duration) -> Self {
        self.options.tune = Some(longest);
        self
    }

    /// Sets whether matrix units (`VK_KHR_cooperative_matrix`) are benchmarked. The first load of a
    /// program that would use them then measures one GEMM with and without them, which lasts a few
    /// milliseconds. If they are not faster, for example because the driver emulates them, no
    /// program uses them on this device from then on. The result is stored with the
    /// [pipelines](Self::pipeline_cache).
    ///
    /// The default is the environment variable `TORCHLET_VULKAN_PROBE_MATRICES` (`on` or `off`),
    /// then `on`. If off, matrix units are used whenever the device lists them.
    pub fn probe_matrices(mut self, probe: bool) -> Self {
        self.options.probe_matrices = Some(probe);
        self
    }

    /// Sets whether GEMM weights are prefetched into the device's cache during the preceding
    /// dispatch, if that dispatch reads no weights itself. The default is the environment variable
    /// `TORCHLET_VULKAN_PREFETCH` (`on` or `off`). Without it, prefetching is on for devices with
    /// large caches, for programs that use matrix units and whose weights exceed the cache.
    pub fn prefetch(mut self, prefetch: bool) -> Self {
        self.options.prefetch = Some(prefetch);
        self
    }

    /// Sets how weights are uploaded when a program is loaded. The default is the environment
    /// variable `TORCHLET_VULKAN_UPLOAD` (`host`, `copy` or `transfer`), then [`Upload::Host`].
    pub fn upload(mut self, upload: Upload) -> Self {
        self.options.upload = Some(upload);
        self
    }

    /// Uses the compute queue for transfers if the device has no dedicated transfer queue. For
    /// tests.
    #[doc(hidden)]
    pub fn transfer_on_compute_queue(mut self) -> Self {
        self.options.stand_in = true;
        self
    }

    /// Simulates a device limit of `most` workgroups per dim. Larger dispatches are folded or
    /// split. For tests.
    #[doc(hidden)]
    pub fn fold_workgroups_at(mut self, most: u32) -> Self {
        self.options.fold_at = Some(most);
        self
    }

    /// Simulates a device that supports at most `most` storage buffers per shader; some programs
    /// need 7. For tests.
    #[doc(hidden)]
    pub fn storage_buffers(mut self, most: u32) -> Self {
        self.options.buffers = Some(most);
        self
    }

    /// Chooses kernels as for a device that `count` invocations saturate. For tests.
    #[doc(hidden)]
    pub fn busy_invocations(mut self, count: usize) -> Self {
        self.options.busy = Some(count);
        self
    }

    /// Makes every call use the kernel variant of this index, if the call has that many variants; 0
    /// is the default variant. For tests.
    #[doc(hidden)]
    pub fn force_variant(mut self, way: u8) -> Self {
        self.options.variant = Some(way);
        self
    }

    /// Simulates a device limit on the size of one memory allocation, in bytes. For tests.
    #[doc(hidden)]
    pub fn largest_allocation(mut self, bytes: u64) -> Self {
        self.options.largest_allocation = Some(bytes);
        self
    }

    /// Lists the devices, without opening any of them. Each entry has the features that are not
    /// [disabled](Self::disable) and, if a [pipeline cache](Self::pipeline_cache) folder is set,
    /// the measurements stored there.
    ///
    /// # Errors
    /// The loader or a driver is missing, or an environment variable is invalid.
    pub fn devices(&self) -> Result<Vec<DeviceInfo>, DelegateError> {
        device::listed(&self.options).map_err(DelegateError::from)
    }

    /// Builds the backend, which opens its device on first use.
    pub fn build(self) -> VulkanBackend {
        VulkanBackend { options: self.options, pool: DevicePool::default() }
    }
}

impl VulkanBackend {
    /// Creates a backend that opens its device on first use.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a backend on the device with this index or part of a name.
    pub fn with_device(device: impl Into<String>) -> Self {
        Self::builder().device(device).build()
    }

    /// Returns a builder with default options.
    pub fn builder() -> VulkanBackendBuilder {
        VulkanBackendBuilder::default()
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

    /// Returns the number of loads that uploaded weights on a transfer queue. For tests.
    #[doc(hidden)]
    pub fn transfers(&self) -> usize {
        let contexts = self.pool.open();
        contexts.iter().map(|context| context.transfers.load(Ordering::Relaxed)).sum()
    }

    /// Returns the context of the device that `named` selects by index or by part of its name.
    /// Without `named`, returns the context of the backend's device.
    fn context(&self, named: Option<&str>) -> Result<Arc<Context>, Error> {
        self.pool.find_or_open(named, |named| {
            let device = named.or_else(|| self.options.device.clone());
            Context::open(&Options { device, ..self.options.clone() })
        })
    }
}

impl Backend for VulkanBackend {
    fn name(&self) -> &'static str {
        BACKEND_NAME
    }

    fn is_available(&self) -> Result<(), DelegateError> {
        self.context(None).map(drop).map_err(DelegateError::from)
    }

    fn rates(&self) -> Option<Rates> {
        // A device that is just being opened is not waited for: its kind is known without opening
        // it.
        let open = self.pool.chosen().map(|context| context.info.clone());
        let info = open.or_else(|| device::chosen(&self.options).ok());
        info.map(|info| Profile::of(info.kind).rates(info.kind, info.cores))
    }

    fn device_memory(&self) -> Option<DeviceMemory> {
        let contexts = self.pool.open();
        let reports = contexts.iter().map(|context| context.meter.report());
        reports.reduce(|a, b| DeviceMemory::new(a.used + b.used, a.peak + b.peak))
    }

    fn arena_bytes(&self, _delegate: &DelegateInfo<'_>) -> Result<usize, DelegateError> {
        Ok(delegate_size::<GraphDelegate<Session>>().max(delegate_size::<ForeignDelegate>()))
    }

    fn init<'m>(
        &'m self,
        context: &mut InitContext<'_, 'm>,
    ) -> Result<DelegateBox<'m>, DelegateError> {
        let start = Instant::now();
        let named = context.options().find_map(|(key, value)| match (key, value) {
            ("device", OptionValue::String(name)) => Some(name),
            _ => None,
        });
        let device = self.context(named)?;
        let traced = context.is_traced();
        let opening = if traced { lock(&device.opening).take() } else { None };
        let mut watch = match opening {
            Some(opening) => Stopwatch::after(opening, start),
            None => Stopwatch::new(traced),
        };
        let info = *context.info();
        let named = |key: &str| info.named_data(key);
        let (graph, state_tensors) = torchlet_gpu::read(context.processed().bytes(), &named)?;
        watch.lap("read graph");
        if foreign::has_shaders(&graph) {
            let allowed = context.options().any(|(key, value)| {
                key == foreign::OPTION && matches!(value, OptionValue::Bool(true))
            });
            if !allowed {
                return Err(DelegateError::from(Error::unsupported(
                    "foreign shaders, code of the file's author, which the caller does not allow \
                     (`ModuleBuilder::allow_foreign_shaders`, `--allow-foreign-shaders`)",
                )));
            }
            let limit = context.options().find_map(|(key, value)| match value {
                OptionValue::Int(bytes) if key == foreign::MEMORY_OPTION => bytes.try_into().ok(),
                _ => None,
            });
            let limit = limit.unwrap_or(u64::MAX);
            let delegate = ForeignDelegate::new(&device, self.pool.clone(), &graph, limit);
            let delegate = self.pool.checked(&device, delegate)?;
            watch.lap("create shaders");
            watch.report(|event| context.trace(event));
            return context.place(delegate);
        }
        let parallel = context.parallel();
        let lasts = matches!(context.processed(), Processed::Lent(_));
        let build = Build { context: &device, traced, trial: false, parallel, lasts, without: &[] };
        let session = compile(build, graph, state_tensors, &mut watch);
        let session = Box::new(self.pool.checked(&device, session)?);
        watch.report(|event| context.trace(event));
        context.place(GraphDelegate::new(session, device, self.pool.clone()))
    }
}
