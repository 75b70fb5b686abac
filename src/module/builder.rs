//! Choosing how a module is opened.

use super::Module;
use super::environment::{
    BackendOption, BackendOptionValue, BackendOptions, Capabilities, Environment, OwnedRegistry,
};
use crate::error::Error;
use crate::files::{FileAccess, OpenProgram, Source};
use crate::processor::{Compiling, RunOn};
use crate::threads::Threads;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use torchlet_core::{Backend, DataLoader, EventTracer, Kernel, Limits, Parallel};

/// The memory that a method may take unless [set otherwise](ModuleBuilder::memory_limit): 4 GiB.
pub const DEFAULT_MEMORY_LIMIT: u64 = 4 << 30;

/// How a [`Module`] is opened; made by [`Module::builder`].
///
/// ```no_run
/// # use torchlet::Module;
/// let module = Module::builder()
///     .data("weights.ptd")
///     .threads(4)
///     .load("model.pte")?;
/// # Ok::<(), torchlet::Error>(())
/// ```
#[must_use = "a builder does nothing until it loads"]
pub struct ModuleBuilder {
    data: Vec<Source>,
    access: FileAccess,
    threads: Option<usize>,
    parallel: Option<Arc<dyn Parallel + Send + Sync>>,
    default_kernels: bool,
    default_backends: bool,
    kernels: Vec<&'static [Kernel]>,
    backends: Vec<Arc<dyn Backend + Send + Sync>>,
    backend_options: Vec<BackendOption>,
    tracer: Option<Arc<dyn EventTracer + Send + Sync>>,
    memory_limit: u64,
    limits: Limits,
    share_state: bool,
    share_activations: bool,
    run_on: RunOn,
    compile_cache: Option<PathBuf>,
}

impl Default for ModuleBuilder {
    fn default() -> Self {
        ModuleBuilder {
            data: Vec::new(),
            access: FileAccess::default(),
            threads: None,
            parallel: None,
            default_kernels: true,
            default_backends: true,
            kernels: Vec::new(),
            backends: Vec::new(),
            backend_options: Vec::new(),
            tracer: None,
            memory_limit: DEFAULT_MEMORY_LIMIT,
            limits: Limits::default(),
            share_state: true,
            share_activations: false,
            run_on: RunOn::default(),
            compile_cache: None,
        }
    }
}

impl ModuleBuilder {
    /// Adds a `.ptd` file of external data. Files are searched in the order in which they were
    /// added.
    pub fn data(mut self, path: impl Into<PathBuf>) -> Self {
        self.data.push(Source::Path(path.into()));
        self
    }

    /// Adds the bytes of a `.ptd` file.
    pub fn data_bytes(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.data.push(Source::Bytes(bytes.into()));
        self
    }

    /// Adds a `.ptd` file in storage of your own.
    pub fn data_loader(mut self, loader: Arc<dyn DataLoader + Send + Sync>) -> Self {
        self.data.push(Source::Loader(loader));
        self
    }

    /// How files get into memory: read, unless set otherwise. [Mapping](FileAccess::Map) them takes
    /// a promise.
    pub fn file_access(mut self, access: FileAccess) -> Self {
        self.access = access;
        self
    }

    /// The number of threads that kernels use: as many as there are processors, unless set
    /// otherwise.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads.max(1));
        self
    }

    /// Threads of your own for kernels to use.
    pub fn parallel(mut self, parallel: Arc<dyn Parallel + Send + Sync>) -> Self {
        self.parallel = Some(parallel);
        self
    }

    /// Adds a table of kernels, sorted by name, to those of the enabled features.
    pub fn kernels(mut self, table: &'static [Kernel]) -> Self {
        self.kernels.push(table);
        self
    }

    /// Whether the kernels of the enabled features are used. They are, unless set otherwise.
    pub fn default_kernels(mut self, enabled: bool) -> Self {
        self.default_kernels = enabled;
        self
    }

    /// Leaves out the backends of the enabled features: only those added with
    /// [`backend`](Self::backend) remain.
    pub fn without_default_backends(mut self) -> Self {
        self.default_backends = false;
        self
    }

    /// Adds a backend for delegates; it replaces a default one of the same name.
    pub fn backend(mut self, backend: Arc<dyn Backend + Send + Sync>) -> Self {
        self.backends.push(backend);
        self
    }

    /// Sets an option of a backend.
    pub fn backend_option(
        mut self,
        backend: impl Into<String>,
        key: impl Into<String>,
        value: impl Into<BackendOptionValue>,
    ) -> Self {
        let (backend, key) = (backend.into(), key.into());
        self.backend_options.push(BackendOption { backend, key, value: value.into() });
        self
    }

    /// The most bytes that a method may take in memory, [4 GiB](DEFAULT_MEMORY_LIMIT) unless set
    /// otherwise. A malicious file can ask for any amount; one that asks for more than this is
    /// refused before anything is reserved. Weights are used where they lie in the file and do not
    /// count, packed ones do. Copies of outputs count as well, when they are made.
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.memory_limit = bytes;
        self
    }

    /// What a program may ask for: sizes, counts, and how many backward jumps one call may take, so
    /// that loops of a malicious program end. [`Limits::HOST`], unless set otherwise.
    ///
    /// ```no_run
    /// # use torchlet::{Limits, Module};
    /// let mut limits = Limits::HOST;
    /// limits.file_bytes = 100 << 20;
    /// let module = Module::builder().limits(limits).load("model.pte")?;
    /// # Ok::<(), torchlet::Error>(())
    /// ```
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Whether methods that were exported to keep [state](Module#state) together do so. They do,
    /// unless set otherwise; else each has state of its own.
    pub fn share_state(mut self, enabled: bool) -> Self {
        self.share_state = enabled;
        self
    }

    /// Whether all methods of the module use one memory for activations in turn, as large as the
    /// largest needs it. They do not, unless set otherwise. Methods are loaded and unloaded
    /// together then, and what [`Method::output`](crate::Method::output) shows in place lasts until
    /// another method runs. A program one of whose methods keeps state among its activations is
    /// refused when it is loaded; export it with `share_mutable_buffers`, whose state methods keep
    /// together then, whatever [`share_state`](Self::share_state) says.
    pub fn share_activations(mut self, enabled: bool) -> Self {
        self.share_activations = enabled;
        self
    }

    /// What the program runs on: the best that there is for it, unless set otherwise.
    pub fn run_on(mut self, processor: RunOn) -> Self {
        self.run_on = processor;
        self
    }

    /// A folder in which compiled programs are kept, so that opening the same one again takes less
    /// time. There is none, unless set.
    ///
    /// A file there stands for the bytes of the program and its external data, what it was compiled
    /// for, and this build of the application, and for the CPU the kind of machine, for which
    /// weights are packed in it; one that is damaged or out of date is written anew, one that
    /// cannot be written is done without. Files are read as those of the program are
    /// ([`FileAccess`]). Its name is made by a fast hash that is not made to resist forgery: use a
    /// folder that nobody else can write to. Programs in [storage](Self::from_loader) are not kept.
    pub fn compile_cache(mut self, folder: impl Into<PathBuf>) -> Self {
        self.compile_cache = Some(folder.into());
        self
    }

    /// Who is told of events while methods load and run. Keep a clone to read what it recorded.
    pub fn event_tracer(mut self, tracer: Arc<dyn EventTracer + Send + Sync>) -> Self {
        self.tracer = Some(tracer);
        self
    }

    /// Opens a program file, `.pte` or `.bpte`.
    ///
    /// # Errors
    /// A file cannot be read or is not what it should be, or kernels or backends clash.
    pub fn load(self, path: impl AsRef<Path>) -> Result<Module, Error> {
        self.open(&Source::Path(path.as_ref().into()))
    }

    /// Opens a program that is in memory. The bytes are copied.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn from_bytes(self, bytes: impl Into<Vec<u8>>) -> Result<Module, Error> {
        self.open(&Source::Bytes(bytes.into()))
    }

    /// Opens a program that is part of the binary, without a copy. Constants are used where they
    /// lie if the bytes start at a multiple of 16, as those of an
    /// [`AlignedBytes`](torchlet_core::AlignedBytes) do.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn from_static(self, bytes: &'static [u8]) -> Result<Module, Error> {
        self.open(&Source::Static(bytes))
    }

    /// Opens a program in storage of your own. Storage that [lends](DataLoader::lend) is used where
    /// it is; of other storage all but the data of tensors is copied now, and constants when a
    /// method is loaded.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn from_loader(self, loader: Arc<dyn DataLoader + Send + Sync>) -> Result<Module, Error> {
        self.open(&Source::Loader(loader))
    }

    fn open(self, source: &Source) -> Result<Module, Error> {
        let mut kernels = self.kernels;
        if self.default_kernels {
            kernels.extend(crate::default_kernels());
        }
        let mut backends = self.backends;
        if self.default_backends {
            // A backend that was added replaces that of the same name.
            let others = crate::default_backends().into_iter();
            let others =
                others.filter(|other| backends.iter().all(|own| own.name() != other.name()));
            let others: Vec<_> = others.collect();
            backends.extend(others);
        }
        let registry = OwnedRegistry::of(Capabilities { kernels, backends })?;
        let threads = self
            .parallel
            .map_or_else(OnceLock::new, |parallel| OnceLock::from(Threads::from(parallel)));
        let compiling = Compiling {
            registry: registry.borrow_dependent(),
            limits: &self.limits,
            threads: match threads.get() {
                Some(threads) => threads.parallel().threads(),
                None => crate::threads::count(self.threads),
            },
            cache: self.compile_cache.as_deref(),
            access: self.access,
            parallel: &|| threads.get_or_init(|| Threads::start(self.threads)).parallel().clone(),
        };
        let program = self.run_on.opening_device(registry.borrow_dependent(), || {
            let open = OpenProgram::open(source, &self.data, self.access, &self.limits)?;
            self.run_on.prepare(open, &compiling)
        })?;
        let environment = Environment {
            program,
            registry,
            backend_options: BackendOptions::of(self.backend_options),
            tracer: self.tracer,
            memory_limit: self.memory_limit,
            limits: self.limits,
            share_state: self.share_state,
            share_activations: self.share_activations,
            threads,
            wanted_threads: self.threads,
        };
        Ok(Module::new(environment))
    }
}

impl std::fmt::Debug for ModuleBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModuleBuilder")
            .field("data", &self.data)
            .field("access", &self.access)
            .field("threads", &self.threads)
            .field("memory_limit", &self.memory_limit)
            .finish_non_exhaustive()
    }
}
