//! [`Graph`]: recorded calls as a program.

use super::Tensor;
use super::device::{Step, steps};
use super::node::{Given, Value};
use super::program::{Plan, program};
use super::record::fail;
use crate::error::Error;
use crate::module::Module;
use std::collections::HashSet;
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
    /// The calls. They are kept even if tensors are computed later.
    steps: Vec<Step>,
}

impl Graph {
    /// Creates a program that computes `outputs` from `inputs`. All other tensors that the calls
    /// read are constants of the program. Inputs are tensors with elements, which stand for those
    /// that the program is run with: of [`Tensor::from_slice`], or computed.
    ///
    /// Create the graph before reading a tensor between inputs and outputs: reading forgets the
    /// calls, and the elements would be constants of the program.
    ///
    /// # Errors
    /// An input is a recorded call, is given twice, or is not used by an output; a tensor between
    /// inputs and outputs was computed already; an output cannot be computed.
    pub fn new(inputs: &[&Tensor], outputs: &[&Tensor]) -> Result<Self, Error> {
        let outputs: Vec<Value> = outputs.iter().map(|tensor| tensor.value()).collect();
        let mut given: Vec<Value> = Vec::with_capacity(inputs.len());
        for (index, tensor) in inputs.iter().enumerate() {
            let value = tensor.value();
            if given.contains(&value) {
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
        let steps = steps(&outputs);
        check(&given, &steps, &outputs)?;
        Ok(Graph { inputs: given, outputs, steps })
    }

    /// Returns the program as the bytes of a `.pte` file. It has kernel calls only, so that any
    /// ExecuTorch runtime with these kernels runs it; [`Module`] compiles it for the device that it
    /// is opened on.
    ///
    /// # Errors
    /// The program exceeds the limits of the format.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Error> {
        program(&Plan::with_inputs(&self.steps, &self.outputs, &self.inputs, true))
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

/// Refuses inputs that have no effect, and constants that depend on an input.
fn check(inputs: &[Value], steps: &[Step], outputs: &[Value]) -> Result<(), Error> {
    let args = steps.iter().flat_map(|(_, recorded)| recorded.args.iter().flat_map(Given::values));
    let read: Vec<&Value> = args.chain(outputs).collect();
    if let Some(unused) = inputs.iter().position(|input| !read.contains(&input)) {
        let reason = format!(
            "no output depends on input {unused}; if a tensor between them was read, record the \
            calls again and create the graph before reading"
        );
        return Err(fail("a graph", reason));
    }
    let made: HashSet<u64> = steps.iter().map(|(cell, _)| cell.id).collect();
    let is_constant = |value: &&&Value| !made.contains(&value.cell.id) && !inputs.contains(value);
    for constant in read.iter().filter(is_constant) {
        if let Some(input) = inputs.iter().position(|input| may_depend(constant, input)) {
            let shape = constant.tensor_type().shape();
            let reason = format!(
                "a tensor of shape {shape:?} that may depend on input {input} was computed already \
                and would be a constant; record the calls again and create the graph before \
                reading, or use a copy by `from_tensor` if it is a constant"
            );
            return Err(fail("a graph", reason));
        }
    }
    Ok(())
}

/// Whether a tensor with elements may have been computed from another one: it is younger, and has
/// at least the same sources.
fn may_depend(value: &Value, on: &Value) -> bool {
    if value.cell.id <= on.cell.id || value.cell.is_weight || value.cell.is_leaf() {
        return false;
    }
    match (&value.cell.sources, &on.cell.sources) {
        (Some(own), Some(needed)) => needed.iter().all(|source| own.contains(source)),
        (Some(_), None) => false,
        (None, _) => true,
    }
}

impl std::fmt::Debug for Graph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Graph({} inputs, {} outputs)", self.inputs.len(), self.outputs.len())
    }
}
