//! Sharing work and memory among tasks: the only place that hands out parts of a `&mut` slice to
//! several threads.
//!
//! [`for_each_job`] deals jobs out one by one, so that threads that finish early take more, but
//! lets each begin with the part of them that it had before. Each job index, and each workspace
//! part, is claimed from an atomic counter: that no two threads ever get the same one does not
//! depend on the [`Parallel`] implementation calling each task exactly once.

#[cfg(feature = "engine")]
use super::gemm::ShapeMismatch;
use crate::parallel::Parallel;
use core::marker::PhantomData;
pub use torchlet_core::Serial;

/// A mutable slice of which disjoint parts are handed to several threads.
pub(crate) struct Parts<'a, T> {
    data: *mut T,
    len: usize,
    lifetime: PhantomData<&'a mut [T]>,
}

// SAFETY: the only access is `part`, whose caller promises that no two live parts overlap; so
// sharing it among threads is like sending them disjoint `&mut [T]`, for which `T: Send` suffices.
unsafe impl<T: Send> Sync for Parts<'_, T> {}

impl<'a, T> Parts<'a, T> {
    pub(crate) fn new(data: &'a mut [T]) -> Self {
        Parts { data: data.as_mut_ptr(), len: data.len(), lifetime: PhantomData }
    }

    /// The address of element `start`, of which `len` elements follow: for parts that are no
    /// slices, since others have what lies between. What is done with it is up to the caller.
    pub(crate) fn address(&self, start: usize, len: usize) -> *mut T {
        assert!(start <= self.len && len <= self.len - start);
        self.data.wrapping_add(start)
    }

    /// The part `start..start + len`, shortened where it would pass the end.
    ///
    /// # Safety
    /// While the result lives, no other part that overlaps it exists.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn part(&self, start: usize, len: usize) -> &'a mut [T] {
        let start = start.min(self.len);
        let len = len.min(self.len - start);
        // SAFETY: the range lies in the slice borrowed for 'a, and the caller promises that it is
        // not aliased.
        unsafe { core::slice::from_raw_parts_mut(self.data.add(start), len) }
    }
}

/// Most threads of which each has jobs of its own to begin with; others take what these leave.
/// Firmware has one thread.
#[cfg(target_has_atomic = "ptr")]
const RANGES: usize = if cfg!(feature = "std") { 32 } else { 1 };

/// The jobs that are left: a range for each thread, and how many of it were taken.
#[cfg(target_has_atomic = "ptr")]
struct Left {
    taken: [core::sync::atomic::AtomicUsize; RANGES],
    ranges: usize,
    jobs: usize,
}

/// The jobs that thread number `own` takes: those of its own range, then what the others have left.
/// So computations that cut their work alike find what the one before left in the caches of the
/// same processor; another one's cost as much as memory.
#[cfg(target_has_atomic = "ptr")]
struct Indices<'a> {
    left: &'a Left,
    own: usize,
    /// Ranges that were seen to the end.
    done: usize,
}

#[cfg(target_has_atomic = "ptr")]
impl Iterator for Indices<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let &Left { ref taken, ranges, jobs } = self.left;
        if RANGES == 1 {
            let index = taken[0].fetch_add(1, core::sync::atomic::Ordering::Relaxed);
            return (index < jobs).then_some(index);
        }
        let begin = |range: usize| jobs / ranges * range + (jobs % ranges).min(range);
        while self.done < ranges {
            let range = (self.own + self.done) % ranges;
            let (from, to) = (begin(range), begin(range + 1));
            let at = taken[range].fetch_add(1, core::sync::atomic::Ordering::Relaxed);
            if at < to - from {
                return Some(from + at);
            }
            self.done += 1;
        }
        None
    }
}

/// Calls `job(index, workspace)` once for each index in `0..jobs`, with a workspace of its own of
/// `slot_len` elements.
///
/// As many threads take part as there are threads, jobs, and workspaces in `workspace`. With less
/// than one slot of workspace everything runs on this thread and gets what there is. Jobs that have
/// not begun when the run is [cancelled](Parallel::is_cancelled) are left out.
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
            let taken = [const { AtomicUsize::new(0) }; RANGES];
            let left = Left { taken, ranges: slots.min(RANGES), jobs };
            let parts = Parts::new(&mut *workspace);
            parallel.run(slots, &|own| {
                let slot = next_slot.fetch_add(1, Relaxed);
                if slot >= slots {
                    return;
                }
                // SAFETY: the counter gives each slot number out once, and slots are `slot_len`
                // apart; `slots * slot_len` is at most the length of the workspace, so the product
                // does not overflow.
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
    // Also where the processor has no atomic addition: there is one thread then.
    let _ = slot_len;
    for index in 0..jobs {
        if is_cancelled(parallel) {
            return;
        }
        job(index, workspace);
    }
}

/// Whether the run was [cancelled](Parallel::is_cancelled). Firmware cancels between instructions:
/// asking more often would take flash.
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

/// As [`for_each_chunk_mut`], with a workspace of `slot_len` elements for each call (see
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
        // overlap; the start is less than the length, so the product does not overflow.
        task(index, unsafe { parts.part(index * chunk_len, chunk_len) }, workspace);
    });
}

/// Calls `task(index, chunks)` once for each index: `chunks` are the parts of the slices that begin
/// at `index` times their chunk length; the last may be shorter. There are as many indices as the
/// first slice has chunks.
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
        // overlap (where the product saturates, `part` is empty).
        let chunk =
            |i: usize| unsafe { parts[i].part(index.saturating_mul(chunk_lens[i]), chunk_lens[i]) };
        task(index, core::array::from_fn(chunk));
    });
}

/// Some columns of a matrix, for writing: a part of each of its rows.
pub struct Columns<'a, T> {
    parts: &'a Parts<'a, T>,
    start: usize,
    len: usize,
    width: usize,
}

impl<T> Columns<'_, T> {
    /// The columns' part of a row, empty behind the last.
    pub fn row(&mut self, row: usize) -> &mut [T] {
        let at = row.saturating_mul(self.width).saturating_add(self.start);
        // SAFETY: parts of the same columns do not overlap between rows, nor within a row with
        // those of other columns, which `for_each_columns_mut` made; the borrow of `self` keeps two
        // parts of these from living together.
        unsafe { self.parts.part(at, self.len) }
    }
}

/// Cuts a matrix of rows of `width` elements into groups of `columns` columns, of which the last
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

/// A rectangle of a matrix, for writing.
pub struct Tile<'a, T> {
    columns: Columns<'a, T>,
    rows: core::ops::Range<usize>,
}

impl<T> Tile<'_, T> {
    /// The tile's part of a row of the matrix, empty if the tile lacks the row.
    pub fn row(&mut self, row: usize) -> &mut [T] {
        if self.rows.contains(&row) { self.columns.row(row) } else { &mut [] }
    }

    /// The address of the first element of some rows and some of the tile's columns, all of which
    /// the tile has, and how far apart rows are: for vectors, which are written there while the
    /// tile is borrowed. What is done with it is up to the caller.
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

    /// The rows of the matrix that the tile has a part of.
    pub fn rows(&self) -> core::ops::Range<usize> {
        self.rows.clone()
    }
}

/// Cuts a matrix of rows of `width` elements into tiles of `rows` by `columns`, of which the last
/// may be smaller, and calls `task(first column, tile, workspace)` once for each, with a workspace
/// of `slot_len` elements (see [`for_each_job`]).
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

/// As [`for_each_tile_mut`], where columns come in parts that are so wide: tiles of some of the
/// parts, none of which has columns of two. Calls
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
    // There are fewer than twice the elements, of which a slice has at most `isize::MAX` bytes.
    let jobs = down * across * some.len();
    for_each_job(parallel, jobs, workspace, slot_len, &|index, workspace| {
        let (index, start) = (index / across, index % across * columns);
        let (part, first) = (some.start + index / down, index % down * rows);
        // Tiles of different indices have no element in common: their rows differ, or their columns
        // do.
        let from = part * wide + start;
        let len = columns.min(wide - start).min(width.saturating_sub(from));
        let columns = Columns { parts: &parts, start: from, len, width };
        let mut tile = Tile { columns, rows: first..(first + rows).min(count) };
        task([part, start], &mut tile, workspace);
    });
}

/// Whether all of the tasks that threads share went well.
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
    /// One of the tasks failed.
    pub(crate) fn result(self) -> Result<(), ShapeMismatch> {
        if self.failed.into_inner() { Err(ShapeMismatch) } else { Ok(()) }
    }
}

/// How many of some tiles a part has, at most `most` and at least two for each thread, so that
/// threads have as many of them as they can.
#[cfg(feature = "engine")]
pub(crate) fn even_part(threads: usize, tiles: usize, most: usize) -> usize {
    if threads <= 1 {
        return most.clamp(1, tiles.max(1));
    }
    let fewest = tiles.div_ceil(most.max(1)).max(threads * 2).next_multiple_of(threads);
    // What the thread with most of it has.
    let load = |parts: &usize| tiles.div_ceil(*parts) * (parts / threads);
    let counts = (fewest..=fewest * 2).step_by(threads);
    tiles.div_ceil(counts.min_by_key(load).unwrap_or(fewest)).max(1)
}

/// The most grains of a chunk: some milliseconds of work, after which a kernel looks whether the
/// run was cancelled.
const MAX_GRAINS: usize = 128;

/// A chunk length for `len` elements of which one thread should get at least `grain`: about four
/// chunks for each thread, so that dealing them out evens the load, and at most [`MAX_GRAINS`].
pub(crate) fn chunk_len(parallel: &dyn Parallel, len: usize, grain: usize) -> usize {
    chunk_of_work(parallel, len, 1, grain)
}

/// As [`chunk_len`], for elements (such as rows) that cost `work` each; `grain` is the least work
/// worth another thread.
pub(crate) fn chunk_of_work(
    parallel: &dyn Parallel,
    len: usize,
    work: usize,
    grain: usize,
) -> usize {
    let (threads, work) = (parallel.threads(), work.max(1));
    let most = match cfg!(feature = "std") {
        true => (grain.saturating_mul(MAX_GRAINS) / work).max(1),
        false => usize::MAX,
    };
    if threads <= 1 {
        return len.min(most).max(1);
    }
    len.div_ceil(threads.saturating_mul(4)).min(most).max(grain / work).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "engine")]
    #[test]
    fn threads_have_nearly_as_many_tiles() {
        for (threads, tiles, most) in
            [(2, 66, 18), (2, 131, 9), (3, 100, 40), (2, 2, 10), (4, 3, 1)]
        {
            let part = even_part(threads, tiles, most);
            assert!((1..=most).contains(&part), "{threads} {tiles} {most}");
            // Whole parts are dealt out by turns.
            let load = tiles.div_ceil(part).div_ceil(threads) * part;
            assert!(load <= tiles.div_ceil(threads) + 1, "{threads} {tiles} {most}: {part}");
        }
        assert_eq!(even_part(1, 66, 18), 18);
        assert_eq!(even_part(1, 5, 18), 5);
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

    /// Calls every task twice, from two threads: wrong, but it must not be unsound.
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
    fn a_parallel_that_repeats_tasks_is_harmless() {
        let mut data = vec![0u32; 1000];
        for_each_chunk_mut(&Twice, &mut data, 3, &|_, part| part.iter_mut().for_each(|x| *x += 1));
        assert!(data.iter().all(|&x| x == 1));
    }

    /// Calls the last task first, all from one thread.
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
    fn a_thread_begins_with_its_part_and_takes_what_others_leave() {
        let order = std::sync::Mutex::new(Vec::new());
        for_each_job::<()>(&Backwards, 8, &mut [], 0, &|job, _| order.lock().unwrap().push(job));
        assert_eq!(order.into_inner().unwrap(), [6, 7, 0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn several_slices_are_cut_alike() {
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
    fn tiles_of_some_parts_leave_the_rest() {
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
