//! Gradients of pairwise distances.

use super::distances::{Norm, between_sizes, check_norm, pairs};
use crate::compute::split::for_each_chunk_mut;
use crate::number::{Number, elements, elements_mut, unsupported};
use crate::real::Real;
use crate::reduce::reducers::Ordered;
use crate::table::kernels;
use crate::walk::{Steps, Walk};
use torchlet_core::Param::{Float, Out, Tensor};
use torchlet_core::layout::MAX_RANK;
use torchlet_core::{
    Arguments, Invoke, Kernel, KernelError, Plan, Prepare, ScalarType, TensorInfo,
};

kernels! {
    /// `aten::_cdist_backward.out(grad, x1, x2, p, cdist, out)`: the gradient of `x1`.
    CDIST_BACKWARD_OUT = Kernel::new(
        "aten::_cdist_backward.out",
        &[Tensor, Tensor, Tensor, Float, Tensor, Out],
        prepare_between,
    );
    /// `aten::_pdist_backward.out(grad, self, p, pdist, out)`: the gradient of `self`.
    PDIST_BACKWARD_OUT = Kernel::new(
        "aten::_pdist_backward.out",
        &[Tensor, Tensor, Float, Tensor, Out],
        prepare_within,
    );
}

/// Minimum number of operations per thread.
const GRAIN: usize = 1 << 14;

/// Checks that all arguments have the dtype of argument 1, and the given shapes.
fn expect(ctx: &Arguments, args: &[(usize, &[i32])]) -> Result<(), KernelError> {
    let scalar_type = ctx.info(1)?.scalar_type;
    for &(arg, sizes) in args {
        let info = ctx.info(arg)?;
        if info.scalar_type != scalar_type {
            return Err(unsupported(arg, info.scalar_type));
        }
        if info.sizes != *sizes {
            return Err(KernelError::argument(
                arg,
                "shape does not match those of the other inputs",
            ));
        }
    }
    Ok(())
}

fn plan(
    scalar_type: ScalarType,
    [single, double]: [torchlet_core::InvokeFn; 2],
) -> Result<Plan, KernelError> {
    match scalar_type {
        ScalarType::Float => Ok(Plan::new(single)),
        ScalarType::Double => Ok(Plan::new(double)),
        found => Err(unsupported(1, found)),
    }
}

fn prepare_between(ctx: &mut Prepare) -> Result<Plan, KernelError> {
    let (a, b) = (ctx.info(1)?, ctx.info(2)?);
    check_norm(ctx, 3)?;
    let made = between_sizes(ctx, 1, 2)?;
    expect(ctx, &[(0, &made), (2, &b.sizes), (4, &made)])?;
    // Shape of the distances with the last dim replaced by the row width.
    let mut sizes = made;
    let width = a.sizes.last().copied().unwrap_or(0);
    if let Some(last) = sizes.last_mut() {
        *last = width;
    }
    ctx.resize(5, &sizes)?;
    expect(ctx, &[(5, &sizes)])?;
    plan(a.scalar_type, [between::<f32>, between::<f64>])
}

fn prepare_within(ctx: &mut Prepare) -> Result<Plan, KernelError> {
    let input = ctx.info(1)?;
    check_norm(ctx, 2)?;
    if input.rank() != 2 {
        return Err(KernelError::rank(1, input.rank()));
    }
    let many = KernelError::argument(1, "more than 2^31 - 1 pairs of rows");
    let made = pairs(input.size(0)).and_then(|pairs| i32::try_from(pairs).ok());
    let made = [made.ok_or(many)?];
    expect(ctx, &[(0, &made), (3, &made)])?;
    ctx.resize(4, &input.sizes)?;
    expect(ctx, &[(4, &input.sizes)])?;
    plan(input.scalar_type, [within::<f32>, within::<f64>])
}

/// Derivative of one distance with respect to the elements of the first row.
struct Slope<C> {
    norm: Norm<C>,
    /// Gradient of the distance.
    grad: C,
    distance: C,
}

impl<C: Real + Ordered> Slope<C> {
    /// Gradient contribution to an element, from the difference of both elements.
    fn at(&self, difference: C) -> C {
        let (zero, one) = (C::default(), C::count(1));
        let size = difference.abs();
        let sign = if difference > zero {
            one
        } else if difference < zero {
            -one
        } else {
            // The difference is zero or NaN.
            difference
        };
        let is_distinct = self.distance != zero;
        match self.norm {
            Norm::Zero => zero,
            Norm::One => self.grad * sign,
            Norm::Two if is_distinct => self.grad * difference / self.distance,
            // For p below 1, the derivative at a zero difference is infinite.
            Norm::Of(p) if is_distinct && (p > one || difference != zero) => {
                sign * size.pow(p - one) * self.grad / self.distance.pow(p - one)
            }
            Norm::Two | Norm::Of(_) => zero,
            // Only elements whose difference equals the distance affect the maximum norm.
            Norm::Infinity if size == self.distance => self.grad * sign,
            Norm::Infinity => sign * zero,
        }
    }
}

fn between<C: Real + Ordered + Number>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let (grad, a, b, distances) = (ctx.tensor(0)?, ctx.tensor(1)?, ctx.tensor(2)?, ctx.tensor(4)?);
    let norm = Norm::<C>::new(ctx.float(3)?);
    let out = ctx.out(5)?;
    // The other rows depend on the distance, not on the output row; the element index is the same.
    let steps = |info: &TensorInfo, [row, element]: [bool; 2]| {
        let own = info.strides();
        let (rank, missing) = (info.rank(), out.rank() - info.rank());
        let mut steps = Steps { strides: [0; MAX_RANK], base: 0 };
        for (dim, stride) in own.iter().enumerate() {
            let moves = match rank - dim {
                1 => element,
                2 => row,
                _ => info.size(dim) != 1,
            };
            if moves {
                steps.strides[dim + missing] = *stride as isize;
            }
        }
        steps
    };
    let pair = [true, false];
    let walk = Walk::new(
        out.info(),
        &[
            steps(&grad, pair),
            steps(&distances, pair),
            steps(&a, [true, true]),
            steps(&b, [false, true]),
        ],
    );
    let last = |info: &TensorInfo, back: usize| info.strides()[info.rank() - back] as isize;
    let (step_grad, step_distance, step_b) = (last(&grad, 1), last(&distances, 1), last(&b, 2));
    let count = b.size(b.rank() - 2);
    let [grads, made, xs, ys] = [&grad, &distances, &a, &b].map(|t| elements::<C>(t.bytes()));
    let value = |of: &[C], at: isize| {
        usize::try_from(at).ok().and_then(|at| of.get(at)).copied().unwrap_or_default()
    };
    let chunk = (GRAIN / count.max(1)).max(1);
    let [along_grad, along_distance, along_a, along_b] = walk.inner_steps();
    let out = elements_mut::<C>(out.into_bytes());
    for_each_chunk_mut(ctx.parallel(), out, chunk, &|index, out: &mut [C]| {
        let from = index * chunk;
        let to = from + out.len();
        let mut slots = out.iter_mut();
        walk.for_each_run(from, to, &mut |_, [at_grad, at_distance, at_a, at_b], len| {
            for (i, slot) in (0..len as isize).zip(&mut slots) {
                let x = value(xs, at_a + along_a * i);
                let mut total = C::default();
                for other in 0..count as isize {
                    let grad = value(grads, at_grad + along_grad * i + step_grad * other);
                    let distance =
                        value(made, at_distance + along_distance * i + step_distance * other);
                    let y = value(ys, at_b + along_b * i + step_b * other);
                    total = total + Slope { norm, grad, distance }.at(x - y);
                }
                *slot = total;
            }
        });
    });
    Ok(())
}

fn within<C: Real + Ordered + Number>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let (grad, input, distances) = (ctx.tensor(0)?, ctx.tensor(1)?, ctx.tensor(3)?);
    let norm = Norm::<C>::new(ctx.float(2)?);
    let mut out = ctx.out(4)?;
    let (rows, len) = (input.size(0), input.size(1));
    let (from, to) = (input.strides(), out.strides());
    let x = elements::<C>(input.bytes());
    let given = elements::<C>(grad.bytes()).iter().zip(elements::<C>(distances.bytes()));
    let out = elements_mut::<C>(out.bytes_mut());
    out.fill(C::default());
    let pairs = (0..rows).flat_map(|i| (i + 1..rows).map(move |j| [i, j]));
    for ([i, j], (&grad, &distance)) in pairs.zip(given) {
        let slope = Slope { norm, grad, distance };
        for element in 0..len {
            let [one, other] = [i, j]
                .map(|row| x.get(row * from[0] + element * from[1]).copied().unwrap_or_default());
            let part = slope.at(one - other);
            for (row, part) in [(i, part), (j, -part)] {
                if let Some(slot) = out.get_mut(row * to[0] + element * to[1]) {
                    *slot = *slot + part;
                }
            }
        }
    }
    Ok(())
}
