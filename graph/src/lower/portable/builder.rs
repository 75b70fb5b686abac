//! Builder for the calls of lowered graphs.

mod tensors;

pub(super) use tensors::broadcast_sizes;

use super::numbers::whole;
use crate::budget::Computed;
use crate::error::Error;
use crate::graph::{Graph, Node, Tensor, Value, ValueId};
use crate::operators::Operator;
use alloc::borrow::Cow;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::ScalarType;
use torchlet_core::rules::{normalize_dim, normalize_index};

/// Type and shape of a tensor.
#[derive(Debug, Clone)]
pub(super) struct Info {
    pub(super) scalar_type: ScalarType,
    /// The shape, or its upper bound.
    pub(super) sizes: Vec<usize>,
    pub(super) dynamic: bool,
}

impl Info {
    pub(super) fn rank(&self) -> usize {
        self.sizes.len()
    }

    /// The size of a dim; 1 beyond the rank.
    pub(super) fn size(&self, dim: usize) -> usize {
        self.sizes.get(dim).copied().unwrap_or(1)
    }

    pub(super) fn last(&self) -> usize {
        self.sizes.last().copied().unwrap_or(1)
    }

    pub(super) fn with_type(&self, scalar_type: ScalarType) -> Self {
        Info { scalar_type, ..self.clone() }
    }

    pub(super) fn with_sizes(&self, sizes: Vec<usize>) -> Self {
        Info { sizes, ..self.clone() }
    }

    /// Normalizes a dim that may be negative.
    pub(super) fn dim(&self, dim: i64) -> Result<usize, Error> {
        normalize_dim(dim, self.rank()).ok_or_else(|| {
            Error::Invalid(format!("dim {dim} is out of range for shape {:?}", self.sizes))
        })
    }
}

/// A size, known or computed at run time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    /// Upper bound of the size.
    pub(super) bound: usize,
    pub(super) value: ValueId,
}

/// A graph whose calls are being replaced.
pub(super) struct Builder<'g, 'p> {
    graph: &'g mut Graph<'p>,
    calls: Vec<Node>,
    /// Id of the call that is being lowered, and the index of the first call that replaces it.
    id: u32,
    start: usize,
    /// Values that are replaced by others.
    renamed: BTreeMap<ValueId, ValueId>,
    /// Values that alias others: overwriting one overwrites the other.
    same: BTreeMap<ValueId, ValueId>,
    /// Graph outputs and update sources, which keep their ids.
    kept: BTreeSet<ValueId>,
    /// Dims of tensors with dynamic shapes, as far as they are known.
    varying: &'g VaryingDims,
    computed: Computed,
}

/// The dims that vary of tensors with dynamic shapes. All dims of other tensors may vary.
#[derive(Debug, Default)]
pub(crate) struct VaryingDims {
    known: BTreeMap<ValueId, Vec<bool>>,
}

impl VaryingDims {
    /// No known dims.
    pub(crate) const UNKNOWN: &'static Self = &VaryingDims { known: BTreeMap::new() };

    /// Adds a tensor: whether each of its dims varies.
    #[cfg(feature = "pt2")]
    pub(crate) fn insert(&mut self, id: ValueId, dims: Vec<bool>) {
        self.known.insert(id, dims);
    }

    fn is_fixed(&self, id: ValueId, dim: usize) -> bool {
        self.known.get(&id).is_some_and(|dims| dims.get(dim) != Some(&true))
    }
}

impl<'g, 'p> Builder<'g, 'p> {
    pub(super) fn new(graph: &'g mut Graph<'p>) -> Self {
        Self::with_dims(graph, VaryingDims::UNKNOWN, Computed::new())
    }

    pub(super) fn with_dims(
        graph: &'g mut Graph<'p>,
        varying: &'g VaryingDims,
        computed: Computed,
    ) -> Self {
        let updates = graph.updates.iter().map(|(new, _)| *new);
        let kept = graph.outputs.iter().copied().chain(updates).collect();
        let (renamed, same) = (BTreeMap::new(), BTreeMap::new());
        Builder {
            graph,
            calls: Vec::new(),
            id: 0,
            start: 0,
            renamed,
            same,
            kept,
            varying,
            computed,
        }
    }

    /// Stores the calls in the graph.
    pub(super) fn finish(self) {
        self.graph.nodes = self.calls;
        for (_, old) in &mut self.graph.updates {
            *old = self.same.get(old).copied().unwrap_or(*old);
        }
    }

    /// Applies replacements to arguments and to members of lists.
    pub(super) fn renamed(&mut self, args: &[ValueId]) -> Vec<ValueId> {
        args.iter().map(|id| self.renamed_one(*id)).collect()
    }

    fn renamed_one(&mut self, id: ValueId) -> ValueId {
        let of = |id: &ValueId| self.renamed.get(id).copied().unwrap_or(*id);
        match self.graph.values.get(id) {
            Some(Value::List(items))
                if items.iter().any(|item| self.renamed.contains_key(item)) =>
            {
                let items = items.iter().map(of).collect();
                self.push(Value::List(items))
            }
            _ => of(&id),
        }
    }

    /// Runs a rule, and discards its calls if it fails. Returns whether it succeeded. The rule must
    /// not replace values.
    pub(super) fn attempt(&mut self, rule: impl FnOnce(&mut Self) -> Result<(), Error>) -> bool {
        let made = rule(self).is_ok();
        if !made {
            self.calls.truncate(self.start);
        }
        made
    }

    /// The calls that replace the current one so far.
    pub(super) fn made(&mut self) -> &mut [Node] {
        self.calls.get_mut(self.start..).unwrap_or_default()
    }

    /// Charges the calls that replaced the current one.
    pub(super) fn charge(&self) -> Result<(), Error> {
        self.computed.spend_calls(self.calls.len().saturating_sub(self.start))
    }

    /// Adds an unchanged call.
    pub(super) fn keep(&mut self, call: Node) {
        self.calls.push(call);
    }

    /// Begins the lowering of the call with this id.
    pub(super) fn begin(&mut self, id: u32) {
        (self.id, self.start) = (id, self.calls.len());
    }

    pub(super) fn push(&mut self, value: Value<'p>) -> ValueId {
        self.graph.values.push(value);
        self.graph.values.len() - 1
    }

    pub(super) fn value(&self, id: ValueId) -> Result<&Value<'p>, Error> {
        let missing = || Error::Invalid(format!("value {id} does not exist"));
        self.graph.values.get(id).ok_or_else(missing)
    }

    /// The output of a call.
    pub(super) fn out(&self, args: &[ValueId]) -> Result<ValueId, Error> {
        args.last().copied().ok_or_else(|| Error::invalid("the call has no output argument"))
    }

    /// The outputs of a call with one or several.
    pub(super) fn outs(&self, args: &[ValueId]) -> Result<Vec<ValueId>, Error> {
        let out = self.out(args)?;
        Ok(match self.value(out)? {
            Value::List(items) => items.clone(),
            _ => vec![out],
        })
    }

    /// The first argument and the output of a call.
    pub(super) fn ends(&self, args: &[ValueId]) -> Result<(ValueId, ValueId), Error> {
        match args {
            [input, .., out] => Ok((*input, *out)),
            _ => Err(Error::Invalid(format!(
                "expected an input and an output, found {} arguments",
                args.len()
            ))),
        }
    }

    /// An argument, unless it is absent or `None`.
    pub(super) fn optional(&self, id: impl Into<Option<ValueId>>) -> Option<ValueId> {
        id.into().filter(|id| !matches!(self.value(*id), Ok(Value::None)))
    }

    /// A tensor argument with its type and shape.
    pub(super) fn tensor(&self, id: ValueId) -> Result<(ValueId, Info), Error> {
        Ok((id, self.info(id)?))
    }

    pub(super) fn info(&self, id: ValueId) -> Result<Info, Error> {
        match self.value(id)? {
            Value::Tensor(Tensor { scalar_type, sizes, dynamic, data, .. }) => Ok(Info {
                scalar_type: *scalar_type,
                sizes: sizes.clone(),
                dynamic: *dynamic && data.is_none(),
            }),
            _ => Err(Error::Invalid(format!("value {id}: expected a tensor"))),
        }
    }

    /// The type and shape of a tensor whose shape must be static.
    pub(super) fn static_info(&self, id: ValueId, what: &str) -> Result<Info, Error> {
        let info = self.info(id)?;
        match info.dynamic {
            true => Err(Error::Unsupported(format!("{what} of dynamic shapes"))),
            false => Ok(info),
        }
    }

    /// Fails for complex tensors, which rules for real numbers would compute wrongly.
    pub(super) fn refuse_complex(&self, id: ValueId, what: &str) -> Result<(), Error> {
        match self.info(id)?.scalar_type {
            ScalarType::ComplexHalf | ScalarType::ComplexFloat | ScalarType::ComplexDouble => {
                Err(Error::Unsupported(format!("{what} of complex numbers")))
            }
            _ => Ok(()),
        }
    }

    /// Whether a tensor keeps its contents between runs.
    pub(super) fn is_state(&self, id: ValueId) -> bool {
        matches!(
            self.value(id),
            Ok(Value::Tensor(Tensor { data: Some(_), changes: Some(true), .. }))
        )
    }

    /// The value of a constant integer.
    pub(super) fn int(&self, id: ValueId) -> Result<i64, Error> {
        let found = match self.value(id)? {
            Value::Int(number) => Some(*number),
            Value::Bool(truth) => Some(i64::from(*truth)),
            Value::Double(number) => whole(*number),
            _ => None,
        };
        found.ok_or_else(|| Error::Invalid(format!("value {id}: expected a constant integer")))
    }

    /// The value of a constant scalar.
    pub(super) fn number(&self, id: ValueId) -> Result<f64, Error> {
        match self.value(id)? {
            Value::Double(number) => Ok(*number),
            _ => self.int(id).map(|number| number as f64),
        }
    }

    /// The value of a constant scalar, or `None` if the argument is absent.
    pub(super) fn optional_number(
        &self,
        id: impl Into<Option<ValueId>>,
    ) -> Result<Option<f64>, Error> {
        self.optional(id).map(|id| self.number(id)).transpose()
    }

    /// A boolean, false if absent.
    pub(super) fn truth(&self, id: impl Into<Option<ValueId>>) -> Result<bool, Error> {
        Ok(self.optional_number(id)?.is_some_and(|number| number != 0.0))
    }

    /// The value of a string, or `None` if the argument is absent.
    pub(super) fn text(&self, id: impl Into<Option<ValueId>>) -> Result<Option<String>, Error> {
        let Some(id) = self.optional(id) else { return Ok(None) };
        match self.value(id)? {
            Value::String(text) => Ok(Some(text.clone())),
            _ => Err(Error::Invalid(format!("value {id}: expected a string"))),
        }
    }

    /// A list of constant integers. A single integer gives a list of one element, an absent
    /// argument an empty list.
    pub(super) fn ints(&self, id: impl Into<Option<ValueId>>) -> Result<Vec<i64>, Error> {
        let Some(id) = self.optional(id) else { return Ok(Vec::new()) };
        match self.value(id)? {
            Value::IntList(items) => Ok(items.clone()),
            Value::List(items) => items.iter().map(|item| self.int(*item)).collect(),
            _ => Ok(vec![self.int(id)?]),
        }
    }

    pub(super) fn new_int(&mut self, value: i64) -> ValueId {
        self.push(Value::Int(value))
    }

    pub(super) fn new_ints(&mut self, items: &[i64]) -> ValueId {
        self.push(Value::IntList(items.to_vec()))
    }

    /// Adds a scalar constant: an integer if the value is whole, else a float.
    pub(super) fn new_number(&mut self, number: f64) -> ValueId {
        self.push(whole(number).map_or(Value::Double(number), Value::Int))
    }

    pub(super) fn none(&mut self) -> ValueId {
        self.push(Value::None)
    }

    pub(super) fn new_tensor(&mut self, info: Info) -> ValueId {
        let Info { scalar_type, sizes, dynamic } = info;
        self.push(Value::Tensor(Tensor {
            scalar_type,
            host_type: scalar_type,
            sizes,
            dynamic,
            data: None,
            changes: None,
        }))
    }

    /// Charges memory that a rule allocates.
    pub(super) fn spend(&self, bytes: usize) -> Result<(), Error> {
        self.computed.spend(bytes)
    }

    /// Adds a constant tensor.
    ///
    /// # Errors
    /// The constants of all rules exceed the budget.
    pub(super) fn constant(
        &mut self,
        scalar_type: ScalarType,
        sizes: Vec<usize>,
        bytes: Vec<u8>,
    ) -> Result<ValueId, Error> {
        self.computed.spend(bytes.len())?;
        Ok(self.push(Value::Tensor(Tensor {
            scalar_type,
            host_type: scalar_type,
            sizes,
            dynamic: false,
            data: Some(Cow::Owned(bytes)),
            changes: Some(false),
        })))
    }

    /// Adds a call that produces `out`.
    pub(super) fn call_into(&mut self, operator: Operator, inputs: &[ValueId], out: ValueId) {
        let args = inputs.iter().copied().chain([out]).collect();
        self.calls.push(Node { id: self.id, operator, args, parts: Vec::new() });
    }

    /// Adds a call that produces a new tensor.
    pub(super) fn call(&mut self, operator: Operator, inputs: &[ValueId], made: Info) -> ValueId {
        let out = self.new_tensor(made);
        self.call_into(operator, inputs, out);
        out
    }

    /// Makes `out` the computed value, converted to the type of `out` if necessary.
    pub(super) fn finish_with(&mut self, value: ValueId, out: ValueId) -> Result<(), Error> {
        let (from, to) = (self.info(value)?, self.info(out)?);
        if from.scalar_type != to.scalar_type {
            self.cast_into(value, out);
            return Ok(());
        }
        let made = self.calls.iter().skip(self.start);
        if made.into_iter().any(|call| call.args.last() == Some(&value)) {
            for call in self.calls.iter_mut().skip(self.start) {
                call.args.iter_mut().filter(|arg| **arg == value).for_each(|arg| *arg = out);
            }
        } else {
            let none = self.none();
            self.call_into(Operator::CLONE, &[value, none], out);
        }
        Ok(())
    }

    /// Replaces the output of a call by an existing value, without computation where possible.
    pub(super) fn stand_in(&mut self, value: ValueId, out: ValueId) -> Result<(), Error> {
        self.same.insert(out, value);
        let alike = self.info(value)?.scalar_type == self.info(out)?.scalar_type;
        if alike && !self.kept.contains(&out) {
            self.renamed.insert(out, value);
            return Ok(());
        }
        self.finish_with(value, out)
    }

    fn cast_into(&mut self, value: ValueId, out: ValueId) {
        let (none, no) = (self.none(), self.push(Value::Bool(false)));
        self.call_into(Operator::TO_COPY, &[value, none, none, none, none, no, none], out);
    }

    /// Converts a tensor to another dtype.
    pub(super) fn cast(&mut self, value: ValueId, to: ScalarType) -> Result<ValueId, Error> {
        let info = self.info(value)?;
        if info.scalar_type == to {
            return Ok(value);
        }
        let out = self.new_tensor(info.with_type(to));
        self.cast_into(value, out);
        Ok(out)
    }

    /// Normalizes an index that may be negative.
    pub(super) fn index(&self, index: i64, size: usize) -> Result<usize, Error> {
        normalize_index(index, size).ok_or_else(|| {
            Error::Invalid(format!("index {index} is out of range for {size} elements"))
        })
    }

    /// The size of a dim of a tensor.
    pub(super) fn size(&mut self, id: ValueId, dim: usize) -> Result<Size, Error> {
        let info = self.info(id)?;
        let bound = info.size(dim);
        if self.is_known(id, dim) {
            return Ok(self.known(bound));
        }
        let dim = self.new_int(dim as i64);
        let value = self.push(Value::SymInt(bound as i64));
        self.call_into(Operator::SYM_SIZE_INT, &[id, dim], value);
        Ok(Size { bound, value })
    }

    /// Whether a size is the same in every run.
    pub(super) fn is_known(&self, id: ValueId, dim: usize) -> bool {
        self.varying.is_fixed(id, dim) || self.info(id).is_ok_and(|info| !info.dynamic)
    }

    /// A size that is known at compile time.
    pub(super) fn known(&mut self, size: usize) -> Size {
        Size { bound: size, value: self.new_int(size as i64) }
    }

    /// The sum of two integers, each a constant or computed at run time.
    pub(super) fn sum(&mut self, a: ValueId, b: ValueId) -> Result<ValueId, Error> {
        if let (Value::Int(a), Value::Int(b)) = (self.value(a)?, self.value(b)?) {
            let sum = a
                .checked_add(*b)
                .ok_or_else(|| Error::Invalid(format!("{a} + {b} overflows 64 bits")))?;
            return Ok(self.new_int(sum));
        }
        let sum = self.push(Value::SymInt(0));
        self.call_into(Operator::SYM_ADD, &[a, b], sum);
        Ok(sum)
    }

    /// The product of an integer, which may be computed at run time, and a constant factor.
    pub(super) fn product(&mut self, a: ValueId, factor: usize) -> Result<ValueId, Error> {
        let factor = i64::try_from(factor)
            .map_err(|_| Error::Invalid(format!("size {factor} does not fit a 64-bit integer")))?;
        if let Value::Int(a) = self.value(a)? {
            let product = a.checked_mul(factor);
            let product = product
                .ok_or_else(|| Error::Invalid(format!("{a} * {factor} overflows 64 bits")))?;
            return Ok(self.new_int(product));
        }
        let (factor, product) = (self.new_int(factor), self.push(Value::SymInt(0)));
        self.call_into(Operator::SYM_MUL, &[a, factor], product);
        Ok(product)
    }

    /// Adds a list of sizes.
    pub(super) fn sizes(&mut self, sizes: &[Size]) -> Result<ValueId, Error> {
        let mut known = Vec::new();
        for size in sizes {
            match self.value(size.value)? {
                Value::Int(number) => known.push(*number),
                _ => break,
            }
        }
        Ok(self.push(if known.len() == sizes.len() {
            Value::IntList(known)
        } else {
            Value::List(sizes.iter().map(|size| size.value).collect())
        }))
    }
}
