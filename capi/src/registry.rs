//! Which kernels and backends programs can use.

use crate::backend::torchlet_backend;
use crate::custom::{self, torchlet_custom_kernel};
use crate::fault::Fault;
use crate::handle::{self, handle};
use crate::kernels::torchlet_kernel;
use crate::pointer;
use crate::status::{run, torchlet_status, torchlet_text, value};
use core::ffi::c_void;
use core::mem::MaybeUninit;
use torchlet_core::{Backend, Kernel, MAX_TABLES, Registry, RegistryError};

/// Kernels and backends, in memory of the caller. Methods copy it when they are loaded, so that it
/// need not outlive that; what it names must stay as long as methods use it. It need not be closed.
#[repr(C)]
pub struct torchlet_registry {
    opaque: u64,
    words: [MaybeUninit<usize>; 56],
}

pub(crate) struct Inner {
    pub(crate) registry: Registry<'static>,
    /// The tables of the caller, for modules.
    pub(crate) tables: heapless::Vec<&'static [Kernel], MAX_TABLES>,
}

handle!(torchlet_registry, Inner, "the registry", 4);

impl Inner {
    fn add(&mut self, table: &'static [Kernel]) -> Result<(), Fault> {
        self.registry = self.registry.with_kernels(table)?;
        self.tables.push(table).map_err(|_| RegistryError::TooManyTables)?;
        Ok(())
    }

    fn add_backend(&mut self, backend: &'static dyn Backend) -> Result<(), Fault> {
        self.registry = self.registry.with_backend(backend)?;
        Ok(())
    }
}

/// Pointers that a kernel takes in memory of the caller: see `TORCHLET_KERNELS_SIZE`.
pub const TORCHLET_KERNEL_WORDS: usize = 10;

const _: () = assert!(size_of::<Kernel>() <= TORCHLET_KERNEL_WORDS * size_of::<usize>());

/// Makes a registry without kernels and backends.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_registry_init(
    registry: *mut torchlet_registry,
    error: *const torchlet_text,
) -> torchlet_status {
    let inner = Inner { registry: Registry::new(), tables: heapless::Vec::new() };
    // SAFETY: the caller's promise.
    unsafe { run(error, || handle::open(registry, inner)) }
}

/// Adds all kernels of the CPU. On microcontrollers, that puts all of them into flash;
/// `torchlet_registry_add_kernels` adds the named ones.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_registry_add_all_kernels(
    registry: *mut torchlet_registry,
    error: *const torchlet_text,
) -> torchlet_status {
    // SAFETY: the caller's promise.
    unsafe { run(error, || handle::get_mut(registry)?.add(&torchlet_portable::KERNELS)) }
}

/// Adds kernels by their names in `torchlet_kernels.h`, in any order; the linker drops those that
/// nobody names (`--gc-sections`). They are copied into the memory, which has
/// `TORCHLET_KERNELS_SIZE(count)` bytes and starts at a multiple of the size of a pointer.
///
/// # Safety
/// The rules at the head of `torchlet.h`. The memory is the registry's as long as methods use it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_registry_add_kernels(
    registry: *mut torchlet_registry,
    kernels: *const *const torchlet_kernel,
    count: usize,
    memory: *mut c_void,
    size: usize,
    error: *const torchlet_text,
) -> torchlet_status {
    let body = || {
        // SAFETY: the caller's promise.
        unsafe {
            let inner = handle::get_mut(registry)?;
            let kernels = pointer::items(kernels, count, "kernels")?;
            let needed = count.saturating_mul(size_of::<Kernel>());
            if size < needed {
                return Err(Fault::TooSmall { what: "memory", needed, available: size });
            }
            let table = pointer::items_mut(memory.cast::<MaybeUninit<Kernel>>(), count, "memory")?;
            for (place, kernel) in table.iter_mut().zip(kernels) {
                place.write(pointer::get(*kernel, "a kernel of the list")?.kernel());
            }
            inner.add(sorted(table))
        }
    };
    // SAFETY: the caller's promise.
    unsafe { run(error, body) }
}

/// The kernels, sorted by name.
///
/// # Safety
/// Each was written.
pub(crate) unsafe fn sorted(table: &'static mut [MaybeUninit<Kernel>]) -> &'static [Kernel] {
    let (start, count) = (table.as_mut_ptr().cast::<Kernel>(), table.len());
    // SAFETY: the caller's promise; the borrow is exclusive and consumed.
    let table = unsafe { core::slice::from_raw_parts_mut(start, count) };
    // Tables are short, and the other way of sorting takes kilobytes.
    for end in 1..table.len() {
        let mut place = end;
        while place > 0
            && let Some([before, after]) = table.get_mut(place - 1..=place)
            && before.name > after.name
        {
            core::mem::swap(before, after);
            place -= 1;
        }
    }
    table
}

/// Bytes of memory that `torchlet_registry_add_custom_kernels` takes for these; 0 if they cannot be
/// added.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_custom_kernels_size(
    kernels: *const torchlet_custom_kernel,
    count: usize,
) -> usize {
    // SAFETY: the caller's promise.
    value(0, || unsafe { custom::needed(pointer::items(kernels, count, "kernels").ok()?) })
}

/// Adds kernels of the caller's. Descriptions are copied into the memory, which has
/// `torchlet_custom_kernels_size` bytes (`TORCHLET_CUSTOM_KERNEL_SIZE` for each are enough) and
/// starts at a multiple of 8.
///
/// # Safety
/// The rules at the head of `torchlet.h`. The memory is the registry's as long as methods use it;
/// so long names must stay, and functions be callable, from every thread that uses such a method.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_registry_add_custom_kernels(
    registry: *mut torchlet_registry,
    kernels: *const torchlet_custom_kernel,
    count: usize,
    memory: *mut c_void,
    size: usize,
    error: *const torchlet_text,
) -> torchlet_status {
    let body = || {
        // SAFETY: the caller's promise.
        unsafe {
            let inner = handle::get_mut(registry)?;
            let kernels = pointer::items(kernels, count, "kernels")?;
            let memory = pointer::memory(memory, size, "memory")?;
            inner.add(custom::table(kernels, memory)?)
        }
    };
    // SAFETY: the caller's promise.
    unsafe { run(error, body) }
}

/// Adds a backend of the caller's: see `torchlet_backend`.
///
/// # Safety
/// The rules at the head of `torchlet.h`. The backend must stay where it is as long as methods use
/// the registry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_registry_add_backend(
    registry: *mut torchlet_registry,
    backend: *const torchlet_backend,
    error: *const torchlet_text,
) -> torchlet_status {
    let body = || {
        // SAFETY: the caller's promise.
        unsafe {
            let backend = pointer::get(backend, "backend")?;
            backend.check()?;
            handle::get_mut(registry)?.add_backend(backend)
        }
    };
    // SAFETY: the caller's promise.
    unsafe { run(error, body) }
}

/// Adds the CPU engine, which runs what `torchlet lower --for cpu` made. With the feature `std`.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[cfg(feature = "std")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_registry_add_cpu_engine(
    registry: *mut torchlet_registry,
    error: *const torchlet_text,
) -> torchlet_status {
    use std::sync::LazyLock;
    use torchlet_portable::engine::CpuEngine;
    static ENGINE: LazyLock<CpuEngine> = LazyLock::new(CpuEngine::default);
    // SAFETY: the caller's promise.
    unsafe { run(error, || handle::get_mut(registry)?.add_backend(&*ENGINE)) }
}

/// Adds Vulkan, which runs delegates that were lowered for it on a GPU. With the feature `vulkan`.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[cfg(feature = "vulkan")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_registry_add_vulkan(
    registry: *mut torchlet_registry,
    error: *const torchlet_text,
) -> torchlet_status {
    use std::sync::LazyLock;
    use torchlet::vulkan::VulkanBackend;
    static VULKAN: LazyLock<VulkanBackend> = LazyLock::new(VulkanBackend::default);
    // SAFETY: the caller's promise.
    unsafe { run(error, || handle::get_mut(registry)?.add_backend(&*VULKAN)) }
}
