//! Graphs that resemble recurrent layers; some can be fused and some cannot.

use torchlet_core::ScalarType;
use torchlet_graph::graph::{Graph, Node, Tensor, Value, ValueId};
use torchlet_graph::operators::Operator;

const HIDDEN: usize = 4;
const STEPS: usize = 3;

/// Steps of `h = tanh(x[step] + h · w)`. Each test changes some of them.
struct Layer {
    graph: Graph<'static>,
    /// The inputs of all steps, and the concatenated states.
    whole: ValueId,
    joined: ValueId,
    /// For each step: the slice of the inputs, the view of it, and the state after it.
    slices: Vec<ValueId>,
    views: Vec<ValueId>,
    states: Vec<ValueId>,
}

impl Layer {
    fn new() -> Self {
        let mut layer = Layer {
            graph: Graph::default(),
            whole: 0,
            joined: 0,
            slices: Vec::new(),
            views: Vec::new(),
            states: Vec::new(),
        };
        layer.whole = layer.tensor(&[STEPS, 1, HIDDEN]);
        let before = layer.tensor(&[1, 1, HIDDEN]);
        let weight = layer.tensor(&[HIDDEN; 2]);
        if let Value::Tensor(weight) = &mut layer.graph.values[weight] {
            weight.data = Some(vec![0; HIDDEN * HIDDEN * 4].into());
        }
        layer.graph.inputs = vec![layer.whole, before];
        let mut state = before;
        for step in 0..STEPS {
            let at = i64::try_from(step).unwrap();
            let [dim, index] = [0, at].map(|number| layer.value(Value::Int(number)));
            let slice = layer.tensor(&[1, HIDDEN]);
            layer.call(Operator::SELECT_COPY_INT, &[layer.whole, dim, index, slice]);
            let shape = layer.value(Value::IntList(vec![1, 1, HIDDEN as i64]));
            let view = layer.tensor(&[1, 1, HIDDEN]);
            layer.call(Operator::VIEW_COPY, &[slice, shape, view]);
            let none = layer.value(Value::None);
            let [product, sum, next] = [0; 3].map(|_| layer.tensor(&[1, 1, HIDDEN]));
            layer.call(Operator::LINEAR, &[state, weight, none, product]);
            let one = layer.value(Value::Int(1));
            layer.call(Operator::ADD_TENSOR, &[view, product, one, sum]);
            layer.call(Operator::TANH, &[sum, next]);
            layer.slices.push(slice);
            layer.views.push(view);
            layer.states.push(next);
            state = next;
        }
        let list = layer.value(Value::List(layer.states.clone()));
        let dim = layer.value(Value::Int(0));
        layer.joined = layer.tensor(&[STEPS, 1, HIDDEN]);
        layer.call(Operator::CAT, &[list, dim, layer.joined]);
        layer.graph.outputs = vec![layer.joined];
        layer
    }

    fn value(&mut self, value: Value<'static>) -> ValueId {
        self.graph.values.push(value);
        self.graph.values.len() - 1
    }

    fn tensor(&mut self, sizes: &[usize]) -> ValueId {
        self.value(Value::Tensor(Tensor {
            scalar_type: ScalarType::Float,
            host_type: ScalarType::Float,
            sizes: sizes.to_vec(),
            dynamic: false,
            data: None,
            changes: Some(false),
        }))
    }

    fn call(&mut self, operator: Operator, args: &[ValueId]) {
        self.graph.nodes.push(Node::new(operator, args.to_vec()));
    }

    /// Sets an integer argument of a call.
    fn set_int(&mut self, operator: Operator, which: usize, arg: usize, number: i64) {
        let mut calls = self.graph.nodes.iter().filter(|node| node.operator == operator);
        let id = calls.nth(which).unwrap().args[arg];
        self.graph.values[id] = Value::Int(number);
    }

    fn change(&mut self, id: ValueId, change: impl FnOnce(&mut Tensor<'static>)) {
        let Value::Tensor(tensor) = &mut self.graph.values[id] else { unreachable!() };
        change(tensor);
    }

    /// Runs the pass and returns the operators of the resulting calls.
    fn fused(mut self) -> (Vec<Operator>, Graph<'static>) {
        super::fuse(&mut self.graph);
        (self.graph.nodes.iter().map(|node| node.operator).collect(), self.graph)
    }

    fn stays(self) {
        let before: Vec<Operator> = self.graph.nodes.iter().map(|node| node.operator).collect();
        assert_eq!(self.fused().0, before);
    }
}

#[test]
fn unrolled_steps_become_one_call() {
    let (operators, graph) = Layer::new().fused();
    assert_eq!(operators, [Operator::RECURRENT]);
    let numbers = graph.nodes[0].args[5..11].iter();
    let numbers: Vec<&Value<'_>> = numbers.map(|id| &graph.values[*id]).collect();
    let expected = [2, 3, 0, 1, 0, 1].map(Value::Int);
    assert_eq!(numbers, expected.iter().collect::<Vec<_>>());
}

#[test]
fn shared_inputs_stay() {
    // If a view is an output, the selection before it has to stay too.
    let mut layer = Layer::new();
    layer.graph.outputs.push(layer.views[1]);
    let (operators, graph) = layer.fused();
    assert_eq!(operators, [Operator::SELECT_COPY_INT, Operator::VIEW_COPY, Operator::RECURRENT]);
    assert_eq!(graph.nodes[0].args.last(), graph.nodes[1].args.first());
    let mut layer = Layer::new();
    layer.graph.outputs.push(layer.slices[1]);
    assert_eq!(layer.fused().0, [Operator::SELECT_COPY_INT, Operator::RECURRENT]);
}

#[test]
fn shared_intermediate_states_prevent_fusion() {
    let mut layer = Layer::new();
    layer.graph.outputs.push(layer.states[1]);
    layer.stays();
    // The last state may have any readers.
    let mut layer = Layer::new();
    layer.graph.outputs.push(layer.states[2]);
    assert_eq!(layer.fused().0, [Operator::RECURRENT, Operator::SLICE_COPY_TENSOR]);
}

#[test]
fn converted_inputs_prevent_fusion() {
    let mut layer = Layer::new();
    let (id, whole) = (layer.slices[0], layer.whole);
    layer.change(id, |slice| slice.scalar_type = ScalarType::Int);
    layer.stays();
    let mut layer = Layer::new();
    layer.change(whole, |whole| whole.scalar_type = ScalarType::Int);
    layer.stays();
}

#[test]
fn indices_must_be_valid_for_every_shape() {
    // Indices that count from the end of a dynamic dim.
    let mut layer = Layer::new();
    (0..3).for_each(|step| layer.set_int(Operator::SELECT_COPY_INT, step, 2, step as i64 - 3));
    let whole = layer.whole;
    layer.change(whole, |whole| whole.dynamic = true);
    layer.stays();
    let mut layer = Layer::new();
    (0..3).for_each(|step| layer.set_int(Operator::SELECT_COPY_INT, step, 2, step as i64 - 3));
    assert_eq!(layer.fused().0, [Operator::RECURRENT]);
    // Indices that are out of range, and indices that overflow.
    for index in [3, i64::MAX, i64::MIN] {
        let mut layer = Layer::new();
        layer.set_int(Operator::SELECT_COPY_INT, 2, 2, index);
        layer.stays();
    }
    let mut layer = Layer::new();
    layer.set_int(Operator::SELECT_COPY_INT, 1, 2, 2);
    layer.stays();
}

#[test]
fn writes_between_steps_prevent_fusion() {
    let mut layer = Layer::new();
    let zero = layer.value(Value::Int(0));
    let args = vec![layer.whole, layer.graph.inputs[1], zero, layer.whole];
    // A write in place between the first selection and the first GEMM.
    layer.graph.nodes.insert(1, Node::new(Operator::UPDATE_CACHE, args));
    layer.stays();
}
