//! Tests of narrow groups against scalar sums.

use super::{channel, convolve, pack, packed_len, padded, serves, workspace_len};
use crate::compute::gemm::{Context, ShapeMismatch};
use crate::compute::int8::windows::Windows;
use crate::compute::int8::{Exact, Range, Requantize};
use crate::compute::simd::{Dots, Tier};
use crate::compute::split::Serial;
use crate::compute::testing::Noise;
use crate::compute::threads::ThreadPool;
use std::vec;
use std::vec::Vec;
use torchlet_core::Parallel;
use torchlet_core::rules::window::Window;

const RANGE: Range = Range { zero: -3, low: -100, high: 120 };

fn random_values(noise: &mut Noise, count: usize) -> Vec<i8> {
    (0..count).map(|_| noise.below(256) as u8 as i8).collect()
}

fn tier() -> Option<Tier> {
    Tier::available().find(|tier| serves(Dots::of(*tier), 2, [8, 8]))
}

/// A window with random kernel size, stride, padding and dilation.
fn window(noise: &mut Noise) -> Window {
    let mut number = |from: usize, count| (from + noise.below(count)) as i64;
    let (kernel, stride, dilation) = (number(1, 4), number(1, 2), number(1, 2));
    Window::new(kernel, stride, number(0, 3), dilation).unwrap()
}

fn compare(tier: Tier, parallel: &dyn Parallel, batch: usize, group: usize, noise: &mut Noise) {
    let groups = 2 + noise.below(7);
    let channels = groups * group;
    let axes = [window(noise), window(noise)];
    let size = [1 + noise.below(12), 1 + noise.below(20)];
    let Some(windows) = Windows::new([size[0], size[1], channels], axes) else { return };
    let [tall, wide] = axes.map(|axis| axis.kernel());
    let taps = tall * wide;
    let images = random_values(noise, batch * windows.image());
    let weights = random_values(noise, channels * taps * group);
    let weight = |tap: usize, input: usize, output: usize| {
        weights.get((output * taps + tap) * group + input).copied()
    };
    let mut words = vec![0.0; packed_len(taps, channels, group).unwrap()];
    pack(taps, channels, group, weight, &mut words).unwrap();
    let packed = super::Packed::of(taps, channels, group, &words).unwrap();
    let (zero, outside) = (11, 11);
    let (mut start, mut scales) = (vec![0; padded(channels)], vec![0.0; padded(channels)]);
    let mut bias = vec![0.0; padded(channels)];
    let scale_of = |channel: usize| 0.0005 + channel as f32 * 1e-5;
    let bias_of = |channel: usize| channel as f32 * 0.3 - 4.0;
    for index in 0..padded(channels) {
        start[index] = -(zero + 128) * packed.sums[index];
        scales[index] = scale_of(channel(group, index));
        bias[index] = bias_of(channel(group, index));
    }
    let columns =
        Requantize { start: &start, scales: &scales, bias: &bias, range: RANGE, exact: None };
    let mut workspace = vec![f32::NAN; workspace_len(parallel.threads(), &windows).unwrap()];
    let mut made = vec![77; batch * windows.count() * channels];
    let context = Context { tier, parallel };
    let pictures_of = (&images[..], &windows, outside);
    convolve(context, pictures_of, packed, &columns, &mut made, &mut workspace).unwrap();
    let inside = |dim: usize, at: usize, tap: usize| {
        let at = at * axes[dim].stride() + tap * axes[dim].dilation();
        at.checked_sub(axes[dim].padding()).filter(|at| *at < size[dim])
    };
    let all = padded(channels);
    let multipliers: Vec<i32> = (0..all).map(|_| (1 << 30) + noise.below(4) as i32).collect();
    let shifts: Vec<i32> = (0..all).map(|index| 37 + index as i32 % 5).collect();
    let factor = |index: usize| f64::from(multipliers[index]) / 2f64.powi(shifts[index]);
    let factors: Vec<f32> = (0..all).map(|index| factor(index) as f32).collect();
    let exact = Some(Exact { multipliers: &multipliers, shifts: &shifts });
    let bias = vec![0.0; all];
    let exactly = Requantize { start: &start, scales: &factors, bias: &bias, range: RANGE, exact };
    let mut made_exactly = made.clone();
    convolve(context, pictures_of, packed, &exactly, &mut made_exactly, &mut workspace).unwrap();
    for (at, made) in made.iter().enumerate() {
        let exactly = made_exactly[at];
        let (output, at) = (at % channels, at / channels);
        let (x, at) = (at % windows.output[1], at / windows.output[1]);
        let (y, image) = (at % windows.output[0], at / windows.output[0]);
        let mut sum = 0i32;
        for tap in 0..taps {
            let (row, col) = (inside(0, y, tap / wide), inside(1, x, tap % wide));
            let (Some(row), Some(col)) = (row, col) else { continue };
            for input in 0..group {
                let pixel = image * windows.image() + (row * size[1] + col) * channels;
                let q = images[pixel + output / group * group + input];
                sum += (i32::from(q) - zero) * i32::from(weight(tap, input, output).unwrap());
            }
        }
        let number = (sum as f32).mul_add(scale_of(output), bias_of(output));
        let wanted = number.round_ties_even() + RANGE.zero as f32;
        let wanted = wanted.clamp(RANGE.low.into(), RANGE.high.into()) as i8;
        assert_eq!(*made, wanted, "{groups} of {group}, {windows:?}: {image} {y} {x} {output}");
        let index = (0..all).find(|index| channel(group, *index) == output).unwrap();
        let (multiplier, shift) = (i64::from(multipliers[index]), shifts[index]);
        let number = (i64::from(sum) * multiplier + (1 << (shift - 1))) >> shift;
        let wanted = number + i64::from(RANGE.zero);
        let wanted = wanted.clamp(RANGE.low.into(), RANGE.high.into()) as i8;
        assert_eq!(exactly, wanted, "{groups} of {group}, {windows:?}: {image} {y} {x} {output}");
    }
    assert_eq!(
        convolve(context, pictures_of, packed, &columns, &mut made, &mut []),
        Err(ShapeMismatch)
    );
    let short = (&images[1..], &windows, outside);
    let refused = convolve(context, short, packed, &columns, &mut made, &mut workspace);
    assert_eq!(refused, Err(ShapeMismatch));
}

#[test]
fn groups_of_four_and_eight_are_exact() {
    let Some(tier) = tier() else { return };
    let pool = ThreadPool::new(3);
    let mut noise = Noise::new(5);
    for turn in 0..200 {
        let parallel: &dyn Parallel = if turn % 2 == 0 { &Serial } else { &pool };
        let (batch, group) = (1 + turn % 3 / 2, [4, 8][turn / 2 % 2]);
        compare(tier, parallel, batch, group, &mut noise);
    }
}

#[test]
fn other_group_sizes_are_unsupported() {
    let Some(tier) = tier() else { return };
    let dots = Dots::of(tier);
    assert!(serves(dots, 13, [8, 8]) && serves(dots, 3, [4, 4]));
    let others = [(1, [8, 8]), (4, [8, 4]), (4, [16, 16]), (4, [6, 6])];
    assert!(others.iter().all(|(groups, group)| !serves(dots, *groups, *group)));
    assert!(!serves(Dots::PLAIN, 4, [8, 8]));
}
