//! [`ModuleGroup`]: modules that share one allocation for activations.

use super::group::Group;
use super::{FORWARD, Method, Module};
use crate::error::Error;
use crate::value::{Inputs, Value};

/// Several modules that share one allocation for activations and scratch, as large as the largest
/// of their methods needs.
///
/// One method runs at a time, which the borrow checker enforces. All methods are loaded when the
/// group is created. An output that [`Method::output`] borrows in place is valid until another
/// method runs. Each module keeps its settings: threads, limits, tracers,
/// [cancellers](Module::canceller).
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
/// Modules that keep [state](Module#state) in planned memory are rejected, because other modules
/// would overwrite it.
pub struct ModuleGroup {
    modules: Vec<Module>,
    group: Group,
}

impl ModuleGroup {
    /// Loads all methods of `modules` into shared memory. Methods that were loaded before are
    /// unloaded.
    ///
    /// # Errors
    /// A method cannot be loaded, or a module keeps state that others would overwrite.
    pub fn load(modules: Vec<Module>) -> Result<Self, Error> {
        let mut modules = modules;
        let mut requests = Vec::new();
        for (index, module) in modules.iter_mut().enumerate() {
            module.groups.clear();
            requests.extend(module.requests(index, module.method_names()?));
        }
        Ok(ModuleGroup { group: Group::load(requests)?, modules })
    }

    /// The modules, in the given order, for inspection. Their methods are loaded in this group.
    pub fn modules(&self) -> &[Module] {
        &self.modules
    }

    /// Method of the module at index `module`.
    ///
    /// # Errors
    /// The module or the method does not exist.
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
    /// As there, or the module does not exist.
    pub fn forward(&mut self, module: usize, inputs: impl Inputs) -> Result<Vec<Value>, Error> {
        self.execute(module, FORWARD, inputs)
    }

    /// Runs a method of a module, as [`Module::execute`].
    ///
    /// # Errors
    /// As there, or the module does not exist.
    pub fn execute(
        &mut self,
        module: usize,
        method: &str,
        inputs: impl Inputs,
    ) -> Result<Vec<Value>, Error> {
        self.method(module, method)?.execute(&inputs.into_values())
    }

    /// Bytes of the memory that the methods share.
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
