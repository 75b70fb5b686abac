"""Matrix multiplication and attention."""

from __future__ import annotations

from typing import Iterator

import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

from .table import Case, bf16, case, each, f16, f32, f64, i32, i64, values


def gemm() -> Iterator[Case]:
    for dtypes in ((f32, f64, f16, bf16, i32, i64),):
        yield from each("mm", torch.mm, dtypes, lambda d: (values(d, 3, 5), values(d, 5, 4)))
        yield from each(
            "bmm", torch.bmm, dtypes, lambda d: (values(d, 2, 3, 5), values(d, 2, 5, 4))
        )
        yield from each(
            "addmm",
            torch.addmm,
            dtypes,
            lambda d: (values(d, 3, 4), values(d, 3, 5), values(d, 5, 4)),
        )
    for name, shape in {"row": (4,), "column": (3, 1), "one": (1,), "one_one": (1, 1)}.items():
        yield case(
            f"addmm_broadcast_{name}",
            torch.addmm,
            (values(f32, *shape), values(f32, 3, 5), values(f32, 5, 4)),
        )
    for beta, alpha in ((2.0, 0.5), (0.0, 1.0), (1.0, 0.0)):
        yield case(
            f"addmm_beta_{beta:g}_alpha_{str(alpha).replace('.', '_')}",
            lambda b, x, y, beta=beta, alpha=alpha: torch.addmm(b, x, y, beta=beta, alpha=alpha),
            (values(f32, 3, 4), values(f32, 3, 5), values(f32, 5, 4)),
        )
    yield case(
        "addmm_beta_zero_ignores_nan",
        lambda b, x, y: torch.addmm(b, x, y, beta=0),
        (torch.full((3, 4), float("nan")), values(f32, 3, 5), values(f32, 5, 4)),
    )
    for name, (a, b) in {
        "tall": ((70, 33), (33, 2)),
        "wide": ((2, 33), (33, 70)),
        "vector": ((1, 64), (64, 1)),
        "square": ((37, 37), (37, 37)),
        "outer": ((9, 1), (1, 7)),
    }.items():
        yield case(
            f"mm_{name}",
            torch.mm,
            (values(f32, *a, scale=1.0), values(f32, *b, scale=1.0)),
            atol=1e-4,
        )
    yield case("mm_inner_zero", torch.mm, (torch.empty(2, 0), torch.empty(0, 3)))
    yield case("mm_no_rows", torch.mm, (torch.empty(0, 4), values(f32, 4, 3)))
    yield case(
        "mm_infinite",
        torch.mm,
        (torch.tensor([[float("inf"), 1.0]]), torch.tensor([[0.0, 2.0], [1.0, 1.0]])),
    )
    yield case(
        "mm_dynamic",
        torch.mm,
        *[(values(f32, n, 3), values(f32, 3, 4)) for n in (4, 1, 8)],
        dynamic=({0: Dim("n", min=1, max=8)}, None),
    )
    yield case("matmul_vectors", torch.matmul, (values(f32, 6), values(f32, 6)))
    yield case("matmul_vector", torch.matmul, (values(f32, 3, 6), values(f32, 6)))
    yield case("matmul_broadcast", torch.matmul, (values(f32, 2, 1, 3, 4), values(f32, 3, 4, 2)))
    yield case(
        "matmul_transposed",
        lambda x, y: x @ y.transpose(-1, -2),
        (values(f32, 2, 3, 4), values(f32, 2, 5, 4)),
    )
    yield case(
        "einsum",
        lambda x, y: torch.einsum("bij,bkj->bik", x, y),
        (values(f32, 2, 3, 4), values(f32, 2, 5, 4)),
    )
    yield case("cdist", torch.cdist, (values(f32, 3, 4), values(f32, 5, 4)))
    yield case("pdist", torch.pdist, (values(f32, 4, 3),))


def linears() -> Iterator[Case]:
    linear = torch.ops.aten.linear.default
    for name, shape in {"1d": (5,), "2d": (3, 5), "3d": (2, 3, 5), "4d": (2, 1, 3, 5)}.items():
        yield case(f"linear_{name}", nn.Linear(5, 4), (values(f32, *shape),))
        yield case(f"linear_{name}_no_bias", nn.Linear(5, 4, bias=False), (values(f32, *shape),))
    yield from each(
        "linear",
        F.linear,
        (f64, f16, bf16),
        lambda d: (values(d, 3, 5), values(d, 4, 5), values(d, 4)),
    )
    yield case("linear_preserved", nn.Linear(5, 4), (values(f32, 3, 5),), preserve=[linear])
    yield case(
        "linear_preserved_no_bias",
        nn.Linear(5, 4, bias=False),
        (values(f32, 2, 3, 5),),
        preserve=[linear],
    )
    yield case(
        "linear_dynamic",
        nn.Linear(5, 4),
        *[(values(f32, n, 5),) for n in (4, 1, 8)],
        dynamic=({0: Dim("n", min=1, max=8)},),
    )
    yield case("bilinear", nn.Bilinear(3, 4, 2), (values(f32, 2, 3), values(f32, 2, 4)))


def attention() -> Iterator[Case]:
    sdpa = F.scaled_dot_product_attention
    q, k, v = values(f32, 1, 2, 3, 4), values(f32, 1, 2, 5, 4), values(f32, 1, 2, 5, 4)
    yield case("sdpa", sdpa, (q, k, v))
    yield from each("sdpa", sdpa, (f16, bf16), lambda d: (q.to(d), k.to(d), v.to(d)))
    yield case(
        "sdpa_causal",
        lambda q, k, v: sdpa(q, k, v, is_causal=True),
        (q, k[:, :, :3].clone(), v[:, :, :3].clone()),
    )
    yield case("sdpa_mask", sdpa, (q, k, v, values(f32, 3, 5)))
    mask = torch.tensor([[True, False, True, True, False]] * 2 + [[True] * 5])
    yield case("sdpa_bool_mask", sdpa, (q, k, v, mask))
    yield case("sdpa_scale", lambda q, k, v: sdpa(q, k, v, scale=0.3), (q, k, v))
    yield case(
        "sdpa_grouped",
        lambda q, k, v: sdpa(q, k, v, enable_gqa=True),
        (values(f32, 1, 4, 3, 4), values(f32, 1, 2, 3, 4), values(f32, 1, 2, 3, 4)),
    )
    yield case("multi_head", Attend(), (values(f32, 2, 3, 8),))


class Attend(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: torch.Tensor):
        return self.attention(x, x, x, need_weights=True)


FAMILIES = {"product": gemm, "linear": linears, "attention": attention}
