//! Buffers, each with its own memory allocation.

use super::Context;
use crate::error::Error;
use ash::vk;
use gpu_allocator::MemoryLocation;
use gpu_allocator::vulkan::{Allocation, AllocationCreateDesc, AllocationScheme};
use std::sync::Arc;

/// The purpose of a buffer, which determines its memory type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemoryKind {
    /// For tensors: in device memory.
    Device,
    /// For constants: in device memory, and host-visible where that has no cost.
    Constants,
    /// For staging: written by the host and read by the device.
    Upload,
    /// For staging: written by the device and read by the host.
    Download,
}

/// A buffer and its memory allocation.
pub(crate) struct Buffer {
    pub(crate) raw: vk::Buffer,
    allocation: Option<Allocation>,
    /// The number of bytes that the context's meter counts for the buffer.
    counted: u64,
    context: Arc<Context>,
}

impl Buffer {
    /// Creates a buffer of at least `size` bytes with unspecified contents.
    pub(crate) fn new(context: &Arc<Context>, size: u64, kind: MemoryKind) -> Result<Self, Error> {
        let size = size.max(16).checked_next_multiple_of(16).ok_or_else(|| {
            Error::OutOfMemory(format!("a buffer of {size} bytes exceeds the address space"))
        })?;
        let usage = vk::BufferUsageFlags::STORAGE_BUFFER
            | vk::BufferUsageFlags::TRANSFER_SRC
            | vk::BufferUsageFlags::TRANSFER_DST;
        context.check_memory(size, kind)?;
        let uploads = context.uploads.as_ref().filter(|_| kind == MemoryKind::Constants);
        let families: Vec<u32> = match uploads.map(|lane| lane.family) {
            Some(family) if family != context.compute.family => {
                vec![context.compute.family, family]
            }
            _ => Vec::new(),
        };
        let mut create = vk::BufferCreateInfo::default().size(size).usage(usage);
        // One queue family writes constants and another reads them. Transferring ownership would
        // need barriers on both queues for every load that adds to the buffer and every reset.
        // Concurrent sharing has no cost for buffers on current drivers; only images have
        // family-specific layouts.
        if !families.is_empty() {
            create =
                create.sharing_mode(vk::SharingMode::CONCURRENT).queue_family_indices(&families);
        }
        // SAFETY: the create info is complete; the device is alive.
        let raw = unsafe { context.raw.create_buffer(&create, None) }
            .map_err(Error::of("vkCreateBuffer"))?;
        let mut buffer = Buffer { raw, allocation: None, counted: 0, context: context.clone() };
        // SAFETY: the buffer was just created on this device.
        let requirements = unsafe { context.raw.get_buffer_memory_requirements(raw) };
        context.meter.add(requirements.size)?;
        buffer.counted = requirements.size;
        let allocate = |location| {
            let allocation_scheme = AllocationScheme::GpuAllocatorManaged;
            let name = "tensors";
            context.allocator().allocate(&AllocationCreateDesc {
                name,
                requirements,
                location,
                linear: true,
                allocation_scheme,
            })
        };
        let location = match kind {
            MemoryKind::Device => MemoryLocation::GpuOnly,
            MemoryKind::Constants if !context.host_writes => MemoryLocation::GpuOnly,
            MemoryKind::Constants | MemoryKind::Upload => MemoryLocation::CpuToGpu,
            MemoryKind::Download => MemoryLocation::GpuToCpu,
        };
        let mut allocation = allocate(location)
            .map_err(|error| Error::OutOfMemory(format!("a buffer of {size} bytes: {error}")))?;
        let on_device =
            allocation.memory_properties().contains(vk::MemoryPropertyFlags::DEVICE_LOCAL);
        // If no host-visible device memory is left, the allocator falls back to host memory, from
        // which each run would have to read the weights. Device memory is better.
        if kind == MemoryKind::Constants
            && !on_device
            && let Ok(better) = allocate(MemoryLocation::GpuOnly)
        {
            let worse = std::mem::replace(&mut allocation, better);
            // Errors are ignored for the reason given in `drop`.
            let _ = context.allocator().free(worse);
        }
        // SAFETY: the memory was allocated for this buffer's requirements and is bound once.
        let bound = unsafe {
            context.raw.bind_buffer_memory(raw, allocation.memory(), allocation.offset())
        };
        buffer.allocation = Some(allocation);
        bound.map_err(Error::of("vkBindBufferMemory"))?;
        Ok(buffer)
    }

    /// Whether the memory is device-local.
    pub(crate) fn is_on_device(&self) -> bool {
        self.allocation.as_ref().is_some_and(|allocation| {
            allocation.memory_properties().contains(vk::MemoryPropertyFlags::DEVICE_LOCAL)
        })
    }

    /// Returns the memory as mapped on the host; empty if the memory is not host-visible.
    pub(crate) fn mapped(&mut self) -> &mut [u8] {
        self.allocation
            .as_mut()
            .and_then(|allocation| allocation.mapped_slice_mut())
            .unwrap_or_default()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.context.meter.remove(self.counted);
        if self.context.is_abandoned() {
            // The device may still use the memory, so it is leaked.
            std::mem::forget(self.allocation.take());
            return;
        }
        // SAFETY: the owner waits for every submission that uses the buffer, so it is idle; it is
        // destroyed once.
        unsafe { self.context.raw.destroy_buffer(self.raw, None) };
        if let Some(allocation) = self.allocation.take() {
            // An error would mean that the allocation belongs to another allocator, which cannot be
            // handled here.
            let _ = self.context.allocator().free(allocation);
        }
    }
}
