//! Lookahead decoding (prompt lookup): speculative decoding with draft tokens from the text itself.
//!
//! A program that accepts several tokens and returns logits for each computes them in little more
//! time than one. The tokens that followed the last occurrence of the last few tokens are fed as a
//! draft behind the sampled token. While sampling chooses the same tokens, their logits are already
//! available. Each token is still sampled from the logits of the tokens before it.

use std::collections::VecDeque;

/// Numbers of tokens that must match, in order of preference.
const MATCHES: [usize; 2] = [3, 2];

/// Draft tokens that were fed, each with the result of the token.
#[derive(Debug)]
pub(crate) struct DraftResults<B>(VecDeque<(u32, B)>);

impl<B> DraftResults<B> {
    /// Splits the results of a token and its draft: returns the result of the token itself, and the
    /// draft with its results.
    pub(crate) fn new(draft: &[u32], found: impl IntoIterator<Item = B>) -> (Option<B>, Self) {
        let mut found = found.into_iter();
        let own = found.next();
        (own, DraftResults(draft.iter().copied().zip(found).collect()))
    }

    /// Result of a sampled token, if it matches the draft. Otherwise the rest of the draft is
    /// discarded.
    pub(crate) fn take(&mut self, token: u32) -> Option<B> {
        match self.0.pop_front() {
            Some((fed, found)) if fed == token => Some(found),
            _ => {
                self.0.clear();
                None
            }
        }
    }
}

/// Draft of at most `most` tokens behind `context` and `last`.
pub(crate) fn draft(context: &[u32], last: u32, most: usize) -> Vec<u32> {
    for length in MATCHES {
        let Some(from) = (context.len() + 1).checked_sub(length) else { continue };
        let tail = &context[from..];
        // The last occurrence that has a continuation: text repeats what is recent.
        let found = (0..from).rev().find(|&at| {
            let (before, next) = (&context[at..at + length - 1], context[at + length - 1]);
            before == tail && next == last
        });
        if let Some(at) = found {
            // Repetitions go on: past the end of the text, the draft continues with itself.
            let mut draft = Vec::new();
            for place in (at + length..).take(most) {
                let next = match place.checked_sub(context.len()) {
                    None => context.get(place),
                    Some(0) => Some(&last),
                    Some(behind) => draft.get(behind - 1),
                };
                draft.extend(next.copied());
            }
            return draft;
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drafts_continue_earlier_occurrences() {
        assert_eq!(draft(&[1, 2, 3, 4, 5, 1, 2], 3, 2), [4, 5]);
        assert_eq!(draft(&[1, 2, 3, 4, 5, 1, 2], 3, 9), [4, 5, 1, 2, 3, 4, 5, 1, 2]);
        // Two matching tokens suffice if three do not match; the last occurrence wins.
        assert_eq!(draft(&[2, 3, 7, 2, 3, 8, 9, 2], 3, 1), [8]);
        assert_eq!(draft(&[1, 2, 3, 4], 5, 4), [0u32; 0]);
        assert_eq!(draft(&[], 5, 4), [0u32; 0]);
        assert_eq!(draft(&[5], 5, 4), [0u32; 0]);
        assert_eq!(draft(&[5, 5, 5], 5, 4), [5; 4]);
        assert_eq!(draft(&[1, 2, 1, 2], 3, 0), [0u32; 0]);
    }

    #[test]
    fn results_are_used_while_the_draft_matches() {
        let (own, mut ahead) = DraftResults::new(&[7, 8], [[0.0, 0.1], [1.0, 1.1], [2.0, 2.1]]);
        assert_eq!(own, Some([0.0, 0.1]));
        assert_eq!(ahead.take(7), Some([1.0, 1.1]));
        assert_eq!(ahead.take(9), None);
        assert_eq!(ahead.take(8), None);
    }
}
