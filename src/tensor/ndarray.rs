//! Conversions between tensors and arrays of the `ndarray` crate.

use super::Tensor;
use crate::error::Error;
use ndarray::{Array, ArrayBase, ArrayD, Data, Dimension, IxDyn};
use torchlet_core::Element;

impl<T: Element, S: Data<Elem = T>, D: Dimension> TryFrom<&ArrayBase<S, D>> for Tensor {
    type Error = Error;

    /// Copies the elements in row-major order.
    fn try_from(array: &ArrayBase<S, D>) -> Result<Self, Error> {
        match array.as_slice() {
            Some(elements) => Tensor::from_slice(array.shape(), elements),
            None => {
                let elements: Vec<T> = array.iter().copied().collect();
                Tensor::from_vec(array.shape(), elements)
            }
        }
    }
}

impl<T: Element, D: Dimension> TryFrom<Array<T, D>> for Tensor {
    type Error = Error;

    fn try_from(array: Array<T, D>) -> Result<Self, Error> {
        Tensor::try_from(&array)
    }
}

impl<T: Element> TryFrom<&Tensor> for ArrayD<T> {
    type Error = Error;

    /// Copies the elements.
    fn try_from(tensor: &Tensor) -> Result<Self, Error> {
        let elements = tensor.to_vec::<T>()?;
        ArrayD::from_shape_vec(IxDyn(tensor.shape()), elements).map_err(|_| {
            let shape = tensor.shape().to_vec();
            crate::error::TensorError::Shape { shape }.into()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    #[test]
    fn ndarray_round_trip() {
        let array = array![[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]];
        let tensor = Tensor::try_from(&array).unwrap();
        assert_eq!(tensor.shape(), [2, 3]);
        assert_eq!(ArrayD::<f32>::try_from(&tensor).unwrap(), array.clone().into_dyn());
        let turned = Tensor::try_from(array.t().to_owned()).unwrap();
        assert_eq!(turned, tensor.permute(&[1, 0]).unwrap());
        assert!(ArrayD::<i32>::try_from(&tensor).is_err());
    }
}
