//! Sampling of tokens from logits.

use crate::error::Error;
use std::collections::{BTreeMap, BTreeSet};

/// Sampling settings, applied in the order of the fields. It matches Hugging Face `transformers`,
/// except that the bias comes first there. The penalties of OpenAI's API are an addition.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampling {
    /// Repetition penalty: logits of tokens in the context are divided by it if positive, and
    /// multiplied if negative. 1 disables it.
    pub repetition_penalty: f32,
    /// Number of last tokens that the repetition penalty considers. 0 means all.
    pub repetition_window: usize,
    /// Frequency penalty: subtracted from a logit for each time that this [`Sampler`] chose the
    /// token before. Tokens of the prompt do not count. Negative values encourage repetition.
    pub frequency_penalty: f32,
    /// Presence penalty: subtracted from a logit once if the token was chosen before.
    pub presence_penalty: f32,
    /// Added to the logits of these tokens. Minus infinity forbids a token.
    pub logit_bias: Vec<(u32, f32)>,
    /// Divisor of the logits. 0 means greedy decoding.
    pub temperature: f32,
    /// Number of most likely tokens to sample from. 0 disables the limit.
    pub top_k: usize,
    /// Nucleus sampling: sample from the smallest set of most likely tokens with this total
    /// probability. 1 disables it.
    pub top_p: f32,
    /// Minimum probability relative to the most likely token. 0 disables it.
    pub min_p: f32,
    /// Seed of the random number generator. Without a seed, each run gives a different text.
    pub seed: Option<u64>,
}

impl Default for Sampling {
    /// Temperature 0.8, as in ExecuTorch's runner; everything else disabled.
    fn default() -> Self {
        Sampling {
            repetition_penalty: 1.0,
            repetition_window: 0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            logit_bias: Vec::new(),
            temperature: 0.8,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            seed: None,
        }
    }
}

impl Sampling {
    /// Greedy decoding: always the most likely token.
    pub fn greedy() -> Self {
        Sampling { temperature: 0.0, ..Sampling::default() }
    }

    fn check(&self) -> Result<(), Error> {
        let in_range = |name, value: f32, fits: bool, expected| match fits {
            true => Ok(()),
            false => Err(Error::Setting { name, value: value.to_string(), expected }),
        };
        let Sampling { temperature, top_p, min_p, repetition_penalty, .. } = *self;
        let is_usual = |value: f32| value.is_finite() && value >= 0.0;
        in_range("temperature", temperature, is_usual(temperature), "a finite number, at least 0")?;
        in_range("top_p", top_p, top_p > 0.0 && top_p <= 1.0, "above 0 and at most 1")?;
        in_range("min_p", min_p, (0.0..=1.0).contains(&min_p), "from 0 to 1")?;
        let fits = is_usual(repetition_penalty) && repetition_penalty > 0.0;
        in_range("repetition_penalty", repetition_penalty, fits, "a finite number above 0")?;
        for (name, penalty) in [
            ("frequency_penalty", self.frequency_penalty),
            ("presence_penalty", self.presence_penalty),
        ] {
            in_range(name, penalty, penalty.is_finite(), "a number")?;
        }
        match self.logit_bias.iter().find(|(_, bias)| bias.is_nan()) {
            Some((_, bias)) => in_range("logit_bias", *bias, false, "a number"),
            None => Ok(()),
        }
    }

    /// Rejects biases of tokens outside a vocabulary of this size.
    pub(crate) fn check_tokens(&self, vocabulary: usize) -> Result<(), Error> {
        let is_unknown = |token: &u32| usize::try_from(*token).map_or(true, |at| at >= vocabulary);
        let unknown = self.logit_bias.iter().map(|(token, _)| *token).find(is_unknown);
        unknown.map_or(Ok(()), |token| {
            Err(Error::UnknownToken { name: "logit_bias", token, vocabulary })
        })
    }
}

/// Samples tokens one after the other, according to [`Sampling`].
#[derive(Debug, Clone)]
pub struct Sampler {
    sampling: Sampling,
    random: Random,
    /// Remaining candidates with their weights.
    candidates: Vec<(u32, f32)>,
    /// How often each token was chosen, for the penalties.
    chosen: BTreeMap<u32, u32>,
}

impl Sampler {
    /// Creates a sampler.
    ///
    /// # Errors
    /// A setting is out of range.
    pub fn new(sampling: Sampling) -> Result<Self, Error> {
        sampling.check()?;
        let random = Random(sampling.seed.unwrap_or_else(Random::any));
        Ok(Sampler { sampling, random, candidates: Vec::new(), chosen: BTreeMap::new() })
    }

    /// Whether decoding is greedy.
    pub fn is_greedy(&self) -> bool {
        self.sampling.temperature == 0.0
    }

    /// Whether the argmax of the logits suffices.
    pub(crate) fn needs_only_argmax(&self) -> bool {
        let Sampling { repetition_penalty, ref logit_bias, top_k, .. } = self.sampling;
        let changes = repetition_penalty != 1.0 || self.counts() || !logit_bias.is_empty();
        (self.is_greedy() || top_k == 1) && !changes
    }

    /// Whether the number of times that a token was chosen matters.
    fn counts(&self) -> bool {
        self.sampling.frequency_penalty != 0.0 || self.sampling.presence_penalty != 0.0
    }

    /// Samples a token from logits, given the tokens before it. NaN counts as minus infinity.
    ///
    /// # Errors
    /// No logit is greater than minus infinity, or a bias is for a token without a logit.
    pub fn sample(&mut self, logits: &mut [f32], context: &[u32]) -> Result<u32, Error> {
        self.sampling.check_tokens(logits.len())?;
        self.adjust(logits, context);
        let token = self.choose(logits)?;
        if self.counts() {
            let count = self.chosen.entry(token).or_default();
            *count = count.saturating_add(1);
        }
        Ok(token)
    }

    /// Samples from adjusted logits.
    fn choose(&mut self, logits: &[f32]) -> Result<u32, Error> {
        let nothing = Error::NoToken { logits: logits.len() };
        let top = argmax(logits).ok_or(nothing)?;
        if self.is_greedy() || self.sampling.top_k == 1 {
            return Ok(top);
        }
        self.weigh(logits, logits[top as usize]);
        self.narrow();
        let total: f64 = self.candidates.iter().map(|(_, weight)| f64::from(*weight)).sum();
        let mut rest = self.random.unit() * total;
        for (token, weight) in &self.candidates {
            rest -= f64::from(*weight);
            if rest < 0.0 {
                return Ok(*token);
            }
        }
        Ok(self.candidates.last().map_or(top, |(token, _)| *token))
    }

    /// Applies penalties and biases.
    fn adjust(&self, logits: &mut [f32], context: &[u32]) {
        let Sampling { repetition_penalty: penalty, repetition_window: window, .. } = self.sampling;
        if penalty != 1.0 {
            let from = if window == 0 { 0 } else { context.len().saturating_sub(window) };
            let seen: BTreeSet<u32> =
                context.get(from..).unwrap_or_default().iter().copied().collect();
            for token in seen {
                if let Some(logit) = logits.get_mut(token as usize) {
                    *logit = if *logit > 0.0 { *logit / penalty } else { *logit * penalty };
                }
            }
        }
        let Sampling { frequency_penalty, presence_penalty, .. } = self.sampling;
        for (token, count) in &self.chosen {
            if let Some(logit) = logits.get_mut(*token as usize) {
                *logit -= *count as f32 * frequency_penalty + presence_penalty;
            }
        }
        for (token, bias) in &self.sampling.logit_bias {
            if let Some(logit) = logits.get_mut(*token as usize) {
                *logit += bias;
            }
        }
    }

    /// Computes candidate weights relative to the most likely token, which has weight 1. If its
    /// logit is infinite, only infinite logits count.
    fn weigh(&mut self, logits: &[f32], most: f32) {
        let temperature = self.sampling.temperature;
        let weight = |logit: f32| match most == f32::INFINITY {
            true => f32::from(u8::from(logit == f32::INFINITY)),
            false => ((logit - most) / temperature).exp(),
        };
        self.candidates.clear();
        let tokens = (0u32..).zip(logits.iter().copied());
        let possible = tokens.filter(|(_, logit)| !logit.is_nan() && *logit > f32::NEG_INFINITY);
        self.candidates.extend(possible.map(|(token, logit)| (token, weight(logit))));
    }

    /// Applies top-k, top-p and min-p.
    fn narrow(&mut self) {
        let Sampling { top_k, top_p, min_p, .. } = self.sampling;
        let likelier = |a: &(u32, f32), b: &(u32, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
        if top_k > 0 && top_k < self.candidates.len() {
            self.candidates.select_nth_unstable_by(top_k - 1, likelier);
            self.candidates.truncate(top_k);
            // Makes the order independent of the selection algorithm, so that results with a seed
            // are reproducible.
            self.candidates.sort_unstable_by_key(|(token, _)| *token);
        }
        if top_p < 1.0 {
            let total: f64 = self.candidates.iter().map(|(_, weight)| f64::from(*weight)).sum();
            // Prefilter: if a token below this weight were in the nucleus, it and all less likely
            // tokens together would be too light to complete it.
            let least = (1.0 - f64::from(top_p)) * total / self.candidates.len().max(1) as f64;
            self.candidates.retain(|(_, weight)| f64::from(*weight) >= least);
            self.candidates.sort_unstable_by(likelier);
            let mut sum = 0.0;
            let enough = self.candidates.iter().position(|(_, weight)| {
                sum += f64::from(*weight);
                sum >= f64::from(top_p) * total
            });
            self.candidates.truncate(enough.map_or(usize::MAX, |last| last + 1));
        }
        if min_p > 0.0 {
            self.candidates.retain(|(_, weight)| *weight >= min_p);
        }
    }
}

/// Index of the first maximum. NaN and minus infinity never win; `None` if nothing else exists.
pub(crate) fn argmax(logits: &[f32]) -> Option<u32> {
    /// Elements compared before the position of the maximum is looked up.
    const BLOCK: usize = 1024;
    /// Elements compared in parallel (SIMD lanes).
    const LANES: usize = 16;
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let (mut most, mut block) = (f32::NEG_INFINITY, None);
    for (index, logits) in logits.chunks(BLOCK).enumerate() {
        let mut side = [f32::NEG_INFINITY; LANES];
        let (chunks, rest) = logits.as_chunks::<LANES>();
        for chunk in chunks {
            for (most, logit) in side.iter_mut().zip(chunk) {
                *most = larger(*most, *logit);
            }
        }
        let here = side.iter().chain(rest).copied().fold(f32::NEG_INFINITY, larger);
        if here > most {
            (most, block) = (here, Some((index * BLOCK, logits)));
        }
    }
    let (first, logits) = block?;
    let at = logits.iter().position(|logit| *logit == most)?;
    u32::try_from(first + at).ok()
}

/// SplitMix64: cheap, and reproducible on every machine.
#[derive(Debug, Clone)]
struct Random(u64);

impl Random {
    /// A random seed.
    fn any() -> u64 {
        use std::hash::{BuildHasher, RandomState};
        RandomState::new().hash_one(std::time::SystemTime::now())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Uniform over [0, 1).
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn argmax_is_the_first_maximum() {
        let mut random = Random(7);
        for len in [0, 1, 15, 16, 17, 1023, 1024, 1025, 5000] {
            for round in 0..20 {
                // Few distinct values give many ties; some values are NaN.
                let value = |number: u64| match number {
                    0 => f32::NAN,
                    1 => f32::NEG_INFINITY,
                    number => number as f32 - 6.0,
                };
                let range = 2 + round % 9;
                let logits: Vec<f32> = (0..len).map(|_| value(random.next() % range)).collect();
                let mut expected = None;
                for (at, logit) in logits.iter().enumerate() {
                    if *logit > expected.map_or(f32::NEG_INFINITY, |best: usize| logits[best]) {
                        expected = Some(at);
                    }
                }
                assert_eq!(argmax(&logits), expected.map(|at| at as u32), "{len} {round}");
            }
        }
    }

    fn chosen(sampling: &Sampling, logits: &[f32], context: &[u32], times: usize) -> Vec<usize> {
        let mut sampler = Sampler::new(sampling.clone()).unwrap();
        let mut counts = vec![0; logits.len()];
        for _ in 0..times {
            counts[sampler.sample(&mut logits.to_vec(), context).unwrap() as usize] += 1;
        }
        counts
    }

    fn warm(change: impl FnOnce(&mut Sampling)) -> Sampling {
        let mut sampling = Sampling { temperature: 1.0, seed: Some(7), ..Sampling::default() };
        change(&mut sampling);
        sampling
    }

    #[test]
    fn token_frequencies_match_probabilities() {
        let logits = [0.5f32.ln(), 0.3f32.ln(), 0.2f32.ln(), f32::NEG_INFINITY];
        let counts = chosen(&warm(|_| ()), &logits, &[], 20_000);
        for (count, expected) in counts.iter().zip([10_000.0f64, 6_000.0, 4_000.0, 0.0]) {
            assert!((*count as f64 - expected).abs() < 300.0, "{counts:?}");
        }
        // Halving the temperature squares the probabilities: 25, 9 and 4 of 38.
        let counts = chosen(&warm(|sampling| sampling.temperature = 0.5), &logits, &[], 20_000);
        assert!((counts[0] as f64 - 13_158.0).abs() < 300.0, "{counts:?}");
    }

    #[test]
    fn the_same_seed_gives_the_same_tokens() {
        let logits: Vec<f32> = (0..50).map(|at| (at as f32 * 0.7).sin()).collect();
        let run = |seed| {
            let mut sampler = Sampler::new(warm(|sampling| sampling.seed = Some(seed))).unwrap();
            (0..20).map(|_| sampler.sample(&mut logits.clone(), &[]).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }

    #[test]
    fn unlikely_tokens_are_excluded() {
        let logits = [0.5f32.ln(), 0.3f32.ln(), 0.15f32.ln(), 0.05f32.ln()];
        let kept = |sampling: Sampling| -> Vec<bool> {
            chosen(&sampling, &logits, &[], 2_000).iter().map(|count| *count > 0).collect()
        };
        assert_eq!(kept(warm(|sampling| sampling.top_k = 2)), [true, true, false, false]);
        assert_eq!(kept(warm(|sampling| sampling.top_p = 0.75)), [true, true, false, false]);
        assert_eq!(kept(warm(|sampling| sampling.top_p = 0.82)), [true, true, true, false]);
        assert_eq!(kept(warm(|sampling| sampling.min_p = 0.2)), [true, true, true, false]);
        let both = warm(|sampling| (sampling.top_k, sampling.top_p) = (3, 0.5));
        assert_eq!(kept(both), [true, false, false, false]);
    }

    #[test]
    fn logits_are_adjusted_first() {
        let greedy = Sampling::greedy();
        let logits = [2.0, 1.5, -1.0];
        assert_eq!(chosen(&greedy, &logits, &[], 1), [1, 0, 0]);
        let penalty = Sampling { repetition_penalty: 2.0, ..greedy.clone() };
        assert_eq!(chosen(&penalty, &logits, &[0, 0, 9], 1), [0, 1, 0]);
        let window = Sampling { repetition_window: 1, ..penalty };
        assert_eq!(chosen(&window, &logits, &[0, 2], 1), [1, 0, 0]);
        let biased = Sampling { logit_bias: vec![(2, 4.0)], ..greedy };
        assert_eq!(chosen(&biased, &logits, &[], 1), [0, 0, 1]);
    }

    /// OpenAI's definition: `logit -= count * frequency_penalty + (count > 0) * presence_penalty`,
    /// where `count` excludes the prompt.
    #[test]
    fn sampled_tokens_are_penalized() {
        let run = |frequency_penalty, presence_penalty, logits: &[f32], count| -> Vec<u32> {
            let sampling = Sampling { frequency_penalty, presence_penalty, ..Sampling::greedy() };
            let mut sampler = Sampler::new(sampling).unwrap();
            assert!(!sampler.needs_only_argmax());
            let mut adjusted = logits.to_vec();
            let chosen = (0..count).map(|_| {
                adjusted.copy_from_slice(logits);
                sampler.sample(&mut adjusted, &[0, 0, 0]).unwrap()
            });
            chosen.collect()
        };
        // Token 0: 3, 2.25, 1.5, 0.75; token 1: 1.75.
        assert_eq!(run(0.75, 0.0, &[3.0, 1.75], 5), [0, 0, 1, 0, 1]);
        // Applied once, regardless of the count.
        assert_eq!(run(0.0, 1.0, &[3.0, 2.5], 4), [0, 1, 0, 0]);
        // Token 0: 3, 1.5, 1.25, 1; token 1: 2.5, 1; token 2: 1.2.
        assert_eq!(run(0.25, 1.25, &[3.0, 2.5, 1.2], 5), [0, 1, 0, 0, 2]);
        // Negative penalties encourage repetition.
        assert_eq!(run(-1.0, 0.0, &[1.0, 1.0], 3), [0, 0, 0]);
        let sampling =
            Sampling { presence_penalty: 0.5, frequency_penalty: 0.25, ..Sampling::greedy() };
        let mut sampler = Sampler::new(sampling).unwrap();
        for expected in [[2.0, -9.0], [1.25, -9.0], [1.0, -9.0]] {
            let mut logits = [2.0, -9.0];
            sampler.sample(&mut logits, &[]).unwrap();
            assert_eq!(logits, expected);
        }
    }

    #[test]
    fn biases_of_unknown_tokens_are_rejected() {
        let biased =
            |token| Sampling { logit_bias: vec![(0, 1.0), (token, 1.0)], ..Sampling::greedy() };
        for token in [3, 77, u32::MAX] {
            let mut sampler = Sampler::new(biased(token)).unwrap();
            let error = sampler.sample(&mut [2.0, 1.5, -1.0], &[]).unwrap_err();
            assert!(
                matches!(error, Error::UnknownToken { name: "logit_bias", token: found, vocabulary: 3 } if found == token),
                "{error}"
            );
        }
        assert_eq!(Sampler::new(biased(2)).unwrap().sample(&mut [2.0, 1.5, -1.0], &[]).unwrap(), 0);
    }

    /// For arbitrary logits, the result is the index of a logit greater than minus infinity, or an
    /// error.
    #[test]
    fn any_logits_give_a_token_or_an_error() {
        let mut random = Random(3);
        let odd =
            [f32::NAN, f32::NEG_INFINITY, f32::INFINITY, 0.0, f32::MAX, f32::MIN, -0.0, 1e-40];
        for round in 0..20_000 {
            let count = (random.next() % 9) as usize;
            let logits: Vec<f32> = (0..count).map(|_| odd[(random.next() % 8) as usize]).collect();
            let mut sampler = Sampler::new(Sampling {
                temperature: [0.0, 1e-30, 1.0, 1e30][(random.next() % 4) as usize],
                top_k: (random.next() % 4) as usize,
                top_p: [1e-9, 0.5, 1.0][(random.next() % 3) as usize],
                min_p: [0.0, 0.5, 1.0][(random.next() % 3) as usize],
                repetition_penalty: [1.0, 1e-30, 1e30][(random.next() % 3) as usize],
                frequency_penalty: [0.0, f32::MIN, f32::MAX][(random.next() % 3) as usize],
                presence_penalty: [0.0, f32::MIN, f32::MAX][(random.next() % 3) as usize],
                seed: Some(round),
                ..Sampling::default()
            })
            .unwrap();
            // Changes the counts for the penalties.
            let _ = sampler.sample(&mut logits.clone(), &[]);
            let mut adjusted = logits.clone();
            match sampler.sample(&mut adjusted, &[0, 1, 70_000]) {
                Ok(token) => assert!(adjusted[token as usize] > f32::NEG_INFINITY, "{logits:?}"),
                Err(error) => {
                    assert!(matches!(error, Error::NoToken { logits } if logits == count));
                    assert!(
                        adjusted.iter().all(|logit| logit.is_nan() || *logit == f32::NEG_INFINITY)
                    );
                }
            }
        }
    }

    #[test]
    fn settings_out_of_range_are_rejected() {
        for (sampling, name) in [
            (warm(|sampling| sampling.temperature = -1.0), "temperature"),
            (warm(|sampling| sampling.temperature = f32::NAN), "temperature"),
            (warm(|sampling| sampling.top_p = 0.0), "top_p"),
            (warm(|sampling| sampling.min_p = 1.5), "min_p"),
            (warm(|sampling| sampling.repetition_penalty = 0.0), "repetition_penalty"),
            (warm(|sampling| sampling.logit_bias = vec![(1, f32::NAN)]), "logit_bias"),
            (warm(|sampling| sampling.frequency_penalty = f32::NAN), "frequency_penalty"),
            (warm(|sampling| sampling.presence_penalty = f32::INFINITY), "presence_penalty"),
        ] {
            assert!(Sampler::new(sampling).unwrap_err().to_string().starts_with(name));
        }
    }
}
