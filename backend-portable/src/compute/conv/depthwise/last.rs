//! Depthwise convolution, channels last: a vector is a run of channels, and weights lie alike (`[tap, channel]`).
//!
//! A few neighbouring pixels of the output are computed together, all their channels before the next pixels: weights are
//! loaded once for all of them, and so is what their windows share. Taps outside the image are cut off beforehand, whole rows
//! of them and, for pixels at the borders, columns; so the loops have no conditions.

use super::super::{Conv, Finish};
use crate::compute::simd::{Kernel, Simd};
use crate::compute::split::Parts;
use core::ops::Range;

/// Some channels of one row of the output.
pub(super) struct Row<'a> {
    pub(super) conv: &'a Conv,
    /// The sample.
    pub(super) image: &'a [f32],
    pub(super) packed: &'a [f32],
    pub(super) finish: &'a Finish<'a>,
    /// The row's number in the sample.
    pub(super) row: usize,
    pub(super) channels: Range<usize>,
    /// The whole output, and where in it the row begins.
    pub(super) output: &'a Parts<'a, f32>,
    pub(super) start: usize,
}

impl Kernel for Row<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let [_, y, x] = self.conv.axes;
        let rows = y.taps(self.row);
        let whole = x.whole();
        for ox in 0..whole.start {
            self.pixels::<S, 1, 0, 0>(s, ox, &rows, x.taps(ox));
        }
        let all = || 0..x.kernel;
        let mut ox = whole.start;
        while ox + 4 <= whole.end {
            match (x.kernel, x.stride, x.step) {
                (3, 1, 1) => self.pixels::<S, 4, 3, 1>(s, ox, &rows, all()),
                (3, 2, 1) => self.pixels::<S, 4, 3, 2>(s, ox, &rows, all()),
                (5, 1, 1) => self.pixels::<S, 4, 5, 1>(s, ox, &rows, all()),
                (5, 2, 1) => self.pixels::<S, 4, 5, 2>(s, ox, &rows, all()),
                _ => self.pixels::<S, 4, 0, 0>(s, ox, &rows, all()),
            }
            ox += 4;
        }
        if ox + 2 <= whole.end {
            self.pixels::<S, 2, 0, 0>(s, ox, &rows, all());
            ox += 2;
        }
        for ox in ox..x.output {
            self.pixels::<S, 1, 0, 0>(s, ox, &rows, x.taps(ox));
        }
    }
}

/// What the windows of neighbouring pixels see: addresses of the first channel of the first tap, and distances in elements.
struct Windows {
    image: *const f32,
    weights: *const f32,
    rows: usize,
    taps: usize,
    /// Distances of the rows of taps, of taps in a row, and of pixels.
    image_row: usize,
    weights_row: usize,
    image_tap: usize,
    weights_tap: usize,
    pixel: usize,
}

impl Row<'_> {
    /// The T pixels from `ox` on, whose windows have the same taps inside the image. `KERNEL` is the number of taps in a
    /// row and `STRIDE` the stride, where windows without dilation overlap and both are known; otherwise 0.
    #[inline(always)]
    fn pixels<S: Simd, const T: usize, const KERNEL: usize, const STRIDE: usize>(
        &self,
        s: S,
        ox: usize,
        rows: &Range<usize>,
        taps: Range<usize>,
    ) {
        let [_, y, x] = self.conv.axes;
        let all = self.conv.params().out_channels;
        let (first, count) = (self.channels.start, self.channels.len());
        let (step_y, step_x) = (y.step as usize, x.step as usize);
        let mut windows = Windows {
            image: core::ptr::null(),
            weights: core::ptr::null(),
            rows: 0,
            taps: taps.len(),
            image_row: step_y * x.input * all,
            weights_row: x.kernel * all,
            image_tap: step_x * all,
            weights_tap: all,
            pixel: x.stride as usize * all,
        };
        if let (Some(iy), Some(ix)) = (y.at(self.row, rows.start), x.at(ox, taps.start))
            && !rows.is_empty()
            && !taps.is_empty()
        {
            // From the first channel of the first tap to the last of the last, and the same of the weights: what is read
            // lies in there, and that in the slices.
            let far = (rows.len() - 1) * windows.image_row
                + (taps.len() - 1) * windows.image_tap
                + (T - 1) * windows.pixel
                + count;
            windows.image = self.image[(iy * x.input + ix) * all + first..][..far].as_ptr();
            let far = (rows.len() - 1) * windows.weights_row + (taps.len() - 1) * all + count;
            let tap = rows.start * x.kernel + taps.start;
            windows.weights = self.packed[tap * all + first..][..far].as_ptr();
            windows.rows = rows.len();
        }
        let bias = self.finish.bias.map(|bias| bias[first..][..count].as_ptr());
        let mut out = [core::ptr::null_mut(); T];
        for (t, out) in out.iter_mut().enumerate() {
            // SAFETY: this job alone has these channels of this row, and pixels of a row do not overlap.
            let part = unsafe { self.output.part(self.start + (ox + t) * all + first, count) };
            assert_eq!(part.len(), count);
            *out = part.as_mut_ptr();
        }
        let mut c = 0;
        // SAFETY: the windows have `count` channels in the slices, as just checked, as have bias and output.
        unsafe {
            while c + S::LANES <= count {
                let column = Column { windows: &windows, bias, out, c, lanes: S::LANES };
                column.run::<S, KERNEL, STRIDE, false>(s, self.finish);
                c += S::LANES;
            }
            if c < count {
                let column = Column { windows: &windows, bias, out, c, lanes: count - c };
                column.run::<S, KERNEL, STRIDE, true>(s, self.finish);
            }
        }
    }
}

/// One vector of channels of T pixels, of which a tail has `lanes` channels.
struct Column<'a, const T: usize> {
    windows: &'a Windows,
    bias: Option<*const f32>,
    out: [*mut f32; T],
    c: usize,
    lanes: usize,
}

impl<const T: usize> Column<'_, T> {
    /// # Safety
    /// The windows' rows and taps, of image and weights, the bias and the pixels of the output have `lanes` elements from
    /// element `c` on.
    #[inline(always)]
    unsafe fn run<S: Simd, const KERNEL: usize, const STRIDE: usize, const TAIL: bool>(
        self,
        s: S,
        finish: &Finish<'_>,
    ) {
        let Column { windows: w, bias, out, c, lanes } = self;
        let load = |p: *const f32| {
            // SAFETY: only called with addresses that the caller promised.
            unsafe { if TAIL { s.load_first(p, lanes) } else { s.load(p) } }
        };
        let mut acc = [s.splat(0.0); T];
        if let Some(bias) = bias {
            acc = [load(bias.wrapping_add(c)); T];
        }
        let (mut image, mut weights) = (w.image.wrapping_add(c), w.weights.wrapping_add(c));
        for _ in 0..w.rows {
            if KERNEL > 0 {
                let mut weight = [s.splat(0.0); KERNEL];
                for k in 0..KERNEL {
                    weight[k] = load(weights.wrapping_add(k * w.weights_tap));
                }
                for i in 0..(T - 1) * STRIDE + KERNEL {
                    let value = load(image.wrapping_add(i * w.image_tap));
                    for t in 0..T {
                        if i >= t * STRIDE && i - t * STRIDE < KERNEL {
                            acc[t] = s.mul_add(value, weight[i - t * STRIDE], acc[t]);
                        }
                    }
                }
            } else {
                for k in 0..w.taps {
                    let weight = load(weights.wrapping_add(k * w.weights_tap));
                    let tap = image.wrapping_add(k * w.image_tap);
                    for t in 0..T {
                        acc[t] = s.mul_add(load(tap.wrapping_add(t * w.pixel)), weight, acc[t]);
                    }
                }
            }
            image = image.wrapping_add(w.image_row);
            weights = weights.wrapping_add(w.weights_row);
        }
        let (lo, hi) = (s.splat(finish.min), s.splat(finish.max));
        for t in 0..T {
            let p = out[t].wrapping_add(c);
            if finish.beta != 0.0 {
                acc[t] = s.mul_add(s.splat(finish.beta), load(p), acc[t]);
            }
            let value = s.clamp(acc[t], lo, hi);
            // SAFETY: the caller promised `lanes` elements of the output.
            unsafe { if TAIL { s.store_first(p, lanes, value) } else { s.store(p, value) } };
        }
    }
}
