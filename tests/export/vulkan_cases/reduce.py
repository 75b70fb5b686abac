"""Reductions, softmax and normalization."""

from __future__ import annotations

import math
from typing import Iterator

import torch
import torch.nn.functional as F
from op_cases.table import f32, values
from torch import nn
from torch.export import Dim

from .table import Delegated, case, half, halved


def reduction() -> Iterator[Delegated]:
    runs = {"sum": torch.sum, "mean": torch.mean, "amax": torch.amax, "amin": torch.amin}
    for name, run in runs.items():
        yield from halved(
            [case(f"{name}_last", lambda x, run=run: run(x, -1), (values(f32, 3, 4, 7),))]
        )
        yield case(
            f"{name}_first_kept", lambda x, run=run: run(x, 0, keepdim=True), (values(f32, 5, 3),)
        )
        yield case(
            f"{name}_two",
            lambda x, run=run: run(x, (1, 2), keepdim=True),
            (values(f32, 2, 3, 4, 5),),
        )
        yield case(
            f"{name}_space",
            lambda x, run=run: run(x, (2, 3), keepdim=True),
            (values(f32, 1, 6, 5, 7),),
        )
    yield case("sum_middle", lambda x: torch.sum(x, 1, keepdim=True), (values(f32, 2, 9, 4),))
    yield case("sum_long", lambda x: torch.sum(x, -1), (values(f32, 2, 300),))
    yield case("mean_vector", lambda x: torch.mean(x, 0), (values(f32, 11),))
    yield case("amax_vector", lambda x: torch.amax(x, 0, keepdim=True), (values(f32, 11),))
    yield case("mean_single", lambda x: torch.mean(x, -1), (values(f32, 3, 1),))
    yield case(
        "mean_dynamic",
        lambda x: torch.mean(x * 2, -1),
        *[(values(f32, 2, n),) for n in (6, 1, 9, 4)],
        dynamic=({1: Dim("n", min=1, max=9)},),
    )


def extreme() -> Iterator[Delegated]:
    for name, run in {"argmax": torch.argmax, "argmin": torch.argmin}.items():
        yield case(f"{name}_last", lambda x, run=run: run(x, -1), (values(f32, 3, 4, 7),))
        yield case(
            f"{name}_kept", lambda x, run=run: run(x, 1, keepdim=True), (values(f32, 3, 6, 2),)
        )
        yield half(case(f"{name}", lambda x, run=run: run(x, -1), (values(f32, 3, 9),)))
    ties = torch.tensor([[1.0, 3.0, 3.0, 2.0], [-1.0, -1.0, -5.0, -5.0]])
    yield case("argmax_ties", lambda x: torch.argmax(x, -1), (ties,))


def softmax() -> Iterator[Delegated]:
    for name, run in {"softmax": F.softmax, "log_softmax": F.log_softmax}.items():
        yield from halved(
            [case(f"{name}_last", lambda x, run=run: run(x, -1), (values(f32, 3, 4, 7),))]
        )
        yield case(f"{name}_first", lambda x, run=run: run(x, 0), (values(f32, 5, 3),))
        yield case(f"{name}_middle", lambda x, run=run: run(x, 1), (values(f32, 2, 5, 3, 2),))
    yield case("softmax_large", lambda x: F.softmax(x, -1), (values(f32, 3, 9, scale=40.0),))
    yield case("softmax_long", lambda x: F.softmax(x, -1), (values(f32, 2, 257),))
    masked = values(f32, 3, 5)
    masked[:, 3:] = float("-inf")
    yield case("softmax_masked", lambda x: F.softmax(x, -1), (masked,))
    yield case(
        "softmax_dynamic",
        lambda x: F.softmax(x, -1),
        *[(values(f32, 3, n),) for n in (6, 1, 9, 4)],
        dynamic=({1: Dim("n", min=1, max=9)},),
    )


class LayerNormWithout(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, (x.shape[-1],))


def trained(module: nn.Module) -> nn.Module:
    """Replaces weights and statistics of zeros and ones by random ones."""
    with torch.no_grad():
        for tensor in (
            *module.parameters(),
            *(b for b in module.buffers() if b.is_floating_point()),
        ):
            tensor.copy_(torch.rand_like(tensor) + 0.5)
    return module


class RmsNorm(nn.Module):
    """RMSNorm as language models write it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * self.weight


def normalization() -> Iterator[Delegated]:
    yield from halved(
        [
            case("layer_norm", trained(nn.LayerNorm(7)), (values(f32, 3, 4, 7),)),
            case("batch_norm", trained(nn.BatchNorm2d(5)), (values(f32, 1, 5, 3, 4),)),
            case("group_norm", trained(nn.GroupNorm(2, 6)), (values(f32, 1, 6, 3, 4),)),
            case("rms_norm", RmsNorm(12), (values(f32, 2, 3, 12),)),
        ]
    )
    yield case("layer_norm_plain", LayerNormWithout(), (values(f32, 2, 3, 5),))
    yield case("layer_norm_long", trained(nn.LayerNorm(130)), (values(f32, 3, 130),))
    yield case("group_norm_one", trained(nn.GroupNorm(1, 4)), (values(f32, 1, 4, 5, 3),))
    yield case("group_norm_each", trained(nn.GroupNorm(4, 4)), (values(f32, 2, 4, 5, 3),))
    yield case("instance_by_groups", nn.GroupNorm(3, 3, affine=False), (values(f32, 1, 3, 4, 4),))
    convolution = nn.Sequential(nn.Conv2d(3, 5, 3), trained(nn.BatchNorm2d(5)))
    yield case("convolution_batch_norm", convolution, (values(f32, 1, 3, 6, 6),))
    yield case(
        "linear_batch_norm",
        nn.Sequential(nn.Linear(6, 5), trained(nn.BatchNorm1d(5))),
        (values(f32, 4, 6),),
    )
    yield case(
        "layer_norm_dynamic",
        trained(nn.LayerNorm(6)),
        *[(values(f32, n, 6),) for n in (5, 1, 8, 3)],
        dynamic=({0: Dim("n", min=1, max=8)},),
    )


class Embedded(nn.Module):
    """Token embeddings plus positions that broadcast over the batch."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(11, width), nn.Parameter(torch.randn(3, width))
        self.norm = trained(nn.LayerNorm(width))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.norm(self.words(ids) + self.positions)


class PostNorm(nn.Module):
    """Post-norm: normalizes the residual sum; with `to_sum`, adds the result to the sum."""

    def __init__(self, norms: list[nn.Module], mixed: nn.Module, to_sum: bool) -> None:
        super().__init__()
        self.norms, self.mixed, self.to_sum = nn.ModuleList(norms), mixed, to_sum

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for norm in self.norms:
            stream = x + self.mixed(x)
            x = norm(stream)
            x = stream + x if self.to_sum else x
        return x


class Permuted(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.permute(0, 2, 1)


class Averaged(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean(1, keepdim=True)


class NormLinear(nn.Module):
    """A norm followed by linear layers, and optionally by another user."""

    def __init__(self, norm: nn.Module, layers: list[nn.Module], others: bool = False) -> None:
        super().__init__()
        self.norm, self.layers, self.others = norm, nn.ModuleList(layers), others

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rows = self.norm(x)
        projected = tuple(layer(rows) for layer in self.layers)
        return (*projected, rows.abs()) if self.others else projected


def norm_gemm() -> Iterator[Delegated]:
    """Norms before GEMMs of many rows, which the fp16 GEMM can fuse."""

    def layer(width: int, scale: float = 1.0) -> nn.Module:
        norm = trained(nn.LayerNorm(width))
        norm.weight.data *= scale
        norm.bias.data -= 0.7
        return norm

    x = (values(f32, 1, 61, 96),)
    activated = nn.Sequential(nn.Linear(96, 128), nn.GELU())
    yield half(case("activated", NormLinear(layer(96), [activated]), x))
    # Means larger than the standard deviations.
    three = [nn.Linear(72, 41), nn.Linear(72, 64, bias=False), nn.Linear(72, 40)]
    yield half(case("three", NormLinear(layer(72), three), (values(f32, 2, 37, 72) + 9.0,)))
    plain = nn.LayerNorm(64, elementwise_affine=False)
    yield half(case("plain", NormLinear(plain, [nn.Linear(64, 96)]), (values(f32, 70, 64),)))
    yield half(
        case(
            "unbiased",
            NormLinear(trained(nn.LayerNorm(64, bias=False)), [nn.Linear(64, 64)]),
            (values(f32, 70, 64),),
        )
    )
    # Norm weights so large that results grow, and so small that fp16 could not represent them.
    yield half(
        case(
            "large",
            NormLinear(layer(64, scale=200.0), [nn.Linear(64, 64)]),
            (values(f32, 65, 64) * 0.01,),
        )
    )
    yield half(
        case(
            "small", NormLinear(layer(64, scale=1e-4), [nn.Linear(64, 64)]), (values(f32, 65, 64),)
        )
    )
    yield half(
        case(
            "others",
            NormLinear(layer(64), [nn.Linear(64, 64)], others=True),
            (values(f32, 65, 64),),
        )
    )
    residual = nn.Linear(64, 64)
    yield half(
        case("residual", lambda x, norm=layer(64): x + residual(norm(x)), (values(f32, 1, 65, 64),))
    )
    # Rows of one large repeated value, and rows that are not finite.
    rows = values(f32, 65, 64)
    rows[3], rows[40] = 1000.0, -777.0
    rows[5, 7], rows[6, 0], rows[64, 63] = math.inf, math.nan, -math.inf
    yield half(case("uniform", NormLinear(layer(64), [nn.Linear(64, 64)]), (rows,)))


def residual_norms() -> Iterator[Delegated]:
    """Residual additions followed by a norm, with other users and unfusable variants."""

    def layer(width: int) -> nn.Module:
        return trained(nn.LayerNorm(width))

    x, y = values(f32, 2, 8, 8), values(f32, 2, 8, 8)
    ids = (torch.randint(0, 11, (2, 3)),)
    norm, scale, rms = layer(8), trained(nn.LayerNorm(8, bias=False)), RmsNorm(8)
    yield from halved(
        [
            case("post_norm", PostNorm([layer(8), layer(8)], Permuted(), False), (x,)),
            case("stream", PostNorm([layer(8), layer(8)], Permuted(), True), (x,)),
            case("rms_post_norm", PostNorm([RmsNorm(8), RmsNorm(8)], Permuted(), False), (x,)),
            case("rms_stream", PostNorm([RmsNorm(8), RmsNorm(8)], Permuted(), True), (x,)),
            case("embedded", Embedded(12), ids),
            case("both_given", lambda a, b, norm=norm: (a + b, norm(a + b)), (x, y)),
            case("two_norms", lambda a, b, norm=norm, rms=rms: (norm(a + b), rms(a + b)), (x, y)),
            case("long", PostNorm([RmsNorm(4104)], Averaged(), True), (values(f32, 1, 2, 4104),)),
            case(
                "turns",
                lambda a, b, norm=layer(772): norm(a + b),
                (values(f32, 3, 772), values(f32, 3, 772)),
            ),
        ]
    )
    yield case("rows_again", lambda a, b, norm=norm: norm(b + a), (x, values(f32, 8, 8)))
    yield case("row_again", lambda a, b, norm=scale: norm(a + b), (x, values(f32, 8)))
    planes = nn.LayerNorm((2, 6))
    yield case("planes", lambda a, b: planes(a + b), (values(f32, 3, 2, 6), values(f32, 2, 6)))
    yield case("part_of_planes", lambda a, b: planes(a + b), (values(f32, 3, 2, 6), values(f32, 6)))
    yield case("column", PostNorm([layer(8)], Averaged(), False), (x,))
    yield case(
        "odd", lambda a, b, norm=layer(7): norm(a + b), (values(f32, 3, 7), values(f32, 3, 7))
    )
    yield case("scaled", lambda a, b, norm=norm: norm(torch.add(a, b, alpha=2)), (x, y))
    yield case("chained", lambda a, b, norm=norm: norm(a + torch.relu(b)), (x, y))
    yield case("twice", lambda a, norm=norm: norm(a + a), (x,))
    rows = Dim("rows", min=1, max=6)
    yield case(
        "dynamic",
        lambda a, b, norm=norm: norm(a + b),
        *[(values(f32, n, 8), values(f32, n, 8)) for n in (4, 6, 1)],
        dynamic=({0: rows}, {0: rows}),
    )


def rms_factors() -> Iterator[Delegated]:
    """The exporter passes any factor of a norm as its weight, whatever its shape."""

    def norm(x):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5)

    def scaled(x, factor):
        return norm(x) * factor

    x = values(f32, 2, 3, 8)
    yield from halved(
        [
            case("gate", scaled, (x, values(f32, 2, 3, 8))),
            case("row", scaled, (x, values(f32, 3, 8))),
        ]
    )
    yield case("column", scaled, (x, values(f32, 2, 3, 1)))
    yield case("one", scaled, (x, values(f32, 1)))
    yield case("scalar", scaled, (x, values(f32)))
    yield case("number", lambda a: norm(a) * 0.5, (x,))
    yield case("wider", scaled, (values(f32, 2, 1, 8), values(f32, 2, 3, 8)))
    yield case("more_dimensions", scaled, (values(f32, 3, 8), values(f32, 1, 1, 8)))
    yield case("own_function", lambda a: norm(a) * F.silu(a), (x,))
    n = Dim("n", min=1, max=5)
    yield case(
        "dynamic_gate",
        scaled,
        *[(values(f32, 2, rows, 8), values(f32, 2, rows, 8)) for rows in (3, 5, 1)],
        dynamic=({1: n}, {1: n}),
    )


FAMILIES = {
    "reduction": reduction,
    "extreme": extreme,
    "softmax": softmax,
    "normalization": normalization,
    "normed_products": norm_gemm,
    "normed_sums": residual_norms,
    "rms_factors": rms_factors,
}
