//! Portable forms: every call becomes calls that portable kernels have instructions for.
//!
//! An operator that has an instruction stays as it is, unless its family has a rule for it. A rule
//! writes other calls in its place, which compute the same; the value that the call made is made by
//! the last of them. Constants are not looked into: weights are unpacked by calls, which [constant
//! folding](crate::fold) does beforehand.
//!
//! Types are those of the graph. Blobs of the Vulkan delegate have 32-bit integers where programs
//! have 64; portable kernels take either, and where one gives 64 bits whatever it takes (`argmax`),
//! the result is cast to the type that the graph has.

mod attention;
mod builder;
mod cache;
mod convolution;
pub(crate) mod integers;
mod numbers;
mod quantized;
mod results;
mod rotary;
mod simple;
mod symbolic;
mod training;

use crate::error::Error;
use crate::graph::{Graph, Node, ValueId};
use crate::operators::Operator;
use alloc::format;
use alloc::vec::Vec;
use builder::Builder;

/// Writes other calls in the place of one: it gets the arguments, the last of which is what is
/// made.
type Rule = fn(&mut Builder<'_, '_>, &[ValueId]) -> Result<(), Error>;

/// The families of rules.
const FAMILIES: &[&[(Operator, Rule)]] = &[
    attention::RULES,
    cache::RULES,
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

/// Whether portable kernels can compute what an operator does.
pub fn has_form(operator: Operator) -> bool {
    operator.instruction().is_some() || rule(operator).is_some()
}

/// Brings all calls of a graph into portable forms.
///
/// # Errors
/// A call has none, or its arguments are not what its operator takes: which call, and why.
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

/// Brings the calls that have no instruction into portable forms, where these numbers of calls say
/// so and a rule knows how. All others stay as they are. Says whether any was changed.
///
/// # Errors
/// The arguments of a call are not what its operator takes.
pub fn run_some(graph: &mut Graph<'_>, chosen: &[bool]) -> Result<bool, Error> {
    let without = |(call, chosen): (&Node, &bool)| *chosen && has_rule_alone(call);
    if !graph.nodes.iter().zip(chosen).any(without) {
        return Ok(false);
    }
    let calls = core::mem::take(&mut graph.nodes);
    let mut builder = Builder::new(graph);
    for (call, chosen) in calls.into_iter().zip(chosen) {
        if without((&call, chosen)) {
            lower(&mut builder, call)?;
        } else {
            let args = builder.renamed(&call.args);
            builder.keep(Node { args, ..call });
        }
    }
    builder.finish();
    Ok(true)
}

/// Whether a call has no instruction of its own, but a rule.
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
                "call {id}: {name} has no form for portable kernels"
            )));
        }
        builder.keep(Node { args, ..call });
        return Ok(());
    };
    builder.begin(call.id);
    rule(builder, &args).map_err(|error| error.at(call.id, call.operator.name()))
}

/// The calls that were fused into one, one by one.
fn lower_parts(builder: &mut Builder<'_, '_>, parts: Vec<Node>) -> Result<(), Error> {
    parts.into_iter().try_for_each(|part| {
        // Passes fuse what they read, not what they made, so that parts have none.
        lower(builder, Node { parts: Vec::new(), ..part })
    })
}

#[cfg(test)]
mod tests;
