//! Storage types that are computed with in `f32`.

/// A storage type that widens to `f32` without loss, and narrows by rounding to nearest.
pub trait Stored: Copy + Send + Sync + 'static {
    /// The value in single precision.
    fn to_f32(self) -> f32;
    /// The nearest value of this type.
    fn from_f32(x: f32) -> Self;
    /// The slice itself where this type is `f32`: then it can be read in place.
    #[inline(always)]
    fn as_f32(data: &[Self]) -> Option<&[f32]> {
        let _ = data;
        None
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

/// Widens `src` into `dst`, as far as the shorter reaches.
pub fn widen<E: Stored>(src: &[E], dst: &mut [f32]) {
    for (d, s) in dst.iter_mut().zip(src) {
        *d = s.to_f32();
    }
}

/// Narrows `src` into `dst`, as far as the shorter reaches.
pub fn narrow<E: Stored>(src: &[f32], dst: &mut [E]) {
    for (d, s) in dst.iter_mut().zip(src) {
        *d = E::from_f32(*s);
    }
}
