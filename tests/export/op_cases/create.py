"""Operators that create tensors or convert dtype and layout."""

from __future__ import annotations

from typing import Iterator

import torch
from torch.export import Dim

from .table import (
    ALL,
    FLOATS,
    NAMES,
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

A = torch.ops.aten
SHAPE = (2, 3)


def creation() -> Iterator[Case]:
    """Creation operators combined with an input, so that export cannot fold them to constants."""
    x = values(f32, *SHAPE)
    for dtype in ALL:
        name = NAMES[dtype]
        yield case(f"full_{name}", lambda x, d=dtype: (x + 1, torch.full((2, 2), 1, dtype=d)), (x,))
        yield case(f"zeros_{name}", lambda x, d=dtype: (x + 1, torch.zeros(2, 2, dtype=d)), (x,))
        yield case(f"full_like_{name}", lambda x: torch.full_like(x, 1), (values(dtype, *SHAPE),))
    for dtype in (f32, f64, f16, i32, i64):
        name = NAMES[dtype]
        yield case(f"arange_{name}", lambda x, d=dtype: (x + 1, torch.arange(5, dtype=d)), (x,))
        yield case(
            f"arange_start_{name}", lambda x, d=dtype: (x + 1, torch.arange(2, 9, 3, dtype=d)), (x,)
        )
        yield case(
            f"scalar_tensor_{name}",
            lambda x, d=dtype: (x + 1, torch.scalar_tensor(3, dtype=d)),
            (x,),
        )
    for name, run in {
        "ones": lambda x: x + torch.ones(2, 3),
        "zeros_like": lambda x: torch.zeros_like(x),
        "ones_like": lambda x: torch.ones_like(x),
        "empty_like_filled": lambda x: torch.empty_like(x).fill_(2.5),
        "new_full": lambda x: x.new_full((2,), 3.0),
        "arange_fraction": lambda x: (x + 1, torch.arange(0.0, 1.0, 0.3)),
        "arange_backward": lambda x: (x + 1, torch.arange(5, -3, -2)),
        "arange_empty": lambda x: (x + 1, torch.arange(3, 3)),
        "full_infinite": lambda x: torch.full((2, 3), -float("inf")) + x,
        "full_true": lambda x: torch.full((2, 3), True) & (x > 0),
        "full_zero_dim": lambda x: torch.full((), 4.0) + x,
        "full_empty": lambda x: (x + 1, torch.full((0, 2), 4.0)),
        "linspace": lambda x: (x + 1, torch.linspace(-1, 2, 5)),
        "eye": lambda x: (x + 1, torch.eye(3)),
        "tril_of_ones": lambda x: (x + 1, torch.ones(3, 3).tril()),
        "fill_scalar": lambda x: torch.fill(x, 3.5),
    }.items():
        yield case(name, run, (x,))
    yield case(
        "fill_tensor",
        lambda x, v: A.fill.Tensor(x, v),
        (x, torch.tensor(2.0)),
        preserve=[A.fill.Tensor],
    )
    yield case(
        "fill_scalar_preserved", lambda x: A.fill.Scalar(x, 2.0), (x,), preserve=[A.fill.Scalar]
    )
    n = Dim("n", min=1, max=8)
    for name, run in {
        "arange_dynamic": lambda x: torch.arange(x.shape[0]),
        "full_dynamic": lambda x: torch.full((x.shape[0], 2), 1.5),
        "zeros_dynamic": lambda x: torch.zeros(x.shape[0] + 1) + 1,
        "full_like_dynamic": lambda x: torch.full_like(x, 2.0),
        "size_add_mul": lambda x: x + (x.shape[0] * 2 + 1),
        "size_sub_neg": lambda x: x + (3 - x.shape[0]),
        "size_floordiv_mod": lambda x: x * (x.shape[0] // 2) + x.shape[0] % 3,
        "size_truediv": lambda x: x / x.shape[0],
        "size_true_divided": lambda x: x * (x.shape[0] / 4),
        "size_max_min": lambda x: x * torch.sym_max(x.shape[0], 4) + torch.sym_min(x.shape[0], 3),
        "size_where": lambda x: x * torch.sym_ite(x.shape[0] > 3, 2, 5),
        "size_as_tensor": lambda x: torch.scalar_tensor(x.shape[0], dtype=i64) + 1,
        "size_float": lambda x: x * torch.sym_float(x.shape[0]),
        "size_sqrt": lambda x: x * (x.shape[0] ** 0.5),
        "size_returned": lambda x: (x + 1, x.shape[0] * 2),
    }.items():
        yield case(name, run, *[(values(f32, k, 3),) for k in (4, 1, 8)], dynamic=({0: n},))


def triangles() -> Iterator[Case]:
    """Indices of the upper and lower triangle, including empty triangles."""
    x = values(f32, *SHAPE)
    for name, run in {"tril": torch.tril_indices, "triu": torch.triu_indices}.items():
        sizes = (
            (4, 5, 0),
            (5, 3, -2),
            (3, 6, 2),
            (2, 3, 9),
            (3, 2, -9),
            (0, 4, 0),
            (4, 0, 1),
            (1, 1, 0),
        )
        yield case(f"{name}_indices", lambda x, f=run: (x + 1, *(f(*size) for size in sizes)), (x,))
        yield case(f"{name}_indices_i32", lambda x, f=run: (x + 1, f(4, 3, 1, dtype=i32)), (x,))


def casting() -> Iterator[Case]:
    for source in ALL:
        for target in ALL:
            if source != target:
                yield case(
                    f"{NAMES[source]}_to_{NAMES[target]}",
                    lambda x, d=target: x.to(d),
                    *castable(source, target),
                )
    for dtype in FLOATS:
        yield case(
            f"specials_{NAMES[dtype]}_to_bool", lambda x: x.to(boolean), (specials(dtype, 15),)
        )
    for source, target in ((f64, f32), (f32, f16), (f32, bf16), (f16, f32), (bf16, f16)):
        yield case(
            f"specials_{NAMES[source]}_to_{NAMES[target]}",
            lambda x, d=target: x.to(d),
            (specials(source, 15),),
        )
    yield case(
        "rounding_f32_to_f16",
        lambda x: x.to(f16),
        (torch.tensor([1.00048828125, 1.00146484375, 65519.0, 65520.0, 5.9e-8, 2.9e-8, 6.1e-5]),),
    )
    yield case(
        "rounding_f32_to_bf16",
        lambda x: x.to(bf16),
        (torch.tensor([1.00390625, 1.01171875, 3.39e38, 1e-40, -1.00390625]),),
    )


def castable(source: torch.dtype, target: torch.dtype) -> list[tuple]:
    """Ordinary values: PyTorch defines no result for floats outside the integer's range."""
    x = values(source, *SHAPE)
    if source.is_floating_point and target == u8:
        x = x.abs()
    if not source.is_floating_point and not target.is_floating_point:
        return [(x,), (specials(source, *SHAPE),)]
    return [(x,)]


def copying() -> Iterator[Case]:
    x = values(f32, 1, 3, 2, 4)
    yield from each("clone", lambda x: x.clone(), ALL, lambda d: (values(d, *SHAPE),))
    for name, run in {
        "clone_to_channels_last": lambda x: x.clone(memory_format=torch.channels_last),
        "to_channels_last": lambda x: x.to(memory_format=torch.channels_last),
        "to_half_channels_last": lambda x: x.to(f16, memory_format=torch.channels_last),
        "contiguous": lambda x: x.contiguous(),
        "to_and_fro": lambda x: x.to(memory_format=torch.channels_last).relu().contiguous(),
    }.items():
        yield case(name, run, (x,))
    for name, run in {
        "channels_last_clone": lambda x: x.clone(),
        "channels_last_to_contiguous": lambda x: x.clone(memory_format=torch.contiguous_format),
        "channels_last_to_half": lambda x: x.to(f16),
        "channels_last_to_half_contiguous": lambda x: x.to(
            f16, memory_format=torch.contiguous_format
        ),
    }.items():
        yield case(name, run, (last(x),))
    yield from each(
        "copy",
        torch.ops.aten.copy.default,
        (f32, i64),
        lambda d: (values(d, *SHAPE), values(d, *SHAPE)),
        preserve=[A.copy.default],
    )
    yield case(
        "copy_broadcast",
        torch.ops.aten.copy.default,
        (values(f32, *SHAPE), values(f32, 3)),
        preserve=[A.copy.default],
    )
    yield case(
        "copy_cast",
        torch.ops.aten.copy.default,
        (values(f32, *SHAPE), values(i32, *SHAPE)),
        preserve=[A.copy.default],
    )
    yield case("clone_empty", lambda x: x.clone(), (torch.empty(0, 3),))
    yield case("clone_zero_dim", lambda x: x.clone(), (torch.tensor(3.0),))
    yield case(
        "clone_dynamic",
        lambda x: x.clone(),
        *[(values(f32, n, 3),) for n in (4, 1, 8)],
        dynamic=({0: Dim("n", min=1, max=8)},),
    )
    yield case(
        "view_as_real",
        lambda x, y: torch.view_as_real(torch.complex(x, y)) * 1,
        (values(f32, 3), values(f32, 3)),
    )


FAMILIES = {"creation": creation, "triangles": triangles, "casting": casting, "copying": copying}
