//! Gather operators over a dim: `index_select`, `gather`, `embedding`.

use super::{Indices, index_type, steps, stride};
use crate::compute::split::{chunk_len, for_each_chunk_mut};
use crate::shape::moves::{Item, by_size, copy_run, items, items_mut};
use crate::shape::{bad, same_type};
use crate::table::kernels;
use crate::walk::Walk;
use torchlet_core::Param::{Bool, Int, Out, Tensor};
use torchlet_core::layout::Sizes;
use torchlet_core::rules::normalize_dim;
use torchlet_core::{Invoke, Kernel, KernelError, Parallel, Plan};

kernels! { READING:
    /// `aten::index_select.out(self, dim, index, out)`: the slices of `dim` at the indices in a
    /// vector.
    INDEX_SELECT_OUT = Kernel::new("aten::index_select.out", &[Tensor, Int, Tensor, Out], |ctx| {
        let (info, index) = (ctx.info(0)?, ctx.info(2)?);
        index_type(2, &index)?;
        if index.rank() > 1 {
            return Err(KernelError::rank(2, index.rank()));
        }
        let dim = normalize_dim(ctx.int(1)?, info.rank()).ok_or(bad(1, "dim is out of range for \
                                                                        the input"))?;
        let mut sizes = info.sizes.clone();
        let count = i32::try_from(index.numel()).map_err(|_| bad(2, "more than 2^31 - 1 indices"))?;
        match sizes.get_mut(dim) {
            Some(size) => *size = count,
            None if count == 1 => {}
            None => return Err(bad(2, "expected one index, because the input is a scalar")),
        }
        ctx.resize(3, &sizes)?;
        same_type(ctx, 0, 3)?;
        Ok(Plan::new(|ctx| {
            let (input, index, out) = (ctx.tensor(0)?, ctx.tensor(2)?, ctx.out(3)?);
            let dim =
                normalize_dim(ctx.int(1)?, input.rank()).ok_or(bad(1, "dim is out of range for the \
                                                                       input"))?;
            let size = if input.rank() == 0 { 1 } else { input.size(dim) };
            let indices = Indices::checked(&index, 2, 0, size)?;
            let strides = input.strides();
            let own = |at: usize| strides.get(at).map_or(0, |&stride| stride as isize);
            let walk = Walk::new(
                out.info(),
                &[
                    steps(|at| if at == dim { 0 } else { own(at) }),
                    steps(|at| isize::from(at == dim)),
                ],
            );
            run(ctx, &walk, &input, out.into_bytes(), |at| indices.offset(at, own(dim)));
            Ok(())
        }))
    });
    /// `aten::gather.out(self, dim, index, sparse_grad, out)`: gathers the elements of `self` at
    /// the indices in `index` over `dim`.
    GATHER_OUT = Kernel::new("aten::gather.out", &[Tensor, Int, Tensor, Bool, Out], |ctx| {
        let (info, index) = (ctx.info(0)?, ctx.info(2)?);
        index_type(2, &index)?;
        let dim = normalize_dim(ctx.int(1)?, info.rank()).ok_or(bad(1, "dim is out of range for \
                                                                        the input"))?;
        if index.numel() > 0 {
            if info.rank().max(1) != index.rank().max(1) {
                return Err(KernelError::rank(2, index.rank()));
            }
            for (at, (&size, &bound)) in index.sizes.iter().zip(&info.sizes).enumerate() {
                if at != dim && size > bound {
                    return Err(bad(2, "index is larger than the input in another dim than `dim`"));
                }
            }
        }
        ctx.resize(4, &index.sizes)?;
        same_type(ctx, 0, 4)?;
        Ok(Plan::new(|ctx| {
            let (input, index, out) = (ctx.tensor(0)?, ctx.tensor(2)?, ctx.out(4)?);
            let dim =
                normalize_dim(ctx.int(1)?, input.rank()).ok_or(bad(1, "dim is out of range for the \
                                                                       input"))?;
            let size = if input.rank() == 0 { 1 } else { input.size(dim) };
            let indices = Indices::checked(&index, 2, 0, size)?;
            let (strides, index_strides) = (input.strides(), index.strides());
            let own = |at: usize| strides.get(at).map_or(0, |&stride| stride as isize);
            let walk = Walk::new(
                out.info(),
                &[
                    steps(|at| if at == dim { 0 } else { own(at) }),
                    steps(|at| index_strides.get(at).map_or(0, |&stride| stride as isize)),
                ],
            );
            run(ctx, &walk, &input, out.into_bytes(), |at| indices.offset(at, own(dim)));
            Ok(())
        }))
    });
    /// `aten::embedding.out(weight, indices, padding_idx, scale_grad_by_freq, sparse, out)`: rows
    /// of a table. The options only affect training.
    EMBEDDING_OUT =
        Kernel::new("aten::embedding.out", &[Tensor, Tensor, Int, Bool, Bool, Out], |ctx| {
            let (weight, index) = (ctx.info(0)?, ctx.info(1)?);
            index_type(1, &index)?;
            let &[_, width] = &weight.sizes[..] else {
                return Err(KernelError::rank(0, weight.rank()));
            };
            let mut sizes: Sizes = index.sizes.clone();
            sizes.push(width).map_err(|_| KernelError::rank(1, index.rank()))?;
            ctx.resize(5, &sizes)?;
            same_type(ctx, 0, 5)?;
            Ok(Plan::new(|ctx| {
                let (weight, index, out) = (ctx.tensor(0)?, ctx.tensor(1)?, ctx.out(5)?);
                let indices = Indices::checked(&index, 1, 0, weight.size(0))?;
                let (rows, columns) = (stride(weight.info(), 0), stride(weight.info(), 1));
                let index_strides = index.strides();
                let rank = index.rank();
                let walk = Walk::new(
                    out.info(),
                    &[
                        steps(|at| if at == rank { columns } else { 0 }),
                        steps(|at| index_strides.get(at).map_or(0, |&stride| stride as isize)),
                    ],
                );
                run(ctx, &walk, &weight, out.into_bytes(), |at| indices.offset(at, rows));
                Ok(())
            }))
        });
}

/// Fills an output. Each element is read at a position of the first walk, plus `offset(p)`, where
/// `p` is the matching position of the second walk.
pub(crate) fn copy_indexed<E: Item>(
    parallel: &dyn Parallel,
    walk: &Walk<2>,
    input: &[E],
    offset: &(impl Fn(isize) -> isize + Sync),
    out: &mut [E],
) {
    let [step, index_step] = walk.inner_steps();
    let grain = chunk_len(parallel, out.len(), 32 * 1024 / size_of::<E>());
    for_each_chunk_mut(parallel, out, grain, &|chunk, out: &mut [E]| {
        let from = chunk * grain;
        walk.for_each_run(from, from + out.len(), &mut |start, [at, index], len| {
            let target = out.get_mut(start - from..start - from + len).unwrap_or_default();
            if index_step == 0 {
                copy_run(input, at.wrapping_add(offset(index)), step, target);
                return;
            }
            let (mut at, mut index) = (at, index);
            for target in target {
                let position = at.wrapping_add(offset(index)) as usize;
                if let Some(value) = input.get(position) {
                    *target = *value;
                }
                at = at.wrapping_add(step);
                index = index.wrapping_add(index_step);
            }
        });
    });
}

fn run(
    ctx: &Invoke,
    walk: &Walk<2>,
    input: &torchlet_core::TensorRef,
    out: &mut [u8],
    offset: impl Fn(isize) -> isize + Sync,
) {
    by_size!(input.scalar_type.size(), |E| {
        copy_indexed::<E>(ctx.parallel(), walk, items(input.bytes()), &offset, items_mut(out));
    });
}
