//! Composite operators of linear algebra.

use super::describe::*;
use super::*;

operators! {
    matrices;
    ADDR(AddrArgs {
        input: Tensor, vec1: Tensor, vec2: Tensor, beta: Scalar = 1, alpha: Scalar = 1
    }) = aten::addr.default;
    CROSS(CrossArgs { input: Tensor, other: Tensor, dim: OptionalInt = None })
        = aten::cross.default;
    DET(UnaryArgs) = aten::det.default;
    FROBENIUS_NORM(FrobeniusNormArgs { input: Tensor, dim: Ints, keepdim: Bool = false })
        = aten::frobenius_norm.dim;
    INNER(BinaryArgs) = aten::inner.default;
    KRON(BinaryArgs) = aten::kron.default;
    LINALG_CHOLESKY(CholeskyArgs { input: Tensor, upper: Bool = false })
        = aten::linalg_cholesky.default;
    LINALG_COND(CondArgs { input: Tensor, p: OptionalScalar = None }) = aten::linalg_cond.default;
    LINALG_CROSS(CrossArgs) = aten::linalg_cross.default;
    LINALG_EIGH_COMPOSITE(EighArgs { input: Tensor, uplo: Str = "L" })
        = aten::linalg_eigh.default;
    LINALG_EIGVALSH(EighArgs) = aten::linalg_eigvalsh.default;
    LINALG_INV(UnaryArgs) = aten::linalg_inv.default;
    LINALG_LU_FACTOR(LuFactorArgs { a: Tensor, pivot: Bool = true })
        = aten::linalg_lu_factor.default;
    LINALG_MATRIX_NORM(MatrixNormArgs {
        input: Tensor, ord: Scalar, dim: Ints = [-2, -1], keepdim: Bool = false,
        dtype: OptionalDtype = None
    }) = aten::linalg_matrix_norm.default;
    LINALG_MATRIX_NORM_STR(MatrixNormStrArgs {
        input: Tensor, ord: Str = "fro", dim: Ints = [-2, -1], keepdim: Bool = false,
        dtype: OptionalDtype = None
    }) = aten::linalg_matrix_norm.str_ord;
    LINALG_MATRIX_RANK(MatrixRankArgs {
        input: Tensor, atol: OptionalTensor = None, rtol: OptionalTensor = None,
        hermitian: Bool = false
    }) = aten::linalg_matrix_rank.atol_rtol_tensor;
    LINALG_MATRIX_RANK_FLOAT(MatrixRankFloatArgs {
        input: Tensor, atol: OptionalFloat = None, rtol: OptionalFloat = None,
        hermitian: Bool = false
    }) = aten::linalg_matrix_rank.atol_rtol_float;
    LINALG_MULTI_DOT(StackedArgs) = aten::linalg_multi_dot.default;
    LINALG_SOLVE(SolveArgs { a: Tensor, b: Tensor, left: Bool = true })
        = aten::linalg_solve.default;
    LINALG_SVD_COMPOSITE(SvdArgs {
        a: Tensor, full_matrices: Bool = true, driver: OptionalStr = None
    }) = aten::linalg_svd.default;
    LINALG_SVDVALS(SvdvalsArgs { a: Tensor, driver: OptionalStr = None })
        = aten::linalg_svdvals.default;
    LINALG_VECDOT(VecdotArgs { x: Tensor, y: Tensor, dim: Int = -1 })
        = aten::linalg_vecdot.default;
    LOGDET(UnaryArgs) = aten::logdet.default;
    MATRIX_POWER(MatrixPowerArgs { input: Tensor, n: Int }) = aten::matrix_power.default;
    NUCLEAR_NORM(NuclearNormArgs { input: Tensor, keepdim: Bool = false })
        = aten::nuclear_norm.default;
    NUCLEAR_NORM_DIM(FrobeniusNormArgs) = aten::nuclear_norm.dim;
    SLOGDET(UnaryArgs) = aten::slogdet.default;
    TENSORDOT(TensordotArgs {
        input: Tensor, other: Tensor, dims_self: Ints, dims_other: Ints
    }) = aten::tensordot.default;
    VANDER(VanderArgs { x: Tensor, n: OptionalInt = None, increasing: Bool = false })
        = aten::vander.default;
}
