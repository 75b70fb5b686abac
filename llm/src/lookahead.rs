//! Tokens that are fed before they are chosen, since the text had them behind the same ones before.
//!
//! A program that takes several tokens at once and gives logits for each computes them in little
//! more time than one. What follows the last occurrence of the last few tokens is fed behind the
//! token that was chosen; as long as the same tokens are chosen then, their logits are there
//! already. Nothing else changes: each token is chosen by logits of the tokens before it.

use std::collections::VecDeque;

/// How many tokens have to be as before, at best and at least.
const MATCHES: [usize; 2] = [3, 2];

/// Tokens that were fed in advance, each with what the one behind it follows from.
#[derive(Debug)]
pub(crate) struct Ahead<B>(VecDeque<(u32, B)>);

impl<B> Ahead<B> {
    /// What was fed behind a token, with what comes of each: the first is that token's own, which
    /// is given back.
    pub(crate) fn new(draft: &[u32], found: impl IntoIterator<Item = B>) -> (Option<B>, Self) {
        let mut found = found.into_iter();
        let own = found.next();
        (own, Ahead(draft.iter().copied().zip(found).collect()))
    }

    /// What comes of a token that was chosen, if it was fed already; if not, nothing that was fed
    /// counts.
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

/// At most `most` tokens that may follow `context` and `last`.
pub(crate) fn draft(context: &[u32], last: u32, most: usize) -> Vec<u32> {
    for length in MATCHES {
        let Some(from) = (context.len() + 1).checked_sub(length) else { continue };
        let tail = &context[from..];
        // The last occurrence with something behind it: texts repeat what they said lately.
        let found = (0..from).rev().find(|&at| {
            let (before, next) = (&context[at..at + length - 1], context[at + length - 1]);
            before == tail && next == last
        });
        if let Some(at) = found {
            // What repeats itself goes on doing so: behind the text comes what was drafted.
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
    fn what_followed_before_is_tried_again() {
        assert_eq!(draft(&[1, 2, 3, 4, 5, 1, 2], 3, 2), [4, 5]);
        assert_eq!(draft(&[1, 2, 3, 4, 5, 1, 2], 3, 9), [4, 5, 1, 2, 3, 4, 5, 1, 2]);
        // Two are enough where three are not as before; the last time counts.
        assert_eq!(draft(&[2, 3, 7, 2, 3, 8, 9, 2], 3, 1), [8]);
        assert_eq!(draft(&[1, 2, 3, 4], 5, 4), [0u32; 0]);
        assert_eq!(draft(&[], 5, 4), [0u32; 0]);
        assert_eq!(draft(&[5], 5, 4), [0u32; 0]);
        assert_eq!(draft(&[5, 5, 5], 5, 4), [5; 4]);
        assert_eq!(draft(&[1, 2, 1, 2], 3, 0), [0u32; 0]);
    }

    #[test]
    fn logits_count_as_long_as_tokens_are_as_expected() {
        let (own, mut ahead) = Ahead::new(&[7, 8], [[0.0, 0.1], [1.0, 1.1], [2.0, 2.1]]);
        assert_eq!(own, Some([0.0, 0.1]));
        assert_eq!(ahead.take(7), Some([1.0, 1.1]));
        assert_eq!(ahead.take(9), None);
        assert_eq!(ahead.take(8), None);
    }
}
