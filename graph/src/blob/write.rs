//! Serializes graphs.

use super::{
    BOOL, BOOLS, CHANGES, DEPTH, DOUBLE, DOUBLES, IDENTIFIER, INT, INTS, LIST, NONE,
    STARTS_AS_ZEROS, STAYS, STRING, SYMBOLIC, TENSOR, UNKNOWN,
};
use crate::error::Error;
use crate::graph::{Graph, Node, Tensor, Value, ValueId};
use crate::named::Constants;
use crate::operators::Operator;
use crate::tables::{Offset, table};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;
use flatbuffers::{FlatBufferBuilder, ForwardsUOffset, TableFinishedWIPOffset, Vector, WIPOffset};

/// Maximum size of a graph in bytes, without its constants: half the limit of flatbuffers.
const LARGEST: usize = 1 << 30;

/// Serializes a graph. The graph's constants become named data.
///
/// # Errors
/// The graph is too large.
pub fn write<'p>(graph: Graph<'p>, constants: &mut Constants<'p>) -> Result<Vec<u8>, Error> {
    let mut nodes = graph.nodes.iter().map(|node| size_of_node(node, DEPTH));
    let nodes = nodes.try_fold(0usize, |sum, node| sum.checked_add(node?));
    let values = graph.values.iter().map(size_of_value).fold(0, usize::saturating_add);
    let names = graph.names.values().map(|name| name.len().saturating_add(32));
    let values = names.fold(values, usize::saturating_add);
    if nodes.is_none_or(|nodes| nodes.saturating_add(values) > LARGEST) {
        return Err(Error::Invalid(format!(
            "a graph exceeds {LARGEST} bytes without its constants, or {DEPTH} levels of fused \
             calls"
        )));
    }
    let mut writer = Writer { b: FlatBufferBuilder::new(), operators: BTreeMap::new() };
    let mut values = Vec::with_capacity(graph.values.len());
    for value in graph.values {
        values.push(writer.value(value, constants)?);
    }
    let values = writer.b.create_vector(&values);
    let nodes = writer.nodes(&graph.nodes)?;
    let (inputs, outputs) = (writer.ids(&graph.inputs)?, writer.ids(&graph.outputs)?);
    let updates: Vec<ValueId> = graph.updates.iter().flat_map(|(new, old)| [*new, *old]).collect();
    let updates = writer.ids(&updates)?;
    let mut names: Vec<(u32, Operator)> =
        writer.operators.iter().map(|(operator, place)| (*place, *operator)).collect();
    names.sort_unstable();
    let names = names.iter().map(|(_, operator)| {
        let name = writer.b.create_string(operator.name());
        table(&mut writer.b, |t| t.offset(0, name))
    });
    let names: Vec<Offset> = names.collect();
    let names = writer.b.create_vector(&names);
    let named: Vec<Offset> =
        graph.names.iter().map(|(id, name)| writer.name(*id, name)).collect::<Result<_, _>>()?;
    let named = writer.b.create_vector(&named);
    let root = table(&mut writer.b, |t| {
        t.offset(0, names);
        t.offset(1, nodes);
        t.offset(2, values);
        t.offset(3, inputs);
        t.offset(4, outputs);
        t.offset(5, updates);
        t.offset(6, named);
    });
    writer.b.finish(root, Some(IDENTIFIER));
    Ok(writer.b.finished_data().to_vec())
}

/// Estimates the size of a call in bytes; `None` if fused calls are nested too deep.
fn size_of_node(node: &Node, depth: usize) -> Option<usize> {
    let depth = depth.checked_sub(1)?;
    let own = 32usize.saturating_add(node.args.len().saturating_mul(4));
    node.parts.iter().try_fold(own, |sum, part| sum.checked_add(size_of_node(part, depth)?))
}

fn size_of_value(value: &Value<'_>) -> usize {
    let items = match value {
        Value::String(text) => text.len(),
        Value::IntList(items) => items.len(),
        Value::DoubleList(items) => items.len(),
        Value::BoolList(items) => items.len(),
        Value::List(items) => items.len(),
        Value::Tensor(tensor) => tensor.sizes.len() + 16,
        Value::None | Value::Int(_) | Value::Double(_) | Value::Bool(_) | Value::SymInt(_) => 0,
    };
    items.saturating_mul(8).saturating_add(32)
}

struct Writer {
    b: FlatBufferBuilder<'static>,
    /// Index of each operator that is called.
    operators: BTreeMap<Operator, u32>,
}

impl Writer {
    fn ids(&mut self, ids: &[ValueId]) -> Result<WIPOffset<Vector<'static, u32>>, Error> {
        let ids: Result<Vec<u32>, _> = ids.iter().map(|id| u32::try_from(*id)).collect();
        let ids = ids.map_err(|_| Error::invalid("a graph has more than 2^32 values"))?;
        Ok(self.b.create_vector(&ids))
    }

    /// Writes the name of a value.
    fn name(&mut self, id: ValueId, name: &str) -> Result<Offset, Error> {
        let id =
            u32::try_from(id).map_err(|_| Error::invalid("a graph has more than 2^32 values"))?;
        let name = self.b.create_string(name);
        Ok(table(&mut self.b, |t| {
            t.offset(1, name);
            t.scalar(0, id);
        }))
    }

    fn nodes(
        &mut self,
        nodes: &[Node],
    ) -> Result<WIPOffset<Vector<'static, ForwardsUOffset<TableFinishedWIPOffset>>>, Error> {
        let mut tables = Vec::with_capacity(nodes.len());
        for node in nodes {
            let next = self.operators.len() as u32;
            let operator = *self.operators.entry(node.operator).or_insert(next);
            let args = self.ids(&node.args)?;
            let parts = if node.parts.is_empty() { None } else { Some(self.nodes(&node.parts)?) };
            tables.push(table(&mut self.b, |t| {
                t.offset(1, args);
                if let Some(parts) = parts {
                    t.offset(3, parts);
                }
                t.scalar(0, operator);
                t.scalar(2, node.id);
            }));
        }
        Ok(self.b.create_vector(&tables))
    }

    fn value<'p>(
        &mut self,
        value: Value<'p>,
        constants: &mut Constants<'p>,
    ) -> Result<Offset, Error> {
        let b = &mut self.b;
        Ok(match value {
            Value::None => table(b, |t| t.scalar(0, NONE)),
            Value::Int(value) => table(b, |t| {
                t.scalar(1, value);
                t.scalar(0, INT);
            }),
            Value::SymInt(value) => table(b, |t| {
                t.scalar(1, value);
                t.scalar(0, SYMBOLIC);
            }),
            Value::Bool(value) => table(b, |t| {
                t.scalar(1, i64::from(value));
                t.scalar(0, BOOL);
            }),
            Value::Double(value) => table(b, |t| {
                t.double(2, value);
                t.scalar(0, DOUBLE);
            }),
            Value::String(text) => {
                let text = b.create_string(&text);
                Self::holding(b, 3, text, STRING)
            }
            Value::IntList(items) => {
                let items = b.create_vector(&items);
                Self::holding(b, 4, items, INTS)
            }
            Value::DoubleList(items) => {
                let items = b.create_vector(&items);
                Self::holding(b, 5, items, DOUBLES)
            }
            Value::BoolList(items) => {
                let items = b.create_vector(&items);
                Self::holding(b, 6, items, BOOLS)
            }
            Value::List(items) => {
                let items = self.ids(&items)?;
                Self::holding(&mut self.b, 7, items, LIST)
            }
            Value::Tensor(tensor) => self.tensor(tensor, constants),
        })
    }

    /// Writes a value whose contents are in one field.
    fn holding<T>(
        b: &mut FlatBufferBuilder<'static>,
        field: u16,
        contents: WIPOffset<T>,
        kind: u8,
    ) -> Offset {
        table(b, |t| {
            t.offset(field, contents);
            t.scalar(0, kind);
        })
    }

    fn tensor<'p>(&mut self, tensor: Tensor<'p>, constants: &mut Constants<'p>) -> Offset {
        let sizes: Vec<u64> = tensor.sizes.iter().map(|size| *size as u64).collect();
        let sizes = self.b.create_vector(&sizes);
        let is_empty = tensor.data.as_ref().is_some_and(|data| data.is_empty());
        let changes = match tensor.changes {
            None => UNKNOWN,
            Some(false) => STAYS,
            Some(true) if is_empty => STARTS_AS_ZEROS,
            Some(true) => CHANGES,
        };
        let data = tensor.data.filter(|_| changes != STARTS_AS_ZEROS);
        let key = data.map(|data| self.b.create_string(constants.add(data)));
        table(&mut self.b, |t| {
            t.offset(8, sizes);
            if let Some(key) = key {
                t.offset(9, key);
            }
            t.scalar(0, TENSOR);
            t.scalar(10, tensor.scalar_type as i8);
            t.scalar(11, tensor.host_type as i8);
            t.scalar(12, tensor.dynamic);
            t.scalar(13, changes);
        })
    }
}
