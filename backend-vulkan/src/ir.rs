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

/// A graph: calls in order of execution.
#[derive(Debug, Clone, Default)]
pub(crate) struct Graph<'p> {
    pub(crate) values: Vec<Value<'p>>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) inputs: Vec<ValueId>,
    pub(crate) outputs: Vec<ValueId>,
}
