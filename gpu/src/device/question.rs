//! Questions that autotuning answers on a device.

/// Identifies a choice between kernel variants: a hash of the computation and of its variants, so
/// that a result is never used for another choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Question(u64);

impl Question {
    /// Returns the question with a stored [hash](Self::hash).
    pub fn from_hash(hash: u64) -> Self {
        Question(hash)
    }

    /// Returns the hash by which it is stored.
    pub fn hash(self) -> u64 {
        self.0
    }

    /// Returns the question for a text that describes it.
    pub fn of(text: &str) -> Self {
        // FNV-1a.
        let step = |sum: u64, byte: u8| (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        Question(text.bytes().fold(0xcbf2_9ce4_8422_2325, step))
    }
}

/// The best variant found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Best {
    /// Its index among the variants.
    pub variant: u8,
    /// Its time as a share of the first variant's time.
    pub share: f32,
    /// How many variants were measured, from the first on.
    pub tried: u8,
}
