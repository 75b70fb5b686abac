//! The values and tensors of a method.

use crate::kernel::Param;
use crate::memory::region::Region;
use crate::value::{Data, Home, TensorSlot, Value};

/// What is known of a value beside its contents.
pub(crate) mod flag {
    /// Instructions or the caller change it, so calls that take it are prepared anew before they run.
    pub(crate) const VARIABLE: u8 = 1;
    /// A view that calls place when they run: of this tensor here and of that one there.
    pub(crate) const FLOATING: u8 = 2;
    /// An input or output of the method.
    pub(crate) const INTERFACE: u8 = 4;
    /// An instruction wrote it, or it is an input: what is read from then on is no state.
    pub(crate) const WRITTEN: u8 = 8;
    /// A planned tensor that keeps its contents from run to run.
    pub(crate) const STATE: u8 = 16;
    /// Another tensor is a view of it.
    pub(crate) const VIEWED: u8 = 32;
}

/// The values of a method, and the tensors that they refer to.
#[derive(Debug)]
pub(crate) struct Values<'m> {
    pub(crate) values: &'m mut [Value<'m>],
    /// The flags of each value.
    pub(crate) flags: &'m mut [u8],
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

    /// Where the data of a tensor is, and in which slot that is said: a view's is that of what it is a view of.
    pub(crate) fn data(&self, slot: u32) -> Option<(u32, Data<'m>)> {
        let tensor = self.tensor(slot)?;
        match tensor.home() {
            Home::View(root) => Some((root, self.tensor(root)?.data)),
            _ => Some((slot, tensor.data)),
        }
    }

    /// The bytes of a tensor's current shape; `None` if it has no memory or too little.
    pub(crate) fn region(&self, slot: u32) -> Option<Region<'m>> {
        let bytes = self.tensor(slot)?.nbytes();
        match self.data(slot)?.1 {
            _ if bytes == 0 => Some(Region::empty()),
            Data::At(region) => region.part(0, bytes),
            _ => None,
        }
    }

    /// The slot of the tensor that value `index` is.
    pub(crate) fn slot(&self, index: usize) -> Option<u32> {
        match self.value(index)? {
            Value::Tensor(slot) => Some(slot),
            _ => None,
        }
    }

    pub(crate) fn has(&self, index: usize, flag: u8) -> bool {
        self.flags.get(index).is_some_and(|flags| flags & flag != 0)
    }

    pub(crate) fn mark(&mut self, index: usize, flag: u8) {
        if let Some(flags) = self.flags.get_mut(index) {
            *flags |= flag;
        }
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
    pub(crate) fn is_out(&self, arg: usize) -> bool {
        match self {
            Roles::Params(params) => params.get(arg).is_some_and(|param| param.is_out()),
            Roles::From(first) => arg >= *first,
        }
    }

    /// Whether the argument is memory that nobody looks at.
    pub(crate) fn is_scratch(&self, arg: usize) -> bool {
        matches!(self, Roles::Params(params) if params.get(arg) == Some(&Param::Scratch))
    }
}
