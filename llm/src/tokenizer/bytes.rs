//! Byte-level alphabet (as in GPT-2): printable characters that stand for bytes.

/// Character for a byte: the byte itself if printable, otherwise one from U+0100 on.
pub(super) fn name(byte: u8) -> char {
    let place = match byte {
        0..=0x20 => byte,
        0x7f..=0xa0 => 0x21 + (byte - 0x7f),
        0xad => 0x43,
        visible => return char::from(visible),
    };
    char::from_u32(0x100 + u32::from(place)).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// Byte that a character stands for.
fn byte(name: char) -> Option<u8> {
    let byte = match u32::from(name) {
        number @ (0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff) => number,
        number @ 0x100..=0x120 => number - 0x100,
        number @ 0x121..=0x142 => number - 0x121 + 0x7f,
        0x143 => 0xad,
        _ => return None,
    };
    u8::try_from(byte).ok()
}

/// Replaces each byte of a text with its character.
pub(super) fn named(text: &str) -> String {
    text.bytes().map(name).collect()
}

/// Bytes of a token in the byte-level alphabet, or its UTF-8 bytes if it has other characters.
pub(super) fn of_name(token: &str) -> Vec<u8> {
    token.chars().map(byte).collect::<Option<Vec<u8>>>().unwrap_or_else(|| token.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_alphabet_round_trips() {
        assert!((0..=255).all(|given| byte(name(given)) == Some(given)));
        let known = (0..0x1000).filter_map(char::from_u32).filter(|name| byte(*name).is_some());
        assert_eq!(known.count(), 256);
        assert_eq!(b" \n\0A\x7f\xa0\xad\xff".map(name), ['Ġ', 'Ċ', 'Ā', 'A', 'ġ', 'ł', 'Ń', 'ÿ']);
        assert_eq!(of_name(&named("é 😀\u{ad}")), "é 😀\u{ad}".as_bytes());
        assert_eq!(of_name("Ġ▁"), "Ġ▁".as_bytes());
    }
}
