//! Position in a text that is parsed.

/// The rest of a text.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'t> {
    pub(super) rest: &'t str,
}

impl<'t> Cursor<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Cursor { rest: text }
    }

    /// Skips blanks and a text. Returns whether the text was there.
    pub(super) fn eat(&mut self, text: &str) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// Skips blanks and the longest text of such bytes, which must be ASCII, and returns the text.
    pub(super) fn take_while(&mut self, is_part: impl Fn(u8) -> bool) -> &'t str {
        self.rest = self.rest.trim_start();
        let end = self.rest.bytes().position(|byte| !is_part(byte)).unwrap_or(self.rest.len());
        // The end is the start of a character: all bytes before it are ASCII.
        let (taken, rest) = self.rest.split_at_checked(end).unwrap_or((self.rest, ""));
        self.rest = rest;
        taken
    }

    /// Whether nothing but blanks is left.
    pub(super) fn is_at_end(&self) -> bool {
        self.rest.trim_start().is_empty()
    }
}
