"""Bincount, int8 GEMM, scatter with legacy reductions, antialiased resampling, random sampling,
unsigned and complex values, and range limits.
"""

from __future__ import annotations

from typing import Callable, Iterator

import torch
import torch.nn.functional as F

from .quantized import Q
from .table import (
    FLOATS,
    Case,
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
    specials,
    u8,
    values,
)


def counting() -> Iterator[Case]:
    def counts(x: torch.Tensor, *weights: torch.Tensor, least: int = 0) -> torch.Tensor:
        found = torch.bincount(x, *weights, minlength=least)
        torch._check(found.shape[0] <= 64)
        return found

    elements = torch.tensor([3, 0, 3, 7, 1, 3, 0])
    yield from each("plain", counts, (u8, i8, i16, i32, i64), lambda d: (elements.to(d),))
    yield case("least", lambda x: counts(x, least=12), (elements,))
    yield case("one", counts, (longs(5),))
    yield from each("weights", counts, FLOATS + (i32, i64), lambda d: (elements, values(d, 7)))
    yield case("weights_least", lambda x, w: counts(x, w, least=10), (elements, values(f32, 7)))
    yield case("column", lambda x: counts(x[:, 1]), (torch.randint(0, 9, (6, 3)),))


def int8_gemm() -> Iterator[Case]:
    of = lambda *shape: torch.randint(-128, 128, shape, dtype=i8)
    for name, m, k, n in (
        ("small", 3, 5, 4),
        ("row", 1, 70, 9),
        ("column", 6, 33, 1),
        ("larger", 40, 130, 50),
    ):
        yield case(f"int_mm_{name}", torch._int_mm, (of(m, k), of(k, n)))
    yield case("int_mm_turned", lambda a, b: torch._int_mm(a, b.T), (of(5, 19), of(7, 19)))
    yield case("int_mm_both_turned", lambda a, b: torch._int_mm(a.T, b.T), (of(19, 5), of(7, 19)))
    yield case("int_mm_nothing", torch._int_mm, (of(3, 0), of(0, 4)))


def scattering() -> Iterator[Case]:
    index = torch.tensor([[0, 2, 1, 0], [1, 1, 0, 2]])
    for name in ("add", "multiply"):
        kinds = FLOATS + (u8, i8, i32, i64)
        source = lambda x, i, s, r=name: torch.scatter(x, 0, i, s, reduce=r)
        scalar = lambda x, i, r=name: torch.scatter(x, -2, i, 3, reduce=r)
        yield from each(
            f"{name}_source", source, kinds, lambda d: (values(d, 3, 5), index, values(d, 2, 4))
        )
        yield from each(f"{name}_number", scalar, kinds, lambda d: (values(d, 3, 5), index))
        yield case(
            f"{name}_last",
            lambda x, i, s, r=name: torch.scatter(x, 1, i, s, reduce=r),
            (values(f32, 3, 5), index, values(f32, 2, 4)),
        )
        yield case(
            f"{name}_fraction",
            lambda x, i, r=name: torch.scatter(x, 1, i, -0.7, reduce=r),
            (values(f32, 3, 5), index),
        )
        yield case(
            f"{name}_none",
            lambda x, i, s, r=name: torch.scatter(x, 0, i, s, reduce=r),
            (values(f32, 3, 5), index[:, :0], values(f32, 2, 4)),
        )


def antialiased() -> Iterator[Case]:
    x = values(f32, 2, 3, 13, 9)
    for mode in ("bicubic", "lanczos"):
        for name, size, corners in (
            ("smaller", (4, 3), False),
            ("larger", (20, 15), False),
            ("mixed", (5, 19), False),
            ("one", (1, 1), False),
            ("corners", (4, 5), True),
            ("same", (13, 9), False),
        ):
            aligned = {"align_corners": corners} if mode == "bicubic" else {}
            if corners and not aligned:
                continue
            yield case(
                f"{mode}_{name}",
                lambda x, s=size, m=mode, o=aligned: F.interpolate(
                    x, size=s, mode=m, antialias=True, **o
                ),
                (x,),
            )
        scaled = lambda x, m=mode: F.interpolate(x, scale_factor=(0.4, 0.3), mode=m, antialias=True)
        yield from each(f"{mode}_scale", scaled, (f32, f64), lambda d: (values(d, 1, 2, 13, 14),))
        # Rounding to the same size must copy elements, also those next to NaN.
        kept = lambda x, m=mode: F.interpolate(x, scale_factor=(1.05, 1.1), mode=m, antialias=True)
        yield case(
            f"{mode}_kept",
            kept,
            (values(f32, 1, 2, 13, 9).masked_fill(torch.arange(9) == 4, float("nan")),),
        )
        yield case(
            f"{mode}_far",
            lambda x, m=mode: F.interpolate(x, size=(2, 2), mode=m, antialias=True),
            (values(f32, 1, 1, 70, 90),),
        )
        yield case(
            f"{mode}_channels_last",
            lambda x, m=mode: F.interpolate(x, size=(5, 4), mode=m, antialias=True),
            (last(values(f32, 2, 3, 9, 8)),),
        )


def random_sampling() -> Iterator[Case]:
    """Sampling with a single possible outcome, or many samples whose mean is compared."""
    one, none = torch.zeros(1), torch.zeros(2, 3)
    many = lambda x: x.expand(4096) + 0.0
    near = lambda x, mean, by: (x.mean() - mean).abs() < by
    yield from each("poisson_none", torch.poisson, FLOATS, lambda d: (none.to(d),))
    yield case("poisson_few", lambda x: near(torch.poisson(many(x) + 2.5), 2.5, 0.2), (one,))
    yield case("poisson_many", lambda x: near(torch.poisson(many(x) + 300.0), 300.0, 2.0), (one,))
    yield from each(
        "uniform_one",
        lambda x: torch.empty_like(x).uniform_(1.5, 1.5),
        FLOATS,
        lambda d: (none.to(d),),
    )
    yield case(
        "exponential", lambda x: near(torch.empty_like(many(x)).exponential_(0.5), 2.0, 0.2), (one,)
    )
    yield case(
        "exponential_positive",
        lambda x: (torch.empty_like(many(x)).exponential_() > 0).all(),
        (one,),
    )
    yield case(
        "geometric", lambda x: near(torch.empty_like(many(x)).geometric_(0.25), 4.0, 0.4), (one,)
    )
    yield case(
        "geometric_whole",
        lambda x: (lambda g: ((g >= 1) & (g == g.floor())).all())(
            torch.empty_like(many(x)).geometric_(0.25)
        ),
        (one,),
    )
    yield case(
        "cauchy",
        lambda x: near((torch.empty_like(many(x)).cauchy_(1.0, 2.0) > 3.0).float(), 0.25, 0.04),
        (one,),
    )
    yield case(
        "log_normal",
        lambda x: near(torch.empty_like(many(x)).log_normal_(1.0, 0.5).log(), 1.0, 0.05),
        (one,),
    )
    yield case(
        "gumbel",
        lambda x: F.gumbel_softmax(x, hard=True),
        (torch.tensor([[0.0, 1e4, 0.0], [1e4, 0.0, 0.0]]),),
    )


def signs() -> Iterator[Case]:
    for name, scalar in (("positive", 2.0), ("negative", -3.5), ("zero", 0.0), ("whole", -1)):
        yield from each(
            f"copysign_{name}",
            lambda x, n=scalar: torch.copysign(x, n),
            (f32, f64, f16, i32),
            lambda d: (specials(d, 15),),
        )


def unsigned(*elements: int) -> torch.Tensor:
    return torch.tensor([n - (1 << 64) if n >> 63 else n for n in elements]).view(torch.uint64)


def large_unsigned() -> Iterator[Case]:
    """`uint64` values of 2^63 and more must not be read as negative."""
    top = 1 << 63
    a, b = (
        unsigned(0, 1, top, top + 5, 2 * top - 1, top - 1, 7, 1 << 62),
        unsigned(1, 2 * top - 1, 1, top + 6, top, top, 7, 0),
    )
    for run in (torch.maximum, torch.minimum, torch.eq, torch.clamp):
        yield case(run.__name__, run, (a, b))
    yield case("clamp_numbers", lambda x: torch.clamp(x, 3, 1 << 62), (a,))
    yield case("clamp_high", lambda x: torch.clamp(x, max=9), (a,))
    yield case("relu", torch.relu, (a,))
    yield case("sort", lambda x: tuple(x.sort()), (a,))
    yield case("sort_down", lambda x: tuple(x.sort(descending=True)), (a,))
    yield case("index", lambda x, i: x[i], (a, longs(4, 2, 0)))
    yield case("where", lambda x, y: torch.where(x == y, x, y), (a, b))
    yield case("as_floats", lambda x: (x.float(), x.double()), (a,))


def complex_numbers() -> Iterator[Case]:
    """Complex results are returned as pairs of real values."""

    def parts(run: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        return lambda *inputs: torch.view_as_real(run(*inputs))

    for dtype, name in ((torch.complex64, "c64"), (torch.complex128, "c128")):
        of = lambda *shape, d=dtype: torch.randn(shape, dtype=d)
        for op in (torch.sum, torch.mean):
            yield case(f"{op.__name__}_{name}", parts(lambda x, f=op: f(x, 1)), (of(3, 21),))
            yield case(
                f"{op.__name__}_first_{name}", parts(lambda x, f=op: f(x, 0, True)), (of(5, 3, 2),)
            )
            yield case(f"{op.__name__}_all_{name}", parts(lambda x, f=op: f(x)), (of(3, 7),))
        yield case(f"mm_{name}", parts(torch.mm), (of(3, 35), of(35, 4)))
        yield case(f"bmm_{name}", parts(torch.bmm), (of(2, 3, 4), of(2, 4, 5)))
        yield case(f"sqrt_{name}", parts(torch.sqrt), (of(4, 5),))
        yield case(f"log_{name}", parts(torch.log), (of(4, 5),))
        yield case(
            f"where_{name}",
            lambda c, x, y: torch.view_as_real(torch.where(c, x, y)),
            (torch.rand(4, 1) > 0.5, of(4, 5), of(5)),
        )


def ends() -> Iterator[Case]:
    """Arguments for which PyTorch's intermediate dtypes and formulas determine the result."""
    powers = torch.tensor([3.5, -2.25, 16.0, -20.0, 4.0])
    x = torch.tensor([1.5, -2.0, 3.0, 1.0, 0.3])
    for exponents in (f16, torch.bfloat16, f32):
        yield from each(
            f"ldexp_{str(exponents)[6:]}",
            torch.ldexp,
            (f32, f16),
            lambda d, e=exponents: (x.to(d), powers.to(e)),
        )
    yield case("ldexp_beyond", torch.ldexp, (torch.full((3,), 1e-10), longs(127, 128, 130)))
    for run in (torch.special.i0, torch.special.i1):
        name = run.__name__.split("_")[-1]
        yield case(
            f"{name}_f32", run, (torch.tensor([80.0, 88.5, 89.0, -90.0, 92.0, float("inf")]),)
        )
        yield case(
            f"{name}_f64",
            run,
            (torch.tensor([700.0, 709.5, 710.0, -712.0, 714.0, float("inf")], dtype=f64),),
        )
    yield case(
        "trunc_by_number",
        lambda x, y: torch.div(x, y, rounding_mode="trunc"),
        (values(torch.bfloat16, 200, scale=5), torch.tensor(0.3, dtype=torch.bfloat16)),
    )
    wide = torch.tensor([9e9 + 77, -9e9 - 5, 3e9, 300.7, -1.5, 1e19], dtype=f64)
    missing = torch.tensor([[1.0, float("nan"), -3.0], [1.0, float("inf"), 2.0]])
    yield case(
        "choose_nan",
        lambda x: Q.choose_qparams.tensor(x, -128, 127, 1e-5, i8),
        (missing[0],),
        (missing[1],),
    )
    yield case(
        "choose_rows_nan", lambda x: Q.choose_qparams_per_token_asymmetric(x, i8), (missing,)
    )
    yield case("double_u8", lambda x: x.to(u8), (wide,))
    yield case(
        "like",
        lambda x: (torch.ones_like(x) + x, torch.empty_like(x).fill_(2.0)),
        (x,),
        preserve=[torch.ops.aten.ones_like.default, torch.ops.aten.empty_like.default],
        dim_order=False,
    )


FAMILIES = {
    "counting": counting,
    "codes_product": int8_gemm,
    "scattering": scattering,
    "antialiased": antialiased,
    "drawn": random_sampling,
    "signs": signs,
    "high": large_unsigned,
    "complex_numbers": complex_numbers,
    "ends_of_ranges": ends,
}
