//! Chains of element-wise operators: one dispatch that keeps intermediate values in registers.
//!
//! [`fits`] tells the fusion pass ([`crate::passes`]) which calls can form a chain.

use super::dims::merge_dims;
use super::elementwise::{broadcast_sizes, broadcast_strides, stage_of};
use super::{Entry, operator};
use crate::encoder::{Encoder, numel_of, read, u32_of, write};
use crate::error::Error;
use crate::stages::{Source, Stage};
use crate::tensors::Operand;
use std::collections::HashMap;
use torchlet_graph::graph::{Node, ValueId};
use torchlet_graph::operators::Operator;
use torchlet_shaders::functions::pointwise::{
    ALIKE, BINARY_FROM, NUMBER, ONE_ELEMENT, STRIDED, UNUSED, WHERE,
};
use torchlet_shaders::{Element, Pointwise, PointwisePush};

pub(super) const OPERATORS: &[Entry] = &[operator(Operator::CHAIN, encode)];

/// The maximum number of input tensors of a chain.
pub(crate) const MAX_INPUTS: usize = 5;
/// The maximum number of operators of a chain.
pub(crate) const MAX_STAGES: usize = 9;
/// The maximum number of strided inputs, and of dims.
const MAX_STRIDED: usize = 3;
const DIMS: usize = 3;

/// Marks an unused stage for the shader.
const NO_STAGE: u32 = u32::MAX;

/// The memory layout of a chain's input tensors, relative to the output.
struct Walk {
    layouts: [u32; MAX_INPUTS],
    /// The sizes of all dims except the first.
    sizes: [u32; DIMS - 1],
    strides: [i32; MAX_STRIDED * DIMS],
}

/// Returns the layout of inputs relative to an output of shape `sizes`. Returns `None` if the
/// layout has too many dims or strides, or if the output of a malformed file has fewer
/// dims than an input.
fn walk(inputs: &[Operand], sizes: &[usize]) -> Result<Option<Walk>, Error> {
    if inputs.iter().any(|input| input.rank() > sizes.len()) {
        return Ok(None);
    }
    let mut walk = Walk {
        layouts: [UNUSED; MAX_INPUTS],
        sizes: [1; DIMS - 1],
        strides: [0; MAX_STRIDED * DIMS],
    };
    let mut strided = Vec::new();
    for (slot, input) in walk.layouts.iter_mut().zip(inputs) {
        *slot = if input.sizes == sizes {
            ALIKE
        } else if input.numel() == 1 {
            ONE_ELEMENT
        } else {
            strided.push(broadcast_strides(input, sizes.len()));
            STRIDED + strided.len() as u32 - 1
        };
    }
    if strided.is_empty() {
        return Ok(Some(walk));
    }
    let dims = merge_dims(sizes, &strided)?;
    if dims.len() > DIMS || strided.len() > MAX_STRIDED {
        return Ok(None);
    }
    for (dim, (size, steps)) in (0..DIMS).rev().zip(dims.iter().rev()) {
        if let Some(slot) = dim.checked_sub(1).and_then(|dim| walk.sizes.get_mut(dim)) {
            *slot = u32_of(*size)?;
        }
        for (which, step) in steps.iter().enumerate() {
            if let Some(slot) = walk.strides.get_mut(which * DIMS + dim) {
                *slot = i32::try_from(*step).map_err(|_| {
                    Error::unsupported(format!("a stride of {step} elements; the limit is 2^31"))
                })?;
            }
        }
    }
    Ok(Some(walk))
}

/// Whether a chain can read tensors of the shapes `inputs` and write one of shape `sizes`.
pub(crate) fn fits(inputs: &[Operand], sizes: &[usize]) -> bool {
    inputs.len() <= MAX_INPUTS && matches!(walk(inputs, sizes), Ok(Some(_)))
}

/// The stages of a chain in the shader's encoding.
struct Stages {
    functions: [u32; MAX_STAGES],
    operands: [u32; MAX_STAGES],
    parameters: [f32; 2 * MAX_STAGES],
}

/// Translates calls to stages; `registers` maps input values to shader registers.
fn stages(
    e: &Encoder<'_, '_>,
    parts: &[Node],
    mut registers: HashMap<ValueId, u32>,
) -> Result<Stages, Error> {
    let mut stages = Stages {
        functions: [NO_STAGE; MAX_STAGES],
        operands: [0; MAX_STAGES],
        parameters: [0.0; 2 * MAX_STAGES],
    };
    for (index, part) in parts.iter().enumerate() {
        let register = |id: &ValueId| {
            registers.get(id).copied().ok_or_else(|| {
                Error::invalid("internal error: a stage of a chain reads an unknown value")
            })
        };
        let stage = stage_of(e, part.operator, &part.args)?;
        let (function, operands, parameters) = match stage {
            Stage::Unary(function, input, parameters) => (function, register(&input)?, parameters),
            Stage::Binary(function, a, Source::Tensor(b), alpha) => {
                (BINARY_FROM + function, register(&a)? | register(&b)? << 8, [0.0, alpha])
            }
            Stage::Binary(function, a, Source::Number(number), alpha) => {
                (BINARY_FROM + function, register(&a)? | NUMBER << 8, [number, alpha])
            }
            Stage::Where([condition, a, b]) => {
                let operands = register(&condition)? | register(&a)? << 8 | register(&b)? << 16;
                (WHERE, operands, [0.0; 2])
            }
        };
        let too_long = || Error::invalid("internal error: a chain has too many stages");
        *stages.functions.get_mut(index).ok_or_else(too_long)? = function;
        *stages.operands.get_mut(index).ok_or_else(too_long)? = operands;
        let slots = stages.parameters.iter_mut().skip(2 * index);
        slots.zip(parameters).for_each(|(slot, parameter)| *slot = parameter as f32);
        if let Some(out) = part.args.last() {
            registers.insert(*out, (MAX_INPUTS + index) as u32);
        }
    }
    Ok(stages)
}

fn encode(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let (_, ids) = args
        .split_last()
        .ok_or_else(|| Error::invalid("internal error: a chain has no arguments"))?;
    let (kept, out) = match e.outs(args)?[..] {
        [out] => (None, out),
        [kept, out] => (Some(kept), out),
        _ => return Err(Error::invalid("internal error: a chain has not one or two outputs")),
    };
    let inputs: Vec<Operand> = ids.iter().map(|id| e.tensor(*id)).collect::<Result<_, _>>()?;
    // All shapes broadcast, in any order of the stages.
    let mut sizes: Vec<usize> = Vec::new();
    for input in &inputs {
        sizes = broadcast_sizes(&sizes, &input.sizes)?;
    }
    let out = e.resize(out, &sizes)?;
    numel_of(&sizes)?;
    let kept = match kept {
        Some(kept) => {
            let stage = e.parts().iter().position(|part| part.args.last() == Some(&kept));
            let stage = stage.ok_or_else(|| {
                Error::invalid("internal error: no stage of a chain computes its first output")
            })?;
            Some((u32_of(stage)?, e.resize(kept, &sizes)?))
        }
        None => None,
    };
    let walk = walk(&inputs, &sizes)?;
    let walk = walk.ok_or_else(|| {
        Error::unsupported(format!(
            "a chain with broadcast inputs of more than {DIMS} dims, or with more than \
             {MAX_STRIDED} of them"
        ))
    })?;
    let registers = ids.iter().copied().zip(0..).collect();
    let stages = stages(e, e.parts(), registers)?;
    let mut types = [Element::F32; MAX_INPUTS];
    types.iter_mut().zip(&inputs).for_each(|(slot, input)| *slot = input.element);
    let pipeline = Pointwise {
        output: out.element,
        kept: kept.as_ref().map_or(out.element, |(_, kept)| kept.element),
        kept_stage: kept.as_ref().map_or(NO_STAGE, |(stage, _)| *stage),
        types,
        layouts: walk.layouts,
        functions: stages.functions,
        operands: stages.operands,
    };
    let push = PointwisePush {
        numel: u32_of(out.numel())?,
        parameters: stages.parameters,
        sizes: walk.sizes,
        strides: walk.strides,
    };
    // Unused bindings get any input.
    let first =
        inputs.first().ok_or_else(|| Error::invalid("internal error: a chain has no inputs"))?;
    let input = |index: usize| read(inputs.get(index).unwrap_or(first).id);
    let accesses = [
        input(0),
        input(1),
        input(2),
        input(3),
        input(4),
        write(out.id),
        // Declared as written even if it is unused.
        write(kept.map_or(out.id, |(_, kept)| kept.id)),
    ];
    e.dispatch_by_four(&pipeline, accesses, &push, out.numel())
}
