//! Training checkpoints: parameters and optimiser state in one file.

use super::{Layout, Optimizer, OptimizerState, TrainingModule, untrainable};
use crate::error::{Error, TensorError};
use crate::module::state::{file, fits};
use crate::tensor::Tensor;
use std::collections::BTreeMap;
use torchlet_core::ScalarType;

/// Entry for the step count of an optimiser.
const STEP: &str = "step";

impl TrainingModule {
    /// Saves a method's parameters and the optimiser state as a
    /// [safetensors](https://huggingface.co/docs/safetensors) file.
    ///
    /// A parameter has its name in the model, as `model.0.weight`. Its optimiser state has
    /// PyTorch's name appended, as `model.0.weight/exp_avg`. Hyperparameters are not saved.
    ///
    /// ```
    /// # use torchlet::training::{Adam, AdamOptions, TrainingModule};
    /// # use torchlet::Tensor;
    /// # let model = "tests/fixtures/training/layers.pte";
    /// # let images = Tensor::randn(torchlet::ScalarType::Float, &[4, 5], 1)?;
    /// # let labels = Tensor::from_slice(&[4], &[0i64, 1, 2, 1])?;
    /// let mut module = TrainingModule::load(model)?;
    /// let mut optimizer = Adam::new(AdamOptions::adamw());
    /// module.execute_forward_backward("forward", [&images, &labels])?;
    /// module.step("forward", &mut optimizer)?;
    /// let saved = module.save_training("forward", &optimizer)?;
    ///
    /// // Later, or in another process:
    /// let mut module = TrainingModule::load(model)?;
    /// let mut optimizer = Adam::new(AdamOptions::adamw());
    /// module.load_training("forward", &mut optimizer, &saved)?;
    /// # assert_eq!(module.save_training("forward", &optimizer)?, saved);
    /// # Ok::<(), torchlet::Error>(())
    /// ```
    ///
    /// # Errors
    /// The method computes no gradients, or memory is exhausted.
    pub fn save_training(
        &mut self,
        method: &str,
        optimizer: &impl Optimizer,
    ) -> Result<Vec<u8>, Error> {
        let mut tensors = Vec::new();
        for (name, parameter) in self.named_parameters(method)? {
            let OptimizerState { steps, elements } = optimizer.state(&name);
            if let Some(steps) = steps {
                tensors.push((format!("{name}/{STEP}"), Tensor::scalar(steps)?));
            }
            for (what, numbers) in elements {
                tensors.push((format!("{name}/{what}"), like(&parameter, &numbers)?));
            }
            tensors.push((name, parameter.to_contiguous()?));
        }
        file::write(&tensors)
    }

    /// Resumes from the result of [`save_training`](Self::save_training): replaces the parameters
    /// and the optimiser state. If any tensor does not fit, nothing is changed. Optimiser state
    /// that is not in the file is cleared.
    ///
    /// # Errors
    /// The bytes are not a safetensors file, or its tensors differ from those of the method and the
    /// optimiser in name, dtype or shape.
    pub fn load_training<O: Optimizer + Clone>(
        &mut self,
        method: &str,
        optimizer: &mut O,
        bytes: &[u8],
    ) -> Result<(), Error> {
        let mut found = file::read(bytes)?;
        let known = self.named_parameters(method)?;
        // A parameter's name may be a prefix of another.
        let new: Vec<_> = known.iter().map(|(name, _)| found.remove(name)).collect();
        let mut missing = Vec::new();
        let mut remembering = optimizer.clone();
        let mut fitting = Vec::new();
        for ((name, parameter), new) in known.iter().zip(new) {
            let Some(new) = new else {
                missing.push(name.clone());
                continue;
            };
            fits(parameter.info(), new.info()).map_err(|source| Error::State {
                method: method.into(),
                tensor: name.clone(),
                source,
            })?;
            let own: Vec<String> =
                found.keys().filter(|key| part(key, name).is_some()).cloned().collect();
            let own = own.into_iter().filter_map(|key| found.remove_entry(&key));
            let state = memory_of(name, parameter, own.collect())
                .and_then(|state| remembering.load_state(name, parameter.numel(), state));
            state.map_err(|what| {
                untrainable(method, format!("optimizer state of {name}: {what}"))
            })?;
            fitting.push(new);
        }
        if !missing.is_empty() || !found.is_empty() {
            return Err(Error::StateNames { missing, unknown: found.into_keys().collect() });
        }
        let values = self.layout(method)?.parameters.clone();
        let mut loaded = self.module.method(method)?;
        for (value, new) in values.into_iter().zip(fitting) {
            loaded.write_state(value, &new)?;
        }
        *optimizer = remembering;
        // Gradients of the previous parameters are stale.
        self.layout(method).map(|layout: &mut Layout| layout.has_run = false)
    }
}

/// The part of a key after the parameter's name and a slash.
fn part<'k>(key: &'k str, name: &str) -> Option<&'k str> {
    key.strip_prefix(name)?.strip_prefix('/').filter(|what| !what.contains('/'))
}

/// Tensor with the shape of a parameter, in row-major order, from values in the parameter's memory
/// order.
fn like(parameter: &Tensor, numbers: &[f32]) -> Result<Tensor, Error> {
    let mut tensor = parameter.clone();
    let state = tensor.memory_mut::<f32>()?;
    if state.len() != numbers.len() {
        let (expected, found) = (parameter.shape().to_vec(), vec![numbers.len()]);
        return Err(TensorError::OtherShape { expected, found }.into());
    }
    state.copy_from_slice(numbers);
    tensor.to_contiguous()
}

/// Optimiser state of a parameter, from the tensors of a file that belong to it.
fn memory_of(
    name: &str,
    parameter: &Tensor,
    tensors: BTreeMap<String, Tensor>,
) -> Result<OptimizerState, String> {
    let mut state = OptimizerState::default();
    for (key, tensor) in tensors {
        let what = part(&key, name).unwrap_or(&key);
        let wrong = || {
            let expected =
                if what == STEP { "one int64" } else { "float32 in the parameter's shape" };
            let (dtype, shape) = (tensor.scalar_type(), tensor.shape());
            format!("{what}: expected {expected}, found {dtype} {shape:?}")
        };
        if what == STEP {
            state.steps = Some(tensor.item::<i64>().map_err(|_| wrong())?);
            continue;
        }
        let fits = tensor.scalar_type() == ScalarType::Float && tensor.shape() == parameter.shape();
        let placed = if fits { tensor.to_dim_order(parameter.dim_order()).ok() } else { None };
        let placed = placed.ok_or_else(wrong)?;
        let numbers = placed.memory::<f32>().map_err(|_| wrong())?.to_vec();
        state.elements.insert(what.into(), numbers);
    }
    Ok(state)
}
