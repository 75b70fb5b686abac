//! Padding, repeating and rolling.

use super::maps::{Map, Maps};
use super::moves::{by_size, items, items_mut};
use super::{bad, same_type};
use crate::number::{Number, with_number};
use crate::table::kernels;
use torchlet_core::Param::{IntList, Out, Scalar as ScalarParam, Tensor};
use torchlet_core::layout::{MAX_RANK, Sizes};
use torchlet_core::rules::{normalize_dim, pad, repeat};
use torchlet_core::{
    Arguments, Invoke, InvokeFn, Kernel, KernelError, Plan, Prepare, Scalar, ScalarType,
};

/// A kernel that pads the last `$dims` dims with elements of the input.
macro_rules! pad_edges {
    ($operator:literal, $dims:literal, $map:ident) => {
        Kernel::new($operator, &[Tensor, IntList, Out], |ctx| {
            let reflects = matches!(Map::$map { len: 1, before: 0 }, Map::Reflect { .. });
            prepare_edges(ctx, $dims, reflects, |ctx| {
                invoke_pad(ctx, 2, Scalar::Int(0), |len, before| Map::$map { len, before })
            })
        })
    };
}

kernels! { PADDING:
    /// `aten::reflection_pad1d.out(self, padding, out)`: pads by mirroring at the edges, without
    /// repeating them.
    REFLECTION_PAD1D_OUT = pad_edges!("aten::reflection_pad1d.out", 1, Reflect);
    /// `aten::reflection_pad2d.out(self, padding, out)`: pads by mirroring at the edges, without
    /// repeating them.
    REFLECTION_PAD2D_OUT = pad_edges!("aten::reflection_pad2d.out", 2, Reflect);
    /// `aten::reflection_pad3d.out(self, padding, out)`: pads by mirroring at the edges, without
    /// repeating them.
    REFLECTION_PAD3D_OUT = pad_edges!("aten::reflection_pad3d.out", 3, Reflect);
    /// `aten::replication_pad1d.out(self, padding, out)`: pads by repeating the edges.
    REPLICATION_PAD1D_OUT = pad_edges!("aten::replication_pad1d.out", 1, Replicate);
    /// `aten::replication_pad2d.out(self, padding, out)`: pads by repeating the edges.
    REPLICATION_PAD2D_OUT = pad_edges!("aten::replication_pad2d.out", 2, Replicate);
    /// `aten::replication_pad3d.out(self, padding, out)`: pads by repeating the edges.
    REPLICATION_PAD3D_OUT = pad_edges!("aten::replication_pad3d.out", 3, Replicate);
    /// `aten::constant_pad_nd.out(self, pad, value, out)`: pads with a constant value; negative
    /// padding crops.
    CONSTANT_PAD_ND_OUT =
        Kernel::new("aten::constant_pad_nd.out", &[Tensor, IntList, ScalarParam, Out], |ctx| {
            let info = ctx.info(0)?;
            let what = "padding: expected two values for each of at most all dims, and a result of \
                        at least 0 elements per dim";
            let sizes = pad(&info.sizes, &pads(ctx, 1)?).ok_or(bad(1, what))?;
            ctx.resize(3, &sizes)?;
            same_type(ctx, 0, 3)?;
            element_bytes(info.scalar_type, ctx.scalar(2)?)
                .ok_or(KernelError::scalar_type(0, info.scalar_type))?;
            Ok(Plan::new(|ctx| {
                let fill = ctx.scalar(2)?;
                invoke_pad(ctx, 3, fill, |len, before| Map::Pad { len, before })
            }))
        });
    /// `aten::repeat.out(self, repeats, out)`: repeats the tensor over each dim.
    REPEAT_OUT = Kernel::new("aten::repeat.out", &[Tensor, IntList, Out], |ctx| {
        let sizes = repeat(&ctx.info(0)?.sizes, &ctx.ints(1)?)
            .ok_or(bad(1, "repeats: expected an integer of at least 0 per dim"))?;
        ctx.resize(2, &sizes)?;
        same_type(ctx, 0, 2)?;
        Ok(Plan::new(|ctx| {
            let (info, repeats) = (ctx.info(0)?, ctx.ints(1)?);
            let missing = repeats.len().saturating_sub(info.rank());
            invoke_maps(ctx, 2, Scalar::Int(0), &|dim| match dim.checked_sub(missing) {
                Some(own) if repeats.get(dim) == Some(&1) && info.size(own) != 1 => Map::Same,
                Some(own) => Map::Repeat { len: info.size(own) },
                None => Map::Repeat { len: 1 },
            })
        }))
    });
    /// `aten::roll.out(self, shifts, dims, out)`: rotates dims; without `dims`, all elements in
    /// row-major order.
    ROLL_OUT = Kernel::new("aten::roll.out", &[Tensor, IntList, IntList, Out], |ctx| {
        let (info, shifts, dims) = (ctx.info(0)?, ctx.ints(1)?, ctx.ints(2)?);
        if dims.is_empty() && (shifts.len() != 1 || !info.is_contiguous())
            || !dims.is_empty() && dims.len() != shifts.len()
            || dims.iter().any(|&dim| info.rank() == 0 || normalize_dim(dim, info.rank()).is_none())
        {
            let what = "expected a dim per shift, in range; without dims, one shift and a \
                        contiguous input";
            return Err(bad(2, what));
        }
        ctx.resize(3, &info.sizes)?;
        same_type(ctx, 0, 3)?;
        if dims.is_empty() && !ctx.info(3)?.is_contiguous() {
            return Err(KernelError::layout(3));
        }
        Ok(Plan::new(|ctx| {
            let (info, shifts, dims) = (ctx.info(0)?, ctx.ints(1)?, ctx.ints(2)?);
            if dims.is_empty() {
                return roll_flat(ctx, shifts.first().copied().unwrap_or(0));
            }
            invoke_maps(ctx, 3, Scalar::Int(0), &|dim| {
                let len = info.size(dim);
                let mut by = 0;
                for (&shift, &along) in shifts.iter().zip(&dims) {
                    if normalize_dim(along, info.rank()) == Some(dim) {
                        by = (by + wrap(shift, len)) % len.max(1);
                    }
                }
                if by == 0 { Map::Same } else { Map::Roll { len, by } }
            })
        }))
    });
}

/// Converts a scalar to the bytes of an element. `None` for types without arithmetic, unless the
/// scalar is zero.
pub(crate) fn element_bytes(scalar_type: ScalarType, value: Scalar) -> Option<[u8; 16]> {
    let mut bytes = [0; 16];
    with_number!(scalar_type, |T| {
        let value: T = match value {
            Scalar::Int(value) => T::from_i64(value),
            Scalar::Bool(value) => T::from_i64(i64::from(value)),
            Scalar::Double(value) => T::from_f64(value),
        };
        let own = bytemuck::bytes_of(&value);
        bytes.get_mut(..own.len())?.copy_from_slice(own);
    }, else if value.to_f64() != 0.0 {
        return None;
    });
    Some(bytes)
}

/// Fills argument `out` from argument 0 with the maps of its dims.
fn invoke_maps(
    ctx: &mut Invoke,
    out: usize,
    fill: Scalar,
    map: &dyn Fn(usize) -> Map,
) -> Result<(), KernelError> {
    let (input, out) = (ctx.tensor(0)?, ctx.out(out)?);
    let strides = input.strides();
    let missing = out
        .rank()
        .checked_sub(input.rank())
        .ok_or(bad(0, "the input has more dims than the output"))?;
    let maps = Maps::new(out.info(), |dim| {
        let own = dim.checked_sub(missing).and_then(|own| strides.get(own));
        (map(dim), own.copied().unwrap_or(0))
    });
    let fill = element_bytes(input.scalar_type, fill)
        .ok_or(KernelError::scalar_type(0, input.scalar_type))?;
    by_size!(input.scalar_type.size(), |E| {
        let fill = bytemuck::pod_read_unaligned::<E>(
            fill.get(..size_of::<E>()).unwrap_or(&[0; size_of::<E>()]),
        );
        maps.copy::<E>(ctx.parallel(), items(input.bytes()), fill, items_mut(out.into_bytes()));
    });
    Ok(())
}

/// Returns the padding before a dim, from a list that begins with the last dim.
pub(crate) fn before(pads: &[i64], rank: usize, dim: usize) -> Option<isize> {
    let from_end = rank.checked_sub(dim + 1)?;
    pads.get(2 * from_end).and_then(|&pad| isize::try_from(pad).ok())
}

/// Function that returns the map of a dim, from its size and the padding before it.
type PadMap = fn(usize, isize) -> Map;

fn invoke_pad(ctx: &mut Invoke, out: usize, fill: Scalar, map: PadMap) -> Result<(), KernelError> {
    let (info, pads) = (ctx.info(0)?, pads(ctx, 1)?);
    invoke_maps(ctx, out, fill, &|dim| match before(&pads, info.rank(), dim) {
        Some(before) => map(info.size(dim), before),
        None => Map::Same,
    })
}

type Pads = heapless::Vec<i64, { 2 * MAX_RANK }, u8>;

/// Decodes the padding list in argument `arg`.
pub(crate) fn pads(ctx: &Arguments, arg: usize) -> Result<Pads, KernelError> {
    let mut pads = Pads::new();
    for position in 0..ctx.list_len(arg)? {
        pads.push(ctx.list_int(arg, position)?).map_err(|_| {
            bad(arg, "padding: more values than two per dim of the highest supported rank")
        })?;
    }
    Ok(pads)
}

fn prepare_edges(
    ctx: &mut Prepare,
    dims: usize,
    reflects: bool,
    invoke: InvokeFn,
) -> Result<Plan, KernelError> {
    let sizes = edge_sizes(ctx, [0, 1], dims, reflects)?;
    ctx.resize(2, &sizes)?;
    same_type(ctx, 0, 2)?;
    Ok(Plan::new(invoke))
}

/// Shape of argument `input` after padding its last `dims` dims with elements of the input, by the
/// list in argument `list`.
pub(crate) fn edge_sizes(
    ctx: &Arguments,
    [input, list]: [usize; 2],
    dims: usize,
    reflects: bool,
) -> Result<Sizes, KernelError> {
    let (info, pads) = (ctx.info(input)?, pads(ctx, list)?);
    if info.rank() != dims + 1 && info.rank() != dims + 2 {
        return Err(KernelError::rank(input, info.rank()));
    }
    if pads.len() != 2 * dims {
        return Err(bad(list, "padding: expected two integers per padded dim"));
    }
    for (&size, pads) in info.sizes.iter().rev().zip(pads.chunks(2)) {
        let too_much = |&pad: &i64| reflects && pad >= i64::from(size);
        if size == 0 || pads.iter().any(too_much) {
            return Err(bad(list, "padding: the dim is empty, or the reflection exceeds it"));
        }
    }
    pad(&info.sizes, &pads).ok_or(bad(list, "padding: the padded shape is negative or too large"))
}

/// Normalizes a shift to `0..len`.
fn wrap(shift: i64, len: usize) -> usize {
    let len = i64::try_from(len.max(1)).unwrap_or(i64::MAX);
    usize::try_from(shift.rem_euclid(len)).unwrap_or(0)
}

fn roll_flat(ctx: &mut Invoke, shift: i64) -> Result<(), KernelError> {
    let (input, out) = (ctx.tensor(0)?, ctx.out(3)?);
    let size = input.scalar_type.size();
    let by = wrap(shift, input.numel()) * size;
    let (input, out) = (input.bytes(), out.into_bytes());
    if input.len() == out.len() && by <= input.len() {
        let (head, tail) = input.split_at(input.len() - by);
        let (first, second) = out.split_at_mut(by);
        first.copy_from_slice(tail);
        second.copy_from_slice(head);
    }
    Ok(())
}
