//! Inputs of a method: a sequence of tokens or embeddings, and a position.

use torchlet_core::{ScalarType, TensorInfo, TensorRef};

/// Maximum static number of tokens. No context is longer.
const MAX_FIXED: usize = 1 << 24;

/// An input with one element or row per token.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sequence {
    pub(super) scalar_type: ScalarType,
    /// Number of tokens, or its maximum if dynamic.
    pub(super) bound: usize,
    pub(super) is_dynamic: bool,
    /// Elements per row. `None` for tokens.
    pub(super) width: Option<usize>,
    pub(super) rank: usize,
}

/// Position input of a method.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Position {
    /// No position input; the method has no cache.
    Absent,
    /// An integer.
    Number,
    /// A tensor with the position of the first token.
    First { scalar_type: ScalarType, rank: usize },
    /// A tensor with the positions of all tokens.
    Each { scalar_type: ScalarType, rank: usize },
}

impl Sequence {
    pub(super) fn of(info: &TensorInfo, is_dynamic: bool, takes_tokens: bool) -> Option<Self> {
        let rank = info.sizes.len();
        let size = |from_behind: usize| {
            let at = rank.checked_sub(from_behind)?;
            usize::try_from(*info.sizes.get(at)?).ok().filter(|size| *size > 0)
        };
        let (bound, width) = match takes_tokens {
            true => (size(1)?, None),
            false => (size(2)?, Some(size(1)?)),
        };
        let own = if takes_tokens { 1 } else { 2 };
        let is_one = (own + 1..=rank).all(|from_behind| size(from_behind) == Some(1));
        let fits = match takes_tokens {
            true => matches!(info.scalar_type, ScalarType::Long | ScalarType::Int),
            false => info.scalar_type.is_floating(),
        };
        let scalar_type = info.scalar_type;
        // Inputs with a static number of tokens are padded to that size.
        let is_bounded = is_dynamic || bound <= MAX_FIXED;
        (is_one && fits && is_bounded && rank <= own + 1).then_some(Sequence {
            scalar_type,
            bound,
            is_dynamic,
            width,
            rank,
        })
    }
}

impl Position {
    pub(super) fn of(info: &TensorInfo, is_dynamic: bool, tokens: usize) -> Option<Self> {
        let (scalar_type, rank) = (info.scalar_type, info.sizes.len());
        let count = info
            .sizes
            .iter()
            .try_fold(1usize, |product, &size| product.checked_mul(usize::try_from(size).ok()?))?;
        let fits = matches!(scalar_type, ScalarType::Long | ScalarType::Int) && rank <= 2;
        match count {
            _ if !fits => None,
            1 if !is_dynamic => Some(Position::First { scalar_type, rank }),
            _ if rank > 0 && count == tokens => Some(Position::Each { scalar_type, rank }),
            _ => None,
        }
    }
}

/// Elements of the first input.
pub(super) enum Elements<'e> {
    Long(Vec<i64>),
    Int(Vec<i32>),
    Bytes { scalar_type: ScalarType, bytes: &'e [u8] },
}

impl<'e> Elements<'e> {
    pub(super) fn of_tokens(tokens: &[u32], scalar_type: ScalarType) -> Self {
        match scalar_type {
            ScalarType::Int => {
                let narrow = |&token| i32::try_from(token).unwrap_or(i32::MAX);
                Elements::Int(tokens.iter().map(narrow).collect())
            }
            _ => Elements::Long(tokens.iter().map(|&token| token.into()).collect()),
        }
    }

    pub(super) fn count(&self) -> usize {
        match self {
            Elements::Long(elements) => elements.len(),
            Elements::Int(elements) => elements.len(),
            Elements::Bytes { scalar_type, bytes } => bytes.len() / scalar_type.size().max(1),
        }
    }

    pub(super) fn tensor(&self, sizes: &[i32]) -> Option<TensorRef<'_>> {
        match self {
            Elements::Long(elements) => TensorRef::from_slice(sizes, elements),
            Elements::Int(elements) => TensorRef::from_slice(sizes, elements),
            Elements::Bytes { scalar_type, bytes } => {
                TensorRef::new(TensorInfo::contiguous(*scalar_type, sizes)?, bytes)
            }
        }
    }
}

/// Shape of this rank that ends with `own`, with leading ones.
pub(super) fn leading_ones(rank: usize, own: &[usize]) -> Vec<i32> {
    let ones = rank.saturating_sub(own.len());
    let own = own.iter().skip(own.len().saturating_sub(rank));
    let own = own.map(|&size| i32::try_from(size).unwrap_or(i32::MAX));
    std::iter::repeat_n(1, ones).chain(own).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn static_token_counts_are_bounded() {
        let of = |tokens: i32, is_dynamic| {
            let info = TensorInfo::contiguous(ScalarType::Long, &[1, tokens]).unwrap();
            Sequence::of(&info, is_dynamic, true).map(|sequence| sequence.bound)
        };
        assert_eq!(of(128, false), Some(128));
        assert_eq!(of(i32::MAX, false), None);
        assert_eq!(of(i32::MAX, true), Some(i32::MAX as usize));
    }
}
