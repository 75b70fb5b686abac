//! The interface that operators encode with: they read their arguments, set the shapes of their
//! outputs, and emit [`Step`]s over tensors. Memory is assigned later.

mod arguments;
mod cells;
mod parts;
mod strided;
mod variants;

pub(crate) use crate::steps::{Access, read, write};
pub(crate) use crate::tensors::{numel_of, u32_of};

use crate::choices::Choices;
use crate::derived::{Derived, Source};
use crate::device::{
    DeviceFeatures, DispatchProfile, Limits, MAX_INVOCATIONS, PipelineKey, Profile,
};
use crate::error::Error;
use crate::ids::IdMap;
use crate::reads::{GraphReads, Reads};
use crate::stages::Epilogue;
use crate::state::{Contents, DeviceTensor, LateFusion, State, Storage};
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
    /// For each tensor, whether a step binds it already.
    bound: Vec<bool>,
    node: usize,
    added: usize,
    choice_count: usize,
    noted: usize,
    /// Whether variant selection is disabled for the rest of the current call.
    settled: bool,
    /// The epilogue of the current call, until its operator fetches it.
    epilogue: Option<Epilogue>,
    /// Whether memory will be planned for the current shapes. Only then may tensors and constants
    /// be added.
    planning: bool,
    /// The calls that read each value, and the values that updates overwrite.
    reads: Reads,
    /// The calls that read each value, and the values that calls write in place; computed on
    /// demand.
    readers: OnceCell<IdMap<ValueId, Vec<usize>>>,
    written: OnceCell<Vec<ValueId>>,
    /// Whether the graph has dynamic shapes; computed on demand.
    dynamic: OnceCell<bool>,
}

/// Invocations per workgroup of a one-dimensional dispatch.
const LINEAR_WORKGROUP: u32 = 64;

impl<'e, 'p> Encoder<'e, 'p> {
    /// Creates an encoder for a whole graph, without any steps yet.
    pub(crate) fn new(graph: &'e Graph<'p>, state: &'e mut State, planning: bool) -> Self {
        let of_graph = || Arc::new(GraphReads::of(graph));
        let reads = Reads::new(state.reads.get_or_insert_with(of_graph).clone());
        let steps = Vec::with_capacity(graph.nodes.len());
        Encoder { planning, steps, ..Encoder::again(graph, state, reads) }
    }

    /// Creates an encoder for calls of a graph that was encoded before.
    pub(crate) fn again(graph: &'e Graph<'p>, state: &'e mut State, reads: Reads) -> Self {
        Encoder {
            graph,
            state,
            steps: Vec::new(),
            bound: Vec::new(),
            node: 0,
            added: 0,
            choice_count: 0,
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

    /// Moves to the call at this index of the graph, and returns it.
    pub(crate) fn begin(&mut self, node: usize) -> Option<&'e Node> {
        self.node = node;
        (self.added, self.choice_count, self.noted, self.settled) = (0, 0, 0, false);
        self.epilogue = None;
        self.graph.nodes.get(node)
    }

    /// Returns the encoded steps and the read analysis.
    pub(crate) fn finish(self) -> (Vec<Step>, Reads) {
        (self.steps, self.reads)
    }

    /// Returns the key of the current call's next choice, the choices of all calls, and whether
    /// memory will be planned.
    pub(crate) fn next_choice(&mut self) -> ((usize, usize), &mut Choices, bool) {
        let place = (self.node, self.choice_count);
        self.choice_count += 1;
        (place, &mut self.state.choices, self.planning)
    }

    /// Returns the workgroup size that this call used when memory was planned, so that other shapes
    /// use the same pipelines. While planning, stores and returns `here`. A call must request its
    /// workgroup sizes in the same order for all shapes.
    pub(crate) fn as_planned(&mut self, here: [u32; 2]) -> [u32; 2] {
        let place = (self.node, self.noted);
        self.noted += 1;
        if self.planning {
            self.state.workgroups.insert(place, here);
        }
        self.state.workgroups.get(&place).copied().unwrap_or(here)
    }

    /// Disables variant selection for the rest of the current call, because one variant was already
    /// chosen for the call as a whole.
    pub(crate) fn settle(&mut self) {
        self.settled = true;
    }

    /// Whether variant selection is disabled for the rest of the current call.
    pub(crate) fn is_settled(&self) -> bool {
        self.settled
    }

    /// Whether the current call reads integers that can change from run to run. If it does, its
    /// dispatches should change only in their parameters.
    pub(crate) fn varies(&self) -> bool {
        self.state.varying.binary_search(&self.node).is_ok()
    }

    /// Whether memory will be planned for the current shapes.
    pub(crate) fn is_planning(&self) -> bool {
        self.planning
    }

    /// Passes an epilogue to the operator of the current call.
    pub(crate) fn set_epilogue(&mut self, epilogue: Epilogue) {
        self.epilogue = Some(epilogue);
    }

    /// Removes and returns the epilogue of the current call.
    pub(crate) fn take_epilogue(&mut self) -> Option<Epilogue> {
        self.epilogue.take()
    }

    /// Returns the original calls from which the current call was fused.
    pub(crate) fn parts(&self) -> &'e [Node] {
        self.graph.nodes.get(self.node).map(|node| node.parts.as_slice()).unwrap_or_default()
    }

    /// Returns the current call.
    pub(crate) fn call(&self) -> Result<&'e Node, Error> {
        let missing =
            || Error::Invalid(format!("internal error: call {} does not exist", self.node));
        self.graph.nodes.get(self.node).ok_or_else(missing)
    }

    /// Returns the current call's operator.
    pub(crate) fn operator(&self) -> Result<Operator, Error> {
        self.call().map(|node| node.operator)
    }

    fn value(&self, id: ValueId) -> Result<&Value<'p>, Error> {
        self.graph.values.get(id).ok_or_else(|| {
            Error::Invalid(format!(
                "value {id} is out of range: the graph has {} values",
                self.graph.values.len()
            ))
        })
    }

    /// Returns the scalar type that the program declares for a tensor.
    pub(crate) fn scalar_type(&self, tensor: &Operand) -> Option<ScalarType> {
        match self.value(tensor.value) {
            Ok(Value::Tensor(tensor)) => Some(tensor.scalar_type),
            _ => None,
        }
    }

    /// Returns the bytes of a constant tensor, in the device's element type.
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

    /// Returns a constant of the file as the source of a derived constant; `None` if its bytes can
    /// change.
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

    /// Whether the bytes of a tensor never change: a constant of the file, or derived from one.
    pub(crate) fn is_constant(&self, id: TensorId) -> bool {
        let made = |tensor: &DeviceTensor| {
            matches!(
                tensor.storage,
                Storage::Constant(Contents::Derived(Derived::Transposed(_) | Derived::Nibbles(_)))
            )
        };
        self.constant(id).is_some() || self.state.tensor(self.state.root(id)).is_ok_and(made)
    }

    /// Returns the largest shape of a value's tensor. Kernels are chosen by the largest shape, so
    /// that smaller shapes need no other pipelines.
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

    /// Whether the graph is fp16 only because the exporter narrowed it from 32-bit floats.
    pub(crate) fn is_narrowed(&self) -> bool {
        self.state.narrowed
    }

    /// Returns the number of invocations that saturate the device.
    pub(crate) fn busy(&self) -> usize {
        self.state.busy
    }

    /// Returns the tuned constants of the device's class.
    pub(crate) fn profile(&self) -> &'static Profile {
        self.state.profile
    }

    /// Returns the number of the device's processors (SMs or compute units).
    pub(crate) fn processors(&self) -> usize {
        self.state.processors()
    }

    /// Returns the device limits.
    pub(crate) fn limits(&self) -> &Limits {
        &self.state.limits
    }

    /// Returns the bytes of shared memory per workgroup.
    pub(crate) fn shared_memory(&self) -> u32 {
        self.state.limits.shared
    }

    /// Returns the device's optional features. A pipeline that needs a missing feature cannot be
    /// dispatched.
    pub(crate) fn features(&self) -> &DeviceFeatures {
        &self.state.features
    }

    /// Whether the device can run a shader.
    pub(crate) fn can_run(&self, module: &Module) -> bool {
        self.features().have(module.features) && self.state.limits.bind(module)
    }

    /// If an output was fused into its readers ([`leave`](Self::leave)), returns the call that
    /// computes it, and its index among the outputs of that call.
    pub(crate) fn left(&self, id: ValueId, fusion: LateFusion) -> Option<(&'e Node, usize)> {
        let left = self.state.left.get(&id).filter(|left| left.fusion == fusion)?;
        Some((self.graph.nodes.get(left.call)?, left.which))
    }

    /// Returns the RMS norm that computes a value, if the GEMVs that read the value compute the
    /// norm themselves.
    pub(crate) fn prologue(&self, id: ValueId) -> Option<&'e Node> {
        self.graph.nodes.get(self.reads.prologue(id)?)
    }

    /// Returns the call that computes a value.
    pub(crate) fn producer(&self, id: ValueId) -> Option<&'e Node> {
        self.graph.producer(id)
    }

    /// Returns element `at` of an integer tensor that is known on the host: a constant or an input.
    /// Returns `None` for an input while memory is planned.
    pub(crate) fn host_int(&mut self, id: TensorId, at: usize) -> Result<Option<i64>, Error> {
        // The host stores the elements of whole tensors, not of contiguous parts of them.
        let (root, start) = self.state.location(id);
        let missing = || Error::Invalid(format!("tensor {id} has no element {at}"));
        let element = self.state.tensor(root)?.element;
        let at =
            usize::try_from(start).ok().and_then(|start| at.checked_add(start / element.size()));
        let at = at.ok_or_else(missing)?;
        if self.planning
            && element == Element::I32
            && !self.state.changing.contains(&root)
            && let Some(bytes) = self.device_data(root)
        {
            // Copied now, because the bytes are freed once they are on the device.
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
        Err(Error::unsupported(format!(
            "tensor {id}, computed on the device, as an integer argument; expected a constant or \
             an input"
        )))
    }

    /// Whether a tensor has memory that is not shared with others and that keeps its contents
    /// between runs.
    pub(crate) fn is_persistent(&self, id: TensorId) -> bool {
        let root = self.state.root(id);
        matches!(self.state.tensor(root), Ok(DeviceTensor { storage: Storage::Constant(_), .. }))
    }

    /// Sets the value of a symbolic integer.
    pub(crate) fn set_int(&mut self, id: ValueId, value: i64) -> Result<(), Error> {
        match self.state.integers.get_mut(id) {
            Some(Some(slot)) => {
                *slot = value;
                Ok(())
            }
            _ => Err(Error::Invalid(format!("value {id}: expected a symbolic integer"))),
        }
    }

    /// Sets the shape of a tensor and returns the tensor.
    pub(crate) fn resize(&mut self, id: ValueId, sizes: &[usize]) -> Result<Operand, Error> {
        let tensor = self
            .state
            .tensors
            .get_mut(id)
            .and_then(Option::as_mut)
            .ok_or_else(|| Error::Invalid(format!("value {id}: expected a tensor")))?;
        let numel = numel_of(sizes)?;
        // Memory is planned for the shape at the first use.
        if tensor.sizes != sizes && self.bound.get(id) == Some(&true) {
            let found = &tensor.sizes;
            return Err(Error::Invalid(format!(
                "output: expected shape {found:?} of its first use, computed {sizes:?}"
            )));
        }
        if tensor.sizes.len() != sizes.len() && tensor.numel() != numel {
            let found = &tensor.sizes;
            return Err(Error::Invalid(format!(
                "output: expected shape {found:?}, computed {sizes:?}"
            )));
        }
        if tensor.sizes.len() == sizes.len() {
            tensor.sizes.clear();
            tensor.sizes.extend_from_slice(sizes);
        }
        self.tensor(id)
    }

    /// Makes a tensor an alias of another with the same element type and count. Neither may be
    /// written while the other is needed.
    pub(crate) fn alias(&mut self, id: TensorId, target: TensorId) -> Result<(), Error> {
        let (a, b) = (self.state.tensor(id)?, self.state.tensor(target)?);
        if a.element != b.element || a.numel() != b.numel() {
            return Err(Error::Invalid(format!(
                "view: expected {} elements of type {:?}, found {} of type {:?}",
                b.numel(),
                b.element,
                a.numel(),
                a.element
            )));
        }
        self.share(id, self.state.location(target));
        Ok(())
    }

    /// Returns a tensor for intermediate results. A call must request the same tensors, in order,
    /// for all shapes.
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
                    "input shapes that need an intermediate tensor for which no memory was planned",
                ));
            }
        };
        Ok(Operand { id, value: id, element, sizes: sizes.to_vec() })
    }

    /// Returns a tensor for intermediate results that only some shapes need: `needed` for the
    /// current shapes, `varies` if other shapes may occur. If it is not needed now, its memory is
    /// reserved.
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

    /// Returns a constant that is computed when the graph is compiled; calls share equal constants.
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
                return Err(Error::unsupported(
                    "input shapes that need a constant that was not derived at load time",
                ));
            }
        };
        Ok(Operand { id, value: id, element, sizes })
    }

    /// Emits a dispatch of `invocations` in workgroups of the given size. The module is the best
    /// one that the device can run.
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

    /// Emits a dispatch of an explicit module, if features alone do not select it.
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

    /// Emits a dispatch of a shader that uses only the x dim, with `invocation_x` as its
    /// index.
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

    /// Emits a dispatch of a shader that iterates over the y dim, with `invocation_y` as its
    /// index. In x, it has one workgroup.
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
        // A size that cannot be folded is rejected below.
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
            return Err(Error::unsupported(format!(
                "shader {name}, which requires the device features {needed:?}"
            )));
        }
        if !self.state.limits.bind(&module) {
            let (needed, most) = (module.bindings, self.state.limits.buffers);
            return Err(Error::unsupported(format!(
                "shader {name}, which binds {needed} buffers; the device limit is {most}"
            )));
        }
        if workgroup.iter().product::<u32>() > MAX_INVOCATIONS {
            return Err(Error::unsupported(format!(
                "shader {name} with workgroups of {workgroup:?}; the limit is {MAX_INVOCATIONS} \
                 invocations"
            )));
        }
        if groups.contains(&0) {
            return Ok(());
        }
        // If the device limits the z dim, batches are distributed over several dispatches.
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
        step.split_z(P::Push::BASE_Z, at_once, &mut self.steps)
    }

    /// Reserves memory for a temporary tensor during the next dispatch: for other shapes, the call
    /// uses the tensor at that point.
    pub(crate) fn reserve(&mut self, tensor: &Operand) {
        if self.planning {
            self.state.reserved.push((self.steps.len(), tensor.id));
        }
    }

    /// Returns the module for the current call. Calls whose parameters change use a variant that
    /// reads parameters from memory, so that the recording stays valid.
    fn replayed<P: Pipeline>(&self, module: Module) -> Module {
        match P::REPLAYED {
            Some(replayed) if self.varies() && module.name == P::MODULE.name => replayed,
            _ => module,
        }
    }

    /// Returns the best module of a pipeline that the device can run.
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
        // With dynamic shapes, the width is always the same, so that other shapes need no other
        // pipeline.
        let DispatchProfile { wide, wide_from } = self.profile().dispatch;
        let is_wide = invocations / wide_from >= self.busy() && !self.is_of_varying_shapes();
        let width = if is_wide { wide } else { LINEAR_WORKGROUP };
        self.dispatch_along(0, pipeline, accesses, push, [invocations, 1, 1], [width, 1, 1])
    }

    /// Whether any shape can change from run to run.
    pub(crate) fn is_of_varying_shapes(&self) -> bool {
        let dynamic = |value: &Value<'_>| matches!(value, Value::Tensor(tensor) if tensor.dynamic);
        *self.dynamic.get_or_init(|| self.graph.values.iter().any(dynamic))
    }
}

/// Returns the number of workgroups in each dim.
fn workgroups(invocations: [usize; 3], workgroup: [u32; 3]) -> Result<[u32; 3], Error> {
    let mut groups = [0; 3];
    for ((groups, count), size) in groups.iter_mut().zip(invocations).zip(workgroup) {
        *groups = u32::try_from(count.div_ceil(size.max(1) as usize))
            .map_err(|_| Error::unsupported("a dispatch of more than 2^32 - 1 workgroups"))?;
    }
    Ok(groups)
}
