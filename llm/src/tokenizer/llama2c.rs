//! llama2.c's `tokenizer.bin`: BPE that merges the pair with the highest score first.
//!
//! The file starts with the length of the longest piece. In ExecuTorch's variant, the number of
//! pieces, the BOS and the EOS token precede it. Then each piece follows with score, length and
//! bytes. All integers are little-endian. Pieces 3 to 258 are byte tokens.

use std::collections::{BTreeMap, BinaryHeap};

/// Token of byte 0.
const FIRST_BYTE: u32 = 3;
/// Maximum length of a piece, to reject other files.
const MAX_PIECE: usize = 1 << 16;

#[derive(Debug)]
pub(super) struct Llama2c {
    pieces: Vec<Vec<u8>>,
    scores: Vec<f32>,
    index: BTreeMap<Vec<u8>, u32>,
    pub(super) bos: u32,
    pub(super) eos: u32,
}

impl Llama2c {
    pub(super) fn read(bytes: &[u8]) -> Result<Self, String> {
        let word = |at: usize| {
            let word = bytes.get(at..at.checked_add(4)?)?;
            Some(u32::from_le_bytes(word.try_into().ok()?))
        };
        // Detects ExecuTorch's header: the length of the longest piece is small, and in this
        // variant it comes last.
        let with_header = [word(0), word(1 << 2), word(2 << 2), word(3 << 2)];
        if let [Some(count), Some(bos), Some(eos), Some(longest)] = with_header
            && bos.max(eos) < count
            && let Ok(made) = Llama2c::pieces(&bytes[16..], longest, Some(count), bos, eos)
        {
            return Ok(made);
        }
        let longest = word(0).ok_or("the file is too short")?;
        Llama2c::pieces(&bytes[4..], longest, None, 1, 2)
    }

    fn pieces(
        mut rest: &[u8],
        longest: u32,
        count: Option<u32>,
        bos: u32,
        eos: u32,
    ) -> Result<Self, String> {
        let longest = usize::try_from(longest).unwrap_or(usize::MAX);
        if longest == 0 || longest > MAX_PIECE {
            return Err(format!(
                "length of the longest piece: expected 1 to {MAX_PIECE} bytes, found {longest}"
            ));
        }
        let (mut pieces, mut scores, mut index) = (Vec::new(), Vec::new(), BTreeMap::new());
        while !rest.is_empty() {
            let at = pieces.len();
            let (head, behind) =
                rest.split_at_checked(8).ok_or_else(|| format!("piece {at} is truncated"))?;
            let score = f32::from_le_bytes([head[0], head[1], head[2], head[3]]);
            let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
            let fits = length <= longest.max(16) && score.is_finite();
            let (piece, behind) =
                behind.split_at_checked(length).filter(|_| fits).ok_or_else(|| {
                    format!("piece {at}, of {length} bytes and score {score}, is damaged")
                })?;
            let token = u32::try_from(at).map_err(|_| "too many pieces")?;
            index.entry(piece.to_vec()).or_insert(token);
            pieces.push(piece.to_vec());
            scores.push(score);
            rest = behind;
        }
        if count.is_some_and(|count| count as usize != pieces.len()) || pieces.len() <= 258 {
            let named = count.map_or(String::new(), |count| format!(", {count} by the header"));
            return Err(format!("expected at least 259 pieces{named}, found {}", pieces.len()));
        }
        Ok(Llama2c { pieces, scores, index, bos, eos })
    }

    pub(super) fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Starts with characters, or byte tokens, and merges the leftmost best pair until none is
    /// left.
    pub(super) fn encode(&self, text: &str) -> Vec<u32> {
        if text.is_empty() {
            return Vec::new();
        }
        let mut tokens = Vec::new();
        for character in std::iter::once(' ').chain(text.chars()) {
            let mut buffer = [0; 4];
            let bytes = character.encode_utf8(&mut buffer).as_bytes();
            match self.index.get(bytes) {
                Some(token) => tokens.push(*token),
                None => tokens.extend(bytes.iter().map(|&byte| u32::from(byte) + FIRST_BYTE)),
            }
        }
        self.merge(tokens)
    }

    fn merge(&self, mut tokens: Vec<u32>) -> Vec<u32> {
        let end = tokens.len();
        let mut next: Vec<usize> = (1..=end).collect();
        let mut previous: Vec<usize> = (0..end).map(|at| at.wrapping_sub(1)).collect();
        let mut is_there = vec![true; end];
        let mut heap = BinaryHeap::new();
        let candidate = |tokens: &[u32], left: usize, right: usize| {
            let (a, b) = (tokens.get(left)?, tokens.get(right)?);
            let piece = [self.piece(*a), self.piece(*b)].concat();
            let merged = *self.index.get(&piece)?;
            let score = Score(*self.scores.get(merged as usize)?);
            Some((score, std::cmp::Reverse(left), right, merged, *a, *b))
        };
        heap.extend((1..end).filter_map(|right| candidate(&tokens, right - 1, right)));
        while let Some((_, std::cmp::Reverse(left), right, merged, a, b)) = heap.pop() {
            let is_current = is_there[left]
                && is_there[right]
                && next[left] == right
                && (tokens[left], tokens[right]) == (a, b);
            if !is_current {
                continue;
            }
            tokens[left] = merged;
            is_there[right] = false;
            next[left] = next[right];
            if let Some(before) = previous.get_mut(next[left]) {
                *before = left;
            }
            if next[left] < end {
                heap.extend(candidate(&tokens, left, next[left]));
            }
            if previous[left] < end {
                heap.extend(candidate(&tokens, previous[left], left));
            }
        }
        let kept = tokens.iter().zip(&is_there).filter(|(_, is_there)| **is_there);
        kept.map(|(token, _)| *token).collect()
    }

    fn piece(&self, token: u32) -> &[u8] {
        self.pieces.get(token as usize).map_or(&[], Vec::as_slice)
    }

    /// Decodes tokens, without the space that was prepended to the text.
    pub(super) fn decode(&self, tokens: &[u32]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut is_first = true;
        for &token in tokens {
            if token < FIRST_BYTE {
                is_first |= token == self.bos;
                continue;
            }
            let piece = self.piece(token);
            match as_byte(piece) {
                Some(byte) => bytes.push(byte),
                None if is_first && piece.first() == Some(&b' ') => bytes.extend(&piece[1..]),
                None => bytes.extend(piece),
            }
            is_first = false;
        }
        bytes
    }
}

/// Byte of a piece such as `<0x0A>`.
fn as_byte(piece: &[u8]) -> Option<u8> {
    let digits = piece.strip_prefix(b"<0x")?.strip_suffix(b">")?;
    u8::from_str_radix(std::str::from_utf8(digits).ok().filter(|digits| digits.len() == 2)?, 16)
        .ok()
}

/// Score with a total order.
#[derive(Debug, Clone, Copy)]
struct Score(f32);

impl PartialEq for Score {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Score {}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Score {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}
