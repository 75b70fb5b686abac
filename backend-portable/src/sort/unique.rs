//! Runs of equal values or slices: `unique_consecutive`, and `unique_dim`, which sorts the slices
//! first.

use super::keys::compare;
use super::order::{copy_element, put_index};
use crate::number::{ComputeType, elements, unsupported, with_number};
use crate::reduce::expect_type;
use crate::scratch;
use crate::table::kernels;
use crate::walk::{Steps, Walk};
use core::cmp::Ordering;
use torchlet_core::Param::{Bool, Int, OptionalInt, Out, Tensor};
use torchlet_core::layout::{MAX_RANK, Sizes};
use torchlet_core::rules::normalize_dim;
use torchlet_core::{
    Arguments, Invoke, Kernel, KernelError, Plan, Prepare, ScalarType, TensorInfo, TensorRef,
};

kernels! {
    /// `aten::unique_consecutive.out(self, return_inverse, return_counts, dim, out0, out1, out2)`:
    /// the first of each run of equal values (or slices over `dim`), the run index of each value,
    /// and the lengths of the runs.
    UNIQUE_CONSECUTIVE_OUT = Kernel::new(
        "aten::unique_consecutive.out",
        &[Tensor, Bool, Bool, OptionalInt, Out, Out, Out],
        |ctx| { prepare(ctx, Call::consecutive(ctx)?)?; Ok(Plan::new(invoke_consecutive)) },
    );
    /// `aten::unique_dim.out(self, dim, sorted, return_inverse, return_counts, out0, out1, out2)`:
    /// the distinct slices over `dim`, sorted lexicographically, with the same outputs as
    /// [`UNIQUE_CONSECUTIVE_OUT`]. All outputs are always computed, as in PyTorch, from whose
    /// results the exporter plans the shapes.
    UNIQUE_DIM_OUT = Kernel::new(
        "aten::unique_dim.out",
        &[Tensor, Int, Bool, Bool, Bool, Out, Out, Out],
        |ctx| {
            let call = Call::sorted(ctx)?;
            prepare(ctx, call)?;
            let slices = call.dim.map_or(0, |dim| ctx.info(0).map_or(0, |input| input.size(dim)));
            Ok(Plan::new(invoke_sorted).with_scratch(scratch::bytes_for(slices, size_of::<u32>())?))
        },
    );
}

/// Requested outputs, and the argument index of the first.
#[derive(Debug, Clone, Copy)]
struct Call {
    inverse: bool,
    counts: bool,
    dim: Option<usize>,
    out: usize,
}

impl Call {
    fn consecutive(args: &Arguments) -> Result<Self, KernelError> {
        let dim = args.optional_int(3)?.map(|dim| Self::dim(args, dim, 3)).transpose()?;
        Ok(Call { inverse: args.bool(1)?, counts: args.bool(2)?, dim, out: 4 })
    }

    fn sorted(args: &Arguments) -> Result<Self, KernelError> {
        let dim = Some(Self::dim(args, args.int(1)?, 1)?);
        Ok(Call { inverse: true, counts: true, dim, out: 5 })
    }

    fn dim(args: &Arguments, dim: i64, arg: usize) -> Result<usize, KernelError> {
        let what = "dim is out of range for the input";
        normalize_dim(dim, args.info(0)?.rank()).ok_or(KernelError::argument(arg, what))
    }
}

fn prepare(ctx: &Prepare, Call { inverse, dim, out, .. }: Call) -> Result<(), KernelError> {
    let input = ctx.info(0)?;
    ComputeType::of(input.scalar_type).ok_or(unsupported(0, input.scalar_type))?;
    expect_type(ctx, out, input.scalar_type)?;
    expect_type(ctx, out + 1, ScalarType::Long)?;
    expect_type(ctx, out + 2, ScalarType::Long)?;
    let ranks = [
        (out, if dim.is_some() { input.rank() } else { 1 }),
        (out + 1, if inverse && dim.is_none() { input.rank() } else { 1 }),
        (out + 2, 1),
    ];
    for (arg, rank) in ranks {
        let found = ctx.info(arg)?.rank();
        if found != rank {
            return Err(KernelError::rank(arg, found));
        }
    }
    Ok(())
}

/// Whether two elements are equal; NaN is unequal to everything, including itself.
fn equal(tensor: &TensorRef, a: isize, b: isize) -> bool {
    with_number!(tensor.scalar_type, |T| {
        let data = elements::<T>(tensor.bytes());
        let at = |at: isize| usize::try_from(at).ok().and_then(|at| data.get(at));
        at(a) == at(b)
    }, else false)
}

/// The slices that are compared: their number, and the elements of each.
struct Slices {
    count: usize,
    /// Walk from slice to slice. Without a dim, each element is a slice, in row-major order.
    along: Walk<1>,
    within: Walk<1>,
}

impl Slices {
    fn new(input: &TensorInfo, dim: Option<usize>) -> Option<Self> {
        let mut across = Sizes::new();
        let mut steps = [Steps { strides: [0; MAX_RANK], base: 0 }; 2];
        let mut along = Sizes::new();
        for (d, (&size, &stride)) in input.sizes.iter().zip(&input.strides()).enumerate() {
            let (sizes, steps) = if dim.is_none_or(|dim| dim == d) {
                (&mut along, &mut steps[0])
            } else {
                (&mut across, &mut steps[1])
            };
            *steps.strides.get_mut(sizes.len())? = isize::try_from(stride).ok()?;
            sizes.push(size).ok()?;
        }
        let info = |sizes: &[i32]| TensorInfo::contiguous(ScalarType::Byte, sizes);
        let (along, within) =
            (Walk::new(&info(&along)?, &[steps[0]]), Walk::new(&info(&across)?, &[steps[1]]));
        Some(Slices { count: along.numel(), along, within })
    }

    /// Calls `visit(index, position, whether the slice differs from the one before)` for all
    /// slices, in the given order or in index order.
    fn for_each(
        &self,
        tensor: &TensorRef,
        order: Option<&[u32]>,
        visit: &mut dyn FnMut(usize, isize, bool),
    ) {
        let [step] = self.along.inner_steps();
        let mut before: Option<isize> = None;
        let mut next = |number: usize, slice: isize| {
            let differs = before
                .is_none_or(|before| !self.all(before, slice, &mut |a, b| equal(tensor, a, b)));
            visit(number, slice, differs);
            before = Some(slice);
        };
        if let Some(order) = order {
            // With an order, the slices extend over a single dim.
            for &number in order {
                next(number as usize, step.wrapping_mul(number as isize));
            }
            return;
        }
        let mut number = 0;
        self.along.for_each_run(0, self.count, &mut |_, [at], len| {
            for i in 0..len as isize {
                next(number, at.wrapping_add(step.wrapping_mul(i)));
                number += 1;
            }
        });
    }

    /// Whether `holds` is true for all pairs of corresponding elements of two slices. Not called
    /// any more after it returned false.
    fn all(&self, a: isize, b: isize, holds: &mut dyn FnMut(isize, isize) -> bool) -> bool {
        let ([inner], mut all) = (self.within.inner_steps(), true);
        self.within.for_each_run(0, self.within.numel(), &mut |_, [offset], len| {
            for j in 0..len as isize {
                let offset = offset.wrapping_add(inner.wrapping_mul(j));
                all = all && holds(a.wrapping_add(offset), b.wrapping_add(offset));
            }
        });
        all
    }

    /// Sorts the indices of slices over one dim; the sort is stable.
    fn sort(&self, tensor: &TensorRef, order: &mut [u32]) {
        let [step] = self.along.inner_steps();
        for (number, slot) in order.iter_mut().enumerate() {
            *slot = number as u32;
        }
        order.sort_unstable_by(|&a, &b| {
            let [first, second] = [a, b].map(|number| step.wrapping_mul(number as isize));
            let mut found = Ordering::Equal;
            self.all(first, second, &mut |a, b| {
                found = compare(tensor, a, b);
                found.is_eq()
            });
            found.then(a.cmp(&b))
        });
    }
}

fn invoke_consecutive(ctx: &mut Invoke) -> Result<(), KernelError> {
    let call = Call::consecutive(ctx)?;
    let slices = slices(ctx, call)?;
    runs(ctx, call, &slices, None)
}

fn invoke_sorted(ctx: &mut Invoke) -> Result<(), KernelError> {
    let call = Call::sorted(ctx)?;
    let slices = slices(ctx, call)?;
    let order = scratch::take::<u32>(ctx, slices.count)?;
    slices.sort(&ctx.tensor(0)?, order);
    runs(ctx, call, &slices, Some(order))
}

fn slices(ctx: &Invoke, call: Call) -> Result<Slices, KernelError> {
    let large = KernelError::argument(0, TOO_LARGE);
    Slices::new(&ctx.info(0)?, call.dim)
        .filter(|slices| u32::try_from(slices.count).is_ok())
        .ok_or(large)
}

const TOO_LARGE: &str = "shape is too large";

/// Writes the first slice of each run of equal slices. The slices are visited in the given order.
fn runs(
    ctx: &mut Invoke,
    Call { inverse, counts, dim, out: first }: Call,
    slices: &Slices,
    order: Option<&[u32]>,
) -> Result<(), KernelError> {
    let input = ctx.tensor(0)?;
    let mut runs = 0usize;
    slices.for_each(&input, order, &mut |_, _, differs| runs += usize::from(differs));
    let large = |_| KernelError::unsupported("more than 2^31 - 1 distinct values");
    let runs = i32::try_from(runs).map_err(large)?;
    let all = i32::try_from(slices.count).map_err(large)?;
    let mut sizes = input.sizes.clone();
    match dim {
        Some(dim) => {
            if let Some(size) = sizes.get_mut(dim) {
                *size = runs;
            }
            ctx.resize(first, &sizes)?;
        }
        None => ctx.resize(first, &[runs])?,
    }
    match (inverse, dim) {
        (true, None) => ctx.resize(first + 1, &input.sizes)?,
        (true, Some(_)) => ctx.resize(first + 1, &[all])?,
        (false, _) => ctx.resize(first + 1, &[0])?,
    }
    ctx.resize(first + 2, &[if counts { runs } else { 0 }])?;

    let (mut values, mut inverse_out, mut lengths) =
        (ctx.out(first)?, ctx.out(first + 1)?, ctx.out(first + 2)?);
    // Strides of the output values: over the dim, and within a slice.
    let out = values.info().clone();
    let along = dim.and_then(|dim| out.strides().get(dim).copied()).unwrap_or(1) as isize;
    let mut within = Steps { strides: [0; MAX_RANK], base: 0 };
    let mut kept = Sizes::new();
    let mut source = within;
    if let Some(dim) = dim {
        let strides = (out.strides(), input.strides());
        for d in (0..input.rank()).filter(|&d| d != dim) {
            within.strides[kept.len()] = strides.0[d] as isize;
            source.strides[kept.len()] = strides.1[d] as isize;
            let _ = kept.push(input.sizes[d]);
        }
    }
    let info = TensorInfo::contiguous(ScalarType::Byte, &kept);
    let info = info.ok_or(KernelError::argument(0, TOO_LARGE))?;
    let copy = Walk::new(&info, &[source, within]);
    let [from_step, to_step] = copy.inner_steps();
    // The inverse is indexed in row-major order, whatever its memory order.
    let by_number = Walk::broadcast(
        &TensorInfo::contiguous(ScalarType::Byte, &inverse_out.sizes).unwrap_or(info.clone()),
        [inverse_out.info()],
    )?;
    let (mut run, mut length) = (-1isize, 0i64);
    slices.for_each(&input, order, &mut |number, slice, differs| {
        if differs {
            if run >= 0 {
                put_index(&mut lengths, run, length);
            }
            (run, length) = (run + 1, 0);
            copy.for_each_run(0, copy.numel(), &mut |_, [from, to], len| {
                for i in 0..len as isize {
                    let from = slice.wrapping_add(from).wrapping_add(from_step.wrapping_mul(i));
                    let to = to.wrapping_add(to_step.wrapping_mul(i));
                    let to = to.wrapping_add(along.wrapping_mul(run));
                    copy_element(&input, from, &mut values, to);
                }
            });
        }
        length += 1;
        by_number.for_each_run(number, number + 1, &mut |_, [at], _| {
            put_index(&mut inverse_out, at, run as i64);
        });
    });
    if run >= 0 {
        put_index(&mut lengths, run, length);
    }
    Ok(())
}
