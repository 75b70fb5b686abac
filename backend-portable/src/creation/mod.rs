//! Creation of tensors.

pub mod drawn;
pub mod multinomial;
pub mod normal;
pub mod random;

use crate::compute::split::for_each_chunk_mut;
use crate::number::{Number, elements_mut, number_type, unsupported, with_number};
use crate::table::kernels;
use torchlet_core::Param::{Int, IntList, OptionalInt, OptionalIntList, Out, Scalar, Tensor};
use torchlet_core::layout::Sizes;
use torchlet_core::{
    Arguments, Invoke, InvokeFn, Kernel, KernelError, Plan, Prepare, Scalar as Value, ScalarType,
};

kernels! {
    /// `aten::full.out(size, fill_value, out)`: a tensor filled with one value.
    FULL_OUT = Kernel::new("aten::full.out", &[IntList, Scalar, Out], |ctx| {
        prepare_sizes(ctx, 0, 2)?;
        prepare_fill(ctx, 2, |ctx| { let value = ctx.scalar(1)?; fill(ctx, 2, value) })
    });
    /// `aten::full_like.out(self, fill_value, memory_format, out)`: one value in the shape of
    /// `self`.
    FULL_LIKE_OUT = Kernel::new("aten::full_like.out", &[Tensor, Scalar, OptionalInt, Out], |ctx| {
        prepare_like(ctx, 0, 3)?;
        prepare_fill(ctx, 3, |ctx| { let value = ctx.scalar(1)?; fill(ctx, 3, value) })
    });
    /// `aten::fill.Scalar_out(self, value, out)`: one value in the shape of `self`.
    FILL_SCALAR_OUT = Kernel::new("aten::fill.Scalar_out", &[Tensor, Scalar, Out], |ctx| {
        prepare_like(ctx, 0, 2)?;
        prepare_fill(ctx, 2, |ctx| { let value = ctx.scalar(1)?; fill(ctx, 2, value) })
    });
    /// `aten::fill.Tensor_out(self, value, out)`: the only element of tensor `value`, in the shape
    /// of `self`.
    FILL_TENSOR_OUT = Kernel::new("aten::fill.Tensor_out", &[Tensor, Tensor, Out], |ctx| {
        let info = ctx.info(1)?;
        if info.numel() != 1 {
            return Err(KernelError::argument(1, "expected exactly one element"));
        }
        number_type(1, info.scalar_type)?;
        prepare_like(ctx, 0, 2)?;
        prepare_fill(ctx, 2, |ctx| { let value = first_scalar(ctx, 1)?; fill(ctx, 2, value) })
    });
    /// `aten::ones.out(size, out)`: a tensor of ones.
    ONES_OUT = Kernel::new("aten::ones.out", &[IntList, Out], |ctx| {
        prepare_sizes(ctx, 0, 1)?;
        prepare_fill(ctx, 1, |ctx| fill(ctx, 1, Value::Int(1)))
    });
    /// `aten::ones_like.out(self, memory_format, out)`: ones in the shape of `self`.
    ONES_LIKE_OUT = Kernel::new("aten::ones_like.out", &[Tensor, OptionalInt, Out], |ctx| {
        prepare_like(ctx, 0, 2)?;
        prepare_fill(ctx, 2, |ctx| fill(ctx, 2, Value::Int(1)))
    });
    /// `aten::zeros.out(size, out)`: a tensor of zeros.
    ZEROS_OUT = Kernel::new("aten::zeros.out", &[IntList, Out], |ctx| {
        prepare_sizes(ctx, 0, 1)?;
        prepare_fill(ctx, 1, |ctx| fill(ctx, 1, Value::Int(0)))
    });
    /// `aten::zeros_like.out(self, memory_format, out)`: zeros in the shape of `self`.
    ZEROS_LIKE_OUT = Kernel::new("aten::zeros_like.out", &[Tensor, OptionalInt, Out], |ctx| {
        prepare_like(ctx, 0, 2)?;
        prepare_fill(ctx, 2, |ctx| fill(ctx, 2, Value::Int(0)))
    });
    /// `aten::eye.out(n, out)`: the `n x n` identity matrix.
    EYE_OUT = Kernel::new("aten::eye.out", &[Int, Out], |ctx| {
        prepare_diagonal(ctx, [0, 0], 1)?;
        prepare_fill(ctx, 1, |ctx| diagonal(ctx, 1))
    });
    /// `aten::eye.m_out(n, m, out)`: the `n x m` matrix with ones on the diagonal and zeros
    /// elsewhere.
    EYE_M_OUT = Kernel::new("aten::eye.m_out", &[Int, Int, Out], |ctx| {
        prepare_diagonal(ctx, [0, 1], 2)?;
        prepare_fill(ctx, 2, |ctx| diagonal(ctx, 2))
    });
    /// `aten::tril_indices.out(row, col, offset, out)`: row and column indices of the elements up
    /// to and including a diagonal.
    TRIL_INDICES_OUT = Kernel::new("aten::tril_indices.out", &[Int, Int, Int, Out], |ctx| {
        prepare_triangle(ctx, false)?;
        prepare_fill(ctx, 3, |ctx| triangle(ctx, false))
    });
    /// `aten::triu_indices.out(row, col, offset, out)`: row and column indices of the elements from
    /// a diagonal on.
    TRIU_INDICES_OUT = Kernel::new("aten::triu_indices.out", &[Int, Int, Int, Out], |ctx| {
        prepare_triangle(ctx, true)?;
        prepare_fill(ctx, 3, |ctx| triangle(ctx, true))
    });
    /// `aten::scalar_tensor.out(s, out)`: a zero-dim tensor of one value.
    SCALAR_TENSOR_OUT = Kernel::new("aten::scalar_tensor.out", &[Scalar, Out], |ctx| {
        ctx.resize(1, &[])?;
        prepare_fill(ctx, 1, |ctx| { let value = ctx.scalar(0)?; fill(ctx, 1, value) })
    });
    /// `aten::empty.out(size, memory_format, out)`: sets the shape; the elements are unspecified.
    EMPTY_OUT = Kernel::new("aten::empty.out", &[IntList, OptionalInt, Out], |ctx| {
        prepare_sizes(ctx, 0, 2)?;
        Ok(Plan::new(|_| Ok(())))
    });
    /// `aten::empty_like.out(self, memory_format, out)`: sets the shape of `self`; the elements are
    /// unspecified.
    EMPTY_LIKE_OUT = Kernel::new("aten::empty_like.out", &[Tensor, OptionalInt, Out], |ctx| {
        prepare_like(ctx, 0, 2)?;
        Ok(Plan::new(|_| Ok(())))
    });
    /// `aten::empty_permuted.out(size, physical_layout, out)`: like [`EMPTY_OUT`]; `out` keeps the
    /// memory order that the exporter planned.
    EMPTY_PERMUTED_OUT =
        Kernel::new("aten::empty_permuted.out", &[IntList, IntList, Out], EMPTY_OUT.prepare);
    /// `aten::empty_strided.out(size, stride, out)`: like [`EMPTY_OUT`]; `out` keeps the strides
    /// that the exporter planned.
    EMPTY_STRIDED_OUT =
        Kernel::new("aten::empty_strided.out", &[IntList, IntList, Out], EMPTY_OUT.prepare);
    /// `aten::new_empty_strided.out(self, size, stride, out)`: like [`EMPTY_STRIDED_OUT`].
    NEW_EMPTY_STRIDED_OUT =
        Kernel::new("aten::new_empty_strided.out", &[Tensor, IntList, IntList, Out], |ctx| {
            prepare_sizes(ctx, 1, 3)?;
            Ok(Plan::new(|_| Ok(())))
        });
    /// `dim_order_ops::_empty_dim_order.out(size, dim_order, out)`: like [`EMPTY_OUT`]; `out` keeps
    /// the dim order that the exporter planned.
    EMPTY_DIM_ORDER_OUT = Kernel::new(
        "dim_order_ops::_empty_dim_order.out",
        &[IntList, OptionalIntList, Out],
        EMPTY_OUT.prepare,
    );
    /// `aten::arange.out(end, out)`: the integers from 0 to below `end`.
    ARANGE_OUT = Kernel::new("aten::arange.out", &[Scalar, Out], |ctx| {
        prepare_range(ctx, 1, |ctx| Ok((Value::Int(0), ctx.scalar(0)?, Value::Int(1))))?;
        Ok(Plan::new(|ctx| range(ctx, 1, Value::Int(0), Value::Int(1))))
    });
    /// `aten::arange.start_out(start, end, step, out)`: the values from `start` to before `end` in
    /// steps of `step`.
    ARANGE_START_OUT =
        Kernel::new("aten::arange.start_out", &[Scalar, Scalar, Scalar, Out], |ctx| {
            prepare_range(ctx, 3, |ctx| Ok((ctx.scalar(0)?, ctx.scalar(1)?, ctx.scalar(2)?)))?;
            Ok(Plan::new(|ctx| {
                let (start, step) = (ctx.scalar(0)?, ctx.scalar(2)?);
                range(ctx, 3, start, step)
            }))
        });
}

/// Resizes `out` to the shape in list argument `arg`.
pub(crate) fn prepare_sizes(ctx: &mut Prepare, arg: usize, out: usize) -> Result<(), KernelError> {
    let mut sizes = Sizes::new();
    for size in ctx.ints(arg)? {
        let size = i32::try_from(size).ok().filter(|size| *size >= 0);
        let range = KernelError::argument(arg, "size: expected 0 to 2^31 - 1");
        let pushed = size.map(|size| sizes.push(size));
        pushed.and_then(Result::ok).ok_or(range)?;
    }
    ctx.resize(out, &sizes)
}

/// Resizes `out` to the matrix shape in two arguments.
fn prepare_diagonal(ctx: &mut Prepare, args: [usize; 2], out: usize) -> Result<(), KernelError> {
    let mut sizes = [0; 2];
    for (size, arg) in sizes.iter_mut().zip(args) {
        let found = i32::try_from(ctx.int(arg)?).ok().filter(|size| *size >= 0);
        *size = found.ok_or(KernelError::argument(arg, "size: expected 0 to 2^31 - 1"))?;
    }
    ctx.resize(out, &sizes)
}

/// Writes the identity matrix.
fn diagonal(ctx: &mut Invoke, out: usize) -> Result<(), KernelError> {
    let mut out = ctx.out(out)?;
    let info = out.info().clone();
    let step: usize = info.strides().iter().sum();
    let count = info.size(0).min(info.size(1));
    with_number!(info.scalar_type, |T| {
        let elements = elements_mut::<T>(out.bytes_mut());
        elements.fill(T::from_i64(0));
        for element in elements.iter_mut().step_by(step.max(1)).take(count) {
            *element = T::from_i64(1);
        }
    }, else ());
    Ok(())
}

/// A matrix that is divided by a diagonal: its shape, and the offset of the diagonal.
struct Triangle {
    rows: i64,
    columns: i64,
    diagonal: i64,
}

impl Triangle {
    fn of(args: &Arguments) -> Result<Self, KernelError> {
        let size = |arg: usize| {
            let size = args.int(arg)?;
            let fits = (0..=i64::from(i32::MAX)).contains(&size);
            fits.then_some(size).ok_or(KernelError::argument(arg, "size: expected 0 to 2^31 - 1"))
        };
        let (rows, columns) = (size(0)?, size(1)?);
        // Beyond these offsets, all elements are on one side of the diagonal.
        Ok(Triangle { rows, columns, diagonal: args.int(2)?.clamp(-rows, columns) })
    }

    /// Number of elements on and below the diagonal.
    fn count_lower(&self) -> i64 {
        // Row `i` has `clamp(i + diagonal + 1, 0, columns)` such elements; this is their sum over
        // the rows before `end`.
        let upto = |end: i64| {
            let rising = end.clamp(0, self.columns);
            rising * (rising + 1) / 2 + (end - self.columns).max(0) * self.columns
        };
        upto(self.rows + self.diagonal) - upto(self.diagonal)
    }
}

/// Resizes `out` to `2 x count`: the row indices and the column indices of a triangle.
fn prepare_triangle(ctx: &mut Prepare, upper: bool) -> Result<(), KernelError> {
    let mut triangle = Triangle::of(ctx)?;
    let all = triangle.rows * triangle.columns;
    let count = if upper {
        // Moves the diagonal, so that the elements on it do not count.
        triangle.diagonal -= 1;
        all - triangle.count_lower()
    } else {
        triangle.count_lower()
    };
    let large = KernelError::argument(0, "the triangle has more than 2^31 - 1 elements");
    ctx.resize(3, &[2, i32::try_from(count).map_err(|_| large)?])
}

fn triangle(ctx: &mut Invoke, upper: bool) -> Result<(), KernelError> {
    let Triangle { rows, columns, diagonal } = Triangle::of(ctx)?;
    // The rows with at least one element in the triangle, if columns remain.
    let some = if upper { 0..rows.min(columns - diagonal) } else { (-diagonal).max(0)..rows };
    let mut out = ctx.out(3)?;
    let info = out.info().clone();
    if info.numel() == 0 {
        return Ok(());
    }
    let strides = info.strides();
    let [coordinate, step] = [0, 1].map(|dim| strides.get(dim).copied().unwrap_or(0));
    with_number!(info.scalar_type, |T| {
        let elements = elements_mut::<T>(out.bytes_mut());
        let mut at = 0;
        for row in some {
            let own = if upper {
                (row + diagonal).max(0)..columns
            } else {
                0..(row + diagonal + 1).min(columns)
            };
            for column in own {
                for (position, index) in [(at, row), (at + coordinate, column)] {
                    if let Some(element) = elements.get_mut(position) {
                        *element = T::from_i64(index);
                    }
                }
                at += step;
            }
        }
    }, else ());
    Ok(())
}

/// Resizes `out` to the shape of a tensor.
fn prepare_like(ctx: &mut Prepare, arg: usize, out: usize) -> Result<(), KernelError> {
    let sizes = ctx.info(arg)?.sizes;
    ctx.resize(out, &sizes)
}

/// Checks that `out` has an element type that can be filled.
fn prepare_fill(ctx: &Prepare, out: usize, invoke: InvokeFn) -> Result<Plan, KernelError> {
    let found = ctx.info(out)?.scalar_type;
    number_type(out, found)?;
    Ok(Plan::new(invoke))
}

/// Converts a scalar to an element.
fn element<T: Number>(value: Value) -> T {
    match value {
        Value::Double(value) => T::from_f64(value),
        Value::Int(_) | Value::Bool(_) => T::from_i64(value.to_i64()),
    }
}

/// The first element of a tensor as a scalar.
pub(crate) fn first_scalar(ctx: &Invoke, arg: usize) -> Result<Value, KernelError> {
    let tensor = ctx.tensor(arg)?;
    let empty = KernelError::argument(arg, "expected at least one element");
    with_number!(tensor.scalar_type, |T| {
        let value = *tensor.data::<T>()?.first().ok_or(empty)?;
        Ok(match tensor.scalar_type {
            ScalarType::Bool => Value::Bool(value.to_i64() != 0),
            other if other.is_floating() => Value::Double(value.to_f64()),
            _ => Value::Int(value.to_i64()),
        })
    }, else Err(unsupported(arg, tensor.scalar_type)))
}

/// Minimum number of elements per thread.
const GRAIN: usize = 64 * 1024;

/// Fills an output with a value.
fn fill(ctx: &mut Invoke, out: usize, value: Value) -> Result<(), KernelError> {
    let out = ctx.out(out)?;
    let scalar_type = out.scalar_type;
    with_number!(scalar_type, |T| {
        let value = element::<T>(value);
        for_each_chunk_mut(ctx.parallel(), out.into_data::<T>()?, GRAIN, &|_, part: &mut [T]| {
            part.fill(value);
        });
    }, else ());
    Ok(())
}

/// Number of values from `start` to before `end` in steps of `step`; `None` if it is undefined or
/// too large.
fn steps(start: Value, end: Value, step: Value) -> Option<i32> {
    if let (Value::Int(start), Value::Int(end), Value::Int(step)) = (start, end, step) {
        let distance = i128::from(end) - i128::from(start);
        let step = i128::from(step);
        if step == 0 || distance != 0 && (distance < 0) != (step < 0) {
            return None;
        }
        return i32::try_from((distance.abs() + step.abs() - 1) / step.abs()).ok();
    }
    let steps = (end.to_f64() - start.to_f64()) / step.to_f64();
    // A zero step yields NaN or infinity, which the range check rejects.
    if !(0.0..=f64::from(i32::MAX)).contains(&steps) {
        return None;
    }
    let whole = steps as i32;
    if f64::from(whole) < steps { whole.checked_add(1) } else { Some(whole) }
}

fn prepare_range(
    ctx: &mut Prepare,
    out: usize,
    bounds: impl Fn(&Prepare) -> Result<(Value, Value, Value), KernelError>,
) -> Result<(), KernelError> {
    let (start, end, step) = bounds(ctx)?;
    let what = "expected a nonzero step that leads from start to end, and less than 2^31 elements";
    let count = steps(start, end, step).ok_or(KernelError::argument(out - 1, what))?;
    ctx.resize(out, &[count])?;
    number_type(out, ctx.info(out)?.scalar_type)
}

/// Fills `out` with `start`, `start + step`, and so on. For integer outputs, start and step are
/// truncated, as in PyTorch.
fn range(ctx: &mut Invoke, out: usize, start: Value, step: Value) -> Result<(), KernelError> {
    let out = ctx.out(out)?;
    let scalar_type = out.scalar_type;
    with_number!(scalar_type, |T| {
        let data = out.into_data::<T>()?;
        if scalar_type.is_floating() {
            let (start, step) = (start.to_f64(), step.to_f64());
            for (i, value) in data.iter_mut().enumerate() {
                *value = T::from_f64(start + step * i as f64);
            }
        } else {
            let (mut next, step) = (start.to_i64(), step.to_i64());
            for value in data {
                *value = T::from_i64(next);
                next = next.wrapping_add(step);
            }
        }
    }, else ());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lengths of `torch.arange(start, end, step)`.
    #[test]
    fn range_lengths_match_pytorch() {
        use Value::{Double, Int};
        for (start, end, step, expected) in [
            (Int(0), Int(5), Int(1), Some(5)),
            (Int(0), Int(5), Int(2), Some(3)),
            (Int(5), Int(0), Int(-2), Some(3)),
            (Int(0), Int(0), Int(1), Some(0)),
            (Int(0), Int(5), Int(-1), None),
            (Int(0), Int(5), Int(0), None),
            (Int(i64::MIN), Int(i64::MAX), Int(1), None),
            (Double(0.0), Double(1.0), Double(0.1), Some(10)),
            (Double(0.5), Double(3.5), Double(0.7), Some(5)),
            (Int(0), Double(3.5), Int(1), Some(4)),
            (Int(0), Double(f64::NAN), Int(1), None),
            (Int(0), Double(1.0), Double(0.0), None),
            (Double(0.0), Double(1e300), Double(1e-300), None),
        ] {
            assert_eq!(steps(start, end, step), expected, "{start:?} {end:?} {step:?}");
        }
    }
}
