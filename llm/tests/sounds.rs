//! Compressed sounds, compared with libsndfile (`export/sounds.py`), and damaged files.

#![cfg(feature = "sounds")]

use serde_json::Value;
use std::time::Instant;
use torchlet_llm::AudioClip;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sounds");

fn cases() -> Vec<Value> {
    let text = std::fs::read_to_string(format!("{FOLDER}/sounds.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn bytes(case: &Value) -> Vec<u8> {
    std::fs::read(format!("{FOLDER}/{}", case["file"].as_str().unwrap())).unwrap()
}

#[test]
fn sounds_match_libsndfile() {
    for case in cases() {
        let name = case["file"].as_str().unwrap();
        let sound = AudioClip::load(format!("{FOLDER}/{name}")).unwrap();
        assert_eq!(u64::from(sound.rate()), case["rate"].as_u64().unwrap(), "{name}");
        assert_eq!(sound.samples().len() as u64, case["count"].as_u64().unwrap(), "{name}");
        let step = case["step"].as_u64().unwrap() as usize;
        // FLAC is lossless; MP3 decoders differ in the order of operations.
        let tolerance = if name.ends_with("flac") { 1e-7 } else { 1e-5 };
        let expected = case["samples"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap());
        for (at, (found, expected)) in
            sound.samples().iter().step_by(step).zip(expected).enumerate()
        {
            let apart = (f64::from(*found) - expected).abs();
            assert!(apart <= tolerance, "{name}, {at}: {found} {expected}");
        }
    }
}

/// Tags may precede and follow the sound.
#[test]
fn tags_are_skipped() {
    let tag = b"ID3\x03\0\0\0\0\0\x05\0\0\0\0\0";
    for case in cases() {
        let plain = bytes(&case);
        let noted = [&tag[..], &plain].concat();
        let expected = AudioClip::from_bytes(&plain).unwrap();
        assert_eq!(AudioClip::from_bytes(&noted).unwrap(), expected);
        let noted = [&plain[..], b"TAG", &[0; 125]].concat();
        assert_eq!(AudioClip::from_bytes(&noted).unwrap(), expected, "{}", case["file"]);
    }
    // A streamed file does not declare its number of samples.
    let open = [&Flac::new(0, 1, 16).file(&[5, 6])[..], b"TAG", &[0; 125]].concat();
    assert_eq!(AudioClip::from_bytes(&open).unwrap().samples().len(), 2 * Flac::BLOCK);
}

/// Writer for FLAC files with constant blocks.
struct Flac {
    /// Declared number of samples.
    samples: u64,
    bits: u8,
    channels: u8,
    rate: u64,
}

impl Flac {
    const BLOCK: usize = 65_535;

    fn new(samples: u64, channels: u8, bits: u8) -> Self {
        Flac { samples, bits, channels, rate: 48_000 }
    }

    /// A 16-bit block per value, for up to 128 values.
    fn file(&self, values: &[i16]) -> Vec<u8> {
        let mut file = b"fLaC\x80\0\0\x22".to_vec();
        file.extend([0xff; 4]);
        file.extend([0; 6]);
        let rest = self.rate << 44
            | u64::from(self.channels - 1) << 41
            | u64::from(self.bits - 1) << 36
            | self.samples;
        file.extend(rest.to_be_bytes());
        file.extend([0; 16]);
        for (at, value) in values.iter().enumerate() {
            let mut frame =
                vec![0xff, 0xf8, 0x70, (self.channels - 1) << 4 | 0b1000, at as u8 % 128];
            frame.extend((Flac::BLOCK as u16 - 1).to_be_bytes());
            frame.push(checksum(&frame, 8, 0x07) as u8);
            for _ in 0..self.channels {
                frame.push(0);
                frame.extend(value.to_be_bytes());
            }
            frame.extend(checksum(&frame, 16, 0x8005).to_be_bytes());
            file.extend(frame);
        }
        file
    }
}

/// CRC of FLAC headers (8 bits) and frames (16 bits).
fn checksum(bytes: &[u8], bits: u32, polynomial: u16) -> u16 {
    let shift = 16 - bits;
    let of_byte = |sum: u16, byte: &u8| {
        (0..8).fold(sum ^ u16::from(*byte) << 8, |sum, _| match sum & 0x8000 {
            0 => sum << 1,
            _ => sum << 1 ^ polynomial << shift,
        })
    };
    bytes.iter().fold(0, of_byte) >> shift
}

/// A few bytes encode a block of maximum size.
#[test]
fn sounds_that_are_too_long_are_refused() {
    let sound = AudioClip::from_bytes(&Flac::new(70_000, 2, 16).file(&[i16::MIN, 0x4000])).unwrap();
    assert_eq!((sound.rate(), sound.samples().len()), (48_000, 70_000));
    assert_eq!(sound.samples()[..Flac::BLOCK], [-1.0; Flac::BLOCK]);
    assert_eq!(sound.samples()[Flac::BLOCK..], [0.5; 70_000 - Flac::BLOCK]);
    // 16-bit samples in a file that declares 8 bits.
    let loud = AudioClip::from_bytes(&Flac::new(0, 1, 8).file(&[i16::MAX, 0x40])).unwrap();
    assert_eq!((loud.samples()[0], loud.samples()[Flac::BLOCK]), (1.0, 0.5));
    // 12 hours at 1000 Hz.
    let slow = Flac { rate: 1000, ..Flac::new(0, 1, 16) }.file(&[1; 660]);
    assert!(slow.len() < 10_000);
    let error = AudioClip::from_bytes(&slow).unwrap_err().to_string();
    assert!(error.contains("more than 43200000 samples"), "{error}");
    if cfg!(debug_assertions) {
        // The limit for any rate takes minutes to reach.
        return;
    }
    // 2^27 samples of eight channels are the limit: 2048 blocks.
    let long = Flac::new(0, 8, 16).file(&vec![1; 2049]);
    assert!(long.len() < 80_000);
    let error = AudioClip::from_bytes(&long).unwrap_err().to_string();
    assert!(error.contains("more than 134217728 samples"), "{error}");
}

#[test]
fn other_formats_are_named() {
    let refused = |bytes: &[u8]| AudioClip::from_bytes(bytes).unwrap_err().to_string();
    assert!(refused(b"OggS\0\0\0\0\0\0\0\0").contains("an Ogg file"));
    assert!(refused(b"\0\0\0\x18ftypM4A \0\0\0\0").contains("an MP4 file"));
    assert!(refused(b"").contains("WAV, FLAC or MP3"));
    assert!(refused(b"fLaC\0\0\0\0").contains("FLAC file is damaged"));
    assert!(refused(b"ID3\x03\0\0\0\0\0\x05\0\0\0\0\0").contains("no samples"));
}

/// Truncated and modified files return promptly.
#[test]
fn damaged_files_return_promptly() {
    let mut state = 1u64;
    let mut next = move |below: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    for case in cases() {
        let whole = bytes(&case);
        let rounds = if cfg!(debug_assertions) { 150 } else { 4000 };
        for _ in 0..rounds {
            let mut damaged = whole.clone();
            // Most of the relevant bytes are at the start.
            let room = if next(2) == 0 { whole.len() } else { whole.len().min(80) };
            for _ in 0..=next(6) {
                damaged[next(room)] = next(256) as u8;
            }
            if next(3) == 0 {
                damaged.truncate(next(whole.len()));
            }
            let start = Instant::now();
            let _ = AudioClip::from_bytes(&damaged);
            assert!(start.elapsed().as_secs() < 5, "{}", case["file"]);
        }
    }
}
