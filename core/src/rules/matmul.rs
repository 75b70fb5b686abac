//! Shapes of matrix products.

use crate::layout::Sizes;

/// Rows of the left operand, the common dimension, columns of the right one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Product {
    /// Number of products; 1 for a product of two matrices.
    pub batch: usize,
    /// Rows of the result.
    pub m: usize,
    /// Terms of each sum.
    pub k: usize,
    /// Columns of the result.
    pub n: usize,
}

fn size(size: i32) -> Option<usize> {
    usize::try_from(size).ok()
}

/// The product of two matrices; `None` where they do not fit.
pub fn matrix_product(a: &[i32], b: &[i32]) -> Option<(Product, Sizes)> {
    let (&[m, k], &[k2, n]) = (a, b) else { return None };
    let product = Product { batch: 1, m: size(m)?, k: size(k)?, n: size(n)? };
    (k == k2).then_some((product, Sizes::from_slice(&[m, n]).ok()?))
}

/// The products of two batches of matrices; `None` where they do not fit.
pub fn batched_product(a: &[i32], b: &[i32]) -> Option<(Product, Sizes)> {
    let (&[batch, m, k], &[batch2, k2, n]) = (a, b) else { return None };
    let product = Product { batch: size(batch)?, m: size(m)?, k: size(k)?, n: size(n)? };
    (k == k2 && batch == batch2).then_some((product, Sizes::from_slice(&[batch, m, n]).ok()?))
}

/// A linear layer: all dimensions of `input` but the last are rows; `weight` is `[out, in]`, or
/// `[in]` for a result without the last dimension. `None` where they do not fit.
pub fn linear(input: &[i32], weight: &[i32]) -> Option<(Product, Sizes)> {
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
    let product = Product { batch: 1, m, k: size(k)?, n: size(n)? };
    (k == k2).then_some((product, sizes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_must_fit() {
        let (product, sizes) = matrix_product(&[2, 3], &[3, 4]).unwrap();
        assert_eq!((product.m, product.k, product.n), (2, 3, 4));
        assert_eq!(sizes, [2, 4]);
        assert_eq!(matrix_product(&[2, 3], &[4, 3]), None);
        assert_eq!(matrix_product(&[3], &[3, 4]), None);
        assert_eq!(batched_product(&[5, 2, 0], &[5, 0, 4]).unwrap().1, [5, 2, 4]);
        assert_eq!(batched_product(&[5, 2, 3], &[1, 3, 4]), None);
        assert_eq!(linear(&[5, 2, 3], &[4, 3]).unwrap().1, [5, 2, 4]);
        assert_eq!(linear(&[3], &[3]).unwrap().1, [] as [i32; 0]);
        assert_eq!(linear(&[5, 2], &[4, 3]), None);
    }
}
