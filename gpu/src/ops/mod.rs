//! The operators: how each call of a graph becomes dispatches.
//!
//! Each file holds a family of operators with a table of entries. An entry has the operator and a
//! function that sets the shapes of its outputs and emits dispatches. [`find`] defines which
//! operators are supported.

mod attention;
mod caches;
mod chain;
mod convolution;
#[cfg(test)]
mod coverage;
mod create;
mod dims;
mod distances;
mod elementwise;
mod epilogue;
mod gated;
mod gemm_rows;
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
mod placing;
mod pooling;
mod quantized;
mod recurrent;
mod reduce;
mod resize;
mod row_norms;
mod scan;
mod scatter;
mod search;
mod select;
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
pub(crate) use gemm_rows::{is_wide, takes_rows};
pub(crate) use normed_sum::terms;
pub(crate) use quantized::{are_regular, suited, weighs_floats};
pub(crate) use recurrent::{Cell, MAX_STEPS, recurs};
pub(crate) use row_norms::LONGEST_ROW;
pub(crate) use symbolic::watched_inputs;

use crate::encoder::Encoder;
use crate::error::Error;
use crate::stages::Stage;
use crate::tensors::Operand;
use torchlet_graph::graph::{Node, ValueId};
use torchlet_graph::operators::Operator;

/// A function that encodes a call with these arguments.
pub(crate) type EncodeFn = fn(&mut Encoder<'_, '_>, &[ValueId]) -> Result<(), Error>;

/// A function that returns the element-wise computation of a call with these arguments.
pub(crate) type StageFn = fn(&Encoder<'_, '_>, &[ValueId]) -> Result<Stage, Error>;

/// A supported operator, and the functions that encode it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) operator: Operator,
    pub(crate) encode: EncodeFn,
    /// The computation of an element-wise operator, which can be fused into chains.
    pub(crate) stage: Option<StageFn>,
    /// Whether the element-wise computation supports floats, so that it can be part of a chain.
    pub(crate) chains: bool,
    /// Whether the operator is a function of activations.glsl. Epilogues support these functions.
    pub(crate) is_activation: bool,
    /// Whether an epilogue can be fused into the operator.
    pub(crate) takes_epilogue: bool,
}

/// Returns a table entry for an operator.
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

/// Returns a table entry for an element-wise operator.
pub(crate) const fn pointwise(of: Operator, stage: StageFn) -> Entry {
    Entry { stage: Some(stage), chains: true, ..operator(of, elementwise::encode) }
}

/// Returns a table entry for a function of activations.glsl.
pub(crate) const fn activation(of: Operator, stage: StageFn) -> Entry {
    Entry { is_activation: true, ..pointwise(of, stage) }
}

/// Returns a table entry for an element-wise operator that supports only integers.
pub(crate) const fn pointwise_integers(of: Operator, stage: StageFn) -> Entry {
    Entry { chains: false, ..pointwise(of, stage) }
}

/// Returns a table entry for a matrix multiplication or convolution, which supports epilogues.
pub(crate) const fn product(of: Operator, encode: EncodeFn) -> Entry {
    Entry { takes_epilogue: true, ..operator(of, encode) }
}

/// The operator tables of all families. A new operator is added to the table of its family.
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
    quantized::image_convolution::OPERATORS,
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

/// The maximum number of element reads of a dispatch in which each output element reads many
/// elements: devices abort dispatches that last seconds.
const MAX_LOOKUPS: u64 = 1 << 32;

/// Rejects a tensor for which each output element would read a whole dim, if that dim
/// may be longer than `longest` or the total number of reads is too large.
fn check_line(
    e: &Encoder<'_, '_>,
    tensor: &Operand,
    dim: usize,
    longest: usize,
) -> Result<(), Error> {
    let length = check_length(e, tensor, dim, longest)?;
    check_looks(e.bound_sizes(tensor).iter().product(), length)
}

/// Rejects a tensor whose dim may be longer than `longest`; otherwise returns its maximum
/// length.
fn check_length(
    e: &Encoder<'_, '_>,
    tensor: &Operand,
    dim: usize,
    longest: usize,
) -> Result<usize, Error> {
    let length = e.bound_sizes(tensor).get(dim).copied().unwrap_or(1);
    match length > longest {
        true => {
            Err(Error::unsupported(format!("a dim of {length} elements; the limit is {longest}")))
        }
        false => Ok(length),
    }
}

/// Rejects dispatches with too many element reads.
fn check_looks(outputs: usize, each: usize) -> Result<(), Error> {
    let looks = (outputs as u64).checked_mul(each as u64);
    match looks.is_some_and(|looks| looks <= MAX_LOOKUPS) {
        true => Ok(()),
        false => Err(Error::unsupported(format!(
            "{outputs} output elements that each read {each} elements; the limit is \
             {MAX_LOOKUPS} reads"
        ))),
    }
}

/// Table entries by the index of their operator.
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

/// Encodes a call. It may be a part of a fused call.
pub(crate) fn encode(e: &mut Encoder<'_, '_>, call: &Node) -> Result<(), Error> {
    let entry = find(call.operator)
        .ok_or_else(|| Error::unsupported(format!("operator {} on a GPU", call.operator.name())))?;
    (entry.encode)(e, &call.args)
}

/// Returns the entry of an operator, if this backend supports it.
pub(crate) fn find(operator: Operator) -> Option<&'static Entry> {
    TABLE.get(operator.index()).copied().flatten()
}
