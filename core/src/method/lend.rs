//! Running on memory that the caller lends for one run: inputs are read where they are, outputs
//! written where they are wanted.

use super::Method;
use crate::dtype::Element;
use crate::error::{ExecuteError, InputError};
use crate::layout::TensorInfo;
use crate::memory::region::Region;
use crate::memory::slot::Data;
use crate::tensor::TensorRef;
use crate::values::flag;
use core::fmt;

/// The most tensors that can be lent memory in one run; what is beyond them is copied.
const MAX_LENT: usize = 16;

/// Memory for an output, for one run: see [`Method::execute_into`].
#[derive(Debug)]
pub struct OutputMemory<'a> {
    index: usize,
    bytes: &'a mut [u8],
    info: Option<TensorInfo>,
    /// The tensor that it was lent to in a run.
    lent: Option<u32>,
}

impl<'a> OutputMemory<'a> {
    /// Memory for output `index`. It starts at a multiple of the size of the output's elements, and
    /// holds its largest shape; of an output with a place in the plan, that of the run is enough.
    pub fn new(index: usize, bytes: &'a mut [u8]) -> Self {
        OutputMemory { index, bytes, info: None, lent: None }
    }

    /// The same, for elements of the type that the output has.
    pub fn from_slice<T: Element>(index: usize, elements: &'a mut [T]) -> Self {
        OutputMemory::new(index, bytemuck::cast_slice_mut(elements))
    }

    /// The output, after the run; `None` if there was none.
    pub fn tensor(&self) -> Option<TensorRef<'_>> {
        let info = self.info.clone()?;
        let bytes = self.bytes.get(..info.nbytes())?;
        TensorRef::new(info, bytes)
    }
}

/// A method could not run on lent memory.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum LentError {
    /// An input does not fit.
    Input {
        /// Its index.
        index: usize,
        /// Why.
        source: InputError,
    },
    /// An output does not fit.
    Output {
        /// Its index.
        index: usize,
        /// Why.
        source: InputError,
    },
    /// The run failed.
    Execute(ExecuteError),
}

impl LentError {
    /// ExecuTorch's code for the condition.
    pub fn code(&self) -> u32 {
        match self {
            LentError::Input { source, .. } | LentError::Output { source, .. } => source.code(),
            LentError::Execute(error) => error.code(),
        }
    }
}

impl fmt::Display for LentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LentError::Input { index, source } => write!(f, "input {index}: {source}"),
            LentError::Output { index, source } => write!(f, "output {index}: {source}"),
            LentError::Execute(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for LentError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            LentError::Input { source, .. } | LentError::Output { source, .. } => Some(source),
            LentError::Execute(error) => Some(error),
        }
    }
}

/// A tensor that was lent memory.
struct Lent<'m> {
    slot: u32,
    /// What is lent to it, and where its data was before.
    memory: Region<'m>,
    before: Option<Region<'m>>,
}

/// A method while memory is lent to it. Dropping it takes all of that memory away again.
struct Borrower<'a, 'm> {
    method: &'a mut Method<'m>,
    lent: heapless::Vec<Lent<'m>, MAX_LENT>,
}

impl<'m> Borrower<'_, 'm> {
    /// Lends memory to the tensor that value `value` is; false if it has a place of its own, or was
    /// lent some, or the memory does not do.
    ///
    /// # Safety
    /// The memory is borrowed for longer than this borrower lives, and is not touched meanwhile but
    /// through the region.
    unsafe fn lend(&mut self, value: usize, memory: Region<'_>, needed: usize) -> bool {
        let values = &mut self.method.values;
        let Some(slot) = values.slot(value).filter(|_| !values.has(value, flag::STATE)) else {
            return false;
        };
        let Some(tensor) = values.tensor_mut(slot) else { return false };
        let fits = needed <= memory.len() && memory.addr().is_multiple_of(tensor.alignment());
        if !tensor.is_callers() || !fits || self.find(slot).is_some() {
            return false;
        }
        let Some(memory) = memory.part(0, needed) else { return false };
        // SAFETY: by the caller's promise nothing else touches the memory while `self` exists, and
        // dropping `self` takes the region from all tensors, before the borrow that it was made
        // from ends.
        let memory = unsafe { memory.extend() };
        let Some(tensor) = self.method.values.tensor_mut(slot) else { return false };
        // It is the caller's: no view, and not planned.
        let before = match tensor.data() {
            Data::At(region) => Some(region),
            _ => None,
        };
        tensor.put(Some(memory));
        if let Err(lent) = self.lent.push(Lent { slot, memory, before }) {
            tensor.put(lent.before);
            return false;
        }
        true
    }

    /// The memory that is lent to a tensor.
    fn find(&self, slot: u32) -> Option<Region<'m>> {
        self.lent.iter().find(|lent| lent.slot == slot).map(|lent| lent.memory)
    }

    /// Copies an output to its memory, unless it is there. Gives what it is.
    fn deliver(&mut self, output: &mut OutputMemory<'_>) -> Result<TensorInfo, InputError> {
        let value = self.method.output_value(output.index)?;
        let slot = self.method.slot(value)?;
        let source = self.method.values.region(slot).ok_or(InputError::Unbound)?;
        let tensor = self.method.values.tensor(slot).ok_or(InputError::Unbound)?;
        // Where memory was lent, only the region may touch it. The output may be elsewhere by now,
        // and a view of what was lent.
        let target = match output.lent {
            Some(own) => self.find(own).ok_or(InputError::Unbound)?,
            None => Region::writable(output.bytes),
        };
        if target.addr() == source.addr() {
            return Ok(tensor.info());
        }
        let (needed, available) = (source.len(), target.len());
        // SAFETY: no call is running and no reference to tensor data exists, since the method is
        // borrowed mutably; the target is borrowed mutably, too, and touched through this region
        // alone.
        match unsafe { target.copy_from(&source) } {
            true => Ok(tensor.info()),
            false => Err(InputError::TooSmall { needed, available }),
        }
    }
}

impl Drop for Borrower<'_, '_> {
    fn drop(&mut self) {
        // Kernels may have made other tensors views of the lent ones: those lose their memory,
        // until they are views again.
        for tensor in self.method.values.tensors.iter_mut() {
            if let Data::At(region) = tensor.data()
                && !tensor.is_constant()
                && self.lent.iter().any(|lent| lent.memory.overlaps(&region))
            {
                tensor.put(None);
            }
        }
        for Lent { slot, before, .. } in &self.lent {
            if let Some(tensor) = self.method.values.tensor_mut(*slot) {
                tensor.put(*before);
            }
        }
    }
}

impl<'m> Method<'m> {
    /// Runs the method on memory of the caller: tensors among `inputs`, each with its index, are
    /// read where they are, and outputs are written to their memory, where [`OutputMemory::tensor`]
    /// finds them. Inputs that are not named are those that were set before.
    ///
    /// Nothing is copied for tensors that the exporter left to the caller
    /// (`alloc_graph_input=False`, `alloc_graph_output=False`), whether or not other memory is
    /// bound to them, which they have again afterwards. Others have a place in the plan, and are
    /// copied there and back; so are an input that is also an output, and what is beyond sixteen
    /// tensors.
    ///
    /// # Errors
    /// An input or output does not fit, or the run failed. A program that writes to its input
    /// fails: lent inputs are read-only.
    pub fn execute_into(
        &mut self,
        inputs: &[(usize, TensorRef<'_>)],
        outputs: &mut [OutputMemory<'_>],
    ) -> Result<(), LentError> {
        let mut borrower = Borrower { method: self, lent: heapless::Vec::new() };
        for (index, tensor) in inputs {
            let fail = |source| LentError::Input { index: *index, source };
            let value = borrower.method.input_value(*index).map_err(fail)?;
            borrower.method.fit_input(*index, tensor).map_err(fail)?;
            let memory = Region::read_only(tensor.bytes());
            // SAFETY: `inputs` is borrowed for longer than this function runs, and the region can
            // only be read.
            let lent = unsafe { borrower.lend(value, memory, tensor.bytes().len()) };
            if !lent {
                borrower.method.set_input_tensor(*index, tensor).map_err(fail)?;
            }
        }
        for output in outputs.iter_mut() {
            (output.info, output.lent) = (None, None);
            let index = output.index;
            let fail = |source| LentError::Output { index, source };
            let value = borrower.method.output_value(index).map_err(fail)?;
            let slot = borrower.method.slot(value).map_err(fail)?;
            let needed = borrower.method.values.tensor(slot).map_or(0, |tensor| tensor.capacity());
            // What is an input, too, holds what was set.
            let inputs = borrower.method.meta.plan.inputs();
            let is_input = inputs.is_ok_and(|inputs| {
                inputs
                    .iter()
                    .any(|input| input.is_ok_and(|input| usize::try_from(input) == Ok(value)))
            });
            let memory = Region::writable(output.bytes);
            // SAFETY: `outputs` is borrowed for longer than this function runs. Until its end, the
            // bytes of an output that was lent are touched through the region alone: `deliver` sees
            // to that.
            if !is_input && unsafe { borrower.lend(value, memory, needed) } {
                output.lent = Some(slot);
            }
        }
        borrower.method.execute().map_err(LentError::Execute)?;
        for output in outputs.iter_mut() {
            let index = output.index;
            let info = borrower.deliver(output);
            output.info = Some(info.map_err(|source| LentError::Output { index, source })?);
        }
        Ok(())
    }
}
