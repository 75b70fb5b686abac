//! Training that goes on another time: parameters, and what an optimiser remembers of them, as a
//! file.

use super::{Layout, Memory, Optimizer, TrainingModule, untrainable};
use crate::error::{Error, TensorError};
use crate::module::state::{file, fits};
use crate::tensor::Tensor;
use std::collections::BTreeMap;
use torchlet_core::ScalarType;

/// How many steps an optimiser took.
const STEP: &str = "step";

impl TrainingModule {
    /// What training has made so far of a method's parameters, and what the optimiser remembers of
    /// them: the contents of a [safetensors](https://huggingface.co/docs/safetensors) file, in
    /// which a parameter has its name in the model, as `model.0.weight`, and what is remembered of
    /// it the name that PyTorch has for that behind it, as `model.0.weight/exp_avg`.
    /// Hyperparameters are not in it.
    ///
    /// ```
    /// # use torchlet::training::{Adam, AdamOptions, TrainingModule};
    /// # use torchlet::Tensor;
    /// # let model = "tests/fixtures/training/layers.pte";
    /// # let (images, labels) = (Tensor::randn(torchlet::ScalarType::Float, &[4, 5], 1)?, Tensor::from_slice(&[4], &[0i64, 1, 2, 1])?);
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
    /// The method computes no gradients, or there is no memory.
    pub fn save_training(
        &mut self,
        method: &str,
        optimizer: &impl Optimizer,
    ) -> Result<Vec<u8>, Error> {
        let mut tensors = Vec::new();
        for (name, parameter) in self.named_parameters(method)? {
            let Memory { steps, elements } = optimizer.memory(&name);
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

    /// Goes on from what [`save_training`](Self::save_training) gave: the parameters become those
    /// of the file, and the optimiser remembers what it did then, all of it or, if something does
    /// not fit, nothing. A file without anything to remember leaves nothing remembered.
    ///
    /// # Errors
    /// The bytes are no such file, name other tensors than the method and the optimiser have, or
    /// some of another type or shape.
    pub fn load_training<O: Optimizer + Clone>(
        &mut self,
        method: &str,
        optimizer: &mut O,
        bytes: &[u8],
    ) -> Result<(), Error> {
        let mut found = file::read(bytes)?;
        let known = self.named_parameters(method)?;
        // Names may be the beginning of others.
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
            let memory = memory_of(name, parameter, own.collect())
                .and_then(|memory| remembering.remember(name, parameter.numel(), memory));
            memory.map_err(|what| {
                untrainable(method, format!("what is remembered of {name}: {what}"))
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
        // What was computed from other parameters is no gradient.
        self.layout(method).map(|layout: &mut Layout| layout.has_run = false)
    }
}

/// What a key says behind a parameter's name.
fn part<'k>(key: &'k str, name: &str) -> Option<&'k str> {
    key.strip_prefix(name)?.strip_prefix('/').filter(|what| !what.contains('/'))
}

/// Numbers that lie as a parameter's elements, as a tensor of its shape, in row-major order.
fn like(parameter: &Tensor, numbers: &[f32]) -> Result<Tensor, Error> {
    let mut tensor = parameter.clone();
    let memory = tensor.memory_mut::<f32>()?;
    if memory.len() != numbers.len() {
        let (expected, found) = (parameter.shape().to_vec(), vec![numbers.len()]);
        return Err(TensorError::OtherShape { expected, found }.into());
    }
    memory.copy_from_slice(numbers);
    tensor.to_contiguous()
}

/// What is to be remembered of a parameter, of the tensors of a file that have its name and another
/// behind it.
fn memory_of(
    name: &str,
    parameter: &Tensor,
    tensors: BTreeMap<String, Tensor>,
) -> Result<Memory, String> {
    let mut memory = Memory::default();
    for (key, tensor) in tensors {
        let what = part(&key, name).unwrap_or(&key);
        let wrong = || format!("{what} has another type or shape");
        if what == STEP {
            memory.steps = Some(tensor.item::<i64>().map_err(|_| wrong())?);
            continue;
        }
        let fits = tensor.scalar_type() == ScalarType::Float && tensor.shape() == parameter.shape();
        let placed = if fits { tensor.to_dim_order(parameter.dim_order()).ok() } else { None };
        let placed = placed.ok_or_else(wrong)?;
        let numbers = placed.memory::<f32>().map_err(|_| wrong())?.to_vec();
        memory.elements.insert(what.into(), numbers);
    }
    Ok(memory)
}
