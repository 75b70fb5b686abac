//! Int8 images in channels-last layout, and convolutions over them. The pass `places` of
//! [`crate::passes`] creates these calls.

use super::channels_last::{
    channels_and_plane, channels_last_sizes, pack, planes, to_channels_last,
};
use super::codes;
use super::convert::{bounds, bounds_at};
use super::convolution::Call;
use super::elementwise::{look_up, table_of};
use super::pair;
use crate::derived::{Derived, GROUP, Recoding};
use crate::device::{DeviceFeatures, Limits};
use crate::encoder::{Encoder, read, u32_of, write};
use crate::error::Error;
use crate::ops::elementwise::stage_of;
use crate::ops::{Entry, operator};
use crate::stages::Stage;
use crate::tensors::Operand;
use torchlet_core::ScalarType;
use torchlet_graph::graph::{Graph, Node, Tensor, Value, ValueId};
use torchlet_graph::operators::{
    DequantizePerTensorArgs, Operator, Q8taConv2dArgs, Q8taReluArgs, QuantizePerTensorArgs,
    UnaryArgs,
};
use torchlet_shaders::functions::unary;
use torchlet_shaders::{DepthwiseInt8, DepthwiseInt8Push, Element};

pub(in crate::ops) const OPERATORS: &[Entry] = &[
    operator(Operator::TO_CHANNELS_LAST, |e, args| {
        let call = UnaryArgs::of(args)?;
        let input = e.tensor(call.input)?;
        let channels = channels_and_plane(&input.sizes)?;
        let out = e.out(args)?;
        if [input.element, out.element] != [Element::I8; 2] {
            return Err(Error::Invalid(format!(
                "expected int8 input and output, found {:?} and {:?}",
                input.element, out.element
            )));
        }
        let out = e.resize(out.id, &channels_last_sizes(&input, channels))?;
        pack(e, &input, channels, &out)
    }),
    operator(Operator::TO_CHANNELS_FIRST, |e, args| {
        let call = UnaryArgs::of(args)?;
        let input = e.tensor(call.input)?;
        let out = e.out(args)?;
        planes(e, &input, &out)
    }),
    operator(Operator::CONVOLUTION_CHANNELS_LAST, convolution),
];

/// Whether a call is an int8 convolution that the channels-last kernels support, on a device with
/// these features and limits.
pub(crate) fn suited(
    graph: &Graph<'_>,
    node: &Node,
    features: &DeviceFeatures,
    limits: &Limits,
) -> bool {
    let is_of_codes = matches!(
        node.operator,
        Operator::ET_VK_Q8TA_CONV2D
            | Operator::ET_VK_Q8TA_CONV2D_DW
            | Operator::ET_VK_Q8TA_CONV2D_PW
            | Operator::ET_VK_Q8TA_CONV2D_GENERAL
            | Operator::ET_VK_Q8TA_CONV2D_IM2COL
            | Operator::ET_VK_CONV2D_Q8TA_Q8CSW_Q8TO
            | Operator::ET_VK_CONV2D_Q8TA_Q8CSW_Q8TO_DW
    );
    if !is_of_codes {
        return false;
    }
    let module = codes::module(features.multiply_codes());
    let computes = features.have(module.features) && limits.bind(&module);
    let tensor = |id: Option<&ValueId>| id.and_then(|id| graph.tensor(*id));
    let picture = |id| {
        let tensor: &Tensor<'_> =
            tensor(id).filter(|it| it.scalar_type == ScalarType::Char && !it.dynamic)?;
        let [batches, channels, height, width] = tensor.sizes[..] else { return None };
        let bytes = [batches, channels.checked_next_multiple_of(GROUP)?, height, width]
            .into_iter()
            .try_fold(1usize, usize::checked_mul)?;
        let plane = height.checked_mul(width)?;
        (bytes > 0 && bytes as u64 <= limits.tensor).then_some((channels, plane))
    };
    let Ok(call) = Q8taConv2dArgs::of(node) else { return false };
    let weights = tensor(Some(&call.weights));
    let groups = match graph.values.get(call.groups) {
        Some(Value::Int(groups)) => usize::try_from(*groups).ok(),
        _ => None,
    };
    let (Some((channels, _)), Some((out_channels, places)), Some(weights), Some(groups)) =
        (picture(node.args.first()), picture(node.args.last()), weights, groups)
    else {
        return false;
    };
    // With few channels, most of the packed channels would be padding.
    let padded = channels.next_multiple_of(GROUP);
    let alone = channels == out_channels && groups == channels;
    let of_each = weights.sizes.len() == 3 && alone && channels * 2 >= padded;
    let of_all = weights.sizes.len() == 2
        && groups == 1
        && places.min(out_channels) >= GROUP
        && channels * 8 >= padded;
    let is_constant = weights.data.is_some() && weights.changes != Some(true);
    computes && is_constant && (of_each || of_all)
}

fn convolution(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let Some((part, behind)) = e.parts().split_first() else {
        return Err(Error::invalid(
            "internal error: a fused call must begin with the channels-last convolution",
        ));
    };
    let call = Call::of_codes(e, &part.args)?;
    let input = e.tensor(e.ends(args)?.0)?;
    let out = e.out(args)?;
    // The passes keep the declared shapes of images, so the result must match them.
    let declared = e.tensor(e.ends(&part.args)?.1)?.sizes;
    if call.input.rank() != 4 || declared != call.out_sizes() {
        return Err(Error::Invalid(format!(
            "output: expected 4 dims and shape {declared:?}, computed {:?}",
            call.out_sizes()
        )));
    }
    let channels = channels_and_plane(&call.input.sizes)?;
    let out_channels = channels_and_plane(&declared)?;
    let batches = input.size(0);
    let shape = |[channels, plane]: [usize; 2]| [batches, plane, channels.next_multiple_of(GROUP)];
    let codes = [input.element, call.input.element, out.element];
    if input.sizes != shape(channels) || codes != [Element::I8; 3] {
        return Err(Error::Invalid(format!(
            "input: expected int8 of shape {:?}, found {codes:?} of shape {:?}",
            shape(channels),
            input.sizes
        )));
    }
    let out = e.resize(out.id, &shape(out_channels))?;
    let table = table(e, behind, call.output)?;
    let parameters = [Some(&call.scales), call.bias.as_ref()];
    let floating = parameters.into_iter().flatten().all(|it| it.element.is_floating());
    let alone = call.groups == call.out_channels && call.out_channels == call.channels();
    let few = call.kernel[0].saturating_mul(call.kernel[1]) <= MAX_TAPS;
    if call.depthwise && alone && floating && few {
        return depthwise(e, &call, &input, &out, table.as_ref());
    }
    let product = call.product(e, &input, &out).filter(|_| call.groups == 1);
    if let Some(mut product) = product {
        (product.is_channels_last, product.table) = (true, table.as_ref());
        if product.encode(e)? {
            return Ok(());
        }
    }
    // Other kernels need the default layout.
    let [height, width] = call.out_size;
    let source = e.temporary(Element::I8, &call.input.sizes)?;
    planes(e, &input, &source)?;
    let target = e.temporary(Element::I8, &[batches, call.out_channels, height, width])?;
    call.encode(e, &source, &target)?;
    let Some(table) = table else { return pack(e, &target, out_channels, &out) };
    let packed = to_channels_last(e, &target, out_channels)?;
    look_up(e, &packed, &table, &out)
}

/// If the result of a convolution is requantized, returns the lookup table from its output scale
/// and zero point to the new ones; otherwise `None`.
fn table(
    e: &mut Encoder<'_, '_>,
    calls: &[Node],
    output: [f64; 2],
) -> Result<Option<Operand>, Error> {
    let Some((last, before)) = calls.split_last() else { return Ok(None) };
    let mut from = output;
    let mut clamp = [f64::NEG_INFINITY, f64::INFINITY];
    let recoding = match last.operator {
        Operator::Q8TA_LOOKUP => return table_of(e, &last.args).map(Some),
        Operator::ET_VK_Q8TA_RELU => {
            let call = Q8taReluArgs::of(last)?;
            let from = pair(e, [call.input_scale, call.input_zero_point])?;
            let to = pair(e, [call.output_scale, call.output_zero_point])?;
            Recoding::new(from, to, [0.0, f64::INFINITY], bounds(Element::I8))
        }
        _ => {
            for call in before {
                if call.operator == Operator::QUANTIZED_DECOMPOSED_DEQUANTIZE_PER_TENSOR {
                    let call = DequantizePerTensorArgs::of(call)?;
                    from = pair(e, [call.scale, call.zero_point])?;
                    continue;
                }
                match stage_of(e, call.operator, &call.args)? {
                    Stage::Unary(unary::CLAMP, _, bounds) => clamp = bounds,
                    _ => {
                        return Err(Error::Invalid(format!(
                            "internal error: {:?} was fused between dequantize and quantize",
                            call.operator
                        )));
                    }
                }
            }
            let call = QuantizePerTensorArgs::of(last)?;
            let to = pair(e, [call.scale, call.zero_point])?;
            let bounds = bounds_at(e, [call.quant_min, call.quant_max], Element::I8)?;
            Recoding::new(from, to, clamp, bounds)
        }
    };
    e.derived(Derived::Recoding(recoding)).map(Some)
}

/// With at most this many taps, sums fit in 32 bits: each term is less than 2^15.
const MAX_TAPS: usize = 1 << 16;

/// Emits a depthwise convolution.
fn depthwise(
    e: &mut Encoder<'_, '_>,
    call: &Call,
    input: &Operand,
    out: &Operand,
    table: Option<&Operand>,
) -> Result<(), Error> {
    let i32_of = |size: usize| {
        i32::try_from(size).map_err(|_| {
            Error::unsupported(format!("convolution with a size of {size}; the limit is 2^31 - 1"))
        })
    };
    let [height, width] = call.out_size;
    let quads = out.size(2) / 4;
    // Does not overflow, because it is at most the number of output elements.
    let rows = out.size(0).saturating_mul(height).saturating_mul(quads);
    // Neighbouring outputs share weights, if enough invocations remain.
    let enough = |across: &usize| rows.saturating_mul(width.div_ceil(*across)) >= e.busy();
    let across = [4, 2].into_iter().find(enough).unwrap_or(1);
    let count = rows.saturating_mul(width.div_ceil(across));
    let push = DepthwiseInt8Push {
        count: u32_of(count)?,
        channels: u32_of(call.out_channels)?,
        quads: u32_of(quads)?,
        weight_row: u32_of(call.weight.size(2))?,
        in_y: i32_of(call.size[0])?,
        in_x: i32_of(call.size[1])?,
        out_y: u32_of(height)?,
        out_x: u32_of(width)?,
        kernel_y: i32_of(call.kernel[0])?,
        kernel_x: i32_of(call.kernel[1])?,
        stride_y: i32_of(call.stride[0])?,
        stride_x: i32_of(call.stride[1])?,
        dilation_y: i32_of(call.dilation[0])?,
        dilation_x: i32_of(call.dilation[1])?,
        padding_y: i32_of(call.padding[0])?,
        padding_x: i32_of(call.padding[1])?,
        zero: call.parameters[1] as i32,
        scale: call.parameters[0] as f32,
        out_inverse: (1.0 / call.output[0]) as f32,
        out_zero: call.output[1] as f32,
    };
    for operand in [input, out] {
        u32_of(operand.numel())?;
    }
    let bias = call.bias.as_ref().unwrap_or(&call.scales);
    let pipeline = DepthwiseInt8 {
        scale: call.scales.element,
        bias: bias.element,
        has_bias: call.bias.is_some(),
        across: u32_of(across)?,
        recoded: table.is_some(),
        relu: call.relu,
    };
    let accesses = [
        read(input.id),
        read(call.weight.id),
        read(call.scales.id),
        read(bias.id),
        write(out.id),
        // The unused binding gets any tensor.
        read(table.unwrap_or(input).id),
    ];
    if out.numel() == 0 {
        return Ok(());
    }
    e.dispatch_along_x(&pipeline, accesses, &push, count)
}
