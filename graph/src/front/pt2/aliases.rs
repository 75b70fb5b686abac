//! Tensors that share memory, made functional.
//!
//! A program before functionalization writes to tensors in place, through views as well. Each
//! memory (`Base`) has a value, which a write replaces. A view (`Alias`) knows how it is computed
//! from its parent. Reading a view after a write computes it again; a write to a view is carried
//! over to its base with the inverse of each step (`slice_scatter` for `slice` and so on).

use crate::error::Error;
use crate::graph::{Graph, Node, Tensor, Value, ValueId};
use crate::operators::Operator;
use crate::operators::views::WriteBack;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

/// Views with several outputs, which are not computed again one by one. Those of fixed shapes are
/// slices instead.
pub(super) const PARTS: &[Operator] = &[
    Operator::SPLIT_COPY_TENSOR,
    Operator::SPLIT_WITH_SIZES_COPY,
    Operator::CHUNK,
    Operator::TENSOR_SPLIT,
    Operator::TENSOR_SPLIT_INDICES,
    Operator::HSPLIT_ARRAY,
    Operator::HSPLIT_INT,
    Operator::VSPLIT_ARRAY,
    Operator::VSPLIT_INT,
    Operator::DSPLIT_ARRAY,
    Operator::DSPLIT_INT,
];

/// Index of a tensor of the program.
pub(super) type AliasId = usize;

/// All tensors of a program.
#[derive(Default)]
pub(super) struct Aliases {
    bases: Vec<Base>,
    aliases: Vec<Alias>,
    /// Number of the current call.
    pub(super) number: u32,
}

struct Base {
    /// The tensor that has all of the memory.
    whole: AliasId,
    /// Number of writes so far.
    version: u32,
}

struct Alias {
    base: usize,
    /// The tensor that this one is a view of, and how.
    view: Option<(AliasId, View)>,
    value: ValueId,
    /// The version of the base that `value` belongs to.
    version: u32,
}

/// A view: a call, without its input and its output.
#[derive(Clone)]
pub(super) struct View {
    pub(super) operator: Operator,
    pub(super) rest: Vec<ValueId>,
}

impl Aliases {
    /// Adds a tensor with memory of its own.
    pub(super) fn add(&mut self, value: ValueId) -> AliasId {
        let whole = self.aliases.len();
        let base = self.bases.len();
        self.bases.push(Base { whole, version: 0 });
        self.aliases.push(Alias { base, view: None, value, version: 0 });
        whole
    }

    /// Adds a view of a tensor.
    pub(super) fn add_view(&mut self, parent: AliasId, view: View, value: ValueId) -> AliasId {
        let Some(Alias { base, .. }) = self.aliases.get(parent) else { return self.add(value) };
        let (base, version) = (*base, self.version(*base));
        self.aliases.push(Alias { base, view: Some((parent, view)), value, version });
        self.aliases.len() - 1
    }

    fn version(&self, base: usize) -> u32 {
        self.bases.get(base).map_or(0, |base| base.version)
    }

    fn alias(&self, id: AliasId) -> Result<&Alias, Error> {
        self.aliases.get(id).ok_or_else(|| Error::invalid("a tensor does not exist"))
    }

    /// Whether a tensor with memory of its own was written to.
    pub(super) fn is_written(&self, id: AliasId) -> bool {
        self.writes(id) > 0
    }

    /// Number of writes to the memory of a tensor so far.
    pub(super) fn writes(&self, id: AliasId) -> u32 {
        self.aliases.get(id).map_or(0, |alias| self.version(alias.base))
    }

    /// Returns the current value of a tensor.
    pub(super) fn read(&mut self, graph: &mut Graph<'_>, id: AliasId) -> Result<ValueId, Error> {
        // The views between the tensor and the nearest up-to-date one.
        let mut stale = Vec::new();
        let mut at = id;
        loop {
            let alias = self.alias(at)?;
            match &alias.view {
                Some((parent, _)) if alias.version != self.version(alias.base) => {
                    stale.push(at);
                    at = *parent;
                }
                _ => break,
            }
        }
        let mut value = self.alias(at)?.value;
        for id in stale.into_iter().rev() {
            let alias = self.alias(id)?;
            let version = self.version(alias.base);
            let Some((_, view)) = &alias.view else { continue };
            if PARTS.contains(&view.operator) {
                return Err(Error::Unsupported(format!(
                    "a part by {} of a tensor that is overwritten",
                    view.operator.name()
                )));
            }
            let out = like(graph, alias.value);
            call(graph, self.number, view.operator, &[&[value], &view.rest[..]].concat(), out);
            value = out;
            if let Some(alias) = self.aliases.get_mut(id) {
                (alias.value, alias.version) = (value, version);
            }
        }
        Ok(value)
    }

    /// Replaces the value of a tensor, and of all that share its memory.
    pub(super) fn write(
        &mut self,
        graph: &mut Graph<'_>,
        id: AliasId,
        value: ValueId,
    ) -> Result<(), Error> {
        let (mut at, mut new) = (id, value);
        while let Some((parent, view)) = self.alias(at)?.view.clone() {
            let old = self.read(graph, parent)?;
            new = written(graph, self.number, old, &view, new)?;
            at = parent;
        }
        let base = self.alias(at)?.base;
        if let Some(base) = self.bases.get_mut(base) {
            base.version = base.version.saturating_add(1);
        }
        let version = self.version(base);
        let whole = self.bases.get(base).map(|base| base.whole);
        for (at, new) in whole.map(|whole| (whole, new)).into_iter().chain([(id, value)]) {
            if let Some(alias) = self.aliases.get_mut(at) {
                (alias.value, alias.version) = (new, version);
            }
        }
        Ok(())
    }
}

/// Adds a value for a tensor of the dtype and shape of another.
pub(super) fn like(graph: &mut Graph<'_>, value: ValueId) -> ValueId {
    let new = match graph.values.get(value) {
        Some(Value::Tensor(tensor)) => {
            let (scalar_type, dynamic) = (tensor.scalar_type, tensor.dynamic);
            let sizes = tensor.sizes.clone();
            let host_type = scalar_type;
            Value::Tensor(Tensor {
                scalar_type,
                host_type,
                sizes,
                dynamic,
                data: None,
                changes: None,
            })
        }
        _ => Value::None,
    };
    push(graph, new)
}

pub(super) fn push<'p>(graph: &mut Graph<'p>, value: Value<'p>) -> ValueId {
    graph.values.push(value);
    graph.values.len() - 1
}

fn call(graph: &mut Graph<'_>, id: u32, operator: Operator, inputs: &[ValueId], out: ValueId) {
    let args = inputs.iter().copied().chain([out]).collect();
    graph.nodes.push(Node { id, operator, args, parts: Vec::new() });
}

/// Returns `old` with the elements that a view of it selects replaced by `new`.
fn written(
    graph: &mut Graph<'_>,
    id: u32,
    old: ValueId,
    view: &View,
    new: ValueId,
) -> Result<ValueId, Error> {
    let rank = graph.tensor(old).map_or(0, |tensor| tensor.sizes.len());
    let write_back = WriteBack::of(view.operator, rank, |argument| {
        let id = view.rest.get(argument.checked_sub(1)?)?;
        match graph.values.get(*id) {
            Some(Value::Int(dim)) => Some(vec![*dim]),
            Some(Value::IntList(dims)) => Some(dims.clone()),
            _ => None,
        }
    });
    let dtype = |id: ValueId| graph.tensor(id).map(|tensor| tensor.scalar_type);
    let write_back = match write_back {
        Some(WriteBack::Reshape) if !has_as_many(graph, old, new) => None,
        // The real part of a real tensor is the tensor itself.
        None if view.operator == Operator::REAL && dtype(old) == dtype(new) => {
            Some(WriteBack::Reshape)
        }
        other => other,
    };
    let out = like(graph, old);
    match write_back {
        Some(WriteBack::Scatter(scatter)) => {
            call(graph, id, scatter, &[&[old, new], &view.rest[..]].concat(), out);
        }
        Some(WriteBack::Permute(order)) => {
            let dims = push(graph, Value::IntList(order));
            call(graph, id, Operator::PERMUTE_COPY, &[new, dims], out);
        }
        Some(WriteBack::Reshape) => {
            let sizes = sizes(graph, id, old);
            call(graph, id, Operator::VIEW_COPY, &[new, sizes], out);
        }
        None => {
            let view = view.operator.name();
            return Err(Error::Unsupported(format!("a write through a view by {view}")));
        }
    }
    Ok(out)
}

/// Whether two tensors have equally many elements.
fn has_as_many(graph: &Graph<'_>, one: ValueId, other: ValueId) -> bool {
    let count = |id: ValueId| -> Option<usize> {
        graph.tensor(id)?.sizes.iter().try_fold(1usize, |count, size| count.checked_mul(*size))
    };
    count(one).is_some() && count(one) == count(other)
}

/// Returns the sizes of a tensor as a list.
fn sizes(graph: &mut Graph<'_>, number: u32, id: ValueId) -> ValueId {
    let Some(tensor) = graph.tensor(id) else { return push(graph, Value::None) };
    let bounds: Vec<i64> = tensor.sizes.iter().map(|size| *size as i64).collect();
    if !tensor.dynamic {
        return push(graph, Value::IntList(bounds));
    }
    let mut list = Vec::new();
    for (dim, bound) in bounds.into_iter().enumerate() {
        let dim = push(graph, Value::Int(dim as i64));
        let size = push(graph, Value::SymInt(bound));
        call(graph, number, Operator::SYM_SIZE_INT, &[id, dim], size);
        list.push(size);
    }
    push(graph, Value::List(list))
}
