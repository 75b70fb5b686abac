//! Masked writes: `masked_scatter`.

use crate::number::unsupported;
use crate::shape::moves::{Item, by_size, items, items_mut};
use crate::shape::{bad, same_type, views};
use crate::table::kernels;
use crate::walk::{Steps, Walk};
use torchlet_core::Param::{Out, Tensor};
use torchlet_core::rules::broadcast;
use torchlet_core::{Kernel, KernelError, Plan, ScalarType, TensorInfo};

kernels! { MASKED:
    /// `aten::masked_scatter.out(self, mask, source, out)`: replaces the elements where the mask is
    /// true by consecutive elements of `source`.
    MASKED_SCATTER_OUT =
        Kernel::new("aten::masked_scatter.out", &[Tensor, Tensor, Tensor, Out], |ctx| {
            let (info, mask, source) = (ctx.info(0)?, ctx.info(1)?, ctx.info(2)?);
            if mask.scalar_type != ScalarType::Bool {
                return Err(unsupported(1, mask.scalar_type));
            }
            if source.scalar_type != info.scalar_type {
                return Err(unsupported(2, source.scalar_type));
            }
            let sizes = broadcast(&info.sizes, &mask.sizes)
                .ok_or(bad(1, "shapes of mask and input do not broadcast"))?;
            ctx.resize(3, &sizes)?;
            same_type(ctx, 0, 3)?;
            Ok(Plan::new(|ctx| {
                let (input, mask, source) = (ctx.tensor(0)?, ctx.tensor(1)?, ctx.tensor(2)?);
                let out = ctx.out(3)?;
                let info = out.info().clone();
                // Row-major order determines the destination of each source element.
                let order = TensorInfo::contiguous(info.scalar_type, &info.sizes);
                let order = order.ok_or(bad(0, "shape is too large"))?;
                let steps = |info: &TensorInfo| {
                    Steps::broadcast(&order, info).ok_or(bad(1, "shapes of mask and input do not \
                                                                 broadcast"))
                };
                let walk =
                    Walk::new(&order, &[steps(&info)?, steps(input.info())?, steps(mask.info())?]);
                by_size!(info.scalar_type.size(), |E| {
                    scatter::<E>(
                        &walk,
                        items(input.bytes()),
                        mask.bytes(),
                        source.info(),
                        items(source.bytes()),
                        items_mut(out.into_bytes()),
                    )
                })
            }))
        });
}

fn scatter<E: Item>(
    walk: &Walk<3>,
    input: &[E],
    mask: &[u8],
    source_info: &TensorInfo,
    source: &[E],
    out: &mut [E],
) -> Result<(), KernelError> {
    let plain = source_info.is_contiguous();
    let [out_step, step, mask_step] = walk.inner_steps();
    let mut used = 0;
    let mut short = false;
    walk.for_each_run(0, walk.numel(), &mut |_, [mut target, mut at, mut flag], len| {
        for _ in 0..len {
            let chosen = mask.get(flag as usize).is_some_and(|&flag| flag != 0);
            let value = if chosen {
                let from = if plain { used } else { views::position(source_info, used) };
                used += 1;
                source.get(from).filter(|_| used <= source.len())
            } else {
                input.get(at as usize)
            };
            match (out.get_mut(target as usize), value) {
                (Some(out), Some(value)) => *out = *value,
                _ => short |= chosen,
            }
            target = target.wrapping_add(out_step);
            at = at.wrapping_add(step);
            flag = flag.wrapping_add(mask_step);
        }
    });
    if short { Err(bad(2, "source has fewer elements than the mask selects")) } else { Ok(()) }
}
