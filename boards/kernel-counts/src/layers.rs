//! The measured layers.

use crate::memory::Memory;
use torchlet_core::Serial;
use torchlet_core::rules::window::Window;
use torchlet_portable::compute::q8::convolve::{self, Convolution, Extent};
use torchlet_portable::compute::q8::depthwise::{self, Depthwise};
use torchlet_portable::compute::q8::elementwise::{self, Context, Product, Sum};
use torchlet_portable::compute::q8::gemm::{self, Rows, Target, Weights};
use torchlet_portable::compute::q8::pool::{Pooling, pool};
use torchlet_portable::compute::q8::softmax::Softmax;
use torchlet_portable::compute::q8::{Results, Scale};
use torchlet_portable::compute::simd::Tier;

/// Rows, columns and channels.
type Shape = [usize; 3];

/// Kernel, stride and padding.
type Sides = [[usize; 2]; 3];

/// Operator of a layer.
pub enum Kind {
    Convolution(Sides),
    /// Depth multiplier: output channels per input channel.
    Depthwise(Sides, usize),
    Linear,
    Average(Sides),
    Max(Sides),
    Sum,
    Product,
    Softmax,
}

/// A layer.
pub struct Layer {
    pub name: &'static str,
    pub kind: Kind,
    pub from: Shape,
    pub to: Shape,
    /// Approximate shift of accumulators, chosen so that few values saturate.
    pub shift: i32,
}

const fn layer(name: &'static str, kind: Kind, from: Shape, to: Shape, shift: i32) -> Layer {
    Layer { name, kind, from, to, shift }
}

const THREE: Sides = [[3, 3], [1, 1], [1, 1]];
const THREE_BY_TWO: Sides = [[3, 3], [2, 2], [1, 1]];
const POINT: Sides = [[1, 1], [1, 1], [0, 0]];
const POINT_BY_TWO: Sides = [[1, 1], [2, 2], [0, 0]];
const DEPTHWISE_BY_TWO: Kind = Kind::Depthwise(THREE_BY_TWO, 1);

pub const LAYERS: &[Layer] = {
    use Kind::*;
    &[
        layer("conv 3x3 3-16 32x32", Convolution(THREE), [32, 32, 3], [32, 32, 16], -9),
        layer("conv 3x3 16-16 32x32", Convolution(THREE), [32, 32, 16], [32, 32, 16], -10),
        layer("conv 3x3/2 16-32 32x32", Convolution(THREE_BY_TWO), [32, 32, 16], [16, 16, 32], -10),
        layer("conv 3x3 64-64 8x8", Convolution(THREE), [8, 8, 64], [8, 8, 64], -11),
        layer("conv 3x3 8-16 8x8", Convolution(THREE), [8, 8, 8], [8, 8, 16], -9),
        layer("conv 3x3 32-32 16x16", Convolution(THREE), [16, 16, 32], [16, 16, 32], -10),
        layer("conv 3x3/2 32-64 16x16", Convolution(THREE_BY_TWO), [16, 16, 32], [8, 8, 64], -10),
        layer("conv 3x3/2 3-8 96x96", Convolution(THREE_BY_TWO), [96, 96, 3], [48, 48, 8], -9),
        layer(
            "conv 10x4/2 1-64 49x10",
            Convolution([[10, 4], [2, 2], [5, 1]]),
            [49, 10, 1],
            [25, 5, 64],
            -9,
        ),
        layer("conv 1x1/2 16-32 32x32", Convolution(POINT_BY_TWO), [32, 32, 16], [16, 16, 32], -8),
        layer("conv 1x1/2 32-64 16x16", Convolution(POINT_BY_TWO), [16, 16, 32], [8, 8, 64], -9),
        layer("conv 1x1 64-64 25x5", Convolution(POINT), [25, 5, 64], [25, 5, 64], -9),
        layer("conv 1x1 8-16 48x48", Convolution(POINT), [48, 48, 8], [48, 48, 16], -8),
        layer("conv 1x1 16-32 24x24", Convolution(POINT), [24, 24, 16], [24, 24, 32], -8),
        layer("conv 1x1 32-32 24x24", Convolution(POINT), [24, 24, 32], [24, 24, 32], -9),
        layer("conv 1x1 32-64 12x12", Convolution(POINT), [12, 12, 32], [12, 12, 64], -9),
        layer("conv 1x1 64-64 12x12", Convolution(POINT), [12, 12, 64], [12, 12, 64], -9),
        layer("conv 1x1 64-128 6x6", Convolution(POINT), [6, 6, 64], [6, 6, 128], -9),
        layer("conv 1x1 128-128 6x6", Convolution(POINT), [6, 6, 128], [6, 6, 128], -10),
        layer("conv 1x1 128-256 3x3", Convolution(POINT), [3, 3, 128], [3, 3, 256], -10),
        layer("conv 1x1 256-256 3x3", Convolution(POINT), [3, 3, 256], [3, 3, 256], -10),
        layer("depthwise 3x3 64 25x5", Depthwise(THREE, 1), [25, 5, 64], [25, 5, 64], -8),
        layer("depthwise 3x3 8 48x48", Depthwise(THREE, 1), [48, 48, 8], [48, 48, 8], -8),
        layer("depthwise 3x3/2 16 48x48", DEPTHWISE_BY_TWO, [48, 48, 16], [24, 24, 16], -8),
        layer("depthwise 3x3 32 24x24", Depthwise(THREE, 1), [24, 24, 32], [24, 24, 32], -8),
        layer("depthwise 3x3/2 32 24x24", DEPTHWISE_BY_TWO, [24, 24, 32], [12, 12, 32], -8),
        layer("depthwise 3x3 64 12x12", Depthwise(THREE, 1), [12, 12, 64], [12, 12, 64], -8),
        layer("depthwise 3x3/2 64 12x12", DEPTHWISE_BY_TWO, [12, 12, 64], [6, 6, 64], -8),
        layer("depthwise 3x3 128 6x6", Depthwise(THREE, 1), [6, 6, 128], [6, 6, 128], -8),
        layer("depthwise 3x3/2 128 6x6", DEPTHWISE_BY_TWO, [6, 6, 128], [3, 3, 128], -8),
        layer("depthwise 3x3 256 3x3", Depthwise(THREE, 1), [3, 3, 256], [3, 3, 256], -8),
        layer(
            "depthwise 5x5 16 16x16",
            Depthwise([[5, 5], [1, 1], [2, 2]], 1),
            [16, 16, 16],
            [16, 16, 16],
            -8,
        ),
        layer("depthwise 3x3 1-8 8x8", Depthwise(THREE, 8), [8, 8, 1], [8, 8, 8], -8),
        layer(
            "depthwise 10x4/2 1-64 49x10",
            Depthwise([[10, 4], [2, 2], [5, 1]], 64),
            [49, 10, 1],
            [25, 5, 64],
            -9,
        ),
        layer("linear 640-128", Linear, [1, 1, 640], [1, 1, 128], -11),
        layer("linear 128-640", Linear, [1, 1, 128], [1, 1, 640], -10),
        layer("linear 128-128", Linear, [1, 1, 128], [1, 1, 128], -10),
        layer("linear 128-8", Linear, [1, 1, 128], [1, 1, 8], -10),
        layer("linear 8-128", Linear, [1, 1, 8], [1, 1, 128], -8),
        layer("linear 256-10", Linear, [1, 1, 256], [1, 1, 10], -10),
        layer("linear 256-2", Linear, [1, 1, 256], [1, 1, 2], -10),
        layer("linear 64-10", Linear, [1, 1, 64], [1, 1, 10], -10),
        layer("linear 64-12", Linear, [1, 1, 64], [1, 1, 12], -10),
        layer("average 25x5 64", Average([[25, 5], [25, 5], [0, 0]]), [25, 5, 64], [1, 1, 64], 0),
        layer("average 8x8 64", Average([[8, 8], [8, 8], [0, 0]]), [8, 8, 64], [1, 1, 64], 0),
        layer("average 3x3 256", Average([[3, 3], [3, 3], [0, 0]]), [3, 3, 256], [1, 1, 256], 0),
        layer(
            "average 2x2/2 16 32x32",
            Average([[2, 2], [2, 2], [0, 0]]),
            [32, 32, 16],
            [16, 16, 16],
            0,
        ),
        layer("largest 2x2/2 16 8x8", Max([[2, 2], [2, 2], [0, 0]]), [8, 8, 16], [4, 4, 16], 0),
        layer("largest 3x3/2 32 32x32", Max(THREE_BY_TWO), [32, 32, 32], [16, 16, 32], 0),
        layer("sum 16 32x32", Sum, [32, 32, 16], [32, 32, 16], -1),
        layer("sum 32 16x16", Sum, [16, 16, 32], [16, 16, 32], -1),
        layer("sum 64 8x8", Sum, [8, 8, 64], [8, 8, 64], -1),
        layer("product 16 32x32", Product, [32, 32, 16], [32, 32, 16], -7),
        layer("softmax 12", Softmax, [1, 1, 12], [1, 1, 12], 0),
        layer("softmax 64x10", Softmax, [1, 64, 10], [1, 64, 10], 0),
    ]
};

fn windows([kernel, stride, padding]: Sides) -> [Window; 2] {
    [0, 1].map(|dim| {
        let [kernel, stride, padding] = [kernel, stride, padding].map(|sides| sides[dim] as i64);
        Window::new(kernel, stride, padding, 1).unwrap_or(Window::ONE)
    })
}

fn extent([rows, columns, channels]: Shape) -> Extent {
    Extent { rows, columns, channels }
}

/// Offsets added to input and output values.
const OFFSETS: [i32; 2] = [3, -5];

const BOUNDS: (i32, i32) = (-128, 127);

fn scale(multiplier: i64, shift: i64) -> Scale {
    Scale::new(multiplier, shift).unwrap_or_else(|| unreachable!())
}

impl Layer {
    pub fn out_len(&self) -> usize {
        self.to.iter().product()
    }

    /// Computes the layer; without `fast` in plain loops if the layer has both variants.
    pub fn run(&self, memory: &mut Memory, fast: bool) {
        let Memory { workspace, input, second, out, multipliers, shifts, bias } = memory;
        let out = &mut out[..self.out_len()];
        let (from, to) = (extent(self.from), extent(self.to));
        // Without a workspace, matrix multiplications and convolutions use plain loops.
        let workspace = if fast { &mut workspace[..] } else { &mut [] };
        let [offset, out_offset] = OFFSETS;
        let tier = Tier::detect();
        let context = Context { tier, parallel: &Serial };
        let channels = ..to.channels;
        // Requantization for layers with per-channel scales.
        let results = |multipliers, shifts, bias| {
            Results::per_channel(multipliers, shifts, bias, out_offset, BOUNDS)
                .unwrap_or_else(|| unreachable!())
        };
        let (multipliers, shifts) = (&multipliers[channels], &shifts[channels]);
        let bias = &bias[channels];
        match self.kind {
            Kind::Convolution(sides) => {
                let windows = windows(sides);
                let depth = from.channels;
                let results = results(multipliers, shifts, bias);
                let convolution =
                    Convolution { from, to, windows, transposed: false, depth, offset, results };
                convolve::convolve(tier, &Serial, &convolution, input, second, out, workspace);
            }
            Kind::Depthwise(sides, multiplier) => {
                let windows = windows(sides);
                let results = results(multipliers, shifts, bias);
                let depthwise = Depthwise { from, to, windows, multiplier, offset, results };
                depthwise::convolve(tier, &Serial, &depthwise, input, second, out);
            }
            Kind::Linear => {
                let depth = from.channels;
                let weights = Weights { data: second, depth, channels: to.channels, offset: 0 };
                let rows = Rows { data: input, stride: depth, count: 1, offset };
                let results = Results::uniform(
                    scale(0x5000_0000, self.shift.into()),
                    bias,
                    out_offset,
                    BOUNDS,
                );
                let target = Target { results: &results, first: 0, out, out_stride: to.channels };
                gemm::multiply(tier, rows, weights, target, workspace);
            }
            Kind::Average(sides) => {
                pool(tier, &Serial, Pooling::Average, windows(sides), [from, to], input, out);
            }
            Kind::Max(sides) => {
                let pooling = Pooling::Max(-128, 127);
                pool(tier, &Serial, pooling, windows(sides), [from, to], input, out);
            }
            Kind::Sum => {
                let sum = Sum {
                    zeros: OFFSETS,
                    scales: [scale(0x5000_0000, 0), scale(0x4800_0000, -1)],
                    headroom: 20,
                    scale: scale(0x6000_0000, -19),
                    offset: out_offset,
                    bounds: BOUNDS,
                };
                elementwise::add(context, sum, [&input[..out.len()], &second[..out.len()]], out);
            }
            Kind::Product => {
                let product = Product {
                    zeros: OFFSETS,
                    scale: scale(0x6000_0000, -7),
                    offset: out_offset,
                    bounds: BOUNDS,
                };
                elementwise::multiply(
                    context,
                    product,
                    [&input[..out.len()], &second[..out.len()]],
                    out,
                );
            }
            Kind::Softmax => {
                let softmax = Softmax { multiplier: 0x5000_0000, shift: 22, least: -200 };
                for (row, out) in input.chunks(to.channels).zip(out.chunks_mut(to.channels)) {
                    softmax.row(row, out);
                }
            }
        }
    }
}
