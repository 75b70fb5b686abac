//! The operators: how each call of a graph becomes dispatches.
//!
//! An operator is an entry in the table of its family's file: its names in the blob, and a function that gives its outputs
//! shapes and emits dispatches. [`find`] is the one truth about what can run.

mod attention;
mod convolution;
mod elementwise;
mod index;
mod join;
mod linear;
mod pooling;
mod quantized;
mod reduce;
mod resize;
mod symbolic;
mod training;
mod views;
mod weights;
mod window;

pub(crate) use symbolic::SELECT_AS_SYMINT;

use crate::encoder::Encoder;
use crate::error::Error;
use crate::ir::ValueId;

/// How a call is encoded.
pub(crate) type EncodeFn = fn(&mut Encoder<'_, '_>, &[ValueId]) -> Result<(), Error>;

/// An operator.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Operator {
    pub(crate) name: &'static str,
    pub(crate) encode: EncodeFn,
}

/// An entry of an operator table.
pub(crate) const fn operator(name: &'static str, encode: EncodeFn) -> Operator {
    Operator { name, encode }
}

/// The families. A new operator goes into the table of its family.
const FAMILIES: &[&[Operator]] = &[
    attention::OPERATORS,
    convolution::OPERATORS,
    elementwise::OPERATORS,
    index::OPERATORS,
    join::OPERATORS,
    linear::OPERATORS,
    pooling::OPERATORS,
    quantized::OPERATORS,
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
