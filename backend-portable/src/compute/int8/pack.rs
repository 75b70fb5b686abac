//! Packed layout of int8 weights.
//!
//! Weights are divided into panels of 16 columns. A panel consists of steps: four consecutive
//! values of each column in turn. The sum of each column follows after all panels. The last panel
//! and the last step are padded with zeros. The storage consists of 32-bit words, like other
//! constants.
//!
//! Weights of several GEMMs ("blocks") are packed as one matrix. Each block starts a panel, with
//! zero columns before the next one.

use super::{LANES, STEP};

/// Packed right operand of a GEMM.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packed<'a> {
    pub(super) quantized: &'a [i8],
    /// Sum of each column, including padding columns.
    pub(crate) sums: &'a [i32],
    /// `[values of a column, columns of a block]`
    pub(super) shape: [usize; 2],
    pub(super) blocks: usize,
}

/// `[steps, panels]`; `None` if the size exceeds the address space.
fn counts([k, n]: [usize; 2]) -> Option<[usize; 2]> {
    let counts = [k.div_ceil(STEP).max(1), n.div_ceil(LANES)];
    counts[0].checked_mul(counts[1])?.checked_mul(STEP * LANES * 4)?;
    Some(counts)
}

/// Number of columns, padded to whole panels.
pub(crate) fn padded(n: usize) -> usize {
    n.next_multiple_of(LANES)
}

/// Shape of the matrix that concatenates the columns of several blocks; `None` if `blocks` is zero
/// or the size exceeds the address space.
pub(crate) fn side_by_side([k, n]: [usize; 2], blocks: usize) -> Option<[usize; 2]> {
    let before = n.checked_next_multiple_of(LANES)?.checked_mul(blocks.checked_sub(1)?)?;
    Some([k, before.checked_add(n)?])
}

/// Packed length in words of weights of shape `[k, n]`; `None` if it exceeds the address space.
pub(crate) fn packed_len(shape: [usize; 2]) -> Option<usize> {
    let [steps, panels] = counts(shape)?;
    // A group of four values is a word.
    steps.checked_mul(panels)?.checked_mul(LANES)?.checked_add(panels * LANES)
}

/// Packs the weights returned by `weight(row, col)`. Returns `None` if `words` has the wrong
/// length.
pub(crate) fn pack(
    [k, n]: [usize; 2],
    weight: impl Fn(usize, usize) -> Option<i8>,
    words: &mut [f32],
) -> Option<()> {
    let [steps, _] = counts([k, n])?;
    if words.len() != packed_len([k, n])? {
        return None;
    }
    let (quantized, sums) = words.split_at_mut_checked(words.len() - padded(n))?;
    let quantized: &mut [i8] = bytemuck::cast_slice_mut(quantized);
    let sums: &mut [i32] = bytemuck::cast_slice_mut(sums);
    quantized.fill(0);
    sums.fill(0);
    for (col, sum) in sums.iter_mut().enumerate().take(n) {
        let panel = quantized.get_mut(col / LANES * steps * STEP * LANES..)?;
        let (groups, _) = panel.as_chunks_mut::<{ STEP * LANES }>();
        for row in 0..k {
            let weight = weight(row, col)?;
            *groups.get_mut(row / STEP)?.get_mut(col % LANES * STEP + row % STEP)? = weight;
            *sum += i32::from(weight);
        }
    }
    Some(())
}

impl<'a> Packed<'a> {
    /// Wraps the output of [`pack`]. Returns `None` if `words` has the wrong length.
    pub(crate) fn of(shape: [usize; 2], words: &'a [f32]) -> Option<Self> {
        Packed::of_blocks(shape, 1, words)
    }

    /// Wraps the output of [`pack`] for several blocks of one shape, [concatenated](side_by_side).
    /// Returns `None` if `words` has the wrong length.
    pub(crate) fn of_blocks(shape: [usize; 2], blocks: usize, words: &'a [f32]) -> Option<Self> {
        let all = side_by_side(shape, blocks)?;
        if words.len() != packed_len(all)? {
            return None;
        }
        let (quantized, sums) = words.split_at_checked(words.len() - padded(all[1]))?;
        let (quantized, sums) = (bytemuck::cast_slice(quantized), bytemuck::cast_slice(sums));
        Some(Packed { quantized, sums, shape, blocks })
    }

    /// Number of steps (groups of four values) in a column.
    pub(super) fn steps(&self) -> usize {
        self.shape[0].div_ceil(STEP).max(1)
    }

    /// Size of a panel in bytes.
    pub(super) fn panel(&self) -> usize {
        self.steps() * STEP * LANES
    }
}
