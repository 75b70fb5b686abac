//! The graph: values, and calls of functional operators on them, in execution order.

use crate::operators::{DataDependent, Operator};
use alloc::borrow::Cow;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use torchlet_core::ScalarType;

/// Index of a value in [`Graph::values`].
pub type ValueId = usize;

/// Value of a graph.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Value<'p> {
    /// An absent optional argument.
    None,
    /// Integer constant.
    Int(i64),
    /// Floating-point constant.
    Double(f64),
    /// Boolean constant.
    Bool(bool),
    /// String constant.
    String(String),
    /// List of integer constants.
    IntList(Vec<i64>),
    /// List of floating-point constants.
    DoubleList(Vec<f64>),
    /// List of boolean constants.
    BoolList(Vec<bool>),
    /// List of values: tensors or [`Value::None`], or integers, some of them symbolic.
    List(Vec<ValueId>),
    /// Integer known at run time only, set by an input or a call. Holds the value that the exporter
    /// saw.
    SymInt(i64),
    /// Tensor.
    Tensor(Tensor<'p>),
}

/// Tensor of a graph. The elements are contiguous in dim order, whatever memory format the file
/// specifies.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor<'p> {
    /// Dtype inside the graph.
    pub scalar_type: ScalarType,
    /// Dtype of the tensor as an input or output of the graph.
    pub host_type: ScalarType,
    /// Shape; the upper bound of each dim if the shape is dynamic.
    pub sizes: Vec<usize>,
    /// Whether the shape is dynamic.
    pub dynamic: bool,
    /// Contents of a constant, or initial contents of a mutable tensor. For a mutable tensor, empty
    /// data stands for zeros.
    pub data: Option<Cow<'p, [u8]>>,
    /// Whether the contents of a constant change between runs; `None` if unknown.
    pub changes: Option<bool>,
}

/// Call of an operator.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Number that the exporter gave to the call.
    pub id: u32,
    /// The operator.
    pub operator: Operator,
    /// Inputs in the order of the operator's schema, then the output: a [`Value::List`] if the
    /// operator has several outputs.
    pub args: Vec<ValueId>,
    /// Calls that were fused into this one, in order; empty for a call of the exported program.
    pub parts: Vec<Node>,
}

/// Calls in execution order, and their values. Each value is the output of at most one call, unless
/// a front end documents otherwise.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Graph<'p> {
    /// The values, indexed by [`ValueId`].
    pub values: Vec<Value<'p>>,
    /// The calls, in execution order.
    pub nodes: Vec<Node>,
    /// Values that the caller passes in.
    pub inputs: Vec<ValueId>,
    /// Values that the caller reads.
    pub outputs: Vec<ValueId>,
    /// State updates: pairs of the new value and the value that it overwrites after the last call.
    pub updates: Vec<(ValueId, ValueId)>,
    /// Names that the model gives to its mutable buffers, if the exporter preserved them.
    pub names: BTreeMap<ValueId, String>,
}

impl Node {
    /// Creates a call with id 0 and without fused calls.
    pub fn new(operator: Operator, args: Vec<ValueId>) -> Self {
        Node { id: 0, operator, args, parts: Vec::new() }
    }

    /// Returns the name of the operator, or the names of the fused calls joined by ` + `.
    pub fn title(&self) -> String {
        if self.parts.is_empty() {
            return String::from(self.operator.name());
        }
        let parts: Vec<String> = self.parts.iter().map(Node::title).collect();
        parts.join(" + ")
    }
}

impl AsRef<[ValueId]> for Node {
    fn as_ref(&self) -> &[ValueId] {
        &self.args
    }
}

impl<'p> Graph<'p> {
    /// Returns the call whose output is this value, searching fused calls too.
    pub fn producer(&self, id: ValueId) -> Option<&Node> {
        let parts = self.nodes.iter().flat_map(|node| node.parts.iter().chain([node]));
        parts.into_iter().find(|node| node.args.last() == Some(&id))
    }

    /// Returns the graph with its data borrowed from `self`.
    pub(crate) fn borrowed(&self) -> Graph<'_> {
        Graph {
            values: self.values.iter().map(Value::borrowed).collect(),
            nodes: self.nodes.clone(),
            inputs: self.inputs.clone(),
            outputs: self.outputs.clone(),
            updates: self.updates.clone(),
            names: self.names.clone(),
        }
    }

    /// Returns the tensor with this id; `None` if the value is not a tensor.
    pub fn tensor(&self, id: ValueId) -> Option<&Tensor<'p>> {
        match self.values.get(id)? {
            Value::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// Whether the output shape of a call depends on the elements of its inputs.
    pub(crate) fn is_data_dependent(&self, node: &Node) -> bool {
        let is_mask = |id: &ValueId| {
            let types = [ScalarType::Bool, ScalarType::Byte];
            self.tensor(*id).is_some_and(|tensor| types.contains(&tensor.scalar_type))
        };
        match node.operator.traits().data_dependent {
            DataDependent::Never => false,
            DataDependent::Always => true,
            // A mask selects as many indices as it has true elements.
            DataDependent::Masks => {
                node.args.get(1).is_none_or(|list| self.items(list).iter().any(is_mask))
            }
        }
    }

    /// Whether two values are tensors of the same dtype and shape.
    pub(crate) fn are_alike(&self, one: ValueId, other: ValueId) -> bool {
        let (Some(one), Some(other)) = (self.tensor(one), self.tensor(other)) else { return false };
        one.scalar_type == other.scalar_type && one.sizes == other.sizes
    }

    /// Returns the items of a list, or the value itself.
    pub fn items<'g>(&'g self, id: &'g ValueId) -> &'g [ValueId] {
        match self.values.get(*id) {
            Some(Value::List(items)) => items,
            _ => core::slice::from_ref(id),
        }
    }

    /// Sets [`Tensor::changes`] of each constant, for graphs in which only `updates` change
    /// constants. That holds for graphs written by this compiler.
    pub fn mark_changes(&mut self) {
        let updated: BTreeSet<ValueId> = self.updates.iter().map(|(_, old)| *old).collect();
        for (id, value) in self.values.iter_mut().enumerate() {
            if let Value::Tensor(tensor) = value
                && tensor.data.is_some()
            {
                tensor.changes = Some(updated.contains(&id));
            }
        }
    }

    /// Returns the graph with the data of each constant replaced by an empty slice.
    pub fn without_data(self) -> Graph<'static> {
        let values = self.values.into_iter().map(Value::without_data).collect();
        let Graph { nodes, inputs, outputs, updates, names, .. } = self;
        Graph { values, nodes, inputs, outputs, updates, names }
    }
}

impl Value<'_> {
    /// Returns the value with its data borrowed from `self`.
    pub fn borrowed(&self) -> Value<'_> {
        let Value::Tensor(tensor) = self else { return self.clone() };
        let &Tensor { scalar_type, host_type, dynamic, changes, .. } = tensor;
        let (sizes, data) = (tensor.sizes.clone(), tensor.data.as_deref().map(Cow::Borrowed));
        Value::Tensor(Tensor { scalar_type, host_type, sizes, dynamic, data, changes })
    }

    fn without_data(self) -> Value<'static> {
        match self {
            Value::None => Value::None,
            Value::Int(value) => Value::Int(value),
            Value::Double(value) => Value::Double(value),
            Value::Bool(value) => Value::Bool(value),
            Value::String(value) => Value::String(value),
            Value::IntList(items) => Value::IntList(items),
            Value::DoubleList(items) => Value::DoubleList(items),
            Value::BoolList(items) => Value::BoolList(items),
            Value::List(items) => Value::List(items),
            Value::SymInt(value) => Value::SymInt(value),
            Value::Tensor(tensor) => Value::Tensor(Tensor {
                data: tensor.data.map(|_| Cow::Owned(Vec::new())),
                scalar_type: tensor.scalar_type,
                host_type: tensor.host_type,
                sizes: tensor.sizes,
                dynamic: tensor.dynamic,
                changes: tensor.changes,
            }),
        }
    }
}
