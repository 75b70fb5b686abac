//! Fused epilogues of GEMMs and convolutions, which add a tensor and apply an activation.
//!
//! [`crate::passes`] fuses a GEMM and the element-wise calls after it into a call of
//! `torchlet.epilogue`.

use super::elementwise::stage_of;
use super::{Entry, find, operator};
use crate::encoder::Encoder;
use crate::error::Error;
use crate::stages::{Epilogue, Source, Stage};
use torchlet_graph::graph::{Node, ValueId};
use torchlet_graph::operators::Operator;

pub(super) const OPERATORS: &[Entry] = &[operator(Operator::EPILOGUE, encode)];

/// Encodes the GEMM, which fetches the epilogue with [`Encoder::take_epilogue`].
fn encode(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let (product, rest) = e
        .parts()
        .split_first()
        .ok_or_else(|| Error::invalid("internal error: an epilogue without a GEMM"))?;
    let epilogue = of(e, rest, args)?;
    let operator =
        find(product.operator).filter(|operator| operator.takes_epilogue).ok_or_else(|| {
            Error::Invalid(format!(
                "internal error: {:?} does not support an epilogue",
                product.operator
            ))
        })?;
    let residual = epilogue.residual.as_ref().map(|residual| residual.numel());
    e.set_epilogue(epilogue);
    (operator.encode)(e, &product.args)?;
    check(residual, e.out(&product.args)?.numel())
}

/// Parses the calls after the GEMM as its epilogue.
pub(super) fn of(e: &Encoder<'_, '_>, parts: &[Node], args: &[ValueId]) -> Result<Epilogue, Error> {
    let (_, inputs) = args
        .split_last()
        .ok_or_else(|| Error::invalid("internal error: a fused call has no arguments"))?;
    let mut epilogue = Epilogue::none();
    for part in parts {
        match stage_of(e, part.operator, &part.args)? {
            Stage::Unary(function, _, [a, b]) => {
                (epilogue.activation, epilogue.a, epilogue.b) = (function, a as f32, b as f32);
            }
            Stage::Binary(_, a, Source::Tensor(b), _) => {
                // The other operand is the GEMM's result, or a view of it.
                let other = if inputs.contains(&a) { a } else { b };
                epilogue.residual = Some(e.tensor(other)?);
            }
            _ => {
                return Err(Error::Invalid(format!(
                    "internal error: {:?} cannot be part of an epilogue",
                    part.operator
                )));
            }
        }
    }
    Ok(epilogue)
}

/// Checks that the residual has as many elements as the result.
pub(super) fn check(residual: Option<usize>, numel: usize) -> Result<(), Error> {
    if residual.is_some_and(|residual| residual != numel) {
        return Err(Error::unsupported(format!(
            "a fused residual that broadcasts for these input shapes; expected {numel} elements"
        )));
    }
    Ok(())
}
