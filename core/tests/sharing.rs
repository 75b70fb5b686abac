//! Methods that share memory in turn: common state, and the combinations that are rejected.

mod common;

use common::builder::{Instruction, Method, Program, tensor};
use common::{Aligned, Arena, Memory};
use torchlet_core::error::InstructionError;
use torchlet_core::{
    self as core, ExecuteError, InitError, InputError, Invoke, Kernel, KernelError, LoadOptions,
    Param, Plan, Prepare, Prepared, Progress, Registry, SharedMemory, SharedMethod, TensorRef,
    ValueRef,
};

fn copy(call: &mut Invoke<'_, '_>) -> Result<(), KernelError> {
    let input = call.tensor(0)?;
    call.out(1)?.bytes_mut().copy_from_slice(input.bytes());
    Ok(())
}

fn prepare(_: &mut Prepare<'_, '_>) -> Result<Plan, KernelError> {
    Ok(Plan::new(copy))
}

fn prepare_packed(_: &mut Prepare<'_, '_>) -> Result<Plan, KernelError> {
    Ok(Plan::new(copy).with_packed(16, |_, _| Ok(())))
}

fn prepare_view(_: &mut Prepare<'_, '_>) -> Result<Plan, KernelError> {
    Ok(Plan::new(|call| call.alias(1, 0)))
}

static KERNELS: &[Kernel] = &[
    Kernel::new("t::copy", &[Param::Tensor, Param::Out], prepare),
    Kernel::new("t::pack", &[Param::Tensor, Param::Out], prepare_packed),
    Kernel::new("t::view", &[Param::Tensor, Param::Out], prepare_view).aliasing(1, 0),
];

fn registry<'r>() -> Registry<'r> {
    Registry::new().with_kernels(KERNELS).unwrap()
}

/// `write(x)` stores x in the state, `read()` returns it. Laid out like ExecuTorch exports with
/// shared mutable buffers: activations in the first planned buffer, state in the second.
fn write_and_read(initial: Option<&[f32]>) -> Vec<u8> {
    let mut program = Program::default();
    let data = initial.map(|numbers| program.constant(numbers));
    let state = || {
        let state = tensor(&[4]).at(1, 0);
        data.map_or(state.clone(), |data| state.with_data(data))
    };
    let mut write = Method::new("write", &[32, 16]);
    let x = write.input(tensor(&[4]).at(0, 0));
    let kept = write.tensor(state());
    write.call("t::copy", &[x, kept]);
    let mut read = Method::new("read", &[48, 16]);
    let kept = read.tensor(state());
    let y = read.tensor(tensor(&[4]).at(0, 16));
    read.call("t::copy", &[kept, y]);
    read.outputs = vec![y];
    program.methods = vec![write, read];
    program.file()
}

/// A method without state.
fn stateless() -> Vec<u8> {
    let mut method = Method::new("forward", &[32]);
    let x = method.input(tensor(&[4]).at(0, 0));
    let y = method.tensor(tensor(&[4]).at(0, 16));
    method.call("t::copy", &[x, y]);
    method.outputs = vec![y];
    Program::of(method)
}

/// A method that keeps state among its activations.
fn mixed(operator: &'static str) -> Vec<u8> {
    let mut method = Method::new("forward", &[32]);
    let kept = method.tensor(tensor(&[4]).at(0, 0));
    let y = method.tensor(tensor(&[4]).at(0, 16));
    method.call(operator, &[kept, y]);
    method.outputs = vec![y];
    Program::of(method)
}

/// Planned and scratch memory of a test.
struct TestMemory {
    planned: [Aligned; 2],
    scratch: Aligned,
}

impl TestMemory {
    fn new() -> Self {
        TestMemory { planned: [Aligned::new(64), Aligned::new(16)], scratch: Aligned::new(64) }
    }

    fn share(&mut self) -> SharedMemory<'_> {
        let [first, second] = &mut self.planned;
        let mut planned = [first.bytes_mut(), second.bytes_mut()];
        SharedMemory::new(&mut planned, self.scratch.bytes_mut()).unwrap()
    }
}

fn prepared<'m>(file: &'m Aligned, method: &str, tables: &'m mut Arena) -> Prepared<'m> {
    let program = core::Program::from_bytes(file.bytes()).unwrap();
    let meta = program.method_meta(method).unwrap();
    meta.prepare(tables.bytes_mut(), &registry(), LoadOptions::default()).unwrap()
}

fn load<'m>(
    file: &'m Aligned,
    method: &str,
    tables: &'m mut Arena,
    memory: &mut SharedMemory<'m>,
) -> Result<SharedMethod<'m>, InitError> {
    prepared(file, method, tables).finish_shared(memory, &mut [])
}

fn floats(value: ValueRef<'_>) -> Vec<f32> {
    match value {
        ValueRef::Tensor(tensor) => tensor.data::<f32>().unwrap().to_vec(),
        other => panic!("{other:?}"),
    }
}

/// A memory-planned input must be set again after another method ran, even if it became a view of a
/// constant.
#[test]
fn inputs_that_become_views_are_still_stale() {
    let mut program = Program::default();
    let data = program.constant(&[5.0; 4]);
    let mut method = Method::new("forward", &[32]);
    let x = method.input(tensor(&[4]).at(0, 0));
    let y = method.tensor(tensor(&[4]).at(0, 16));
    let constant = method.tensor(tensor(&[4]).with_data(data));
    method.call("t::copy", &[x, y]);
    method.call("t::view", &[constant, x]);
    method.outputs = vec![y];
    program.methods.push(method);
    let (file, other) = (Aligned::from(&program.file()[..]), Aligned::from(&stateless()[..]));
    let mut test_memory = TestMemory::new();
    let mut tables = [Arena::new(1 << 12), Arena::new(1 << 12)];
    let [first, second] = &mut tables;
    let mut memory = test_memory.share();
    let mut method = load(&file, "forward", first, &mut memory).unwrap();
    let mut other = load(&other, "forward", second, &mut memory).unwrap();
    let input = TensorRef::from_slice(&[4], &[1.0f32; 4]).unwrap();
    for method in [&mut method, &mut other] {
        let mut method = method.attach(&mut memory).unwrap();
        method.set_input_tensor(0, &input).unwrap();
        method.execute().unwrap();
    }
    let error = method.attach(&mut memory).unwrap().execute().unwrap_err();
    assert_eq!(error.source, InstructionError::Stale);
}

#[test]
fn methods_share_state() {
    for initial in [None, Some([9.0, 8.0, 7.0, 6.0])] {
        let file = Aligned::from(&write_and_read(initial.as_ref().map(|numbers| &numbers[..]))[..]);
        let mut tables = [Arena::new(2048), Arena::new(2048)];
        let mut test_memory = TestMemory::new();
        let mut memory = test_memory.share();
        let [one, two] = &mut tables;
        let mut write = load(&file, "write", one, &mut memory).unwrap();
        let mut read = load(&file, "read", two, &mut memory).unwrap();
        let start = initial.unwrap_or_default().to_vec();

        let mut active = read.attach(&mut memory).unwrap();
        active.execute().unwrap();
        assert_eq!(floats(active.output(0).unwrap()), start);
        for numbers in [[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]] {
            let mut active = write.attach(&mut memory).unwrap();
            let x = TensorRef::from_slice(&[4], &numbers).unwrap();
            active.set_input_tensor(0, &x).unwrap();
            active.execute().unwrap();
            let mut active = read.attach(&mut memory).unwrap();
            active.execute().unwrap();
            assert_eq!(floats(active.output(0).unwrap()), numbers);
            assert_eq!(floats(read.view(&memory).unwrap().output(0).unwrap()), numbers);
        }
        // State can be listed, read and written.
        let mut active = read.attach(&mut memory).unwrap();
        let state: Vec<_> = active.state().collect();
        assert_eq!(state.len(), 1);
        let kept = state[0].value;
        assert_eq!(active.state_ref(kept).unwrap().data::<f32>().unwrap(), [5.0, 6.0, 7.0, 8.0]);
        active.state_mut(kept).unwrap().data_mut::<f32>().unwrap().fill(0.5);
        active.execute().unwrap();
        assert_eq!(floats(active.output(0).unwrap()), [0.5; 4]);
        active.reset().unwrap();
        active.execute().unwrap();
        assert_eq!(floats(active.output(0).unwrap()), start);
    }
}

/// Outputs overwritten by another method cannot be read. State, and tensors outside the shared
/// memory, can be read at any time.
#[test]
fn overwritten_outputs_are_stale() {
    let file = Aligned::from(&write_and_read(None)[..]);
    let mut tables = [Arena::new(2048), Arena::new(2048)];
    let mut test_memory = TestMemory::new();
    let mut memory = test_memory.share();
    let [one, two] = &mut tables;
    let mut write = load(&file, "write", one, &mut memory).unwrap();
    let mut read = load(&file, "read", two, &mut memory).unwrap();
    let stale = |result: Result<ValueRef<'_>, InputError>| {
        let error = result.unwrap_err();
        assert_eq!(error, InputError::Stale);
        assert!(error.to_string().contains("before another one runs"), "{error}");
    };
    // No method has run: the contents belong to none.
    stale(read.view(&memory).unwrap().output(0));
    stale(read.attach(&mut memory).unwrap().output(0));

    let mut active = read.attach(&mut memory).unwrap();
    active.execute().unwrap();
    assert_eq!(floats(active.output(0).unwrap()), [0.0; 4]);
    assert_eq!(floats(read.view(&memory).unwrap().output(0).unwrap()), [0.0; 4]);

    // Setting an input of the other method suffices.
    let numbers = [1.0f32, 2.0, 3.0, 4.0];
    let x = TensorRef::from_slice(&[4], &numbers).unwrap();
    let mut active = write.attach(&mut memory).unwrap();
    active.set_input_tensor(0, &x).unwrap();
    stale(read.view(&memory).unwrap().output(0));
    stale(read.attach(&mut memory).unwrap().output(0));
    let mut active = write.attach(&mut memory).unwrap();
    active.execute().unwrap();
    stale(read.view(&memory).unwrap().output(0));
    let kept = read.view(&memory).unwrap().state().next().unwrap().value;
    let view = read.view(&memory).unwrap();
    assert_eq!(view.state_ref(kept).unwrap().data::<f32>().unwrap(), numbers);

    // Stale until the method runs again.
    let mut active = read.attach(&mut memory).unwrap();
    stale(active.output(0));
    active.execute().unwrap();
    assert_eq!(floats(active.output(0).unwrap()), numbers);
    stale(write.view(&memory).unwrap().input(0));
}

/// Inputs and partial results overwritten by another method are not used.
#[test]
fn overwritten_inputs_are_stale() {
    let file = Aligned::from(&stateless()[..]);
    let mut tables = [Arena::new(2048), Arena::new(2048)];
    let mut test_memory = TestMemory::new();
    let mut memory = test_memory.share();
    let [one, two] = &mut tables;
    let mut a = load(&file, "forward", one, &mut memory).unwrap();
    let mut b = load(&file, "forward", two, &mut memory).unwrap();
    let stale = |result: Result<(), ExecuteError>| {
        let error = result.unwrap_err();
        assert_eq!(error.source, InstructionError::Stale);
        assert!(error.to_string().contains("set all inputs again"), "{error}");
    };
    let numbers = [1.0f32, 2.0, 3.0, 4.0];
    let x = TensorRef::from_slice(&[4], &numbers).unwrap();

    stale(a.attach(&mut memory).unwrap().execute());
    let mut active = a.attach(&mut memory).unwrap();
    active.set_input_tensor(0, &x).unwrap();
    for _ in 0..2 {
        active.execute().unwrap();
        assert_eq!(floats(active.output(0).unwrap()), numbers);
    }
    let mut other = b.attach(&mut memory).unwrap();
    other.input_mut(0).unwrap().data_mut::<f32>().unwrap().fill(9.0);
    stale(a.attach(&mut memory).unwrap().execute());
    // The other method cannot continue either: its input may have been overwritten.
    stale(b.attach(&mut memory).unwrap().execute());

    let mut active = a.attach(&mut memory).unwrap();
    active.set_input_tensor(0, &x).unwrap();
    assert_eq!(active.step().unwrap(), Progress::Stepped);
    let mut other = b.attach(&mut memory).unwrap();
    other.set_input_tensor(0, &x).unwrap();
    other.execute().unwrap();
    stale(a.attach(&mut memory).unwrap().step().map(drop));
}

#[test]
fn methods_reject_other_memory() {
    let file = Aligned::from(&write_and_read(None)[..]);
    let mut tables = [Arena::new(2048), Arena::new(2048)];
    let (mut test_memory, mut other_test_memory) = (TestMemory::new(), TestMemory::new());
    let (mut memory, mut other) = (test_memory.share(), other_test_memory.share());
    let [one, two] = &mut tables;
    let mut write = load(&file, "write", one, &mut memory).unwrap();
    let mut read = load(&file, "read", two, &mut other).unwrap();
    assert!(matches!(write.attach(&mut other), Err(InitError::Shared { .. })));
    assert!(matches!(read.view(&memory), Err(InitError::Shared { .. })));
    // Swapped methods are still bound to their memory.
    std::mem::swap(&mut write, &mut read);
    assert!(write.attach(&mut memory).is_err() && read.attach(&mut other).is_err());
    let (mut a, mut b) = (write.attach(&mut other).unwrap(), read.attach(&mut memory).unwrap());
    std::mem::swap(&mut a, &mut b);
    for mut active in [a, b] {
        if active.input_count() > 0 {
            active
                .set_input_tensor(0, &TensorRef::from_slice(&[4], &[0.0f32; 4]).unwrap())
                .unwrap();
        }
        active.execute().unwrap();
    }
}

#[test]
fn sharing_that_loses_state_is_rejected() {
    let (shared, plain, mixed) = (
        Aligned::from(&write_and_read(None)[..]),
        Aligned::from(&stateless()[..]),
        Aligned::from(&mixed("t::copy")[..]),
    );
    let again = shared.clone();
    let admit = |files: &[(&Aligned, &str)]| -> Result<(), InitError> {
        let mut tables: Vec<Arena> = files.iter().map(|_| Arena::new(2048)).collect();
        let mut test_memory = TestMemory::new();
        let mut memory = test_memory.share();
        for ((file, method), tables) in files.iter().zip(&mut tables) {
            load(file, method, tables, &mut memory)?;
        }
        Ok(())
    };
    admit(&[(&plain, "forward"), (&plain, "forward")]).unwrap();
    admit(&[(&shared, "read"), (&shared, "write"), (&shared, "read")]).unwrap();
    admit(&[(&mixed, "forward")]).unwrap();
    for files in [
        [(&mixed, "forward"), (&plain, "forward")],
        [(&plain, "forward"), (&mixed, "forward")],
        [(&mixed, "forward"), (&mixed, "forward")],
        [(&shared, "read"), (&plain, "forward")],
        [(&plain, "forward"), (&shared, "read")],
        // The same file, opened twice, counts as two programs.
        [(&shared, "read"), (&again, "read")],
    ] {
        let error = admit(&files).unwrap_err();
        assert!(matches!(error, InitError::Shared { .. }), "{error}");
    }
}

#[test]
fn state_is_loaded_before_the_first_run() {
    let file = Aligned::from(&write_and_read(Some(&[1.0; 4]))[..]);
    let mut tables = [Arena::new(2048), Arena::new(2048)];
    let mut test_memory = TestMemory::new();
    let mut memory = test_memory.share();
    let [one, two] = &mut tables;
    let mut write = load(&file, "write", one, &mut memory).unwrap();
    let mut active = write.attach(&mut memory).unwrap();
    active.set_input_tensor(0, &TensorRef::from_slice(&[4], &[0.0f32; 4]).unwrap()).unwrap();
    active.execute().unwrap();
    let error = load(&file, "read", two, &mut memory).map(drop).unwrap_err();
    assert!(error.to_string().contains("before the first one runs"), "{error}");
}

/// A method that failed to load does not count as a user of the memory: it can be loaded again, or
/// another method instead.
#[test]
fn failed_loads_do_not_count() {
    let (file, plain) = (Aligned::from(&mixed("t::pack")[..]), Aligned::from(&stateless()[..]));
    let mut tables = [Arena::new(2048), Arena::new(2048), Arena::new(2048)];
    let mut arena = Arena::new(16);
    let mut test_memory = TestMemory::new();
    let mut memory = test_memory.share();
    let [one, two, three] = &mut tables;
    let error = load(&file, "forward", one, &mut memory).map(drop).unwrap_err();
    assert!(matches!(error, InitError::MemoryTooSmall { .. }), "{error}");
    prepared(&file, "forward", two).finish_shared(&mut memory, arena.bytes_mut()).unwrap();
    let error = load(&plain, "forward", three, &mut memory).map(drop).unwrap_err();
    assert!(matches!(error, InitError::Shared { .. }), "{error}");

    let mut tables = [Arena::new(2048), Arena::new(2048)];
    let mut test_memory = TestMemory::new();
    let mut memory = test_memory.share();
    let [one, two] = &mut tables;
    load(&file, "forward", one, &mut memory).map(drop).unwrap_err();
    load(&plain, "forward", two, &mut memory).unwrap();
}

/// State written by the caller is not overwritten by loading further methods.
#[test]
fn loading_keeps_written_state() {
    let file = Aligned::from(&write_and_read(Some(&[1.0; 4]))[..]);
    let mut tables = [Arena::new(2048), Arena::new(2048)];
    let mut test_memory = TestMemory::new();
    let mut memory = test_memory.share();
    let [one, two] = &mut tables;
    let mut write = load(&file, "write", one, &mut memory).unwrap();
    let mut active = write.attach(&mut memory).unwrap();
    let kept = active.state().next().unwrap().value;
    active.state_mut(kept).unwrap().bytes_mut().fill(7);
    let error = load(&file, "read", two, &mut memory).map(drop).unwrap_err();
    assert!(error.to_string().contains("before the first one runs"), "{error}");
    let view = write.view(&memory).unwrap();
    assert_eq!(view.state_ref(kept).unwrap().bytes(), [7; 16]);
}

/// Exporters elide views: a tensor that lies inside an input or a result is not state, whatever its
/// name.
#[test]
fn elided_views_are_not_state() {
    let place = |from: u64, to: u64| {
        let mut method = Method::new("forward", &[64]);
        let x = method.input(tensor(&[4]).at(0, 0));
        let y = method.tensor(tensor(&[4]).at(0, from));
        let (seen, z) =
            (method.tensor(tensor(&[2]).at(0, to)), method.tensor(tensor(&[2]).at(0, 48)));
        method.call("t::copy", &[x, y]);
        method.call("t::copy", &[seen, z]);
        method.outputs = vec![z];
        let file = Aligned::from(&Program::of(method)[..]);
        let program = core::Program::from_bytes(file.bytes()).unwrap();
        let registry = registry();
        let mut memory = Memory::of(&program, "forward", &registry, &[]).unwrap();
        let options = LoadOptions::default();
        let method = memory.load(&program, "forward", &registry, options).unwrap();
        method.state().count()
    };
    // Inside the input, equal to the result, inside the result, and partially outside.
    assert_eq!([place(16, 0), place(16, 16), place(16, 24), place(16, 28)], [0, 0, 0, 1]);
}

/// A tensor that is read but never written would expose the data of other methods: it counts as
/// state, and the method cannot share the memory.
#[test]
fn reads_of_unwritten_memory_are_state() {
    let condition = || tensor(&[4]).of(core::ScalarType::Bool).at(0, 0);
    let build: [fn(&mut Method, i32, i32); 3] = [
        |method, kept, y| {
            let moved = method.tensor(tensor(&[4]).at(0, 16));
            method.then(Instruction::Move(kept, moved));
            method.call("t::copy", &[moved, y]);
        },
        |method, kept, _| method.outputs.push(kept),
        |method, kept, _| {
            let list = method.list(&[kept]);
            method.outputs.push(list);
        },
    ];
    let mut files: Vec<Vec<u8>> = Vec::new();
    for build in build {
        let mut method = Method::new("forward", &[64]);
        let (kept, y) =
            (method.tensor(tensor(&[4]).at(0, 0)), method.tensor(tensor(&[4]).at(0, 32)));
        build(&mut method, kept, y);
        files.push(Program::of(method));
    }
    let mut method = Method::new("forward", &[64]);
    let kept = method.tensor(condition());
    method.then(Instruction::JumpFalse(kept, 1));
    files.push(Program::of(method));
    let plain = Aligned::from(&stateless()[..]);
    for (index, file) in files.iter().enumerate() {
        let file = Aligned::from(&file[..]);
        let mut tables = [Arena::new(2048), Arena::new(2048)];
        let mut test_memory = TestMemory::new();
        let mut memory = test_memory.share();
        let [one, two] = &mut tables;
        load(&plain, "forward", one, &mut memory).unwrap();
        let result = load(&file, "forward", two, &mut memory);
        assert!(matches!(result.map(drop), Err(InitError::Shared { .. })), "{index}");
    }
}

#[test]
fn shared_memory_has_the_maximum_size() {
    let file = Aligned::from(&write_and_read(None)[..]);
    let small = |first: usize, second: usize| {
        let mut tables = Arena::new(2048);
        let (mut a, mut b) = (Aligned::new(first), Aligned::new(second));
        let mut planned = [a.bytes_mut(), b.bytes_mut()];
        let mut memory = SharedMemory::new(&mut planned, &mut []).unwrap();
        load(&file, "read", &mut tables, &mut memory).map(drop)
    };
    small(48, 16).unwrap();
    for (first, second) in [(47, 16), (48, 15), (0, 0)] {
        let error = small(first, second).unwrap_err();
        assert!(matches!(error, InitError::MemoryTooSmall { .. }), "{error}");
    }
}
