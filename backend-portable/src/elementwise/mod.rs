//! Element-wise operators: the result at an index depends on the inputs at that index alone.
//!
//! [`prepare`] is what they have in common: broadcasting, type rules and the choice of computing type. Each operator adds a
//! function of values, in the file of its family.

mod binary;
mod unary;

pub use binary::*;
pub use unary::*;

use crate::number::{ComputeType, unsupported};
use torchlet_core::rules::{Operand, broadcast_all, result_type};
use torchlet_core::{InvokeFn, KernelError, Plan, Prepare, ScalarType, TensorInfo};

/// An invoke function for each computing type.
#[derive(Clone, Copy)]
pub(crate) struct ByCompute {
    pub(crate) f32: InvokeFn,
    pub(crate) f64: InvokeFn,
    /// `None` for functions of floating-point values only; integers then compute in `f32`.
    pub(crate) i64: Option<InvokeFn>,
}

/// The instances of a generic invoke function: `by_compute!(f)`, or `by_compute!(float f)` without integers.
macro_rules! by_compute {
    (float $function:ident) => {
        $crate::elementwise::ByCompute { f32: $function::<f32>, f64: $function::<f64>, i64: None }
    };
    ($function:ident) => {
        $crate::elementwise::ByCompute {
            f32: $function::<f32>,
            f64: $function::<f64>,
            i64: Some($function::<i64>),
        }
    };
}
pub(crate) use by_compute;

/// How the output's type follows from the inputs'.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TypeRule {
    /// The common type of the inputs.
    Common,
    /// The common type, and `float32` if that is an integer or bool.
    Float,
    /// Bool, of a comparison in the common type.
    Truth,
}

impl ByCompute {
    /// The function for values of this type.
    pub(crate) fn choose(&self, compute: ComputeType) -> InvokeFn {
        match compute {
            ComputeType::F32 => self.f32,
            ComputeType::F64 => self.f64,
            ComputeType::I64 => self.i64.unwrap_or(self.f32),
        }
    }
}

/// Prepares an operator over the tensors `inputs` and the numbers `scalars` that writes `out`: gives `out` the broadcast
/// shape, checks its type, and chooses the computing type.
pub(crate) fn prepare(
    ctx: &mut Prepare,
    inputs: &[usize],
    scalars: &[usize],
    out: usize,
    rule: TypeRule,
    functions: ByCompute,
) -> Result<Plan, KernelError> {
    let mut infos: heapless::Vec<TensorInfo, 4> = heapless::Vec::new();
    let mut operands: heapless::Vec<Operand, 8> = heapless::Vec::new();
    let too_many = KernelError::Access { arg: out };
    for &arg in inputs {
        let info = ctx.info(arg)?;
        ComputeType::of(info.scalar_type).ok_or(unsupported(arg, info.scalar_type))?;
        operands.push(Operand::from(&info)).map_err(|_| too_many.clone())?;
        infos.push(info).map_err(|_| too_many.clone())?;
    }
    for &arg in scalars {
        if let Some(scalar) = ctx.optional_scalar(arg)? {
            operands.push(Operand::from(scalar)).map_err(|_| too_many.clone())?;
        }
    }
    let sizes = broadcast_all(infos.iter().map(|info| info.sizes.as_slice()));
    let mismatch =
        KernelError::Argument { arg: out, what: "the inputs' shapes cannot be broadcast" };
    ctx.resize(out, &sizes.ok_or(mismatch)?)?;

    let first = inputs.first().copied().unwrap_or(out);
    let mixed =
        KernelError::Argument { arg: first, what: "its type cannot be mixed with the others" };
    let common = result_type(operands).ok_or(mixed)?;
    let found = ctx.info(out)?.scalar_type;
    let result = match rule {
        TypeRule::Common => common,
        TypeRule::Float if common.is_floating() => common,
        TypeRule::Float => ScalarType::Float,
        TypeRule::Truth => ScalarType::Bool,
    };
    if !can_cast(result, found) {
        return Err(unsupported(out, found));
    }
    let compute = match (rule, ComputeType::of(common)) {
        // An integer input whose result is written as double is computed as double.
        (TypeRule::Float, Some(ComputeType::I64)) if found == ScalarType::Double => {
            ComputeType::F64
        }
        (TypeRule::Float, Some(ComputeType::I64)) => ComputeType::F32,
        (_, Some(compute)) => compute,
        (_, None) => return Err(unsupported(first, common)),
    };
    Ok(Plan::new(functions.choose(compute)))
}

/// Whether results of one type may be written as another: never floating to integer, nor anything to bool.
///
/// Source: `torch.can_cast`.
pub(crate) fn can_cast(from: ScalarType, to: ScalarType) -> bool {
    if ComputeType::of(to).is_none() {
        return false;
    }
    if from.is_floating() {
        return to.is_floating();
    }
    from == ScalarType::Bool || to != ScalarType::Bool
}
