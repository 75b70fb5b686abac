//! Checks that the values of a method can be moved to other memory.
//!
//! A file may let values share memory, for views without instructions or for state. Values can only
//! be moved if each one is written once, and every read sees that write.

use crate::names::escaped;
use torchlet_graph::method::{Instruction, Method, MethodTensor, MethodValue, TensorData};

/// State of the check.
struct Flow<'m, 'p> {
    method: &'m Method<'p>,
    /// Whether each value was written.
    is_written: Vec<bool>,
    /// Values in planned memory that are intact.
    intact: Vec<usize>,
}

/// Checks a method; returns the reason why its values cannot be moved.
pub(super) fn check(method: &Method<'_>) -> Result<(), String> {
    let is_written = vec![false; method.values.len()];
    let mut flow = Flow { method, is_written, intact: Vec::new() };
    for &input in &method.inputs {
        flow.write(input).map_err(|reason| format!("an input {reason}"))?;
    }
    for (index, instruction) in method.instructions.iter().enumerate() {
        let Instruction::Kernel { name, args, .. } = instruction else {
            let what = match instruction {
                Instruction::Delegate { .. } => "calls a delegate",
                Instruction::Move { .. } | Instruction::JumpFalse { .. } => {
                    "is dynamic control flow"
                }
                _ => continue,
            };
            return Err(format!("instruction {index} {what}"));
        };
        let fail = |reason| format!("instruction {index} ({}) {reason}", escaped(name));
        // The last argument is the output, or a list of outputs.
        let outs: Vec<usize> = match args.last() {
            Some(&last) => method.values.get(last).map_or_else(Vec::new, |value| match value {
                MethodValue::Tensors(items) => items.clone(),
                _ => vec![last],
            }),
            None => Vec::new(),
        };
        let inputs = args.split_last().map_or(&[][..], |(_, inputs)| inputs);
        for &arg in inputs.iter().filter(|arg| !outs.contains(arg)) {
            for value in items(method, arg) {
                flow.read(value).map_err(fail)?;
            }
        }
        for &out in &outs {
            flow.write(out).map_err(fail)?;
        }
    }
    method
        .outputs
        .iter()
        .try_for_each(|&output| flow.read(output).map_err(|reason| format!("an output {reason}")))
}

/// A value, or the items of a list of tensors.
fn items(method: &Method<'_>, value: usize) -> Vec<usize> {
    match method.values.get(value) {
        Some(MethodValue::Tensors(items)) => items.clone(),
        Some(MethodValue::OptionalTensors(items)) => items.iter().flatten().copied().collect(),
        _ => vec![value],
    }
}

/// Whether the memory of two tensors overlaps.
fn overlap(a: &MethodTensor<'_>, b: &MethodTensor<'_>) -> bool {
    let (Some((a_buffer, a_at)), Some((b_buffer, b_at))) = (a.location, b.location) else {
        return false;
    };
    let end = |at: usize, tensor: &MethodTensor<'_>| at.saturating_add(tensor.info.nbytes());
    a_buffer == b_buffer && a_at < end(b_at, b) && b_at < end(a_at, a)
}

impl Flow<'_, '_> {
    fn read(&self, value: usize) -> Result<(), String> {
        let Some(tensor) = self.method.tensor(value) else { return Ok(()) };
        if tensor.is_constant() || tensor.info.nbytes() == 0 {
            return Ok(());
        }
        if self.is_written.get(value) != Some(&true) {
            // Scratch tensors of operators are arguments, too. They have bytes, never read.
            let is_scratch = tensor.info.scalar_type == torchlet_core::ScalarType::Byte
                && matches!(tensor.data, TensorData::None);
            return match is_scratch {
                true => Ok(()),
                false => Err("reads a value before it is written, which is state".into()),
            };
        }
        if tensor.location.is_some() && !self.intact.contains(&value) {
            return Err("reads memory that another value has overwritten".into());
        }
        Ok(())
    }

    fn write(&mut self, value: usize) -> Result<(), String> {
        let Some(tensor) = self.method.tensor(value) else { return Ok(()) };
        if !matches!(tensor.data, TensorData::None) {
            return Err("writes state".into());
        }
        match self.is_written.get_mut(value) {
            Some(written) if !*written => *written = true,
            _ => return Err("writes a value again, which is state".into()),
        }
        let method = self.method;
        let other = |at: &usize| method.tensor(*at).is_none_or(|other| !overlap(other, tensor));
        self.intact.retain(other);
        if tensor.info.nbytes() > 0 {
            self.intact.push(value);
        }
        Ok(())
    }
}
