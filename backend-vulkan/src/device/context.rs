//! A logical device with its queue, memory and pipelines, shared by all modules that run on it.

use super::cache_file::{CacheFile, CacheKey};
use super::instance::{DeviceInfo, DeviceKind, Instance};
use super::options::Options;
use super::pipeline::Pipelines;
use super::timestamps::Clock;
use crate::error::Error;
use crate::trace::Stopwatch;
use ash::vk;
use gpu_allocator::AllocationSizes;
use gpu_allocator::vulkan::{Allocator, AllocatorCreateDesc};
use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// How long a run is polled for before its thread sleeps. On an NVIDIA H200, waking up takes 0.2 ms.
const POLLING: Duration = Duration::from_millis(2);

/// A device that work runs on.
pub(crate) struct Context {
    pub(crate) info: DeviceInfo,
    pub(crate) limits: vk::PhysicalDeviceLimits,
    pub(crate) pipelines: ManuallyDrop<Pipelines>,
    pub(crate) raw: ash::Device,
    pub(crate) family: u32,
    /// Whether the host can write to all of the device's memory.
    pub(crate) host_sees_device: bool,
    /// How long it took to open the device, until somebody asks.
    pub(crate) opening: Mutex<Option<Stopwatch>>,
    /// The clock of the queue, if it has one.
    pub(crate) clock: Option<Clock>,
    queue: Mutex<vk::Queue>,
    allocator: ManuallyDrop<Mutex<Allocator>>,
    _instance: Arc<Instance>,
}

impl Context {
    /// Opens the device that the options name; else the one that the environment names; else the most capable.
    pub(crate) fn open(options: &Options) -> Result<Arc<Self>, Error> {
        let options = options.clone().or_environment(|name| std::env::var(name).ok());
        let mut watch = Stopwatch::new(true);
        let instance = Arc::new(Instance::open()?);
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
        let family = instance
            .compute_family(device)
            .ok_or_else(|| Error::Unavailable("the device has no queue for compute".to_owned()))?;
        let queues = [vk::DeviceQueueCreateInfo::default()
            .queue_family_index(family)
            .queue_priorities(&[1.0])];
        watch.lap("look at devices");
        let create = vk::DeviceCreateInfo::default().queue_create_infos(&queues);
        // SAFETY: the device is one of the instance's, the queue family exists, and no feature or extension is asked for.
        let raw = unsafe { instance.raw.create_device(device, &create, None) }
            .map_err(Error::of("vkCreateDevice"))?;
        // SAFETY: the family was created with one queue.
        let queue = unsafe { raw.get_device_queue(family, 0) };
        watch.lap("make device");
        // SAFETY: the device is one of the instance's.
        let properties = unsafe { instance.raw.get_physical_device_properties(device) };
        let limits = properties.limits;
        let clock = Clock::new(instance.timestamp_bits(device, family), limits.timestamp_period);
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
        .map_err(|error| Error::OutOfMemory(error.to_string()))?;
        let file = options.pipeline_cache.as_deref();
        let file = file.map(|folder| CacheFile::new(folder, CacheKey::of(&properties)));
        let pipelines = Pipelines::new(raw.clone(), file);
        watch.lap("read pipeline cache");
        let host_sees_device = instance.host_sees_device(device);
        Ok(Arc::new(Context {
            info,
            limits,
            pipelines: ManuallyDrop::new(pipelines),
            raw,
            family,
            clock,
            host_sees_device,
            opening: Mutex::new(Some(watch)),
            queue: Mutex::new(queue),
            allocator: ManuallyDrop::new(Mutex::new(allocator)),
            _instance: instance,
        }))
    }

    /// The allocator, for the time of one allocation. A panic elsewhere cannot have left it half-changed.
    pub(crate) fn allocator(&self) -> MutexGuard<'_, Allocator> {
        self.allocator.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Submits a command buffer and waits until the fence says that it is done.
    pub(crate) fn run(&self, commands: vk::CommandBuffer, fence: vk::Fence) -> Result<(), Error> {
        let buffers = [commands];
        let submits = [vk::SubmitInfo::default().command_buffers(&buffers)];
        {
            let queue = self.queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            // SAFETY: the command buffer is recorded and not pending (its owner waits below before it runs it again),
            // the fence is unsignalled, and the lock keeps other threads off the queue.
            unsafe { self.raw.queue_submit(*queue, &submits, fence) }
                .map_err(Error::of("vkQueueSubmit"))?;
        }
        self.poll(fence);
        let fences = [fence];
        // SAFETY: the fence belongs to this device.
        unsafe { self.raw.wait_for_fences(&fences, true, u64::MAX) }
            .map_err(Error::of("vkWaitForFences"))?;
        // SAFETY: the fence is signalled, so no submission uses it.
        unsafe { self.raw.reset_fences(&fences) }.map_err(Error::of("vkResetFences"))
    }

    /// Looks at a fence again and again, for as long as a short run takes: waking up a thread that waits costs more. A
    /// device that computes on the CPU needs that CPU.
    fn poll(&self, fence: vk::Fence) {
        if self.info.kind == DeviceKind::Cpu {
            return;
        }
        let start = Instant::now();
        while start.elapsed() < POLLING {
            // SAFETY: the fence belongs to this device. An error is for the wait that follows to tell.
            if unsafe { self.raw.get_fence_status(fence) } != Ok(false) {
                return;
            }
            std::hint::spin_loop();
        }
    }
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
                Error::Unavailable(format!("no usable Vulkan device matches '{wanted}'"))
            })
        }
        None => infos
            .iter()
            .filter(usable)
            // The first of the best kind: `max_by_key` alone would take the last.
            .min_by_key(|info| (std::cmp::Reverse(info.kind), info.index))
            .ok_or_else(|| Error::Unavailable("no usable Vulkan device".to_owned())),
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: everything made on the device holds the context by reference count and is gone; nothing is pending,
        // since every submission is waited for. Pipelines and allocator are dropped once, here, before the device.
        unsafe {
            ManuallyDrop::drop(&mut self.pipelines);
            ManuallyDrop::drop(&mut self.allocator);
            self.raw.destroy_device(None);
        }
    }
}
