//! Softmax and log-softmax.

use crate::compute::functions::{Exp, map1_in_place};
use crate::compute::gemm::Context;
use crate::compute::rows::{log_softmax_rows, softmax_rows};
use crate::compute::simd::Tier;
use crate::lines::{LANES, Lanes, Line, Lines, Target};
use crate::number::{elements_mut, store, unsupported};
use crate::real::Real;
use crate::reduce::reducers::{Ordered, fold_lanes};
use crate::table::kernels;
use torchlet_core::Param::{Bool, Int, Out, Tensor};
use torchlet_core::rules::normalize_dim;
use torchlet_core::{
    Arguments, Invoke, InvokeFn, Kernel, KernelError, Plan, Prepare, ScalarType, Serial, TensorRef,
};

kernels! {
    /// `aten::_softmax.out(self, dim, half_to_float, out)`: softmax over `dim`.
    SOFTMAX_OUT = Kernel::new("aten::_softmax.out", &[Tensor, Int, Bool, Out], |ctx| {
        prepare(ctx, [invoke::<f32, false>, invoke::<f64, false>])
    });
    /// `aten::_log_softmax.out(self, dim, half_to_float, out)`: logarithm of the softmax over
    /// `dim`.
    LOG_SOFTMAX_OUT = Kernel::new("aten::_log_softmax.out", &[Tensor, Int, Bool, Out], |ctx| {
        prepare(ctx, [invoke::<f32, true>, invoke::<f64, true>])
    });
}

fn dim(args: &Arguments) -> Result<usize, KernelError> {
    let what = "dim is out of range for the input";
    normalize_dim(args.int(1)?, args.info(0)?.rank()).ok_or(KernelError::argument(1, what))
}

fn prepare(ctx: &mut Prepare, functions: [InvokeFn; 2]) -> Result<Plan, KernelError> {
    let input = ctx.info(0)?;
    super::is_double(ctx, 0)?;
    dim(ctx)?;
    ctx.resize(3, &input.sizes)?;
    let double = super::is_double(ctx, 3)?;
    let found = ctx.info(3)?.scalar_type;
    let widened = input.scalar_type == ScalarType::Half && found == ScalarType::Float;
    if found != input.scalar_type && !(ctx.bool(2)? && widened) {
        return Err(unsupported(3, found));
    }
    Ok(Plan::new(functions[usize::from(double)]))
}

fn invoke<C: Real + Ordered, const LOG: bool>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let input = ctx.tensor(0)?;
    let dim = dim(ctx)?;
    let out = ctx.out(3)?;
    let scalar_type = out.scalar_type;
    let lines = Lines::new(out.info(), input.info(), dim)?;
    if lines.are_rows()
        && scalar_type == ScalarType::Float
        && let Ok(src) = input.data::<f32>()
    {
        let context = Context { tier: Tier::detect(), parallel: ctx.parallel() };
        let rows = if LOG { log_softmax_rows } else { softmax_rows };
        rows(context, src, input.size(dim), elements_mut(out.into_bytes()));
        return Ok(());
    }
    let size = scalar_type.size();
    lines.for_each(ctx.parallel(), out.into_bytes(), size, &|line, target| match target {
        Target::Row(row) => one::<C, LOG>(&input, line, scalar_type, row),
        Target::Lanes(lanes) => side_by_side::<C, LOG>(&input, line, scalar_type, lanes),
    });
    Ok(())
}

fn largest<C: Ordered>(a: C, b: C) -> C {
    if b.above(a) { b } else { a }
}

/// Replaces each value by its exponential.
fn exp_all<C: Real>(values: &mut [C]) {
    if C::SCALAR_TYPE == ScalarType::Float
        && let Ok(values) = bytemuck::try_cast_slice_mut(values)
    {
        let context = Context { tier: Tier::detect(), parallel: &Serial };
        return map1_in_place(context, Exp, values);
    }
    for value in values {
        *value = value.exp();
    }
}

/// The softmax of a single line.
fn one<C: Real + Ordered, const LOG: bool>(
    input: &TensorRef,
    line: Line,
    scalar_type: ScalarType,
    out: &mut [u8],
) {
    let mut block = [C::default(); LANES];
    let mut each_block = |f: &mut dyn FnMut(&mut [C], usize)| {
        for from in (0..line.len).step_by(LANES) {
            let block = &mut block[..LANES.min(line.len - from)];
            line.load(input, from, block);
            f(block, from);
        }
    };
    let (mut max, mut sum) = (C::LOWEST, C::default());
    each_block(&mut |x, _| max = fold_lanes(max, x, largest, largest));
    each_block(&mut |x, _| {
        x.iter_mut().for_each(|x| *x = *x - max);
        exp_all(x);
        sum = sum + fold_lanes(C::default(), x, |a, b| a + b, |a, b| a + b);
    });
    let log = sum.ln();
    each_block(&mut |x, from| {
        if LOG {
            x.iter_mut().for_each(|x| *x = *x - max - log);
        } else {
            x.iter_mut().for_each(|x| *x = *x - max);
            exp_all(x);
            x.iter_mut().for_each(|x| *x = *x / sum);
        }
        let size = scalar_type.size();
        store(scalar_type, out.get_mut(from * size..).unwrap_or_default(), x);
    });
}

/// The softmax of adjacent lines.
fn side_by_side<C: Real + Ordered, const LOG: bool>(
    input: &TensorRef,
    line: Line,
    scalar_type: ScalarType,
    out: &mut dyn Lanes,
) {
    let (mut block, mut max) = ([C::default(); LANES], [C::LOWEST; LANES]);
    let (mut sum, mut log) = ([C::default(); LANES], [C::default(); LANES]);
    let lanes = line.lanes.min(LANES);
    let (x, max, sum, log) =
        (&mut block[..lanes], &mut max[..lanes], &mut sum[..lanes], &mut log[..lanes]);
    for number in 0..line.len {
        line.load_lanes(input, number, x);
        max.iter_mut().zip(&*x).for_each(|(max, x)| *max = largest(*max, *x));
    }
    let exponentials = |x: &mut [C], number| {
        line.load_lanes(input, number, x);
        x.iter_mut().zip(&*max).for_each(|(x, max)| *x = *x - *max);
        exp_all(x);
    };
    for number in 0..line.len {
        exponentials(x, number);
        sum.iter_mut().zip(&*x).for_each(|(sum, x)| *sum = *sum + *x);
    }
    if LOG {
        log.iter_mut().zip(&*sum).for_each(|(log, sum)| *log = sum.ln());
    }
    for number in 0..line.len {
        if LOG {
            line.load_lanes(input, number, x);
            for ((x, max), log) in x.iter_mut().zip(&*max).zip(&*log) {
                *x = *x - *max - *log;
            }
        } else {
            exponentials(x, number);
            x.iter_mut().zip(&*sum).for_each(|(x, sum)| *x = *x / *sum);
        }
        store(scalar_type, out.row(number), x);
    }
}
