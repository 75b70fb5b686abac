//! Selection among the kernel variants of a call.

use super::Encoder;
use crate::choices::Choice;
use crate::device::TuningKey;
use crate::tensors::Operand;
use std::fmt::Debug;

impl Encoder<'_, '_> {
    /// Chooses a variant for computing `out`: `first`, or one of `others` that was measured to be
    /// faster. With dynamic shapes, always returns `first`, because the best variant for the
    /// largest shape may be slow for smaller ones. Otherwise, the variants and the question must be
    /// the same each time the call is encoded. The question contains everything else that the time
    /// depends on.
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
        let question = TuningKey::of(&format!("{question:?} {variants:?}"));
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
