//! [`Module`]: an opened program and its loaded methods.

mod builder;
mod environment;
mod group;
mod method;
mod module_group;
mod sharing;
mod signature;
pub(crate) mod state;

pub use builder::{DEFAULT_MEMORY_LIMIT, ModuleBuilder};
pub use environment::BackendOptionValue;
pub(crate) use environment::SharedParallel;
pub use method::{MemoryReport, Method, MethodOptions};

use crate::error::Error;
use crate::processor::Origin;
use crate::value::{Inputs, Value};
pub use module_group::ModuleGroup;
pub use state::StateTensor;
use torchlet_graph::Report;

use environment::Environment;
use group::{Group, Request, Setting};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use torchlet_core::{
    BundledProgram, DataMap, DeviceMemory, EventTracer, Machine, MethodMeta, Program,
};

/// Method that [`Module::forward`] runs.
const FORWARD: &str = "forward";

/// A program and its loaded methods.
///
/// [`load`](Module::load) opens and validates the file. A method is loaded (operators resolved,
/// memory allocated) on its first call, or by [`load_method`](Module::load_method).
///
/// A module runs one call at a time. To run a program on several threads at once, give each thread
/// its own module with [`share`](Module::share): they share the opened file, while methods and
/// their state are separate.
///
/// ```no_run
/// use torchlet::{Module, Tensor};
///
/// let mut module = Module::load("model.pte")?;
/// let image = Tensor::from_slice(&[1, 3, 224, 224], &vec![0.5f32; 3 * 224 * 224])?;
/// let outputs = module.forward(&image)?;
/// println!("{}", outputs[0]);
/// # Ok::<(), torchlet::Error>(())
/// ```
///
/// # State
///
/// A method may keep tensors between calls, such as a KV cache. [`reset`](Module::reset) restores
/// their initial values. Each method has its own state, with one exception: methods that were
/// exported with ExecuTorch's `share_mutable_buffers` share it, so that one reads what another
/// wrote.
///
/// Such methods are loaded and [unloaded](Module::unload) together, and share the memory of all
/// their tensors. An output that [`Method::output`] borrows in place is valid until another of them
/// runs. [`ModuleBuilder::share_state`] disables the sharing.
pub struct Module {
    setting: Setting,
    groups: Vec<Group>,
    options: BTreeMap<String, MethodOptions>,
}

/// Cancels runs of a [`Module`] from another thread. See [`Module::canceller`].
#[derive(Debug, Clone)]
pub struct Canceller(Arc<AtomicBool>);

impl Canceller {
    /// Cancels the current run and all later runs, until [`resume`](Self::resume) is called. They
    /// fail with an [error](torchlet_core::error::InstructionError::Cancelled). State may then be
    /// partly written: [reset](Module::reset) the method if that matters.
    ///
    /// A run usually ends within tens of milliseconds. Most kernels and the CPU engine skip work
    /// that they have not begun. The GPU finishes submitted work in the background; the next run of
    /// the method waits for it. Operators that run in one piece, such as `unique` over a dim,
    /// selecting the k-th value of a row, or the gradients of pooling, finish first.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Allows methods to run again.
    pub fn resume(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// Whether runs are cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

const _: () = {
    const fn send<T: Send>() {}
    send::<Module>();
};

impl Module {
    /// Opens a program: a `.pte`, or a `.bpte` that bundles test cases with it. The whole file is
    /// read into memory; [map](ModuleBuilder::file_access) large files instead.
    ///
    /// # Errors
    /// The file cannot be read, or is not a program.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, Error> {
        Module::builder().load(path)
    }

    /// Opens a program from bytes in memory. The bytes are copied; see
    /// [`from_static`](ModuleBuilder::from_static) to borrow them instead.
    ///
    /// # Errors
    /// The bytes are not a program.
    pub fn from_bytes(bytes: impl Into<Vec<u8>>) -> Result<Self, Error> {
        Module::builder().from_bytes(bytes)
    }

    /// Returns a builder for external data, threads, kernels, backends, limits and tracing.
    pub fn builder() -> ModuleBuilder {
        ModuleBuilder::default()
    }

    fn new(environment: Environment) -> Self {
        Module::over(Arc::new(environment))
    }

    fn over(environment: Arc<Environment>) -> Self {
        let setting = Setting { environment, cancel: Arc::default() };
        Module { setting, groups: Vec::new(), options: BTreeMap::new() }
    }

    fn environment(&self) -> &Arc<Environment> {
        &self.setting.environment
    }

    /// Returns another module with the same opened files and settings. It has no loaded methods,
    /// and its own [canceller](Self::canceller).
    #[must_use]
    pub fn share(&self) -> Module {
        Module::over(self.environment().clone())
    }

    /// Returns a handle that cancels runs of this module from another thread.
    pub fn canceller(&self) -> Canceller {
        Canceller(self.setting.cancel.clone())
    }

    /// Overrides the module's settings for one method, from the next time that it is loaded.
    ///
    /// # Errors
    /// The method does not exist, or the file is malformed.
    pub fn set_method_options(
        &mut self,
        method: &str,
        options: MethodOptions,
    ) -> Result<(), Error> {
        self.method_meta(method)?;
        self.options.insert(method.into(), options);
        Ok(())
    }

    /// The program, for inspection through the API of `torchlet-core`.
    pub fn program(&self) -> Program<'_> {
        self.environment().program.program()
    }

    /// Bundled test cases, if the file is a `.bpte`.
    pub fn bundled(&self) -> Option<BundledProgram<'_>> {
        self.environment().program.bundled()
    }

    /// External data files.
    pub fn data(&self) -> &[DataMap<'_>] {
        self.environment().program.data()
    }

    /// Report of the compiler: how each operator call was compiled for the [chosen
    /// device](ModuleBuilder::run_on). `None` if the program runs as exported.
    pub fn plan(&self) -> Option<&Report> {
        self.environment().program.report()
    }

    /// Origin of the loaded program: the file, the compiler, or its cache.
    pub fn origin(&self) -> &Origin {
        self.environment().program.origin()
    }

    /// Number of [sequences](ModuleBuilder::sequences) that a run may have: 1 if the program runs
    /// for a single one, as exported.
    pub fn sequences(&self) -> usize {
        self.environment().program.sequences()
    }

    /// Why the program runs for a single sequence although [several](ModuleBuilder::sequences) were
    /// requested.
    pub fn sequences_error(&self) -> Option<&torchlet_graph::Error> {
        self.environment().program.sequences_error()
    }

    /// Inputs and outputs of a method as exported, for a single
    /// [sequence](ModuleBuilder::sequences).
    ///
    /// # Errors
    /// The method does not exist, or the file is malformed.
    pub fn exported_method_meta(&self, method: &str) -> Result<MethodMeta<'_>, Error> {
        self.environment().exported_method_meta(method)
    }

    /// Size of the program file in bytes, including the test cases of a `.bpte`.
    pub fn file_size(&self) -> u64 {
        self.environment().program.file_size()
    }

    /// Names of the methods, in file order.
    ///
    /// # Errors
    /// The file is malformed.
    pub fn method_names(&self) -> Result<Vec<String>, Error> {
        self.environment().method_names()
    }

    /// Inputs, outputs, memory and operators of a method.
    ///
    /// # Errors
    /// The method does not exist, or the file is malformed.
    pub fn method_meta(&self, method: &str) -> Result<MethodMeta<'_>, Error> {
        self.environment().method_meta(method)
    }

    /// Returns the exact memory that loading a method needs, without loading it.
    ///
    /// # Errors
    /// The method cannot be loaded: an operator or backend is missing, or the file is malformed.
    pub fn memory_report(&self, method: &str) -> Result<MemoryReport, Error> {
        self.environment().memory_report(method, Machine::Here)
    }

    /// As [`memory_report`](Self::memory_report), for another machine with one thread. For a
    /// program that [runs as exported](crate::RunOn::AsExported), without delegates, the firmware
    /// on that machine reports the same sizes.
    ///
    /// ```
    /// use torchlet::{Machine, Module, PointerWidth, RunOn};
    ///
    /// let builder = Module::builder().run_on(RunOn::AsExported);
    /// let digits = builder.load("tests/fixtures/digits/digits.pte")?;
    /// let cortex_m = Machine::Scalar(PointerWidth::Bits32);
    /// println!("{} bytes", digits.memory_report_on("forward", cortex_m)?.total());
    /// # Ok::<(), torchlet::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`memory_report`](Self::memory_report).
    pub fn memory_report_on(&self, method: &str, machine: Machine) -> Result<MemoryReport, Error> {
        self.environment().memory_report(method, machine)
    }

    /// Loads a method if it is not loaded yet.
    ///
    /// # Errors
    /// The method does not exist, an operator or backend is missing, a limit is exceeded, or the
    /// file is malformed.
    pub fn load_method(&mut self, method: &str) -> Result<(), Error> {
        self.method(method).map(|_| ())
    }

    /// Whether a method is loaded.
    pub fn is_method_loaded(&self, method: &str) -> bool {
        self.find(method).is_some()
    }

    /// Index of the method's group, and its index in that group.
    fn find(&self, method: &str) -> Option<(usize, usize)> {
        let groups = self.groups.iter().enumerate();
        groups.filter_map(|(group, methods)| Some((group, methods.position(0, method)?))).next()
    }

    /// Returns a method to set inputs in place, run it, and read outputs without copies. Loads it
    /// first if needed.
    ///
    /// # Errors
    /// As [`load_method`](Self::load_method).
    pub fn method(&mut self, method: &str) -> Result<Method<'_>, Error> {
        let (group, index) = match self.find(method) {
            Some(found) => found,
            None => {
                let group = self.load_group(method)?;
                let index = group.position(0, method).unwrap_or(0);
                self.groups.push(group);
                (self.groups.len() - 1, index)
            }
        };
        Ok(Method::new(&mut self.groups[group], index))
    }

    /// Loads a method, and the methods that share state with it.
    fn load_group(&self, method: &str) -> Result<Group, Error> {
        let names = self.environment().companions(method)?;
        Group::load(self.requests(0, names))
    }

    /// Load requests for methods of this module, which has index `module` in its group.
    fn requests(&self, module: usize, names: Vec<String>) -> Vec<Request> {
        let request = |name: String| Request {
            module,
            setting: self.setting.clone(),
            options: self.options.get(&name).cloned().unwrap_or_default(),
            name,
        };
        names.into_iter().map(request).collect()
    }

    /// Runs the method named `forward`.
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub fn forward(&mut self, inputs: impl Inputs) -> Result<Vec<Value>, Error> {
        self.execute(FORWARD, inputs)
    }

    /// Runs a method. Inputs that are missing or [`Value::None`] keep the value that was
    /// [set](Self::set_input) before.
    ///
    /// Tensors must have the exported dtype, and the exported shape or one within the exported
    /// bounds. Any memory layout is accepted.
    ///
    /// # Errors
    /// The method cannot be loaded, an input does not fit, or the method failed while running.
    pub fn execute(&mut self, method: &str, inputs: impl Inputs) -> Result<Vec<Value>, Error> {
        let values = inputs.into_values();
        self.method(method)?.execute(&values)
    }

    /// Sets an input of a method for all later calls, until it is set to [`Value::None`].
    ///
    /// # Errors
    /// The method cannot be loaded, or has no such input.
    pub fn set_input(
        &mut self,
        method: &str,
        index: usize,
        value: impl Into<Value>,
    ) -> Result<(), Error> {
        self.method(method)?.preset_input(index, value.into())
    }

    /// Restores the initial values of a method's [state](Self#state), such as caches and other
    /// mutable buffers. Inputs that were [set](Self::set_input) stay set. State shared between
    /// methods is reset for all of them.
    ///
    /// # Errors
    /// A delegate failed.
    pub fn reset(&mut self, method: &str) -> Result<(), Error> {
        match self.is_method_loaded(method) {
            true => self.method(method)?.reset(),
            false => self.method_meta(method).map(|_| ()),
        }
    }

    /// Unloads a method with its state, and the methods that share its state. Returns whether it
    /// was loaded.
    pub fn unload(&mut self, method: &str) -> bool {
        let found = self.find(method);
        if let Some((group, _)) = found {
            self.groups.remove(group);
        }
        found.is_some()
    }

    /// Number of threads that kernels use.
    pub fn threads(&self) -> usize {
        self.environment().threads().used()
    }

    /// Limits the threads that kernels of this module, and of modules that [share](Self::share) its
    /// files, use from the next operator call on. Returns the resulting number: at least one, and
    /// at most the number that the module was [built with](ModuleBuilder::threads).
    ///
    /// Results stay bit-identical. [Caller-provided](ModuleBuilder::parallel) threads are not
    /// limited.
    pub fn set_threads(&self, threads: usize) -> usize {
        self.environment().threads().limit(threads)
    }

    /// Memory in use on devices by all delegates of this module's backends, including those of
    /// other modules on the same devices.
    pub fn device_memory(&self) -> DeviceMemory {
        self.environment().device_memory()
    }

    /// The tracer that was set when the module was built.
    pub fn event_tracer(&self) -> Option<&Arc<dyn EventTracer + Send + Sync>> {
        self.environment().tracer.as_ref()
    }
}

impl std::fmt::Debug for Module {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Module")
            .field("methods", &self.method_names().unwrap_or_default())
            .field("loaded", &self.groups.iter().flat_map(Group::names).collect::<Vec<_>>())
            .finish()
    }
}
