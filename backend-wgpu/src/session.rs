//! A session owns the memory and the recording of a compiled graph, and runs it.

use crate::device::Context;
use crate::error::Error;
use crate::memory::{Memory, buffers};
use crate::recorded::Recorded;
use crate::upload::upload;
use std::collections::HashMap;
use std::sync::Arc;
use torchlet_core::{DelegateCall, Parallel, Serial};
use torchlet_gpu::{
    Choices, Encoded, Plan, PlanOptions, Replay, Scheduler, SearchRequest, State, StateTensor,
    Step, Updates, arguments, encode, memory_plan, rewrite,
};
use torchlet_graph::front::vulkan::CallLayout;
use torchlet_graph::graph::Graph;

/// A compiled graph that is ready to run.
pub(crate) struct Session {
    plan: Plan<'static>,
    /// The current shapes and integers.
    state: State,
    updates: Updates,
    /// The positions of inputs and outputs among the arguments of a call, with the argument count.
    layout: Option<(usize, CallLayout)>,
    current: Recorded,
    /// Whether the recording matches the current shapes and integers.
    recorded: bool,
    /// The index of the output that the caller wants replaced by an argmax search, if any.
    wanted: Option<usize>,
    /// The submission of a cancelled run.
    pending: Option<wgpu::SubmissionIndex>,
    memory: Memory,
    context: Arc<Context>,
}

impl Session {
    /// Compiles a graph. `lasts` says whether the data that it borrows outlives the session.
    pub(crate) fn new(
        context: &Arc<Context>,
        mut graph: Graph<'_>,
        state_tensors: Vec<StateTensor>,
        parallel: &dyn Parallel,
        lasts: bool,
    ) -> Result<Self, Error> {
        let device = context.planned();
        rewrite(&mut graph, &device)?;
        let options = PlanOptions {
            device: &device,
            choices: Choices::default(),
            prefetch: Some(false),
            shares_weights: lasts,
        };
        let mut found = HashMap::new();
        let (mut plan, encoded) = Plan::new(graph, state_tensors, options, |weights| {
            found = context.weights.find(weights);
            found.iter().map(|(id, weight)| (*id, weight.bytes)).collect()
        })?;
        let Encoded { mut state, steps, reads } = encoded;
        let mut memory = Memory::new(context, &plan)?;
        let own_weights = buffers(context, &plan.memory.weights)?;
        let weights = plan.constants(&state, memory_plan::Memory::Weights)?;
        upload(&weights, context, &own_weights, parallel)?;
        let constants = plan.constants(&state, memory_plan::Memory::Constants)?;
        upload(&constants, context, &memory.constants, parallel)?;
        drop((weights, constants));
        memory.weights = own_weights.into_iter().map(Arc::new).collect();
        for id in std::mem::take(&mut plan.memory.shared) {
            let Some(found) = found.get(&id) else { continue };
            let buffer = found.among(&mut memory.weights);
            plan.place_weight(id, buffer, found.offset, found.bytes);
        }
        memory.holder = context.weights.keep(&plan.weights, &plan.memory.places, &memory.weights);
        let plan = plan.without_data(&mut state);
        let replay = Replay::new(&state, Some(reads));
        let mut session = Session {
            updates: plan.updates(&state, 0)?,
            layout: None,
            current: Recorded::new(replay),
            recorded: false,
            wanted: None,
            pending: None,
            memory,
            context: context.clone(),
            plan,
            state,
        };
        session.record(steps, parallel)?;
        Ok(session)
    }

    /// Returns the positions of inputs and outputs among the arguments. They are determined in the
    /// first call, because the number of arguments is unknown until then.
    fn layout(&mut self, call: &DelegateCall<'_, '_>) -> Result<CallLayout, Error> {
        let count = call.len();
        if let Some((_, layout)) = self.layout.as_ref().filter(|(known, _)| *known == count) {
            return Ok(layout.clone());
        }
        let layout = self.plan.call_layout(&arguments(call))?;
        if self.updates.new_values != layout.new_values {
            self.updates = self.plan.updates(&self.state, layout.new_values)?;
            self.recorded = false;
        }
        self.layout = Some((count, layout.clone()));
        Ok(layout)
    }

    /// Prepares for these input sizes and this search.
    ///
    /// # Errors
    /// An input exceeds its bound. The session is unchanged then.
    fn switch_to(&mut self, sizes: &[Vec<usize>], wanted: Option<usize>) -> Result<(), Error> {
        if self.wanted == wanted && self.plan.input_sizes(&self.state) == sizes {
            return Ok(());
        }
        self.plan.check_input_sizes(sizes)?;
        self.plan.set_input_sizes(&mut self.state, sizes);
        self.wanted = wanted;
        self.recorded = false;
        Ok(())
    }

    fn record(&mut self, steps: Vec<Step>, parallel: &dyn Parallel) -> Result<(), Error> {
        let Session { plan, state, updates, memory, current, context, .. } = self;
        let scheduler = Scheduler { plan, state, updates, steps: &steps, on_device: [true, true] };
        let mut schedule = scheduler.schedule(&mut current.replay, self.wanted)?;
        let bytes = schedule.search.map_or(0, |search| search.scratch_bytes());
        memory.grow_search(bytes)?;
        current.record(&mut schedule, &steps, memory, context, parallel)?;
        drop(schedule);
        self.recorded = true;
        self.current.replay.hold(steps);
        Ok(())
    }
}

impl torchlet_gpu::Session for Session {
    type Device = Context;

    fn finish_pending(&mut self) -> Result<(), Error> {
        match self.pending.take() {
            Some(submission) => self.context.wait_for(&submission, &|| false),
            None => self.context.works(),
        }
    }

    fn run(
        &mut self,
        call: &mut DelegateCall<'_, '_>,
        wanted: Option<SearchRequest<'_>>,
    ) -> Result<Option<usize>, Error> {
        let layout = self.layout(call)?;
        let searched = wanted.as_ref().and_then(|wanted| {
            layout.outputs.get(wanted.arg.checked_sub(layout.first_output)?).copied()
        });
        let invoke = call.split(layout.first_output).map_err(torchlet_gpu::Error::Argument)?;
        let sizes = self.plan.call_sizes(&layout, invoke)?;
        self.switch_to(&sizes, searched)?;
        let (staging, varied) = (&mut self.memory.input_bytes, &mut self.current.replay.varied);
        self.plan.write_inputs(&mut self.state, &layout, invoke, staging, varied)?;
        if self.current.replay.varied && self.recorded {
            // Cleared first, so that an error leaves no valid recording.
            self.recorded = false;
            let steps = self.current.replay.update(&self.plan, &mut self.state)?;
            if let Some(steps) = steps {
                self.current.write_parameters(&steps, &self.context)?;
                self.recorded = true;
            }
        }
        let parallel = invoke.parallel();
        if !self.recorded {
            let (steps, reads) = encode(&self.plan.graph, &mut self.state, false)?;
            self.current.replay.reads = Some(reads);
            self.record(steps, parallel)?;
        }
        if parallel.is_cancelled() {
            return Err(Error::Cancelled);
        }
        self.memory.write_inputs()?;
        let varied = std::mem::take(&mut self.current.replay.varied);
        let submission = self.current.submit(&self.memory, &self.context)?;
        self.pending = Some(submission.clone());
        if varied {
            self.recorded = self.current.replay.predict(&self.plan, &mut self.state);
        }
        self.context.wait_for(&submission, &|| parallel.is_cancelled())?;
        self.pending = None;
        let mut found = None;
        let Session { plan, state, memory, current, .. } = self;
        memory.read_outputs(|staging| {
            found = plan.read_outputs(state, &layout, invoke, staging, current.search, wanted)?;
            Ok(())
        })?;
        Ok(found)
    }

    fn reset(&mut self) -> Result<(), Error> {
        let contents = self.plan.initial_state(&self.state)?;
        upload(&contents, &self.context, &self.memory.constants, &Serial)
    }

    fn state_tensors(&self) -> &[StateTensor] {
        &self.plan.state_tensors
    }

    fn read_state(&self, number: usize, target: &mut [u8]) -> Result<(), Error> {
        let state = self.plan.state_tensor(number, target.len())?;
        self.memory.read_state(state, self.plan.binding(&self.state, state.id, false)?, target)
    }

    fn write_state(&mut self, number: usize, source: &[u8]) -> Result<(), Error> {
        let state = self.plan.state_tensor(number, source.len())?;
        self.memory.write_state(state, self.plan.binding(&self.state, state.id, true)?, source)
    }
}
