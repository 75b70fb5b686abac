//! Adds an instruction for each view that the exporter's memory planner elided.
//!
//! For static shapes, ExecuTorch's memory planner elides `view_copy`: the result shares the memory
//! of its source, and the program has no instruction for it. The compiler has to make these views
//! explicit before it can plan memory again.
//!
//! Jumps can skip and repeat instructions, so finding the tensor that was last written to a memory
//! slot is a data-flow problem: reaching definitions, per slot. If a definition of one tensor
//! reaches a read of another tensor in the same slot, a view is added after the definition. This is
//! exact for any control flow, since in the file's memory both tensors change at that point. The
//! contents of a slot at the end of a run reach the start of the next run, so one run may write
//! state through one tensor and the next may read it through another.

use crate::blocks::Blocks;
use crate::front::{Access, Vocabulary};
use crate::method::{Instruction, Method, MethodTensor, MethodValue, TensorData};
use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::{Scalar, ScalarType, ShapeDynamism};

/// Memory slot of a tensor: planned buffer, byte offset, size in bytes, dtype.
pub(crate) type Location = (usize, usize, usize, ScalarType);

/// Returns the slot of a tensor that may be an elided view. Views with dynamic shapes always have
/// an instruction.
pub(crate) fn location_of(tensor: &MethodTensor<'_>) -> Option<Location> {
    let (buffer, offset) = tensor.location?;
    let is_static = tensor.dynamism == ShapeDynamism::Static;
    is_static.then_some((buffer, offset, tensor.info.nbytes(), tensor.info.scalar_type))
}

/// Definition of a slot's contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Writer {
    /// Contents at the start of a run: set by the caller, the file or the previous run.
    Start,
    /// Index of the instruction that writes the slot.
    Instruction(usize),
}

/// A view to add: the definition that it follows, its source and its result.
type View = (Writer, usize, usize);

/// Upward-exposed read: a read of a slot that its block did not write before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Exposed {
    block: usize,
    location: Location,
    /// Whether the instruction certainly reads the value. A value that it may write first is not
    /// known to be state.
    is_certain: bool,
}

/// Reads and writes of the slots that several tensors share.
struct Flow {
    blocks: Blocks,
    /// Last write to each slot in each block, and the tensor that it writes.
    last: BTreeMap<(usize, Location), (Writer, usize)>,
    /// Tensors read by each exposed read.
    exposed: BTreeMap<Exposed, BTreeSet<usize>>,
    /// Tensors that the caller sets in every run.
    inputs: BTreeMap<Location, usize>,
    /// The tensor that represents the state in each slot.
    cells: BTreeMap<Location, usize>,
    views: BTreeSet<View>,
}

impl Method<'_> {
    /// Adds an instruction for each elided view. `inputs` maps a delegate to its number of input
    /// arguments, if known. Returns false and leaves the method unchanged if the search exceeds its
    /// step limit.
    pub(crate) fn make_views_explicit(
        &mut self,
        vocabulary: &Vocabulary,
        inputs: &BTreeMap<usize, usize>,
    ) -> bool {
        let shared = self.shared_locations();
        if shared.is_empty() {
            return true;
        }
        let mut flow = Flow::of(self, vocabulary, inputs, &shared);
        let is_complete = flow.find_views().is_some();
        if is_complete && !flow.views.is_empty() {
            self.add_views(&flow.views);
            // Exporters copy the name and the data of state to its views. A view with an
            // instruction is no longer state.
            let cells: BTreeSet<usize> = flow.cells.values().copied().collect();
            let views = flow.views.iter().map(|(_, _, view)| *view);
            for view in views.filter(|view| !cells.contains(view)) {
                if let Some(MethodValue::Tensor(tensor)) = self.values.get_mut(view) {
                    (tensor.name, tensor.data) = (None, TensorData::None);
                }
            }
        }
        is_complete
    }

    /// Returns the slots that several tensors share.
    fn shared_locations(&self) -> BTreeSet<Location> {
        let (mut seen, mut shared) = (BTreeSet::new(), BTreeSet::new());
        for value in &self.values {
            if let MethodValue::Tensor(tensor) = value
                && let Some(location) = location_of(tensor)
                && !seen.insert(location)
            {
                shared.insert(location);
            }
        }
        shared
    }

    fn add_views(&mut self, views: &BTreeSet<View>) {
        let instructions = core::mem::take(&mut self.instructions);
        // A jump to an instruction skips the views that were added in front of it: they belong to
        // the preceding instruction.
        let mut moved = Vec::with_capacity(instructions.len() + 1);
        let mut views = views.iter().copied().peekable();
        let mut writer = Writer::Start;
        for (at, instruction) in instructions.into_iter().map(Some).chain([None]).enumerate() {
            while let Some((_, source, view)) = views.next_if(|(behind, ..)| *behind == writer) {
                self.add_view(source, view);
            }
            moved.push(self.instructions.len());
            self.instructions.extend(instruction);
            writer = Writer::Instruction(at);
        }
        for instruction in &mut self.instructions {
            if let Instruction::JumpFalse { destination, .. } = instruction
                && let Some(moved) = moved.get(*destination)
            {
                *destination = *moved;
            }
        }
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

impl Flow {
    fn of(
        method: &Method<'_>,
        vocabulary: &Vocabulary,
        inputs: &BTreeMap<usize, usize>,
        shared: &BTreeSet<Location>,
    ) -> Self {
        let tensors = |values: Vec<usize>| {
            let values = values.into_iter().flat_map(|value| method.with_items(value));
            let placed =
                values.filter_map(|value| Some((location_of(method.tensor(value)?)?, value)));
            placed
                .filter(|(location, _)| shared.contains(location))
                .collect::<Vec<(Location, usize)>>()
        };
        let mut flow = Flow {
            blocks: Blocks::of(method),
            last: BTreeMap::new(),
            exposed: BTreeMap::new(),
            inputs: tensors(method.inputs.clone()).into_iter().collect(),
            cells: BTreeMap::new(),
            views: BTreeSet::new(),
        };
        let with_data = method.values.iter().enumerate().filter(|(_, value)| {
            matches!(value, MethodValue::Tensor(tensor) if !matches!(tensor.data, TensorData::None))
        });
        let with_data = tensors(with_data.map(|(value, _)| value).collect());
        let (mut targets, mut read_first) = (Vec::new(), Vec::new());
        for (at, instruction) in method.instructions.iter().enumerate() {
            let block = flow.blocks.of_instruction(at);
            let Accesses { reads, writes, is_certain } = accesses(instruction, vocabulary, inputs);
            for (location, value) in tensors(reads) {
                if flow.read(Exposed { block, location, is_certain }, value) && is_certain {
                    read_first.push((location, value));
                }
            }
            for (location, value) in tensors(writes) {
                flow.last.insert((block, location), (Writer::Instruction(at), value));
            }
            targets.extend(target_of(instruction, vocabulary));
        }
        let block = flow.blocks.end();
        for (location, value) in tensors(method.outputs.clone()) {
            if flow.read(Exposed { block, location, is_certain: true }, value) {
                read_first.push((location, value));
            }
        }
        for (location, value) in [with_data, tensors(targets), read_first].concat() {
            flow.cells.entry(location).or_insert(value);
        }
        flow
    }

    /// Records a read of a tensor. Returns whether its block did not write the slot before.
    fn read(&mut self, read: Exposed, value: usize) -> bool {
        let last = self.last.get(&(read.block, read.location));
        match last {
            Some((writer, source)) => {
                let is_view = *source != value;
                self.views.extend(is_view.then_some((*writer, *source, value)));
            }
            None => {
                self.exposed.entry(read).or_default().insert(value);
            }
        }
        last.is_none()
    }

    /// Finds the views whose sources are written in other blocks. Returns `None` if the search
    /// exceeds its step limit.
    fn find_views(&mut self) -> Option<()> {
        let mut kept = BTreeSet::new();
        for (read, values) in core::mem::take(&mut self.exposed) {
            let writers = self.writers(read)?;
            for (writer, source) in &writers {
                let views = values.iter().filter(|value| *value != source);
                self.views.extend(views.map(|value| (*writer, *source, *value)));
            }
            let is_input = self.inputs.contains_key(&read.location);
            if !is_input && writers.iter().any(|(writer, _)| *writer == Writer::Start) {
                kept.insert(read.location);
            }
        }
        // The next run starts with the last contents of the slot, read through the tensor in
        // `cells`.
        let block = self.blocks.end();
        for location in kept {
            let Some(cell) = self.cells.get(&location).copied() else { continue };
            let writers = match self.last.get(&(block, location)) {
                Some(writer) => BTreeSet::from([*writer]),
                None => self.writers(Exposed { block, location, is_certain: true })?,
            };
            let others = writers.into_iter().filter(|(_, source)| *source != cell);
            self.views.extend(others.map(|(writer, source)| (writer, source, cell)));
        }
        Some(())
    }

    /// Returns the definitions of a slot that can reach the start of a block, with the tensor that
    /// each one writes. Returns `None` if the search exceeds its step limit.
    fn writers(&mut self, read: Exposed) -> Option<BTreeSet<(Writer, usize)>> {
        let mut found = BTreeSet::new();
        let input = self.inputs.get(&read.location).copied();
        let Flow { blocks, last, .. } = self;
        let reaches_start =
            blocks.search_back(read.block, input.is_none() && read.is_certain, |block| {
                let writer = last.get(&(block, read.location));
                found.extend(writer);
                writer.is_none()
            })?;
        let cell = self.cells.get(&read.location).copied().filter(|_| read.is_certain);
        let kept = input.or(cell).filter(|_| reaches_start);
        found.extend(kept.map(|value| (Writer::Start, value)));
        Some(found)
    }
}

/// Returns the value that an instruction writes in location.
fn target_of(instruction: &Instruction, vocabulary: &Vocabulary) -> Option<usize> {
    let Instruction::Kernel { name, overload, args } = instruction else { return None };
    match vocabulary.access(name, overload) {
        Access::InPlace(target) => args.get(target).copied(),
        Access::Outputs(_) | Access::Unknown => None,
    }
}

/// Values that an instruction accesses.
struct Accesses {
    reads: Vec<usize>,
    writes: Vec<usize>,
    /// Whether the instruction certainly reads all of `reads`.
    is_certain: bool,
}

/// Returns the values that an instruction reads and writes. If the roles of its arguments are
/// unknown, each argument counts as both. The worst consequence is a redundant view: an output is
/// taken for a view of the previous contents of its slot.
fn accesses(
    instruction: &Instruction,
    vocabulary: &Vocabulary,
    inputs: &BTreeMap<usize, usize>,
) -> Accesses {
    let of_args = |args: &[usize], outputs: Option<usize>| {
        let parts = outputs.and_then(|first| args.split_at_checked(first));
        let (reads, writes) = parts.unwrap_or((args, args));
        Accesses { reads: reads.to_vec(), writes: writes.to_vec(), is_certain: parts.is_some() }
    };
    match instruction {
        Instruction::Kernel { name, overload, args } => match vocabulary.access(name, overload) {
            Access::Outputs(first) => of_args(args, Some(first)),
            Access::InPlace(target) => Accesses {
                reads: args.clone(),
                writes: args.get(target).copied().into_iter().collect(),
                is_certain: true,
            },
            Access::Unknown => of_args(args, None),
        },
        Instruction::Delegate { delegate, args } => of_args(args, inputs.get(delegate).copied()),
        Instruction::Move { from, to } => {
            Accesses { reads: vec![*from], writes: vec![*to], is_certain: true }
        }
        Instruction::JumpFalse { condition, .. } => {
            Accesses { reads: vec![*condition], writes: Vec::new(), is_certain: true }
        }
        Instruction::Free { .. } => {
            Accesses { reads: Vec::new(), writes: Vec::new(), is_certain: true }
        }
    }
}
