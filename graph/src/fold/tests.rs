use super::*;
use crate::graph::Node;
use crate::operators::Operator;
use crate::testing::{registry, typed as tensor};
use alloc::vec;
use torchlet_core::ScalarType;

fn data<'g>(graph: &'g Graph<'_>, id: ValueId) -> Option<&'g [u8]> {
    match &graph.values[id] {
        Value::Tensor(tensor) => tensor.data.as_deref(),
        _ => None,
    }
}

/// A `u8` weight is transposed, cast to `made`, and multiplied by an input.
fn weights(rows: usize, made: ScalarType) -> Graph<'static> {
    let bytes: Vec<u8> = (0..rows * 2).map(|number| number as u8).collect();
    let values = vec![
        tensor(&[rows, 2], ScalarType::Byte, Some(bytes)),
        Value::IntList(vec![1, 0]),
        tensor(&[2, rows], ScalarType::Byte, None),
        Value::None,
        Value::Bool(false),
        tensor(&[2, rows], made, None),
        tensor(&[2, 2], made, None),
        tensor(&[2, rows], made, None),
    ];
    let nodes = vec![
        Node::new(Operator::PERMUTE_COPY, vec![0, 1, 2]),
        Node::new(Operator::TO_COPY, vec![2, 3, 3, 3, 3, 4, 3, 5]),
        Node::new(Operator::MM, vec![6, 5, 7]),
    ];
    Graph { values, nodes, inputs: vec![6], outputs: vec![7], ..Graph::default() }
}

#[test]
fn what_depends_on_constants_alone_is_constant() {
    let mut graph = weights(3, ScalarType::Float);
    assert_eq!(run(&mut graph, &registry()), Ok(2));
    let expected: Vec<u8> =
        [0f32, 2.0, 4.0, 1.0, 3.0, 5.0].iter().flat_map(|number| number.to_le_bytes()).collect();
    assert_eq!(data(&graph, 5), Some(&expected[..]));
    // Intermediate values are dropped.
    assert_eq!((data(&graph, 2), graph.nodes.len()), (None, 1));
    assert_eq!(run(&mut graph, &registry()), Ok(0));
}

#[test]
fn what_grows_too_large_is_computed_in_every_run() {
    let mut graph = weights(1 << 20, ScalarType::Double);
    // Values of eight bytes are too large, transposed bytes are not.
    assert_eq!(run(&mut graph, &registry()), Ok(1));
    assert_eq!(graph.nodes[0].operator, Operator::TO_COPY);
    assert_eq!(data(&graph, 2).unwrap().len(), 2 << 20);
    assert_eq!(data(&graph, 5), None);
}

#[test]
fn what_changes_or_is_given_stays() {
    let mut changing = weights(3, ScalarType::Float);
    if let Value::Tensor(tensor) = &mut changing.values[0] {
        tensor.changes = Some(true);
    }
    assert_eq!(run(&mut changing, &registry()), Ok(0));
    let mut given = weights(3, ScalarType::Float);
    given.outputs = vec![5, 7];
    // The result of the second call is a graph output.
    assert_eq!(run(&mut given, &registry()), Ok(1));
    let mut random = Graph {
        values: vec![Value::IntList(vec![4]), Value::None, tensor(&[4], ScalarType::Float, None)],
        nodes: vec![Node::new(Operator::RAND, vec![0, 1, 1, 1, 1, 2])],
        ..Graph::default()
    };
    random.values.push(tensor(&[4], ScalarType::Float, None));
    random.nodes.push(Node::new(Operator::ABS, vec![2, 3]));
    random.outputs = vec![3];
    assert_eq!(run(&mut random, &registry()), Ok(0));
}

#[test]
fn growing_without_end_is_refused() {
    // Each call doubles the size.
    let mut graph = Graph { values: vec![Value::Int(0)], ..Graph::default() };
    graph.values.push(tensor(&[1], ScalarType::Float, Some(vec![0; 4])));
    for step in 0..60 {
        let before = graph.values.len() - 1;
        graph.values.push(Value::List(vec![before, before]));
        graph.values.push(tensor(&[1 << (step + 1)], ScalarType::Float, None));
        let (list, out) = (graph.values.len() - 2, graph.values.len() - 1);
        graph.nodes.push(Node::new(Operator::CAT, vec![list, 0, out]));
    }
    graph.values.push(tensor(&[1], ScalarType::Float, None));
    let out = graph.values.len() - 1;
    graph.nodes.push(Node::new(Operator::ABS, vec![out - 1, out]));
    graph.outputs = vec![out];
    let folded = run(&mut graph, &registry()).unwrap();
    assert!((10..30).contains(&folded), "{folded} calls");
}

#[test]
fn kernels_that_fail_leave_everything() {
    // The shapes do not match.
    let mut graph = weights(3, ScalarType::Float);
    if let Value::Tensor(tensor) = &mut graph.values[2] {
        tensor.sizes = vec![7];
    }
    assert_eq!(run(&mut graph, &registry()), Ok(0));
    assert_eq!(graph.nodes.len(), 3);
}

/// A constant of four values, indexed by a constant of another type.
fn chosen(scalar_type: ScalarType, indices: &[u8], count: usize) -> Graph<'static> {
    let numbers = [1f32, 2.0, 3.0, 4.0].iter().flat_map(|number| number.to_le_bytes()).collect();
    let values = vec![
        tensor(&[4], ScalarType::Float, Some(numbers)),
        tensor(&[indices.len() / scalar_type.size()], scalar_type, Some(indices.to_vec())),
        Value::List(vec![1]),
        tensor(&[count], ScalarType::Float, None),
        tensor(&[count], ScalarType::Float, None),
        tensor(&[count], ScalarType::Float, None),
        Value::Int(1),
    ];
    let nodes = vec![
        Node::new(Operator::INDEX_TENSOR, vec![0, 2, 3]),
        Node::new(Operator::ADD_TENSOR, vec![3, 4, 6, 5]),
    ];
    Graph { values, nodes, inputs: vec![4], outputs: vec![5], ..Graph::default() }
}

#[test]
fn what_places_choose_is_constant_and_what_masks_choose_is_not() {
    let places: Vec<u8> = [3i64, 0].iter().flat_map(|place| place.to_le_bytes()).collect();
    let mut graph = chosen(ScalarType::Long, &places, 2);
    assert_eq!(run(&mut graph, &registry()), Ok(1));
    let expected: Vec<u8> = [4f32, 1.0].iter().flat_map(|number| number.to_le_bytes()).collect();
    assert_eq!(data(&graph, 3), Some(&expected[..]));
    for mask in [ScalarType::Bool, ScalarType::Byte] {
        let mut graph = chosen(mask, &[0, 1, 1, 0], 4);
        assert_eq!(run(&mut graph, &registry()), Ok(0), "{mask:?}");
        assert_eq!(data(&graph, 3), None);
    }
}

/// Packed int4 values are unpacked to two tensors. Only one of them fits the memory limit; the
/// other one is recomputed from the same constant at run time.
#[test]
fn what_is_read_twice_is_computed_twice() {
    let (rows, columns) = (4608, 1024);
    let bytes: Vec<u8> = (0..rows * columns).map(|number| (number % 251) as u8).collect();
    let int = |sizes: &[usize]| tensor(sizes, ScalarType::Int, None);
    let values = vec![
        tensor(&[rows, columns], ScalarType::Byte, Some(bytes.clone())),
        Value::None,
        Value::Bool(false),
        int(&[rows, columns]),
        Value::Int(4),
        int(&[rows, columns]),
        Value::Int(15),
        int(&[rows, columns]),
        int(&[rows, columns]),
        Value::List(vec![7, 8]),
        Value::Int(1),
        int(&[rows, 2 * columns]),
    ];
    let nodes = vec![
        Node::new(Operator::TO_COPY, vec![0, 1, 1, 1, 1, 2, 1, 3]),
        Node::new(Operator::BITWISE_AND_SCALAR, vec![3, 6, 7]),
        Node::new(Operator::BITWISE_RIGHT_SHIFT_TENSOR_SCALAR, vec![3, 4, 5]),
        Node::new(Operator::BITWISE_AND_SCALAR, vec![5, 6, 8]),
        Node::new(Operator::CAT, vec![9, 10, 11]),
    ];
    let mut graph = Graph { values, nodes, outputs: vec![11], ..Graph::default() };
    assert_eq!(run(&mut graph, &registry()), Ok(2));
    let left: Vec<_> = graph.nodes.iter().map(|node| node.operator).collect();
    assert_eq!(left, [Operator::TO_COPY, Operator::BITWISE_AND_SCALAR, Operator::CAT]);
    let halves = bytes.iter().flat_map(|byte| i32::from(byte >> 4).to_le_bytes());
    assert!(data(&graph, 8).unwrap().iter().copied().eq(halves));
}
