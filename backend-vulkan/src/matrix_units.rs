//! Benchmark of a device's matrix units (cooperative matrices), which some drivers emulate element
//! by element. The first load of a program that would use them measures one GEMM with and without
//! them. The result is stored with the pipelines and applies to all programs.

use crate::choices::Choices;
use crate::compiled::Build;
use crate::device::{
    Best, Context, DeviceFeature, DeviceFeatures, DeviceKind, PipelineKey, Question, TuningResults,
};
use crate::encode::encode;
use crate::error::Error;
use crate::state::State;
use crate::steps::Step;
use crate::tuning::Trial;
use std::collections::HashSet;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use torchlet_core::ScalarType;
use torchlet_graph::graph::{Graph, Node, Tensor, Value};
use torchlet_graph::operators::Operator;
use torchlet_shaders::Feature;

/// The features that the second variant does without.
const WITHOUT: &[DeviceFeature] = &[DeviceFeature::CooperativeMatrix];

/// Runs of each variant, alternating; the shortest time of each counts. A second run excludes
/// one-time costs of the first.
const RUNS: usize = 3;
/// No further run starts after this time.
const LONGEST: Duration = Duration::from_millis(2);

/// The key under which the result is stored.
pub(crate) fn question() -> Question {
    Question::of("matrix units")
}

/// Whether to use matrix units, from the times with and without them. Emulation is much slower; a
/// few percent are noise.
fn are_worth_it([with, without]: [u64; 2]) -> bool {
    with.saturating_mul(4) < without.saturating_mul(5)
}

/// The result to store: variant 0 uses matrix units.
fn answer(times: [u64; 2]) -> Best {
    let share = times[1] as f32 / times[0].max(1) as f32;
    Best { variant: u8::from(!are_worth_it(times)), share, tried: 2 }
}

/// Whether a stored result favours matrix units.
fn favours_units(best: &Best) -> bool {
    best.variant == 0
}

/// Returns the initial state for a newly opened device: the stored result, or `true` if the
/// benchmark is disabled.
pub(crate) fn known(asks: bool, found: &TuningResults) -> OnceLock<bool> {
    match found.all().get(&question()) {
        _ if !asks => OnceLock::from(true),
        Some(best) => OnceLock::from(favours_units(best)),
        None => OnceLock::new(),
    }
}

/// Whether a dispatch uses cooperative matrices.
fn uses(step: &Step) -> bool {
    step.key.module.features.contains(&Feature::CooperativeMatrix)
}

/// Returns the features that programs use: without matrix units if they are known to be slow.
pub(crate) fn used(features: &DeviceFeatures, are_worth_it: Option<bool>) -> DeviceFeatures {
    match are_worth_it {
        Some(false) => features.without(WITHOUT),
        _ => features.clone(),
    }
}

/// The rows, columns and terms of the benchmark GEMM: enough that computing exceeds the launch
/// overhead on typical devices of the kind, but at most about a millisecond.
fn side(kind: DeviceKind) -> usize {
    if kind == DeviceKind::Discrete { 1024 } else { 384 }
}

/// Builds an fp16 GEMM whose operands are generated on the device; only one row is returned.
fn product(side: usize) -> Graph<'static> {
    let tensor = |rows: usize| {
        Value::Tensor(Tensor {
            scalar_type: ScalarType::Half,
            host_type: ScalarType::Half,
            sizes: vec![rows, side],
            dynamic: false,
            data: None,
            changes: None,
        })
    };
    let values = vec![
        Value::IntList(vec![side as i64; 2]),
        Value::Double(0.5),
        tensor(side),
        tensor(side),
        tensor(side),
        Value::Int(0),
        Value::Int(1),
        tensor(1),
    ];
    let nodes = vec![
        Node::new(Operator::FULL, vec![0, 1, 2]),
        Node::new(Operator::FULL, vec![0, 1, 3]),
        Node::new(Operator::MM, vec![2, 3, 4]),
        Node::new(Operator::SLICE_COPY_TENSOR, vec![4, 5, 5, 6, 6, 7]),
    ];
    Graph { values, nodes, outputs: vec![7], ..Graph::default() }
}

/// The benchmark of a GEMM with and without matrix units.
pub(crate) struct Benchmark {
    graph: Graph<'static>,
    keys: HashSet<PipelineKey>,
}

impl Benchmark {
    /// Prepares the benchmark that must run before a program with these steps is recorded. Returns
    /// `None` if the program does not use matrix units, or the result is known.
    pub(crate) fn of(context: &Context, steps: &[Step]) -> Option<Self> {
        let is_open = context.clock.is_some() && context.matrices.get().is_none();
        if !is_open || !steps.iter().any(uses) {
            return None;
        }
        let graph = product(side(context.info.kind));
        let mut state = State::on(context, &graph, HashSet::new()).ok()?;
        let keys = Self::keys(&graph, &mut state)?;
        Some(Benchmark { graph, keys })
    }

    /// Returns the pipelines of both variants; `None` if they do not differ.
    fn keys(graph: &Graph<'_>, state: &mut State) -> Option<HashSet<PipelineKey>> {
        let mut again = state.clone();
        again.features = state.features.without(WITHOUT);
        let encoded = |state: &mut State| {
            state.choices = Choices::forced(0);
            Some(encode(graph, state, true).ok()?.0)
        };
        let (with, without) = (encoded(state)?, encoded(&mut again)?);
        let differ = with.iter().any(uses) && !without.iter().any(uses);
        differ.then(|| with.into_iter().chain(without).map(|step| step.key).collect())
    }

    /// Returns the pipelines that the benchmark needs, which can be created in parallel with
    /// others.
    pub(crate) fn pipelines(&self) -> &HashSet<PipelineKey> {
        &self.keys
    }

    /// Runs the benchmark. Returns whether the device keeps its matrix units, and a message for
    /// traces. If measuring fails, it keeps them.
    ///
    /// # Errors
    /// The device was lost.
    pub(crate) fn settle(&self, build: Build<'_>) -> Result<(bool, String), Error> {
        let measured = self.trials(build).and_then(|mut trials| measure(&mut trials, LONGEST));
        let times = match measured {
            Err(error) if error.is_device_loss() => return Err(error),
            measured => measured.ok().flatten(),
        };
        let context = build.context;
        // If several loads measure at the same time, the first result is used.
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

    fn trials(&self, build: Build<'_>) -> Result<[Trial; 2], Error> {
        let without = Build { without: WITHOUT, ..build };
        Ok([Trial::new(build, &self.graph, 0)?, Trial::new(without, &self.graph, 0)?])
    }
}

/// Runs the benchmark before a program is autotuned, so that tuning considers only the remaining
/// variants.
///
/// # Errors
/// The device was lost.
pub(crate) fn settle_for(build: Build<'_>, graph: &Graph<'_>) -> Result<(), Error> {
    let context: &Arc<Context> = build.context;
    if context.matrices.get().is_some() {
        return Ok(());
    }
    let Ok(mut state) = State::on(context, graph, HashSet::new()) else { return Ok(()) };
    // Encoding errors are reported when the program is loaded.
    let Ok((steps, _)) = encode(graph, &mut state, true) else { return Ok(()) };
    match Benchmark::of(context, &steps) {
        Some(benchmark) => benchmark.settle(build).map(drop),
        None => Ok(()),
    }
}

/// Runs two trials alternately for a limited time, and returns the shortest time of each in ticks.
/// Returns `None` if nothing can be compared.
fn measure(trials: &mut [Trial; 2], longest: Duration) -> Result<Option<[u64; 2]>, Error> {
    let began = Instant::now();
    let mut least = [u64::MAX; 2];
    for run in 0..RUNS {
        if run > 0 && began.elapsed() >= longest {
            break;
        }
        for (trial, least) in trials.iter_mut().zip(&mut least) {
            let ticks: u64 = trial.run()?.values().sum();
            *least = ticks.min(*least);
        }
    }
    Ok(least.iter().all(|ticks| (1..u64::MAX).contains(ticks)).then_some(least))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Options;
    use torchlet_core::Serial;

    #[test]
    fn slow_matrix_units_are_not_used() {
        for (times, expected) in [
            ([10, 50], true),
            ([60, 50], true),
            ([63, 50], false),
            ([500, 50], false),
            ([1, 0], false),
        ] {
            assert_eq!(are_worth_it(times), expected, "{times:?}");
            assert_eq!(favours_units(&answer(times)), expected, "{times:?}");
        }
        assert_eq!(answer([10, 50]), Best { variant: 0, share: 5.0, tried: 2 });
    }

    #[test]
    fn benchmark_result_applies_to_later_loads() {
        for (times, expected) in [([10, 50], true), ([90, 50], false)] {
            let found = TuningResults::new(None);
            assert_eq!(known(true, &found).get(), None, "not measured yet");
            found.keep([(question(), answer(times))]);
            assert_eq!(known(true, &found).get(), Some(&expected));
            // If the benchmark is disabled, matrix units are kept.
            assert_eq!(known(false, &found).get(), Some(&true));
        }
    }

    #[test]
    fn slow_matrix_units_are_disabled() {
        let all = DeviceFeatures::multiplying_halves();
        assert_eq!([None, Some(true)].map(|known| used(&all, known)), [all.clone(), all.clone()]);
        let without = used(&all, Some(false));
        assert!(!without.multiply_halves() && without.has(DeviceFeature::Float16Storage));
    }

    fn state(features: DeviceFeatures, kind: DeviceKind) -> (Graph<'static>, State) {
        let graph = product(side(kind));
        let mut state = State::new(&graph, HashSet::new()).unwrap();
        (state.features, state.busy) = (features, kind.busy_invocations());
        state.limits.shared = 48 << 10;
        (graph, state)
    }

    #[test]
    fn benchmark_compares_both_gemm_kernels() {
        for kind in [DeviceKind::Discrete, DeviceKind::Integrated] {
            let (graph, mut state) = state(DeviceFeatures::multiplying_halves(), kind);
            let keys = Benchmark::keys(&graph, &mut state).unwrap();
            let names: HashSet<&str> = keys.iter().map(|key| key.module.name).collect();
            assert!(names.contains("matmul_cooperative"), "{kind:?}: {names:?}");
            assert!(names.contains("matmul_tiled"), "{kind:?}: {names:?}");
        }
        // Without matrix units, nothing is compared.
        let (graph, mut state) = state(DeviceFeatures::default(), DeviceKind::Discrete);
        assert!(Benchmark::keys(&graph, &mut state).is_none());
    }

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
        let times = measure(&mut [trial(32), trial(256)], longest).unwrap().unwrap();
        assert!(are_worth_it(times), "{times:?}");
        let times = measure(&mut [trial(256), trial(32)], longest).unwrap().unwrap();
        assert!(!are_worth_it(times), "{times:?}");
        // Each trial runs at least once, even with no time.
        assert!(measure(&mut [trial(32), trial(32)], Duration::ZERO).unwrap().is_some());
    }
}
