//! Logical operators. Every value except zero is true, including NaN.

use super::{binary, unary};
use crate::number::Compute;
use crate::table::kernels;

kernels! {
    /// `aten::logical_not.out(self, out)`: whether the value is zero.
    LOGICAL_NOT_OUT =
        unary!("aten::logical_not.out", Bool, Compute, |a: C| C::of_bool(!a.truth()));
    /// `aten::logical_and.out(self, other, out)`: whether both are nonzero.
    LOGICAL_AND_OUT = binary!("aten::logical_and.out", Bool, Compute, |a, b| {
        C::of_bool(a.truth() & b.truth())
    });
    /// `aten::logical_or.out(self, other, out)`: whether at least one is nonzero.
    LOGICAL_OR_OUT = binary!("aten::logical_or.out", Bool, Compute, |a, b| {
        C::of_bool(a.truth() | b.truth())
    });
    /// `aten::logical_xor.out(self, other, out)`: whether exactly one is nonzero.
    LOGICAL_XOR_OUT = binary!("aten::logical_xor.out", Bool, Compute, |a, b| {
        C::of_bool(a.truth() ^ b.truth())
    });
}
