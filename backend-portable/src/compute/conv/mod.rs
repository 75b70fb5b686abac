//! Convolutions of one to three spatial dimensions, plain and transposed, channels first and
//! channels last, `f32`.
//!
//! | form                                   | computed as                                                        |
//! |----------------------------------------|--------------------------------------------------------------------|
//! | 1 x 1, stride 1                        | a product on the image in place                                      |
//! | channels last, weights packed          | `strips.rs`: a product that reads its windows from the image         |
//! | the same, in groups of 4 or 8          | `narrow.rs`, where a vector holds several groups                     |
//! | one or two spatial dimensions          | a product; blocks of the patch matrix are written when needed        |
//! | depthwise, one or two dimensions       | `depthwise.rs`                                                      |
//! | three dimensions, or no workspace      | `direct.rs`: plain loops, which need no memory                       |
//!
//! Channels first, the product is `weights [out, in * taps] x patches [in * taps, pixels]`: the
//! weights are read in place. Channels last it is
//! `patches [pixels, taps * in] x weights [taps * in, out]`, for which the weights can be packed
//! once ([`Conv::pack_weights`]).

mod depthwise;
mod direct;
mod narrow;
mod params;
mod strips;
#[cfg(test)]
mod tests;

pub use params::{Conv, ConvParams, Layout};

/// Whether so many groups of so many inputs and outputs are computed several to a vector, channels
/// last.
#[cfg(feature = "engine")]
pub(crate) fn share_vectors(groups: usize, group: [usize; 2], tier: Tier) -> bool {
    narrow::serves(groups, group, tier)
}

use super::gemm::operand::{Lhs, Operand, Rhs, pack_rhs, packed_len};
use super::gemm::patches::{Axis, Patches};
use super::gemm::{Bias, Context, Epilogue, Problem, ShapeMismatch, Target, run_problem, slot_len};
use super::simd::Tier;
use crate::paths::{self, Paths};
use strips::Strips;

/// How weights are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WeightForm {
    /// In any order. The strides are those of `[out, in / groups, depth, height, width]` for a
    /// convolution, of `[in, out / groups, depth, height, width]` for a transposed one.
    Strided([usize; 5]),
    /// As [`Conv::pack_weights`] wrote them, for the same tier.
    Packed,
}

/// The weights of a convolution.
#[derive(Clone, Copy, Debug)]
pub struct Weights<'a> {
    /// The elements.
    pub data: &'a [f32],
    /// Their order.
    pub form: WeightForm,
}

impl WeightForm {
    /// Elements in the order of the dimensions: `second` is the size of the second one, `kernel`
    /// `[depth, height, width]`.
    pub fn contiguous(second: usize, kernel: [usize; 3]) -> Self {
        let plane = kernel[1].saturating_mul(kernel[2]);
        let taps = kernel[0].saturating_mul(plane);
        WeightForm::Strided([second.saturating_mul(taps), taps, plane, kernel[2], 1])
    }
}

/// What is added to the result, and its limits: `clamp(sum + bias + beta * output, min, max)`.
#[derive(Clone, Copy, Debug)]
pub struct Finish<'a> {
    /// An element for each output channel.
    pub bias: Option<&'a [f32]>,
    /// Factor of the previous contents of the output, which are not read when it is zero: 1 adds to
    /// what is there, as where a residual connection ends.
    pub beta: f32,
    /// Lower limit; minus infinity for none.
    pub min: f32,
    /// Upper limit; infinity for none.
    pub max: f32,
}

impl Default for Finish<'_> {
    fn default() -> Self {
        Finish { bias: None, beta: 0.0, min: f32::NEG_INFINITY, max: f32::INFINITY }
    }
}

/// Weights that are not packed: element (out, in, tap) of a group at `out * .out + in * .input +
/// tap * .tap`.
#[derive(Clone, Copy)]
struct Filter<'a> {
    data: &'a [f32],
    out: usize,
    input: usize,
    tap: usize,
    /// Distance of the groups.
    group: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Method {
    Product,
    Depthwise,
    /// Where weights are packed: else a product.
    Narrow,
    Direct,
}

impl Conv {
    fn method(&self, tier: Tier) -> Method {
        let p = self.params();
        if self.axes[0] != Axis::TRIVIAL {
            return Method::Direct;
        }
        let depthwise = p.in_channels == p.groups
            && p.groups > 1
            && !p.transposed
            && self.taps() <= depthwise::TAPS;
        match p.layout {
            // A processor that has no vectors links nothing of this.
            _ if tier != Tier::SCALAR && narrow::fits(self, tier) => Method::Narrow,
            _ if !depthwise => Method::Product,
            Layout::ChannelsLast if p.out_channels != p.groups => Method::Product,
            // One lane has nothing to gain from copies.
            _ if tier == Tier::SCALAR => Method::Direct,
            _ => Method::Depthwise,
        }
    }

    /// The weights with one stride for the taps; `None` when they have more.
    fn filter<'a>(&self, data: &'a [f32], strides: [usize; 5]) -> Option<Filter<'a>> {
        let [kd, kh, kw] = self.params().kernel;
        let mut tap = None;
        let mut below = 1usize;
        for (size, stride) in [(kw, strides[4]), (kh, strides[3]), (kd, strides[2])] {
            if size > 1 {
                let expected = *tap.get_or_insert(stride);
                if stride != expected.checked_mul(below)? {
                    return None;
                }
            }
            below = below.checked_mul(size)?;
        }
        let (in_group, out_group) = self.group();
        let tap = tap.unwrap_or(1);
        Some(if self.params().transposed {
            Filter {
                data,
                out: strides[1],
                input: strides[0],
                tap,
                group: in_group.saturating_mul(strides[0]),
            }
        } else {
            Filter {
                data,
                out: strides[0],
                input: strides[1],
                tap,
                group: out_group.saturating_mul(strides[0]),
            }
        })
    }

    /// The weights of one group as the operand of the product.
    fn filter_operand<'a>(&self, filter: Filter<'a>, group: usize) -> Operand<'a, f32> {
        let (in_group, _) = self.group();
        let taps = self.taps();
        let one = |inner: usize| (usize::MAX, 0, inner);
        let (inner_len, outer, inner) = match self.params().layout {
            _ if taps == 1 => one(filter.input),
            _ if in_group == 1 => one(filter.tap),
            Layout::ChannelsFirst if filter.input == taps.saturating_mul(filter.tap) => {
                one(filter.tap)
            }
            Layout::ChannelsFirst => (taps, filter.input, filter.tap),
            Layout::ChannelsLast if filter.tap == in_group.saturating_mul(filter.input) => {
                one(filter.input)
            }
            Layout::ChannelsLast => (in_group, filter.tap, filter.input),
        };
        let data = filter.data.get(group.saturating_mul(filter.group)..).unwrap_or(&[]);
        Operand { data, other: filter.out, inner_len, outer, inner }
    }

    /// The product for one sample and group, or for all samples where they can be joined.
    fn problem<'a>(
        &self,
        image: &'a [f32],
        weights: Rhs<'a, f32>,
        epilogue: Epilogue<'a>,
        joined: usize,
    ) -> Problem<'a, f32, f32> {
        let p = self.params();
        let (in_group, out_group) = self.group();
        let [_, y, x] = self.axes;
        let (pixels, k) = (y.output * x.output * joined, in_group * self.taps());
        let channels_last = p.layout == Layout::ChannelsLast;
        let (channel_stride, x_stride) =
            if channels_last { (1, p.in_channels) } else { (y.input * x.input, 1) };
        let in_place = y.is_identity() && x.is_identity();
        let (pixel, channel) = (x_stride, channel_stride);
        let plain =
            Operand { data: image, other: pixel, inner_len: usize::MAX, outer: 0, inner: channel };
        let y_stride = x_stride * x.input;
        let channels_inside = channels_last;
        let patches = Patches {
            image,
            channels: in_group,
            channel_stride,
            y_stride,
            x_stride,
            y,
            x,
            channels_inside,
        };
        if channels_last {
            let lhs = if in_place { Lhs::Strided(plain) } else { Lhs::Patches(patches) };
            return Problem { m: pixels, n: out_group, k, k_step: 1, lhs, rhs: weights, epilogue };
        }
        // Channels first: weights on the left.
        let lhs = match weights {
            Rhs::Strided(x) => Lhs::Strided(x),
            // There is no packed form of these; `run` rejects it.
            _ => Lhs::Strided(plain),
        };
        let (rhs, k_step) =
            if in_place { (Rhs::Strided(plain), 1) } else { (Rhs::Patches(patches), self.taps()) };
        Problem { m: out_group, n: pixels, k, k_step, lhs, rhs, epilogue }
    }

    /// Floats of workspace with which the convolution runs at full speed on `threads` threads, with
    /// weights of this form. With fewer it runs on fewer threads; with less than one thread's
    /// share, in plain loops. `None` when it is more than memory.
    pub fn workspace_len(&self, tier: Tier, threads: usize, form: WeightForm) -> Option<usize> {
        self.slot_len(tier, form)?.checked_mul(threads.max(1))
    }

    /// How a product reads its image, where it does so without patches.
    fn strips(&self, tier: Tier, form: WeightForm) -> Option<Strips> {
        // A processor that has no vectors links nothing of this.
        let packed = tier != Tier::SCALAR
            && form == WeightForm::Packed
            && self.params().layout == Layout::ChannelsLast;
        let in_place = self.axes.iter().all(Axis::is_identity);
        if packed && !in_place { Strips::new(self) } else { None }
    }

    /// Whether [`run`](Self::run) makes products of matrices of it, with this workspace.
    pub fn is_product(&self, tier: Tier, form: WeightForm, workspace: usize) -> bool {
        let has_filter = match form {
            WeightForm::Packed => true,
            WeightForm::Strided(strides) => self.filter(&[], strides).is_some(),
        };
        has_filter
            && self.method(tier) != Method::Direct
            && self.slot_len(tier, form).is_some_and(|len| len <= workspace)
    }

    fn slot_len(&self, tier: Tier, form: WeightForm) -> Option<usize> {
        match self.method(tier) {
            Method::Direct => Some(0),
            Method::Depthwise if tier != Tier::SCALAR => depthwise::slot_len(self, tier, form),
            Method::Depthwise => Some(0),
            Method::Narrow if form == WeightForm::Packed => Some(0),
            Method::Product | Method::Narrow => {
                if let Some(strips) = self.strips(tier, form) {
                    return Some(strips.slot_len);
                }
                let weights = match form {
                    WeightForm::Packed => Rhs::Packed(&[]),
                    WeightForm::Strided(strides) => match self.filter(&[], strides) {
                        Some(filter) => Rhs::Strided(self.filter_operand(filter, 0)),
                        None => return Some(0),
                    },
                };
                slot_len(tier, &self.problem(&[], weights, Epilogue::default(), 1))
            }
        }
    }

    /// Length of the packed form of the weights; 0 when packing has no use (channels first, three
    /// dimensions, the scalar tier), `None` when it is more than memory.
    pub fn packed_weights_len(&self, tier: Tier) -> Option<usize> {
        let (in_group, out_group) = self.group();
        match self.method(tier) {
            _ if self.params().layout == Layout::ChannelsFirst || tier == Tier::SCALAR => Some(0),
            Method::Direct => Some(0),
            Method::Depthwise => depthwise::packed_len(self, tier),
            Method::Narrow => narrow::packed_len(self, tier),
            Method::Product => packed_len(tier, out_group, in_group.checked_mul(self.taps())?)?
                .checked_mul(self.params().groups),
        }
    }

    /// Packs weights with the given strides into `packed`, which has [`Conv::packed_weights_len`]
    /// elements, not 0.
    pub fn pack_weights(
        &self,
        context: Context<'_>,
        data: &[f32],
        strides: [usize; 5],
        packed: &mut [f32],
    ) -> Result<(), ShapeMismatch> {
        let tier = context.tier;
        if tier == Tier::SCALAR {
            return Err(ShapeMismatch);
        }
        let len = self.packed_weights_len(tier).filter(|&len| len > 0).ok_or(ShapeMismatch)?;
        let packed = packed.get_mut(..len).ok_or(ShapeMismatch)?;
        self.check_weights(data, strides)?;
        let filter = self.filter(data, strides).ok_or(ShapeMismatch)?;
        match self.method(tier) {
            Method::Depthwise => {
                depthwise::pack(self, tier, filter, packed);
                return Ok(());
            }
            Method::Narrow => {
                narrow::pack(self, tier, filter, packed);
                return Ok(());
            }
            _ => {}
        }
        let (in_group, out_group) = self.group();
        for (g, part) in packed.chunks_exact_mut(len / self.params().groups).enumerate() {
            pack_rhs(
                context,
                out_group,
                in_group * self.taps(),
                &self.filter_operand(filter, g),
                part,
            );
        }
        Ok(())
    }

    fn check_weights(&self, data: &[f32], strides: [usize; 5]) -> Result<(), ShapeMismatch> {
        let p = self.params();
        let (in_group, out_group) = self.group();
        let (first, second) =
            if p.transposed { (p.in_channels, out_group) } else { (p.out_channels, in_group) };
        let sizes = [first, second, p.kernel[0], p.kernel[1], p.kernel[2]];
        if sizes.contains(&0) {
            return Ok(());
        }
        let last = sizes
            .iter()
            .zip(strides)
            .try_fold(0usize, |at, (&n, s)| at.checked_add((n - 1).checked_mul(s)?));
        if last.is_some_and(|last| last < data.len()) { Ok(()) } else { Err(ShapeMismatch) }
    }

    /// Computes the convolution. Fails only when a slice is shorter than its shape says, or weights
    /// are packed though there is no packed form.
    pub fn run(
        &self,
        context: Context<'_>,
        input: &[f32],
        weights: Weights<'_>,
        finish: &Finish<'_>,
        output: &mut [f32],
        workspace: &mut [f32],
    ) -> Result<(), ShapeMismatch> {
        let input = input.get(..self.input_len()).ok_or(ShapeMismatch)?;
        let output = output.get_mut(..self.output_len()).ok_or(ShapeMismatch)?;
        if finish.bias.is_some_and(|bias| bias.len() < self.params().out_channels) {
            return Err(ShapeMismatch);
        }
        let filter = match weights.form {
            WeightForm::Packed => {
                let len = self.packed_weights_len(context.tier).filter(|&len| len > 0);
                if len.is_none_or(|len| weights.data.len() < len) {
                    return Err(ShapeMismatch);
                }
                None
            }
            WeightForm::Strided(strides) => {
                self.check_weights(weights.data, strides)?;
                let filter = self.filter(weights.data, strides);
                // What an image has none of is not asked for again: it was decided when the call
                // was prepared.
                let is_product = !paths::has(Paths::DIRECT_CONVOLUTION)
                    || paths::has(Paths::PRODUCT_CONVOLUTION)
                        && self.is_product(context.tier, weights.form, workspace.len());
                if !is_product {
                    direct::run(self, context, input, (weights.data, strides), finish, output);
                    return Ok(());
                }
                filter
            }
        };
        match self.method(context.tier) {
            // A processor that has no vectors links nothing of this.
            Method::Depthwise if context.tier != Tier::SCALAR => depthwise::run(
                self,
                context,
                input,
                filter.ok_or(weights.data),
                finish,
                output,
                workspace,
            ),
            Method::Narrow
                if context.tier != Tier::SCALAR && weights.form == WeightForm::Packed =>
            {
                narrow::run(self, context, (input, weights.data), finish, output);
            }
            _ => match (self.strips(context.tier, weights.form), filter) {
                (Some(strips), None)
                    if context.tier != Tier::SCALAR && strips.slot_len <= workspace.len() =>
                {
                    let len = self.packed_weights_len(context.tier).unwrap_or(0);
                    let operands = (input, &weights.data[..len]);
                    strips::run(self, &strips, context, operands, finish, output, workspace);
                }
                _ => self.product(
                    context,
                    input,
                    filter.ok_or(weights.data),
                    finish,
                    output,
                    workspace,
                ),
            },
        }
        Ok(())
    }

    /// A product for each sample and group; `weights` are plain or packed.
    fn product(
        &self,
        context: Context<'_>,
        input: &[f32],
        weights: Result<Filter<'_>, &[f32]>,
        finish: &Finish<'_>,
        output: &mut [f32],
        workspace: &mut [f32],
    ) {
        let p = self.params();
        let (in_group, out_group) = self.group();
        let channels_last = p.layout == Layout::ChannelsLast;
        let in_pixels: usize = p.input.iter().product();
        let out_pixels: usize = self.output().iter().product();
        let joined =
            if channels_last && self.axes.iter().all(Axis::is_identity) { p.batch } else { 1 };
        for n in (0..p.batch).step_by(joined.max(1)) {
            for g in 0..p.groups {
                let (from, to) = if channels_last {
                    (
                        n * in_pixels * p.in_channels + g * in_group,
                        n * out_pixels * p.out_channels + g * out_group,
                    )
                } else {
                    (
                        (n * p.in_channels + g * in_group) * in_pixels,
                        (n * p.out_channels + g * out_group) * out_pixels,
                    )
                };
                let rhs = match weights {
                    Ok(filter) => Rhs::Strided(self.filter_operand(filter, g)),
                    Err(packed) => {
                        let len = self.packed_weights_len(context.tier).unwrap_or(0) / p.groups;
                        Rhs::Packed(&packed[g * len..][..len])
                    }
                };
                let bias = finish.bias.map(|bias| &bias[g * out_group..][..out_group]);
                let bias = match bias {
                    None => Bias::None,
                    Some(bias) if channels_last => Bias::Cols(bias),
                    Some(bias) => Bias::Rows(bias),
                };
                let &Finish { beta, min, max, .. } = finish;
                let epilogue = Epilogue { alpha: 1.0, beta, bias, min, max };
                let problem = self.problem(&input[from..], rhs, epilogue, joined);
                let (row, col) = if channels_last { (p.out_channels, 1) } else { (out_pixels, 1) };
                // SAFETY: input and output have the lengths that the shape demands, and the weights
                // were checked; so all elements of this group exist. `output` is borrowed mutably,
                // and elements of C differ: they are the group's channels of one image, or of all.
                unsafe {
                    let target = Target::new(output[to..].as_mut_ptr(), row, col);
                    run_problem(context, &problem, target, workspace);
                }
            }
        }
    }
}
