//! What the methods of a module share: the files, the registry's contents, threads, limits.

use super::method::MemoryReport;
use crate::error::Error;
use crate::files::OpenProgram;
use self_cell::self_cell;
use std::sync::{Arc, OnceLock};
use torchlet_core::{
    Backend, EventTracer, Kernel, MethodMeta, OptionValue, Parallel, ProgramError, Registry,
    RuntimeOption,
};

/// A setting for a backend.
#[derive(Debug, Clone)]
pub(crate) struct BackendOption {
    pub(crate) backend: String,
    pub(crate) key: String,
    pub(crate) value: BackendOptionValue,
}

/// The value of a [backend option](crate::ModuleBuilder::backend_option), made from a `bool`, an `i64` or a text.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BackendOptionValue {
    /// A switch.
    Bool(bool),
    /// A number.
    Int(i64),
    /// A text.
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
    /// Settings for backends, as core takes them.
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
    /// Kernels and backends, with core's registry of them.
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

pub(crate) type SharedParallel = Arc<dyn Parallel + Send + Sync>;

/// What the methods of a module share.
pub(crate) struct Environment {
    pub(crate) program: OpenProgram,
    pub(crate) registry: OwnedRegistry,
    pub(crate) backend_options: BackendOptions,
    pub(crate) tracer: Option<Arc<dyn EventTracer + Send + Sync>>,
    pub(crate) memory_limit: u64,
    pub(crate) jump_limit: u64,
    /// Threads start when the first method is loaded, not when a file is looked at.
    pub(crate) parallel: OnceLock<SharedParallel>,
    pub(crate) threads: Option<usize>,
}

impl Environment {
    pub(crate) fn parallel(&self) -> &SharedParallel {
        self.parallel.get_or_init(|| crate::threads::pool(self.threads))
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
        self.program.program().method_meta(method).or_else(|error| match error {
            ProgramError::NoSuchMethod => {
                Err(Error::NoSuchMethod { method: method.into(), available: self.method_names()? })
            }
            source => Err(Error::Format { path: None, source }),
        })
    }

    pub(crate) fn memory_report(&self, meta: &MethodMeta<'_>) -> Result<MemoryReport, Error> {
        // Looked up again so that the description lives as long as the registry's borrow.
        let meta = self.method_meta(meta.name())?;
        let of_load = |error| Error::of_load(meta.name(), &error);
        let (needs, arena_use) = meta
            .memory_report(self.registry(), self.program.data(), self.parallel().threads())
            .map_err(of_load)?;
        let planned = (0..meta.planned_buffer_count())
            .map(|index| meta.planned_buffer_size(index))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| of_load(error.into()))?;
        let interface = super::signature::Signature::of(&meta).map_err(|e| of_load(e.into()))?;
        let state = super::method::unplanned_state(&meta).map_err(|e| of_load(e.into()))?;
        let state = state.iter().fold(0usize, |total, (_, bytes)| total.saturating_add(*bytes));
        Ok(MemoryReport {
            arena: needs.arena,
            arena_use,
            scratch: needs.scratch,
            planned,
            unplanned: interface.unplanned_bytes().saturating_add(state),
        })
    }
}
