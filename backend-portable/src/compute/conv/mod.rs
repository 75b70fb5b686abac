//! `f32` convolutions of one to three spatial dims, plain and transposed, channels first and
//! channels last.
//!
//! | convolution                      | algorithm                                         |
//! |----------------------------------|---------------------------------------------------|
//! | 1 x 1, stride 1                  | GEMM on the image in place                        |
//! | channels last, weights packed    | `strips.rs`: GEMM that reads windows of the image |
//! | the same, in groups of 4 or 8    | `narrow.rs`, if a vector holds several groups     |
//! | one or two spatial dims    | implicit im2col and GEMM                          |
//! | depthwise, one or two dims | `depthwise/`                                      |
//! | three dims, no workspace   | `direct.rs`: plain loops without workspace        |
//!
//! Channels first, the GEMM is `weights [out, in * taps] x patches [in * taps, pixels]`, which
//! reads the weights in place. Channels last, it is
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

/// Whether a channels-last convolution with these group sizes (`[inputs, outputs]`) packs several
/// groups into a vector.
#[cfg(feature = "engine")]
pub(crate) fn share_vectors(groups: usize, group: [usize; 2], tier: Tier) -> bool {
    narrow::supports(groups, group, tier)
}

use super::gemm::operand::{Lhs, Operand, Rhs, pack_rhs, packed_len};
use super::gemm::patches::{Axis, Patches};
use super::gemm::{
    Bias, Context, Epilogue, Problem, ShapeMismatch, Target, run_problem, slot_len, sum_block,
};
use super::simd::Tier;
use crate::variants::{self, Variants};
use strips::Strips;

/// Layout of weights.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WeightForm {
    /// Any layout. The strides are those of `[out, in / groups, depth, height, width]` for a
    /// convolution, of `[in, out / groups, depth, height, width]` for a transposed one.
    Strided([usize; 5]),
    /// Output of [`Conv::pack_weights`] for the same tier.
    Packed,
}

/// Order in which the terms of a sum are added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SumOrder {
    /// Whether the channels of a tap follow each other, instead of the taps of a channel.
    pub by_taps: bool,
    /// Number of terms that are added to each other before their sum is added to the result, which
    /// starts with the bias.
    pub block: usize,
}

/// The weights of a convolution.
#[derive(Clone, Copy, Debug)]
pub struct Weights<'a> {
    /// The elements.
    pub data: &'a [f32],
    /// Their layout.
    pub form: WeightForm,
}

impl WeightForm {
    /// Contiguous weights; `second` is the size of the second dimension, `kernel` is
    /// `[depth, height, width]`.
    pub fn contiguous(second: usize, kernel: [usize; 3]) -> Self {
        let plane = kernel[1].saturating_mul(kernel[2]);
        let taps = kernel[0].saturating_mul(plane);
        WeightForm::Strided([second.saturating_mul(taps), taps, plane, kernel[2], 1])
    }
}

/// Epilogue of a convolution: `clamp(sum + bias + beta * output, min, max)`.
#[derive(Clone, Copy, Debug)]
pub struct Finish<'a> {
    /// An element for each output channel.
    pub bias: Option<&'a [f32]>,
    /// Scale of the previous contents of the output, which are not read if it is zero. 1 adds to
    /// them, as at the end of a residual connection.
    pub beta: f32,
    /// Lower bound; minus infinity if unbounded.
    pub min: f32,
    /// Upper bound; infinity if unbounded.
    pub max: f32,
}

impl Default for Finish<'_> {
    fn default() -> Self {
        Finish { bias: None, beta: 0.0, min: f32::NEG_INFINITY, max: f32::INFINITY }
    }
}

/// Unpacked weights: element (out, in, tap) of a group is at
/// `out * .out + in * .input + tap * .tap`.
#[derive(Clone, Copy)]
struct Filter<'a> {
    data: &'a [f32],
    out: usize,
    input: usize,
    tap: usize,
    /// Stride of the groups.
    group: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Method {
    Gemm,
    Depthwise,
    /// `narrow.rs`; requires packed weights, otherwise GEMM is used.
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
            && self.taps() <= depthwise::MAX_TAPS;
        match p.layout {
            // Never chosen without SIMD, so that the linker drops it there.
            _ if tier != Tier::SCALAR && narrow::fits(self, tier) => Method::Narrow,
            _ if !depthwise => Method::Gemm,
            Layout::ChannelsLast if p.out_channels != p.groups => Method::Gemm,
            // With one lane, copying the image brings no gain.
            _ if tier == Tier::SCALAR => Method::Direct,
            _ => Method::Depthwise,
        }
    }

    /// The weights with a single stride for the taps; `None` if the taps have several.
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

    /// The weights of one group as a GEMM operand.
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

    /// The GEMM of one sample and group, or of all samples if they can be joined.
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
        // Channels first: weights are the left operand.
        let lhs = match weights {
            Rhs::Strided(x) => Lhs::Strided(x),
            // Packed weights do not exist for this layout; `run` rejects them.
            _ => Lhs::Strided(plain),
        };
        let (rhs, k_step) =
            if in_place { (Rhs::Strided(plain), 1) } else { (Rhs::Patches(patches), self.taps()) };
        Problem { m: out_group, n: pixels, k, k_step, lhs, rhs, epilogue }
    }

    /// Like [`workspace_len`](Self::workspace_len), but 0 if the parameters would make it
    /// disproportionate to the tensors (for example a stride of billions): then a plain loop over
    /// the output computes the convolution. `weights` is the number of weights.
    pub fn bounded_workspace_len(
        &self,
        tier: Tier,
        threads: usize,
        form: WeightForm,
        weights: usize,
    ) -> usize {
        /// Floats per thread that are always acceptable: enough for the blocks of a GEMM.
        const MIN_WORKSPACE: usize = 1 << 18;
        let tensors = self.input_len().saturating_add(self.output_len()).saturating_add(weights);
        let max_len = tensors.saturating_mul(4).max(MIN_WORKSPACE);
        match self.workspace_len(tier, 1, form) {
            Some(len) if len <= max_len => self.workspace_len(tier, threads, form).unwrap_or(0),
            _ => 0,
        }
    }

    /// Floats of workspace for full speed on `threads` threads with weights of this form; `None` if
    /// it exceeds the address space.
    ///
    /// With less workspace, the convolution runs on fewer threads, and below one thread's share in
    /// plain loops.
    pub fn workspace_len(&self, tier: Tier, threads: usize, form: WeightForm) -> Option<usize> {
        self.slot_len(tier, form)?.checked_mul(threads.max(1))
    }

    /// Geometry of a GEMM that reads its windows from the image, if it applies.
    fn strips(&self, tier: Tier, form: WeightForm) -> Option<Strips> {
        // Constant false in firmware, which has only the scalar tier and so does not link the
        // callee.
        let packed = tier != Tier::SCALAR
            && form == WeightForm::Packed
            && self.params().layout == Layout::ChannelsLast;
        let in_place = self.axes.iter().all(Axis::is_identity);
        if packed && !in_place { Strips::new(self) } else { None }
    }

    /// Whether [`run`](Self::run) uses a GEMM for this convolution with a workspace of this length.
    pub fn is_gemm(&self, tier: Tier, form: WeightForm, workspace: usize) -> bool {
        let has_filter = match form {
            WeightForm::Packed => true,
            WeightForm::Strided(strides) => self.filter(&[], strides).is_some(),
        };
        has_filter
            && self.method(tier) != Method::Direct
            && self.slot_len(tier, form).is_some_and(|len| len <= workspace)
    }

    /// Order of the terms of a sum, in [`run`](Self::run) without SIMD and with a workspace of this
    /// length.
    pub(crate) fn scalar_sum_order(&self, form: WeightForm, workspace: usize) -> SumOrder {
        let terms = self.group().0.saturating_mul(self.taps());
        let filter = match form {
            WeightForm::Strided(strides) => self.filter(&[], strides),
            WeightForm::Packed => None,
        };
        match filter {
            Some(filter) if self.is_gemm(Tier::SCALAR, form, workspace) => {
                let joins = self.params().layout == Layout::ChannelsLast
                    && self.axes.iter().all(Axis::is_identity);
                let joined = if joins { self.params().batch } else { 1 };
                let weights = Rhs::Strided(self.filter_operand(filter, 0));
                let problem = self.problem(&[], weights, Epilogue::default(), joined);
                let by_taps = self.params().layout == Layout::ChannelsLast;
                SumOrder { by_taps, block: sum_block(Tier::SCALAR, &problem) }
            }
            _ => SumOrder { by_taps: true, block: terms },
        }
    }

    fn slot_len(&self, tier: Tier, form: WeightForm) -> Option<usize> {
        match self.method(tier) {
            Method::Direct => Some(0),
            Method::Depthwise if tier != Tier::SCALAR => depthwise::slot_len(self, tier, form),
            Method::Depthwise => Some(0),
            Method::Narrow if form == WeightForm::Packed => Some(0),
            Method::Gemm | Method::Narrow => {
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

    /// Packed length of the weights; 0 if packing brings no gain (channels first, three dims,
    /// the scalar tier), `None` if it exceeds the address space.
    pub fn packed_weights_len(&self, tier: Tier) -> Option<usize> {
        let (in_group, out_group) = self.group();
        match self.method(tier) {
            _ if self.params().layout == Layout::ChannelsFirst || tier == Tier::SCALAR => Some(0),
            Method::Direct => Some(0),
            Method::Depthwise => depthwise::packed_len(self, tier),
            Method::Narrow => narrow::packed_len(self, tier),
            Method::Gemm => packed_len(tier, out_group, in_group.checked_mul(self.taps())?)?
                .checked_mul(self.params().groups),
        }
    }

    /// Packs weights with the given strides into `packed`, which has [`Conv::packed_weights_len`]
    /// elements, not 0.
    ///
    /// # Errors
    /// If `data` or `packed` is too short.
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

    /// Computes the convolution.
    ///
    /// # Errors
    /// If a slice is shorter than its shape requires, or the weights are packed although this
    /// convolution has no packed form.
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
                // If the build omits the direct path, the choice was made at preparation. The `has`
                // checks keep the unused path out of the firmware.
                let is_gemm = !variants::has(Variants::DIRECT_CONVOLUTION)
                    || variants::has(Variants::GEMM_CONVOLUTION)
                        && self.is_gemm(context.tier, weights.form, workspace.len());
                if !is_gemm {
                    direct::run(self, context, input, (weights.data, strides), finish, output);
                    return Ok(());
                }
                filter
            }
        };
        match self.method(context.tier) {
            // Constant false in firmware, which has only the scalar tier and so does not link the
            // callee.
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
                _ => self.run_gemm(
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

    /// One GEMM for each sample and group; `weights` are `Ok` if plain, `Err` if packed.
    fn run_gemm(
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
                // SAFETY: input and output have the lengths of the shape, and the weights were
                // checked, so all elements of this group exist. `output` is borrowed mutably.
                // Elements of C are distinct: they are the group's channels of one image, or of all
                // images.
                unsafe {
                    let target = Target::new(output[to..].as_mut_ptr(), row, col);
                    run_problem(context, &problem, target, workspace);
                }
            }
        }
    }
}
