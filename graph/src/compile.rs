//! Compiles a program for given processors: calls that a processor supports move into delegates,
//! and all other calls stay kernel instructions.

use crate::budget::Computed;
use crate::calls::kept;
use crate::cells::{self, Cells};
use crate::emit::Emitter;
use crate::error::Error;
use crate::front::delegate::{graph_of, is_for_device, only_compiled};
use crate::front::joined;
use crate::front::vgf::refuse_shaders;
use crate::front::{CallOrigin, Copies, FrontEnd, Origins, Run, Vocabulary};
use crate::graph::{Graph, Node, Value, ValueId};
use crate::method::{Delegate, Instruction, Method, MethodValue, Program};
use crate::named::{Constants, Named, of_program};
use crate::operators::Operator;
use crate::partition::{Part, Region};
use crate::placement::Placement;
use crate::processors::Processors;
use crate::report::{CallReport, Location, MethodReport, Report};
use crate::target::{Packer, Target};
use crate::unplanned::StateBuffers;
use crate::{blob, floating, fold, in_place, lower, passes};
use alloc::borrow::{Cow, ToOwned};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::{DataMap, Registry, Scalar};

/// Compiled program.
#[derive(Debug, Clone)]
pub struct Compiled<'p> {
    /// The program; [`Program::write`] serializes it.
    pub program: Program<'p>,
    /// Where each call runs, and why.
    pub report: Report,
}

/// Compiles a program, with the external data that it refers to, for processors. Kernels of the
/// registry run the calls that no processor supports.
///
/// # Errors
/// The program is malformed, or has an XNNPACK or VGF delegate that can neither be compiled nor
/// run.
pub fn compile<'p>(
    program: &torchlet_core::Program<'p>,
    data: &'p [DataMap<'p>],
    processors: Processors<'_>,
    registry: &Registry<'_>,
) -> Result<Compiled<'p>, Error> {
    let read = Program::read(program)?;
    compile_read(read, Vec::new(), program, data, processors, None, registry)
}

/// Compiles a parsed program that may have been rewritten. For each rewritten method, `origins`
/// lists the original call of every instruction. `program` holds the data of the delegates.
pub(crate) fn compile_read<'p>(
    mut compiled: Program<'p>,
    mut origins: Vec<Vec<CallOrigin>>,
    program: &torchlet_core::Program<'p>,
    data: &'p [DataMap<'p>],
    processors: Processors<'_>,
    packer: Option<&'p dyn Packer>,
    registry: &Registry<'_>,
) -> Result<Compiled<'p>, Error> {
    let vocabulary = Vocabulary::of(registry);
    let mut report = Report::default();
    let mut constants = Constants::new(&compiled.unused_prefix());
    let named = of_program(program, data);
    let (copies, computed) = (Copies::of(&compiled.methods), Computed::new());
    let shared = cells::shared_buffers(&compiled.methods);
    // State that a method's delegates keep gets a separate buffer, which no other method uses.
    let mut buffers = StateBuffers::after(&compiled.methods);
    origins.resize(compiled.methods.len(), Vec::new());
    for (method, origins) in compiled.methods.iter_mut().zip(&origins) {
        let mut compiler = MethodCompiler {
            processors,
            packer,
            registry,
            copies: &copies,
            computed: computed.clone(),
            constants: &mut constants,
            shared: &shared,
            buffer: buffers.unused(),
            inputs: BTreeMap::new(),
            moved: BTreeSet::new(),
            report: MethodReport::default(),
            is_for_devices: false,
        };
        let mut described = MethodReport { name: method.name.clone(), ..MethodReport::default() };
        match compiler.compile(method, origins, &named, data, &vocabulary) {
            Ok(Some(compiled)) => {
                *method = compiled;
                buffers.count(method);
                described = MethodReport { name: described.name, ..compiler.report };
            }
            Ok(None) => {
                described.unreadable_delegates = compiler.report.unreadable_delegates;
                described.unchanged_reason = Some(String::from(NOTHING_GAINED));
            }
            Err(Error::Unsupported(why)) => {
                described.unreadable_delegates = compiler.report.unreadable_delegates;
                described.unchanged_reason = Some(why);
            }
            Err(error) => return Err(error),
        }
        let backends = method.delegates.iter().map(|delegate| delegate.backend.clone());
        described.delegates = backends.collect();
        if let Some(why) = left_behind(&described, registry) {
            return Err(why);
        }
        report.methods.push(described);
    }
    compiled.named.extend(constants.into_named());
    compiled.forget_unused_data()?;
    Ok(Compiled { program: compiled, report })
}

/// Returns an error if a method still has a delegate that runs only compiled and the registry has
/// no backend for it.
fn left_behind(method: &MethodReport, registry: &Registry<'_>) -> Option<Error> {
    let mut backends = method.delegates.iter();
    let is_left = |it: &&String| only_compiled(it).is_some() && registry.backend(it).is_none();
    let name = only_compiled(backends.find(is_left)?)?;
    let apart = method.unreadable_delegates.first().map(|(_, why)| why);
    let why = apart.or(method.unchanged_reason.as_ref()).map_or("", String::as_str);
    Some(Error::Unsupported(format!("{name} delegate: {why}")))
}

/// Why a method is left unchanged if no processor supports any of its calls.
const NOTHING_GAINED: &str = "no processor that runs any of its calls";

struct MethodCompiler<'c, 'p> {
    processors: Processors<'c>,
    /// Packs the weights of regions for one of the processors.
    packer: Option<&'p dyn Packer>,
    registry: &'c Registry<'c>,
    copies: &'c Copies,
    computed: Computed,
    constants: &'c mut Constants<'p>,
    /// Planned buffers that several methods use.
    shared: &'c BTreeSet<usize>,
    /// Number of an unused planned buffer; `None` if the limit is reached.
    buffer: Option<usize>,
    /// Number of inputs of each new delegate.
    inputs: BTreeMap<usize, usize>,
    /// State that moved into regions.
    moved: BTreeSet<usize>,
    report: MethodReport,
    /// Whether the exporter lowered the method for a device other than the CPU.
    is_for_devices: bool,
}

/// A partitioned run, with the reasons for the placement of its calls.
struct Cut<'c, 'p> {
    run: Run<'p>,
    parts: Vec<Part>,
    placement: Placement<'c>,
    decision: Option<String>,
    /// Report sentences about quantized calls that kernels compute in floating point.
    fallbacks: Vec<String>,
}

/// Estimated speedup that is required to move a run away from the kind of processor that the method
/// was exported for. Estimates can be off by a factor of two.
const CLEARLY: f64 = 2.0;

impl<'c, 'p> MethodCompiler<'c, 'p> {
    /// Compiles a method. Returns `None` if no processor supports any call, unless kernels gain
    /// from compilation as well.
    fn compile(
        &mut self,
        method: &Method<'p>,
        origins: &[CallOrigin],
        named: &Named<'_, 'p>,
        data: &'p [DataMap<'p>],
        vocabulary: &Vocabulary,
    ) -> Result<Option<Method<'p>>, Error> {
        let (before, mut method, planned) = (method, method.clone(), method.planned.len());
        let graphs: Vec<Result<Option<Graph<'p>>, Error>> = (0..method.delegates.len())
            .map(|delegate| graph_of(&method, delegate, named, &self.computed).transpose())
            .collect();
        let told = graphs.iter().enumerate();
        let told = told.filter_map(|(at, graph)| Some((at, graph.as_ref().err()?.to_string())));
        self.report.unreadable_delegates.extend(told);
        let graphs: Vec<Option<Graph<'p>>> =
            graphs.into_iter().map(|graph| graph.ok().flatten()).collect();
        method.place_state(vocabulary, &inputs_of(&graphs), self.buffer)?;
        if !method.make_views_explicit(vocabulary, &inputs_of(&graphs)) {
            return Err(Error::unsupported(
                "views that the exporter elided, in a method with too many jumps",
            ));
        }
        let origin = |number| match origins {
            [] => Some(CallOrigin::of(number)),
            _ => origins.get(number).copied(),
        };
        let numbers = kept(before, &method).into_iter();
        self.report.origins = numbers.map(|number| number.and_then(origin)).collect();
        let (method, runs, inputs) = self.runs(method, graphs, data, vocabulary)?;
        let fresh = method.written_first(vocabulary, &inputs);
        let state = Cells::of(&method, self.shared, &fresh);
        let cuts: Vec<Cut<'c, 'p>> =
            runs.into_iter().map(|run| self.cut(run)).collect::<Result<_, Error>>()?;
        let on_device =
            |cut: &Cut<'_, '_>| cut.parts.iter().any(|part| matches!(part, Part::Device(..)));
        // Compilation also speeds up kernels, so a program for processors with shared memory is
        // compiled anyway.
        let mut targets = self.processors.targets.iter();
        let gains_anyway =
            self.processors.targets.is_empty() || targets.any(|target| target.shares_memory());
        if !gains_anyway && !cuts.iter().any(on_device) {
            return Ok(None);
        }
        let kept: BTreeSet<usize> =
            cuts.iter().flat_map(|cut| kept_by(&method, &cut.run)).collect();
        let mut compiled = Method { instructions: Vec::new(), ..method.clone() };
        // New index of each instruction, for jumps. No jump leads into a run.
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
        compiled.name_state(&kept);
        let numbers = compiled.forget_unused();
        let named = self.report.fused.iter_mut().chain(&mut self.report.unreadable_delegates);
        for (delegate, _) in named {
            *delegate = numbers.get(*delegate).copied().unwrap_or(0);
        }
        let calls = self.report.calls.iter_mut().map(|call| &mut call.location);
        for place in calls.chain(self.report.parts.iter_mut().map(|part| &mut part.location)) {
            if let Location::Device(delegate) = place {
                *delegate = numbers.get(*delegate).copied().unwrap_or(0);
            }
        }
        compiled.plan()?;
        Ok(Some(compiled))
    }

    /// Returns the method, its runs, and the number of inputs of each delegate with a known graph.
    /// If the runs include all delegates that have state, that state becomes state of the method.
    fn runs(
        &mut self,
        method: Method<'p>,
        mut graphs: Vec<Option<Graph<'p>>>,
        data: &'p [DataMap<'p>],
        vocabulary: &Vocabulary,
    ) -> Result<(Method<'p>, Vec<Run<'p>>, BTreeMap<usize, usize>), Error> {
        let origins = Origins::of(&method, &graphs);
        let instructions = core::mem::take(&mut self.report.origins);
        self.report.origins = origins.behind(instructions);
        let mut known = graphs.iter().zip(&method.delegates);
        self.is_for_devices =
            known.any(|(graph, delegate)| graph.is_some() && is_for_device(delegate));
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
                Err(why) => self.report.unreadable_delegates.push((delegate, why.to_string())),
            }
        }
        let front = FrontEnd::new(&with_state, &graphs, data, vocabulary).numbered(&origins);
        let front = front.within(self.copies);
        let runs = front.runs()?;
        let inside =
            runs.iter().filter_map(|run| with_state.instructions.get(run.instructions.clone()));
        let inside = inside.flatten().filter_map(|instruction| match instruction {
            Instruction::Delegate { delegate, .. } => Some(*delegate),
            _ => None,
        });
        let inside: BTreeSet<usize> = inside.collect();
        if joined.iter().all(|delegate| inside.contains(delegate)) {
            let inputs = inputs_of(&graphs);
            return Ok((with_state, runs, inputs));
        }
        // A delegate with state is not part of any run, since a graph cannot express an argument of
        // the delegate's call. Then all delegates with state stay delegates.
        for delegate in joined {
            let why = String::from("an argument of its call that a graph cannot represent");
            self.report.unreadable_delegates.push((delegate, why));
            graphs.get_mut(delegate).map(Option::take);
        }
        let front = FrontEnd::new(&method, &graphs, data, vocabulary).numbered(&origins);
        let front = front.within(self.copies);
        let (runs, inputs) = (front.runs()?, inputs_of(&graphs));
        Ok((method, runs, inputs))
    }

    /// Partitions a run, and chooses between devices with their own memory and other processors.
    fn cut(&self, mut run: Run<'p>) -> Result<Cut<'c, 'p>, Error> {
        passes::run(&mut run.graph)?;
        let has_shaders = run.graph.nodes.iter().any(|node| node.operator == Operator::SHADER);
        // Shaders run on devices only, so there is nothing to compare.
        if !self.processors.are_compared() || has_shaders {
            let graph = core::mem::take(&mut run.graph);
            let (graph, placement, fallbacks) = self.place(graph, Where::Anywhere)?;
            let cut = Cut::new(Run { graph, ..run }, placement, None);
            return Ok(Cut { fallbacks, ..cut });
        }
        let (far, placement, _) = self.place(run.graph.clone(), Where::Cheapest)?;
        let (near, nearby, _) = self.place(core::mem::take(&mut run.graph), Where::Nearby)?;
        let ((there, any), here) = (placement.far_seconds(&far), nearby.seconds(&near));
        let is_clear = match self.is_for_devices {
            true => here * CLEARLY >= there,
            false => there * CLEARLY < here,
        };
        let is_there = is_clear && any;
        let decision = decision(there, here, is_there, self.is_for_devices);
        let (graph, placement) = if is_there { (far, placement) } else { (near, nearby) };
        Ok(Cut::new(Run { graph, ..run }, placement, Some(decision)))
    }

    /// Assigns the calls of a graph to processors. Calls that neither a processor nor a kernel
    /// supports are decomposed first.
    fn place(
        &self,
        mut graph: Graph<'p>,
        place: Where,
    ) -> Result<(Graph<'p>, Placement<'c>, Vec<String>), Error> {
        let targets = self.processors.targets.iter();
        let asked = targets.filter(|it| place != Where::Nearby || it.shares_memory());
        // Without other processors, integer kernels compute quantized networks, too.
        let kernels = self.processors.targets.is_empty();
        let by_kernels = |graph: &Graph<'_>, node: &Node| {
            kernels && lower::portable::integers::accepts(graph, node, self.registry)
        };
        let by_targets = |graph: &Graph<'_>, node: &Node| {
            asked.clone().any(|target| target.accepts(graph, node).is_ok())
        };
        // Only the preferred processor decides about exact layers and the passes below, so that
        // they do not move calls away from it.
        let mut first = self.processors.targets.iter();
        let first = first.find(|it| place != Where::Nearby || it.shares_memory());
        let is_accepted = |graph: &Graph<'_>, node: &Node| {
            first.is_some_and(|target| target.accepts(graph, node).is_ok())
        };
        // Kernels compute TOSA's integers exactly, so they need no other operators.
        let fused = passes::tosa::run(&mut graph, &mut |graph, node| match passes::tosa::is_exact(
            graph, node,
        ) {
            true => is_accepted(graph, node),
            false => by_targets(graph, node),
        }) + passes::quantized::run(&mut graph, &mut |graph, node| {
            by_targets(graph, node) || by_kernels(graph, node)
        });
        let mut by_first =
            |graph: &Graph<'_>, node: &Node| is_accepted(graph, node) || by_kernels(graph, node);
        let dynamic = passes::dynamic::run(&mut graph, &mut by_first)
            + passes::dynamic_convolution::run(&mut graph, &mut by_first)
            + passes::lookup::run(&mut graph, &mut by_first)
            + passes::volumes::run(&mut graph, &mut by_first)
            + match kernels {
                true => passes::dynamic::keep_weights(&mut graph, &mut by_first),
                false => 0,
            };
        // A pattern that matched only in part can leave unused calls.
        passes::dead::run(&mut graph);
        let fallbacks = if kernels { floating::describe(&graph) } else { Vec::new() };
        if fold::run(&mut graph, self.registry)? + fused + dynamic > 0 {
            passes::run(&mut graph)?;
        }
        if kernels && lower::portable::integers::has_calls(&graph, self.registry) {
            // First fuse activations into the layers that they follow, then join layers that only
            // permutations separate. Permutations that cancel out must be removed first, so that no
            // call moves in between them.
            passes::permuted::run(&mut graph);
            passes::redundant::run(&mut graph);
            passes::dead::run(&mut graph);
            lower::portable::integers::run(&mut graph, self.registry);
            passes::redundant::run(&mut graph);
            passes::permuted::run(&mut graph);
            passes::run(&mut graph)?;
        }
        if place != Where::Nearby && !self.processors.share_memory() {
            // Small copies are expensive on devices. Kernels on the CPU turn some copies into views
            // instead.
            passes::permuted::run(&mut graph);
            passes::redundant::run(&mut graph);
            passes::strided::run(&mut graph);
            passes::dead::run(&mut graph);
        }
        keep_old_values(&mut graph);
        let placed = |graph: &Graph<'p>| {
            let placement = Placement::preferred(graph, self.processors, self.registry);
            if place == Where::Nearby { placement.nearby(graph) } else { placement }
        };
        let mut placement = placed(&graph);
        let on_host = placement.on_host();
        refuse_shaders(&graph, |call| on_host.get(call) == Some(&true))?;
        // The decomposed calls have kernels.
        if lower::portable::run_some(&mut graph, &on_host)? {
            placement = placed(&graph);
        }
        if place == Where::Cheapest {
            placement.improve(&graph);
        }
        Ok((graph, placement, fallbacks))
    }

    /// Returns the instructions that replace a run.
    fn emit(
        &mut self,
        method: &mut Method<'p>,
        cut: Cut<'c, 'p>,
        state: &Cells,
    ) -> Result<Vec<Instruction>, Error> {
        let Cut { mut run, mut parts, placement, decision, fallbacks } = cut;
        self.report.decisions.extend(decision);
        self.report.fallbacks.extend(fallbacks);
        // On processors with shared memory, state stays in the memory of the method.
        let targets = self.processors.targets;
        let is_far =
            |processor: usize| targets.get(processor).is_some_and(|it| !it.shares_memory());
        self.moved.extend(state.give(method, &mut run, &mut parts, is_far));
        let graph = &mut run.graph;
        let became_constant = |id: ValueId, value: usize| {
            matches!(graph.values.get(id), Some(Value::Tensor(tensor)) if tensor.data.is_some())
                && method.tensor(value).is_some_and(|tensor| !tensor.is_constant())
        };
        // Constant folding replaced some values: no instruction sets them any more.
        let origins = run.origins.iter().filter(|(id, value)| !became_constant(**id, **value));
        let origins: Vec<(ValueId, usize)> = origins.map(|(id, value)| (*id, *value)).collect();
        let parts_with = parts_with(graph, &parts);
        let mut in_place = in_place::new_values(graph, &parts);
        let bound: BTreeMap<ValueId, usize> = origins.iter().copied().collect();
        in_place.retain(|new, old| {
            let tensor = bound.get(old).and_then(|value| method.tensor(*value));
            // A value that is already a tensor of the method stays there. Tensors in another memory
            // order cannot be written in place.
            tensor.is_some_and(|it| it.info.is_contiguous()) && !bound.contains_key(new)
        });
        let mut emitter = Emitter::new(method);
        for (id, value) in &bound {
            emitter.bind(*id, *value);
        }
        for (new, old) in &in_place {
            bound.get(old).into_iter().for_each(|value| emitter.bind(*new, *value));
        }
        for part in &parts {
            match part {
                Part::Host(nodes) => {
                    for index in nodes {
                        let Some(node) = graph.nodes.get(*index) else { continue };
                        emitter.emit(graph, node)?;
                        let reason = placement.reason(*index);
                        self.report.calls.push(CallReport::new(node, Location::Host, reason));
                    }
                    self.report.parts.push(placement.describe(graph, part, Location::Host));
                }
                Part::Device(processor, region) => {
                    // Describe the part before its constants move into the delegate.
                    let mut described = placement.describe(graph, part, Location::Host);
                    let is_last = |id| parts_with.get(&id) == Some(&1);
                    let delegate =
                        self.emit_region(&mut emitter, graph, *processor, region, &is_last)?;
                    for index in &region.nodes {
                        let Some(node) = graph.nodes.get(*index) else { continue };
                        let (place, reason) =
                            (Location::Device(delegate), placement.reason(*index));
                        self.report.calls.push(CallReport::new(node, place, reason));
                    }
                    described.location = Location::Device(delegate);
                    self.report.parts.push(described);
                }
            }
        }
        for (new, old) in graph.updates.iter().filter(|(new, _)| !in_place.contains_key(new)) {
            let (source, target) = (emitter.value(graph, *new)?, emitter.value(graph, *old)?);
            let instruction = overwrite(source, target, graph.values.get(*new), &mut emitter);
            emitter.push(instruction);
        }
        Ok(emitter.finish())
    }

    /// Creates a delegate from a region and adds a call of it. Moves the data of constants for
    /// which `is_last` returns true into the delegate. Returns the index of the delegate.
    fn emit_region(
        &mut self,
        emitter: &mut Emitter<'_, 'p>,
        graph: &mut Graph<'p>,
        processor: usize,
        region: &Region,
        is_last: &dyn Fn(ValueId) -> bool,
    ) -> Result<usize, Error> {
        let target = self.processors.targets.get(processor);
        let backend = target.map_or("", |target| target.backend());
        let part = region.extract(graph, is_last);
        let fused = target.map_or(Vec::new(), |target| fused_calls(*target, &part));
        let part = match self.packer.filter(|packer| packer.backend() == backend) {
            Some(packer) => packer.pack(part),
            None => part,
        };
        let mut args = Vec::new();
        for id in &region.inputs {
            args.push(emitter.value(graph, *id)?);
        }
        let calls = region.nodes.iter().filter_map(|index| graph.nodes.get(*index));
        args.extend(emitter.results(graph, calls, &region.outputs)?);
        let processed = Cow::Owned(blob::write(part, self.constants)?);
        let delegates = &mut emitter.method().delegates;
        let delegate = delegates.len();
        delegates.push(Delegate { backend: backend.to_owned(), processed, specs: Vec::new() });
        emitter.push(Instruction::Delegate { delegate, args });
        self.report.fused.extend(fused.into_iter().map(|title| (delegate, title)));
        self.inputs.insert(delegate, region.inputs.len());
        Ok(delegate)
    }
}

/// Titles of the calls that a processor fuses in a region.
fn fused_calls(target: &dyn Target, region: &Graph<'_>) -> Vec<String> {
    let operators: BTreeSet<Operator> = region.nodes.iter().map(|node| node.operator).collect();
    let mut graph = region.borrowed();
    target.fuse(&mut graph);
    let is_new = |node: &&Node| {
        let is_own = node.operator.name().starts_with("torchlet.");
        !node.parts.is_empty() || is_own && !operators.contains(&node.operator)
    };
    graph.nodes.iter().filter(is_new).map(Node::title).collect()
}

/// Maps each delegate with a known graph to its number of inputs.
fn inputs_of(graphs: &[Option<Graph<'_>>]) -> BTreeMap<usize, usize> {
    let graphs = graphs.iter().enumerate();
    graphs.filter_map(|(at, graph)| Some((at, graph.as_ref()?.inputs.len()))).collect()
}

/// Constraint on the placement of calls.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Where {
    /// On the first processor that supports the call.
    Anywhere,
    /// Like `Anywhere`, but a region moves to another processor if that reduces the total time.
    Cheapest,
    /// On processors that work in host memory.
    Nearby,
}

impl<'c, 'p> Cut<'c, 'p> {
    fn new(run: Run<'p>, placement: Placement<'c>, decision: Option<String>) -> Self {
        let parts = placement.parts(&run.graph);
        Cut { run, parts, placement, decision, fallbacks: Vec::new() }
    }
}

/// Describes the choice between devices with their own memory (`there`) and other processors
/// (`here`), with estimated seconds.
fn decision(there: f64, here: f64, is_there: bool, was_made_for_it: bool) -> String {
    let time = |seconds: f64| match seconds.is_finite() {
        true => format!("{:.3} ms", seconds * 1e3),
        false => String::from("not possible"),
    };
    let verdict = if is_there { "device used" } else { "device not used" };
    let rule = match was_made_for_it {
        true => "lowered for a device: stays there unless that doubles the time",
        false => "a device must at least halve the time",
    };
    let (there, here) = (time(there), time(here));
    format!("estimate with device: {there}, without: {here}; {verdict} ({rule})")
}

/// Counts the parts that use each value; the outputs and updates of the graph count as well.
fn parts_with(graph: &Graph<'_>, parts: &[Part]) -> BTreeMap<ValueId, usize> {
    let mut count: BTreeMap<ValueId, usize> = BTreeMap::new();
    let kept = graph.outputs.iter().chain(graph.updates.iter().flat_map(|(new, old)| [new, old]));
    kept.for_each(|id| *count.entry(*id).or_default() += 1);
    for part in parts {
        let (Part::Host(nodes) | Part::Device(_, Region { nodes, .. })) = part;
        let nodes = nodes.iter().filter_map(|index| graph.nodes.get(*index));
        let args = nodes.flat_map(|node| &node.args).flat_map(|id| graph.items(id));
        for id in args.copied().collect::<BTreeSet<ValueId>>() {
            *count.entry(id).or_default() += 1;
        }
    }
    count
}

/// Returns the instruction that overwrites a value with another one.
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

/// Tensors of a method that a run reads, and that earlier runs may have written.
fn kept_by(method: &Method<'_>, run: &Run<'_>) -> Vec<usize> {
    let values = run.graph.inputs.iter().filter_map(|id| run.origins.get(id)).copied();
    values.filter(|value| !method.inputs.contains(value)).collect()
}

/// Copies inputs that become new state values: they might be overwritten before the update.
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
