//! Lowering of a graph's calls to the steps of a plan.
//!
//! Operators query their arguments ([`values`]), request constants as they are or packed
//! ([`constants`]), create tensors and append the steps that compute them ([`results`]).

mod constants;
mod results;
mod values;

use super::given::Given;
use super::ops::{self, Epilogue};
use super::packed::{Constant, Key, Packs};
use super::packer::Made;
use super::plan::{Buffer, Call, Home, Plan};
use super::view::View;
use crate::compute::gemm::Context;
use std::borrow::ToOwned;
use std::collections::{BTreeSet, HashMap};
use std::format;
use std::string::String;
use std::vec::Vec;
use torchlet_graph::graph::{Graph, Node, Value, ValueId};
use torchlet_graph::operators::Operator;
use torchlet_graph::passes::uses::Uses;

/// Reason why something is not supported, as a message to the user.
pub(super) type Refusal = String;

/// Purpose of a lowering.
#[derive(Debug, Clone, Copy)]
enum Purpose<'g> {
    /// To query support, without reading data.
    Question,
    /// To pack weights.
    Packing(&'g Packs),
    /// To run the plan. Packed weights are shared with other users.
    Plan(&'g Packs),
}

/// Builds a plan, call by call.
pub(super) struct Builder<'g, 'p> {
    graph: &'g Graph<'p>,
    /// Instruction set and threads.
    pub(super) machine: Context<'g>,
    purpose: Purpose<'g>,
    views: HashMap<ValueId, View>,
    /// Forms of the weights that were packed ahead of time.
    packed: HashMap<ValueId, Vec<(&'g [i64], Constant<'p>)>>,
    /// Epilogue of the contraction being lowered.
    epilogue: Epilogue,
    /// Integer inputs of the region.
    numbers: HashMap<ValueId, i64>,
    /// Whether the graph's shapes are upper bounds.
    varies: bool,
    /// Shapes of the outputs.
    outputs: Vec<Vec<usize>>,
    /// Weights that were packed here, and constants that are used unpacked.
    packed_here: Vec<Made>,
    plain: BTreeSet<ValueId>,
    buffers: Vec<Buffer<'p>>,
    calls: Vec<Call<'p>>,
    /// Index of the graph's call being lowered; of the last call while outputs are assigned.
    node: usize,
    /// Remaining uses of each value.
    uses: HashMap<ValueId, usize>,
    /// Remaining uses of each buffer, through all values in it.
    pending: Vec<usize>,
    /// Reason why the plan cannot be built, if that was found while a step was appended.
    refused: Option<Refusal>,
    /// Copied constants.
    lines: HashMap<Key, Constant<'p>>,
    /// Reordered copies of views, by view and strides.
    copies: HashMap<(View, Vec<usize>), View>,
}

/// Number of uses of each value, by calls or as outputs.
fn uses(graph: &Graph<'_>) -> HashMap<ValueId, usize> {
    let uses = Uses::of(graph);
    (0..graph.values.len()).map(|id| (id, uses.count_of(id) as usize)).collect()
}

/// Integers computed from tensor elements, such as the position of a token, which may differ in
/// every run. Integers computed from shapes change only with the shapes.
fn integers_of_elements(graph: &Graph<'_>) -> BTreeSet<ValueId> {
    let mut found = BTreeSet::new();
    for node in &graph.nodes {
        let Some((out, inputs)) = node.args.split_last() else { continue };
        let is_one = |id: &ValueId| match graph.values.get(*id) {
            Some(Value::SymInt(_)) => found.contains(id),
            Some(Value::Tensor(_)) => {
                !matches!(node.operator, Operator::SYM_SIZE_INT | Operator::SYM_NUMEL)
            }
            _ => false,
        };
        let is_number = matches!(graph.values.get(*out), Some(Value::SymInt(_)));
        if is_number && inputs.iter().flat_map(|id| graph.items(id)).any(is_one) {
            found.insert(*out);
        }
    }
    found
}

impl<'g, 'p> Builder<'g, 'p> {
    /// A builder of executable plans.
    pub(super) fn new(graph: &'g Graph<'p>, machine: Context<'g>, packs: &'g Packs) -> Self {
        Self::with(graph, machine, Purpose::Plan(packs), uses(graph))
    }

    fn with(
        graph: &'g Graph<'p>,
        machine: Context<'g>,
        purpose: Purpose<'g>,
        uses: HashMap<ValueId, usize>,
    ) -> Self {
        Builder {
            graph,
            machine,
            purpose,
            views: HashMap::new(),
            packed: HashMap::new(),
            epilogue: Epilogue::default(),
            numbers: HashMap::new(),
            varies: Given::varies(graph),
            outputs: Vec::new(),
            packed_here: Vec::new(),
            plain: BTreeSet::new(),
            buffers: Vec::new(),
            calls: Vec::new(),
            node: 0,
            uses,
            pending: Vec::new(),
            refused: None,
            lines: HashMap::new(),
            copies: HashMap::new(),
        }
    }

    /// For each of these calls, whether the engine supports it, or the reason why not.
    pub(super) fn ask(
        graph: &'g Graph<'p>,
        nodes: &'g [Node],
        machine: Context<'g>,
    ) -> Vec<Result<(), Refusal>> {
        let uses = Uses::of(graph);
        let of_elements = integers_of_elements(graph);
        let answers = nodes.iter().map(|node| {
            // Every token position would need a plan of its own.
            let mut items = node.args.iter().flat_map(|id| graph.items(id));
            if items.any(|id| of_elements.contains(id)) {
                return Err("an integer that may change in every run".to_owned());
            }
            // Unused results need not be computed.
            let results = node.args.last().map_or(&[][..], |out| graph.items(out));
            let results = results.iter().map(|id| (*id, uses.count_of(*id) as usize));
            Builder::with(graph, machine, Purpose::Question, results.collect()).add(node)
        });
        answers.collect()
    }

    /// Packs the weights of a graph. Also returns the constants that are used unpacked.
    ///
    /// # Errors
    /// If a call is not supported or memory is insufficient.
    pub(super) fn pack(
        graph: &'g Graph<'p>,
        machine: Context<'g>,
        packs: &'g Packs,
    ) -> Result<(Vec<Made>, BTreeSet<ValueId>), Refusal> {
        let mut builder = Self::with(graph, machine, Purpose::Packing(packs), uses(graph));
        builder.add_all(&Given::of(graph))?;
        Ok((builder.packed_here, builder.plain))
    }

    /// Builds the plan of all calls for the given inputs.
    ///
    /// # Errors
    /// If a call is not supported or memory is insufficient.
    pub(super) fn build(mut self, given: &[Given]) -> Result<Plan<'p>, Refusal> {
        self.add_all(given)?;
        if let Some(why) = self.refused {
            return Err(why);
        }
        Plan::new(self.calls, &self.buffers, self.outputs, self.machine)
            .ok_or_else(|| "out of memory".to_owned())
    }

    fn add_all(&mut self, given: &[Given]) -> Result<(), Refusal> {
        let changes = |value: &Value<'_>| match value {
            Value::Tensor(tensor) => tensor.changes == Some(true),
            _ => false,
        };
        if !self.graph.updates.is_empty() || self.graph.values.iter().any(changes) {
            return Err("state in CPU regions".to_owned());
        }
        if given.len() != self.graph.inputs.len() {
            return Err(format!(
                "expected {} inputs, found {}",
                self.graph.inputs.len(),
                given.len()
            ));
        }
        for (index, (id, given)) in self.graph.inputs.iter().zip(given).enumerate() {
            match given {
                // Integer inputs are unknown while weights are packed.
                Given::Number(number) => {
                    if matches!(self.purpose, Purpose::Plan(_)) {
                        self.numbers.insert(*id, *number);
                    }
                }
                Given::Sizes(sizes) => {
                    self.check_shape(*id, sizes)?;
                    let len = self.count(sizes)?;
                    let element = self.element(*id)?;
                    let buffer = self.buffer(Home::Input(index), len, element);
                    self.place(*id, View::whole(buffer, sizes));
                }
            }
        }
        for (index, node) in self.graph.nodes.iter().enumerate() {
            self.node = index;
            self.add(node).map_err(|why| format!("call {} ({}): {why}", node.id, node.title()))?;
            let inputs = node.args.split_last().map_or(&[][..], |(_, inputs)| inputs);
            for id in inputs.iter().flat_map(|id| self.graph.items(id)) {
                self.forget(*id);
            }
        }
        for (index, id) in self.graph.outputs.iter().enumerate() {
            self.give(index, *id)?;
        }
        Ok(())
    }

    /// Lowers a call.
    fn add(&mut self, node: &Node) -> Result<(), Refusal> {
        let operation = ops::find(node.operator)
            .ok_or_else(|| "an operator that the CPU engine lacks".to_owned())?;
        let mut is_open = false;
        for id in node.args.iter().flat_map(|id| self.graph.items(id)) {
            match self.graph.values.get(*id) {
                Some(Value::Tensor(_)) if self.is_taken(*id) || !self.is_result(node, *id) => {
                    self.element(*id)?;
                }
                Some(Value::SymInt(_)) => is_open |= !self.numbers.contains_key(id),
                _ => {}
            }
        }
        if is_open {
            return self.leave_open(node);
        }
        operation(self, &node.args)
    }

    /// Uses the upper bounds of shapes that depend on unknown integers. Only for calls that
    /// rearrange tensors, where nothing else depends on the integers.
    fn leave_open(&mut self, node: &Node) -> Result<(), Refusal> {
        let is_known = matches!(self.purpose, Purpose::Plan(_));
        if is_known || !ops::only_rearranges(node.operator) {
            return Err("an integer that is unknown at load time".to_owned());
        }
        for id in node.args.last().map_or(&[][..], |out| self.graph.items(out)) {
            if self.is_taken(*id) {
                let view = self.make_of(&self.tensor(*id)?.sizes, self.element(*id)?)?;
                self.define(*id, view)?;
            }
        }
        Ok(())
    }

    fn is_result(&self, node: &Node, id: ValueId) -> bool {
        node.args.last().is_some_and(|out| self.graph.items(out).contains(&id))
    }

    /// Releases one use of a value.
    fn forget(&mut self, id: ValueId) {
        let Some(uses) = self.uses.get_mut(&id).filter(|uses| **uses > 0) else { return };
        let Some(view) = self.views.get(&id) else { return };
        *uses -= 1;
        if let Some(pending) = self.pending.get_mut(view.buffer) {
            *pending = pending.saturating_sub(1);
        }
    }

    /// Makes a value output `index` of the region.
    fn give(&mut self, index: usize, id: ValueId) -> Result<(), Refusal> {
        let view = self.any(id)?;
        self.outputs.push(view.sizes.clone());
        let whole = view.is_contiguous() && view.offset == 0;
        if let Some(buffer) = self.buffers.get_mut(view.buffer)
            && matches!(buffer.home, Home::Shared)
            && whole
            && buffer.len == view.numel()
        {
            buffer.home = Home::Output(index);
            return Ok(());
        }
        let element = self.element_of(&view);
        let buffer = self.buffer(Home::Output(index), view.numel(), element);
        let target = View::whole(buffer, &view.sizes);
        if !self.move_results(&view, &target) {
            ops::copy(self, &view, &target);
        }
        Ok(())
    }
}
