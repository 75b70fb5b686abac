//! Binary search in sorted sequences: `bucketize`, `searchsorted`.

use crate::compute::split::for_each_chunk_mut;
use crate::elementwise::{ByCompute, by_compute};
use crate::number::{Compute, ComputeType, load, round_through, store, unsupported};
use crate::table::kernels;
use crate::walk::Walk;
use torchlet_core::Param::{Bool, OptionalString, OptionalTensor, Out, Scalar, Tensor};
use torchlet_core::rules::{Operand, result_type};
use torchlet_core::{Arguments, Invoke, Kernel, KernelError, Plan, Prepare, ScalarType, TensorRef};

kernels! {
    /// `aten::bucketize.Tensor_out(self, boundaries, out_int32, right, out)`: the number of
    /// boundaries that are less than each value, or, with `right`, less than or equal to it.
    BUCKETIZE_OUT = Kernel::new(
        "aten::bucketize.Tensor_out",
        &[Tensor, Tensor, Bool, Bool, Out],
        |ctx| {
            let (values, boundaries) = (ctx.info(0)?, ctx.info(1)?);
            if boundaries.rank() != 1 {
                return Err(KernelError::rank(1, boundaries.rank()));
            }
            prepare(ctx, BUCKETIZE, &values.sizes, Operand::from(&values), by_compute!(bucketize))
        },
    );
    /// `aten::searchsorted.Tensor_out(sorted_sequence, self, out_int32, right, side, sorter, out)`:
    /// like [`BUCKETIZE_OUT`], for rows of values: each has its own row of the sequence, or all use
    /// one. `sorter` holds the indices that sort the sequence.
    SEARCHSORTED_TENSOR_OUT = Kernel::new(
        "aten::searchsorted.Tensor_out",
        &[Tensor, Tensor, Bool, Bool, OptionalString, OptionalTensor, Out],
        |ctx| {
            let (sequence, values) = (ctx.info(0)?, ctx.info(1)?);
            let rank = sequence.rank();
            let alike = || {
                rank == values.rank() && sequence.sizes[..rank - 1] == values.sizes[..rank - 1]
            };
            if rank == 0 || rank > 1 && !alike() {
                return Err(KernelError::argument(1, "values: expected the shape of the sequence, \
                                                     except in the last dim"));
            }
            let sizes = values.sizes.clone();
            prepare(ctx, SEARCH, &sizes, Operand::from(&values), by_compute!(searchsorted))
        },
    );
    /// `aten::searchsorted.Scalar_out(sorted_sequence, self, out_int32, right, side, sorter, out)`:
    /// like [`SEARCHSORTED_TENSOR_OUT`], for a scalar.
    SEARCHSORTED_SCALAR_OUT = Kernel::new(
        "aten::searchsorted.Scalar_out",
        &[Tensor, Scalar, Bool, Bool, OptionalString, OptionalTensor, Out],
        |ctx| {
            let rank = ctx.info(0)?.rank();
            if rank != 1 {
                return Err(KernelError::rank(0, rank));
            }
            let value = Operand::from(ctx.scalar(1)?);
            prepare(ctx, SEARCH, &[], value, by_compute!(searchsorted))
        },
    );
}

/// Minimum number of searches per thread.
const GRAIN: usize = 1 << 10;

/// Argument indices of an operator. `out_int32` is argument 2, `right` argument 3.
#[derive(Clone, Copy)]
struct Call {
    sequence: usize,
    values: usize,
    /// Argument index of `side`; the sorter follows.
    side: Option<usize>,
    out: usize,
}

const BUCKETIZE: Call = Call { sequence: 1, values: 0, side: None, out: 4 };
const SEARCH: Call = Call { sequence: 0, values: 1, side: Some(4), out: 6 };

impl Call {
    /// Whether the insertion point is after equal values.
    fn inserts_right(self, args: &Arguments) -> Result<bool, KernelError> {
        let Some(arg) = self.side else { return args.bool(3) };
        match args.optional_string(arg)? {
            None => args.bool(3),
            Some("right") => Ok(true),
            Some("left") if !args.bool(3)? => Ok(false),
            Some(_) => {
                let what = "side: expected 'left' or 'right', consistent with argument 3 (`right`)";
                Err(KernelError::argument(arg, what))
            }
        }
    }
}

/// Resizes the output and selects the compute type of the comparisons, from the common dtype of
/// sequence and values.
fn prepare(
    ctx: &mut Prepare,
    call: Call,
    sizes: &[i32],
    value: Operand,
    functions: ByCompute,
) -> Result<Plan, KernelError> {
    let sequence = ctx.info(call.sequence)?;
    for arg in [call.sequence, call.values] {
        // Argument `values` may be a scalar.
        if let Ok(info) = ctx.info(arg) {
            ComputeType::of(info.scalar_type).ok_or(unsupported(arg, info.scalar_type))?;
        }
    }
    call.inserts_right(ctx)?;
    if let Some(arg) = call.side.map(|side| side + 1)
        && let Some(sorter) = ctx.optional_info(arg)?
    {
        if sorter.scalar_type != ScalarType::Long {
            return Err(unsupported(arg, sorter.scalar_type));
        }
        if !sorter.same_layout_as(&sequence) {
            return Err(KernelError::layout(arg));
        }
    }
    ctx.resize(call.out, sizes)?;
    let found = ctx.info(call.out)?.scalar_type;
    if found != if ctx.bool(2)? { ScalarType::Int } else { ScalarType::Long } {
        return Err(unsupported(call.out, found));
    }
    let common = result_type([Operand::from(&sequence), value]).and_then(ComputeType::of);
    let compute = common.ok_or(unsupported(call.sequence, sequence.scalar_type))?;
    Ok(Plan::new(functions.choose(compute)))
}

fn read<C: Compute>(tensor: &TensorRef, at: isize) -> C {
    let mut value = [C::default()];
    load(tensor.scalar_type, tensor.bytes(), at, 1, &mut value);
    value[0]
}

/// Index of the first boundary that is not less than the value, or, with `right`, of the first that
/// is greater. NaN is greater than all other values.
fn first_not_below<C: Compute>(
    count: usize,
    right: bool,
    value: C,
    boundary: &dyn Fn(usize) -> C,
) -> usize {
    let (mut start, mut end) = (0, count);
    while start < end {
        let middle = start + (end - start) / 2;
        let boundary = boundary(middle);
        let stops = if right { boundary > value } else { boundary >= value };
        if stops { end = middle } else { start = middle + 1 }
    }
    start
}

/// A row of the sorted sequence that is searched.
struct Row<'r, 'c> {
    sequence: &'r TensorRef<'c>,
    sorter: Option<&'r TensorRef<'c>>,
    start: isize,
    step: isize,
    len: usize,
}

impl Row<'_, '_> {
    /// Returns the value at an index in sorted order.
    fn at<C: Compute>(&self, index: usize) -> C {
        let at = |i: isize| self.start.wrapping_add(self.step.wrapping_mul(i));
        let mut from = index as isize;
        if let Some(sorter) = self.sorter {
            from = read::<i64>(sorter, at(from)) as isize;
        }
        if usize::try_from(from).is_ok_and(|from| from < self.len) {
            read(self.sequence, at(from))
        } else {
            C::default()
        }
    }
}

fn bucketize<C: Compute>(ctx: &mut Invoke) -> Result<(), KernelError> {
    search::<C>(ctx, BUCKETIZE)
}

fn searchsorted<C: Compute>(ctx: &mut Invoke) -> Result<(), KernelError> {
    search::<C>(ctx, SEARCH)
}

fn search<C: Compute>(ctx: &mut Invoke, call: Call) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let sequence = ctx.tensor(call.sequence)?;
    let right = call.inserts_right(ctx)?;
    let sorter = match call.side {
        Some(side) => ctx.optional_tensor(side + 1)?,
        None => None,
    };
    let last = sequence.rank().saturating_sub(1);
    if let Some(sorter) = &sorter {
        let inside = |at: &i64| usize::try_from(*at).is_ok_and(|at| at < sequence.size(last));
        if !sorter.data::<i64>()?.iter().all(inside) {
            return Err(KernelError::argument(
                5,
                "sorter: an index lies outside its row of the sequence",
            ));
        }
    }
    // A scalar is rounded to its common dtype with the sequence.
    let number = ctx.scalar(call.values).ok().map(|number| {
        let mut value = [C::of_scalar(number)];
        if let Some(common) = result_type([Operand::from(sequence.info()), number.into()]) {
            round_through(common, &mut value);
        }
        value[0]
    });
    let values = if number.is_some() { None } else { Some(ctx.tensor(call.values)?) };
    let out = ctx.out(call.out)?;
    let (scalar_type, size) = (out.scalar_type, out.scalar_type.size());
    let info = out.info().clone();
    let strides = sequence.strides();
    let step = strides.get(last).map_or(1, |&stride| stride as isize);
    let own = |at: usize| if at < last { strides.get(at).map_or(0, |&s| s as isize) } else { 0 };
    let of_values = values.as_ref().map(|values| values.strides());
    let value_steps = |at: usize| {
        of_values.as_ref().and_then(|all| all.get(at)).map_or(0, |&stride| stride as isize)
    };
    let walk = Walk::new(&info, &[crate::index::steps(own), crate::index::steps(value_steps)]);
    let steps = walk.inner_steps();
    let (parallel, bytes) = (ctx.parallel(), out.into_bytes());
    for_each_chunk_mut(parallel, bytes, GRAIN * size, &|index, bytes: &mut [u8]| {
        let from = index * GRAIN;
        let to = from + bytes.len() / size;
        let mut slots = bytes.chunks_exact_mut(size);
        walk.for_each_run(from, to, &mut |_, at, len| {
            for (i, slot) in (0..len as isize).zip(&mut slots) {
                let start = at[0].wrapping_add(steps[0].wrapping_mul(i));
                let row = Row {
                    sequence: &sequence,
                    sorter: sorter.as_ref(),
                    start,
                    step,
                    len: sequence.size(last),
                };
                let value: C = match (&values, number) {
                    (Some(values), _) => read(values, at[1].wrapping_add(steps[1].wrapping_mul(i))),
                    (None, number) => number.unwrap_or_default(),
                };
                let found = first_not_below(row.len, right, value, &|index| row.at(index));
                store(scalar_type, slot, &[found as i64]);
            }
        });
    });
    Ok(())
}
