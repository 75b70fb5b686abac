//! Convolution as GEMM without im2col: channels last, packed weights, windows read from the image.
//!
//! A register tile covers neighbouring pixels of one output row. Their windows have a constant
//! stride, and each kernel row of a window is contiguous, unless part of it is outside the image.
//! No patch matrix is needed. With padding at the left or right, a job copies the few rows that it
//! reads, with their padding, into the workspace. Kernel rows above and below the image are
//! skipped.

use super::{Conv, Finish};
use crate::compute::gemm::patches::{Axis, copy_strided};
use crate::compute::gemm::{Context, GRAIN, Target, Tile, next_panel_part, part, run_tile};
use crate::compute::simd::{Simd, Vectorized};
use crate::compute::split::for_each_job;
use core::ops::Range;

/// Floats of a job's input strip that stay in the L2 cache.
const L2_FLOATS: usize = 1 << 17;
/// Maximum work of a band, in units of [`GRAIN`] multiply-adds: it lasts a few milliseconds with
/// SIMD, tens without.
const MAX_BAND_GRAINS: usize = 1024;
/// Approximate number of k indices that one pass over a panel of weights processes.
const PASS_TERMS: usize = 768;

/// Geometry of the image reads.
#[derive(Clone, Copy)]
pub(super) struct Strips {
    /// Whether rows are copied with their padding.
    copied: bool,
    /// Strides of input rows and columns, in the image or the copy.
    row: usize,
    column: usize,
    /// Maximum number of output rows of a job.
    height: usize,
    /// Floats of workspace for each thread.
    pub(super) slot_len: usize,
}

impl Strips {
    /// Returns `None` for transposed convolutions and excessive padding, which other algorithms
    /// compute.
    pub(super) fn new(conv: &Conv) -> Option<Strips> {
        let [_, y, x] = conv.axes;
        let p = conv.params();
        if y.up != 1 || x.up != 1 || p.out_channels == 0 || p.in_channels == 0 {
            return None;
        }
        let whole = x.whole();
        let copied = whole != (0..x.output);
        if !copied {
            let (row, column) = (x.input * p.in_channels, p.in_channels);
            return Some(Strips { copied, row, column, height: y.output, slot_len: 0 });
        }
        let column = conv.group().0;
        let width = span(&x, x.output)?;
        let row = width.checked_mul(column)?;
        let len = |height: usize| span(&y, height)?.checked_mul(row);
        if len(1)? > 2 * L2_FLOATS {
            return None;
        }
        // Halves the height until the strip fits.
        let mut height = y.output.max(1);
        while height > 1 && len(height).is_none_or(|len| len > L2_FLOATS) {
            height = height.div_ceil(2);
        }
        Some(Strips { copied, row, column, height, slot_len: len(height)? })
    }
}

/// Number of input positions from the first tap of the first output to the last tap of output
/// `outputs - 1`.
fn span(axis: &Axis, outputs: usize) -> Option<usize> {
    let first = outputs.checked_sub(1)?.checked_mul(axis.stride as usize)?;
    first.checked_add((axis.kernel - 1).checked_mul(axis.step as usize)?)?.checked_add(1)
}

/// Computes the convolution. The workspace has at least one slot; `packed` has the packed weights
/// of all groups.
pub(super) fn run(
    conv: &Conv,
    strips: &Strips,
    context: Context<'_>,
    (input, packed): (&[f32], &[f32]),
    finish: &Finish<'_>,
    output: &mut [f32],
    workspace: &mut [f32],
) {
    let p = conv.params();
    let [_, y, x] = conv.axes;
    let (in_group, out_group) = conv.group();
    if output.is_empty() {
        return;
    }
    let pixels = y.output * x.output;
    let work = (pixels * out_group).saturating_mul(in_group * conv.taps()) / GRAIN;
    let threads = context.parallel.threads();
    let images = p.batch * p.groups;
    let jobs = if threads <= 1 { 1 } else { (threads * 4).div_ceil(images).min(work.max(1)) };
    let (_, nr) = context.tier.tile();
    // Each job copies its strip, so strips have many rows and few columns. Each thread gets the
    // same number of bands.
    let bands = y.output.div_ceil(strips.height).max(jobs.min(y.output / 8)).max(1);
    let even = bands.next_multiple_of(threads.max(1));
    let bands = if jobs > 1 && bands > 1 && even <= y.output / 4 { even } else { bands };
    // A single thread has few bands, and checks for cancellation between them.
    let bands =
        if threads <= 1 { bands.max((work / MAX_BAND_GRAINS).min(y.output / 16)) } else { bands };
    let cuts = jobs.div_ceil(bands).min(out_group.div_ceil(nr));
    let weights_len = packed.len() / p.groups;
    let area = y.input * x.input * p.in_channels;
    // SAFETY: channels of output pixels have distinct addresses, and the output is borrowed for
    // this call.
    let target = unsafe { Target::new(output.as_mut_ptr(), p.out_channels, 1) };
    for_each_job(
        context.parallel,
        images * bands * cuts,
        workspace,
        strips.slot_len,
        &|job, slot| {
            let (image, rest) = (job / (bands * cuts), job % (bands * cuts));
            let (sample, group) = (image / p.groups, image % p.groups);
            context.tier.dispatch(Band {
                conv,
                strips,
                image: &input[sample * area..][..area],
                weights: &packed[group * weights_len..][..weights_len],
                finish,
                group,
                rows: part(rest / cuts, bands, y.output, 1),
                columns: part(rest % cuts, cuts, out_group, nr),
                target,
                first_pixel: sample * pixels,
                slot,
            });
        },
    );
}

/// A job: a band of output rows and channels, of one sample and group.
struct Band<'a> {
    conv: &'a Conv,
    strips: &'a Strips,
    /// Image of the sample.
    image: &'a [f32],
    /// Weights of the group.
    weights: &'a [f32],
    finish: &'a Finish<'a>,
    group: usize,
    rows: Range<usize>,
    columns: Range<usize>,
    target: Target,
    first_pixel: usize,
    slot: &'a mut [f32],
}

/// Kernel rows whose sums are added to the output in one pass.
#[derive(Clone, Copy)]
struct Pass {
    /// Range of kernel rows: `from..to`.
    from: usize,
    to: usize,
    /// Number of contiguous runs in each row, and their length in elements. The first run is at
    /// `offset` in its row.
    pieces: usize,
    len: usize,
    offset: usize,
    /// Index of the first k index of the pass in the weights.
    weight: usize,
}

impl Pass {
    /// Returns the k index after the last one of the pass, for kernel rows of `run` elements.
    fn end(&self, run: usize) -> usize {
        (self.to - 1) * run + self.weight + self.pieces * self.len
    }
}

impl Vectorized for Band<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let [_, y, x] = self.conv.axes;
        let channels = self.conv.group().0;
        // Image row at which the source starts; negative in the padding.
        let origin = self.rows.start as isize * y.stride + y.origin;
        let (source, first_row) = if self.strips.copied {
            self.copy(s, origin);
            (&*self.slot, origin)
        } else {
            (&self.image[(self.group * channels).min(self.image.len())..], 0)
        };
        let run = x.kernel * channels;
        let joined = x.step == 1 && self.strips.column == channels;
        if joined && run.saturating_mul(y.kernel) <= PASS_TERMS {
            let pass = Pass { from: 0, to: y.kernel, pieces: 1, len: run, offset: 0, weight: 0 };
            self.passes(s, source, first_row, core::iter::once(pass));
        } else if joined {
            let cuts = run.div_ceil(PASS_TERMS);
            let len = run.div_ceil(cuts);
            self.passes(
                s,
                source,
                first_row,
                (0..y.kernel * cuts).map(|i| {
                    let (row, from) = (i / cuts, i % cuts * len);
                    let len = len.min(run.saturating_sub(from));
                    Pass { from: row, to: row + 1, pieces: 1, len, offset: from, weight: from }
                }),
            );
        } else {
            self.passes(
                s,
                source,
                first_row,
                (0..y.kernel).map(|row| Pass {
                    from: row,
                    to: row + 1,
                    pieces: x.kernel,
                    len: channels,
                    offset: 0,
                    weight: 0,
                }),
            );
        }
    }
}

impl Band<'_> {
    /// Copies the rows that the band reads, with padding, to the workspace; `origin` is the first
    /// row. Rows outside the image are never read.
    #[inline(always)]
    fn copy<S: Simd>(&mut self, s: S, origin: isize) {
        let [_, y, x] = self.conv.axes;
        let (channels, all) = (self.conv.group().0, self.conv.params().in_channels);
        let count = span(&y, self.rows.len()).unwrap_or(0);
        let from = x.origin.unsigned_abs();
        let inside = x.input.min((self.strips.row / channels).saturating_sub(from));
        for (r, row) in self.slot.chunks_exact_mut(self.strips.row).take(count).enumerate() {
            let Ok(iy) = usize::try_from(origin + r as isize) else { continue };
            if iy >= y.input {
                break;
            }
            let (left, rest) = row.split_at_mut((from * channels).min(self.strips.row));
            let (middle, right) = rest.split_at_mut(inside * channels);
            left.fill(0.0);
            right.fill(0.0);
            let line = &self.image[iy * x.input * all..][..x.input * all];
            if channels == all {
                copy_strided(s, &line[..middle.len()], 1, middle);
                continue;
            }
            let pixels = line.chunks_exact(all).zip(middle.chunks_exact_mut(channels));
            for (pixel, copy) in pixels {
                copy_strided(s, &pixel[self.group * channels..][..channels], 1, copy);
            }
        }
    }

    /// Runs the passes over all panels of the band's columns. `first_row` is the image row of the
    /// source's first row.
    #[inline(always)]
    fn passes<S: Simd>(
        &self,
        s: S,
        source: &[f32],
        first_row: isize,
        passes: impl Iterator<Item = Pass> + Clone,
    ) {
        let [_, y, x] = self.conv.axes;
        let (channels, out_group) = self.conv.group();
        let (k, nr) = (channels * self.conv.taps(), S::LANES * S::VECTORS);
        let run = x.kernel * channels;
        let Strips { row: row_len, column, .. } = *self.strips;
        let all = self.conv.params().out_channels;
        // Tiles of equal width that do not cross the end of a row.
        let width = x.output.div_ceil(x.output.div_ceil(S::ROWS));
        let bias = self.finish.bias.map(|bias| &bias[self.group * out_group..][..out_group]);
        for j in self.columns.clone().step_by(nr) {
            let cols = nr.min(self.columns.end - j);
            let panel = &self.weights[j * k..][..k * nr];
            for pass in passes.clone() {
                // The weights of this pass; those of the next pass follow.
                let summands = (pass.to - pass.from) * pass.pieces * pass.len;
                let tiles = self.rows.len() * x.output.div_ceil(width);
                let next = &self.weights[(j * k + pass.end(run) * nr).min(self.weights.len())..];
                let ahead_len = (summands * nr).min(next.len());
                let mut done = 0;
                for oy in self.rows.clone() {
                    let taps = y.taps(oy);
                    let (from, to) = (pass.from.max(taps.start), pass.to.min(taps.end));
                    // Outputs without taps inside the image are the bias alone; the first pass
                    // writes them.
                    let first = pass.offset == 0 && pass.from <= taps.start && taps.start < pass.to
                        || taps.is_empty() && pass.from == 0 && pass.offset == 0;
                    let ends = pass.offset + pass.len * pass.pieces == x.kernel * channels;
                    let last = ends && pass.from < taps.end && taps.end <= pass.to
                        || taps.is_empty() && first;
                    if from >= to && !first {
                        continue;
                    }
                    let rows = to.saturating_sub(from);
                    let at = oy as isize * y.stride + y.origin + from as isize * y.step - first_row;
                    let at = (at.max(0) as usize) * row_len + pass.offset;
                    let weight = from * x.kernel * channels + pass.weight;
                    let (pieces, a_piece) = if pass.pieces > 1 {
                        (pass.pieces.min(rows * pass.pieces), x.step as usize * column)
                    } else {
                        (rows, y.step as usize * row_len)
                    };
                    let pitch = x.stride as usize * column;
                    for ox in (0..x.output).step_by(width) {
                        let count = width.min(x.output - ox);
                        let a = if pieces == 0 {
                            source
                        } else {
                            // Length of the range that the tile reads.
                            let far = (pieces - 1) * a_piece + (count - 1) * pitch + pass.len;
                            &source[at + ox * pitch..][..far]
                        };
                        let b = if pieces == 0 {
                            panel
                        } else {
                            &panel[weight * nr..][..pieces * pass.len * nr]
                        };
                        let pixel = self.first_pixel + oy * x.output + ox;
                        let summands = pieces * pass.len;
                        let (next, next_lines) =
                            next_panel_part(next.as_ptr(), ahead_len, (done, tiles), summands);
                        done += 1;
                        let tile = Tile {
                            next,
                            next_lines,
                            pieces,
                            k: pass.len,
                            a: a.as_ptr(),
                            a_row: pitch,
                            a_piece,
                            a_col: 1,
                            b: b.as_ptr(),
                            b_row: nr,
                            b_col: 1,
                            c: self.target.at(pixel, self.group * out_group + j),
                            c_row: all,
                            c_col: 1,
                            far: false,
                            row_bias: core::ptr::null(),
                            col_bias: match bias {
                                Some(bias) if first => bias[j..][..cols].as_ptr(),
                                _ => core::ptr::null(),
                            },
                            alpha: 1.0,
                            beta: if first { self.finish.beta } else { 1.0 },
                            lo: if last { self.finish.min } else { f32::NEG_INFINITY },
                            hi: if last { self.finish.max } else { f32::INFINITY },
                        };
                        // SAFETY: A, B and the bias are slices that cover all reads. No other job
                        // has these pixels and channels of the output, which `run` borrows.
                        unsafe { run_tile(s, count, cols, &tile) };
                    }
                }
            }
        }
    }
}
