//! The graph that is compiled: values and operator calls, whatever front-end they come from.

use std::borrow::Cow;
use torchlet_core::ScalarType;

/// The index of a value in its graph.
pub(crate) type ValueId = usize;

/// A value of a graph.
#[derive(Debug, Clone)]
pub(crate) enum Value<'p> {
    None,
    Int(i64),
    Double(f64),
    Bool(bool),
    String(String),
    IntList(Vec<i64>),
    DoubleList(Vec<f64>),
    BoolList(Vec<bool>),
    /// Several values: tensors, or integers of which some are symbolic.
    List(Vec<ValueId>),
    /// An integer that inputs or operators set; with the value that the exporter saw.
    SymInt(i64),
    Tensor(Tensor<'p>),
}

/// A tensor of a graph.
#[derive(Debug, Clone)]
pub(crate) struct Tensor<'p> {
    /// Its element type on the device.
    pub(crate) scalar_type: ScalarType,
    /// Its element type where it enters or leaves the graph.
    pub(crate) host_type: ScalarType,
    /// Its shape, or the bound of it.
    pub(crate) sizes: Vec<usize>,
    /// Its data, if it is constant.
    pub(crate) data: Option<Cow<'p, [u8]>>,
    /// Whether a constant's contents change between runs, where the file tells.
    pub(crate) changes: Option<bool>,
}

/// A call of an operator: inputs, then the output (a list where there are several).
#[derive(Debug, Clone, Default)]
pub(crate) struct Node {
    /// The number that the exporter gave it.
    pub(crate) id: u32,
    pub(crate) operator: String,
    pub(crate) args: Vec<ValueId>,
    /// The calls that were fused into this one, in order; none for a call of the exporter's.
    pub(crate) parts: Vec<Node>,
}

impl Graph<'_> {
    /// The call whose output a value is, also within one that was made of several.
    pub(crate) fn producer(&self, id: ValueId) -> Option<&Node> {
        let parts = self.nodes.iter().flat_map(|node| node.parts.iter().chain([node]));
        parts.into_iter().find(|node| node.args.last() == Some(&id))
    }
}

impl Node {
    /// Its operator, or those of the calls that were fused into it.
    pub(crate) fn title(&self) -> String {
        if self.parts.is_empty() {
            return self.operator.clone();
        }
        let parts: Vec<String> = self.parts.iter().map(Node::title).collect();
        parts.join(" + ")
    }
}

/// A graph: calls in order of execution.
#[derive(Debug, Clone, Default)]
pub(crate) struct Graph<'p> {
    pub(crate) values: Vec<Value<'p>>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) inputs: Vec<ValueId>,
    pub(crate) outputs: Vec<ValueId>,
    /// Values that overwrite others when all calls are done: the new one and the old one.
    pub(crate) updates: Vec<(ValueId, ValueId)>,
}

impl Graph<'_> {
    /// The graph with empty data in place of that of its constants.
    pub(crate) fn without_data(self) -> Graph<'static> {
        let values = self
            .values
            .into_iter()
            .map(|value| match value {
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
                    changes: tensor.changes,
                }),
            })
            .collect();
        Graph {
            values,
            nodes: self.nodes,
            inputs: self.inputs,
            outputs: self.outputs,
            updates: self.updates,
        }
    }
}
