//! `Module`: a program file, ready to call.

mod builder;
mod environment;
mod group;
mod method;
mod sharing;
mod signature;
pub(crate) mod state;
mod together;

pub use builder::{DEFAULT_MEMORY_LIMIT, ModuleBuilder};
pub use environment::BackendOptionValue;
pub(crate) use environment::SharedParallel;
pub use method::{MemoryReport, Method, MethodOptions};

use crate::error::Error;
use crate::processor::Origin;
use crate::value::{Inputs, Value};
pub use state::StateTensor;
pub use together::ModuleGroup;
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

/// The method that [`Module::forward`] runs.
const FORWARD: &str = "forward";

/// A program and its loaded methods.
///
/// [`load`](Module::load) opens and checks the file. A method is loaded (its operators resolved,
/// its memory allocated) when it is first called, or by [`load_method`](Module::load_method).
///
/// A module runs one call at a time. To run a program on several threads at once, give each a
/// module of its own with [`share`](Module::share): the file is opened once, while methods and
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
/// A method may keep tensors from call to call, such as caches of keys and values, and
/// [`reset`](Module::reset) gives them their first values again. Each method has state of its own,
/// with one exception: methods that were exported with ExecuTorch's `share_mutable_buffers` keep it
/// together, so that one reads what another wrote. Such methods are loaded and
/// [unloaded](Module::unload) together, and share the memory of all their tensors: what
/// [`Method::output`] shows in place lasts until another of them runs.
/// [`ModuleBuilder::share_state`] switches that off.
pub struct Module {
    setting: Setting,
    groups: Vec<Group>,
    options: BTreeMap<String, MethodOptions>,
}

/// Ends runs of a [`Module`] from another thread; made by [`Module::canceller`].
#[derive(Debug, Clone)]
pub struct Canceller(Arc<AtomicBool>);

impl Canceller {
    /// Ends the run in progress, if there is one, and all that follow, with an
    /// [error](torchlet_core::error::InstructionError::Cancelled), until [`resume`](Self::resume).
    /// State may be partly written then: [reset](Module::reset) the method if that matters.
    ///
    /// It usually ends within tens of milliseconds: most kernels and the CPU engine skip work that
    /// they have not begun, and a run on a GPU is not waited for. The GPU finishes what was
    /// submitted; the next run of the method waits for that. Operators that compute in one piece,
    /// such as sorting a single row, `unique` or the gradients of pooling, are finished first.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Lets methods run again.
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
    /// Opens a program: a `.pte`, or a `.bpte` with test cases around one. The file is read into
    /// memory; large ones are better [mapped](ModuleBuilder::file_access).
    ///
    /// # Errors
    /// The file cannot be read, or is not a program.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, Error> {
        Module::builder().load(path)
    }

    /// Opens a program that is in memory. The bytes are copied; see
    /// [`from_static`](ModuleBuilder::from_static) for bytes that need not be.
    ///
    /// # Errors
    /// The bytes are not those of a program.
    pub fn from_bytes(bytes: impl Into<Vec<u8>>) -> Result<Self, Error> {
        Module::builder().from_bytes(bytes)
    }

    /// For all that can be chosen: external data, threads, kernels, backends, limits, tracing.
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

    /// Another module over the same opened files, built with the same settings, with no method
    /// loaded and a [canceller](Self::canceller) of its own.
    #[must_use]
    pub fn share(&self) -> Module {
        Module::over(self.environment().clone())
    }

    /// A handle that ends runs of this module from another thread.
    pub fn canceller(&self) -> Canceller {
        Canceller(self.setting.cancel.clone())
    }

    /// Sets what a method is loaded with in place of what the module was built with, from its next
    /// loading on.
    ///
    /// # Errors
    /// There is no such method, or the file is malformed.
    pub fn set_method_options(
        &mut self,
        method: &str,
        options: MethodOptions,
    ) -> Result<(), Error> {
        self.method_meta(method)?;
        self.options.insert(method.into(), options);
        Ok(())
    }

    /// The program, for all that core tells of it.
    pub fn program(&self) -> Program<'_> {
        self.environment().program.program()
    }

    /// The test cases, if the file is a `.bpte`.
    pub fn bundled(&self) -> Option<BundledProgram<'_>> {
        self.environment().program.bundled()
    }

    /// The external data.
    pub fn data(&self) -> &[DataMap<'_>] {
        self.environment().program.data()
    }

    /// What became of the program's calls when it was compiled for what it [runs
    /// on](ModuleBuilder::run_on); `None` if it runs as it was exported.
    pub fn plan(&self) -> Option<&Report> {
        self.environment().program.report()
    }

    /// Where what methods are loaded from comes from: the file, the compiler, or its cache.
    pub fn origin(&self) -> &Origin {
        self.environment().program.origin()
    }

    /// Bytes of the file that the program came from, the test cases of a `.bpte` included.
    pub fn file_size(&self) -> u64 {
        self.environment().program.file_size()
    }

    /// Names of the methods, in the order of the file.
    ///
    /// # Errors
    /// The file is malformed.
    pub fn method_names(&self) -> Result<Vec<String>, Error> {
        self.environment().method_names()
    }

    /// What a method takes, gives and uses.
    ///
    /// # Errors
    /// There is no such method, or the file is malformed.
    pub fn method_meta(&self, method: &str) -> Result<MethodMeta<'_>, Error> {
        self.environment().method_meta(method)
    }

    /// The memory that loading a method takes, to the byte. The method is not loaded for it.
    ///
    /// # Errors
    /// It could not be loaded: something is missing or malformed.
    pub fn memory_report(&self, method: &str) -> Result<MemoryReport, Error> {
        self.environment().memory_report(method, Machine::Here)
    }

    /// The same on another machine, on one thread: for a program that is [run as it was
    /// exported](crate::RunOn::AsExported), and has no delegates, what firmware there will say.
    ///
    /// ```
    /// use torchlet::{Machine, Module, PointerWidth, RunOn};
    ///
    /// let digits = Module::builder().run_on(RunOn::AsExported).load("tests/fixtures/digits/digits.pte")?;
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

    /// Loads a method, unless it is loaded.
    ///
    /// # Errors
    /// What is wrong or missing.
    pub fn load_method(&mut self, method: &str) -> Result<(), Error> {
        self.method(method).map(|_| ())
    }

    /// Whether a method is loaded.
    pub fn is_method_loaded(&self, method: &str) -> bool {
        self.find(method).is_some()
    }

    /// The group that a method is in, and its place there.
    fn find(&self, method: &str) -> Option<(usize, usize)> {
        let groups = self.groups.iter().enumerate();
        groups.filter_map(|(group, methods)| Some((group, methods.position(0, method)?))).next()
    }

    /// A method, loaded if it was not: to set inputs in place, run, and read outputs without
    /// copies.
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

    /// Loads a method, and those that keep state together with it.
    fn load_group(&self, method: &str) -> Result<Group, Error> {
        let names = self.environment().companions(method)?;
        Group::load(self.requests(0, names))
    }

    /// What methods of this module, which is one of several, are to be loaded with.
    fn requests(&self, module: usize, names: Vec<String>) -> Vec<Request> {
        let request = |name: String| Request {
            module,
            setting: self.setting.clone(),
            options: self.options.get(&name).cloned().unwrap_or_default(),
            name,
        };
        names.into_iter().map(request).collect()
    }

    /// Runs the method `forward`.
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub fn forward(&mut self, inputs: impl Inputs) -> Result<Vec<Value>, Error> {
        self.execute(FORWARD, inputs)
    }

    /// Runs a method. Inputs that are not given, or are [`Value::None`], are those that were
    /// [set](Self::set_input) before.
    ///
    /// Tensors must have the exported type and shape (or one within the exported bounds); their
    /// memory layout may be any.
    ///
    /// # Errors
    /// The method cannot be loaded, an input does not fit, or the method failed while running.
    pub fn execute(&mut self, method: &str, inputs: impl Inputs) -> Result<Vec<Value>, Error> {
        let values = inputs.into_values();
        self.method(method)?.execute(&values)
    }

    /// Sets an input of a method for all calls to come, until it is set to [`Value::None`].
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

    /// Gives a method's [state](Self#state) its initial values again, such as buffers that it
    /// writes and caches. Inputs stay [set](Self::set_input). State that methods keep together is
    /// reset for all of them.
    ///
    /// # Errors
    /// A delegate failed.
    pub fn reset(&mut self, method: &str) -> Result<(), Error> {
        match self.is_method_loaded(method) {
            true => self.method(method)?.reset(),
            false => self.method_meta(method).map(|_| ()),
        }
    }

    /// Frees a loaded method, with its state, and the methods that keep it together with this one.
    /// Returns whether it was loaded.
    pub fn unload(&mut self, method: &str) -> bool {
        let found = self.find(method);
        if let Some((group, _)) = found {
            self.groups.remove(group);
        }
        found.is_some()
    }

    /// The number of threads that kernels use.
    pub fn threads(&self) -> usize {
        self.environment().threads().used()
    }

    /// Lets kernels of this module, and of those that [share](Self::share) its files, use so many
    /// threads from the next call of an operator on, and gives how many these are: at least one,
    /// and at most those that it was [built with](ModuleBuilder::threads). Results stay the same
    /// bit for bit. Threads that were [given](ModuleBuilder::parallel) are their owner's to limit,
    /// and stay as they are.
    pub fn set_threads(&self, threads: usize) -> usize {
        self.environment().threads().limit(threads)
    }

    /// The memory on devices that all delegates of this module's backends use, those of other
    /// modules on the same devices included.
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
