//! Pictures in the messages of requests: they come in them, since the server fetches nothing.

use crate::failure::Failure;
use crate::language::inputs::Part;
use crate::language::pictures::PictureForm;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::collections::HashSet;
use torchlet::llm::{Input, Runner};

/// What stands in a text in the place of a picture: Unicode's character for objects.
pub(super) const MARK: &str = "\u{fffc}";

/// What closes a mark that has a number.
const END: char = '\u{fffd}';

/// Something that is in none of these texts, to stand for pictures among them: the character, or one with a number and another character, so
/// that nothing that ends or begins a text makes another mark of it.
pub(super) fn mark<'t>(texts: impl Iterator<Item = &'t str>) -> String {
    let (mut is_there, mut taken) = (false, HashSet::new());
    for text in texts {
        for (at, _) in text.match_indices(MARK) {
            is_there = true;
            let rest = text.get(at + MARK.len()..).unwrap_or_default();
            let digits = rest.bytes().take(20).take_while(u8::is_ascii_digit).count();
            let (number, rest) = rest.split_at(digits);
            if rest.starts_with(END) {
                taken.extend(number.parse::<u64>());
            }
        }
    }
    let free = (0..).find(|number| !taken.contains(number)).unwrap_or(0);
    if is_there { format!("{MARK}{free}{END}") } else { MARK.to_owned() }
}

/// The bytes in a `data:` URI.
pub(super) fn data_uri(uri: &str) -> Result<Vec<u8>, String> {
    let data = uri.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
    let (_, data) = data.ok_or(
        "a picture's 'url' should be 'data:image/...;base64,...': this server fetches nothing",
    )?;
    STANDARD.decode(data).map_err(|error| format!("a picture is not in base64: {error}"))
}

/// The most bytes that the pictures of a request take as the program wants them.
const MAX_TENSORS: usize = 256 << 20;

/// Pictures as the program takes them.
pub(super) fn parts(
    runner: &Runner,
    pictures: &[Vec<u8>],
    form: &PictureForm,
) -> Result<Vec<Vec<Part>>, Failure> {
    let none = || Failure::new("the program takes no pictures: it has no vision_encoder");
    let info = runner.image_input().ok_or_else(none)?;
    // On the way, elements have four bytes.
    let each = info.nbytes().max(info.numel().saturating_mul(4)).max(1);
    let each = each.saturating_mul(form.most());
    let most = (MAX_TENSORS / each).min(runner.metadata().max_context_len).max(1);
    if pictures.len() > most {
        let found = pictures.len();
        return Err(Failure::new(format!(
            "there are {found} pictures, and at most {most} are taken"
        )));
    }
    let read = |(number, picture): (usize, &Vec<u8>)| {
        form.parts(picture, info)
            .map_err(|error| Failure::new(format!("picture {number}: {error}")))
    };
    pictures.iter().enumerate().map(read).collect()
}

/// A prompt with its pictures where their marks are; an error if a template left some out.
pub(super) fn placed<'p>(
    prompt: &'p str,
    mark: &str,
    pictures: &'p [Vec<Part>],
) -> Result<Vec<Input<'p>>, Failure> {
    let marks = prompt.matches(mark).count();
    if marks != pictures.len() {
        let found = pictures.len();
        return Err(Failure::new(format!(
            "the chat template has {marks} places for {found} pictures"
        )));
    }
    let mut pictures = pictures.iter();
    let mut inputs = Vec::new();
    for text in prompt.split(mark) {
        if !text.is_empty() {
            inputs.push(Input::Text(text));
        }
        inputs.extend(pictures.next().into_iter().flatten().map(Part::input));
    }
    Ok(inputs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use torchlet::Tensor;

    #[test]
    fn pictures_go_where_their_marks_are() {
        let picture = |value: f32| Part::Image(Tensor::from_slice(&[1], &[value]).unwrap());
        let tiles =
            vec![Part::Text("(".into()), picture(2.0), picture(3.0), Part::Text(")".into())];
        let pictures = [vec![picture(1.0)], tiles];
        let described = |prompt: &str| {
            let inputs = placed(prompt, MARK, &pictures).map_err(|error| error.to_string())?;
            let describe = |input: &Input<'_>| match input {
                Input::Text(text) => (*text).to_owned(),
                Input::Image(image) => format!("{}", image.data::<f32>().unwrap()[0]),
                _ => unreachable!("neither text nor a picture"),
            };
            Ok::<_, String>(inputs.iter().map(describe).collect::<Vec<_>>().join("|"))
        };
        assert_eq!(described(&format!("a{MARK}b{MARK}")).unwrap(), "a|1|b|(|2|3|)");
        assert_eq!(described(&format!("{MARK}{MARK}c")).unwrap(), "1|(|2|3|)|c");
        assert!(described(MARK).unwrap_err().contains("1 places for 2 pictures"));
    }

    #[test]
    fn no_text_is_a_mark() {
        let numbered = |number: u64| format!("{MARK}{number}\u{fffd}");
        let of = |texts: &[&str]| mark(texts.iter().copied());
        assert_eq!(of(&["a", ""]), MARK);
        assert_eq!(of(&["a", MARK]), numbered(0));
        assert_eq!(of(&[&format!("{}{MARK}5", numbered(0)), &numbered(1)]), numbered(2));
        assert_eq!(of(&[&format!("{MARK}99999999999999999999999\u{fffd}")]), numbered(0));
    }

    #[test]
    fn bytes_of_pictures_are_read() {
        assert_eq!(data_uri("data:image/png;base64,aGk=").unwrap(), b"hi");
        for wrong in ["", "hi", "data:image/png,hi", "data:;base64,a", "file:///etc/passwd"] {
            assert!(data_uri(wrong).is_err(), "{wrong}");
        }
    }
}
