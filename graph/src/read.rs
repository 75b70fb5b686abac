//! Parses programs into an owned representation. All indices are validated here, once.

use crate::error::Error;
use crate::method::{
    Delegate, Instruction, Method, MethodTensor, MethodValue, Program, TensorData,
};
use alloc::borrow::{Cow, ToOwned};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::{Blob, ExportedData, ExportedInstruction, ExportedValue, MethodMeta};

impl<'p> Program<'p> {
    /// Parses a program. Data is borrowed if its storage supports that, and copied otherwise.
    ///
    /// # Errors
    /// The file is malformed.
    pub fn read(program: &torchlet_core::Program<'p>) -> Result<Self, Error> {
        let mut methods = Vec::new();
        for name in program.method_names()? {
            methods.push(Method::read(&program.method_meta(name?)?)?);
        }
        let mut named = Vec::new();
        for name in program.data_names()? {
            let name = name?;
            if let Some(blob) = program.named_data(name)? {
                named.push((name.to_owned(), bytes(&blob)?));
            }
        }
        Ok(Program { methods, named })
    }
}

impl<'p> Method<'p> {
    /// Parses a method.
    ///
    /// # Errors
    /// The file is malformed.
    pub fn read(meta: &MethodMeta<'p>) -> Result<Self, Error> {
        let count = meta.value_count();
        let mut values = Vec::new();
        // Budget for list items. Every use of a list as an argument costs the length of the list.
        // Without a limit, a small file in which many calls share a long list could require a huge
        // amount of work.
        let mut left = meta.program().flatbuffer_size();
        for value in meta.exported_values()? {
            let value = value?;
            charge(&mut left, list_len(&value))?;
            values.push(read_value(value, count)?);
        }
        let is_list = |item: usize| values.get(item).is_some_and(MethodValue::is_list);
        if values.iter().flat_map(MethodValue::items).any(is_list) {
            return Err(Error::invalid("a value is a list of lists"));
        }
        let (inputs, outputs) = meta.exported_interface()?;
        let mut planned = Vec::new();
        for buffer in 0..meta.planned_buffer_count() {
            planned.push(meta.planned_buffer_size(buffer)?);
        }
        let mut delegates = Vec::new();
        for index in 0..meta.delegate_count() {
            let info = meta.delegate(index, &[])?;
            let mut specs = Vec::new();
            for spec in info.compile_specs() {
                let (key, value) = spec?;
                specs.push((key.to_owned(), value.to_vec()));
            }
            let processed = bytes(&info.processed())?;
            delegates.push(Delegate { backend: info.backend().to_owned(), processed, specs });
        }
        let mut operators = Vec::new();
        for operator in meta.operators() {
            let operator = operator?;
            operators.push((operator.name().to_owned(), operator.overload().to_owned()));
        }
        let total = meta.instruction_count();
        let mut instructions = Vec::new();
        for instruction in meta.exported_instructions()? {
            let (start, instruction) = instruction?;
            let instruction = match instruction {
                ExportedInstruction::Kernel { operator, args } => {
                    let operator = usize::try_from(operator).ok();
                    let found = operator.and_then(|operator| operators.get(operator));
                    let (name, overload) = found.cloned().ok_or_else(|| {
                        let count = operators.len();
                        Error::Invalid(format!(
                            "instruction {start}: expected an operator index below {count}"
                        ))
                    })?;
                    Instruction::Kernel { name, overload, args: indices(args.iter(), count)? }
                }
                ExportedInstruction::Delegate { delegate, args } => Instruction::Delegate {
                    delegate: index(delegate.into(), delegates.len())?,
                    args: indices(args.iter(), count)?,
                },
                ExportedInstruction::Move { from, to } => Instruction::Move {
                    from: index(from.into(), count)?,
                    to: index(to.into(), count)?,
                },
                ExportedInstruction::JumpFalse { condition, destination } => {
                    let destination = i64::from(destination).saturating_add(start as i64);
                    Instruction::JumpFalse {
                        condition: index(condition.into(), count)?,
                        destination: index(destination, total.saturating_add(1))?,
                    }
                }
                ExportedInstruction::Free { value } => {
                    Instruction::Free { value: index(value.into(), count)? }
                }
                _ => {
                    return Err(Error::Invalid(format!("instruction {start} has an unknown type")));
                }
            };
            if let Instruction::Kernel { args, .. } | Instruction::Delegate { args, .. } =
                &instruction
            {
                let lists = args.iter().filter_map(|arg| values.get(*arg));
                lists.map(MethodValue::len).try_for_each(|len| charge(&mut left, len))?;
            }
            instructions.push(instruction);
        }
        Ok(Method {
            name: meta.name().to_owned(),
            values,
            inputs: indices(inputs.iter(), count)?,
            outputs: indices(outputs.iter(), count)?,
            instructions,
            delegates,
            planned,
        })
    }
}

/// Charges work to a budget.
fn charge(left: &mut usize, work: usize) -> Result<(), Error> {
    let shared =
        || Error::invalid("the list arguments of all instructions exceed the size of the file");
    *left = left.checked_sub(work).ok_or_else(shared)?;
    Ok(())
}

/// Returns the length of a list, or of a string in bytes; 1 for other values.
fn list_len(value: &ExportedValue<'_>) -> usize {
    match value {
        ExportedValue::Ints(items) => items.len(),
        ExportedValue::Doubles(items) => items.len(),
        ExportedValue::Bools(items) => items.len(),
        ExportedValue::Tensors(items) | ExportedValue::OptionalTensors(items) => items.len(),
        ExportedValue::String(text) => text.len(),
        _ => 1,
    }
}

/// Returns the bytes of a blob, borrowed if possible.
pub(crate) fn bytes<'p>(blob: &Blob<'p>) -> Result<Cow<'p, [u8]>, Error> {
    if let Some(lent) = blob.lend() {
        return Ok(Cow::Borrowed(lent));
    }
    let mut copy = vec![0; blob.size()];
    blob.read(0, &mut copy)?;
    Ok(Cow::Owned(copy))
}

fn index(number: i64, count: usize) -> Result<usize, Error> {
    usize::try_from(number).ok().filter(|index| *index < count).ok_or_else(|| {
        Error::Invalid(format!("index {number} is out of range, expected less than {count}"))
    })
}

fn indices<N: Into<i64>, E: Into<Error>>(
    numbers: impl Iterator<Item = Result<N, E>>,
    count: usize,
) -> Result<Vec<usize>, Error> {
    numbers.map(|number| index(number.map_err(Into::into)?.into(), count)).collect()
}

fn read_value<'p>(value: ExportedValue<'p>, count: usize) -> Result<MethodValue<'p>, Error> {
    Ok(match value {
        ExportedValue::None => MethodValue::None,
        ExportedValue::Scalar(scalar) => MethodValue::Scalar(scalar),
        ExportedValue::String(text) => MethodValue::String(text.to_string()),
        ExportedValue::Ints(items) => MethodValue::Ints(indices(items.iter(), count)?),
        ExportedValue::Doubles(items) => {
            let items = items.iter().map(|item| Ok(item?));
            MethodValue::Doubles(items.collect::<Result<_, Error>>()?)
        }
        ExportedValue::Bools(items) => {
            MethodValue::Bools(items.iter().map(|item| *item != 0).collect())
        }
        ExportedValue::Tensors(items) => MethodValue::Tensors(indices(items.iter(), count)?),
        ExportedValue::OptionalTensors(items) => {
            let items = items.iter().map(|item| match item? {
                -1 => Ok(None),
                item => index(item.into(), count).map(Some),
            });
            MethodValue::OptionalTensors(items.collect::<Result<_, Error>>()?)
        }
        ExportedValue::Tensor(tensor) => MethodValue::Tensor(MethodTensor {
            data: match tensor.data {
                ExportedData::Inside(blob) => TensorData::Inside(bytes(&blob)?),
                ExportedData::Outside => TensorData::Outside,
                _ => TensorData::None,
            },
            info: tensor.info,
            dynamism: tensor.dynamism,
            location: tensor.location,
            name: tensor.name.map(String::from),
        }),
        _ => return Err(Error::invalid("a value has an unknown type")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_not_nested() {
        let values = vec![MethodValue::Tensors(vec![0])];
        let method = Method { name: "forward".to_owned(), values, ..Method::default() };
        let file = Program { methods: vec![method], named: Vec::new() }.write().unwrap().to_bytes();
        let program = torchlet_core::Program::from_bytes(&file).unwrap();
        assert!(Program::read(&program).unwrap_err().to_string().contains("list of lists"));
    }
}
