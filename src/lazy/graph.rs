//! [`Graph`]: recorded calls as a program.

use super::Tensor;
use super::device::steps;
use super::node::Value;
use super::program::{Plan, program};
use super::record::fail;
use crate::error::Error;
use crate::module::Module;
use std::path::Path;

/// Recorded calls with chosen inputs and outputs: a program with the method `forward`.
///
/// ```
/// use torchlet::lazy::{Graph, Tensor};
///
/// let x = Tensor::from_slice(&[3], &[1.0f32, 2.0, 3.0])?;
/// let y = &x * 2.0 + 1.0;
/// let mut module = Graph::new(&[&x], &[&y])?.to_module()?;
/// let input = torchlet::Tensor::from_slice(&[3], &[5.0f32, 6.0, 7.0])?;
/// assert_eq!(module.forward(&input)?[0].tensor()?.to_vec::<f32>()?, [11.0, 13.0, 15.0]);
/// # Ok::<(), torchlet::Error>(())
/// ```
pub struct Graph {
    inputs: Vec<Value>,
    outputs: Vec<Value>,
}

impl Graph {
    /// Creates a program that computes `outputs` from `inputs`. All other tensors that the calls
    /// read are constants of the program. Inputs are tensors with elements, which stand for those
    /// that the program is run with: of [`Tensor::from_slice`], or computed.
    ///
    /// # Errors
    /// An input is a recorded call, or is given twice; an output cannot be computed.
    pub fn new(inputs: &[&Tensor], outputs: &[&Tensor]) -> Result<Self, Error> {
        let outputs: Vec<Value> = outputs.iter().map(|tensor| tensor.value()).collect();
        let mut given: Vec<Value> = Vec::with_capacity(inputs.len());
        for (index, tensor) in inputs.iter().enumerate() {
            let value = tensor.value();
            let is_same =
                |other: &Value| other.cell.id == value.cell.id && other.index == value.index;
            if given.iter().any(is_same) {
                return Err(fail("a graph", format!("input {index} is given twice")));
            }
            if value.result().is_none() {
                let reason = format!(
                    "input {index} is a recorded call; expected a tensor with \
                    elements, such as one from `from_slice`"
                );
                return Err(fail("a graph", reason));
            }
            given.push(value);
        }
        for output in &outputs {
            if let Some((operator, reason)) = output.cell.failure() {
                return Err(Error::Call { operator, reason });
            }
        }
        Ok(Graph { inputs: given, outputs })
    }

    /// Returns the program as the bytes of a `.pte` file. It has kernel calls only, so that any
    /// ExecuTorch runtime with these kernels runs it; [`Module`] compiles it for the device that it
    /// is opened on.
    ///
    /// # Errors
    /// The program exceeds the limits of the format.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Error> {
        let steps = steps(&self.outputs);
        program(&Plan::with_inputs(&steps, &self.outputs, &self.inputs, true))
    }

    /// Writes the program to a `.pte` file.
    ///
    /// # Errors
    /// As [`to_bytes`](Self::to_bytes), or the file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        let bytes = self.to_bytes()?;
        std::fs::write(path, bytes).map_err(|source| Error::File { path: path.into(), source })
    }

    /// Opens the program.
    ///
    /// # Errors
    /// As [`to_bytes`](Self::to_bytes).
    pub fn to_module(&self) -> Result<Module, Error> {
        Module::from_bytes(self.to_bytes()?)
    }
}

impl std::fmt::Debug for Graph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Graph({} inputs, {} outputs)", self.inputs.len(), self.outputs.len())
    }
}
