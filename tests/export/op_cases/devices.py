"""Cases for GPU kernels: functions at the limits of their range, and rows longer than an
invocation.

Inputs and outputs are small, to keep files small; the programs expand them to long rows.
"""

from __future__ import annotations

from typing import Iterator

import torch
import torch.nn.functional as F

from .table import Case, boolean, case, each, f16, f32, i8, i32, i64, plain, u8, values

A = torch.ops.aten


def ends_of_functions() -> Iterator[Case]:
    inf, nan = float("inf"), float("nan")
    row = torch.tensor(
        [nan, inf, -inf, 0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1e-30, 3e38, -3e38, 2.5, -7.25]
    )
    for name, run in {
        "fmax": torch.fmax,
        "fmin": torch.fmin,
        "hypot": torch.hypot,
        "copysign": torch.copysign,
    }.items():
        yield from each(
            name,
            run,
            (f32, f16),
            lambda d: (row.to(d).repeat_interleave(len(row)), row.to(d).repeat(len(row))),
        )
    yield from each(
        "copysign_number",
        lambda x: torch.copysign(x, -2.0),
        (f32, f16, i32),
        lambda d: (row.nan_to_num(1, 2, 3).clamp(-99, 99).to(d),),
    )
    points = torch.cat([row, torch.linspace(-6.3, 12, 40)])
    for name, run in {
        "erfc": torch.erfc,
        "lgamma": torch.lgamma,
        "digamma": torch.digamma,
        "signbit": torch.signbit,
    }.items():
        yield from each(name, run, (f32, f16), lambda d: (points.to(d),))
    yield case(
        "erfinv",
        torch.erfinv,
        (torch.cat([row, torch.linspace(-1, 1, 41), 1 - 2.0 ** -torch.arange(1, 25)]),),
    )
    for decimals in (2, -1):
        yield case(
            f"round_{decimals}".replace("-", "minus_"),
            lambda x, n=decimals: torch.round(x, decimals=n),
            (values(f32, 30, scale=90.0),),
        )
    bits = torch.tensor([0, 1, 2, 7, 8, 9, 31, 32, 33, 64, 100])
    for name, run in {"left": torch.bitwise_left_shift, "right": torch.bitwise_right_shift}.items():
        yield from each(f"shift_{name}", run, (i32, i8, u8), lambda d: (values(d, 11), bits.to(d)))
        first = getattr(A, f"bitwise_{name}_shift").Scalar_Tensor
        yield case(f"shift_{name}_of_number", lambda x, f=first: f(77, x), (bits.to(i32),))
    yield case(
        "shift_right_less_than_none",
        torch.bitwise_right_shift,
        (values(i32, 4), torch.tensor([-1, -32, 3, -100], dtype=i32)),
    )
    yield case(
        "logical_xor_of_numbers", torch.logical_xor, (values(f32, 9).round(), values(i32, 9))
    )


def long_rows() -> Iterator[Case]:
    # Pseudo-random row derived from the indices; outputs are sampled with a stride.
    def row(x: torch.Tensor, count: int) -> torch.Tensor:
        return (torch.arange(count) * 7919 % 10007 - 5003) * x

    step = torch.tensor([[0.01], [-0.02]])
    yield case(
        "cumsum", lambda x: torch.cumsum(row(x, 9001), -1)[:, ::601], (step * 0.01,), atol=1e-2
    )
    yield case(
        "cumsum_half",
        lambda x: torch.cumsum((row(x, 2021) * 1e-3).to(f16), -1)[:, ::67],
        (step,),
        atol=5e-2,
    )
    yield case(
        "cumsum_int",
        lambda x: torch.cumsum(row(x, 9001).to(i32), -1)[:, ::601],
        (torch.tensor([[1], [-2]], dtype=i32),),
    )
    yield case(
        "cumprod", lambda x: torch.cumprod(1 + row(x, 1999) * 1e-4, -1)[:, ::67], (step,), rtol=1e-4
    )
    yield case(
        "cumprod_beyond",
        lambda x: torch.cumprod(torch.cat([x.expand(1, 600), (1 / x).expand(1, 600)], 1), -1)[
            :, ::100
        ],
        (torch.full((1, 1), 2.0),),
    )
    # Infinities must persist among values whose running product or sum overflows fp32.
    for name, count in (("", 200), ("_row", 900)):
        around = lambda x, i, y, n=count: torch.cat([x.expand(-1, n), i, y.expand(-1, n)], 1)
        powers, infinite = (
            torch.tensor([[2.0], [0.5]]),
            torch.tensor([[float("inf")], [-float("inf")]]),
        )
        yield case(
            f"cumprod_infinite{name}",
            lambda x, i, around=around: torch.cumprod(around(x, i, 1 / x), -1)[:, ::67],
            (powers, infinite),
        )
        yield case(
            f"cumsum_infinite{name}",
            lambda x, i, around=around: torch.cumsum(around(x, i, -x), -1)[:, ::67],
            (torch.tensor([[3e38], [3e38]]), infinite),
        )
    yield case(
        "cummax", lambda x: tuple(y[:, ::601] for y in torch.cummax(row(x, 9001), -1)), (step,)
    )
    yield case(
        "cummin_int",
        lambda x: tuple(y[:, ::133] for y in torch.cummin(row(x, 1999).to(i32), -1)),
        (torch.tensor([[1], [-2]], dtype=i32),),
    )
    yield case(
        "logcumsumexp", lambda x: torch.logcumsumexp(row(x, 1999), -1)[:, ::67], (step,), atol=1e-3
    )
    yield case(
        "sort",
        lambda x: tuple(y[:, ::601] for y in torch.sort(row(x, 18001), stable=True)),
        (step,),
    )
    yield case(
        "sort_descending_ties",
        lambda x: tuple(
            y[:, ::67]
            for y in torch.sort((row(x, 2999) * 0.1).round(), descending=True, stable=True)
        ),
        (step,),
    )
    yield case(
        "sort_columns",
        lambda x: tuple(y[::67] for y in torch.sort(row(x, 2999).T, dim=0, stable=True)),
        (step,),
    )
    yield case(
        "sort_half",
        lambda x: tuple(y[:, ::67] for y in torch.sort(row(x, 2999).to(f16), stable=True)),
        (step,),
    )
    yield case("topk", lambda x: plain(torch.topk(row(x, 9001), 17)), (step,))


def masks() -> Iterator[Case]:
    yield case(
        "put_one_number",
        lambda x, m: A.index_put(x, [m], torch.tensor(2.5)),
        (values(f32, 3, 5, 7), values(boolean, 3, 5)),
    )
    yield case(
        "put_in_the_middle",
        lambda x, m: A.index_put(x, [None, m], torch.tensor(2.5)),
        (values(f32, 3, 5, 7), values(boolean, 5)),
    )
    yield case(
        "put_integers",
        lambda x, m: A.index_put(x, [m], torch.tensor(3)),
        (values(i64, 3, 5), values(boolean, 3, 5)),
    )
    yield case(
        "scattered_rows",
        torch.masked_scatter,
        (values(f16, 3, 5, 7), values(boolean, 3, 5, 1), values(f16, 110)),
    )


def paddings() -> Iterator[Case]:
    """Padding of odd sizes and of bytes, including negative padding (cropping)."""
    for mode in ("reflect", "replicate"):
        yield from each(
            f"{mode}_cut",
            lambda x, m=mode: F.pad(x, (-1, 2, 3, -2), mode=m),
            (f32, f16, u8),
            lambda d: (values(d, 2, 3, 5, 7),),
        )


FAMILIES = {
    "ends_of_functions": ends_of_functions,
    "long_rows": long_rows,
    "masks": masks,
    "surroundings": paddings,
}
