//! Frees a method of the places that an exporter gave its tensors, so that they can be planned anew.

use crate::front::{Meaning, Vocabulary};
use crate::method::{Instruction, Method, MethodValue, TensorData};
use alloc::collections::{BTreeMap, BTreeSet};

/// At what multiples tensors start.
const ALIGN: usize = 16;

impl Method<'_> {
    /// Takes the places away from tensors that hold nothing from one execution to the next. State keeps them, as others may know
    /// where it lies; so does what instructions touch of which it is not known whether they read it first.
    ///
    /// Inputs and outputs that had a place get one of their own, in a buffer behind the others.
    ///
    /// Of delegates in `inputs`, it is known how many of their arguments are inputs.
    pub(crate) fn forget_places(
        &mut self,
        vocabulary: &Vocabulary,
        inputs: &BTreeMap<usize, usize>,
    ) {
        let interface: BTreeSet<usize> = self.inputs.iter().chain(&self.outputs).copied().collect();
        let free = self.written_first(vocabulary, inputs);
        let mut left = BTreeSet::new();
        for value in free.difference(&interface) {
            if let Some(MethodValue::Tensor(tensor)) = self.values.get_mut(*value)
                && matches!(tensor.data, TensorData::None)
            {
                left.extend(tensor.place.take().map(|(buffer, _)| buffer));
            }
        }
        let (buffer, mut end, mut any) = (self.planned.len(), 0usize, false);
        for value in interface {
            if let Some(MethodValue::Tensor(tensor)) = self.values.get_mut(value)
                && matches!(tensor.data, TensorData::None)
                && tensor.place.is_some()
            {
                left.extend(tensor.place.replace((buffer, end)).map(|(buffer, _)| buffer));
                let after = end.saturating_add(tensor.info.nbytes());
                end = after.checked_next_multiple_of(ALIGN).unwrap_or(usize::MAX);
                any = true;
            }
        }
        // Tensors without elements have places, too.
        if any {
            self.planned.push(end);
        }
        self.shrink_planned(&left);
    }

    /// The tensors that instructions write before any reads them.
    fn written_first(
        &self,
        vocabulary: &Vocabulary,
        inputs: &BTreeMap<usize, usize>,
    ) -> BTreeSet<usize> {
        let (mut seen, mut found) = (BTreeSet::new(), BTreeSet::new());
        for instruction in &self.instructions {
            let (args, outputs) = match instruction {
                Instruction::Kernel { name, overload, args } => {
                    match vocabulary.meaning(name, overload) {
                        Some(Meaning::Functional { inputs, .. }) => (args.clone(), inputs),
                        Some(Meaning::View) => (args.clone(), 2),
                        Some(Meaning::Copy | Meaning::InPlace(..)) | None => {
                            (args.clone(), args.len())
                        }
                    }
                }
                Instruction::Delegate { delegate, args } => {
                    (args.clone(), inputs.get(delegate).copied().unwrap_or(args.len()))
                }
                Instruction::Move { from, to } => (alloc::vec![*from, *to], 2),
                Instruction::JumpFalse { .. } | Instruction::Free { .. } => continue,
            };
            for (place, arg) in args.iter().enumerate() {
                let items = self.values.get(*arg).map(|value| value.items());
                for value in core::iter::once(*arg).chain(items.into_iter().flatten()) {
                    if seen.insert(value) && place >= outputs {
                        found.insert(value);
                    }
                }
            }
        }
        found
    }

    /// Makes these planned buffers as small as what still lies in them.
    fn shrink_planned(&mut self, buffers: &BTreeSet<usize>) {
        let mut ends = alloc::vec![0usize; self.planned.len()];
        for value in &self.values {
            if let MethodValue::Tensor(tensor) = value
                && let Some((buffer, offset)) = tensor.place
                && let Some(end) = ends.get_mut(buffer)
            {
                *end = (*end).max(offset.saturating_add(tensor.info.nbytes()));
            }
        }
        for (buffer, (size, end)) in self.planned.iter_mut().zip(ends).enumerate() {
            if buffers.contains(&buffer) {
                *size = (*size).min(end);
            }
        }
    }
}
