//! Which calls are computed beforehand.

use super::bytes_of;
use crate::emit::has_mask;
use crate::graph::{Graph, Node, Tensor, Value, ValueId};
use crate::operators::Operator;
use crate::partition::arguments;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::Registry;

/// How much larger results may be than the constants that they are made of.
const GROWTH: usize = 4;
/// What results may take beyond that.
const SMALL: usize = 1 << 20;
/// What all results together may take beyond that.
const SMALL_IN_ALL: usize = 16 << 20;
/// What may be read and written on the way, as a multiple of all constants, and beyond that.
const WORK: usize = 64;
const LEAST_WORK: usize = 256 << 20;

/// Calls, in order, and what of their results others take.
pub(super) struct Choice {
    /// What is computed beforehand.
    pub(super) calls: Vec<usize>,
    /// Those of it that are not computed in every run, too.
    pub(super) gone: Vec<usize>,
    pub(super) results: Vec<ValueId>,
}

/// Chooses calls whose inputs are all known, and which are not of the operators that are left out.
pub(super) fn choose(graph: &Graph<'_>, registry: &Registry<'_>, left: &[Operator]) -> Choice {
    let all = constant_bytes(graph);
    let mut work = all.saturating_mul(WORK).saturating_add(LEAST_WORK);
    // Bytes of the constants that a known value is made of, at most.
    let mut sources: BTreeMap<ValueId, usize> = BTreeMap::new();
    let mut known = vec![false; graph.nodes.len()];
    let kept: BTreeSet<ValueId> =
        graph.outputs.iter().copied().chain(graph.updates.iter().map(|(new, _)| *new)).collect();
    for (slot, node) in known.iter_mut().zip(&graph.nodes) {
        let (inputs, results) = arguments(graph, node);
        let Some(bytes) = known_bytes(graph, &sources, &inputs) else { continue };
        let moved = sizes(graph, inputs.iter().chain(&results));
        let is_left = left.contains(&node.operator) || !is_simple(graph, node, registry);
        if is_left || results.iter().any(|id| kept.contains(id)) || moved > work {
            continue;
        }
        let are_new = results.iter().all(|id| {
            matches!(graph.values.get(*id), Some(Value::Tensor(Tensor { data: None, .. })))
        });
        if !are_new {
            continue;
        }
        work -= moved;
        *slot = true;
        sources.extend(results.iter().map(|id| (*id, bytes.min(all))));
    }
    from_the_end(graph, &mut known, &sources, all)
}

/// Leaves out calls whose results others take, and are too large; then what they read is a result.
/// Where what is computed beforehand reads them, too, they are computed both then and in every run.
fn from_the_end(
    graph: &Graph<'_>,
    known: &mut [bool],
    sources: &BTreeMap<ValueId, usize>,
    all: usize,
) -> Choice {
    let mut room = all.saturating_mul(GROWTH).saturating_add(SMALL_IN_ALL);
    // What is read by calls that stay, and by those that do not.
    let [mut taken, mut read]: [BTreeSet<ValueId>; 2] = Default::default();
    let mut choice = Choice { calls: Vec::new(), gone: Vec::new(), results: Vec::new() };
    for (index, node) in graph.nodes.iter().enumerate().rev() {
        let (inputs, results) = arguments(graph, node);
        let own: Vec<ValueId> = results.iter().copied().filter(|id| taken.contains(id)).collect();
        let slot = known.get(index).copied().unwrap_or(false);
        let size = sizes(graph, own.iter());
        let source = results.iter().filter_map(|id| sources.get(id)).max().copied().unwrap_or(0);
        let fits = size <= source.saturating_mul(GROWTH).saturating_add(SMALL) && size <= room;
        let is_read = results.iter().any(|id| read.contains(id));
        if !slot || !fits {
            taken.extend(&inputs);
            if is_read {
                choice.calls.push(index);
                read.extend(inputs);
            }
            continue;
        }
        // What nobody reads is left alone.
        if own.is_empty() && !is_read {
            continue;
        }
        room -= size;
        choice.calls.push(index);
        choice.gone.push(index);
        choice.results.extend(own);
        read.extend(inputs);
    }
    choice.calls.reverse();
    choice.gone.reverse();
    choice
}

/// The bytes of all constants.
pub(super) fn constant_bytes(graph: &Graph<'_>) -> usize {
    let constants = graph.values.iter().filter_map(constant);
    constants.fold(0, |bytes, tensor| bytes.saturating_add(bytes_of(tensor)))
}

fn constant<'g, 'p>(value: &'g Value<'p>) -> Option<&'g Tensor<'p>> {
    match value {
        Value::Tensor(tensor @ Tensor { data: Some(_), .. }) if tensor.changes != Some(true) => {
            Some(tensor)
        }
        _ => None,
    }
}

/// The bytes of the constants that inputs are made of; none if one is not known.
fn known_bytes(
    graph: &Graph<'_>,
    sources: &BTreeMap<ValueId, usize>,
    inputs: &[ValueId],
) -> Option<usize> {
    inputs.iter().try_fold(0usize, |bytes, id| {
        let own = match graph.values.get(*id)? {
            Value::SymInt(_) | Value::List(_) => return None,
            value @ Value::Tensor(_) => {
                let made = sources.get(id).copied();
                made.or_else(|| constant(value).map(bytes_of))?
            }
            _ => 0,
        };
        Some(bytes.saturating_add(own))
    })
}

fn sizes<'i>(graph: &Graph<'_>, ids: impl Iterator<Item = &'i ValueId>) -> usize {
    ids.fold(0, |bytes, id| match graph.values.get(*id) {
        Some(Value::Tensor(tensor)) => bytes.saturating_add(bytes_of(tensor)),
        _ => bytes,
    })
}

/// Whether a call takes about as many steps as it has elements, gives the same each time, and has a
/// kernel.
fn is_simple(graph: &Graph<'_>, node: &Node, registry: &Registry<'_>) -> bool {
    let has_kernel = node.operator.instruction().is_some_and(|name| registry.has_operator(name));
    // Polynomials take as many steps for each element as their order says.
    let is_polynomial = node.operator.name().contains("_polynomial_");
    // Masks say by how many of their elements are true how large a result is.
    let selects = node.operator == Operator::INDEX_TENSOR
        && node.args.get(1).is_none_or(|list| has_mask(graph, *list));
    has_kernel
        && !selects
        && !node.operator.writes_arguments()
        && !is_polynomial
        && !OTHERS.contains(&node.operator)
}

/// Operators that are not simple: products, windows, what shares memory, what is random, what gives
/// shapes by contents.
const OTHERS: &[Operator] = &[
    Operator::ADAPTIVE_AVG_POOL1D,
    Operator::ADAPTIVE_AVG_POOL2D,
    Operator::ADAPTIVE_AVG_POOL3D,
    Operator::ADAPTIVE_MAX_POOL2D,
    Operator::ADAPTIVE_MAX_POOL2D_BACKWARD,
    Operator::ADAPTIVE_MAX_POOL3D,
    Operator::ADAPTIVE_MAX_POOL3D_BACKWARD,
    Operator::ADDBMM,
    Operator::ADDMM,
    Operator::ADDMV,
    Operator::AVG_POOL1D,
    Operator::AVG_POOL2D,
    Operator::AVG_POOL3D,
    Operator::BADDBMM,
    Operator::BINCOUNT,
    Operator::BMM,
    Operator::CAUCHY,
    Operator::CDIST_FORWARD,
    Operator::CHOLESKY_INVERSE,
    Operator::CHOLESKY_SOLVE,
    Operator::CONVOLUTION,
    Operator::CONVOLUTION_BACKWARD,
    Operator::DIST,
    Operator::EMBEDDING_BAG,
    Operator::EMBEDDING_BAG_FORWARD_ONLY,
    Operator::EMBEDDING_DENSE_BACKWARD,
    Operator::EMPTY_STRIDED,
    Operator::EXECUTORCH_PRIM_ET_COPY_INDEX_TENSOR,
    Operator::EXECUTORCH_PRIM_ET_VIEW,
    Operator::EXPONENTIAL,
    Operator::FFT_C2C,
    Operator::FFT_C2R,
    Operator::FFT_R2C,
    Operator::FRACTIONAL_MAX_POOL2D,
    Operator::FRACTIONAL_MAX_POOL3D,
    Operator::GEOMETRIC,
    Operator::GEQRF,
    Operator::HISTOGRAMDD_BIN_EDGES,
    Operator::IGAMMA,
    Operator::IGAMMAC,
    Operator::INT_MM,
    Operator::LINALG_CHOLESKY_EX,
    Operator::LINALG_DET,
    Operator::LINALG_EIG,
    Operator::LINALG_EIGH,
    Operator::LINALG_EIGVALS,
    Operator::LINALG_HOUSEHOLDER_PRODUCT,
    Operator::LINALG_INV_EX,
    Operator::LINALG_LDL_FACTOR_EX,
    Operator::LINALG_LDL_SOLVE,
    Operator::LINALG_LU,
    Operator::LINALG_LU_FACTOR_EX,
    Operator::LINALG_LU_SOLVE,
    Operator::LINALG_MATRIX_EXP,
    Operator::LINALG_POLAR,
    Operator::LINALG_QR,
    Operator::LINALG_SLOGDET,
    Operator::LINALG_SOLVE_EX,
    Operator::LINALG_SOLVE_TRIANGULAR,
    Operator::LINALG_SVD,
    Operator::LINEAR,
    Operator::LLAMA_CHANNELWISE_GATED_DELTA_RULE,
    Operator::LLAMA_CUSTOM_QUANTIZED_SDPA,
    Operator::LLAMA_CUSTOM_SDPA,
    Operator::LLAMA_GATED_DELTA_RULE,
    Operator::LLAMA_QUANTIZED_MOE_FFN,
    Operator::LOG_NORMAL,
    Operator::LU_UNPACK,
    Operator::MASKED_SELECT,
    Operator::MAX_POOL2D_WITH_INDICES,
    Operator::MAX_POOL2D_WITH_INDICES_BACKWARD,
    Operator::MAX_POOL3D_WITH_INDICES,
    Operator::MAX_POOL3D_WITH_INDICES_BACKWARD,
    Operator::MM,
    Operator::MULTINOMIAL,
    Operator::NATIVE_BATCH_NORM_LEGIT,
    Operator::NATIVE_BATCH_NORM_LEGIT_NO_STATS,
    Operator::NATIVE_DROPOUT,
    Operator::NEW_EMPTY_STRIDED,
    Operator::NONZERO,
    Operator::NORMAL_FLOAT_FLOAT,
    Operator::NORMAL_FLOAT_TENSOR,
    Operator::NORMAL_TENSOR_FLOAT,
    Operator::NORMAL_TENSOR_TENSOR,
    Operator::PDIST_FORWARD,
    Operator::POISSON,
    Operator::QUANTIZED_DECOMPOSED_MIXED_LINEAR,
    Operator::QUANTIZED_DECOMPOSED_MIXED_MM,
    Operator::RAND,
    Operator::RAND_LIKE,
    Operator::RANDINT,
    Operator::RANDINT_LIKE,
    Operator::RANDINT_LOW,
    Operator::RANDN,
    Operator::RANDN_LIKE,
    Operator::RANDPERM,
    Operator::REPEAT_INTERLEAVE_TENSOR,
    Operator::RESIZE,
    Operator::SCATTER_REDUCE,
    Operator::SCATTER_VALUE_REDUCE,
    Operator::TRIANGULAR_SOLVE,
    Operator::TRILINEAR,
    Operator::UNIFORM,
    Operator::UNIQUE2,
    Operator::UNIQUE_CONSECUTIVE,
    Operator::UNIQUE_DIM,
    Operator::UPSAMPLE_BICUBIC2D_AA,
    Operator::UPSAMPLE_BILINEAR2D_AA,
    Operator::UPSAMPLE_LANCZOS2D_AA,
];
