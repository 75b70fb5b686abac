//! Gradients of layer and group norm, for training.
//!
//! Both normalize rows of adjacent elements. Layer norm has a weight per element of a row, group
//! norm one per channel. With `x' = (x - mean) * rstd` and `g = grad * weight`:
//!
//! - The input gradient of a row is `rstd * (g - mean(g) - x' * mean(g * x'))`.
//! - The gradient of a weight is the sum of `grad * x'` over the elements that share it.
//! - The gradient of a bias is the sum of `grad` over these elements.

use super::{expect_shape, fill, is_double};
use crate::number::{load, store};
use crate::real::Real;
use crate::scratch;
use crate::shape::contiguous;
use crate::table::kernels;
use torchlet_core::Param::{BoolList, Int, IntList, OptionalTensor, Out, Tensor};
use torchlet_core::layout::checked_numel;
use torchlet_core::{Arguments, Invoke, Kernel, KernelError, Plan, Prepare};

kernels! {
    /// `aten::native_layer_norm_backward.out(grad_out, input, normalized_shape,
    /// mean, rstd, weight, bias, output_mask, out0, out1, out2)`: the gradients of input, weight
    /// and bias. All tensors are contiguous.
    LAYER_NORM_BACKWARD_OUT = Kernel::new(
        "aten::native_layer_norm_backward.out",
        &[
            Tensor, Tensor, IntList, Tensor, Tensor, OptionalTensor, OptionalTensor, BoolList, Out,
            Out, Out
        ],
        |ctx| prepare(ctx, layer, layer_fits),
    );
    /// `aten::native_group_norm_backward.out(grad_out, input, mean,
    /// rstd, weight, N, C, HxW, group, output_mask, out0, out1, out2)`: the gradients of input,
    /// weight and bias. All tensors are contiguous.
    GROUP_NORM_BACKWARD_OUT = Kernel::new(
        "aten::native_group_norm_backward.out",
        &[
            Tensor, Tensor, Tensor, Tensor, OptionalTensor, Int, Int, Int, Int, BoolList, Out, Out,
            Out
        ],
        |ctx| prepare(ctx, group, group_fits),
    );
}

/// Number of values that are converted at a time, to a buffer on the stack.
const BLOCK: usize = 64;

/// Row layout and arguments of a norm.
struct Rows {
    count: usize,
    len: usize,
    /// Number of adjacent elements that share a weight.
    shared_len: usize,
    /// Number of consecutive rows after which the weights repeat.
    period: usize,
    /// Number of weights; nonzero even if the rows are empty.
    channels: usize,
    /// Dims of the input that have weights.
    weights: core::ops::Range<usize>,
    /// Argument of the means; the inverse standard deviations follow.
    mean: usize,
    weight: usize,
    mask: usize,
    /// First of the three outputs.
    out: usize,
    /// Whether this is layer norm; selects the function to run.
    is_layer: bool,
}

impl Rows {
    fn scratch(&self) -> usize {
        self.count.saturating_mul(2).saturating_add(self.channels.saturating_mul(3))
    }
}

fn shape_mismatch() -> KernelError {
    KernelError::argument(2, "normalized_shape differs from the last dims of the input")
}

/// Checks that the normalized shape matches the input's last dims.
fn layer_fits(args: &Arguments) -> Result<(), KernelError> {
    let (input, normalized) = (args.info(1)?, args.ints(2)?);
    let first = input.rank().checked_sub(normalized.len()).ok_or(shape_mismatch())?;
    let inner = input.sizes.get(first..).unwrap_or(&[]);
    let equal = inner.iter().zip(&normalized).all(|(a, b)| i64::from(*a) == *b);
    if inner.is_empty() || !equal { Err(shape_mismatch()) } else { Ok(()) }
}

fn layer(args: &Arguments) -> Result<Rows, KernelError> {
    let input = args.info(1)?;
    let first = input.rank().checked_sub(args.ints(2)?.len()).ok_or(shape_mismatch())?;
    let (outer, inner) = input.sizes.split_at(first);
    let numel = |sizes: &[i32]| checked_numel(sizes).unwrap_or(0);
    let (weights, len) = (first..input.rank(), numel(inner));
    let (count, shared_len, period) = (numel(outer), 1, 1);
    Ok(Rows {
        count,
        len,
        shared_len,
        period,
        channels: len,
        weights,
        mean: 3,
        weight: 5,
        mask: 7,
        out: 8,
        is_layer: true,
    })
}

/// Checks that `N`, `C` and `HxW` match the input's shape.
fn group_fits(args: &Arguments) -> Result<(), KernelError> {
    let input = args.info(1)?;
    let plane = checked_numel(input.sizes.get(2..).unwrap_or(&[])).unwrap_or(0);
    for (arg, expected) in [(5, input.size(0)), (6, input.size(1)), (7, plane)] {
        if args.int(arg)? != expected as i64 {
            return Err(KernelError::argument(arg, "expected the size of the input"));
        }
    }
    Ok(())
}

fn group(args: &Arguments) -> Result<Rows, KernelError> {
    let input = args.info(1)?;
    let Some(rest) = input.sizes.get(2..) else {
        return Err(KernelError::rank(1, input.rank()));
    };
    let plane = checked_numel(rest).unwrap_or(0);
    let (samples, channels) = (input.size(0), input.size(1));
    let period = usize::try_from(args.int(8)?).ok();
    let period = period.filter(|groups| {
        (1..=channels.max(1)).contains(groups) && channels.is_multiple_of(*groups)
    });
    let what = "number of groups does not divide the number of channels";
    let period = period.ok_or(KernelError::argument(8, what))?;
    let (count, len) = (samples.saturating_mul(period), channels / period * plane);
    Ok(Rows {
        count,
        len,
        shared_len: plane,
        period,
        channels,
        weights: 1..2,
        mean: 2,
        weight: 4,
        mask: 9,
        out: 10,
        is_layer: false,
    })
}

fn prepare(
    ctx: &mut Prepare,
    rows: fn(&Arguments) -> Result<Rows, KernelError>,
    fits: fn(&Arguments) -> Result<(), KernelError>,
) -> Result<Plan, KernelError> {
    let rows = rows(ctx)?;
    let (grad, input) = (ctx.info(0)?, ctx.info(1)?);
    let double = is_double(ctx, 1)?;
    let scratch = scratch::bytes_for(rows.scratch(), if double { 8 } else { 4 })?;
    ctx.scratch_at_most(scratch);
    fits(ctx)?;
    if grad.sizes != input.sizes {
        return Err(KernelError::argument(0, "gradient: expected the shape of the input"));
    }
    for arg in [0, 1, rows.mean, rows.mean + 1] {
        is_double(ctx, arg)?;
        contiguous(arg, &ctx.info(arg)?)?;
    }
    for arg in [rows.mean, rows.mean + 1] {
        if ctx.info(arg)?.numel() != rows.count {
            return Err(KernelError::argument(arg, "expected an element per normalized row"));
        }
    }
    let weights = input.sizes.get(rows.weights.clone()).unwrap_or(&[]);
    expect_shape(ctx, rows.weight, weights)?;
    if let Some(weight) = ctx.optional_info(rows.weight)? {
        contiguous(rows.weight, &weight)?;
    }
    let sizes = [&input.sizes[..], weights, weights];
    for (number, sizes) in sizes.into_iter().enumerate() {
        if ctx.list_bool(rows.mask, number)? {
            let out = rows.out + number;
            ctx.resize(out, sizes)?;
            is_double(ctx, out)?;
            contiguous(out, &ctx.info(out)?)?;
        }
    }
    let run = match (rows.is_layer, double) {
        (true, false) => run_layer::<f32>,
        (true, true) => run_layer::<f64>,
        (false, false) => run_group::<f32>,
        (false, true) => run_group::<f64>,
    };
    Ok(Plan::new(run).with_scratch(scratch))
}

fn run_layer<C: Real>(ctx: &mut Invoke) -> Result<(), KernelError> {
    let rows = layer(ctx)?;
    run::<C>(ctx, &rows)
}

fn run_group<C: Real>(ctx: &mut Invoke) -> Result<(), KernelError> {
    let rows = group(ctx)?;
    run::<C>(ctx, &rows)
}

fn run<C: Real>(ctx: &mut Invoke, rows: &Rows) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let channels = rows.channels;
    let memory = scratch::take::<C>(ctx, rows.scratch())?;
    let (means, memory) = memory.split_at_mut(rows.count);
    let (deviations, memory) = memory.split_at_mut(rows.count);
    let (weights, memory) = memory.split_at_mut(channels);
    let (of_weights, of_biases) = memory.split_at_mut(channels);
    of_weights.fill(C::default());
    of_biases.fill(C::default());
    let (mean, deviation) = (ctx.tensor(rows.mean)?, ctx.tensor(rows.mean + 1)?);
    fill(Some(&mean), 0, C::default(), means);
    fill(Some(&deviation), 0, C::default(), deviations);
    fill(ctx.optional_tensor(rows.weight)?.as_ref(), 0, C::count(1), weights);

    let (grad, input) = (ctx.tensor(0)?, ctx.tensor(1)?);
    let wanted = ctx.list_bool(rows.mask, 0)?;
    let of_input = wanted.then(|| ctx.out(rows.out)).transpose()?;
    let out_type = of_input.as_ref().map_or(input.scalar_type, |out| out.scalar_type);
    let mut of_input = of_input.map(torchlet_core::TensorMut::into_bytes);
    let each = rows.len / rows.shared_len.max(1);
    for (row, (mean, deviation)) in means.iter().zip(&*deviations).enumerate() {
        let first = row % rows.period * each;
        // Calls a function with each block: its start in the row, gradients and normalized
        // elements.
        let blocks = |f: &mut dyn FnMut(usize, &[C], &[C])| {
            let (mut g, mut x) = ([C::default(); BLOCK], [C::default(); BLOCK]);
            for at in (0..rows.len).step_by(BLOCK) {
                let len = BLOCK.min(rows.len - at);
                let (g, x) = (&mut g[..len], &mut x[..len]);
                let start = (row * rows.len + at) as isize;
                load(grad.scalar_type, grad.bytes(), start, 1, g);
                load(input.scalar_type, input.bytes(), start, 1, x);
                x.iter_mut().for_each(|x| *x = (*x - *mean) * *deviation);
                f(at, g, x);
            }
        };
        let channel = |at: usize| first + at / rows.shared_len.max(1);
        let (mut sum, mut product) = (C::default(), C::default());
        blocks(&mut |at, g, x| {
            for (i, (g, x)) in g.iter().zip(x).enumerate() {
                let channel = channel(at + i);
                let weighted = *g * weights[channel];
                sum = sum + weighted;
                product = product + weighted * *x;
                of_weights[channel] = of_weights[channel] + *g * *x;
                of_biases[channel] = of_biases[channel] + *g;
            }
        });
        let Some(out) = &mut of_input else { continue };
        let (sum, product) = (sum / C::count(rows.len), product / C::count(rows.len));
        let size = out_type.size();
        blocks(&mut |at, g, x| {
            let mut values = [C::default(); BLOCK];
            let values = &mut values[..g.len()];
            for (i, (value, (g, x))) in values.iter_mut().zip(g.iter().zip(x)).enumerate() {
                *value = (*g * weights[channel(at + i)] - sum - *x * product) * *deviation;
            }
            let start = (row * rows.len + at) * size;
            if let Some(out) = out.get_mut(start..start + values.len() * size) {
                store(out_type, out, values);
            }
        });
    }
    for (number, values) in [(1, of_weights), (2, of_biases)] {
        if ctx.list_bool(rows.mask, number)? {
            let mut out = ctx.out(rows.out + number)?;
            store(out.scalar_type, out.bytes_mut(), values);
        }
    }
    Ok(())
}
