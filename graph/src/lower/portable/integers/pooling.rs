//! Lowers int8 pooling.

use super::{Entry, RANGE, no_scratch, on_image};
use crate::error::Error;
use crate::graph::ValueId;
use crate::lower::portable::builder::Builder;
use crate::operators::{MaxPoolArgs, Operator, Q8taAvgPool2dArgs};
use alloc::format;
use alloc::vec::Vec;
use torchlet_core::ScalarType;

pub(super) const RULES: &[Entry] = &[
    (Operator::MAX_POOL2D_WITH_INDICES, largest, Operator::CORTEX_M_QUANTIZED_MAX_POOL2D_NHWC),
    (Operator::Q8TA_AVG_POOL2D, average, Operator::CORTEX_M_QUANTIZED_AVG_POOL2D_NHWC),
];

/// Max pooling without indices: `(input, kernel, stride, padding, dilation, ceil)`.
fn largest(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = MaxPoolArgs::of(args)?;
    let (input, info) = b.tensor(call.input)?;
    let outs = b.outs(args)?;
    let out = *outs.first().ok_or_else(|| Error::invalid("the call has no output tensor"))?;
    if info.scalar_type != ScalarType::Char {
        return Err(Error::Unsupported(format!(
            "max pooling of {}; expected int8",
            info.scalar_type
        )));
    }
    let [low, high] = RANGE;
    let kernel = b.ints(call.kernel_size)?;
    let list = |b: &mut Builder<'_, '_>, id: Option<ValueId>, absent: &[i64]| {
        let items: Vec<i64> = b.ints(id)?;
        Ok::<ValueId, Error>(b.new_ints(if items.is_empty() { absent } else { &items }))
    };
    let mut rest = [
        list(b, Some(call.kernel_size), &kernel)?,
        list(b, call.stride, &kernel)?,
        list(b, call.padding, &[0, 0])?,
        list(b, call.dilation, &[1, 1])?,
    ]
    .to_vec();
    let ceil = b.truth(call.ceil_mode)?;
    rest.push(b.push(crate::graph::Value::Bool(ceil)));
    // Input and output have the same zero point, so its value does not matter.
    rest.extend([b.new_int(0), b.new_int(0), b.new_int(low), b.new_int(high)]);
    on_image(b, Operator::CORTEX_M_QUANTIZED_MAX_POOL2D_NHWC, input, &rest, out)
}

/// Average pooling that does not count padding: `(input, kernel, stride, padding, ceil)`.
fn average(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = Q8taAvgPool2dArgs::of(args)?;
    let (input, out) = (call.input, b.out(args)?);
    let mut rest = [call.kernel_size, call.stride, call.padding, call.ceil_mode].to_vec();
    // Scale and zero point do not change an average.
    rest.extend([b.new_int(0), b.new_int(0), b.new_int(0), no_scratch(b)]);
    on_image(b, Operator::CORTEX_M_QUANTIZED_AVG_POOL2D_NHWC, input, &rest, out)
}
