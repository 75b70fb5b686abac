//! WebAssembly with 128-bit vectors: 4 lanes, and as many registers as the engine's target has (16
//! on x86-64).
//!
//! A module is validated as a whole, so there is no run-time detection:
//! `-C target-feature=+simd128` declares that the engine supports it. With `+relaxed-simd`,
//! multiply-adds are fused if the processor supports it.

use super::{Simd, Vectorized};
use core::arch::wasm32::*;

/// Token of the `simd128` tier.
#[derive(Clone, Copy, Debug)]
pub(super) struct Simd128;

// Never inlined, as in the other tiers: a kernel called from another kernel must have all
// registers.
#[inline(never)]
fn shell<K: Vectorized>(kernel: K) -> K::Output {
    kernel.run(Simd128)
}

impl Simd for Simd128 {
    const LANES: usize = 4;
    // On x86-64, V8 has fewer than 16 registers to allocate, and keeps nine accumulators, a row of
    // B and an element of A in them. With one more row or vector it spills accumulators in each
    // step and halves the speed.
    const ROWS: usize = 3;
    const VECTORS: usize = 3;
    // With `relaxed-simd`, the WebAssembly engine may round once or twice.
    const FUSED: bool = false;
    const BLOCK: usize = 4;
    // V8 loads all vectors of an unrolled loop first.
    const UNROLLED: bool = false;
    type F = v128;
    type M = v128;

    #[inline(always)]
    fn vectorize<K: Vectorized>(self, kernel: K) -> K::Output {
        shell(kernel)
    }
    #[inline(always)]
    fn splat(self, x: f32) -> v128 {
        f32x4_splat(x)
    }
    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> v128 {
        // SAFETY: the caller guarantees four floats; any alignment is valid.
        unsafe { v128_load(p.cast()) }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: v128) {
        // SAFETY: the caller guarantees four floats; any alignment is valid.
        unsafe { v128_store(p.cast(), v) }
    }
    #[inline(always)]
    unsafe fn load_first(self, p: *const f32, n: usize) -> v128 {
        let mut lanes = [0.0f32; 4];
        for (i, lane) in lanes.iter_mut().enumerate().take(n) {
            // SAFETY: `i < n`, and the caller guarantees `n` readable floats.
            *lane = unsafe { *p.add(i) };
        }
        let [a, b, c, d] = lanes;
        f32x4(a, b, c, d)
    }
    #[inline(always)]
    unsafe fn store_first(self, p: *mut f32, n: usize, v: v128) {
        let mut lanes = [0.0f32; 4];
        // SAFETY: the array holds four floats.
        unsafe { v128_store(lanes.as_mut_ptr().cast(), v) };
        for (i, &lane) in lanes.iter().enumerate().take(n) {
            // SAFETY: `i < n`, and the caller guarantees `n` writable floats.
            unsafe { *p.add(i) = lane };
        }
    }
    #[inline(always)]
    unsafe fn load_even(self, p: *const f32) -> v128 {
        // SAFETY: reads p[0..4] and p[3..7], 2 * 4 - 1 floats in total.
        let (a, b) = unsafe { (v128_load(p.cast()), v128_load(p.add(3).cast())) };
        i32x4_shuffle::<0, 2, 5, 7>(a, b)
    }
    #[inline(always)]
    unsafe fn transpose(
        self,
        src: *const f32,
        src_stride: usize,
        dst: *mut f32,
        dst_stride: usize,
    ) {
        // SAFETY: guaranteed by the caller for a 4 x 4 block.
        let r = |i: usize| unsafe { v128_load(src.add(i * src_stride).cast()) };
        let (r0, r1, r2, r3) = (r(0), r(1), r(2), r(3));
        let (low01, low23) =
            (i32x4_shuffle::<0, 4, 1, 5>(r0, r1), i32x4_shuffle::<0, 4, 1, 5>(r2, r3));
        let (high01, high23) =
            (i32x4_shuffle::<2, 6, 3, 7>(r0, r1), i32x4_shuffle::<2, 6, 3, 7>(r2, r3));
        let columns = [
            i64x2_shuffle::<0, 2>(low01, low23),
            i64x2_shuffle::<1, 3>(low01, low23),
            i64x2_shuffle::<0, 2>(high01, high23),
            i64x2_shuffle::<1, 3>(high01, high23),
        ];
        for (j, column) in columns.into_iter().enumerate() {
            // SAFETY: as above.
            unsafe { v128_store(dst.add(j * dst_stride).cast(), column) };
        }
    }
    lanewise! {
        add(a, b) = f32x4_add(a, b);
        sub(a, b) = f32x4_sub(a, b);
        mul(a, b) = f32x4_mul(a, b);
        div(a, b) = f32x4_div(a, b);
    }
    #[inline(always)]
    fn mul_add(self, a: v128, b: v128, c: v128) -> v128 {
        #[cfg(target_feature = "relaxed-simd")]
        return f32x4_relaxed_madd(a, b, c);
        #[cfg(not(target_feature = "relaxed-simd"))]
        return f32x4_add(f32x4_mul(a, b), c);
    }
    // The `pmin`/`pmax` forms compare and select, as the trait requires; `min`/`max` return NaN if
    // either operand is NaN.
    lanewise! {
        min(a, b) = f32x4_pmin(b, a);
        max(a, b) = f32x4_pmax(b, a);
        neg(a) = f32x4_neg(a);
        abs(a) = f32x4_abs(a);
        copysign(a, sign) = v128_bitselect(sign, a, u32x4_splat(0x8000_0000));
        sqrt(a) = f32x4_sqrt(a);
        round(a) = f32x4_nearest(a);
    }
    #[inline(always)]
    fn exp2i(self, n: v128) -> v128 {
        // The conversion saturates.
        i32x4_shl(i32x4_add(i32x4_trunc_sat_f32x4(n), i32x4_splat(127)), 23)
    }
    lanewise! {
        lt(a, b) = f32x4_lt(a, b);
        is_nan(a) = f32x4_ne(a, a);
        select(m, t, f) = v128_bitselect(t, f, m);
    }
    #[inline(always)]
    fn reduce_sum(self, a: v128) -> f32 {
        let pairs = f32x4_add(a, i32x4_shuffle::<2, 3, 0, 1>(a, a));
        f32x4_extract_lane::<0>(pairs) + f32x4_extract_lane::<1>(pairs)
    }
}
