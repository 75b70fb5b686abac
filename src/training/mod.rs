//! On-device training: programs that compute gradients, and [optimisers](Optimizer) that update
//! their parameters.
//!
//! A model whose `forward` returns a loss first is exported with
//! `torch.export.experimental._export_forward_backward`, as for ExecuTorch's training module. Its
//! outputs are those of the model, then the gradients, then the parameters, which are state of the
//! method. Three more methods (`__et_training_gradients_index_forward`, `…parameters_index_…`,
//! `…fqn_…`) return the indices of the first gradient and the first parameter, and the parameter
//! names (ExecuTorch: `extension/training/module/training_module.cpp`).
//!
//! ```
//! use torchlet::training::{Sgd, SgdOptions, TrainingModule};
//! use torchlet::{ScalarType, Tensor, Value};
//!
//! let mut module = TrainingModule::load("tests/fixtures/training/layers.pte")?;
//! let mut optimizer = Sgd::new(SgdOptions { lr: 0.1, momentum: 0.9, ..SgdOptions::default() });
//! let images = Tensor::randn(ScalarType::Float, &[4, 5], 1)?;
//! let labels = Tensor::from_slice(&[4], &[0i64, 1, 2, 1])?;
//! let mut losses = Vec::new();
//! for _ in 0..20 {
//!     let outputs = module.execute_forward_backward("forward", [&images, &labels])?;
//!     losses.push(outputs[0].tensor()?.item::<f32>()?);
//!     module.step("forward", &mut optimizer)?;
//! }
//! assert!(losses[19] < losses[0]);
//! # Ok::<(), torchlet::Error>(())
//! ```
//!
//! Parameters must be `float32`. They stay in the module between steps;
//! [`TrainingModule::named_parameters`] copies them. `TrainingModule::save_training` saves them
//! with the optimiser state, so that training can resume later.

#[cfg(feature = "safetensors")]
mod checkpoint;
mod optimizer;

pub use optimizer::{Adam, AdamOptions, Optimizer, OptimizerState, Sgd, SgdOptions};

use crate::error::{Error, TensorError};
use crate::module::Module;
use crate::processor::RunOn;
use crate::tensor::Tensor;
use crate::value::{Inputs, Value};
use std::collections::BTreeMap;
use std::path::Path;
use torchlet_core::{ScalarType, ValueRef};

/// A module with methods that compute gradients.
#[derive(Debug)]
pub struct TrainingModule {
    module: Module,
    methods: BTreeMap<String, Layout>,
}

/// Roles of a method's outputs.
#[derive(Debug)]
struct Layout {
    /// Parameter names, in the order of the gradients.
    names: Vec<String>,
    first_gradient: usize,
    /// Value index of each parameter in the method's state.
    parameters: Vec<usize>,
    /// Whether the last run succeeded, so that the gradients are valid.
    has_run: bool,
}

impl TrainingModule {
    /// Opens a program to run on the CPU.
    ///
    /// # Errors
    /// As [`Module::load`].
    pub fn load(path: impl AsRef<Path>) -> Result<Self, Error> {
        Ok(Self::new(Module::builder().run_on(RunOn::Cpu).load(path)?))
    }

    /// Wraps a module, which must run on the CPU: state on a GPU has no names.
    pub fn new(module: Module) -> Self {
        TrainingModule { module, methods: BTreeMap::new() }
    }

    /// Returns the module with the trained parameters.
    pub fn into_module(self) -> Module {
        self.module
    }

    /// The module.
    pub fn module(&self) -> &Module {
        &self.module
    }

    /// Runs a method, and returns the outputs of the model. The first one is the loss. Gradients
    /// and parameters stay in the module.
    ///
    /// # Errors
    /// As [`Module::execute`], or the method computes no gradients.
    pub fn execute_forward_backward(
        &mut self,
        method: &str,
        inputs: impl Inputs,
    ) -> Result<Vec<Value>, Error> {
        let layout = self.layout(method)?;
        let own = layout.first_gradient;
        // A failed run leaves no valid gradients.
        layout.has_run = false;
        let mut loaded = self.module.method(method)?;
        loaded.execute_in_place(&inputs.into_values())?;
        let outputs = (0..own).map(|index| loaded.output_value(index)).collect();
        self.layout(method)?.has_run = true;
        outputs
    }

    /// Copies the parameters of a method, with their names in the model.
    ///
    /// # Errors
    /// The method cannot be loaded, or computes no gradients.
    pub fn named_parameters(&mut self, method: &str) -> Result<Vec<(String, Tensor)>, Error> {
        let layout = self.layout(method)?;
        let (names, values) = (layout.names.clone(), layout.parameters.clone());
        let method = self.module.method(method)?;
        let tensors = values.into_iter().map(|value| method.read_state(value));
        names.into_iter().zip(tensors).map(|(name, tensor)| Ok((name, tensor?))).collect()
    }

    /// Overwrites a parameter.
    ///
    /// # Errors
    /// No parameter has this name, or it has another dtype or shape.
    pub fn set_parameter(
        &mut self,
        method: &str,
        name: &str,
        tensor: &Tensor,
    ) -> Result<(), Error> {
        let layout = self.layout(method)?;
        let found = layout.names.iter().zip(&layout.parameters).find(|(own, _)| *own == name);
        let Some((_, value)) = found else {
            return Err(Error::StateNames {
                missing: Vec::new(),
                unknown: vec![format!("{method}/{name}")],
            });
        };
        let value = *value;
        self.module.method(method)?.write_state(value, tensor)
    }

    /// Copies the gradients of the last run, with the names of their parameters.
    ///
    /// # Errors
    /// The method did not run yet, or computes no gradients.
    pub fn named_gradients(&mut self, method: &str) -> Result<Vec<(String, Tensor)>, Error> {
        let (names, first) = self.gradients(method)?;
        let method = self.module.method(method)?;
        let tensor = |(index, name): (usize, String)| match method.output(first + index)? {
            ValueRef::Tensor(tensor) => Ok((name, Tensor::try_from(&tensor)?)),
            _ => Err(untrainable(
                method.name(),
                format!("the gradient of {name}: expected a tensor"),
            )),
        };
        names.into_iter().enumerate().map(tensor).collect()
    }

    /// Updates each parameter of a method from its gradient of the last run.
    ///
    /// # Errors
    /// The method did not run yet, or a parameter is not `float32`. Preceding parameters are
    /// already updated then.
    pub fn step(&mut self, method: &str, optimizer: &mut impl Optimizer) -> Result<(), Error> {
        let gradients = self.named_gradients(method)?;
        let values = self.layout(method)?.parameters.clone();
        let mut method = self.module.method(method)?;
        for ((name, gradient), value) in gradients.into_iter().zip(values) {
            let mut parameter = method.read_state(value)?;
            for scalar_type in [parameter.scalar_type(), gradient.scalar_type()] {
                if scalar_type != ScalarType::Float {
                    let operation = "training";
                    return Err(TensorError::Unsupported { scalar_type, operation }.into());
                }
            }
            if parameter.shape() != gradient.shape() {
                let (expected, found) = (parameter.shape().to_vec(), gradient.shape().to_vec());
                return Err(TensorError::OtherShape { expected, found }.into());
            }
            let gradient = gradient.to_dim_order(parameter.dim_order())?;
            optimizer.update(&name, parameter.memory_mut()?, gradient.memory()?);
            method.write_state(value, &parameter)?;
        }
        Ok(())
    }

    /// Names of the parameters, and the output index of the first gradient.
    fn gradients(&mut self, method: &str) -> Result<(Vec<String>, usize), Error> {
        let layout = self.layout(method)?;
        match layout.has_run {
            true => Ok((layout.names.clone(), layout.first_gradient)),
            false => Err(untrainable(method, "no gradients; run the method first".into())),
        }
    }

    fn layout(&mut self, method: &str) -> Result<&mut Layout, Error> {
        if !self.methods.contains_key(method) {
            let layout = Layout::of(&mut self.module, method)?;
            self.methods.insert(method.into(), layout);
        }
        self.methods.get_mut(method).ok_or_else(|| untrainable(method, String::new()))
    }
}

fn untrainable(method: &str, reason: String) -> Error {
    Error::NotTrainable { method: method.into(), reason }
}

impl Layout {
    fn of(module: &mut Module, method: &str) -> Result<Self, Error> {
        // Loading reports a missing method by its name, before the helper methods are looked up.
        module.method(method)?;
        let known = module.method_names()?;
        let beside = |what: &str| format!("__et_training_{what}_{method}");
        if let Some(missing) = ["gradients_index", "parameters_index", "fqn"]
            .map(beside)
            .into_iter()
            .find(|name| !known.contains(name))
        {
            let how = "export it with torch.export.experimental._export_forward_backward";
            return Err(untrainable(method, format!("the program has no method {missing}; {how}")));
        }
        let mut index = |what: &str| {
            let outputs = module.execute(&beside(what), ())?;
            let index = match outputs.first() {
                Some(Value::Int(index)) => usize::try_from(*index).ok(),
                _ => None,
            };
            index.ok_or_else(|| {
                untrainable(
                    method,
                    format!("expected an index from {}; export the program again", beside(what)),
                )
            })
        };
        let (first_gradient, first_parameter) =
            (index("gradients_index")?, index("parameters_index")?);
        let names = module.execute(&beside("fqn"), ())?.into_iter().map(|name| match name {
            Value::String(name) => Ok(name),
            _ => Err(untrainable(
                method,
                format!(
                    "expected parameter names from {}; export the program again",
                    beside("fqn")
                ),
            )),
        });
        let names = names.collect::<Result<Vec<String>, Error>>()?;
        let loaded = module.method(method)?;
        let count = loaded.output_count();
        let fits = first_gradient.checked_add(names.len()) == Some(first_parameter)
            && first_parameter.checked_add(names.len()) == Some(count);
        if !fits {
            let found = format!(
                "expected outputs that end with a gradient and a parameter per name, found {count} \
                 outputs, gradients from {first_gradient}, parameters from {first_parameter} and \
                 {} names",
                names.len()
            );
            return Err(untrainable(method, found));
        }
        let state = loaded.state()?;
        let parameter = |(number, name): (usize, &String)| {
            let value = loaded.output_value_index(first_parameter + number)?;
            let kept = value.filter(|value| state.iter().any(|state| state.value == *value));
            kept.ok_or_else(|| {
                let what = "is not accessible; run the module on the CPU, or as exported";
                untrainable(method, format!("the parameter {name} {what}"))
            })
        };
        let parameters = names.iter().enumerate().map(parameter).collect::<Result<_, _>>()?;
        Ok(Layout { names, first_gradient, parameters, has_run: false })
    }
}
