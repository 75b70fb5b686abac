//! What calls compute for each element of a tensor, on their own or at the end of others.

use crate::tensors::Operand;
use torchlet_graph::graph::ValueId;
use torchlet_shaders::functions::unary;

/// What an element-wise operator computes: a function of the shaders, by its number, and what it
/// takes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Stage {
    /// A function of one tensor, with two parameters.
    Unary(u32, ValueId, [f64; 2]),
    /// A function of two operands; some multiply the second with a factor.
    Binary(u32, ValueId, Source, f64),
    /// The second operand where the first is not zero, else the third.
    Where([ValueId; 3]),
}

/// An operand.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Source {
    Tensor(ValueId),
    /// A number, which the call has as its second argument.
    Number(f64),
}

/// `activation(result + residual)`.
#[derive(Debug, Clone)]
pub(crate) struct Epilogue {
    /// The number of a function of one number in the shaders, and its parameters.
    pub(crate) activation: u32,
    pub(crate) a: f32,
    pub(crate) b: f32,
    pub(crate) residual: Option<Operand>,
}

impl Epilogue {
    /// A clamp. A clamp to everything stands for no function at all, so that there are fewer
    /// pipelines.
    pub(crate) fn clamp(low: f64, high: f64) -> Self {
        Self::function(unary::CLAMP, [low, high])
    }

    /// A function of one number in the shaders.
    pub(crate) fn function(activation: u32, [a, b]: [f64; 2]) -> Self {
        Epilogue { activation, a: a as f32, b: b as f32, residual: None }
    }

    /// Nothing.
    pub(crate) fn none() -> Self {
        Self::clamp(f64::NEG_INFINITY, f64::INFINITY)
    }
}
