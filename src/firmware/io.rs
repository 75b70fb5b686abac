//! Inputs and outputs as arrays and numbers.

use super::{Error, Nested};
use torchlet_core::{Attached, InputError, Method, Scalar, TensorRef, ValueRef};

/// Copies an array into a tensor input.
///
/// # Errors
/// The method's input is of another type or size.
pub fn set_input<T: Nested>(
    method: &mut Attached<'_, 'static>,
    index: usize,
    value: &T,
) -> Result<(), Error> {
    let values = T::flat(core::slice::from_ref(value));
    let mut target = method.input_mut(index)?;
    let target = target.data_mut::<T::Element>()?;
    if target.len() != values.len() {
        return Err(Error::Length { expected: target.len(), found: values.len() });
    }
    target.copy_from_slice(values);
    Ok(())
}

/// Copies a tensor into an input, which takes its shape.
///
/// # Errors
/// It does not fit, and how.
pub fn set_tensor(
    method: &mut Attached<'_, 'static>,
    index: usize,
    value: &TensorRef<'_>,
) -> Result<(), Error> {
    Ok(method.set_input_tensor(index, value)?)
}

/// Sets a number.
///
/// # Errors
/// The input is not a number of this kind.
pub fn set_scalar(
    method: &mut Attached<'_, 'static>,
    index: usize,
    value: Scalar,
) -> Result<(), Error> {
    Ok(method.set_input(index, &ValueRef::Scalar(value))?)
}

/// A tensor output, as the last run left it.
///
/// # Errors
/// The method's output is of another type or size.
pub fn output<'a, T: Nested>(method: &'a Method<'static>, index: usize) -> Result<&'a T, Error> {
    let tensor = tensor(method, index)?;
    let elements = tensor.data::<T::Element>()?;
    match T::nested(elements) {
        [value] if T::flat(core::slice::from_ref(value)).len() == elements.len() => Ok(value),
        _ => {
            let expected = size_of::<T>() / size_of::<T::Element>().max(1);
            Err(Error::Length { expected, found: elements.len() })
        }
    }
}

/// A tensor output whose shape is known when the method has run.
///
/// # Errors
/// The method's output is none.
pub fn tensor<'a>(method: &'a Method<'static>, index: usize) -> Result<TensorRef<'a>, Error> {
    match method.output(index)? {
        ValueRef::Tensor(tensor) => Ok(tensor),
        _ => Err(InputError::Kind { expected: "tensor", found: "another value" }.into()),
    }
}

/// An output that is a number.
///
/// # Errors
/// The method's output is none.
pub fn scalar(method: &Method<'static>, index: usize) -> Result<Scalar, Error> {
    match method.output(index)? {
        ValueRef::Scalar(scalar) => Ok(scalar),
        _ => Err(InputError::Kind { expected: "number", found: "another value" }.into()),
    }
}
