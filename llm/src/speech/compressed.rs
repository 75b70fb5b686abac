//! Decoders for FLAC (crate `claxon`) and MP3 (crate `nanomp3`).
//!
//! A few bytes can encode many samples, for example of silence. Samples are therefore counted while
//! decoding, and the file's own length is not trusted.

use super::sound::{AudioClip, MAX_SECONDS, damaged};
use crate::error::Error;
use claxon::{Block, FlacReader, FlacReaderOptions};
use nanomp3::{Options, SliceReader};
use std::io::Cursor;

/// Maximum number of samples at any rate: 1 GiB, or an hour and a half at 48 kHz.
const MAX_SAMPLES: u64 = 1 << 28;
/// Maximum number of samples over all channels. Decoding costs time for every channel, although
/// only their mean is stored.
const MAX_DECODED: u64 = 1 << 30;

/// Decodes a file that is not WAV.
pub(super) fn decode(bytes: &[u8]) -> Result<AudioClip, Error> {
    // Some programs write ID3 tags before other formats than MP3, too.
    let sound = bytes.get(nanomp3::id3v2_len(bytes)..).unwrap_or_default();
    if sound.starts_with(b"fLaC") {
        return flac(sound);
    }
    if nanomp3::detect(bytes) {
        return mp3(bytes);
    }
    let known = match (bytes.get(..4), bytes.get(4..8)) {
        (Some(b"OggS"), _) => "an Ogg file",
        (_, Some(b"ftyp")) => "an MP4 file",
        (Some([0x1a, 0x45, 0xdf, 0xa3]), _) => "a Matroska or WebM file",
        (Some(b"FORM"), _) => "an AIFF file",
        _ => "unknown",
    };
    Err(damaged(format!("expected a WAV, FLAC or MP3 file, found {known}")))
}

/// Decoded samples, mixed down to mono.
struct Collected {
    rate: u32,
    most: u64,
    samples: Vec<f32>,
}

impl Collected {
    fn new(rate: u32, channels: u32) -> Result<Self, Error> {
        // Rejects an invalid sample rate before decoding.
        AudioClip::new(rate, Vec::new())?;
        let most = MAX_SAMPLES.min(MAX_DECODED / u64::from(channels.max(1)));
        Ok(Collected { rate, most: most.min(MAX_SECONDS * u64::from(rate)), samples: Vec::new() })
    }

    fn len(&self) -> u64 {
        self.samples.len() as u64
    }

    fn add(&mut self, means: impl ExactSizeIterator<Item = f32>) -> Result<(), Error> {
        let count = self.len() + means.len() as u64;
        if count > self.most {
            let seconds = self.most / u64::from(self.rate);
            let message =
                format!("the sound has more than {} samples, {seconds} seconds", self.most);
            return Err(damaged(message));
        }
        if count > self.samples.capacity() as u64 {
            // Doubles the capacity, up to the maximum.
            let room = count.max(2 * self.len()).min(self.most) - self.len();
            let room = usize::try_from(room).unwrap_or(usize::MAX);
            self.samples.try_reserve_exact(room).map_err(|error| {
                damaged(format!("cannot allocate memory for {count} samples: {error}"))
            })?;
        }
        self.samples.extend(means.map(|mean| if mean.is_finite() { mean } else { 0.0 }));
        Ok(())
    }

    fn sound(self) -> Result<AudioClip, Error> {
        AudioClip::new(self.rate, self.samples)
    }
}

/// The file without an ID3v1 tag at its end.
fn without_id3v1(bytes: &[u8]) -> &[u8] {
    match bytes.split_last_chunk::<128>() {
        Some((sound, notes)) if notes.starts_with(b"TAG") => sound,
        _ => bytes,
    }
}

fn flac(bytes: &[u8]) -> Result<AudioClip, Error> {
    let fail = |error: claxon::Error| damaged(format!("the FLAC file is damaged: {error}"));
    let options = FlacReaderOptions { read_vorbis_comment: false, ..FlacReaderOptions::default() };
    let mut reader = FlacReader::new_ext(Cursor::new(bytes), options).map_err(fail)?;
    let info = reader.streaminfo();
    if info.samples.is_none() {
        // If the number of samples is known, a tag after them is never read.
        reader = FlacReader::new_ext(Cursor::new(without_id3v1(bytes)), options).map_err(fail)?;
    }
    let mut collected = Collected::new(info.sample_rate, info.channels)?;
    let scale = 0.5f64.powi(i32::try_from(info.bits_per_sample).unwrap_or(i32::MAX) - 1);
    let mut blocks = reader.blocks();
    let mut buffer = Vec::new();
    let said = info.samples.unwrap_or(u64::MAX);
    while collected.len() < said {
        let Some(block) = blocks.read_next_or_eof(buffer).map_err(fail)? else { break };
        let left = usize::try_from(said - collected.len()).unwrap_or(usize::MAX);
        collected.add(means(&block, scale).take(left))?;
        buffer = block.into_buffer();
    }
    collected.sound()
}

fn means(block: &Block, scale: f64) -> impl ExactSizeIterator<Item = f32> {
    let channels: Vec<&[i32]> = (0..block.channels()).map(|at| block.channel(at)).collect();
    let scale = scale / channels.len() as f64;
    (0..block.duration() as usize).map(move |at| {
        let sum: f64 =
            channels.iter().filter_map(|channel| channel.get(at)).map(|&s| f64::from(s)).sum();
        // A block may have a larger bit depth than the header declares.
        (sum * scale).clamp(-1.0, 1.0) as f32
    })
}

fn mp3(bytes: &[u8]) -> Result<AudioClip, Error> {
    let fail = |error: nanomp3::Error| damaged(format!("the MP3 file is damaged: {error}"));
    let options = Options::default().skip_scan(true);
    let mut reader = SliceReader::<f32>::with_options(bytes, options);
    let channels = match reader.channels() {
        Some(channels) => channels.num(),
        None => return Err(damaged("the MP3 file has no samples")),
    };
    let mut collected = Collected::new(reader.sample_rate(), channels.into())?;
    let channels = usize::from(channels);
    while let Some(frame) = reader.read_frame().map_err(fail)? {
        let frames = frame.chunks_exact(channels);
        collected.add(frames.map(|frame| frame.iter().sum::<f32>() / channels as f32))?;
    }
    collected.sound()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The capacity doubles up to the maximum.
    #[test]
    fn sample_memory_is_bounded() {
        let mut collected = Collected { most: 1000, ..Collected::new(8000, 1).unwrap() };
        for _ in 0..10 {
            collected.add([0.5, f32::NAN].repeat(50).into_iter()).unwrap();
            assert!(collected.samples.capacity() <= 1000);
        }
        let error = collected.add([0.5].into_iter()).unwrap_err().to_string();
        assert!(error.contains("more than 1000 samples"), "{error}");
        assert_eq!(collected.samples, [0.5, 0.0].repeat(500));
        // Limits apply to all channels together, and to seconds.
        let most = |rate, channels| Collected::new(rate, channels).unwrap().most;
        assert_eq!(most(48_000, 1), MAX_SAMPLES);
        assert_eq!(most(48_000, 4), MAX_SAMPLES);
        assert_eq!(most(48_000, 8), MAX_DECODED / 8);
        assert_eq!(most(1000, 1), MAX_SECONDS * 1000);
    }
}
