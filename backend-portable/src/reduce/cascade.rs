//! The order in which PyTorch adds on CPUs, so that sums and means have its last bit.
//!
//! A sum is built in levels: a step of 16 summands or more goes into a partial sum, a step of these
//! into one of the next level, and so on; what is left on each level is added at the end, lowest
//! first. Which summands run side by side depends on how the tensor lies in memory ([`Way`]).
//! PyTorch's vectors have 32 bytes here, whichever instructions it uses (`ATEN_CPU_CAPABILITY`
//! changes no sum). The one thing that it makes depend on its threads is the sum of 32,768 numbers
//! or more to a single one: this is the order of one thread.

use crate::compute::split::for_each_chunk_mut;
use crate::elementwise::Arithmetic;
use core::marker::PhantomData;
use core::ops::Range;
use torchlet_core::Parallel;

/// Bytes of a vector.
const VECTOR: usize = 32;
/// Partial sums that run side by side, be they of numbers or of vectors.
const ABREAST: usize = 4;
/// Numbers of a vector, at most.
pub(crate) const LANES: usize = VECTOR / size_of::<f32>();
/// Numbers of as many vectors as run side by side, at most.
pub(crate) const WIDE: usize = ABREAST * LANES;
/// Levels of partial sums.
const LEVELS: u32 = 4;
/// The least steps of a level: fewer rows have no levels.
const SHORT: usize = 16;

/// Numbers of a vector of so large ones.
pub(crate) const fn lanes_of<C>() -> usize {
    if size_of::<C>() > size_of::<f32>() { VECTOR / size_of::<u64>() } else { LANES }
}

/// What runs side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Vectors along each run of summands, four at a time.
    Vectors,
    /// Each result by itself, four summands at a time.
    Fours,
    /// Neighbouring results: of as many as [`Columns`] says, row by row, of the others
    /// [`Fours`](Way::Fours).
    Columns(Columns),
}

/// Neighbouring results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Columns {
    /// How many lie behind one another.
    pub(crate) of: usize,
    /// How many of these, from the first on, have a single partial sum.
    pub(crate) abreast: usize,
}

impl Columns {
    /// Whether this result has a single partial sum, and how many behind it are alike.
    pub(crate) fn place(&self, result: usize) -> (bool, usize) {
        let column = result % self.of.max(1);
        match self.abreast.checked_sub(column) {
            None | Some(0) => (false, self.of.saturating_sub(column)),
            Some(left) => (true, left),
        }
    }
}

/// Elements along a dimension, and how far apart; what is innermost and does not move along memory
/// has step 0.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Along {
    pub(crate) size: usize,
    pub(crate) step: isize,
}

impl Way {
    /// For summands of this type: along the innermost dimensions of what is added up and of the
    /// results, after what lies behind one another was merged; `runs` says whether there are more
    /// dimensions to add up.
    pub(crate) fn of<C>(summands: Along, results: Along, runs: bool) -> Way {
        let lanes = lanes_of::<C>();
        let wide = ABREAST * lanes;
        let columns = |together: usize| {
            let abreast = results.size / together * together;
            Way::Columns(Columns { of: results.size, abreast })
        };
        if summands.step == 1 && summands.size >= lanes {
            Way::Vectors
        } else if runs {
            Way::Fours
        } else if results.step == 1 && results.size >= lanes {
            columns(wide)
        } else if summands.step < results.step {
            Way::Fours
        } else {
            columns(ABREAST)
        }
    }
}

/// How many steps make a level, as a power of two, in a sum of so many rows.
fn power(rows: usize) -> u32 {
    ((usize::BITS - rows.saturating_sub(1).leading_zeros()) / LEVELS).max(SHORT.ilog2())
}

/// Adds the first elements of `from` to as many sums; nothing, if there are not enough.
#[inline(always)]
pub(crate) fn add_all<C: Arithmetic>(into: &mut [C], from: &[C]) {
    // In as many steps as the compiler knows there are sums, where it does.
    let Some(from) = from.get(..into.len()) else { return };
    for (into, from) in into.iter_mut().zip(from) {
        *into = into.add(*from);
    }
}

/// How summands are added, be they numbers or vectors of them.
pub(crate) trait Adds: Copy {
    /// A summand.
    type V: Copy;
    /// Nothing yet.
    fn zero(self) -> Self::V;
    /// The sum of two.
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
}

/// Numbers.
struct Numbers<C>(PhantomData<C>);

impl<C> Clone for Numbers<C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C> Copy for Numbers<C> {}

impl<C: Arithmetic> Adds for Numbers<C> {
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

/// The sums of some of so many rows of `N` summands that `power` follows from them: `add(i, sums)`
/// adds row i. The first row begins a step.
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

/// The sums of rows of `N` summands: `add(i, sums)` adds row i.
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

/// Parts that threads take together.
const PARTS: usize = 8;

/// As [`cascade`], of many rows: the sums that come to the third level are those of parts, which
/// threads take.
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
            sums.fill(part(Numbers(PhantomData), power, first..first + part_rows, &add));
        });
        for sum in sums.iter() {
            add_all(&mut third, sum);
            done += 1;
            if done % step == 0 {
                add_all(&mut fourth, &core::mem::replace(&mut third, zeros));
            }
        }
    }
    let mut low = part(Numbers(PhantomData), power, whole * part_rows..rows, add);
    add_all(&mut low, &third);
    add_all(&mut low, &fourth);
    low
}

/// The sum of what lies in a row, by vectors of a fourth of `N` numbers: `add(i, numbers)` adds
/// what follows from element i on to numbers.
#[inline(always)]
pub(crate) fn along<C: Arithmetic, const N: usize>(
    parallel: &dyn Parallel,
    len: usize,
    add: impl Fn(usize, &mut [C]) + Sync,
) -> C {
    let lanes = N / ABREAST;
    let groups = len / N;
    let mut sums: [C; N] = if parallel.threads() > 1 && groups >> (2 * power(groups)) > 1 {
        in_parallel(parallel, groups, |group, sums| add(group * N, sums))
    } else {
        cascade(Numbers(PhantomData), groups, |group, sums| add(group * N, sums))
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

/// Adds what runs side by side to the first of it.
#[inline(always)]
fn join<C: Arithmetic, const N: usize>(sums: &mut [C; N]) {
    let (first, others) = sums.split_at_mut(N / ABREAST);
    others.chunks_exact(N / ABREAST).for_each(|other| add_all(first, other));
}

#[inline(always)]
fn add_up<C: Arithmetic>(start: C, values: &[C]) -> C {
    values.iter().fold(start, |sum, value| sum.add(*value))
}

/// The sums of up to `N` columns, row by row: `add(row, sums)` adds a row.
#[inline(always)]
pub(crate) fn abreast<C: Arithmetic, const N: usize>(
    rows: usize,
    columns: usize,
    add: impl Fn(usize, &mut [C]),
) -> [C; N] {
    if columns == N {
        // As many as the compiler knows.
        return cascade(Numbers(PhantomData), rows, |row, sums| add(row, sums));
    }
    cascade(Numbers(PhantomData), rows, |row, sums| add(row, &mut sums[..columns]))
}

/// The sums of up to a fourth of `N` columns, four rows at a time; they are the first of what is
/// returned.
#[inline(always)]
pub(crate) fn in_fours<C: Arithmetic, const N: usize>(
    rows: usize,
    columns: usize,
    add: impl Fn(usize, &mut [C]),
) -> [C; N] {
    let each = N / ABREAST;
    let groups = rows / ABREAST;
    // As many as the compiler knows, where they are.
    let mut sums: [C; N] = if columns == each {
        cascade(Numbers(PhantomData), groups, |group, sums| {
            for (row, sums) in sums.chunks_exact_mut(each).enumerate() {
                add(group * ABREAST + row, sums);
            }
        })
    } else {
        cascade(Numbers(PhantomData), groups, |group, sums| {
            for (row, sums) in sums.chunks_exact_mut(each).enumerate() {
                add(group * ABREAST + row, &mut sums[..columns]);
            }
        })
    };
    for row in groups * ABREAST..rows {
        add(row, &mut sums[..columns]);
    }
    join(&mut sums);
    sums
}

/// Vectors of numbers of neighbouring columns; `at(row, i)` is that of a row, of columns i.
#[cfg(feature = "engine")]
pub(crate) mod vectors {
    use super::{ABREAST, Adds, LANES, cascade};

    /// The sums of `N` vectors of columns, row by row.
    #[inline(always)]
    pub(crate) fn abreast<A: Adds, const N: usize>(
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

    /// The sums of columns, four rows at a time.
    #[inline(always)]
    pub(crate) fn in_fours<A: Adds>(
        adds: A,
        rows: usize,
        at: impl Fn(usize, usize) -> A::V,
    ) -> A::V {
        let groups = rows / ABREAST;
        let [mut first, b, c, d] = cascade(adds, groups, |group, sums: &mut [A::V; ABREAST]| {
            for (row, sum) in sums.iter_mut().enumerate() {
                *sum = adds.add(*sum, at(group * ABREAST + row, 0));
            }
        });
        for row in groups * ABREAST..rows {
            first = adds.add(first, at(row, 0));
        }
        adds.add(adds.add(adds.add(first, b), c), d)
    }

    /// The sums of columns, each of which is added up as [`along`](super::along) does with what
    /// lies in a row.
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
