//! Gradients of pooling in plain loops. Max pooling passes each output gradient to the maximum of
//! its window, average pooling an equal share to each element.

use super::backward::{by_type, feature_map, for_each, shape_mismatch};
use super::feature_map::{DIMS, FeatureMap, SPACE};
use super::pool::{Axis, Pooled, counted};
use super::pool_operators::{adaptive, read_windows, sliding};
use crate::number::{load, store, unsupported};
use crate::table::kernels;
use crate::variants::{self, Variants};
use torchlet_core::Param::{Bool, IntList, OptionalInt, Out, Tensor};
use torchlet_core::rules::window::pooling;
use torchlet_core::{Invoke, InvokeFn, Kernel, KernelError, Param, Plan, Prepare, ScalarType};

const AVERAGE: &[Param] =
    &[Tensor, Tensor, IntList, IntList, IntList, Bool, Bool, OptionalInt, Out];
const LARGEST: &[Param] = &[Tensor, Tensor, IntList, IntList, IntList, IntList, Bool, Tensor, Out];

kernels! { POOLING_BACKWARD:
    /// `aten::max_pool2d_with_indices_backward.grad_input(grad_output,
    /// self, kernel_size, stride, padding, dilation, ceil_mode, indices, grad_input)`: the gradient
    /// of the pooled input.
    MAX_POOL2D_WITH_INDICES_BACKWARD_GRAD_INPUT = Kernel::new(
        "aten::max_pool2d_with_indices_backward.grad_input",
        LARGEST,
        prepare_max::<2>,
    );
    /// `aten::max_pool3d_with_indices_backward.grad_input(grad_output,
    /// self, kernel_size, stride, padding, dilation, ceil_mode, indices, grad_input)`: the gradient
    /// of the pooled input.
    MAX_POOL3D_WITH_INDICES_BACKWARD_GRAD_INPUT = Kernel::new(
        "aten::max_pool3d_with_indices_backward.grad_input",
        LARGEST,
        prepare_max::<3>,
    );
    /// `aten::adaptive_max_pool2d_backward.grad_input(grad_output, self, indices, grad_input)`: the
    /// gradient of the pooled input.
    ADAPTIVE_MAX_POOL2D_BACKWARD_GRAD_INPUT = Kernel::new(
        "aten::adaptive_max_pool2d_backward.grad_input",
        &[Tensor, Tensor, Tensor, Out],
        prepare_adaptive_max::<2>,
    );
    /// `aten::adaptive_max_pool3d_backward.grad_input(grad_output, self, indices, grad_input)`: the
    /// gradient of the pooled input.
    ADAPTIVE_MAX_POOL3D_BACKWARD_GRAD_INPUT = Kernel::new(
        "aten::adaptive_max_pool3d_backward.grad_input",
        &[Tensor, Tensor, Tensor, Out],
        prepare_adaptive_max::<3>,
    );
    /// `aten::fractional_max_pool2d_backward.grad_input(grad_output,
    /// self, kernel_size, output_size, indices, grad_input)`: the gradient of the pooled input.
    FRACTIONAL_MAX_POOL2D_BACKWARD_GRAD_INPUT = Kernel::new(
        "aten::fractional_max_pool2d_backward.grad_input",
        &[Tensor, Tensor, IntList, IntList, Tensor, Out],
        prepare_fractional::<2>,
    );
    /// `aten::fractional_max_pool3d_backward.grad_input(grad_output,
    /// self, kernel_size, output_size, indices, grad_input)`: the gradient of the pooled input.
    FRACTIONAL_MAX_POOL3D_BACKWARD_GRAD_INPUT = Kernel::new(
        "aten::fractional_max_pool3d_backward.grad_input",
        &[Tensor, Tensor, IntList, IntList, Tensor, Out],
        prepare_fractional::<3>,
    );
    /// `aten::avg_pool2d_backward.grad_input(grad_output, self, kernel_size,
    /// stride, padding, ceil_mode, count_include_pad, divisor_override, grad_input)`: the gradient
    /// of the pooled input.
    AVG_POOL2D_BACKWARD_GRAD_INPUT =
        Kernel::new("aten::avg_pool2d_backward.grad_input", AVERAGE, prepare_average::<2>);
    /// `aten::avg_pool3d_backward.grad_input(grad_output, self, kernel_size,
    /// stride, padding, ceil_mode, count_include_pad, divisor_override, grad_input)`: the gradient
    /// of the pooled input.
    AVG_POOL3D_BACKWARD_GRAD_INPUT =
        Kernel::new("aten::avg_pool3d_backward.grad_input", AVERAGE, prepare_average::<3>);
    /// `aten::_adaptive_avg_pool2d_backward.out(grad_output, self, out)`: the gradient of the
    /// pooled input.
    ADAPTIVE_AVG_POOL2D_BACKWARD_OUT = Kernel::new(
        "aten::_adaptive_avg_pool2d_backward.out",
        &[Tensor, Tensor, Out],
        prepare_adaptive_average::<2>,
    );
    /// `aten::_adaptive_avg_pool3d_backward.out(grad_output, self, out)`: the gradient of the
    /// pooled input.
    ADAPTIVE_AVG_POOL3D_BACKWARD_OUT = Kernel::new(
        "aten::_adaptive_avg_pool3d_backward.out",
        &[Tensor, Tensor, Out],
        prepare_adaptive_average::<3>,
    );
}

/// Instantiates a generic invoke function for a number of spatial dims.
macro_rules! instances {
    ($function:ident, $rank:tt) => {
        [$function::<f32, $rank>, $function::<f64, $rank>, $function::<i64, $rank>]
    };
}
pub(super) use instances;

/// Resizes the gradient to the input's shape and selects the function for the common dtype.
pub(super) fn prepare(
    ctx: &mut Prepare,
    out: usize,
    functions: [InvokeFn; 3],
) -> Result<Plan, KernelError> {
    let (grad, input) = (ctx.info(0)?, ctx.info(1)?);
    ctx.resize(out, &input.sizes)?;
    let found = ctx.info(out)?.scalar_type;
    if found != grad.scalar_type || found == ScalarType::Bool {
        return Err(unsupported(out, found));
    }
    by_type(found, functions)
}

/// Checks that the indices match the output gradient.
fn expect_indices(ctx: &Prepare, arg: usize) -> Result<(), KernelError> {
    let indices = ctx.info(arg)?;
    if !matches!(indices.scalar_type, ScalarType::Long | ScalarType::Int) {
        return Err(unsupported(arg, indices.scalar_type));
    }
    if indices.sizes != ctx.info(0)?.sizes {
        return Err(shape_mismatch(arg));
    }
    Ok(())
}

/// Checks that gradient and input have the same batch and channels.
fn expect_alike(ctx: &Prepare, rank: usize) -> Result<(), KernelError> {
    let (grad, input) = (ctx.info(0)?, ctx.info(1)?);
    let [of_grad, of_input] =
        [feature_map(&grad, rank, 0)?.sizes, feature_map(&input, rank, 1)?.sizes];
    if grad.rank() != input.rank() || of_grad[..SPACE] != of_input[..SPACE] {
        return Err(shape_mismatch(0));
    }
    Ok(())
}

fn prepare_max<const RANK: usize>(ctx: &mut Prepare) -> Result<Plan, KernelError> {
    let windows = read_windows(ctx, RANK, 2, Some(5))?;
    let sizes = pooling(&ctx.info(1)?.sizes, &windows, ctx.bool(6)?).ok_or(shape_mismatch(1))?;
    if sizes != ctx.info(0)?.sizes {
        return Err(shape_mismatch(0));
    }
    expect_indices(ctx, 7)?;
    prepare(ctx, 8, instances!(run_max, RANK))
}

fn run_max<C: Pooled, const RANK: usize>(ctx: &mut Invoke) -> Result<(), KernelError> {
    to_argmax::<C>(ctx, RANK, 7, 8)
}

fn prepare_adaptive_max<const RANK: usize>(ctx: &mut Prepare) -> Result<Plan, KernelError> {
    expect_alike(ctx, RANK)?;
    expect_indices(ctx, 2)?;
    prepare(ctx, 3, instances!(run_adaptive_max, RANK))
}

fn run_adaptive_max<C: Pooled, const RANK: usize>(ctx: &mut Invoke) -> Result<(), KernelError> {
    to_argmax::<C>(ctx, RANK, 2, 3)
}

/// Prepares fractional max pooling. The indices identify the maxima, so the windows in arguments 2
/// and 3 are not needed.
fn prepare_fractional<const RANK: usize>(ctx: &mut Prepare) -> Result<Plan, KernelError> {
    expect_alike(ctx, RANK)?;
    expect_indices(ctx, 4)?;
    prepare(ctx, 5, instances!(run_fractional, RANK))
}

fn run_fractional<C: Pooled, const RANK: usize>(ctx: &mut Invoke) -> Result<(), KernelError> {
    to_argmax::<C>(ctx, RANK, 4, 5)
}

fn prepare_average<const RANK: usize>(ctx: &mut Prepare) -> Result<Plan, KernelError> {
    let windows = read_windows(ctx, RANK, 2, None)?;
    if ctx.optional_int(7)? == Some(0) {
        return Err(KernelError::argument(7, "divisor_override: expected a nonzero integer"));
    }
    let sizes = pooling(&ctx.info(1)?.sizes, &windows, ctx.bool(5)?).ok_or(shape_mismatch(1))?;
    if sizes != ctx.info(0)?.sizes {
        return Err(shape_mismatch(0));
    }
    prepare(ctx, 8, instances!(run_average, RANK))
}

fn run_average<C: Pooled, const RANK: usize>(ctx: &mut Invoke) -> Result<(), KernelError> {
    let axes = sliding(&read_windows(ctx, RANK, 2, None)?);
    let (count_padding, divisor) = (ctx.bool(6)?, ctx.optional_int(7)?);
    to_window::<C>(ctx, RANK, (axes, count_padding, divisor), 8)
}

fn prepare_adaptive_average<const RANK: usize>(ctx: &mut Prepare) -> Result<Plan, KernelError> {
    variants::require(Variants::ADAPTIVE_POOLING)?;
    expect_alike(ctx, RANK)?;
    prepare(ctx, 2, instances!(run_adaptive_average, RANK))
}

fn run_adaptive_average<C: Pooled, const RANK: usize>(ctx: &mut Invoke) -> Result<(), KernelError> {
    // The windows of an adaptive pooling follow from its output size, which is that of the
    // gradient.
    let axes = adaptive(&ctx.info(0)?, RANK);
    to_window::<C>(ctx, RANK, (axes, false, None), 2)
}

/// Memory position of an element of an image.
pub(super) fn position(feature_map: &FeatureMap, index: [usize; DIMS]) -> usize {
    index.iter().zip(feature_map.strides).map(|(i, stride)| i * stride).sum()
}

/// Adds a value to an element.
pub(super) fn add<C: Pooled>(scalar_type: ScalarType, out: &mut [u8], at: usize, value: C) {
    let (size, mut sum) = (scalar_type.size(), [C::default()]);
    load(scalar_type, out, at as isize, 0, &mut sum);
    if let Some(out) = out.get_mut(at * size..(at + 1) * size) {
        store(scalar_type, out, &[sum[0].mul_add(value, C::of_bool(true))]);
    }
}

/// Adds each gradient to the input element at its index.
fn to_argmax<C: Pooled>(
    ctx: &mut Invoke,
    rank: usize,
    indices: usize,
    out: usize,
) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let (grad, index_tensor) = (ctx.tensor(0)?, ctx.tensor(indices)?);
    let (from, index_map) =
        (feature_map(&grad, rank, 0)?, feature_map(&index_tensor, rank, indices)?);
    let target = ctx.out(out)?;
    let to = feature_map(&target, rank, out)?;
    let (scalar_type, [depth, height, width]) = (grad.scalar_type, to.space());
    let bytes = target.into_bytes();
    bytes.fill(0);
    let mut outside = false;
    for_each(from.sizes, |index| {
        let mut max_index = [0i64];
        let at = position(&index_map, index);
        load(index_tensor.scalar_type, index_tensor.bytes(), at as isize, 0, &mut max_index);
        let max_index = usize::try_from(max_index[0])
            .ok()
            .filter(|&max_index| max_index < depth * height * width);
        let Some(max_index) = max_index else {
            outside = true;
            return;
        };
        let [batch, channel, ..] = index;
        let [z, y, x] =
            [max_index / (height * width), max_index / width % height, max_index % width];
        let at = position(&to, [batch, channel, z, y, x]);
        let mut value = [C::default()];
        load(scalar_type, grad.bytes(), position(&from, index) as isize, 0, &mut value);
        add(scalar_type, bytes, at, value[0]);
    });
    if outside {
        return Err(KernelError::argument(indices, "an index lies outside the input plane"));
    }
    Ok(())
}

/// Adds an equal share of each gradient to each element of its window.
fn to_window<C: Pooled>(
    ctx: &mut Invoke,
    rank: usize,
    (axes, count_padding, divisor): ([Axis; 3], bool, Option<i64>),
    out: usize,
) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let grad = ctx.tensor(0)?;
    let from = feature_map(&grad, rank, 0)?;
    let target = ctx.out(out)?;
    let to = feature_map(&target, rank, out)?;
    let input = to.space();
    if !axes.iter().zip(input).all(|(axis, size)| axis.is_countable(size)) {
        return Err(shape_mismatch(1));
    }
    let scalar_type = grad.scalar_type;
    let bytes = target.into_bytes();
    bytes.fill(0);
    for_each(from.sizes, |index| {
        let [batch, channel, space @ ..] = index;
        let ranges: [_; 3] =
            core::array::from_fn(|dim| axes[dim].tap_range(space[dim], input[dim]));
        let divisor = divisor.unwrap_or_else(|| counted(&axes, space, input, count_padding));
        let mut value = [C::default()];
        load(scalar_type, grad.bytes(), position(&from, index) as isize, 0, &mut value);
        let share = value[0].divided(divisor);
        for_each([1, 1, ranges[0].count, ranges[1].count, ranges[2].count], |tap| {
            let mut at = [batch, channel, 0, 0, 0];
            for dim in 0..3 {
                at[SPACE + dim] = ranges[dim].start as usize + tap[SPACE + dim] * ranges[dim].step;
            }
            add(scalar_type, bytes, position(&to, at), share);
        });
    });
    Ok(())
}
