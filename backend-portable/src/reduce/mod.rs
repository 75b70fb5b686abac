//! Reductions, cumulative operators and distances.
//!
//! [`Form`] describes the arguments of a reduction. [`reduced`] checks them and resizes the output.
//! [`single`] and [`double`] compute one or two outputs in the engine's loop.

mod adding;
pub mod bin_edges;
pub mod bincount;
pub(crate) mod cascade;
mod complex;
pub mod distances;
pub mod distances_backward;
pub(crate) mod engine;
pub mod histogram;
pub mod histogramdd;
pub mod min_max;
pub(crate) mod reducers;
pub mod scans;
pub mod segments;
pub mod sums;

use crate::number::{Compute, ComputeType, store, unsupported};
use engine::{Geometry, Order, Reducer, reduce};
use torchlet_core::rules::{DimSet, reduced_count, reduced_shape};
use torchlet_core::{Arguments, Invoke, KernelError, Prepare, ScalarType, TensorInfo, TensorRef};

/// Argument that specifies the reduced dims.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Dims {
    /// All dims.
    All,
    /// The dim in this argument; all dims if it is absent.
    One(usize),
    /// The dims in this list argument; all dims if it is absent or empty.
    List(usize),
    /// The dims in this list argument; all dims if it is absent, no dims if it is empty.
    ExactList(usize),
}

/// Argument indices of a reduction. The tensor is argument 0.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form {
    pub(crate) dims: Dims,
    /// Argument index of `keepdim`: whether reduced dims are kept with size 1.
    pub(crate) keep: Option<usize>,
}

impl Form {
    pub(crate) const ALL: Form = Form { dims: Dims::All, keep: None };

    /// The dims that a call reduces.
    pub(crate) fn dims(&self, args: &Arguments, rank: usize) -> Result<DimSet, KernelError> {
        let (arg, set) = match self.dims {
            Dims::All => return Ok(DimSet::all(rank)),
            Dims::One(arg) => {
                let dim = args.optional_int(arg)?;
                (arg, DimSet::of_or_all(dim.as_ref().map(core::slice::from_ref), rank))
            }
            Dims::List(arg) => (arg, DimSet::of_or_all(args.optional_ints(arg)?.as_deref(), rank)),
            Dims::ExactList(arg) => match args.optional_ints(arg)? {
                Some(dims) => (arg, DimSet::of(&dims, rank)),
                None => (arg, Some(DimSet::all(rank))),
            },
        };
        set.ok_or(KernelError::argument(arg, "dims are repeated or out of range"))
    }

    fn keep(&self, args: &Arguments) -> Result<bool, KernelError> {
        self.keep.map_or(Ok(false), |arg| args.bool(arg))
    }
}

/// Resizes the outputs to the reduced shape. Returns the input.
pub(crate) fn reduced(
    ctx: &mut Prepare,
    form: Form,
    outs: &[usize],
) -> Result<TensorInfo, KernelError> {
    let input = ctx.info(0)?;
    ComputeType::of(input.scalar_type).ok_or(unsupported(0, input.scalar_type))?;
    let dims = form.dims(ctx, input.rank())?;
    let sizes = reduced_shape(&input.sizes, dims, form.keep(ctx)?);
    for &out in outs {
        ctx.resize(out, &sizes)?;
    }
    Ok(input)
}

/// Like [`reduced`], for reductions that are undefined without values, such as a maximum.
pub(crate) fn reduced_of_some(
    ctx: &mut Prepare,
    form: Form,
    outs: &[usize],
) -> Result<TensorInfo, KernelError> {
    let input = reduced(ctx, form, outs)?;
    let dims = form.dims(ctx, input.rank())?;
    let results = reduced_shape(&input.sizes, dims, false);
    if reduced_count(&input.sizes, dims) == 0 && !results.contains(&0) {
        return Err(KernelError::argument(0, "the reduced dims are empty"));
    }
    Ok(input)
}

/// Checks the dtype of an output.
pub(crate) fn expect_type(
    args: &Arguments,
    arg: usize,
    expected: ScalarType,
) -> Result<(), KernelError> {
    let found = args.info(arg)?.scalar_type;
    if found == expected { Ok(()) } else { Err(unsupported(arg, found)) }
}

/// Number of results that are stored at a time.
const BLOCK: usize = 32;

/// Stores the results that `finish` computes from states.
pub(crate) fn store_states<S: Copy, D: Compute>(
    scalar_type: ScalarType,
    states: &[S],
    bytes: &mut [u8],
    finish: impl Fn(S) -> D,
) {
    let size = scalar_type.size();
    for (states, bytes) in states.chunks(BLOCK).zip(bytes.chunks_mut(BLOCK * size)) {
        let mut values = [D::default(); BLOCK];
        for (value, state) in values.iter_mut().zip(states) {
            *value = finish(*state);
        }
        store(scalar_type, bytes, &values[..states.len()]);
    }
}

/// Reduces argument 0 into output `out`.
pub(crate) fn single<C: Compute, R: Reducer<C>, D: Compute>(
    ctx: &mut Invoke,
    form: Form,
    order: Order,
    out: usize,
    reducer: &R,
    finish: impl Fn(R::State) -> D + Sync,
) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let input = ctx.tensor(0)?;
    let dims = form.dims(ctx, input.rank())?;
    let out = ctx.out(out)?;
    let info = out.info().clone();
    let bytes = out.into_bytes();
    reduce_tensor(ctx, &input, dims, order, reducer, (&info, bytes), finish);
    Ok(())
}

/// Reduces a tensor into an output of the reduced shape.
pub(crate) fn reduce_tensor<C: Compute, R: Reducer<C>, D: Compute>(
    ctx: &Invoke,
    input: &TensorRef,
    dims: DimSet,
    order: Order,
    reducer: &R,
    (info, bytes): (&TensorInfo, &mut [u8]),
    finish: impl Fn(R::State) -> D + Sync,
) {
    let geometry = Geometry::new(input.info(), dims, info, order);
    let scalar_type = info.scalar_type;
    let outs = ([bytes], [scalar_type.size()]);
    reduce(ctx.parallel(), input, &geometry, reducer, outs, &|states, [bytes]| {
        store_states(scalar_type, states, bytes, &finish);
    });
}

/// Reduces argument 0 into two consecutive outputs of equal layout.
pub(crate) fn double<C: Compute, R: Reducer<C>, D: Compute, E: Compute>(
    ctx: &mut Invoke,
    form: Form,
    order: Order,
    outs: [usize; 2],
    reducer: &R,
    (first, second): (impl Fn(R::State) -> D + Sync, impl Fn(R::State) -> E + Sync),
) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let input = ctx.tensor(0)?;
    let dims = form.dims(ctx, input.rank())?;
    let (a, b) = (ctx.out(outs[0])?, ctx.out(outs[1])?);
    let (types, info) = ([a.scalar_type, b.scalar_type], a.info().clone());
    let geometry = Geometry::new(input.info(), dims, &info, order);
    let outs = ([a.into_bytes(), b.into_bytes()], types.map(ScalarType::size));
    reduce(ctx.parallel(), &input, &geometry, reducer, outs, &|states, [a, b]| {
        store_states(types[0], states, a, &first);
        store_states(types[1], states, b, &second);
    });
    Ok(())
}

/// Checks that two outputs have the same memory layout.
pub(crate) fn expect_same_layout(args: &Arguments, outs: [usize; 2]) -> Result<(), KernelError> {
    let (a, b) = (args.info(outs[0])?, args.info(outs[1])?);
    if a.same_layout_as(&b) { Ok(()) } else { Err(KernelError::layout(outs[1])) }
}

#[cfg(test)]
mod tests;
