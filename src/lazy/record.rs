//! Recording of calls: names, arguments by schema, inferred shapes.

use super::node::{Cell, Given, Recorded, Value};
use super::{Arg, Device, Tensor};
use crate::error::Error;
use std::borrow::Cow;
use torchlet_graph::graph::{Graph, Tensor as GraphTensor, Value as GraphValue, ValueId};
use torchlet_graph::infer::{TensorType, default_value, infer, is_inferred};
use torchlet_graph::operators::{Kind, Operator, Parameter};

/// Returns the error of a call.
pub(super) fn fail(operator: &str, reason: impl Into<String>) -> Error {
    Error::Call { operator: operator.into(), reason: reason.into() }
}

/// Namespaces and overloads that a name may omit.
const OVERLOADS: [&str; 13] = [
    "default",
    "Tensor",
    "Scalar",
    "int",
    "dim",
    "self",
    "dim_IntList",
    "Tensor_Scalar",
    "using_ints",
    "vec",
    "indexing",
    "intlist",
    "input",
];

/// Operators whose names in PyTorch differ from those of the descriptions.
const RENAMED: &[(&str, Operator)] = &[
    ("absolute", Operator::ABS),
    ("adaptive_avg_pool2d", Operator::ADAPTIVE_AVG_POOL2D),
    ("adaptive_avg_pool3d", Operator::ADAPTIVE_AVG_POOL3D),
    ("broadcast_to", Operator::EXPAND_COPY),
    ("clip", Operator::CLAMP),
    ("concat", Operator::CAT),
    ("detach", Operator::DETACH_COPY),
    ("diagonal", Operator::DIAGONAL_COPY),
    ("divide", Operator::DIV_TENSOR),
    ("expand", Operator::EXPAND_COPY),
    ("ger", Operator::OUTER),
    ("greater", Operator::GT_TENSOR),
    ("greater_equal", Operator::GE_TENSOR),
    ("less", Operator::LT_TENSOR),
    ("less_equal", Operator::LE_TENSOR),
    ("moveaxis", Operator::MOVEDIM),
    ("multiply", Operator::MUL_TENSOR),
    ("mv", Operator::MATMUL),
    ("negative", Operator::NEG),
    ("not_equal", Operator::NE_TENSOR),
    ("permute", Operator::PERMUTE_COPY),
    ("select", Operator::SELECT_COPY_INT),
    ("slice", Operator::SLICE_COPY_TENSOR),
    ("split", Operator::SPLIT_COPY_TENSOR),
    ("split_with_sizes", Operator::SPLIT_WITH_SIZES_COPY),
    ("squeeze", Operator::SQUEEZE_COPY),
    ("squeeze.dim", Operator::SQUEEZE_COPY_DIM),
    ("squeeze.dims", Operator::SQUEEZE_COPY_DIMS),
    ("sub", Operator::SUB_TENSOR),
    ("subtract", Operator::SUB_TENSOR),
    ("swapaxes", Operator::TRANSPOSE_COPY_INT),
    ("swapdims", Operator::TRANSPOSE_COPY_INT),
    ("t", Operator::T_COPY),
    ("transpose", Operator::TRANSPOSE_COPY_INT),
    ("true_divide", Operator::DIV_TENSOR),
    ("unbind", Operator::UNBIND_COPY_INT),
    ("unfold", Operator::UNFOLD_COPY),
    ("unsqueeze", Operator::UNSQUEEZE_COPY),
    ("view", Operator::VIEW_COPY),
];

/// Returns the operator of a name such as `relu`, `aten::add.Tensor` or `aten.softmax.int`.
///
/// # Errors
/// No operator has the name, or its shapes are not inferred.
pub(super) fn resolve(name: &str) -> Result<Operator, Error> {
    let plain = name.strip_prefix("aten::").or_else(|| name.strip_prefix("aten."));
    let plain = plain.unwrap_or(name);
    let base = plain.strip_suffix(".default").unwrap_or(plain);
    let strict = base.strip_suffix(".Tensor").or_else(|| base.strip_suffix(".int"));
    let renamed = |name: &str| RENAMED.iter().find(|(own, _)| *own == name).map(|it| it.1);
    let with = |overload: &str| Operator::named(&format!("aten.{base}.{overload}"));
    let found = renamed(base)
        .or_else(|| strict.and_then(renamed))
        .or_else(|| Operator::named(&format!("aten.{plain}")))
        .or_else(|| OVERLOADS.iter().find_map(|overload| with(overload)))
        .or_else(|| Operator::named(name));
    let operator = found.ok_or_else(|| fail(name, "no such operator"))?;
    let traits = operator.traits();
    if traits.writes_arguments() || traits.is_random || !is_inferred(operator) {
        let reason = "lazy tensors do not support the operator: it is random, or the shapes of its \
                      results are not inferred";
        return Err(fail(name, reason));
    }
    Ok(operator)
}

/// The form of an operator whose operand `second` is a number.
fn with_number(operator: Operator, args: &[Arg]) -> Operator {
    let is_number =
        |arg: Option<&Arg>| matches!(arg, Some(Arg::Int(_) | Arg::Float(_) | Arg::Bool(_)));
    let name = operator.name();
    let other = match name.rsplit_once('.') {
        Some(("aten.pow", "Tensor_Tensor" | "Tensor_Scalar" | "Scalar")) => {
            let overload = match (is_number(args.first()), is_number(args.get(1))) {
                (true, _) => "Scalar",
                (_, true) => "Tensor_Scalar",
                _ => "Tensor_Tensor",
            };
            format!("aten.pow.{overload}")
        }
        Some((base, "Tensor")) if is_number(args.get(1)) => match base {
            "aten.bitwise_left_shift" | "aten.bitwise_right_shift" => {
                format!("{base}.Tensor_Scalar")
            }
            _ => format!("{base}.Scalar"),
        },
        Some((base, "Tensor_mode")) if is_number(args.get(1)) => format!("{base}.Scalar_mode"),
        Some((base, "Scalar")) if matches!(args.get(1), Some(Arg::Tensor(_))) => {
            format!("{base}.Tensor")
        }
        _ => return operator,
    };
    Operator::named(&other).filter(|other| is_inferred(*other)).unwrap_or(operator)
}

/// Records a call, and returns its results.
///
/// # Errors
/// PyTorch rejects the arguments, or tensors are on different devices.
pub(super) fn record(
    device: Option<&Device>,
    operator: Operator,
    args: Vec<Arg>,
) -> Result<Vec<Value>, Error> {
    let operator = with_number(operator, &args);
    let parameters = operator.parameters();
    if args.len() > parameters.len() {
        let (expected, found) = (parameters.len(), args.len());
        let reason = format!("expected at most {expected} arguments, found {found}");
        return Err(fail(operator.name(), reason));
    }
    let mut given = Vec::with_capacity(parameters.len());
    let mut args = args.into_iter();
    for (at, parameter) in parameters.iter().enumerate() {
        let wrong = |reason: String| fail(operator.name(), reason);
        given.push(match args.next() {
            Some(arg) => convert(arg, parameter).map_err(|reason| {
                wrong(format!("argument {at} (`{}`): {reason}", parameter.name))
            })?,
            None => default(parameter)
                .ok_or_else(|| wrong(format!("argument {at} (`{}`) is missing", parameter.name)))?,
        });
    }
    call(device, operator, given)
}

/// Records a call of values.
pub(super) fn call(
    device: Option<&Device>,
    operator: Operator,
    args: Vec<Given>,
) -> Result<Vec<Value>, Error> {
    let name = operator.name();
    for value in args.iter().flat_map(Given::values) {
        if let Some((operator, reason)) = value.cell.failure() {
            return Err(Error::Call { operator, reason });
        }
    }
    // As in PyTorch, tensors without dims may be on any device.
    let has_dims = |value: &&Value| !value.tensor_type().sizes.is_empty();
    let mut with_dims = args.iter().flat_map(Given::values).filter(has_dims);
    let first = with_dims.next().or_else(|| args.iter().flat_map(Given::values).next());
    let device = device.or(first.map(|value| &value.cell.device)).cloned();
    let device = device.unwrap_or_else(Device::cpu);
    let other = with_dims.find(|value| value.cell.device != device);
    if let Some(other) = other.map(|value| value.cell.device.clone()) {
        let reason = format!("tensors on different devices, {device} and {other}; use `to`");
        return Err(fail(name, reason));
    }
    drop(with_dims);
    let types = types(operator, &args).map_err(|reason| fail(name, reason))?;
    let cell = Cell::call(device, types, Recorded { operator, args });
    Ok((0..cell.types.len()).map(|index| Value { cell: cell.clone(), index }).collect())
}

/// Infers the results of a call, from a graph that has its arguments only.
fn types(operator: Operator, args: &[Given]) -> Result<Vec<TensorType>, String> {
    let mut graph = Graph::default();
    let mut inputs: Vec<ValueId> = Vec::with_capacity(args.len());
    for arg in args {
        let input = add(&mut graph, arg, &mut |graph, value| {
            push(graph, tensor(value.tensor_type(), None))
        });
        inputs.push(input);
    }
    infer(&graph, operator, &inputs)
}

pub(super) fn push<'p>(graph: &mut Graph<'p>, value: GraphValue<'p>) -> ValueId {
    graph.values.push(value);
    graph.values.len() - 1
}

/// A tensor of a graph; a constant if it has data.
pub(super) fn tensor<'p>(of: &TensorType, data: Option<&'p [u8]>) -> GraphValue<'p> {
    GraphValue::Tensor(GraphTensor {
        scalar_type: of.scalar_type,
        host_type: of.scalar_type,
        sizes: of.shape(),
        dynamic: false,
        data: data.map(Cow::Borrowed),
        changes: data.map(|_| false),
    })
}

/// Adds an argument to a graph. `value` adds a tensor, or finds it.
pub(super) fn add<'p>(
    graph: &mut Graph<'p>,
    arg: &Given,
    value: &mut dyn FnMut(&mut Graph<'p>, &Value) -> ValueId,
) -> ValueId {
    let made = match arg {
        Given::Value(own) => return value(graph, own),
        Given::Values(items) => {
            let mut list = Vec::with_capacity(items.len());
            for item in items {
                list.push(match item {
                    Some(own) => value(graph, own),
                    None => push(graph, GraphValue::None),
                });
            }
            GraphValue::List(list)
        }
        Given::None => GraphValue::None,
        Given::Int(number) => GraphValue::Int(*number),
        Given::Float(number) => GraphValue::Double(*number),
        Given::Bool(truth) => GraphValue::Bool(*truth),
        Given::Text(text) => GraphValue::String(text.clone()),
        Given::Ints(items) => GraphValue::IntList(items.clone()),
        Given::Floats(items) => GraphValue::DoubleList(items.clone()),
        Given::Bools(items) => GraphValue::BoolList(items.clone()),
    };
    push(graph, made)
}

fn default(parameter: &Parameter) -> Option<Given> {
    Some(match default_value(parameter)? {
        GraphValue::Int(number) => Given::Int(number),
        GraphValue::Double(number) => Given::Float(number),
        GraphValue::Bool(truth) => Given::Bool(truth),
        GraphValue::String(text) => Given::Text(text),
        GraphValue::IntList(items) => Given::Ints(items),
        _ => Given::None,
    })
}

/// Converts an argument to the kind of its parameter.
fn convert(arg: Arg, parameter: &Parameter) -> Result<Given, String> {
    use Kind as K;
    let optional = parameter.default == Some("None");
    Ok(match (parameter.kind, arg) {
        (
            K::OptionalTensor
            | K::OptionalInt
            | K::OptionalInts
            | K::OptionalFloat
            | K::OptionalFloats
            | K::OptionalScalar
            | K::OptionalBool
            | K::OptionalStr
            | K::OptionalDtype
            | K::OptionalLayout
            | K::OptionalDevice
            | K::OptionalMemoryFormat
            | K::OptionalGenerator,
            Arg::None,
        ) => Given::None,
        (_, Arg::None) if optional => Given::None,
        (K::Tensor | K::OptionalTensor, Arg::Tensor(tensor)) => Given::Value(tensor.value()),
        (K::Tensor | K::OptionalTensor, number @ (Arg::Int(_) | Arg::Float(_) | Arg::Bool(_))) => {
            // A number that is passed for a tensor is a tensor without dims.
            let args = vec![Arg::Ints(Vec::new()), number];
            let made = record(Some(&Device::cpu()), Operator::FULL, args);
            let made = made.ok().and_then(|made| made.into_iter().next());
            Given::Value(made.ok_or("expected a tensor, found a number")?)
        }
        (K::Tensors | K::OptionalTensors, Arg::Tensors(items)) => {
            if parameter.kind == K::Tensors && items.iter().any(Option::is_none) {
                return Err("expected tensors, found an absent one".into());
            }
            let value = |item: Option<Tensor>| item.map(|tensor| tensor.value());
            Given::Values(items.into_iter().map(value).collect())
        }
        (K::Tensors | K::OptionalTensors, Arg::Tensor(tensor)) => {
            Given::Values(vec![Some(tensor.value())])
        }
        (K::Int | K::OptionalInt | K::Dtype | K::OptionalDtype, Arg::Int(number)) => {
            Given::Int(number)
        }
        (K::Ints | K::OptionalInts, Arg::Ints(items)) => Given::Ints(items),
        (K::Ints | K::OptionalInts, Arg::Int(number)) => Given::Ints(vec![number]),
        (K::Float | K::OptionalFloat, Arg::Float(number)) => Given::Float(number),
        (K::Float | K::OptionalFloat, Arg::Int(number)) => Given::Float(number as f64),
        (K::Floats | K::OptionalFloats, Arg::Floats(items)) => Given::Floats(items),
        (K::Floats | K::OptionalFloats, Arg::Float(number)) => Given::Floats(vec![number]),
        (K::Scalar | K::OptionalScalar, Arg::Int(number)) => Given::Int(number),
        (K::Scalar | K::OptionalScalar, Arg::Float(number)) => Given::Float(number),
        (K::Scalar | K::OptionalScalar, Arg::Bool(truth)) => Given::Bool(truth),
        (K::Bool | K::OptionalBool, Arg::Bool(truth)) => Given::Bool(truth),
        (K::Bools, Arg::Bools(items)) => Given::Bools(items),
        (K::Str | K::OptionalStr, Arg::Text(text)) => Given::Text(text),
        (kind, arg) => return Err(format!("expected {kind:?}, found {}", described(&arg))),
    })
}

fn described(arg: &Arg) -> &'static str {
    match arg {
        Arg::None => "nothing",
        Arg::Tensor(_) => "a tensor",
        Arg::Tensors(_) => "a list of tensors",
        Arg::Int(_) => "an integer",
        Arg::Float(_) => "a float",
        Arg::Bool(_) => "a boolean",
        Arg::Text(_) => "a string",
        Arg::Ints(_) => "a list of integers",
        Arg::Floats(_) => "a list of floats",
        Arg::Bools(_) => "a list of booleans",
    }
}
