//! Conversion between all element types and the compute types of kernels.
//!
//! Operators are written for `f32`, `f64` and `i64`; those that order values also for `u64`. Half
//! and bfloat16 are computed in `f32` and rounded once, as in PyTorch. Integers and bool are
//! computed in `i64` and keep the low bits. [`load`] and [`store`] convert blocks, so three
//! instances of an operator's loop support every mix of dtypes.

use crate::types;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use torchlet_core::{Bool, Element, KernelError, Scalar, ScalarType};

/// An element that converts to and from the compute types.
pub(crate) trait Number: Element {
    /// Converts to `f32`, rounding to nearest.
    fn to_f32(self) -> f32;
    /// Converts to `f64`.
    fn to_f64(self) -> f64;
    /// Converts to `i64`: fractions are truncated, values out of range saturate. (Values that are
    /// stored follow [`whole`] instead.)
    fn to_i64(self) -> i64;
    /// Converts from `f32`. Integers truncate the fraction; [`whole`] defines the result for values
    /// out of range. Bool is true unless the value is zero.
    fn from_f32(value: f32) -> Self;
    /// Converts from `f64`, like [`from_f32`](Self::from_f32).
    fn from_f64(value: f64) -> Self;
    /// Converts from `i64`: integers keep the low bits, bool is true unless the value is zero.
    fn from_i64(value: i64) -> Self;
    /// Converts from `u64`, like [`from_i64`](Self::from_i64).
    #[inline(always)]
    fn from_u64(value: u64) -> Self {
        Self::from_i64(value as i64)
    }
    /// Converts a slice with [`to_f32`](Self::to_f32), up to the shorter length.
    #[inline(always)]
    fn all_to_f32(values: &[Self], out: &mut [f32]) {
        for (out, value) in out.iter_mut().zip(values) {
            *out = value.to_f32();
        }
    }
    /// Converts a slice with [`from_f32`](Self::from_f32), up to the shorter length.
    #[inline(always)]
    fn all_from_f32(values: &[f32], out: &mut [Self]) {
        for (out, value) in out.iter_mut().zip(values) {
            *out = Self::from_f32(*value);
        }
    }
}

/// Conversion from floating point to integers, truncating the fraction.
///
/// Values out of range are converted as in PyTorch on x86. There, the processor converts to 32 or
/// 64 bits, and returns the smallest integer for NaN and for values that do not fit. Shorter
/// integers are the low bits of 32. `uint32`, and `uint8` converted from `float64`, are the low
/// bits of 64. `uint64` represents every value in its range, and is 0 outside it.
///
/// For `uint32`, PyTorch's result for NaN, for values below -2^31 and above 2^32 depends on whether
/// the element is in the vectorized part or in the tail of a row. The tail, and every conversion
/// from `float16`, yields the low bits of 64; here all elements do.
mod whole {
    macro_rules! whole {
        ($name:ident: $f:ty, $wide:ty) => {
            #[inline(always)]
            pub(super) fn $name(value: $f) -> $wide {
                // The bounds are powers of two, so they are exact in floating point.
                const END: $f = -(<$wide>::MIN as $f);
                if (-END..END).contains(&value) { value as $wide } else { <$wide>::MIN }
            }
        };
    }
    whole!(i32_of_f32: f32, i32);
    whole!(i32_of_f64: f64, i32);
    whole!(i64_of_f32: f32, i64);
    whole!(i64_of_f64: f64, i64);

    macro_rules! unsigned {
        ($name:ident: $f:ty, $signed:ident) => {
            #[inline(always)]
            pub(super) fn $name(value: $f) -> u64 {
                const HALF: $f = -(i64::MIN as $f);
                if value < HALF || value.is_nan() {
                    $signed(value) as u64
                } else if value < 2.0 * HALF {
                    value as u64
                } else {
                    0
                }
            }
        };
    }
    unsigned!(u64_of_f32: f32, i64_of_f32);
    unsigned!(u64_of_f64: f64, i64_of_f64);
}

macro_rules! integers {
    ($($t:ty: $of_f32:ident, $of_f64:ident;)*) => {$(
        impl Number for $t {
            #[inline(always)]
            fn to_f32(self) -> f32 { self as f32 }
            #[inline(always)]
            fn to_f64(self) -> f64 { self as f64 }
            #[inline(always)]
            fn to_i64(self) -> i64 { self as i64 }
            #[inline(always)]
            fn from_f32(value: f32) -> Self { whole::$of_f32(value) as $t }
            #[inline(always)]
            fn from_f64(value: f64) -> Self { whole::$of_f64(value) as $t }
            #[inline(always)]
            fn from_i64(value: i64) -> Self { value as $t }
        }
    )*};
}
integers! {
    u8: i32_of_f32, i64_of_f64;
    i8: i32_of_f32, i32_of_f64;
    u16: i32_of_f32, i32_of_f64;
    i16: i32_of_f32, i32_of_f64;
    u32: i64_of_f32, i64_of_f64;
    i32: i32_of_f32, i32_of_f64;
    u64: u64_of_f32, u64_of_f64;
    i64: i64_of_f32, i64_of_f64;
}

macro_rules! floats {
    ($($t:ty),*) => {$(
        impl Number for $t {
            #[inline(always)]
            fn to_f32(self) -> f32 { self as f32 }
            #[inline(always)]
            fn to_f64(self) -> f64 { self as f64 }
            #[inline(always)]
            fn to_i64(self) -> i64 { self as i64 }
            #[inline(always)]
            fn from_f32(value: f32) -> Self { value as $t }
            #[inline(always)]
            fn from_f64(value: f64) -> Self { value as $t }
            #[inline(always)]
            fn from_i64(value: i64) -> Self { value as $t }
            #[inline(always)]
            fn from_u64(value: u64) -> Self { value as $t }
        }
    )*};
}
floats!(f32, f64);

macro_rules! narrow_floats {
    ($($t:ty),*) => {$(
        impl Number for $t {
            #[inline(always)]
            fn to_f32(self) -> f32 { <$t>::to_f32(self) }
            #[inline(always)]
            fn to_f64(self) -> f64 { <$t>::to_f64(self) }
            #[inline(always)]
            fn to_i64(self) -> i64 { <$t>::to_f32(self) as i64 }
            #[inline(always)]
            fn from_f32(value: f32) -> Self { <$t>::from_f32(value) }
            #[inline(always)]
            fn from_f64(value: f64) -> Self {
                // Converts through `f32`, as PyTorch does; the conversion of the `half` crate
                // ignores some bits.
                <$t>::from_f32(value as f32)
            }
            #[inline(always)]
            fn from_i64(value: i64) -> Self { <$t>::from_f32(value as f32) }
            #[inline(always)]
            fn from_u64(value: u64) -> Self { <$t>::from_f32(value as f32) }
            // For slices, the `half` crate uses the processor's conversion instructions where
            // available.
            fn all_to_f32(values: &[Self], out: &mut [f32]) {
                let len = values.len().min(out.len());
                values[..len].convert_to_f32_slice(&mut out[..len]);
            }
            fn all_from_f32(values: &[f32], out: &mut [Self]) {
                let len = values.len().min(out.len());
                out[..len].convert_from_f32_slice(&values[..len]);
            }
        }
    )*};
}
narrow_floats!(f16, bf16);

impl Number for Bool {
    #[inline(always)]
    fn to_f32(self) -> f32 {
        f32::from(u8::from(self.get()))
    }
    #[inline(always)]
    fn to_f64(self) -> f64 {
        f64::from(u8::from(self.get()))
    }
    #[inline(always)]
    fn to_i64(self) -> i64 {
        i64::from(self.get())
    }
    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        Bool::new(value != 0.0)
    }
    #[inline(always)]
    fn from_f64(value: f64) -> Self {
        Bool::new(value != 0.0)
    }
    #[inline(always)]
    fn from_i64(value: i64) -> Self {
        Bool::new(value != 0)
    }
}

/// A compute type of kernels: `f32`, `f64` or `i64`; for operators that order values also `u64`.
pub(crate) trait Compute: Number + Default + PartialOrd {
    /// Converts from any element type.
    fn of<T: Number>(value: T) -> Self;
    /// Converts to any element type.
    fn to<T: Number>(self) -> T;
    /// Converts from a scalar argument.
    fn of_scalar(scalar: Scalar) -> Self;
    /// Converts a slice with [`of`](Self::of), up to the shorter length.
    #[inline(always)]
    fn all_of<T: Number>(values: &[T], out: &mut [Self]) {
        for (out, value) in out.iter_mut().zip(values) {
            *out = Self::of(*value);
        }
    }
    /// Converts a slice with [`to`](Self::to), up to the shorter length.
    #[inline(always)]
    fn all_to<T: Number>(values: &[Self], out: &mut [T]) {
        for (out, value) in out.iter_mut().zip(values) {
            *out = value.to();
        }
    }
    /// Whether the value is not zero. True for NaN.
    #[inline(always)]
    fn truth(self) -> bool {
        self != Self::default()
    }
    /// Whether the value is NaN; always false for integers.
    #[inline(always)]
    fn is_nan(self) -> bool {
        self.partial_cmp(&self).is_none()
    }
    /// Returns 1 for true, 0 for false.
    #[inline(always)]
    fn of_bool(value: bool) -> Self {
        Self::from_i64(i64::from(value))
    }
}

impl Compute for f32 {
    #[inline(always)]
    fn of<T: Number>(value: T) -> f32 {
        value.to_f32()
    }
    #[inline(always)]
    fn to<T: Number>(self) -> T {
        T::from_f32(self)
    }
    fn of_scalar(scalar: Scalar) -> f32 {
        scalar.to_f64() as f32
    }
    #[inline(always)]
    fn all_of<T: Number>(values: &[T], out: &mut [f32]) {
        T::all_to_f32(values, out);
    }
    #[inline(always)]
    fn all_to<T: Number>(values: &[f32], out: &mut [T]) {
        T::all_from_f32(values, out);
    }
}

impl Compute for f64 {
    #[inline(always)]
    fn of<T: Number>(value: T) -> f64 {
        value.to_f64()
    }
    #[inline(always)]
    fn to<T: Number>(self) -> T {
        T::from_f64(self)
    }
    fn of_scalar(scalar: Scalar) -> f64 {
        scalar.to_f64()
    }
}

impl Compute for i64 {
    #[inline(always)]
    fn of<T: Number>(value: T) -> i64 {
        value.to_i64()
    }
    #[inline(always)]
    fn to<T: Number>(self) -> T {
        T::from_i64(self)
    }
    fn of_scalar(scalar: Scalar) -> i64 {
        scalar.to_i64()
    }
}

/// Only for operators that order values: as `i64`, large `uint64` values would be negative.
impl Compute for u64 {
    #[inline(always)]
    fn of<T: Number>(value: T) -> u64 {
        value.to_i64() as u64
    }
    #[inline(always)]
    fn to<T: Number>(self) -> T {
        T::from_u64(self)
    }
    fn of_scalar(scalar: Scalar) -> u64 {
        scalar.to_i64() as u64
    }
}

/// The compute type of an element type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ComputeType {
    /// Half, bfloat16 and float.
    F32,
    /// Double.
    F64,
    /// Integers and bool.
    I64,
}

impl ComputeType {
    /// Returns the compute type of an element type. `None` for types without arithmetic (quantized,
    /// bits, complex, 8-bit floats), and for types that this firmware image does not [compute
    /// in](crate::types).
    #[inline(always)]
    pub(crate) fn of(scalar_type: ScalarType) -> Option<Self> {
        match Self::of_any(scalar_type)? {
            ComputeType::F32 if types::computes::<f32>() => Some(ComputeType::F32),
            ComputeType::F64 if types::computes::<f64>() => Some(ComputeType::F64),
            ComputeType::I64 if types::computes::<i64>() => Some(ComputeType::I64),
            _ => None,
        }
    }

    /// Like [`of`](Self::of), regardless of the types that the image computes in.
    pub(crate) fn of_any(scalar_type: ScalarType) -> Option<Self> {
        match scalar_type {
            ScalarType::Half | ScalarType::BFloat16 | ScalarType::Float => Some(ComputeType::F32),
            ScalarType::Double => Some(ComputeType::F64),
            other if other.is_integral(true) => Some(ComputeType::I64),
            _ => None,
        }
    }
}

/// Runs `$body` with `$T` bound to the Rust type of an element type: `with_number!(scalar_type, |T|
/// body, else otherwise)`. Types without arithmetic, and with `float` in front all that are not
/// floating point, run `$otherwise`.
macro_rules! with_number {
    (float $scalar_type:expr, |$T:ident| $body:expr, else $otherwise:expr) => {
        $crate::number::with_number!(
            [Half half::f16, BFloat16 half::bf16, Float f32, Double f64,],
            $scalar_type, |$T| $body, else $otherwise
        )
    };
    ([$($variant:ident $type:ty,)*],
        $scalar_type:expr, |$T:ident| $body:expr, else $otherwise:expr) => {
        match $scalar_type {
            $(torchlet_core::ScalarType::$variant
                if $crate::types::has(torchlet_core::ScalarType::$variant) =>
            {
                type $T = $type;
                $body
            })*
            _ => $otherwise,
        }
    };
    ($scalar_type:expr, |$T:ident| $body:expr, else $otherwise:expr) => {
        $crate::number::with_number!(
            [
                Byte u8, Char i8, Short i16, Int i32, Long i64,
                Half half::f16, Float f32, Double f64,
                Bool torchlet_core::Bool, BFloat16 half::bf16,
                UInt16 u16, UInt32 u32, UInt64 u64,
            ],
            $scalar_type, |$T| $body, else $otherwise
        )
    };
}
pub(crate) use with_number;

/// Casts bytes to elements. Tensors are checked for alignment when their memory is assigned; a
/// misaligned slice yields no elements.
pub(crate) fn elements<T: Element>(bytes: &[u8]) -> &[T] {
    bytemuck::try_cast_slice(bytes).unwrap_or(&[])
}

/// Like [`elements`], mutable.
pub(crate) fn elements_mut<T: Element>(bytes: &mut [u8]) -> &mut [T] {
    bytemuck::try_cast_slice_mut(bytes).unwrap_or(&mut [])
}

/// Loads `out.len()` elements as `C`, from position `start` on with the given stride. Positions
/// outside `bytes` read as zero.
pub(crate) fn load<C: Compute>(
    scalar_type: ScalarType,
    bytes: &[u8],
    start: isize,
    stride: isize,
    out: &mut [C],
) {
    with_number!(scalar_type, |T| load_as::<T, C>(elements(bytes), start, stride, out), else ());
}

fn load_as<T: Number, C: Compute>(data: &[T], start: isize, stride: isize, out: &mut [C]) {
    let first = usize::try_from(start).unwrap_or(usize::MAX);
    match stride {
        1 => C::all_of(data.get(first..).unwrap_or(&[]), out),
        0 => out.fill(data.get(first).map_or_else(C::default, |value| C::of(*value))),
        _ => {
            let mut position = start;
            for out in out {
                let value = usize::try_from(position).ok().and_then(|at| data.get(at));
                *out = value.map_or_else(C::default, |value| C::of(*value));
                position = position.wrapping_add(stride);
            }
        }
    }
}

/// Stores values as elements, starting at the first.
pub(crate) fn store<C: Compute>(scalar_type: ScalarType, bytes: &mut [u8], values: &[C]) {
    with_number!(scalar_type, |T| C::all_to(values, elements_mut::<T>(bytes)), else ());
}

/// Rounds values as if they had been stored as elements of this dtype: integers keep the low bits,
/// half and bfloat16 round.
pub(crate) fn round_through<C: Compute>(scalar_type: ScalarType, values: &mut [C]) {
    with_number!(scalar_type, |T| {
        for value in values {
            *value = C::of(value.to::<T>());
        }
    }, else ());
}

/// Like [`round_through`], for one value.
pub(crate) fn rounded(scalar_type: ScalarType, value: f64) -> f64 {
    let mut values = [value];
    round_through(scalar_type, &mut values);
    values[0]
}

/// Checks that an element type supports arithmetic.
pub(crate) fn number_type(arg: usize, found: ScalarType) -> Result<(), KernelError> {
    ComputeType::of_any(found).map(|_| ()).ok_or(unsupported(arg, found))
}

/// Error for an argument whose element type does not support arithmetic.
pub(crate) fn unsupported(arg: usize, found: ScalarType) -> KernelError {
    KernelError::scalar_type(arg, found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of `torch.tensor(x, dtype=float32).to(dtype)`, PyTorch 2.15 on x86-64.
    #[test]
    fn out_of_range_floats_convert_like_pytorch() {
        fn all<T: Number + core::fmt::Debug + PartialEq>(expected: [T; 9]) {
            let values = [3e9, -3e9, 1e19, f32::NAN, f32::INFINITY, 300.7, -1.5, 70000.0, 5e9];
            assert_eq!(values.map(T::from_f32), expected);
            // In `f32`, 1e19 rounds to another value, which is out of range as well.
            assert_eq!(values.map(|x| T::from_f64(f64::from(x))), expected);
        }
        all([0u8, 0, 0, 0, 0, 44, 255, 112, 0]);
        all([0i8, 0, 0, 0, 0, 44, -1, 112, 0]);
        all([0i16, 0, 0, 0, 0, 300, -1, 4464, 0]);
        all([0u16, 0, 0, 0, 0, 300, 65535, 4464, 0]);
        let low = i32::MIN;
        all([low, low, low, low, low, 300, -1, 70000, low]);
        let low = i64::MIN;
        all([3_000_000_000, -3_000_000_000, low, low, low, 300, -1, 70000, 5_000_000_000]);
        let (high, long) = (1u64 << 63, 9_999_999_980_506_447_872);
        all::<u64>([
            3_000_000_000,
            18_446_744_070_709_551_616,
            long,
            high,
            0,
            300,
            u64::MAX,
            70000,
            5_000_000_000,
        ]);
        assert_eq!(u64::from_f64(1.5 * 2f64.powi(63)), 13_835_058_055_282_163_712);
        // Only `uint8` uses the low bits of a 64-bit conversion from double.
        assert_eq!([9e9 + 77.0, -9e9 - 5.0, 3e18 + 1024.0].map(u8::from_f64), [77, 251, 0]);
        assert_eq!(i8::from_f64(9e9 + 77.0), 0);
    }

    /// Values of `torch.tensor(x, dtype=float64).to(float16)`. The double rounding through
    /// `float32` makes the second value a tie.
    #[test]
    fn doubles_convert_to_half_like_pytorch() {
        let tie = 1.0 + 2f64.powi(-11);
        assert_eq!(<f16 as Number>::from_f64(tie + 2f64.powi(-22)).to_f64(), 1.0009765625);
        assert_eq!(<f16 as Number>::from_f64(tie + 2f64.powi(-40)).to_f64(), 1.0);
        let tie = 1.0 + 2f64.powi(-8);
        assert_eq!(<bf16 as Number>::from_f64(tie + 2f64.powi(-22)).to_f64(), 1.0078125);
    }

    /// Values of `torch.tensor([2**63 + 2**40, 2**64 - 1, 2**63], dtype=uint64).to(dtype)`, all of
    /// them positive.
    #[test]
    fn large_uint64_converts_to_float_like_pytorch() {
        let values = [(1u64 << 63) + (1 << 40), u64::MAX, 1 << 63];
        let expected = [9_223_373_136_366_403_584.0, 18_446_744_073_709_551_616.0, 2f64.powi(63)];
        assert_eq!(values.map(|value| value.to::<f32>()), expected.map(|value| value as f32));
        assert_eq!(values.map(|value| value.to::<f64>()), expected);
        assert_eq!(values.map(|value| value.to::<f16>()), [f16::INFINITY; 3]);
        let low = 2f32.powi(63);
        assert_eq!(values.map(|value| value.to::<bf16>().to_f32()), [low, 2.0 * low, low]);
        assert_eq!(values.map(|value| value.to::<u64>()), values);
        assert_eq!(values.map(|value| value.to::<i8>()), [0, -1, 0]);
    }
}
