//! `Module`: a program file, ready to call.

mod builder;
mod environment;
mod method;
mod signature;

pub use builder::{DEFAULT_MEMORY_LIMIT, ModuleBuilder};
pub use environment::BackendOptionValue;
pub use method::{MemoryReport, Method};

use crate::error::Error;
use crate::value::{Inputs, Value};
use environment::Environment;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use torchlet_core::{BundledProgram, DataMap, DeviceMemory, EventTracer, MethodMeta, Program};

/// The method that [`Module::forward`] runs.
const FORWARD: &str = "forward";

/// A program and its loaded methods.
///
/// [`load`](Module::load) opens and checks the file. A method is loaded (its operators resolved, its memory allocated)
/// when it is first called, or by [`load_method`](Module::load_method).
///
/// A module runs one call at a time. To run a program on several threads at once, give each a module of its own with
/// [`share`](Module::share): the file is opened once, while methods and their state are separate.
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
pub struct Module {
    environment: Arc<Environment>,
    methods: BTreeMap<String, Method>,
}

const _: () = {
    const fn send<T: Send>() {}
    send::<Module>();
};

impl Module {
    /// Opens a program: a `.pte`, or a `.bpte` with test cases around one. The file is mapped into memory and must
    /// not change while it is used, see [`FileAccess::Map`](crate::FileAccess::Map).
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
        Module { environment: Arc::new(environment), methods: BTreeMap::new() }
    }

    /// Another module over the same opened files, with the same settings and no method loaded.
    #[must_use]
    pub fn share(&self) -> Module {
        Module { environment: self.environment.clone(), methods: BTreeMap::new() }
    }

    /// The program, for all that core tells of it.
    pub fn program(&self) -> Program<'_> {
        self.environment.program.program()
    }

    /// The test cases, if the file is a `.bpte`.
    pub fn bundled(&self) -> Option<BundledProgram<'_>> {
        self.environment.program.bundled()
    }

    /// The external data.
    pub fn data(&self) -> &[DataMap<'_>] {
        self.environment.program.data()
    }

    /// Bytes of the file that the program came from, the test cases of a `.bpte` included.
    pub fn file_size(&self) -> usize {
        self.environment.program.file_size()
    }

    /// Names of the methods, in the order of the file.
    ///
    /// # Errors
    /// The file is malformed.
    pub fn method_names(&self) -> Result<Vec<String>, Error> {
        self.environment.method_names()
    }

    /// What a method takes, gives and uses.
    ///
    /// # Errors
    /// There is no such method, or the file is malformed.
    pub fn method_meta(&self, method: &str) -> Result<MethodMeta<'_>, Error> {
        self.environment.method_meta(method)
    }

    /// The memory that loading a method takes, to the byte. The method is not loaded for it.
    ///
    /// # Errors
    /// It could not be loaded: something is missing or malformed.
    pub fn memory_report(&self, method: &str) -> Result<MemoryReport, Error> {
        self.environment.memory_report(method)
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
        self.methods.contains_key(method)
    }

    /// A method, loaded if it was not: to set inputs in place, run, and read outputs without copies.
    ///
    /// # Errors
    /// As [`load_method`](Self::load_method).
    pub fn method(&mut self, method: &str) -> Result<&mut Method, Error> {
        if !self.methods.contains_key(method) {
            let loaded = Method::load(&self.environment, method)?;
            self.methods.insert(method.into(), loaded);
        }
        match self.methods.get_mut(method) {
            Some(method) => Ok(method),
            None => unreachable!("the method was loaded just now"),
        }
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
    /// Tensors must have the exported type and shape (or one within the exported bounds); their memory layout may
    /// be any.
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

    /// Gives a method's state its initial values again, such as buffers that it writes and caches. Inputs stay
    /// [set](Self::set_input).
    ///
    /// # Errors
    /// A delegate failed.
    pub fn reset(&mut self, method: &str) -> Result<(), Error> {
        match self.methods.get_mut(method) {
            Some(method) => method.reset(),
            None => self.method_meta(method).map(|_| ()),
        }
    }

    /// Frees a loaded method, with its state. Returns whether it was loaded.
    pub fn unload(&mut self, method: &str) -> bool {
        self.methods.remove(method).is_some()
    }

    /// The number of threads that kernels use.
    pub fn threads(&self) -> usize {
        self.environment.parallel().threads()
    }

    /// The memory on devices that all delegates of this module's backends use, those of other modules on the same devices
    /// included.
    pub fn device_memory(&self) -> DeviceMemory {
        let backends = self.environment.registry.borrow_owner().backends.iter();
        backends.filter_map(|backend| backend.device_memory()).fold(
            DeviceMemory::default(),
            |sum, memory| {
                let used = sum.used.saturating_add(memory.used);
                DeviceMemory::new(used, sum.peak.saturating_add(memory.peak))
            },
        )
    }

    /// The tracer that was set when the module was built.
    pub fn event_tracer(&self) -> Option<&Arc<dyn EventTracer + Send + Sync>> {
        self.environment.tracer.as_ref()
    }
}

impl std::fmt::Debug for Module {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Module")
            .field("methods", &self.method_names().unwrap_or_default())
            .field("loaded", &self.methods.keys())
            .finish()
    }
}
