//! Removes the memory slots that the exporter assigned to tensors, so that the compiler can plan
//! memory again.

use crate::blocks::Blocks;
use crate::front::{Access, KernelSemantics, Vocabulary};
use crate::method::{Instruction, Method, MethodTensor, MethodValue, TensorData};
use crate::views::{Location, location_of};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;

/// Alignment of tensors, in bytes.
const ALIGN: usize = 16;

impl Method<'_> {
    /// Removes the slots of tensors whose contents need not survive a run. State keeps its slots,
    /// since other methods may access it there. If an instruction may read a tensor before any
    /// instruction writes it, that tensor keeps its slot as well.
    ///
    /// Inputs and outputs that had a slot get a separate one in the first buffer, after the tensors
    /// that stay there. Methods can share state in the other buffers: every method has the same
    /// tensors in them, and buffers of the same size.
    ///
    /// `inputs` maps a delegate to its number of input arguments, if known.
    pub(crate) fn forget_places(
        &mut self,
        vocabulary: &Vocabulary,
        inputs: &BTreeMap<usize, usize>,
    ) {
        let free = self.written_first(vocabulary, inputs);
        // An output that no instruction writes first may be state.
        let interface: BTreeSet<usize> = (self.inputs.iter())
            .chain(self.outputs.iter().filter(|value| free.contains(value)))
            .copied()
            .collect();
        let (mut left, mut homeless) = (BTreeSet::new(), BTreeSet::<usize>::new());
        for value in free.union(&interface) {
            if let Some(MethodValue::Tensor(tensor)) = self.values.get_mut(*value)
                && matches!(tensor.data, TensorData::None)
                && let Some((buffer, _)) = tensor.location.take()
            {
                left.insert(buffer);
                homeless.extend(interface.get(value));
            }
        }
        if self.only_writes_outputs(vocabulary) {
            self.forget_unused_places();
        }
        self.clear_planned(&left);
        // Tensors without elements have a slot, too.
        if !homeless.is_empty() && self.planned.is_empty() {
            self.planned.push(0);
        }
        let mut end = self.end_of_first();
        for value in homeless {
            if let Some(MethodValue::Tensor(tensor)) = self.values.get_mut(value) {
                tensor.location = Some((0, end));
                end = end.saturating_add(tensor.info.nbytes());
                end = end.checked_next_multiple_of(ALIGN).unwrap_or(usize::MAX);
            }
        }
    }

    /// Whether the method consists of kernels and delegates that write only their declared outputs,
    /// without moves, jumps and frees.
    fn only_writes_outputs(&self, vocabulary: &Vocabulary) -> bool {
        self.instructions.iter().all(|instruction| match instruction {
            Instruction::Kernel { name, overload, .. } => {
                matches!(vocabulary.access(name, overload), Access::Outputs(_))
            }
            Instruction::Delegate { .. } => true,
            _ => false,
        })
    }

    /// Removes the slots of unnamed tensors that no instruction uses, such as values that are now
    /// internal to delegates. Named state keeps its slots.
    fn forget_unused_places(&mut self) {
        let values = self.instructions.iter().flat_map(Instruction::values);
        let values = values.chain(self.inputs.iter().chain(&self.outputs).copied());
        let used: BTreeSet<usize> =
            values.flat_map(|value| self.with_items(value).collect::<Vec<_>>()).collect();
        for (value, kind) in self.values.iter_mut().enumerate() {
            if let MethodValue::Tensor(tensor) = kind
                && tensor.name.is_none()
                && !used.contains(&value)
            {
                tensor.location = None;
            }
        }
    }

    /// Removes the slots and names of state that moved into delegates. The first `planned` buffers
    /// remain, even if empty.
    pub(crate) fn forget_moved(&mut self, moved: &BTreeSet<usize>, planned: usize) {
        let mut left = BTreeSet::new();
        for value in moved {
            if let Some(MethodValue::Tensor(tensor)) = self.values.get_mut(*value) {
                left.extend(tensor.location.take().map(|(buffer, _)| buffer));
                (tensor.name, tensor.data) = (None, TensorData::None);
            }
        }
        self.clear_planned(&left);
        while self.planned.len() > planned && self.planned.last() == Some(&0) {
            self.planned.pop();
        }
    }

    /// Returns the tensors that instructions write before any instruction reads them, on every
    /// control-flow path, and the scratch tensors of kernels.
    pub(crate) fn written_first(
        &self,
        vocabulary: &Vocabulary,
        inputs: &BTreeMap<usize, usize>,
    ) -> BTreeSet<usize> {
        let mut blocks = Blocks::of(self);
        let activations = self.overlapping();
        // Tensors that each block writes, and tensors that it reads before it writes them.
        let (mut written, mut read) = (BTreeSet::new(), BTreeSet::new());
        let mut found = BTreeSet::new();
        for (at, instruction) in self.instructions.iter().enumerate() {
            // Other instructions may read an argument before they write it.
            let (outputs, scratch): (_, &[usize]) = match instruction {
                Instruction::Kernel { name, overload, .. } => {
                    let outputs = match vocabulary.access(name, overload) {
                        Access::Outputs(first) => Some(first),
                        Access::InPlace(_) | Access::Unknown => None,
                    };
                    (outputs, vocabulary.scratch(name, overload))
                }
                Instruction::Delegate { delegate, .. } => (inputs.get(delegate).copied(), &[]),
                // A move overwrites its whole target, the second value.
                Instruction::Move { .. } => (Some(1), &[]),
                Instruction::JumpFalse { .. } | Instruction::Free { .. } => (None, &[]),
            };
            let block = blocks.of_instruction(at);
            // State that this method only writes must stay where other methods read it.
            let copied = copied_to(instruction, vocabulary).filter(|it| activations.contains(it));
            for (location, arg) in instruction.values().enumerate() {
                for value in self.with_items(arg) {
                    if outputs.is_some_and(|first| location >= first) || copied == Some(value) {
                        found.insert(value);
                        written.insert((block, value));
                    } else if scratch.contains(&location) {
                        found.insert(value);
                    } else if !written.contains(&(block, value)) {
                        read.insert((block, value));
                    }
                }
            }
        }
        let end = blocks.end();
        let outputs = self.outputs.iter().flat_map(|value| self.with_items(*value));
        read.extend(outputs.filter(|value| found.contains(value)).map(|value| (end, value)));
        for (block, value) in read {
            // A search that exceeds its step limit proves nothing.
            let is_written = found.contains(&value)
                && blocks.search_back(block, false, |block| !written.contains(&(block, value)))
                    == Some(false);
            if !is_written {
                found.remove(&value);
            }
        }
        found
    }

    /// Returns the unnamed tensors whose memory overlaps that of a tensor of another size or dtype.
    /// Exporters reuse the memory of activations like that, never the memory of state. A view of
    /// state has the size and dtype of the state.
    fn overlapping(&self) -> BTreeSet<usize> {
        let mut locations: BTreeMap<Location, Vec<usize>> = BTreeMap::new();
        for (value, kind) in self.values.iter().enumerate() {
            if let MethodValue::Tensor(tensor) = kind
                && let Some(location) = location_of(tensor)
            {
                locations.entry(location).or_default().push(value);
            }
        }
        let mut found = BTreeSet::new();
        // In the order of their offsets; `last_end` is the largest end so far.
        let (mut last_buffer, mut last_end) = (0, 0);
        let mut rest = locations.iter().filter(|((_, _, bytes, _), _)| *bytes > 0).peekable();
        while let Some(((buffer, offset, bytes, _), values)) = rest.next() {
            let end = offset.saturating_add(*bytes);
            if *buffer != last_buffer {
                (last_buffer, last_end) = (*buffer, 0);
            }
            let overlaps_next =
                rest.peek().is_some_and(|((other, next, ..), _)| other == buffer && *next < end);
            if *offset < last_end || overlaps_next {
                let is_unnamed = |tensor: &MethodTensor<'_>| tensor.name.is_none();
                let values = values.iter().copied();
                found.extend(values.filter(|value| self.tensor(*value).is_some_and(is_unnamed)));
            }
            last_end = last_end.max(end);
        }
        found
    }

    /// Sets the size of each of these planned buffers to 0 if no tensor lies in it.
    fn clear_planned(&mut self, buffers: &BTreeSet<usize>) {
        let mut used = vec![false; self.planned.len()];
        for value in &self.values {
            if let MethodValue::Tensor(tensor) = value
                && let Some((buffer, _)) = tensor.location
                && let Some(used) = used.get_mut(buffer)
            {
                *used = true;
            }
        }
        for (buffer, (size, used)) in self.planned.iter_mut().zip(used).enumerate() {
            if !used && buffers.contains(&buffer) {
                *size = 0;
            }
        }
    }

    /// Returns the aligned end of the last tensor in the first buffer.
    fn end_of_first(&self) -> usize {
        let ends = self.values.iter().map(|value| match value {
            MethodValue::Tensor(tensor) => match tensor.location {
                Some((0, offset)) => offset.saturating_add(tensor.info.nbytes()),
                _ => 0,
            },
            _ => 0,
        });
        let end = ends.max().unwrap_or(0);
        end.checked_next_multiple_of(ALIGN).unwrap_or(end)
    }
}

/// Returns the tensor that an instruction overwrites with a copy of another one.
fn copied_to(instruction: &Instruction, vocabulary: &Vocabulary) -> Option<usize> {
    let Instruction::Kernel { name, overload, args } = instruction else { return None };
    match (vocabulary.meaning(name, overload), &args[..]) {
        (Some(KernelSemantics::Copy), [target, source, ..]) if target != source => Some(*target),
        _ => None,
    }
}
