//! Dynamic int8 quantization with a scale and a zero point per row, as quantize-dequantize. A row
//! spans one dim for linear layers and three dims for convolutions.

use super::builder::Builder;
use crate::error::Error;
use crate::graph::{Value, ValueId};
use crate::operators::Operator;
use alloc::format;
use alloc::vec::Vec;
use torchlet_core::ScalarType;

/// Scales and zero points of rows, each `[..., 1]`.
struct Parameters {
    scales: ValueId,
    zero_points: ValueId,
}

/// Quantizes and dequantizes a tensor, with rows that span the last `inner` dims.
///
/// # Errors
/// The tensor has fewer dims.
pub(super) fn round(
    builder: &mut Builder<'_>,
    value: ValueId,
    inner: usize,
) -> Result<ValueId, Error> {
    let value = builder.cast(value, ScalarType::Float)?;
    let sizes = builder.sizes(value)?;
    let outer = sizes.len().checked_sub(inner).filter(|_| inner > 0);
    let outer = outer.ok_or_else(|| {
        Error::Invalid(format!(
            "per-row quantization: expected 1 to {} inner dims, found {inner}",
            sizes.len()
        ))
    })?;
    if inner == 1 {
        let parameters = parameters(builder, value)?;
        return rounded_by(builder, value, &parameters);
    }
    // Minimum and maximum of a row yield the same parameters as the whole row.
    let mut ends = sizes.clone();
    ends.get_mut(outer..).unwrap_or_default().fill(1);
    let dims = builder.ints(outer..sizes.len());
    let keep = builder.push(Value::Bool(true));
    let least = builder.call(Operator::AMIN, &[value, dims, keep], &ends)?;
    let largest = builder.call(Operator::AMAX, &[value, dims, keep], &ends)?;
    let (list, last) = (builder.push(Value::List([least, largest].to_vec())), builder.int(-1));
    if let Some(size) = ends.last_mut() {
        *size = 2;
    }
    let ends = builder.new_tensor(ScalarType::Float, &ends);
    builder.call_into(Operator::CAT, &[list, last], ends);
    let parameters = parameters(builder, ends)?;
    rounded_by(builder, value, &parameters)
}

/// Computes the quantization parameters of rows over the last dim.
fn parameters(builder: &mut Builder<'_>, value: ValueId) -> Result<Parameters, Error> {
    let mut sizes = builder.sizes(value)?;
    if let Some(size) = sizes.last_mut() {
        *size = 1;
    }
    let scales = builder.new_tensor(ScalarType::Float, &sizes);
    let zero_points = builder.new_tensor(ScalarType::Long, &sizes);
    let list = builder.push(Value::List([scales, zero_points].to_vec()));
    let number = builder.int(ScalarType::Char as i64);
    let choose = Operator::QUANTIZED_DECOMPOSED_CHOOSE_QPARAMS_PER_TOKEN_ASYMMETRIC;
    builder.call_into(choose, &[value, number], list);
    Ok(Parameters { scales, zero_points })
}

/// Quantizes and dequantizes with broadcast parameters.
///
/// Rounds before it adds the zero point, as XNNPACK and PyTorch's quantizers do.
/// `quantize_per_token` rounds after adding it, and so rounds ties differently.
fn rounded_by(
    builder: &mut Builder<'_>,
    value: ValueId,
    Parameters { scales, zero_points }: &Parameters,
) -> Result<ValueId, Error> {
    let sizes = builder.sizes(value)?;
    let zero_points = builder.cast(*zero_points, ScalarType::Float)?;
    let one = builder.int(1);
    let (low, high) = builder.bounds(ScalarType::Char);
    let inverse = builder.sizes(*scales)?;
    let inverse = builder.call(Operator::RECIPROCAL, &[*scales], &inverse)?;
    let mut value = builder.call(Operator::MUL_TENSOR, &[value, inverse], &sizes)?;
    for (operator, inputs) in [
        (Operator::ROUND, Vec::new()),
        (Operator::ADD_TENSOR, Vec::from([zero_points, one])),
        (Operator::CLAMP, Vec::from([low, high])),
        (Operator::SUB_TENSOR, Vec::from([zero_points, one])),
        (Operator::MUL_TENSOR, Vec::from([*scales])),
    ] {
        let inputs: Vec<ValueId> = core::iter::once(value).chain(inputs).collect();
        value = builder.call(operator, &inputs, &sizes)?;
    }
    Ok(value)
}
