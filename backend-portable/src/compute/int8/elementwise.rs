//! Element-wise operations on int8: quantize, dequantize, requantize, arithmetic and table lookups.

use super::{Range, rescale};
use crate::compute::gemm::Context;
use crate::compute::simd::{Simd, Vectorized};
use crate::compute::split::{chunk_len, for_each_chunk_mut};

/// Minimum number of elements for each thread.
const GRAIN: usize = 1 << 14;

/// Affine quantization parameters: a quantized value `q` represents `(q - zero) * scale`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scaled {
    /// Scale.
    pub(crate) scale: f32,
    /// Zero point.
    pub(crate) zero: i32,
}

impl Scaled {
    #[inline(always)]
    fn value(self, q: i8) -> f32 {
        (i32::from(q) - self.zero) as f32 * self.scale
    }
}

/// Runs a loop over parts of `out` in parallel, compiled for the tier's instruction set. The loop
/// receives the offset of its part.
fn in_parts<T: Send>(
    context: Context<'_>,
    out: &mut [T],
    run: impl Fn(usize, &mut [T]) + Copy + Sync,
) {
    struct Part<'a, T, F>(usize, &'a mut [T], F);
    impl<T, F: Fn(usize, &mut [T])> Vectorized for Part<'_, T, F> {
        type Output = ();
        #[inline(always)]
        fn run<S: Simd>(self, _: S) {
            (self.2)(self.0, self.1);
        }
    }
    let part = chunk_len(context.parallel, out.len(), GRAIN);
    for_each_chunk_mut(context.parallel, out, part, &|index, out| {
        context.tier.dispatch(Part(index * part, out, run));
    });
}

/// Trims two operands, from element `first` on, and the output to a common length. The loops are
/// counted for the reason given in `vnni.rs`.
#[inline(always)]
fn trimmed<'a, 'o>(
    [a, b]: [&'a [i8]; 2],
    first: usize,
    out: &'o mut [i8],
) -> (&'a [i8], &'a [i8], &'o mut [i8]) {
    let (a, b) = (a.get(first..).unwrap_or_default(), b.get(first..).unwrap_or_default());
    let count = out.len().min(a.len()).min(b.len());
    (&a[..count], &b[..count], &mut out[..count])
}

/// Quantizes values, up to the shorter length. NaN becomes 0, as in PyTorch.
pub(crate) fn quantize(
    context: Context<'_>,
    values: &[f32],
    scale: f32,
    range: Range,
    out: &mut [i8],
) {
    let inverse = 1.0 / scale;
    in_parts(
        context,
        out,
        #[inline(always)]
        |first, out| {
            let values = values.get(first..).unwrap_or_default();
            let count = out.len().min(values.len());
            let (out, values) = (&mut out[..count], &values[..count]);
            for at in 0..count {
                let q = range.quantize(values[at] * inverse);
                out[at] = if values[at].is_nan() { 0 } else { q };
            }
        },
    );
}

/// Dequantizes values, up to the shorter length.
pub(crate) fn dequantize(context: Context<'_>, quantized: &[i8], from: Scaled, out: &mut [f32]) {
    in_parts(
        context,
        out,
        #[inline(always)]
        |first, out| {
            let quantized = quantized.get(first..).unwrap_or_default();
            let count = out.len().min(quantized.len());
            let (out, quantized) = (&mut out[..count], &quantized[..count]);
            for at in 0..count {
                out[at] = from.value(quantized[at]);
            }
        },
    );
}

/// Computes the quantized `a + alpha * b`, requantized to `scale`.
pub(crate) fn add(
    context: Context<'_>,
    [a, b]: [(&[i8], Scaled); 2],
    alpha: f32,
    scale: f32,
    range: Range,
    out: &mut [i8],
) {
    let inverse = 1.0 / scale;
    in_parts(
        context,
        out,
        #[inline(always)]
        |first, out| {
            let (a_quantized, b_quantized, out) = trimmed([a.0, b.0], first, out);
            for at in 0..out.len() {
                let sum = a.1.value(a_quantized[at]) + b.1.value(b_quantized[at]) * alpha;
                out[at] = range.quantize(sum * inverse);
            }
        },
    );
}

/// Computes the quantized `a * b`, requantized to `scale`.
pub(crate) fn mul(
    context: Context<'_>,
    [a, b]: [(&[i8], Scaled); 2],
    scale: f32,
    range: Range,
    out: &mut [i8],
) {
    // The integer product is exact and is scaled once.
    let factor = a.1.scale * b.1.scale / scale;
    in_parts(
        context,
        out,
        #[inline(always)]
        |first, out| {
            let (a_quantized, b_quantized, out) = trimmed([a.0, b.0], first, out);
            for at in 0..out.len() {
                let (a_value, b_value) = (i32::from(a_quantized[at]), i32::from(b_quantized[at]));
                let product = (a_value - a.1.zero) * (b_value - b.1.zero);
                out[at] = range.quantize(product as f32 * factor);
            }
        },
    );
}

/// Functions of int8 values to `i32`, as tables from -128 on.
pub(crate) type Tables = [[i32; TABLE_LEN]; 2];

/// An operation on two integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Add,
    Subtract,
    Multiply,
}

/// Computes an operation on functions of two operands, rescaled by a factor of
/// [`Exact`](super::Exact).
pub(crate) fn rescaled(
    context: Context<'_>,
    operands: [&[i8]; 2],
    tables: &Tables,
    operation: Operation,
    (multiplier, shift): (i32, i32),
    range: Range,
    out: &mut [i8],
) {
    let shift = shift.clamp(1, 62);
    in_parts(
        context,
        out,
        #[inline(always)]
        |first, out| {
            let (a, b, out) = trimmed(operands, first, out);
            for at in 0..out.len() {
                let a = tables[0][usize::from(a[at].cast_unsigned() ^ 128)];
                let b = tables[1][usize::from(b[at].cast_unsigned() ^ 128)];
                let result = match operation {
                    Operation::Add => a.wrapping_add(b),
                    Operation::Subtract => a.wrapping_sub(b),
                    Operation::Multiply => a.wrapping_mul(b),
                };
                out[at] = range.place(rescale(result, multiplier, shift));
            }
        },
    );
}

/// Requantizes values to other parameters.
pub(crate) fn requantize(
    context: Context<'_>,
    quantized: &[i8],
    from: Scaled,
    scale: f32,
    range: Range,
    out: &mut [i8],
) {
    let inverse = 1.0 / scale;
    in_parts(
        context,
        out,
        #[inline(always)]
        |first, out| {
            let quantized = quantized.get(first..).unwrap_or_default();
            let count = out.len().min(quantized.len());
            let (out, quantized) = (&mut out[..count], &quantized[..count]);
            for at in 0..count {
                out[at] = range.quantize(from.value(quantized[at]) * inverse);
            }
        },
    );
}

/// Number of int8 values.
pub(crate) const TABLE_LEN: usize = 256;

/// Table lookup; the first entry belongs to -128.
pub(crate) fn lookup(
    context: Context<'_>,
    quantized: &[i8],
    table: &[i8; TABLE_LEN],
    out: &mut [i8],
) {
    let part = chunk_len(context.parallel, out.len(), GRAIN);
    for_each_chunk_mut(context.parallel, out, part, &|index, out| {
        let quantized = quantized.get(index * part..).unwrap_or_default();
        #[cfg(target_arch = "x86_64")]
        if super::vbmi::lookup(context.tier, quantized, table, out) {
            return;
        }
        for (out, q) in out.iter_mut().zip(quantized) {
            *out = table[usize::from(q.cast_unsigned() ^ 128)];
        }
    });
}

/// Max pooling of quantized images, channels last. Max pooling needs no requantization. Returns
/// `None` if `images` is too short.
pub(crate) fn max_pool(
    context: Context<'_>,
    windows: &super::windows::Windows,
    images: &[i8],
    out: &mut [i8],
) -> Option<()> {
    let [height, width, channels] = windows.input;
    let ([rows, cols], output) = (windows.axes, windows.output);
    let line = output[1].checked_mul(channels)?;
    let pictures_there = (out.len() / line.max(1)).div_ceil(output[0].max(1));
    if images.len() < pictures_there.checked_mul(windows.image())? || line == 0 {
        return None;
    }
    for_each_chunk_mut(context.parallel, out, line, &|row, out| {
        let (image, y) = (row / output[0], row % output[0]);
        let image = images.get(image * windows.image()..).unwrap_or_default();
        let tall = rows.taps(y, height);
        for (x, out) in out.chunks_exact_mut(channels).enumerate() {
            let wide = cols.taps(x, width);
            out.fill(i8::MIN);
            for row in 0..tall.count {
                for col in 0..wide.count {
                    let y = tall.start + row * rows.dilation();
                    let x = wide.start + col * cols.dilation();
                    let quantized = image.get((y * width + x) * channels..).unwrap_or_default();
                    let count = out.len().min(quantized.len());
                    let (out, quantized) = (&mut out[..count], &quantized[..count]);
                    for at in 0..count {
                        out[at] = out[at].max(quantized[at]);
                    }
                }
            }
        }
    });
    Some(())
}
