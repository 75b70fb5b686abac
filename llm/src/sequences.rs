//! Several sessions in one run of a model.
//!
//! A program that was [compiled for several sequences](Model::sequences) has a slot of state for
//! each session. A session's runner has a model of its own, [`SlotModel`], which leaves its call in
//! a queue. One of the waiting threads leads: it takes calls of the same shape from the queue, runs
//! them together, and hands out the results. Sessions join and leave between runs: whatever waits
//! runs.
//!
//! Policy:
//! - Calls run in the order of arrival; later calls with the same method and shapes join them, up
//!   to [`MAX_TOKENS`]. Pieces of a prompt and decoded tokens differ in shape, so they take turns.
//! - After a run, a leader waits briefly for the sessions that were there before, which are
//!   sampling their tokens. A session that does not come back costs that time once.
//!
//! Runs compute the rows of a session independently of the others, so its results do not depend on
//! who else is there.

use crate::model::{Failure, Model};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use torchlet_core::{MethodMeta, Scalar, ScalarType, TensorInfo, TensorRef, ValueRef};

/// Maximum number of tokens in a run of several sessions. A piece of a prompt may be longer.
const MAX_TOKENS: usize = 256;
/// Limits of the time that a leader waits for sessions that are sampling: a quarter of the last
/// run.
const WAIT: [Duration; 2] = [Duration::from_micros(200), Duration::from_millis(20)];

/// A tensor of one session: its shape does not include the rows.
#[derive(Debug, Clone)]
struct Owned {
    info: TensorInfo,
    bytes: Vec<u8>,
}

/// A call that waits for a run.
#[derive(Debug)]
struct Call {
    slot: usize,
    method: String,
    inputs: Vec<Owned>,
    arrived: Instant,
}

impl Call {
    /// Whether two calls can share a run.
    fn is_like(&self, other: &Call) -> bool {
        let same = |(a, b): (&Owned, &Owned)| a.info == b.info;
        self.method == other.method
            && self.inputs.len() == other.inputs.len()
            && self.inputs.iter().zip(&other.inputs).all(same)
    }

    /// Number of tokens.
    fn tokens(&self) -> usize {
        // Dims after the second are those of an embedding.
        let sizes = self.inputs.first().map_or(&[][..], |input| &input.info.sizes);
        let sizes = sizes.iter().take(2).map(|size| usize::try_from(*size).unwrap_or(0));
        sizes.fold(1, usize::saturating_mul).max(1)
    }
}

/// Outputs of a call, or why it failed.
type Outcome = Result<Vec<Owned>, String>;

#[derive(Debug, Default)]
struct Queue {
    /// Calls in the order of arrival.
    waiting: Vec<Call>,
    /// Results that sessions have not taken yet, by slot.
    done: BTreeMap<usize, Outcome>,
    /// Slots whose sessions waited when the last run began.
    expected: Vec<usize>,
    is_running: bool,
    /// End and duration of the last run.
    last: Option<(Instant, Duration)>,
    /// Slots without a session, and whether they had one.
    free: Vec<(usize, bool)>,
    /// Whether a run panicked: the state of all slots is unknown.
    is_broken: bool,
}

impl Queue {
    /// Time to wait for further calls; `None` to run now.
    fn wait(&self, now: Instant) -> Option<Duration> {
        let first = self.waiting.first()?;
        let is_here = |slot: &usize| self.waiting.iter().any(|call| call.slot == *slot);
        if self.expected.iter().all(is_here) {
            return None;
        }
        let (end, duration) = self.last?;
        let window = (duration / 4).clamp(WAIT[0], WAIT[1]);
        let deadline = end.max(first.arrived) + window;
        deadline.checked_duration_since(now).filter(|left| !left.is_zero())
    }

    /// Takes the calls of the next run.
    fn take(&mut self) -> Vec<Call> {
        self.expected = self.waiting.iter().map(|call| call.slot).collect();
        let mut group: Vec<Call> = Vec::new();
        let mut tokens = 0usize;
        for call in core::mem::take(&mut self.waiting) {
            let joins = match group.first() {
                None => true,
                Some(first) => {
                    call.is_like(first) && tokens.saturating_add(call.tokens()) <= MAX_TOKENS
                }
            };
            if joins {
                tokens = tokens.saturating_add(call.tokens());
                group.push(call);
            } else {
                self.waiting.push(call);
            }
        }
        group
    }
}

/// A model with a slot per session.
struct Batch {
    model: Mutex<Box<dyn Model>>,
    queue: Mutex<Queue>,
    changed: Condvar,
    /// The batch that replaced this one after a panic, or has further slots.
    next: Mutex<Option<Arc<Batch>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Batch {
    fn new(model: Box<dyn Model>) -> Arc<Self> {
        // The first slot is given out first.
        let free = (0..model.sequences()).rev().map(|slot| (slot, false)).collect();
        let queue = Queue { free, ..Queue::default() };
        Arc::new(Batch {
            model: Mutex::new(model),
            queue: Mutex::new(queue),
            changed: Condvar::new(),
            next: Mutex::new(None),
        })
    }

    /// Takes a slot of this batch, or of one after it. Those are created when no slot is left.
    fn slot(self: &Arc<Self>, program: &dyn Model) -> (Arc<Batch>, usize) {
        let mut batch = self.clone();
        loop {
            let free = {
                let mut queue = lock(&batch.queue);
                if queue.is_broken { None } else { queue.free.pop() }
            };
            match free {
                Some((slot, false)) => return (batch, slot),
                Some((slot, true)) => {
                    // A slot that cannot be cleared is given up.
                    if batch.clear(slot, program).is_ok() {
                        return (batch, slot);
                    }
                    continue;
                }
                None => {}
            }
            let next = {
                let mut next = lock(&batch.next);
                next.get_or_insert_with(|| Batch::new(program.new_instance())).clone()
            };
            batch = next;
        }
    }

    /// Clears the state that an earlier session left in a slot.
    fn clear(&self, slot: usize, program: &dyn Model) -> Result<(), Failure> {
        for method in program.method_names()? {
            if has_slots(program, &method)? {
                lock(&self.model).reset_sequence(&method, slot)?;
            }
        }
        Ok(())
    }

    /// Runs a call together with others.
    fn run(&self, call: Call) -> Outcome {
        let slot = call.slot;
        let mut queue = lock(&self.queue);
        queue.waiting.push(call);
        // A thread that waits for this session may lead now.
        self.changed.notify_all();
        loop {
            if let Some(outcome) = queue.done.remove(&slot) {
                return outcome;
            }
            if queue.is_broken {
                queue.waiting.retain(|call| call.slot != slot);
                drop(queue);
                // The state of this session is unknown, too.
                resume_unwind(Box::new("a run of several sessions panicked"));
            }
            if queue.is_running {
                queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            match queue.wait(Instant::now()) {
                Some(left) => {
                    let waited = self.changed.wait_timeout(queue, left);
                    queue = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                None => queue = self.lead(queue),
            }
        }
    }

    /// Runs the calls that are next.
    fn lead<'q>(&'q self, mut queue: MutexGuard<'q, Queue>) -> MutexGuard<'q, Queue> {
        let group = queue.take();
        queue.is_running = true;
        drop(queue);
        let start = Instant::now();
        let ran = catch_unwind(AssertUnwindSafe(|| {
            let mut model = lock(&self.model);
            match together(model.as_mut(), &group) {
                // Each call alone, so that one that does not fit fails alone. Writes to state that
                // the run made before it failed are made again, with the same values.
                Err(_) if group.len() > 1 => {
                    let alone = group.chunks(1).map(|call| match together(model.as_mut(), call) {
                        Ok(mut outcomes) => outcomes.pop().unwrap_or_else(|| Ok(Vec::new())),
                        Err(message) => Err(message),
                    });
                    alone.collect()
                }
                Err(message) => vec![Err(message)],
                Ok(outcomes) => outcomes,
            }
        }));
        let mut queue = lock(&self.queue);
        queue.is_running = false;
        queue.last = Some((Instant::now(), start.elapsed()));
        match ran {
            Ok(outcomes) => {
                let slots = group.iter().map(|call| call.slot);
                queue.done.extend(slots.zip(outcomes));
            }
            Err(_) => queue.is_broken = true,
        }
        self.changed.notify_all();
        queue
    }
}

/// Runs calls of the same method and shapes together. Returns the outcome of each.
fn together(model: &mut dyn Model, calls: &[Call]) -> Result<Vec<Outcome>, String> {
    let Some(first) = calls.first() else { return Ok(Vec::new()) };
    let large = || "the inputs of several sessions are too large".to_owned();
    let rows = i32::try_from(calls.len()).map_err(|_| large())?;
    let with_rows = |sizes: &[i32]| [&[rows], sizes].concat();
    let mut stacked = Vec::with_capacity(first.inputs.len());
    for (at, input) in first.inputs.iter().enumerate() {
        let mut bytes = Vec::with_capacity(input.bytes.len().saturating_mul(calls.len()));
        let inputs = calls.iter().filter_map(|call| call.inputs.get(at));
        inputs.for_each(|input| bytes.extend_from_slice(&input.bytes));
        let info = TensorInfo::contiguous(input.info.scalar_type, &with_rows(&input.info.sizes));
        stacked.push((info.ok_or_else(large)?, bytes));
    }
    let slots: Vec<i64> = calls.iter().map(|call| call.slot as i64).collect();
    let tensors = stacked.iter().map(|(info, bytes)| TensorRef::new(info.clone(), bytes));
    let inputs: Option<Vec<TensorRef<'_>>> = tensors.collect();
    let mut inputs = inputs.ok_or_else(large)?;
    inputs.push(TensorRef::from_slice(&[rows], &slots).ok_or_else(large)?);
    let inputs: Vec<ValueRef<'_>> = inputs.into_iter().map(ValueRef::Tensor).collect();
    let mut outcomes: Vec<Outcome> = calls.iter().map(|_| Ok(Vec::new())).collect();
    let mut wrong = None;
    let mut read = |index: usize, value: ValueRef<'_>| {
        let parts = match &value {
            ValueRef::Tensor(tensor) => parts(tensor, calls.len()),
            _ => None,
        };
        match parts {
            Some(parts) => {
                for (outcome, part) in outcomes.iter_mut().zip(parts) {
                    if let Ok(outputs) = outcome {
                        outputs.push(part);
                    }
                }
            }
            None => wrong = Some(format!("output {index}: expected a row for each session")),
        }
    };
    model.run(&first.method, &inputs, &mut read).map_err(|error| describe(error.as_ref()))?;
    match wrong {
        Some(wrong) => Err(wrong),
        None => Ok(outcomes),
    }
}

/// An error with its causes.
fn describe(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(&format!(": {error}"));
        source = error.source();
    }
    text
}

/// Splits a tensor into its rows.
fn parts(tensor: &TensorRef<'_>, rows: usize) -> Option<Vec<Owned>> {
    let (count, sizes) = tensor.info().sizes.split_first()?;
    let info = TensorInfo::contiguous(tensor.info().scalar_type, sizes)?;
    let bytes = tensor.bytes();
    let is_plain = tensor.info().dim_order.iter().enumerate().all(|(at, dim)| at == *dim as usize);
    if usize::try_from(*count) != Ok(rows) || !is_plain || bytes.len() != info.nbytes() * rows {
        return None;
    }
    let part = |row: usize| {
        let bytes = bytes.get(row * info.nbytes()..(row + 1) * info.nbytes())?.to_vec();
        Some(Owned { info: info.clone(), bytes })
    };
    (0..rows).map(part).collect()
}

/// Whether a method has a slot per session. Methods without state do not.
fn has_slots(program: &dyn Model, method: &str) -> Result<bool, Failure> {
    let (own, exported) = (program.method_meta(method)?, program.exported_method_meta(method)?);
    Ok(own.input_count() != exported.input_count())
}

/// The model of one session.
pub(crate) struct SlotModel {
    batch: Arc<Batch>,
    slot: usize,
    /// Whether another session may have the slot now.
    is_released: bool,
    /// The program, without loaded methods.
    program: Box<dyn Model>,
}

impl SlotModel {
    /// Returns the model of the first session of a program that is compiled for several sequences;
    /// other models as they are.
    pub(crate) fn of(model: Box<dyn Model>) -> Box<dyn Model> {
        if model.sequences() < 2 {
            return model;
        }
        let program = model.new_instance();
        Box::new(SlotModel::in_batch(&Batch::new(model), program))
    }

    fn in_batch(batch: &Arc<Batch>, program: Box<dyn Model>) -> Self {
        let (batch, slot) = batch.slot(program.as_ref());
        SlotModel { batch, slot, is_released: false, program }
    }

    /// Gives the slot back.
    fn release(&mut self) {
        if core::mem::replace(&mut self.is_released, true) {
            return;
        }
        let mut queue = lock(&self.batch.queue);
        queue.done.remove(&self.slot);
        queue.expected.retain(|slot| *slot != self.slot);
        queue.free.push((self.slot, true));
        self.batch.changed.notify_all();
    }

    /// Converts the inputs of a call; `None` if one is neither a tensor nor an integer.
    fn owned(inputs: &[ValueRef<'_>]) -> Option<Vec<Owned>> {
        let owned = |input: &ValueRef<'_>| match input {
            ValueRef::Tensor(tensor) => {
                let info = TensorInfo::contiguous(tensor.info().scalar_type, &tensor.info().sizes)?;
                let is_plain = info.dim_order == tensor.info().dim_order;
                is_plain.then(|| Owned { info, bytes: tensor.bytes().to_vec() })
            }
            ValueRef::Scalar(Scalar::Int(number)) => {
                let info = TensorInfo::contiguous(ScalarType::Long, &[])?;
                Some(Owned { info, bytes: number.to_le_bytes().to_vec() })
            }
            _ => None,
        };
        inputs.iter().map(owned).collect()
    }
}

impl Drop for SlotModel {
    fn drop(&mut self) {
        self.release();
    }
}

impl Model for SlotModel {
    fn method_names(&self) -> Result<Vec<String>, Failure> {
        self.program.method_names()
    }

    fn method_meta(&self, method: &str) -> Result<MethodMeta<'_>, Failure> {
        self.program.exported_method_meta(method)
    }

    fn load(&mut self, method: &str) -> Result<(), Failure> {
        lock(&self.batch.model).load(method)
    }

    fn run(
        &mut self,
        method: &str,
        inputs: &[ValueRef<'_>],
        read: &mut dyn FnMut(usize, ValueRef<'_>),
    ) -> Result<(), Failure> {
        if !has_slots(self.program.as_ref(), method)? {
            return lock(&self.batch.model).run(method, inputs, read);
        }
        if self.is_released {
            return Err("the session was replaced: another one may have its slot".into());
        }
        let Some(inputs) = Self::owned(inputs) else {
            return Err("expected inputs that are contiguous tensors or integers".into());
        };
        let call = Call { slot: self.slot, method: method.into(), inputs, arrived: Instant::now() };
        for (index, output) in self.batch.run(call)?.into_iter().enumerate() {
            let tensor = TensorRef::new(output.info, &output.bytes);
            let tensor = tensor.ok_or("an output whose size differs from its shape")?;
            read(index, ValueRef::Tensor(tensor));
        }
        Ok(())
    }

    fn reset(&mut self, method: &str) -> Result<(), Failure> {
        match has_slots(self.program.as_ref(), method)? {
            true if self.is_released => Ok(()),
            true => lock(&self.batch.model).reset_sequence(method, self.slot),
            false => Ok(()),
        }
    }

    fn state(&mut self, method: &str) -> Result<Vec<TensorInfo>, Failure> {
        let state = lock(&self.batch.model).state(method)?;
        let slot = |info: TensorInfo| {
            let sizes = info.sizes.get(1..).unwrap_or_default();
            TensorInfo::contiguous(info.scalar_type, sizes).ok_or("state without slots".into())
        };
        state.into_iter().map(slot).collect()
    }

    fn new_instance(&self) -> Box<dyn Model> {
        Box::new(SlotModel::in_batch(&self.batch, self.program.new_instance()))
    }

    fn replaced(&mut self) -> Box<dyn Model> {
        // First, so that the new model can have the slot.
        self.release();
        self.new_instance()
    }

    fn is_lost(&self) -> bool {
        lock(&self.batch.queue).is_broken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const FAILS: i64 = 13;
    const PANICS: i64 = 77;

    /// A model that doubles each token, and adds the slot. Records the rows of each run.
    #[derive(Clone, Default)]
    struct Doubling {
        runs: Arc<Mutex<Vec<Vec<i64>>>>,
        time: Duration,
    }

    impl Model for Doubling {
        fn method_names(&self) -> Result<Vec<String>, Failure> {
            Ok(Vec::new())
        }

        fn method_meta(&self, _: &str) -> Result<MethodMeta<'_>, Failure> {
            Err("not described".into())
        }

        fn load(&mut self, _: &str) -> Result<(), Failure> {
            Ok(())
        }

        fn run(
            &mut self,
            _: &str,
            inputs: &[ValueRef<'_>],
            read: &mut dyn FnMut(usize, ValueRef<'_>),
        ) -> Result<(), Failure> {
            let [ValueRef::Tensor(tokens), ValueRef::Tensor(slots)] = inputs else {
                return Err("expected tokens and slots".into());
            };
            let (sizes, tokens) = (tokens.info().sizes.clone(), tokens.data::<i64>()?);
            lock(&self.runs).push(tokens.to_vec());
            std::thread::sleep(self.time);
            assert!(!tokens.contains(&PANICS), "a defect of the model");
            if tokens.contains(&FAILS) {
                return Err("a bad token".into());
            }
            let slots = slots.data::<i64>()?;
            let width = tokens.len() / slots.len();
            let doubled: Vec<i64> = tokens
                .iter()
                .enumerate()
                .map(|(at, token)| 2 * token + 1000 * slots[at / width])
                .collect();
            read(0, ValueRef::Tensor(TensorRef::from_slice(&sizes, &doubled).unwrap()));
            Ok(())
        }

        fn reset(&mut self, _: &str) -> Result<(), Failure> {
            Ok(())
        }

        fn state(&mut self, _: &str) -> Result<Vec<TensorInfo>, Failure> {
            Ok(Vec::new())
        }

        fn sequences(&self) -> usize {
            4
        }

        fn new_instance(&self) -> Box<dyn Model> {
            Box::new(self.clone())
        }
    }

    fn call(slot: usize, tokens: &[i64]) -> Call {
        let info = TensorInfo::contiguous(ScalarType::Long, &[tokens.len() as i32]).unwrap();
        let bytes = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
        let inputs = vec![Owned { info, bytes }];
        Call { slot, method: "forward".into(), inputs, arrived: Instant::now() }
    }

    fn numbers(outcome: &Outcome) -> Vec<i64> {
        let bytes = &outcome.as_ref().unwrap()[0].bytes;
        bytes.chunks_exact(8).map(|it| i64::from_le_bytes(it.try_into().unwrap())).collect()
    }

    #[test]
    fn calls_of_the_same_shape_run_together_in_order() {
        let mut queue = Queue::default();
        let prompt = vec![1; 100];
        for (slot, tokens) in
            [(3, &[1][..]), (0, &prompt), (1, &[2]), (2, &prompt), (4, &prompt), (5, &[3])]
        {
            queue.waiting.push(call(slot, tokens));
        }
        let mut slots = || -> Vec<usize> { queue.take().iter().map(|call| call.slot).collect() };
        assert_eq!(slots(), [3, 1, 5]);
        // At most 256 tokens of several prompts.
        assert_eq!(slots(), [0, 2]);
        assert_eq!(slots(), [4]);
        assert_eq!(slots(), [0; 0]);
    }

    #[test]
    fn a_leader_waits_briefly_for_the_sessions_of_the_last_run() {
        let now = Instant::now();
        let mut queue = Queue { expected: vec![0, 1], ..Queue::default() };
        queue.last = Some((now, Duration::from_millis(40)));
        queue.waiting.push(Call { arrived: now, ..call(0, &[1]) });
        assert_eq!(queue.wait(now), Some(Duration::from_millis(10)));
        assert_eq!(queue.wait(now + Duration::from_millis(10)), None);
        queue.waiting.push(Call { arrived: now, ..call(1, &[1]) });
        assert_eq!(queue.wait(now), None);
    }

    #[test]
    fn sessions_get_their_own_results() {
        let model = Doubling { time: Duration::from_micros(200), ..Doubling::default() };
        let batch = Batch::new(model.new_instance());
        let failed = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for slot in 0..4usize {
                let (batch, failed) = (&batch, &failed);
                scope.spawn(move || {
                    for round in 0..100i64 {
                        let token =
                            if slot == 3 && round % 10 == 0 { FAILS } else { 20 + round % 50 };
                        let tokens = vec![token; 1 + (round as usize + slot) % 2];
                        let outcome = batch.run(call(slot, &tokens));
                        if token == FAILS {
                            // Only the session whose call does not fit fails.
                            assert_eq!(outcome.unwrap_err(), "a bad token");
                            failed.fetch_add(1, Ordering::Relaxed);
                            continue;
                        }
                        let expected = vec![2 * token + 1000 * slot as i64; tokens.len()];
                        assert_eq!(numbers(&outcome), expected);
                    }
                });
            }
        });
        assert_eq!(failed.into_inner(), 10);
        let rows: usize = lock(&model.runs).iter().map(Vec::len).sum();
        assert!(lock(&model.runs).len() < rows, "no run had several rows");
    }

    #[test]
    fn sessions_after_a_panic_share_another_batch() {
        let batch = Batch::new(Doubling::default().new_instance());
        let barrier = Barrier::new(2);
        std::thread::scope(|scope| {
            for (slot, token) in [(0, 1), (1, PANICS)] {
                let (batch, barrier) = (&batch, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    if token != PANICS {
                        // The panic ends this session now or later, as its state is unknown.
                        let run = || while batch.run(call(slot, &[token])).is_ok() {};
                        assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
                    } else {
                        let run = || batch.run(call(slot, &[token]));
                        assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
                    }
                });
            }
        });
        let program = Doubling::default();
        let ((one, first), (two, second)) = (batch.slot(&program), batch.slot(&program));
        assert!(Arc::ptr_eq(&one, &two) && !Arc::ptr_eq(&one, &batch) && first != second);
        assert_eq!(numbers(&one.run(call(first, &[5]))), [10 + 1000 * first as i64]);
    }

    #[test]
    fn a_replaced_session_keeps_its_slot_in_the_batch() {
        let batch = Batch::new(Doubling::default().new_instance());
        let session = || SlotModel::in_batch(&batch, Box::<Doubling>::default());
        let mut sessions: Vec<SlotModel> = (0..4).map(|_| session()).collect();
        let mut last = sessions.pop().unwrap();
        let another = last.replaced();
        assert!(lock(&batch.next).is_none(), "a second batch was made");
        // The old session no longer has a slot to give back.
        drop(last);
        assert_eq!(lock(&batch.queue).free, []);
        drop(another);
        assert_eq!(lock(&batch.queue).free, [(3, true)]);
        drop(sessions);
        assert_eq!(lock(&batch.queue).free.len(), 4);
    }
}
