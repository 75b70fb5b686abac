//! Running sums and products.

use super::sums::castable;
use crate::elementwise::{ByCompute, by_compute};
use crate::lines::{LANES, Lanes, Line, Lines, Target};
use crate::number::{Compute, store};
use crate::table::kernels;
use torchlet_core::Param::{Int, OptionalInt, Out, Tensor};
use torchlet_core::rules::normalize_dim;
use torchlet_core::{Arguments, Invoke, Kernel, KernelError, Plan, Prepare, ScalarType, TensorRef};

kernels! {
    /// `aten::cumsum.out(self, dim, dtype, out)`
    CUMSUM_OUT = Kernel::new("aten::cumsum.out", &[Tensor, Int, OptionalInt, Out], |ctx| {
        prepare(ctx, by_compute!(sums))
    });
    /// `aten::cumprod.out(self, dim, dtype, out)`
    CUMPROD_OUT = Kernel::new("aten::cumprod.out", &[Tensor, Int, OptionalInt, Out], |ctx| {
        prepare(ctx, by_compute!(products))
    });
}

fn dim(args: &Arguments) -> Result<usize, KernelError> {
    let what = "not a dimension of the tensor";
    normalize_dim(args.int(1)?, args.info(0)?.rank()).ok_or(KernelError::argument(1, what))
}

fn prepare(ctx: &mut Prepare, functions: ByCompute) -> Result<Plan, KernelError> {
    let input = ctx.info(0)?;
    dim(ctx)?;
    ctx.resize(3, &input.sizes)?;
    let compute = castable(ctx, 2, 3)?;
    Ok(Plan::new(functions.choose(compute)))
}

/// A scan: how what there is so far takes in one more value, and what is written then.
trait Scan<C> {
    /// What there is so far.
    type State: Copy;
    fn start() -> Self::State;
    fn step(state: &mut Self::State, x: C) -> C;
}

struct Sums;
struct Products;

// PyTorch sums `float` in `double` here. Where there are no doubles in hardware, two floats do as well: the sum, and what rounding lost of it.
impl Scan<f32> for Sums {
    type State = (f32, f32);
    #[inline(always)]
    fn start() -> (f32, f32) {
        (0.0, 0.0)
    }
    #[inline(always)]
    fn step((sum, lost): &mut (f32, f32), x: f32) -> f32 {
        let next = *sum + x;
        let added = next - *sum;
        let error = (*sum - (next - added)) + (x - added);
        // What is lost of infinities is nothing, not NaN.
        *lost = if next.is_finite() { *lost + error } else { 0.0 };
        *sum = next;
        next + *lost
    }
}
impl Scan<f64> for Sums {
    type State = f64;
    #[inline(always)]
    fn start() -> f64 {
        0.0
    }
    #[inline(always)]
    fn step(sum: &mut f64, x: f64) -> f64 {
        *sum += x;
        *sum
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

// As in PyTorch, products of `float` are kept in `double`: what is out of range for the one can come back into it.
impl Scan<f32> for Products {
    type State = f64;
    #[inline(always)]
    fn start() -> f64 {
        1.0
    }
    #[inline(always)]
    fn step(product: &mut f64, x: f32) -> f32 {
        *product *= f64::from(x);
        *product as f32
    }
}
impl Scan<f64> for Products {
    type State = f64;
    #[inline(always)]
    fn start() -> f64 {
        1.0
    }
    #[inline(always)]
    fn step(product: &mut f64, x: f64) -> f64 {
        *product *= x;
        *product
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

fn sums<C: Compute>(ctx: &mut Invoke) -> Result<(), KernelError>
where
    Sums: Scan<C>,
{
    invoke::<C, Sums>(ctx)
}

fn products<C: Compute>(ctx: &mut Invoke) -> Result<(), KernelError>
where
    Products: Scan<C>,
{
    invoke::<C, Products>(ctx)
}

fn invoke<C: Compute, S: Scan<C>>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let input = ctx.tensor(0)?;
    let dim = dim(ctx)?;
    let out = ctx.out(3)?;
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
