//! Move instructions: a tensor gets the shape and contents of another, but keeps its memory.

mod common;

use common::builder::{Instruction, Method, Program, Tensor, Value, tensor};
use common::kernels::add_one;
use common::{Aligned, Memory};
use torchlet_core::{
    self as core, ExecuteError, Kernel, KernelError, LoadOptions, Param, Plan, Prepare, Registry,
    ValueRef,
};

/// Resizes the output to the input's shape.
fn prepare(call: &mut Prepare<'_, '_>) -> Result<Plan, KernelError> {
    let sizes = call.info(0)?.sizes;
    call.resize(1, &sizes)?;
    Ok(Plan::new(add_one))
}

static KERNELS: &[Kernel] = &[Kernel::new("t::add_one", &[Param::Tensor, Param::Out], prepare)];

fn registry<'r>() -> Registry<'r> {
    Registry::new().with_kernels(KERNELS).unwrap()
}

fn small() -> Tensor {
    tensor(&[4])
}

/// Runs a program with input 0 set to 1, 2, 3, ..., once for each length. Returns all outputs of
/// the last run.
fn run(file: &[u8], lengths: &[i32]) -> Result<Vec<Vec<f32>>, String> {
    let file = Aligned::from(file);
    let program = core::Program::from_bytes(file.bytes()).unwrap();
    let registry = registry();
    let mut memory = Memory::of(&program, "forward", &registry, &[])?;
    let mut method = memory.load(&program, "forward", &registry, LoadOptions::default())?;
    for len in lengths {
        let numbers: Vec<f32> = (1..=*len).map(|number| number as f32).collect();
        let input = core::TensorRef::from_slice(&[*len], &numbers).unwrap();
        method.set_input_tensor(0, &input).unwrap();
        method.execute().map_err(|error: ExecuteError| error.to_string())?;
    }
    let outputs = (0..method.output_count()).map(|index| match method.output(index) {
        Ok(ValueRef::Tensor(output)) => Ok(output.data::<f32>().unwrap().to_vec()),
        other => Err(format!("{other:?}")),
    });
    outputs.collect()
}

/// Two consecutive conditionals with the memory plan of exporters: each branch computes at offset
/// 0, and its result is moved to another offset.
fn conditionals(result: &dyn Fn(u64) -> Tensor, conditions: [bool; 2]) -> Vec<u8> {
    let mut method = Method::new("forward", &[64]);
    let x = method.input(small().at(0, 48));
    let never = method.value(Value::Bool(false));
    let mut from = x;
    for (condition, place) in conditions.into_iter().zip([16, 32]) {
        let condition = method.value(Value::Bool(condition));
        let result = method.tensor(result(place));
        let (once, twice) = (method.tensor(small().at(0, 0)), method.tensor(small().at(0, 0)));
        let start = method.instructions.len() as i32;
        method.then(Instruction::JumpFalse(condition, start + 4));
        method.call("t::add_one", &[from, once]);
        method.then(Instruction::Move(once, result));
        method.then(Instruction::JumpFalse(never, start + 6));
        method.call("t::add_one", &[result, twice]);
        method.then(Instruction::Move(twice, result));
        method.outputs.push(result);
        from = result;
    }
    Program::of(method)
}

/// The result of a branch survives a branch of the next conditional that computes in the same
/// memory.
#[test]
fn branch_results_survive_the_next_conditional() {
    let planned = |place| small().at(0, place);
    let unplanned = |_| small();
    for (conditions, expected) in [
        ([true, true], [[2.0, 3.0, 4.0, 5.0], [3.0, 4.0, 5.0, 6.0]]),
        ([true, false], [[2.0, 3.0, 4.0, 5.0], [1.0; 4]]),
        ([false, true], [[1.0; 4], [2.0; 4]]),
    ] {
        assert_eq!(run(&conditionals(&planned, conditions), &[4]).unwrap(), expected);
        assert_eq!(run(&conditionals(&unplanned, conditions), &[4]).unwrap(), expected);
    }
}

/// A move copies instead of aliasing: writing to one tensor does not change the other, not even in
/// a second run.
#[test]
fn moves_copy_instead_of_aliasing() {
    let mut method = Method::new("forward", &[64]);
    let x = method.input(small().at(0, 0));
    let (y, z) = (method.tensor(small().at(0, 16)), method.tensor(small().at(0, 32)));
    method.call("t::add_one", &[x, y]);
    method.then(Instruction::Move(x, y));
    method.call("t::add_one", &[x, z]);
    method.call("t::add_one", &[z, x]);
    method.outputs = vec![x, y, z];
    let file = Program::of(method);
    for runs in [&[4][..], &[4, 4]] {
        let outputs = run(&file, runs).unwrap();
        assert_eq!(outputs, [[3.0, 4.0, 5.0, 6.0], [1.0, 2.0, 3.0, 4.0], [2.0, 3.0, 4.0, 5.0]]);
    }
}

/// Moves copy the current shape, between separate, identical or partially overlapping memory.
#[test]
fn moves_with_dynamic_shapes_and_overlap() {
    for place in [16, 32, 24, 8] {
        let mut method = Method::new("forward", &[64]);
        let x = method.input(small().dynamic().at(0, 48));
        let from = method.tensor(small().dynamic().at(0, 16));
        let to = method.tensor(small().dynamic().at(0, place));
        method.call("t::add_one", &[x, from]);
        method.then(Instruction::Move(from, to));
        method.outputs = vec![to];
        let file = Program::of(method);
        // Sample for Miri, where loading a program takes seconds: empty, adjacent and full length.
        for len in (0..=4).step_by(if cfg!(miri) { 2 } else { 1 }) {
            let expected: Vec<f32> = (0..len).map(|number| number as f32 + 2.0).collect();
            assert_eq!(run(&file, &[4, len]).unwrap(), [expected], "{len} at {place}");
        }
    }
}

/// A source that is larger than the target is an error at run time, and nothing is written out of
/// bounds.
#[test]
fn oversized_moves_are_rejected() {
    let mut method = Method::new("forward", &[64]);
    let x = method.input(tensor(&[8]).dynamic().at(0, 0));
    let (y, behind) =
        (method.tensor(small().dynamic().at(0, 32)), method.tensor(small().at(0, 48)));
    method.then(Instruction::Move(x, y));
    method.outputs = vec![y, behind];
    let file = Program::of(method);
    assert_eq!(run(&file, &[8, 4]).map_err(|_| ()), Err(()));
    let outputs = run(&file, &[3]).unwrap();
    assert_eq!(outputs, [vec![1.0, 2.0, 3.0], vec![0.0; 4]]);
    let error = run(&file, &[5]).unwrap_err();
    assert!(error.starts_with("instruction 0, move"), "{error}");
}

/// The target has no memory, or is a read-only borrowed input.
#[test]
fn moves_need_writable_memory() {
    let mut method = Method::new("forward", &[64]);
    let (x, y) = (method.input(small().at(0, 0)), method.tensor(small()));
    method.then(Instruction::Move(x, y));
    method.outputs = vec![x];
    let error = run(&Program::of(method), &[4]).unwrap_err();
    assert!(error.contains("no memory"), "{error}");

    let mut method = Method::new("forward", &[64]);
    let (x, y) = (method.input(small()), method.tensor(small().at(0, 0)));
    method.then(Instruction::Move(y, x));
    method.outputs = vec![y];
    let file = Aligned::from(&Program::of(method)[..]);
    let program = core::Program::from_bytes(file.bytes()).unwrap();
    let registry = registry();
    let mut memory = Memory::of(&program, "forward", &registry, &[]).unwrap();
    let mut method = memory.load(&program, "forward", &registry, LoadOptions::default()).unwrap();
    let numbers = [1.0f32; 4];
    let input = core::TensorRef::from_slice(&[4], &numbers).unwrap();
    let error = method.execute_into(&[(0, input)], &mut []).unwrap_err();
    assert!(error.to_string().contains("read-only"), "{error}");
    method.execute().unwrap();
}

/// Moves between incompatible values are rejected at load time.
#[test]
fn moves_between_kinds_are_rejected() {
    let refused = |build: &dyn Fn(&mut Method, i32) -> (i32, i32)| {
        let mut program = Program::default();
        let data = program.constant(&[5.0, 6.0, 7.0, 8.0]);
        let mut method = Method::new("forward", &[64]);
        let constant = method.tensor(small().with_data(data));
        let x = method.input(small().at(0, 0));
        let (from, to) = build(&mut method, constant);
        method.then(Instruction::Move(from, to));
        method.outputs = vec![x];
        program.methods.push(method);
        run(&program.file(), &[4]).unwrap_err()
    };
    // A moved list could be longer than the one counted at load time.
    let error = refused(&|method, constant| {
        let lists = [0, 1].map(|_| method.list(&[constant]));
        (lists[0], lists[1])
    });
    assert!(error.contains("a move between values of different types"), "{error}");
    let error = refused(&|method, _| {
        let lists = [0, 1].map(|_| method.value(Value::IntList(Vec::new())));
        (lists[0], lists[1])
    });
    assert!(error.contains("a move between values of different types"), "{error}");
    for other in [tensor(&[2, 2]), small().of(core::ScalarType::Int)] {
        let error = refused(&|method, constant| (constant, method.tensor(other.clone().at(0, 16))));
        assert!(error.contains("a move between values of different types"), "{error}");
    }
    let error = refused(&|method, constant| (constant, method.value(Value::Int(1))));
    assert!(error.contains("a move between values of different types"), "{error}");
}
