//! PyTorch's order of summation on CPUs, to match sums and means in the last bit.
//!
//! A sum is built in levels (cascade summation): at least 16 summands are added to a partial sum,
//! the same number of partial sums to a partial sum of the next level, and so on. The remainders of
//! all levels are added at the end, lowest level first. The memory layout determines which summands
//! are accumulated in parallel ([`Accumulation`]). PyTorch's vectors have 32 bytes in these loops,
//! whatever instructions it uses (`ATEN_CPU_CAPABILITY` changes no sum).
//!
//! PyTorch's result depends on its number of threads only for sums of 32,768 or more values to a
//! single result. This module implements the order of one thread.

use crate::compute::split::for_each_chunk_mut;
use crate::elementwise::Arithmetic;
use core::marker::PhantomData;
use core::ops::Range;
use torchlet_core::Parallel;

/// Bytes per vector.
const VECTOR: usize = 32;
/// Number of partial sums, of scalars or vectors, that are accumulated in parallel.
const ACCUMULATORS: usize = 4;
/// Maximum number of values per vector: those of `f32`.
pub(crate) const LANES: usize = VECTOR / size_of::<f32>();
/// Maximum number of values that are accumulated in parallel.
pub(crate) const MAX_PARALLEL: usize = ACCUMULATORS * LANES;
/// Number of levels of partial sums.
const LEVELS: u32 = 4;
/// Minimum number of steps per level. Sums of fewer rows have no levels.
const SHORT: usize = 16;

/// Number of values of compute type `C` per vector.
pub(crate) const fn lanes_of<C>() -> usize {
    if size_of::<C>() > size_of::<f32>() { VECTOR / size_of::<u64>() } else { LANES }
}

/// Choice of the values that are accumulated in parallel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Accumulation {
    /// The summands of one result: four vectors of a contiguous run.
    Vectors,
    /// The summands of one result: four at a time.
    Fours,
    /// Adjacent results, row by row, for those that [`Columns`] selects;
    /// [`Fours`](Accumulation::Fours) for the others.
    Columns(Columns),
}

/// Groups of adjacent results, and which results of a group are computed with a single partial sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Columns {
    /// Number of contiguous results in a group.
    pub(crate) of: usize,
    /// Number of results at the start of a group that are computed with a single partial sum each.
    pub(crate) single: usize,
}

impl Columns {
    /// Returns whether `result` is computed with a single partial sum, and the number of results,
    /// from `result` on, for which the answer is the same.
    pub(crate) fn run_from(&self, result: usize) -> (bool, usize) {
        let column = result % self.of.max(1);
        match self.single.checked_sub(column) {
            None | Some(0) => (false, self.of.saturating_sub(column)),
            Some(left) => (true, left),
        }
    }
}

/// Size and stride of the innermost dims, merged. The stride is 0 if the innermost dim does not
/// advance in memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MergedDim {
    pub(crate) size: usize,
    pub(crate) step: isize,
}

impl Accumulation {
    /// Selects PyTorch's algorithm for summands of type `C`, from the merged innermost dims of
    /// summands and results. `runs` is true if further dims are reduced.
    pub(crate) fn of<C>(summands: MergedDim, results: MergedDim, runs: bool) -> Accumulation {
        let lanes = lanes_of::<C>();
        let wide = ACCUMULATORS * lanes;
        let columns = |together: usize| {
            let single = results.size / together * together;
            Accumulation::Columns(Columns { of: results.size, single })
        };
        if summands.step == 1 && summands.size >= lanes {
            Accumulation::Vectors
        } else if runs {
            Accumulation::Fours
        } else if results.step == 1 && results.size >= lanes {
            columns(wide)
        } else if summands.step < results.step {
            Accumulation::Fours
        } else {
            columns(ACCUMULATORS)
        }
    }
}

/// Binary logarithm of the number of steps per level, for a sum of `rows` rows.
fn power(rows: usize) -> u32 {
    ((usize::BITS - rows.saturating_sub(1).leading_zeros()) / LEVELS).max(SHORT.ilog2())
}

/// Adds the first elements of `from` to the sums; does nothing if `from` is too short.
#[inline(always)]
pub(crate) fn add_all<C: Arithmetic>(into: &mut [C], from: &[C]) {
    // The slice makes the trip count the number of sums, which the compiler may know.
    let Some(from) = from.get(..into.len()) else { return };
    for (into, from) in into.iter_mut().zip(from) {
        *into = into.add(*from);
    }
}

/// Addition of summands: scalars or SIMD vectors.
pub(crate) trait Adds: Copy {
    /// Type of a summand.
    type V: Copy;
    /// The zero of the summand type.
    fn zero(self) -> Self::V;
    /// The sum of two summands.
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
}

/// Addition of scalars.
struct ScalarAddition<C>(PhantomData<C>);

impl<C> Clone for ScalarAddition<C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C> Copy for ScalarAddition<C> {}

impl<C: Arithmetic> Adds for ScalarAddition<C> {
    type V = C;
    #[inline(always)]
    fn zero(self) -> C {
        C::default()
    }
    #[inline(always)]
    fn add(self, a: C, b: C) -> C {
        a.add(b)
    }
}

/// Sums a range of rows of `N` summands, with levels of `2^power` steps. `add(i, sums)` adds row
/// `i`. The range starts at the beginning of a step.
#[inline(always)]
fn part<A: Adds, const N: usize>(
    adds: A,
    power: u32,
    rows: Range<usize>,
    add: impl Fn(usize, &mut [A::V; N]),
) -> [A::V; N] {
    let add_to = |into: &mut [A::V; N], from: &[A::V; N]| {
        for (into, from) in into.iter_mut().zip(from) {
            *into = adds.add(*into, *from);
        }
    };
    let zeros = [adds.zero(); N];
    let (step, mut levels) = (1usize << power, [zeros; LEVELS as usize - 1]);
    let mut at = rows.start;
    loop {
        let mut low = zeros;
        let end = rows.end.min(at.saturating_add(step));
        for row in at..end {
            add(row, &mut low);
        }
        if end - at < step {
            levels.iter().for_each(|level| add_to(&mut low, level));
            return low;
        }
        at = end;
        for (level, into) in (1..).zip(levels.iter_mut()) {
            add_to(into, &low);
            if level + 1 == LEVELS || (at >> (level * power)).trailing_zeros() < power {
                break;
            }
            low = core::mem::replace(into, zeros);
        }
    }
}

/// Sums rows of `N` summands. `add(i, sums)` adds row `i`.
#[inline(always)]
fn cascade<A: Adds, const N: usize>(
    adds: A,
    rows: usize,
    add: impl Fn(usize, &mut [A::V; N]),
) -> [A::V; N] {
    if rows < SHORT {
        let mut sums = [adds.zero(); N];
        for row in 0..rows {
            add(row, &mut sums);
        }
        return sums;
    }
    part(adds, power(rows), 0..rows, add)
}

/// Number of parts that threads compute at a time.
const PARTS: usize = 8;

/// Like [`cascade`], for many rows. Threads compute parts, each of which is a partial sum of the
/// third level.
#[inline(never)]
fn in_parallel<C: Arithmetic, const N: usize>(
    parallel: &dyn Parallel,
    rows: usize,
    add: impl Fn(usize, &mut [C; N]) + Sync,
) -> [C; N] {
    let power = power(rows);
    let (step, part_rows) = (1usize << power, 1usize << (2 * power));
    let zeros = [C::default(); N];
    let (mut third, mut fourth) = (zeros, zeros);
    let (whole, mut done) = (rows / part_rows, 0);
    while done < whole {
        let mut sums = [zeros; PARTS];
        let sums = &mut sums[..(whole - done).min(PARTS)];
        for_each_chunk_mut(parallel, sums, 1, &|i, sums| {
            let first = (done + i) * part_rows;
            sums.fill(part(ScalarAddition(PhantomData), power, first..first + part_rows, &add));
        });
        for sum in sums.iter() {
            add_all(&mut third, sum);
            done += 1;
            if done % step == 0 {
                add_all(&mut fourth, &core::mem::replace(&mut third, zeros));
            }
        }
    }
    let mut low = part(ScalarAddition(PhantomData), power, whole * part_rows..rows, add);
    add_all(&mut low, &third);
    add_all(&mut low, &fourth);
    low
}

/// Sums a contiguous run, with vectors of `N / 4` values. `add(i, values)` adds the elements from
/// index `i` on to `values`.
#[inline(always)]
pub(crate) fn sum_run<C: Arithmetic, const N: usize>(
    parallel: &dyn Parallel,
    len: usize,
    add: impl Fn(usize, &mut [C]) + Sync,
) -> C {
    let lanes = N / ACCUMULATORS;
    let groups = len / N;
    let mut sums: [C; N] = if parallel.threads() > 1 && groups >> (2 * power(groups)) > 1 {
        in_parallel(parallel, groups, |group, sums| add(group * N, sums))
    } else {
        cascade(ScalarAddition(PhantomData), groups, |group, sums| add(group * N, sums))
    };
    let (mut at, mut total) = (groups * N, C::default());
    while at + lanes <= len {
        add(at, &mut sums[..lanes]);
        at += lanes;
    }
    while at < len {
        add(at, core::slice::from_mut(&mut total));
        at += 1;
    }
    join(&mut sums);
    add_up(total, &sums[..lanes])
}

/// Adds the four parallel partial sums; the result is the first of them.
#[inline(always)]
fn join<C: Arithmetic, const N: usize>(sums: &mut [C; N]) {
    let (first, others) = sums.split_at_mut(N / ACCUMULATORS);
    others.chunks_exact(N / ACCUMULATORS).for_each(|other| add_all(first, other));
}

#[inline(always)]
fn add_up<C: Arithmetic>(start: C, values: &[C]) -> C {
    values.iter().fold(start, |sum, value| sum.add(*value))
}

/// Sums up to `N` columns, row by row. `add(row, sums)` adds a row to the sums.
#[inline(always)]
pub(crate) fn sum_columns<C: Arithmetic, const N: usize>(
    rows: usize,
    columns: usize,
    add: impl Fn(usize, &mut [C]),
) -> [C; N] {
    if columns == N {
        // The trip count is constant here.
        return cascade(ScalarAddition(PhantomData), rows, |row, sums| add(row, sums));
    }
    cascade(ScalarAddition(PhantomData), rows, |row, sums| add(row, &mut sums[..columns]))
}

/// Sums up to `N / 4` columns, four rows at a time; the sums are at the start of the result.
#[inline(always)]
pub(crate) fn in_fours<C: Arithmetic, const N: usize>(
    rows: usize,
    columns: usize,
    add: impl Fn(usize, &mut [C]),
) -> [C; N] {
    let each = N / ACCUMULATORS;
    let groups = rows / ACCUMULATORS;
    // In the first case, the trip count of the inner loop is known at compile time.
    let mut sums: [C; N] = if columns == each {
        cascade(ScalarAddition(PhantomData), groups, |group, sums| {
            for (row, sums) in sums.chunks_exact_mut(each).enumerate() {
                add(group * ACCUMULATORS + row, sums);
            }
        })
    } else {
        cascade(ScalarAddition(PhantomData), groups, |group, sums| {
            for (row, sums) in sums.chunks_exact_mut(each).enumerate() {
                add(group * ACCUMULATORS + row, &mut sums[..columns]);
            }
        })
    };
    for row in groups * ACCUMULATORS..rows {
        add(row, &mut sums[..columns]);
    }
    join(&mut sums);
    sums
}

/// Sums over vectors of adjacent columns; `at(row, i)` is vector `i` of a row.
#[cfg(feature = "engine")]
pub(crate) mod vectors {
    use super::{ACCUMULATORS, Adds, LANES, cascade};

    /// Sums `N` vectors of columns, row by row.
    #[inline(always)]
    pub(crate) fn sum_columns<A: Adds, const N: usize>(
        adds: A,
        rows: usize,
        at: impl Fn(usize, usize) -> A::V,
    ) -> [A::V; N] {
        cascade(adds, rows, |row, sums| {
            for (i, sum) in sums.iter_mut().enumerate() {
                *sum = adds.add(*sum, at(row, i));
            }
        })
    }

    /// Sums columns, four rows at a time.
    #[inline(always)]
    pub(crate) fn in_fours<A: Adds>(
        adds: A,
        rows: usize,
        at: impl Fn(usize, usize) -> A::V,
    ) -> A::V {
        let groups = rows / ACCUMULATORS;
        let [mut first, b, c, d] =
            cascade(adds, groups, |group, sums: &mut [A::V; ACCUMULATORS]| {
                for (row, sum) in sums.iter_mut().enumerate() {
                    *sum = adds.add(*sum, at(group * ACCUMULATORS + row, 0));
                }
            });
        for row in groups * ACCUMULATORS..rows {
            first = adds.add(first, at(row, 0));
        }
        adds.add(adds.add(adds.add(first, b), c), d)
    }

    /// Sums columns, each in the order of [`sum_run`](super::sum_run).
    #[inline(always)]
    pub(crate) fn in_vectors<A: Adds>(
        adds: A,
        rows: usize,
        at: impl Fn(usize, usize) -> A::V,
    ) -> A::V {
        let vectors = rows / LANES;
        let mut total = adds.zero();
        for row in vectors * LANES..rows {
            total = adds.add(total, at(row, 0));
        }
        for lane in 0..LANES {
            let of_lane = |vector: usize, i: usize| at(vector * LANES + lane, i);
            total = adds.add(total, in_fours(adds, vectors, of_lane));
        }
        total
    }
}
