//! Questions that autotuning answers on a device: which kernel variant is the fastest.

/// Identifies a choice between kernel variants: a hash of the computation and of its variants, so
/// that a result is never used for another choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TuningKey(u64);

impl TuningKey {
    /// Returns the question with this [hash](Self::hash), for example from a file.
    pub fn from_hash(hash: u64) -> Self {
        TuningKey(hash)
    }

    /// Returns the hash, under which the answer is stored.
    pub fn hash(self) -> u64 {
        self.0
    }

    /// Returns the question that a text describes.
    pub fn of(text: &str) -> Self {
        // FNV-1a.
        let step = |sum: u64, byte: u8| (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        TuningKey(text.bytes().fold(0xcbf2_9ce4_8422_2325, step))
    }
}

/// The answer to a question: the fastest variant found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TuningResult {
    /// The index of the variant.
    pub variant: u8,
    /// The time of the variant, divided by the time of the first variant.
    pub share: f32,
    /// The number of variants that were measured, starting with the first.
    pub tried: u8,
}
