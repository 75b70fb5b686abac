//! Text on its way out of a generation.

use crate::tokenizer::{TextStream, Tokenizer};

/// Text on its way out: what may become one of the texts that end it waits.
pub(crate) struct Output<'t> {
    stream: Option<TextStream<'t>>,
    stop: &'t [String],
    /// All text so far, and how much of it was given.
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

    /// How many bytes of text there are, given or not.
    pub(crate) fn len(&self) -> usize {
        self.text.len()
    }

    /// Whether the text goes on behind this token.
    pub(crate) fn push(&mut self, token: u32) -> bool {
        let Some(stream) = &mut self.stream else { return false };
        let new = stream.push(token);
        self.add(&new)
    }

    fn add(&mut self, new: &str) -> bool {
        let old = self.text.len();
        self.text.push_str(new);
        let stops = self.stop.iter();
        // A text that ends it may have begun in what waits.
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

/// How many bytes at the end of a text begin another.
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
    fn beginnings_of_a_stop_wait() {
        assert_eq!(overlap("hello wor", "world"), 3);
        assert_eq!(overlap("aab", "abc"), 2);
        assert_eq!(overlap("world", "world"), 0);
        assert_eq!(overlap("", "world"), 0);
        assert_eq!(overlap("é", "éa"), 2);
    }
}
