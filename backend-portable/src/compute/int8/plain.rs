//! Plain Rust kernels, for processors without specific kernels.

use super::{LANES, STEP};

/// Rows of a tile.
pub(super) const ROWS: usize = 4;

/// Dot products of rows with the columns of a panel.
pub(super) fn sums(rows: &[&[i8]; ROWS], panel: &[i8]) -> [[i32; LANES]; ROWS] {
    let mut sums = [[0i32; LANES]; ROWS];
    let (weights, _) = panel.as_chunks::<{ LANES * STEP }>();
    for (row, sums) in rows.iter().zip(&mut sums) {
        let (quantized, _) = row.as_chunks::<STEP>();
        for (quantized, weights) in quantized.iter().zip(weights) {
            let (weights, _) = weights.as_chunks::<STEP>();
            for (sum, weights) in sums.iter_mut().zip(weights) {
                let products =
                    quantized.iter().zip(weights).map(|(a, b)| i32::from(*a) * i32::from(*b));
                *sum = sum.wrapping_add(products.sum());
            }
        }
    }
    sums
}

/// Dot products of a row's group with a group of an int4 panel, whose weights are stored with 8
/// added.
pub(super) fn nibbles(quantized: &[i8], weights: &[u8]) -> [i32; LANES] {
    let mut sums = [0i32; LANES];
    let (quantized, _) = quantized.as_chunks::<{ 2 * STEP }>();
    let (weights, _) = weights.as_chunks::<{ LANES * STEP }>();
    for (quantized, weights) in quantized.iter().zip(weights) {
        let (weights, _) = weights.as_chunks::<STEP>();
        for (sum, weights) in sums.iter_mut().zip(weights) {
            for (at, byte) in weights.iter().enumerate() {
                *sum += i32::from(quantized[at]) * i32::from(byte & 15);
                *sum += i32::from(quantized[at + STEP]) * i32::from(byte >> 4);
            }
        }
    }
    sums
}
