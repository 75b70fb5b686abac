//! Call-by-call rewriting, the base of all passes that replace calls.
//!
//! Calls are visited in order. A rule sees a call and the already rewritten calls before it. It may
//! add calls in its place, or replace the output by another value. Calls that become unused are
//! left to dead-code elimination.

use super::uses::{Uses, each_member, inputs, written};
use crate::graph::{Graph, Node, Tensor, Value, ValueId};
use crate::operators::Operator;
use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::ScalarType;

/// Applies a rule to each call. Returns how often the rule returned true, which means that all
/// outputs of the call are now produced by new calls or replaced by other values.
pub(super) fn each_call<'p>(
    graph: &mut Graph<'p>,
    mut rule: impl FnMut(&mut Rewriter<'_, 'p>, &Node) -> bool,
) -> usize {
    let mut rewriter = Rewriter::new(graph);
    let nodes = core::mem::take(&mut rewriter.graph.nodes);
    rewriter.nodes.reserve(nodes.len());
    let mut changes = 0;
    for mut node in nodes {
        rewriter.id = node.id;
        rewriter.rename_inputs(&mut node);
        if rule(&mut rewriter, &node) {
            changes += 1;
            inputs(&node).iter().for_each(|id| rewriter.uses.drop(*id));
        } else {
            rewriter.push(node);
        }
    }
    rewriter.finish();
    changes
}

/// A graph whose calls are being rewritten.
pub(super) struct Rewriter<'g, 'p> {
    graph: &'g mut Graph<'p>,
    /// The calls so far.
    nodes: Vec<Node>,
    /// For each value, the index in `nodes` of the call that produces it.
    producers: Vec<Option<usize>>,
    uses: Uses,
    /// For each value, its replacement, or itself.
    current: Vec<ValueId>,
    /// Lists with replaced members, and their copies with the replacements.
    lists: BTreeMap<ValueId, ValueId>,
    /// Values that calls overwrite in place. Calls that read them must not move.
    written: Vec<bool>,
    /// State values that are overwritten at the end of a run.
    updated: Vec<bool>,
    /// Graph outputs, and values that update state.
    leaving: Vec<bool>,
    fixed_shapes: bool,
    /// Whether calls in `nodes` may still name replaced values.
    renamed_made: bool,
    /// The id of the current call.
    id: u32,
}

impl<'g, 'p> Rewriter<'g, 'p> {
    fn new(graph: &'g mut Graph<'p>) -> Self {
        let count = graph.values.len();
        let mut updated = vec![false; count];
        for (_, old) in &graph.updates {
            if let Some(updated) = updated.get_mut(*old) {
                *updated = true;
            }
        }
        let mut leaving = vec![false; count];
        for id in graph.outputs.iter().chain(graph.updates.iter().map(|(new, _)| new)) {
            each_member(graph, *id, |id| {
                if let Some(leaving) = leaving.get_mut(id) {
                    *leaving = true;
                }
            });
        }
        Rewriter {
            nodes: Vec::new(),
            producers: vec![None; count],
            uses: Uses::of(graph),
            current: (0..count).collect(),
            lists: BTreeMap::new(),
            written: written(graph),
            updated,
            leaving,
            fixed_shapes: has_fixed_shapes(graph),
            renamed_made: false,
            id: 0,
            graph,
        }
    }

    /// The replacement of a value, or the value itself.
    fn current(&self, mut id: ValueId) -> ValueId {
        // At most two steps: a replacement may itself be renamed to an output.
        while let Some(next) = self.current.get(id).filter(|next| **next != id) {
            id = *next;
        }
        id
    }

    fn rename_inputs(&mut self, node: &mut Node) {
        let Some((_, inputs)) = node.args.split_last_mut() else { return };
        for id in inputs {
            *id = self.renamed(*id);
        }
    }

    /// The replacement of a value. A list with replaced members gets a copy.
    fn renamed(&mut self, id: ValueId) -> ValueId {
        if let Some(list) = self.lists.get(&id) {
            return *list;
        }
        match self.graph.values.get(id) {
            Some(Value::List(items)) if items.iter().any(|id| self.current(*id) != *id) => {
                let items = items.iter().map(|id| self.current(*id)).collect();
                let list = self.value(Value::List(items));
                self.lists.insert(id, list);
                list
            }
            _ => self.current(id),
        }
    }

    fn push(&mut self, node: Node) {
        let place = self.nodes.len();
        if let Some(out) = node.args.last() {
            let producers = &mut self.producers;
            each_member(self.graph, *out, |id| {
                if let Some(producer) = producers.get_mut(id) {
                    *producer = Some(place);
                }
            });
        }
        self.nodes.push(node);
    }

    fn finish(mut self) {
        let mut nodes = core::mem::take(&mut self.nodes);
        if self.renamed_made {
            nodes.iter_mut().for_each(|node| self.rename_inputs(node));
        }
        self.graph.nodes = nodes;
    }

    /// Whether all sizes are exact, not upper bounds.
    pub(super) fn has_fixed_shapes(&self) -> bool {
        self.fixed_shapes
    }

    /// Number of argument slots that a value fills. Replaced calls do not count, but unused calls
    /// do.
    pub(super) fn uses(&self, id: ValueId) -> u32 {
        self.uses.count_of(id)
    }

    /// The call that produces a value. `None` if the value or an input of that call may have been
    /// overwritten since: evaluating the call again must give the same result.
    pub(super) fn producer(&self, id: ValueId) -> Option<&Node> {
        let place = self.producers.get(id).copied().flatten().filter(|_| self.is_lasting(id))?;
        self.nodes.get(place).filter(|node| self.reads_lasting(node))
    }

    /// Whether no input of a call is overwritten in place.
    pub(super) fn reads_lasting(&self, node: &Node) -> bool {
        let mut lasting = true;
        for id in inputs(node) {
            each_member(self.graph, *id, |id| lasting &= self.is_lasting(id));
        }
        lasting
    }

    /// The inputs of the call that produces a value, if the call has this operator and this only
    /// output.
    pub(super) fn call_of(&self, id: ValueId, operator: Operator) -> Option<&[ValueId]> {
        let node = self.producer(id)?;
        (node.operator == operator && node.args.last() == Some(&id)).then(|| inputs(node))
    }

    /// A value of the graph.
    pub(super) fn get(&self, id: ValueId) -> Option<&Value<'p>> {
        self.graph.values.get(id)
    }

    /// The value as a tensor.
    pub(super) fn tensor(&self, id: ValueId) -> Option<&Tensor<'p>> {
        match self.get(id)? {
            Value::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// The sizes of a tensor, or their upper bounds.
    pub(super) fn sizes(&self, id: ValueId) -> Option<&[usize]> {
        Some(&self.tensor(id)?.sizes)
    }

    /// The element type of a tensor.
    pub(super) fn scalar_type(&self, id: ValueId) -> Option<ScalarType> {
        Some(self.tensor(id)?.scalar_type)
    }

    /// A constant tensor and its data. `None` if the tensor changes between runs.
    pub(super) fn constant(&self, id: ValueId) -> Option<(&Tensor<'p>, &[u8])> {
        let tensor = self.tensor(id)?;
        let is_state = tensor.changes == Some(true)
            || !self.is_lasting(id)
            || self.updated.get(id) == Some(&true);
        (!is_state).then_some((tensor, tensor.data.as_deref()?))
    }

    /// The value of a constant scalar: a scalar argument, a constant tensor of one element, or a
    /// floating-point conversion of such a tensor.
    pub(super) fn number(&self, id: ValueId) -> Option<f64> {
        let converted = self.producer(id).filter(|node| {
            let operator = node.operator;
            operator == Operator::TO_COPY || operator == Operator::DIM_ORDER_OPS_TO_DIM_ORDER_COPY
        });
        if let Some(input) = converted.and_then(|node| inputs(node).first()) {
            let (number, scalar_type) = (self.known_number(*input)?, self.scalar_type(id)?);
            return scalar_type
                .is_floating()
                .then(|| super::constant::rounded(scalar_type, number))?;
        }
        self.known_number(id)
    }

    fn known_number(&self, id: ValueId) -> Option<f64> {
        match self.get(id)? {
            Value::Double(value) => Some(*value),
            // Larger integers are not exact as `f64`.
            Value::Int(value) => (value.unsigned_abs() <= 1 << 53).then_some(*value as f64),
            Value::Tensor(_) => {
                let (tensor, data) = self.constant(id)?;
                let mut elements = super::constant::decode(tensor.scalar_type, data)?;
                let first = elements.next()?;
                (elements.next().is_none()).then_some(first)
            }
            _ => None,
        }
    }

    /// The value of a constant integer.
    pub(super) fn int(&self, id: ValueId) -> Option<i64> {
        match self.get(id)? {
            Value::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// The value of a constant boolean, or `default` if the argument is absent.
    pub(super) fn flag(&self, id: Option<&ValueId>, default: bool) -> Option<bool> {
        match id.and_then(|id| self.get(*id)) {
            None | Some(Value::None) => Some(default),
            Some(Value::Bool(value)) => Some(*value),
            Some(Value::Int(value)) => Some(*value != 0),
            _ => None,
        }
    }

    /// The elements of a constant list of integers.
    pub(super) fn ints(&self, id: ValueId) -> Option<Cow<'_, [i64]>> {
        match self.get(id)? {
            Value::IntList(items) => Some(Cow::Borrowed(items)),
            Value::List(items) => items.iter().map(|id| self.int(*id)).collect(),
            Value::Int(value) => Some(Cow::Owned(vec![*value])),
            _ => None,
        }
    }

    /// Whether an argument is missing or `None`.
    pub(super) fn is_none(&self, id: Option<&ValueId>) -> bool {
        id.is_none_or(|id| matches!(self.get(*id), Some(Value::None) | None))
    }

    /// Adds a value.
    pub(super) fn value(&mut self, value: Value<'p>) -> ValueId {
        let id = self.graph.values.len();
        self.graph.values.push(value);
        self.producers.push(None);
        self.current.push(id);
        self.written.push(false);
        self.updated.push(false);
        self.leaving.push(false);
        id
    }

    /// Adds a tensor for the output of a new call.
    pub(super) fn new_tensor(&mut self, scalar_type: ScalarType, sizes: Vec<usize>) -> ValueId {
        self.value(Value::Tensor(Tensor {
            scalar_type,
            host_type: scalar_type,
            sizes,
            dynamic: false,
            data: None,
            changes: None,
        }))
    }

    /// Whether a value is never overwritten in place, so that calls may read it later.
    pub(super) fn is_lasting(&self, id: ValueId) -> bool {
        self.written.get(id) != Some(&true)
    }

    /// Whether a processor supports a call, before the call is added. `takes` receives a graph with
    /// only this call, and decides. `out` is a tensor, or a list of tensors, the first of which
    /// becomes the graph's output.
    pub(super) fn is_taken(
        &self,
        operator: Operator,
        args: &[ValueId],
        out: ValueId,
        takes: &mut dyn FnMut(&Graph<'_>, &Node) -> bool,
    ) -> bool {
        self.is_taken_once(operator, args, out, &mut |_, _| Some(()), takes)
    }

    /// Like [`is_taken`](Self::is_taken), but first applies changes to the call's tensors. `change`
    /// receives the index of each argument; the outputs follow the arguments. If `change` returns
    /// `None`, the call is impossible.
    pub(super) fn is_taken_once(
        &self,
        operator: Operator,
        args: &[ValueId],
        out: ValueId,
        change: &mut dyn FnMut(usize, &mut Tensor<'_>) -> Option<()>,
        takes: &mut dyn FnMut(&Graph<'_>, &Node) -> bool,
    ) -> bool {
        let outs = match self.get(out) {
            Some(Value::List(members)) => members.clone(),
            _ => vec![out],
        };
        let values = args.iter().chain(&outs).map(|id| self.get(*id).map(Value::borrowed));
        let Some(mut values) = values.collect::<Option<Vec<Value<'_>>>>() else { return false };
        for (place, value) in values.iter_mut().enumerate() {
            if let Value::Tensor(tensor) = value
                && change(place, tensor).is_none()
            {
                return false;
            }
        }
        // Members of lists are appended.
        for at in 0..args.len() {
            let Some(Value::List(members)) = values.get(at) else { continue };
            let members = members.clone();
            let first = values.len();
            let own = members.iter().map(|id| self.get(*id).map(Value::borrowed));
            let Some(own) = own.collect::<Option<Vec<Value<'_>>>>() else { return false };
            values.extend(own);
            if let Some(list) = values.get_mut(at) {
                *list = Value::List((first..first + members.len()).collect());
            }
        }
        let makes = args.len()..args.len() + outs.len();
        let given = |(id, value): &(usize, &Value<'_>)| {
            !makes.contains(id) && matches!(value, Value::Tensor(tensor) if tensor.data.is_none())
        };
        let inputs = values.iter().enumerate().filter(given).map(|(id, _)| id).collect();
        let last = match outs == [out] {
            true => args.len(),
            false => {
                values.push(Value::List(makes.clone().collect()));
                values.len() - 1
            }
        };
        let node = Node::new(operator, (0..args.len()).chain([last]).collect());
        let outputs = vec![args.len()];
        let alone =
            Graph { inputs, outputs, nodes: vec![node.clone()], values, ..Graph::default() };
        takes(&alone, &node)
    }

    /// Adds a call if a processor supports it; see [`is_taken`](Self::is_taken).
    pub(super) fn call_if_taken(
        &mut self,
        operator: Operator,
        args: &[ValueId],
        out: ValueId,
        takes: &mut dyn FnMut(&Graph<'_>, &Node) -> bool,
    ) -> Option<()> {
        self.is_taken(operator, args, out, takes).then(|| self.call(operator, args, out))
    }

    /// Adds a call. The inputs must never be overwritten in place (see
    /// [`is_lasting`](Self::is_lasting)).
    pub(super) fn call(&mut self, operator: Operator, inputs: &[ValueId], out: ValueId) {
        inputs.iter().for_each(|id| self.uses.add(*id));
        let mut args = inputs.to_vec();
        args.push(out);
        self.push(Node { id: self.id, operator, args, parts: Vec::new() });
    }

    /// Adds a call with a new tensor as its output.
    pub(super) fn call_new(
        &mut self,
        operator: Operator,
        inputs: &[ValueId],
        scalar_type: ScalarType,
        sizes: Vec<usize>,
    ) -> ValueId {
        let out = self.new_tensor(scalar_type, sizes);
        self.call(operator, inputs, out);
        out
    }

    /// Replaces a value in all later calls. Returns whether that was possible. Both values must be
    /// tensors of the same dtype and shape, or both symbolic integers, and never be overwritten in
    /// place. A graph output keeps its id: the call that produces `new` then produces `old`
    /// instead. This fails if `new` is a graph output or input itself.
    pub(super) fn replace(&mut self, old: ValueId, new: ValueId) -> bool {
        let new = self.current(new);
        let (same, same_outside) = match (self.get(old), self.get(new)) {
            (Some(Value::Tensor(a)), Some(Value::Tensor(b))) => {
                let same = a.scalar_type == b.scalar_type && a.sizes == b.sizes;
                (same, a.host_type == b.host_type)
            }
            (Some(Value::SymInt(_)), Some(Value::SymInt(_))) => (true, true),
            _ => return false,
        };
        if old == new || !same || !self.is_lasting(old) || !self.is_lasting(new) {
            return false;
        }
        if self.leaving.get(old) != Some(&true) {
            return self.stand_in(old, new);
        }
        if self.leaving.get(new) != Some(&false) || !same_outside {
            return false;
        }
        let place = self.producers.get(new).copied().flatten();
        let producer = place.and_then(|place| self.nodes.get_mut(place));
        match producer.and_then(|node| node.args.last_mut()).filter(|out| **out == new) {
            Some(out) => *out = old,
            None => return false,
        }
        if let Ok([old, new]) = self.producers.get_disjoint_mut([old, new]) {
            core::mem::swap(old, new);
        }
        self.lists.clear();
        self.renamed_made = true;
        self.stand_in(new, old)
    }

    fn stand_in(&mut self, old: ValueId, new: ValueId) -> bool {
        if let Some(current) = self.current.get_mut(old) {
            *current = new;
        }
        self.uses.give(old, new);
        true
    }
}

/// Whether all sizes of a graph are the same in every run.
pub(super) fn has_fixed_shapes(graph: &Graph<'_>) -> bool {
    let varies = |value: &Value<'_>| match value {
        Value::SymInt(_) => true,
        Value::Tensor(tensor) => tensor.dynamic,
        _ => false,
    };
    !graph.values.iter().any(varies)
        && !graph.nodes.iter().any(|node| graph.is_data_dependent(node))
}
