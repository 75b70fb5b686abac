//! Recordings for ExecuTorch's developer tools.

use crate::arguments::{DelegateIds, Events, ModelOptions, RecordingOptions, Values};
use crate::diff::expose::Exposed;
use crate::failure::Failure;
use crate::model;
use crate::terminal::{FAINT, WARN, bytes, count, paint};
use std::path::Path;
use std::sync::Arc;
use torchlet::core::{Event, EventKind, EventTracer, OutputValue};
use torchlet::graph::front::runs_only_compiled;
use torchlet::{Module, Origin, RunOn, Value};
use torchlet_devtools::{Recorder, Recording, etdump};

/// Creates the recorder for the options, if `--etdump` is given.
pub(crate) fn recorder(options: &RecordingOptions) -> Option<Recorder> {
    options.etdump.as_ref()?;
    let recorder = match options.events {
        Events::Methods => Recorder::new().of_methods(),
        Events::All => Recorder::new(),
    };
    let recorder = match options.values {
        Values::Outputs => recorder.of_outputs(),
        Values::All => recorder,
    };
    Some(match &options.debug_buffer {
        Some(_) => recorder.with_values(options.debug_buffer_limit.saturating_mul(1 << 20)),
        None => recorder,
    })
}

/// Opens a program with a recorder attached. Instruction indices are those of the file, unless a
/// backend was chosen or the program has XNNPACK or VGF delegates, which run only compiled.
pub(crate) fn open(
    path: &Path,
    options: &ModelOptions,
    recorder: &Arc<Recorder>,
) -> Result<Module, Failure> {
    let open = |options: &ModelOptions| -> Result<Module, Failure> {
        Ok(model::builder(options)?.event_tracer(recorder.clone()).load(path)?)
    };
    if options.backend != RunOn::Auto {
        return open(options);
    }
    let module = open(&ModelOptions { backend: RunOn::AsExported, ..options.clone() })?;
    for name in module.method_names()? {
        let meta = module.method_meta(&name)?;
        let mut delegates = (0..meta.delegate_count()).map(|index| meta.delegate_backend(index));
        if delegates.any(|backend| backend.is_some_and(runs_only_compiled)) {
            let module = open(options)?;
            if matches!(module.origin(), Origin::Compiled | Origin::Cached) {
                warn(
                    "the program has XNNPACK or VGF delegates and was compiled, so instruction \
                     indices differ from its ETRecord's",
                );
            }
            return Ok(module);
        }
    }
    Ok(module)
}

/// Records the values of all calls of a method, including those within delegates and compiled
/// regions: runs the program with its delegates replaced by single calls.
pub(crate) fn record_inside(
    recorder: &Recorder,
    path: &Path,
    method: &str,
    inputs: &[Value],
    options: &ModelOptions,
) -> Result<(), Failure> {
    let as_exported = ModelOptions { backend: RunOn::AsExported, ..options.clone() };
    let exposed = Exposed::of(&model::open(path, &as_exported)?, method)?;
    let mut taken_apart = model::builder(options)?.from_bytes(exposed.bytes)?;
    let outputs = taken_apart.method(method)?.execute(inputs)?;
    recorder.begin_block("Inside");
    for (value, origin) in outputs.iter().skip(exposed.outputs).zip(&exposed.values) {
        let Value::Tensor(tensor) = value else { continue };
        let (name, instruction) = (&origin.operator, origin.instruction);
        let event = Event { kind: EventKind::Operator, name, instruction };
        recorder.output(&event, origin.result, &OutputValue::Tensor(&tensor.as_tensor_ref()));
    }
    Ok(())
}

/// Writes the requested files.
pub(crate) fn write(options: &RecordingOptions, recording: &Recording) -> Result<(), Failure> {
    let ids = match options.delegate_ids {
        DelegateIds::Names => etdump::DelegateIds::Names,
        DelegateIds::Numbers => etdump::DelegateIds::Numbers,
    };
    if let Some(path) = &options.etdump {
        write_file(path, &etdump::write(recording, ids))?;
    }
    if let Some(path) = &options.debug_buffer {
        write_file(path, &recording.buffer)?;
    }
    if recording.dropped_events > 0 {
        warn(&format!(
            "{} were omitted, because there were too many",
            count(recording.dropped_events as usize, "event")
        ));
    }
    if recording.dropped_values > 0 {
        let values = count(recording.dropped_values as usize, "value");
        warn(&format!("{values} were omitted; raise --debug-buffer-limit to keep more"));
    }
    Ok(())
}

fn warn(what: &str) {
    anstream::eprintln!("{} {what}", paint(WARN, "note:"));
}

/// Writes a file and reports it on standard error.
pub(crate) fn write_file(path: &Path, contents: &[u8]) -> Result<(), Failure> {
    std::fs::write(path, contents)
        .map_err(|error| Failure::new(format!("cannot write '{}': {error}", path.display())))?;
    let size = bytes(contents.len() as u64);
    anstream::eprintln!("{}", paint(FAINT, format!("wrote {}, {size}", path.display())));
    Ok(())
}
