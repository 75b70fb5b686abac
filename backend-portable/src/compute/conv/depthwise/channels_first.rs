//! Depthwise convolution, channels first.
//!
//! Each channel is copied once into the workspace, with its padding, and split by stride: a stride
//! of (2, 2) gives four planes, of even and odd rows and columns. In the planes, a tap of an output
//! is at the output's index plus an offset that depends only on the tap. All kernels, strides and
//! dilations then share one branch-free loop of multiply-adds on contiguous vectors.
//!
//! If rows are much narrower than the vectors, all rows are computed as one contiguous run, and the
//! results for the padding columns are discarded.

use super::super::{Conv, Finish};
use super::MAX_TAPS;
use crate::compute::gemm::patches::copy_strided;
use crate::compute::simd::{Simd, Vectorized};

/// Number of vectors that are computed together, to hide the latency of the multiply-add.
const UNROLL: usize = 4;

/// The planes of one channel.
#[derive(Clone, Copy)]
pub(super) struct Planes {
    /// Vertical and horizontal stride; the channel has `sy * sx` planes.
    sy: usize,
    sx: usize,
    /// Row stride of a plane, and its number of rows.
    pitch: usize,
    rows: usize,
    /// Stride between planes.
    plane: usize,
    /// Length of all planes in floats, including the overread of the last vectors.
    pub(super) len: usize,
    /// Whether all rows are contiguous and computed as one long row.
    joined: bool,
    /// Length in floats of the buffer for the results of that run; 0 if rows are computed one by
    /// one.
    pub(super) staging: usize,
}

impl Planes {
    pub(super) fn new(conv: &Conv, lanes: usize) -> Option<Planes> {
        let [_, y, x] = conv.axes;
        let (sy, sx) = (y.stride as usize, x.stride as usize);
        let height = (y.output - 1) * sy + (y.kernel - 1) * y.step as usize + 1;
        let width = (x.output - 1) * sx + (x.kernel - 1) * x.step as usize + 1;
        let (rows, pitch) = (height.div_ceil(sy), width.div_ceil(sx));
        let plane = rows.checked_mul(pitch)?;
        // Vectors start at most at the last output of a row, and `UNROLL` vectors are read from
        // there.
        let len = plane.checked_mul(sy)?.checked_mul(sx)?.checked_add(UNROLL * lanes)?;
        let joined = lanes > 1 && x.output * 4 < x.output.div_ceil(lanes) * lanes * 3;
        let staging =
            if joined { y.output.checked_mul(pitch)?.checked_add(UNROLL * lanes)? } else { 0 };
        len.checked_add(staging)?;
        Some(Planes { sy, sx, pitch, rows, plane, len, joined, staging })
    }
}

/// Computes one channel of one sample.
pub(super) struct Channel<'a> {
    pub(super) conv: &'a Conv,
    pub(super) planes: Planes,
    pub(super) image: &'a [f32],
    pub(super) weights: &'a [f32],
    pub(super) tap: usize,
    pub(super) bias: f32,
    pub(super) finish: &'a Finish<'a>,
    pub(super) output: &'a mut [f32],
    pub(super) workspace: &'a mut [f32],
}

impl Vectorized for Channel<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let [_, y, x] = self.conv.axes;
        let p = self.planes;
        let (planes, staging) = self.workspace.split_at_mut(p.len);
        split_planes(s, self.conv, &p, self.image, planes);

        let mut listed = [(0usize, 0.0f32); MAX_TAPS];
        let taps = y.kernel * x.kernel;
        for (t, entry) in listed.iter_mut().enumerate().take(taps) {
            let (ky, kx) = (t / x.kernel * y.step as usize, t % x.kernel * x.step as usize);
            let plane = (ky % p.sy) * p.sx + kx % p.sx;
            *entry =
                (plane * p.plane + ky / p.sy * p.pitch + kx / p.sx, self.weights[t * self.tap]);
        }
        let run = Run {
            bias: self.bias,
            finish: self.finish,
            planes,
            pitch: p.pitch,
            width: x.output,
            staging: p.joined.then_some(staging),
        };
        // Common sizes with a constant number of taps, so that the loops over taps are unrolled.
        match taps {
            9 => run.all(s, &listed[..9], self.output),
            25 => run.all(s, &listed[..25], self.output),
            _ => run.all(s, &listed[..taps.min(MAX_TAPS)], self.output),
        }
    }
}

struct Run<'a> {
    bias: f32,
    finish: &'a Finish<'a>,
    planes: &'a [f32],
    pitch: usize,
    width: usize,
    /// Buffer for the results if all rows are computed as one run.
    staging: Option<&'a mut [f32]>,
}

impl Run<'_> {
    #[inline(always)]
    fn all<S: Simd>(mut self, s: S, taps: &[(usize, f32)], output: &mut [f32]) {
        let (width, pitch) = (self.width, self.pitch);
        match self.staging.take() {
            Some(staging) => {
                let len = (output.len() / width - 1) * pitch + width;
                self.accumulate::<S, false>(s, 0, &mut staging[..len], taps);
                for (row, out) in output.chunks_exact_mut(width).enumerate() {
                    let sums = &staging[row * pitch..][..width];
                    for i in (0..width).step_by(S::LANES) {
                        let left = width - i;
                        // SAFETY: both have `width` elements, of which `left` follow i.
                        unsafe {
                            let sum = s.load_upto(sums.as_ptr().add(i), left);
                            self.store(s, sum, out.as_mut_ptr().add(i), left);
                        }
                    }
                }
            }
            None => {
                for (row, out) in output.chunks_exact_mut(width).enumerate() {
                    self.accumulate::<S, true>(s, row * pitch, out, taps);
                }
            }
        }
    }

    /// Computes `out[i] = bias + sum over taps of weight * planes[start + i + offset]`; applies the
    /// epilogue if `FINISH`.
    #[inline(always)]
    fn accumulate<S: Simd, const FINISH: bool>(
        &self,
        s: S,
        start: usize,
        out: &mut [f32],
        taps: &[(usize, f32)],
    ) {
        let len = out.len();
        let mut i = 0;
        while i < len {
            let left = len - i;
            if left > 2 * S::LANES {
                self.vectors::<S, UNROLL, FINISH>(s, start + i, &mut out[i..], taps);
                i += UNROLL * S::LANES;
            } else if left > S::LANES {
                self.vectors::<S, 2, FINISH>(s, start + i, &mut out[i..], taps);
                i += 2 * S::LANES;
            } else {
                self.vectors::<S, 1, FINISH>(s, start + i, &mut out[i..], taps);
                i += S::LANES;
            }
        }
    }

    /// Computes `V` vectors. `out` may be shorter; the rest is discarded.
    #[inline(always)]
    fn vectors<S: Simd, const V: usize, const FINISH: bool>(
        &self,
        s: S,
        start: usize,
        out: &mut [f32],
        taps: &[(usize, f32)],
    ) {
        let mut acc = [s.splat(self.bias); V];
        for &(offset, weight) in taps {
            let weight = s.splat(weight);
            // `start` is at most the index of the last output. With the largest tap offset it stays
            // inside the planes, which have `UNROLL` more vectors at the end.
            let values = &self.planes[start + offset..][..V * S::LANES];
            for (v, acc) in acc.iter_mut().enumerate() {
                // SAFETY: `values` holds V vectors.
                *acc =
                    s.mul_add(weight, unsafe { s.load(values.as_ptr().add(v * S::LANES)) }, *acc);
            }
        }
        for (v, &acc) in acc.iter().enumerate() {
            let done = v * S::LANES;
            if let Some(left) = out.len().checked_sub(done).filter(|&left| left > 0) {
                // SAFETY: `left` elements of `out` follow `done`; no others are accessed.
                unsafe {
                    let p = out.as_mut_ptr().add(done);
                    if FINISH { self.store(s, acc, p, left) } else { s.store_upto(p, left, acc) }
                }
            }
        }
    }

    /// Adds `beta` times the previous output, clamps, and stores.
    ///
    /// # Safety
    /// `p` is valid for reading and writing `min(left, LANES)` floats.
    #[inline(always)]
    unsafe fn store<S: Simd>(&self, s: S, mut sum: S::F, p: *mut f32, left: usize) {
        let Finish { beta, min, max, .. } = *self.finish;
        // SAFETY: guaranteed by the caller.
        unsafe {
            if beta != 0.0 {
                sum = s.mul_add(s.splat(beta), s.load_upto(p, left), sum);
            }
            s.store_upto(p, left, s.clamp(sum, s.splat(min), s.splat(max)));
        }
    }
}

/// Copies a channel with its padding into planes: row r, column c of the padded image goes to plane
/// `(r % sy) * sx + c % sx`, row `r / sy`, column `c / sx`.
#[inline(always)]
fn split_planes<S: Simd>(s: S, conv: &Conv, p: &Planes, image: &[f32], planes: &mut [f32]) {
    let [_, y, x] = conv.axes;
    let (pad_y, pad_x) = (y.origin.unsigned_abs(), x.origin.unsigned_abs());
    for py in 0..p.sy {
        for px in 0..p.sx {
            let plane = &mut planes[(py * p.sx + px) * p.plane..][..p.plane];
            // Columns of this plane inside the image: `pad_x <= c * sx + px < pad_x + input`.
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
