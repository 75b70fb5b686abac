"""Eigenvalues of general matrices, LDL and polar decompositions, multi-dimensional histograms,
normal distributions with given means, and resizing.
"""

from __future__ import annotations

from typing import Any, Iterator

import torch

from .special import NAMES, well_conditioned
from .table import (
    FLOATS,
    Case,
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
    u8,
    values,
)

A = torch.ops.aten
NAN, INF = float("nan"), float("inf")


def eigen() -> Iterator[Case]:
    """Compares sorted eigenvalues and residuals.

    The order of eigenvalues and the signs of eigenvectors are arbitrary.
    """

    def ordered(found: torch.Tensor) -> torch.Tensor:
        order = torch.argsort(found[..., 0] + found[..., 1] * 1e-3, dim=-1)
        return torch.gather(found, -2, order.unsqueeze(-1).expand(found.shape))

    def checked(x: torch.Tensor) -> Any:
        found, vectors = torch.linalg.eig(x)
        found, vectors = torch.view_as_real(found), torch.view_as_real(vectors)
        (a, b), (re, im) = (part.unsqueeze(-2) for part in found.unbind(-1)), vectors.unbind(-1)
        rests = x @ re - (re * a - im * b), x @ im - (re * b + im * a)
        return (ordered(found), *rests, (re * re + im * im).sum(-2))

    alone = lambda x: ordered(torch.view_as_real(torch.linalg.eigvals(x)))
    by_name = lambda x: ordered(torch.view_as_real(A.linalg_eigvals.default(x)))
    cycle = [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    given = {
        "turn": [[0.0, -1.0], [1.0, 0.0]],
        "cycle": cycle,
        "scales": [[1.0, 1e5, 0.0], [3e-5, 2.0, 1e4], [0.0, 2e-4, -1.5]],
        "triangular": [[1.0, 2.0, 3.0], [0.0, -4.0, 5.0], [0.0, 0.0, 6.0]],
        "zeros": [[0.0, 0.0], [0.0, 0.0]],
        "one": [[-2.5]],
    }
    for dtype in (f32, f64):
        n, atol = NAMES[dtype], 3e-5 if dtype == f32 else None
        for shape in ((2, 3, 3), (4, 4), (2, 2, 5, 5), (1, 12, 12)):
            yield case(
                f"{'x'.join(map(str, shape))}_{n}", checked, (values(dtype, *shape),), atol=atol
            )
        symmetric = values(dtype, 4, 4)
        yield case(f"symmetric_{n}", checked, (symmetric + symmetric.T,), atol=atol)
        yield case(f"alone_{n}", alone, (values(dtype, 2, 6, 6),), atol=atol)
        yield case(
            f"by_name_{n}",
            by_name,
            (values(dtype, 2, 4, 4),),
            atol=atol,
            preserve=[A.linalg_eigvals.default],
        )
        for name, matrix in given.items():
            yield case(f"{name}_{n}", checked, (torch.tensor(matrix, dtype=dtype),), atol=atol)
    # The eigenvalues of a defective block are accurate to the square root of the rounding error
    # only.
    yield case(
        "defective",
        checked,
        (torch.tensor([[3.0, 1.0, 0.0], [0.0, 3.0, 1.0], [0.0, 0.0, 3.0]], dtype=f64),),
    )
    yield case("none", alone, (torch.zeros(2, 0, 0),))


def indefinite() -> Iterator[Case]:
    factor = lambda x: plain(torch.linalg.ldl_factor_ex(x))
    for dtype in (f32, f64):
        n = NAMES[dtype]
        for shape in ((2, 3, 3), (3, 5, 5), (8, 8), (40, 40)):
            made = values(dtype, *shape)
            yield case(
                f"factor_{'x'.join(map(str, shape))}_{n}",
                factor,
                (made + made.mT,),
                atol=2e-4 if dtype == f32 else None,
            )
        # Pivots of 2 x 2 blocks and swaps of distant rows.
        crossed = torch.tensor(
            [
                [0.0, 1.0, 2.0, 5.0],
                [1.0, 0.0, 3.0, 0.5],
                [2.0, 3.0, 0.0, 1.0],
                [5.0, 0.5, 1.0, 0.1],
            ],
            dtype=dtype,
        )
        yield case(f"factor_crossed_{n}", factor, (crossed,))
        yield case(
            f"solve_crossed_{n}",
            torch.linalg.ldl_solve,
            (*torch.linalg.ldl_factor(crossed), values(dtype, 4, 2)),
        )
        for size in (3, 6):
            made = values(dtype, 2, size, size)
            made = made + made.mT + 2 * torch.diag_embed(values(dtype, 2, size).sign())
            yield case(
                f"solve_{size}_{n}",
                torch.linalg.ldl_solve,
                (*torch.linalg.ldl_factor(made), values(dtype, 2, size, 3)),
                atol=1e-4 if dtype == f32 else None,
            )
    yield case("factor_upper", factor, (values(f64, 4, 4),))
    yield case("factor_singular", factor, (torch.tensor([[1.0, 1.0], [1.0, 1.0]]),))
    yield case("factor_zeros", factor, (torch.zeros(2, 3, 3),))
    yield case("factor_none", factor, (torch.zeros(2, 0, 0),))
    yield case("factor_one", factor, (torch.tensor([[-3.0]]),))


def polar() -> Iterator[Case]:
    for dtype in (f32, f64):
        n = NAMES[dtype]
        for shape in ((2, 4, 4), (5, 3), (2, 3, 1)):
            yield case(
                f"{'x'.join(map(str, shape))}_{n}",
                lambda x: plain(torch.linalg.polar(x)),
                (well_conditioned(dtype, *shape),),
            )
    rank_deficient = torch.tensor([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]], dtype=f64)

    def rebuilt(x: torch.Tensor) -> Any:
        u, h = torch.linalg.polar(x)
        return u @ h, u.mT @ u, h

    yield case("lacking", rebuilt, (rank_deficient,))


def histogramdd() -> Iterator[Case]:
    """Histograms of points: counts, weights and densities between edges in each dim."""
    for dtype in (f32, f64):
        n, points, weight = NAMES[dtype], values(dtype, 41, 2), values(dtype, 41).abs()
        both = lambda x: (lambda found: (found.hist, *found.bin_edges))(
            torch.histogramdd(x, [4, 3])
        )
        yield case(f"all_{n}", both, (points,))
        ranged = lambda x: torch.histogramdd(x, [3, 5], range=[-1.0, 2.0, -0.5, 0.75]).hist
        yield case(f"range_{n}", ranged, (points,))
        yield case(
            f"weights_{n}",
            lambda x, w: torch.histogramdd(x, [2, 3], weight=w).hist,
            (points, weight),
        )
        yield case(
            f"density_{n}",
            lambda x, w: torch.histogramdd(x, [2, 3], weight=w, density=True).hist,
            (points, weight),
        )
        edges = (
            torch.tensor([-1.0, -0.25, 0.5, 2.0], dtype=dtype),
            torch.tensor([-1.5, 0.0, 1.5], dtype=dtype),
        )
        yield case(
            f"given_{n}", lambda x, a, b: torch.histogramdd(x, [a, b]).hist, (points, *edges)
        )
        yield case(
            f"given_density_{n}",
            lambda x, a, b: torch.histogramdd(x, [a, b], density=True).hist,
            (points, *edges),
        )
        yield case(
            f"volume_{n}", lambda x: torch.histogramdd(x, [2, 3, 2]).hist, (values(dtype, 4, 9, 3),)
        )
    ends = torch.tensor([[NAN, 0.5], [1.0, 1.0], [0.0, 0.0], [0.5, INF], [0.25, 0.75], [0.5, 0.5]])
    yield case(
        "ends", lambda x: torch.histogramdd(x, [2, 4], range=[0.0, 1.0, 0.0, 1.0]).hist, (ends,)
    )
    same = lambda x: (lambda found: (found.hist, *found.bin_edges))(torch.histogramdd(x, [3, 2]))
    yield case("same", same, (torch.full((5, 2), 2.5),))
    yield case(
        "line", lambda x: torch.histogramdd(x, 5, range=[-1.0, 1.0]).hist, (values(f32, 30, 1),)
    )


def normal_sampling() -> Iterator[Case]:
    """Normal distributions with a standard deviation of zero, which have a single outcome."""
    mean, none = values(f32, 3, 4), torch.zeros(3, 4)
    yield from each("tensor_tensor", torch.normal, FLOATS, lambda d: (mean.to(d), none.to(d)))
    yield case("broadcast", torch.normal, (values(f32, 3, 1), torch.zeros(4)))
    yield case("last", torch.normal, (last(values(f32, 1, 3, 2, 4)), torch.zeros(1, 3, 2, 4)))
    yield from each("tensor_float", lambda m: torch.normal(m, 0.0), FLOATS, lambda d: (mean.to(d),))
    yield from each("float_tensor", lambda s: torch.normal(1.5, s), FLOATS, lambda d: (none.to(d),))
    yield case("float_float", lambda x: x + torch.normal(1.5, 0.0, (3, 4)), (mean,))
    # Mean and standard deviation of many samples are near the given ones.
    near = lambda m, s: (lambda x: (x.mean().sub(4.0).abs() < 0.2, x.std().sub(2.0).abs() < 0.2))(
        torch.normal(m, s)
    )
    yield case("moments", near, (torch.full((4096,), 4.0), torch.full((4096,), 2.0)))


def resized() -> Iterator[Case]:
    """Resizing keeps elements in memory order."""
    kinds = (f32, f64, f16, i64, i32, u8, boolean)
    yield from each("fewer", lambda x: A.resize(x, [2, 3]), kinds, lambda d: (values(d, 3, 4),))
    yield from each("as", A.resize_as, kinds, lambda d: (values(d, 3, 4), values(d, 6, 2)))
    yield case("flat", lambda x: A.resize(x, [12]), (values(f32, 3, 4),))
    yield case("none", lambda x: A.resize(x, [0]), (values(f32, 3, 4),))
    yield case("more", lambda x: A.resize(x, [5, 4])[:3], (values(f32, 3, 4),))
    yield from each(
        "empty_strided",
        lambda x: x.new_empty_strided([2, 3], [3, 1]).fill_(1) * x.sum().to(x.dtype),
        (f32, f64, f16, i64, i32),
        lambda d: (values(d, 2),),
    )
    yield from each(
        "dequantize", torch.dequantize, (f32, f16, f64, i32), lambda d: (values(d, 3, 4),)
    )


FAMILIES = {
    "eigen": eigen,
    "indefinite": indefinite,
    "polar_factors": polar,
    "histogram_boxes": histogramdd,
    "drawn_around": normal_sampling,
    "resized": resized,
}
