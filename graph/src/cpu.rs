//! Compiles programs for kernels and the CPU: delegates become instructions again.

mod lowered;

use crate::budget::Computed;
use crate::compile::{Compiled, compile_read};
use crate::error::Error;
use crate::front::delegate::is_readable;
use crate::front::{CallOrigin, Vocabulary};
use crate::method::{Instruction, Method, Program};
use crate::named::of_program;
use crate::operators::Operator;
use crate::processors::Processors;
use crate::target::Packer;
use crate::unplanned::StateBuffers;
use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use lowered::{Context, Lowered};
use torchlet_core::{DataMap, Registry};

/// Converts a program into one for portable kernels. Each call of a readable delegate becomes
/// kernel instructions, and the delegate's state becomes state of the method. `data` are the
/// program's files of external data. Kernels of the registry fold constants.
///
/// # Errors
/// The program is malformed, data of a delegate is missing, or portable kernels do not support one
/// of its calls.
pub fn to_portable<'p>(
    program: &torchlet_core::Program<'p>,
    data: &[DataMap<'p>],
    registry: &Registry<'_>,
) -> Result<Program<'p>, Error> {
    to_instructions(program, data, registry, &[]).map(|(program, _)| program)
}

/// Dequantization operators that constant folding skips before a graph is compiled. Processors may
/// support quantized constants directly, which are smaller.
pub(crate) const CODES: &[Operator] = &[
    Operator::QUANTIZED_DECOMPOSED_DEQUANTIZE_PER_CHANNEL,
    Operator::QUANTIZED_DECOMPOSED_DEQUANTIZE_PER_TENSOR,
    Operator::TOSA_RESCALE,
];

/// Like [`to_portable`], but constant folding skips the operators in `left`. For each rewritten
/// method, also returns the origin of each instruction.
pub(crate) fn to_instructions<'p>(
    program: &torchlet_core::Program<'p>,
    data: &[DataMap<'p>],
    registry: &Registry<'_>,
    left: &[Operator],
) -> Result<(Program<'p>, Vec<Vec<CallOrigin>>), Error> {
    let mut portable = Program::read(program)?;
    let named = of_program(program, data);
    let context = Context { named: &named, computed: Computed::new(), registry, left };
    let vocabulary = Vocabulary::of(registry);
    // State of each method gets a separate buffer, since methods that share memory must not share
    // it.
    let mut buffers = StateBuffers::after(&portable.methods);
    let mut origins = vec![Vec::new(); portable.methods.len()];
    for (method, origins) in portable.methods.iter_mut().zip(&mut origins) {
        let mut delegates = take_delegates(method)?;
        if delegates.iter().any(|place| matches!(place, Place::Lowered(_))) {
            *origins = replace(method, &mut delegates, &context)?;
            let unused = buffers.unused();
            place_state(method, &delegates, unused)?;
            // `plan` would reuse the memory of state outside the memory plan.
            method.place_state(&vocabulary, &BTreeMap::new(), unused)?;
            buffers.count(method);
            method.plan()?;
        }
    }
    portable.forget_unused_data()?;
    Ok((portable, origins))
}

/// Compiles a program for kernels and, if present, a CPU engine. Readable delegates become
/// instructions, constants are folded, redundant calls are removed, and memory is planned again.
///
/// # Errors
/// See [`to_portable`].
pub fn compile<'p>(
    program: &torchlet_core::Program<'p>,
    data: &'p [DataMap<'p>],
    processors: Processors<'_>,
    registry: &Registry<'_>,
) -> Result<Compiled<'p>, Error> {
    compile_instructions(program, data, processors, None, registry)
}

fn compile_instructions<'p>(
    program: &torchlet_core::Program<'p>,
    data: &'p [DataMap<'p>],
    processors: Processors<'_>,
    packer: Option<&'p dyn Packer>,
    registry: &Registry<'_>,
) -> Result<Compiled<'p>, Error> {
    let compile = |left| {
        let (portable, origins) = to_instructions(program, data, registry, left)?;
        compile_read(portable, origins, program, data, processors, packer, registry)
    };
    let compiled = compile(CODES)?;
    // A method that stays unchanged still has the calls that folding skipped, so compile again and
    // fold all of them.
    match compiled.report.methods.iter().any(|method| method.unchanged_reason.is_some()) {
        true => compile(&[]),
        false => Ok(compiled),
    }
}

/// Compiles a program like [`compile`], with the weights of regions packed for the current machine.
/// The result runs on this machine only.
///
/// # Errors
/// See [`to_portable`].
pub fn compile_packed<'p>(
    program: &torchlet_core::Program<'p>,
    data: &'p [DataMap<'p>],
    processors: Processors<'_>,
    packer: &'p dyn Packer,
    registry: &Registry<'_>,
) -> Result<Compiled<'p>, Error> {
    compile_instructions(program, data, processors, Some(packer), registry)
}

/// Replacement of a delegate.
enum Place<'p> {
    /// The delegate remains, with this new index.
    Kept(usize),
    Lowered(Lowered<'p>),
}

/// Removes the readable delegates from a method.
fn take_delegates<'p>(method: &mut Method<'p>) -> Result<Vec<Place<'p>>, Error> {
    let mut places = Vec::new();
    for delegate in core::mem::take(&mut method.delegates) {
        if !is_readable(&delegate) {
            places.push(Place::Kept(method.delegates.len()));
            method.delegates.push(delegate);
            continue;
        }
        let Cow::Borrowed(blob) = delegate.processed else {
            return Err(Error::unsupported(
                "a delegate in storage that does not lend its bytes: read the file into memory",
            ));
        };
        places.push(Place::Lowered(Lowered::new(blob, places.len())));
    }
    Ok(places)
}

/// Replaces the calls of readable delegates by instructions, and returns the origin of each
/// instruction.
fn replace<'p>(
    method: &mut Method<'p>,
    delegates: &mut [Place<'p>],
    context: &Context<'_, 'p>,
) -> Result<Vec<CallOrigin>, Error> {
    let old = core::mem::take(&mut method.instructions);
    let (mut instructions, mut origins) = (Vec::new(), Vec::new());
    // New index of each instruction.
    let mut moved = Vec::with_capacity(old.len() + 1);
    for (number, instruction) in old.into_iter().enumerate() {
        moved.push(instructions.len());
        let Instruction::Delegate { delegate, args } = instruction else {
            instructions.push(instruction);
            origins.push(CallOrigin::of(number));
            continue;
        };
        match delegates.get_mut(delegate) {
            Some(Place::Lowered(lowered)) => {
                for (instruction, part) in lowered.call(method, &args, context)? {
                    instructions.push(instruction);
                    origins.push(CallOrigin { part, ..CallOrigin::of(number) });
                }
            }
            Some(Place::Kept(delegate)) => {
                instructions.push(Instruction::Delegate { delegate: *delegate, args });
                origins.push(CallOrigin::of(number));
            }
            None => {
                return Err(Error::Invalid(format!(
                    "call {number}: the method has no delegate {delegate}"
                )));
            }
        }
    }
    moved.push(instructions.len());
    for instruction in &mut instructions {
        if let Instruction::JumpFalse { destination, .. } = instruction {
            let place = moved.get(*destination);
            *destination = *place.ok_or_else(|| {
                Error::Invalid(format!("jump destination {destination} is out of range"))
            })?;
        }
    }
    method.instructions = instructions;
    Ok(origins)
}

/// Places the state of replaced delegates in the planned buffer with this number, which no other
/// method uses.
fn place_state<'p>(
    method: &mut Method<'p>,
    delegates: &[Place<'p>],
    buffer: Option<usize>,
) -> Result<(), Error> {
    let mut size = 0;
    let number = buffer.unwrap_or(0);
    for place in delegates {
        if let Place::Lowered(lowered) = place {
            lowered.place_state(method, number, &mut size)?;
        }
    }
    if size > 0 {
        if buffer.is_none() {
            return Err(Error::unsupported(
                "state in a program whose methods have too many planned buffers",
            ));
        }
        method.planned.resize(number + 1, 0);
        if let Some(slot) = method.planned.get_mut(number) {
            *slot = size;
        }
    }
    Ok(())
}
