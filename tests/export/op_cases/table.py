"""Building blocks of the operator case tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Iterator, Sequence

import torch
from torch import nn

f64, f32, f16, bf16 = torch.float64, torch.float32, torch.float16, torch.bfloat16
i8, u8, i16, i32, i64, boolean = (
    torch.int8,
    torch.uint8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.bool,
)

FLOATS = (f32, f64, f16, bf16)
INTEGERS = (u8, i8, i16, i32, i64)
ALL = FLOATS + INTEGERS + (boolean,)
SOME = (f32, f16, bf16, i32, i64)

NAMES = {
    f64: "f64",
    f32: "f32",
    f16: "f16",
    bf16: "bf16",
    i8: "i8",
    u8: "u8",
    i16: "i16",
    i32: "i32",
    i64: "i64",
    boolean: "bool",
}

Inputs = tuple[Any, ...]
Run = Callable[..., Any]


@dataclass
class Case:
    """One operator, run on inputs of one shape, or of several shapes with `dynamic`."""

    name: str
    run: Run
    inputs: Sequence[Inputs]
    dynamic: Any = None
    """As torch.export's `dynamic_shapes`: the dynamic dims of each input."""
    preserve: Sequence[Any] = ()
    """Operators to keep undecomposed."""
    dim_order: bool = True
    """Whether copies use dim-order operators instead of ATen's."""
    reinplace: bool = False
    """Whether the exporter may replace operators by in-place ones."""
    atol: float | None = None
    """Absolute tolerance, where the dtypes' default does not fit."""
    rtol: float | None = None


def case(name: str, run: Run, *inputs: Inputs, **options: Any) -> Case:
    return Case(name, run, inputs, **options)


def each(
    name: str,
    run: Run,
    dtypes: Sequence[torch.dtype],
    inputs: Callable[[torch.dtype], Any],
    **options: Any,
) -> Iterator[Case]:
    """The same operator in several dtypes; `inputs` returns a tuple of inputs or a list of them."""
    for dtype in dtypes:
        made = inputs(dtype)
        yield Case(
            f"{name}_{NAMES[dtype]}", run, made if isinstance(made, list) else [made], **options
        )


def values(dtype: torch.dtype, *shape: int, scale: float = 2.0) -> torch.Tensor:
    """Random values of moderate size, including negative ones where the dtype has them."""
    if dtype == boolean:
        return torch.rand(shape) > 0.5
    if dtype.is_floating_point:
        return (torch.randn(shape, dtype=f64) * scale).to(dtype)
    return torch.randint(0 if dtype == u8 else -20, 40 if dtype == u8 else 21, shape, dtype=dtype)


def positive(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Random values from 1 to 8."""
    if dtype == boolean:
        return torch.ones(shape, dtype=boolean)
    if dtype.is_floating_point:
        return (torch.rand(shape, dtype=f64) * 7 + 1).to(dtype)
    return torch.randint(1, 9, shape, dtype=dtype)


def nonzero_values(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    made = values(dtype, *shape)
    return torch.where(made == 0, torch.ones((), dtype=dtype), made)


def specials(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Special values of the dtype: NaN, infinities, signed zeros, ties, the limits of its range."""
    if dtype.is_floating_point:
        inf, nan = float("inf"), float("nan")
        row = [nan, inf, -inf, 0.0, -0.0, 0.5, 1.5, 2.5, -0.5, -1.5, 1.0, -1.0, 1e-4, -1e-4, 30.0]
    elif dtype == boolean:
        row = [True, False]
    else:
        ends = torch.iinfo(dtype)
        row = [ends.min, ends.max, 0, 1, ends.max - 1, ends.min + 1, 2, 3]
    tensor = torch.tensor(row, dtype=dtype)
    count = 1
    for size in shape:
        count *= size
    return tensor.repeat(count // len(row) + 1)[:count].reshape(shape)


def last(tensor: torch.Tensor) -> torch.Tensor:
    """Converts to channels-last memory format."""
    form = torch.channels_last if tensor.dim() == 4 else torch.channels_last_3d
    return tensor.contiguous(memory_format=form)


def longs(*items: int) -> torch.Tensor:
    return torch.tensor(items, dtype=i64)


def plain(outputs: Any) -> Any:
    """Converts PyTorch's named tuples to plain tuples."""
    return tuple(outputs) if isinstance(outputs, tuple) else outputs


class Function(nn.Module):
    """Wraps a function in a module.

    Modules captured in the function's closure are not exported: pass such a module itself.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

    def forward(self, *inputs: Any) -> Any:
        return self.run(*inputs)


def module_of(run: Run) -> nn.Module:
    return run if isinstance(run, nn.Module) else Function(run)
