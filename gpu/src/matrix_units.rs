//! The benchmark of a device's matrix units (cooperative matrices), which some drivers emulate
//! element by element. The first load of a program that would use them measures one GEMM with and
//! without them. The result is stored with the answers of autotuning and applies to all programs.

use crate::choices::Choices;
use crate::device::{
    Device, DeviceFeature, DeviceFeatures, DeviceKind, PipelineKey, Profile, TuningKey,
    TuningResult,
};
use crate::encode::encode;
use crate::state::State;
use crate::steps::Step;
use crate::tuning::Trial;
use std::collections::HashSet;
use std::time::{Duration, Instant};
use torchlet_core::ScalarType;
use torchlet_graph::graph::{Graph, Node, Tensor, Value};
use torchlet_graph::operators::Operator;
use torchlet_shaders::Feature;

/// The features that are disabled in the second variant of the benchmark.
pub const WITHOUT: &[DeviceFeature] = &[DeviceFeature::CooperativeMatrix];

/// Runs of each variant; the two variants alternate, and the shortest time of each counts. A second
/// run excludes one-time costs of the first.
const RUNS: usize = 3;
/// No further run starts once this much time has passed.
pub const LONGEST: Duration = Duration::from_millis(2);

/// The tuning question under which the result is stored.
pub fn question() -> TuningKey {
    TuningKey::of("matrix units")
}

/// Whether to use matrix units, given the times with and without them. They may last up to a
/// quarter longer: emulation is much slower than that, and small differences are noise.
pub fn are_worth_it([with, without]: [u64; 2]) -> bool {
    with.saturating_mul(4) < without.saturating_mul(5)
}

/// Returns the autotuning result to store; variant 0 uses matrix units.
pub fn answer(times: [u64; 2]) -> TuningResult {
    let share = times[1] as f32 / times[0].max(1) as f32;
    TuningResult { variant: u8::from(!are_worth_it(times)), share, tried: 2 }
}

/// Whether a stored result favours matrix units.
pub fn favours_units(best: &TuningResult) -> bool {
    best.variant == 0
}

/// Whether a dispatch uses cooperative matrices.
fn uses(step: &Step) -> bool {
    step.key.module.features.contains(&Feature::CooperativeMatrix)
}

/// Returns the features that programs use: `features`, without matrix units if the benchmark found
/// them to be slow.
pub fn used(features: &DeviceFeatures, are_worth_it: Option<bool>) -> DeviceFeatures {
    match are_worth_it {
        Some(false) => features.without(WITHOUT),
        _ => features.clone(),
    }
}

/// The rows, columns and terms of the benchmark GEMM: enough that computing exceeds the launch
/// overhead on typical devices of the kind, but at most about a millisecond.
fn side(kind: DeviceKind) -> usize {
    Profile::of(kind).benchmark_side
}

/// Builds the benchmark's graph: an fp16 GEMM whose operands are generated on the device. Its only
/// output is one row of the result.
pub fn product(side: usize) -> Graph<'static> {
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
#[derive(Debug)]
pub struct Benchmark {
    /// The graph with the GEMM.
    pub graph: Graph<'static>,
    /// The pipelines of both variants, which can be created in parallel with others.
    pub pipelines: HashSet<PipelineKey>,
}

impl Benchmark {
    /// Prepares the benchmark for a program with these steps; `None` if the program does not use
    /// matrix units.
    pub fn of(device: &Device, steps: &[Step]) -> Option<Self> {
        if !steps.iter().any(uses) {
            return None;
        }
        let graph = product(side(device.kind));
        let mut state = State::on(device, &graph, HashSet::new()).ok()?;
        let pipelines = pipelines(&graph, &mut state)?;
        Some(Benchmark { graph, pipelines })
    }

    /// Prepares the benchmark for a program that is not encoded yet, as [`of`](Self::of) does.
    pub fn of_graph(device: &Device, graph: &Graph<'_>) -> Option<Self> {
        // Encoding errors are reported when the program is loaded.
        let mut state = State::on(device, graph, HashSet::new()).ok()?;
        let (steps, _) = encode(graph, &mut state, true).ok()?;
        Self::of(device, &steps)
    }
}

/// Runs two trials alternately for a limited time, and returns the shortest time of each in ticks.
/// Returns `None` if nothing can be compared.
///
/// # Errors
/// A run failed.
pub fn compare<T: Trial>(
    trials: &mut [T; 2],
    longest: Duration,
) -> Result<Option<[u64; 2]>, T::Error> {
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

/// Returns the pipelines that the graph needs with and without matrix units; `None` if both
/// variants need the same ones.
fn pipelines(graph: &Graph<'_>, state: &mut State) -> Option<HashSet<PipelineKey>> {
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

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(answer([10, 50]), TuningResult { variant: 0, share: 5.0, tried: 2 });
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
            let keys = pipelines(&graph, &mut state).unwrap();
            let names: HashSet<&str> = keys.iter().map(|key| key.module.name).collect();
            assert!(names.contains("matmul_cooperative"), "{kind:?}: {names:?}");
            assert!(names.contains("matmul_tiled"), "{kind:?}: {names:?}");
        }
        // If the device has no matrix units, the benchmark has nothing to compare.
        let (graph, mut state) = state(DeviceFeatures::default(), DeviceKind::Discrete);
        assert!(pipelines(&graph, &mut state).is_none());
    }
}
