//! Resizing of images, with TOSA's fractions.

use super::{contiguous, expect_type, list};
use crate::compute::split::{chunk_of_work, for_each_chunk_mut};
use crate::number::{Compute, ComputeType, load, store};
use crate::shape::bad;
use crate::table::kernels;
use torchlet_core::Param::{Bool, IntList, Out, Tensor};
use torchlet_core::{Arguments, Elements, Invoke, Kernel, KernelError, Plan, ScalarType};

kernels! { RESIZING:
    /// `tosa::resize.out(input, scale, offset, border, bilinear, out)`: samples at
    /// `(index * denominator + offset) / numerator`, bilinearly or at the nearest element. `scale`
    /// has numerator and denominator for height, then for width. Bilinear results of integers keep
    /// the factor of both numerators.
    RESIZE_OUT = Kernel::new(
        "tosa::resize.out",
        &[Tensor, IntList, IntList, IntList, Bool, Out],
        |ctx| {
            use ScalarType::{BFloat16, Char, Float, Half, Int, Long, Short};
            let info = contiguous(ctx, 0, 4)?;
            let of = info.scalar_type;
            expect_type(ctx, 0, &[Char, Short, Half, BFloat16, Float])?;
            let made = match (of, ctx.bool(4)?) {
                (Char, true) => Int,
                (Short, true) => Long,
                _ => of,
            };
            expect_type(ctx, 5, &[made])?;
            let [tall, wide] = [0, 1].map(|at| Axis::of(ctx, at));
            let mut sizes = info.sizes.clone();
            for (size, axis) in sizes.iter_mut().skip(1).zip([tall?, wide?]) {
                *size = i32::try_from(axis.made).map_err(|_| bad(5, "too large"))?;
            }
            ctx.resize(5, &sizes)?;
            contiguous(ctx, 5, 4)?;
            Ok(Plan::new(match ComputeType::of(of) {
                Some(ComputeType::I64) => resize::<i64>,
                _ => resize::<f32>,
            }))
        },
    )
    .with_elements(Elements::Typed);
}

/// Minimum number of elements for each thread.
const GRAIN: usize = 1 << 12;

/// Number of channels that are resized at a time.
const BLOCK: usize = 64;

/// Geometry of height or width.
#[derive(Debug, Clone, Copy)]
struct Axis {
    size: usize,
    made: i64,
    numerator: i64,
    denominator: i64,
    offset: i64,
}

/// The two elements that a sample lies between, and its distance from the first, in units of the
/// numerator.
struct Sample {
    first: usize,
    second: usize,
    distance: i64,
}

impl Axis {
    fn of(ctx: &Arguments, at: usize) -> Result<Self, KernelError> {
        let scale = list::<4>(ctx, 1)?;
        let (numerator, denominator) = (scale[2 * at], scale[2 * at + 1]);
        let (offset, border) = (list::<2>(ctx, 2)?[at], list::<2>(ctx, 3)?[at]);
        let size = ctx.info(0)?.size(at + 1);
        if numerator <= 0 || denominator <= 0 || size == 0 {
            return Err(bad(1, "must be positive"));
        }
        // All factors fit into 32 bits.
        let room = (size as i64 - 1) * numerator - offset + border;
        let made = if room < 0 { 0 } else { room / denominator + 1 };
        Ok(Axis { size, made, numerator, denominator, offset })
    }

    fn sample(&self, at: usize) -> Sample {
        let place = (at as i64).saturating_mul(self.denominator).saturating_add(self.offset);
        let (whole, distance) =
            (place.div_euclid(self.numerator), place.rem_euclid(self.numerator));
        let last = self.size as i64 - 1;
        let inside = |at: i64| at.clamp(0, last) as usize;
        Sample { first: inside(whole), second: inside(whole.saturating_add(1)), distance }
    }

    /// The element nearest to a sample.
    fn nearest(&self, sample: &Sample) -> usize {
        match 2 * sample.distance >= self.numerator {
            true => sample.second,
            false => sample.first,
        }
    }
}

/// Weights of the two elements that a sample lies between.
trait Weights: Compute {
    fn weights(axis: &Axis, sample: &Sample) -> [Self; 2];
    fn sum(values: [[Self; 2]; 2], rows: [Self; 2], columns: [Self; 2]) -> Self;
}

impl Weights for f32 {
    fn weights(axis: &Axis, sample: &Sample) -> [f32; 2] {
        let part = sample.distance as f32 / axis.numerator as f32;
        [1.0 - part, part]
    }

    fn sum(values: [[f32; 2]; 2], rows: [f32; 2], columns: [f32; 2]) -> f32 {
        let row = |at: usize| values[at][0] * columns[0] + values[at][1] * columns[1];
        row(0) * rows[0] + row(1) * rows[1]
    }
}

impl Weights for i64 {
    fn weights(axis: &Axis, sample: &Sample) -> [i64; 2] {
        [axis.numerator - sample.distance, sample.distance]
    }

    fn sum(values: [[i64; 2]; 2], rows: [i64; 2], columns: [i64; 2]) -> i64 {
        let row = |at: usize| {
            let second = values[at][1].wrapping_mul(columns[1]);
            values[at][0].wrapping_mul(columns[0]).wrapping_add(second)
        };
        row(0).wrapping_mul(rows[0]).wrapping_add(row(1).wrapping_mul(rows[1]))
    }
}

fn resize<C: Weights>(ctx: &mut Invoke) -> Result<(), KernelError> {
    let input = ctx.tensor(0)?;
    let (tall, wide, bilinear) = (Axis::of(ctx, 0)?, Axis::of(ctx, 1)?, ctx.bool(4)?);
    let (from, channels) = (input.info().scalar_type, input.size(3).max(1));
    let out = ctx.out(5)?;
    let (to, size) = (out.info().scalar_type, out.info().scalar_type.size());
    let parallel = ctx.parallel();
    let count = chunk_of_work(parallel, out.info().numel() / channels, channels, GRAIN);
    for_each_chunk_mut(parallel, out.into_bytes(), count * channels * size, &|chunk, bytes| {
        for (number, bytes) in bytes.chunks_mut(channels * size).enumerate() {
            let position = chunk * count + number;
            let (width, height) = (wide.made.max(1) as usize, tall.made.max(1) as usize);
            let (x, rest) = (position % width, position / width);
            let (y, batch) = (rest % height, rest / height);
            let (row, column) = (tall.sample(y), wide.sample(x));
            let values = |y: usize, x: usize, first: usize, values: &mut [C]| {
                let at = ((batch * tall.size + y) * wide.size + x) * channels + first;
                load(from, input.bytes(), at as isize, 1, values);
            };
            let (rows, columns) = (C::weights(&tall, &row), C::weights(&wide, &column));
            for (number, bytes) in bytes.chunks_mut(BLOCK * size).enumerate() {
                let (first, count) = (number * BLOCK, bytes.len() / size);
                let mut corners = [[C::default(); BLOCK]; 4];
                let mut corner = |at: usize, y: usize, x: usize| {
                    values(y, x, first, corners[at].get_mut(..count).unwrap_or_default());
                };
                if bilinear {
                    corner(0, row.first, column.first);
                    corner(1, row.first, column.second);
                    corner(2, row.second, column.first);
                    corner(3, row.second, column.second);
                    for at in 0..count.min(BLOCK) {
                        let [a, b, c, d] = [0, 1, 2, 3].map(|corner| corners[corner][at]);
                        corners[0][at] = C::sum([[a, b], [c, d]], rows, columns);
                    }
                } else {
                    corner(0, tall.nearest(&row), wide.nearest(&column));
                }
                store(to, bytes, corners[0].get(..count).unwrap_or_default());
            }
        }
    });
    Ok(())
}
