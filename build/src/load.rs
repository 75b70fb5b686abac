//! Loading and analysis of a program for embedding.

use crate::analysis::Obstacle;
use crate::{Analysis, Error, Program, Target};
use std::fs;
use std::path::Path;
use torchlet_core::{BundledProgram, DataMap, Kernel, Registry};
use torchlet_graph::{Processors, import};

/// A program as it will be embedded, and its analysis.
pub(crate) struct Loaded {
    pub(crate) bytes: Vec<u8>,
    /// Whether the bytes differ from those of its file.
    pub(crate) is_changed: bool,
    /// Whether external data files are embedded as well.
    pub(crate) has_data: bool,
    pub(crate) analysis: Analysis,
}

impl Loaded {
    pub(crate) fn of(program: &Program, target: &Target) -> Result<Self, Error> {
        if target.has_vectors() {
            let reason = "the memory that its kernels require depends on the processor; query the \
                          sizes of programs at run time (torchlet::core::MethodMeta)";
            return Err(Error::Target { name: target.name().into(), reason: reason.into() });
        }
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
        // A lowered program contains its external data.
        let (bytes, data) = match &lowered {
            Some((bytes, _)) => (bytes, &[][..]),
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
        let mut analysis = analysis;
        analysis.fallbacks = lowered.as_ref().map_or_else(Vec::new, |(_, own)| own.clone());
        let (is_changed, has_data) = (lowered.is_some() || files.is_changed, !data.is_empty());
        let bytes = bytes.clone();
        Ok(Loaded { bytes, is_changed, has_data, analysis })
    }
}

/// The files of a program.
struct Files {
    /// The program, without test cases, and converted from other formats.
    program: Vec<u8>,
    /// Whether the program differs from the file.
    is_changed: bool,
    data: Vec<Vec<u8>>,
}

impl Files {
    fn read(program: &Program) -> Result<Self, Error> {
        let mut bytes = read(&program.path)?;
        let is_bundled = BundledProgram::is_bundled(&bytes);
        let is_foreign = import::detect(&bytes).is_some();
        if is_foreign {
            let imported = import::program(&bytes).map(|package| package.to_bytes());
            bytes =
                imported.map_err(|source| Error::Lower { path: program.path.clone(), source })?;
        }
        if is_bundled {
            let inner = BundledProgram::from_bytes(&bytes).and_then(|bundle| bundle.program());
            bytes = inner.map_err(|source| format(&program.path, source))?.to_vec();
        }
        let data = program.data.iter().map(|path| read(path)).collect::<Result<_, _>>()?;
        Ok(Files { program: bytes, is_changed: is_bundled || is_foreign, data })
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

/// The program's custom kernels, sorted by name.
fn sorted(program: &Program) -> Vec<Kernel> {
    let mut kernels: Vec<Kernel> = program.kernels.iter().map(|(kernel, _)| *kernel).collect();
    kernels.sort_by_key(|kernel| kernel.name);
    kernels
}

/// All kernels; a program's custom kernels replace those of the same name.
fn kernels(own: &[Kernel]) -> Vec<Kernel> {
    let is_own = |name: &str| own.iter().any(|kernel| kernel.name == name);
    let others = torchlet_portable::KERNELS.iter().filter(|kernel| !is_own(kernel.name));
    let mut all: Vec<Kernel> = others.chain(own).copied().collect();
    all.sort_by_key(|kernel| kernel.name);
    all
}

/// Lowers the program for kernels only. Also returns the quantized operators that compute in
/// floating point.
fn lower(
    path: &Path,
    bytes: &[u8],
    data: &[DataMap<'_>],
    registry: &Registry<'_>,
) -> Result<(Vec<u8>, Vec<String>), Error> {
    let program = torchlet_core::Program::from_bytes(bytes);
    let program = program.map_err(|source| format(path, source))?;
    let fail = |source| Error::Lower { path: path.into(), source };
    let compiled = torchlet_graph::cpu::compile(&program, data, Processors::NONE, registry);
    let compiled = compiled.map_err(fail)?;
    let floating = compiled.report.methods.into_iter().flat_map(|method| method.fallbacks);
    let (floating, mut compiled) = (floating.collect(), compiled.program);
    compiled.embed(data).map_err(fail)?;
    Ok((compiled.write().map_err(fail)?.to_bytes(), floating))
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(|source| Error::File { path: path.into(), source })
}
