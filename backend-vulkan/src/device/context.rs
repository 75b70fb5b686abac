//! A logical device with its queue, memory and pipelines, shared by all modules that run on it.

use super::buffer::MemoryKind;
use super::cache_file::{CacheFile, CacheKey, Holds};
use super::features::{DeviceFeature, DeviceFeatures, make_device};
use super::found::Found;
use super::instance::{DeviceInfo, DeviceKind, Instance};
use super::limits::Limits;
use super::memory::Meter;
use super::options::{Options, Upload};
use super::pipeline::Pipelines;
use super::power::Power;
use super::queues::{self, Lane};
use super::timestamps::{Calibration, Clock};
use crate::error::Error;
use crate::matrices;
use crate::trace::Stopwatch;
use crate::weights::Weights;
use ash::{khr, vk};
use gpu_allocator::AllocationSizes;
use gpu_allocator::vulkan::{Allocator, AllocatorCreateDesc};
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

/// A device that work runs on.
pub(crate) struct Context {
    pub(crate) info: DeviceInfo,
    pub(crate) limits: Limits,
    /// Where tensors may begin in a buffer: multiples of so many bytes.
    pub(crate) align: u64,
    pub(crate) pipelines: ManuallyDrop<Pipelines>,
    pub(crate) raw: ash::Device,
    /// The queue that computes.
    pub(crate) compute: Lane,
    /// The one for uploads alone, where there is one and it is used.
    pub(crate) uploads: Option<Lane>,
    /// How many loads used it.
    pub(crate) transfers: AtomicUsize,
    /// Whether the host writes constants where they stay: it can write to all of the device's
    /// memory.
    pub(crate) host_writes: bool,
    /// How long it took to open the device, until somebody asks.
    pub(crate) opening: Mutex<Option<Stopwatch>>,
    /// The clock of the queue, if it has one.
    pub(crate) clock: Option<Clock>,
    calibration: Option<Calibration>,
    /// What the device can do beyond Vulkan 1.1, but for what is disabled.
    pub(crate) features: DeviceFeatures,
    /// The functions of timeline semaphores, where they are used.
    pub(crate) timeline: Option<khr::timeline_semaphore::Device>,
    /// The invocations that keep the device busy, roughly.
    pub(crate) busy: usize,
    /// Its processors, where they are known and nobody said what keeps it busy.
    pub(crate) processors: Option<usize>,
    /// Whether weights are read into the device's cache before they are needed, if that was said.
    pub(crate) prefetch: Option<bool>,
    /// What the machine runs on, which says whether threads poll for short runs before they sleep.
    power: Power,
    /// The longest that a submission may take.
    pub(crate) timeout: Duration,
    /// How long a program may be measured when it is loaded.
    pub(crate) tune: Duration,
    /// The way that calls go wherever they have so many, whatever was found.
    pub(crate) way: Option<u8>,
    /// What was found when programs were measured.
    pub(crate) found: Found,
    /// Whether matrix units are worth it, once that is known.
    pub(crate) matrices: OnceLock<bool>,
    /// The weights that graphs have on it.
    pub(crate) weights: Weights,
    /// The memory in use.
    pub(crate) meter: Meter,
    state: AtomicU8,
    /// The most bytes that the device allocates in one piece.
    pub(crate) largest_allocation: u64,
    physical: vk::PhysicalDevice,
    allocator: ManuallyDrop<Mutex<Allocator>>,
    instance: Arc<Instance>,
}

/// How long a run may take on a GPU, unless set otherwise.
pub(crate) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// A context's state: it works; the device is lost; what the device does is not known, and its
/// objects are left alone.
const WORKS: u8 = 0;
const LOST: u8 = 1;
const ABANDONED: u8 = 2;

impl Context {
    /// Opens the device that the options name; else the one that the environment names; else the
    /// most capable.
    pub(crate) fn open(options: &Options) -> Result<Arc<Self>, Error> {
        let options = options.clone().or_environment(|name| std::env::var(name).ok())?;
        let mut watch = Stopwatch::new(true);
        let instance = Instance::shared()?;
        watch.lap("make instance");
        let physical = instance.physical_devices()?;
        let infos: Vec<DeviceInfo> = physical
            .iter()
            .enumerate()
            .map(|(index, device)| instance.info(index, *device))
            .collect();
        let info = choose(&infos, options.device.as_deref())?.clone();
        let device = *physical
            .get(info.index)
            .ok_or_else(|| Error::Unavailable("the device has gone".to_owned()))?;
        let families = instance.families(device);
        let family = queues::compute_family(&families)
            .ok_or_else(|| Error::Unavailable("the device has no queue for compute".to_owned()))?;
        let upload = options.upload.unwrap_or_default();
        let host_writes = upload == Upload::Host && instance.host_sees_device(device);
        // What is not used costs nothing: memory that two families use may be slower.
        let transfers = upload != Upload::Copy && !host_writes;
        let for_transfers = queues::transfer_family(&families).filter(|_| transfers);
        watch.lap("look at devices");
        let features = info.features.without(&options.disabled);
        let both: Vec<u32> = [family].into_iter().chain(for_transfers).collect();
        let raw = make_device(&instance, device, &both, &features)
            .map_err(Error::of("vkCreateDevice"))?;
        // SAFETY: the family was created with one queue.
        let lane = |family| Lane::new(family, unsafe { raw.get_device_queue(family, 0) });
        let compute = lane(family);
        let stand_in = (transfers && options.stand_in).then(|| compute.for_copies());
        let uploads = for_transfers.map(|family| lane(family).for_copies()).or(stand_in);
        watch.lap("make device");
        // SAFETY: the device is one of the instance's.
        let properties = unsafe { instance.raw.get_physical_device_properties(device) };
        let clock = families.get(family as usize).map_or(0, |family| family.timestamp_valid_bits);
        let clock = Clock::new(clock, properties.limits.timestamp_period);
        let allocator = Allocator::new(&AllocatorCreateDesc {
            instance: instance.raw.clone(),
            device: raw.clone(),
            physical_device: device,
            debug_settings: Default::default(),
            buffer_device_address: false,
            // Blocks that the host sees take long to make: they start small.
            allocation_sizes: AllocationSizes::new(16 << 20, 4 << 20)
                .with_max_device_memblock_size(256 << 20)
                .with_max_host_memblock_size(64 << 20),
        })
        .map_err(|error| {
            // SAFETY: nothing was made on the device.
            unsafe { raw.destroy_device(None) };
            Error::OutOfMemory(error.to_string())
        })?;
        let folder = options.pipeline_cache.as_deref();
        let file = |holds| Some(CacheFile::new(folder?, CacheKey::of(&properties), holds));
        let pipelines =
            Pipelines::new(&instance.raw, raw.clone(), file(Holds::Pipelines), &features);
        watch.lap("read pipeline cache");
        let calibration = (clock.is_some() && features.has(DeviceFeature::CalibratedTimestamps))
            .then(|| Calibration::new(&instance, device, &raw));
        let timeline = features
            .has(DeviceFeature::TimelineSemaphore)
            .then(|| khr::timeline_semaphore::Device::new(&instance.raw, &raw));
        // A software device may need any time.
        let longest = match info.kind {
            DeviceKind::Cpu => Duration::MAX,
            _ => DEFAULT_TIMEOUT,
        };
        let timeout = match options.timeout {
            Some(Duration::ZERO) => Duration::MAX,
            Some(timeout) => timeout,
            None => longest,
        };
        let found = Found::new(file(Holds::Choices));
        let probes = options.probe_matrices.unwrap_or(true);
        let matrices = matrices::known(features.multiply_halves() && probes, &found);
        let busy = options.busy.unwrap_or(info.busy_invocations());
        let cores = info.cores.filter(|_| options.busy.is_none());
        let processors = cores.map(|it| it.count as usize);
        Ok(Arc::new(Context {
            info,
            busy,
            processors,
            prefetch: options.prefetch,
            limits: Limits::of(&properties.limits, options.fold_at, options.buffers),
            align: properties.limits.min_storage_buffer_offset_alignment.max(16),
            pipelines: ManuallyDrop::new(pipelines),
            raw,
            compute,
            clock,
            calibration: calibration.flatten(),
            host_writes,
            uploads,
            transfers: AtomicUsize::new(0),
            opening: Mutex::new(Some(watch)),
            allocator: ManuallyDrop::new(Mutex::new(allocator)),
            largest_allocation: options
                .largest_allocation
                .unwrap_or(u64::MAX)
                .min(instance.largest_allocation(device)),
            physical: device,
            features,
            timeline,
            power: Power::new(),
            timeout,
            tune: options.tune.unwrap_or_default(),
            way: options.way,
            found,
            matrices,
            weights: Weights::default(),
            meter: Meter::new(options.memory_limit),
            state: AtomicU8::new(WORKS),
            instance,
        }))
    }

    /// Whether short runs are polled for: a device that computes on the CPU needs that CPU, and a
    /// battery is not to be spent on waiting.
    pub(crate) fn polls(&self) -> bool {
        self.info.kind != DeviceKind::Cpu && !self.power.is_battery()
    }

    /// What programs use of what the device can do: matrix units only if they are worth it, as far
    /// as that is known.
    pub(crate) fn used_features(&self) -> DeviceFeatures {
        matrices::used(&self.features, self.matrices.get().copied())
    }

    /// A moment by the host's clock and, in ticks, by the device's; `None` where these cannot be
    /// compared.
    pub(crate) fn now(&self) -> Option<(Instant, u64)> {
        self.calibration.as_ref()?.now()
    }

    /// The allocator, for the time of one allocation. A panic elsewhere cannot have left it
    /// half-changed.
    pub(crate) fn allocator(&self) -> MutexGuard<'_, Allocator> {
        self.allocator.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Submits work to a queue. The caller vouches that the command buffers are recorded for its
    /// family and not pending, that semaphores are waited for as often as they are signalled, and
    /// that the fence is unsignalled.
    pub(crate) fn submit(
        &self,
        lane: &Lane,
        submit: vk::SubmitInfo<'_>,
        fence: vk::Fence,
    ) -> Result<(), Error> {
        if !self.works() {
            return Err(Error::Vulkan("vkQueueSubmit", vk::Result::ERROR_DEVICE_LOST));
        }
        let queue = lane.queue();
        // SAFETY: as the caller vouches; the lock keeps other threads off the queue.
        unsafe { self.raw.queue_submit(*queue, &[submit], fence) }
            .map_err(Error::of("vkQueueSubmit"))
            .inspect_err(|error| self.note(error))
    }

    /// The result of waiting for a submission. If the wait failed, but for the loss of the device,
    /// nobody knows whether the device is still at work: then nothing that it may use is ever
    /// freed.
    pub(crate) fn waited(
        self: &Arc<Self>,
        call: &'static str,
        result: Result<(), vk::Result>,
    ) -> Result<(), Error> {
        let error = match result {
            Ok(()) => return Ok(()),
            Err(vk::Result::ERROR_DEVICE_LOST) => {
                Error::Vulkan(call, vk::Result::ERROR_DEVICE_LOST)
            }
            Err(error) => {
                self.state.store(ABANDONED, Ordering::Release);
                std::mem::forget(self.clone());
                match error {
                    vk::Result::TIMEOUT => Error::Hung(self.timeout),
                    error => Error::Vulkan(call, error),
                }
            }
        };
        self.note(&error);
        Err(error)
    }

    fn note(&self, error: &Error) {
        if error.is_device_loss() {
            // What is abandoned stays so.
            self.state.fetch_max(LOST, Ordering::AcqRel);
        }
    }

    /// Whether the device can be used.
    pub(crate) fn works(&self) -> bool {
        self.state.load(Ordering::Acquire) == WORKS
    }

    /// From now on, the device counts as lost.
    pub(crate) fn lose(&self) {
        self.state.fetch_max(LOST, Ordering::AcqRel);
    }

    /// Whether a submission may be pending forever, so that nothing it uses may be freed.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.state.load(Ordering::Acquire) == ABANDONED
    }

    /// Whether there is so much memory, as far as the system tells.
    pub(crate) fn check_memory(&self, bytes: u64, kind: MemoryKind) -> Result<(), Error> {
        if bytes > self.largest_allocation {
            let most = self.largest_allocation;
            return Err(Error::OutOfMemory(format!(
                "{bytes} bytes in one piece, the device gives at most {most}"
            )));
        }
        let on_device = matches!(kind, MemoryKind::Device | MemoryKind::Constants);
        if on_device && self.features.has(DeviceFeature::MemoryBudget) {
            let free = self.instance.free_memory(self.physical);
            if bytes > free {
                return Err(Error::OutOfMemory(format!("{bytes} bytes, {free} are free")));
            }
        }
        Ok(())
    }
}

/// The devices that there are, with what these options leave of their features, and what is
/// remembered of them.
pub(crate) fn listed(options: &Options) -> Result<Vec<DeviceInfo>, Error> {
    let options = options.clone().or_environment(|name| std::env::var(name).ok())?;
    let instance = Instance::shared()?;
    let physical = instance.physical_devices()?;
    let info = |(index, device): (usize, &vk::PhysicalDevice)| {
        let mut info = instance.info(index, *device);
        info.features = info.features.without(&options.disabled);
        // SAFETY: the device is one of the instance's.
        let properties = unsafe { instance.raw.get_physical_device_properties(*device) };
        let folder = options.pipeline_cache.as_deref();
        let file =
            folder.map(|folder| CacheFile::new(folder, CacheKey::of(&properties), Holds::Choices));
        if info.features.multiply_halves() {
            let probes = options.probe_matrices.unwrap_or(true);
            info.matrix_units = matrices::known(probes, &Found::new(file)).get().copied();
        }
        info
    };
    Ok(physical.iter().enumerate().map(info).collect())
}

/// The device that a context for these options would be of, without opening it.
pub(crate) fn chosen(options: &Options) -> Result<DeviceInfo, Error> {
    let options = options.clone().or_environment(|name| std::env::var(name).ok())?;
    let instance = Instance::shared()?;
    let physical = instance.physical_devices()?;
    let infos = physical.iter().enumerate().map(|(index, device)| instance.info(index, *device));
    let infos: Vec<DeviceInfo> = infos.collect();
    choose(&infos, options.device.as_deref()).cloned()
}

fn choose<'i>(infos: &'i [DeviceInfo], wanted: Option<&str>) -> Result<&'i DeviceInfo, Error> {
    let usable = |info: &&DeviceInfo| info.unusable.is_none();
    match wanted {
        Some(wanted) => {
            let named = |info: &&DeviceInfo| {
                wanted.parse() == Ok(info.index)
                    || info.name.to_lowercase().contains(&wanted.to_lowercase())
            };
            infos.iter().filter(usable).find(named).ok_or_else(|| {
                let why = why_not(infos.iter().filter(named));
                Error::Unavailable(format!("no usable Vulkan device matches '{wanted}'{why}"))
            })
        }
        None => infos
            .iter()
            .filter(usable)
            // The first of the best kind: `max_by_key` alone would take the last.
            .min_by_key(|info| (std::cmp::Reverse(info.kind), info.index))
            .ok_or_else(|| {
                Error::Unavailable(format!("no usable Vulkan device{}", why_not(infos.iter())))
            }),
    }
}

/// What these lack, to be told behind that they cannot be used.
fn why_not<'i>(infos: impl Iterator<Item = &'i DeviceInfo>) -> String {
    let reasons = infos.filter_map(|info| {
        let why = info.unusable.as_ref()?;
        Some(format!("{}: {why}", info.name))
    });
    let reasons: Vec<String> = reasons.collect();
    if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join("; ")) }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: everything made on the device holds the context by reference count and is gone;
        // nothing is pending, since every submission is waited for. Pipelines and allocator are
        // dropped once, here, before the device.
        unsafe {
            ManuallyDrop::drop(&mut self.pipelines);
            ManuallyDrop::drop(&mut self.allocator);
            self.raw.destroy_device(None);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::device::{Binding, Buffer, Command, DeviceLimits, Recording};

    /// A context of its own, where there is a device.
    pub(in super::super) fn context(options: &Options) -> Option<Arc<Context>> {
        let wanted = std::env::var("TORCHLET_TEST_VULKAN").unwrap_or_default();
        match Context::open(options) {
            _ if wanted == "off" => None,
            Ok(context) => Some(context),
            Err(error) => {
                assert_ne!(wanted, "required", "there has to be a device: {error}");
                None
            }
        }
    }

    /// Copies bytes on the device, and back.
    fn copy(context: &Arc<Context>) -> Result<Vec<u8>, Error> {
        let mut source = Buffer::new(context, 16, MemoryKind::Upload)?;
        let mut target = Buffer::new(context, 16, MemoryKind::Download)?;
        source.mapped().fill(7);
        let binding =
            |buffer: &Buffer, written| Binding { buffer: buffer.raw, offset: 0, size: 16, written };
        let (from, to) = (binding(&source, false), binding(&target, true));
        let mut recording = Recording::new(context)?;
        recording.record(&[Command::Copy { from, to }], true)?;
        recording.run()?;
        let times = recording.times()?;
        assert_eq!(times.map(|times| times.len()), context.clock.map(|_| 2));
        Ok(target.mapped().iter().copied().take(16).collect())
    }

    #[test]
    fn devices_that_cannot_be_used_are_told_of() {
        let device = |index, kind, unusable: Option<&str>| DeviceInfo {
            index,
            name: format!("Device {index}"),
            kind,
            version: (1, 1, 0),
            memory: 0,
            features: DeviceFeatures::default(),
            cores: None,
            limits: DeviceLimits::default(),
            transfer_queue: false,
            matrix_units: None,
            unusable: unusable.map(str::to_owned),
            driver: String::new(),
            workarounds: Vec::new(),
        };
        let small = device(0, DeviceKind::Discrete, Some("it is small"));
        let good = device(1, DeviceKind::Integrated, None);
        let both = [small.clone(), good];
        assert_eq!(choose(&both, None).unwrap().index, 1);
        assert_eq!(choose(&both, Some("device")).unwrap().index, 1);
        let why = |found: Result<&DeviceInfo, Error>| found.unwrap_err().to_string();
        let said = why(choose(&both, Some("0")));
        assert!(said.ends_with("matches '0' (Device 0: it is small)"), "{said}");
        let said = why(choose(&[small], None));
        assert!(said.ends_with("no usable Vulkan device (Device 0: it is small)"), "{said}");
        let said = why(choose(&both, Some("other")));
        assert!(said.ends_with("no usable Vulkan device matches 'other'"), "{said}");
    }

    #[test]
    fn work_is_waited_for_with_and_without_timeline_semaphores() {
        for disabled in [Vec::new(), vec![DeviceFeature::TimelineSemaphore]] {
            let Some(context) = context(&Options { disabled, ..Options::default() }) else {
                return;
            };
            for _ in 0..3 {
                assert_eq!(copy(&context).unwrap(), [7; 16]);
            }
        }
    }

    #[test]
    fn what_a_hung_device_may_use_is_left_alone() {
        let Some(context) = context(&Options::default()) else { return };
        let buffer = Buffer::new(&context, 1 << 20, MemoryKind::Device).unwrap();
        let recording = Recording::new(&context).unwrap();
        let error = context.waited("vkWaitForFences", Err(vk::Result::TIMEOUT)).unwrap_err();
        assert!(matches!(error, Error::Hung(_)) && error.is_device_loss());
        assert!(!context.works() && context.is_abandoned());
        drop((buffer, recording));
        assert!(copy(&context).unwrap_err().is_device_loss());
        let other = Context::open(&Options::default()).unwrap();
        assert_eq!(copy(&other).unwrap(), [7; 16]);
    }

    #[test]
    fn more_memory_than_there_is_is_refused() {
        let Some(context) = context(&Options::default()) else { return };
        for bytes in [u64::MAX, 1 << 60, 1 << 46] {
            for kind in [MemoryKind::Device, MemoryKind::Constants, MemoryKind::Upload] {
                let made = Buffer::new(&context, bytes, kind).map(drop);
                assert!(matches!(made, Err(Error::OutOfMemory(_))), "{bytes}: {made:?}");
            }
        }
        assert_eq!(context.meter.report().used, 0);
        assert_eq!(copy(&context).unwrap(), [7; 16]);
    }
}
