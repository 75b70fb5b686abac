//! Autotuning: measures on the device which kernel variants of a program's calls are the fastest.
//!
//! A program is compiled with its default variants, and once for each other variant index, which
//! applies to all calls that have it. The two versions run alternately, so that drifts of the
//! device clock affect both. Calls with the same question (kernel shape) are tuned together; their
//! times are added.

use crate::compiled::{Build, Compiled};
use crate::device::Context;
use crate::error::Error;
use crate::trace::Stopwatch;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;
use torchlet_gpu::choices::Choices;
use torchlet_gpu::device::{Best, Question};
use torchlet_gpu::encode::encode;
use torchlet_gpu::state::State;
use torchlet_graph::graph::Graph;

/// Runs of each version; the shortest time of each call counts.
const RUNS: usize = 7;
/// The minimum number of runs: a second run excludes one-time costs of the first.
const MIN_RUNS: usize = 2;

/// A variant is better if it lasts at most this share of the best time so far; smaller differences
/// are noise.
const MARGIN: f32 = 0.97;

/// Finds the best variants for the questions of a graph that have no stored answer, within the time
/// that the context allows.
///
/// # Errors
/// The device was lost. Other errors end the search: calls then use their default variants, and
/// loading reports an error if those fail too.
pub(crate) fn tune(build: Build<'_>, graph: &Graph<'_>) -> Result<(), Error> {
    let context = build.context;
    if context.tune.is_zero() || context.clock.is_none() {
        return Ok(());
    }
    match crate::matrix_units::settle_for(build, graph).and_then(|()| search(build, graph)) {
        Err(error) if error.is_device_loss() => Err(error),
        _ => Ok(()),
    }
}

fn search(build: Build<'_>, graph: &Graph<'_>) -> Result<(), Error> {
    let context = build.context;
    let began = Instant::now();
    let mut open = open_questions(context, graph)?;
    let variants = open.values().flat_map(|(variants, best)| [*variants, best.tried]);
    let Some((least, most)) = variants.clone().min().zip(variants.max()) else { return Ok(()) };
    let is_over = || began.elapsed() >= context.tune;
    let mut first = Trial::new(build, graph, 0)?;
    for variant in least..most {
        if is_over() {
            break;
        }
        // If a variant fails, for example for lack of memory, the others are still tried.
        let raced = Trial::new(build, graph, variant)
            .and_then(|mut other| race(&mut first, &mut other, is_over));
        let [usual, tried] = match raced {
            Err(error) if error.is_device_loss() => return Err(error),
            raced => raced.unwrap_or_default(),
        };
        for (question, (variants, best)) in &mut open {
            if variant != best.tried || variant >= *variants {
                continue;
            }
            best.tried += 1;
            let times = usual.get(question).zip(tried.get(question));
            let share = times.map_or(1.0, |(usual, tried)| *tried as f32 / (*usual).max(1) as f32);
            if share < best.share {
                (best.variant, best.share) = (variant, share);
            }
        }
    }
    context.found.keep(open.into_iter().map(|(question, (_, best))| (question, best)));
    Ok(())
}

/// Returns the questions with unmeasured variants: the number of variants, and the best one so far.
fn open_questions(
    context: &Arc<Context>,
    graph: &Graph<'_>,
) -> Result<HashMap<Question, (u8, Best)>, Error> {
    let known = context.found.all();
    let mut state = State::on(&context.planned(), graph, HashSet::new())?;
    state.choices = Choices::forced(0);
    encode(graph, &mut state, true)?;
    let so_far = |question: &Question| {
        known.get(question).copied().unwrap_or(Best { variant: 0, share: MARGIN, tried: 1 })
    };
    let asked = state.choices.made().map(|(_, choice)| (choice.question, choice.variants));
    let asked = asked.map(|(question, variants)| (question, (variants, so_far(&question))));
    Ok(asked.filter(|(_, (variants, best))| best.tried < *variants).collect())
}

/// The compiled graph with one variant index.
pub(crate) struct Trial {
    compiled: Compiled,
    /// The questions of the calls.
    questions: HashMap<usize, Question>,
}

impl Trial {
    pub(crate) fn new(build: Build<'_>, graph: &Graph<'_>, variant: u8) -> Result<Self, Error> {
        let (graph, choices) = (graph.clone(), Choices::forced(variant));
        let (build, mut watch) =
            (Build { traced: true, trial: true, ..build }, Stopwatch::new(false));
        let compiled = Compiled::choosing(build, graph, Vec::new(), choices, &mut watch)?;
        let made = compiled.state.choices.made();
        let questions = made.map(|(call, choice)| (call, choice.question)).collect();
        Ok(Trial { compiled, questions })
    }

    /// Runs once with zeros as inputs, and returns the time of each call with a question, in ticks.
    pub(crate) fn run(&mut self) -> Result<HashMap<usize, u64>, Error> {
        self.compiled.input_staging.mapped().fill(0);
        self.compiled.recording.run()?;
        let times = self.compiled.recording.times()?.unwrap_or_default();
        let clock = self.compiled.context.clock.as_ref();
        let times = clock.map(|clock| clock.since_first(&times)).unwrap_or_default();
        let labels = self.compiled.labels.as_deref().unwrap_or_default();
        let mut ticks = HashMap::new();
        for (label, pair) in labels.iter().zip(times.windows(2)) {
            let Some(call) = label.call.filter(|call| self.questions.contains_key(call)) else {
                continue;
            };
            if let [start, end] = pair {
                *ticks.entry(call).or_default() += end.saturating_sub(*start);
            }
        }
        Ok(ticks)
    }

    /// Adds the times of calls with the same question.
    fn by_question(&self, calls: HashMap<usize, u64>) -> HashMap<Question, u64> {
        let mut sums = HashMap::new();
        for (call, ticks) in calls {
            if let Some(question) = self.questions.get(&call) {
                *sums.entry(*question).or_default() += ticks;
            }
        }
        sums
    }
}

/// Runs two trials alternately, stopping early when time is over. Returns the time of each trial
/// per question.
fn race(
    first: &mut Trial,
    other: &mut Trial,
    is_over: impl Fn() -> bool,
) -> Result<[HashMap<Question, u64>; 2], Error> {
    let mut least = [HashMap::new(), HashMap::new()];
    for run in 0..RUNS {
        if run >= MIN_RUNS && is_over() {
            break;
        }
        for (trial, least) in [&mut *first, &mut *other].into_iter().zip(&mut least) {
            for (call, ticks) in trial.run()? {
                let slot = least.entry(call).or_insert(ticks);
                *slot = ticks.min(*slot);
            }
        }
    }
    let [a, b] = least;
    Ok([first.by_question(a), other.by_question(b)])
}
