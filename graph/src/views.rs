//! Views that an exporter made by giving two tensors one place, as instructions.
//!
//! Where shapes are static, ExecuTorch's memory planner elides `view_copy`: the result lies where
//! its source does, and no instruction says so. Before a method can be planned anew, each such view
//! gets the instruction that it stands for.
//!
//! Which tensor was written last to a place is a question of data flow, since instructions may be
//! skipped and repeated: reaching definitions, by place. A view is added behind each definition of
//! another tensor of the place that reaches a read. This is exact wherever jumps lead, since in the
//! file's memory both tensors change there. What a run leaves in a place reaches the start of the
//! next run, so state may be read and written through different tensors.

use crate::blocks::Blocks;
use crate::front::{Access, Vocabulary};
use crate::method::{Instruction, Method, MethodTensor, MethodValue, TensorData};
use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::{Scalar, ScalarType, ShapeDynamism};

/// A place in planned memory, and how many bytes of what lie there.
pub(crate) type Place = (usize, usize, usize, ScalarType);

/// The place of a tensor that may be a view without an instruction: where shapes vary, views have
/// one.
pub(crate) fn place_of(tensor: &MethodTensor<'_>) -> Option<Place> {
    let (buffer, offset) = tensor.place?;
    let is_static = tensor.dynamism == ShapeDynamism::Static;
    is_static.then_some((buffer, offset, tensor.info.nbytes(), tensor.info.scalar_type))
}

/// What writes to a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Writer {
    /// The caller, the file, or the run before.
    Start,
    /// The instruction of this index.
    Instruction(usize),
}

/// A view to be added: behind what, its source and its result.
type View = (Writer, usize, usize);

/// A read of a place that the same block has not written before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Exposed {
    block: usize,
    place: Place,
    /// Whether the instruction surely reads it: of what it may as well write first, nothing is
    /// known to be state.
    is_certain: bool,
}

/// Reads and writes of the places that several tensors have.
struct Flow {
    blocks: Blocks,
    /// Who wrote last to each place in each block, and to which of its tensors.
    last: BTreeMap<(usize, Place), (Writer, usize)>,
    /// The tensors read by [exposed](Exposed) reads.
    exposed: BTreeMap<Exposed, BTreeSet<usize>>,
    /// The tensors that the caller sets in every run.
    inputs: BTreeMap<Place, usize>,
    /// The tensor that holds what a place keeps from run to run.
    cells: BTreeMap<Place, usize>,
    views: BTreeSet<View>,
}

impl Method<'_> {
    /// Adds an instruction for each view that has none. `inputs` says how many arguments of a
    /// delegate are inputs, where that is known. Returns false, and changes nothing, if finding the
    /// views takes too long.
    pub(crate) fn make_views_explicit(
        &mut self,
        vocabulary: &Vocabulary,
        inputs: &BTreeMap<usize, usize>,
    ) -> bool {
        let shared = self.shared_places();
        if shared.is_empty() {
            return true;
        }
        let mut flow = Flow::of(self, vocabulary, inputs, &shared);
        let is_complete = flow.find_views().is_some();
        if is_complete && !flow.views.is_empty() {
            self.add_views(&flow.views);
            // Exporters give views of state its name and data. They are no state of their own from
            // now on.
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

    /// The places that several tensors have.
    fn shared_places(&self) -> BTreeSet<Place> {
        let (mut seen, mut shared) = (BTreeSet::new(), BTreeSet::new());
        for value in &self.values {
            if let MethodValue::Tensor(tensor) = value
                && let Some(place) = place_of(tensor)
                && !seen.insert(place)
            {
                shared.insert(place);
            }
        }
        shared
    }

    fn add_views(&mut self, views: &BTreeSet<View>) {
        let instructions = core::mem::take(&mut self.instructions);
        // Jumps lead behind the views of the instruction in front of their destination.
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
        shared: &BTreeSet<Place>,
    ) -> Self {
        let tensors = |values: Vec<usize>| {
            let values = values.into_iter().flat_map(|value| method.with_items(value));
            let placed = values.filter_map(|value| Some((place_of(method.tensor(value)?)?, value)));
            placed.filter(|(place, _)| shared.contains(place)).collect::<Vec<(Place, usize)>>()
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
            for (place, value) in tensors(reads) {
                if flow.read(Exposed { block, place, is_certain }, value) && is_certain {
                    read_first.push((place, value));
                }
            }
            for (place, value) in tensors(writes) {
                flow.last.insert((block, place), (Writer::Instruction(at), value));
            }
            targets.extend(target_of(instruction, vocabulary));
        }
        let block = flow.blocks.end();
        for (place, value) in tensors(method.outputs.clone()) {
            if flow.read(Exposed { block, place, is_certain: true }, value) {
                read_first.push((place, value));
            }
        }
        for (place, value) in [with_data, tensors(targets), read_first].concat() {
            flow.cells.entry(place).or_insert(value);
        }
        flow
    }

    /// Notes a read of a tensor. Returns whether the block did not write to its place before.
    fn read(&mut self, read: Exposed, value: usize) -> bool {
        let last = self.last.get(&(read.block, read.place));
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

    /// Finds the views whose sources are written in other blocks; `None` if that takes too long.
    fn find_views(&mut self) -> Option<()> {
        let mut kept = BTreeSet::new();
        for (read, values) in core::mem::take(&mut self.exposed) {
            let writers = self.writers(read)?;
            for (writer, source) in &writers {
                let views = values.iter().filter(|value| *value != source);
                self.views.extend(views.map(|value| (*writer, *source, *value)));
            }
            let is_input = self.inputs.contains_key(&read.place);
            if !is_input && writers.iter().any(|(writer, _)| *writer == Writer::Start) {
                kept.insert(read.place);
            }
        }
        // What a run leaves in a place is in its cell when the next one starts.
        let block = self.blocks.end();
        for place in kept {
            let Some(cell) = self.cells.get(&place).copied() else { continue };
            let writers = match self.last.get(&(block, place)) {
                Some(writer) => BTreeSet::from([*writer]),
                None => self.writers(Exposed { block, place, is_certain: true })?,
            };
            let others = writers.into_iter().filter(|(_, source)| *source != cell);
            self.views.extend(others.map(|(writer, source)| (writer, source, cell)));
        }
        Some(())
    }

    /// Who may have written last to a place when a block starts, and to which of its tensors;
    /// `None` if finding that takes too long.
    fn writers(&mut self, read: Exposed) -> Option<BTreeSet<(Writer, usize)>> {
        let mut found = BTreeSet::new();
        let input = self.inputs.get(&read.place).copied();
        let Flow { blocks, last, .. } = self;
        let reaches_start =
            blocks.search_back(read.block, input.is_none() && read.is_certain, |block| {
                let writer = last.get(&(block, read.place));
                found.extend(writer);
                writer.is_none()
            })?;
        let cell = self.cells.get(&read.place).copied().filter(|_| read.is_certain);
        let kept = input.or(cell).filter(|_| reaches_start);
        found.extend(kept.map(|value| (Writer::Start, value)));
        Some(found)
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

/// What an instruction does with values.
struct Accesses {
    reads: Vec<usize>,
    writes: Vec<usize>,
    /// Whether it surely reads what is said to be read.
    is_certain: bool,
}

/// The values that an instruction reads and writes. Where it is not known which is which, a value
/// is both: then an output can be taken for a view of what lay in its place before, which nobody
/// reads.
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
