//! Instructions that replace a call of a delegate.

use crate::budget::Computed;
use crate::emit::{Emitter, tensor_info};
use crate::error::Error;
use crate::fold;
use crate::front::joined::name_of;
use crate::front::vgf::refuse_shaders;
use crate::front::{Argument, Bound, delegate};
use crate::graph::{Graph, Tensor, Value, ValueId};
use crate::lower::{portable, widen};
use crate::method::{Instruction, Method, MethodTensor, MethodValue, TensorData};
use crate::operators::Operator;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::{Registry, Scalar, ScalarType};

/// Environment for lowering the delegates of a program.
pub(super) struct Context<'c, 'p> {
    /// Named data.
    pub(super) named: &'c crate::Named<'c, 'p>,
    /// Budget of constants that delegates compute.
    pub(super) computed: Computed,
    /// Kernels for constant folding.
    pub(super) registry: &'c Registry<'c>,
    /// Operators that constant folding skips.
    pub(super) left: &'c [Operator],
}

/// A delegate that becomes instructions.
pub(super) struct Lowered<'p> {
    blob: &'p [u8],
    /// Index of the delegate in the method.
    number: usize,
    /// The graph, lowered to portable calls, and the index of the first output argument. Set by the
    /// first call.
    bound: Option<Bound<'p>>,
    /// Values of the method for constants and state, which all calls share.
    shared: BTreeMap<ValueId, usize>,
}

/// Alignment of state, in bytes.
const ALIGN: usize = 16;

impl<'p> Lowered<'p> {
    pub(super) fn new(blob: &'p [u8], number: usize) -> Self {
        Lowered { blob, number, bound: None, shared: BTreeMap::new() }
    }

    /// Returns the instructions of a call with these arguments, each with the exporter's number of
    /// the call that it implements.
    pub(super) fn call(
        &mut self,
        method: &mut Method<'p>,
        args: &[usize],
        context: &Context<'_, 'p>,
    ) -> Result<Vec<(Instruction, Option<u32>)>, Error> {
        let bound = match self.bound.take() {
            Some(bound) => bound,
            None => self.prepare(method, args, context)?,
        };
        let instructions = Call::new(method, &bound, args, &self.shared)?.emit()?;
        self.bound = Some(bound);
        Ok(instructions)
    }

    fn prepare(
        &mut self,
        method: &mut Method<'p>,
        args: &[usize],
        context: &Context<'_, 'p>,
    ) -> Result<Bound<'p>, Error> {
        let argument = |arg: &usize| delegate::argument(method, *arg).unwrap_or(Argument::Number);
        let arguments: Vec<Argument> = args.iter().map(argument).collect();
        let mut bound = delegate::read(self.blob, context.named, &arguments, &context.computed)?;
        widen::run(&mut bound.graph);
        refuse_shaders(&bound.graph, |_| true)?;
        portable::run(&mut bound.graph)?;
        fold::run_but(&mut bound.graph, context.registry, context.left)?;
        let used = used(&bound.graph);
        let mut emitter = Emitter::new(method);
        for (id, value) in bound.graph.values.iter().enumerate() {
            let Value::Tensor(Tensor { data: Some(_), changes, .. }) = value else { continue };
            if !used.contains(&id) {
                continue;
            }
            let value = emitter.value(&bound.graph, id)?;
            self.shared.insert(id, value);
            if *changes == Some(true)
                && let Some(MethodValue::Tensor(tensor)) = emitter.method().values.get_mut(value)
            {
                tensor.name = Some(name_of(&bound.graph, self.number, id));
            }
        }
        Ok(bound)
    }

    /// Assigns slots in a planned buffer to the state, from offset `size` on.
    pub(super) fn place_state(
        &self,
        method: &mut Method<'p>,
        buffer: usize,
        size: &mut usize,
    ) -> Result<(), Error> {
        for value in self.shared.values() {
            let Some(MethodValue::Tensor(tensor)) = method.values.get_mut(*value) else { continue };
            // Only state has a name.
            if tensor.name.is_some() {
                tensor.location = Some((buffer, *size));
                *size = size
                    .checked_add(tensor.info.nbytes())
                    .and_then(|end| end.checked_next_multiple_of(ALIGN))
                    .ok_or_else(|| Error::unsupported("state that exceeds the address space"))?;
            }
        }
        Ok(())
    }
}

/// Returns the values that calls use, outputs and updates included.
fn used(graph: &Graph<'_>) -> BTreeSet<ValueId> {
    let mut used: BTreeSet<ValueId> = graph.outputs.iter().copied().collect();
    used.extend(graph.updates.iter().flat_map(|(new, old)| [*new, *old]));
    for id in graph.nodes.iter().flat_map(|node| &node.args) {
        used.insert(*id);
        if let Some(Value::List(items)) = graph.values.get(*id) {
            used.extend(items);
        }
    }
    used
}

/// A call of a delegate that becomes instructions.
struct Call<'c, 'p> {
    graph: &'c Graph<'p>,
    inputs: &'c [usize],
    outputs: &'c [usize],
    emitter: Emitter<'c, 'p>,
    /// Values that calls produce.
    made: BTreeSet<ValueId>,
    /// Outputs that need a copy at the end, since their values already live elsewhere.
    copied: Vec<(ValueId, usize)>,
}

impl<'c, 'p> Call<'c, 'p> {
    fn new(
        method: &'c mut Method<'p>,
        bound: &'c Bound<'p>,
        args: &'c [usize],
        shared: &BTreeMap<ValueId, usize>,
    ) -> Result<Self, Error> {
        let parts = args.split_at_checked(bound.first_output);
        let (inputs, outputs) = parts.ok_or_else(|| {
            Error::Invalid(format!(
                "delegate call: expected at least {} arguments, found {}",
                bound.first_output,
                args.len()
            ))
        })?;
        let mut emitter = Emitter::new(method);
        for (id, value) in shared {
            emitter.bind(*id, *value);
        }
        let (graph, copied) = (&bound.graph, Vec::new());
        Ok(Call { graph, inputs, outputs, emitter, made: made(graph), copied })
    }

    fn emit(mut self) -> Result<Vec<(Instruction, Option<u32>)>, Error> {
        self.take_inputs()?;
        self.choose_outputs();
        let mut parts = vec![None; self.emitter.len()];
        for node in &self.graph.nodes {
            self.emitter.emit(self.graph, node)?;
            parts.resize(self.emitter.len(), Some(node.id));
        }
        // Read all new values before any old one is overwritten.
        let mut updates = Vec::new();
        for (new, old) in &self.graph.updates {
            let mut from = self.emitter.value(self.graph, *new)?;
            if !self.made.contains(new) {
                from = self.copy(from)?;
            }
            updates.push((from, self.emitter.value(self.graph, *old)?));
        }
        for (id, to) in core::mem::take(&mut self.copied) {
            let from = self.emitter.value(self.graph, id)?;
            self.convert(from, to);
        }
        for (from, to) in updates {
            let no = self.emitter.truth(false);
            self.push("aten::copy_", "", vec![to, from, no, to]);
        }
        parts.resize(self.emitter.len(), None);
        Ok(self.emitter.finish().into_iter().zip(parts).collect())
    }

    /// Binds the graph's inputs to the arguments of the call. Converts arguments to the dtype of
    /// the graph and to contiguous dims if necessary.
    fn take_inputs(&mut self) -> Result<(), Error> {
        let used = used(self.graph);
        for (id, arg) in self.graph.inputs.iter().zip(self.inputs) {
            if !used.contains(id) {
                continue;
            }
            let arg = *arg;
            let value = match self.graph.values.get(*id) {
                Some(Value::Tensor(tensor)) if !self.fits(tensor, arg) => {
                    let info = tensor_info(tensor)?;
                    let method = self.emitter.method();
                    let given = method.tensor(arg);
                    let given = given.ok_or_else(|| {
                        Error::Invalid(format!(
                            "value {arg}, an argument of a delegate: expected a tensor"
                        ))
                    })?;
                    // The bounds of the argument may be smaller than those of the graph.
                    let sizes = &given.info.sizes;
                    let info = torchlet_core::TensorInfo::contiguous(info.scalar_type, sizes);
                    let info = info.ok_or_else(|| {
                        let shape = format!("shape {sizes:?} exceeds the address space");
                        Error::Invalid(format!("value {arg}, an argument of a delegate: {shape}"))
                    })?;
                    let narrowed = given.info.scalar_type == ScalarType::Long
                        && info.scalar_type == ScalarType::Int;
                    let tensor = MethodTensor {
                        info,
                        dynamism: given.dynamism,
                        location: None,
                        data: TensorData::None,
                        name: None,
                    };
                    let value = method.add(MethodValue::Tensor(tensor));
                    let from = if narrowed { self.saturated(arg)? } else { arg };
                    self.convert(from, value);
                    value
                }
                Some(Value::SymInt(_)) if self.emitter.method().tensor(arg).is_some() => {
                    let number = MethodValue::Scalar(Scalar::Int(0));
                    let value = self.emitter.method().add(number);
                    self.push("aten::_local_scalar_dense", "", vec![arg, value]);
                    value
                }
                _ => arg,
            };
            self.emitter.bind(*id, value);
        }
        Ok(())
    }

    /// Lets calls write directly to the output arguments, if possible.
    fn choose_outputs(&mut self) {
        let mut bound = BTreeSet::new();
        for (id, arg) in self.graph.outputs.iter().zip(self.outputs) {
            let direct = match self.graph.values.get(*id) {
                Some(Value::Tensor(tensor)) => self.fits(tensor, *arg),
                _ => true,
            };
            if direct && self.made.contains(id) && bound.insert(*id) {
                self.emitter.bind(*id, *arg);
            } else {
                self.copied.push((*id, *arg));
            }
        }
    }

    /// Whether an argument has the dtype of the graph's tensor and contiguous dims.
    fn fits(&mut self, tensor: &Tensor<'_>, arg: usize) -> bool {
        let given = self.emitter.method().tensor(arg);
        given.is_some_and(|given| {
            let rank = given.info.rank();
            given.info.scalar_type == tensor.scalar_type
                && given.info.dim_order.iter().map(|dim| usize::from(*dim)).eq(0..rank)
        })
    }

    fn push(&mut self, name: &str, overload: &str, args: Vec<usize>) {
        let (name, overload) = (String::from(name), String::from(overload));
        self.emitter.push(Instruction::Kernel { name, overload, args });
    }

    /// Copies a tensor to another one with any dtype and dim order, or a scalar to another one.
    fn convert(&mut self, from: usize, to: usize) {
        let Some(tensor) = self.emitter.method().tensor(to) else {
            return self.emitter.push(Instruction::Move { from, to });
        };
        let order: Vec<i64> = tensor.info.dim_order.iter().map(|dim| i64::from(*dim)).collect();
        let order = order.into_iter().map(|dim| self.emitter.integer(dim)).collect();
        let order = self.emitter.method().add(MethodValue::Ints(order));
        let no = self.emitter.truth(false);
        self.push("dim_order_ops::_to_dim_order_copy", "out", vec![from, no, order, to, to]);
    }

    /// Copies a tensor of the method.
    fn copy(&mut self, from: usize) -> Result<usize, Error> {
        let copy = self.another(from)?;
        self.convert(from, copy);
        Ok(copy)
    }

    /// Clamps 64-bit integers to 32 bits, as on GPUs: an index that is out of range remains so.
    fn saturated(&mut self, from: usize) -> Result<usize, Error> {
        let nearest = self.another(from)?;
        let [low, high] = [i32::MIN, i32::MAX].map(|bound| self.emitter.integer(bound.into()));
        self.push("aten::clamp", "out", vec![from, low, high, nearest, nearest]);
        Ok(nearest)
    }

    /// Creates a tensor of the same dtype and shape.
    fn another(&mut self, like: usize) -> Result<usize, Error> {
        let method = self.emitter.method();
        let tensor = method.tensor(like).ok_or_else(|| {
            Error::Invalid(format!("internal error: value {like} is not a tensor"))
        })?;
        let other = MethodTensor {
            info: tensor.info.clone(),
            dynamism: tensor.dynamism,
            location: None,
            data: TensorData::None,
            name: None,
        };
        Ok(method.add(MethodValue::Tensor(other)))
    }
}

/// Returns the values that calls produce in new memory, not in that of an argument.
fn made(graph: &Graph<'_>) -> BTreeSet<ValueId> {
    let mut made = BTreeSet::new();
    for node in &graph.nodes {
        if matches!(node.operator, Operator::COPY_ATEN | Operator::INDEX_PUT_ATEN) {
            continue;
        }
        let Some(out) = node.args.last() else { continue };
        made.extend(graph.items(out));
    }
    made
}
