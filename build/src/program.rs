//! A program and what is to become of it.

use crate::load::Loaded;
use crate::{Analysis, Error, Image, Target};
use std::path::{Path, PathBuf};
use torchlet_core::{Backend, Kernel};

/// A program that is to be part of an image.
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
    pub(crate) kernels: Vec<(Kernel, String)>,
    pub(crate) backends: Vec<(Box<dyn Backend>, String)>,
}

impl Program {
    /// The program of a `.pte` file, or of a `.bpte` file, without its test cases. Paths are those
    /// of the build script: relative to the folder of the package.
    pub fn new(path: impl AsRef<Path>) -> Self {
        Program {
            path: path.as_ref().into(),
            name: None,
            data: Vec::new(),
            methods: Vec::new(),
            is_lowered: false,
            kernels: Vec::new(),
            backends: Vec::new(),
        }
    }

    /// The name of the module, in place of the file's.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.into());
        self
    }

    /// A file of data that the program leaves outside (`.ptd`). Names are looked up in the order in
    /// which files were added.
    #[must_use]
    pub fn data(mut self, path: impl AsRef<Path>) -> Self {
        self.data.push(path.as_ref().into());
        self
    }

    /// A method to be loaded: once for each, or not at all for all that the program has.
    #[must_use]
    pub fn method(mut self, name: &str) -> Self {
        if !self.methods.iter().any(|known| known == name) {
            self.methods.push(name.into());
        }
        self
    }

    /// Embeds the program as the compiler makes it of the file, as `torchlet lower --for mcu` does:
    /// constants are folded, calls are fused, memory is planned anew, external data is part of it.
    /// Results may differ from the file's in the last bits.
    #[must_use]
    pub fn lowered(mut self) -> Self {
        self.is_lowered = true;
        self
    }

    /// A kernel of your own, and the path of the same constant in the firmware. It stands before
    /// one of the same name here. Put it into a crate that the build script and the firmware depend
    /// on.
    #[must_use]
    pub fn kernel(mut self, kernel: Kernel, path: &str) -> Self {
        self.kernels.push((kernel, path.into()));
        self
    }

    /// A backend of your own, and the path of the same static in the firmware.
    #[must_use]
    pub fn backend(mut self, backend: impl Backend + 'static, path: &str) -> Self {
        self.backends.push((Box::new(backend), path.into()));
        self
    }

    /// What running it takes on a machine.
    ///
    /// # Errors
    /// It cannot be read or loaded, or calls what nobody has.
    pub fn analyze(&self, target: &Target) -> Result<Analysis, Error> {
        Ok(Loaded::of(self, target)?.analysis)
    }

    /// Writes the program as the only one of its image: see [`Image::write`].
    ///
    /// # Errors
    /// As there.
    pub fn write(self) -> Result<(), Error> {
        Image::new().program(self).write()
    }

    /// The name of its module.
    pub(crate) fn module(&self) -> String {
        let stem = || self.path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        crate::code::identifier(&self.name.clone().unwrap_or_else(stem))
    }
}
