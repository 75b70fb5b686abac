//! Selection among kernel variants of a call.
//!
//! An operator with several variants calls `Encoder::choose`, listing first the variant that its
//! heuristics prefer for the shapes and the kind of device. An autotuning result
//! ([`crate::tuning`]) overrides that preference.

use crate::device::{TuningKey, TuningResult};
use std::collections::HashMap;

/// The index of a call, and the number of choices that the call made before this one.
type ChoiceKey = (usize, usize);

/// The kernel variants chosen for a graph's calls.
#[derive(Debug, Clone, Default)]
pub struct Choices {
    /// Autotuning results for this device.
    pub(crate) known: HashMap<TuningKey, TuningResult>,
    /// The variant index that every choice uses if it has so many variants. While it is set, all
    /// questions are recorded, even those with a known answer.
    pub(crate) forced: Option<u8>,
    pub(crate) made: HashMap<ChoiceKey, Choice>,
}

/// One choice among kernel variants, made while a call was encoded.
#[derive(Debug, Clone)]
pub(crate) struct Choice {
    pub(crate) question: TuningKey,
    /// The index of the chosen variant.
    pub(crate) variant: u8,
    /// The number of variants.
    pub(crate) variants: u8,
    /// The variant's name for traces and logs.
    pub(crate) name: String,
}

impl Choices {
    /// Creates choices that follow these autotuning results.
    pub fn known(known: HashMap<TuningKey, TuningResult>) -> Self {
        Choices { known, ..Choices::default() }
    }

    /// Creates choices that select the variant with this index, or the first one where that index
    /// does not exist.
    pub fn forced(variant: u8) -> Self {
        Choices { forced: Some(variant), ..Choices::default() }
    }

    /// Returns all recorded choices, each with the index of its call.
    pub(crate) fn made(&self) -> impl Iterator<Item = (usize, &Choice)> {
        self.made.iter().map(|((call, _), choice)| (*call, choice))
    }

    /// Returns the names of the variants that a call uses because of autotuning.
    pub(crate) fn names(&self, call: usize) -> impl Iterator<Item = &str> {
        let of_call = move |(key, _): &(&ChoiceKey, &Choice)| key.0 == call;
        self.made.iter().filter(of_call).map(|(_, choice)| choice.name.as_str())
    }

    /// Returns the index of the variant to use for a question with this number of variants.
    pub(crate) fn variant(&self, question: TuningKey, variants: usize) -> usize {
        let forced_variant = self.forced.map(usize::from).filter(|variant| *variant < variants);
        let known = || self.known.get(&question).map(|best| usize::from(best.variant));
        forced_variant.or_else(known).filter(|variant| *variant < variants).unwrap_or(0)
    }
}
