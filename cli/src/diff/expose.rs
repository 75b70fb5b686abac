//! Rewrites a program so that it returns all intermediate values of its graph.

use crate::failure::Failure;
use std::collections::BTreeMap;
use torchlet::Module;
use torchlet::core::{Kernel, Registry, Scalar, ScalarType};
use torchlet::graph::method::{
    Instruction, Method, MethodTensor, MethodValue, Program, TensorData,
};
use torchlet::graph::operators::Operator;
use torchlet::graph::{self, cpu};
use torchlet::portable::KERNELS;

/// A program whose method returns, after its own outputs, a copy of every intermediate value.
pub(crate) struct Exposed {
    pub(crate) bytes: Vec<u8>,
    /// Number of the method's own outputs.
    pub(crate) outputs: usize,
    /// Origins of the additional outputs, in order.
    pub(crate) values: Vec<Origin>,
    /// Quantization steps of the method's own outputs.
    pub(crate) output_steps: Vec<Option<Step>>,
    /// Whether instruction indices are those of the file.
    pub(crate) is_as_exported: bool,
}

/// The call that computed a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) instruction: usize,
    pub(crate) operator: String,
    /// Index among the results of the call.
    pub(crate) result: usize,
    /// Instructions that computed the operands.
    pub(crate) made_of: Vec<usize>,
    /// Quantization step of the elements: 1 for quantized values, the scale for dequantized values.
    pub(crate) step: Option<Step>,
    /// Step of the next quantization downstream, across any operators between.
    pub(crate) next_step: Option<Step>,
}

/// A quantization step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Step(pub(crate) f64);

// Steps are finite: other scales are skipped.
impl Eq for Step {}

/// Parts of the names of operators whose second argument is the scale.
const QUANTIZE: &str = "::quantize_per_tensor";
const DEQUANTIZE: &str = "::dequantize_per_tensor";
/// Parts of the names of operators with quantized results.
const QUANTIZES: [&str; 2] = ["::quantize_", "::quantized_"];

/// Compile spec of Vulkan delegates that compute in fp16.
const FORCE_FP16: &str = "force_fp16";

/// The operator that copies a value before its memory is reused. Its arguments are the value, the
/// memory format, and the output twice, as exporters encode results.
const COPY: (&str, &str) = ("aten::clone", "out");

impl Exposed {
    /// Exposes the values of a method. Delegates for GPUs and XNNPACK are decomposed into single
    /// calls.
    pub(crate) fn of(module: &Module, method: &str) -> Result<Self, Failure> {
        let (mut program, is_as_exported) = decomposed(module, method)?;
        let found = only(&mut program, method)?;
        let outputs = found.outputs.len();
        let (values, output_steps) = expose(found);
        if !is_as_exported {
            // Weights of delegates are constants now, and are embedded.
            program.embed(module.data()).map_err(fail)?;
        }
        let bytes = program.write().map_err(fail)?.to_bytes();
        Ok(Exposed { bytes, outputs, values, output_steps, is_as_exported })
    }
}

/// How exactly the outputs of a method are computed.
pub(crate) struct Precision {
    /// The floating-point type with the fewest bits among the values that an output depends on,
    /// weights included.
    pub(crate) coarsest: Vec<Option<ScalarType>>,
    /// Quantization steps of the outputs.
    pub(crate) output_steps: Vec<Option<Step>>,
}

/// Floating-point types by the bits of their mantissas.
const FLOATS: [ScalarType; 4] =
    [ScalarType::BFloat16, ScalarType::Half, ScalarType::Float, ScalarType::Double];

impl Precision {
    /// Finds the precision of a method, within its delegates, too.
    pub(crate) fn of(module: &Module, method: &str) -> Result<Self, Failure> {
        let (mut program, _) = decomposed(module, method)?;
        let narrowed = is_fp16_forced(module, method).then_some(ScalarType::Half);
        let found = only(&mut program, method)?;
        let coarsest = coarsest(found, narrowed);
        let (_, output_steps) = expose(found);
        Ok(Precision { coarsest, output_steps })
    }
}

/// The coarsest type that each output depends on. All of them depend on `narrowed`.
fn coarsest(method: &Method<'_>, narrowed: Option<ScalarType>) -> Vec<Option<ScalarType>> {
    let rank = |scalar_type| FLOATS.iter().position(|known| *known == scalar_type);
    let own = |value: usize| method.tensor(value).and_then(|it| rank(it.info.scalar_type));
    let mut ranks: BTreeMap<usize, usize> = BTreeMap::new();
    let of = |ranks: &BTreeMap<usize, usize>, value: usize| {
        [own(value), ranks.get(&value).copied()].into_iter().flatten().min()
    };
    for instruction in &method.instructions {
        let Instruction::Kernel { name, overload, args } = instruction else { continue };
        let params = kernel(&full_name(name, overload)).map_or(&[][..], |kernel| kernel.params);
        let (outs, ins): (Vec<_>, Vec<_>) =
            params.iter().zip(args).partition(|(param, _)| param.is_out());
        let read = ins.iter().flat_map(|(_, arg)| with_items(method, **arg));
        let Some(least) = read.filter_map(|value| of(&ranks, value)).min() else { continue };
        for value in outs.iter().flat_map(|(_, arg)| with_items(method, **arg)) {
            let known = ranks.entry(value).or_insert(least);
            *known = least.min(*known);
        }
    }
    let outputs = method.outputs.iter().map(|value| of(&ranks, *value));
    let least = |found: Option<usize>| found.into_iter().chain(narrowed.and_then(rank)).min();
    outputs.map(|found| least(found).and_then(|at| FLOATS.get(at).copied())).collect()
}

/// Whether one of a method's delegates was exported to compute in fp16. The decomposed program
/// computes in fp32.
fn is_fp16_forced(module: &Module, method: &str) -> bool {
    let source = module.program();
    let Ok(exported) = Program::read(&source) else { return false };
    let delegates = exported.methods.iter().filter(|it| it.name == method);
    delegates
        .flat_map(|method| &method.delegates)
        .flat_map(|delegate| &delegate.specs)
        .any(|(key, value)| key == FORCE_FP16 && value.first() == Some(&1))
}

fn fail(error: graph::Error) -> Failure {
    Failure::new(format!(
        "cannot expose the program's values, which requires CPU kernels for all calls: {error}"
    ))
}

/// The remaining method of a decomposed program.
fn only<'m, 'p>(program: &'m mut Program<'p>, method: &str) -> Result<&'m mut Method<'p>, Failure> {
    let found = program.methods.first_mut();
    found.ok_or_else(|| Failure::new(format!("the program has no method '{method}'")))
}

/// The program, reduced to one method, with delegates for GPUs and XNNPACK decomposed into single
/// calls; and whether it has no delegates.
fn decomposed<'m>(module: &'m Module, method: &str) -> Result<(Program<'m>, bool), Failure> {
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
    Ok((program, is_as_exported))
}

fn kernel(name: &str) -> Option<&'static Kernel> {
    KERNELS.iter().find(|kernel| kernel.name == name)
}

/// Appends copies of all results of kernel calls to the outputs. The memory plan is unchanged,
/// because views and reused memory depend on it. Returns the origins of the copies and the
/// quantization steps of the original outputs.
fn expose(method: &mut Method<'_>) -> (Vec<Origin>, Vec<Option<Step>>) {
    let next_steps = next_steps(method);
    let outputs = method.outputs.clone();
    let mut steps: BTreeMap<usize, Step> = BTreeMap::new();
    let instructions = std::mem::take(&mut method.instructions);
    let nothing = method.add(MethodValue::None);
    let mut origins = Vec::new();
    // The last writer of each value, and the new index of each instruction.
    let mut writers: BTreeMap<usize, usize> = BTreeMap::new();
    let mut moved = Vec::with_capacity(instructions.len() + 1);
    for (index, instruction) in instructions.into_iter().enumerate() {
        moved.push(method.instructions.len());
        let Instruction::Kernel { name, overload, args } = &instruction else {
            method.instructions.push(instruction);
            continue;
        };
        let operator = full_name(name, overload);
        // Arguments beyond the schema repeat the results.
        let params = kernel(&operator).map_or(&[][..], |kernel| kernel.params);
        let (mut read, mut written) = (Vec::new(), Vec::new());
        for (param, arg) in params.iter().zip(args) {
            let list = if param.is_out() { &mut written } else { &mut read };
            list.extend(with_items(method, *arg));
        }
        let step = match &operator {
            name if name.contains(DEQUANTIZE) => scale(method, args),
            name if QUANTIZES.iter().any(|part| name.contains(part)) => Some(Step(1.0)),
            name if only_moves(name) => {
                // All tensors that are moved must have a step.
                let moved = read
                    .iter()
                    .filter(|value| method.tensor(**value).is_some_and(|it| it.info.numel() > 1));
                let of_operands: Option<Vec<Step>> =
                    moved.map(|value| steps.get(value).copied()).collect();
                let of_operands = of_operands.unwrap_or_default().into_iter();
                of_operands.reduce(|a, b| if a.0 > b.0 { a } else { b })
            }
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

/// Whether an operator's results are elements of its operands.
fn only_moves(operator: &str) -> bool {
    Operator::of_instruction(operator)
        .map(Operator::traits)
        .is_some_and(|traits| traits.is_view || traits.moves_elements)
}

/// The scale of a quantize or dequantize call, if it is a constant.
fn scale(method: &Method<'_>, args: &[usize]) -> Option<Step> {
    match method.values.get(*args.get(1)?)? {
        MethodValue::Scalar(Scalar::Double(scale)) if scale.is_finite() => Some(Step(scale.abs())),
        _ => None,
    }
}

/// For each value that is quantized downstream, the step of the next quantization.
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
        let step = if operator.contains(QUANTIZE) {
            scale(method, args)
        } else if operator.contains(DEQUANTIZE) {
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

/// Adds an unplanned tensor for a copy; `None` if the tensor is empty.
fn copy_of(method: &mut Method<'_>, value: usize) -> Option<usize> {
    let tensor = method.tensor(value)?;
    if tensor.info.numel() == 0 {
        return None;
    }
    let (info, dynamism) = (tensor.info.clone(), tensor.dynamism);
    let (location, data, name) = (None, TensorData::None, None);
    Some(method.add(MethodValue::Tensor(MethodTensor { info, dynamism, location, data, name })))
}

/// A value, and its items if it is a list.
fn with_items(method: &Method<'_>, value: usize) -> Vec<usize> {
    let items = method.values.get(value).into_iter().flat_map(MethodValue::items);
    std::iter::once(value).chain(items).collect()
}

fn full_name(name: &str, overload: &str) -> String {
    if overload.is_empty() { name.to_owned() } else { format!("{name}.{overload}") }
}
