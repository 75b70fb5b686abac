use super::{Coefficients, Planes, coefficients};
use crate::ThreadPool;
use crate::compute::simd::Tier;
use crate::compute::testing::Noise;
use crate::lines::{Lines, Target};
use torchlet_core::{Parallel, ScalarType, Serial, TensorInfo, TensorRef};

#[test]
fn planes_use_their_coefficients() {
    let mut noise = Noise::new(8);
    for tier in Tier::available() {
        for (inner, channels) in [(1, 1), (1, 5), (3, 4), (50, 3), (7, 1)] {
            let total = inner * channels * 3;
            let (x, scale) = (noise.floats(total), noise.floats(channels));
            let (mean, shift) = (noise.floats(channels), noise.floats(channels));
            for position in [0, total / 3, total - 1] {
                let src = &x[position..];
                let mut out = vec![0f32; total - position];
                let dst = &mut out[..];
                let coefficients = Coefficients { mean: &mean, scale: &scale, shift: &shift };
                tier.dispatch(Planes { src, dst, position, inner, coefficients });
                for (i, out) in (position..).zip(&out) {
                    let channel = i / inner % channels;
                    let expected = (x[i] - mean[channel]) * scale[channel] + shift[channel];
                    assert!((*out - expected).abs() < 1e-6f32);
                }
            }
        }
    }
}

/// Values close to each other and far from zero keep the digits in which they differ.
#[test]
fn means_far_from_zero_keep_precision() {
    let mut noise = Noise::new(9);
    let (wanted_mean, wanted_variance, eps) = (100_000.013_671, 0.37, 1e-5);
    let x: Vec<f32> = noise.floats(1000).iter().map(|x| 100_000.0 + x).collect();
    let mean = [wanted_mean as f32];
    let (mut low, mut variance) =
        ([(wanted_mean - f64::from(mean[0])) as f32], [wanted_variance as f32]);
    coefficients(None, None, 0, eps, &mut low, &mut variance);
    let deviation = (wanted_variance + f64::from(eps)).sqrt();
    for tier in Tier::available() {
        for inner in [1, 1000] {
            let mut out = vec![0f32; x.len()];
            let coefficients = Coefficients { mean: &mean, scale: &variance, shift: &low };
            tier.dispatch(Planes { src: &x, dst: &mut out, position: 0, inner, coefficients });
            for (x, out) in x.iter().zip(out) {
                let wanted = (f64::from(*x) - wanted_mean) / deviation;
                assert!((f64::from(out) - wanted).abs() < 5e-7, "{x}: {out} {wanted}");
            }
        }
    }
}

/// Every element of every line is visited once, in any layout.
#[test]
fn lines_visit_every_element_once() {
    let pool = ThreadPool::new(2);
    let sizes = [2, 3, 4, 70];
    let orders = [[0, 1, 2, 3], [0, 2, 3, 1], [3, 1, 0, 2], [2, 3, 1, 0]];
    for (i, order_in) in orders.iter().enumerate() {
        for order_out in orders {
            for dim in 0..4 {
                let parallel: &dyn Parallel = if i % 2 == 0 { &pool } else { &Serial };
                let mut input = TensorInfo::contiguous(ScalarType::Int, &sizes).unwrap();
                let mut out = input.clone();
                input.dim_order.copy_from_slice(order_in);
                out.dim_order.copy_from_slice(&order_out);
                let data: Vec<i32> = (0..input.numel() as i32).collect();
                let mut result = vec![-1i32; data.len()];
                let tensor = TensorRef::new(input.clone(), bytemuck::cast_slice(&data)).unwrap();
                let lines = Lines::new(&out, &input, dim).unwrap();
                let bytes = bytemuck::cast_slice_mut(&mut result);
                lines.for_each(parallel, bytes, 4, &|line, target| {
                    let mut values = vec![0i64; line.len.max(line.lanes)];
                    match target {
                        Target::Row(row) => {
                            let values = &mut values[..line.len];
                            line.load(&tensor, 0, values);
                            crate::number::store(ScalarType::Int, row, values);
                        }
                        Target::Lanes(lanes) => {
                            for number in 0..line.len {
                                let values = &mut values[..line.lanes];
                                line.load_lanes(&tensor, number, values);
                                crate::number::store(ScalarType::Int, lanes.row(number), values);
                            }
                        }
                    }
                });
                let (strides_in, strides_out) = (input.strides(), out.strides());
                for flat in 0..data.len() {
                    let index = [flat / 840, flat / 280 % 3, flat / 70 % 4, flat % 70];
                    let at = |strides: &[usize]| -> usize {
                        index.iter().zip(strides).map(|(i, stride)| i * stride).sum()
                    };
                    assert_eq!(result[at(&strides_out)], data[at(&strides_in)], "{flat} {dim}");
                }
            }
        }
    }
}
