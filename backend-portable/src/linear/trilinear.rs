//! `_trilinear`: the sum over products of three tensors.

use super::Ring;
use crate::number::{ComputeType, load, store, unsupported};
use crate::shape::{bad, contiguous, same_type};
use crate::table::kernels;
use torchlet_core::Param::{Int, IntList, Out, Tensor};
use torchlet_core::layout::{MAX_RANK, Sizes, checked_numel};
use torchlet_core::rules::{DimSet, View, broadcast_all};
use torchlet_core::{Arguments, Invoke, Kernel, KernelError, Plan, Prepare};

kernels! { TRILINEAR:
    /// `aten::_trilinear.out(i1, i2, i3, expand1, expand2, expand3, sumdim, unroll_dim, out)`:
    /// unsqueezes the tensors at the listed dims, multiplies them with broadcasting, and sums
    /// over `sumdim`. `unroll_dim` only affects how PyTorch splits the work.
    TRILINEAR_OUT = Kernel::new(
        "aten::_trilinear.out",
        &[Tensor, Tensor, Tensor, IntList, IntList, IntList, IntList, Int, Out],
        prepare,
    );
}

/// The unsqueezed tensors, their broadcast sizes, and the summed dims.
fn operands(args: &Arguments) -> Result<([View; 3], Sizes, DimSet), KernelError> {
    let view = |arg: usize| {
        let mut view = View::of(&args.info(arg)?).ok_or(bad(arg, "shape is too large"))?;
        let added = args.ints(3 + arg)?;
        let rank = view.rank() + added.len();
        // The lists name dims of the result, in any order. Inserting them in ascending order
        // puts each at its final index.
        let added = DimSet::of(&added, rank).filter(|_| rank <= MAX_RANK);
        let added = added.ok_or(bad(3 + arg, "expected distinct dims of the result"))?;
        for dim in (0..rank).filter(|dim| added.contains(*dim)) {
            view = view
                .unsqueeze(dim as i64)
                .ok_or(bad(arg, "more dims than the highest supported rank"))?;
        }
        Ok(view)
    };
    let views = [view(0)?, view(1)?, view(2)?];
    let rank = views[0].rank();
    if views.iter().any(|view| view.rank() != rank) {
        return Err(bad(4, "the tensors differ in rank after expansion"));
    }
    let sizes = broadcast_all(views.iter().map(|view| view.sizes().as_slice()));
    let sizes = sizes.ok_or(bad(1, "input shapes do not broadcast"))?;
    checked_numel(&sizes).ok_or(bad(0, "the broadcast shape is too large"))?;
    let summed = DimSet::of(&args.ints(6)?, rank);
    let summed = summed.ok_or(bad(6, "expected distinct dims of the result"))?;
    Ok((views, sizes, summed))
}

fn prepare(ctx: &mut Prepare) -> Result<Plan, KernelError> {
    let (_, sizes, summed) = operands(ctx)?;
    let mut kept = Sizes::new();
    for (dim, size) in sizes.iter().enumerate() {
        if !summed.contains(dim) {
            // Cannot fail: `sizes` has the same capacity.
            let _ = kept.push(*size);
        }
    }
    ctx.resize(8, &kept)?;
    for arg in [1, 2, 8] {
        same_type(ctx, 0, arg)?;
    }
    let out = ctx.info(8)?;
    contiguous(8, &out)?;
    Ok(Plan::new(match ComputeType::of(out.scalar_type) {
        Some(ComputeType::F32) => run::<f32>,
        Some(ComputeType::F64) => run::<f64>,
        Some(ComputeType::I64) => run::<i64>,
        None => return Err(unsupported(0, out.scalar_type)),
    }))
}

/// Loop over some dims of the three tensors.
#[derive(Clone, Default)]
struct Odometer {
    sizes: heapless::Vec<usize, MAX_RANK>,
    steps: heapless::Vec<[isize; 3], MAX_RANK>,
}

impl Odometer {
    fn count(&self) -> usize {
        self.sizes.iter().product()
    }

    /// Offsets of the tensors at iteration `position`, starting from `offsets`.
    fn at(&self, mut position: usize, mut offsets: [isize; 3]) -> [isize; 3] {
        for (size, steps) in self.sizes.iter().zip(&self.steps).rev() {
            let index = (position % size.max(&1)) as isize;
            position /= size.max(&1);
            for (offset, step) in offsets.iter_mut().zip(steps) {
                *offset = offset.wrapping_add(step.wrapping_mul(index));
            }
        }
        offsets
    }
}

fn run<C: Ring>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let (views, sizes, summed) = operands(ctx)?;
    let (mut kept, mut inner) = (Odometer::default(), Odometer::default());
    for (dim, &size) in sizes.iter().enumerate() {
        let walk = if summed.contains(dim) { &mut inner } else { &mut kept };
        let steps = core::array::from_fn(|i| {
            let view: &View = &views[i];
            let one = view.sizes().get(dim) == Some(&1);
            if one { 0 } else { view.strides().get(dim).copied().unwrap_or(0) }
        });
        // Cannot fail: `sizes` has the same capacity.
        let _ = walk.sizes.push(usize::try_from(size).unwrap_or(0));
        let _ = walk.steps.push(steps);
    }
    let tensors = [ctx.tensor(0)?, ctx.tensor(1)?, ctx.tensor(2)?];
    let out = ctx.out(8)?;
    let scalar_type = out.scalar_type;
    let size = scalar_type.size();
    let starts = core::array::from_fn(|i| views[i].base());
    let element = |tensor: usize, at: isize| {
        let mut value = [C::default()];
        load(scalar_type, tensors[tensor].bytes(), at, 0, &mut value);
        value[0]
    };
    let out = out.into_bytes();
    let parallel = ctx.parallel();
    let work = inner.count().max(1);
    let chunk = (4096 / work).max(1);
    crate::compute::split::for_each_chunk_mut(
        parallel,
        out,
        chunk * size,
        &|index, out: &mut [u8]| {
            for (number, out) in out.chunks_exact_mut(size).enumerate() {
                let offsets = kept.at(index * chunk + number, starts);
                let mut sum = C::default();
                for position in 0..inner.count() {
                    let [a, b, c] = inner.at(position, offsets);
                    let product = C::default().mul_add(element(0, a), element(1, b));
                    sum = sum.mul_add(product, element(2, c));
                }
                store(scalar_type, out, &[sum]);
            }
        },
    );
    Ok(())
}
