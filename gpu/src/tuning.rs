//! Autotuning: measures on the device which kernel variants of a program's calls are the fastest.
//!
//! A program is compiled with its default variants. For each other variant index, it is compiled
//! again, so that every call with enough variants uses the variant with that index. The two
//! versions run alternately, so that drifts of the device clock affect both. Calls with the same
//! question (kernel shape) are tuned together; their times are added.

use crate::choices::Choices;
use crate::device::{Device, TuningKey, TuningResult};
use crate::encode::encode;
use crate::error::Error;
use crate::state::State;
use std::collections::{HashMap, HashSet};
use torchlet_graph::graph::Graph;

/// Runs of each version; the shortest time of each call counts.
const RUNS: usize = 7;
/// The minimum number of runs: a second run excludes one-time costs of the first.
const MIN_RUNS: usize = 2;

/// A variant is better if it lasts at most this share of the best time so far. Smaller differences
/// are noise.
const MARGIN: f32 = 0.97;

/// A program that was compiled with one variant index, in order to be measured.
pub trait Trial {
    /// The error type of the backend.
    type Error;

    /// Returns the tuning questions, by the index of their call.
    fn questions(&self) -> &HashMap<usize, TuningKey>;

    /// Runs once with zeros as inputs, and returns the time of each call with a question.
    ///
    /// # Errors
    /// The run failed.
    fn run(&mut self) -> Result<HashMap<usize, u64>, Self::Error>;
}

/// Questions with variants that are not measured yet. For each: the number of variants, and the
/// best variant so far.
pub type OpenKeys = HashMap<TuningKey, (u8, TuningResult)>;

/// Returns those questions of a graph that have variants which are not measured yet.
///
/// # Errors
/// The graph cannot be encoded.
pub fn open_questions(
    graph: &Graph<'_>,
    device: &Device,
    known: &HashMap<TuningKey, TuningResult>,
) -> Result<OpenKeys, Error> {
    let mut state = State::on(device, graph, HashSet::new())?;
    state.choices = Choices::forced(0);
    encode(graph, &mut state, true)?;
    let so_far = |question: &TuningKey| {
        known.get(question).copied().unwrap_or(TuningResult { variant: 0, share: MARGIN, tried: 1 })
    };
    let asked = state.choices.made().map(|(_, choice)| (choice.question, choice.variants));
    let asked = asked.map(|(question, variants)| (question, (variants, so_far(&question))));
    Ok(asked.filter(|(_, (variants, best))| best.tried < *variants).collect())
}

/// Measures the variants of open questions until `is_over` returns true, and returns the answers.
/// `compile` compiles the program with a variant index.
///
/// # Errors
/// The default variants cannot be compiled, or an error is fatal. If another variant fails, for
/// example for lack of memory, the others are still tried.
pub fn search<T: Trial>(
    mut open: OpenKeys,
    mut compile: impl FnMut(u8) -> Result<T, T::Error>,
    is_over: impl Fn() -> bool,
    is_fatal: impl Fn(&T::Error) -> bool,
) -> Result<Vec<(TuningKey, TuningResult)>, T::Error> {
    let variants = open.values().flat_map(|(variants, best)| [*variants, best.tried]);
    let Some((least, most)) = variants.clone().min().zip(variants.max()) else {
        return Ok(Vec::new());
    };
    let mut first = compile(0)?;
    for variant in least..most {
        if is_over() {
            break;
        }
        let raced = compile(variant).and_then(|mut other| race(&mut first, &mut other, &is_over));
        let [usual, tried] = match raced {
            Err(error) if is_fatal(&error) => return Err(error),
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
    Ok(open.into_iter().map(|(question, (_, best))| (question, best)).collect())
}

/// Runs two trials alternately, and stops early when time is over. Returns, for each of the two,
/// the time by question.
fn race<T: Trial>(
    first: &mut T,
    other: &mut T,
    is_over: impl Fn() -> bool,
) -> Result<[HashMap<TuningKey, u64>; 2], T::Error> {
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
    Ok([by_question(first, a), by_question(other, b)])
}

/// Adds the times of calls with the same question.
fn by_question<T: Trial>(trial: &T, calls: HashMap<usize, u64>) -> HashMap<TuningKey, u64> {
    let mut sums = HashMap::new();
    for (call, ticks) in calls {
        if let Some(question) = trial.questions().get(&call) {
            *sums.entry(*question).or_default() += ticks;
        }
    }
    sums
}
