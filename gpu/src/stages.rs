//! Element-wise computations, on their own or as epilogues of other calls.

use crate::tensors::Operand;
use torchlet_graph::graph::ValueId;
use torchlet_shaders::functions::unary;

/// An element-wise computation: the index of a shader function, and its operands.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Stage {
    /// A unary function of a tensor, with two parameters.
    Unary(u32, ValueId, [f64; 2]),
    /// A binary function of a tensor and another operand. Some functions multiply the second
    /// operand by the factor.
    Binary(u32, ValueId, Source, f64),
    /// Selects the second tensor where the first is not zero, else the third.
    Where([ValueId; 3]),
}

/// The second operand of a binary function.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Source {
    Tensor(ValueId),
    /// A scalar argument of the call.
    Number(f64),
}

/// The epilogue of a GEMM or convolution: `activation(result + residual)`.
#[derive(Debug, Clone)]
pub(crate) struct Epilogue {
    /// The index of a unary shader function, and its parameters.
    pub(crate) activation: u32,
    pub(crate) a: f32,
    pub(crate) b: f32,
    pub(crate) residual: Option<Operand>,
}

impl Epilogue {
    /// Returns a clamp as the activation. The identity is an unbounded clamp, which saves
    /// pipelines.
    pub(crate) fn clamp(low: f64, high: f64) -> Self {
        Self::function(unary::CLAMP, [low, high])
    }

    /// Returns an epilogue with a unary shader function as the activation.
    pub(crate) fn function(activation: u32, [a, b]: [f64; 2]) -> Self {
        Epilogue { activation, a: a as f32, b: b as f32, residual: None }
    }

    /// Returns the identity epilogue.
    pub(crate) fn none() -> Self {
        Self::clamp(f64::NEG_INFINITY, f64::INFINITY)
    }
}
