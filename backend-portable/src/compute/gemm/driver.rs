//! GEMM loops around the register tile, and their distribution over threads.

use super::kernel::{self, Tile};
use super::operand::{Lhs, Rhs};
use super::{Bias, Context, Epilogue, dot, k_block, limit};
use crate::compute::simd::{Simd, Tier, Vectorized};
use crate::compute::split::{for_each_job, is_cancelled};
use crate::compute::storage::Stored;
use crate::parallel::Parallel;
use core::ops::Range;

/// Minimum multiply-adds for each thread: less work does not pay for waking it.
pub(crate) const GRAIN: usize = 1 << 16;
/// Number of floats of B that are loaded from memory in the time of [`GRAIN`] multiply-adds. With
/// few rows of A, memory bandwidth limits the GEMM.
const FETCH_GRAIN: usize = 1 << 14;
/// Number of rows of A that are packed at a time.
const PACKED_ROWS: usize = 96;
/// Size in floats of a block of A that stays in the L2 cache while all panels of B are processed.
const L2_FLOATS: usize = 1 << 17;
/// Maximum size of B in floats for which the loop over row tiles is the outer one, since all of B
/// stays in the cache. For a larger B, the loop over panels is the outer one.
const SMALL_B: usize = 1 << 14;
/// Minimum size of A or C in floats for prefetching: smaller matrices stay in the L2 cache.
const MIN_PREFETCH_LEN: usize = 1 << 18;
/// Maximum length of k for which the next tile's rows of A are prefetched. For longer rows, the
/// hardware prefetches.
const MAX_PREFETCH_K: usize = 64;
/// Number of rows of B that are widened to `f32` at a time for few rows of A, so that they stay in
/// the L1 cache.
const WIDENED_ROWS: usize = 64;
/// Minimum number of rows of C for packing a panel of B that could also be read in place. With
/// fewer rows, the copy is not reused often enough.
const COPY_ROWS: usize = 48;

/// Operands, shape and epilogue of a GEMM.
pub(crate) struct Problem<'a, A, B> {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    /// Blocks of k must be multiples of this length.
    pub k_step: usize,
    pub lhs: Lhs<'a, A>,
    pub rhs: Rhs<'a, B>,
    pub epilogue: Epilogue<'a>,
}

/// Destination of the result: element (i, j) is at `data + i * row + j * col`, in floats.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    data: *mut f32,
    row: usize,
    col: usize,
}

// SAFETY: a target is only an address. Writing through it from several threads is sound because
// `run` gives each job a disjoint range of rows and columns, under the guarantee given to
// `Target::new`.
unsafe impl Send for Target {}
// SAFETY: as for `Send`.
unsafe impl Sync for Target {}

impl Target {
    /// # Safety
    /// For the shape passed to [`run`], all elements exist, have distinct addresses, and are
    /// accessed by nothing else.
    pub(crate) unsafe fn new(data: *mut f32, row: usize, col: usize) -> Self {
        Target { data, row, col }
    }

    pub(crate) fn at(&self, i: usize, j: usize) -> *mut f32 {
        self.data.wrapping_add(i.wrapping_mul(self.row).wrapping_add(j.wrapping_mul(self.col)))
    }
}

/// Block sizes, and which operands are packed into workspace.
#[derive(Clone, Copy)]
struct Plan {
    pack_a: bool,
    pack_b: bool,
    kc: usize,
    mc: usize,
    a_len: usize,
    b_len: usize,
}

impl Plan {
    fn new(
        tier: Tier,
        m: usize,
        k: usize,
        k_step: usize,
        pack_a: bool,
        pack_b: bool,
    ) -> Option<Plan> {
        let (mr, nr) = tier.tile();
        let kc = k_block(tier.lanes(), k, k_step);
        let mc = if pack_a { PACKED_ROWS } else { (L2_FLOATS / kc).max(PACKED_ROWS) };
        let mc = mc.min(m).checked_next_multiple_of(mr)?;
        let a_len = if pack_a { mc.checked_mul(kc)? } else { 0 };
        let b_len = if pack_b { nr.checked_mul(kc)? } else { 0 };
        a_len.checked_add(b_len)?;
        Some(Plan { pack_a, pack_b, kc, mc, a_len, b_len })
    }

    fn of<A: Stored, B: Stored>(tier: Tier, p: &Problem<'_, A, B>) -> Option<Plan> {
        let lanes = tier.lanes();
        let pack_a = p.lhs.needs_packing(lanes, p.k);
        let pack_b = p.rhs.needs_packing(lanes, p.k)
            || (lanes > 1 && p.m >= COPY_ROWS && matches!(p.rhs, Rhs::Strided(x) if x.inner > 64));
        let plan = Plan::new(tier, p.m, p.k, p.k_step, pack_a, pack_b);
        match p.rhs {
            Rhs::Packed(data) if B::as_f32(data).is_none() && !pack_a && p.m <= tier.tile().0 => {
                plan.map(|plan| Plan {
                    kc: plan.kc.div_ceil(plan.kc.div_ceil(WIDENED_ROWS)),
                    ..plan
                })
            }
            _ => plan,
        }
    }

    fn slot_len(&self) -> usize {
        self.a_len + self.b_len
    }
}

/// Workspace per thread in floats, sufficient for any operand layout of this shape.
pub(super) fn slot_len_any(tier: Tier, m: usize, n: usize, k: usize) -> Option<usize> {
    if m == 0 || n == 0 {
        return Some(0);
    }
    Plan::new(tier, m, k, 1, true, true).map(|plan| plan.slot_len())
}

/// Workspace per thread in floats, for exactly this problem.
pub(crate) fn slot_len<A: Stored, B: Stored>(
    tier: Tier,
    problem: &Problem<'_, A, B>,
) -> Option<usize> {
    Plan::of(tier, problem).map(|plan| plan.slot_len())
}

/// Number of terms that are added to each other before their sum is added to the result.
pub(crate) fn sum_block<A: Stored, B: Stored>(tier: Tier, problem: &Problem<'_, A, B>) -> usize {
    match Plan::of(tier, problem) {
        Some(plan) if !dot::supports(problem) => plan.kc,
        _ => problem.k,
    }
}

/// Numbers of parts that rows and columns are split into: about four jobs for each thread, fewer if
/// the work is small.
///
/// Columns are split first if B is packed, and rows if A is, so that no two jobs pack the same
/// block. Otherwise rows are split first if A and C together have more elements than B, which every
/// thread reads. Their rows then stay in the caches of one thread across successive GEMMs.
fn split(
    tier: Tier,
    threads: usize,
    (m, n, k): (usize, usize, usize),
    plan: &Plan,
) -> (usize, usize) {
    let (mr, nr) = tier.tile();
    if threads <= 1 {
        return (1, 1);
    }
    let columns = n.saturating_mul(k.max(1));
    let work = (m.saturating_mul(columns) / GRAIN).max(columns / FETCH_GRAIN);
    // Each thread gets the same number of jobs, if the work suffices for one job per thread.
    let jobs = match (work / threads).min(4) {
        0 => work,
        each => threads.saturating_mul(each),
    };
    if jobs <= 1 {
        return (1, 1);
    }
    let (row_tiles, col_panels) = (m.div_ceil(mr), n.div_ceil(nr));
    let rows = m.saturating_mul(k.saturating_add(n));
    let rows_first = !plan.pack_b && (plan.pack_a || columns <= SMALL_B.max(rows));
    if rows_first {
        let by_rows = jobs.min(row_tiles);
        (by_rows, jobs.div_ceil(by_rows).min(col_panels))
    } else {
        let by_cols = jobs.min(col_panels);
        (jobs.div_ceil(by_cols).min(row_tiles), by_cols)
    }
}

/// Range of part `index` when `len` elements are split into `parts` parts of whole tiles, as equal
/// as tiles allow.
pub(crate) fn part(index: usize, parts: usize, len: usize, tile: usize) -> Range<usize> {
    let (tiles, parts) = (len.div_ceil(tile), parts.max(1));
    // Parts with one tile more are spread evenly, so that groups of neighbouring parts are equal
    // too. Borders are monotonic for all arguments.
    let border = |i: usize| (tiles.saturating_mul(i) / parts).saturating_mul(tile).min(len);
    border(index)..border(index + 1)
}

/// Computes the GEMM.
///
/// # Safety
/// `target` fulfils the contract of [`Target::new`] for `m x n`. The operands lie inside their data
/// at every index below m, n and k (checked by `Matrix::new` or the convolution). A packed operand
/// was packed for this tier and shape. A bias has an element for each row or column.
pub(crate) unsafe fn run<A: Stored, B: Stored>(
    context: Context<'_>,
    problem: &Problem<'_, A, B>,
    target: Target,
    workspace: &mut [f32],
) {
    let &Problem { m, n, k, .. } = problem;
    if m == 0 || n == 0 {
        return;
    }
    // SAFETY: guaranteed by the caller.
    if unsafe { dot::try_run(context, problem, target) } {
        return;
    }
    let plan = match Plan::of(context.tier, problem) {
        Some(plan) if plan.slot_len() <= workspace.len() => plan,
        // SAFETY: guaranteed by the caller.
        _ => return unsafe { unpacked(context.tier, problem, target) },
    };
    let (mr, nr) = context.tier.tile();
    let (by_rows, by_cols) = split(context.tier, context.parallel.threads(), (m, n, k), &plan);
    for_each_job(
        context.parallel,
        by_rows * by_cols,
        workspace,
        plan.slot_len(),
        &|job, workspace| {
            let rows = part(job / by_cols, by_rows, m, mr);
            let cols = part(job % by_cols, by_cols, n, nr);
            let parallel = context.parallel;
            let part = Part { problem, plan, target, rows, cols, workspace, parallel };
            context.tier.dispatch(part);
        },
    );
}

/// Rows and columns of C that one job computes.
struct Part<'a, 'p, A, B> {
    problem: &'a Problem<'p, A, B>,
    plan: Plan,
    target: Target,
    rows: Range<usize>,
    cols: Range<usize>,
    workspace: &'a mut [f32],
    parallel: &'a dyn Parallel,
}

impl<A: Stored, B: Stored> Vectorized for Part<'_, '_, A, B> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Part { problem, plan, target, rows, cols, workspace, parallel } = self;
        let &Problem { k, ref epilogue, .. } = problem;
        let nr = S::LANES * S::VECTORS;
        let (a_space, b_space) = workspace.split_at_mut(plan.a_len);
        // With rows as the outer loop, A and C are read once, which is best if all of B fits the
        // cache. With panels as the outer loop, one panel of B stays in the cache.
        let rows_outside = !plan.pack_b && cols.len().saturating_mul(k) <= SMALL_B;
        let far = problem.m.saturating_mul(problem.n.max(k)) > MIN_PREFETCH_LEN;
        let mut i = rows.start;
        while i < rows.end {
            let block_rows = plan.mc.min(rows.end - i);
            // Tiles of equal height: 9 rows become 5 + 4, not 8 + 1. With one lane, only full tiles
            // are fast.
            let tiles = block_rows.div_ceil(S::ROWS);
            let height = if S::LANES == 1 { S::ROWS } else { block_rows.div_ceil(tiles) };
            let (tiles, panels) = (block_rows.div_ceil(height), cols.len().div_ceil(nr));
            let (outside, inside) = if rows_outside { (tiles, panels) } else { (panels, tiles) };
            let mut k0 = 0;
            loop {
                if is_cancelled(parallel) {
                    return;
                }
                let k1 = (k0 + plan.kc).min(k);
                let (first, last) = (k0 == 0, k1 == k);
                let a = problem.lhs.block(s, (i, block_rows), (k0, k1), k, plan.pack_a, a_space);
                for outer in 0..outside {
                    let mut b = None;
                    for inner in 0..inside {
                        let (tile, panel) =
                            if rows_outside { (outer, inner) } else { (inner, outer) };
                        let (r, j) = (tile * height, cols.start + panel * nr);
                        let (h, width) = (height.min(block_rows - r), nr.min(cols.end - j));
                        let b = match b {
                            Some(b) if !rows_outside => b,
                            _ => *b.insert(problem.rhs.panel(
                                s,
                                (j, width),
                                (k0, k1),
                                k,
                                plan.pack_b,
                                b_space,
                            )),
                        };
                        if far && rows_outside && panel == 0 && a.col == 1 && k <= MAX_PREFETCH_K {
                            for row in r + h..r + 2 * h {
                                for p in (0..k).step_by(S::LANES) {
                                    s.prefetch(a.data.wrapping_add(row * a.row + p));
                                }
                            }
                        }
                        let behind = j + nr;
                        let (next, next_lines) = match &problem.rhs {
                            Rhs::Packed(_)
                                if S::LANES > 1
                                    && !rows_outside
                                    && !plan.pack_b
                                    && behind < cols.end =>
                            {
                                let next = (behind, nr);
                                let panel = problem.rhs.panel(s, next, (k0, k1), k, false, &mut []);
                                let len = (k1 - k0) * nr;
                                kernel::next_panel_part(panel.data, len, (inner, inside), k1 - k0)
                            }
                            _ => (core::ptr::null(), 0),
                        };
                        let bias = |kind| bias_at(epilogue, kind, i + r, j, first);
                        let tile = Tile {
                            pieces: 1,
                            k: k1 - k0,
                            a: a.data.wrapping_add(r * a.row),
                            a_row: a.row,
                            a_piece: 0,
                            a_col: a.col,
                            b: b.data,
                            b_row: b.row,
                            b_col: b.col,
                            next,
                            next_lines,
                            c: target.at(i + r, j),
                            c_row: target.row,
                            c_col: target.col,
                            far,
                            row_bias: bias(Side::Rows),
                            col_bias: bias(Side::Cols),
                            alpha: epilogue.alpha,
                            beta: if first { epilogue.beta } else { 1.0 },
                            lo: if last { epilogue.min } else { f32::NEG_INFINITY },
                            hi: if last { epilogue.max } else { f32::INFINITY },
                        };
                        // SAFETY: the caller of `run` guarantees operands and a target of this
                        // shape, and `run` gave these rows and columns to this job alone. A packed
                        // block or panel has just been filled for this size.
                        unsafe { kernel::run(s, h, width, &tile) };
                    }
                }
                k0 = k1;
                if last {
                    break;
                }
            }
            i += block_rows;
        }
    }
}

#[derive(PartialEq)]
enum Side {
    Rows,
    Cols,
}

/// Address of the bias for this row or column. Null if the bias is absent or was added with an
/// earlier block of k.
#[inline(always)]
fn bias_at(epilogue: &Epilogue<'_>, side: Side, i: usize, j: usize, first: bool) -> *const f32 {
    match epilogue.bias {
        Bias::Rows(bias) if first && side == Side::Rows => bias.as_ptr().wrapping_add(i),
        Bias::Cols(bias) if first && side == Side::Cols => bias.as_ptr().wrapping_add(j),
        _ => core::ptr::null(),
    }
}

/// GEMM without workspace: reads operand elements in place, one at a time. Slow fallback.
///
/// # Safety
/// As for [`run`].
unsafe fn unpacked<A: Stored, B: Stored>(tier: Tier, problem: &Problem<'_, A, B>, target: Target) {
    for i in 0..problem.m {
        for j in 0..problem.n {
            let mut sum = 0.0;
            for k in 0..problem.k {
                sum += problem.lhs.get(i, k) * problem.rhs.get(tier, j, k, problem.k);
            }
            // SAFETY: guaranteed by the caller; no other thread takes part.
            unsafe { store(&problem.epilogue, target.at(i, j), i, j, sum) };
        }
    }
}

/// Applies the epilogue to one sum and stores it.
///
/// # Safety
/// `c` is valid for reading and writing, and nothing else accesses it.
#[inline(always)]
pub(super) unsafe fn store(epilogue: &Epilogue<'_>, c: *mut f32, i: usize, j: usize, sum: f32) {
    let mut x = epilogue.alpha * sum;
    match epilogue.bias {
        Bias::None => {}
        Bias::Rows(bias) => x += bias[i],
        Bias::Cols(bias) => x += bias[j],
    }
    // SAFETY: guaranteed by the caller.
    unsafe {
        if epilogue.beta != 0.0 {
            x += epilogue.beta * *c;
        }
        *c = limit(x, epilogue.min, epilogue.max);
    }
}
