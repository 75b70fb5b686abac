//! A demo backend: the runtime counterpart of ExecuTorch's `BackendWithCompilerDemo`. Its processed
//! bytes are a text such as
//! `1version:0#op:demo::aten.sin.default, numel:6, dtype:torch.float32<debug_handle>1#`.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use torchlet_core::{
    Backend, Delegate, DelegateBox, DelegateCall, DelegateClock, DelegateError, DelegateEvent,
    DelegateInfo, InitContext, Message, OptionValue, Processed, delegate_size,
};

/// Computes sines, according to its text; if its data is empty, the text comes from named data.
#[derive(Default)]
pub struct Demo {
    pub name: Option<&'static str>,
    /// Observations of the last `init`.
    pub seen: Mutex<Vec<String>>,
    /// Number of live delegates.
    pub alive: AtomicUsize,
    /// Number of runs and resets.
    pub runs: AtomicUsize,
    pub resets: AtomicUsize,
    /// Reports that the backend is unavailable.
    pub unavailable: bool,
    /// Index of the delegate whose `init` fails.
    pub fail_init: Option<usize>,
    /// Requests one byte less than it needs.
    pub lies: bool,
}

impl Demo {
    pub fn named(name: &'static str) -> Self {
        Demo { name: Some(name), ..Demo::default() }
    }

    pub fn note(&self, text: String) {
        self.seen.lock().unwrap().push(text);
    }
}

/// Bytes that a delegate allocates besides itself.
const STATE: usize = 40;

fn error(text: &str) -> Message {
    Message::new(format_args!("{text}"))
}

struct Sine<'m> {
    backend: &'m Demo,
    /// The processed bytes, or a copy of them.
    text: &'m [u8],
    state: &'m mut [u8],
    factor: i64,
}

impl Backend for Demo {
    fn name(&self) -> &'static str {
        self.name.unwrap_or("BackendWithCompilerDemo")
    }

    fn is_available(&self) -> Result<(), DelegateError> {
        if self.unavailable { Err(DelegateError::Unavailable(error("no device"))) } else { Ok(()) }
    }

    fn arena_bytes(&self, delegate: &DelegateInfo<'_>) -> Result<usize, DelegateError> {
        let copy = match delegate.processed().lend() {
            Some(_) => 0,
            None => delegate.processed().size().next_multiple_of(16),
        };
        let place = STATE.next_multiple_of(16) + delegate_size::<Sine<'_>>();
        Ok(copy + place - usize::from(self.lies))
    }

    fn init<'m>(
        &'m self,
        context: &mut InitContext<'_, 'm>,
    ) -> Result<DelegateBox<'m>, DelegateError> {
        let info = *context.info();
        self.note(format!("{} {} {}", info.backend(), info.method(), info.index()));
        if self.fail_init == Some(info.index()) {
            return Err(DelegateError::Device(error("asked to fail")));
        }
        for spec in info.compile_specs() {
            let (key, value) = spec.map_err(|_| DelegateError::InvalidData(error("spec")))?;
            self.note(format!("spec {key} {value:?}"));
        }
        let mut factor = 1;
        for (key, value) in context.options() {
            self.note(format!("option {key} {value:?}"));
            if let ("factor", OptionValue::Int(value)) = (key, value) {
                factor = value;
            }
        }
        for key in ["aten.add.Tensor", "absent"] {
            let found = info.named_data(key).map_err(|_| DelegateError::InvalidData(error(key)))?;
            self.note(format!("named {key} {:?}", found.map(|blob| blob.size())));
        }
        let text = match context.processed() {
            Processed::Lent(bytes) => {
                self.note("lent".to_owned());
                bytes
            }
            Processed::Temporary(bytes) => {
                self.note("temporary".to_owned());
                let copy = context.allocate(bytes.len())?;
                copy.copy_from_slice(bytes);
                copy
            }
        };
        if !text.is_empty() && !text.starts_with(b"1version:0#op:demo::aten.sin.default") {
            return Err(DelegateError::Unsupported(error("only one sine is")));
        }
        context.trace(&DelegateEvent {
            name: "compile",
            id: 1,
            start: 5,
            end: 6,
            nanoseconds_per_tick: (1, 1),
            clock: DelegateClock::Host,
            metadata: text,
        });
        let state = context.allocate(STATE)?;
        assert!(state.iter().all(|byte| *byte == 0), "allocated memory is zeroed");
        assert_eq!(state.as_ptr().addr() % 16, 0);
        self.alive.fetch_add(1, Ordering::Relaxed);
        let delegate = Sine { backend: self, text, state, factor };
        context.place(delegate)
    }
}

impl Delegate for Sine<'_> {
    fn execute(&mut self, call: &mut DelegateCall<'_, '_>) -> Result<(), DelegateError> {
        self.backend.runs.fetch_add(1, Ordering::Relaxed);
        self.state[0] = self.state[0].wrapping_add(1);
        let traced = call.is_traced();
        let inputs = call.len().saturating_sub(1);
        let invoke = call.split(inputs)?;
        let input = invoke.tensor(0)?;
        let mut output = invoke.out(inputs)?;
        if invoke.out(inputs).is_ok() {
            return Err(DelegateError::Device(error("an output was given twice")));
        }
        let factor = self.factor as f32;
        for (to, from) in output.data_mut::<f32>()?.iter_mut().zip(input.data::<f32>()?) {
            *to = if self.text.is_empty() { from + factor } else { from.sin() * factor };
        }
        if traced {
            call.trace(&DelegateEvent {
                name: "sine",
                id: 2,
                start: 0,
                end: u64::from(self.state[0]),
                nanoseconds_per_tick: (1000, 1),
                clock: DelegateClock::DeviceAlone,
                metadata: &[],
            });
        }
        Ok(())
    }

    fn reset(&mut self) -> Result<(), DelegateError> {
        self.backend.resets.fetch_add(1, Ordering::Relaxed);
        self.state.fill(0);
        Ok(())
    }
}

impl Drop for Sine<'_> {
    fn drop(&mut self) {
        self.backend.alive.fetch_sub(1, Ordering::Relaxed);
    }
}
