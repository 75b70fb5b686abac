//! A session owns the memory and the recordings of a compiled graph, and runs it.

use crate::device::{Clock, Context};
use crate::error::Error;
use crate::memory::Memory;
use crate::recorded::Recorded;
use crate::recording_cache::{CachedRecording, RecordingCache, RecordingKey};
use crate::stopwatch::Stopwatch;
use crate::trace::report_commands;
use crate::upload::upload;
use std::collections::HashMap;
use std::sync::Arc;
use torchlet_core::{DelegateCall, Serial};
use torchlet_gpu::device::TuningKey;
use torchlet_gpu::{
    Encoded, Plan, Replay, Scheduler, SearchRequest, Shapes, State, StateTensor, Step, Updates,
    arguments, encode,
};
use torchlet_graph::front::vulkan::CallLayout;

/// A compiled graph that is ready to run.
pub(crate) struct Session {
    plan: Plan<'static>,
    /// The current shapes and integers.
    state: State,
    updates: Updates,
    /// The positions of inputs and outputs among the arguments of a call, cached with the argument
    /// count after the first call.
    layout: Option<(usize, CallLayout)>,
    current: Recorded,
    /// Whether the current recording matches the current shapes and integers.
    recorded: bool,
    /// The index of the output that the caller wants replaced by an argmax search, if any.
    wanted: Option<usize>,
    /// Recordings for other shapes than the current ones.
    cache: RecordingCache,
    // Dropped after the recordings, which wait for their submissions.
    memory: Memory,
    context: Arc<Context>,
}

impl Session {
    /// Records a plan whose constants are on the device.
    pub(crate) fn new(
        context: &Arc<Context>,
        plan: Plan<'_>,
        encoded: Encoded,
        memory: Memory,
        traced: bool,
        watch: &mut Stopwatch,
    ) -> Result<Self, Error> {
        let Encoded { mut state, steps, reads } = encoded;
        let plan = plan.without_data(&mut state);
        let replay = Replay::new(&state, Some(reads));
        let mut session = Session {
            updates: plan.updates(&state, 0)?,
            layout: None,
            memory,
            current: Recorded::new(context, replay, traced)?,
            recorded: false,
            wanted: None,
            cache: RecordingCache::default(),
            context: context.clone(),
            plan,
            state,
        };
        session.record_or_evict(steps, watch)?;
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
            self.cache.clear();
        }
        self.layout = Some((count, layout.clone()));
        Ok(layout)
    }

    /// Reports the times of the run's phases and commands to the tracer, if any.
    fn report(&self, call: &DelegateCall<'_, '_>, watch: &Stopwatch) -> Result<(), Error> {
        let Some(labels) = &self.current.labels else { return Ok(()) };
        watch.report(|event| call.trace(event));
        if let (Some(clock), Some(times)) = (&self.context.clock, self.current.recording.times()?) {
            let first = times.first().and_then(|first| self.since_call(*first, clock, watch));
            report_commands(call, labels, clock, &times, first);
        }
        Ok(())
    }

    /// Returns the device ticks between the start of `watch` and the device timestamp `taken`;
    /// `None` if the device clock cannot be compared with the host's.
    fn since_call(&self, taken: u64, clock: &Clock, watch: &Stopwatch) -> Option<u64> {
        let (now, ticks) = self.context.now()?;
        let passed = clock.nanoseconds(clock.since_first(&[taken, ticks]).last().copied()?);
        let began = watch.nanoseconds_until(now)?.checked_sub(passed)?;
        Some(clock.ticks(began))
    }

    /// Switches to the recording with this key: the current one, a cached one, or an empty one that
    /// has yet to be recorded.
    ///
    /// # Errors
    /// An input exceeds its bound, or no memory is available for another recording. The session is
    /// unchanged then.
    fn switch_to(&mut self, key: RecordingKey) -> Result<(), Error> {
        let sizes = self.plan.input_sizes(&self.state);
        let now = RecordingKey { sizes, wanted: self.wanted };
        if now == key {
            return Ok(());
        }
        self.plan.check_input_sizes(&key.sizes)?;
        let found = self.cache.take(&key);
        let is_found = found.is_some();
        let other = match found {
            Some(other) => Some(other),
            None if self.recorded => Some(match self.cache.take_oldest_if_full() {
                Some(oldest) => oldest,
                None => self.another(key.clone())?,
            }),
            None => None,
        };
        if let Some(mut other) = other {
            let was_recorded = std::mem::replace(&mut self.recorded, is_found);
            other.exchange(&mut self.current, &mut self.state);
            other.key = now;
            if was_recorded {
                self.cache.push(other);
            }
        }
        self.wanted = key.wanted;
        if !is_found {
            self.plan.set_input_sizes(&mut self.state, &key.sizes);
            self.recorded = false;
        }
        Ok(())
    }

    /// Creates an empty recording with the current shapes.
    fn another(&mut self, key: RecordingKey) -> Result<CachedRecording, Error> {
        let replay = || Replay::new(&self.state, None);
        let traced = self.current.labels.is_some();
        let recorded = Recorded::new(&self.context, replay(), traced).or_else(|error| {
            self.cache.evict(error)?;
            Recorded::new(&self.context, replay(), traced)
        })?;
        Ok(CachedRecording::new(key, recorded, Shapes::of(&self.state, &self.plan.watched)))
    }

    /// Records steps. If memory runs out, frees the cached recordings and tries again.
    fn record_or_evict(&mut self, steps: Vec<Step>, watch: &mut Stopwatch) -> Result<(), Error> {
        self.record(&steps, watch).or_else(|error| {
            self.cache.evict(error)?;
            self.record(&steps, watch)
        })?;
        self.current.replay.hold(steps);
        Ok(())
    }

    fn record(&mut self, steps: &[Step], watch: &mut Stopwatch) -> Result<(), Error> {
        let Session { plan, state, updates, memory, current, cache, context, .. } = self;
        let on_device = memory.staging_on_device();
        let scheduler = Scheduler { plan, state, updates, steps, on_device };
        let mut schedule = scheduler.schedule(&mut current.replay, self.wanted)?;
        let bytes = schedule.search.map_or(0, |search| search.scratch_bytes());
        if !memory.has_search(bytes) {
            // Drops everything that refers to the old buffer.
            current.recording.unbind();
            cache.clear();
            memory.grow_search(bytes)?;
        }
        current.record(&mut schedule, steps, memory, context)?;
        watch.lap("record");
        if current.labels.is_some() {
            current.labels = Some(scheduler.labels(&schedule));
            watch.lap("name commands");
        }
        self.recorded = true;
        Ok(())
    }

    /// Runs once with zeros as inputs. Returns the time of each command in ticks, with the index of
    /// the graph's call that the command belongs to.
    pub(crate) fn measure(&mut self) -> Result<Vec<(usize, u64)>, Error> {
        self.memory.inputs.mapped().fill(0);
        self.current.recording.run()?;
        let times = self.current.recording.times()?.unwrap_or_default();
        let clock = self.context.clock.as_ref();
        let times = clock.map(|clock| clock.since_first(&times)).unwrap_or_default();
        let labels = self.current.labels.as_deref().unwrap_or_default();
        let ticks = labels.iter().zip(times.windows(2)).filter_map(|(label, pair)| match pair {
            [start, end] => Some((label.call?, end.saturating_sub(*start))),
            _ => None,
        });
        Ok(ticks.collect())
    }

    /// Returns the tuning questions, by the index of their call.
    pub(crate) fn questions(&self) -> HashMap<usize, TuningKey> {
        self.state.questions()
    }

    /// Waits until the device has finished all submissions; a cancelled run uses the memory until
    /// then. Other delegates are unaffected: they share only weights, which are read-only.
    fn wait(&self) -> Result<(), Error> {
        self.cache.wait()?;
        self.current.recording.wait()
    }
}

impl torchlet_gpu::Session for Session {
    type Device = Context;

    fn finish_pending(&mut self) -> Result<(), Error> {
        self.wait()
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
        let mut watch = Stopwatch::new(call.is_traced());
        if call.is_traced() != self.current.labels.is_some() {
            self.current.labels = call.is_traced().then(Vec::new);
            self.recorded = false;
            self.cache.clear();
        }
        let invoke = call.split(layout.first_output)?;
        let sizes = self.plan.call_sizes(&layout, invoke)?;
        self.switch_to(RecordingKey { sizes, wanted: searched })?;
        watch.lap("find recording");
        let (staging, varied) = (self.memory.inputs.mapped(), &mut self.current.replay.varied);
        self.plan.write_inputs(&mut self.state, &layout, invoke, staging, varied)?;
        watch.lap("write inputs");
        if self.current.replay.varied && self.recorded {
            // Cleared first, so that an error leaves no valid recording.
            self.recorded = false;
            self.recorded = match self.current.replay.update(&self.plan, &mut self.state)? {
                Some(steps) => {
                    self.current.write_parameters(&steps)?;
                    true
                }
                None => false,
            };
            watch.lap("update");
        }
        if !self.recorded {
            let (steps, reads) = encode(&self.plan.graph, &mut self.state, false)?;
            self.current.replay.reads = Some(reads);
            watch.lap("encode");
            self.record_or_evict(steps, &mut watch)?;
            // Recording may have created new pipelines.
            self.context.pipelines.save();
        }
        let parallel = invoke.parallel();
        if parallel.is_cancelled() {
            return Err(Error::Cancelled);
        }
        let varied = std::mem::take(&mut self.current.replay.varied);
        self.current.recording.submit()?;
        if varied {
            self.recorded = self.current.replay.predict(&self.plan, &mut self.state);
        }
        self.current.recording.wait_unless(&|| parallel.is_cancelled())?;
        watch.lap("submit and wait");
        let (staging, search) = (self.memory.outputs.mapped(), self.current.search);
        let found =
            self.plan.read_outputs(&self.state, &layout, invoke, staging, search, wanted)?;
        watch.lap("read outputs");
        self.report(call, &watch)?;
        Ok(found)
    }

    fn reset(&mut self) -> Result<(), Error> {
        let contents = self.plan.initial_state(&self.state)?;
        upload(&contents, &self.context, &mut self.memory.constants, &Serial, Vec::new())
    }

    fn state_tensors(&self) -> &[StateTensor] {
        &self.plan.state_tensors
    }

    fn read_state(&self, number: usize, target: &mut [u8]) -> Result<(), Error> {
        self.wait()?;
        let state = self.plan.state_tensor(number, target.len())?;
        self.memory.read(state, self.plan.binding(&self.state, state.id, false)?, target)
    }

    fn write_state(&mut self, number: usize, source: &[u8]) -> Result<(), Error> {
        let state = self.plan.state_tensor(number, source.len())?;
        self.memory.write(state, self.plan.binding(&self.state, state.id, true)?, source)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Memory must not be freed while the device still uses it. If waiting fails, the device is
        // lost, or abandoned together with its memory.
        let _ = self.wait();
    }
}
