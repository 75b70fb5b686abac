//! Builder for a graph of ATen calls over the values that the blob describes.

use super::rows;
use super::values::{self, Coding, Described};
use crate::error::Error;
use crate::graph::{Graph, Node, Tensor, Value, ValueId};
use crate::operators::Operator;
use alloc::borrow::Cow;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::vec::Vec;
use torchlet_core::ScalarType;

/// A graph under construction. Its first values are those of the blob, in order.
pub(super) struct Builder<'p> {
    graph: Graph<'p>,
    codings: Vec<Coding<'p>>,
    /// Dequantized tensors, by the quantized value; added on demand.
    numbers: BTreeMap<ValueId, ValueId>,
    /// The values of `numbers`.
    asked: BTreeSet<ValueId>,
    /// Values of the blob that are already computed or constant.
    known: BTreeSet<ValueId>,
    /// Values of the blob that are arguments of the delegate call.
    arguments: BTreeSet<ValueId>,
    /// Whether fp32 data converts losslessly to 16 bits, by address, length, and whether the target
    /// is fp16 (rather than bf16).
    lossless: BTreeMap<(usize, usize, bool), bool>,
    /// Number of bytes scanned for `lossless`.
    looked: u64,
    /// Whether shapes are upper bounds.
    dynamic: bool,
    /// Id of the node under construction.
    number: u32,
}

/// Range of int8 values.
const LOWEST: i64 = -128;
const HIGHEST: i64 = 127;

/// Output clamp (fused activation) of a call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Limits {
    pub(super) low: f32,
    pub(super) high: f32,
}

impl<'p> Builder<'p> {
    pub(super) fn new(described: Vec<Described<'p>>, dynamic: bool) -> Self {
        let mut builder = Builder {
            graph: Graph::default(),
            codings: Vec::new(),
            numbers: BTreeMap::new(),
            asked: BTreeSet::new(),
            known: BTreeSet::new(),
            arguments: BTreeSet::new(),
            lossless: BTreeMap::new(),
            looked: 0,
            dynamic,
            number: 0,
        };
        for (id, Described { mut tensor, coding, external }) in described.into_iter().enumerate() {
            tensor.dynamic &= dynamic;
            if external.is_some() {
                builder.arguments.insert(id);
            }
            if tensor.data.is_some() {
                builder.known.insert(id);
            }
            builder.graph.values.push(Value::Tensor(tensor));
            builder.codings.push(coding);
        }
        builder
    }

    pub(super) fn finish(self) -> Graph<'p> {
        self.graph
    }

    /// Gives the following calls the node id of a call of the blob.
    pub(super) fn begin(&mut self, number: u32) {
        self.number = number;
    }

    pub(super) fn is_dynamic(&self) -> bool {
        self.dynamic
    }

    /// Marks a value of the blob as computed.
    ///
    /// # Errors
    /// The value is computed or constant already.
    pub(super) fn define(&mut self, id: ValueId) -> Result<(), Error> {
        let is_new = self.known.insert(id);
        is_new.then_some(()).ok_or_else(|| Error::Invalid(format!("value {id} is written twice")))
    }

    /// Whether a value of the blob is computed or constant.
    pub(super) fn is_known(&self, id: ValueId) -> bool {
        self.known.contains(&id)
    }

    pub(super) fn push(&mut self, value: Value<'p>) -> ValueId {
        self.graph.values.push(value);
        self.graph.values.len() - 1
    }

    pub(super) fn int(&mut self, value: i64) -> ValueId {
        self.push(Value::Int(value))
    }

    pub(super) fn ints(&mut self, items: impl IntoIterator<Item = usize>) -> ValueId {
        // Sizes fit into 32 bits.
        let items = items.into_iter().map(|item| item as i64).collect();
        self.push(Value::IntList(items))
    }

    pub(super) fn none(&mut self) -> ValueId {
        self.push(Value::None)
    }

    /// Converts a value id of the blob, checking its range.
    pub(super) fn id(&self, number: u32) -> Result<ValueId, Error> {
        let id = usize::try_from(number).ok().filter(|id| *id < self.codings.len());
        id.ok_or_else(|| {
            Error::Invalid(format!(
                "value {number} is out of range, the graph has {} values",
                self.codings.len()
            ))
        })
    }

    pub(super) fn tensor(&self, id: ValueId) -> Result<&Tensor<'p>, Error> {
        match self.graph.values.get(id) {
            Some(Value::Tensor(tensor)) => Ok(tensor),
            _ => Err(Error::Invalid(format!("value {id}: expected a tensor"))),
        }
    }

    /// Returns the shape of a tensor.
    pub(super) fn sizes(&self, id: ValueId) -> Result<Vec<usize>, Error> {
        Ok(self.tensor(id)?.sizes.clone())
    }

    pub(super) fn coding(&self, id: ValueId) -> Coding<'p> {
        self.codings.get(id).cloned().unwrap_or(Coding::Plain)
    }

    pub(super) fn new_tensor(&mut self, scalar_type: ScalarType, sizes: &[usize]) -> ValueId {
        self.push(Value::Tensor(Tensor {
            scalar_type,
            host_type: scalar_type,
            sizes: sizes.to_vec(),
            dynamic: self.dynamic,
            data: None,
            changes: None,
        }))
    }

    fn constant(
        &mut self,
        scalar_type: ScalarType,
        sizes: &[usize],
        data: Cow<'p, [u8]>,
    ) -> ValueId {
        self.push(Value::Tensor(Tensor {
            scalar_type,
            host_type: scalar_type,
            sizes: sizes.to_vec(),
            dynamic: false,
            data: Some(data),
            changes: Some(false),
        }))
    }

    /// Adds a call that writes `out`.
    pub(super) fn call_into(&mut self, operator: Operator, inputs: &[ValueId], out: ValueId) {
        let args = inputs.iter().copied().chain([out]).collect();
        self.graph.nodes.push(Node { id: self.number, ..Node::new(operator, args) });
    }

    /// Adds a call that returns a new tensor with the dtype of its first input.
    pub(super) fn call(
        &mut self,
        operator: Operator,
        inputs: &[ValueId],
        sizes: &[usize],
    ) -> Result<ValueId, Error> {
        let first = inputs.first().copied().unwrap_or(ValueId::MAX);
        let scalar_type = self.tensor(first)?.scalar_type;
        let out = self.new_tensor(scalar_type, sizes);
        self.call_into(operator, inputs, out);
        Ok(out)
    }

    pub(super) fn view_into(&mut self, value: ValueId, sizes: &[usize], out: ValueId) {
        let sizes = self.ints(sizes.iter().copied());
        self.call_into(Operator::VIEW_COPY, &[value, sizes], out);
    }

    pub(super) fn permute_into(&mut self, value: ValueId, order: &[usize], out: ValueId) {
        let order = self.ints(order.iter().copied());
        self.call_into(Operator::PERMUTE_COPY, &[value, order], out);
    }

    /// Reshapes a tensor.
    pub(super) fn view(&mut self, value: ValueId, sizes: &[usize]) -> Result<ValueId, Error> {
        if self.tensor(value)?.sizes == sizes {
            return Ok(value);
        }
        let list = self.ints(sizes.iter().copied());
        self.call(Operator::VIEW_COPY, &[value, list], sizes)
    }

    /// Permutes the dims of a tensor.
    pub(super) fn permuted(&mut self, value: ValueId, order: &[usize]) -> Result<ValueId, Error> {
        let from = self.sizes(value)?;
        let sizes: Option<Vec<usize>> = order.iter().map(|dim| from.get(*dim).copied()).collect();
        let sizes = sizes.filter(|sizes| sizes.len() == from.len());
        let sizes = sizes.ok_or_else(|| {
            Error::Invalid(format!("permutation {order:?} does not match shape {from:?}"))
        })?;
        let order = self.ints(order.iter().copied());
        self.call(Operator::PERMUTE_COPY, &[value, order], &sizes)
    }

    /// Casts a tensor.
    pub(super) fn cast(&mut self, value: ValueId, to: ScalarType) -> Result<ValueId, Error> {
        let tensor = self.tensor(value)?;
        if tensor.scalar_type == to {
            return Ok(value);
        }
        let sizes = tensor.sizes.clone();
        let out = self.new_tensor(to, &sizes);
        self.cast_into(value, out);
        Ok(out)
    }

    /// Casts an input and its weights to a common dtype: the input's own if that is lossless, else
    /// `float32`.
    ///
    /// In fp16 models, the exporter writes filters and biases as fp32 although they only ever had
    /// 16 bits.
    pub(super) fn make_alike(&mut self, parts: &mut [ValueId]) -> Result<(), Error> {
        let Some(input) = parts.first() else { return Ok(()) };
        let own = self.tensor(*input)?.scalar_type;
        let mut are_lossless = true;
        for part in parts.iter() {
            are_lossless = are_lossless && self.is_lossless(*part, own)?;
        }
        let computing = if are_lossless { own } else { ScalarType::Float };
        for part in parts {
            *part = self.cast(*part, computing)?;
        }
        Ok(())
    }

    /// Whether a value has the dtype `to`, or is an `f32` constant that converts to it losslessly.
    ///
    /// Each constant is scanned once. Constants beyond `MAX` scanned bytes count as lossy.
    fn is_lossless(&mut self, value: ValueId, to: ScalarType) -> Result<bool, Error> {
        const MAX: u64 = 1 << 32;
        let tensor = self.tensor(value)?;
        if tensor.scalar_type == to {
            return Ok(true);
        }
        let (ScalarType::Float, Some(data)) = (tensor.scalar_type, &tensor.data) else {
            return Ok(false);
        };
        let place = (data.as_ptr().addr(), data.len(), to == ScalarType::Half);
        if let Some(known) = self.lossless.get(&place) {
            return Ok(*known);
        }
        // A constant that exceeds the limit does not prevent scans of smaller ones.
        let looked = self.looked.checked_add(data.len() as u64).filter(|looked| *looked <= MAX);
        let found = looked.is_some() && values::is_lossless(data, to);
        self.looked = looked.unwrap_or(self.looked);
        self.lossless.insert(place, found);
        Ok(found)
    }

    fn cast_into(&mut self, value: ValueId, out: ValueId) {
        let (none, no) = (self.none(), self.push(Value::Bool(false)));
        self.call_into(Operator::TO_COPY, &[value, none, none, none, none, no, none], out);
    }

    /// Returns a value of the blob as floats: dequantized if it is quantized.
    pub(super) fn numbers(&mut self, id: ValueId) -> Result<ValueId, Error> {
        if !self.is_known(id) {
            return Err(Error::Invalid(format!("value {id} is read before it is written")));
        }
        if let Some(known) = self.numbers.get(&id) {
            return Ok(*known);
        }
        let tensor = self.tensor(id)?;
        let (scalar_type, sizes) = (tensor.scalar_type, tensor.sizes.clone());
        let numbers = match self.coding(id) {
            Coding::Plain | Coding::PerRow { .. } => return Ok(id),
            Coding::PerTensor { scale, zero_point } => {
                self.dequantized(id, [scale.into(), zero_point.into()], scalar_type, &sizes)
            }
            Coding::PerChannel { dim, scales } => {
                let count = sizes.get(dim).copied().unwrap_or(0);
                let scales = self.constant(ScalarType::Float, &[count], scales);
                self.by_channel(id, scalar_type, &sizes, dim, scales)
            }
            Coding::PerGroup { size, scales } => {
                let rows = (scales.len() / size_of::<f32>()).max(1);
                let scales = self.constant(ScalarType::Float, &[rows], scales);
                let codes = self.view(id, &[rows, size])?;
                let numbers = self.by_channel(codes, scalar_type, &[rows, size], 0, scales);
                self.view(numbers, &sizes)?
            }
        };
        self.numbers.insert(id, numbers);
        self.asked.insert(numbers);
        Ok(numbers)
    }

    /// Returns a value of the blob as floats, with its dims permuted.
    ///
    /// The permutation applies to the quantized tensor, so that the dequantization directly
    /// precedes its consumer and can be fused into it.
    pub(super) fn numbers_in_order(
        &mut self,
        id: ValueId,
        order: &[usize],
    ) -> Result<ValueId, Error> {
        let Coding::PerTensor { scale, zero_point } = self.coding(id) else {
            let numbers = self.numbers(id)?;
            return self.permuted(numbers, order);
        };
        if !self.is_known(id) {
            return Err(Error::Invalid(format!("value {id} is read before it is written")));
        }
        let codes = self.permuted(id, order)?;
        let (scalar_type, sizes) = (self.tensor(codes)?.scalar_type, self.sizes(codes)?);
        Ok(self.dequantized(codes, [scale.into(), zero_point.into()], scalar_type, &sizes))
    }

    /// Adds a per-tensor dequantization with a scale and a zero point.
    fn dequantized(
        &mut self,
        codes: ValueId,
        [scale, zero_point]: [f64; 2],
        scalar_type: ScalarType,
        sizes: &[usize],
    ) -> ValueId {
        let inputs = self.affine(codes, scale as f32, zero_point as i32, scalar_type);
        let none = self.none();
        let inputs: Vec<ValueId> = inputs.into_iter().chain([none]).collect();
        let out = self.new_tensor(ScalarType::Float, sizes);
        self.call_into(Operator::QUANTIZED_DECOMPOSED_DEQUANTIZE_PER_TENSOR, &inputs, out);
        out
    }

    fn by_channel(
        &mut self,
        codes: ValueId,
        scalar_type: ScalarType,
        sizes: &[usize],
        dim: usize,
        scales: ValueId,
    ) -> ValueId {
        let (none, dim) = (self.none(), self.int(dim as i64));
        let (low, high) = self.bounds(scalar_type);
        let number = self.int(scalar_type as i64);
        let out = self.new_tensor(ScalarType::Float, sizes);
        let inputs = [codes, scales, none, dim, low, high, number, none];
        self.call_into(Operator::QUANTIZED_DECOMPOSED_DEQUANTIZE_PER_CHANNEL, &inputs, out);
        out
    }

    /// Returns the smallest and the largest quantized value of a dtype.
    pub(super) fn bounds(&mut self, scalar_type: ScalarType) -> (ValueId, ValueId) {
        let (low, high) = match scalar_type {
            ScalarType::Byte => (0, 255),
            ScalarType::Int => (i32::MIN.into(), i32::MAX.into()),
            _ => (LOWEST, HIGHEST),
        };
        (self.int(low), self.int(high))
    }

    /// Returns the first six arguments of a per-tensor quantize or dequantize call.
    fn affine(
        &mut self,
        value: ValueId,
        scale: f32,
        zero_point: i32,
        scalar_type: ScalarType,
    ) -> [ValueId; 6] {
        let scale = self.push(Value::Double(scale.into()));
        let zero_point = self.int(zero_point.into());
        let (low, high) = self.bounds(scalar_type);
        [value, scale, zero_point, low, high, self.int(scalar_type as i64)]
    }

    /// Stores the result of a call as a value of the blob: clamps it, and quantizes or casts it as
    /// the blob describes.
    pub(super) fn store(
        &mut self,
        made: ValueId,
        out: ValueId,
        limits: Option<Limits>,
    ) -> Result<(), Error> {
        self.define(out)?;
        let made = match limits {
            Some(limits) => self.limited(made, limits)?,
            None => made,
        };
        self.describe_as(made, out)?;
        let (from, to) = (self.tensor(made)?.scalar_type, self.tensor(out)?.scalar_type);
        match self.coding(out) {
            Coding::Plain if from == to => self.rename(made, out),
            Coding::Plain => self.cast_into(made, out),
            Coding::PerTensor { scale, zero_point } => {
                let made = self.cast(made, ScalarType::Float)?;
                let inputs = self.affine(made, scale, zero_point, to);
                self.call_into(Operator::QUANTIZED_DECOMPOSED_QUANTIZE_PER_TENSOR, &inputs, out);
            }
            Coding::PerRow { inner_dims } => {
                let rounded = rows::round(self, made, inner_dims)?;
                self.rename(rounded, out);
            }
            Coding::PerChannel { .. } | Coding::PerGroup { .. } => {
                return Err(Error::unsupported("an output with per-channel or per-group scales"));
            }
        }
        Ok(())
    }

    /// Stores the result of a call, with its dims permuted, as a value of the blob. If that value
    /// is quantized, the permutation applies to the quantized tensor.
    pub(super) fn store_in_order(
        &mut self,
        made: ValueId,
        order: &[usize],
        out: ValueId,
        limits: Option<Limits>,
    ) -> Result<(), Error> {
        let Coding::PerTensor { scale, zero_point } = self.coding(out) else {
            let moved = self.permuted(made, order)?;
            return self.store(moved, out, limits);
        };
        let made = match limits {
            Some(limits) => self.limited(made, limits)?,
            None => made,
        };
        let (to, sizes) = (self.tensor(out)?.scalar_type, self.sizes(made)?);
        let made = self.cast(made, ScalarType::Float)?;
        let inputs = self.affine(made, scale, zero_point, to);
        let codes = self.new_tensor(to, &sizes);
        self.call_into(Operator::QUANTIZED_DECOMPOSED_QUANTIZE_PER_TENSOR, &inputs, codes);
        let moved = self.permuted(codes, order)?;
        self.store_codes(moved, out)
    }

    /// Gives a value of the blob the shape that its call computes.
    ///
    /// XNNPACK also goes by the computed shape. The exporter describes dynamically quantized
    /// tensors before it knows that their consumer is a convolution, which requires channels last.
    ///
    /// # Errors
    /// The value is an argument of the delegate call and has another shape.
    fn describe_as(&mut self, made: ValueId, out: ValueId) -> Result<(), Error> {
        let sizes = self.sizes(made)?;
        let is_argument = self.arguments.contains(&out);
        let Some(Value::Tensor(described)) = self.graph.values.get_mut(out) else {
            return Err(Error::Invalid(format!("value {out}: expected a tensor")));
        };
        if is_argument && sizes != described.sizes {
            let said = &described.sizes;
            return Err(Error::Invalid(format!(
                "output: expected shape {said:?}, computed {sizes:?}"
            )));
        }
        described.sizes = sizes;
        Ok(())
    }

    /// Stores a permuted quantized tensor as a value of the blob.
    pub(super) fn store_codes(&mut self, made: ValueId, out: ValueId) -> Result<(), Error> {
        self.define(out)?;
        self.describe_as(made, out)?;
        self.rename(made, out);
        Ok(())
    }

    /// Retargets the last call to `out` if it computed `made`, else adds a clone.
    fn rename(&mut self, made: ValueId, out: ValueId) {
        let last = self.graph.nodes.last_mut().and_then(|node| node.args.last_mut());
        match last {
            Some(last)
                if *last == made && made >= self.codings.len() && !self.asked.contains(&made) =>
            {
                *last = out;
            }
            _ => {
                let none = self.none();
                self.call_into(Operator::CLONE, &[made, none], out);
            }
        }
    }

    pub(super) fn limited(&mut self, value: ValueId, limits: Limits) -> Result<ValueId, Error> {
        let Limits { low, high } = limits;
        let sizes = self.sizes(value)?;
        if low == 0.0 && high == f32::INFINITY {
            return self.call(Operator::RELU, &[value], &sizes);
        }
        let mut end = |limit: f32| match limit.is_finite() {
            true => self.push(Value::Double(limit.into())),
            false => self.push(Value::None),
        };
        let (low_end, high_end) = (end(low), end(high));
        if !low.is_finite() && !high.is_finite() {
            return Ok(value);
        }
        self.call(Operator::CLAMP, &[value, low_end, high_end], &sizes)
    }
}
