//! Multidimensional histograms (`histogramdd`): count the points, rows of a matrix, in each box.
//! Each column has its own bin edges.

use super::bin_edges::{bin_of, checked_ends, equally_spaced};
use crate::number::{load, round_through, rounded, store, unsupported};
use crate::scratch;
use crate::table::kernels;
use torchlet_core::Param::{Bool, IntList, OptionalFloatList, OptionalTensor};
use torchlet_core::Param::{Out, OutList, Tensor, TensorList};
use torchlet_core::layout::Sizes;
use torchlet_core::{
    Arguments, Invoke, InvokeFn, Kernel, KernelError, Plan, Prepare, ScalarType, TensorRef,
};

kernels! { BINS:
    /// `aten::_histogramdd_bin_edges.out(self, bins, range, weight, density, out)`: equally spaced
    /// bin edges for each column.
    HISTOGRAMDD_BIN_EDGES_OUT = Kernel::new(
        "aten::_histogramdd_bin_edges.out",
        &[Tensor, IntList, OptionalFloatList, OptionalTensor, Bool, OutList],
        |ctx| {
            let columns = columns(ctx)?;
            let counts = counts(ctx, columns)?;
            if ctx.list_len(5)? != columns {
                return Err(KernelError::argument(5, "expected an output per column"));
            }
            let of = ctx.info(0)?.scalar_type;
            for (column, count) in counts.iter().enumerate() {
                ctx.resize_item(5, column, &[count + 1])?;
                match ctx.list_info(5, column)? {
                    Some(info) if info.scalar_type == of => {}
                    info => return Err(unsupported(5, info.map_or(of, |info| info.scalar_type))),
                }
            }
            let max_edges = counts.iter().map(|count| *count as usize + 1).max().unwrap_or(0);
            let bytes = scratch::bytes_for(max_edges, size_of::<f64>())?;
            Ok(Plan::new(edges_alone).with_scratch(bytes))
        },
    );
    /// `aten::_histogramdd_from_bin_cts.out(self, bins, range, weight, density, out)`: the number
    /// of points in each box between equally spaced edges, or the sum of their weights, or its
    /// density.
    HISTOGRAMDD_FROM_BIN_CTS_OUT = Kernel::new(
        "aten::_histogramdd_from_bin_cts.out",
        &[Tensor, IntList, OptionalFloatList, OptionalTensor, Bool, Out],
        |ctx| {
            let counts = counts(ctx, columns(ctx)?)?;
            prepare(ctx, &counts, [3, 5], by_counts)
        },
    );
    /// `aten::_histogramdd_from_bin_tensors.out(self, bins, weight, density, out)`: like
    /// [`HISTOGRAMDD_FROM_BIN_CTS_OUT`], between given, ascending edges.
    HISTOGRAMDD_FROM_BIN_TENSORS_OUT = Kernel::new(
        "aten::_histogramdd_from_bin_tensors.out",
        &[Tensor, TensorList, OptionalTensor, Bool, Out],
        |ctx| {
            let (columns, of) = (columns(ctx)?, ctx.info(0)?.scalar_type);
            if ctx.list_len(1)? != columns {
                return Err(KernelError::argument(1, "expected a list of edges per column"));
            }
            let mut counts = Sizes::new();
            for column in 0..columns {
                let info = ctx.list_info(1, column)?;
                let info = info.filter(|info| info.rank() == 1 && info.size(0) > 1);
                let too_few = KernelError::argument(1, "edges: expected 1 dim of at least two \
                                                        values");
                let info = info.ok_or(too_few)?;
                if info.scalar_type != of {
                    return Err(unsupported(1, info.scalar_type));
                }
                counts.push(info.sizes[0] - 1).map_err(|_| too_many_bins())?;
            }
            prepare(ctx, &counts, [2, 4], by_edges)
        },
    );
}

fn too_many_bins() -> KernelError {
    KernelError::argument(1, "too many bins")
}

/// Checks the matrix of points and returns its number of columns.
fn columns(args: &Arguments) -> Result<usize, KernelError> {
    let input = args.info(0)?;
    if !matches!(input.scalar_type, ScalarType::Float | ScalarType::Double) {
        return Err(unsupported(0, input.scalar_type));
    }
    if input.rank() < 2 {
        return Err(KernelError::rank(0, input.rank()));
    }
    if !input.is_contiguous() {
        return Err(KernelError::layout(0));
    }
    let columns = input.size(input.rank() - 1);
    if columns == 0 {
        Err(KernelError::argument(0, "expected at least one column"))
    } else {
        Ok(columns)
    }
}

/// Returns the number of bins of each column, from argument 1, after checking the range,
/// argument 2.
fn counts(args: &Arguments, columns: usize) -> Result<Sizes, KernelError> {
    if args.list_len(1)? != columns {
        return Err(KernelError::argument(1, "expected a bin count per column"));
    }
    if !args.is_none(2) && Some(args.list_len(2)?) != columns.checked_mul(2) {
        return Err(KernelError::argument(2, "expected two range limits per column"));
    }
    let mut counts = Sizes::new();
    for count in args.ints(1)? {
        let count = i32::try_from(count).ok().filter(|count| (1..i32::MAX).contains(count));
        let few = KernelError::argument(1, "number of bins: expected 1 to 2^31 - 2");
        counts.push(count.ok_or(few)?).map_err(|_| too_many_bins())?;
    }
    Ok(counts)
}

/// Number of edges and number of boxes; both are stored in scratch memory.
fn scratch_lens(counts: &[i32]) -> Option<[usize; 2]> {
    let sizes = || counts.iter().map(|count| *count as usize);
    let edges = sizes().try_fold(0usize, |sum, size| sum.checked_add(size)?.checked_add(1))?;
    let boxes = sizes().try_fold(1usize, |product, size| product.checked_mul(size))?;
    Some([edges, boxes])
}

/// Resizes the output to the shape of the boxes and checks the weights.
fn prepare(
    ctx: &mut Prepare,
    counts: &[i32],
    [weight, out]: [usize; 2],
    invoke: InvokeFn,
) -> Result<Plan, KernelError> {
    let input = ctx.info(0)?;
    if let Some(info) = ctx.optional_info(weight)? {
        if info.scalar_type != input.scalar_type {
            return Err(unsupported(weight, info.scalar_type));
        }
        if Some(&info.sizes[..]) != input.sizes.split_last().map(|(_, rows)| rows) {
            return Err(KernelError::argument(weight, "expected a weight per point"));
        }
        if !info.is_contiguous() {
            return Err(KernelError::layout(weight));
        }
    }
    ctx.resize(out, counts)?;
    let made = ctx.info(out)?;
    if made.scalar_type != input.scalar_type {
        return Err(unsupported(out, made.scalar_type));
    }
    if !made.is_contiguous() {
        return Err(KernelError::layout(out));
    }
    let len = scratch_lens(counts)
        .and_then(|[edges, boxes]| edges.checked_add(boxes))
        .ok_or(too_many_bins())?;
    Ok(Plan::new(invoke).with_scratch(scratch::bytes_for(len, size_of::<f64>())?))
}

/// Computes the edges of a column from the bin count in argument 1 and the range in argument 2, by
/// default that of the values.
fn column_edges(
    ctx: &Invoke,
    input: &TensorRef,
    column: usize,
    edges: &mut [f64],
) -> Result<(), KernelError> {
    let columns = columns(ctx)?;
    let ends = if !ctx.is_none(2) {
        let end = |at: usize| Ok(rounded(input.scalar_type, ctx.list_float(2, 2 * column + at)?));
        [end(0)?, end(1)?]
    } else if input.numel() > 0 {
        let mut ends = [f64::INFINITY, f64::NEG_INFINITY];
        let mut value = [0.0];
        for row in 0..input.numel() / columns {
            let at = row * columns + column;
            load(input.scalar_type, input.bytes(), at as isize, 1, &mut value);
            let value: f64 = value[0];
            if value.is_nan() {
                ends = [value; 2];
                break;
            }
            ends = [ends[0].min(value), ends[1].max(value)];
        }
        ends
    } else {
        [0.0, 1.0]
    };
    equally_spaced(input.scalar_type, checked_ends(input.scalar_type, ends)?, edges);
    Ok(())
}

fn edges_alone(ctx: &mut Invoke) -> Result<(), KernelError> {
    let input = ctx.tensor(0)?;
    let counts = counts(ctx, columns(ctx)?)?;
    let max_edges = counts.iter().map(|count| *count as usize + 1).max().unwrap_or(0);
    let memory = scratch::take::<f64>(ctx, max_edges)?;
    for (column, count) in counts.iter().enumerate() {
        let edges = memory.get_mut(..*count as usize + 1).unwrap_or_default();
        column_edges(ctx, &input, column, edges)?;
        let mut out = ctx.list_out(5, column)?;
        store(input.scalar_type, out.bytes_mut(), edges);
    }
    Ok(())
}

fn by_counts(ctx: &mut Invoke) -> Result<(), KernelError> {
    let counts = counts(ctx, columns(ctx)?)?;
    count(ctx, &counts, [3, 5], &column_edges)
}

fn by_edges(ctx: &mut Invoke) -> Result<(), KernelError> {
    let mut counts = Sizes::new();
    for column in 0..columns(ctx)? {
        let info = ctx.list_info(1, column)?.ok_or(KernelError::access(1))?;
        counts.push(info.size(0) as i32 - 1).map_err(|_| too_many_bins())?;
    }
    count(ctx, &counts, [2, 4], &|ctx, _, column, edges| {
        let given = ctx.list_tensor(1, column)?.ok_or(KernelError::access(1))?;
        load(given.scalar_type, given.bytes(), 0, 1, edges);
        Ok(())
    })
}

/// Function that writes the edges of a column.
type Edges<'a> = &'a dyn Fn(&Invoke, &TensorRef, usize, &mut [f64]) -> Result<(), KernelError>;

fn count(
    ctx: &mut Invoke,
    counts: &[i32],
    [weight, out]: [usize; 2],
    edges_of: Edges<'_>,
) -> Result<(), KernelError> {
    let (input, weights) = (ctx.tensor(0)?, ctx.optional_tensor(weight)?);
    let (scalar_type, columns) = (input.scalar_type, counts.len());
    let [edge_count, boxes] = scratch_lens(counts).ok_or(too_many_bins())?;
    let memory = scratch::take::<f64>(ctx, edge_count + boxes)?;
    let (edges, sums) = memory.split_at_mut_checked(edge_count).unwrap_or_default();
    let mut rest = &mut *edges;
    for (column, count) in counts.iter().enumerate() {
        let (own, behind) = rest.split_at_mut_checked(*count as usize + 1).unwrap_or_default();
        edges_of(ctx, &input, column, own)?;
        rest = behind;
    }
    let edges = &*edges;
    // Splits off the edges of each column, one more than its bins.
    let each = || {
        counts.iter().scan(edges, |rest, count| {
            let (own, behind) = rest.split_at_checked(*count as usize + 1)?;
            *rest = behind;
            Some(own)
        })
    };
    sums.fill(0.0);
    for row in 0..input.numel() / columns {
        let bin = each().enumerate().try_fold(0, |bin, (column, edges)| {
            let mut value = [0.0];
            let at = row * columns + column;
            load(scalar_type, input.bytes(), at as isize, 1, &mut value);
            Some(bin * (edges.len() - 1) + bin_of(edges, value[0])?)
        });
        let mut part = [1.0];
        if let Some(weights) = &weights {
            load(scalar_type, weights.bytes(), row as isize, 1, &mut part);
        }
        if let Some(sum) = bin.and_then(|bin| sums.get_mut(bin)) {
            *sum += part[0];
        }
    }
    round_through(scalar_type, sums);
    if ctx.bool(weight + 1)? {
        let total = rounded(scalar_type, sums.iter().sum());
        for sum in sums.iter_mut() {
            *sum = rounded(scalar_type, *sum / total);
        }
        let mut inner = boxes;
        for edges in each() {
            let parts = edges.len() - 1;
            inner /= parts.max(1);
            for (at, sum) in sums.iter_mut().enumerate() {
                let part = at / inner.max(1) % parts.max(1);
                if let Some([low, high]) = edges.get(part..part + 2) {
                    *sum = rounded(scalar_type, *sum / rounded(scalar_type, high - low));
                }
            }
        }
    }
    store(scalar_type, ctx.out(out)?.bytes_mut(), sums);
    Ok(())
}
