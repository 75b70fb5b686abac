//! Weights in the order in which products read them.
//!
//! Panels of 16 columns; in a panel, four codes of each column by turns. Behind all of them lies
//! the sum of each column's codes. What fills up the last panel, and the last four codes, is zero.
//! All is in words of 32 bits, as other constants are. Weights of several blocks of columns, each
//! of which begins a panel, are packed as one matrix, with columns of zeros between them.

use super::{LANES, STEP};

/// The right operand of a product.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packed<'a> {
    pub(super) codes: &'a [i8],
    /// The sum of each column, with those that fill up.
    pub(crate) sums: &'a [i32],
    /// Codes of a column, and columns of a block.
    pub(super) shape: [usize; 2],
    pub(super) blocks: usize,
}

/// Groups of four codes, and panels; `None` if there are more than memory has.
fn counts([k, n]: [usize; 2]) -> Option<[usize; 2]> {
    let counts = [k.div_ceil(STEP).max(1), n.div_ceil(LANES)];
    counts[0].checked_mul(counts[1])?.checked_mul(STEP * LANES * 4)?;
    Some(counts)
}

/// Columns with those that fill up the last panel.
pub(crate) fn padded(n: usize) -> usize {
    n.next_multiple_of(LANES)
}

/// The shape of so many blocks as one matrix; `None` if there are none, or more than memory has.
pub(crate) fn side_by_side([k, n]: [usize; 2], blocks: usize) -> Option<[usize; 2]> {
    let before = n.checked_next_multiple_of(LANES)?.checked_mul(blocks.checked_sub(1)?)?;
    Some([k, before.checked_add(n)?])
}

/// Words of packed weights of `k` rows and `n` columns; `None` if there are more than memory has.
pub(crate) fn packed_len(shape: [usize; 2]) -> Option<usize> {
    let [steps, panels] = counts(shape)?;
    // A step of a column is a word.
    steps.checked_mul(panels)?.checked_mul(LANES)?.checked_add(panels * LANES)
}

/// Packs weights: code `row` of column `col` is `code(row, col)`. `None` if the place has another
/// length.
pub(crate) fn pack(
    [k, n]: [usize; 2],
    code: impl Fn(usize, usize) -> Option<i8>,
    words: &mut [f32],
) -> Option<()> {
    let [steps, _] = counts([k, n])?;
    if words.len() != packed_len([k, n])? {
        return None;
    }
    let (codes, sums) = words.split_at_mut_checked(words.len() - padded(n))?;
    let codes: &mut [i8] = bytemuck::cast_slice_mut(codes);
    let sums: &mut [i32] = bytemuck::cast_slice_mut(sums);
    codes.fill(0);
    sums.fill(0);
    for (col, sum) in sums.iter_mut().enumerate().take(n) {
        let panel = codes.get_mut(col / LANES * steps * STEP * LANES..)?;
        let (groups, _) = panel.as_chunks_mut::<{ STEP * LANES }>();
        for row in 0..k {
            let code = code(row, col)?;
            *groups.get_mut(row / STEP)?.get_mut(col % LANES * STEP + row % STEP)? = code;
            *sum += i32::from(code);
        }
    }
    Some(())
}

impl<'a> Packed<'a> {
    /// What [`pack`] wrote. `None` if it has another length.
    pub(crate) fn of(shape: [usize; 2], words: &'a [f32]) -> Option<Self> {
        Packed::of_blocks(shape, 1, words)
    }

    /// What [`pack`] wrote of so many blocks of one shape, [side by side](side_by_side). `None` if
    /// it has another length.
    pub(crate) fn of_blocks(shape: [usize; 2], blocks: usize, words: &'a [f32]) -> Option<Self> {
        let all = side_by_side(shape, blocks)?;
        if words.len() != packed_len(all)? {
            return None;
        }
        let (codes, sums) = words.split_at_checked(words.len() - padded(all[1]))?;
        let (codes, sums) = (bytemuck::cast_slice(codes), bytemuck::cast_slice(sums));
        Some(Packed { codes, sums, shape, blocks })
    }

    /// Groups of four codes in a column.
    pub(super) fn steps(&self) -> usize {
        self.shape[0].div_ceil(STEP).max(1)
    }

    /// Codes of a panel.
    pub(super) fn panel(&self) -> usize {
        self.steps() * STEP * LANES
    }
}
