//! Two loaded models that share activation memory and run in turn.

use crate::infer::{log_outputs, set_input};
use crate::memory::Memory;
use crate::models::Model;
use crate::{Failed, checked};
use torchlet::core::{ARENA_ALIGN, LoadOptions, Program, Registry, SharedMemory, SharedMethod};
use torchlet::firmware::Error;

/// The two models. Most others keep state in activation memory: the LSTM step has state, and models
/// lowered for Cortex-M have scratch tensors that cannot be told from state.
const BOTH: [&str; 2] = ["digits", "mlp"];

/// If the image contains both, runs them alternately in one memory for activations.
pub(crate) fn all(models: &[Model], memory: &mut Memory<'_>) -> Result<(), Failed> {
    let [first, second] = BOTH.map(|name| models.iter().find(|model| model.name == name));
    let (Some(first), Some(second)) = (first, second) else { return Ok(()) };
    checked(both(first, second, memory))
}

fn both(first: &Model, second: &Model, memory: &mut Memory<'_>) -> Result<(), Error> {
    let available = memory.arena.len();
    let start = first.arena.next_multiple_of(ARENA_ALIGN);
    let Some((one, other)) = memory.arena.split_at_mut_checked(start) else {
        return Err(Error::TooSmall { needed: start, available });
    };
    let mut shared = SharedMemory::new(&mut [&mut *memory.planned], &mut *memory.scratch)?;
    let one = load(first, &mut shared, one)?;
    let other = load(second, &mut shared, other)?;
    let mut both = [(first, one), (second, other)];
    for round in 0..2 {
        for (model, method) in &mut both {
            let mut method = method.attach(&mut shared)?;
            set_input(model, &mut method)?;
            method.execute()?;
            if round == 1 {
                log_outputs(model.name, " shared", &method)?;
            }
        }
    }
    Ok(())
}

fn load<'m>(
    model: &Model,
    shared: &mut SharedMemory<'m>,
    arena: &'m mut [core::mem::MaybeUninit<u8>],
) -> Result<SharedMethod<'m>, Error> {
    let registry = Registry::new().with_kernels(model.kernels)?;
    let program = Program::from_bytes(model.program)?;
    let meta = program.method_meta("forward")?;
    let options = LoadOptions::default();
    let (needed, available) = (meta.table_bytes(&options.limits)?, arena.len());
    let Some((tables, arena)) = arena.split_at_mut_checked(needed) else {
        return Err(Error::TooSmall { needed, available });
    };
    Ok(meta.prepare(tables, &registry, options)?.finish_shared(shared, arena)?)
}
