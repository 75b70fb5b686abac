"""Operators that read or write by index tensors, search or sort."""

from __future__ import annotations

from typing import Iterator

import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

from .reduce import distinct
from .table import (
    ALL,
    NAMES,
    SOME,
    Case,
    boolean,
    case,
    each,
    f16,
    f32,
    i32,
    i64,
    longs,
    plain,
    specials,
    u8,
    values,
)

A = torch.ops.aten
SHAPE = (3, 4)


def reading() -> Iterator[Case]:
    x = values(f32, *SHAPE)
    deep = values(f32, 3, 4, 2)
    index = torch.tensor([[0, 3, 1], [2, 2, 0]])
    yield from each(
        "gather", lambda x, i: torch.gather(x, 1, i), ALL, lambda d: (values(d, *SHAPE), index)
    )
    yield case(
        "gather_first", lambda x, i: torch.gather(x, 0, i), (x, torch.tensor([[0, 2, 1, 0]]))
    )
    yield case(
        "gather_negative_dim",
        lambda x, i: torch.gather(x, -1, i),
        (deep, torch.randint(0, 2, (2, 4, 3))),
    )
    yield case(
        "gather_zero_dim", lambda x, i: torch.gather(x, 0, i), (torch.tensor(2.0), torch.tensor(0))
    )
    yield from each(
        "index_select",
        lambda x, i: x.index_select(1, i),
        SOME + (boolean,),
        lambda d: (values(d, *SHAPE), longs(3, 0, 0)),
    )
    yield case(
        "index_select_by_i32",
        lambda x, i: x.index_select(0, i),
        (x, torch.tensor([2, 0], dtype=i32)),
    )
    yield case("index_select_negative_dim", lambda x, i: x.index_select(-2, i), (deep, longs(1, 3)))
    yield case(
        "index_select_none", lambda x, i: x.index_select(0, i), (x, torch.empty(0, dtype=i64))
    )
    yield from each(
        "index", lambda x, i: x[i], SOME, lambda d: (values(d, *SHAPE), longs(2, 0, -1))
    )
    for name, run, indices in (
        ("two", lambda x, i, j: x[i, j], (longs(0, 2, 1), longs(1, 0, 3))),
        ("second", lambda x, i: x[:, i], (longs(3, -4),)),
        ("outer", lambda x, i, j: x[i, :, j], (longs(0, 2), longs(1, 0))),
        ("broadcast", lambda x, i, j: x[i, j], (torch.tensor([[0], [2]]), longs(1, 0, 3))),
        ("matrix", lambda x, i: x[i], (torch.tensor([[0, 1], [2, 2]]),)),
        ("by_i32", lambda x, i: x[i], (torch.tensor([1, 0], dtype=i32),)),
        ("zero_dim", lambda x, i: x[i], (torch.tensor(1),)),
    ):
        yield case(f"index_{name}", run, (deep, *indices))
    yield case("index_bool", lambda x, m: x[m], (x, x > 0))
    yield case("index_bool_rows", lambda x, m: x[m], (x, torch.tensor([True, False, True])))
    yield from each(
        "embedding",
        lambda w, i: F.embedding(i, w),
        (f32, f16),
        lambda d: (values(d, 6, 3), torch.tensor([[0, 5], [2, 2]])),
    )
    yield case("embedding_module", nn.Embedding(6, 3, padding_idx=1), (torch.tensor([1, 4, 0]),))
    yield case("embedding_by_i32", nn.Embedding(6, 3), (torch.tensor([1, 4, 0], dtype=i32),))
    for mode in ("sum", "mean", "max"):
        yield case(
            f"embedding_bag_{mode}",
            nn.EmbeddingBag(6, 3, mode=mode),
            (torch.tensor([[1, 4, 0], [2, 2, 5]]),),
        )
    yield case(
        "take_along_dim",
        lambda x, i: torch.take_along_dim(x, i, 1),
        (x, index.repeat(2, 1)[:3].clone()),
    )
    yield from each(
        "masked_select",
        torch.masked_select,
        (f32, i64, boolean),
        lambda d: (
            [(values(d, *SHAPE), values(boolean, *SHAPE)) for _ in range(2)]
            + [(values(d, *SHAPE), torch.zeros(SHAPE, dtype=boolean))]
        ),
    )
    yield case(
        "masked_select_broadcast",
        torch.masked_select,
        (x, torch.tensor([True, False, True, False])),
    )
    yield from each(
        "nonzero",
        torch.nonzero,
        (f32, i64, boolean, u8),
        lambda d: [(values(d, *SHAPE),), (torch.zeros(SHAPE, dtype=d),)],
    )
    yield case("nonzero_specials", torch.nonzero, (specials(f32, 15),))


def writing() -> Iterator[Case]:
    x, source = values(f32, *SHAPE), values(f32, *SHAPE)
    index = torch.tensor([[0, 3, 1], [2, 1, 0]])
    for name, run in {"scatter": torch.scatter, "scatter_add": torch.scatter_add}.items():
        yield from each(
            name,
            lambda x, i, s, r=run: r(x, 1, i, s),
            SOME,
            lambda d: (values(d, *SHAPE), index, values(d, 2, 3)),
        )
        yield case(
            f"{name}_first",
            lambda x, i, s, r=run: r(x, 0, i, s),
            (x, torch.tensor([[2, 0, 1, 1]]), source),
        )
        yield case(
            f"{name}_negative_dim", lambda x, i, s, r=run: r(x, -1, i, s), (x, index, source)
        )
        yield case(
            f"{name}_empty",
            lambda x, i, s, r=run: r(x, 0, i, s),
            (x, torch.empty(0, 4, dtype=i64), source),
        )
    yield case(
        "scatter_add_repeated",
        lambda x, i, s: torch.scatter_add(x, 1, i, s),
        (x, torch.zeros(3, 4, dtype=i64), source),
    )
    yield from each(
        "scatter_value",
        lambda x, i: torch.scatter(x, 1, i, 7),
        SOME + (boolean,),
        lambda d: (values(d, *SHAPE), index),
    )
    yield case(
        "scatter_reduce",
        lambda x, i, s: torch.scatter_reduce(x, 1, i, s, "amax"),
        (x, index, source),
    )
    for accumulate in (False, True):
        suffix = "_accumulated" if accumulate else ""
        put = lambda x, *r, a=accumulate: torch.index_put(x, r[:-1], r[-1], a)
        yield from each(
            f"index_put{suffix}",
            put,
            SOME,
            lambda d: (values(d, *SHAPE), longs(2, 0), values(d, 2, 4)),
        )
        yield case(
            f"index_put_two{suffix}", put, (x, longs(0, 2, 1), longs(1, 0, 3), values(f32, 3))
        )
        yield case(
            f"index_put_broadcast{suffix}",
            put,
            (x, longs(0, 2, 1), longs(1, 0, 3), torch.tensor(9.0)),
        )
        yield case(f"index_put_negative{suffix}", put, (x, longs(-1), values(f32, 1, 4)))
    yield case(
        "index_put_repeated_accumulated",
        lambda x, i, s: torch.index_put(x, (i,), s, True),
        (x, longs(1, 1, 1), values(f32, 3, 4)),
    )
    yield case(
        "index_put_second",
        lambda x, i, s: torch.ops.aten.index_put(x, [None, i], s),
        (x, longs(3, 0), values(f32, 3, 2)),
    )
    yield case(
        "index_put_bool", lambda x, m: torch.index_put(x, (m,), torch.tensor(5.0)), (x, x > 0)
    )
    yield case(
        "index_copy",
        lambda x, i, s: torch.index_copy(x, 0, i, s),
        (x, longs(2, 0), values(f32, 2, 4)),
    )
    yield case(
        "index_add",
        lambda x, i, s: torch.index_add(x, 0, i, s),
        (x, longs(2, 0), values(f32, 2, 4)),
    )
    yield case("index_fill", lambda x, i: torch.index_fill(x, 1, i, 4.0), (x, longs(2, 0)))
    yield from each(
        "masked_scatter",
        lambda x, m, s: x.masked_scatter(m, s),
        (f32, i64),
        lambda d: (values(d, *SHAPE), values(boolean, *SHAPE), values(d, *SHAPE)),
        preserve=[A.masked_scatter.default],
    )
    yield case(
        "masked_scatter_broadcast",
        lambda x, m, s: x.masked_scatter(m, s),
        (x, torch.tensor([True, False, False, True]), source),
        preserve=[A.masked_scatter.default],
    )
    for name, run, part in (
        ("slice_scatter", lambda x, s: torch.slice_scatter(x, s, 1, 1, 3), (3, 2)),
        ("slice_scatter_step", lambda x, s: torch.slice_scatter(x, s, 1, 0, 4, 2), (3, 2)),
        ("slice_scatter_negative", lambda x, s: torch.slice_scatter(x, s, 0, -2), (2, 4)),
        ("select_scatter", lambda x, s: torch.select_scatter(x, s, 0, 1), (4,)),
        ("select_scatter_negative", lambda x, s: torch.select_scatter(x, s, -1, -1), (3,)),
        ("diagonal_scatter", lambda x, s: torch.diagonal_scatter(x, s), (3,)),
    ):
        yield from each(
            name,
            run,
            (f32, f16, i64),
            lambda d, p=part: (values(d, *SHAPE), values(d, *p)),
            preserve=[A.slice_scatter.default, A.select_scatter.default],
        )


def ordering() -> Iterator[Case]:
    for name, run in {
        "topk": lambda x: torch.topk(x, 2),
        "topk_smallest": lambda x: torch.topk(x, 2, largest=False),
        "topk_first_dim": lambda x: torch.topk(x, 2, dim=0),
        "topk_all": lambda x: torch.topk(x, 4),
        "sort": lambda x: torch.sort(x),
        "sort_descending": lambda x: torch.sort(x, dim=0, descending=True),
        "argsort": lambda x: torch.argsort(x, 1),
        "kthvalue": lambda x: torch.kthvalue(x, 2, 1),
    }.items():
        yield from each(
            name,
            lambda x, r=run: plain(r(x)),
            (f32, f16, i64) if name != "kthvalue" else (f32,),
            lambda d: (distinct(d, *SHAPE),),
        )
    yield case(
        "sort_stable",
        lambda x: plain(torch.sort(x, stable=True)),
        (torch.tensor([[2.0, 1.0, 2.0, 1.0, 0.0]]),),
    )
    yield case(
        "bucketize",
        lambda x, edges: torch.bucketize(x, edges),
        (values(f32, *SHAPE), torch.tensor([-1.0, 0.0, 1.0])),
    )
    yield case("one_hot", lambda i: F.one_hot(i, 5), (longs(0, 4, 2),))
    yield case("unique_consecutive", lambda x: torch.unique_consecutive(x), (longs(1, 1, 2, 2, 1),))


def of_shape(dtype: torch.dtype, limit: int, *shapes: tuple[int, ...]) -> list[torch.Tensor]:
    """One tensor per shape: indices below `limit` for `i64`, random values otherwise."""
    return [
        torch.randint(0, limit, shape) if dtype == i64 else values(dtype, *shape)
        for shape in shapes
    ]


def gathers() -> Iterator[Case]:
    """`gather` with indices smaller than the input, in static and dynamic shapes."""
    rows, narrow, some = (Dim(name, max=8) for name in ("rows", "narrow", "some"))
    pick = lambda dim: lambda x, i: torch.gather(x, dim, i)

    def varying(
        dim: int, limit: int, dynamic: tuple, inputs: list[tuple], indices: list[tuple]
    ) -> Case:
        cases = zip(of_shape(f32, 0, *inputs), of_shape(i64, limit, *indices))
        return case(f"picked_varying_{len(inputs[0])}_{dim}", pick(dim), *cases, dynamic=dynamic)

    yield varying(
        1, 5, ({0: rows}, {0: narrow}), [(8, 5), (6, 5), (3, 5)], [(8, 3), (2, 3), (3, 3)]
    )
    yield varying(0, 5, ({1: rows}, {1: narrow}), [(5, 8), (5, 6)], [(3, 8), (3, 5)])
    yield varying(
        0,
        5,
        ({1: rows, 2: some}, {1: narrow, 2: some}),
        [(5, 8, 8), (5, 6, 3)],
        [(3, 8, 8), (3, 5, 3)],
    )
    yield varying(
        1,
        5,
        ({0: rows, 2: some}, {0: rows, 2: narrow}),
        [(8, 5, 8), (4, 5, 6)],
        [(8, 3, 8), (4, 3, 2)],
    )
    yield varying(
        2,
        5,
        ({0: rows, 1: some}, {0: rows, 1: narrow}),
        [(8, 8, 5), (4, 6, 5)],
        [(8, 8, 2), (4, 1, 2)],
    )
    x = values(f32, 4, 5, 6)
    for dim, shape in enumerate([(7, 3, 4), (2, 7, 4), (2, 3, 7)]):
        yield case(f"picked_narrow_{dim}", pick(dim), (x, torch.randint(0, 4, shape)))


def index_puts() -> Iterator[Case]:
    """`index_put` and scatters: duplicate indices, several index tensors, dynamic shapes."""
    put = lambda accumulate: (
        lambda x, *rest: torch.ops.aten.index_put(x, list(rest[:-1]), rest[-1], accumulate)
    )
    x, grid = values(f32, 5, 6), torch.tensor([[4, 0, 4], [1, -1, 4]])
    for dtype in (f32, f16, i32):
        yield case(
            f"sent_rows_{NAMES[dtype]}",
            put(True),
            (values(dtype, 5, 6), longs(3, 0, 3, -2, 3), values(dtype, 5, 6)),
        )
    yield case("sent_one_number", put(True), (x, longs(3, 0, 3), values(f32, 1, 1)))
    yield case("sent_grid", put(True), (x, grid, values(f32, 2, 3, 6)))
    yield case("sent_pairs", put(True), (x, longs(1, 4, -4, 1), longs(0, 5, -6, 0), values(f32, 4)))
    yield case(
        "sent_pairs_replaced", put(False), (x, longs(1, 4, -2), longs(0, -1, 2), values(f32, 3))
    )
    yield case("sent_row_replaced", put(False), (x, longs(1, -1), values(f32, 6)))
    yield case(
        "sent_crossed",
        put(False),
        (values(f32, 5, 6, 3), longs(1, 4)[:, None], longs(0, -1, 2), values(f32, 2, 3, 3)),
    )
    middle = lambda x, i, v: torch.ops.aten.index_put(x, [None, i], v, True)
    yield case("sent_middle", middle, (values(f32, 3, 4, 5), longs(2, 0, 2), values(f32, 3, 3, 5)))
    nodes, edges, few = (Dim(name, max=8) for name in ("nodes", "edges", "few"))
    sizes = [(8, 8), (3, 7), (5, 1)]
    graph = lambda: [
        (values(f32, n, 6), torch.randint(0, n, (count,)), values(f32, count, 6))
        for n, count in sizes
    ]
    dynamic = ({0: nodes}, {0: edges}, {0: edges})
    yield case("sent_varying", lambda x, i, v: x.index_add(0, i, v), *graph(), dynamic=dynamic)
    largest = lambda x, i, v: x.scatter_reduce(0, i[:, None].expand(-1, 6), v, "amax")
    yield case("sent_varying_largest", largest, *graph(), dynamic=dynamic)
    narrow = [
        (values(f32, n, 6), torch.randint(0, 6, (m, 2)), values(f32, k, 2))
        for n, m, k in [(8, 8, 8), (7, 3, 5), (4, 4, 4)]
    ]
    yield case(
        "sent_varying_narrow",
        lambda x, i, v: x.scatter_add(1, i, v),
        *narrow,
        dynamic=({0: nodes}, {0: edges}, {0: few}),
    )
    yield case(
        "sent_narrow",
        lambda x, i, v: x.scatter(1, i, v),
        (x, torch.tensor([[3, 0], [5, 1]]), values(f32, 3, 4)),
    )


FAMILIES = {
    "reading": reading,
    "writing": writing,
    "ordering": ordering,
    "picked": gathers,
    "sent": index_puts,
}
