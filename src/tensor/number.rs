//! Elements of any dtype as numbers, for printing and comparison.

use super::Tensor;
use crate::error::{Error, TensorError};
use torchlet_core::ScalarType;

/// An element.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Number {
    Bool(bool),
    /// Wide enough for every integer dtype.
    Int(i128),
    Float(f64),
    Complex(f64, f64),
}

impl Number {
    /// Converts to a float, unless the number is complex.
    pub(super) fn real(self) -> Option<f64> {
        match self {
            Number::Bool(value) => Some(f64::from(u8::from(value))),
            Number::Int(value) => Some(value as f64),
            Number::Float(value) => Some(value),
            Number::Complex(..) => None,
        }
    }
}

/// Decoder of an element from its bytes. `None` for dtypes without arithmetic (bits, float8,
/// quantized).
pub(super) fn reader(scalar_type: ScalarType) -> Option<fn(&[u8]) -> Number> {
    macro_rules! read {
        ($bytes:expr, $type:ty) => {
            bytemuck::pod_read_unaligned::<$type>($bytes)
        };
    }
    use ScalarType as S;
    Some(match scalar_type {
        S::Byte => |b| Number::Int(read!(b, u8).into()),
        S::Char => |b| Number::Int(read!(b, i8).into()),
        S::Short => |b| Number::Int(read!(b, i16).into()),
        S::Int => |b| Number::Int(read!(b, i32).into()),
        S::Long => |b| Number::Int(read!(b, i64).into()),
        S::UInt16 => |b| Number::Int(read!(b, u16).into()),
        S::UInt32 => |b| Number::Int(read!(b, u32).into()),
        S::UInt64 => |b| Number::Int(read!(b, u64).into()),
        S::Bool => |b| Number::Bool(read!(b, u8) != 0),
        S::Half => |b| Number::Float(read!(b, half::f16).to_f64()),
        S::BFloat16 => |b| Number::Float(read!(b, half::bf16).to_f64()),
        S::Float => |b| Number::Float(read!(b, f32).into()),
        S::Double => |b| Number::Float(read!(b, f64)),
        S::ComplexHalf => |b| {
            let [re, im] = read!(b, [half::f16; 2]);
            Number::Complex(re.to_f64(), im.to_f64())
        },
        S::ComplexFloat => |b| {
            let [re, im] = read!(b, [f32; 2]);
            Number::Complex(re.into(), im.into())
        },
        S::ComplexDouble => |b| {
            let [re, im] = read!(b, [f64; 2]);
            Number::Complex(re, im)
        },
        _ => return None,
    })
}

impl Tensor {
    /// Iterates over the elements in row-major order.
    pub(super) fn numbers(
        &self,
        operation: &'static str,
    ) -> Result<impl Iterator<Item = Number> + '_, Error> {
        let scalar_type = self.scalar_type();
        let read =
            reader(scalar_type).ok_or(TensorError::Unsupported { scalar_type, operation })?;
        let size = scalar_type.size();
        let bytes = self.bytes();
        Ok(self.positions().map(move |position| read(&bytes[position * size..][..size])))
    }
}
