//! Kernels and backends that programs can use.

use crate::backend::torchlet_backend;
use crate::custom::{self, torchlet_custom_kernel};
use crate::fault::Fault;
use crate::handle::{self, handle};
use crate::kernels::torchlet_kernel;
use crate::pointer;
use crate::status::{body, torchlet_error_message, torchlet_status, value};
use core::ffi::c_void;
use core::mem::MaybeUninit;
use torchlet_core::{Backend, Kernel, MAX_TABLES, Registry, RegistryError};

/// Kernels and backends, in memory of the caller. Methods copy it when they are loaded, so it can
/// be discarded afterwards; the kernels and backends themselves must stay valid as long as methods
/// use them. It need not be closed.
#[repr(C)]
pub struct torchlet_registry {
    opaque: u64,
    words: [MaybeUninit<usize>; 56],
}

pub(crate) struct Inner {
    pub(crate) registry: Registry<'static>,
    /// The kernel tables, for modules.
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

/// Size of a kernel in pointers: see `TORCHLET_KERNELS_SIZE`.
pub const TORCHLET_KERNEL_WORDS: usize = 10;

const _: () = assert!(size_of::<Kernel>() <= TORCHLET_KERNEL_WORDS * size_of::<usize>());

/// Initializes an empty registry.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_registry_init(
    registry: *mut torchlet_registry,
    error: *const torchlet_error_message,
) -> torchlet_status {
    let inner = Inner { registry: Registry::new(), tables: heapless::Vec::new() };
    body!(error, handle::open(registry, inner))
}

/// Adds all CPU kernels. On microcontrollers, this links all of them into flash;
/// `torchlet_registry_add_kernels` adds selected ones.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_registry_add_all_kernels(
    registry: *mut torchlet_registry,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, handle::get_mut(registry)?.add(&torchlet_portable::KERNELS))
}

/// Adds kernels by their names in `torchlet_kernels.h`, in any order; the linker drops the others
/// (`--gc-sections`). They are copied into the memory, which has `TORCHLET_KERNELS_SIZE(count)`
/// bytes and the alignment of a pointer.
///
/// # Safety
/// The rules at the head of `torchlet.h`. The memory belongs to the registry as long as methods use
/// it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_registry_add_kernels(
    registry: *mut torchlet_registry,
    kernels: *const *const torchlet_kernel,
    count: usize,
    memory: *mut c_void,
    size: usize,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, {
        let inner = handle::get_mut(registry)?;
        let kernels = pointer::items(kernels, count, "kernels")?;
        let needed = count.saturating_mul(size_of::<Kernel>());
        if size < needed {
            return Err(Fault::TooSmall { what: "memory", needed, available: size });
        }
        let table = pointer::items_mut(memory.cast::<MaybeUninit<Kernel>>(), count, "memory")?;
        for (slot, kernel) in table.iter_mut().zip(kernels) {
            slot.write(pointer::get(*kernel, "a kernel of the list")?.kernel());
        }
        // SAFETY of `sorted`: the loop above initializes all items.
        inner.add(sorted(table))
    })
}

/// Sorts kernels by name.
///
/// # Safety
/// All items are initialized.
pub(crate) unsafe fn sorted(table: &'static mut [MaybeUninit<Kernel>]) -> &'static [Kernel] {
    let (start, count) = (table.as_mut_ptr().cast::<Kernel>(), table.len());
    // SAFETY: guaranteed by the caller; the borrow is exclusive and consumed.
    let table = unsafe { core::slice::from_raw_parts_mut(start, count) };
    // Insertion sort: tables are short, and the standard library's sort costs kilobytes of code.
    for end in 1..table.len() {
        let mut slot = end;
        while slot > 0
            && let Some([before, after]) = table.get_mut(slot - 1..=slot)
            && before.name > after.name
        {
            core::mem::swap(before, after);
            slot -= 1;
        }
    }
    table
}

/// Size in bytes of the memory for `torchlet_registry_add_custom_kernels`; 0 if the kernels cannot
/// be added.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_custom_kernels_size(
    kernels: *const torchlet_custom_kernel,
    count: usize,
) -> usize {
    // SAFETY: guaranteed by the caller.
    value(0, || unsafe { custom::needed(pointer::items(kernels, count, "kernels").ok()?) })
}

/// Adds kernels of the caller. Their descriptions are copied into the memory, which has
/// `torchlet_custom_kernels_size` bytes (`TORCHLET_CUSTOM_KERNEL_SIZE` per kernel suffices) and is
/// aligned to 8 bytes.
///
/// # Safety
/// The rules at the head of `torchlet.h`. The memory belongs to the registry as long as methods use
/// it. As long, names must stay valid, and callbacks must be callable from every thread that uses
/// such a method.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_registry_add_custom_kernels(
    registry: *mut torchlet_registry,
    kernels: *const torchlet_custom_kernel,
    count: usize,
    memory: *mut c_void,
    size: usize,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, {
        let inner = handle::get_mut(registry)?;
        let kernels = pointer::items(kernels, count, "kernels")?;
        let memory = pointer::memory(memory, size, "memory")?;
        inner.add(custom::table(kernels, memory)?)
    })
}

/// Adds a backend of the caller: see `torchlet_backend`.
///
/// # Safety
/// The rules at the head of `torchlet.h`. The backend must not be moved as long as methods use the
/// registry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_registry_add_backend(
    registry: *mut torchlet_registry,
    backend: *const torchlet_backend,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, {
        let backend = pointer::get(backend, "backend")?;
        backend.check()?;
        handle::get_mut(registry)?.add_backend(backend)
    })
}

/// Adds the CPU engine, which executes programs from `torchlet lower --for cpu`. Requires the
/// feature `std`.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[cfg(feature = "std")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_registry_add_cpu_engine(
    registry: *mut torchlet_registry,
    error: *const torchlet_error_message,
) -> torchlet_status {
    use std::sync::LazyLock;
    use torchlet_portable::engine::CpuEngine;
    static ENGINE: LazyLock<CpuEngine> = LazyLock::new(CpuEngine::default);
    body!(error, handle::get_mut(registry)?.add_backend(&*ENGINE))
}

/// Adds the backend of a device, such as `TORCHLET_RUN_ON_VULKAN`, which executes delegates on it.
/// Requires the feature `std`, and the feature with the name of the device.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[cfg(feature = "std")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_registry_add_device(
    registry: *mut torchlet_registry,
    device: crate::module::torchlet_run_on,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, {
        let (_, backend) = crate::module::device(device)?;
        handle::get_mut(registry)?.add_backend(backend)
    })
}
