//! Runs the benchmark of matrix units ([`torchlet_gpu::matrix_units`]) on a device.

use crate::device::Context;
use crate::error::Error;
use crate::load::Build;
use crate::trial::Trial;
use torchlet_gpu::matrix_units::{
    Benchmark, LONGEST, WITHOUT, answer, are_worth_it, compare, question,
};
use torchlet_graph::graph::Graph;

/// Whether the benchmark can run on the device, and its result is not known yet.
pub(crate) fn is_open(context: &Context) -> bool {
    context.clock.is_some() && context.matrices.get().is_none()
}

/// Runs the benchmark. Returns whether programs use matrix units on the device, and a message for
/// traces. If measuring fails, programs use them.
///
/// # Errors
/// The device was lost.
pub(crate) fn settle(benchmark: &Benchmark, build: Build<'_>) -> Result<(bool, String), Error> {
    let measured = trials(benchmark, build).and_then(|mut trials| compare(&mut trials, LONGEST));
    let times = match measured {
        Err(error) if error.is_device_loss() => return Err(error),
        measured => measured.ok().flatten(),
    };
    let context = build.context;
    // If several loads measure at the same time, the first result counts.
    let mut decides = false;
    let uses_units = *context.matrices.get_or_init(|| {
        decides = true;
        times.is_none_or(are_worth_it)
    });
    if let Some(times) = times.filter(|_| decides) {
        context.found.keep([(question(), answer(times))]);
    }
    let why = match (times, &context.clock) {
        (Some(times), Some(clock)) => {
            let [with, without] = times.map(|ticks| clock.nanoseconds(ticks) as f64 / 1e3);
            format!("{with:.1} µs with matrix units, {without:.1} µs without")
        }
        _ => String::from("not measurable"),
    };
    Ok((uses_units, why))
}

fn trials(benchmark: &Benchmark, build: Build<'_>) -> Result<[Trial; 2], Error> {
    let without = Build { without: WITHOUT, ..build };
    Ok([Trial::new(build, &benchmark.graph, 0)?, Trial::new(without, &benchmark.graph, 0)?])
}

/// Runs the benchmark before a program is autotuned. If matrix units are slow, tuning then skips
/// the variants that use them.
///
/// # Errors
/// The device was lost.
pub(crate) fn settle_for(build: Build<'_>, graph: &Graph<'_>) -> Result<(), Error> {
    let context = build.context;
    if !is_open(context) {
        return Ok(());
    }
    match Benchmark::of_graph(&context.planned(), graph) {
        Some(benchmark) => settle(&benchmark, build).map(drop),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Options;
    use std::time::Duration;
    use torchlet_core::Serial;
    use torchlet_gpu::matrix_units::product;

    #[test]
    fn measure_finds_the_faster_trial() {
        let wanted = std::env::var("TORCHLET_TEST_VULKAN").unwrap_or_default();
        let context = match Context::open(&Options::default()) {
            Ok(context) if wanted != "off" && context.clock.is_some() => context,
            Err(error) if wanted == "required" => panic!("no device: {error}"),
            _ => return,
        };
        let build = Build {
            context: &context,
            traced: false,
            trial: false,
            parallel: &Serial,
            lasts: false,
            without: &[],
        };
        // Two GEMMs of different sizes stand in for a device with matrix units: the larger one must
        // last longer.
        let trial = |side| Trial::new(build, &product(side), 0).unwrap();
        let longest = Duration::from_secs(1);
        let times = compare(&mut [trial(32), trial(256)], longest).unwrap().unwrap();
        assert!(are_worth_it(times), "{times:?}");
        let times = compare(&mut [trial(256), trial(32)], longest).unwrap().unwrap();
        assert!(!are_worth_it(times), "{times:?}");
        // Each trial runs at least once, even with no time.
        assert!(compare(&mut [trial(32), trial(32)], Duration::ZERO).unwrap().is_some());
    }
}
