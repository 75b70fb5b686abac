//! Prompts of text, images and audio.

use super::images::ImageOptions;
use super::options::GenerateArguments;
use crate::budget;
use crate::failure::Failure;
use std::path::Path;
use torchlet::Tensor;
use torchlet::core::TensorInfo;
use torchlet::llm::{AudioClip, Input, LogMel, Runner};

/// Placeholders for images and audio in a prompt.
const IMAGE: &str = "<image>";
const AUDIO: &str = "<audio>";

/// A part of a prompt.
#[derive(Debug)]
pub(super) enum Part {
    Text(String),
    Image(Tensor),
    Audio(Tensor),
}

impl Part {
    pub(super) fn input(&self) -> Input<'_> {
        match self {
            Part::Text(text) => Input::Text(text),
            Part::Image(tensor) => Input::Image(tensor.as_tensor_ref()),
            Part::Audio(tensor) => Input::Audio(tensor.as_tensor_ref()),
        }
    }
}

/// Splits a prompt into text, images and audio.
pub(super) fn parts(
    runner: &Runner,
    arguments: &GenerateArguments,
    prompt: &str,
) -> Result<Vec<Part>, Failure> {
    let (mean, std) = (arguments.mean.clone(), arguments.std.clone());
    let options = ImageOptions { mean, std, tiling: arguments.tiling.tiling() };
    let mut images = Vec::new();
    for path in &arguments.image {
        let none = || Failure::new("the program does not accept images: it has no vision_encoder");
        let info = runner.image_input().ok_or_else(none)?;
        options.check(info)?;
        let in_file =
            |what: &dyn std::fmt::Display| Failure::new(format!("'{}': {what}", path.display()));
        let bytes = budget::read_file(path, budget::MAX_IMAGE)?;
        images.push(options.parts(&bytes, info).map_err(|error| in_file(&error))?);
    }
    let mut sounds = Vec::new();
    for path in &arguments.audio {
        sounds.push(vec![Part::Audio(features(runner, path)?)]);
    }
    insert_media(prompt, images, sounds)
}

/// Replaces the placeholders of a prompt by images and audio, each of one or more parts. Without
/// placeholders, they come before the prompt.
fn insert_media(
    prompt: &str,
    images: Vec<Vec<Part>>,
    sounds: Vec<Vec<Part>>,
) -> Result<Vec<Part>, Failure> {
    let count = |mark: &str| prompt.matches(mark).count();
    for (mark, parts, name) in [(IMAGE, &images, "images"), (AUDIO, &sounds, "audio files")] {
        if count(mark) > 0 && count(mark) != parts.len() {
            let (marks, found) = (count(mark), parts.len());
            return Err(Failure::new(format!(
                "the prompt contains {mark} {marks} times, but found {found} {name}"
            )));
        }
    }
    let (mut made, mut rest) = (Vec::new(), prompt);
    let (mut images, mut sounds) = (images.into_iter(), sounds.into_iter());
    if count(IMAGE) == 0 {
        made.extend(images.by_ref().flatten());
    }
    if count(AUDIO) == 0 {
        made.extend(sounds.by_ref().flatten());
    }
    while let Some((at, mark)) =
        [IMAGE, AUDIO].iter().filter_map(|mark| Some((rest.find(mark)?, *mark))).min()
    {
        if at > 0 {
            made.push(Part::Text(rest[..at].into()));
        }
        made.extend(
            (if mark == IMAGE { images.next() } else { sounds.next() }).into_iter().flatten(),
        );
        rest = &rest[at + mark.len()..];
    }
    if !rest.is_empty() {
        made.push(Part::Text(rest.into()));
    }
    Ok(made)
}

/// Reads an audio file as log-mel features in the shape of the audio encoder's input.
fn features(runner: &Runner, path: &Path) -> Result<Tensor, Failure> {
    let none = || Failure::new("the program does not accept audio: it has no audio_encoder");
    let info = runner.audio_input().ok_or_else(none)?;
    let in_file = |failure: Failure| Failure::new(format!("'{}': {failure}", path.display()));
    let sound = AudioClip::load(path).map_err(|error| in_file(error.into()))?;
    pieces(&sound, info).map_err(in_file)
}

/// Computes log-mel features in segments of fixed length, as Voxtral's processor does.
fn pieces(sound: &AudioClip, info: &TensorInfo) -> Result<Tensor, Failure> {
    let sizes: Vec<usize> = (0..info.rank()).map(|dim| info.size(dim)).collect();
    let (max, bins, frames) = match sizes[..] {
        [max, bins, frames] if max > 0 && frames > 0 => (max, bins, frames),
        _ => {
            return Err(Failure::new(format!(
                "the audio encoder's input is {info}; expected shape [pieces, bins, frames]"
            )));
        }
    };
    let sound = sound.at_rate(LogMel::RATE)?;
    let count = sound.samples().len().div_ceil(LogMel::samples(frames)).max(1);
    if count > max {
        let seconds = |samples: usize| samples as f64 / f64::from(LogMel::RATE);
        return Err(Failure::new(format!(
            "the audio lasts {:.1} s, but the program accepts at most {:.1} s",
            seconds(sound.samples().len()),
            seconds(LogMel::samples(frames).saturating_mul(max))
        )));
    }
    let whole = LogMel::new(bins)?.features(sound.samples(), frames * count)?;
    // From `[bins, segments * frames]` to `[segments, bins, frames]`.
    let mut features = Vec::with_capacity(whole.len());
    for piece in 0..count {
        for bin in whole.chunks_exact(frames * count) {
            features.extend_from_slice(&bin[piece * frames..(piece + 1) * frames]);
        }
    }
    Ok(Tensor::from_vec(&[count, bins, frames], features)?.to_type(info.scalar_type)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use torchlet::ScalarType;

    /// Audio may have fewer segments than the program supports; their features are those of the
    /// whole.
    #[test]
    fn long_audio_is_split_into_segments() {
        let info = |sizes: &[i32]| TensorInfo::contiguous(ScalarType::Float, sizes).unwrap();
        let sound = |samples: usize| {
            let wave = (0..samples).map(|at| (at as f32 * 0.05).sin() * (at as f32 * 1e-4));
            AudioClip::new(LogMel::RATE, wave.collect()).unwrap()
        };
        let (bins, frames) = (8, 10);
        let long = pieces(&sound(4000), &info(&[4, 8, 10])).unwrap();
        assert_eq!(long.shape(), [3, 8, 10]);
        let mel = LogMel::new(bins).unwrap();
        let whole = mel.features(sound(4000).samples(), 3 * frames).unwrap();
        let long = long.as_slice::<f32>().unwrap();
        for piece in 0..3 {
            for bin in 0..bins {
                for frame in 0..frames {
                    let expected = whole[bin * 3 * frames + piece * frames + frame];
                    assert_eq!(long[(piece * bins + bin) * frames + frame], expected);
                }
            }
        }
        assert_eq!(pieces(&sound(1600), &info(&[4, 8, 10])).unwrap().shape(), [1, 8, 10]);
        assert_eq!(pieces(&sound(0), &info(&[1, 8, 10])).unwrap().shape(), [1, 8, 10]);
        let error = pieces(&sound(16_000), &info(&[4, 8, 10])).unwrap_err().to_string();
        assert!(error.contains("lasts 1.0 s") && error.contains("at most 0.4 s"), "{error}");
        assert!(pieces(&sound(10), &info(&[8, 10])).is_err());
    }

    fn placed(prompt: &str, images: usize, sounds: usize) -> Result<String, Failure> {
        let tensor = |number: usize| Tensor::from_slice(&[1], &[number as f32]).unwrap();
        let images = (0..images).map(|number| vec![Part::Image(tensor(number))]).collect();
        let sounds = (0..sounds).map(|number| vec![Part::Audio(tensor(number))]).collect();
        let number = |tensor: &Tensor| tensor.as_slice::<f32>().unwrap()[0];
        let parts = insert_media(prompt, images, sounds)?;
        let parts = parts.iter().map(|part| match part {
            Part::Text(text) => text.clone(),
            Part::Image(tensor) => format!("i{}", number(tensor)),
            Part::Audio(tensor) => format!("a{}", number(tensor)),
        });
        Ok(parts.collect::<Vec<_>>().join("|"))
    }

    #[test]
    fn images_and_audio_replace_their_placeholders() {
        assert_eq!(placed("What is it?", 2, 1).unwrap(), "i0|i1|a0|What is it?");
        assert_eq!(placed("a <image><audio> b <image>", 2, 1).unwrap(), "a |i0|a0| b |i1");
        assert_eq!(placed("a <audio> b", 1, 1).unwrap(), "i0|a |a0| b");
        assert_eq!(placed("", 1, 0).unwrap(), "i0");
        assert!(placed("<image><image>", 1, 0).is_err());
        assert!(placed("<audio>", 0, 0).is_err());
    }
}
