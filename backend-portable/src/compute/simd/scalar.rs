//! The scalar tier: one lane, plain Rust, `libm`.

use super::{Simd, Vectorized};

/// Token of the scalar tier.
#[derive(Clone, Copy, Debug)]
pub struct Scalar;

impl Simd for Scalar {
    const LANES: usize = 1;
    // 4 x 3 accumulators and 3 + 1 operands use half of the 32 single-precision registers of a
    // Cortex-M4F.
    const ROWS: usize = 4;
    const VECTORS: usize = 3;
    const FUSED: bool = false;
    const BLOCK: usize = 1;
    type F = f32;
    type M = bool;

    #[inline(always)]
    fn vectorize<K: Vectorized>(self, kernel: K) -> K::Output {
        // Not inlined, so that a firmware image contains each kernel once.
        #[inline(never)]
        fn shell<K: Vectorized>(kernel: K) -> K::Output {
            kernel.run(Scalar)
        }
        shell(kernel)
    }
    #[inline(always)]
    fn splat(self, x: f32) -> f32 {
        x
    }
    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> f32 {
        // SAFETY: guaranteed by the caller.
        unsafe { *p }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: f32) {
        // SAFETY: guaranteed by the caller.
        unsafe { *p = v }
    }
    #[inline(always)]
    unsafe fn load_first(self, _: *const f32, _: usize) -> f32 {
        0.0
    }
    #[inline(always)]
    unsafe fn store_first(self, _: *mut f32, _: usize, _: f32) {}
    #[inline(always)]
    unsafe fn load_even(self, p: *const f32) -> f32 {
        // SAFETY: guaranteed by the caller.
        unsafe { *p }
    }
    #[inline(always)]
    unsafe fn transpose(self, src: *const f32, _: usize, dst: *mut f32, _: usize) {
        // SAFETY: guaranteed by the caller.
        unsafe { *dst = *src }
    }
    lanewise! {
        add(a, b) = a + b;
        sub(a, b) = a - b;
        mul(a, b) = a * b;
        div(a, b) = a / b;
    }
    #[inline(always)]
    fn mul_add(self, a: f32, b: f32, c: f32) -> f32 {
        // Without hardware support, a fused multiply-add is a slow library call, and `core` cannot
        // tell whether the hardware has it.
        a * b + c
    }
    lanewise! {
        min(a, b) = if a < b { a } else { b };
        max(a, b) = if a > b { a } else { b };
        neg(a) = -a;
        abs(a) = f32::from_bits(a.to_bits() & 0x7fff_ffff);
        copysign(a, sign) =
            f32::from_bits((a.to_bits() & 0x7fff_ffff) | (sign.to_bits() & 0x8000_0000));
        sqrt(a) = libm::sqrtf(a);
        round(a) = libm::rintf(a);
        exp2i(n) = f32::from_bits(((n as i32).wrapping_add(127) as u32) << 23);
    }
    #[inline(always)]
    fn lt(self, a: f32, b: f32) -> bool {
        a < b
    }
    #[inline(always)]
    fn is_nan(self, a: f32) -> bool {
        a.is_nan()
    }
    #[inline(always)]
    fn select(self, m: bool, t: f32, f: f32) -> f32 {
        if m { t } else { f }
    }
    #[inline(always)]
    fn reduce_sum(self, a: f32) -> f32 {
        a
    }
    #[inline(always)]
    fn each(self, v: f32, f: impl Fn(f32) -> f32) -> f32 {
        f(v)
    }
    #[inline(always)]
    fn reduce_max(self, v: f32) -> f32 {
        v
    }
}
