//! Argument structures that operators with different schemas share.

use super::*;

/// Packing of quantized weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightPacking {
    /// One byte per weight.
    Bytes,
    /// 4 bits per weight; the low nibble holds the first of two.
    LowNibbleFirst,
    /// 4 bits per weight; the high nibble holds the first of two.
    HighNibbleFirst,
}

/// Arguments of a matrix multiplication with quantized weights.
#[derive(Debug, Clone, Copy)]
pub struct QuantizedLinear {
    /// The left operand.
    pub input: ValueId,
    /// Scale and zero point of the input (scalars).
    pub input_parameters: Option<[ValueId; 2]>,
    /// Scale and zero point of each input row (tensors).
    pub row_parameters: Option<[ValueId; 2]>,
    /// Quantized weights, one row per output column.
    pub weights: ValueId,
    /// Packing of the weights.
    pub packing: WeightPacking,
    /// Scales of the weights.
    pub weight_scales: ValueId,
    /// Whether the scales have shape `[rows, groups]`. Otherwise it is `[rows]`, or
    /// `[groups, rows]` with groups.
    pub scales_in_rows: bool,
    /// Bits per weight, if each weight occupies a byte.
    pub bits: Option<ValueId>,
    /// Number of consecutive weights in a row that share a scale.
    pub group_size: Option<ValueId>,
    /// Bias, added to each output row.
    pub bias: Option<ValueId>,
    /// Scale and zero point of the output (scalars).
    pub output_parameters: Option<[ValueId; 2]>,
    /// Name of the activation function applied to the output.
    pub activation: Option<ValueId>,
    /// The output.
    pub out: ValueId,
}

impl QuantizedLinear {
    fn new(
        packing: WeightPacking,
        [input, weights, weight_scales]: [ValueId; 3],
        bias: Option<ValueId>,
        out: ValueId,
    ) -> Self {
        QuantizedLinear {
            input,
            input_parameters: None,
            row_parameters: None,
            weights,
            packing,
            weight_scales,
            scales_in_rows: false,
            bits: None,
            group_size: None,
            bias,
            output_parameters: None,
            activation: None,
            out,
        }
    }
}

impl From<WeightInt8packMmArgs> for QuantizedLinear {
    fn from(call: WeightInt8packMmArgs) -> Self {
        let operands = [call.input, call.mat2, call.scales];
        Self::new(WeightPacking::Bytes, operands, None, call.out)
    }
}

impl From<LinearQcs4wArgs> for QuantizedLinear {
    fn from(call: LinearQcs4wArgs) -> Self {
        let operands = [call.input, call.weight, call.scales];
        Self::new(WeightPacking::HighNibbleFirst, operands, None, call.out)
    }
}

impl From<LinearQ8cswArgs> for QuantizedLinear {
    fn from(call: LinearQ8cswArgs) -> Self {
        let operands = [call.input, call.weights, call.weight_scales];
        Self::new(WeightPacking::Bytes, operands, call.bias, call.out)
    }
}

impl From<LinearQ4gswArgs> for QuantizedLinear {
    fn from(call: LinearQ4gswArgs) -> Self {
        let operands = [call.input, call.weights, call.weight_scales];
        let linear = Self::new(WeightPacking::LowNibbleFirst, operands, call.bias, call.out);
        QuantizedLinear { group_size: Some(call.group_size), ..linear }
    }
}

impl From<LinearOfCodesArgs> for QuantizedLinear {
    fn from(call: LinearOfCodesArgs) -> Self {
        let operands = [call.input, call.weights, call.weight_scales];
        let linear = Self::new(WeightPacking::Bytes, operands, Some(call.bias), call.out);
        QuantizedLinear { scales_in_rows: true, bits: Some(call.bits), ..linear }
    }
}

impl From<DynamicLinearArgs> for QuantizedLinear {
    fn from(call: DynamicLinearArgs) -> Self {
        let operands = [call.input, call.weights, call.weight_scales];
        let linear = Self::new(WeightPacking::Bytes, operands, Some(call.bias), call.out);
        QuantizedLinear { scales_in_rows: true, bits: Some(call.bits), ..linear }
    }
}

impl From<LinearDq8caQ4gswArgs> for QuantizedLinear {
    fn from(call: LinearDq8caQ4gswArgs) -> Self {
        let operands = [call.input, call.weights, call.weight_scales];
        QuantizedLinear {
            row_parameters: Some([call.input_scales, call.input_zp]),
            group_size: Some(call.group_size),
            ..Self::new(WeightPacking::LowNibbleFirst, operands, call.bias, call.out)
        }
    }
}

impl From<LinearQ8taQ8cswArgs> for QuantizedLinear {
    fn from(call: LinearQ8taQ8cswArgs) -> Self {
        let operands = [call.input, call.weights, call.weight_scales];
        QuantizedLinear {
            input_parameters: Some([call.input_scale, call.input_zero_point]),
            ..Self::new(WeightPacking::Bytes, operands, call.bias, call.out)
        }
    }
}

impl From<Q8taLinearArgs> for QuantizedLinear {
    fn from(call: Q8taLinearArgs) -> Self {
        let operands = [call.input, call.weights, call.weight_scales];
        QuantizedLinear {
            input_parameters: Some([call.input_scale, call.input_zero_point]),
            output_parameters: Some([call.output_scale, call.output_zero_point]),
            activation: call.activation,
            ..Self::new(WeightPacking::Bytes, operands, call.bias, call.out)
        }
    }
}

/// Attention over caches that are up to date.
impl From<SdpaWithKvCacheArgs> for CustomSdpaArgs {
    fn from(call: SdpaWithKvCacheArgs) -> Self {
        let SdpaWithKvCacheArgs { query, key, value, start_pos, attn_mask, .. } = call;
        let SdpaWithKvCacheArgs { dropout_p, is_causal, scale, out, .. } = call;
        CustomSdpaArgs { query, key, value, start_pos, attn_mask, dropout_p, is_causal, scale, out }
    }
}

/// Arguments of a convolution with quantized weights.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "the names are those of PyTorch's schemas")]
pub struct QuantizedConvolution {
    pub input: ValueId,
    /// Scale and zero point of the input, if it is quantized.
    pub input_parameters: Option<[ValueId; 2]>,
    pub weights: ValueId,
    pub weight_scales: ValueId,
    /// Scale and zero point of the output, if it is quantized.
    pub output_parameters: Option<[ValueId; 2]>,
    pub bias: ValueId,
    pub kernel_size: ValueId,
    pub stride: ValueId,
    pub padding: ValueId,
    /// Output padding of a transposed convolution.
    pub output_padding: Option<ValueId>,
    pub dilation: ValueId,
    pub groups: ValueId,
    /// Name of the activation function applied to the output.
    pub activation: Option<ValueId>,
    pub out: ValueId,
}

/// Conversions from calls whose windows have the same names.
macro_rules! quantized_convolutions {
    ($($call:ident { $($field:ident: $value:expr),* } = |$it:ident|;)*) => {$(
        impl From<$call> for QuantizedConvolution {
            fn from($it: $call) -> Self {
                QuantizedConvolution {
                    input: $it.input,
                    weights: $it.weights,
                    weight_scales: $it.weight_scales,
                    bias: $it.bias,
                    kernel_size: $it.kernel_size,
                    stride: $it.stride,
                    padding: $it.padding,
                    dilation: $it.dilation,
                    groups: $it.groups,
                    out: $it.out,
                    $($field: $value),*
                }
            }
        }
    )*};
}

quantized_convolutions! {
    Q8taConv2dArgs {
        input_parameters: Some([call.input_scale, call.input_zero_point]),
        output_parameters: Some([call.output_scale, call.output_zero_point]),
        output_padding: None,
        activation: call.activation
    } = |call|;
    Q8taConv2dTransposedArgs {
        input_parameters: Some([call.input_scale, call.input_zero_point]),
        output_parameters: Some([call.output_scale, call.output_zero_point]),
        output_padding: Some(call.output_padding),
        activation: Some(call.activation)
    } = |call|;
    Q8taConv2dTestArgs {
        input_parameters: Some([call.input_scale, call.input_zero_point]),
        output_parameters: Some([call.output_scale, call.output_zero_point]),
        output_padding: None,
        activation: None
    } = |call|;
    Conv2dQ8taQ8cswArgs {
        input_parameters: Some([call.input_scale, call.input_zero_point]),
        output_parameters: None,
        output_padding: None,
        activation: None
    } = |call|;
    Conv2dQ8cswArgs {
        input_parameters: None,
        output_parameters: None,
        output_padding: None,
        activation: None
    } = |call|;
    DynamicConvolutionArgs {
        input_parameters: None,
        output_parameters: None,
        output_padding: None,
        activation: None
    } = |call|;
}
