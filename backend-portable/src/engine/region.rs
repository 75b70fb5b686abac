//! A region of the graph that the CPU engine runs. Plans are built on demand and cached by input
//! shapes.

use super::builder::{Builder, Refusal};
use super::given::Given;
use super::numbers;
use super::ops::{self, EngineForms};
use super::packed::Packs;
use super::packer::Made;
use super::plan::{Element, Lap, Memory, Plan};
use super::view::View;
use crate::compute::gemm::{Context, ShapeMismatch};
use crate::compute::simd::Tier;
use crate::compute::storage::Stored;
use bytemuck::Pod;
use half::{bf16, f16};
use std::borrow::Cow;
use std::string::String;
use std::time::Instant;
use std::vec;
use std::vec::Vec;
use torchlet_core::{
    Delegate, DelegateCall, DelegateClock, DelegateError, DelegateEvent, Invoke, KernelError,
    Message, Parallel, ScalarType, TensorInfo, Uncancelled,
};
use torchlet_graph::graph::{Graph, Value, ValueId};
use torchlet_graph::passes::epilogue;

/// Maximum number of cached plans; the least recently used one is evicted first.
const MAX_PLANS: usize = 4;

/// A delegated region: its cached plans, and the memory that they share.
pub(super) struct Region<'m> {
    /// Cached plans by inputs, the most recently used last.
    plans: Vec<(Vec<Given>, Plan<'m>)>,
    memory: Memory,
    /// Inputs as the graph declares them.
    inputs: Vec<Given>,
    /// Dtypes of inputs and outputs.
    types: [Vec<ScalarType>; 2],
    outputs: usize,
    /// Operator name and call number of each call of the graph, for tracing.
    names: Vec<(String, u32)>,
    /// Present if input shapes or integers are dynamic.
    plan_sources: Option<PlanSources<'m>>,
}

/// Everything that is needed to build plans for further input shapes.
struct PlanSources<'m> {
    graph: Graph<'m>,
    packs: &'m Packs,
    parallel: &'m dyn Parallel,
    /// Keeps packed weights alive while no plan references them.
    _packed: Vec<Made>,
}

impl<'m> Region<'m> {
    /// Creates the region of a graph. With dynamic inputs, only weights are packed now, and plans
    /// are built at run time.
    ///
    /// # Errors
    /// If a call is not supported or memory is insufficient.
    pub(super) fn new(
        mut graph: Graph<'m>,
        packs: &'m Packs,
        parallel: &'m dyn Parallel,
    ) -> Result<Self, Refusal> {
        epilogue::run(&mut graph, &EngineForms);
        let whole = Uncancelled(parallel);
        let machine = Context { tier: Tier::detect(), parallel: &whole };
        let (inputs, outputs) = (Given::of(&graph), graph.outputs.len());
        let names = graph.nodes.iter().map(|node| (node.title(), node.id)).collect();
        let types = [&graph.inputs, &graph.outputs].map(|ids| {
            let scalar_type = |id: &ValueId| match graph.values.get(*id) {
                Some(Value::Tensor(tensor)) => tensor.scalar_type,
                _ => ScalarType::Float,
            };
            ids.iter().map(scalar_type).collect()
        });
        let (plans, memory, plan_sources) = (Vec::new(), Memory::default(), None);
        let mut region = Region { plans, memory, inputs, types, outputs, names, plan_sources };
        if Given::varies(&graph) {
            let (packed, _) = Builder::pack(&graph, machine, packs)?;
            region.plan_sources = Some(PlanSources { graph, packs, parallel, _packed: packed });
            return Ok(region);
        }
        let plan = Builder::new(&graph, machine, packs).build(&region.inputs)?;
        region.memory.fit(&plan).ok_or("out of memory")?;
        region.plans.push((region.inputs.clone(), plan));
        Ok(region)
    }

    /// Returns the plan for the given inputs, and the memory to run it in.
    fn plan(&mut self, given: Vec<Given>) -> Result<(&Plan<'m>, &mut Memory), DelegateError> {
        let known = self.plans.iter().rposition(|(other, _)| *other == given);
        match (known, &self.plan_sources) {
            (Some(at), _) => {
                let plan = self.plans.remove(at);
                self.plans.push(plan);
            }
            (None, Some(PlanSources { graph, packs, parallel, .. })) => {
                let whole = Uncancelled(*parallel);
                let machine = Context { tier: Tier::detect(), parallel: &whole };
                let plan = Builder::new(graph, machine, packs).build(&given);
                let plan = plan.map_err(|why| DelegateError::InvalidData(message(&why)))?;
                let no_memory = || {
                    DelegateError::OutOfMemory(Message::from("the temporary memory of a region"))
                };
                self.memory.fit(&plan).ok_or_else(no_memory)?;
                if self.plans.len() >= MAX_PLANS {
                    self.plans.remove(0);
                }
                self.plans.push((given, plan));
            }
            (None, None) => {
                let differs = self.inputs.iter().zip(&given).position(|(own, other)| own != other);
                let (arg, what) = (differs.unwrap_or(0), OTHER_SHAPE);
                return Err(KernelError::argument(arg, what).into());
            }
        }
        let (_, plan) = self.plans.last().ok_or_else(|| cut_short(ShapeMismatch))?;
        Ok((plan, &mut self.memory))
    }

    /// Dtype of an input.
    fn scalar_type(&self, arg: usize) -> ScalarType {
        self.types[0].get(arg).copied().unwrap_or(ScalarType::Float)
    }

    /// Returns the shape or value of an input, after checking its dtype.
    fn given(&self, invoke: &Invoke<'_, '_>, arg: usize) -> Result<Given, DelegateError> {
        Ok(match self.inputs.get(arg) {
            Some(Given::Number(_)) => Given::Number(invoke.int(arg)?),
            _ => {
                let tensor = invoke.tensor(arg)?;
                check_type(arg, tensor.info(), self.scalar_type(arg))?;
                Given::Sizes((0..tensor.rank()).map(|dim| tensor.size(dim)).collect())
            }
        })
    }
}

const OTHER_SHAPE: &str = "shape differs from the one for which this CPU region was compiled";

pub(super) fn message(text: &dyn core::fmt::Display) -> Message {
    Message::new(format_args!("{text}"))
}

fn check_type(arg: usize, info: &TensorInfo, expected: ScalarType) -> Result<(), KernelError> {
    let what = match expected {
        _ if info.scalar_type == expected => return Ok(()),
        ScalarType::Char => "expected dtype int8",
        ScalarType::Half => "expected dtype float16",
        ScalarType::BFloat16 => "expected dtype bfloat16",
        _ => "expected dtype float32",
    };
    Err(KernelError::argument(arg, what))
}

fn cut_short(_: ShapeMismatch) -> DelegateError {
    DelegateError::InvalidData(Message::new(format_args!(
        "internal error: an argument has less data than its shape requires"
    )))
}

impl Delegate for Region<'_> {
    fn execute(&mut self, call: &mut DelegateCall<'_, '_>) -> Result<(), DelegateError> {
        let begin = call.is_traced().then(Instant::now);
        let mut laps = Vec::new();
        self.run(call, begin.is_some().then_some(&mut laps))?;
        if let Some(begin) = begin {
            self.trace_calls(call, begin, &laps);
        }
        Ok(())
    }
}

impl Region<'_> {
    /// Reports the graph's calls to a tracer. Steps of the same call are reported as one event.
    fn trace_calls(&self, call: &DelegateCall<'_, '_>, begin: Instant, laps: &[Lap]) {
        let since = |time: &Instant| {
            u64::try_from(time.saturating_duration_since(begin).as_nanos()).unwrap_or(u64::MAX)
        };
        let (mut start, mut laps) = (0, laps.iter().peekable());
        while let Some((node, time)) = laps.next() {
            if laps.peek().is_some_and(|(next, _)| next == node) {
                continue;
            }
            let end = since(time);
            if let Some((name, id)) = self.names.get(*node) {
                call.trace(&DelegateEvent {
                    name,
                    id: *id,
                    start,
                    end,
                    nanoseconds_per_tick: (1, 1),
                    clock: DelegateClock::Host,
                    metadata: b"host",
                });
            }
            start = end;
        }
    }

    fn run(
        &mut self,
        call: &mut DelegateCall<'_, '_>,
        laps: Option<&mut Vec<Lap>>,
    ) -> Result<(), DelegateError> {
        let (count, varies) = (self.inputs.len(), self.plan_sources.is_some());
        if call.len() != count + self.outputs {
            let (expected, found) = (count + self.outputs, call.len());
            return Err(KernelError::argument_count(expected, found).into());
        }
        let invoke = call.split(count)?;
        let parallel = invoke.parallel();
        let mut given = Vec::with_capacity(count);
        for arg in 0..count {
            given.push(self.given(invoke, arg)?);
        }
        let mut inputs: Vec<Cow<'_, [f32]>> = Vec::with_capacity(count);
        for (arg, given) in given.iter().enumerate() {
            inputs.push(match given {
                Given::Number(_) => Cow::Borrowed(&[]),
                Given::Sizes(_) => {
                    let tensor = invoke.tensor(arg)?;
                    let info = tensor.info();
                    let elements = match self.scalar_type(arg) {
                        ScalarType::Char => {
                            let quantized = ordered(info, tensor.data::<i8>()?);
                            quantized.map(|quantized| Cow::Owned(in_words(&quantized)))
                        }
                        ScalarType::Half => widened(info, tensor.data::<f16>()?),
                        ScalarType::BFloat16 => widened(info, tensor.data::<bf16>()?),
                        _ => ordered(info, tensor.data::<f32>()?),
                    };
                    elements.ok_or(ShapeMismatch).map_err(cut_short)?
                }
            });
        }
        let types = self.types[1].clone();
        let (plan, memory) = self.plan(given)?;
        let mut outputs = Vec::with_capacity(plan.outputs().len());
        for ((arg, sizes), scalar_type) in (count..).zip(plan.outputs()).zip(types) {
            if varies {
                let sizes: Result<Vec<i32>, _> =
                    sizes.iter().map(|it| i32::try_from(*it)).collect();
                let too_large = |_| KernelError::argument(arg, "a computed size exceeds 2^31 - 1");
                invoke.resize(arg, &sizes.map_err(too_large)?)?;
            }
            let tensor = invoke.out(arg)?;
            let info = tensor.info().clone();
            check_type(arg, &info, scalar_type)?;
            if !has_sizes(&info, sizes) {
                return Err(KernelError::argument(arg, OTHER_SHAPE).into());
            }
            let count = info.numel();
            outputs.push(match scalar_type {
                ScalarType::Char => {
                    let words = vec![0.0; Element::Code.words(count)];
                    OutputBuffer::Int8(info, tensor.into_data()?, words)
                }
                ScalarType::Half => OutputBuffer::Half(info, tensor.into_data()?, vec![0.0; count]),
                ScalarType::BFloat16 => {
                    OutputBuffer::BFloat16(info, tensor.into_data()?, vec![0.0; count])
                }
                _ if info.is_contiguous() => OutputBuffer::InPlace(tensor.into_data()?),
                _ => OutputBuffer::Reordered(info, tensor.into_data()?, vec![0.0; count]),
            });
        }
        let read: Vec<&[f32]> = inputs.iter().map(|data| &**data).collect();
        let mut write: Vec<&mut [f32]> = outputs.iter_mut().map(OutputBuffer::buffer).collect();
        plan.run(memory, &read, &mut write, parallel, laps).map_err(cut_short)?;
        for output in outputs {
            output.finish().ok_or(ShapeMismatch).map_err(cut_short)?;
        }
        Ok(())
    }
}

/// Memory that an output is computed in, and the caller's tensor that receives it.
enum OutputBuffer<'a> {
    /// The caller's memory.
    InPlace(&'a mut [f32]),
    /// A temporary, since the caller's memory order differs from dim order.
    Reordered(TensorInfo, &'a mut [f32], Vec<f32>),
    /// A temporary of words, for int8.
    Int8(TensorInfo, &'a mut [i8], Vec<f32>),
    /// A temporary of `f32` values, for a 16-bit dtype.
    Half(TensorInfo, &'a mut [f16], Vec<f32>),
    BFloat16(TensorInfo, &'a mut [bf16], Vec<f32>),
}

impl OutputBuffer<'_> {
    fn buffer(&mut self) -> &mut [f32] {
        match self {
            OutputBuffer::InPlace(out) => out,
            OutputBuffer::Reordered(.., words) | OutputBuffer::Int8(.., words) => words,
            OutputBuffer::Half(.., words) | OutputBuffer::BFloat16(.., words) => words,
        }
    }

    /// Copies the temporary to the caller's memory.
    fn finish(self) -> Option<()> {
        match self {
            OutputBuffer::InPlace(_) => Some(()),
            OutputBuffer::Reordered(info, out, words) => {
                rearrange(&info, Order::ToTensor, &words, out)
            }
            OutputBuffer::Int8(info, out, words) => {
                rearrange::<i8>(&info, Order::ToTensor, bytemuck::cast_slice(&words), out)
            }
            OutputBuffer::Half(info, out, words) => narrowed(&info, &words, out),
            OutputBuffer::BFloat16(info, out, words) => narrowed(&info, &words, out),
        }
    }
}

/// Packs int8 values into 32-bit words; the last word is padded with zeros.
fn in_words(quantized: &[i8]) -> Vec<f32> {
    let mut words = vec![0.0; Element::Code.words(quantized.len())];
    let bytes: &mut [i8] = bytemuck::cast_slice_mut(&mut words);
    bytes.iter_mut().zip(quantized).for_each(|(slot, value)| *slot = *value);
    words
}

/// Like [`ordered`], for a 16-bit tensor; the values are widened to `f32`.
fn widened<'a, T: Stored + Pod>(info: &TensorInfo, data: &[T]) -> Option<Cow<'a, [f32]>> {
    let data = ordered(info, data)?;
    Some(Cow::Owned(numbers::widened(&data)))
}

/// Rounds row-major `f32` values to a 16-bit dtype and stores them in a tensor.
fn narrowed<T: Stored + Pod>(info: &TensorInfo, words: &[f32], out: &mut [T]) -> Option<()> {
    if info.is_contiguous() {
        T::narrow(words, out.get_mut(..words.len())?);
        return Some(());
    }
    let mut narrow = vec![T::zeroed(); words.len()];
    T::narrow(words, &mut narrow);
    rearrange(info, Order::ToTensor, &narrow, out)
}

fn has_sizes(info: &TensorInfo, sizes: &[usize]) -> bool {
    info.rank() == sizes.len()
        && sizes.iter().enumerate().all(|(dim, size)| info.size(dim) == *size)
}

/// Returns the elements of a tensor in dim order; borrowed if they already have it.
fn ordered<'a, T: Pod>(info: &TensorInfo, data: &'a [T]) -> Option<Cow<'a, [T]>> {
    if info.is_contiguous() {
        return Some(Cow::Borrowed(data));
    }
    let mut ordered = vec![T::zeroed(); info.numel()];
    rearrange(info, Order::FromTensor, data, &mut ordered)?;
    Some(Cow::Owned(ordered))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    FromTensor,
    ToTensor,
}

/// Copies between a tensor's memory order and its dim order.
fn rearrange<T: Pod>(
    info: &TensorInfo,
    order: Order,
    source: &[T],
    target: &mut [T],
) -> Option<()> {
    let sizes: Vec<usize> = (0..info.rank()).map(|dim| info.size(dim)).collect();
    let whole = View::whole(0, &sizes);
    let tensor = View { strides: info.strides().to_vec(), ..whole.clone() };
    let (from, to) = match order {
        Order::FromTensor => (tensor, whole),
        Order::ToTensor => (whole, tensor),
    };
    ops::Copy::new(&from, &to).copy(Tier::detect(), source, target)
}
