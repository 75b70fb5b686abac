//! Methods that have memory of their own.

use crate::{Failed, Test, array, close, close_all, events, same, tensor};
use crate::{
    digits, digits_unplanned_io, dynamic_rows, external_two_files, lstm_step_apart, many_inputs,
    state_unplanned, two_methods,
};
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use torchlet::core::{InputError, LoadOptions, MethodMemory, Program, Registry, Scalar, TensorRef};
use torchlet::firmware::{Error, Lent, Memory, TakeOnce};

pub(crate) const TESTS: &[Test] = &[
    ("several methods", several_methods),
    ("data outside of the program", data_outside),
    ("inputs and outputs in memory of the caller", unplanned),
    ("state in memory of the caller", state),
    ("numbers in and out", numbers),
    ("shapes that change", shapes),
    ("two memories", two_memories),
    ("8 bits in a second memory", integers_in_second_memory),
];

fn several_methods() -> Result<(), Failed> {
    let mut model = two_methods::load()?;
    for _ in 0..2 {
        let y = model.encode(array(tensor!("two_methods.encode.0.in0"))?)?;
        close(y, tensor!("two_methods.encode.0.out0"), "encode")?;
        let y = model.forward(array(tensor!("two_methods.forward.0.in0"))?)?;
        close(y, tensor!("two_methods.forward.0.out0"), "forward")?;
    }
    // Each method has its own memory, so its outputs persist.
    close(model.encode.outputs()?, tensor!("two_methods.encode.0.out0"), "encode, later")?;
    match two_methods::load() {
        Err(Error::Taken) => Ok(()),
        _ => Err(Failed::NotRefused("memory that was taken")),
    }
}

fn data_outside() -> Result<(), Failed> {
    let mut model = external_two_files::load()?;
    let y = model.forward(array(tensor!("external_two_files.forward.0.in0"))?)?;
    close(y, tensor!("external_two_files.forward.0.out0"), "forward")
}

fn unplanned() -> Result<(), Failed> {
    use digits_unplanned_io::forward::LENT;
    if LENT != [Lent::Input(0), Lent::Output(0)] {
        return Err(Failed::Differs("what is lent"));
    }
    let mut model = digits_unplanned_io::load()?;
    let y = model.forward(array(tensor!("digits_unplanned_io.forward.0.in0"))?)?;
    close(y, tensor!("digits_unplanned_io.forward.0.out0"), "logits")
}

fn state() -> Result<(), Failed> {
    use state_unplanned::{PROGRAM, forward, registry};
    let mut memory = forward::memory()?;
    let program = Program::from_bytes(PROGRAM)?;
    without_state(&program, &registry()?, &mut memory)?;
    let options = LoadOptions::default().with_tracer(events::recorder());
    let mut model = forward::Method::load(&program, &registry()?, memory, options)?;
    macro_rules! step {
        ($input:literal, $total:literal, $calls:literal) => {
            let (total, calls) = model.run(array(tensor!($input))?)?;
            close(total, tensor!($total), "the sum")?;
            same(calls, tensor!($calls), "the number of calls")?;
        };
    }
    step!(
        "state_unplanned.forward.0.in0",
        "state_unplanned.forward.0.out0",
        "state_unplanned.forward.0.out1"
    );
    step!(
        "state_unplanned.forward.1.in0",
        "state_unplanned.forward.1.out0",
        "state_unplanned.forward.1.out1"
    );
    step!(
        "state_unplanned.forward.2.in0",
        "state_unplanned.forward.2.out0",
        "state_unplanned.forward.2.out1"
    );
    // Again from the initial state.
    model.as_core().reset()?;
    step!(
        "state_unplanned.forward.0.in0",
        "state_unplanned.forward.0.out0",
        "state_unplanned.forward.0.out1"
    );
    // Four runs.
    events::drain(4)
}

/// Without memory for its state, a run fails with a kernel error, which can be logged directly.
fn without_state<const PLANNED: usize, const LENT: usize>(
    program: &Program<'static>,
    registry: &Registry<'static>,
    memory: &mut Memory<PLANNED, LENT>,
) -> Result<(), Failed> {
    let mut buffers = memory.planned.each_mut().map(|buffer| &mut **buffer);
    let memory = MethodMemory {
        arena: &mut *memory.arena,
        planned: &mut buffers,
        scratch: &mut *memory.scratch,
    };
    let options = LoadOptions::default();
    let mut method = program.load_method("forward", registry, memory, options)?;
    match method.execute() {
        Err(error) => {
            defmt::println!("without memory for state: {}", Error::from(error));
            Ok(())
        }
        Ok(()) => Err(Failed::NotRefused("a run without memory for state")),
    }
}

fn numbers() -> Result<(), Failed> {
    macro_rules! number {
        ($name:literal) => {
            include!(concat!(env!("OUT_DIR"), "/many_inputs.forward.0.", $name))
        };
    }
    let mut model = many_inputs::load()?;
    let x = array(tensor!("many_inputs.forward.0.in0"))?;
    let (values, indices, int, bool, double, (), signs, largest) =
        model.forward(x, number!("in1"), number!("in2"), number!("in3"))?;
    close(values, tensor!("many_inputs.forward.0.out0"), "values")?;
    same(indices, tensor!("many_inputs.forward.0.out1"), "indices")?;
    same(signs, tensor!("many_inputs.forward.0.out6"), "signs")?;
    same(largest, tensor!("many_inputs.forward.0.out7"), "largest")?;
    let expected = (
        Scalar::Int(number!("out2")),
        Scalar::Bool(number!("out3")),
        Scalar::Double(number!("out4")),
    );
    if (int, bool, double) == expected { Ok(()) } else { Err(Failed::Differs("numbers")) }
}

fn shapes() -> Result<(), Failed> {
    let mut model = dynamic_rows::load()?;
    macro_rules! run {
        ($input:literal, $output:literal) => {
            let sizes: &[i32] = &include!(concat!(env!("OUT_DIR"), "/", $input, ".sizes"));
            let elements = array::<
                [f32; include_bytes!(concat!(env!("OUT_DIR"), "/", $input)).len() / 4],
            >(tensor!($input))?;
            let x = TensorRef::from_slice(sizes, elements).ok_or(Failed::Differs("a shape"))?;
            let y = model.forward(&x)?;
            if y.sizes[..] != *sizes {
                return Err(Failed::Differs("the shape"));
            }
            let expected = array::<
                [f32; include_bytes!(concat!(env!("OUT_DIR"), "/", $output)).len() / 4],
            >(tensor!($output))?;
            close_all(y.data::<f32>()?, expected, "rows")?;
        };
    }
    run!("dynamic_rows.forward.0.in0", "dynamic_rows.forward.0.out0");
    run!("dynamic_rows.forward.1.in0", "dynamic_rows.forward.1.out0");
    let x = [0.0f32; 39];
    let x = TensorRef::from_slice(&[13, 3], &x).ok_or(Failed::Differs("a shape"))?;
    match model.forward(&x) {
        Err(Error::Input(InputError::Shape { bound: true, .. })) => Ok(()),
        _ => Err(Failed::NotRefused("too many rows")),
    }
}

/// Memory in a section that the linker script places in another RAM. Uninitialised at start-up.
#[repr(C, align(16))]
struct Second<const BYTES: usize> {
    memory: UnsafeCell<MaybeUninit<[u8; BYTES]>>,
}

// SAFETY: it is only accessed through `take`, once per instance.
unsafe impl<const BYTES: usize> Sync for Second<BYTES> {}

impl<const BYTES: usize> Second<BYTES> {
    const fn new() -> Self {
        Second { memory: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    /// The memory, zeroed.
    fn take(&'static self, once: &'static TakeOnce<()>) -> Result<&'static mut [u8], Error> {
        once.take()?;
        // SAFETY: each memory has its own `once`, in the two functions below, so it is returned
        // only once.
        let memory = unsafe { &mut *self.memory.get() };
        Ok(memory.write([0; BYTES]))
    }
}

fn two_memories() -> Result<(), Failed> {
    use lstm_step_apart::{PROGRAM, forward, registry};
    #[unsafe(link_section = ".uninit.second")]
    static STATE: Second<{ forward::PLANNED[1] }> = Second::new();
    static TAKEN: TakeOnce<()> = TakeOnce::new(());
    let mut memory = forward::memory()?;
    memory.planned[1] = STATE.take(&TAKEN)?;
    let program = Program::from_bytes(PROGRAM)?;
    let mut step = forward::Method::load(&program, &registry()?, memory, LoadOptions::default())?;
    macro_rules! step {
        ($input:literal, $output:literal) => {
            close(step.run(array(tensor!($input))?)?, tensor!($output), "a step")?;
        };
    }
    step!("lstm_step_apart.forward.0.in0", "lstm_step_apart.forward.0.out0");
    step!("lstm_step_apart.forward.1.in0", "lstm_step_apart.forward.1.out0");
    step!("lstm_step_apart.forward.2.in0", "lstm_step_apart.forward.2.out0");
    Ok(())
}

fn integers_in_second_memory() -> Result<(), Failed> {
    use digits::{PROGRAM, forward, registry};
    #[unsafe(link_section = ".uninit.second")]
    static ACTIVATIONS: Second<{ forward::PLANNED[0] }> = Second::new();
    static TAKEN: TakeOnce<()> = TakeOnce::new(());
    let mut memory = forward::memory()?;
    memory.planned[0] = ACTIVATIONS.take(&TAKEN)?;
    let program = Program::from_bytes(PROGRAM)?;
    let mut model = forward::Method::load(&program, &registry()?, memory, LoadOptions::default())?;
    for _ in 0..2 {
        let logits = model.run(array(tensor!("digits.forward.0.in0"))?)?;
        same(logits, tensor!("digits.forward.0.out0"), "logits")?;
    }
    Ok(())
}
