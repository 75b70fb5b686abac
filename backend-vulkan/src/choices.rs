//! Which of several ways a call is computed.
//!
//! An operator that has several asks with [`Encoder::choose`], the way first that it knows to be
//! good by the shapes and by what kind of device there is. What was measured on the device decides
//! ([`crate::tuning`]), where it was; else the first one.

use crate::device::{Best, Question};
use crate::encoder::Encoder;
use crate::tensors::Operand;
use std::collections::HashMap;
use std::fmt::Debug;

/// A call, and how many choices it made before.
type Place = (usize, usize);

/// The choices of a graph's calls.
#[derive(Debug, Clone, Default)]
pub(crate) struct Choices {
    /// What is known of the device.
    known: HashMap<Question, Best>,
    /// The number of the way that is tried wherever there is one; then all that is asked is noted,
    /// known or not.
    trying: Option<u8>,
    made: HashMap<Place, Choice>,
}

/// A choice that a call made.
#[derive(Debug, Clone)]
pub(crate) struct Choice {
    pub(crate) question: Question,
    /// The number of the way that it goes.
    pub(crate) way: u8,
    /// How many there are.
    pub(crate) ways: u8,
    /// The way, for people.
    pub(crate) name: String,
}

impl Choices {
    /// By what is known.
    pub(crate) fn known(known: HashMap<Question, Best>) -> Self {
        Choices { known, ..Choices::default() }
    }

    /// The first way everywhere, or the one of this number where there are so many.
    pub(crate) fn trying(way: u8) -> Self {
        Choices { trying: Some(way), ..Choices::default() }
    }

    /// What was chosen, by call.
    pub(crate) fn made(&self) -> impl Iterator<Item = (usize, &Choice)> {
        self.made.iter().map(|((call, _), choice)| (*call, choice))
    }

    /// The ways that a call goes because of what was measured, for people.
    pub(crate) fn names(&self, call: usize) -> impl Iterator<Item = &str> {
        let of_call = move |(place, _): &(&Place, &Choice)| place.0 == call;
        self.made.iter().filter(of_call).map(|(_, choice)| choice.name.as_str())
    }

    /// The number of the way for a question about these.
    fn way(&self, question: Question, ways: usize) -> usize {
        let tried = self.trying.map(usize::from).filter(|way| *way < ways);
        let known = || self.known.get(&question).map(|best| usize::from(best.way));
        tried.or_else(known).filter(|way| *way < ways).unwrap_or(0)
    }
}

impl Encoder<'_, '_> {
    /// One of several ways to compute `out`: `first`, or one of those behind it, where it was
    /// measured to be faster. There are no others where its shape varies: what is right for the
    /// largest may not be for others. Else ways and the question, what the time depends on besides,
    /// have to be the same whenever the call is encoded.
    pub(crate) fn choose<W: Debug>(
        &mut self,
        out: &Operand,
        question: impl Debug,
        first: W,
        others: impl FnOnce(&W) -> Vec<W>,
    ) -> W {
        if self.is_dynamic(out) || self.is_settled() {
            return first;
        }
        let (place, choices, planning) = self.next_choice();
        if !planning {
            // As when memory was planned.
            let way = choices.made.get(&place).map_or(0, |choice| usize::from(choice.way));
            return match way.checked_sub(1) {
                Some(other) => others(&first).into_iter().nth(other).unwrap_or(first),
                None => first,
            };
        }
        if choices.known.is_empty() && choices.trying.is_none() {
            return first;
        }
        let mut ways = others(&first);
        ways.insert(0, first);
        ways.truncate(usize::from(u8::MAX));
        let question = Question::of(&format!("{question:?} {ways:?}"));
        let way = choices.way(question, ways.len());
        let is_known = choices.known.contains_key(&question);
        let chosen = ways.swap_remove(way);
        if choices.trying.is_some() || is_known {
            let (name, ways) = (format!("{chosen:?}"), ways.len() as u8 + 1);
            choices.made.insert(place, Choice { question, way: way as u8, ways, name });
        }
        chosen
    }
}
