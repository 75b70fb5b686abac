//! Products that gate others of the same input: `activation(x · a) * (x · b)`, the feed-forward layers of language models.
//!
//! [`crate::passes`] makes calls of `torchlet.gated` of them. Few rows of quantized weights take one kernel; otherwise each part takes its own.

use super::elementwise::{apply_binary, stage_of};
use super::quantized::{gated, weighs_floats};
use super::{Entry, find, operator};
use crate::encoder::Encoder;
use crate::error::Error;
use crate::stages::{Epilogue, Stage};
use torchlet_graph::graph::{Node, ValueId};
use torchlet_graph::operators::Operator;
use torchlet_shaders::functions::binary;

pub(super) const OPERATORS: &[Entry] = &[operator(Operator::GATED, encode)];

/// The parts are the product, views of it and its activation, the other product and views of it, and their multiplication.
fn encode(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let parts = e.parts();
    let is_activation = |part: &&Node| find(part.operator).is_some_and(|it| it.is_activation);
    let mut products = parts.iter().filter(|part| weighs_floats(part.operator));
    let (Some(product), Some(other), Some(activation), Some(last)) =
        (products.next(), products.next(), parts.iter().find(is_activation), parts.last())
    else {
        return Err(Error::invalid("a gate that lacks a part"));
    };
    // One dispatch of few rows reads what several of many do, and writes.
    e.reserve(&e.out(args)?);
    let mut epilogue = Epilogue::none();
    match stage_of(e, activation.operator, &activation.args)? {
        Stage::Unary(function, _, [a, b]) => {
            (epilogue.activation, epilogue.a, epilogue.b) = (function, a as f32, b as f32);
        }
        _ => return Err(Error::invalid("a gate without an activation")),
    }
    let gated = gated(e, [product, other], &epilogue)?;
    if gated.is_none() {
        e.set_epilogue(epilogue);
        encode_part(e, product)?;
        encode_part(e, other)?;
    }
    for view in parts.iter().filter(|part| part.operator.is_view()) {
        encode_part(e, view)?;
    }
    // What the activation was done to already, and the other one.
    let gate = e.arg(&activation.args, 0)?;
    let activated = e.out(&activation.args)?.value;
    let other = [e.arg(&last.args, 0)?, e.arg(&last.args, 1)?];
    let other = other.into_iter().find(|id| *id != activated).unwrap_or(gate);
    let (gate, other, out) = (e.tensor(gate)?, e.tensor(other)?, e.out(args)?);
    match gated {
        Some(gated) => {
            let out = e.resize(out.id, &other.sizes)?;
            if out.numel() != gated.numel() || out.element != gate.element {
                return Err(Error::invalid("a gate whose parts do not fit one another"));
            }
            gated.emit(e, &out)
        }
        None => apply_binary(e, binary::MUL, [&gate, &other], out.id, 1.0),
    }
}

fn encode_part(e: &mut Encoder<'_, '_>, part: &Node) -> Result<(), Error> {
    let operator = find(part.operator)
        .ok_or_else(|| Error::Invalid(format!("{:?} is in no table", part.operator)))?;
    (operator.encode)(e, &part.args)
}
