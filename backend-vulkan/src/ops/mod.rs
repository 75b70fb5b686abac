//! The operators: how each call of a graph becomes dispatches.
//!
//! An operator is an entry in the table of its family's file: its names in the blob, and a function that gives its outputs
//! shapes and emits dispatches. [`find`] is the one truth about what can run.

mod attention;
mod chain;
mod convolution;
#[cfg(test)]
mod coverage;
mod create;
mod elementwise;
mod epilogue;
mod index;
mod join;
mod linear;
mod normalize;
mod pooling;
mod quantized;
mod reduce;
mod resize;
mod symbolic;
mod training;
mod views;
mod weights;
mod window;

pub(crate) use chain::{CHAIN, MAX_STAGES, fits};
pub(crate) use epilogue::{EPILOGUE, SILU};
pub(crate) use symbolic::watched_inputs;
pub(crate) use views::ALIAS;

use crate::encoder::Encoder;
use crate::error::Error;
use crate::ir::ValueId;
use crate::stages::Stage;

/// How a call is encoded.
pub(crate) type EncodeFn = fn(&mut Encoder<'_, '_>, &[ValueId]) -> Result<(), Error>;

/// What a call computes for each element.
pub(crate) type StageFn = fn(&Encoder<'_, '_>, &[ValueId]) -> Result<Stage, Error>;

/// An operator.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Operator {
    pub(crate) name: &'static str,
    pub(crate) encode: EncodeFn,
    /// For operators that work element by element, which can be chained.
    pub(crate) stage: Option<StageFn>,
    /// Whether the stage exists for floating-point numbers, so that it can be in a chain.
    pub(crate) chains: bool,
    /// Whether it is one of the functions of activations.glsl, which products take.
    pub(crate) is_activation: bool,
    /// Whether it writes to tensors besides its output.
    pub(crate) in_place: bool,
    /// Whether it takes what is done to its result (`epilogue`).
    pub(crate) takes_epilogue: bool,
    /// Whether the output is the first argument's elements in order, in another shape.
    pub(crate) is_view: bool,
    /// Where the arguments begin that say what it clamps its result to, a lower and an upper bound.
    pub(crate) bounds: Option<usize>,
}

/// An entry of an operator table.
pub(crate) const fn operator(name: &'static str, encode: EncodeFn) -> Operator {
    Operator {
        name,
        encode,
        stage: None,
        chains: false,
        is_activation: false,
        in_place: false,
        takes_epilogue: false,
        is_view: false,
        bounds: None,
    }
}

/// The entry of an operator that works element by element.
pub(crate) const fn pointwise(name: &'static str, stage: StageFn) -> Operator {
    Operator { stage: Some(stage), chains: true, ..operator(name, elementwise::encode) }
}

/// The entry of one of the functions of activations.glsl.
pub(crate) const fn activation(name: &'static str, stage: StageFn) -> Operator {
    Operator { is_activation: true, ..pointwise(name, stage) }
}

/// The entry of an operator that works element by element on integers only.
pub(crate) const fn pointwise_integers(name: &'static str, stage: StageFn) -> Operator {
    Operator { chains: false, ..pointwise(name, stage) }
}

/// The entry of an operator that writes to tensors besides its output.
pub(crate) const fn in_place(name: &'static str, encode: EncodeFn) -> Operator {
    Operator { in_place: true, ..operator(name, encode) }
}

/// The entry of a product or convolution: arguments from `bounds` on are a lower and an upper bound.
pub(crate) const fn product(
    name: &'static str,
    bounds: Option<usize>,
    encode: EncodeFn,
) -> Operator {
    Operator { takes_epilogue: true, bounds, ..operator(name, encode) }
}

/// The entry of an operator whose output is the first argument in another shape.
pub(crate) const fn view(name: &'static str, encode: EncodeFn) -> Operator {
    Operator { is_view: true, ..operator(name, encode) }
}

/// The families. A new operator goes into the table of its family.
const FAMILIES: &[&[Operator]] = &[
    attention::OPERATORS,
    chain::OPERATORS,
    convolution::OPERATORS,
    create::OPERATORS,
    elementwise::OPERATORS,
    epilogue::OPERATORS,
    index::OPERATORS,
    join::OPERATORS,
    linear::OPERATORS,
    normalize::OPERATORS,
    pooling::OPERATORS,
    quantized::convert::OPERATORS,
    quantized::convolution::OPERATORS,
    quantized::elementwise::OPERATORS,
    quantized::linear::OPERATORS,
    quantized::parameters::OPERATORS,
    reduce::OPERATORS,
    resize::OPERATORS,
    symbolic::OPERATORS,
    training::OPERATORS,
    views::OPERATORS,
];

/// The operator of this name.
pub(crate) fn find(name: &str) -> Option<&'static Operator> {
    FAMILIES.iter().flat_map(|family| family.iter()).find(|operator| operator.name == name)
}
