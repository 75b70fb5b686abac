//! Whether a device's products of matrices are worth it: some drivers list them, and compute them
//! element by element. The first load whose program would use them has one product computed both
//! ways; what comes of it is remembered beside the pipelines, and holds for all programs.

use crate::choices::Choices;
use crate::compiled::Build;
use crate::device::{
    Best, Context, DeviceFeature, DeviceFeatures, DeviceKind, Found, PipelineKey, Question,
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

/// What a device is made to do without in the other way.
const WITHOUT: &[DeviceFeature] = &[DeviceFeature::CooperativeMatrix];

/// How often each way is run, in turns: of each, the shortest time counts. What the first run does
/// once is not measured if there is time for another.
const RUNS: usize = 3;
/// From then on, no further run begins.
const LONGEST: Duration = Duration::from_millis(2);

/// What the answer is remembered by.
pub(crate) fn question() -> Question {
    Question::of("matrix units")
}

/// Whether to use the units, by how long the same product takes with them and without. Drivers that
/// emulate them are slower by far; a few percent are what devices differ in from run to run.
fn are_worth_it([with, without]: [u64; 2]) -> bool {
    with.saturating_mul(4) < without.saturating_mul(5)
}

/// The answer that is remembered: the first way is with the units.
fn answer(times: [u64; 2]) -> Best {
    let share = times[1] as f32 / times[0].max(1) as f32;
    Best { way: u8::from(!are_worth_it(times)), share, tried: 2 }
}

/// Whether an answer says that the units are worth it.
fn says_so(best: &Best) -> bool {
    best.way == 0
}

/// What is known of a device when it is opened: what was found before, or, where there is nothing
/// to ask, that it goes on as it is.
pub(crate) fn known(asks: bool, found: &Found) -> OnceLock<bool> {
    match found.all().get(&question()) {
        _ if !asks => OnceLock::from(true),
        Some(best) => OnceLock::from(says_so(best)),
        None => OnceLock::new(),
    }
}

/// Whether a dispatch multiplies matrices by subgroups.
fn uses(step: &Step) -> bool {
    step.key.module.features.contains(&Feature::CooperativeMatrix)
}

/// What programs use of what a device can do: its units only if they are worth it, as far as that
/// is known.
pub(crate) fn used(features: &DeviceFeatures, are_worth_it: Option<bool>) -> DeviceFeatures {
    match are_worth_it {
        Some(false) => features.without(WITHOUT),
        _ => features.clone(),
    }
}

/// The rows, columns and terms of a product that tells: so many that computing takes longer than
/// beginning to, on a device that is as good as others of its kind, and no more than take a
/// millisecond there.
fn side(kind: DeviceKind) -> usize {
    if kind == DeviceKind::Discrete { 1024 } else { 384 }
}

/// One product of halves, whose factors are made on the device; a row of it is what comes out.
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

/// The product to compute in two ways.
pub(crate) struct Contest {
    graph: Graph<'static>,
    keys: HashSet<PipelineKey>,
}

impl Contest {
    /// What is to be found out before a program of these dispatches is recorded. `None` if they do
    /// not use the units, or nothing is open.
    pub(crate) fn of(context: &Context, steps: &[Step]) -> Option<Self> {
        let is_open = context.clock.is_some() && context.matrices.get().is_none();
        if !is_open || !steps.iter().any(uses) {
            return None;
        }
        let graph = product(side(context.info.kind));
        let mut state = State::on(context, &graph, HashSet::new()).ok()?;
        let keys = Self::keys(&graph, &mut state)?;
        Some(Contest { graph, keys })
    }

    /// The pipelines of both ways; `None` if the device has the usual one alone.
    fn keys(graph: &Graph<'_>, state: &mut State) -> Option<HashSet<PipelineKey>> {
        let mut again = state.clone();
        again.features = state.features.without(WITHOUT);
        let encoded = |state: &mut State| {
            state.choices = Choices::trying(0);
            Some(encode(graph, state, true).ok()?.0)
        };
        let (with, without) = (encoded(state)?, encoded(&mut again)?);
        let differ = with.iter().any(uses) && !without.iter().any(uses);
        differ.then(|| with.into_iter().chain(without).map(|step| step.key).collect())
    }

    /// The pipelines that it takes: they can be made beside others.
    pub(crate) fn pipelines(&self) -> &HashSet<PipelineKey> {
        &self.keys
    }

    /// Finds out, and tells whether the device goes on with its units, and why, for people. Where
    /// it cannot be found out, it does.
    ///
    /// # Errors
    /// The device was lost.
    pub(crate) fn settle(&self, build: Build<'_>) -> Result<(bool, String), Error> {
        let raced = self.trials(build).and_then(|mut trials| race(&mut trials, LONGEST));
        let times = match raced {
            Err(error) if error.is_device_loss() => return Err(error),
            raced => raced.ok().flatten(),
        };
        let context = build.context;
        // Of loads at the same time, one decides.
        let mut decides = false;
        let goes_on = *context.matrices.get_or_init(|| {
            decides = true;
            times.is_none_or(are_worth_it)
        });
        if let Some(times) = times.filter(|_| decides) {
            context.found.keep([(question(), answer(times))]);
        }
        let why = match (times, &context.clock) {
            (Some(times), Some(clock)) => {
                let [with, without] = times.map(|ticks| clock.nanoseconds(ticks) as f64 / 1e3);
                format!("{with:.1} µs with them, {without:.1} µs without")
            }
            _ => String::from("not to be measured"),
        };
        Ok((goes_on, why))
    }

    fn trials(&self, build: Build<'_>) -> Result<[Trial; 2], Error> {
        let without = Build { without: WITHOUT, ..build };
        Ok([Trial::new(build, &self.graph, 0)?, Trial::new(without, &self.graph, 0)?])
    }
}

/// Finds out beforehand, for a program that is going to be measured: what is measured then is of
/// the ways that are left.
///
/// # Errors
/// The device was lost.
pub(crate) fn settle_for(build: Build<'_>, graph: &Graph<'_>) -> Result<(), Error> {
    let context: &Arc<Context> = build.context;
    if context.matrices.get().is_some() {
        return Ok(());
    }
    let Ok(mut state) = State::on(context, graph, HashSet::new()) else { return Ok(()) };
    // What cannot be encoded is for loading to tell.
    let Ok((steps, _)) = encode(graph, &mut state, true) else { return Ok(()) };
    match Contest::of(context, &steps) {
        Some(contest) => contest.settle(build).map(drop),
        None => Ok(()),
    }
}

/// Runs two in turns, but not for long, and tells the shortest time of each, in ticks. `None` if
/// there is nothing to compare.
fn race(trials: &mut [Trial; 2], longest: Duration) -> Result<Option<[u64; 2]>, Error> {
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
    fn units_that_are_not_faster_are_left_alone() {
        for (times, expected) in [
            ([10, 50], true),
            ([60, 50], true),
            ([63, 50], false),
            ([500, 50], false),
            ([1, 0], false),
        ] {
            assert_eq!(are_worth_it(times), expected, "{times:?}");
            assert_eq!(says_so(&answer(times)), expected, "{times:?}");
        }
        assert_eq!(answer([10, 50]), Best { way: 0, share: 5.0, tried: 2 });
    }

    #[test]
    fn what_was_found_holds_for_later_loads() {
        for (times, expected) in [([10, 50], true), ([90, 50], false)] {
            let found = Found::new(None);
            assert_eq!(known(true, &found).get(), None, "not asked yet");
            found.keep([(question(), answer(times))]);
            assert_eq!(known(true, &found).get(), Some(&expected));
            // Whoever says not to ask is taken at their word.
            assert_eq!(known(false, &found).get(), Some(&true));
        }
    }

    #[test]
    fn programs_go_without_units_that_are_slow() {
        let all = DeviceFeatures::multiplying_halves();
        assert_eq!([None, Some(true)].map(|known| used(&all, known)), [all.clone(), all.clone()]);
        let without = used(&all, Some(false));
        assert!(!without.multiply_halves() && without.has(DeviceFeature::HalfStorage));
    }

    fn state(features: DeviceFeatures, kind: DeviceKind) -> (Graph<'static>, State) {
        let graph = product(side(kind));
        let mut state = State::new(&graph, HashSet::new()).unwrap();
        (state.features, state.busy) = (features, kind.busy_invocations());
        state.limits.shared = 48 << 10;
        (graph, state)
    }

    #[test]
    fn both_ways_are_of_the_same_product() {
        for kind in [DeviceKind::Discrete, DeviceKind::Integrated] {
            let (graph, mut state) = state(DeviceFeatures::multiplying_halves(), kind);
            let keys = Contest::keys(&graph, &mut state).unwrap();
            let names: HashSet<&str> = keys.iter().map(|key| key.module.name).collect();
            assert!(names.contains("matmul_cooperative"), "{kind:?}: {names:?}");
            assert!(names.contains("matmul_tiled"), "{kind:?}: {names:?}");
        }
        // Where there are no units, nothing is compared.
        let (graph, mut state) = state(DeviceFeatures::default(), DeviceKind::Discrete);
        assert!(Contest::keys(&graph, &mut state).is_none());
    }

    #[test]
    fn the_shorter_one_is_found() {
        let wanted = std::env::var("TORCHLET_TEST_VULKAN").unwrap_or_default();
        let context = match Context::open(&Options::default()) {
            Ok(context) if wanted != "off" && context.clock.is_some() => context,
            Err(error) if wanted == "required" => panic!("there has to be a device: {error}"),
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
        // Any two do, for want of a device with units: a product of eight times as many rows,
        // columns and terms takes longer.
        let trial = |side| Trial::new(build, &product(side), 0).unwrap();
        let longest = Duration::from_secs(1);
        let times = race(&mut [trial(32), trial(256)], longest).unwrap().unwrap();
        assert!(are_worth_it(times), "{times:?}");
        let times = race(&mut [trial(256), trial(32)], longest).unwrap().unwrap();
        assert!(!are_worth_it(times), "{times:?}");
        // However little time there is, each is run once.
        assert!(race(&mut [trial(32), trial(32)], Duration::ZERO).unwrap().is_some());
    }
}
