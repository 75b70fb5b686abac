//! Graph under construction: its calls, and their arguments.

use super::spirv::TensorType;
use crate::budget::Computed;
use crate::error::Error;
use crate::graph::{Graph, Node, Tensor, Value, ValueId};
use crate::operators::Operator;
use alloc::borrow::Cow;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec::Vec;
use torchlet_core::ScalarType;

/// A graph under construction.
pub(super) struct Calls<'p> {
    graph: Graph<'p>,
    /// Id of the node under construction.
    number: u32,
    /// Inputs and outputs so far.
    given: BTreeSet<ValueId>,
    computed: Computed,
}

impl<'p> Calls<'p> {
    pub(super) fn new(computed: Computed) -> Self {
        Calls { graph: Graph::default(), number: 0, given: BTreeSet::new(), computed }
    }

    pub(super) fn finish(self) -> Graph<'p> {
        self.graph
    }

    /// Adds an input.
    pub(super) fn input(&mut self, tensor: Tensor<'p>) -> ValueId {
        let id = self.push(Value::Tensor(tensor));
        self.graph.inputs.push(id);
        self.given.insert(id);
        id
    }

    /// Adds an output. Inputs, constants and earlier outputs are copied: each output has a value of
    /// its own.
    pub(super) fn output(&mut self, value: ValueId) -> Result<(), Error> {
        let is_taken = !self.given.insert(value);
        let value = match is_taken || self.tensor(value)?.data.is_some() {
            true => {
                let none = self.none();
                self.same(Operator::CLONE, &[value, none])?
            }
            false => value,
        };
        self.graph.outputs.push(value);
        Ok(())
    }

    /// Gives the following calls the id of an instruction.
    pub(super) fn begin(&mut self, id: u32) {
        self.number = id;
    }

    pub(super) fn push(&mut self, value: Value<'p>) -> ValueId {
        self.graph.values.push(value);
        self.graph.values.len() - 1
    }

    pub(super) fn int(&mut self, value: i64) -> ValueId {
        self.push(Value::Int(value))
    }

    pub(super) fn ints(&mut self, items: &[i64]) -> ValueId {
        self.push(Value::IntList(items.to_vec()))
    }

    pub(super) fn flag(&mut self, value: bool) -> ValueId {
        self.push(Value::Bool(value))
    }

    pub(super) fn none(&mut self) -> ValueId {
        self.push(Value::None)
    }

    /// A scalar argument of the kind that fits a dtype.
    pub(super) fn scalar(&mut self, of: ScalarType, value: f64) -> ValueId {
        match of.is_floating() {
            true => self.push(Value::Double(value)),
            // Integers of TOSA's attributes fit into 53 bits.
            false => self.int(value as i64),
        }
    }

    /// Adds a constant.
    pub(super) fn constant(&mut self, of: &TensorType, data: Cow<'p, [u8]>) -> ValueId {
        self.push(Value::Tensor(Tensor {
            data: Some(data),
            changes: Some(false),
            ..described(of.scalar_type, &of.sizes)
        }))
    }

    /// Adds a constant whose contents are computed.
    ///
    /// # Errors
    /// All computed constants of the program are too large together.
    pub(super) fn computed(
        &mut self,
        of: &TensorType,
        contents: impl FnOnce() -> Result<Vec<u8>, Error>,
    ) -> Result<ValueId, Error> {
        self.computed.spend(of.bytes().unwrap_or(usize::MAX))?;
        let data = contents()?;
        Ok(self.constant(of, Cow::Owned(data)))
    }

    pub(super) fn new_tensor(&mut self, scalar_type: ScalarType, sizes: &[usize]) -> ValueId {
        self.push(Value::Tensor(described(scalar_type, sizes)))
    }

    pub(super) fn tensor(&self, id: ValueId) -> Result<&Tensor<'p>, Error> {
        let found = self.graph.tensor(id);
        found.ok_or_else(|| Error::Invalid(format!("value {id}: expected a tensor")))
    }

    pub(super) fn scalar_type(&self, id: ValueId) -> Result<ScalarType, Error> {
        Ok(self.tensor(id)?.scalar_type)
    }

    pub(super) fn sizes(&self, id: ValueId) -> Result<Vec<usize>, Error> {
        Ok(self.tensor(id)?.sizes.clone())
    }

    /// Adds a call that writes `out`.
    pub(super) fn call_into(&mut self, operator: Operator, inputs: &[ValueId], out: ValueId) {
        let args = inputs.iter().copied().chain([out]).collect();
        self.graph.nodes.push(Node { id: self.number, ..Node::new(operator, args) });
    }

    /// Adds a call that returns a new tensor.
    pub(super) fn call(
        &mut self,
        operator: Operator,
        inputs: &[ValueId],
        scalar_type: ScalarType,
        sizes: &[usize],
    ) -> ValueId {
        let out = self.new_tensor(scalar_type, sizes);
        self.call_into(operator, inputs, out);
        out
    }

    /// Adds a call that returns a tensor with the dtype and shape of its first input.
    pub(super) fn same(
        &mut self,
        operator: Operator,
        inputs: &[ValueId],
    ) -> Result<ValueId, Error> {
        let first = inputs.first().copied().unwrap_or(ValueId::MAX);
        let (scalar_type, sizes) = (self.scalar_type(first)?, self.sizes(first)?);
        Ok(self.call(operator, inputs, scalar_type, &sizes))
    }

    pub(super) fn cast(&mut self, value: ValueId, to: ScalarType) -> Result<ValueId, Error> {
        let tensor = self.tensor(value)?;
        if tensor.scalar_type == to {
            return Ok(value);
        }
        let sizes = tensor.sizes.clone();
        let (none, no) = (self.none(), self.flag(false));
        Ok(self.call(Operator::TO_COPY, &[value, none, none, none, none, no, none], to, &sizes))
    }

    pub(super) fn permute(&mut self, value: ValueId, order: &[usize]) -> Result<ValueId, Error> {
        let from = self.sizes(value)?;
        let sizes: Option<Vec<usize>> = order.iter().map(|dim| from.get(*dim).copied()).collect();
        let sizes = sizes.filter(|sizes| sizes.len() == from.len());
        let sizes = sizes.ok_or_else(|| {
            Error::Invalid(format!("the shape {from:?} has no permutation {order:?}"))
        })?;
        let order: Vec<i64> = order.iter().map(|dim| *dim as i64).collect();
        let (order, scalar_type) = (self.ints(&order), self.scalar_type(value)?);
        Ok(self.call(Operator::PERMUTE_COPY, &[value, order], scalar_type, &sizes))
    }

    pub(super) fn view(&mut self, value: ValueId, sizes: &[usize]) -> Result<ValueId, Error> {
        let tensor = self.tensor(value)?;
        if tensor.sizes == sizes {
            return Ok(value);
        }
        let scalar_type = tensor.scalar_type;
        let list: Vec<i64> = sizes.iter().map(|size| *size as i64).collect();
        let list = self.ints(&list);
        Ok(self.call(Operator::VIEW_COPY, &[value, list], scalar_type, sizes))
    }

    pub(super) fn expand(&mut self, value: ValueId, sizes: &[usize]) -> Result<ValueId, Error> {
        let tensor = self.tensor(value)?;
        if tensor.sizes == sizes {
            return Ok(value);
        }
        let scalar_type = tensor.scalar_type;
        let list: Vec<i64> = sizes.iter().map(|size| *size as i64).collect();
        let (list, no) = (self.ints(&list), self.flag(false));
        Ok(self.call(Operator::EXPAND_COPY, &[value, list, no], scalar_type, sizes))
    }

    /// Pads dims with a value; `pad` has the sizes before and after each dim, from the first on.
    pub(super) fn pad(
        &mut self,
        value: ValueId,
        pad: &[[i64; 2]],
        with: f64,
    ) -> Result<ValueId, Error> {
        if pad.iter().all(|ends| *ends == [0, 0]) {
            return Ok(value);
        }
        let (of, mut sizes) = (self.scalar_type(value)?, self.sizes(value)?);
        let fits = sizes.len() == pad.len();
        for (size, [before, after]) in sizes.iter_mut().zip(pad) {
            let padded = i64::try_from(*size).ok().and_then(|size| size.checked_add(*before));
            let padded = padded.and_then(|size| size.checked_add(*after));
            let padded = padded.and_then(|size| usize::try_from(size).ok());
            *size = padded.ok_or_else(|| Error::invalid("a padded size is out of range"))?;
        }
        if !fits {
            return Err(Error::invalid("padding for another rank"));
        }
        let list: Vec<i64> = pad.iter().rev().flatten().copied().collect();
        let list = self.ints(&list);
        let with = match of {
            ScalarType::Bool => self.flag(with != 0.0),
            _ => self.scalar(of, with),
        };
        Ok(self.call(Operator::CONSTANT_PAD_ND, &[value, list, with], of, &sizes))
    }

    /// `other` where a float is NaN.
    pub(super) fn replace_nan(&mut self, value: ValueId, other: f64) -> Result<ValueId, Error> {
        let (of, sizes) = (self.scalar_type(value)?, self.sizes(value)?);
        let is_nan = self.call(Operator::ISNAN, &[value], ScalarType::Bool, &sizes);
        let (one, fill, none) = (self.ints(&[1]), self.scalar(of, other), self.none());
        let inputs = [one, fill, none, none, none, none];
        let other = self.call(Operator::FULL, &inputs, of, &[1]);
        Ok(self.call(Operator::WHERE_SELF, &[is_nan, other, value], of, &sizes))
    }
}

fn described(scalar_type: ScalarType, sizes: &[usize]) -> Tensor<'static> {
    Tensor {
        scalar_type,
        host_type: scalar_type,
        sizes: sizes.to_vec(),
        dynamic: false,
        data: None,
        changes: None,
    }
}
