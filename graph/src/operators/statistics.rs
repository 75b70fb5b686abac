//! Composite operators that reduce dims: statistics, quantiles, numerical integration.

use super::describe::*;
use super::*;

operators! {
    statistics;
    AMINMAX(AminmaxArgs { input: Tensor, dim: OptionalInts = None, keepdim: Bool = false })
        = aten::aminmax.default;
    COUNT_NONZERO(CountNonzeroArgs { input: Tensor, dim: OptionalInts = None })
        = aten::count_nonzero.default;
    CUMULATIVE_TRAPEZOID_DX(TrapezoidDxArgs { y: Tensor, dx: Scalar = 1, dim: Int = -1 })
        = aten::cumulative_trapezoid.dx;
    CUMULATIVE_TRAPEZOID_X(TrapezoidXArgs { y: Tensor, x: Tensor, dim: Int = -1 })
        = aten::cumulative_trapezoid.x;
    GRADIENT(GradientArgs {
        input: Tensor, spacing: OptionalScalar = None, dim: OptionalInts = None,
        edge_order: Int = 1
    }) = aten::gradient.scalarint;
    MSORT(UnaryArgs) = aten::msort.default;
    NANMEAN(NanSumArgs {
        input: Tensor, dim: OptionalInts = None, keepdim: Bool = false,
        dtype: OptionalDtype = None
    }) = aten::nanmean.default;
    NANQUANTILE(QuantileArgs {
        input: Tensor, q: Tensor, dim: OptionalInt = None, keepdim: Bool = false,
        interpolation: Str = "linear"
    }) = aten::nanquantile.default;
    NANSUM(NanSumArgs) = aten::nansum.default;
    PDIST(input: Tensor, p: Float = 2.0) = aten::pdist.default;
    QUANTILE(QuantileArgs) = aten::quantile.default;
    RENORM(RenormArgs { input: Tensor, p: Scalar, dim: Int, maxnorm: Scalar })
        = aten::renorm.default;
    STD_MEAN(VarArgs) = aten::std_mean.default;
    STD_MEAN_DIM(VarDimArgs) = aten::std_mean.dim;
    TRACE(UnaryArgs) = aten::trace.default;
    TRAPEZOID_DX(TrapezoidDxArgs) = aten::trapezoid.dx;
    TRAPEZOID_X(TrapezoidXArgs) = aten::trapezoid.x;
    VAR_MEAN(VarArgs) = aten::var_mean.default;
}
