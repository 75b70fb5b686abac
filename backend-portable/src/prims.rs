//! Operators on scalars and shapes. Programs with dynamic shapes or loops run them between tensor
//! operators.
//!
//! Scalars are Python's integers, floats and bools, with Python's rounding. (ExecuTorch's runtime
//! rounds some integer divisions towards zero, where Python and the exporter round down.)

use crate::creation::first_scalar;
use crate::elementwise::division::Division;
use crate::real::Real;
use crate::table::{kernels, renamed};
use core::cmp::Ordering;
use torchlet_core::Param::{
    Int, IntList, OptionalInt, OptionalScalar, Out, OutScalar, Scalar as Number, String, Tensor,
};
use torchlet_core::layout::Sizes;
use torchlet_core::rules::normalize_dim;
use torchlet_core::{Invoke, Kernel, KernelError, Plan, Prepare, Scalar};

/// A kernel `(Scalar a) -> Scalar`.
macro_rules! of_one {
    ($name:literal, $function:expr) => {
        Kernel::new($name, &[Number, OutScalar], |_| {
            Ok(Plan::new(|ctx| {
                let function: fn(Scalar) -> Option<Scalar> = $function;
                let result = function(ctx.scalar(0)?);
                finish(ctx, 1, result)
            }))
        })
    };
}

/// A kernel `(Scalar a, Scalar b) -> Scalar`.
macro_rules! of_two {
    ($name:literal, $function:expr) => {
        Kernel::new($name, &[Number, Number, OutScalar], |_| {
            Ok(Plan::new(|ctx| {
                let function: fn(Scalar, Scalar) -> Option<Scalar> = $function;
                let result = function(ctx.scalar(0)?, ctx.scalar(1)?);
                finish(ctx, 2, result)
            }))
        })
    };
}

kernels! {
    /// `executorch_prim::add.Scalar(a, b)`: `a + b`.
    ADD = of_two!("executorch_prim::add.Scalar", |a, b| {
        arithmetic(a, b, i64::wrapping_add, |a, b| a + b)
    });
    /// `executorch_prim::sub.Scalar(a, b)`: `a - b`.
    SUB = of_two!("executorch_prim::sub.Scalar", |a, b| {
        arithmetic(a, b, i64::wrapping_sub, |a, b| a - b)
    });
    /// `executorch_prim::mul.Scalar(a, b)`: `a * b`.
    MUL = of_two!("executorch_prim::mul.Scalar", |a, b| {
        arithmetic(a, b, i64::wrapping_mul, |a, b| a * b)
    });
    /// `executorch_prim::floordiv.Scalar(a, b)`: Python's `a // b`.
    FLOORDIV = of_two!("executorch_prim::floordiv.Scalar", |a, b| {
        division(a, b, Division::floor_div, Division::floor_div)
    });
    /// `executorch_prim::floordiv.int(a, b)`: Python's `a // b`.
    FLOORDIV_INT = renamed(FLOORDIV, "executorch_prim::floordiv.int");
    /// `executorch_prim::mod.Scalar(a, b)`: Python's `a % b`.
    MOD = of_two!("executorch_prim::mod.Scalar", |a, b| {
        division(a, b, Division::remainder, Division::remainder)
    });
    /// `executorch_prim::mod.int(a, b)`: Python's `a % b`.
    MOD_INT = renamed(MOD, "executorch_prim::mod.int");
    /// `executorch_prim::truediv.Scalar(a, b)`: `a / b`, always a float.
    TRUEDIV = of_two!("executorch_prim::truediv.Scalar", |a, b| {
        Some(Scalar::Double(a.to_f64() / b.to_f64()))
    });
    /// `executorch_prim::eq.Scalar(a, b)`: `a == b`.
    EQ = of_two!("executorch_prim::eq.Scalar", |a, b| comparison(a, b, Ordering::is_eq));
    /// `executorch_prim::gt.Scalar(a, b)`: `a > b`.
    GT = of_two!("executorch_prim::gt.Scalar", |a, b| comparison(a, b, Ordering::is_gt));
    /// `executorch_prim::ge.Scalar(a, b)`: `a >= b`.
    GE = of_two!("executorch_prim::ge.Scalar", |a, b| comparison(a, b, Ordering::is_ge));
    /// `executorch_prim::lt.Scalar(a, b)`: `a < b`.
    LT = of_two!("executorch_prim::lt.Scalar", |a, b| comparison(a, b, Ordering::is_lt));
    /// `executorch_prim::le.Scalar(a, b)`: `a <= b`.
    LE = of_two!("executorch_prim::le.Scalar", |a, b| comparison(a, b, Ordering::is_le));
    /// `executorch_prim::sym_max.Scalar(a, b)`: the maximum.
    SYM_MAX = of_two!("executorch_prim::sym_max.Scalar", |a, b| {
        arithmetic(a, b, i64::max, |a, b| if a > b { a } else { b })
    });
    /// `executorch_prim::sym_min.Scalar(a, b)`: the minimum.
    SYM_MIN = of_two!("executorch_prim::sym_min.Scalar", |a, b| {
        arithmetic(a, b, i64::min, |a, b| if a < b { a } else { b })
    });
    /// `executorch_prim::neg.Scalar(a)`: `-a`.
    NEG = of_one!("executorch_prim::neg.Scalar", |a| Some(match a {
        Scalar::Double(a) => Scalar::Double(-a),
        other => Scalar::Int(other.to_i64().wrapping_neg()),
    }));
    /// `executorch_prim::ceil.Scalar(a)`: rounds up.
    CEIL = of_one!("executorch_prim::ceil.Scalar", |a| rounded(a, Real::ceil));
    /// `executorch_prim::round.Scalar(a)`: rounds to the nearest integer, ties to even.
    ROUND = of_one!("executorch_prim::round.Scalar", |a| rounded(a, Real::round_even));
    /// `executorch_prim::trunc.Scalar(a)`: rounds towards zero.
    TRUNC = of_one!("executorch_prim::trunc.Scalar", |a| rounded(a, Real::trunc));
    /// `executorch_prim::sym_int.Scalar(a)`: rounds towards zero.
    SYM_INT = renamed(TRUNC, "executorch_prim::sym_int.Scalar");
    /// `executorch_prim::sym_float.Scalar(a)`: converts to float.
    SYM_FLOAT = of_one!("executorch_prim::sym_float.Scalar", |a| Some(Scalar::Double(a.to_f64())));
    /// `executorch_prim::sym_not.Scalar(a)`: logical negation.
    SYM_NOT = of_one!("executorch_prim::sym_not.Scalar", |a| Some(Scalar::Bool(!a.to_bool())));
    /// `executorch_prim::sym_ite.Scalar(condition, a, b)`: `a` if the condition holds, else `b`.
    SYM_ITE =
        Kernel::new("executorch_prim::sym_ite.Scalar", &[Number, Number, Number, OutScalar], |_| {
            Ok(Plan::new(|ctx| {
                let chosen = if ctx.scalar(0)?.to_bool() { 1 } else { 2 };
                let result = ctx.scalar(chosen)?;
                ctx.set_scalar(3, result)
            }))
        });
    /// `executorch_prim::et_view.default(self, size, out)`: `out` becomes a view of `self` in
    /// another shape. One size may be -1 and is inferred from the others.
    ET_VIEW =
        Kernel::new(
            "executorch_prim::et_view.default", &[Tensor, IntList, Out], prepare_view).aliasing(2, 0
        );
    /// `executorch_prim::et_copy_index.tensor(copy_to, copy_from, index)`: appends the result of a
    /// loop iteration. Sets `copy_to[index]` to `copy_from` and the length of `copy_to` to
    /// `index + 1`.
    ET_COPY_INDEX =
        Kernel::new(
            "executorch_prim::et_copy_index.tensor", &[Out, Tensor, Int], prepare_copy_index
        );
    /// `aten::sym_size.int(self, dim)`: the size of a dim.
    SYM_SIZE_INT = Kernel::new("aten::sym_size.int", &[Tensor, Int, OutScalar], |_| {
        Ok(Plan::new(|ctx| {
            let info = ctx.info(0)?;
            let size = normalize_dim(ctx.int(1)?, info.rank()).and_then(|dim| info.sizes.get(dim));
            let range = KernelError::argument(1, "dim is out of range for the input");
            ctx.set_scalar(2, Scalar::Int(i64::from(*size.ok_or(range)?)))
        }))
    });
    /// `aten::sym_numel(self)`: the number of elements.
    SYM_NUMEL = Kernel::new("aten::sym_numel", &[Tensor, OutScalar], |_| {
        Ok(Plan::new(|ctx| {
            let count = ctx.info(0)?.numel();
            ctx.set_scalar(1, Scalar::Int(count as i64))
        }))
    });
    /// `aten::_local_scalar_dense(self)`: the first element of a tensor as a scalar.
    LOCAL_SCALAR_DENSE = Kernel::new("aten::_local_scalar_dense", &[Tensor, OutScalar], |_| {
        Ok(Plan::new(|ctx| {
            let value = first_scalar(ctx, 0)?;
            ctx.set_scalar(1, value)
        }))
    });
    /// `aten::_assert_scalar(self, message)`: fails if the scalar is zero.
    ASSERT_SCALAR = Kernel::new("aten::_assert_scalar", &[Number, String], |_| {
        Ok(Plan::new(|ctx| check(ctx.scalar(0)?.to_bool())))
    });
    /// `aten::_assert_async.msg(self, message)`: fails if the tensor's first element is zero.
    ASSERT_ASYNC_MSG = Kernel::new("aten::_assert_async.msg", &[Tensor, String], |_| {
        Ok(Plan::new(|ctx| check(first_scalar(ctx, 0)?.to_bool())))
    });
    /// `aten::sym_constrain_range(size, min, max)`: fails if `size` is outside the range.
    SYM_CONSTRAIN_RANGE =
        Kernel::new("aten::sym_constrain_range", &[Number, OptionalInt, OptionalInt], |_| {
            Ok(Plan::new(|ctx| {
                let size = ctx.int(0)?;
                let low = ctx.optional_int(1)?.is_none_or(|low| size >= low);
                let high = ctx.optional_int(2)?.is_none_or(|high| size <= high);
                check(low && high)
            }))
        });
    /// `aten::sym_constrain_range_for_size(size, min, max)`: fails if `size` is negative or outside
    /// the range.
    SYM_CONSTRAIN_RANGE_FOR_SIZE = Kernel::new(
        "aten::sym_constrain_range_for_size",
        &[Number, OptionalScalar, OptionalScalar],
        |_| {
            Ok(Plan::new(|ctx| {
                let size = ctx.int(0)?;
                let low = ctx.optional_int(1)?.unwrap_or(0).max(0) <= size;
                let high = ctx.optional_int(2)?.is_none_or(|high| size <= high);
                check(low && high)
            }))
        },
    );
}

fn finish(ctx: &mut Invoke, out: usize, result: Option<Scalar>) -> Result<(), KernelError> {
    let what = "division by zero, or a result outside 64-bit integers";
    ctx.set_scalar(out, result.ok_or(KernelError::argument(out - 1, what))?)
}

fn check(holds: bool) -> Result<(), KernelError> {
    let what = "an assertion that the program makes about its inputs failed";
    if holds { Ok(()) } else { Err(KernelError::argument(0, what)) }
}

/// Applies `floats` if either operand is a float, otherwise `integers`.
fn arithmetic(
    a: Scalar,
    b: Scalar,
    integers: fn(i64, i64) -> i64,
    floats: fn(f64, f64) -> f64,
) -> Option<Scalar> {
    Some(match (a, b) {
        (Scalar::Double(_), _) | (_, Scalar::Double(_)) => {
            Scalar::Double(floats(a.to_f64(), b.to_f64()))
        }
        _ => Scalar::Int(integers(a.to_i64(), b.to_i64())),
    })
}

/// Like [`arithmetic`], for functions that divide. Returns `None` for integer division by zero.
fn division(
    a: Scalar,
    b: Scalar,
    integers: fn(i64, i64) -> i64,
    floats: fn(f64, f64) -> f64,
) -> Option<Scalar> {
    let float = matches!((a, b), (Scalar::Double(_), _) | (_, Scalar::Double(_)));
    if !float && !b.to_bool() {
        return None;
    }
    arithmetic(a, b, integers, floats)
}

/// Compares integers exactly. Comparisons with NaN are false.
fn comparison(a: Scalar, b: Scalar, holds: fn(Ordering) -> bool) -> Option<Scalar> {
    let order = match (a, b) {
        (Scalar::Double(_), _) | (_, Scalar::Double(_)) => a.to_f64().partial_cmp(&b.to_f64()),
        _ => Some(a.to_i64().cmp(&b.to_i64())),
    };
    Some(Scalar::Bool(order.is_some_and(holds)))
}

/// Rounds to an integer; `None` if the result does not fit.
fn rounded(a: Scalar, round: fn(f64) -> f64) -> Option<Scalar> {
    let Scalar::Double(a) = a else { return Some(Scalar::Int(a.to_i64())) };
    // 2^63 is the smallest float that is too large.
    let limit = 9_223_372_036_854_775_808.0;
    let a = round(a);
    (-limit..limit).contains(&a).then_some(Scalar::Int(a as i64))
}

fn prepare_view(ctx: &mut Prepare) -> Result<Plan, KernelError> {
    let (from, to) = (ctx.info(0)?, ctx.info(2)?);
    if from.scalar_type != to.scalar_type {
        return Err(KernelError::scalar_type(2, to.scalar_type));
    }
    let sizes = ctx.ints(1)?;
    let range = KernelError::argument(1, "expected a shape with as many elements as the input");
    let sizes = view_sizes(from.numel(), &sizes).ok_or(range)?;
    ctx.resize(2, &sizes)?;
    Ok(Plan::new(|ctx| ctx.alias(2, 0)))
}

/// Resolves the shape of a view of `numel` elements, in which one size may be -1.
fn view_sizes(numel: usize, sizes: &[i64]) -> Option<Sizes> {
    let known = sizes
        .iter()
        .filter(|size| **size != -1)
        .try_fold(1usize, |product, size| product.checked_mul(usize::try_from(*size).ok()?))?;
    let inferred = match sizes.iter().filter(|size| **size == -1).count() {
        0 if known == numel => 0,
        1 if known != 0 && numel.is_multiple_of(known) => i32::try_from(numel / known).ok()?,
        _ => return None,
    };
    let mut shape = Sizes::new();
    for &size in sizes {
        let size = if size == -1 { inferred } else { i32::try_from(size).ok()? };
        shape.push(size).ok()?;
    }
    Some(shape)
}

fn prepare_copy_index(ctx: &mut Prepare) -> Result<Plan, KernelError> {
    let (to, from) = (ctx.info(0)?, ctx.info(1)?);
    if from.scalar_type != to.scalar_type {
        return Err(KernelError::scalar_type(1, from.scalar_type));
    }
    if to.rank() != from.rank() + 1 {
        return Err(KernelError::rank(1, from.rank()));
    }
    // Elements are copied in memory order, so both tensors must have the same dim order, with the
    // new dim outermost.
    let order = to.dim_order.iter().skip(1).copied().eq(from.dim_order.iter().map(|dim| dim + 1));
    if !(order || to.is_contiguous() && from.is_contiguous()) {
        return Err(KernelError::layout(1));
    }
    let index = ctx.int(2)?;
    let end = i32::try_from(index).ok().filter(|index| *index >= 0).and_then(|i| i.checked_add(1));
    let end = end.ok_or(KernelError::argument(2, "an index is out of range for its dim"))?;
    let mut sizes = Sizes::from_slice(&[end]).unwrap_or_default();
    let too_many = KernelError::rank(0, to.rank());
    sizes.extend_from_slice(&from.sizes).map_err(|_| too_many)?;
    ctx.resize(0, &sizes)?;
    Ok(Plan::new(copy_index))
}

fn copy_index(ctx: &mut Invoke) -> Result<(), KernelError> {
    let source = ctx.tensor(1)?;
    let range = KernelError::argument(2, "an index is out of range for its dim");
    let index = usize::try_from(ctx.int(2)?).map_err(|_| range.clone())?;
    let target = ctx.out(0)?.into_bytes();
    let len = source.bytes().len();
    let start = index.checked_mul(len);
    let target = start.and_then(|start| target.get_mut(start..start.checked_add(len)?));
    target.ok_or(range)?.copy_from_slice(source.bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use Scalar::{Bool, Double, Int};

    #[test]
    fn scalars_follow_python() {
        let floor = |a, b| division(a, b, Division::floor_div, Division::floor_div);
        let modulo = |a, b| division(a, b, Division::remainder, Division::remainder);
        assert_eq!(floor(Int(-7), Int(2)), Some(Int(-4)));
        assert_eq!(floor(Double(-7.0), Int(2)), Some(Double(-4.0)));
        assert_eq!(floor(Int(1), Int(0)), None);
        assert_eq!(floor(Int(i64::MIN), Int(-1)), Some(Int(i64::MIN)));
        assert_eq!(modulo(Int(-7), Int(2)), Some(Int(1)));
        assert_eq!(modulo(Int(7), Double(-2.0)), Some(Double(-1.0)));
        assert_eq!(rounded(Double(2.5), Real::round_even), Some(Int(2)));
        assert_eq!(rounded(Double(f64::NAN), Real::ceil), None);
        assert_eq!(rounded(Double(1e300), Real::trunc), None);
        assert_eq!(comparison(Int(i64::MAX), Int(i64::MAX - 1), Ordering::is_gt), Some(Bool(true)));
        assert_eq!(comparison(Double(f64::NAN), Int(0), Ordering::is_le), Some(Bool(false)));
    }

    #[test]
    fn views_infer_one_size() {
        assert_eq!(view_sizes(12, &[3, -1]).unwrap(), [3, 4]);
        assert_eq!(view_sizes(1, &[]).unwrap(), [] as [i32; 0]);
        assert_eq!(view_sizes(0, &[0, 7]).unwrap(), [0, 7]);
        for bad in [&[5, -1][..], &[-1, -1], &[0, -1], &[-2, 6], &[i64::MAX, i64::MAX], &[13]] {
            assert_eq!(view_sizes(12, bad), None, "{bad:?}");
        }
    }
}
