//! Runs of equal values.

use super::order::{copy_element, put_index};
use crate::number::{ComputeType, elements, unsupported, with_number};
use crate::reduce::expect_type;
use crate::table::kernels;
use crate::walk::{Steps, Walk};
use torchlet_core::Param::{Bool, OptionalInt, Out, Tensor};
use torchlet_core::layout::{MAX_RANK, Sizes};
use torchlet_core::rules::normalize_dim;
use torchlet_core::{
    Arguments, Invoke, Kernel, KernelError, Plan, Prepare, ScalarType, TensorInfo, TensorRef,
};

kernels! {
    /// `aten::unique_consecutive.out(self, return_inverse, return_counts, dim, out0, out1, out2)`: one of each run of equal
    /// values (or slices along `dim`), the number of the run of each, and the lengths of the runs.
    UNIQUE_CONSECUTIVE_OUT = Kernel::new(
        "aten::unique_consecutive.out",
        &[Tensor, Bool, Bool, OptionalInt, Out, Out, Out],
        prepare,
    );
}

fn dim(args: &Arguments) -> Result<Option<usize>, KernelError> {
    let rank = args.info(0)?.rank();
    let what = "not a dimension of the tensor";
    let wrong = KernelError::argument(3, what);
    args.optional_int(3)?.map(|dim| normalize_dim(dim, rank).ok_or(wrong)).transpose()
}

fn prepare(ctx: &mut Prepare) -> Result<Plan, KernelError> {
    let input = ctx.info(0)?;
    ComputeType::of(input.scalar_type).ok_or(unsupported(0, input.scalar_type))?;
    let dim = dim(ctx)?;
    expect_type(ctx, 4, input.scalar_type)?;
    expect_type(ctx, 5, ScalarType::Long)?;
    expect_type(ctx, 6, ScalarType::Long)?;
    let ranks = [
        (4, if dim.is_some() { input.rank() } else { 1 }),
        (5, if ctx.bool(1)? && dim.is_none() { input.rank() } else { 1 }),
        (6, 1),
    ];
    for (arg, rank) in ranks {
        let found = ctx.info(arg)?.rank();
        if found != rank {
            return Err(KernelError::rank(arg, found));
        }
    }
    Ok(Plan::new(invoke))
}

/// Whether two elements are equal; NaN is not, not even to itself.
fn equal(tensor: &TensorRef, a: isize, b: isize) -> bool {
    with_number!(tensor.scalar_type, |T| {
        let data = elements::<T>(tensor.bytes());
        let at = |at: isize| usize::try_from(at).ok().and_then(|at| data.get(at));
        at(a) == at(b)
    }, else false)
}

/// The slices that are compared: how many, and the elements of each.
struct Slices {
    count: usize,
    /// From one slice to the next; with no dimension given, each element is a slice, in the order of the indices.
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

    /// Calls `visit(slice, whether it differs from the one before)` for all.
    fn for_each(&self, tensor: &TensorRef, visit: &mut dyn FnMut(isize, bool)) {
        let ([step], [inner]) = (self.along.inner_steps(), self.within.inner_steps());
        let mut before: Option<isize> = None;
        self.along.for_each_run(0, self.count, &mut |_, [at], len| {
            for i in 0..len as isize {
                let slice = at.wrapping_add(step.wrapping_mul(i));
                let mut differs = before.is_none();
                if let Some(before) = before {
                    self.within.for_each_run(0, self.within.numel(), &mut |_, [offset], len| {
                        for j in 0..len as isize {
                            let offset = offset.wrapping_add(inner.wrapping_mul(j));
                            let (a, b) = (before.wrapping_add(offset), slice.wrapping_add(offset));
                            differs = differs || !equal(tensor, a, b);
                        }
                    });
                }
                visit(slice, differs);
                before = Some(slice);
            }
        });
    }
}

fn invoke(ctx: &mut Invoke) -> Result<(), KernelError> {
    let input = ctx.tensor(0)?;
    let (inverse, counts, dim) = (ctx.bool(1)?, ctx.bool(2)?, dim(ctx)?);
    let what = "its shape is too large";
    let slices = Slices::new(input.info(), dim).ok_or(KernelError::argument(0, what))?;
    let mut runs = 0usize;
    slices.for_each(&input, &mut |_, differs| runs += usize::from(differs));
    let large = |_| KernelError::unsupported("more results than fit");
    let runs = i32::try_from(runs).map_err(large)?;
    let all = i32::try_from(slices.count).map_err(large)?;
    let mut sizes = input.sizes.clone();
    match dim {
        Some(dim) => {
            if let Some(size) = sizes.get_mut(dim) {
                *size = runs;
            }
            ctx.resize(4, &sizes)?;
        }
        None => ctx.resize(4, &[runs])?,
    }
    match (inverse, dim) {
        (true, None) => ctx.resize(5, &input.sizes)?,
        (true, Some(_)) => ctx.resize(5, &[all])?,
        (false, _) => ctx.resize(5, &[0])?,
    }
    ctx.resize(6, &[if counts { runs } else { 0 }])?;

    let (mut values, mut places, mut lengths) = (ctx.out(4)?, ctx.out(5)?, ctx.out(6)?);
    // Steps through the values: along the dimension, and within a slice.
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
    let info = info.ok_or(KernelError::argument(0, what))?;
    let copy = Walk::new(&info, &[source, within]);
    let [from_step, to_step] = copy.inner_steps();
    // The inverse lies as the input's indices count, whatever its memory order.
    let order = Walk::broadcast(
        &TensorInfo::contiguous(ScalarType::Byte, &places.sizes).unwrap_or(info.clone()),
        [places.info()],
    )?;
    let (mut run, mut length) = (-1isize, 0i64);
    let mut numbers = 0;
    slices.for_each(&input, &mut |slice, differs| {
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
        order.for_each_run(numbers, numbers + 1, &mut |_, [at], _| {
            put_index(&mut places, at, run as i64);
        });
        numbers += 1;
    });
    if run >= 0 {
        put_index(&mut lengths, run, length);
    }
    Ok(())
}
