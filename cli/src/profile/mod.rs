//! `torchlet profile`.

mod roofline;
pub(crate) mod source;
mod tables;
mod work;

use crate::arguments::{ModelOptions, ProfileArguments};
use crate::budget;
use crate::etdump::write_file;
use crate::failure::Failure;
use crate::terminal::progress;
use crate::{bench, model};
use serde_json::Value;
pub(crate) use source::Source;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use torchlet::graph::CallOrigin;
use torchlet::{Module, Origin, RunOn};
use torchlet_devtools::{Profile, Recorder, Recording, Row, etdump, flame, trace};
use torchlet_page::SourceModules;
use work::Work;

/// A profile with the data that is shown beside it.
struct Report {
    profile: Profile,
    work: Work,
    source: Option<Source>,
    earlier: Option<Profile>,
    /// Whether instruction indices are those of the file.
    is_as_exported: bool,
    /// Allocated bytes by allocator.
    memory: BTreeMap<String, u64>,
}

impl Report {
    /// The source module that a row belongs to.
    fn module(&self, row: &Row) -> Option<String> {
        let source = self.source.as_ref()?;
        let is_call = !is_on_host_of_device(row);
        let module = match (self.is_as_exported, row.instruction, row.part) {
            (true, Some(instruction), Some(part)) if is_call => source.part(instruction, part),
            (true, Some(instruction), None) => source.module(instruction),
            (false, _, Some(part)) if is_call => source.compiled(part),
            _ => None,
        };
        Some(module.map_or_else(|| UNKNOWN_MODULE.to_owned(), str::to_owned))
    }
}

/// Shown if the source module is unknown.
const UNKNOWN_MODULE: &str = "(unknown)";

/// Whether a row is host work of a device delegate, whose index is only an order.
fn is_on_host_of_device(row: &Row) -> bool {
    !row.on_device && row.part.is_some() && !row.name.contains("::") && !row.name.contains('.')
}

/// Profiles a program, or shows an existing recording.
pub(crate) fn profile(arguments: &ProfileArguments) -> Result<(), Failure> {
    let source =
        arguments.etrecord.as_deref().map(|path| Source::read(path, arguments.method.as_deref()));
    let earlier = arguments.against.as_deref().map(read_profile).transpose()?;
    let earlier = earlier.map(|(profile, _)| profile);
    let (recorded, name) = match (&arguments.from, &arguments.model) {
        (Some(path), _) => (Recorded::elsewhere(read_dump(path)?), path),
        (None, Some(path)) => (record(arguments, path)?, path),
        (None, None) => {
            return Err(Failure::new("expected a program file, or a dump with --from"));
        }
    };
    let Recorded { recording, mut work, is_as_exported, threads, origins } = recorded;
    let warmup = if arguments.from.is_some() { 0 } else { arguments.warmup as usize };
    let profile = Profile::of(&recording, warmup);
    if profile.runs.is_empty() {
        return Err(Failure::new(format!("'{}' has no recorded run", name.display())));
    }
    work.find_roofs(&profile, arguments.roofline, &arguments.model_options, threads);
    let title = name.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if let Some(path) = &arguments.trace {
        write_file(path, trace::object(&recording, &title).to_string().as_bytes())?;
    }
    if let Some(path) = &arguments.flame {
        write_file(path, flame::svg(&recording, &title).as_bytes())?;
    }
    if let Some(path) = &arguments.save {
        let mut object = profile.to_json();
        object[AS_EXPORTED] = is_as_exported.into();
        write_file(path, object.to_string().as_bytes())?;
    }
    let source = match (source.transpose()?, &arguments.model) {
        (Some(source), Some(path)) => {
            let options =
                ModelOptions { backend: RunOn::AsExported, ..arguments.model_options.clone() };
            let exported = model::open(path, &options)?;
            let method = model::choose_method(&exported, arguments.method.as_deref())?;
            Some(source.with_program(&exported, &method, origins))
        }
        (source, None) => source,
        (None, _) => None,
    };
    let allocations = recording.runs.iter().flat_map(|run| &run.allocations);
    let mut memory: BTreeMap<String, u64> = BTreeMap::new();
    for allocation in allocations {
        let sum = memory.entry(allocation.allocator.clone()).or_default();
        *sum = sum.saturating_add(allocation.bytes);
    }
    let report = Report { profile, work, source, earlier, is_as_exported, memory };
    if arguments.json {
        println!("{}", tables::object(&report));
    } else {
        tables::show(&report, arguments.calls);
    }
    Ok(())
}

fn read_file(path: &Path) -> Result<Vec<u8>, Failure> {
    budget::read_file(path, budget::MAX_RECORDING)
}

fn read_dump(path: &Path) -> Result<Recording, Failure> {
    etdump::read(&read_file(path)?, Vec::new())
        .map_err(|error| Failure::new(format!("'{}': {error}", path.display())))
}

/// JSON key that says whether instruction indices are those of the file.
const AS_EXPORTED: &str = "as_exported";

/// Reads a saved profile, and whether its instruction indices are those of the exported program.
pub(crate) fn read_profile(path: &Path) -> Result<(Profile, bool), Failure> {
    let fail = |what: String| Failure::new(format!("'{}': {what}", path.display()));
    let value: Value = serde_json::from_slice(&read_file(path)?)
        .map_err(|error| fail(format!("not a profile written by torchlet: {error}")))?;
    let profile = Profile::from_json(&value).map_err(|error| fail(error.to_string()))?;
    Ok((profile, value[AS_EXPORTED] == true))
}

/// A recording and facts about its program.
struct Recorded {
    recording: Recording,
    work: Work,
    is_as_exported: bool,
    /// Number of CPU threads.
    threads: usize,
    /// Origins of the calls of a compiled program.
    origins: Vec<Option<CallOrigin>>,
}

impl Recorded {
    /// A recording from a file, without its program.
    fn elsewhere(recording: Recording) -> Self {
        let (work, origins) = (Work::default(), Vec::new());
        Recorded { recording, work, is_as_exported: true, threads: 1, origins }
    }
}

/// Records runs of a program, and computes the work of its calls.
fn record(arguments: &ProfileArguments, path: &Path) -> Result<Recorded, Failure> {
    let recorder = Arc::new(Recorder::new());
    let builder = model::builder(&arguments.model_options)?.event_tracer(recorder.clone());
    let mut module = builder.load(path)?;
    let name = model::choose_method(&module, arguments.method.as_deref())?;
    let mut budget = model::budget(&mut module, &name, &arguments.model_options)?;
    let values = bench::inputs(&module, &name, &arguments.inputs, &mut budget)?;
    let mut work = Work::of(&module, &name, &values);
    work.find_earlier_roofs(arguments.roofline, &arguments.model_options);
    let (is_as_exported, threads) = (is_as_exported(&module), module.threads());
    let origins = origins(&module, &name);
    let mut method = module.method(&name)?;
    let rounds = arguments.warmup.saturating_add(arguments.iterations);
    let bar = progress(rounds.into(), "measuring");
    for _ in 0..rounds {
        method.execute(&values)?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(Recorded { recording: recorder.take(), work, is_as_exported, threads, origins })
}

/// Returns the origins of a compiled method's calls.
pub(crate) fn origins(module: &Module, method: &str) -> Vec<Option<CallOrigin>> {
    let methods = module.plan().map_or(&[][..], |plan| &plan.methods);
    let found = methods.iter().find(|found| found.name == method);
    found.map(|found| found.origins.clone()).unwrap_or_default()
}

fn is_as_exported(module: &Module) -> bool {
    !matches!(module.origin(), Origin::Compiled | Origin::Cached)
}
