//! Recording of calls: names, arguments by schema, inferred shapes.

use super::node::{Cell, Given, Recorded, Value};
use super::{Arg, Device, Tensor};
use crate::error::Error;
use std::borrow::Cow;
use torchlet_core::rules::{Operand, result_type};
use torchlet_core::{Scalar, ScalarType, TensorInfo};
use torchlet_graph::graph::{Graph, Tensor as GraphTensor, Value as GraphValue, ValueId};
use torchlet_graph::infer::{TensorType, infer, is_inferred};
use torchlet_graph::operators::aten::{self, Memory};
use torchlet_graph::operators::{Kind, Operator, Parameter};

/// Returns the error of a call.
pub(super) fn fail(operator: &str, reason: impl Into<String>) -> Error {
    Error::Call { operator: operator.into(), reason: reason.into() }
}

/// Overloads that a name without one means first, in this order.
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

/// Operators that a name may mean.
pub(super) struct Named<'a> {
    name: &'a str,
    /// Overloads, in the order in which they are tried.
    operators: Vec<Operator>,
    /// Whether the result of a view is a copy, as of `view_copy`.
    pub(super) copies: bool,
}

/// Returns the operators of a name such as `relu`, `aten::add.Tensor` or `aten.softmax.int`.
///
/// # Errors
/// No operator has the name, or its shapes are not inferred.
pub(super) fn resolve(name: &str) -> Result<Named<'_>, Error> {
    let plain = name.strip_prefix("aten::").or_else(|| name.strip_prefix("aten."));
    let plain = plain.unwrap_or(name);
    let (base, overload) = match plain.split_once('.') {
        Some((base, overload)) => (base, Some(overload)),
        None => (plain, None),
    };
    let mut operators: Vec<Operator> = match overload {
        Some(_) => {
            let own = aten::named(&format!("aten.{plain}")).or_else(|| aten::named(name));
            let in_place = [Memory::Overwritten, Memory::Reshaped];
            let own = own.filter(|own| !in_place.contains(&own.memory));
            own.map(|own| own.operator).into_iter().collect()
        }
        None => overloads(&format!("aten.{base}")),
    };
    if operators.is_empty() {
        return Err(fail(name, "no such operator"));
    }
    operators.retain(|operator| {
        let traits = operator.traits();
        !traits.writes_arguments() && !traits.is_random && is_inferred(*operator)
    });
    if operators.is_empty() {
        let reason = "lazy tensors do not support the operator: it is random, or the shapes of its \
                      results are not inferred";
        return Err(fail(name, reason));
    }
    Ok(Named { name, operators, copies: base.ends_with("_copy") })
}

impl Named<'_> {
    /// The first overload that accepts the arguments.
    ///
    /// # Errors
    /// None does.
    pub(super) fn choose(&self, args: &[Arg]) -> Result<Operator, Error> {
        if let [one] = self.operators[..] {
            // Its own error says more.
            return Ok(one);
        }
        let found = self.operators.iter().find(|operator| fits(**operator, args));
        let found = found.or_else(|| {
            self.operators.iter().find(|operator| {
                with_tensors(**operator, args.to_vec()).is_ok_and(|args| fits(**operator, &args))
            })
        });
        found.copied().ok_or_else(|| {
            let kinds: Vec<&str> = args.iter().map(described).collect();
            let names: Vec<&str> = self.operators.iter().map(|it| it.name()).collect();
            let (kinds, names) = (kinds.join(", "), names.join(", "));
            fail(self.name, format!("no overload accepts ({kinds}); overloads: {names}"))
        })
    }
}

/// The name of an operator without its overload.
fn family(operator: Operator) -> &'static str {
    operator.name().rsplit_once('.').map_or(operator.name(), |(base, _)| base)
}

/// The operators of a name without an overload, the most usual overloads first.
fn overloads(base: &str) -> Vec<Operator> {
    let mut found = aten::overloads(base);
    let rank = |(own, _): &(&str, Operator)| {
        OVERLOADS.iter().position(|overload| overload == own).unwrap_or(OVERLOADS.len())
    };
    found.sort_by_key(rank);
    // Several overloads may mean one operator.
    let mut operators: Vec<Operator> = Vec::with_capacity(found.len());
    for (_, operator) in found {
        if !operators.contains(&operator) {
            operators.push(operator);
        }
    }
    operators
}

/// Whether the kinds of arguments are those of an operator's parameters.
fn fits(operator: Operator, args: &[Arg]) -> bool {
    let parameters = operator.parameters();
    args.len() <= parameters.len()
        && parameters.iter().enumerate().all(|(at, parameter)| match args.get(at) {
            Some(arg) => convert(arg.clone(), parameter).is_ok(),
            None => parameter.default.is_some(),
        })
}

fn is_number(arg: &Arg) -> bool {
    matches!(arg, Arg::Int(_) | Arg::Float(_) | Arg::Bool(_))
}

/// Overloads that differ in which operands are numbers.
const BY_KINDS: [&str; 10] = [
    "default",
    "Scalar",
    "Tensor",
    "Tensor_Scalar",
    "Scalar_Tensor",
    "Tensor_Tensor",
    "Scalar_mode",
    "Tensor_mode",
    "value",
    "src",
];

/// The overload for a number where an operator expects a tensor, or the reverse: `add.Scalar` for
/// `add.Tensor`.
fn by_kinds(operator: Operator, args: &[Arg]) -> Operator {
    let differs = |(arg, parameter): (&Arg, &Parameter)| match parameter.kind {
        Kind::Tensor | Kind::OptionalTensor => is_number(arg),
        Kind::Scalar | Kind::OptionalScalar => matches!(arg, Arg::Tensor(_)),
        _ => false,
    };
    if !args.iter().zip(operator.parameters()).any(differs) {
        return operator;
    }
    let other = |overload: &str| Operator::named(&format!("{}.{overload}", family(operator)));
    let mut others = BY_KINDS.iter().filter_map(|overload| other(overload));
    others.find(|other| is_inferred(*other) && fits(*other, args)).unwrap_or(operator)
}

/// Replaces numbers by tensors without dims where PyTorch accepts them and no overload exists. They
/// have the dtype that the call promotes its operands to: PyTorch's "wrapped numbers".
fn with_tensors(operator: Operator, mut args: Vec<Arg>) -> Result<Vec<Arg>, Error> {
    let positions = match operator {
        Operator::WHERE_SELF => 1..3,
        Operator::FLOOR_DIVIDE => 1..2,
        _ => return Ok(args),
    };
    if !args.get(positions.clone()).is_some_and(|args| args.iter().any(is_number)) {
        return Ok(args);
    }
    let operands = match operator {
        Operator::WHERE_SELF => 1..3,
        _ => 0..2,
    };
    let operand = |arg: &Arg| match arg {
        Arg::Tensor(tensor) => {
            let own = tensor.value();
            let own = own.tensor_type();
            Some(Operand::from(&TensorInfo::contiguous(own.scalar_type, &own.sizes)?))
        }
        Arg::Int(number) => Some(Operand::from(Scalar::Int(*number))),
        Arg::Float(number) => Some(Operand::from(Scalar::Double(*number))),
        Arg::Bool(truth) => Some(Operand::from(Scalar::Bool(*truth))),
        _ => None,
    };
    let promoted = result_type(args.get(operands).unwrap_or_default().iter().filter_map(operand));
    let promoted =
        promoted.ok_or_else(|| fail(operator.name(), "PyTorch does not promote these dtypes"))?;
    if operator == Operator::FLOOR_DIVIDE
        && matches!(promoted, ScalarType::Half | ScalarType::BFloat16)
    {
        // PyTorch does not round the number to the dtype of the tensor.
        let reason = "floor division of half precision by a number; pass a tensor";
        return Err(fail(operator.name(), reason));
    }
    for arg in args.get_mut(positions).unwrap_or_default() {
        if is_number(arg) {
            let full = vec![Arg::Ints(Vec::new()), arg.clone(), Arg::Dtype(promoted)];
            let made = record(Some(&Device::cpu()), Operator::FULL, full)?.into_iter().next();
            let made = made.ok_or_else(|| fail(operator.name(), "expected a result"))?;
            *arg = Arg::Tensor(Tensor::of_value(made));
        }
    }
    Ok(args)
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
    let operator = by_kinds(operator, &args);
    let args = with_tensors(operator, args)?;
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
    let with_dims = || args.iter().flat_map(Given::values).filter(has_dims);
    let first = with_dims().next().or_else(|| args.iter().flat_map(Given::values).next());
    let device = device.or(first.map(|value| &value.cell.device)).cloned();
    let device = device.unwrap_or_else(Device::cpu);
    let other = with_dims().find(|value| value.cell.device != device);
    if let Some(other) = other.map(|value| value.cell.device.clone()) {
        let reason = format!("tensors on different devices, {device} and {other}; use `to`");
        return Err(fail(name, reason));
    }
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
    Some(match parameter.default_value()? {
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
        (K::Int | K::OptionalInt, Arg::Int(number)) => Given::Int(number),
        (K::Dtype | K::OptionalDtype, Arg::Dtype(dtype)) => Given::Int(dtype as i64),
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
        Arg::Dtype(_) => "a dtype",
        Arg::Ints(_) => "a list of integers",
        Arg::Floats(_) => "a list of floats",
        Arg::Bools(_) => "a list of booleans",
    }
}
