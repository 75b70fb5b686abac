//! Fault injection: each fault is logged as an error, and the firmware continues.

use crate::external::{self, Flash};
use crate::infer::{set_input, with};
use crate::memory::{Memory, Sizes};
use crate::models::Model;
use crate::{Failed, checked, stack};
use defmt::println;
use torchlet::core::{LoadOptions, Method, Program, ScalarType, TensorInfo, TensorRef};
use torchlet::firmware::Error;

/// Number of flipped bits in a damaged program.
const FLIPPED: usize = 8;

/// Flips bits at pseudorandom positions, as failing flash may.
pub const fn damage(program: &mut [u8], seed: u64) {
    let (mut random, mut count) = (seed + 1, 0);
    while count < FLIPPED && !program.is_empty() {
        // The generator of Knuth's MMIX; its upper bits are the better ones.
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        program[(random >> 33) as usize % program.len()] ^= 1 << (random >> 30 & 7);
        count += 1;
    }
}

/// Injects all faults with a model. Fails if a fault that must be detected is not.
pub(crate) fn all(model: &Model, memory: &mut Memory<'_>) -> Result<(), Failed> {
    let depth = stack::paint();
    damaged(model, memory);
    truncated(model, memory)?;
    short_memory(model, memory)?;
    wrong_inputs(model, memory)?;
    failing_reads(model, memory)?;
    println!("faults: stack {=usize}", stack::used(depth));
    // Afterwards, the program still runs.
    let program = checked(Program::from_bytes(model.program))?;
    checked(run(model, &program, (memory, Sizes::of(model))))
}

/// Loads and runs a program.
fn run(
    model: &Model,
    program: &Program<'_>,
    memory: (&mut Memory<'_>, Sizes),
) -> Result<(), Error> {
    with(model, program, memory, LoadOptions::default(), |method| {
        set_input(model, &mut method.attached())?;
        Ok(method.execute()?)
    })
}

/// Logs an expected error.
fn expected<R>(fault: &str, number: usize, result: Result<R, Error>) -> Result<(), Failed> {
    match result {
        Err(error) => {
            println!("fault: {=str} {=usize}: {}", fault, number, error);
            Ok(())
        }
        Ok(_) => {
            println!("error: not detected: {=str} {=usize}", fault, number);
            Err(Failed)
        }
    }
}

/// Copies of the program with flipped bits. The damage may be in a weight, where it cannot be
/// detected.
fn damaged(model: &Model, memory: &mut Memory<'_>) {
    for (number, bytes) in model.damaged.iter().enumerate() {
        let result = Program::from_bytes(bytes)
            .map_err(Error::from)
            .and_then(|program| run(model, &program, (memory, Sizes::of(model))));
        match result {
            Err(error) => println!("fault: damaged {=usize}: {}", number, error),
            Ok(()) => println!("fault: damaged {=usize} runs", number),
        }
    }
}

/// Truncated programs.
fn truncated(model: &Model, memory: &mut Memory<'_>) -> Result<(), Failed> {
    let len = model.program.len();
    for len in [0, 8, 40, len / 4, len / 2, len - 1] {
        let result = Program::from_bytes(&model.program[..len])
            .map_err(Error::from)
            .and_then(|program| run(model, &program, (memory, Sizes::of(model))));
        expected("truncated to", len, result)?;
    }
    Ok(())
}

/// Each memory one byte too small.
fn short_memory(model: &Model, memory: &mut Memory<'_>) -> Result<(), Failed> {
    let program = checked(Program::from_bytes(model.program))?;
    let sizes = Sizes::of(model);
    let arena = Sizes { arena: sizes.arena - 1, ..sizes };
    expected("arena of", arena.arena, run(model, &program, (memory, arena)))?;
    let planned = Sizes { missing: 1, ..sizes };
    expected("planned buffer short by", 1, run(model, &program, (memory, planned)))?;
    if sizes.scratch > 0 {
        let scratch = Sizes { scratch: sizes.scratch - 1, ..sizes };
        expected("scratch of", scratch.scratch, run(model, &program, (memory, scratch)))?;
    }
    Ok(())
}

/// Inputs of the wrong size, dtype or number.
fn wrong_inputs(model: &Model, memory: &mut Memory<'_>) -> Result<(), Failed> {
    let program = checked(Program::from_bytes(model.program))?;
    let mut set = |index: usize, kind: ScalarType, number: usize| {
        let options = LoadOptions::default();
        let sizes = Sizes::of(model);
        let result = with(model, &program, (memory, sizes), options, |method: &mut Method<'_>| {
            let info = TensorInfo::contiguous(kind, &[1, 2]);
            let input = info.and_then(|info| {
                let bytes = model.input.get(..info.nbytes())?;
                TensorRef::new(info, bytes)
            });
            let length = Error::Length { expected: 2, found: model.input.len() };
            Ok(method.set_input_tensor(index, &input.ok_or(length)?)?)
        });
        expected("input", number, result)
    };
    set(0, ScalarType::Float, 0)?;
    set(0, ScalarType::Long, 1)?;
    set(9, ScalarType::Float, 2)
}

/// Storage that fails at each read in turn: memory-mapped flash, and, if a copy fits, flash that is
/// read.
fn failing_reads(model: &Model, memory: &mut Memory<'_>) -> Result<(), Failed> {
    for lends in [true, false] {
        if !lends && !external::has_room(model, memory) {
            continue;
        }
        let mut number = 0;
        loop {
            let flash = Flash::new(model.program, lends, number);
            match external::with(model, &flash, memory, |method| Ok(method.execute()?)) {
                Err(error) => println!("fault: read {=u32} of flash: {}", number, error),
                Ok(()) => break,
            }
            number += 1;
        }
        // Without any read, this test would not show anything.
        if number == 0 {
            println!("error: loading did not read from flash");
            return Err(Failed);
        }
    }
    Ok(())
}
