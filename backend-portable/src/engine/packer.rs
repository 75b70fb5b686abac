//! Ahead-of-time packing of weights for the machine that the program will run on.

use super::BACKEND_NAME;
use super::builder::Builder;
use super::lines::Lines;
use super::packed::{Form, Packs};
use crate::compute::gemm::Context;
use crate::compute::simd::Tier;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use std::vec::Vec;
use torchlet_core::{Parallel, ScalarType, Uncancelled};
use torchlet_graph::Packer;
use torchlet_graph::graph::{Graph, Node, Tensor, Value, ValueId};
use torchlet_graph::operators::Operator;

/// Packs weights for the engine on this machine. Programs borrow the packed weights from the
/// packer; constants that several regions or methods use are packed once.
pub struct WeightPacker {
    parallel: Arc<dyn Parallel + Send + Sync>,
    packs: Packs,
    kept: Kept,
}

impl core::fmt::Debug for WeightPacker {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("WeightPacker").field("machine", &Self::machine()).finish_non_exhaustive()
    }
}

/// A packed value: id, form and elements.
pub(super) type Made = (ValueId, Form, Arc<Lines>);

impl WeightPacker {
    /// Creates a packer that uses these threads.
    pub fn new(parallel: Arc<dyn Parallel + Send + Sync>) -> Self {
        WeightPacker { parallel, packs: Packs::default(), kept: Kept::default() }
    }

    /// Name of the instruction set that weights are packed for here. Programs packed for another
    /// one do not load.
    pub fn machine() -> &'static str {
        Tier::detect().name()
    }
}

impl Packer for WeightPacker {
    fn backend(&self) -> &'static str {
        BACKEND_NAME
    }

    fn pack<'p>(&'p self, mut region: Graph<'p>) -> Graph<'p> {
        let whole = Uncancelled(&*self.parallel);
        let machine = Context { tier: Tier::detect(), parallel: &whole };
        let Ok((made, plain)) = Builder::pack(&region, machine, &self.packs) else { return region };
        let mut calls: BTreeMap<ValueId, Vec<ValueId>> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for (id, form, lines) in made {
            let form = form.numbers(machine.tier);
            if plain.contains(&id) || !seen.insert((id, form.clone())) {
                continue;
            }
            let elements = self.kept.keep(lines);
            let sizes = std::vec![elements.len()];
            let data = Cow::Borrowed(bytemuck::cast_slice(elements));
            let data = constant(sizes, data);
            region.values.extend([data, Value::IntList(form)]);
            let count = region.values.len();
            calls.entry(id).or_default().extend([count - 2, count - 1]);
        }
        let calls = calls.into_iter().map(|(id, mut args)| {
            if let Some(Value::Tensor(tensor)) = region.values.get_mut(id) {
                tensor.data = None;
            }
            args.push(id);
            Node::new(Operator::PACKED, args)
        });
        let calls: Vec<Node> = calls.collect();
        region.nodes.splice(0..0, calls);
        region
    }
}

fn constant(sizes: Vec<usize>, data: Cow<'_, [u8]>) -> Value<'_> {
    Value::Tensor(Tensor {
        scalar_type: ScalarType::Float,
        host_type: ScalarType::Float,
        sizes,
        dynamic: false,
        data: Some(data),
        changes: Some(false),
    })
}

/// Number of packed weights per node of the list.
const TOGETHER: usize = 32;

/// Append-only list that keeps packed weights at stable addresses for as long as it lives.
#[derive(Debug, Default)]
struct Kept {
    slots: [OnceLock<Arc<Lines>>; TOGETHER],
    more: OnceLock<std::boxed::Box<Kept>>,
}

impl Kept {
    fn keep(&self, lines: Arc<Lines>) -> &[f32] {
        let mut lines = Some(lines);
        let mut own = self;
        loop {
            for slot in &own.slots {
                let kept = slot.get_or_init(|| lines.take().unwrap_or_default());
                if lines.is_none() {
                    return kept.as_slice();
                }
            }
            own = own.more.get_or_init(std::boxed::Box::default);
        }
    }
}

impl Drop for Kept {
    /// Iterative, because recursion over many constants would overflow the stack.
    fn drop(&mut self) {
        let mut next = self.more.take();
        while let Some(mut kept) = next {
            next = kept.more.take();
        }
    }
}
