//! Fuses the unrolled steps of a recurrent layer into one call.
//!
//! Exporters unroll recurrent layers. A single GEMM projects the inputs of all steps, and each step
//! reads a slice of the result. A step multiplies the state by the recurrent weights and computes
//! the next state ([`Cell`]). The states of all steps are concatenated.

use super::uses;
use crate::ops::{Cell, MAX_STEPS, recurs};
use std::collections::{HashMap, HashSet};
use torchlet_core::ScalarType;
use torchlet_graph::graph::{Graph, Node, Tensor, Value, ValueId};
use torchlet_graph::operators::Operator;

/// The maximum number of views between a step and its slice of the inputs.
const MAX_VIEWS: usize = 4;

pub(super) fn fuse(graph: &mut Graph<'_>) {
    let layers = Finder::new(graph).layers();
    if layers.is_empty() {
        return;
    }
    let gone: HashSet<usize> = layers.iter().flat_map(|layer| &layer.gone).copied().collect();
    let mut made: HashMap<usize, Vec<Node>> = HashMap::new();
    for layer in layers {
        let nodes = layer.nodes(graph);
        made.entry(layer.position).or_default().extend(nodes);
    }
    for (position, node) in std::mem::take(&mut graph.nodes).into_iter().enumerate() {
        if !gone.contains(&position) {
            graph.nodes.push(node);
        }
        graph.nodes.extend(made.remove(&position).unwrap_or_default());
    }
}

/// One unrolled step of a recurrent layer.
#[derive(Debug)]
struct Step {
    cell: Cell,
    /// The index of the call that multiplies the state by the weights.
    first: usize,
    /// The hidden state before and after the step.
    state: [ValueId; 2],
    /// The cell state before and after the step, for an LSTM.
    inner: Option<[ValueId; 2]>,
    weight: ValueId,
    bias: ValueId,
    /// The slice of the input projection, which is added to the product of state and weights.
    input: ValueId,
    /// The indices of the step's calls.
    positions: Vec<usize>,
}

/// Where the steps find their tensors in the first dim of `whole`: the index of the first
/// step's tensor, and the distance from one step to the next.
#[derive(Debug, Clone, Copy)]
struct Rows {
    whole: ValueId,
    first: i64,
    next: i64,
}

/// A recurrent layer that was found in the graph.
struct Layer {
    steps: Vec<Step>,
    inputs: Rows,
    /// The states after the steps, or only the last one if they are not concatenated.
    states: Rows,
    /// The last state, if it has readers besides the concatenation.
    last: Option<ValueId>,
    /// The last cell state, if it has readers.
    inner: Option<ValueId>,
    /// The index at which the fused call is inserted.
    position: usize,
    /// The indices of the calls that the layer replaces.
    gone: Vec<usize>,
}

impl Layer {
    /// Returns the calls that replace the layer.
    fn nodes(&self, graph: &mut Graph<'_>) -> Vec<Node> {
        let Some((first, last)) = self.steps.first().zip(self.steps.last()) else {
            return Vec::new();
        };
        let id = graph.nodes.get(self.position).map_or(0, |node| node.id);
        let mut push = |value| {
            graph.values.push(value);
            graph.values.len() - 1
        };
        let count = i64::try_from(self.steps.len()).unwrap_or(i64::MAX);
        let Rows { whole, first: position, next } = self.states;
        let numbers = [
            i64::from(first.cell.number()),
            count,
            self.inputs.first,
            self.inputs.next,
            position,
            next,
        ];
        let inner = first.inner.map_or_else(|| push(Value::None), |[before, _]| before);
        let mut args = vec![self.inputs.whole, first.state[0], inner, first.weight, first.bias];
        args.extend(numbers.map(|number| push(Value::Int(number))));
        args.push(match self.inner {
            Some(inner) => push(Value::List(vec![whole, inner])),
            None => whole,
        });
        let mut nodes = vec![Node { id, ..Node::new(Operator::RECURRENT, args) }];
        if self.last.is_some() {
            let at = position + next * (count - 1);
            let [dim, start, end, step] = [0, at, at + 1, 1].map(|it| push(Value::Int(it)));
            let args = vec![whole, dim, start, end, step, last.state[1]];
            nodes.push(Node { id, ..Node::new(Operator::SLICE_COPY_TENSOR, args) });
        }
        nodes
    }
}

struct Finder<'g, 'p> {
    graph: &'g Graph<'p>,
    /// The producer and the readers of each value, including uses in lists.
    producers: HashMap<ValueId, usize>,
    readers: HashMap<ValueId, Vec<usize>>,
    uses: HashMap<ValueId, usize>,
}

impl<'g, 'p> Finder<'g, 'p> {
    fn new(graph: &'g Graph<'p>) -> Self {
        let mut producers = HashMap::new();
        let mut readers: HashMap<ValueId, Vec<usize>> = HashMap::new();
        for (position, node) in graph.nodes.iter().enumerate() {
            let Some((out, inputs)) = node.args.split_last() else { continue };
            producers.extend(graph.items(out).iter().map(|id| (*id, position)));
            let taken: HashSet<ValueId> =
                inputs.iter().flat_map(|id| graph.items(id)).copied().collect();
            for id in taken {
                readers.entry(id).or_default().push(position);
            }
        }
        Finder { graph, producers, readers, uses: uses(graph) }
    }

    /// Finds the layers that can be fused.
    fn layers(&self) -> Vec<Layer> {
        let steps = (0..self.graph.nodes.len()).filter_map(|position| self.step(position));
        // The steps by their initial state; steps with different weights may start from the same
        // state.
        let mut following: HashMap<ValueId, Vec<Step>> = HashMap::new();
        let mut order = Vec::new();
        for step in steps {
            order.push((step.state[0], step.first));
            following.entry(step.state[0]).or_default().push(step);
        }
        let mut layers = Vec::new();
        for (state, first) in order {
            let mut take = |state: ValueId, fits: &dyn Fn(&Step) -> bool| {
                let steps = following.get_mut(&state)?;
                let found = steps.iter().position(fits)?;
                Some(steps.swap_remove(found))
            };
            // The first step of a layer precedes the others in call order.
            let Some(step) = take(state, &|step| step.first == first) else { continue };
            let mut steps = vec![step];
            while let Some(last) = steps.last().filter(|_| steps.len() < MAX_STEPS) {
                let follows = |next: &Step| {
                    next.cell == last.cell
                        && self.is_same(next.weight, last.weight)
                        && self.is_same(next.bias, last.bias)
                        && next.inner.map(|inner| inner[0]) == last.inner.map(|inner| inner[1])
                };
                let Some(next) = take(last.state[1], &follows) else { break };
                steps.push(next);
            }
            layers.extend(self.layer(steps));
        }
        layers
    }

    fn node(&self, position: usize) -> Option<&'g Node> {
        self.graph.nodes.get(position)
    }

    fn tensor(&self, id: ValueId) -> Option<&'g Tensor<'p>> {
        match self.graph.values.get(id)? {
            Value::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// Whether a value is a tensor of this shape with a float type that shaders support.
    fn is_float(&self, id: ValueId, sizes: &[usize]) -> bool {
        let types = [ScalarType::Float, ScalarType::Half];
        self.tensor(id).is_some_and(|it| types.contains(&it.scalar_type) && it.sizes == sizes)
    }

    fn int(&self, id: ValueId) -> Option<i64> {
        match self.graph.values.get(id)? {
            Value::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// Returns the readers of a value, if exactly `count` calls and nothing else read it.
    fn readers(&self, id: ValueId, count: usize) -> Option<&[usize]> {
        let readers = self.readers.get(&id)?;
        (readers.len() == count && self.uses.get(&id) == Some(&count)).then_some(readers.as_slice())
    }

    /// If the only reader of a value is a call of this operator, returns the result of the call and
    /// adds its index to `positions`.
    fn only(&self, id: ValueId, operator: Operator, positions: &mut Vec<usize>) -> Option<ValueId> {
        let position = *self.readers(id, 1)?.first()?;
        let node = self.node(position).filter(|node| node.operator == operator)?;
        positions.push(position);
        node.args.last().copied()
    }

    /// If the only reader of a value is a call of this operator with two operands, returns the
    /// other operand and the result.
    fn pair(
        &self,
        id: ValueId,
        operator: Operator,
        positions: &mut Vec<usize>,
    ) -> Option<[ValueId; 2]> {
        let position = *self.readers(id, 1)?.first()?;
        let pair = self.operands(position, operator, id)?;
        positions.push(position);
        Some(pair)
    }

    /// Returns the other operand of a call with the operand `id`, and the result. Returns `None` if
    /// the call scales an operand or broadcasts.
    fn operands(&self, position: usize, operator: Operator, id: ValueId) -> Option<[ValueId; 2]> {
        let node = self.node(position).filter(|node| node.operator == operator)?;
        let (out, inputs) = node.args.split_last()?;
        let (a, b) = match inputs {
            [a, b] => (*a, *b),
            [a, b, factor] if self.is_one(*factor) => (*a, *b),
            _ => return None,
        };
        let other = if a == id { b } else { a };
        // A slice of the inputs may lack the leading dim of size one.
        let numel = |id| Some(self.tensor(id)?.sizes.iter().product::<usize>());
        let alike = numel(other) == numel(id) && numel(*out) == numel(id);
        (alike && a != b).then_some([other, *out])
    }

    /// Returns the layer that these consecutive steps form, if it can be fused.
    fn layer(&self, steps: Vec<Step>) -> Option<Layer> {
        let (first, last) = steps.first().zip(steps.last()).filter(|_| steps.len() > 1)?;
        let [_, rows, hidden] = self.tensor(first.state[0])?.sizes[..] else { return None };
        let mut gone: Vec<usize> = steps.iter().flat_map(|step| &step.positions).copied().collect();
        let position = *gone.iter().max()?;
        let width = first.cell.gates() * hidden;
        let (mut inputs, mut earliest) = (Vec::new(), first.first);
        for step in &steps {
            inputs.push(self.slice(step.input, [rows, width], &mut gone, &mut earliest)?);
        }
        let inputs = rows_of(&inputs)?;

        let (states, joiner) = self.states(&steps, [rows, hidden])?;
        gone.extend(joiner);
        // The inputs must not be overwritten during the layer, or between their slicing and the
        // layer.
        let between = self.graph.nodes.get(earliest..position)?;
        if between.iter().any(|node| node.operator.traits().writes_arguments()) {
            return None;
        }
        let others = |id: ValueId, own: &[usize], joiner: Option<usize>| {
            let readers = self.readers.get(&id).map(Vec::as_slice).unwrap_or_default();
            let own = readers.iter().filter(|it| own.contains(it) || joiner == Some(**it)).count();
            self.uses.get(&id).copied().unwrap_or(0) > own
        };
        let is_asked_for = joiner.is_some() && others(last.state[1], &[], joiner);
        let inner = last.inner.map(|[_, behind]| behind);
        if let Some([before, _]) = first.inner
            && (!self.is_like(before, first.state[0]) || !self.is_float(before, &[1, rows, hidden]))
        {
            return None;
        }
        // Readers of the last states must follow the layer.
        let too_early = |id: &ValueId| {
            let readers = self.readers.get(id).map(Vec::as_slice).unwrap_or_default();
            readers.iter().any(|reader| *reader < position && !gone.contains(reader))
        };
        if too_early(&last.state[1]) || inner.as_ref().is_some_and(too_early) {
            return None;
        }
        let inner = inner.filter(|inner| others(*inner, &last.positions, None));
        if inner.is_some_and(|inner| {
            !self.is_like(inner, last.state[1]) || !self.is_float(inner, &[1, rows, hidden])
        }) {
            return None;
        }
        let last = is_asked_for.then_some(last.state[1]);
        Some(Layer { inputs, states, last, inner, position, gone, steps })
    }

    /// Returns the location of the states in their concatenation, and the index of the
    /// concatenation. Only the next step and the concatenation may read an intermediate state, and
    /// only the next step an intermediate cell state. The last states may have any readers.
    fn states(&self, steps: &[Step], [rows, hidden]: [usize; 2]) -> Option<(Rows, Option<usize>)> {
        let mut joiners = HashSet::new();
        for pair in steps.windows(2) {
            let [step, next] = pair else { continue };
            let readers = self.all_readers(step.state[1])?;
            let mut others = readers.iter().filter(|position| !next.positions.contains(position));
            joiners.insert(others.next().copied());
            let is_inside = |position: &usize| {
                next.positions.contains(position) || step.positions.contains(position)
            };
            let inner = step.inner.is_none_or(|[_, behind]| {
                self.all_readers(behind).is_some_and(|readers| readers.iter().all(is_inside))
            });
            if others.next().is_some() || !inner {
                return None;
            }
        }
        let mut joiners = joiners.into_iter();
        let joiner = joiners.next().filter(|_| joiners.next().is_none())?;
        let states: Vec<ValueId> = steps.iter().map(|step| step.state[1]).collect();
        let last = *states.last()?;
        let Some(joiner) = joiner else {
            return Some((Rows { whole: last, first: 0, next: 0 }, None));
        };
        let node = self.node(joiner).filter(|node| node.operator == Operator::CAT)?;
        let [list, dim, whole] = &node.args[..] else { return None };
        let joined = self.graph.items(list);
        let count = i64::try_from(steps.len()).ok()?;
        let positions = match () {
            () if joined == states => (0, 1),
            () if joined.iter().rev().eq(&states) => (count - 1, -1),
            () => return None,
        };
        let fits = self.int(*dim)? == 0
            && self.is_float(*whole, &[steps.len(), rows, hidden])
            && self.is_like(*whole, last);
        let rows = Rows { whole: *whole, first: positions.0, next: positions.1 };
        fits.then_some((rows, Some(joiner)))
    }

    /// Returns the calls that read a value, if only calls read it.
    fn all_readers(&self, id: ValueId) -> Option<&[usize]> {
        let readers = self.readers.get(&id)?;
        (self.uses.get(&id) == Some(&readers.len())).then_some(readers)
    }

    /// Whether two values are identical, both absent, or constants with the same contents. If each
    /// step is a delegate, each has its own copy of the constants.
    fn is_same(&self, a: ValueId, b: ValueId) -> bool {
        let is_none = |id| matches!(self.graph.values.get(id), Some(Value::None));
        let is_copy = || match (self.tensor(a), self.tensor(b)) {
            (Some(a), Some(b)) => {
                let same_bytes = |(a, b): (&[u8], &[u8])| core::ptr::eq(a, b) || a == b;
                [a, b].iter().all(|it| it.changes == Some(false))
                    && (a.scalar_type, &a.sizes) == (b.scalar_type, &b.sizes)
                    && a.data.as_deref().zip(b.data.as_deref()).is_some_and(same_bytes)
            }
            _ => false,
        };
        a == b || (is_none(a) && is_none(b)) || is_copy()
    }

    /// Whether two tensors have the same scalar type.
    fn is_like(&self, a: ValueId, b: ValueId) -> bool {
        let scalar_type = |id| self.tensor(id).map(|tensor| tensor.scalar_type);
        scalar_type(a) == scalar_type(b)
    }

    /// Follows views to the slice that a value comes from. Returns the sliced tensor, and the index
    /// in its first dim. Calls without other readers are added to `gone`; `earliest` becomes
    /// the smallest index seen.
    fn slice(
        &self,
        id: ValueId,
        [rows, width]: [usize; 2],
        gone: &mut Vec<usize>,
        earliest: &mut usize,
    ) -> Option<(ValueId, i64)> {
        let mut id = id;
        let mut only_here = true;
        for _ in 0..MAX_VIEWS {
            let position = *self.producers.get(&id)?;
            let node = self.node(position)?;
            *earliest = position.min(*earliest);
            // Once a call must stay, its inputs must stay too.
            only_here &= self.all_readers(id).is_some_and(|readers| readers.len() == 1);
            if only_here {
                gone.push(position);
            }
            let same_type = |other: ValueId| self.is_like(other, id);
            let (whole, at) = match (node.operator, &node.args[..]) {
                (Operator::SLICE_COPY_TENSOR, [whole, dim, start, _, step, _])
                    if self.int(*dim)? == 0 && self.int(*step)? == 1 =>
                {
                    (*whole, self.position(*whole, self.int(*start)?, true)?)
                }
                (Operator::SELECT_COPY_INT, [whole, dim, index, _]) if self.int(*dim)? == 0 => {
                    (*whole, self.position(*whole, self.int(*index)?, false)?)
                }
                // Views may convert types, hence the check.
                (operator, [whole, ..]) if operator.traits().is_view && same_type(*whole) => {
                    id = *whole;
                    continue;
                }
                _ => return None,
            };
            let count = *self.tensor(whole)?.sizes.first()?;
            let numel: usize = self.tensor(id)?.sizes.iter().product();
            let fits = self.is_float(whole, &[count, rows, width]) && numel == rows * width;
            return (fits && self.is_like(whole, id)).then_some((whole, at));
        }
        None
    }

    /// Returns the start of a slice, or the index of a selection, in the first dim. Returns
    /// `None` if the index counts from the end of a dynamic dim.
    fn position(&self, whole: ValueId, index: i64, clamps: bool) -> Option<i64> {
        let tensor = self.tensor(whole)?;
        let count = i64::try_from(*tensor.sizes.first()?).ok()?;
        let from_end = index < 0;
        if from_end && tensor.dynamic {
            return None;
        }
        let at = if from_end { index.checked_add(count)? } else { index };
        let at = if clamps { at.max(0) } else { at };
        (0..count).contains(&at).then_some(at)
    }

    fn is_one(&self, id: ValueId) -> bool {
        match self.graph.values.get(id) {
            Some(Value::Int(1)) => true,
            Some(Value::Double(factor)) => *factor == 1.0,
            _ => false,
        }
    }

    /// Returns the parts of a value that is split evenly over its last dim.
    fn split(
        &self,
        id: ValueId,
        count: usize,
        positions: &mut Vec<usize>,
    ) -> Option<&'g [ValueId]> {
        let position = *self.readers(id, 1)?.first()?;
        let node =
            self.node(position).filter(|it| it.operator == Operator::SPLIT_WITH_SIZES_COPY)?;
        let [input, _, dim, parts] = &node.args[..] else { return None };
        let rank = i64::try_from(self.tensor(*input)?.sizes.len()).ok()?;
        let is_last = [-1, rank - 1].contains(&self.int(*dim)?);
        let parts = self.graph.items(parts);
        let width = |id: &ValueId| self.tensor(*id)?.sizes.last().copied();
        let even = parts.iter().all(|part| width(part) == parts.first().and_then(width));
        positions.push(position);
        (is_last && even && parts.len() == count).then_some(parts)
    }

    /// Returns the step whose state GEMM is the call at `position`.
    fn step(&self, position: usize) -> Option<Step> {
        let node = self.node(position).filter(|node| node.operator == Operator::LINEAR)?;
        let [state, weight, bias, gemm] = node.args[..] else { return None };
        let weights = self.tensor(weight).filter(|it| it.data.is_some())?;
        let [outputs, hidden] = weights.sizes[..] else { return None };
        let [1, rows, width] = self.tensor(state)?.sizes[..] else { return None };
        let gates = outputs.checked_div(hidden)?;
        let has_bias = matches!(self.graph.values.get(bias), Some(Value::Tensor(_)));
        let fits = width == hidden
            && gates * hidden == outputs
            && recurs(rows, hidden, gates)
            && self.is_float(weight, &[outputs, hidden])
            && self.is_float(state, &[1, rows, hidden])
            && (!has_bias || self.is_float(bias, &[outputs]));
        if !fits {
            return None;
        }
        let mut step = Step {
            cell: Cell::Lstm,
            first: position,
            state: [state; 2],
            inner: None,
            weight,
            bias,
            input: gemm,
            positions: vec![position],
        };
        match gates {
            4 => self.lstm(&mut step, gemm)?,
            3 => self.gru(&mut step, gemm)?,
            1 => self.plain(&mut step, gemm)?,
            _ => return None,
        }
        self.is_float(step.state[1], &[1, rows, hidden]).then_some(step)
    }

    /// `c = sigmoid(f) * c + sigmoid(i) * tanh(g)`, `h = sigmoid(o) * tanh(c)`.
    fn lstm(&self, step: &mut Step, gemm: ValueId) -> Option<()> {
        let positions = &mut step.positions;
        let [input, sum] = self.pair(gemm, Operator::ADD_TENSOR, positions)?;
        let [i, f, g, o] = *self.split(sum, 4, positions)? else { return None };
        let i = self.only(i, Operator::SIGMOID, positions)?;
        let f = self.only(f, Operator::SIGMOID, positions)?;
        let g = self.only(g, Operator::TANH, positions)?;
        let o = self.only(o, Operator::SIGMOID, positions)?;
        let [other, fresh] = self.pair(i, Operator::MUL_TENSOR, positions)?;
        let [before, old] = self.pair(f, Operator::MUL_TENSOR, positions)?;
        let [same, behind] = self.pair(fresh, Operator::ADD_TENSOR, positions)?;
        let [shown, state] = self.pair(o, Operator::MUL_TENSOR, positions)?;
        let position = *self.producers.get(&shown)?;
        let node = self.node(position).filter(|node| node.operator == Operator::TANH)?;
        positions.push(position);
        let is_cell = node.args.first() == Some(&behind) && self.readers(shown, 1).is_some();
        let sums_up = self.readers(g, 1).is_some() && self.readers(old, 1).is_some();
        if other != g || same != old || !is_cell || !sums_up {
            return None;
        }
        step.inner = Some([before, behind]);
        (step.cell, step.input, step.state[1]) = (Cell::Lstm, input, state);
        Some(())
    }

    /// `r = sigmoid(xr + hr)`, `z = sigmoid(xz + hz)`, `n = tanh(xn + hn * r)`,
    /// `h = (h - n) * z + n`.
    fn gru(&self, step: &mut Step, gemm: ValueId) -> Option<()> {
        let positions = &mut step.positions;
        let [r, z, n] = *self.split(gemm, 3, positions)? else { return None };
        let [xr, r] = self.pair(r, Operator::ADD_TENSOR, positions)?;
        let r = self.only(r, Operator::SIGMOID, positions)?;
        let [xz, z] = self.pair(z, Operator::ADD_TENSOR, positions)?;
        let z = self.only(z, Operator::SIGMOID, positions)?;
        let [with, n] = self.pair(n, Operator::MUL_TENSOR, positions)?;
        let [xn, n] = self.pair(n, Operator::ADD_TENSOR, positions)?;
        let n = self.only(n, Operator::TANH, positions)?;
        let [left, mixed] = self.pair(z, Operator::MUL_TENSOR, positions)?;
        let [same, state] = self.pair(mixed, Operator::ADD_TENSOR, positions)?;
        // The step must subtract `n` from `h`, not `h` from `n`.
        let position = *self.producers.get(&left)?;
        let [other, _] = self.operands(position, Operator::SUB_TENSOR, n)?;
        let from = self.node(position)?.args.first();
        positions.push(position);
        let taken = self.readers(n, 2).is_some()
            && self.readers(r, 1).is_some()
            && self.readers(left, 1).is_some();
        if with != r || same != n || other != step.state[0] || from != Some(&other) || !taken {
            return None;
        }
        // All parts of the input must come from one split.
        let input = *self.node(*self.producers.get(&xr)?)?.args.first()?;
        let parts = self.split(input, 3, positions)?;
        let alone = [xr, xz, xn].iter().all(|part| self.readers(*part, 1).is_some());
        if parts != [xr, xz, xn] || !alone {
            return None;
        }
        (step.cell, step.input, step.state[1]) = (Cell::Gru, input, state);
        Some(())
    }

    /// `h = tanh(x + h)` or `h = relu(x + h)`.
    fn plain(&self, step: &mut Step, gemm: ValueId) -> Option<()> {
        let positions = &mut step.positions;
        let [input, sum] = self.pair(gemm, Operator::ADD_TENSOR, positions)?;
        let position = *self.readers(sum, 1)?.first()?;
        let node = self.node(position)?;
        step.cell = match node.operator {
            Operator::TANH => Cell::Tanh,
            Operator::RELU => Cell::Relu,
            _ => return None,
        };
        positions.push(position);
        (step.input, step.state[1]) = (input, *node.args.last()?);
        Some(())
    }
}

/// Returns the location of the steps' slices, if all are slices of one tensor at equal distances.
fn rows_of(slices: &[(ValueId, i64)]) -> Option<Rows> {
    let [(whole, first), (_, second), ..] = slices else { return None };
    let rows = Rows { whole: *whole, first: *first, next: second.checked_sub(*first)? };
    let at = |step: usize| {
        rows.next.checked_mul(i64::try_from(step).ok()?).and_then(|far| first.checked_add(far))
    };
    let fits =
        |(step, slice): (usize, &(ValueId, i64))| slice.0 == *whole && at(step) == Some(slice.1);
    slices.iter().enumerate().all(fits).then_some(rows)
}

#[cfg(test)]
mod tests;
