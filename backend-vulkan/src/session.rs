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
use torchlet_core::{DelegateCall, Scalar, ScalarType, Serial};
use torchlet_gpu::device::TuningKey;
use torchlet_gpu::transfer::{from_staging, to_staging};
use torchlet_gpu::{
    Encoded, Plan, Replay, Scheduler, SearchRequest, Shapes, State, StateTensor, Step, Updates,
    element_of, encode,
};
use torchlet_graph::front::vulkan::{Argument, CallLayout};

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
        let arguments: Vec<Argument> = (0..count).map(|at| argument(call, at)).collect();
        let layout = self.plan.call_layout(&arguments)?;
        if self.updates.new_values != layout.new_values {
            self.updates = self.plan.updates(&self.state, layout.new_values)?;
            self.recorded = false;
            self.cache.clear();
        }
        self.layout = Some((count, layout.clone()));
        Ok(layout)
    }

    /// Runs the graph on the arguments of a call. If an argmax search replaced an output, returns
    /// the number of rows of that output.
    pub(crate) fn run(
        &mut self,
        call: &mut DelegateCall<'_, '_>,
        mut wanted: Option<SearchRequest<'_>>,
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
        let staged = layout.inputs.iter().zip(&self.plan.inputs).filter(|(_, it)| it.is_some());
        let sizes = staged.map(|(argument, _)| {
            let tensor = invoke.tensor(*argument)?;
            Ok((0..tensor.rank()).map(|dim| tensor.size(dim)).collect())
        });
        let sizes = sizes.collect::<Result<_, Error>>()?;
        self.switch_to(RecordingKey { sizes, wanted: searched })?;
        watch.lap("find recording");
        for (position, argument) in layout.inputs.into_iter().enumerate() {
            let id = self.plan.graph.inputs[position];
            if let Some(staging) = self.plan.inputs[position] {
                let tensor = invoke.tensor(argument)?;
                if element_of(tensor.scalar_type)? != staging.element {
                    let (expected, found) = (staging.element, tensor.scalar_type);
                    return Err(Error::Invalid(format!(
                        "input {position}: expected a dtype stored as {expected:?}, found {found}"
                    )));
                }
                let memory = self.memory.inputs.mapped();
                let memory = memory.get_mut(staging.offset as usize..).unwrap_or_default();
                to_staging(tensor.info(), tensor.bytes(), memory, invoke.parallel())?;
                if self.plan.watched.contains(&id) {
                    let numel = tensor.numel();
                    let ints = memory.as_chunks::<4>().0.iter().take(numel);
                    let ints: Vec<i32> = ints.map(|bytes| i32::from_le_bytes(*bytes)).collect();
                    self.current.replay.varied |= self.state.set_host_values(id, ints);
                }
            } else if self.state.integer(id).is_some() {
                let value = match invoke.tensor(argument) {
                    Ok(tensor) => match tensor.scalar_type {
                        ScalarType::Long => tensor.data::<i64>()?.first().copied().unwrap_or(0),
                        ScalarType::Int => {
                            tensor.data::<i32>()?.first().copied().unwrap_or(0).into()
                        }
                        found => {
                            return Err(Error::Invalid(format!(
                                "input {position}: expected int32 or int64, found {found}"
                            )));
                        }
                    },
                    Err(_) => invoke.int(argument)?,
                };
                self.current.replay.varied |= self.state.set_integer(id, value);
            }
        }
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
        let mut found = None;
        for (arg, position) in (layout.first_output..).zip(layout.outputs) {
            let id = self.plan.graph.outputs[position];
            if let Some(staging) = self.plan.outputs[position] {
                let sizes = self.state.sizes(id)?;
                let sizes: Vec<i32> = sizes.iter().map(|size| *size as i32).collect();
                invoke.resize(arg, &sizes)?;
                let out = invoke.out(arg)?;
                if element_of(out.scalar_type)? != staging.element {
                    let (expected, found) = (staging.element, out.scalar_type);
                    return Err(Error::Invalid(format!(
                        "output {position}: expected a dtype stored as {expected:?}, found {found}"
                    )));
                }
                if let Some(search) = self.current.search.filter(|it| it.position == position)
                    && let Some(wanted) = wanted.take()
                {
                    let results = self.memory.outputs.mapped().get(search.results());
                    found = Some(wanted.take(results.ok_or_else(missing_results)?)?);
                    continue;
                }
                let (info, parallel) = (out.info().clone(), invoke.parallel());
                let memory = self.memory.outputs.mapped();
                let memory = memory.get(staging.offset as usize..).unwrap_or_default();
                from_staging(memory, &info, out.into_bytes(), parallel)?;
            } else if let Some(value) = self.state.integer(id) {
                invoke.set_scalar(arg, Scalar::Int(value))?;
            }
        }
        watch.lap("read outputs");
        self.report(call, &watch)?;
        Ok(found)
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

    /// Waits until the device has finished a cancelled run, which uses the memory until then. Other
    /// delegates are unaffected: they share only weights, which are read-only.
    pub(crate) fn finish_pending(&self) -> Result<(), Error> {
        self.cache.wait()?;
        self.current.recording.wait()
    }

    /// Restores the initial contents of all state buffers.
    pub(crate) fn reset(&mut self) -> Result<(), Error> {
        let contents = self.plan.initial_state(&self.state)?;
        upload(&contents, &self.context, &mut self.memory.constants, &Serial, Vec::new())
    }

    /// Returns the tuning questions, by the index of their call.
    pub(crate) fn questions(&self) -> HashMap<usize, TuningKey> {
        self.state.questions()
    }

    /// Returns the state tensors that callers can read and write.
    pub(crate) fn state_tensors(&self) -> &[StateTensor] {
        &self.plan.state_tensors
    }

    /// Copies a state tensor to the host.
    pub(crate) fn read_state(&self, number: usize, target: &mut [u8]) -> Result<(), Error> {
        let state = self.state_tensor(number, target.len())?;
        self.memory.read(state, self.plan.binding(&self.state, state.id, false)?, target)
    }

    /// Copies host data into a state tensor.
    pub(crate) fn write_state(&mut self, number: usize, source: &[u8]) -> Result<(), Error> {
        let state = self.state_tensor(number, source.len())?;
        self.memory.write(state, self.plan.binding(&self.state, state.id, true)?, source)
    }

    fn state_tensor(&self, number: usize, bytes: usize) -> Result<&StateTensor, Error> {
        let missing = || Error::Invalid(format!("the delegate has no state tensor {number}"));
        let state = self.state_tensors().get(number).ok_or_else(missing)?;
        match state.info.nbytes() {
            expected if expected == bytes => Ok(state),
            expected => Err(Error::Invalid(format!(
                "state tensor {number}: expected {expected} bytes, found {bytes}"
            ))),
        }
    }
}

fn missing_results() -> Error {
    Error::invalid("internal error: argmax results lie outside their memory")
}

/// Describes an argument of a delegate call for the plan.
fn argument(call: &DelegateCall<'_, '_>, at: usize) -> Argument {
    match call.arguments().info(at) {
        Ok(tensor) => Argument::Tensor {
            scalar_type: tensor.scalar_type,
            sizes: (0..tensor.rank()).map(|dim| tensor.size(dim)).collect(),
            dynamic: true,
            order: tensor.dim_order.iter().map(|dim| usize::from(*dim)).collect(),
        },
        Err(_) => Argument::Number,
    }
}
