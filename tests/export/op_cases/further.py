"""Orthogonal polynomials, Bessel functions, indexed reductions, volumes, fake quantization."""

from __future__ import annotations

from typing import Iterator

import torch

from .table import (
    FLOATS,
    Case,
    bf16,
    boolean,
    case,
    each,
    f16,
    f32,
    f64,
    i16,
    i32,
    i64,
    longs,
    plain,
    positive,
    u8,
    values,
)

A = torch.ops.aten
S = torch.special
NAN, INF = float("nan"), float("inf")
POLYNOMIALS = {
    **{
        f"{shifted}chebyshev_{kind}": f"special_{shifted}chebyshev_polynomial_{kind}"
        for shifted in ("", "shifted_")
        for kind in "tuvw"
    },
    "hermite_h": "special_hermite_polynomial_h",
    "hermite_he": "special_hermite_polynomial_he",
    "laguerre": "special_laguerre_polynomial_l",
    "legendre": "special_legendre_polynomial_p",
}


def polynomials() -> Iterator[Case]:
    orders = torch.tensor([-1, 0, 1, 2, 3, 6, 7, 8, 9, 13])
    for name, operator in POLYNOMIALS.items():
        run = getattr(A, operator).default
        points = torch.tensor([-1.0, -0.75, -0.1, 0.0, 0.3, 0.5, 1.0, 1.25, NAN]).unsqueeze(1)
        for dtype in (f32, f64):
            # Trigonometric form and recurrence differ: the recurrence loses digits.
            atol = 3e-3 if dtype == f32 else 1e-10
            yield case(
                f"{name}_{'f32' if dtype == f32 else 'f64'}",
                run,
                (points.to(dtype), orders.to(dtype)),
                atol=atol,
            )
    x = values(f32, 3, 4)
    yield case(
        "integers", A.special_legendre_polynomial_p.default, (longs(-1, 0, 1, 2), longs(0, 1, 2, 3))
    )
    yield case("order", lambda x: A.special_laguerre_polynomial_l.n_scalar(x, 3), (x,))
    yield case(
        "number", lambda n: A.special_chebyshev_polynomial_t.x_scalar(0.25, n), (longs(0, 1, 5),)
    )
    yield case(
        "hermite_high",
        A.special_hermite_polynomial_h.default,
        (torch.tensor([0.5, 0.5]), torch.tensor([12.0, 129.0])),
    )


def bessel() -> Iterator[Case]:
    right = torch.tensor(
        [0.0, 1e-3, 0.3, 0.99, 1.0, 1.01, 2.0, 5.0, 8.0, 20.0, 100.0, -1.0, NAN, INF]
    )
    for name in (
        "modified_bessel_k0",
        "modified_bessel_k1",
        "scaled_modified_bessel_k0",
        "scaled_modified_bessel_k1",
    ):
        # At infinity, eager mode returns NaN for the scaled functions.
        points = right[:-1] if name.startswith("scaled") else right
        yield from each(
            name, getattr(S, name), (f32, f64), lambda d, points=points: (points.to(d),)
        )
    for name in ("modified_bessel_i0", "modified_bessel_i1"):
        yield from each(
            name,
            getattr(S, name),
            (f32, f64),
            lambda d: (torch.linspace(-30, 30, 25, dtype=f64).to(d),),
        )
    around = torch.tensor([0.0, 1e-4, 0.3, -0.49, 0.51, 3.0, -7.5, 1e3, NAN, INF, -INF])
    yield from each(
        "spherical_bessel_j0", S.spherical_bessel_j0, (f32, f64), lambda d: (around.to(d),)
    )
    airy = torch.tensor(
        [
            -20.0,
            -8.0,
            -7.1,
            -6.9,
            -3.0,
            -1.0,
            0.0,
            0.5,
            2.0,
            2.2,
            5.0,
            9.0,
            30.0,
            100.0,
            105.0,
            NAN,
            INF,
        ]
    )
    yield case("airy_ai_f32", S.airy_ai, (airy,))
    # Eager mode is off by 5e-9 at -3, where the exact value is -0.378814293677658.
    yield case("airy_ai_f64", S.airy_ai, (airy.to(f64),), rtol=1e-7, atol=1e-8)
    yield case("integers", S.modified_bessel_k0, (longs(1, 2, 3),))


def scattered() -> Iterator[Case]:
    for kind in ("prod", "mean", "amax", "amin"):
        for own in (True, False):
            run = lambda x, i, s, kind=kind, own=own: x.index_reduce(
                1, i, s, kind, include_self=own
            )
            name = f"index_reduce_{kind}_{'with' if own else 'without'}_self"
            yield from each(
                name,
                run,
                (f32, f64, f16, bf16, u8, i32, i64),
                lambda d: (values(d, 2, 5, 3), longs(3, 0, 3, 3), values(d, 2, 4, 3)),
            )
    run = lambda x, i, s: x.index_reduce(0, i, s, "amax")
    yield case(
        "index_reduce_nan",
        run,
        (torch.tensor([1.0, NAN, 3.0]), longs(0, 1, 2, 2), torch.tensor([NAN, 5.0, 4.0, 2.0])),
    )
    yield case("index_reduce_scalar", run, (torch.tensor(1.0), longs(0), torch.tensor(2.0)))
    yield case("index_reduce_nothing", run, (values(f32, 3, 2), longs(), torch.zeros(0, 2)))
    for name, adds in (("put", False), ("put_add", True)):
        run = lambda x, i, s, adds=adds: x.put(i, s, adds)
        index = longs(1, -1, 6) if not adds else longs(1, -1, 11, 1)
        yield from each(
            name,
            run,
            (f32, f16, i16, i64, boolean),
            lambda d, index=index: (values(d, 3, 4), index, values(d, index.numel())),
        )
    last = values(f32, 1, 2, 3, 2).to(memory_format=torch.channels_last)
    yield case(
        "put_channels_last", lambda x, i, s: x.put(i, s), (last, longs(3, -2), values(f32, 2))
    )
    run = lambda x, s: torch.as_strided_scatter(x, s, (2, 2), (3, 2), 1)
    yield from each(
        "as_strided_scatter", run, (f32, i64, boolean), lambda d: (values(d, 3, 4), values(d, 2, 2))
    )
    yield case(
        "as_strided_scatter_scalar",
        lambda x, s: torch.as_strided_scatter(x, s, (), (), 5),
        (values(f32, 3, 4), values(f32)),
    )


def batches() -> Iterator[Case]:
    run = lambda x, a, b: torch.addbmm(x, a, b, beta=2, alpha=3)
    yield from each(
        "addbmm",
        run,
        (*FLOATS, u8, i32, i64),
        lambda d: (values(d, 3, 5), values(d, 4, 3, 2), values(d, 4, 2, 5)),
    )
    yield case(
        "addbmm_broadcast",
        torch.addbmm,
        (values(f32, 70), values(f32, 2, 3, 40), values(f32, 2, 40, 70)),
    )
    yield case(
        "addbmm_ignored",
        lambda x, a, b: torch.addbmm(x, a, b, beta=0),
        (torch.full((2, 2), NAN), values(f32, 1, 2, 3), values(f32, 1, 3, 2)),
    )
    yield case(
        "addbmm_empty",
        torch.addbmm,
        (values(f32, 2, 2), torch.zeros(0, 2, 3), torch.zeros(0, 3, 2)),
    )
    for mode, reads in (("bilinear", 0), ("nearest", 1)):
        for padding in range(3):
            for corners in (False, True):
                run = lambda x, g, reads=reads, padding=padding, corners=corners: A.grid_sampler_3d(
                    x, g, reads, padding, corners
                )
                # Random coordinates avoid pixel borders, where the nearest pixel depends on
                # rounding.
                grid = torch.rand(2, 2, 3, 4, 3) * 3 - 1.5
                yield case(
                    f"grid_sampler_3d_{mode}_{padding}_{'corners' if corners else 'pixels'}",
                    run,
                    (values(f32, 2, 3, 4, 3, 5), grid),
                )
    grid = torch.rand(1, 2, 2, 2, 3) * 2 - 1
    yield from each(
        "grid_sampler_3d",
        lambda x, g: A.grid_sampler_3d(x, g, 0, 0, False),
        (f64, f16),
        lambda d: (values(d, 1, 2, 3, 3, 3), grid.to(d)),
    )
    table, indices, offsets = values(f32, 6, 4), longs(1, 2, 5, 0, 1), longs(0, 2, 2)
    for name, mode in (("sum", 0), ("mean", 1), ("max", 2)):
        run = lambda w, i, o, mode=mode: A._embedding_bag_forward_only(w, i, o, False, mode)[0]
        yield case(f"embedding_bag_{name}", run, (table, indices, offsets))
        run = lambda w, i, o, mode=mode: A._embedding_bag_forward_only(
            w, i, o, False, mode, False, None, True, 2
        )[0]
        yield case(f"embedding_bag_{name}_padding", run, (table, indices, longs(0, 2, 5)))


def norms() -> Iterator[Case]:
    def inputs(d: torch.dtype) -> tuple[torch.Tensor, ...]:
        return values(d, 2, 3, 4), values(d, 3), values(d, 3), values(d, 3), positive(d, 3)

    kept = A._batch_norm_no_update.default
    run = lambda x, w, b, m, v: kept(x, w, b, m, v, 0.1, 1e-5)[0]
    yield from (
        case(c.name, c.run, *c.inputs, preserve=[kept])
        for c in each("no_update", run, (f32, f64), inputs)
    )


def parts() -> Iterator[Case]:
    odd = [0.0, -0.0, 1.0, -0.75, 3e-5, 6e-8, 40000.0, INF, -INF, NAN, 7.0, -1e-3]
    yield from each(
        "frexp",
        lambda x: plain(torch.frexp(x)),
        (f32, f64, f16),
        lambda d: (torch.tensor(odd, dtype=d),),
    )
    yield case(
        "frexp_small", lambda x: plain(torch.frexp(x)), (torch.tensor([1e-45, 1e-40, 3e38]),)
    )
    inexact = torch.tensor([-30.0, -1.26, -1.25, -0.3, 0.0, 0.4, 1.25, 1.75, 13.0, 100.0])
    run = lambda x: plain(A.fake_quantize_per_tensor_affine_cachemask(x, 0.1, 3, 0, 127))
    yield from each("fake_quantize", run, (f32, f64), lambda d: (inexact.to(d),))
    tensors = lambda x, s, z, on: plain(
        A._fake_quantize_per_tensor_affine_cachemask_tensor_qparams(x, s, z, on, -128, 127)
    )
    for name, on in (("on", 1), ("off", 0)):
        yield case(
            f"fake_quantize_tensors_{name}",
            tensors,
            (inexact, torch.tensor([0.5]), torch.tensor([-2], dtype=i32), longs(on)),
        )
    channels = lambda x, s, z: plain(
        A.fake_quantize_per_channel_affine_cachemask(x, s, z, 1, -8, 7)
    )
    yield case(
        "fake_quantize_channels",
        channels,
        (values(f32, 2, 3, 4), torch.tensor([0.1, 0.5, 2.0]), torch.tensor([0, -2, 3], dtype=i32)),
    )
    # Distributions with a single possible outcome.
    sure = torch.tensor([[0.0, 0.0, 2.0, 0.0], [3.0, 0.0, 0.0, 0.0]])
    yield from each(
        "multinomial",
        lambda p: torch.multinomial(p, 3, True),
        (f32, f64, f16),
        lambda d: (sure.to(d),),
    )
    yield case(
        "multinomial_all", lambda p: torch.multinomial(p, 4).sort().values, (positive(f32, 4),)
    )
    yield case("multinomial_one", lambda p: torch.multinomial(p, 1), (sure[0],))


class Means(torch.nn.Module):
    """Means after an identity convolution, so that the reduction can be channels-last."""

    def __init__(self, channels: int, dims: list[int]) -> None:
        super().__init__()
        self.dims = dims
        self.same = torch.nn.Conv2d(channels, channels, 1, bias=False)
        self.same.weight.data = torch.eye(channels)[:, :, None, None].clone()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.same(x).mean(self.dims)


def exact_sums() -> Iterator[Case]:
    """Sums that must match PyTorch's order of summation bit for bit."""
    exact = {"rtol": 0.0, "atol": 0.0}
    for h, w in ((2, 4), (3, 3), (2, 5), (7, 7), (6, 6), (1, 5), (9, 15)):
        yield case(
            f"planes_{h}x{w}",
            lambda x: (x.mean([2, 3]), x.sum([2, 3])),
            (values(f32, 2, 6, h, w),),
            **exact,
        )
    for name, dims in (
        ("planes", [2, 3]),
        ("channels", [1]),
        ("rows", [3]),
        ("columns", [2]),
        ("batches", [0, 2, 3]),
    ):
        yield case(f"behind_{name}", Means(20, dims).eval(), (values(f32, 2, 20, 3, 5),), **exact)
    for name, shape in (
        ("few", (70, 3)),
        ("some", (21, 45)),
        ("many", (19, 75)),
        ("level", (300, 9)),
    ):
        yield case(
            f"columns_{name}", lambda x: (x.sum(0), x.mean(1)), (values(f32, *shape),), **exact
        )
    yield case("double", lambda x: (x.sum(0), x.mean(1)), (values(f64, 37, 21),), **exact)
    yield case("long_row", lambda x: x.mean(), (values(f32, 9_001),), **exact)
    yield from each(
        "mean_of", lambda x: x.mean(1), (f16, bf16), lambda d: (values(d, 9, 41),), **exact
    )
    yield case("mean_2x2", lambda x: x.mean([2, 3]), (values(f32, 1, 40, 2, 2),), **exact)
    yield case("sum_4", lambda x: x.sum(1), (values(f32, 40, 4),), **exact)
    yield case("sum_3", lambda x: x.sum(-1), (values(f32, 5, 8, 3),), **exact)


def unusual_arguments() -> Iterator[Case]:
    """NaN, infinite and fractional arguments in unusual positions."""
    inexact = torch.tensor([[0.3, 0.9, 1.26, -3.1], [1e30, -INF, INF, NAN]])
    channels = lambda x, s, z: plain(
        A.fake_quantize_per_channel_affine_cachemask(x, s, z, 0, -8, 7)
    )
    for kind in (i32, f32, f16):
        zeros = torch.tensor([0.3, -2.6]).to(kind)
        yield from each(
            f"channels_{str(kind).split('.')[-1]}",
            channels,
            (f32, f64),
            lambda d, zeros=zeros: (inexact.to(d), torch.tensor([0.5, 0.1]), zeros),
        )
    tensors = lambda x, s, z, on: plain(
        A._fake_quantize_per_tensor_affine_cachemask_tensor_qparams(x, s, z, on, -8, 7)
    )
    yield case("tensors", tensors, (inexact[0], torch.tensor([0.5]), torch.tensor([1.7]), longs(1)))
    points = torch.tensor(
        [[NAN, 0.0, 0.0], [0.0, NAN, 0.3], [INF, 0.0, -0.2], [-INF, 0.1, 0.0]]
    ).reshape(1, 1, 1, 4, 3)
    for padding, name in ((1, "border"), (2, "reflection")):
        for reads in (0, 1):
            run = lambda x, g, reads=reads, padding=padding: A.grid_sampler_3d(
                x, g, reads, padding, False
            )
            yield case(
                f"volume_{name}_{reads}", run, (torch.arange(8.0).reshape(1, 1, 2, 2, 2), points)
            )
    run = lambda x, a, b: torch.addbmm(x, a, b, alpha=0)
    yield from each(
        "addbmm_alpha",
        run,
        (f32, f64, bf16),
        lambda d: (values(d, 2, 2), torch.full((1, 2, 3), NAN, dtype=d), values(d, 1, 3, 2)),
    )
    orders = torch.tensor([NAN, INF, -INF, 3e6, 1e19])
    yield case(
        "chebyshev",
        A.special_chebyshev_polynomial_t.default,
        (torch.tensor(0.3, dtype=f64), orders.to(f64)),
        atol=1e-6,
    )
    yield case("hermite", A.special_hermite_polynomial_h.default, (torch.tensor(0.3), orders))
    yield case(
        "legendre",
        A.special_legendre_polynomial_p.default,
        (torch.tensor(0.3), torch.tensor([NAN, INF, 2.0])),
    )
    yield case("airy", S.airy_ai, (torch.tensor([103.0, 108.0, 1e206], dtype=f64),), atol=1e-300)


FAMILIES = {
    "edges": unusual_arguments,
    "few_summands": exact_sums,
    "polynomials": polynomials,
    "bessel": bessel,
    "scattered": scattered,
    "batches": batches,
    "batch_norms": norms,
    "quantizing_and_drawing": parts,
}
