//! The state of a graph between encodings: shapes, integers, and tensors that operators added.

use crate::bfloat16;
use crate::bounds;
use crate::choices::Choices;
use crate::derived::Derived;
use crate::device::{Device, DeviceFeatures, DeviceKind, Limits, Profile, TuningKey, processors};
use crate::error::Error;
use crate::ids::IdMap;
use crate::reads::GraphReads;
use crate::tensors::{TensorId, element_of, padded_bytes};
use crate::transfer::to_device;
use crate::varying::varying_calls;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use torchlet_core::ScalarType;
use torchlet_graph::graph::{Graph, Value, ValueId};
use torchlet_graph::lower::widen;
use torchlet_shaders::Element;

/// The source of a constant's initial contents.
#[derive(Debug, Clone)]
pub(crate) enum Contents {
    /// The bytes of the graph's value.
    Graph,
    /// The `bfloat16` bytes of the graph's value, converted to the tensor's element type when they
    /// are uploaded.
    Converted(Element),
    /// Bytes computed while the graph was encoded.
    Made(Vec<u8>),
    /// Bytes computed when they are uploaded.
    Derived(Derived),
}

impl Contents {
    /// Returns the number of bytes; `id` is the value in the graph.
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

/// Where the data of a tensor is stored.
#[derive(Debug, Clone)]
pub(crate) enum Storage {
    /// In memory that is shared with tensors whose lifetimes do not overlap.
    Planned,
    /// In memory that is not shared and keeps its contents between runs. The field describes the
    /// initial contents.
    Constant(Contents),
    /// In the memory of another tensor, from a byte offset on.
    Alias(TensorId, u64),
}

/// A tensor on the device, in row-major order.
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

    /// Returns the bytes in memory, padded to whole groups of four elements, because shaders read
    /// and write four at a time.
    pub(crate) fn bytes(&self) -> u64 {
        padded_bytes(self.element, self.numel())
    }
}

/// Fusions that are decided while a call is encoded, because they depend on more than the graph;
/// all other fusions are graph passes ([`crate::passes`]). The fused call emits nothing. The calls
/// that read its result read its inputs instead, and compute the result themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LateFusion {
    /// A layer norm into the GEMMs that read its result. These GEMMs must be tiled, and tilings
    /// depend on the device: its processors, matrix units and shared memory.
    LayerNorm,
    /// A GEMV into the rotary embedding or cache update that reads its rows. This depends on the
    /// device's shaders, and on the memory layout of the weights, which follows from the aliases of
    /// encoded tensors.
    Gemv,
    /// A rotary embedding into the update of a KV cache. If a GEMV was fused into the rotation, the
    /// cache update computes it too. Calls that read integers which change from run to run are not
    /// fused; those integers are known once memory is planned.
    Rotation,
}

/// An output that is not written, because it is fused into the calls that read it.
#[derive(Debug, Clone)]
pub(crate) struct FusedOutput {
    pub(crate) fusion: LateFusion,
    /// The index of the call that computes the output, and the index among the outputs of that
    /// call.
    pub(crate) call: usize,
    pub(crate) which: usize,
    /// The views of the output through which other calls read it.
    pub(crate) views: Vec<ValueId>,
}

/// The current shapes and integers of a graph, and the decisions made when memory was planned.
#[derive(Debug, Clone)]
pub struct State {
    /// Tensors by value, followed by those that operators added.
    pub(crate) tensors: Vec<Option<DeviceTensor>>,
    /// Element strides of tensors that are not contiguous.
    pub(crate) strided: IdMap<TensorId, Vec<usize>>,
    /// Symbolic integers, by value id.
    pub(crate) integers: Vec<Option<i64>>,
    /// The elements of integer tensors that operators read on the host, by value id.
    pub(crate) host: IdMap<ValueId, Vec<i32>>,
    /// Tensors that operators added, by call index and order within the call.
    pub(crate) added: IdMap<(usize, usize), TensorId>,
    /// The workgroup sizes that calls used when memory was planned, by call index and order within
    /// the call.
    pub(crate) workgroups: IdMap<(usize, usize), [u32; 2]>,
    /// Derived constants that operators added, with the ids of their tensors.
    pub(crate) derived: HashMap<Derived, TensorId>,
    /// Whether the graph is fp16 only because the exporter narrowed it from 32-bit floats.
    pub(crate) narrowed: bool,
    /// The number of invocations that saturate the device; smaller dispatches are split further
    /// where possible.
    pub(crate) busy: usize,
    /// The tuned constants of the device's class.
    pub(crate) profile: &'static Profile,
    /// The number of the device's processors, if known.
    pub(crate) known_processors: Option<usize>,
    /// The device's optional features.
    pub(crate) features: DeviceFeatures,
    /// The device limits.
    pub(crate) limits: Limits,
    /// Constants whose contents may differ from run to run; nothing is derived from them at load
    /// time.
    pub(crate) changing: HashSet<ValueId>,
    /// The calls that read integers which change from run to run, in order.
    pub(crate) varying: Vec<usize>,
    /// Temporary tensors that calls use only with other shapes. Each has the index of the step
    /// during which the tensor would be alive.
    pub(crate) reserved: Vec<(usize, TensorId)>,
    /// Outputs that are fused into the calls that read them; decided when memory is planned.
    pub(crate) left: IdMap<ValueId, FusedOutput>,
    /// The read analysis of the graph; `None` until the graph is encoded.
    pub(crate) reads: Option<Arc<GraphReads>>,
    /// The kernel variants chosen for calls.
    pub(crate) choices: Choices,
}

impl State {
    /// Creates the initial state with the shapes of the graph.
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
            profile: Profile::of(DeviceKind::Discrete),
            busy: 1 << 15,
            known_processors: None,
            features: DeviceFeatures::default(),
            limits: Limits::MIN,
            changing,
            varying: Vec::new(),
            reserved: Vec::new(),
            left: IdMap::default(),
            reads: None,
            choices: Choices::default(),
        })
    }

    /// Returns the number of the device's processors, or an estimate.
    pub(crate) fn processors(&self) -> usize {
        self.known_processors.unwrap_or_else(|| processors(self.busy)).max(1)
    }

    /// Creates the initial state for a device. Also finds the calls that read integers which change
    /// from run to run.
    pub(crate) fn on(
        device: &Device,
        graph: &Graph<'_>,
        changing: HashSet<ValueId>,
    ) -> Result<Self, Error> {
        Ok(State {
            profile: Profile::of(device.kind),
            busy: device.busy,
            known_processors: device.processors,
            features: device.features.clone(),
            limits: device.limits.clone(),
            varying: varying_calls(graph),
            ..State::new(graph, changing)?
        })
    }

    /// Returns the current sizes of a tensor.
    ///
    /// # Errors
    /// The value is not a tensor.
    pub fn sizes(&self, id: ValueId) -> Result<&[usize], Error> {
        Ok(&self.tensor(id)?.sizes)
    }

    /// Returns the current value of a symbolic integer; `None` for other values.
    pub fn integer(&self, id: ValueId) -> Option<i64> {
        *self.integers.get(id)?
    }

    /// Sets a symbolic integer. Returns whether the new value differs from the old one.
    pub fn set_integer(&mut self, id: ValueId, value: i64) -> bool {
        let slot = self.integers.get_mut(id).and_then(Option::as_mut);
        slot.is_some_and(|slot| std::mem::replace(slot, value) != value)
    }

    /// Sets the elements of an input that operators read on the host. Returns whether they differ
    /// from the old ones.
    pub fn set_host_values(&mut self, id: ValueId, values: Vec<i32>) -> bool {
        let differ = self.host.get(&id) != Some(&values);
        if differ {
            self.host.insert(id, values);
        }
        differ
    }

    /// Returns the tuning questions of the calls.
    pub fn questions(&self) -> HashMap<usize, TuningKey> {
        self.choices.made().map(|(call, choice)| (call, choice.question)).collect()
    }

    pub(crate) fn tensor(&self, id: TensorId) -> Result<&DeviceTensor, Error> {
        self.tensors
            .get(id)
            .and_then(Option::as_ref)
            .ok_or_else(|| Error::Invalid(format!("value {id}: expected a tensor")))
    }

    /// Returns the tensor in whose memory a tensor lies: itself, unless it is an alias.
    pub(crate) fn root(&self, id: TensorId) -> TensorId {
        self.location(id).0
    }

    /// Returns the tensor in whose memory a tensor lies, and the byte offset in it.
    pub(crate) fn location(&self, id: TensorId) -> (TensorId, u64) {
        let (mut id, mut offset) = (id, 0);
        // This terminates: aliases point to roots that do not lie in the alias's memory.
        while let Ok(DeviceTensor { storage: Storage::Alias(target, start), .. }) = self.tensor(id)
        {
            (id, offset) = (*target, offset + start);
        }
        (id, offset)
    }

    /// Whether a tensor is an alias of only a part of another tensor's memory.
    pub(crate) fn is_part(&self, id: TensorId) -> bool {
        let (root, offset) = self.location(id);
        let numel = |id| self.tensor(id).map_or(0, DeviceTensor::numel);
        offset > 0 || numel(id) != numel(root)
    }
}
