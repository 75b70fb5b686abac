//! Creation of tensors on a device.

use super::tensor::{apply, call_named, one};
use super::{Arg, Device, Tensor};
use crate::error::Error;
use torchlet_core::ScalarType;
use torchlet_graph::operators::Operator;

impl Device {
    /// Records a call of an operator without tensors, by its name, as
    /// [`Tensor::call`](Tensor::call).
    ///
    /// # Errors
    /// The operator is unknown or has several results, or PyTorch rejects the arguments.
    pub fn call(&self, name: &str, args: impl IntoIterator<Item = Arg>) -> Result<Tensor, Error> {
        one(name, call_named(Some(self), name, args.into_iter().collect())?)
    }

    fn create(&self, operator: Operator, args: Vec<Arg>) -> Result<Tensor, Error> {
        one(operator.name(), apply(Some(self), operator, args)?)
    }

    /// Creates a tensor of zeros. Records `zeros` of PyTorch.
    ///
    /// # Errors
    /// A size is out of range.
    pub fn zeros(&self, size: impl Into<Arg>, dtype: ScalarType) -> Result<Tensor, Error> {
        self.create(Operator::ZEROS, vec![size.into(), dtype.into()])
    }

    /// Creates a tensor of ones. Records `ones` of PyTorch.
    ///
    /// # Errors
    /// A size is out of range.
    pub fn ones(&self, size: impl Into<Arg>, dtype: ScalarType) -> Result<Tensor, Error> {
        self.create(Operator::ONES, vec![size.into(), dtype.into()])
    }

    /// Creates a tensor of one number, with the dtype that PyTorch gives it. Records `full` of
    /// PyTorch.
    ///
    /// # Errors
    /// A size is out of range.
    pub fn full(&self, size: impl Into<Arg>, value: impl Into<Arg>) -> Result<Tensor, Error> {
        self.create(Operator::FULL, vec![size.into(), value.into()])
    }

    /// Creates a tensor whose elements PyTorch leaves undefined; here, they are zeros. Records
    /// `zeros` for `empty`.
    ///
    /// # Errors
    /// A size is out of range.
    pub fn empty(&self, size: impl Into<Arg>, dtype: ScalarType) -> Result<Tensor, Error> {
        self.zeros(size, dtype)
    }

    /// Creates a sequence of numbers. Records `arange` of PyTorch.
    ///
    /// # Errors
    /// The step leads away from the end, or the sequence is too long.
    pub fn arange(
        &self,
        start: impl Into<Arg>,
        end: impl Into<Arg>,
        step: impl Into<Arg>,
    ) -> Result<Tensor, Error> {
        self.create(Operator::ARANGE_START_STEP, vec![start.into(), end.into(), step.into()])
    }

    /// Creates an identity matrix. Records `eye` of PyTorch.
    ///
    /// # Errors
    /// The size is out of range.
    pub fn eye(&self, n: i64, dtype: ScalarType) -> Result<Tensor, Error> {
        self.create(Operator::EYE, vec![n.into(), dtype.into()])
    }
}
