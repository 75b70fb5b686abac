//! Moves: a tensor with a place of its own takes the contents of another; where it cannot, it becomes another name of it.

mod common;

use common::builder::{Instruction, Method, Program, Tensor, Value, tensor};
use common::kernels::add_one;
use common::{Aligned, Memory};
use torchlet_core::{
    self as core, ExecuteError, Kernel, KernelError, LoadOptions, Param, Plan, Prepare, Registry,
    ValueRef,
};

/// The output gets the input's shape.
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

/// Runs a file's method with input 0 set to 1, 2, 3, ..., in each of these lengths; gives all outputs of the last run.
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

/// Two conditionals in a row, as exporters plan them: each branch computes at 0, and its result is moved to a place outside.
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

/// What one branch computed is not overwritten by a branch of the next conditional, which computes in the same place.
#[test]
fn results_outlive_the_place_where_they_were_computed() {
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

/// A copy is not another name: what is written to one afterwards leaves the other as it is, in a second run, too.
#[test]
fn copies_are_apart() {
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

/// Copies take the shape of this run, and lie as they may: apart, in one place, or half over each other.
#[test]
fn shapes_and_overlaps() {
    for place in [16, 32, 24, 8] {
        let mut method = Method::new("forward", &[64]);
        let x = method.input(small().dynamic().at(0, 48));
        let from = method.tensor(small().dynamic().at(0, 16));
        let to = method.tensor(small().dynamic().at(0, place));
        method.call("t::add_one", &[x, from]);
        method.then(Instruction::Move(from, to));
        method.outputs = vec![to];
        let file = Program::of(method);
        for len in 0..=4 {
            let expected: Vec<f32> = (0..len).map(|number| number as f32 + 2.0).collect();
            assert_eq!(run(&file, &[4, len]).unwrap(), [expected], "{len} at {place}");
        }
    }
}

/// A tensor that can be larger than its target, which has no room for it then.
fn larger() -> Method {
    let mut method = Method::new("forward", &[256]);
    let x = method.input(tensor(&[8]).dynamic().at(0, 0));
    let y = method.tensor(small().dynamic().at(0, 32));
    method.call("t::add_one", &[x, y]);
    method.then(Instruction::Move(x, y));
    method
}

/// Another name is looked at again, around a loop: first apart, then the same.
#[test]
fn another_name_is_looked_at_again() {
    let mut method = larger();
    method.call("t::add_one", &[0, 1]);
    method.outputs = vec![0];
    let file = Program::of(method);
    assert_eq!(run(&file, &[4]).unwrap(), [[2.0, 3.0, 4.0, 5.0]]);
    // In the next run the first call is over itself, too.
    assert_eq!(run(&file, &[4, 4]).unwrap(), [[3.0, 4.0, 5.0, 6.0]]);
}

/// After it was another name, a tensor that is copied to is itself again.
#[test]
fn copies_end_another_name() {
    let mut method = larger();
    let z = method.tensor(small().dynamic().at(0, 64));
    method.call("t::add_one", &[0, z]);
    method.then(Instruction::Move(z, 1));
    method.outputs = vec![0, 1];
    let outputs = run(&Program::of(method), &[4, 4]).unwrap();
    assert_eq!(outputs, [[1.0, 2.0, 3.0, 4.0], [2.0, 3.0, 4.0, 5.0]]);
}

/// What is moved onto a smaller tensor takes a larger copy, for which memory was asked, too.
#[test]
fn larger_tensors_that_are_moved_are_counted() {
    let mut method = Method::new("forward", &[256]);
    let big = method.input(tensor(&[32]).at(0, 0));
    let (a, b) = (method.tensor(small().at(0, 128)), method.tensor(small().at(0, 144)));
    let y = method.tensor(tensor(&[32]).dynamic().at(0, 0));
    method.then(Instruction::Move(big, a));
    method.then(Instruction::Move(a, b));
    method.call("t::add_one", &[b, y]);
    method.outputs = vec![y];
    let file = Program::of(method);
    let aligned = Aligned::from(&file[..]);
    let program = core::Program::from_bytes(aligned.bytes()).unwrap();
    let memory = Memory::of(&program, "forward", &registry(), &[]).unwrap();
    assert_eq!(memory.needs.scratch, 128);
    let expected: Vec<f32> = (2..34).map(|number| number as f32).collect();
    assert_eq!(run(&file, &[32]).unwrap(), [expected]);
}

/// A tensor that another instruction made larger than the target: an error, and nothing beyond is written.
#[test]
fn copies_that_do_not_fit_are_refused() {
    let mut method = Method::new("forward", &[256]);
    let big = method.input(tensor(&[32]).dynamic().at(0, 0));
    let (a, b) = (method.tensor(small().dynamic().at(0, 128)), method.tensor(small().dynamic()));
    let c = method.tensor(small().dynamic().at(0, 160));
    // Only in the second run are `a` and `b` other names of what is large.
    method.then(Instruction::Move(b, c));
    method.then(Instruction::Move(a, b));
    method.then(Instruction::Move(big, a));
    method.outputs = vec![b, c];
    let file = Aligned::from(&Program::of(method)[..]);
    let program = core::Program::from_bytes(file.bytes()).unwrap();
    let registry = registry();
    let mut memory = Memory::of(&program, "forward", &registry, &[]).unwrap();
    let mut method = memory.load(&program, "forward", &registry, LoadOptions::default()).unwrap();
    method.execute().unwrap();
    method.execute().unwrap();
    let error = method.execute().unwrap_err();
    assert_eq!(error.instruction, 0);
    assert!(
        matches!(
            error.source,
            core::error::InstructionError::Kernel(KernelError::Shape { arg: 1, .. })
        ),
        "{error}"
    );
}
