//! Shapes and dtypes of results, inferred from the arguments of a call.
//!
//! Front ends that read files find the shapes there. A program that is recorded call by call, as
//! lazy tensors are, infers them. Each family of operators has a file of rules, which follow
//! PyTorch's meta kernels; `graph/tests/infer.rs` compares them with every exported test case.
//!
//! Operators whose result shapes depend on elements have no rule.

mod creation;
mod elementwise;
mod indexing;
mod linear;
mod normalization;
mod reduction;
mod shape;
mod spatial;

use crate::graph::{Graph, Value, ValueId};
use crate::operators::{Operator, Parameter};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::layout::{MAX_RANK, Sizes, checked_numel};
use torchlet_core::rules::{Operand, broadcast_all, normalize_dim, result_type, slice_range};
use torchlet_core::{Scalar, ScalarType, TensorInfo};

/// Dtype and shape of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorType {
    /// Dtype.
    pub scalar_type: ScalarType,
    /// Shape.
    pub sizes: Sizes,
}

impl TensorType {
    /// Returns the shape.
    pub fn shape(&self) -> Vec<usize> {
        self.sizes.iter().map(|size| usize::try_from(*size).unwrap_or(0)).collect()
    }

    fn new(scalar_type: ScalarType, sizes: Sizes) -> Self {
        TensorType { scalar_type, sizes }
    }

    fn rank(&self) -> usize {
        self.sizes.len()
    }

    fn operand(&self) -> Option<Operand> {
        Some(Operand::from(&TensorInfo::contiguous(self.scalar_type, &self.sizes)?))
    }
}

/// Results of a call, or why the arguments do not fit.
type Results = Result<Vec<TensorType>, String>;
/// Infers the results of a call.
type Rule = fn(&Call<'_>) -> Results;

/// Infers dtype and shape of each result of a call. `inputs` are the arguments in the order of the
/// schema, without the output. Tensors must have static shapes.
///
/// # Errors
/// PyTorch rejects the arguments, or the operator has no rule; with the reason.
pub fn infer(
    graph: &Graph<'_>,
    operator: Operator,
    inputs: &[ValueId],
) -> Result<Vec<TensorType>, String> {
    let rule = rule(operator).ok_or("the shapes of its results are not inferred")?;
    let results = rule(&Call { graph, operator, inputs })?;
    for TensorType { scalar_type, sizes } in &results {
        let bytes = checked_numel(sizes).and_then(|count| count.checked_mul(scalar_type.size()));
        if bytes.is_none_or(|bytes| bytes > isize::MAX as usize) {
            return Err(format!("a result of shape {sizes:?} exceeds the address space"));
        }
    }
    Ok(results)
}

/// Whether [`infer`] has a rule for an operator.
pub fn is_inferred(operator: Operator) -> bool {
    rule(operator).is_some()
}

/// Whether an operator returns a list of tensors, even if it has a single item.
pub fn returns_list(operator: Operator) -> bool {
    [
        Operator::SPLIT_COPY_TENSOR,
        Operator::SPLIT_WITH_SIZES_COPY,
        Operator::UNBIND_COPY_INT,
        Operator::CHUNK,
        Operator::TENSOR_SPLIT,
        Operator::MESHGRID,
    ]
    .contains(&operator)
}

fn rule(operator: Operator) -> Option<Rule> {
    let families: [fn(Operator) -> Option<Rule>; 8] = [
        elementwise::rule,
        shape::rule,
        linear::rule,
        reduction::rule,
        normalization::rule,
        spatial::rule,
        indexing::rule,
        creation::rule,
    ];
    families.iter().find_map(|family| family(operator))
}

/// Arguments of a call.
struct Call<'a> {
    graph: &'a Graph<'a>,
    operator: Operator,
    inputs: &'a [ValueId],
}

impl Call<'_> {
    fn name(&self, at: usize) -> &'static str {
        self.operator.parameters().get(at).map_or("?", |parameter| parameter.name)
    }

    fn wrong(&self, at: usize, expected: &str) -> String {
        format!("argument {at} (`{}`): expected {expected}", self.name(at))
    }

    /// The value of an argument; its default if it is absent.
    fn value(&self, at: usize) -> Value<'_> {
        match self.inputs.get(at).and_then(|id| self.graph.values.get(*id)) {
            Some(value) => value.borrowed(),
            None => {
                let parameter = self.operator.parameters().get(at);
                parameter.and_then(Parameter::default_value).unwrap_or(Value::None)
            }
        }
    }

    fn tensor_of(&self, id: ValueId) -> Option<TensorType> {
        let tensor = self.graph.tensor(id)?;
        let sizes: Option<Vec<i32>> =
            tensor.sizes.iter().map(|size| i32::try_from(*size).ok()).collect();
        let sizes = Sizes::from_slice(&sizes?).ok()?;
        Some(TensorType::new(tensor.scalar_type, sizes))
    }

    fn tensor(&self, at: usize) -> Result<TensorType, String> {
        let found = self.inputs.get(at).and_then(|id| self.tensor_of(*id));
        found.ok_or_else(|| self.wrong(at, "a tensor"))
    }

    fn optional_tensor(&self, at: usize) -> Option<TensorType> {
        self.inputs.get(at).and_then(|id| self.tensor_of(*id))
    }

    fn tensors(&self, at: usize) -> Result<Vec<TensorType>, String> {
        let wrong = || self.wrong(at, "a list of tensors");
        let Value::List(items) = self.value(at) else { return Err(wrong()) };
        items.iter().map(|id| self.tensor_of(*id).ok_or_else(wrong)).collect()
    }

    fn optional_int(&self, at: usize) -> Result<Option<i64>, String> {
        match self.value(at) {
            Value::Int(number) => Ok(Some(number)),
            Value::None => Ok(None),
            _ => Err(self.wrong(at, "an integer")),
        }
    }

    fn int(&self, at: usize) -> Result<i64, String> {
        self.optional_int(at)?.ok_or_else(|| self.wrong(at, "an integer"))
    }

    fn optional_ints(&self, at: usize) -> Result<Option<Vec<i64>>, String> {
        match self.value(at) {
            Value::IntList(items) => Ok(Some(items)),
            Value::Int(number) => Ok(Some(vec![number])),
            Value::None => Ok(None),
            Value::List(items) => {
                let number = |id: &ValueId| match self.graph.values.get(*id) {
                    Some(Value::Int(number)) => Some(*number),
                    _ => None,
                };
                let items = items.iter().map(number).collect::<Option<_>>();
                items.map(Some).ok_or_else(|| self.wrong(at, "constant integers"))
            }
            _ => Err(self.wrong(at, "a list of integers")),
        }
    }

    fn ints(&self, at: usize) -> Result<Vec<i64>, String> {
        self.optional_ints(at)?.ok_or_else(|| self.wrong(at, "a list of integers"))
    }

    fn flag(&self, at: usize) -> Result<bool, String> {
        match self.value(at) {
            Value::Bool(truth) => Ok(truth),
            Value::None => Ok(false),
            _ => Err(self.wrong(at, "a boolean")),
        }
    }

    fn scalar(&self, at: usize) -> Option<Scalar> {
        match self.value(at) {
            Value::Int(number) => Some(Scalar::Int(number)),
            Value::Double(number) => Some(Scalar::Double(number)),
            Value::Bool(truth) => Some(Scalar::Bool(truth)),
            _ => None,
        }
    }

    fn text(&self, at: usize) -> Option<String> {
        match self.value(at) {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    fn dtype(&self, at: usize) -> Result<Option<ScalarType>, String> {
        let Some(number) = self.optional_int(at)? else { return Ok(None) };
        ScalarType::from_number(number).map(Some).ok_or_else(|| self.wrong(at, "a dtype"))
    }

    /// The operand of dtype promotion at a position: a tensor or a scalar.
    fn operand(&self, at: usize) -> Option<Operand> {
        match self.optional_tensor(at) {
            Some(tensor) => tensor.operand(),
            None => self.scalar(at).map(Operand::from),
        }
    }

    /// The promoted dtype of the operands at some positions; absent ones are skipped.
    fn promoted(&self, positions: &[usize]) -> Result<ScalarType, String> {
        let operands = positions.iter().filter_map(|at| self.operand(*at));
        result_type(operands).ok_or_else(|| "PyTorch does not promote these dtypes".into())
    }

    /// The broadcast shape of the tensors at some positions; scalars are skipped.
    fn broadcast(&self, positions: &[usize]) -> Result<Sizes, String> {
        let shapes: Vec<Sizes> = positions
            .iter()
            .filter_map(|at| self.optional_tensor(*at).map(|tensor| tensor.sizes))
            .collect();
        broadcast_all(shapes.iter().map(|sizes| &sizes[..]))
            .ok_or_else(|| format!("shapes {} do not broadcast", listed(&shapes)))
    }

    /// Normalizes a dim of a tensor.
    fn dim(&self, at: usize, rank: usize) -> Result<usize, String> {
        let dim = self.int(at)?;
        normalize_dim(dim, rank).ok_or_else(|| format!("dim {dim} is out of range for {rank} dims"))
    }
}

fn listed(shapes: &[Sizes]) -> String {
    let texts: Vec<String> = shapes.iter().map(|sizes| format!("{sizes:?}")).collect();
    texts.join(", ")
}

fn one(scalar_type: ScalarType, sizes: Sizes) -> Results {
    Ok(vec![TensorType::new(scalar_type, sizes)])
}

/// The dtype itself if it is floating (or complex), else `float32`.
fn floating(scalar_type: ScalarType) -> ScalarType {
    match scalar_type.is_integral(true) {
        true => ScalarType::Float,
        false => scalar_type,
    }
}

fn sizes_of(sizes: &[i64]) -> Result<Sizes, String> {
    let mut made = Sizes::new();
    for size in sizes {
        let size = i32::try_from(*size).ok().filter(|size| *size >= 0);
        let size = size.ok_or_else(|| format!("shape {sizes:?}: a size is out of range"))?;
        let many = || format!("shape {sizes:?}: expected at most {MAX_RANK} dims");
        made.push(size).map_err(|_| many())?;
    }
    Ok(made)
}

/// Converts a size of a result.
fn size(size: i64) -> Result<i32, String> {
    let made = i32::try_from(size).ok().filter(|size| *size >= 0);
    made.ok_or_else(|| format!("a size of {size} is out of range"))
}

fn push(sizes: &mut Sizes, size: i32) -> Result<(), String> {
    sizes.push(size).map_err(|_| format!("expected at most {MAX_RANK} dims"))
}
