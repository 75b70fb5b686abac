//! Storage types of tensors that are computed in `f32`.

use super::simd::Simd;
#[cfg(feature = "std")]
use half::slice::HalfFloatSliceExt;

/// A storage type that widens to `f32` without loss and narrows by rounding to nearest.
pub trait Stored: Copy + Send + Sync + 'static {
    /// The value in single precision.
    fn to_f32(self) -> f32;
    /// The nearest value of this type.
    fn from_f32(x: f32) -> Self;
    /// Returns the slice itself if this type is `f32`, so that it can be read in place.
    #[inline(always)]
    fn as_f32(data: &[Self]) -> Option<&[f32]> {
        let _ = data;
        None
    }
    /// Widens elements, up to the shorter length.
    #[inline(always)]
    fn widen(src: &[Self], dst: &mut [f32]) {
        for (d, s) in dst.iter_mut().zip(src) {
            *d = s.to_f32();
        }
    }
    /// Like [`widen`](Stored::widen), with the vector instructions `s`.
    #[inline(always)]
    fn widen_with<S: Simd>(s: S, src: &[Self], dst: &mut [f32]) {
        let _ = s;
        Self::widen(src, dst);
    }
    /// Narrows elements, up to the shorter length.
    #[inline(always)]
    fn narrow(src: &[f32], dst: &mut [Self]) {
        for (d, s) in dst.iter_mut().zip(src) {
            *d = Self::from_f32(*s);
        }
    }
}

impl Stored for f32 {
    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }
    #[inline(always)]
    fn from_f32(x: f32) -> f32 {
        x
    }
    #[inline(always)]
    fn as_f32(data: &[f32]) -> Option<&[f32]> {
        Some(data)
    }
}

impl Stored for half::f16 {
    #[inline(always)]
    fn to_f32(self) -> f32 {
        half::f16::to_f32(self)
    }
    #[inline(always)]
    fn from_f32(x: f32) -> half::f16 {
        half::f16::from_f32(x)
    }
    // The slice conversions of `half` use vector instructions if the processor has them, and detect
    // them once per call.
    #[cfg(feature = "std")]
    #[inline(always)]
    fn widen(src: &[Self], dst: &mut [f32]) {
        let len = src.len().min(dst.len());
        src[..len].convert_to_f32_slice(&mut dst[..len]);
    }
    #[inline(always)]
    fn widen_with<S: Simd>(s: S, src: &[Self], dst: &mut [f32]) {
        if !S::HAS_F16_LOADS {
            return Self::widen(src, dst);
        }
        let len = src.len().min(dst.len());
        let (src, dst) = (&src[..len], &mut dst[..len]);
        let full = len - len % S::LANES;
        for at in (0..full).step_by(S::LANES) {
            // SAFETY: `LANES` elements follow in both slices, since `at + LANES <= full <= len`.
            unsafe { s.store(dst.as_mut_ptr().add(at), s.load_f16(src.as_ptr().add(at))) };
        }
        Self::widen(&src[full..], &mut dst[full..]);
    }
    #[cfg(feature = "std")]
    #[inline(always)]
    fn narrow(src: &[f32], dst: &mut [Self]) {
        let len = src.len().min(dst.len());
        dst[..len].convert_from_f32_slice(&src[..len]);
    }
}

impl Stored for half::bf16 {
    #[inline(always)]
    fn to_f32(self) -> f32 {
        half::bf16::to_f32(self)
    }
    #[inline(always)]
    fn from_f32(x: f32) -> half::bf16 {
        half::bf16::from_f32(x)
    }
}
