//! Transposition of small square blocks in vector registers.

use bytemuck::Pod;

/// Transposes a block of `N` vectors of `N` elements; `N` is a power of two. Each of the `log2(N)`
/// steps interleaves the vectors of the upper half with those of the lower half: this moves one bit
/// of an element's column index into its row index, and one bit of the row index into the column
/// index.
#[inline(always)]
pub(crate) fn transposed<T: Pod, const N: usize>(mut block: [[T; N]; N]) -> [[T; N]; N] {
    // Compilers do not recognise the loops below as vector interleaving.
    #[cfg(target_arch = "x86_64")]
    if let Some(transposed) = x86::transposed(&block) {
        return transposed;
    }
    let half = N / 2;
    for _ in 0..N.trailing_zeros() {
        let last = block;
        for (i, (upper, lower)) in last.iter().zip(&last[half..]).enumerate() {
            for j in 0..half {
                block[2 * i][2 * j] = upper[j];
                block[2 * i][2 * j + 1] = lower[j];
                block[2 * i + 1][2 * j] = upper[j + half];
                block[2 * i + 1][2 * j + 1] = lower[j + half];
            }
        }
    }
    block
}

/// SSE2 implementation.
#[cfg(target_arch = "x86_64")]
mod x86 {
    use bytemuck::Pod;
    use core::arch::x86_64::{
        __m128i, _mm_unpackhi_epi8, _mm_unpackhi_epi32, _mm_unpacklo_epi8, _mm_unpacklo_epi32,
    };

    /// Returns `None` if this block has no SSE2 implementation.
    #[inline(always)]
    pub(super) fn transposed<T: Pod, const N: usize>(block: &[[T; N]; N]) -> Option<[[T; N]; N]> {
        let mut transposed = *block;
        let elements = transposed.as_flattened_mut();
        match (size_of::<T>(), N) {
            // SAFETY: every x86-64 processor has SSE2.
            (1, 16) => unsafe { bytes(rows_of(elements)?) },
            // SAFETY: as above.
            (4, 4) => unsafe { words(rows_of(elements)?) },
            _ => return None,
        }
        Some(transposed)
    }

    #[inline(always)]
    fn rows_of<T: Pod, U: Pod, const N: usize>(elements: &mut [T]) -> Option<&mut [[U; N]; N]> {
        let elements = bytemuck::try_cast_slice_mut(elements).ok()?;
        elements.as_chunks_mut().0.first_chunk_mut()
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    fn bytes(rows: &mut [[u8; 16]; 16]) {
        let mut vectors: [__m128i; 16] = bytemuck::cast(*rows);
        for _ in 0..4 {
            let last = vectors;
            for i in 0..8 {
                vectors[2 * i] = _mm_unpacklo_epi8(last[i], last[i + 8]);
                vectors[2 * i + 1] = _mm_unpackhi_epi8(last[i], last[i + 8]);
            }
        }
        *rows = bytemuck::cast(vectors);
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    fn words(rows: &mut [[u32; 4]; 4]) {
        let mut vectors: [__m128i; 4] = bytemuck::cast(*rows);
        for _ in 0..2 {
            let last = vectors;
            for i in 0..2 {
                vectors[2 * i] = _mm_unpacklo_epi32(last[i], last[i + 2]);
                vectors[2 * i + 1] = _mm_unpackhi_epi32(last[i], last[i + 2]);
            }
        }
        *rows = bytemuck::cast(vectors);
    }
}

#[cfg(test)]
mod tests {
    use super::transposed;

    #[test]
    fn rows_become_columns() {
        fn compare<T: bytemuck::Pod + PartialEq + core::fmt::Debug, const N: usize>(
            of: impl Fn(usize) -> T,
        ) {
            let block: [[T; N]; N] =
                core::array::from_fn(|row| core::array::from_fn(|col| of(row * N + col)));
            let transposed = transposed(block);
            for row in 0..N {
                for col in 0..N {
                    assert_eq!(transposed[col][row], block[row][col]);
                }
            }
        }
        compare::<u8, 16>(|at| at as u8);
        compare::<u8, 8>(|at| at as u8);
        compare::<f32, 4>(|at| at as f32);
        compare::<u16, 8>(|at| at as u16);
        compare::<u64, 2>(|at| at as u64);
    }
}
