//! Compressed sounds, beside what libsndfile reads from them (`export/sounds.py`), and damaged.

#![cfg(feature = "sounds")]

use serde_json::Value;
use std::time::Instant;
use torchlet_llm::Sound;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sounds");

fn cases() -> Vec<Value> {
    let text = std::fs::read_to_string(format!("{FOLDER}/sounds.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn bytes(case: &Value) -> Vec<u8> {
    std::fs::read(format!("{FOLDER}/{}", case["file"].as_str().unwrap())).unwrap()
}

#[test]
fn sounds_are_those_of_libsndfile() {
    for case in cases() {
        let name = case["file"].as_str().unwrap();
        let sound = Sound::load(format!("{FOLDER}/{name}")).unwrap();
        assert_eq!(u64::from(sound.rate()), case["rate"].as_u64().unwrap(), "{name}");
        assert_eq!(sound.samples().len() as u64, case["count"].as_u64().unwrap(), "{name}");
        let step = case["step"].as_u64().unwrap() as usize;
        // Nothing is lost in FLAC; what MP3 says is computed in another order.
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

/// Notes of players may stand in front, and behind.
#[test]
fn notes_are_no_sound() {
    let tag = b"ID3\x03\0\0\0\0\0\x05\0\0\0\0\0";
    for case in cases() {
        let plain = bytes(&case);
        let noted = [&tag[..], &plain].concat();
        assert_eq!(Sound::from_bytes(&noted).unwrap(), Sound::from_bytes(&plain).unwrap());
    }
}

#[test]
fn other_files_are_named() {
    let refused = |bytes: &[u8]| Sound::from_bytes(bytes).unwrap_err().to_string();
    assert!(refused(b"OggS\0\0\0\0\0\0\0\0").contains("an Ogg file"));
    assert!(refused(b"\0\0\0\x18ftypM4A \0\0\0\0").contains("an MP4 file"));
    assert!(refused(b"").contains("WAV, FLAC or MP3"));
    assert!(refused(b"fLaC\0\0\0\0").contains("FLAC file is damaged"));
    assert!(refused(b"ID3\x03\0\0\0\0\0\x05\0\0\0\0\0").contains("no samples"));
}

/// Cut off anywhere, and with bytes that are others: there is an answer, soon.
#[test]
fn damaged_files_are_answered() {
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
            // Most of what decides is at the front.
            let room = if next(2) == 0 { whole.len() } else { whole.len().min(80) };
            for _ in 0..=next(6) {
                damaged[next(room)] = next(256) as u8;
            }
            if next(3) == 0 {
                damaged.truncate(next(whole.len()));
            }
            let start = Instant::now();
            let _ = Sound::from_bytes(&damaged);
            assert!(start.elapsed().as_secs() < 5, "{}", case["file"]);
        }
    }
}
