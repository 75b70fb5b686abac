//! Bitwise operators and common divisors of integers. Bool counts as one bit.

use super::{ByCompute, TypeRule, of_number, prepare, with_other};
use crate::map::map;
use crate::number::{Compute, unsupported};
use crate::table::{kernels, renamed};
use torchlet_core::Param::{Out, Scalar, Tensor};
use torchlet_core::{Invoke, InvokeFn, Kernel, KernelError, Plan, Prepare, ScalarType};

/// A kernel `(Tensor self, Tensor other, *, Tensor(a!) out)`. With `Scalar` after the name, `other`
/// is a scalar; with `Of`, `self` is.
macro_rules! bitwise {
    ($name:literal Of, $function:expr) => {
        Kernel::new($name, &[Scalar, Tensor, Out], |ctx| {
            fn invoke(ctx: &mut Invoke) -> Result<(), KernelError> {
                of_number::<i64>(ctx, 2, $function)
            }
            prepare_integers(ctx, &[1], &[0], 2, invoke)
        })
    };
    ($name:literal Scalar, $function:expr) => {
        Kernel::new($name, &[Tensor, Scalar, Out], |ctx| {
            fn invoke(ctx: &mut Invoke) -> Result<(), KernelError> {
                with_other::<i64, true>(ctx, 2, $function)
            }
            prepare_integers(ctx, &[0], &[1], 2, invoke)
        })
    };
    ($name:literal, $function:expr) => {
        Kernel::new($name, &[Tensor, Tensor, Out], |ctx| {
            fn invoke(ctx: &mut Invoke) -> Result<(), KernelError> {
                with_other::<i64, false>(ctx, 2, $function)
            }
            prepare_integers(ctx, &[0, 1], &[], 2, invoke)
        })
    };
}

kernels! {
    /// `aten::bitwise_not.out(self, out)`: bitwise negation; for bool, logical negation.
    BITWISE_NOT_OUT = Kernel::new("aten::bitwise_not.out", &[Tensor, Out], |ctx| {
        let is_bool = ctx.info(0)?.scalar_type == ScalarType::Bool;
        prepare_integers(ctx, &[0], &[], 1, if is_bool { not_bool } else { not_bits })
    });
    /// `aten::bitwise_and.Tensor_out(self, other, out)`: bitwise AND.
    BITWISE_AND_TENSOR_OUT = bitwise!("aten::bitwise_and.Tensor_out", |a, b| a & b);
    /// `aten::bitwise_and.Scalar_out(self, other, out)`: bitwise AND with a scalar.
    BITWISE_AND_SCALAR_OUT = bitwise!("aten::bitwise_and.Scalar_out" Scalar, |a, b| a & b);
    /// `aten::bitwise_and.Scalar_Tensor_out(self, other, out)`: bitwise AND of a scalar `self` with
    /// a tensor.
    BITWISE_AND_SCALAR_TENSOR_OUT =
        bitwise!("aten::bitwise_and.Scalar_Tensor_out" Of, |a, b| a & b);
    /// `aten::bitwise_or.Tensor_out(self, other, out)`: bitwise OR.
    BITWISE_OR_TENSOR_OUT = bitwise!("aten::bitwise_or.Tensor_out", |a, b| a | b);
    /// `aten::bitwise_or.Scalar_out(self, other, out)`: bitwise OR with a scalar.
    BITWISE_OR_SCALAR_OUT = bitwise!("aten::bitwise_or.Scalar_out" Scalar, |a, b| a | b);
    /// `aten::bitwise_or.Scalar_Tensor_out(self, other, out)`: bitwise OR of a scalar `self` with a
    /// tensor.
    BITWISE_OR_SCALAR_TENSOR_OUT = bitwise!("aten::bitwise_or.Scalar_Tensor_out" Of, |a, b| a | b);
    /// `aten::bitwise_xor.Tensor_out(self, other, out)`: bitwise XOR.
    BITWISE_XOR_TENSOR_OUT = bitwise!("aten::bitwise_xor.Tensor_out", |a, b| a ^ b);
    /// `aten::bitwise_xor.Scalar_out(self, other, out)`: bitwise XOR with a scalar.
    BITWISE_XOR_SCALAR_OUT = bitwise!("aten::bitwise_xor.Scalar_out" Scalar, |a, b| a ^ b);
    /// `aten::bitwise_xor.Scalar_Tensor_out(self, other, out)`: bitwise XOR of a scalar `self` with
    /// a tensor.
    BITWISE_XOR_SCALAR_TENSOR_OUT =
        bitwise!("aten::bitwise_xor.Scalar_Tensor_out" Of, |a, b| a ^ b);
    /// `aten::bitwise_left_shift.Tensor_out(self, other, out)`: `self << other`; 0 if `other` is
    /// negative or at least the bit width.
    BITWISE_LEFT_SHIFT_TENSOR_OUT = bitwise!("aten::bitwise_left_shift.Tensor_out", left);
    /// `aten::bitwise_left_shift.Tensor_Scalar_out(self, other, out)`: like
    /// [`BITWISE_LEFT_SHIFT_TENSOR_OUT`], by a scalar.
    BITWISE_LEFT_SHIFT_TENSOR_SCALAR_OUT =
        bitwise!("aten::bitwise_left_shift.Tensor_Scalar_out" Scalar, left);
    /// `aten::bitwise_left_shift.Scalar_Tensor_out(self, other, out)`: like
    /// [`BITWISE_LEFT_SHIFT_TENSOR_OUT`], of a scalar `self`.
    BITWISE_LEFT_SHIFT_SCALAR_TENSOR_OUT =
        bitwise!("aten::bitwise_left_shift.Scalar_Tensor_out" Of, left);
    /// `aten::bitwise_right_shift.Tensor_out(self, other, out)`: arithmetic shift `self >> other`;
    /// 0 or -1 if `other` is negative or at least the bit width.
    BITWISE_RIGHT_SHIFT_TENSOR_OUT = bitwise!("aten::bitwise_right_shift.Tensor_out", right);
    /// `aten::bitwise_right_shift.Tensor_Scalar_out(self, other, out)`: like
    /// [`BITWISE_RIGHT_SHIFT_TENSOR_OUT`], by a scalar.
    BITWISE_RIGHT_SHIFT_TENSOR_SCALAR_OUT =
        bitwise!("aten::bitwise_right_shift.Tensor_Scalar_out" Scalar, right);
    /// `aten::bitwise_right_shift.Scalar_Tensor_out(self, other, out)`: like
    /// [`BITWISE_RIGHT_SHIFT_TENSOR_OUT`], of a scalar `self`.
    BITWISE_RIGHT_SHIFT_SCALAR_TENSOR_OUT =
        bitwise!("aten::bitwise_right_shift.Scalar_Tensor_out" Of, right);
    /// `aten::gcd.out(self, other, out)`: the greatest common divisor.
    GCD_OUT = bitwise!("aten::gcd.out", gcd);
    /// `aten::lcm.out(self, other, out)`: the least common multiple.
    LCM_OUT = bitwise!("aten::lcm.out", lcm);
    /// `aten::__lshift__.Tensor_out`: `self << other`, as exported for Python's operator.
    DUNDER_LSHIFT_TENSOR_OUT =
        renamed(BITWISE_LEFT_SHIFT_TENSOR_OUT, "aten::__lshift__.Tensor_out");
    /// `aten::__lshift__.Scalar_out`: `self << other` with a scalar `other`, as exported for
    /// Python's operator.
    DUNDER_LSHIFT_SCALAR_OUT =
        renamed(BITWISE_LEFT_SHIFT_TENSOR_SCALAR_OUT, "aten::__lshift__.Scalar_out");
    /// `aten::__rshift__.Tensor_out`: `self >> other`, as exported for Python's operator.
    DUNDER_RSHIFT_TENSOR_OUT =
        renamed(BITWISE_RIGHT_SHIFT_TENSOR_OUT, "aten::__rshift__.Tensor_out");
    /// `aten::__rshift__.Scalar_out`: `self >> other` with a scalar `other`, as exported for
    /// Python's operator.
    DUNDER_RSHIFT_SCALAR_OUT =
        renamed(BITWISE_RIGHT_SHIFT_TENSOR_SCALAR_OUT, "aten::__rshift__.Scalar_out");
    /// `bitwise_left_shift.Tensor_out`: [`BITWISE_LEFT_SHIFT_TENSOR_OUT`] under the name that some
    /// exporters emit.
    LEFT_SHIFT_TENSOR_OUT = renamed(BITWISE_LEFT_SHIFT_TENSOR_OUT, "bitwise_left_shift.Tensor_out");
    /// `bitwise_left_shift.Tensor_Scalar_out`: alias of [`BITWISE_LEFT_SHIFT_TENSOR_SCALAR_OUT`].
    LEFT_SHIFT_TENSOR_SCALAR_OUT =
        renamed(BITWISE_LEFT_SHIFT_TENSOR_SCALAR_OUT, "bitwise_left_shift.Tensor_Scalar_out");
    /// `bitwise_right_shift.Tensor_out`: alias of [`BITWISE_RIGHT_SHIFT_TENSOR_OUT`].
    RIGHT_SHIFT_TENSOR_OUT =
        renamed(BITWISE_RIGHT_SHIFT_TENSOR_OUT, "bitwise_right_shift.Tensor_out");
    /// `bitwise_right_shift.Tensor_Scalar_out`: alias of [`BITWISE_RIGHT_SHIFT_TENSOR_SCALAR_OUT`].
    RIGHT_SHIFT_TENSOR_SCALAR_OUT =
        renamed(BITWISE_RIGHT_SHIFT_TENSOR_SCALAR_OUT, "bitwise_right_shift.Tensor_Scalar_out");
}

/// Like [`prepare`], for functions that support only integers.
fn prepare_integers(
    ctx: &mut Prepare,
    inputs: &[usize],
    scalars: &[usize],
    out: usize,
    invoke: InvokeFn,
) -> Result<Plan, KernelError> {
    for &arg in inputs {
        let info = ctx.info(arg)?;
        if !info.scalar_type.is_integral(true) {
            return Err(unsupported(arg, info.scalar_type));
        }
    }
    for &arg in scalars {
        let found = ctx.scalar(arg)?.scalar_type();
        if !found.is_integral(true) {
            return Err(unsupported(arg, found));
        }
    }
    let functions = ByCompute { f32: invoke, f64: invoke, i64: Some(invoke), u64: None };
    prepare(ctx, inputs, scalars, out, TypeRule::Common, functions)
}

fn not_bits(ctx: &mut Invoke) -> Result<(), KernelError> {
    map(ctx, [0], 1, &move |a: i64| !a)
}

fn not_bool(ctx: &mut Invoke) -> Result<(), KernelError> {
    map(ctx, [0], 1, &move |a: i64| i64::of_bool(!a.truth()))
}

/// Narrower types keep the low bits, which are all zero after a shift by their width or more.
#[inline(always)]
fn left(a: i64, b: i64) -> i64 {
    if (0..64).contains(&b) { a << b } else { 0 }
}

/// Narrower types are sign-extended, so a shift by their width or more leaves only the sign.
#[inline(always)]
fn right(a: i64, b: i64) -> i64 {
    a >> if (0..64).contains(&b) { b } else { 63 }
}

/// Euclid's algorithm, at most two steps per bit.
fn gcd(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a as i64
}

/// Zero if both operands are zero.
fn lcm(a: i64, b: i64) -> i64 {
    let divisor = gcd(a, b);
    if divisor == 0 { 0 } else { a.wrapping_div(divisor).wrapping_mul(b).wrapping_abs() }
}
