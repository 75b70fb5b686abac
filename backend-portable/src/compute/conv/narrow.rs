//! Grouped convolutions with groups so narrow that a vector holds several, channels last, with
//! packed weights.
//!
//! A vector holds contiguous channels of a pixel: several groups of `G` channels each. It is
//! multiplied lane by lane with `G` weight vectors, `r = 0..G`. Lane `l` of sum `r` is the
//! contribution of input `l` to output `l ^ r`, which is in the same group. So no lane multiplies
//! zeros of other groups, and lanes are not permuted until all taps are added; then `log2(G)`
//! permutations combine the `G` sums.

// Loops here index several arrays by constants. With iterators, the compiler no longer keeps the
// arrays in registers.
#![allow(clippy::needless_range_loop)]

use super::{Conv, Filter, Finish, Layout};
use crate::compute::gemm::patches::Axis;
use crate::compute::gemm::{Context, GRAIN, Target, part};
use crate::compute::simd::{Simd, Tier, Vectorized};
use crate::compute::split::for_each_job;
use core::ops::Range;

/// Whether this module can compute a convolution on a tier, apart from the form of its weights.
pub(super) fn fits(conv: &Conv, tier: Tier) -> bool {
    let p = conv.params();
    let (inputs, outputs) = conv.group();
    p.layout == Layout::ChannelsLast
        && !p.transposed
        && conv.axes[0] == Axis::TRIVIAL
        && supports(p.groups, [inputs, outputs], tier)
}

/// Whether groups of this number and size (`[inputs, outputs]`) are narrow on a tier.
pub(super) fn supports(groups: usize, [inputs, outputs]: [usize; 2], tier: Tier) -> bool {
    groups > 1 && inputs == outputs && matches!(inputs, 4 | 8) && inputs < tier.lanes()
}

/// Packed length of the weights in floats: a vector for each tap, vector of channels and
/// permutation `0..G`.
pub(super) fn packed_len(conv: &Conv, tier: Tier) -> Option<usize> {
    let channels = conv.params().in_channels.checked_next_multiple_of(tier.lanes())?;
    channels.checked_mul(conv.taps())?.checked_mul(conv.group().0)
}

/// Packs weights into `packed`, which has [`packed_len`] elements.
pub(super) fn pack(conv: &Conv, tier: Tier, filter: Filter<'_>, packed: &mut [f32]) {
    let (lanes, taps, (group, _)) = (tier.lanes(), conv.taps(), conv.group());
    let channels = conv.params().in_channels;
    for (at, slot) in packed.iter_mut().enumerate() {
        let (lane, at) = (at % lanes, at / lanes);
        let (turn, at) = (at % group, at / group);
        let (tap, input) = (at % taps, at / taps * lanes + lane);
        let within = (input / group * filter.group)
            .saturating_add(((input % group) ^ turn).saturating_mul(filter.out))
            .saturating_add((input % group).saturating_mul(filter.input))
            .saturating_add(tap.saturating_mul(filter.tap));
        *slot = if input < channels { filter.data[within] } else { 0.0 };
    }
}

/// Computes the convolution with weights from [`pack`].
pub(super) fn run(
    conv: &Conv,
    context: Context<'_>,
    (input, packed): (&[f32], &[f32]),
    finish: &Finish<'_>,
    output: &mut [f32],
) {
    let p = conv.params();
    let [_, y, x] = conv.axes;
    let (lanes, group) = (context.tier.lanes(), conv.group().0);
    if output.is_empty() {
        return;
    }
    let pixels = y.output * x.output;
    let parts = p.batch * p.in_channels.div_ceil(lanes);
    let threads = context.parallel.threads();
    let work = pixels.saturating_mul(conv.taps() * group * lanes) / GRAIN;
    let bands = match threads {
        0 | 1 => 1,
        _ => (threads * 4).div_ceil(parts).min(work.max(1)).clamp(1, y.output),
    };
    let weights_len = conv.taps() * group * lanes;
    let area = y.input * x.input * p.in_channels;
    // SAFETY: channels of output pixels have distinct addresses, and the output is borrowed for
    // this call.
    let target = unsafe { Target::new(output.as_mut_ptr(), p.out_channels, 1) };
    for_each_job(context.parallel, parts * bands, &mut [(); 0], 0, &|job, _| {
        let (block, band) = (job / bands, job % bands);
        let (sample, block) = (block % p.batch, block / p.batch);
        context.tier.dispatch(Band {
            conv,
            image: &input[sample * area..][..area],
            weights: &packed[block * weights_len..][..weights_len],
            finish,
            first: block * lanes,
            rows: part(band, bands, y.output, 1),
            target,
            first_pixel: sample * pixels,
        });
    });
}

/// A band of output rows of one sample, for one vector of channels.
struct Band<'a> {
    conv: &'a Conv,
    image: &'a [f32],
    /// Weights of these channels.
    weights: &'a [f32],
    finish: &'a Finish<'a>,
    /// First channel of the vector.
    first: usize,
    rows: Range<usize>,
    target: Target,
    first_pixel: usize,
}

impl Vectorized for Band<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let lanes = self.conv.params().in_channels - self.first;
        // The number of pixels of a tile is limited by the registers for accumulators and operands.
        match (self.conv.group().0, lanes < S::LANES) {
            (8, false) if S::LANES > 8 => self.rows::<S, 8, 3, false>(s),
            (8, true) if S::LANES > 8 => self.rows::<S, 8, 3, true>(s),
            (4, false) if S::LANES > 8 => self.rows::<S, 4, 6, false>(s),
            (4, true) if S::LANES > 8 => self.rows::<S, 4, 6, true>(s),
            (4, false) if S::LANES > 4 => self.rows::<S, 4, 2, false>(s),
            (4, true) if S::LANES > 4 => self.rows::<S, 4, 2, true>(s),
            _ => {}
        }
    }
}

/// Input window and weights of a tile of neighbouring pixels of a row.
#[derive(Clone, Copy)]
struct TileInput {
    /// Number of kernel rows inside the image, and of taps in each row.
    taps: [usize; 2],
    /// Image offset of the first tap of the first pixel; strides of kernel rows and taps; stride of
    /// pixels.
    from: usize,
    strides: [usize; 2],
    pitch: usize,
    /// Offset of the weights of the first tap, and stride of kernel rows in the weights.
    weight: usize,
    weight_row: usize,
    /// Index of the first pixel in the whole output.
    pixel: usize,
}

impl Band<'_> {
    #[inline(always)]
    fn rows<S: Simd, const G: usize, const P: usize, const TAIL: bool>(&self, s: S) {
        let [_, y, x] = self.conv.axes;
        let channels = self.conv.params().in_channels;
        let whole = x.whole();
        let step = G * S::LANES;
        for oy in self.rows.clone() {
            let tall = y.taps(oy);
            let top = oy as isize * y.stride + y.origin + tall.start as isize * y.step;
            let source = |ox: usize| {
                let wide = x.taps(ox);
                let left = ox as isize * x.stride + x.origin + wide.start as isize * x.step;
                let taps = [tall.len(), wide.len()];
                let pixel = (top.max(0) as usize) * x.input + left.max(0) as usize;
                TileInput {
                    taps: if taps.contains(&0) { [0; 2] } else { taps },
                    from: pixel * channels + self.first,
                    strides: [y.step as usize * x.input, x.step as usize].map(|by| by * channels),
                    pitch: x.stride as usize * channels,
                    weight: (tall.start * x.kernel + wide.start) * step,
                    weight_row: x.kernel * step,
                    pixel: self.first_pixel + oy * x.output + ox,
                }
            };
            for ox in 0..whole.start {
                self.tile::<S, G, 1, TAIL>(s, source(ox));
            }
            let mut ox = whole.start;
            while ox < whole.end {
                let count = match whole.end - ox {
                    left if left >= P => P,
                    left if P > 3 && left >= 3 => 3,
                    left => left.min(2),
                };
                match count {
                    1 => self.tile::<S, G, 1, TAIL>(s, source(ox)),
                    2 => self.tile::<S, G, 2, TAIL>(s, source(ox)),
                    3 if P > 3 => self.tile::<S, G, 3, TAIL>(s, source(ox)),
                    _ => self.tile::<S, G, P, TAIL>(s, source(ox)),
                }
                ox += count;
            }
            for ox in whole.end..x.output {
                self.tile::<S, G, 1, TAIL>(s, source(ox));
            }
        }
    }

    /// Computes `P` neighbouring pixels whose taps are all inside the image.
    #[inline(always)]
    fn tile<S: Simd, const G: usize, const P: usize, const TAIL: bool>(
        &self,
        s: S,
        source: TileInput,
    ) {
        let lanes = self.conv.params().in_channels - self.first;
        let width = if TAIL { lanes } else { S::LANES };
        let [tall, wide] = source.taps;
        let ([row, tap], step) = (source.strides, G * S::LANES);
        // Bounds check of all reads.
        let (mut image, mut weights) = (self.image.as_ptr(), self.weights.as_ptr());
        if tall > 0 {
            let far = (tall - 1) * row + (wide - 1) * tap + (P - 1) * source.pitch + width;
            let last = (tall - 1) * source.weight_row + wide * step;
            image = self.image[source.from..][..far].as_ptr();
            weights = self.weights[source.weight..][..last].as_ptr();
        }
        let mut sums = [[s.splat(0.0); G]; P];
        for ky in 0..tall {
            let mut from = image.wrapping_add(ky * row);
            let mut weight = weights.wrapping_add(ky * source.weight_row);
            for _ in 0..wide {
                let mut pixels = [s.splat(0.0); P];
                for i in 0..P {
                    let at = from.wrapping_add(i * source.pitch);
                    // SAFETY: inside the slice just taken from the image: its length covers the
                    // last row, tap and pixel, with `width` elements each, and the tail reads only
                    // those.
                    pixels[i] = unsafe { if TAIL { s.load_first(at, lanes) } else { s.load(at) } };
                }
                for r in 0..G {
                    // SAFETY: as above, for the weights.
                    let weight = unsafe { s.load(weight.wrapping_add(r * S::LANES)) };
                    for i in 0..P {
                        sums[i][r] = s.mul_add(pixels[i], weight, sums[i][r]);
                    }
                }
                from = from.wrapping_add(tap);
                weight = weight.wrapping_add(step);
            }
        }
        let bias = self.finish.bias.map(|bias| &bias[self.first..][..width]);
        let &Finish { beta, min, max, .. } = self.finish;
        for i in 0..P {
            let mut sum = combined_lanes(s, sums[i]);
            let to = self.target.at(source.pixel + i, self.first);
            // SAFETY: the bias has `width` elements, checked before the jobs start. `Conv::run` cut
            // the output to whole pixels of all channels; no other job writes this pixel's
            // channels, and `width` of them follow.
            unsafe {
                if let Some(bias) = bias {
                    let bias = bias.as_ptr();
                    let bias = if TAIL { s.load_first(bias, lanes) } else { s.load(bias) };
                    sum = s.add(sum, bias);
                }
                if beta != 0.0 {
                    let before = if TAIL { s.load_first(to, lanes) } else { s.load(to) };
                    sum = s.mul_add(s.splat(beta), before, sum);
                }
                if min != f32::NEG_INFINITY || max != f32::INFINITY {
                    sum = s.clamp(sum, s.splat(min), s.splat(max));
                }
                if TAIL { s.store_first(to, lanes, sum) } else { s.store(to, sum) }
            }
        }
    }
}

/// Combines the `G` sums of each output: lane `l` of sum `r` belongs to lane `l ^ r`.
#[inline(always)]
fn combined_lanes<S: Simd, const G: usize>(s: S, mut sums: [S::F; G]) -> S::F {
    for r in (0..G).step_by(2) {
        sums[r] = s.add(sums[r], s.swap::<1>(sums[r + 1]));
    }
    for r in (0..G).step_by(4) {
        sums[r] = s.add(sums[r], s.swap::<2>(sums[r + 2]));
    }
    if G > 4 {
        sums[0] = s.add(sums[0], s.swap::<4>(sums[4 % G]));
    }
    sums[0]
}
