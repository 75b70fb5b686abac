//! The CPU engine: regions of a program's graph, prepared once and then run without decisions.
//!
//! Portable kernels run one operator after the other, in the order of elements that the file has. The compiler
//! ([`torchlet_graph`]) gives this engine whole regions instead. When a method is loaded, each call becomes steps of a plan
//! ([`plan`]): geometry and instruction set are settled, weights are packed, limits go into the products before them, convolutions
//! have channels innermost, what only rearranges a tensor becomes strides ([`mod@view`]), and all memory in between has its place.
//!
//! It computes in `f32`, over shapes that are known. What it does not take ([`CpuTarget`] says why) stays with the kernels.

mod arguments;
mod builder;
mod lines;
mod ops;
mod packed;
mod packer;
mod plan;
mod target;
#[cfg(test)]
mod tests;
mod view;

pub use packer::WeightPacker;
pub use target::CpuTarget;

use crate::compute::gemm::{Context, ShapeMismatch};
use crate::compute::simd::Tier;
use builder::Builder;
use packed::Packs;
use plan::Plan;
use std::borrow::Cow;
use std::vec;
use std::vec::Vec;
use torchlet_core::{
    Backend, Delegate, DelegateBox, DelegateCall, DelegateError, DelegateInfo, InitContext,
    KernelError, Message, ScalarType, TensorInfo, delegate_size,
};
use torchlet_graph::blob;
use torchlet_graph::graph::Value;
use view::View;

/// What programs call this backend.
pub const BACKEND_NAME: &str = "TorchletCpu";

/// The backend for regions that the compiler makes for the CPU. Methods of one engine share the weights that they packed.
#[derive(Debug, Default)]
pub struct CpuEngine {
    packs: Packs,
}

impl CpuEngine {
    /// An engine that has packed nothing yet.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Backend for CpuEngine {
    fn name(&self) -> &'static str {
        BACKEND_NAME
    }

    fn arena_bytes(&self, _delegate: &DelegateInfo<'_>) -> Result<usize, DelegateError> {
        Ok(delegate_size::<Region<'_>>())
    }

    fn init<'m>(
        &'m self,
        context: &mut InitContext<'_, 'm>,
    ) -> Result<DelegateBox<'m>, DelegateError> {
        let invalid = |text: &dyn core::fmt::Display| DelegateError::InvalidData(message(text));
        let info = *context.info();
        let named = |key: &str| info.named_data(key);
        let graph = blob::read(context.processed().bytes(), &named);
        let graph = graph.map_err(|error| invalid(&error))?;
        let machine = Context { tier: Tier::detect(), parallel: context.parallel() };
        let plan = Builder::new(&graph, machine, &self.packs).build();
        let plan = plan.map_err(|why| DelegateError::Unsupported(message(&why)))?;
        let arguments = graph.inputs.iter().chain(&graph.outputs);
        let sizes = arguments.map(|id| match graph.values.get(*id) {
            Some(Value::Tensor(tensor)) => tensor.sizes.clone(),
            _ => Vec::new(),
        });
        let (sizes, inputs) = (sizes.collect(), graph.inputs.len());
        context.place(Region { plan, sizes, inputs })
    }
}

fn message(text: &dyn core::fmt::Display) -> Message {
    Message::new(format_args!("{text}"))
}

/// A region as a delegate.
struct Region<'p> {
    plan: Plan<'p>,
    /// The shapes of inputs, then outputs.
    sizes: Vec<Vec<usize>>,
    inputs: usize,
}

impl Region<'_> {
    /// Whether an argument is what the plan was made for.
    fn check(&self, arg: usize, info: &TensorInfo) -> Result<(), KernelError> {
        if info.scalar_type != ScalarType::Float {
            return Err(KernelError::Argument {
                arg,
                what: "is not float32, as the region was prepared for",
            });
        }
        let sizes = self.sizes.get(arg).map_or(&[][..], Vec::as_slice);
        let is_same = info.rank() == sizes.len()
            && sizes.iter().enumerate().all(|(dim, size)| info.size(dim) == *size);
        match is_same {
            true => Ok(()),
            false => Err(KernelError::Argument {
                arg,
                what: "has another shape than the region was prepared for",
            }),
        }
    }
}

fn cut_short(_: ShapeMismatch) -> DelegateError {
    DelegateError::InvalidData(Message::new(format_args!(
        "an argument is shorter than its shape says"
    )))
}

impl Delegate for Region<'_> {
    fn execute(&mut self, call: &mut DelegateCall<'_, '_>) -> Result<(), DelegateError> {
        if call.len() != self.sizes.len() {
            let (expected, found) = (self.sizes.len(), call.len());
            return Err(KernelError::ArgumentCount { expected, found }.into());
        }
        let invoke = call.split(self.inputs)?;
        let parallel = invoke.parallel();
        let mut inputs = Vec::with_capacity(self.inputs);
        for arg in 0..self.inputs {
            let tensor = invoke.tensor(arg)?;
            self.check(arg, tensor.info())?;
            let elements = ordered(tensor.info(), tensor.data::<f32>()?);
            inputs.push(elements.ok_or(ShapeMismatch).map_err(cut_short)?);
        }
        let mut outputs = Vec::with_capacity(self.sizes.len() - self.inputs);
        for arg in self.inputs..self.sizes.len() {
            let tensor = invoke.out(arg)?;
            self.check(arg, tensor.info())?;
            let info = tensor.info().clone();
            let ordered = if info.is_contiguous() { Vec::new() } else { vec![0.0; info.numel()] };
            outputs.push((info, tensor.into_data::<f32>()?, ordered));
        }
        let read: Vec<&[f32]> = inputs.iter().map(|data| &**data).collect();
        let write = outputs.iter_mut().map(|(_, out, ordered)| match ordered.is_empty() {
            true => &mut **out,
            false => ordered.as_mut_slice(),
        });
        let mut write: Vec<&mut [f32]> = write.collect();
        self.plan.run(&read, &mut write, parallel).map_err(cut_short)?;
        for (info, out, ordered) in outputs.iter_mut().filter(|(.., ordered)| !ordered.is_empty()) {
            let written = rearrange(info, Order::ToTensor, ordered, out);
            written.ok_or(ShapeMismatch).map_err(cut_short)?;
        }
        Ok(())
    }
}

/// A tensor's elements in the order of its dimensions.
fn ordered<'a>(info: &TensorInfo, data: &'a [f32]) -> Option<Cow<'a, [f32]>> {
    if info.is_contiguous() {
        return Some(Cow::Borrowed(data));
    }
    let mut ordered = vec![0.0; info.numel()];
    rearrange(info, Order::FromTensor, data, &mut ordered)?;
    Some(Cow::Owned(ordered))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    FromTensor,
    ToTensor,
}

/// Copies between the order of a tensor's memory and that of its dimensions.
fn rearrange(info: &TensorInfo, order: Order, source: &[f32], target: &mut [f32]) -> Option<()> {
    let sizes: Vec<usize> = (0..info.rank()).map(|dim| info.size(dim)).collect();
    let whole = View::whole(0, &sizes);
    let tensor = View { strides: info.strides().to_vec(), ..whole.clone() };
    let (from, to) = match order {
        Order::FromTensor => (tensor, whole),
        Order::ToTensor => (whole, tensor),
    };
    ops::Copy::new(&from, &to).copy(source, target)
}
