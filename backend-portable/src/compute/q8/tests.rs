use super::convolve::{self, Convolution, Extent};
use super::depthwise::{self, Depthwise};
use super::gemm::{self, Rows, Target, Weights};
use super::pool::{Pooling, pool};
use super::softmax::Softmax;
use super::{Results, Scale};
use crate::compute::simd::Tier;
use std::vec::Vec;
use torchlet_core::Serial;
use torchlet_core::rules::window::Window;

/// A linear congruential generator, which the C reference reproduces.
struct Lcg(u32);

impl Lcg {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.0 >> 8
    }

    fn below(&mut self, end: u32) -> usize {
        (self.next() % end) as usize
    }

    fn random_values(&mut self, len: usize) -> Vec<i8> {
        // Extreme values are overrepresented.
        (0..len)
            .map(|_| match self.next() % 8 {
                0 => i8::MIN,
                1 => i8::MAX,
                _ => self.next() as i8,
            })
            .collect()
    }

    fn window(&mut self, kernel: usize) -> Window {
        let [stride, dilation] = [1 + self.below(3), 1 + self.below(2)].map(|n| n as i64);
        Window::new(kernel as i64, stride, self.below(3) as i64, dilation).unwrap()
    }
}

/// FNV-1a hash.
struct Hash(u64);

impl Hash {
    const NEW: Hash = Hash(0xcbf2_9ce4_8422_2325);

    fn put(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
}

/// Expected hash of the results of CMSIS-NN's C code for the same values.
#[test]
fn scales_match_cmsis_nn() {
    let (mut random, mut hash) = (Lcg(1), Hash::NEW);
    for _ in 0..20_000 {
        let value = (random.next() << 8) ^ random.next();
        let multiplier = ((random.next() << 8) ^ random.next()) & 0x7fff_ffff;
        let shift = random.below(63) as i32 - 31;
        let value = value as i32 >> shift.max(0);
        let scale = Scale::new(multiplier.into(), shift.into()).unwrap();
        hash.put(&scale.apply(value).to_le_bytes());
    }
    assert_eq!(hash.0, 0xefbf_6c59_1d08_71f9);
}

#[test]
fn softmax_matches_cmsis_nn() {
    let (mut random, mut hash) = (Lcg(2), Hash::NEW);
    for _ in 0..3_000 {
        let len = 1 + random.below(40);
        let spread = 1 + random.next() % 255;
        let quantized: Vec<i8> =
            (0..len).map(|_| (random.below(spread) as i32 - 128) as i8).collect();
        let multiplier = 0x4000_0000 + (random.next() % 0x4000_0000) as i32;
        let shift = 18 + random.next() % 6;
        let mut least = -(((31i64 << 26) >> shift) as i32);
        if random.next() % 4 == 0 {
            least = -(random.below(200) as i32);
        }
        let mut out = std::vec![0; len];
        Softmax { multiplier, shift, least }.row(&quantized, &mut out);
        hash.put(&out.iter().map(|&code| code as u8).collect::<Vec<u8>>());
    }
    assert_eq!(hash.0, 0x63d6_1842_fd75_2ec4);
}

/// Softmax values of 1/512 and less round to zero, as in CMSIS-NN's vector code.
#[test]
fn tiny_softmax_values_round_to_zero() {
    let softmax = Softmax { multiplier: 0x6000_0000, shift: 22, least: -496 };
    for (len, share) in [(300, 1), (500, 1), (520, 0), (1000, 0), (1500, 0), (5000, 0)] {
        let mut out = std::vec![5; len];
        softmax.row(&std::vec![17; len], &mut out);
        assert!(out.iter().all(|&code| i32::from(code) == share - 128), "{len}: {}", out[0]);
    }
}

#[test]
fn scales_round_halves_away_from_zero() {
    let half = Scale::new(1 << 30, 0).unwrap();
    assert_eq!([5, -5, 4, -4].map(|x| half.apply(x)), [3, -2, 2, -2]);
    let eighth = Scale::new(1 << 30, -2).unwrap();
    assert_eq!([4, 12, -4, -12, 100].map(|x| eighth.apply(x)), [1, 2, -1, -2, 13]);
    let double = Scale::new(1 << 30, 2).unwrap();
    assert_eq!(double.apply(7), 14);
    let tiny = Scale::new(i64::from(i32::MAX), -31).unwrap();
    assert_eq!([1, i32::MAX, i32::MIN].map(|x| tiny.apply(x)), [0, 1, -1]);
    for (multiplier, shift) in [(1 << 31, 0), (1, 32), (1, -32), (i64::from(i32::MIN), 0)] {
        assert_eq!(Scale::new(multiplier, shift), None);
    }
}

/// Requantization parameters.
struct Epilogue {
    multipliers: Vec<i32>,
    shifts: Vec<i32>,
    bias: Vec<i32>,
    offset: i32,
    bounds: (i32, i32),
}

impl Epilogue {
    fn new(random: &mut Lcg, channels: usize) -> Self {
        let multiplier = |n: &mut Lcg| 0x4000_0000 + (n.next() % 0x4000_0000) as i32;
        Epilogue {
            multipliers: (0..channels).map(|_| multiplier(random)).collect(),
            shifts: (0..channels).map(|_| random.below(12) as i32 - 10).collect(),
            bias: (0..channels)
                .map(|_| match random.below(6) {
                    // The sum wraps.
                    0 => i32::MAX,
                    1 => i32::MIN,
                    _ => random.below(4000) as i32 - 2000,
                })
                .collect(),
            offset: random.below(256) as i32 - 128,
            bounds: if random.below(2) == 0 { (-128, 127) } else { (-100, 90) },
        }
    }

    fn results(&self) -> Results<'_> {
        let Epilogue { multipliers, shifts, bias, offset, bounds } = self;
        Results::per_channel(multipliers, shifts, bias, *offset, *bounds).unwrap()
    }

    /// Requantizes a sum without bias.
    fn code(&self, channel: usize, sum: i32) -> i8 {
        let scale = Scale::new(self.multipliers[channel].into(), self.shifts[channel].into());
        let sum = sum.wrapping_add(self.bias[channel]);
        let code = scale.unwrap().apply(sum).wrapping_add(self.offset);
        code.max(self.bounds.0).min(self.bounds.1) as i8
    }
}

/// A random input offset: one that the fast loops support, a bound of their range, or another.
fn offset(random: &mut Lcg) -> i32 {
    let extremes = [-127, 128, -128, 129, 0, 70_000, i32::MAX];
    match random.below(3) {
        0 => extremes[random.below(7)],
        _ => random.below(256) as i32 - 127,
    }
}

fn add_product(sum: &mut i32, code: i8, offset: i32, weight: i32) {
    *sum = sum.wrapping_add(i32::from(code).wrapping_add(offset).wrapping_mul(weight));
}

#[test]
fn gemm_matches_reference() {
    let mut random = Lcg(3);
    for round in 0..400 {
        let (depth, channels) = (random.below(70), 1 + random.below(150));
        let tiers: Vec<Tier> = Tier::available().collect();
        let tier = tiers[round % tiers.len()];
        let count = 1 + random.below(gemm::rows(tier) as u32);
        let stride = depth + random.below(3);
        let quantized = random.random_values(stride * count);
        let weights = random.random_values(depth * channels);
        let (epilogue, x_offset) = (Epilogue::new(&mut random, channels), offset(&mut random));
        let w_offset = if random.below(2) == 0 { 0 } else { offset(&mut random) };
        let out_stride = channels + random.below(4);
        let mut expected = std::vec![77; out_stride * count];
        for row in 0..count {
            for channel in 0..channels {
                let mut sum = 0;
                for k in 0..depth {
                    let weight = i32::from(weights[channel * depth + k]).wrapping_add(w_offset);
                    add_product(&mut sum, quantized[row * stride + k], x_offset, weight);
                }
                expected[row * out_stride + channel] = epilogue.code(channel, sum);
            }
        }
        let len = gemm::workspace_len(tier, depth).unwrap();
        // With and without workspace.
        for len in [len, 0] {
            let mut out = std::vec![77; out_stride * count];
            let rows = Rows { data: &quantized, stride, count, offset: x_offset };
            let weights = Weights { data: &weights, depth, channels, offset: w_offset };
            let results = &epilogue.results();
            let target = Target { results, first: 0, out: &mut out, out_stride };
            gemm::multiply(tier, rows, weights, target, &mut std::vec![9; len]);
            assert_eq!(out, expected, "{depth} {channels} {count} {tier:?} {x_offset} {w_offset}");
        }
    }
}

#[test]
fn convolution_matches_reference() {
    let (mut random, mut tried) = (Lcg(4), 0);
    for round in 0..600 {
        let transposed = random.below(3) == 0;
        let groups = if transposed { 1 } else { 1 + random.below(3) };
        let (depth, by_group) = (1 + random.below(9), 1 + random.below(20));
        let (channels, outputs) = (depth * groups, by_group * groups);
        let kernels = [1 + random.below(3), 1 + random.below(4)];
        let windows = kernels.map(|kernel| random.window(kernel));
        let sizes = [1 + random.below(7), 1 + random.below(9)];
        let size = |dim: usize| match transposed {
            true => windows[dim].transposed(sizes[dim], 0),
            false => windows[dim].convolved(sizes[dim]),
        };
        let (Some(rows), Some(columns)) = (size(0), size(1)) else { continue };
        let batch = 1 + random.below(2);
        let from = Extent { rows: sizes[0], columns: sizes[1], channels };
        let to = Extent { rows, columns, channels: outputs };
        let input = random.random_values(batch * sizes[0] * sizes[1] * channels);
        let weights = random.random_values(outputs * kernels[0] * kernels[1] * depth);
        let (epilogue, offset) = (Epilogue::new(&mut random, outputs), offset(&mut random));
        let mut sums = std::vec![0i32; batch * rows * columns * outputs];
        // Accumulates from each position of the strided side to the positions of the other side.
        let (strided, other) = if transposed { (from, to) } else { (to, from) };
        for index in 0..batch * strided.rows * strided.columns * kernels[0] * kernels[1] {
            let (rest, tap) = (index / kernels[1], index % kernels[1]);
            let (rest, tap_row) = (rest / kernels[0], rest % kernels[0]);
            let (rest, column) = (rest / strided.columns, rest % strided.columns);
            let (n, row) = (rest / strided.rows, rest % strided.rows);
            let position = |window: &Window, at: usize, tap: usize| {
                let reach = at * window.stride() + tap * window.dilation();
                reach.checked_sub(window.padding())
            };
            let y = position(&windows[0], row, tap_row).filter(|&y| y < other.rows);
            let x = position(&windows[1], column, tap).filter(|&x| x < other.columns);
            let (Some(y), Some(x)) = (y, x) else { continue };
            let (a, b) = (strided.at(n, row, column), other.at(n, y, x));
            let (input_at, out_at) = if transposed { (a, b) } else { (b, a) };
            for output in 0..outputs {
                for k in 0..depth {
                    let code = input[input_at + output / by_group * depth + k];
                    let kernel = (output * kernels[0] + tap_row) * kernels[1] + tap;
                    let weight = weights[kernel * depth + k].into();
                    add_product(&mut sums[out_at + output], code, offset, weight);
                }
            }
        }
        let code = |(at, &sum): (usize, &i32)| epilogue.code(at % outputs, sum);
        let expected: Vec<i8> = sums.iter().enumerate().map(code).collect();
        let tiers: Vec<Tier> = Tier::available().collect();
        let tier = tiers[round % tiers.len()];
        let results = epilogue.results();
        let convolution = Convolution { from, to, windows, transposed, depth, offset, results };
        for len in [convolve::workspace_len(tier, depth, kernels[0] * kernels[1]), 0] {
            let (mut out, mut space) = (std::vec![0; expected.len()], std::vec![9; len]);
            let (input, weights) = (&input, &weights);
            convolve::convolve(tier, &Serial, &convolution, input, weights, &mut out, &mut space);
            assert_eq!(out, expected, "{convolution:?} {tier:?}");
        }
        tried += 1;
    }
    assert!(tried > 300, "{tried}");
}

#[test]
fn depthwise_convolution_matches_reference() {
    let (mut random, mut tried) = (Lcg(5), 0);
    for round in 0..600 {
        let multiplier = [1, 1, 1, 4, 8, 16, 3, 24][random.below(8)];
        let channels = 1 + random.below(if multiplier == 1 { 90 } else { 6 });
        let outputs = channels * multiplier;
        let kernels = [1 + random.below(4), 1 + random.below(4)];
        let windows = kernels.map(|kernel| random.window(kernel));
        let sizes = [1 + random.below(7), 1 + random.below(9)];
        let (rows, columns) = (windows[0].convolved(sizes[0]), windows[1].convolved(sizes[1]));
        let (Some(rows), Some(columns)) = (rows, columns) else { continue };
        let batch = 1 + random.below(2);
        let from = Extent { rows: sizes[0], columns: sizes[1], channels };
        let to = Extent { rows, columns, channels: outputs };
        let input = random.random_values(batch * sizes[0] * sizes[1] * channels);
        let weights = random.random_values(outputs * kernels[0] * kernels[1]);
        let (epilogue, offset) = (Epilogue::new(&mut random, outputs), offset(&mut random));
        let mut expected = std::vec![0; batch * rows * columns * outputs];
        for (at, expected) in expected.iter_mut().enumerate() {
            let (pixel, output) = (at / outputs, at % outputs);
            let (row, column) = (pixel / columns % rows, pixel % columns);
            let mut sum = 0;
            for tap in 0..kernels[0] * kernels[1] {
                let taps = [tap / kernels[1], tap % kernels[1]];
                let position = |dim: usize, at: usize| {
                    let reach = at * windows[dim].stride() + taps[dim] * windows[dim].dilation();
                    reach.checked_sub(windows[dim].padding()).filter(|&at| at < sizes[dim])
                };
                let (Some(y), Some(x)) = (position(0, row), position(1, column)) else { continue };
                let code = input[from.at(pixel / columns / rows, y, x) + output / multiplier];
                add_product(&mut sum, code, offset, weights[tap * outputs + output].into());
            }
            *expected = epilogue.code(output, sum);
        }
        let tiers: Vec<Tier> = Tier::available().collect();
        let tier = tiers[round % tiers.len()];
        let results = epilogue.results();
        let depthwise = Depthwise { from, to, windows, multiplier, offset, results };
        let mut out = std::vec![0; expected.len()];
        depthwise::convolve(tier, &Serial, &depthwise, &input, &weights, &mut out);
        assert_eq!(out, expected, "{depthwise:?} {tier:?}");
        tried += 1;
    }
    assert!(tried > 300, "{tried}");
}

#[test]
fn pooling_matches_reference() {
    let (mut random, mut tried) = (Lcg(6), 0);
    for round in 0..300 {
        let channels = 1 + random.below(80);
        let windows = [1 + random.below(4), 1 + random.below(4)].map(|k| random.window(k));
        let sizes = [1 + random.below(7), 1 + random.below(9)];
        let size = |dim: usize| windows[dim].pooled(sizes[dim], round % 2 == 0);
        let (Some(rows), Some(columns)) = (size(0), size(1)) else { continue };
        let from = Extent { rows: sizes[0], columns: sizes[1], channels };
        let to = Extent { rows, columns, channels };
        let input = random.random_values(sizes[0] * sizes[1] * channels);
        let pooling = match random.below(3) {
            0 => Pooling::Average,
            1 => Pooling::Max(-128, 127),
            _ => Pooling::Max(-90, 80),
        };
        let mut expected = std::vec![0; rows * columns * channels];
        for (at, expected) in expected.iter_mut().enumerate() {
            let (row, column) = (at / channels / columns, at / channels % columns);
            let mut seen = Vec::new();
            for y in 0..sizes[0] {
                for x in 0..sizes[1] {
                    let covers = |dim: usize, out: usize, at: usize| {
                        let window = &windows[dim];
                        (0..window.kernel()).any(|tap| {
                            out * window.stride() + tap * window.dilation() == at + window.padding()
                        })
                    };
                    if covers(0, row, y) && covers(1, column, x) {
                        seen.push(input[from.at(0, y, x) + at % channels]);
                    }
                }
            }
            *expected = match pooling {
                Pooling::Average => {
                    let sum: i32 = seen.iter().map(|&code| i32::from(code)).sum();
                    (f64::from(sum) / seen.len().max(1) as f64).round() as i8
                }
                Pooling::Max(low, high) => {
                    let largest = seen.iter().copied().max().unwrap_or(i8::MIN);
                    i32::from(largest).max(low).min(high) as i8
                }
            };
        }
        let tiers: Vec<Tier> = Tier::available().collect();
        let tier = tiers[round % tiers.len()];
        let mut out = std::vec![0; expected.len()];
        pool(tier, &Serial, pooling, windows, [from, to], &input, &mut out);
        assert_eq!(out, expected, "{windows:?} {sizes:?} {pooling:?} {tier:?}");
        tried += 1;
    }
    assert!(tried > 100, "{tried}");
}
