//! Calls of single-precision networks.

use super::{Span, TIER, Window, elements, parts};
use crate::compute::conv::{Conv, Finish, WeightForm, Weights};
use crate::compute::gemm::{
    Bias, Context, Epilogue, Matrix, MatrixMut, gemm, gemm_workspace_len, linear_sum_block,
};
use torchlet_core::Serial;

pub use crate::compute::conv::{ConvParams, Layout, SumOrder};

const CONTEXT: Context<'static> = Context { tier: TIER, parallel: &Serial };

/// A constant as floats; empty if it is misaligned.
fn floats(bytes: &[u8]) -> &[f32] {
    bytemuck::try_cast_slice(bytes).unwrap_or(&[])
}

/// A convolution of one to three spatial dims.
#[derive(Debug)]
pub struct ConvolveFloat {
    /// Its parameters.
    pub params: ConvParams,
    /// Contiguous weights, aligned to 4 bytes.
    pub weights: &'static [u8],
    /// An element for each output channel, or empty.
    pub bias: &'static [u8],
    /// Input in the layout of the parameters.
    pub input: Span,
    /// Output in the same layout.
    pub out: Span,
    /// Workspace, aligned to 4 bytes, of [`workspace_bytes`](Self::workspace_bytes).
    pub workspace: Span,
}

impl ConvolveFloat {
    /// Layout of contiguous weights.
    fn form(params: &ConvParams) -> WeightForm {
        let second = if params.transposed { params.out_channels } else { params.in_channels };
        WeightForm::contiguous(second / params.groups.max(1), params.kernel)
    }

    /// Bytes of workspace; `None` if the parameters are not valid.
    pub fn workspace_bytes(params: ConvParams) -> Option<usize> {
        Self::workspace_len(params)?.checked_mul(size_of::<f32>())
    }

    fn workspace_len(params: ConvParams) -> Option<usize> {
        let conv = Conv::new(params)?;
        let taps = params.kernel.iter().try_fold(1usize, |taps, &size| taps.checked_mul(size))?;
        let channels = params.in_channels.checked_mul(params.out_channels)?;
        let weights = (channels / params.groups.max(1)).checked_mul(taps)?;
        Some(conv.bounded_workspace_len(TIER, 1, Self::form(&params), weights))
    }

    /// Size of the output on each axis, and the order of the terms of its sums; `None` if the
    /// parameters are not valid.
    pub fn output_and_order(params: ConvParams) -> Option<([usize; 3], SumOrder)> {
        let conv = Conv::new(params)?;
        let order = conv.scalar_sum_order(Self::form(&params), Self::workspace_len(params)?);
        Some((conv.output(), order))
    }

    /// Runs the call.
    pub fn run(&self, memory: &mut [u8]) {
        let spans = [self.input, self.out, self.workspace];
        let (Some([input, out, workspace]), Some(conv)) =
            (parts(memory, spans), Conv::new(self.params))
        else {
            return;
        };
        let weights = Weights { data: floats(self.weights), form: Self::form(&self.params) };
        let bias = floats(self.bias);
        let finish = Finish { bias: (!bias.is_empty()).then_some(bias), ..Finish::default() };
        let (input, out) = (elements::<f32>(input), elements::<f32>(out));
        // The build checks the lengths, the only possible error.
        let _ = conv.run(CONTEXT, input, weights, &finish, out, elements(workspace));
    }
}

/// A linear layer.
#[derive(Debug)]
pub struct LinearFloat {
    /// Weights `[output feature, input feature]`, aligned to 4 bytes.
    pub weights: &'static [u8],
    /// An element for each output feature, or empty.
    pub bias: &'static [u8],
    /// Rows, input features and output features.
    pub sizes: [usize; 3],
    /// Rows of input features.
    pub input: Span,
    /// Rows of output features.
    pub out: Span,
    /// Workspace, aligned to 4 bytes, of [`workspace_bytes`](Self::workspace_bytes).
    pub workspace: Span,
}

impl LinearFloat {
    /// Bytes of workspace; `None` on overflow.
    pub fn workspace_bytes([rows, depth, channels]: [usize; 3]) -> Option<usize> {
        gemm_workspace_len(TIER, 1, rows, channels, depth)?.checked_mul(size_of::<f32>())
    }

    /// Number of terms of a sum that are added to each other before their sum is added to the
    /// result, which starts with the bias.
    pub fn sum_block([rows, depth, channels]: [usize; 3]) -> usize {
        linear_sum_block(TIER, rows, channels, depth)
    }

    /// Runs the call.
    pub fn run(&self, memory: &mut [u8]) {
        let spans = [self.input, self.out, self.workspace];
        let Some([input, out, workspace]) = parts(memory, spans) else { return };
        let [rows, depth, channels] = self.sizes;
        let (input, out) = (elements::<f32>(input), elements::<f32>(out));
        let (Some(a), Some(b), Some(c)) = (
            Matrix::row_major(input, rows, depth),
            Matrix::row_major(floats(self.weights), channels, depth),
            MatrixMut::row_major(out, rows, channels),
        ) else {
            return;
        };
        let bias = floats(self.bias);
        let bias = if bias.is_empty() { Bias::None } else { Bias::Cols(bias) };
        let epilogue = Epilogue { bias, ..Epilogue::default() };
        // The build checks the shapes, the only possible error.
        let _ = gemm(CONTEXT, a, b.transposed(), c, &epilogue, elements(workspace));
    }
}

/// `max(x, 0)`; NaN propagates. Input and output may be the same memory.
#[derive(Debug)]
pub struct Relu {
    /// Input.
    pub input: Span,
    /// Output.
    pub out: Span,
}

impl Relu {
    /// Runs the call.
    pub fn run(&self, memory: &mut [u8]) {
        if self.input != self.out {
            let Some([input, out]) = parts(memory, [self.input, self.out]) else { return };
            if input.len() == out.len() {
                out.copy_from_slice(input);
            }
        }
        for value in elements::<f32>(self.out.of_mut(memory)) {
            *value = if *value < 0.0 { 0.0 } else { *value };
        }
    }
}

/// Max pooling. NaN propagates.
#[derive(Debug)]
pub struct MaxPoolFloat {
    /// Input extents: images, rows, columns, interleaved channels. Channels-first planes count as
    /// images with one channel.
    pub from: [usize; 4],
    /// Rows and columns of the output.
    pub to: [usize; 2],
    /// Windows of the row and column axes.
    pub windows: [Window; 2],
    /// Input.
    pub input: Span,
    /// Output.
    pub out: Span,
}

impl MaxPoolFloat {
    /// Runs the call.
    pub fn run(&self, memory: &mut [u8]) {
        let Some([input, out]) = parts(memory, [self.input, self.out]) else { return };
        let (input, out) = (elements::<f32>(input), elements::<f32>(out));
        let ([images, rows, columns, width], [down, across]) = (self.from, &self.windows);
        let mut pixels = out.chunks_exact_mut(width.max(1));
        for image in 0..images {
            for row in 0..self.to[0] {
                let y = down.taps(row, rows);
                for column in 0..self.to[1] {
                    let x = across.taps(column, columns);
                    let Some(out) = pixels.next() else { return };
                    out.fill(f32::NEG_INFINITY);
                    for y in (0..y.count).map(|tap| y.start + tap * down.dilation()) {
                        for x in (0..x.count).map(|tap| x.start + tap * across.dilation()) {
                            let at = ((image * rows + y) * columns + x) * width;
                            let values = input.get(at..).unwrap_or(&[]);
                            for (out, &value) in out.iter_mut().zip(values) {
                                if value > *out || value.is_nan() {
                                    *out = value;
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
