//! Operators for special functions: gamma, error and Bessel functions, orthogonal polynomials.

use super::describe::*;
use super::*;

operators! {
    special;
    DIGAMMA(UnaryArgs) = aten::digamma.default <- out;
    ERF(UnaryArgs) = aten::erf.default <- out
        { narrow_inputs: 1, cost: Cost::Function, shape: Shape::Same };
    ERFC(UnaryArgs) = aten::erfc.default <- out;
    ERFINV(UnaryArgs) = aten::erfinv.default <- out;
    I0(UnaryArgs) = aten::i0.default <- out;
    IGAMMA(BinaryArgs) = aten::igamma.default <- out { folds: false };
    IGAMMAC(BinaryArgs) = aten::igammac.default <- out { folds: false };
    LGAMMA(UnaryArgs) = aten::lgamma.default <- out;
    POLYGAMMA(n: Int, input: Tensor) = aten::polygamma.default <- out;
    SPECIAL_AIRY_AI(UnaryArgs) = aten::special_airy_ai.default <- out;
    SPECIAL_BESSEL_J0(UnaryArgs) = aten::special_bessel_j0.default <- out;
    SPECIAL_BESSEL_J1(UnaryArgs) = aten::special_bessel_j1.default <- out;
    SPECIAL_BESSEL_Y0(UnaryArgs) = aten::special_bessel_y0.default <- out;
    SPECIAL_BESSEL_Y1(UnaryArgs) = aten::special_bessel_y1.default <- out;
    SPECIAL_CHEBYSHEV_T(input: Tensor, n: Tensor) = aten::special_chebyshev_polynomial_t.default
        <- out { folds: false };
    SPECIAL_CHEBYSHEV_T_N_SCALAR(input: Tensor, n: Scalar)
        = aten::special_chebyshev_polynomial_t.n_scalar <- n_scalar_out { folds: false };
    SPECIAL_CHEBYSHEV_T_X_SCALAR(input: Scalar, n: Tensor)
        = aten::special_chebyshev_polynomial_t.x_scalar <- x_scalar_out { folds: false };
    SPECIAL_CHEBYSHEV_U(input: Tensor, n: Tensor) = aten::special_chebyshev_polynomial_u.default
        <- out { folds: false };
    SPECIAL_CHEBYSHEV_U_N_SCALAR(input: Tensor, n: Scalar)
        = aten::special_chebyshev_polynomial_u.n_scalar <- n_scalar_out { folds: false };
    SPECIAL_CHEBYSHEV_U_X_SCALAR(input: Scalar, n: Tensor)
        = aten::special_chebyshev_polynomial_u.x_scalar <- x_scalar_out { folds: false };
    SPECIAL_CHEBYSHEV_V(input: Tensor, n: Tensor) = aten::special_chebyshev_polynomial_v.default
        <- out { folds: false };
    SPECIAL_CHEBYSHEV_V_N_SCALAR(input: Tensor, n: Scalar)
        = aten::special_chebyshev_polynomial_v.n_scalar <- n_scalar_out { folds: false };
    SPECIAL_CHEBYSHEV_V_X_SCALAR(input: Scalar, n: Tensor)
        = aten::special_chebyshev_polynomial_v.x_scalar <- x_scalar_out { folds: false };
    SPECIAL_CHEBYSHEV_W(input: Tensor, n: Tensor) = aten::special_chebyshev_polynomial_w.default
        <- out { folds: false };
    SPECIAL_CHEBYSHEV_W_N_SCALAR(input: Tensor, n: Scalar)
        = aten::special_chebyshev_polynomial_w.n_scalar <- n_scalar_out { folds: false };
    SPECIAL_CHEBYSHEV_W_X_SCALAR(input: Scalar, n: Tensor)
        = aten::special_chebyshev_polynomial_w.x_scalar <- x_scalar_out { folds: false };
    SPECIAL_ERFCX(UnaryArgs) = aten::special_erfcx.default <- out;
    SPECIAL_HERMITE_H(input: Tensor, n: Tensor) = aten::special_hermite_polynomial_h.default <- out
        { folds: false };
    SPECIAL_HERMITE_H_N_SCALAR(input: Tensor, n: Scalar)
        = aten::special_hermite_polynomial_h.n_scalar <- n_scalar_out { folds: false };
    SPECIAL_HERMITE_H_X_SCALAR(input: Scalar, n: Tensor)
        = aten::special_hermite_polynomial_h.x_scalar <- x_scalar_out { folds: false };
    SPECIAL_HERMITE_HE(input: Tensor, n: Tensor) = aten::special_hermite_polynomial_he.default
        <- out { folds: false };
    SPECIAL_HERMITE_HE_N_SCALAR(input: Tensor, n: Scalar)
        = aten::special_hermite_polynomial_he.n_scalar <- n_scalar_out { folds: false };
    SPECIAL_HERMITE_HE_X_SCALAR(input: Scalar, n: Tensor)
        = aten::special_hermite_polynomial_he.x_scalar <- x_scalar_out { folds: false };
    SPECIAL_I0E(UnaryArgs) = aten::special_i0e.default <- out;
    SPECIAL_I1(UnaryArgs) = aten::special_i1.default <- out;
    SPECIAL_I1E(UnaryArgs) = aten::special_i1e.default <- out;
    SPECIAL_LAGUERRE(input: Tensor, n: Tensor) = aten::special_laguerre_polynomial_l.default <- out
        { folds: false };
    SPECIAL_LAGUERRE_N_SCALAR(input: Tensor, n: Scalar)
        = aten::special_laguerre_polynomial_l.n_scalar <- n_scalar_out { folds: false };
    SPECIAL_LAGUERRE_X_SCALAR(input: Scalar, n: Tensor)
        = aten::special_laguerre_polynomial_l.x_scalar <- x_scalar_out { folds: false };
    SPECIAL_LEGENDRE(input: Tensor, n: Tensor) = aten::special_legendre_polynomial_p.default <- out
        { folds: false };
    SPECIAL_LEGENDRE_N_SCALAR(input: Tensor, n: Scalar)
        = aten::special_legendre_polynomial_p.n_scalar <- n_scalar_out { folds: false };
    SPECIAL_LEGENDRE_X_SCALAR(input: Scalar, n: Tensor)
        = aten::special_legendre_polynomial_p.x_scalar <- x_scalar_out { folds: false };
    SPECIAL_MODIFIED_BESSEL_I0(UnaryArgs) = aten::special_modified_bessel_i0.default <- out;
    SPECIAL_MODIFIED_BESSEL_I1(UnaryArgs) = aten::special_modified_bessel_i1.default <- out;
    SPECIAL_MODIFIED_BESSEL_K0(UnaryArgs) = aten::special_modified_bessel_k0.default <- out;
    SPECIAL_MODIFIED_BESSEL_K1(UnaryArgs) = aten::special_modified_bessel_k1.default <- out;
    SPECIAL_NDTRI(UnaryArgs) = aten::special_ndtri.default <- out;
    SPECIAL_SCALED_MODIFIED_BESSEL_K0(UnaryArgs) = aten::special_scaled_modified_bessel_k0.default
        <- out;
    SPECIAL_SCALED_MODIFIED_BESSEL_K1(UnaryArgs) = aten::special_scaled_modified_bessel_k1.default
        <- out;
    SPECIAL_SHIFTED_CHEBYSHEV_T(input: Tensor, n: Tensor)
        = aten::special_shifted_chebyshev_polynomial_t.default <- out { folds: false };
    SPECIAL_SHIFTED_CHEBYSHEV_T_N_SCALAR(input: Tensor, n: Scalar)
        = aten::special_shifted_chebyshev_polynomial_t.n_scalar <- n_scalar_out { folds: false };
    SPECIAL_SHIFTED_CHEBYSHEV_T_X_SCALAR(input: Scalar, n: Tensor)
        = aten::special_shifted_chebyshev_polynomial_t.x_scalar <- x_scalar_out { folds: false };
    SPECIAL_SHIFTED_CHEBYSHEV_U(input: Tensor, n: Tensor)
        = aten::special_shifted_chebyshev_polynomial_u.default <- out { folds: false };
    SPECIAL_SHIFTED_CHEBYSHEV_U_N_SCALAR(input: Tensor, n: Scalar)
        = aten::special_shifted_chebyshev_polynomial_u.n_scalar <- n_scalar_out { folds: false };
    SPECIAL_SHIFTED_CHEBYSHEV_U_X_SCALAR(input: Scalar, n: Tensor)
        = aten::special_shifted_chebyshev_polynomial_u.x_scalar <- x_scalar_out { folds: false };
    SPECIAL_SHIFTED_CHEBYSHEV_V(input: Tensor, n: Tensor)
        = aten::special_shifted_chebyshev_polynomial_v.default <- out { folds: false };
    SPECIAL_SHIFTED_CHEBYSHEV_V_N_SCALAR(input: Tensor, n: Scalar)
        = aten::special_shifted_chebyshev_polynomial_v.n_scalar <- n_scalar_out { folds: false };
    SPECIAL_SHIFTED_CHEBYSHEV_V_X_SCALAR(input: Scalar, n: Tensor)
        = aten::special_shifted_chebyshev_polynomial_v.x_scalar <- x_scalar_out { folds: false };
    SPECIAL_SHIFTED_CHEBYSHEV_W(input: Tensor, n: Tensor)
        = aten::special_shifted_chebyshev_polynomial_w.default <- out { folds: false };
    SPECIAL_SHIFTED_CHEBYSHEV_W_N_SCALAR(input: Tensor, n: Scalar)
        = aten::special_shifted_chebyshev_polynomial_w.n_scalar <- n_scalar_out { folds: false };
    SPECIAL_SHIFTED_CHEBYSHEV_W_X_SCALAR(input: Scalar, n: Tensor)
        = aten::special_shifted_chebyshev_polynomial_w.x_scalar <- x_scalar_out { folds: false };
    SPECIAL_SPHERICAL_BESSEL_J0(UnaryArgs) = aten::special_spherical_bessel_j0.default <- out;
    DEG2RAD(UnaryArgs) = aten::deg2rad.default;
    FLOAT_POWER_TENSOR(FloatPowerArgs { input: Tensor, exponent: Tensor })
        = aten::float_power.Tensor_Tensor;
    HEAVISIDE(HeavisideArgs { input: Tensor, values: Tensor }) = aten::heaviside.default;
    ISCLOSE(IscloseArgs {
        input: Tensor, other: Tensor, rtol: Float = 1e-05, atol: Float = 1e-08,
        equal_nan: Bool = false
    }) = aten::isclose.default;
    ISIN(IsinArgs {
        elements: Tensor, test_elements: Tensor, assume_unique: Bool = false, invert: Bool = false
    }) = aten::isin.Tensor_Tensor;
    LOGADDEXP2(BinaryArgs) = aten::logaddexp2.default;
    MVLGAMMA(MvlgammaArgs { input: Tensor, p: Int }) = aten::mvlgamma.default;
    RAD2DEG(UnaryArgs) = aten::rad2deg.default;
    SGN(UnaryArgs) = aten::sgn.default;
    SINC(UnaryArgs) = aten::sinc.default;
    SPECIAL_ENTR(UnaryArgs) = aten::special_entr.default;
    SPECIAL_LOG_NDTR(UnaryArgs) = aten::special_log_ndtr.default;
    SPECIAL_NDTR(UnaryArgs) = aten::special_ndtr.default;
    SPECIAL_XLOG1PY(BinaryArgs) = aten::special_xlog1py.default;
    XLOGY(BinaryArgs) = aten::xlogy.Tensor;
    SPECIAL_ZETA(BinaryArgs) = aten::special_zeta.default <- out;
    SPECIAL_ZETA_OTHER_SCALAR(BinaryScalarArgs) = aten::special_zeta.other_scalar
        <- other_scalar_out;
    SPECIAL_ZETA_SELF_SCALAR(BinaryScalarTensorArgs) = aten::special_zeta.self_scalar
        <- self_scalar_out;
}
