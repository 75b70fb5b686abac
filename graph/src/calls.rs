//! Cost of each call of a program, for profilers and benchmarks.

use crate::budget::Computed;
use crate::error::Error;
use crate::front::delegate::graph_of;
use crate::front::{FrontEnd, Vocabulary};
use crate::graph::{Graph, Node, ValueId};
use crate::method::{Instruction, Method, Program};
use crate::named::of_program;
use crate::partition::arguments;
use crate::work::{Work, of_each};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use torchlet_core::{DataMap, Registry, ScalarType};

/// Cost of a call, computed from its shapes. For dynamic shapes, an upper bound.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct CallWork {
    /// Index of the instruction. For a call inside a delegate, the instruction that calls the
    /// delegate.
    pub instruction: usize,
    /// Id of the call inside the delegate; `None` for an instruction.
    pub part: Option<u32>,
    /// Operator name.
    pub operator: String,
    /// Number of arithmetic operations.
    pub operations: f64,
    /// Bytes of all inputs and outputs, each counted once.
    pub bytes: f64,
    /// Bytes of the constant inputs.
    pub constant_bytes: f64,
    /// Dtype of the first output, if it is a tensor.
    pub scalar_type: Option<ScalarType>,
}

/// Computes the cost of each call of each method. Counts kernel instructions that correspond to a
/// graph operator, and the calls inside delegates whose format is known. `prepare` receives the
/// name of a delegate's backend and the delegate's graph. It applies the graph passes that the
/// backend runs at load time.
///
/// # Errors
/// The program is malformed.
pub fn work<'p>(
    program: &torchlet_core::Program<'p>,
    data: &'p [DataMap<'p>],
    registry: &Registry<'_>,
    prepare: &dyn Fn(&str, &mut Graph<'_>),
) -> Result<Vec<(String, Vec<CallWork>)>, Error> {
    let vocabulary = Vocabulary::of(registry);
    let read = Program::read(program)?;
    let (named, computed) = (of_program(program, data), Computed::new());
    let methods = read.methods.iter().map(|method| {
        let mut calls = of_instructions(method, data, &vocabulary)?;
        for (index, instruction) in method.instructions.iter().enumerate() {
            let Instruction::Delegate { delegate, .. } = instruction else { continue };
            // Unreadable delegates are skipped.
            if let Some(Ok(mut graph)) = graph_of(method, *delegate, &named, &computed) {
                if let Some(delegate) = method.delegates.get(*delegate) {
                    prepare(&delegate.backend, &mut graph);
                }
                calls.extend(of_graph(&graph).map(|(node, mut call)| {
                    (call.instruction, call.part) = (index, Some(node.id));
                    call
                }));
            }
        }
        Ok((method.name.clone(), calls))
    });
    methods.collect()
}

/// Parses the delegates of a method into graphs, in order. An entry is `None` if the delegate's
/// format is unknown, and an error if the delegate cannot be parsed.
///
/// # Errors
/// The program is malformed, or has no method of this name.
pub fn delegates<'p>(
    program: &torchlet_core::Program<'p>,
    data: &'p [DataMap<'p>],
    method: &str,
) -> Result<Vec<Option<Result<Graph<'p>, Error>>>, Error> {
    let read = Program::read(program)?;
    let (named, computed) = (of_program(program, data), Computed::new());
    let found = read.methods.iter().find(|found| found.name == method);
    let found =
        found.ok_or_else(|| Error::Invalid(format!("the program has no method '{method}'")))?;
    let delegates = 0..found.delegates.len();
    Ok(delegates.map(|index| graph_of(found, index, &named, &computed)).collect())
}

/// Adds an instruction for each view that the exporter elided. Returns the changed method and the
/// original index of each instruction.
fn explicit<'p>(method: &Method<'p>, vocabulary: &Vocabulary) -> (Method<'p>, Vec<Option<usize>>) {
    let mut changed = method.clone();
    // Calls inside delegates are counted separately.
    if !changed.make_views_explicit(vocabulary, &BTreeMap::new()) {
        changed = method.clone();
    }
    let numbers = kept(method, &changed);
    (changed, numbers)
}

/// Returns, for each instruction of `after`, its index in `before`, the method without explicit
/// views; `None` for added instructions. Original instructions are unchanged and in order. Added
/// instructions use new values, so they never equal an original one.
pub(crate) fn kept(before: &Method<'_>, after: &Method<'_>) -> Vec<Option<usize>> {
    let mut old = before.instructions.iter().enumerate().peekable();
    let numbers = after
        .instructions
        .iter()
        .map(|instruction| old.next_if(|(_, own)| *own == instruction).map(|(number, _)| number));
    numbers.collect()
}

fn of_instructions<'p>(
    method: &Method<'p>,
    data: &'p [DataMap<'p>],
    vocabulary: &Vocabulary,
) -> Result<Vec<CallWork>, Error> {
    let (method, numbers) = explicit(method, vocabulary);
    // Calls inside delegates are counted separately.
    let delegates: Vec<_> = method.delegates.iter().map(|_| None).collect();
    let front = FrontEnd::new(&method, &delegates, data, vocabulary);
    let runs = front.runs()?;
    let calls = runs.iter().flat_map(|run| of_graph(&run.graph));
    let calls = calls.filter_map(|(node, call)| {
        let number = usize::try_from(node.id).ok()?;
        let instruction = numbers.get(number).copied().flatten()?;
        Some(CallWork { instruction, ..call })
    });
    Ok(calls.collect())
}

fn of_graph<'g>(graph: &'g Graph<'_>) -> impl Iterator<Item = (&'g Node, CallWork)> {
    graph.nodes.iter().zip(of_each(graph)).map(|(node, work)| (node, of_node(graph, node, work)))
}

fn of_node(graph: &Graph<'_>, node: &Node, work: Work) -> CallWork {
    let (inputs, outputs) = arguments(graph, node);
    let is_constant =
        |id: &&ValueId| graph.tensor(**id).is_some_and(|tensor| tensor.data.is_some());
    let constants: Vec<ValueId> = inputs.iter().filter(is_constant).copied().collect();
    CallWork {
        instruction: 0,
        part: None,
        operator: node.title(),
        operations: work.operations,
        bytes: work.bytes,
        constant_bytes: crate::work::bytes(graph, &constants),
        scalar_type: outputs.first().and_then(|id| Some(graph.tensor(*id)?.scalar_type)),
    }
}
