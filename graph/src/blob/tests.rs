use super::*;
use crate::graph::{Graph, Node, Tensor, Value};
use crate::named::Constants;
use crate::operators::Operator;
use crate::tables::table;
use crate::{Error, Package, method};
use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use flatbuffers::FlatBufferBuilder;
use torchlet_core::{Program, ScalarType};

fn tensor<'d>(sizes: &[usize], data: Option<Cow<'d, [u8]>>) -> Value<'d> {
    let is_constant = data.is_some();
    Value::Tensor(Tensor {
        scalar_type: ScalarType::Float,
        host_type: ScalarType::Double,
        sizes: sizes.to_vec(),
        dynamic: !is_constant,
        data,
        changes: is_constant.then_some(true),
    })
}

/// Builds a graph with all kinds of values.
fn graph(bytes: &[u8]) -> Graph<'_> {
    let mut chain = Node::new(Operator::CHAIN, vec![0, 11]);
    chain.parts =
        vec![Node::new(Operator::SILU, vec![0, 12]), Node::new(Operator::ABS, vec![12, 11])];
    Graph {
        values: vec![
            tensor(&[2, 3], None),
            Value::None,
            Value::Int(i64::MIN),
            Value::Double(-0.0),
            Value::Bool(true),
            Value::String(String::from("tanh")),
            Value::IntList(vec![1, -1]),
            Value::DoubleList(vec![f64::INFINITY]),
            Value::BoolList(vec![true, false]),
            Value::List(vec![0, 1, 10]),
            Value::SymInt(7),
            tensor(&[2, 3], None),
            tensor(&[1], Some(Cow::Borrowed(&bytes[..4]))),
            tensor(&[1], Some(Cow::Borrowed(&bytes[..4]))),
            tensor(&[2], Some(Cow::Borrowed(bytes))),
            tensor(&[1 << 20], Some(Cow::Owned(Vec::new()))),
        ],
        nodes: vec![chain, Node { id: 9, ..Node::new(Operator::ADD_TENSOR, vec![0, 12, 4, 13]) }],
        inputs: vec![0, 10],
        outputs: vec![11, 11],
        updates: vec![(13, 12), (11, 15)],
        names: [(12, String::from("kept"))].into(),
    }
}

/// Builds a program with only named data.
fn package<'p>(constants: Constants<'p>) -> Package<'p> {
    let named = constants.into_named();
    method::Program { methods: Vec::new(), named }.write().unwrap()
}

#[test]
fn what_is_written_is_read() {
    let data = [1, 2, 3, 4, 5, 6, 7, 8];
    let mut constants = Constants::new("graph.");
    let bytes = write(graph(&data), &mut constants).unwrap();
    // A second graph shares its constants.
    let second = write(graph(&data), &mut constants).unwrap();
    assert_eq!(bytes, second);
    let package = package(constants);
    let program = Program::load(&package).unwrap();
    assert_eq!(program.data_names().unwrap().count(), 2);
    let read = read(&bytes, &|key| program.named_data(key)).unwrap();
    assert_eq!(read, graph(&data));
    let Value::Double(zero) = read.values[3] else { panic!() };
    assert!(zero.is_sign_negative());
    let Value::Tensor(Tensor { data: Some(Cow::Borrowed(_)), .. }) = read.values[14] else {
        panic!()
    };
    let summary = summarize(&bytes).unwrap();
    let names = ["aten.abs.default", "aten.add.Tensor", "aten.silu.default"];
    assert_eq!(summary.calls, names.map(|name| (name.into(), 1)));
    assert_eq!((summary.constants, summary.constant_bytes), (3, 16));
}

#[test]
fn damage_is_an_error_or_another_graph() {
    let data = [0; 8];
    let mut constants = Constants::new("");
    let bytes = write(graph(&data), &mut constants).unwrap();
    let package = package(constants);
    let program = Program::load(&package).unwrap();
    let named = |key: &str| program.named_data(key);
    for end in 0..bytes.len() {
        let _ = read(&bytes[..end], &named);
        let _ = summarize(&bytes[..end]);
    }
    for at in 0..bytes.len() {
        for value in [0, 1, 0x7f, 0x80, 0xff, bytes[at] ^ 4, bytes[at].wrapping_sub(4)] {
            let mut damaged = bytes.clone();
            damaged[at] = value;
            let _ = read(&damaged, &named);
            let _ = summarize(&damaged);
        }
    }
}

#[test]
fn all_operators_that_there_are_none_of_are_named() {
    let bytes = write(graph(&[0; 8]), &mut Constants::new("")).unwrap();
    let mut foreign = bytes.clone();
    for name in ["aten.silu", "aten.abs"] {
        let at = foreign.windows(name.len()).position(|part| part == name.as_bytes()).unwrap();
        foreign[at..at + 4].copy_from_slice(b"some");
    }
    let error = read(&foreign, &|_| Ok(None)).unwrap_err();
    assert_eq!(
        error,
        Error::Unsupported(String::from("unknown operators: some.silu.default, some.abs.default"))
    );
    // A missing constant is named in the error.
    let error = read(&bytes, &|_| Ok(None)).unwrap_err();
    assert!(matches!(&error, Error::Invalid(what) if what.contains("'0'")), "{error}");
}

#[test]
fn what_is_shared_is_refused() {
    // Calls that share their arguments would need far more memory than the blob has bytes.
    let blob = |calls: usize| {
        let mut b = FlatBufferBuilder::new();
        let name = b.create_string("aten.abs.default");
        let operator = table(&mut b, |t| t.offset(0, name));
        let operators = b.create_vector(&[operator]);
        let value = table(&mut b, |t| t.scalar(0, NONE));
        let values = b.create_vector(&[value]);
        let args = b.create_vector(&[0u32; 1000]);
        let node = table(&mut b, |t| t.offset(1, args));
        let nodes = b.create_vector(&vec![node; calls]);
        let root = table(&mut b, |t| {
            t.offset(0, operators);
            t.offset(1, nodes);
            t.offset(2, values);
        });
        b.finish(root, Some(IDENTIFIER));
        b.finished_data().to_vec()
    };
    assert!(read(&blob(1), &|_| Ok(None)).is_ok());
    let error = read(&blob(1000), &|_| Ok(None)).unwrap_err();
    assert_eq!(
        error,
        Error::invalid("the vectors and strings of a graph overlap: together they exceed its size")
    );
}
