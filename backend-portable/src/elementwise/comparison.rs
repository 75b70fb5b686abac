//! Comparisons, and the larger and smaller of two. Integers compare as integers, everything else in the common type.

use super::binary;
use crate::number::Compute;
use crate::table::kernels;

kernels! {
    /// `aten::eq.Tensor_out(self, other, out)`: `self == other`.
    EQ_TENSOR_OUT = binary!("aten::eq.Tensor_out", Truth, Compute, eq);
    /// `aten::eq.Scalar_out(self, other, out)`: `self == other`.
    EQ_SCALAR_OUT = binary!("aten::eq.Scalar_out" Scalar, Truth, Compute, eq);
    /// `aten::ne.Tensor_out(self, other, out)`: `self != other`.
    NE_TENSOR_OUT = binary!("aten::ne.Tensor_out", Truth, Compute, ne);
    /// `aten::ne.Scalar_out(self, other, out)`: `self != other`.
    NE_SCALAR_OUT = binary!("aten::ne.Scalar_out" Scalar, Truth, Compute, ne);
    /// `aten::lt.Tensor_out(self, other, out)`: `self < other`.
    LT_TENSOR_OUT = binary!("aten::lt.Tensor_out", Truth, Compute, lt);
    /// `aten::lt.Scalar_out(self, other, out)`: `self < other`.
    LT_SCALAR_OUT = binary!("aten::lt.Scalar_out" Scalar, Truth, Compute, lt);
    /// `aten::le.Tensor_out(self, other, out)`: `self <= other`.
    LE_TENSOR_OUT = binary!("aten::le.Tensor_out", Truth, Compute, le);
    /// `aten::le.Scalar_out(self, other, out)`: `self <= other`.
    LE_SCALAR_OUT = binary!("aten::le.Scalar_out" Scalar, Truth, Compute, le);
    /// `aten::gt.Tensor_out(self, other, out)`: `self > other`.
    GT_TENSOR_OUT = binary!("aten::gt.Tensor_out", Truth, Compute, |a, b| lt(b, a));
    /// `aten::gt.Scalar_out(self, other, out)`: `self > other`.
    GT_SCALAR_OUT = binary!("aten::gt.Scalar_out" Scalar, Truth, Compute, |a, b| lt(b, a));
    /// `aten::ge.Tensor_out(self, other, out)`: `self >= other`.
    GE_TENSOR_OUT = binary!("aten::ge.Tensor_out", Truth, Compute, |a, b| le(b, a));
    /// `aten::ge.Scalar_out(self, other, out)`: `self >= other`.
    GE_SCALAR_OUT = binary!("aten::ge.Scalar_out" Scalar, Truth, Compute, |a, b| le(b, a));
    /// `aten::maximum.out(self, other, out)`: the larger; NaN if either is.
    MAXIMUM_OUT = binary!("aten::maximum.out", Common, Compute, larger);
    /// `aten::minimum.out(self, other, out)`: the smaller; NaN if either is.
    MINIMUM_OUT = binary!("aten::minimum.out", Common, Compute, smaller);
}

#[inline(always)]
fn eq<C: Compute>(a: C, b: C) -> C {
    C::of_bool(a == b)
}

#[inline(always)]
fn ne<C: Compute>(a: C, b: C) -> C {
    C::of_bool(a != b)
}

#[inline(always)]
fn lt<C: Compute>(a: C, b: C) -> C {
    C::of_bool(a < b)
}

#[inline(always)]
fn le<C: Compute>(a: C, b: C) -> C {
    C::of_bool(a <= b)
}

/// The larger; NaN if either is.
#[inline(always)]
pub(crate) fn larger<C: Compute>(a: C, b: C) -> C {
    if a > b || a.is_nan() { a } else { b }
}

/// The smaller; NaN if either is.
#[inline(always)]
pub(crate) fn smaller<C: Compute>(a: C, b: C) -> C {
    if a < b || a.is_nan() { a } else { b }
}
