//! The steps of a recurrent layer, which exporters write one after the other, become one call.
//!
//! What the inputs of all steps are multiplied with is one product already, of which each step
//! takes a slice. A step multiplies the state with weights, and makes the next state of that
//! ([`Cell`]). What comes of all steps is joined again.

use super::uses;
use crate::ops::{Cell, MOST_STEPS, recurs};
use std::collections::{HashMap, HashSet};
use torchlet_core::ScalarType;
use torchlet_graph::graph::{Graph, Node, Tensor, Value, ValueId};
use torchlet_graph::operators::Operator;

/// The views between a step and its slice of the inputs, at most.
const MOST_VIEWS: usize = 4;

pub(super) fn fuse(graph: &mut Graph<'_>) {
    let layers = Finder::new(graph).layers();
    if layers.is_empty() {
        return;
    }
    let gone: HashSet<usize> = layers.iter().flat_map(|layer| &layer.gone).copied().collect();
    let mut made: HashMap<usize, Vec<Node>> = HashMap::new();
    for layer in layers {
        let nodes = layer.nodes(graph);
        made.entry(layer.place).or_default().extend(nodes);
    }
    for (place, node) in std::mem::take(&mut graph.nodes).into_iter().enumerate() {
        if !gone.contains(&place) {
            graph.nodes.push(node);
        }
        graph.nodes.extend(made.remove(&place).unwrap_or_default());
    }
}

/// One step.
#[derive(Debug)]
struct Step {
    cell: Cell,
    /// The call that multiplies the state, by its place.
    first: usize,
    /// The state before and behind it.
    state: [ValueId; 2],
    /// The cell's state before and behind it.
    inner: Option<[ValueId; 2]>,
    weight: ValueId,
    bias: ValueId,
    /// What it adds to the products: the inputs, multiplied.
    input: ValueId,
    /// Its calls.
    places: Vec<usize>,
}

/// Where tensors of all steps lie in another, along its first dimension: that of the first step,
/// and how far it is to the next.
#[derive(Debug, Clone, Copy)]
struct Rows {
    whole: ValueId,
    first: i64,
    next: i64,
}

/// A layer.
struct Layer {
    steps: Vec<Step>,
    inputs: Rows,
    /// The states behind the steps; where they are not joined, the last alone.
    states: Rows,
    /// The last state, where it is asked for though it is joined with the others.
    last: Option<ValueId>,
    /// The last state of the cell, where it is asked for.
    inner: Option<ValueId>,
    /// The call that the layer comes behind.
    place: usize,
    /// The calls that it takes the place of.
    gone: Vec<usize>,
}

impl Layer {
    /// The calls that do the same.
    fn nodes(&self, graph: &mut Graph<'_>) -> Vec<Node> {
        let Some((first, last)) = self.steps.first().zip(self.steps.last()) else {
            return Vec::new();
        };
        let id = graph.nodes.get(self.place).map_or(0, |node| node.id);
        let mut push = |value| {
            graph.values.push(value);
            graph.values.len() - 1
        };
        let count = i64::try_from(self.steps.len()).unwrap_or(i64::MAX);
        let Rows { whole, first: place, next } = self.states;
        let numbers = [
            i64::from(first.cell.number()),
            count,
            self.inputs.first,
            self.inputs.next,
            place,
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
            let at = place + next * (count - 1);
            let [dim, start, end, step] = [0, at, at + 1, 1].map(|it| push(Value::Int(it)));
            let args = vec![whole, dim, start, end, step, last.state[1]];
            nodes.push(Node { id, ..Node::new(Operator::SLICE_COPY_TENSOR, args) });
        }
        nodes
    }
}

struct Finder<'g, 'p> {
    graph: &'g Graph<'p>,
    /// The call that makes each value, also within lists, and those that take it.
    makers: HashMap<ValueId, usize>,
    takers: HashMap<ValueId, Vec<usize>>,
    uses: HashMap<ValueId, usize>,
}

impl<'g, 'p> Finder<'g, 'p> {
    fn new(graph: &'g Graph<'p>) -> Self {
        let mut makers = HashMap::new();
        let mut takers: HashMap<ValueId, Vec<usize>> = HashMap::new();
        for (place, node) in graph.nodes.iter().enumerate() {
            let Some((out, inputs)) = node.args.split_last() else { continue };
            makers.extend(graph.items(out).iter().map(|id| (*id, place)));
            let taken: HashSet<ValueId> =
                inputs.iter().flat_map(|id| graph.items(id)).copied().collect();
            for id in taken {
                takers.entry(id).or_default().push(place);
            }
        }
        Finder { graph, makers, takers, uses: uses(graph) }
    }

    /// The layers that one call each can do.
    fn layers(&self) -> Vec<Layer> {
        let steps = (0..self.graph.nodes.len()).filter_map(|place| self.step(place));
        // What follows a state, with these weights.
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
            // In the order of calls, a layer's first step comes before its others.
            let Some(step) = take(state, &|step| step.first == first) else { continue };
            let mut steps = vec![step];
            while let Some(last) = steps.last().filter(|_| steps.len() < MOST_STEPS) {
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

    fn node(&self, place: usize) -> Option<&'g Node> {
        self.graph.nodes.get(place)
    }

    fn tensor(&self, id: ValueId) -> Option<&'g Tensor<'p>> {
        match self.graph.values.get(id)? {
            Value::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// A tensor of numbers that shaders compute with, of this shape.
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

    /// The only calls that take a value: all there are, and so many.
    fn takers(&self, id: ValueId, count: usize) -> Option<&[usize]> {
        let takers = self.takers.get(&id)?;
        (takers.len() == count && self.uses.get(&id) == Some(&count)).then_some(takers.as_slice())
    }

    /// The only call that takes a value, if it is of this operator: where it is, and what it makes.
    fn only(&self, id: ValueId, operator: Operator, places: &mut Vec<usize>) -> Option<ValueId> {
        let place = *self.takers(id, 1)?.first()?;
        let node = self.node(place).filter(|node| node.operator == operator)?;
        places.push(place);
        node.args.last().copied()
    }

    /// The same of a call with two operands: the other one, and what it makes.
    fn pair(
        &self,
        id: ValueId,
        operator: Operator,
        places: &mut Vec<usize>,
    ) -> Option<[ValueId; 2]> {
        let place = *self.takers(id, 1)?.first()?;
        let pair = self.operands(place, operator, id)?;
        places.push(place);
        Some(pair)
    }

    /// The other operand of a call, and what it makes, if it neither scales nor broadcasts.
    fn operands(&self, place: usize, operator: Operator, id: ValueId) -> Option<[ValueId; 2]> {
        let node = self.node(place).filter(|node| node.operator == operator)?;
        let (out, inputs) = node.args.split_last()?;
        let (a, b) = match inputs {
            [a, b] => (*a, *b),
            [a, b, factor] if self.is_one(*factor) => (*a, *b),
            _ => return None,
        };
        let other = if a == id { b } else { a };
        // A slice of the inputs may lack the dimension of one.
        let numel = |id| Some(self.tensor(id)?.sizes.iter().product::<usize>());
        let alike = numel(other) == numel(id) && numel(*out) == numel(id);
        (alike && a != b).then_some([other, *out])
    }

    /// What steps that follow one another make up, if one call can do it.
    fn layer(&self, steps: Vec<Step>) -> Option<Layer> {
        let (first, last) = steps.first().zip(steps.last()).filter(|_| steps.len() > 1)?;
        let [_, rows, hidden] = self.tensor(first.state[0])?.sizes[..] else { return None };
        let mut gone: Vec<usize> = steps.iter().flat_map(|step| &step.places).copied().collect();
        let place = *gone.iter().max()?;
        let width = first.cell.gates() * hidden;
        let (mut inputs, mut earliest) = (Vec::new(), first.first);
        for step in &steps {
            inputs.push(self.slice(step.input, [rows, width], &mut gone, &mut earliest)?);
        }
        let inputs = rows_of(&inputs)?;

        let (states, joiner) = self.states(&steps, [rows, hidden])?;
        gone.extend(joiner);
        // Nothing writes to what it takes while the steps go on, or before, where their inputs are
        // taken.
        let between = self.graph.nodes.get(earliest..place)?;
        if between.iter().any(|node| node.operator.traits().writes_arguments()) {
            return None;
        }
        let others = |id: ValueId, own: &[usize], joiner: Option<usize>| {
            let takers = self.takers.get(&id).map(Vec::as_slice).unwrap_or_default();
            let own = takers.iter().filter(|it| own.contains(it) || joiner == Some(**it)).count();
            self.uses.get(&id).copied().unwrap_or(0) > own
        };
        let is_asked_for = joiner.is_some() && others(last.state[1], &[], joiner);
        let inner = last.inner.map(|[_, behind]| behind);
        if let Some([before, _]) = first.inner
            && (!self.is_like(before, first.state[0]) || !self.is_float(before, &[1, rows, hidden]))
        {
            return None;
        }
        // Who takes a last state comes behind the layer.
        let too_early = |id: &ValueId| {
            let takers = self.takers.get(id).map(Vec::as_slice).unwrap_or_default();
            takers.iter().any(|taker| *taker < place && !gone.contains(taker))
        };
        if too_early(&last.state[1]) || inner.as_ref().is_some_and(too_early) {
            return None;
        }
        let inner = inner.filter(|inner| others(*inner, &last.places, None));
        if inner.is_some_and(|inner| {
            !self.is_like(inner, last.state[1]) || !self.is_float(inner, &[1, rows, hidden])
        }) {
            return None;
        }
        let last = is_asked_for.then_some(last.state[1]);
        Some(Layer { inputs, states, last, inner, place, gone, steps })
    }

    /// Where the states behind the steps go, and the call that joins them. None but the next step
    /// takes one by itself, and of the cell's states none else at all; the last ones anybody may
    /// take.
    fn states(&self, steps: &[Step], [rows, hidden]: [usize; 2]) -> Option<(Rows, Option<usize>)> {
        let mut joiners = HashSet::new();
        for pair in steps.windows(2) {
            let [step, next] = pair else { continue };
            let takers = self.all_takers(step.state[1])?;
            let mut others = takers.iter().filter(|place| !next.places.contains(place));
            joiners.insert(others.next().copied());
            let is_inside =
                |place: &usize| next.places.contains(place) || step.places.contains(place);
            let inner = step.inner.is_none_or(|[_, behind]| {
                self.all_takers(behind).is_some_and(|takers| takers.iter().all(is_inside))
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
        let places = match () {
            () if joined == states => (0, 1),
            () if joined.iter().rev().eq(&states) => (count - 1, -1),
            () => return None,
        };
        let fits = self.int(*dim)? == 0
            && self.is_float(*whole, &[steps.len(), rows, hidden])
            && self.is_like(*whole, last);
        let rows = Rows { whole: *whole, first: places.0, next: places.1 };
        fits.then_some((rows, Some(joiner)))
    }

    /// The calls that take a value, if nothing else does.
    fn all_takers(&self, id: ValueId) -> Option<&[usize]> {
        let takers = self.takers.get(&id)?;
        (self.uses.get(&id) == Some(&takers.len())).then_some(takers)
    }

    /// Whether two values are one, nothing at all, or constants with the same contents: delegates
    /// of steps have their own.
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

    /// Whether two tensors have elements of the same type.
    fn is_like(&self, a: ValueId, b: ValueId) -> bool {
        let scalar_type = |id| self.tensor(id).map(|tensor| tensor.scalar_type);
        scalar_type(a) == scalar_type(b)
    }

    /// What a value is a slice of, through views: of one along the first dimension, and which one
    /// it is. The calls that nobody else takes anything of are gone; none is before `earliest`.
    fn slice(
        &self,
        id: ValueId,
        [rows, width]: [usize; 2],
        gone: &mut Vec<usize>,
        earliest: &mut usize,
    ) -> Option<(ValueId, i64)> {
        let mut id = id;
        let mut only_here = true;
        for _ in 0..MOST_VIEWS {
            let place = *self.makers.get(&id)?;
            let node = self.node(place)?;
            *earliest = place.min(*earliest);
            // What a call makes that stays is not taken from it either.
            only_here &= self.all_takers(id).is_some_and(|takers| takers.len() == 1);
            if only_here {
                gone.push(place);
            }
            let same_type = |other: ValueId| self.is_like(other, id);
            let (whole, at) = match (node.operator, &node.args[..]) {
                (Operator::SLICE_COPY_TENSOR, [whole, dim, start, _, step, _])
                    if self.int(*dim)? == 0 && self.int(*step)? == 1 =>
                {
                    (*whole, self.place(*whole, self.int(*start)?, true)?)
                }
                (Operator::SELECT_COPY_INT, [whole, dim, index, _]) if self.int(*dim)? == 0 => {
                    (*whole, self.place(*whole, self.int(*index)?, false)?)
                }
                // Conversions count as views.
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

    /// Where a slice starts along the first dimension of a tensor, or what a selection selects.
    /// Places counted from the end of what may be shorter are not known.
    fn place(&self, whole: ValueId, index: i64, clamps: bool) -> Option<i64> {
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

    /// The parts of a value that is split along its last dimension, each as wide.
    fn split(&self, id: ValueId, count: usize, places: &mut Vec<usize>) -> Option<&'g [ValueId]> {
        let place = *self.takers(id, 1)?.first()?;
        let node = self.node(place).filter(|it| it.operator == Operator::SPLIT_WITH_SIZES_COPY)?;
        let [input, _, dim, parts] = &node.args[..] else { return None };
        let rank = i64::try_from(self.tensor(*input)?.sizes.len()).ok()?;
        let is_last = [-1, rank - 1].contains(&self.int(*dim)?);
        let parts = self.graph.items(parts);
        let width = |id: &ValueId| self.tensor(*id)?.sizes.last().copied();
        let even = parts.iter().all(|part| width(part) == parts.first().and_then(width));
        places.push(place);
        (is_last && even && parts.len() == count).then_some(parts)
    }

    /// The step whose product with the state is this call.
    fn step(&self, place: usize) -> Option<Step> {
        let node = self.node(place).filter(|node| node.operator == Operator::LINEAR)?;
        let [state, weight, bias, product] = node.args[..] else { return None };
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
            first: place,
            state: [state; 2],
            inner: None,
            weight,
            bias,
            input: product,
            places: vec![place],
        };
        match gates {
            4 => self.lstm(&mut step, product)?,
            3 => self.gru(&mut step, product)?,
            1 => self.plain(&mut step, product)?,
            _ => return None,
        }
        self.is_float(step.state[1], &[1, rows, hidden]).then_some(step)
    }

    /// `c = sigmoid(f) * c + sigmoid(i) * tanh(g)`, `h = sigmoid(o) * tanh(c)`.
    fn lstm(&self, step: &mut Step, product: ValueId) -> Option<()> {
        let places = &mut step.places;
        let [input, sum] = self.pair(product, Operator::ADD_TENSOR, places)?;
        let [i, f, g, o] = *self.split(sum, 4, places)? else { return None };
        let i = self.only(i, Operator::SIGMOID, places)?;
        let f = self.only(f, Operator::SIGMOID, places)?;
        let g = self.only(g, Operator::TANH, places)?;
        let o = self.only(o, Operator::SIGMOID, places)?;
        let [other, fresh] = self.pair(i, Operator::MUL_TENSOR, places)?;
        let [before, old] = self.pair(f, Operator::MUL_TENSOR, places)?;
        let [same, behind] = self.pair(fresh, Operator::ADD_TENSOR, places)?;
        let [shown, state] = self.pair(o, Operator::MUL_TENSOR, places)?;
        let place = *self.makers.get(&shown)?;
        let node = self.node(place).filter(|node| node.operator == Operator::TANH)?;
        places.push(place);
        let is_cell = node.args.first() == Some(&behind) && self.takers(shown, 1).is_some();
        let sums_up = self.takers(g, 1).is_some() && self.takers(old, 1).is_some();
        if other != g || same != old || !is_cell || !sums_up {
            return None;
        }
        step.inner = Some([before, behind]);
        (step.cell, step.input, step.state[1]) = (Cell::Lstm, input, state);
        Some(())
    }

    /// `r = sigmoid(xr + hr)`, `z = sigmoid(xz + hz)`, `n = tanh(xn + hn * r)`,
    /// `h = (h - n) * z + n`.
    fn gru(&self, step: &mut Step, product: ValueId) -> Option<()> {
        let places = &mut step.places;
        let [r, z, n] = *self.split(product, 3, places)? else { return None };
        let [xr, r] = self.pair(r, Operator::ADD_TENSOR, places)?;
        let r = self.only(r, Operator::SIGMOID, places)?;
        let [xz, z] = self.pair(z, Operator::ADD_TENSOR, places)?;
        let z = self.only(z, Operator::SIGMOID, places)?;
        let [with, n] = self.pair(n, Operator::MUL_TENSOR, places)?;
        let [xn, n] = self.pair(n, Operator::ADD_TENSOR, places)?;
        let n = self.only(n, Operator::TANH, places)?;
        let [left, mixed] = self.pair(z, Operator::MUL_TENSOR, places)?;
        let [same, state] = self.pair(mixed, Operator::ADD_TENSOR, places)?;
        // What is left of the state: it is taken from it, not the other way round.
        let place = *self.makers.get(&left)?;
        let [other, _] = self.operands(place, Operator::SUB_TENSOR, n)?;
        let from = self.node(place)?.args.first();
        places.push(place);
        let taken = self.takers(n, 2).is_some()
            && self.takers(r, 1).is_some()
            && self.takers(left, 1).is_some();
        if with != r || same != n || other != step.state[0] || from != Some(&other) || !taken {
            return None;
        }
        // The inputs' parts are those of one split.
        let input = *self.node(*self.makers.get(&xr)?)?.args.first()?;
        let parts = self.split(input, 3, places)?;
        let alone = [xr, xz, xn].iter().all(|part| self.takers(*part, 1).is_some());
        if parts != [xr, xz, xn] || !alone {
            return None;
        }
        (step.cell, step.input, step.state[1]) = (Cell::Gru, input, state);
        Some(())
    }

    /// `h = tanh(x + h)`, or the greater of that and zero.
    fn plain(&self, step: &mut Step, product: ValueId) -> Option<()> {
        let places = &mut step.places;
        let [input, sum] = self.pair(product, Operator::ADD_TENSOR, places)?;
        let place = *self.takers(sum, 1)?.first()?;
        let node = self.node(place)?;
        step.cell = match node.operator {
            Operator::TANH => Cell::Tanh,
            Operator::RELU => Cell::Relu,
            _ => return None,
        };
        places.push(place);
        (step.input, step.state[1]) = (input, *node.args.last()?);
        Some(())
    }
}

/// Where these lie, if it is in one tensor and each as far behind the one before.
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
