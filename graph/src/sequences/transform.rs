//! The transform: gives a graph a leading dim of rows, one for each sequence of a run.

use super::rules;
use crate::graph::{Graph, Node, Tensor, Value, ValueId};
use crate::operators::{Batching, DataDependent, Operator, SlotsPutArgs};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::ScalarType;

/// Why a graph cannot be transformed.
pub(super) type Reason = String;

/// How a value depends on the sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// The same value for all sequences.
    Same,
    /// The leading dim has an entry for each sequence of the run. Integers are tensors of rank 1.
    Rows,
    /// The leading dim has an entry for each slot: state.
    Slots,
}

/// A graph under transformation. Values keep their ids.
pub(super) struct Batcher<'p> {
    pub(super) graph: Graph<'p>,
    /// Transformed calls.
    nodes: Vec<Node>,
    /// Id of the call that is being transformed.
    number: u32,
    /// Values that differ from sequence to sequence.
    forms: BTreeMap<ValueId, Form>,
    /// Values with rows whose further dims are dynamic.
    varying: BTreeSet<ValueId>,
    /// Values that others replace.
    renamed: BTreeMap<ValueId, ValueId>,
    /// The rows of state that was read as a whole.
    gathered: BTreeMap<ValueId, ValueId>,
    /// Rows of values that are the same for all sequences.
    expanded: BTreeMap<ValueId, ValueId>,
    /// Integers that are the sum of an integer that differs and one that does not.
    sums: BTreeMap<ValueId, (ValueId, ValueId)>,
    /// Number of slots, the bound of the rows of a run.
    count: usize,
    /// Input: the slot of each row.
    pub(super) slots: ValueId,
    /// Number of rows of the run.
    rows: Option<ValueId>,
    /// The numbers of the rows.
    numbers: Option<ValueId>,
    /// The state of each result of a write to it.
    bases: BTreeMap<ValueId, ValueId>,
    /// Remaining steps for finding what values are computed from.
    steps: usize,
}

/// Limit on the arguments that are visited to find what values are computed from.
const MAX_STEPS: usize = 1 << 26;

/// Transforms a graph. `state` are the inputs that keep their contents between runs; each gets a
/// leading dim of `count` slots. All other inputs get a leading dim of rows, and integers become
/// tensors. The slots of the rows are a further input, the last one.
pub(super) fn run<'p>(
    graph: Graph<'p>,
    state: &BTreeSet<ValueId>,
    count: usize,
) -> Result<Graph<'p>, Reason> {
    let mut batcher = Batcher::new(graph, count);
    for id in batcher.graph.inputs.clone() {
        match state.contains(&id) {
            true => batcher.has_slots(id)?,
            false => batcher.has_rows(id)?,
        }
    }
    let slots = batcher.slots;
    batcher.graph.inputs.push(slots);
    for mut node in core::mem::take(&mut batcher.graph.nodes) {
        batcher.number = node.id;
        for id in &mut node.args {
            *id = batcher.resolved(*id);
        }
        let operator = node.operator;
        batcher.call(node).map_err(|why| format!("{}: {why}", operator.name()))?;
    }
    batcher.finish()
}

impl<'p> Batcher<'p> {
    fn new(mut graph: Graph<'p>, count: usize) -> Self {
        let slots = Tensor {
            scalar_type: ScalarType::Long,
            host_type: ScalarType::Long,
            sizes: vec![count],
            dynamic: true,
            data: None,
            changes: None,
        };
        graph.values.push(Value::Tensor(slots));
        let slots = graph.values.len() - 1;
        Batcher {
            graph,
            nodes: Vec::new(),
            number: 0,
            forms: BTreeMap::from([(slots, Form::Rows)]),
            varying: BTreeSet::new(),
            renamed: BTreeMap::new(),
            gathered: BTreeMap::new(),
            bases: BTreeMap::new(),
            steps: MAX_STEPS,
            expanded: BTreeMap::new(),
            sums: BTreeMap::new(),
            count,
            slots,
            rows: None,
            numbers: None,
        }
    }

    /// Transforms a call.
    fn call(&mut self, node: Node) -> Result<(), Reason> {
        let Some((out, inputs)) = node.args.split_last() else {
            return Err("expected an output".to_string());
        };
        if !inputs.iter().any(|id| self.differs(*id)) {
            self.nodes.push(node);
            return Ok(());
        }
        let traits = node.operator.traits();
        if traits.is_random
            || traits.data_dependent == DataDependent::Always
                && traits.batching == Batching::Unspecified
        {
            return Err("results that several sequences cannot share".to_string());
        }
        let inputs = inputs.to_vec();
        rules::apply(self, node.operator, inputs, *out)
    }

    /// Sets updates, and materializes outputs.
    fn finish(mut self) -> Result<Graph<'p>, Reason> {
        self.number = u32::MAX;
        for at in 0..self.graph.outputs.len() {
            let Some(id) = self.graph.outputs.get(at).copied() else { continue };
            let id = self.resolved(id);
            if self.graph.tensor(id).is_none() {
                return Err("an output that is an integer".to_string());
            }
            let rows = self.rows_of(id)?;
            if let Some(slot) = self.graph.outputs.get_mut(at) {
                *slot = rows;
            }
        }
        let mut updates = Vec::new();
        for (new, old) in core::mem::take(&mut self.graph.updates) {
            let new = self.resolved(new);
            let new = match self.form(new) {
                Form::Slots if self.base(new) == old => new,
                // All slots of the other state, some of which may be updated already.
                Form::Slots => return Err("state that is a copy of other state".to_string()),
                Form::Rows | Form::Same => self.put(old, None, new, 0)?,
            };
            updates.push((new, old));
        }
        self.graph.updates = updates;
        self.graph.nodes = self.nodes;
        Ok(self.graph)
    }

    /// The state that a chain of writes began with.
    fn base(&self, id: ValueId) -> ValueId {
        self.bases.get(&id).copied().unwrap_or(id)
    }

    /// Whether a value is computed from state.
    fn reads(&mut self, id: ValueId, state: ValueId) -> Result<bool, Reason> {
        let mut needed = BTreeSet::from([id]);
        for node in self.nodes.iter().rev() {
            self.steps =
                self.steps.checked_sub(node.args.len()).ok_or("too many writes to state")?;
            let Some((out, args)) = node.args.split_last() else { continue };
            let is_needed = needed.contains(out)
                || self.graph.items(out).iter().any(|item| needed.contains(item));
            if is_needed {
                needed.extend(args.iter().flat_map(|arg| self.graph.items(arg)).copied());
            }
        }
        Ok(needed.iter().any(|id| self.form(*id) == Form::Slots && self.base(*id) == state))
    }

    pub(super) fn form(&self, id: ValueId) -> Form {
        self.forms.get(&id).copied().unwrap_or(Form::Same)
    }

    /// Whether a value, or an item of a list, differs from sequence to sequence.
    pub(super) fn differs(&self, id: ValueId) -> bool {
        self.items(id).iter().any(|id| self.form(*id) != Form::Same)
    }

    /// Whether an optional argument is absent.
    pub(super) fn is_none(&self, id: ValueId) -> bool {
        matches!(self.graph.values.get(id), Some(Value::None))
    }

    pub(super) fn resolved(&self, id: ValueId) -> ValueId {
        self.renamed.get(&id).copied().unwrap_or(id)
    }

    /// The items of a list, or the value itself.
    pub(super) fn items(&self, id: ValueId) -> Vec<ValueId> {
        let items = self.graph.items(&id).iter();
        items.map(|id| self.resolved(*id)).collect()
    }

    pub(super) fn push(&mut self, value: Value<'p>) -> ValueId {
        self.graph.values.push(value);
        self.graph.values.len() - 1
    }

    pub(super) fn int(&mut self, value: i64) -> ValueId {
        self.push(Value::Int(value))
    }

    pub(super) fn none(&mut self) -> ValueId {
        self.push(Value::None)
    }

    pub(super) fn tensor(&self, id: ValueId) -> Result<&Tensor<'p>, Reason> {
        self.graph.tensor(id).ok_or_else(|| "expected a tensor".to_string())
    }

    /// Shape of a value for one sequence.
    pub(super) fn sizes(&self, id: ValueId) -> Result<Vec<usize>, Reason> {
        let sizes = &self.tensor(id)?.sizes;
        let skip = usize::from(self.form(id) != Form::Same);
        Ok(sizes.get(skip..).unwrap_or_default().to_vec())
    }

    /// Whether dims of a value vary, apart from that of the rows.
    pub(super) fn varies(&self, id: ValueId) -> bool {
        match self.form(id) {
            Form::Same => self.graph.tensor(id).is_some_and(|tensor| tensor.dynamic),
            Form::Rows => self.varying.contains(&id),
            Form::Slots => false,
        }
    }

    /// Gives a value a leading dim of rows.
    pub(super) fn has_rows(&mut self, id: ValueId) -> Result<(), Reason> {
        let count = self.count;
        match self.graph.values.get_mut(id) {
            Some(Value::Tensor(tensor)) => {
                if tensor.dynamic {
                    self.varying.insert(id);
                }
                tensor.sizes.insert(0, count);
                tensor.dynamic = true;
            }
            Some(value @ Value::SymInt(_)) => {
                *value = Value::Tensor(Tensor {
                    scalar_type: ScalarType::Long,
                    host_type: ScalarType::Long,
                    sizes: vec![count],
                    dynamic: true,
                    data: None,
                    changes: None,
                });
            }
            Some(Value::List(items)) => {
                for id in items.clone() {
                    self.has_rows(id)?;
                }
                return Ok(());
            }
            _ => return Err("expected a tensor or an integer".to_string()),
        }
        self.forms.insert(id, Form::Rows);
        Ok(())
    }

    /// Gives a value a leading dim of slots.
    fn has_slots(&mut self, id: ValueId) -> Result<(), Reason> {
        let count = self.count;
        match self.graph.values.get_mut(id) {
            Some(Value::Tensor(tensor)) if !tensor.dynamic => tensor.sizes.insert(0, count),
            _ => return Err("state: expected a tensor with a static shape".to_string()),
        }
        self.forms.insert(id, Form::Slots);
        Ok(())
    }

    /// Replaces a result by another value.
    pub(super) fn rename(&mut self, id: ValueId, by: ValueId) {
        self.renamed.insert(id, by);
    }

    /// Remembers that an integer is a sum.
    pub(super) fn is_sum(&mut self, id: ValueId, start: ValueId, length: ValueId) {
        self.sums.insert(id, (start, length));
    }

    /// The length of a range whose ends differ from sequence to sequence: the same for all if the
    /// end is computed from the start.
    pub(super) fn length(&self, start: ValueId, end: ValueId) -> Result<ValueId, Reason> {
        match self.sums.get(&end) {
            Some((own, length)) if *own == start => Ok(*length),
            _ => Err("a length that differs from sequence to sequence".to_string()),
        }
    }

    /// Adds a call with an output that exists.
    pub(super) fn emit(&mut self, operator: Operator, mut args: Vec<ValueId>, out: ValueId) {
        args.push(out);
        self.nodes.push(Node { id: self.number, ..Node::new(operator, args) });
    }

    /// Adds a call whose result has this shape: it is the same for all sequences, or merges rows
    /// with other dims.
    pub(super) fn add(
        &mut self,
        operator: Operator,
        args: Vec<ValueId>,
        scalar_type: ScalarType,
        sizes: Vec<usize>,
        dynamic: bool,
    ) -> ValueId {
        let out = self.push(Value::Tensor(Tensor {
            scalar_type,
            host_type: scalar_type,
            sizes,
            dynamic,
            data: None,
            changes: None,
        }));
        self.emit(operator, args, out);
        out
    }

    /// Adds a call whose result has rows; `sizes` is the shape for one sequence.
    pub(super) fn add_rows(
        &mut self,
        operator: Operator,
        args: Vec<ValueId>,
        scalar_type: ScalarType,
        mut sizes: Vec<usize>,
        varies: bool,
    ) -> ValueId {
        sizes.insert(0, self.count);
        let out = self.add(operator, args, scalar_type, sizes, true);
        self.forms.insert(out, Form::Rows);
        if varies {
            self.varying.insert(out);
        }
        out
    }

    /// The bound of the rows of a run.
    pub(super) fn bound(&self) -> usize {
        self.count
    }

    /// The number of rows of the run.
    pub(super) fn row_count(&mut self) -> ValueId {
        if let Some(rows) = self.rows {
            return rows;
        }
        let (zero, slots) = (self.int(0), self.slots);
        let out = self.push(Value::SymInt(self.count as i64));
        self.emit(Operator::SYM_SIZE_INT, vec![slots, zero], out);
        self.rows = Some(out);
        out
    }

    /// The value with rows: state is gathered, and a value that all sequences share is expanded.
    pub(super) fn rows_of(&mut self, id: ValueId) -> Result<ValueId, Reason> {
        match self.form(id) {
            Form::Rows => Ok(id),
            Form::Slots => {
                if let Some(rows) = self.gathered.get(&id) {
                    return Ok(*rows);
                }
                let (sizes, scalar_type) = (self.sizes(id)?, self.tensor(id)?.scalar_type);
                let (zero, slots) = (self.int(0), self.slots);
                let args = vec![id, zero, slots];
                let rows = self.add_rows(Operator::INDEX_SELECT, args, scalar_type, sizes, false);
                self.gathered.insert(id, rows);
                Ok(rows)
            }
            Form::Same => {
                if let Some(rows) = self.expanded.get(&id) {
                    return Ok(*rows);
                }
                let (sizes, scalar_type) = (self.sizes(id)?, self.tensor(id)?.scalar_type);
                let mut list = vec![self.row_count()];
                for _ in &sizes {
                    list.push(self.int(-1));
                }
                let (list, no) = (self.push(Value::List(list)), self.push(Value::Bool(false)));
                let varies = self.varies(id);
                let args = vec![id, list, no];
                let rows = self.add_rows(Operator::EXPAND_COPY, args, scalar_type, sizes, varies);
                self.expanded.insert(id, rows);
                Ok(rows)
            }
        }
    }

    /// An integer of each row, as a tensor of rank 1.
    pub(super) fn integers(&mut self, id: ValueId) -> Result<ValueId, Reason> {
        if self.form(id) == Form::Rows {
            return Ok(id);
        }
        if let Some(rows) = self.expanded.get(&id) {
            return Ok(*rows);
        }
        let list = vec![self.row_count()];
        let list = self.push(Value::List(list));
        let dtype = self.int(ScalarType::Long as i64);
        let none = self.none();
        let args = vec![list, id, dtype, none, none, none];
        let rows = self.add_rows(Operator::FULL, args, ScalarType::Long, Vec::new(), false);
        self.expanded.insert(id, rows);
        Ok(rows)
    }

    /// The size of a dim of a value, which counts the dims of the whole tensor.
    pub(super) fn size(&mut self, id: ValueId, dim: usize) -> Result<ValueId, Reason> {
        let (form, varies) = (self.form(id), self.varies(id));
        let size = self.tensor(id)?.sizes.get(dim).copied();
        let size = size.ok_or_else(|| "a dim is out of range".to_string())?;
        if form == Form::Rows && dim == 0 {
            return Ok(self.row_count());
        }
        let size = size as i64;
        if !varies {
            return Ok(self.int(size));
        }
        let (dim, out) = (self.int(dim as i64), self.push(Value::SymInt(size)));
        self.emit(Operator::SYM_SIZE_INT, vec![id, dim], out);
        Ok(out)
    }

    /// Adds dims of size 1 after the rows, up to this rank for one sequence.
    pub(super) fn padded(&mut self, id: ValueId, rank: usize) -> Result<ValueId, Reason> {
        let (mut id, mut sizes) = (id, self.sizes(id)?);
        let (scalar_type, varies) = (self.tensor(id)?.scalar_type, self.varies(id));
        while sizes.len() < rank {
            sizes.insert(0, 1);
            let one = self.int(1);
            let (args, sizes) = (vec![id, one], sizes.clone());
            id = self.add_rows(Operator::UNSQUEEZE_COPY, args, scalar_type, sizes, varies);
        }
        Ok(id)
    }

    /// Converts a tensor with rows to 64-bit integers.
    pub(super) fn long(&mut self, id: ValueId) -> Result<ValueId, Reason> {
        let (found, sizes) = (self.tensor(id)?.scalar_type, self.sizes(id)?);
        if found == ScalarType::Long {
            return Ok(id);
        }
        if found != ScalarType::Int {
            return Err(format!("expected integers, found {found}"));
        }
        let (dtype, none, varies) =
            (self.int(ScalarType::Long as i64), self.none(), self.varies(id));
        let args = vec![id, dtype, none, none, none, none, none];
        Ok(self.add_rows(Operator::TO_COPY, args, ScalarType::Long, sizes, varies))
    }

    /// Positions `starts[row] + 0..length` of each row; `bound` is the bound of the length.
    pub(super) fn positions(
        &mut self,
        starts: ValueId,
        length: ValueId,
        bound: usize,
    ) -> Result<ValueId, Reason> {
        let varies = match self.graph.values.get(length) {
            Some(Value::Int(_)) => false,
            Some(Value::SymInt(_)) => true,
            _ => return Err("a length: expected an integer".to_string()),
        };
        let starts = self.integers(starts)?;
        let (zero, one) = (self.int(0), self.int(1));
        if !varies && bound == 1 {
            return self.padded(starts, 1);
        }
        let (dtype, none) = (self.int(ScalarType::Long as i64), self.none());
        let args = vec![zero, length, one, dtype, none, none, none];
        let (long, arange) = (ScalarType::Long, Operator::ARANGE_START_STEP);
        let range = self.add(arange, args, long, vec![bound], varies);
        let starts = self.padded(starts, 1)?;
        Ok(self.add_rows(Operator::ADD_TENSOR, vec![starts, range, one], long, vec![bound], varies))
    }

    /// The numbers of the rows, the slots of a tensor with rows.
    fn numbers(&mut self) -> ValueId {
        if let Some(numbers) = self.numbers {
            return numbers;
        }
        let (zero, one, rows) = (self.int(0), self.int(1), self.row_count());
        let (dtype, none) = (self.int(ScalarType::Long as i64), self.none());
        let (args, sizes) = (vec![zero, rows, one, dtype, none, none, none], vec![self.count]);
        let arange = Operator::ARANGE_START_STEP;
        let numbers = self.add(arange, args, ScalarType::Long, sizes, true);
        self.numbers = Some(numbers);
        numbers
    }

    /// Writes rows to the state in the slots, or to positions of a dim of it. `state` may also be a
    /// tensor with rows.
    pub(super) fn put(
        &mut self,
        state: ValueId,
        positions: Option<ValueId>,
        value: ValueId,
        dim: usize,
    ) -> Result<ValueId, Reason> {
        let value = self.rows_of(value)?;
        let tensor = self.tensor(state)?;
        let (sizes, scalar_type) = (tensor.sizes.clone(), tensor.scalar_type);
        if self.tensor(value)?.scalar_type != scalar_type {
            return Err("state and its new value differ in dtype".to_string());
        }
        let positions_are_given = positions.is_some();
        let positions = match positions {
            Some(positions) => positions,
            None => self.none(),
        };
        let form = self.form(state);
        // A run that fails is repeated for each session alone. Writes to positions happen before
        // the run ends, so they must be the same then.
        if form == Form::Slots && positions_are_given && self.reads(value, self.base(state))? {
            return Err("a part of state that is computed from the same state".to_string());
        }
        let (slots, dim) = match form {
            Form::Slots => (self.slots, self.int(dim as i64)),
            _ => (self.numbers(), self.int(dim as i64)),
        };
        let (varies, is_dynamic) = (self.varies(state), form == Form::Rows);
        let call = SlotsPutArgs { state, slots, positions, value, dim, out: 0 };
        let out = self.add(Operator::SLOTS_PUT, call.inputs(), scalar_type, sizes, is_dynamic);
        self.forms.insert(out, form);
        self.bases.insert(out, self.base(state));
        if varies {
            self.varying.insert(out);
        }
        Ok(out)
    }
}
