//! Encodes the next run while the device executes the current one. Text generation increments
//! positions from run to run, so the next integers can be predicted.

use crate::encode::encode_again;
use crate::error::Error;
use crate::plan::Plan;
use crate::replay::{Ahead, Replay};
use crate::state::State;
use crate::steps::Step;

/// The maximum number of predicted integers. Inputs with more integers are unlikely to be
/// positions.
const MAX_INTEGERS: usize = 16;

/// After this many wrong predictions in a row, prediction stops for a recording.
const MAX_MISSES: u8 = 4;

/// Returns the symbolic integers among the inputs, followed by the elements of the integer tensors
/// that operators read on the host.
fn numbers(plan: &Plan<'_>, state: &State) -> Vec<i64> {
    let integers = plan.graph.inputs.iter().filter_map(|id| state.integers.get(*id)?.as_ref());
    let watched = plan.watched.iter().filter_map(|id| state.host.get(id));
    integers.copied().chain(watched.flatten().map(|number| i64::from(*number))).collect()
}

/// Sets these integers, in the order of [`numbers`].
fn set_numbers(plan: &Plan<'_>, state: &mut State, numbers: &[i64]) {
    let mut numbers = numbers.iter().copied();
    for id in &plan.graph.inputs {
        if let Some(Some(slot)) = state.integers.get_mut(*id) {
            *slot = numbers.next().unwrap_or(*slot);
        }
    }
    for id in &plan.watched {
        for slot in state.host.get_mut(id).into_iter().flatten() {
            let next = numbers.next().and_then(|number| i32::try_from(number).ok());
            *slot = next.unwrap_or(*slot);
        }
    }
}

impl Replay {
    /// Encodes the calls that read integers, with the current values, unless they were predicted.
    /// Returns the steps whose parameters have to be written, or `None` if the graph must be
    /// scheduled anew.
    ///
    /// # Errors
    /// A call rejects the integers.
    pub fn update(
        &mut self,
        plan: &Plan<'_>,
        state: &mut State,
    ) -> Result<Option<Vec<Step>>, Error> {
        if let Some(ahead) = self.ahead.take() {
            if ahead.numbers == numbers(plan, state) {
                self.misses = 0;
                state.integers = ahead.integers;
                return Ok(Some(ahead.steps));
            }
            self.misses = self.misses.saturating_add(1);
        }
        self.encode_varying(plan, state)
    }

    /// Encodes the calls that read integers, with the current values. Returns `None` if the result
    /// needs other commands than the recorded ones.
    fn encode_varying(
        &mut self,
        plan: &Plan<'_>,
        state: &mut State,
    ) -> Result<Option<Vec<Step>>, Error> {
        let Some(reads) = self.reads.take() else { return Ok(None) };
        let (steps, reads) = encode_again(&plan.graph, state, reads, &self.calls);
        self.reads = Some(reads);
        let steps = steps?;
        let same = self.has_shapes_of(state) && self.has_steps(&steps);
        Ok(same.then_some(steps))
    }

    /// Encodes the calls that read integers, with values predicted for the next run. The prediction
    /// adds the change since the last run to the current values. Returns whether the recorded
    /// commands stay valid.
    pub fn predict(&mut self, plan: &Plan<'_>, state: &mut State) -> bool {
        let now = numbers(plan, state);
        let before = std::mem::replace(&mut self.numbers, now.clone());
        self.ahead = None;
        let next = extrapolated(&before, &now).filter(|_| self.misses < MAX_MISSES);
        let Some(next) = next else { return true };
        let integers = state.integers.clone();
        set_numbers(plan, state, &next);
        // An error for predicted values is no error of this run.
        let steps = self.encode_varying(plan, state).ok().flatten();
        let set = std::mem::replace(&mut state.integers, integers);
        set_numbers(plan, state, &now);
        if let Some(steps) = steps {
            self.ahead = Some(Ahead { numbers: next, integers: set, steps });
            return true;
        }
        self.misses = self.misses.saturating_add(1);
        // Encoding may have changed shapes. Encoding the current values restores them; if that
        // fails, the next run schedules anew.
        matches!(self.encode_varying(plan, state), Ok(Some(_)))
    }
}

/// Extrapolates each value by its last difference; returns `None` if no value changed.
fn extrapolated(before: &[i64], now: &[i64]) -> Option<Vec<i64>> {
    if before == now || before.len() != now.len() || now.len() > MAX_INTEGERS {
        return None;
    }
    let next = |(before, now): (&i64, &i64)| now.checked_add(now.checked_sub(*before)?);
    before.iter().zip(now).map(next).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_extrapolated() {
        assert_eq!(extrapolated(&[3, 7], &[4, 7]), Some(vec![5, 7]));
        assert_eq!(extrapolated(&[4], &[4]), None);
        assert_eq!(extrapolated(&[], &[4]), None);
        assert_eq!(extrapolated(&[i64::MIN], &[i64::MAX]), None);
        assert_eq!(extrapolated(&[0; 17], &[1; 17]), None);
    }
}
