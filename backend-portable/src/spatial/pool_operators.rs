//! Kernels of the pooling operators: arguments, checks and shapes.

use super::feature_map::FeatureMap;
use super::pool::{Axis, Kind, Pooled, Pooling};
use crate::number::{ComputeType, unsupported};
use crate::table::kernels;
use crate::variants::{self, Variants};
use torchlet_core::Param::{Bool, IntList, OptionalInt, Out, Tensor};
use torchlet_core::rules::window::{Windows, adaptive_pooling, pooling, windows};
use torchlet_core::{
    Arguments, Invoke, Kernel, KernelError, Param, Plan, Prepare, ScalarType, Sizes, TensorInfo,
};

const AVERAGE: &[Param] = &[Tensor, IntList, IntList, IntList, Bool, Bool, OptionalInt, Out];
const LARGEST: &[Param] = &[Tensor, IntList, IntList, IntList, IntList, Bool, Out, Out];

kernels! { POOLING:
    /// `aten::avg_pool1d.out(self, kernel_size, stride, padding, ceil_mode,
    /// count_include_pad, out)`: average pooling.
    AVG_POOL1D_OUT = Kernel::new(
        "aten::avg_pool1d.out",
        &[Tensor, IntList, IntList, IntList, Bool, Bool, Out],
        |ctx| average_prepare::<1>(ctx, 6),
    );
    /// `aten::avg_pool2d.out(self, kernel_size, stride, padding, ceil_mode,
    /// count_include_pad, divisor_override, out)`: average pooling.
    AVG_POOL2D_OUT =
        Kernel::new("aten::avg_pool2d.out", AVERAGE, |ctx| average_prepare::<2>(ctx, 7));
    /// `aten::avg_pool3d.out(self, kernel_size, stride, padding, ceil_mode,
    /// count_include_pad, divisor_override, out)`: average pooling.
    AVG_POOL3D_OUT =
        Kernel::new("aten::avg_pool3d.out", AVERAGE, |ctx| average_prepare::<3>(ctx, 7));
    /// `aten::max_pool2d_with_indices.out(self, kernel_size, stride,
    /// padding, dilation, ceil_mode, out, indices)`: max pooling; also returns the indices of the
    /// maxima.
    MAX_POOL2D_WITH_INDICES_OUT =
        Kernel::new("aten::max_pool2d_with_indices.out", LARGEST, max_prepare::<2>);
    /// `aten::max_pool3d_with_indices.out(self, kernel_size, stride,
    /// padding, dilation, ceil_mode, out, indices)`: max pooling; also returns the indices of the
    /// maxima.
    MAX_POOL3D_WITH_INDICES_OUT =
        Kernel::new("aten::max_pool3d_with_indices.out", LARGEST, max_prepare::<3>);
    /// `aten::adaptive_avg_pool1d.out(self, output_size, out)`: adaptive average pooling.
    ADAPTIVE_AVG_POOL1D_OUT = Kernel::new(
        "aten::adaptive_avg_pool1d.out",
        &[Tensor, IntList, Out],
        adaptive_average_prepare::<1>,
    );
    /// `aten::_adaptive_avg_pool2d.out(self, output_size, out)`: adaptive average pooling.
    ADAPTIVE_AVG_POOL2D_OUT = Kernel::new(
        "aten::_adaptive_avg_pool2d.out",
        &[Tensor, IntList, Out],
        adaptive_average_prepare::<2>,
    );
    /// `aten::_adaptive_avg_pool3d.out(self, output_size, out)`: adaptive average pooling.
    ADAPTIVE_AVG_POOL3D_OUT = Kernel::new(
        "aten::_adaptive_avg_pool3d.out",
        &[Tensor, IntList, Out],
        adaptive_average_prepare::<3>,
    );
    /// `aten::adaptive_max_pool2d.out(self, output_size, out, indices)`: adaptive max pooling; also
    /// returns the indices of the maxima.
    ADAPTIVE_MAX_POOL2D_OUT = Kernel::new(
        "aten::adaptive_max_pool2d.out",
        &[Tensor, IntList, Out, Out],
        adaptive_max_prepare::<2>,
    );
    /// `aten::adaptive_max_pool3d.out(self, output_size, out, indices)`: adaptive max pooling; also
    /// returns the indices of the maxima.
    ADAPTIVE_MAX_POOL3D_OUT = Kernel::new(
        "aten::adaptive_max_pool3d.out",
        &[Tensor, IntList, Out, Out],
        adaptive_max_prepare::<3>,
    );
}

fn shape_error() -> KernelError {
    KernelError::argument(0, "input is smaller than the kernel, or has a wrong number of dims")
}

/// Decodes the windows of a pooling from three list arguments, starting at `first`, and an optional
/// list of dilations.
pub(super) fn read_windows(
    ctx: &Arguments,
    rank: usize,
    first: usize,
    dilation: Option<usize>,
) -> Result<Windows, KernelError> {
    let dilation = dilation.map(|arg| ctx.ints(arg)).transpose()?;
    windows(
        rank,
        &ctx.ints(first)?,
        &ctx.ints(first + 1)?,
        &ctx.ints(first + 2)?,
        dilation.as_deref().unwrap_or(&[1]),
    )
    .ok_or(KernelError::argument(
        first,
        "kernel_size, stride, padding or dilation: expected values in range, one or one per \
         spatial dim",
    ))
}

/// Converts windows to axes; fewer than three windows become the last axes.
pub(super) fn sliding(windows: &Windows) -> [Axis; 3] {
    let mut axes = [Axis::NONE; 3];
    for (axis, window) in axes.iter_mut().rev().zip(windows.iter().rev()) {
        *axis = Axis::Sliding(*window);
    }
    axes
}

/// Checks dtypes, resizes the outputs and selects the function of the compute type.
fn prepare(
    ctx: &mut Prepare,
    sizes: Option<Sizes>,
    (out, indices): (usize, Option<usize>),
    functions: [torchlet_core::InvokeFn; 3],
) -> Result<Plan, KernelError> {
    let sizes = sizes.ok_or(shape_error())?;
    ctx.resize(out, &sizes)?;
    let found = ctx.info(0)?.scalar_type;
    if found == ScalarType::Bool || ctx.info(out)?.scalar_type != found {
        return Err(unsupported(out, found));
    }
    if let Some(arg) = indices {
        ctx.resize(arg, &sizes)?;
        let found = ctx.info(arg)?.scalar_type;
        // Programs that were exported for GPUs have `int32` indices.
        let is_short = crate::types::has(ScalarType::Int) && found == ScalarType::Int;
        if found != ScalarType::Long && !is_short {
            return Err(unsupported(arg, found));
        }
    }
    let [f32, f64, i64] = functions;
    Ok(Plan::new(match ComputeType::of(found).ok_or(unsupported(0, found))? {
        ComputeType::F32 => f32,
        ComputeType::F64 => f64,
        ComputeType::I64 => i64,
    }))
}

/// Instantiates a generic invoke function for a number of spatial dims.
macro_rules! instances {
    ($function:ident, $rank:ident) => {
        [$function::<f32, $rank>, $function::<f64, $rank>, $function::<i64, $rank>]
    };
}

fn run<C: Pooled>(
    ctx: &mut Invoke,
    rank: usize,
    kind: Kind,
    axes: [Axis; 3],
    (out, indices): (usize, Option<usize>),
) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let input = ctx.tensor(0)?;
    let feature_map = |info: &torchlet_core::TensorInfo, arg| {
        FeatureMap::new(info, rank).ok_or(KernelError::rank(arg, info.rank()))
    };
    let pooling = Pooling {
        kind,
        axes,
        scalar_type: input.scalar_type,
        input: input.bytes(),
        from: feature_map(&input, 0)?,
    };
    let sizes = pooling.from.space();
    if !axes.iter().zip(sizes).all(|(axis, size)| axis.is_countable(size)) {
        return Err(shape_error());
    }
    let values = ctx.out(out)?;
    let to = feature_map(&values, out)?;
    let Some(arg) = indices else {
        pooling.run::<C>(ctx.parallel(), &to, Some(values.into_bytes()), None, ScalarType::Long);
        return Ok(());
    };
    let indices = ctx.out(arg)?;
    let has_short = crate::types::has(ScalarType::Int);
    let integer = if has_short { indices.scalar_type } else { ScalarType::Long };
    let index_map = feature_map(&indices, arg)?;
    if index_map == to {
        let (values, indices) = (values.into_bytes(), indices.into_bytes());
        pooling.run::<C>(ctx.parallel(), &to, Some(values), Some(indices), integer);
    } else {
        pooling.run::<C>(ctx.parallel(), &to, Some(values.into_bytes()), None, ScalarType::Long);
        pooling.run::<C>(ctx.parallel(), &index_map, None, Some(indices.into_bytes()), integer);
    }
    Ok(())
}

fn average_prepare<const RANK: usize>(ctx: &mut Prepare, out: usize) -> Result<Plan, KernelError> {
    variants::require(Variants::AVERAGE_POOLING)?;
    let windows = read_windows(ctx, RANK, 1, None)?;
    if out == 7 && ctx.optional_int(6)? == Some(0) {
        return Err(KernelError::argument(6, "divisor_override: expected a nonzero integer"));
    }
    let sizes = pooling(&ctx.info(0)?.sizes, &windows, ctx.bool(4)?);
    prepare(ctx, sizes, (out, None), instances!(average, RANK))
}

fn average<C: Pooled, const RANK: usize>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let windows = read_windows(ctx, RANK, 1, None)?;
    // The 1D operator has no divisor.
    let (out, divisor) = if RANK == 1 { (6, None) } else { (7, ctx.optional_int(6)?) };
    let kind = Kind::Average { count_padding: ctx.bool(5)?, divisor };
    run::<C>(ctx, RANK, kind, sliding(&windows), (out, None))
}

fn max_prepare<const RANK: usize>(ctx: &mut Prepare) -> Result<Plan, KernelError> {
    variants::require(Variants::MAX_POOLING)?;
    let windows = read_windows(ctx, RANK, 1, Some(4))?;
    let sizes = pooling(&ctx.info(0)?.sizes, &windows, ctx.bool(5)?);
    prepare(ctx, sizes, (6, Some(7)), instances!(max_pool, RANK))
}

fn max_pool<C: Pooled, const RANK: usize>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let windows = read_windows(ctx, RANK, 1, Some(4))?;
    run::<C>(ctx, RANK, Kind::Max, sliding(&windows), (6, Some(7)))
}

fn adaptive_average_prepare<const RANK: usize>(ctx: &mut Prepare) -> Result<Plan, KernelError> {
    variants::require(Variants::AVERAGE_POOLING.union(Variants::ADAPTIVE_POOLING))?;
    let sizes = adaptive_pooling(&ctx.info(0)?.sizes, &ctx.ints(1)?, RANK);
    prepare(ctx, sizes, (2, None), instances!(adaptive_average, RANK))
}

fn adaptive_max_prepare<const RANK: usize>(ctx: &mut Prepare) -> Result<Plan, KernelError> {
    variants::require(Variants::MAX_POOLING.union(Variants::ADAPTIVE_POOLING))?;
    let sizes = adaptive_pooling(&ctx.info(0)?.sizes, &ctx.ints(1)?, RANK);
    prepare(ctx, sizes, (2, Some(3)), instances!(adaptive_max_pool, RANK))
}

/// Returns the axes of an adaptive pooling, from the shape of its output.
pub(super) fn adaptive(out: &TensorInfo, rank: usize) -> [Axis; 3] {
    let mut axes = [Axis::NONE; 3];
    for (axis, &size) in axes.iter_mut().rev().zip(out.sizes.iter().rev()).take(rank) {
        *axis = Axis::Adaptive { output: usize::try_from(size).unwrap_or(0) };
    }
    axes
}

fn adaptive_average<C: Pooled, const RANK: usize>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let kind = Kind::Average { count_padding: false, divisor: None };
    run::<C>(ctx, RANK, kind, adaptive(&ctx.info(2)?, RANK), (2, None))
}

fn adaptive_max_pool<C: Pooled, const RANK: usize>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    run::<C>(ctx, RANK, Kind::Max, adaptive(&ctx.info(2)?, RANK), (2, Some(3)))
}
