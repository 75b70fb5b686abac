//! Prompts of text, pictures and sounds.

use super::options::GenerateArguments;
use super::pictures::PictureForm;
use crate::failure::Failure;
use std::path::Path;
use torchlet::Tensor;
use torchlet::llm::{Input, LogMel, Runner, Sound};

/// Where pictures and sounds go in a prompt.
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

/// The prompt with its pictures and sounds, in their places.
pub(super) fn parts(
    runner: &Runner,
    arguments: &GenerateArguments,
    prompt: &str,
) -> Result<Vec<Part>, Failure> {
    let (mean, std) = (arguments.mean.clone(), arguments.std.clone());
    let form = PictureForm { mean, std, tiling: arguments.tiling.tiling() };
    let mut images = Vec::new();
    for path in &arguments.image {
        let none = || Failure::new("the program takes no pictures: it has no vision_encoder");
        let info = runner.image_input().ok_or_else(none)?;
        form.check(info)?;
        let in_file =
            |what: &dyn std::fmt::Display| Failure::new(format!("'{}': {what}", path.display()));
        let bytes = std::fs::read(path).map_err(|error| in_file(&error))?;
        images.push(form.parts(&bytes, info).map_err(|error| in_file(&error))?);
    }
    let mut sounds = Vec::new();
    for path in &arguments.audio {
        sounds.push(vec![Part::Audio(features(runner, path)?)]);
    }
    place(prompt, images, sounds)
}

/// Puts pictures and sounds, of one or several parts each, where the prompt has their marks; all in front of it, where it has none.
fn place(
    prompt: &str,
    images: Vec<Vec<Part>>,
    sounds: Vec<Vec<Part>>,
) -> Result<Vec<Part>, Failure> {
    let count = |mark: &str| prompt.matches(mark).count();
    for (mark, parts, name) in [(IMAGE, &images, "pictures"), (AUDIO, &sounds, "sounds")] {
        if count(mark) > 0 && count(mark) != parts.len() {
            let (marks, found) = (count(mark), parts.len());
            return Err(Failure::new(format!(
                "the prompt has {mark} {marks} times, and there are {found} {name}"
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

/// What the program takes of a sound: log-mel features, as many bins and frames as it says.
fn features(runner: &Runner, path: &Path) -> Result<Tensor, Failure> {
    let none = || Failure::new("the program takes no sounds: it has no audio_encoder");
    let info = runner.audio_input().ok_or_else(none)?;
    let sizes: Vec<usize> = (0..info.rank()).map(|dim| info.size(dim)).collect();
    let (bins, frames) = match sizes[..] {
        [1, bins, frames] => (bins, frames),
        _ => {
            return Err(Failure::new(format!(
                "the program takes {info} of a sound, not [1, bins, frames]"
            )));
        }
    };
    let sound = Sound::load(path)?.at_rate(LogMel::RATE)?;
    let features = LogMel::new(bins)?.features(sound.samples(), frames);
    Ok(Tensor::from_vec(&[1, bins, frames], features)?.to_type(info.scalar_type)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(prompt: &str, images: usize, sounds: usize) -> Result<String, Failure> {
        let tensor = |number: usize| Tensor::from_slice(&[1], &[number as f32]).unwrap();
        let images = (0..images).map(|number| vec![Part::Image(tensor(number))]).collect();
        let sounds = (0..sounds).map(|number| vec![Part::Audio(tensor(number))]).collect();
        let number = |tensor: &Tensor| tensor.as_slice::<f32>().unwrap()[0];
        let parts = place(prompt, images, sounds)?;
        let parts = parts.iter().map(|part| match part {
            Part::Text(text) => text.clone(),
            Part::Image(tensor) => format!("i{}", number(tensor)),
            Part::Audio(tensor) => format!("a{}", number(tensor)),
        });
        Ok(parts.collect::<Vec<_>>().join("|"))
    }

    #[test]
    fn pictures_and_sounds_go_to_their_marks() {
        assert_eq!(placed("What is it?", 2, 1).unwrap(), "i0|i1|a0|What is it?");
        assert_eq!(placed("a <image><audio> b <image>", 2, 1).unwrap(), "a |i0|a0| b |i1");
        assert_eq!(placed("a <audio> b", 1, 1).unwrap(), "i0|a |a0| b");
        assert_eq!(placed("", 1, 0).unwrap(), "i0");
        assert!(placed("<image><image>", 1, 0).is_err());
        assert!(placed("<audio>", 0, 0).is_err());
    }
}
