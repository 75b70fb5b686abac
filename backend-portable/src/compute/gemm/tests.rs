use super::*;
use crate::compute::split::Serial;
use crate::compute::testing::{Noise, assert_close};
use crate::compute::threads::ThreadPool;

/// Shapes around the borders of tiles, panels and blocks.
const SHAPES: &[(usize, usize, usize)] = &[
    (0, 3, 4),
    (3, 0, 4),
    (3, 4, 0),
    (1, 1, 1),
    (1, 17, 5),
    (1, 100, 300),
    (2, 33, 64),
    (3, 50, 65),
    (4, 49, 96),
    (5, 48, 7),
    (7, 3, 19),
    (8, 48, 513),
    (9, 49, 31),
    (13, 1, 40),
    (16, 96, 24),
    (17, 95, 23),
    (50, 2, 70),
    (50, 100, 1030),
    (64, 64, 64),
    (97, 50, 600),
    (100, 7, 3),
    (130, 145, 33),
    (200, 300, 40),
];

/// Properties of a test case besides its shape.
#[derive(Debug, Clone, Copy)]
struct Case {
    a_transposed: bool,
    b_transposed: bool,
    c_transposed: bool,
    gap: usize,
    alpha: f32,
    beta: f32,
    bias: usize,
    clamped: bool,
}

fn strides(rows: usize, cols: usize, transposed: bool, gap: usize) -> (usize, usize, usize) {
    let (row, col) = if transposed { (1, rows + gap) } else { (cols + gap, 1) };
    let len = if rows == 0 || cols == 0 { 0 } else { (rows - 1) * row + (cols - 1) * col + 1 };
    (row, col, len)
}

fn check<E: Stored>(
    context: Context<'_>,
    (m, n, k): (usize, usize, usize),
    case: Case,
    noise: &mut Noise,
) {
    let (ar, ac, al) = strides(m, k, case.a_transposed, case.gap);
    let (br, bc, bl) = strides(k, n, case.b_transposed, case.gap);
    let (cr, cc, cl) = strides(m, n, case.c_transposed, case.gap);
    let a: Vec<E> = noise.floats(al).iter().map(|&x| E::from_f32(x)).collect();
    let b: Vec<E> = noise.floats(bl).iter().map(|&x| E::from_f32(x)).collect();
    let before = if case.beta == 0.0 { vec![f32::NAN; cl] } else { noise.floats(cl) };
    let (row_bias, col_bias) = (noise.floats(m), noise.floats(n));
    let bias = [Bias::None, Bias::Rows(&row_bias), Bias::Cols(&col_bias)][case.bias];
    let (min, max) = if case.clamped { (-0.25, 0.5) } else { (f32::NEG_INFINITY, f32::INFINITY) };
    let epilogue = Epilogue { alpha: case.alpha, beta: case.beta, bias, min, max };

    let at = |i: usize, j: usize| {
        let sum: f64 = (0..k)
            .map(|p| {
                f64::from(a[i * ar + p * ac].to_f32()) * f64::from(b[p * br + j * bc].to_f32())
            })
            .sum();
        let mut x = f64::from(case.alpha) * sum
            + [0.0, f64::from(row_bias[i]), f64::from(col_bias[j])][case.bias];
        if case.beta != 0.0 {
            x += f64::from(case.beta) * f64::from(before[i * cr + j * cc]);
        }
        x.clamp(f64::from(min), f64::from(max))
    };
    let mut want = before.clone();
    for i in 0..m {
        for j in 0..n {
            want[i * cr + j * cc] = at(i, j) as f32;
        }
    }
    let lhs = Matrix::new(&a, m, k, ar, ac).unwrap();
    let rhs = Matrix::new(&b, k, n, br, bc).unwrap();
    let full = gemm_workspace_len(context.tier, context.parallel.threads(), m, n, k).unwrap();
    let tolerance = 2e-6 * (k as f32).sqrt().max(1.0) * 4.0;
    for len in [full, full / context.parallel.threads(), 0] {
        let mut workspace = vec![f32::NAN; len];
        let mut c = before.clone();
        let target = MatrixMut::new(&mut c, m, n, cr, cc).unwrap();
        gemm(context, lhs, rhs, target, &epilogue, &mut workspace).unwrap();
        assert_close(
            &c,
            &want,
            tolerance,
            &format!("{:?} {m}x{n}x{k} {case:?} workspace {len}", context.tier),
        );

        let mut storage = vec![f32::NAN; PackedRhs::len(context.tier, k, n).unwrap()];
        let packed = PackedRhs::pack(context, rhs, &mut storage).unwrap();
        let mut c = before.clone();
        let target = MatrixMut::new(&mut c, m, n, cr, cc).unwrap();
        gemm_packed(context, lhs, packed, target, &epilogue, &mut workspace).unwrap();
        assert_close(
            &c,
            &want,
            tolerance,
            &format!("packed {:?} {m}x{n}x{k} {case:?} workspace {len}", context.tier),
        );

        let nothing = E::from_f32(f32::NAN);
        let mut storage = vec![nothing; PackedRhs::len(context.tier, k, n).unwrap()];
        let packed = PackedRhs::pack_as_is(context, rhs, &mut storage).unwrap();
        let mut c = before.clone();
        let target = MatrixMut::new(&mut c, m, n, cr, cc).unwrap();
        gemm_packed(context, lhs, packed, target, &epilogue, &mut workspace).unwrap();
        assert_close(
            &c,
            &want,
            tolerance,
            &format!("as it is {:?} {m}x{n}x{k} {case:?} workspace {len}", context.tier),
        );
    }
}

fn all<E: Stored>(context: Context<'_>, shapes: &[(usize, usize, usize)]) {
    let mut noise = Noise::new(7);
    for (index, &shape) in shapes.iter().enumerate() {
        for bits in 0..8 {
            let salt = index + bits;
            check::<E>(
                context,
                shape,
                Case {
                    a_transposed: bits & 1 != 0,
                    b_transposed: bits & 2 != 0,
                    c_transposed: bits & 4 != 0,
                    gap: salt % 3,
                    alpha: if salt % 2 == 0 { 1.0 } else { -0.5 },
                    beta: [0.0, 1.0, 0.75][salt % 3],
                    bias: salt % 3,
                    clamped: salt % 5 < 2,
                },
                &mut noise,
            );
        }
    }
}

#[test]
fn every_tier_agrees_with_the_definition() {
    for tier in Tier::available() {
        all::<f32>(Context { tier, parallel: &Serial }, SHAPES);
    }
}

#[test]
fn threads_do_not_change_the_result() {
    let pool = ThreadPool::new(3);
    for tier in Tier::available() {
        all::<f32>(
            Context { tier, parallel: &pool },
            &[(64, 64, 64), (200, 300, 40), (1, 700, 300), (700, 1, 300), (97, 50, 600)],
        );
    }
}

#[test]
fn half_types_accumulate_in_single_precision() {
    for tier in Tier::available() {
        let context = Context { tier, parallel: &Serial };
        all::<half::f16>(context, &[(1, 17, 5), (9, 49, 31), (8, 48, 513), (50, 2, 70)]);
        all::<half::bf16>(context, &[(1, 17, 5), (9, 49, 31), (8, 48, 513), (50, 2, 70)]);
    }
}

#[test]
fn wrong_shapes_are_errors() {
    let x = [0.0f32; 12];
    assert!(Matrix::new(&x, 3, 4, 4, 1).is_some());
    assert!(Matrix::new(&x, 3, 5, 4, 1).is_none());
    assert!(Matrix::new(&x, usize::MAX, 2, usize::MAX, 1).is_none());
    let mut y = [0.0f32; 12];
    assert!(MatrixMut::new(&mut y, 3, 4, 3, 1).is_none(), "rows overlap");
    assert!(MatrixMut::new(&mut y, 3, 4, 1, 3).is_some());
    assert!(MatrixMut::new(&mut y, 2, 2, 0, 1).is_none());
    let context = Context { tier: Tier::detect(), parallel: &Serial };
    let a = Matrix::row_major(&x, 3, 4).unwrap();
    let c = MatrixMut::row_major(&mut y, 3, 3).unwrap();
    assert_eq!(gemm(context, a, a, c, &Epilogue::default(), &mut []), Err(ShapeMismatch));
    let c = MatrixMut::row_major(&mut y, 3, 3).unwrap();
    let bias = Epilogue { bias: Bias::Rows(&x[..2]), ..Epilogue::default() };
    assert_eq!(gemm(context, a, a.transposed(), c, &bias, &mut []), Err(ShapeMismatch));
    assert_eq!(PackedRhs::len(Tier::detect(), usize::MAX, 2), None);
}

#[test]
fn nan_passes_the_clamp() {
    for tier in Tier::available() {
        let context = Context { tier, parallel: &Serial };
        for n in [1, 5, 16, 50] {
            let (a, b) = (vec![f32::NAN; 8 * 6], vec![1.0; 6 * n]);
            let mut c = vec![0.0; 8 * n];
            let relu = Epilogue { min: 0.0, max: 6.0, ..Epilogue::default() };
            let (a, b) =
                (Matrix::row_major(&a, 8, 6).unwrap(), Matrix::row_major(&b, 6, n).unwrap());
            let mut workspace = vec![0.0; gemm_workspace_len(tier, 1, 8, n, 6).unwrap()];
            gemm(context, a, b, MatrixMut::row_major(&mut c, 8, n).unwrap(), &relu, &mut workspace)
                .unwrap();
            assert!(c.iter().all(|x| x.is_nan()), "{tier:?} {n}");
        }
    }
}
