//! aarch64 with NEON: 4 lanes, 32 registers.

use super::{Simd, Vectorized};
use core::arch::aarch64::*;

/// Token of the NEON tier.
#[derive(Clone, Copy, Debug)]
pub(super) struct Neon(());

impl Neon {
    /// # Safety
    /// The processor has NEON.
    #[inline(always)]
    pub(super) const unsafe fn new() -> Self {
        Neon(())
    }
}

// Never inlined: a kernel called from another kernel (a register tile from the loops around it)
// must have all registers, without sharing them with vectors of the caller.
#[inline(never)]
#[target_feature(enable = "neon")]
fn shell<K: Vectorized>(kernel: K, s: Neon) -> K::Output {
    kernel.run(s)
}

/// Calls an intrinsic that is safe given the token.
macro_rules! isa {
    ($e:expr) => {
        // SAFETY: `self` exists, so the processor has NEON.
        unsafe { $e }
    };
}

impl Simd for Neon {
    const LANES: usize = 4;
    // 8 x 3 accumulators and 3 + 1 operands use 28 of 32 registers.
    const ROWS: usize = 8;
    const VECTORS: usize = 3;
    const BLOCK: usize = 4;
    type F = float32x4_t;
    type M = uint32x4_t;

    #[inline(always)]
    fn vectorize<K: Vectorized>(self, kernel: K) -> K::Output {
        isa!(shell(kernel, self))
    }
    #[inline(always)]
    fn splat(self, x: f32) -> float32x4_t {
        isa!(vdupq_n_f32(x))
    }
    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> float32x4_t {
        // SAFETY: guaranteed by the caller; the token proves the instruction set.
        unsafe { vld1q_f32(p) }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: float32x4_t) {
        // SAFETY: guaranteed by the caller; the token proves the instruction set.
        unsafe { vst1q_f32(p, v) }
    }
    #[inline(always)]
    unsafe fn load_first(self, p: *const f32, n: usize) -> float32x4_t {
        let mut lanes = [0.0f32; 4];
        for (i, lane) in lanes.iter_mut().enumerate().take(n) {
            // SAFETY: `i < n`, and the caller guarantees `n` readable floats.
            *lane = unsafe { *p.add(i) };
        }
        // SAFETY: the array holds four floats; the token proves the instruction set.
        unsafe { vld1q_f32(lanes.as_ptr()) }
    }
    #[inline(always)]
    unsafe fn store_first(self, p: *mut f32, n: usize, v: float32x4_t) {
        let mut lanes = [0.0f32; 4];
        // SAFETY: the array holds four floats; the token proves the instruction set.
        unsafe { vst1q_f32(lanes.as_mut_ptr(), v) };
        for (i, &lane) in lanes.iter().enumerate().take(n) {
            // SAFETY: `i < n`, and the caller guarantees `n` writable floats.
            unsafe { *p.add(i) = lane };
        }
    }
    #[inline(always)]
    unsafe fn load_even(self, p: *const f32) -> float32x4_t {
        // SAFETY: reads p[0..4] and p[3..7], 2 * 4 - 1 floats in total; the token proves the
        // instruction set.
        unsafe {
            let a = vld1q_f32(p);
            let b = vld1q_f32(p.add(3));
            vcombine_f32(vget_low_f32(vuzp1q_f32(a, a)), vget_low_f32(vuzp2q_f32(b, b)))
        }
    }
    #[inline(always)]
    unsafe fn transpose(
        self,
        src: *const f32,
        src_stride: usize,
        dst: *mut f32,
        dst_stride: usize,
    ) {
        // SAFETY: guaranteed by the caller for a 4 x 4 block; the token proves the instruction set.
        unsafe {
            let r = |i: usize| vld1q_f32(src.add(i * src_stride));
            let (r0, r1, r2, r3) = (r(0), r(1), r(2), r(3));
            let (a0, a1) = (vtrn1q_f32(r0, r1), vtrn2q_f32(r0, r1));
            let (a2, a3) = (vtrn1q_f32(r2, r3), vtrn2q_f32(r2, r3));
            let lo = |x, y| vcombine_f32(vget_low_f32(x), vget_low_f32(y));
            let hi = |x, y| vcombine_f32(vget_high_f32(x), vget_high_f32(y));
            vst1q_f32(dst, lo(a0, a2));
            vst1q_f32(dst.add(dst_stride), lo(a1, a3));
            vst1q_f32(dst.add(2 * dst_stride), hi(a0, a2));
            vst1q_f32(dst.add(3 * dst_stride), hi(a1, a3));
        }
    }
    lanewise! {
        [isa]
        add(a, b) = vaddq_f32(a, b);
        sub(a, b) = vsubq_f32(a, b);
        mul(a, b) = vmulq_f32(a, b);
        div(a, b) = vdivq_f32(a, b);
        mul_add(a, b, c) = vfmaq_f32(c, a, b);
        min(a, b) = vbslq_f32(vcltq_f32(a, b), a, b);
        max(a, b) = vbslq_f32(vcgtq_f32(a, b), a, b);
        neg(a) = vnegq_f32(a);
        abs(a) = vabsq_f32(a);
        copysign(a, sign) = vbslq_f32(vdupq_n_u32(0x8000_0000), sign, a);
        sqrt(a) = vsqrtq_f32(a);
        round(a) = vrndnq_f32(a);
        exp2i(n) = {
            let biased = vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127));
            vreinterpretq_f32_s32(vshlq_n_s32::<23>(biased))
        };
    }
    #[inline(always)]
    fn lt(self, a: float32x4_t, b: float32x4_t) -> uint32x4_t {
        isa!(vcltq_f32(a, b))
    }
    #[inline(always)]
    fn is_nan(self, a: float32x4_t) -> uint32x4_t {
        isa!(vmvnq_u32(vceqq_f32(a, a)))
    }
    #[inline(always)]
    fn select(self, m: uint32x4_t, t: float32x4_t, f: float32x4_t) -> float32x4_t {
        isa!(vbslq_f32(m, t, f))
    }
    #[inline(always)]
    fn reduce_sum(self, a: float32x4_t) -> f32 {
        isa!(vaddvq_f32(a))
    }
    // `min` and `max` use compare and select: `vminq_f32` and `vmaxq_f32` return NaN if either
    // operand is NaN, the trait requires the second operand.
}
