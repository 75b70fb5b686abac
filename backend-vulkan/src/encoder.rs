//! What operators encode with: they look at their arguments, give their outputs shapes and emit
//! [`Step`]s over tensors; where tensors lie is decided later.

mod arguments;
mod cells;
mod parts;
mod strided;

pub(crate) use cells::{GraphReads, Reads};

pub(crate) use crate::steps::{Access, read, write};
pub(crate) use crate::tensors::{numel_of, u32_of};

use crate::choices::Choices;
use crate::derived::{Derived, Source};
use crate::device::{DeviceFeatures, Limits, MOST_INVOCATIONS, PipelineKey};
use crate::error::Error;
use crate::ids::IdMap;
use crate::stages::Epilogue;
use crate::state::{Contents, DeviceTensor, State, Storage};
use crate::steps::Step;
use crate::tensors::{Operand, TensorId};
use std::cell::OnceCell;
use std::sync::Arc;
use torchlet_core::ScalarType;
use torchlet_graph::graph::{Graph, Node, Value, ValueId};
use torchlet_graph::operators::Operator;
use torchlet_shaders::{Element, Module, Pipeline, PushConstants};

/// Encodes the calls of a graph, one at a time.
pub(crate) struct Encoder<'e, 'p> {
    graph: &'e Graph<'p>,
    state: &'e mut State,
    steps: Vec<Step>,
    /// Whether steps bind a tensor already.
    bound: Vec<bool>,
    node: usize,
    added: usize,
    chosen: usize,
    noted: usize,
    /// Whether the current call asks no more.
    settled: bool,
    /// What is to be done to the result of the current call, until it takes it.
    epilogue: Option<Epilogue>,
    /// Whether the shapes are those that memory is planned for: then tensors and constants may be
    /// added.
    planning: bool,
    /// Who reads what, and what is overwritten when all is done.
    reads: Reads,
    /// The calls that read each value, and the values that calls write to, once somebody asks.
    readers: OnceCell<IdMap<ValueId, Vec<usize>>>,
    written: OnceCell<Vec<ValueId>>,
    /// Whether there are tensors of varying shapes, once somebody asks.
    dynamic: OnceCell<bool>,
}

/// The invocations of a workgroup of a one-dimensional dispatch.
const LINEAR_WORKGROUP: u32 = 64;

/// The same where there are many times as many as keep the device busy: beginning workgroups takes
/// time, too. On an NVIDIA H200, a sum of 2^24 halves takes 28 µs so, and 43 in workgroups of 64;
/// smaller ones take the same in either.
const WIDE_WORKGROUP: u32 = 256;
const MANY_TIMES: usize = 4;

impl<'e, 'p> Encoder<'e, 'p> {
    /// Nothing is encoded yet.
    pub(crate) fn new(graph: &'e Graph<'p>, state: &'e mut State, planning: bool) -> Self {
        let of_graph = || Arc::new(GraphReads::of(graph));
        let reads = Reads::new(state.reads.get_or_insert_with(of_graph).clone());
        let steps = Vec::with_capacity(graph.nodes.len());
        Encoder { planning, steps, ..Encoder::again(graph, state, reads) }
    }

    /// Calls of a graph that was encoded before are encoded again.
    pub(crate) fn again(graph: &'e Graph<'p>, state: &'e mut State, reads: Reads) -> Self {
        Encoder {
            graph,
            state,
            steps: Vec::new(),
            bound: Vec::new(),
            node: 0,
            added: 0,
            chosen: 0,
            noted: 0,
            settled: false,
            epilogue: None,
            planning: false,
            reads,
            readers: OnceCell::new(),
            written: OnceCell::new(),
            dynamic: OnceCell::new(),
        }
    }

    /// Goes on to the call at this position of the graph, which it tells.
    pub(crate) fn begin(&mut self, node: usize) -> Option<&'e Node> {
        self.node = node;
        (self.added, self.chosen, self.noted, self.settled) = (0, 0, 0, false);
        self.epilogue = None;
        self.graph.nodes.get(node)
    }

    /// What was encoded, and who reads what.
    pub(crate) fn finish(self) -> (Vec<Step>, Reads) {
        (self.steps, self.reads)
    }

    /// The place of the current call's next choice, and the choices of all.
    pub(crate) fn next_choice(&mut self) -> ((usize, usize), &mut Choices, bool) {
        let place = (self.node, self.chosen);
        self.chosen += 1;
        (place, &mut self.state.choices, self.planning)
    }

    /// The size of a workgroup as it was when memory was planned, so that other shapes need no
    /// other pipeline: `here` as long as it is being planned. The same call must ask for the same
    /// ones, in order, whatever the shapes.
    pub(crate) fn as_planned(&mut self, here: [u32; 2]) -> [u32; 2] {
        let place = (self.node, self.noted);
        self.noted += 1;
        if self.planning {
            self.state.workgroups.insert(place, here);
        }
        self.state.workgroups.get(&place).copied().unwrap_or(here)
    }

    /// Has the rest of the current call go the usual way, as a part of what was chosen for the
    /// whole.
    pub(crate) fn settle(&mut self) {
        self.settled = true;
    }

    /// Whether the rest of the current call goes the usual way.
    pub(crate) fn is_settled(&self) -> bool {
        self.settled
    }

    /// Whether the current call reads integers that can change from one run to the next: then its
    /// dispatches should differ in parameters alone.
    pub(crate) fn varies(&self) -> bool {
        self.state.varying.binary_search(&self.node).is_ok()
    }

    /// Whether memory is planned for the shapes that there are.
    pub(crate) fn is_planning(&self) -> bool {
        self.planning
    }

    /// Leaves to the operator of the current call what is to be done to its result.
    pub(crate) fn set_epilogue(&mut self, epilogue: Epilogue) {
        self.epilogue = Some(epilogue);
    }

    /// What is to be done to the result of the current call.
    pub(crate) fn take_epilogue(&mut self) -> Option<Epilogue> {
        self.epilogue.take()
    }

    /// The calls that the current one was fused from.
    pub(crate) fn parts(&self) -> &'e [Node] {
        self.graph.nodes.get(self.node).map(|node| node.parts.as_slice()).unwrap_or_default()
    }

    /// The current call.
    pub(crate) fn call(&self) -> Result<&'e Node, Error> {
        self.graph.nodes.get(self.node).ok_or_else(|| Error::invalid("there is no call"))
    }

    /// The current call's operator.
    pub(crate) fn operator(&self) -> Result<Operator, Error> {
        self.call().map(|node| node.operator)
    }

    fn value(&self, id: ValueId) -> Result<&Value<'p>, Error> {
        self.graph
            .values
            .get(id)
            .ok_or_else(|| Error::Invalid(format!("value {id} is out of range")))
    }

    /// The element type that a tensor has for the host.
    pub(crate) fn scalar_type(&self, tensor: &Operand) -> Option<ScalarType> {
        match self.value(tensor.value) {
            Ok(Value::Tensor(tensor)) => Some(tensor.scalar_type),
            _ => None,
        }
    }

    /// The bytes of a constant tensor, as they are on the device.
    pub(crate) fn device_data(&self, id: TensorId) -> Option<&[u8]> {
        match &self.state.tensor(self.state.root(id)).ok()?.storage {
            Storage::Constant(Contents::Made(bytes)) => Some(bytes),
            Storage::Constant(Contents::Graph) => match self.value(self.state.root(id)) {
                Ok(Value::Tensor(tensor)) => tensor.data.as_deref(),
                _ => None,
            },
            _ => None,
        }
    }

    /// A tensor of the file whose bytes others can be made from: they are the same in every run.
    pub(crate) fn constant(&self, id: TensorId) -> Option<Source> {
        let id = self.state.root(id);
        if self.state.changing.contains(&id) {
            return None;
        }
        match self.state.tensor(id).ok()? {
            DeviceTensor {
                element,
                storage:
                    Storage::Constant(Contents::Graph | Contents::Converted(_) | Contents::Made(_)),
                ..
            } => Some(Source { id, element: *element }),
            _ => None,
        }
    }

    /// Whether the bytes of a tensor are the same in every run: of the file, or made of such.
    pub(crate) fn is_constant(&self, id: TensorId) -> bool {
        let made = |tensor: &DeviceTensor| {
            matches!(
                tensor.storage,
                Storage::Constant(Contents::Derived(Derived::Transposed(_) | Derived::Nibbles(_)))
            )
        };
        self.constant(id).is_some() || self.state.tensor(self.state.root(id)).is_ok_and(made)
    }

    /// The shape of a value's tensor when all shapes are at their bounds: what kernels are chosen
    /// by, so that a change of shapes needs no other pipelines.
    pub(crate) fn bound_sizes(&self, tensor: &Operand) -> Vec<usize> {
        match self.value(tensor.value) {
            Ok(Value::Tensor(bound)) if bound.sizes.len() == tensor.rank() => bound.sizes.clone(),
            _ => tensor.sizes.clone(),
        }
    }

    /// Whether a tensor's shape can change from run to run.
    pub(crate) fn is_dynamic(&self, tensor: &Operand) -> bool {
        matches!(self.value(tensor.value), Ok(Value::Tensor(bound)) if bound.dynamic)
    }

    /// Whether the graph is of 16 bits only because the exporter made them of 32.
    pub(crate) fn is_narrowed(&self) -> bool {
        self.state.narrowed
    }

    /// Invocations that keep the device busy.
    pub(crate) fn busy(&self) -> usize {
        self.state.busy
    }

    /// The device's processors.
    pub(crate) fn processors(&self) -> usize {
        self.state.processors()
    }

    /// What the device takes at most.
    pub(crate) fn limits(&self) -> &Limits {
        &self.state.limits
    }

    /// Bytes of the memory that a workgroup shares.
    pub(crate) fn shared_memory(&self) -> u32 {
        self.state.limits.shared
    }

    /// What the device can do beyond Vulkan 1.1. A pipeline that needs more cannot be dispatched.
    pub(crate) fn features(&self) -> &DeviceFeatures {
        &self.state.features
    }

    /// Whether the device can run a shader.
    pub(crate) fn can_run(&self, module: &Module) -> bool {
        self.features().have(module.features) && self.state.limits.bind(module)
    }

    /// The call that leaves a value to those who take it ([`leave`](Self::leave)), and which of its
    /// outputs that is.
    pub(crate) fn left(&self, id: ValueId) -> Option<(&'e Node, usize)> {
        let left = self.state.left.get(&id)?;
        Some((self.graph.nodes.get(left.call)?, left.which))
    }

    /// The call that computes a value.
    pub(crate) fn producer(&self, id: ValueId) -> Option<&'e Node> {
        self.graph.producer(id)
    }

    /// Element `at` of a tensor of integers that is known on the host: a constant or an input.
    /// `None` for an input while memory is planned.
    pub(crate) fn host_int(&mut self, id: TensorId, at: usize) -> Result<Option<i64>, Error> {
        // Of a part, the numbers of the whole are known.
        let (root, start) = self.state.location(id);
        let missing = || Error::invalid("the index is out of range");
        let element = self.state.tensor(root)?.element;
        let at =
            usize::try_from(start).ok().and_then(|start| at.checked_add(start / element.size()));
        let at = at.ok_or_else(missing)?;
        if self.planning
            && element == Element::I32
            && !self.state.changing.contains(&root)
            && let Some(bytes) = self.device_data(root)
        {
            // Kept, since the bytes are not once they are on the device.
            let ints = bytes.as_chunks::<4>().0.iter().map(|bytes| i32::from_le_bytes(*bytes));
            let ints = ints.collect();
            self.state.host.insert(root, ints);
        }
        if let Some(values) = self.state.host.get(&root) {
            return Ok(Some((*values.get(at).ok_or_else(missing)?).into()));
        }
        if self.planning && self.graph.inputs.contains(&root) {
            return Ok(None);
        }
        Err(Error::unsupported("an integer that is computed on the device"))
    }

    /// Whether a tensor has memory of its own, and so keeps its contents between runs.
    pub(crate) fn is_persistent(&self, id: TensorId) -> bool {
        let root = self.state.root(id);
        matches!(self.state.tensor(root), Ok(DeviceTensor { storage: Storage::Constant(_), .. }))
    }

    /// Sets a symbolic integer.
    pub(crate) fn set_int(&mut self, id: ValueId, value: i64) -> Result<(), Error> {
        match self.state.integers.get_mut(id) {
            Some(Some(slot)) => {
                *slot = value;
                Ok(())
            }
            _ => Err(Error::Invalid(format!("value {id} is not a symbolic integer"))),
        }
    }

    /// Gives a tensor its shape, and tells what it is then.
    pub(crate) fn resize(&mut self, id: ValueId, sizes: &[usize]) -> Result<Operand, Error> {
        let tensor = self
            .state
            .tensors
            .get_mut(id)
            .and_then(Option::as_mut)
            .ok_or_else(|| Error::Invalid(format!("value {id} is not a tensor")))?;
        let numel = numel_of(sizes)?;
        // Memory is planned for the shape in which a tensor was used.
        if tensor.sizes != sizes && self.bound.get(id) == Some(&true) {
            return Err(Error::invalid("a tensor changes its shape after it was used"));
        }
        if tensor.sizes.len() != sizes.len() && tensor.numel() != numel {
            let found = &tensor.sizes;
            return Err(Error::Invalid(format!(
                "the output has shape {found:?}, the operator gives {sizes:?}"
            )));
        }
        if tensor.sizes.len() == sizes.len() {
            tensor.sizes.clear();
            tensor.sizes.extend_from_slice(sizes);
        }
        self.tensor(id)
    }

    /// Makes a tensor use the memory of another that has as many elements of the same type. Nothing
    /// may write to either while the other is needed.
    pub(crate) fn alias(&mut self, id: TensorId, target: TensorId) -> Result<(), Error> {
        let (a, b) = (self.state.tensor(id)?, self.state.tensor(target)?);
        if a.element != b.element || a.numel() != b.numel() {
            return Err(Error::invalid("a view differs from what it views in type or size"));
        }
        self.share(id, self.state.location(target));
        Ok(())
    }

    /// A tensor for intermediate results. The same call must ask for the same ones, in order,
    /// whatever the shapes.
    pub(crate) fn temporary(
        &mut self,
        element: Element,
        sizes: &[usize],
    ) -> Result<Operand, Error> {
        let place = (self.node, self.added);
        self.added += 1;
        numel_of(sizes)?;
        let tensor = DeviceTensor { element, sizes: sizes.to_vec(), storage: Storage::Planned };
        let id = match self.state.added.get(&place) {
            Some(id) => {
                if let Some(slot) = self.state.tensors.get_mut(*id) {
                    *slot = Some(tensor);
                }
                *id
            }
            None if self.planning => {
                let id = self.state.tensors.len();
                self.state.tensors.push(Some(tensor));
                self.state.added.insert(place, id);
                id
            }
            None => {
                return Err(Error::unsupported(
                    "a change of shapes that needs other intermediate tensors",
                ));
            }
        };
        Ok(Operand { id, value: id, element, sizes: sizes.to_vec() })
    }

    /// A tensor for intermediate results that is needed for some shapes alone: whether for those
    /// that there are, and whether others may come. Where it is not needed, its memory is kept for
    /// others.
    pub(crate) fn temporary_for(
        &mut self,
        [needed, varies]: [bool; 2],
        element: Element,
        sizes: &[usize],
    ) -> Result<Option<Operand>, Error> {
        if !needed && !varies {
            return Ok(None);
        }
        let tensor = self.temporary(element, sizes)?;
        if !needed {
            self.reserve(&tensor);
            return Ok(None);
        }
        Ok(Some(tensor))
    }

    /// A constant that is made when the graph is compiled, once for all calls that need the same
    /// one.
    pub(crate) fn derived(&mut self, derived: Derived) -> Result<Operand, Error> {
        let (element, sizes) = (derived.element(), derived.sizes());
        numel_of(&sizes)?;
        let id = match self.state.derived.get(&derived) {
            Some(id) => *id,
            None if self.planning => {
                let id = self.state.tensors.len();
                self.state.tensors.push(Some(DeviceTensor {
                    element,
                    sizes: sizes.clone(),
                    storage: Storage::Constant(Contents::Derived(derived)),
                }));
                self.state.derived.insert(derived, id);
                id
            }
            None => {
                return Err(Error::unsupported("a change of shapes that needs other constants"));
            }
        };
        Ok(Operand { id, value: id, element, sizes })
    }

    /// Emits a dispatch of so many invocations in each direction, in workgroups of the given size.
    pub(crate) fn dispatch<P: Pipeline>(
        &mut self,
        pipeline: &P,
        accesses: P::Bindings<Access>,
        push: &P::Push,
        invocations: [usize; 3],
        workgroup: [u32; 3],
    ) -> Result<(), Error> {
        let module = self.module_of::<P>();
        self.dispatch_module(module, pipeline, accesses, push, invocations, workgroup)
    }

    /// The same with one of the pipeline's modules, where the device's features do not decide
    /// alone.
    pub(crate) fn dispatch_module<P: Pipeline>(
        &mut self,
        module: Module,
        pipeline: &P,
        accesses: P::Bindings<Access>,
        push: &P::Push,
        invocations: [usize; 3],
        workgroup: [u32; 3],
    ) -> Result<(), Error> {
        let groups = workgroups(invocations, workgroup)?;
        self.emit(module, pipeline, accesses, push, groups, workgroup)
    }

    /// Emits a dispatch of a shader that works along x alone, and calls that `invocation_x`.
    pub(crate) fn dispatch_along_x<P: Pipeline>(
        &mut self,
        pipeline: &P,
        accesses: P::Bindings<Access>,
        push: &P::Push,
        invocations: usize,
    ) -> Result<(), Error> {
        let (invocations, workgroup) = ([invocations, 1, 1], [LINEAR_WORKGROUP, 1, 1]);
        self.dispatch_along(0, pipeline, accesses, push, invocations, workgroup)
    }

    /// Emits a dispatch of a shader that works along y, with a workgroup's worth of invocations
    /// along x, and calls y `invocation_y`.
    pub(crate) fn dispatch_along_y<P: Pipeline>(
        &mut self,
        pipeline: &P,
        accesses: P::Bindings<Access>,
        push: &P::Push,
        [x, y]: [usize; 2],
        [width, height]: [u32; 2],
    ) -> Result<(), Error> {
        self.dispatch_along(1, pipeline, accesses, push, [x, y, 1], [width, height, 1])
    }

    fn dispatch_along<P: Pipeline>(
        &mut self,
        dimension: usize,
        pipeline: &P,
        accesses: P::Bindings<Access>,
        push: &P::Push,
        invocations: [usize; 3],
        workgroup: [u32; 3],
    ) -> Result<(), Error> {
        let groups = workgroups(invocations, workgroup)?;
        // What cannot be folded is refused below.
        let groups = self.state.limits.folded(groups, dimension).unwrap_or(groups);
        let module = self.module_of::<P>();
        self.emit(module, pipeline, accesses, push, groups, workgroup)
    }

    fn emit<P: Pipeline>(
        &mut self,
        module: Module,
        pipeline: &P,
        accesses: P::Bindings<Access>,
        push: &P::Push,
        groups: [u32; 3],
        workgroup: [u32; 3],
    ) -> Result<(), Error> {
        let module = self.replayed::<P>(module);
        let name = module.name;
        if !self.features().have(module.features) {
            let needed = module.features;
            return Err(Error::unsupported(format!("{name} needs {needed:?} of the device")));
        }
        if !self.state.limits.bind(&module) {
            let (needed, most) = (module.bindings, self.state.limits.buffers);
            return Err(Error::unsupported(format!(
                "{name} binds {needed} buffers; the device binds at most {most}"
            )));
        }
        if workgroup.iter().product::<u32>() > MOST_INVOCATIONS {
            return Err(Error::unsupported(format!("{name}: workgroups of {workgroup:?}")));
        }
        if groups.contains(&0) {
            return Ok(());
        }
        // Of batches that the device does not take at once, there are several dispatches.
        let at_once = match P::Push::BASE_Z {
            Some(_) => self.state.limits.fold_at[2],
            None => u32::MAX,
        };
        let [x, y, z] = groups;
        self.state.limits.check_workgroups(name, [x, y, z.min(at_once)])?;
        let accesses = accesses.as_ref().to_vec();
        for access in &accesses {
            self.state.limits.check_tensor(name, self.state.tensor(access.tensor)?.bytes())?;
        }
        let key = PipelineKey { module, constants: pipeline.constants(), workgroup };
        for access in &accesses {
            self.bound.resize(self.bound.len().max(access.tensor + 1), false);
            if let Some(bound) = self.bound.get_mut(access.tensor) {
                *bound = true;
            }
        }
        let step = Step { node: self.node, key, accesses, parameters: push.bytes(), groups };
        step.in_turns(P::Push::BASE_Z, at_once, &mut self.steps)
    }

    /// Keeps memory for a temporary tensor beside what the next dispatch needs: with other shapes,
    /// the call takes it instead.
    pub(crate) fn reserve(&mut self, tensor: &Operand) {
        if self.planning {
            self.state.reserved.push((self.steps.len(), tensor.id));
        }
    }

    /// The module that the current call takes instead: parameters that change are for shaders that
    /// read them from memory, so that the recording stays.
    fn replayed<P: Pipeline>(&self, module: Module) -> Module {
        match P::REPLAYED {
            Some(replayed) if self.varies() && module.name == P::MODULE.name => replayed,
            _ => module,
        }
    }

    /// The best module of a pipeline that the device can run.
    fn module_of<P: Pipeline>(&self) -> Module {
        let fits = |module: &&Module| self.can_run(module);
        P::BETTER.iter().find(fits).copied().unwrap_or(P::MODULE)
    }

    /// Emits a dispatch in which each invocation handles four consecutive elements of `numel`.
    pub(crate) fn dispatch_by_four<P: Pipeline>(
        &mut self,
        pipeline: &P,
        accesses: P::Bindings<Access>,
        push: &P::Push,
        numel: usize,
    ) -> Result<(), Error> {
        let invocations = numel.div_ceil(4);
        // Other shapes are to need no other pipeline.
        let is_wide = invocations / MANY_TIMES >= self.busy() && !self.is_of_varying_shapes();
        let width = if is_wide { WIDE_WORKGROUP } else { LINEAR_WORKGROUP };
        self.dispatch_along(0, pipeline, accesses, push, [invocations, 1, 1], [width, 1, 1])
    }

    /// Whether shapes can change from run to run.
    pub(crate) fn is_of_varying_shapes(&self) -> bool {
        let dynamic = |value: &Value<'_>| matches!(value, Value::Tensor(tensor) if tensor.dynamic);
        *self.dynamic.get_or_init(|| self.graph.values.iter().any(dynamic))
    }
}

/// The workgroups that it takes for so many invocations in each dimension.
fn workgroups(invocations: [usize; 3], workgroup: [u32; 3]) -> Result<[u32; 3], Error> {
    let mut groups = [0; 3];
    for ((groups, count), size) in groups.iter_mut().zip(invocations).zip(workgroup) {
        *groups = u32::try_from(count.div_ceil(size.max(1) as usize))
            .map_err(|_| Error::unsupported("a dispatch of more than 2^32 workgroups"))?;
    }
    Ok(groups)
}
