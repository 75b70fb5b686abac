//! Compares convolution and pooling with their definitions, for random parameters and layouts.

use super::convolution::Call;
use super::convolve_plain::Job;
use super::feature_map::{DIMS, FeatureMap};
use super::pool::{Axis, Kind, Pooling, counted};
use crate::compute::conv::{Finish, Layout, WeightForm, Weights};
use crate::compute::gemm::Context;
use crate::compute::simd::Tier;
use crate::compute::testing::{Noise, assert_close};
use torchlet_core::rules::window::{Window, Windows};
use torchlet_core::{ScalarType, Serial};

/// A dense image with this order of dims.
fn dense(sizes: [usize; DIMS], order: [usize; DIMS]) -> FeatureMap {
    let mut feature_map = FeatureMap { sizes, strides: [0; DIMS] };
    let mut step = 1;
    for &dim in order.iter().rev() {
        feature_map.strides[dim] = step;
        step *= sizes[dim].max(1);
    }
    feature_map
}

fn at(feature_map: &FeatureMap, index: [usize; DIMS]) -> usize {
    index.iter().zip(feature_map.strides).map(|(i, stride)| i * stride).sum()
}

fn indices(sizes: [usize; DIMS]) -> impl Iterator<Item = [usize; DIMS]> {
    (0..sizes.iter().product()).map(move |mut rest| {
        let mut index = [0; DIMS];
        for dim in (0..DIMS).rev() {
            index[dim] = rest % sizes[dim];
            rest /= sizes[dim];
        }
        index
    })
}

const FIRST: [usize; DIMS] = [0, 1, 2, 3, 4];
const LAST: [usize; DIMS] = [0, 2, 3, 4, 1];
const ODD: [usize; DIMS] = [4, 1, 0, 3, 2];

fn window(kernel: usize, stride: usize, padding: usize, dilation: usize) -> Window {
    let [kernel, stride, padding, dilation] =
        [kernel, stride, padding, dilation].map(|number| number as i64);
    Window::new(kernel, stride, padding, dilation).unwrap()
}

/// A random convolution; `None` if its parameters leave no output.
fn convolution(noise: &mut Noise) -> Option<(Call, Layout)> {
    let rank = 1 + noise.below(3);
    let groups = 1 + noise.below(3);
    let transposed = noise.below(3) == 0;
    let (per_in, per_out) =
        if noise.below(3) == 0 { (1, 1) } else { (1 + noise.below(5), 1 + noise.below(9)) };
    let (inputs, outputs) = (groups * per_in, groups * per_out);
    let mut windows = Windows::new();
    let mut input = [1 + noise.below(2), inputs, 1, 1, 1];
    let mut out = [input[0], outputs, 1, 1, 1];
    let (first, second) = if transposed { (inputs, per_out) } else { (outputs, per_in) };
    let mut weight = [first, second, 1, 1, 1];
    let mut output_padding = [0; 3];
    for dim in 5 - rank..5 {
        let (kernel, stride) = (1 + noise.below(4), 1 + noise.below(3));
        let window = window(kernel, stride, noise.below(3), 1 + noise.below(2));
        input[dim] = 1 + noise.below(12);
        weight[dim] = window.kernel();
        out[dim] = if transposed {
            output_padding[dim - 2] = noise.below(window.stride());
            window.transposed(input[dim], output_padding[dim - 2])?
        } else {
            window.convolved(input[dim])?
        };
        windows.push(window).unwrap();
    }
    if out.contains(&0) {
        return None;
    }
    let (layout, order) = match noise.below(2) {
        0 => (Layout::ChannelsFirst, FIRST),
        _ => (Layout::ChannelsLast, LAST),
    };
    let call = Call {
        windows,
        transposed,
        groups,
        input: dense(input, order),
        out: dense(out, order),
        weight: dense(weight, if noise.below(2) == 0 { FIRST } else { LAST }),
        output_padding,
        layout: Some(layout),
        fixed_layout: true,
    };
    Some((call, layout))
}

/// Reference by the definition: adds the product of every input element and every weight that
/// applies to it to the output.
fn by_definition(call: &Call, input: &[f32], weight: &[f32], bias: &[f32]) -> Vec<f32> {
    let sizes = call.out.sizes;
    let mut out = vec![0.0; sizes.iter().product()];
    for index in indices(sizes) {
        out[at(&call.out, index)] = f64::from(bias[index[1]]);
    }
    let missing = 3 - call.windows.len();
    let (in_group, out_group) = (call.input.sizes[1] / call.groups, sizes[1] / call.groups);
    // The tensor with one position per window, and the tensor that the taps address.
    let (coarse, fine) =
        if call.transposed { (&call.input, &call.out) } else { (&call.out, &call.input) };
    for tap in indices(call.weight.sizes) {
        let w = f64::from(weight[at(&call.weight, tap)]);
        let (c_in, c_out) = if call.transposed {
            (tap[0], tap[0] / in_group * out_group + tap[1])
        } else {
            (tap[0] / out_group * in_group + tap[1], tap[0])
        };
        let [batch, _, d, h, width] = coarse.sizes;
        for mut position in indices([batch, 1, d, h, width]) {
            let mut target = position;
            let mut inside = true;
            for (i, window) in call.windows.iter().enumerate() {
                let dim = 2 + missing + i;
                let x = window.origin(position[dim]) + (tap[dim] * window.dilation()) as i64;
                inside &= (0..fine.sizes[dim] as i64).contains(&x);
                target[dim] = x.max(0) as usize;
            }
            if !inside {
                continue;
            }
            (position[1], target[1]) = if call.transposed { (c_in, c_out) } else { (c_out, c_in) };
            let (from, to) = if call.transposed { (position, target) } else { (target, position) };
            out[at(&call.out, to)] += w * f64::from(input[at(&call.input, from)]);
        }
    }
    out.iter().map(|&x| x as f32).collect()
}

#[test]
fn convolutions_match_definition() {
    let mut noise = Noise::new(3);
    let (mut tried, mut packs) = (0, 0);
    while tried < 120 {
        let Some((call, _)) = convolution(&mut noise) else { continue };
        tried += 1;
        let len = |feature_map: &FeatureMap| feature_map.sizes.iter().product::<usize>();
        let input = noise.floats(len(&call.input));
        let weight = noise.floats(len(&call.weight));
        let bias = noise.floats(call.out.sizes[1]);
        let want = by_definition(&call, &input, &weight, &bias);
        let job = Job {
            call: &call,
            scalar_type: ScalarType::Float,
            input: bytemuck::cast_slice(&input),
            weight: bytemuck::cast_slice(&weight),
            bias: Some(bytemuck::cast_slice(&bias)),
        };
        let mut out = vec![f32::NAN; want.len()];
        job.run::<f32>(&Serial, bytemuck::cast_slice_mut(&mut out));
        assert_close(&out, &want, 1e-5, "plain loop");
        let conv = call.engine().expect("a convolution for the engine");
        for tier in Tier::available() {
            let context = Context { tier, parallel: &Serial };
            let finish = Finish { bias: Some(&bias), ..Finish::default() };
            let mut workspace = vec![0.0; conv.workspace_len(tier, 1, call.strided()).unwrap()];
            let weights = Weights { data: &weight, form: call.strided() };
            out.fill(f32::NAN);
            conv.run(context, &input, weights, &finish, &mut out, &mut workspace).unwrap();
            assert_close(&out, &want, 1e-4, tier.name());
            // Weights packed for any size work for these sizes.
            let packed_len = call.packed_len(tier);
            if packed_len == 0 {
                continue;
            }
            assert_eq!(packed_len, conv.packed_weights_len(tier).unwrap());
            let mut packed = vec![0.0; packed_len];
            conv.pack_weights(context, &weight, call.weight.strides, &mut packed).unwrap();
            let weights = Weights { data: &packed, form: WeightForm::Packed };
            conv.run(context, &input, weights, &finish, &mut out, &mut workspace).unwrap();
            assert_close(&out, &want, 1e-4, "packed");
            packs += 1;
        }
    }
    // The scalar tier does not pack.
    assert!(packs > 0 || Tier::detect() == Tier::SCALAR);
}

/// A huge stride and padding give a small output, but the padded image would exceed memory.
#[test]
fn disproportionate_parameters_use_no_workspace() {
    // The maximum that the engine supports.
    let giant = 1 << 29.min(usize::BITS - 5);
    let window = window(3, giant, giant, 1);
    let channels = 4;
    let mut call = Call::plain(
        Windows::from_slice(&[window, window]).unwrap(),
        false,
        channels,
        dense([1, channels, 1, 4, 4], FIRST),
        dense([1, channels, 1, 3, 3], FIRST),
        dense([channels, 1, 1, 3, 3], FIRST),
    );
    call.layout = Some(Layout::ChannelsFirst);
    let conv = call.engine().unwrap();
    for tier in Tier::available() {
        assert_eq!(call.workspace_len(&conv, tier, 1, call.strided()), 0);
    }
    let (input, weight, bias) = (vec![1.0; 64], vec![1.0; 36], vec![0.5; 4]);
    let want = by_definition(&call, &input, &weight, &bias);
    let context = Context { tier: Tier::detect(), parallel: &Serial };
    let weights = Weights { data: &weight, form: call.strided() };
    let finish = Finish { bias: Some(&bias), ..Finish::default() };
    let mut out = vec![0.0; want.len()];
    conv.run(context, &input, weights, &finish, &mut out, &mut []).unwrap();
    assert_close(&out, &want, 1e-5, "no workspace");
}

/// Reference pooling of one output: value and index.
fn pooled(pooling: &Pooling, input: &[f32], index: [usize; DIMS]) -> (f32, i64) {
    let sizes = pooling.from.sizes;
    let mut ranges: [Vec<usize>; 3] = Default::default();
    let mut counted = 1;
    for dim in 0..3 {
        let o = index[2 + dim];
        match pooling.axes[dim] {
            Axis::Sliding(w) => {
                let all = (0..w.kernel()).map(|t| w.origin(o) + (t * w.dilation()) as i64);
                let inside = all.filter(|&x| (0..sizes[2 + dim] as i64).contains(&x));
                ranges[dim] = inside.map(|x| x as usize).collect();
                counted *= w.covered(o, sizes[2 + dim]);
            }
            Axis::Adaptive { output } => {
                let n = sizes[2 + dim];
                ranges[dim] = (o * n / output..((o + 1) * n).div_ceil(output)).collect();
                counted *= ranges[dim].len();
            }
        }
    }
    let (mut sum, mut count, mut best, mut best_index) = (0.0, 0, f32::NEG_INFINITY, None);
    for &d in &ranges[0] {
        for &h in &ranges[1] {
            for &w in &ranges[2] {
                let value = input[at(&pooling.from, [index[0], index[1], d, h, w])];
                let here = ((d * sizes[3] + h) * sizes[4] + w) as i64;
                if best_index.is_none() || value > best || value.is_nan() {
                    (best, best_index) = (value, Some(here));
                }
                sum += value;
                count += 1;
            }
        }
    }
    match pooling.kind {
        Kind::Max => (best, best_index.unwrap()),
        Kind::Average { count_padding: true, .. } => (sum / counted as f32, 0),
        Kind::Average { .. } => (sum / count as f32, 0),
    }
}

#[test]
fn pooling_matches_definition() {
    let mut noise = Noise::new(4);
    for round in 0..120 {
        let mut input = [1 + noise.below(2), 1 + noise.below(3) * noise.below(35), 1, 1, 1];
        let mut out = input;
        let mut axes = [Axis::NONE; 3];
        let adaptive = noise.below(3) == 0;
        let kind = match noise.below(3) {
            0 => Kind::Max,
            1 => Kind::Average { count_padding: true, divisor: None },
            _ => Kind::Average { count_padding: false, divisor: None },
        };
        for dim in 2 - noise.below(3)..3 {
            let kernel = 1 + noise.below(4);
            let dilation = if kind == Kind::Max { 1 + noise.below(2) } else { 1 };
            let padding = noise.below(((kernel - 1) * dilation).div_ceil(2) + 1);
            let window = window(kernel, 1 + noise.below(3), padding, dilation);
            input[2 + dim] = 8 + noise.below(90 / (4 - dim));
            if adaptive {
                out[2 + dim] = 1 + noise.below(9);
                axes[dim] = Axis::Adaptive { output: out[2 + dim] };
            } else {
                out[2 + dim] = window.pooled(input[2 + dim], noise.below(2) == 0).unwrap();
                axes[dim] = Axis::Sliding(window);
            }
        }
        let orders = [FIRST, LAST, ODD];
        let (from, to) = (dense(input, orders[noise.below(3)]), dense(out, orders[noise.below(3)]));
        let mut data = noise.floats(input.iter().product());
        if round % 5 == 0 {
            let len = data.len();
            data[noise.below(len)] = f32::NAN;
        }
        let pooling = Pooling {
            kind,
            axes,
            scalar_type: ScalarType::Float,
            input: bytemuck::cast_slice(&data),
            from,
        };
        let mut values = vec![0f32; out.iter().product()];
        let mut max_indices = vec![0i64; values.len()];
        let both =
            (bytemuck::cast_slice_mut(&mut values), bytemuck::cast_slice_mut(&mut max_indices));
        pooling.run::<f32>(&Serial, &to, Some(both.0), Some(both.1), ScalarType::Long);
        for index in indices(out) {
            let (value, max_index) = pooled(&pooling, &data, index);
            let (got, got_index) = (values[at(&to, index)], max_indices[at(&to, index)]);
            let same = (got - value).abs() < 1e-5 || (got.is_nan() && value.is_nan());
            assert!(same, "{kind:?} {axes:?} {index:?}: {got}, not {value}");
            assert!(kind != Kind::Max || got_index == max_index, "{axes:?} {index:?}");
        }
    }
}

/// A 3D window may cover more padding positions than an integer can count.
#[test]
fn window_counts_saturate() {
    let giant = window(i32::MAX as usize, i32::MAX as usize, (i32::MAX / 2) as usize, 1);
    let (axes, small) = ([Axis::Sliding(giant); 3], [Axis::Sliding(window(2, 1, 1, 1)); 3]);
    assert_eq!(counted(&axes, [0; 3], [1; 3], true), i64::MAX);
    assert_eq!(counted(&axes, [0; 3], [1; 3], false), 1);
    assert_eq!(counted(&small, [0; 3], [2; 3], true), 8);
}
