//! Tuned constants, one row per class of devices.
//!
//! The row of discrete GPUs was measured ([figures]); all others are copies of it, with some values
//! changed. A measurement on another class goes into the row of that class. Autotuning compares
//! kernel variants on the device itself.
//!
//! [figures]: https://github.com/torchlet/torchlet/blob/main/docs/figures.md

use super::cores::Cores;
use super::kind::DeviceKind;
use torchlet_core::Rates;

/// The tuned constants of a class of devices.
#[derive(Debug, PartialEq)]
pub struct Profile {
    /// The approximate number of invocations that saturate a device whose cores are not known.
    pub(crate) busy: usize,
    /// Performance estimates for partitioning. In the row of discrete GPUs, they apply to a device
    /// with [`MEASURED`] resident invocations.
    rates: Rates,
    /// The number of rows, columns and terms of the GEMM that benchmarks matrix units.
    pub(crate) benchmark_side: usize,
    pub(crate) dispatch: DispatchProfile,
    pub(crate) prefetch: PrefetchProfile,
    pub(crate) reduction: ReductionProfile,
    pub(crate) gemm: GemmProfile,
    /// A GEMV whose workgroups share their input is divided into at least `busy / gemv_invocations`
    /// workgroups. Small GEMVs are as fast on a part of the processors as on all of them, because
    /// they read less of the input.
    pub(crate) gemv_invocations: usize,
    /// Direct convolutions with few output channels use this many times the invocations that
    /// saturate the device, because each invocation mainly waits for memory.
    pub(crate) narrow_convolution: usize,
}

/// Constants for one-dimensional dispatches.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct DispatchProfile {
    /// Invocations per workgroup of a dispatch with at least `wide_from` times the invocations that
    /// saturate the device: fewer workgroups have less launch overhead.
    pub(crate) wide: u32,
    pub(crate) wide_from: usize,
}

/// Constants for weight prefetches.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PrefetchProfile {
    /// The minimum number of processors: devices with this many have a large enough cache.
    pub(crate) processors: usize,
    /// The minimum total bytes of weights: smaller totals stay in the cache without prefetches.
    pub(crate) total: u64,
    /// The maximum bytes to prefetch during one step (`most`), and the minimum bytes of a
    /// prefetched tensor (`least`).
    pub(crate) most: u64,
    pub(crate) least: u64,
    /// The minimum number of result elements for which a GEMM lasts long enough to hide the loading
    /// of its own weights. Weights of such GEMMs are not prefetched.
    pub(crate) long_gemm: usize,
}

/// Constants for reductions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ReductionProfile {
    /// The minimum number of elements for dividing a reduction among workgroups, if the reduction
    /// would not saturate the device otherwise.
    pub(crate) long: usize,
    /// The minimum number of elements per workgroup.
    pub(crate) part: usize,
}

/// Constants for tiled GEMMs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct GemmProfile {
    /// The minimum number of multiplications of a tiled GEMM, divided by the number of invocations
    /// that saturate the device; half of it with cooperative matrices. Smaller GEMMs last as long
    /// as one or two launches.
    pub(crate) work: usize,
    /// The minimum number of terms per workgroup, if several share a tile (split-K).
    pub(crate) split_terms: usize,
    /// The minimum number of terms per workgroup for large tiles, whose startup and final addition
    /// cost as much as many iterations.
    pub(crate) large_terms: usize,
    /// The minimum number of terms for single-round GEMMs.
    pub(crate) round_terms: usize,
}

/// Resident invocations of the device that the rates of discrete GPUs were measured on.
const MEASURED: f64 = 132.0 * 2048.0;

/// Overhead of a recorded call, in seconds: a barrier and the ramp-up of the device.
const CALL: f64 = 4.5e-6;
/// Overhead of submitting and waiting, in seconds.
const SUBMISSION: f64 = 80e-6;

/// GPUs with dedicated memory. The rates are fitted to image classification networks in 32-bit
/// floats with a batch of one, and rounded down because most GPUs are slower.
const DISCRETE: Profile = Profile {
    busy: 1 << 16,
    rates: Rates {
        operations: 6e12,
        bytes: 1e12,
        call: CALL,
        region: SUBMISSION,
        transfer: 1e10,
        fuses: true,
        emulated: false,
    },
    benchmark_side: 1024,
    dispatch: DispatchProfile { wide: 256, wide_from: 4 },
    prefetch: PrefetchProfile {
        processors: 100,
        total: 48 << 20,
        most: 16 << 20,
        least: 256 << 10,
        long_gemm: 1_000_000,
    },
    reduction: ReductionProfile { long: 8192, part: 1024 },
    gemm: GemmProfile { work: 1024, split_terms: 128, large_terms: 1024, round_terms: 384 },
    gemv_invocations: 2048,
    narrow_convolution: 4,
};

/// GPUs of unknown kind. The rates of this and the following rows are extrapolated from typical
/// specifications.
const OTHER: Profile = Profile {
    rates: Rates { operations: 1e12, bytes: 1e11, ..DISCRETE.rates },
    benchmark_side: 384,
    ..DISCRETE
};

/// GPUs that share memory with the CPU: inputs and outputs are copied within one memory.
const INTEGRATED: Profile = Profile {
    busy: 1 << 12,
    rates: Rates { operations: 4e11, bytes: 4e10, ..DISCRETE.rates },
    benchmark_side: 384,
    ..DISCRETE
};

/// Software on the CPU, which runs invocations in sequence.
const SOFTWARE: Profile = Profile {
    busy: 1 << 7,
    rates: Rates { operations: 5e9, bytes: 2e9, call: 20e-6, emulated: true, ..DISCRETE.rates },
    benchmark_side: 384,
    narrow_convolution: 1,
    ..DISCRETE
};

impl DeviceKind {
    /// Returns the approximate number of invocations that saturate such a device, if its cores are
    /// not known.
    pub fn busy_invocations(self) -> usize {
        Profile::of(self).busy
    }
}

impl Profile {
    /// Returns the profile of a kind of device.
    pub fn of(kind: DeviceKind) -> &'static Self {
        match kind {
            DeviceKind::Discrete => &DISCRETE,
            DeviceKind::Virtual | DeviceKind::Other => &OTHER,
            DeviceKind::Integrated => &INTEGRATED,
            DeviceKind::Cpu => &SOFTWARE,
        }
    }

    /// Returns the performance estimates of a device of this class, scaled by the number of cores
    /// if known. Vulkan reports the kind of a device, and some drivers the number of cores, but not
    /// their speed.
    pub fn rates(&self, kind: DeviceKind, cores: Option<Cores>) -> Rates {
        let Some(cores) = cores else { return self.rates };
        let share = f64::from(cores.count) * f64::from(cores.invocations) / MEASURED;
        let operations = DISCRETE.rates.operations * share;
        // Dedicated memory scales with the number of cores; system memory does not.
        match kind {
            DeviceKind::Cpu => self.rates,
            DeviceKind::Integrated => Rates { operations, ..self.rates },
            _ => Rates { operations, bytes: DISCRETE.rates.bytes * share, ..self.rates },
        }
    }
}
