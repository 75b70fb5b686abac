//! Approximate throughput of the engine and the kernels on this processor, for the cost model.
//!
//! The rates are fitted to MobileNetV2, ResNet-18 and ResNet-50 in `f32`, batch 1, on two threads
//! with AVX-512. Other instruction sets are assumed to scale with register width, and throughput
//! with threads; neither is measured.

use crate::compute::simd::Tier;
use torchlet_core::Rates;

/// Arithmetic throughput in operations per second and thread.
fn operations() -> f64 {
    match Tier::detect().name() {
        "avx512" | "avx512+amx" => 55e9,
        "avx2+fma" => 35e9,
        "neon" => 20e9,
        _ => 3e9,
    }
}

/// Memory bandwidth in bytes per second and thread.
const BYTES: f64 = 8e9;
/// Number of threads that saturate the memory bandwidth.
const SATURATING_THREADS: usize = 6;

fn rates(threads: usize, share: f64, fuses: bool) -> Rates {
    let threads = threads.max(1);
    Rates {
        operations: operations() * share * threads as f64,
        bytes: BYTES * share * threads.min(SATURATING_THREADS) as f64,
        call: 1e-6,
        region: 1e-6,
        transfer: f64::INFINITY,
        fuses,
        emulated: false,
    }
}

/// Rates of the engine with `threads` threads.
pub(super) fn engine(threads: usize) -> Rates {
    rates(threads, 1.0, true)
}

/// Rates of the kernels with `threads` threads.
pub fn kernel_rates(threads: usize) -> Rates {
    rates(threads, 0.5, false)
}
