//! Element-wise operations with one or two inputs and one output: vectorised, and parallel if long.
//!
//! Each function is a type of its own instead of an enum value, so that an application links only
//! the functions that it uses.

use super::gemm::Context;
use super::math;
use super::simd::{Simd, Vectorized};
use super::split::{chunk_len, for_each_chunk_mut};

/// Minimum number of elements for each thread: less work does not pay for waking it.
const GRAIN: usize = 1 << 14;

/// An element-wise function with one input.
pub trait Map1: Copy + Send + Sync {
    /// Applies the function to each lane. Implementations are `#[inline(always)]`.
    fn apply<S: Simd>(self, s: S, x: S::F) -> S::F;
}

/// An element-wise function with two inputs.
pub trait Map2: Copy + Send + Sync {
    /// Applies the function to each pair of lanes. Implementations are `#[inline(always)]`.
    fn apply<S: Simd>(self, s: S, a: S::F, b: S::F) -> S::F;
}

macro_rules! maps {
    ($trait:ident: $($(#[$doc:meta])* $name:ident = |$s:ident, $($x:ident),+| $body:expr;)*) => {
        $($(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name;
        impl $trait for $name {
            #[inline(always)]
            fn apply<S: Simd>(self, $s: S, $($x: S::F),+) -> S::F {
                $body
            }
        })*
    };
}

maps! { Map1:
    /// `e^x`
    Exp = |s, x| math::exp(s, x);
    /// Hyperbolic tangent.
    Tanh = |s, x| math::tanh(s, x);
    /// `1 / (1 + e^-x)`
    Sigmoid = |s, x| math::sigmoid(s, x);
    /// The error function.
    Erf = |s, x| math::erf(s, x);
    /// `x * (1 + erf(x / sqrt 2)) / 2`
    Gelu = |s, x| math::gelu(s, x);
    /// The tanh approximation of [`Gelu`].
    GeluTanh = |s, x| math::gelu_tanh(s, x);
    /// `x / (1 + e^-x)`
    Silu = |s, x| math::silu(s, x);
    /// `clamp(x + 3, 0, 6) / 6`
    HardSigmoid = |s, x| {
        let six = s.splat(6.0);
        s.div(s.clamp(s.add(x, s.splat(3.0)), s.splat(0.0), six), six)
    };
    /// `x * clamp(x + 3, 0, 6) / 6`
    HardSwish = |s, x| {
        let six = s.splat(6.0);
        s.div(s.mul(x, s.clamp(s.add(x, s.splat(3.0)), s.splat(0.0), six)), six)
    };
    /// `-x`
    Neg = |s, x| s.neg(x);
    /// `|x|`
    Abs = |s, x| s.abs(x);
    /// Square root.
    Sqrt = |s, x| s.sqrt(x);
    /// `1 / sqrt(x)`
    Rsqrt = |s, x| s.div(s.splat(1.0), s.sqrt(x));
    /// `1 / x`
    Reciprocal = |s, x| s.div(s.splat(1.0), x);
}

maps! { Map2:
    /// `a + b`
    Add = |s, a, b| s.add(a, b);
    /// `a - b`
    Sub = |s, a, b| s.sub(a, b);
    /// `a * b`
    Mul = |s, a, b| s.mul(a, b);
    /// `a / b`
    Div = |s, a, b| s.div(a, b);
    /// The smaller value; NaN if either is NaN.
    Minimum = |s, a, b| s.select(s.is_nan(a), a, s.min(a, b));
    /// The larger value; NaN if either is NaN.
    Maximum = |s, a, b| s.select(s.is_nan(a), a, s.max(a, b));
}

/// `a + factor * b`
#[derive(Clone, Copy, Debug)]
pub struct AddScaled(pub f32);

impl Map2 for AddScaled {
    #[inline(always)]
    fn apply<S: Simd>(self, s: S, a: S::F, b: S::F) -> S::F {
        s.mul_add(s.splat(self.0), b, a)
    }
}

/// `clamp(x, .0, .1)`; NaN stays NaN.
#[derive(Clone, Copy, Debug)]
pub struct Clamp(pub f32, pub f32);

impl Map1 for Clamp {
    #[inline(always)]
    fn apply<S: Simd>(self, s: S, x: S::F) -> S::F {
        s.clamp(x, s.splat(self.0), s.splat(self.1))
    }
}

/// Binds the second input of a function: `With(Sub, 2.0)` is `x - 2`.
#[derive(Clone, Copy, Debug)]
pub struct With<M>(pub M, pub f32);

impl<M: Map2> Map1 for With<M> {
    #[inline(always)]
    fn apply<S: Simd>(self, s: S, x: S::F) -> S::F {
        self.0.apply(s, x, s.splat(self.1))
    }
}

/// Binds the first input of a function: `From(1.0, Sub)` is `1 - x`.
#[derive(Clone, Copy, Debug)]
pub struct From<M>(pub f32, pub M);

impl<M: Map2> Map1 for From<M> {
    #[inline(always)]
    fn apply<S: Simd>(self, s: S, x: S::F) -> S::F {
        self.1.apply(s, s.splat(self.0), x)
    }
}

struct One<'a, M>(M, Option<&'a [f32]>, &'a mut [f32]);

impl<M: Map1> Vectorized for One<'_, M> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let One(m, src, dst) = self;
        let len = src.map_or(dst.len(), |src| src.len().min(dst.len()));
        let to = dst.as_mut_ptr();
        let from = src.map_or(to.cast_const(), <[f32]>::as_ptr);
        let mut i = 0;
        while i < len {
            // SAFETY: at most `len - i` elements from index `i` on are accessed, and both slices
            // have `len`. Each element is read before it is written, so `from` may equal `to`.
            unsafe {
                s.store_upto(to.add(i), len - i, m.apply(s, s.load_upto(from.add(i), len - i)))
            };
            i += S::LANES;
        }
    }
}

struct Two<'a, M>(M, Option<&'a [f32]>, &'a [f32], &'a mut [f32]);

impl<M: Map2> Vectorized for Two<'_, M> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Two(m, a, b, dst) = self;
        let len = a.map_or(dst.len(), <[f32]>::len).min(b.len()).min(dst.len());
        let to = dst.as_mut_ptr();
        let (a, b) = (a.map_or(to.cast_const(), <[f32]>::as_ptr), b.as_ptr());
        let mut i = 0;
        while i < len {
            // SAFETY: as in `One`.
            unsafe {
                let (x, y) = (s.load_upto(a.add(i), len - i), s.load_upto(b.add(i), len - i));
                s.store_upto(to.add(i), len - i, m.apply(s, x, y));
            }
            i += S::LANES;
        }
    }
}

fn part(x: &[f32], start: usize, len: usize) -> &[f32] {
    x.get(start..).map_or(&[], |x| &x[..len.min(x.len())])
}

/// `dst[i] = m(src[i])`, up to the shorter length.
pub fn map1<M: Map1>(context: Context<'_>, m: M, src: &[f32], dst: &mut [f32]) {
    let chunk = chunk_len(context.parallel, dst.len(), GRAIN);
    for_each_chunk_mut(context.parallel, dst, chunk, &|i, dst| {
        context.tier.dispatch(One(m, Some(part(src, i * chunk, dst.len())), dst));
    });
}

/// `data[i] = m(data[i])`
pub fn map1_in_place<M: Map1>(context: Context<'_>, m: M, data: &mut [f32]) {
    let chunk = chunk_len(context.parallel, data.len(), GRAIN);
    for_each_chunk_mut(context.parallel, data, chunk, &|_, data| {
        context.tier.dispatch(One(m, None, data))
    });
}

/// `dst[i] = m(a[i], b[i])`, up to the shortest length.
pub fn map2<M: Map2>(context: Context<'_>, m: M, a: &[f32], b: &[f32], dst: &mut [f32]) {
    let chunk = chunk_len(context.parallel, dst.len(), GRAIN);
    for_each_chunk_mut(context.parallel, dst, chunk, &|i, dst| {
        let (a, b) = (part(a, i * chunk, dst.len()), part(b, i * chunk, dst.len()));
        context.tier.dispatch(Two(m, Some(a), b, dst));
    });
}

/// `a[i] = m(a[i], b[i])`, up to the shorter length.
pub fn map2_in_place<M: Map2>(context: Context<'_>, m: M, a: &mut [f32], b: &[f32]) {
    let chunk = chunk_len(context.parallel, a.len(), GRAIN);
    for_each_chunk_mut(context.parallel, a, chunk, &|i, a| {
        let b = part(b, i * chunk, a.len());
        context.tier.dispatch(Two(m, None, b, a));
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compute::simd::Tier;
    use crate::compute::split::Serial;
    use crate::compute::testing::Noise;
    use crate::compute::threads::ThreadPool;

    #[test]
    fn all_lengths_and_forms() {
        let pool = ThreadPool::new(2);
        let mut noise = Noise::new(9);
        for tier in Tier::available() {
            for len in (0..70).chain([100_000]) {
                let context = Context { tier, parallel: if len > 60 { &pool } else { &Serial } };
                let (a, b) = (noise.floats(len), noise.floats(len));
                let mut dst = vec![9.0; len + 1];
                map2(context, Sub, &a, &b, &mut dst);
                assert!((0..len).all(|i| dst[i] == a[i] - b[i]) && dst[len] == 9.0);
                map1(context, With(Sub, 0.5), &a, &mut dst);
                assert!((0..len).all(|i| dst[i] == a[i] - 0.5) && dst[len] == 9.0);
                let mut c = a.clone();
                map2_in_place(context, Maximum, &mut c, &b);
                assert!((0..len).all(|i| c[i] == a[i].max(b[i])));
                map1_in_place(context, From(1.0, Sub), &mut c);
                assert!((0..len).all(|i| c[i] == 1.0 - a[i].max(b[i])));
            }
        }
    }

    #[test]
    fn nan_is_kept() {
        for tier in Tier::available() {
            let context = Context { tier, parallel: &Serial };
            let (nan, one) = (vec![f32::NAN; 33], vec![1.0; 33]);
            let mut dst = vec![0.0; 33];
            let all_nan = |dst: &mut Vec<f32>| {
                assert!(dst.iter().all(|x| x.is_nan()));
                dst.fill(0.0);
            };
            map1(context, Clamp(0.0, 6.0), &nan, &mut dst);
            all_nan(&mut dst);
            for (a, b) in [(&nan, &one), (&one, &nan)] {
                map2(context, Minimum, a, b, &mut dst);
                all_nan(&mut dst);
                map2(context, Maximum, a, b, &mut dst);
                all_nan(&mut dst);
            }
        }
    }
}
