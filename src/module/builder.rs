//! [`ModuleBuilder`]: settings for opening a module.

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

/// Default [memory limit](ModuleBuilder::memory_limit) of a method: 4 GiB.
pub const DEFAULT_MEMORY_LIMIT: u64 = 4 << 30;

/// Settings for opening a [`Module`]. See [`Module::builder`].
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
    sequences: usize,
    foreign_shaders: bool,
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
            sequences: 1,
            foreign_shaders: false,
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

    /// Adds a `.ptd` file in caller-provided storage.
    pub fn data_loader(mut self, loader: Arc<dyn DataLoader + Send + Sync>) -> Self {
        self.data.push(Source::Loader(loader));
        self
    }

    /// Sets how files are brought into memory. Default: [`FileAccess::Read`].
    /// [Mapping](FileAccess::Map) requires a promise from the caller.
    pub fn file_access(mut self, access: FileAccess) -> Self {
        self.access = access;
        self
    }

    /// Sets the number of threads that kernels use. Default: the number of processors.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads.max(1));
        self
    }

    /// Provides the threads that kernels use.
    pub fn parallel(mut self, parallel: Arc<dyn Parallel + Send + Sync>) -> Self {
        self.parallel = Some(parallel);
        self
    }

    /// Adds a table of kernels, sorted by name, to those of the enabled features.
    pub fn kernels(mut self, table: &'static [Kernel]) -> Self {
        self.kernels.push(table);
        self
    }

    /// Enables or disables the kernels of the enabled features. Default: enabled.
    pub fn default_kernels(mut self, enabled: bool) -> Self {
        self.default_kernels = enabled;
        self
    }

    /// Removes the backends of the enabled features. Only those added with
    /// [`backend`](Self::backend) remain.
    pub fn without_default_backends(mut self) -> Self {
        self.default_backends = false;
        self
    }

    /// Adds a backend for delegates. It replaces a default backend of the same name.
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

    /// Limits the memory of a method in bytes. Default: [4 GiB](DEFAULT_MEMORY_LIMIT).
    ///
    /// A malicious file can request any amount; a method over the limit is rejected before anything
    /// is allocated. Weights used in place in the file do not count, packed weights do. Copies of
    /// outputs count when they are made. Device memory does not count, except that of [foreign
    /// shaders](Self::allow_foreign_shaders): each sequence of them may use this much.
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.memory_limit = bytes;
        self
    }

    /// Limits what a program may request: sizes, counts, and the number of backward jumps in one
    /// call, so that loops of a malicious program terminate. Default: [`Limits::HOST`].
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

    /// Enables or disables [state](Module#state) sharing between methods that were exported for it.
    /// If disabled, each method has its own state. Default: enabled.
    pub fn share_state(mut self, enabled: bool) -> Self {
        self.share_state = enabled;
        self
    }

    /// Lets all methods of the module share one allocation for activations, as large as the largest
    /// method needs. Default: disabled.
    ///
    /// Methods are then loaded and unloaded together. An output that
    /// [`Method::output`](crate::Method::output) borrows in place is valid until another method
    /// runs.
    ///
    /// Loading fails if a method keeps state among its activations. Export such a program with
    /// `share_mutable_buffers`; its methods then share state regardless of
    /// [`share_state`](Self::share_state).
    pub fn share_activations(mut self, enabled: bool) -> Self {
        self.share_activations = enabled;
        self
    }

    /// Sets whether compute shaders of the file may run: those of compute segments of Arm VGF
    /// files. Default: no.
    ///
    /// A shader is code of the file's author, which the GPU driver trusts. Allow it only for files
    /// that you would run as a program.
    pub fn allow_foreign_shaders(mut self, allowed: bool) -> Self {
        self.foreign_shaders = allowed;
        self
    }

    /// Sets the device that the program runs on. Default: the fastest one available for the
    /// program.
    pub fn run_on(mut self, processor: RunOn) -> Self {
        self.run_on = processor;
        self
    }

    /// Sets the number of sequences that a run may have, for a language model that was exported for
    /// one. Default: 1.
    ///
    /// With 2 or more, the compiler gives each method that keeps state a leading dim of rows: the
    /// weights are read once for all rows of a run. State such as a KV cache gets a slot per
    /// sequence, and so many times the memory. The inputs and outputs of the method have a leading
    /// dim of up to `count` rows, integers become tensors of rank 1, and an additional last input,
    /// of 64-bit integers, names the slot of each row. Methods without state stay as they are.
    ///
    /// Runners of language models use the slots by themselves: each session takes one. A program
    /// that cannot be transformed, or that runs on a device other than the CPU, runs for one
    /// sequence at a time; [`Module::sequences_error`] tells why.
    pub fn sequences(mut self, count: usize) -> Self {
        self.sequences = count.max(1);
        self
    }

    /// Sets a folder that caches compiled programs, so that they open faster the next time.
    /// Default: no cache.
    ///
    /// A cache file is keyed by the bytes of the program and its external data, the target device
    /// and this build of the application. Files for the CPU are also keyed by the CPU type, because
    /// weights are packed for it. Damaged or outdated files are rewritten; write errors are
    /// ignored.
    ///
    /// Cache files are read like program files ([`FileAccess`]). Their names come from a fast hash
    /// that does not resist forgery: use a folder that nobody else can write to. Programs in
    /// caller-provided [storage](Self::from_loader) are not cached.
    pub fn compile_cache(mut self, folder: impl Into<PathBuf>) -> Self {
        self.compile_cache = Some(folder.into());
        self
    }

    /// Sets a tracer that receives events while methods load and run. Keep a clone to read what it
    /// recorded.
    pub fn event_tracer(mut self, tracer: Arc<dyn EventTracer + Send + Sync>) -> Self {
        self.tracer = Some(tracer);
        self
    }

    /// Opens a program file, `.pte` or `.bpte`.
    ///
    /// # Errors
    /// A file cannot be read or is malformed, or kernels or backends conflict.
    pub fn load(self, path: impl AsRef<Path>) -> Result<Module, Error> {
        self.open(&Source::Path(path.as_ref().into()))
    }

    /// Opens a program from bytes in memory, which are copied.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn from_bytes(self, bytes: impl Into<Vec<u8>>) -> Result<Module, Error> {
        self.open(&Source::Bytes(bytes.into()))
    }

    /// Opens a program embedded in the binary, without a copy. Constants are used in place if the
    /// bytes are aligned to 16, as in [`AlignedBytes`](torchlet_core::AlignedBytes).
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn from_static(self, bytes: &'static [u8]) -> Result<Module, Error> {
        self.open(&Source::Static(bytes))
    }

    /// Opens a program in caller-provided storage. Storage that can [lend](DataLoader::lend) its
    /// bytes is used in place. From other storage, everything except tensor data is copied now, and
    /// constants are copied when a method is loaded.
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
            // An added backend replaces the default one of the same name.
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
            sequences: self.sequences,
            foreign_shaders: self.foreign_shaders,
            cache: self.compile_cache.as_deref(),
            access: self.access,
            parallel: &|| threads.get_or_init(|| Threads::start(self.threads)).parallel().clone(),
        };
        let program = self.run_on.with_device_opening(registry.borrow_dependent(), || {
            let open = OpenProgram::open(source, &self.data, self.access, &self.limits)?;
            self.run_on.prepare(open, &compiling)
        })?;
        let mut backend_options = self.backend_options;
        if self.foreign_shaders {
            let limit = i64::try_from(self.memory_limit).unwrap_or(i64::MAX);
            let options: [(_, BackendOptionValue); 2] =
                [("foreign_shaders", true.into()), ("foreign_memory_limit", limit.into())];
            for api in crate::DEVICE_APIS {
                backend_options.extend(options.iter().map(|(key, value)| BackendOption {
                    backend: api.backend_name().to_owned(),
                    key: String::from(*key),
                    value: value.clone(),
                }));
            }
        }
        let environment = Environment {
            program,
            registry,
            backend_options: BackendOptions::of(backend_options),
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
