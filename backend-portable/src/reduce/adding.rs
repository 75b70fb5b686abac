//! Sums in PyTorch's order of summation ([`cascade`](super::cascade)): the loop of the sum and mean
//! kernels.

use super::cascade::{
    Accumulation, LANES, MAX_PARALLEL, MergedDim, add_all, in_fours, lanes_of, sum_columns, sum_run,
};
use super::engine::{Geometry, Order, Source, Take, spread};
use super::{Form, store_states};
use crate::elementwise::Arithmetic;
use crate::number::Compute;
use torchlet_core::rules::DimSet;
use torchlet_core::{Invoke, KernelError, Parallel, Serial, TensorInfo, TensorRef};

/// Sums argument 0 into output `out`.
pub(super) fn sums<C: Arithmetic, D: Compute>(
    ctx: &mut Invoke,
    form: Form,
    out: usize,
    finish: impl Fn(C) -> D + Sync,
) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let input = ctx.tensor(0)?;
    let dims = form.dims(ctx, input.rank())?;
    let out = ctx.out(out)?;
    let info = out.info().clone();
    sums_of_tensor(ctx.parallel(), &input, dims, (&info, out.into_bytes()), finish);
    Ok(())
}

/// Sums a tensor into an output of the reduced shape.
pub(super) fn sums_of_tensor<C: Arithmetic, D: Compute>(
    parallel: &dyn Parallel,
    input: &TensorRef,
    dims: DimSet,
    (info, bytes): (&TensorInfo, &mut [u8]),
    finish: impl Fn(C) -> D + Sync,
) {
    let geometry = Geometry::new(input.info(), dims, info, Order::Memory);
    let scalar_type = info.scalar_type;
    let (source, accumulation) = (Source::new(input), accumulation::<C>(&geometry));
    let write = |states: &[C], [bytes]: [&mut [u8]; 1]| {
        store_states(scalar_type, states, bytes, &finish);
    };
    let outs = ([bytes], [scalar_type.size()]);
    spread(parallel, &geometry, outs, &write, &|parallel, range, take| {
        each_sum(parallel, &source, &geometry, accumulation, range, take);
    });
}

fn accumulation<C>(geometry: &Geometry) -> Accumulation {
    let innermost = |walk: &crate::walk::Walk<1>| {
        let ([step], (sizes, _, _)) = (walk.inner_steps(), walk.levels());
        MergedDim { size: sizes.last().copied().unwrap_or(1), step }
    };
    let (summands, results) = (innermost(&geometry.elements), innermost(&geometry.results));
    Accumulation::of::<C>(summands, results, geometry.elements.levels().0.len() > 1)
}

/// Computes the sums for results `from..to`.
fn each_sum<C: Arithmetic>(
    parallel: &dyn Parallel,
    source: &Source<C>,
    geometry: &Geometry,
    accumulation: Accumulation,
    (from, to): (usize, usize),
    take: Take<C>,
) {
    let [step] = geometry.results.inner_steps();
    geometry.results.for_each_run(from, to, &mut |first, [at], len| {
        let mut done = 0;
        while done < len {
            let base = at.wrapping_add(step.wrapping_mul(done as isize));
            let (result, left) = (first + done, len - done);
            done += match accumulation {
                Accumulation::Columns(columns) => {
                    let (is_single, alike) = columns.run_from(result);
                    let max_columns = if is_single { TOGETHER } else { LANES };
                    let together = alike.min(left).clamp(1, max_columns);
                    let sums = side_by_side(source, geometry, is_single, (base, step), together);
                    take(result, &sums[..together]);
                    together
                }
                Accumulation::Vectors | Accumulation::Fours => {
                    let mut sums = [C::default(); MAX_PARALLEL];
                    let sums = &mut sums[..left.min(MAX_PARALLEL)];
                    for (i, sum) in sums.iter_mut().enumerate() {
                        let base = base.wrapping_add(step.wrapping_mul(i as isize));
                        *sum = one(parallel, source, geometry, accumulation, base);
                    }
                    take(result, sums);
                    sums.len()
                }
            };
        }
    });
}

/// Maximum number of columns that are summed together, row by row. Their sums are on the stack,
/// which is small on microcontrollers.
const TOGETHER: usize = if cfg!(feature = "std") { 128 } else { MAX_PARALLEL };

/// Sums up to [`TOGETHER`] (or [`LANES`]) adjacent columns; the first is at `base`, and rows have
/// the stride `step`.
fn side_by_side<C: Arithmetic>(
    source: &Source<C>,
    geometry: &Geometry,
    is_single: bool,
    (base, step): (isize, isize),
    columns: usize,
) -> [C; TOGETHER] {
    let [stride] = geometry.elements.inner_steps();
    let add = |row: usize, sums: &mut [C]| {
        source.add_to(sums, base.wrapping_add(stride.wrapping_mul(row as isize)), step);
    };
    let rows = geometry.count();
    if is_single {
        return sum_columns(rows, columns, add);
    }
    let mut sums = [C::default(); TOGETHER];
    add_all(&mut sums[..MAX_PARALLEL], &in_fours::<C, MAX_PARALLEL>(rows, columns, add));
    sums
}

/// Sums the elements of a single result, run by run.
fn one<C: Arithmetic>(
    parallel: &dyn Parallel,
    source: &Source<C>,
    geometry: &Geometry,
    accumulation: Accumulation,
    base: isize,
) -> C {
    let [stride] = geometry.elements.inner_steps();
    let sum = |at: isize, len: usize| {
        let add = |i: usize, sums: &mut [C]| {
            source.add_to(sums, at.wrapping_add(stride.wrapping_mul(i as isize)), stride);
        };
        match (accumulation, lanes_of::<C>() == LANES) {
            (Accumulation::Vectors, true) => sum_run::<C, MAX_PARALLEL>(parallel, len, add),
            (Accumulation::Vectors, false) => {
                sum_run::<C, { MAX_PARALLEL / 2 }>(parallel, len, add)
            }
            _ => sum_run::<C, 4>(&Serial, len, add),
        }
    };
    if geometry.elements.levels().0.len() < 2 {
        return sum(base, geometry.count());
    }
    let mut total = C::default();
    geometry.elements.for_each_run(0, geometry.count(), &mut |_, [at], len| {
        total = total.add(sum(base.wrapping_add(at), len));
    });
    total
}
