//! Kernels, backends, loaders and callers that break their contracts in every way that safe code allows, and files that help them.

mod common;

use common::builder::{Instruction, Method, Program, tensor};
use common::{Aligned, Memory, limits};
use torchlet_core::{
    self as core, Invoke, InvokeFn, Kernel, KernelError, LoadOptions, Param, Plan, Prepare,
    Registry, ValueRef,
};

/// Reads and writes at the same time: with references to the same bytes, undefined.
fn add_one(call: &mut Invoke<'_, '_>) -> Result<(), KernelError> {
    let input = call.tensor(0)?;
    let mut out = call.out(1)?;
    let items = input.data::<f32>()?;
    for (to, from) in out.data_mut::<f32>()?.iter_mut().zip(items) {
        *to = from + 1.0;
    }
    assert_eq!(items.len() * 4, input.bytes().iter().count());
    Ok(())
}

/// Declared to make argument 1 a view of argument 0; makes others views, too.
fn alias_others(call: &mut Invoke<'_, '_>) -> Result<(), KernelError> {
    for (out, input) in [(3, 0), (3, 2), (1, 2), (0, 1), (2, 0), (1, 1), (9, 0), (1, 9)] {
        assert_eq!(call.alias(out, input), Err(KernelError::Access { arg: out }), "{out} {input}");
    }
    call.alias(1, 0)
}

/// Copies whole tensors of two dimensions, of the layout and size that prepare saw, wherever they are.
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
        return Err(KernelError::Unsupported { what: "what is not square" });
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
    Kernel::new("t::square", TO, prepare_square),
];

fn registry<'r>() -> Registry<'r> {
    Registry::new().with_kernels(KERNELS).unwrap()
}

fn small() -> common::builder::Tensor {
    tensor(&[4])
}

/// Loads and runs a method twice with input 0 set to 1, 2, 3, 4; gives output 0.
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

/// Calls were compared at load with the places of all tensors but those that are declared to become views: no others may.
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

/// A tensor is moved on and on: what takes it last is prepared for each shape and layout that may come, as what takes it first.
#[test]
fn shapes_and_layouts_that_were_moved_twice_are_prepared_for() {
    let square = || tensor(&[2, 2]);
    let first =
        [square().dynamic().at(0, 16), tensor(&[4, 1]).at(0, 16), tensor(&[1, 4]).at(0, 16)];
    for (index, from) in first.into_iter().enumerate() {
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
            // The dynamic one has the right shape; of others, prepare says that they have not.
            assert_eq!(run(method).is_ok(), index == 0, "{index} {backwards}");
        }
    }
}
