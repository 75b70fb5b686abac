//! Convolutions, linear layers and pooling of int8 values.

use super::{Convolution, Depthwise, Extent, Results, Span, TIER, Window};
use super::{elements, int8, int8_mut, parts};
use crate::compute::q8::gemm::{self, Product, Weights};
use crate::compute::q8::pool::{Pooling, pool};
use crate::compute::q8::{convolve, depthwise};
use torchlet_core::Serial;

/// A plain, grouped or transposed convolution.
#[derive(Debug)]
pub struct Convolve {
    /// Its parameters.
    pub convolution: Convolution<'static>,
    /// Weights: `[output channel, row, column, input channel of the group]`.
    pub weights: &'static [u8],
    /// Channels-last input.
    pub input: Span,
    /// Channels-last output.
    pub out: Span,
    /// Workspace, aligned to 4 bytes, of [`workspace_bytes`](Self::workspace_bytes).
    pub workspace: Span,
}

impl Convolve {
    /// Bytes of workspace for this depth of a group and number of taps.
    pub fn workspace_bytes(depth: usize, taps: usize) -> usize {
        convolve::workspace_len(TIER, depth, taps).saturating_mul(size_of::<i16>())
    }

    /// Runs the call.
    pub fn run(&self, memory: &mut [u8]) {
        let spans = [self.input, self.out, self.workspace];
        let Some([input, out, workspace]) = parts(memory, spans) else { return };
        convolve::convolve(
            TIER,
            &Serial,
            &self.convolution,
            int8(input),
            int8(self.weights),
            int8_mut(out),
            elements(workspace),
        );
    }
}

/// A depthwise convolution.
#[derive(Debug)]
pub struct ConvolveDepthwise {
    /// Its parameters.
    pub depthwise: Depthwise<'static>,
    /// Weights: `[row, column, output channel]`.
    pub weights: &'static [u8],
    /// Channels-last input.
    pub input: Span,
    /// Channels-last output.
    pub out: Span,
}

impl ConvolveDepthwise {
    /// Runs the call.
    pub fn run(&self, memory: &mut [u8]) {
        let Some([input, out]) = parts(memory, [self.input, self.out]) else { return };
        let (input, out) = (int8(input), int8_mut(out));
        depthwise::convolve(TIER, &Serial, &self.depthwise, input, int8(self.weights), out);
    }
}

/// A linear layer.
#[derive(Debug)]
pub struct Linear {
    /// Weights: `[output feature, input feature]`.
    pub weights: &'static [u8],
    /// Input features.
    pub depth: usize,
    /// Output features.
    pub channels: usize,
    /// Offset added to each weight.
    pub weight_offset: i32,
    /// Offset added to each input value (the negated zero point).
    pub offset: i32,
    /// Requantization of the sums.
    pub results: Results<'static>,
    /// Rows of input features.
    pub input: Span,
    /// Rows of output features.
    pub out: Span,
    /// Workspace, aligned to 4 bytes, of [`workspace_bytes`](Self::workspace_bytes).
    pub workspace: Span,
}

impl Linear {
    /// Bytes of workspace for this number of input features and of rows.
    pub fn workspace_bytes(depth: usize, rows: usize) -> usize {
        let len = gemm::workspace_len(TIER, depth).unwrap_or(usize::MAX);
        let len = if rows == 1 { len / gemm::rows(TIER) } else { len };
        len.saturating_mul(size_of::<i16>())
    }

    /// Runs the call.
    pub fn run(&self, memory: &mut [u8]) {
        let spans = [self.input, self.out, self.workspace];
        let Some([input, out, workspace]) = parts(memory, spans) else { return };
        let product = Product {
            lhs: int8(input),
            offset: self.offset,
            weights: Weights {
                data: int8(self.weights),
                depth: self.depth,
                channels: self.channels,
                offset: self.weight_offset,
            },
            results: self.results,
            rows: usize::MAX,
            step: 0,
        };
        gemm::multiply_all(TIER, &Serial, product, int8_mut(out), elements(workspace));
    }
}

/// Average pooling.
#[derive(Debug)]
pub struct AveragePool {
    /// Shapes of input and output.
    pub images: [Extent; 2],
    /// Windows of the row and column axes.
    pub windows: [Window; 2],
    /// Channels-last input.
    pub input: Span,
    /// Channels-last output.
    pub out: Span,
}

impl AveragePool {
    /// Runs the call.
    pub fn run(&self, memory: &mut [u8]) {
        let spans = [self.input, self.out];
        pool_into(memory, spans, Pooling::Average, self.windows, self.images);
    }
}

/// Max pooling.
#[derive(Debug)]
pub struct MaxPool {
    /// Shapes of input and output.
    pub images: [Extent; 2],
    /// Windows of the row and column axes.
    pub windows: [Window; 2],
    /// Minimum and maximum of the results.
    pub bounds: (i32, i32),
    /// Channels-last input.
    pub input: Span,
    /// Channels-last output.
    pub out: Span,
}

impl MaxPool {
    /// Runs the call.
    pub fn run(&self, memory: &mut [u8]) {
        let spans = [self.input, self.out];
        let pooling = Pooling::Max(self.bounds.0, self.bounds.1);
        pool_into(memory, spans, pooling, self.windows, self.images);
    }
}

#[inline(always)]
fn pool_into(
    memory: &mut [u8],
    spans: [Span; 2],
    pooling: Pooling,
    windows: [Window; 2],
    images: [Extent; 2],
) {
    let Some([input, out]) = parts(memory, spans) else { return };
    pool(TIER, &Serial, pooling, windows, images, int8(input), int8_mut(out));
}
