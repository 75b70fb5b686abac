//! Operators on quantized tensors and weights.
//!
//! 8-bit tensors between operators are row-major like all others. Zero points are subtracted before
//! multiplication, so the weight sums in the blob are not needed.

mod channels_last;
mod codes;
pub(super) mod convert;
pub(super) mod convolution;
pub(super) mod elementwise;
pub(super) mod image_convolution;
pub(super) mod linear;
pub(super) mod parameters;
mod regular;
mod weighted;

pub(crate) use image_convolution::suited;
pub(super) use linear::product_of_rows;
pub(crate) use regular::are_regular;
pub(super) use regular::{Regular, gated};
pub(crate) use weighted::weighs_floats;
pub(super) use weighted::{Weighted, plain, weighted};

use crate::encoder::Encoder;
use crate::error::Error;
use crate::tensors::Operand;
use convert::{bounds, quantize};
use torchlet_graph::graph::ValueId;
use torchlet_shaders::Element;

fn is_relu(e: &Encoder<'_, '_>, activation: Option<ValueId>) -> Result<bool, Error> {
    match e.optional_string(activation)? {
        None | Some("none" | "") => Ok(false),
        Some("relu") => Ok(true),
        Some(other) => {
            Err(Error::Unsupported(format!("activation '{other}'; expected 'relu' or 'none'")))
        }
    }
}

/// Parses two scalars: a scale and a zero point.
fn pair(e: &Encoder<'_, '_>, [scale, zero]: [ValueId; 2]) -> Result<[f64; 2], Error> {
    Ok([e.float(scale)?, e.float(zero)?])
}

/// Returns a bias of at least `count` elements.
fn bias_of(
    e: &Encoder<'_, '_>,
    bias: impl Into<Option<ValueId>>,
    count: usize,
) -> Result<Option<Operand>, Error> {
    match e.optional_tensor(bias)? {
        Some(bias) if bias.sizes == [2, count] => {
            Err(Error::unsupported("exact scales and biases of a quantized layer"))
        }
        Some(bias) if bias.numel() < count => Err(Error::Invalid(format!(
            "bias: expected at least {count} elements, found shape {:?}",
            bias.sizes
        ))),
        bias => Ok(bias),
    }
}

/// Returns the quantized input; quantizes it if it is floating point.
fn quantized_input(
    e: &mut Encoder<'_, '_>,
    input: &Operand,
    parameters: [f64; 2],
) -> Result<Operand, Error> {
    if !input.element.is_floating() {
        return Ok(input.clone());
    }
    let codes = e.temporary(Element::I8, &input.sizes)?;
    quantize(e, input, &codes, parameters, bounds(Element::I8))?;
    Ok(codes)
}
