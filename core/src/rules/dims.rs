//! Normalisation of dims and indices, which count from the end if negative.

/// Normalises a dim to `0..rank`; a scalar tensor counts as having one dim.
pub fn normalize_dim(dim: i64, rank: usize) -> Option<usize> {
    normalize_index(dim, rank.max(1))
}

/// Normalises an index to `0..len`.
pub fn normalize_index(index: i64, len: usize) -> Option<usize> {
    let len = i64::try_from(len).ok()?;
    let index = if index < 0 { index.checked_add(len)? } else { index };
    if (0..len).contains(&index) { usize::try_from(index).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_counts_from_the_end() {
        assert_eq!(normalize_dim(-1, 3), Some(2));
        assert_eq!(normalize_dim(3, 3), None);
        assert_eq!(normalize_dim(0, 0), Some(0));
        assert_eq!(normalize_dim(-1, 0), Some(0));
        assert_eq!(normalize_dim(i64::MIN, 3), None);
    }
}
