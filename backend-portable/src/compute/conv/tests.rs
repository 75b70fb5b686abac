use super::*;
use crate::compute::split::Serial;
use crate::compute::testing::{Noise, assert_close};
use crate::compute::threads::ThreadPool;

/// Reference in double precision, on channels-first arrays with contiguous weights.
fn reference(
    conv: &Conv,
    input: &[f32],
    weights: &[f32],
    finish: &Finish,
    before: &[f32],
) -> Vec<f32> {
    let p = conv.params();
    let [od, oh, ow] = conv.output();
    let [id, ih, iw] = p.input;
    let [kd, kh, kw] = p.kernel;
    let (ig, og) = (p.in_channels / p.groups, p.out_channels / p.groups);
    let mut out: Vec<f64> = Vec::new();
    for _ in 0..p.batch {
        for b in finish.bias.unwrap() {
            out.extend(std::iter::repeat_n(f64::from(*b), od * oh * ow));
        }
    }
    if finish.beta != 0.0 {
        out.iter_mut().zip(before).for_each(|(x, &y)| *x += f64::from(finish.beta) * f64::from(y));
    }
    let position = |axis: usize, a: usize, t: usize, limit: usize| {
        let v = (a * p.stride[axis] + t * p.dilation[axis]) as isize - p.padding[axis] as isize;
        (v >= 0 && (v as usize) < limit).then_some(v as usize)
    };
    // A transposed convolution exchanges the roles of input and output.
    let (outer, inner) =
        if p.transposed { ([id, ih, iw], [od, oh, ow]) } else { ([od, oh, ow], [id, ih, iw]) };
    for n in 0..p.batch {
        for g in 0..p.groups {
            for (o, c) in (0..og).flat_map(|o| (0..ig).map(move |c| (o, c))) {
                for at in 0..outer.iter().product() {
                    let a = [at / (outer[1] * outer[2]), at / outer[2] % outer[1], at % outer[2]];
                    for t in 0..kd * kh * kw {
                        let k = [t / (kh * kw), t / kw % kh, t % kw];
                        let (Some(d), Some(y), Some(x)) = (
                            position(0, a[0], k[0], inner[0]),
                            position(1, a[1], k[1], inner[1]),
                            position(2, a[2], k[2], inner[2]),
                        ) else {
                            continue;
                        };
                        let b = (d * inner[1] + y) * inner[2] + x;
                        let (from, to) = if p.transposed { (at, b) } else { (b, at) };
                        let w = if p.transposed {
                            (g * ig + c) * og + o
                        } else {
                            (g * og + o) * ig + c
                        };
                        let i = (n * p.in_channels + g * ig + c) * id * ih * iw + from;
                        out[(n * p.out_channels + g * og + o) * od * oh * ow + to] +=
                            f64::from(input[i]) * f64::from(weights[w * kd * kh * kw + t]);
                    }
                }
            }
        }
    }
    out.iter().map(|&x| (x as f32).clamp(finish.min, finish.max)).collect()
}

fn channels_last(x: &[f32], batch: usize, channels: usize) -> Vec<f32> {
    let pixels = x.len() / (batch * channels).max(1);
    let mut out = vec![0.0; x.len()];
    for (i, &v) in x.iter().enumerate() {
        let (n, c, p) = (i / (channels * pixels), i / pixels % channels, i % pixels);
        out[(n * pixels + p) * channels + c] = v;
    }
    out
}

fn check(context: Context<'_>, p: ConvParams, noise: &mut Noise) {
    let conv = Conv::new(p).unwrap();
    let taps: usize = p.kernel.iter().product();
    let input = noise.floats(conv.input_len());
    let second = if p.transposed { p.out_channels } else { p.in_channels } / p.groups;
    let first = if p.transposed { p.in_channels } else { p.out_channels };
    let weights = noise.floats(first * second * taps);
    let bias = noise.floats(p.out_channels);
    let clamped = noise.below(2) == 0;
    let (min, max) = if clamped { (-0.5, 0.75) } else { (f32::NEG_INFINITY, f32::INFINITY) };
    let beta = [0.0, 0.0, 1.0, -0.5][noise.below(4)];
    let finish = Finish { bias: Some(&bias), beta, min, max };
    // NaN reveals reads of the previous output.
    let before = match beta {
        0.0 => vec![f32::NAN; conv.output_len()],
        _ => noise.floats(conv.output_len()),
    };
    let want = reference(&conv, &input, &weights, &finish, &before);
    let WeightForm::Strided(plain) = WeightForm::contiguous(second, p.kernel) else {
        unreachable!()
    };
    // The same weights with layout `[tap, channel]`.
    let inside = channels_last(&weights, first, second);
    let [_, _, d, h, w] = plain;
    let inside_strides = [second * taps, 1, d * second, h * second, w * second];

    for layout in [Layout::ChannelsFirst, Layout::ChannelsLast] {
        let conv = Conv::new(ConvParams { layout, ..p }).unwrap();
        let last = layout == Layout::ChannelsLast;
        let input =
            if last { channels_last(&input, p.batch, p.in_channels) } else { input.clone() };
        let order = |x: &Vec<f32>| match layout {
            Layout::ChannelsLast => channels_last(x, p.batch, p.out_channels),
            Layout::ChannelsFirst => x.clone(),
        };
        let (want, before) = (order(&want), order(&before));
        let mut packed = vec![f32::NAN; conv.packed_weights_len(context.tier).unwrap()];
        let mut forms = vec![
            Weights { data: &weights, form: WeightForm::Strided(plain) },
            Weights { data: &inside, form: WeightForm::Strided(inside_strides) },
        ];
        if !packed.is_empty() {
            conv.pack_weights(context, &inside, inside_strides, &mut packed).unwrap();
            forms.push(Weights { data: &packed, form: WeightForm::Packed });
        }
        for weights in forms {
            let threads = context.parallel.threads();
            let full = conv.workspace_len(context.tier, threads, weights.form).unwrap();
            for len in [full, full / threads, 0] {
                let mut workspace = vec![f32::NAN; len];
                let mut output = before.clone();
                conv.run(context, &input, weights, &finish, &mut output, &mut workspace).unwrap();
                let what = format!(
                    "{} {:?} {p:?} {layout:?} beta {beta} workspace {len}",
                    context.tier.name(),
                    weights.form
                );
                assert_close(&output, &want, 2e-5, &what);
            }
        }
    }
}

fn params(noise: &mut Noise, transposed: bool, dims: usize) -> ConvParams {
    let groups = [1, 1, 1, 2, 3, 5][noise.below(6)];
    let (ig, og) = (1 + noise.below(4), 1 + noise.below(6));
    let mut p = ConvParams {
        batch: 1 + noise.below(2),
        in_channels: groups * ig,
        out_channels: groups * og,
        groups,
        input: [1; 3],
        kernel: [1; 3],
        stride: [1; 3],
        padding: [0; 3],
        dilation: [1; 3],
        output_padding: [0; 3],
        transposed,
        layout: Layout::ChannelsFirst,
    };
    let max_size = if dims == 3 { 6 } else { 24 };
    for i in 3 - dims..3 {
        p.input[i] = 1 + noise.below(max_size);
        p.kernel[i] = 1 + noise.below(4);
        p.stride[i] = 1 + noise.below(3);
        p.padding[i] = noise.below(5);
        p.dilation[i] = 1 + noise.below(2);
        if transposed {
            p.output_padding[i] = noise.below(p.stride[i]);
        }
    }
    p
}

fn random(context: Context<'_>, count: usize, seed: u64) {
    let mut noise = Noise::new(seed);
    let mut done = 0;
    while done < count {
        let (transposed, dims) = (noise.below(3) == 0, 1 + noise.below(3));
        let p = params(&mut noise, transposed, dims);
        if Conv::new(p).is_some_and(|conv| conv.output_len() < 20_000) {
            check(context, p, &mut noise);
            done += 1;
        }
    }
}

#[test]
fn random_shapes_agree_with_the_definition() {
    for tier in Tier::available() {
        random(Context { tier, parallel: &Serial }, 150, 11);
    }
}

#[test]
fn random_shapes_on_threads() {
    let pool = ThreadPool::new(3);
    for tier in Tier::available() {
        random(Context { tier, parallel: &pool }, 40, 12);
    }
}

fn two_d(
    channels: (usize, usize, usize),
    size: (usize, usize),
    kernel: usize,
    stride: usize,
    padding: usize,
) -> ConvParams {
    ConvParams {
        batch: 1,
        in_channels: channels.0,
        out_channels: channels.1,
        groups: channels.2,
        input: [1, size.0, size.1],
        kernel: [1, kernel, kernel],
        stride: [1, stride, stride],
        padding: [0, padding, padding],
        dilation: [1; 3],
        output_padding: [0; 3],
        transposed: false,
        layout: Layout::ChannelsFirst,
    }
}

#[test]
fn shapes_of_real_networks() {
    let pool = ThreadPool::new(2);
    for tier in Tier::available() {
        // The same random values for each tier: by chance, other values could exceed the rounding
        // tolerance.
        let mut noise = Noise::new(1);
        for parallel in [&Serial as &dyn crate::parallel::Parallel, &pool] {
            let context = Context { tier, parallel };
            check(context, two_d((3, 32, 1), (65, 64), 3, 2, 1), &mut noise);
            check(context, two_d((96, 24, 1), (14, 14), 1, 1, 0), &mut noise);
            check(context, two_d((64, 16, 1), (7, 7), 3, 1, 1), &mut noise);
            check(context, two_d((130, 33, 1), (9, 5), 3, 1, 1), &mut noise);
            check(context, two_d((24, 8, 1), (14, 14), 1, 2, 0), &mut noise);
            // Enough channels for several passes.
            check(context, two_d((390, 20, 1), (4, 5), 2, 1, 1), &mut noise);
            check(context, two_d((800, 18, 1), (5, 4), 1, 2, 0), &mut noise);
            // Only padding.
            for channels in [(3, 5, 1), (18, 18, 18)] {
                for size in [(0, 3), (3, 0), (0, 0), (1, 1)] {
                    check(context, two_d(channels, size, 3, 1, 2), &mut noise);
                }
            }
            for (size, kernel, stride) in
                [(7, 3, 1), (14, 3, 1), (28, 3, 2), (56, 3, 1), (57, 5, 2), (33, 5, 1), (20, 7, 1)]
            {
                check(
                    context,
                    two_d((66, 66, 66), (size, size), kernel, stride, kernel / 2),
                    &mut noise,
                );
                check(context, two_d((5, 10, 5), (size, size), kernel, stride, 0), &mut noise);
            }
        }
    }
}

#[cfg(feature = "engine")]
#[test]
fn column_images_match_row_images() {
    let mut noise = Noise::new(5);
    let context = Context { tier: Tier::detect(), parallel: &Serial };
    let mut transposed_cases = 0;
    while transposed_cases < 30 {
        let transposed = noise.below(3) == 0;
        let mut p = params(&mut noise, transposed, 2);
        (p.layout, p.input[2], p.kernel[2]) = (Layout::ChannelsLast, 1, 1);
        (p.padding[2], p.output_padding[2]) = (noise.below(8) / 7, noise.below(8) / 7);
        let Some(conv) = Conv::new(p) else { continue };
        let rows = conv.along_rows();
        if p.padding[2] + p.output_padding[2] > 0 || p.input[1] == 1 {
            assert_eq!(
                rows.params(),
                &p,
                "unchanged unless the result has one column and several rows"
            );
            continue;
        }
        transposed_cases += 1;
        assert_eq!(rows.params().input, [1, 1, p.input[1]]);
        let [_, height, _] = conv.output();
        assert_eq!(rows.output(), [1, 1, height]);
        let second = if p.transposed { p.out_channels } else { p.in_channels } / p.groups;
        let (input, bias) = (noise.floats(conv.input_len()), noise.floats(p.out_channels));
        let data = noise.floats(p.in_channels.max(p.out_channels) * second * p.kernel[1]);
        let finish = Finish { bias: Some(&bias), ..Finish::default() };
        let run = |conv: &Conv| {
            let form = WeightForm::contiguous(second, conv.params().kernel);
            let mut output = vec![0.0; conv.output_len()];
            let mut workspace = vec![0.0; conv.workspace_len(context.tier, 1, form).unwrap()];
            let weights = Weights { data: &data, form };
            conv.run(context, &input, weights, &finish, &mut output, &mut workspace).unwrap();
            output
        };
        assert_close(&run(&rows), &run(&conv), 2e-5, &format!("{p:?}"));
    }
}

#[test]
fn invalid_parameters_are_rejected() {
    let good = two_d((4, 4, 2), (8, 8), 3, 1, 1);
    assert!(Conv::new(good).is_some());
    let bad = [
        ConvParams { groups: 0, ..good },
        ConvParams { groups: 3, ..good },
        ConvParams { kernel: [1, 0, 3], ..good },
        ConvParams { stride: [1, 0, 1], ..good },
        ConvParams { dilation: [1, 1, 0], ..good },
        ConvParams { dilation: [1, 1, usize::MAX], ..good },
        ConvParams { kernel: [1, 11, 3], ..good },
        ConvParams { padding: [0, usize::MAX, 0], ..good },
        ConvParams { input: [usize::MAX, 8, 8], ..good },
        ConvParams { batch: usize::MAX, ..good },
        ConvParams { transposed: true, input: [0, 8, 8], ..good },
        ConvParams { transposed: true, stride: [1, usize::MAX, 1], ..good },
    ];
    for p in bad {
        assert!(Conv::new(p).is_none(), "{p:?}");
    }
    let conv = Conv::new(good).unwrap();
    let context = Context { tier: Tier::detect(), parallel: &Serial };
    let (input, weights) = (vec![0.0; conv.input_len()], vec![0.0; 4 * 2 * 9]);
    let form = WeightForm::contiguous(2, good.kernel);
    let mut output = vec![0.0; conv.output_len()];
    let run = |input: &[f32], data: &[f32], form: WeightForm, output: &mut [f32]| {
        conv.run(context, input, Weights { data, form }, &Finish::default(), output, &mut [])
    };
    assert_eq!(run(&input, &weights, form, &mut output), Ok(()));
    assert_eq!(run(&input[1..], &weights, form, &mut output), Err(ShapeMismatch));
    assert_eq!(run(&input, &weights[1..], form, &mut output), Err(ShapeMismatch));
    assert_eq!(run(&input, &weights, WeightForm::Packed, &mut output), Err(ShapeMismatch));
    assert_eq!(
        run(&input, &weights, WeightForm::Strided([usize::MAX; 5]), &mut output),
        Err(ShapeMismatch)
    );
    assert_eq!(run(&input, &weights, form, &mut output[1..]), Err(ShapeMismatch));
}

/// Groups of four or eight channels, several of which share a vector if it is long enough.
#[test]
fn narrow_groups_agree_with_the_definition() {
    let pool = ThreadPool::new(3);
    for tier in Tier::available() {
        let mut noise = Noise::new(21);
        let mut done = 0;
        while done < 60 {
            let dims = 1 + noise.below(2);
            let mut p = params(&mut noise, false, dims);
            let group = [4, 8][noise.below(2)];
            p.groups = 2 + noise.below(9);
            (p.in_channels, p.out_channels) = (p.groups * group, p.groups * group);
            let Some(conv) = Conv::new(ConvParams { layout: Layout::ChannelsLast, ..p }) else {
                continue;
            };
            if conv.output_len() > 20_000 {
                continue;
            }
            assert_eq!(narrow::fits(&conv, tier), group < tier.lanes());
            if group < tier.lanes() {
                // Packed weights have no zeros for other groups, except for padding of the last
                // vector.
                let padded = p.in_channels.next_multiple_of(tier.lanes());
                let len = padded * group * conv.taps();
                assert_eq!(conv.packed_weights_len(tier), Some(len));
            }
            let serial = done % 2 == 0;
            let parallel: &dyn crate::parallel::Parallel = if serial { &Serial } else { &pool };
            check(Context { tier, parallel }, p, &mut noise);
            done += 1;
        }
    }
}
