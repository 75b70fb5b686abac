//! A program that returns all values of its graph.

use crate::failure::Failure;
use std::collections::BTreeMap;
use torchlet::Module;
use torchlet::core::{Kernel, Registry, Scalar};
use torchlet::graph::method::{
    Instruction, Method, MethodTensor, MethodValue, Program, TensorData,
};
use torchlet::graph::{self, cpu};
use torchlet::portable::KERNELS;

/// A program whose method returns, behind its own outputs, all that its calls make.
pub(crate) struct Exposed {
    pub(crate) bytes: Vec<u8>,
    /// How many outputs it had before.
    pub(crate) outputs: usize,
    /// What the others are, in their order.
    pub(crate) values: Vec<Origin>,
    /// The quantization steps of the outputs that it had before.
    pub(crate) output_steps: Vec<Option<Step>>,
    /// Whether instructions have the numbers that they have in the file.
    pub(crate) is_as_exported: bool,
}

/// What made a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) instruction: usize,
    pub(crate) operator: String,
    /// Which of the results of the call.
    pub(crate) result: usize,
    /// The calls that made what it was made of.
    pub(crate) made_of: Vec<usize>,
    /// The quantization step of its elements: 1 for quantized values, the scale for values that
    /// were dequantized.
    pub(crate) step: Option<Step>,
    /// The step of what it is quantized to next, by whatever lies between.
    pub(crate) next_step: Option<Step>,
}

/// A quantization step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Step(pub(crate) f64);

// Scales are finite: those that are not are left out.
impl Eq for Step {}

/// Operators whose second argument is the scale of what they quantize to, or dequantize from.
const QUANTIZE: &str = "quantized_decomposed::quantize_per_tensor";
const DEQUANTIZE: &str = "quantized_decomposed::dequantize_per_tensor";
/// All operators that quantize.
const QUANTIZES: &str = "quantized_decomposed::quantize_";

/// What keeps a value before its memory is used for another. (Its arguments are the value, how
/// memory is laid out, and twice the copy, as exporters write results.)
const COPY: (&str, &str) = ("aten::clone", "out");

impl Exposed {
    /// Makes one of a method. What delegates for GPUs and for XNNPACK compute are calls like
    /// others.
    pub(crate) fn of(module: &Module, method: &str) -> Result<Self, Failure> {
        let fail = |error: graph::Error| {
            Failure::new(format!("the values of the program cannot be told apart: {error}"))
        };
        let registry = Registry::new().with_kernels(&KERNELS);
        let registry = registry.map_err(|error| Failure::new(error.to_string()))?;
        let source = module.program();
        let exported = Program::read(&source).map_err(fail)?;
        let is_as_exported = exported.methods.iter().all(|method| method.delegates.is_empty());
        let mut program = match is_as_exported {
            true => exported,
            false => cpu::to_portable(&source, module.data(), &registry).map_err(fail)?,
        };
        program.methods.retain(|found| found.name == method);
        let Some(found) = program.methods.first_mut() else {
            return Err(Failure::new(format!("there is no method '{method}'")));
        };
        let outputs = found.outputs.len();
        let (values, output_steps) = expose(found);
        if !is_as_exported {
            // Delegates have left their data.
            program.embed(module.data()).map_err(fail)?;
        }
        let bytes = program.write().map_err(fail)?.to_bytes();
        Ok(Exposed { bytes, outputs, values, output_steps, is_as_exported })
    }
}

fn kernel(name: &str) -> Option<&'static Kernel> {
    KERNELS.iter().find(|kernel| kernel.name == name)
}

/// Makes outputs of copies of all that calls of kernels make. The memory plan stays as it is:
/// others may lie where values did, or see them there. Gives what made them, and the quantization
/// steps of the outputs that there were before.
fn expose(method: &mut Method<'_>) -> (Vec<Origin>, Vec<Option<Step>>) {
    let next_steps = next_steps(method);
    let outputs = method.outputs.clone();
    let mut steps: BTreeMap<usize, Step> = BTreeMap::new();
    let instructions = std::mem::take(&mut method.instructions);
    let nothing = method.add(MethodValue::None);
    let mut origins = Vec::new();
    // The call that wrote each value last, and where each instruction is now.
    let mut writers: BTreeMap<usize, usize> = BTreeMap::new();
    let mut moved = Vec::with_capacity(instructions.len() + 1);
    for (index, instruction) in instructions.into_iter().enumerate() {
        moved.push(method.instructions.len());
        let Instruction::Kernel { name, overload, args } = &instruction else {
            method.instructions.push(instruction);
            continue;
        };
        let operator = full_name(name, overload);
        // What a file says behind the arguments of the schema are results once more.
        let params = kernel(&operator).map_or(&[][..], |kernel| kernel.params);
        let (mut read, mut written) = (Vec::new(), Vec::new());
        for (param, arg) in params.iter().zip(args) {
            let list = if param.is_out() { &mut written } else { &mut read };
            list.extend(with_items(method, *arg));
        }
        let step = match &operator {
            name if name.starts_with(QUANTIZES) => Some(Step(1.0)),
            name if name.starts_with(DEQUANTIZE) => scale(method, args),
            _ => None,
        };
        method.instructions.push(instruction);
        let mut made_of: Vec<usize> =
            read.iter().filter_map(|value| writers.get(value).copied()).collect();
        made_of.sort_unstable();
        made_of.dedup();
        let results = written.iter().filter(|value| method.tensor(**value).is_some());
        for (result, value) in results.copied().collect::<Vec<_>>().into_iter().enumerate() {
            writers.insert(value, index);
            match step {
                Some(step) => steps.insert(value, step),
                None => steps.remove(&value),
            };
            let Some(copy) = copy_of(method, value) else { continue };
            let (name, overload) = (COPY.0.to_owned(), COPY.1.to_owned());
            let args = vec![value, nothing, copy, copy];
            method.instructions.push(Instruction::Kernel { name, overload, args });
            method.outputs.push(copy);
            let (operator, made_of) = (operator.clone(), made_of.clone());
            let next_step = next_steps.get(&value).copied();
            origins.push(Origin { instruction: index, operator, result, made_of, step, next_step });
        }
    }
    moved.push(method.instructions.len());
    for instruction in &mut method.instructions {
        if let Instruction::JumpFalse { destination, .. } = instruction {
            *destination = moved.get(*destination).copied().unwrap_or(usize::MAX);
        }
    }
    let output_steps = outputs.iter().map(|value| steps.get(value).copied()).collect();
    (origins, output_steps)
}

/// The scale of a call that quantizes, or dequantizes, if it is a number in the file.
fn scale(method: &Method<'_>, args: &[usize]) -> Option<Step> {
    match method.values.get(*args.get(1)?)? {
        MethodValue::Scalar(Scalar::Double(scale)) if scale.is_finite() => Some(Step(scale.abs())),
        _ => None,
    }
}

/// The step of what each value is quantized to next, by value, of those that are.
fn next_steps(method: &Method<'_>) -> BTreeMap<usize, Step> {
    let mut steps: BTreeMap<usize, Step> = BTreeMap::new();
    for instruction in method.instructions.iter().rev() {
        let Instruction::Kernel { name, overload, args } = instruction else { continue };
        let operator = full_name(name, overload);
        let params = kernel(&operator).map_or(&[][..], |kernel| kernel.params);
        let (outs, ins): (Vec<_>, Vec<_>) =
            params.iter().zip(args).partition(|(param, _)| param.is_out());
        let of = |list: &[(&_, &usize)]| -> Vec<usize> {
            list.iter().flat_map(|(_, arg)| with_items(method, **arg)).collect()
        };
        let step = if operator.starts_with(QUANTIZE) {
            scale(method, args)
        } else if operator.starts_with(DEQUANTIZE) {
            None
        } else {
            of(&outs).iter().find_map(|value| steps.get(value).copied())
        };
        let Some(step) = step else { continue };
        for value in of(&ins) {
            if method.tensor(value).is_some() {
                steps.entry(value).or_insert(step);
            }
        }
    }
    steps
}

/// A value for a copy of a tensor, in memory of the caller's; `None` if it has no elements.
fn copy_of(method: &mut Method<'_>, value: usize) -> Option<usize> {
    let tensor = method.tensor(value)?;
    if tensor.info.numel() == 0 {
        return None;
    }
    let (info, dynamism) = (tensor.info.clone(), tensor.dynamism);
    let (place, data, name) = (None, TensorData::None, None);
    Some(method.add(MethodValue::Tensor(MethodTensor { info, dynamism, place, data, name })))
}

/// A value, and those that it is a list of.
fn with_items(method: &Method<'_>, value: usize) -> Vec<usize> {
    let items = method.values.get(value).into_iter().flat_map(MethodValue::items);
    std::iter::once(value).chain(items).collect()
}

fn full_name(name: &str, overload: &str) -> String {
    if overload.is_empty() { name.to_owned() } else { format!("{name}.{overload}") }
}
