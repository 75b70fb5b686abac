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
    /// Whether the weight scales have shape `[rows, groups]`. Otherwise their shape is
    /// `[groups, rows]`, or `[rows]` with one scale per row.
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

impl QuantizedConvolution {
    fn new(
        [input, weights, weight_scales, bias]: [ValueId; 4],
        [kernel_size, stride, padding, dilation, groups]: [ValueId; 5],
        out: ValueId,
    ) -> Self {
        QuantizedConvolution {
            input,
            input_parameters: None,
            weights,
            weight_scales,
            output_parameters: None,
            bias,
            kernel_size,
            stride,
            padding,
            output_padding: None,
            dilation,
            groups,
            activation: None,
            out,
        }
    }
}

/// Conversions of the arguments of single operators.
macro_rules! conversions {
    ($($call:ident => $shared:ident: |$it:ident| $value:expr;)*) => {$(
        impl From<$call> for $shared {
            fn from($it: $call) -> Self {
                $value
            }
        }
    )*};
}

/// The arguments that have the same names in both structures.
macro_rules! linear {
    ($it:ident, $packing:ident, $bias:expr) => {{
        let operands = [$it.input, $it.weights, $it.weight_scales];
        QuantizedLinear::new(WeightPacking::$packing, operands, $bias, $it.out)
    }};
}
macro_rules! convolution {
    ($it:ident) => {
        QuantizedConvolution::new(
            [$it.input, $it.weights, $it.weight_scales, $it.bias],
            [$it.kernel_size, $it.stride, $it.padding, $it.dilation, $it.groups],
            $it.out,
        )
    };
}

conversions! {
    WeightInt8packMmArgs => QuantizedLinear: |it| {
        Self::new(WeightPacking::Bytes, [it.input, it.mat2, it.scales], None, it.out)
    };
    LinearQcs4wArgs => QuantizedLinear: |it| {
        Self::new(WeightPacking::HighNibbleFirst, [it.input, it.weight, it.scales], None, it.out)
    };
    LinearQ8cswArgs => QuantizedLinear: |it| linear!(it, Bytes, it.bias);
    LinearQ4gswArgs => QuantizedLinear: |it| QuantizedLinear {
        group_size: Some(it.group_size),
        ..linear!(it, LowNibbleFirst, it.bias)
    };
    LinearInt8Args => QuantizedLinear: |it| QuantizedLinear {
        scales_in_rows: true,
        bits: Some(it.bits),
        ..linear!(it, Bytes, Some(it.bias))
    };
    DynamicLinearArgs => QuantizedLinear: |it| QuantizedLinear {
        scales_in_rows: true,
        bits: Some(it.bits),
        ..linear!(it, Bytes, Some(it.bias))
    };
    LinearDq8caQ4gswArgs => QuantizedLinear: |it| QuantizedLinear {
        row_parameters: Some([it.input_scales, it.input_zp]),
        group_size: Some(it.group_size),
        ..linear!(it, LowNibbleFirst, it.bias)
    };
    LinearQ8taQ8cswArgs => QuantizedLinear: |it| QuantizedLinear {
        input_parameters: Some([it.input_scale, it.input_zero_point]),
        ..linear!(it, Bytes, it.bias)
    };
    Q8taLinearArgs => QuantizedLinear: |it| QuantizedLinear {
        input_parameters: Some([it.input_scale, it.input_zero_point]),
        output_parameters: Some([it.output_scale, it.output_zero_point]),
        activation: it.activation,
        ..linear!(it, Bytes, it.bias)
    };
    Q8taConv2dArgs => QuantizedConvolution: |it| QuantizedConvolution {
        input_parameters: Some([it.input_scale, it.input_zero_point]),
        output_parameters: Some([it.output_scale, it.output_zero_point]),
        activation: it.activation,
        ..convolution!(it)
    };
    Q8taConv2dTransposedArgs => QuantizedConvolution: |it| QuantizedConvolution {
        input_parameters: Some([it.input_scale, it.input_zero_point]),
        output_parameters: Some([it.output_scale, it.output_zero_point]),
        output_padding: Some(it.output_padding),
        activation: Some(it.activation),
        ..convolution!(it)
    };
    Q8taConv2dTestArgs => QuantizedConvolution: |it| QuantizedConvolution {
        input_parameters: Some([it.input_scale, it.input_zero_point]),
        output_parameters: Some([it.output_scale, it.output_zero_point]),
        ..convolution!(it)
    };
    Conv2dQ8taQ8cswArgs => QuantizedConvolution: |it| QuantizedConvolution {
        input_parameters: Some([it.input_scale, it.input_zero_point]),
        ..convolution!(it)
    };
    Conv2dQ8cswArgs => QuantizedConvolution: |it| convolution!(it);
    DynamicConvolutionArgs => QuantizedConvolution: |it| convolution!(it);
    SdpaWithKvCacheArgs => CustomSdpaArgs: |it| CustomSdpaArgs {
        query: it.query,
        key: it.key,
        value: it.value,
        start_pos: it.start_pos,
        attn_mask: it.attn_mask,
        dropout_p: it.dropout_p,
        is_causal: it.is_causal,
        scale: it.scale,
        out: it.out,
    };
}
