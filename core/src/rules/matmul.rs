//! Shapes of matrix multiplications.

use crate::layout::Sizes;

/// Dims of a (batched) matrix multiplication: `[m, k] x [k, n]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MatmulShape {
    /// Batch size; 1 for two matrices.
    pub batch: usize,
    /// Rows of `lhs` and of the result.
    pub m: usize,
    /// Columns of `lhs`, rows of `rhs`.
    pub k: usize,
    /// Columns of `rhs` and of the result.
    pub n: usize,
}

fn size(size: i32) -> Option<usize> {
    usize::try_from(size).ok()
}

/// Matrix multiplication; `None` if the shapes do not match.
pub fn mm(a: &[i32], b: &[i32]) -> Option<(MatmulShape, Sizes)> {
    let (&[m, k], &[k2, n]) = (a, b) else { return None };
    let product = MatmulShape { batch: 1, m: size(m)?, k: size(k)?, n: size(n)? };
    (k == k2).then_some((product, Sizes::from_slice(&[m, n]).ok()?))
}

/// Batched matrix multiplication; `None` if the shapes do not match.
pub fn bmm(a: &[i32], b: &[i32]) -> Option<(MatmulShape, Sizes)> {
    let (&[batch, m, k], &[batch2, k2, n]) = (a, b) else { return None };
    let product = MatmulShape { batch: size(batch)?, m: size(m)?, k: size(k)?, n: size(n)? };
    (k == k2 && batch == batch2).then_some((product, Sizes::from_slice(&[batch, m, n]).ok()?))
}

/// Linear layer: all dims of `input` but the last are rows; `weight` is `[out, in]`, or `[in]` for
/// a result without the last dim. `None` if the shapes do not match.
pub fn linear(input: &[i32], weight: &[i32]) -> Option<(MatmulShape, Sizes)> {
    let (&k, rows) = input.split_last()?;
    let m = rows.iter().try_fold(1usize, |m, &rows| m.checked_mul(size(rows)?))?;
    let mut sizes = Sizes::from_slice(rows).ok()?;
    let (n, k2) = match *weight {
        [n, k2] => {
            sizes.push(n).ok()?;
            (n, k2)
        }
        [k2] => (1, k2),
        _ => return None,
    };
    let product = MatmulShape { batch: 1, m, k: size(k)?, n: size(n)? };
    (k == k2).then_some((product, sizes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operand_shapes_must_match() {
        let (product, sizes) = mm(&[2, 3], &[3, 4]).unwrap();
        assert_eq!((product.m, product.k, product.n), (2, 3, 4));
        assert_eq!(sizes, [2, 4]);
        assert_eq!(mm(&[2, 3], &[4, 3]), None);
        assert_eq!(mm(&[3], &[3, 4]), None);
        assert_eq!(bmm(&[5, 2, 0], &[5, 0, 4]).unwrap().1, [5, 2, 4]);
        assert_eq!(bmm(&[5, 2, 3], &[1, 3, 4]), None);
        assert_eq!(linear(&[5, 2, 3], &[4, 3]).unwrap().1, [5, 2, 4]);
        assert_eq!(linear(&[3], &[3]).unwrap().1, [] as [i32; 0]);
        assert_eq!(linear(&[5, 2], &[4, 3]), None);
    }
}
