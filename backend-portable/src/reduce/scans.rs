//! Running sums.

use super::sums::castable;
use crate::elementwise::{Arithmetic, by_compute};
use crate::lines::{LANES, Lanes, Line, Lines, Target};
use crate::number::store;
use crate::table::kernels;
use torchlet_core::Param::{Int, OptionalInt, Out, Tensor};
use torchlet_core::rules::normalize_dim;
use torchlet_core::{Arguments, Invoke, Kernel, KernelError, Plan, Prepare, ScalarType, TensorRef};

kernels! {
    /// `aten::cumsum.out(self, dim, dtype, out)`
    CUMSUM_OUT = Kernel::new("aten::cumsum.out", &[Tensor, Int, OptionalInt, Out], prepare);
}

fn dim(args: &Arguments) -> Result<usize, KernelError> {
    let what = "not a dimension of the tensor";
    normalize_dim(args.int(1)?, args.info(0)?.rank()).ok_or(KernelError::Argument { arg: 1, what })
}

fn prepare(ctx: &mut Prepare) -> Result<Plan, KernelError> {
    let input = ctx.info(0)?;
    dim(ctx)?;
    ctx.resize(3, &input.sizes)?;
    let compute = castable(ctx, 2, 3)?;
    Ok(Plan::new(by_compute!(invoke).choose(compute)))
}

/// A sum that keeps what rounding loses.
///
/// PyTorch sums `float` in `double` here. Where there are no doubles in hardware, two floats do as well.
trait Running: Arithmetic {
    /// Adds to a sum and to what it has lost; returns the best value of both.
    fn step(sum: &mut Self, lost: &mut Self, x: Self) -> Self;
}

impl Running for f32 {
    #[inline(always)]
    fn step(sum: &mut f32, lost: &mut f32, x: f32) -> f32 {
        let next = *sum + x;
        let added = next - *sum;
        let error = (*sum - (next - added)) + (x - added);
        // What is lost of infinities is nothing, not NaN.
        *lost = if next.is_finite() { *lost + error } else { 0.0 };
        *sum = next;
        next + *lost
    }
}
impl Running for f64 {
    #[inline(always)]
    fn step(sum: &mut f64, _: &mut f64, x: f64) -> f64 {
        *sum += x;
        *sum
    }
}
impl Running for i64 {
    #[inline(always)]
    fn step(sum: &mut i64, _: &mut i64, x: i64) -> i64 {
        *sum = sum.wrapping_add(x);
        *sum
    }
}

fn invoke<C: Running>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let input = ctx.tensor(0)?;
    let dim = dim(ctx)?;
    let out = ctx.out(3)?;
    let scalar_type = out.scalar_type;
    let lines = Lines::new(out.info(), input.info(), dim)?;
    let size = scalar_type.size();
    lines.for_each(ctx.parallel(), out.into_bytes(), size, &|line, target| match target {
        Target::Row(row) => one::<C>(&input, line, scalar_type, row),
        Target::Lanes(lanes) => side_by_side::<C>(&input, line, scalar_type, lanes),
    });
    Ok(())
}

fn one<C: Running>(input: &TensorRef, line: Line, scalar_type: ScalarType, out: &mut [u8]) {
    let mut block = [C::default(); LANES];
    let (mut sum, mut lost) = (C::default(), C::default());
    let blocks = out.chunks_mut(LANES * scalar_type.size());
    for (from, out) in (0..line.len).step_by(LANES).zip(blocks) {
        let block = &mut block[..LANES.min(line.len - from)];
        line.load(input, from, block);
        for x in block.iter_mut() {
            *x = C::step(&mut sum, &mut lost, *x);
        }
        store(scalar_type, out, block);
    }
}

fn side_by_side<C: Running>(
    input: &TensorRef,
    line: Line,
    scalar_type: ScalarType,
    out: &mut dyn Lanes,
) {
    let (mut block, mut sum) = ([C::default(); LANES], [C::default(); LANES]);
    let mut lost = [C::default(); LANES];
    let block = &mut block[..line.lanes.min(LANES)];
    for number in 0..line.len {
        line.load_lanes(input, number, block);
        for ((x, sum), lost) in block.iter_mut().zip(&mut sum).zip(&mut lost) {
            *x = C::step(sum, lost, *x);
        }
        store(scalar_type, out.row(number), block);
    }
}
