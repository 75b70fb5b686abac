"""GEMM, linear layers, attention, RoPE."""

from __future__ import annotations

from typing import Iterator

import torch
import torch.nn.functional as F
from op_cases.table import f32, i64, values
from torch import nn
from torch.export import Dim

from .table import Delegated, case, half, halved


def gemm() -> Iterator[Delegated]:
    sizes = {
        "small": (3, 5, 4),
        "odd": (7, 9, 5),
        "vector": (1, 33, 6),
        "tall": (70, 8, 3),
        "square": (33, 33, 33),
    }
    for name, (m, k, n) in sizes.items():
        yield case(f"mm_{name}", torch.mm, (values(f32, m, k), values(f32, k, n)))
    yield half(case("mm", torch.mm, (values(f32, 6, 9), values(f32, 9, 5))))
    yield from halved([case("bmm", torch.bmm, (values(f32, 3, 4, 5), values(f32, 3, 5, 6)))])
    yield case("bmm_odd", torch.bmm, (values(f32, 2, 1, 7), values(f32, 2, 7, 3)))
    yield case("matmul_four", torch.matmul, (values(f32, 2, 3, 4, 5), values(f32, 2, 3, 5, 2)))
    yield case("matmul_broadcast", torch.matmul, (values(f32, 2, 3, 4, 5), values(f32, 5, 2)))
    yield case(
        "matmul_transposed",
        lambda x, y: x @ y.transpose(-1, -2),
        (values(f32, 2, 3, 4), values(f32, 2, 5, 4)),
    )
    yield case("addmm", torch.addmm, (values(f32, 3, 4), values(f32, 3, 5), values(f32, 5, 4)))
    yield case("addmm_row", torch.addmm, (values(f32, 4), values(f32, 3, 5), values(f32, 5, 4)))
    yield case(
        "addmm_scaled",
        lambda b, x, y: torch.addmm(b, x, y, beta=0.5, alpha=2.0),
        (values(f32, 3, 4), values(f32, 3, 5), values(f32, 5, 4)),
    )
    yield case("mm_constant", Times(values(f32, 6, 5)), (values(f32, 3, 6),))
    yield case(
        "mm_dynamic",
        torch.mm,
        *[(values(f32, n, 6), values(f32, 6, 4)) for n in (5, 1, 8, 3)],
        dynamic=({0: Dim("n", min=1, max=8)}, None),
    )
    yield case(
        "bmm_dynamic",
        torch.bmm,
        *[(values(f32, 2, 4, n), values(f32, 2, n, 4)) for n in (5, 1, 8, 3)],
        dynamic=({2: Dim("n", min=1, max=8)}, {1: Dim("n", min=1, max=8)}),
    )
    # For one or two rows of fp16, an invocation computes eight columns where possible. The sizes
    # leave remainders, with and without split-K.
    sizes = {
        "row": (1, 30, 40),
        "row_shared": (1, 1030, 32),
        "two_rows": (2, 18, 24),
        "two_shared": (2, 300, 16),
    }
    for name, (m, k, n) in sizes.items():
        yield half(case(f"mm_{name}", torch.mm, (values(f32, m, k), values(f32, k, n))))
    yield half(case("mm_row_constant", Times(values(f32, 270, 36)), (values(f32, 1, 270),)))
    yield half(case("bmm_row", torch.bmm, (values(f32, 3, 1, 20), values(f32, 3, 20, 16))))
    yield half(
        case(
            "mm_rows_dynamic",
            Times(values(f32, 64, 40)),
            *[(values(f32, n, 64),) for n in (9, 1, 2, 4, 8)],
            dynamic=({0: Dim("n", min=1, max=9)},),
        )
    )


def sums(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Row and column sums of a GEMM, to keep the outputs small."""
    gemm = torch.mm(x, y)
    return gemm.sum(0), gemm.sum(1)


def tiled() -> Iterator[Delegated]:
    """Sizes that are no multiple of the shared-memory tiles; long sums use split-K."""
    yield from halved(
        [
            case("mm_odd", torch.mm, (values(f32, 70, 67), values(f32, 67, 65))),
            case("mm_flat", torch.mm, (values(f32, 32, 40), values(f32, 40, 70))),
            case("bmm", torch.bmm, (values(f32, 3, 33, 40), values(f32, 3, 40, 36))),
            case("linear", nn.Linear(72, 68), (values(f32, 2, 35, 72),)),
            case(
                "linear_long", nn.Sequential(nn.Linear(290, 50), nn.GELU()), (values(f32, 37, 290),)
            ),
            case(
                "linear_sum", Sum(nn.Linear(256, 36)), (values(f32, 33, 256), values(f32, 33, 36))
            ),
            case(
                "convolution",
                nn.Sequential(nn.Conv2d(37, 40, 1), nn.ReLU()),
                (values(f32, 1, 37, 7, 9),),
            ),
            case(
                "convolution_long",
                Sum(nn.Conv2d(260, 33, 1)),
                (values(f32, 1, 260, 6, 6), values(f32, 1, 33, 6, 6)),
            ),
        ]
    )
    yield from halved(
        [case("patches", nn.Conv2d(3, 34, 4, stride=4), (values(f32, 1, 3, 25, 28),))]
    )
    yield case(
        "addmm_column",
        lambda b, x, y: torch.addmm(b, x, y, beta=0.5, alpha=2.0),
        (values(f32, 40, 1), values(f32, 40, 257), values(f32, 257, 35)),
    )
    yield case(
        "mm_dynamic",
        torch.mm,
        *[(values(f32, n, 40), values(f32, 40, 33)) for n in (70, 1, 33)],
        dynamic=({0: Dim("n", min=1, max=70)}, None),
    )
    yield case(
        "bmm_dynamic",
        torch.bmm,
        *[(values(f32, 2, 33, n), values(f32, 2, n, 32)) for n in (260, 1, 130, 36)],
        dynamic=({2: Dim("n", min=1, max=260)}, {1: Dim("n", min=1, max=260)}),
    )
    outside = ["aten::sum.IntList_out"]
    yield case("mm_large", sums, (values(f32, 136, 40), values(f32, 40, 264)), outside=outside)


class Sum(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + y


class Times(nn.Module):
    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight


def linear() -> Iterator[Delegated]:
    for name, shape in {
        "vector": (6,),
        "matrix": (3, 6),
        "batch": (2, 3, 6),
        "four": (2, 1, 3, 6),
    }.items():
        yield case(f"linear_{name}", nn.Linear(6, 5), (values(f32, *shape),))
    yield from halved(
        [
            case("linear_no_bias", nn.Linear(6, 5, bias=False), (values(f32, 3, 6),)),
            case("linear_relu", nn.Sequential(nn.Linear(6, 5), nn.ReLU()), (values(f32, 3, 6),)),
        ]
    )
    yield case("linear_wide", nn.Linear(65, 70), (values(f32, 2, 65),))
    yield case(
        "linear_chain",
        nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 3)),
        (values(f32, 3, 6),),
    )
    yield case(
        "linear_clamped",
        nn.Sequential(nn.Linear(6, 5), nn.Hardtanh(-0.2, 0.3)),
        (values(f32, 3, 6),),
    )
    yield case(
        "linear_dynamic",
        nn.Linear(6, 5),
        *[(values(f32, n, 6),) for n in (5, 1, 8, 3)],
        dynamic=({0: Dim("n", min=1, max=8)},),
    )
    # Weight rows of this length are read unpacked, by GEMV and by GEMM tiles.
    rows = ({0: Dim("n", min=1, max=40)},)
    for width in (260, 264):
        some = [(values(f32, n, width),) for n in (40, 1, 33, 3)]
        wide = nn.Sequential(nn.Linear(width, 36), nn.ReLU())
        yield from halved([case(f"linear_rows_{width}", wide, *some, dynamic=rows)])
    yield half(case("linear_row", nn.Linear(264, 8), (values(f32, 1, 264),)))


# The CPU computes PyTorch's check for fully masked rows.
IN_PARTS = {"outside": ["aten::any.out", "aten::mul.Scalar_out"], "delegates": 3}


class Attend(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attention(x, x, x, need_weights=False)[0]


def attention() -> Iterator[Delegated]:
    sdpa = F.scaled_dot_product_attention
    q, k, v = values(f32, 1, 2, 3, 8), values(f32, 1, 2, 5, 8), values(f32, 1, 2, 5, 8)
    fused = torch.ops.et_vk.sdpa.default
    yield from halved(
        [
            case("attention", sdpa, (q, k, v), **IN_PARTS),
            case("attention_mask", sdpa, (q, k, v, values(f32, 3, 5)), **IN_PARTS),
        ]
    )
    yield case("attention_scaled", lambda q, k, v: sdpa(q, k, v, scale=0.3), (q, k, v), **IN_PARTS)
    yield case("multi_head", Attend(), (values(f32, 2, 3, 8),), **IN_PARTS)
    yield from halved([case("fused", lambda q, k, v: fused(q, k, v), (q, k, v))])
    yield case(
        "fused_mask", lambda q, k, v, m: fused(q, k, v, m), (q, k, v, values(f32, 1, 1, 3, 5))
    )
    rows, keys = values(f32, 1, 2, 19, 12), values(f32, 1, 2, 37, 12)
    wide = values(f32, 1, 2, 37, 64)
    yield from halved([case("rows", lambda q, k, v: fused(q, k, v), (rows, keys, wide))])
    yield case(
        "rows_mask",
        lambda q, k, v, m: fused(q, k, v, m),
        (rows, keys, keys, values(f32, 1, 2, 19, 37)),
    )
    hidden = torch.where(torch.rand(1, 1, 19, 37) > 0.5, 0.0, -torch.inf)
    hidden[..., 0] = 0.0
    yield case("rows_hidden", lambda q, k, v, m: fused(q, k, v, m), (rows, keys, keys, hidden))
    yield case(
        "rows_dynamic",
        lambda q, k, v: fused(q, k, v),
        *[
            (values(f32, 2, 3, n, 8), values(f32, 2, 3, n, 8), values(f32, 2, 3, n, 8))
            for n in (33, 1, 16, 32)
        ],
        dynamic=({2: (n := Dim("n", min=1, max=33))}, {2: n}, {2: n}),
    )
    yield case("fused_scaled", lambda q, k, v: fused(q, k, v, None, 0.3), (q, k, v))
    yield from causal()
    yield from deep_heads()


# The CPU also computes the additive mask.
MASK_IN_PARTS = {**IN_PARTS, "outside": sorted([*IN_PARTS["outside"], "aten::scalar_tensor.out"])}


class CausalMask(nn.Module):
    """Queries are the last rows of the sequence; each attends to itself and earlier positions."""

    def __init__(self, rows: int, keys: int) -> None:
        super().__init__()
        self.register_buffer("mask", torch.ones(rows, keys, dtype=torch.bool).tril(keys - rows))

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(
            q, k, v, attn_mask=self.mask, enable_gqa=q.size(1) != k.size(1)
        )


def causal() -> Iterator[Delegated]:
    """Causal masks."""
    sdpa = F.scaled_dot_product_attention
    same = (values(f32, 1, 2, 45, 16), values(f32, 1, 2, 45, 16), values(f32, 1, 2, 45, 16))
    yield from halved(
        [case("causal", lambda q, k, v: sdpa(q, k, v, is_causal=True), same, **MASK_IN_PARTS)]
    )
    shared = (values(f32, 2, 4, 19, 16), values(f32, 2, 2, 70, 16), values(f32, 2, 2, 70, 32))
    yield from halved([case("causal_behind", CausalMask(19, 70), shared, **MASK_IN_PARTS)])
    one = (values(f32, 1, 2, 1, 16), values(f32, 1, 2, 70, 16), values(f32, 1, 2, 70, 16))
    yield case("causal_row", CausalMask(1, 70), one, **MASK_IN_PARTS)
    long = (values(f32, 1, 1, 203, 16), values(f32, 1, 1, 203, 16), values(f32, 1, 1, 203, 16))
    yield half(
        case("causal_long", lambda q, k, v: sdpa(q, k, v, is_causal=True), long, **MASK_IN_PARTS)
    )


class PartialMask(nn.Module):
    """Masks every third key, and all keys of one row."""

    def __init__(self, rows: int, keys: int) -> None:
        super().__init__()
        mask = torch.arange(rows * keys).reshape(rows, keys) % 3 > 0
        mask[rows // 2] = False
        self.register_buffer("mask", mask)

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask)


def deep_heads() -> Iterator[Delegated]:
    """Head dims that GPUs process in several parts."""
    fused = torch.ops.et_vk.sdpa.default

    def qkv(
        rows: int, keys: int, depth: int, value_depth: int, heads: int = 1
    ) -> tuple[torch.Tensor, ...]:
        sizes = ((heads, rows, depth), (1, keys, depth), (1, keys, value_depth))
        return tuple(values(f32, 1, *size, scale=1.0) for size in sizes)

    yield case("deep_80_shared", CausalMask(17, 41), qkv(17, 41, 80, 80, heads=2), **MASK_IN_PARTS)
    yield half(case("deep_96", lambda q, k, v: fused(q, k, v), qkv(9, 35, 96, 96)))
    sdpa = F.scaled_dot_product_attention
    yield case(
        "deep_128_causal",
        lambda q, k, v: sdpa(q, k, v, is_causal=True),
        qkv(37, 37, 128, 128),
        **MASK_IN_PARTS,
    )
    yield case("deep_128_hidden", PartialMask(11, 34), qkv(11, 34, 128, 128), **MASK_IN_PARTS)
    mask = values(f32, 1, 1, 10, 33)
    yield case(
        "deep_256_mask", lambda q, k, v, m: fused(q, k, v, m), (*qkv(10, 33, 256, 256), mask)
    )
    # Query/key and value dims that differ.
    yield case("deep_keys", lambda q, k, v: fused(q, k, v), qkv(19, 34, 196, 12))
    yield case("deep_values", lambda q, k, v: fused(q, k, v), qkv(19, 34, 12, 148))
    yield case(
        "deep_dynamic",
        lambda q, k, v: fused(q, k, v),
        *[qkv(n, n, 72, 68) for n in (33, 1, 9, 16)],
        dynamic=({2: (n := Dim("n", min=1, max=33))}, {2: n}, {2: n}),
    )
    # More query heads share a key head than a workgroup processes.
    decode = (values(f32, 1, 6, 2, 132), values(f32, 1, 1, 67, 132), values(f32, 1, 1, 67, 12))
    yield case("deep_decode", CausalMask(2, 67), decode, **MASK_IN_PARTS)
    # With cooperative matrices, subgroups split the value dim or each process all of it.
    yield half(
        case("deep_256_shared", CausalMask(37, 70), qkv(37, 70, 256, 256, heads=2), **MASK_IN_PARTS)
    )
    yield half(case("deep_256_hidden", PartialMask(35, 66), qkv(35, 66, 256, 256), **MASK_IN_PARTS))
    mask = values(f32, 1, 1, 18, 33)
    yield half(
        case("deep_160_mask", lambda q, k, v, m: fused(q, k, v, m), (*qkv(18, 33, 160, 160), mask))
    )
    yield half(case("deep_192_to_128", lambda q, k, v: fused(q, k, v), qkv(50, 65, 192, 128)))
    yield half(case("deep_64_to_192", lambda q, k, v: fused(q, k, v), qkv(33, 40, 64, 192)))


def frequencies(
    length: int, size: int, repeated: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    angles = torch.outer(
        torch.arange(length).float() + 1, 1000.0 ** (-torch.arange(0, size, 2) / size)
    )
    angles = angles.repeat(1, 2) if repeated else angles
    return angles.cos(), angles.sin()


class Rotary(nn.Module):
    """RoPE as the exporter's recipe for language models writes it: rotates neighbouring pairs."""

    def forward(self, xq, xk, cos, sin):
        q, qi = xq.float().reshape(xq.shape[:-1] + (-1, 2)).unbind(-1)
        k, ki = xk.float().reshape(xk.shape[:-1] + (-1, 2)).unbind(-1)
        shape = [d if i in (1, q.ndim - 1) else 1 for i, d in enumerate(q.shape)]
        cos, sin = cos.view(shape), sin.view(shape)
        out_q = torch.stack([q * cos - qi * sin, q * sin + qi * cos], dim=-1).flatten(3)
        out_k = torch.stack([k * cos - ki * sin, k * sin + ki * cos], dim=-1).flatten(3)
        return out_q.type_as(xq), out_k.type_as(xk)


def rotary() -> Iterator[Delegated]:
    ops = torch.ops.et_vk
    heads = (values(f32, 1, 3, 4, 8), values(f32, 1, 3, 2, 8))
    halves, whole, part = frequencies(3, 8), frequencies(3, 8, True), frequencies(3, 4, True)
    long = frequencies(9, 8, True)
    yield from halved([case("neighbours", Rotary(), (*heads, *halves))])
    yield case(
        "one_position",
        Rotary(),
        (values(f32, 1, 1, 4, 8), values(f32, 1, 1, 2, 8), *frequencies(1, 8)),
    )
    yield case(
        "halves", lambda q, k, c, s: ops.apply_rotary_emb_hf(q, k, c, s, 0), (*heads, *whole)
    )
    yield case(
        "halves_of_a_part",
        lambda q, k, c, s: ops.apply_rotary_emb_hf(q, k, c, s, 0),
        (*heads, *part),
    )
    yield case(
        "halves_from_position",
        lambda q, k, c, s: ops.apply_rotary_emb_hf(q, k, c, s, 4),
        (*heads, *long),
    )
    pairs = torch.stack(frequencies(6, 8), dim=-1)
    yield case(
        "interleaved",
        lambda x, f: ops.apply_rotary_emb_interleaved(x, f),
        (values(f32, 2, 6, 8), pairs),
    )


def rotary_heads() -> Iterator[Delegated]:
    """RoPE as Hugging Face models write it: heads before positions, and angles with a batch dim."""

    def turn(x, cos, sin):
        size = cos.shape[-1]
        turned, rest = x[..., :size], x[..., size:]
        other = torch.cat((-turned[..., size // 2 :], turned[..., : size // 2]), dim=-1)
        return torch.cat((turned * cos + other * sin, rest), dim=-1)

    def both(q, k, cos, sin):
        cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
        return turn(q, cos, sin), turn(k, cos, sin)

    def inputs(batch: int, length: int, size: int) -> tuple[torch.Tensor, ...]:
        cos, sin = (angles.unsqueeze(0) for angles in frequencies(length, size, True))
        return values(f32, batch, 3, length, 8), values(f32, batch, 1, length, 8), cos, sin

    yield from halved(
        [case("part", both, inputs(1, 5, 4)), case("batch_of_parts", both, inputs(2, 5, 6))]
    )
    n = Dim("n", min=2, max=7)
    yield case(
        "dynamic_part",
        both,
        *[inputs(1, length, 4) for length in (5, 2, 7)],
        dynamic=({2: n}, {2: n}, {1: n}, {1: n}),
    )


class RotatedProjections(nn.Module):
    """Query and key projections of few or many rows, rotated by `turn`."""

    def __init__(self, turn, bias: bool = False, depth: int = 16) -> None:
        super().__init__()
        self.turn, self.depth = turn, depth
        self.q, self.k = nn.Linear(256, 4 * depth, bias=bias), nn.Linear(256, 2 * depth, bias=bias)

    def forward(self, x, cos, sin):
        q, k = (gemm(x).view(1, x.shape[1], -1, self.depth) for gemm in (self.q, self.k))
        return self.turn(q, k, cos, sin)


class RowsAsHeads(nn.Module):
    """Rows reinterpreted as heads, while other operators use temporary memory."""

    def __init__(self, turn) -> None:
        super().__init__()
        self.turn, self.q = turn, nn.Linear(256, 64, bias=False)

    def forward(self, x, z, cos, sin):
        y = self.q(x).view(-1)
        others = [
            function(z, dim) for function in (torch.softmax, torch.log_softmax) for dim in (-1, 0)
        ]
        heads = y.view(1, 4, x.shape[0], 16)
        q, _ = self.turn(heads, heads, cos.squeeze(1), sin.squeeze(1))
        return q, *(torch.softmax(other, -1) for other in others)


def rotated_projections() -> Iterator[Delegated]:
    ops = torch.ops.et_vk
    n = Dim("n", min=1, max=40)

    def inputs(length: int, repeated: bool, depth: int = 16) -> tuple[torch.Tensor, ...]:
        return values(f32, 1, length, 256), *frequencies(length, depth, repeated)

    def halves(q, k, cos, sin):
        def turn(x):
            size = x.shape[-1]
            return x * cos + torch.cat((-x[..., size // 2 :], x[..., : size // 2]), dim=-1) * sin

        cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
        return turn(q), turn(k)

    varying = {"dynamic": ({1: n}, {0: n}, {0: n})}
    lengths = (40, 1, 3, 7)
    yield from halved(
        [
            case(
                "neighbours",
                RotatedProjections(Rotary()),
                *[inputs(it, False) for it in lengths],
                **varying,
            ),
            case(
                "halves",
                RotatedProjections(halves, True),
                *[inputs(it, True) for it in lengths],
                **varying,
            ),
        ]
    )
    yield case("neighbours_of_few", RotatedProjections(Rotary(), True), inputs(3, False))
    yield case("halves_of_few", RotatedProjections(halves), inputs(2, True))
    # Halves of six elements, which the GEMM's epilogue cannot rotate.
    yield case("uneven_halves_of_few", RotatedProjections(halves, False, 12), inputs(2, True, 12))
    # Heads of three rows differ in size from heads of four.
    few = Dim("few", min=2, max=4)
    rows = [
        (
            values(f32, it, 256),
            values(f32, 4, 64),
            *(it.unsqueeze(1) for it in frequencies(4, 16, True)),
        )
        for it in (3, 4, 2)
    ]
    yield case(
        "heads_of_another_size", RowsAsHeads(halves), *rows, dynamic=({0: few}, None, None, None)
    )
    later = (values(f32, 1, 2, 256), *frequencies(9, 16, True))
    yield case(
        "halves_from_position",
        RotatedProjections(lambda q, k, c, s: ops.apply_rotary_emb_hf(q, k, c, s, 4)),
        later,
    )


FAMILIES = {
    "product": gemm,
    "tiled": tiled,
    "linear": linear,
    "attention": attention,
    "rotary": rotary,
    "rotary_heads": rotary_heads,
    "rotated_products": rotated_projections,
}
