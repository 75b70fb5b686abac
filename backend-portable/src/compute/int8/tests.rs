//! Tests of all instruction sets against scalar sums.

use super::elementwise::{self, Scaled};
use super::left::Left;
use super::matmul::{gemm, workspace_len};
use super::rows::{self, Columns, Nibbles, RowsLayout, gemm_windows};
use super::scales::{self, GroupScales};
use super::windows::Windows;
use super::{Exact, Range, Requantize, depthwise, pack};
use crate::compute::gemm::Context;
use crate::compute::simd::{Dots, Tier};
use crate::compute::split::Serial;
use crate::compute::testing::Noise;
use std::vec;
use std::vec::Vec;
use torchlet_core::Parallel;
use torchlet_core::rules::window::Window;

const RANGE: Range = Range { zero: -3, low: -100, high: 120 };

/// Reports three threads, so that work is split, but runs all tasks on the calling thread.
struct Three;

impl Parallel for Three {
    fn threads(&self) -> usize {
        3
    }

    fn run(&self, count: usize, task: &(dyn Fn(usize) + Sync)) {
        (0..count).for_each(task);
    }
}

fn machines() -> impl Iterator<Item = Context<'static>> {
    let contexts = |tier| {
        let all: [&'static dyn Parallel; 2] = [&Serial, &Three];
        all.map(|parallel| Context { tier, parallel })
    };
    Tier::available().flat_map(contexts)
}

/// Words of workspace for a GEMM.
fn gemm_workspace(context: Context<'_>, rows: usize, shape: [usize; 2], left: &Left<'_>) -> usize {
    workspace_len(context.parallel.threads(), rows, shape, left, Dots::of(context.tier))
}

fn random_values(noise: &mut Noise, count: usize) -> Vec<i8> {
    (0..count).map(|_| noise.below(256) as u8 as i8).collect()
}

/// Requantized sum, computed without intermediate rounding.
fn expected(sum: i64, scale: f32, bias: f32) -> i8 {
    let number = f64::from(sum as f32 * scale + bias).round_ties_even() + f64::from(RANGE.zero);
    number.clamp(RANGE.low.into(), RANGE.high.into()) as i8
}

/// Multipliers, shifts and `f32` scales of columns; a third of them has many ties.
fn factors(noise: &mut Noise, count: usize) -> (Vec<i32>, Vec<i32>, Vec<f32>) {
    let multipliers: Vec<i32> = (0..count)
        .map(|at| (1 << 30) + if at % 3 == 0 { 0 } else { noise.below(1 << 30) as i32 })
        .collect();
    let shifts: Vec<i32> = (0..count).map(|at| 34 + (at % 7) as i32).collect();
    let scale = |at: usize| f64::from(multipliers[at]) / 2f64.powi(shifts[at]);
    let scales = (0..count).map(|at| scale(at) as f32).collect();
    (multipliers, shifts, scales)
}

/// Sum that is rescaled in integers.
fn rescaled(sum: i64, multiplier: i32, shift: i32) -> i8 {
    let number = (sum * i64::from(multiplier) + (1 << (shift - 1))) >> shift;
    (number + i64::from(RANGE.zero)).clamp(RANGE.low.into(), RANGE.high.into()) as i8
}

#[test]
fn factors_are_those_of_scales() {
    let mut noise = Noise::new(3);
    let (multipliers, shifts, _) = factors(&mut noise, 100);
    for (multiplier, shift) in multipliers.into_iter().zip(shifts) {
        let scale = f64::from(multiplier) / 2f64.powi(shift);
        assert_eq!(Exact::factor(scale), Some((multiplier, shift)));
    }
    assert_eq!(Exact::factor(1.0), Some((1 << 30, 30)));
    assert_eq!(Exact::factor(2f64.powi(-32)), Some((1 << 30, 62)));
    let others = [0.0, -1.0, f64::NAN, f64::INFINITY, 2f64.powi(-33), 2f64.powi(30), 1e-310];
    let more = 1.0 + 2f64.powi(-31);
    assert!(others.into_iter().chain([more]).all(|scale| Exact::factor(scale).is_none()));
}

/// Asserts equality, except for a few values at ties, where fused multiply-add rounds differently.
fn check(found: &[i8], expected: &[i8], what: &str) {
    let differ: Vec<usize> = (0..found.len()).filter(|at| found[*at] != expected[*at]).collect();
    let is_near = |at: &usize| found[*at].abs_diff(expected[*at]) <= 1;
    assert!(differ.iter().all(is_near) && differ.len() * 500 <= found.len(), "{what}: {differ:?}");
}

#[test]
fn gemm_is_exact() {
    let mut noise = Noise::new(1);
    for [m, k, n] in [[1, 3, 1], [1, 8, 70], [5, 16, 16], [13, 20, 33], [30, 7, 100], [50, 64, 48]]
    {
        let (a, b) = (random_values(&mut noise, m * k), random_values(&mut noise, n * k));
        let mut packed = vec![0.0; pack::packed_len([k, n]).unwrap()];
        pack::pack([k, n], |row, col| b.get(col * k + row).copied(), &mut packed).unwrap();
        let packed = pack::Packed::of([k, n], &packed).unwrap();
        let scale: Vec<f32> = (0..pack::padded(n)).map(|at| 0.001 + at as f32 * 1e-5).collect();
        let bias: Vec<f32> = (0..pack::padded(n)).map(|at| at as f32 * 0.3 - 4.0).collect();
        let zero = 17;
        let dot = |row: usize, col: usize| -> i64 {
            (0..k).map(|at| (i64::from(a[row * k + at]) - zero) * i64::from(b[col * k + at])).sum()
        };
        let wanted: Vec<i8> = (0..m * n)
            .map(|at| expected(dot(at / n, at % n), scale[at % n], bias[at % n]))
            .collect();
        for context in machines() {
            let offset = Dots::of(context.tier).offset();
            let start = packed.sums.iter().map(|sum| -(zero as i32 + offset) * sum);
            let start: Vec<i32> = start.collect();
            let columns = Requantize {
                start: &start,
                scales: &scale,
                bias: &bias,
                range: RANGE,
                exact: None,
            };
            let left = Left::Rows(&a, k);
            let mut workspace = vec![0.0; gemm_workspace(context, m, [k, n], &left)];
            let mut out = vec![0; m * n];
            gemm(context, m, left, packed, &columns, &mut out, &mut workspace).unwrap();
            check(&out, &wanted, &std::format!("{m} {k} {n} {:?}", context.tier));
            let (multipliers, shifts, scales) = factors(&mut noise, pack::padded(n));
            let exact = Some(Exact { multipliers: &multipliers, shifts: &shifts });
            let bias = vec![0.0; pack::padded(n)];
            let columns =
                Requantize { start: &start, scales: &scales, bias: &bias, range: RANGE, exact };
            gemm(context, m, left, packed, &columns, &mut out, &mut workspace).unwrap();
            for (at, found) in out.iter().enumerate() {
                let (row, col) = (at / n, at % n);
                let wanted = rescaled(dot(row, col), multipliers[col], shifts[col]);
                assert_eq!(*found, wanted, "{m} {k} {n} {:?}: {row} {col}", context.tier);
            }
            let short = &mut workspace[..0];
            let left = Left::Rows(&a[1..], k);
            let missing = gemm(context, m, left, packed, &columns, &mut out, short);
            assert!(missing.is_err(), "an input value is missing");
        }
    }
}

#[test]
fn convolutions_are_exact() {
    let mut noise = Noise::new(2);
    let window =
        |kernel, stride, padding, dilation| Window::new(kernel, stride, padding, dilation).unwrap();
    let cases = [
        ([7, 9, 3], [window(3, 2, 1, 1), window(3, 2, 1, 1)], 10),
        ([5, 6, 33], [window(3, 1, 1, 1), window(5, 1, 2, 1)], 4),
        ([9, 8, 40], [window(2, 1, 0, 2), window(3, 1, 2, 2)], 20),
        ([3, 3, 16], [Window::ONE, Window::ONE], 40),
        ([11, 9, 8], [window(3, 1, 2, 2), window(3, 1, 1, 1)], 20),
        ([8, 10, 4], [window(3, 2, 1, 1), window(3, 2, 1, 1)], 70),
        ([6, 7, 12], [window(5, 1, 0, 1), window(1, 1, 3, 1)], 33),
        ([19, 1, 36], [window(5, 2, 2, 1), Window::ONE], 10),
        ([12, 1, 40], [window(3, 1, 2, 2), Window::ONE], 18),
    ];
    for (input, axes, n) in cases {
        let (batch, zero) = (2, -5i8);
        let windows = Windows::new(input, axes).unwrap();
        let channels = input[2];
        let taps = axes[0].kernel() * axes[1].kernel();
        let image = random_values(&mut noise, batch * windows.image());
        let weights = random_values(&mut noise, n.max(channels) * windows.window_len());
        let [_, wide] = windows.output;
        // Value of a window's tap; zero outside the image.
        let tap = |at: usize, tap: usize, channel: usize| -> i64 {
            let (sample, at) = (at / windows.count(), at % windows.count());
            let position = |axis: &Window, at: usize, tap: usize, size: usize| {
                let position = axis.origin(at) + (tap * axis.dilation()) as i64;
                usize::try_from(position).ok().filter(|position| *position < size)
            };
            let y = position(&axes[0], at / wide, tap / axes[1].kernel(), input[0]);
            let x = position(&axes[1], at % wide, tap % axes[1].kernel(), input[1]);
            let (Some(y), Some(x)) = (y, x) else { return 0 };
            let at = sample * windows.image() + (y * input[1] + x) * channels + channel;
            i64::from(image[at]) - i64::from(zero)
        };
        let rows = batch * windows.count();
        let k = windows.window_len();
        let mut packed = vec![0.0; pack::packed_len([k, n]).unwrap()];
        pack::pack([k, n], |row, col| weights.get(col * k + row).copied(), &mut packed).unwrap();
        let packed = pack::Packed::of([k, n], &packed).unwrap();
        let scale: Vec<f32> = (0..256).map(|at| 0.002 + at as f32 * 1e-5).collect();
        let bias: Vec<f32> = (0..256).map(|at| at as f32 * 0.1 - 2.0).collect();
        let sum = |row: usize, col: usize| -> i64 {
            let each = |at: usize| {
                tap(row, at / channels, at % channels) * i64::from(weights[col * k + at])
            };
            (0..k).map(each).sum()
        };
        let wanted: Vec<i8> = (0..rows * n)
            .map(|at| expected(sum(at / n, at % n), scale[at % n], bias[at % n]))
            .collect();
        let mut single = vec![0.0; depthwise::packed_len(taps, channels).unwrap()];
        let element = |tap: usize, channel: usize| weights.get(tap * channels + channel).copied();
        depthwise::pack(taps, channels, element, &mut single).unwrap();
        let single = depthwise::Packed::of(taps, channels, &single).unwrap();
        let each = |row: usize, channel: usize| -> i64 {
            let taps = 0..taps;
            taps.map(|at| tap(row, at, channel) * i64::from(weights[at * channels + channel])).sum()
        };
        let wanted_single: Vec<i8> = (0..rows * channels)
            .map(|at| {
                expected(
                    each(at / channels, at % channels),
                    scale[at % channels] * 5.0,
                    bias[at % channels],
                )
            })
            .collect();
        for context in machines() {
            let what = std::format!("{input:?} {axes:?} {:?}", context.tier);
            let offset = Dots::of(context.tier).offset();
            let start = |sums: &[i32], offset: i32| -> Vec<i32> {
                sums.iter().map(|sum| -(i32::from(zero) + offset) * sum).collect()
            };
            let starts = start(packed.sums, offset);
            let columns = Requantize {
                start: &starts,
                scales: &scale,
                bias: &bias,
                range: RANGE,
                exact: None,
            };
            let left = Left::Windows(&image, &windows, zero);
            let mut workspace = vec![0.0; gemm_workspace(context, rows, [k, n], &left)];
            let mut out = vec![0; rows * n];
            gemm(context, rows, left, packed, &columns, &mut out, &mut workspace).unwrap();
            check(&out, &wanted, &what);

            let position = |at: usize| at / 32 * 32 + depthwise::channel(at % 32);
            let [scales, biases] = [&scale, &bias].map(|all| {
                (0..depthwise::padded(channels)).map(|at| all[position(at)]).collect::<Vec<f32>>()
            });
            let scales: Vec<f32> = scales.iter().map(|scale| scale * 5.0).collect();
            let starts = start(single.sums, 0);
            let columns = Requantize {
                start: &starts,
                scales: &scales,
                bias: &biases,
                range: RANGE,
                exact: None,
            };
            let mut out = vec![0; rows * channels];
            let outside = vec![zero; channels];
            let quantized = &image;
            // Images of one column, also computed as images of one row.
            let rows = windows.along_rows();
            assert_eq!(rows.input[0] == 1, input[1] == 1, "{what}");
            for windows in [&windows, &rows] {
                let images = depthwise::Images { batch, windows, quantized, outside: &outside };
                depthwise::convolve(context, &images, single, &columns, &mut out).unwrap();
                check(&out, &wanted_single, &what);
                let (multipliers, shifts, scales) = factors(&mut noise, starts.len());
                let exact = Some(Exact { multipliers: &multipliers, shifts: &shifts });
                let bias = vec![0.0; starts.len()];
                let columns = Requantize {
                    start: &starts,
                    scales: &scales,
                    bias: &bias,
                    range: RANGE,
                    exact,
                };
                depthwise::convolve(context, &images, single, &columns, &mut out).unwrap();
                for (at, found) in out.iter().enumerate() {
                    let own = at % channels;
                    let column = (0..starts.len()).find(|at| position(*at) == own).unwrap();
                    let sum = each(at / channels, own);
                    let wanted = rescaled(sum, multipliers[column], shifts[column]);
                    assert_eq!(*found, wanted, "{what}: {at}");
                }
                out.fill(0);
            }
        }
    }
}

/// Sums that fit `f32` exactly, without scales: all instruction sets give the scalar result with
/// every tiling.
#[test]
fn sums_are_exact_for_every_tiling() {
    let mut noise = Noise::new(7);
    let shapes =
        [[300, 4, 20], [9, 33, 17], [16, 64, 32], [17, 65, 33], [31, 148, 48], [33, 127, 50]];
    let more =
        [[47, 260, 15], [40, 20, 1], [100, 68, 130], [64, 300, 270], [7, 128, 64], [70, 3, 40]];
    for [m, k, n] in shapes.into_iter().chain(more) {
        let stride = (k + noise.below(9)).next_multiple_of(8);
        let (mut a, b) = (random_values(&mut noise, m * stride), random_values(&mut noise, n * k));
        a.chunks_mut(stride).for_each(|row| row[k..].fill(0));
        let zeros: Vec<i32> = (0..m).map(|_| noise.below(256) as i32 - 128).collect();
        let mut packed = vec![0.0; pack::packed_len([k, n]).unwrap()];
        pack::pack([k, n], |row, col| b.get(col * k + row).copied(), &mut packed).unwrap();
        let packed = pack::Packed::of([k, n], &packed).unwrap();
        let element = |row: usize, at: usize| i32::from(a[row * stride + at]) - zeros[row];
        let sum = |row: usize, col: usize| -> i32 {
            (0..k).map(|at| element(row, at) * i32::from(b[col * k + at])).sum()
        };
        let wanted: Vec<f32> = (0..m * n).map(|at| sum(at / n, at % n) as f32).collect();
        let (ones, none) = (vec![1.0; m.max(pack::padded(n))], vec![0.0; pack::padded(n)]);
        let columns = Columns { scales: &ones, bias: &none };
        let rows =
            rows::Rows { quantized: &a, stride, scales: &ones[..m], zeros: &zeros, sums: &[] };
        for context in machines() {
            let mut out = vec![f32::NAN; m * n];
            rows::gemm(context, rows, packed, columns, &mut out).unwrap();
            assert!(out == wanted, "{m} {k} {n} {:?}", context.tier);
        }
    }
}

/// As `sums_are_exact_for_every_tiling`, for windows.
#[test]
fn window_sums_are_exact_for_every_tiling() {
    let mut noise = Noise::new(8);
    let window = |kernel, stride, padding| Window::new(kernel, stride, padding, 1).unwrap();
    for (input, axes, n) in [
        ([7, 7, 64], [window(3, 1, 1), window(3, 1, 1)], 40),
        ([14, 15, 24], [window(3, 2, 1), window(3, 2, 1)], 33),
        ([20, 21, 3], [window(7, 2, 3), window(7, 2, 3)], 64),
        ([5, 33, 16], [window(1, 1, 0), window(5, 1, 2)], 16),
        ([9, 9, 32], [window(1, 2, 0), window(1, 2, 0)], 20),
        ([6, 6, 36], [Window::ONE, Window::ONE], 100),
        ([3, 3, 12], [window(3, 1, 0), window(3, 1, 0)], 5),
        ([12, 11, 5], [window(3, 1, 1), window(4, 1, 1)], 7),
    ] {
        let (batch, outside, zero) = (2, 11i8, 11);
        let windows = Windows::new(input, axes).unwrap();
        let (k, rows) = (windows.window_len(), batch * windows.count());
        let image = random_values(&mut noise, batch * windows.image());
        let weights = random_values(&mut noise, n * k);
        let mut written = vec![0; rows * k];
        for (sample, written) in written.chunks_mut(windows.count() * k).enumerate() {
            let image = &image[sample * windows.image()..];
            windows.write(image, 0, outside, written.chunks_mut(k)).unwrap();
        }
        let element = |row: usize, at: usize| i32::from(written[row * k + at]) - zero;
        let sum = |row: usize, col: usize| -> i32 {
            (0..k).map(|at| element(row, at) * i32::from(weights[col * k + at])).sum()
        };
        let wanted: Vec<f32> = (0..rows * n).map(|at| sum(at / n, at % n) as f32).collect();
        let mut packed = vec![0.0; pack::packed_len([k, n]).unwrap()];
        pack::pack([k, n], |row, col| weights.get(col * k + row).copied(), &mut packed).unwrap();
        let packed = pack::Packed::of([k, n], &packed).unwrap();
        let (ones, none) = (vec![1.0; rows.max(pack::padded(n))], vec![0.0; pack::padded(n)]);
        let zeros: Vec<f32> = vec![f32::from_bits(zero as u32); rows];
        for context in machines() {
            let left = Left::Windows(&image, &windows, outside);
            let mut workspace = vec![0.0; gemm_workspace(context, rows, [k, n], &left)];
            let columns = Columns { scales: &ones, bias: &none };
            let (scales, mut out) = ([&ones[..rows], &zeros], vec![f32::NAN; rows * n]);
            let made =
                gemm_windows(context, left, scales, packed, columns, &mut out, &mut workspace);
            made.unwrap();
            assert!(out == wanted, "{input:?} {axes:?} {n} {:?}", context.tier);
        }
    }
}

/// Grouped channels, read and written in place, give the same result as each group alone.
#[test]
fn grouped_convolution_works_in_place() {
    let mut noise = Noise::new(4);
    let window = |kernel, stride, padding| Window::new(kernel, stride, padding, 1).unwrap();
    let cases = [
        ([7, 9, 32], [window(3, 1, 1), window(3, 1, 1)], 32),
        ([6, 5, 12], [window(3, 2, 1), window(2, 1, 1)], 20),
        ([5, 8, 3], [window(2, 1, 0), window(3, 2, 2)], 7),
        ([4, 6, 8], [Window::ONE, Window::ONE], 16),
        // More images than are copied at the same time.
        ([33, 64, 64], [window(3, 1, 1), window(3, 2, 1)], 3),
    ];
    for (input, axes, n) in cases {
        let (batch, groups, zero) = (2, 3, 9i8);
        let [height, width, channels] = input;
        let (alone, k) = (Windows::new(input, axes).unwrap(), channels * axes[0].kernel());
        let (k, rows) = (k * axes[1].kernel(), batch * alone.count());
        let grouped = alone.of_groups(groups * channels).unwrap();
        let image = random_values(&mut noise, batch * height * width * groups * channels);
        let weights = random_values(&mut noise, groups * n * k);
        let element = |first: usize, row: usize, col: usize| weights.get((first + col) * k + row);
        let padded = pack::padded(n);
        let all = pack::side_by_side([k, n], groups).unwrap();
        let mut packed = vec![0.0; pack::packed_len(all).unwrap()];
        let side_by_side = |row: usize, position: usize| {
            let (block, col) = (position / padded, position % padded);
            if col < n { element(block * n, row, col).copied() } else { Some(0) }
        };
        pack::pack(all, side_by_side, &mut packed).unwrap();
        let packed = pack::Packed::of_blocks([k, n], groups, &packed).unwrap();
        let numbers_of = |from: f32, step: f32| -> Vec<f32> {
            (0..groups * padded).map(|at| from + at as f32 * step).collect()
        };
        let (scales, bias) = (numbers_of(0.001, 1e-5), numbers_of(-2.0, 0.05));
        let start: Vec<i32> = (0..groups * padded).map(|at| at as i32 * 31 - 500).collect();
        let range = |indices: core::ops::Range<usize>| Requantize {
            start: &start[indices.clone()],
            scales: &scales[indices.clone()],
            bias: &bias[indices],
            range: RANGE,
            exact: None,
        };
        for context in machines() {
            let run = |quantized: &[i8],
                       windows: &Windows,
                       right: pack::Packed<'_>,
                       columns: Requantize<'_>,
                       out: &mut [i8]| {
                let left = Left::Windows(quantized, windows, zero);
                let mut workspace = vec![0.0; gemm_workspace(context, rows, [k, n], &left)];
                gemm(context, rows, left, right, &columns, out, &mut workspace)
            };
            let mut out = vec![77; rows * groups * n];
            run(&image, &grouped, packed, range(0..groups * padded), &mut out).unwrap();
            for group in 0..groups {
                let own = image.chunks(channels).skip(group).step_by(groups);
                let own: Vec<i8> = own.flatten().copied().collect();
                let mut single = vec![0.0; pack::packed_len([k, n]).unwrap()];
                let own_element = |row: usize, col: usize| element(group * n, row, col).copied();
                pack::pack([k, n], own_element, &mut single).unwrap();
                let single = pack::Packed::of([k, n], &single).unwrap();
                let mut wanted = vec![0; rows * n];
                let columns = range(group * padded..(group + 1) * padded);
                run(&own, &alone, single, columns, &mut wanted).unwrap();
                let found = out.chunks(n).skip(group).step_by(groups);
                let found: Vec<i8> = found.flatten().copied().collect();
                assert_eq!(found, wanted, "{input:?} {axes:?} {group} {:?}", context.tier);
                let other = run(&image, &grouped, single, columns, &mut out);
                assert!(other.is_err(), "the weights have one group");
            }
            let mut failed = |quantized: &[i8], columns: Requantize<'_>, len: usize| {
                run(quantized, &grouped, packed, columns, &mut out[..len]).is_err()
            };
            let (all, len) = (range(0..groups * padded), rows * groups * n);
            assert!(failed(&image[1..], all, len), "an input value is missing");
            assert!(failed(&image, range(1..groups * padded), len), "a column is missing");
            assert!(failed(&image, all, len - 1), "an output element is missing");
        }
    }
}

#[test]
fn dynamic_quantization_matches_pytorch() {
    let mut noise = Noise::new(3);
    for ([m, k, n], groups) in [
        ([1, 64, 70], 2),
        ([3, 32, 16], 1),
        ([9, 96, 33], 3),
        ([1, 20, 5], 1),
        ([5, 13, 17], 1),
        ([2, 7, 3], 1),
        ([14, 64, 100], 8),
    ] {
        let input: Vec<f32> = noise.floats(m * k).iter().map(|it| it * 3.0 + 0.5).collect();
        let weights: Vec<i8> =
            random_values(&mut noise, n * k).iter().map(|element| element >> 4).collect();
        let group_scales: Vec<f32> = (0..n * groups)
            .map(|at| 0.01 + at as f32 * 1e-3)
            // Representable as `bfloat16`.
            .map(|scale| f32::from_bits(scale.to_bits() & 0xffff_0000))
            .collect();
        assert!(scales::are_upper(&group_scales) && !scales::are_upper(&[0.1]));
        let bias: Vec<f32> = (0..pack::padded(n)).map(|at| at as f32).collect();
        let each = k / groups;
        let mut sums: Vec<f32> = vec![0.0; pack::padded(n)];
        for (at, element) in weights.iter().enumerate() {
            sums[at / k] += f32::from(*element) * group_scales[at / k * groups + at % k / each];
        }
        // PyTorch's algorithm, one value at a time: quantize and dequantize.
        let rounded: Vec<f64> = input
            .chunks(k)
            .flat_map(|row| {
                let low = row.iter().copied().fold(0f32, f32::min);
                let high = row.iter().copied().fold(0f32, f32::max);
                let scale = (high - low) / 255.0;
                let below = (-128.0 + low / scale) + (127.0 + high / scale) > 0.0;
                let zero = if below { -128.0 - low / scale } else { 127.0 - high / scale };
                let zero = zero.round_ties_even();
                row.iter().map(move |number| {
                    let element = (number * (1.0 / scale)).round_ties_even() + zero;
                    f64::from((element.clamp(-128.0, 127.0) - zero) * scale)
                })
            })
            .collect();
        let wanted = |scale: &dyn Fn(usize, usize) -> f32| -> Vec<f64> {
            let one = |at: usize| {
                let (row, col) = (at / n, at % n);
                let product = |at: usize| {
                    rounded[row * k + at]
                        * f64::from(weights[col * k + at])
                        * f64::from(scale(col, at))
                };
                (0..k).map(product).sum::<f64>() + f64::from(bias[col])
            };
            (0..m * n).map(one).collect()
        };
        let near = |found: &[f32], wanted: &[f64], what: &str| {
            for (found, wanted) in found.iter().zip(wanted) {
                assert!(
                    (f64::from(*found) - wanted).abs() < 1e-4 * (1.0 + wanted.abs()),
                    "{what}: {found} {wanted}"
                );
            }
        };
        let mut packed = vec![0.0; rows::nibbles_len([k, n], groups).unwrap()];
        let element = |row: usize, col: usize| weights.get(col * k + row).copied();
        rows::pack_nibbles([k, n], groups, element, &mut packed).unwrap();
        let packed_scales = [false, true].map(|is_upper| {
            let mut packed = vec![0.0; scales::scales_len(n, groups, is_upper).unwrap()];
            scales::pack_scales([n, groups], &group_scales, is_upper, &mut packed).unwrap();
            packed
        });
        let mut bytes = vec![0.0; pack::packed_len([k, n]).unwrap()];
        pack::pack([k, n], element, &mut bytes).unwrap();
        let bytes = pack::Packed::of([k, n], &bytes).unwrap();
        let by_group = wanted(&|col, at| group_scales[col * groups + at / each]);
        let by_column = wanted(&|col, _| bias[col]);
        for context in machines() {
            let what = std::format!("{m} {k} {n} {groups} {:?}", context.tier);
            let layout = RowsLayout::new(m, k, groups);
            let mut workspace = vec![0.0; layout.words()];
            let rows = layout.quantize(context, &input, k, &mut workspace).unwrap();
            let mut out = vec![0.0; m * n];
            for (is_upper, words) in [false, true].into_iter().zip(&packed_scales) {
                let scales = GroupScales::of([n, groups], words, is_upper).unwrap();
                let right = Nibbles::of([k, n], groups, [&packed, &sums], scales).unwrap();
                rows::gemm_nibbles(context, rows, right, Some(&bias), &mut out).unwrap();
                near(&out, &by_group, &what);
            }
            let columns = Columns { scales: &bias, bias: &bias };
            rows::gemm(context, rows, bytes, columns, &mut out).unwrap();
            near(&out, &by_column, &what);
        }
    }
}

/// A single row uses another kernel than several rows; the results are the same bit for bit, for
/// all numbers of panels and groups.
#[test]
fn single_row_matches_several_rows() {
    let mut noise = Noise::new(31);
    // The last shape has prefetched weights; an earlier one has a group of another length.
    for [k, n, groups] in
        [[8, 1, 1], [32, 16, 1], [64, 37, 2], [96, 16 * 7 + 5, 3], [160, 80, 2], [1024, 2100, 32]]
    {
        let weights: Vec<i8> = (0..k * n).map(|_| noise.below(16) as i8 - 8).collect();
        let input = noise.floats(2 * k);
        let all: Vec<f32> = (0..n * groups)
            .map(|_| f32::from_bits((0x3c00 + noise.below(200) as u32) << 16))
            .collect();
        let (sums, bias) = (noise.floats(pack::padded(n)), noise.floats(pack::padded(n)));
        let mut packed = vec![0.0; rows::nibbles_len([k, n], groups).unwrap()];
        let element = |row: usize, col: usize| weights.get(col * k + row).copied();
        rows::pack_nibbles([k, n], groups, element, &mut packed).unwrap();
        for (context, is_upper) in machines().flat_map(|it| [(it, false), (it, true)]) {
            let mut scales = vec![0.0; scales::scales_len(n, groups, is_upper).unwrap()];
            scales::pack_scales([n, groups], &all, is_upper, &mut scales).unwrap();
            let scales = GroupScales::of([n, groups], &scales, is_upper).unwrap();
            let right = Nibbles::of([k, n], groups, [&packed, &sums], scales).unwrap();
            for bias in [Some(&*bias), None] {
                let product = |input: &[f32]| {
                    let count = input.len() / k;
                    let layout = RowsLayout::new(count, k, groups);
                    let mut workspace = vec![0.0; layout.words()];
                    let rows = layout.quantize(context, input, k, &mut workspace).unwrap();
                    let mut out = vec![f32::NAN; count * n];
                    rows::gemm_nibbles(context, rows, right, bias, &mut out).unwrap();
                    out.iter().map(|number| number.to_bits()).collect::<Vec<u32>>()
                };
                let alone: Vec<u32> = input.chunks(k).flat_map(product).collect();
                assert!(product(&input) == alone, "{k} {n} {groups} {:?}", context.tier);
            }
        }
    }
}

#[test]
fn elements_are_rounded_to_even() {
    for context in machines() {
        let noise = [0.25, 0.75, -0.25, 1e9, -1e9, f32::NAN, f32::INFINITY, 1.3];
        let mut out = [7; 8];
        elementwise::quantize(context, &noise, 0.5, RANGE, &mut out);
        assert_eq!(out, [-3, -1, -3, 120, -100, 0, 120, 0], "{:?}", context.tier);
        let from = Scaled { scale: 0.5, zero: -3 };
        let mut back = [0.0; 3];
        elementwise::dequantize(context, &[-3, -2, 127], from, &mut back);
        assert_eq!(back, [0.0, 0.5, 65.0]);
        let mut sum = [0; 3];
        let other = Scaled { scale: 1.0, zero: 2 };
        let operands = [(&[-3i8, -2, 127][..], from), (&[2i8, 3, 4][..], other)];
        elementwise::add(context, operands, 2.0, 0.5, RANGE, &mut sum);
        assert_eq!(sum, [-3, 2, 120]);
        let operands = [(&[-3i8, -1, 127][..], from), (&[2i8, -3, 4][..], other)];
        elementwise::mul(context, operands, 2.0, RANGE, &mut sum);
        // 2.5 rounds to 2.
        assert_eq!(sum, [-3, -5, 62]);
    }
}

#[test]
fn lookup_covers_all_values() {
    let mut noise = Noise::new(9);
    let table: [i8; elementwise::TABLE_LEN] =
        core::array::from_fn(|_| noise.below(256) as u8 as i8);
    for count in [0, 1, 63, 64, 65, 1000, 70_001] {
        let given = random_values(&mut noise, count);
        let wanted: Vec<i8> =
            given.iter().map(|element| table[(i32::from(*element) + 128) as usize]).collect();
        for context in machines() {
            let mut out = vec![0; count];
            elementwise::lookup(context, &given, &table, &mut out);
            assert!(out == wanted, "{count} {:?}", context.tier);
        }
    }
}
