//! A logical device with its queues, memory and pipelines, shared by all modules on that device.

use super::buffer::{Buffer, MemoryKind};
use super::cache_file::{CacheFile, CacheKey, Holds};
use super::clock::{Calibration, Clock};
use super::features::make_device;
use super::info::{DeviceInfo, info};
use super::instance::Instance;
use super::limits::plan_limits;
use super::memory::Meter;
use super::options::{Options, Upload};
use super::pipeline::Pipelines;
use super::power::Power;
use super::queues::{self, Lane};
use super::tuning_results::{TuningResults, known_matrix_units};
use crate::error::Error;
use crate::stopwatch::Stopwatch;
use ash::{khr, vk};
use gpu_allocator::AllocationSizes;
use gpu_allocator::vulkan::{Allocator, AllocatorCreateDesc};
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};
use torchlet_gpu::device::{Device, DeviceFeature, DeviceFeatures, DeviceKind, Limits};
use torchlet_gpu::{OpenDevice, SharedWeights, matrix_units};

/// An open device.
pub(crate) struct Context {
    pub(crate) info: DeviceInfo,
    pub(crate) limits: Limits,
    pub(crate) pipelines: ManuallyDrop<Pipelines>,
    pub(crate) raw: ash::Device,
    /// The compute queue.
    pub(crate) compute: Lane,
    /// The dedicated upload queue, if the device has such a queue and uploads use it.
    pub(crate) uploads: Option<Lane>,
    /// The number of loads that used the upload queue.
    pub(crate) transfers: AtomicUsize,
    /// Whether the host writes constants directly to device memory, which requires that it can map
    /// all of that memory.
    pub(crate) host_writes: bool,
    /// How long opening the device lasted; taken by the first load, which reports it.
    pub(crate) opening: Mutex<Option<Stopwatch>>,
    /// The timestamp clock of the compute queue, if that queue supports timestamps.
    pub(crate) clock: Option<Clock>,
    calibration: Option<Calibration>,
    /// The device's optional features, without disabled ones.
    pub(crate) features: DeviceFeatures,
    /// The functions of timeline semaphores, if they are used.
    pub(crate) timeline: Option<khr::timeline_semaphore::Device>,
    /// The approximate number of invocations that saturate the device.
    pub(crate) busy: usize,
    /// The number of processors, if known and not overridden by an explicit `busy` option.
    pub(crate) processors: Option<usize>,
    /// Whether weights are prefetched into the device's cache; `None` decides by device and
    /// program.
    pub(crate) prefetch: Option<bool>,
    /// The power source, which decides whether threads poll for short runs before they sleep.
    power: Power,
    /// The timeout of a submission.
    pub(crate) timeout: Duration,
    /// The time for autotuning a program at load.
    pub(crate) tune: Duration,
    /// The kernel variant index that all calls use if they have it, overriding autotuning.
    pub(crate) variant: Option<u8>,
    /// Autotuning results for this device.
    pub(crate) found: TuningResults,
    /// Whether programs use matrix units; unset until the benchmark has run.
    pub(crate) matrices: OnceLock<bool>,
    /// The shared weights of the graphs on this device.
    pub(crate) weights: SharedWeights<Buffer>,
    /// The device memory in use.
    pub(crate) meter: Meter,
    state: AtomicU8,
    /// The maximum size of one memory allocation, in bytes.
    pub(crate) largest_allocation: u64,
    physical: vk::PhysicalDevice,
    allocator: ManuallyDrop<Mutex<Allocator>>,
    instance: Arc<Instance>,
}

/// The states of a context: usable; lost; or abandoned, if the state of the device is unknown, so
/// that its objects must not be destroyed.
const WORKS: u8 = 0;
const LOST: u8 = 1;
const ABANDONED: u8 = 2;

impl Context {
    /// Opens a device: the one that the options select, else the one that the environment selects,
    /// else the most capable one.
    pub(crate) fn open(options: &Options) -> Result<Arc<Self>, Error> {
        let options = options.clone().or_environment(|name| std::env::var(name).ok())?;
        let mut watch = Stopwatch::new(true);
        let instance = Instance::shared()?;
        watch.lap("create instance");
        let physical = instance.physical_devices()?;
        let infos: Vec<DeviceInfo> = physical
            .iter()
            .enumerate()
            .map(|(index, device)| info(&instance, index, *device))
            .collect();
        let info = choose(&infos, options.device.as_deref())?.clone();
        let device = *physical.get(info.index).ok_or_else(|| {
            Error::Unavailable("the selected device has disappeared; open it again".to_owned())
        })?;
        let families = instance.families(device);
        let family = queues::compute_family(&families).ok_or_else(|| {
            Error::Unavailable(
                "the selected device has no compute queue; choose another one".to_owned(),
            )
        })?;
        let upload = options.upload.unwrap_or_default();
        let host_writes = upload == Upload::Host && instance.host_sees_device(device);
        // The transfer family is requested only if it is used: sharing memory between families may
        // be slower.
        let transfers = upload != Upload::Copy && !host_writes;
        let for_transfers = queues::transfer_family(&families).filter(|_| transfers);
        watch.lap("list devices");
        let features = info.features.without(&options.disabled);
        let both: Vec<u32> = [family].into_iter().chain(for_transfers).collect();
        let raw = make_device(&instance, device, &both, &features)
            .map_err(Error::of("vkCreateDevice"))?;
        // SAFETY: the family was created with one queue.
        let lane = |family| Lane::new(family, unsafe { raw.get_device_queue(family, 0) });
        let compute = lane(family);
        let stand_in = (transfers && options.stand_in).then(|| compute.for_copies());
        let uploads = for_transfers.map(|family| lane(family).for_copies()).or(stand_in);
        watch.lap("create device");
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
            // Host-visible blocks are slow to allocate, so they start small.
            allocation_sizes: AllocationSizes::new(16 << 20, 4 << 20)
                .with_max_device_memblock_size(256 << 20)
                .with_max_host_memblock_size(64 << 20),
        })
        .map_err(|error| {
            // SAFETY: no objects exist on the device yet.
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
        let timeout = info.kind.timeout(options.timeout);
        let found = TuningResults::new(file(Holds::Choices));
        let probes = options.probe_matrices.unwrap_or(true);
        let matrices = known_matrix_units(features.multiply_halves() && probes, &found);
        let busy = options.busy.unwrap_or(info.busy_invocations());
        let cores = info.cores.filter(|_| options.busy.is_none());
        let processors = cores.map(|it| it.count as usize);
        Ok(Arc::new(Context {
            info,
            busy,
            processors,
            prefetch: options.prefetch,
            limits: plan_limits(&properties.limits, options.fold_at, options.buffers),
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
            variant: options.variant,
            found,
            matrices,
            weights: SharedWeights::default(),
            meter: Meter::new(options.memory_limit),
            state: AtomicU8::new(WORKS),
            instance,
        }))
    }

    /// Whether threads poll for short runs. They do not on software devices, which need the CPU
    /// themselves, and not on battery power.
    pub(crate) fn polls(&self) -> bool {
        self.info.kind != DeviceKind::Cpu && !self.power.is_battery()
    }

    /// Returns the device properties that plans depend on.
    pub(crate) fn planned(&self) -> Device {
        Device {
            kind: self.info.kind,
            features: self.used_features(),
            limits: self.limits.clone(),
            busy: self.busy,
            allocation: self.largest_allocation,
            processors: self.processors,
        }
    }

    /// Returns the features that programs use: those of the device, without matrix units if the
    /// benchmark found them to be slow.
    pub(crate) fn used_features(&self) -> DeviceFeatures {
        matrix_units::used(&self.features, self.matrices.get().copied())
    }

    /// Reads the host clock and the device clock (in ticks) at the same moment; `None` if they
    /// cannot be compared.
    pub(crate) fn now(&self) -> Option<(Instant, u64)> {
        self.calibration.as_ref()?.now()
    }

    /// Returns the largest 2D image of a format and usage, with `linear` filtering; `None` if the
    /// device has no such images.
    pub(super) fn largest_image(
        &self,
        format: vk::Format,
        usage: vk::ImageUsageFlags,
        linear: bool,
    ) -> Option<[u32; 2]> {
        let (kind, tiling) = (vk::ImageType::TYPE_2D, vk::ImageTiling::OPTIMAL);
        let none = vk::ImageCreateFlags::empty();
        let instance = &self.instance.raw;
        // SAFETY: the device is one of the instance's. Drivers answer for unknown formats, too.
        let (found, properties) = unsafe {
            (
                instance.get_physical_device_image_format_properties(
                    self.physical,
                    format,
                    kind,
                    tiling,
                    usage,
                    none,
                ),
                instance.get_physical_device_format_properties(self.physical, format),
            )
        };
        let filters = vk::FormatFeatureFlags::SAMPLED_IMAGE_FILTER_LINEAR;
        let fits = !linear || properties.optimal_tiling_features.contains(filters);
        let extent = found.ok().filter(|_| fits)?.max_extent;
        Some([extent.width, extent.height])
    }

    /// Returns the limits on foreign shaders.
    pub(crate) fn foreign_limits(&self) -> crate::foreign::Limits {
        // SAFETY: the device is one of the instance's.
        let properties = unsafe { self.instance.raw.get_physical_device_properties(self.physical) };
        let version = match self.info.version {
            (1, 0 | 1, _) => [1, 3],
            (1, 2, _) => [1, 5],
            _ => [1, 6],
        };
        let limits = properties.limits;
        crate::foreign::Limits {
            version,
            invocations: limits.max_compute_work_group_invocations,
            workgroup: limits.max_compute_work_group_size,
            shared: limits.max_compute_shared_memory_size,
        }
    }

    /// Locks the allocator. Poisoning can be ignored: a panic elsewhere cannot leave it
    /// half-changed.
    pub(crate) fn allocator(&self) -> MutexGuard<'_, Allocator> {
        self.allocator.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Submits work to a queue. The caller guarantees that the command buffers are recorded for the
    /// queue's family and not pending, that semaphores are waited for as often as they are
    /// signalled, and that the fence is unsignalled.
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
        // SAFETY: the caller guarantees the preconditions; the lock gives exclusive access to the
        // queue.
        unsafe { self.raw.queue_submit(*queue, &[submit], fence) }
            .map_err(Error::of("vkQueueSubmit"))
            .inspect_err(|error| self.note(error))
    }

    /// Handles the result of waiting for a submission. If waiting fails and the device is not lost,
    /// the device may still be busy. The context is then abandoned, and memory that the device may
    /// use is never freed.
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
            // An abandoned context stays abandoned.
            self.state.fetch_max(LOST, Ordering::AcqRel);
        }
    }

    /// Whether the device can be used.
    pub(crate) fn works(&self) -> bool {
        self.state.load(Ordering::Acquire) == WORKS
    }

    /// Marks the device as lost.
    pub(crate) fn lose(&self) {
        self.state.fetch_max(LOST, Ordering::AcqRel);
    }

    /// Whether a submission may stay pending forever, so that memory that it uses must not be
    /// freed.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.state.load(Ordering::Acquire) == ABANDONED
    }

    /// Checks the size of an allocation against the device's limit and, if the driver reports it,
    /// against the memory budget.
    pub(crate) fn check_memory(&self, bytes: u64, kind: MemoryKind) -> Result<(), Error> {
        if bytes > self.largest_allocation {
            let most = self.largest_allocation;
            return Err(Error::OutOfMemory(format!(
                "an allocation of {bytes} bytes exceeds the device limit of {most}"
            )));
        }
        let on_device = matches!(kind, MemoryKind::Device | MemoryKind::Constants);
        if on_device && self.features.has(DeviceFeature::MemoryBudget) {
            let free = self.instance.free_memory(self.physical);
            if bytes > free {
                return Err(Error::OutOfMemory(format!(
                    "an allocation of {bytes} bytes exceeds the {free} free bytes of the device"
                )));
            }
        }
        Ok(())
    }
}

/// Lists the devices. Each has the features that these options do not disable, and the stored
/// measurements.
pub(crate) fn listed(options: &Options) -> Result<Vec<DeviceInfo>, Error> {
    let options = options.clone().or_environment(|name| std::env::var(name).ok())?;
    let instance = Instance::shared()?;
    let physical = instance.physical_devices()?;
    let info = |(index, device): (usize, &vk::PhysicalDevice)| {
        let mut info = info(&instance, index, *device);
        info.features = info.features.without(&options.disabled);
        // SAFETY: the device is one of the instance's.
        let properties = unsafe { instance.raw.get_physical_device_properties(*device) };
        let folder = options.pipeline_cache.as_deref();
        let file =
            folder.map(|folder| CacheFile::new(folder, CacheKey::of(&properties), Holds::Choices));
        if info.features.multiply_halves() {
            let probes = options.probe_matrices.unwrap_or(true);
            info.matrix_units =
                known_matrix_units(probes, &TuningResults::new(file)).get().copied();
        }
        info
    };
    Ok(physical.iter().enumerate().map(info).collect())
}

/// Returns the device that a context with these options would open, without opening it.
pub(crate) fn chosen(options: &Options) -> Result<DeviceInfo, Error> {
    let options = options.clone().or_environment(|name| std::env::var(name).ok())?;
    let instance = Instance::shared()?;
    let physical = instance.physical_devices()?;
    let infos = physical.iter().enumerate().map(|(index, device)| info(&instance, index, *device));
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
            // The first of the best kind; `max_by_key` alone would return the last.
            .min_by_key(|info| (std::cmp::Reverse(info.kind), info.index))
            .ok_or_else(|| {
                Error::Unavailable(format!("no usable Vulkan device{}", why_not(infos.iter())))
            }),
    }
}

/// Returns the reasons why these devices are unusable, as a suffix for an error message.
fn why_not<'i>(infos: impl Iterator<Item = &'i DeviceInfo>) -> String {
    let reasons = infos.filter_map(|info| {
        let why = info.unusable.as_ref()?;
        Some(format!("{}: {why}", info.name))
    });
    let reasons: Vec<String> = reasons.collect();
    if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join("; ")) }
}

impl OpenDevice for Context {
    type Error = Error;

    fn works(&self) -> bool {
        Context::works(self)
    }

    fn is_loss(error: &Error) -> bool {
        error.is_device_loss()
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: everything created on the device holds the context by reference count and is
        // gone; nothing is pending, since every submission is waited for. Pipelines and allocator
        // are dropped once, here, before the device.
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
    use crate::device::{Binding, Buffer, Command, Recording};
    use torchlet_gpu::device::DeviceLimits;

    /// Opens a context that no other test uses, if a device exists.
    pub(in super::super) fn context(options: &Options) -> Option<Arc<Context>> {
        let wanted = std::env::var("TORCHLET_TEST_VULKAN").unwrap_or_default();
        match Context::open(options) {
            _ if wanted == "off" => None,
            Ok(context) => Some(context),
            Err(error) => {
                assert_ne!(wanted, "required", "no device: {error}");
                None
            }
        }
    }

    /// Copies bytes to the device and back.
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
    fn unusable_devices_are_reported() {
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
        let message = why(choose(&both, Some("0")));
        assert!(message.ends_with("matches '0' (Device 0: it is small)"), "{message}");
        let message = why(choose(&[small], None));
        assert!(message.ends_with("no usable Vulkan device (Device 0: it is small)"), "{message}");
        let message = why(choose(&both, Some("other")));
        assert!(message.ends_with("no usable Vulkan device matches 'other'"), "{message}");
    }

    #[test]
    fn completion_works_with_and_without_timeline_semaphores() {
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
    fn hung_devices_are_abandoned() {
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
    fn too_large_allocations_are_rejected() {
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
