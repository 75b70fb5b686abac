//! Front end for blobs of ExecuTorch's `VulkanPartitioner`: a header (`VH00`), a graph (`VK00`) and
//! constants.
//!
//! Storage types and memory layouts in the blob are tuned for phones and are ignored. The exporter
//! narrows 64-bit dtypes: the graph has the narrow dtype, the host the wide one.
//!
//! A blob is incomplete on its own. [`Buffers`] finds the constants that change, [`CallLayout`]
//! maps the arguments of the delegate call, and [`Bound`] is the graph with both applied.

mod assign;
mod bound;
mod buffers;
mod layout;
mod norms;
#[cfg(test)]
mod tests;

pub use bound::Bound;
pub use buffers::Buffers;
pub use layout::{Argument, CallLayout};

use crate::budget::Budget;
use crate::error::Error;
use crate::front::Summary;
use crate::front::header::{Parts, is_header, part};
use crate::graph::{Graph, Node, Tensor, Value};
use crate::named::{Named, read_named};
use crate::operators::Operator;
use alloc::borrow::{Cow, ToOwned};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec::Vec;
use torchlet_core::ScalarType;
use torchlet_core::format::Malformed;
use torchlet_core::format::flatbuffer::{Table, Vector};
use torchlet_core::layout::MAX_RANK;

/// Backend id of ExecuTorch's Vulkan delegates.
pub const BACKEND: &str = "VulkanBackend";

torchlet_core::flatbuffer_table! { GraphTable {
    0 version: &'a str,
    1 chain: Vector<'a, OperatorCallTable<'a>>,
    2 values: Vector<'a, ValueTable<'a>>,
    3 input_ids: Vector<'a, u32>,
    4 output_ids: Vector<'a, u32>,
    5 constants: Vector<'a, BytesTable<'a>>,
} }
torchlet_core::flatbuffer_table! { OperatorCallTable {
    0 node_id: u32,
    1 name: &'a str,
    2 args: Vector<'a, i32>,
} }
torchlet_core::flatbuffer_table! {
    /// A value: field 0 is the union's type, field 1 its table.
    ValueTable { 0 kind: u8, }
}
torchlet_core::flatbuffer_table! { TensorTable {
    0 datatype: i8,
    1 dims: Vector<'a, u32>,
    /// Negative for non-constant tensors; absent means 0.
    2 constant_id: i32,
    /// Negative for tensors without planned memory.
    3 mem_obj_id: i32,
    6 staging_datatype: Option<i8>,
} }
torchlet_core::flatbuffer_table! {
    /// A byte range: an offset into the constants, or named data if the offset is `u64::MAX`.
    BytesTable { 0 offset: u64, 1 length: u64, 2 named_key: &'a str, }
}
torchlet_core::flatbuffer_table! { IntTable { 0 value: i64, } }
torchlet_core::flatbuffer_table! { BoolTable { 0 value: bool, } }
torchlet_core::flatbuffer_table! { DoubleTable { 0 value: f64, } }
torchlet_core::flatbuffer_table! { StringTable { 0 value: &'a str, } }
torchlet_core::flatbuffer_table! { IntListTable { 0 items: Vector<'a, i64>, } }
torchlet_core::flatbuffer_table! { DoubleListTable { 0 items: Vector<'a, f64>, } }
torchlet_core::flatbuffer_table! { BoolListTable { 0 items: Vector<'a, u8>, } }
torchlet_core::flatbuffer_table! { ValueListTable { 0 items: Vector<'a, i32>, } }
torchlet_core::flatbuffer_table! { SymIntTable { 0 value: i32, } }

const HEADER: &[u8; 4] = b"VH00";

/// The blob's number for "no staging type".
const UNSET: i8 = 127;

fn scalar_type(number: i8) -> Result<ScalarType, Error> {
    Ok(match number {
        0 => ScalarType::Bool,
        1 => ScalarType::Byte,
        2 => ScalarType::Char,
        3 => ScalarType::Int,
        4 => ScalarType::Half,
        5 => ScalarType::Float,
        6 => ScalarType::Double,
        7 => ScalarType::Long,
        other => {
            return Err(Error::Invalid(format!("unknown dtype {other}")));
        }
    })
}

fn id(number: i32, count: usize) -> Result<usize, Error> {
    usize::try_from(number).ok().filter(|id| *id < count).ok_or_else(|| {
        Error::Invalid(format!("value {number} is out of range, the graph has {count} values"))
    })
}

/// Splits the processed bytes of a delegate into graph and constants.
fn parts(bytes: &[u8]) -> Result<(GraphTable<'_>, &[u8]), Error> {
    let Parts { graph, data } = Parts::of(bytes, HEADER, b"VK00")?;
    Ok((GraphTable(Table::root(graph)?), data))
}

/// Whether bytes are a blob of ExecuTorch's Vulkan backend.
pub(crate) fn is_blob(bytes: &[u8]) -> bool {
    is_header(bytes, HEADER)
}

/// Reads the summary of a graph, without its values.
///
/// # Errors
/// The bytes are malformed.
pub(crate) fn summarize(bytes: &[u8]) -> Result<Summary, Error> {
    let (root, _) = parts(bytes)?;
    let mut budget = Budget::of(root.0.buffer());
    let mut calls = Vec::new();
    for call in budget.all(root.chain()?)? {
        calls.push(name(&call, &mut budget)?);
    }
    let constants = budget.all(root.constants()?)?;
    let sizes: Result<Vec<u64>, Malformed> = constants.iter().map(BytesTable::length).collect();
    Ok(Summary::new(calls, sizes?))
}

/// Reads the keys of the constants that are named data.
///
/// # Errors
/// The bytes are malformed.
pub(crate) fn keys(bytes: &[u8]) -> Result<Vec<&str>, Error> {
    let (root, _) = parts(bytes)?;
    let mut budget = Budget::of(root.0.buffer());
    let mut keys = Vec::new();
    for entry in budget.all(root.constants()?)? {
        if let Some(key) = entry.named_key()? {
            budget.spend(key.len())?;
            keys.push(key);
        }
    }
    Ok(keys)
}

/// Reads the operator name of a call.
fn name<'p>(call: &OperatorCallTable<'p>, budget: &mut Budget) -> Result<&'p str, Error> {
    let name = call.name()?.unwrap_or("");
    budget.spend(name.len())?;
    Ok(name)
}

/// Reads the graph of a delegate from its processed bytes. In the result, exactly one call writes
/// each value: overwritten values become updates.
///
/// # Errors
/// The bytes are malformed, or name unknown operators; the error lists all unknown operators.
pub fn read<'p>(bytes: &'p [u8], named: &Named<'_, 'p>) -> Result<Graph<'p>, Error> {
    let (root, data) = parts(bytes)?;
    let mut budget = Budget::of(root.0.buffer());
    let file_values = budget.all(root.values()?)?;
    let count = file_values.len();
    let constants = Constants { entries: root.constants()?, data, named };
    let mut values = Vec::new();
    for value in &file_values {
        values.push(read_value(value, count, &constants, &mut budget)?);
    }
    let (mut nodes, mut missing, mut named) = (Vec::new(), Vec::new(), BTreeSet::new());
    for call in budget.all(root.chain()?)? {
        let args = budget.all(call.args()?)?.into_iter().map(|arg| id(arg, count));
        let args: Result<Vec<usize>, Error> = args.collect();
        let name = name(&call, &mut budget)?;
        match Operator::named(name) {
            Some(operator) => {
                nodes.push(Node { id: call.node_id()?, ..Node::new(operator, args?) });
            }
            None if named.insert(name) => missing.push(name),
            None => {}
        }
    }
    if !missing.is_empty() {
        return Err(Error::Unsupported(format!("unknown operators: {}", missing.join(", "))));
    }
    let mut ids = |vector: Vector<'p, u32>| -> Result<Vec<usize>, Error> {
        let numbers = budget.all(vector)?.into_iter();
        numbers.map(|number| id(i32::try_from(number).unwrap_or(-1), count)).collect()
    };
    let (inputs, outputs) = (ids(root.input_ids()?)?, ids(root.output_ids()?)?);
    number_unnumbered(&mut nodes);
    if is_planned(&file_values)? {
        mark_fixed(&mut values, &nodes);
    }
    doubt_weights(&mut values, &nodes);
    widen_given(&mut values, &outputs);
    let mut graph = Graph { values, nodes, inputs, outputs, ..Graph::default() };
    buffers::check_prepacked(&graph)?;
    assign::once(&mut graph);
    norms::take_apart(&mut graph)?;
    Ok(graph)
}

/// Uses call indices as ids if the exporter wrote the same id for all calls, so that profiles can
/// tell calls apart.
fn number_unnumbered(nodes: &mut [Node]) {
    let first = nodes.first().map(|node| node.id);
    if nodes.iter().all(|node| Some(node.id) == first) {
        for (place, node) in (0..).zip(nodes) {
            node.id = place;
        }
    }
}

/// Whether the exporter planned memory; an export option turns that off.
fn is_planned(values: &[ValueTable<'_>]) -> Result<bool, Error> {
    for value in values {
        if let (5, Some(table)) = (value.kind()?, value.0.union_value(1)?)
            && TensorTable(table).mem_obj_id()? >= 0
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Marks constants that never change: if memory is planned, those without planned memory that are
/// not prepacked.
fn mark_fixed(values: &mut [Value<'_>], nodes: &[Node]) {
    let prepacked: BTreeSet<usize> = nodes
        .iter()
        .filter(|node| node.operator == Operator::ET_VK_PREPACK)
        .filter_map(|node| node.args.first().copied())
        .collect();
    for (id, value) in values.iter_mut().enumerate() {
        if let Value::Tensor(Tensor { data: Some(_), changes: changes @ None, .. }) = value
            && !prepacked.contains(&id)
        {
            *changes = Some(false);
        }
    }
}

/// Resets `changes` to unknown for weights of calls that prepack their own weights.
///
/// If a module's name has a capital letter, the exporter plans memory for weights with a folded
/// batch norm as if they were buffers.
fn doubt_weights(values: &mut [Value<'_>], nodes: &[Node]) {
    let prepack_weights = |node: &&Node| node.operator.traits().prepacks_weights;
    for id in nodes.iter().filter(prepack_weights).flat_map(|node| node.args.iter().skip(1)) {
        if let Some(Value::Tensor(tensor @ Tensor { data: Some(_), changes: Some(true), .. })) =
            values.get_mut(*id)
        {
            tensor.changes = None;
        }
    }
}

/// Sets the host dtype of fp16 constant outputs to fp32 if the exporter narrowed fp32 tensors to
/// fp16.
///
/// The exporter records the original dtype of all tensors except constants.
fn widen_given(values: &mut [Value<'_>], outputs: &[usize]) {
    let is_narrow = |value: &Value<'_>| match value {
        Value::Tensor(tensor) => {
            (tensor.scalar_type, tensor.host_type) == (ScalarType::Half, ScalarType::Float)
        }
        _ => false,
    };
    if !values.iter().any(is_narrow) {
        return;
    }
    for id in outputs {
        if let Some(Value::Tensor(tensor)) = values.get_mut(*id)
            && tensor.data.is_some()
            && tensor.host_type == ScalarType::Half
        {
            tensor.host_type = ScalarType::Float;
        }
    }
}

fn read_value<'p>(
    value: &ValueTable<'p>,
    count: usize,
    constants: &Constants<'_, 'p>,
    budget: &mut Budget,
) -> Result<Value<'p>, Error> {
    let kind = value.kind()?;
    let Some(table) = value.0.union_value(1)? else { return Ok(Value::None) };
    Ok(match kind {
        0 | 1 => Value::None,
        2 => Value::Int(IntTable(table).value()?),
        3 => Value::Double(DoubleTable(table).value()?),
        4 => Value::Bool(BoolTable(table).value()?),
        5 => Value::Tensor(read_tensor(&TensorTable(table), constants, budget)?),
        6 => Value::IntList(budget.all(IntListTable(table).items()?)?),
        7 => Value::DoubleList(budget.all(DoubleListTable(table).items()?)?),
        8 => {
            let items = budget.all(BoolListTable(table).items()?)?;
            Value::BoolList(items.into_iter().map(|byte| byte != 0).collect())
        }
        9 => {
            let items = budget.all(ValueListTable(table).items()?)?.into_iter();
            Value::List(items.map(|item| id(item, count)).collect::<Result<_, Error>>()?)
        }
        10 => {
            let text = StringTable(table).value()?.unwrap_or("");
            budget.spend(text.len())?;
            Value::String(text.to_owned())
        }
        11 => Value::SymInt(SymIntTable(table).value()?.into()),
        other => return Err(Error::Invalid(format!("unknown Vulkan value type {other}"))),
    })
}

fn read_tensor<'p>(
    table: &TensorTable<'p>,
    constants: &Constants<'_, 'p>,
    budget: &mut Budget,
) -> Result<Tensor<'p>, Error> {
    let scalar_type_ = scalar_type(table.datatype()?)?;
    let host_type = match table.staging_datatype()? {
        None | Some(UNSET) => scalar_type_,
        Some(number) => scalar_type(number)?,
    };
    let mut sizes = Vec::new();
    let mut bytes = scalar_type_.size();
    let dims = table.dims()?;
    if dims.len() > MAX_RANK {
        return Err(Error::Invalid(format!(
            "tensor with {} dims; the limit is {MAX_RANK}",
            dims.len()
        )));
    }
    for size in budget.all(dims)? {
        let size = i32::try_from(size).map_err(|_| {
            Error::Invalid(format!("tensor with size {size}; the limit is 2^31 - 1"))
        })?;
        let size = usize::try_from(size).unwrap_or(0);
        bytes = bytes
            .checked_mul(size.max(1))
            .filter(|bytes| *bytes <= isize::MAX as usize)
            .ok_or_else(|| Error::invalid("tensor exceeds the address space"))?;
        sizes.push(size);
    }
    if sizes.contains(&0) {
        bytes = 0;
    }
    let constant = table.constant_id()?;
    let data = if constant < 0 {
        None
    } else {
        let missing = || Error::Invalid(format!("constant {constant} does not exist"));
        let entry = constants.entries.get(usize::try_from(constant).unwrap_or(usize::MAX))?;
        Some(constants.read(&entry.ok_or_else(missing)?, bytes)?)
    };
    // Shapes of non-constant tensors in the blob are upper bounds.
    let dynamic = data.is_none();
    // Planned memory means that a constant changes: among constants, the exporter plans memory only
    // for buffers that are not prepacked.
    let changes = (data.is_some() && table.mem_obj_id()? >= 0).then_some(true);
    Ok(Tensor { scalar_type: scalar_type_, host_type, sizes, dynamic, data, changes })
}

/// The constants of a blob.
struct Constants<'n, 'p> {
    entries: Vector<'p, BytesTable<'p>>,
    /// Bytes after the graph.
    data: &'p [u8],
    named: &'n Named<'n, 'p>,
}

impl<'p> Constants<'_, 'p> {
    fn read(&self, entry: &BytesTable<'p>, bytes: usize) -> Result<Cow<'p, [u8]>, Error> {
        if let (Some(key), u64::MAX) = (entry.named_key()?, entry.offset()?) {
            return read_named(self.named, key, bytes);
        }
        part(self.data, entry.offset()?, bytes as u64).map(Cow::Borrowed).ok_or_else(|| {
            Error::Invalid(format!("a constant of {bytes} bytes lies outside the delegate's data"))
        })
    }
}
