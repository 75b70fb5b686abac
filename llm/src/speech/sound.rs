//! Sounds: loading from files, and resampling.

use crate::error::Error;
use std::f64::consts::PI;
use std::path::Path;

/// Maximum file size; a few hours of sound.
const MAX_BYTES: u64 = 2 << 30;
/// Maximum duration of a sound. Resampling a low rate would multiply its size.
pub(super) const MAX_SECONDS: u64 = 12 * 60 * 60;
/// Valid sample rates in Hz.
const RATES: std::ops::RangeInclusive<u32> = 1_000..=768_000;

/// A mono sound with samples from -1 to 1.
#[derive(Debug, Clone, PartialEq)]
pub struct AudioClip {
    rate: u32,
    samples: Vec<f32>,
}

impl AudioClip {
    /// Creates a sound from samples. `rate` is in Hz.
    ///
    /// # Errors
    /// The rate is outside 1,000 to 768,000 Hz.
    pub fn new(rate: u32, samples: Vec<f32>) -> Result<Self, Error> {
        match RATES.contains(&rate) {
            true => Ok(AudioClip { rate, samples }),
            false => Err(damaged(format!("unsupported sample rate: {rate} Hz"))),
        }
    }

    /// Reads a file, as [`AudioClip::from_bytes`].
    ///
    /// # Errors
    /// The file cannot be read, or its format is not supported.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let fail = |source| Error::Read { path: path.into(), source };
        AudioClip::from_bytes(&torchlet_cache::read_at_most(path, MAX_BYTES).map_err(fail)?)
    }

    /// Decodes a file in memory: WAV, and with the feature `sounds` FLAC and MP3. The format is
    /// detected. Several channels are mixed down to mono.
    ///
    /// # Errors
    /// The bytes are malformed, or their format is not supported.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        #[cfg(feature = "sounds")]
        if !is_wav(bytes) {
            return super::compressed::decode(bytes);
        }
        AudioClip::from_wav(bytes)
    }

    /// Decodes a WAV file in memory: integers of 8 to 32 bits, floats of 32 or 64 bits, or G.711
    /// (A-law, µ-law). RF64 and BW64 files, for more than 4 GiB, are supported.
    ///
    /// # Errors
    /// The bytes are not a supported WAV file.
    pub fn from_wav(bytes: &[u8]) -> Result<Self, Error> {
        let mut rest = match bytes.get(12..) {
            Some(rest) if is_wav(bytes) => rest,
            _ => return Err(damaged("expected a WAV file")),
        };
        let (mut format, mut samples) = (None, None);
        loop {
            let Some((head, behind)) = rest.split_at_checked(8) else {
                return Err(damaged("the WAV file has no samples"));
            };
            let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
            // Live recordings declare no length, or a wrong one, for the data chunk, which is the
            // last.
            let is_open = head[..4] == *b"data" && length == 0;
            // In RF64 files, the length of the data chunk is in an earlier chunk.
            let is_long = head[..4] == *b"data" && head[4..8] == [0xff; 4];
            let length = match samples {
                _ if is_open => behind.len(),
                Some(samples) if is_long => samples,
                _ => length,
            };
            let (part, behind) = behind.split_at(length.min(behind.len()));
            match &head[..4] {
                b"fmt " => format = Some(Format::read(part)?),
                b"ds64" => samples = part.get(8..16).map(size),
                b"data" => {
                    let format = format
                        .ok_or_else(|| damaged("the data chunk precedes the format chunk"))?;
                    return format.sound(part);
                }
                _ => {}
            }
            // Chunks are aligned to two bytes.
            rest = behind.get(length % 2..).unwrap_or_default();
        }
    }

    /// Sample rate in Hz.
    pub fn rate(&self) -> u32 {
        self.rate
    }

    /// The samples.
    pub fn samples(&self) -> &[f32] {
        &self.samples
    }

    /// Resamples to another rate, as torchaudio's `resample`: windowed sinc with six zero crossings
    /// on each side.
    ///
    /// # Errors
    /// The rate is invalid, or memory is exhausted.
    pub fn at_rate(&self, rate: u32) -> Result<AudioClip, Error> {
        const ZEROS: f64 = 6.0;
        if rate == self.rate {
            return Ok(self.clone());
        }
        let (old, new) = (f64::from(self.rate), f64::from(rate));
        let cutoff = old.min(new) * 0.99;
        let reach = ZEROS * old / cutoff;
        let count = (self.samples.len() as f64 * new / old).ceil() as usize;
        let mut samples = Vec::new();
        let no_room =
            |error| damaged(format!("cannot allocate memory for {count} samples: {error}"));
        samples.try_reserve_exact(count).map_err(no_room)?;
        samples.extend((0..count).map(|at| {
            let place = at as f64 * old / new;
            let from = (place - reach).ceil().max(0.0) as usize;
            let to = ((place + reach).floor() as usize).saturating_add(1).min(self.samples.len());
            let near = self.samples.get(from..to).unwrap_or_default().iter().zip(from..);
            let sum: f64 = near
                .map(|(sample, near)| {
                    let at = (near as f64 - place) / old * cutoff;
                    let window = (at * PI / ZEROS / 2.0).cos();
                    let sinc = if at == 0.0 { 1.0 } else { (at * PI).sin() / (at * PI) };
                    f64::from(*sample) * sinc * window * window
                })
                .sum();
            (sum * cutoff / old) as f32
        }));
        AudioClip::new(rate, samples)
    }
}

fn is_wav(bytes: &[u8]) -> bool {
    matches!(bytes.get(..4), Some(b"RIFF" | b"RF64" | b"BW64")) && bytes.get(8..12) == Some(b"WAVE")
}

/// Encoding of a sample.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Integer,
    Float,
    /// G.711: four bits of mantissa with an exponent.
    LawA,
    LawMu,
}

/// Format of the samples.
struct Format {
    kind: Kind,
    channels: usize,
    rate: u32,
    bytes: usize,
}

impl Format {
    fn read(part: &[u8]) -> Result<Self, Error> {
        let short = |at: usize| Some(u16::from_le_bytes([*part.get(at)?, *part.get(at + 1)?]));
        let (Some(kind), Some(channels), Some(low), Some(high), Some(bits)) =
            (short(0), short(2), short(4), short(6), short(14))
        else {
            return Err(damaged("the format chunk of the WAV file is truncated"));
        };
        // In the extensible format, the encoding is in the subformat.
        let kind = if kind == 0xfffe { short(24).unwrap_or(0) } else { kind };
        let kind = match (kind, bits) {
            (1, 8 | 16 | 24 | 32) => Kind::Integer,
            (3, 32 | 64) => Kind::Float,
            (6, 8) => Kind::LawA,
            (7, 8) => Kind::LawMu,
            _ => {
                let message = format!(
                    "unsupported sample format {kind} with {bits} bits; use integers, or floats \
                     of 32 or 64 bits"
                );
                return Err(damaged(message));
            }
        };
        if channels == 0 {
            return Err(damaged("the WAV file has no channels"));
        }
        let rate = u32::from(low) | u32::from(high) << 16;
        Ok(Format { kind, channels: channels.into(), rate, bytes: usize::from(bits / 8) })
    }

    fn sound(&self, data: &[u8]) -> Result<AudioClip, Error> {
        let one = |sample: &[u8]| match (self.kind, sample) {
            (Kind::Float, &[a, b, c, d]) => f32::from_le_bytes([a, b, c, d]),
            (Kind::Float, &[a, b, c, d, e, f, g, h]) => {
                f64::from_le_bytes([a, b, c, d, e, f, g, h]) as f32
            }
            (Kind::LawA, &[a]) => decode_a_law(a),
            (Kind::LawMu, &[a]) => decode_mu_law(a),
            (_, &[a]) => (f32::from(a) - 128.0) / 128.0,
            (_, &[a, b]) => f32::from(i16::from_le_bytes([a, b])) / 32768.0,
            (_, &[a, b, c]) => (i32::from_le_bytes([0, a, b, c]) >> 8) as f32 / 8_388_608.0,
            (_, &[a, b, c, d]) => {
                (f64::from(i32::from_le_bytes([a, b, c, d])) / 2_147_483_648.0) as f32
            }
            _ => 0.0,
        };
        let frames = data.chunks_exact(self.bytes * self.channels);
        if frames.len() as u64 > MAX_SECONDS * u64::from(self.rate) && RATES.contains(&self.rate) {
            let (found, most) = (frames.len() as u64 / u64::from(self.rate), MAX_SECONDS);
            return Err(damaged(format!("the sound has {found} seconds, more than {most}")));
        }
        let samples = frames.map(|frame| {
            let sum: f32 = frame.chunks_exact(self.bytes).map(one).sum();
            let mean = sum / self.channels as f32;
            if mean.is_finite() { mean } else { 0.0 }
        });
        AudioClip::new(self.rate, samples.collect())
    }
}

/// Decodes a G.711 A-law sample, in which every second bit is inverted.
fn decode_a_law(code: u8) -> f32 {
    let code = code ^ 0x55;
    let (bits, place) = (i16::from(code & 0xf) << 4, (code >> 4) & 7);
    let size = match place {
        0 => bits + 8,
        place => (bits + 0x108) << (place - 1),
    };
    f32::from(if code & 0x80 == 0 { -size } else { size }) / 32768.0
}

/// Decodes a G.711 µ-law sample, in which all bits are inverted.
fn decode_mu_law(code: u8) -> f32 {
    const BIAS: i16 = 0x84;
    let code = !code;
    let size = (((i16::from(code & 0xf) << 3) + BIAS) << ((code >> 4) & 7)) - BIAS;
    f32::from(if code & 0x80 == 0 { size } else { -size }) / 32768.0
}

/// A 64-bit length, saturated to `usize`.
fn size(bytes: &[u8]) -> usize {
    let bytes = bytes.try_into().map_or(u64::MAX, u64::from_le_bytes);
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

pub(super) fn damaged(message: impl Into<String>) -> Error {
    Error::Audio { message: message.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wav(kind: u16, channels: u16, rate: u32, bits: u16, data: &[u8]) -> Vec<u8> {
        let mut bytes = b"RIFF\0\0\0\0WAVEjunk\x03\0\0\0abc\0fmt \x10\0\0\0".to_vec();
        let align = channels * bits / 8;
        for short in [kind, channels] {
            bytes.extend(short.to_le_bytes());
        }
        bytes.extend(rate.to_le_bytes());
        bytes.extend((rate * u32::from(align)).to_le_bytes());
        for short in [align, bits] {
            bytes.extend(short.to_le_bytes());
        }
        bytes.extend(b"data");
        bytes.extend((data.len() as u32).to_le_bytes());
        bytes.extend(data);
        bytes
    }

    #[test]
    fn all_sample_formats_are_decoded() {
        let read = |kind, channels, bits, data: &[u8]| {
            AudioClip::from_wav(&wav(kind, channels, 16_000, bits, data)).unwrap().samples
        };
        assert_eq!(read(1, 1, 8, &[0, 128, 192]), [-1.0, 0.0, 0.5]);
        assert_eq!(read(1, 1, 16, &[0, 0x80, 0, 0x40]), [-1.0, 0.5]);
        assert_eq!(read(1, 1, 24, &[0, 0, 0x80, 0, 0, 0x40]), [-1.0, 0.5]);
        assert_eq!(read(1, 1, 32, &[0, 0, 0, 0x40]), [0.5]);
        assert_eq!(read(3, 1, 32, &0.25f32.to_le_bytes()), [0.25]);
        assert_eq!(read(3, 1, 64, &(-0.25f64).to_le_bytes()), [-0.25]);
        // Extreme and middle values of both G.711 laws.
        let telephone = |kind, data| -> Vec<f32> {
            read(kind, 1, 8, data).iter().map(|sample| sample * 32768.0).collect()
        };
        assert_eq!(
            telephone(6, &[0xd5, 0x55, 0xaa, 0x2a, 0xc5]),
            [8.0, -8.0, 32256.0, -32256.0, 264.0]
        );
        assert_eq!(
            telephone(7, &[0xff, 0x7f, 0x80, 0x00, 0xef]),
            [0.0, 0.0, 32124.0, -32124.0, 132.0]
        );
        // Two channels, and a truncated sample.
        assert_eq!(read(1, 2, 16, &[0, 0x40, 0, 0x20, 1]), [0.375]);
        assert_eq!(read(3, 1, 32, &f32::NAN.to_le_bytes()), [0.0]);
    }

    #[test]
    fn damaged_files_are_refused() {
        let whole = wav(1, 1, 16_000, 16, &[1, 2, 3, 4]);
        for length in 0..whole.len() {
            // A file truncated within the samples has fewer samples.
            let _ = AudioClip::from_wav(&whole[..length]);
        }
        assert!(AudioClip::from_wav(&whole[..40]).is_err());
        assert!(AudioClip::from_wav(&wav(2, 1, 16_000, 16, &[])).is_err());
        assert!(AudioClip::from_wav(&wav(1, 0, 16_000, 16, &[])).is_err());
        assert!(AudioClip::from_wav(&wav(1, 1, 0, 16, &[])).is_err());
        assert!(AudioClip::from_wav(b"RIFF1234WAVE").is_err());
    }

    /// Live recordings may declare a length of 0.
    #[test]
    fn zero_length_data_chunks_extend_to_the_end() {
        let mut whole = wav(1, 1, 16_000, 16, &[0, 0x40, 0, 0x20]);
        let at = whole.len() - 8;
        whole[at..at + 4].fill(0);
        assert_eq!(AudioClip::from_wav(&whole).unwrap().samples, [0.5, 0.25]);
        assert!(AudioClip::from_wav(&wav(1, 1, 16_000, 16, &[])).unwrap().samples.is_empty());
    }

    /// Data after the samples is ignored in every variant of the format.
    #[test]
    fn long_and_extended_forms_are_read() {
        let long = |samples: u64, form: &[u8; 4]| {
            let mut whole = wav(1, 1, 16_000, 16, &[0, 0x40, 0, 0x20]);
            whole[..8].copy_from_slice(&[*form, [0xff; 4]].concat());
            let at = whole.len() - 8;
            whole[at..at + 4].fill(0xff);
            whole.extend(b"LIST\x04\0\0\0abcd");
            let sizes = [96u64, samples, 2].map(u64::to_le_bytes).concat();
            let ds64 = [&b"ds64\x1c\0\0\0"[..], &sizes, &[0; 4]].concat();
            whole.splice(12..12, ds64);
            AudioClip::from_wav(&whole).unwrap().samples
        };
        assert_eq!(long(4, b"RF64"), [0.5, 0.25]);
        assert_eq!(long(2, b"BW64"), [0.5]);
        // A length larger than the file is clamped.
        assert_eq!(long(u64::MAX, b"RF64").len(), 8);
        // The extensible format, with the encoding in the subformat.
        let mut whole = wav(0xfffe, 2, 48_000, 24, &[0, 0, 0x40, 0, 0, 0x20]);
        let at = whole.windows(4).position(|part| part == b"fmt ").unwrap();
        whole[at + 4] = 40;
        let kind =
            [&[22, 0, 24, 0, 3, 0, 0, 0, 1, 0][..], b"\0\0\0\0\x10\0\x80\0\0\xaa\0\x38\x9b\x71"]
                .concat();
        whole.splice(at + 24..at + 24, kind);
        assert_eq!(AudioClip::from_wav(&whole).unwrap().samples, [0.375]);
    }

    #[test]
    fn sounds_that_are_too_long_are_refused() {
        let most = MAX_SECONDS as usize * 1000;
        let error = AudioClip::from_wav(&wav(1, 1, 1000, 8, &vec![128; most + 1])).unwrap_err();
        assert!(error.to_string().contains("seconds"), "{error}");
    }

    /// A sine wave keeps its frequency.
    #[test]
    fn resampling_keeps_frequencies() {
        let tone = |rate: u32, hertz: f64| -> Vec<f32> {
            let at = |at: u32| (2.0 * PI * hertz * f64::from(at) / f64::from(rate)).sin() as f32;
            (0..rate / 10).map(at).collect()
        };
        for (from, to) in [(44_100, 16_000), (8_000, 16_000), (16_000, 48_000)] {
            let sound = AudioClip::new(from, tone(from, 440.0)).unwrap().at_rate(to).unwrap();
            let expected = tone(to, 440.0);
            assert_eq!(sound.samples.len(), expected.len());
            for (found, expected) in sound.samples.iter().zip(&expected).skip(100).take(500) {
                assert!((found - expected).abs() < 5e-3, "{from} to {to}: {found} {expected}");
            }
        }
        // Frequencies above half the sample rate are removed.
        let high = AudioClip::new(44_100, tone(44_100, 12_000.0)).unwrap().at_rate(16_000).unwrap();
        assert!(high.samples.iter().skip(100).take(1000).all(|sample| sample.abs() < 2e-2));
    }
}
