//! Between codes and numbers, element by element.

use super::Range;
use crate::compute::gemm::Context;
use crate::compute::simd::{Simd, Vectorized};
use crate::compute::split::{chunk_len, for_each_chunk_mut};

/// Elements that are worth a thread of their own.
const GRAIN: usize = 1 << 14;

/// What codes of a tensor stand for: `(code - zero) * scale`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scaled {
    /// The step from one code to the next.
    pub(crate) scale: f32,
    /// The code of zero.
    pub(crate) zero: i32,
}

impl Scaled {
    #[inline(always)]
    fn number(self, code: i8) -> f32 {
        (i32::from(code) - self.zero) as f32 * self.scale
    }
}

/// Runs a loop over parts of a result, compiled for the machine's instructions, on its threads. It
/// gets where a part begins.
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

/// What there is of two operands from one element on, and of a result. Loops over these count: see
/// `vnni.rs`.
#[inline(always)]
fn alike<'a, 'o>(
    [a, b]: [&'a [i8]; 2],
    first: usize,
    out: &'o mut [i8],
) -> (&'a [i8], &'a [i8], &'o mut [i8]) {
    let (a, b) = (a.get(first..).unwrap_or_default(), b.get(first..).unwrap_or_default());
    let count = out.len().min(a.len()).min(b.len());
    (&a[..count], &b[..count], &mut out[..count])
}

/// Numbers as codes, as far as there are both. What is not a number becomes code 0, as in PyTorch.
pub(crate) fn quantize(
    context: Context<'_>,
    numbers: &[f32],
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
            let numbers = numbers.get(first..).unwrap_or_default();
            let count = out.len().min(numbers.len());
            let (out, numbers) = (&mut out[..count], &numbers[..count]);
            for at in 0..count {
                let code = range.code(numbers[at] * inverse);
                out[at] = if numbers[at].is_nan() { 0 } else { code };
            }
        },
    );
}

/// The numbers of codes, as far as there are both.
pub(crate) fn dequantize(context: Context<'_>, codes: &[i8], from: Scaled, out: &mut [f32]) {
    in_parts(
        context,
        out,
        #[inline(always)]
        |first, out| {
            let codes = codes.get(first..).unwrap_or_default();
            let count = out.len().min(codes.len());
            let (out, codes) = (&mut out[..count], &codes[..count]);
            for at in 0..count {
                out[at] = from.number(codes[at]);
            }
        },
    );
}

/// Sums of codes, of which the second is taken `alpha` times, as codes of steps of `scale`.
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
            let (a_codes, b_codes, out) = alike([a.0, b.0], first, out);
            for at in 0..out.len() {
                let sum = a.1.number(a_codes[at]) + b.1.number(b_codes[at]) * alpha;
                out[at] = range.code(sum * inverse);
            }
        },
    );
}

/// Products of codes, as codes of steps of `scale`.
pub(crate) fn mul(
    context: Context<'_>,
    [a, b]: [(&[i8], Scaled); 2],
    scale: f32,
    range: Range,
    out: &mut [i8],
) {
    // Products of codes are exact, and are scaled once.
    let factor = a.1.scale * b.1.scale / scale;
    in_parts(
        context,
        out,
        #[inline(always)]
        |first, out| {
            let (a_codes, b_codes, out) = alike([a.0, b.0], first, out);
            for at in 0..out.len() {
                let (a_code, b_code) = (i32::from(a_codes[at]), i32::from(b_codes[at]));
                let product = (a_code - a.1.zero) * (b_code - b.1.zero);
                out[at] = range.code(product as f32 * factor);
            }
        },
    );
}

/// Codes as other codes.
pub(crate) fn requantize(
    context: Context<'_>,
    codes: &[i8],
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
            let codes = codes.get(first..).unwrap_or_default();
            let count = out.len().min(codes.len());
            let (out, codes) = (&mut out[..count], &codes[..count]);
            for at in 0..count {
                out[at] = range.code(from.number(codes[at]) * inverse);
            }
        },
    );
}

/// How many codes there are.
pub(crate) const CODES: usize = 256;

/// What a table has for codes, the one for -128 first.
pub(crate) fn lookup(context: Context<'_>, codes: &[i8], table: &[i8; CODES], out: &mut [i8]) {
    let part = chunk_len(context.parallel, out.len(), GRAIN);
    for_each_chunk_mut(context.parallel, out, part, &|index, out| {
        let codes = codes.get(index * part..).unwrap_or_default();
        #[cfg(target_arch = "x86_64")]
        if super::vbmi::lookup(context.tier, codes, table, out) {
            return;
        }
        for (out, code) in out.iter_mut().zip(codes) {
            *out = table[usize::from(code.cast_unsigned() ^ 128)];
        }
    });
}

/// The largest codes of windows of pictures, channels last: pooling of codes is that of numbers.
/// Gives `None` where a picture is shorter than its shape says.
pub(crate) fn largest(
    context: Context<'_>,
    windows: &super::windows::Windows,
    pictures: &[i8],
    out: &mut [i8],
) -> Option<()> {
    let [height, width, channels] = windows.input;
    let ([rows, cols], output) = (windows.axes, windows.output);
    let line = output[1].checked_mul(channels)?;
    let pictures_there = (out.len() / line.max(1)).div_ceil(output[0].max(1));
    if pictures.len() < pictures_there.checked_mul(windows.picture())? || line == 0 {
        return None;
    }
    for_each_chunk_mut(context.parallel, out, line, &|row, out| {
        let (picture, y) = (row / output[0], row % output[0]);
        let picture = pictures.get(picture * windows.picture()..).unwrap_or_default();
        let tall = rows.taps(y, height);
        for (x, out) in out.chunks_exact_mut(channels).enumerate() {
            let wide = cols.taps(x, width);
            out.fill(i8::MIN);
            for row in 0..tall.count {
                for col in 0..wide.count {
                    let y = tall.start + row * rows.dilation();
                    let x = wide.start + col * cols.dilation();
                    let codes = picture.get((y * width + x) * channels..).unwrap_or_default();
                    let count = out.len().min(codes.len());
                    let (out, codes) = (&mut out[..count], &codes[..count]);
                    for at in 0..count {
                        out[at] = out[at].max(codes[at]);
                    }
                }
            }
        }
    });
    Some(())
}
