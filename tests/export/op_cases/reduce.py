"""Reductions over dims, and scans along one dim."""

from __future__ import annotations

from typing import Iterator

import torch
import torch.nn.functional as F
from torch.export import Dim

from .table import (
    ALL,
    FLOATS,
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
    specials,
    u8,
    values,
)

SHAPE = (2, 3, 4)
DIMS = {"last": -1, "first": 0, "two": (0, 2), "all": (0, 1, 2)}


def distinct(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Distinct values, so that argmax and argmin are unique."""
    count = int(torch.tensor(shape).prod())
    return (
        (torch.randperm(count) - count // 3)
        .clamp(0 if dtype == u8 else -128)
        .to(dtype)
        .reshape(shape)
    )


def sums() -> Iterator[Case]:
    for run in (torch.sum, torch.mean):
        name = run.__name__
        dtypes = ALL if run is torch.sum else FLOATS
        yield from each(name, run, dtypes, lambda d: (values(d, *SHAPE, scale=1.0),))
        for which, dim in DIMS.items():
            yield case(
                f"{name}_{which}", lambda x, r=run, d=dim: r(x, dim=d), (values(f32, *SHAPE),)
            )
            yield case(
                f"{name}_{which}_kept",
                lambda x, r=run, d=dim: r(x, dim=d, keepdim=True),
                (values(f32, *SHAPE),),
            )
        yield from each(
            f"{name}_dim",
            lambda x, r=run: r(x, dim=1),
            (f16, bf16, f64),
            lambda d: (values(d, *SHAPE, scale=1.0),),
        )
        yield case(f"{name}_specials", lambda x, r=run: r(x, dim=1), (specials(f32, 5, 3),))
        yield case(
            f"{name}_to_double", lambda x, r=run: r(x, dim=1, dtype=f64), (values(f32, *SHAPE),)
        )
        yield case(f"{name}_zero_dim", run, (torch.tensor(2.5),))
        yield case(f"{name}_empty_dim", lambda x, r=run: r(x, dim=1), (torch.empty(3, 0, 2),))
        yield case(f"{name}_no_dims", lambda x, r=run: r(x, dim=[]), (values(f32, *SHAPE),))
        yield case(
            f"{name}_channels_last",
            lambda x, r=run: r(x, dim=(2, 3), keepdim=True),
            (last(values(f32, 2, 3, 4, 4)),),
        )
        yield case(f"{name}_long", lambda x, r=run: r(x, dim=-1), (torch.rand(2, 2000),))
        yield case(
            f"{name}_dynamic",
            lambda x, r=run: r(x, dim=0),
            *[(values(f32, n, 3),) for n in (4, 1, 8)],
            dynamic=({0: Dim("n", min=1, max=8)},),
        )
    yield from each(
        "sum_dim", lambda x: torch.sum(x, dim=1), (boolean, u8, i32), lambda d: (values(d, *SHAPE),)
    )
    yield from each(
        "prod", torch.prod, (f32, f16, i32, boolean), lambda d: (values(d, 2, 3, scale=1.0),)
    )
    yield from each(
        "prod_dim",
        lambda x: torch.prod(x, 1),
        (f32, f64, i64),
        lambda d: (values(d, *SHAPE, scale=1.0),),
    )
    yield case("prod_kept", lambda x: torch.prod(x, -1, keepdim=True), (values(f32, *SHAPE),))
    yield from each(
        "cumsum",
        lambda x: torch.cumsum(x, 1),
        (f32, f64, f16, i32, i64, u8, boolean),
        lambda d: (values(d, *SHAPE, scale=1.0),),
    )
    yield case("cumsum_last", lambda x: torch.cumsum(x, -1), (values(f32, *SHAPE),))
    yield case("cumsum_zero_dim", lambda x: torch.cumsum(x, 0), (torch.tensor(3.0),))
    yield case("cumsum_to_double", lambda x: torch.cumsum(x, 0, dtype=f64), (values(i32, *SHAPE),))
    for name, run in {
        "var": lambda x: torch.var(x),
        "var_dim": lambda x: torch.var(x, 1),
        "var_dims_kept": lambda x: torch.var(x, (0, 2), keepdim=True),
        "var_biased": lambda x: torch.var(x, 1, correction=0),
        "var_correction": lambda x: torch.var(x, 2, correction=2),
        "var_mean": lambda x: torch.var_mean(x, 2),
        "std": lambda x: torch.std(x, -1),
        "norm": lambda x: torch.linalg.vector_norm(x, dim=1),
        "norm_1": lambda x: torch.linalg.vector_norm(x, ord=1, dim=-1),
        "logsumexp": lambda x: torch.logsumexp(x, 1),
    }.items():
        yield from each(name, run, (f32, f16), lambda d: (values(d, *SHAPE),))
    yield case(
        "var_far_from_zero", lambda x: torch.var(x, 1), (torch.randn(2, 64) + 1000.0,), rtol=1e-3
    )
    yield case("var_f64", lambda x: torch.var(x, 1), (values(f64, *SHAPE),))


def extremes() -> Iterator[Case]:
    for run in (torch.amax, torch.amin):
        name = run.__name__
        yield from each(name, run, ALL, lambda d: (values(d, *SHAPE),))
        for which, dim in DIMS.items():
            yield case(
                f"{name}_{which}", lambda x, r=run, d=dim: r(x, dim=d), (values(f32, *SHAPE),)
            )
        yield from each(
            f"{name}_kept",
            lambda x, r=run: r(x, 1, keepdim=True),
            (f32, f16, i32),
            lambda d: [(values(d, *SHAPE),), (specials(d, *SHAPE),)],
        )
        yield case(f"{name}_zero_dim", lambda x, r=run: r(x, 0), (torch.tensor(2.5),))
    for run in (torch.max, torch.min):
        name = run.__name__
        yield from each(
            name, run, (f32, f64, f16, bf16, u8, i32, i64, boolean), lambda d: (values(d, *SHAPE),)
        )
        yield from each(
            f"{name}_dim",
            lambda x, r=run: tuple(r(x, 1)),
            (f32, f16, bf16, i32, i64, u8),
            lambda d: (distinct(d, *SHAPE),),
        )
        yield case(
            f"{name}_dim_kept",
            lambda x, r=run: tuple(r(x, -1, keepdim=True)),
            (distinct(f32, *SHAPE),),
        )
        yield case(f"{name}_dim_nan", lambda x, r=run: r(x, 1)[0], (specials(f32, 3, 5),))
        yield case(f"{name}_nan", run, (specials(f32, 3, 5),))
    for run in (torch.argmax, torch.argmin):
        name = run.__name__
        yield from each(name, run, (f32, f16, i32, i64, u8), lambda d: (distinct(d, *SHAPE),))
        yield from each(
            f"{name}_dim",
            lambda x, r=run: r(x, 1),
            (f32, bf16, i32),
            lambda d: (distinct(d, *SHAPE),),
        )
        yield case(
            f"{name}_dim_kept", lambda x, r=run: r(x, -1, keepdim=True), (distinct(f32, *SHAPE),)
        )
        yield case(f"{name}_first_of_equals", lambda x, r=run: r(x, 1), (torch.ones(2, 5),))
        yield case(f"{name}_nan", lambda x, r=run: r(x, 0), (specials(f32, 5, 3),))
        yield case(f"{name}_zero_dim", run, (torch.tensor(2.5),))
    for run in (torch.any, torch.all):
        name = run.__name__
        yield from each(
            name,
            run,
            (boolean, f32, i32, u8),
            lambda d: [
                (values(d, *SHAPE),),
                (torch.zeros(SHAPE, dtype=d),),
                (torch.ones(SHAPE, dtype=d),),
            ],
        )
        yield from each(
            f"{name}_dim", lambda x, r=run: r(x, 1), (boolean, f32), lambda d: (values(d, *SHAPE),)
        )
        yield case(
            f"{name}_dims_kept",
            lambda x, r=run: r(x, (0, 2), keepdim=True),
            (values(boolean, *SHAPE),),
        )
        yield case(f"{name}_nan", run, (specials(f32, 3, 5),))
        yield case(f"{name}_empty", lambda x, r=run: r(x, 1), (torch.empty(2, 0, dtype=boolean),))
    yield case("median", torch.median, (distinct(f32, *SHAPE),))
    yield case("median_dim", lambda x: tuple(torch.median(x, 1)), (distinct(f32, *SHAPE),))


def softmaxes() -> Iterator[Case]:
    for run in (F.softmax, F.log_softmax):
        name = run.__name__
        for dim in (0, 1, -1):
            yield case(
                f"{name}_{'last' if dim < 0 else dim}",
                lambda x, r=run, d=dim: r(x, d),
                (values(f32, *SHAPE),),
            )
        yield from each(
            name, lambda x, r=run: r(x, 1), (f64, f16, bf16), lambda d: (values(d, *SHAPE),)
        )
        yield case(
            f"{name}_large",
            lambda x, r=run: r(x, -1),
            (torch.tensor([[1000.0, 999.0, -1000.0], [-3e38, 3e38, 0.0]]),),
        )
        yield case(
            f"{name}_minus_infinity",
            lambda x, r=run: r(x, -1),
            (torch.tensor([[0.0, -float("inf"), 1.0]]),),
        )
        yield case(f"{name}_specials", lambda x, r=run: r(x, -1), (specials(f32, 3, 5),))
        yield case(f"{name}_zero_dim", lambda x, r=run: r(x, 0), (torch.tensor(1.0),))
        yield case(f"{name}_empty", lambda x, r=run: r(x, 1), (torch.empty(0, 3),))
        yield case(
            f"{name}_channels_last", lambda x, r=run: r(x, 1), (last(values(f32, 1, 3, 2, 4)),)
        )
        yield case(f"{name}_long", lambda x, r=run: r(x, -1), (values(f32, 1, 700),))
        yield case(
            f"{name}_dynamic",
            lambda x, r=run: r(x, -1),
            *[(values(f32, 2, n),) for n in (4, 1, 8)],
            dynamic=({1: Dim("n", min=1, max=8)},),
        )


def long_reductions() -> Iterator[Case]:
    """Reductions over more elements than one GPU workgroup handles: a small input, repeated."""
    yield case("long_mean", lambda x: x.repeat(120).mean(), (values(f32, 100),))
    yield case("long_sum_rows", lambda x: x.repeat(1, 90).sum(1), (values(f32, 2, 100),))
    yield case("long_largest_columns", lambda x: x.repeat(88, 1).amax(0), (values(f32, 96, 3),))
    yield case("long_prime", lambda x: x.repeat(8209).sum(0), (values(f32, 1),))
    yield case("long_any", lambda x: (x.repeat(96) > 2.0).any(), (values(f32, 96),))
    yield case("long_all", lambda x: (x.repeat(96) < 9.0).all(), (values(f32, 96),))
    yield case(
        "long_product", lambda x: x.repeat(128).prod(), (values(f32, 96).clamp(0.999, 1.001),)
    )
    yield case(
        "long_smallest", lambda x: x.repeat(1, 90).amin(1), (specials(f32, 200).view(2, 100),)
    )
    yield case("long_variance_columns", lambda x: x.repeat(88, 1).var(0), (values(f32, 96, 3),))
    yield case("long_variance", lambda x: x.repeat(1, 128).var(1), (values(f32, 3, 64),))
    yield case("long_halves", lambda x: x.repeat(1, 128).mean(1), (values(f16, 2, 64),))


def spread() -> Iterator[Case]:
    """`var_mean`."""
    x = values(f32, 3, 4, 5)
    of = lambda **options: lambda x: torch.var_mean(x, **options)
    yield case("spread_last", of(dim=-1), (x,))
    yield case("spread_first", of(dim=0, keepdim=True), (x,))
    yield case("spread_apart", of(dim=(0, 2), correction=0), (x,))
    yield case("spread_apart_kept", of(dim=(0, 2), keepdim=True), (x + 100,))
    yield case("spread_all", lambda x: torch.var_mean(x), (x,))
    yield case("spread_halves", of(dim=(1, 2)), (values(f16, 3, 4, 5),))
    yield case("spread_std", lambda x: torch.std_mean(x, dim=1), (x,))
    cases = [(values(f32, 3, length, 5),) for length in (8, 2, 5)]
    yield case(
        "spread_varying", of(dim=1, correction=2), *cases, dynamic=({1: Dim("length", max=8)},)
    )


FAMILIES = {
    "sum": sums,
    "extreme": extremes,
    "softmax": softmaxes,
    "long_reductions": long_reductions,
    "spread": spread,
}
