//! Log-probabilities of tokens.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Log-probability of a generated token, and the most likely tokens at its position. Computed from
/// the program's logits, before [`Sampling`](crate::Sampling) or a grammar changes them.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Logprobs {
    /// The token.
    pub token: u32,
    /// Natural logarithm of its probability.
    pub logprob: f32,
    /// The requested number of most likely tokens with their log-probabilities, in descending
    /// order. Ties are ordered by token. Tokens with probability 0 are omitted.
    pub top: Vec<(u32, f32)>,
    /// Byte offset of the token's text in the generated text. For tokens without text, such as the
    /// end-of-text token, the current end of the text.
    pub offset: usize,
}

/// Softmax distribution over tokens. NaN counts as minus infinity.
pub(crate) struct Distribution {
    logits: Vec<f32>,
    /// Maximum logit, and the log-sum-exp relative to it.
    most: f32,
    total: f64,
}

impl Distribution {
    pub(crate) fn of(logits: &[f32]) -> Self {
        let logits = logits.to_vec();
        let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let total: f64 = logits.iter().map(|logit| from(*logit, most).exp()).sum();
        Distribution { logits, most, total: total.ln() }
    }

    fn logprob(&self, logit: f32) -> f32 {
        match from(logit, self.most) {
            // Also if every logit is minus infinity.
            f64::NEG_INFINITY => f32::NEG_INFINITY,
            distance => (distance - self.total) as f32,
        }
    }

    /// Log-probabilities of a token and of the `count` most likely tokens.
    pub(crate) fn logprobs_of(&self, token: u32, count: usize, offset: usize) -> Logprobs {
        let logit = self.logits.get(token as usize).copied().unwrap_or(f32::NEG_INFINITY);
        let top = self.top(count).into_iter();
        Logprobs {
            token,
            logprob: self.logprob(logit),
            top: top.map(|(token, logit)| (token, self.logprob(logit))).collect(),
            offset,
        }
    }

    fn top(&self, count: usize) -> Vec<(u32, f32)> {
        let mut found = BinaryHeap::new();
        let possible = |(_, logit): &(u32, f32)| *logit > f32::NEG_INFINITY;
        for (token, logit) in (0u32..).zip(self.logits.iter().copied()).filter(possible) {
            let ranked = Reverse((order(logit), Reverse(token)));
            if found.len() < count {
                found.push(ranked);
            } else if let Some(mut least) = found.peek_mut()
                && ranked < *least
            {
                *least = ranked;
            }
        }
        let tokens = found.into_sorted_vec().into_iter().map(|Reverse((_, Reverse(token)))| token);
        tokens.filter_map(|token| Some((token, *self.logits.get(token as usize)?))).collect()
    }
}

/// Difference of a logit from the maximum.
fn from(logit: f32, most: f32) -> f64 {
    match logit {
        logit if logit == most && most > f32::NEG_INFINITY => 0.0,
        logit if logit.is_nan() => f64::NEG_INFINITY,
        // Also if both are infinite.
        logit if logit == f32::NEG_INFINITY => f64::NEG_INFINITY,
        logit => f64::from(logit) - f64::from(most),
    }
}

/// Maps a float to an integer with the same order.
fn order(number: f32) -> i32 {
    // Adding 0 maps -0 to +0.
    let bits = (number + 0.0).to_bits().cast_signed();
    if bits < 0 { bits ^ i32::MAX } else { bits }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logprobs_of(logits: &[f32], token: u32, count: usize) -> Logprobs {
        Distribution::of(logits).logprobs_of(token, count, 0)
    }

    fn is_near(found: f32, expected: f64) -> bool {
        (f64::from(found) - expected).abs() < 1e-6
    }

    #[test]
    fn logprobs_match_log_softmax() {
        // Probabilities 0.5, 0.3, 0.2; softmax is invariant to the shift.
        for shift in [0.0, 80.0, -80.0] {
            let logits = [0.5f32, 0.3, 0.2].map(|part| part.ln() + shift);
            for (token, part) in [0.5f64, 0.3, 0.2].into_iter().enumerate() {
                let found = logprobs_of(&logits, token as u32, 0).logprob;
                assert!((f64::from(found) - part.ln()).abs() < 1e-5, "{found} {part}");
            }
        }
        // Uniform over 10,000 tokens.
        let found = logprobs_of(&[7.25; 10_000], 3, 0).logprob;
        assert!(is_near(found, -(10_000f64).ln()), "{found}");
        // PyTorch's log_softmax of 1, 2, 3, 4.
        let expected = [-3.440189838, -2.440189838, -1.440189838, -0.440189838];
        let found = logprobs_of(&[1.0, 2.0, 3.0, 4.0], 1, 9);
        assert!(is_near(found.logprob, expected[1]));
        let tokens: Vec<u32> = found.top.iter().map(|(token, _)| *token).collect();
        assert_eq!(tokens, [3, 2, 1, 0]);
        assert!(found.top.iter().all(|(token, found)| is_near(*found, expected[*token as usize])));
    }

    #[test]
    fn top_tokens_are_ordered() {
        let logits = [0.0, 2.0, -1.0, 2.0, -0.0, f32::NAN, f32::NEG_INFINITY];
        let top = |count| -> Vec<u32> {
            logprobs_of(&logits, 0, count).top.iter().map(|(token, _)| *token).collect()
        };
        assert_eq!(top(0), [0u32; 0]);
        assert_eq!(top(1), [1]);
        assert_eq!(top(3), [1, 3, 0]);
        assert_eq!(top(usize::MAX), [1, 3, 0, 4, 2]);
    }

    #[test]
    fn logprobs_are_never_nan() {
        let odd = [f32::NAN, f32::NEG_INFINITY, f32::INFINITY, 0.0, f32::MAX, f32::MIN];
        for a in odd {
            for b in odd {
                for c in odd {
                    let logits = [a, b, c];
                    for token in 0..4 {
                        let found = logprobs_of(&logits, token, 3);
                        let all = found.top.iter().map(|(_, logprob)| *logprob);
                        assert!(
                            all.chain([found.logprob]).all(|number| number <= 0.0),
                            "{logits:?}"
                        );
                    }
                }
            }
        }
        let infinite = logprobs_of(&[f32::INFINITY, 5.0, f32::INFINITY], 2, 3);
        assert!(is_near(infinite.logprob, -std::f64::consts::LN_2));
        assert_eq!(logprobs_of(&[f32::INFINITY, 5.0], 1, 0).logprob, f32::NEG_INFINITY);
    }
}
