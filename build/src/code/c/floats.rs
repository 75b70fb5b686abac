//! Calls of single-precision convolutions and linear layers, which share a kernel.

use super::calls::{
    Calls, FLOATS, Made, Parameters, Spans, at, check, list, product, unknown, window,
};
use crate::compiled::{Bytes, Call, ConvParams, Layout};
use torchlet_portable::compiled::{ConvolveFloat, LinearFloat};

impl Calls {
    /// A convolution of floats; linear layers are convolutions of single values.
    pub(super) fn sums_of_floats(&mut self, call: &Call<'_>, spans: Spans) -> Made {
        let (params, weights, bias, (to, by_taps, block)) = match call {
            Call::ConvolveFloat { params, weights, bias } => {
                let geometry = ConvolveFloat::output_and_order(*params);
                let (to, order) = geometry.ok_or("its parameters are not supported")?;
                (*params, weights, bias, (to, order.by_taps, order.block))
            }
            Call::LinearFloat { sizes: [rows, depth, channels], weights, bias } => {
                let params = ConvParams {
                    batch: *rows,
                    in_channels: *depth,
                    out_channels: *channels,
                    groups: 1,
                    input: [1; 3],
                    kernel: [1; 3],
                    stride: [1; 3],
                    padding: [0; 3],
                    dilation: [1; 3],
                    output_padding: [0; 3],
                    transposed: false,
                    layout: Layout::ChannelsLast,
                };
                let block = LinearFloat::sum_block([*rows, *depth, *channels]);
                (params, weights, bias, ([1; 3], true, block))
            }
            _ => return unknown(),
        };
        let ConvParams { batch, in_channels, out_channels, groups, input, kernel, .. } = params;
        check(spans.input.len, product(&[&[batch, in_channels, 4], &input[..]].concat()))?;
        check(spans.out.len, product(&[&[batch, out_channels, 4], &to[..]].concat()))?;
        let [inputs, outputs] =
            [in_channels, out_channels].map(|count| count.checked_div(groups).unwrap_or(0));
        check(in_channels, product(&[inputs, groups]))?;
        check(out_channels, product(&[outputs, groups]))?;
        let taps = product(&kernel).ok_or("is too large")?;
        let terms = product(&[inputs, taps]).ok_or("is too large")?;
        // The end of the block after the last one is computed, too.
        let end = terms.checked_add(block).filter(|&end| end <= i32::MAX as usize);
        end.filter(|_| block > 0).ok_or("is too large")?;
        check(weights.len(), product(&[groups, outputs, terms, 4]))?;
        if !bias.is_empty() {
            check(bias.len(), product(&[out_channels, 4]))?;
        }
        let panels = panels(weights, [groups, outputs, inputs, taps], params.transposed, by_taps);
        self.uses("convolve_float");
        self.uses(if params.transposed { "taps_transposed" } else { "taps" });
        let windows: Result<Vec<String>, String> = (0..3)
            .map(|axis| {
                let int = |value: usize| i64::try_from(value).map_err(|_| "is too large");
                let values = [params.kernel, params.stride, params.padding, params.dilation];
                let [kernel, stride, padding, dilation] = values.map(|of| of[axis]);
                let own = [int(kernel)?, int(stride)?, int(padding)?, int(dilation)?];
                window(own, to[axis])
            })
            .collect();
        let fields = vec![
            ("images", batch.to_string()),
            ("groups", groups.to_string()),
            ("inputs", inputs.to_string()),
            ("outputs", outputs.to_string()),
            ("transposed", i32::from(params.transposed).to_string()),
            ("from", list(&input, usize::to_string)),
            ("to", list(&to, usize::to_string)),
            ("windows", format!("{{{}}}", windows?.join(", "))),
            ("from_steps", list(&float_steps(params.layout, input, in_channels), usize::to_string)),
            ("to_steps", list(&float_steps(params.layout, to, out_channels), usize::to_string)),
            ("by_taps", i32::from(by_taps).to_string()),
            ("block", block.to_string()),
            ("weights", self.constants.floats(&panels)),
            ("bias", self.constants.floats(&floats(bias))),
        ];
        let parameters = Parameters { kind: "tl_float_convolution", fields };
        let arguments = vec![at(FLOATS, spans.input), at(FLOATS, spans.out)];
        Ok(("tl_convolve_float", Some(parameters), arguments))
    }
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|word| f32::from_le_bytes(*word)).collect()
}

/// Distances of channels, and of neighbours on each axis.
fn float_steps(layout: Layout, [depth, rows, columns]: [usize; 3], channels: usize) -> [usize; 4] {
    let plane = rows.saturating_mul(columns);
    match layout {
        Layout::ChannelsFirst => [depth.saturating_mul(plane), plane, columns, 1],
        Layout::ChannelsLast => {
            let row = columns.saturating_mul(channels);
            [1, plane.saturating_mul(channels), row, channels]
        }
    }
}

/// Weights `[output channel, input channel, tap]` of groups, or of transposed convolutions `[input
/// channel, output channel, tap]`, in the order in which the kernel reads them.
fn panels(
    weights: &Bytes<'_>,
    [groups, outputs, inputs, taps]: [usize; 4],
    is_transposed: bool,
    by_taps: bool,
) -> Vec<f32> {
    let weights = floats(weights);
    let mut panels = Vec::with_capacity(weights.len());
    for group in 0..groups {
        let mut first = 0;
        while first < outputs {
            let width = if outputs - first < 4 { 1 } else { 4 };
            for term in 0..inputs * taps {
                let (input, tap) = match by_taps {
                    true => (term % inputs, term / inputs),
                    false => (term / taps, term % taps),
                };
                panels.extend((first..first + width).map(|output| {
                    let channels = match is_transposed {
                        true => (group * inputs + input) * outputs + output,
                        false => (group * outputs + output) * inputs + input,
                    };
                    weights.get(channels * taps + tap).copied().unwrap_or(0.0)
                }));
            }
            first += width;
        }
    }
    panels
}
