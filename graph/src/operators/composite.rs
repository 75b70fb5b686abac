//! Composite operators: calls that PyTorch decomposes into others, and that programs have before
//! they are decomposed. None has an instruction; [`crate::lower::portable`] lowers all of them.

use super::describe::*;
use super::*;

operators! {
    composite;
    ADAPTIVE_MAX_POOL1D(AdaptivePoolArgs) = aten::adaptive_max_pool1d.default;
    ARANGE_START(
        start: Scalar, end: Scalar, dtype: OptionalDtype = None, layout: OptionalLayout = None,
        device: OptionalDevice = None, pin_memory: OptionalBool = None
    ) = aten::arange.start;
    BATCH_NORM(CompositeBatchNormArgs {
        input: Tensor, weight: OptionalTensor, bias: OptionalTensor,
        running_mean: OptionalTensor, running_var: OptionalTensor, training: Bool,
        momentum: Float, eps: Float, cudnn_enabled: Bool
    }) = aten::batch_norm.default;
    CHUNK(ChunkArgs { input: Tensor, chunks: Int, dim: Int = 0 }) = aten::chunk.default;
    CONTIGUOUS(input: Tensor, memory_format: OptionalMemoryFormat = None)
        = aten::contiguous.default;
    CONV1D(ConvArgs {
        input: Tensor, weight: Tensor, bias: OptionalTensor = None, stride: Ints = 1,
        padding: Ints = 0, dilation: Ints = 1, groups: Int = 1
    }) = aten::conv1d.default;
    CONV1D_PADDING(ConvPaddingArgs {
        input: Tensor, weight: Tensor, bias: OptionalTensor = None, stride: Ints = 1,
        padding: Str = "valid", dilation: Ints = 1, groups: Int = 1
    }) = aten::conv1d.padding;
    CONV2D(ConvArgs) = aten::conv2d.default;
    CONV2D_PADDING(ConvPaddingArgs) = aten::conv2d.padding;
    CONV3D(ConvArgs) = aten::conv3d.default;
    CONV3D_PADDING(ConvPaddingArgs) = aten::conv3d.padding;
    CONV_TRANSPOSE1D(ConvTransposeArgs {
        input: Tensor, weight: Tensor, bias: OptionalTensor = None, stride: Ints = 1,
        padding: Ints = 0, output_padding: Ints = 0, groups: Int = 1, dilation: Ints = 1
    }) = aten::conv_transpose1d.default;
    CONV_TRANSPOSE2D_INPUT(ConvTransposeArgs) = aten::conv_transpose2d.input;
    CONV_TRANSPOSE3D_INPUT(ConvTransposeArgs) = aten::conv_transpose3d.input;
    DROPOUT(DropoutArgs { input: Tensor, p: Float, train: Bool }) = aten::dropout.default;
    EINSUM(EinsumArgs { equation: Str, tensors: Tensors, path: OptionalInts = None })
        = aten::einsum.default;
    EXPAND_AS(BinaryArgs) = aten::expand_as.default;
    FLATTEN(FlattenArgs { input: Tensor, start_dim: Int = 0, end_dim: Int = -1 })
        = aten::flatten.using_ints;
    GROUP_NORM(CompositeGroupNormArgs {
        input: Tensor, num_groups: Int, weight: OptionalTensor = None,
        bias: OptionalTensor = None, eps: Float = 1e-5, cudnn_enabled: Bool = true
    }) = aten::group_norm.default;
    GRU_INPUT(GruArgs {
        input: Tensor, hx: Tensor, params: Tensors, has_biases: Bool, num_layers: Int,
        dropout: Float, train: Bool, bidirectional: Bool, batch_first: Bool
    }) = aten::gru.input;
    INSTANCE_NORM(InstanceNormArgs {
        input: Tensor, weight: OptionalTensor, bias: OptionalTensor,
        running_mean: OptionalTensor, running_var: OptionalTensor, use_input_stats: Bool,
        momentum: Float, eps: Float, cudnn_enabled: Bool
    }) = aten::instance_norm.default;
    LAYER_NORM(CompositeLayerNormArgs {
        input: Tensor, normalized_shape: Ints, weight: OptionalTensor = None,
        bias: OptionalTensor = None, eps: Float = 1e-5, cudnn_enable: Bool = true
    }) = aten::layer_norm.default;
    LOG_SOFTMAX_INT(SoftmaxIntArgs { input: Tensor, dim: Int, dtype: OptionalDtype = None })
        = aten::log_softmax.int;
    LSTM_INPUT(LstmArgs {
        input: Tensor, hx: Tensors, params: Tensors, has_biases: Bool, num_layers: Int,
        dropout: Float, train: Bool, bidirectional: Bool, batch_first: Bool
    }) = aten::lstm.input;
    MATMUL(BinaryArgs) = aten::matmul.default;
    MAX_POOL1D(MaxPoolArgs) = aten::max_pool1d.default;
    MAX_POOL3D(MaxPoolArgs) = aten::max_pool3d.default;
    MESHGRID(MeshgridArgs { tensors: Tensors, indexing: Str = "ij" }) = aten::meshgrid.indexing;
    MISH(UnaryArgs) = aten::mish.default;
    MOVEDIM(MovedimArgs { input: Tensor, source: Ints, destination: Ints })
        = aten::movedim.intlist;
    MT(UnaryArgs) = "aten.mT.default";
    NARROW(NarrowArgs { input: Tensor, dim: Int, start: Int, length: Int })
        = aten::narrow.default;
    NEW_FULL(NewFullArgs {
        input: Tensor, size: Ints, fill_value: Scalar, dtype: OptionalDtype = None,
        layout: OptionalLayout = None, device: OptionalDevice = None,
        pin_memory: OptionalBool = None
    }) = aten::new_full.default;
    NEW_ONES(NewArgs {
        input: Tensor, size: Ints, dtype: OptionalDtype = None, layout: OptionalLayout = None,
        device: OptionalDevice = None, pin_memory: OptionalBool = None
    }) = aten::new_ones.default;
    NEW_ZEROS(NewArgs) = aten::new_zeros.default;
    NUMPY_T(UnaryArgs) = "aten.numpy_T.default";
    PAD(CompositePadArgs {
        input: Tensor, pad: Ints, mode: Str = "constant", value: OptionalFloat = None
    }) = aten::pad.default;
    PRELU(PreluArgs { input: Tensor, weight: Tensor }) = aten::prelu.default;
    RESHAPE(ReshapeArgs { input: Tensor, shape: Ints }) = aten::reshape.default;
    RMS_NORM(CompositeRmsNormArgs {
        input: Tensor, normalized_shape: Ints, weight: OptionalTensor = None,
        eps: OptionalFloat = None
    }) = aten::rms_norm.default;
    RNN_RELU_INPUT(GruArgs) = aten::rnn_relu.input;
    RNN_TANH_INPUT(GruArgs) = aten::rnn_tanh.input;
    SCALED_DOT_PRODUCT_ATTENTION(ScaledDotProductAttentionArgs {
        query: Tensor, key: Tensor, value: Tensor, attn_mask: OptionalTensor = None,
        dropout_p: Float = 0.0, is_causal: Bool = false, scale: OptionalFloat = None,
        enable_gqa: Bool = false
    }) = aten::scaled_dot_product_attention.default;
    SELU(UnaryArgs) = aten::selu.default;
    SOFTMAX_INT(SoftmaxIntArgs) = aten::softmax.int;
    SQUARE(UnaryArgs) = aten::square.default;
    TENSOR_SPLIT(TensorSplitArgs { input: Tensor, sections: Int, dim: Int = 0 })
        = aten::tensor_split.sections;
    TO_DTYPE(
        input: Tensor, dtype: Dtype, non_blocking: Bool = false, copy: Bool = false,
        memory_format: OptionalMemoryFormat = None
    ) = aten::to.dtype;
    TO_DTYPE_LAYOUT(
        input: Tensor, dtype: OptionalDtype = None, layout: OptionalLayout = None,
        device: OptionalDevice = None, pin_memory: OptionalBool = None,
        non_blocking: Bool = false, copy: Bool = false,
        memory_format: OptionalMemoryFormat = None
    ) = aten::to.dtype_layout;
    TO_DEVICE(
        input: Tensor, device: OptionalDevice, dtype: Dtype, non_blocking: Bool = false,
        copy: Bool = false, memory_format: OptionalMemoryFormat = None
    ) = aten::to.device;
    TO_OTHER(
        input: Tensor, other: Tensor, non_blocking: Bool = false, copy: Bool = false,
        memory_format: OptionalMemoryFormat = None
    ) = aten::to.other;
    TYPE_AS(BinaryArgs) = aten::type_as.default;
    UNFLATTEN(UnflattenArgs { input: Tensor, dim: Int, sizes: Ints }) = aten::unflatten.int;
    VIEW_AS(BinaryArgs) = aten::view_as.default;
}
