//! Benchmarks the layers of three networks in network order, channels-last and with packed weights.
//! Prints time and multiply-adds per distinct layer, with one and two threads, and the total per
//! network.
//!
//! `cargo bench -p torchlet-portable --features std --bench layers
//! -- [MODEL|LAYER ...] [--threads 1,2] [--passes 20] [--tier NAME]`
//!
//! Every layer instance owns its weights, so that weights are read from the same cache level or
//! memory as in a real network. The reported time is the minimum over all passes, because
//! interference from other processes only slows a run down.

use std::time::{Duration, Instant};
use torchlet_core::{Parallel, Serial};
use torchlet_portable::ThreadPool;
use torchlet_portable::compute::conv::{Conv, ConvParams, Finish, Layout, WeightForm, Weights};
use torchlet_portable::compute::functions::{Gelu, map1_in_place};
use torchlet_portable::compute::gemm::{
    Bias, Context, Epilogue, Matrix, MatrixMut, PackedRhs, gemm, gemm_packed, gemm_workspace_len,
};
use torchlet_portable::compute::rows::{layer_norm_rows, softmax_rows};
use torchlet_portable::compute::simd::Tier;

/// Shape of a layer. Layers of equal shape share a row of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Layer {
    Conv {
        size: usize,
        channels: [usize; 2],
        groups: usize,
        kernel: usize,
        stride: usize,
        pad: usize,
    },
    /// `m x k` by `k x n`, with packed weights.
    Linear {
        m: usize,
        k: usize,
        n: usize,
    },
    /// `count` matrix multiplications with strided rows. `transposed` says whether the right
    /// operand is transposed.
    Attention {
        count: usize,
        m: usize,
        k: usize,
        n: usize,
        transposed: bool,
    },
    Norm {
        rows: usize,
        len: usize,
    },
    Softmax {
        rows: usize,
        len: usize,
    },
    Gelu {
        len: usize,
    },
}

fn conv(size: usize, channels: [usize; 2], kernel: usize, stride: usize) -> Layer {
    Layer::Conv { size, channels, groups: 1, kernel, stride, pad: kernel / 2 }
}

fn mobilenet_v2() -> Vec<Layer> {
    let mut layers = vec![conv(224, [3, 32], 3, 2)];
    let (mut size, mut from) = (112, 32);
    for (factor, to, count, first_stride) in [
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ] {
        for i in 0..count {
            let (stride, wide) = (if i == 0 { first_stride } else { 1 }, from * factor);
            if factor > 1 {
                layers.push(conv(size, [from, wide], 1, 1));
            }
            let channels = [wide, wide];
            layers.push(Layer::Conv { size, channels, groups: wide, kernel: 3, stride, pad: 1 });
            size /= stride;
            layers.push(conv(size, [wide, to], 1, 1));
            from = to;
        }
    }
    layers.push(conv(size, [320, 1280], 1, 1));
    layers.push(Layer::Linear { m: 1, k: 1280, n: 1000 });
    layers
}

fn resnet50() -> Vec<Layer> {
    let mut layers = vec![conv(224, [3, 64], 7, 2)];
    let (mut size, mut from) = (56, 64);
    for (narrow, count, first_stride) in [(64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)] {
        let wide = narrow * 4;
        for i in 0..count {
            let stride = if i == 0 { first_stride } else { 1 };
            layers.push(conv(size, [from, narrow], 1, 1));
            layers.push(conv(size, [narrow, narrow], 3, stride));
            layers.push(conv(size / stride, [narrow, wide], 1, 1));
            if i == 0 {
                layers.push(conv(size, [from, wide], 1, stride));
            }
            (size, from) = (size / stride, wide);
        }
    }
    layers.push(Layer::Linear { m: 1, k: 2048, n: 1000 });
    layers
}

fn vit_b_16() -> Vec<Layer> {
    let (tokens, wide) = (197, 768);
    let mut layers = vec![Layer::Conv {
        size: 224,
        channels: [3, wide],
        groups: 1,
        kernel: 16,
        stride: 16,
        pad: 0,
    }];
    for _ in 0..12 {
        layers.extend([
            Layer::Norm { rows: tokens, len: wide },
            Layer::Linear { m: tokens, k: wide, n: 3 * wide },
            Layer::Attention { count: 12, m: tokens, k: 64, n: tokens, transposed: true },
            Layer::Softmax { rows: 12 * tokens, len: tokens },
            Layer::Attention { count: 12, m: tokens, k: tokens, n: 64, transposed: false },
            Layer::Linear { m: tokens, k: wide, n: wide },
            Layer::Norm { rows: tokens, len: wide },
            Layer::Linear { m: tokens, k: wide, n: 4 * wide },
            Layer::Gelu { len: tokens * 4 * wide },
            Layer::Linear { m: tokens, k: 4 * wide, n: wide },
        ]);
    }
    layers.push(Layer::Norm { rows: tokens, len: wide });
    layers.push(Layer::Linear { m: 1, k: wide, n: 1000 });
    layers
}

impl Layer {
    fn name(&self) -> String {
        match *self {
            Layer::Conv { size, channels: [from, to], groups, kernel, stride, .. } => {
                let kind = if groups > 1 { "depthwise" } else { "conv" };
                format!("{kind} {kernel}x{kernel}/{stride} {from}->{to} {size}x{size}")
            }
            Layer::Linear { m, k, n } => format!("linear {m}x{k}x{n}"),
            Layer::Attention { count, m, k, n, .. } => format!("attention {count}x {m}x{k}x{n}"),
            Layer::Norm { rows, len } => format!("layer norm {rows}x{len}"),
            Layer::Softmax { rows, len } => format!("softmax {rows}x{len}"),
            Layer::Gelu { len } => format!("gelu {len}"),
        }
    }

    fn params(&self) -> Option<Conv> {
        let &Layer::Conv { size, channels, groups, kernel, stride, pad } = self else {
            return None;
        };
        Conv::new(ConvParams {
            batch: 1,
            in_channels: channels[0],
            out_channels: channels[1],
            groups,
            input: [1, size, size],
            kernel: [1, kernel, kernel],
            stride: [1, stride, stride],
            padding: [0, pad, pad],
            dilation: [1; 3],
            output_padding: [0; 3],
            transposed: false,
            layout: Layout::ChannelsLast,
        })
    }

    /// Floating-point operations; for layers without multiply-adds, the number of elements.
    fn flops(&self) -> f64 {
        (match *self {
            Layer::Conv { channels, groups, kernel, .. } => {
                let pixels = self.params().map_or(0, |conv| conv.output_len()) / channels[1];
                2 * pixels * channels[1] * channels[0] / groups * kernel * kernel
            }
            Layer::Linear { m, k, n } => 2 * m * k * n,
            Layer::Attention { count, m, k, n, .. } => 2 * count * m * k * n,
            Layer::Norm { rows, len } | Layer::Softmax { rows, len } => rows * len,
            Layer::Gelu { len } => len,
        }) as f64
    }
}

/// A layer with its weights and workspace.
struct Prepared {
    layer: Layer,
    weights: Vec<f32>,
    bias: Vec<f32>,
    workspace: Vec<f32>,
}

fn noise(len: usize, seed: &mut u64) -> Vec<f32> {
    let mut next = || {
        *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (*seed >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    };
    (0..len).map(|_| next()).collect()
}

/// The slice from the first cache-line boundary on, as activations and packed weights are aligned.
fn aligned(data: &mut [f32]) -> &mut [f32] {
    let skip = data.as_ptr().align_offset(64).min(data.len());
    &mut data[skip..]
}

/// A buffer that holds `len` elements after its first cache-line boundary.
fn aligned_buffer(len: usize) -> Vec<f32> {
    vec![0.0; len + 15]
}

fn prepare(layer: Layer, tier: Tier, threads: usize, seed: &mut u64) -> Prepared {
    let context = Context { tier, parallel: &Serial };
    let (mut weights, mut bias, mut workspace) = (Vec::new(), Vec::new(), 0);
    match layer {
        Layer::Conv { channels, groups, kernel, .. } => {
            let conv = layer.params().expect("a convolution");
            let kernel3 = [1, kernel, kernel];
            let plain = noise(channels[1] * channels[0] / groups * kernel * kernel, seed);
            let WeightForm::Strided(strides) =
                WeightForm::contiguous(channels[0] / groups, kernel3)
            else {
                unreachable!()
            };
            weights = aligned_buffer(conv.packed_weights_len(tier).expect("fits memory"));
            conv.pack_weights(context, &plain, strides, aligned(&mut weights)).expect("packs");
            bias = noise(channels[1], seed);
            workspace = conv.workspace_len(tier, threads, WeightForm::Packed).expect("fits memory");
        }
        Layer::Linear { m, k, n } => {
            let plain = noise(k * n, seed);
            weights = aligned_buffer(PackedRhs::len(tier, k, n).expect("fits memory"));
            let rows = Matrix::row_major(&plain, n, k).expect("a matrix");
            PackedRhs::pack(context, rows.transposed(), aligned(&mut weights)).expect("packs");
            bias = noise(n, seed);
            workspace = gemm_workspace_len(tier, threads, m, n, k).expect("fits memory");
        }
        Layer::Attention { m, k, n, .. } => {
            workspace = gemm_workspace_len(tier, threads, m, n, k).expect("fits memory");
        }
        Layer::Norm { len, .. } => (weights, bias) = (noise(len, seed), noise(len, seed)),
        Layer::Softmax { .. } | Layer::Gelu { .. } => {}
    }
    Prepared { layer, weights, bias, workspace: aligned_buffer(workspace) }
}

impl Prepared {
    fn run(&mut self, context: Context<'_>, input: &[f32], output: &mut [f32]) {
        let weights = match self.layer {
            Layer::Norm { .. } => &*self.weights,
            _ => &*aligned(&mut self.weights),
        };
        match self.layer {
            Layer::Conv { .. } => {
                let conv = self.layer.params().expect("a convolution");
                let weights = Weights { data: weights, form: WeightForm::Packed };
                let finish =
                    Finish { bias: Some(&self.bias), min: 0.0, max: 6.0, ..Finish::default() };
                conv.run(context, input, weights, &finish, output, aligned(&mut self.workspace))
            }
            Layer::Linear { m, k, n } => {
                let a = Matrix::row_major(input, m, k).expect("a matrix");
                let b = PackedRhs::from_packed(context.tier, k, n, weights).expect("packed");
                let c = MatrixMut::row_major(output, m, n).expect("a matrix");
                let epilogue = Epilogue { bias: Bias::Cols(&self.bias), ..Epilogue::default() };
                gemm_packed(context, a, b, c, &epilogue, aligned(&mut self.workspace))
            }
            Layer::Attention { count, m, k, n, transposed } => {
                // Q, K and V heads are interleaved in each row, as a projection writes them; the
                // score matrices are contiguous.
                let (a_row, b_row, c_row) = if transposed {
                    (3 * count * k, 3 * count * k, n)
                } else {
                    (k, 3 * count * n, count * n)
                };
                (0..count).try_for_each(|i| {
                    let (a_at, b_at, c_at) = if transposed {
                        (i * k, i * k, i * m * n)
                    } else {
                        (i * m * k, i * n, i * n)
                    };
                    let a = Matrix::new(&input[a_at..], m, k, a_row, 1).expect("a matrix");
                    let b = if transposed {
                        Matrix::new(&input[b_at..], k, n, 1, b_row)
                    } else {
                        Matrix::new(&input[b_at..], k, n, b_row, 1)
                    };
                    let c = MatrixMut::new(&mut output[c_at..], m, n, c_row, 1).expect("a matrix");
                    let epilogue = Epilogue { alpha: 0.125, ..Epilogue::default() };
                    gemm(
                        context,
                        a,
                        b.expect("a matrix"),
                        c,
                        &epilogue,
                        aligned(&mut self.workspace),
                    )
                })
            }
            Layer::Norm { rows, len } => {
                let gamma = (Some(weights), Some(&*self.bias));
                let (input, output) = (&input[..rows * len], &mut output[..rows * len]);
                layer_norm_rows(context, input, len, gamma, 1e-6, output);
                Ok(())
            }
            Layer::Softmax { rows, len } => {
                softmax_rows(context, &input[..rows * len], len, &mut output[..rows * len]);
                Ok(())
            }
            Layer::Gelu { len } => {
                map1_in_place(context, Gelu, &mut output[..len]);
                Ok(())
            }
        }
        .expect("the shapes fit");
    }
}

/// Minimum time of each distinct layer, summed over its repetitions.
fn time(
    layers: &[Layer],
    tier: Tier,
    parallel: &dyn Parallel,
    passes: usize,
) -> (Vec<(Layer, usize, Duration)>, Duration) {
    let mut seed = 1;
    let mut prepared: Vec<_> =
        layers.iter().map(|&layer| prepare(layer, tier, parallel.threads(), &mut seed)).collect();
    // Larger than the largest activation of the three networks.
    let max_len = 1 << 21;
    let (mut input, mut output) = (noise(max_len, &mut seed), noise(max_len, &mut seed));
    let (mut input, mut output) = (aligned(&mut input), aligned(&mut output));
    let mut fastest = vec![Duration::MAX; layers.len()];
    let mut all = Duration::MAX;
    let context = Context { tier, parallel };
    for _ in 0..passes {
        let begin = Instant::now();
        for (layer, fastest) in prepared.iter_mut().zip(&mut fastest) {
            let start = Instant::now();
            layer.run(context, input, output);
            *fastest = start.elapsed().min(*fastest);
            std::mem::swap(&mut input, &mut output);
        }
        all = begin.elapsed().min(all);
        // Writes one new image per pass. Writing more would evict weights from the caches, which an
        // application would find there.
        input[..224 * 224 * 3].fill(0.25);
    }
    let mut table: Vec<(Layer, usize, Duration)> = Vec::new();
    for (&layer, &fastest) in layers.iter().zip(&fastest) {
        match table.iter_mut().find(|(known, ..)| *known == layer) {
            Some((_, count, total)) => (*count, *total) = (*count + 1, *total + fastest),
            None => table.push((layer, 1, fastest)),
        }
    }
    (table, all)
}

fn main() {
    let (mut wanted, mut threads, mut passes) = (Vec::new(), vec![1, 2], 20);
    let mut tier = Tier::detect();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().unwrap_or_default();
        match arg.as_str() {
            // Cargo passes this flag.
            "--bench" => {}
            "--passes" => passes = value().parse().expect("a number of passes"),
            "--threads" => {
                let list = value();
                threads = list.split(',').map(|n| n.parse().expect("numbers of threads")).collect();
            }
            "--tier" => {
                let name = value();
                tier =
                    Tier::available().find(|t| t.name() == name).expect("a tier of this machine");
            }
            _ => wanted.push(arg),
        }
    }
    println!("{}, minimum of {passes} passes; GFLOP/s in parentheses", tier.name());
    let models: [(&str, Vec<Layer>); 3] =
        [("mobilenet_v2", mobilenet_v2()), ("resnet50", resnet50()), ("vit_b_16", vit_b_16())];
    for (model, mut layers) in models {
        let by_name = |word: &String| model.contains(word.as_str());
        if !wanted.is_empty() && !wanted.iter().any(by_name) {
            layers.retain(|layer| wanted.iter().any(|word| layer.name().contains(word.as_str())));
        }
        if layers.is_empty() {
            continue;
        }
        let columns: Vec<_> = threads
            .iter()
            .map(|&n| match n {
                1 => time(&layers, tier, &Serial, passes),
                _ => time(&layers, tier, &ThreadPool::new(n), passes),
            })
            .collect();
        println!("\n{model}");
        for (i, &(layer, count, _)) in columns[0].0.iter().enumerate() {
            print!("{:>34} {count:>3} x", layer.name());
            for (table, _) in &columns {
                let each = table[i].2.as_secs_f64() / count as f64;
                print!(" {:>9.1} us ({:>5.1})", each * 1e6, layer.flops() / each / 1e9);
            }
            println!();
        }
        for (name, pick) in [("sum of layers", true), ("fastest pass", false)] {
            print!("{name:>34}      ");
            for (table, all) in &columns {
                let sum: Duration = table.iter().map(|&(.., time)| time).sum();
                print!(" {:>9.2} ms        ", if pick { sum } else { *all }.as_secs_f64() * 1e3);
            }
            println!();
        }
    }
}
