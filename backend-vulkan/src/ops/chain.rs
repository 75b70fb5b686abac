//! Chains of element-wise operators: one dispatch that keeps what is between them in registers.
//!
//! [`fits`] says which calls can be one chain, for the pass that makes them ([`crate::passes`]).

use super::elementwise::{broadcast_sizes, broadcast_strides, stage_of};
use super::views::merge_dims;
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

/// The tensors that a chain reads at most.
pub(crate) const MAX_INPUTS: usize = 4;
/// The operators of a chain at most.
pub(crate) const MAX_STAGES: usize = 6;
/// The dimensions that inputs are walked along, at most.
const DIMS: usize = 3;

/// No stage at all, for the shader.
const NO_STAGE: u32 = u32::MAX;

/// How the inputs of a chain lie over its output.
struct Walk {
    layouts: [u32; MAX_INPUTS],
    sizes: [u32; DIMS],
    strides: [i32; MAX_INPUTS * DIMS],
}

/// How inputs of these shapes lie over an output of shape `sizes`. `None` if that takes too many dimensions, or if a file
/// claims an output of fewer than its inputs.
fn walk(inputs: &[Operand], sizes: &[usize]) -> Result<Option<Walk>, Error> {
    if inputs.iter().any(|input| input.rank() > sizes.len()) {
        return Ok(None);
    }
    let mut walk =
        Walk { layouts: [UNUSED; MAX_INPUTS], sizes: [1; DIMS], strides: [0; MAX_INPUTS * DIMS] };
    let mut strided = Vec::new();
    for (slot, input) in walk.layouts.iter_mut().zip(inputs) {
        *slot = if input.sizes == sizes {
            ALIKE
        } else if input.numel() == 1 {
            ONE_ELEMENT
        } else {
            STRIDED
        };
    }
    for (index, input) in inputs.iter().enumerate() {
        if walk.layouts.get(index) == Some(&STRIDED) {
            strided.push((index, broadcast_strides(input, sizes.len())));
        }
    }
    let steps: Vec<Vec<i64>> = strided.iter().map(|(_, strides)| strides.clone()).collect();
    if steps.is_empty() {
        return Ok(Some(walk));
    }
    let dims = merge_dims(sizes, &steps)?;
    if dims.len() > DIMS {
        return Ok(None);
    }
    for (dim, (size, steps)) in (0..DIMS).rev().zip(dims.iter().rev()) {
        walk.sizes[dim] = u32_of(*size)?;
        for ((index, _), step) in strided.iter().zip(steps) {
            if let Some(slot) = walk.strides.get_mut(index * DIMS + dim) {
                *slot = i32::try_from(*step)
                    .map_err(|_| Error::unsupported("a stride beyond 2^31 elements"))?;
            }
        }
    }
    Ok(Some(walk))
}

/// Whether a chain can read tensors of these shapes to write one of shape `sizes`.
pub(crate) fn fits(inputs: &[Operand], sizes: &[usize]) -> bool {
    inputs.len() <= MAX_INPUTS && matches!(walk(inputs, sizes), Ok(Some(_)))
}

/// The stages of a chain, as the shader has them.
struct Stages {
    functions: [u32; MAX_STAGES],
    operands: [u32; MAX_STAGES],
    parameters: [f32; 2 * MAX_STAGES],
}

/// Translates the calls; `registers` says where the inputs are.
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
            registers.get(id).copied().ok_or_else(|| Error::invalid("a chain lacks an input"))
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
        let too_long = || Error::invalid("a chain is too long");
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
    let (out, ids) = args.split_last().ok_or_else(|| Error::invalid("a chain has no output"))?;
    let inputs: Vec<Operand> = ids.iter().map(|id| e.tensor(*id)).collect::<Result<_, _>>()?;
    // All shapes broadcast, whatever the order of the stages.
    let mut sizes: Vec<usize> = Vec::new();
    for input in &inputs {
        sizes = broadcast_sizes(&sizes, &input.sizes)?;
    }
    let out = e.resize(*out, &sizes)?;
    numel_of(&sizes)?;
    let walk = walk(&inputs, &sizes)?;
    let walk = walk.ok_or_else(|| Error::unsupported("a chain over too many dimensions"))?;
    let registers = ids.iter().copied().zip(0..).collect();
    let stages = stages(e, e.parts(), registers)?;
    let mut types = [Element::F32; MAX_INPUTS];
    types.iter_mut().zip(&inputs).for_each(|(slot, input)| *slot = input.element);
    let pipeline = Pointwise {
        output: out.element,
        types,
        layouts: walk.layouts,
        functions: stages.functions,
        operands: stages.operands,
    };
    let push = PointwisePush {
        numel: u32_of(out.numel())?,
        parameters: stages.parameters,
        sizes: walk.sizes,
        base: [0; MAX_INPUTS],
        strides: walk.strides,
    };
    // Bindings that are not used hold any input.
    let input = |index: usize| inputs.get(index).or(inputs.first()).map(|input| read(input.id));
    let [Some(a), Some(b), Some(c), Some(d)] = [input(0), input(1), input(2), input(3)] else {
        return Err(Error::invalid("a chain has no inputs"));
    };
    e.dispatch_by_four(&pipeline, [a, b, c, d, write(out.id)], &push, out.numel())
}
