"""More batches than a GPU dispatches along one dimension (65,535 workgroups).

Programs expand a few values to many batches and return samples of the results, to keep files small.
"""

from __future__ import annotations

from typing import Any, Iterator

import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

from .table import Case, case, f16, f32, u8, values

COUNT = 70_001


def spread(x: torch.Tensor, count: int = COUNT) -> torch.Tensor:
    """Expands one or a few batches to `count` different ones."""
    steps = torch.arange(count // len(x), dtype=torch.float32).reshape(-1, 1, *[1] * (x.dim() - 1))
    return (x + (steps * 2**-14).to(x.dtype)).flatten(0, 1)


def some(y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return y[::6997], y[65_529:65_541]


class Layer(nn.Module):
    """A layer between expansion and sampling, with an optional following operation."""

    def __init__(self, layer: nn.Module, then: Any = None) -> None:
        super().__init__()
        self.layer, self.then = layer, then

    def forward(self, x: torch.Tensor) -> Any:
        many = spread(x)
        y = self.layer(many)
        return some(y if self.then is None else self.then(y, many))


def many_batches() -> Iterator[Case]:
    for name, dtype in (("f32", f32), ("f16", f16)):
        a, b, c = values(dtype, 1, 2, 3), values(dtype, 1, 3, 2), values(dtype, 1, 2, 2)
        rounded = {"atol": 5e-3, "rtol": 5e-3} if dtype == f16 else {}
        yield case(
            f"bmm_{name}", lambda a, b: some(torch.bmm(spread(a), spread(b))), (a, b), **rounded
        )
        yield case(
            f"bmm_relu_{name}",
            lambda a, b, c: some(F.relu(torch.bmm(spread(a), spread(b)) + spread(c))),
            (a, b, c),
            **rounded,
        )
        yield case(
            f"baddbmm_{name}",
            lambda a, b, c: some(torch.baddbmm(c, spread(a), spread(b), beta=0.5, alpha=2.0)),
            (a, b, c),
            **rounded,
        )
        few = values(dtype, 7, 3, 2)
        yield case(
            f"in_turns_{name}",
            lambda a, b: some((spread(a, 70_000).unflatten(0, (-1, 7)) @ b).flatten(0, 1)),
            (a, few),
            **rounded,
        )
        long, rows = values(dtype, 1, 1, 2), values(dtype, 2, 1, 2, 1)
        yield case(
            f"twice_{name}",
            lambda a, b: some((spread(a) @ b.expand(2, COUNT, 2, 1)).flatten(0, 1)),
            (long, rows),
            **rounded,
        )
        q = values(dtype, 1, 2, 2, 8)
        if dtype == f32:
            attention = lambda q, k, v: F.scaled_dot_product_attention(
                spread(q, 33_000), spread(k, 33_000), spread(v, 33_000)
            )
            yield case(
                f"attention_{name}",
                lambda q, k, v: some(attention(q, k, v).flatten(0, 1)),
                (q, q + 1, -q),
            )
        else:
            masked = lambda q, k, m: F.scaled_dot_product_attention(
                spread(q, 33_000), k.expand(33_000, 2, 2, 8), spread(q, 33_000), attn_mask=m
            )
            yield case(
                f"attention_masked_{name}",
                lambda q, k, m: some(masked(q, k, m).flatten(0, 1)),
                (q, q + 1, values(dtype, 2, 2)),
                **rounded,
            )
        picture, line = values(dtype, 1, 2, 2, 2), values(dtype, 1, 2, 4)
        layers = {
            "convolution": (nn.Conv2d(2, 3, 2), None, picture),
            "convolution_padded": (
                nn.Conv2d(2, 2, 3, padding=1),
                lambda y, x: F.relu(y) + x,
                picture,
            ),
            "in_groups": (nn.Conv2d(2, 4, 2, groups=2), None, picture),
            "pointwise": (nn.Conv2d(2, 2, 1), lambda y, x: F.relu(y + x), picture),
            "depthwise": (nn.Conv2d(2, 2, 3, padding=1, groups=2), None, picture),
            "separable": (
                nn.Sequential(
                    nn.Conv2d(2, 2, 3, padding=1, groups=2), nn.ReLU(), nn.Conv2d(2, 8, 1)
                ),
                None,
                picture,
            ),
            "line": (nn.Conv1d(2, 3, 2), None, line),
            "transposed": (nn.ConvTranspose2d(2, 3, 2, stride=2), None, picture),
            "transposed_in_groups": (nn.ConvTranspose2d(2, 2, 3, groups=2), None, picture),
        }
        for kind, (layer, then, x) in layers.items():
            if dtype == f16 and "group" in kind:
                continue
            yield case(f"{kind}_{name}", Layer(layer.to(dtype).eval(), then), (x,), **rounded)
    count = Dim("count", min=4, max=COUNT)
    sizes = (COUNT, 5, 65_535, 65_537)
    matrices = lambda x: x.reshape(-1, 1, 1).to(f32) * torch.tensor([[0.5, -1.0], [1.5, 0.25]])
    product = lambda x, w: torch.bmm(matrices(x), matrices(x) @ w)[-4:]
    yield case(
        "varying",
        product,
        *[(values(u8, size), values(f32, 2, 2)) for size in sizes],
        dynamic=({0: count}, None),
    )


FAMILIES = {"many_batches": many_batches}
