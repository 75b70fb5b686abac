//! Lowers every call to calls for which portable kernels exist.
//!
//! A call whose operator has a kernel instruction stays unchanged, unless a rule for the operator
//! exists. A rule replaces a call by equivalent calls, the last of which produces the original
//! output. Rules do not read constant data: weights are unpacked by calls, which [constant
//! folding](crate::fold) evaluates ahead of time.
//!
//! Dtypes are those of the graph. Vulkan delegate blobs use 32-bit integers where programs use
//! 64-bit ones. Portable kernels support both. If a kernel always returns 64-bit integers
//! (`argmax`), the result is cast to the dtype of the graph.

mod attention;
#[cfg_attr(
    not(any(feature = "pt2", feature = "lazy")),
    allow(dead_code, reason = "rules that only PyTorch's own programs need use some methods")
)]
mod builder;
mod cache;
#[cfg_attr(
    not(any(feature = "pt2", feature = "lazy")),
    allow(dead_code, reason = "rules that only PyTorch's own programs need share functions")
)]
mod composite;
mod convolution;
pub(crate) mod integers;
mod numbers;
mod quantized;
mod results;
mod rotary;
mod simple;
mod symbolic;
mod training;

use crate::budget::Computed;
use crate::error::Error;
use crate::graph::{Graph, Node, ValueId};
use crate::operators::Operator;
use alloc::format;
use alloc::vec::Vec;
use builder::Builder;
pub(crate) use builder::VaryingDims;
#[cfg(feature = "pt2")]
pub(crate) use composite::shape::narrow_end;

/// Replaces a call by others. The arguments include the output, which comes last.
type Rule = fn(&mut Builder<'_, '_>, &[ValueId]) -> Result<(), Error>;

const FAMILIES: &[&[(Operator, Rule)]] = &[
    attention::RULES,
    cache::RULES,
    #[cfg(any(feature = "pt2", feature = "lazy"))]
    composite::arrangement::RULES,
    composite::attention::RULES,
    composite::convolution::RULES,
    composite::creation::RULES,
    #[cfg(any(feature = "pt2", feature = "lazy"))]
    composite::diagonal::RULES,
    composite::einsum::RULES,
    composite::elementwise::RULES,
    #[cfg(any(feature = "pt2", feature = "lazy"))]
    composite::factorization::RULES,
    composite::fourier::RULES,
    composite::indexing::RULES,
    composite::linear::RULES,
    #[cfg(any(feature = "pt2", feature = "lazy"))]
    composite::loss::RULES,
    #[cfg(any(feature = "pt2", feature = "lazy"))]
    composite::matrices::RULES,
    composite::normalization::RULES,
    composite::pooling::RULES,
    composite::recurrent::RULES,
    composite::reduction::RULES,
    composite::resize::RULES,
    #[cfg(any(feature = "pt2", feature = "lazy"))]
    composite::sampling::RULES,
    composite::shape::RULES,
    #[cfg(any(feature = "pt2", feature = "lazy"))]
    composite::signal::RULES,
    #[cfg(any(feature = "pt2", feature = "lazy"))]
    composite::special::RULES,
    #[cfg(any(feature = "pt2", feature = "lazy"))]
    composite::statistics::RULES,
    convolution::RULES,
    quantized::convert::RULES,
    quantized::convolution::RULES,
    quantized::elementwise::RULES,
    quantized::embedding::RULES,
    quantized::linear::RULES,
    quantized::parameters::RULES,
    results::RULES,
    rotary::RULES,
    simple::RULES,
    symbolic::RULES,
    training::RULES,
];

fn rule(operator: Operator) -> Option<Rule> {
    let mut rules = FAMILIES.iter().flat_map(|family| family.iter());
    rules.find(|(own, _)| *own == operator).map(|(_, rule)| *rule)
}

/// Whether portable kernels can compute an operator, directly or after lowering.
pub fn is_supported(operator: Operator) -> bool {
    operator.instruction().is_some() || rule(operator).is_some()
}

/// Lowers all calls of a graph.
///
/// # Errors
/// Portable kernels cannot compute a call, or the arguments of a call do not match the call's
/// operator. The message names the call and the reason.
pub fn run(graph: &mut Graph<'_>) -> Result<(), Error> {
    numbers::make_whole(graph);
    let calls = core::mem::take(&mut graph.nodes);
    let mut builder = Builder::new(graph);
    for call in calls {
        lower(&mut builder, call)?;
    }
    builder.finish();
    Ok(())
}

/// Lowers the `chosen` calls that have a rule but no instruction. Other calls stay unchanged.
/// `chosen` has one element per call. Returns whether any call changed.
///
/// # Errors
/// The arguments of a call do not match its operator.
pub fn run_some(graph: &mut Graph<'_>, chosen: &[bool]) -> Result<bool, Error> {
    run_chosen(graph, chosen, VaryingDims::UNKNOWN, Computed::new())
}

/// Lowers all calls that have a rule but no instruction. Returns whether any call changed.
///
/// # Errors
/// The arguments of a call do not match its operator.
#[cfg(any(feature = "pt2", feature = "lazy"))]
pub(crate) fn run_composites(
    graph: &mut Graph<'_>,
    varying: &VaryingDims,
    computed: &Computed,
) -> Result<bool, Error> {
    let all = alloc::vec![true; graph.nodes.len()];
    run_chosen(graph, &all, varying, computed.clone())
}

fn run_chosen(
    graph: &mut Graph<'_>,
    chosen: &[bool],
    varying: &VaryingDims,
    computed: Computed,
) -> Result<bool, Error> {
    let without = |(call, chosen): (&Node, &bool)| *chosen && has_rule_alone(call);
    if !graph.nodes.iter().zip(chosen).any(without) {
        return Ok(false);
    }
    let calls = core::mem::take(&mut graph.nodes);
    let mut builder = Builder::with_dims(graph, varying, computed);
    for (call, chosen) in calls.into_iter().zip(chosen) {
        if without((&call, chosen)) {
            lower(&mut builder, call)?;
            builder.charge()?;
        } else {
            let args = builder.renamed(&call.args);
            builder.keep(Node { args, ..call });
        }
    }
    builder.finish();
    Ok(true)
}

/// Whether a call has a rule but no instruction.
fn has_rule_alone(call: &Node) -> bool {
    call.operator.instruction().is_none() && rule(call.operator).is_some()
}

fn lower(builder: &mut Builder<'_, '_>, call: Node) -> Result<(), Error> {
    if !call.parts.is_empty() {
        return lower_parts(builder, call.parts);
    }
    let args = builder.renamed(&call.args);
    let Some(rule) = rule(call.operator) else {
        if call.operator.instruction().is_none() {
            let (id, name) = (call.id, call.operator.name());
            return Err(Error::Unsupported(format!(
                "call {id}, {name}: an operator without a portable kernel"
            )));
        }
        builder.keep(Node { args, ..call });
        return Ok(());
    };
    builder.begin(call.id);
    rule(builder, &args).map_err(|error| error.at(call.id, call.operator.name()))
}

/// Lowers the original calls of a fused call.
fn lower_parts(builder: &mut Builder<'_, '_>, parts: Vec<Node>) -> Result<(), Error> {
    parts.into_iter().try_for_each(|part| {
        // Passes fuse original calls, not fused ones, so parts have no parts of their own.
        lower(builder, Node { parts: Vec::new(), ..part })
    })
}

#[cfg(test)]
mod tests;
