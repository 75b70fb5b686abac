//! Encoding: operators turn a graph into a list of dispatches, for the shapes of the moment.
//!
//! The same code runs when a graph is compiled, with the largest shapes, and again when shapes change: then memory and
//! pipelines are there already, and only sizes and parameters differ. Operators look at their arguments,
//! give their outputs shapes and emit [`Step`]s over tensors; where tensors lie is decided later.

use crate::bounds;
use crate::buffers::Buffers;
use crate::constants::Contents;
use crate::derived::{Derived, Source};
use crate::error::Error;
use crate::ir::{Graph, Node, Value, ValueId};
use crate::ops::{Epilogue, Stage};
use crate::tensors::{DeviceTensor, Operand, Storage, TensorId, element_of};
use crate::transfer::to_device;
use std::collections::{HashMap, HashSet};
use torchlet_core::ScalarType;
use torchlet_shaders::{Element, Pipeline, PushConstants};

use crate::device::{DeviceFeatures, PipelineKey};

/// A tensor that a dispatch binds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) tensor: TensorId,
    pub(crate) written: bool,
}

/// Binds a tensor for reading.
pub(crate) fn read(tensor: TensorId) -> Access {
    Access { tensor, written: false }
}

/// Binds a tensor for writing (and reading).
pub(crate) fn write(tensor: TensorId) -> Access {
    Access { tensor, written: true }
}

/// A dispatch over tensors.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    /// The call that it is part of: its position in the graph.
    pub(crate) node: usize,
    pub(crate) key: PipelineKey,
    pub(crate) accesses: Vec<Access>,
    pub(crate) push: Vec<u8>,
    pub(crate) groups: [u32; 3],
}

/// What is known of a graph's tensors and numbers at the moment.
#[derive(Debug)]
pub(crate) struct State {
    /// Tensors by value, then those that operators added.
    pub(crate) tensors: Vec<Option<DeviceTensor>>,
    /// Symbolic integers by value.
    pub(crate) integers: Vec<Option<i64>>,
    /// Integers of inputs that operators look at on the host, by value.
    pub(crate) host: HashMap<ValueId, Vec<i32>>,
    /// Tensors that operators added, by call and order.
    added: HashMap<(usize, usize), TensorId>,
    /// Constants that operators derived.
    derived: HashMap<Derived, TensorId>,
    /// Invocations that keep the device busy: dispatches of fewer are split further where they can be.
    pub(crate) busy: usize,
    /// What the device can do beyond Vulkan 1.1.
    pub(crate) features: DeviceFeatures,
    /// The constants that change between runs.
    pub(crate) buffers: Buffers,
}

impl State {
    /// The state in which shapes are those of the graph.
    pub(crate) fn new(graph: &Graph<'_>, buffers: Buffers) -> Result<Self, Error> {
        let mut tensors = Vec::with_capacity(graph.values.len());
        let mut integers = Vec::with_capacity(graph.values.len());
        for value in &graph.values {
            tensors.push(match value {
                Value::Tensor(tensor) => Some(DeviceTensor {
                    element: element_of(tensor.scalar_type)?,
                    sizes: tensor.sizes.clone(),
                    storage: match &tensor.data {
                        Some(data) => Storage::Constant(match tensor.scalar_type {
                            ScalarType::Long | ScalarType::Double => {
                                Contents::Made(to_device(tensor.scalar_type, data)?)
                            }
                            _ => Contents::Graph,
                        }),
                        None => Storage::Planned,
                    },
                }),
                _ => None,
            });
            integers.push(match value {
                Value::SymInt(value) => Some(*value),
                _ => None,
            });
        }
        for (id, bound) in bounds::of_inputs(graph) {
            if let Some(slot) = integers.get_mut(id) {
                *slot = Some(bound);
            }
        }
        Ok(State {
            host: HashMap::new(),
            tensors,
            integers,
            added: HashMap::new(),
            derived: HashMap::new(),
            busy: 1 << 15,
            features: DeviceFeatures::default(),
            buffers,
        })
    }

    pub(crate) fn tensor(&self, id: TensorId) -> Result<&DeviceTensor, Error> {
        self.tensors
            .get(id)
            .and_then(Option::as_ref)
            .ok_or_else(|| Error::Invalid(format!("value {id} is not a tensor")))
    }

    /// The tensor whose memory a tensor uses.
    pub(crate) fn root(&self, id: TensorId) -> TensorId {
        let mut id = id;
        // Aliases are made to earlier roots only, so the chain ends.
        while let Ok(DeviceTensor { storage: Storage::Alias(target), .. }) = self.tensor(id) {
            id = *target;
        }
        id
    }
}

/// Encodes the calls of a graph.
pub(crate) struct Encoder<'e, 'p> {
    graph: &'e Graph<'p>,
    state: &'e mut State,
    steps: Vec<Step>,
    /// Tensors that steps bind already.
    bound: HashSet<TensorId>,
    node: usize,
    added: usize,
    /// What is to be done to the result of the current call, until it takes it.
    epilogue: Option<Epilogue>,
    /// Whether the shapes are those that memory is planned for: then tensors and constants may be added.
    planning: bool,
}

/// The invocations of a workgroup of a one-dimensional dispatch.
const LINEAR_WORKGROUP: u32 = 64;

impl<'e, 'p> Encoder<'e, 'p> {
    /// Encodes all calls.
    pub(crate) fn encode(
        graph: &'e Graph<'p>,
        state: &'e mut State,
        planning: bool,
    ) -> Result<Vec<Step>, Error> {
        let mut encoder = Encoder {
            graph,
            state,
            steps: Vec::new(),
            bound: HashSet::new(),
            node: 0,
            added: 0,
            epilogue: None,
            planning,
        };
        for (index, node) in graph.nodes.iter().enumerate() {
            encoder.node = index;
            encoder.added = 0;
            encoder.epilogue = None;
            let operator = crate::ops::find(&node.operator)
                .ok_or_else(|| Error::unsupported(format!("operator {}", node.operator)))?;
            (operator.encode)(&mut encoder, &node.args)
                .map_err(|error| in_operator(node, error))?;
        }
        Ok(encoder.steps)
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

    /// What the current call's operator computes for each element.
    pub(crate) fn stage(&self, args: &[ValueId]) -> Result<Stage, Error> {
        let name = self.graph.nodes.get(self.node).map_or("", |node| node.operator.as_str());
        self.stage_of(name, args)
    }

    /// What a call of this name computes for each element.
    pub(crate) fn stage_of(&self, operator: &str, args: &[ValueId]) -> Result<Stage, Error> {
        let stage = crate::ops::find(operator).and_then(|operator| operator.stage);
        let stage =
            stage.ok_or_else(|| Error::Invalid(format!("{operator} is not element-wise")))?;
        stage(self, args)
    }

    fn value(&self, id: ValueId) -> Result<&Value<'p>, Error> {
        self.graph
            .values
            .get(id)
            .ok_or_else(|| Error::Invalid(format!("value {id} is out of range")))
    }

    /// Argument `position` of a call.
    pub(crate) fn arg(&self, args: &[ValueId], position: usize) -> Result<ValueId, Error> {
        args.get(position).copied().ok_or_else(|| {
            Error::Invalid(format!(
                "the call has {} arguments, expected {}",
                args.len(),
                position + 1
            ))
        })
    }

    /// The last argument of a call: its output.
    pub(crate) fn out(&self, args: &[ValueId]) -> Result<Operand, Error> {
        let id = args.last().copied().ok_or_else(|| Error::invalid("the call has no arguments"))?;
        match self.value(id)? {
            Value::List(items) if items.len() == 1 => self.tensor(items[0]),
            _ => self.tensor(id),
        }
    }

    /// The outputs of a call that has several.
    pub(crate) fn outs(&self, args: &[ValueId]) -> Result<Vec<ValueId>, Error> {
        let id = args.last().copied().ok_or_else(|| Error::invalid("the call has no arguments"))?;
        Ok(match self.value(id)? {
            Value::List(items) => items.clone(),
            _ => vec![id],
        })
    }

    /// A tensor.
    pub(crate) fn tensor(&self, id: ValueId) -> Result<Operand, Error> {
        let tensor = self.state.tensor(id)?;
        Ok(Operand { id, value: id, element: tensor.element, sizes: tensor.sizes.clone() })
    }

    /// A tensor or nothing.
    pub(crate) fn optional_tensor(&self, id: ValueId) -> Result<Option<Operand>, Error> {
        match self.value(id)? {
            Value::None => Ok(None),
            _ => self.tensor(id).map(Some),
        }
    }

    /// Whether a value is nothing.
    pub(crate) fn is_none(&self, id: ValueId) -> bool {
        matches!(self.value(id), Ok(Value::None))
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
        if self.state.buffers.may_change(id) {
            return None;
        }
        match self.state.tensor(id).ok()? {
            DeviceTensor {
                element,
                storage: Storage::Constant(Contents::Graph | Contents::Made(_)),
                ..
            } => Some(Source { id, element: *element }),
            _ => None,
        }
    }

    /// The shape of a value's tensor when all shapes are at their bounds: what kernels are chosen by, so that a
    /// change of shapes needs no other pipelines.
    pub(crate) fn bound_sizes(&self, tensor: &Operand) -> Vec<usize> {
        match self.value(tensor.value) {
            Ok(Value::Tensor(bound)) if bound.sizes.len() == tensor.rank() => bound.sizes.clone(),
            _ => tensor.sizes.clone(),
        }
    }

    /// Invocations that keep the device busy.
    pub(crate) fn busy(&self) -> usize {
        self.state.busy
    }

    /// What the device can do beyond Vulkan 1.1. A pipeline that needs more cannot be dispatched.
    pub(crate) fn features(&self) -> &DeviceFeatures {
        &self.state.features
    }

    /// An integer, symbolic or not.
    pub(crate) fn int(&self, id: ValueId) -> Result<i64, Error> {
        match self.value(id)? {
            Value::Int(value) => Ok(*value),
            Value::Bool(value) => Ok(i64::from(*value)),
            Value::Double(value) => Ok(*value as i64),
            Value::SymInt(_) => self
                .state
                .integers
                .get(id)
                .copied()
                .flatten()
                .ok_or_else(|| Error::Invalid(format!("value {id} is not an integer"))),
            _ => Err(Error::Invalid(format!("value {id} is not an integer"))),
        }
    }

    /// The call that computes a value.
    pub(crate) fn producer(&self, id: ValueId) -> Option<&'e Node> {
        self.graph.producer(id)
    }

    /// Element `at` of a tensor of integers that is known on the host: a constant or an input. `None` for an input while
    /// memory is planned.
    pub(crate) fn host_int(&mut self, id: TensorId, at: usize) -> Result<Option<i64>, Error> {
        let root = self.state.root(id);
        let missing = || Error::invalid("the index is out of range");
        if self.planning
            && self.state.tensor(root)?.element == Element::I32
            && !self.state.buffers.may_change(root)
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

    /// An integer or nothing.
    pub(crate) fn optional_int(&self, id: ValueId) -> Result<Option<i64>, Error> {
        if self.is_none(id) { Ok(None) } else { self.int(id).map(Some) }
    }

    /// A number.
    pub(crate) fn float(&self, id: ValueId) -> Result<f64, Error> {
        match self.value(id)? {
            Value::Double(value) => Ok(*value),
            _ => self.int(id).map(|value| value as f64),
        }
    }

    /// A number or nothing.
    pub(crate) fn optional_float(&self, id: ValueId) -> Result<Option<f64>, Error> {
        if self.is_none(id) { Ok(None) } else { self.float(id).map(Some) }
    }

    /// A truth value.
    pub(crate) fn bool(&self, id: ValueId) -> Result<bool, Error> {
        self.int(id).map(|value| value != 0)
    }

    /// A list of integers, some of which may be symbolic; a single integer is a list of one.
    pub(crate) fn ints(&self, id: ValueId) -> Result<Vec<i64>, Error> {
        match self.value(id)? {
            Value::IntList(items) => Ok(items.clone()),
            Value::BoolList(items) => Ok(items.iter().map(|item| i64::from(*item)).collect()),
            Value::List(items) => items.iter().map(|item| self.int(*item)).collect(),
            _ => Ok(vec![self.int(id)?]),
        }
    }

    /// A list of integers or nothing.
    pub(crate) fn optional_ints(&self, id: ValueId) -> Result<Option<Vec<i64>>, Error> {
        if self.is_none(id) { Ok(None) } else { self.ints(id).map(Some) }
    }

    /// A list of numbers or nothing.
    pub(crate) fn optional_floats(&self, id: ValueId) -> Result<Option<Vec<f64>>, Error> {
        match self.value(id)? {
            Value::None => Ok(None),
            Value::DoubleList(items) => Ok(Some(items.clone())),
            _ => Ok(Some(self.ints(id)?.into_iter().map(|item| item as f64).collect())),
        }
    }

    /// A list of values.
    pub(crate) fn list(&self, id: ValueId) -> Result<Vec<ValueId>, Error> {
        match self.value(id)? {
            Value::List(items) => Ok(items.clone()),
            _ => Ok(vec![id]),
        }
    }

    /// A string or nothing.
    pub(crate) fn optional_string(&self, id: ValueId) -> Result<Option<&str>, Error> {
        match self.value(id)? {
            Value::None => Ok(None),
            Value::String(text) => Ok(Some(text)),
            _ => Err(Error::Invalid(format!("value {id} is not a string"))),
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
        if tensor.sizes != sizes && self.bound.contains(&id) {
            return Err(Error::invalid("a tensor changes its shape after it was used"));
        }
        if tensor.sizes.len() != sizes.len() && tensor.numel() != numel {
            let found = &tensor.sizes;
            return Err(Error::Invalid(format!(
                "the output has shape {found:?}, the operator gives {sizes:?}"
            )));
        }
        if tensor.sizes.len() == sizes.len() {
            tensor.sizes = sizes.to_vec();
        }
        self.tensor(id)
    }

    /// Makes a tensor use the memory of another that has as many elements of the same type. Nothing may write to either
    /// while the other is needed.
    pub(crate) fn alias(&mut self, id: TensorId, target: TensorId) -> Result<(), Error> {
        let root = self.state.root(target);
        let (a, b) = (self.state.tensor(id)?, self.state.tensor(target)?);
        if a.element != b.element || a.numel() != b.numel() {
            return Err(Error::invalid("a view differs from what it views in type or size"));
        }
        if root != id
            && let Some(Some(tensor)) = self.state.tensors.get_mut(id)
        {
            tensor.storage = Storage::Alias(root);
        }
        Ok(())
    }

    /// A tensor for intermediate results. The same call must ask for the same ones, in order, whatever the shapes.
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

    /// A constant that is made when the graph is compiled, once for all calls that need the same one.
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
        let better = P::BETTER.filter(|better| self.features().have(better.features));
        let module = better.unwrap_or(P::MODULE);
        if !self.features().have(module.features) {
            let (name, needed) = (module.name, module.features);
            return Err(Error::unsupported(format!("{name} needs {needed:?} of the device")));
        }
        let mut groups = [0; 3];
        for ((groups, count), size) in groups.iter_mut().zip(invocations).zip(workgroup) {
            *groups = u32::try_from(count.div_ceil(size as usize))
                .map_err(|_| Error::unsupported("a dispatch of more than 2^32 workgroups"))?;
        }
        if groups.contains(&0) {
            return Ok(());
        }
        let key = PipelineKey { module, constants: pipeline.constants(), workgroup };
        let accesses = accesses.as_ref().to_vec();
        self.bound.extend(accesses.iter().map(|access| access.tensor));
        self.steps.push(Step { node: self.node, key, accesses, push: push.bytes(), groups });
        Ok(())
    }

    /// Emits a dispatch in which each invocation handles four consecutive elements of `numel`.
    pub(crate) fn dispatch_by_four<P: Pipeline>(
        &mut self,
        pipeline: &P,
        accesses: P::Bindings<Access>,
        push: &P::Push,
        numel: usize,
    ) -> Result<(), Error> {
        self.dispatch(pipeline, accesses, push, [numel.div_ceil(4), 1, 1], [LINEAR_WORKGROUP, 1, 1])
    }
}

fn in_operator(node: &Node, error: Error) -> Error {
    let place = format!("{} (call {})", node.operator, node.id);
    match error {
        Error::Unsupported(what) => Error::Unsupported(format!("{place}: {what}")),
        Error::Invalid(what) => Error::Invalid(format!("{place}: {what}")),
        other => other,
    }
}

/// A number as the 32 bits that shaders count in.
pub(crate) fn u32_of(number: usize) -> Result<u32, Error> {
    u32::try_from(number).map_err(|_| Error::unsupported("a tensor of more than 2^32 elements"))
}

/// Number of elements of a shape that shaders can count through.
pub(crate) fn numel_of(sizes: &[usize]) -> Result<usize, Error> {
    let product = sizes.iter().try_fold(1u32, |product, size| {
        u32::try_from((*size).max(1)).ok().and_then(|size| product.checked_mul(size))
    });
    if product.is_none() {
        return Err(Error::unsupported(format!("a tensor of shape {sizes:?}")));
    }
    Ok(sizes.iter().product())
}
