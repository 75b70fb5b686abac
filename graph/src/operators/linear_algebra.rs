//! Operators for factorizations, solvers and Fourier transforms.

use super::describe::*;
use super::*;

operators! {
    linear_algebra;
    FFT_C2C(input: Tensor, dim: Ints, normalization: Int, forward: Bool) = aten::_fft_c2c.default
        <- out { folds: false };
    FFT_C2R(input: Tensor, dim: Ints, normalization: Int, last_dim_size: Int)
        = aten::_fft_c2r.default <- out { folds: false };
    FFT_R2C(input: Tensor, dim: Ints, normalization: Int, onesided: Bool) = aten::_fft_r2c.default
        <- out { folds: false };
    LINALG_DET(a: Tensor) = aten::_linalg_det.default <- result { folds: false };
    LINALG_EIGH(a: Tensor, UPLO: Str = "L", compute_v: Bool = true) = aten::_linalg_eigh.default
        <- eigenvalues { folds: false };
    LINALG_SLOGDET(a: Tensor) = aten::_linalg_slogdet.default <- sign { folds: false };
    LINALG_SOLVE_EX(a: Tensor, b: Tensor, left: Bool = true, check_errors: Bool = false)
        = aten::_linalg_solve_ex.default <- result { folds: false };
    LINALG_SVD(
        a: Tensor, full_matrices: Bool = false, compute_uv: Bool = true,
        driver: OptionalStr = None
    ) = aten::_linalg_svd.default <- U { folds: false };
    CHOLESKY_INVERSE(input: Tensor, upper: Bool = false) = aten::cholesky_inverse.default <- out
        { folds: false };
    CHOLESKY_SOLVE(input: Tensor, input2: Tensor, upper: Bool = false)
        = aten::cholesky_solve.default <- out { folds: false };
    GEQRF(UnaryArgs) = aten::geqrf.default <- a { folds: false };
    LINALG_CHOLESKY_EX(input: Tensor, upper: Bool = false, check_errors: Bool = false)
        = aten::linalg_cholesky_ex.default <- L { folds: false };
    LINALG_EIG(UnaryArgs) = aten::linalg_eig.default <- out { folds: false };
    LINALG_EIGVALS(UnaryArgs) = aten::linalg_eigvals.default <- out { folds: false };
    LINALG_HOUSEHOLDER_PRODUCT(input: Tensor, tau: Tensor)
        = aten::linalg_householder_product.default <- out { folds: false };
    LINALG_INV_EX(a: Tensor, check_errors: Bool = false) = aten::linalg_inv_ex.default <- inverse
        { folds: false };
    LINALG_LDL_FACTOR_EX(input: Tensor, hermitian: Bool = false, check_errors: Bool = false)
        = aten::linalg_ldl_factor_ex.default <- out { folds: false };
    LINALG_LDL_SOLVE(ld: Tensor, pivots: Tensor, b: Tensor, hermitian: Bool = false)
        = aten::linalg_ldl_solve.default <- out { folds: false };
    LINALG_LU(a: Tensor, pivot: Bool = true) = aten::linalg_lu.default <- out { folds: false };
    LINALG_LU_FACTOR_EX(a: Tensor, pivot: Bool = true, check_errors: Bool = false)
        = aten::linalg_lu_factor_ex.default <- out { folds: false };
    LINALG_LU_SOLVE(lu: Tensor, pivots: Tensor, b: Tensor, left: Bool = true, adjoint: Bool = false)
        = aten::linalg_lu_solve.default <- out { folds: false };
    LINALG_MATRIX_EXP(UnaryArgs) = aten::linalg_matrix_exp.default <- out { folds: false };
    LINALG_MATRIX_SQRTH(UnaryArgs) = aten::linalg_matrix_sqrth.default <- out;
    LINALG_PINV(
        input: Tensor, atol: OptionalTensor = None, rtol: OptionalTensor = None,
        hermitian: Bool = false
    ) = aten::linalg_pinv.atol_rtol_tensor <- atol_rtol_tensor_out;
    LINALG_POLAR(a: Tensor) = aten::linalg_polar.default <- out { folds: false };
    LINALG_QR(a: Tensor, mode: Str = "reduced") = aten::linalg_qr.default <- out { folds: false };
    LINALG_SOLVE_TRIANGULAR(
        input: Tensor, b: Tensor, upper: Bool, left: Bool = true, unitriangular: Bool = false
    ) = aten::linalg_solve_triangular.default <- out { folds: false };
    LINALG_VECTOR_NORM(
        input: Tensor, ord: Scalar = 2, dim: OptionalInts = None, keepdim: Bool = false,
        dtype: OptionalDtype = None
    ) = aten::linalg_vector_norm.default <- out;
    LU_UNPACK(
        LU_data: Tensor, LU_pivots: Tensor, unpack_data: Bool = true, unpack_pivots: Bool = true
    ) = aten::lu_unpack.default <- out { folds: false };
    ORMQR(input: Tensor, input2: Tensor, input3: Tensor, left: Bool = true, transpose: Bool = false)
        = aten::ormqr.default <- out;
    TRIANGULAR_SOLVE(
        input: Tensor, a: Tensor, upper: Bool = true, transpose: Bool = false,
        unitriangular: Bool = false
    ) = aten::triangular_solve.default <- X { folds: false };
}
