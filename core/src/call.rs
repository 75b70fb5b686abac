//! What kernels and delegates see: their arguments, for preparing and for computing.
//!
//! This module turns [regions](crate::memory::region) into references. It may, because a call only
//! gets references after [`Arguments::overlap`] showed that no tensor it writes shares memory with
//! another of its arguments (those that do are read from copies, or not at all), because arguments
//! beyond those that were compared do not exist for it, because each output is handed out once, and
//! because the references live no longer than the call, which borrows the method's values mutably.

use crate::arguments::Arguments;
use crate::error::{KernelError, ShapeNote};
use crate::kernel::Kernel;
use crate::layout::Sizes;
use crate::machine::Machine;
use crate::memory::ARENA_ALIGN;
use crate::memory::region::Region;
use crate::memory::slot::Home;
use crate::overlap::{Copies, MAX_COPIES};
use crate::parallel::Parallel;
use crate::tensor::{TensorMut, TensorRef};
use crate::tracer::{DelegateEvent, EventTracer};
use crate::uses::{Uses, has, may_share};
use crate::value::{Scalar, Value};
use crate::values::{ResizeError, Roles, Tensor, Values};
use core::ops::Deref;

/// A call that is being prepared: arguments can be looked at and outputs given shapes; there is no
/// data.
#[derive(Debug)]
pub struct Prepare<'c, 'm> {
    arguments: Arguments<'c, 'm>,
    /// Whether shapes that fit are given to outputs; otherwise they are only checked, as far as
    /// static.
    apply: bool,
    threads: usize,
    machine: Machine,
    /// Bytes of scratch memory that the call can take, where the kernel said so.
    scratch: usize,
}

impl<'c, 'm> Deref for Prepare<'c, 'm> {
    type Target = Arguments<'c, 'm>;
    fn deref(&self) -> &Arguments<'c, 'm> {
        &self.arguments
    }
}

impl<'c, 'm> Prepare<'c, 'm> {
    pub(crate) fn new(
        arguments: Arguments<'c, 'm>,
        apply: bool,
        threads: usize,
        machine: Machine,
    ) -> Self {
        Prepare { arguments, apply, threads, machine, scratch: 0 }
    }

    /// Says how much scratch memory the call can take with shapes within their bounds, before it is
    /// looked whether numbers and shapes fit together. When a method is loaded, numbers that it
    /// computes are not known and shapes are bounds, which need not fit: what is
    /// [refused](KernelError) for that is prepared again when it runs, and has this much memory
    /// then.
    pub fn scratch_at_most(&mut self, bytes: usize) {
        if has(Uses::VARIABLE) {
            self.scratch = self.scratch.max(bytes);
        }
    }

    /// What the kernel [said](Self::scratch_at_most).
    pub(crate) fn scratch_bound(&self) -> usize {
        self.scratch
    }

    /// The machine that the call is going to run on: another than this, if all that is asked is
    /// what it needs there.
    pub fn machine(&self) -> Machine {
        self.machine
    }

    /// The most threads that the kernel can use, to size scratch memory by.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Gives an output its shape.
    ///
    /// # Errors
    /// The output has a static shape that differs, or not the memory for this one.
    pub fn resize(&mut self, arg: usize, sizes: &[i32]) -> Result<(), KernelError> {
        let handle = self.arguments.handle(arg)?;
        self.resize_handle(arg, handle, sizes)
    }

    /// Gives an output in a list its shape.
    ///
    /// # Errors
    /// As [`resize`](Self::resize).
    pub fn resize_item(
        &mut self,
        arg: usize,
        position: usize,
        sizes: &[i32],
    ) -> Result<(), KernelError> {
        let handle = self.arguments.list_handle(arg, position)?;
        self.resize_handle(arg, handle, sizes)
    }

    fn resize_handle(
        &mut self,
        arg: usize,
        handle: Option<u32>,
        sizes: &[i32],
    ) -> Result<(), KernelError> {
        if !self.arguments.params.get(arg).is_some_and(|param| param.is_out()) {
            return Err(KernelError::access(arg));
        }
        let handle = handle.ok_or(KernelError::access(arg))?;
        let values = &mut *self.arguments.values;
        let fits = values.resize(handle, sizes, self.apply);
        fits.map_err(|error| resize_error(arg, values, handle, sizes, error))
    }
}

/// Why the tensor in this slot, which argument `arg` is, cannot take a shape.
#[cold]
fn resize_error(
    arg: usize,
    values: &Values<'_>,
    slot: u32,
    expected: &[i32],
    error: ResizeError,
) -> KernelError {
    // Texts alone tell it.
    let found = match cfg!(any(feature = "messages", feature = "defmt")) {
        true => values.tensor(slot).map_or(Sizes::new(), |tensor| tensor.sizes()),
        false => Sizes::new(),
    };
    match error {
        ResizeError::Rank => KernelError::rank(arg, found.len()),
        ResizeError::Static | ResizeError::Capacity => {
            KernelError::shape(arg, ShapeNote::new(expected), ShapeNote::new(&found))
        }
    }
}

/// What is known of the memory of a call's arguments before it runs.
///
/// It stays true because places change in two ways only. A kernel that aliases what it declares
/// changes them: the views that it places are known when instructions are resolved, and of calls
/// that take one that [floats](crate::values::flag::FLOATING), by itself or in a list, nothing is
/// known. Or the caller binds or lends memory, which is lent exclusively, or is not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// Nothing: tensors change their places, or inputs must be copied.
    Nothing,
    /// What it writes shares no memory with what it reads, and never will.
    Disjoint,
    /// The same, but for the input that it updates in place, which lies exactly where the output
    /// does.
    InPlace,
}

/// A call that computes: arguments can be looked at, inputs read, outputs written.
pub struct Invoke<'c, 'm> {
    arguments: Arguments<'c, 'm>,
    roles: Roles<'m>,
    /// The output that is made to alias an input, and that input: outputs may share memory with
    /// inputs, and are not written.
    aliasing: Option<(usize, usize)>,
    /// The input that cannot be read, since the output lies there.
    updated: Option<usize>,
    /// The first argument, and position in a list, that has not been handed out for writing.
    next_out: (usize, usize),
    scratch: Option<Region<'m>>,
    /// Copies of the inputs that share memory with outputs: the arguments, and where the copies
    /// are.
    copies: heapless::Vec<(usize, Region<'m>), MAX_COPIES>,
    packed: Option<Region<'m>>,
    parallel: &'c dyn Parallel,
}

impl<'c, 'm> Deref for Invoke<'c, 'm> {
    type Target = Arguments<'c, 'm>;
    fn deref(&self) -> &Arguments<'c, 'm> {
        &self.arguments
    }
}

/// What a call gets besides its arguments.
#[derive(Clone, Copy)]
pub(crate) struct Resources<'c, 'm> {
    pub(crate) scratch: Region<'m>,
    /// Bytes of scratch memory that must be left when inputs were copied.
    pub(crate) scratch_needed: usize,
    pub(crate) packed: Option<Region<'m>>,
    pub(crate) parallel: &'c dyn Parallel,
}

impl<'c, 'm> Invoke<'c, 'm> {
    /// Starts a call. `args` are as many as the kernel declares; `known` was found when the method
    /// was loaded.
    pub(crate) fn new(
        values: &'c mut Values<'m>,
        args: &'m [[u8; 4]],
        kernel: &'m Kernel,
        known: Known,
        resources: Resources<'c, 'm>,
    ) -> Result<Self, KernelError> {
        let roles = Roles::Params(kernel.params);
        let in_place = kernel.in_place();
        let mut invoke = Invoke {
            arguments: Arguments::new(values, args, kernel.params),
            roles,
            aliasing: if has(Uses::VIEWS) { kernel.view() } else { None },
            updated: None,
            next_out: (0, 0),
            scratch: Some(resources.scratch),
            copies: heapless::Vec::new(),
            packed: resources.packed,
            parallel: resources.parallel,
        };
        let is_in_place = match known {
            _ if invoke.aliasing.is_some() => false,
            Known::Disjoint => false,
            // Not found out when the method was loaded, which only views and outputs over inputs
            // give reason to.
            _ if !may_share() => return Err(KernelError::access(0)),
            Known::InPlace => true,
            Known::Nothing => {
                let overlap = invoke.arguments.overlap(roles, in_place)?;
                invoke.copy_inputs(&overlap.copies, resources)?;
                overlap.in_place
            }
        };
        if is_in_place {
            invoke.updated = in_place.map(|(_, input)| input);
        }
        Ok(invoke)
    }

    /// Copies inputs to the end of the scratch memory, which the kernel then gets without them.
    #[cold]
    fn copy_inputs(
        &mut self,
        inputs: &Copies,
        resources: Resources<'c, 'm>,
    ) -> Result<(), KernelError> {
        let mut rest = resources.scratch;
        for &arg in inputs {
            let handle = self.arguments.handle(arg)?.ok_or(KernelError::access(arg))?;
            let source = self.arguments.values.region(handle).ok_or(KernelError::unbound(arg))?;
            let available = rest.len();
            let start = available.checked_sub(source.len()).map(|start| start & !(ARENA_ALIGN - 1));
            let split = start
                .filter(|start| *start >= resources.scratch_needed)
                .and_then(|start| Some((rest.part(0, start)?, rest.part(start, source.len())?)));
            let needed =
                source.len().saturating_add(ARENA_ALIGN).saturating_add(resources.scratch_needed);
            let (before, copy) = split.ok_or(KernelError::scratch(needed, available))?;
            // SAFETY: no reference to tensor data or scratch memory exists yet in this call, which
            // borrows the method mutably; the two ranges are distinct memories, and the references
            // end with this statement.
            unsafe {
                if let Some(target) = copy.bytes_mut() {
                    target.copy_from_slice(source.bytes());
                }
            }
            rest = before;
            // As many as `Copies` holds fit.
            let _ = self.copies.push((arg, copy));
        }
        self.scratch = Some(rest);
        Ok(())
    }

    fn slot(&self, arg: usize, handle: u32) -> Result<Tensor<'_, 'm>, KernelError> {
        self.arguments.values.tensor(handle).ok_or(KernelError::access(arg))
    }

    fn read(&self, arg: usize, handle: u32) -> Result<TensorRef<'c>, KernelError> {
        let is_hidden = self.roles.is_out(arg) || self.roles.is_scratch(arg);
        if is_hidden || self.updated == Some(arg) {
            return Err(KernelError::access(arg));
        }
        let slot = self.slot(arg, handle)?;
        let copy = self.copies.iter().find(|(copied, _)| may_share() && *copied == arg);
        let copy = copy.map(|(_, copy)| *copy);
        let region = copy.or_else(|| self.arguments.values.region(handle));
        let region = region.ok_or(KernelError::unbound(arg))?;
        // SAFETY: 'c is the mutable borrow of the values that this call holds, which 'm outlives.
        // During it only this call touches tensor data, it writes through `write` alone, and `new`
        // (or `split`, for delegates) made sure that it writes nothing (`aliasing`), or that no
        // written tensor shares bytes with this one, which is not written (checked above), or that
        // this is a copy, in scratch memory that is not handed out. The one input that an output
        // may lie over, `updated`, was refused above.
        let bytes = unsafe { region.bytes() };
        TensorRef::new(slot.info(), bytes).ok_or(KernelError::unbound(arg))
    }

    /// Checks that an output is handed out for the first time: outputs are asked for in order.
    fn take_out(&mut self, arg: usize, position: usize) -> Result<(), KernelError> {
        if !self.roles.is_out(arg) || (arg, position) < self.next_out {
            return Err(KernelError::access(arg));
        }
        self.next_out = (arg, position.saturating_add(1));
        Ok(())
    }

    /// Whether the output of a kernel that is [declared to work in place](crate::Kernel::updating)
    /// lies where its input does: then the output holds the input's contents, and the input cannot
    /// be read apart.
    pub fn is_in_place(&self) -> bool {
        self.updated.is_some()
    }

    fn write(
        &mut self,
        arg: usize,
        position: usize,
        handle: u32,
    ) -> Result<TensorMut<'c>, KernelError> {
        if self.aliasing.is_some() {
            return Err(KernelError::access(arg));
        }
        self.take_out(arg, position)?;
        let slot = self.slot(arg, handle)?;
        let region = self.arguments.values.region(handle).ok_or(KernelError::unbound(arg))?;
        // SAFETY: 'c is the mutable borrow of the values that this call holds, which 'm outlives.
        // `new` (or `split`) made sure that these bytes belong to no other argument of the call,
        // but for `updated`, which `read` refuses; calls that do not promise it (`aliasing`) were
        // turned away above. `take_out` makes sure that no reference to this output was given
        // before: outputs are handed out in increasing order only.
        let bytes = unsafe { region.bytes_mut() };
        Ok(TensorMut::new(slot.info(), bytes.ok_or(KernelError::read_only(arg))?))
    }

    /// An input tensor.
    ///
    /// # Errors
    /// The argument is not an input tensor, or has no memory.
    pub fn tensor(&self, arg: usize) -> Result<TensorRef<'c>, KernelError> {
        let handle = self.arguments.handle(arg)?.ok_or(KernelError::access(arg))?;
        self.read(arg, handle)
    }

    /// An optional input tensor.
    ///
    /// # Errors
    /// The argument is something else, or has no memory.
    pub fn optional_tensor(&self, arg: usize) -> Result<Option<TensorRef<'c>>, KernelError> {
        self.arguments.handle(arg)?.map(|handle| self.read(arg, handle)).transpose()
    }

    /// An input tensor in a list.
    ///
    /// # Errors
    /// The argument is not a list of inputs or shorter, or the tensor has no memory.
    pub fn list_tensor(
        &self,
        arg: usize,
        position: usize,
    ) -> Result<Option<TensorRef<'c>>, KernelError> {
        self.arguments.list_handle(arg, position)?.map(|handle| self.read(arg, handle)).transpose()
    }

    /// An output tensor. Each output can be asked for once, in the order of the arguments.
    ///
    /// # Errors
    /// The argument is not an output tensor, has no memory or read-only memory, or was asked for
    /// before.
    pub fn out(&mut self, arg: usize) -> Result<TensorMut<'c>, KernelError> {
        let handle = self.arguments.handle(arg)?.ok_or(KernelError::access(arg))?;
        self.write(arg, 0, handle)
    }

    /// An output tensor in a list. Each can be asked for once, in the order of the list.
    ///
    /// # Errors
    /// As [`out`](Self::out).
    pub fn list_out(&mut self, arg: usize, position: usize) -> Result<TensorMut<'c>, KernelError> {
        let handle = self.arguments.list_handle(arg, position)?.ok_or(KernelError::access(arg))?;
        self.write(arg, position, handle)
    }

    /// Gives an output a shape that follows from the data; before the output is asked for.
    ///
    /// # Errors
    /// The output has a static shape that differs or not the memory for this one, or was asked for
    /// before.
    pub fn resize(&mut self, arg: usize, sizes: &[i32]) -> Result<(), KernelError> {
        if !self.roles.is_out(arg) || (arg, 0) < self.next_out {
            return Err(KernelError::access(arg));
        }
        let handle = self.arguments.handle(arg)?.ok_or(KernelError::access(arg))?;
        let values = &mut *self.arguments.values;
        values
            .resize(handle, sizes, true)
            .map_err(|error| resize_error(arg, values, handle, sizes, error))
    }

    /// Writes a number or truth value.
    ///
    /// # Errors
    /// The argument is not an output number.
    pub fn set_scalar(&mut self, arg: usize, scalar: Scalar) -> Result<(), KernelError> {
        if !self.roles.is_out(arg) {
            return Err(KernelError::access(arg));
        }
        let is_text = matches!(self.arguments.value(arg)?, Value::String(_));
        match self.arguments.index(arg) {
            Some(index) if !is_text && self.arguments.values.set(index, scalar.into()) => Ok(()),
            _ => Err(KernelError::access(arg)),
        }
    }

    /// Makes an output share the memory of an input of as many bytes; the output cannot be written
    /// then.
    ///
    /// # Errors
    /// The kernel is not [declared to alias](crate::Kernel::aliasing) these two, they are not of
    /// equal size, or the output was asked for before.
    pub fn alias(&mut self, out: usize, input: usize) -> Result<(), KernelError> {
        // Calls were compared at load with the places of all tensors but those that are declared to
        // become views.
        if self.aliasing != Some((out, input)) {
            return Err(KernelError::access(out));
        }
        let source = self.arguments.handle(input)?.ok_or(KernelError::access(input))?;
        let target = self.arguments.handle(out)?.ok_or(KernelError::access(out))?;
        self.take_out(out, 0)?;
        let (data, found) =
            (self.arguments.values.region(source), self.slot(input, source)?.nbytes());
        if self.slot(out, target)?.nbytes() != found {
            return Err(KernelError::argument(out, "differs in size from what it views"));
        }
        let slot = self.arguments.values.tensor_mut(target).ok_or(KernelError::access(out))?;
        match slot.home() {
            // It was placed when the method was loaded.
            Home::View(_) => {}
            Home::Constant => return Err(KernelError::read_only(out)),
            _ => slot.put(data),
        }
        Ok(())
    }

    /// The scratch memory: at least what prepare asked for, aligned to
    /// [`ARENA_ALIGN`](crate::ARENA_ALIGN) bytes. It can be asked for once; later it is empty.
    pub fn scratch(&mut self) -> &'c mut [u8] {
        let region = self.scratch.take();
        // SAFETY: the scratch memory is not part of any tensor (it was lent separately and
        // exclusively for 'm), no other call runs while this one borrows the method, and `take`
        // lets it go out once.
        region.and_then(|region| unsafe { region.bytes_mut() }).unwrap_or_default()
    }

    /// What the pack function left when the method was loaded.
    pub fn packed(&self) -> &'c [u8] {
        match self.packed {
            // SAFETY: packed memory is written only by the pack function at load, before any call
            // sees it here (calls of pack functions get no `packed`), and is not part of any
            // tensor.
            Some(region) => unsafe { region.bytes() },
            None => &[],
        }
    }

    /// How to use several threads.
    pub fn parallel(&self) -> &'c dyn Parallel {
        self.parallel
    }
}

/// The call of a delegate: inputs first, then outputs. How many are inputs, the delegate knows and
/// says.
pub struct DelegateCall<'c, 'm> {
    invoke: Invoke<'c, 'm>,
    tracer: Option<&'c dyn EventTracer>,
}

impl<'c, 'm> DelegateCall<'c, 'm> {
    pub(crate) fn new(
        values: &'c mut Values<'m>,
        args: &'m [[u8; 4]],
        resources: Resources<'c, 'm>,
        tracer: Option<&'c dyn EventTracer>,
    ) -> Self {
        let invoke = Invoke {
            arguments: Arguments::new(values, args, &[]),
            // Until `split`, everything counts as output and everything has been handed out.
            roles: Roles::From(0),
            aliasing: None,
            updated: None,
            next_out: (usize::MAX, 0),
            scratch: Some(resources.scratch),
            copies: heapless::Vec::new(),
            packed: None,
            parallel: resources.parallel,
        };
        DelegateCall { invoke, tracer }
    }

    /// Number of arguments, inputs and outputs together.
    pub fn len(&self) -> usize {
        self.invoke.arguments.len()
    }

    /// Whether there are no arguments.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The arguments, to look at before [`split`](Self::split) says which are inputs.
    pub fn arguments(&self) -> &Arguments<'c, 'm> {
        &self.invoke.arguments
    }

    /// Says how many of the arguments are inputs, and gives access to all: through the methods of
    /// [`Invoke`].
    ///
    /// # Errors
    /// There are fewer arguments, or an output shares memory with another argument.
    pub fn split(&mut self, inputs: usize) -> Result<&mut Invoke<'c, 'm>, KernelError> {
        let found = self.len();
        if inputs > found {
            return Err(KernelError::argument_count(inputs, found));
        }
        // What was handed out under an earlier split stays out: a second split gives no more.
        if self.invoke.next_out.0 != usize::MAX {
            return Err(KernelError::access(inputs));
        }
        let roles = Roles::From(inputs);
        let overlap = self.invoke.arguments.overlap(roles, None)?;
        if let Some(&other) = overlap.copies.first() {
            return Err(KernelError::overlap(inputs, other));
        }
        self.invoke.roles = roles;
        self.invoke.next_out = (inputs, 0);
        Ok(&mut self.invoke)
    }

    /// Tells the tracer, if there is one, of an event inside the delegate.
    pub fn trace(&self, event: &DelegateEvent<'_>) {
        if let Some(tracer) = self.tracer {
            tracer.delegate_event(event);
        }
    }

    /// Whether anybody listens to [`trace`](Self::trace).
    pub fn is_traced(&self) -> bool {
        self.tracer.is_some()
    }
}

/// A tensor of a method, for reading between calls.
pub(crate) fn view<'v>(values: &'v Values<'_>, slot: u32) -> Option<TensorRef<'v>> {
    let tensor = values.tensor(slot)?;
    // SAFETY: the values are borrowed for 'v, which 'm outlives; tensor data is written only by
    // calls and by `view_mut`, all of which borrow the values mutably.
    let bytes = unsafe { values.region(slot)?.bytes() };
    TensorRef::new(tensor.info(), bytes)
}

/// A tensor of a method, for writing between calls.
pub(crate) fn view_mut<'v>(values: &'v mut Values<'_>, slot: u32) -> Option<TensorMut<'v>> {
    let tensor = values.tensor(slot)?;
    // SAFETY: as in `view`, with a mutable borrow: no other reference to tensor data exists during
    // 'v.
    let bytes = unsafe { values.region(slot)?.bytes_mut() };
    Some(TensorMut::new(tensor.info(), bytes?))
}

/// Moves a value onto another. A tensor gets the shape and the contents of the other.
pub(crate) fn move_value(
    values: &mut Values<'_>,
    from: usize,
    to: usize,
) -> Result<(), KernelError> {
    let source = values.value(from).unwrap_or(Value::None);
    let (source, slot) = match (source, values.slot(to)) {
        (Value::Tensor(source), Some(slot)) => (source, slot),
        (source, _) => {
            return if values.set(to, source) { Ok(()) } else { Err(KernelError::read_only(1)) };
        }
    };
    let (Some(tensor), Some(bytes)) = (values.tensor(source), values.region(source)) else {
        return Err(KernelError::unbound(0));
    };
    let sizes = tensor.info().sizes;
    values
        .resize(slot, &sizes, true)
        .map_err(|error| resize_error(1, values, slot, &sizes, error))?;
    let target = values.region(slot).ok_or(KernelError::unbound(1))?;
    // SAFETY: no call is running, since the values are borrowed mutably: no reference to tensor
    // data exists, on this thread or another.
    match unsafe { target.copy_from(&bytes) } {
        true => Ok(()),
        false => Err(KernelError::read_only(1)),
    }
}
