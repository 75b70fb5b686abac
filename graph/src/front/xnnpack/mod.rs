//! Front end for blobs of ExecuTorch's `XnnpackPartitioner`: a header (`XH00`), a graph (`XN01`)
//! and constants.
//!
//! The graph calls XNNPACK's own operators. The blob describes tensors in memory order: a
//! channels-last tensor of PyTorch appears as NHWC, and the exporter adds transposes around NHWC
//! subgraphs. A convolution becomes `aten.convolution` between two permutations; adjacent
//! permutations cancel out in later passes.
//!
//! Quantized tensors keep their quantized values, and each call on them becomes the PyTorch form:
//! the call between `dequantize` and `quantize`. Dynamically quantized tensors are quantized and
//! dequantized where XNNPACK converts them.

mod builder;
mod convolution;
mod nodes;
mod rows;
mod schema;
mod summary;
#[cfg(test)]
mod tests;
mod values;

use crate::budget::Budget;
use crate::error::Error;
use crate::front::header::{Parts, is_header};
use crate::front::vulkan::{Argument, Bound};
use crate::graph::{Graph, Tensor, Value, ValueId};
use crate::named::Named;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;
use builder::Builder;
use schema::{ConstantTable, GraphTable, ValueTable};
pub(crate) use summary::summarize;
use torchlet_core::format::flatbuffer::Table;
use values::{Constants, Described};

/// Backend id of XNNPACK delegates.
pub const BACKEND: &str = "XnnpackBackend";

const HEADER: &[u8; 4] = b"XH00";

/// Whether bytes are a blob of ExecuTorch's XNNPACK backend.
pub(crate) fn is_blob(bytes: &[u8]) -> bool {
    is_header(bytes, HEADER)
}

fn parts(bytes: &[u8]) -> Result<(GraphTable<'_>, &[u8]), Error> {
    let Parts { graph, data } = Parts::of(bytes, HEADER, b"XN01")?;
    Ok((GraphTable(Table::root(graph)?), data))
}

/// Reads the keys of the constants that are named data.
///
/// # Errors
/// The bytes are malformed.
pub(crate) fn keys(bytes: &[u8]) -> Result<Vec<&str>, Error> {
    let (root, _) = parts(bytes)?;
    let mut budget = Budget::of(root.0.buffer());
    let entries: Vec<ConstantTable<'_>> = budget.all(root.constants()?)?;
    let mut keys = Vec::new();
    for entry in entries {
        if let Some(key) = entry.named_key()? {
            keys.push(key);
        }
    }
    Ok(keys)
}

/// Reads the graph of a delegate from its processed bytes, and binds it to the arguments of a call.
///
/// # Errors
/// The bytes are malformed, data is missing, a call is unsupported, or the arguments do not fit.
pub(crate) fn read<'p>(
    bytes: &'p [u8],
    named: &Named<'_, 'p>,
    arguments: &[Argument],
) -> Result<Bound<'p>, Error> {
    let (root, data) = parts(bytes)?;
    let mut budget = Budget::of(root.0.buffer());
    let mut constants = Constants::new(root.constants()?, data, named);
    let mut described = Vec::new();
    for value in budget.all::<ValueTable<'p>>(root.values()?)? {
        described.push(values::read(&value, &mut constants, &mut budget)?);
    }
    let numbers = |ids: Vec<u32>| -> Vec<usize> {
        ids.into_iter().map(|id| usize::try_from(id).unwrap_or(usize::MAX)).collect()
    };
    let inputs = numbers(budget.all(root.input_ids()?)?);
    let outputs = numbers(budget.all(root.output_ids()?)?);
    let dynamic = arguments.iter().any(|argument| match argument {
        Argument::Tensor { dynamic, .. } => *dynamic,
        Argument::Number => false,
    });
    let mut call = Call { arguments, first_output: arguments.len(), places: BTreeMap::new() };
    call.find(&described, &inputs, &outputs)?;
    let mut builder = Builder::new(described, dynamic);
    let mut graph_inputs = Vec::new();
    for place in 0..call.first_output {
        graph_inputs.push(call.input(place, &mut builder)?);
    }
    for node in budget.all(root.nodes()?)? {
        nodes::add(&mut builder, &node, &mut budget)?;
    }
    let mut graph_outputs = Vec::new();
    for place in call.first_output..arguments.len() {
        graph_outputs.push(call.output(place, &mut builder)?);
    }
    let graph = Graph { inputs: graph_inputs, outputs: graph_outputs, ..builder.finish() };
    Ok(Bound { graph, first_output: call.first_output })
}

/// The arguments of the delegate call.
struct Call<'a> {
    arguments: &'a [Argument],
    /// Index of the first output argument.
    first_output: usize,
    /// Value of each argument, by argument index.
    places: BTreeMap<usize, ValueId>,
}

impl Call<'_> {
    /// Maps arguments to values. Inputs come first; an input that nothing reads has no value.
    fn find(
        &mut self,
        described: &[Described<'_>],
        inputs: &[ValueId],
        outputs: &[ValueId],
    ) -> Result<(), Error> {
        let place = |id: &ValueId| {
            let place = described.get(*id).and_then(|value| value.external);
            let count = self.arguments.len();
            place.filter(|place| *place < count).ok_or_else(|| {
                let expected = format!("expected one of the {count} arguments of its call");
                Error::Invalid(format!("value {id} of an XNNPACK delegate: {expected}"))
            })
        };
        if outputs.is_empty() {
            // The exporter drops quantized outputs where the program expects floats. All arguments
            // would then be inputs, and no call would write the program's result.
            return Err(Error::invalid("an XNNPACK delegate has no outputs"));
        }
        let mut places = BTreeMap::new();
        let mut first_output = self.arguments.len();
        for id in outputs {
            let place = place(id)?;
            first_output = first_output.min(place);
            places.insert(place, *id);
        }
        for id in inputs {
            let place = place(id)?;
            if place >= first_output {
                return Err(Error::Invalid(format!(
                    "input {id} of an XNNPACK delegate: expected argument 0 to {}, before the \
                     outputs, found argument {place}",
                    first_output.saturating_sub(1)
                )));
            }
            places.insert(place, *id);
        }
        (self.first_output, self.places) = (first_output, places);
        Ok(())
    }

    fn argument(&self, place: usize) -> Result<&Argument, Error> {
        self.arguments
            .get(place)
            .ok_or_else(|| Error::Invalid(format!("argument {place} is missing")))
    }

    /// Returns a tensor like an argument, and its dim order.
    ///
    /// Fails if sizes in memory order or dtype differ from the blob's description.
    fn tensor(
        &self,
        place: usize,
        described: &Tensor<'_>,
    ) -> Result<(Tensor<'static>, &[usize]), Error> {
        let argument = self.argument(place)?;
        let (Argument::Tensor { order, .. }, Some(tensor)) = (argument, argument.tensor()) else {
            return Err(Error::Invalid(format!("argument {place}: expected a tensor")));
        };
        let Tensor { scalar_type, sizes, .. } = &tensor;
        let lies: Vec<usize> = order.iter().filter_map(|dim| sizes.get(*dim).copied()).collect();
        // The blob describes a scalar as a vector of one element.
        let is_shape = described.sizes == lies || (sizes.is_empty() && described.sizes == [1]);
        if !is_shape || lies.len() != sizes.len() || described.scalar_type != *scalar_type {
            return Err(Error::Invalid(format!(
                "argument {place}: expected {} {:?} in memory order, found {scalar_type} {lies:?}",
                described.scalar_type, described.sizes
            )));
        }
        Ok((tensor, order))
    }

    /// Adds an argument as a graph input, converted to memory order.
    fn input(&self, place: usize, builder: &mut Builder<'_>) -> Result<ValueId, Error> {
        let Some(id) = self.places.get(&place).copied() else {
            return Ok(builder.push(self.argument(place)?.unread()));
        };
        builder.define(id)?;
        let described = builder.tensor(id)?.clone();
        let (tensor, order) = self.tensor(place, &described)?;
        if order.is_sorted() && tensor.sizes == described.sizes {
            return Ok(id);
        }
        let given = builder.push(Value::Tensor(tensor));
        match order {
            [] => builder.view_into(given, &described.sizes, id),
            order => builder.permute_into(given, order, id),
        }
        Ok(given)
    }

    /// Adds an argument as a graph output, converted from memory order.
    fn output(&self, place: usize, builder: &mut Builder<'_>) -> Result<ValueId, Error> {
        let missing = || {
            Error::Invalid(format!(
                "argument {place}, an output of an XNNPACK delegate, is never written"
            ))
        };
        let id = self.places.get(&place).copied().filter(|id| builder.is_known(*id));
        let id = id.ok_or_else(missing)?;
        let described = builder.tensor(id)?.clone();
        let (tensor, order) = self.tensor(place, &described)?;
        if order.is_sorted() && tensor.sizes == described.sizes {
            return Ok(id);
        }
        let taken = builder.push(Value::Tensor(tensor));
        match order {
            [] => builder.view_into(id, &[], taken),
            order => {
                let mut places: Vec<usize> = (0..order.len()).collect();
                places.sort_unstable_by_key(|place| order.get(*place).copied());
                builder.permute_into(id, &places, taken);
            }
        }
        Ok(taken)
    }
}
