//! Operators that rearrange the elements of one tensor: each copies a [`View`] of its input.

use super::{bad, same_type, walk_of};
use crate::shape::moves;
use crate::table::{kernels, renamed};
use torchlet_core::Param::{Int, IntList, OptionalInt, Out, OutList, Tensor};
use torchlet_core::layout::MAX_RANK;
use torchlet_core::rules::{View, view_sizes};
use torchlet_core::{
    Arguments, Elements, Invoke, InvokeFn, Kernel, KernelError, Plan, Prepare, TensorInfo,
};

/// A kernel that copies a view of argument 0 into argument `$out`.
macro_rules! view_copy {
    ($operator:literal, [$($param:expr),*], $out:literal, $rule:path) => {
        Kernel::new($operator, &[$($param),*], |ctx| {
            prepare(ctx, $out, $rule, |ctx| invoke(ctx, $out, $rule))
        })
        .with_elements(Elements::Moved)
    };
}

kernels! { VIEWS:
    /// `aten::permute_copy.out(self, dims, out)`: permutes the dims.
    PERMUTE_COPY_OUT = view_copy!("aten::permute_copy.out", [Tensor, IntList, Out], 2, permute);
    /// `aten::transpose_copy.int_out(self, dim0, dim1, out)`: swaps two dims.
    TRANSPOSE_COPY_INT_OUT =
        view_copy!("aten::transpose_copy.int_out", [Tensor, Int, Int, Out], 3, transpose);
    /// `aten::t_copy.out(self, out)`: transposes at most two dims.
    T_COPY_OUT = view_copy!("aten::t_copy.out", [Tensor, Out], 1, t);
    /// `aten::squeeze_copy.dim_out(self, dim, out)`: removes a dim if its size is 1.
    SQUEEZE_COPY_DIM_OUT =
        view_copy!("aten::squeeze_copy.dim_out", [Tensor, Int, Out], 2, squeeze_dim);
    /// `aten::squeeze_copy.dims_out(self, dims, out)`: removes those of the given dims whose size
    /// is 1.
    SQUEEZE_COPY_DIMS_OUT =
        view_copy!("aten::squeeze_copy.dims_out", [Tensor, IntList, Out], 2, squeeze_dims);
    /// `aten::squeeze_copy.out(self, out)`: removes all dims of size 1.
    SQUEEZE_COPY_OUT = view_copy!("aten::squeeze_copy.out", [Tensor, Out], 1, squeeze);
    /// `aten::unsqueeze_copy.out(self, dim, out)`: inserts a dim of size 1.
    UNSQUEEZE_COPY_OUT = view_copy!("aten::unsqueeze_copy.out", [Tensor, Int, Out], 2, unsqueeze);
    /// `aten::expand_copy.out(self, size, implicit, out)`: broadcasts to a shape.
    EXPAND_COPY_OUT = view_copy!(
        "aten::expand_copy.out", [Tensor, IntList, torchlet_core::Param::Bool, Out], 3, expand
    );
    /// `aten::slice_copy.Tensor_out(self, dim, start, end, step, out)`: every `step`-th index of
    /// `dim` from `start` to before `end`.
    SLICE_COPY_TENSOR_OUT = view_copy!(
        "aten::slice_copy.Tensor_out", [Tensor, Int, OptionalInt, OptionalInt, Int, Out], 5, slice
    );
    /// `aten::select_copy.int_out(self, dim, index, out)`: one index of `dim`, which is removed.
    SELECT_COPY_INT_OUT =
        view_copy!("aten::select_copy.int_out", [Tensor, Int, Int, Out], 3, select);
    /// `aten::narrow_copy.out(self, dim, start, length, out)`: `length` indices of `dim` from
    /// `start` on.
    NARROW_COPY_OUT = view_copy!("aten::narrow_copy.out", [Tensor, Int, Int, Int, Out], 4, narrow);
    /// `aten::diagonal_copy.out(self, offset, dim1, dim2, out)`: the diagonal of two dims, as the
    /// last dim.
    DIAGONAL_COPY_OUT =
        view_copy!("aten::diagonal_copy.out", [Tensor, Int, Int, Int, Out], 4, diagonal);
    /// `aten::unfold_copy.out(self, dimension, size, step, out)`: sliding windows over a dim; the
    /// window contents become the last dim.
    UNFOLD_COPY_OUT = view_copy!("aten::unfold_copy.out", [Tensor, Int, Int, Int, Out], 4, unfold);
    /// `aten::as_strided_copy.out(self, size, stride, storage_offset, out)`: a view with the given
    /// sizes and strides.
    AS_STRIDED_COPY_OUT = view_copy!(
        "aten::as_strided_copy.out", [Tensor, IntList, IntList, OptionalInt, Out], 4, as_strided
    );
    /// `aten::flip.out(self, dims, out)`: reverses dims.
    FLIP_OUT = view_copy!("aten::flip.out", [Tensor, IntList, Out], 2, flip);
    /// `aten::view_as_real_copy.out(self, out)`: complex values as pairs of real and imaginary
    /// parts, in a new last dim.
    VIEW_AS_REAL_COPY_OUT = Kernel::new("aten::view_as_real_copy.out", &[Tensor, Out], |ctx| {
        use torchlet_core::ScalarType as S;
        let view = view_as_real(ctx)?;
        ctx.resize(1, view.sizes())?;
        let (from, found) = (ctx.info(0)?.scalar_type, ctx.info(1)?.scalar_type);
        let fits = matches!(
            (from, found),
            (S::ComplexHalf, S::Half) | (S::ComplexFloat, S::Float) | (S::ComplexDouble, S::Double)
        );
        if !fits {
            return Err(KernelError::scalar_type(1, found));
        }
        Ok(Plan::new(|ctx| {
            let view = view_as_real(ctx)?;
            let (input, out) = (ctx.tensor(0)?, ctx.out(1)?);
            let walk = walk_of(out.info(), &view)?;
            let size = out.scalar_type.size();
            moves::copy(ctx.parallel(), size, &walk, input.bytes(), out.into_bytes());
            Ok(())
        }))
    });
    /// `aten::_reshape_alias_copy.out(self, size, stride, out)`: like [`VIEW_COPY_OUT`]; `out`
    /// keeps the strides that the exporter planned.
    RESHAPE_ALIAS_COPY_OUT =
        Kernel::new("aten::_reshape_alias_copy.out", &[Tensor, IntList, IntList, Out], |ctx| {
            let sizes = view_sizes(ctx.info(0)?.numel(), &ctx.ints(1)?)
                .ok_or(bad(1, "expected a shape with as many elements as the input"))?;
            ctx.resize(3, &sizes)?;
            same_type(ctx, 0, 3)?;
            Ok(Plan::new(|ctx| {
                let (input, out) = (ctx.tensor(0)?, ctx.out(3)?);
                let to = out.info().clone();
                reshape(ctx, input.info(), input.bytes(), &to, out.into_bytes())
            }))
        });
    /// `aten::view_as_complex_copy.out(self, out)`: complex values from the pairs of real and
    /// imaginary parts in the last dim.
    VIEW_AS_COMPLEX_COPY_OUT = Kernel::new("aten::view_as_complex_copy.out", &[Tensor, Out], |ctx| {
        use torchlet_core::ScalarType as S;
        let (input, found) = (ctx.info(0)?, ctx.info(1)?.scalar_type);
        let Some((2, sizes)) = input.sizes.split_last() else {
            return Err(bad(0, "last dim: expected size 2"));
        };
        ctx.resize(1, sizes)?;
        let fits = matches!(
            (input.scalar_type, found),
            (S::Half, S::ComplexHalf) | (S::Float, S::ComplexFloat) | (S::Double, S::ComplexDouble)
        );
        if !fits {
            return Err(KernelError::scalar_type(1, found));
        }
        Ok(Plan::new(|ctx| {
            let (input, out) = (ctx.tensor(0)?, ctx.out(1)?);
            // View of the output as pairs of real and imaginary parts.
            let mut pairs = out.info().clone();
            pairs.scalar_type = input.scalar_type;
            let deep = KernelError::rank(0, input.rank());
            let last = u8::try_from(pairs.rank()).map_err(|_| deep.clone())?;
            pairs.sizes.push(2).map_err(|_| deep.clone())?;
            pairs.dim_order.push(last).map_err(|_| deep)?;
            let view = View::of(input.info()).ok_or(bad(0, "shape is too large"))?;
            let walk = walk_of(&pairs, &view)?;
            let size = input.scalar_type.size();
            moves::copy(ctx.parallel(), size, &walk, input.bytes(), out.into_bytes());
            Ok(())
        }))
    });
    /// `aten::view_copy.out(self, size, out)`: the elements in row-major order in another shape.
    VIEW_COPY_OUT = Kernel::new("aten::view_copy.out", &[Tensor, IntList, Out], |ctx| {
        let sizes = view_sizes(ctx.info(0)?.numel(), &ctx.ints(1)?)
            .ok_or(bad(1, "expected a shape with as many elements as the input"))?;
        ctx.resize(2, &sizes)?;
        same_type(ctx, 0, 2)?;
        Ok(Plan::new(|ctx| {
            let (input, out) = (ctx.tensor(0)?, ctx.out(2)?);
            let (from, to) = (input.info().clone(), out.info().clone());
            reshape(ctx, &from, input.bytes(), &to, out.into_bytes())
        }))
    })
    .with_elements(Elements::Moved);
    /// `aten::split_copy.Tensor_out(self, split_size, dim, out)`: parts of size `split_size`; the
    /// last may be smaller.
    SPLIT_COPY_TENSOR_OUT =
        Kernel::new("aten::split_copy.Tensor_out", &[Tensor, Int, Int, OutList], |ctx| {
            let (part, size) = (ctx.int(1)?, dim_size(ctx, ctx.int(2)?, 2)?);
            // PyTorch returns one part for a size of 0, which is only valid for an empty dim.
            let parts = match part {
                0 if size == 0 => 1,
                1.. => (size / part + i64::from(size % part != 0)).max(1),
                _ => return Err(bad(1, "split size: expected at least 1")),
            };
            let parts = usize::try_from(parts).map_err(|_| bad(1, "too many parts"))?;
            prepare_parts(ctx, 3, parts, split, |ctx| invoke_parts(ctx, 3, split))
        });
    /// `aten::unsafe_split.Tensor_out(self, split_size, dim, out)`: alias of
    /// [`SPLIT_COPY_TENSOR_OUT`].
    UNSAFE_SPLIT_TENSOR_OUT = renamed(SPLIT_COPY_TENSOR_OUT, "aten::unsafe_split.Tensor_out");
    /// `aten::split_with_sizes_copy.out(self, split_sizes, dim, out)`: parts of the given sizes.
    SPLIT_WITH_SIZES_COPY_OUT =
        Kernel::new("aten::split_with_sizes_copy.out", &[Tensor, IntList, Int, OutList], |ctx| {
            let parts = ctx.list_len(1)?;
            let mut sum = 0i64;
            for position in 0..parts {
                sum = sum.saturating_add(ctx.list_int(1, position)?);
            }
            if sum != dim_size(ctx, ctx.int(2)?, 2)? {
                return Err(bad(1, "split sizes: expected the size of the dim as their sum"));
            }
            prepare_parts(ctx, 3, parts, split_sizes, |ctx| invoke_parts(ctx, 3, split_sizes))
        });
    /// `aten::unbind_copy.int_out(self, dim, out)`: one output for each index of `dim`, which is
    /// removed.
    UNBIND_COPY_INT_OUT = Kernel::new("aten::unbind_copy.int_out", &[Tensor, Int, OutList], |ctx| {
        let parts = dim_size(ctx, ctx.int(1)?, 1)?;
        let parts = usize::try_from(parts).map_err(|_| bad(1, "the dim has too many indices"))?;
        prepare_parts(ctx, 2, parts, unbind, |ctx| invoke_parts(ctx, 2, unbind))
    });
}

/// Function that returns the view of the input that an operator copies.
type Rule = fn(&Arguments) -> Result<View, KernelError>;

pub(crate) fn prepare(
    ctx: &mut Prepare,
    out: usize,
    rule: Rule,
    invoke: InvokeFn,
) -> Result<Plan, KernelError> {
    let view = rule(ctx)?;
    ctx.resize(out, view.sizes())?;
    same_type(ctx, 0, out)?;
    Ok(Plan::new(invoke))
}

pub(crate) fn invoke(ctx: &mut Invoke, out: usize, rule: Rule) -> Result<(), KernelError> {
    let view = rule(ctx)?;
    let (input, out) = (ctx.tensor(0)?, ctx.out(out)?);
    let walk = walk_of(out.info(), &view)?;
    let size = input.scalar_type.size();
    moves::copy(ctx.parallel(), size, &walk, input.bytes(), out.into_bytes());
    Ok(())
}

/// Returns the unchanged input as a view.
pub(crate) fn input(ctx: &Arguments) -> Result<View, KernelError> {
    View::of(&ctx.info(0)?).ok_or(bad(0, "shape is too large"))
}

fn permute(ctx: &Arguments) -> Result<View, KernelError> {
    input(ctx)?.permute(&ctx.ints(1)?).ok_or(bad(1, "expected a permutation of the dims"))
}

fn transpose(ctx: &Arguments) -> Result<View, KernelError> {
    input(ctx)?
        .transpose(ctx.int(1)?, ctx.int(2)?)
        .ok_or(bad(1, "the dim in this or the next argument is out of range"))
}

fn t(ctx: &Arguments) -> Result<View, KernelError> {
    let view = input(ctx)?;
    match view.rank() {
        0 | 1 => Ok(view),
        2 => view.transpose(0, 1).ok_or(bad(0, "expected at most 2 dims")),
        found => Err(KernelError::rank(0, found)),
    }
}

fn squeeze_dim(ctx: &Arguments) -> Result<View, KernelError> {
    input(ctx)?.squeeze(&[ctx.int(1)?]).ok_or(bad(1, "dim is out of range for the input"))
}

fn squeeze(ctx: &Arguments) -> Result<View, KernelError> {
    let view = input(ctx)?;
    let dims: heapless::Vec<i64, MAX_RANK> = (0..view.rank() as i64).collect();
    view.squeeze(&dims).ok_or(bad(0, "internal error: the dims cannot be squeezed"))
}

fn squeeze_dims(ctx: &Arguments) -> Result<View, KernelError> {
    input(ctx)?.squeeze(&ctx.ints(1)?).ok_or(bad(1, "dims are repeated or out of range"))
}

fn unsqueeze(ctx: &Arguments) -> Result<View, KernelError> {
    input(ctx)?.unsqueeze(ctx.int(1)?).ok_or(bad(1, "dim is out of range for the input"))
}

fn expand(ctx: &Arguments) -> Result<View, KernelError> {
    input(ctx)?.expand(&ctx.ints(1)?).ok_or(bad(1, "the input does not broadcast to this shape"))
}

fn slice(ctx: &Arguments) -> Result<View, KernelError> {
    let (dim, step) = (ctx.int(1)?, ctx.int(4)?);
    let (start, end) = (ctx.optional_int(2)?, ctx.optional_int(3)?);
    let view = input(ctx)?;
    if view.rank() == 0 {
        return Err(KernelError::rank(0, 0));
    }
    view.slice(dim, start, end, step)
        .ok_or(bad(1, "dim is out of range for the input, or step is not positive"))
}

fn select(ctx: &Arguments) -> Result<View, KernelError> {
    input(ctx)?
        .select(ctx.int(1)?, ctx.int(2)?)
        .ok_or(bad(2, "dim or index is out of range for the input"))
}

fn narrow(ctx: &Arguments) -> Result<View, KernelError> {
    let view = input(ctx)?;
    if view.rank() == 0 {
        return Err(KernelError::rank(0, 0));
    }
    view.narrow(ctx.int(1)?, ctx.int(2)?, ctx.int(3)?)
        .ok_or(bad(2, "start and length exceed the dim"))
}

fn diagonal(ctx: &Arguments) -> Result<View, KernelError> {
    input(ctx)?
        .diagonal(ctx.int(1)?, ctx.int(2)?, ctx.int(3)?)
        .ok_or(bad(2, "diagonal: expected two different dims in range"))
}

fn unfold(ctx: &Arguments) -> Result<View, KernelError> {
    input(ctx)?
        .unfold(ctx.int(1)?, ctx.int(2)?, ctx.int(3)?)
        .ok_or(bad(2, "unfold: the size exceeds the dim, or the step is not positive"))
}

fn as_strided(ctx: &Arguments) -> Result<View, KernelError> {
    let (sizes, strides) = (ctx.ints(1)?, ctx.ints(2)?);
    let offset = ctx.optional_int(3)?.unwrap_or(0);
    View::as_strided(ctx.info(0)?.numel(), &sizes, &strides, offset)
        .ok_or(bad(2, "the strided view exceeds the input"))
}

fn flip(ctx: &Arguments) -> Result<View, KernelError> {
    input(ctx)?.flip(&ctx.ints(1)?).ok_or(bad(1, "dims are repeated or out of range"))
}

fn view_as_real(ctx: &Arguments) -> Result<View, KernelError> {
    let view = input(ctx)?;
    let rank = KernelError::rank(0, view.rank());
    view.view_as_real().ok_or(rank)
}

/// Copies elements in row-major order between shapes of equal numel.
pub(crate) fn reshape(
    ctx: &Invoke,
    from: &TensorInfo,
    input: &[u8],
    to: &TensorInfo,
    out: &mut [u8],
) -> Result<(), KernelError> {
    let wrong = bad(0, "internal error: input and output differ in their number of elements");
    if from.numel() != to.numel() {
        return Err(wrong);
    }
    let size = from.scalar_type.size();
    // Contiguous memory can be viewed in any shape, so the walk uses the shape of the other side.
    let contiguous = |info: &TensorInfo| {
        TensorInfo::contiguous(info.scalar_type, &info.sizes).ok_or(bad(0, "shape is too large"))
    };
    let walk = if to.is_contiguous() {
        walk_of(&contiguous(from)?, &View::of(from).ok_or(wrong)?)?
    } else if from.is_contiguous() {
        walk_of(to, &View::of(&contiguous(to)?).ok_or(wrong)?)?
    } else {
        moves::by_size!(size, |E| reshape_slow::<E>(
            from,
            moves::items(input),
            to,
            moves::items_mut(out)
        ));
        return Ok(());
    };
    moves::copy(ctx.parallel(), size, &walk, input, out);
    Ok(())
}

fn reshape_slow<E: moves::Item>(from: &TensorInfo, input: &[E], to: &TensorInfo, out: &mut [E]) {
    for index in 0..to.numel() {
        let (at, target) = (position(from, index), position(to, index));
        if let (Some(value), Some(target)) = (input.get(at), out.get_mut(target)) {
            *target = *value;
        }
    }
}

/// Returns the memory position of the element with this row-major index.
pub(crate) fn position(info: &TensorInfo, index: usize) -> usize {
    let (mut rest, mut at) = (index, 0usize);
    for (&size, &stride) in info.sizes.iter().zip(&info.strides()).rev() {
        let size = usize::try_from(size).unwrap_or(1).max(1);
        at = at.wrapping_add((rest % size).wrapping_mul(stride));
        rest /= size;
    }
    at
}

/// Function that returns the view of the input for one of a list of outputs.
///
/// Arguments: the index of the output, and state that holds the start of the next part.
type PartRule = fn(&Arguments, usize, &mut i64) -> Result<View, KernelError>;

fn prepare_parts(
    ctx: &mut Prepare,
    out: usize,
    parts: usize,
    rule: PartRule,
    invoke: InvokeFn,
) -> Result<Plan, KernelError> {
    if ctx.list_len(out)? != parts {
        return Err(bad(out, "expected an output per part"));
    }
    let scalar_type = ctx.info(0)?.scalar_type;
    let mut next = 0;
    for position in 0..parts {
        let view = rule(ctx, position, &mut next)?;
        ctx.resize_item(out, position, view.sizes())?;
        let item = ctx.list_info(out, position)?.ok_or(bad(out, "a tensor is missing"))?;
        if item.scalar_type != scalar_type {
            return Err(KernelError::scalar_type(out, item.scalar_type));
        }
    }
    Ok(Plan::new(invoke))
}

fn invoke_parts(ctx: &mut Invoke, out: usize, rule: PartRule) -> Result<(), KernelError> {
    let input = ctx.tensor(0)?;
    let size = input.scalar_type.size();
    let mut next = 0;
    for position in 0..ctx.list_len(out)? {
        let view = rule(ctx, position, &mut next)?;
        let part = ctx.list_out(out, position)?;
        let walk = walk_of(part.info(), &view)?;
        moves::copy(ctx.parallel(), size, &walk, input.bytes(), part.into_bytes());
    }
    Ok(())
}

fn dim_size(ctx: &Arguments, dim: i64, arg: usize) -> Result<i64, KernelError> {
    let info = ctx.info(0)?;
    let dim = torchlet_core::rules::normalize_dim(dim, info.rank());
    let size = dim.and_then(|dim| info.sizes.get(dim));
    size.map(|&size| i64::from(size)).ok_or(bad(arg, "dim is out of range for the input"))
}

fn split(ctx: &Arguments, _: usize, next: &mut i64) -> Result<View, KernelError> {
    let (part, dim) = (ctx.int(1)?, ctx.int(2)?);
    let start = *next;
    let len = part.min(dim_size(ctx, dim, 2)?.saturating_sub(start));
    *next = start.saturating_add(len);
    input(ctx)?
        .narrow(dim, start, len)
        .ok_or(bad(1, "split sizes exceed the dim, or dim is out of range"))
}

fn split_sizes(ctx: &Arguments, position: usize, next: &mut i64) -> Result<View, KernelError> {
    let (start, len) = (*next, ctx.list_int(1, position)?);
    *next = start.saturating_add(len);
    input(ctx)?
        .narrow(ctx.int(2)?, start, len)
        .ok_or(bad(1, "split sizes exceed the dim, or dim is out of range"))
}

fn unbind(ctx: &Arguments, position: usize, _: &mut i64) -> Result<View, KernelError> {
    let wrong = bad(1, "dim is out of range for the input");
    let index = i64::try_from(position).map_err(|_| wrong.clone())?;
    input(ctx)?.select(ctx.int(1)?, index).ok_or(wrong)
}
