use super::*;
use crate::compute::testing::Noise;

/// Checks every operation of a tier against plain Rust.
struct Operations;

impl Vectorized for Operations {
    type Output = ();

    fn run<S: Simd>(self, s: S) {
        let special = [
            0.0,
            -0.0,
            1.0,
            -1.5,
            2.5,
            3.5,
            f32::NAN,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::MIN_POSITIVE,
            1e-40,
            1e30,
            -7.25,
            100.5,
            0.5,
            -0.5,
        ];
        let mut noise = Noise::new(5);
        for round in 0..50 {
            let mut pick = || -> [f32; 16] {
                core::array::from_fn(|_| {
                    if round < 25 { special[noise.below(16)] } else { noise.floats(1)[0] * 9.0 }
                })
            };
            let (a, b, c) = (pick(), pick(), pick());
            // SAFETY: the arrays have MAX_LANES elements.
            let (x, y, z) = unsafe { (s.load(a.as_ptr()), s.load(b.as_ptr()), s.load(c.as_ptr())) };
            let check = |name: &str, got: S::F, want: &dyn Fn(usize) -> f32, ulps: u32| {
                let got = s.to_array(got);
                for i in 0..S::LANES {
                    let (g, w) = (got[i], want(i));
                    let same = g.to_bits() == w.to_bits() || (g.is_nan() && w.is_nan());
                    let near = g.to_bits().abs_diff(w.to_bits()) <= ulps;
                    assert!(same || near, "{name} {} {} {}: {g}, expected {w}", a[i], b[i], c[i]);
                }
            };
            check("add", s.add(x, y), &|i| a[i] + b[i], 0);
            check("sub", s.sub(x, y), &|i| a[i] - b[i], 0);
            check("mul", s.mul(x, y), &|i| a[i] * b[i], 0);
            check("div", s.div(x, y), &|i| a[i] / b[i], 0);
            if S::FUSED {
                // `f32::mul_add` calls the system's `fmaf`, and MinGW's rounds twice.
                check("mul_add", s.mul_add(x, y, z), &|i| libm::fmaf(a[i], b[i], c[i]), 0);
            }
            check("min", s.min(x, y), &|i| if a[i] < b[i] { a[i] } else { b[i] }, 0);
            check("max", s.max(x, y), &|i| if a[i] > b[i] { a[i] } else { b[i] }, 0);
            check("neg", s.neg(x), &|i| -a[i], 0);
            check("abs", s.abs(x), &|i| a[i].abs(), 0);
            check("copysign", s.copysign(x, y), &|i| a[i].copysign(b[i]), 0);
            check("sqrt", s.sqrt(x), &|i| a[i].sqrt(), 0);
            check("round", s.round(x), &|i| a[i].round_ties_even(), 0);
            check(
                "select",
                s.select(s.lt(x, y), x, z),
                &|i| if a[i] < b[i] { a[i] } else { c[i] },
                0,
            );
            check(
                "nan",
                s.select(s.is_nan(x), y, z),
                &|i| if a[i].is_nan() { b[i] } else { c[i] },
                0,
            );
            check("each", s.each(x, |v| v + 1.0), &|i| a[i] + 1.0, 0);
            if round >= 25 {
                let sum: f32 = a[..S::LANES].iter().sum();
                assert!((s.reduce_sum(x) - sum).abs() < 1e-4);
                assert_eq!(s.reduce_max(x), a[..S::LANES].iter().copied().fold(f32::MIN, f32::max));
            }
        }
        for n in -126..=127 {
            assert_eq!(s.to_array(s.exp2i(s.splat(n as f32)))[0], 2f32.powi(n));
        }
        for n in -252..=254 {
            let scaled = s.to_array(s.scale(s.splat(1.5), s.splat(n as f32)))[0];
            assert_eq!(scaled, (1.5 * 2f64.powi(n)) as f32, "1.5 * 2^{n}");
        }
        // The buffers are exactly as long as the access, so that an address sanitizer detects any
        // excess.
        for n in 1..S::LANES {
            let from: Vec<f32> = (0..n).map(|i| i as f32 + 1.0).collect();
            let mut to = vec![0.0; n];
            // SAFETY: both have n elements.
            let v = unsafe { s.load_first(from.as_ptr(), n) };
            assert!(
                s.to_array(v)[..S::LANES]
                    .iter()
                    .enumerate()
                    .all(|(i, &x)| x == if i < n { i as f32 + 1.0 } else { 0.0 })
            );
            // SAFETY: as above.
            unsafe { s.store_first(to.as_mut_ptr(), n, v) };
            assert_eq!(from, to);
        }
        let from: Vec<f32> = (0..2 * S::LANES - 1).map(|i| i as f32).collect();
        // SAFETY: `from` has exactly the required `2 * LANES - 1` elements.
        let even = s.to_array(unsafe { s.load_even(from.as_ptr()) });
        assert!((0..S::LANES).all(|i| even[i] == 2.0 * i as f32));
        for n in 1..S::LANES {
            let from: Vec<f32> = (0..2 * n - 1).map(|i| i as f32).collect();
            // SAFETY: as above.
            let even = s.to_array(unsafe { s.load_even_first(from.as_ptr(), n) });
            assert!((0..n).all(|i| even[i] == 2.0 * i as f32));
        }
        let halves: Vec<half::f16> = (0..=u16::MAX).map(half::f16::from_bits).collect();
        for halves in halves.chunks_exact(S::LANES) {
            // SAFETY: each chunk has `LANES` elements.
            let wide = s.to_array(unsafe { s.load_f16(halves.as_ptr()) });
            for (wide, half) in wide.iter().zip(halves) {
                assert!(*wide == half.to_f32() || wide.is_nan() && half.is_nan(), "{half}");
            }
        }
        let (rows, stride) = (S::BLOCK, S::BLOCK + 3);
        let from: Vec<f32> = (0..rows * stride).map(|i| i as f32).collect();
        let mut to = vec![-1.0; rows * stride];
        // SAFETY: both have BLOCK rows of `stride` >= BLOCK elements.
        unsafe { s.transpose(from.as_ptr(), stride, to.as_mut_ptr(), stride) };
        for i in 0..rows {
            for j in 0..stride {
                let want = if j < rows { from[j * stride + i] } else { -1.0 };
                assert_eq!(to[i * stride + j], want);
            }
        }
    }
}

#[test]
fn every_tier_matches_scalar_reference() {
    for tier in Tier::available() {
        tier.dispatch(Operations);
        assert!(tier.lanes() <= MAX_LANES);
    }
    assert!(Tier::available().any(|t| t == Tier::SCALAR));
    assert!(Tier::available().any(|t| t == Tier::detect()));
}
