//! Calls in C: a structure with the parameters of each kernel, and the call itself.

use super::constants::{Constants, float, int};
use crate::compiled::{Call, CompiledMethod, Extent, Results, Scales, Span, Step, Window};
use std::fmt::Write;

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
pub(super) struct Parameters {
    pub(super) kind: &'static str,
    pub(super) fields: Vec<(&'static str, String)>,
}

/// The member of the activation memory with a type, and its size.
pub(super) const BYTES: (&str, usize) = ("bytes", 1);
pub(super) const HALVES: (&str, usize) = ("halves", 2);
pub(super) const WORDS: (&str, usize) = ("words", 4);
pub(super) const FLOATS: (&str, usize) = ("floats", 4);

/// A pointer to a part of the memory.
pub(super) fn at((member, size): (&str, usize), span: Span) -> String {
    match span.start / size {
        0 => format!("tl_memory.{member}"),
        start => format!("tl_memory.{member} + {start}"),
    }
}

pub(super) fn image([rows, columns, channels]: Extent) -> String {
    format!("{{{rows}, {columns}, {channels}}}")
}

/// The window of an axis with `size` outputs.
pub(super) fn window(window: Window, size: usize) -> Result<String, String> {
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

pub(super) fn list<T>(items: &[T], text: impl Fn(&T) -> String) -> String {
    format!("{{{}}}", items.iter().map(text).collect::<Vec<_>>().join(", "))
}

/// Fails if a size is not as expected: the call would leave its arrays.
pub(super) fn check(found: usize, expected: Option<usize>) -> Result<(), String> {
    match expected {
        Some(expected) if expected == found => Ok(()),
        _ => Err("the data does not have the size of its shape".into()),
    }
}

pub(super) fn product(sizes: &[usize]) -> Option<usize> {
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

    pub(super) fn uses(&mut self, kernel: &'static str) {
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
        if zero.unsigned_abs() > 1 << 21 {
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
}

/// Kernel, parameters and other arguments of a call.
pub(super) type Made = Result<(&'static str, Option<Parameters>, Vec<String>), String>;

pub(super) fn unknown() -> Made {
    Err("has no form in C".into())
}

/// Memory of a step.
#[derive(Clone, Copy)]
pub(super) struct Spans {
    pub(super) input: Span,
    pub(super) second: Span,
    pub(super) out: Span,
    pub(super) workspace: Span,
}

/// The number of int8 images.
pub(super) fn images(spans: Spans, from: Extent, to: Extent) -> Result<usize, String> {
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
