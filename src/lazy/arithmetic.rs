//! Arithmetic by Rust's operators.

use super::tensor::{apply, one};
use super::{Arg, Tensor};
use crate::error::Error;
use std::ops::{Add, AddAssign, Div, DivAssign, Mul, MulAssign, Neg, Rem, Sub, SubAssign};
use torchlet_graph::operators::Operator;

/// The result of a call, or a tensor that remembers the error.
fn result(like: &Tensor, made: Result<Tensor, Error>) -> Tensor {
    made.unwrap_or_else(|error| Tensor::failed(like, &error))
}

macro_rules! operators {
    ($($trait:ident $function:ident $method:ident $reverse:expr;)*) => {
        $(
            impl<T: Into<Arg>> $trait<T> for &Tensor {
                type Output = Tensor;

                fn $function(self, other: T) -> Tensor {
                    result(self, Tensor::$method(self, other))
                }
            }

            impl<T: Into<Arg>> $trait<T> for Tensor {
                type Output = Tensor;

                fn $function(self, other: T) -> Tensor {
                    result(&self, Tensor::$method(&self, other))
                }
            }

            operators! { @number f32 $trait $function $reverse }
            operators! { @number f64 $trait $function $reverse }
            operators! { @number i32 $trait $function $reverse }
            operators! { @number i64 $trait $function $reverse }
        )*
    };
    (@number $number:ident $trait:ident $function:ident $reverse:expr) => {
        impl $trait<&Tensor> for $number {
            type Output = Tensor;

            fn $function(self, other: &Tensor) -> Tensor {
                let reverse: fn(&Tensor, Arg) -> Result<Tensor, Error> = $reverse;
                result(other, reverse(other, self.into()))
            }
        }

        impl $trait<Tensor> for $number {
            type Output = Tensor;

            fn $function(self, other: Tensor) -> Tensor {
                self.$function(&other)
            }
        }
    };
}

operators! {
    Add add add |tensor, number| tensor.add(number);
    Sub sub sub |tensor, number| tensor.call("rsub", [number]);
    Mul mul mul |tensor, number| tensor.mul(number);
    Div div div |tensor, number| Tensor::mul(&tensor.reciprocal()?, number);
    Rem rem remainder |tensor, number| {
        let args = vec![number, tensor.into()];
        one("remainder", apply(None, Operator::REMAINDER_SCALAR_TENSOR, args)?)
    };
}

macro_rules! assignments {
    ($($trait:ident $function:ident $method:ident;)*) => {
        $(
            impl<T: Into<Arg>> $trait<T> for Tensor {
                /// Overwrites the tensor, and all that share its memory. If that fails, only this
                /// variable is replaced, by a tensor that remembers the error.
                fn $function(&mut self, other: T) {
                    if let Err(error) = self.$method(other) {
                        *self = Tensor::failed(self, &error);
                    }
                }
            }
        )*
    };
}

assignments! {
    AddAssign add_assign add_;
    SubAssign sub_assign sub_;
    MulAssign mul_assign mul_;
    DivAssign div_assign div_;
}

impl Neg for &Tensor {
    type Output = Tensor;

    fn neg(self) -> Tensor {
        result(self, Tensor::neg(self))
    }
}

impl Neg for Tensor {
    type Output = Tensor;

    fn neg(self) -> Tensor {
        -&self
    }
}
