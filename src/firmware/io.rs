//! Inputs and outputs as arrays and scalars.

use super::{Error, Nested};
use torchlet_core::{Attached, InputError, Method, Scalar, TensorRef, ValueRef};

/// Copies an array into a tensor input.
///
/// # Errors
/// The input has another dtype or size.
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

/// Copies a tensor into an input, and sets the input's shape to the tensor's.
///
/// # Errors
/// The tensor does not fit the input.
pub fn set_tensor(
    method: &mut Attached<'_, 'static>,
    index: usize,
    value: &TensorRef<'_>,
) -> Result<(), Error> {
    Ok(method.set_input_tensor(index, value)?)
}

/// Sets a scalar input.
///
/// # Errors
/// The input is not a scalar of this kind.
pub fn set_scalar(
    method: &mut Attached<'_, 'static>,
    index: usize,
    value: Scalar,
) -> Result<(), Error> {
    Ok(method.set_input(index, &ValueRef::Scalar(value))?)
}

/// Borrows a tensor output of the last run as an array.
///
/// # Errors
/// The output has another dtype or size.
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

/// Borrows a tensor output of dynamic shape.
///
/// # Errors
/// The output is not a tensor.
pub fn tensor<'a>(method: &'a Method<'static>, index: usize) -> Result<TensorRef<'a>, Error> {
    match method.output(index)? {
        ValueRef::Tensor(tensor) => Ok(tensor),
        _ => Err(InputError::Kind { expected: "tensor", found: "another value" }.into()),
    }
}

/// Returns a scalar output.
///
/// # Errors
/// The output is not a scalar.
pub fn scalar(method: &Method<'static>, index: usize) -> Result<Scalar, Error> {
    match method.output(index)? {
        ValueRef::Scalar(scalar) => Ok(scalar),
        _ => Err(InputError::Kind { expected: "number", found: "another value" }.into()),
    }
}
