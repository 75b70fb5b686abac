//! Lowers calls of a graph to instructions of a method.
//!
//! Instructions call the `out` variants of operators. The arguments of such an instruction are
//! those of the functional operator, except for arguments that the output determines (such as the
//! dtype). The outputs follow, and, as in program files, the outputs are then listed once more. New
//! tensors are contiguous and have no memory assigned yet (see [`plan`](crate::plan)).

use crate::error::Error;
use crate::graph::{Graph, Node, Tensor, Value, ValueId};
use crate::method::{Instruction, Method, MethodTensor, MethodValue, TensorData};
use crate::operators::{MemoryLayout, Outputs};
use crate::partition::arguments;
use alloc::borrow::Cow;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use torchlet_core::{Scalar, ShapeDynamism, TensorInfo};

/// Lowers calls of one graph to instructions of a method.
#[derive(Debug)]
pub struct Emitter<'m, 'p> {
    method: &'m mut Method<'p>,
    /// Maps values of the graph to values of the method.
    indices: BTreeMap<ValueId, usize>,
    /// Constant integers, which calls can share.
    integers: BTreeMap<i64, usize>,
    /// Integers of the method that its inputs or instructions write.
    variable: BTreeSet<usize>,
    instructions: Vec<Instruction>,
}

impl<'m, 'p> Emitter<'m, 'p> {
    /// Creates an emitter that adds values to `method`.
    pub fn new(method: &'m mut Method<'p>) -> Self {
        Emitter {
            method,
            indices: BTreeMap::new(),
            integers: BTreeMap::new(),
            variable: BTreeSet::new(),
            instructions: Vec::new(),
        }
    }

    /// Returns the method that values are added to.
    pub fn method(&mut self) -> &mut Method<'p> {
        self.method
    }

    /// Maps a value of the graph to a value of the method from now on.
    pub fn bind(&mut self, id: ValueId, value: usize) {
        // A value that is initially `None` becomes an integer later.
        if let Some(MethodValue::Scalar(_) | MethodValue::None) = self.method.values.get(value) {
            self.variable.insert(value);
        }
        self.indices.insert(id, value);
    }

    /// Appends an instruction.
    pub fn push(&mut self, instruction: Instruction) {
        self.instructions.push(instruction);
    }

    /// Returns the method values of several values.
    ///
    /// # Errors
    /// A method cannot represent a value.
    #[cfg(any(feature = "pt2", feature = "lazy"))]
    pub(crate) fn all(&mut self, graph: &Graph<'p>, ids: &[ValueId]) -> Result<Vec<usize>, Error> {
        ids.iter().map(|id| self.value(graph, *id)).collect()
    }

    /// Sets the destination of the jump at an instruction.
    #[cfg(feature = "pt2")]
    pub(crate) fn jump_to(&mut self, at: usize, to: usize) {
        if let Some(Instruction::JumpFalse { destination, .. }) = self.instructions.get_mut(at) {
            *destination = to;
        }
    }

    /// Returns the number of instructions so far.
    pub(crate) fn len(&self) -> usize {
        self.instructions.len()
    }

    /// Returns the instructions that were added.
    pub fn finish(self) -> Vec<Instruction> {
        self.instructions
    }

    /// Returns the method value that represents a graph value. Adds one if necessary: a constant is
    /// added with its data, any other tensor without memory.
    ///
    /// # Errors
    /// A method cannot represent the value.
    pub fn value(&mut self, graph: &Graph<'p>, id: ValueId) -> Result<usize, Error> {
        self.value_of(graph, id, None)
    }

    /// Appends the instruction of a call.
    ///
    /// # Errors
    /// No instruction exists for the operator, or a method cannot represent an argument.
    pub fn emit(&mut self, graph: &Graph<'p>, node: &Node) -> Result<(), Error> {
        let name = node.operator.name();
        let Some(instruction) = node.operator.instruction() else {
            return Err(Error::Unsupported(format!(
                "call {}, {name}: an operator without a kernel",
                node.id
            )));
        };
        let Some((out, inputs)) = node.args.split_last() else {
            return Err(Error::Invalid(format!(
                "call {}, {name}: expected an output, found no arguments",
                node.id
            )));
        };
        let omitted = node.operator.omitted_arguments();
        let taken = inputs.iter().enumerate().filter(|(at, _)| !omitted.contains(at));
        let traits = node.operator.traits();
        let parameters = node.operator.parameters();
        let is_index = |at: usize| parameters.get(at).is_some_and(|it| it.name == "index");
        let mut args = Vec::with_capacity(node.args.len() + 1);
        let mut varies = graph.is_data_dependent(node);
        for (at, id) in taken {
            let value = match traits.layout {
                MemoryLayout::DimOrder(own) if usize::from(own) == at => {
                    self.row_major(graph, *out)?
                }
                MemoryLayout::MemoryFormat(own)
                    if usize::from(own) == at && !self.indices.contains_key(out) =>
                {
                    self.method.add(MethodValue::None)
                }
                // Copies run synchronously.
                _ if traits.non_blocking.map(usize::from) == Some(at) => self.truth(false),
                _ => self.value(graph, *id)?,
            };
            // An index selects elements, but shapes do not depend on its value.
            varies |= (self.is_tensor(value) || !is_index(at)) && self.varies(value);
            args.push(value);
        }
        if traits.updates_input {
            // The output has the shape of the updated tensor, whatever the shapes of the rest.
            varies = args.first().is_some_and(|first| self.varies(*first));
        }
        match traits.outputs {
            Outputs::InPlace => {
                // The kernel writes its first argument, which is also the output.
                let first = *args.first().ok_or_else(|| missing(node))?;
                self.indices.insert(*out, first);
                args.push(first);
            }
            form => self.outputs(graph, *out, form, &mut args, varies)?,
        }
        let (name, overload) = split_name(instruction);
        self.instructions.push(Instruction::Kernel { name, overload, args });
        Ok(())
    }

    /// Returns the method values of the results of fused calls.
    ///
    /// As if each call was a separate instruction, result shapes are dynamic if the shapes of the
    /// inputs are, even if the graph declares the results static.
    ///
    /// # Errors
    /// A method cannot represent a value.
    pub(crate) fn results<'g>(
        &mut self,
        graph: &'g Graph<'p>,
        calls: impl Iterator<Item = &'g Node>,
        results: &[ValueId],
    ) -> Result<Vec<usize>, Error> {
        let mut varying = BTreeSet::new();
        for call in calls {
            let (taken, made) = arguments(graph, call);
            let varies = graph.is_data_dependent(call)
                || taken.iter().any(|id| {
                    let is_bound = self.indices.get(id).is_some_and(|value| self.varies(*value));
                    is_bound || varying.contains(id) || is_variable(graph, *id)
                });
            if varies {
                varying.extend(made);
            }
        }
        let values = results.iter().map(|id| {
            let varies = varying.contains(id);
            let dynamism = if varies { ShapeDynamism::DynamicBound } else { ShapeDynamism::Static };
            self.value_of(graph, *id, Some(dynamism))
        });
        values.collect()
    }

    fn is_tensor(&self, value: usize) -> bool {
        self.method.tensor(value).is_some()
    }

    /// Appends the outputs of a call to its arguments. `varies` says that their shapes do.
    fn outputs(
        &mut self,
        graph: &Graph<'p>,
        out: ValueId,
        form: Outputs,
        args: &mut Vec<usize>,
        varies: bool,
    ) -> Result<(), Error> {
        let dynamism = if varies { ShapeDynamism::DynamicBound } else { ShapeDynamism::Static };
        match (value_at(graph, out)?, form) {
            (Value::List(outs), Outputs::Each) => {
                let mut made = Vec::with_capacity(outs.len());
                for out in outs {
                    made.push(self.value_of(graph, *out, Some(dynamism))?);
                }
                args.extend(&made);
                let list = self.method.add(MethodValue::Tensors(made));
                args.push(list);
            }
            _ => {
                let made = self.value_of(graph, out, Some(dynamism))?;
                args.push(made);
                if !matches!(self.method.values.get(made), Some(MethodValue::Scalar(_))) {
                    args.push(made);
                }
            }
        }
        Ok(())
    }

    /// Like [`Self::value`], but new tensors get this dynamism.
    fn value_of(
        &mut self,
        graph: &Graph<'p>,
        id: ValueId,
        dynamism: Option<ShapeDynamism>,
    ) -> Result<usize, Error> {
        if let Some(index) = self.indices.get(&id) {
            return Ok(*index);
        }
        let value = match value_at(graph, id)? {
            Value::None => MethodValue::None,
            Value::Int(value) => return Ok(self.integer(*value)),
            Value::Double(value) => MethodValue::Scalar(Scalar::Double(*value)),
            Value::Bool(value) => MethodValue::Scalar(Scalar::Bool(*value)),
            Value::String(text) => MethodValue::String(text.clone()),
            Value::IntList(items) => {
                MethodValue::Ints(items.iter().map(|item| self.integer(*item)).collect())
            }
            Value::DoubleList(items) => MethodValue::Doubles(items.clone()),
            Value::BoolList(items) => MethodValue::Bools(items.clone()),
            Value::List(items) => self.list(graph, items, dynamism)?,
            Value::SymInt(value) => {
                let index = self.method.add(MethodValue::Scalar(Scalar::Int(*value)));
                self.variable.insert(index);
                self.indices.insert(id, index);
                return Ok(index);
            }
            Value::Tensor(tensor) => {
                let dynamism =
                    if tensor.dynamic { Some(ShapeDynamism::DynamicBound) } else { dynamism };
                MethodValue::Tensor(method_tensor(tensor, dynamism)?)
            }
        };
        let index = self.method.add(value);
        self.indices.insert(id, index);
        Ok(index)
    }

    /// Makes a list: of integers if it has any, of optional tensors if an item is `None`, else of
    /// tensors.
    fn list(
        &mut self,
        graph: &Graph<'p>,
        items: &[ValueId],
        dynamism: Option<ShapeDynamism>,
    ) -> Result<MethodValue<'p>, Error> {
        let (mut integers, mut tensors, mut missing) = (false, false, false);
        for item in items {
            match value_at(graph, *item)? {
                Value::Int(_) | Value::SymInt(_) => integers = true,
                Value::Tensor(_) => tensors = true,
                Value::None => missing = true,
                _ => {
                    return Err(Error::unsupported(
                        "a list with items other than tensors, integers and None",
                    ));
                }
            }
        }
        if integers && (tensors || missing) {
            return Err(Error::unsupported("a list of integers with tensors or None"));
        }
        let mut made = Vec::with_capacity(items.len());
        for item in items {
            let is_none = matches!(value_at(graph, *item)?, Value::None);
            made.push(if is_none { None } else { Some(self.value_of(graph, *item, dynamism)?) });
        }
        Ok(if missing {
            MethodValue::OptionalTensors(made)
        } else {
            let made = made.into_iter().flatten().collect();
            if tensors { MethodValue::Tensors(made) } else { MethodValue::Ints(made) }
        })
    }

    /// Returns the value of a constant integer.
    pub fn integer(&mut self, value: i64) -> usize {
        let method = &mut *self.method;
        let scalar = || method.add(MethodValue::Scalar(Scalar::Int(value)));
        *self.integers.entry(value).or_insert_with(scalar)
    }

    /// Returns the value of a constant boolean.
    pub fn truth(&mut self, value: bool) -> usize {
        self.method.add(MethodValue::Scalar(Scalar::Bool(value)))
    }

    /// Returns the dim order of an output, as a list.
    fn row_major(&mut self, graph: &Graph<'p>, out: ValueId) -> Result<usize, Error> {
        // An output that is already a tensor of the method keeps the dim order of that tensor.
        if let Some(tensor) = self.indices.get(&out).and_then(|value| self.method.tensor(*value)) {
            let order = tensor.info.dim_order.clone();
            let dims = order.iter().map(|dim| self.integer((*dim).into())).collect();
            return Ok(self.method.add(MethodValue::Ints(dims)));
        }
        let rank = match value_at(graph, out)? {
            Value::Tensor(tensor) => tensor.sizes.len(),
            _ => return Err(Error::Invalid(format!("value {out}, an output: expected a tensor"))),
        };
        let dims = (0..rank).map(|dim| self.integer(dim as i64)).collect();
        Ok(self.method.add(MethodValue::Ints(dims)))
    }

    /// Whether a value, or an item of it, has a dynamic shape or is an integer that may change
    /// between runs.
    fn varies(&self, value: usize) -> bool {
        let is_dynamic = |value: &usize| {
            let tensor = self.method.tensor(*value);
            self.variable.contains(value)
                || tensor.is_some_and(|tensor| tensor.dynamism != ShapeDynamism::Static)
        };
        match self.method.values.get(value) {
            Some(MethodValue::Ints(items) | MethodValue::Tensors(items)) => {
                items.iter().any(is_dynamic)
            }
            Some(MethodValue::OptionalTensors(items)) => items.iter().flatten().any(is_dynamic),
            _ => is_dynamic(&value),
        }
    }
}

fn value_at<'g, 'p>(graph: &'g Graph<'p>, id: ValueId) -> Result<&'g Value<'p>, Error> {
    graph.values.get(id).ok_or_else(|| Error::Invalid(format!("value {id} does not exist")))
}

fn missing(node: &Node) -> Error {
    Error::Invalid(format!("call {}, {}: an argument is missing", node.id, node.operator.name()))
}

/// Splits an instruction's name into the qualified operator name and the overload.
fn split_name(instruction: &str) -> (String, String) {
    let (name, overload) = instruction.rsplit_once('.').unwrap_or((instruction, ""));
    (String::from(name), String::from(overload))
}

/// Converts dtype and shape of a graph tensor to a contiguous layout.
pub(crate) fn tensor_info(tensor: &Tensor<'_>) -> Result<TensorInfo, Error> {
    let sizes: Result<Vec<i32>, _> = tensor.sizes.iter().map(|size| i32::try_from(*size)).collect();
    let info = sizes.ok().and_then(|sizes| TensorInfo::contiguous(tensor.scalar_type, &sizes));
    info.ok_or_else(|| {
        Error::Unsupported(format!(
            "a tensor of {} {:?}, which is too large",
            tensor.scalar_type, tensor.sizes
        ))
    })
}

fn method_tensor<'p>(
    tensor: &Tensor<'p>,
    dynamism: Option<ShapeDynamism>,
) -> Result<MethodTensor<'p>, Error> {
    let info = tensor_info(tensor)?;
    let bound = if tensor.dynamic { ShapeDynamism::DynamicBound } else { ShapeDynamism::Static };
    let dynamism = dynamism.unwrap_or(bound);
    let (data, dynamism) = match &tensor.data {
        None => (TensorData::None, dynamism),
        // State without data is zero-initialised.
        Some(bytes) if bytes.is_empty() && tensor.changes == Some(true) => {
            (TensorData::None, ShapeDynamism::Static)
        }
        Some(bytes) => (TensorData::Inside(first_bytes(bytes, &info)?), ShapeDynamism::Static),
    };
    Ok(MethodTensor { info, dynamism, location: None, data, name: None })
}

/// Truncates the data of a constant to its size.
pub(crate) fn first_bytes<'p>(
    bytes: &Cow<'p, [u8]>,
    info: &TensorInfo,
) -> Result<Cow<'p, [u8]>, Error> {
    let (needed, found) = (info.nbytes(), bytes.len());
    let short =
        || Error::Invalid(format!("constant {info}: expected {needed} bytes, found {found}"));
    Ok(match bytes {
        Cow::Borrowed(bytes) => Cow::Borrowed(bytes.get(..needed).ok_or_else(short)?),
        Cow::Owned(bytes) => Cow::Owned(bytes.get(..needed).ok_or_else(short)?.to_vec()),
    })
}

/// Whether a value is an integer that may change between runs, or a tensor with a dynamic shape.
fn is_variable(graph: &Graph<'_>, id: ValueId) -> bool {
    match graph.values.get(id) {
        Some(Value::SymInt(_)) => true,
        Some(Value::Tensor(tensor)) => tensor.dynamic,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
