//! Detection of AMX: the processor must have it and the system must grant it.
//!
//! The AMX tiles are 8 KiB of thread state. Linux saves them only for processes that request it. On
//! other systems AMX is not used.

use std::sync::OnceLock;

/// Whether this process may use int8 tiles. The first call requests them from the system, for all
/// threads of the process.
pub(super) fn has_amx() -> bool {
    static ALLOWED: OnceLock<bool> = OnceLock::new();
    *ALLOWED.get_or_init(|| is_offered() && is_granted())
}

/// Whether the processor has tiles of the size that the loops assume, and the system saves them.
#[cfg(all(target_os = "linux", not(miri)))]
fn is_offered() -> bool {
    use core::arch::x86_64::{__cpuid_count, _xgetbv};
    // The AMX-INT8 and AMX-TILE bits of CPUID leaf 7, and the XCR0 bits of tile configuration and
    // tile data.
    const FEATURES: u32 = 1 << 25 | 1 << 24;
    const STATE: u64 = 1 << 17 | 1 << 18;
    // `__cpuid_count` is a safe function in newer compilers.
    #[allow(unused_unsafe)]
    // SAFETY: every x86-64 processor has CPUID.
    let leaf = |leaf: u32, part: u32| unsafe { __cpuid_count(leaf, part) };
    if leaf(0, 0).eax < 0x1d || leaf(7, 0).edx & FEATURES != FEATURES {
        return false;
    }
    if !std::arch::is_x86_feature_detected!("xsave") {
        return false;
    }
    // SAFETY: the detection of `xsave` includes OSXSAVE, so XGETBV is available to programs.
    let state = unsafe { _xgetbv(0) };
    // Palette 1: 8 tiles of 1 KiB, each 16 rows of 64 bytes.
    let palette = leaf(0x1d, 1);
    state & STATE == STATE
        && leaf(0x1d, 0).eax >= 1
        && palette.eax >> 16 == 1024
        && palette.ebx == 8 << 16 | 64
        && palette.ecx & 0xffff == 16
}

/// Whether the system grants this process the tile state.
#[cfg(all(target_os = "linux", not(miri)))]
fn is_granted() -> bool {
    const ARCH_PRCTL: i64 = 158;
    const ARCH_REQ_XCOMP_PERM: u64 = 0x1023;
    const XFEATURE_XTILEDATA: u64 = 18;
    let result: i64;
    // SAFETY: the system call accesses no memory of the process, and all registers that it changes
    // are declared. A kernel without this call returns an error.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") ARCH_PRCTL => result,
            in("rdi") ARCH_REQ_XCOMP_PERM,
            in("rsi") XFEATURE_XTILEDATA,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result == 0
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn is_offered() -> bool {
    false
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn is_granted() -> bool {
    false
}
