//! Device selection: runs programs as exported, or compiles them for a device.

mod cache;
mod compile_target;

use crate::devices::{DEVICE_APIS, DEVICE_NAMES, device_api};
use crate::error::Error;
use crate::files::{FileAccess, FileBytes, OpenProgram};
use crate::module::SharedParallel;
use cache::CacheFile;
use compile_target::{CPU_ENGINE, CompileTarget, Packer, Processor};
use self_cell::self_cell;
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::thread::ScopedJoinHandle;
use torchlet_core::{BundledProgram, DataMap, Limits, Program, ProgramError, Registry};
use torchlet_graph::front::{is_exported_for_device, runs_only_compiled};
use torchlet_graph::{self as graph, Package, Report, blob};

/// Device that a program runs on.
///
/// The backend that a file was lowered for is only a hint. When a program is opened, every operator
/// that the device supports is compiled for it, and the CPU kernels run the rest.
///
/// As text, the options are `auto`, `as-exported`, `cpu`, and the names of the
/// [devices](crate::DEVICE_APIS) of this build.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
#[non_exhaustive]
pub enum RunOn {
    /// The fastest option according to the cost model: a GPU if available, the CPU, or both for
    /// different parts. A program lowered for a GPU moves to the CPU, and any other program moves
    /// to the GPU, only if that halves the estimated time. Software drivers are ignored.
    #[default]
    Auto,
    /// As the exporter decided: delegates run on their backends, everything else on CPU kernels.
    AsExported,
    /// The CPU only, even for programs lowered for a GPU.
    Cpu,
    /// The device API with this name, such as `vulkan`, for every operator that it supports. The
    /// CPU runs the rest.
    Device(&'static str),
}

impl RunOn {
    /// Returns all options of this build, in the order of their names' listing.
    pub fn all() -> impl Iterator<Item = RunOn> {
        let devices = DEVICE_APIS.iter().map(|api| RunOn::Device(api.name()));
        [RunOn::Auto, RunOn::Cpu, RunOn::AsExported].into_iter().chain(devices)
    }

    /// Returns the name of the option.
    pub fn name(self) -> &'static str {
        match self {
            RunOn::Auto => "auto",
            RunOn::AsExported => "as-exported",
            RunOn::Cpu => "cpu",
            RunOn::Device(name) => name,
        }
    }
}

impl fmt::Display for RunOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for RunOn {
    type Err = UnknownProcessor;

    fn from_str(name: &str) -> Result<Self, UnknownProcessor> {
        let option = RunOn::all().find(|option| option.name() == name);
        option.ok_or_else(|| UnknownProcessor(name.into()))
    }
}

/// Error for a name that is no [`RunOn`] of this build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownProcessor(pub(crate) String);

impl fmt::Display for UnknownProcessor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.0;
        if DEVICE_NAMES.contains(&name.as_str()) {
            return write!(f, "this torchlet was built without the feature `{name}`");
        }
        write!(f, "no processor {name:?}; expected ")?;
        for (index, option) in RunOn::all().enumerate() {
            write!(f, "{}'{option}'", if index == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl std::error::Error for UnknownProcessor {}

/// Origin of the loaded program.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// The program as exported, or as lowered by torchlet ahead of time.
    Exported,
    /// The program as exported, because compiling it failed with this error.
    NotCompiled(graph::Error),
    /// Compiled when the program was opened.
    Compiled,
    /// Compiled earlier, and read from the [cache](crate::ModuleBuilder::compile_cache).
    Cached,
}

/// The program's files, and other data that the compiled program borrows.
struct Sources {
    open: OpenProgram,
    from: CompiledSource,
}

/// Origin of a compiled program.
enum CompiledSource {
    /// The cache file.
    Cached(FileBytes),
    /// The compiler, with the packer that owns packed weights.
    Compiled(Option<Box<Packer>>),
}

self_cell!(
    /// Files, with the compiled program that borrows from them.
    struct Packaged {
        owner: Sources,
        #[covariant]
        dependent: Package,
    }
);

self_cell!(
    /// The compiled program, opened.
    struct Reopened {
        owner: Packaged,
        #[covariant]
        dependent: Program,
    }
);

/// The program that methods are loaded from.
pub(crate) struct ReadyProgram {
    state: State,
    report: Option<Report>,
    origin: Origin,
    sequences: Sequences,
}

/// Number of sequences of a run.
enum Sequences {
    /// One, as exported.
    One,
    /// One, because compiling the program for several failed with this error.
    Refused(graph::Error),
    Several(usize),
}

enum State {
    AsExported(OpenProgram),
    Compiled(Reopened),
}

/// Settings of the compiler.
pub(crate) struct Compiling<'c> {
    pub(crate) registry: &'c Registry<'c>,
    pub(crate) limits: &'c Limits,
    /// Number of CPU threads.
    pub(crate) threads: usize,
    /// Requested number of sequences.
    pub(crate) sequences: usize,
    /// Whether foreign shaders may run.
    pub(crate) foreign_shaders: bool,
    /// Cache folder for compiled programs, and access mode of its files.
    pub(crate) cache: Option<&'c Path>,
    pub(crate) access: FileAccess,
    /// Starts the threads, or returns them if they run.
    pub(crate) parallel: &'c dyn Fn() -> SharedParallel,
}

impl RunOn {
    /// Runs `work` while the requested device, if any, is opened on another thread: opening it
    /// takes longer than reading and compiling most programs. Later users of the device report
    /// errors.
    pub(crate) fn with_device_opening<T>(
        self,
        registry: &Registry<'_>,
        work: impl FnOnce() -> T,
    ) -> T {
        let api = match self {
            RunOn::Device(name) => device_api(name).ok(),
            _ => None,
        };
        let device = api.and_then(|api| registry.backend(api.backend_name()));
        std::thread::scope(|scope| {
            if let Some(device) = device {
                // If the thread cannot be started, the device is opened on first use.
                let open = move || drop(device.is_available());
                let opening = std::thread::Builder::new().spawn_scoped(scope, open);
                let done = work();
                // An error occurs again on first use, where it is reported.
                let _ = opening.map(ScopedJoinHandle::join);
                return done;
            }
            work()
        })
    }

    /// Compiles the program, or returns it as exported.
    pub(crate) fn prepare(
        self,
        open: OpenProgram,
        compiling: &Compiling<'_>,
    ) -> Result<ReadyProgram, Error> {
        let delegates = Delegates::of(&open.program());
        let delegates = delegates.map_err(|source| Error::Format { path: None, source })?;
        let device = || compile_target::device(compiling.registry);
        let processor = match (self, delegates) {
            (RunOn::AsExported, _) => None,
            (RunOn::Auto | RunOn::Cpu, Delegates::CompiledForCpu) => None,
            (RunOn::Auto, Delegates::Compiled(own)) if device().is_some_and(|it| it.is_of(own)) => {
                None
            }
            (RunOn::Auto, Delegates::Exported) => Some(device().unwrap_or(Processor::Cpu)),
            (RunOn::Auto | RunOn::Cpu, _) => Some(Processor::Cpu),
            (RunOn::Device(name), Delegates::Compiled(Some(own))) if name == own => None,
            (RunOn::Device(name), _) => {
                let device = compile_target::requested(name, compiling.registry);
                Some(device.map_err(|source| Error::Compile { source })?)
            }
        };
        let (mut open, mut refused) = (open, None);
        if compiling.sequences > 1 {
            let refuse = |open, why| Err((open, graph::Error::unsupported(why)));
            let attempt = match processor {
                Some(Processor::Cpu) => {
                    compiling.compiled(open, Processor::Cpu, compiling.sequences)
                }
                Some(_) => refuse(open, "several sequences on a device other than the CPU"),
                None => refuse(
                    open,
                    "several sequences in a program that runs as exported, or that was compiled \
                     ahead of time",
                ),
            };
            match attempt {
                Ok(ready) => {
                    let sequences = Sequences::Several(compiling.sequences);
                    return Ok(ReadyProgram { sequences, ..ready });
                }
                Err((own, why)) => (open, refused) = (own, Some(why)),
            }
        }
        let ready = self.prepare_one(open, processor, delegates, compiling)?;
        let sequences = refused.map_or(Sequences::One, Sequences::Refused);
        Ok(ReadyProgram { sequences, ..ready })
    }

    /// Compiles the program for one sequence, or returns it as exported.
    fn prepare_one(
        self,
        open: OpenProgram,
        processor: Option<Processor>,
        delegates: Delegates,
        compiling: &Compiling<'_>,
    ) -> Result<ReadyProgram, Error> {
        let Some(processor) = processor else {
            return Ok(ReadyProgram::as_exported(open, Origin::Exported));
        };
        match compiling.compiled(open, processor, 1) {
            Ok(ready) if self == RunOn::Auto && delegates == Delegates::None => {
                compiling.or_device_if_faster(ready)
            }
            Ok(ready) => Ok(ready),
            // Foreign shaders run on devices only, emulated or not.
            Err((open, error))
                if self == RunOn::Auto
                    && compiling.foreign_shaders
                    && processor == Processor::Cpu
                    && compiling.needs_compiler(&open) =>
            {
                let mut names = DEVICE_APIS.iter().map(|api| api.name());
                let mut found =
                    names.find_map(|it| compile_target::requested(it, compiling.registry).ok());
                let again = found.take().map(|device| compiling.compiled(open, device, 1));
                match again {
                    Some(Ok(ready)) => Ok(ready),
                    _ => Err(Error::Compile { source: error }),
                }
            }
            // Delegates can follow conventions that only the kernels implement. Retry on the CPU;
            // if that fails too, its error is the relevant one.
            Err((open, _)) if processor != Processor::Cpu && compiling.needs_compiler(&open) => {
                let ready = compiling.compiled(open, Processor::Cpu, 1);
                ready.map_err(|(_, source)| Error::Compile { source })
            }
            // Unless the device was requested explicitly, kernels can run the program as exported.
            // A program that needs the compiler cannot: the compiler's error is the most useful one
            // then.
            Err((open, error))
                if (self == RunOn::Auto || delegates == Delegates::None)
                    && !compiling.needs_compiler(&open) =>
            {
                Ok(ReadyProgram::as_exported(open, Origin::NotCompiled(error)))
            }
            Err((_, source)) => Err(Error::Compile { source }),
        }
    }
}

/// Minimum estimated time of a method, in nanoseconds, for which a device is considered. Starting a
/// GPU and waiting for it takes more than half of that, and detecting one takes longer than a
/// hundred runs of a smaller method.
const MIN_DEVICE_NANOSECONDS: u64 = 150_000;

/// Kinds of delegates in a program, as far as the compiler distinguishes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Delegates {
    None,
    /// Device delegates from the exporter.
    Exported,
    /// Device delegates from torchlet's compiler, which could not compile the remaining operators;
    /// with the name of the device API, if this build has it.
    Compiled(Option<&'static str>),
    /// CPU delegates from torchlet's compiler.
    CompiledForCpu,
}

impl Delegates {
    fn of(program: &Program<'_>) -> Result<Self, ProgramError> {
        let mut found = Delegates::None;
        for name in program.method_names()? {
            let meta = program.method_meta(name?)?;
            for index in 0..meta.delegate_count() {
                let Some(backend) = meta.delegate_backend(index) else { continue };
                if backend == CPU_ENGINE {
                    return Ok(Delegates::CompiledForCpu);
                }
                let api = DEVICE_APIS.iter().find(|api| api.backend_name() == backend);
                if api.is_none() && !is_exported_for_device(backend) {
                    continue;
                }
                let processed = meta.delegate(index, &[])?.processed();
                let mut front = [0; 8];
                let is_read =
                    processed.size() >= front.len() && processed.read(0, &mut front).is_ok();
                if is_read && blob::is_blob(&front) {
                    return Ok(Delegates::Compiled(api.map(|api| api.name())));
                }
                found = Delegates::Exported;
            }
        }
        Ok(found)
    }
}

impl Compiling<'_> {
    /// Whether the program has delegates that run only compiled, and no registered backend runs
    /// them.
    fn needs_compiler(&self, open: &OpenProgram) -> bool {
        let program = open.program();
        let methods = program.method_names().into_iter().flatten().flatten();
        let mut methods = methods.filter_map(|name| program.method_meta(name).ok());
        methods.any(|meta| {
            let mut backends =
                (0..meta.delegate_count()).filter_map(|it| meta.delegate_backend(it));
            backends.any(|it| runs_only_compiled(it) && self.registry.backend(it).is_none())
        })
    }

    /// Recompiles a program for the CPU and a device, if a device may be worthwhile.
    fn or_device_if_faster(&self, ready: ReadyProgram) -> Result<ReadyProgram, Error> {
        let methods = ready.report.iter().flat_map(|report| &report.methods);
        let most = methods.filter_map(graph::MethodReport::nanoseconds).max().unwrap_or(0);
        let known = |device: &Processor| matches!(device, Processor::Fastest(_, Some(_)));
        let Some(device) = (most >= MIN_DEVICE_NANOSECONDS)
            .then(|| compile_target::device(self.registry))
            .flatten()
            .filter(known)
        else {
            return Ok(ready);
        };
        let attempt = self.compiled(ready.into_open(), device, 1);
        let again = attempt.or_else(|(open, _)| self.compiled(open, Processor::Cpu, 1));
        again.or_else(|(open, error)| {
            Ok(ReadyProgram::as_exported(open, Origin::NotCompiled(error)))
        })
    }

    /// Returns the compiled program, from the cache if possible. On errors, returns the files.
    fn compiled(
        &self,
        open: OpenProgram,
        processor: Processor,
        sequences: usize,
    ) -> Result<ReadyProgram, (OpenProgram, graph::Error)> {
        let (threads, foreign_shaders) = (self.threads, self.foreign_shaders);
        let compile_target = CompileTarget { processor, threads, sequences, foreign_shaders };
        let file = match (self.cache, open.bytes()) {
            (Some(folder), Some(files)) => {
                let parallel = (self.parallel)();
                CacheFile::new(folder, &files, &compile_target.key(), self.registry, &*parallel)
            }
            _ => None,
        };
        let read =
            |file: &CacheFile| file.read(self.access, self.limits.file_bytes, &*(self.parallel)());
        let open = match file.as_ref().and_then(read) {
            Some(cached) => {
                match ReadyProgram::cached(Sources { open, from: CompiledSource::Cached(cached) }) {
                    Ok(ready) => return Ok(ready),
                    Err(open) => open,
                }
            }
            None => open,
        };
        let sources = Sources {
            open,
            from: CompiledSource::Compiled(compile_target.packer(self).map(Box::new)),
        };
        let mut report = Report::default();
        let packaged = Packaged::try_new_or_recover(sources, |sources| {
            let open = &sources.open;
            let packer = match &sources.from {
                CompiledSource::Compiled(packer) => packer.as_deref(),
                CompiledSource::Cached(_) => None,
            };
            let compiled = compile_target.compile(open, packer, self.registry)?;
            report = compiled.report;
            let package = compiled.program.write()?;
            if let (Some(file), Some(files)) = (&file, open.bytes()) {
                // A program that could not be cached is compiled again next time.
                let _ = file.write(&package, &files, &report);
            }
            Ok(package)
        });
        let packaged = packaged.map_err(|(sources, error)| (sources.open, error))?;
        ReadyProgram::reopened(packaged, report, Origin::Compiled)
    }
}

impl ReadyProgram {
    /// The program as exported.
    fn as_exported(open: OpenProgram, origin: Origin) -> Self {
        let sequences = Sequences::One;
        ReadyProgram { state: State::AsExported(open), report: None, origin, sequences }
    }

    /// A program from the cache.
    fn cached(sources: Sources) -> Result<Self, OpenProgram> {
        let mut report = Report::default();
        let packaged = Packaged::try_new_or_recover(sources, |sources| {
            let CompiledSource::Cached(cached) = &sources.from else { return Err(()) };
            let cached = cached.bytes();
            let files = sources.open.bytes().ok_or(())?;
            let (package, read) = cache::parse(cached, &files).ok_or(())?;
            report = read;
            Ok(package)
        });
        let packaged = packaged.map_err(|(sources, ())| sources.open)?;
        Self::reopened(packaged, report, Origin::Cached).map_err(|(open, _)| open)
    }

    fn reopened(
        packaged: Packaged,
        report: Report,
        origin: Origin,
    ) -> Result<Self, (OpenProgram, graph::Error)> {
        let reopened = Reopened::try_new_or_recover(packaged, |packaged| {
            Program::load(packaged.borrow_dependent()).map_err(graph::Error::from)
        });
        let reopened = reopened.map_err(|(packaged, error)| (packaged.into_owner().open, error))?;
        let (state, report) = (State::Compiled(reopened), Some(report));
        Ok(ReadyProgram { state, report, origin, sequences: Sequences::One })
    }

    fn open(&self) -> &OpenProgram {
        match &self.state {
            State::AsExported(open) => open,
            State::Compiled(reopened) => &reopened.borrow_owner().borrow_owner().open,
        }
    }

    fn into_open(self) -> OpenProgram {
        match self.state {
            State::AsExported(open) => open,
            State::Compiled(reopened) => reopened.into_owner().into_owner().open,
        }
    }

    pub(crate) fn program(&self) -> Program<'_> {
        match &self.state {
            State::AsExported(open) => open.program(),
            State::Compiled(reopened) => *reopened.borrow_dependent(),
        }
    }

    pub(crate) fn bundled(&self) -> Option<BundledProgram<'_>> {
        self.open().bundled()
    }

    pub(crate) fn data(&self) -> &[DataMap<'_>] {
        self.open().data()
    }

    /// Size of the program file in bytes.
    pub(crate) fn file_size(&self) -> u64 {
        self.open().file_size()
    }

    /// Report of the compiler, if the program was compiled.
    pub(crate) fn report(&self) -> Option<&Report> {
        self.report.as_ref()
    }
    pub(crate) fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The program as exported.
    pub(crate) fn exported(&self) -> Program<'_> {
        self.open().program()
    }

    /// Number of sequences that a run may have.
    pub(crate) fn sequences(&self) -> usize {
        match self.sequences {
            Sequences::Several(count) => count,
            Sequences::One | Sequences::Refused(_) => 1,
        }
    }

    /// Why the program runs for a single sequence.
    pub(crate) fn sequences_error(&self) -> Option<&graph::Error> {
        match &self.sequences {
            Sequences::Refused(why) => Some(why),
            Sequences::One | Sequences::Several(_) => None,
        }
    }
}
