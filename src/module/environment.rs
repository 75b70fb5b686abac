//! Resources that the methods of a module share: files, kernels, backends, threads and limits.

use super::method::{MemoryReport, MethodOptions};
use super::sharing::Sharing;
use crate::buffer::ArenaMemory;
use crate::error::Error;
use crate::processor::ReadyProgram;
use crate::threads::Threads;
use self_cell::self_cell;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use torchlet_core::{
    Backend, DeviceMemory, EventTracer, InitError, Kernel, Limits, LoadOptions, Machine,
    MethodMeta, OptionValue, Parallel, Prepared, ProgramError, Registry, RuntimeOption, Serial,
};

/// Option passed to a backend.
#[derive(Debug, Clone)]
pub(crate) struct BackendOption {
    pub(crate) backend: String,
    pub(crate) key: String,
    pub(crate) value: BackendOptionValue,
}

/// Value of a [backend option](crate::ModuleBuilder::backend_option), converted from a `bool`, an
/// `i64` or a string.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BackendOptionValue {
    /// A Boolean.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A string.
    String(String),
}

impl From<bool> for BackendOptionValue {
    fn from(value: bool) -> Self {
        BackendOptionValue::Bool(value)
    }
}
impl From<i64> for BackendOptionValue {
    fn from(value: i64) -> Self {
        BackendOptionValue::Int(value)
    }
}
impl From<&str> for BackendOptionValue {
    fn from(value: &str) -> Self {
        BackendOptionValue::String(value.into())
    }
}
impl From<String> for BackendOptionValue {
    fn from(value: String) -> Self {
        BackendOptionValue::String(value)
    }
}

type OptionViews<'o> = Vec<RuntimeOption<'o>>;

self_cell!(
    /// Backend options, with their view for `torchlet-core`.
    pub(crate) struct BackendOptions {
        owner: Vec<BackendOption>,
        #[covariant]
        dependent: OptionViews,
    }
);

impl BackendOptions {
    pub(crate) fn of(options: Vec<BackendOption>) -> Self {
        BackendOptions::new(options, |options| {
            let views = options.iter().map(|option| RuntimeOption {
                backend: &option.backend,
                key: &option.key,
                value: match &option.value {
                    BackendOptionValue::Bool(value) => OptionValue::Bool(*value),
                    BackendOptionValue::Int(value) => OptionValue::Int(*value),
                    BackendOptionValue::String(value) => OptionValue::String(value),
                },
            });
            views.collect()
        })
    }
}

/// Kernels and backends.
pub(crate) struct Capabilities {
    pub(crate) kernels: Vec<&'static [Kernel]>,
    pub(crate) backends: Vec<Arc<dyn Backend + Send + Sync>>,
}

self_cell!(
    /// Kernels and backends, with the `torchlet-core` registry of them.
    pub(crate) struct OwnedRegistry {
        owner: Capabilities,
        #[covariant]
        dependent: Registry,
    }
);

impl OwnedRegistry {
    pub(crate) fn of(capabilities: Capabilities) -> Result<Self, Error> {
        OwnedRegistry::try_new(capabilities, |capabilities| {
            let mut registry = Registry::new();
            for table in &capabilities.kernels {
                registry = registry.with_kernels(table)?;
            }
            for backend in &capabilities.backends {
                registry = registry.with_backend(backend.as_ref())?;
            }
            Ok::<_, Error>(registry)
        })
    }
}

pub(crate) type SharedTracer = Arc<dyn EventTracer + Send + Sync>;
pub(crate) type SharedParallel = Arc<dyn Parallel + Send + Sync>;

/// Resources that the methods of a module share.
pub(crate) struct Environment {
    pub(crate) program: ReadyProgram,
    pub(crate) registry: OwnedRegistry,
    pub(crate) backend_options: BackendOptions,
    pub(crate) tracer: Option<SharedTracer>,
    /// Whether methods share state if the exporter intended it.
    pub(crate) share_state: bool,
    /// Whether all methods share one allocation of planned memory.
    pub(crate) share_activations: bool,
    pub(crate) memory_limit: u64,
    pub(crate) limits: Limits,
    /// Started lazily, when the program is compiled or the first method is loaded. Inspecting a
    /// file starts no threads.
    pub(crate) threads: OnceLock<Threads>,
    pub(crate) wanted_threads: Option<usize>,
}

impl Environment {
    pub(crate) fn threads(&self) -> &Threads {
        self.threads.get_or_init(|| Threads::start(self.wanted_threads))
    }

    pub(crate) fn parallel(&self) -> &SharedParallel {
        self.threads().parallel()
    }

    pub(crate) fn registry(&self) -> &Registry<'_> {
        self.registry.borrow_dependent()
    }

    pub(crate) fn method_names(&self) -> Result<Vec<String>, Error> {
        let wrap = |source| Error::Format { path: None, source };
        let names = self.program.program().method_names().map_err(wrap)?;
        names.map(|name| name.map(String::from).map_err(wrap)).collect()
    }

    pub(crate) fn method_meta(&self, method: &str) -> Result<MethodMeta<'_>, Error> {
        self.program.program().method_meta(method).or_else(|error| self.meta_error(method, error))
    }

    /// Inputs and outputs of a method as exported.
    pub(crate) fn exported_method_meta(&self, method: &str) -> Result<MethodMeta<'_>, Error> {
        self.program.exported().method_meta(method).or_else(|error| self.meta_error(method, error))
    }

    fn meta_error(&self, method: &str, error: ProgramError) -> Result<MethodMeta<'_>, Error> {
        match error {
            ProgramError::NoSuchMethod => {
                Err(Error::NoSuchMethod { method: method.into(), available: self.method_names()? })
            }
            source => Err(Error::Format { path: None, source }),
        }
    }

    /// Device memory in use by all delegates of the backends.
    pub(crate) fn device_memory(&self) -> DeviceMemory {
        let backends = self.registry.borrow_owner().backends.iter();
        backends.filter_map(|backend| backend.device_memory()).fold(
            DeviceMemory::default(),
            |sum, memory| {
                let used = sum.used.saturating_add(memory.used);
                DeviceMemory::new(used, sum.peak.saturating_add(memory.peak))
            },
        )
    }

    /// Tracer for events of a method.
    pub(crate) fn tracer<'e>(&'e self, method: &'e MethodOptions) -> Option<&'e SharedTracer> {
        method.tracer().or(self.tracer.as_ref())
    }

    /// Load options of a method.
    pub(crate) fn options<'e>(
        &'e self,
        method: &'e MethodOptions,
        cancel: &'e AtomicBool,
    ) -> LoadOptions<'e> {
        let options = LoadOptions::default()
            .with_data(self.program.data())
            .with_parallel(self.parallel().as_ref())
            .with_backend_options(self.backend_options.borrow_dependent())
            .with_limits(self.limits)
            .with_cancel(cancel);
        match self.tracer(method) {
            Some(tracer) => options.with_tracer(tracer.as_ref()),
            None => options,
        }
    }

    /// Names of the methods that are loaded together with `method` because they share memory,
    /// including itself.
    pub(crate) fn companions(&self, method: &str) -> Result<Vec<String>, Error> {
        self.method_meta(method)?;
        if !self.share_state && !self.share_activations {
            return Ok(vec![method.into()]);
        }
        let wrap = |source| Error::Format { path: None, source };
        let sharing = Sharing::of(&self.program.program()).map_err(wrap)?;
        if self.share_activations {
            if !sharing.agree {
                let what = "its methods use the same planned buffers for different tensors";
                return Err(Error::of_load(method, InitError::Shared { what }));
            }
            return self.method_names();
        }
        if sharing.together.contains(&method) {
            return Ok(sharing.together.into_iter().map(String::from).collect());
        }
        Ok(vec![method.into()])
    }

    /// Allocates memory for the tables of a method.
    pub(crate) fn tables(&self, meta: &MethodMeta<'_>) -> Result<ArenaMemory, Error> {
        let bytes = meta.table_bytes(&self.limits);
        let needed = bytes.map_err(|error| Error::of_load(meta.name(), error))?;
        self.check_memory(meta.name(), needed as u64)?;
        ArenaMemory::new(needed)
    }

    /// Returns an error if a method needs more memory than the limit.
    pub(crate) fn check_memory(&self, method: &str, needed: u64) -> Result<(), Error> {
        let limit = self.memory_limit;
        if needed <= limit {
            return Ok(());
        }
        Err(Error::MemoryLimit { method: method.into(), needed, limit })
    }

    /// Resolves and validates a method in the memory for its tables.
    pub(crate) fn prepare<'e>(
        &'e self,
        method: &str,
        tables: &'e mut ArenaMemory,
        options: LoadOptions<'e>,
    ) -> Result<Prepared<'e>, Error> {
        let meta = self.method_meta(method)?;
        let missing = meta.missing(self.registry());
        if !missing.is_empty() {
            return Err(Error::Missing {
                method: method.into(),
                operators: missing.operators().map(|operator| operator.to_string()).collect(),
                backends: missing.backends().map(String::from).collect(),
            });
        }
        meta.prepare(tables.bytes(), self.registry(), options)
            .map_err(|error| Error::of_load(method, error))
    }

    pub(crate) fn memory_report(
        &self,
        method: &str,
        machine: Machine,
    ) -> Result<MemoryReport, Error> {
        let mut tables = self.tables(&self.method_meta(method)?)?;
        let (options, cancel) = (MethodOptions::new(), AtomicBool::new(false));
        let mut options = self.options(&options, &cancel).with_machine(machine);
        if machine != Machine::Here {
            options = options.with_parallel(&Serial);
        }
        MemoryReport::of(&self.prepare(method, &mut tables, options)?)
    }
}
