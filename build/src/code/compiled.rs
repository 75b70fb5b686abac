//! The module of a compiled program: constants, calls, and a function for each method.

use super::{
    HEAD, begin_method, begin_run, end_method, escaped, is_parameter, line, method_identifier,
    names, parameters, qualify, results, slot_types, tuple,
};
use crate::compiled::{
    Call, Channel, Compiled, CompiledMethod, Extent, Layout, Results, Scales, Span, Step, Window,
};
use crate::{Analysis, MethodAnalysis, Slot};
use std::path::Path;

/// Code of a compiled program.
pub(crate) struct Code {
    /// Source text.
    pub(crate) text: String,
    /// Weights, in a file that the text includes.
    pub(crate) weights: Vec<u8>,
    /// Size of weights and other constants in bytes.
    pub(crate) constants: usize,
}

/// Writes the code of a compiled program, which includes its weights from the file `data`.
pub(crate) fn program(compiled: &Compiled<'_>, analysis: &Analysis, data: &Path) -> Code {
    let mut constants = Constants::default();
    let mut methods = String::new();
    for (found, method) in analysis.methods.iter().zip(&compiled.methods) {
        write_method(&mut methods, found, method, &mut constants);
    }
    let mut text = String::from(HEAD);
    line(&mut text, "/// Weights and other constants.");
    line(&mut text, "mod constants {");
    let path = data.to_string_lossy();
    let len = constants.bytes.len();
    line(
        &mut text,
        &format!(
            "    pub(super) static DATA: ::torchlet::core::AlignedBytes<[u8; {len}]> =\n        \
             ::torchlet::core::AlignedBytes(*::core::include_bytes!({path:?}));"
        ),
    );
    for (index, ints) in constants.ints.iter().enumerate() {
        let len = ints.len();
        line(&mut text, &format!("    pub(super) static INTS_{index}: [i32; {len}] = {ints:?};"));
    }
    line(&mut text, "}");
    text.push_str(&methods);
    model(&mut text, analysis);
    let ints = constants.ints.iter().map(Vec::len).sum::<usize>();
    let size = constants.bytes.len() + ints * size_of::<i32>();
    Code { text, weights: constants.bytes, constants: size }
}

/// Constants of a program; equal ones are stored once.
#[derive(Default)]
struct Constants {
    bytes: Vec<u8>,
    /// Offsets and lengths in `bytes`.
    parts: Vec<(usize, usize)>,
    ints: Vec<Vec<i32>>,
}

impl Constants {
    /// Expression of a constant.
    fn bytes(&mut self, data: &[u8]) -> String {
        let is_same = |&&(start, len): &&(usize, usize)| self.bytes[start..start + len] == *data;
        let (start, len) = match self.parts.iter().find(is_same) {
            Some(&part) => part,
            None => {
                // Words are loaded faster from aligned addresses.
                self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
                let part = (self.bytes.len(), data.len());
                self.bytes.extend_from_slice(data);
                self.parts.push(part);
                part
            }
        };
        format!("calls::constant(&super::constants::DATA.0, {start}, {len})")
    }

    fn ints(&mut self, ints: &[i32]) -> String {
        if ints.is_empty() {
            return "&[]".into();
        }
        let index = self.ints.iter().position(|known| known == ints).unwrap_or_else(|| {
            self.ints.push(ints.to_vec());
            self.ints.len() - 1
        });
        format!("&super::constants::INTS_{index}")
    }

    fn results(&mut self, results: &Results) -> String {
        let Results { scales, bias, offset, bounds } = results;
        let bias = self.ints(bias);
        match scales {
            Scales::One(multiplier, shift) => format!(
                "calls::Results::uniform(calls::scale({multiplier}, {shift}), {bias}, {offset}, \
                 {bounds:?})"
            ),
            Scales::PerChannel(multipliers, shifts) => {
                let (multipliers, shifts) = (self.ints(multipliers), self.ints(shifts));
                format!("calls::per_channel({multipliers}, {shifts}, {bias}, {offset}, {bounds:?})")
            }
        }
    }
}

fn span(Span { start, len }: Span) -> String {
    format!("calls::Span::new({start}, {len})")
}

fn extent([rows, columns, channels]: Extent) -> String {
    format!("calls::Extent {{ rows: {rows}, columns: {columns}, channels: {channels} }}")
}

fn window([kernel, stride, padding, dilation]: Window) -> String {
    format!("calls::window({kernel}, {stride}, {padding}, {dilation})")
}

fn pair<T: Copy>(items: [T; 2], text: impl Fn(T) -> String) -> String {
    format!("[{}]", items.map(text).join(", "))
}

fn channel_text(Channel { bias, multiplier, shift }: Channel) -> String {
    format!("calls::Channel {{ bias: {bias}, multiplier: {multiplier}, shift: {shift} }}")
}

/// A floating-point number, exactly.
fn float(value: f32) -> String {
    format!("f32::from_bits({:#x}) /* {value:e} */", value.to_bits())
}

/// Type and fields of a call, without its spans.
fn fields(
    call: &Call<'_>,
    constants: &mut Constants,
) -> (&'static str, Vec<(&'static str, String)>) {
    let scale = |(multiplier, shift): (i32, i32)| format!("calls::scale({multiplier}, {shift})");
    match call {
        Call::Quantize { inverse, zero, bounds, input: _ } => {
            let bounds = (float(bounds.0 as f32), float(bounds.1 as f32));
            let fields = vec![
                ("inverse", float(*inverse)),
                ("zero", float(*zero as f32)),
                ("bounds", format!("({}, {})", bounds.0, bounds.1)),
            ];
            ("Quantize", fields)
        }
        Call::Dequantize { scale, zero } => {
            ("Dequantize", vec![("scale", float(*scale)), ("zero", float(*zero as f32))])
        }
        Call::Convolve { from, to, windows, transposed, depth, offset, results, weights } => {
            let convolution = format!(
                "calls::Convolution {{\n            from: {},\n            to: {},\n            \
                 windows: {},\n            transposed: {transposed},\n            depth: \
                 {depth},\n            offset: {offset},\n            results: {},\n        }}",
                extent(*from),
                extent(*to),
                pair(*windows, window),
                constants.results(results),
            );
            let weights = constants.bytes(weights);
            ("Convolve", vec![("convolution", convolution), ("weights", weights)])
        }
        Call::Depthwise { from, to, windows, multiplier, offset, results, weights } => {
            let depthwise = format!(
                "calls::Depthwise {{\n            from: {},\n            to: {},\n            \
                 windows: {},\n            multiplier: {multiplier},\n            offset: \
                 {offset},\n            results: {},\n        }}",
                extent(*from),
                extent(*to),
                pair(*windows, window),
                constants.results(results),
            );
            let weights = constants.bytes(weights);
            ("ConvolveDepthwise", vec![("depthwise", depthwise), ("weights", weights)])
        }
        Call::Linear { depth, channels, weight_offset, offset, results, weights } => {
            let fields = vec![
                ("weights", constants.bytes(weights)),
                ("depth", depth.to_string()),
                ("channels", channels.to_string()),
                ("weight_offset", weight_offset.to_string()),
                ("offset", offset.to_string()),
                ("results", constants.results(results)),
            ];
            ("Linear", fields)
        }
        Call::ConvolvePacked { from, to, windows, offset, zero, channels, weights } => {
            let fields = vec![
                ("from", extent(*from)),
                ("to", extent(*to)),
                ("windows", pair(*windows, window)),
                ("offset", offset.to_string()),
                ("zero", zero.to_string()),
                ("channels", constants.ints(channels)),
                ("weights", constants.bytes(weights)),
            ];
            ("ConvolvePacked", fields)
        }
        Call::DepthwisePacked { from, to, stride, padding, value, zero, channels, weights } => {
            let fields = vec![
                ("from", extent(*from)),
                ("to", extent(*to)),
                ("stride", stride.to_string()),
                ("padding", format!("{padding:?}")),
                ("value", value.to_string()),
                ("zero", zero.to_string()),
                ("channels", constants.ints(channels)),
                ("weights", constants.bytes(weights)),
            ];
            ("DepthwisePacked", fields)
        }
        Call::LinearPacked { depth, offset, zero, channel, bias, weights } => {
            let fields = vec![
                ("depth", depth.to_string()),
                ("offset", offset.to_string()),
                ("zero", zero.to_string()),
                ("channel", channel_text(*channel)),
                ("bias", constants.ints(bias)),
                ("weights", constants.bytes(weights)),
            ];
            ("LinearPacked", fields)
        }
        Call::AddPacked { zeros, scale, result, zero } => {
            let fields = vec![
                ("zeros", format!("{zeros:?}")),
                ("scale", channel_text(*scale)),
                ("result", channel_text(*result)),
                ("zero", zero.to_string()),
            ];
            ("AddPacked", fields)
        }
        Call::AveragePool { images, windows } => {
            let fields =
                vec![("images", pair(*images, extent)), ("windows", pair(*windows, window))];
            ("AveragePool", fields)
        }
        Call::MaxPool { images, windows, bounds } => {
            let fields = vec![
                ("images", pair(*images, extent)),
                ("windows", pair(*windows, window)),
                ("bounds", format!("{bounds:?}")),
            ];
            ("MaxPool", fields)
        }
        Call::Add { zeros, scales: [a, b, all], offset, bounds } => {
            // 20 bits of precision, as in the kernel for int8.
            let sum = format!(
                "calls::Sum {{\n            zeros: {zeros:?},\n            scales: [{}, \
                 {}],\n            headroom: 20,\n            scale: {},\n            offset: \
                 {offset},\n            bounds: {bounds:?},\n        }}",
                scale(*a),
                scale(*b),
                scale(*all),
            );
            ("Add", vec![("sum", sum)])
        }
        Call::Softmax { multiplier, shift, least, width } => {
            let softmax = format!(
                "calls::SoftmaxRow {{ multiplier: {multiplier}, shift: {shift}, least: {least} }}"
            );
            ("Softmax", vec![("softmax", softmax), ("width", width.to_string())])
        }
        Call::Pad { from, to, before, value } => {
            let fields = vec![
                ("from", format!("{from:?}")),
                ("to", format!("{to:?}")),
                ("before", format!("{before:?}")),
                ("value", (*value as u8).to_string()),
            ];
            ("Pad", fields)
        }
        Call::Permute { sizes, strides, size } => {
            let fields = vec![
                ("sizes", format!("{sizes:?}")),
                ("strides", format!("{strides:?}")),
                ("size", size.to_string()),
            ];
            ("Permute", fields)
        }
        Call::ConvolveFloat { params, weights, bias } => {
            let layout = match params.layout {
                Layout::ChannelsFirst => "ChannelsFirst",
                Layout::ChannelsLast => "ChannelsLast",
            };
            let text = format!(
                "calls::ConvParams {{\n            batch: {},\n            in_channels: \
                 {},\n            out_channels: {},\n            groups: {},\n            input: \
                 {:?},\n            kernel: {:?},\n            stride: {:?},\n            \
                 padding: {:?},\n            dilation: {:?},\n            output_padding: \
                 {:?},\n            transposed: {},\n            layout: \
                 calls::Layout::{layout},\n        }}",
                params.batch,
                params.in_channels,
                params.out_channels,
                params.groups,
                params.input,
                params.kernel,
                params.stride,
                params.padding,
                params.dilation,
                params.output_padding,
                params.transposed,
            );
            let fields = vec![
                ("params", text),
                ("weights", constants.bytes(weights)),
                ("bias", constants.bytes(bias)),
            ];
            ("ConvolveFloat", fields)
        }
        Call::LinearFloat { sizes, weights, bias } => {
            let fields = vec![
                ("weights", constants.bytes(weights)),
                ("bias", constants.bytes(bias)),
                ("sizes", format!("{sizes:?}")),
            ];
            ("LinearFloat", fields)
        }
        Call::Relu => ("Relu", Vec::new()),
        Call::MaxPoolFloat { from, to, windows } => {
            let fields = vec![
                ("from", format!("{from:?}")),
                ("to", format!("{to:?}")),
                ("windows", pair(*windows, window)),
            ];
            ("MaxPoolFloat", fields)
        }
        Call::View => ("Span", Vec::new()),
    }
}

/// The static of a call.
fn call(
    text: &mut String,
    index: usize,
    step: &Step<'_>,
    method: &CompiledMethod<'_>,
    constants: &mut Constants,
) {
    let (kind, mut fields) = fields(&step.call, constants);
    let of = |value: usize| span(method.spans[method.roots[value]]);
    match step.inputs[..] {
        [input] => fields.push(("input", of(input))),
        [a, b] => fields.push(("inputs", format!("[{}, {}]", of(a), of(b)))),
        _ => {}
    }
    fields.push(("out", of(step.out)));
    if matches!(
        step.call,
        Call::Convolve { .. }
            | Call::Linear { .. }
            | Call::ConvolveFloat { .. }
            | Call::LinearFloat { .. }
            | Call::ConvolvePacked { .. }
            | Call::DepthwisePacked { .. }
            | Call::LinearPacked { .. }
    ) {
        fields.push(("workspace", span(step.workspace.1)));
    }
    line(text, &format!("static CALL_{index}: calls::{kind} = calls::{kind} {{"));
    for (name, value) in fields {
        line(text, &format!("    {name}: {value},"));
    }
    line(text, "};");
}

/// The module of a method.
fn write_method(
    text: &mut String,
    found: &MethodAnalysis,
    method: &CompiledMethod<'_>,
    constants: &mut Constants,
) {
    let mut inner = begin_method(found);
    let text_of_method = &mut inner;
    line(text_of_method, "use ::torchlet::portable::compiled as calls;\n");
    line(text_of_method, "/// Size of the activation memory in bytes.");
    line(text_of_method, &format!("pub const MEMORY: usize = {};", method.memory));
    slot_types(text_of_method, found);
    text_of_method.push('\n');
    for (index, step) in method.steps.iter().enumerate() {
        call(text_of_method, index, step, method, constants);
    }
    let parameters = parameters(found);
    line(text_of_method, "\n/// Runs all calls.");
    line(text_of_method, "#[allow(unused_variables)]");
    line(text_of_method, &format!("fn compute(memory: &mut [u8], {parameters}) {{"));
    let flat = |index: usize| {
        format!("<Input{index} as firmware::Nested>::flat(::core::slice::from_ref(input_{index}))")
    };
    for &(index, to) in &method.copied {
        line(text_of_method, &format!("    calls::copy({}, {}, memory);", flat(index), span(to)));
    }
    for (index, step) in method.steps.iter().enumerate() {
        let input = match step.call {
            Call::Quantize { input, .. } => format!("{}, ", flat(input)),
            _ => String::new(),
        };
        line(text_of_method, &format!("    CALL_{index}.run({input}memory);"));
    }
    line(text_of_method, "}");
    handle(text_of_method, found, method);
    end_method(text, found, "compiled", &inner);
}

/// The type of a method in static memory.
fn handle(text: &mut String, found: &MethodAnalysis, method: &CompiledMethod<'_>) {
    let (parameters, names, results) = (parameters(found), names(found), results(found, ""));
    line(text, "\n/// The method in its memory.");
    line(text, "#[derive(Debug)]");
    line(text, "pub struct Method(&'static mut core::AlignedBytes<[u8; MEMORY]>);");
    line(text, "\nimpl Method {");
    line(text, "    /// Takes static memory.");
    line(text, "    ///\n    /// # Errors\n    /// If it was already taken.");
    line(text, "    pub fn load() -> Result<Self, Error> {");
    let kind = "TakeOnce<core::AlignedBytes<[u8; MEMORY]>>";
    line(text, &format!("        static PLANNED_MEMORY_0: {kind} ="));
    line(text, "            TakeOnce::new(core::AlignedBytes([0; MEMORY]));");
    line(text, "        Ok(Method(PLANNED_MEMORY_0.take()?))");
    line(text, "    }");
    line(text, "\n    /// The outputs of the last run.");
    line(
        text,
        "    ///\n    /// # Errors\n    /// Never; kept for the signature of other methods.",
    );
    line(text, &format!("    pub fn outputs(&self) -> Result<{results}, Error> {{"));
    let outputs = found.outputs.iter().zip(&method.outputs).enumerate();
    let outputs = outputs.map(|(index, (slot, place))| {
        let expected = match slot {
            Slot::Tensor { info, .. } => info.numel(),
            _ => 0,
        };
        let bytes = format!("{}.of(&self.0.0)", span(*place));
        format!(
            "<Output{index} as firmware::Nested>::from_bytes({bytes})\n            \
             .ok_or(Error::Length {{ expected: {expected}, found: 0 }})"
        )
    });
    let outputs: Vec<String> = outputs.collect();
    let value = match &outputs[..] {
        [one] => one.clone(),
        all => format!("Ok({})", tuple(all.iter().map(|output| format!("{output}?")).collect())),
    };
    line(text, &format!("        {value}\n    }}"));
    line(text, "\n    /// Runs the method and returns the outputs.");
    begin_run(text, "run", [&parameters, &results], false);
    let separator = if names.is_empty() { "" } else { ", " };
    line(text, &format!("        compute(&mut self.0.0{separator}{names});"));
    line(text, "        self.outputs()\n    }");
    line(text, "}");
}

/// The struct of all methods of the program.
fn model(text: &mut String, analysis: &Analysis) {
    line(text, "\n/// The program in its memory.");
    line(text, "#[derive(Debug)]");
    line(text, "pub struct Model {");
    for found in &analysis.methods {
        let (name, module) = (escaped(&found.name), method_identifier(&found.name));
        line(text, &format!("    /// Method `{name}`.\n    pub {module}: {module}::Method,"));
    }
    line(text, "}");
    line(text, "\n/// Takes the static memory of the program.");
    line(text, "///\n/// # Errors\n/// If it was already taken.");
    line(text, "pub fn load() -> Result<Model, Error> {");
    line(text, "    Ok(Model {");
    for found in &analysis.methods {
        let module = method_identifier(&found.name);
        line(text, &format!("        {module}: {module}::Method::load()?,"));
    }
    line(text, "    })\n}");
    line(text, "\nimpl Model {");
    for found in &analysis.methods {
        let (name, module) = (escaped(&found.name), method_identifier(&found.name));
        let qualified = |text: String| qualify(&text, &module);
        let (parameters, results) = (qualified(parameters(found)), qualified(results(found, "")));
        debug_assert!(found.inputs.iter().all(is_parameter));
        line(text, &format!("    /// Runs method `{name}`."));
        begin_run(text, &module, [&parameters, &results], false);
        line(text, &format!("        self.{module}.run({})\n    }}", names(found)));
    }
    line(text, "}");
}
