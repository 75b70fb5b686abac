//! Measures on the device which ways its calls are the fastest.
//!
//! A program is compiled with its first choices, and once for each other way, tried wherever a call
//! has so many. Both are run in turns: the clock of a device wanders, and what is compared has to
//! have met the same one. Calls that ask the same are one question, whose times add up.

use crate::choices::Choices;
use crate::compiled::{Build, Compiled};
use crate::device::{Best, Context, Question};
use crate::encode::encode;
use crate::error::Error;
use crate::state::State;
use crate::trace::Stopwatch;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;
use torchlet_graph::graph::Graph;

/// How often each of two is run, in turns: of each call, the shortest time counts.
const RUNS: usize = 7;
/// And at least: what the first run does once is not measured.
const LEAST_RUNS: usize = 2;

/// What a way takes of the time of the best one at most, to be better: less is in the noise.
const MARGIN: f32 = 0.97;

/// Finds the best ways for what the graph asks and the device does not know yet, within the time
/// that the context allows.
///
/// # Errors
/// The device was lost. What else fails ends the search; calls go the first way then, and if that
/// fails, too, loading tells.
pub(crate) fn tune(build: Build<'_>, graph: &Graph<'_>) -> Result<(), Error> {
    let context = build.context;
    if context.tune.is_zero() || context.clock.is_none() {
        return Ok(());
    }
    match crate::matrices::settle_for(build, graph).and_then(|()| search(build, graph)) {
        Err(error) if error.is_device_loss() => Err(error),
        _ => Ok(()),
    }
}

fn search(build: Build<'_>, graph: &Graph<'_>) -> Result<(), Error> {
    let context = build.context;
    let began = Instant::now();
    let mut open = open_questions(context, graph)?;
    let ways = open.values().flat_map(|(ways, best)| [*ways, best.tried]);
    let Some((least, most)) = ways.clone().min().zip(ways.max()) else { return Ok(()) };
    let is_over = || began.elapsed() >= context.tune;
    let mut first = Trial::new(build, graph, 0)?;
    for way in least..most {
        if is_over() {
            break;
        }
        // What cannot be, for want of memory say, is no reason to leave out others.
        let raced = Trial::new(build, graph, way)
            .and_then(|mut other| race(&mut first, &mut other, is_over));
        let [usual, tried] = match raced {
            Err(error) if error.is_device_loss() => return Err(error),
            raced => raced.unwrap_or_default(),
        };
        for (question, (ways, best)) in &mut open {
            if way != best.tried || way >= *ways {
                continue;
            }
            best.tried += 1;
            let times = usual.get(question).zip(tried.get(question));
            let share = times.map_or(1.0, |(usual, tried)| *tried as f32 / (*usual).max(1) as f32);
            if share < best.share {
                (best.way, best.share) = (way, share);
            }
        }
    }
    context.found.keep(open.into_iter().map(|(question, (_, best))| (question, best)));
    Ok(())
}

/// What the graph asks of which not all ways were measured: how many there are, and the best so
/// far.
fn open_questions(
    context: &Arc<Context>,
    graph: &Graph<'_>,
) -> Result<HashMap<Question, (u8, Best)>, Error> {
    let known = context.found.all();
    let mut state = State::on(context, graph, HashSet::new())?;
    state.choices = Choices::trying(0);
    encode(graph, &mut state, true)?;
    let so_far = |question: &Question| {
        known.get(question).copied().unwrap_or(Best { way: 0, share: MARGIN, tried: 1 })
    };
    let asked = state.choices.made().map(|(_, choice)| (choice.question, choice.ways));
    let asked = asked.map(|(question, ways)| (question, (ways, so_far(&question))));
    Ok(asked.filter(|(_, (ways, best))| best.tried < *ways).collect())
}

/// The graph with one way tried, on the device.
pub(crate) struct Trial {
    compiled: Compiled,
    /// The questions of the calls.
    questions: HashMap<usize, Question>,
}

impl Trial {
    pub(crate) fn new(build: Build<'_>, graph: &Graph<'_>, way: u8) -> Result<Self, Error> {
        let (graph, choices) = (graph.clone(), Choices::trying(way));
        let (build, mut watch) =
            (Build { traced: true, trial: true, ..build }, Stopwatch::new(false));
        let compiled = Compiled::choosing(build, graph, Vec::new(), choices, &mut watch)?;
        let made = compiled.state.choices.made();
        let questions = made.map(|(call, choice)| (call, choice.question)).collect();
        Ok(Trial { compiled, questions })
    }

    /// Runs once, over inputs of zeros, and adds up the times of the calls with a question, in
    /// ticks.
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

    /// Adds up the times of calls that ask the same.
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

/// Runs two in turns, but not for long once time is over, and tells the time that each needs for
/// each question.
fn race(
    first: &mut Trial,
    other: &mut Trial,
    is_over: impl Fn() -> bool,
) -> Result<[HashMap<Question, u64>; 2], Error> {
    let mut least = [HashMap::new(), HashMap::new()];
    for run in 0..RUNS {
        if run >= LEAST_RUNS && is_over() {
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
