//! Thread that compiles a grammar and then evaluates it.
//!
//! The compiler recurses over nested schemas, references and properties. A stack overflow aborts
//! the process, so the thread has a stack that suffices for every schema within the limits of
//! [`cost`](super::cost).
//!
//! Compilation cannot be interrupted. A caller can stop waiting; the thread then finishes the
//! compilation, which the limits bound, and ends. Until then no other schema is compiled for the
//! same vocabulary, so that clients that disconnect do not accumulate running threads.

use crate::error::Error;
use llguidance::{CancellationHandle, Matcher};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Stack size in bytes; unused stack occupies no memory. In a 64-bit debug build, a level needs up
/// to 22 kB, with at most [`MAX_LEVELS`] levels, and a property 1.1 kB.
const STACK: usize = if cfg!(target_pointer_width = "64") { 256 << 20 } else { 128 << 20 };
/// Maximum number of levels of a schema. See [`cost::check`](super::cost::check).
pub(super) const MAX_LEVELS: usize = 4000;
/// Interval for checking whether the result is still wanted.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Timeout for compiling a schema, including the time to wait for others. Schemas within the limits
/// compile in about 1 s at most in a release build.
const COMPILE_TIMEOUT: Duration = Duration::from_secs(60);

type Job = Box<dyn FnOnce(&mut Matcher) + Send>;

/// Lock that lets one thread compile at a time.
#[derive(Clone, Default)]
pub(super) struct Gate(Arc<(Mutex<bool>, Condvar)>);

/// Guard of a locked [`Gate`].
struct GateGuard(Gate);

impl Gate {
    /// Waits for the lock. Returns `None` if `is_left` abandons the request.
    fn enter(&self, is_left: &dyn Fn() -> bool, end: Instant) -> Result<Option<GateGuard>, Error> {
        let (is_closed, opened) = &*self.0;
        let mut closed = is_closed.lock().unwrap_or_else(PoisonError::into_inner);
        while *closed {
            if is_left() {
                return Ok(None);
            }
            if Instant::now() > end {
                return Err(late());
            }
            let waited =
                opened.wait_timeout(closed, POLL_INTERVAL).unwrap_or_else(PoisonError::into_inner);
            closed = waited.0;
        }
        *closed = true;
        drop(closed);
        Ok(Some(GateGuard(self.clone())))
    }
}

impl Drop for GateGuard {
    fn drop(&mut self) {
        let (is_closed, opened) = &*self.0.0;
        *is_closed.lock().unwrap_or_else(PoisonError::into_inner) = false;
        opened.notify_one();
    }
}

fn late() -> Error {
    let message = format!(
        "grammar: the schema was not compiled within {} s: it is too complex, or many others wait",
        COMPILE_TIMEOUT.as_secs()
    );
    Error::Overloaded { message }
}

fn ended() -> Error {
    Error::Defect { message: "the grammar compiler failed".into() }
}

/// Handle of the thread of a compiled grammar. Dropping it ends the thread.
pub(super) struct Worker {
    jobs: Sender<Job>,
    cancel: CancellationHandle,
}

impl Worker {
    /// Compiles in a new thread. Returns `None` if `is_left` abandons the request.
    pub(super) fn start(
        gate: &Gate,
        is_left: &dyn Fn() -> bool,
        compile: impl FnOnce() -> Result<Matcher, Error> + Send + 'static,
    ) -> Result<Option<Self>, Error> {
        let end = Instant::now() + COMPILE_TIMEOUT;
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
                // The receiver may be gone.
                Err(error) => drop(tell.send(Err(error))),
            }
        });
        spawned.map_err(|error| Error::Overloaded {
            message: format!("grammar: cannot create a thread to compile the schema: {error}"),
        })?;
        let cancel = wait(&told, is_left, Some(end))?.transpose()?;
        Ok(cancel.map(|cancel| Worker { jobs, cancel }))
    }

    /// Runs `work` on the thread. Returns `None` if `is_left` abandons the request; the grammar is
    /// unusable afterwards.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        is_left: &dyn Fn() -> bool,
        work: impl FnOnce(&mut Matcher) -> Result<T, Error> + Send + 'static,
    ) -> Result<Option<T>, Error> {
        let (tell, told) = sync_channel(1);
        // The receiver may be gone.
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
        match told.recv_timeout(POLL_INTERVAL) {
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

    /// A chain of `count` definitions, each referring to the next one.
    fn chain(count: usize, link: impl Fn(Value) -> Value) -> Value {
        let next = |at: usize| json!({"$ref": format!("#/$defs/k{}", at + 1)});
        let mut defs = named(count, |at| link(next(at)));
        defs.insert(format!("k{count}"), json!({"type": "integer"}));
        json!({"$ref": "#/$defs/k0", "$defs": defs})
    }

    /// The largest count for which the schema is within the limits.
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

    /// Recursive schemas at their limits: a stack that is too small would abort the test process.
    /// One level more is rejected with an error that names the limit.
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
            // The compiler may reject the schema, but must return.
            if let Err(error) = vocabulary.constraint(&grammar, &|| false) {
                assert!(matches!(error, Error::Grammar { .. }), "{most}: {error}");
            }
            let error = Grammar::json_schema(&shape(most + 1).to_string()).unwrap_err();
            assert!(error.to_string().contains(limit), "{most}: {error}");
        }
        assert_eq!(largest(|count| chain(count, |next| next)), MAX_LEVELS - 4);
    }

    /// A caller can abandon a compilation; the next one starts after it has ended.
    #[test]
    fn compilation_can_be_abandoned() {
        let vocabulary = vocabulary();
        let ((begun, begins), (go, goes)) = (channel(), channel::<()>());
        let held = move || {
            begun.send(()).unwrap();
            goes.recv().unwrap();
            Err(ended())
        };
        // Abandons the compilation after it has begun.
        let leave = || begins.try_recv().is_ok();
        assert!(Worker::start(&vocabulary.gate, &leave, held).unwrap().is_none());
        // The next compilation waits for the first.
        let looks = Cell::new(0);
        let leave = || looks.replace(looks.get() + 1) == 2;
        let early = || unreachable!("two are compiled at once");
        assert!(Worker::start(&vocabulary.gate, &leave, early).unwrap().is_none());
        assert_eq!(looks.get(), 3);
        go.send(()).unwrap();
        let quick = Grammar::json_schema(r#"{"type": "integer"}"#).unwrap();
        assert!(vocabulary.constraint(&quick, &|| false).unwrap().is_some());
    }

    /// Computing a mask can be abandoned, and leaves the logits unchanged.
    #[test]
    fn masks_can_be_abandoned() {
        let vocabulary = vocabulary();
        let grammar = Grammar::json_schema(r#"{"type": "integer"}"#).unwrap();
        let mut constraint = vocabulary.constraint(&grammar, &|| false).unwrap().unwrap();
        let (go, goes) = channel::<()>();
        let held = move |_: &mut Matcher| {
            goes.recv().unwrap();
            Ok(())
        };
        // Abandons the job while it is blocked.
        assert!(constraint.worker.ask(&|| true, held).unwrap().is_none());
        go.send(()).unwrap();
        let mut logits = vec![1.0; 1024];
        let masked = constraint.mask(&mut logits, &[], &|| false);
        assert!(masked.is_err() && logits.iter().all(|logit| *logit == 1.0));
    }

    /// Overload, which a retry may solve, and bugs have separate errors.
    #[test]
    fn overload_and_defects_are_distinct_errors() {
        let vocabulary = vocabulary();
        let pass = vocabulary.gate.enter(&|| false, Instant::now() + COMPILE_TIMEOUT).unwrap();
        let late = vocabulary.gate.enter(&|| false, Instant::now());
        assert!(matches!(late, Err(Error::Overloaded { .. })));
        drop(pass);
        let failed = Worker::start(&vocabulary.gate, &|| false, || panic!("a test's panic"));
        assert!(matches!(failed, Err(Error::Defect { .. })));
    }
}
