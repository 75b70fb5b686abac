//! Parser for graph blobs.
//!
//! Everything is validated, and a budget limits repeated reads of the same bytes, so that the
//! result is never much larger than the blob.

use super::{
    BOOL, BOOLS, CHANGES, DEPTH, DOUBLE, DOUBLES, INT, INTS, LIST, NONE, STARTS_AS_ZEROS, STAYS,
    STRING, SYMBOLIC, TENSOR, UNKNOWN, is_blob,
};
use crate::budget::Budget;
use crate::error::Error;
use crate::front::Summary;
use crate::graph::{Graph, Node, Tensor, Value, ValueId};
use crate::named::{Named, read_named};
use crate::operators::Operator;
use alloc::borrow::{Cow, ToOwned};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::vec::Vec;
use torchlet_core::ScalarType;
use torchlet_core::format::Malformed;
use torchlet_core::format::flatbuffer::{Item, Table, Vector};
use torchlet_core::layout::MAX_RANK;

torchlet_core::flatbuffer_table! { GraphTable {
    0 operators: Vector<'a, OperatorTable<'a>>,
    1 nodes: Vector<'a, NodeTable<'a>>,
    2 values: Vector<'a, ValueTable<'a>>,
    3 inputs: Vector<'a, u32>,
    4 outputs: Vector<'a, u32>,
    5 updates: Vector<'a, u32>,
    6 names: Vector<'a, NameTable<'a>>,
} }
torchlet_core::flatbuffer_table! { NameTable { 0 value: u32, 1 name: &'a str, } }
torchlet_core::flatbuffer_table! { OperatorTable { 0 name: &'a str, } }
torchlet_core::flatbuffer_table! { NodeTable {
    0 operator: u32,
    1 args: Vector<'a, u32>,
    2 id: u32,
    3 parts: Vector<'a, NodeTable<'a>>,
} }
torchlet_core::flatbuffer_table! {
    /// A value; `kind` determines which other fields are set.
    ValueTable {
        0 kind: u8,
        1 int: i64,
        2 double: f64,
        3 text: &'a str,
        4 ints: Vector<'a, i64>,
        5 doubles: Vector<'a, f64>,
        6 bools: Vector<'a, u8>,
        7 ids: Vector<'a, u32>,
        8 sizes: Vector<'a, u64>,
        9 key: &'a str,
        10 scalar_type: i8,
        11 host_type: i8,
        12 dynamic: bool,
        13 changes: u8,
    }
}

/// Reads the summary of a graph, without its values.
///
/// # Errors
/// The bytes are malformed.
pub(crate) fn summarize(bytes: &[u8]) -> Result<Summary, Error> {
    let mut reader = Reader::new(bytes)?;
    let root = reader.root;
    let names = reader.names()?;
    let mut operators = Vec::new();
    reader.operators(root.nodes()?, &names, DEPTH, &mut operators)?;
    let mut constant_bytes = Vec::new();
    for value in reader.all(root.values()?)? {
        if value.kind()? == TENSOR && value.key()?.is_some() {
            let (scalar_type, sizes) =
                (scalar_type(value.scalar_type()?)?, reader.sizes(value.sizes()?)?);
            constant_bytes.push(byte_count(scalar_type, &sizes)? as u64);
        }
    }
    Ok(Summary::new(operators, constant_bytes))
}

/// Reads the keys of a graph's constants.
///
/// # Errors
/// The bytes are malformed.
pub(crate) fn keys(bytes: &[u8]) -> Result<Vec<&str>, Error> {
    let mut reader = Reader::new(bytes)?;
    let values = reader.all(reader.root.values()?)?;
    let keys = values.iter().filter_map(|value| value.key().transpose());
    Ok(keys.collect::<Result<_, Malformed>>()?)
}

/// Reads a graph. Constants are borrowed if their storage supports that.
///
/// # Errors
/// The bytes are malformed, constants are missing, or operators are unknown; the error lists all
/// unknown operators.
pub fn read<'p>(bytes: &[u8], named: &Named<'_, 'p>) -> Result<Graph<'p>, Error> {
    let mut reader = Reader::new(bytes)?;
    let root = reader.root;
    let mut operators = Vec::new();
    let mut missing: Vec<&str> = Vec::new();
    for name in reader.names()? {
        match Operator::named(name) {
            Some(operator) => operators.push(operator),
            None => missing.push(name),
        }
    }
    if !missing.is_empty() {
        return Err(Error::Unsupported(format!("unknown operators: {}", missing.join(", "))));
    }
    let tables = reader.all(root.values()?)?;
    reader.count = tables.len();
    let mut values = Vec::with_capacity(tables.len());
    for (id, table) in tables.into_iter().enumerate() {
        if table.kind()? == TENSOR && table.changes()? == STARTS_AS_ZEROS {
            reader.zeros.push(id);
        }
        values.push(reader.value(&table, named)?);
    }
    let is_list = |id: &ValueId| matches!(values.get(*id), Some(Value::List(_)));
    for (id, value) in values.iter().enumerate() {
        if let Value::List(items) = value
            && items.iter().any(is_list)
        {
            return Err(Error::Invalid(format!("value {id} is a list of lists")));
        }
    }
    let nodes = reader.nodes(root.nodes()?, &operators, DEPTH)?;
    let (inputs, outputs) = (reader.ids(root.inputs()?)?, reader.ids(root.outputs()?)?);
    let updates = reader.ids(root.updates()?)?;
    let (updates, []) = updates.as_chunks::<2>() else {
        return Err(Error::invalid(
            "state updates: expected pairs of new and old values, found an odd count",
        ));
    };
    let updates: Vec<(ValueId, ValueId)> = updates.iter().map(|[new, old]| (*new, *old)).collect();
    // Only state may be stored without data.
    let updated: BTreeSet<ValueId> = updates.iter().map(|(_, old)| *old).collect();
    if updated.len() != updates.len() {
        return Err(Error::invalid("state updates: a state value is updated twice"));
    }
    if !reader.zeros.iter().all(|id| updated.contains(id)) {
        return Err(Error::invalid("a zero-initialised state buffer is never updated"));
    }
    let mut names = BTreeMap::new();
    for table in reader.all(root.names()?)? {
        let (value, name) = (table.value()? as usize, table.name()?.unwrap_or(""));
        if value >= reader.count {
            return Err(Error::Invalid(format!(
                "names: value {value} is out of range, the graph has {} values",
                reader.count
            )));
        }
        reader.budget.spend(name.len())?;
        names.insert(value, name.to_owned());
    }
    Ok(Graph { values, nodes, inputs, outputs, updates, names })
}

struct Reader<'b> {
    root: GraphTable<'b>,
    /// Number of values.
    count: usize,
    /// Zero-initialised values.
    zeros: Vec<ValueId>,
    budget: Budget,
}

impl<'b> Reader<'b> {
    fn new(bytes: &'b [u8]) -> Result<Self, Error> {
        if !is_blob(bytes) {
            return Err(Error::invalid("graph identifier: expected TLG1"));
        }
        let (root, budget) = (GraphTable(Table::root(bytes)?), Budget::of(bytes));
        Ok(Reader { root, count: 0, zeros: Vec::new(), budget })
    }

    /// Reads all items of a vector, charged to the budget.
    fn all<T: Item<'b>>(&mut self, vector: Vector<'b, T>) -> Result<Vec<T>, Error> {
        self.budget.all(vector)
    }

    /// Reads the operator names that calls refer to.
    fn names(&mut self) -> Result<Vec<&'b str>, Error> {
        let tables = self.all(self.root.operators()?)?;
        let names = tables.iter().map(|table| Ok(table.name()?.unwrap_or("")));
        Ok(names.collect::<Result<_, Malformed>>()?)
    }

    fn ids(&mut self, vector: Vector<'b, u32>) -> Result<Vec<ValueId>, Error> {
        let count = self.count;
        let id = |id: u32| {
            let id = id as usize;
            let error = || {
                Error::Invalid(format!("value {id} is out of range, the graph has {count} values"))
            };
            if id < count { Ok(id) } else { Err(error()) }
        };
        self.all(vector)?.into_iter().map(id).collect()
    }

    fn nodes(
        &mut self,
        tables: Vector<'b, NodeTable<'b>>,
        operators: &[Operator],
        depth: usize,
    ) -> Result<Vec<Node>, Error> {
        let mut nodes = Vec::new();
        for table in self.all(tables)? {
            let depth = depth.checked_sub(1).ok_or_else(too_deep)?;
            let operator = operators.get(table.operator()? as usize).copied();
            nodes.push(Node {
                id: table.id()?,
                operator: operator.ok_or_else(out_of_range)?,
                args: self.ids(table.args()?)?,
                parts: self.nodes(table.parts()?, operators, depth)?,
            });
        }
        Ok(nodes)
    }

    /// Collects the operator names of calls.
    fn operators(
        &mut self,
        tables: Vector<'b, NodeTable<'b>>,
        names: &[&'b str],
        depth: usize,
        found: &mut Vec<&'b str>,
    ) -> Result<(), Error> {
        for table in self.all(tables)? {
            let depth = depth.checked_sub(1).ok_or_else(too_deep)?;
            let parts = table.parts()?;
            if !parts.is_empty() {
                self.operators(parts, names, depth, found)?;
            } else {
                let name = names.get(table.operator()? as usize);
                found.push(name.ok_or_else(out_of_range)?);
            }
        }
        Ok(())
    }

    fn sizes(&mut self, sizes: Vector<'b, u64>) -> Result<Vec<usize>, Error> {
        if sizes.len() > MAX_RANK {
            return Err(Error::Invalid(format!(
                "tensor with {} dims; the limit is {MAX_RANK}",
                sizes.len()
            )));
        }
        // Shaders and kernels use 32-bit sizes.
        let size = |size: u64| i32::try_from(size).ok().and_then(|size| usize::try_from(size).ok());
        let sizes: Option<Vec<usize>> = self.all(sizes)?.into_iter().map(size).collect();
        sizes.ok_or_else(|| Error::invalid("tensor with a size above 2^31 - 1"))
    }

    fn value<'p>(
        &mut self,
        table: &ValueTable<'b>,
        named: &Named<'_, 'p>,
    ) -> Result<Value<'p>, Error> {
        Ok(match table.kind()? {
            NONE => Value::None,
            INT => Value::Int(table.int()?),
            DOUBLE => Value::Double(table.double()?),
            BOOL => Value::Bool(table.int()? != 0),
            STRING => {
                let text = table.text()?.unwrap_or("");
                self.budget.spend(text.len())?;
                Value::String(text.to_owned())
            }
            INTS => Value::IntList(self.all(table.ints()?)?),
            DOUBLES => Value::DoubleList(self.all(table.doubles()?)?),
            BOOLS => {
                Value::BoolList(self.all(table.bools()?)?.into_iter().map(|it| it != 0).collect())
            }
            LIST => Value::List(self.ids(table.ids()?)?),
            SYMBOLIC => Value::SymInt(table.int()?),
            TENSOR => Value::Tensor(self.tensor(table, named)?),
            other => return Err(Error::Invalid(format!("unknown value type {other}"))),
        })
    }

    fn tensor<'p>(
        &mut self,
        table: &ValueTable<'b>,
        named: &Named<'_, 'p>,
    ) -> Result<Tensor<'p>, Error> {
        let sizes = self.sizes(table.sizes()?)?;
        let (scalar_type, host_type) =
            (scalar_type(table.scalar_type()?)?, scalar_type(table.host_type()?)?);
        let bytes = byte_count(scalar_type, &sizes)?;
        let mut data = match table.key()? {
            Some(key) => Some(read_named(named, key, bytes)?),
            None => None,
        };
        let changes = match table.changes()? {
            UNKNOWN => None,
            STAYS => Some(false),
            CHANGES => Some(true),
            STARTS_AS_ZEROS if data.is_none() => {
                data = Some(Cow::Borrowed(&[]));
                Some(true)
            }
            other => return Err(Error::Invalid(format!("unknown mutability {other}"))),
        };
        let dynamic = table.dynamic()?;
        Ok(Tensor { scalar_type, host_type, sizes, dynamic, data, changes })
    }
}

fn too_deep() -> Error {
    Error::Invalid(format!("fused calls are nested deeper than {DEPTH} levels"))
}

fn out_of_range() -> Error {
    Error::invalid("a call's operator index is out of range")
}

fn scalar_type(number: i8) -> Result<ScalarType, Error> {
    let error = || Error::Invalid(format!("unknown dtype {number}"));
    ScalarType::from_number(number.into()).ok_or_else(error)
}

/// Returns the size of a tensor in bytes.
fn byte_count(scalar_type: ScalarType, sizes: &[usize]) -> Result<usize, Error> {
    // Zero sizes count as 1 here: loops over the other dims must not overflow either.
    let bytes = sizes.iter().try_fold(scalar_type.size(), |bytes, size| {
        bytes.checked_mul((*size).max(1)).filter(|bytes| *bytes <= isize::MAX as usize)
    });
    let bytes = bytes.ok_or_else(|| {
        Error::Invalid(format!("tensor of shape {sizes:?} exceeds the address space"))
    })?;
    Ok(if sizes.contains(&0) { 0 } else { bytes })
}
