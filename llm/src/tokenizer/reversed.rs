//! Bytes of characters that a vocabulary of unigrams does not have.
//!
//! `kitoken` 0.11 gives the bytes of such a character last to first. As long as it does, this turns them round: bytes that continue a character come in
//! front of the one that begins it nowhere else.

use std::collections::BTreeMap;

/// The tokens of single bytes that are no characters.
#[derive(Debug, Default)]
pub(super) struct ReversedBytes(BTreeMap<u32, u8>);

impl ReversedBytes {
    pub(super) fn of(model: &kitoken::Model) -> Self {
        let kitoken::Model::Unigram { vocab, .. } = model else { return ReversedBytes::default() };
        let bytes = vocab.iter().filter_map(|token| match token.bytes[..] {
            [byte @ 0x80..=0xff] => Some((token.id, byte)),
            _ => None,
        });
        ReversedBytes(bytes.collect())
    }

    pub(super) fn repair(&self, mut tokens: Vec<u32>) -> Vec<u32> {
        let mut continuing = 0;
        for at in 0..tokens.len() {
            let rest = match tokens.get(at).and_then(|token| self.0.get(token)) {
                Some(0x80..=0xbf) => {
                    continuing += 1;
                    continue;
                }
                Some(0xc0..=0xdf) => 1,
                Some(0xe0..=0xef) => 2,
                Some(_) => 3,
                None => 0,
            };
            if rest > 0 && continuing >= rest {
                tokens[at - rest..=at].reverse();
            }
            continuing = 0;
        }
        tokens
    }
}
