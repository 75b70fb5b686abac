//! Linear layers of one row.

use super::{Block, Channel, UNIT, kernels, weights_len};
use crate::compiled::{Span, elements, int8, int8_mut, parts};

/// A linear layer of one row.
#[derive(Debug)]
pub struct LinearPacked {
    /// Input features.
    pub depth: usize,
    /// Offset added to each input value (the negated zero point), between -127 and 128.
    pub offset: i32,
    /// Offset of the results.
    pub zero: i32,
    /// Requantization; the bias is that of each output feature.
    pub channel: Channel,
    /// A value for each output feature.
    pub bias: &'static [i32],
    /// Weights as in [`weight_position`](super::weight_position), of an even number of features.
    pub weights: &'static [u8],
    /// Input features.
    pub input: Span,
    /// Output features.
    pub out: Span,
    /// Workspace, aligned to 4 bytes, of [`workspace_bytes`](Self::workspace_bytes).
    pub workspace: Span,
}

/// Output features that are computed together.
pub(super) const FEATURES: usize = 4;

impl LinearPacked {
    /// Bytes of workspace for this number of input features.
    pub fn workspace_bytes(depth: usize) -> usize {
        depth.saturating_add(UNIT - 1) / UNIT * UNIT * size_of::<i16>()
    }

    /// Runs the call.
    pub fn run(&self, memory: &mut [u8]) {
        let spans = [self.input, self.out, self.workspace];
        let Some([input, out, workspace]) = parts(memory, spans) else { return };
        let (input, out, wide) = (int8(input), int8_mut(out), elements::<i16>(workspace));
        let units = self.depth.div_ceil(UNIT);
        let features = self.bias.len();
        let is_whole = weights_len(self.depth, features.next_multiple_of(2))
            == Some(self.weights.len())
            && (input.len(), out.len()) == (self.depth, features)
            && wide.len() == units * UNIT;
        if !is_whole || units == 0 {
            return;
        }
        let (whole, rest) = input.split_at(input.len() / UNIT * UNIT);
        let offset = self.offset as i16;
        let block =
            |units: usize| Block { rows: 1, units, step: units * UNIT, row: 0, goes_down: false };
        kernels::widen::<1>(whole, block(whole.len() / UNIT), offset, wide);
        if !rest.is_empty() {
            let mut last = [self.offset.wrapping_neg() as i8; UNIT];
            last[..rest.len()].copy_from_slice(rest);
            let wide = wide.get_mut(whole.len()..).unwrap_or_default();
            kernels::widen::<1>(&last, block(1), offset, wide);
        }
        let (whole, rest) = out.as_chunks_mut::<FEATURES>();
        let (bias, bias_rest) = self.bias.as_chunks::<FEATURES>();
        kernels::one_row(self, units, wide, 0, bias, whole);
        if !rest.is_empty() {
            let (mut last, mut bias) = ([[0; FEATURES]], [[0; FEATURES]]);
            bias[0][..rest.len()].copy_from_slice(bias_rest);
            kernels::one_row(self, units, wide, whole.len() * FEATURES, &bias, &mut last);
            rest.copy_from_slice(&last[0][..rest.len()]);
        }
    }
}
