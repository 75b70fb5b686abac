//! Instructions in the place of a call of a delegate.

use crate::emit::{Emitter, tensor_info};
use crate::error::Error;
use crate::fold;
use crate::front::delegate;
use crate::front::joined::name_of;
use crate::front::vulkan::{Argument, Bound};
use crate::graph::{Graph, Tensor, Value, ValueId};
use crate::lower::{portable, widen};
use crate::method::{Instruction, Method, MethodTensor, MethodValue, TensorData};
use crate::operators::Operator;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::{Registry, Scalar, ScalarType};

/// What all delegates of a program are lowered with.
pub(super) struct Context<'c, 'p> {
    /// Gives named data.
    pub(super) named: &'c crate::Named<'c, 'p>,
    /// Kernels that compute what is constant.
    pub(super) registry: &'c Registry<'c>,
    /// Operators of which nothing is computed beforehand.
    pub(super) left: &'c [Operator],
}

/// A delegate on its way to instructions.
pub(super) struct Lowered<'p> {
    blob: &'p [u8],
    /// Its number in the method.
    number: usize,
    /// Its graph, with portable calls, and where its outputs begin among the arguments: since the
    /// first call.
    bound: Option<Bound<'p>>,
    /// The method's values for constants and state, which all calls share.
    shared: BTreeMap<ValueId, usize>,
}

/// At what multiples state starts.
const ALIGN: usize = 16;

impl<'p> Lowered<'p> {
    pub(super) fn new(blob: &'p [u8], number: usize) -> Self {
        Lowered { blob, number, bound: None, shared: BTreeMap::new() }
    }

    /// The instructions of a call with these arguments, and the numbers that the exporter gave the
    /// calls that they stand for.
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
        let mut bound = delegate::read(self.blob, context.named, &arguments)?;
        widen::run(&mut bound.graph);
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

    /// Gives state its places in a planned buffer, from `size` on.
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
                tensor.place = Some((buffer, *size));
                *size = size
                    .checked_add(tensor.info.nbytes())
                    .and_then(|end| end.checked_next_multiple_of(ALIGN))
                    .ok_or_else(|| Error::unsupported("more state than a program can say"))?;
            }
        }
        Ok(())
    }
}

/// The values that calls take or that are looked at when they are done.
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

/// One call.
struct Call<'c, 'p> {
    graph: &'c Graph<'p>,
    inputs: &'c [usize],
    outputs: &'c [usize],
    emitter: Emitter<'c, 'p>,
    /// The values that calls make.
    made: BTreeSet<ValueId>,
    /// Outputs that calls cannot write, as they are something else already.
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
        let (inputs, outputs) =
            parts.ok_or_else(|| Error::invalid("a call has too few arguments"))?;
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
        // All that is read is read before anything is overwritten.
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

    /// Gives the graph's inputs the call's arguments, in the graph's types and in the order of
    /// their dimensions.
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
                    let given = given.ok_or_else(|| Error::invalid("an argument is no tensor"))?;
                    // The bound is the argument's, which may be the smaller one.
                    let sizes = &given.info.sizes;
                    let info = torchlet_core::TensorInfo::contiguous(info.scalar_type, sizes);
                    let info = info.ok_or_else(|| Error::invalid("an argument is too large"))?;
                    let narrowed = given.info.scalar_type == ScalarType::Long
                        && info.scalar_type == ScalarType::Int;
                    let tensor = MethodTensor {
                        info,
                        dynamism: given.dynamism,
                        place: None,
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

    /// Lets calls write to the call's arguments, where they make them.
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

    /// Whether an argument is what the graph has: of its type, with its dimensions in order.
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

    /// Copies a tensor to another, whatever its type and the order of its dimensions are, or a
    /// number to another.
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

    /// A copy of a tensor of the method.
    fn copy(&mut self, from: usize) -> Result<usize, Error> {
        let copy = self.another(from)?;
        self.convert(from, copy);
        Ok(copy)
    }

    /// The nearest integers of 32 bits, as on GPUs: an index that is out of range stays so.
    fn saturated(&mut self, from: usize) -> Result<usize, Error> {
        let nearest = self.another(from)?;
        let [low, high] = [i32::MIN, i32::MAX].map(|bound| self.emitter.integer(bound.into()));
        self.push("aten::clamp", "out", vec![from, low, high, nearest, nearest]);
        Ok(nearest)
    }

    /// A tensor like another of the method.
    fn another(&mut self, like: usize) -> Result<usize, Error> {
        let method = self.emitter.method();
        let tensor = method.tensor(like).ok_or_else(|| Error::invalid("a copy of no tensor"))?;
        let other = MethodTensor {
            info: tensor.info.clone(),
            dynamism: tensor.dynamism,
            place: None,
            data: TensorData::None,
            name: None,
        };
        Ok(method.add(MethodValue::Tensor(other)))
    }
}

/// The values that calls make, and that are not another one's memory.
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
