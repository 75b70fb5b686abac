//! What the calls of a delegate mean for its plan: moves arguments into and out of staging memory.

use crate::error::Error;
use crate::plan::Plan;
use crate::search::{Search, SearchRequest};
use crate::state::State;
use crate::state_tensors::StateTensor;
use crate::tensors::element_of;
use crate::transfer::{from_staging, to_staging};
use torchlet_core::{DelegateCall, Invoke, KernelError, Scalar, ScalarType};
use torchlet_graph::front::vulkan::{Argument, CallLayout};

/// Describes the arguments of a delegate call for [`Plan::call_layout`].
pub fn arguments(call: &DelegateCall<'_, '_>) -> Vec<Argument> {
    let argument = |at| match call.arguments().info(at) {
        Ok(tensor) => Argument::Tensor {
            scalar_type: tensor.scalar_type,
            sizes: (0..tensor.rank()).map(|dim| tensor.size(dim)).collect(),
            dynamic: true,
            order: tensor.dim_order.iter().map(|dim| usize::from(*dim)).collect(),
        },
        Err(_) => Argument::Number,
    };
    (0..call.len()).map(argument).collect()
}

fn argument_error(error: KernelError) -> Error {
    Error::Argument(error)
}

impl Plan<'_> {
    /// Returns the state tensor with this index, for access to its `bytes`.
    ///
    /// # Errors
    /// There is no such tensor, or it has another size.
    pub fn state_tensor(&self, number: usize, bytes: usize) -> Result<&StateTensor, Error> {
        let missing = || Error::Invalid(format!("the delegate has no state tensor {number}"));
        let state = self.state_tensors.get(number).ok_or_else(missing)?;
        match state.info.nbytes() {
            expected if expected == bytes => Ok(state),
            expected => Err(Error::Invalid(format!(
                "state tensor {number}: expected {expected} bytes, found {bytes}"
            ))),
        }
    }

    /// Returns the sizes of each tensor among the inputs of a call, in order.
    ///
    /// # Errors
    /// An argument is not a tensor.
    pub fn call_sizes(
        &self,
        layout: &CallLayout,
        invoke: &Invoke<'_, '_>,
    ) -> Result<Vec<Vec<usize>>, Error> {
        let staged = layout.inputs.iter().zip(&self.inputs).filter(|(_, it)| it.is_some());
        let sizes = staged.map(|(argument, _)| {
            let tensor = invoke.tensor(*argument).map_err(argument_error)?;
            Ok((0..tensor.rank()).map(|dim| tensor.size(dim)).collect())
        });
        sizes.collect()
    }

    /// Writes the tensors among the inputs of a call into the staging memory, and the integers into
    /// the state. Sets `varied` if an integer changed, even if another input is then refused.
    ///
    /// # Errors
    /// An input has another type than the graph's, or exceeds its memory.
    pub fn write_inputs(
        &self,
        state: &mut State,
        layout: &CallLayout,
        invoke: &Invoke<'_, '_>,
        staging: &mut [u8],
        varied: &mut bool,
    ) -> Result<(), Error> {
        let inputs = self.graph.inputs.iter().zip(&self.inputs).zip(&layout.inputs).enumerate();
        for (position, ((id, place), argument)) in inputs {
            let (id, argument) = (*id, *argument);
            if let Some(place) = place {
                let tensor = invoke.tensor(argument).map_err(argument_error)?;
                if element_of(tensor.scalar_type)? != place.element {
                    let (expected, found) = (place.element, tensor.scalar_type);
                    return Err(Error::Invalid(format!(
                        "input {position}: expected a dtype stored as {expected:?}, found {found}"
                    )));
                }
                let memory = staging.get_mut(place.offset as usize..).unwrap_or_default();
                to_staging(tensor.info(), tensor.bytes(), memory, invoke.parallel())?;
                if self.watched.contains(&id) {
                    let numel = tensor.numel();
                    let ints = memory.as_chunks::<4>().0.iter().take(numel);
                    let ints: Vec<i32> = ints.map(|bytes| i32::from_le_bytes(*bytes)).collect();
                    *varied |= state.set_host_values(id, ints);
                }
            } else if state.integer(id).is_some() {
                *varied |= state.set_integer(id, integer(position, argument, invoke)?);
            }
        }
        Ok(())
    }

    /// Writes the outputs of a call, from the staging memory and the state. If `search` replaced
    /// the output that `wanted` asks for, its results are taken instead; returns their number.
    ///
    /// # Errors
    /// An output has another type than the graph's, or exceeds its memory.
    pub fn read_outputs(
        &self,
        state: &State,
        layout: &CallLayout,
        invoke: &mut Invoke<'_, '_>,
        staging: &[u8],
        search: Option<Search>,
        mut wanted: Option<SearchRequest<'_>>,
    ) -> Result<Option<usize>, Error> {
        let mut found = None;
        for (arg, position) in (layout.first_output..).zip(layout.outputs.iter().copied()) {
            let missing = || Error::Invalid(format!("the graph has no output {position}"));
            let id = *self.graph.outputs.get(position).ok_or_else(missing)?;
            if let Some(place) = self.outputs.get(position).copied().flatten() {
                let sizes = state.sizes(id)?;
                let sizes: Vec<i32> = sizes.iter().map(|size| *size as i32).collect();
                invoke.resize(arg, &sizes).map_err(argument_error)?;
                let out = invoke.out(arg).map_err(argument_error)?;
                if element_of(out.scalar_type)? != place.element {
                    let (expected, found) = (place.element, out.scalar_type);
                    return Err(Error::Invalid(format!(
                        "output {position}: expected a dtype stored as {expected:?}, found {found}"
                    )));
                }
                if let Some(search) = search.filter(|it| it.position == position)
                    && let Some(wanted) = wanted.take()
                {
                    let results = staging.get(search.results());
                    let missing = "internal error: argmax results lie outside their memory";
                    let results = results.ok_or_else(|| Error::invalid(missing))?;
                    found = Some(wanted.take(results)?);
                    continue;
                }
                let (info, parallel) = (out.info().clone(), invoke.parallel());
                let memory = staging.get(place.offset as usize..).unwrap_or_default();
                from_staging(memory, &info, out.into_bytes(), parallel)?;
            } else if let Some(value) = state.integer(id) {
                invoke.set_scalar(arg, Scalar::Int(value)).map_err(argument_error)?;
            }
        }
        Ok(found)
    }
}

/// Returns an integer argument, which may be a tensor with one element.
fn integer(position: usize, argument: usize, invoke: &Invoke<'_, '_>) -> Result<i64, Error> {
    let Ok(tensor) = invoke.tensor(argument) else {
        return invoke.int(argument).map_err(argument_error);
    };
    match tensor.scalar_type {
        ScalarType::Long => {
            let data = tensor.data::<i64>().map_err(argument_error)?;
            Ok(data.first().copied().unwrap_or(0))
        }
        ScalarType::Int => {
            let data = tensor.data::<i32>().map_err(argument_error)?;
            Ok(data.first().copied().unwrap_or(0).into())
        }
        found => {
            Err(Error::Invalid(format!("input {position}: expected int32 or int64, found {found}")))
        }
    }
}
