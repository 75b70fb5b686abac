//! Incremental decoding of tokens.

use super::Tokenizer;

/// Decodes tokens one by one, and never emits an incomplete character.
///
/// The text of a token can depend on the tokens before it; for example, the leading space of a text
/// is removed. The stream therefore decodes a window of recent tokens, and emits what the new token
/// adds.
#[derive(Debug)]
pub struct TextStream<'t> {
    tokenizer: &'t Tokenizer,
    /// Tokens whose text was emitted last, and all later ones.
    window: Vec<u32>,
    /// Bytes of the window that were emitted.
    given: usize,
    /// Number of tokens whose last bytes are held back.
    waiting: usize,
}

/// Maximum number of tokens to wait for a complete character. A character has at most four bytes;
/// longer sequences are invalid.
const MAX_INCOMPLETE_TOKENS: usize = 8;
/// Maximum number of tokens kept until one of them has text. Without preceding text, a leading
/// space would be removed.
const MAX_SILENT_TOKENS: usize = 64;

impl<'t> TextStream<'t> {
    /// Creates a stream that continues after these tokens.
    pub fn new(tokenizer: &'t Tokenizer, behind: &[u32]) -> Self {
        let window = behind.get(behind.len().saturating_sub(4)..).unwrap_or_default().to_vec();
        let given = tokenizer.decode_bytes(&window).len();
        TextStream { tokenizer, window, given, waiting: 0 }
    }

    /// Appends a token, and returns the text that it completes.
    pub fn push(&mut self, token: u32) -> String {
        self.window.push(token);
        let bytes = self.tokenizer.decode_bytes(&self.window);
        let new = bytes.get(self.given..).unwrap_or_default();
        let waits = incomplete(new);
        if waits > 0 && self.waiting < MAX_INCOMPLETE_TOKENS {
            self.waiting += 1;
            let text = String::from_utf8_lossy(&new[..new.len() - waits]).into_owned();
            self.given += new.len() - waits;
            return text;
        }
        let text = String::from_utf8_lossy(new).into_owned();
        (self.given, self.waiting) = (bytes.len(), 0);
        if self.window.len() >= 4 {
            let rest = self.window.split_off(self.window.len() - 2);
            let given = self.tokenizer.decode_bytes(&rest).len();
            // Keep tokens with text: if the remaining ones have none, the next token would be
            // decoded as the start of a text.
            if given > 0 || bytes.is_empty() || self.window.len() >= MAX_SILENT_TOKENS {
                (self.window, self.given) = (rest, given);
            } else {
                self.window.extend(rest);
            }
        }
        text
    }

    /// Returns text that is still held back.
    pub fn finish(self) -> String {
        let bytes = self.tokenizer.decode_bytes(&self.window);
        String::from_utf8_lossy(bytes.get(self.given..).unwrap_or_default()).into_owned()
    }
}

/// Number of bytes of an incomplete character at the end.
fn incomplete(bytes: &[u8]) -> usize {
    (1..=bytes.len().min(3))
        .find(|&count| {
            let length = match bytes[bytes.len() - count] {
                0xc0..=0xdf => 2,
                0xe0..=0xef => 3,
                0xf0..=0xf7 => 4,
                _ => 0,
            };
            length > count
        })
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incomplete_characters_are_detected() {
        for text in ["", "a", "é", "€", "😀", "a😀"] {
            assert_eq!(incomplete(text.as_bytes()), 0, "{text}");
        }
        let smile = "😀".as_bytes();
        assert_eq!([1, 2, 3].map(|count| incomplete(&smile[..count])), [1, 2, 3]);
        assert_eq!(incomplete(&"é".as_bytes()[..1]), 1);
        // Invalid bytes are not held back.
        assert_eq!(incomplete(&[0x80, 0x80, 0x80]), 0);
        assert_eq!(incomplete(&[0xff]), 0);
    }
}
