"""Elementwise operators: unary, arithmetic, comparisons, logic, `where`, conversions."""

from __future__ import annotations

from typing import Iterator

import torch
import torch.nn.functional as F
from op_cases.table import boolean, f16, f32, i32, i64, nonzero_values, positive, values
from torch import nn
from torch.export import Dim

from .table import Delegated, case, half, halved

SHAPE = (2, 3, 5)


def unary() -> Iterator[Delegated]:
    for name, run in {
        "abs": torch.abs,
        "neg": torch.neg,
        "exp": torch.exp,
        "sin": torch.sin,
        "cos": torch.cos,
        "tanh": torch.tanh,
        "sigmoid": torch.sigmoid,
    }.items():
        yield from halved([case(name, run, (values(f32, *SHAPE),))])
    for name, run in {"sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "log10": torch.log10}.items():
        yield from halved([case(name, run, (positive(f32, *SHAPE),))])
    ties = torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.49, 3.7, -3.2])
    yield case("round_ties", torch.round, (ties,))
    yield case("abs_vector", torch.abs, (values(f32, 7),))
    yield case("abs_scalar", torch.abs, (torch.tensor(-2.5),))
    yield case("tanh_four", torch.tanh, (values(f32, 2, 3, 4, 3),))
    yield case(
        "tanh_large", torch.tanh, (torch.tensor([-100.0, -20.0, -1e-4, 0.0, 1e-4, 20.0, 100.0]),)
    )
    yield case("sigmoid_large", torch.sigmoid, (torch.tensor([-100.0, -20.0, 0.0, 20.0, 100.0]),))
    yield case("exp_large", torch.exp, (torch.tensor([-100.0, -20.0, 0.0, 20.0, 80.0]),))


def activation() -> Iterator[Delegated]:
    x = (values(f32, 2, 5, 3),)
    yield from halved(
        [
            case("relu", F.relu, x),
            case("relu6", F.relu6, (values(f32, 2, 5, 3, scale=6.0),)),
            case("hardtanh", lambda x: F.hardtanh(x, -0.7, 1.3), x),
            case("gelu", F.gelu, x),
            case("hardswish", F.hardswish, (values(f32, 2, 5, 3, scale=4.0),)),
            case("leaky_relu", lambda x: F.leaky_relu(x, 0.2), x),
            case("silu", F.silu, x),
        ]
    )
    yield case("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), x)
    yield case("gelu_large", F.gelu, (torch.tensor([-50.0, -6.0, 0.0, 6.0, 50.0]),))
    yield case("hardshrink", lambda x: F.hardshrink(x, 0.8), x, outside=["aten::scalar_tensor.out"])
    yield case("hardsigmoid", F.hardsigmoid, (values(f32, 2, 5, 3, scale=4.0),))
    yield case("glu", F.glu, (values(f32, 3, 8),))
    yield case("prelu", nn.PReLU(5, 0.3), x)
    yield case("elu_by_parts", lambda x: torch.where(x > 0, x, torch.exp(x) - 1), x)
    yield case("clamp", lambda x: torch.clamp(x, -0.5, 1.0), x)
    yield case("clamp_min", lambda x: torch.clamp(x, min=0.25), x)
    yield case("clamp_max", lambda x: torch.clamp(x, max=0.25), x)
    yield case("clamp_int", lambda x: torch.clamp(x, -3, 7), (values(i32, 3, 5),))


def arithmetic() -> Iterator[Delegated]:
    shapes = {
        "same": ((2, 3, 5), (2, 3, 5)),
        "rows": ((2, 3, 5), (5,)),
        "columns": ((2, 3, 5), (3, 1)),
        "both": ((3, 1, 5), (1, 4, 1)),
        "scalar": ((2, 3), ()),
        "five": ((2, 1, 2, 3, 2), (2, 2, 1, 3, 1)),
    }
    for name, (a, b) in shapes.items():
        yield case(f"add_{name}", torch.add, (values(f32, *a), values(f32, *b)))
        yield case(f"mul_{name}", torch.mul, (values(f32, *a), values(f32, *b)))
    a, b = values(f32, 3, 7), nonzero_values(f32, 3, 7)
    yield from halved(
        [
            case("add_alpha", lambda x, y: torch.add(x, y, alpha=2.5), (a, b)),
            case("sub", torch.sub, (a, b)),
            case("sub_alpha", lambda x, y: torch.sub(x, y, alpha=-0.5), (a, b)),
            case("mul", torch.mul, (a, b)),
            case("div", torch.div, (a, positive(f32, 3, 7))),
            case("minimum", torch.minimum, (a, b)),
        ]
    )
    yield case("minimum_broadcast", torch.minimum, (values(f32, 2, 3, 4), values(f32, 3, 1)))
    yield case("div_broadcast", torch.div, (values(f32, 2, 3, 4), positive(f32, 3, 1)))
    yield case("floor_divide", lambda x, y: torch.div(x, y, rounding_mode="floor"), (a, b))
    yield case("floor_divide_scalar", lambda x: torch.div(x, -1.5, rounding_mode="floor"), (a,))
    yield case(
        "floor_divide_int",
        lambda x, y: torch.div(x, y, rounding_mode="floor"),
        (values(i32, 4, 5), nonzero_values(i32, 4, 5)),
    )
    yield case("truncated_division", lambda x, y: torch.div(x, y, rounding_mode="trunc"), (a, b))
    yield case("add_number", lambda x: x + 1.5, (a,))
    yield case("subtract_from_number", lambda x: 2.0 - x, (a,))
    yield case("number_over", lambda x: 2.0 / x, (b,), outside=["aten::reciprocal.out"])
    yield case("add_int", torch.add, (values(i32, 3, 5), values(i32, 3, 5)))
    yield case("mul_int", torch.mul, (values(i32, 3, 5), values(i32, 5)))
    yield case("sub_int64", torch.sub, (values(i64, 3, 5), values(i64, 3, 5)))
    yield case("add_half", torch.add, (values(f16, 3, 5), values(f16, 3, 5)))
    yield case("add_constant", AddConstant(), (a,))
    yield case("chain", lambda x, y: ((x + y) * 2 - x) / (y * y + 1), (a, b))
    yield case("one_twice", lambda x: x * x + x, (a,))
    yield case(
        "add_dynamic",
        torch.add,
        *[(values(f32, n, 5), values(f32, n, 5)) for n in (6, 1, 9, 4, 9)],
        dynamic=({0: Dim("n", min=1, max=9)},) * 2,
    )
    yield case(
        "broadcast_dynamic",
        lambda x, y: x * y + 1,
        *[(values(f32, n, 5), values(f32, 5)) for n in (6, 1, 9, 4)],
        dynamic=({0: Dim("n", min=1, max=9)}, None),
    )


class AddConstant(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("constant", values(f32, 1, 7))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.constant


def power() -> Iterator[Delegated]:
    for exponent in (2.0, 3.0, 0.5, -1.0, 1.0):
        name = str(exponent).replace(".", "_").replace("-", "minus_")
        yield case(f"pow_{name}", lambda x, e=exponent: torch.pow(x, e), (positive(f32, 3, 5),))
    yield case("square_negative", lambda x: torch.pow(x, 2), (values(f32, 3, 5),))
    yield case("pow_tensor", torch.pow, (positive(f32, 3, 5), values(f32, 3, 5)))
    yield half(case("pow", lambda x: torch.pow(x, 2.0), (positive(f32, 3, 5),)))


def comparison() -> Iterator[Delegated]:
    x, y = values(i32, 4, 5), values(i32, 4, 5)
    y[0] = x[0]
    for name, run in {
        "eq": torch.eq,
        "lt": torch.lt,
        "le": torch.le,
        "gt": torch.gt,
        "ge": torch.ge,
    }.items():
        yield case(f"{name}", run, (x.float(), y.float()))
        yield case(f"{name}_int", run, (x, y))
        yield case(f"{name}_number", lambda x, run=run: run(x, 2.0), (x.float(),))
    yield case("ne_number", lambda x: torch.ne(x, 2.0), (torch.tensor([1.0, 2.0, 3.0, 2.0, -2.0]),))
    yield case("lt_broadcast", torch.lt, (values(f32, 2, 3, 4), values(f32, 3, 1)))


def logic() -> Iterator[Delegated]:
    x, y = values(boolean, 3, 5), values(boolean, 3, 5)
    for name, run in {
        "logical_and": torch.logical_and,
        "logical_or": torch.logical_or,
        "bitwise_and": torch.bitwise_and,
        "bitwise_or": torch.bitwise_or,
    }.items():
        yield case(name, run, (x, y))
    yield case("bitwise_not", torch.bitwise_not, (x,))
    yield case("logical_not", torch.logical_not, (x,))
    yield case(
        "logical_and_broadcast", torch.logical_and, (values(boolean, 2, 3, 4), values(boolean, 4))
    )
    yield case("in_range", lambda x: (x > -1) & (x < 1), (values(f32, 3, 5),))


def choice() -> Iterator[Delegated]:
    mask = values(boolean, 3, 5)
    yield from halved([case("where", torch.where, (mask, values(f32, 3, 5), values(f32, 3, 5)))])
    yield case(
        "where_broadcast",
        torch.where,
        (values(boolean, 3, 1), values(f32, 2, 3, 4), values(f32, 4)),
    )
    yield case("where_computed", lambda x: torch.where(x > 0, x, x * 0.1), (values(f32, 3, 5),))


def conversion() -> Iterator[Delegated]:
    x = values(f32, 3, 5, scale=9.0)
    yield case("float_to_int", lambda x: x.to(i32), (x,))
    yield case("int_to_float", lambda x: x.to(f32) * 0.5, (values(i32, 3, 5),))
    yield case("float_to_half", lambda x: x.to(f16), (x,))
    yield case("half_to_float", lambda x: x.to(f32) * 2, (x.to(f16),))
    yield case("bool_to_float", lambda x: x.to(f32) + 1, (values(boolean, 3, 5),))
    yield case("int64_to_float", lambda x: x.to(f32), (values(i64, 3, 5),))
    yield case("copy_of_aten", lambda x: x.to(f16).to(f32) + 1, (x,), dim_order=False, rtol=1e-3)
    yield case("int_plus_float", lambda x, y: x + y, (values(i32, 3, 5), x))


FAMILIES = {
    "unary": unary,
    "activation": activation,
    "arithmetic": arithmetic,
    "power": power,
    "comparison": comparison,
    "logic": logic,
    "choice": choice,
    "conversion": conversion,
}
