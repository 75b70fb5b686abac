//! Composite operators: calls that PyTorch decomposes into others, and that programs have before
//! they are decomposed. None has an instruction; [`crate::lower::portable`] lowers all of them.

use super::describe::*;
use super::*;

operators! {
    composite;
    ADAPTIVE_MAX_POOL1D(AdaptivePoolArgs) = aten::adaptive_max_pool1d.default;
    ADDCDIV(AddcmulArgs) = aten::addcdiv.default;
    ADDCMUL(AddcmulArgs {
        input: Tensor, tensor1: Tensor, tensor2: Tensor, value: Scalar = 1
    }) = aten::addcmul.default;
    ARANGE_START(
        start: Scalar, end: Scalar, dtype: OptionalDtype = None, layout: OptionalLayout = None,
        device: OptionalDevice = None, pin_memory: OptionalBool = None
    ) = aten::arange.start;
    ARGSORT(SortArgs) = aten::argsort.default;
    ARGSORT_STABLE(
        input: Tensor, stable: Bool, dim: Int = -1, descending: Bool = false
    ) = aten::argsort.stable;
    BATCH_NORM(CompositeBatchNormArgs {
        input: Tensor, weight: OptionalTensor, bias: OptionalTensor,
        running_mean: OptionalTensor, running_var: OptionalTensor, training: Bool,
        momentum: Float, eps: Float, cudnn_enabled: Bool
    }) = aten::batch_norm.default;
    BILINEAR(BilinearArgs {
        input1: Tensor, input2: Tensor, weight: Tensor, bias: OptionalTensor = None
    }) = aten::bilinear.default;
    CDIST(CompositeCdistArgs {
        x1: Tensor, x2: Tensor, p: Float = 2.0, compute_mode: OptionalInt = None
    }) = aten::cdist.default;
    CELU(CeluArgs { input: Tensor, alpha: Scalar = 1.0 }) = aten::celu.default;
    CHANNEL_SHUFFLE(ChannelShuffleArgs { input: Tensor, groups: Int })
        = aten::channel_shuffle.default;
    CHUNK(ChunkArgs { input: Tensor, chunks: Int, dim: Int = 0 }) = aten::chunk.default;
    CLAMP_MAX(ClampMaxArgs { input: Tensor, max: Scalar }) = aten::clamp_max.default;
    COLUMN_STACK(StackedArgs) = aten::column_stack.default;
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
    COSINE_SIMILARITY(CosineSimilarityArgs {
        x1: Tensor, x2: Tensor, dim: Int = 1, eps: Float = 1e-08
    }) = aten::cosine_similarity.default;
    DIFF(DiffArgs {
        input: Tensor, n: Int = 1, dim: Int = -1, prepend: OptionalTensor = None,
        append: OptionalTensor = None
    }) = aten::diff.default;
    DROPOUT(DropoutArgs { input: Tensor, p: Float, train: Bool }) = aten::dropout.default;
    EINSUM(EinsumArgs { equation: Str, tensors: Tensors, path: OptionalInts = None })
        = aten::einsum.default;
    EMPTY_LIKE(OnesLikeArgs) = aten::empty_like.default;
    EXPAND_AS(BinaryArgs) = aten::expand_as.default;
    FFT_FFT(FftArgs {
        input: Tensor, n: OptionalInts = None, dim: OptionalInts = -1, norm: OptionalStr = None
    }) = aten::fft_fft.default;
    FFT_FFT2(Fft2Args {
        input: Tensor, s: OptionalInts = None, dim: OptionalInts = [-2, -1],
        norm: OptionalStr = None
    }) = aten::fft_fft2.default;
    FFT_FFTN(FftnArgs {
        input: Tensor, s: OptionalInts = None, dim: OptionalInts = None, norm: OptionalStr = None
    }) = aten::fft_fftn.default;
    FFT_IFFT(FftArgs) = aten::fft_ifft.default;
    FFT_IFFT2(Fft2Args) = aten::fft_ifft2.default;
    FFT_IFFTN(FftnArgs) = aten::fft_ifftn.default;
    FFT_IRFFT(FftArgs) = aten::fft_irfft.default;
    FFT_IRFFT2(Fft2Args) = aten::fft_irfft2.default;
    FFT_IRFFTN(FftnArgs) = aten::fft_irfftn.default;
    FFT_RFFT(FftArgs) = aten::fft_rfft.default;
    FFT_RFFT2(Fft2Args) = aten::fft_rfft2.default;
    FFT_RFFTN(FftnArgs) = aten::fft_rfftn.default;
    FLASH_ATTENTION_FOR_CPU(FlashAttentionForCpuArgs {
        query: Tensor, key: Tensor, value: Tensor, dropout_p: Float = 0.0,
        is_causal: Bool = false, attn_mask: OptionalTensor = None, scale: OptionalFloat = None
    }) = aten::_scaled_dot_product_flash_attention_for_cpu.default;
    FLATTEN(FlattenArgs { input: Tensor, start_dim: Int = 0, end_dim: Int = -1 })
        = aten::flatten.using_ints;
    FLOAT_POWER_SCALAR(PowArgs) = aten::float_power.Tensor_Scalar;
    FRAC(UnaryArgs) = aten::frac.default;
    GRID_SAMPLER(GridSamplerArgs) = aten::grid_sampler.default;
    GROUP_NORM(CompositeGroupNormArgs {
        input: Tensor, num_groups: Int, weight: OptionalTensor = None,
        bias: OptionalTensor = None, eps: Float = 1e-5, cudnn_enabled: Bool = true
    }) = aten::group_norm.default;
    GRU_INPUT(GruArgs {
        input: Tensor, hx: Tensor, params: Tensors, has_biases: Bool, num_layers: Int,
        dropout: Float, train: Bool, bidirectional: Bool, batch_first: Bool
    }) = aten::gru.input;
    HSTACK(StackedArgs { tensors: Tensors }) = aten::hstack.default;
    IM2COL(Im2colArgs {
        input: Tensor, kernel_size: Ints, dilation: Ints, padding: Ints, stride: Ints
    }) = aten::im2col.default;
    IMAG(UnaryArgs) = aten::imag.default;
    INDEX_ADD(IndexAddArgs {
        input: Tensor, dim: Int, index: Tensor, source: Tensor, alpha: Scalar = 1
    }) = aten::index_add.default;
    INDEX_COPY(IndexCopyArgs { input: Tensor, dim: Int, index: Tensor, source: Tensor })
        = aten::index_copy.default;
    INDEX_FILL(IndexFillArgs { input: Tensor, dim: Int, index: Tensor, value: Scalar })
        = aten::index_fill.int_Scalar;
    INSTANCE_NORM(InstanceNormArgs {
        input: Tensor, weight: OptionalTensor, bias: OptionalTensor,
        running_mean: OptionalTensor, running_var: OptionalTensor, use_input_stats: Bool,
        momentum: Float, eps: Float, cudnn_enabled: Bool
    }) = aten::instance_norm.default;
    ISFINITE(UnaryArgs) = aten::isfinite.default;
    ISNEGINF(UnaryArgs) = aten::isneginf.default;
    ISPOSINF(UnaryArgs) = aten::isposinf.default;
    LAYER_NORM(CompositeLayerNormArgs {
        input: Tensor, normalized_shape: Ints, weight: OptionalTensor = None,
        bias: OptionalTensor = None, eps: Float = 1e-5, cudnn_enable: Bool = true
    }) = aten::layer_norm.default;
    LERP_SCALAR(LerpScalarArgs { input: Tensor, end: Tensor, weight: Scalar })
        = aten::lerp.Scalar;
    LERP_TENSOR(LerpArgs { input: Tensor, end: Tensor, weight: Tensor }) = aten::lerp.Tensor;
    LINALG_NORM(LinalgNormArgs {
        input: Tensor, ord: OptionalScalar = None, dim: OptionalInts = None,
        keepdim: Bool = false, dtype: OptionalDtype = None
    }) = aten::linalg_norm.default;
    LINSPACE(LinspaceArgs {
        start: Scalar, end: Scalar, steps: Int, dtype: OptionalDtype = None,
        layout: OptionalLayout = None, device: OptionalDevice = None,
        pin_memory: OptionalBool = None
    }) = aten::linspace.default;
    LOGADDEXP(BinaryArgs) = aten::logaddexp.default;
    LOGSUMEXP(LogsumexpArgs { input: Tensor, dim: Ints, keepdim: Bool = false })
        = aten::logsumexp.default;
    LOG_SIGMOID(UnaryArgs) = aten::log_sigmoid.default;
    LOG_SOFTMAX_INT(SoftmaxIntArgs { input: Tensor, dim: Int, dtype: OptionalDtype = None })
        = aten::log_softmax.int;
    LSTM_INPUT(LstmArgs {
        input: Tensor, hx: Tensors, params: Tensors, has_biases: Bool, num_layers: Int,
        dropout: Float, train: Bool, bidirectional: Bool, batch_first: Bool
    }) = aten::lstm.input;
    MASKED_FILL_TENSOR(MaskedFillTensorArgs { input: Tensor, mask: Tensor, value: Tensor })
        = aten::masked_fill.Tensor;
    MATMUL(BinaryArgs) = aten::matmul.default;
    MAX_POOL1D(MaxPoolArgs) = aten::max_pool1d.default;
    MAX_POOL3D(MaxPoolArgs) = aten::max_pool3d.default;
    MESHGRID(MeshgridArgs { tensors: Tensors, indexing: Str = "ij" }) = aten::meshgrid.indexing;
    MISH(UnaryArgs) = aten::mish.default;
    MOVEDIM(MovedimArgs { input: Tensor, source: Ints, destination: Ints })
        = aten::movedim.intlist;
    MSE_LOSS(LossArgs { input: Tensor, target: Tensor, reduction: Int = 1 })
        = aten::mse_loss.default;
    MT(UnaryArgs) = "aten.mT.default";
    NAN_TO_NUM(NanToNumArgs {
        input: Tensor, nan: OptionalFloat = None, posinf: OptionalFloat = None,
        neginf: OptionalFloat = None
    }) = aten::nan_to_num.default;
    NARROW(NarrowArgs { input: Tensor, dim: Int, start: Int, length: Int })
        = aten::narrow.default;
    NEW_EMPTY(NewArgs) = aten::new_empty.default;
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
    NORM_DIM(NormDimArgs {
        input: Tensor, p: OptionalScalar, dim: Ints, keepdim: Bool = false
    }) = aten::norm.ScalarOpt_dim;
    NORM_SCALAR(input: Tensor, p: Scalar = 2) = aten::norm.Scalar;
    NUMPY_T(UnaryArgs) = "aten.numpy_T.default";
    ONE_HOT(OneHotArgs { input: Tensor, num_classes: Int = -1 }) = aten::one_hot.default;
    OUTER(OuterArgs { input: Tensor, vec2: Tensor }) = aten::outer.default;
    PAD(CompositePadArgs {
        input: Tensor, pad: Ints, mode: Str = "constant", value: OptionalFloat = None
    }) = aten::pad.default;
    PRELU(PreluArgs { input: Tensor, weight: Tensor }) = aten::prelu.default;
    REAL(UnaryArgs) = aten::real.default;
    RESHAPE(ReshapeArgs { input: Tensor, shape: Ints }) = aten::reshape.default;
    RMS_NORM(CompositeRmsNormArgs {
        input: Tensor, normalized_shape: Ints, weight: OptionalTensor = None,
        eps: OptionalFloat = None
    }) = aten::rms_norm.default;
    RNN_RELU_INPUT(GruArgs) = aten::rnn_relu.input;
    RNN_TANH_INPUT(GruArgs) = aten::rnn_tanh.input;
    RRELU(RreluArgs {
        input: Tensor, lower: Scalar = 0.125, upper: Scalar = 0.3333333333333333,
        training: Bool = false, generator: OptionalGenerator = None
    }) = aten::rrelu.default;
    RSUB_TENSOR(AddArgs) = aten::rsub.Tensor;
    SAFE_SOFTMAX(SoftmaxIntArgs) = aten::_safe_softmax.default;
    SCALED_DOT_PRODUCT_ATTENTION(ScaledDotProductAttentionArgs {
        query: Tensor, key: Tensor, value: Tensor, attn_mask: OptionalTensor = None,
        dropout_p: Float = 0.0, is_causal: Bool = false, scale: OptionalFloat = None,
        enable_gqa: Bool = false
    }) = aten::scaled_dot_product_attention.default;
    SELU(UnaryArgs) = aten::selu.default;
    SOFTMAX_INT(SoftmaxIntArgs) = aten::softmax.int;
    SOFTSHRINK(SoftshrinkArgs { input: Tensor, lambd: Scalar = 0.5 })
        = aten::softshrink.default;
    SQUARE(UnaryArgs) = aten::square.default;
    STD(VarArgs { input: Tensor, unbiased: Bool = true }) = aten::std.default;
    STD_MEAN_CORRECTION(VarCorrectionArgs) = aten::std_mean.correction;
    SUM(ReduceAllArgs) = aten::sum.default;
    TAKE_ALONG_DIM(TakeAlongDimArgs { input: Tensor, indices: Tensor, dim: OptionalInt = None })
        = aten::take_along_dim.default;
    TENSOR_SPLIT(TensorSplitArgs { input: Tensor, sections: Int, dim: Int = 0 })
        = aten::tensor_split.sections;
    TENSOR_SPLIT_INDICES(TensorSplitIndicesArgs { input: Tensor, indices: Ints, dim: Int = 0 })
        = aten::tensor_split.indices;
    THRESHOLD(ThresholdArgs { input: Tensor, threshold: Scalar, value: Scalar })
        = aten::threshold.default;
    TILE(TileArgs { input: Tensor, dims: Ints }) = aten::tile.default;
    TO_DEVICE(
        input: Tensor, device: OptionalDevice, dtype: Dtype, non_blocking: Bool = false,
        copy: Bool = false, memory_format: OptionalMemoryFormat = None
    ) = aten::to.device;
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
    TO_OTHER(
        input: Tensor, other: Tensor, non_blocking: Bool = false, copy: Bool = false,
        memory_format: OptionalMemoryFormat = None
    ) = aten::to.other;
    TYPE_AS(BinaryArgs) = aten::type_as.default;
    UNFLATTEN(UnflattenArgs { input: Tensor, dim: Int, sizes: Ints }) = aten::unflatten.int;
    UPSAMPLE_BICUBIC2D(Upsample2dArgs {
        input: Tensor, output_size: Ints, align_corners: Bool, scales_h: OptionalFloat = None,
        scales_w: OptionalFloat = None
    }) = aten::upsample_bicubic2d.default;
    UPSAMPLE_BICUBIC2D_AA_COMPOSITE(UpsampleBilinearArgs) = "aten._upsample_bicubic2d_aa.vec";
    UPSAMPLE_BILINEAR2D(Upsample2dArgs) = aten::upsample_bilinear2d.default;
    UPSAMPLE_BILINEAR2D_AA_COMPOSITE(UpsampleBilinearArgs) = "aten._upsample_bilinear2d_aa.vec";
    UPSAMPLE_LINEAR1D_VEC(UpsampleBilinearArgs) = aten::upsample_linear1d.vec;
    UPSAMPLE_NEAREST1D_VEC(UpsampleNearestArgs) = aten::upsample_nearest1d.vec;
    UPSAMPLE_NEAREST2D(UpsampleNearest2dArgs {
        input: Tensor, output_size: Ints, scales_h: OptionalFloat = None,
        scales_w: OptionalFloat = None
    }) = aten::upsample_nearest2d.default;
    UPSAMPLE_NEAREST3D_VEC(UpsampleNearestArgs) = aten::upsample_nearest3d.vec;
    UPSAMPLE_NEAREST_EXACT1D_VEC(UpsampleNearestArgs) = aten::_upsample_nearest_exact1d.vec;
    UPSAMPLE_NEAREST_EXACT2D_VEC(UpsampleNearestArgs) = aten::_upsample_nearest_exact2d.vec;
    UPSAMPLE_NEAREST_EXACT3D_VEC(UpsampleNearestArgs) = aten::_upsample_nearest_exact3d.vec;
    UPSAMPLE_TRILINEAR3D_VEC(UpsampleBilinearArgs) = aten::upsample_trilinear3d.vec;
    VAR(VarArgs) = aten::var.default;
    VAR_MEAN_DIM(VarDimArgs) = aten::var_mean.dim;
    VIEW_AS(BinaryArgs) = aten::view_as.default;
    VSTACK(StackedArgs) = aten::vstack.default;
    WEIGHT_NORM(WeightNormArgs { v: Tensor, g: Tensor, dim: Int = 0 })
        = aten::_weight_norm.default;
    WEIGHT_NORM_INTERFACE(WeightNormArgs) = aten::_weight_norm_interface.default;
}
