//! From a program to the same program for a processor: what its backend takes becomes delegates, the rest stays instructions.

use crate::cells::{self, Cells};
use crate::emit::Emitter;
use crate::error::Error;
use crate::front::delegate::graph_of;
use crate::front::joined;
use crate::front::{Copies, FrontEnd, Run, Vocabulary};
use crate::graph::{Graph, Node, Value, ValueId};
use crate::method::{Delegate, Instruction, Method, MethodValue, Program};
use crate::named::{Constants, Named, of_program};
use crate::operators::Operator;
use crate::partition::{Part, Region, partition};
use crate::report::{MethodReport, Place, PlacedCall, Report};
use crate::target::{Packer, Target};
use crate::{blob, fold, lower, passes};
use alloc::borrow::{Cow, ToOwned};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::{DataMap, Registry, Scalar};

/// A program that was compiled.
#[derive(Debug, Clone)]
pub struct Compiled<'p> {
    /// The program: [write](Program::write) it to load it.
    pub program: Program<'p>,
    /// What runs where, and why.
    pub report: Report,
}

/// Compiles a program, with the external data that it names, for a processor, or for the kernels of the registry alone. These run
/// what the processor does not take.
///
/// # Errors
/// The program is malformed.
pub fn compile<'p>(
    program: &torchlet_core::Program<'p>,
    data: &'p [DataMap<'p>],
    target: Option<&dyn Target>,
    registry: &Registry<'_>,
) -> Result<Compiled<'p>, Error> {
    let processor = Processor { target, packer: None };
    compile_read(Program::read(program)?, program, data, processor, registry)
}

/// What a program is compiled for.
#[derive(Clone, Copy)]
pub(crate) struct Processor<'c, 'p> {
    pub(crate) target: Option<&'c dyn Target>,
    /// Packs weights for the machine that it runs on, if that is known.
    pub(crate) packer: Option<&'p dyn Packer>,
}

/// Compiles what was made of a program. Delegates find their data in the program itself.
pub(crate) fn compile_read<'p>(
    mut compiled: Program<'p>,
    program: &torchlet_core::Program<'p>,
    data: &'p [DataMap<'p>],
    processor: Processor<'_, 'p>,
    registry: &Registry<'_>,
) -> Result<Compiled<'p>, Error> {
    let vocabulary = Vocabulary::of(registry);
    let mut report = Report::default();
    let mut constants = Constants::new(&compiled.unused_prefix());
    let named = of_program(program, data);
    let copies = Copies::of(&compiled.methods);
    let shared = cells::shared_buffers(&compiled.methods);
    // What delegates of a method keep gets a buffer of its own, which no other method has.
    let mut buffer = compiled.methods.iter().map(|method| method.planned.len()).max().unwrap_or(0);
    let mut buffers = joined::MOST_BUFFERS;
    for method in &mut compiled.methods {
        let mut compiler = MethodCompiler {
            target: processor.target,
            packer: processor.packer,
            registry,
            copies: &copies,
            constants: &mut constants,
            shared: &shared,
            buffer: (buffer < buffers).then_some(buffer),
            calls: Vec::new(),
            apart: Vec::new(),
            inputs: BTreeMap::new(),
            moved: BTreeSet::new(),
        };
        let mut described = MethodReport { name: method.name.clone(), ..MethodReport::default() };
        match compiler.compile(method, &named, data, &vocabulary) {
            Ok(Some(compiled)) => {
                *method = compiled;
                if method.planned.len() > buffer {
                    // Each method has the buffers of those before it, too.
                    buffers = buffers.saturating_sub(buffer);
                    buffer = method.planned.len();
                }
                described.calls = compiler.calls;
            }
            Ok(None) => described.as_exported = Some(String::from(NOTHING_GAINED)),
            Err(Error::Unsupported(why)) => described.as_exported = Some(why),
            Err(error) => return Err(error),
        }
        described.apart = compiler.apart;
        let backends = method.delegates.iter().map(|delegate| delegate.backend.clone());
        described.delegates = backends.collect();
        report.methods.push(described);
    }
    compiled.named.extend(constants.into_named());
    compiled.forget_unused_data()?;
    Ok(Compiled { program: compiled, report })
}

/// Why a method stays as it is that nothing would run elsewhere of.
const NOTHING_GAINED: &str = "the device takes none of its calls";

struct MethodCompiler<'c, 'p> {
    target: Option<&'c dyn Target>,
    packer: Option<&'p dyn Packer>,
    registry: &'c Registry<'c>,
    copies: &'c Copies,
    constants: &'c mut Constants<'p>,
    /// The planned buffers that other methods use, too.
    shared: &'c BTreeSet<usize>,
    /// One that none uses, if there may be more.
    buffer: Option<usize>,
    calls: Vec<PlacedCall>,
    /// The delegates that stay, though their graphs are known or could be, and why.
    apart: Vec<(usize, String)>,
    /// How many inputs each delegate has that was made.
    inputs: BTreeMap<usize, usize>,
    /// The state that lives in regions now.
    moved: BTreeSet<usize>,
}

/// A run, cut into parts, and why each of its calls is not on the device.
struct Cut<'p> {
    run: Run<'p>,
    parts: Vec<Part>,
    reasons: Vec<Option<String>>,
}

impl<'p> MethodCompiler<'_, 'p> {
    /// The method with what the target takes in delegates; `None` if it takes nothing.
    fn compile(
        &mut self,
        method: &Method<'p>,
        named: &Named<'_, 'p>,
        data: &'p [DataMap<'p>],
        vocabulary: &Vocabulary,
    ) -> Result<Option<Method<'p>>, Error> {
        let (mut method, planned) = (method.clone(), method.planned.len());
        if !method.make_views_explicit(vocabulary) {
            return Err(Error::unsupported("views without instructions, and jumps"));
        }
        let (method, runs) = self.runs(method, named, data, vocabulary)?;
        let state = Cells::of(&method, self.shared);
        let cuts: Vec<Cut<'p>> =
            runs.into_iter().map(|run| self.cut(run)).collect::<Result<_, Error>>()?;
        let on_device =
            |cut: &Cut<'_>| cut.parts.iter().any(|part| matches!(part, Part::Device(_)));
        let gains_anyway = self.target.is_none_or(Target::shares_memory);
        if !gains_anyway && !cuts.iter().any(on_device) {
            return Ok(None);
        }
        let mut compiled = Method { instructions: Vec::new(), ..method.clone() };
        // Where each instruction went, for jumps; none leads into a run.
        let mut moved = vec![0; method.instructions.len() + 1];
        let mut cuts = cuts.into_iter().peekable();
        let mut index = 0;
        while index < method.instructions.len() {
            if let Some(place) = moved.get_mut(index) {
                *place = compiled.instructions.len();
            }
            match cuts.next_if(|cut| cut.run.instructions.start == index) {
                Some(cut) => {
                    index = cut.run.instructions.end.max(index + 1);
                    let instructions = self.emit(&mut compiled, cut, &state)?;
                    compiled.instructions.extend(instructions);
                }
                None => {
                    compiled.instructions.extend(method.instructions.get(index).cloned());
                    index += 1;
                }
            }
        }
        if let Some(end) = moved.last_mut() {
            *end = compiled.instructions.len();
        }
        for instruction in &mut compiled.instructions {
            if let Instruction::JumpFalse { destination, .. } = instruction {
                *destination = moved.get(*destination).copied().unwrap_or(0);
            }
        }
        compiled.forget_moved(&self.moved, planned);
        compiled.forget_places(vocabulary, &self.inputs);
        let numbers = compiled.forget_unused();
        for (delegate, _) in &mut self.apart {
            *delegate = numbers.get(*delegate).copied().unwrap_or(0);
        }
        for call in &mut self.calls {
            if let Place::Device(delegate) = &mut call.place {
                *delegate = numbers.get(*delegate).copied().unwrap_or(0);
            }
        }
        compiled.plan()?;
        Ok(Some(compiled))
    }

    /// The method's runs, and the method with what its delegates keep as state, where their graphs are part of a run.
    fn runs(
        &mut self,
        method: Method<'p>,
        named: &Named<'_, 'p>,
        data: &'p [DataMap<'p>],
        vocabulary: &Vocabulary,
    ) -> Result<(Method<'p>, Vec<Run<'p>>), Error> {
        let mut graphs: Vec<Option<Graph<'p>>> = Vec::new();
        for delegate in 0..method.delegates.len() {
            let graph = graph_of(&method, delegate, named).transpose();
            let told = graph.as_ref().err().map(|why| (delegate, why.to_string()));
            self.apart.extend(told);
            graphs.push(graph.ok().flatten());
        }
        let keeps = |graph: &Option<Graph<'_>>| graph.as_ref().is_some_and(joined::keeps_state);
        let stateful: Vec<usize> =
            (0..graphs.len()).filter(|at| graphs.get(*at).is_some_and(keeps)).collect();
        let mut with_state = method.clone();
        let mut joined: Vec<usize> = Vec::new();
        for delegate in stateful {
            let Some(slot) = graphs.get_mut(delegate) else { continue };
            let Some(graph) = slot.take() else { continue };
            match joined::join(&mut with_state, delegate, graph, self.buffer) {
                Ok(graph) => {
                    *slot = Some(graph);
                    joined.push(delegate);
                }
                Err(why) => self.apart.push((delegate, why.to_string())),
            }
        }
        let front = FrontEnd::new(&with_state, &graphs, data, vocabulary).within(self.copies);
        let runs = front.runs()?;
        let inside =
            runs.iter().filter_map(|run| with_state.instructions.get(run.instructions.clone()));
        let inside = inside.flatten().filter_map(|instruction| match instruction {
            Instruction::Delegate { delegate, .. } => Some(*delegate),
            _ => None,
        });
        let inside: BTreeSet<usize> = inside.collect();
        if joined.iter().all(|delegate| inside.contains(delegate)) {
            return Ok((with_state, runs));
        }
        // Other instructions are in the way: what keeps state stays what it was.
        for delegate in joined {
            let why = String::from("an argument that graphs do not say");
            self.apart.push((delegate, why));
            graphs.get_mut(delegate).map(Option::take);
        }
        let front = FrontEnd::new(&method, &graphs, data, vocabulary).within(self.copies);
        let runs = front.runs()?;
        Ok((method, runs))
    }

    /// Decides what of a run goes to the device.
    fn cut(&self, mut run: Run<'p>) -> Result<Cut<'p>, Error> {
        passes::run(&mut run.graph)?;
        if fold::run(&mut run.graph, self.registry)? > 0 {
            passes::run(&mut run.graph)?;
        }
        if !self.target.is_none_or(Target::shares_memory) {
            // Devices have many small copies to lose; kernels on the CPU make views of some of them.
            passes::strided::run(&mut run.graph);
            passes::dead::run(&mut run.graph);
        }
        keep_old_values(&mut run.graph);
        let mut reasons = self.ask(&run.graph);
        // What neither the device nor a kernel computes may consist of what they do.
        let refused: Vec<bool> = reasons.iter().map(Option::is_some).collect();
        if lower::portable::run_some(&mut run.graph, &refused)? {
            reasons = self.ask(&run.graph);
        }
        let parts = self.parts(&run.graph, &mut reasons);
        Ok(Cut { run, parts, reasons })
    }

    /// The parts of a graph, given why calls are not on the device. A region that gains nothing there stays, for that reason.
    fn parts(&self, graph: &Graph<'p>, reasons: &mut [Option<String>]) -> Vec<Part> {
        let cut = |reasons: &[Option<String>]| {
            let on_device: Vec<bool> = reasons.iter().map(Option::is_none).collect();
            partition(graph, &on_device)
        };
        let parts = cut(reasons);
        let mut stays = false;
        for part in &parts {
            let (Part::Device(region), Some(target)) = (part, self.target) else { continue };
            let Err(why) = target.is_worth(graph, region) else { continue };
            for index in &region.nodes {
                if let Some(reason) = reasons.get_mut(*index) {
                    *reason = Some(why.clone());
                }
            }
            stays = true;
        }
        if stays { cut(reasons) } else { parts }
    }

    /// Why each call of a graph cannot be on the device, if it cannot.
    fn ask(&self, graph: &Graph<'p>) -> Vec<Option<String>> {
        match self.target {
            Some(target) => target.accepts_each(graph).into_iter().map(Result::err).collect(),
            None => vec![Some(String::new()); graph.nodes.len()],
        }
    }

    /// The instructions that do what a run did.
    fn emit(
        &mut self,
        method: &mut Method<'p>,
        cut: Cut<'p>,
        state: &Cells,
    ) -> Result<Vec<Instruction>, Error> {
        let Cut { mut run, mut parts, reasons } = cut;
        // Where memory is shared, state lies best where it is.
        if self.target.is_some_and(|target| !target.shares_memory()) {
            self.moved.extend(state.give(method, &mut run, &mut parts));
        }
        let graph = &mut run.graph;
        let became_constant = |id: ValueId, value: usize| {
            matches!(graph.values.get(id), Some(Value::Tensor(tensor)) if tensor.data.is_some())
                && method.tensor(value).is_some_and(|tensor| !tensor.is_constant())
        };
        // No instruction sets any more what was computed beforehand.
        let origins = run.origins.iter().filter(|(id, value)| !became_constant(**id, **value));
        let origins: Vec<(ValueId, usize)> = origins.map(|(id, value)| (*id, *value)).collect();
        let parts_with = parts_with(graph, &parts);
        let mut emitter = Emitter::new(method);
        for (id, value) in origins {
            emitter.bind(id, value);
        }
        for part in &parts {
            match part {
                Part::Host(nodes) => {
                    for index in nodes {
                        let Some(node) = graph.nodes.get(*index) else { continue };
                        emitter.emit(graph, node)?;
                        let reason = reasons.get(*index).cloned().flatten().unwrap_or_default();
                        let place = Place::Host(reason);
                        self.calls.push(PlacedCall::new(node.id, node.title(), place));
                    }
                }
                Part::Device(region) => {
                    let is_last = |id| parts_with.get(&id) == Some(&1);
                    self.emit_region(&mut emitter, graph, region, &is_last)?;
                }
            }
        }
        for (new, old) in &graph.updates {
            let (source, target) = (emitter.value(graph, *new)?, emitter.value(graph, *old)?);
            let instruction = overwrite(source, target, graph.values.get(*new), &mut emitter);
            emitter.push(instruction);
        }
        Ok(emitter.finish())
    }

    /// Makes a delegate of a region, and calls it. Data that `is_last` says nobody else needs moves into it.
    fn emit_region(
        &mut self,
        emitter: &mut Emitter<'_, 'p>,
        graph: &mut Graph<'p>,
        region: &Region,
        is_last: &dyn Fn(ValueId) -> bool,
    ) -> Result<(), Error> {
        let part = region.extract(graph, is_last);
        let part = match self.packer {
            Some(packer) => packer.pack(part),
            None => part,
        };
        let mut args = Vec::new();
        for id in &region.inputs {
            args.push(emitter.value(graph, *id)?);
        }
        let calls = region.nodes.iter().filter_map(|index| graph.nodes.get(*index));
        args.extend(emitter.results(graph, calls.clone(), &region.outputs)?);
        let processed = Cow::Owned(blob::write(part, self.constants)?);
        let backend = self.target.map_or("", |target| target.backend()).to_owned();
        let delegates = &mut emitter.method().delegates;
        let delegate = delegates.len();
        delegates.push(Delegate { backend, processed, specs: Vec::new() });
        emitter.push(Instruction::Delegate { delegate, args });
        self.inputs.insert(delegate, region.inputs.len());
        let place = Place::Device(delegate);
        self.calls.extend(calls.map(|node| PlacedCall::new(node.id, node.title(), place.clone())));
        Ok(())
    }
}

/// How many parts take each value, and the caller.
fn parts_with(graph: &Graph<'_>, parts: &[Part]) -> BTreeMap<ValueId, usize> {
    let mut count: BTreeMap<ValueId, usize> = BTreeMap::new();
    let kept = graph.outputs.iter().chain(graph.updates.iter().flat_map(|(new, old)| [new, old]));
    kept.for_each(|id| *count.entry(*id).or_default() += 1);
    for part in parts {
        let (Part::Host(nodes) | Part::Device(Region { nodes, .. })) = part;
        let nodes = nodes.iter().filter_map(|index| graph.nodes.get(*index));
        let args = nodes.flat_map(|node| &node.args).flat_map(|id| graph.items(id));
        for id in args.copied().collect::<BTreeSet<ValueId>>() {
            *count.entry(id).or_default() += 1;
        }
    }
    count
}

/// The instruction that gives a value what another is.
fn overwrite(
    source: usize,
    target: usize,
    kind: Option<&Value<'_>>,
    emitter: &mut Emitter<'_, '_>,
) -> Instruction {
    if !matches!(kind, Some(Value::Tensor(_))) {
        return Instruction::Move { from: source, to: target };
    }
    let flag = emitter.method().add(MethodValue::Scalar(Scalar::Bool(false)));
    let args = vec![target, source, flag, target];
    Instruction::Kernel { name: "aten::copy_".to_owned(), overload: String::new(), args }
}

/// Copies values that were there before and become those of others: they may be overwritten first.
fn keep_old_values(graph: &mut Graph<'_>) {
    let before: BTreeSet<ValueId> = graph.inputs.iter().copied().collect();
    let mut updates = core::mem::take(&mut graph.updates);
    for (new, _) in updates.iter_mut().filter(|(new, _)| before.contains(new)) {
        let Some(value @ Value::Tensor(_)) = graph.values.get(*new).cloned() else { continue };
        graph.values.extend([Value::None, value]);
        let (none, copy) = (graph.values.len() - 2, graph.values.len() - 1);
        let args = vec![*new, none, copy];
        graph.nodes.push(Node { id: 0, operator: Operator::CLONE, args, parts: Vec::new() });
        *new = copy;
    }
    graph.updates = updates;
}

#[cfg(test)]
mod tests;
