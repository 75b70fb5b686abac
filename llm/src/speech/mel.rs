//! Log-mel spectrograms, the input features of Whisper and similar models.

use crate::error::{self, Error};
use std::f64::consts::PI;

/// Sample rate in Hz; window length and hop length in samples.
const RATE: f64 = 16_000.0;
const WINDOW: usize = 400;
const STEP: usize = 160;
const FREQUENCIES: usize = WINDOW / 2 + 1;

/// Computes log-mel features like Hugging Face's `WhisperFeatureExtractor`: windows of 25 ms with a
/// hop of 10 ms, at 16 kHz.
#[derive(Debug, Clone)]
pub struct LogMel {
    bins: usize,
    /// Filter bank: weights of all frequencies for each mel bin.
    filters: Vec<f64>,
    window: Vec<f64>,
    /// Twiddle factors: cosine and negative sine of each fraction of a full turn.
    circle: Vec<[f64; 2]>,
}

impl LogMel {
    /// Required sample rate in Hz.
    pub const RATE: u32 = RATE as u32;

    /// Creates an extractor with this number of mel bins: 80, or 128 for the largest Whisper
    /// models.
    ///
    /// # Errors
    /// The number is 0, or exceeds the number of frequencies (201).
    pub fn new(bins: usize) -> Result<Self, Error> {
        if !(1..=FREQUENCIES).contains(&bins) {
            let expected = "from 1 to 201";
            return Err(Error::Setting { name: "mel bins", value: bins.to_string(), expected });
        }
        let part = |at: usize| 2.0 * PI * at as f64 / WINDOW as f64;
        Ok(LogMel {
            bins,
            filters: filters(bins),
            window: (0..WINDOW).map(|at| 0.5 - 0.5 * part(at).cos()).collect(),
            circle: (0..WINDOW).map(|at| [part(at).cos(), -part(at).sin()]).collect(),
        })
    }

    /// Number of samples for this number of frames.
    pub fn samples(frames: usize) -> usize {
        frames.saturating_mul(STEP)
    }

    /// Computes features of shape `[bins, frames]`. A shorter sound is padded with silence, and a
    /// longer one is truncated.
    ///
    /// # Errors
    /// Too little memory is left.
    pub fn features(&self, samples: &[f32], frames: usize) -> Result<Vec<f32>, Error> {
        let total = LogMel::samples(frames);
        let half = WINDOW / 2;
        // Reflection padding.
        let at = |place: usize| {
            let place = place as i64 - half as i64;
            let last = total as i64 - 1;
            let place = if place < 0 { -place } else { place };
            let place = if place > last { 2 * last - place } else { place };
            let place = usize::try_from(place).unwrap_or(0);
            if place < total {
                samples.get(place).map_or(0.0, |sample| f64::from(*sample))
            } else {
                0.0
            }
        };
        let count = frames.saturating_mul(self.bins);
        let mut made: Vec<f32> = error::filled(0.0, count, "the features of a sound")?;
        let mut loudest = f32::NEG_INFINITY;
        let (mut input, mut output) = (vec![[0.0; 2]; WINDOW], vec![[0.0; 2]; WINDOW]);
        for frame in 0..frames {
            for (offset, (input, window)) in input.iter_mut().zip(&self.window).enumerate() {
                *input = [at(frame * STEP + offset) * window, 0.0];
            }
            self.transform(&input, 1, &mut output);
            let power: Vec<f64> =
                output[..FREQUENCIES].iter().map(|[re, im]| re * re + im * im).collect();
            for (bin, filter) in self.filters.chunks_exact(FREQUENCIES).enumerate() {
                let sum: f64 =
                    filter.iter().zip(&power).map(|(filter, power)| filter * power).sum();
                let loud = sum.max(1e-10).log10() as f32;
                loudest = loudest.max(loud);
                made[bin * frames + frame] = loud;
            }
        }
        for value in &mut made {
            *value = (value.max(loudest - 8.0) + 4.0) / 4.0;
        }
        Ok(made)
    }

    /// Mixed-radix FFT over every `stride`th input element, with the length of `output`.
    fn transform(&self, input: &[[f64; 2]], stride: usize, output: &mut [[f64; 2]]) {
        let count = output.len();
        let Some(factor) = (2..=count).find(|factor| count.is_multiple_of(*factor)) else {
            output[0] = input[0];
            return;
        };
        let part = count / factor;
        let mut parts = vec![[0.0; 2]; count];
        for (at, parts) in parts.chunks_exact_mut(part).enumerate() {
            self.transform(&input[at * stride..], stride * factor, parts);
        }
        for (place, output) in output.iter_mut().enumerate() {
            *output = [0.0; 2];
            for (at, parts) in parts.chunks_exact(part).enumerate() {
                let [re, im] = parts[place % part];
                let [cos, sin] = self.circle[at * place * stride % WINDOW];
                output[0] += re * cos - im * sin;
                output[1] += re * sin + im * cos;
            }
        }
    }
}

/// Triangular filters that are equally wide on Slaney's mel scale and normalized by area.
fn filters(bins: usize) -> Vec<f64> {
    // The scale is linear up to 1000 Hz, and logarithmic above.
    let step = 6.4f64.ln() / 27.0;
    let mel = |hertz: f64| {
        if hertz < 1000.0 { hertz * 0.015 } else { 15.0 + (hertz / 1000.0).ln() / step }
    };
    let hertz =
        |mel: f64| if mel < 15.0 { mel / 0.015 } else { 1000.0 * ((mel - 15.0) * step).exp() };
    let most = mel(RATE / 2.0);
    let edge = |at: usize| hertz(most * at as f64 / (bins + 1) as f64);
    let mut made = Vec::with_capacity(bins * FREQUENCIES);
    for bin in 0..bins {
        let (low, middle, high) = (edge(bin), edge(bin + 1), edge(bin + 2));
        made.extend((0..FREQUENCIES).map(|at| {
            let frequency = RATE / 2.0 * at as f64 / (FREQUENCIES - 1) as f64;
            let rise = (frequency - low) / (middle - low);
            let fall = (high - frequency) / (high - middle);
            rise.min(fall).max(0.0) * 2.0 / (high - low)
        }));
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fft_matches_the_dft() {
        let mel = LogMel::new(80).unwrap();
        let input: Vec<[f64; 2]> =
            (0..WINDOW).map(|at| [(at as f64 * 0.37).sin(), (at * at) as f64 % 7.0]).collect();
        let mut output = vec![[0.0; 2]; WINDOW];
        mel.transform(&input, 1, &mut output);
        for place in [0, 1, 3, 77, 200, 399] {
            let mut expected = [0.0f64; 2];
            for (at, [re, im]) in input.iter().enumerate() {
                let angle = -2.0 * PI * (at * place) as f64 / WINDOW as f64;
                expected[0] += re * angle.cos() - im * angle.sin();
                expected[1] += re * angle.sin() + im * angle.cos();
            }
            for (found, expected) in output[place].iter().zip(expected) {
                assert!((found - expected).abs() < 1e-8, "{found} {expected}");
            }
        }
    }

    #[test]
    fn silence_has_features_and_no_frames_have_none() {
        let mel = LogMel::new(80).unwrap();
        assert!(mel.features(&[], 5).unwrap().iter().all(|value| *value == -1.5));
        assert_eq!(mel.features(&[0.5; 100], 0).unwrap(), [0.0f32; 0]);
        assert!(matches!(mel.features(&[], usize::MAX), Err(Error::Overloaded { .. })));
        assert_eq!(mel.features(&[0.5; 100], 1).unwrap().len(), 80);
        assert!(LogMel::new(0).is_err() && LogMel::new(202).is_err());
    }
}
