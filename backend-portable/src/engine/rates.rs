//! How fast the engine and the kernels are on this processor, roughly.
//!
//! The figures are fitted to MobileNetV2, ResNet-18 and ResNet-50 in 32-bit floating point, batch
//! 1, on two threads of an Intel Xeon with AVX-512: 10.0, 33.5 and 75.5 ms in the engine, 24.8, 64
//! and 118 ms by kernels. Other instruction sets are taken to be as fast as their registers are
//! wide, and threads to add up: nobody has measured them.

use crate::compute::simd::Tier;
use torchlet_core::Rates;

/// Operations in a second on a thread.
fn operations() -> f64 {
    match Tier::detect().name() {
        "avx512" | "avx512+amx" => 55e9,
        "avx2+fma" => 35e9,
        "neon" => 20e9,
        _ => 3e9,
    }
}

/// Bytes in a second on a thread.
const BYTES: f64 = 8e9;
/// How many threads use up the memory's bandwidth.
const MOST_THREADS: usize = 6;

fn rates(threads: usize, share: f64, fuses: bool) -> Rates {
    let threads = threads.max(1);
    Rates {
        operations: operations() * share * threads as f64,
        bytes: BYTES * share * threads.min(MOST_THREADS) as f64,
        call: 1e-6,
        region: 1e-6,
        transfer: f64::INFINITY,
        fuses,
        emulated: false,
    }
}

/// The engine, with so many threads.
pub(super) fn engine(threads: usize) -> Rates {
    rates(threads, 1.0, true)
}

/// Kernels, with so many threads.
pub fn kernel_rates(threads: usize) -> Rates {
    rates(threads, 0.5, false)
}
