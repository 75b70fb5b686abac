//! Affine grids, unpooling, bags of embeddings.

use super::creation::MAX_SEQUENCE;
use super::{Builder, Info, Rule};
use crate::error::Error;
use crate::graph::ValueId;
use crate::operators::{AffineGridArgs, EmbeddingBagArgs, LogspaceArgs, MaxUnpoolArgs, Operator};
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::ScalarType;

pub(in super::super) const RULES: &[(Operator, Rule)] = &[
    (Operator::AFFINE_GRID_GENERATOR, affine_grid),
    (Operator::EMBEDDING_BAG_COMPOSITE, |b, args| {
        // The kernel knows -1 as "no padding"; PyTorch counts negative indices from the end.
        let call = EmbeddingBagArgs::of(args)?;
        let rows = b.info(call.weight)?.size(0) as i64;
        let padding = match b.optional(call.padding_idx) {
            Some(id) => {
                b.int(id).map(|row| if row < 0 { row.saturating_add(rows) } else { row })?
            }
            None => -1,
        };
        let mut inputs = call.inputs();
        inputs.truncate(EmbeddingBagArgs::COUNT - 1);
        inputs.push(b.new_int(padding));
        b.call_into(Operator::EMBEDDING_BAG, &inputs, call.out);
        Ok(())
    }),
    (Operator::LOGSPACE, |b, args| {
        let call = LogspaceArgs::of(args)?;
        let (start, end) = (b.number(call.start)?, b.number(call.end)?);
        let base = b.optional_number(call.base)?.unwrap_or(10.0);
        let steps = usize::try_from(b.int(call.steps)?).unwrap_or(0);
        if steps > MAX_SEQUENCE {
            return Err(Error::unsupported("logspace with more than 2^24 steps"));
        }
        b.spend(steps.saturating_mul(16))?;
        let step = if steps > 1 { (end - start) / (steps - 1) as f64 } else { 0.0 };
        let value = |at: usize| libm::pow(base, start + step * at as f64);
        let bytes = (0..steps).flat_map(|at| value(at).to_le_bytes()).collect();
        let values = b.constant(ScalarType::Double, vec![steps], bytes)?;
        b.finish_with(values, call.out)
    }),
    (Operator::MAX_UNPOOL2D, max_unpool),
];

/// Coordinates of the elements of an image, from -1 to 1, mapped by a matrix for each image.
fn affine_grid(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = AffineGridArgs::of(args)?;
    let info: Info = b.static_info(call.theta, "affine_grid")?;
    let made = b.static_info(call.out, "affine_grid")?;
    // `[batch, (depth,) height, width, axes]`
    let spatial = made.sizes.get(1..made.rank().saturating_sub(1)).unwrap_or_default();
    let axes = spatial.len();
    let count = spatial.iter().fold(1usize, |count, size| count.saturating_mul(*size));
    if info.sizes != [info.size(0), axes, axes + 1] {
        return Err(Error::invalid("affine_grid: the matrices do not match the size"));
    }
    b.spend(count.saturating_mul((axes + 1) * 8))?;
    let aligned = b.truth(call.align_corners)?;
    let coordinate = |at: usize, size: usize| match (aligned, size) {
        (true, 0 | 1) => 0.0,
        (true, _) => 2.0 * at as f64 / (size - 1) as f64 - 1.0,
        (false, _) => (2 * at + 1) as f64 / size as f64 - 1.0,
    };
    let mut values: Vec<u8> = Vec::with_capacity(count * (axes + 1) * 8);
    for index in 0..count {
        // The last axis, x, comes first; a 1 for the translation comes last.
        let mut rest = index;
        for size in spatial.iter().rev() {
            values.extend(coordinate(rest % size, *size).to_le_bytes());
            rest /= size;
        }
        values.extend(1.0f64.to_le_bytes());
    }
    let grid = b.constant(ScalarType::Double, vec![1, count, axes + 1], values)?;
    let grid = b.cast(grid, info.scalar_type)?;
    let grid = b.expand(grid, &[info.size(0), count, axes + 1])?;
    let matrices = b.permute(call.theta, &[0, 2, 1])?;
    let product = b.matmul(grid, matrices)?;
    let product = b.view_known(product, &made.sizes)?;
    b.finish_with(product, call.out)
}

/// Places the maxima of a pooling at their indices; all other elements are zero.
fn max_unpool(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = MaxUnpoolArgs::of(args)?;
    let info = b.static_info(call.input, "max_unpool2d")?;
    let made = b.static_info(call.out, "max_unpool2d")?;
    let planes = |info: &Info| -> Option<[usize; 2]> {
        let (outer, inner) = info.sizes.split_at_checked(info.rank().checked_sub(2)?)?;
        let count =
            |sizes: &[usize]| sizes.iter().fold(1usize, |count, size| count.saturating_mul(*size));
        Some([count(outer), count(inner)])
    };
    let (Some(own), Some(other)) = (planes(&info), planes(&made)) else {
        return Err(Error::invalid("max_unpool2d of a tensor without planes"));
    };
    let values = b.view_known(call.input, &own)?;
    let indices = b.view_known(call.indices, &own)?;
    let zeros = b.filled(made.with_sizes(other.to_vec()), 0.0)?;
    let dim = b.new_int(1);
    let inputs = [zeros, dim, indices, values];
    let placed = b.call(Operator::SCATTER_SRC, &inputs, made.with_sizes(other.to_vec()));
    let placed = b.view_known(placed, &made.sizes)?;
    b.finish_with(placed, call.out)
}
