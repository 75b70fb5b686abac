//! Programs with a single call.

use self::Arg::{Bool, Indices, Input, Int, Ints, Null, Out, Same, State};
use torchlet::core::{Scalar, ScalarType, ShapeDynamism, TensorInfo};
use torchlet::{Tensor, Value};
use torchlet_graph::method::{Instruction, Method, MethodTensor, MethodValue, Program, TensorData};

/// An argument of the call.
#[derive(Clone)]
// Each test target uses only a part.
#[allow(dead_code)]
pub(crate) enum Arg {
    Input(Vec<i32>),
    Out(Vec<i32>),
    Indices(Vec<i32>),
    Int(i64),
    Ints(Vec<i64>),
    Bool(bool),
    Null,
    /// Mutable state whose initial value is in the program: zeros.
    State(Vec<i32>),
    /// The value of an earlier argument.
    Same(usize),
}
/// Creates an exported program with a single call.
pub(crate) fn program(name: &str, args: &[Arg]) -> Vec<u8> {
    let mut method = Method { name: "forward".into(), planned: vec![0], ..Method::default() };
    let mut indices = Vec::new();
    for arg in args {
        let tensor = |sizes: &[i32], scalar_type, method: &mut Method<'static>| {
            let info = TensorInfo::contiguous(scalar_type, sizes).unwrap();
            method.planned.push(info.nbytes().max(1));
            let (location, data) = (Some((method.planned.len() - 1, 0)), TensorData::None);
            let dynamism = ShapeDynamism::Static;
            let value = MethodTensor { info, dynamism, location, data, name: None };
            method.add(MethodValue::Tensor(value))
        };
        let index = match arg {
            Input(sizes) => tensor(sizes, ScalarType::Float, &mut method),
            Out(sizes) => tensor(sizes, ScalarType::Float, &mut method),
            Indices(sizes) => tensor(sizes, ScalarType::Long, &mut method),
            Int(value) => method.add(MethodValue::Scalar(Scalar::Int(*value))),
            Bool(value) => method.add(MethodValue::Scalar(Scalar::Bool(*value))),
            Null => method.add(MethodValue::None),
            State(sizes) => {
                let info = TensorInfo::contiguous(ScalarType::Float, sizes).unwrap();
                let data = TensorData::Inside(vec![0; info.nbytes()].into());
                let (location, dynamism) = (None, ShapeDynamism::Static);
                let value = MethodTensor { info, dynamism, location, data, name: None };
                method.add(MethodValue::Tensor(value))
            }
            Same(earlier) => indices[*earlier],
            Ints(values) => {
                let values =
                    values.iter().map(|value| method.add(MethodValue::Scalar(Scalar::Int(*value))));
                let values = values.collect();
                method.add(MethodValue::Ints(values))
            }
        };
        match arg {
            Input(_) => method.inputs.push(index),
            Out(_) | Indices(_) => method.outputs.push(index),
            _ => {}
        }
        indices.push(index);
    }
    let (name, overload) = name.split_once('.').unwrap_or((name, ""));
    // Exported kernel calls repeat their last output as the return value.
    indices.push(*indices.last().unwrap());
    let (name, overload) = (name.to_owned(), overload.to_owned());
    method.instructions = vec![Instruction::Kernel { name, overload, args: indices }];
    let program = Program { methods: vec![method], named: Vec::new() };
    program.write().unwrap().to_bytes()
}

pub(crate) fn inputs(args: &[Arg]) -> Vec<Value> {
    let sizes = args.iter().filter_map(|arg| match arg {
        Input(sizes) => Some(sizes.iter().map(|size| *size as usize).collect::<Vec<_>>()),
        _ => None,
    });
    let made = sizes
        .zip(3..)
        .map(|(sizes, seed)| Value::from(Tensor::rand(ScalarType::Float, &sizes, seed).unwrap()));
    made.collect()
}
