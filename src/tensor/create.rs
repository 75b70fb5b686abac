//! Constructors and dtype conversion of tensors.

use super::Tensor;
use crate::buffer::Buffer;
use crate::error::{Error, TensorError};
use torchlet_core::{Bool, Element, ScalarType, TensorInfo};

/// Dtype and shape of a contiguous tensor.
pub(super) fn info_of(scalar_type: ScalarType, shape: &[usize]) -> Result<TensorInfo, TensorError> {
    let error = || TensorError::Shape { shape: shape.to_vec() };
    let mut sizes = torchlet_core::layout::Sizes::new();
    for &size in shape {
        let size = i32::try_from(size).map_err(|_| error())?;
        sizes.push(size).map_err(|_| error())?;
    }
    TensorInfo::contiguous(scalar_type, &sizes).ok_or_else(error)
}

impl Tensor {
    /// Creates a tensor from elements in row-major order.
    ///
    /// # Errors
    /// The shape does not match the number of elements, or memory is exhausted.
    pub fn from_slice<T: Element>(shape: &[usize], elements: &[T]) -> Result<Self, Error> {
        let info = info_of(T::SCALAR_TYPE, shape)?;
        if info.numel() != elements.len() {
            let (expected, found) = (info.numel(), elements.len());
            return Err(TensorError::Length { shape: shape.to_vec(), expected, found }.into());
        }
        Ok(Tensor::with_info(info, Buffer::copy_of(bytemuck::cast_slice(elements))?))
    }

    /// Creates a tensor from elements in row-major order.
    ///
    /// # Errors
    /// As [`from_slice`](Self::from_slice).
    pub fn from_vec<T: Element>(shape: &[usize], elements: Vec<T>) -> Result<Self, Error> {
        Tensor::from_slice(shape, &elements)
    }

    /// Creates a bool tensor.
    ///
    /// # Errors
    /// As [`from_slice`](Self::from_slice).
    pub fn from_bools(shape: &[usize], elements: &[bool]) -> Result<Self, Error> {
        let elements: Vec<Bool> = elements.iter().copied().map(Bool::new).collect();
        Tensor::from_slice(shape, &elements)
    }

    /// Creates a tensor of any dtype from the bytes of its elements, in row-major order and native
    /// byte order.
    ///
    /// # Errors
    /// The shape does not match the number of bytes, or memory is exhausted.
    pub fn from_bytes(
        scalar_type: ScalarType,
        shape: &[usize],
        bytes: &[u8],
    ) -> Result<Self, Error> {
        let info = info_of(scalar_type, shape)?;
        if info.nbytes() != bytes.len() {
            let (shape, size) = (shape.to_vec(), scalar_type.size());
            let error = match bytes.len().checked_div(size) {
                Some(found) if found * size == bytes.len() => {
                    TensorError::Length { shape, expected: info.numel(), found }
                }
                _ => {
                    let (expected, found) = (info.nbytes(), bytes.len());
                    TensorError::ByteLength { scalar_type, shape, expected, found }
                }
            };
            return Err(error.into());
        }
        Ok(Tensor::with_info(info, Buffer::copy_of(bytes)?))
    }

    /// Creates a zero-dimensional tensor with one element.
    ///
    /// # Errors
    /// Memory is exhausted.
    pub fn scalar<T: Element>(value: T) -> Result<Self, Error> {
        Tensor::from_slice(&[], &[value])
    }

    /// Creates a tensor of zeros.
    ///
    /// # Errors
    /// The shape is too large, or memory is exhausted.
    pub fn zeros(scalar_type: ScalarType, shape: &[usize]) -> Result<Self, Error> {
        let info = info_of(scalar_type, shape)?;
        let data = Buffer::zeroed(info.nbytes())?;
        Ok(Tensor::with_info(info, data))
    }

    /// Creates a tensor of ones.
    ///
    /// # Errors
    /// As [`zeros`](Self::zeros), or the dtype has no arithmetic.
    pub fn ones(scalar_type: ScalarType, shape: &[usize]) -> Result<Self, Error> {
        Tensor::from_numbers(scalar_type, shape, |_| 1.0)
    }

    /// Creates a tensor with every element equal to `value`.
    ///
    /// # Errors
    /// As [`zeros`](Self::zeros).
    pub fn full<T: Element>(shape: &[usize], value: T) -> Result<Self, Error> {
        let mut tensor = Tensor::zeros(T::SCALAR_TYPE, shape)?;
        tensor.memory_mut::<T>()?.fill(value);
        Ok(tensor)
    }

    /// Creates a floating-point tensor with elements from the uniform distribution over [0, 1).
    /// Equal seeds give equal tensors.
    ///
    /// # Errors
    /// As [`ones`](Self::ones), or the dtype is not a floating-point type.
    pub fn rand(scalar_type: ScalarType, shape: &[usize], seed: u64) -> Result<Self, Error> {
        Tensor::random(scalar_type, shape, seed, Random::uniform)
    }

    /// Creates a floating-point tensor with elements from the standard normal distribution. Equal
    /// seeds give equal tensors.
    ///
    /// # Errors
    /// As [`ones`](Self::ones), or the dtype is not a floating-point type.
    pub fn randn(scalar_type: ScalarType, shape: &[usize], seed: u64) -> Result<Self, Error> {
        Tensor::random(scalar_type, shape, seed, Random::normal)
    }

    /// Creates a tensor with integers from the uniform distribution over `range`. Equal seeds give
    /// equal tensors.
    ///
    /// # Errors
    /// As [`ones`](Self::ones).
    pub fn randint(
        scalar_type: ScalarType,
        shape: &[usize],
        range: core::ops::Range<i64>,
        seed: u64,
    ) -> Result<Self, Error> {
        let mut random = Random::new(seed);
        let width = range.end.saturating_sub(range.start).max(1) as f64;
        let draw = |_| range.start as f64 + (random.uniform() * width).floor();
        Tensor::from_numbers(scalar_type, shape, draw)
    }

    fn random(
        scalar_type: ScalarType,
        shape: &[usize],
        seed: u64,
        draw: fn(&mut Random) -> f64,
    ) -> Result<Self, Error> {
        if !scalar_type.is_floating() {
            return Err(TensorError::Unsupported { scalar_type, operation: "rand" }.into());
        }
        let mut random = Random::new(seed);
        Tensor::from_numbers(scalar_type, shape, |_| draw(&mut random))
    }

    /// Creates a tensor from a function of the index. Values are converted to the dtype as by
    /// Rust's `as`.
    fn from_numbers(
        scalar_type: ScalarType,
        shape: &[usize],
        value: impl FnMut(usize) -> f64,
    ) -> Result<Self, Error> {
        let mut tensor = Tensor::zeros(scalar_type, shape)?;
        use ScalarType as S;
        match scalar_type {
            S::Byte => tensor.fill_with::<u8>(value, |x| x as u8)?,
            S::Char => tensor.fill_with::<i8>(value, |x| x as i8)?,
            S::Short => tensor.fill_with::<i16>(value, |x| x as i16)?,
            S::Int => tensor.fill_with::<i32>(value, |x| x as i32)?,
            S::Long => tensor.fill_with::<i64>(value, |x| x as i64)?,
            S::UInt16 => tensor.fill_with::<u16>(value, |x| x as u16)?,
            S::UInt32 => tensor.fill_with::<u32>(value, |x| x as u32)?,
            S::UInt64 => tensor.fill_with::<u64>(value, |x| x as u64)?,
            S::Half => tensor.fill_with::<half::f16>(value, half::f16::from_f64)?,
            S::BFloat16 => tensor.fill_with::<half::bf16>(value, half::bf16::from_f64)?,
            S::Float => tensor.fill_with::<f32>(value, |x| x as f32)?,
            S::Double => tensor.fill_with::<f64>(value, |x| x)?,
            S::Bool => tensor.fill_with::<Bool>(value, |x| Bool::new(x != 0.0))?,
            _ => {
                return Err(TensorError::Unsupported { scalar_type, operation: "filling" }.into());
            }
        }
        Ok(tensor)
    }

    fn fill_with<T: Element>(
        &mut self,
        mut value: impl FnMut(usize) -> f64,
        convert: impl Fn(f64) -> T,
    ) -> Result<(), Error> {
        for (index, element) in self.memory_mut::<T>()?.iter_mut().enumerate() {
            *element = convert(value(index));
        }
        Ok(())
    }

    /// Converts the elements to another dtype as Rust's `as` does: truncating towards zero,
    /// saturating. Shares the elements if the dtype is the same.
    ///
    /// # Errors
    /// One of the dtypes is not integer, floating-point or bool, or memory is exhausted.
    pub fn to_type(&self, scalar_type: ScalarType) -> Result<Tensor, Error> {
        if scalar_type == self.scalar_type() {
            return Ok(self.clone());
        }
        let values = self.to_f64_vec()?;
        Tensor::from_numbers(scalar_type, self.shape(), |index| values[index])
    }
}

/// SplitMix64 generator: small, and good enough for test inputs.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// Uniform over [0, 1), with the 24 bits of a float32 mantissa, so that rounding never gives 1.
    fn uniform(&mut self) -> f64 {
        (self.next() >> 40) as f64 / (1u64 << 24) as f64
    }

    /// Box-Muller transform.
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (core::f64::consts::TAU * self.uniform()).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_lengths_and_shapes_are_errors() {
        let error = Tensor::from_slice(&[2, 2], &[1.0f32; 3]).unwrap_err();
        assert_eq!(error.to_string(), "shape [2, 2]: expected 4 elements, found 3");
        // Reported in elements if the length is a whole number of elements.
        let of_bytes = |len| Tensor::from_bytes(ScalarType::Float, &[2, 2], &vec![0; len]);
        let error = of_bytes(12).unwrap_err();
        assert_eq!(error.to_string(), "shape [2, 2]: expected 4 elements, found 3");
        let error = of_bytes(13).unwrap_err();
        assert_eq!(error.to_string(), "shape [2, 2] of float32: expected 16 bytes, found 13");
        assert_eq!(error.code(), 0x12);
        assert!(Tensor::zeros(ScalarType::Float, &[usize::MAX]).is_err());
        assert!(Tensor::zeros(ScalarType::Float, &[1; 17]).is_err());
        assert!(Tensor::zeros(ScalarType::Float, &[i32::MAX as usize; 3]).is_err());
        assert!(Tensor::zeros(ScalarType::Float, &[i32::MAX as usize, i32::MAX as usize]).is_err());
    }

    #[test]
    fn random_tensors_repeat_and_stay_in_range() {
        let a = Tensor::rand(ScalarType::Float, &[1000], 7).unwrap();
        assert_eq!(a, Tensor::rand(ScalarType::Float, &[1000], 7).unwrap());
        assert_ne!(a, Tensor::rand(ScalarType::Float, &[1000], 8).unwrap());
        assert!(a.as_slice::<f32>().unwrap().iter().all(|x| (0.0..1.0).contains(x)));
        let normal = Tensor::randn(ScalarType::Double, &[10_000], 1).unwrap();
        let values = normal.as_slice::<f64>().unwrap();
        let mean = values.iter().sum::<f64>() / 1e4;
        let variance = values.iter().map(|x| x * x).sum::<f64>() / 1e4;
        assert!(mean.abs() < 0.05 && (variance - 1.0).abs() < 0.05, "{mean} {variance}");
        let ints = Tensor::randint(ScalarType::Long, &[500], -2..3, 1).unwrap();
        assert!(ints.as_slice::<i64>().unwrap().iter().all(|x| (-2..3).contains(x)));
        assert!(Tensor::rand(ScalarType::Int, &[1], 0).is_err());
    }

    #[test]
    fn ones_and_conversions_of_every_type() {
        for number in 0..30 {
            let scalar_type = ScalarType::from_number(number).unwrap();
            let Ok(ones) = Tensor::ones(scalar_type, &[2]) else { continue };
            assert_eq!(ones.to_f64_vec().unwrap(), [1.0, 1.0], "{scalar_type}");
            let halves = ones.to_type(ScalarType::Half).unwrap();
            assert_eq!(halves.to_type(scalar_type).unwrap(), ones);
        }
        let cut = Tensor::from_slice(&[2], &[-1.5f32, 300.0]).unwrap();
        assert_eq!(cut.to_type(ScalarType::Byte).unwrap().as_slice::<u8>().unwrap(), [0, 255]);
    }

    #[test]
    fn writes_do_not_affect_clones() {
        let a = Tensor::full(&[3], 1i32).unwrap();
        let mut b = a.clone();
        b.as_mut_slice::<i32>().unwrap()[0] = 5;
        assert_eq!(a.as_slice::<i32>().unwrap(), [1, 1, 1]);
        assert_eq!(b.as_slice::<i32>().unwrap(), [5, 1, 1]);
        let error = b.as_slice::<f32>().unwrap_err().to_string();
        assert!(error.contains("expected dtype float32, found int32"), "{error}");
    }
}
