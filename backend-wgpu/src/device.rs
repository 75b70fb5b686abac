//! A logical device with its queue and pipelines, shared by all modules on that device.

use crate::error::Error;
use crate::limits::{features, lacking, plan_limits};
use crate::pipelines::Pipelines;
use crate::wait::wait;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use torchlet_gpu::device::{Device, DeviceKind};
use torchlet_gpu::{OpenDevice, SharedWeights};

/// Selects the adapter by index or by part of its name.
pub const DEVICE_VARIABLE: &str = "TORCHLET_WEBGPU_DEVICE";

/// The interval at which a waiting thread checks for cancellation, and lets others wait.
const INTERVAL: Duration = Duration::from_millis(1);

/// The options for opening a device.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    /// The index of the adapter, or a part of its name.
    pub(crate) device: Option<String>,
    /// The timeout of a run; zero disables it.
    pub(crate) timeout: Option<Duration>,
    /// The limits to request instead of the adapter's, for tests.
    pub(crate) limits: Option<wgpu::Limits>,
    /// Whether to refuse dispatches with overlapping buffers, as browsers do, for tests.
    pub(crate) refuses_overlaps: bool,
    /// The number of invocations that saturate the device, for tests.
    pub(crate) busy: Option<usize>,
}

impl Options {
    /// Returns the adapter that the options select, else the one that the environment selects.
    pub(crate) fn wanted(&self) -> Option<String> {
        self.device.clone().or_else(|| std::env::var(DEVICE_VARIABLE).ok())
    }
}

/// An adapter, without opening it.
pub(crate) struct Listed {
    adapter: wgpu::Adapter,
    pub(crate) info: wgpu::AdapterInfo,
    pub(crate) limits: wgpu::Limits,
    /// Why the adapter cannot be used.
    pub(crate) unusable: Option<String>,
}

/// An open device.
pub(crate) struct Context {
    pub(crate) kind: DeviceKind,
    pub(crate) device: wgpu::Device,
    pub(crate) queue: wgpu::Queue,
    pub(crate) pipelines: Pipelines,
    /// The shared weights of the graphs on this device.
    pub(crate) weights: SharedWeights<wgpu::Buffer>,
    pub(crate) refuses_overlaps: bool,
    limits: wgpu::Limits,
    busy: usize,
    timeout: Duration,
    /// Held while work is submitted and while the device is polled: wgpu panics if a thread handles
    /// the end of a submission that another one waits for.
    polling: Mutex<()>,
    /// Why the device is lost.
    lost: Arc<Mutex<Option<String>>>,
}

/// Returns the kind of an adapter.
pub(crate) fn kind_of(info: &wgpu::AdapterInfo) -> DeviceKind {
    match info.device_type {
        wgpu::DeviceType::DiscreteGpu => DeviceKind::Discrete,
        wgpu::DeviceType::IntegratedGpu => DeviceKind::Integrated,
        wgpu::DeviceType::VirtualGpu => DeviceKind::Virtual,
        wgpu::DeviceType::Cpu => DeviceKind::Cpu,
        wgpu::DeviceType::Other => DeviceKind::Other,
    }
}

/// Lists the adapters of the primary APIs: Vulkan, Metal and Direct3D 12.
pub(crate) fn adapters() -> Vec<Listed> {
    static INSTANCE: OnceLock<wgpu::Instance> = OnceLock::new();
    let instance = INSTANCE.get_or_init(|| {
        let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
        descriptor.backends = wgpu::Backends::PRIMARY;
        wgpu::Instance::new(descriptor)
    });
    let adapters = wait(instance.enumerate_adapters(wgpu::Backends::PRIMARY));
    let listed = adapters.into_iter().map(|adapter| {
        let (info, limits) = (adapter.get_info(), adapter.limits());
        let unusable = lacking(&limits);
        Listed { adapter, info, limits, unusable }
    });
    listed.collect()
}

/// Returns the index of the selected adapter: the one with this index or part of a name, else the
/// usable one of the best kind.
pub(crate) fn choose(adapters: &[Listed], wanted: Option<&str>) -> Result<usize, Error> {
    let names = || {
        let names = adapters.iter().map(|it| format!("{:?}", it.info.name));
        names.collect::<Vec<_>>().join(", ")
    };
    let found = match wanted {
        Some(wanted) => match wanted.parse::<usize>() {
            Ok(index) => (index < adapters.len()).then_some(index),
            Err(_) => {
                let wanted = wanted.to_lowercase();
                adapters.iter().position(|it| it.info.name.to_lowercase().contains(&wanted))
            }
        },
        None => {
            let usable = adapters.iter().enumerate().filter(|(_, it)| it.unusable.is_none());
            // The first of the best kind.
            let best = usable.min_by_key(|(_, it)| match kind_of(&it.info) {
                DeviceKind::Discrete => 0,
                DeviceKind::Integrated => 1,
                DeviceKind::Virtual => 2,
                DeviceKind::Other => 3,
                _ => 4,
            });
            best.map(|(index, _)| index)
        }
    };
    let index = found.ok_or_else(|| {
        Error::Unavailable(match (adapters.is_empty(), wanted) {
            (true, _) => {
                "no adapter found; a driver for Vulkan, Metal or Direct3D 12 is required".to_owned()
            }
            (false, Some(wanted)) => format!("no adapter {wanted:?}; there are {}", names()),
            (false, None) => format!("no adapter is usable; there are {}", names()),
        })
    })?;
    match adapters.get(index).and_then(|it| it.unusable.as_ref().map(|why| (it, why))) {
        Some((it, why)) => {
            Err(Error::Unavailable(format!("adapter {:?} is not usable: {why}", it.info.name)))
        }
        None => Ok(index),
    }
}

impl Context {
    /// Opens a device: the one that the options select, else the one that the environment selects,
    /// else the best one.
    pub(crate) fn open(options: &Options) -> Result<Arc<Self>, Error> {
        let mut adapters = adapters();
        let index = choose(&adapters, options.wanted().as_deref())?;
        let Listed { adapter, info, limits, .. } = adapters.swap_remove(index);
        let limits = options.limits.clone().unwrap_or(limits);
        if let Some(why) = lacking(&limits) {
            return Err(Error::Unavailable(format!(
                "adapter {:?} is not usable: {why}",
                info.name
            )));
        }
        let opened = wait(adapter.request_device(&wgpu::DeviceDescriptor {
            label: Some("torchlet"),
            required_limits: limits.clone(),
            ..Default::default()
        }));
        let (device, queue) = opened.map_err(|error| {
            Error::Unavailable(format!("adapter {:?} cannot be opened: {error}", info.name))
        })?;
        let lost = Arc::new(Mutex::new(None));
        let note = |slot: &Arc<Mutex<Option<String>>>, what: String| {
            slot.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(what);
        };
        let slot = lost.clone();
        device.set_device_lost_callback(move |_, what| note(&slot, what));
        // Operations are checked; an error outside of them leaves the device in an unknown state.
        let slot = lost.clone();
        device.on_uncaptured_error(Arc::new(move |error| note(&slot, text_of(&error))));
        let kind = kind_of(&info);
        Ok(Arc::new(Context {
            busy: options.busy.unwrap_or_else(|| kind.busy_invocations()),
            kind,
            device,
            queue,
            pipelines: Pipelines::default(),
            weights: SharedWeights::default(),
            refuses_overlaps: options.refuses_overlaps,
            limits,
            timeout: kind.timeout(options.timeout),
            polling: Mutex::new(()),
            lost,
        }))
    }

    /// Returns the device properties that plans depend on.
    pub(crate) fn planned(&self) -> Device {
        Device {
            kind: self.kind,
            features: features(),
            limits: plan_limits(&self.limits),
            busy: self.busy,
            allocation: self.limits.max_buffer_size,
            processors: None,
        }
    }

    /// Returns an error if the device is lost.
    pub(crate) fn works(&self) -> Result<(), Error> {
        match &*self.lost.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(why) => Err(Error::Lost(why.clone())),
            None => Ok(()),
        }
    }

    /// Makes the device behave as if it was lost. For tests.
    pub(crate) fn lose(&self) {
        self.device.destroy();
        self.set_lost("it was destroyed".to_owned());
    }

    fn set_lost(&self, why: String) {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
    }

    /// Runs operations of this thread on the device, and returns the first error that WebGPU
    /// reports for them.
    pub(crate) fn checked<T>(
        &self,
        what: &'static str,
        work: impl FnOnce() -> T,
    ) -> Result<T, Error> {
        self.works()?;
        let filters = [
            wgpu::ErrorFilter::Internal,
            wgpu::ErrorFilter::Validation,
            wgpu::ErrorFilter::OutOfMemory,
        ];
        let scopes = filters.map(|filter| self.device.push_error_scope(filter));
        let made = work();
        // Scopes end in the opposite order.
        let errors = scopes.into_iter().rev().filter_map(|scope| wait(scope.pop()));
        let first = errors.reduce(|first, _| first);
        self.works()?;
        match first {
            None => Ok(made),
            Some(error @ wgpu::Error::OutOfMemory { .. }) => {
                Err(Error::OutOfMemory(what, text_of(&error)))
            }
            Some(error) => Err(Error::Device(what, text_of(&error))),
        }
    }

    fn alone(&self) -> MutexGuard<'_, ()> {
        self.polling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Submits commands, and all writes to buffers before them.
    pub(crate) fn submit(&self, encoder: Option<wgpu::CommandEncoder>) -> wgpu::SubmissionIndex {
        let commands = encoder.map(wgpu::CommandEncoder::finish);
        let _only = self.alone();
        self.queue.submit(commands)
    }

    /// Waits for a submission, unless the run is cancelled.
    pub(crate) fn wait_for(
        &self,
        submission: &wgpu::SubmissionIndex,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<(), Error> {
        let start = Instant::now();
        loop {
            self.works()?;
            let left = self.timeout.saturating_sub(start.elapsed());
            let wait = wgpu::PollType::Wait {
                submission_index: Some(submission.clone()),
                timeout: Some(left.min(INTERVAL)),
            };
            match self.poll(wait)? {
                Some(()) => return self.works(),
                None if left.is_zero() => {
                    self.set_lost("a run exceeded its time".to_owned());
                    return Err(Error::Hung(self.timeout));
                }
                None if is_cancelled() => return Err(Error::Cancelled),
                None => {}
            }
        }
    }

    /// Polls the device; `None` if the time passed.
    fn poll(&self, how: wgpu::PollType) -> Result<Option<()>, Error> {
        let _only = self.alone();
        // wgpu panics if the device is lost while it is polled.
        match catch_unwind(AssertUnwindSafe(|| self.device.poll(how))) {
            Ok(Ok(_)) => Ok(Some(())),
            Ok(Err(wgpu::PollError::Timeout)) => Ok(None),
            Ok(Err(error)) => Err(Error::Device("waiting for the device", error.to_string())),
            Err(_) => {
                self.set_lost("waiting for it failed".to_owned());
                self.works().map(|()| None)
            }
        }
    }

    /// Copies bytes from a buffer to the host.
    pub(crate) fn read(
        &self,
        staging: &wgpu::Buffer,
        bytes: u64,
        use_bytes: impl FnOnce(&[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let found = Arc::new(Mutex::new(None));
        let slot = found.clone();
        let slice = staging.slice(..bytes);
        self.checked("mapping a buffer", || {
            slice.map_async(wgpu::MapMode::Read, move |result| {
                *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
            });
        })?;
        let taken = || found.lock().unwrap_or_else(PoisonError::into_inner).take();
        let start = Instant::now();
        let mapped = loop {
            if let Some(mapped) = taken() {
                break mapped;
            }
            self.works()?;
            let timeout = Some(INTERVAL);
            self.poll(wgpu::PollType::Wait { submission_index: None, timeout })?;
            if start.elapsed() > self.timeout {
                self.set_lost("mapping a buffer exceeded its time".to_owned());
                return Err(Error::Hung(self.timeout));
            }
        };
        mapped.map_err(|error| Error::Device("mapping a buffer", error.to_string()))?;
        let used = match slice.get_mapped_range() {
            Ok(view) => use_bytes(&view),
            Err(error) => Err(Error::Device("mapping a buffer", format!("{error:?}"))),
        };
        staging.unmap();
        used
    }
}

impl OpenDevice for Context {
    type Error = Error;

    fn works(&self) -> bool {
        Context::works(self).is_ok()
    }

    fn is_loss(error: &Error) -> bool {
        error.is_device_loss()
    }
}

/// Returns the text of an error on one line.
fn text_of(error: &wgpu::Error) -> String {
    error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}
