//! Channels-last pooling of images.

use super::int8;
use super::moves::{channels_last, channels_last_order};
use crate::compute::gemm::ShapeMismatch;
use crate::engine::builder::{Builder, Refusal};
use crate::engine::plan::{Element, Io, Step};
use crate::engine::view::View;
use crate::spatial::feature_map::FeatureMap;
use crate::spatial::pool::{Axis, Kind, Pooling};
use torchlet_core::ScalarType;
use torchlet_core::rules::window::{adaptive_pooling, pooling, windows};
use torchlet_graph::graph::ValueId;
use torchlet_graph::operators::{AdaptivePoolArgs, AvgPoolArgs, MaxPoolArgs};

/// Number of spatial dims.
const SPATIAL: usize = 2;

/// Lowers `max_pool2d_with_indices(self, kernel_size, stride, padding, dilation, ceil_mode)`.
pub(super) fn largest(builder: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Refusal> {
    let call = MaxPoolArgs::of(args)?;
    let outs = args.last().map_or(&[][..], |out| builder.items(out));
    let [out, indices @ ..] = outs else {
        return Err("expected at least one output, found none".into());
    };
    if indices.iter().any(|id| builder.is_taken(*id)) {
        return Err("max pooling with indices as output".into());
    }
    let ceil = builder.truth(call.ceil_mode)?;
    if builder.element(call.input)? == Element::Code {
        return int8::max_pool(builder, &call, ceil, *out);
    }
    let lists = [Some(call.kernel_size), call.stride, call.padding, call.dilation];
    sliding(builder, call.input, lists, ceil, Kind::Max, *out)
}

/// Lowers `avg_pool2d(self, kernel_size, stride, padding, ceil_mode, count_include_pad,
/// divisor_override)`.
pub(super) fn average(builder: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Refusal> {
    let call = AvgPoolArgs::of(args)?;
    let ceil = builder.truth(call.ceil_mode)?;
    let count_padding = builder.truth(call.count_include_pad)?;
    let divisor = builder.optional_integer(call.divisor_override)?;
    if divisor == Some(0) {
        return Err("divisor_override: expected a nonzero integer, found 0".into());
    }
    let lists = [Some(call.kernel_size), call.stride, call.padding, None];
    let kind = Kind::Average { count_padding, divisor };
    sliding(builder, call.input, lists, ceil, kind, call.out)
}

/// Lowers `_adaptive_avg_pool2d(self, output_size)`.
pub(super) fn adaptive_average(
    builder: &mut Builder<'_, '_>,
    args: &[ValueId],
) -> Result<(), Refusal> {
    let call = AdaptivePoolArgs::of(args)?;
    let input = builder.view(call.input)?;
    let list = builder.integers(call.output_size)?;
    let sizes = adaptive_pooling(&narrowed(&input)?, &list, SPATIAL);
    let sizes = sizes.ok_or_else(|| {
        std::format!("output_size {list:?} does not match input shape {:?}", input.sizes)
    })?;
    let mut axes = [Axis::NONE; 3];
    for (axis, size) in axes.iter_mut().rev().zip(sizes.iter().rev()).take(SPATIAL) {
        *axis = Axis::Adaptive { output: usize::try_from(*size).unwrap_or(0) };
    }
    let kind = Kind::Average { count_padding: false, divisor: None };
    push(builder, input, axes, kind, &sizes, call.out)
}

/// Lowers max or average pooling with sliding windows.
fn sliding(
    builder: &mut Builder<'_, '_>,
    input: ValueId,
    [kernel, stride, padding, dilation]: [Option<ValueId>; 4],
    ceil: bool,
    kind: Kind,
    out: ValueId,
) -> Result<(), Refusal> {
    let input = builder.view(input)?;
    let list = |id| builder.integers(id);
    let dilation = dilation.map_or_else(|| Ok(std::vec![1]), list)?;
    let windows = windows(
        SPATIAL,
        &builder.integers(kernel)?,
        &builder.integers(stride)?,
        &builder.integers(padding)?,
        &dilation,
    );
    let windows = windows.ok_or("kernel_size, stride, padding or dilation that is out of range")?;
    let sizes = pooling(&narrowed(&input)?, &windows, ceil);
    let sizes = sizes.ok_or("an input that is smaller than the kernel")?;
    let mut axes = [Axis::NONE; 3];
    for (axis, window) in axes.iter_mut().rev().zip(windows.iter().rev()) {
        *axis = Axis::Sliding(*window);
    }
    push(builder, input, axes, kind, &sizes, out)
}

/// Converts the sizes to `i32`, for the shape rules.
fn narrowed(view: &View) -> Result<std::vec::Vec<i32>, Refusal> {
    if view.sizes.len() != SPATIAL + 2 {
        return Err(std::format!("pooling of input shape {:?}; expected 4 dims", view.sizes));
    }
    let sizes: Result<_, _> = view.sizes.iter().map(|size| i32::try_from(*size)).collect();
    sizes.map_err(|_| "an input with a size above 2^31 - 1".into())
}

fn push(
    builder: &mut Builder<'_, '_>,
    input: View,
    axes: [Axis; 3],
    kind: Kind,
    sizes: &[i32],
    out: ValueId,
) -> Result<(), Refusal> {
    let input = channels_last(builder, &input)?;
    let sizes: Result<std::vec::Vec<usize>, _> =
        sizes.iter().map(|size| usize::try_from(*size)).collect();
    let sizes = sizes.map_err(|_| "internal error: pooling with a negative output size")?;
    let result = builder.make_in_order(&sizes, &channels_last_order(sizes.len()))?;
    let (from, to) = (feature_map(&input)?, feature_map(&result)?);
    builder.push(Pool { at: input.offset, from, to, axes, kind }, &[&input], &result);
    builder.define(out, result)
}

/// Describes a view `[batch, channels, height, width]` as a feature map.
fn feature_map(view: &View) -> Result<FeatureMap, Refusal> {
    let (&[n, c, h, w], &[dn, dc, dh, dw]) = (&view.sizes[..], &view.strides[..]) else {
        return Err(std::format!("pooling of input shape {:?}; expected 4 dims", view.sizes));
    };
    Ok(FeatureMap { sizes: [n, c, 1, h, w], strides: [dn, dc, 0, dh, dw] })
}

struct Pool {
    /// Offset of the input in its buffer.
    at: usize,
    from: FeatureMap,
    to: FeatureMap,
    axes: [Axis; 3],
    kind: Kind,
}

impl Step for Pool {
    fn run(&self, io: Io<'_>) -> Result<(), ShapeMismatch> {
        let [input, ..] = io.inputs;
        let count = |feature_map: &FeatureMap| feature_map.sizes.iter().product::<usize>();
        let input = input.get(self.at..).and_then(|input| input.get(..count(&self.from)));
        let out = io.out.get_mut(..count(&self.to)).ok_or(ShapeMismatch)?;
        let pooling = Pooling {
            kind: self.kind,
            axes: self.axes,
            scalar_type: ScalarType::Float,
            input: bytemuck::cast_slice(input.ok_or(ShapeMismatch)?),
            from: self.from,
        };
        let values = Some(bytemuck::cast_slice_mut(out));
        pooling.run::<f32>(io.context.parallel, &self.to, values, None, ScalarType::Long);
        Ok(())
    }
}
