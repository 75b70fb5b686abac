//! The Vulkan delegate: runs what ExecuTorch's `VulkanPartitioner` lowers, and regions of any
//! program that the compiler gives it, on any Vulkan 1.1 device.
//!
//! A blob is read into a graph ([`torchlet_graph`]), which knows nothing of the blob; so is a graph
//! of the compiler's own. Operators ([`ops`]) encode the graph into dispatches over tensors
//! ([`mod@encode`]); tensors are placed in memory by their lifetimes ([`memory_plan`]); the
//! dispatches are recorded once and replayed ([`compiled`]). Everything Vulkan is below [`device`].
//!
//! Layouts in the blob are hints for phones: here, tensors are row-major in buffers. 64-bit types
//! are narrowed as the exporter does. The Vulkan loader is opened at run time; where there is none,
//! the backend says so.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::expect_used, clippy::panic))]
#![allow(rustdoc::private_intra_doc_links)]

mod ahead;
mod bfloat16;
mod bounds;
mod cells;
mod choices;
mod commands;
mod compiled;
mod constants;
mod derived;
mod device;
mod encode;
mod encoder;
mod error;
mod ids;
mod kept;
mod largest;
mod matrices;
mod memory_plan;
mod ops;
mod passes;
mod prefetch;
mod rates;
mod rehearsal;
mod replay;
mod stages;
mod state;
mod steps;
mod summary;
mod target;
mod tensors;
mod trace;
mod transfer;
mod tuning;
mod weights;

pub use device::{
    CooperativeMatrix, Cores, DEVICE_VARIABLE, DISABLE_VARIABLE, DeviceFeature, DeviceFeatures,
    DeviceInfo, DeviceKind, DeviceLimits, MATRICES_VARIABLE, MEMORY_LIMIT_VARIABLE, MatrixElement,
    PIPELINE_CACHE_VARIABLE, PREFETCH_VARIABLE, TIMEOUT_VARIABLE, TUNE_VARIABLE, UPLOAD_VARIABLE,
    Upload, devices, user_cache_folder,
};
pub use passes::run as fuse;
pub use summary::{GraphSummary, OperatorSummary, summarize};
pub use target::VulkanTarget;

use compiled::{Build, Compiled};
use device::{Context, Options};
use error::Error;
use largest::Wanted;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};
use torchlet_core::{
    Backend, Delegate, DelegateBox, DelegateCall, DelegateError, DelegateInfo, DelegateState,
    DeviceMemory, InitContext, OptionValue, Processed, Rates, delegate_size,
};
use torchlet_graph::graph::Graph;
use torchlet_graph::{Named, blob, front};
use trace::Stopwatch;

/// What programs call this backend.
pub const BACKEND_NAME: &str = "VulkanBackend";

/// The backend for programs lowered with `VulkanPartitioner`. All its delegates share one device
/// context.
///
/// The device is the most capable one, unless the [builder](Self::builder) or the environment
/// variable `TORCHLET_VULKAN_DEVICE` names another, by index or by a part of its name; the runtime
/// option `device` does for one module.
#[derive(Default)]
pub struct VulkanBackend {
    options: Options,
    contexts: Contexts,
}

/// The devices that are open, by what they were asked for as.
type Contexts = Arc<Mutex<HashMap<Option<String>, Arc<Context>>>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic elsewhere cannot have left what is locked half-changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How a [`VulkanBackend`] opens its device.
#[derive(Debug, Clone, Default)]
#[must_use = "a builder does nothing until it builds"]
pub struct VulkanBackendBuilder {
    options: Options,
}

impl VulkanBackendBuilder {
    /// The device of this index, or this part of its name.
    pub fn device(mut self, device: impl Into<String>) -> Self {
        self.options.device = Some(device.into());
        self
    }

    /// Remembers compiled pipelines in this folder, in a file for each device and driver, so that
    /// they load faster the next time; `off` for no folder. Unless it is set here or by the
    /// environment variable `TORCHLET_VULKAN_PIPELINE_CACHE`, nothing is written.
    /// [`user_cache_folder`] is a good place.
    pub fn pipeline_cache(mut self, folder: impl Into<PathBuf>) -> Self {
        self.options.pipeline_cache = Some(folder.into());
        self
    }

    /// Does without a feature even if the device has it; may be called several times. So does the
    /// environment variable `TORCHLET_VULKAN_DISABLE`, which takes [names](DeviceFeature::name)
    /// separated by commas, or `all`.
    pub fn disable(mut self, feature: DeviceFeature) -> Self {
        self.options.disabled.push(feature);
        self
    }

    /// The most bytes of memory to use for tensors and weights on the device; all that there is
    /// unless it is set here or by the environment variable `TORCHLET_VULKAN_MEMORY_LIMIT`. What
    /// exceeds it fails to load.
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.options.memory_limit = Some(bytes);
        self
    }

    /// The longest that the device may take for one call of a delegate, zero for any time; then the
    /// call fails, and what the device holds of it is given up. Unless it is set here or, in
    /// seconds, by the environment variable `TORCHLET_VULKAN_TIMEOUT`, a minute on GPUs, and any
    /// time on software devices.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.options.timeout = Some(timeout);
        self
    }

    /// Measures programs when they are loaded, each for as long as this, roughly: calls that can be
    /// computed in several ways run in each, and go the fastest from then on. What is found is kept
    /// beside the [pipelines](Self::pipeline_cache) and serves whatever program asks the same, also
    /// where nothing is measured. Unless it is set here or, in seconds, by the environment variable
    /// `TORCHLET_VULKAN_TUNE`, nothing is measured. State and outputs are not touched; the device
    /// needs memory for the program twice over, else kernels are chosen as without.
    pub fn tune(mut self, longest: Duration) -> Self {
        self.options.tune = Some(longest);
        self
    }

    /// Whether the first load whose program would use matrix units (`VK_KHR_cooperative_matrix`)
    /// has one product computed with them and without, which takes a few milliseconds: on devices
    /// that are not faster with them, as those whose drivers make do without any, all programs go
    /// without from then on. What was found is kept beside the [pipelines](Self::pipeline_cache).
    /// Unless it is set here or by the environment variable `TORCHLET_VULKAN_PROBE_MATRICES`, which
    /// is `on` or `off`, so it is; else what a device lists is used.
    pub fn probe_matrices(mut self, probe: bool) -> Self {
        self.options.probe_matrices = Some(probe);
        self
    }

    /// Whether the weights of products are read into the device's cache beside the call before, if
    /// that has none of its own. Unless it is set here or by the environment variable
    /// `TORCHLET_VULKAN_PREFETCH`, which is `on` or `off`: on devices whose caches are large, of
    /// programs on matrix units whose weights are larger.
    pub fn prefetch(mut self, prefetch: bool) -> Self {
        self.options.prefetch = Some(prefetch);
        self
    }

    /// How weights go to the device when a program is loaded. Unless it is set here or by the
    /// environment variable `TORCHLET_VULKAN_UPLOAD`, which is `host`, `copy` or `transfer`:
    /// [`Upload::Host`].
    pub fn upload(mut self, upload: Upload) -> Self {
        self.options.upload = Some(upload);
        self
    }

    /// Where the device has no queue for transfers alone, the one that computes stands in for it.
    /// For tests.
    #[doc(hidden)]
    pub fn transfers_where_it_computes(mut self) -> Self {
        self.options.stand_in = true;
        self
    }

    /// Folds dispatches of more workgroups along a dimension than this, or has several of them, as
    /// if the device took no more. For tests.
    #[doc(hidden)]
    pub fn fold_workgroups_at(mut self, most: u32) -> Self {
        self.options.fold_at = Some(most);
        self
    }

    /// Binds no more buffers to a shader than this, as if the device took no more; programs may
    /// need 7. For tests.
    #[doc(hidden)]
    pub fn storage_buffers(mut self, most: u32) -> Self {
        self.options.buffers = Some(most);
        self
    }

    /// Chooses kernels as for a device that so many invocations keep busy. For tests.
    #[doc(hidden)]
    pub fn busy_invocations(mut self, count: usize) -> Self {
        self.options.busy = Some(count);
        self
    }

    /// Computes each call in the way of this number, where it has so many; 0 is the usual one. For
    /// tests.
    #[doc(hidden)]
    pub fn go_way(mut self, way: u8) -> Self {
        self.options.way = Some(way);
        self
    }

    /// Allocates no more bytes than this in one piece, as if the device gave no more. For tests.
    #[doc(hidden)]
    pub fn largest_allocation(mut self, bytes: u64) -> Self {
        self.options.largest_allocation = Some(bytes);
        self
    }

    /// The devices that there are, as a backend would use them: with the features that are left of
    /// what they have, and, if there is a folder for [pipelines](Self::pipeline_cache), with what
    /// is remembered of them. None is opened.
    ///
    /// # Errors
    /// Why there are none: no loader, no driver, a variable of the environment that makes no sense.
    pub fn devices(&self) -> Result<Vec<DeviceInfo>, DelegateError> {
        device::listed(&self.options).map_err(DelegateError::from)
    }

    /// The backend. It opens its device when it is first needed.
    pub fn build(self) -> VulkanBackend {
        VulkanBackend { options: self.options, contexts: Contexts::default() }
    }
}

impl VulkanBackend {
    /// A backend that opens its device when it is first needed.
    pub fn new() -> Self {
        Self::default()
    }

    /// A backend on the device of this index or part of a name.
    pub fn with_device(device: impl Into<String>) -> Self {
        Self::builder().device(device).build()
    }

    /// Chooses how the device is opened.
    pub fn builder() -> VulkanBackendBuilder {
        VulkanBackendBuilder::default()
    }

    /// Makes the open devices behave as if they were lost: calls fail, later loads open them anew.
    /// For tests.
    #[doc(hidden)]
    pub fn lose_devices(&self) {
        lock(&self.contexts).values().for_each(|context| context.lose());
    }

    /// How many pipelines the open devices have made. For tests.
    #[doc(hidden)]
    pub fn pipelines(&self) -> usize {
        lock(&self.contexts).values().map(|context| context.pipelines.count()).sum()
    }

    /// How many loads sent weights by a queue for transfers. For tests.
    #[doc(hidden)]
    pub fn transfers(&self) -> usize {
        let contexts = lock(&self.contexts);
        contexts.values().map(|context| context.transfers.load(Ordering::Relaxed)).sum()
    }

    /// The context of the device that a module asks for by name; without one, that of the backend.
    fn context(&self, named: Option<&str>) -> Result<Arc<Context>, Error> {
        // Locked while a device is opened, so that it is opened once.
        let mut contexts = lock(&self.contexts);
        let key = named.map(str::to_owned);
        if let Some(context) = contexts.get(&key).filter(|context| context.works()) {
            return Ok(context.clone());
        }
        let device = key.clone().or_else(|| self.options.device.clone());
        let context = Context::open(&Options { device, ..self.options.clone() })?;
        contexts.insert(key, context.clone());
        Ok(context)
    }
}

/// Forgets a context whose device was lost, so that the next load opens it anew.
fn forget_lost<T>(
    contexts: &Contexts,
    lost: &Arc<Context>,
    result: Result<T, Error>,
) -> Result<T, DelegateError> {
    if result.as_ref().is_err_and(Error::is_device_loss) {
        lock(contexts).retain(|_, context| !Arc::ptr_eq(context, lost));
    }
    result.map_err(DelegateError::from)
}

impl Backend for VulkanBackend {
    fn name(&self) -> &'static str {
        BACKEND_NAME
    }

    fn is_available(&self) -> Result<(), DelegateError> {
        self.context(None).map(drop).map_err(DelegateError::from)
    }

    fn rates(&self) -> Option<Rates> {
        // A device that is being opened is not waited for: its kind is known before.
        let contexts = match self.contexts.try_lock() {
            Ok(contexts) => Some(contexts),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        let open = contexts.and_then(|all| all.get(&None).map(|context| context.info.clone()));
        let info = open.or_else(|| device::chosen(&self.options).ok());
        info.as_ref().map(rates::of)
    }

    fn device_memory(&self) -> Option<DeviceMemory> {
        let contexts = lock(&self.contexts);
        let reports = contexts.values().map(|context| context.meter.report());
        reports.reduce(|a, b| DeviceMemory::new(a.used + b.used, a.peak + b.peak))
    }

    fn arena_bytes(&self, _delegate: &DelegateInfo<'_>) -> Result<usize, DelegateError> {
        Ok(delegate_size::<VulkanDelegate>())
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
        let (graph, cells) =
            read(context.processed().bytes(), &named).map_err(DelegateError::from)?;
        watch.lap("read graph");
        let parallel = context.parallel();
        let lasts = matches!(context.processed(), Processed::Lent(_));
        let build = Build { context: &device, traced, trial: false, parallel, lasts, without: &[] };
        let compiled = Compiled::new(build, graph, cells, &mut watch);
        let compiled = Box::new(forget_lost(&self.contexts, &device, compiled)?);
        watch.report(|event| context.trace(event));
        context.place(VulkanDelegate { compiled, device, contexts: self.contexts.clone() })
    }
}

/// Reads the graph of a delegate, and what of it callers are shown: what the compiler of torchlet
/// wrote, or the exporter, who does not say what is kept.
fn read<'p>(
    bytes: &'p [u8],
    named: &Named<'_, 'p>,
) -> Result<(Graph<'p>, Vec<cells::Cell>), Error> {
    if !blob::is_blob(bytes) {
        return Ok((front::vulkan::read(bytes, named)?, Vec::new()));
    }
    let mut graph = blob::read(bytes, named)?;
    graph.mark_changes();
    let cells = cells::of(&graph)?;
    Ok((graph, cells))
}

/// A compiled graph as a delegate.
struct VulkanDelegate {
    compiled: Box<Compiled>,
    device: Arc<Context>,
    contexts: Contexts,
}

impl VulkanDelegate {
    /// Works with the graph once the device is done with a run that was cancelled.
    fn with_idle<T>(
        &mut self,
        work: impl FnOnce(&mut Compiled) -> Result<T, Error>,
    ) -> Result<T, DelegateError> {
        let result = self.compiled.finish_pending().and_then(|()| work(&mut self.compiled));
        forget_lost(&self.contexts, &self.device, result)
    }
}

impl Drop for VulkanDelegate {
    fn drop(&mut self) {
        // Memory is freed before recordings are. If waiting fails, the device is lost, or abandoned
        // with its memory.
        let _ = self.compiled.finish_pending();
    }
}

impl Delegate for VulkanDelegate {
    fn execute(&mut self, call: &mut DelegateCall<'_, '_>) -> Result<(), DelegateError> {
        self.with_idle(|compiled| compiled.run(call, None).map(drop))
    }

    fn execute_argmax(
        &mut self,
        call: &mut DelegateCall<'_, '_>,
        arg: usize,
        indices: &mut [i32],
    ) -> Result<Option<usize>, DelegateError> {
        self.with_idle(|compiled| compiled.run(call, Some(Wanted { arg, indices })))
    }

    fn reset(&mut self) -> Result<(), DelegateError> {
        self.with_idle(Compiled::reset)
    }

    fn state(&self, number: usize) -> Option<DelegateState<'_>> {
        let cell = self.compiled.cells.get(number)?;
        Some(DelegateState { name: cell.name.as_deref(), info: cell.info.clone() })
    }

    fn read_state(&self, number: usize, target: &mut [u8]) -> Result<(), DelegateError> {
        let result = self.compiled.finish_pending();
        let result = result.and_then(|()| self.compiled.read_cell(number, target));
        forget_lost(&self.contexts, &self.device, result)
    }

    fn write_state(&mut self, number: usize, source: &[u8]) -> Result<(), DelegateError> {
        self.with_idle(|compiled| compiled.write_cell(number, source))
    }
}
