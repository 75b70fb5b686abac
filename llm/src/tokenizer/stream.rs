//! Text of tokens, as they come.

use super::Tokenizer;

/// Gives the text of tokens one by one, and never a part of a character: bytes wait for those that
/// complete it.
///
/// A token's text can depend on those before it (a space that is left out in front of a text, for
/// example). So the text of a token is what it adds to that of the tokens since the last time that
/// nothing was waiting.
#[derive(Debug)]
pub struct TextStream<'t> {
    tokenizer: &'t Tokenizer,
    /// The tokens whose text was given last, and those since.
    window: Vec<u32>,
    /// Bytes of the window that were given.
    given: usize,
    /// Tokens whose last bytes wait.
    waiting: usize,
}

/// A character has four bytes at most; where more tokens in a row make none, what they make is no
/// text.
const WAITING: usize = 8;
/// Tokens that are kept, at most, for one of them to have a text: where there is none yet, a space
/// in front may be left out.
const SILENT: usize = 64;

impl<'t> TextStream<'t> {
    /// A stream behind these tokens, whose text is not given.
    pub fn new(tokenizer: &'t Tokenizer, behind: &[u32]) -> Self {
        let window = behind.get(behind.len().saturating_sub(4)..).unwrap_or_default().to_vec();
        let given = tokenizer.decode_bytes(&window).len();
        TextStream { tokenizer, window, given, waiting: 0 }
    }

    /// The text that a token completes.
    pub fn push(&mut self, token: u32) -> String {
        self.window.push(token);
        let bytes = self.tokenizer.decode_bytes(&self.window);
        let new = bytes.get(self.given..).unwrap_or_default();
        let waits = incomplete(new);
        if waits > 0 && self.waiting < WAITING {
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
            // What comes behind text does not become that of a beginning because the last tokens
            // have none.
            if given > 0 || bytes.is_empty() || self.window.len() >= SILENT {
                (self.window, self.given) = (rest, given);
            } else {
                self.window.extend(rest);
            }
        }
        text
    }

    /// What still waits, though nothing completes it.
    pub fn finish(self) -> String {
        let bytes = self.tokenizer.decode_bytes(&self.window);
        String::from_utf8_lossy(bytes.get(self.given..).unwrap_or_default()).into_owned()
    }
}

/// The number of bytes at the end that begin a character and do not complete it.
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
    fn bytes_that_begin_a_character_are_incomplete() {
        for text in ["", "a", "é", "€", "😀", "a😀"] {
            assert_eq!(incomplete(text.as_bytes()), 0, "{text}");
        }
        let smile = "😀".as_bytes();
        assert_eq!([1, 2, 3].map(|count| incomplete(&smile[..count])), [1, 2, 3]);
        assert_eq!(incomplete(&"é".as_bytes()[..1]), 1);
        // What cannot become a character waits for nothing.
        assert_eq!(incomplete(&[0x80, 0x80, 0x80]), 0);
        assert_eq!(incomplete(&[0xff]), 0);
    }
}
