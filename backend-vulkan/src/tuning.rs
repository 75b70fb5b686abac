//! Measures on the device which ways its calls are the fastest.
//!
//! A program is compiled with its first choices, and once for each other way, tried wherever a call has so many. Both are run in turns:
//! the clock of a device wanders, and what is compared has to have met the same one. Calls that ask the same are one question, whose
//! times add up.

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

/// What a way takes of the time of the best one at most, to be better: less is in the noise.
const MARGIN: f64 = 0.97;

/// Finds the best ways for what the graph asks and the device does not know yet, within the time that the context allows.
///
/// # Errors
/// The device was lost. What else fails ends the search; calls go the first way then, and if that fails, too, loading tells.
pub(crate) fn tune(build: Build<'_>, graph: &Graph<'_>) -> Result<(), Error> {
    let context = build.context;
    if context.tune.is_zero() || context.clock.is_none() {
        return Ok(());
    }
    match search(build, graph) {
        Err(error) if error.is_device_loss() => Err(error),
        _ => Ok(()),
    }
}

fn search(build: Build<'_>, graph: &Graph<'_>) -> Result<(), Error> {
    let context = build.context;
    let began = Instant::now();
    let open = open_questions(context, graph)?;
    let Some(most) = open.values().max().copied() else { return Ok(()) };
    let mut first = Trial::new(build, graph, 0)?;
    let mut found: HashMap<Question, (Best, f64)> = HashMap::new();
    for way in 1..most {
        if began.elapsed() >= context.tune {
            break;
        }
        let mut other = Trial::new(build, graph, way)?;
        let [usual, tried] = race(&mut first, &mut other)?;
        for (question, ways) in open.iter().filter(|(_, ways)| way < **ways) {
            let times = usual.get(question).zip(tried.get(question));
            let share = times.map_or(1.0, |(usual, tried)| *tried as f64 / (*usual).max(1) as f64);
            let best = found.entry(*question).or_insert((Best { way: 0, is_final: false }, MARGIN));
            if share < best.1 {
                *best = (Best { way, ..best.0 }, share);
            }
            best.0.is_final = way + 1 == *ways;
        }
    }
    context.found.keep(found.into_iter().map(|(question, (best, _))| (question, best)));
    Ok(())
}

/// What the graph asks that has no final answer, and how many ways there are.
fn open_questions(
    context: &Arc<Context>,
    graph: &Graph<'_>,
) -> Result<HashMap<Question, u8>, Error> {
    let known = context.found.all();
    let mut state = State::on(context, graph, HashSet::new())?;
    state.choices = Choices::trying(0);
    encode(graph, &mut state, true)?;
    let asked = state.choices.made().map(|(_, choice)| (choice.question, choice.ways));
    let is_open = |question: &Question| known.get(question).is_none_or(|best| !best.is_final);
    Ok(asked.filter(|(question, ways)| *ways > 1 && is_open(question)).collect())
}

/// The graph with one way tried, on the device.
struct Trial {
    compiled: Compiled,
    /// The questions of the calls.
    questions: HashMap<usize, Question>,
}

impl Trial {
    fn new(build: Build<'_>, graph: &Graph<'_>, way: u8) -> Result<Self, Error> {
        let (graph, choices) = (graph.clone(), Choices::trying(way));
        let (build, mut watch) = (Build { traced: true, ..build }, Stopwatch::new(false));
        let compiled = Compiled::choosing(build, graph, Vec::new(), choices, &mut watch)?;
        let made = compiled.state.choices.made();
        let questions = made.map(|(call, choice)| (call, choice.question)).collect();
        Ok(Trial { compiled, questions })
    }

    /// Runs once, over inputs of zeros, and adds up the times of the calls with a question, in ticks.
    fn run(&mut self) -> Result<HashMap<usize, u64>, Error> {
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

/// Runs two in turns, and tells the time that each needs for each question.
fn race(first: &mut Trial, other: &mut Trial) -> Result<[HashMap<Question, u64>; 2], Error> {
    let mut least = [HashMap::new(), HashMap::new()];
    for _ in 0..RUNS {
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
