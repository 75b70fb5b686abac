//! What programs run on: as their files have them, or compiled for a processor.

mod cache;
mod goal;

use crate::error::Error;
use crate::files::{FileAccess, FileBytes, OpenProgram};
use crate::module::SharedParallel;
use cache::CacheFile;
use goal::{CPU_ENGINE, GPU, Goal, Packer, Processor};
use self_cell::self_cell;
use std::path::Path;
use std::thread::ScopedJoinHandle;
use torchlet_core::{BundledProgram, DataMap, Limits, Program, ProgramError, Registry};
use torchlet_graph::front::xnnpack;
use torchlet_graph::{self as graph, Package, Report, blob};

/// What a program runs on.
///
/// How a file was lowered is a hint, not a decision: what a processor takes of a program is
/// compiled for it when the program is opened, whatever it was lowered for, and the CPU kernels run
/// the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
#[non_exhaustive]
pub enum RunOn {
    /// What takes the least time, as far as that can be estimated: a GPU if there is one, the CPU,
    /// or each for a part. What was lowered for a GPU leaves it, and all else goes there, for half
    /// the time only. Software that does as if it was a GPU does not count.
    #[default]
    Auto,
    /// As the exporter decided: delegates by their backends, all else by CPU kernels.
    AsExported,
    /// The CPU alone, also what was lowered for a GPU.
    Cpu,
    /// A GPU, through Vulkan: whatever it takes of the program. The CPU has the rest.
    Vulkan,
}

/// Where what methods are loaded from comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// It is the program as it was exported, or lowered by torchlet before: there is nothing to
    /// compile.
    Exported,
    /// It is the program as it was exported, since it cannot be compiled, and why.
    NotCompiled(graph::Error),
    /// It was compiled when the program was opened.
    Compiled,
    /// It was compiled before, and found in the [cache](crate::ModuleBuilder::compile_cache).
    Cached,
}

/// Files, and what a program that was made of them borrows beside.
struct Sources {
    open: OpenProgram,
    from: Made,
}

/// Where a program comes from that was made of files.
enum Made {
    /// The cache.
    Cached(FileBytes),
    /// The compiler, with weights that lie here, if it packs them.
    Compiled(Option<Box<Packer>>),
}

self_cell!(
    /// Files, and a program that was made of what they hold.
    struct Packaged {
        owner: Sources,
        #[covariant]
        dependent: Package,
    }
);

self_cell!(
    /// That program, opened.
    struct Reopened {
        owner: Packaged,
        #[covariant]
        dependent: Program,
    }
);

/// A program as methods are loaded from it.
pub(crate) struct ReadyProgram {
    state: State,
    report: Option<Report>,
    origin: Origin,
}

enum State {
    AsExported(OpenProgram),
    Compiled(Reopened),
}

/// What compiling takes, beside the program.
pub(crate) struct Compiling<'c> {
    pub(crate) registry: &'c Registry<'c>,
    pub(crate) limits: &'c Limits,
    /// How many threads the CPU has for it.
    pub(crate) threads: usize,
    /// The folder of compiled programs, and how its files are read.
    pub(crate) cache: Option<&'c Path>,
    pub(crate) access: FileAccess,
    /// Starts the threads.
    pub(crate) parallel: &'c dyn Fn() -> SharedParallel,
}

impl RunOn {
    /// Does something while the GPU is opened that a program is wanted to run on: that takes longer
    /// than to read and to compile most programs. Who needs the device is told if it cannot be
    /// opened.
    pub(crate) fn opening_device<T>(self, registry: &Registry<'_>, work: impl FnOnce() -> T) -> T {
        let gpu = registry.backend(GPU).filter(|_| self == RunOn::Vulkan);
        std::thread::scope(|scope| {
            if let Some(gpu) = gpu {
                // Without a thread, it is opened when it is needed.
                let open = move || drop(gpu.is_available());
                let opening = std::thread::Builder::new().spawn_scoped(scope, open);
                let done = work();
                // What went wrong goes wrong again where it can be told.
                let _ = opening.map(ScopedJoinHandle::join);
                return done;
            }
            work()
        })
    }

    /// Makes of a program what methods are loaded from.
    pub(crate) fn prepare(
        self,
        open: OpenProgram,
        compiling: &Compiling<'_>,
    ) -> Result<ReadyProgram, Error> {
        let delegates = Delegates::of(&open.program());
        let delegates = delegates.map_err(|source| Error::Format { path: None, source })?;
        let gpu = || goal::gpu(compiling.registry);
        let processor = match (self, delegates) {
            (RunOn::AsExported, _) | (RunOn::Vulkan, Delegates::Compiled) => None,
            (RunOn::Auto | RunOn::Cpu, Delegates::CompiledForCpu) => None,
            (RunOn::Auto, Delegates::Compiled) if gpu().is_some() => None,
            (RunOn::Auto, Delegates::Exported) => Some(gpu().unwrap_or(Processor::Cpu)),
            (RunOn::Auto | RunOn::Cpu, _) => Some(Processor::Cpu),
            (RunOn::Vulkan, _) => Some(goal::any_gpu(compiling.registry)),
        };
        let Some(processor) = processor else {
            return Ok(ReadyProgram::as_exported(open, Origin::Exported));
        };
        match compiling.compiled(open, processor) {
            Ok(ready) if self == RunOn::Auto && delegates == Delegates::None => {
                compiling.or_faster(ready)
            }
            Ok(ready) => Ok(ready),
            // Kernels have a rule for delegates that a graph cannot say; where they have none
            // either, that is what is wrong.
            Err((open, _)) if processor != Processor::Cpu && compiling.is_needed(&open) => {
                let ready = compiling.compiled(open, Processor::Cpu);
                ready.map_err(|(_, source)| Error::Compile { source })
            }
            // What was not asked for by name is an attempt, and kernels run what needs no other.
            // What needs the compiler cannot run as it is either: what is wrong says more than
            // that.
            Err((open, error))
                if (self == RunOn::Auto || delegates == Delegates::None)
                    && !compiling.is_needed(&open) =>
            {
                Ok(ReadyProgram::as_exported(open, Origin::NotCompiled(error)))
            }
            Err((_, source)) => Err(Error::Compile { source }),
        }
    }
}

/// What a method takes at least, in billionths of a second, that a GPU may be worth asking about:
/// no GPU is started and waited for in half the time. Looking for one takes longer than running
/// less than that a hundred times.
const SMALL: u64 = 150_000;

/// What delegates a program has, of those that the compiler knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Delegates {
    None,
    /// Those of an exporter.
    Exported,
    /// Some that torchlet's compiler made for GPUs: what it left, it could not take.
    Compiled,
    /// The same for the CPU.
    CompiledForCpu,
}

impl Delegates {
    fn of(program: &Program<'_>) -> Result<Self, ProgramError> {
        let mut found = Delegates::None;
        for name in program.method_names()? {
            let meta = program.method_meta(name?)?;
            for index in 0..meta.delegate_count() {
                if meta.delegate_backend(index) == Some(CPU_ENGINE) {
                    return Ok(Delegates::CompiledForCpu);
                }
                if meta.delegate_backend(index) != Some(GPU) {
                    continue;
                }
                let processed = meta.delegate(index, &[])?.processed();
                let mut front = [0; 8];
                let is_read =
                    processed.size() >= front.len() && processed.read(0, &mut front).is_ok();
                if is_read && blob::is_blob(&front) {
                    return Ok(Delegates::Compiled);
                }
                found = Delegates::Exported;
            }
        }
        Ok(found)
    }
}

impl Compiling<'_> {
    /// Whether a program has delegates for XNNPACK, and nothing here runs them as they are.
    fn is_needed(&self, open: &OpenProgram) -> bool {
        let program = open.program();
        let methods = program.method_names().into_iter().flatten().flatten();
        let mut methods = methods.filter_map(|name| program.method_meta(name).ok());
        self.registry.backend(xnnpack::BACKEND).is_none()
            && methods.any(|meta| {
                (0..meta.delegate_count())
                    .any(|it| meta.delegate_backend(it) == Some(xnnpack::BACKEND))
            })
    }

    /// A program that was compiled for the CPU, for a GPU where that takes less time.
    fn or_faster(&self, ready: ReadyProgram) -> Result<ReadyProgram, Error> {
        let methods = ready.report.iter().flat_map(|report| &report.methods);
        let most = methods.filter_map(graph::MethodReport::nanoseconds).max().unwrap_or(0);
        let known = |gpu: &Processor| matches!(gpu, Processor::Fastest(Some(_)));
        let Some(gpu) = (most >= SMALL).then(|| goal::gpu(self.registry)).flatten().filter(known)
        else {
            return Ok(ready);
        };
        let attempt = self.compiled(ready.into_open(), gpu);
        let again = attempt.or_else(|(open, _)| self.compiled(open, Processor::Cpu));
        again.or_else(|(open, error)| {
            Ok(ReadyProgram::as_exported(open, Origin::NotCompiled(error)))
        })
    }

    /// The program, compiled now or before. Where that fails, the files come back.
    fn compiled(
        &self,
        open: OpenProgram,
        processor: Processor,
    ) -> Result<ReadyProgram, (OpenProgram, graph::Error)> {
        let goal = Goal { processor, threads: self.threads };
        let file = match (self.cache, open.bytes()) {
            (Some(folder), Some(files)) => {
                let parallel = (self.parallel)();
                CacheFile::new(folder, &files, &goal.key(), self.registry, &*parallel)
            }
            _ => None,
        };
        let read =
            |file: &CacheFile| file.read(self.access, self.limits.file_bytes, &*(self.parallel)());
        let open = match file.as_ref().and_then(read) {
            Some(cached) => {
                match ReadyProgram::cached(Sources { open, from: Made::Cached(cached) }) {
                    Ok(ready) => return Ok(ready),
                    Err(open) => open,
                }
            }
            None => open,
        };
        let sources = Sources { open, from: Made::Compiled(goal.packer(self).map(Box::new)) };
        let mut report = Report::default();
        let packaged = Packaged::try_new_or_recover(sources, |sources| {
            let open = &sources.open;
            let packer = match &sources.from {
                Made::Compiled(packer) => packer.as_deref(),
                Made::Cached(_) => None,
            };
            let compiled = goal.compile(open, packer, self.registry)?;
            report = compiled.report;
            let package = compiled.program.write()?;
            if let (Some(file), Some(files)) = (&file, open.bytes()) {
                // What cannot be kept is compiled again.
                let _ = file.write(&package, &files, &report);
            }
            Ok(package)
        });
        let packaged = packaged.map_err(|(sources, error)| (sources.open, error))?;
        ReadyProgram::reopened(packaged, report, Origin::Compiled)
    }
}

impl ReadyProgram {
    /// The program as its file has it.
    fn as_exported(open: OpenProgram, origin: Origin) -> Self {
        ReadyProgram { state: State::AsExported(open), report: None, origin }
    }

    /// What the cache has.
    fn cached(sources: Sources) -> Result<Self, OpenProgram> {
        let mut report = Report::default();
        let packaged = Packaged::try_new_or_recover(sources, |sources| {
            let Made::Cached(cached) = &sources.from else { return Err(()) };
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
        Ok(ReadyProgram { state: State::Compiled(reopened), report: Some(report), origin })
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

    /// Bytes of the program file as it is on disk.
    pub(crate) fn file_size(&self) -> u64 {
        self.open().file_size()
    }

    /// What was compiled to what, if anything was.
    pub(crate) fn report(&self) -> Option<&Report> {
        self.report.as_ref()
    }
    pub(crate) fn origin(&self) -> &Origin {
        &self.origin
    }
}
