//! Calls in C: a structure with the parameters of each kernel, and the call itself.

use super::constants::{Constants, float, int};
use crate::compiled::{
    Bytes, Call, CompiledMethod, ConvParams, Extent, Layout, Results, Scales, Span, Step, Window,
};
use std::fmt::Write;
use torchlet_portable::compiled::{ConvolveFloat, LinearFloat};

/// Output of the calls of a program.
#[derive(Default)]
pub(super) struct Calls {
    pub(super) constants: Constants,
    /// Names of the kernels in use.
    pub(super) kernels: Vec<&'static str>,
    /// Definitions of the structures with parameters.
    pub(super) parameters: String,
}

/// Parameters of a call.
struct Parameters {
    kind: &'static str,
    fields: Vec<(&'static str, String)>,
}

/// The member of the activation memory with a type, and its size.
pub(super) const BYTES: (&str, usize) = ("bytes", 1);
const HALVES: (&str, usize) = ("halves", 2);
const WORDS: (&str, usize) = ("words", 4);
const FLOATS: (&str, usize) = ("floats", 4);

/// A pointer to a part of the memory.
pub(super) fn at((member, size): (&str, usize), span: Span) -> String {
    match span.start / size {
        0 => format!("tl_memory.{member}"),
        start => format!("tl_memory.{member} + {start}"),
    }
}

fn image([rows, columns, channels]: Extent) -> String {
    format!("{{{rows}, {columns}, {channels}}}")
}

/// The window of an axis with `size` outputs.
fn window(window: Window, size: usize) -> Result<String, String> {
    let [kernel, stride, padding, dilation] = window;
    let reach = |count: i64, step: i64| count.checked_mul(step);
    let last = i64::try_from(size).ok().and_then(|size| reach(size, stride));
    let last = last.and_then(|last| last.checked_add(reach(kernel, dilation)?));
    let last = last.and_then(|last| last.checked_add(padding)?.checked_add(dilation));
    match last.is_some_and(|last| last <= i64::from(i32::MAX)) {
        true => Ok(format!("{{{kernel}, {stride}, {padding}, {dilation}}}")),
        false => Err("positions of its windows exceed 32 bits".into()),
    }
}

fn list<T>(items: &[T], text: impl Fn(&T) -> String) -> String {
    format!("{{{}}}", items.iter().map(text).collect::<Vec<_>>().join(", "))
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|word| f32::from_le_bytes(*word)).collect()
}

/// Fails if a size is not as expected: the call would leave its arrays.
fn check(found: usize, expected: Option<usize>) -> Result<(), String> {
    match expected {
        Some(expected) if expected == found => Ok(()),
        _ => Err("the data does not have the size of its shape".into()),
    }
}

fn product(sizes: &[usize]) -> Option<usize> {
    sizes.iter().try_fold(1usize, |product, &size| product.checked_mul(size))
}

impl Calls {
    /// Writes the parameters of a step, and returns the call.
    pub(super) fn step(
        &mut self,
        name: &str,
        step: &Step<'_>,
        method: &CompiledMethod<'_>,
        input_names: &[String],
    ) -> Result<String, String> {
        let of = |value: usize| method.spans[method.roots[value]];
        let spans = Spans {
            input: step.inputs.first().map_or(Span::EMPTY, |&value| of(value)),
            second: step.inputs.get(1).map_or(Span::EMPTY, |&value| of(value)),
            out: of(step.out),
            workspace: step.workspace.1,
        };
        let (kernel, parameters, arguments) = match &step.call {
            Call::Quantize { input, .. } => {
                let source = input_names.get(*input).ok_or("has no such input")?;
                self.quantize(&step.call, source, spans)?
            }
            Call::ConvolveFloat { .. } | Call::LinearFloat { .. } => {
                self.sums_of_floats(&step.call, spans)?
            }
            Call::ConvolvePacked { .. }
            | Call::DepthwisePacked { .. }
            | Call::LinearPacked { .. }
            | Call::AddPacked { .. } => self.packed(&step.call, spans)?,
            Call::Convolve { .. } | Call::Depthwise { .. } | Call::Linear { .. } => {
                self.sums(&step.call, spans)?
            }
            _ => self.other(&step.call, spans)?,
        };
        let arguments = arguments.join(", ");
        let Some(Parameters { kind, fields }) = parameters else {
            return Ok(format!("{kernel}({arguments});"));
        };
        // Writing to a string does not fail.
        let _ = writeln!(self.parameters, "static const struct {kind} {name} = {{");
        for (field, value) in fields {
            let _ = writeln!(self.parameters, "    .{field} = {value},");
        }
        self.parameters.push_str("};\n\n");
        Ok(format!("{kernel}(&{name}, {arguments});"))
    }

    fn uses(&mut self, kernel: &'static str) {
        if !self.kernels.contains(&kernel) {
            self.kernels.push(kernel);
        }
    }

    fn results(&mut self, results: &Results, channels: usize) -> Result<String, String> {
        let Results { scales, bias, offset, bounds: (low, high) } = results;
        let (multipliers, shifts, step) = match scales {
            Scales::One(multiplier, shift) => (vec![*multiplier], vec![*shift], 0),
            Scales::PerChannel(multipliers, shifts) => (multipliers.clone(), shifts.clone(), 1),
        };
        let count = if step == 0 { 1 } else { channels };
        check(multipliers.len(), Some(count))?;
        check(shifts.len(), Some(count))?;
        if !bias.is_empty() {
            check(bias.len(), Some(channels))?;
        }
        let [multipliers, shifts, bias] =
            [&multipliers, &shifts, bias].map(|ints| self.constants.ints(ints));
        Ok(format!("{{{multipliers}, {shifts}, {step}, {bias}, {}, {low}, {high}}}", int(offset)))
    }

    fn quantize(&mut self, call: &Call<'_>, source: &str, spans: Spans) -> Made {
        let Call::Quantize { inverse, zero, bounds, input: _ } = call else { return unknown() };
        if zero.unsigned_abs() > 1 << 24 {
            return Err("the zero point is out of range".into());
        }
        self.uses("quantize");
        let value = |value: i32| float(value as f32);
        let fields = vec![
            ("inverse", float(*inverse)),
            ("zero", value(*zero)),
            ("low", value(bounds.0)),
            ("high", value(bounds.1)),
        ];
        let arguments = vec![source.into(), at(BYTES, spans.out), spans.out.len.to_string()];
        Ok(("tl_quantize", Some(Parameters { kind: "tl_quantization", fields }), arguments))
    }

    fn sums(&mut self, call: &Call<'_>, spans: Spans) -> Made {
        let arguments = vec![at(BYTES, spans.input), at(BYTES, spans.out)];
        match call {
            Call::Convolve { from, to, windows, transposed, depth, offset, results, weights } => {
                let images = images(spans, *from, *to)?;
                let groups = from[2].checked_div(*depth).unwrap_or(0);
                check(from[2], product(&[groups, *depth]))?;
                check(to[2].checked_rem(groups).unwrap_or(1), Some(0))?;
                let taps = windows.map(|[kernel, ..]| kernel as usize);
                check(weights.len(), product(&[to[2], taps[0], taps[1], *depth]))?;
                self.uses("convolve");
                self.uses(if *transposed { "taps_transposed" } else { "taps" });
                let fields = vec![
                    ("images", images.to_string()),
                    ("groups", groups.to_string()),
                    ("depth", depth.to_string()),
                    ("transposed", i32::from(*transposed).to_string()),
                    ("from", image(*from)),
                    ("to", image(*to)),
                    ("down", window(windows[0], to[0])?),
                    ("across", window(windows[1], to[1])?),
                    ("offset", int(offset)),
                    ("weights", self.constants.bytes(weights)),
                    ("results", self.results(results, to[2])?),
                ];
                Ok(("tl_convolve", Some(Parameters { kind: "tl_convolution", fields }), arguments))
            }
            Call::Depthwise { from, to, windows, multiplier, offset, results, weights } => {
                let images = images(spans, *from, *to)?;
                check(to[2], product(&[from[2], *multiplier]))?;
                let taps = windows.map(|[kernel, ..]| kernel as usize);
                check(weights.len(), product(&[taps[0], taps[1], to[2]]))?;
                self.uses("depthwise");
                let fields = vec![
                    ("images", images.to_string()),
                    ("multiplier", multiplier.to_string()),
                    ("from", image(*from)),
                    ("to", image(*to)),
                    ("down", window(windows[0], to[0])?),
                    ("across", window(windows[1], to[1])?),
                    ("offset", int(offset)),
                    ("weights", self.constants.bytes(weights)),
                    ("results", self.results(results, to[2])?),
                ];
                let parameters = Parameters { kind: "tl_depthwise", fields };
                Ok(("tl_convolve_depthwise", Some(parameters), arguments))
            }
            Call::Linear { depth, channels, weight_offset, offset, results, weights } => {
                let rows = spans.out.len.checked_div(*channels).unwrap_or(0);
                check(spans.out.len, product(&[rows, *channels]))?;
                check(spans.input.len, product(&[rows, *depth]))?;
                check(weights.len(), product(&[*channels, *depth]))?;
                self.uses("linear");
                let fields = vec![
                    ("rows", rows.to_string()),
                    ("depth", depth.to_string()),
                    ("channels", channels.to_string()),
                    ("offset", int(offset)),
                    ("weight_offset", int(weight_offset)),
                    ("weights", self.constants.bytes(weights)),
                    ("results", self.results(results, *channels)?),
                ];
                Ok(("tl_multiply", Some(Parameters { kind: "tl_linear", fields }), arguments))
            }
            _ => unknown(),
        }
    }

    fn packed(&mut self, call: &Call<'_>, spans: Spans) -> Made {
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
                let plane = torchlet_portable::compiled::DepthwisePacked::plane(
                    extent(*from),
                    extent(*to),
                    *stride,
                    *padding,
                );
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

    fn other(&mut self, call: &Call<'_>, spans: Spans) -> Made {
        let (input, out) = (at(BYTES, spans.input), at(BYTES, spans.out));
        let arguments = vec![input.clone(), out.clone()];
        let len = spans.out.len;
        match call {
            Call::Dequantize { scale, zero } => {
                check(len, product(&[spans.input.len, 4]))?;
                self.uses("dequantize");
                let (scale, zero) = (float(*scale), float(*zero as f32));
                let count = spans.input.len.to_string();
                Ok(("tl_dequantize", None, vec![scale, zero, input, at(FLOATS, spans.out), count]))
            }
            Call::AveragePool { images: [from, to], windows } => {
                self.uses("average_pool");
                let parameters = pooling(spans, [*from, *to], windows, (-128, 127))?;
                Ok(("tl_average_pool", Some(parameters), arguments))
            }
            Call::MaxPool { images: [from, to], windows, bounds } => {
                self.uses("max_pool");
                let parameters = pooling(spans, [*from, *to], windows, *bounds)?;
                Ok(("tl_max_pool", Some(parameters), arguments))
            }
            Call::Add { zeros, scales, offset, bounds: (low, high) } => {
                check(spans.input.len, Some(len))?;
                check(spans.second.len, Some(len))?;
                self.uses("add");
                let fields = vec![
                    ("zeros", list(zeros, int)),
                    ("multipliers", list(scales, |(multiplier, _)| int(multiplier))),
                    ("shifts", list(scales, |(_, shift)| int(shift))),
                    ("offset", int(offset)),
                    ("low", low.to_string()),
                    ("high", high.to_string()),
                ];
                let arguments = vec![input, at(BYTES, spans.second), out, len.to_string()];
                Ok(("tl_add", Some(Parameters { kind: "tl_addition", fields }), arguments))
            }
            Call::Softmax { multiplier, shift, least, width } => {
                let rows = len.checked_div(*width).unwrap_or(0);
                check(len, product(&[rows, *width]))?;
                check(spans.input.len, Some(len))?;
                self.uses("softmax");
                let fields = vec![
                    ("multiplier", int(multiplier)),
                    ("shift", shift.to_string()),
                    ("least", int(least)),
                    ("rows", rows.to_string()),
                    ("width", width.to_string()),
                ];
                let parameters = Parameters { kind: "tl_softmax", fields };
                Ok(("tl_softmax_rows", Some(parameters), arguments))
            }
            Call::Pad { from, to, before, value } => {
                check(spans.input.len, product(from))?;
                check(len, product(to))?;
                self.uses("pad");
                let fields = vec![
                    ("from", list(from, usize::to_string)),
                    ("to", list(to, usize::to_string)),
                    ("before", list(before, usize::to_string)),
                    ("value", value.to_string()),
                ];
                Ok(("tl_pad", Some(Parameters { kind: "tl_padding", fields }), arguments))
            }
            Call::Permute { sizes, strides, size } => {
                check(len, product(&[product(sizes).unwrap_or(0), *size]))?;
                check(spans.input.len, Some(len))?;
                self.uses("permute");
                let fields = vec![
                    ("sizes", list(sizes, usize::to_string)),
                    ("strides", list(strides, usize::to_string)),
                    ("size", size.to_string()),
                ];
                Ok(("tl_permute", Some(Parameters { kind: "tl_permutation", fields }), arguments))
            }
            Call::Relu => {
                check(spans.input.len, Some(len))?;
                self.uses("relu");
                let count = (len / 4).to_string();
                Ok(("tl_relu", None, vec![at(FLOATS, spans.input), at(FLOATS, spans.out), count]))
            }
            Call::MaxPoolFloat { from, to, windows } => {
                let [images, rows, columns, channels] = *from;
                check(spans.input.len, product(&[images, rows, columns, channels, 4]))?;
                check(len, product(&[images, to[0], to[1], channels, 4]))?;
                self.uses("max_pool_float");
                let fields = vec![
                    ("images", images.to_string()),
                    ("from", image([rows, columns, channels])),
                    ("to", image([to[0], to[1], channels])),
                    ("down", window(windows[0], to[0])?),
                    ("across", window(windows[1], to[1])?),
                ];
                let parameters = Parameters { kind: "tl_float_pooling", fields };
                let arguments = vec![at(FLOATS, spans.input), at(FLOATS, spans.out)];
                Ok(("tl_max_pool_float", Some(parameters), arguments))
            }
            _ => unknown(),
        }
    }

    /// A convolution of floats; linear layers are convolutions of single values.
    fn sums_of_floats(&mut self, call: &Call<'_>, spans: Spans) -> Made {
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

/// Kernel, parameters and other arguments of a call.
type Made = Result<(&'static str, Option<Parameters>, Vec<String>), String>;

fn unknown() -> Made {
    Err("has no form in C".into())
}

/// Memory of a step.
#[derive(Clone, Copy)]
struct Spans {
    input: Span,
    second: Span,
    out: Span,
    workspace: Span,
}

/// The number of int8 images.
fn images(spans: Spans, from: Extent, to: Extent) -> Result<usize, String> {
    let size = product(&to).filter(|&size| size > 0).ok_or("is empty")?;
    let images = spans.out.len / size;
    check(spans.out.len, product(&[images, size]))?;
    check(spans.input.len, product(&[images, from[0], from[1], from[2]]))?;
    Ok(images)
}

fn pooling(
    spans: Spans,
    [from, to]: [Extent; 2],
    windows: &[Window; 2],
    (low, high): (i32, i32),
) -> Result<Parameters, String> {
    check(from[2], Some(to[2]))?;
    let fields = vec![
        ("images", images(spans, from, to)?.to_string()),
        ("from", image(from)),
        ("to", image(to)),
        ("down", window(windows[0], to[0])?),
        ("across", window(windows[1], to[1])?),
        ("low", low.to_string()),
        ("high", high.to_string()),
    ];
    Ok(Parameters { kind: "tl_pooling", fields })
}
