//! Gradients of reflection and replication padding in plain loops: each output gradient is added to
//! the input element that the output copied.

use super::backward::{feature_map, for_each, shape_mismatch};
use super::feature_map::{DIMS, SPACE};
use super::pool::Pooled;
use super::pool_backward::{add, instances, position, prepare};
use crate::number::load;
use crate::shape::maps::Map;
use crate::shape::padding::{before, edge_sizes, pads};
use crate::table::kernels;
use torchlet_core::Param::{IntList, Out, Tensor};
use torchlet_core::{Invoke, Kernel, KernelError};

/// A kernel `(grad_output, self, padding, grad_input)` for the last `$dims` dims.
macro_rules! pad_edges_backward {
    ($operator:literal, $dims:literal, $map:ident) => {{
        fn invoke<C: Pooled, const RANK: usize>(ctx: &mut Invoke) -> Result<(), KernelError> {
            to_copied::<C>(ctx, RANK, |len, before| Map::$map { len, before })
        }
        Kernel::new($operator, &[Tensor, Tensor, IntList, Out], |ctx| {
            let reflects = matches!(Map::$map { len: 1, before: 0 }, Map::Reflect { .. });
            if edge_sizes(ctx, [1, 2], $dims, reflects)? != ctx.info(0)?.sizes {
                return Err(shape_mismatch(0));
            }
            prepare(ctx, 3, instances!(invoke, $dims))
        })
    }};
}

kernels! { PADDING_BACKWARD:
    /// `aten::reflection_pad1d_backward.grad_input(grad_output, self, padding, grad_input)`: the
    /// gradient of the padded input.
    REFLECTION_PAD1D_BACKWARD_GRAD_INPUT =
        pad_edges_backward!("aten::reflection_pad1d_backward.grad_input", 1, Reflect);
    /// `aten::reflection_pad2d_backward.grad_input(grad_output, self, padding, grad_input)`: the
    /// gradient of the padded input.
    REFLECTION_PAD2D_BACKWARD_GRAD_INPUT =
        pad_edges_backward!("aten::reflection_pad2d_backward.grad_input", 2, Reflect);
    /// `aten::reflection_pad3d_backward.grad_input(grad_output, self, padding, grad_input)`: the
    /// gradient of the padded input.
    REFLECTION_PAD3D_BACKWARD_GRAD_INPUT =
        pad_edges_backward!("aten::reflection_pad3d_backward.grad_input", 3, Reflect);
    /// `aten::replication_pad1d_backward.grad_input(grad_output, self, padding, grad_input)`: the
    /// gradient of the padded input.
    REPLICATION_PAD1D_BACKWARD_GRAD_INPUT =
        pad_edges_backward!("aten::replication_pad1d_backward.grad_input", 1, Replicate);
    /// `aten::replication_pad2d_backward.grad_input(grad_output, self, padding, grad_input)`: the
    /// gradient of the padded input.
    REPLICATION_PAD2D_BACKWARD_GRAD_INPUT =
        pad_edges_backward!("aten::replication_pad2d_backward.grad_input", 2, Replicate);
    /// `aten::replication_pad3d_backward.grad_input(grad_output, self, padding, grad_input)`: the
    /// gradient of the padded input.
    REPLICATION_PAD3D_BACKWARD_GRAD_INPUT =
        pad_edges_backward!("aten::replication_pad3d_backward.grad_input", 3, Replicate);
}

fn to_copied<C: Pooled>(
    ctx: &mut Invoke,
    rank: usize,
    map: fn(usize, isize) -> Map,
) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let (grad, pads) = (ctx.tensor(0)?, pads(ctx, 2)?);
    let from = feature_map(&grad, rank, 0)?;
    let target = ctx.out(3)?;
    let to = feature_map(&target, rank, 3)?;
    let maps: [Map; DIMS] = core::array::from_fn(|dim| match before(&pads, DIMS, dim) {
        Some(before) => map(to.sizes[dim], before),
        None => Map::Same,
    });
    let scalar_type = grad.scalar_type;
    let bytes = target.into_bytes();
    bytes.fill(0);
    let mut outside = false;
    for_each(from.sizes, |index| {
        let mut seen = index;
        for dim in SPACE..DIMS {
            match maps[dim].input_index(index[dim]).filter(|&at| at < to.sizes[dim]) {
                Some(at) => seen[dim] = at,
                None => outside = true,
            }
        }
        if !outside {
            let mut value = [C::default()];
            load(scalar_type, grad.bytes(), position(&from, index) as isize, 0, &mut value);
            add(scalar_type, bytes, position(&to, seen), value[0]);
        }
    });
    if outside { Err(shape_mismatch(0)) } else { Ok(()) }
}
