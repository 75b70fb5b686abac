//! Element-wise operators: each result depends only on the inputs at the same index.
//!
//! [`prepare`] implements their common part: broadcasting, dtype promotion and the choice of
//! compute type. Each operator adds a function of values in the file of its family; most are one
//! line of [`unary!`] or [`binary!`].

pub mod activation;
pub mod arithmetic;
pub mod bitwise;
pub mod choice;
pub mod comparison;
pub mod complex;
pub mod division;
pub mod elementary;
pub mod exponent;
pub mod logic;
pub mod next;
#[cfg(feature = "linalg-special")]
pub mod polynomial;
pub mod power;
pub mod rounding;
#[cfg(feature = "linalg-special")]
pub mod special;

pub(crate) use crate::real::Real;
pub(crate) use arithmetic::Arithmetic;

use crate::compute::functions::{Map1, map1};
use crate::compute::gemm::Context;
use crate::compute::simd::{self, Tier};
use crate::compute::split::Serial;
use crate::map::{Slices, Two, map, scalar_operand};
use crate::number::{Compute, ComputeType, unsupported};
use crate::types;
use torchlet_core::rules::{Operand, broadcast_all, result_type};
use torchlet_core::{Invoke, InvokeFn, KernelError, Plan, Prepare, ScalarType, TensorInfo};

/// An [`InvokeFn`] for each compute type.
#[derive(Clone, Copy)]
pub(crate) struct ByCompute {
    pub(crate) f32: InvokeFn,
    pub(crate) f64: InvokeFn,
    /// `None` for floating-point functions: integers are then computed in `f32`.
    pub(crate) i64: Option<InvokeFn>,
    /// For `uint64`, if the function depends on the order of values.
    pub(crate) u64: Option<InvokeFn>,
}

/// Instances of a generic invoke function: `by_compute!(f)`, `by_compute!(float f)` without integer
/// instances, or `by_compute!(ordered f)` for functions that compare values.
macro_rules! by_compute {
    (ordered $function:ident) => {
        $crate::elementwise::ByCompute {
            u64: Some($function::<u64>),
            ..$crate::elementwise::by_compute!($function)
        }
    };
    (float $function:ident) => {
        $crate::elementwise::ByCompute {
            f32: $function::<f32>,
            f64: $function::<f64>,
            i64: None,
            u64: None,
        }
    };
    ($function:ident) => {
        $crate::elementwise::ByCompute {
            f32: $function::<f32>,
            f64: $function::<f64>,
            i64: Some($function::<i64>),
            u64: None,
        }
    };
}
pub(crate) use by_compute;

/// A kernel `(Tensor self, *, Tensor(a!) out)`: `unary!(name, type rule, bound, |a| …)`.
///
/// The bound is a trait of the compute type, which is named `C` in the function. `float` before the
/// bound computes integers in floating point; `ordered` compares `uint64` values as such. A
/// trailing `vector` supplies a [`Map1`] for `f32`. A trailing `recompiled` supplies an `f32`
/// function that is compiled once per instruction set.
macro_rules! unary {
    ($name:literal, $rule:ident, float $bound:ident, $function:expr) => {
        $crate::elementwise::unary!(@ $name, $rule, $bound, $function,
            $crate::elementwise::by_compute!(float invoke))
    };
    ($name:literal, $rule:ident, ordered $bound:ident, $function:expr) => {
        $crate::elementwise::unary!(@ $name, $rule, $bound, $function,
            $crate::elementwise::by_compute!(ordered invoke))
    };
    ($name:literal, $rule:ident, $bound:ident, $function:expr) => {
        $crate::elementwise::unary!(@ $name, $rule, $bound, $function,
            $crate::elementwise::by_compute!(invoke))
    };
    ($name:literal, $rule:ident, $bound:ident, $function:expr, recompiled $f32:expr) => {
        $crate::elementwise::unary!(@ $name, $rule, $bound, $function, {
            let f32: torchlet_core::InvokeFn = |ctx| $crate::elementwise::recompiled(ctx, 1, $f32);
            $crate::elementwise::ByCompute {
                f32,
                f64: invoke::<f64>,
                i64: Some(invoke::<i64>),
                u64: None,
            }
        })
    };
    ($name:literal, $rule:ident, float $bound:ident, $function:expr, vector $vector:expr) => {
        $crate::elementwise::unary!(@ $name, $rule, $bound, $function, {
            let f32: torchlet_core::InvokeFn = |ctx| $crate::elementwise::vector(ctx, 1, $vector);
            $crate::elementwise::ByCompute { f32, f64: invoke::<f64>, i64: None, u64: None }
        })
    };
    (@ $name:literal, $rule:ident, $bound:ident, $function:expr, $by_compute:expr) => {{
        fn invoke<C: $bound>(
            ctx: &mut torchlet_core::Invoke,
        ) -> Result<(), torchlet_core::KernelError> {
            $crate::types::expect::<C>()?;
            let function: &dyn $crate::map::Function<1, C> = &$function;
            $crate::map::map(ctx, [0], 1, function)
        }
        torchlet_core::Kernel::new(
            $name,
            &[torchlet_core::Param::Tensor, torchlet_core::Param::Out],
            |ctx| $crate::elementwise::prepare(
                ctx, &[0], &[], 1, $crate::elementwise::TypeRule::$rule, $by_compute),
        )
    }};
}
pub(crate) use unary;

/// A kernel `(Tensor self, Tensor other, *, Tensor(a!) out)`:
/// `binary!(name, type rule, bound, |a, b| …)`. With `Scalar` after the name, `other` is a scalar.
///
/// `float` and `ordered` work as in [`unary!`]. `rounded` before a function of two tensors makes it
/// [round its operands](crate::map::Function::rounds_operands).
macro_rules! binary {
    ($name:literal Scalar, $rule:ident, ordered $bound:ident, $function:expr) => {
        $crate::elementwise::binary!(@ $name, Scalar, true, &[0], &[1], $rule, $bound, $function,
            $crate::elementwise::by_compute!(ordered invoke))
    };
    ($name:literal, $rule:ident, ordered $bound:ident, $function:expr) => {
        $crate::elementwise::binary!(@ $name, Tensor, false, &[0, 1], &[], $rule, $bound, $function,
            $crate::elementwise::by_compute!(ordered invoke))
    };
    ($name:literal Scalar, $rule:ident, $bound:ident, $function:expr) => {
        $crate::elementwise::binary!(@ $name, Scalar, true, &[0], &[1], $rule, $bound, $function,
            $crate::elementwise::by_compute!(invoke))
    };
    ($name:literal Scalar, $rule:ident, float $bound:ident, $function:expr) => {
        $crate::elementwise::binary!(@ $name, Scalar, true, &[0], &[1], $rule, $bound, $function,
            $crate::elementwise::by_compute!(float invoke))
    };
    ($name:literal, $rule:ident, float $bound:ident, $function:expr) => {
        $crate::elementwise::binary!(@ $name, Tensor, false, &[0, 1], &[], $rule, $bound, $function,
            $crate::elementwise::by_compute!(float invoke))
    };
    ($name:literal, $rule:ident, $bound:ident, $function:expr) => {
        $crate::elementwise::binary!(@ $name, Tensor, false, &[0, 1], &[], $rule, $bound, $function,
            $crate::elementwise::by_compute!(invoke))
    };
    ($name:literal, $rule:ident, float $bound:ident, rounded $function:expr) => {
        $crate::elementwise::binary!(@rounded $name, $rule, $bound, $function,
            $crate::elementwise::by_compute!(float invoke))
    };
    ($name:literal, $rule:ident, $bound:ident, rounded $function:expr) => {
        $crate::elementwise::binary!(@rounded $name, $rule, $bound, $function,
            $crate::elementwise::by_compute!(invoke))
    };
    (@rounded $name:literal, $rule:ident, $bound:ident, $function:expr, $by_compute:expr) => {{
        fn invoke<C: $bound>(
            ctx: &mut torchlet_core::Invoke,
        ) -> Result<(), torchlet_core::KernelError> {
            $crate::types::expect::<C>()?;
            let function: &dyn $crate::map::Function<2, C> = &$crate::map::Rounded($function);
            $crate::map::map(ctx, [0, 1], 2, function)
        }
        torchlet_core::Kernel::new(
            $name,
            &[
                torchlet_core::Param::Tensor, torchlet_core::Param::Tensor,
                torchlet_core::Param::Out
            ],
            |ctx| $crate::elementwise::prepare(
                ctx, &[0, 1], &[], 2, $crate::elementwise::TypeRule::$rule, $by_compute),
        )
    }};
    (@ $name:literal, $other:ident, $scalar:literal, $inputs:expr, $scalars:expr,
        $rule:ident, $bound:ident, $function:expr, $by_compute:expr) => {{
        fn invoke<C: $bound>(
            ctx: &mut torchlet_core::Invoke,
        ) -> Result<(), torchlet_core::KernelError> {
            $crate::types::expect::<C>()?;
            $crate::elementwise::with_other::<C, $scalar>(ctx, 2, $function)
        }
        torchlet_core::Kernel::new(
            $name,
            &[
                torchlet_core::Param::Tensor, torchlet_core::Param::$other,
                torchlet_core::Param::Out
            ],
            |ctx| $crate::elementwise::prepare(
                ctx, $inputs, $scalars, 2, $crate::elementwise::TypeRule::$rule, $by_compute),
        )
    }};
}
pub(crate) use binary;

/// Computes `out` from tensor 0 with a vectorized function.
pub(crate) fn vector(ctx: &mut Invoke, out: usize, function: impl Map1) -> Result<(), KernelError> {
    let context = Context { tier: Tier::detect(), parallel: &Serial };
    map(ctx, [0], out, &Slices(|a: &[f32], out: &mut [f32]| map1(context, function, a, out)))
}

/// Computes `out` from tensor 0 with a function that is auto-vectorized for each instruction set.
/// Suits functions that are one instruction in newer instruction sets and a call in the baseline.
/// The function must be `#[inline(always)]`.
pub(crate) fn recompiled(
    ctx: &mut Invoke,
    out: usize,
    function: impl Fn(f32) -> f32 + Sync,
) -> Result<(), KernelError> {
    let tier = Tier::detect();
    let all = Slices(|a: &[f32], out: &mut [f32]| tier.dispatch(Recompiled(&function, a, out)));
    map(ctx, [0], out, &all)
}

struct Recompiled<'a, F>(&'a F, &'a [f32], &'a mut [f32]);

impl<F: Fn(f32) -> f32> simd::Vectorized for Recompiled<'_, F> {
    type Output = ();
    #[inline(always)]
    fn run<S: simd::Simd>(self, _: S) {
        for (out, &a) in self.2.iter_mut().zip(self.1) {
            *out = (self.0)(a);
        }
    }
}

/// Computes `out` from tensor 0 and argument 1, which is a tensor or, if `SCALAR`, a scalar.
pub(crate) fn with_other<C: Compute, const SCALAR: bool>(
    ctx: &mut Invoke,
    out: usize,
    function: impl Fn(C, C) -> C + Sync,
) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    if SCALAR {
        let other = scalar_operand::<C>(ctx, 0, 1, out)?;
        return map(ctx, [0], out, &move |a| function(a, other));
    }
    map(ctx, [0, 1], out, &Two(function))
}

/// Computes `out` from scalar argument 0 and tensor 1.
pub(crate) fn of_number<C: Compute>(
    ctx: &mut Invoke,
    out: usize,
    function: impl Fn(C, C) -> C + Sync,
) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let number = scalar_operand::<C>(ctx, 1, 0, out)?;
    map(ctx, [1], out, &move |a| function(number, a))
}

/// Rule that determines the output's dtype.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TypeRule {
    /// The promoted dtype of the inputs.
    Common,
    /// The promoted dtype, or `float32` if that is an integer or bool.
    Float,
    /// Bool, for a comparison in the promoted dtype.
    Bool,
}

impl ByCompute {
    /// The function for this compute type.
    pub(crate) fn choose(&self, compute: ComputeType) -> InvokeFn {
        match compute {
            ComputeType::F32 => self.f32,
            ComputeType::F64 if types::computes::<f64>() => self.f64,
            ComputeType::I64 if types::computes::<i64>() => self.i64.unwrap_or(self.f32),
            _ => self.f32,
        }
    }
}

/// Prepares an operator over the tensors `inputs` and the scalars `scalars` that writes `out`.
/// Resizes `out` to the broadcast shape, checks its dtype and selects the compute type.
pub(crate) fn prepare(
    ctx: &mut Prepare,
    inputs: &[usize],
    scalars: &[usize],
    out: usize,
    rule: TypeRule,
    functions: ByCompute,
) -> Result<Plan, KernelError> {
    prepare_with(ctx, &[], inputs, scalars, out, rule, functions)
}

/// Like [`prepare`], with tensors `others`, such as masks, that take part in broadcasting but not
/// in dtype promotion.
pub(crate) fn prepare_with(
    ctx: &mut Prepare,
    others: &[usize],
    inputs: &[usize],
    scalars: &[usize],
    out: usize,
    rule: TypeRule,
    functions: ByCompute,
) -> Result<Plan, KernelError> {
    let mut infos: heapless::Vec<TensorInfo, 4> = heapless::Vec::new();
    let mut operands: heapless::Vec<Operand, 8> = heapless::Vec::new();
    let too_many = KernelError::access(out);
    for (position, &arg) in inputs.iter().chain(others).enumerate() {
        let info = ctx.info(arg)?;
        ComputeType::of(info.scalar_type).ok_or(unsupported(arg, info.scalar_type))?;
        if position < inputs.len() {
            operands.push(Operand::from(&info)).map_err(|_| too_many.clone())?;
        }
        infos.push(info).map_err(|_| too_many.clone())?;
    }
    for &arg in scalars {
        if let Some(scalar) = ctx.optional_scalar(arg)? {
            operands.push(Operand::from(scalar)).map_err(|_| too_many.clone())?;
        }
    }
    let sizes = broadcast_all(infos.iter().map(|info| info.sizes.as_slice()));
    let mismatch = KernelError::argument(out, "input shapes do not broadcast");
    ctx.resize(out, &sizes.ok_or(mismatch)?)?;

    let first = inputs.first().copied().unwrap_or(out);
    let mixed = KernelError::argument(first, "the inputs have no common dtype");
    let common = result_type(operands).ok_or(mixed)?;
    let found = ctx.info(out)?.scalar_type;
    let result = match rule {
        TypeRule::Common => common,
        TypeRule::Float if common.is_floating() => common,
        TypeRule::Float => ScalarType::Float,
        TypeRule::Bool => ScalarType::Bool,
    };
    if !can_cast(result, found) {
        return Err(unsupported(out, found));
    }
    let compute = match (rule, ComputeType::of(common)) {
        // Integer inputs with a double output compute in double.
        (TypeRule::Float, Some(ComputeType::I64)) if found == ScalarType::Double => {
            ComputeType::F64
        }
        (TypeRule::Float, Some(ComputeType::I64)) => ComputeType::F32,
        (_, Some(compute)) => compute,
        (_, None) => return Err(unsupported(first, common)),
    };
    Ok(Plan::new(match functions.u64 {
        Some(function) if common == ScalarType::UInt64 && types::has(common) => function,
        _ => functions.choose(compute),
    }))
}

/// Whether results of one dtype may be stored as another: never floating point as integer, nor any
/// other dtype as bool.
///
/// Source: `torch.can_cast`.
pub(crate) fn can_cast(from: ScalarType, to: ScalarType) -> bool {
    if ComputeType::of_any(to).is_none() {
        return false;
    }
    if from.is_floating() {
        return to.is_floating();
    }
    from == ScalarType::Bool || to != ScalarType::Bool
}
