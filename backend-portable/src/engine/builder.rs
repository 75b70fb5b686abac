//! From the calls of a graph to the calls of a plan.

use super::lines::Lines;
use super::ops;
use super::packed::{Form, Key, Packs};
use super::plan::{Buffer, Call, Home, MOST, Plan, Step};
use super::view::{BufferId, View, dense_strides, numel};
use crate::compute::simd::Tier;
use std::borrow::{Cow, ToOwned};
use std::boxed::Box;
use std::collections::HashMap;
use std::string::String;
use std::sync::Arc;
use std::vec::Vec;
use std::{format, vec};
use torchlet_core::ScalarType;
use torchlet_graph::graph::{Graph, Node, Tensor, Value, ValueId};

/// Why something is not run here, in words for the user.
pub(super) type Refusal = String;

/// What a plan is made for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Machine {
    pub(super) tier: Tier,
    pub(super) threads: usize,
}

/// Makes a plan, call by call.
pub(super) struct Builder<'g, 'p> {
    graph: &'g Graph<'p>,
    pub(super) machine: Machine,
    /// Where packed weights are found; none if it is only asked what can be done, so that no data is read, and nothing packed.
    packs: Option<&'g Packs>,
    views: HashMap<ValueId, View>,
    buffers: Vec<Buffer>,
    calls: Vec<Call>,
    /// How often each value is still taken.
    uses: HashMap<ValueId, usize>,
    /// The same for buffers, through all values in them.
    pending: Vec<usize>,
    /// What values look like in another order: the copy.
    copies: HashMap<(BufferId, usize, Vec<usize>, Vec<usize>), View>,
}

/// The tensors of an argument: itself, or those of a list.
pub(super) fn items<'g>(graph: &'g Graph<'_>, id: &'g ValueId) -> &'g [ValueId] {
    match graph.values.get(*id) {
        Some(Value::List(items)) => items,
        _ => core::slice::from_ref(id),
    }
}

/// Data of a file as numbers: where it lies, if that is where numbers can.
fn elements(data: &[u8]) -> Cow<'_, [f32]> {
    match bytemuck::try_cast_slice(data) {
        Ok(elements) if cfg!(target_endian = "little") => Cow::Borrowed(elements),
        _ => data.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(),
    }
}

/// How often each value is taken by calls, or by the caller.
fn uses(graph: &Graph<'_>) -> HashMap<ValueId, usize> {
    let mut uses = HashMap::new();
    let taken = graph.nodes.iter().filter_map(|node| node.args.split_last());
    let taken = taken.flat_map(|(_, inputs)| inputs).flat_map(|id| items(graph, id));
    for id in taken.chain(&graph.outputs) {
        *uses.entry(*id).or_insert(0) += 1;
    }
    uses
}

impl<'g, 'p> Builder<'g, 'p> {
    /// A plan of this graph.
    pub(super) fn new(graph: &'g Graph<'p>, machine: Machine, packs: &'g Packs) -> Self {
        let builder = Self::question(graph, machine, uses(graph));
        Builder { packs: Some(packs), ..builder }
    }

    fn question(graph: &'g Graph<'p>, machine: Machine, uses: HashMap<ValueId, usize>) -> Self {
        Builder {
            graph,
            machine,
            packs: None,
            views: HashMap::new(),
            buffers: Vec::new(),
            calls: Vec::new(),
            uses,
            pending: Vec::new(),
            copies: HashMap::new(),
        }
    }

    /// Whether each call of a graph can be part of a plan, and why not.
    pub(super) fn ask(graph: &'g Graph<'p>, machine: Machine) -> Vec<Result<(), Refusal>> {
        let uses = uses(graph);
        let answers = graph.nodes.iter().map(|node| {
            let mut builder = Builder::question(graph, machine, HashMap::new());
            // What nobody takes does not have to be made.
            let results = node.args.last().map_or(&[][..], |out| items(graph, out));
            builder.uses = results.iter().filter_map(|id| Some((*id, *uses.get(id)?))).collect();
            builder.add(node)
        });
        answers.collect()
    }

    /// The plan of all calls.
    ///
    /// # Errors
    /// A call cannot be part of one, or there is not the memory for it.
    pub(super) fn build(mut self) -> Result<Plan, Refusal> {
        let changes = |value: &Value<'_>| matches!(value, Value::Tensor(tensor) if tensor.changes == Some(true));
        if !self.graph.updates.is_empty() || self.graph.values.iter().any(changes) {
            return Err("regions of the CPU keep no state".to_owned());
        }
        for (index, id) in self.graph.inputs.iter().enumerate() {
            let sizes = self.plain_tensor(*id)?.sizes.clone();
            let len = numel(&sizes).ok_or_else(|| "an input without elements".to_owned())?;
            let buffer = self.buffer(Home::Input(index), len);
            self.place(*id, View::whole(buffer, &sizes));
        }
        for node in &self.graph.nodes {
            self.add(node).map_err(|why| format!("call {} ({}): {why}", node.id, node.title()))?;
            let inputs = node.args.split_last().map_or(&[][..], |(_, inputs)| inputs);
            for id in inputs.iter().flat_map(|id| items(self.graph, id)) {
                self.forget(*id);
            }
        }
        for (index, id) in self.graph.outputs.iter().enumerate() {
            self.give(index, *id)?;
        }
        let Machine { tier, threads } = self.machine;
        Plan::new(self.calls, &self.buffers, tier, threads)
            .ok_or_else(|| "more memory than there is".to_owned())
    }

    /// Adds a call.
    fn add(&mut self, node: &Node) -> Result<(), Refusal> {
        let operation = ops::find(node.operator)
            .ok_or_else(|| "it is not one of the engine's operators".to_owned())?;
        for id in node.args.iter().flat_map(|id| items(self.graph, id)) {
            match self.graph.values.get(*id) {
                Some(Value::Tensor(_)) if self.is_taken(*id) || !self.is_result(node, *id) => {
                    self.plain_tensor(*id)?;
                }
                Some(Value::SymInt(_)) => return Err("a number is not known beforehand".to_owned()),
                _ => {}
            }
        }
        operation(self, &node.args)
    }

    fn is_result(&self, node: &Node, id: ValueId) -> bool {
        node.args.last().is_some_and(|out| items(self.graph, out).contains(&id))
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
        let view = self.view(id)?;
        let whole = view.is_contiguous() && view.offset == 0;
        if let Some(buffer) = self.buffers.get_mut(view.buffer)
            && matches!(buffer.home, Home::Shared)
            && whole
            && buffer.len == view.numel()
        {
            buffer.home = Home::Output(index);
            return Ok(());
        }
        let buffer = self.buffer(Home::Output(index), view.numel());
        let target = View::whole(buffer, &view.sizes);
        ops::copy(self, &view, &target);
        Ok(())
    }

    // What operations ask for.

    /// What a value is.
    pub(super) fn value(&self, id: ValueId) -> &'g Value<'p> {
        self.graph.values.get(id).unwrap_or(&Value::None)
    }

    /// The values of a list, or the one that is none.
    pub(super) fn items(&self, id: &'g ValueId) -> &'g [ValueId] {
        items(self.graph, id)
    }

    fn plain_tensor(&self, id: ValueId) -> Result<&'g Tensor<'p>, Refusal> {
        let Value::Tensor(tensor) = self.value(id) else {
            return Err("an argument is no tensor".to_owned());
        };
        if tensor.scalar_type != ScalarType::Float || tensor.host_type != ScalarType::Float {
            return Err(format!("the engine computes in float32, not {:?}", tensor.scalar_type));
        }
        if tensor.dynamic {
            return Err("the engine prepares calls for shapes that are known".to_owned());
        }
        Ok(tensor)
    }

    /// Whether anybody takes a value.
    pub(super) fn is_taken(&self, id: ValueId) -> bool {
        self.uses.get(&id).is_some_and(|uses| *uses > 0)
    }

    /// A tensor; `None` for an optional one that is absent.
    pub(super) fn optional(&mut self, id: ValueId) -> Result<Option<View>, Refusal> {
        match self.value(id) {
            Value::None => Ok(None),
            _ => self.view(id).map(Some),
        }
    }

    /// A tensor.
    pub(super) fn view(&mut self, id: ValueId) -> Result<View, Refusal> {
        if let Some(view) = self.views.get(&id) {
            return Ok(view.clone());
        }
        let tensor = self.plain_tensor(id)?;
        let len = numel(&tensor.sizes).ok_or_else(|| "a tensor without elements".to_owned())?;
        let home = match &tensor.data {
            Some(_) if self.is_question() => Home::Constant(None),
            Some(data) => {
                let elements = elements(data);
                let elements = elements.get(..len).ok_or("a constant is cut short")?;
                let data = Lines::of(elements).ok_or("no memory for constants")?;
                Home::Constant(Some(Arc::new(data)))
            }
            None if self.is_question() => Home::Shared,
            None => return Err("a value is read before it is made".to_owned()),
        };
        let buffer = self.buffer(home, len);
        let view = View::whole(buffer, &tensor.sizes);
        self.place(id, view.clone());
        Ok(view)
    }

    /// Whether a value is a constant tensor.
    pub(super) fn is_constant(&self, id: ValueId) -> bool {
        matches!(self.value(id), Value::Tensor(Tensor { data: Some(_), .. }))
    }

    /// The elements of a constant, in the order of its dimensions; none if it is no constant.
    pub(super) fn constant(&self, id: ValueId) -> Option<Cow<'g, [f32]>> {
        match self.value(id) {
            Value::Tensor(Tensor { data: Some(data), .. }) => Some(elements(data)),
            _ => None,
        }
    }

    /// Constant weights as they are packed for this, once for all who use them. `pack` gets the plain ones.
    pub(super) fn packed(
        &self,
        id: ValueId,
        form: Form,
        pack: impl FnOnce(&[f32]) -> Result<Lines, Refusal>,
    ) -> Result<Arc<Lines>, Refusal> {
        let (Value::Tensor(Tensor { data: Some(data), .. }), Some(packs)) =
            (self.value(id), self.packs)
        else {
            return Err("there are no weights to pack".to_owned());
        };
        let (address, bytes) = (data.as_ptr().addr(), data.len());
        let key = Key { address, bytes, tier: self.machine.tier, form };
        // Only what is borrowed stays where it is.
        let key = matches!(data, Cow::Borrowed(_)).then_some(key);
        packs.get(key, || pack(&elements(data)))
    }

    /// Whether nothing is to be read or packed yet.
    pub(super) fn is_question(&self) -> bool {
        self.packs.is_none()
    }

    /// A number.
    pub(super) fn number(&self, id: ValueId) -> Result<f64, Refusal> {
        match self.value(id) {
            Value::Int(value) => Ok(*value as f64),
            Value::Double(value) => Ok(*value),
            Value::Bool(value) => Ok(f64::from(u8::from(*value))),
            _ => Err("an argument is no number".to_owned()),
        }
    }

    /// A number, or none.
    pub(super) fn optional_number(&self, id: ValueId) -> Result<Option<f64>, Refusal> {
        match self.value(id) {
            Value::None => Ok(None),
            _ => self.number(id).map(Some),
        }
    }

    /// An integer, or none.
    pub(super) fn optional_integer(&self, id: ValueId) -> Result<Option<i64>, Refusal> {
        match self.value(id) {
            Value::None => Ok(None),
            Value::Int(value) => Ok(Some(*value)),
            _ => Err("an argument is no integer".to_owned()),
        }
    }

    /// An integer.
    pub(super) fn integer(&self, id: ValueId) -> Result<i64, Refusal> {
        self.optional_integer(id)?.ok_or_else(|| "an integer is absent".to_owned())
    }

    /// A truth value.
    pub(super) fn truth(&self, id: ValueId) -> Result<bool, Refusal> {
        match self.value(id) {
            Value::Bool(value) => Ok(*value),
            Value::None => Ok(false),
            _ => Err("an argument is no truth value".to_owned()),
        }
    }

    /// Integers.
    pub(super) fn integers(&self, id: ValueId) -> Result<Vec<i64>, Refusal> {
        match self.value(id) {
            Value::IntList(items) => Ok(items.clone()),
            Value::Int(item) => Ok(vec![*item]),
            Value::None => Ok(Vec::new()),
            Value::List(ids) => ids.iter().map(|id| self.integer(*id)).collect(),
            _ => Err("an argument is no list of integers".to_owned()),
        }
    }

    /// The shape that the graph gives a value.
    pub(super) fn sizes(&self, id: ValueId) -> Result<&'g [usize], Refusal> {
        Ok(&self.plain_tensor(id)?.sizes)
    }

    // What operations make.

    /// A new buffer.
    fn buffer(&mut self, home: Home, len: usize) -> BufferId {
        self.buffers.push(Buffer { home, len });
        self.pending.push(0);
        self.buffers.len() - 1
    }

    /// A new tensor in the order of its dimensions.
    pub(super) fn make(&mut self, sizes: &[usize]) -> Result<View, Refusal> {
        let order: Vec<usize> = (0..sizes.len()).collect();
        self.make_in_order(sizes, &order)
    }

    /// A new tensor whose dimensions lie in this order, outermost first.
    pub(super) fn make_in_order(
        &mut self,
        sizes: &[usize],
        order: &[usize],
    ) -> Result<View, Refusal> {
        let len = numel(sizes).ok_or_else(|| "a tensor without elements".to_owned())?;
        let buffer = self.buffer(Home::Shared, len);
        let strides = dense_strides(sizes, order);
        Ok(View { buffer, offset: 0, sizes: sizes.to_vec(), strides })
    }

    /// Says where a value is.
    ///
    /// # Errors
    /// It has another shape than the graph says, or more elements than memory: what is repeated by strides takes none, but all
    /// the time of the world.
    pub(super) fn define(&mut self, id: ValueId, view: View) -> Result<(), Refusal> {
        if numel(&view.sizes).is_none_or(|count| count > MOST) {
            return Err(format!("a tensor of {:?} elements", view.sizes));
        }
        let expected = &self.plain_tensor(id)?.sizes;
        if *expected != view.sizes {
            let found = &view.sizes;
            return Err(format!("it gives the shape {found:?}, the program has {expected:?}"));
        }
        self.place(id, view);
        Ok(())
    }

    fn place(&mut self, id: ValueId, view: View) {
        let uses = self.uses.get(&id).copied().unwrap_or(0);
        if let Some(pending) = self.pending.get_mut(view.buffer) {
            *pending += uses;
        }
        self.views.insert(id, view);
    }

    /// Adds a call of a step, which reads the buffers of some views and writes that of another.
    pub(super) fn push(&mut self, step: impl Step + 'static, reads: &[&View], writes: &View) {
        let reads = reads.iter().map(|view| view.buffer).collect();
        self.calls.push(Call { step: Box::new(step), reads, writes: writes.buffer });
    }

    /// Whether the call that is being added may write over a view, as its last reader.
    pub(super) fn is_last_use(&self, view: &View) -> bool {
        let is_shared =
            self.buffers.get(view.buffer).is_some_and(|it| matches!(it.home, Home::Shared));
        is_shared && !self.is_question() && self.pending.get(view.buffer) == Some(&1)
    }

    /// Says that a step will write over a view as its last reader.
    pub(super) fn overwrite(&mut self, view: &View) {
        // Neither what was copied from there, nor a copy that is there, is what it was.
        let stays = |from: BufferId, copy: &View| from != view.buffer && copy.buffer != view.buffer;
        self.copies.retain(|(from, ..), copy| stays(*from, copy));
    }

    /// Lets the step that makes a view keep its results within limits, if it can and nobody has read them.
    pub(super) fn limit(&mut self, view: &View, min: f32, max: f32) -> bool {
        if !self.is_last_use(view) {
            return false;
        }
        let touches =
            |call: &&mut Call| call.writes == view.buffer || call.reads.contains(&view.buffer);
        let last = self.calls.iter_mut().rev().find(touches);
        last.is_some_and(|call| call.writes == view.buffer && call.step.limit(min, max))
    }

    /// Lets the step that makes `sum` add to `addend` instead, where both are used for the last time: then their sum is where the
    /// addend was.
    pub(super) fn add_to(&mut self, addend: &View, sum: &View) -> bool {
        let is_whole = |view: &View| {
            view.is_dense()
                && view.offset == 0
                && self.buffers.get(view.buffer).is_some_and(|it| it.len == view.numel())
        };
        let are_alike = addend.sizes == sum.sizes && addend.has_strides(&sum.strides);
        let [to, from] = [addend.buffer, sum.buffer];
        if !are_alike || to == from || ![addend, sum].into_iter().all(is_whole) {
            return false;
        }
        if !self.is_last_use(addend) || !self.is_last_use(sum) {
            return false;
        }
        // Nobody has read the sum, and nobody touches the addend from where it is made on.
        let touches = |call: &Call, id| call.writes == id || call.reads.contains(&id);
        let last = |id| self.calls.iter().rposition(|call| touches(call, id));
        let (Some(maker), at) = (last(from), last(to)) else { return false };
        let is_free = at.is_none_or(|at| at < maker);
        let Some(call) = self.calls.get_mut(maker).filter(|call| is_free && call.writes == from)
        else {
            return false;
        };
        if !call.step.accumulate() {
            return false;
        }
        call.writes = to;
        self.overwrite(addend);
        true
    }

    /// The same elements in these strides, which are without gaps: as they are, or a copy, which is made once.
    pub(super) fn in_strides(&mut self, view: &View, strides: &[usize]) -> Result<View, Refusal> {
        if view.has_strides(strides) {
            return Ok(View { strides: strides.to_vec(), ..view.clone() });
        }
        let key = (view.buffer, view.offset, view.strides.clone(), strides.to_vec());
        if let Some(copy) = self.copies.get(&key).filter(|copy| copy.sizes == view.sizes) {
            return Ok(copy.clone());
        }
        let mut copy = self.make(&view.sizes)?;
        copy.strides = strides.to_vec();
        ops::copy(self, view, &copy);
        self.copies.insert(key, copy.clone());
        Ok(copy)
    }

    /// The same elements in the order of the dimensions.
    pub(super) fn contiguous(&mut self, view: &View) -> Result<View, Refusal> {
        let order: Vec<usize> = (0..view.sizes.len()).collect();
        self.in_strides(view, &dense_strides(&view.sizes, &order))
    }

    /// The same elements in another shape, copied where strides cannot say it.
    pub(super) fn reshaped(&mut self, view: &View, sizes: &[usize]) -> Result<View, Refusal> {
        let wrong = || format!("{:?} does not become {sizes:?}", view.sizes);
        match view.reshaped(sizes) {
            Some(reshaped) => Ok(reshaped),
            None => self.contiguous(view)?.reshaped(sizes).ok_or_else(wrong),
        }
    }
}
