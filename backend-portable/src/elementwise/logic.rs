//! Truth values. Whatever is not zero is true, NaN too.

use super::{binary, unary};
use crate::number::Compute;
use crate::table::kernels;

kernels! {
    /// `aten::logical_not.out(self, out)`: whether it is zero.
    LOGICAL_NOT_OUT = unary!("aten::logical_not.out", Truth, Compute, |a: C| C::of_bool(!a.truth()));
    /// `aten::logical_and.out(self, other, out)`: whether neither is zero.
    LOGICAL_AND_OUT = binary!("aten::logical_and.out", Truth, Compute, |a, b| {
        C::of_bool(a.truth() & b.truth())
    });
    /// `aten::logical_or.out(self, other, out)`: whether one or both are not zero.
    LOGICAL_OR_OUT = binary!("aten::logical_or.out", Truth, Compute, |a, b| {
        C::of_bool(a.truth() | b.truth())
    });
    /// `aten::logical_xor.out(self, other, out)`: whether exactly one is not zero.
    LOGICAL_XOR_OUT = binary!("aten::logical_xor.out", Truth, Compute, |a, b| {
        C::of_bool(a.truth() ^ b.truth())
    });
}
