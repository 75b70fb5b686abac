//! Rewriting call by call: what all passes that replace calls are made of.
//!
//! Calls are visited in order. A rule sees a call, and the calls before it as they have become; it
//! may make calls in its place, or say that the output is the same as another value. What a call no
//! longer needs is left for dead code to find.

use super::uses::{Uses, each_member, inputs, written};
use crate::graph::{Graph, Node, Tensor, Value, ValueId};
use crate::operators::Operator;
use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::ScalarType;

/// Applies a rule to each call, and says how often it applied. The rule is true if all outputs of
/// the call are made by others now, or are the same as others.
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
    /// Of each value, the place of its maker among the calls so far.
    makers: Vec<Option<usize>>,
    uses: Uses,
    /// Of each value, the one that stands for it.
    current: Vec<ValueId>,
    /// Lists with members that others stand for now, and their new forms.
    lists: BTreeMap<ValueId, ValueId>,
    /// Values that are written behind the back of what made them: what reads them must stay where
    /// it is.
    written: Vec<bool>,
    /// Values that others overwrite when a run is done.
    updated: Vec<bool>,
    /// Values that the caller takes, or that update others.
    leaving: Vec<bool>,
    fixed_shapes: bool,
    /// Whether calls so far may name values that others stand for.
    renamed_made: bool,
    /// The number of the call in question.
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
            makers: vec![None; count],
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

    /// The value that stands for another.
    fn current(&self, mut id: ValueId) -> ValueId {
        // Two steps at most: what stands for others may get the name of an output.
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

    /// The value that stands for another one; a list of which some have another is a list of its
    /// own.
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
            let makers = &mut self.makers;
            each_member(self.graph, *out, |id| {
                if let Some(maker) = makers.get_mut(id) {
                    *maker = Some(place);
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

    /// Whether sizes are what they are in every run, not just bounds.
    pub(super) fn has_fixed_shapes(&self) -> bool {
        self.fixed_shapes
    }

    /// How many arguments a value is, of calls that are there: those that rules have replaced are
    /// not, those that nobody takes any more are.
    pub(super) fn uses(&self, id: ValueId) -> u32 {
        self.uses.count_of(id)
    }

    /// The call that makes a value, unless what it read, or the value, may have been overwritten
    /// meanwhile: what stands in its inputs now could be read again with the same result.
    pub(super) fn maker(&self, id: ValueId) -> Option<&Node> {
        let place = self.makers.get(id).copied().flatten().filter(|_| self.is_lasting(id))?;
        self.nodes.get(place).filter(|node| self.reads_lasting(node))
    }

    /// Whether nothing that a call reads is written behind its back.
    pub(super) fn reads_lasting(&self, node: &Node) -> bool {
        let mut lasting = true;
        for id in inputs(node) {
            each_member(self.graph, *id, |id| lasting &= self.is_lasting(id));
        }
        lasting
    }

    /// The inputs of the call that makes a value, if it is of this operator and that is its only
    /// output.
    pub(super) fn call_of(&self, id: ValueId, operator: Operator) -> Option<&[ValueId]> {
        let node = self.maker(id)?;
        (node.operator == operator && node.args.last() == Some(&id)).then(|| inputs(node))
    }

    /// A value.
    pub(super) fn get(&self, id: ValueId) -> Option<&Value<'p>> {
        self.graph.values.get(id)
    }

    /// The tensor that a value is.
    pub(super) fn tensor(&self, id: ValueId) -> Option<&Tensor<'p>> {
        match self.get(id)? {
            Value::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// The sizes of a tensor, or their bounds.
    pub(super) fn sizes(&self, id: ValueId) -> Option<&[usize]> {
        Some(&self.tensor(id)?.sizes)
    }

    /// The element type of a tensor.
    pub(super) fn scalar_type(&self, id: ValueId) -> Option<ScalarType> {
        Some(self.tensor(id)?.scalar_type)
    }

    /// The data of a tensor that is the same in every run.
    pub(super) fn constant(&self, id: ValueId) -> Option<(&Tensor<'p>, &[u8])> {
        let tensor = self.tensor(id)?;
        let is_state = tensor.changes == Some(true)
            || !self.is_lasting(id)
            || self.updated.get(id) == Some(&true);
        (!is_state).then_some((tensor, tensor.data.as_deref()?))
    }

    /// A number that is known: a scalar, or a constant tensor of one element, or what such a tensor
    /// is converted to.
    pub(super) fn number(&self, id: ValueId) -> Option<f64> {
        let converted = self.maker(id).filter(|node| {
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
            // Larger ones are not what they were, as floating-point numbers.
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

    /// An integer that is known.
    pub(super) fn int(&self, id: ValueId) -> Option<i64> {
        match self.get(id)? {
            Value::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// A truth value that is known, or `default` where nothing is given.
    pub(super) fn flag(&self, id: Option<&ValueId>, default: bool) -> Option<bool> {
        match id.and_then(|id| self.get(*id)) {
            None | Some(Value::None) => Some(default),
            Some(Value::Bool(value)) => Some(*value),
            Some(Value::Int(value)) => Some(*value != 0),
            _ => None,
        }
    }

    /// Integers that are known.
    pub(super) fn ints(&self, id: ValueId) -> Option<Cow<'_, [i64]>> {
        match self.get(id)? {
            Value::IntList(items) => Some(Cow::Borrowed(items)),
            Value::List(items) => items.iter().map(|id| self.int(*id)).collect(),
            Value::Int(value) => Some(Cow::Owned(vec![*value])),
            _ => None,
        }
    }

    /// Whether an argument is absent: not there, or nothing.
    pub(super) fn is_none(&self, id: Option<&ValueId>) -> bool {
        id.is_none_or(|id| matches!(self.get(*id), Some(Value::None) | None))
    }

    /// Adds a value.
    pub(super) fn value(&mut self, value: Value<'p>) -> ValueId {
        let id = self.graph.values.len();
        self.graph.values.push(value);
        self.makers.push(None);
        self.current.push(id);
        self.written.push(false);
        self.updated.push(false);
        self.leaving.push(false);
        id
    }

    /// Adds a tensor that a call is going to make.
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

    /// Whether calls may read a value later than they did: nothing writes it meanwhile.
    pub(super) fn is_lasting(&self, id: ValueId) -> bool {
        self.written.get(id) != Some(&true)
    }

    /// Whether a processor takes a call that is not made yet, seen alone: what is asked is a graph
    /// of nothing else. `out` is a tensor or a list of tensors, of which the first is what the
    /// processor gives.
    pub(super) fn is_taken(
        &self,
        operator: Operator,
        args: &[ValueId],
        out: ValueId,
        takes: &mut dyn FnMut(&Graph<'_>, &Node) -> bool,
    ) -> bool {
        self.is_taken_once(operator, args, out, &mut |_, _| Some(()), takes)
    }

    /// Whether a processor takes such a call once its tensors are changed: those that are
    /// arguments, by their places, and the result, whose place is behind theirs. `None` from a
    /// change says that there is no such call.
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
        // What is in lists comes behind.
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

    /// Makes a call. Its inputs must be lasting.
    pub(super) fn call(&mut self, operator: Operator, inputs: &[ValueId], out: ValueId) {
        inputs.iter().for_each(|id| self.uses.add(*id));
        let mut args = inputs.to_vec();
        args.push(out);
        self.push(Node { id: self.id, operator, args, parts: Vec::new() });
    }

    /// Makes a call with a new tensor as its output.
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

    /// Lets the new value stand for the old one in all that follows, and says whether that is
    /// possible: both are the same tensors as far as calls and the caller see. What leaves the
    /// graph keeps its name: the call that made the new value makes that instead, unless the new
    /// one leaves, or comes from outside.
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
        let place = self.makers.get(new).copied().flatten();
        let maker = place.and_then(|place| self.nodes.get_mut(place));
        match maker.and_then(|node| node.args.last_mut()).filter(|out| **out == new) {
            Some(out) => *out = old,
            None => return false,
        }
        if let Ok([old, new]) = self.makers.get_disjoint_mut([old, new]) {
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

/// Whether all sizes of a graph are what they are in every run.
pub(super) fn has_fixed_shapes(graph: &Graph<'_>) -> bool {
    let varies = |value: &Value<'_>| match value {
        Value::SymInt(_) => true,
        Value::Tensor(tensor) => tensor.dynamic,
        _ => false,
    };
    !graph.values.iter().any(varies)
        && !graph.nodes.iter().any(|node| graph.is_data_dependent(node))
}
