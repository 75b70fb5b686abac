//! How likely tokens were.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// How likely a token was that was chosen, and which were the likeliest: by the logits that the
/// program gave, before anything of [`Sampling`](crate::Sampling) or a grammar changed them.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Logprobs {
    /// The token.
    pub token: u32,
    /// The natural logarithm of its probability.
    pub logprob: f32,
    /// As many of the likeliest tokens as were asked for, with the logarithms of their
    /// probabilities: the likeliest first, and of several that are as likely the one with the
    /// smallest number. Tokens that cannot be are not among them.
    pub likeliest: Vec<(u32, f32)>,
    /// Where in the text that is generated the token's begins, in bytes. It is where the text ends
    /// for a token that ends it, or has no text.
    pub offset: usize,
}

/// Probabilities of tokens. A logit that is no number counts as minus infinity.
pub(crate) struct Distribution {
    logits: Vec<f32>,
    /// The largest logit, and the logarithm of how many times as likely all are together.
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
            // Also where no token can be.
            f64::NEG_INFINITY => f32::NEG_INFINITY,
            distance => (distance - self.total) as f32,
        }
    }

    /// What is told of a token, and of so many of the likeliest.
    pub(crate) fn tell(&self, token: u32, count: usize, offset: usize) -> Logprobs {
        let logit = self.logits.get(token as usize).copied().unwrap_or(f32::NEG_INFINITY);
        let likeliest = self.likeliest(count).into_iter();
        Logprobs {
            token,
            logprob: self.logprob(logit),
            likeliest: likeliest.map(|(token, logit)| (token, self.logprob(logit))).collect(),
            offset,
        }
    }

    fn likeliest(&self, count: usize) -> Vec<(u32, f32)> {
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

/// How far a logit is from the largest one.
fn from(logit: f32, most: f32) -> f64 {
    match logit {
        logit if logit == most && most > f32::NEG_INFINITY => 0.0,
        logit if logit.is_nan() => f64::NEG_INFINITY,
        // Also where both are infinite.
        logit if logit == f32::NEG_INFINITY => f64::NEG_INFINITY,
        logit => f64::from(logit) - f64::from(most),
    }
}

/// A whole number in the order of numbers.
fn order(number: f32) -> i32 {
    // Both zeros are one.
    let bits = (number + 0.0).to_bits().cast_signed();
    if bits < 0 { bits ^ i32::MAX } else { bits }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tell(logits: &[f32], token: u32, count: usize) -> Logprobs {
        Distribution::of(logits).tell(token, count, 0)
    }

    fn is_near(found: f32, expected: f64) -> bool {
        (f64::from(found) - expected).abs() < 1e-6
    }

    #[test]
    fn logprobs_are_logarithms_of_probabilities() {
        // Shifted, however far: 0.5, 0.3, 0.2.
        for shift in [0.0, 80.0, -80.0] {
            let logits = [0.5f32, 0.3, 0.2].map(|part| part.ln() + shift);
            for (token, part) in [0.5f64, 0.3, 0.2].into_iter().enumerate() {
                let found = tell(&logits, token as u32, 0).logprob;
                assert!((f64::from(found) - part.ln()).abs() < 1e-5, "{found} {part}");
            }
        }
        // 10,000 equal ones are each as likely as one of them.
        let found = tell(&[7.25; 10_000], 3, 0).logprob;
        assert!(is_near(found, -(10_000f64).ln()), "{found}");
        // The log-softmax of PyTorch for 1, 2, 3, 4.
        let expected = [-3.440189838, -2.440189838, -1.440189838, -0.440189838];
        let found = tell(&[1.0, 2.0, 3.0, 4.0], 1, 9);
        assert!(is_near(found.logprob, expected[1]));
        let tokens: Vec<u32> = found.likeliest.iter().map(|(token, _)| *token).collect();
        assert_eq!(tokens, [3, 2, 1, 0]);
        assert!(
            found.likeliest.iter().all(|(token, found)| is_near(*found, expected[*token as usize]))
        );
    }

    #[test]
    fn the_likeliest_come_first_and_of_equal_ones_the_first() {
        let logits = [0.0, 2.0, -1.0, 2.0, -0.0, f32::NAN, f32::NEG_INFINITY];
        let likeliest = |count| -> Vec<u32> {
            tell(&logits, 0, count).likeliest.iter().map(|(token, _)| *token).collect()
        };
        assert_eq!(likeliest(0), [0u32; 0]);
        assert_eq!(likeliest(1), [1]);
        assert_eq!(likeliest(3), [1, 3, 0]);
        assert_eq!(likeliest(usize::MAX), [1, 3, 0, 4, 2]);
    }

    #[test]
    fn any_logits_have_logprobs_that_are_numbers() {
        let odd = [f32::NAN, f32::NEG_INFINITY, f32::INFINITY, 0.0, f32::MAX, f32::MIN];
        for a in odd {
            for b in odd {
                for c in odd {
                    let logits = [a, b, c];
                    for token in 0..4 {
                        let found = tell(&logits, token, 3);
                        let all = found.likeliest.iter().map(|(_, logprob)| *logprob);
                        assert!(
                            all.chain([found.logprob]).all(|number| number <= 0.0),
                            "{logits:?}"
                        );
                    }
                }
            }
        }
        let infinite = tell(&[f32::INFINITY, 5.0, f32::INFINITY], 2, 3);
        assert!(is_near(infinite.logprob, -std::f64::consts::LN_2));
        assert_eq!(tell(&[f32::INFINITY, 5.0], 1, 0).logprob, f32::NEG_INFINITY);
    }
}
