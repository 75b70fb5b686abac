//! A program to embed, with its options.

use crate::load::Loaded;
use crate::{Analysis, Error, Image, Target};
use std::path::{Path, PathBuf};
use torchlet_core::{Backend, Kernel};

/// A program to embed in an image.
///
/// ```no_run
/// # fn main() -> Result<(), torchlet_build::Error> {
/// torchlet_build::Program::new("models/speech.pte")
///     .name("keywords")
///     .data("models/speech.ptd")
///     .method("forward")
///     .write()
/// # }
/// ```
pub struct Program {
    pub(crate) path: PathBuf,
    pub(crate) name: Option<String>,
    pub(crate) data: Vec<PathBuf>,
    pub(crate) methods: Vec<String>,
    pub(crate) is_lowered: bool,
    pub(crate) compile: Compile,
    pub(crate) kernels: Vec<(Kernel, String)>,
    pub(crate) backends: Vec<(Box<dyn Backend>, String)>,
}

impl Program {
    /// The program of a `.pte` file, or of a `.bpte` file without its test cases. Paths are
    /// relative to the folder of the package, as in the build script.
    pub fn new(path: impl AsRef<Path>) -> Self {
        Program {
            path: path.as_ref().into(),
            name: None,
            data: Vec::new(),
            methods: Vec::new(),
            is_lowered: false,
            compile: Compile::No,
            kernels: Vec::new(),
            backends: Vec::new(),
        }
    }

    /// Sets the name of the module, by default that of the file.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Adds an external data file of the program (`.ptd`). Names are looked up in the order in
    /// which files were added.
    #[must_use]
    pub fn data(mut self, path: impl AsRef<Path>) -> Self {
        self.data.push(path.as_ref().into());
        self
    }

    /// Selects a method to load; may be called repeatedly. By default, all methods of the program
    /// are loaded.
    #[must_use]
    pub fn method(mut self, name: &str) -> Self {
        if !self.methods.iter().any(|known| known == name) {
            self.methods.push(name.into());
        }
        self
    }

    /// Lowers the program before embedding it, like `torchlet lower --for mcu`: constants are
    /// folded, calls are fused, memory is planned again, and external data is included. Results may
    /// differ in the last bits.
    #[must_use]
    pub fn lowered(mut self) -> Self {
        self.is_lowered = true;
        self
    }

    /// Lowers the program and compiles it to a function that calls kernels in order, with constant
    /// shapes, in memory planned by the build. Results are those of the [lowered](Self::lowered)
    /// program. The firmware contains neither the file nor an interpreter. A program that cannot be
    /// compiled is interpreted; the build prints the reason.
    ///
    /// The module has `load` and the methods with the same signatures, so that a project changes by
    /// one word.
    #[must_use]
    pub fn compiled(mut self) -> Self {
        self.compile = Compile::Preferably;
        self.lowered()
    }

    /// Like [`compiled`](Self::compiled), but a program that cannot be compiled fails the build
    /// with the reason.
    #[must_use]
    pub fn compiled_only(mut self) -> Self {
        self.compile = Compile::Always;
        self.lowered()
    }

    /// Adds a custom kernel, with the path of the same constant in the firmware. It overrides a
    /// built-in kernel of the same name. Define it in a crate that both the build script and the
    /// firmware depend on.
    #[must_use]
    pub fn kernel(mut self, kernel: Kernel, path: &str) -> Self {
        self.kernels.push((kernel, path.into()));
        self
    }

    /// Adds a custom backend, with the path of the same static in the firmware.
    #[must_use]
    pub fn backend(mut self, backend: impl Backend + 'static, path: &str) -> Self {
        self.backends.push((Box::new(backend), path.into()));
        self
    }

    /// Determines the requirements of the program on a machine.
    ///
    /// # Errors
    /// If the program cannot be read or loaded, or calls operators or backends that are not
    /// registered.
    pub fn analyze(&self, target: &Target) -> Result<Analysis, Error> {
        Ok(Loaded::of(self, target)?.analysis)
    }

    /// Writes the program as the only one of its image: see [`Image::write`].
    ///
    /// # Errors
    /// The same as for [`Image::write`].
    pub fn write(self) -> Result<(), Error> {
        Image::new().program(self).write()
    }

    /// Name of the program's module.
    pub(crate) fn module(&self) -> String {
        let stem = || self.path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        crate::names::identifier(&self.name.clone().unwrap_or_else(stem))
    }
}

/// Whether a program is compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compile {
    No,
    /// Interpreted if it cannot be compiled.
    Preferably,
    /// An error if it cannot be compiled.
    Always,
}
