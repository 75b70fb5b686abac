//! The operators of TOSA by number, and their operands.

use super::builder::Builder;
use super::spirv::Id;
use crate::error::Error;
use alloc::format;

/// Declares the operators in the order of their numbers.
macro_rules! operators {
    ($($name:ident,)*) => {
        /// Operator of the extended instruction set.
        #[allow(clippy::upper_case_acronyms, non_camel_case_types, reason = "TOSA's names")]
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Op { $($name),* }

        const OPS: &[Op] = &[$(Op::$name),*];
    };
}

operators! {
    ARGMAX, AVG_POOL2D, CONV2D, CONV3D, DEPTHWISE_CONV2D, FFT2D, MATMUL, MAX_POOL2D, RFFT2D,
    TRANSPOSE_CONV2D, CLAMP, ERF, SIGMOID, TANH, ADD, ARITHMETIC_RIGHT_SHIFT, BITWISE_AND,
    BITWISE_OR, BITWISE_XOR, INTDIV, LOGICAL_AND, LOGICAL_LEFT_SHIFT, LOGICAL_RIGHT_SHIFT,
    LOGICAL_OR, LOGICAL_XOR, MAXIMUM, MINIMUM, MUL, POW, SUB, TABLE, ABS, BITWISE_NOT, CEIL, CLZ,
    COS, EXP, FLOOR, LOG, LOGICAL_NOT, NEGATE, RECIPROCAL, RSQRT, SIN, SELECT, EQUAL, GREATER,
    GREATER_EQUAL, REDUCE_ALL, REDUCE_ANY, REDUCE_MAX, REDUCE_MIN, REDUCE_PRODUCT, REDUCE_SUM,
    CONCAT, PAD, RESHAPE, REVERSE, SLICE, TILE, TRANSPOSE, GATHER, SCATTER, RESIZE, CAST, RESCALE,
}

/// Value of the attribute that makes an operator ignore NaNs.
pub(super) const NAN_IGNORE: i64 = 2;
/// Value of the attribute that makes `RESCALE` round twice.
pub(super) const DOUBLE_ROUND: i64 = 3;

/// The operator with this number.
pub(super) fn op(number: u32) -> Result<Op, Error> {
    let found = usize::try_from(number).ok().and_then(|number| OPS.get(number));
    found.copied().ok_or_else(|| Error::Unsupported(format!("TOSA instruction {number}")))
}

/// The operands of a call.
pub(super) fn operands<const N: usize>(ids: &[Id]) -> Result<[Id; N], Error> {
    ids.try_into()
        .map_err(|_| Error::Invalid(format!("expected {N} operands, found {}", ids.len())))
}

/// A zero point: a constant of one element.
pub(super) fn zero_point(b: &Builder<'_, '_>, id: Id) -> Result<i64, Error> {
    if !b.module.is_constant(id) {
        return Err(Error::unsupported("a zero point that is not constant"));
    }
    match b.module.constant_type(id)?.scalar_type.is_floating() {
        // Zero points of floats are zero.
        true => Ok(0),
        false => b.module.int(id),
    }
}
