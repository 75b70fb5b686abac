//! Selection among kernel variants of a call.
//!
//! An operator with several variants calls [`Encoder::choose`], listing first the variant that its
//! heuristics prefer for the shapes and the kind of device. An autotuning result
//! ([`crate::tuning`]) overrides that preference.

use crate::device::{Best, Question};
use crate::encoder::Encoder;
use crate::tensors::Operand;
use std::collections::HashMap;
use std::fmt::Debug;

/// The index of a call, and how many choices it made before this one.
type ChoiceKey = (usize, usize);

/// The kernel variants chosen for a graph's calls.
#[derive(Debug, Clone, Default)]
pub struct Choices {
    /// Autotuning results for this device.
    known: HashMap<Question, Best>,
    /// The variant index to try wherever it exists. While it is set, all questions are recorded,
    /// even those with a known answer.
    forced: Option<u8>,
    made: HashMap<ChoiceKey, Choice>,
}

/// One choice of a call.
#[derive(Debug, Clone)]
pub(crate) struct Choice {
    pub(crate) question: Question,
    /// The index of the chosen variant.
    pub(crate) variant: u8,
    /// The number of variants.
    pub(crate) variants: u8,
    /// The variant's name for traces and logs.
    pub(crate) name: String,
}

impl Choices {
    /// Chooses by autotuning results.
    pub fn known(known: HashMap<Question, Best>) -> Self {
        Choices { known, ..Choices::default() }
    }

    /// Chooses the variant with this index wherever it exists, else the first.
    pub fn forced(variant: u8) -> Self {
        Choices { forced: Some(variant), ..Choices::default() }
    }

    /// Returns the choices made, with the index of their call.
    pub(crate) fn made(&self) -> impl Iterator<Item = (usize, &Choice)> {
        self.made.iter().map(|((call, _), choice)| (*call, choice))
    }

    /// Returns the names of the variants that a call uses because of autotuning.
    pub(crate) fn names(&self, call: usize) -> impl Iterator<Item = &str> {
        let of_call = move |(key, _): &(&ChoiceKey, &Choice)| key.0 == call;
        self.made.iter().filter(of_call).map(|(_, choice)| choice.name.as_str())
    }

    /// Returns the variant index for a question.
    fn variant(&self, question: Question, variants: usize) -> usize {
        let forced_variant = self.forced.map(usize::from).filter(|variant| *variant < variants);
        let known = || self.known.get(&question).map(|best| usize::from(best.variant));
        forced_variant.or_else(known).filter(|variant| *variant < variants).unwrap_or(0)
    }
}

impl Encoder<'_, '_> {
    /// Chooses a variant for computing `out`: `first`, or one of `others` that was measured to be
    /// faster. With dynamic shapes, always returns `first`, because the best variant for the
    /// largest shape may not be best for others. Otherwise, the variants and the question
    /// (everything else that the time depends on) must be the same each time the call is encoded.
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
        let (key, choices, planning) = self.next_choice();
        if !planning {
            // Repeats the choice that was made when memory was planned.
            let variant = choices.made.get(&key).map_or(0, |choice| usize::from(choice.variant));
            return match variant.checked_sub(1) {
                Some(other) => others(&first).into_iter().nth(other).unwrap_or(first),
                None => first,
            };
        }
        if choices.known.is_empty() && choices.forced.is_none() {
            return first;
        }
        let mut variants = others(&first);
        variants.insert(0, first);
        variants.truncate(usize::from(u8::MAX));
        let question = Question::of(&format!("{question:?} {variants:?}"));
        let variant = choices.variant(question, variants.len());
        let is_known = choices.known.contains_key(&question);
        let chosen = variants.swap_remove(variant);
        if choices.forced.is_some() || is_known {
            let (name, variants) = (format!("{chosen:?}"), variants.len() as u8 + 1);
            choices.made.insert(key, Choice { question, variant: variant as u8, variants, name });
        }
        chosen
    }
}
