//! The programs of an image: read, looked at, written down.

use crate::analysis::Obstacle;
use crate::{Analysis, Error, Program, Target, code};
use std::path::{Path, PathBuf};
use std::{env, fs};
use torchlet_core::{BundledProgram, DataMap, Kernel, Registry};
use torchlet_graph::Processors;

/// The programs of a firmware image.
///
/// ```no_run
/// use torchlet_build::{Image, Program};
///
/// fn main() -> Result<(), torchlet_build::Error> {
///     Image::new()
///         .program(Program::new("models/keywords.pte").lowered())
///         .program(Program::new("models/digits.pte"))
///         .share_activations()
///         .write()
/// }
/// ```
///
/// In the firmware, `torchlet::program!(keywords, digits);` names them all.
#[derive(Default)]
pub struct Image {
    programs: Vec<Program>,
    shares_activations: bool,
}

/// What was written for an image.
#[derive(Debug)]
#[non_exhaustive]
pub struct Written {
    /// The files that it follows from.
    pub sources: Vec<PathBuf>,
    /// The name of each module, and what is known of its program.
    pub programs: Vec<(String, Analysis)>,
}

impl Image {
    /// An image without programs.
    pub fn new() -> Self {
        Image::default()
    }

    /// With this program.
    #[must_use]
    pub fn program(mut self, program: Program) -> Self {
        self.programs.push(program);
        self
    }

    /// Methods of all programs compute in the same planned and scratch memory, one after the other: `torchlet_image::activations()`
    /// gives it, and `load` and each run take it. State that methods keep in it, and outputs, are read before another one runs.
    #[must_use]
    pub fn share_activations(mut self) -> Self {
        self.shares_activations = true;
        self
    }

    /// Writes what `torchlet::program!` includes, and tells Cargo which files it follows from.
    ///
    /// # Errors
    /// A program cannot be read or loaded, or calls what nobody has; or this is no build script.
    pub fn write(&self) -> Result<(), Error> {
        let variable = |name| env::var(name).map_err(|_| Error::Variable { name });
        let name = variable("TARGET")?;
        let target = Target::parse(&name).map_err(|reason| Error::Target { name, reason })?;
        let written = self.write_for(&target, Path::new(&variable("OUT_DIR")?))?;
        println!("cargo::rerun-if-changed=build.rs");
        for source in &written.sources {
            println!("cargo::rerun-if-changed={}", source.display());
        }
        Ok(())
    }

    /// Writes the same for a target into a folder, outside of a build script.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_for(&self, target: &Target, folder: &Path) -> Result<Written, Error> {
        if target.has_vectors() {
            let reason = "how much memory its kernels take depends on the processor; load programs \
                          with the sizes that they name at run time (torchlet::core::MethodMeta)";
            return Err(Error::Target { name: target.name().into(), reason: reason.into() });
        }
        let mut written = Written { sources: Vec::new(), programs: Vec::new() };
        for program in &self.programs {
            let name = program.module();
            let taken = written.programs.iter().any(|(other, _)| *other == name);
            if taken || name == code::IMAGE {
                let reason = "is that of another module; give it another with Program::name";
                return Err(Error::Name { name, reason });
            }
            let analysis = self.write_program(program, &name, target, folder)?;
            written.sources.extend([&program.path].into_iter().chain(&program.data).cloned());
            written.programs.push((name, analysis));
        }
        let analyses: Vec<&Analysis> = written.programs.iter().map(|(_, it)| it).collect();
        let text = code::image(&analyses, self.shares_activations);
        save(&folder.join(code::IMAGE).with_extension("rs"), text.as_bytes())?;
        Ok(written)
    }

    fn write_program(
        &self,
        program: &Program,
        name: &str,
        target: &Target,
        folder: &Path,
    ) -> Result<Analysis, Error> {
        let files = Files::read(program)?;
        let own: Vec<Kernel> = sorted(program);
        let kernels = kernels(&own);
        let mut registry = Registry::new().with_kernels(&kernels).map_err(Error::Registry)?;
        for (backend, _) in &program.backends {
            registry = registry.with_backend(backend.as_ref()).map_err(Error::Registry)?;
        }
        let data = files.data(program)?;
        let lowered = match program.is_lowered {
            true => Some(lower(&program.path, &files.program, &data, &registry)?),
            false => None,
        };
        // What was lowered has its data in it.
        let (bytes, data) = match &lowered {
            Some(bytes) => (bytes, &[][..]),
            None => (&files.program, &data[..]),
        };
        let opened = torchlet_core::Program::from_bytes(bytes);
        let opened = opened.map_err(|source| format(&program.path, source))?;
        let analysis = Analysis::of(&opened, &program.methods, data, &registry, target);
        let analysis = analysis.map_err(|(method, obstacle)| {
            let path = program.path.clone();
            match obstacle {
                Obstacle::Program(source) => Error::Format { path, source },
                Obstacle::NoSuchMethod { methods } => Error::NoSuchMethod { path, method, methods },
                Obstacle::Missing(missing) => Error::Missing { path, method, missing },
                Obstacle::Init(source) => Error::Init { path, method, source },
            }
        })?;
        let embedded = match lowered.is_some() || files.is_bundled {
            true => {
                let path = folder.join(name).with_extension("pte");
                save(&path, bytes)?;
                path
            }
            false => absolute(&program.path)?,
        };
        let data_files = match data.is_empty() {
            true => Vec::new(),
            false => program.data.iter().map(|path| absolute(path)).collect::<Result<_, _>>()?,
        };
        let text = code::program(&code::Source {
            program,
            embedded: &embedded,
            data: &data_files,
            analysis: &analysis,
            shares_activations: self.shares_activations,
        });
        save(&folder.join(name).with_extension("rs"), text.as_bytes())?;
        Ok(analysis)
    }
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.programs.iter().map(|program| &program.path)).finish()
    }
}

/// The files of a program.
struct Files {
    /// The program, without test cases.
    program: Vec<u8>,
    is_bundled: bool,
    data: Vec<Vec<u8>>,
}

impl Files {
    fn read(program: &Program) -> Result<Self, Error> {
        let mut bytes = read(&program.path)?;
        let is_bundled = BundledProgram::is_bundled(&bytes);
        if is_bundled {
            let inner = BundledProgram::from_bytes(&bytes).and_then(|bundle| bundle.program());
            bytes = inner.map_err(|source| format(&program.path, source))?.to_vec();
        }
        let data = program.data.iter().map(|path| read(path)).collect::<Result<_, _>>()?;
        Ok(Files { program: bytes, is_bundled, data })
    }

    fn data(&self, program: &Program) -> Result<Vec<DataMap<'_>>, Error> {
        let mut maps = Vec::new();
        for (bytes, path) in self.data.iter().zip(&program.data) {
            maps.push(DataMap::from_bytes(bytes).map_err(|source| format(path, source))?);
        }
        Ok(maps)
    }
}

fn format(path: &Path, source: torchlet_core::ProgramError) -> Error {
    Error::Format { path: path.into(), source }
}

/// The program's own kernels, sorted by name.
fn sorted(program: &Program) -> Vec<Kernel> {
    let mut kernels: Vec<Kernel> = program.kernels.iter().map(|(kernel, _)| *kernel).collect();
    kernels.sort_by_key(|kernel| kernel.name);
    kernels
}

/// All kernels: a program's own in the place of those of the same name.
fn kernels(own: &[Kernel]) -> Vec<Kernel> {
    let is_own = |name: &str| own.iter().any(|kernel| kernel.name == name);
    let others = torchlet_portable::KERNELS.iter().filter(|kernel| !is_own(kernel.name));
    let mut all: Vec<Kernel> = others.chain(own).copied().collect();
    all.sort_by_key(|kernel| kernel.name);
    all
}

/// The program as the compiler makes it for kernels alone.
fn lower(
    path: &Path,
    bytes: &[u8],
    data: &[DataMap<'_>],
    registry: &Registry<'_>,
) -> Result<Vec<u8>, Error> {
    let program = torchlet_core::Program::from_bytes(bytes);
    let program = program.map_err(|source| format(path, source))?;
    let fail = |source| Error::Lower { path: path.into(), source };
    let compiled = torchlet_graph::cpu::compile(&program, data, Processors::KERNELS, registry);
    let mut compiled = compiled.map_err(fail)?.program;
    compiled.embed(data).map_err(fail)?;
    Ok(compiled.write().map_err(fail)?.to_bytes())
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(|source| Error::File { path: path.into(), source })
}

fn absolute(path: &Path) -> Result<PathBuf, Error> {
    std::path::absolute(path).map_err(|source| Error::File { path: path.into(), source })
}

/// Writes a file, unless it is there already: what follows from it need not be built again.
fn save(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    if fs::read(path).is_ok_and(|present| present == bytes) {
        return Ok(());
    }
    fs::write(path, bytes).map_err(|source| Error::File { path: path.into(), source })
}
