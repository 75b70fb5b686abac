//! Loads a planned graph onto a device: memory, pipelines and constants.

use crate::device::{Buffer, Context, MemoryKind};
use crate::error::Error;
use crate::memory::{Memory, buffers};
use crate::session::Session;
use crate::stopwatch::Stopwatch;
use crate::upload::{Task, upload};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use torchlet_core::Parallel;
use torchlet_gpu::device::{DeviceFeature, PipelineKey};
use torchlet_gpu::{
    Choices, Encoded, Plan, PlanOptions, SharedWeight, StateTensor, Step, TensorId, memory_plan,
};
use torchlet_graph::graph::Graph;

/// Parameters for compiling and loading a graph.
#[derive(Clone, Copy)]
pub(crate) struct Build<'b> {
    pub(crate) context: &'b Arc<Context>,
    /// Whether a tracer receives events from the first run on.
    pub(crate) traced: bool,
    /// Whether the graph is compiled only to be measured, at its largest shapes.
    pub(crate) trial: bool,
    pub(crate) parallel: &'b dyn Parallel,
    /// Whether the data that the graph borrows outlives the compiled graph.
    pub(crate) lasts: bool,
    /// Device features that must not be used.
    pub(crate) without: &'b [DeviceFeature],
}

/// A planned graph, and the shared weights that are already on the device.
pub(crate) struct Planned<'g> {
    plan: Plan<'g>,
    encoded: Encoded,
    found: HashMap<TensorId, SharedWeight<Arc<Buffer>>>,
}

/// A planned graph whose memory, constants and pipelines are on the device.
pub(crate) struct Loaded<'g> {
    plan: Plan<'g>,
    encoded: Encoded,
    memory: Memory,
}

impl<'g> Planned<'g> {
    /// Plans a graph with these kernel variants.
    pub(crate) fn new(
        build: Build<'_>,
        graph: Graph<'g>,
        state_tensors: Vec<StateTensor>,
        choices: Choices,
        watch: &mut Stopwatch,
    ) -> Result<Self, Error> {
        let Build { context, lasts, without, .. } = build;
        let mut device = context.planned();
        device.features = device.features.without(without);
        let (prefetch, shares_weights) = (context.prefetch, lasts);
        let options = PlanOptions { device: &device, choices, prefetch, shares_weights };
        let mut found = HashMap::new();
        let (plan, encoded) = Plan::new(graph, state_tensors, options, |weights| {
            found = context.weights.find(weights);
            found.iter().map(|(id, weight)| (*id, weight.bytes)).collect()
        })?;
        watch.lap("plan");
        Ok(Planned { plan, encoded, found })
    }

    /// Returns the steps of the graph.
    pub(crate) fn steps(&self) -> &[Step] {
        &self.encoded.steps
    }

    /// Allocates memory, uploads the constants, and creates the pipelines of the graph and those in
    /// `others`.
    pub(crate) fn load(
        self,
        build: Build<'_>,
        others: &HashSet<PipelineKey>,
        watch: &mut Stopwatch,
    ) -> Result<Loaded<'g>, Error> {
        let Build { context, trial, parallel, .. } = build;
        let Planned { mut plan, encoded, found } = self;
        let state = &encoded.state;
        let mut memory = Memory::new(context, &plan)?;
        let mut own_weights = buffers(context, &plan.memory.weights, MemoryKind::Constants)?;
        watch.lap("allocate memory");

        let needed = plan.pipelines(state, &encoded.steps)?;
        let most = if trial { 0 } else { 4 * needed.len() + 64 };
        let warm = plan.other_pipelines(state, most);
        watch.lap("warm up pipelines");
        let mut keys: Vec<&PipelineKey> = needed.iter().collect();
        keys.extend(warm.iter().filter(|key| !needed.contains(key)));
        keys.extend(others.iter().filter(|key| !needed.contains(key) && !warm.contains(key)));
        // The largest modules first, so that the end does not wait for a single long compilation.
        keys.sort_by_key(|key| std::cmp::Reverse(key.module.spirv.len()));
        let constants = plan.constants(state, memory_plan::Memory::Constants)?;
        let weights = plan.constants(state, memory_plan::Memory::Weights)?;
        let made = {
            let (bytes, shared) = (constants.bytes() + weights.bytes(), plan.memory.shared.len());
            format!("{} pipelines, {bytes} bytes, {shared} weights shared", keys.len())
        };
        let longest = Mutex::new((Duration::ZERO, ""));
        let pipelines = keys.into_iter().map(|key| -> Task<'_> {
            Box::new(|| {
                let start = Instant::now();
                match context.pipelines.get(key) {
                    // Pipelines for smaller shapes may never be needed, so errors of these are
                    // ignored.
                    Err(error) if needed.contains(key) || error.is_device_loss() => {
                        return Err(error);
                    }
                    _ => {}
                }
                let took = (start.elapsed(), key.module.name);
                let mut longest = longest.lock().unwrap_or_else(PoisonError::into_inner);
                *longest = took.max(*longest);
                Ok(())
            })
        });
        let pipelines = pipelines.collect();
        upload(&weights, context, &mut own_weights, parallel, pipelines)?;
        upload(&constants, context, &mut memory.constants, parallel, Vec::new())?;
        let (took, name) = longest.into_inner().unwrap_or_else(PoisonError::into_inner);
        let took = took.as_secs_f64() * 1e3;
        let made = format!("{made}, slowest {took:.1} ms: {name}");
        watch.lap_of("create pipelines and upload constants", made);

        memory.weights = own_weights.into_iter().map(Arc::new).collect();
        for id in std::mem::take(&mut plan.memory.shared) {
            let Some(found) = found.get(&id) else { continue };
            let buffer = found.among(&mut memory.weights);
            plan.place_weight(id, buffer, found.offset, found.bytes);
        }
        Ok(Loaded { plan, encoded, memory })
    }
}

impl<'g> Loaded<'g> {
    /// Frees the memory, and returns the graph and its state tensors.
    pub(crate) fn unload(self) -> (Graph<'g>, Vec<StateTensor>) {
        (self.plan.graph, self.plan.state_tensors)
    }

    /// Records the plan, which makes it ready to run.
    pub(crate) fn record(self, build: Build<'_>, watch: &mut Stopwatch) -> Result<Session, Error> {
        let Loaded { plan, encoded, mut memory } = self;
        let context = build.context;
        memory.holder = context.weights.keep(&plan.weights, &plan.memory.places, &memory.weights);
        let session = Session::new(context, plan, encoded, memory, build.traced, watch)?;
        context.pipelines.save();
        watch.lap("save pipelines");
        Ok(session)
    }
}
