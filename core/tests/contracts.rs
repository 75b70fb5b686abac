//! Kernels, backends, loaders and callers that violate their contracts in every way that safe code
//! permits, in combination with matching files.

mod common;

use common::builder::{Instruction, Method, Program, tensor};
use common::kernels::add_one;
use common::{Aligned, Memory, limits};
use std::sync::atomic::{AtomicUsize, Ordering};
use torchlet_core::format::flatbuffer::Table;
use torchlet_core::{
    self as core, Backend, DataLoader, Delegate, DelegateBox, DelegateCall, DelegateError,
    DelegateInfo, InitContext, Invoke, InvokeFn, Kernel, KernelError, LoadOptions, Param, Plan,
    Prepare, ReadError, Registry, ValueRef,
};

/// A kernel declared to alias argument 1 to argument 0 that also tries to alias others.
fn alias_others(call: &mut Invoke<'_, '_>) -> Result<(), KernelError> {
    for (out, input) in [(3, 0), (3, 2), (1, 2), (0, 1), (2, 0), (1, 1), (9, 0), (1, 9)] {
        assert_eq!(call.alias(out, input), Err(KernelError::access(out)), "{out} {input}");
    }
    call.alias(1, 0)
}

/// Copies `[2, 2]` tensors of the layout that prepare saw, wherever they are.
fn copy_square(call: &mut Invoke<'_, '_>) -> Result<(), KernelError> {
    assert_eq!(call.info(0)?.sizes, [2, 2], "prepare saw another shape");
    assert!(call.info(0)?.is_contiguous(), "prepare saw another layout");
    let input = call.tensor(0)?;
    call.out(1)?.bytes_mut().copy_from_slice(input.bytes());
    Ok(())
}

fn prepare_square(call: &mut Prepare<'_, '_>) -> Result<Plan, KernelError> {
    let info = call.info(0)?;
    if info.sizes != [2, 2] || !info.is_contiguous() {
        return Err(KernelError::unsupported("what is not square"));
    }
    Ok(Plan::new(copy_square))
}

fn prepared<const INVOKE: usize>(_: &mut Prepare<'_, '_>) -> Result<Plan, KernelError> {
    const ALL: [InvokeFn; 2] = [add_one, alias_others];
    Ok(Plan::new(ALL[INVOKE]))
}

const TO: &[Param] = &[Param::Tensor, Param::Out];
const TWO_TO_TWO: &[Param] = &[Param::Tensor, Param::Out, Param::Tensor, Param::Out];

static KERNELS: &[Kernel] = &[
    Kernel::new("t::add_one", TO, prepared::<0>),
    Kernel::new("t::alias_others", TWO_TO_TWO, prepared::<1>).aliasing(1, 0),
    Kernel::new("t::pair", TO, prepare_pair),
    Kernel::new("t::square", TO, prepare_square),
];

fn registry<'r>() -> Registry<'r> {
    Registry::new().with_kernels(KERNELS).unwrap()
}

fn small() -> common::builder::Tensor {
    tensor(&[4])
}

/// Loads a method and runs it twice with input 0 set to 1, 2, 3, 4. Returns output 0.
fn run(method: Method) -> Result<Vec<f32>, String> {
    let file = Aligned::from(&Program::of(method)[..]);
    let program = core::Program::from_bytes(file.bytes()).unwrap();
    let registry = registry();
    let mut memory = Memory::of(&program, "forward", &registry, &[])?;
    let options = LoadOptions::default().with_limits(limits());
    let mut method = memory.load(&program, "forward", &registry, options)?;
    for _ in 0..2 {
        if let Ok(mut input) = method.input_mut(0) {
            input.data_mut::<f32>().unwrap().copy_from_slice(&[1.0, 2.0, 3.0, 4.0]);
        }
        method.execute().map_err(|error| error.to_string())?;
    }
    match method.output(0) {
        Ok(ValueRef::Tensor(output)) => Ok(output.data::<f32>().unwrap().to_vec()),
        other => Err(format!("{other:?}")),
    }
}

/// The overlap analysis at load time covers the addresses of all tensors but the declared views, so
/// no other tensor may become a view.
#[test]
fn kernels_alias_only_what_they_declare() {
    let mut method = Method::new("forward", &[64]);
    let x = method.input(small().at(0, 0));
    let (seen, other) = (method.tensor(small()), method.tensor(small().at(0, 16)));
    let y = method.tensor(small().at(0, 32));
    method.call("t::alias_others", &[x, seen, y, other]);
    method.call("t::add_one", &[x, other]);
    method.outputs = vec![other];
    assert_eq!(run(method).unwrap(), [2.0, 3.0, 4.0, 5.0]);
}

/// After a chain of moves, the last target still has the shape and layout that it was prepared for,
/// or the move fails.
#[test]
fn moves_preserve_prepared_shape_and_layout() {
    let square = || tensor(&[2, 2]);
    let first =
        [square().dynamic().at(0, 16), tensor(&[4, 1]).at(0, 16), tensor(&[1, 4]).at(0, 16)];
    // One rejected case suffices under Miri.
    for (index, from) in first.into_iter().enumerate().take(if cfg!(miri) { 2 } else { 3 }) {
        for backwards in [false, true] {
            let mut method = Method::new("forward", &[128]);
            let x = method.input(square().at(0, 0));
            let from = method.tensor(from.clone());
            let a = method.tensor(square().at(0, 32));
            let b = method.tensor(square().at(0, 48));
            let y = method.tensor(square().at(0, 64));
            let mut moves = [Instruction::Move(from, a), Instruction::Move(a, b)];
            if backwards {
                moves.reverse();
            }
            for instruction in moves {
                method.then(instruction);
            }
            method.call("t::square", &[b, y]);
            method.outputs = vec![x];
            assert_eq!(run(method).is_ok(), index == 0, "{index} {backwards}");
        }
    }
}

/// Rejects all shapes but one, after stating its maximum scratch memory.
fn prepare_pair(call: &mut Prepare<'_, '_>) -> Result<Plan, KernelError> {
    let bytes = call.info(0)?.numel() * 4;
    call.scratch_at_most(bytes);
    if call.info(0)?.sizes != [2] {
        return Err(KernelError::argument(0, "is no pair"));
    }
    call.resize(1, &[2])?;
    Ok(Plan::new(copy_by_scratch).with_scratch(bytes))
}

fn copy_by_scratch(call: &mut Invoke<'_, '_>) -> Result<(), KernelError> {
    let input = call.tensor(0)?;
    let scratch = &mut call.scratch()[..input.bytes().len()];
    scratch.copy_from_slice(input.bytes());
    call.out(1)?.bytes_mut().copy_from_slice(scratch);
    Ok(())
}

/// A call that is rejected for the upper-bound shape still has scratch memory for shapes that it
/// accepts.
#[test]
fn scratch_bound_applies_to_refused_calls() {
    let mut method = Method::new("forward", &[64]);
    let x = method.input(small().dynamic().at(0, 0));
    let y = method.tensor(small().dynamic().at(0, 16));
    method.call("t::pair", &[x, y]);
    method.outputs = vec![y];
    let file = Aligned::from(&Program::of(method)[..]);
    let program = core::Program::from_bytes(file.bytes()).unwrap();
    let registry = registry();
    let mut memory = Memory::of(&program, "forward", &registry, &[]).unwrap();
    assert_eq!(memory.needs.scratch, 16);
    let options = LoadOptions::default().with_limits(limits());
    let mut method = memory.load(&program, "forward", &registry, options).unwrap();
    let error = method.execute().unwrap_err();
    assert!(error.to_string().contains("no pair"), "{error}");
    let input = core::TensorRef::from_slice(&[2], &[1.0f32, 2.0]).unwrap();
    method.execute_into(&[(0, input)], &mut []).unwrap();
    let ValueRef::Tensor(output) = method.output(0).unwrap() else { panic!("no tensor") };
    assert_eq!(output.data::<f32>().unwrap(), [1.0, 2.0]);
}

/// Storage that randomly returns wrong sizes, slices, contents or errors.
struct InconsistentLoader<'a> {
    bytes: &'a [u8],
    other: &'a [u8],
    answers: std::sync::Mutex<common::MutationRng>,
    /// On average, one of `every` answers is wrong.
    every: usize,
}

impl InconsistentLoader<'_> {
    fn fault(&self) -> Option<usize> {
        let mut answers = self.answers.lock().unwrap();
        (answers.below(self.every) == 0).then(|| answers.below(6))
    }
}

impl DataLoader for InconsistentLoader<'_> {
    fn size(&self) -> u64 {
        let size = self.bytes.len() as u64;
        match self.fault() {
            None => size,
            Some(kind) => [0, 7, size - 1, size + 1, u64::MAX, size / 2][kind],
        }
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), ReadError> {
        match self.fault() {
            None => common::ReadOnly(self.bytes).read(offset, into),
            Some(0 | 1) => Err(ReadError { offset, len: into.len() }),
            // Reports success without reading.
            Some(2) => Ok(()),
            Some(_) => common::ReadOnly(self.other).read(offset, into),
        }
    }

    fn lend(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let start = usize::try_from(offset).ok()?;
        match self.fault() {
            None => self.bytes.get(start..start.checked_add(len)?),
            Some(0) => Some(&[]),
            Some(1) => self.bytes.get(start..),
            // A misaligned slice of other data.
            Some(2) => self.other.get(start + 1..start.checked_add(len)? + 1),
            Some(3) => self.other.get(start..start.checked_add(len)?),
            Some(_) => None,
        }
    }
}

#[test]
fn inconsistent_storage() {
    let mut loaded = 0;
    for file in ["programs/state_initialized.bpte", "formats/weights_align_16.pte"] {
        let bytes = common::program_of(file);
        let mut other = bytes.clone();
        let registry = common::kernels::registry();
        for seed in 0..if cfg!(miri) { 1 } else { 400 } {
            let mut answers = common::MutationRng::new(seed * 77 + 5);
            answers.damage(other.bytes_mut());
            let every = 2 + seed as usize % 60;
            let answers = std::sync::Mutex::new(answers);
            let loader =
                InconsistentLoader { bytes: bytes.bytes(), other: other.bytes(), answers, every };
            let mut buffer = Aligned::new(bytes.bytes().len());
            let Ok(program) = core::Program::load_into(&loader, buffer.bytes_mut()) else {
                continue;
            };
            // Errors and different results are acceptable: the loader presents a different file
            // each time.
            let Ok(mut memory) = Memory::of(&program, "forward", &registry, &[]) else { continue };
            let options = LoadOptions::default().with_limits(limits());
            let Ok(mut method) = memory.load(&program, "forward", &registry, options) else {
                continue;
            };
            loaded += 1;
            for _ in 0..3 {
                common::fill_inputs(&mut method);
                let _ = method.execute();
                let _ = method.reset();
            }
        }
    }
    assert!(loaded > 20 || cfg!(miri), "only {loaded}");
}

/// A backend that behaves inconsistently.
#[derive(Default)]
struct InconsistentBackend {
    calls: AtomicUsize,
    dropped: AtomicUsize,
    /// Kind of inconsistency; 0 is none.
    fault: usize,
}

/// A zero-sized delegate with the maximum supported alignment.
#[repr(align(16))]
struct ZeroSized;

struct DropCounter<'m>(&'m InconsistentBackend, [u64; 3]);

impl Backend for InconsistentBackend {
    fn name(&self) -> &'static str {
        // Changes its name after the first calls.
        if self.fault == 1 && self.calls.fetch_add(1, Ordering::Relaxed) > 8 {
            "Other"
        } else {
            "InconsistentBackend"
        }
    }

    fn arena_bytes(&self, _: &DelegateInfo<'_>) -> Result<usize, DelegateError> {
        let calls = self.calls.fetch_add(1, Ordering::Relaxed);
        Ok(match self.fault {
            2 => [64, 4096][calls % 2],
            3 => [4096, 64][calls % 2],
            4 => [64, usize::MAX][calls % 2],
            5 => usize::MAX - 15,
            6 => 1,
            _ => 256,
        })
    }

    fn init<'m>(
        &'m self,
        context: &mut InitContext<'_, 'm>,
    ) -> Result<DelegateBox<'m>, DelegateError> {
        let kept = context.allocate(3)?;
        kept.fill(1);
        assert!(
            context.allocate(usize::MAX).is_err() && context.allocate(isize::MAX as usize).is_err()
        );
        let first = context.place(DropCounter(self, [7; 3]))?;
        match self.fault {
            // Creates and drops delegates, then returns a zero-sized one at the end of the arena.
            7 => drop((first, context.place(DropCounter(self, [8; 3]))?)),
            8 => drop(first),
            _ => return Ok(first),
        }
        while context.allocate(1).is_ok() {}
        context.place(ZeroSized)
    }
}

impl Delegate for ZeroSized {
    fn execute(&mut self, call: &mut DelegateCall<'_, '_>) -> Result<(), DelegateError> {
        assert!(::core::ptr::from_mut(self).is_aligned());
        // Tries several splits until one is valid; before that, no data is accessible.
        for inputs in [usize::MAX, 3, 1, 0] {
            let Ok(invoke) = call.split(inputs) else { continue };
            assert_eq!(inputs, 1);
            let scratch = invoke.scratch();
            let input = invoke.tensor(0)?;
            invoke.resize(1, &[4])?;
            let mut out = invoke.out(1)?;
            scratch.fill(9);
            out.bytes_mut().copy_from_slice(input.bytes());
            assert!(invoke.resize(1, &[4]).is_err() && invoke.out(1).is_err());
            assert!(invoke.set_scalar(1, core::Scalar::Int(1)).is_err());
            return Ok(());
        }
        Ok(())
    }
}

impl Delegate for DropCounter<'_> {
    fn execute(&mut self, _: &mut DelegateCall<'_, '_>) -> Result<(), DelegateError> {
        assert_eq!(self.1, [7; 3]);
        Ok(())
    }
}

impl Drop for DropCounter<'_> {
    fn drop(&mut self) {
        self.0.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn inconsistent_backends() {
    for fault in 0..9 {
        let mut method = Method::new("forward", &[64]);
        let x = method.input(small().at(0, 0));
        let y = method.tensor(small().at(0, 16));
        method.delegates = vec![("InconsistentBackend", vec![1, 2, 3]); 2];
        // A delegate whose output overlaps its input; its split is refused.
        let over = method.tensor(small().at(0, 4));
        method.then(Instruction::Delegate(0, vec![x, y]));
        method.then(Instruction::Delegate(1, vec![x, over]));
        method.outputs = vec![y];
        let file = Aligned::from(&Program::of(method)[..]);
        let program = core::Program::from_bytes(file.bytes()).unwrap();
        let backend = InconsistentBackend { fault, ..InconsistentBackend::default() };
        let registry = Registry::new().with_backend(&backend).unwrap();
        let result = Memory::of(&program, "forward", &registry, &[]).and_then(|mut memory| {
            let options = LoadOptions::default().with_limits(limits());
            let mut method = memory.load(&program, "forward", &registry, options)?;
            method.execute().map_err(|error| error.to_string())?;
            method.reset().map_err(|error| error.to_string())
        });
        // Some inconsistencies may go unnoticed. Consistent backends (0) and unused delegates
        // (7, 8) must be accepted; impossible sizes (5, 6) must be rejected.
        assert!(result.is_ok() || ![0, 7, 8].contains(&fault), "{fault}: {result:?}");
        assert!(result.is_err() || ![5, 6].contains(&fault), "{fault}");
        if result.is_ok() {
            assert_eq!(backend.dropped.load(Ordering::Relaxed), if fault == 7 { 4 } else { 2 });
        }
    }
}

/// Binds memory, sets inputs and resets the method between steps.
#[test]
fn bind_and_reset_between_steps() {
    let mut method = Method::new("forward", &[64]);
    let x = method.input(small());
    let (y, z) = (method.tensor(small()), method.tensor(small().at(0, 0)));
    let seen = method.tensor(small());
    method.call("t::add_one", &[x, y]);
    method.then(Instruction::Move(y, x));
    method.call("t::add_one", &[x, z]);
    method.call("t::add_one", &[y, x]);
    method.outputs = vec![y, z, seen];
    let file = Aligned::from(&Program::of(method)[..]);
    let program = core::Program::from_bytes(file.bytes()).unwrap();
    let registry = registry();
    let mut memory = Memory::of(&program, "forward", &registry, &[]).unwrap();
    let mut buffers: Vec<Aligned> = (0..40).map(|_| Aligned::new(16)).collect();
    let mut buffers = buffers.iter_mut();
    let mut method = memory.load(&program, "forward", &registry, LoadOptions::default()).unwrap();
    for round in 0..4 {
        for step in 0..4 {
            let input = core::TensorRef::from_slice(&[4], &[1.0f32; 4]).unwrap();
            method.set_input_tensor(0, &input).unwrap();
            if round > 0 {
                // Input and output are bound to different memory each time.
                let result = method.bind_input(0, buffers.next().unwrap().bytes_mut());
                assert!(result.is_ok());
                let result = method.bind_output(0, buffers.next().unwrap().bytes_mut());
                assert!(result.is_ok());
            }
            method.step().unwrap();
            if step == round {
                method.reset().unwrap();
            }
        }
        let _ = method.execute();
    }
}

/// Values that no file or backend contains, but that callers may pass.
#[test]
fn helpers_accept_any_values() {
    let many: Vec<u8> = (0..=255).collect();
    for len in [31, 32, 33, 200, 256] {
        let _ = core::layout::is_permutation(&many[..len]);
        let _ = core::layout::same_layout(&vec![2; len], &many[..len], &many[1..len]);
        let _ = core::layout::strides_of(&vec![i32::MAX; len], &many[..len]);
        assert_eq!(core::layout::contiguous_order(len).len(), 16);
    }
    let file = Program::of(Method::new("forward", &[]));
    let table = Table::root(&file).unwrap();
    for slot in [100, usize::MAX / 2 - 3, usize::MAX / 2, usize::MAX / 2 + 1, usize::MAX] {
        assert_eq!(table.get::<u64>(slot).unwrap(), 0);
        assert!(table.union_value(slot).unwrap().is_none());
    }
}
