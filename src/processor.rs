//! What programs run on: as their files have them, or compiled for a processor.

mod cache;

use crate::error::Error;
use crate::files::{FileAccess, FileBytes, OpenProgram};
use crate::module::SharedParallel;
use cache::CacheFile;
use self_cell::self_cell;
use std::path::Path;
use torchlet_core::{BundledProgram, DataMap, Limits, Program, ProgramError, Registry};
use torchlet_graph::{Compiled, Package, Report, blob};

/// What a program runs on.
///
/// How a file was lowered is a hint, not a decision: what a processor takes of a program is compiled for it when the program is
/// opened, whatever it was lowered for, and the CPU kernels run the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
#[non_exhaustive]
pub enum RunOn {
    /// The best that there is for the program: what was lowered for a GPU runs on one together with what lies between, if there
    /// is one, and on the CPU otherwise; all else runs on the CPU, compiled for it.
    #[default]
    Auto,
    /// As the exporter decided: delegates by their backends, all else by CPU kernels.
    AsExported,
    /// The CPU alone, also what was lowered for a GPU.
    Cpu,
    /// A GPU, through Vulkan: whatever it takes of the program.
    Vulkan,
}

/// Where what methods are loaded from comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// It is the program as it was exported, or lowered by torchlet before: there is nothing to compile.
    Exported,
    /// It is the program as it was exported, since it cannot be compiled, and why.
    NotCompiled(torchlet_graph::Error),
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
    Compiled(Option<Packer>),
}

#[cfg(feature = "portable")]
type Packer = torchlet_portable::engine::WeightPacker;
/// There is none.
#[cfg(not(feature = "portable"))]
type Packer = core::convert::Infallible;

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
    /// The folder of compiled programs, and how its files are read.
    pub(crate) cache: Option<&'c Path>,
    pub(crate) access: FileAccess,
    /// Starts the threads.
    pub(crate) parallel: &'c dyn Fn() -> SharedParallel,
}

impl RunOn {
    /// Makes of a program what methods are loaded from.
    pub(crate) fn prepare(
        self,
        open: OpenProgram,
        compiling: &Compiling<'_>,
    ) -> Result<ReadyProgram, Error> {
        let delegates = Delegates::of(&open.program());
        let delegates = delegates.map_err(|source| Error::Format { path: None, source })?;
        let gpu = || {
            let backend = compiling.registry.backend(GPU);
            backend.is_some_and(|backend| backend.is_available().is_ok())
        };
        let target = match (self, delegates) {
            (RunOn::AsExported, _) | (RunOn::Vulkan, Delegates::Compiled) => None,
            (RunOn::Auto | RunOn::Cpu, Delegates::CompiledForCpu) => None,
            (RunOn::Auto, Delegates::Compiled) if gpu() => None,
            (RunOn::Auto, Delegates::Exported) if gpu() => Some(VULKAN),
            (RunOn::Auto | RunOn::Cpu, _) => Some(CPU),
            (RunOn::Vulkan, _) => Some(VULKAN),
        };
        let Some(target) = target else {
            return Ok(ReadyProgram::as_exported(open, Origin::Exported));
        };
        match compiling.compiled(open, &target) {
            Ok(ready) => Ok(ready),
            // What was not asked for by name is an attempt, and kernels run what needs no other.
            Err((open, error)) if self == RunOn::Auto || delegates == Delegates::None => {
                Ok(ReadyProgram::as_exported(open, Origin::NotCompiled(error)))
            }
            Err((_, source)) => Err(Error::Compile { source }),
        }
    }
}

/// The backend of programs that were lowered for GPUs.
const GPU: &str = "VulkanBackend";
/// The backend of programs that were compiled for CPUs.
const CPU_ENGINE: &str = "TorchletCpu";

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

/// What compiles a program, with a packer that outlives what is made.
type Compile = for<'p> fn(
    &'p OpenProgram,
    Option<&'p Packer>,
    &Registry<'_>,
) -> Result<Compiled<'p>, torchlet_graph::Error>;

/// What programs are compiled for.
struct Target {
    name: &'static str,
    compile: Compile,
}

const VULKAN: Target = Target { name: "vulkan", compile: for_vulkan };
const CPU: Target = Target { name: "cpu", compile: for_cpu };

impl Target {
    /// What packs weights for it, if anything does.
    #[cfg(feature = "portable")]
    fn packer(&self, compiling: &Compiling<'_>) -> Option<Packer> {
        let packs = self.name == CPU.name && compiling.registry.backend(CPU_ENGINE).is_some();
        packs.then(|| Packer::new((compiling.parallel)()))
    }

    #[cfg(not(feature = "portable"))]
    fn packer(&self, _: &Compiling<'_>) -> Option<Packer> {
        None
    }

    /// Its name, and the kind of machine if programs are compiled for that alone.
    fn with_machine(&self) -> String {
        #[cfg(feature = "portable")]
        if self.name == CPU.name {
            return format!("{} {}", self.name, Packer::machine());
        }
        self.name.into()
    }
}

#[cfg(feature = "vulkan")]
fn for_vulkan<'p>(
    open: &'p OpenProgram,
    _: Option<&'p Packer>,
    registry: &Registry<'_>,
) -> Result<Compiled<'p>, torchlet_graph::Error> {
    let target = torchlet_vulkan::VulkanTarget::any();
    torchlet_graph::compile(&open.program(), open.data(), Some(&target), registry)
}

#[cfg(not(feature = "vulkan"))]
fn for_vulkan<'p>(
    _: &'p OpenProgram,
    _: Option<&'p Packer>,
    _: &Registry<'_>,
) -> Result<Compiled<'p>, torchlet_graph::Error> {
    Err(torchlet_graph::Error::unsupported("GPUs; enable torchlet's feature `vulkan`"))
}

fn for_cpu<'p>(
    open: &'p OpenProgram,
    packer: Option<&'p Packer>,
    registry: &Registry<'_>,
) -> Result<Compiled<'p>, torchlet_graph::Error> {
    let (program, data) = (open.program(), open.data());
    #[cfg(feature = "portable")]
    if let Some(packer) = packer {
        let engine = torchlet_portable::engine::CpuTarget::new();
        return torchlet_graph::cpu::compile_packed(&program, data, &engine, packer, registry);
    }
    // Without the engine, there are the kernels.
    let _ = packer;
    torchlet_graph::cpu::compile(&program, data, None, registry)
}

impl Compiling<'_> {
    /// The program, compiled now or before. Where that fails, the files come back.
    fn compiled(
        &self,
        open: OpenProgram,
        target: &Target,
    ) -> Result<ReadyProgram, (OpenProgram, torchlet_graph::Error)> {
        let file = match (self.cache, open.bytes()) {
            (Some(folder), Some(files)) => {
                let (name, parallel) = (target.with_machine(), (self.parallel)());
                CacheFile::new(folder, &files, &name, self.registry, &*parallel)
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
        let sources = Sources { open, from: Made::Compiled(target.packer(self)) };
        let mut report = Report::default();
        let packaged = Packaged::try_new_or_recover(sources, |sources| {
            let open = &sources.open;
            let packer = match &sources.from {
                Made::Compiled(packer) => packer.as_ref(),
                Made::Cached(_) => None,
            };
            let compiled = (target.compile)(open, packer, self.registry)?;
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
    ) -> Result<Self, (OpenProgram, torchlet_graph::Error)> {
        let reopened = Reopened::try_new_or_recover(packaged, |packaged| {
            Program::load(packaged.borrow_dependent()).map_err(torchlet_graph::Error::from)
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
