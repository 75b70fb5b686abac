//! Operators on blocks of elements: pixel shuffle, triangular matrices, GLU, repeated indices.

use super::moves::{Item, by_size, copy, items_mut};
use super::views::{input, position};
use super::{bad, same_type, steps_of, walk_of};
use crate::map::{Two, map_tensors};
use crate::number::{Compute, ComputeType, unsupported};
use crate::table::kernels;
use crate::walk::Walk;
use torchlet_core::Param::{Int, OptionalInt, Out, Tensor};
use torchlet_core::layout::{DimOrder, Sizes};
use torchlet_core::rules::{View, normalize_dim};
use torchlet_core::{
    Arguments, Invoke, Kernel, KernelError, Plan, Prepare, ScalarType, TensorInfo, TensorRef,
};

kernels! { BLOCKS:
    /// `aten::pixel_shuffle.out(self, upscale_factor, out)`: moves channels to pixels.
    PIXEL_SHUFFLE_OUT = Kernel::new("aten::pixel_shuffle.out", &[Tensor, Int, Out], |ctx| {
        let ([channels, height, width], factor) = pixels(ctx)?;
        let divided = (channels % (factor * factor) == 0).then_some(channels / (factor * factor));
        let larger = |size: i64| size.checked_mul(factor);
        prepare_pixels(ctx, [divided, larger(height), larger(width)])?;
        Ok(Plan::new(|ctx| {
            // Output: batch…, channels, height, i, width, j; input: batch…, channels, i, j, height,
            // width.
            let factor = pixels(ctx)?.1;
            let (input, out) = (ctx.tensor(0)?, ctx.out(2)?);
            let (rank, inner) = (input.rank(), usize::try_from(factor).unwrap_or(1));
            let deep = KernelError::rank(0, rank);
            let from = divide(input.info(), rank - 3, inner * inner)
                .and_then(|info| divide(&info, rank - 2, inner));
            let to =
                divide(out.info(), rank - 1, inner).and_then(|info| divide(&info, rank - 2, inner));
            rearrange(ctx, &input, from, to, out.into_bytes(), &[0, 3, 1, 4, 2]).ok_or(deep)
        }))
    });
    /// `aten::pixel_unshuffle.out(self, downscale_factor, out)`: moves pixels to channels.
    PIXEL_UNSHUFFLE_OUT = Kernel::new("aten::pixel_unshuffle.out", &[Tensor, Int, Out], |ctx| {
        let ([channels, height, width], factor) = pixels(ctx)?;
        let smaller = |size: i64| (size % factor == 0).then_some(size / factor);
        let more = factor.checked_mul(factor).and_then(|square| square.checked_mul(channels));
        prepare_pixels(ctx, [more, smaller(height), smaller(width)])?;
        Ok(Plan::new(|ctx| {
            let factor = pixels(ctx)?.1;
            let (input, out) = (ctx.tensor(0)?, ctx.out(2)?);
            let (rank, inner) = (input.rank(), usize::try_from(factor).unwrap_or(1));
            let deep = KernelError::rank(0, rank);
            let from = divide(input.info(), rank - 1, inner)
                .and_then(|info| divide(&info, rank - 2, inner));
            let to = divide(out.info(), rank - 3, inner * inner)
                .and_then(|info| divide(&info, rank - 2, inner));
            rearrange(ctx, &input, from, to, out.into_bytes(), &[0, 2, 4, 1, 3]).ok_or(deep)
        }))
    });
    /// `preprocess::tile_crop.out(input, tile_size, out)`: splits an image
    /// `[channels, height, width]` into square tiles `[tile, channels, row, column]`, in row-major
    /// order of the tiles.
    TILE_CROP_OUT = Kernel::new("preprocess::tile_crop.out", &[Tensor, Int, Out], |ctx| {
        let info = ctx.info(0)?;
        let &[channels, height, width] = &info.sizes[..] else {
            return Err(KernelError::rank(0, info.rank()));
        };
        let divides = |tile: &i32| *tile > 0 && height % tile == 0 && width % tile == 0;
        let tile = i32::try_from(ctx.int(1)?).ok().filter(divides);
        let tile = tile.ok_or(bad(1, "tile size: expected a positive divisor of height and \
                                      width"))?;
        let tiles = (height / tile).checked_mul(width / tile).ok_or(bad(0, "more than 2^31 - 1 \
                                                                            tiles"))?;
        ctx.resize(2, &[tiles, channels, tile, tile])?;
        same_type(ctx, 0, 2)?;
        Ok(Plan::new(|ctx| {
            let (input, out) = (ctx.tensor(0)?, ctx.out(2)?);
            let deep = KernelError::rank(0, input.rank());
            let tile = usize::try_from(ctx.int(1)?).unwrap_or(1).max(1);
            let from = divide(input.info(), 2, tile).and_then(|info| divide(&info, 1, tile));
            let to = divide(out.info(), 0, input.size(2) / tile);
            // Output: tile row, tile column, channels, row, column; input: channels, tile row, row,
            // tile column, column.
            rearrange(ctx, &input, from, to, out.into_bytes(), &[1, 3, 0, 2, 4]).ok_or(deep)
        }))
    });
    /// `aten::tril.out(self, diagonal, out)`: zeroes the elements above the diagonal.
    TRIL_OUT = Kernel::new("aten::tril.out", &[Tensor, Int, Out], |ctx| {
        prepare_triangle(ctx)?;
        Ok(Plan::new(|ctx| triangle(ctx, true)))
    });
    /// `aten::triu.out(self, diagonal, out)`: zeroes the elements below the diagonal.
    TRIU_OUT = Kernel::new("aten::triu.out", &[Tensor, Int, Out], |ctx| {
        prepare_triangle(ctx)?;
        Ok(Plan::new(|ctx| triangle(ctx, false)))
    });
    /// `aten::glu.out(self, dim, out)`: the first half of a dim times the sigmoid of the second
    /// half.
    GLU_OUT = Kernel::new("aten::glu.out", &[Tensor, Int, Out], |ctx| {
        let (first, _) = halves(ctx)?;
        ctx.resize(2, first.sizes())?;
        let (from, to) = (ctx.info(0)?.scalar_type, ctx.info(2)?.scalar_type);
        if !from.is_floating() {
            return Err(unsupported(0, from));
        }
        if !to.is_floating() {
            return Err(unsupported(2, to));
        }
        Ok(Plan::new(match ComputeType::of(from) {
            Some(ComputeType::F64) => |ctx| glu::<f64>(ctx, |x| 1.0 / (1.0 + libm::exp(-x))),
            _ => |ctx| glu::<f32>(ctx, |x| 1.0 / (1.0 + libm::expf(-x))),
        }))
    });
    /// `aten::repeat_interleave.Tensor_out(repeats, output_size, out)`: each index `i`, repeated
    /// `repeats[i]` times.
    REPEAT_INTERLEAVE_TENSOR_OUT =
        Kernel::new("aten::repeat_interleave.Tensor_out", &[Tensor, OptionalInt, Out], |ctx| {
            let (info, out) = (ctx.info(0)?, ctx.info(2)?);
            if info.rank() != 1 || out.rank() != 1 {
                return Err(KernelError::rank(0, info.rank()));
            }
            same_type(ctx, 0, 2)?;
            match info.scalar_type {
                ScalarType::Int => Ok(Plan::new(repeat_interleave::<i32>)),
                ScalarType::Long => Ok(Plan::new(repeat_interleave::<i64>)),
                found => Err(unsupported(0, found)),
            }
        });
}

/// Splits a dim of a tensor in two; the inner one has size `inner`.
fn divide(info: &TensorInfo, dim: usize, inner: usize) -> Option<TensorInfo> {
    let mut result = TensorInfo {
        scalar_type: info.scalar_type,
        sizes: Sizes::new(),
        dim_order: DimOrder::new(),
    };
    for (at, &size) in info.sizes.iter().enumerate() {
        if at == dim {
            let inner = i32::try_from(inner).ok()?;
            result.sizes.push(size.checked_div(inner)?).ok()?;
            result.sizes.push(inner).ok()?;
        } else {
            result.sizes.push(size).ok()?;
        }
    }
    for &at in &info.dim_order {
        result.dim_order.push(if usize::from(at) > dim { at + 1 } else { at }).ok()?;
        if usize::from(at) == dim {
            result.dim_order.push(at + 1).ok()?;
        }
    }
    Some(result)
}

/// Decodes channels, height and width, and the scale factor.
fn pixels(ctx: &Arguments) -> Result<([i64; 3], i64), KernelError> {
    let info = ctx.info(0)?;
    let rank = KernelError::rank(0, info.rank());
    let Some(&[channels, height, width]) = info.sizes.last_chunk::<3>() else {
        return Err(rank);
    };
    let factor = ctx.int(1)?;
    if factor <= 0 || i32::try_from(factor).is_err() {
        return Err(bad(1, "scale factor: expected 1 to 2^31 - 1"));
    }
    Ok(([channels.into(), height.into(), width.into()], factor))
}

fn prepare_pixels(ctx: &mut Prepare, last: [Option<i64>; 3]) -> Result<(), KernelError> {
    let mut sizes = ctx.info(0)?.sizes;
    let misfit = bad(1, "scale factor does not divide the input shape");
    if let Some(target) = sizes.last_chunk_mut::<3>() {
        for (size, last) in target.iter_mut().zip(last) {
            let last = last.and_then(|last| i32::try_from(last).ok());
            *size = last.ok_or(misfit.clone())?;
        }
    }
    ctx.resize(2, &sizes)?;
    same_type(ctx, 0, 2)
}

/// Copies the input to the output, both with split dims. The last dims of the output are those of
/// the input in the given order.
fn rearrange(
    ctx: &Invoke,
    input: &TensorRef,
    from: Option<TensorInfo>,
    to: Option<TensorInfo>,
    out: &mut [u8],
    order: &[usize],
) -> Option<()> {
    let (from, to) = (from?, to?);
    let outer = from.rank().checked_sub(order.len())?;
    let dims: heapless::Vec<i64, 16, u8> = (0..from.rank())
        .map(|dim| match dim.checked_sub(outer).and_then(|dim| order.get(dim)) {
            Some(&other) => (outer + other) as i64,
            None => dim as i64,
        })
        .collect();
    let walk = walk_of(&to, &View::of(&from)?.permute(&dims)?).ok()?;
    copy(ctx.parallel(), input.scalar_type.size(), &walk, input.bytes(), out);
    Some(())
}

fn prepare_triangle(ctx: &mut Prepare) -> Result<(), KernelError> {
    let info = ctx.info(0)?;
    if info.rank() < 2 {
        return Err(KernelError::rank(0, info.rank()));
    }
    ctx.resize(2, &info.sizes)?;
    same_type(ctx, 0, 2)
}

fn triangle(ctx: &mut Invoke, lower: bool) -> Result<(), KernelError> {
    let (view, diagonal) = (input(ctx)?, ctx.int(1)?);
    let (input, out) = (ctx.tensor(0)?, ctx.out(2)?);
    let info = out.info().clone();
    let out = out.into_bytes();
    copy(ctx.parallel(), info.scalar_type.size(), &walk_of(&info, &view)?, input.bytes(), out);
    by_size!(info.scalar_type.size(), |E| clear(&info, items_mut::<E>(out), diagonal, lower));
    Ok(())
}

/// Zeroes the elements above (or below) the diagonal of each matrix.
fn clear<E: Item>(info: &TensorInfo, out: &mut [E], diagonal: i64, lower: bool) {
    let Some(&[rows, columns]) = info.sizes.last_chunk::<2>() else { return };
    let stride = info.strides().last().copied().unwrap_or(1);
    let (rows, columns) = (i64::from(rows), i64::from(columns));
    if info.numel() == 0 {
        return;
    }
    let lines = info.numel() / usize::try_from(columns).unwrap_or(1).max(1);
    for line in 0..lines {
        let row = line as i64 % rows;
        // Start of the zeroed columns for `lower`, otherwise their end.
        let edge = row.saturating_add(diagonal).saturating_add(i64::from(lower)).clamp(0, columns);
        let cleared = if lower { edge..columns } else { 0..edge };
        let at = position(info, line.saturating_mul(columns as usize));
        for column in cleared {
            let out_index = at.saturating_add((column as usize).saturating_mul(stride));
            if let Some(out) = out.get_mut(out_index) {
                *out = E::zeroed();
            }
        }
    }
}

fn halves(ctx: &Arguments) -> Result<(View, View), KernelError> {
    let (info, view) = (ctx.info(0)?, input(ctx)?);
    let odd = bad(1, "expected a dim of even size");
    let dim = ctx.int(1)?;
    let size = normalize_dim(dim, info.rank()).and_then(|dim| info.sizes.get(dim));
    let half = i64::from(*size.filter(|size| **size % 2 == 0).ok_or(odd.clone())?) / 2;
    let first = view.clone().narrow(dim, 0, half);
    first.zip(view.narrow(dim, half, half)).ok_or(odd)
}

fn glu<C: Compute + core::ops::Mul<Output = C>>(
    ctx: &mut Invoke,
    sigmoid: fn(C) -> C,
) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let (first, second) = halves(ctx)?;
    let (input, out) = (ctx.tensor(0)?, ctx.out(2)?);
    let info = out.info().clone();
    let walk = Walk::new(&info, &[steps_of(&first), steps_of(&second)]);
    let tensors = [input.clone(), input];
    map_tensors(ctx, &walk, &tensors, &info, out.into_bytes(), &Two(|a: C, b: C| a * sigmoid(b)));
    Ok(())
}

fn repeat_interleave<T: crate::number::Number>(ctx: &mut Invoke) -> Result<(), KernelError> {
    let repeats = ctx.tensor(0)?;
    let repeats = repeats.data::<T>()?;
    let mut total = 0i64;
    for repeat in repeats {
        let repeat = repeat.to_i64();
        if repeat < 0 {
            return Err(bad(0, "repeats: expected at least 0"));
        }
        total = total.saturating_add(repeat);
    }
    if ctx.optional_int(1)?.is_some_and(|size| size != total) {
        return Err(bad(1, "output_size: expected the sum of the repeats"));
    }
    ctx.resize(
        2,
        &[i32::try_from(total).map_err(|_| bad(0, "repeats add up to more than 2^31 - 1"))?],
    )?;
    let mut out = ctx.out(2)?.into_data::<T>()?.iter_mut();
    for (index, repeat) in repeats.iter().enumerate() {
        let count = usize::try_from(repeat.to_i64()).unwrap_or(0);
        for out in out.by_ref().take(count) {
            *out = T::from_i64(index as i64);
        }
    }
    Ok(())
}
