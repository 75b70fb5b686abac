//! No aliasing references, whatever a file, kernel, delegate or loader does. Under Miri, each of
//! these programs was undefined behaviour, or would be if a check were missing.

mod common;

use common::builder::{Instruction, Method, Program, Value, tensor};
use common::kernels::add_one;
use common::{Aligned, Memory, limits, needs};
use std::sync::Mutex;
use torchlet_core::{
    self as core, Backend, DataLoader, Delegate, DelegateBox, DelegateCall, DelegateError,
    DelegateInfo, ExecuteError, InitContext, InitError, InputError, Invoke, Kernel, KernelError,
    LoadOptions, Param, Plan, Prepare, ReadError, Registry, Scalar, TensorRef, ValueRef,
    delegate_size,
};

/// Writes a list of outputs, all borrowed at the same time.
fn add_to_all(call: &mut Invoke<'_, '_>) -> Result<(), KernelError> {
    let input = call.tensor(0)?;
    let mut outs = Vec::new();
    for position in 0..call.list_len(1)? {
        outs.push(call.list_out(1, position)?);
    }
    for (number, out) in outs.iter_mut().enumerate() {
        for (to, from) in out.data_mut::<f32>()?.iter_mut().zip(input.data::<f32>()?) {
            *to = from + 1.0 + number as f32;
        }
    }
    Ok(())
}

/// Adds one, in place if the output overlaps the input exactly.
fn update(call: &mut Invoke<'_, '_>) -> Result<(), KernelError> {
    if call.is_in_place() {
        // The input cannot be read separately.
        assert_eq!(call.tensor(0).err(), Some(KernelError::access(0)));
        let mut out = call.out(1)?;
        out.data_mut::<f32>()?.iter_mut().for_each(|item| *item += 1.0);
        return Ok(());
    }
    add_one(call)
}

fn prepared<const INVOKE: usize>(_: &mut Prepare<'_, '_>) -> Result<Plan, KernelError> {
    const ALL: [core::InvokeFn; 8] =
        [add_one, add_to_all, update, view, alias_unasked, beyond, write_view, twice];
    Ok(Plan::new(ALL[INVOKE]))
}

fn view(call: &mut Invoke<'_, '_>) -> Result<(), KernelError> {
    call.alias(1, 0)
}

/// Tries to alias without a declaration, which would make output and input the same bytes.
fn alias_unasked(call: &mut Invoke<'_, '_>) -> Result<(), KernelError> {
    let error = call.alias(1, 0).unwrap_err();
    assert_eq!(error, KernelError::access(1));
    add_one(call)
}

/// Accesses arguments beyond the declared ones, where files repeat the outputs.
fn beyond(call: &mut Invoke<'_, '_>) -> Result<(), KernelError> {
    let mut out = call.out(1)?;
    for arg in [2, 3, 1000, usize::MAX] {
        assert!(call.tensor(arg).is_err() && call.out(arg).is_err() && call.info(arg).is_err());
        assert!(call.optional_tensor(arg).is_err() && call.list_tensor(arg, 0).is_err());
        assert!(call.resize(arg, &[1]).is_err() && call.list_out(arg, 0).is_err());
    }
    out.data_mut::<f32>()?.fill(7.0);
    Ok(())
}

/// Tries to write although it is declared to alias.
fn write_view(call: &mut Invoke<'_, '_>) -> Result<(), KernelError> {
    assert!(call.out(1).is_err());
    call.alias(1, 0)?;
    assert!(call.out(1).is_err() && call.alias(1, 0).is_err() && call.alias(0, 1).is_err());
    call.tensor(0).map(drop)
}

/// Requests output, scratch memory and input in every order, twice.
fn twice(call: &mut Invoke<'_, '_>) -> Result<(), KernelError> {
    let scratch = call.scratch();
    let mut out = call.out(1)?;
    assert!(call.out(1).is_err() && call.tensor(1).is_err() && call.out(0).is_err());
    assert!(call.resize(1, &[1]).is_err() && call.scratch().is_empty());
    let input = call.tensor(0)?;
    scratch.fill(1);
    out.data_mut::<f32>()?.fill(input.data::<f32>()?[0]);
    Ok(())
}

static KERNELS: &[Kernel] = &[
    Kernel::new("t::add_one", &[Param::Tensor, Param::Out], prepared::<0>),
    Kernel::new("t::add_to_all", &[Param::Tensor, Param::OutList], prepared::<1>),
    Kernel::new("t::alias_unasked", &[Param::Tensor, Param::Out], prepared::<4>),
    Kernel::new("t::beyond", &[Param::Tensor, Param::Out], prepared::<5>),
    Kernel::new("t::twice", &[Param::Tensor, Param::Out], prepared::<7>),
    Kernel::new("t::update", &[Param::Tensor, Param::Out], prepared::<2>).updating(1, 0),
    Kernel::new("t::view", &[Param::Tensor, Param::Out], prepared::<3>).aliasing(1, 0),
    Kernel::new("t::write_view", &[Param::Tensor, Param::Out], prepared::<6>).aliasing(1, 0),
];

fn registry<'r>() -> Registry<'r> {
    Registry::new().with_kernels(KERNELS).unwrap()
}

fn small() -> common::builder::Tensor {
    tensor(&[4])
}

/// Loads a program and runs it `times` times with input 0 set to 1, 2, 3, 4. Returns output 0.
fn run_times(file: &[u8], registry: &Registry<'_>, times: usize) -> Result<Vec<f32>, String> {
    run_in_place(Aligned::from(file).bytes(), registry, times)
}

/// Like [`run_times`], for a file aligned to 16 bytes, whose constants are borrowed.
fn run_in_place(file: &[u8], registry: &Registry<'_>, times: usize) -> Result<Vec<f32>, String> {
    let program = core::Program::from_bytes(file).unwrap();
    let mut memory = Memory::of(&program, "forward", registry, &[])?;
    let options = LoadOptions::default().with_limits(limits());
    let mut method = memory.load(&program, "forward", registry, options)?;
    for _ in 0..times {
        if let Ok(mut input) = method.input_mut(0) {
            input.data_mut::<f32>().unwrap().copy_from_slice(&[1.0, 2.0, 3.0, 4.0]);
        }
        method.execute().map_err(|error: ExecuteError| error.to_string())?;
    }
    match method.output(0) {
        Ok(ValueRef::Tensor(output)) => Ok(output.data::<f32>().unwrap().to_vec()),
        other => Err(format!("{other:?}")),
    }
}

fn run(method: Method) -> Result<Vec<f32>, String> {
    run_times(&Program::of(method), &registry(), 1)
}

/// Moving a list would allow an output to overlap an input; it is rejected.
#[test]
fn moves_of_tensor_lists_are_rejected() {
    let mut method = Method::new("forward", &[64]);
    let x = method.input(small().at(0, 0));
    let y = method.tensor(small().at(0, 16));
    let (xs, ys) = (method.list(&[x]), method.list(&[y]));
    method.call("t::add_to_all", &[x, ys]);
    method.then(Instruction::Move(xs, ys));
    method.call("t::add_to_all", &[x, ys]);
    method.outputs = vec![x];
    let error = run(method).unwrap_err();
    assert!(error.contains("a move between values of different types"), "{error}");
}

#[test]
fn kernels_cannot_alias_unless_declared() {
    let mut method = Method::new("forward", &[64]);
    let x = method.input(small().at(0, 0));
    let y = method.tensor(small().at(0, 16));
    method.call("t::alias_unasked", &[x, y]);
    method.outputs = vec![y];
    assert_eq!(run(method).unwrap(), [2.0, 3.0, 4.0, 5.0]);
}

#[test]
fn aliasing_kernels_cannot_write() {
    let mut method = Method::new("forward", &[64]);
    let x = method.input(small().at(0, 0));
    let y = method.tensor(small());
    method.call("t::write_view", &[x, y]);
    method.outputs = vec![y];
    assert_eq!(run(method).unwrap(), [1.0, 2.0, 3.0, 4.0]);
}

#[test]
fn undeclared_arguments_are_inaccessible() {
    let mut method = Method::new("forward", &[64]);
    let x = method.input(small().at(0, 0));
    let y = method.tensor(small().at(0, 16));
    method.call("t::beyond", &[x, y, y, x]);
    method.outputs = vec![y];
    assert_eq!(run(method).unwrap(), [7.0; 4]);
}

#[test]
fn outputs_and_scratch_are_handed_out_once() {
    let mut method = Method::new("forward", &[64]);
    let x = method.input(small().at(0, 0));
    let y = method.tensor(small().at(0, 16));
    method.call("t::twice", &[x, y]);
    method.outputs = vec![y];
    assert_eq!(run(method).unwrap(), [1.0; 4]);
}

/// Outputs that overlap inputs exactly, partially, or through views.
#[test]
fn overlapping_inputs_are_copied() {
    for (offset, through_view) in [(0, false), (8, false), (0, true), (12, true)] {
        let mut method = Method::new("forward", &[64]);
        let x = method.input(small().at(0, 0));
        let y = method.tensor(small().at(0, offset));
        let mut from = x;
        if through_view {
            from = method.tensor(small());
            method.call("t::view", &[x, from]);
        }
        method.call("t::add_one", &[from, y]);
        method.outputs = vec![y];
        let file = Program::of(method);
        assert_eq!(run_times(&file, &registry(), 2).unwrap(), [2.0, 3.0, 4.0, 5.0], "{offset}");
        // The memory needs include the copy.
        let file = Aligned::from(&file[..]);
        let program = core::Program::from_bytes(file.bytes()).unwrap();
        assert_eq!(needs(&program, "forward", &registry(), &[]).unwrap().scratch, 16);
    }
}

/// An in-place kernel needs no copy if output and input are the same range.
#[test]
fn in_place_needs_no_copy() {
    for (offset, scratch) in [(0, 0), (16, 0), (4, 16)] {
        let mut method = Method::new("forward", &[64]);
        let x = method.input(small().at(0, 0));
        let y = method.tensor(small().at(0, offset));
        method.call("t::update", &[x, y]);
        method.outputs = vec![y];
        let file = Aligned::from(&Program::of(method)[..]);
        let program = core::Program::from_bytes(file.bytes()).unwrap();
        assert_eq!(needs(&program, "forward", &registry(), &[]).unwrap().scratch, scratch);
        assert_eq!(run_times(file.bytes(), &registry(), 3).unwrap(), [2.0, 3.0, 4.0, 5.0]);
    }
}

/// In-place through a view; not in-place if output and input differ in dtype.
#[test]
fn in_place_through_views_and_with_other_dtypes() {
    let mut method = Method::new("forward", &[64]);
    let x = method.input(small().at(0, 0));
    let seen = method.tensor(small());
    method.call("t::view", &[x, seen]);
    method.call("t::update", &[seen, x]);
    method.outputs = vec![x];
    assert_eq!(run(method).unwrap(), [2.0, 3.0, 4.0, 5.0]);

    let mut method = Method::new("forward", &[64]);
    let x = method.input(small().at(0, 0));
    let y = method.tensor(small().of(core::ScalarType::Int).at(0, 0));
    method.call("t::update", &[x, y]);
    method.outputs = vec![y];
    // The input is read from a copy; the kernel then rejects the integer output.
    let error = run(method).unwrap_err();
    assert!(error.contains("expected data of dtype"), "{error}");
}

/// The input of a call is the tensor that its output views.
#[test]
fn overlap_is_found_through_views() {
    let mut method = Method::new("forward", &[64]);
    let x = method.input(small().at(0, 0));
    let (a, b) = (method.tensor(small()), method.tensor(small()));
    method.call("t::view", &[x, a]);
    method.call("t::view", &[a, b]);
    method.call("t::add_one", &[a, b]);
    method.outputs = vec![x];
    assert_eq!(run(method).unwrap(), [2.0, 3.0, 4.0, 5.0]);
}

/// Views follow their tensor when memory is bound to it, and bound again.
#[test]
fn views_follow_bound_memory() {
    let mut method = Method::new("forward", &[64]);
    let x = method.input(small());
    let y = method.tensor(small().at(0, 0));
    let (a, b) = (method.tensor(small().named("b.seen")), method.tensor(small()));
    method.call("t::view", &[x, a]);
    method.call("t::view", &[a, b]);
    method.call("t::add_one", &[b, y]);
    method.outputs = vec![y, b];
    let file = Aligned::from(&Program::of(method)[..]);
    let program = core::Program::from_bytes(file.bytes()).unwrap();
    let registry = registry();
    let mut memory = Memory::of(&program, "forward", &registry, &[]).unwrap();
    let (mut first, mut second) = (Aligned::new(16), Aligned::new(20));
    let mut method = memory.load(&program, "forward", &registry, LoadOptions::default()).unwrap();
    assert!(!method.output_is_unbound(1));
    for memory in [first.bytes_mut(), &mut second.bytes_mut()[4..]] {
        method.bind_input(0, memory).unwrap();
        method.input_mut(0).unwrap().data_mut::<f32>().unwrap().fill(4.0);
        let output = |method: &core::Method<'_>, index| match method.output(index) {
            Ok(ValueRef::Tensor(output)) => output.data::<f32>().unwrap().to_vec(),
            other => panic!("{other:?}"),
        };
        assert_eq!(output(&method, 1), [4.0; 4]);
        method.execute().unwrap();
        assert_eq!(output(&method, 0), [5.0; 4]);
        // The name makes the view state, but a reset does not clear the input that it views.
        method.reset().unwrap();
        assert_eq!(output(&method, 1), [4.0; 4]);
    }
}

/// A tensor that is a view of different tensors at different times, so that overlap is unknown at
/// load time.
#[test]
fn dynamic_views() {
    let mut method = Method::new("forward", &[64]);
    let x = method.input(small().at(0, 0));
    let y = method.tensor(small().at(0, 16));
    let seen = method.tensor(small());
    method.call("t::add_one", &[x, y]);
    method.call("t::view", &[y, seen]);
    method.call("t::add_one", &[seen, x]);
    method.call("t::view", &[x, seen]);
    method.call("t::add_one", &[seen, x]);
    method.outputs = vec![x];
    let file = Program::of(method);
    assert_eq!(run_times(&file, &registry(), 2).unwrap(), [4.0, 5.0, 6.0, 7.0]);
}

/// The same through a view of a view.
#[test]
fn dynamic_views_of_views() {
    let mut method = Method::new("forward", &[64]);
    let x = method.input(small().at(0, 0));
    let y = method.tensor(small().at(0, 16));
    let z = method.tensor(small().at(0, 32));
    let (seen, seen_again) = (method.tensor(small()), method.tensor(small()));
    method.call("t::add_one", &[x, y]);
    method.call("t::view", &[x, seen]);
    method.call("t::view", &[seen, seen_again]);
    method.call("t::view", &[y, seen]);
    method.call("t::view", &[seen, seen_again]);
    method.call("t::add_one", &[seen_again, z]);
    method.outputs = vec![z];
    assert_eq!(run_times(&Program::of(method), &registry(), 2).unwrap(), [3.0, 4.0, 5.0, 6.0]);

    // The viewed tensor has other contents in the second run.
    let mut method = Method::new("forward", &[64]);
    let x = method.input(small().at(0, 0));
    let y = method.tensor(small().at(0, 16));
    let z = method.tensor(small().at(0, 32));
    let (named, seen) = (method.tensor(small().at(0, 48)), method.tensor(small()));
    method.call("t::add_one", &[x, y]);
    method.call("t::view", &[named, seen]);
    method.call("t::add_one", &[seen, z]);
    method.then(Instruction::Move(y, named));
    method.outputs = vec![z];
    let file = Program::of(method);
    assert_eq!(run_times(&file, &registry(), 1).unwrap(), [1.0; 4]);
    assert_eq!(run_times(&file, &registry(), 2).unwrap(), [3.0, 4.0, 5.0, 6.0]);
}

/// A planned tensor stays planned when it becomes a view of a constant or of memory that is gone.
#[test]
fn planned_views_stay_planned() {
    let mut program = Program::default();
    let data = program.constant(&[5.0, 6.0, 7.0, 8.0]);
    let mut method = Method::new("forward", &[64]);
    let constant = method.tensor(small().with_data(data));
    let x = method.input(small());
    let (y, z) = (method.tensor(small().at(0, 0)), method.tensor(small().at(0, 16)));
    method.call("t::view", &[constant, y]);
    method.call("t::view", &[x, z]);
    method.outputs = vec![y, z];
    program.methods.push(method);
    let file = Aligned::from(&program.file()[..]);
    let program = core::Program::from_bytes(file.bytes()).unwrap();
    let registry = registry();
    let mut memory = Memory::of(&program, "forward", &registry, &[]).unwrap();
    let mut own = [Aligned::new(16), Aligned::new(16)];
    let mut method = memory.load(&program, "forward", &registry, LoadOptions::default()).unwrap();
    let lent = TensorRef::from_slice(&[4], &[1.0f32, 2.0, 3.0, 4.0]).unwrap();
    method.execute_into(&[(0, lent)], &mut []).unwrap();
    let Ok(ValueRef::Tensor(output)) = method.output(0) else { panic!() };
    assert_eq!(output.data::<f32>().unwrap(), [5.0, 6.0, 7.0, 8.0]);
    assert!(matches!(method.output(1), Err(InputError::Unbound)));
    for (index, own) in own.iter_mut().enumerate() {
        assert!(!method.output_is_unbound(index));
        assert_eq!(method.bind_output(index, own.bytes_mut()), Err(InputError::Planned));
    }
    method.execute().unwrap();
}

/// Cyclic views are rejected or resolved, without infinite loops.
#[test]
fn cyclic_views_terminate() {
    let mut method = Method::new("forward", &[64]);
    let x = method.input(small().at(0, 0));
    let (a, b) = (method.tensor(small()), method.tensor(small()));
    method.call("t::view", &[a, b]);
    method.call("t::view", &[b, a]);
    method.call("t::view", &[a, a]);
    method.call("t::add_one", &[a, b]);
    method.outputs = vec![x];
    assert!(run(method).is_err());
}

#[test]
fn overlapping_outputs_are_rejected() {
    for (a, b) in [(16, 16), (16, 20), (16, 28)] {
        let mut method = Method::new("forward", &[64]);
        let x = method.input(small().at(0, 0));
        let (y, z) = (method.tensor(small().at(0, a)), method.tensor(small().at(0, b)));
        let list = method.list(&[y, z]);
        method.call("t::add_to_all", &[x, list]);
        method.outputs = vec![y];
        let error = run(method).unwrap_err();
        assert!(error.contains("shares memory"), "{error}");
    }
    // The same tensor twice, with memory that is bound after loading.
    let mut method = Method::new("forward", &[64]);
    let x = method.input(small().at(0, 0));
    let y = method.tensor(small());
    let list = method.list(&[y, y]);
    method.call("t::add_to_all", &[x, list]);
    method.outputs = vec![y];
    let error = run(method).unwrap_err();
    assert!(error.contains("shares memory"), "{error}");
}

/// An input that is its own output, with memory that is bound after loading.
#[test]
fn unplanned_tensors_are_checked_for_overlap() {
    let mut method = Method::new("forward", &[0]);
    let x = method.input(small());
    method.call("t::add_one", &[x, x]);
    method.outputs = vec![x];
    assert_eq!(run(method).unwrap(), [2.0, 3.0, 4.0, 5.0]);
}

/// The bytes of the file never change. A written tensor with data that is not memory-planned
/// becomes state with its own memory. A tensor that is only written through a view is a constant,
/// and the call is rejected.
#[test]
fn constants_are_never_modified() {
    let with_constant = |build: &dyn Fn(&mut Method, i32, i32)| {
        let mut program = Program::default();
        let data = program.constant(&[5.0, 6.0, 7.0, 8.0]);
        let mut method = Method::new("forward", &[64]);
        let x = method.input(small().at(0, 0));
        let constant = method.tensor(small().with_data(data));
        build(&mut method, x, constant);
        method.outputs = vec![constant];
        program.methods.push(method);
        let file = Aligned::from(&program.file()[..]);
        let before = file.bytes().to_vec();
        // Constants are used in place: a second method over the same bytes must see the same
        // constants.
        let results = [1, 2].map(|times| run_in_place(file.bytes(), &registry(), times));
        assert_eq!(file.bytes(), before);
        assert_eq!(results[0], results[1]);
        results[0].clone()
    };
    let written = with_constant(&|method, x, constant| method.call("t::add_one", &[x, constant]));
    assert_eq!(written.unwrap(), [2.0, 3.0, 4.0, 5.0]);
    let moved = with_constant(&|method, x, constant| method.then(Instruction::Move(x, constant)));
    assert_eq!(moved.unwrap(), [1.0, 2.0, 3.0, 4.0]);
    let viewed = with_constant(&|method, x, constant| method.call("t::view", &[x, constant]));
    assert_eq!(viewed.unwrap(), [1.0, 2.0, 3.0, 4.0]);
    let error = with_constant(&|method, x, constant| {
        let seen = method.tensor(small());
        method.call("t::view", &[constant, seen]);
        method.call("t::add_one", &[x, seen]);
    });
    assert!(error.unwrap_err().contains("read-only"));
}

/// A delegate that tries everything that kernels may do, and requests everything twice.
struct Grabby;

impl Backend for Grabby {
    fn name(&self) -> &'static str {
        "Grabby"
    }
    fn arena_bytes(&self, _: &DelegateInfo<'_>) -> Result<usize, DelegateError> {
        Ok(delegate_size::<GrabbyDelegate<'_>>())
    }
    fn init<'m>(
        &'m self,
        context: &mut InitContext<'_, 'm>,
    ) -> Result<DelegateBox<'m>, DelegateError> {
        context.place(GrabbyDelegate { backend: self })
    }
}

/// A delegate that borrows its backend.
struct GrabbyDelegate<'m> {
    backend: &'m Grabby,
}

impl Delegate for GrabbyDelegate<'_> {
    fn execute(&mut self, call: &mut DelegateCall<'_, '_>) -> Result<(), DelegateError> {
        assert_eq!(self.backend.name(), "Grabby");
        assert!(call.split(call.len() + 1).is_err());
        let invoke = call.split(1)?;
        assert_eq!(invoke.alias(1, 0), Err(KernelError::access(1)));
        let input = invoke.tensor(0)?;
        let mut out = invoke.out(1)?;
        assert!(invoke.tensor(1).is_err() && invoke.out(1).is_err() && invoke.out(0).is_err());
        assert!(call.split(0).is_err() && call.split(1).is_err());
        for (to, from) in out.data_mut::<f32>()?.iter_mut().zip(input.data::<f32>()?) {
            *to = from + 1.0;
        }
        Ok(())
    }
}

#[test]
fn delegates_cannot_alias_or_split_twice() {
    for (offset, works) in [(16, true), (0, false), (4, false)] {
        let mut method = Method::new("forward", &[64]);
        let x = method.input(small().at(0, 0));
        let y = method.tensor(small().at(0, offset));
        method.delegates.push(("Grabby", vec![1, 2, 3]));
        method.then(Instruction::Delegate(0, vec![x, y]));
        method.outputs = vec![y];
        let backend = Grabby;
        let registry = registry().with_backend(&backend).unwrap();
        let result = run_times(&Program::of(method), &registry, 2);
        match works {
            true => assert_eq!(result.unwrap(), [2.0, 3.0, 4.0, 5.0]),
            false => assert!(result.unwrap_err().contains("shares memory")),
        }
    }
}

/// A delegate that writes scalars to all of its arguments.
struct Overwriting;

impl Backend for Overwriting {
    fn name(&self) -> &'static str {
        "Overwriting"
    }
    fn arena_bytes(&self, _: &DelegateInfo<'_>) -> Result<usize, DelegateError> {
        Ok(delegate_size::<OverwritingDelegate>())
    }
    fn init<'m>(
        &'m self,
        context: &mut InitContext<'_, 'm>,
    ) -> Result<DelegateBox<'m>, DelegateError> {
        context.place(OverwritingDelegate)
    }
}

struct OverwritingDelegate;

impl Delegate for OverwritingDelegate {
    fn execute(&mut self, call: &mut DelegateCall<'_, '_>) -> Result<(), DelegateError> {
        let args = call.len();
        let invoke = call.split(0)?;
        let taken = (0..args).map(|arg| invoke.set_scalar(arg, Scalar::Int(7)).is_ok());
        assert!(taken.eq([true, true, true, false, false, false, false]));
        Ok(())
    }
}

/// Scalars and absent values can be overwritten; strings, tensors and lists cannot, wherever they
/// are in the file.
#[test]
fn delegates_can_only_overwrite_scalars() {
    let mut method = Method::new("forward", &[64]);
    let y = method.input(small().at(0, 0));
    let args = vec![
        method.value(Value::Int(i64::MAX)),
        method.value(Value::Bool(true)),
        method.value(Value::None),
        method.value(Value::String("text".to_owned())),
        method.value(Value::NoList),
        method.value(Value::IntList(vec![0])),
        y,
    ];
    method.outputs = vec![y, args[4]];
    method.delegates.push(("Overwriting", vec![1]));
    method.then(Instruction::Delegate(0, args));
    let backend = Overwriting;
    let registry = registry().with_backend(&backend).unwrap();
    run_times(&Program::of(method), &registry, 2).unwrap();
}

/// A loader that reads the buffer before filling it: the buffer must be initialised.
struct ReadingLoader<'a>(&'a [u8], Mutex<u64>);

impl DataLoader for ReadingLoader<'_> {
    fn size(&self) -> u64 {
        self.0.len() as u64
    }
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), ReadError> {
        *self.1.lock().unwrap() += into.iter().map(|byte| u64::from(*byte)).sum::<u64>();
        common::ReadOnly(self.0).read(offset, into)
    }
}

#[test]
fn loaders_see_no_uninitialised_memory() {
    let mut program = Program::default();
    let data = program.constant(&[5.0, 6.0, 7.0, 8.0]);
    let mut method = Method::new("forward", &[64]);
    let x = method.input(small().at(0, 0));
    let constant = method.tensor(small().with_data(data));
    let y = method.tensor(small().at(0, 16).with_data(data));
    method.call("t::add_one", &[constant, y]);
    method.outputs = vec![y];
    let _ = x;
    program.methods.push(method);
    let file = program.file();
    // Offset by one byte, so that the constant inside the flatbuffer is misaligned and must be
    // copied.
    let mut odd = Aligned::new(file.len() + 1);
    odd.bytes_mut()[1..].copy_from_slice(&file);
    let loader = ReadingLoader(&odd.bytes()[1..], Mutex::new(0));
    let mut buffer = Aligned::new(file.len());
    let program = core::Program::load_into(&loader, buffer.bytes_mut()).unwrap();
    let registry = registry();
    let mut memory = Memory::of(&program, "forward", &registry, &[]).unwrap();
    // Twice, the second time in an arena with the contents of the first, including padding.
    for _ in 0..2 {
        let options = LoadOptions::default();
        let mut method = memory.load(&program, "forward", &registry, options).unwrap();
        method.execute().unwrap();
        let Ok(ValueRef::Tensor(output)) = method.output(0) else { panic!() };
        assert_eq!(output.data::<f32>().unwrap(), [6.0, 7.0, 8.0, 9.0]);
    }
}

/// After a failed reset, the method refuses to run until a reset succeeds.
#[test]
fn a_failed_reset_makes_a_method_unusable() {
    struct Failing<'a>(&'a [u8], Mutex<bool>);
    impl DataLoader for Failing<'_> {
        fn size(&self) -> u64 {
            self.0.len() as u64
        }
        fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), ReadError> {
            let fails = *self.1.lock().unwrap();
            if fails {
                return Err(ReadError { offset, len: into.len() });
            }
            common::ReadOnly(self.0).read(offset, into)
        }
    }
    let file = common::program_of("programs/state_initialized.bpte");
    let loader = Failing(file.bytes(), Mutex::new(false));
    let mut buffer = Aligned::new(file.bytes().len());
    let program = core::Program::load_into(&loader, buffer.bytes_mut()).unwrap();
    let registry = common::kernels::registry();
    let mut memory = Memory::of(&program, "forward", &registry, &[]).unwrap();
    let mut method = memory.load(&program, "forward", &registry, LoadOptions::default()).unwrap();
    common::fill_inputs(&mut method);
    method.execute().unwrap();
    *loader.1.lock().unwrap() = true;
    let error = method.reset().unwrap_err();
    assert!(matches!(error, InitError::Program(_)), "{error}");
    assert!(method.execute().unwrap_err().to_string().contains("reset the method again"));
    assert!(method.step().is_err());
    *loader.1.lock().unwrap() = false;
    method.reset().unwrap();
    common::fill_inputs(&mut method);
    method.execute().unwrap();
}

/// Values of every kind in place of tensors, in calls and lists.
#[test]
fn wrong_kinds_of_values_are_rejected() {
    for value in [Value::None, Value::Int(3), Value::Bool(true), Value::IntList(vec![0, 1])] {
        let mut method = Method::new("forward", &[64]);
        let x = method.input(small().at(0, 0));
        let other = method.value(value);
        method.call("t::add_one", &[x, other]);
        assert!(run(method.clone()).is_err());
        method.instructions.clear();
        let list = method.list(&[x, other, -1, 99]);
        method.call("t::add_to_all", &[x, list]);
        assert!(run(method).is_err());
    }
}
