//! From the calls of a graph to the calls of a plan.
//!
//! Operations ask what their arguments are ([`values`]) and take constants as they are, or packed
//! ([`constants`]); they make tensors and add steps that fill them ([`results`]).

mod constants;
mod results;
mod values;

use super::given::Given;
use super::ops;
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

/// Why something is not run here, in words for the user.
pub(super) type Refusal = String;

/// What calls are added for.
#[derive(Debug, Clone, Copy)]
enum Purpose<'g> {
    /// To know what can be done: no data is read.
    Question,
    /// To pack the weights that they take.
    Packing(&'g Packs),
    /// To run them. Packed weights are shared with those who have them already.
    Plan(&'g Packs),
}

/// Makes a plan, call by call.
pub(super) struct Builder<'g, 'p> {
    graph: &'g Graph<'p>,
    /// Instruction set and threads.
    pub(super) machine: Context<'g>,
    purpose: Purpose<'g>,
    views: HashMap<ValueId, View>,
    /// Weights that were packed when the program was compiled: in which forms.
    packed: HashMap<ValueId, Vec<(&'g [i64], Constant<'p>)>>,
    /// Integers that the caller gives.
    numbers: HashMap<ValueId, i64>,
    /// Whether what the graph says of shapes are bounds.
    varies: bool,
    /// The shapes of results.
    outputs: Vec<Vec<usize>>,
    /// What was packed here, and the constants that were taken as they are.
    packed_here: Vec<Made>,
    plain: BTreeSet<ValueId>,
    buffers: Vec<Buffer<'p>>,
    calls: Vec<Call<'p>>,
    /// The call of the graph that is being added; the last one, where results are given.
    node: usize,
    /// How often each value is still taken.
    uses: HashMap<ValueId, usize>,
    /// The same for buffers, through all values in them.
    pending: Vec<usize>,
    /// Why there can be no plan, where that is found when a step is added.
    refused: Option<Refusal>,
    /// The constants that were copied.
    lines: HashMap<Key, Constant<'p>>,
    /// What values look like in another order: the copy.
    copies: HashMap<(View, Vec<usize>), View>,
}

/// How often each value is taken by calls, or by the caller.
fn uses(graph: &Graph<'_>) -> HashMap<ValueId, usize> {
    let uses = Uses::of(graph);
    (0..graph.values.len()).map(|id| (id, uses.count_of(id) as usize)).collect()
}

/// The integers that follow from elements of tensors, such as the position of a token, and so may
/// be others in each run. Those that follow from shapes are others only where these are.
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
    /// A plan of this graph.
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

    /// Whether each of these calls of a graph can be part of a plan, and why not.
    pub(super) fn ask(
        graph: &'g Graph<'p>,
        nodes: &'g [Node],
        machine: Context<'g>,
    ) -> Vec<Result<(), Refusal>> {
        let uses = Uses::of(graph);
        let of_elements = integers_of_elements(graph);
        let answers = nodes.iter().map(|node| {
            // There would be a plan for each position of a token.
            let mut items = node.args.iter().flat_map(|id| graph.items(id));
            if items.any(|id| of_elements.contains(id)) {
                return Err("a number may be another one in each run".to_owned());
            }
            // What nobody takes does not have to be made.
            let results = node.args.last().map_or(&[][..], |out| graph.items(out));
            let results = results.iter().map(|id| (*id, uses.count_of(*id) as usize));
            Builder::with(graph, machine, Purpose::Question, results.collect()).add(node)
        });
        answers.collect()
    }

    /// Packs the weights of a graph, and says which constants are taken as they are.
    ///
    /// # Errors
    /// A call cannot be part of a plan, or there is not the memory for it.
    pub(super) fn pack(
        graph: &'g Graph<'p>,
        machine: Context<'g>,
        packs: &'g Packs,
    ) -> Result<(Vec<Made>, BTreeSet<ValueId>), Refusal> {
        let mut builder = Self::with(graph, machine, Purpose::Packing(packs), uses(graph));
        builder.add_all(&Given::of(graph))?;
        Ok((builder.packed_here, builder.plain))
    }

    /// The plan of all calls for what the region is called with.
    ///
    /// # Errors
    /// A call cannot be part of one, or there is not the memory for it.
    pub(super) fn build(mut self, given: &[Given]) -> Result<Plan<'p>, Refusal> {
        self.add_all(given)?;
        if let Some(why) = self.refused {
            return Err(why);
        }
        Plan::new(self.calls, &self.buffers, self.outputs, self.machine)
            .ok_or_else(|| "more memory than there is".to_owned())
    }

    fn add_all(&mut self, given: &[Given]) -> Result<(), Refusal> {
        let changes = |value: &Value<'_>| match value {
            Value::Tensor(tensor) => tensor.changes == Some(true),
            _ => false,
        };
        if !self.graph.updates.is_empty() || self.graph.values.iter().any(changes) {
            return Err("regions of the CPU keep no state".to_owned());
        }
        if given.len() != self.graph.inputs.len() {
            return Err("another number of inputs".to_owned());
        }
        for (index, (id, given)) in self.graph.inputs.iter().zip(given).enumerate() {
            match given {
                // Of what is only packed, numbers are not known.
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

    /// Adds a call.
    fn add(&mut self, node: &Node) -> Result<(), Refusal> {
        let operation = ops::find(node.operator)
            .ok_or_else(|| "it is not one of the engine's operators".to_owned())?;
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

    /// Takes the bounds of shapes where integers that make them are not known yet: of calls that
    /// only rearrange tensors, nothing else depends on them.
    fn leave_open(&mut self, node: &Node) -> Result<(), Refusal> {
        let is_known = matches!(self.purpose, Purpose::Plan(_));
        if is_known || !ops::only_rearranges(node.operator) {
            return Err("a number is not known beforehand".to_owned());
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

    /// A use of a value is done.
    fn forget(&mut self, id: ValueId) {
        let Some(uses) = self.uses.get_mut(&id).filter(|uses| **uses > 0) else { return };
        let Some(view) = self.views.get(&id) else { return };
        *uses -= 1;
        if let Some(pending) = self.pending.get_mut(view.buffer) {
            *pending = pending.saturating_sub(1);
        }
    }

    /// Makes a value the result of this number.
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
