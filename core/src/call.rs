//! Calls of kernels and delegates: access to the arguments, for preparing and for computing.
//!
//! This module turns [regions](crate::memory::region) into references. That is sound because:
//!
//! - A call gets references only after [`Arguments::overlap`] showed that no tensor it writes
//!   shares memory with another of its arguments. Arguments that do share memory are read from
//!   copies, or not at all.
//! - Arguments beyond those that were compared are inaccessible.
//! - Each output is handed out once.
//! - The references do not outlive the call, which borrows the method's values mutably.

use crate::arguments::Arguments;
use crate::error::{KernelError, ShapeNote};
use crate::kernel::Kernel;
use crate::layout::Sizes;
use crate::machine::Machine;
use crate::memory::ARENA_ALIGN;
use crate::memory::region::Region;
use crate::memory::slot::StorageKind;
use crate::overlap::{Copies, MAX_COPIES};
use crate::parallel::Parallel;
use crate::runtime_features::{RuntimeFeatures, has, may_share};
use crate::tensor::{TensorMut, TensorRef};
use crate::tracer::{DelegateEvent, EventTracer};
use crate::value::{Scalar, Value};
use crate::values::{ResizeError, Roles, Tensor, Values};
use core::ops::Deref;

/// A call being prepared: arguments can be inspected and outputs resized; no data is accessible.
#[derive(Debug)]
pub struct Prepare<'c, 'm> {
    arguments: Arguments<'c, 'm>,
    /// Whether `resize` changes the shapes of outputs. If false, shapes are only checked, as far as
    /// they are static.
    apply: bool,
    threads: usize,
    machine: Machine,
    /// Upper bound of the call's scratch memory in bytes, if the kernel stated one.
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

    /// States how much scratch memory the call needs at most, for shapes within their bounds. Call
    /// this before checking whether scalars and shapes are consistent.
    ///
    /// When a method is loaded, scalars that it computes are unknown and shapes are at their
    /// bounds, which may be inconsistent. A call that is [refused](KernelError) for that reason is
    /// prepared again at run time, with this much scratch memory available.
    pub fn scratch_at_most(&mut self, bytes: usize) {
        if has(RuntimeFeatures::VARIABLE) {
            self.scratch = self.scratch.max(bytes);
        }
    }

    /// The bound stated with [`scratch_at_most`](Self::scratch_at_most).
    pub(crate) fn scratch_bound(&self) -> usize {
        self.scratch
    }

    /// The machine that the call will run on. Differs from this one if only memory needs are
    /// computed.
    pub fn machine(&self) -> Machine {
        self.machine
    }

    /// Maximum number of threads of the kernel, for sizing scratch memory.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Sets the shape of an output.
    ///
    /// # Errors
    /// The output has a different static shape, or too little memory.
    pub fn resize(&mut self, arg: usize, sizes: &[i32]) -> Result<(), KernelError> {
        let handle = self.arguments.handle(arg)?;
        self.resize_handle(arg, handle, sizes)
    }

    /// Sets the shape of an output in a list.
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

/// The error for a tensor slot (argument `arg`) that cannot be resized.
#[cold]
fn resize_error(
    arg: usize,
    values: &Values<'_>,
    slot: u32,
    expected: &[i32],
    error: ResizeError,
) -> KernelError {
    // The shape is only used in error texts.
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

/// Load-time knowledge about memory overlap of a call's arguments.
///
/// It stays valid because data addresses change in only two ways:
///
/// - An aliasing kernel moves its declared view. Views are known when instructions are resolved; a
///   call with a [dynamic view](crate::values::flag::DYNAMIC_VIEW) as an argument, directly or in a
///   list, is always `Unknown`.
/// - The caller binds or lends memory, which is borrowed exclusively, or is not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KnownOverlap {
    /// Unknown: data addresses change, or inputs must be copied.
    Unknown,
    /// Written memory never overlaps read memory.
    Disjoint,
    /// As `Disjoint`, except for the input that is updated in place, which has exactly the output's
    /// memory.
    InPlace,
}

/// A call being computed: arguments can be inspected, inputs read, outputs written.
pub struct Invoke<'c, 'm> {
    arguments: Arguments<'c, 'm>,
    roles: Roles<'m>,
    /// The output that becomes a view, and the input that it views: outputs may share memory with
    /// inputs, and are not written.
    aliasing: Option<(usize, usize)>,
    /// The input that cannot be read, since the output has its memory.
    updated: Option<usize>,
    /// Argument and list position of the first output that was not yet handed out for writing.
    next_out: (usize, usize),
    scratch: Option<Region<'m>>,
    /// Copies of the inputs that share memory with outputs: argument index and region of the copy.
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

/// Resources of a call besides its arguments.
#[derive(Clone, Copy)]
pub(crate) struct Resources<'c, 'm> {
    pub(crate) scratch: Region<'m>,
    /// Bytes of scratch memory that must remain after copying inputs.
    pub(crate) scratch_needed: usize,
    pub(crate) packed: Option<Region<'m>>,
    pub(crate) parallel: &'c dyn Parallel,
}

impl<'c, 'm> Invoke<'c, 'm> {
    /// Starts a call. `args` has an entry for each parameter of the kernel; `known` was determined
    /// at load time.
    pub(crate) fn new(
        values: &'c mut Values<'m>,
        args: &'m [[u8; 4]],
        kernel: &'m Kernel,
        known: KnownOverlap,
        resources: Resources<'c, 'm>,
    ) -> Result<Self, KernelError> {
        let roles = Roles::Params(kernel.params);
        let in_place = kernel.in_place();
        let mut invoke = Invoke {
            arguments: Arguments::new(values, args, kernel.params),
            roles,
            aliasing: if has(RuntimeFeatures::VIEWS) { kernel.view() } else { None },
            updated: None,
            next_out: (0, 0),
            scratch: Some(resources.scratch),
            copies: heapless::Vec::new(),
            packed: resources.packed,
            parallel: resources.parallel,
        };
        let is_in_place = match known {
            _ if invoke.aliasing.is_some() => false,
            KnownOverlap::Disjoint => false,
            // Overlap is unknown at load time only with views or outputs over inputs.
            _ if !may_share() => return Err(KernelError::access(0)),
            KnownOverlap::InPlace => true,
            KnownOverlap::Unknown => {
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

    /// Copies inputs to the end of the scratch memory. The kernel gets the remaining scratch
    /// memory.
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
            // borrows the method mutably. The two ranges belong to distinct allocations, and the
            // references end with this statement.
            unsafe {
                if let Some(target) = copy.bytes_mut() {
                    target.copy_from_slice(source.bytes());
                }
            }
            rest = before;
            // Cannot fail: `Copies` has the same capacity.
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
        // SAFETY: 'c is the mutable borrow of the values that this call holds, and 'm outlives it.
        // During 'c, only this call accesses tensor data, and it writes only through `write`. `new`
        // (or `split`, for delegates) ensured one of the following: the call writes nothing
        // (`aliasing`); no written tensor shares bytes with this one, which is not itself written
        // (checked above); or this is a copy in scratch memory that is not handed out. The one
        // input that an output may overlap, `updated`, was refused above.
        let bytes = unsafe { region.bytes() };
        TensorRef::new(slot.info(), bytes).ok_or(KernelError::unbound(arg))
    }

    /// Checks that an output is handed out for the first time: outputs must be requested in order.
    fn claim_out(&mut self, arg: usize, position: usize) -> Result<(), KernelError> {
        if !self.roles.is_out(arg) || (arg, position) < self.next_out {
            return Err(KernelError::access(arg));
        }
        self.next_out = (arg, position.saturating_add(1));
        Ok(())
    }

    /// Whether the output of a kernel that is [declared to work in place](crate::Kernel::updating)
    /// has the memory of its input. If so, the output holds the input's contents, and the input
    /// cannot be read separately.
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
        self.claim_out(arg, position)?;
        let slot = self.slot(arg, handle)?;
        let region = self.arguments.values.region(handle).ok_or(KernelError::unbound(arg))?;
        // SAFETY: 'c is the mutable borrow of the values that this call holds, and 'm outlives it.
        // `new` (or `split`) ensured that these bytes belong to no other argument of the call
        // except `updated`, which `read` refuses; calls without that guarantee (`aliasing`) were
        // rejected above. `claim_out` ensures that no reference to this output was handed out
        // before: outputs are handed out in increasing order only.
        let bytes = unsafe { region.bytes_mut() };
        Ok(TensorMut::new(slot.info(), bytes.ok_or(KernelError::read_only(arg))?))
    }

    /// Returns an input tensor.
    ///
    /// # Errors
    /// The argument is not an input tensor, or has no memory.
    pub fn tensor(&self, arg: usize) -> Result<TensorRef<'c>, KernelError> {
        let handle = self.arguments.handle(arg)?.ok_or(KernelError::access(arg))?;
        self.read(arg, handle)
    }

    /// Returns an optional input tensor.
    ///
    /// # Errors
    /// The argument is of another kind, or has no memory.
    pub fn optional_tensor(&self, arg: usize) -> Result<Option<TensorRef<'c>>, KernelError> {
        self.arguments.handle(arg)?.map(|handle| self.read(arg, handle)).transpose()
    }

    /// Returns an input tensor in a list.
    ///
    /// # Errors
    /// The argument is not a list of inputs, `position` is out of range, or the tensor has no
    /// memory.
    pub fn list_tensor(
        &self,
        arg: usize,
        position: usize,
    ) -> Result<Option<TensorRef<'c>>, KernelError> {
        self.arguments.list_handle(arg, position)?.map(|handle| self.read(arg, handle)).transpose()
    }

    /// Returns an output tensor. Each output can be requested once, in the order of the arguments.
    ///
    /// # Errors
    /// The argument is not an output tensor, has no memory or read-only memory, or was requested
    /// before.
    pub fn out(&mut self, arg: usize) -> Result<TensorMut<'c>, KernelError> {
        let handle = self.arguments.handle(arg)?.ok_or(KernelError::access(arg))?;
        self.write(arg, 0, handle)
    }

    /// Returns an output tensor in a list. Each can be requested once, in the order of the list.
    ///
    /// # Errors
    /// As [`out`](Self::out).
    pub fn list_out(&mut self, arg: usize, position: usize) -> Result<TensorMut<'c>, KernelError> {
        let handle = self.arguments.list_handle(arg, position)?.ok_or(KernelError::access(arg))?;
        self.write(arg, position, handle)
    }

    /// Sets the shape of an output with a data-dependent shape. Call this before requesting the
    /// output.
    ///
    /// # Errors
    /// The output has a different static shape or too little memory, or was requested before.
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

    /// Writes a number or boolean.
    ///
    /// # Errors
    /// The argument is not an output scalar.
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

    /// Makes an output a view of an input with the same size in bytes. The output cannot be written
    /// after that.
    ///
    /// # Errors
    /// The kernel is not [declared to alias](crate::Kernel::aliasing) these two, their sizes
    /// differ, or the output was requested before.
    pub fn alias(&mut self, out: usize, input: usize) -> Result<(), KernelError> {
        // The overlap analysis at load time covers the addresses of all tensors but the declared
        // views.
        if self.aliasing != Some((out, input)) {
            return Err(KernelError::access(out));
        }
        let source = self.arguments.handle(input)?.ok_or(KernelError::access(input))?;
        let target = self.arguments.handle(out)?.ok_or(KernelError::access(out))?;
        self.claim_out(out, 0)?;
        let (data, found) =
            (self.arguments.values.region(source), self.slot(input, source)?.nbytes());
        if self.slot(out, target)?.nbytes() != found {
            return Err(KernelError::argument(
                out,
                "view: expected as many bytes as the viewed tensor",
            ));
        }
        let slot = self.arguments.values.tensor_mut(target).ok_or(KernelError::access(out))?;
        match slot.storage_kind() {
            // Placed when the method was loaded.
            StorageKind::View(_) => {}
            StorageKind::Constant => return Err(KernelError::read_only(out)),
            _ => slot.set_data(data),
        }
        Ok(())
    }

    /// Returns the scratch memory: at least what prepare requested, aligned to
    /// [`ARENA_ALIGN`](crate::ARENA_ALIGN) bytes. It can be requested once; later calls return an
    /// empty slice.
    pub fn scratch(&mut self) -> &'c mut [u8] {
        let region = self.scratch.take();
        // SAFETY: the scratch memory is not part of any tensor (it was lent separately and
        // exclusively for 'm), no other call runs while this one borrows the method, and `take`
        // hands it out only once.
        region.and_then(|region| unsafe { region.bytes_mut() }).unwrap_or_default()
    }

    /// Returns the packed weights, written by the pack function when the method was loaded.
    pub fn packed(&self) -> &'c [u8] {
        match self.packed {
            // SAFETY: packed memory is written only by the pack function at load, before any call
            // sees it here (calls of pack functions get no `packed`), and is not part of any
            // tensor.
            Some(region) => unsafe { region.bytes() },
            None => &[],
        }
    }

    /// Threads for use in this call.
    pub fn parallel(&self) -> &'c dyn Parallel {
        self.parallel
    }
}

/// A delegate's call: inputs first, then outputs. The delegate states the number of inputs in
/// [`split`](Self::split).
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
            // Until `split`, all arguments count as outputs that were already handed out.
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

    /// The arguments, for inspection before [`split`](Self::split).
    pub fn arguments(&self) -> &Arguments<'c, 'm> {
        &self.invoke.arguments
    }

    /// States the number of inputs, and gives access to all arguments through [`Invoke`].
    ///
    /// # Errors
    /// The call has fewer arguments, an output shares memory with another argument, or the call was
    /// already split.
    pub fn split(&mut self, inputs: usize) -> Result<&mut Invoke<'c, 'm>, KernelError> {
        let found = self.len();
        if inputs > found {
            return Err(KernelError::argument_count(inputs, found));
        }
        // A second split is refused: it would hand out the same references again.
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

    /// Reports an event inside the delegate to the tracer, if any.
    pub fn trace(&self, event: &DelegateEvent<'_>) {
        if let Some(tracer) = self.tracer {
            tracer.delegate_event(event);
        }
    }

    /// Whether a tracer receives events from [`trace`](Self::trace).
    pub fn is_traced(&self) -> bool {
        self.tracer.is_some()
    }
}

/// Read access to a method's tensor between calls.
pub(crate) fn view<'v>(values: &'v Values<'_>, slot: u32) -> Option<TensorRef<'v>> {
    let tensor = values.tensor(slot)?;
    // SAFETY: the values are borrowed for 'v, and 'm outlives it. Tensor data is written only by
    // calls and by `view_mut`, which all borrow the values mutably.
    let bytes = unsafe { values.region(slot)?.bytes() };
    TensorRef::new(tensor.info(), bytes)
}

/// Write access to a method's tensor between calls.
pub(crate) fn view_mut<'v>(values: &'v mut Values<'_>, slot: u32) -> Option<TensorMut<'v>> {
    let tensor = values.tensor(slot)?;
    // SAFETY: as in `view`, with a mutable borrow: no other reference to tensor data exists during
    // 'v.
    let bytes = unsafe { values.region(slot)?.bytes_mut() };
    Some(TensorMut::new(tensor.info(), bytes?))
}

/// Copies a value to another. A tensor gets the shape and the contents of the source.
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
    // SAFETY: the values are borrowed mutably, so no call is running: no reference to tensor data
    // exists, on any thread.
    match unsafe { target.copy_from(&bytes) } {
        true => Ok(()),
        false => Err(KernelError::read_only(1)),
    }
}
