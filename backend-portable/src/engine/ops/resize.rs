//! Constant padding, and upsampling with nearest-neighbour or bilinear interpolation.

use super::moves::{channels_last_order, copy};
use crate::compute::gemm::ShapeMismatch;
use crate::compute::simd::{Simd, Vectorized};
use crate::compute::split::{Outcome, chunk_of_work, for_each_chunk_mut};
use crate::engine::builder::{Builder, Refusal};
use crate::engine::plan::{Io, Step};
use crate::engine::view::dense_strides;
use crate::spatial::resample::{LinearTap, linear_taps};
use std::vec::Vec;
use torchlet_graph::graph::{Value, ValueId};
use torchlet_graph::operators::{ConstantPadArgs, UpsampleBilinearArgs, UpsampleNearestArgs};

/// Minimum number of interpolated elements for each thread.
const GRAIN: usize = 1 << 13;

/// Lowers `constant_pad_nd(self, pad, value)`. `pad` has two widths for each dim, before and after,
/// starting with the last dim.
pub(super) fn pad(builder: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Refusal> {
    let call = ConstantPadArgs::of(args)?;
    let input = builder.view(call.input)?;
    let pads = builder.integers(call.pad)?;
    let value = builder.optional_number(call.value)?.unwrap_or(0.0) as f32;
    let (pads, []) = pads.as_chunks::<2>() else {
        return Err("padding: expected two values per dim, found an odd count".into());
    };
    if pads.len() > input.sizes.len() {
        return Err(std::format!(
            "padding of {} dims for input shape {:?}",
            pads.len(),
            input.sizes
        ));
    }
    // The part of the input that negative padding keeps, the output shape, and for each padded dim
    // the range of that part in the output.
    let (mut kept, mut sizes) = (input.clone(), input.sizes.clone());
    let mut ranges = Vec::new();
    for (dim, [before, behind]) in (0..input.sizes.len()).rev().zip(pads) {
        let size = sizes.get(dim).copied().unwrap_or(0);
        let cut = |pad: i64| usize::try_from(pad.saturating_neg()).unwrap_or(0);
        let added = |pad: i64| usize::try_from(pad).unwrap_or(0);
        let end = size.saturating_sub(cut(*behind));
        kept = kept
            .sliced(dim, cut(*before), end, 1)
            .ok_or("negative padding that exceeds the input")?;
        let own = end - cut(*before);
        let all = own.checked_add(added(*before)).and_then(|all| all.checked_add(added(*behind)));
        if let Some(slot) = sizes.get_mut(dim) {
            *slot = all.ok_or("a padded shape that exceeds the address space")?;
        }
        ranges.push((dim, added(*before), own));
    }
    if sizes == kept.sizes {
        return builder.define(call.out, kept);
    }
    let result = builder.make_in_order(&sizes, &input.order())?;
    let mut inside = result.clone();
    for (dim, start, len) in ranges {
        let end = start.checked_add(len).ok_or("a padded shape that exceeds the address space")?;
        inside = inside
            .sliced(dim, start, end, 1)
            .ok_or("a padded shape that exceeds the address space")?;
    }
    builder.push(Fill { value }, &[], &result);
    copy(builder, &kept, &inside);
    builder.define(call.out, result)
}

/// Fills a buffer with a value.
struct Fill {
    value: f32,
}

impl Step for Fill {
    fn run(&self, io: Io<'_>) -> Result<(), ShapeMismatch> {
        io.out.fill(self.value);
        Ok(())
    }
}

/// Lowers `upsample_nearest2d(input, output_size, scale_factors)` if the scale factors are
/// integers, so that it is a strided copy.
pub(super) fn nearest(builder: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Refusal> {
    let call = UpsampleNearestArgs::of(args)?;
    let input = builder.view(call.input)?;
    let &[batch, channels, height, width] = &input.sizes[..] else {
        return Err(std::format!("upsampling of input shape {:?}; expected 4 dims", input.sizes));
    };
    let sizes = builder.integers(call.output_size)?;
    let factors: &[f64] = match builder.value(call.scale_factors) {
        Value::DoubleList(factors) => factors,
        _ => &[],
    };
    let mut times = [1usize; 2];
    for (dim, (slot, size)) in times.iter_mut().zip([height, width]).enumerate() {
        let (all, scale) = match (sizes.get(dim), factors.get(dim)) {
            (Some(all), _) => (usize::try_from(*all).unwrap_or(0), size as f32 / *all as f32),
            (None, Some(factor)) => ((size as f64 * factor) as usize, (1.0 / factor) as f32),
            (None, None) => {
                return Err("expected output_size or scale_factors, found neither".into());
            }
        };
        *slot = all / size.max(1);
        // The same index computation as the kernel.
        let is_even = (0..all).all(|at| (at as f32 * scale) as usize == at / (*slot).max(1));
        if *slot == 0 || *slot * size != all || !is_even {
            return Err("nearest-neighbour upsampling by a factor that is not an integer".into());
        }
    }
    let [tall, wide] = times;
    let sizes = [batch, channels, height * tall, width * wide];
    let result = builder.make_in_order(&sizes, &input.order())?;
    let split_sizes = [batch, channels, height, tall, width, wide];
    let target = result
        .reshaped(&split_sizes)
        .ok_or("internal error: an image cannot be split into pixels")?;
    let source = input.reshaped(&[batch, channels, height, 1, width, 1]);
    let source = source.and_then(|source| source.expanded(&split_sizes));
    copy(builder, &source.ok_or("internal error: an image cannot be split into pixels")?, &target);
    builder.define(call.out, result)
}

/// Lowers `upsample_bilinear2d(input, output_size, align_corners, scale_factors)`.
pub(super) fn bilinear(builder: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Refusal> {
    let call = UpsampleBilinearArgs::of(args)?;
    let input = builder.view(call.input)?;
    let &[batch, channels, height, width] = &input.sizes[..] else {
        return Err(std::format!("upsampling of input shape {:?}; expected 4 dims", input.sizes));
    };
    let corners = builder.truth(call.align_corners)?;
    let factors: &[f64] = match builder.value(call.scale_factors) {
        Value::DoubleList(factors) => factors,
        _ => &[],
    };
    let mut sizes = [0usize; 2];
    if let Value::None = builder.value(call.output_size) {
        for (slot, (size, factor)) in sizes.iter_mut().zip([height, width].iter().zip(factors)) {
            // As in the kernel: multiplied in double precision, then truncated.
            *slot = (*size as f64 * factor) as usize;
        }
    } else {
        let given = builder.integers(call.output_size)?;
        for (slot, size) in sizes.iter_mut().zip(given) {
            *slot = usize::try_from(size).unwrap_or(0);
        }
    }
    if sizes.contains(&0) || [channels, height, width].contains(&0) {
        return Err("empty images".into());
    }
    if sizes == [height, width] {
        return builder.define(call.out, input);
    }
    if sizes[0] == height || sizes[1] == width {
        return Err("bilinear upsampling that keeps the height or the width".into());
    }
    let result = [batch, channels, sizes[0], sizes[1]];
    let is_last =
        channels > 1 && input.has_strides(&dense_strides(&input.sizes, &channels_last_order(4)));
    let (input, order) = match is_last {
        true => (input, channels_last_order(4)),
        false => (builder.contiguous(&input)?, Vec::from([0, 1, 2, 3])),
    };
    let result = builder.make_in_order(&result, &order)?;
    if !builder.is_question() {
        let taps = |dim: usize, size: usize| -> Vec<LinearTap> {
            linear_taps(size, sizes[dim], corners, factors.get(dim).copied()).collect()
        };
        let (rows, columns) = (taps(0, height), taps(1, width));
        let inner = if is_last { channels } else { 1 };
        let image = [height, width * inner];
        builder.push(
            Bilinear { at: input.offset, image, inner, rows, columns },
            &[&input],
            &result,
        );
    }
    builder.define(call.out, result)
}

/// Step of bilinear interpolation.
struct Bilinear {
    /// Offset of the input in its buffer.
    at: usize,
    /// Number of rows per image, and of elements per row.
    image: [usize; 2],
    /// Number of elements per pixel.
    inner: usize,
    rows: Vec<LinearTap>,
    columns: Vec<LinearTap>,
}

impl Step for Bilinear {
    fn run(&self, io: Io<'_>) -> Result<(), ShapeMismatch> {
        let Io { inputs: [input, ..], out, context, .. } = io;
        let input = input.get(self.at..).ok_or(ShapeMismatch)?;
        let row = self.columns.len() * self.inner;
        let outcome = Outcome::default();
        let part = chunk_of_work(context.parallel, out.len() / row.max(1), row, GRAIN);
        for_each_chunk_mut(context.parallel, out, part.saturating_mul(row), &|index, out| {
            for (at, out) in out.chunks_exact_mut(row).enumerate() {
                let done = self.row(index * part + at, input).map(|between| {
                    let inner = self.inner;
                    context.tier.dispatch(Row { between, columns: &self.columns, inner, out })
                });
                outcome.note(done.flatten().ok_or(ShapeMismatch));
            }
        });
        outcome.result()
    }
}

impl Bilinear {
    /// Returns the two input rows that an output row interpolates, and their weights.
    fn row<'a>(&self, at: usize, input: &'a [f32]) -> Option<([&'a [f32]; 2], [f32; 2])> {
        let [rows, length] = self.image;
        let tap = self.rows.get(at % self.rows.len())?;
        let start = (at / self.rows.len()).checked_mul(rows.checked_mul(length)?)?;
        let [first, second] = tap.positions.map(|position| {
            input.get(start + position * length..).and_then(|row| row.get(..length))
        });
        Some(([first?, second?], tap.weights))
    }
}

/// Interpolation of one output row.
struct Row<'a> {
    between: ([&'a [f32]; 2], [f32; 2]),
    columns: &'a [LinearTap],
    inner: usize,
    out: &'a mut [f32],
}

impl Vectorized for Row<'_> {
    type Output = Option<()>;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> Option<()> {
        let Row { between: ([upper, lower], [above, below]), columns, inner, out } = self;
        for (tap, out) in columns.iter().zip(out.chunks_exact_mut(inner)) {
            let [left, right] = tap.weights;
            let [first, second] = tap.positions.map(|position| position * inner);
            let around = [upper, lower].map(|row| {
                [first, second].map(|at| row.get(at..).and_then(|row| row.get(..inner)))
            });
            let [[Some(a), Some(b)], [Some(c), Some(d)]] = around else { return None };
            for ((((out, a), b), c), d) in out.iter_mut().zip(a).zip(b).zip(c).zip(d) {
                *out = above * (left * a + right * b) + below * (left * c + right * d);
            }
        }
        Some(())
    }
}
