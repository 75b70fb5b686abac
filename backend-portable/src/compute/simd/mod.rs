//! A small vector abstraction, and the [`Tier`], a token of the instruction set to use.
//!
//! A loop is written once, generic over [`Simd`], as a struct that implements [`Vectorized`].
//! [`Tier::dispatch`] calls it inside a function compiled for the instruction set of the tier. The
//! generic body must be `#[inline(always)]` throughout: only then is it inlined into the function
//! that carries `#[target_feature]`.
//!
//! A value of a type that implements [`Simd`] proves that the processor has the instruction set.
//! Arithmetic on vectors is therefore safe; only loads and stores through raw pointers are
//! `unsafe`.
//!
//! | build                       | `Tier::detect()`                                      |
//! |-----------------------------|-------------------------------------------------------|
//! | x86-64, feature `std`       | at run time: AVX-512, AVX2 + FMA, or scalar            |
//! | the same, feature `engine`  | on Linux, also AVX-512 with AMX                       |
//! | x86-64 without `std`        | as compiled (`-C target-feature`)                      |
//! | aarch64                     | NEON (part of the architecture's baseline)             |
//! | wasm32                      | `simd128` if compiled for it, otherwise scalar         |
//! | everything else             | scalar                                                |
//!
//! The scalar tier is always available. Its vectors have one lane, so that microcontrollers run the
//! same algorithms with tiles that fit their registers. Its transcendental functions come from
//! `libm`.

/// Lane-wise methods of [`Simd`], from vectors to a vector: `lanewise! { [isa] add(a, b) = …; }`,
/// where `isa!` wraps intrinsics that require the token.
macro_rules! lanewise {
    ([$isa:ident] $($name:ident($($arg:ident),+) = $result:expr;)+) => {
        lanewise! { $($name($($arg),+) = $isa!($result);)+ }
    };
    ($($name:ident($($arg:ident),+) = $result:expr;)+) => {
        $(
            #[inline(always)]
            fn $name(self, $($arg: Self::F),+) -> Self::F {
                $result
            }
        )+
    };
}

#[cfg(all(target_arch = "x86_64", feature = "engine"))]
mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(feature = "engine")]
mod dots;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;
#[cfg(feature = "engine")]
pub(crate) mod transpose;
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
mod wasm;

#[cfg(feature = "engine")]
pub(crate) use dots::Dots;
#[cfg(feature = "engine")]
#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")))]
pub(crate) use dots::Instructions;
pub use scalar::Scalar;

/// Upper bound of [`Simd::LANES`], for buffers on the stack.
pub const MAX_LANES: usize = 16;
/// Floats in a cache line.
pub(crate) const LINE: usize = 16;

/// A vector instruction set for `f32`. A value is a token that proves that the processor has the
/// instructions.
///
/// Lane-wise methods follow IEEE 754 except where stated otherwise.
pub trait Simd: Copy + Send + Sync + 'static {
    /// Lanes of a vector.
    const LANES: usize;
    /// Rows of the GEMM register tile, at most 8.
    const ROWS: usize;
    /// Vectors in a row of the GEMM register tile, at most 3. `ROWS * VECTORS` accumulators,
    /// `VECTORS` vectors of B and one vector of A must fit the register file.
    const VECTORS: usize;
    /// Whether [`Simd::mul_add`] rounds once.
    const FUSED: bool = true;
    /// Rows and columns of the square block that [`Simd::transpose`] transposes.
    const BLOCK: usize;
    /// Whether loops of constant length are worth unrolling. False if the compiler loads all
    /// vectors first, more than fit the registers.
    const UNROLLED: bool = true;
    /// A vector of `LANES` floats.
    type F: Copy;
    /// A mask of `LANES` truth values.
    type M: Copy;

    /// Runs a kernel inside a function compiled for this instruction set.
    fn vectorize<K: Vectorized>(self, kernel: K) -> K::Output;

    /// The vector with `x` in each lane.
    fn splat(self, x: f32) -> Self::F;
    /// Loads `LANES` floats.
    ///
    /// # Safety
    /// `p` is valid for reading `LANES` floats.
    unsafe fn load(self, p: *const f32) -> Self::F;
    /// Whether [`Simd::load_f16`] is a single instruction.
    const HAS_F16_LOADS: bool = false;
    /// Loads `LANES` fp16 values, widened to `f32`.
    ///
    /// # Safety
    /// `p` is valid for reading `LANES` values.
    #[inline(always)]
    unsafe fn load_f16(self, p: *const half::f16) -> Self::F {
        let mut lanes = [0.0; MAX_LANES];
        for (i, lane) in lanes.iter_mut().enumerate().take(Self::LANES) {
            // SAFETY: guaranteed by the caller.
            *lane = unsafe { *p.add(i) }.to_f32();
        }
        // SAFETY: the array holds MAX_LANES >= LANES floats.
        unsafe { self.load(lanes.as_ptr()) }
    }
    /// Prefetches the cache line of an address, which may be invalid.
    #[inline(always)]
    fn prefetch(self, p: *const f32) {
        let _ = p;
    }
    /// Prefetches the cache line of an address, which may be invalid, into the second-level cache.
    #[inline(always)]
    fn prefetch_second(self, p: *const f32) {
        let _ = p;
    }
    /// Prefetches the cache line of an address, which may be invalid, for a write.
    #[inline(always)]
    fn prefetch_write(self, p: *const f32) {
        let _ = p;
    }
    /// Stores `LANES` floats.
    ///
    /// # Safety
    /// `p` is valid for writing `LANES` floats.
    unsafe fn store(self, p: *mut f32, v: Self::F);
    /// Loads the first `n < LANES` floats and sets the other lanes to zero. Reads no memory after
    /// them.
    ///
    /// # Safety
    /// `p` is valid for reading `n` floats.
    unsafe fn load_first(self, p: *const f32, n: usize) -> Self::F;
    /// Stores the first `n < LANES` lanes. Writes no memory after them.
    ///
    /// # Safety
    /// `p` is valid for writing `n` floats.
    unsafe fn store_first(self, p: *mut f32, n: usize, v: Self::F);
    /// Loads `p[0], p[2], ..., p[2 * (LANES - 1)]`.
    ///
    /// # Safety
    /// `p` is valid for reading `2 * LANES - 1` floats.
    unsafe fn load_even(self, p: *const f32) -> Self::F;
    /// Like [`Simd::load_even`] for the first `n < LANES` lanes; the others are unspecified.
    ///
    /// # Safety
    /// `p` is valid for reading `2 * n - 1` floats, or `n` is 0.
    #[inline(always)]
    unsafe fn load_even_first(self, p: *const f32, n: usize) -> Self::F {
        let mut lanes = [0.0; MAX_LANES];
        for (i, lane) in lanes.iter_mut().enumerate().take(n) {
            // SAFETY: `2 * i <= 2 * n - 2`.
            *lane = unsafe { *p.add(2 * i) };
        }
        // SAFETY: the array holds MAX_LANES >= LANES floats.
        unsafe { self.load(lanes.as_ptr()) }
    }
    /// Transposes a block: `dst[j * dst_stride + i] = src[i * src_stride + j]` for `i, j < BLOCK`.
    ///
    /// # Safety
    /// All addressed elements are readable in `src` and writable in `dst`, and the two do not
    /// overlap.
    unsafe fn transpose(self, src: *const f32, src_stride: usize, dst: *mut f32, dst_stride: usize);

    /// Butterfly permutation: lane `l` of the result is lane `l ^ BY`. `BY` is a power of two less
    /// than `LANES`.
    #[inline(always)]
    fn swap<const BY: usize>(self, v: Self::F) -> Self::F {
        let lanes = self.to_array(v);
        let moved: [f32; MAX_LANES] = core::array::from_fn(|lane| lanes[(lane ^ BY) % MAX_LANES]);
        // SAFETY: the array holds MAX_LANES >= LANES floats.
        unsafe { self.load(moved.as_ptr()) }
    }

    /// `a + b`
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a - b`
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a * b`
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a / b`
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c`, with a single rounding if the tier is [`FUSED`](Simd::FUSED).
    fn mul_add(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// The smaller value of each lane; `b` if either is NaN.
    fn min(self, a: Self::F, b: Self::F) -> Self::F;
    /// The larger value of each lane; `b` if either is NaN.
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    /// `-a`
    fn neg(self, a: Self::F) -> Self::F;
    /// `|a|`
    fn abs(self, a: Self::F) -> Self::F;
    /// The magnitude of `a` with the sign of `sign`.
    fn copysign(self, a: Self::F, sign: Self::F) -> Self::F;
    /// Square root.
    fn sqrt(self, a: Self::F) -> Self::F;
    /// Rounds to the nearest integer, ties to even.
    fn round(self, a: Self::F) -> Self::F;
    /// `2^n` for lanes that hold integers in `-126..=127`; unspecified, without trapping, for other
    /// values.
    fn exp2i(self, n: Self::F) -> Self::F;
    /// `a * 2^n` for lanes of `n` that hold integers in `-252..=254`, rounded once if the result is
    /// normal.
    #[inline(always)]
    fn scale(self, a: Self::F, n: Self::F) -> Self::F {
        // Two factors, because `n` may exceed the range of normal exponents.
        let half = self.round(self.mul(n, self.splat(0.5)));
        self.mul(self.mul(a, self.exp2i(half)), self.exp2i(self.sub(n, half)))
    }
    /// `a < b`; false if either is NaN.
    fn lt(self, a: Self::F, b: Self::F) -> Self::M;
    /// True where `a` is NaN.
    fn is_nan(self, a: Self::F) -> Self::M;
    /// `t` where the mask is true, `f` elsewhere.
    fn select(self, m: Self::M, t: Self::F, f: Self::F) -> Self::F;
    /// The sum of the lanes.
    fn reduce_sum(self, a: Self::F) -> f32;

    /// Clamps each lane to `lo..=hi`; NaN stays NaN.
    #[inline(always)]
    fn clamp(self, x: Self::F, lo: Self::F, hi: Self::F) -> Self::F {
        self.min(hi, self.max(lo, x))
    }

    /// Loads `LANES` floats, or the first `n` if `n < LANES`.
    ///
    /// # Safety
    /// `p` is valid for reading `min(n, LANES)` floats.
    #[inline(always)]
    unsafe fn load_upto(self, p: *const f32, n: usize) -> Self::F {
        // SAFETY: guaranteed by the caller in both cases.
        unsafe { if n >= Self::LANES { self.load(p) } else { self.load_first(p, n) } }
    }

    /// Stores `LANES` lanes, or the first `n` if `n < LANES`.
    ///
    /// # Safety
    /// `p` is valid for writing `min(n, LANES)` floats.
    #[inline(always)]
    unsafe fn store_upto(self, p: *mut f32, n: usize, v: Self::F) {
        // SAFETY: guaranteed by the caller in both cases.
        unsafe { if n >= Self::LANES { self.store(p, v) } else { self.store_first(p, n, v) } }
    }

    /// The lanes as an array; elements from `LANES` on are unspecified.
    #[inline(always)]
    fn to_array(self, v: Self::F) -> [f32; MAX_LANES] {
        let mut lanes = [0.0; MAX_LANES];
        // SAFETY: the array holds MAX_LANES >= LANES floats.
        unsafe { self.store(lanes.as_mut_ptr(), v) };
        lanes
    }

    /// Applies a scalar function to each lane. For the scalar tier, and for functions that are too
    /// rarely used to vectorise.
    #[inline(always)]
    fn each(self, v: Self::F, f: impl Fn(f32) -> f32) -> Self::F {
        let mut lanes = self.to_array(v);
        for lane in &mut lanes[..Self::LANES] {
            *lane = f(*lane);
        }
        // SAFETY: the array holds MAX_LANES >= LANES floats.
        unsafe { self.load(lanes.as_ptr()) }
    }

    /// The largest lane; unspecified if a lane is NaN.
    #[inline(always)]
    fn reduce_max(self, v: Self::F) -> f32 {
        let lanes = self.to_array(v);
        lanes[1..Self::LANES].iter().fold(lanes[0], |a, &b| if b > a { b } else { a })
    }
}

/// A computation that is generic over the instruction set.
///
/// `run` must be `#[inline(always)]`, and so must everything in it that touches vectors.
pub trait Vectorized {
    /// The result of the computation.
    type Output;
    /// Runs the computation.
    fn run<S: Simd>(self, s: S) -> Self::Output;
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Isa {
    Scalar,
    #[cfg(target_arch = "x86_64")]
    Avx2Fma,
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// AVX-512, and AMX for int8 matrix multiplication.
    #[cfg(all(target_arch = "x86_64", feature = "engine"))]
    Amx,
    #[cfg(target_arch = "aarch64")]
    Neon,
    #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
    Simd128,
}

/// A tier, and a function that returns whether this processor supports it.
type Candidate = (Isa, fn() -> bool);

/// The instruction set to use. Detect it once, when a program is loaded, and pass it on.
///
/// The field is private: a tier other than scalar can only come from detection, so a value proves
/// that the processor has the instructions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Tier(Isa);

impl Tier {
    /// Plain Rust, one element at a time; valid on every processor.
    pub const SCALAR: Tier = Tier(Isa::Scalar);

    /// The best tier of this processor (see the table at the top of this module), or the tier that
    /// was [chosen](Self::choose).
    pub fn detect() -> Tier {
        #[cfg(feature = "std")]
        return *SELECTED.get_or_init(Tier::best);
        #[cfg(not(feature = "std"))]
        return Tier::best();
    }

    /// Makes this the tier of the whole process, to compare tiers or to isolate a fault. Weights
    /// are packed for a tier, so call this before the first program is loaded.
    ///
    /// # Errors
    /// Returns the tier in use if it is already set to a different one.
    #[cfg(feature = "std")]
    pub fn choose(self) -> Result<(), Tier> {
        match *SELECTED.get_or_init(|| self) {
            used if used == self => Ok(()),
            used => Err(used),
        }
    }

    fn best() -> Tier {
        Tier::available().last().unwrap_or(Tier::SCALAR)
    }

    /// Every tier that this processor supports, slowest first. The first is always the scalar tier.
    pub fn available() -> impl Iterator<Item = Tier> {
        let tiers: &'static [Candidate] = &[
            (Isa::Scalar, || true),
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx2Fma, has_avx2_fma),
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx512, has_avx512),
            #[cfg(all(target_arch = "x86_64", feature = "engine"))]
            (Isa::Amx, || has_avx512() && amx::has_amx()),
            #[cfg(target_arch = "aarch64")]
            (Isa::Neon, || cfg!(target_feature = "neon")),
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            (Isa::Simd128, || true),
        ];
        tiers.iter().filter(|(_, present)| present()).map(|&(isa, _)| Tier(isa))
    }

    /// Short name for logs: `scalar`, `avx2+fma`, `avx512`, `avx512+amx`, `neon`, `simd128`.
    pub const fn name(self) -> &'static str {
        match self.0 {
            Isa::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2Fma => "avx2+fma",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => "avx512",
            #[cfg(all(target_arch = "x86_64", feature = "engine"))]
            Isa::Amx => "avx512+amx",
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => "neon",
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            Isa::Simd128 => "simd128",
        }
    }

    /// Runs a kernel with the instructions of this tier.
    #[inline]
    pub fn dispatch<K: Vectorized>(self, kernel: K) -> K::Output {
        match self.0 {
            Isa::Scalar => Scalar.vectorize(kernel),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a tier with this value was detected on this processor.
            Isa::Avx2Fma => unsafe { avx2::Avx2::new() }.vectorize(kernel),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Isa::Avx512 => unsafe { avx512::Avx512::new() }.vectorize(kernel),
            #[cfg(all(target_arch = "x86_64", feature = "engine"))]
            // SAFETY: as above.
            Isa::Amx => unsafe { avx512::Avx512::new() }.vectorize(kernel),
            #[cfg(target_arch = "aarch64")]
            // SAFETY: as above.
            Isa::Neon => unsafe { neon::Neon::new() }.vectorize(kernel),
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            Isa::Simd128 => wasm::Simd128.vectorize(kernel),
        }
    }

    /// Whether this tier includes AVX-512.
    #[cfg(all(target_arch = "x86_64", feature = "engine"))]
    pub(crate) const fn is_avx512(self) -> bool {
        matches!(self.0, Isa::Avx512 | Isa::Amx)
    }

    /// Whether this tier includes AMX.
    #[cfg(all(target_arch = "x86_64", feature = "engine"))]
    pub(crate) const fn is_amx(self) -> bool {
        matches!(self.0, Isa::Amx)
    }

    /// Rows and columns of the GEMM register tile.
    pub(crate) const fn tile(self) -> (usize, usize) {
        match self.0 {
            Isa::Scalar => tile_of::<Scalar>(),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2Fma => tile_of::<avx2::Avx2>(),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => tile_of::<avx512::Avx512>(),
            #[cfg(all(target_arch = "x86_64", feature = "engine"))]
            Isa::Amx => tile_of::<avx512::Avx512>(),
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => tile_of::<neon::Neon>(),
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            Isa::Simd128 => tile_of::<wasm::Simd128>(),
        }
    }

    /// Lanes of a vector.
    pub const fn lanes(self) -> usize {
        match self.0 {
            Isa::Scalar => 1,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2Fma => avx2::Avx2::LANES,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => avx512::Avx512::LANES,
            #[cfg(all(target_arch = "x86_64", feature = "engine"))]
            Isa::Amx => avx512::Avx512::LANES,
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => neon::Neon::LANES,
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            Isa::Simd128 => wasm::Simd128::LANES,
        }
    }
}

/// The tier that this process uses.
#[cfg(feature = "std")]
static SELECTED: std::sync::OnceLock<Tier> = std::sync::OnceLock::new();

const fn tile_of<S: Simd>() -> (usize, usize) {
    (S::ROWS, S::LANES * S::VECTORS)
}

#[cfg(target_arch = "x86_64")]
fn has_avx2_fma() -> bool {
    #[cfg(feature = "std")]
    return std::arch::is_x86_feature_detected!("avx2")
        && std::arch::is_x86_feature_detected!("fma");
    #[cfg(not(feature = "std"))]
    return cfg!(all(target_feature = "avx2", target_feature = "fma"));
}

#[cfg(target_arch = "x86_64")]
fn has_avx512() -> bool {
    #[cfg(feature = "std")]
    return has_avx2_fma()
        && std::arch::is_x86_feature_detected!("avx512f")
        && std::arch::is_x86_feature_detected!("avx512dq")
        && std::arch::is_x86_feature_detected!("avx512bw")
        && std::arch::is_x86_feature_detected!("avx512vl");
    #[cfg(not(feature = "std"))]
    return has_avx2_fma()
        && cfg!(all(
            target_feature = "avx512f",
            target_feature = "avx512dq",
            target_feature = "avx512bw",
            target_feature = "avx512vl"
        ));
}

#[cfg(test)]
mod tests;
