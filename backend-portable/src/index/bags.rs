//! Embedding bags: sums, means and maxima of groups of rows.

use super::{Indices, index_type, stride};
use crate::number::{Compute, Number, elements, elements_mut, unsupported, with_number};
use crate::real::Real;
use crate::shape::{bad, contiguous, same_type};
use crate::table::kernels;
use half::{bf16, f16};
use torchlet_core::Param::{Bool, Int, OptionalTensor, Out, Tensor};
use torchlet_core::{Invoke, Kernel, KernelError, Plan, Prepare, ScalarType as S, TensorRef};

kernels! { BAGS:
    /// `aten::_embedding_bag.out(weight, indices, offsets, scale_grad_by_freq,
    /// mode, sparse, per_sample_weights, include_last_offset, padding_idx,
    /// out0, out1, out2, out3)`: the sum, mean or maximum of table rows for bags of indices. The
    /// other outputs are the bag of each index, the number of counted rows per bag, and the argmax
    /// rows.
    EMBEDDING_BAG_OUT = Kernel::new("aten::_embedding_bag.out", PARAMS, prepare);
    /// `aten::_embedding_bag_forward_only.out`: like [`EMBEDDING_BAG_OUT`], for inference: the
    /// other outputs may be empty.
    EMBEDDING_BAG_FORWARD_ONLY_OUT =
        Kernel::new("aten::_embedding_bag_forward_only.out", PARAMS, prepare);
}

const PARAMS: &[torchlet_core::Param] =
    &[Tensor, Tensor, Tensor, Bool, Int, Bool, OptionalTensor, Bool, Int, Out, Out, Out, Out];

fn prepare(ctx: &mut Prepare) -> Result<Plan, KernelError> {
    let (weight, indices, offsets) = (ctx.info(0)?, ctx.info(1)?, ctx.info(2)?);
    index_type(1, &indices)?;
    index_type(2, &offsets)?;
    for (arg, info, rank) in [(0, &weight, 2), (1, &indices, 1), (2, &offsets, 1)] {
        if info.rank() != rank {
            return Err(KernelError::rank(arg, info.rank()));
        }
    }
    if !weight.scalar_type.is_floating() {
        return Err(unsupported(0, weight.scalar_type));
    }
    let mode = ctx.int(4)?;
    if !(SUM..=MAX).contains(&mode) {
        return Err(bad(4, "expected 0 (sum), 1 (mean) or 2 (max)"));
    }
    if let Some(weights) = ctx.optional_info(6)? {
        let fits = mode == SUM && weights.sizes == indices.sizes;
        if !fits || weights.scalar_type != weight.scalar_type {
            return Err(bad(
                6,
                "expected mode 0 (sum), and a weight per index in the dtype of the table",
            ));
        }
    }
    let bags = i32::try_from(offsets.numel()).unwrap_or(i32::MAX) - i32::from(ctx.bool(7)?);
    if bags < 0 {
        return Err(bad(2, "expected at least one offset, because the last offset is included"));
    }
    let width = i32::try_from(weight.size(1)).unwrap_or(i32::MAX);
    let count = i32::try_from(indices.numel()).unwrap_or(i32::MAX);
    ctx.resize(9, &[bags, width])?;
    // Only training uses this output; PyTorch leaves it empty for some sums.
    let unused = mode == SUM && ctx.info(10)?.sizes == [0];
    ctx.resize(10, &[if unused { 0 } else { count }])?;
    // For outputs that only training uses, exporters may count the last offset as a bag, which is
    // then empty.
    let all = if ctx.bool(7)? { bags.saturating_add(1) } else { bags };
    let counted = |info: torchlet_core::TensorInfo| match info.sizes.first() {
        Some(first) if *first == all => all,
        _ => bags,
    };
    let rows = counted(ctx.info(11)?);
    ctx.resize(11, &[rows])?;
    if mode == MAX {
        let rows = counted(ctx.info(12)?);
        ctx.resize(12, &[rows, width])?;
    }
    same_type(ctx, 0, 9)?;
    for arg in 10..13 {
        index_type(arg, &ctx.info(arg)?)?;
    }
    contiguous(9, &ctx.info(9)?)?;
    Ok(Plan::new(run))
}

const SUM: i64 = 0;
const MEAN: i64 = 1;
const MAX: i64 = 2;

/// Writes an integer to an element of an output, whatever its dtype.
fn set(tensor: &mut torchlet_core::TensorMut, position: usize, value: usize) {
    with_number!(tensor.info().scalar_type, |T| {
        if let Some(slot) = elements_mut::<T>(tensor.bytes_mut()).get_mut(position) {
            *slot = T::from_i64(value as i64);
        }
    }, else ());
}

fn run(ctx: &mut Invoke) -> Result<(), KernelError> {
    let (weight, index, offset) = (ctx.tensor(0)?, ctx.tensor(1)?, ctx.tensor(2)?);
    let scales = ctx.optional_tensor(6)?;
    let (mode, padding) = (ctx.int(4)?, ctx.int(8)?);
    let indices = Indices::checked(&index, 1, 0, weight.size(0))?;
    let offsets = Indices::checked(&offset, 2, 0, index.numel().saturating_add(1))?;
    let (out, mut bag_of) = (ctx.out(9)?, ctx.out(10)?);
    let (mut sizes, mut max_indices) = (ctx.out(11)?, ctx.out(12)?);
    let bags = out.size(0);
    sizes.bytes_mut().fill(0);
    max_indices.bytes_mut().fill(0);
    if bags > 0 && offsets.at(0) != 0 {
        return Err(bad(2, "offsets: expected 0 as the first"));
    }
    let out = out.into_bytes();
    for bag in 0..bags {
        let start = offsets.at(bag as isize);
        let next = bag + 1;
        let all = index.numel() as i64;
        // The last bag contains all remaining indices, even if a last offset ends it earlier.
        // PyTorch respects that offset for sums without padding, but not for maxima nor in the
        // count that means are divided by.
        let end = if next == bags { all } else { offsets.at(next as isize) };
        let plain = mode != MAX && padding < 0 && weight.scalar_type != S::Double;
        let ends_early = next == bags && next < offset.numel() && plain;
        let summed = if ends_early { offsets.at(next as isize) } else { end };
        if end < start || summed < start {
            return Err(bad(2, "offsets: expected nondecreasing values"));
        }
        let bag_range = start as usize..end as usize;
        let mut counted = 0;
        for position in bag_range {
            set(&mut bag_of, position, bag);
            counted += usize::from(indices.at(position as isize) != padding);
        }
        set(&mut sizes, bag, counted);
        let range = start as usize..summed as usize;
        let bag = Bag { bag, range, counted, mode, padding };
        let scales = scales.as_ref();
        match weight.scalar_type {
            S::Half => bag.fill::<f16, f32>(&weight, &indices, scales, out, &mut max_indices),
            S::BFloat16 => bag.fill::<bf16, f32>(&weight, &indices, scales, out, &mut max_indices),
            S::Float => bag.fill::<f32, f32>(&weight, &indices, scales, out, &mut max_indices),
            _ => bag.fill::<f64, f64>(&weight, &indices, scales, out, &mut max_indices),
        }
    }
    Ok(())
}

struct Bag {
    bag: usize,
    range: core::ops::Range<usize>,
    counted: usize,
    mode: i64,
    padding: i64,
}

impl Bag {
    fn fill<T: Number, C: Compute + Real>(
        &self,
        weight: &TensorRef,
        indices: &Indices,
        scales: Option<&TensorRef>,
        out: &mut [u8],
        max_indices: &mut torchlet_core::TensorMut,
    ) {
        let (rows, columns) = (stride(weight.info(), 0), stride(weight.info(), 1));
        let width = weight.size(1);
        let table = elements::<T>(weight.bytes());
        let out = elements_mut::<T>(out);
        for column in 0..width {
            let mut result = C::default();
            let mut first = true;
            let mut max_index = 0;
            for position in self.range.clone() {
                let row = indices.at(position as isize);
                if row == self.padding {
                    continue;
                }
                let at = (row as isize).wrapping_mul(rows) + (column as isize) * columns;
                let value = table.get(at as usize).map_or(C::default(), |value| C::of(*value));
                if self.mode == MAX {
                    if first || value > result {
                        (result, max_index) = (value, row as usize);
                    }
                } else {
                    let scale = scales.and_then(|scales| {
                        elements::<T>(scales.bytes()).get(position).map(|scale| C::of(*scale))
                    });
                    result = result + scale.map_or(value, |scale| value * scale);
                }
                first = false;
            }
            if self.mode == MEAN && self.counted > 1 {
                result = result / C::count(self.counted);
            }
            let target = self.bag * width + column;
            if let Some(out) = out.get_mut(target) {
                *out = result.to();
            }
            if self.mode == MAX {
                set(max_indices, target, max_index);
            }
        }
    }
}
