//! Cumulative operators: `cumsum`, `cumprod`, `logcumsumexp`.

use super::sums::castable;
use crate::elementwise::{ByCompute, by_compute};
use crate::lines::{LANES, Lanes, Line, Lines, Target};
use crate::number::{Compute, ComputeType, store, unsupported};
use crate::table::kernels;
use torchlet_core::Param::{Int, OptionalInt, Out, Tensor};
use torchlet_core::rules::normalize_dim;
use torchlet_core::{Arguments, Invoke, Kernel, KernelError, Plan, Prepare, ScalarType, TensorRef};

kernels! {
    /// `aten::cumsum.out(self, dim, dtype, out)`: the cumulative sum over `dim`.
    CUMSUM_OUT = Kernel::new("aten::cumsum.out", &[Tensor, Int, OptionalInt, Out], |ctx| {
        prepare(ctx, by_compute!(sums))
    });
    /// `aten::cumprod.out(self, dim, dtype, out)`: the cumulative product over `dim`.
    CUMPROD_OUT = Kernel::new("aten::cumprod.out", &[Tensor, Int, OptionalInt, Out], |ctx| {
        prepare(ctx, by_compute!(products))
    });
    /// `aten::logcumsumexp.out(self, dim, out)`: the logarithm of the cumulative sum of `e^self`.
    LOGCUMSUMEXP_OUT = Kernel::new("aten::logcumsumexp.out", &[Tensor, Int, Out], |ctx| {
        let input = ctx.info(0)?;
        dim(ctx)?;
        ctx.resize(2, &input.sizes)?;
        let found = ctx.info(2)?.scalar_type;
        if !input.scalar_type.is_floating() {
            return Err(unsupported(0, input.scalar_type));
        }
        if found != input.scalar_type {
            return Err(unsupported(2, found));
        }
        let compute = ComputeType::of(found).ok_or(unsupported(2, found))?;
        Ok(Plan::new(by_compute!(float log_sums).choose(compute)))
    });
}

fn dim(args: &Arguments) -> Result<usize, KernelError> {
    let what = "dim is out of range for the input";
    normalize_dim(args.int(1)?, args.info(0)?.rank()).ok_or(KernelError::argument(1, what))
}

fn prepare(ctx: &mut Prepare, functions: ByCompute) -> Result<Plan, KernelError> {
    let input = ctx.info(0)?;
    dim(ctx)?;
    ctx.resize(3, &input.sizes)?;
    let compute = castable(ctx, 2, 3)?;
    Ok(Plan::new(functions.choose(compute)))
}

/// A scan: folds one value into the state, and returns the result at that position.
trait Scan<C> {
    /// Accumulator.
    type State: Copy;
    fn start() -> Self::State;
    fn step(state: &mut Self::State, x: C) -> C;
}

struct Sums;
struct Products;
struct LogSums;

/// A scan of floats. As in PyTorch, the accumulator of `float` is `double`, so that intermediate
/// results may exceed the range of `float`.
trait FloatScan {
    const START: f64;
    fn combine(so_far: f64, x: f64) -> f64;
}

impl<S: FloatScan> Scan<f32> for S {
    type State = f64;
    #[inline(always)]
    fn start() -> f64 {
        S::START
    }
    #[inline(always)]
    fn step(state: &mut f64, x: f32) -> f32 {
        *state = S::combine(*state, x.into());
        *state as f32
    }
}

impl<S: FloatScan> Scan<f64> for S {
    type State = f64;
    #[inline(always)]
    fn start() -> f64 {
        S::START
    }
    #[inline(always)]
    fn step(state: &mut f64, x: f64) -> f64 {
        *state = S::combine(*state, x);
        *state
    }
}

impl FloatScan for Sums {
    const START: f64 = 0.0;
    #[inline(always)]
    fn combine(so_far: f64, x: f64) -> f64 {
        so_far + x
    }
}

impl FloatScan for Products {
    const START: f64 = 1.0;
    #[inline(always)]
    fn combine(so_far: f64, x: f64) -> f64 {
        so_far * x
    }
}

impl FloatScan for LogSums {
    const START: f64 = f64::NEG_INFINITY;
    #[inline(always)]
    fn combine(so_far: f64, x: f64) -> f64 {
        log_add(so_far, x)
    }
}

impl Scan<i64> for Sums {
    type State = i64;
    #[inline(always)]
    fn start() -> i64 {
        0
    }
    #[inline(always)]
    fn step(sum: &mut i64, x: i64) -> i64 {
        *sum = sum.wrapping_add(x);
        *sum
    }
}

impl Scan<i64> for Products {
    type State = i64;
    #[inline(always)]
    fn start() -> i64 {
        1
    }
    #[inline(always)]
    fn step(product: &mut i64, x: i64) -> i64 {
        *product = product.wrapping_mul(x);
        *product
    }
}

/// `ln(e^a + e^b)`
fn log_add(a: f64, b: f64) -> f64 {
    let (low, high) = if a < b { (a, b) } else { (b, a) };
    if a.is_nan() || b.is_nan() {
        f64::NAN
    } else if low == high && low.is_infinite() {
        high
    } else {
        high + libm::log1p(libm::exp(low - high))
    }
}

fn sums<C: Compute>(ctx: &mut Invoke) -> Result<(), KernelError>
where
    Sums: Scan<C>,
{
    invoke::<C, Sums>(ctx, 3)
}

fn products<C: Compute>(ctx: &mut Invoke) -> Result<(), KernelError>
where
    Products: Scan<C>,
{
    invoke::<C, Products>(ctx, 3)
}

fn log_sums<C: Compute>(ctx: &mut Invoke) -> Result<(), KernelError>
where
    LogSums: Scan<C>,
{
    invoke::<C, LogSums>(ctx, 2)
}

fn invoke<C: Compute, S: Scan<C>>(ctx: &mut Invoke, out: usize) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let input = ctx.tensor(0)?;
    let dim = dim(ctx)?;
    let out = ctx.out(out)?;
    let scalar_type = out.scalar_type;
    let lines = Lines::new(out.info(), input.info(), dim)?;
    let size = scalar_type.size();
    lines.for_each(ctx.parallel(), out.into_bytes(), size, &|line, target| match target {
        Target::Row(row) => one::<C, S>(&input, line, scalar_type, row),
        Target::Lanes(lanes) => side_by_side::<C, S>(&input, line, scalar_type, lanes),
    });
    Ok(())
}

fn one<C: Compute, S: Scan<C>>(
    input: &TensorRef,
    line: Line,
    scalar_type: ScalarType,
    out: &mut [u8],
) {
    let mut block = [C::default(); LANES];
    let mut state = S::start();
    let blocks = out.chunks_mut(LANES * scalar_type.size());
    for (from, out) in (0..line.len).step_by(LANES).zip(blocks) {
        let block = &mut block[..LANES.min(line.len - from)];
        line.load(input, from, block);
        for x in block.iter_mut() {
            *x = S::step(&mut state, *x);
        }
        store(scalar_type, out, block);
    }
}

fn side_by_side<C: Compute, S: Scan<C>>(
    input: &TensorRef,
    line: Line,
    scalar_type: ScalarType,
    out: &mut dyn Lanes,
) {
    let (mut block, mut states) = ([C::default(); LANES], [S::start(); LANES]);
    let block = &mut block[..line.lanes.min(LANES)];
    for number in 0..line.len {
        line.load_lanes(input, number, block);
        for (x, state) in block.iter_mut().zip(&mut states) {
            *x = S::step(state, *x);
        }
        store(scalar_type, out.row(number), block);
    }
}
