//! Operators for reductions and scans over dims, and for statistics.

use super::describe::*;
use super::*;

operators! {
    reduction;
    HISTOGRAMDD_BIN_EDGES(
        input: Tensor, bins: Ints, range: OptionalFloats = None, weight: OptionalTensor = None,
        density: Bool = false
    ) = aten::_histogramdd_bin_edges.default <- out { outputs: Outputs::List, folds: false };
    HISTOGRAMDD_FROM_BIN_CTS(
        input: Tensor, bins: Ints, range: OptionalFloats = None, weight: OptionalTensor = None,
        density: Bool = false
    ) = aten::_histogramdd_from_bin_cts.default <- out;
    HISTOGRAMDD_FROM_BIN_TENSORS(
        input: Tensor, bins: Tensors, weight: OptionalTensor = None, density: Bool = false
    ) = aten::_histogramdd_from_bin_tensors.default <- out;
    ALL(UnaryArgs) = aten::all.default <- all_out;
    ALL_DIM(ReduceDimArgs { input: Tensor, dim: Int, keepdim: Bool = false }) = aten::all.dim
        <- out { batching: Batching::Dims(ArgumentSet::of(&[1])) };
    ALL_DIMS(ReduceDimsArgs { input: Tensor, dim: OptionalInts = None, keepdim: Bool = false })
        = aten::all.dims <- dims_out { batching: Batching::Dims(ArgumentSet::of(&[1])) };
    ALLCLOSE(
        input: Tensor, other: Tensor, rtol: Float = 1.0000000000000001e-05, atol: Float = 1e-08,
        equal_nan: Bool = false
    ) = aten::allclose.default <- out;
    AMAX(AmaxArgs { input: Tensor, dim: Ints = [], keepdim: Bool = false }) = aten::amax.default
        <- out { range: Range::Argument(0), batching: Batching::Dims(ArgumentSet::of(&[1])) };
    AMIN(AmaxArgs) = aten::amin.default <- out {
        range: Range::Argument(0), batching: Batching::Dims(ArgumentSet::of(&[1]))
    };
    ANY(UnaryArgs) = aten::any.default <- all_out;
    ANY_DIM(ReduceDimArgs) = aten::any.dim <- out {
        batching: Batching::Dims(ArgumentSet::of(&[1]))
    };
    ANY_DIMS(ReduceDimsArgs) = aten::any.dims <- dims_out {
        batching: Batching::Dims(ArgumentSet::of(&[1]))
    };
    ARGMAX(ArgmaxArgs { input: Tensor, dim: OptionalInt = None, keepdim: Bool = false })
        = aten::argmax.default <- out { range: Range::Index };
    ARGMIN(ArgmaxArgs) = aten::argmin.default <- out { range: Range::Index };
    BINCOUNT(input: Tensor, weights: OptionalTensor = None, minlength: Int = 0)
        = aten::bincount.default <- out { data_dependent: DataDependent::Always };
    CUMMAX(DimArgs { input: Tensor, dim: Int }) = aten::cummax.default <- out
        { range: Range::ValuesAndIndices };
    CUMMIN(DimArgs) = aten::cummin.default <- out { range: Range::ValuesAndIndices };
    CUMPROD(CumsumArgs { input: Tensor, dim: Int, dtype: OptionalDtype = None })
        = aten::cumprod.default <- out { batching: Batching::Dims(ArgumentSet::of(&[1])) };
    CUMSUM(CumsumArgs) = aten::cumsum.default <- out {
        range: Range::SumOfMany, batching: Batching::Dims(ArgumentSet::of(&[1]))
    };
    DIST(input: Tensor, other: Tensor, p: Scalar = 2) = aten::dist.default <- out { folds: false };
    HISTC(input: Tensor, bins: Int = 100, min: Scalar = 0, max: Scalar = 0) = aten::histc.default
        <- out;
    HISTOGRAM_BIN_CT(
        input: Tensor, bins: Int = 100, range: OptionalFloats = None,
        weight: OptionalTensor = None, density: Bool = false
    ) = aten::histogram.bin_ct <- bin_ct_out;
    HISTOGRAM_BINS_TENSOR(
        input: Tensor, bins: Tensor, weight: OptionalTensor = None, density: Bool = false
    ) = aten::histogram.bins_tensor <- bins_tensor_out;
    LOGCUMSUMEXP(DimArgs) = aten::logcumsumexp.default <- out;
    MAX(UnaryArgs) = aten::max.default <- unary_out { range: Range::Argument(0) };
    MAX_DIM(ReduceDimArgs) = aten::max.dim <- dim_max {
        range: Range::ValuesAndIndices, batching: Batching::Dims(ArgumentSet::of(&[1]))
    };
    MEAN(ReduceAllArgs { input: Tensor, dtype: OptionalDtype = None }) = aten::mean.default
        <- dtype_out;
    MEAN_DIM(SumArgs {
        input: Tensor, dim: OptionalInts, keepdim: Bool = false, dtype: OptionalDtype = None
    }) = aten::mean.dim <- out { batching: Batching::Dims(ArgumentSet::of(&[1])) };
    MEDIAN(UnaryArgs) = aten::median.default <- out { range: Range::Argument(0) };
    MEDIAN_DIM(ReduceDimArgs) = aten::median.dim <- dim_values { range: Range::ValuesAndIndices };
    MIN(UnaryArgs) = aten::min.default <- unary_out { range: Range::Argument(0) };
    MIN_DIM(ReduceDimArgs) = aten::min.dim <- dim_min {
        range: Range::ValuesAndIndices, batching: Batching::Dims(ArgumentSet::of(&[1]))
    };
    NANMEDIAN(UnaryArgs) = aten::nanmedian.default <- out { range: Range::Argument(0) };
    NANMEDIAN_DIM(ReduceDimArgs) = aten::nanmedian.dim <- dim_values
        { range: Range::ValuesAndIndices };
    PROD(ReduceAllArgs) = aten::prod.default <- out;
    PROD_DIM_INT(
        input: Tensor, dim: Int, keepdim: Bool = false, dtype: OptionalDtype = None
    ) = aten::prod.dim_int <- int_out { batching: Batching::Dims(ArgumentSet::of(&[1])) };
    SEGMENT_REDUCE(
        data: Tensor, reduce: Str, lengths: OptionalTensor = None, indices: OptionalTensor = None,
        offsets: OptionalTensor = None, axis: Int = 0, unsafe: Bool = false,
        initial: OptionalScalar = None
    ) = aten::segment_reduce.default <- out;
    STD_CORRECTION(VarCorrectionArgs {
        input: Tensor, dim: OptionalInts = None, correction: OptionalScalar = None,
        keepdim: Bool = false
    }) = aten::std.correction <- correction_out { batching: Batching::Dims(ArgumentSet::of(&[1])) };
    STD_DIM(VarDimArgs {
        input: Tensor, dim: OptionalInts, unbiased: Bool = true, keepdim: Bool = false
    }) = aten::std.dim <- out { batching: Batching::Dims(ArgumentSet::of(&[1])) };
    SUM_DIM_INT_LIST(SumArgs) = aten::sum.dim_IntList <- IntList_out {
        range: Range::SumOfMany, batching: Batching::Dims(ArgumentSet::of(&[1]))
    };
    VAR_CORRECTION(VarCorrectionArgs) = aten::var.correction <- correction_out {
        batching: Batching::Dims(ArgumentSet::of(&[1]))
    };
    VAR_DIM(VarDimArgs) = aten::var.dim <- out { batching: Batching::Dims(ArgumentSet::of(&[1])) };
    VAR_MEAN_CORRECTION(VarCorrectionArgs) = aten::var_mean.correction <- correction_out;
}
