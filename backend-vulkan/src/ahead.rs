//! What the next run will need, made while the device is at work on this one: programs that
//! generate text count positions up from run to run, so that their integers can be told before they
//! come.

use crate::compiled::Compiled;
use crate::encode::encode_again;
use crate::error::Error;
use crate::steps::Step;

/// The calls that read integers, encoded before it is known whether they will be called with these.
pub(crate) struct Ahead {
    numbers: Vec<i64>,
    /// All integers of the graph, as its calls set them then.
    integers: Vec<Option<i64>>,
    steps: Vec<Step>,
}

/// More numbers than these are no positions.
const MOST_NUMBERS: usize = 16;

/// After so many runs in a row that were others than expected, nothing is expected of a recording
/// any more.
const MOST_MISSED: u8 = 4;

impl Compiled {
    /// The integers that are inputs, and the contents of inputs that operators look at.
    fn numbers(&self) -> Vec<i64> {
        let integers =
            self.graph.inputs.iter().filter_map(|id| self.state.integers.get(*id)?.as_ref());
        let watched = self.watched.iter().filter_map(|id| self.state.host.get(id));
        integers.copied().chain(watched.flatten().map(|number| i64::from(*number))).collect()
    }

    /// Makes these the integers, as [`numbers`](Self::numbers) has them in order.
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

    /// Gives the recording other integers; `false` if that takes another one.
    pub(crate) fn update(&mut self) -> Result<bool, Error> {
        if let Some(ahead) = self.replay.ahead.take() {
            if ahead.numbers == self.numbers() {
                self.replay.missed = 0;
                self.state.integers = ahead.integers;
                self.replay.write(&ahead.steps)?;
                return Ok(true);
            }
            self.replay.missed = self.replay.missed.saturating_add(1);
        }
        let Some(steps) = self.encode_varying()? else { return Ok(false) };
        self.replay.write(&steps)?;
        Ok(true)
    }

    /// The calls that read integers with those that there are; `None` if the recording is not for
    /// these.
    fn encode_varying(&mut self) -> Result<Option<Vec<Step>>, Error> {
        let Some(reads) = self.replay.reads.take() else { return Ok(None) };
        let calls = &self.replay.calls;
        let (steps, reads) = encode_again(&self.graph, &mut self.state, reads, calls);
        self.replay.reads = Some(reads);
        let steps = steps?;
        let same = self.replay.has_shapes_of(&self.state) && self.replay.has_steps(&steps);
        Ok(same.then_some(steps))
    }

    /// Encodes the calls that read integers as if these went on as they did from the last run to
    /// this one.
    pub(crate) fn look_ahead(&mut self) {
        let now = self.numbers();
        let before = std::mem::replace(&mut self.replay.numbers, now.clone());
        self.replay.ahead = None;
        let next = continued(&before, &now).filter(|_| self.replay.missed < MOST_MISSED);
        let Some(next) = next else { return };
        let integers = self.state.integers.clone();
        self.set_numbers(&next);
        // What cannot be run so is no fault of this run.
        let steps = self.encode_varying().ok().flatten();
        let set = std::mem::replace(&mut self.state.integers, integers);
        self.set_numbers(&now);
        match steps {
            Some(steps) => self.replay.ahead = Some(Ahead { numbers: next, integers: set, steps }),
            None => {
                self.replay.missed = self.replay.missed.saturating_add(1);
                // Shapes may be others meanwhile: they are what they were again, or the next run
                // records what it has.
                self.recorded = matches!(self.encode_varying(), Ok(Some(_)));
            }
        }
    }
}

/// The numbers that follow if all go on in the same steps; `None` if none changes.
fn continued(before: &[i64], now: &[i64]) -> Option<Vec<i64>> {
    if before == now || before.len() != now.len() || now.len() > MOST_NUMBERS {
        return None;
    }
    let next = |(before, now): (&i64, &i64)| now.checked_add(now.checked_sub(*before)?);
    before.iter().zip(now).map(next).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_on_as_they_did() {
        assert_eq!(continued(&[3, 7], &[4, 7]), Some(vec![5, 7]));
        assert_eq!(continued(&[4], &[4]), None);
        assert_eq!(continued(&[], &[4]), None);
        assert_eq!(continued(&[i64::MIN], &[i64::MAX]), None);
        assert_eq!(continued(&[0; 17], &[1; 17]), None);
    }
}
