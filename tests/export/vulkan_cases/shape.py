"""Shapes, concatenation, indexing, creation."""

from __future__ import annotations

from typing import Iterator

import torch
from op_cases.table import boolean, f32, i32, values
from torch import nn
from torch.export import Dim

from .table import Delegated, case, half, halved


def view() -> Iterator[Delegated]:
    yield case("view", lambda x: x.view(6, 5) * 1.5, (values(f32, 2, 3, 5),))
    yield case("view_more", lambda x: x.view(2, 1, 3, 1, 5), (values(f32, 6, 5),))
    yield case("view_flat", lambda x: torch.flatten(x, 1), (values(f32, 2, 3, 5),))
    yield case("view_int", lambda x: x.view(3, 4), (values(i32, 2, 6),))
    yield case("view_bool", lambda x: x.view(3, 4), (values(boolean, 2, 6),))
    yield case("unsqueeze", lambda x: x.unsqueeze(1), (values(f32, 2, 3),))
    yield case("unsqueeze_last", lambda x: x.unsqueeze(-1) * 2, (values(f32, 2, 3),))
    yield case("squeeze", lambda x: x.squeeze(1), (values(f32, 2, 1, 3),))
    yield case("squeeze_two", lambda x: x.squeeze((0, 2)), (values(f32, 1, 4, 1, 3),))
    yield case("clone", lambda x: x.clone() + x, (values(f32, 2, 3),))
    yield case(
        "view_dynamic",
        lambda x: x.reshape(x.shape[0] * 3, 4) + 1,
        *[(values(f32, n, 3, 4),) for n in (5, 1, 8, 3)],
        dynamic=({0: Dim("n", min=1, max=8)},),
    )
    yield half(case("view", lambda x: x.view(6, 5) * 1.5, (values(f32, 2, 3, 5),)))


def move() -> Iterator[Delegated]:
    yield from halved([case("permute", lambda x: x.permute(2, 0, 1), (values(f32, 2, 3, 5),))])
    yield case("permute_four", lambda x: x.permute(0, 2, 3, 1), (values(f32, 2, 3, 4, 5),))
    yield case("permute_five", lambda x: x.permute(4, 1, 0, 3, 2), (values(f32, 2, 3, 2, 2, 3),))
    yield case("permute_int", lambda x: x.permute(1, 0), (values(i32, 3, 5),))
    yield case("permute_bool", lambda x: x.permute(1, 0), (values(boolean, 3, 5),))
    yield case("transpose", lambda x: x.transpose(0, -1), (values(f32, 2, 3, 5),))
    yield case("t", lambda x: x.t() + 1, (values(f32, 3, 5),))
    yield case("flip", lambda x: torch.flip(x, (0, 2)), (values(f32, 2, 3, 5),))
    yield case("flip_last", lambda x: torch.flip(x, (-1,)), (values(f32, 3, 7),))
    yield case("unfold", lambda x: x.unfold(1, 3, 2), (values(f32, 2, 9),))
    yield case("expand", lambda x: x.expand(4, 3, 5), (values(f32, 3, 5),))
    yield case("expand_ones", lambda x: x.expand(2, 3, 4), (values(f32, 2, 1, 4),))
    yield case("repeat", lambda x: x.repeat(2, 3), (values(f32, 3, 5),))
    yield case("repeat_more", lambda x: x.repeat(2, 1, 2), (values(f32, 3, 5),))
    yield case("pixel_unshuffle", nn.PixelUnshuffle(2), (values(f32, 1, 2, 4, 6),))


def join() -> Iterator[Delegated]:
    yield from halved(
        [case("cat", lambda x, y: torch.cat([x, y], 1), (values(f32, 2, 3), values(f32, 2, 5)))]
    )
    yield case("cat_first", lambda x, y: torch.cat([x, y]), (values(f32, 2, 3), values(f32, 1, 3)))
    yield case(
        "cat_channels",
        lambda x, y: torch.cat([x, y], 1),
        (values(f32, 1, 3, 4, 5), values(f32, 1, 2, 4, 5)),
    )
    yield case(
        "cat_many",
        lambda *x: torch.cat(x, -1),
        tuple(values(f32, 2, n) for n in (1, 2, 3, 4, 5, 6, 7)),
    )
    yield case("cat_itself", lambda x: torch.cat([x, x * 2, x], 0), (values(f32, 3, 5),))
    yield case("cat_int", lambda x, y: torch.cat([x, y], 1), (values(i32, 2, 3), values(i32, 2, 5)))
    yield case("stack", lambda x, y: torch.stack([x, y], 1), (values(f32, 2, 3), values(f32, 2, 3)))
    yield case("split", lambda x: torch.split(x, [1, 2, 4], 1), (values(f32, 2, 7),))
    yield case("split_even", lambda x: torch.split(x, 2, 0), (values(f32, 5, 3),))
    yield case("chunk_mixed", lambda x: torch.add(*torch.chunk(x, 2, -1)), (values(f32, 3, 8),))
    yield case(
        "cat_dynamic",
        lambda x, y: torch.cat([x, y], 0),
        *[(values(f32, n, 3), values(f32, 2, 3)) for n in (5, 1, 8, 3)],
        dynamic=({0: Dim("n", min=1, max=8)}, None),
    )


def reading() -> Iterator[Delegated]:
    yield from halved([case("slice", lambda x: x[:, 1:4], (values(f32, 3, 7),))])
    yield case("slice_step", lambda x: x[:, 1::3] + 0, (values(f32, 3, 8),))
    yield case("slice_negative", lambda x: x[-2:, :-1], (values(f32, 3, 8),))
    yield case("slice_int", lambda x: x[1:], (values(i32, 3, 8),))
    yield case("select", lambda x: x[:, 2], (values(f32, 3, 4, 5),))
    yield case("select_last", lambda x: x[..., -1], (values(f32, 3, 4, 5),))
    yield case("select_first", lambda x: x[0] * 2, (values(f32, 3, 4, 5),))
    yield case(
        "select_last_dynamic",
        lambda x: x[:, -1],
        *[(values(f32, 2, n, 3),) for n in (6, 1, 8, 3)],
        dynamic=({1: Dim("n", min=1, max=8)},),
    )
    yield case(
        "slice_dynamic",
        lambda x: x[1:] * 2,
        *[(values(f32, n, 3),) for n in (6, 4, 8, 3)],
        dynamic=({0: Dim("n", min=3, max=8)},),
    )
    rows = values(f32, 6, 5)
    yield case(
        "index_select", lambda x, i: torch.index_select(x, 1, i), (rows, torch.tensor([4, 0, 0, 2]))
    )
    yield case(
        "index_select_first", lambda x, i: torch.index_select(x, 0, i), (rows, torch.tensor([5, 1]))
    )
    yield case("gather", lambda x, i: torch.gather(x, 1, i), (rows, torch.randint(0, 5, (6, 3))))
    yield case(
        "gather_first", lambda x, i: torch.gather(x, 0, i), (rows, torch.randint(0, 6, (2, 5)))
    )
    yield case("index", lambda x, i: x[i], (values(f32, 9), torch.tensor([3, 0, 8, 8])))
    yield case("index_rows", lambda x, i: x[i], (rows, torch.tensor([3, 0, 5, 5])))
    yield case("embedding", nn.Embedding(11, 6), (torch.randint(0, 11, (2, 4)),))
    yield case("embedding_vector", nn.Embedding(11, 7), (torch.randint(0, 11, (5,)),))
    yield half(case("embedding", nn.Embedding(11, 6), (torch.randint(0, 11, (2, 4)),)))


class OnlyShape(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x + torch.ones_like(x), x * torch.zeros_like(x), x + torch.full_like(x, 2.5)


def creation() -> Iterator[Delegated]:
    x = (values(f32, 3, 5),)
    yield case("like", OnlyShape(), x)
    yield case("full", lambda x: x + torch.full((3, 1), 0.25), x)
    yield case("zeros", lambda x: torch.cat([x, torch.zeros(2, 5)]), x)
    yield case("arange", lambda x: x + torch.arange(1, 11, 2, dtype=f32), x)
    yield case(
        "arange_dynamic",
        lambda x: x + torch.arange(x.shape[1], dtype=f32),
        *[(values(f32, 2, n),) for n in (6, 1, 8, 3)],
        dynamic=({1: Dim("n", min=1, max=8)},),
    )
    outside = ["aten::scalar_tensor.out"]
    yield case(
        "scalar", lambda x: torch.where(x > 0, x, torch.scalar_tensor(-1.0)), x, outside=outside
    )
    yield half(case("like", OnlyShape(), x))


class Rows(nn.Module):
    """Input sizes used as values inside the graph."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.shape[1]
        return self.linear(x.reshape(rows, 4)).reshape(1, rows, 3)


def symbolic() -> Iterator[Delegated]:
    n = Dim("n", min=1, max=8)
    yield case(
        "rows", Rows(), *[(values(f32, 1, m, 4),) for m in (6, 1, 8, 3)], dynamic={"x": {1: n}}
    )
    sizes = [(values(f32, m, 3),) for m in (6, 4, 8, 3)]
    rows = ({0: Dim("n", min=3, max=8)},)
    yield case("rows_less_one", lambda x: x[: x.shape[0] - 1] * 2, *sizes, dynamic=rows)
    yield case(
        "two_sizes",
        lambda x, y: torch.cat([x * 2, y], 0),
        *[(values(f32, a, 3), values(f32, b, 3)) for a, b in ((6, 2), (1, 5), (8, 4), (3, 1))],
        dynamic=({0: n}, {0: Dim("m", min=1, max=5)}),
    )


FAMILIES = {
    "view": view,
    "move": move,
    "join": join,
    "reading": reading,
    "creation": creation,
    "symbolic": symbolic,
}
