use super::*;
use crate::operators::Operator;
use crate::testing::{constant, outputs, tensor};
use alloc::string::ToString;
use alloc::vec;
use torchlet_core::TensorRef;

fn node(operator: Operator, args: &[ValueId]) -> Node {
    Node::new(operator, args.to_vec())
}

#[test]
fn a_graph_runs_as_a_method() {
    let graph = Graph {
        values: vec![
            tensor(&[2, 2]),
            constant(&[2, 2], &[1.0, 2.0, 3.0, 4.0]),
            Value::Int(1),
            tensor(&[2, 2]),
            Value::List(vec![0, 3]),
            tensor(&[4, 2]),
            Value::Int(0),
            Value::IntList(vec![1, 3]),
            tensor(&[1, 2]),
            tensor(&[3, 2]),
            Value::List(vec![8, 9]),
            Value::None,
            tensor(&[1, 2]),
        ],
        nodes: vec![
            node(Operator::ADD_TENSOR, &[0, 1, 2, 3]),
            node(Operator::CAT, &[4, 6, 5]),
            node(Operator::SPLIT_WITH_SIZES_COPY, &[5, 7, 6, 10]),
            node(Operator::DIM_ORDER_OPS_TO_DIM_ORDER_COPY, &[8, 11, 11, 11, 11, 13, 11, 12]),
        ],
        inputs: vec![0],
        outputs: vec![12],
        ..Graph::default()
    };
    let mut graph = graph;
    graph.values.push(Value::Bool(false));
    let input = TensorRef::from_slice(&[2, 2], &[10f32, 20.0, 30.0, 40.0]).unwrap();
    assert_eq!(outputs(&graph, &[input]), [[10.0, 20.0]]);
    graph.outputs = vec![9];
    let input = TensorRef::from_slice(&[2, 2], &[10f32, 20.0, 30.0, 40.0]).unwrap();
    assert_eq!(outputs(&graph, &[input]), [[30.0, 40.0, 11.0, 22.0, 33.0, 44.0]]);
}

#[test]
fn shapes_that_vary_make_others_vary() {
    let graph = Graph {
        values: vec![
            tensor(&[3, 2]),
            Value::Int(0),
            Value::SymInt(0),
            Value::Int(2),
            Value::SymInt(0),
            Value::List(vec![4]),
            tensor(&[6]),
        ],
        nodes: vec![
            node(Operator::SYM_SIZE_INT, &[0, 1, 2]),
            node(Operator::SYM_MUL, &[2, 3, 4]),
            node(Operator::VIEW_COPY, &[0, 5, 6]),
        ],
        inputs: vec![0],
        outputs: vec![6],
        ..Graph::default()
    };
    let input = TensorRef::from_slice(&[2, 2], &[1f32, 2.0, 3.0, 4.0]).unwrap();
    assert_eq!(outputs(&graph, &[input]), [[1.0, 2.0, 3.0, 4.0]]);
}

#[test]
fn what_cannot_be_called_is_refused() {
    let mut method = Method::default();
    let mut emitter = Emitter::new(&mut method);
    let mut graph = Graph { values: vec![constant(&[4], &[0.0]), Value::None], ..Graph::default() };
    let error = emitter.emit(&graph, &node(Operator::RELU6, &[0, 1])).unwrap_err();
    assert!(
        error.to_string().contains("aten.relu6.default: an operator without a kernel"),
        "{error}"
    );
    let error = emitter.emit(&graph, &node(Operator::RELU, &[0, 1])).unwrap_err();
    assert!(error.to_string().contains("expected 16 bytes, found 4"), "{error}");
    assert!(emitter.emit(&graph, &node(Operator::RELU, &[7, 1])).is_err());
    assert!(emitter.emit(&graph, &node(Operator::RELU, &[])).is_err());
    graph.values.push(Value::List(vec![0, 1, 3]));
    graph.values.push(Value::Int(3));
    assert!(emitter.value(&graph, 2).is_err());
}
