//! What is known of a graph while it is encoded, and from one time to the next: shapes, numbers,
//! tensors that operators added.

use crate::bfloat16;
use crate::bounds;
use crate::choices::Choices;
use crate::derived::Derived;
use crate::device::{Context, DeviceFeatures, Limits, processors};
use crate::encoder::GraphReads;
use crate::error::Error;
use crate::ids::IdMap;
use crate::replay::varying_calls;
use crate::tensors::{TensorId, element_of, padded_bytes};
use crate::transfer::to_device;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use torchlet_core::ScalarType;
use torchlet_graph::graph::{Graph, Value, ValueId};
use torchlet_graph::lower::widen;
use torchlet_shaders::Element;

/// What a constant is to begin with.
#[derive(Debug, Clone)]
pub(crate) enum Contents {
    /// The bytes of the graph's value.
    Graph,
    /// Those of the graph's value, of `bfloat16`, which become elements of the tensor's type when
    /// they go to the device.
    Converted(Element),
    /// Bytes that were made when the graph was encoded.
    Made(Vec<u8>),
    /// Bytes that are made when they go to the device.
    Derived(Derived),
}

impl Contents {
    /// How many bytes there are, of the value `id` of the graph if need be.
    pub(crate) fn len(&self, graph: &Graph<'_>, id: TensorId) -> usize {
        match (self, graph.values.get(id)) {
            (Contents::Made(bytes), _) => bytes.len(),
            (Contents::Derived(derived), _) => derived.bytes(),
            (Contents::Graph, Some(Value::Tensor(tensor))) => {
                tensor.data.as_ref().map_or(0, |data| data.len())
            }
            (Contents::Converted(element), Some(Value::Tensor(tensor))) => {
                tensor.data.as_ref().map_or(0, |data| bfloat16::converted_bytes(data, *element))
            }
            _ => 0,
        }
    }
}

/// Where the data of a tensor is.
#[derive(Debug, Clone)]
pub(crate) enum Storage {
    /// In memory that tensors take turns to use.
    Planned,
    /// In memory of its own that keeps its contents between runs, with these to begin with.
    Constant(Contents),
    /// The memory of another tensor, from so many bytes on.
    Alias(TensorId, u64),
}

/// A tensor on the device. Elements are in row-major order.
#[derive(Debug, Clone)]
pub(crate) struct DeviceTensor {
    pub(crate) element: Element,
    pub(crate) sizes: Vec<usize>,
    pub(crate) storage: Storage,
}

impl DeviceTensor {
    pub(crate) fn numel(&self) -> usize {
        self.sizes.iter().product()
    }

    /// Bytes in memory: whole groups of four elements, so that shaders can read and write four at a
    /// time.
    pub(crate) fn bytes(&self) -> u64 {
        padded_bytes(self.element, self.numel())
    }
}

/// What a call leaves to others.
#[derive(Debug, Clone)]
pub(crate) struct Left {
    /// The call, by its position, and which of its outputs it is.
    pub(crate) call: usize,
    pub(crate) which: usize,
    /// The views of it through which it is taken.
    pub(crate) views: Vec<ValueId>,
}

/// What is known of a graph's tensors and numbers at the moment.
#[derive(Debug, Clone)]
pub(crate) struct State {
    /// Tensors by value, then those that operators added.
    pub(crate) tensors: Vec<Option<DeviceTensor>>,
    /// How far neighbours are from each other in memory, of tensors that do not lie in the order of
    /// their dimensions.
    pub(crate) strided: IdMap<TensorId, Vec<usize>>,
    /// Symbolic integers by value.
    pub(crate) integers: Vec<Option<i64>>,
    /// Integers of inputs that operators look at on the host, by value.
    pub(crate) host: IdMap<ValueId, Vec<i32>>,
    /// Tensors that operators added, by call and order.
    pub(crate) added: IdMap<(usize, usize), TensorId>,
    /// The sizes of workgroups that calls took when memory was planned, by call and order.
    pub(crate) workgroups: IdMap<(usize, usize), [u32; 2]>,
    /// Constants that operators derived.
    pub(crate) derived: HashMap<Derived, TensorId>,
    /// Whether the graph is of 16 bits only because the exporter made them of 32.
    pub(crate) narrowed: bool,
    /// Invocations that keep the device busy: dispatches of fewer are split further where they can
    /// be.
    pub(crate) busy: usize,
    /// The device's processors, where they are known.
    pub(crate) known_processors: Option<usize>,
    /// What the device can do beyond Vulkan 1.1.
    pub(crate) features: DeviceFeatures,
    /// What the device takes at most.
    pub(crate) limits: Limits,
    /// Values whose contents may differ from one run to the next though they are constants: nothing
    /// is made of them at load.
    pub(crate) changing: HashSet<ValueId>,
    /// The calls that read integers which change from run to run, in order.
    pub(crate) varying: Vec<usize>,
    /// Tensors that calls take with other shapes than those that memory is planned for, each in the
    /// place of a step.
    pub(crate) reserved: Vec<(usize, TensorId)>,
    /// What calls leave to those who take it. Decided when memory is planned.
    pub(crate) left: IdMap<ValueId, Left>,
    /// What the graph says of who reads what, once it was encoded.
    pub(crate) reads: Option<Arc<GraphReads>>,
    /// Which ways calls go.
    pub(crate) choices: Choices,
}

impl State {
    /// The state in which shapes are those of the graph.
    pub(crate) fn new(graph: &Graph<'_>, changing: HashSet<ValueId>) -> Result<Self, Error> {
        let mut tensors = Vec::with_capacity(graph.values.len());
        let mut integers = Vec::with_capacity(graph.values.len());
        let are_weights = bfloat16::are_weights(graph);
        for (id, value) in graph.values.iter().enumerate() {
            tensors.push(match value {
                Value::Tensor(tensor) => {
                    let mut element = element_of(tensor.scalar_type)?;
                    let storage = match &tensor.data {
                        Some(data) => Storage::Constant(match tensor.scalar_type {
                            ScalarType::Long | ScalarType::Double => {
                                Contents::Made(to_device(tensor.scalar_type, data))
                            }
                            ScalarType::BFloat16 => {
                                if are_weights.get(id) == Some(&true)
                                    && tensor.changes != Some(true)
                                    && bfloat16::fit_float16(data, &tensor.sizes)
                                {
                                    element = Element::F16;
                                }
                                Contents::Converted(element)
                            }
                            _ => Contents::Graph,
                        }),
                        None => Storage::Planned,
                    };
                    Some(DeviceTensor { element, sizes: tensor.sizes.clone(), storage })
                }
                _ => None,
            });
            integers.push(match value {
                Value::SymInt(value) => Some(*value),
                _ => None,
            });
        }
        for (id, bound) in bounds::of_integers(graph) {
            if let Some(slot) = integers.get_mut(id) {
                *slot = Some(bound);
            }
        }
        Ok(State {
            host: IdMap::default(),
            strided: IdMap::default(),
            tensors,
            integers,
            added: IdMap::default(),
            workgroups: IdMap::default(),
            derived: HashMap::new(),
            narrowed: widen::is_narrowed(graph),
            busy: 1 << 15,
            known_processors: None,
            features: DeviceFeatures::default(),
            limits: Limits::LEAST,
            changing,
            varying: Vec::new(),
            reserved: Vec::new(),
            left: IdMap::default(),
            reads: None,
            choices: Choices::default(),
        })
    }

    /// The device's processors, or about as many as such a device has.
    pub(crate) fn processors(&self) -> usize {
        self.known_processors.unwrap_or_else(|| processors(self.busy)).max(1)
    }

    /// The same for this device, with the calls that integers of the graph make vary.
    pub(crate) fn on(
        context: &Context,
        graph: &Graph<'_>,
        changing: HashSet<ValueId>,
    ) -> Result<Self, Error> {
        Ok(State {
            busy: context.busy,
            known_processors: context.processors,
            features: context.used_features(),
            limits: context.limits.clone(),
            varying: varying_calls(graph),
            ..State::new(graph, changing)?
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
        self.location(id).0
    }

    /// The tensor whose memory a tensor uses, and from which byte on.
    pub(crate) fn location(&self, id: TensorId) -> (TensorId, u64) {
        let (mut id, mut offset) = (id, 0);
        // Aliases are made to roots that use no memory of theirs, so the chain ends.
        while let Ok(DeviceTensor { storage: Storage::Alias(target, start), .. }) = self.tensor(id)
        {
            (id, offset) = (*target, offset + start);
        }
        (id, offset)
    }

    /// Whether a tensor uses a part of another's memory, in one piece.
    pub(crate) fn is_part(&self, id: TensorId) -> bool {
        let (root, offset) = self.location(id);
        let numel = |id| self.tensor(id).map_or(0, DeviceTensor::numel);
        offset > 0 || numel(id) != numel(root)
    }
}
