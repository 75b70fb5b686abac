//! Views that an exporter made by giving two tensors one place, as instructions.
//!
//! Where shapes are static, ExecuTorch's memory planner makes `view_copy` disappear: the result lies where its source does, and no
//! instruction says so. Before a method can be moved around in memory, each such view gets the instruction that it stands for.

use crate::front::{Access, Vocabulary};
use crate::method::{Instruction, Method, MethodTensor, MethodValue, TensorData};
use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::{Scalar, ScalarType, ShapeDynamism};

/// A place in planned memory, and how many bytes of what lie there.
type Place = (usize, usize, usize, ScalarType);

fn place_of(tensor: &MethodTensor<'_>) -> Option<Place> {
    let (buffer, offset) = tensor.place?;
    Some((buffer, offset, tensor.info.nbytes(), tensor.info.scalar_type))
}

/// What is known on the way through a method.
#[derive(Default)]
struct Known {
    /// The tensor that was written last to each place.
    last: BTreeMap<Place, usize>,
    /// Tensors that hold what they are to hold.
    set: BTreeSet<usize>,
}

impl Method<'_> {
    /// Adds an instruction for each view that has none. Returns whether that is all: where jumps make it unclear what a place holds,
    /// nothing is changed.
    pub(crate) fn make_views_explicit(&mut self, vocabulary: &Vocabulary) -> bool {
        let mut known = Known::default();
        let cells = self.cells(vocabulary);
        for (place, value) in &cells {
            known.last.insert(*place, *value);
            known.set.insert(*value);
        }
        for (index, value) in self.values.iter().enumerate() {
            if let MethodValue::Tensor(tensor) = value
                && !matches!(tensor.data, TensorData::None)
            {
                known.write(self, index);
            }
        }
        for input in self.inputs.clone() {
            known.write(self, input);
        }
        // Each with the instruction in front of which it belongs, its source and its result.
        let mut views = Vec::new();
        for (at, instruction) in self.instructions.iter().enumerate() {
            let (reads, writes) = reads_and_writes(instruction, vocabulary);
            for value in reads.into_iter().flat_map(|value| self.with_items(value)) {
                if let Some(source) = known.read(self, value) {
                    views.push((at, source, value));
                }
            }
            // What is written through a view of state is written to the state.
            if let Some(target) = target_of(instruction, vocabulary)
                && let Some(cell) =
                    self.tensor(target).and_then(place_of).and_then(|place| cells.get(&place))
                && *cell != target
            {
                views.push((at + 1, target, *cell));
            }
            for value in writes.into_iter().flat_map(|value| self.with_items(value)) {
                known.write(self, value);
            }
        }
        for value in self.outputs.iter().flat_map(|value| self.with_items(*value)) {
            if let Some(source) = known.read(self, value) {
                views.push((self.instructions.len(), source, value));
            }
        }
        if views.is_empty() {
            return true;
        }
        if self.has_jumps() {
            return false;
        }
        let instructions = core::mem::take(&mut self.instructions);
        let mut views = views.into_iter().peekable();
        for (at, instruction) in instructions.into_iter().map(Some).chain([None]).enumerate() {
            while let Some((_, source, view)) = views.next_if(|(place, _, _)| *place == at) {
                self.add_view(source, view);
            }
            self.instructions.extend(instruction);
        }
        true
    }

    /// The tensors that state without initial data is written through, by place. What else lies there is a view of it, however early
    /// it is read.
    fn cells(&self, vocabulary: &Vocabulary) -> BTreeMap<Place, usize> {
        let place = |value: usize| self.tensor(value).and_then(place_of);
        let with_data = self.values.iter().enumerate().filter(|(_, value)| {
            matches!(value, MethodValue::Tensor(tensor) if !matches!(tensor.data, TensorData::None))
        });
        let known = with_data.map(|(value, _)| value).chain(self.inputs.iter().copied());
        let mut touched: BTreeSet<Place> = known.filter_map(place).collect();
        let (mut state, mut cells) = (BTreeSet::new(), BTreeMap::new());
        for instruction in &self.instructions {
            let (reads, writes) = reads_and_writes(instruction, vocabulary);
            let places = |values: Vec<usize>| {
                let values = values.into_iter().flat_map(|value| self.with_items(value));
                values.filter_map(place).collect::<Vec<Place>>()
            };
            for place in places(reads) {
                if touched.insert(place) {
                    state.insert(place);
                }
            }
            touched.extend(places(writes));
            if let Some(target) = target_of(instruction, vocabulary)
                && let Some(place) = place(target).filter(|place| state.contains(place))
            {
                cells.entry(place).or_insert(target);
            }
        }
        cells
    }

    fn add_view(&mut self, source: usize, view: usize) {
        let sizes: Vec<i64> = match self.tensor(view) {
            Some(tensor) => tensor.info.sizes.iter().map(|size| i64::from(*size)).collect(),
            None => return,
        };
        let sizes = sizes.into_iter().map(|size| self.add(MethodValue::Scalar(Scalar::Int(size))));
        let sizes = sizes.collect();
        let sizes = self.add(MethodValue::Ints(sizes));
        self.instructions.push(Instruction::Kernel {
            name: "executorch_prim::et_view".to_owned(),
            overload: "default".to_owned(),
            args: vec![source, sizes, view, view],
        });
    }
}

impl Known {
    fn write(&mut self, method: &Method<'_>, value: usize) {
        if let Some(place) = method.tensor(value).and_then(place_of) {
            self.last.insert(place, value);
            self.set.insert(value);
        }
    }

    /// The tensor that a value is a view of, if it is one and was not read before. Where shapes vary, views have instructions.
    fn read(&mut self, method: &Method<'_>, value: usize) -> Option<usize> {
        let is_static = |value| {
            method.tensor(value).is_some_and(|tensor| tensor.dynamism == ShapeDynamism::Static)
        };
        let place = method.tensor(value).and_then(place_of)?;
        if !self.set.insert(value) {
            return None;
        }
        match self.last.get(&place) {
            Some(source) => Some(*source).filter(|source| is_static(*source) && is_static(value)),
            None => {
                // State that starts as zeroes.
                self.last.insert(place, value);
                None
            }
        }
    }
}

/// The value that an instruction writes in place.
fn target_of(instruction: &Instruction, vocabulary: &Vocabulary) -> Option<usize> {
    let Instruction::Kernel { name, overload, args } = instruction else { return None };
    match vocabulary.access(name, overload) {
        Access::InPlace(target) => args.get(target).copied(),
        Access::Outputs(_) | Access::Unknown => None,
    }
}

/// The values that an instruction may read, and those that it may write. Where it is not known which is which, a value is both: then an
/// output can be taken for a view of what lay in its place before, which nobody reads.
fn reads_and_writes(
    instruction: &Instruction,
    vocabulary: &Vocabulary,
) -> (Vec<usize>, Vec<usize>) {
    match instruction {
        Instruction::Kernel { name, overload, args } => {
            let parts = match vocabulary.access(name, overload) {
                Access::Outputs(first) => args.split_at_checked(first),
                Access::InPlace(_) | Access::Unknown => None,
            };
            let (reads, writes) = parts.unwrap_or((args, args));
            (reads.to_vec(), writes.to_vec())
        }
        Instruction::Delegate { args, .. } => (args.clone(), args.clone()),
        Instruction::Move { from, to } => (vec![*from], vec![*to]),
        Instruction::JumpFalse { .. } | Instruction::Free { .. } => (Vec::new(), Vec::new()),
    }
}
