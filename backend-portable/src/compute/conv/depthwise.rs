//! Depthwise convolution: each output channel sees one input channel.
//!
//! **Channels first.** The channel is copied once into the workspace, with its padding, and taken
//! apart by stride: a stride of (2, 2) gives four planes, of even and odd rows and columns. In
//! these planes every tap of every output is at the output's own index plus an offset that depends
//! only on the tap; so all kernels, strides and dilations are the same loop of multiply-adds on
//! contiguous vectors, without conditions. Rows much narrower than the vectors are computed as one
//! run across the ends of rows, of which the padding columns are thrown away.
//!
//! **Channels last.** A vector is a run of channels; weights are needed with channels inside
//! (`[tap, channel]`).

use super::patches::copy_strided;
use super::{Conv, Filter, Finish, Layout, WeightForm};
use crate::compute::gemm::Context;
use crate::compute::simd::{Kernel, MAX_LANES, Simd, Tier};
use crate::compute::split::{Parts, for_each_chunk_mut, for_each_job};

/// Vectors that are computed together, to hide the latency of the multiply-add.
const WIDE: usize = 4;
/// Most taps of a kernel that is computed here.
pub(super) const TAPS: usize = 64;

/// The planes of one channel.
#[derive(Clone, Copy)]
struct Planes {
    /// Strides: the planes are `sy * sx`.
    sy: usize,
    sx: usize,
    /// Length of a row in a plane, and rows.
    pitch: usize,
    rows: usize,
    /// Distance of the planes.
    plane: usize,
    /// Floats of all planes, with what vectors read beyond.
    len: usize,
    /// Rows are computed as one run.
    joined: bool,
    /// Floats for the run; 0 when rows are computed one by one.
    staging: usize,
}

impl Planes {
    fn new(conv: &Conv, lanes: usize) -> Option<Planes> {
        let [_, y, x] = conv.axes;
        let (sy, sx) = (y.stride as usize, x.stride as usize);
        let height = (y.output - 1) * sy + (y.kernel - 1) * y.step as usize + 1;
        let width = (x.output - 1) * sx + (x.kernel - 1) * x.step as usize + 1;
        let (rows, pitch) = (height.div_ceil(sy), width.div_ceil(sx));
        let plane = rows.checked_mul(pitch)?;
        // Vectors start at most at the last output of a row and may read to their end, in groups of
        // WIDE.
        let len = plane.checked_mul(sy)?.checked_mul(sx)?.checked_add(WIDE * lanes)?;
        let joined = lanes > 1 && x.output * 4 < x.output.div_ceil(lanes) * lanes * 3;
        let staging =
            if joined { y.output.checked_mul(pitch)?.checked_add(WIDE * lanes)? } else { 0 };
        len.checked_add(staging)?;
        Some(Planes { sy, sx, pitch, rows, plane, len, joined, staging })
    }
}

/// Floats of workspace for each thread.
pub(super) fn slot_len(conv: &Conv, tier: Tier, form: WeightForm) -> Option<usize> {
    match (conv.params().layout, form) {
        (Layout::ChannelsFirst, _) => Planes::new(conv, tier.lanes()).map(|p| p.len + p.staging),
        (Layout::ChannelsLast, WeightForm::Packed) => Some(0),
        (Layout::ChannelsLast, WeightForm::Strided(_)) => {
            conv.taps().checked_mul(conv.params().out_channels)
        }
    }
}

/// Writes the weights as `[tap, channel]`.
pub(super) fn pack(conv: &Conv, filter: Filter<'_>, packed: &mut [f32]) {
    let channels = conv.params().out_channels;
    for (t, row) in packed.chunks_exact_mut(channels.max(1)).take(conv.taps()).enumerate() {
        for (c, w) in row.iter_mut().enumerate() {
            *w = filter.data[c * filter.group + t * filter.tap];
        }
    }
}

/// `weights` are plain, or packed for channels last.
pub(super) fn run(
    conv: &Conv,
    context: Context<'_>,
    input: &[f32],
    weights: Result<Filter<'_>, &[f32]>,
    finish: &Finish<'_>,
    output: &mut [f32],
    workspace: &mut [f32],
) {
    let channels = conv.params().out_channels;
    let [_, y, x] = conv.axes;
    let pixels = y.output * x.output;
    if output.is_empty() {
        return;
    }
    match (conv.params().layout, weights) {
        (Layout::ChannelsFirst, Ok(filter)) => {
            let Some(planes) = Planes::new(conv, context.tier.lanes()) else {
                return;
            };
            let slot = planes.len + planes.staging;
            let multiplier = channels / conv.params().groups;
            let area = conv.params().input[1] * conv.params().input[2];
            // Small channels are dealt out several at a time.
            let together = (16_384 / pixels.saturating_mul(conv.taps()).max(1)).clamp(1, 64);
            let images = output.len() / pixels;
            let parts = Parts::new(output);
            for_each_job(
                context.parallel,
                images.div_ceil(together),
                workspace,
                slot,
                &|job, workspace| {
                    let first = job * together;
                    let count = together.min(images - first);
                    // SAFETY: each job index comes once, and the images of different jobs do not
                    // overlap.
                    let output = unsafe { parts.part(first * pixels, count * pixels) };
                    for (i, output) in (first..).zip(output.chunks_exact_mut(pixels)) {
                        let (n, channel) = (i / channels, i % channels);
                        let from = (n * conv.params().in_channels + channel / multiplier) * area;
                        context.tier.dispatch(Channel {
                            conv,
                            planes,
                            image: &input[from..][..area],
                            weights: &filter.data[channel / multiplier * filter.group
                                + channel % multiplier * filter.out..],
                            tap: filter.tap,
                            bias: finish.bias.map_or(0.0, |b| b[channel]),
                            finish,
                            output,
                            workspace: &mut *workspace,
                        });
                    }
                },
            );
        }
        (_, weights) => {
            let packed = match weights {
                Ok(filter) => {
                    pack(conv, filter, workspace);
                    &*workspace
                }
                Err(packed) => packed,
            };
            for_each_chunk_mut(context.parallel, output, x.output * channels, &|row, output| {
                context.tier.dispatch(Row { conv, input, packed, finish, row, output });
            });
        }
    }
}

/// One channel of one sample, channels first.
struct Channel<'a> {
    conv: &'a Conv,
    planes: Planes,
    image: &'a [f32],
    weights: &'a [f32],
    tap: usize,
    bias: f32,
    finish: &'a Finish<'a>,
    output: &'a mut [f32],
    workspace: &'a mut [f32],
}

impl Kernel for Channel<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let [_, y, x] = self.conv.axes;
        let p = self.planes;
        let (planes, staging) = self.workspace.split_at_mut(p.len);
        split_planes(s, self.conv, &p, self.image, planes);

        let mut listed = [(0usize, 0.0f32); TAPS];
        let taps = y.kernel * x.kernel;
        for (t, entry) in listed.iter_mut().enumerate().take(taps) {
            let (ky, kx) = (t / x.kernel * y.step as usize, t % x.kernel * x.step as usize);
            let plane = (ky % p.sy) * p.sx + kx % p.sx;
            *entry =
                (plane * p.plane + ky / p.sy * p.pitch + kx / p.sx, self.weights[t * self.tap]);
        }
        let run = Run {
            bias: self.bias,
            min: self.finish.min,
            max: self.finish.max,
            planes,
            pitch: p.pitch,
            width: x.output,
            staging: p.joined.then_some(staging),
        };
        // The common sizes with a known number of taps, so that the loops over taps are unrolled.
        match taps {
            9 => run.all(s, &listed[..9], self.output),
            25 => run.all(s, &listed[..25], self.output),
            _ => run.all(s, &listed[..taps.min(TAPS)], self.output),
        }
    }
}

struct Run<'a> {
    bias: f32,
    min: f32,
    max: f32,
    planes: &'a [f32],
    pitch: usize,
    width: usize,
    /// Where to compute all rows as one run, if so.
    staging: Option<&'a mut [f32]>,
}

impl Run<'_> {
    #[inline(always)]
    fn all<S: Simd>(mut self, s: S, taps: &[(usize, f32)], output: &mut [f32]) {
        let (width, pitch) = (self.width, self.pitch);
        match self.staging.take() {
            Some(staging) => {
                let len = (output.len() / width - 1) * pitch + width;
                self.go(s, 0, &mut staging[..len], taps);
                for (row, out) in output.chunks_exact_mut(width).enumerate() {
                    copy_strided(s, &staging[row * pitch..], 1, out);
                }
            }
            None => {
                for (row, out) in output.chunks_exact_mut(width).enumerate() {
                    self.go(s, row * pitch, out, taps);
                }
            }
        }
    }

    /// `out[i] = limit(bias + sum over taps of weight * planes[start + i + offset])`
    #[inline(always)]
    fn go<S: Simd>(&self, s: S, start: usize, out: &mut [f32], taps: &[(usize, f32)]) {
        let len = out.len();
        let mut i = 0;
        while i < len {
            let left = len - i;
            if left > 2 * S::LANES {
                self.vectors::<S, WIDE>(s, start + i, &mut out[i..], taps);
                i += WIDE * S::LANES;
            } else if left > S::LANES {
                self.vectors::<S, 2>(s, start + i, &mut out[i..], taps);
                i += 2 * S::LANES;
            } else {
                self.vectors::<S, 1>(s, start + i, &mut out[i..], taps);
                i += S::LANES;
            }
        }
    }

    /// V vectors, of which `out` takes as many elements as it has.
    #[inline(always)]
    fn vectors<S: Simd, const V: usize>(
        &self,
        s: S,
        start: usize,
        out: &mut [f32],
        taps: &[(usize, f32)],
    ) {
        let mut acc = [s.splat(self.bias); V];
        for &(offset, weight) in taps {
            let weight = s.splat(weight);
            // Every start is at most the index of the last output; with the largest offset of a tap
            // it stays in the planes, which end with WIDE vectors more.
            let values = &self.planes[start + offset..][..V * S::LANES];
            for (v, acc) in acc.iter_mut().enumerate() {
                // SAFETY: `values` holds V vectors.
                *acc =
                    s.mul_add(weight, unsafe { s.load(values.as_ptr().add(v * S::LANES)) }, *acc);
            }
        }
        let (lo, hi) = (s.splat(self.min), s.splat(self.max));
        for (v, acc) in acc.iter().enumerate() {
            let done = v * S::LANES;
            if let Some(left) = out.len().checked_sub(done).filter(|&left| left > 0) {
                // SAFETY: `left` elements of `out` follow `done`; no more are written.
                unsafe { s.store_upto(out.as_mut_ptr().add(done), left, s.clamp(*acc, lo, hi)) };
            }
        }
    }
}

/// Copies a channel with its padding into planes: input row r, column c of the padded image goes to
/// plane `(r % sy) * sx + c % sx`, row `r / sy`, column `c / sx`.
#[inline(always)]
fn split_planes<S: Simd>(s: S, conv: &Conv, p: &Planes, image: &[f32], planes: &mut [f32]) {
    let [_, y, x] = conv.axes;
    let (pad_y, pad_x) = (y.origin.unsigned_abs(), x.origin.unsigned_abs());
    for py in 0..p.sy {
        for px in 0..p.sx {
            let plane = &mut planes[(py * p.sx + px) * p.plane..][..p.plane];
            // Columns of this plane that lie inside the image: those with pad_x <= c * sx + px <
            // pad_x + input.
            let lo = pad_x.saturating_sub(px).div_ceil(p.sx).min(p.pitch);
            let hi = (pad_x + x.input).saturating_sub(px).div_ceil(p.sx).clamp(lo, p.pitch);
            for r in 0..p.rows {
                let row = &mut plane[r * p.pitch..][..p.pitch];
                let iy = (r * p.sy + py).wrapping_sub(pad_y);
                if iy >= y.input || lo == hi {
                    row.fill(0.0);
                    continue;
                }
                row[..lo].fill(0.0);
                row[hi..].fill(0.0);
                let ix = lo * p.sx + px - pad_x;
                copy_strided(s, &image[iy * x.input + ix..], p.sx, &mut row[lo..hi]);
            }
        }
    }
    planes[p.plane * p.sy * p.sx..].fill(0.0);
}

/// One row of the output, channels last.
struct Row<'a> {
    conv: &'a Conv,
    input: &'a [f32],
    packed: &'a [f32],
    finish: &'a Finish<'a>,
    row: usize,
    output: &'a mut [f32],
}

impl Kernel for Row<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let [_, y, x] = self.conv.axes;
        let channels = self.conv.params().out_channels;
        let (n, oy) = (self.row / y.output, self.row % y.output);
        let image = &self.input[n * y.input * x.input * channels..];
        let (lo, hi) = (s.splat(self.finish.min), s.splat(self.finish.max));
        for (ox, out) in self.output.chunks_exact_mut(channels).enumerate() {
            let mut c = 0;
            while c < channels {
                let left = channels - c;
                let wide = left >= WIDE * S::LANES;
                let run = if wide { WIDE * S::LANES } else { left.min(S::LANES) };
                let mut acc = [s.splat(0.0); WIDE];
                if let Some(bias) = self.finish.bias {
                    let bias = &bias[c..][..run];
                    // SAFETY: `bias` has `run` elements.
                    unsafe { load::<S>(s, bias.as_ptr(), wide, left, &mut acc) };
                }
                for ky in 0..y.kernel {
                    let Some(iy) = y.at(oy, ky) else { continue };
                    for kx in 0..x.kernel {
                        let Some(ix) = x.at(ox, kx) else { continue };
                        let value = &image[(iy * x.input + ix) * channels + c..][..run];
                        let weight = &self.packed[(ky * x.kernel + kx) * channels + c..][..run];
                        let (mut a, mut b) = ([s.splat(0.0); WIDE], [s.splat(0.0); WIDE]);
                        // SAFETY: both slices have `run` elements.
                        unsafe {
                            load::<S>(s, value.as_ptr(), wide, left, &mut a);
                            load::<S>(s, weight.as_ptr(), wide, left, &mut b);
                        }
                        if wide {
                            for v in 0..WIDE {
                                acc[v] = s.mul_add(a[v], b[v], acc[v]);
                            }
                        } else {
                            acc[0] = s.mul_add(a[0], b[0], acc[0]);
                        }
                    }
                }
                let out = &mut out[c..][..run];
                for (v, acc) in acc.iter().enumerate().take(if wide { WIDE } else { 1 }) {
                    // SAFETY: `out` has `run` elements: WIDE vectors, or the first `left` lanes of
                    // one.
                    unsafe {
                        s.store_upto(
                            out.as_mut_ptr().add(v * S::LANES),
                            left,
                            s.clamp(*acc, lo, hi),
                        )
                    };
                }
                c += run;
            }
        }
    }
}

/// Loads WIDE vectors, or the first `left` lanes of one.
///
/// # Safety
/// `p` is valid for reading that.
#[inline(always)]
unsafe fn load<S: Simd>(s: S, p: *const f32, wide: bool, left: usize, to: &mut [S::F; WIDE]) {
    const { assert!(S::LANES <= MAX_LANES) };
    // SAFETY: the caller's promise.
    unsafe {
        if wide {
            for (v, to) in to.iter_mut().enumerate() {
                *to = s.load(p.add(v * S::LANES));
            }
        } else {
            to[0] = s.load_upto(p, left);
        }
    }
}
