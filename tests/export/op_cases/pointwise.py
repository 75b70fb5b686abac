"""Elementwise operators: unary, binary with broadcasting, comparisons, logic, activations."""

from __future__ import annotations

from typing import Iterator

import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

from .table import (
    ALL,
    FLOATS,
    INTEGERS,
    NAMES,
    SOME,
    Case,
    bf16,
    boolean,
    case,
    each,
    f16,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    last,
    nonzero_values,
    positive,
    specials,
    u8,
    values,
)

SHAPE = (3, 5)


def both_kinds(dtype: torch.dtype) -> list[tuple]:
    """Ordinary values, then special ones."""
    return [(values(dtype, *SHAPE),), (specials(dtype, *SHAPE),)]


TRANSCENDENTAL = (
    torch.sqrt,
    torch.rsqrt,
    torch.exp,
    torch.log,
    torch.log1p,
    torch.expm1,
    torch.log2,
    torch.log10,
    torch.sin,
    torch.cos,
    torch.tan,
    torch.asin,
    torch.acos,
    torch.atan,
    torch.sinh,
    torch.cosh,
    torch.tanh,
    torch.asinh,
    torch.acosh,
    torch.atanh,
    torch.sigmoid,
    torch.erf,
    torch.reciprocal,
)


def unary() -> Iterator[Case]:
    for run in TRANSCENDENTAL:
        yield from each(run.__name__, run, (f32, f64, f16, bf16, i32), both_kinds)
    for run in (torch.sqrt, torch.sigmoid, torch.sin):
        yield from each(run.__name__, run, (boolean, u8, i64), both_kinds)
    for run in (torch.abs, torch.neg):
        yield from each(run.__name__, run, FLOATS + INTEGERS, both_kinds)
    yield from each("sign", torch.sign, ALL, both_kinds)
    for run in (torch.ceil, torch.floor, torch.round, torch.trunc):
        yield from each(run.__name__, run, (f32, f64, f16, bf16, i32), both_kinds)
    yield case("round_decimals", lambda x: torch.round(x, decimals=1), (values(f32, *SHAPE),))
    yield case(
        "round_decimals_negative",
        lambda x: torch.round(x, decimals=-1),
        (values(f32, *SHAPE, scale=50.0),),
    )
    yield from each("isnan", torch.isnan, (f32, f16, i32), both_kinds)
    yield from each("isinf", torch.isinf, (f32, f16, i32), both_kinds)
    yield from each("logical_not", torch.logical_not, ALL, both_kinds)
    yield from each("bitwise_not", torch.bitwise_not, INTEGERS + (boolean,), both_kinds)
    yield from each("logit", torch.logit, (f32, f16), lambda d: (torch.rand(*SHAPE).to(d),))
    yield case(
        "logit_eps",
        lambda x: torch.logit(x, 0.1),
        (torch.rand(SHAPE),),
        (torch.tensor([0.0, 1.0, 0.05, 0.5, 2.0]).expand(SHAPE).clone(),),
    )
    yield from unary_shapes()


def unary_shapes() -> Iterator[Case]:
    """Shapes and layouts that all elementwise operators support."""
    n = Dim("n", min=0, max=9)
    for run in (torch.abs, torch.exp, torch.neg, torch.sqrt, torch.sigmoid):
        name = run.__name__
        yield case(f"{name}_zero_dim", run, (torch.tensor(0.7),))
        yield case(f"{name}_empty", run, (torch.empty(2, 0, 3),))
        yield case(f"{name}_channels_last", run, (last(values(f32, 2, 3, 4, 5)),))
        yield case(
            f"{name}_dynamic",
            run,
            (values(f32, 4, 3),),
            (values(f32, 1, 3),),
            (values(f32, 9, 3),),
            dynamic=({0: n},),
        )
        yield case(f"{name}_long", run, (values(f32, 1027),))


def without_infinity(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Excludes infinity: eager `gelu` returns NaN for it in some of its implementations."""
    x = specials(dtype, *shape)
    return torch.where(x == float("inf"), 30.0, x)


def activations() -> Iterator[Case]:
    runs = {
        "relu": F.relu,
        "relu6": F.relu6,
        "leaky_relu": F.leaky_relu,
        "leaky_relu_slope": lambda x: F.leaky_relu(x, 0.2),
        "elu": F.elu,
        "elu_alpha": lambda x: F.elu(x, 0.5),
        "selu": F.selu,
        "celu": lambda x: F.celu(x, 1.5),
        "gelu": F.gelu,
        "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
        "hardtanh": F.hardtanh,
        "hardtanh_bounds": lambda x: F.hardtanh(x, -0.5, 2.5),
        "hardsigmoid": F.hardsigmoid,
        "hardswish": F.hardswish,
        "silu": F.silu,
        "mish": F.mish,
        "softplus": F.softplus,
        "softsign": F.softsign,
        "logsigmoid": F.logsigmoid,
        "glu": lambda x: F.glu(x, -1),
        "threshold": lambda x: F.threshold(x, 0.5, -3.0),
    }
    for name, run in runs.items():
        shape = (3, 6) if name == "glu" else SHAPE
        special = without_infinity if name == "gelu" else specials
        yield from each(
            name,
            run,
            (f32, f16, bf16),
            lambda d: (
                [(values(d, *shape),), (special(d, *shape),)]
                if name != "glu"
                else (values(d, *shape),)
            ),
        )
    for run in (F.relu, F.gelu, F.hardswish):
        yield from each(run.__name__, run, (f64,), both_kinds)
    yield from each("relu", F.relu, INTEGERS, both_kinds)
    yield from each("hardtanh_int", lambda x: F.hardtanh(x, -3, 5), (i8, i32), both_kinds)
    yield case(
        "glu_preserved",
        lambda x: F.glu(x, 0),
        (values(f32, 4, 3),),
        preserve=[torch.ops.aten.glu.default],
    )
    yield case("prelu", nn.PReLU(3), (values(f32, 2, 3, 2, 2),))
    keep = {
        "hardsigmoid": torch.ops.aten.hardsigmoid.default,
        "hardswish": torch.ops.aten.hardswish.default,
        "silu": torch.ops.aten.silu.default,
    }
    for name, operator in keep.items():
        yield case(f"{name}_preserved", runs[name], (values(f32, *SHAPE),), preserve=[operator])


def pair(dtype: torch.dtype) -> list[tuple]:
    return [
        (values(dtype, *SHAPE), values(dtype, *SHAPE)),
        (values(dtype, *SHAPE), specials(dtype, *SHAPE)),
    ]


def safe_pair(dtype: torch.dtype) -> list[tuple]:
    """Divisors without zeros in dtypes where division by zero is an error."""
    ordinary = (values(dtype, *SHAPE), nonzero_values(dtype, *SHAPE))
    if dtype.is_floating_point:
        return [
            ordinary,
            (specials(dtype, *SHAPE), values(dtype, *SHAPE)),
            (values(dtype, *SHAPE), specials(dtype, *SHAPE)),
        ]
    return [ordinary]


def arithmetic() -> Iterator[Case]:
    yield from each("add", torch.add, ALL, pair)
    yield from each("sub", torch.sub, FLOATS + INTEGERS, pair)
    yield from each("mul", torch.mul, ALL, pair)
    yield from each("add_alpha", lambda x, y: torch.add(x, y, alpha=2), SOME, pair)
    yield from each("sub_alpha", lambda x, y: torch.sub(x, y, alpha=3), SOME, pair)
    yield case("add_alpha_float", lambda x, y: torch.add(x, y, alpha=0.5), *pair(f32))
    for name, run in {
        "add_scalar": lambda x: x + 3,
        "add_scalar_float": lambda x: x + 1.5,
        "sub_scalar": lambda x: x - 3,
        "mul_scalar": lambda x: x * 3,
        "mul_scalar_float": lambda x: x * 0.25,
        "div_scalar": lambda x: x / 4,
        "rsub": lambda x: 5 - x,
    }.items():
        yield from each(name, run, (f32, f16, bf16, i32, u8), both_kinds)
    yield case("rsub_alpha", lambda x: torch.rsub(x, 2.0, alpha=3.0), *both_kinds(f32))
    yield case("rsub_tensor", torch.rsub, *pair(f32))
    yield from each("div", torch.div, FLOATS + (i32, i64, u8, boolean), safe_pair)
    for mode in ("trunc", "floor"):
        run = rounding(mode)
        yield from each(f"div_{mode}", run, FLOATS + INTEGERS, safe_pair)
        yield from each(f"div_{mode}_scalar", lambda x, r=run: r(x, 3), (f32, i32), both_kinds)
        yield from each(
            f"div_{mode}_scalar_negative", lambda x, r=run: r(x, -2.5), (f32,), both_kinds
        )
    yield from each("floor_divide", torch.floor_divide, (f32, f16, i32, i64, u8), safe_pair)
    yield from each("fmod", torch.fmod, (f32, f64, f16, i32, i64, u8), safe_pair)
    yield from each("fmod_scalar", lambda x: torch.fmod(x, 3), (f32, i32), both_kinds)
    yield from each("remainder", torch.remainder, (f32, f64, f16, i32, i64, u8), safe_pair)
    yield from each("remainder_scalar", lambda x: torch.remainder(x, -3), (f32, i32), both_kinds)
    yield from each("atan2", torch.atan2, (f32, f64, f16, i32), pair)
    yield from each("maximum", torch.maximum, ALL, pair)
    yield from each("minimum", torch.minimum, ALL, pair)
    yield from powers()
    yield from broadcasting()
    yield from mixed()


def rounding(mode: str):
    return lambda x, y: torch.div(x, y, rounding_mode=mode)


def powers() -> Iterator[Case]:
    yield from each(
        "pow",
        torch.pow,
        (f32, f64, f16, bf16),
        lambda d: [
            (positive(d, *SHAPE), values(d, *SHAPE)),
            (values(d, *SHAPE), specials(d, *SHAPE)),
        ],
    )
    yield from each(
        "pow",
        torch.pow,
        (i32, i64),
        lambda d: (values(d, *SHAPE), torch.randint(0, 4, SHAPE, dtype=d)),
    )
    for exponent in (2, 3, 0.5, -1, 0, 2.5):
        yield case(
            f"pow_scalar_{str(exponent).replace('.', '_').replace('-', 'minus')}",
            lambda x, e=exponent: torch.pow(x, e),
            *both_kinds(f32),
        )
    yield from each("pow_scalar", lambda x: torch.pow(x, 3), (f16, i32, u8), both_kinds)
    yield from each("pow_of_scalar", lambda x: torch.pow(2.0, x), (f32, f16, i32), both_kinds)


def broadcasting() -> Iterator[Case]:
    shapes = {
        "row": ((3, 4), (4,)),
        "column": ((3, 4), (3, 1)),
        "both": ((3, 1, 4), (2, 1)),
        "one": ((2, 3), (1,)),
        "zero_dim": ((2, 3), ()),
        "zero_dims": ((), ()),
        "empty": ((0, 3), (1, 3)),
        "deep": ((2, 1, 3, 1, 2), (4, 1, 3, 1)),
        "left": ((4,), (2, 3, 4)),
    }
    for name, (a, b) in shapes.items():
        yield case(f"add_broadcast_{name}", torch.add, (values(f32, *a), values(f32, *b)))
        yield case(f"mul_broadcast_{name}", torch.mul, (values(f32, *a), values(f32, *b)))
        yield case(f"maximum_broadcast_{name}", torch.maximum, (values(i32, *a), values(i32, *b)))
    n = Dim("n", min=1, max=8)
    yield case(
        "add_dynamic",
        torch.add,
        *[(values(f32, k, 3), values(f32, k, 1)) for k in (4, 1, 8)],
        dynamic=({0: n}, {0: n}),
    )
    a, b = values(f32, 1, 3, 4, 4), values(f32, 1, 3, 4, 4)
    yield case("add_channels_last", torch.add, (last(a), last(b)))
    yield case("add_mixed_layouts", torch.add, (last(a), b))
    yield case("mul_channels_last_broadcast", torch.mul, (last(a), last(values(f32, 1, 3, 1, 1))))


def mixed() -> Iterator[Case]:
    """Two dtypes and their promoted dtype."""
    pairs = [
        (i32, f32),
        (f16, f32),
        (bf16, f16),
        (u8, i8),
        (i64, i32),
        (boolean, i32),
        (boolean, f32),
        (f64, f32),
        (u8, i64),
        (i16, f16),
    ]
    for a, b in pairs:
        name = f"{NAMES[a]}_{NAMES[b]}"
        yield case(f"add_mixed_{name}", torch.add, (values(a, *SHAPE), values(b, *SHAPE)))
        yield case(f"mul_mixed_{name}", torch.mul, (values(b, *SHAPE), values(a, *SHAPE)))
        yield case(f"div_mixed_{name}", torch.div, (values(a, *SHAPE), positive(b, *SHAPE)))
    yield case("add_mixed_zero_dim", torch.add, (values(f32, *SHAPE), torch.tensor(1.5, dtype=f64)))
    yield case("mul_mixed_zero_dim", torch.mul, (values(i32, *SHAPE), torch.tensor(1.5)))


def comparison() -> Iterator[Case]:
    for run in (torch.eq, torch.ne, torch.lt, torch.le, torch.gt, torch.ge):
        yield from each(
            run.__name__,
            run,
            (f32, f16, bf16, u8, i32, i64, boolean),
            lambda d: pair(d) + [(specials(d, *SHAPE), specials(d, *SHAPE))],
        )
        yield from each(
            f"{run.__name__}_scalar",
            lambda x, r=run: r(x, 1),
            (f32, f16, i32, u8, boolean),
            both_kinds,
        )
        yield case(f"{run.__name__}_scalar_fraction", lambda x, r=run: r(x, 0.5), *both_kinds(i32))
        yield case(f"{run.__name__}_broadcast", run, (values(i32, 3, 1), values(i32, 4)))
        yield case(f"{run.__name__}_mixed", run, (values(i32, *SHAPE), values(f32, *SHAPE)))
    for run in (torch.logical_and, torch.logical_or, torch.logical_xor):
        yield from each(run.__name__, run, (boolean, f32, i32, u8), pair)
        yield case(f"{run.__name__}_mixed", run, (values(boolean, 3, 1), values(f32, 4)))
    for run in (torch.bitwise_and, torch.bitwise_or, torch.bitwise_xor):
        yield from each(run.__name__, run, INTEGERS + (boolean,), pair)
        yield case(f"{run.__name__}_scalar", lambda x, r=run: r(x, 6), *both_kinds(i32))
    for run in (torch.bitwise_left_shift, torch.bitwise_right_shift):
        name = run.__name__.removeprefix("bitwise_")
        yield from each(
            name,
            run,
            (u8, i8, i32, i64),
            lambda d: (values(d, *SHAPE), torch.randint(0, 7, SHAPE, dtype=d)),
        )
        yield from each(f"{name}_scalar", lambda x, r=run: r(x, 2), (u8, i32), both_kinds)


def choice() -> Iterator[Case]:
    yield from each(
        "where",
        torch.where,
        ALL,
        lambda d: (values(boolean, *SHAPE), values(d, *SHAPE), values(d, *SHAPE)),
    )
    yield case(
        "where_broadcast",
        torch.where,
        (values(boolean, 3, 1), values(f32, 4), values(f32, 2, 1, 1)),
    )
    yield case("where_scalar", lambda x: torch.where(x > 0, x, 0.0), *both_kinds(f32))
    yield case(
        "where_mixed",
        torch.where,
        (values(boolean, *SHAPE), values(f32, *SHAPE), values(i32, *SHAPE)),
    )
    yield from each(
        "masked_fill",
        lambda x, m: x.masked_fill(m, 3),
        SOME + (boolean,),
        lambda d: (values(d, *SHAPE), values(boolean, *SHAPE)),
    )
    yield case(
        "masked_fill_broadcast",
        lambda x, m: x.masked_fill(m, -float("inf")),
        (values(f32, 2, *SHAPE), values(boolean, 5)),
    )
    yield from each(
        "clamp", lambda x: torch.clamp(x, -1, 2), (f32, f64, f16, bf16, i8, i32, i64), both_kinds
    )
    yield from each("clamp_min", lambda x: torch.clamp(x, min=1), (f32, u8, i32), both_kinds)
    yield from each("clamp_max", lambda x: torch.clamp(x, max=1), (f32, u8, i32), both_kinds)
    yield case("clamp_fraction_of_int", lambda x: torch.clamp(x, -1.5, 2.5), *both_kinds(i32))
    yield case("clamp_crossed", lambda x: torch.clamp(x, 2.0, -1.0), *both_kinds(f32))
    yield from each(
        "clamp_tensor",
        torch.clamp,
        (f32, f16, i32),
        lambda d: (values(d, *SHAPE), values(d, 5), values(d, 3, 1)),
    )
    yield case(
        "clamp_tensor_max",
        lambda x, high: torch.clamp(x, max=high),
        (values(f32, *SHAPE), values(f32, 5)),
    )
    yield case(
        "clamp_tensor_nan",
        torch.clamp,
        (specials(f32, 15), specials(f32, 15).flip(0), values(f32, 15)),
    )
    # Transformers clamp fp16 values by 0-dim fp32 tensors.
    scalar = lambda value: torch.tensor(value, dtype=f32)
    yield case(
        "clamp_tensor_numbers", torch.clamp, (values(f16, *SHAPE), scalar(-0.7), scalar(0.9))
    )
    yield case(
        "clamp_tensor_bf16",
        torch.clamp,
        (values(bf16, *SHAPE), values(bf16, 5), values(bf16, 3, 1)),
    )
    yield case(
        "clamp_tensor_min",
        lambda x, low: torch.clamp(x, min=low),
        (values(f32, *SHAPE), values(f32, 5)),
    )


def fmax_fmin_copysign() -> Iterator[Case]:
    """`fmax` and `fmin`, which ignore NaN, and `copysign`."""
    for name, run in (("fmax", torch.fmax), ("fmin", torch.fmin), ("copysign", torch.copysign)):
        yield from each(
            name,
            run,
            (f32, f64, f16, i64),
            lambda d: (specials(d, 3, 15), specials(d, 3, 15).flip(1)),
        )
        yield from each(
            f"{name}_broadcast", run, (f32,), lambda d: (values(d, 4, 1, 3), values(d, 2, 1))
        )
        yield case(f"{name}_mixed", run, (values(f16, 2, 5), specials(f32, 2, 5)))


FAMILIES = {
    "number": fmax_fmin_copysign,
    "unary": unary,
    "activation": activations,
    "arithmetic": arithmetic,
    "comparison": comparison,
    "choice": choice,
}
