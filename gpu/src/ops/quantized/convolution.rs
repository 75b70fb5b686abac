//! Convolutions with quantized weights.

use super::codes;
use super::convert::dequantize;
use super::{bias_of, is_relu, pair, quantized_input};
use crate::derived::{Packed, Rows};
use crate::encoder::{Encoder, read, u32_of, write};
use crate::error::Error;
use crate::ops::{Entry, operator};
use crate::tensors::Operand;
use torchlet_graph::graph::ValueId;
use torchlet_graph::operators::{
    Conv2dQ8cswArgs, Conv2dQ8taQ8cswArgs, Operator, Q8taConv2dArgs, Q8taConv2dTestArgs,
    Q8taConv2dTransposedArgs, QuantizedConvolution,
};
use torchlet_shaders::{ConvolutionQuantized, ConvolutionQuantizedPush, Element};

pub(in crate::ops) const OPERATORS: &[Entry] = &[
    operator(Operator::ET_VK_Q8TA_CONV2D, q8ta_conv2d),
    operator(Operator::ET_VK_Q8TA_CONV2D_DW, q8ta_conv2d),
    operator(Operator::ET_VK_Q8TA_CONV2D_PW, q8ta_conv2d),
    operator(Operator::ET_VK_Q8TA_CONV2D_GENERAL, q8ta_conv2d),
    operator(Operator::ET_VK_Q8TA_CONV2D_IM2COL, q8ta_conv2d),
    operator(Operator::ET_VK_CONV2D_Q8TA_Q8CSW_Q8TO, q8ta_conv2d),
    operator(Operator::ET_VK_CONV2D_Q8TA_Q8CSW_Q8TO_DW, q8ta_conv2d),
    operator(Operator::ETVK_TEST_CONV2D_Q8TA_Q8CSW_Q8TO, |e, args| {
        // Also quantizes the input and dequantizes the output. A layout argument precedes the
        // output.
        let (call, out) = (Q8taConv2dTestArgs::of(args)?, e.out(args)?);
        let scale = pair(e, [call.output_scale, call.output_zero_point])?;
        let target = e.temporary(Element::I8, &out.sizes)?;
        let shape = convolve(e, &call.into(), Some(target.clone()))?;
        let out = e.resize(out.id, &shape)?;
        let quantized = Operand { sizes: shape, ..target };
        dequantize(e, &quantized, &out, scale)
    }),
    operator(Operator::ET_VK_Q8TA_CONV2D_TRANSPOSED, |e, args| {
        convolve(e, &Q8taConv2dTransposedArgs::of(args)?.into(), None).map(drop)
    }),
    operator(Operator::ET_VK_CONV2D_Q8TA_Q8CSW, |e, args| {
        convolve(e, &Conv2dQ8taQ8cswArgs::of(args)?.into(), None).map(drop)
    }),
    operator(Operator::ET_VK_CONV2D_Q8CSW, |e, args| {
        convolve(e, &Conv2dQ8cswArgs::of(args)?.into(), None).map(drop)
    }),
];

fn q8ta_conv2d(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    convolve(e, &Q8taConv2dArgs::of(args)?.into(), None).map(drop)
}

/// Parses two sizes, of at least `least`, from a list of one or two.
fn two(e: &Encoder<'_, '_>, list: ValueId, least: i64) -> Result<[usize; 2], Error> {
    let sizes = e.ints(list)?;
    let (y, x) = match sizes[..] {
        [both] => (both, both),
        [y, x] => (y, x),
        _ => return Err(Error::Invalid(format!("expected one or two integers, found {sizes:?}"))),
    };
    if y < least || x < least || y > 1 << 24 || x > 1 << 24 {
        return Err(Error::Invalid(format!("expected {least} to 2^24, found {sizes:?}")));
    }
    Ok([y as usize, x as usize])
}

/// A convolution with quantized weights.
pub(super) struct Call {
    pub(super) input: Operand,
    pub(super) weight: Operand,
    pub(super) scales: Operand,
    pub(super) bias: Option<Operand>,
    /// Rows and columns of an image and of the output, and the output channels.
    pub(super) size: [usize; 2],
    pub(super) out_size: [usize; 2],
    pub(super) out_channels: usize,
    pub(super) kernel: [usize; 2],
    pub(super) stride: [usize; 2],
    pub(super) padding: [usize; 2],
    pub(super) dilation: [usize; 2],
    pub(super) groups: usize,
    /// Whether the convolution is depthwise.
    pub(super) depthwise: bool,
    transposed: bool,
    pub(super) relu: bool,
    /// Scale and zero point of the input and of the output; `[1, 0]` if not quantized.
    pub(super) parameters: [f64; 2],
    pub(super) output: [f64; 2],
}

impl Call {
    /// Parses and checks the arguments of a convolution.
    fn of(e: &Encoder<'_, '_>, convolution: &QuantizedConvolution) -> Result<Self, Error> {
        let input = e.tensor(convolution.input)?;
        let weight = e.tensor(convolution.weights)?;
        let scales = e.tensor(convolution.weight_scales)?;
        let kernel = two(e, convolution.kernel_size, 1)?;
        let stride = two(e, convolution.stride, 1)?;
        let padding = two(e, convolution.padding, 0)?;
        let dilation = two(e, convolution.dilation, 1)?;
        let groups = usize::try_from(e.int(convolution.groups)?).unwrap_or(0);
        let depthwise = weight.rank() == 3;
        let out_channels = if depthwise { weight.size(2) } else { weight.size(0) };
        let rank = input.rank();
        if rank < 3 || groups == 0 || out_channels == 0 || weight.element != Element::I8 {
            let (input, element, weight) = (&input.sizes, weight.element, &weight.sizes);
            return Err(Error::Invalid(format!(
                "expected at least 3 input dims, int8 weights and at least 1 group, found input \
                 shape {input:?}, {element:?} weights of shape {weight:?} and {groups} groups"
            )));
        }
        let channels = input.size(rank - 3);
        let size = [input.size(rank - 2), input.size(rank - 1)];
        // Depthwise weights have one column per channel, possibly padded.
        let out_channels = if depthwise { out_channels.min(channels) } else { out_channels };
        let (group_in, group_out) = (channels / groups, out_channels / groups);
        let taps = kernel[0].saturating_mul(kernel[1]);
        let fits = channels % groups == 0
            && out_channels % groups == 0
            && group_in > 0
            && if depthwise {
                group_in == 1 && taps <= weight.size(0).saturating_mul(weight.size(1))
            } else {
                weight.rank() == 2 && taps.saturating_mul(group_in) <= weight.size(1)
            };
        if !fits {
            let (input, weight) = (&input.sizes, &weight.sizes);
            return Err(Error::Invalid(format!(
                "input shape {input:?} does not match weight shape {weight:?} with {groups} groups \
                 and kernel {kernel:?}"
            )));
        }
        let transposed = convolution.output_padding;
        let extra = match transposed {
            Some(list) => two(e, list, 0)?,
            None => [0; 2],
        };
        let length = |axis: usize, size: usize| -> Option<usize> {
            let window = dilation[axis].checked_mul(kernel[axis] - 1)?;
            if transposed.is_some() {
                size.checked_sub(1)?
                    .checked_mul(stride[axis])?
                    .checked_add(window)?
                    .checked_add(extra[axis] + 1)?
                    .checked_sub(2 * padding[axis])
            } else {
                Some((size + 2 * padding[axis]).checked_sub(window + 1)? / stride[axis] + 1)
            }
        };
        let (Some(out_height), Some(out_width)) = (length(0, size[0]), length(1, size[1])) else {
            return Err(Error::Invalid(format!(
                "kernel {kernel:?} with dilation {dilation:?} and padding {padding:?} does not fit \
                 input shape {:?}",
                input.sizes
            )));
        };
        if dilation.iter().zip(kernel).any(|(step, size)| step.saturating_mul(size) > 1 << 30) {
            return Err(Error::Invalid(format!(
                "dilation {dilation:?} of kernel {kernel:?} spans more than 2^30 elements"
            )));
        }
        let bias = bias_of(e, convolution.bias, out_channels)?;
        // A transposed convolution has scales for one group only.
        let scale_count = if transposed.is_some() { group_out } else { out_channels };
        if scales.numel() < scale_count {
            return Err(Error::Invalid(format!(
                "weight scales: expected at least {scale_count}, found {}",
                scales.numel()
            )));
        }
        let relu = is_relu(e, convolution.activation)?;
        let numbers = |given: Option<[ValueId; 2]>| match given {
            Some(given) => pair(e, given),
            None => Ok([1.0, 0.0]),
        };
        let parameters = numbers(convolution.input_parameters)?;
        let output = numbers(convolution.output_parameters)?;
        Ok(Call {
            input,
            weight,
            scales,
            bias,
            size,
            out_size: [out_height, out_width],
            out_channels,
            kernel,
            stride,
            padding,
            dilation,
            groups,
            depthwise,
            transposed: transposed.is_some(),
            relu,
            parameters,
            output,
        })
    }

    /// Parses a call with quantized input and output.
    pub(super) fn of_codes(e: &Encoder<'_, '_>, args: &[ValueId]) -> Result<Self, Error> {
        Call::of(e, &Q8taConv2dArgs::of(args)?.into())
    }

    /// Returns the number of channels of an image.
    pub(super) fn channels(&self) -> usize {
        self.input.size(self.input.rank() - 3)
    }

    /// Returns the shape of the output.
    pub(super) fn out_sizes(&self) -> Vec<usize> {
        let mut sizes = self.input.sizes.clone();
        for (slot, size) in
            sizes.iter_mut().rev().zip([self.out_size[1], self.out_size[0], self.out_channels])
        {
            *slot = size;
        }
        sizes
    }

    /// Returns the convolution as a tiled int8 GEMM, if the weights have a supported shape.
    pub(super) fn product<'o>(
        &'o self,
        e: &Encoder<'_, '_>,
        input: &'o Operand,
        out: &'o Operand,
    ) -> Option<codes::Product<'o>> {
        let source = e.constant(self.weight.id).filter(|_| !self.transposed && !self.depthwise)?;
        let rows = Rows {
            count: self.out_channels,
            pitch: self.weight.size(1),
            parts: self.kernel[0].saturating_mul(self.kernel[1]),
            codes: self.channels() / self.groups,
        };
        Some(codes::Product {
            input,
            parameters: self.parameters,
            weights: Packed { source, rows },
            scales: &self.scales,
            bias: self.bias.as_ref(),
            out,
            out_parameters: self.output,
            clamp: [if self.relu { 0.0 } else { f64::NEG_INFINITY }, f64::INFINITY],
            windows: Some(codes::Windows {
                groups: self.groups,
                size: self.size,
                out_size: self.out_size,
                kernel: self.kernel,
                stride: self.stride,
                padding: self.padding,
                dilation: self.dilation,
            }),
            is_channels_last: false,
            table: None,
        })
    }

    /// Emits the convolution from `source` to `out`.
    pub(super) fn encode(
        &self,
        e: &mut Encoder<'_, '_>,
        source: &Operand,
        out: &Operand,
    ) -> Result<(), Error> {
        if let Some(product) = self.product(e, source, out)
            && product.encode(e)?
        {
            return Ok(());
        }
        self.encode_any(e, source, out)
    }

    /// Emits the dispatch of the generic kernel.
    fn encode_any(
        &self,
        e: &mut Encoder<'_, '_>,
        source: &Operand,
        out: &Operand,
    ) -> Result<(), Error> {
        let Call { groups, kernel, stride, padding, dilation, depthwise, .. } = *self;
        let ([in_height, in_width], [out_height, out_width]) = (self.size, self.out_size);
        let (channels, out_channels) = (self.channels(), self.out_channels);
        let (group_in, group_out) = (channels / groups, out_channels / groups);
        let plane = out_height.saturating_mul(out_width);
        let tile = if !depthwise && plane % 4 == 0 && group_out % 4 == 0 { 4 } else { 1 };
        let weight_row = self.weight.sizes.last().copied().unwrap_or(1);
        let by_four = !depthwise && group_in % 4 == 0 && weight_row % 4 == 0;
        let i32_of = |size: usize| i32::try_from(size).unwrap_or(i32::MAX);
        let push = ConvolutionQuantizedPush {
            numel: u32_of(out.numel())?,
            in_channels: u32_of(channels)?,
            in_height: u32_of(in_height)?,
            in_width: u32_of(in_width)?,
            out_channels: u32_of(out_channels)?,
            out_height: u32_of(out_height)?,
            out_width: u32_of(out_width)?,
            kernel_height: u32_of(kernel[0])?,
            kernel_width: u32_of(kernel[1])?,
            stride_y: u32_of(stride[0])?,
            stride_x: u32_of(stride[1])?,
            pad_y: i32_of(padding[0]),
            pad_x: i32_of(padding[1]),
            dilation_y: i32_of(dilation[0]),
            dilation_x: i32_of(dilation[1]),
            group_in: u32_of(group_in)?,
            group_out: u32_of(group_out)?,
            weight_row: u32_of(weight_row)?,
            scales: u32_of(if self.transposed { group_out } else { out_channels })?,
            input_scale: self.parameters[0] as f32,
            input_zero: self.parameters[1] as i32,
            out_inverse: (1.0 / self.output[0]) as f32,
            out_zero: self.output[1] as f32,
        };
        u32_of(source.numel())?;
        let bias = self.bias.as_ref().unwrap_or(&self.scales);
        let pipeline = ConvolutionQuantized {
            input: source.element,
            scale: self.scales.element,
            bias: bias.element,
            output: out.element,
            has_bias: self.bias.is_some(),
            depthwise,
            transposed: self.transposed,
            tile,
            by_four,
            relu: self.relu,
        };
        let accesses = [
            read(source.id),
            read(self.weight.id),
            read(self.scales.id),
            read(bias.id),
            write(out.id),
        ];
        e.dispatch_by_four(&pipeline, accesses, &push, out.numel().div_ceil(tile as usize))
    }
}

/// Emits a convolution into `target` or the output. Returns the shape of the result.
fn convolve(
    e: &mut Encoder<'_, '_>,
    convolution: &QuantizedConvolution,
    target: Option<Operand>,
) -> Result<Vec<usize>, Error> {
    let call = Call::of(e, convolution)?;
    let sizes = call.out_sizes();
    let out = match target {
        Some(target) => {
            if target.sizes != sizes {
                return Err(Error::Invalid(format!(
                    "output: expected shape {:?}, computed {sizes:?}",
                    target.sizes
                )));
            }
            target
        }
        None => {
            let out = e.out(&[convolution.out])?;
            e.resize(out.id, &sizes)?
        }
    };
    if out.element.is_floating() == convolution.output_parameters.is_some() {
        let expected = if out.element.is_floating() { "an integer type" } else { "floats" };
        return Err(Error::Invalid(format!(
            "output: expected {expected}, found {:?}",
            out.element
        )));
    }
    let source = match convolution.input_parameters {
        Some(_) => quantized_input(e, &call.input, call.parameters)?,
        None => call.input.clone(),
    };
    call.encode(e, &source, &out)?;
    Ok(sizes)
}
