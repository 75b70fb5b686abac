//! Modules that use one memory for activations.

use super::group::Group;
use super::{FORWARD, Method, Module};
use crate::error::Error;
use crate::value::{Inputs, Value};

/// Several modules that use one memory for activations and scratch in turn, as large as the largest
/// of their methods needs it.
///
/// It runs one method at a time, which the borrow checker sees to. All methods are loaded when the
/// group is made. What [`Method::output`] shows in place lasts until another method runs. Each
/// module keeps its settings: threads, limits, tracers, [cancellers](Module::canceller).
///
/// ```
/// use torchlet::{Module, ModuleGroup, Tensor};
///
/// let digits = Module::load("tests/fixtures/digits/digits.pte")?;
/// let halves = Module::load("tests/fixtures/digits/digits_half.bpte")?;
/// let mut group = ModuleGroup::load(vec![digits, halves])?;
/// let image = Tensor::from_slice(&[1, 1, 8, 8], &[0.5f32; 64])?;
/// let outputs = group.forward(0, &image)?;
/// println!("{}", outputs[0]);
/// # Ok::<(), torchlet::Error>(())
/// ```
///
/// Modules that keep [state](Module#state) in planned memory are refused, since the others would
/// run over it.
pub struct ModuleGroup {
    modules: Vec<Module>,
    group: Group,
}

impl ModuleGroup {
    /// Loads all methods of these modules into one memory. Methods that a module had loaded before
    /// are unloaded.
    ///
    /// # Errors
    /// A method cannot be loaded, or one keeps state that others would run over.
    pub fn load(modules: Vec<Module>) -> Result<Self, Error> {
        let mut modules = modules;
        let mut requests = Vec::new();
        for (index, module) in modules.iter_mut().enumerate() {
            module.groups.clear();
            requests.extend(module.requests(index, module.method_names()?));
        }
        Ok(ModuleGroup { group: Group::load(requests)?, modules })
    }

    /// The modules, in the order in which they were given, for what can be asked of them. Their
    /// methods are loaded here.
    pub fn modules(&self) -> &[Module] {
        &self.modules
    }

    /// A method of a module, which is told by its index.
    ///
    /// # Errors
    /// There is no such method, or no such module.
    pub fn method(&mut self, module: usize, method: &str) -> Result<Method<'_>, Error> {
        let index = self.group.position(module, method).ok_or_else(|| {
            let names = self.modules.get(module).map(Module::method_names);
            let available = names.and_then(Result::ok).unwrap_or_default();
            Error::NoSuchMethod { method: method.into(), available }
        })?;
        Ok(Method::new(&mut self.group, index))
    }

    /// Runs the method `forward` of a module, as [`Module::forward`].
    ///
    /// # Errors
    /// As there, or there is no such module.
    pub fn forward(&mut self, module: usize, inputs: impl Inputs) -> Result<Vec<Value>, Error> {
        self.execute(module, FORWARD, inputs)
    }

    /// Runs a method of a module, as [`Module::execute`].
    ///
    /// # Errors
    /// As there, or there is no such module.
    pub fn execute(
        &mut self,
        module: usize,
        method: &str,
        inputs: impl Inputs,
    ) -> Result<Vec<Value>, Error> {
        self.method(module, method)?.execute(&inputs.into_values())
    }

    /// Bytes of the memory that the methods use in turn.
    pub fn shared_bytes(&self) -> u64 {
        self.group.shared_bytes()
    }
}

impl std::fmt::Debug for ModuleGroup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModuleGroup")
            .field("modules", &self.modules)
            .field("shared_bytes", &self.shared_bytes())
            .finish_non_exhaustive()
    }
}
