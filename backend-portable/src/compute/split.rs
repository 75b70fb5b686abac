//! Parallel loops. This is the only module that gives parts of a `&mut` slice to several threads.
//!
//! [`for_each_job`] distributes jobs dynamically, so that threads that finish early run more jobs.
//! Each thread starts with the range of jobs that it had in earlier loops. Job indices and
//! workspace slots are claimed with atomic counters: that no two threads get the same one does not
//! depend on the [`Parallel`] implementation calling each task exactly once.

#[cfg(feature = "engine")]
use super::gemm::ShapeMismatch;
use crate::parallel::Parallel;
use core::marker::PhantomData;
pub use torchlet_core::Serial;

/// A mutable slice whose disjoint parts go to several threads.
pub(crate) struct Parts<'a, T> {
    data: *mut T,
    len: usize,
    lifetime: PhantomData<&'a mut [T]>,
}

// SAFETY: the only safe access is `address`, which returns a raw pointer; the caller of `part`
// guarantees that no two live parts overlap. Sharing it is therefore like sending disjoint
// `&mut [T]` to threads, for which `T: Send` suffices.
unsafe impl<T: Send> Sync for Parts<'_, T> {}

impl<'a, T> Parts<'a, T> {
    pub(crate) fn new(data: &'a mut [T]) -> Self {
        Parts { data: data.as_mut_ptr(), len: data.len(), lifetime: PhantomData }
    }

    /// The address of element `start`, followed by at least `len` elements, for parts that are not
    /// contiguous. The caller is responsible for all accesses.
    pub(crate) fn address(&self, start: usize, len: usize) -> *mut T {
        assert!(start <= self.len && len <= self.len - start);
        self.data.wrapping_add(start)
    }

    /// The part `start..start + len`, clipped to the slice.
    ///
    /// # Safety
    /// No other part that overlaps the result exists during its lifetime.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn part(&self, start: usize, len: usize) -> &'a mut [T] {
        let start = start.min(self.len);
        let len = len.min(self.len - start);
        // SAFETY: the range is inside the slice borrowed for 'a, and the caller guarantees that it
        // is not aliased.
        unsafe { core::slice::from_raw_parts_mut(self.data.add(start), len) }
    }
}

/// Maximum number of threads that start with a range of jobs of their own; further threads take
/// jobs of other ranges. Firmware has one thread.
#[cfg(target_has_atomic = "ptr")]
const RANGES: usize = if cfg!(feature = "std") { 32 } else { 1 };

/// Unclaimed jobs: a range of jobs for each thread, and how many of each range were claimed.
#[cfg(target_has_atomic = "ptr")]
struct Unclaimed {
    claimed: [core::sync::atomic::AtomicUsize; RANGES],
    ranges: usize,
    jobs: usize,
}

/// Iterator over the jobs that thread `own` claims: first those of its own range, then the rest of
/// the other ranges. In consecutive loops with the same split, each thread thus processes the data
/// that is in its cache; data in the cache of another processor costs as much as memory.
#[cfg(target_has_atomic = "ptr")]
struct Indices<'a> {
    left: &'a Unclaimed,
    own: usize,
    /// Number of exhausted ranges.
    done: usize,
}

#[cfg(target_has_atomic = "ptr")]
impl Iterator for Indices<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let &Unclaimed { ref claimed, ranges, jobs } = self.left;
        if RANGES == 1 {
            let index = claimed[0].fetch_add(1, core::sync::atomic::Ordering::Relaxed);
            return (index < jobs).then_some(index);
        }
        let begin = |range: usize| jobs / ranges * range + (jobs % ranges).min(range);
        while self.done < ranges {
            let range = (self.own + self.done) % ranges;
            let (from, to) = (begin(range), begin(range + 1));
            let at = claimed[range].fetch_add(1, core::sync::atomic::Ordering::Relaxed);
            if at < to - from {
                return Some(from + at);
            }
            self.done += 1;
        }
        None
    }
}

/// Calls `job(index, workspace)` once for each index in `0..jobs`, with a workspace of `slot_len`
/// elements that no other thread has.
///
/// The number of threads is the minimum of available threads, jobs, and slots in `workspace`. If
/// the workspace is smaller than one slot, all jobs run on the calling thread with all of it. Jobs
/// that have not started when the run is [cancelled](Parallel::is_cancelled) are skipped.
pub fn for_each_job<W: Send>(
    parallel: &dyn Parallel,
    jobs: usize,
    workspace: &mut [W],
    slot_len: usize,
    job: &(dyn Fn(usize, &mut [W]) + Sync),
) {
    #[cfg(target_has_atomic = "ptr")]
    {
        use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
        let fitting = workspace.len().checked_div(slot_len).unwrap_or(usize::MAX);
        let slots = parallel.threads().min(jobs).min(fitting);
        if slots > 1 {
            let next_slot = AtomicUsize::new(0);
            let claimed = [const { AtomicUsize::new(0) }; RANGES];
            let left = Unclaimed { claimed, ranges: slots.min(RANGES), jobs };
            let parts = Parts::new(&mut *workspace);
            parallel.run(slots, &|own| {
                let slot = next_slot.fetch_add(1, Relaxed);
                if slot >= slots {
                    return;
                }
                // SAFETY: the counter returns each slot number once, and slots are `slot_len`
                // apart. `slots * slot_len` is at most the length of the workspace, so the
                // multiplication does not overflow.
                let workspace = unsafe { parts.part(slot * slot_len, slot_len) };
                for index in (Indices { left: &left, own, done: 0 }) {
                    if is_cancelled(parallel) {
                        return;
                    }
                    job(index, workspace);
                }
            });
            return;
        }
    }
    // Also the only path on processors without atomic addition, which have one thread.
    let _ = slot_len;
    for index in 0..jobs {
        if is_cancelled(parallel) {
            return;
        }
        job(index, workspace);
    }
}

/// Whether the run was [cancelled](Parallel::is_cancelled). Firmware checks for cancellation only
/// between instructions, to save flash.
#[inline]
pub(crate) fn is_cancelled(parallel: &dyn Parallel) -> bool {
    cfg!(feature = "std") && parallel.is_cancelled()
}

/// Calls `task(index, chunk)` once for each chunk of `chunk_len` elements; the last may be shorter.
pub fn for_each_chunk_mut<T: Send>(
    parallel: &dyn Parallel,
    data: &mut [T],
    chunk_len: usize,
    task: &(dyn Fn(usize, &mut [T]) + Sync),
) {
    for_each_chunk_with::<T, ()>(parallel, data, chunk_len, &mut [], 0, &|index, chunk, _| {
        task(index, chunk);
    });
}

/// Like [`for_each_chunk_mut`], with a workspace of `slot_len` elements for each call (see
/// [`for_each_job`]).
pub fn for_each_chunk_with<T: Send, W: Send>(
    parallel: &dyn Parallel,
    data: &mut [T],
    chunk_len: usize,
    workspace: &mut [W],
    slot_len: usize,
    task: &(dyn Fn(usize, &mut [T], &mut [W]) + Sync),
) {
    let chunk_len = chunk_len.max(1);
    let chunks = data.len().div_ceil(chunk_len);
    let parts = Parts::new(data);
    for_each_job(parallel, chunks, workspace, slot_len, &|index, workspace| {
        // SAFETY: `for_each_job` calls with each index once, and chunks of different indices do not
        // overlap. The start is less than the length, so the multiplication does not overflow.
        task(index, unsafe { parts.part(index * chunk_len, chunk_len) }, workspace);
    });
}

/// Splits several slices into the same number of chunks and calls `task(index, chunks)` once for
/// each index. `chunks` starts at `index` times the chunk length of each slice; the last may be
/// shorter. The first slice determines the number of indices.
pub fn for_each_chunks_mut<T: Send, const M: usize>(
    parallel: &dyn Parallel,
    data: [&mut [T]; M],
    chunk_lens: [usize; M],
    task: &(dyn Fn(usize, [&mut [T]; M]) + Sync),
) {
    let (Some(first), Some(chunk_len)) = (data.first(), chunk_lens.first()) else { return };
    let chunks = first.len().div_ceil((*chunk_len).max(1));
    let parts = data.map(Parts::new);
    for_each_job::<()>(parallel, chunks, &mut [], 0, &|index, _| {
        // SAFETY: `for_each_job` calls with each index once, and chunks of different indices do not
        // overlap. If the multiplication saturates, `part` is empty.
        let chunk =
            |i: usize| unsafe { parts[i].part(index.saturating_mul(chunk_lens[i]), chunk_lens[i]) };
        task(index, core::array::from_fn(chunk));
    });
}

/// A mutable group of columns of a matrix.
pub struct Columns<'a, T> {
    parts: &'a Parts<'a, T>,
    start: usize,
    len: usize,
    width: usize,
}

impl<T> Columns<'_, T> {
    /// The columns of a row; empty after the last row.
    pub fn row(&mut self, row: usize) -> &mut [T] {
        let at = row.saturating_mul(self.width).saturating_add(self.start);
        // SAFETY: rows of one `Columns` do not overlap, and neither do different `Columns` of a
        // row, since `for_each_columns_mut` or `for_each_tile_of_parts` made them disjoint. The
        // borrow of `self` prevents two live rows of the same `Columns`.
        unsafe { self.parts.part(at, self.len) }
    }
}

/// Splits a matrix of rows of `width` elements into groups of `columns` columns, the last of which
/// may be narrower, and calls `task(first column, columns)` once for each group.
pub fn for_each_columns_mut<T: Send>(
    parallel: &dyn Parallel,
    data: &mut [T],
    width: usize,
    columns: usize,
    task: &(dyn Fn(usize, &mut Columns<T>) + Sync),
) {
    let columns = columns.clamp(1, width.max(1));
    let parts = Parts::new(data);
    for_each_job::<()>(parallel, width.div_ceil(columns), &mut [], 0, &|index, _| {
        let start = index * columns;
        task(start, &mut Columns { parts: &parts, start, len: columns.min(width - start), width });
    });
}

/// A mutable rectangle of a matrix.
pub struct Tile<'a, T> {
    columns: Columns<'a, T>,
    rows: core::ops::Range<usize>,
}

impl<T> Tile<'_, T> {
    /// The tile's part of a row of the matrix; empty if the row is outside the tile.
    pub fn row(&mut self, row: usize) -> &mut [T] {
        if self.rows.contains(&row) { self.columns.row(row) } else { &mut [] }
    }

    /// The address of the first element of a sub-rectangle, and the row stride of the matrix, for
    /// vector stores while the tile is borrowed. `rows` are rows of the matrix, `cols` are relative
    /// to the tile. `None` if the sub-rectangle is empty or not inside the tile. The caller is
    /// responsible for all accesses.
    #[cfg(all(feature = "engine", target_arch = "x86_64"))]
    pub(crate) fn corner(
        &mut self,
        rows: core::ops::Range<usize>,
        cols: core::ops::Range<usize>,
    ) -> Option<(*mut T, usize)> {
        let Columns { parts, start, len, width } = self.columns;
        let is_inside = self.rows.start <= rows.start && rows.end <= self.rows.end;
        if !is_inside || rows.is_empty() || cols.is_empty() || cols.end > len {
            return None;
        }
        let (first, last) = (rows.start.checked_mul(width), (rows.end - 1).checked_mul(width));
        let (first, last) = (first?.checked_add(start)?, last?.checked_add(start)?);
        let end = last.checked_add(cols.end).filter(|end| *end <= parts.len)?;
        let first = first + cols.start;
        Some((parts.address(first, end - first), width))
    }

    /// The first column of the tile.
    #[cfg(feature = "engine")]
    pub(crate) fn first(&self) -> usize {
        self.columns.start
    }

    /// Rows of the matrix that the tile covers.
    pub fn rows(&self) -> core::ops::Range<usize> {
        self.rows.clone()
    }
}

/// Splits a matrix of rows of `width` elements into tiles of `rows` by `columns`, the last of which
/// may be smaller. Calls `task(first column, tile, workspace)` once for each, with a workspace of
/// `slot_len` elements (see [`for_each_job`]).
pub fn for_each_tile_mut<T: Send, W: Send>(
    parallel: &dyn Parallel,
    data: &mut [T],
    width: usize,
    (rows, columns): (usize, usize),
    (workspace, slot_len): (&mut [W], usize),
    task: &(dyn Fn(usize, &mut Tile<T>, &mut [W]) + Sync),
) {
    for_each_tile_of_parts(
        parallel,
        data,
        (width, width, 0..1),
        (rows, columns),
        (workspace, slot_len),
        &|[_, first], tile, workspace| task(first, tile, workspace),
    );
}

/// Like [`for_each_tile_mut`], for columns that are grouped into parts of `wide` columns. Covers
/// only the parts in `some`, and no tile spans two parts. Calls
/// `task([part, first column in the part], tile, workspace)`.
pub(crate) fn for_each_tile_of_parts<T: Send, W: Send>(
    parallel: &dyn Parallel,
    data: &mut [T],
    (width, wide, some): (usize, usize, core::ops::Range<usize>),
    (rows, columns): (usize, usize),
    (workspace, slot_len): (&mut [W], usize),
    task: &(dyn Fn([usize; 2], &mut Tile<T>, &mut [W]) + Sync),
) {
    let wide = wide.clamp(1, width.max(1));
    let count = data.len() / width.max(1);
    let (rows, columns) = (rows.max(1), columns.clamp(1, wide));
    let (down, across) = (count.div_ceil(rows), wide.div_ceil(columns));
    let some = some.start..some.end.min(width.div_ceil(wide));
    let parts = Parts::new(data);
    // No overflow: fewer tiles than twice the elements, and a slice has at most `isize::MAX` bytes.
    let jobs = down * across * some.len();
    for_each_job(parallel, jobs, workspace, slot_len, &|index, workspace| {
        let (index, start) = (index / across, index % across * columns);
        let (part, first) = (some.start + index / down, index % down * rows);
        // Tiles of different indices are disjoint: they differ in rows or in columns.
        let from = part * wide + start;
        let len = columns.min(wide - start).min(width.saturating_sub(from));
        let columns = Columns { parts: &parts, start: from, len, width };
        let mut tile = Tile { columns, rows: first..(first + rows).min(count) };
        task([part, start], &mut tile, workspace);
    });
}

/// Whether all tasks of a parallel loop succeeded.
#[cfg(feature = "engine")]
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    failed: core::sync::atomic::AtomicBool,
}

#[cfg(feature = "engine")]
impl Outcome {
    pub(crate) fn note(&self, result: Result<(), ShapeMismatch>) {
        if result.is_err() {
            self.failed.store(true, core::sync::atomic::Ordering::Relaxed);
        }
    }

    /// # Errors
    /// If one of the tasks failed.
    pub(crate) fn result(self) -> Result<(), ShapeMismatch> {
        if self.failed.into_inner() { Err(ShapeMismatch) } else { Ok(()) }
    }
}

/// Returns the number of tiles in each part that balances the load of the threads: at most
/// `max_tiles` tiles, with at least two parts for each thread.
#[cfg(feature = "engine")]
pub(crate) fn balanced_part(threads: usize, tiles: usize, max_tiles: usize) -> usize {
    if threads <= 1 {
        return max_tiles.clamp(1, tiles.max(1));
    }
    let fewest = tiles.div_ceil(max_tiles.max(1)).max(threads * 2).next_multiple_of(threads);
    // Tiles of the busiest thread.
    let load = |parts: &usize| tiles.div_ceil(*parts) * (parts / threads);
    let counts = (fewest..=fewest * 2).step_by(threads);
    tiles.div_ceil(counts.min_by_key(load).unwrap_or(fewest)).max(1)
}

/// Maximum length of a chunk in grains: a few milliseconds of work, after which a kernel checks for
/// cancellation.
const MAX_GRAINS: usize = 128;

/// Chunk length for `len` elements, with at least `grain` elements for each thread. Yields about
/// four chunks for each thread, which balances the load, and at most [`MAX_GRAINS`] grains.
pub(crate) fn chunk_len(parallel: &dyn Parallel, len: usize, grain: usize) -> usize {
    chunk_of_work(parallel, len, 1, grain)
}

/// Like [`chunk_len`], for elements (such as rows) that cost `work` each; `grain` is the minimum
/// work for each thread.
pub(crate) fn chunk_of_work(
    parallel: &dyn Parallel,
    len: usize,
    work: usize,
    grain: usize,
) -> usize {
    let (threads, work) = (parallel.threads(), work.max(1));
    let max_len = match cfg!(feature = "std") {
        true => (grain.saturating_mul(MAX_GRAINS) / work).max(1),
        false => usize::MAX,
    };
    if threads <= 1 {
        return len.min(max_len).max(1);
    }
    len.div_ceil(threads.saturating_mul(4)).min(max_len).max(grain / work).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "engine")]
    #[test]
    fn balanced_part_balances_tiles() {
        for (threads, tiles, max_tiles) in
            [(2, 66, 18), (2, 131, 9), (3, 100, 40), (2, 2, 10), (4, 3, 1)]
        {
            let part = balanced_part(threads, tiles, max_tiles);
            assert!((1..=max_tiles).contains(&part), "{threads} {tiles} {max_tiles}");
            // Parts are distributed round-robin.
            let load = tiles.div_ceil(part).div_ceil(threads) * part;
            assert!(load <= tiles.div_ceil(threads) + 1, "{threads} {tiles} {max_tiles}: {part}");
        }
        assert_eq!(balanced_part(1, 66, 18), 18);
        assert_eq!(balanced_part(1, 5, 18), 5);
    }

    #[test]
    fn chunks_cover_the_slice_once() {
        for (len, chunk) in [(0, 4), (1, 4), (8, 4), (9, 4), (10, 1), (7, 0), (7, usize::MAX)] {
            let mut data = vec![0u32; len];
            for_each_chunk_mut(&Serial, &mut data, chunk, &|i, part| {
                part.iter_mut().for_each(|x| *x += 1 + i as u32)
            });
            let chunk = chunk.max(1);
            assert!(
                data.iter().enumerate().all(|(i, &x)| x == 1 + (i / chunk) as u32),
                "{len} {chunk}"
            );
        }
    }

    /// Calls every task twice, from two threads: incorrect, but must not be unsound.
    struct Twice;
    impl Parallel for Twice {
        fn threads(&self) -> usize {
            2
        }
        fn run(&self, count: usize, task: &(dyn Fn(usize) + Sync)) {
            std::thread::scope(|s| {
                for _ in 0..2 {
                    s.spawn(|| (0..count).for_each(task));
                }
            });
        }
    }

    #[test]
    fn repeated_tasks_are_sound() {
        let mut data = vec![0u32; 1000];
        for_each_chunk_mut(&Twice, &mut data, 3, &|_, part| part.iter_mut().for_each(|x| *x += 1));
        assert!(data.iter().all(|&x| x == 1));
    }

    /// Runs the last task first, all on one thread.
    struct Backwards;
    impl Parallel for Backwards {
        fn threads(&self) -> usize {
            3
        }
        fn run(&self, count: usize, task: &(dyn Fn(usize) + Sync)) {
            (0..count).rev().for_each(task);
        }
    }

    #[test]
    fn threads_start_with_their_range_then_steal() {
        let order = std::sync::Mutex::new(Vec::new());
        for_each_job::<()>(&Backwards, 8, &mut [], 0, &|job, _| order.lock().unwrap().push(job));
        assert_eq!(order.into_inner().unwrap(), [6, 7, 0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn chunks_of_several_slices_match() {
        let (mut a, mut b) = (vec![0u32; 10], vec![0u32; 5]);
        for_each_chunks_mut(&Twice, [&mut a, &mut b], [4, 2], &|i, [a, b]| {
            a.fill(i as u32);
            b.fill(i as u32);
        });
        assert_eq!(a, [0, 0, 0, 0, 1, 1, 1, 1, 2, 2]);
        assert_eq!(b, [0, 0, 1, 1, 2]);
    }

    #[test]
    fn columns_cover_the_matrix_once() {
        for (width, columns) in [(7, 3), (1, 5), (8, 4), (5, 0)] {
            let mut data = vec![0u32; width * 6];
            for_each_columns_mut(&Twice, &mut data, width, columns, &|first, part| {
                for row in 0..7 {
                    part.row(row).iter_mut().for_each(|x| *x += 1 + first as u32);
                }
            });
            let columns = columns.max(1);
            assert!(
                data.iter()
                    .enumerate()
                    .all(|(i, &x)| { x as usize == 1 + i % width / columns * columns }),
                "{width} {columns}"
            );
        }
    }

    #[test]
    fn tiles_cover_the_matrix_once() {
        for (width, tile) in [(6, (2, 3)), (6, (4, 4)), (5, (1, 5)), (7, (100, 2)), (3, (0, 0))] {
            let mut data = vec![0u32; width * 5];
            for_each_tile_mut::<_, ()>(
                &Twice,
                &mut data,
                width,
                tile,
                (&mut [], 0),
                &|first, tile, _| {
                    for row in 0..7 {
                        let mark = 1 + (row * 10 + first) as u32;
                        tile.row(row).iter_mut().for_each(|x| *x += mark);
                    }
                },
            );
            let columns = tile.1.clamp(1, width);
            for (i, &x) in data.iter().enumerate() {
                assert_eq!(x as usize, 1 + i / width * 10 + i % width / columns * columns);
            }
        }
    }

    #[test]
    fn tiles_cover_only_selected_parts() {
        for (width, (wide, some), tile) in [
            (9, (3, 1..3), (2, 2)),
            (6, (6, 0..1), (4, 4)),
            (7, (2, 2..9), (1, 1)),
            (8, (2, 1..3), (3, 5)),
            (4, (2, 3..3), (1, 1)),
        ] {
            let mut data = vec![0u32; width * 5];
            for_each_tile_of_parts::<_, ()>(
                &Twice,
                &mut data,
                (width, wide, some.clone()),
                tile,
                (&mut [], 0),
                &|[part, first], tile, _| {
                    let mark = 1 + (part * 10 + first) as u32;
                    for row in 0..7 {
                        tile.row(row).iter_mut().for_each(|x| *x += mark);
                    }
                },
            );
            let columns = tile.1.min(wide);
            for (i, &x) in data.iter().enumerate() {
                let (part, col) = (i % width / wide, i % width % wide);
                let mark = 1 + part * 10 + col / columns * columns;
                let wanted = if some.contains(&part) { mark } else { 0 };
                assert_eq!(x as usize, wanted, "{width} {wide} {some:?} {tile:?}");
            }
        }
    }

    #[test]
    fn each_thread_has_its_own_workspace() {
        let mut workspace = vec![0u32; 2 * 8 + 3];
        for_each_job(&Twice, 100, &mut workspace, 8, &|_, own| {
            assert_eq!(own.len(), 8);
            own.fill(1);
        });
        let mut small = vec![0u32; 7];
        for_each_job(&Twice, 3, &mut small, 8, &|_, own| assert_eq!(own.len(), 7));
    }
}
