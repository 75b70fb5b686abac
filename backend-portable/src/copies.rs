//! Copies of tensors with a change of shape, memory order or dtype.

use crate::creation::prepare_sizes;
use crate::elementwise::complex::{self, is_complex};
use crate::map::map;
use crate::number::{Compute, ComputeType, unsupported};
use crate::real::Real;
use crate::shape::moves;
use crate::table::{kernels, renamed};
use crate::walk::Walk;
use torchlet_core::Param::{Bool, IntList, OptionalInt, OptionalIntList, Out, Tensor};
use torchlet_core::rules::broadcast;
use torchlet_core::{Invoke, InvokeFn, Kernel, KernelError, Plan, Prepare, ScalarType};

kernels! {
    /// `aten::clone.out(self, memory_format, out)`: a copy in the memory order of `out`.
    CLONE_OUT = Kernel::new("aten::clone.out", &[Tensor, OptionalInt, Out], prepare_copy::<0, 2>);
    /// `aten::alias_copy.out(self, out)`: a copy.
    ALIAS_COPY_OUT = Kernel::new("aten::alias_copy.out", &[Tensor, Out], prepare_copy::<0, 1>);
    /// `aten::detach_copy.out(self, out)`: a copy.
    DETACH_COPY_OUT = renamed(ALIAS_COPY_OUT, "aten::detach_copy.out");
    /// `aten::lift_fresh_copy.out(self, out)`: a copy.
    LIFT_FRESH_COPY_OUT = renamed(ALIAS_COPY_OUT, "aten::lift_fresh_copy.out");
    /// `et_copy::_h2d_copy.out(self, out)`: a copy; the host is the only device here.
    H2D_COPY_OUT = renamed(ALIAS_COPY_OUT, "et_copy::_h2d_copy.out");
    /// `et_copy::_d2h_copy.out(self, out)`: a copy; the host is the only device here.
    D2H_COPY_OUT = renamed(ALIAS_COPY_OUT, "et_copy::_d2h_copy.out");
    /// `llama::fallback.out(input, output)`: a copy.
    FALLBACK_OUT = renamed(ALIAS_COPY_OUT, "llama::fallback.out");
    /// `aten::dequantize.self_out(self, out)`: conversion to `float32`. PyTorch's quantized
    /// tensors, which carry scales, cannot occur in programs.
    DEQUANTIZE_SELF_OUT = renamed(ALIAS_COPY_OUT, "aten::dequantize.self_out");
    /// `aten::_to_copy.out(self, non_blocking, memory_format, out)`: conversion to the dtype of
    /// `out`.
    TO_COPY_OUT =
        Kernel::new("aten::_to_copy.out", &[Tensor, Bool, OptionalInt, Out], prepare_copy::<0, 3>);
    /// `dim_order_ops::_to_dim_order_copy.out(self, non_blocking, dim_order, out)`: conversion to
    /// the dtype and memory order of `out`.
    TO_DIM_ORDER_COPY_OUT = Kernel::new(
        "dim_order_ops::_to_dim_order_copy.out",
        &[Tensor, Bool, OptionalIntList, Out],
        prepare_copy::<0, 3>,
    );
    /// `dim_order_ops::_clone_dim_order.out(self, non_blocking, dim_order, out)`: a copy in the
    /// memory order of `out`.
    CLONE_DIM_ORDER_OUT = renamed(TO_DIM_ORDER_COPY_OUT, "dim_order_ops::_clone_dim_order.out");
    /// `aten::copy.out(self, src, non_blocking, out)`: `src`, broadcast to the shape of `self` and
    /// converted to the dtype of `out`.
    COPY_OUT = Kernel::new("aten::copy.out", &[Tensor, Tensor, Bool, Out], |ctx| {
        let sizes = ctx.info(0)?.sizes;
        ctx.resize(3, &sizes)?;
        prepare_broadcast::<1, 3>(ctx)
    });
    /// `aten::copy_(self, src, non_blocking)`: overwrites `self` with `src`, broadcast to its
    /// shape.
    COPY_IN_PLACE = Kernel::new("aten::copy_", &[Out, Tensor, Bool], prepare_broadcast::<1, 0>);
    /// `aten::complex.out(real, imag, out)`: a complex tensor of the given real and imaginary
    /// parts.
    COMPLEX_OUT = Kernel::new("aten::complex.out", &[Tensor, Tensor, Out], |ctx| {
        let (real, imaginary, out) = (ctx.info(0)?, ctx.info(1)?, ctx.info(2)?);
        let whole = match real.scalar_type {
            ScalarType::Half => ScalarType::ComplexHalf,
            ScalarType::Float => ScalarType::ComplexFloat,
            ScalarType::Double => ScalarType::ComplexDouble,
            other => return Err(unsupported(0, other)),
        };
        if imaginary.scalar_type != real.scalar_type {
            return Err(unsupported(1, imaginary.scalar_type));
        }
        if out.scalar_type != whole {
            return Err(unsupported(2, out.scalar_type));
        }
        let mismatch = KernelError::argument(1, "shapes of the real and the imaginary part do not \
                                                 broadcast");
        ctx.resize(2, &broadcast(&real.sizes, &imaginary.sizes).ok_or(mismatch)?)?;
        Ok(Plan::new(join_parts))
    });
    /// `aten::_conj_physical.out(self, out)`: the complex conjugate.
    CONJ_PHYSICAL_OUT = Kernel::new("aten::_conj_physical.out", &[Tensor, Out], |ctx| {
        let (from, to) = (ctx.info(0)?, ctx.info(1)?);
        if from.scalar_type != to.scalar_type {
            return Err(unsupported(1, to.scalar_type));
        }
        let plan = prepare_copy::<0, 1>(ctx)?;
        Ok(if is_complex(from.scalar_type) { Plan::new(conjugate) } else { plan })
    });
    /// `aten::resize.out(self, size, memory_format, out)`: the elements in memory order, truncated
    /// or padded with zeros to the new size.
    RESIZE_OUT = Kernel::new("aten::resize.out", &[Tensor, IntList, OptionalInt, Out], |ctx| {
        prepare_sizes(ctx, 1, 3)?;
        let found = ctx.info(3)?.scalar_type;
        if found != ctx.info(0)?.scalar_type {
            return Err(unsupported(3, found));
        }
        Ok(Plan::new(copy_bytes))
    });
    /// `aten::_conj_copy.out(self, out)`: the complex conjugate.
    CONJ_COPY_OUT = renamed(CONJ_PHYSICAL_OUT, "aten::_conj_copy.out");
}

/// Copies argument `IN` to `OUT`, resized to its shape.
fn prepare_copy<const IN: usize, const OUT: usize>(ctx: &mut Prepare) -> Result<Plan, KernelError> {
    let sizes = ctx.info(IN)?.sizes;
    ctx.resize(OUT, &sizes)?;
    prepare_broadcast::<IN, OUT>(ctx)
}

/// Copies `IN`, broadcast to the shape of `OUT`.
fn prepare_broadcast<const IN: usize, const OUT: usize>(
    ctx: &mut Prepare,
) -> Result<Plan, KernelError> {
    let (from, to) = (ctx.info(IN)?, ctx.info(OUT)?);
    if from.scalar_type == to.scalar_type {
        return Ok(Plan::new(same_type::<IN, OUT>));
    }
    Ok(Plan::new(conversion::<IN, OUT>(from.scalar_type, to.scalar_type)?))
}

/// Selects the conversion loop, which computes in the type that loses the least precision.
fn conversion<const IN: usize, const OUT: usize>(
    from: ScalarType,
    to: ScalarType,
) -> Result<InvokeFn, KernelError> {
    if is_complex(from) || is_complex(to) {
        let known = |found| is_complex(found) || ComputeType::of_any(found).is_some();
        if !known(from) {
            return Err(unsupported(IN, from));
        }
        if !known(to) || to == ScalarType::Bool {
            return Err(unsupported(OUT, to));
        }
        let doubles = matches!(from, ScalarType::Double | ScalarType::ComplexDouble)
            || to == ScalarType::ComplexDouble && from.is_integral(false);
        // Like PyTorch, complex to real conversion keeps the real part.
        return Ok(if doubles {
            complex_cast::<f64, IN, OUT>
        } else {
            complex_cast::<f32, IN, OUT>
        });
    }
    let source = ComputeType::of_any(from).ok_or(unsupported(IN, from))?;
    let target = ComputeType::of_any(to).ok_or(unsupported(OUT, to))?;
    Ok(match (source, target) {
        (ComputeType::F64, _) | (ComputeType::I64, ComputeType::F64) => cast::<f64, IN, OUT>,
        (ComputeType::F32, _) | (ComputeType::I64, ComputeType::F32) => cast::<f32, IN, OUT>,
        (ComputeType::I64, ComputeType::I64) => cast::<i64, IN, OUT>,
    })
}

fn cast<C: Compute, const IN: usize, const OUT: usize>(
    ctx: &mut Invoke,
) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    map(ctx, [IN], OUT, &move |a: C| a)
}

fn complex_cast<C: Real, const IN: usize, const OUT: usize>(
    ctx: &mut Invoke,
) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    complex::map::<C, 1>(ctx, [IN], OUT, &|[a]| a)
}

fn same_type<const IN: usize, const OUT: usize>(ctx: &mut Invoke) -> Result<(), KernelError> {
    copy(ctx, IN, OUT).map(|_| ())
}

/// Copies elements of the same dtype and returns the written bytes.
pub(crate) fn copy<'c>(
    ctx: &mut Invoke<'c, '_>,
    input: usize,
    out: usize,
) -> Result<&'c mut [u8], KernelError> {
    let (input, out) = (ctx.tensor(input)?, ctx.out(out)?);
    let info = out.info().clone();
    let bytes = out.into_bytes();
    let walk = Walk::broadcast(&info, [input.info()])?;
    moves::copy(ctx.parallel(), info.scalar_type.size(), &walk, input.bytes(), bytes);
    Ok(bytes)
}

/// Copies as many bytes as fit and fills the rest of the output with zeros.
fn copy_bytes(ctx: &mut Invoke) -> Result<(), KernelError> {
    let (input, mut out) = (ctx.tensor(0)?, ctx.out(3)?);
    let (from, to) = (input.bytes(), out.bytes_mut());
    let (own, rest) = to.split_at_mut(from.len().min(to.len()));
    own.copy_from_slice(from.get(..own.len()).unwrap_or_default());
    rest.fill(0);
    Ok(())
}

/// Interleaves real and imaginary parts.
fn join_parts(ctx: &mut Invoke) -> Result<(), KernelError> {
    let (parts, out) = ([ctx.tensor(0)?, ctx.tensor(1)?], ctx.out(2)?);
    let size = parts[0].scalar_type.size();
    let walk = Walk::broadcast(out.info(), [parts[0].info(), parts[1].info()])?;
    let bytes = out.into_bytes();
    let steps = walk.inner_steps();
    walk.for_each_run(0, walk.numel(), &mut |start, mut at, len| {
        let numbers = bytes.chunks_exact_mut(size).skip(2 * start).take(2 * len);
        for (i, target) in numbers.enumerate() {
            let part = i % 2;
            let source = usize::try_from(at[part]).ok().and_then(|at| {
                let first = at.checked_mul(size)?;
                parts[part].bytes().get(first..first.checked_add(size)?)
            });
            if let Some(source) = source {
                target.copy_from_slice(source);
            }
            at[part] = at[part].wrapping_add(steps[part]);
        }
    });
    Ok(())
}

/// Copies complex values and negates the imaginary part by flipping the top bit of its last byte.
fn conjugate(ctx: &mut Invoke) -> Result<(), KernelError> {
    let size = ctx.info(0)?.scalar_type.size();
    for number in copy(ctx, 0, 1)?.chunks_exact_mut(size) {
        if let Some(last) = number.last_mut() {
            *last ^= 0x80;
        }
    }
    Ok(())
}
