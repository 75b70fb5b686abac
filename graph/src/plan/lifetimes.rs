//! Lifetimes of the tensors of a method.

use super::arena::Lifetime;
use super::loops::Loops;
use super::sharing::Sharing;
use crate::method::{Instruction, Method, MethodValue};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

/// Returns the lifetime of each tensor that needs planned memory. It is `None` for unused values,
/// for views, and for inputs and outputs without a slot.
pub(super) fn lifetimes(method: &Method<'_>) -> Vec<Option<Lifetime>> {
    let mut uses = Uses::new(method);
    for value in &method.inputs {
        each_tensor(method, *value, &mut |value| uses.write(value, 0));
    }
    for (at, instruction) in method.instructions.iter().enumerate() {
        let output = output_of(method, instruction);
        let mut visit = |value| {
            if output.contains(&value) {
                uses.write(value, at);
            } else {
                uses.read(value, at);
            }
        };
        instruction.values().for_each(|value| each_tensor(method, value, &mut visit));
    }
    // As in exporters, an input lives from the start to its last use, and an output lives to the
    // end.
    for value in &method.outputs {
        each_tensor(method, *value, &mut |value| uses.read(value, method.instructions.len()));
    }
    uses.finish()
}

/// Uses of values, collected in execution order.
struct Uses<'m, 'p> {
    method: &'m Method<'p>,
    sharing: Sharing,
    /// Lifetimes, indexed by the representative of the values that share memory.
    times: Vec<Option<Lifetime>>,
    /// Values with known contents.
    known: Vec<bool>,
    /// For each slot, the instruction that last wrote it, and the number of bytes written.
    locations: BTreeMap<(usize, usize), (usize, usize)>,
    /// Whether jumps can skip instructions, so that contents may be those of an earlier run.
    branches: bool,
}

impl<'m, 'p> Uses<'m, 'p> {
    fn new(method: &'m Method<'p>) -> Self {
        let count = method.values.len();
        Uses {
            method,
            sharing: Sharing::of(method),
            times: vec![None; count],
            known: vec![false; count],
            locations: BTreeMap::new(),
            branches: method.has_jumps(),
        }
    }

    fn note(&mut self, value: usize, first: usize, last: usize) {
        let (root, time) = (self.sharing.root(value), Lifetime { first, last });
        if let Some(slot) = self.times.get_mut(root) {
            slot.get_or_insert(time).include(time);
        }
    }

    fn write(&mut self, value: usize, at: usize) {
        self.note(value, at, at);
        let Some((location, bytes)) = location_of(self.method, value) else { return };
        if self.branches {
            return self.read(value, at);
        }
        self.locations.insert(location, (at, bytes));
        if let Some(known) = self.known.get_mut(value) {
            *known = true;
        }
    }

    fn read(&mut self, value: usize, at: usize) {
        self.note(value, at, at);
        let Some((location, bytes)) = location_of(self.method, value) else { return };
        if let Some(known @ false) = self.known.get_mut(value) {
            *known = true;
            // The contents were written by another tensor of the same slot, since exporters elide
            // views; otherwise, the tensor is state.
            match self.locations.get(&location) {
                Some((since, left)) if *left >= bytes => self.note(value, *since, at),
                _ => self.note(value, 0, self.method.instructions.len()),
            }
        }
    }

    fn finish(mut self) -> Vec<Option<Lifetime>> {
        let loops = Loops::of(self.method);
        for time in self.times.iter_mut().flatten() {
            loops.extend(time);
        }
        let mut is_given = vec![false; self.method.values.len()];
        for value in self.method.inputs.iter().chain(&self.method.outputs) {
            each_tensor(self.method, *value, &mut |value| {
                if let Some(slot) = is_given.get_mut(value) {
                    *slot = location_of(self.method, value).is_none();
                }
            });
        }
        let mut own = Vec::with_capacity(is_given.len());
        for (index, is_given) in is_given.into_iter().enumerate() {
            let is_view = self.sharing.is_view(index) && location_of(self.method, index).is_none();
            let time = self.times.get(self.sharing.root(index)).copied().flatten();
            own.push(time.filter(|_| !is_given && !is_view));
        }
        own
    }
}

/// Returns the slot and the size in bytes of a tensor that has one.
fn location_of(method: &Method<'_>, value: usize) -> Option<((usize, usize), usize)> {
    let tensor = method.tensor(value)?;
    Some((tensor.location?, tensor.info.nbytes()))
}

/// Returns the values that a kernel writes without reading them, as far as its arguments show: the
/// last argument repeats the outputs.
fn output_of<'m>(method: &'m Method<'_>, instruction: &'m Instruction) -> &'m [usize] {
    let Instruction::Kernel { args, .. } = instruction else { return &[] };
    let [inputs @ .., last, repeated] = &args[..] else { return &[] };
    if last == repeated && !inputs.contains(last) {
        return match method.values.get(*last) {
            Some(MethodValue::Tensors(items)) => items,
            _ => core::slice::from_ref(last),
        };
    }
    let Some(MethodValue::Tensors(items)) = method.values.get(*repeated) else { return &[] };
    match args.len().checked_sub(1 + items.len()).and_then(|start| args.split_at_checked(start)) {
        Some((inputs, outputs))
            if outputs.starts_with(items) && !items.iter().any(|item| inputs.contains(item)) =>
        {
            items
        }
        _ => &[],
    }
}

/// Calls `found` with the value, if it is a tensor, or with each tensor of a list.
pub(super) fn each_tensor(method: &Method<'_>, value: usize, found: &mut dyn FnMut(usize)) {
    match method.values.get(value) {
        Some(MethodValue::Tensor(_)) => found(value),
        Some(MethodValue::Tensors(items)) => items.iter().for_each(|item| found(*item)),
        Some(MethodValue::OptionalTensors(items)) => {
            items.iter().flatten().for_each(|item| found(*item));
        }
        _ => {}
    }
}
