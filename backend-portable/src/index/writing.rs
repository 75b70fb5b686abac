//! The `scatter` operators, which write over a dim.

use super::{Indices, index_type, steps};
use crate::number::{ComputeType, Number, elements, elements_mut, unsupported, with_number};
use crate::shape::moves::{by_size, items, items_mut};
use crate::shape::padding::element_bytes;
use crate::shape::{bad, same_type, updated};
use crate::table::kernels;
use crate::walk::Walk;
use torchlet_core::Param::{Bool, Int, Out, Scalar, String, Tensor};
use torchlet_core::rules::normalize_dim;
use torchlet_core::{
    Arguments, Invoke, InvokeFn, Kernel, KernelError, Plan, Prepare, TensorInfo, TensorRef,
};

kernels! { WRITING:
    /// `aten::scatter.src_out(self, dim, index, src, out)`: writes the elements of `src` to the
    /// indices of `dim` in `index`.
    SCATTER_SRC_OUT =
        Kernel::new("aten::scatter.src_out", &[Tensor, Int, Tensor, Tensor, Out], |ctx| {
            prepare(ctx, Some(3), 4, false, |ctx| {
                let source = ctx.tensor(3)?;
                let mut scatter = Scatter::new(ctx, Some(source.info()), 4)?;
                by_size!(source.scalar_type.size(), |E| {
                    let out = items_mut::<E>(core::mem::take(&mut scatter.out));
                    let source = items::<E>(source.bytes());
                    scatter.for_each(&mut |target, from| {
                        if let (Some(out), Some(value)) = (out.get_mut(target), source.get(from)) {
                            *out = *value;
                        }
                    });
                });
                Ok(())
            })
        })
        .updating(4, 0);
    /// `aten::scatter.value_out(self, dim, index, value, out)`: writes a scalar to the indices of
    /// `dim` in `index`.
    SCATTER_VALUE_OUT =
        Kernel::new("aten::scatter.value_out", &[Tensor, Int, Tensor, Scalar, Out], |ctx| {
            prepare(ctx, None, 4, true, |ctx| {
                let value = ctx.scalar(3)?;
                let mut scatter = Scatter::new(ctx, None, 4)?;
                let found = scatter.info.scalar_type;
                let bytes = element_bytes(found, value).ok_or(unsupported(0, found))?;
                by_size!(found.size(), |E| {
                    let out = items_mut::<E>(core::mem::take(&mut scatter.out));
                    let value: E = bytemuck::pod_read_unaligned(&bytes[..size_of::<E>()]);
                    scatter.for_each(&mut |target, _| {
                        if let Some(out) = out.get_mut(target) {
                            *out = value;
                        }
                    });
                });
                Ok(())
            })
        })
        .updating(4, 0);
    /// `aten::scatter_add.out(self, dim, index, src, out)`: adds the elements of `src` at the
    /// indices of `dim` in `index`.
    SCATTER_ADD_OUT =
        Kernel::new("aten::scatter_add.out", &[Tensor, Int, Tensor, Tensor, Out], |ctx| {
            prepare(ctx, Some(3), 4, true, |ctx| {
                let source = ctx.tensor(3)?;
                let mut scatter = Scatter::new(ctx, Some(source.info()), 4)?;
                with_number!(source.scalar_type, |T| {
                    let out = core::mem::take(&mut scatter.out);
                    let for_each = |visit: &mut dyn FnMut(usize, usize)| scatter.for_each(visit);
                    reduce::<T>(&for_each, (out, source.bytes()), Reduce::Sum, true, None);
                }, else ());
                Ok(())
            })
        })
        .updating(4, 0);
    /// `aten::scatter_reduce.two_out(self, dim, index, src, reduce, include_self, out)`: reduces
    /// the elements of `src` into the indices of `dim` in `index`: sum, product, mean, maximum or
    /// minimum.
    SCATTER_REDUCE_TWO_OUT = Kernel::new(
        "aten::scatter_reduce.two_out",
        &[Tensor, Int, Tensor, Tensor, String, Bool, Out],
        |ctx| {
            let kind = reduction_arg(ctx)?;
            let counted = kind == Reduce::Mean || !ctx.bool(5)?;
            let bytes = if counted { ctx.info(0)?.numel().saturating_mul(4) } else { 0 };
            ctx.scratch_at_most(bytes);
            let plan = prepare(ctx, Some(3), 6, true, |ctx| {
                let (kind, include_self) = (reduction_arg(ctx)?, ctx.bool(5)?);
                let source = ctx.tensor(3)?;
                let mut scatter = Scatter::new(ctx, Some(source.info()), 6)?;
                // Number of writes to each element.
                let scratch = ctx.scratch().as_chunks_mut::<4>().0.as_flattened_mut();
                let counts = elements_mut::<u32>(scratch).get_mut(..scatter.info.numel());
                with_number!(source.scalar_type, |T| {
                    let out = core::mem::take(&mut scatter.out);
                    let for_each = |visit: &mut dyn FnMut(usize, usize)| scatter.for_each(visit);
                    reduce::<T>(&for_each, (out, source.bytes()), kind, include_self, counts);
                }, else ());
                Ok(())
            })?;
            Ok(plan.with_scratch(bytes))
        },
    )
    .updating(6, 0);
    /// `aten::scatter.reduce_out(self, dim, index, src, reduce, out)`: adds to the elements ("add")
    /// or multiplies them ("multiply").
    SCATTER_REDUCE_OUT = Kernel::new(
        "aten::scatter.reduce_out",
        &[Tensor, Int, Tensor, Tensor, String, Out],
        |ctx| {
            scatter_reduction(ctx)?;
            prepare(ctx, Some(3), 5, true, |ctx| {
                let (kind, source) = (scatter_reduction(ctx)?, ctx.tensor(3)?);
                let mut scatter = Scatter::new(ctx, Some(source.info()), 5)?;
                with_number!(source.scalar_type, |T| {
                    let out = core::mem::take(&mut scatter.out);
                    let for_each = |visit: &mut dyn FnMut(usize, usize)| scatter.for_each(visit);
                    reduce::<T>(&for_each, (out, source.bytes()), kind, true, None);
                }, else ());
                Ok(())
            })
        },
    )
    .updating(5, 0);
    /// `aten::scatter.value_reduce_out(self, dim, index, value, reduce, out)`: adds ("add") a
    /// scalar to the elements or multiplies ("multiply") them with it.
    SCATTER_VALUE_REDUCE_OUT = Kernel::new(
        "aten::scatter.value_reduce_out",
        &[Tensor, Int, Tensor, Scalar, String, Out],
        |ctx| {
            scatter_reduction(ctx)?;
            prepare(ctx, None, 5, true, |ctx| {
                let (kind, value) = (scatter_reduction(ctx)?, ctx.scalar(3)?);
                let mut scatter = Scatter::new(ctx, None, 5)?;
                let found = scatter.info.scalar_type;
                let bytes = element_bytes(found, value).ok_or(unsupported(0, found))?;
                let mut aligned = [0u128; 1];
                let source: &mut [u8] = bytemuck::cast_slice_mut(&mut aligned);
                source.copy_from_slice(&bytes);
                with_number!(found, |T| {
                    let out = core::mem::take(&mut scatter.out);
                    // All positions get the same value.
                    let for_each = |visit: &mut dyn FnMut(usize, usize)| {
                        scatter.for_each(&mut |target, _| visit(target, 0));
                    };
                    reduce::<T>(&for_each, (out, source), kind, true, None);
                }, else ());
                Ok(())
            })
        },
    )
    .updating(5, 0);
}

/// Reduction of values written to the same position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reduce {
    Sum,
    Product,
    /// A sum, which is divided by the number of values later.
    Mean,
    Max,
    Min,
}

impl Reduce {
    /// Combines two values; for half and bfloat16 in `f32`, rounded each time, as in PyTorch.
    #[inline(always)]
    pub(crate) fn combine<T: Number>(self, a: T, b: T) -> T {
        match ComputeType::of(T::SCALAR_TYPE) {
            Some(ComputeType::F64) => T::from_f64(self.floats(a.to_f64(), b.to_f64())),
            Some(ComputeType::I64) => {
                let (a, b) = (a.to_i64(), b.to_i64());
                T::from_i64(match self {
                    Reduce::Sum | Reduce::Mean => a.wrapping_add(b),
                    Reduce::Product => a.wrapping_mul(b),
                    // As `i64`, the largest unsigned values are negative.
                    Reduce::Max | Reduce::Min
                        if T::SCALAR_TYPE == torchlet_core::ScalarType::UInt64 =>
                    {
                        if ((a as u64) < b as u64) == (self == Reduce::Max) { b } else { a }
                    }
                    Reduce::Max => a.max(b),
                    Reduce::Min => a.min(b),
                })
            }
            _ => T::from_f32(self.floats(a.to_f32(), b.to_f32())),
        }
    }

    /// NaN propagates.
    #[inline(always)]
    fn floats<F: crate::real::Real>(self, a: F, b: F) -> F {
        let nan = |x: F| x.partial_cmp(&x).is_none();
        match self {
            Reduce::Sum | Reduce::Mean => a + b,
            Reduce::Product => a * b,
            Reduce::Max if nan(a) || !nan(b) && a >= b => a,
            Reduce::Min if nan(a) || !nan(b) && a <= b => a,
            Reduce::Max | Reduce::Min => b,
        }
    }

    /// Returns the reduction with this PyTorch name.
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "sum" => Reduce::Sum,
            "prod" => Reduce::Product,
            "mean" => Reduce::Mean,
            "amax" => Reduce::Max,
            "amin" => Reduce::Min,
            _ => return None,
        })
    }
}

pub(super) fn dim_of(ctx: &Arguments, info: &TensorInfo) -> Result<usize, KernelError> {
    normalize_dim(ctx.int(1)?, info.rank()).ok_or(bad(1, "dim is out of range for the input"))
}

/// Checks `self`, `dim`, `index` and the optional source, and resizes the output.
fn prepare(
    ctx: &mut Prepare,
    source: Option<usize>,
    out: usize,
    numbers: bool,
    invoke: InvokeFn,
) -> Result<Plan, KernelError> {
    let (info, index) = (ctx.info(0)?, ctx.info(2)?);
    index_type(2, &index)?;
    let dim = dim_of(ctx, &info)?;
    if numbers {
        ComputeType::of(info.scalar_type).ok_or(unsupported(0, info.scalar_type))?;
    }
    if index.numel() > 0 {
        if info.rank().max(1) != index.rank().max(1) {
            return Err(KernelError::rank(2, index.rank()));
        }
        for (at, (&size, &bound)) in index.sizes.iter().zip(&info.sizes).enumerate() {
            if at != dim && size > bound {
                return Err(bad(2, "index is larger than the output in another dim than `dim`"));
            }
        }
    }
    if let Some(arg) = source {
        let source = ctx.info(arg)?;
        if source.scalar_type != info.scalar_type {
            return Err(unsupported(arg, source.scalar_type));
        }
        let larger = index.sizes.iter().zip(&source.sizes).any(|(index, own)| index > own);
        if index.numel() > 0 && (source.rank().max(1) != index.rank().max(1) || larger) {
            return Err(bad(
                arg,
                "source: expected the rank of the index, and at least its size in each dim",
            ));
        }
    }
    ctx.resize(out, &info.sizes)?;
    same_type(ctx, 0, out)?;
    Ok(Plan::new(invoke))
}

/// State of a scatter operator at run time.
struct Scatter<'c> {
    index: TensorRef<'c>,
    indices: Indices<'c>,
    /// Walk over the index tensor: positions in the output, without the scattered dim, and in the
    /// source.
    walk: Walk<2>,
    /// Output stride of the scattered dim.
    along: isize,
    info: TensorInfo,
    out: &'c mut [u8],
}

impl<'c> Scatter<'c> {
    /// Initializes the output with argument 0.
    fn new(
        ctx: &mut Invoke<'c, '_>,
        source: Option<&TensorInfo>,
        out: usize,
    ) -> Result<Self, KernelError> {
        let (input, index) = (ctx.info(0)?, ctx.tensor(2)?);
        let dim = dim_of(ctx, &input)?;
        let size = if input.rank() == 0 { 1 } else { input.size(dim) };
        let indices = Indices::checked(&index, 2, 0, size)?;
        let out = updated(ctx, out)?;
        let info = out.info().clone();
        let out = out.into_bytes();
        let strides = info.strides();
        let own = |at: usize| strides.get(at).map_or(0, |&stride| stride as isize);
        let source = source.map(|info| info.strides()).unwrap_or_default();
        let walk = Walk::new(
            index.info(),
            &[
                steps(|at| if at == dim { 0 } else { own(at) }),
                steps(|at| source.get(at).map_or(0, |&stride| stride as isize)),
            ],
        );
        Ok(Scatter { index, indices, walk, along: own(dim), info, out })
    }

    /// Calls `visit` with the output position and the source position of each element.
    fn for_each(&self, visit: &mut dyn FnMut(usize, usize)) {
        let [step, source_step] = self.walk.inner_steps();
        let numel = self.index.numel();
        self.walk.for_each_run(0, numel, &mut |start, [mut at, mut source], len| {
            for position in start..start + len {
                let by = self.indices.offset(position as isize, self.along);
                visit(at.wrapping_add(by) as usize, source as usize);
                at = at.wrapping_add(step);
                source = source.wrapping_add(source_step);
            }
        });
    }
}

/// Decodes the reduction that argument 4 of `scatter` names.
fn scatter_reduction(ctx: &Arguments) -> Result<Reduce, KernelError> {
    match ctx.optional_string(4)?.unwrap_or("") {
        "add" => Ok(Reduce::Sum),
        "multiply" => Ok(Reduce::Product),
        _ => Err(bad(4, "expected 'add' or 'multiply'")),
    }
}

pub(super) fn reduction_arg(ctx: &Arguments) -> Result<Reduce, KernelError> {
    let name = ctx.optional_string(4)?.unwrap_or("");
    Reduce::named(name).ok_or(bad(4, "expected 'sum', 'prod', 'mean', 'amax' or 'amin'"))
}

/// Visitor over pairs of output position and source position.
pub(super) type PositionVisitor<'a> = dyn Fn(&mut dyn FnMut(usize, usize)) + 'a;

/// Reduces values into the output, including its elements unless `include_self` is false. `counts`
/// is required without `include_self`, and for means.
pub(super) fn reduce<T: Number>(
    for_each: &PositionVisitor,
    (out, source): (&mut [u8], &[u8]),
    kind: Reduce,
    include_self: bool,
    mut counts: Option<&mut [u32]>,
) {
    let (out, source) = (elements_mut::<T>(out), elements::<T>(source));
    if let Some(counts) = &mut counts {
        counts.fill(u32::from(include_self));
    }
    for_each(&mut |target, from| {
        let (Some(out), Some(&value)) = (out.get_mut(target), source.get(from)) else { return };
        match counts.as_mut().and_then(|counts| counts.get_mut(target)) {
            Some(count) => {
                *out = if *count == 0 { value } else { kind.combine(*out, value) };
                *count = count.saturating_add(1);
            }
            None => *out = kind.combine(*out, value),
        }
    });
    if let (Reduce::Mean, Some(counts)) = (kind, counts) {
        for (out, &count) in out.iter_mut().zip(counts.iter()).filter(|(_, count)| **count > 1) {
            *out = match ComputeType::of(T::SCALAR_TYPE) {
                Some(ComputeType::F64) => T::from_f64(out.to_f64() / f64::from(count)),
                Some(ComputeType::I64) => T::from_i64(div_floor(out.to_i64(), count.into())),
                _ => T::from_f32(out.to_f32() / count as f32),
            };
        }
    }
}

/// Floor division by a positive `b`.
fn div_floor(a: i64, b: i64) -> i64 {
    a.checked_div_euclid(b).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::f16;
    use torchlet_core::Bool;

    /// Values of PyTorch's `scatter_reduce` with two values at one position.
    #[test]
    fn colliding_values_are_reduced() {
        assert_eq!(Reduce::Sum.combine(250u8, 10), 4);
        assert_eq!(Reduce::Product.combine(i64::MAX, 2), -2);
        assert_eq!(Reduce::Max.combine(u64::MAX, 1), u64::MAX);
        assert_eq!(Reduce::Min.combine(u64::MAX, 1), 1);
        assert_eq!(Reduce::Sum.combine(Bool::new(true), Bool::new(true)), Bool::new(true));
        assert_eq!(Reduce::Sum.combine(f16::from_f32(2048.0), f16::ONE), f16::from_f32(2048.0));
        assert!(Reduce::Max.combine(f32::NAN, 1.0).is_nan());
        assert!(Reduce::Min.combine(1.0, f64::NAN).is_nan());
        assert_eq!(div_floor(-7, 2), -4);
    }
}
