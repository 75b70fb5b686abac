//! Products of any number type: no tiles, but a loop order that reads B and writes C along their
//! rows.

use super::{ShapeMismatch, last};

/// What a product needs of its elements.
pub trait Number: Copy {
    /// Zero.
    const ZERO: Self;
    /// `a * b + self`; integers wrap around, as in PyTorch.
    #[must_use]
    fn mul_add(self, a: Self, b: Self) -> Self;
}

macro_rules! numbers {
    ($($float:ty)*; $($int:ty)*) => {
        $(impl Number for $float {
            const ZERO: Self = 0.0;
            #[inline(always)]
            fn mul_add(self, a: Self, b: Self) -> Self {
                self + a * b
            }
        })*
        $(impl Number for $int {
            const ZERO: Self = 0;
            #[inline(always)]
            fn mul_add(self, a: Self, b: Self) -> Self {
                self.wrapping_add(a.wrapping_mul(b))
            }
        })*
    };
}

numbers!(f32 f64; u8 i8 i16 i32 i64);

/// `c = a * b`, for `a` of `m x k` and `b` of `k x n`, each with its row and column strides, and
/// `c` of `m x n` with contiguous rows.
pub fn gemm_plain<T: Number>(
    (m, n, k): (usize, usize, usize),
    (a, a_row, a_col): (&[T], usize, usize),
    (b, b_row, b_col): (&[T], usize, usize),
    c: &mut [T],
) -> Result<(), ShapeMismatch> {
    let inside = |data: &[T], rows: usize, cols: usize, row: usize, col: usize| {
        rows == 0 || cols == 0 || last(rows, cols, row, col).is_some_and(|at| at < data.len())
    };
    if !inside(a, m, k, a_row, a_col)
        || !inside(b, k, n, b_row, b_col)
        || m.checked_mul(n).is_none_or(|l| c.len() < l)
    {
        return Err(ShapeMismatch);
    }
    if n == 0 {
        return Ok(());
    }
    for (i, c) in c.chunks_exact_mut(n).take(m).enumerate() {
        if b_col != 1 && b_row == 1 {
            // B is transposed: inner products run along its columns.
            for (j, c) in c.iter_mut().enumerate() {
                *c = (0..k).fold(T::ZERO, |sum, p| {
                    sum.mul_add(a[i * a_row + p * a_col], b[p + j * b_col])
                });
            }
            continue;
        }
        c.fill(T::ZERO);
        for p in 0..k {
            let x = a[i * a_row + p * a_col];
            if b_col == 1 {
                for (c, &y) in c.iter_mut().zip(&b[p * b_row..][..n]) {
                    *c = c.mul_add(x, y);
                }
            } else {
                for (j, c) in c.iter_mut().enumerate() {
                    *c = c.mul_add(x, b[p * b_row + j * b_col]);
                }
            }
        }
    }
    Ok(())
}
