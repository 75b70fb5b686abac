//! From the calls of a graph to the calls of a plan.

use super::given::Given;
use super::lines::Lines;
use super::numbers::Precision;
use super::ops;
use super::packed::{Constant, Form, Key, Packs};
use super::packer::Made;
use super::plan::{Buffer, Call, Element, Home, MOST, Plan, Step};
use super::view::{BufferId, View, dense_strides, numel};
use crate::compute::gemm::Context;
use std::borrow::{Cow, ToOwned};
use std::boxed::Box;
use std::collections::{BTreeSet, HashMap};
use std::format;
use std::string::String;
use std::sync::Arc;
use std::vec::Vec;
use torchlet_graph::graph::{Graph, Node, Tensor, Value, ValueId};
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

/// The key of data that others find under it, too: only what is borrowed stays where it is.
#[expect(clippy::ptr_arg, reason = "whether it is borrowed is the question")]
fn lasting(data: &Cow<'_, [u8]>, key: Key) -> Option<Key> {
    matches!(data, Cow::Borrowed(_)).then_some(key)
}

/// A copy of so many codes.
fn code_lines<'p>(data: &[u8], len: usize) -> Result<Constant<'p>, Refusal> {
    let data = data.get(..len).ok_or("a constant is cut short")?;
    let mut lines = Lines::zeroed(len.div_ceil(4)).ok_or("no memory for constants")?;
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(lines.as_mut_slice());
    bytes.iter_mut().zip(data).for_each(|(slot, byte)| *slot = *byte);
    Ok(Constant::Shared(Arc::new(lines)))
}

/// How often each value is taken by calls, or by the caller.
fn uses(graph: &Graph<'_>) -> HashMap<ValueId, usize> {
    let uses = Uses::of(graph);
    (0..graph.values.len()).map(|id| (id, uses.count_of(id) as usize)).collect()
}

/// The integers that follow from elements of tensors, such as the position of a token, and so may be others in each run. Those that follow from shapes
/// are others only where these are.
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

    /// Takes the bounds of shapes where integers that make them are not known yet: of calls that only rearrange tensors, nothing else
    /// depends on them.
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

    /// Lets the step that makes all of a view's buffer write it to another place, if it can, nobody has read it, and this is its last use.
    fn move_results(&mut self, from: &View, to: &View) -> bool {
        let is_whole = self.buffers.get(from.buffer).is_some_and(|it| it.len == from.numel())
            && from.is_dense();
        if !is_whole || !self.is_last_use(from) {
            return false;
        }
        let mut touching = self.calls.iter_mut().filter(|call| call.touches(from.buffer));
        let (Some(maker), None) = (touching.next(), touching.next()) else { return false };
        if maker.writes != from.buffer || !maker.step.move_results(&ops::Copy::new(from, to)) {
            return false;
        }
        maker.writes = to.buffer;
        true
    }

    // What operations ask for.

    /// What a value is.
    pub(super) fn value(&self, id: ValueId) -> &'g Value<'p> {
        self.graph.values.get(id).unwrap_or(&Value::None)
    }

    /// The same of a value that is the graph's.
    pub(super) fn members(&self, id: ValueId) -> &'g [ValueId] {
        match self.graph.values.get(id) {
            Some(Value::List(items)) => items,
            _ => &[],
        }
    }

    /// The values of a list, or the one that is none.
    pub(super) fn items(&self, id: &'g ValueId) -> &'g [ValueId] {
        self.graph.items(id)
    }

    fn tensor(&self, id: ValueId) -> Result<&'g Tensor<'p>, Refusal> {
        match self.value(id) {
            Value::Tensor(tensor) => Ok(tensor),
            _ => Err("an argument is no tensor".to_owned()),
        }
    }

    /// What the elements of a tensor are.
    ///
    /// # Errors
    /// It is no tensor, or they are something else.
    pub(super) fn element(&self, id: ValueId) -> Result<Element, Refusal> {
        let tensor = self.tensor(id)?;
        let found =
            Element::of(tensor.scalar_type).filter(|_| tensor.host_type == tensor.scalar_type);
        let scalar_type = tensor.scalar_type;
        found.ok_or_else(|| {
            format!("the engine computes in floating point of 16 and 32 bits and in 8 bits, not {scalar_type:?}")
        })
    }

    /// How the numbers of a tensor lie outside.
    ///
    /// # Errors
    /// It is no tensor, or has none.
    pub(super) fn precision(&self, id: ValueId) -> Result<Precision, Refusal> {
        let precision = Precision::of(self.tensor(id)?.scalar_type);
        precision.ok_or_else(|| "it takes numbers, not codes".to_owned())
    }

    /// Whether elements are computed here.
    pub(super) fn is_computed(&self, view: &View) -> bool {
        let home = self.buffers.get(view.buffer).map(|buffer| &buffer.home);
        matches!(home, Some(Home::Shared | Home::Output(_)))
    }

    /// What the elements of a view are.
    pub(super) fn element_of(&self, view: &View) -> Element {
        self.buffers.get(view.buffer).map_or(Element::Float, |buffer| buffer.element)
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

    /// A tensor of numbers.
    pub(super) fn view(&mut self, id: ValueId) -> Result<View, Refusal> {
        match self.element(id)? {
            Element::Float => self.any(id),
            Element::Code => Err("it takes numbers, not codes".to_owned()),
        }
    }

    /// A tensor of codes.
    pub(super) fn codes(&mut self, id: ValueId) -> Result<View, Refusal> {
        match self.element(id)? {
            Element::Code => self.any(id),
            Element::Float => Err("it takes codes, not numbers".to_owned()),
        }
    }

    /// A tensor, whatever its elements are.
    pub(super) fn any(&mut self, id: ValueId) -> Result<View, Refusal> {
        if let Some(view) = self.views.get(&id) {
            return Ok(view.clone());
        }
        let (tensor, element) = (self.tensor(id)?, self.element(id)?);
        let len = self.count(&tensor.sizes)?;
        let home = match &tensor.data {
            Some(data) => {
                self.plain.insert(id);
                let elements = match self.purpose {
                    Purpose::Plan(_) => Some(match element {
                        Element::Float => self.lent(tensor, data, len)?,
                        Element::Code => code_lines(data, len)?,
                    }),
                    Purpose::Question | Purpose::Packing(_) => None,
                };
                Home::Constant(elements)
            }
            None if self.is_question() => Home::Shared,
            None => return Err("a value is read before it is made".to_owned()),
        };
        let buffer = self.buffer(home, len, element);
        let view = View::whole(buffer, &tensor.sizes);
        self.place(id, view.clone());
        Ok(view)
    }

    /// The elements of a tensor. Only a plan for given shapes can have none.
    fn count(&self, sizes: &[usize]) -> Result<usize, Refusal> {
        match numel(sizes) {
            Some(0) if !matches!(self.purpose, Purpose::Plan(_)) => {
                Err("a tensor without elements".to_owned())
            }
            Some(count) => Ok(count),
            None => Err(format!("a tensor of {sizes:?} elements")),
        }
    }

    /// The elements of a constant, which has so many: where they lie, if they can stay there, or one copy for all who name them.
    fn lent(
        &mut self,
        tensor: &Tensor<'_>,
        data: &'g Cow<'p, [u8]>,
        len: usize,
    ) -> Result<Constant<'p>, Refusal> {
        let cut_short = "a constant is cut short";
        let precision = Precision::of(tensor.scalar_type).ok_or("a constant without numbers")?;
        if precision == Precision::Single
            && let Cow::Borrowed(lent) = data
            && let Cow::Borrowed(lent) = precision.elements(lent)
        {
            return lent.get(..len).map(Constant::Lent).ok_or_else(|| cut_short.to_owned());
        }
        let key = self.key(data, Some(precision), Form::Widened { len });
        if let Some(known) = self.lines.get(&key) {
            return Ok(known.clone());
        }
        let copy = || {
            let elements = precision.elements(data);
            let elements = elements.get(..len).ok_or(cut_short)?;
            Lines::of(elements).ok_or("no memory for constants")
        };
        let packs = self.packs().ok_or("constants are not read yet")?;
        let copy = Constant::Shared(packs.get(lasting(data, key), copy)?);
        self.lines.insert(key, copy.clone());
        Ok(copy)
    }

    /// By what data is known that was packed.
    fn key(&self, data: &[u8], precision: Option<Precision>, form: Form) -> Key {
        let (address, bytes) = (data.as_ptr().addr(), data.len());
        Key { address, bytes, precision, tier: self.machine.tier, form }
    }

    /// Whether a value is a constant tensor.
    pub(super) fn is_constant(&self, id: ValueId) -> bool {
        let has_data = matches!(self.value(id), Value::Tensor(Tensor { data: Some(_), .. }));
        has_data || self.packed.contains_key(&id)
    }

    /// The elements of a constant, in the order of its dimensions; none if it is only asked what can be done.
    ///
    /// # Errors
    /// It is no constant, or cut short.
    pub(super) fn constant(&mut self, id: ValueId) -> Result<Option<Constant<'p>>, Refusal> {
        let Value::Tensor(tensor @ Tensor { data: Some(data), sizes, .. }) = self.value(id) else {
            return Err("it is not constant".to_owned());
        };
        self.plain.insert(id);
        let len = self.count(sizes)?;
        match self.purpose {
            Purpose::Plan(_) => self.lent(tensor, data, len).map(Some),
            Purpose::Question | Purpose::Packing(_) => Ok(None),
        }
    }

    /// Says where weights are that were packed when the program was compiled.
    ///
    /// # Errors
    /// There is no data.
    pub(super) fn define_packed(
        &mut self,
        id: ValueId,
        form: ValueId,
        data: ValueId,
    ) -> Result<(), Refusal> {
        if self.is_question() {
            return Err("weights that are packed for one machine".to_owned());
        }
        let Value::IntList(form) = self.value(form) else {
            return Err("an argument is no list of integers".to_owned());
        };
        let Value::Tensor(tensor @ Tensor { data: Some(data), sizes, .. }) = self.value(data)
        else {
            return Err("packed weights without data".to_owned());
        };
        let len = self.count(sizes)?;
        let data = self.lent(tensor, data, len)?;
        let forms = self.packed.entry(id).or_default();
        if forms.iter().any(|(known, _)| *known == form) {
            return Err("weights that are packed twice in one form".to_owned());
        }
        forms.push((form, data));
        Ok(())
    }

    /// Constant weights as they are packed for this, in so many elements, once for all who use them. `pack` gets the plain ones, and
    /// the place for the packed ones.
    pub(super) fn packed(
        &mut self,
        id: ValueId,
        form: Form,
        len: usize,
        pack: impl FnOnce(Context<'_>, &[f32], &mut [f32]) -> Result<(), Refusal>,
    ) -> Result<Constant<'p>, Refusal> {
        let precision = self.precision(id)?;
        self.packed_bytes(id, form, len, |context, data, packed| {
            pack(context, &precision.elements(data), packed)
        })
    }

    /// The numbers of a constant, unless they were packed when the program was compiled.
    pub(super) fn plain_numbers(&self, id: ValueId) -> Option<Cow<'g, [f32]>> {
        match self.value(id) {
            Value::Tensor(Tensor { data: Some(data), .. }) if !self.packed.contains_key(&id) => {
                Some(self.precision(id).ok()?.elements(data))
            }
            _ => None,
        }
    }

    /// Whether weights were packed for this when the program was compiled.
    pub(super) fn is_packed_as(&self, id: ValueId, form: Form) -> bool {
        let numbers = form.numbers(self.machine.tier);
        self.packed.get(&id).is_some_and(|forms| forms.iter().any(|(form, _)| *form == numbers))
    }

    /// The same, from the bytes of a constant, which has such elements that packing knows.
    pub(super) fn packed_bytes(
        &mut self,
        id: ValueId,
        form: Form,
        len: usize,
        pack: impl FnOnce(Context<'_>, &[u8], &mut [f32]) -> Result<(), Refusal>,
    ) -> Result<Constant<'p>, Refusal> {
        if let Some(forms) = self.packed.get(&id) {
            let numbers = form.numbers(self.machine.tier);
            let (_, data) = forms
                .iter()
                .find(|(form, data)| *form == numbers && data.as_slice().len() == len)
                .ok_or("its weights are packed for another machine")?;
            return Ok(data.clone());
        }
        let (Value::Tensor(tensor @ Tensor { data: Some(data), .. }), Some(packs)) =
            (self.value(id), self.packs())
        else {
            return Err("there are no weights to pack".to_owned());
        };
        let key = self.key(data, Precision::of(tensor.scalar_type), form);
        let lines = packs.get(lasting(data, key), || {
            let mut lines = Lines::zeroed(len).ok_or("no memory for weights")?;
            pack(self.machine, data, lines.as_mut_slice())?;
            Ok::<_, Refusal>(lines)
        })?;
        if matches!(self.purpose, Purpose::Packing(_)) {
            self.packed_here.push((id, form, lines.clone()));
        }
        Ok(Constant::Shared(lines))
    }

    fn packs(&self) -> Option<&'g Packs> {
        match self.purpose {
            Purpose::Question => None,
            Purpose::Packing(packs) | Purpose::Plan(packs) => Some(packs),
        }
    }

    /// Whether nothing is to be read or packed yet.
    pub(super) fn is_question(&self) -> bool {
        matches!(self.purpose, Purpose::Question)
    }

    /// The shape of an input of a call.
    pub(super) fn sizes(&self, id: ValueId) -> Result<&[usize], Refusal> {
        match self.views.get(&id) {
            Some(view) => Ok(&view.sizes),
            None => Ok(&self.tensor(id)?.sizes),
        }
    }

    /// An integer that the caller gives.
    pub(super) fn given_integer(&self, id: ValueId) -> Option<i64> {
        self.numbers.get(&id).copied()
    }

    /// Whether a value can have a shape: the one that the graph says, or one within it.
    fn check_shape(&self, id: ValueId, found: &[usize]) -> Result<(), Refusal> {
        let tensor = self.tensor(id)?;
        let fits = match self.purpose {
            Purpose::Plan(_) if self.varies => {
                let mut sizes = tensor.sizes.iter().zip(found);
                tensor.sizes.len() == found.len() && sizes.all(|(bound, size)| size <= bound)
            }
            // What is computed from bounds needs not be the bound that the program has.
            Purpose::Question | Purpose::Packing(_) if tensor.dynamic => {
                tensor.sizes.len() == found.len()
            }
            _ => tensor.sizes == found,
        };
        match fits {
            true => Ok(()),
            false => {
                let expected = &tensor.sizes;
                Err(format!("it gives the shape {found:?}, the program has {expected:?}"))
            }
        }
    }

    // What operations make.

    /// A new buffer.
    fn buffer(&mut self, home: Home<'p>, len: usize, element: Element) -> BufferId {
        self.buffers.push(Buffer { home, len, element });
        self.pending.push(0);
        self.buffers.len() - 1
    }

    /// A constant that the program does not have.
    pub(super) fn made(&mut self, sizes: &[usize], elements: &[f32]) -> Result<View, Refusal> {
        let home = match self.purpose {
            Purpose::Plan(_) => {
                let lines = Lines::of(elements).ok_or("no memory for constants")?;
                Some(Constant::Shared(Arc::new(lines)))
            }
            Purpose::Question | Purpose::Packing(_) => None,
        };
        let buffer = self.buffer(Home::Constant(home), elements.len(), Element::Float);
        Ok(View::whole(buffer, sizes))
    }

    /// A new tensor in the order of its dimensions.
    pub(super) fn make(&mut self, sizes: &[usize]) -> Result<View, Refusal> {
        let order: Vec<usize> = (0..sizes.len()).collect();
        self.make_in_order(sizes, &order)
    }

    fn make_of(&mut self, sizes: &[usize], element: Element) -> Result<View, Refusal> {
        let order: Vec<usize> = (0..sizes.len()).collect();
        self.make_of_in_order(sizes, &order, element)
    }

    /// A new tensor whose dimensions lie in this order, outermost first.
    pub(super) fn make_in_order(
        &mut self,
        sizes: &[usize],
        order: &[usize],
    ) -> Result<View, Refusal> {
        self.make_of_in_order(sizes, order, Element::Float)
    }

    /// The same, of such elements.
    pub(super) fn make_of_in_order(
        &mut self,
        sizes: &[usize],
        order: &[usize],
        element: Element,
    ) -> Result<View, Refusal> {
        let len = self.count(sizes)?;
        let buffer = self.buffer(Home::Shared, len, element);
        let strides = dense_strides(sizes, order);
        Ok(View { buffer, offset: 0, sizes: sizes.to_vec(), strides })
    }

    /// Says where a value is.
    ///
    /// # Errors
    /// It has another shape than the graph says, or more elements than memory: what is repeated by strides takes none, but all
    /// the time of the world.
    pub(super) fn define(&mut self, id: ValueId, view: View) -> Result<(), Refusal> {
        if self.count(&view.sizes)? > MOST {
            return Err(format!("a tensor of {:?} elements", view.sizes));
        }
        self.check_shape(id, &view.sizes)?;
        let (tensor, element) = (self.tensor(id)?, self.element(id)?);
        if self.element_of(&view) != element {
            return Err("its result is of another type".to_owned());
        }
        let view = match self.purpose {
            // The next call is looked at as by itself.
            Purpose::Packing(_) if tensor.sizes != view.sizes => {
                self.make_of(&tensor.sizes, element)?
            }
            _ => view,
        };
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

    /// Adds a call of a step, which reads the buffers of some views and writes that of another. Where there is nothing to write, there
    /// is nothing to do.
    pub(super) fn push(&mut self, step: impl Step + 'p, reads: &[&View], writes: &View) {
        if writes.numel() == 0 {
            return;
        }
        if reads.iter().any(|view| view.numel() == 0) {
            self.refused = Some("something is made of a tensor without elements".to_owned());
            return;
        }
        let reads = reads.iter().map(|view| view.buffer).collect();
        let node = self.node;
        self.calls.push(Call { step: Box::new(step), reads, writes: writes.buffer, node });
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
        self.copies.retain(|(from, _), copy| stays(from.buffer, copy));
    }

    /// Lets the step that makes a view keep its results within limits, if it can and nobody has read them.
    pub(super) fn limit(&mut self, view: &View, min: f32, max: f32) -> bool {
        if !self.is_last_use(view) {
            return false;
        }
        let last = self.calls.iter_mut().rev().find(|call| call.touches(view.buffer));
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
        let last = |id| self.calls.iter().rposition(|call| call.touches(id));
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
        let key = (view.clone(), strides.to_vec());
        if let Some(copy) = self.copies.get(&key) {
            return Ok(copy.clone());
        }
        let mut copy = self.make_of(&view.sizes, self.element_of(view))?;
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
