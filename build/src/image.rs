//! Code generation for the programs of an image.

use crate::analysis::CompiledSizes;
use crate::compiled::{Compiled, Kernels, Language};
use crate::load::Loaded;
use crate::program::Compile;
use crate::{Analysis, Error, MethodAnalysis, Program, Target, code};
use std::path::{Path, PathBuf};
use std::{env, fs};

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

/// Result of generating code for an image.
#[derive(Debug)]
#[non_exhaustive]
pub struct Written {
    /// The files from which the code was generated.
    pub sources: Vec<PathBuf>,
    /// Name and analysis of each program's module.
    pub programs: Vec<(String, Analysis)>,
}

impl Image {
    /// Creates an image without programs.
    pub fn new() -> Self {
        Image::default()
    }

    /// Adds a program.
    #[must_use]
    pub fn program(mut self, program: Program) -> Self {
        self.programs.push(program);
        self
    }

    /// Lets the methods of all programs share planned and scratch memory and run in turn.
    /// `torchlet_image::activations()` returns that memory; `load` and every run require it.
    /// Outputs, and state in activation memory, must be read before another method runs.
    #[must_use]
    pub fn share_activations(mut self) -> Self {
        self.shares_activations = true;
        self
    }

    /// Writes the files that `torchlet::program!` includes, and tells Cargo the files that they
    /// depend on.
    ///
    /// # Errors
    /// If a program cannot be read or loaded, calls operators or backends that are not registered,
    /// or this is not a build script.
    pub fn write(&self) -> Result<(), Error> {
        let variable = |name| env::var(name).map_err(|_| Error::Variable { name });
        let name = variable("TARGET")?;
        let width = variable("CARGO_CFG_TARGET_POINTER_WIDTH")?;
        let target = Target::described(&name, &width, &variable("CARGO_CFG_TARGET_ARCH")?);
        let target = target.map_err(|reason| Error::Target { name, reason })?;
        let written = self.write_for(&target, Path::new(&variable("OUT_DIR")?))?;
        println!("cargo::rerun-if-changed=build.rs");
        for source in &written.sources {
            println!("cargo::rerun-if-changed={}", source.display());
        }
        for (name, analysis) in &written.programs {
            for text in &analysis.fallbacks {
                println!("cargo::warning={name}: {text}");
            }
            for reason in &analysis.not_compiled {
                println!("cargo::warning={name} is interpreted, not compiled: {reason}");
            }
        }
        Ok(())
    }

    /// Writes the same files for a target to a folder, outside of a build script.
    ///
    /// # Errors
    /// The same as for [`write`](Self::write).
    pub fn write_for(&self, target: &Target, folder: &Path) -> Result<Written, Error> {
        let mut written = Written { sources: Vec::new(), programs: Vec::new() };
        for program in &self.programs {
            let name = program.module();
            let taken = written.programs.iter().any(|(other, _)| *other == name);
            if taken || name == code::IMAGE {
                let reason =
                    "is already used by another module; set a different one with Program::name";
                return Err(Error::Name { name, reason });
            }
            let analysis = self.write_program(program, &name, target, folder)?;
            written.sources.extend([&program.path].into_iter().chain(&program.data).cloned());
            written.programs.push((name, analysis));
        }
        let methods = written.programs.iter().flat_map(|(program, analysis)| {
            analysis.methods.iter().map(move |method| (program, method))
        });
        if self.shares_activations
            && methods.clone().count() > 1
            && let Some((program, method)) = methods.clone().find(|(_, method)| method.keeps_state)
        {
            let (program, method) = (program.clone(), method.name.clone());
            return Err(Error::State { program, method });
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
        let Loaded { bytes, is_changed, has_data, mut analysis } = Loaded::of(program, target)?;
        let module = |method: &MethodAnalysis| crate::names::method_identifier(&method.name);
        check_distinct(&analysis, module)?;
        if program.compile != Compile::No {
            match self.write_compiled(program, name, &bytes, &analysis, (target, folder))? {
                Ok(sizes) => {
                    analysis.compiled = Some(sizes);
                    return Ok(analysis);
                }
                Err(reasons) if program.compile == Compile::Always => {
                    return Err(Error::NotCompiled { path: program.path.clone(), reasons });
                }
                Err(reasons) => analysis.not_compiled = reasons,
            }
        }
        let embedded = match is_changed {
            true => {
                let path = folder.join(name).with_extension("pte");
                save(&path, &bytes)?;
                path
            }
            false => absolute(&program.path)?,
        };
        let data_files = match has_data {
            false => Vec::new(),
            true => program.data.iter().map(|path| absolute(path)).collect::<Result<_, _>>()?,
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

impl Image {
    /// Writes a compiled program, or returns the reasons why it cannot be compiled.
    fn write_compiled(
        &self,
        program: &Program,
        name: &str,
        bytes: &[u8],
        analysis: &Analysis,
        (target, folder): (&Target, &Path),
    ) -> Result<Result<CompiledSizes, Vec<String>>, Error> {
        if self.shares_activations {
            return Ok(Err(vec!["the image shares activations (Image::share_activations)".into()]));
        }
        let fail = |source| Error::Lower { path: program.path.clone(), source };
        let read = torchlet_core::Program::from_bytes(bytes);
        let read = read.map_err(|source| Error::Format { path: program.path.clone(), source })?;
        let read = torchlet_graph::method::Program::read(&read).map_err(fail)?;
        let kernels = Kernels { language: Language::Rust, are_packed: target.has_dsp() };
        let compiled = match Compiled::of(&read, program, analysis, kernels) {
            Ok(compiled) => compiled,
            Err(reasons) => return Ok(Err(reasons)),
        };
        let data = folder.join(name).with_extension("weights");
        let code = code::compiled::program(&compiled, analysis, &data);
        save(&data, &code.weights)?;
        save(&folder.join(name).with_extension("rs"), code.text.as_bytes())?;
        let memory = compiled.methods.iter().map(|method| method.memory).sum();
        Ok(Ok(CompiledSizes { constants: code.constants, memory }))
    }
}

/// Checks that the methods of a program have different identifiers.
pub(crate) fn check_distinct(
    analysis: &Analysis,
    identifier: impl Fn(&MethodAnalysis) -> String,
) -> Result<(), Error> {
    let names: Vec<String> = analysis.methods.iter().map(identifier).collect();
    match (1..names.len()).find(|at| names[..*at].contains(&names[*at])) {
        Some(at) => {
            let reason = "of a method maps to the same identifier as another method";
            Err(Error::Name { name: analysis.methods[at].name.clone(), reason })
        }
        None => Ok(()),
    }
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.programs.iter().map(|program| &program.path)).finish()
    }
}

fn absolute(path: &Path) -> Result<PathBuf, Error> {
    std::path::absolute(path).map_err(|source| Error::File { path: path.into(), source })
}

/// Writes a file unless it is up to date, to avoid rebuilding its dependents.
fn save(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    if fs::read(path).is_ok_and(|present| present == bytes) {
        return Ok(());
    }
    fs::write(path, bytes).map_err(|source| Error::File { path: path.into(), source })
}
