//! Memory that callers lend for one run: tensors are read and written there, and no reference to it
//! remains.

mod common;

use common::builder::{Instruction, Method, Program, Tensor, Value, tensor};
use common::kernels::add_one;
use common::{Aligned, Memory};
use std::sync::atomic::{AtomicUsize, Ordering};
use torchlet_core::{
    self as core, InputError, Invoke, Kernel, KernelError, LentError, LoadOptions, OutputMemory,
    Param, Plan, Prepare, Registry, Scalar, TensorRef, ValueRef,
};

/// Input and output address of the last call of `t::locate`.
static ADDRESSES: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];

fn locate(call: &mut Invoke<'_, '_>) -> Result<(), KernelError> {
    ADDRESSES[0].store(call.tensor(0)?.bytes().as_ptr().addr(), Ordering::Relaxed);
    let mut out = call.out(1)?;
    out.data_mut::<f32>()?.copy_from_slice(call.tensor(0)?.data::<f32>()?);
    ADDRESSES[1].store(out.bytes_mut().as_ptr().addr(), Ordering::Relaxed);
    Ok(())
}

fn view(call: &mut Invoke<'_, '_>) -> Result<(), KernelError> {
    call.alias(1, 0)
}

fn fail(_: &mut Invoke<'_, '_>) -> Result<(), KernelError> {
    Err(KernelError::unsupported("on purpose"))
}

fn prepared<const INVOKE: usize>(call: &mut Prepare<'_, '_>) -> Result<Plan, KernelError> {
    const ALL: [core::InvokeFn; 4] = [add_one, fail, locate, view];
    let sizes = call.info(0)?.sizes;
    call.resize(1, &sizes)?;
    Ok(Plan::new(ALL[INVOKE]))
}

static KERNELS: &[Kernel] = &[
    Kernel::new("t::add_one", &[Param::Tensor, Param::Out], prepared::<0>),
    Kernel::new("t::fail", &[Param::Tensor, Param::Out], prepared::<1>),
    Kernel::new("t::locate", &[Param::Tensor, Param::Out], prepared::<2>),
    Kernel::new("t::view", &[Param::Tensor, Param::Out], prepared::<3>).aliasing(1, 0),
];

fn small() -> Tensor {
    tensor(&[4]).dynamic()
}

/// Loads a method and passes it to `work`.
fn with(method: Method, work: impl FnOnce(&mut core::Method<'_>)) {
    let file = Aligned::from(&Program::of(method)[..]);
    let program = core::Program::from_bytes(file.bytes()).unwrap();
    let registry = Registry::new().with_kernels(KERNELS).unwrap();
    let mut memory = Memory::of(&program, "forward", &registry, &[]).unwrap();
    let options = LoadOptions::default();
    work(&mut memory.load(&program, "forward", &registry, options).unwrap());
}

fn numbers(tensor: &TensorRef<'_>) -> Vec<f32> {
    tensor.data::<f32>().unwrap().to_vec()
}

fn output(method: &core::Method<'_>, index: usize) -> Result<Vec<f32>, InputError> {
    match method.output(index)? {
        ValueRef::Tensor(output) => Ok(numbers(&output)),
        other => panic!("{other:?}"),
    }
}

fn vector(numbers: &[f32]) -> TensorRef<'_> {
    TensorRef::from_slice(&[numbers.len() as i32], numbers).unwrap()
}

/// Runs on these inputs, with 16 bytes of memory for each output.
fn run(method: &mut core::Method<'_>, inputs: &[&[f32]]) -> Result<Vec<Vec<f32>>, LentError> {
    let inputs: Vec<_> = inputs.iter().map(|input| vector(input)).enumerate().collect();
    let mut memory: Vec<Aligned> = (0..method.output_count()).map(|_| Aligned::new(16)).collect();
    let mut outputs: Vec<_> = memory.iter_mut().map(|memory| memory.bytes_mut()).collect();
    let outputs = outputs.iter_mut().enumerate();
    let mut outputs: Vec<_> = outputs.map(|(at, bytes)| OutputMemory::new(at, bytes)).collect();
    method.execute_into(&inputs, &mut outputs)?;
    Ok(outputs.iter().map(|output| numbers(&output.tensor().unwrap())).collect())
}

/// Tensors that the exporter left to the caller use the caller's memory, in this run only.
#[test]
fn unplanned_tensors_are_zero_copy() {
    let mut method = Method::new("forward", &[0]);
    let (x, y) = (method.input(small()), method.tensor(small()));
    method.call("t::locate", &[x, y]);
    method.outputs = vec![y];
    with(method, |method| {
        method.set_input_tensor(0, &vector(&[9.0; 4])).unwrap();
        method.execute().unwrap();
        let own = ADDRESSES.each_ref().map(|place| place.load(Ordering::Relaxed));

        let (input, mut memory) = ([1.0, 2.0, 3.0f32], Aligned::new(16));
        let place = memory.bytes().as_ptr().addr();
        let mut outputs = [OutputMemory::new(0, memory.bytes_mut())];
        assert!(outputs[0].tensor().is_none());
        method.execute_into(&[(0, vector(&input))], &mut outputs).unwrap();
        assert_eq!(numbers(&outputs[0].tensor().unwrap()), input);
        let lent = ADDRESSES.each_ref().map(|place| place.load(Ordering::Relaxed));
        assert_eq!(lent, [input.as_ptr().addr(), place]);

        // The previously bound memory is restored, and was not written.
        assert_eq!(output(method, 0).unwrap(), [9.0; 3]);
        method.execute().unwrap();
        let after = ADDRESSES.each_ref().map(|place| place.load(Ordering::Relaxed));
        assert_eq!(after, own);
    });
}

/// Planned tensors are copied, and so are those whose memory is misaligned or too small for the
/// upper-bound shape.
#[test]
fn other_tensors_are_copied() {
    for (planned, offset, len) in [(true, 0, 16), (false, 1, 16), (true, 1, 16), (false, 0, 8)] {
        let mut method = Method::new("forward", &[64]);
        let at = |place| if planned { small().at(0, place) } else { small() };
        let (x, y) = (method.input(at(0)), method.tensor(at(16)));
        method.call("t::add_one", &[x, y]);
        method.outputs = vec![y];
        with(method, |method| {
            let mut memory = Aligned::new(32);
            let bytes = &mut memory.bytes_mut()[offset..][..len];
            let mut outputs = [OutputMemory::new(0, bytes)];
            method.execute_into(&[(0, vector(&[1.0, 2.0]))], &mut outputs).unwrap();
            let bytes = [2.0f32, 3.0].map(f32::to_le_bytes).concat();
            assert_eq!(outputs[0].tensor().unwrap().bytes(), bytes);
            // One byte less than this run needs.
            let mut outputs = [OutputMemory::new(0, &mut memory.bytes_mut()[..7])];
            let error = method.execute_into(&[], &mut outputs).unwrap_err();
            let source = InputError::TooSmall { needed: 8, available: 7 };
            assert_eq!(error, LentError::Output { index: 0, source });
            assert!(outputs[0].tensor().is_none());
        });
    }
}

/// An input that is also an output, and a tensor that is two outputs.
#[test]
fn tensors_in_several_roles() {
    let mut method = Method::new("forward", &[64]);
    let (x, y) = (method.input(small()), method.tensor(small()));
    method.call("t::add_one", &[x, y]);
    method.outputs = vec![x, y, y];
    let two: [&[f32]; 3] = [&[1.0, 2.0], &[2.0, 3.0], &[2.0, 3.0]];
    with(method, |method| assert_eq!(run(method, &[&[1.0, 2.0]]).unwrap(), two));
}

/// Views of borrowed memory that are created at run time end with the run.
#[test]
fn views_of_lent_memory_end_with_the_run() {
    let mut method = Method::new("forward", &[64]);
    let (x, y) = (method.input(small()), method.tensor(small().at(0, 0)));
    let condition = method.value(Value::Bool(true));
    method.inputs.push(condition);
    let (seen, z) = (method.tensor(small()), method.tensor(small().at(0, 16)));
    // A view of different tensors at different times, so it is placed at run time.
    method.then(Instruction::JumpFalse(condition, 3));
    method.call("t::view", &[y, seen]);
    method.call("t::view", &[x, seen]);
    method.call("t::add_one", &[seen, z]);
    method.outputs = vec![z];
    with(method, |method| {
        assert_eq!(run(method, &[&[1.0, 2.0]]).unwrap(), [[2.0, 3.0]]);
        method.set_input(1, &ValueRef::Scalar(Scalar::Bool(false))).unwrap();
        let error = method.execute().unwrap_err();
        let unbound = KernelError::unbound(0);
        assert_eq!(error.source, core::error::InstructionError::Kernel(unbound));
        method.set_input(1, &ValueRef::Scalar(Scalar::Bool(true))).unwrap();
        method.execute().unwrap();
        assert_eq!(output(method, 0).unwrap(), [1.0, 1.0]);
    });
}

/// An output that becomes a view of a borrowed input is copied from there.
#[test]
fn outputs_that_are_views() {
    let mut method = Method::new("forward", &[64]);
    let (x, y) = (method.input(small()), method.input(small().at(0, 0)));
    let (seen, z) = (method.tensor(small()), method.tensor(small().at(0, 16)));
    method.call("t::view", &[y, seen]);
    method.call("t::add_one", &[seen, z]);
    method.call("t::view", &[x, seen]);
    method.outputs = vec![seen, z];
    with(method, |method| {
        for _ in 0..2 {
            let outputs = run(method, &[&[1.0, 2.0], &[5.0, 6.0]]).unwrap();
            assert_eq!(outputs, [[1.0, 2.0], [6.0, 7.0]]);
        }
    });
}

/// Memory is returned after every kind of failure.
#[test]
fn failures_return_memory() {
    let mut method = Method::new("forward", &[64]);
    let (x, y) = (method.input(small()), method.tensor(small()));
    method.call("t::add_one", &[x, y]);
    method.call("t::fail", &[y, x]);
    method.outputs = vec![y];
    with(method, |method| {
        let error = run(method, &[&[1.0, 2.0]]).unwrap_err();
        assert!(matches!(error, LentError::Execute(_)), "{error}");
        assert_eq!(output(method, 0).unwrap(), [0.0; 2]);
        let error = run(method, &[&[0.0; 4], &[0.0; 4]]).unwrap_err();
        let source = InputError::Index { index: 1, count: 1 };
        assert_eq!(error, LentError::Input { index: 1, source });
        let error = run(method, &[&[0.0; 5]]).unwrap_err();
        assert!(matches!(error, LentError::Input { index: 0, .. }), "{error}");
        let mut outputs = [OutputMemory::new(1, &mut [])];
        let error = method.execute_into(&[], &mut outputs).unwrap_err();
        assert!(matches!(error, LentError::Output { index: 1, .. }), "{error}");
        let numbers = [1i32, 2];
        let input = TensorRef::from_slice(&[2], &numbers).unwrap();
        let error = method.execute_into(&[(0, input)], &mut []).unwrap_err();
        assert!(matches!(error, LentError::Input { index: 0, .. }), "{error}");
        assert!(output(method, 0).is_ok());
    });
}

/// Borrowed inputs are read-only, even if the program writes its input.
#[test]
fn lent_inputs_are_not_written() {
    let mut method = Method::new("forward", &[64]);
    let (x, y) = (method.input(small()), method.tensor(small().at(0, 0)));
    method.call("t::add_one", &[y, x]);
    method.outputs = vec![y];
    with(method, |method| {
        let error = run(method, &[&[1.0, 2.0, 3.0, 4.0]]).unwrap_err();
        assert!(error.to_string().contains("read-only"), "{error}");
        method.execute().unwrap();
    });
}

/// More tensors than can borrow memory: the others are copied.
#[test]
fn tensors_beyond_the_maximum_are_copied() {
    let mut method = Method::new("forward", &[0]);
    for _ in 0..12 {
        let (x, y) = (method.input(small()), method.tensor(small()));
        method.call("t::add_one", &[x, y]);
        method.outputs.push(y);
    }
    with(method, |method| {
        let inputs: Vec<_> = (0..12).map(|number| [number as f32; 3]).collect();
        let inputs: Vec<&[f32]> = inputs.iter().map(|input| &input[..]).collect();
        let expected: Vec<_> = (0..12).map(|number| [number as f32 + 1.0; 3]).collect();
        assert_eq!(run(method, &inputs).unwrap(), expected);
    });
}
