//! Operators as methods.
//!
//! Each line of the table names an operator of the compiler; the parameters are those of its
//! description, which a test compares. The shapes, dtypes and defaults come from there, too.

use super::tensor::{apply, one};
use super::{Arg, Tensor};
use crate::error::Error;
use torchlet_core::ScalarType;
use torchlet_graph::operators::Operator;

/// Declares methods: name, parameters behind the tensor, operator.
macro_rules! methods {
    ($(
        $(#[$doc:meta])*
        $name:ident($($argument:ident: $type:ty),*) = $operator:ident;
    )*) => {
        #[allow(clippy::too_many_arguments, reason = "the arguments are those of PyTorch")]
        impl Tensor {
            $(
                $(#[$doc])*
                ///
                #[doc = concat!("Records `", stringify!($name), "` of PyTorch.")]
                ///
                /// # Errors
                /// PyTorch rejects the shapes, dtypes or other arguments.
                pub fn $name(&self $(, $argument: $type)*) -> Result<Tensor, Error> {
                    let args = vec![Arg::from(self) $(, $argument.into())*];
                    one(stringify!($name), apply(None, Operator::$operator, args)?)
                }
            )*
        }

        /// Methods with their operators and the names of their parameters.
        #[cfg(test)]
        const METHODS: &[(&str, Operator, &[&str])] =
            &[$((stringify!($name), Operator::$operator, &[$(stringify!($argument)),*])),*];
    };
}

/// Declares methods that overwrite the tensor.
macro_rules! in_place_methods {
    ($($name:ident($($argument:ident: $type:ty),*) = $operator:ident;)*) => {
        impl Tensor {
            $(
                /// Overwrites the tensor, and all that share its memory, with the result.
                ///
                #[doc = concat!("Records `", stringify!($name), "` of PyTorch.")]
                ///
                /// # Errors
                /// PyTorch rejects the arguments, or the result has another shape than the tensor.
                pub fn $name(&self $(, $argument: $type)*) -> Result<Tensor, Error> {
                    self.overwrite(Operator::$operator, vec![$($argument.into()),*])
                }
            )*
        }

        #[cfg(test)]
        const IN_PLACE: &[(&str, Operator, &[&str])] =
            &[$((stringify!($name), Operator::$operator, &[$(stringify!($argument)),*])),*];
    };
}

methods! {
    /// `|x|`.
    abs() = ABS;
    /// Arc cosine.
    acos() = ACOS;
    /// Inverse hyperbolic cosine.
    acosh() = ACOSH;
    /// Sum with a tensor or a number, with broadcasting.
    add(other: impl Into<Arg>) = ADD_TENSOR;
    /// `self + mat1 @ mat2`.
    addmm(mat1: &Tensor, mat2: &Tensor) = ADDMM;
    /// Whether all elements of a dim are true.
    all(dim: impl Into<Arg>, keepdim: bool) = ALL_DIMS;
    /// Whether an element of a dim is true.
    any(dim: impl Into<Arg>, keepdim: bool) = ANY_DIMS;
    /// Index of the maximum of a dim, or of all elements if the dim is `()`.
    argmax(dim: impl Into<Arg>, keepdim: bool) = ARGMAX;
    /// Index of the minimum of a dim, or of all elements if the dim is `()`.
    argmin(dim: impl Into<Arg>, keepdim: bool) = ARGMIN;
    /// Indices that sort a dim.
    argsort(dim: i64, descending: bool) = ARGSORT;
    /// Arc sine.
    asin() = ASIN;
    /// Inverse hyperbolic sine.
    asinh() = ASINH;
    /// Arc tangent.
    atan() = ATAN;
    /// Arc tangent of `self / other`, by quadrant.
    atan2(other: &Tensor) = ATAN2;
    /// Inverse hyperbolic tangent.
    atanh() = ATANH;
    /// Averages of regions of images, with this size of the output.
    adaptive_avg_pool2d(output_size: impl Into<Arg>) = ADAPTIVE_AVG_POOL2D;
    /// Averages of windows of rows.
    avg_pool1d(
        kernel_size: impl Into<Arg>, stride: impl Into<Arg>, padding: impl Into<Arg>,
        ceil_mode: bool, count_include_pad: bool
    ) = AVG_POOL1D;
    /// Averages of windows of images.
    avg_pool2d(
        kernel_size: impl Into<Arg>, stride: impl Into<Arg>, padding: impl Into<Arg>,
        ceil_mode: bool, count_include_pad: bool
    ) = AVG_POOL2D;
    /// `self + batch1 @ batch2`, for batches of matrices.
    baddbmm(batch1: &Tensor, batch2: &Tensor) = BADDBMM;
    /// Batch normalization with the given statistics.
    batch_norm(
        weight: Option<&Tensor>, bias: Option<&Tensor>, running_mean: Option<&Tensor>,
        running_var: Option<&Tensor>, training: bool, momentum: f64, eps: f64,
        cudnn_enabled: bool
    ) = BATCH_NORM;
    /// Bitwise and.
    bitwise_and(other: impl Into<Arg>) = BITWISE_AND_TENSOR;
    /// Bitwise not.
    bitwise_not() = BITWISE_NOT;
    /// Bitwise or.
    bitwise_or(other: impl Into<Arg>) = BITWISE_OR_TENSOR;
    /// Bitwise exclusive or.
    bitwise_xor(other: impl Into<Arg>) = BITWISE_XOR_TENSOR;
    /// Matrix multiplication of batches.
    bmm(mat2: &Tensor) = BMM;
    /// Rounds up.
    ceil() = CEIL;
    /// CELU.
    celu(alpha: f64) = CELU;
    /// Limits the elements; `()` means no limit.
    clamp(min: impl Into<Arg>, max: impl Into<Arg>) = CLAMP;
    /// Pads with a number: before and after each dim, from the last dim on.
    constant_pad_nd(pad: impl Into<Arg>, value: impl Into<Arg>) = CONSTANT_PAD_ND;
    /// The tensor itself if it is row-major in memory, else a copy.
    contiguous() = CONTIGUOUS;
    /// Convolution over one dim.
    conv1d(
        weight: &Tensor, bias: Option<&Tensor>, stride: impl Into<Arg>, padding: impl Into<Arg>,
        dilation: impl Into<Arg>, groups: i64
    ) = CONV1D;
    /// Convolution of images `[batch, channels, height, width]` with weights
    /// `[outputs, channels / groups, height, width]`.
    conv2d(
        weight: &Tensor, bias: Option<&Tensor>, stride: impl Into<Arg>, padding: impl Into<Arg>,
        dilation: impl Into<Arg>, groups: i64
    ) = CONV2D;
    /// Convolution over three dims.
    conv3d(
        weight: &Tensor, bias: Option<&Tensor>, stride: impl Into<Arg>, padding: impl Into<Arg>,
        dilation: impl Into<Arg>, groups: i64
    ) = CONV3D;
    /// Transposed convolution of images.
    conv_transpose2d(
        weight: &Tensor, bias: Option<&Tensor>, stride: impl Into<Arg>, padding: impl Into<Arg>,
        output_padding: impl Into<Arg>, groups: i64, dilation: impl Into<Arg>
    ) = CONV_TRANSPOSE2D_INPUT;
    /// Convolution of any kind.
    convolution(
        weight: &Tensor, bias: Option<&Tensor>, stride: impl Into<Arg>, padding: impl Into<Arg>,
        dilation: impl Into<Arg>, transposed: bool, output_padding: impl Into<Arg>, groups: i64
    ) = CONVOLUTION;
    /// Cosine.
    cos() = COS;
    /// Hyperbolic cosine.
    cosh() = COSH;
    /// Running product.
    cumprod(dim: i64) = CUMPROD;
    /// Running sum.
    cumsum(dim: i64) = CUMSUM;
    /// A view of the diagonal of two dims.
    diagonal(offset: i64, dim1: i64, dim2: i64) = DIAGONAL_COPY;
    /// Quotient. That of integers is floating-point.
    div(other: impl Into<Arg>) = DIV_TENSOR;
    /// Dot product of vectors.
    dot(tensor: &Tensor) = DOT;
    /// ELU.
    elu(alpha: f64) = ELU;
    /// Rows of the tensor, a table, by index.
    embedding(indices: &Tensor) = EMBEDDING;
    /// Whether elements are equal.
    eq(other: impl Into<Arg>) = EQ_TENSOR;
    /// Error function.
    erf() = ERF;
    /// Exponential function.
    exp() = EXP;
    /// `exp(x) - 1`.
    expm1() = EXPM1;
    /// A view with larger sizes: dims of size 1 are repeated; -1 keeps a size.
    expand(size: impl Into<Arg>) = EXPAND_COPY;
    /// As `expand`, to the shape of another tensor.
    expand_as(other: &Tensor) = EXPAND_AS;
    /// The tensor with dims merged.
    flatten(start_dim: i64, end_dim: i64) = FLATTEN;
    /// Reverses dims. A copy.
    flip(dims: impl Into<Arg>) = FLIP;
    /// Rounds down.
    floor() = FLOOR;
    /// Quotient, rounded down.
    floor_divide(other: &Tensor) = FLOOR_DIVIDE;
    /// Remainder with the sign of the dividend.
    fmod(other: impl Into<Arg>) = FMOD_TENSOR;
    /// A tensor of one number, of the same shape and dtype.
    full_like(fill_value: impl Into<Arg>) = FULL_LIKE;
    /// Elements by their indices in a dim.
    gather(dim: i64, index: &Tensor) = GATHER;
    /// Whether elements are greater or equal.
    ge(other: impl Into<Arg>) = GE_TENSOR;
    /// GELU; `approximate` is `"none"` or `"tanh"`.
    gelu(approximate: &str) = GELU;
    /// Gated linear unit.
    glu(dim: i64) = GLU;
    /// Group normalization.
    group_norm(
        num_groups: i64, weight: Option<&Tensor>, bias: Option<&Tensor>, eps: f64
    ) = GROUP_NORM;
    /// Whether elements are greater.
    gt(other: impl Into<Arg>) = GT_TENSOR;
    /// Hard sigmoid.
    hardsigmoid() = HARDSIGMOID;
    /// Hard swish.
    hardswish() = HARDSWISH;
    /// Limits the elements.
    hardtanh(min_val: f64, max_val: f64) = HARDTANH;
    /// The tensor with the rows of another added at some indices.
    index_add(dim: i64, index: &Tensor, source: &Tensor) = INDEX_ADD;
    /// The tensor with the rows of another at some indices.
    index_copy(dim: i64, index: &Tensor, source: &Tensor) = INDEX_COPY;
    /// Rows of a dim by index.
    index_select(dim: i64, index: &Tensor) = INDEX_SELECT;
    /// Whether elements are neither infinite nor NaN.
    isfinite() = ISFINITE;
    /// Whether elements are infinite.
    isinf() = ISINF;
    /// Whether elements are NaN.
    isnan() = ISNAN;
    /// Layer normalization.
    layer_norm(
        normalized_shape: impl Into<Arg>, weight: Option<&Tensor>, bias: Option<&Tensor>, eps: f64
    ) = LAYER_NORM;
    /// Whether elements are less or equal.
    le(other: impl Into<Arg>) = LE_TENSOR;
    /// Leaky ReLU.
    leaky_relu(negative_slope: f64) = LEAKY_RELU;
    /// Linear interpolation to `end`.
    lerp(end: &Tensor, weight: f64) = LERP_SCALAR;
    /// `self @ weight.t() + bias`.
    linear(weight: &Tensor, bias: Option<&Tensor>) = LINEAR;
    /// Natural logarithm.
    log() = LOG;
    /// Logarithm to the base 10.
    log10() = LOG10;
    /// `log(1 + x)`.
    log1p() = LOG1P;
    /// Logarithm to the base 2.
    log2() = LOG2;
    /// Logarithm of the softmax over a dim.
    log_softmax(dim: i64) = LOG_SOFTMAX_INT;
    /// Logical and.
    logical_and(other: &Tensor) = LOGICAL_AND;
    /// Logical not.
    logical_not() = LOGICAL_NOT;
    /// Logical or.
    logical_or(other: &Tensor) = LOGICAL_OR;
    /// Logical exclusive or.
    logical_xor(other: &Tensor) = LOGICAL_XOR;
    /// Logarithm of the sum of exponentials.
    logsumexp(dim: impl Into<Arg>, keepdim: bool) = LOGSUMEXP;
    /// Whether elements are less.
    lt(other: impl Into<Arg>) = LT_TENSOR;
    /// The tensor with a number where the mask is true.
    masked_fill(mask: &Tensor, value: impl Into<Arg>) = MASKED_FILL_SCALAR;
    /// Matrix multiplication of tensors of any ranks, as `torch.matmul`.
    matmul(other: &Tensor) = MATMUL;
    /// Maxima of windows of images. A stride of `[]` means the size of the kernel.
    max_pool2d(
        kernel_size: impl Into<Arg>, stride: impl Into<Arg>, padding: impl Into<Arg>,
        dilation: impl Into<Arg>, ceil_mode: bool
    ) = MAX_POOL2D;
    /// Larger elements of two tensors.
    maximum(other: &Tensor) = MAXIMUM;
    /// Average over dims; `()` means all.
    mean(dim: impl Into<Arg>, keepdim: bool) = MEAN_DIM;
    /// Smaller elements of two tensors.
    minimum(other: &Tensor) = MINIMUM;
    /// Mish.
    mish() = MISH;
    /// Matrix multiplication of two matrices.
    mm(mat2: &Tensor) = MM;
    /// Moves dims.
    movedim(source: impl Into<Arg>, destination: impl Into<Arg>) = MOVEDIM;
    /// Product with a tensor or a number, with broadcasting.
    mul(other: impl Into<Arg>) = MUL_TENSOR;
    /// A view of `length` indices of a dim.
    narrow(dim: i64, start: i64, length: i64) = NARROW;
    /// Whether elements differ.
    ne(other: impl Into<Arg>) = NE_TENSOR;
    /// `-x`.
    neg() = NEG;
    /// A tensor of ones, of the same shape and dtype.
    ones_like() = ONES_LIKE;
    /// Outer product of vectors.
    outer(vec2: &Tensor) = OUTER;
    /// A view with the dims in another order.
    permute(dims: impl Into<Arg>) = PERMUTE_COPY;
    /// Moves channels into pixels.
    pixel_shuffle(upscale_factor: i64) = PIXEL_SHUFFLE;
    /// Power.
    pow(exponent: impl Into<Arg>) = POW_TENSOR_TENSOR;
    /// PReLU.
    prelu(weight: &Tensor) = PRELU;
    /// `1 / x`.
    reciprocal() = RECIPROCAL;
    /// Pads images by reflection.
    reflection_pad2d(padding: impl Into<Arg>) = REFLECTION_PAD2D;
    /// ReLU.
    relu() = RELU;
    /// ReLU, limited to 6.
    relu6() = RELU6;
    /// Remainder with the sign of the divisor.
    remainder(other: impl Into<Arg>) = REMAINDER_TENSOR;
    /// Repeats the tensor along each dim. A copy.
    repeat(repeats: impl Into<Arg>) = REPEAT;
    /// Repeats each element.
    repeat_interleave(repeats: i64, dim: impl Into<Arg>) = REPEAT_INTERLEAVE_SELF_INT;
    /// Pads images by repeating the border.
    replication_pad2d(padding: impl Into<Arg>) = REPLICATION_PAD2D;
    /// Another shape with the same elements; one size may be -1. A view if the memory allows it.
    reshape(shape: impl Into<Arg>) = RESHAPE;
    /// RMS normalization.
    rms_norm(
        normalized_shape: impl Into<Arg>, weight: Option<&Tensor>, eps: impl Into<Arg>
    ) = RMS_NORM;
    /// Rotates elements along dims.
    roll(shifts: impl Into<Arg>, dims: impl Into<Arg>) = ROLL;
    /// Rounds to the nearest integer, ties to even.
    round() = ROUND;
    /// `1 / sqrt(x)`.
    rsqrt() = RSQRT;
    /// `softmax(q @ k.t() * scale + mask) @ v`.
    scaled_dot_product_attention(
        key: &Tensor, value: &Tensor, attn_mask: Option<&Tensor>, dropout_p: f64, is_causal: bool,
        scale: Option<f64>, enable_gqa: bool
    ) = SCALED_DOT_PRODUCT_ATTENTION;
    /// The tensor with elements of `src` at indices of a dim.
    scatter(dim: i64, index: &Tensor, src: &Tensor) = SCATTER_SRC;
    /// The tensor with elements of `src` added at indices of a dim.
    scatter_add(dim: i64, index: &Tensor, src: &Tensor) = SCATTER_ADD;
    /// A view of one index of a dim.
    select(dim: i64, index: i64) = SELECT_COPY_INT;
    /// The tensor with an index of a dim replaced.
    select_scatter(src: &Tensor, dim: i64, index: i64) = SELECT_SCATTER;
    /// SELU.
    selu() = SELU;
    /// Sigmoid.
    sigmoid() = SIGMOID;
    /// -1, 0 or 1.
    sign() = SIGN;
    /// SiLU, also called swish.
    silu() = SILU;
    /// Sine.
    sin() = SIN;
    /// Hyperbolic sine.
    sinh() = SINH;
    /// A view of every `step`-th index of a dim; `()` as a bound means none.
    slice(dim: i64, start: impl Into<Arg>, end: impl Into<Arg>, step: i64) = SLICE_COPY_TENSOR;
    /// The tensor with a slice of a dim replaced.
    slice_scatter(
        src: &Tensor, dim: i64, start: impl Into<Arg>, end: impl Into<Arg>, step: i64
    ) = SLICE_SCATTER;
    /// Softmax over a dim.
    softmax(dim: i64) = SOFTMAX_INT;
    /// Softplus.
    softplus(beta: f64, threshold: f64) = SOFTPLUS;
    /// Square root.
    sqrt() = SQRT;
    /// `x * x`.
    square() = SQUARE;
    /// A view without dims of size 1.
    squeeze() = SQUEEZE_COPY;
    /// A view without a dim, if its size is 1.
    squeeze_dim(dim: i64) = SQUEEZE_COPY_DIM;
    /// Standard deviation over dims; `()` means all.
    std(dim: impl Into<Arg>, correction: impl Into<Arg>, keepdim: bool) = STD_CORRECTION;
    /// Difference with a tensor or a number, with broadcasting.
    sub(other: impl Into<Arg>) = SUB_TENSOR;
    /// Sum over dims; `()` means all. Sums of integers are `int64`.
    sum(dim: impl Into<Arg>, keepdim: bool) = SUM_DIM_INT_LIST;
    /// A view of the transposed matrix.
    t() = T_COPY;
    /// Tangent.
    tan() = TAN;
    /// Hyperbolic tangent.
    tanh() = TANH;
    /// The tensor in another dtype.
    to_dtype(dtype: ScalarType) = TO_DTYPE;
    /// A view with two dims swapped.
    transpose(dim0: i64, dim1: i64) = TRANSPOSE_COPY_INT;
    /// The lower triangle.
    tril(diagonal: i64) = TRIL;
    /// The upper triangle.
    triu(diagonal: i64) = TRIU;
    /// Rounds towards zero.
    trunc() = TRUNC;
    /// A view with a dim split.
    unflatten(dim: i64, sizes: impl Into<Arg>) = UNFLATTEN;
    /// A view of sliding windows of a dim.
    unfold(dimension: i64, size: i64, step: i64) = UNFOLD_COPY;
    /// A view with a new dim of size 1.
    unsqueeze(dim: i64) = UNSQUEEZE_COPY;
    /// Images of another size, interpolated.
    upsample_bilinear2d(output_size: impl Into<Arg>, align_corners: bool) = UPSAMPLE_BILINEAR2D;
    /// Images of another size, of the nearest pixels.
    upsample_nearest2d(output_size: impl Into<Arg>) = UPSAMPLE_NEAREST2D;
    /// Variance over dims; `()` means all.
    var(dim: impl Into<Arg>, correction: impl Into<Arg>, keepdim: bool) = VAR_CORRECTION;
    /// A view of another shape; one size may be -1.
    view(size: impl Into<Arg>) = VIEW_COPY;
    /// A tensor of zeros, of the same shape and dtype.
    zeros_like() = ZEROS_LIKE;
}

in_place_methods! {
    abs_() = ABS;
    add_(other: impl Into<Arg>) = ADD_TENSOR;
    addmm_(mat1: &Tensor, mat2: &Tensor) = ADDMM;
    ceil_() = CEIL;
    clamp_(min: impl Into<Arg>, max: impl Into<Arg>) = CLAMP;
    cos_() = COS;
    div_(other: impl Into<Arg>) = DIV_TENSOR;
    exp_() = EXP;
    floor_() = FLOOR;
    hardtanh_(min_val: f64, max_val: f64) = HARDTANH;
    leaky_relu_(negative_slope: f64) = LEAKY_RELU;
    log_() = LOG;
    masked_fill_(mask: &Tensor, value: impl Into<Arg>) = MASKED_FILL_SCALAR;
    mul_(other: impl Into<Arg>) = MUL_TENSOR;
    neg_() = NEG;
    pow_(exponent: impl Into<Arg>) = POW_TENSOR_TENSOR;
    reciprocal_() = RECIPROCAL;
    relu_() = RELU;
    round_() = ROUND;
    rsqrt_() = RSQRT;
    sigmoid_() = SIGMOID;
    sin_() = SIN;
    sqrt_() = SQRT;
    sub_(other: impl Into<Arg>) = SUB_TENSOR;
    tanh_() = TANH;
}

impl From<()> for Arg {
    /// An absent argument.
    fn from(_: ()) -> Self {
        Arg::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_have_the_parameters_of_their_operators() {
        for (method, operator, names) in METHODS.iter().chain(IN_PLACE) {
            let parameters: Vec<&str> =
                operator.parameters().iter().skip(1).map(|it| it.name).collect();
            assert!(
                parameters.starts_with(names),
                "{method}: {names:?} are not the first of {parameters:?}"
            );
            let given = names.len() + 1;
            let rest = operator.parameters().get(given..).unwrap_or_default();
            assert!(rest.iter().all(|it| it.default.is_some()), "{method}: {rest:?}");
            assert!(torchlet_graph::infer::is_inferred(*operator), "{method}");
        }
    }
}
