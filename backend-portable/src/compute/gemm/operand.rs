//! GEMM operands, and packing of their blocks for the register tile.

use super::Context;
use super::patches::Patches;
use crate::compute::simd::{Simd, Tier, Vectorized};
use crate::compute::split::for_each_chunk_mut;
use crate::compute::storage::Stored;

/// A strided operand, indexed by row of A or column of B (`o`) and by k: element (o, k) is at
/// `o * other + (k / inner_len) * outer + (k % inner_len) * inner`.
///
/// The weights of a convolution need two strides for k, which runs over channels and taps, in
/// either order.
#[derive(Clone, Copy)]
pub(crate) struct Operand<'a, E> {
    pub data: &'a [E],
    pub other: usize,
    pub inner_len: usize,
    pub outer: usize,
    pub inner: usize,
}

impl<'a, E: Stored> Operand<'a, E> {
    /// Longest prefix of `k..k1` with a single stride: its length, and the offset of its first
    /// element.
    #[inline(always)]
    fn piece(&self, k: usize, k1: usize) -> (usize, usize) {
        let (q, r) =
            if self.inner_len > k { (0, k) } else { (k / self.inner_len, k % self.inner_len) };
        ((self.inner_len - r).min(k1 - k), q * self.outer + r * self.inner)
    }

    /// The data, if the elements are `f32` and k has a single stride.
    fn in_place(&self, ks: usize) -> Option<&'a [f32]> {
        if self.inner_len >= ks { E::as_f32(self.data) } else { None }
    }

    pub(crate) fn get(&self, o: usize, k: usize) -> f32 {
        let at = o * self.other + k / self.inner_len * self.outer + k % self.inner_len * self.inner;
        self.data[at].to_f32()
    }
}

/// Left operand, `m x k`.
#[derive(Clone, Copy)]
pub(crate) enum Lhs<'a, E> {
    Strided(Operand<'a, E>),
    /// im2col patches of an image, one per row (channels last).
    Patches(Patches<'a>),
}

/// Right operand, `k x n`.
#[derive(Clone, Copy)]
pub(crate) enum Rhs<'a, E> {
    Strided(Operand<'a, E>),
    /// Output of [`pack_rhs`] or [`pack_rhs_as_is`].
    Packed(&'a [E]),
    /// im2col patches of an image, one per column (channels first).
    Patches(Patches<'a>),
}

/// A block of A: element (i, p) is at `data + i * row + p * col`.
pub(super) struct Block {
    pub data: *const f32,
    pub row: usize,
    pub col: usize,
}

impl<E: Stored> Lhs<'_, E> {
    /// Whether the kernel can read this operand only after packing. Reading in place requires `f32`
    /// elements, contiguous in k if vectors have several lanes.
    pub(super) fn needs_packing(&self, lanes: usize, k: usize) -> bool {
        match self {
            Lhs::Strided(x) => x.in_place(k).is_none() || (lanes > 1 && x.inner != 1),
            Lhs::Patches(_) => true,
        }
    }

    /// Returns a block of A with rows `i..i + rows` and k indices `k0..k1`. It is packed into the
    /// workspace if `pack` is set.
    #[inline(always)]
    pub(super) fn block<S: Simd>(
        &self,
        s: S,
        (i, rows): (usize, usize),
        (k0, k1): (usize, usize),
        k: usize,
        pack: bool,
        workspace: &mut [f32],
    ) -> Block {
        let kc = k1 - k0;
        match self {
            Lhs::Strided(x) => match x.in_place(k) {
                Some(data) if !pack => Block {
                    data: data.as_ptr().wrapping_add(i * x.other + k0 * x.inner),
                    row: x.other,
                    col: x.inner,
                },
                _ if x.other == 1 && x.inner_len >= k => {
                    // Rows are contiguous in memory: keep that order.
                    for (p, row) in workspace.chunks_exact_mut(rows).take(kc).enumerate() {
                        copy(&x.data[(k0 + p) * x.inner + i..][..rows], row);
                    }
                    Block { data: workspace.as_ptr(), row: 1, col: rows }
                }
                _ => {
                    for (r, row) in workspace.chunks_exact_mut(kc.max(1)).take(rows).enumerate() {
                        let mut p = k0;
                        while p < k1 {
                            let (len, offset) = x.piece(p, k1);
                            let dst = &mut row[p - k0..][..len];
                            gather(&x.data[(i + r) * x.other + offset..], x.inner, dst);
                            p += len;
                        }
                    }
                    Block { data: workspace.as_ptr(), row: kc, col: 1 }
                }
            },
            Lhs::Patches(x) => {
                x.pack_rows(s, i, rows, k0, k1, workspace);
                Block { data: workspace.as_ptr(), row: kc, col: 1 }
            }
        }
    }
}

/// Rows of B over one panel of columns: vector v of row p is at `data + p * row + v * LANES`.
#[derive(Clone, Copy)]
pub(super) struct Panel {
    pub data: *const f32,
    pub row: usize,
    pub col: usize,
}

impl<E: Stored> Rhs<'_, E> {
    /// Whether the kernel can read this operand only after packing. Vectors run over the columns,
    /// which must be contiguous unless vectors have one lane.
    pub(super) fn needs_packing(&self, lanes: usize, k: usize) -> bool {
        match self {
            Rhs::Strided(x) => x.in_place(k).is_none() || (lanes > 1 && x.other != 1),
            Rhs::Packed(data) => E::as_f32(data).is_none(),
            Rhs::Patches(_) => true,
        }
    }

    /// Returns a block of B with columns `j..j + cols` (at most a panel) and k indices `k0..k1`. It
    /// is packed into the workspace if `pack` is set.
    #[inline(always)]
    pub(super) fn panel<S: Simd>(
        &self,
        s: S,
        (j, cols): (usize, usize),
        (k0, k1): (usize, usize),
        k: usize,
        pack: bool,
        workspace: &mut [f32],
    ) -> Panel {
        let width = S::LANES * S::VECTORS;
        let packed = Panel { data: workspace.as_ptr(), row: width, col: 1 };
        match self {
            Rhs::Strided(x) => match x.in_place(k) {
                Some(data) if !pack => Panel {
                    data: data.as_ptr().wrapping_add(j * x.other + k0 * x.inner),
                    row: x.inner,
                    col: x.other,
                },
                _ => {
                    pack_panel(s, x, (j, cols), (k0, k1), workspace);
                    packed
                }
            },
            Rhs::Packed(data) => match E::as_f32(data) {
                Some(data) => {
                    let data = data.as_ptr().wrapping_add(j * k + k0 * width);
                    Panel { data, row: width, col: 1 }
                }
                None => {
                    let len = (k1 - k0) * width;
                    E::widen_with(s, &data[j * k + k0 * width..][..len], &mut workspace[..len]);
                    packed
                }
            },
            Rhs::Patches(x) => {
                x.pack_cols(s, (j, cols), (k0, k1), width, workspace);
                packed
            }
        }
    }
}

#[inline(always)]
fn copy<E: Stored>(src: &[E], dst: &mut [f32]) {
    match E::as_f32(src) {
        Some(src) => dst.copy_from_slice(src),
        None => E::widen(src, dst),
    }
}

#[inline(always)]
fn gather<E: Stored>(src: &[E], stride: usize, dst: &mut [f32]) {
    if stride == 1 {
        copy(&src[..dst.len()], dst);
        return;
    }
    for (i, d) in dst.iter_mut().enumerate() {
        *d = src[i * stride].to_f32();
    }
}

/// Writes k indices `k0..k1` of columns `j..j + cols` as rows of a panel, padded with zeros.
#[inline(always)]
fn pack_panel<S: Simd, E: Stored>(
    s: S,
    x: &Operand<'_, E>,
    (j, cols): (usize, usize),
    (k0, k1): (usize, usize),
    panel: &mut [f32],
) {
    let width = S::LANES * S::VECTORS;
    if cols < width {
        for row in panel.chunks_exact_mut(width).take(k1 - k0) {
            row[cols..].fill(0.0);
        }
    }
    let mut first = k0;
    while first < k1 {
        let (len, offset) = x.piece(first, k1);
        let rows = &mut panel[(first - k0) * width..][..len * width];
        if x.other == 1 {
            for (p, row) in rows.chunks_exact_mut(width).enumerate() {
                copy(&x.data[offset + p * x.inner + j..][..cols], &mut row[..cols]);
            }
        } else {
            transpose_piece(s, x, offset + j * x.other, cols, len, rows);
        }
        first += len;
    }
}

/// `rows[p][c] = x.data[from + c * x.other + p * x.inner]` for `c < cols`, `p < len`.
#[inline(always)]
fn transpose_piece<S: Simd, E: Stored>(
    s: S,
    x: &Operand<'_, E>,
    from: usize,
    cols: usize,
    len: usize,
    rows: &mut [f32],
) {
    let width = S::LANES * S::VECTORS;
    let mut done = 0;
    if let (Some(data), 1) = (E::as_f32(x.data), x.inner) {
        // Contiguous in k: transpose blocks in registers.
        let (k_blocks, c_blocks) = (len / S::BLOCK * S::BLOCK, cols / S::BLOCK * S::BLOCK);
        if c_blocks > 0 && k_blocks > 0 {
            // Bounds check of the last elements that the loop reads and writes.
            let _ = (
                data[from + (c_blocks - 1) * x.other + k_blocks - 1],
                rows[(k_blocks - 1) * width + c_blocks - 1],
            );
            for c in (0..c_blocks).step_by(S::BLOCK) {
                for p in (0..k_blocks).step_by(S::BLOCK) {
                    // SAFETY: reads columns c..c + BLOCK and writes rows p..p + BLOCK, none beyond
                    // the elements checked above. The slices do not overlap, since one is borrowed
                    // mutably.
                    unsafe {
                        let src = data.as_ptr().add(from + c * x.other + p);
                        s.transpose(src, x.other, rows.as_mut_ptr().add(p * width + c), width);
                    }
                }
            }
            done = c_blocks;
            for c in 0..done {
                for p in k_blocks..len {
                    rows[p * width + c] = data[from + c * x.other + p];
                }
            }
        }
    }
    for c in done..cols {
        let column = &x.data[from + c * x.other..];
        for p in 0..len {
            rows[p * width + c] = column[p * x.inner].to_f32();
        }
    }
}

/// Packed length in elements of a right operand with `n` columns and `k` rows, for a tier.
pub(crate) fn packed_len(tier: Tier, n: usize, k: usize) -> Option<usize> {
    n.checked_next_multiple_of(tier.tile().1)?.checked_mul(k)
}

/// Minimum floats of packed operands for each thread.
const GRAIN: usize = 1 << 15;

/// Packs a whole right operand for the tier's register tile: panels of columns, with contiguous
/// rows inside a panel. Panels are packed in parallel.
pub(crate) fn pack_rhs<E: Stored>(
    context: Context<'_>,
    n: usize,
    k: usize,
    x: &Operand<'_, E>,
    packed: &mut [f32],
) {
    /// A packing job: first column, `[columns, rows]`, source, and destination.
    struct Pack<'a, 'b, E>(usize, [usize; 2], &'a Operand<'b, E>, &'a mut [f32]);
    impl<E: Stored> Vectorized for Pack<'_, '_, E> {
        type Output = ();
        #[inline(always)]
        fn run<S: Simd>(self, s: S) {
            let Pack(first, [n, k], x, packed) = self;
            let width = S::LANES * S::VECTORS;
            let panels = packed.chunks_exact_mut((k * width).max(1));
            for (j, panel) in (first..n).step_by(width).zip(panels) {
                pack_panel(s, x, (j, width.min(n - j)), (0, k), panel);
            }
        }
    }
    let width = context.tier.tile().1;
    let panel = (k * width).max(1);
    let together = GRAIN.div_ceil(panel);
    for_each_chunk_mut(context.parallel, packed, panel * together, &|index, packed| {
        context.tier.dispatch(Pack(index * together * width, [n, k], x, packed));
    });
}

/// Like [`pack_rhs`], but keeps the element type. Padding columns are not written.
pub(crate) fn pack_rhs_as_is<E: Stored>(
    context: Context<'_>,
    n: usize,
    k: usize,
    x: &Operand<'_, E>,
    packed: &mut [E],
) {
    let width = context.tier.tile().1;
    for_each_chunk_mut(context.parallel, packed, (k * width).max(1), &|index, panel| {
        let (first, width) = (index * width, width.max(1));
        for j in 0..width.min(n - first) {
            let column = panel.iter_mut().skip(j).step_by(width);
            for (p, slot) in column.enumerate() {
                *slot = x.data[(first + j) * x.other + p * x.inner];
            }
        }
    });
}

impl<E: Stored> Lhs<'_, E> {
    /// Element (i, k).
    pub(super) fn get(&self, i: usize, k: usize) -> f32 {
        match self {
            Lhs::Strided(x) => x.get(i, k),
            Lhs::Patches(x) => x.get(i, k),
        }
    }
}

impl<E: Stored> Rhs<'_, E> {
    /// Element (p, j) of a right operand of `k` rows; a packed one was packed for `tier`.
    pub(super) fn get(&self, tier: Tier, j: usize, p: usize, k: usize) -> f32 {
        match self {
            Rhs::Strided(x) => x.get(j, p),
            Rhs::Packed(data) => {
                let width = tier.tile().1;
                data[(j / width * k + p) * width + j % width].to_f32()
            }
            Rhs::Patches(x) => x.get(j, p),
        }
    }
}
