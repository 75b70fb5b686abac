//! Builder for a graph of ATen and TOSA calls from the instructions of a SPIR-V graph.

use super::spirv::{Call, Data, Id, Module, TensorType, Type};
use crate::error::Error;
use crate::graph::{Graph, Node, Tensor, Value, ValueId};
use crate::operators::Operator;
use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::ScalarType;

/// The instructions of a segment under translation.
pub(super) struct Builder<'b, 'p> {
    pub(super) module: &'b Module,
    graph: &'b mut Graph<'p>,
    /// Contents of the module's graph constants, by number.
    outside: BTreeMap<u32, &'p [u8]>,
    /// Tensors, by the id of their result. A result that is a structure has several.
    values: BTreeMap<Id, Vec<ValueId>>,
    /// Id of the node under construction.
    number: u32,
    /// Bytes that constants outside the file's constants may still have.
    left: &'b mut usize,
}

/// Limit on the bytes of constants that the file states in fewer bytes, or that translation adds.
pub(super) const MAX_OWN_BYTES: usize = 1 << 28;

impl<'b, 'p> Builder<'b, 'p> {
    pub(super) fn new(
        module: &'b Module,
        graph: &'b mut Graph<'p>,
        outside: BTreeMap<u32, &'p [u8]>,
        left: &'b mut usize,
    ) -> Self {
        Builder { module, graph, outside, values: BTreeMap::new(), number: 0, left }
    }

    /// Gives the following calls the id of an instruction.
    pub(super) fn begin(&mut self, id: Id) {
        self.number = id;
    }

    /// Defines the result of an instruction.
    ///
    /// # Errors
    /// It is defined already.
    pub(super) fn define(&mut self, id: Id, values: Vec<ValueId>) -> Result<(), Error> {
        match self.values.insert(id, values) {
            None if !self.module.is_constant(id) => Ok(()),
            _ => Err(Error::Invalid(format!("SPIR-V: id {id} is defined twice"))),
        }
    }

    /// The items of a result that is a structure.
    pub(super) fn items(&self, id: Id) -> Result<&[ValueId], Error> {
        let found = self.values.get(&id).map(Vec::as_slice);
        found
            .ok_or_else(|| Error::Invalid(format!("SPIR-V: id {id} is read before it is computed")))
    }

    /// The tensor of an operand: a result, or a constant.
    pub(super) fn read(&mut self, id: Id) -> Result<ValueId, Error> {
        if !self.module.is_constant(id) || self.values.contains_key(&id) {
            let [value] = self.items(id)? else {
                return Err(Error::Invalid(format!("SPIR-V: id {id}: expected one tensor")));
            };
            return Ok(*value);
        }
        let of = self.module.constant_type(id)?.clone();
        let data = match self.module.data(id)? {
            Data::Bytes(bytes) => Cow::Owned(bytes),
            Data::Outside(number) => Cow::Borrowed(self.outside(number, &of)?),
        };
        let value = self.constant(&of, data)?;
        self.values.insert(id, vec![value]);
        Ok(value)
    }

    /// A constant of the container, of the size that its type has.
    fn outside(&self, number: u32, of: &TensorType) -> Result<&'p [u8], Error> {
        let found = self.outside.get(&number).copied();
        let found = found.ok_or_else(|| {
            Error::Invalid(format!("graph constant {number} is not bound to a constant"))
        })?;
        let size = of.numel().and_then(|numel| numel.checked_mul(of.scalar_type.size()));
        if size != Some(found.len()) {
            return Err(Error::Invalid(format!(
                "graph constant {number}: expected {} values of {}, found {} bytes",
                of.numel().unwrap_or(0),
                of.scalar_type.name(),
                found.len()
            )));
        }
        Ok(found)
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
    ///
    /// # Errors
    /// All constants that are not borrowed are too large.
    pub(super) fn constant(
        &mut self,
        of: &TensorType,
        data: Cow<'p, [u8]>,
    ) -> Result<ValueId, Error> {
        if let Cow::Owned(data) = &data {
            let left = self.left.checked_sub(data.len());
            let too_many = || Error::unsupported("constants of more than 256 MiB in the code");
            *self.left = left.ok_or_else(too_many)?;
        }
        Ok(self.push(Value::Tensor(Tensor {
            scalar_type: of.scalar_type,
            host_type: of.scalar_type,
            sizes: of.sizes.clone(),
            dynamic: false,
            data: Some(data),
            changes: Some(false),
        })))
    }

    pub(super) fn new_tensor(&mut self, scalar_type: ScalarType, sizes: &[usize]) -> ValueId {
        self.push(Value::Tensor(Tensor {
            scalar_type,
            host_type: scalar_type,
            sizes: sizes.to_vec(),
            dynamic: false,
            data: None,
            changes: None,
        }))
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

    /// The declared type of a call's result.
    pub(super) fn result(&self, call: &Call) -> Result<TensorType, Error> {
        self.module.tensor(call.result_type).cloned()
    }

    /// The declared types of a call's results.
    pub(super) fn results(&self, call: &Call) -> Result<Vec<TensorType>, Error> {
        match self.module.type_of(call.result_type)? {
            Type::Struct(items) => {
                items.iter().map(|id| self.module.tensor(*id).cloned()).collect()
            }
            _ => Ok(vec![self.result(call)?]),
        }
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
