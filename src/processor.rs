//! What programs run on: as their files have them, or compiled for a processor.

use crate::error::Error;
use crate::files::OpenProgram;
use self_cell::self_cell;
use torchlet_core::{BundledProgram, DataMap, Program, Registry};
use torchlet_graph::{Compiled, Package, Report};

/// What a program runs on.
///
/// How a file was lowered is a hint, not a decision: what a processor takes of a program is compiled for it when the program is
/// opened, whatever it was lowered for, and the CPU kernels run the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
#[non_exhaustive]
pub enum RunOn {
    /// The best that there is for the program: what was lowered for a GPU runs on one together with what lies between, if there
    /// is one, and on the CPU otherwise; all else runs on the CPU.
    #[default]
    Auto,
    /// As the exporter decided: delegates by their backends, all else by CPU kernels.
    AsExported,
    /// The CPU alone, also what was lowered for a GPU.
    Cpu,
    /// A GPU, through Vulkan: whatever it takes of the program.
    Vulkan,
}

self_cell!(
    /// Files, and a program that was made of what they hold.
    struct Packaged {
        owner: OpenProgram,
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
}

enum State {
    AsExported(OpenProgram),
    Compiled(Reopened),
}

impl RunOn {
    /// Makes of a program what methods are loaded from.
    pub(crate) fn prepare(
        self,
        open: OpenProgram,
        registry: &Registry<'_>,
    ) -> Result<ReadyProgram, Error> {
        let for_gpu = delegates_to(&open, GPU)?;
        let gpu = || registry.backend(GPU).is_some_and(|backend| backend.is_available().is_ok());
        match self {
            RunOn::AsExported => Ok(ReadyProgram::as_exported(open)),
            RunOn::Vulkan => ReadyProgram::compiled(open, registry, for_vulkan),
            RunOn::Auto if for_gpu && gpu() => ReadyProgram::compiled(open, registry, for_vulkan),
            RunOn::Auto | RunOn::Cpu if for_gpu => ReadyProgram::compiled(open, registry, for_cpu),
            RunOn::Auto | RunOn::Cpu => Ok(ReadyProgram::as_exported(open)),
        }
    }
}

/// The backend of programs that were lowered for GPUs.
const GPU: &str = "VulkanBackend";

/// Whether a program has delegates of a backend.
fn delegates_to(open: &OpenProgram, backend: &str) -> Result<bool, Error> {
    let program = open.program();
    let wrap = |source| Error::Format { path: None, source };
    for name in program.method_names().map_err(wrap)? {
        let meta = name.and_then(|name| program.method_meta(name)).map_err(wrap)?;
        if (0..meta.delegate_count()).any(|index| meta.delegate_backend(index) == Some(backend)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What compiles a program with its external data.
type Compile = for<'p> fn(
    &Program<'p>,
    &'p [DataMap<'p>],
    &Registry<'_>,
) -> Result<Compiled<'p>, torchlet_graph::Error>;

#[cfg(feature = "vulkan")]
fn for_vulkan<'p>(
    program: &Program<'p>,
    data: &'p [DataMap<'p>],
    registry: &Registry<'_>,
) -> Result<Compiled<'p>, torchlet_graph::Error> {
    let target = torchlet_vulkan::VulkanTarget::any();
    torchlet_graph::compile(program, data, Some(&target), registry)
}

#[cfg(not(feature = "vulkan"))]
fn for_vulkan<'p>(
    _: &Program<'p>,
    _: &'p [DataMap<'p>],
    _: &Registry<'_>,
) -> Result<Compiled<'p>, torchlet_graph::Error> {
    Err(torchlet_graph::Error::unsupported("GPUs; enable torchlet's feature `vulkan`"))
}

fn for_cpu<'p>(
    program: &Program<'p>,
    data: &'p [DataMap<'p>],
    registry: &Registry<'_>,
) -> Result<Compiled<'p>, torchlet_graph::Error> {
    let program = torchlet_graph::cpu::to_portable(program, data, registry)?;
    Ok(Compiled { program, report: Report::default() })
}

impl ReadyProgram {
    /// The program as its file has it.
    fn as_exported(open: OpenProgram) -> Self {
        ReadyProgram { state: State::AsExported(open), report: None }
    }

    /// The program, compiled.
    fn compiled(
        open: OpenProgram,
        registry: &Registry<'_>,
        compile: Compile,
    ) -> Result<Self, Error> {
        let mut report = None;
        let packaged = Packaged::try_new(open, |open| {
            let compiled = compile(&open.program(), open.data(), registry);
            let compiled = compiled.map_err(|source| Error::Compile { source })?;
            report = Some(compiled.report);
            compiled.program.write().map_err(|source| Error::Compile { source })
        })?;
        let reopened = Reopened::try_new(packaged, |packaged| {
            let program = Program::load(packaged.borrow_dependent());
            program.map_err(|source| Error::Format { path: None, source })
        })?;
        Ok(ReadyProgram { state: State::Compiled(reopened), report })
    }

    fn open(&self) -> &OpenProgram {
        match &self.state {
            State::AsExported(open) => open,
            State::Compiled(reopened) => reopened.borrow_owner().borrow_owner(),
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
}
