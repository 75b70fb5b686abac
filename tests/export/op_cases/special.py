"""Special functions, running extremes, unique elements and matrix factorizations."""

from __future__ import annotations

from typing import Any, Callable, Iterator

import torch

from .table import (
    FLOATS,
    NAMES,
    Case,
    bf16,
    boolean,
    case,
    each,
    f16,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    last,
    longs,
    plain,
    positive,
    u8,
    values,
)

A = torch.ops.aten
S = torch.special
NAN, INF = float("nan"), float("inf")
ODD = [NAN, INF, -INF, 0.0, -0.0, 0.5, 1.0, -1.0, 2.0, -2.5, 1e-3, -1e-3, 12.5, -12.5, 25.0]


def special_points(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Values at poles, limits and extrema of special functions."""
    return torch.tensor(ODD[: torch.Size(shape).numel()], dtype=dtype).reshape(shape)


def function(
    name: str, run: Callable[..., Any], dtypes: Any = (f32, f64, f16, i64)
) -> Iterator[Case]:
    """A unary function over ordinary and special values."""
    for dtype in dtypes:
        inputs = [(values(dtype, 3, 5),)] + (
            [(special_points(dtype, 3, 5),)] if dtype.is_floating_point else []
        )
        yield Case(f"{name}_{NAMES[dtype]}", run, inputs)


def functions() -> Iterator[Case]:
    for run in (torch.erfc, torch.exp2, torch.lgamma, torch.digamma, torch.i0, torch.signbit):
        yield from function(run.__name__, run)
    for run in (S.i0e, S.i1, S.i1e, S.erfcx):
        yield from function(run.__name__, run, (f32, f64))
    # Eager mode's fp64 Bessel functions are off by up to 1e-8.
    yield from function("bessel_j0", S.bessel_j0, (f32,))
    yield from function("bessel_j1", S.bessel_j1, (f32,))
    for run in (S.bessel_j0, S.bessel_j1, S.bessel_y0, S.bessel_y1):
        yield case(f"{run.__name__}_right", run, (positive(f32, 3, 5),))
        yield case(f"{run.__name__}_right_f64", run, (positive(f64, 3, 5),), rtol=1e-5, atol=1e-6)
    unit = lambda d: [
        (torch.linspace(-1, 1, 21, dtype=f64).to(d),),
        (torch.tensor([1e-6, -1e-3, 0.999, NAN, 2.0], dtype=f64).to(d),),
    ]
    yield from each("erfinv", torch.erfinv, (f32, f64, bf16), lambda d: unit(d)[0])
    yield from each("erfinv_odd", torch.erfinv, (f32, f64), lambda d: unit(d)[1])
    yield from each(
        "ndtri",
        S.ndtri,
        (f32, f64),
        lambda d: (torch.tensor([0.0, 1e-6, 0.01, 0.3, 0.5, 0.9, 1.0, -1.0, NAN], dtype=d),),
    )
    for n in (0, 1, 2, 5):
        yield from each(
            f"polygamma_{n}",
            lambda x, n=n: torch.polygamma(n, x),
            (f32, f64),
            lambda d: (positive(d, 3, 5),),
        )
    yield case(
        "polygamma_negative",
        lambda x: torch.polygamma(2, x),
        (torch.tensor([-0.5, -1.25, -7.75], dtype=f64),),
    )
    yield from each("zeta", S.zeta, (f32, f64), lambda d: (positive(d, 3, 5), positive(d, 5)))
    yield case(
        "zeta_odd",
        S.zeta,
        (
            torch.tensor([1.0, 0.5, 2.0, 3.0, 2.5, NAN, 2.0], dtype=f64),
            torch.tensor([2.0, 2.0, -1.0, -2.5, -2.5, 1.0, 0.0], dtype=f64),
        ),
    )


def pairs() -> Iterator[Case]:
    yield from each(
        "gcd", torch.gcd, (u8, i8, i16, i32, i64), lambda d: (values(d, 3, 5), values(d, 5))
    )
    yield from each(
        "lcm", torch.lcm, (u8, i16, i32, i64), lambda d: (values(d, 3, 5), values(d, 5))
    )
    yield from each(
        "ldexp", torch.ldexp, FLOATS, lambda d: (values(d, 3, 5), values(i32, 5).clamp(-8, 8))
    )
    yield case("ldexp_i64", torch.ldexp, (values(i64, 3), values(i64, 3)))


def running() -> Iterator[Case]:
    for name, run in (("cummax", torch.cummax), ("cummin", torch.cummin)):
        for dim in (0, 1, -1):
            yield case(
                f"{name}_dim_{dim % 3}_{'n' if dim < 0 else 'p'}",
                lambda x, dim=dim, run=run: plain(run(x, dim)),
                (values(f32, 3, 4, 5),),
            )
        yield from each(
            name,
            lambda x, run=run: plain(run(x, 0)),
            (f64, f16, bf16, u8, i32, i64, boolean),
            lambda d: (values(d, 9),),
        )
        yield case(
            f"{name}_odd",
            lambda x, run=run: plain(run(x, 0)),
            (torch.tensor([1.0, 1.0, -INF, 2.0, NAN, 3.0, NAN, INF]),),
        )
        yield case(f"{name}_scalar", lambda x, run=run: plain(run(x, 0)), (torch.tensor(2.5),))
    yield from each(
        "logcumsumexp", lambda x: torch.logcumsumexp(x, 1), FLOATS, lambda d: (values(d, 3, 7),)
    )
    yield case("logcumsumexp_first", lambda x: torch.logcumsumexp(x, 0), (values(f32, 4, 3),))
    yield case(
        "logcumsumexp_odd",
        lambda x: torch.logcumsumexp(x, 0),
        (torch.tensor([-INF, -INF, 1.0, 100.0, INF, INF, NAN, 1.0]),),
    )
    yield case(
        "cumsum_infinite", lambda x: torch.cumsum(x, 0), (torch.tensor([3e38, 3e38, -3e38, 1.0]),)
    )


def order() -> Iterator[Case]:
    def repeated(d: torch.dtype) -> torch.Tensor:
        return torch.randint(0, 4, (4, 7)).to(d)

    yield from each(
        "mode", lambda x: plain(torch.mode(x, 1)), (f32, f16, i64, u8), lambda d: (repeated(d),)
    )
    yield case("mode_keepdim", lambda x: plain(torch.mode(x, 0, True)), (repeated(f64),))
    lines = torch.tensor([[NAN, 1.0, 3.0, 2.0], [NAN, NAN, NAN, NAN], [4.0, 1.0, 2.0, 3.0]])
    # A row of NaNs may return any index.
    yield case("nanmedian_dim", lambda x: torch.nanmedian(x, 1).values, (lines,))
    yield case(
        "nanmedian_places", lambda x: plain(torch.nanmedian(x, 1)), (lines[::2].contiguous(),)
    )
    yield from each("nanmedian", torch.nanmedian, (f32, f64, i64), lambda d: (values(d, 7),))
    yield case("nanmedian_all", torch.nanmedian, (lines,))
    yield case("nanmedian_none", torch.nanmedian, (torch.full((3,), NAN),))

    def sequence(d: torch.dtype, *shape: int) -> torch.Tensor:
        return values(d, *shape).sort(-1)[0]

    yield from each(
        "searchsorted",
        torch.searchsorted,
        (f32, f64, bf16, i32, i64),
        lambda d: (sequence(d, 6), values(d, 3, 4)),
    )
    yield case(
        "searchsorted_rows",
        lambda s, x: torch.searchsorted(s, x, right=True),
        (sequence(f32, 2, 3, 6), values(f32, 2, 3, 4)),
    )
    yield case(
        "searchsorted_equal",
        lambda s, x: (torch.searchsorted(s, x), torch.searchsorted(s, x, side="right")),
        (longs(1, 2, 2, 2, 3), longs(0, 1, 2, 3, 4)),
    )
    yield case(
        "searchsorted_int32",
        lambda s, x: torch.searchsorted(s, x, out_int32=True),
        (sequence(f32, 6), values(f32, 4)),
    )
    shuffled = values(f32, 2, 6)
    yield case(
        "searchsorted_sorter",
        lambda s, x, o: torch.searchsorted(s, x, sorter=o),
        (shuffled, values(f32, 2, 4), shuffled.argsort(-1)),
    )
    yield case("searchsorted_number", lambda s: torch.searchsorted(s, 0.5), (sequence(f32, 6),))
    # A scalar is rounded to the dtype of the sequence.
    tenths = torch.tensor([0.0, 0.1, 0.1, 1.0], dtype=f16)
    yield case(
        "searchsorted_number_f16",
        lambda s: (torch.searchsorted(s, 0.1), torch.searchsorted(s, 0.1, right=True)),
        (tenths,),
    )
    whole = torch.tensor([-(2**31), 0, 2, 2**31 - 1], dtype=i32)
    yield case(
        "searchsorted_number_beyond",
        lambda s: (
            torch.searchsorted(s, 2**31),
            torch.searchsorted(s, 2**31 - 1),
            torch.searchsorted(s, 2**32 + 2),
        ),
        (whole,),
    )
    yield case(
        "searchsorted_nan",
        torch.searchsorted,
        (torch.tensor([0.0, 1.0, 2.0]), torch.tensor([NAN, -INF, INF])),
    )


def unique() -> Iterator[Case]:
    def repeated(d: torch.dtype) -> torch.Tensor:
        return torch.randint(0, 5, (3, 6)).to(d)

    all_of = lambda x: A._unique2(x, True, True, True)
    yield from each(
        "unique", all_of, (f32, f64, f16, u8, i32, i64, boolean), lambda d: (repeated(d),)
    )
    yield case("unique_values", lambda x: torch.unique(x), (repeated(i64),))
    yield case("unique_nan", all_of, (torch.tensor([NAN, 1.0, NAN, 1.0, -0.0, 0.0]),))
    yield case(
        "nonzero_static", lambda x: torch.nonzero_static(x, size=7), (torch.randint(0, 2, (3, 4)),)
    )
    yield case(
        "nonzero_static_fewer",
        lambda x: torch.nonzero_static(x, size=2, fill_value=9),
        (torch.ones(3, 2),),
    )
    yield case(
        "nonzero_static_none", lambda x: torch.nonzero_static(x, size=3), (torch.zeros(2, 2),)
    )


def unique_slices() -> Iterator[Case]:
    """Unique slices over dim 0.

    The exporter fails if other sizes depend on the number of slices.
    """

    def repeated(d: torch.dtype) -> torch.Tensor:
        return torch.randint(0, 2, (7, 2, 3)).to(d)

    all_of = lambda x: A.unique_dim(x, -3, True, True, True)  # noqa: E731
    yield from each("unique_slices", all_of, (f32, f16, u8, i64, boolean), lambda d: (repeated(d),))
    yield case(
        "unique_slices_alone", lambda x: torch.unique(x, dim=0), (torch.randint(-2, 2, (20, 2)),)
    )
    yield case(
        "unique_slices_counted",
        lambda x: torch.unique(x, dim=0, return_counts=True),
        (torch.randint(-2, 2, (30, 2)).to(f64),),
    )
    yield case(
        "unique_slices_zero",
        lambda x: torch.unique(x, dim=0),
        (torch.tensor([[0.0, 1.0], [-0.0, 1.0], [-INF, INF]]),),
    )
    yield case(
        "unique_slices_one",
        lambda x: torch.unique(x, dim=0, return_inverse=True),
        (values(f32, 1, 4),),
    )
    yield case(
        "unique_slices_channels_last",
        lambda x: torch.unique(x, dim=0),
        (last(torch.randint(0, 2, (9, 2, 2, 1)).to(f32)),),
    )


def well_conditioned(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Well-conditioned matrices."""
    n = min(shape[-2:])
    made = values(dtype, *shape, scale=1.0)
    made[..., range(n), range(n)] += 3.0
    return made


def factors() -> Iterator[Case]:
    det, inverse, solve = A._linalg_det.default, A.linalg_inv_ex.default, A._linalg_solve_ex.default
    for dtype in (f32, f64):
        n = NAMES[dtype]
        yield case(f"det_{n}", lambda x: plain(det(x)), (values(dtype, 2, 4, 4),))
        yield case(
            f"slogdet_{n}", lambda x: plain(torch.linalg.slogdet(x)), (values(dtype, 2, 3, 3),)
        )
        yield case(
            f"inverse_{n}", lambda x: plain(inverse(x)), (well_conditioned(dtype, 2, 2, 5, 5),)
        )
        yield case(
            f"solve_{n}",
            lambda a, b: plain(solve(a, b)),
            (well_conditioned(dtype, 2, 4, 4), values(dtype, 2, 4, 3)),
        )
        yield case(f"lu_{n}", lambda x: plain(A.linalg_lu_factor_ex(x)), (values(dtype, 2, 5, 4),))
        yield case(
            f"cholesky_{n}",
            lambda x: plain(A.linalg_cholesky_ex(x @ x.mT)),
            (well_conditioned(dtype, 2, 4, 4),),
        )
        for mode in ("reduced", "complete"):
            yield case(
                f"qr_{mode}_{n}",
                lambda x, mode=mode: plain(torch.linalg.qr(x, mode)),
                (values(dtype, 2, 5, 3),),
            )
        yield case(f"qr_wide_{n}", lambda x: plain(torch.linalg.qr(x)), (values(dtype, 3, 5),))
        for name, upper, left, unit in (
            ("upper", True, True, False),
            ("lower", False, True, False),
            ("right", True, False, False),
            ("unit", False, False, True),
        ):
            b = values(dtype, 2, 4, 3) if left else values(dtype, 2, 3, 4)
            triangle = (
                well_conditioned(dtype, 2, 4, 4).triu()
                if upper
                else well_conditioned(dtype, 2, 4, 4).tril()
            ) * (0.2 if unit else 1.0)
            run = lambda a, b, upper=upper, left=left, unit=unit: torch.linalg.solve_triangular(
                a, b, upper=upper, left=left, unitriangular=unit
            )
            yield case(f"triangular_{name}_{n}", run, (triangle, b))
        yield case(f"exponential_{n}", torch.linalg.matrix_exp, (values(dtype, 2, 3, 3),))
        yield case(f"singular_values_{n}", torch.linalg.svdvals, (values(dtype, 2, 5, 3),))
        yield case(f"singular_values_wide_{n}", torch.linalg.svdvals, (values(dtype, 3, 6),))
        yield case(
            f"eigenvalues_{n}", lambda x: torch.linalg.eigvalsh(x), (values(dtype, 2, 5, 5),)
        )

        # The signs of singular vectors are arbitrary: compare the reconstructed matrix instead.
        def reconstructed(x: torch.Tensor, full: bool) -> torch.Tensor:
            u, s, v = torch.linalg.svd(x, full_matrices=full)
            n = s.shape[-1]
            return (u[..., :n] * s.unsqueeze(-2)) @ v[..., :n, :], u.mT @ u, v @ v.mT

        for shape in ((2, 5, 3), (3, 5), (4, 4)):
            for full in (False, True):
                name = f"svd_{'x'.join(map(str, shape))}_{'full' if full else 'reduced'}_{n}"
                yield case(
                    name,
                    lambda x, full=full: reconstructed(x, full),
                    (values(dtype, *shape),),
                    atol=2e-5 if dtype == f32 else None,
                )
        yield case(
            f"svd_deficient_{n}",
            lambda x: reconstructed(x, True),
            (values(dtype, 4, 1) @ values(dtype, 1, 3),),
            atol=2e-5 if dtype == f32 else None,
        )

        def rebuilt(x: torch.Tensor) -> Any:
            values, vectors = torch.linalg.eigh(x)
            return (vectors * values.unsqueeze(-2)) @ vectors.mT, vectors.mT @ vectors

        yield case(
            f"eigh_{n}", rebuilt, (values(dtype, 2, 4, 4),), atol=2e-5 if dtype == f32 else None
        )
    yield case("det_singular", lambda x: plain(det(x)), (torch.tensor([[1.0, 2.0], [2.0, 4.0]]),))
    yield case(
        "solve_vector",
        lambda a, b: plain(solve(a, b)),
        (well_conditioned(f64, 3, 3), values(f64, 3)),
    )
    yield case(
        "cholesky_upper",
        lambda x: plain(A.linalg_cholesky_ex(x @ x.mT, upper=True)),
        (well_conditioned(f64, 3, 3),),
    )


def limits() -> Iterator[Case]:
    """Orders, exponents and values at which formulas change, and shapes without work."""
    yield case(
        "polygamma_20",
        lambda x: torch.polygamma(20, x),
        (torch.tensor([0.5, 3.0, 10.0, 12.0, 50.0], dtype=f64),),
    )
    for order in (1, 2, 3):
        # The limit at infinity is zero; PyTorch returns NaN from order 2 on.
        infinite = torch.tensor([-INF, INF if order == 1 else 3e38, NAN, 0.0, -0.5])
        yield case(
            f"polygamma_{order}_infinite", lambda x, n=order: torch.polygamma(n, x), (infinite,)
        )
    orders = torch.tensor([[21.0], [31.0], [51.0], [101.0]], dtype=f64)
    yield case("zeta_large", S.zeta, (orders, torch.tensor([1.0, 9.9, 10.0, 33.3], dtype=f64)))
    far = (
        torch.tensor([1e-30, 1e38, 0.0, 1.5]),
        torch.tensor([150, -150, 200, 127], dtype=torch.int32),
    )
    yield case("ldexp_far", torch.ldexp, far)
    yield case(
        "ndtri_middle",
        S.ndtri,
        (torch.tensor([0.5, 0.5 + 1e-12, 0.5 - 1e-10, 0.26, 0.74], dtype=f64),),
    )
    yield case(
        "bessel_y_infinite", lambda x: (S.bessel_y0(x), S.bessel_y1(x)), (torch.tensor([INF, 1.0]),)
    )
    yield case("det_nan", lambda x: A._linalg_det(x)[0], (torch.tensor([[0.0, NAN], [1.0, 1.0]]),))
    yield case(
        "exponential_single", torch.linalg.matrix_exp, (torch.tensor([[[-INF]], [[2.0]], [[INF]]]),)
    )
    yield case(
        "cholesky_indefinite",
        lambda x: plain(A.linalg_cholesky_ex(x)),
        (torch.tensor([[1.0, 2.0], [2.0, 1.0]]),),
    )
    yield case(
        "eigh_large",
        torch.linalg.eigvalsh,
        (torch.tensor([[1e200, 1e199], [1e199, 1e200]], dtype=f64),),
    )
    yield case("qr_no_columns", lambda x: plain(torch.linalg.qr(x)), (torch.zeros(5, 0, 3),))
    many = torch.zeros(100_000, 100_000, 0, 0)
    for name, run in (
        ("exponential", torch.linalg.matrix_exp),
        ("eigh", lambda x: plain(torch.linalg.eigh(x))),
        ("svd", lambda x: plain(torch.linalg.svd(x, full_matrices=False))),
    ):
        yield case(f"many_without_elements_{name}", run, (many,))


class Divided(torch.nn.Module):
    """Division by a `bfloat16` matrix with values below the range of `float16`."""

    def __init__(self) -> None:
        super().__init__()
        divisors = torch.full((4, 64), 0.5)
        divisors[:, 3] = 1e-9
        self.register_buffer("numbers", divisors.to(bf16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x / self.numbers


def ends() -> Iterator[Case]:
    """Range limits of processors that compute with other dtypes or algorithms."""
    large = (
        torch.tensor([3e38, 1e30, -1e30, 2.5e38, 1e10, -6.0, 3e38, 7e-20]),
        torch.tensor([2e38, 0.1, 0.1, 1e37, 3.0, 3.0, 1e-30, 3e-38]),
    )
    yield case("fmod_far", torch.fmod, large, preserve=[A.fmod.Tensor])
    yield case("remainder_far", torch.remainder, large)
    whole = torch.tensor([7, -7, 0, 2**30 + 1], dtype=i32)
    yield case("fmod_whole_by_zero", lambda x: torch.fmod(x, 0.0), (whole,))
    yield case("remainder_whole_by_fraction", lambda x: torch.remainder(x, 2.5), (whole,))
    yield case("divided_bf16", Divided(), (torch.ones(4, 64, dtype=bf16),))
    wide, narrow = torch.export.Dim("wide", max=8), torch.export.Dim("narrow", max=8)
    index = torch.randint(0, 6, (4, 8))
    cases = [
        (torch.zeros(6, 8), index, values(f32, 4, 8)),
        (torch.zeros(6, 8), index[:, :3], values(f32, 4, 3)),
    ]
    yield case(
        "scatter_add_varying",
        lambda x, i, s: torch.scatter_add(x, 0, i, s),
        *cases,
        dynamic=({1: wide}, {1: narrow}, {1: narrow}),
    )
    deep = lambda x, w: torch.conv3d(x, w)
    yield case("conv_deep", deep, (values(f32, 1, 1, 400, 2, 2), values(f32, 1, 1, 300, 1, 1) / 16))
    yield case(
        "conv_volumes",
        lambda x, w: torch.conv3d(x, w, padding=1, stride=(1, 2, 1), groups=2),
        (values(f32, 1, 4, 5, 6, 7), values(f32, 6, 2, 3, 3, 3)),
    )
    yield from each("selu", torch.selu, (f32, f16), lambda d: (values(d, 3, 7),))
    near_one = torch.tensor([1.0, 1.0 + 1e-6, 1.0 - 1e-6, 0.75, 1.3, 2.0, 1e-30, 0.0, -0.0])
    yield case("log2_near_one", torch.log2, (near_one,), atol=1e-7)
    yield case(
        "signs_of_zero",
        lambda x: (
            torch.sinh(x),
            torch.asinh(x),
            torch.atanh(x),
            torch.copysign(torch.ones(2), torch.asinh(x)),
        ),
        (torch.tensor([-0.0, 0.0]),),
    )
    along = lambda x, w: torch.conv3d(
        x, w, padding=(2, 0, 0), stride=(2, 1, 1), dilation=(2, 1, 1), groups=2
    )
    yield case("conv_along_depth", along, (values(f32, 2, 4, 7, 3, 5), values(f32, 6, 2, 3, 1, 1)))
    yield from each(
        "cumsum_of_lines",
        lambda x: torch.cumsum(x, 1),
        (f32, f16, i32),
        lambda d: (values(d, 2, 19, 8),),
    )
    yield case("cumprod_of_lines", lambda x: torch.cumprod(x, 0), (values(f32, 11, 3, 4),))


FAMILIES = {
    "ends": ends,
    "special_limits": limits,
    "special_functions": functions,
    "special_pairs": pairs,
    "special_running": running,
    "special_order": order,
    "special_distinct": unique,
    "special_distinct_slices": unique_slices,
    "factors": factors,
}
