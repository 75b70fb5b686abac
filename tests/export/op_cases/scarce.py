"""Operators that few programs call."""

from __future__ import annotations

from typing import Iterator

import torch
import torch.nn.functional as F

from .special import INF, NAN, well_conditioned
from .table import (
    FLOATS,
    INTEGERS,
    NAMES,
    Case,
    bf16,
    boolean,
    case,
    each,
    f16,
    f32,
    f64,
    i32,
    i64,
    last,
    plain,
    positive,
    values,
)


def scalar_first() -> Iterator[Case]:
    """Binary operators with a scalar as the first operand."""
    for run in (torch.bitwise_and, torch.bitwise_or, torch.bitwise_xor):
        yield from each(
            run.__name__, lambda x, r=run: r(6, x), INTEGERS, lambda d: (values(d, 3, 5),)
        )
        yield case(f"{run.__name__}_bool", lambda x, r=run: r(True, x), (values(boolean, 3, 5),))
    for run in (torch.bitwise_left_shift, torch.bitwise_right_shift):
        yield from each(
            run.__name__,
            lambda x, r=run: r(77, x),
            INTEGERS,
            lambda d: (torch.randint(0, 9, (3, 5)).to(d),),
        )
    for scalar in (7, -7):
        name = f"remainder_{'of' if scalar > 0 else 'of_less'}"
        nonzero = lambda d: torch.where((x := values(d, 3, 5)) == 0, torch.ones((), dtype=d), x)
        yield from each(
            name,
            lambda x, n=scalar: torch.remainder(n, x),
            (f32, f64, f16, bf16, i32, i64),
            lambda d: (nonzero(d),),
        )
    yield from each(
        "zeta_of_number",
        lambda x: torch.special.zeta(2.5, x),
        (f32, f64, i64),
        lambda d: (positive(d, 3, 5),),
    )
    yield from each(
        "zeta_with_number",
        lambda x: torch.special.zeta(x, 1.5),
        (f32, f64),
        lambda d: (positive(d, 3, 5),),
    )


def nextafter() -> Iterator[Case]:
    ends = lambda d: torch.tensor(
        [0.0, -0.0, 0.0, 1.0, -1.0, 1.0, -1.0, INF, -INF, NAN, 1.0, 2.0, 1e-4, 0.5, 3.0], dtype=d
    )
    to = lambda d: torch.tensor(
        [1.0, 1.0, -1.0, 2.0, 2.0, -INF, -INF, 0.0, 0.0, 1.0, NAN, 2.0, 0.0, INF, -0.0], dtype=d
    )
    yield from each(
        "nextafter",
        torch.nextafter,
        (f32, f64, f16, bf16),
        lambda d: (values(d, 3, 5), values(d, 5)),
        rtol=0.0,
        atol=0.0,
    )
    yield from each(
        "nextafter_ends",
        torch.nextafter,
        (f32, f64, f16, bf16),
        lambda d: (ends(d), to(d)),
        rtol=0.0,
        atol=0.0,
    )


def incomplete_gammas() -> Iterator[Case]:
    shapes = lambda d: torch.tensor([0.05, 0.5, 1.0, 2.5, 7.0, 12.0, 40.0], dtype=d).reshape(7, 1)
    cuts = lambda d: torch.tensor([1e-3, 0.3, 1.0, 4.0, 11.0, 35.0, 60.0], dtype=d)
    odd = lambda d: (
        torch.tensor([0.0, 0.0, 1.0, -1.0, 1.0, INF, INF, 2.0, NAN], dtype=d),
        torch.tensor([0.0, 1.0, 0.0, 1.0, -1.0, 1.0, INF, INF, 1.0], dtype=d),
    )
    large = lambda d: (
        torch.tensor([150.0, 300.0, 1e3, 1e3, 5e4, 1e6, 1e6], dtype=d),
        torch.tensor([140.0, 310.0, 900.0, 1010.0, 50200.0, 999000.0, 1000100.0], dtype=d),
    )
    for run in (torch.igamma, torch.igammac):
        yield from each(run.__name__, run, FLOATS, lambda d: (shapes(d), cuts(d)))
        yield from each(f"{run.__name__}_odd", run, (f32, f64), odd)
        yield case(f"{run.__name__}_large", run, large(f64))


def distances() -> Iterator[Case]:
    for p in (0, 1, 2, 3, 0.5, -1, INF, -INF):
        name = str(float(p)).replace(".", "_").replace("-", "m")
        yield case(
            f"dist_{name}",
            lambda a, b, p=p: torch.dist(a, b, p),
            (values(f32, 3, 1, 70), values(f32, 4, 1)),
        )
    yield from each("dist", torch.dist, FLOATS, lambda d: (values(d, 3, 5), values(d, 3, 5)))
    yield case(
        "dist_nan",
        lambda a, b: torch.dist(a, b, INF),
        (torch.tensor([1.0, NAN, 2.0]), torch.zeros(3)),
    )
    yield case("dist_scalars", torch.dist, (torch.tensor(2.0), torch.tensor(-1.5)))
    yield case("dist_last", torch.dist, (last(values(f32, 1, 3, 4, 5)), values(f32, 1, 3, 4, 5)))


def histograms() -> Iterator[Case]:
    yield from each(
        "histc", lambda x: torch.histc(x, 7, -3, 3), (f32, f64), lambda d: (values(d, 4, 33),)
    )
    yield from each(
        "histc_all", lambda x: torch.histc(x, 10), (f32, f64), lambda d: (values(d, 100),)
    )
    edges = torch.arange(-12, 13) / 10
    yield case("histc_edges", lambda x: torch.histc(x, 20, -1, 1), (edges,))
    yield case(
        "histc_edges_third", lambda x: torch.histc(x, 3, 0, 0.3), (torch.arange(0, 31) / 100,)
    )
    yield case("histc_same", lambda x: torch.histc(x, 4), (torch.full((5,), 2.5),))
    yield case(
        "histc_nan",
        lambda x: torch.histc(x, 4, 0, 1),
        (torch.tensor([NAN, 0.5, INF, -INF, 1.0, 0.0]),),
    )


def half_precision_histograms() -> Iterator[Case]:
    """fp16 and bf16 results are rounded at each step, which decides where bin edges are."""
    yield from each(
        "histc", lambda x: torch.histc(x, 7, -3, 3), (f16, bf16), lambda d: (values(d, 4, 33),)
    )
    yield from each(
        "histc_all", lambda x: torch.histc(x, 11), (f16, bf16), lambda d: (values(d, 100),)
    )


def scalars_with_half_precision() -> Iterator[Case]:
    """Scalars that fp16 cannot represent are rounded first.

    The tolerance is half a unit in the last place.
    """
    scalar = 1.3004
    for dtype, rtol in ((f16, 5e-4), (bf16, 4e-3)):
        # A whole number of SIMD vectors: PyTorch's scalar tail also rounds intermediate products.
        x = torch.tensor([1.0, 1.5, 2.3, 10.0, 15.0, 0.1, 33.0, 7.7], dtype=dtype).repeat(8)
        for name, run in (
            ("pow", lambda x: torch.pow(x, scalar)),
            ("pow_of", lambda x: torch.pow(scalar, x)),
            ("fmod", lambda x: torch.fmod(x, scalar)),
            ("remainder", lambda x: torch.remainder(-x, scalar)),
            ("remainder_of", lambda x: torch.remainder(scalar, x / 16)),
            ("add_alpha", lambda x: torch.add(x, -x, alpha=scalar)),
            ("sub_alpha", lambda x: torch.sub(x, x, alpha=scalar)),
        ):
            yield case(f"{name}_{NAMES[dtype]}", run, (x,), rtol=rtol, atol=0.0)
        among = torch.where(x < 9, x, scalar)
        yield case(f"equal_{NAMES[dtype]}", lambda x: x == scalar, (among,))


def fractional_pools() -> Iterator[Case]:
    flat = lambda x, u: F.fractional_max_pool2d(
        x, (2, 3), output_size=(4, 3), return_indices=True, _random_samples=u
    )
    deep = lambda x, u: F.fractional_max_pool3d(
        x, 2, output_size=(3, 2, 4), return_indices=True, _random_samples=u
    )
    yield from each(
        "flat",
        lambda x, u: plain(flat(x, u)),
        (f32, f64, f16, bf16),
        lambda d: (values(d, 2, 3, 9, 8), torch.rand(2, 3, 2).to(d)),
    )
    yield from each(
        "deep",
        lambda x, u: plain(deep(x, u)),
        (f32, f64, f16, bf16),
        lambda d: (values(d, 2, 2, 7, 5, 9), torch.rand(2, 2, 3).to(d)),
    )
    yield case(
        "flat_last",
        lambda x, u: plain(flat(x, u)),
        (last(values(f32, 2, 3, 9, 8)), torch.rand(2, 3, 2)),
    )
    yield case(
        "flat_single", lambda x, u: plain(flat(x, u)), (values(f32, 3, 9, 8), torch.rand(1, 3, 2))
    )
    odd = values(f32, 1, 1, 9, 8)
    odd[0, 0, 4, 3:6] = torch.tensor([NAN, INF, -INF])
    yield case("flat_odd", lambda x, u: plain(flat(x, u)), (odd, torch.rand(1, 1, 2)))
    one = lambda x, u: F.fractional_max_pool2d(
        x, 3, output_size=(1, 5), return_indices=True, _random_samples=u
    )
    yield case(
        "flat_one", lambda x, u: plain(one(x, u)), (values(f32, 1, 2, 7, 7), torch.rand(1, 2, 2))
    )


def given_factorizations() -> Iterator[Case]:
    """Solvers and inverses from given factorizations."""
    for dtype in (f32, f64):
        n = NAMES[dtype]
        square, right = well_conditioned(dtype, 2, 4, 4), values(dtype, 2, 4, 3)
        for upper in (False, True):
            name = f"{'upper' if upper else 'lower'}_{n}"
            half = torch.linalg.cholesky(square @ square.mT, upper=upper)
            yield case(
                f"cholesky_solve_{name}",
                lambda b, a, u=upper: torch.cholesky_solve(b, a, upper=u),
                (right, half),
            )
            yield case(
                f"cholesky_inverse_{name}",
                lambda a, u=upper: torch.cholesky_inverse(a, upper=u),
                (half,),
            )
            for transposed in (False, True):
                run = lambda b, a, u=upper, t=transposed: plain(torch.triangular_solve(b, a, u, t))
                yield case(f"triangular_{name}_{'t' if transposed else 'n'}", run, (right, square))
        yield case(
            f"triangular_unit_{n}",
            lambda b, a: plain(torch.triangular_solve(b, a, unitriangular=True)),
            (right, square * 0.2),
        )
        factors, pivots = torch.linalg.lu_factor(
            values(dtype, 2, 4, 4) + torch.eye(4, dtype=dtype).flip(0) * 5
        )
        for left in (True, False):
            for adjoint in (False, True):
                run = lambda f, p, b, l=left, a=adjoint: torch.linalg.lu_solve(
                    f, p, b, left=l, adjoint=a
                )
                side, form = "left" if left else "right", "adjoint" if adjoint else "plain"
                name = f"lu_solve_{side}_{form}_{n}"
                yield case(name, run, (factors, pivots, right if left else right.mT.contiguous()))
        for name, shape in (("square", (2, 4, 4)), ("tall", (5, 3)), ("wide", (2, 3, 5))):
            matrix = values(dtype, *shape)
            yield case(f"lu_{name}_{n}", lambda x: plain(torch.linalg.lu(x)), (matrix,))
            yield case(
                f"lu_unpack_{name}_{n}",
                lambda f, p: plain(torch.lu_unpack(f, p)),
                torch.linalg.lu_factor(matrix),
            )
            yield case(f"geqrf_{name}_{n}", lambda x: plain(torch.geqrf(x)), (matrix,))
        lengths = torch.geqrf(well_conditioned(dtype, 2, 5, 3))
        yield case(f"householder_{n}", torch.linalg.householder_product, tuple(lengths))
        yield case(
            f"householder_fewer_{n}",
            torch.linalg.householder_product,
            (lengths[0], lengths[1][:, :2].contiguous()),
        )


def histogram_edges() -> Iterator[Case]:
    """Histograms that also return their bin edges."""
    for dtype in (f32, f64):
        n, x = NAMES[dtype], values(dtype, 5, 41)
        weight = values(dtype, 5, 41).abs()
        yield case(f"all_{n}", lambda x: plain(torch.histogram(x, 9)), (x,))
        yield case(f"range_{n}", lambda x: plain(torch.histogram(x, 6, range=(-1.5, 2.0))), (x,))
        weighed = lambda x, w: plain(
            torch.histogram(x, 7, range=(-2.0, 2.0), weight=w, density=True)
        )
        yield case(f"weights_{n}", weighed, (x, weight))
        given = torch.tensor([-1.0, -0.25, 0.0, 0.5, 2.0], dtype=dtype)
        yield case(f"given_{n}", lambda x, b: plain(torch.histogram(x, b)), (x, given))
        yield case(
            f"given_density_{n}",
            lambda x, b, w: plain(torch.histogram(x, b, weight=w, density=True)),
            (x, given, weight),
        )
    ends = torch.tensor([NAN, 0.5, INF, -INF, 1.0, 0.0, 0.25, 0.75])
    yield case("ends", lambda x: plain(torch.histogram(x, 4, range=(0.0, 1.0))), (ends,))
    yield case(
        "tenths",
        lambda x: plain(torch.histogram(x, 10, range=(0.0, 1.0))),
        (torch.arange(0, 11) / 10,),
    )
    yield case("same", lambda x: plain(torch.histogram(x, 3)), (torch.full((5,), 2.5),))
    yield case(
        "nothing",
        lambda x: plain(torch.histogram(x, 2, range=(5.0, 6.0), density=True)),
        (torch.zeros(4),),
    )
    yield case(
        "last",
        lambda x, w: plain(torch.histogram(x, 5, weight=w)),
        (last(values(f32, 1, 3, 4, 5)), last(values(f32, 1, 3, 4, 5))),
    )


def segments() -> Iterator[Case]:
    """Reductions over consecutive segments of a dim."""
    lengths, offsets = torch.tensor([2, 0, 3, 1]), torch.tensor([1, 3, 3, 6])
    for name in ("sum", "mean", "prod", "min", "max"):
        by_lengths = lambda x, at, n=name: torch.segment_reduce(x, n, lengths=at, axis=0)
        by_offsets = lambda x, at, n=name: torch.segment_reduce(
            x, n, offsets=at, axis=0, initial=0.5
        )
        yield from each(f"{name}_lengths", by_lengths, FLOATS, lambda d: (values(d, 6, 3), lengths))
        yield from each(
            f"{name}_offsets", by_offsets, (f32, f16), lambda d: (values(d, 6, 2, 2), offsets)
        )
    odd = torch.tensor([[1.0, NAN], [NAN, 2.0], [INF, 3.0], [-INF, 1.0], [0.0, -0.0], [2.0, NAN]])
    for name in ("sum", "mean", "min", "max"):
        yield case(
            f"{name}_odd",
            lambda x, at, n=name: torch.segment_reduce(x, n, lengths=at, axis=0, initial=1),
            (odd, lengths),
        )
    rows = torch.tensor([[2, 4], [1, 5]], dtype=torch.int32)
    yield case(
        "rows",
        lambda x, at: torch.segment_reduce(x, "sum", lengths=at, axis=1),
        (values(f32, 2, 6, 3), rows),
    )
    yield case(
        "unsafe",
        lambda x, at: torch.segment_reduce(x, "max", lengths=at, axis=0, unsafe=True),
        (values(f32, 9), lengths),
    )
    yield case(
        "long",
        lambda x, at: torch.segment_reduce(x, "mean", lengths=at, axis=0),
        (values(f32, 200), torch.tensor([130, 70])),
    )


def pseudo_inverses() -> Iterator[Case]:
    """Pseudoinverses, matrix square roots, and multiplication with Householder reflections."""
    for dtype in (f32, f64):
        n = NAMES[dtype]
        for name, shape in (("square", (2, 4, 4)), ("tall", (5, 3)), ("wide", (2, 3, 5))):
            yield case(f"pinv_{name}_{n}", torch.linalg.pinv, (values(dtype, *shape),))
        of_two = values(dtype, 5, 2) @ values(dtype, 2, 4)
        yield case(f"pinv_of_two_{n}", lambda x: torch.linalg.pinv(x, rtol=1e-4), (of_two,))
        yield case(
            f"pinv_near_{n}",
            lambda x: torch.linalg.pinv(x, atol=0.6, rtol=0.01),
            (well_conditioned(dtype, 2, 4, 4) * 0.2,),
        )
        yield case(
            f"pinv_each_{n}",
            lambda x, a: torch.linalg.pinv(x, atol=a),
            (values(dtype, 2, 4, 3), torch.tensor([0.1, 1.5], dtype=dtype)),
        )
        yield case(
            f"pinv_symmetric_{n}",
            lambda x: torch.linalg.pinv(x, hermitian=True),
            (values(dtype, 2, 4, 4),),
        )
        yield case(f"pinverse_{n}", torch.pinverse, (values(dtype, 4, 6),))
        positive = well_conditioned(dtype, 2, 4, 4)
        yield case(f"sqrth_{n}", torch.linalg.matrix_sqrth, (positive @ positive.mT,))
        yield case(f"sqrth_any_{n}", torch.linalg.matrix_sqrth, (values(dtype, 3, 3),))
        directions, lengths = torch.geqrf(well_conditioned(dtype, 2, 5, 3))
        for left in (True, False):
            for transposed in (False, True):
                run = lambda a, t, b, l=left, f=transposed: torch.ormqr(a, t, b, l, f)
                other = values(dtype, 2, 5, 4) if left else values(dtype, 2, 4, 5)
                side, form = "left" if left else "right", "transposed" if transposed else "plain"
                name = f"ormqr_{side}_{form}_{n}"
                yield case(name, run, (directions, lengths, other))


def broadcast_batches() -> Iterator[Case]:
    """Solvers with given factorizations: broadcast batches, and tensors without elements."""
    for dtype in (f32, f64):
        n = NAMES[dtype]
        square = well_conditioned(dtype, 3, 4, 4)
        positive = square @ square.mT
        lower, (factors, pivots), whole = (
            torch.linalg.cholesky(positive),
            torch.linalg.lu_factor(square),
            torch.linalg.ldl_factor_ex(positive),
        )
        for name, take, shape in (
            ("one_right", slice(None), (4, 2)),
            ("more_rights", slice(None), (2, 1, 4, 2)),
            ("one_matrix", 1, (3, 4, 2)),
            ("none", slice(0), (4, 2)),
        ):
            right, turned = values(dtype, *shape), values(dtype, *shape[:-2], 2, 4)
            yield case(f"cholesky_{name}_{n}", torch.cholesky_solve, (right, lower[take].clone()))
            yield case(
                f"triangular_{name}_{n}",
                lambda b, a: plain(torch.triangular_solve(b, a)),
                (right, square[take].clone()),
            )
            yield case(
                f"lu_{name}_{n}",
                torch.linalg.lu_solve,
                (factors[take].clone(), pivots[take].clone(), right),
            )
            run = lambda f, p, b: torch.linalg.lu_solve(f, p, b, left=False)
            yield case(
                f"lu_right_{name}_{n}", run, (factors[take].clone(), pivots[take].clone(), turned)
            )
            if name != "more_rights":  # PyTorch's own crashes.
                yield case(
                    f"ldl_{name}_{n}",
                    torch.linalg.ldl_solve,
                    (whole.LD[take].clone(), whole.pivots[take].clone(), right),
                    atol=1e-4 if dtype == f32 else None,
                )
            for left in (True, False):
                run = lambda a, b, left=left: torch.linalg.solve_triangular(
                    a, b, upper=False, left=left
                )
                yield case(
                    f"solve_triangular_{'left' if left else 'right'}_{name}_{n}",
                    run,
                    (lower[take].clone(), right if left else turned),
                )


FAMILIES = {
    "batches_in_common": broadcast_batches,
    "histogram_edges": histogram_edges,
    "segments": segments,
    "pseudo_inverses": pseudo_inverses,
    "known_factors": given_factorizations,
    "numbers_first": scalar_first,
    "next_numbers": nextafter,
    "incomplete_gammas": incomplete_gammas,
    "distances": distances,
    "histograms": histograms,
    "fractional_pools": fractional_pools,
    "halves": half_precision_histograms,
    "numbers_beside_halves": scalars_with_half_precision,
}
