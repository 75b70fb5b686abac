//! The operators: how each call of a graph becomes dispatches.
//!
//! An operator is an entry in the table of its family's file: the operator, and a function that
//! gives its outputs shapes and emits dispatches. [`find`] is the one truth about what can run.

mod attention;
mod caches;
mod chain;
mod convolution;
#[cfg(test)]
mod coverage;
mod create;
mod distances;
mod elementwise;
mod epilogue;
mod gated;
mod index;
mod join;
mod layer_norms;
mod linear;
mod matmul;
mod normalize;
mod normed;
mod normed_sum;
mod order;
mod placed;
mod pooling;
mod quantized;
mod recurrent;
mod reduce;
mod resize;
mod scan;
mod scatter;
mod search;
mod separable;
mod special;
mod splits;
mod symbolic;
#[cfg(test)]
pub(crate) mod testing;
mod tiling;
mod training;
mod views;
mod weights;
mod window;

pub(crate) use chain::{MAX_STAGES, fits};
pub(crate) use convolution::ConvolutionCall;
pub(crate) use normed_sum::terms;
pub(crate) use quantized::{are_regular, suited, weighs_floats};
pub(crate) use recurrent::{Cell, MOST_STEPS, recurs};
pub(crate) use symbolic::{integer_set_by, watched_inputs};
pub(crate) use views::copy_all;

use crate::encoder::Encoder;
use crate::error::Error;
use crate::stages::Stage;
use crate::tensors::Operand;
use torchlet_graph::graph::{Node, ValueId};
use torchlet_graph::operators::Operator;

/// How a call is encoded.
pub(crate) type EncodeFn = fn(&mut Encoder<'_, '_>, &[ValueId]) -> Result<(), Error>;

/// What a call computes for each element.
pub(crate) type StageFn = fn(&Encoder<'_, '_>, &[ValueId]) -> Result<Stage, Error>;

/// An operator that there is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) operator: Operator,
    pub(crate) encode: EncodeFn,
    /// For operators that work element by element, which can be chained.
    pub(crate) stage: Option<StageFn>,
    /// Whether the stage exists for floating-point numbers, so that it can be in a chain.
    pub(crate) chains: bool,
    /// Whether it is one of the functions of activations.glsl, which products take.
    pub(crate) is_activation: bool,
    /// Whether it takes what is done to its result (`epilogue`).
    pub(crate) takes_epilogue: bool,
}

/// An entry of an operator table.
pub(crate) const fn operator(of: Operator, encode: EncodeFn) -> Entry {
    Entry {
        operator: of,
        encode,
        stage: None,
        chains: false,
        is_activation: false,
        takes_epilogue: false,
    }
}

/// The entry of an operator that works element by element.
pub(crate) const fn pointwise(of: Operator, stage: StageFn) -> Entry {
    Entry { stage: Some(stage), chains: true, ..operator(of, elementwise::encode) }
}

/// The entry of one of the functions of activations.glsl.
pub(crate) const fn activation(of: Operator, stage: StageFn) -> Entry {
    Entry { is_activation: true, ..pointwise(of, stage) }
}

/// The entry of an operator that works element by element on integers only.
pub(crate) const fn pointwise_integers(of: Operator, stage: StageFn) -> Entry {
    Entry { chains: false, ..pointwise(of, stage) }
}

/// The entry of a matrix multiplication or convolution.
pub(crate) const fn product(of: Operator, encode: EncodeFn) -> Entry {
    Entry { takes_epilogue: true, ..operator(of, encode) }
}

/// The families. A new operator goes into the table of its family.
const FAMILIES: &[&[Entry]] = &[
    attention::OPERATORS,
    caches::OPERATORS,
    chain::OPERATORS,
    convolution::OPERATORS,
    convolution::channels_last::OPERATORS,
    create::OPERATORS,
    distances::OPERATORS,
    elementwise::OPERATORS,
    epilogue::OPERATORS,
    gated::OPERATORS,
    recurrent::OPERATORS,
    index::OPERATORS,
    join::OPERATORS,
    linear::OPERATORS,
    normalize::OPERATORS,
    normed_sum::OPERATORS,
    order::OPERATORS,
    pooling::OPERATORS,
    quantized::convert::OPERATORS,
    quantized::convolution::OPERATORS,
    quantized::elementwise::OPERATORS,
    quantized::linear::OPERATORS,
    quantized::parameters::OPERATORS,
    quantized::places::OPERATORS,
    reduce::OPERATORS,
    resize::OPERATORS,
    scan::OPERATORS,
    scatter::OPERATORS,
    search::OPERATORS,
    separable::OPERATORS,
    special::OPERATORS,
    symbolic::OPERATORS,
    training::OPERATORS,
    views::OPERATORS,
];

/// The elements that a dispatch looks at, at most, where each output looks at many: devices stop
/// what takes them seconds.
const MOST_LOOKS: u64 = 1 << 32;

/// Refuses a tensor of whose elements each looks at all of a dimension, if that is longer than
/// this, or if it is too much in all.
fn check_line(
    e: &Encoder<'_, '_>,
    tensor: &Operand,
    dim: usize,
    longest: usize,
) -> Result<(), Error> {
    let length = check_length(e, tensor, dim, longest)?;
    check_looks(e.bound_sizes(tensor).iter().product(), length)
}

/// Refuses a tensor of which a dimension may be longer than this; else how long it may be.
fn check_length(
    e: &Encoder<'_, '_>,
    tensor: &Operand,
    dim: usize,
    longest: usize,
) -> Result<usize, Error> {
    let length = e.bound_sizes(tensor).get(dim).copied().unwrap_or(1);
    match length > longest {
        true => {
            Err(Error::unsupported(format!("{length} elements in a row; {longest} are the most")))
        }
        false => Ok(length),
    }
}

/// Refuses so many outputs that look at so many elements each.
fn check_looks(outputs: usize, each: usize) -> Result<(), Error> {
    let looks = (outputs as u64).checked_mul(each as u64);
    match looks.is_some_and(|looks| looks <= MOST_LOOKS) {
        true => Ok(()),
        false => Err(Error::unsupported(format!("{outputs} outputs of {each} elements each"))),
    }
}

/// The entry of each operator, by its number.
static TABLE: [Option<&Entry>; Operator::COUNT] = {
    let mut table = [None; Operator::COUNT];
    let mut family = 0;
    while family < FAMILIES.len() {
        let mut place = 0;
        while place < FAMILIES[family].len() {
            let entry = &FAMILIES[family][place];
            assert!(table[entry.operator.index()].is_none(), "an operator is in two tables");
            table[entry.operator.index()] = Some(entry);
            place += 1;
        }
        family += 1;
    }
    table
};

/// Encodes a call, also one that is a part of another.
pub(crate) fn encode(e: &mut Encoder<'_, '_>, call: &Node) -> Result<(), Error> {
    let entry = find(call.operator)
        .ok_or_else(|| Error::unsupported(format!("operator {:?}", call.operator)))?;
    (entry.encode)(e, &call.args)
}

/// How an operator is encoded, if this backend has it.
pub(crate) fn find(operator: Operator) -> Option<&'static Entry> {
    TABLE.get(operator.index()).copied().flatten()
}
