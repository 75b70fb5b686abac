//! Streaming text output of a generation.

use crate::tokenizer::{TextStream, Tokenizer};

/// Text output of a generation. Text that may be the start of a stop string is held back.
pub(crate) struct Output<'t> {
    stream: Option<TextStream<'t>>,
    stop: &'t [String],
    /// All text so far, and the number of bytes that were emitted.
    text: String,
    given: usize,
    on_text: &'t mut dyn FnMut(&str),
}

impl<'t> Output<'t> {
    pub(crate) fn new(
        tokenizer: &'t Tokenizer,
        behind: &[u32],
        stop: &'t [String],
        on_text: &'t mut dyn FnMut(&str),
    ) -> Self {
        let stream = Some(TextStream::new(tokenizer, behind));
        Output { stream, stop, text: String::new(), given: 0, on_text }
    }

    /// Bytes of text so far, including text that is held back.
    pub(crate) fn len(&self) -> usize {
        self.text.len()
    }

    /// Appends a token. Returns whether the generation continues.
    pub(crate) fn push(&mut self, token: u32) -> bool {
        let Some(stream) = &mut self.stream else { return false };
        let new = stream.push(token);
        self.add(&new)
    }

    fn add(&mut self, new: &str) -> bool {
        let old = self.text.len();
        self.text.push_str(new);
        let stops = self.stop.iter();
        // A stop string may begin in text that was held back.
        let found = stops.clone().filter_map(|stop| {
            let from = (0..=old.saturating_sub(stop.len()))
                .rev()
                .find(|&at| self.text.is_char_boundary(at))?;
            Some(from + self.text[from..].find(stop.as_str())?)
        });
        if let Some(end) = found.min() {
            self.text.truncate(end.max(self.given));
            self.give(self.text.len());
            self.stream = None;
            return false;
        }
        let begun = stops.map(|stop| overlap(&self.text[self.given..], stop)).max().unwrap_or(0);
        self.give(self.text.len() - begun);
        true
    }

    fn give(&mut self, end: usize) {
        if end > self.given {
            (self.on_text)(&self.text[self.given..end]);
            self.given = end;
        }
    }

    pub(crate) fn finish(mut self) -> String {
        if let Some(stream) = self.stream.take() {
            let rest = stream.finish();
            self.add(&rest);
            self.give(self.text.len());
        }
        self.text
    }
}

/// Bytes at the end of `text` that are a proper prefix of `stop`.
pub(crate) fn overlap(text: &str, stop: &str) -> usize {
    let most = text.len().min(stop.len().saturating_sub(1));
    (1..=most)
        .rev()
        .find(|&count| text.as_bytes().ends_with(&stop.as_bytes()[..count]))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_stop_strings_are_held_back() {
        assert_eq!(overlap("hello wor", "world"), 3);
        assert_eq!(overlap("aab", "abc"), 2);
        assert_eq!(overlap("world", "world"), 0);
        assert_eq!(overlap("", "world"), 0);
        assert_eq!(overlap("é", "éa"), 2);
    }
}
