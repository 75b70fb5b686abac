//! The GEMM register tile: `ROWS x VECTORS` accumulators over one block of k, then the epilogue.

// Loops here index several arrays by constants. With iterators, the compiler no longer keeps the
// arrays in registers.
#![allow(clippy::needless_range_loop)]

use crate::compute::simd::{LINE, MAX_LANES, Simd, Vectorized};

/// Prefetch distance in rows of B: weights come from the L3 cache or from memory.
const PREFETCH_ROWS: usize = 32;
/// Upper bound of [`Simd::ROWS`].
const MAX_ROWS: usize = 8;

/// Operands and result of one tile. Strides are in elements.
#[derive(Clone, Copy)]
pub(crate) struct Tile {
    /// A sum has `pieces * k` terms.
    pub pieces: usize,
    pub k: usize,
    /// A[i, q * k + p] is at `a + i * a_row + q * a_piece + p * a_col`, for p < k.
    pub a: *const f32,
    pub a_row: usize,
    pub a_piece: usize,
    pub a_col: usize,
    /// Vector v of row p of B is at `b + p * b_row + v * LANES`; with one lane, at
    /// `b + p * b_row + v * b_col`.
    pub b: *const f32,
    pub b_row: usize,
    pub b_col: usize,
    /// Part of B that later tiles read, prefetched into the L2 cache: `next_lines` cache lines for
    /// each of the `k` terms. Without it, weights that only a few tiles use would stall the loop.
    pub next: *const f32,
    pub next_lines: usize,
    /// C[i, j] is at `c + i * c_row + j * c_col`.
    pub c: *mut f32,
    pub c_row: usize,
    pub c_col: usize,
    /// Whether to prefetch C, because it is probably not in the cache.
    pub far: bool,
    /// Bias for row i, or null.
    pub row_bias: *const f32,
    /// Bias for column j, or null.
    pub col_bias: *const f32,
    pub alpha: f32,
    pub beta: f32,
    /// Clamping bounds of the result; not applied if they are minus and plus infinity.
    pub lo: f32,
    pub hi: f32,
}

/// Computes a tile of `rows <= S::ROWS` and `cols <= S::VECTORS * S::LANES`.
///
/// # Safety
/// The addresses that [`Tile`] describes for `rows`, `cols` and `k` are valid: A, B and the biases
/// for reading, C for reading and writing. Nothing else accesses that part of C.
#[inline(always)]
pub(crate) unsafe fn run<S: Simd>(s: S, rows: usize, cols: usize, tile: &Tile) {
    if S::LANES == 1 {
        // SAFETY: guaranteed by the caller.
        return unsafe { few_shapes(s, rows, cols, tile) };
    }
    let vectors = cols.div_ceil(S::LANES);
    let tail = cols % S::LANES;
    macro_rules! shape {
        ($rows:literal, $vectors:literal) => {
            if S::LANES > 1 && tail != 0 {
                s.vectorize(Shape::<$rows, $vectors, true> { tile, tail })
            } else {
                s.vectorize(Shape::<$rows, $vectors, false> { tile, tail: 0 })
            }
        };
    }
    macro_rules! widths {
        ($rows:literal) => {
            match vectors {
                1 => shape!($rows, 1),
                2 => shape!($rows, 2),
                _ if S::VECTORS > 2 => shape!($rows, 3),
                _ => {}
            }
        };
    }
    match rows {
        1 => widths!(1),
        2 => widths!(2),
        3 => widths!(3),
        4 if S::ROWS > 3 => widths!(4),
        // Taller tiles are not instantiated for tiers with a small register file.
        5 if S::ROWS > 4 => widths!(5),
        6 if S::ROWS > 5 => widths!(6),
        7 if S::ROWS > 6 => widths!(7),
        _ if S::ROWS > 6 => widths!(8),
        _ => {}
    }
}

/// Like [`run`], with two instantiated shapes to keep firmware small. Other shapes are split into
/// these.
///
/// # Safety
/// As for [`run`].
#[inline(always)]
unsafe fn few_shapes<S: Simd>(s: S, rows: usize, cols: usize, tile: &Tile) {
    const { assert!(S::LANES > 1 || S::ROWS == 4 && S::VECTORS == 3) };
    if (rows, cols) == (4, 3) {
        return s.vectorize(Shape::<4, 3, false> { tile, tail: 0 });
    }
    for i in 0..rows {
        let part = tile.part(i, 0);
        if cols == 3 {
            s.vectorize(Shape::<1, 3, false> { tile: &part, tail: 0 });
            continue;
        }
        for j in 0..cols {
            s.vectorize(Shape::<1, 1, false> { tile: &part.part(0, j), tail: 0 });
        }
    }
}

/// Returns the share of the next panel of B, of `len` floats, that tile `tile` of `tiles`
/// prefetches: its start, and the number of cache lines for each of the tile's `k` terms.
#[inline(always)]
pub(crate) fn next_panel_part(
    panel: *const f32,
    len: usize,
    (tile, tiles): (usize, usize),
    k: usize,
) -> (*const f32, usize) {
    let lines = len.div_ceil(LINE).div_ceil(k.max(1)).div_ceil(tiles.max(1));
    let from = tile.saturating_mul(k).saturating_mul(lines).saturating_mul(LINE);
    if from < len { (panel.wrapping_add(from), lines) } else { (panel, 0) }
}

impl Tile {
    /// The sub-tile starting at a row and column, with vectors of one lane.
    #[inline(always)]
    fn part(&self, row: usize, col: usize) -> Tile {
        let bias = |bias: *const f32, at| if bias.is_null() { bias } else { bias.wrapping_add(at) };
        Tile {
            a: self.a.wrapping_add(row * self.a_row),
            b: self.b.wrapping_add(col * self.b_col),
            c: self.c.wrapping_add(row * self.c_row + col * self.c_col),
            row_bias: bias(self.row_bias, row),
            col_bias: bias(self.col_bias, col),
            ..*self
        }
    }
}

/// A tile of constant shape; with `TAIL` the last vector has only `tail` lanes.
struct Shape<'a, const ROWS: usize, const VECTORS: usize, const TAIL: bool> {
    tile: &'a Tile,
    tail: usize,
}

impl<const ROWS: usize, const VECTORS: usize, const TAIL: bool> Vectorized
    for Shape<'_, ROWS, VECTORS, TAIL>
{
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let t = self.tile;
        let step = if S::LANES == 1 { t.b_col } else { S::LANES };
        let mut acc = [[s.splat(0.0); VECTORS]; ROWS];
        let mut rows = [t.a; ROWS];
        for i in 0..ROWS {
            rows[i] = t.a.wrapping_add(i * t.a_row);
        }
        if t.far && t.c_col == 1 {
            for i in 0..ROWS {
                for v in 0..VECTORS {
                    s.prefetch_write(t.c.wrapping_add(i * t.c_row + v * S::LANES));
                }
            }
        }
        let (mut b, mut next) = (t.b, t.next);
        for piece in 0..t.pieces {
            let mut offset = piece * t.a_piece;
            // Not unrolled over k: compilers for WebAssembly would keep all loaded values live and
            // run out of registers.
            for _ in 0..t.k {
                let mut bv = [s.splat(0.0); VECTORS];
                // SAFETY: the caller of `run` guarantees these addresses for every piece and p < k;
                // the tail reads only its own lanes.
                unsafe {
                    for v in 0..VECTORS {
                        let p = b.add(v * step);
                        bv[v] = if TAIL && v == VECTORS - 1 {
                            s.load_first(p, self.tail)
                        } else {
                            s.load(p)
                        };
                        s.prefetch(p.wrapping_add(PREFETCH_ROWS.wrapping_mul(t.b_row)));
                        if S::LANES > 1 && v < t.next_lines {
                            s.prefetch_second(next);
                            next = next.wrapping_add(LINE);
                        }
                    }
                    for i in 0..ROWS {
                        let a = s.splat(*rows[i].wrapping_add(offset));
                        for v in 0..VECTORS {
                            acc[i][v] = s.mul_add(a, bv[v], acc[i][v]);
                        }
                    }
                }
                b = b.wrapping_add(t.b_row);
                offset = offset.wrapping_add(t.a_col);
            }
        }
        // SAFETY: guaranteed by the caller of `run`.
        unsafe { finish::<S, ROWS, VECTORS, TAIL>(s, t, self.tail, acc) }
    }
}

/// Applies the epilogue and stores.
///
/// # Safety
/// As for [`run`].
#[inline(always)]
unsafe fn finish<S: Simd, const ROWS: usize, const VECTORS: usize, const TAIL: bool>(
    s: S,
    t: &Tile,
    tail: usize,
    mut acc: [[S::F; VECTORS]; ROWS],
) {
    // Only index loops with constant bounds: they are unrolled completely, and only then do the
    // accumulators stay in registers, here and in the preceding loop over k. For the same reason,
    // nothing takes the address of an accumulator.
    if t.alpha != 1.0 {
        let alpha = s.splat(t.alpha);
        for i in 0..ROWS {
            for v in 0..VECTORS {
                acc[i][v] = s.mul(acc[i][v], alpha);
            }
        }
    }
    if !t.row_bias.is_null() {
        for i in 0..ROWS {
            // SAFETY: a non-null row bias has an element for each row.
            let bias = s.splat(unsafe { *t.row_bias.add(i) });
            for v in 0..VECTORS {
                acc[i][v] = s.add(acc[i][v], bias);
            }
        }
    }
    if !t.col_bias.is_null() {
        for v in 0..VECTORS {
            let p = t.col_bias.wrapping_add(v * S::LANES);
            // SAFETY: a non-null column bias has an element for each column; the tail reads only
            // its own lanes.
            let bias =
                unsafe { if TAIL && v == VECTORS - 1 { s.load_first(p, tail) } else { s.load(p) } };
            for i in 0..ROWS {
                acc[i][v] = s.add(acc[i][v], bias);
            }
        }
    }
    // With one lane, vectors of C may have any column stride.
    let step = if S::LANES == 1 { t.c_col } else { S::LANES };
    if S::LANES > 1 && t.c_col != 1 {
        // SAFETY: guaranteed by the caller.
        unsafe { scatter::<S, ROWS, VECTORS, TAIL>(s, t, tail, acc) };
        return;
    }
    if t.beta != 0.0 {
        let beta = s.splat(t.beta);
        for i in 0..ROWS {
            for v in 0..VECTORS {
                let p = t.c.wrapping_add(i * t.c_row + v * step);
                // SAFETY: these elements of C belong to the tile.
                let c = unsafe {
                    if TAIL && v == VECTORS - 1 { s.load_first(p, tail) } else { s.load(p) }
                };
                acc[i][v] = s.mul_add(beta, c, acc[i][v]);
            }
        }
    }
    if t.lo != f32::NEG_INFINITY || t.hi != f32::INFINITY {
        let (lo, hi) = (s.splat(t.lo), s.splat(t.hi));
        for i in 0..ROWS {
            for v in 0..VECTORS {
                acc[i][v] = s.clamp(acc[i][v], lo, hi);
            }
        }
    }
    for i in 0..ROWS {
        for v in 0..VECTORS {
            let p = t.c.wrapping_add(i * t.c_row + v * step);
            // SAFETY: these elements of C belong to the tile.
            unsafe {
                if TAIL && v == VECTORS - 1 {
                    s.store_first(p, tail, acc[i][v])
                } else {
                    s.store(p, acc[i][v])
                }
            };
        }
    }
}

/// Stores to non-contiguous columns: through a stack buffer, element by element.
///
/// # Safety
/// As for [`run`].
#[inline(always)]
unsafe fn scatter<S: Simd, const ROWS: usize, const VECTORS: usize, const TAIL: bool>(
    s: S,
    t: &Tile,
    tail: usize,
    acc: [[S::F; VECTORS]; ROWS],
) {
    let mut lanes = [0.0f32; MAX_ROWS * 3 * MAX_LANES];
    const { assert!(ROWS <= MAX_ROWS && VECTORS <= 3 && S::LANES <= MAX_LANES) };
    for i in 0..ROWS {
        for v in 0..VECTORS {
            // SAFETY: the array holds MAX_ROWS x 3 vectors of MAX_LANES, which suffices, as
            // asserted.
            unsafe { s.store(lanes.as_mut_ptr().add((i * VECTORS + v) * S::LANES), acc[i][v]) };
        }
    }
    let cols = if TAIL { (VECTORS - 1) * S::LANES + tail } else { VECTORS * S::LANES };
    for j in 0..cols {
        for i in 0..ROWS {
            let mut x = lanes[i * VECTORS * S::LANES + j];
            // SAFETY: the element of C belongs to the tile.
            unsafe {
                let c = t.c.add(i * t.c_row + j * t.c_col);
                if t.beta != 0.0 {
                    x += t.beta * *c;
                }
                *c = super::limit(x, t.lo, t.hi);
            }
        }
    }
}
