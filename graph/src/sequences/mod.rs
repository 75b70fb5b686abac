//! Several sequences in one run: gives the methods of a program a leading dim that its exporter
//! did not.
//!
//! A language model is exported for one sequence: its weights are read for a single row of
//! activations, and its KV caches hold one conversation. The transform adds a leading dim of rows
//! to every value that differs from sequence to sequence, like `torch.vmap`, so that linear layers
//! become GEMMs of several rows. State gets a leading dim of slots. A run names the slot of each of
//! its rows, in an additional last input; all other inputs and the outputs have a row for each.
//!
//! The rule of an operator is a field of its description
//! ([`Batching`](crate::operators::Batching)). Values that are the same for all sequences, such as
//! weights, need no rule. Writes to state and attention over KV caches address the slots directly
//! (`torchlet.slots_put`, `torchlet.slots_sdpa`); any other reader of state gets a copy of the
//! slots' contents.
//!
//! Methods that keep no state stay as they are.

mod rules;
#[cfg(test)]
mod tests;
mod transform;

use crate::compile::{Compiled, compile_read};
use crate::emit::{Emitter, first_bytes, tensor_info};
use crate::error::Error;
use crate::front::{Copies, FrontEnd, Run, Vocabulary, kernels};
use crate::graph::ValueId;
use crate::method::{Instruction, Method, MethodTensor, MethodValue, Program, TensorData};
use crate::partition::Part;
use crate::processors::Processors;
use crate::target::Packer;
use crate::unplanned::StateBuffers;
use crate::{cells, cpu, in_place};
use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::{DataMap, Registry, ShapeDynamism};

/// Maximum number of sequences.
pub const MAX_SEQUENCES: usize = 1024;

/// Number of the planned buffer that holds the state.
const STATE_BUFFER: usize = 1;
/// Alignment of state, in bytes.
const ALIGN: usize = 16;

/// The state of a program, in one planned buffer.
#[derive(Default)]
struct Slots {
    /// New offset of each state tensor, by its buffer and offset; with the method, unless methods
    /// share the buffer.
    offsets: BTreeMap<(Option<usize>, usize, usize), usize>,
    end: usize,
}

/// Compiles a program for `count` sequences. The weights of regions are packed for the current
/// machine if a packer is given; the result then runs on this machine only.
///
/// # Errors
/// The program is malformed, no method keeps state, or a method that does has a call without a
/// [`Batching`](crate::operators::Batching) rule, which the error names.
pub fn compile<'p>(
    program: &torchlet_core::Program<'p>,
    data: &'p [DataMap<'p>],
    count: usize,
    processors: Processors<'_>,
    packer: Option<&'p dyn Packer>,
    registry: &Registry<'_>,
) -> Result<Compiled<'p>, Error> {
    let (plain, _) = cpu::to_instructions(program, data, registry, cpu::CODES)?;
    let plain = transform(plain, data, count, registry)?;
    compile_read(plain, Vec::new(), program, data, processors, packer, registry)
}

/// Transforms the methods of a program that keep state, for `count` sequences. The program must not
/// have delegates.
///
/// # Errors
/// No method keeps state, or a method that does cannot be transformed.
pub(crate) fn transform<'p>(
    mut program: Program<'p>,
    data: &'p [DataMap<'p>],
    count: usize,
    registry: &Registry<'_>,
) -> Result<Program<'p>, Error> {
    if !(1..=MAX_SEQUENCES).contains(&count) {
        return Err(Error::Unsupported(format!(
            "{count} sequences: expected 1 to {MAX_SEQUENCES}"
        )));
    }
    let vocabulary = Vocabulary::of(registry);
    let shared = cells::shared_buffers(&program.methods);
    let copies = Copies::of(&program.methods);
    let mut buffers = StateBuffers::after(&program.methods);
    let (mut slots, mut transformed) = (Slots::default(), Vec::new());
    for (number, method) in program.methods.iter_mut().enumerate() {
        if method.instructions.is_empty() {
            continue;
        }
        let context = Context { number, data, count, vocabulary: &vocabulary, shared: &shared };
        let before = method.clone();
        let name = method.name.clone();
        let named = |error| match error {
            Error::Unsupported(why) => {
                Error::Unsupported(format!("several sequences in method '{name}': {why}"))
            }
            error => error,
        };
        method.place_state(&vocabulary, &BTreeMap::new(), buffers.unused()).map_err(named)?;
        buffers.count(method);
        match context.method(method, &copies, &mut slots).map_err(named)? {
            Some(made) => {
                *method = made;
                transformed.push(number);
            }
            None => *method = before,
        }
    }
    if transformed.is_empty() {
        return Err(Error::unsupported(
            "several sequences in a program without state: none of its methods keeps a KV cache",
        ));
    }
    for number in transformed {
        let Some(method) = program.methods.get_mut(number) else { continue };
        // All methods declare the whole buffer, parts of which they may share.
        if let Some(size) = method.planned.get_mut(STATE_BUFFER) {
            *size = slots.end;
        }
        method.plan()?;
    }
    Ok(program)
}

struct Context<'c, 'p> {
    /// Number of the method.
    number: usize,
    data: &'p [DataMap<'p>],
    count: usize,
    vocabulary: &'c Vocabulary,
    /// Planned buffers that several methods use.
    shared: &'c BTreeSet<usize>,
}

impl<'p> Context<'_, 'p> {
    /// Transforms a method; `None` if it keeps no state.
    fn method(
        &self,
        method: &mut Method<'p>,
        copies: &Copies,
        slots: &mut Slots,
    ) -> Result<Option<Method<'p>>, Error> {
        if !method.make_views_explicit(self.vocabulary, &BTreeMap::new()) {
            return Err(Error::unsupported(
                "views that the exporter elided, in a method with too many jumps",
            ));
        }
        let run = self.run(method, copies)?;
        let state = self.state(method, &run)?;
        if state.is_empty() {
            return Ok(None);
        }
        let mut run = run;
        run.graph.outputs = self.outputs(method, &run)?;
        let inputs = self.inputs(method, &run)?;
        let old = run.origins;
        let mut graph =
            transform::run(run.graph, &state, self.count).map_err(Error::Unsupported)?;
        // Passes treat state as inputs.
        kernels::check(&mut graph)?;
        let slots_input = graph.inputs.last().copied();
        graph.inputs = inputs.into_iter().chain(slots_input).collect();
        kernels::copy_given_values(&mut graph, BTreeSet::new());
        let mut made = Method { name: method.name.clone(), ..Method::default() };
        let mut states = Vec::new();
        for id in &state {
            let own = old.get(id).and_then(|value| method.tensor(*value));
            let own = own.ok_or_else(|| Error::invalid("state that is no tensor"))?;
            let tensor = graph.tensor(*id).ok_or_else(|| Error::invalid("state is no tensor"))?;
            let info = tensor_info(tensor)?;
            let start = slots.offset(self, own, info.nbytes())?;
            let value = made.add(MethodValue::Tensor(MethodTensor {
                info,
                dynamism: ShapeDynamism::Static,
                location: Some((STATE_BUFFER, start)),
                data: self.contents(own)?,
                name: own.name.clone(),
            }));
            states.push((*id, value));
        }
        made.planned = vec![0, 0];
        let mut emitter = Emitter::new(&mut made);
        // A call that updates state writes to it, so that no slot is copied.
        let parts = [Part::Host((0..graph.nodes.len()).collect())];
        let in_place = in_place::new_values(&graph, &parts);
        for (id, value) in states {
            emitter.bind(id, value);
            for (new, _) in in_place.iter().filter(|(_, old)| **old == id) {
                emitter.bind(*new, value);
            }
        }
        let mut values = Vec::new();
        for id in &graph.inputs {
            values.push(emitter.value(&graph, *id)?);
        }
        for node in &graph.nodes {
            emitter.emit(&graph, node)?;
        }
        let mut results = Vec::new();
        for id in &graph.outputs {
            results.push(emitter.value(&graph, *id)?);
        }
        for (new, old) in graph.updates.iter().filter(|(new, _)| !in_place.contains_key(new)) {
            let (source, target) = (emitter.value(&graph, *new)?, emitter.value(&graph, *old)?);
            let flag = emitter.truth(false);
            let args = vec![target, source, flag, target];
            let (name, overload) = ("aten::copy_".to_owned(), String::new());
            emitter.push(Instruction::Kernel { name, overload, args });
        }
        let instructions = emitter.finish();
        (made.instructions, made.inputs, made.outputs) = (instructions, values, results);
        Ok(Some(made))
    }

    /// Returns the graph of all instructions.
    fn run(&self, method: &Method<'p>, copies: &Copies) -> Result<Run<'p>, Error> {
        let delegates: Vec<_> = method.delegates.iter().map(|_| None).collect();
        let front = FrontEnd::new(method, &delegates, self.data, self.vocabulary).within(copies);
        let mut runs = front.runs()?.into_iter();
        let outside = |range: &core::ops::Range<usize>| {
            let mut rest = method.instructions.iter().enumerate();
            let is_free = |it: &Instruction| matches!(it, Instruction::Free { .. });
            rest.find(|(at, it)| !range.contains(at) && !is_free(it)).map(|(_, it)| it)
        };
        let run = runs.next();
        let range = run.as_ref().map_or(0..0, |run| run.instructions.clone());
        match (outside(&range), run) {
            (None, Some(run)) if runs.next().is_none() => Ok(run),
            (Some(instruction), _) => Err(Error::Unsupported(match instruction {
                Instruction::Kernel { name, overload, .. } => {
                    format!("{name}.{overload}: a call that graphs cannot express")
                }
                Instruction::Delegate { .. } => String::from("a delegate whose format is unknown"),
                _ => String::from("control flow"),
            })),
            _ => Err(Error::unsupported("control flow")),
        }
    }

    /// Returns the inputs of the graph that keep their contents between runs.
    fn state(&self, method: &Method<'p>, run: &Run<'p>) -> Result<BTreeSet<ValueId>, Error> {
        let fresh = method.written_first(self.vocabulary, &BTreeMap::new());
        let alone: BTreeSet<usize> = cells::alone_in_memory(method, &fresh).into_iter().collect();
        let mut state = BTreeSet::new();
        for id in &run.graph.inputs {
            let value = run.origins.get(id).copied().unwrap_or(usize::MAX);
            if method.inputs.contains(&value) {
                continue;
            }
            let Some(tensor) = method.tensor(value) else {
                return Err(Error::unsupported("an integer that is kept between runs"));
            };
            if !alone.contains(&value) {
                let name = tensor.name.as_deref().unwrap_or("without a name");
                return Err(Error::Unsupported(format!(
                    "state cannot be told apart from activations: the tensor {name} of shape {:?} \
                     shares memory with others",
                    &tensor.info.sizes[..]
                )));
            }
            state.insert(*id);
        }
        Ok(state)
    }

    /// Returns the graph's value of each input of the method.
    fn inputs(&self, method: &Method<'p>, run: &Run<'p>) -> Result<Vec<ValueId>, Error> {
        let found = |value: &usize| {
            let id = run.graph.inputs.iter().find(|id| run.origins.get(id) == Some(value));
            id.copied().ok_or_else(|| Error::unsupported("an input that no call reads"))
        };
        method.inputs.iter().map(found).collect()
    }

    /// Returns the graph's value of each output of the method.
    fn outputs(&self, method: &Method<'p>, run: &Run<'p>) -> Result<Vec<ValueId>, Error> {
        let found = |value: &usize| {
            let id = run.graph.outputs.iter().find(|id| run.origins.get(id) == Some(value));
            id.copied().ok_or_else(|| {
                Error::unsupported("an output that is an input, a constant or state")
            })
        };
        method.outputs.iter().map(found).collect()
    }

    /// Returns the initial contents of a state tensor for all slots: zeros.
    fn contents(&self, tensor: &MethodTensor<'p>) -> Result<TensorData<'p>, Error> {
        let bytes = match &tensor.data {
            TensorData::None => return Ok(TensorData::None),
            TensorData::Inside(bytes) => first_bytes(bytes, &tensor.info)?,
            TensorData::Outside => {
                return Err(Error::unsupported("state with contents in an external file"));
            }
        };
        // A session that ends leaves its slot, which the next one fills with zeros.
        match bytes.iter().all(|byte| *byte == 0) {
            true => Ok(TensorData::None),
            false => Err(Error::unsupported("state that is not zero at first")),
        }
    }
}

impl Slots {
    /// Returns the offset of a state tensor, which is new unless another method has it.
    fn offset(
        &mut self,
        context: &Context<'_, '_>,
        tensor: &MethodTensor<'_>,
        bytes: usize,
    ) -> Result<usize, Error> {
        let (buffer, offset) = tensor.location.unwrap_or_default();
        let own = Some(context.number).filter(|_| !context.shared.contains(&buffer));
        if let Some(offset) = self.offsets.get(&(own, buffer, offset)) {
            return Ok(*offset);
        }
        let start = self.end;
        self.end = start
            .checked_add(bytes)
            .and_then(|end| end.checked_next_multiple_of(ALIGN))
            .ok_or_else(|| Error::unsupported("state that exceeds the address space"))?;
        self.offsets.insert((own, buffer, offset), start);
        Ok(start)
    }
}
