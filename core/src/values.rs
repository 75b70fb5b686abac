//! The values and tensors of a loaded method.

use crate::error::KernelError;
use crate::kernel::Param;
use crate::memory::region::Region;
use crate::value::{TensorSlot, Value, list_index};

/// The values of a loaded method, and the tensors that they refer to.
#[derive(Debug)]
pub(crate) struct Values<'m> {
    pub(crate) values: &'m mut [Value<'m>],
    pub(crate) tensors: &'m mut [TensorSlot<'m>],
}

impl<'m> Values<'m> {
    pub(crate) fn value(&self, index: usize) -> Option<Value<'m>> {
        self.values.get(index).copied()
    }

    pub(crate) fn tensor(&self, slot: u32) -> Option<&TensorSlot<'m>> {
        self.tensors.get(usize::try_from(slot).ok()?)
    }

    pub(crate) fn tensor_mut(&mut self, slot: u32) -> Option<&mut TensorSlot<'m>> {
        self.tensors.get_mut(usize::try_from(slot).ok()?)
    }

    /// The slot of the tensor that value `index` is.
    pub(crate) fn slot(&self, index: usize) -> Option<u32> {
        match self.value(index)? {
            Value::Tensor(slot) => Some(slot),
            _ => None,
        }
    }

    /// Calls `visit` with argument position and slot of every tensor among the arguments, those in lists
    /// included.
    fn for_each_tensor(
        &self,
        args: &[[u8; 4]],
        visit: &mut dyn FnMut(usize, u32) -> Result<(), KernelError>,
    ) -> Result<(), KernelError> {
        for (arg, entry) in args.iter().enumerate() {
            let value =
                usize::try_from(list_index(*entry)).ok().and_then(|index| self.value(index));
            match value {
                Some(Value::Tensor(slot)) => visit(arg, slot)?,
                Some(Value::TensorList(items, _)) => {
                    for item in items {
                        let index = usize::try_from(list_index(*item)).ok();
                        if let Some(slot) = index.and_then(|index| self.slot(index)) {
                            visit(arg, slot)?;
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// All the memory that a tensor could use in its largest shape.
    fn extent(&self, slot: u32) -> Option<Region<'m>> {
        let tensor = self.tensor(slot)?;
        let data = tensor.data?;
        data.part(0, tensor.capacity.min(data.len()))
    }

    /// Checks that no tensor that a call writes shares memory, or shape, with another of its arguments.
    ///
    /// With that, references to the data of different arguments of the call can exist together.
    pub(crate) fn check_disjoint(
        &self,
        args: &[[u8; 4]],
        roles: Roles<'_>,
    ) -> Result<(), KernelError> {
        // Behind the declared arguments, files repeat the outputs as return values.
        let args = args.get(..roles.count(args.len())).unwrap_or(args);
        let mut order = 0usize;
        self.for_each_tensor(args, &mut |arg, slot| {
            order += 1;
            if !roles.is_out(arg) {
                return Ok(());
            }
            let written = self.extent(slot);
            let mut other_order = 0usize;
            self.for_each_tensor(args, &mut |other, other_slot| {
                other_order += 1;
                if other_order == order {
                    return Ok(());
                }
                let shares = match (written, self.extent(other_slot)) {
                    (Some(a), Some(b)) => a.overlaps(&b),
                    _ => false,
                };
                if slot == other_slot || shares {
                    return Err(KernelError::Overlap { arg, other });
                }
                Ok(())
            })
        })
    }
}

/// Which arguments of a call are written.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Roles<'m> {
    /// As the operator's schema says.
    Params(&'m [Param]),
    /// All from this one on: a delegate's outputs follow its inputs.
    From(usize),
}

impl Roles<'_> {
    /// How many of `len` arguments count.
    fn count(&self, len: usize) -> usize {
        match self {
            Roles::Params(params) => params.len().min(len),
            Roles::From(_) => len,
        }
    }

    pub(crate) fn is_out(&self, arg: usize) -> bool {
        match self {
            Roles::Params(params) => params.get(arg).is_some_and(|param| param.is_out()),
            Roles::From(first) => arg >= *first,
        }
    }
}
