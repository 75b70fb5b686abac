//! Selection between two tensors by a condition.

use super::dims::{common_shape, merge_dims};
use super::elementwise::broadcast_strides;
use crate::encoder::{Encoder, read, u32_of, write};
use crate::error::Error;
use crate::tensors::Operand;
use torchlet_graph::graph::ValueId;
use torchlet_graph::operators::WhereArgs;
use torchlet_shaders::{Where, WherePush};

pub(super) fn where_self(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = WhereArgs::of(args)?;
    let operands = [e.tensor(call.condition)?, e.tensor(call.input)?, e.tensor(call.other)?];
    choose(e, args, operands)
}

/// Emits `out = condition ? a : b`, broadcast.
pub(super) fn choose(
    e: &mut Encoder<'_, '_>,
    args: &[ValueId],
    operands: [Operand; 3],
) -> Result<(), Error> {
    let sizes =
        common_shape(operands.iter().map(|operand| &operand.sizes[..])).ok_or_else(|| {
            let [a, b, c] = [&operands[0].sizes, &operands[1].sizes, &operands[2].sizes];
            Error::Invalid(format!("shapes {a:?}, {b:?} and {c:?} do not broadcast"))
        })?;
    let out = e.out(args)?;
    let out = e.resize(out.id, &sizes)?;
    let strides = operands.each_ref().map(|operand| broadcast_strides(operand, sizes.len()));
    let dims = merge_dims(&sizes, &strides)?;
    let mut push = WherePush {
        numel: u32_of(out.numel())?,
        sizes: [1; 6],
        c_strides: [0; 6],
        a_strides: [0; 6],
        b_strides: [0; 6],
    };
    if dims.len() > push.sizes.len() {
        return Err(Error::unsupported(format!(
            "{} dims that cannot be merged; the limit is {}",
            dims.len(),
            push.sizes.len()
        )));
    }
    for (slot, (size, strides)) in (0..push.sizes.len()).rev().zip(dims.iter().rev()) {
        push.sizes[slot] = u32_of(*size)?;
        push.c_strides[slot] = strides[0] as u32;
        push.a_strides[slot] = strides[1] as u32;
        push.b_strides[slot] = strides[2] as u32;
    }
    let [condition, a, b] = &operands;
    let pipeline =
        Where { condition: condition.element, a: a.element, b: b.element, output: out.element };
    let accesses = [read(condition.id), read(a.id), read(b.id), write(out.id)];
    e.dispatch_by_four(&pipeline, accesses, &push, out.numel())
}
