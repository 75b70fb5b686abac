//! Zero-copy runs on memory that the caller lends for one run: inputs are read in place, outputs
//! are written to their destination.

use super::Method;
use crate::dtype::Element;
use crate::error::{ExecuteError, InputError};
use crate::layout::TensorInfo;
use crate::memory::region::Region;
use crate::memory::slot::Data;
use crate::tensor::TensorRef;
use crate::values::flag;
use core::fmt;

/// Maximum number of tensors that can borrow memory in one run; further ones are copied.
const MAX_LENT: usize = 16;

/// Memory for an output during one run: see [`Method::execute_into`].
#[derive(Debug)]
pub struct OutputMemory<'a> {
    index: usize,
    bytes: &'a mut [u8],
    info: Option<TensorInfo>,
    /// Slot of the tensor that borrowed the memory in a run.
    lent: Option<u32>,
}

impl<'a> OutputMemory<'a> {
    /// Creates memory for output `index`. The memory must be aligned to the element size and hold
    /// the output's upper-bound shape. For a memory-planned output, the size in this run suffices.
    pub fn new(index: usize, bytes: &'a mut [u8]) -> Self {
        OutputMemory { index, bytes, info: None, lent: None }
    }

    /// Creates memory from a slice of elements with the output's dtype.
    pub fn from_slice<T: Element>(index: usize, elements: &'a mut [T]) -> Self {
        OutputMemory::new(index, bytemuck::cast_slice_mut(elements))
    }

    /// The output after the run; `None` if the method did not run.
    pub fn tensor(&self) -> Option<TensorRef<'_>> {
        let info = self.info.clone()?;
        let bytes = self.bytes.get(..info.nbytes())?;
        TensorRef::new(info, bytes)
    }
}

/// A run on borrowed memory failed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum LentError {
    /// An input does not fit.
    Input {
        /// Index of the input.
        index: usize,
        /// Cause of the failure.
        source: InputError,
    },
    /// An output does not fit.
    Output {
        /// Index of the output.
        index: usize,
        /// Cause of the failure.
        source: InputError,
    },
    /// The run failed.
    Execute(ExecuteError),
}

impl LentError {
    /// Corresponding ExecuTorch error code.
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

/// A tensor that borrows memory.
struct Lent<'m> {
    slot: u32,
    /// The borrowed memory, and the tensor's previous data.
    memory: Region<'m>,
    before: Option<Region<'m>>,
}

/// Guard of a method with borrowed memory. Dropping it removes that memory from all tensors.
struct Borrower<'a, 'm> {
    method: &'a mut Method<'m>,
    lent: heapless::Vec<Lent<'m>, MAX_LENT>,
}

impl<'m> Borrower<'_, 'm> {
    /// Lends memory to the tensor at value index `value`. Returns false if the tensor has memory of
    /// its own or borrows already, or if the memory is unsuitable.
    ///
    /// # Safety
    /// The borrow of the memory must outlive this guard, and until then the memory must only be
    /// accessed through the region.
    unsafe fn lend(&mut self, value: usize, memory: Region<'_>, needed: usize) -> bool {
        let values = &mut self.method.values;
        let Some(slot) = values.slot(value).filter(|_| !values.has(value, flag::STATE)) else {
            return false;
        };
        let Some(tensor) = values.tensor_mut(slot) else { return false };
        let fits = needed <= memory.len() && memory.addr().is_multiple_of(tensor.alignment());
        if !tensor.is_caller_bound() || !fits || self.find(slot).is_some() {
            return false;
        }
        let Some(memory) = memory.part(0, needed) else { return false };
        // SAFETY: by the caller's promise, nothing else accesses the memory while `self` exists.
        // Dropping `self` removes the region from all tensors before the original borrow ends.
        let memory = unsafe { memory.extend() };
        let Some(tensor) = self.method.values.tensor_mut(slot) else { return false };
        // A caller-bound tensor is neither a view nor planned.
        let before = match tensor.data() {
            Data::At(region) => Some(region),
            _ => None,
        };
        tensor.set_data(Some(memory));
        if let Err(lent) = self.lent.push(Lent { slot, memory, before }) {
            tensor.set_data(lent.before);
            return false;
        }
        true
    }

    /// Memory that a tensor borrows.
    fn find(&self, slot: u32) -> Option<Region<'m>> {
        self.lent.iter().find(|lent| lent.slot == slot).map(|lent| lent.memory)
    }

    /// Copies an output to its memory, unless it is already there. Returns its description.
    fn deliver(&mut self, output: &mut OutputMemory<'_>) -> Result<TensorInfo, InputError> {
        let value = self.method.output_value(output.index)?;
        let slot = self.method.slot(value)?;
        let source = self.method.values.region(slot).ok_or(InputError::Unbound)?;
        let tensor = self.method.values.tensor(slot).ok_or(InputError::Unbound)?;
        // Borrowed memory may only be accessed through its region. The output's data may have moved
        // since, and may even be a view of borrowed memory.
        let target = match output.lent {
            Some(own) => self.find(own).ok_or(InputError::Unbound)?,
            None => Region::writable(output.bytes),
        };
        if target.addr() == source.addr() {
            return Ok(tensor.info());
        }
        let (needed, available) = (source.len(), target.len());
        // SAFETY: no call is running and no reference to tensor data exists, since the method is
        // borrowed mutably. The target is borrowed mutably, too, and accessed only through this
        // region.
        match unsafe { target.copy_from(&source) } {
            true => Ok(tensor.info()),
            false => Err(InputError::TooSmall { needed, available }),
        }
    }
}

impl Drop for Borrower<'_, '_> {
    fn drop(&mut self) {
        // Kernels may have made other tensors views of borrowed memory: these lose their data until
        // they become views again.
        for tensor in self.method.values.tensors.iter_mut() {
            if let Data::At(region) = tensor.data()
                && !tensor.is_constant()
                && self.lent.iter().any(|lent| lent.memory.overlaps(&region))
            {
                tensor.set_data(None);
            }
        }
        for Lent { slot, before, .. } in &self.lent {
            if let Some(tensor) = self.method.values.tensor_mut(*slot) {
                tensor.set_data(*before);
            }
        }
    }
}

impl<'m> Method<'m> {
    /// Runs the method on caller memory without copies. The tensors in `inputs`, each with its
    /// index, are read in place. Outputs are written to their memory and available from
    /// [`OutputMemory::tensor`]. Inputs that are not listed keep their values.
    ///
    /// Zero-copy requires that the exporter left the tensor to the caller
    /// (`alloc_graph_input=False`, `alloc_graph_output=False`). Memory that was bound to such a
    /// tensor before is restored after the run. All other tensors are copied: memory-planned ones,
    /// outputs that are also inputs, and all beyond the first sixteen.
    ///
    /// # Errors
    /// An input or output does not fit, or the run failed. A program that writes to its inputs
    /// fails: borrowed inputs are read-only.
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
            // SAFETY: the borrow of `inputs` outlives this function, and the region is read-only.
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
            // An output that is also an input must hold the value that was set.
            let inputs = borrower.method.meta.plan.inputs();
            let is_input = inputs.is_ok_and(|inputs| {
                inputs
                    .iter()
                    .any(|input| input.is_ok_and(|input| usize::try_from(input) == Ok(value)))
            });
            let memory = Region::writable(output.bytes);
            // SAFETY: the borrow of `outputs` outlives this function. Until it returns, the bytes
            // of a borrowed output are accessed only through the region: `deliver` ensures that.
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
