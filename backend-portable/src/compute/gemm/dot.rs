//! GEMV and narrow GEMM: at most four rows or columns, both operands contiguous in k. Each result
//! is a dot product.
//!
//! The long operand (the weights of a linear layer) is read once, in place, four vectors at a time:
//! four streams saturate the memory system. The short operand stays in the L1 cache.

use super::driver::{Problem, Target, store};
use super::operand::{Lhs, Rhs};
use super::{Context, Epilogue};
use crate::compute::simd::{Simd, Vectorized};
use crate::compute::split::for_each_job;
use crate::compute::storage::Stored;

/// Maximum number of vectors of the short operand; all are multiplied together.
const SHORT: usize = 4;
/// Number of vectors of the long operand that are multiplied together.
const LONG: usize = 4;
/// Minimum number of floats of the long operand per thread: less work does not pay for waking it.
const GRAIN: usize = 1 << 14;

/// `count` vectors of length k, contiguous themselves, with a stride of `stride` elements.
#[derive(Clone, Copy)]
struct Vectors<'a> {
    data: &'a [f32],
    stride: usize,
    count: usize,
}

/// Whether [`try_run`] computes a GEMM: each result is a single dot product.
pub(super) fn supports<A: Stored, B: Stored>(problem: &Problem<'_, A, B>) -> bool {
    operands(problem).is_some()
}

/// The short and the long operand, and whether the short one is the right one.
fn operands<'a, A: Stored, B: Stored>(
    problem: &Problem<'a, A, B>,
) -> Option<(Vectors<'a>, Vectors<'a>, bool)> {
    let &Problem { m, n, k, .. } = problem;
    let (Lhs::Strided(a), Rhs::Strided(b)) = (&problem.lhs, &problem.rhs) else {
        return None;
    };
    let in_place = a.inner == 1 && b.inner == 1 && a.inner_len >= k && b.inner_len >= k && k > 1;
    let (Some(a_data), Some(b_data), true) = (A::as_f32(a.data), B::as_f32(b.data), in_place)
    else {
        return None;
    };
    let rows = Vectors { data: a_data, stride: a.other, count: m };
    let cols = Vectors { data: b_data, stride: b.other, count: n };
    match () {
        () if m <= SHORT && m <= n => Some((rows, cols, false)),
        () if n <= SHORT => Some((cols, rows, true)),
        () => None,
    }
}

/// Computes the GEMM if this module supports its shape and strides; returns whether it did.
///
/// # Safety
/// As for [`super::driver::run`].
pub(super) unsafe fn try_run<A: Stored, B: Stored>(
    context: Context<'_>,
    problem: &Problem<'_, A, B>,
    target: Target,
) -> bool {
    let Some((short, long, swapped)) = operands(problem) else { return false };
    let k = problem.k;
    let threads = context.parallel.threads();
    let jobs = if threads <= 1 {
        1
    } else {
        (long.count.saturating_mul(k) / GRAIN).clamp(1, threads.saturating_mul(4))
    };
    let share = long.count.div_ceil(jobs).next_multiple_of(LONG);
    let jobs = long.count.div_ceil(share);
    for_each_job::<()>(context.parallel, jobs, &mut [], 0, &|job, _| {
        let first = job * share;
        let last = (first + share).min(long.count);
        let epilogue = &problem.epilogue;
        context.tier.dispatch(Dot {
            k,
            short,
            long,
            swapped,
            range: (first, last),
            epilogue,
            target,
        });
    });
    true
}

struct Dot<'a> {
    k: usize,
    short: Vectors<'a>,
    long: Vectors<'a>,
    /// Whether the short vectors are columns instead of rows.
    swapped: bool,
    range: (usize, usize),
    epilogue: &'a Epilogue<'a>,
    target: Target,
}

impl Vectorized for Dot<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        if S::LANES == 1 {
            // A single kernel, for one short vector at a time, keeps firmware small.
            for r in 0..self.short.count {
                let mut q = self.range.0;
                while q + LONG <= self.range.1 {
                    block::<S, 1, LONG>(s, &self, r, q);
                    q += LONG;
                }
                while q < self.range.1 {
                    block::<S, 1, 1>(s, &self, r, q);
                    q += 1;
                }
            }
            return;
        }
        let mut q = self.range.0;
        while q + LONG <= self.range.1 {
            match self.short.count {
                1 => block::<S, 1, LONG>(s, &self, 0, q),
                2 => block::<S, 2, LONG>(s, &self, 0, q),
                // 4 x 4 accumulators and their operands would not fit 16 registers.
                3 => {
                    block::<S, 3, 2>(s, &self, 0, q);
                    block::<S, 3, 2>(s, &self, 0, q + 2);
                }
                _ => {
                    block::<S, 4, 2>(s, &self, 0, q);
                    block::<S, 4, 2>(s, &self, 0, q + 2);
                }
            }
            q += LONG;
        }
        while q < self.range.1 {
            match self.short.count {
                1 => block::<S, 1, 1>(s, &self, 0, q),
                2 => block::<S, 2, 1>(s, &self, 0, q),
                3 => block::<S, 3, 1>(s, &self, 0, q),
                _ => block::<S, 4, 1>(s, &self, 0, q),
            }
            q += 1;
        }
    }
}

/// Dot products of `R` short vectors starting at `above` with `Q` long vectors starting at `first`.
#[inline(always)]
fn block<S: Simd, const R: usize, const Q: usize>(s: S, dot: &Dot<'_>, above: usize, first: usize) {
    let vector = |v: &Vectors<'_>, i: usize| v.data[i * v.stride..][..dot.k].as_ptr();
    let mut short = [core::ptr::null(); R];
    for (r, p) in short.iter_mut().enumerate() {
        *p = vector(&dot.short, above + r);
    }
    let mut long = [core::ptr::null(); Q];
    for (q, p) in long.iter_mut().enumerate() {
        *p = vector(&dot.long, first + q);
    }
    let mut acc = [[s.splat(0.0); Q]; R];
    let full = dot.k - dot.k % S::LANES;
    let rest = dot.k - full;
    let mut p = 0;
    while p < full {
        let mut x = [s.splat(0.0); R];
        for r in 0..R {
            // SAFETY: `short[r]` points to k elements, and p + LANES <= k.
            x[r] = unsafe { s.load(short[r].add(p)) };
        }
        for q in 0..Q {
            // SAFETY: `long[q]` points to k elements, and p + LANES <= k.
            let y = unsafe { s.load(long[q].add(p)) };
            for r in 0..R {
                acc[r][q] = s.mul_add(x[r], y, acc[r][q]);
            }
        }
        p += S::LANES;
    }
    if rest > 0 {
        for q in 0..Q {
            // SAFETY: the vector has k elements, and `rest < LANES` of them follow `full`.
            let y = unsafe { s.load_first(long[q].add(full), rest) };
            for r in 0..R {
                // SAFETY: as above.
                let x = unsafe { s.load_first(short[r].add(full), rest) };
                acc[r][q] = s.mul_add(x, y, acc[r][q]);
            }
        }
    }
    for (r, row) in acc.iter().enumerate() {
        for (q, &sum) in row.iter().enumerate() {
            let r = above + r;
            let (i, j) = if dot.swapped { (first + q, r) } else { (r, first + q) };
            // SAFETY: (i, j) is inside the result, and no other job has this long vector.
            unsafe { store(dot.epilogue, dot.target.at(i, j), i, j, s.reduce_sum(sum)) };
        }
    }
}
