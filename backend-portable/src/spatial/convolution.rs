//! Convolutions, plain and transposed, with one to three spatial dims.
//!
//! `f32` images in a memory layout that the compute engine supports are delegated to it. Half and
//! bfloat16 images are as well, widened in scratch memory, if the processor has vector
//! instructions. Everything else is computed by `convolve_plain.rs`.

use super::convolve_plain;
use super::feature_map::FeatureMap;
use crate::compute::conv::{Conv, ConvParams, Finish, Layout, WeightForm, Weights};
use crate::compute::gemm::Context;
use crate::compute::simd::Tier;
use crate::compute::storage::Stored;
use crate::machine;
use crate::number::{ComputeType, elements, elements_mut, unsupported};
use crate::table::kernels;
use crate::variants::{self, Variants};
use torchlet_core::Param::{Bool, Int, IntList, OptionalTensor, Out, Tensor};
use torchlet_core::layout::channels_last_order;
use torchlet_core::rules::window::{ConvolutionKind, Windows, convolution, convolution_windows};
use torchlet_core::{
    Arguments, Invoke, Kernel, KernelError, Plan, Prepare, ScalarType, Sizes, TensorInfo,
};

kernels! { CONVOLUTION:
    /// `aten::convolution.out(input, weight, bias, stride, padding,
    /// dilation, transposed, output_padding, groups, out)`: convolution, plain or transposed.
    CONVOLUTION_OUT = Kernel::new(
        "aten::convolution.out",
        &[Tensor, Tensor, OptionalTensor, IntList, IntList, IntList, Bool, IntList, Int, Out],
        prepare,
    );
}

const OUT: usize = 9;

/// Checked parameters of a call.
pub(super) struct Call {
    pub(super) windows: Windows,
    pub(super) transposed: bool,
    pub(super) groups: usize,
    pub(super) input: FeatureMap,
    pub(super) out: FeatureMap,
    /// Sizes and strides of the weights: output and input channels (swapped if transposed), depth,
    /// height, width.
    pub(super) weight: FeatureMap,
    pub(super) output_padding: [usize; 3],
    /// Memory layout of input and output, if both have the same and the engine supports it.
    pub(super) layout: Option<Layout>,
    /// Whether the dim orders alone determine the layout, for all sizes.
    pub(super) fixed_layout: bool,
}

impl Call {
    /// Decodes the arguments; also returns the shape of the output.
    fn read(ctx: &Arguments) -> Result<(Self, Sizes), KernelError> {
        let (input, weight) = (ctx.info(0)?, ctx.info(1)?);
        let wrong = |arg, what| KernelError::argument(arg, what);
        let windows = convolution_windows(
            &weight.sizes,
            &ctx.ints(3)?,
            &ctx.ints(4)?,
            &ctx.ints(5)?,
        )
        .ok_or(wrong(
            3,
            "stride, padding or dilation: expected values in range, one or one per spatial dim",
        ))?;
        let extra = ctx.ints(7)?;
        let (transposed, groups) = (ctx.bool(6)?, ctx.int(8)?);
        let kind = ConvolutionKind { transposed, output_padding: &extra, groups };
        let sizes = convolution(&input.sizes, &weight.sizes, &windows, kind).ok_or(wrong(
            0,
            "input shape does not match weights, groups or output padding, or the output is empty",
        ))?;
        let rank = windows.len();
        let mut output_padding = [0; 3];
        for (dim, padding) in output_padding[3 - rank..].iter_mut().enumerate() {
            let given = match *extra {
                [one] => one,
                ref list => list.get(dim).copied().unwrap_or(0),
            };
            *padding = usize::try_from(given).unwrap_or(0);
        }
        // The output's info after resizing; its dim order is already known.
        let mut out = ctx.info(OUT)?;
        if out.rank() != sizes.len() {
            return Err(KernelError::rank(OUT, out.rank()));
        }
        out.sizes = sizes.clone();
        let feature_map = |info: &TensorInfo, arg| {
            FeatureMap::new(info, rank).ok_or(KernelError::rank(arg, info.rank()))
        };
        let (from, to) = (feature_map(&input, 0)?, feature_map(&out, OUT)?);
        let last = |info: &TensorInfo| {
            channels_last_order(info.rank()).is_some_and(|order| order == info.dim_order)
                && info.rank() == rank + 2
        };
        let first = |info: &TensorInfo| {
            info.dim_order.iter().enumerate().all(|(i, &dim)| i == usize::from(dim))
        };
        let (layout, fixed_layout) = if last(&input) && last(&out) {
            (Some(Layout::ChannelsLast), true)
        } else if first(&input) && first(&out) {
            (Some(Layout::ChannelsFirst), true)
        } else if from.is_channels_last() && to.is_channels_last() {
            (Some(Layout::ChannelsLast), false)
        } else if from.is_channels_first() && to.is_channels_first() {
            (Some(Layout::ChannelsFirst), false)
        } else {
            (None, false)
        };
        let call = Call {
            weight: feature_map(&weight, 1)?,
            groups: usize::try_from(groups).unwrap_or(1),
            input: from,
            out: to,
            windows,
            transposed,
            output_padding,
            layout,
            fixed_layout,
        };
        Ok((call, sizes))
    }

    /// Creates a call for the plain loop only.
    pub(super) fn plain(
        windows: Windows,
        transposed: bool,
        groups: usize,
        input: FeatureMap,
        out: FeatureMap,
        weight: FeatureMap,
    ) -> Self {
        Call {
            windows,
            transposed,
            groups,
            input,
            out,
            weight,
            output_padding: [0; 3],
            layout: None,
            fixed_layout: false,
        }
    }

    fn params(&self, layout: Layout) -> ConvParams {
        let mut params = ConvParams {
            batch: self.input.sizes[0],
            in_channels: self.input.sizes[1],
            out_channels: self.out.sizes[1],
            groups: self.groups,
            input: self.input.space(),
            kernel: [1; 3],
            stride: [1; 3],
            padding: [0; 3],
            dilation: [1; 3],
            output_padding: self.output_padding,
            transposed: self.transposed,
            layout,
        };
        let missing = 3 - self.windows.len();
        for (dim, window) in self.windows.iter().enumerate() {
            params.kernel[missing + dim] = window.kernel();
            params.stride[missing + dim] = window.stride();
            params.padding[missing + dim] = window.padding();
            params.dilation[missing + dim] = window.dilation();
        }
        params
    }

    /// Creates the engine's description of the convolution; `None` if the engine does not support
    /// it, or a tensor is empty.
    pub(super) fn engine(&self) -> Option<Conv> {
        if self.input.sizes.contains(&0) || self.out.sizes.contains(&0) {
            return None;
        }
        Conv::new(self.params(self.layout?))
    }

    /// Length of the packed weights; 0 if they are not packed. Depends only on the weights and the
    /// dim orders, because weights packed at load time are used with all input sizes.
    pub(super) fn packed_len(&self, tier: Tier) -> usize {
        let Some(layout) = self.layout.filter(|_| self.fixed_layout) else { return 0 };
        // With three spatial dims, the engine packs weights only if the input depth is 1.
        if self.windows.len() == 3 {
            return 0;
        }
        let small = ConvParams {
            batch: 1,
            input: if self.transposed { [1; 3] } else { self.params(layout).kernel },
            stride: [1; 3],
            padding: [0; 3],
            dilation: [1; 3],
            output_padding: [0; 3],
            ..self.params(layout)
        };
        Conv::new(small).and_then(|conv| conv.packed_weights_len(tier)).unwrap_or(0)
    }

    /// Workspace of the engine in floats: [`Conv::bounded_workspace_len`].
    pub(super) fn workspace_len(
        &self,
        conv: &Conv,
        tier: Tier,
        threads: usize,
        form: WeightForm,
    ) -> usize {
        let weights = self.weight.sizes.iter().product::<usize>();
        conv.bounded_workspace_len(tier, threads, form, weights)
    }

    pub(super) fn strided(&self) -> WeightForm {
        WeightForm::Strided(self.weight.strides)
    }
}

/// Number of widened elements of input, weights, bias and output.
fn widened_lens(call: &Call, conv: &Conv) -> Option<[usize; 4]> {
    let weights = call.weight.sizes.iter().try_fold(1usize, |n, &size| n.checked_mul(size))?;
    Some([conv.input_len(), weights, conv.params().out_channels, conv.output_len()])
}

fn prepare(ctx: &mut Prepare) -> Result<Plan, KernelError> {
    let (call, sizes) = Call::read(ctx)?;
    ctx.resize(OUT, &sizes)?;
    let scalar_type = ctx.info(0)?.scalar_type;
    for arg in [0, 1, OUT] {
        let found = ctx.info(arg)?.scalar_type;
        let known = ComputeType::of(found).is_some() && found != ScalarType::Bool;
        if found != scalar_type || !known {
            return Err(unsupported(arg, found));
        }
    }
    if let Some(bias) = ctx.optional_info(2)? {
        if bias.scalar_type != scalar_type {
            return Err(unsupported(2, bias.scalar_type));
        }
        if bias.rank() != 1 || bias.size(0) != call.out.sizes[1] {
            return Err(KernelError::argument(2, "bias: expected an element per output channel"));
        }
    }
    let (tier, threads) = (machine::tier(ctx), ctx.threads());
    let conv = call.engine();
    match scalar_type {
        ScalarType::Float if conv.is_none() => plain(scalar_type),
        ScalarType::Float => {
            let packed = if ctx.is_constant(1) { call.packed_len(tier) } else { 0 };
            let form = if packed > 0 { WeightForm::Packed } else { call.strided() };
            let floats = conv.map_or(0, |conv| call.workspace_len(&conv, tier, threads, form));
            variants::require(match conv {
                Some(conv) if conv.is_gemm(tier, form, floats) => Variants::GEMM_CONVOLUTION,
                _ => Variants::DIRECT_CONVOLUTION,
            })?;
            let bytes = floats.saturating_mul(size_of::<f32>());
            let plan = Plan::new(run_f32).with_scratch_up_to(bytes);
            let packed = packed.saturating_mul(size_of::<f32>());
            Ok(if packed > 0 { plan.with_packed(packed, pack) } else { plan })
        }
        ScalarType::Half | ScalarType::BFloat16 if tier != Tier::SCALAR => {
            let engine = conv.and_then(|conv| {
                let workspace = call.workspace_len(&conv, tier, threads, call.strided());
                let lens = widened_lens(&call, &conv)?;
                let floats = lens.iter().try_fold(workspace, |sum, &len| sum.checked_add(len))?;
                Some((conv, workspace, floats))
            });
            let Some((conv, workspace, floats)) = engine else { return plain(scalar_type) };
            variants::require(match conv.is_gemm(tier, call.strided(), workspace) {
                true => Variants::GEMM_CONVOLUTION,
                false => Variants::DIRECT_CONVOLUTION,
            })?;
            let bytes = floats.saturating_mul(size_of::<f32>());
            let invoke = match scalar_type {
                ScalarType::Half => run_widened::<half::f16>,
                _ => run_widened::<half::bf16>,
            };
            Ok(Plan::new(invoke).with_scratch_up_to(bytes))
        }
        _ => plain(scalar_type),
    }
}

/// The plan of a convolution that the engine does not support.
fn plain(scalar_type: ScalarType) -> Result<Plan, KernelError> {
    variants::require(Variants::PLAIN_CONVOLUTION)?;
    Ok(Plan::new(match ComputeType::of(scalar_type) {
        Some(ComputeType::F64) => convolve_plain::run::<f64>,
        Some(ComputeType::I64) => convolve_plain::run::<i64>,
        _ => convolve_plain::run::<f32>,
    }))
}

/// Decodes the arguments again at run time, after prepare has checked them.
pub(super) fn call(ctx: &Arguments) -> Result<Call, KernelError> {
    Ok(Call::read(ctx)?.0)
}

fn short(_: crate::compute::gemm::ShapeMismatch) -> KernelError {
    KernelError::argument(0, "internal error: an operand has less data than its shape requires")
}

fn pack(ctx: &mut Invoke, packed: &mut [u8]) -> Result<(), KernelError> {
    let call = call(ctx)?;
    let weight = ctx.tensor(1)?;
    let context = Context { tier: Tier::detect(), parallel: ctx.parallel() };
    let params = call.params(call.layout.unwrap_or(Layout::ChannelsLast));
    // The same convolution as in `packed_len`, so that packing works even if the inputs are empty.
    let small = ConvParams {
        batch: 1,
        input: if call.transposed { [1; 3] } else { params.kernel },
        stride: [1; 3],
        padding: [0; 3],
        dilation: [1; 3],
        output_padding: [0; 3],
        ..params
    };
    let Some(conv) = Conv::new(small) else { return Ok(()) };
    conv.pack_weights(context, weight.data::<f32>()?, call.weight.strides, elements_mut(packed))
        .map_err(short)
}

fn run_f32(ctx: &mut Invoke) -> Result<(), KernelError> {
    let call = call(ctx)?;
    // Calls without the engine were prepared for the plain loop.
    let conv = call.engine().ok_or(KernelError::access(0))?;
    let (input, weight, bias) = (ctx.tensor(0)?, ctx.tensor(1)?, ctx.optional_tensor(2)?);
    let context = Context { tier: Tier::detect(), parallel: ctx.parallel() };
    let packed: &[f32] = elements(ctx.packed());
    let workspace: &mut [f32] = elements_mut(ctx.scratch());
    let out = ctx.out(OUT)?.into_data::<f32>()?;
    let weights = if packed.is_empty() {
        Weights { data: weight.data::<f32>()?, form: call.strided() }
    } else {
        Weights { data: packed, form: WeightForm::Packed }
    };
    let wanted = call.workspace_len(&conv, context.tier, context.parallel.threads(), weights.form);
    let len = wanted.min(workspace.len());
    let workspace = &mut workspace[..len];
    let bias = bias.as_ref().map(|bias| bias.data::<f32>()).transpose()?;
    let finish = Finish { bias, ..Finish::default() };
    conv.run(context, input.data::<f32>()?, weights, &finish, out, workspace).map_err(short)
}

/// Like [`run_f32`], with all tensors widened to `f32`.
fn run_widened<E: Stored + torchlet_core::Element>(ctx: &mut Invoke) -> Result<(), KernelError> {
    let call = call(ctx)?;
    let scratch: &mut [f32] = elements_mut(ctx.scratch());
    let engine = call.engine().and_then(|conv| {
        let lens = widened_lens(&call, &conv)?;
        let all = lens.iter().try_fold(0usize, |sum, &len| sum.checked_add(len))?;
        (all <= scratch.len()).then_some((conv, lens))
    });
    let Some((conv, lens)) = engine else { return convolve_plain::run::<f32>(ctx) };
    let [input_len, weight_len, bias_len, out_len] = lens;
    let (input, weight, bias) = (ctx.tensor(0)?, ctx.tensor(1)?, ctx.optional_tensor(2)?);
    let context = Context { tier: Tier::detect(), parallel: ctx.parallel() };
    let out = ctx.out(OUT)?.into_data::<E>()?;
    let (input_f32, rest) = scratch.split_at_mut(input_len);
    let (weight_f32, rest) = rest.split_at_mut(weight_len);
    let (bias_f32, rest) = rest.split_at_mut(bias_len);
    let (out_f32, workspace) = rest.split_at_mut(out_len);
    E::widen(input.data::<E>()?, input_f32);
    E::widen(weight.data::<E>()?, weight_f32);
    if let Some(bias) = &bias {
        E::widen(bias.data::<E>()?, bias_f32);
    }
    let weights = Weights { data: weight_f32, form: call.strided() };
    let wanted = call.workspace_len(&conv, context.tier, context.parallel.threads(), weights.form);
    let len = wanted.min(workspace.len());
    let workspace = &mut workspace[..len];
    let finish = Finish { bias: bias.is_some().then_some(&*bias_f32), ..Finish::default() };
    conv.run(context, input_f32, weights, &finish, out_f32, workspace).map_err(short)?;
    E::narrow(out_f32, out);
    Ok(())
}
