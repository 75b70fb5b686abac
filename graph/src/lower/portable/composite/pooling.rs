//! Pooling over one and three dims.

use super::{Builder, Rule};
use crate::error::Error;
use crate::graph::{Value, ValueId};
use crate::operators::{AdaptivePoolArgs, MaxPoolArgs, Operator};
use alloc::vec::Vec;
use torchlet_core::ScalarType;

pub(in super::super) const RULES: &[(Operator, Rule)] = &[
    (Operator::ADAPTIVE_MAX_POOL1D, adaptive_max_pool1d),
    (Operator::MAX_POOL1D, max_pool1d),
    (Operator::MAX_POOL3D, max_pool3d),
];

/// Adds the indices of a max pooling that returns only values.
fn with_indices(b: &mut Builder<'_, '_>, values: ValueId) -> Result<ValueId, Error> {
    let info = b.info(values)?.with_type(ScalarType::Long);
    let indices = b.new_tensor(info);
    Ok(b.push(Value::List([values, indices].to_vec())))
}

fn max_pool3d(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = MaxPoolArgs::of(args)?;
    let list = with_indices(b, call.out)?;
    b.call_into(Operator::MAX_POOL3D_WITH_INDICES, &call.inputs(), list);
    Ok(())
}

/// Max pooling over one dim is max pooling of images with one row.
fn max_pool1d(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = MaxPoolArgs::of(args)?;
    let rank = b.info(call.input)?.rank();
    let row = rank.saturating_sub(1);
    let input = b.unsqueeze(call.input, row)?;
    let lists =
        [(Some(call.kernel_size), 1), (call.stride, 1), (call.padding, 0), (call.dilation, 1)];
    let mut inputs = [input].to_vec();
    for (list, first) in lists {
        let items = b.ints(list)?;
        // An empty stride is that of the kernel.
        let items: Vec<i64> = match items.first() {
            Some(item) => [first, *item].to_vec(),
            None => items,
        };
        inputs.push(b.new_ints(&items));
    }
    let ceil = b.truth(call.ceil_mode)?;
    inputs.push(b.push(Value::Bool(ceil)));
    squeezed(b, Operator::MAX_POOL2D_WITH_INDICES, &inputs, &[call.out], row)
}

fn adaptive_max_pool1d(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = AdaptivePoolArgs::of(args)?;
    let row = b.info(call.input)?.rank().saturating_sub(1);
    let input = b.unsqueeze(call.input, row)?;
    let size = b.ints(call.output_size)?.first().copied().unwrap_or(1);
    let sizes = b.new_ints(&[1, size]);
    let outs = b.outs(args)?;
    squeezed(b, Operator::ADAPTIVE_MAX_POOL2D, &[input, sizes], &outs, row)
}

/// Calls an operator of images with one row, whose outputs are values and indices, and removes the
/// row.
fn squeezed(
    b: &mut Builder<'_, '_>,
    operator: Operator,
    inputs: &[ValueId],
    outs: &[ValueId],
    row: usize,
) -> Result<(), Error> {
    let first = outs.first().copied().ok_or_else(|| Error::invalid("the call has no output"))?;
    let mut info = b.info(first)?;
    info.sizes.insert(row.min(info.rank()), 1);
    let values = b.new_tensor(info.clone());
    let indices = b.new_tensor(info.with_type(ScalarType::Long));
    let list = b.push(Value::List([values, indices].to_vec()));
    b.call_into(operator, inputs, list);
    for (made, out) in [values, indices].iter().zip(outs) {
        let dim = b.new_int(row as i64);
        b.call_into(Operator::SQUEEZE_COPY_DIM, &[*made, dim], *out);
    }
    Ok(())
}
