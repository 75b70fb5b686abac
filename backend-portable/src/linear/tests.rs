//! Compares the matrix multiplication algorithms with each other and with a reference.

use super::{Addend, Batch, BatchedMatmul, MatrixLayout, fast, plain};
use crate::compute::testing::Noise;
use crate::walk::Steps;
use torchlet_core::rules::matmul::MatmulShape;
use torchlet_core::{Element, Scalar, Serial, TensorInfo, TensorRef};

/// A row-major or column-major matrix.
fn info<T: Element>(rows: usize, cols: usize, by_columns: bool) -> TensorInfo {
    let mut info = TensorInfo::contiguous(T::SCALAR_TYPE, &[rows as i32, cols as i32]).unwrap();
    if by_columns {
        info.dim_order = torchlet_core::Bounded::from_slice(&[1, 0]).unwrap();
    }
    info
}

struct Case {
    matmuls: BatchedMatmul,
    infos: [TensorInfo; 4],
    beta: f64,
    alpha: f64,
}

/// A matrix multiplication of random sizes, layouts and scales, with a broadcast addend.
fn case<T: Element>(noise: &mut Noise) -> Case {
    let [m, k, n] = [noise.below(70), noise.below(70), noise.below(70)];
    let (m, n) = if noise.below(4) == 0 { (m % 3, n) } else { (m, n % 40) };
    let mut one = |len: usize| if noise.below(2) == 0 { 1 } else { len };
    let (rows, cols) = (one(m), one(n));
    let mut flip = || noise.below(2) == 0;
    let infos = [
        info::<T>(m, k, flip()),
        info::<T>(k, n, flip()),
        info::<T>(m, n, flip()),
        info::<T>(rows, cols, flip()),
    ];
    let (beta, alpha) = (noise.below(3) as f64, noise.below(3) as f64);
    let steps = Steps::broadcast(&infos[2], &infos[3]).unwrap();
    let addend = Addend { arg: 0, beta: Scalar::Double(beta), steps };
    let mut batch = Batch::default();
    batch.push(1, [0; 3]);
    let matmuls = BatchedMatmul {
        args: [1, 2, 3],
        product: MatmulShape { batch: 1, m, k, n },
        layouts: [0, 1, 2].map(|i| MatrixLayout::last_two(&infos[i])),
        batch,
        alpha: Scalar::Double(alpha),
        addend: (beta != 0.0).then_some(addend),
        out: infos[2].clone(),
    };
    Case { matmuls, infos, beta, alpha }
}

/// Reference in double precision.
fn expected(case: &Case, [a, b, addend]: [&[f64]; 3]) -> Vec<f64> {
    let MatmulShape { m, k, n, .. } = case.matmuls.product;
    let at = |i: usize, row: usize, col: usize| {
        let strides = case.infos[i].strides();
        let (row, col) = (row.min(case.infos[i].size(0) - 1), col.min(case.infos[i].size(1) - 1));
        row * strides[0] + col * strides[1]
    };
    let mut out = vec![0.0; m * n];
    for i in 0..m {
        for j in 0..n {
            let sum: f64 = (0..k).map(|p| a[at(0, i, p)] * b[at(1, p, j)]).sum();
            out[at(2, i, j)] = case.alpha * sum + case.beta * addend[at(3, i, j)];
        }
    }
    out
}

#[test]
fn gemm_engine_and_plain_loop_match_reference() {
    let mut noise = Noise::new(1);
    let mut workspace = vec![0.0; 1 << 18];
    for round in 0..300 {
        let case = case::<f32>(&mut noise);
        let data = [0, 1, 3].map(|i| noise.floats(case.infos[i].numel()));
        let wide = data.each_ref().map(|d| d.iter().map(|&x| f64::from(x)).collect::<Vec<_>>());
        let want = expected(&case, [&wide[0], &wide[1], &wide[2]]);
        let tensor = |i: usize, data: &[f32]| {
            TensorRef::new(case.infos[i].clone(), bytemuck::cast_slice(data))
                .unwrap()
                .bytes()
                .to_vec()
        };
        let mut out = vec![f32::NAN; want.len()];
        let one = fast::One {
            matmuls: &case.matmuls,
            a: &data[0],
            b: &data[1],
            addend: Some(&data[2]),
            packed: &[],
        };
        let len = if round % 3 == 0 { 0 } else { workspace.len() };
        one.compute(&Serial, 0, &mut out, &mut workspace[..len]).unwrap();
        let close = |got: &[f32]| {
            got.iter().zip(&want).all(|(&g, &w)| (f64::from(g) - w).abs() < 1e-4 * w.abs().max(1.0))
        };
        assert!(close(&out), "engine {:?} {out:?} {want:?}", case.matmuls.product);
        let bytes = [tensor(0, &data[0]), tensor(1, &data[1]), tensor(3, &data[2])];
        let infos = [0, 1, 3].map(|i| case.infos[i].clone());
        let [a, b, addend] =
            [0, 1, 2].map(|i| TensorRef::new(infos[i].clone(), &bytes[i]).unwrap());
        out.fill(f32::NAN);
        let target = bytemuck::cast_slice_mut(&mut out);
        plain::compute::<f32>(&Serial, &case.matmuls, &a, &b, Some(&addend), target);
        assert!(close(&out), "plain {:?}", case.matmuls.product);
    }
}

#[test]
fn integers_wrap_around() {
    let mut noise = Noise::new(2);
    for _ in 0..50 {
        let case = case::<i8>(&mut noise);
        let data: [Vec<i8>; 3] =
            [0, 1, 3].map(|i| (0..case.infos[i].numel()).map(|_| noise.bits() as i8).collect());
        let wide = data.each_ref().map(|d| d.iter().map(|&x| f64::from(x)).collect::<Vec<_>>());
        let want = expected(&case, [&wide[0], &wide[1], &wide[2]]);
        let infos = [0, 1, 3].map(|i| case.infos[i].clone());
        let [a, b, addend] = [0, 1, 2]
            .map(|i| TensorRef::new(infos[i].clone(), bytemuck::cast_slice(&data[i])).unwrap());
        let mut out = vec![0i8; want.len()];
        let target = bytemuck::cast_slice_mut(&mut out);
        plain::compute::<i64>(&Serial, &case.matmuls, &a, &b, Some(&addend), target);
        assert!(out.iter().zip(&want).all(|(&g, &w)| g == w as i64 as i8));
    }
}
