//! Thread that compiles a grammar and then answers for it.
//!
//! The compiler recurses: by schemas within one another, by references, by the properties of an
//! object. A stack overflow ends the process, so the thread has a stack that schemas within the
//! limits of [`cost`](super::cost) cannot use up. It can also not be interrupted while it compiles.
//! A caller can stop waiting; the thread then finishes the compilation, which the limits bound, and
//! ends. Until then no other schema is compiled for the same vocabulary, so that clients that come
//! and go do not leave more and more threads at work.

use crate::error::Error;
use llguidance::{CancellationHandle, Matcher};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of the stack, of which those that are not used take no memory. In a debug build for 64
/// bits, a level takes up to 22 kB, of which there are up to [`LEVELS`], and a property 1.1 kB.
const STACK: usize = if cfg!(target_pointer_width = "64") { 256 << 20 } else { 128 << 20 };
/// The most levels of a schema, see [`cost::check`](super::cost::check).
pub(super) const LEVELS: usize = 4000;
/// How often to look whether the result is still wanted.
const LOOK: Duration = Duration::from_millis(10);
/// How long a schema may be compiled, or wait for others, before the request is refused. Those
/// within the limits take about 1 s at most in a release build.
const PATIENCE: Duration = Duration::from_secs(60);

type Job = Box<dyn FnOnce(&mut Matcher) + Send>;

/// Lets one thread at a time compile.
#[derive(Clone, Default)]
pub(super) struct Gate(Arc<(Mutex<bool>, Condvar)>);

/// The right to compile, until it is dropped.
struct Pass(Gate);

impl Gate {
    /// Waits for the right to compile. Gives nothing if it is not wanted any more.
    fn enter(&self, is_left: &dyn Fn() -> bool, end: Instant) -> Result<Option<Pass>, Error> {
        let (is_closed, opened) = &*self.0;
        let mut closed = is_closed.lock().unwrap_or_else(PoisonError::into_inner);
        while *closed {
            if is_left() {
                return Ok(None);
            }
            if Instant::now() > end {
                return Err(late());
            }
            let waited = opened.wait_timeout(closed, LOOK).unwrap_or_else(PoisonError::into_inner);
            closed = waited.0;
        }
        *closed = true;
        drop(closed);
        Ok(Some(Pass(self.clone())))
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let (is_closed, opened) = &*self.0.0;
        *is_closed.lock().unwrap_or_else(PoisonError::into_inner) = false;
        opened.notify_one();
    }
}

fn late() -> Error {
    let message = format!(
        "grammar: the schema was not compiled within {} s: it is too complex, or many others wait",
        PATIENCE.as_secs()
    );
    Error::Overloaded { message }
}

fn ended() -> Error {
    Error::Defect { message: "the grammar compiler failed".into() }
}

/// The thread of a compiled grammar, which ends when this is dropped.
pub(super) struct Worker {
    jobs: Sender<Job>,
    cancel: CancellationHandle,
}

impl Worker {
    /// Compiles in a thread of its own. Gives nothing if `is_left` says that the result is not
    /// wanted any more.
    pub(super) fn start(
        gate: &Gate,
        is_left: &dyn Fn() -> bool,
        compile: impl FnOnce() -> Result<Matcher, Error> + Send + 'static,
    ) -> Result<Option<Self>, Error> {
        let end = Instant::now() + PATIENCE;
        let Some(pass) = gate.enter(is_left, end)? else { return Ok(None) };
        let ((jobs, received), (tell, told)) = (channel::<Job>(), sync_channel(1));
        let thread = std::thread::Builder::new().name("grammar".into()).stack_size(STACK);
        let spawned = thread.spawn(move || {
            let compiled = compile();
            drop(pass);
            match compiled {
                Ok(matcher) => {
                    let mut matcher = matcher.into_cancellable();
                    let cancel = matcher.cancellation_handle().unwrap_or_default();
                    if tell.send(Ok(cancel)).is_ok() {
                        received.iter().for_each(|job| job(&mut matcher));
                    }
                }
                // Whoever waited may have left.
                Err(error) => drop(tell.send(Err(error))),
            }
        });
        spawned.map_err(|error| Error::Overloaded {
            message: format!("grammar: there is no thread to compile the schema: {error}"),
        })?;
        let cancel = wait(&told, is_left, Some(end))?.transpose()?;
        Ok(cancel.map(|cancel| Worker { jobs, cancel }))
    }

    /// Lets the thread do something with the grammar. Gives nothing if `is_left` says that the
    /// result is not wanted any more; then the grammar is of no more use.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        is_left: &dyn Fn() -> bool,
        work: impl FnOnce(&mut Matcher) -> Result<T, Error> + Send + 'static,
    ) -> Result<Option<T>, Error> {
        let (tell, told) = sync_channel(1);
        // Whoever waited may have left.
        let job: Job = Box::new(move |matcher| drop(tell.send(work(matcher))));
        self.jobs.send(job).map_err(|_| ended())?;
        let answer = wait(&told, is_left, None)?;
        if answer.is_none() {
            self.cancel.cancel();
        }
        answer.transpose()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

fn wait<T>(
    told: &Receiver<T>,
    is_left: &dyn Fn() -> bool,
    end: Option<Instant>,
) -> Result<Option<T>, Error> {
    loop {
        match told.recv_timeout(LOOK) {
            Ok(answer) => return Ok(Some(answer)),
            Err(RecvTimeoutError::Disconnected) => return Err(ended()),
            Err(RecvTimeoutError::Timeout) if is_left() => return Ok(None),
            Err(RecvTimeoutError::Timeout) if end.is_some_and(|end| Instant::now() > end) => {
                return Err(late());
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Grammar, Vocabulary};
    use super::*;
    use crate::tokenizer::Tokenizer;
    use serde_json::{Map, Value, json};
    use std::cell::Cell;

    fn vocabulary() -> Vocabulary {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/model/tokenizer.json");
        Vocabulary::of(&Tokenizer::load(path).unwrap()).unwrap()
    }

    fn named(count: usize, schema: impl Fn(usize) -> Value) -> Map<String, Value> {
        (0..count).map(|at| (format!("k{at}"), schema(at))).collect()
    }

    /// A definition that refers to the next one, so often.
    fn chain(count: usize, link: impl Fn(Value) -> Value) -> Value {
        let next = |at: usize| json!({"$ref": format!("#/$defs/k{}", at + 1)});
        let mut defs = named(count, |at| link(next(at)));
        defs.insert(format!("k{count}"), json!({"type": "integer"}));
        json!({"$ref": "#/$defs/k0", "$defs": defs})
    }

    /// The largest count with which a schema is within the limits.
    fn largest(schema: impl Fn(usize) -> Value) -> usize {
        let fits = |count: usize| Grammar::json_schema(&schema(count).to_string()).is_ok();
        let (mut low, mut high) = (1, 5000);
        assert!(fits(low) && !fits(high));
        while high - low > 1 {
            let middle = (low + high) / 2;
            *(if fits(middle) { &mut low } else { &mut high }) = middle;
        }
        low
    }

    /// What recurses in the compiler, as large as it may be: a stack that is too small would end
    /// the process, with all tests. One more is refused by the limit's name.
    #[test]
    fn schemas_at_the_limits_of_the_stack_are_compiled() {
        let vocabulary = vocabulary();
        let any = |next: Value| json!({"anyOf": [{"properties": {"a": next}}, {"type": "null"}]});
        let shapes: [(&str, &dyn Fn(usize) -> Value); 6] = [
            ("levels", &|count| chain(count, |next| next)),
            ("levels", &|count| chain(count, |next| json!({"items": next}))),
            ("levels", &|count| chain(count, |next| json!({"allOf": [{"anyOf": [next]}]}))),
            ("levels", &|count| chain(count, any)),
            ("too large", &|count| json!({"properties": named(count, |_| json!({}))})),
            ("too large", &|count| json!({"const": named(count, |at| json!(at))})),
        ];
        for (limit, shape) in shapes {
            let most = largest(shape);
            let grammar = Grammar::json_schema(&shape(most).to_string()).unwrap();
            // The compiler may refuse it, but in time.
            if let Err(error) = vocabulary.constraint(&grammar, &|| false) {
                assert!(matches!(error, Error::Grammar { .. }), "{most}: {error}");
            }
            let error = Grammar::json_schema(&shape(most + 1).to_string()).unwrap_err();
            assert!(error.to_string().contains(limit), "{most}: {error}");
        }
        assert_eq!(largest(|count| chain(count, |next| next)), LEVELS - 4);
    }

    /// A caller can leave while a schema is compiled; the next one is compiled behind it.
    #[test]
    fn compilation_ends_for_who_leaves() {
        let vocabulary = vocabulary();
        let ((begun, begins), (go, goes)) = (channel(), channel::<()>());
        let held = move || {
            begun.send(()).unwrap();
            goes.recv().unwrap();
            Err(ended())
        };
        // It leaves once the compilation, which cannot end yet, has begun.
        let leave = || begins.try_recv().is_ok();
        assert!(Worker::start(&vocabulary.gate, &leave, held).unwrap().is_none());
        // Another does not begin before the first has ended.
        let looks = Cell::new(0);
        let leave = || looks.replace(looks.get() + 1) == 2;
        let early = || unreachable!("two are compiled at once");
        assert!(Worker::start(&vocabulary.gate, &leave, early).unwrap().is_none());
        assert_eq!(looks.get(), 3);
        go.send(()).unwrap();
        let quick = Grammar::json_schema(r#"{"type": "integer"}"#).unwrap();
        assert!(vocabulary.constraint(&quick, &|| false).unwrap().is_some());
    }

    /// A mask that nobody wants any more is not made, and logits stay as they are.
    #[test]
    fn masks_end_for_who_leaves() {
        let vocabulary = vocabulary();
        let grammar = Grammar::json_schema(r#"{"type": "integer"}"#).unwrap();
        let mut constraint = vocabulary.constraint(&grammar, &|| false).unwrap().unwrap();
        let (go, goes) = channel::<()>();
        let held = move |_: &mut Matcher| {
            goes.recv().unwrap();
            Ok(())
        };
        // It leaves while the job is held.
        assert!(constraint.worker.ask(&|| true, held).unwrap().is_none());
        go.send(()).unwrap();
        let mut logits = vec![1.0; 1024];
        let masked = constraint.mask(&mut logits, &[], &|| false);
        assert!(masked.is_err() && logits.iter().all(|logit| *logit == 1.0));
    }

    /// What is not the schema's fault is told apart: a request may be sent again, or not.
    #[test]
    fn overload_and_defects_are_told_apart() {
        let vocabulary = vocabulary();
        let pass = vocabulary.gate.enter(&|| false, Instant::now() + PATIENCE).unwrap();
        let late = vocabulary.gate.enter(&|| false, Instant::now());
        assert!(matches!(late, Err(Error::Overloaded { .. })));
        drop(pass);
        let failed = Worker::start(&vocabulary.gate, &|| false, || panic!("a test's panic"));
        assert!(matches!(failed, Err(Error::Defect { .. })));
    }
}
