//! Whether there is AMX: the processor's and the system's word for it.
//!
//! Its tiles are 8 KiB of a thread's state, which Linux saves for processes that asked for it.
//! Other systems are not asked.

use std::sync::OnceLock;

/// Whether this process may use tiles of bytes. Asks the system for it when it is called first; all
/// threads have it from then on.
pub(super) fn has_amx() -> bool {
    static ALLOWED: OnceLock<bool> = OnceLock::new();
    *ALLOWED.get_or_init(|| is_offered() && is_granted())
}

/// The processor has tiles of the size that loops are written for, and the system saves them.
#[cfg(all(target_os = "linux", not(miri)))]
fn is_offered() -> bool {
    use core::arch::x86_64::{__cpuid_count, _xgetbv};
    // The AMX-INT8 and AMX-TILE bits of leaf 7, and XCR0's for configurations and data of tiles.
    const FEATURES: u32 = 1 << 25 | 1 << 24;
    const STATE: u64 = 1 << 17 | 1 << 18;
    // Newer compilers know that each x86-64 processor answers.
    #[allow(unused_unsafe)]
    // SAFETY: as they say.
    let leaf = |leaf: u32, part: u32| unsafe { __cpuid_count(leaf, part) };
    if leaf(0, 0).eax < 0x1d || leaf(7, 0).edx & FEATURES != FEATURES {
        return false;
    }
    if !std::arch::is_x86_feature_detected!("xsave") {
        return false;
    }
    // SAFETY: what was just detected includes that the system lets programs read the register.
    let state = unsafe { _xgetbv(0) };
    // Palette 1: 8 tiles of 1 KiB, of 16 rows of 64 bytes.
    let palette = leaf(0x1d, 1);
    state & STATE == STATE
        && leaf(0x1d, 0).eax >= 1
        && palette.eax >> 16 == 1024
        && palette.ebx == 8 << 16 | 64
        && palette.ecx & 0xffff == 16
}

/// Whether the system gives this process the state of tiles.
#[cfg(all(target_os = "linux", not(miri)))]
fn is_granted() -> bool {
    const ARCH_PRCTL: i64 = 158;
    const ARCH_REQ_XCOMP_PERM: u64 = 0x1023;
    const XFEATURE_XTILEDATA: u64 = 18;
    let result: i64;
    // SAFETY: the call reads and writes no memory of the process; what it does to registers is said
    // here. Systems that do not know it give an error.
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
