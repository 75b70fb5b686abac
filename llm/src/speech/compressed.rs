//! Sounds from files that say what they have in fewer bytes: FLAC, by the crate `claxon`, and MP3, by `nanomp3`.
//!
//! A few bytes may stand for many samples there (silence does), so samples are counted as they come, and not taken from what a file says of itself.

use super::sound::{MAX_SECONDS, Sound, damaged};
use crate::error::Error;
use claxon::{Block, FlacReader, FlacReaderOptions};
use nanomp3::{Options, SliceReader};
use std::io::Cursor;

/// The most samples, whatever their rate: 6 hours of 48,000 a second, and 4 GiB.
const MAX_SAMPLES: u64 = 1 << 30;

/// What a file that is no WAV file has.
pub(super) fn decode(bytes: &[u8]) -> Result<Sound, Error> {
    // Some write notes of MP3 files in front of others, too.
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
        _ => "none of these",
    };
    Err(damaged(format!("sounds are taken as WAV, FLAC or MP3, and the file is {known}")))
}

/// Samples as they come, several channels as their mean.
struct Collected {
    rate: u32,
    most: u64,
    samples: Vec<f32>,
}

impl Collected {
    fn new(rate: u32) -> Result<Self, Error> {
        // Whether it is a rate of sounds is known before there are any.
        Sound::new(rate, Vec::new())?;
        let most = MAX_SAMPLES.min(MAX_SECONDS * u64::from(rate));
        Ok(Collected { rate, most, samples: Vec::new() })
    }

    fn add(&mut self, means: impl ExactSizeIterator<Item = f32>) -> Result<(), Error> {
        let (count, rate) = (self.samples.len() as u64 + means.len() as u64, u64::from(self.rate));
        if count > self.most {
            let most = self.most / rate;
            return Err(damaged(format!("the sound has more than {most} seconds")));
        }
        self.samples.extend(means.map(|mean| if mean.is_finite() { mean } else { 0.0 }));
        Ok(())
    }

    fn sound(self) -> Result<Sound, Error> {
        Sound::new(self.rate, self.samples)
    }
}

fn flac(bytes: &[u8]) -> Result<Sound, Error> {
    let fail = |error: claxon::Error| damaged(format!("the FLAC file is damaged: {error}"));
    let options = FlacReaderOptions { read_vorbis_comment: false, ..FlacReaderOptions::default() };
    let mut reader = FlacReader::new_ext(Cursor::new(bytes), options).map_err(fail)?;
    let info = reader.streaminfo();
    let mut collected = Collected::new(info.sample_rate)?;
    let scale = 0.5f64.powi(i32::try_from(info.bits_per_sample).unwrap_or(i32::MAX) - 1);
    let mut blocks = reader.blocks();
    let mut buffer = Vec::new();
    while let Some(block) = blocks.read_next_or_eof(buffer).map_err(fail)? {
        collected.add(means(&block, scale))?;
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
        (sum * scale) as f32
    })
}

fn mp3(bytes: &[u8]) -> Result<Sound, Error> {
    let fail = |error: nanomp3::Error| damaged(format!("the MP3 file is damaged: {error}"));
    let options = Options::default().skip_scan(true);
    let mut reader = SliceReader::<f32>::with_options(bytes, options);
    let channels = match reader.channels() {
        Some(channels) => usize::from(channels.num()),
        None => return Err(damaged("the MP3 file has no samples")),
    };
    let mut collected = Collected::new(reader.sample_rate())?;
    while let Some(frame) = reader.read_frame().map_err(fail)? {
        let frames = frame.chunks_exact(channels);
        collected.add(frames.map(|frame| frame.iter().sum::<f32>() / channels as f32))?;
    }
    collected.sound()
}
