//! The graph: values, and calls of functional operators over them, in order of execution.

use crate::operators::{DataDependent, Operator};
use alloc::borrow::Cow;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use torchlet_core::ScalarType;

/// The index of a value in its graph.
pub type ValueId = usize;

/// A value of a graph.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Value<'p> {
    /// Nothing: an optional that is absent.
    None,
    /// An integer that is known.
    Int(i64),
    /// A number that is known.
    Double(f64),
    /// A truth value that is known.
    Bool(bool),
    /// A string.
    String(String),
    /// Integers that are known.
    IntList(Vec<i64>),
    /// Numbers that are known.
    DoubleList(Vec<f64>),
    /// Truth values that are known.
    BoolList(Vec<bool>),
    /// Several values: tensors, of which some may be [`Value::None`], or integers of which some are
    /// symbolic.
    List(Vec<ValueId>),
    /// An integer that inputs or operators set; with the value that the exporter saw.
    SymInt(i64),
    /// A tensor.
    Tensor(Tensor<'p>),
}

/// A tensor of a graph. Its elements lie in the order of its dimensions, whatever a file's memory
/// format says.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor<'p> {
    /// Its element type within the graph.
    pub scalar_type: ScalarType,
    /// Its element type where it enters or leaves the graph.
    pub host_type: ScalarType,
    /// Its shape, or the bound of it.
    pub sizes: Vec<usize>,
    /// Whether the shape is a bound.
    pub dynamic: bool,
    /// Its data, if it is constant, or what it starts with: of what changes, none at all stands for
    /// zeros.
    pub data: Option<Cow<'p, [u8]>>,
    /// Whether a constant's contents change between runs, where that is known.
    pub changes: Option<bool>,
}

/// A call of an operator: inputs in the order of its schema, then the output (a [`Value::List`]
/// where there are several).
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// The number that the exporter gave it.
    pub id: u32,
    /// What it computes.
    pub operator: Operator,
    /// The arguments.
    pub args: Vec<ValueId>,
    /// The calls that were fused into this one, in order; none for a call of the exporter's.
    pub parts: Vec<Node>,
}

/// Calls in order of execution, and the values that they work on. Each value has at most one call
/// that makes it, except where a front-end says otherwise.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Graph<'p> {
    /// The values, by [`ValueId`].
    pub values: Vec<Value<'p>>,
    /// The calls.
    pub nodes: Vec<Node>,
    /// The values that the caller gives.
    pub inputs: Vec<ValueId>,
    /// The values that the caller takes.
    pub outputs: Vec<ValueId>,
    /// Values that overwrite others when all calls are done: the new one and the old one.
    pub updates: Vec<(ValueId, ValueId)>,
    /// What the model calls values that keep their contents from run to run, where the exporter
    /// kept that.
    pub names: BTreeMap<ValueId, String>,
}

impl Node {
    /// A call with these arguments.
    pub fn new(operator: Operator, args: Vec<ValueId>) -> Self {
        Node { id: 0, operator, args, parts: Vec::new() }
    }

    /// Its operator, or those of the calls that were fused into it.
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
    /// The call whose output a value is, also within one that was made of several.
    pub fn producer(&self, id: ValueId) -> Option<&Node> {
        let parts = self.nodes.iter().flat_map(|node| node.parts.iter().chain([node]));
        parts.into_iter().find(|node| node.args.last() == Some(&id))
    }

    /// The tensor that a value is, if it is one.
    pub fn tensor(&self, id: ValueId) -> Option<&Tensor<'p>> {
        match self.values.get(id)? {
            Value::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// Whether the shape of a call's output depends on the elements of its inputs.
    pub(crate) fn is_data_dependent(&self, node: &Node) -> bool {
        let is_mask = |id: &ValueId| {
            let types = [ScalarType::Bool, ScalarType::Byte];
            self.tensor(*id).is_some_and(|tensor| types.contains(&tensor.scalar_type))
        };
        match node.operator.traits().data_dependent {
            DataDependent::Never => false,
            DataDependent::Always => true,
            // Masks are as many indices as they have true elements.
            DataDependent::Masks => {
                node.args.get(1).is_none_or(|list| self.items(list).iter().any(is_mask))
            }
        }
    }

    /// Whether two values are tensors of one type and shape.
    pub(crate) fn are_alike(&self, one: ValueId, other: ValueId) -> bool {
        let (Some(one), Some(other)) = (self.tensor(one), self.tensor(other)) else { return false };
        one.scalar_type == other.scalar_type && one.sizes == other.sizes
    }

    /// What an argument consists of: the items of a list, or the value itself.
    pub fn items<'g>(&'g self, id: &'g ValueId) -> &'g [ValueId] {
        match self.values.get(*id) {
            Some(Value::List(items)) => items,
            _ => core::slice::from_ref(id),
        }
    }

    /// Says of each constant whether it changes, where the updates are all that does: as in graphs
    /// that the compiler wrote.
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

    /// The graph with empty data in place of that of its constants.
    pub fn without_data(self) -> Graph<'static> {
        let values = self.values.into_iter().map(Value::without_data).collect();
        let Graph { nodes, inputs, outputs, updates, names, .. } = self;
        Graph { values, nodes, inputs, outputs, updates, names }
    }
}

impl Value<'_> {
    /// The value with data, if it has any, that is this one's.
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
