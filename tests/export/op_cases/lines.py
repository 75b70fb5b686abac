"""Operators that reduce or search whole rows: distances, bucketize, running extremes, medians."""

from __future__ import annotations

from typing import Iterator

import torch
from torch.export import Dim

from .table import Case, case, f16, f32, i32, i64, plain, values

NAN, INF = float("nan"), float("inf")


def distances() -> Iterator[Case]:
    for name, p in (
        ("zero", 0.0),
        ("half", 0.5),
        ("one", 1.0),
        ("two", 2.0),
        ("many", 3.5),
        ("largest", INF),
    ):
        for width in (5, 8):
            a, b = values(f32, 2, 3, width), values(f32, 2, 7, width)
            b[0, 1], b[1, 2, 0] = a[0, 0], a[1, 0, 0]
            yield case(f"{name}_{width}", lambda a, b, p=p: torch.cdist(a, b, p), (a, b))
        a[0, 0, 1], a[0, 1, 2], a[1, 2, 3], b[0, 3, 2] = NAN, INF, -INF, INF
        yield case(f"{name}_odd", lambda a, b, p=p: torch.cdist(a, b, p), (a, b))
    yield case("by_products", torch.cdist, (values(f32, 30, 9), values(f32, 27, 9)))
    yield case("batches", torch.cdist, (values(f32, 2, 1, 3, 4), values(f32, 5, 6, 4)))
    yield case(
        "of_nothing", lambda a, b: torch.cdist(a, b, 1.0), (values(f32, 3, 0), values(f32, 2, 0))
    )
    n, m = Dim("n", max=9), Dim("m", max=8)
    sizes = ((9, 8), (1, 1), (4, 3))
    yield case(
        "varying",
        lambda a, b: torch.cdist(a, b, 1.0),
        *[(values(f32, 2, k, 4), values(f32, l, 4)) for k, l in sizes],
        dynamic=({1: n}, {0: m}),
    )
    yield case(
        "varying_batches",
        lambda a, b: torch.cdist(a, b, 2.0),
        *[(values(f32, k, 2, l), values(f32, 3, l)) for k, l in sizes],
        dynamic=({0: n, 2: m}, {1: m}),
    )


def buckets() -> Iterator[Case]:
    edges = torch.tensor([-2.0, -1.0, 0.0, 0.0, 1.0, 2.5])
    for right in (False, True):
        side = "right" if right else "left"
        given = torch.tensor(
            [[-3.0, -2.0, -1.0, -0.5, 0.0], [-0.0, 1.0, 2.5, 3.0, NAN], [INF, -INF, 1e-3, 2.0, 0.5]]
        )
        yield case(
            f"buckets_{side}",
            lambda x, e, right=right: torch.bucketize(x, e, right=right, out_int32=right),
            (given, edges),
        )
        yield case(
            f"buckets_half_{side}",
            lambda x, e, right=right: torch.bucketize(x, e, right=right),
            (given.to(f16), edges.to(f16)),
        )
        whole = torch.tensor([[-3, 0, 1, 2, 3], [-(2**31), 2**31 - 1, 5, 6, 7]], dtype=i32)
        yield case(
            f"buckets_whole_{side}",
            lambda x, e, right=right: torch.bucketize(x, e, right=right),
            (whole, torch.tensor([0, 2, 2, 3, 5, 2**31 - 1], dtype=i32)),
        )
        rows = values(f32, 2, 3, 6).sort(-1)[0]
        rows[0, 0, 4:], rows[1, 1, 0], rows[1, 2, 1:4] = NAN, -INF, rows[1, 2, 1]
        sought = values(f32, 2, 3, 4)
        sought[0, 0, 1], sought[1, 1, :2], sought[1, 2, 3] = (
            INF,
            torch.tensor([-INF, NAN]),
            rows[1, 2, 1],
        )
        yield case(
            f"rows_{side}",
            lambda s, x, side=side: torch.searchsorted(s, x, side=side),
            (rows, sought),
        )
    # Values outside the 32-bit range lie outside of all buckets.
    far = torch.tensor([-(2**40), 2**40, 3, 10], dtype=i64)
    known = torch.tensor([3, 7, 11], dtype=i64)
    yield case("buckets_far", lambda x: torch.bucketize(x, known), (far,))
    yield case(
        "number_between",
        lambda s: torch.searchsorted(s, 1.5),
        (torch.tensor([0, 1, 2, 3], dtype=i32),),
    )
    yield case("of_nothing", torch.bucketize, (values(f32, 3), values(f32, 0)))
    n, m = Dim("n", max=9), Dim("m", max=8)
    sizes = ((9, 8), (1, 1), (4, 3))
    yield case(
        "varying",
        torch.searchsorted,
        *[(values(f32, 2, k).sort(-1)[0], values(f32, 2, l)) for k, l in sizes],
        dynamic=({1: n}, {1: m}),
    )


def running() -> Iterator[Case]:
    lines = values(f32, 2, 11, 8).round()
    lines[0, 3, 1], lines[0, 5, 2], lines[1, 0, 3], lines[1, 4:6, 4], lines[0, :, 5] = (
        NAN,
        INF,
        -INF,
        NAN,
        1.0,
    )
    n = Dim("n", max=9)
    varying = [(values(f32, 3, k, 4),) for k in (9, 1, 4)]
    for name, run in (("most", torch.cummax), ("least", torch.cummin)):
        yield case(f"{name}_of_lines", lambda x, run=run: plain(run(x, 1)), (lines,))
        yield case(f"{name}_behind", lambda x, run=run: plain(run(x, 2)), (lines,))
        yield case(
            f"{name}_whole",
            lambda x, run=run: plain(run(x, 0)),
            (torch.randint(-3, 3, (9, 4), dtype=i32),),
        )
        yield case(f"{name}_of_nothing", lambda x, run=run: plain(run(x, 1)), (values(f32, 2, 0),))
        yield case(
            f"{name}_varying", lambda x, run=run: plain(run(x, 1)), *varying, dynamic=({1: n},)
        )
    for dim in (0, 1, 2):
        yield case(f"log_sum_{dim}", lambda x, dim=dim: torch.logcumsumexp(x, dim), (lines * 20,))
    yield case("log_sum_half", lambda x: torch.logcumsumexp(x, 1), (values(f16, 2, 19, 8),))
    yield case("log_sum_long", lambda x: torch.logcumsumexp(x, 0), (values(f32, 300),))
    yield case(
        "log_sum_far",
        lambda x: torch.logcumsumexp(x, 0),
        (torch.tensor([-3e38, -2e38, -100.0, 100.0, -3e38, 3e38]),),
    )
    yield case("log_sum_varying", lambda x: torch.logcumsumexp(x, 1), *varying, dynamic=({1: n},))


def medians() -> Iterator[Case]:
    lines = torch.randperm(2 * 6 * 5).reshape(2, 6, 5).to(f32) - 20
    lines[0, 2, 1], lines[1, :, 3], lines[1, 0, 0], lines[1, 1, 2] = NAN, NAN, INF, -INF
    for dim in (0, 1, 2):
        yield case(f"along_{dim}", lambda x, dim=dim: torch.median(x, dim).values, (lines,))
        yield case(
            f"numbers_along_{dim}",
            lambda x, dim=dim: torch.nanmedian(x, dim, keepdim=True).values,
            (lines,),
        )
    distinct = torch.stack([torch.randperm(9) for _ in range(4)])
    yield case("places", lambda x: plain(torch.median(x, 1)), (distinct.to(f32),))
    yield case(
        "places_whole", lambda x: plain(torch.median(x, 1, keepdim=True)), (distinct.to(i32),)
    )
    yield case(
        "whole",
        torch.median,
        (torch.tensor([2**31 - 1, -(2**31), 2**31 - 1, 7, 2**31 - 1], dtype=i32),),
    )
    yield case("of_all", torch.median, (distinct.to(f32),))
    yield case("of_number", lambda x: plain(torch.median(x, 0)), (torch.tensor(2.5),))
    n = Dim("n", max=9)
    yield case(
        "varying",
        lambda x: (torch.median(x, 1).values, torch.median(x)),
        *[(values(f32, 3, k, 4),) for k in (9, 1, 4)],
        dynamic=({1: n},),
    )
    m = Dim("m", min=0, max=9)
    yield case(
        "of_none_left",
        lambda x: (torch.median(x), torch.nanmedian(x)),
        *[(values(f32, 3, k),) for k in (9, 0, 4)],
        dynamic=({1: m},),
    )


FAMILIES = {
    "lines_distances": distances,
    "lines_places": buckets,
    "lines_running": running,
    "lines_medians": medians,
}
