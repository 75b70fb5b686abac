//! Pairwise distances between vectors.

use crate::compute::split::for_each_chunk_mut;
use crate::number::{load, round_through, store, unsupported};
use crate::real::{Real, by_type};
use crate::reduce::reducers::{Ordered, fold_lanes};
use crate::table::kernels;
use crate::walk::{Steps, Walk};
use torchlet_core::Param::{Float, OptionalInt, Out, Scalar, Tensor};
use torchlet_core::layout::{MAX_RANK, Sizes};
use torchlet_core::rules::broadcast;
use torchlet_core::{Arguments, Invoke, Kernel, KernelError, Plan, Prepare, TensorInfo, TensorRef};

kernels! {
    /// `aten::_cdist_forward.out(x1, x2, p, compute_mode, out)`: the distance between each row of
    /// `x1` and each row of `x2`.
    CDIST_OUT = Kernel::new(
        "aten::_cdist_forward.out",
        &[Tensor, Tensor, Float, OptionalInt, Out],
        prepare_between,
    );
    /// `aten::dist.out(self, other, p, out)`: the p-norm of the difference.
    DIST_OUT = Kernel::new("aten::dist.out", &[Tensor, Tensor, Scalar, Out], prepare_whole);
    /// `aten::_pdist_forward.out(self, p, out)`: the distance between each row and every later one.
    PDIST_OUT = Kernel::new("aten::_pdist_forward.out", &[Tensor, Float, Out], prepare_within);
}

/// Number of values that are converted at a time, to a buffer on the stack.
const BLOCK: usize = 64;
/// Minimum number of operations per thread.
const GRAIN: usize = 1 << 14;

pub(super) fn check_norm(args: &Arguments, arg: usize) -> Result<(), KernelError> {
    let p = args.float(arg)?;
    // This also rejects NaN.
    if p >= 0.0 { Ok(()) } else { Err(KernelError::argument(arg, "p: expected at least 0")) }
}

fn prepare_between(ctx: &mut Prepare) -> Result<Plan, KernelError> {
    check_norm(ctx, 2)?;
    for arg in [0, 1] {
        by_type(ctx, arg, [between::<f32>, between::<f64>])?;
    }
    let sizes = between_sizes(ctx, 0, 1)?;
    ctx.resize(4, &sizes)?;
    by_type(ctx, 4, [between::<f32>, between::<f64>])
}

/// Shape of the distances between the rows of two arguments.
pub(super) fn between_sizes(args: &Arguments, a: usize, b: usize) -> Result<Sizes, KernelError> {
    let (first, second) = (args.info(a)?, args.info(b)?);
    for (arg, info) in [(a, &first), (b, &second)] {
        if info.rank() < 2 {
            return Err(KernelError::rank(arg, info.rank()));
        }
    }
    let mismatch = KernelError::argument(b, "shape does not match that of the first input");
    let (batch_a, [rows, width]) = split(&first.sizes).ok_or(mismatch.clone())?;
    let (batch_b, [columns, other]) = split(&second.sizes).ok_or(mismatch.clone())?;
    let mut sizes: Sizes = broadcast(batch_a, batch_b).ok_or(mismatch.clone())?;
    let fits = sizes.push(rows).is_ok() && sizes.push(columns).is_ok();
    if width == other && fits { Ok(sizes) } else { Err(mismatch) }
}

fn prepare_whole(ctx: &mut Prepare) -> Result<Plan, KernelError> {
    let (a, b) = (ctx.info(0)?, ctx.info(1)?);
    if a.scalar_type != b.scalar_type {
        return Err(unsupported(1, b.scalar_type));
    }
    let mismatch = KernelError::argument(1, "shape does not match that of the first input");
    broadcast(&a.sizes, &b.sizes).ok_or(mismatch)?;
    ctx.resize(3, &[])?;
    let made = ctx.info(3)?.scalar_type;
    if made != a.scalar_type {
        return Err(unsupported(3, made));
    }
    by_type(ctx, 0, [whole::<f32>, whole::<f64>])
}

fn whole<C: Real>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let (a, b) = (ctx.tensor(0)?, ctx.tensor(1)?);
    let p = ctx.scalar(2)?.to_f64();
    let mut out = ctx.out(3)?;
    let (scalar_type, what) = (a.scalar_type, "shape does not match that of the first input");
    let sizes = broadcast(&a.sizes, &b.sizes);
    let all = sizes.and_then(|sizes| TensorInfo::contiguous(scalar_type, &sizes));
    let all = all.ok_or(KernelError::argument(1, what))?;
    let walk = Walk::broadcast(&all, [a.info(), b.info()])?;
    let [step_a, step_b] = walk.inner_steps();
    // NaN propagates.
    let farther =
        |total: f64, value: f64| if value > total || value.is_nan() { value } else { total };
    let nearer =
        |total: f64, value: f64| if value < total || value.is_nan() { value } else { total };
    let mut total = if p == f64::NEG_INFINITY && all.numel() > 0 { f64::INFINITY } else { 0.0 };
    walk.for_each_run(0, all.numel(), &mut |_, [at_a, at_b], count| {
        let (mut x, mut y) = ([C::default(); BLOCK], [C::default(); BLOCK]);
        for done in (0..count).step_by(BLOCK) {
            let len = BLOCK.min(count - done);
            let (x, y) = (&mut x[..len], &mut y[..len]);
            load(scalar_type, a.bytes(), at_a + step_a * done as isize, step_a, x);
            load(scalar_type, b.bytes(), at_b + step_b * done as isize, step_b, y);
            x.iter_mut().zip(&*y).for_each(|(x, y)| *x = *x - *y);
            round_through(scalar_type, x);
            for value in x {
                let value = Real::abs(*value).to_f64();
                total = match p {
                    0.0 => total + if value == 0.0 { 0.0 } else { 1.0 },
                    1.0 => total + value,
                    2.0 => total + value * value,
                    f64::INFINITY => farther(total, value),
                    f64::NEG_INFINITY => nearer(total, value),
                    _ => total + Real::pow(value, p),
                };
            }
        }
    });
    if p == 2.0 {
        total = Real::sqrt(total);
    } else if p.is_finite() && p != 0.0 && p != 1.0 {
        total = Real::pow(total, 1.0 / p);
    }
    store(scalar_type, out.bytes_mut(), &[C::from_f64(total)]);
    Ok(())
}

/// Splits a shape into batch sizes and the last two sizes.
fn split(sizes: &[i32]) -> Option<(&[i32], [i32; 2])> {
    let (batch, last) = sizes.split_last_chunk::<2>()?;
    Some((batch, *last))
}

fn prepare_within(ctx: &mut Prepare) -> Result<Plan, KernelError> {
    let input = ctx.info(0)?;
    check_norm(ctx, 1)?;
    if input.rank() != 2 {
        return Err(KernelError::rank(0, input.rank()));
    }
    let pairs = pairs(input.size(0)).and_then(|pairs| i32::try_from(pairs).ok());
    let many = KernelError::argument(0, "more than 2^31 - 1 pairs of rows");
    ctx.resize(2, &[pairs.ok_or(many)?])?;
    by_type(ctx, 0, [within::<f32>, within::<f64>])?;
    by_type(ctx, 2, [within::<f32>, within::<f64>])
}

/// Number of pairs among `count` rows.
pub(super) fn pairs(count: usize) -> Option<usize> {
    Some(count.checked_mul(count.saturating_sub(1))? / 2)
}

/// A p-norm; special values of p have their own variants.
#[derive(Clone, Copy)]
pub(super) enum Norm<C> {
    /// Number of nonzero differences.
    Zero,
    One,
    Two,
    Infinity,
    Of(C),
}

impl<C: Real + Ordered> Norm<C> {
    pub(super) fn new(p: f64) -> Self {
        match p {
            0.0 => Norm::Zero,
            1.0 => Norm::One,
            2.0 => Norm::Two,
            f64::INFINITY => Norm::Infinity,
            _ => Norm::Of(C::from_f64(p)),
        }
    }

    /// Distance between two vectors of `len` elements, each given by its first element and stride.
    /// If `IGNORE_NAN`, the maximum norm ignores NaN, as PyTorch does in `cdist`; otherwise NaN
    /// propagates, as in `pdist`.
    fn distance<const IGNORE_NAN: bool>(
        &self,
        [a, b]: [&TensorRef; 2],
        at: [isize; 2],
        steps: [isize; 2],
        len: usize,
    ) -> C {
        let (mut x, mut y) = ([C::default(); BLOCK], [C::default(); BLOCK]);
        let mut total = C::default();
        let add = |a: C, b: C| a + b;
        let leads = |a: C, b: C| if IGNORE_NAN { b > a } else { b.above(a) };
        let largest = |a: C, b: C| if leads(a, b) { b } else { a };
        for done in (0..len).step_by(BLOCK) {
            let count = BLOCK.min(len - done);
            let (x, y) = (&mut x[..count], &mut y[..count]);
            let offset = |i: usize| at[i].wrapping_add(steps[i].wrapping_mul(done as isize));
            load(a.scalar_type, a.bytes(), offset(0), steps[0], x);
            load(b.scalar_type, b.bytes(), offset(1), steps[1], y);
            for (x, y) in x.iter_mut().zip(y) {
                let distance = Real::abs(*x - *y);
                *x = match self {
                    Norm::Zero if distance > C::default() => C::count(1),
                    Norm::Zero | Norm::One | Norm::Infinity => distance,
                    Norm::Two => distance * distance,
                    Norm::Of(p) => distance.pow(*p),
                };
            }
            total = match self {
                Norm::Infinity => fold_lanes(total, x, largest, largest),
                _ => total + fold_lanes(C::default(), x, add, add),
            };
        }
        match self {
            Norm::Two => total.sqrt(),
            Norm::Of(p) => total.pow(C::count(1) / *p),
            _ => total,
        }
    }
}

/// Strides of an input for walks over the output, and stride within a row.
fn row_steps(input: &TensorInfo, out: &TensorInfo, own: usize) -> (Steps, isize) {
    let strides = input.strides();
    let stride = |dim: usize| strides.get(dim).map_or(0, |&stride| stride as isize);
    let (rank, batch) = (input.rank(), input.rank() - 2);
    let mut steps = Steps { strides: [0; MAX_RANK], base: 0 };
    let missing = out.rank() - rank;
    for dim in (0..batch).filter(|&dim| input.size(dim) != 1) {
        steps.strides[dim + missing] = stride(dim);
    }
    // The rows of `x1` are the rows of the output; the rows of `x2` are its columns.
    steps.strides[out.rank() - 2 + own] = stride(rank - 2);
    (steps, stride(rank - 1))
}

fn between<C: Real + Ordered>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let (a, b) = (ctx.tensor(0)?, ctx.tensor(1)?);
    let norm = Norm::<C>::new(ctx.float(2)?);
    let out = ctx.out(4)?;
    let ((steps_a, along_a), (steps_b, along_b)) =
        (row_steps(&a, out.info(), 0), row_steps(&b, out.info(), 1));
    let walk = Walk::new(out.info(), &[steps_a, steps_b]);
    let len = a.size(a.rank() - 1);
    let (scalar_type, size) = (out.scalar_type, out.scalar_type.size());
    let chunk = (GRAIN / len.max(1)).max(1);
    let [step_a, step_b] = walk.inner_steps();
    for_each_chunk_mut(
        ctx.parallel(),
        out.into_bytes(),
        chunk * size,
        &|index, bytes: &mut [u8]| {
            let from = index * chunk;
            let mut slots = bytes.chunks_exact_mut(size);
            let to = from + slots.len();
            walk.for_each_run(from, to, &mut |_, [at_a, at_b], count| {
                for (i, slot) in (0..count as isize).zip(&mut slots) {
                    let at = [
                        at_a.wrapping_add(step_a.wrapping_mul(i)),
                        at_b.wrapping_add(step_b.wrapping_mul(i)),
                    ];
                    let distance = norm.distance::<true>([&a, &b], at, [along_a, along_b], len);
                    store(scalar_type, slot, &[distance]);
                }
            });
        },
    );
    Ok(())
}

fn within<C: Real + Ordered>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let input = ctx.tensor(0)?;
    let norm = Norm::<C>::new(ctx.float(1)?);
    let mut out = ctx.out(2)?;
    let (scalar_type, size) = (out.scalar_type, out.scalar_type.size());
    let strides = input.strides();
    let (row, along) = (strides[0] as isize, strides[1] as isize);
    let (rows, len) = (input.size(0), input.size(1));
    let mut slots = out.bytes_mut().chunks_exact_mut(size);
    for i in 0..rows {
        for (j, slot) in (i + 1..rows).zip(&mut slots) {
            let at = [i as isize * row, j as isize * row];
            let distance = norm.distance::<false>([&input; 2], at, [along; 2], len);
            store(scalar_type, slot, &[distance]);
        }
    }
    Ok(())
}
