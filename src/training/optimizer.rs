//! Optimisers, with the arithmetic and defaults of PyTorch.

use std::collections::BTreeMap;

/// Updates parameters from their gradients.
pub trait Optimizer {
    /// Updates a parameter. Its elements have the same order as those of the gradient. Optimiser
    /// state is stored under `name`.
    fn update(&mut self, name: &str, parameter: &mut [f32], gradient: &[f32]);

    /// Optimiser state of a parameter, which
    /// [`TrainingModule::save_training`](super::TrainingModule::save_training) writes. The default
    /// implementation returns empty state.
    fn state(&self, name: &str) -> OptimizerState {
        let _ = name;
        OptimizerState::default()
    }

    /// Replaces the optimiser state of a parameter with `elements` elements.
    ///
    /// # Errors
    /// The state does not belong to this kind of optimiser. The message explains the mismatch;
    /// nothing is changed.
    fn load_state(
        &mut self,
        name: &str,
        elements: usize,
        state: OptimizerState,
    ) -> Result<(), String> {
        let _ = (name, elements);
        if state == OptimizerState::default() {
            Ok(())
        } else {
            Err("expected no state: this optimizer keeps none".into())
        }
    }
}

/// Optimiser state of a parameter, with the names of PyTorch's optimisers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OptimizerState {
    /// `step`: number of steps, if the optimiser counts them.
    pub steps: Option<i64>,
    /// One value per element of the parameter, in the same order: `momentum_buffer`, `exp_avg` and
    /// so on.
    pub elements: BTreeMap<String, Vec<f32>>,
}

impl OptimizerState {
    /// Removes the entry `name`, if present, and checks its length.
    fn take(&mut self, name: &str, elements: usize) -> Result<Option<Vec<f32>>, String> {
        let Some(found) = self.elements.remove(name) else { return Ok(None) };
        match found.len() == elements {
            true => Ok(Some(found)),
            false => Err(format!("{name}: expected {elements} elements, found {}", found.len())),
        }
    }

    /// Checks that no entries are left.
    fn finish(self) -> Result<(), String> {
        match (self.elements.into_keys().next(), self.steps) {
            (Some(name), _) => Err(format!("unexpected entry {name}")),
            (None, Some(_)) => Err("unexpected entry step".into()),
            (None, None) => Ok(()),
        }
    }
}

/// State of [`Sgd`].
const MOMENTUM_BUFFER: &str = "momentum_buffer";
/// State of [`Adam`].
const MOMENTS: [&str; 3] = ["exp_avg", "exp_avg_sq", "max_exp_avg_sq"];

/// Hyperparameters of [`Sgd`], as in `torch.optim.SGD`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SgdOptions {
    /// Learning rate.
    pub lr: f64,
    /// Momentum factor: the weight of the previous direction.
    pub momentum: f64,
    /// Dampening of the gradient in the momentum update.
    pub dampening: f64,
    /// Weight decay (L2 penalty): the factor of the parameter added to its gradient.
    pub weight_decay: f64,
    /// Nesterov momentum. No effect if `momentum` is 0.
    pub nesterov: bool,
}

impl Default for SgdOptions {
    fn default() -> Self {
        SgdOptions { lr: 1e-3, momentum: 0.0, dampening: 0.0, weight_decay: 0.0, nesterov: false }
    }
}

/// Stochastic gradient descent.
#[derive(Debug, Clone)]
pub struct Sgd {
    /// Hyperparameters from the next step on.
    pub options: SgdOptions,
    /// Hyperparameters of individual parameters, by name.
    pub exceptions: BTreeMap<String, SgdOptions>,
    momentum_buffers: BTreeMap<String, Vec<f32>>,
}

impl Sgd {
    /// Creates an optimiser with the same hyperparameters for all parameters.
    pub fn new(options: SgdOptions) -> Self {
        Sgd { options, exceptions: BTreeMap::new(), momentum_buffers: BTreeMap::new() }
    }
}

impl Optimizer for Sgd {
    fn update(&mut self, name: &str, parameter: &mut [f32], gradient: &[f32]) {
        let SgdOptions { lr, momentum, dampening, weight_decay, nesterov } =
            self.exceptions.get(name).copied().unwrap_or(self.options);
        let [lr, momentum, joins, decay] =
            [lr, momentum, 1.0 - dampening, weight_decay].map(|number| number as f32);
        let decayed = |parameter: f32, gradient: f32| gradient + decay * parameter;
        if momentum == 0.0 {
            for (parameter, gradient) in parameter.iter_mut().zip(gradient) {
                *parameter -= lr * decayed(*parameter, *gradient);
            }
            return;
        }
        let known =
            self.momentum_buffers.get(name).is_some_and(|known| known.len() == parameter.len());
        if !known {
            // The first direction is the gradient, regardless of dampening.
            let first = parameter.iter().zip(gradient).map(|(p, g)| decayed(*p, *g)).collect();
            self.momentum_buffers.insert(name.into(), first);
        }
        let Some(momentum_buffers) = self.momentum_buffers.get_mut(name) else { return };
        for ((parameter, gradient), direction) in
            parameter.iter_mut().zip(gradient).zip(momentum_buffers)
        {
            let gradient = decayed(*parameter, *gradient);
            if known {
                *direction = momentum * *direction + joins * gradient;
            }
            *parameter -= lr * if nesterov { gradient + momentum * *direction } else { *direction };
        }
    }

    fn state(&self, name: &str) -> OptimizerState {
        let momentum_buffers = self.momentum_buffers.get(name);
        let elements =
            momentum_buffers.map(|known| (MOMENTUM_BUFFER.into(), known.clone())).into_iter();
        OptimizerState { steps: None, elements: elements.collect() }
    }

    fn load_state(
        &mut self,
        name: &str,
        elements: usize,
        mut state: OptimizerState,
    ) -> Result<(), String> {
        let momentum_buffers = state.take(MOMENTUM_BUFFER, elements)?;
        state.finish()?;
        match momentum_buffers {
            Some(momentum_buffers) => self.momentum_buffers.insert(name.into(), momentum_buffers),
            None => self.momentum_buffers.remove(name),
        };
        Ok(())
    }
}

/// Hyperparameters of [`Adam`], as in `torch.optim.Adam` and `AdamW`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamOptions {
    /// Learning rate.
    pub lr: f64,
    /// Decay rates of the running means of the gradient and of its square.
    pub betas: [f64; 2],
    /// Added to the denominator for numerical stability.
    pub eps: f64,
    /// Weight decay: added to the gradient, or, if decoupled, subtracted from the parameter per
    /// unit of `lr`.
    pub weight_decay: f64,
    /// Whether weight decay is decoupled from the gradient, as in AdamW.
    pub decoupled: bool,
    /// Whether to divide by the maximum of the second moments so far (AMSGrad).
    pub amsgrad: bool,
}

impl AdamOptions {
    /// Defaults of `torch.optim.AdamW`.
    pub fn adamw() -> Self {
        AdamOptions { weight_decay: 1e-2, decoupled: true, ..Self::default() }
    }
}

impl Default for AdamOptions {
    /// Defaults of `torch.optim.Adam`.
    fn default() -> Self {
        AdamOptions {
            lr: 1e-3,
            betas: [0.9, 0.999],
            eps: 1e-8,
            weight_decay: 0.0,
            decoupled: false,
            amsgrad: false,
        }
    }
}

/// Adam and AdamW.
#[derive(Debug, Clone)]
pub struct Adam {
    /// Hyperparameters from the next step on.
    pub options: AdamOptions,
    /// Hyperparameters of individual parameters, by name.
    pub exceptions: BTreeMap<String, AdamOptions>,
    moments: BTreeMap<String, Moments>,
}

/// State of a parameter: the step count, and for each element the first and second moments and the
/// maximum second moment.
#[derive(Debug, Clone, Default)]
struct Moments {
    steps: i32,
    elements: Vec<[f32; 3]>,
}

impl Adam {
    /// Creates an optimiser with the same hyperparameters for all parameters.
    pub fn new(options: AdamOptions) -> Self {
        Adam { options, exceptions: BTreeMap::new(), moments: BTreeMap::new() }
    }
}

impl Optimizer for Adam {
    fn update(&mut self, name: &str, parameter: &mut [f32], gradient: &[f32]) {
        let options = self.exceptions.get(name).copied().unwrap_or(self.options);
        let AdamOptions { lr, betas, eps, weight_decay, decoupled, amsgrad } = options;
        let moments = self.moments.entry(name.into()).or_default();
        if moments.elements.len() != parameter.len() {
            *moments = Moments { steps: 0, elements: vec![[0.0; 3]; parameter.len()] };
        }
        moments.steps = moments.steps.saturating_add(1);
        let [first, second] = betas.map(|beta| 1.0 - beta.powi(moments.steps));
        let (rate, root) = ((lr / first) as f32, second.sqrt() as f32);
        let (kept, decay) = ((1.0 - lr * weight_decay) as f32, weight_decay as f32);
        let [new_mean, new_square] = betas.map(|beta| (1.0 - beta) as f32);
        let (square_kept, eps) = (betas[1] as f32, eps as f32);
        for ((parameter, gradient), [mean, square, largest]) in
            parameter.iter_mut().zip(gradient).zip(&mut moments.elements)
        {
            let mut gradient = *gradient;
            match decoupled {
                true => *parameter *= kept,
                false => gradient += decay * *parameter,
            }
            *mean += (gradient - *mean) * new_mean;
            *square = *square * square_kept + new_square * gradient * gradient;
            *largest = largest.max(*square);
            let spread = if amsgrad { *largest } else { *square };
            *parameter -= rate * *mean / (spread.sqrt() / root + eps);
        }
    }

    fn state(&self, name: &str) -> OptimizerState {
        let Some(moments) = self.moments.get(name) else { return OptimizerState::default() };
        let of = |at: usize| moments.elements.iter().map(|element| element[at]).collect();
        let elements = MOMENTS.iter().enumerate().map(|(at, name)| ((*name).into(), of(at)));
        OptimizerState { steps: Some(moments.steps.into()), elements: elements.collect() }
    }

    /// Missing maxima are set to zero: PyTorch saves them only with `amsgrad`.
    fn load_state(
        &mut self,
        name: &str,
        elements: usize,
        mut state: OptimizerState,
    ) -> Result<(), String> {
        if state == OptimizerState::default() {
            self.moments.remove(name);
            return Ok(());
        }
        let steps = state.steps.take().and_then(|steps| i32::try_from(steps).ok());
        let steps = steps
            .filter(|steps| *steps >= 0)
            .ok_or("step: expected a nonnegative 32-bit integer")?;
        let [means, squares, largest] = MOMENTS;
        let [Some(means), Some(squares)] =
            [state.take(means, elements)?, state.take(squares, elements)?]
        else {
            return Err(format!("{means} or {squares} is missing"));
        };
        let largest = state.take(largest, elements)?;
        state.finish()?;
        let largest = largest.into_iter().flatten().chain(std::iter::repeat(0.0));
        let mut moments = Vec::new();
        moments
            .try_reserve_exact(elements)
            .map_err(|_| format!("cannot allocate the moments of {elements} elements"))?;
        let each = means.into_iter().zip(squares).zip(largest);
        moments.extend(each.map(|((mean, square), largest)| [mean, square, largest]));
        self.moments.insert(name.into(), Moments { steps, elements: moments });
        Ok(())
    }
}
