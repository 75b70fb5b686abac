//! Calls of int8 layers with packed weights (`compiled/pack.rs`).

use super::calls::{
    BYTES, Calls, HALVES, Made, Parameters, Spans, WORDS, at, check, image, images, list, product,
    unknown, window,
};
use super::constants::int;
use crate::compiled::{Call, Extent};
use torchlet_portable::compiled::DepthwisePacked;

impl Calls {
    pub(super) fn packed(&mut self, call: &Call<'_>, spans: Spans) -> Made {
        let (input, out) = (at(BYTES, spans.input), at(BYTES, spans.out));
        match call {
            Call::ConvolvePacked { from, to, windows, offset, zero, channels, weights } => {
                let images = images(spans, *from, *to)?;
                let [[rows, down, above, _], [columns, across, before, _]] = *windows;
                let row = product(&[from[2], columns as usize]).map(|len| len.div_ceil(4));
                let row = row.ok_or("is too large")?;
                let units = product(&[row, rows as usize]).ok_or("is too large")?;
                check(weights.len(), product(&[to[2], units, 4]))?;
                check(channels.len(), product(&[to[2], 3]))?;
                let is_point = [rows, columns, down, across, above, before] == [1, 1, 1, 1, 0, 0]
                    && (from[0], from[1]) == (to[0], to[1])
                    && from[2].is_multiple_of(4);
                self.uses("convolve_packed");
                let fields = vec![
                    ("images", images.to_string()),
                    ("from", image(*from)),
                    ("to", image(*to)),
                    ("down", window(windows[0], to[0])?),
                    ("across", window(windows[1], to[1])?),
                    ("row_units", row.to_string()),
                    ("units", units.to_string()),
                    ("is_point", i32::from(is_point).to_string()),
                    ("offset", int(offset)),
                    ("zero", int(zero)),
                    ("channels", self.constants.ints(channels)),
                    ("weights", self.constants.words(weights)),
                ];
                let parameters = Parameters { kind: "tl_packed_convolution", fields };
                let arguments = vec![input, out, at(WORDS, spans.workspace)];
                Ok(("tl_convolve_packed", Some(parameters), arguments))
            }
            Call::DepthwisePacked { from, to, stride, padding, value, zero, channels, weights } => {
                let images = images(spans, *from, *to)?;
                let [above, before] = *padding;
                let extent = |[rows, columns, channels]: Extent| {
                    torchlet_portable::compiled::Extent { rows, columns, channels }
                };
                let plane = DepthwisePacked::plane(extent(*from), extent(*to), *stride, *padding);
                let [rows, columns] = plane.ok_or("is too large")?;
                check(weights.len(), product(&[to[2], 9]))?;
                check(channels.len(), product(&[to[2], 3]))?;
                check(spans.workspace.len, product(&[rows, columns, 2]))?;
                self.uses("depthwise_packed");
                let fields = vec![
                    ("images", images.to_string()),
                    ("stride", stride.to_string()),
                    ("from", image(*from)),
                    ("to", image(*to)),
                    ("above", above.to_string()),
                    ("before", before.to_string()),
                    ("rows", rows.to_string()),
                    ("columns", columns.to_string()),
                    ("value", value.to_string()),
                    ("zero", int(zero)),
                    ("channels", self.constants.ints(channels)),
                    ("weights", self.constants.bytes(weights)),
                ];
                let parameters = Parameters { kind: "tl_packed_depthwise", fields };
                let arguments = vec![input, out, at(HALVES, spans.workspace)];
                Ok(("tl_depthwise_packed", Some(parameters), arguments))
            }
            Call::LinearPacked { depth, offset, zero, channel, bias, weights } => {
                let features = bias.len();
                check(spans.input.len, Some(*depth))?;
                check(spans.out.len, Some(features))?;
                let padded = features.checked_next_multiple_of(2).unwrap_or(0);
                check(weights.len(), product(&[padded, depth.div_ceil(4), 4]))?;
                self.uses("linear_packed");
                let fields = vec![
                    ("depth", depth.to_string()),
                    ("features", features.to_string()),
                    ("offset", int(offset)),
                    ("zero", int(zero)),
                    ("multiplier", int(&channel.multiplier)),
                    ("shift", int(&channel.shift)),
                    ("bias", self.constants.ints(bias)),
                    ("weights", self.constants.words(weights)),
                ];
                let parameters = Parameters { kind: "tl_packed_linear", fields };
                let arguments = vec![input, out, at(WORDS, spans.workspace)];
                Ok(("tl_linear_packed", Some(parameters), arguments))
            }
            Call::AddPacked { zeros, scale, result, zero } => {
                check(spans.input.len, Some(spans.out.len))?;
                check(spans.second.len, Some(spans.out.len))?;
                self.uses("add_packed");
                let fields = vec![
                    ("zeros", list(zeros, int)),
                    ("multiplier", int(&scale.multiplier)),
                    ("shift", int(&scale.shift)),
                    ("result_multiplier", int(&result.multiplier)),
                    ("result_shift", int(&result.shift)),
                    ("zero", int(zero)),
                ];
                let parameters = Parameters { kind: "tl_packed_addition", fields };
                let len = spans.out.len.to_string();
                let arguments = vec![input, at(BYTES, spans.second), out, len];
                Ok(("tl_add_packed", Some(parameters), arguments))
            }
            _ => unknown(),
        }
    }
}
