use super::*;
use crate::method::Program;
use crate::run::run;
use alloc::string::ToString;
use alloc::vec;
use torchlet_core::{Registry, TensorRef};

fn tensor(sizes: &[usize], data: Option<&[f32]>) -> Value<'static> {
    let bytes = |data: &[f32]| data.iter().flat_map(|number| number.to_le_bytes()).collect();
    Value::Tensor(Tensor {
        scalar_type: ScalarType::Float,
        host_type: ScalarType::Float,
        sizes: sizes.to_vec(),
        dynamic: false,
        data: data.map(|data| Cow::Owned(bytes(data))),
        changes: None,
    })
}

/// The graph as a method of a program, run with these inputs; its outputs.
fn outputs(graph: &Graph<'_>, inputs: &[TensorRef<'_>]) -> Vec<Vec<f32>> {
    let mut method = Method { name: String::from("forward"), ..Method::default() };
    let mut emitter = Emitter::new(&mut method);
    let mut given = Vec::new();
    for (id, input) in graph.inputs.iter().zip(inputs) {
        let value = emitter.value(graph, *id).unwrap();
        if let Some(MethodValue::Tensor(tensor)) = emitter.method().values.get_mut(value) {
            tensor.dynamism = ShapeDynamism::DynamicBound;
            tensor.place = Some((0, 1 << 10));
            assert_eq!(tensor.info.scalar_type, input.scalar_type);
        }
        given.push(value);
    }
    for node in &graph.nodes {
        emitter.emit(graph, node).unwrap();
    }
    let taken = graph.outputs.iter().map(|id| emitter.value(graph, *id).unwrap()).collect();
    let instructions = emitter.finish();
    (method.inputs, method.outputs, method.instructions) = (given, taken, instructions);
    for output in method.outputs.clone() {
        if let Some(MethodValue::Tensor(tensor)) = method.values.get_mut(output) {
            tensor.place = Some((0, 1 << 11));
        }
    }
    method.plan().unwrap();
    let package = Program { methods: vec![method], named: Vec::new() }.write().unwrap();
    let registry = Registry::new().with_kernels(&torchlet_portable::KERNELS).unwrap();
    let mut found = Vec::new();
    run(&package, &registry, inputs, |_, tensor| {
        found.push(tensor.data::<f32>().unwrap().to_vec());
        Ok(())
    })
    .unwrap();
    found
}

fn node(operator: Operator, args: &[ValueId]) -> Node {
    Node::new(operator, args.to_vec())
}

#[test]
fn a_graph_runs_as_a_method() {
    let graph = Graph {
        values: vec![
            tensor(&[2, 2], None),
            tensor(&[2, 2], Some(&[1.0, 2.0, 3.0, 4.0])),
            Value::Int(1),
            tensor(&[2, 2], None),
            Value::List(vec![0, 3]),
            tensor(&[4, 2], None),
            Value::Int(0),
            Value::IntList(vec![1, 3]),
            tensor(&[1, 2], None),
            tensor(&[3, 2], None),
            Value::List(vec![8, 9]),
            Value::None,
            tensor(&[1, 2], None),
        ],
        nodes: vec![
            node(Operator::ADD_TENSOR, &[0, 1, 2, 3]),
            node(Operator::CAT, &[4, 6, 5]),
            node(Operator::SPLIT_WITH_SIZES_COPY, &[5, 7, 6, 10]),
            node(Operator::DIM_ORDER_OPS_TO_DIM_ORDER_COPY, &[8, 11, 11, 11, 11, 13, 11, 12]),
        ],
        inputs: vec![0],
        outputs: vec![12],
        updates: Vec::new(),
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
            tensor(&[3, 2], None),
            Value::Int(0),
            Value::SymInt(0),
            Value::Int(2),
            Value::SymInt(0),
            Value::List(vec![4]),
            tensor(&[6], None),
        ],
        nodes: vec![
            node(Operator::SYM_SIZE_INT, &[0, 1, 2]),
            node(Operator::SYM_MUL, &[2, 3, 4]),
            node(Operator::VIEW_COPY, &[0, 5, 6]),
        ],
        inputs: vec![0],
        outputs: vec![6],
        updates: Vec::new(),
    };
    let input = TensorRef::from_slice(&[2, 2], &[1f32, 2.0, 3.0, 4.0]).unwrap();
    assert_eq!(outputs(&graph, &[input]), [[1.0, 2.0, 3.0, 4.0]]);
}

#[test]
fn what_cannot_be_called_is_refused() {
    let mut method = Method::default();
    let mut emitter = Emitter::new(&mut method);
    let mut graph =
        Graph { values: vec![tensor(&[4], Some(&[0.0])), Value::None], ..Graph::default() };
    let error = emitter.emit(&graph, &node(Operator::RELU6, &[0, 1])).unwrap_err();
    assert!(error.to_string().contains("aten.relu6.default has no kernel"), "{error}");
    let error = emitter.emit(&graph, &node(Operator::RELU, &[0, 1])).unwrap_err();
    assert!(error.to_string().contains("has 4 bytes, not 16"), "{error}");
    assert!(emitter.emit(&graph, &node(Operator::RELU, &[7, 1])).is_err());
    assert!(emitter.emit(&graph, &node(Operator::RELU, &[])).is_err());
    graph.values.push(Value::List(vec![0, 1, 3]));
    graph.values.push(Value::Int(3));
    assert!(emitter.value(&graph, 2).is_err());
}
