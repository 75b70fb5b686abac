//! Broadcasting: the common shape of tensors whose dims, aligned at the last, are equal or 1.

use crate::layout::Sizes;

/// Broadcasts two shapes; `None` if PyTorch rejects them.
pub fn broadcast(a: &[i32], b: &[i32]) -> Option<Sizes> {
    let (long, short) = if a.len() >= b.len() { (a, b) } else { (b, a) };
    let mut sizes = Sizes::from_slice(long).ok()?;
    let offset = long.len() - short.len();
    for (size, &other) in sizes.iter_mut().skip(offset).zip(short) {
        *size = match (*size, other) {
            (same, other) if same == other => same,
            (1, other) => other,
            (size, 1) => size,
            _ => return None,
        };
    }
    Some(sizes)
}

/// Broadcasts several shapes; without any, the shape of a scalar.
pub fn broadcast_all<'s>(shapes: impl IntoIterator<Item = &'s [i32]>) -> Option<Sizes> {
    let mut sizes = Sizes::new();
    for shape in shapes {
        sizes = broadcast(&sizes, shape)?;
    }
    Some(sizes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_align_at_the_last_dim() {
        assert_eq!(broadcast(&[2, 1, 4], &[3, 1]).unwrap(), [2, 3, 4]);
        assert_eq!(broadcast(&[], &[3, 0]).unwrap(), [3, 0]);
        assert_eq!(broadcast(&[1], &[0]).unwrap(), [0]);
        assert_eq!(broadcast(&[2], &[3]), None);
        assert_eq!(broadcast_all([&[2, 1][..], &[1, 5], &[]]).unwrap(), [2, 5]);
    }
}
