//! Any program for portable kernels: what was lowered to the Vulkan delegate becomes instructions
//! again.

mod lowered;

use crate::compile::{Compiled, compile_read};
use crate::error::Error;
use crate::front::CallOrigin;
use crate::front::delegate::is_readable;
use crate::front::joined::MOST_BUFFERS;
use crate::method::{Instruction, Method, Program};
use crate::named::of_program;
use crate::operators::Operator;
use crate::processors::Processors;
use crate::target::Packer;
use alloc::borrow::Cow;
use alloc::vec;
use alloc::vec::Vec;
use lowered::{Context, Lowered};
use torchlet_core::{DataMap, Registry};

/// The same program without delegates for Vulkan: each call of one becomes instructions for
/// portable kernels, and what it keeps from run to run becomes state of the method. `data` are the
/// files of external data that the program comes with; kernels of the registry compute beforehand
/// what is constant.
///
/// # Errors
/// The program is malformed, a delegate needs data that is not there, or portable kernels cannot do
/// what it does.
pub fn to_portable<'p>(
    program: &torchlet_core::Program<'p>,
    data: &[DataMap<'p>],
    registry: &Registry<'_>,
) -> Result<Program<'p>, Error> {
    to_instructions(program, data, registry, &[]).map(|(program, _)| program)
}

/// What is not computed beforehand where a graph is going to be compiled: processors may have
/// products with codes, which weigh less.
const CODES: &[Operator] = &[
    Operator::QUANTIZED_DECOMPOSED_DEQUANTIZE_PER_CHANNEL,
    Operator::QUANTIZED_DECOMPOSED_DEQUANTIZE_PER_TENSOR,
];

/// The same, but what is computed of constants with some operators is left to each run; with what
/// the instructions of each method come from, where they are not those of the program.
fn to_instructions<'p>(
    program: &torchlet_core::Program<'p>,
    data: &[DataMap<'p>],
    registry: &Registry<'_>,
    left: &[Operator],
) -> Result<(Program<'p>, Vec<Vec<CallOrigin>>), Error> {
    let mut portable = Program::read(program)?;
    let named = of_program(program, data);
    let context = Context { named: &named, registry, left };
    // State of each method lies in a buffer of its own, so that methods which share memory do not
    // share this.
    let mut buffer = portable.methods.iter().map(|method| method.planned.len()).max().unwrap_or(0);
    let mut buffers = MOST_BUFFERS;
    let mut origins = vec![Vec::new(); portable.methods.len()];
    for (method, origins) in portable.methods.iter_mut().zip(&mut origins) {
        let mut delegates = take_delegates(method)?;
        if delegates.iter().any(|place| matches!(place, Place::Lowered(_))) {
            *origins = replace(method, &mut delegates, &context)?;
            let has_state = place_state(method, &delegates, buffer, &mut buffers)?;
            buffer += usize::from(has_state);
            method.plan()?;
        }
    }
    portable.forget_unused_data()?;
    Ok((portable, origins))
}

/// The same program compiled for kernels, and an engine of the CPU if there is one: what was
/// lowered to the Vulkan delegate becomes instructions, constants are folded, what does nothing is
/// gone, and memory is planned anew.
///
/// # Errors
/// As [`to_portable`].
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
    // What stays as it is gets its constants nowhere else.
    match compiled.report.methods.iter().any(|method| method.as_exported.is_some()) {
        true => compile(&[]),
        false => Ok(compiled),
    }
}

/// The same for the machine that this runs on alone: weights of the regions that a packer knows are
/// packed already.
///
/// # Errors
/// As [`to_portable`].
pub fn compile_packed<'p>(
    program: &torchlet_core::Program<'p>,
    data: &'p [DataMap<'p>],
    processors: Processors<'_>,
    packer: &'p dyn Packer,
    registry: &Registry<'_>,
) -> Result<Compiled<'p>, Error> {
    compile_instructions(program, data, processors, Some(packer), registry)
}

/// What becomes of a delegate.
enum Place<'p> {
    /// It is called under another number.
    Kept(usize),
    Lowered(Lowered<'p>),
}

/// Leaves a method the delegates that stay.
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

/// Replaces the calls of delegates, and tells what each instruction comes from.
fn replace<'p>(
    method: &mut Method<'p>,
    delegates: &mut [Place<'p>],
    context: &Context<'_, 'p>,
) -> Result<Vec<CallOrigin>, Error> {
    let old = core::mem::take(&mut method.instructions);
    let (mut instructions, mut origins) = (Vec::new(), Vec::new());
    // Where each instruction is now.
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
            None => return Err(Error::invalid("a delegate is out of range")),
        }
    }
    moved.push(instructions.len());
    for instruction in &mut instructions {
        if let Instruction::JumpFalse { destination, .. } = instruction {
            let place = moved.get(*destination);
            *destination = *place.ok_or_else(|| Error::invalid("a jump leads nowhere"))?;
        }
    }
    method.instructions = instructions;
    Ok(origins)
}

/// Places the state of delegates that were replaced in a planned buffer of this number, of those
/// that methods may still have in all; gives whether there is any.
fn place_state<'p>(
    method: &mut Method<'p>,
    delegates: &[Place<'p>],
    buffer: usize,
    buffers: &mut usize,
) -> Result<bool, Error> {
    let mut size = 0;
    for place in delegates {
        if let Place::Lowered(lowered) = place {
            lowered.place_state(method, buffer, &mut size)?;
        }
    }
    if size > 0 {
        if buffer >= *buffers {
            return Err(Error::unsupported("state of so many methods in a buffer each"));
        }
        *buffers -= buffer;
        method.planned.resize(buffer + 1, 0);
        if let Some(slot) = method.planned.get_mut(buffer) {
            *slot = size;
        }
    }
    Ok(size > 0)
}
