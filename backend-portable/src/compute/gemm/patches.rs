//! Implicit im2col: the patch matrix of a convolution is never stored. Its blocks are written in
//! the layout of the register tile when the GEMM needs them.

use crate::compute::simd::Simd;
use core::ops::Range;

/// One spatial axis of a convolution. Tap t of output position o reads input position
/// `(o * stride + origin + t * step) / up` if that is an integer inside the input, and zero
/// otherwise.
///
/// A convolution has `origin = -padding`, `step = dilation`, `up = 1`. A transposed convolution has
/// `origin = padding`, `step = -dilation`, `stride = 1` and its stride as `up`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Axis {
    pub input: usize,
    pub output: usize,
    pub kernel: usize,
    pub stride: isize,
    pub origin: isize,
    pub step: isize,
    pub up: isize,
}

impl Axis {
    /// An axis that the image does not have.
    pub(crate) const TRIVIAL: Axis =
        Axis { input: 1, output: 1, kernel: 1, stride: 1, origin: 0, step: 1, up: 1 };

    /// The input position that tap `t` of output `o` reads, or `None` for padding.
    #[inline(always)]
    pub(crate) fn at(&self, o: usize, t: usize) -> Option<usize> {
        let v = o as isize * self.stride + self.origin + t as isize * self.step;
        if self.up != 1 {
            return (v >= 0 && v % self.up == 0 && v / self.up < self.input as isize)
                .then_some((v / self.up) as usize);
        }
        (v >= 0 && v < self.input as isize).then_some(v as usize)
    }

    /// Range of taps of output `o` that are inside the input. Only for `up == 1`.
    #[inline(always)]
    pub(crate) fn taps(&self, o: usize) -> Range<usize> {
        let base = o as isize * self.stride + self.origin;
        let end = steps(self.input as isize - base, self.step).min(self.kernel);
        steps(-base, self.step).min(end)..end
    }

    /// Range of outputs whose taps are all inside the input. Only for `up == 1`.
    pub(crate) fn whole(&self) -> Range<usize> {
        let reach = (self.kernel as isize - 1) * self.step;
        let end = steps(self.input as isize - self.origin - reach, self.stride).min(self.output);
        steps(-self.origin, self.stride).min(end)..end
    }

    /// Whether output o reads only input o.
    pub(crate) fn is_identity(&self) -> bool {
        self.kernel == 1
            && self.stride == 1
            && self.origin == 0
            && self.up == 1
            && self.input == self.output
    }

    /// Clips tap `t` of the outputs `o..o + len` to the input. Returns the range `lo..hi` relative
    /// to `o`, and the input position of output `o + lo`. Only for `up == 1`.
    #[inline(always)]
    fn inside(&self, o: usize, len: usize, t: usize) -> (usize, usize, usize) {
        let base = o as isize * self.stride + self.origin + t as isize * self.step;
        let hi = steps(self.input as isize - base, self.stride).min(len);
        let lo = steps(-base, self.stride).min(hi);
        (lo, hi, (base + lo as isize * self.stride) as usize)
    }
}

/// Number of steps to cover a distance, rounded up; 0 for a negative distance.
#[inline(always)]
fn steps(distance: isize, step: isize) -> usize {
    match (distance <= 0, step) {
        (true, _) => 0,
        // The common case, without the slow division.
        (_, 1) => distance as usize,
        _ => ((distance - 1) / step + 1) as usize,
    }
}

/// Geometry of im2col patches: the image (one sample, the channels of one group) and the kernel.
#[derive(Clone, Copy)]
pub(crate) struct Patches<'a> {
    /// Data of the image, starting at the first channel of the group.
    pub image: &'a [f32],
    pub channels: usize,
    pub channel_stride: usize,
    pub y_stride: usize,
    pub x_stride: usize,
    pub y: Axis,
    pub x: Axis,
    /// Order of the k index: `[tap, channel]` if set, otherwise `[channel, tap]`.
    pub channels_inside: bool,
}

impl Patches<'_> {
    fn taps(&self) -> usize {
        self.y.kernel * self.x.kernel
    }

    /// The input value at index `k` of the patch of output pixel `pixel`.
    pub(crate) fn get(&self, pixel: usize, k: usize) -> f32 {
        let (c, t) = if self.channels_inside {
            (k % self.channels, k / self.channels)
        } else {
            (k / self.taps(), k % self.taps())
        };
        let iy = self.y.at(pixel / self.x.output, t / self.x.kernel);
        let ix = self.x.at(pixel % self.x.output, t % self.x.kernel);
        match (iy, ix) {
            (Some(iy), Some(ix)) => {
                self.image[c * self.channel_stride + iy * self.y_stride + ix * self.x_stride]
            }
            _ => 0.0,
        }
    }

    /// Writes k indices `k0..k1` (whole channels) of pixels `j..j + cols` as rows of `width`
    /// elements, padded with zeros.
    #[inline(always)]
    pub(crate) fn pack_cols<S: Simd>(
        &self,
        s: S,
        (j, cols): (usize, usize),
        (k0, k1): (usize, usize),
        width: usize,
        panel: &mut [f32],
    ) {
        let taps = self.taps();
        let channels = k0 / taps..k1 / taps;
        if cols < width {
            for row in panel.chunks_exact_mut(width).take(k1 - k0) {
                row[cols..].fill(0.0);
            }
        }
        let (mut oy, mut ox) = (j / self.x.output, j % self.x.output);
        let mut done = 0;
        while done < cols {
            let len = (self.x.output - ox).min(cols - done);
            for ky in 0..self.y.kernel {
                let iy = self.y.at(oy, ky);
                for kx in 0..self.x.kernel {
                    let row_at =
                        |c: usize| (c * taps + ky * self.x.kernel + kx - k0) * width + done;
                    let Some(iy) = iy else {
                        channels.clone().for_each(|c| panel[row_at(c)..][..len].fill(0.0));
                        continue;
                    };
                    if self.x.up != 1 || self.x_stride != 1 {
                        for c in channels.clone() {
                            let row = &mut panel[row_at(c)..][..len];
                            let src = c * self.channel_stride + iy * self.y_stride;
                            for (i, value) in row.iter_mut().enumerate() {
                                *value = match self.x.at(ox + i, kx) {
                                    Some(ix) => self.image[src + ix * self.x_stride],
                                    None => 0.0,
                                };
                            }
                        }
                        continue;
                    }
                    let (lo, hi, ix) = self.x.inside(ox, len, kx);
                    for c in channels.clone() {
                        let row = &mut panel[row_at(c)..][..len];
                        if lo > 0 || hi < len {
                            row[..lo].fill(0.0);
                            row[hi..].fill(0.0);
                        }
                        if lo < hi {
                            let src =
                                &self.image[c * self.channel_stride + iy * self.y_stride + ix..];
                            copy_strided(s, src, self.x.stride as usize, &mut row[lo..hi]);
                        }
                    }
                }
            }
            done += len;
            ox = 0;
            oy += 1;
        }
    }

    /// Writes k indices `k0..k1` of pixels `i..i + rows`, one row per pixel.
    #[inline(always)]
    pub(crate) fn pack_rows<S: Simd>(
        &self,
        s: S,
        i: usize,
        rows: usize,
        k0: usize,
        k1: usize,
        block: &mut [f32],
    ) {
        let kc = k1 - k0;
        let channels = self.channels;
        // Taps of a kernel row are contiguous in memory: copy them together.
        let joined = self.x_stride == channels && self.x.step == 1 && self.x.up == 1;
        for (r, row) in block.chunks_exact_mut(kc.max(1)).take(rows).enumerate() {
            let (oy, ox) = ((i + r) / self.x.output, (i + r) % self.x.output);
            let mut k = k0;
            while k < k1 {
                let (t, c) = (k / channels, k % channels);
                let (ky, kx) = (t / self.x.kernel, t % self.x.kernel);
                let mut len = (channels - c).min(k1 - k);
                let dst = &mut row[k - k0..];
                match (self.y.at(oy, ky), self.x.at(ox, kx)) {
                    (Some(iy), Some(ix)) => {
                        if joined {
                            let run = (self.x.kernel - kx).min(self.x.input - ix);
                            len = (run * channels - c).min(k1 - k);
                        }
                        let src = &self.image
                            [c * self.channel_stride + iy * self.y_stride + ix * self.x_stride..];
                        copy_strided(s, src, self.channel_stride, &mut dst[..len]);
                    }
                    _ => dst[..len].fill(0.0),
                }
                k += len;
            }
        }
    }
}

/// `dst[i] = src[i * stride]`
#[inline(always)]
pub(crate) fn copy_strided<S: Simd>(s: S, src: &[f32], stride: usize, dst: &mut [f32]) {
    let len = dst.len();
    let Some(last) = len.checked_sub(1) else {
        return;
    };
    // Bounds check of all reads.
    let src = &src[..last * stride + 1];
    let mut i = 0;
    match stride {
        1 => {
            while i < len {
                // SAFETY: `min(LANES, len - i)` elements from i on are inside both slices, which
                // have `len`.
                unsafe {
                    s.store_upto(
                        dst.as_mut_ptr().add(i),
                        len - i,
                        s.load_upto(src.as_ptr().add(i), len - i),
                    )
                };
                i += S::LANES;
            }
        }
        2 if S::LANES > 1 => {
            while i + S::LANES <= len {
                // SAFETY: the read ends at or before 2 * (len - 1) + 1, the length of `src`.
                unsafe { s.store(dst.as_mut_ptr().add(i), s.load_even(src.as_ptr().add(2 * i))) };
                i += S::LANES;
            }
            if i < len {
                // SAFETY: as above, for the remaining `len - i` lanes.
                unsafe {
                    let rest = s.load_even_first(src.as_ptr().add(2 * i), len - i);
                    s.store_first(dst.as_mut_ptr().add(i), len - i, rest);
                }
            }
        }
        _ => {
            for (i, d) in dst.iter_mut().enumerate() {
                *d = src[i * stride];
            }
        }
    }
}
