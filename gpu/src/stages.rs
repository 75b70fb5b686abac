//! Element-wise computations, on their own or as epilogues of other calls.

use crate::tensors::Operand;
use torchlet_graph::graph::ValueId;
use torchlet_shaders::functions::unary;

/// An element-wise computation: the index of a shader function, and its operands.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Stage {
    /// A function of one tensor with two parameters.
    Unary(u32, ValueId, [f64; 2]),
    /// A function of two operands; some functions scale the second operand by the factor.
    Binary(u32, ValueId, Source, f64),
    /// The second operand where the first is not zero, else the third.
    Where([ValueId; 3]),
}

/// An operand.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Source {
    Tensor(ValueId),
    /// A scalar, the second argument of the call.
    Number(f64),
}

/// `activation(result + residual)`.
#[derive(Debug, Clone)]
pub(crate) struct Epilogue {
    /// The index of a unary shader function, and its parameters.
    pub(crate) activation: u32,
    pub(crate) a: f32,
    pub(crate) b: f32,
    pub(crate) residual: Option<Operand>,
}

impl Epilogue {
    /// Returns a clamp. Unbounded clamps serve as the identity, which saves pipelines.
    pub(crate) fn clamp(low: f64, high: f64) -> Self {
        Self::function(unary::CLAMP, [low, high])
    }

    /// Returns a unary shader function.
    pub(crate) fn function(activation: u32, [a, b]: [f64; 2]) -> Self {
        Epilogue { activation, a: a as f32, b: b as f32, residual: None }
    }

    /// Returns the identity.
    pub(crate) fn none() -> Self {
        Self::clamp(f64::NEG_INFINITY, f64::INFINITY)
    }
}
