//! The image with `torchlet-core`.

use crate::{anything, arena, memory};
use torchlet_core::{
    Backend, BundledProgram, DataLoader, DataMap, Delegate, DelegateBox, DelegateCall,
    DelegateError, DelegateInfo, InitContext, Invoke, Kernel, KernelError, LoadOptions,
    MethodMemory, Param, Plan, Prepare, Program, ReadError, Registry, ScalarType, TensorInfo,
    TensorRef, ValueRef, delegate_size,
};

/// A delegate that copies its first argument to its second.
struct Copy;

impl Delegate for Copy {
    fn execute(&mut self, call: &mut DelegateCall<'_, '_>) -> Result<(), DelegateError> {
        let call = call.split(1)?;
        let input = call.tensor(0)?;
        let mut output = call.out(1)?;
        if let Some(target) = output.bytes_mut().get_mut(..input.bytes().len()) {
            target.copy_from_slice(input.bytes());
        }
        Ok(())
    }
}

struct UserBackend;

impl Backend for UserBackend {
    fn name(&self) -> &'static str {
        "UserBackend"
    }

    fn arena_bytes(&self, _: &DelegateInfo<'_>) -> Result<usize, DelegateError> {
        Ok(delegate_size::<Copy>())
    }

    fn init<'m>(
        &'m self,
        context: &mut InitContext<'_, 'm>,
    ) -> Result<DelegateBox<'m>, DelegateError> {
        context.place(Copy)
    }
}

fn prepare(call: &mut Prepare<'_, '_>) -> Result<Plan, KernelError> {
    let sizes = call.info(0)?.sizes;
    call.resize(1, &sizes)?;
    Ok(Plan::new(invoke))
}

fn invoke(call: &mut Invoke<'_, '_>) -> Result<(), KernelError> {
    let input = call.tensor(0)?;
    let mut output = call.out(1)?;
    if let Some(target) = output.bytes_mut().get_mut(..input.bytes().len()) {
        target.copy_from_slice(input.bytes());
    }
    Ok(())
}

static KERNELS: &[Kernel] = &[Kernel::new("user::copy.out", &[Param::Tensor, Param::Out], prepare)];

/// Read-only storage without memory mapping, such as SPI flash.
struct Storage;

impl DataLoader for Storage {
    fn size(&self) -> u64 {
        u64::from(anything())
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), ReadError> {
        for byte in into.iter_mut() {
            *byte = anything() as u8;
        }
        if anything() == 0 { Err(ReadError { offset, len: into.len() }) } else { Ok(()) }
    }
}

#[cfg(feature = "messages")]
use core::fmt::Display as Report;

#[cfg(feature = "messages")]
fn report(error: &dyn Report) {
    struct Sink;
    impl core::fmt::Write for Sink {
        fn write_str(&mut self, text: &str) -> core::fmt::Result {
            let target = memory();
            let len = target.len().min(text.len());
            for (byte, from) in target.iter_mut().take(len).zip(text.bytes()) {
                *byte = from;
            }
            Ok(())
        }
    }
    let _ = core::fmt::write(&mut Sink, format_args!("{error}"));
}

#[cfg(not(feature = "messages"))]
trait Report {}
#[cfg(not(feature = "messages"))]
impl<E> Report for E {}

#[cfg(not(feature = "messages"))]
fn report<E>(_: &E) {
    memory().fill(1);
}

/// Returns the value, or reports the error.
fn checked<T, E: Report>(result: Result<T, E>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            report(&error);
            None
        }
    }
}

/// Uses everything from opening a file to resetting a method.
pub(crate) fn run() -> Option<()> {
    let registry = checked(Registry::new().with_kernels(KERNELS))?;
    let registry = checked(registry.with_backend(&UserBackend))?;
    let mut bytes: &[u8] = memory();
    if BundledProgram::is_bundled(bytes) {
        bytes = checked(checked(BundledProgram::from_bytes(bytes))?.program())?;
    }
    let program = match anything() {
        0 => Program::from_bytes(bytes),
        _ => Program::load_into(&Storage, memory()),
    };
    let program = checked(program)?;
    let maps = [checked(DataMap::from_bytes(memory()))?];
    let name = core::str::from_utf8(memory()).ok()?;
    let meta = checked(program.method_meta(name))?;
    let options = LoadOptions::default().with_data(&maps);
    memory().fill(checked(meta.table_bytes(&options.limits))? as u8);
    let prepared = checked(meta.prepare(arena(), &registry, options))?;
    let needs = prepared.needs();
    for size in [needs.arena, needs.scratch, checked(meta.planned_buffer_size(0))?] {
        memory().fill(size as u8);
    }
    let mut planned = [memory()];
    let lent = MethodMemory { arena: arena(), planned: &mut planned, scratch: memory() };
    let mut method = checked(prepared.finish(lent))?;
    let info = TensorInfo::contiguous(ScalarType::Float, &[1, anything() as i32])?;
    let input = TensorRef::new(info, memory())?;
    checked(method.set_input(0, &ValueRef::Tensor(input)))?;
    checked(method.bind_output(0, memory()))?;
    checked(method.execute())?;
    if let ValueRef::Tensor(output) = checked(method.output(0))? {
        for (to, from) in memory().iter_mut().zip(output.bytes()) {
            *to = *from;
        }
    }
    checked(method.reset())
}
