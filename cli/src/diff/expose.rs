//! A program that returns all values of its graph.

use crate::failure::Failure;
use std::collections::BTreeMap;
use torchlet::Module;
use torchlet::core::{Kernel, Registry};
use torchlet::graph::method::{Instruction, Method, MethodValue, Program, TensorData};
use torchlet::graph::{self, cpu};
use torchlet::portable::KERNELS;

/// A program whose method returns, behind its own outputs, all that its calls make.
pub(super) struct Exposed {
    pub(super) bytes: Vec<u8>,
    /// How many outputs it had before.
    pub(super) outputs: usize,
    /// What the others are, in their order.
    pub(super) values: Vec<Origin>,
    /// Whether instructions have the numbers that they have in the file.
    pub(super) is_as_exported: bool,
}

/// What made a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) instruction: usize,
    pub(super) operator: String,
    /// Which of the results of the call.
    pub(super) result: usize,
    /// The calls that made what it was made of.
    pub(super) made_of: Vec<usize>,
}

/// Views cost nothing, but what they show has no place of its own.
const VIEW: (&str, &str) = ("executorch_prims::et_view", "default");
const COPY: (&str, &str) = ("aten::view_copy", "out");

impl Exposed {
    /// Makes one of a method. What delegates for GPUs and for XNNPACK compute are calls like others.
    pub(super) fn of(module: &Module, method: &str) -> Result<Self, Failure> {
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
        let values = expose(found);
        if !is_as_exported {
            // Delegates have left their data.
            program.embed(module.data()).map_err(fail)?;
        }
        let bytes = program.write().map_err(fail)?.to_bytes();
        Ok(Exposed { bytes, outputs, values, is_as_exported })
    }
}

fn kernel(name: &str) -> Option<&'static Kernel> {
    KERNELS.iter().find(|kernel| kernel.name == name)
}

/// Makes outputs of all that calls of kernels make, and gives them memory of their own.
fn expose(method: &mut Method<'_>) -> Vec<Origin> {
    for instruction in &mut method.instructions {
        if let Instruction::Kernel { name, overload, .. } = instruction
            && (name.as_str(), overload.as_str()) == VIEW
        {
            (*name, *overload) = (COPY.0.to_owned(), COPY.1.to_owned());
        }
    }
    // The calls that write each value, and the place of the value among its results.
    let mut writers: BTreeMap<usize, Vec<(usize, usize)>> = BTreeMap::new();
    let mut readers: Vec<Vec<usize>> = Vec::new();
    for (index, instruction) in method.instructions.iter().enumerate() {
        let mut read = Vec::new();
        match instruction {
            Instruction::Kernel { name, overload, args } => {
                let known = kernel(&full_name(name, overload));
                let mut result = 0;
                for (place, arg) in args.iter().enumerate() {
                    let param = known.and_then(|kernel| kernel.params.get(place));
                    for value in with_items(method, *arg) {
                        if param.is_some_and(|param| param.is_out()) {
                            writers.entry(value).or_default().push((index, result));
                            result += 1;
                        } else {
                            read.push(value);
                        }
                    }
                }
            }
            // What else writes a value is not known to leave it alone.
            other => {
                for value in touched(other).into_iter().flat_map(|value| with_items(method, value))
                {
                    writers.entry(value).or_default().extend([(index, 0), (index, 0)]);
                }
            }
        }
        readers.push(read);
    }
    let mut found: Vec<(usize, usize, usize)> = Vec::new();
    for (value, writers) in &writers {
        let [(instruction, result)] = writers[..] else { continue };
        let Some(MethodValue::Tensor(tensor)) = method.values.get_mut(*value) else { continue };
        let is_own = matches!(tensor.data, TensorData::None) && tensor.name.is_none();
        if is_own && !method.inputs.contains(value) && !method.outputs.contains(value) {
            tensor.place = None;
            found.push((instruction, result, *value));
        }
    }
    found.sort_unstable();
    method.outputs.extend(found.iter().map(|(.., value)| *value));
    let origins = found.iter().map(|(instruction, result, _)| {
        let operator = match method.instructions.get(*instruction) {
            Some(Instruction::Kernel { name, overload, .. }) => full_name(name, overload),
            _ => String::new(),
        };
        let read = readers.get(*instruction).into_iter().flatten();
        let made_of = read.filter_map(|value| writers.get(value)?.first());
        let mut made_of: Vec<usize> = made_of.map(|(writer, _)| *writer).collect();
        made_of.dedup();
        Origin { instruction: *instruction, operator, result: *result, made_of }
    });
    origins.collect()
}

/// A value, and those that it is a list of.
fn with_items(method: &Method<'_>, value: usize) -> Vec<usize> {
    let items = method.values.get(value).into_iter().flat_map(MethodValue::items);
    std::iter::once(value).chain(items).collect()
}

/// The values of an instruction that calls no kernel.
fn touched(instruction: &Instruction) -> Vec<usize> {
    match instruction {
        Instruction::Delegate { args, .. } => args.clone(),
        Instruction::Move { from, to } => vec![*from, *to],
        Instruction::JumpFalse { condition, .. } => vec![*condition],
        _ => Vec::new(),
    }
}

fn full_name(name: &str, overload: &str) -> String {
    if overload.is_empty() { name.to_owned() } else { format!("{name}.{overload}") }
}
