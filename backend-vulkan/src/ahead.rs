//! Encodes the next run while the device executes the current one. Text generation increments
//! positions from run to run, so the next integers can be predicted.

use crate::compiled::Compiled;
use crate::error::Error;
use torchlet_gpu::encode::encode_again;
use torchlet_gpu::steps::Step;

/// The calls that read integers, encoded for predicted values.
pub(crate) struct Ahead {
    numbers: Vec<i64>,
    /// All integers of the graph, as the encoded calls left them.
    integers: Vec<Option<i64>>,
    steps: Vec<Step>,
}

/// With more integers than this, they are unlikely to be positions, and nothing is predicted.
const MAX_INTEGERS: usize = 16;

/// After this many wrong predictions in a row, prediction stops for a recording.
const MAX_MISSES: u8 = 4;

impl Compiled {
    /// Returns the integers among the inputs, and the contents of inputs that operators read on the
    /// host.
    fn numbers(&self) -> Vec<i64> {
        let integers =
            self.graph.inputs.iter().filter_map(|id| self.state.integers.get(*id)?.as_ref());
        let watched = self.watched.iter().filter_map(|id| self.state.host.get(id));
        integers.copied().chain(watched.flatten().map(|number| i64::from(*number))).collect()
    }

    /// Sets these integers, in the order of [`numbers`](Self::numbers).
    fn set_numbers(&mut self, numbers: &[i64]) {
        let mut numbers = numbers.iter().copied();
        for id in &self.graph.inputs {
            if let Some(Some(slot)) = self.state.integers.get_mut(*id) {
                *slot = numbers.next().unwrap_or(*slot);
            }
        }
        for id in &self.watched {
            for slot in self.state.host.get_mut(id).into_iter().flatten() {
                let next = numbers.next().and_then(|number| i32::try_from(number).ok());
                *slot = next.unwrap_or(*slot);
            }
        }
    }

    /// Updates the recording for new integers; returns `false` if the graph must be recorded anew.
    pub(crate) fn update(&mut self) -> Result<bool, Error> {
        if let Some(ahead) = self.replay.ahead.take() {
            if ahead.numbers == self.numbers() {
                self.replay.misses = 0;
                self.state.integers = ahead.integers;
                self.replay.write(&ahead.steps)?;
                return Ok(true);
            }
            self.replay.misses = self.replay.misses.saturating_add(1);
        }
        let Some(steps) = self.encode_varying()? else { return Ok(false) };
        self.replay.write(&steps)?;
        Ok(true)
    }

    /// Encodes the calls that read integers with the current values. Returns `None` if the
    /// recording does not fit them.
    fn encode_varying(&mut self) -> Result<Option<Vec<Step>>, Error> {
        let Some(reads) = self.replay.reads.take() else { return Ok(None) };
        let calls = &self.replay.calls;
        let (steps, reads) = encode_again(&self.graph, &mut self.state, reads, calls);
        self.replay.reads = Some(reads);
        let steps = steps?;
        let same = self.replay.has_shapes_of(&self.state) && self.replay.has_steps(&steps);
        Ok(same.then_some(steps))
    }

    /// Encodes the calls that read integers for the predicted next values, which extrapolate the
    /// change from the last run to this one.
    pub(crate) fn predict(&mut self) {
        let now = self.numbers();
        let before = std::mem::replace(&mut self.replay.numbers, now.clone());
        self.replay.ahead = None;
        let next = extrapolated(&before, &now).filter(|_| self.replay.misses < MAX_MISSES);
        let Some(next) = next else { return };
        let integers = self.state.integers.clone();
        self.set_numbers(&next);
        // An error for predicted values is no error of this run.
        let steps = self.encode_varying().ok().flatten();
        let set = std::mem::replace(&mut self.state.integers, integers);
        self.set_numbers(&now);
        match steps {
            Some(steps) => self.replay.ahead = Some(Ahead { numbers: next, integers: set, steps }),
            None => {
                self.replay.misses = self.replay.misses.saturating_add(1);
                // Encoding may have changed shapes. Encoding the current values restores them; if
                // that fails, the next run records anew.
                self.recorded = matches!(self.encode_varying(), Ok(Some(_)));
            }
        }
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
