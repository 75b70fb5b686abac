//! Compilation of programs to straight-line code: calls in order with constant shapes, and a memory
//! plan. `code/compiled.rs` writes them as Rust, `code/c` as C.
//!
//! - [`flow`] reads a method and checks that its values can be moved to other memory.
//! - [`operators`] translates instructions to [`Step`]s, or names what it cannot.
//! - [`fuse`] merges steps. [`pack`] chooses faster calls for the target. [`plan`] assigns memory.
//!
//! Files are untrusted: every index, size and number is checked, and code contains only numbers
//! from them, no text.

mod float;
mod flow;
mod fuse;
mod operators;
mod pack;
mod plan;

use crate::names::escaped;
use crate::{Analysis, Program, Slot};
use std::borrow::Cow;
use torchlet_core::ScalarType;
use torchlet_graph::method;

pub(crate) use plan::Span;
pub(crate) use torchlet_portable::compiled::{Channel, ConvParams, Layout};

/// The kernels that a program is compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kernels {
    pub(crate) language: Language,
    /// Whether int8 layers have kernels with packed weights.
    pub(crate) are_packed: bool,
}

/// Language of the kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Language {
    Rust,
    C,
}

/// A compiled program.
pub(crate) struct Compiled<'p> {
    pub(crate) methods: Vec<CompiledMethod<'p>>,
}

/// A compiled method.
pub(crate) struct CompiledMethod<'p> {
    pub(crate) steps: Vec<Step<'p>>,
    /// Inputs that are copied into the memory: index, and where to.
    pub(crate) copied: Vec<(usize, Span)>,
    /// Memory of each output.
    pub(crate) outputs: Vec<Span>,
    /// Memory of each value of the method that is not a view.
    pub(crate) spans: Vec<Span>,
    /// For each value, the value whose memory it has.
    pub(crate) roots: Vec<usize>,
    /// Size of the activation memory in bytes.
    pub(crate) memory: usize,
}

/// A call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Step<'p> {
    pub(crate) call: Call<'p>,
    /// The values that it reads.
    pub(crate) inputs: Vec<usize>,
    /// The value that it writes.
    pub(crate) out: usize,
    /// Bytes of workspace, and where they are.
    pub(crate) workspace: (usize, Span),
}

/// Weights, or another constant.
pub(crate) type Bytes<'p> = Cow<'p, [u8]>;

/// Rows, columns and channels.
pub(crate) type Extent = [usize; 3];

/// Kernel, stride, padding and dilation of an axis.
pub(crate) type Window = [i64; 4];

/// Requantization of sums.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Results {
    pub(crate) scales: Scales,
    pub(crate) bias: Vec<i32>,
    pub(crate) offset: i32,
    pub(crate) bounds: (i32, i32),
}

/// Multipliers and shifts.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Scales {
    One(i32, i32),
    PerChannel(Vec<i32>, Vec<i32>),
}

/// What a step computes; the types of `torchlet_portable::compiled`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Call<'p> {
    /// Quantizes an input of the method.
    Quantize {
        input: usize,
        inverse: f32,
        zero: i32,
        bounds: (i32, i32),
    },
    Dequantize {
        scale: f32,
        zero: i32,
    },
    Convolve {
        from: Extent,
        to: Extent,
        windows: [Window; 2],
        transposed: bool,
        depth: usize,
        offset: i32,
        results: Results,
        weights: Bytes<'p>,
    },
    Depthwise {
        from: Extent,
        to: Extent,
        windows: [Window; 2],
        multiplier: usize,
        offset: i32,
        results: Results,
        weights: Bytes<'p>,
    },
    Linear {
        depth: usize,
        channels: usize,
        weight_offset: i32,
        offset: i32,
        results: Results,
        weights: Bytes<'p>,
    },
    ConvolvePacked {
        from: Extent,
        to: Extent,
        windows: [Window; 2],
        offset: i32,
        zero: i32,
        channels: Vec<i32>,
        weights: Bytes<'p>,
    },
    DepthwisePacked {
        from: Extent,
        to: Extent,
        stride: usize,
        padding: [usize; 2],
        value: i8,
        zero: i32,
        channels: Vec<i32>,
        weights: Bytes<'p>,
    },
    LinearPacked {
        depth: usize,
        offset: i32,
        zero: i32,
        channel: Channel,
        bias: Vec<i32>,
        weights: Bytes<'p>,
    },
    /// The scale of the first operand is a half; `zeros` are added.
    AddPacked {
        zeros: [i32; 2],
        scale: Channel,
        result: Channel,
        zero: i32,
    },
    AveragePool {
        images: [Extent; 2],
        windows: [Window; 2],
    },
    MaxPool {
        images: [Extent; 2],
        windows: [Window; 2],
        bounds: (i32, i32),
    },
    Add {
        zeros: [i32; 2],
        scales: [(i32, i32); 3],
        offset: i32,
        bounds: (i32, i32),
    },
    Softmax {
        multiplier: i32,
        shift: u32,
        least: i32,
        width: usize,
    },
    Pad {
        from: [usize; 4],
        to: [usize; 4],
        before: [usize; 4],
        value: i8,
    },
    Permute {
        sizes: [usize; 4],
        strides: [usize; 4],
        size: usize,
    },
    ConvolveFloat {
        params: ConvParams,
        weights: Bytes<'p>,
        bias: Bytes<'p>,
    },
    LinearFloat {
        sizes: [usize; 3],
        weights: Bytes<'p>,
        bias: Bytes<'p>,
    },
    /// In place, if nothing else reads the input.
    Relu,
    MaxPoolFloat {
        from: [usize; 4],
        to: [usize; 2],
        windows: [Window; 2],
    },
    /// The same bytes under another shape. Has no code.
    View,
}

impl<'p> Compiled<'p> {
    /// Compiles the methods of an analysis.
    ///
    /// # Errors
    /// The reasons why the program cannot be compiled.
    pub(crate) fn of(
        read: &'p method::Program<'p>,
        program: &Program,
        analysis: &Analysis,
        kernels: Kernels,
    ) -> Result<Self, Vec<String>> {
        let mut reasons = Vec::new();
        let own = |name: &&String| program.kernels.iter().any(|(own, _)| own.name == **name);
        for name in analysis.operators.iter().filter(own) {
            reasons.push(format!("{name} is a custom kernel"));
        }
        let mut methods = Vec::new();
        for found in &analysis.methods {
            let name = escaped(&found.name);
            let Some(method) = read.methods.iter().find(|method| method.name == found.name) else {
                reasons.push(format!("method '{name}' cannot be read"));
                continue;
            };
            match compile_method(method, &found.inputs, &found.outputs, kernels) {
                Ok(method) => methods.push(method),
                Err(own) => {
                    reasons.extend(own.into_iter().map(|own| format!("method '{name}': {own}")));
                }
            }
        }
        if reasons.is_empty() { Ok(Compiled { methods }) } else { Err(reasons) }
    }
}

impl Call<'_> {
    /// Whether the output may have the memory of the only input, if nothing reads that later.
    pub(crate) fn runs_in_place(&self) -> bool {
        match self {
            Call::Relu => true,
            Call::DepthwisePacked { from, to, .. } => from == to,
            Call::ConvolvePacked { from, to, windows, .. } => {
                from == to && *windows == [[1, 1, 0, 1]; 2]
            }
            _ => false,
        }
    }
}

fn compile_method<'p>(
    method: &'p method::Method<'p>,
    inputs: &[Slot],
    outputs: &[Slot],
    kernels: Kernels,
) -> Result<CompiledMethod<'p>, Vec<String>> {
    let mut reasons = Vec::new();
    for (is, slots) in [("input", inputs), ("output", outputs)] {
        for (index, slot) in slots.iter().enumerate() {
            if let Some(reason) = unsupported_slot(slot) {
                reasons.push(format!("{is} {index} ({slot}) {reason}"));
            }
        }
    }
    if !reasons.is_empty() {
        return Err(reasons);
    }
    operators::check_limits(method).map_err(|reason| vec![reason])?;
    let (flow, steps) = (flow::check(method), operators::steps(method));
    let mut steps = match (flow, steps) {
        (Ok(()), steps) => steps?,
        (Err(reason), Ok(_)) => return Err(vec![reason]),
        (Err(reason), Err(mut reasons)) => {
            reasons.insert(0, reason);
            return Err(reasons);
        }
    };
    fuse::run(method, &mut steps);
    if kernels.are_packed {
        pack::run(method, &mut steps);
    }
    if kernels.language == Language::C {
        steps.iter_mut().for_each(drop_workspace);
    }
    plan::run(method, steps).map_err(|reason| vec![reason])
}

/// Removes the workspace of a step if its kernel in C has none.
fn drop_workspace(step: &mut Step<'_>) {
    if matches!(
        step.call,
        Call::Convolve { .. }
            | Call::Linear { .. }
            | Call::ConvolveFloat { .. }
            | Call::LinearFloat { .. }
    ) {
        step.workspace.0 = 0;
    }
}

fn unsupported_slot(slot: &Slot) -> Option<&'static str> {
    match slot {
        Slot::Tensor { is_dynamic: true, .. } => Some("has a dynamic shape"),
        Slot::Tensor { info, .. } if info.nbytes() == 0 => Some("is empty"),
        Slot::Tensor { info, .. } => match info.scalar_type {
            ScalarType::Byte
            | ScalarType::Char
            | ScalarType::Short
            | ScalarType::Int
            | ScalarType::Long
            | ScalarType::Float => None,
            _ => Some("has a dtype that compiled programs do not support"),
        },
        _ => Some("is not a tensor"),
    }
}
