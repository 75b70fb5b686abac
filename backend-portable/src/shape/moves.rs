//! Strided copies of elements of any type, dispatched by element size.
//!
//! [`copy`] fills a dense output from an input with arbitrary strides. Contiguous runs use
//! `memcpy`. If the input is contiguous over another dim than the output, both are traversed in
//! square tiles, so that each cache line is fetched once. Large copies are divided among threads.

use crate::compute::split::{chunk_len, for_each_chunk_mut};
use crate::walk::Walk;
use torchlet_core::Parallel;

/// A plain data type with the size of an element.
pub(crate) trait Item: bytemuck::Pod + Send + Sync + PartialEq {}
impl Item for u8 {}
impl Item for u16 {}
impl Item for u32 {}
impl Item for u64 {}
/// 16 bytes, for complex doubles, which have the alignment of their parts.
impl Item for [u64; 2] {}

/// Result type of a [`by_size!`] body. The body is skipped if no tensor of the firmware has
/// elements of that size.
pub(crate) trait Done {
    fn done() -> Self;
}

impl Done for () {
    fn done() {}
}

impl<E> Done for Result<(), E> {
    fn done() -> Self {
        Ok(())
    }
}

/// Runs `$body` with `$E` bound to a plain data type of `$size` bytes.
macro_rules! by_size {
    ($size:expr, |$E:ident| $body:expr) => {
        match $size {
            1 if $crate::types::has_size::<1>() => {
                type $E = u8;
                $body
            }
            2 if $crate::types::has_size::<2>() => {
                type $E = u16;
                $body
            }
            4 if $crate::types::has_size::<4>() => {
                type $E = u32;
                $body
            }
            8 if $crate::types::has_size::<8>() => {
                type $E = u64;
                $body
            }
            16 if $crate::types::has_size::<16>() => {
                type $E = [u64; 2];
                $body
            }
            _ => $crate::shape::moves::Done::done(),
        }
    };
}
pub(crate) use by_size;

/// Minimum number of bytes per thread.
const GRAIN_BYTES: usize = 64 * 1024;
/// Whether the processor is assumed to have caches, which tiling requires.
const HAS_CACHE: bool = cfg!(any(feature = "std", target_pointer_width = "64"));
/// Tile size for transposing: a cache line of 4-byte elements.
const TILE: usize = 16;
/// Number of output rows per band of tiles.
const BAND: usize = 4 * TILE;

/// Casts bytes to items; misaligned bytes yield an empty slice.
pub(crate) fn items<E: Item>(bytes: &[u8]) -> &[E] {
    bytemuck::try_cast_slice(bytes).unwrap_or(&[])
}

/// Like [`items`], mutable.
pub(crate) fn items_mut<E: Item>(bytes: &mut [u8]) -> &mut [E] {
    bytemuck::try_cast_slice_mut(bytes).unwrap_or(&mut [])
}

/// Fills the whole output, whose elements have `size` bytes.
pub(crate) fn copy(
    parallel: &dyn Parallel,
    size: usize,
    walk: &Walk<1>,
    input: &[u8],
    out: &mut [u8],
) {
    by_size!(size, |E| copy_items::<E>(parallel, walk, items(input), items_mut(out)));
}

/// Like [`copy`], for typed items.
pub(crate) fn copy_items<E: Item>(
    parallel: &dyn Parallel,
    walk: &Walk<1>,
    input: &[E],
    out: &mut [E],
) {
    if out.is_empty() || walk.numel() != out.len() {
        return;
    }
    let grain = chunk_len(parallel, out.len(), GRAIN_BYTES / size_of::<E>());
    if HAS_CACHE && let Some(transposed) = Transposed::find(walk) {
        let rows = (grain / transposed.row_len).max(1).next_multiple_of(TILE);
        let chunk = rows.saturating_mul(transposed.row_len);
        for_each_chunk_mut(parallel, out, chunk, &|index, part: &mut [E]| {
            transposed.copy(index * rows, input, part);
        });
        return;
    }
    for_each_chunk_mut(parallel, out, grain, &|index, part: &mut [E]| {
        copy_range(walk, index * grain, input, part);
    });
}

/// Fills output positions from `from` on.
pub(crate) fn copy_range<E: Item>(walk: &Walk<1>, from: usize, input: &[E], out: &mut [E]) {
    let [step] = walk.inner_steps();
    walk.for_each_run(from, from + out.len(), &mut |start, [at], len| {
        if let Some(target) = out.get_mut(start - from..start - from + len) {
            copy_run(input, at, step, target);
        }
    });
}

/// Fills `out` from elements of `input` with stride `step`. Positions outside `input` are skipped;
/// they cannot occur after a kernel's checks.
#[inline]
pub(crate) fn copy_run<E: Item>(input: &[E], at: isize, step: isize, out: &mut [E]) {
    let Ok(first) = usize::try_from(at) else { return };
    match step {
        1 => {
            if let Some(source) = input.get(first..first.saturating_add(out.len())) {
                out.copy_from_slice(source);
            }
        }
        0 => {
            if let Some(value) = input.get(first) {
                out.fill(*value);
            }
        }
        _ => {
            let stride = step.unsigned_abs();
            if step > 0 {
                let source = input.get(first..).unwrap_or(&[]).iter().step_by(stride);
                out.iter_mut().zip(source).for_each(|(out, value)| *out = *value);
            } else {
                let source = input.get(..=first).unwrap_or(&[]).iter().rev().step_by(stride);
                out.iter_mut().zip(source).for_each(|(out, value)| *out = *value);
            }
        }
    }
}

/// Writes elements to `out` with stride `step`.
pub(crate) fn write_run<E: Item>(out: &mut [E], at: isize, step: isize, values: &[E]) {
    let Ok(first) = usize::try_from(at) else { return };
    if step == 1 {
        if let Some(target) = out.get_mut(first..first.saturating_add(values.len())) {
            target.copy_from_slice(values);
        }
        return;
    }
    let mut position = at;
    for value in values {
        if let Some(target) = usize::try_from(position).ok().and_then(|at| out.get_mut(at)) {
            *target = *value;
        }
        position = position.wrapping_add(step);
    }
}

/// A copy whose input is contiguous over another dim than the output's innermost.
struct Transposed<'w> {
    sizes: &'w [usize],
    steps: &'w [[isize; 1]],
    base: isize,
    /// Level of the walk over which the input is contiguous.
    level: usize,
    /// Number of output elements for each index of that level.
    row_len: usize,
}

impl<'w> Transposed<'w> {
    /// Finds the level to tile over; `None` if tiling has no benefit.
    fn find(walk: &'w Walk<1>) -> Option<Self> {
        let (sizes, steps, [base]) = walk.levels();
        let (last_size, [last_step]) = (sizes.last()?, steps.last()?);
        if last_step.unsigned_abs() <= 1 || *last_size < 4 {
            return None;
        }
        let level = steps.iter().position(|step| *step == [1])?;
        if *sizes.get(level)? < 4 {
            return None;
        }
        let row_len = sizes.get(level + 1..)?.iter().product();
        Some(Transposed { sizes, steps, base, level, row_len })
    }

    /// Fills whole output rows, from row `first` on.
    fn copy<E: Item>(&self, first: usize, input: &[E], out: &mut [E]) {
        let Some(&along) = self.sizes.get(self.level) else { return };
        let rows = out.len() / self.row_len.max(1);
        let mut done = 0;
        while done < rows {
            // Rows that are adjacent in the input.
            let inner = (first + done) % along;
            let count = (along - inner).min(rows - done);
            let mut outer = (first + done) / along;
            let mut at = self.base.wrapping_add(inner as isize);
            for (&size, &[step]) in self.sizes.iter().zip(self.steps).take(self.level).rev() {
                at = at.wrapping_add(step.wrapping_mul((outer % size) as isize));
                outer /= size;
            }
            let range = done * self.row_len..(done + count) * self.row_len;
            self.rows(at, input, out.get_mut(range).unwrap_or_default());
            done += count;
        }
    }

    /// Fills output rows that are adjacent in the input, from input position `at` on.
    fn rows<E: Item>(&self, at: isize, input: &[E], out: &mut [E]) {
        let middle = self.sizes.get(self.level + 1..self.sizes.len() - 1).unwrap_or(&[]);
        let middle_steps = self.steps.get(self.level + 1..).unwrap_or(&[]);
        let (Some(&columns), Some(&[step])) = (self.sizes.last(), self.steps.last()) else {
            return;
        };
        for index in 0..middle.iter().product() {
            let (mut rest, mut from) = (index, at);
            for (&size, &[step]) in middle.iter().zip(middle_steps).rev() {
                from = from.wrapping_add(step.wrapping_mul((rest % size) as isize));
                rest /= size;
            }
            let target = out.get_mut(index * columns..).unwrap_or_default();
            transpose(input, from, step, target, self.row_len, columns);
        }
    }
}

/// Transposes: fills rows of `columns` elements, whose stride in `out` is `stride`. Column `c` of
/// row `r` is the element of `input` at `at + r + c * step`.
fn transpose<E: Item>(
    input: &[E],
    at: isize,
    step: isize,
    out: &mut [E],
    stride: usize,
    columns: usize,
) {
    let rows = (out.len().saturating_sub(columns)) / stride + 1;
    // Processes several tiles that are adjacent in the input, so that whole runs of its cache lines
    // are read together.
    for band in (0..rows).step_by(BAND) {
        for left in (0..columns).step_by(TILE) {
            let width = TILE.min(columns - left);
            for top in (band..rows.min(band + BAND)).step_by(TILE) {
                let height = TILE.min(rows - top);
                let from =
                    at.wrapping_add(top as isize).wrapping_add(step.wrapping_mul(left as isize));
                let target = out.get_mut(top * stride + left..).unwrap_or_default();
                if height == TILE && width == TILE {
                    tile::<E>(input, from, step, target, stride);
                } else {
                    edge(input, from, step, target, stride, height, width);
                }
            }
        }
    }
}

/// Copies a whole tile, read by input rows and written by output rows.
#[inline]
fn tile<E: Item>(input: &[E], at: isize, step: isize, out: &mut [E], stride: usize) {
    let mut block = [[E::zeroed(); TILE]; TILE];
    let mut from = at;
    for line in &mut block {
        let source = usize::try_from(from).ok().and_then(|from| input.get(from..));
        if let Some(source) = source.and_then(|source| source.first_chunk::<TILE>()) {
            *line = *source;
        }
        from = from.wrapping_add(step);
    }
    for row in 0..TILE {
        let target = out.get_mut(row * stride..).and_then(|out| out.first_chunk_mut::<TILE>());
        if let Some(target) = target {
            *target = core::array::from_fn(|column| block[column][row]);
        }
    }
}

/// Copies a partial tile.
fn edge<E: Item>(
    input: &[E],
    at: isize,
    step: isize,
    out: &mut [E],
    stride: usize,
    height: usize,
    width: usize,
) {
    for row in 0..height {
        if let Some(target) = out.get_mut(row * stride..row * stride + width) {
            copy_run(input, at.wrapping_add(row as isize), step, target);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use torchlet_core::rules::View;
    use torchlet_core::{ScalarType, Serial, TensorInfo};

    /// Reference copy, element by element.
    fn expected(view: &View, input: &[u32]) -> Vec<u32> {
        let numel: i32 = view.sizes().iter().product();
        let mut out = Vec::new();
        for index in 0..numel {
            let (mut rest, mut at) = (index, view.base());
            for (&size, &step) in view.sizes().iter().zip(view.strides()).rev() {
                at += step * (rest % size) as isize;
                rest /= size;
            }
            out.push(input[at as usize]);
        }
        out
    }

    fn check(view: &View, input: &[u32]) {
        let info = TensorInfo::contiguous(ScalarType::Int, view.sizes()).unwrap();
        let walk = crate::shape::walk_of(&info, view).unwrap();
        let expected = expected(view, input);
        let mut out = vec![0u32; expected.len()];
        copy_items(&Serial, &walk, input, &mut out);
        assert_eq!(out, expected, "{view:?}");
        let pool = crate::ThreadPool::new(3);
        let mut out = vec![0u32; expected.len()];
        copy_items(&pool, &walk, input, &mut out);
        assert_eq!(out, expected, "{view:?} in parallel");
    }

    #[cfg(feature = "std")]
    #[test]
    fn copies_every_permutation() {
        for sizes in [[2, 3, 4, 5], [17, 1, 33, 16], [4, 40, 5, 37], [3, 16, 16, 48]] {
            let info = TensorInfo::contiguous(ScalarType::Int, &sizes).unwrap();
            let input: Vec<u32> = (0..info.numel() as u32).collect();
            let view = View::of(&info).unwrap();
            for code in 0..256i64 {
                let dims = [code & 3, code >> 2 & 3, code >> 4 & 3, code >> 6];
                if let Some(view) = view.clone().permute(&dims) {
                    check(&view, &input);
                    check(&view.clone().flip(&[1, 3]).unwrap(), &input);
                    check(&view.slice(2, Some(1), None, 2).unwrap(), &input);
                }
            }
        }
    }

    #[cfg(feature = "std")]
    #[test]
    fn large_copies_run_in_parallel() {
        let info = TensorInfo::contiguous(ScalarType::Int, &[3, 130, 515]).unwrap();
        let input: Vec<u32> = (0..info.numel() as u32).collect();
        let view = View::of(&info).unwrap();
        for dims in [[0, 2, 1], [2, 1, 0], [1, 0, 2], [2, 0, 1]] {
            check(&view.clone().permute(&dims).unwrap(), &input);
        }
    }

    /// Measures the throughput in bytes read and written per second. Run with
    /// `cargo test --release --features std -- --ignored --nocapture throughput`.
    #[cfg(feature = "std")]
    #[test]
    #[ignore = "a measurement"]
    fn throughput() {
        fn measure<E: Item>(name: &str, sizes: &[i32], dims: &[i64], threads: usize) {
            let info = TensorInfo::contiguous(ScalarType::Byte, sizes).unwrap();
            let view = View::of(&info).unwrap().permute(dims).unwrap();
            let out = TensorInfo::contiguous(ScalarType::Byte, view.sizes()).unwrap();
            let walk = crate::shape::walk_of(&out, &view).unwrap();
            let mut input = vec![E::zeroed(); info.numel()];
            // Writes the input first: pages that were never written all map to the same zero page.
            bytemuck::cast_slice_mut::<E, u8>(&mut input).fill(1);
            let mut target = vec![E::zeroed(); info.numel()];
            let pool = crate::ThreadPool::new(threads);
            let mut best = f64::MAX;
            for _ in 0..20 {
                let start = std::time::Instant::now();
                copy_items(&pool, &walk, &input, &mut target);
                best = best.min(start.elapsed().as_secs_f64());
            }
            let bytes = (2 * info.numel() * size_of::<E>()) as f64;
            std::println!(
                "{name}, {} bytes each, {threads} threads: {:.1} GB/s",
                size_of::<E>(),
                bytes / best / 1e9
            );
        }
        for threads in [1, 2] {
            measure::<u32>("copy", &[1, 64, 112, 112], &[0, 1, 2, 3], threads);
            measure::<u32>("NCHW to NHWC", &[1, 64, 112, 112], &[0, 2, 3, 1], threads);
            measure::<u32>("NHWC to NCHW", &[1, 112, 112, 64], &[0, 3, 1, 2], threads);
            measure::<u32>("NHWC to NCHW, 3 channels", &[1, 224, 224, 3], &[0, 3, 1, 2], threads);
            measure::<u32>("weight 1024x1024", &[1024, 1024], &[1, 0], threads);
            measure::<u32>("weight 1000x1280", &[1000, 1280], &[1, 0], threads);
            measure::<u32>("heads", &[1, 196, 12, 64], &[0, 2, 1, 3], threads);
            measure::<u16>("weight 1024x1024", &[1024, 1024], &[1, 0], threads);
            measure::<u8>("weight 1024x1024", &[1024, 1024], &[1, 0], threads);
            measure::<u64>("weight 1024x1024", &[1024, 1024], &[1, 0], threads);
        }
    }
}
