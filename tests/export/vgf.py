"""Writes the cases for Arm's VGF delegate: `fixtures/vgf/<name>.bpte`.

`networks` are exported with `VgfPartitioner`. The other files hold operators of TOSA in each dtype,
many in one graph: TOSA flatbuffers that Arm's `model-converter` converts, in a program with one
delegate call. All outputs are those of the TOSA reference model.

    python vgf.py                    # the fixtures
    python vgf.py --table COMMAND    # each operator alone: runs `COMMAND verify`, prints a table
    python vgf.py --tosa COMMAND     # the same with the TOSA flatbuffers, not converted to VGF

Needs, beside ExecuTorch: `ai_ml_sdk_model_converter`, `tosa-tools`, `ml_dtypes`.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import tempfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Iterator, Sequence

from common import FIXTURES, Manifest, Tolerance, _Bundle

import ml_dtypes
import numpy as np
import tosa_reference_model
import torch
from executorch.devtools.bundled_program.serialize import (
    serialize_from_bundled_program_to_flatbuffer,
)
from executorch.exir import schema
from executorch.exir._serialize._program import PTEFile, serialize_pte_binary
from executorch.exir.tensor import scalar_type_enum
from serializer.tosa_serializer import DType, TosaOp, TosaSerializer, TosaSerializerAttribute

FOLDER = "vgf"
PROPAGATE, IGNORE = 1, 2
SINGLE, INEXACT, DOUBLE = 1, 2, 3
NEAREST, BILINEAR = 1, 2

NUMPY = {
    DType.BOOL: np.bool_,
    DType.INT8: np.int8,
    DType.INT16: np.int16,
    DType.INT32: np.int32,
    DType.INT48: np.int64,
    DType.FP16: np.float16,
    DType.FP32: np.float32,
    DType.BF16: ml_dtypes.bfloat16,
}
TORCH = {
    DType.BOOL: torch.bool,
    DType.INT8: torch.int8,
    DType.INT16: torch.int16,
    DType.INT32: torch.int32,
    DType.INT48: torch.int64,
    DType.FP16: torch.float16,
    DType.FP32: torch.float32,
    DType.BF16: torch.bfloat16,
}
NAMES = {
    DType.BOOL: "bool",
    DType.INT8: "int8",
    DType.INT16: "int16",
    DType.INT32: "int32",
    DType.FP16: "fp16",
    DType.FP32: "fp32",
    DType.BF16: "bf16",
}
FLOATS = (DType.FP16, DType.FP32, DType.BF16)


class Graph:
    """A TOSA graph under construction, with the values of its inputs."""

    def __init__(self, name: str) -> None:
        self.builder = TosaSerializer("", tosa_version_minor=0, tosa_version_draft=False)
        self.random = np.random.default_rng(zlib.crc32(name.encode()))
        self.inputs: list[np.ndarray] = []
        self.input_types: list[int] = []
        self.outputs: list[tuple[int, list[int]]] = []

    def values(self, shape: Sequence[int], dtype: int, low: float, high: float) -> np.ndarray:
        if dtype == DType.BOOL:
            return self.random.integers(0, 2, shape).astype(np.bool_)
        if dtype in FLOATS:
            return self.random.uniform(low, high, shape).astype(NUMPY[dtype])
        return self.random.integers(int(low), int(high) + 1, shape).astype(NUMPY[dtype])

    def input(self, shape: Sequence[int], dtype: int, low: float = -4, high: float = 4) -> Any:
        values = self.values(shape, dtype, low, high)
        self.inputs.append(values)
        self.input_types.append(dtype)
        return self.builder.addPlaceholder(list(shape), dtype, None)

    def const(self, dtype: int, values: Any) -> Any:
        values = np.asarray(values, NUMPY[dtype])
        return self.builder.addConst(list(values.shape), dtype, values)

    def random_const(self, shape: Sequence[int], dtype: int, low: float, high: float) -> Any:
        return self.const(dtype, self.values(shape, dtype, low, high))

    def shape(self, values: Sequence[int]) -> Any:
        return self.builder.addConst([len(values)], DType.SHAPE, list(values))

    def zero(self, dtype: int, value: int = 0) -> Any:
        return self.const(dtype, [value])

    def op(
        self,
        name: str,
        inputs: Sequence[Any],
        out: Sequence[tuple[Sequence[int], int]],
        *attributes: Any,
    ) -> None:
        """Adds a call whose results are outputs of the graph."""
        attribute = TosaSerializerAttribute()
        kind = name.replace("_", "").lower() + "attribute"
        make = next(
            getattr(attribute, method) for method in dir(attribute) if method.lower() == kind
        )
        make(*attributes)
        add = self.builder.addIntermediate
        if all(dtype != DType.INT48 for _, dtype in out):
            add = self.builder.addOutput
            self.outputs += [(dtype, list(shape)) for shape, dtype in out]
        results = [add(list(shape), dtype) for shape, dtype in out]
        self.builder.addOperator(
            getattr(TosaOp.Op(), name),
            [tensor.name for tensor in inputs],
            [tensor.name for tensor in results],
            attribute,
        )
        for result, (shape, dtype) in zip(results, out):
            if dtype == DType.INT48:
                # Programs have no such dtype, so a rescaling follows.
                parameters = [self.const(DType.INT16, [1 << 14]), self.const(DType.INT8, [20])]
                zero = [self.zero(DType.INT48), self.zero(DType.INT32)]
                flags = (False, SINGLE, False, False, False)
                out = [(shape, DType.INT32)]
                self.op("RESCALE", [result, *parameters, *zero], out, *flags)

    def clamp_limits(self, dtype: int, low: float, high: float) -> tuple[Any, Any, Any]:
        ends = [list(np.asarray([end], NUMPY[dtype]).tobytes()) for end in (low, high)]
        return (self.builder.builder, *ends)


@dataclass
class Case:
    """An operator in a dtype."""

    op: str
    dtype: int
    build: Callable[[Graph, int], None]
    note: str = ""

    @property
    def title(self) -> str:
        return f"{self.op} {NAMES[self.dtype]}{' ' + self.note if self.note else ''}"


CASES: list[Case] = []


def case(op: str, *dtypes: int, note: str = "") -> Callable[..., Any]:
    def add(build: Callable[[Graph, int], None]) -> Callable[[Graph, int], None]:
        CASES.extend(Case(op, dtype, build, note) for dtype in dtypes)
        return build

    return add


def spread(dtype: int) -> tuple[float, float]:
    """The range of values of an input."""
    return {
        DType.INT8: (-128, 127),
        DType.INT16: (-32768, 32767),
        DType.INT32: (-(2**20), 2**20),
    }.get(dtype, (-4.0, 4.0))


def sum_type(dtype: int) -> int:
    return {DType.INT8: DType.INT32, DType.INT16: DType.INT48}.get(dtype, dtype)


def accumulator(dtype: int) -> int:
    return {DType.INT8: DType.INT32, DType.INT16: DType.INT48}.get(dtype, DType.FP32)


def weight_type(dtype: int) -> int:
    return dtype if dtype in FLOATS else DType.INT8


INTS = (DType.INT8, DType.INT16)
ALL = (*INTS, *FLOATS)


def image(g: Graph, shape: Sequence[int], dtype: int) -> Any:
    return g.input(shape, dtype, *spread(dtype))


def weights(g: Graph, shape: Sequence[int], dtype: int) -> Any:
    of = weight_type(dtype)
    return g.random_const(shape, of, *((-1, 1) if of in FLOATS else (-127, 127)))


def bias(g: Graph, channels: int, dtype: int) -> Any:
    of = sum_type(dtype)
    return g.random_const([channels], of, *((-1, 1) if of in FLOATS else (-5000, 5000)))


def zeros(g: Graph, dtype: int, input_zp: int) -> list[Any]:
    """Zero points of an input and of weights."""
    return [g.zero(dtype, input_zp if dtype == DType.INT8 else 0), g.zero(weight_type(dtype))]


@case("CONV2D", *ALL)
def conv2d(g: Graph, t: int) -> None:
    inputs = [image(g, (1, 7, 8, 3), t), weights(g, (4, 3, 2, 3), t), bias(g, 4, t)]
    attributes = ([1, 1, 1, 1], [2, 1], [1, 2], False, accumulator(t))
    g.op("CONV2D", inputs + zeros(g, t, -3), [((1, 4, 8, 4), sum_type(t))], *attributes)


@case("CONV3D", *ALL)
def conv3d(g: Graph, t: int) -> None:
    inputs = [image(g, (1, 4, 5, 5, 2), t), weights(g, (3, 2, 3, 3, 2), t), bias(g, 1, t)]
    attributes = ([0, 1, 1, 1, 1, 0], [1, 2, 1], [1, 1, 1], False, accumulator(t))
    g.op("CONV3D", inputs + zeros(g, t, 5), [((1, 4, 3, 4, 3), sum_type(t))], *attributes)


@case("DEPTHWISE_CONV2D", *ALL)
def depthwise(g: Graph, t: int) -> None:
    inputs = [image(g, (2, 6, 5, 3), t), weights(g, (3, 3, 3, 2), t), bias(g, 6, t)]
    attributes = ([1, 0, 1, 1], [2, 1], [1, 1], False, accumulator(t))
    g.op("DEPTHWISE_CONV2D", inputs + zeros(g, t, 7), [((2, 3, 5, 6), sum_type(t))], *attributes)


@case("TRANSPOSE_CONV2D", *ALL)
def transposed(g: Graph, t: int) -> None:
    inputs = [image(g, (1, 4, 3, 3), t), weights(g, (2, 3, 3, 3), t), bias(g, 2, t)]
    attributes = ([-1, 0, -1, 0], [2, 2], False, accumulator(t))
    out = [((1, 8, 6, 2), sum_type(t))]
    g.op("TRANSPOSE_CONV2D", inputs + zeros(g, t, -9), out, *attributes)


@case("TRANSPOSE_CONV2D", DType.INT8, DType.FP32, note="padded")
def transposed_padded(g: Graph, t: int) -> None:
    inputs = [image(g, (1, 4, 3, 3), t), weights(g, (2, 3, 3, 3), t), bias(g, 2, t)]
    attributes = ([2, 1, 0, -2], [1, 2], False, accumulator(t))
    out = [((1, 9, 5, 2), sum_type(t))]
    g.op("TRANSPOSE_CONV2D", inputs + zeros(g, t, -9), out, *attributes)


@case("MATMUL", *ALL)
def matmul(g: Graph, t: int) -> None:
    zero = [g.zero(t, 4 if t == DType.INT8 else 0), g.zero(t, -2 if t == DType.INT8 else 0)]
    inputs = [image(g, (2, 3, 9), t), image(g, (2, 9, 4), t)]
    out = DType.FP32 if t == DType.BF16 else sum_type(t)
    g.op("MATMUL", inputs + zero, [((2, 3, 4), out)])


@case("AVG_POOL2D", *ALL)
def average(g: Graph, t: int) -> None:
    zero = [g.zero(t, 6 if t == DType.INT8 else 0), g.zero(t, -5 if t == DType.INT8 else 0)]
    inputs = [image(g, (1, 7, 6, 3), t), *zero]
    accumulate = DType.INT32 if t in INTS else DType.FP32
    attributes = ([3, 2], [2, 2], [1, 1, 0, 0], accumulate)
    g.op("AVG_POOL2D", inputs, [((1, 4, 3, 3), t)], *attributes)


@case("AVG_POOL2D", DType.INT8, DType.FP32, note="asymmetric")
def average_asymmetric(g: Graph, t: int) -> None:
    inputs = [image(g, (1, 6, 6, 2), t), g.zero(t), g.zero(t)]
    accumulate = DType.INT32 if t in INTS else DType.FP32
    attributes = ([3, 3], [1, 1], [0, 2, 1, 0], accumulate)
    g.op("AVG_POOL2D", inputs, [((1, 6, 5, 2), t)], *attributes)


@case("MAX_POOL2D", *ALL)
def largest(g: Graph, t: int) -> None:
    attributes = ([3, 2], [2, 2], [2, 0, 0, 0], PROPAGATE)
    g.op("MAX_POOL2D", [image(g, (1, 7, 6, 3), t)], [((1, 4, 3, 3), t)], *attributes)


@case("FFT2D", DType.FP32)
def fft(g: Graph, t: int) -> None:
    inputs = [g.input((2, 4, 8), t), g.input((2, 4, 8), t)]
    g.op("FFT2D", inputs, [((2, 4, 8), t)] * 2, False, False)


@case("FFT2D", DType.FP32, note="inverse")
def inverse_fft(g: Graph, t: int) -> None:
    inputs = [g.input((1, 8, 4), t), g.input((1, 8, 4), t)]
    g.op("FFT2D", inputs, [((1, 8, 4), t)] * 2, True, False)


@case("RFFT2D", DType.FP32)
def rfft(g: Graph, t: int) -> None:
    g.op("RFFT2D", [g.input((2, 4, 8), t)], [((2, 4, 5), t)] * 2, False)


@case("ARGMAX", *ALL)
def argmax(g: Graph, t: int) -> None:
    g.op("ARGMAX", [image(g, (2, 5, 3), t)], [((2, 3), DType.INT32)], 1, PROPAGATE)


@case("CLAMP", *ALL)
def clamp(g: Graph, t: int) -> None:
    low, high = (-1.5, 2.25) if t in FLOATS else (-20, 60)
    limits = g.clamp_limits(t, low, high)
    g.op("CLAMP", [image(g, (3, 7), t)], [((3, 7), t)], *limits, PROPAGATE)


def unary(op: str, *dtypes: int, low: float = -4, high: float = 4) -> None:
    def build(g: Graph, t: int) -> None:
        ends = (low, high) if t in FLOATS else spread(t)
        g.op(op, [g.input((3, 7), t, *ends)], [((3, 7), t)])

    case(op, *dtypes)(build)


for name in ("CEIL", "COS", "ERF", "EXP", "FLOOR", "SIGMOID", "SIN", "TANH"):
    unary(name, *FLOATS)
for name in ("LOG", "RECIPROCAL", "RSQRT"):
    unary(name, *FLOATS, low=0.1)
unary("ABS", DType.INT32, *FLOATS)
unary("BITWISE_NOT", *INTS, DType.INT32)
unary("CLZ", DType.INT32)
unary("LOGICAL_NOT", DType.BOOL)


def binary(op: str, *dtypes: int, attributes: Sequence[Any] = (), out: int | None = None) -> None:
    def build(g: Graph, t: int) -> None:
        inputs = [image(g, (2, 3, 5), t), image(g, (2, 1, 5), t)]
        g.op(op, inputs, [((2, 3, 5), t if out is None else out)], *attributes)

    case(op, *dtypes)(build)


for name in ("ADD", "SUB"):
    binary(name, DType.INT32, *FLOATS)
for name in ("BITWISE_AND", "BITWISE_OR", "BITWISE_XOR"):
    binary(name, *INTS, DType.INT32)
for name in ("LOGICAL_AND", "LOGICAL_OR", "LOGICAL_XOR"):
    binary(name, DType.BOOL)
for name in ("MAXIMUM", "MINIMUM"):
    binary(name, DType.INT32, *FLOATS, attributes=[PROPAGATE])
for name in ("EQUAL", "GREATER", "GREATER_EQUAL"):
    binary(name, DType.INT32, *FLOATS, out=DType.BOOL)


@case("POW", *FLOATS)
def power(g: Graph, t: int) -> None:
    inputs = [g.input((2, 3, 5), t, 0.1, 3), g.input((2, 1, 5), t, -2, 2)]
    g.op("POW", inputs, [((2, 3, 5), t)])


@case("INTDIV", DType.INT32)
def divide(g: Graph, t: int) -> None:
    inputs = [g.input((2, 3, 5), t, -(2**20), 2**20), g.input((2, 1, 5), t, 1, 99)]
    g.op("INTDIV", inputs, [((2, 3, 5), t)])


@case("MUL", *ALL, DType.INT32)
def multiply(g: Graph, t: int) -> None:
    inputs = [g.input((2, 3, 5), t, -100, 100), g.input((2, 1, 5), t, -100, 100)]
    out = DType.INT32 if t in INTS else t
    g.op("MUL", [*inputs, g.zero(DType.INT8)], [((2, 3, 5), out)])


@case("MUL", DType.INT32, note="shifted")
def multiply_shifted(g: Graph, t: int) -> None:
    inputs = [image(g, (2, 3, 5), t), image(g, (2, 1, 5), t)]
    g.op("MUL", [*inputs, g.zero(DType.INT8, 13)], [((2, 3, 5), t)])


def shift(op: str, attributes: Sequence[Any] = (), note: str = "") -> None:
    def build(g: Graph, t: int) -> None:
        bits = {DType.INT8: 7, DType.INT16: 15}.get(t, 31)
        by = g.random_const((2, 1, 5), t, 0, bits)
        g.op(op, [image(g, (2, 3, 5), t), by], [((2, 3, 5), t)], *attributes)

    case(op, *INTS, DType.INT32, note=note)(build)


shift("ARITHMETIC_RIGHT_SHIFT", [False])
shift("ARITHMETIC_RIGHT_SHIFT", [True], note="rounded")
shift("LOGICAL_LEFT_SHIFT")
shift("LOGICAL_RIGHT_SHIFT")


@case("TABLE", *INTS)
def table(g: Graph, t: int) -> None:
    entries = 256 if t == DType.INT8 else 513
    lut = g.random_const([entries], t, *((-128, 127) if t == DType.INT8 else (-16000, 16000)))
    out = DType.INT8 if t == DType.INT8 else DType.INT32
    g.op("TABLE", [image(g, (3, 40), t), lut], [((3, 40), out)])


@case("NEGATE", *ALL, DType.INT32)
def negate(g: Graph, t: int) -> None:
    zero = [g.zero(t, 9 if t == DType.INT8 else 0), g.zero(t, -4 if t == DType.INT8 else 0)]
    g.op("NEGATE", [image(g, (3, 7), t), *zero], [((3, 7), t)])


@case("SELECT", *ALL, DType.INT32, DType.BOOL)
def select(g: Graph, t: int) -> None:
    inputs = [g.input((2, 3, 1), DType.BOOL), image(g, (2, 3, 5), t), image(g, (2, 1, 5), t)]
    g.op("SELECT", inputs, [((2, 3, 5), t)])


def reduction(op: str, *dtypes: int, attributes: Sequence[Any] = (), small: bool = False) -> None:
    def build(g: Graph, t: int) -> None:
        ends = (0.5, 1.5) if small else spread(t)
        g.op(op, [g.input((2, 5, 3), t, *ends)], [((2, 1, 3), t)], 1, *attributes)

    case(op, *dtypes)(build)


reduction("REDUCE_ALL", DType.BOOL)
reduction("REDUCE_ANY", DType.BOOL)
reduction("REDUCE_MAX", *ALL, DType.INT32, attributes=[PROPAGATE])
reduction("REDUCE_MIN", *ALL, DType.INT32, attributes=[PROPAGATE])
reduction("REDUCE_PRODUCT", *FLOATS, small=True)
reduction("REDUCE_SUM", DType.INT32, *FLOATS)

MOVED = (*ALL, DType.INT32, DType.BOOL)


@case("CONCAT", *MOVED)
def concat(g: Graph, t: int) -> None:
    g.op("CONCAT", [image(g, (2, 3), t), image(g, (2, 4), t)], [((2, 7), t)], 1)


@case("PAD", *MOVED)
def pad(g: Graph, t: int) -> None:
    inputs = [image(g, (2, 3), t), g.shape([1, 0, 2, 1]), g.zero(t, 1)]
    g.op("PAD", inputs, [((3, 6), t)])


@case("RESHAPE", *MOVED)
def reshape(g: Graph, t: int) -> None:
    g.op("RESHAPE", [image(g, (2, 6), t), g.shape([3, 4])], [((3, 4), t)])


@case("REVERSE", *MOVED)
def reverse(g: Graph, t: int) -> None:
    g.op("REVERSE", [image(g, (2, 6), t)], [((2, 6), t)], 1)


@case("SLICE", *MOVED)
def slice_of(g: Graph, t: int) -> None:
    inputs = [image(g, (4, 6), t), g.shape([1, 2]), g.shape([2, 3])]
    g.op("SLICE", inputs, [((2, 3), t)])


@case("TILE", *MOVED)
def tile(g: Graph, t: int) -> None:
    g.op("TILE", [image(g, (2, 3), t), g.shape([3, 2])], [((6, 6), t)])


@case("TRANSPOSE", *MOVED)
def transpose(g: Graph, t: int) -> None:
    g.op("TRANSPOSE", [image(g, (2, 3, 4), t)], [((4, 2, 3), t)], [2, 0, 1])


MOVES = (concat, pad, reshape, reverse, slice_of, tile, transpose)


@case("GATHER", *ALL, DType.INT32)
def gather(g: Graph, t: int) -> None:
    inputs = [image(g, (2, 5, 3), t), g.input((2, 4), DType.INT32, 0, 4)]
    g.op("GATHER", inputs, [((2, 4, 3), t)])


@case("SCATTER", *ALL, DType.INT32)
def scatter(g: Graph, t: int) -> None:
    at = g.const(DType.INT32, [[3, 0], [1, 4]])
    inputs = [image(g, (2, 5, 3), t), at, image(g, (2, 2, 3), t)]
    g.op("SCATTER", inputs, [((2, 5, 3), t)])


def resize(g: Graph, t: int, mode: int, out: int) -> None:
    lists = [g.shape([4, 2, 6, 4]), g.shape([-1, 1]), g.shape([1, 1])]
    g.op("RESIZE", [image(g, (1, 4, 5, 2), t), *lists], [((1, 8, 7, 2), out)], mode)


case("RESIZE", *ALL, note="nearest")(lambda g, t: resize(g, t, NEAREST, t))
case("RESIZE", *ALL, note="bilinear")(lambda g, t: resize(g, t, BILINEAR, sum_type(t)))


def cast(source: int, to: int) -> None:
    name = {**NAMES, DType.INT48: "int48"}[to]

    def build(g: Graph, t: int) -> None:
        ends = (-300, 300) if t in FLOATS else spread(t)
        if t in FLOATS and to == DType.INT16:
            ends = (-40000, 40000)
        g.op("CAST", [g.input((4, 9), t, *ends)], [((4, 9), to)])

    case("CAST", source, note=f"to {name}")(build)


for source in (DType.BOOL, *INTS, DType.INT32, *FLOATS):
    for to in (DType.BOOL, *INTS, DType.INT32, *FLOATS):
        known = source != to and not (source == DType.BOOL and to in FLOATS)
        known &= not (source in FLOATS and to == DType.BOOL)
        if known and {source, to} != {DType.FP16, DType.BF16}:
            cast(source, to)


def rescale(
    source: int,
    to: int,
    *,
    scale32: bool = True,
    rounding: int = SINGLE,
    per_channel: bool = False,
    unsigned: Sequence[bool] = (False, False),
) -> None:
    words = [{**NAMES, DType.INT48: "int48"}[to]]
    words += ["scale16"] if not scale32 else []
    words += ["rounded twice"] if rounding == DOUBLE else []
    words += ["per channel"] if per_channel else []
    words += ["from unsigned"] if unsigned[0] else []
    words += ["to unsigned"] if unsigned[1] else []

    def build(g: Graph, t: int) -> None:
        count = 5 if per_channel else 1
        ends = {DType.INT8: (-128, 127), DType.INT16: (-32768, 32767)}
        low, high = ends.get(t, (-(2**24), 2**24))
        limit = {DType.INT8: 127, DType.INT16: 32767}.get(to, 2**24)
        factor = limit / high * g.random.uniform(0.5, 1.6, count)
        if scale32:
            shift = [int(30 - np.ceil(np.log2(f))) for f in factor]
        else:
            shift = [int(14 - np.ceil(np.log2(f))) for f in factor]
        multiplier = [int(f * 2.0**s) for f, s in zip(factor, shift)]
        zero = [{DType.INT8: -7}.get(t, 0), {DType.INT8: 11}.get(to, 0)]
        if unsigned[0]:
            zero[0] = {DType.INT8: -128, DType.INT16: -32768}.get(t, 0)
        if unsigned[1]:
            zero[1] = {DType.INT8: -128, DType.INT16: -32768}.get(to, 0)
        inputs = [
            g.input((3, 8, 5), t, low, high),
            g.const(DType.INT32 if scale32 else DType.INT16, multiplier),
            g.const(DType.INT8, shift),
            g.zero(t, zero[0]),
            g.zero(to, zero[1]),
        ]
        attributes = (scale32, rounding, per_channel, *unsigned)
        g.op("RESCALE", inputs, [((3, 8, 5), to)], *attributes)

    case("RESCALE", source, note=f"to {' '.join(words)}")(build)


for source in (*INTS, DType.INT32):
    for to in (*INTS, DType.INT32):
        rescale(source, to)
        rescale(source, to, rounding=DOUBLE)
        rescale(source, to, per_channel=True)
    rescale(source, DType.INT8, scale32=False)
rescale(DType.INT8, DType.INT8, unsigned=(True, False))
rescale(DType.INT8, DType.INT8, unsigned=(False, True))
rescale(DType.INT8, DType.INT16, unsigned=(True, False))
rescale(DType.INT16, DType.INT8, unsigned=(True, False))


class Refused(Exception):
    """The reference model or the converter does not support a graph."""


def compiled(graph: Graph) -> tuple[bytes, list[np.ndarray]]:
    """The VGF file of a graph, and the outputs of the reference model."""
    tosa = bytes(graph.builder.serialize())
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "graph.tosa"), Path(folder, "graph.vgf")
        source.write_bytes(tosa)
        script = (
            "import pickle, sys, tosa_reference_model as model\n"
            "tosa, inputs = pickle.load(sys.stdin.buffer)\n"
            "outputs, status = model.run(tosa, inputs, verbosity='NONE')\n"
            "assert status == model.GraphStatus.TOSA_VALID, status\n"
            "pickle.dump(outputs, open(sys.argv[1], 'wb'))\n"
        )
        # The reference model ends the process on errors.
        made = Path(folder, "outputs")
        command = [sys.executable, "-c", script, str(made)]
        # NumPy has no bf16.
        given = [x.view(np.uint16) if x.dtype == NUMPY[DType.BF16] else x for x in graph.inputs]
        sent = pickle.dumps((tosa, given))
        done = subprocess.run(command, input=sent, capture_output=True)
        if done.returncode != 0 or not made.exists():
            raise Refused("by the reference model")
        outputs = pickle.loads(made.read_bytes())
        converter = Path(sys.executable).parent / "model-converter"
        done = subprocess.run(
            [converter, "-i", source, "-o", target], capture_output=True, text=True
        )
        if done.returncode != 0:
            raise Refused("by the converter")
        return target.read_bytes(), outputs


def tensor_of(values: np.ndarray, dtype: int) -> torch.Tensor:
    if dtype == DType.BF16:
        raw = np.ascontiguousarray(values).view(np.int16)
        return torch.from_numpy(raw.copy()).view(torch.bfloat16)
    return torch.from_numpy(np.ascontiguousarray(values)).to(TORCH[dtype])


def program_of(graph: Graph, blob: bytes, backend: str) -> schema.Program:
    """A program that passes its inputs to one delegate."""
    values, count = [], len(graph.inputs)
    given = [(t, list(x.shape)) for t, x in zip(graph.input_types, graph.inputs)]
    for number, (dtype, shape) in enumerate(given + graph.outputs):
        offset = schema.AllocationDetails(memory_id=1, memory_offset_low=0, memory_offset_high=0)
        offset.memory_offset_low = sum(len(v.val.sizes) and 0 for v in values)
        tensor = schema.Tensor(
            scalar_type=scalar_type_enum(TORCH[dtype]),
            storage_offset=0,
            sizes=shape,
            dim_order=list(range(len(shape))),
            requires_grad=False,
            data_buffer_idx=0,
            allocation_info=offset,
            layout=0,
            shape_dynamism=schema.TensorShapeDynamism.STATIC,
            extra_tensor_info=None,
        )
        values.append(schema.EValue(tensor))
    end = 0
    for value in values:
        tensor = value.val
        tensor.allocation_info.memory_offset_low = end
        size = int(np.prod(tensor.sizes, dtype=np.int64)) * 8
        end += (size + 15) // 16 * 16
    everything = list(range(len(values)))
    delegate = schema.BackendDelegate(
        id=backend,
        processed=schema.BackendDelegateDataReference(
            location=schema.DataLocation.INLINE, index=0
        ),
        compile_specs=[],
    )
    call = schema.DelegateCall(delegate_index=0, args=everything)
    chain = schema.Chain(
        inputs=[], outputs=[], instructions=[schema.Instruction(call)], stacktrace=None
    )
    plan = schema.ExecutionPlan(
        name="forward",
        container_meta_type=schema.ContainerMetadata("", ""),
        values=values,
        inputs=everything[:count],
        outputs=everything[count:],
        chains=[chain],
        operators=[],
        delegates=[delegate],
        non_const_buffer_sizes=[0, max(end, 16)],
    )
    return schema.Program(
        version=0,
        execution_plan=[plan],
        constant_buffer=[schema.Buffer(storage=b"")],
        backend_delegate_data=[schema.BackendDelegateInlineData(data=blob)],
        segments=[],
        constant_segment=schema.SubsegmentOffsets(segment_index=0, offsets=[]),
    )


def bundle_of(graph: Graph, as_tosa: bool = False) -> tuple[bytes, schema.Program]:
    blob, outputs = compiled(graph)
    if as_tosa:
        blob = bytes(graph.builder.serialize())
    program = program_of(graph, blob, "TOSABackend" if as_tosa else "VgfBackend")
    buffer = bytes(serialize_pte_binary(PTEFile(program=program)))
    given = [tensor_of(x, t) for x, t in zip(graph.inputs, graph.input_types)]
    expected = [tensor_of(x, t) for x, (t, _) in zip(outputs, graph.outputs)]
    method = SimpleNamespace(cases=[tuple(given)], expected=lambda: [tuple(expected)])
    manager = SimpleNamespace(buffer=buffer, executorch_program=program)
    bundle = _Bundle(manager, {"forward": method})
    return serialize_from_bundled_program_to_flatbuffer(bundle), program


def tolerance(dtype: int) -> Tolerance:
    """Bounds that all cases meet. TOSA's own depend on the operands."""
    return {
        DType.FP32: Tolerance(1e-5, 2e-5),
        DType.FP16: Tolerance(4e-3, 2e-2),
        DType.BF16: Tolerance(2e-2, 2e-2),
    }.get(dtype, Tolerance(0.0, 0.0))


def verified(command: str, one: Case, folder: str, as_tosa: bool) -> str:
    """Runs a case alone: `pass`, or what went wrong."""
    graph, path = Graph(one.title), Path(folder, "case.bpte")
    try:
        one.build(graph, one.dtype)
        path.write_bytes(bundle_of(graph, as_tosa)[0])
    except Refused as refused:
        return f"refused {refused}"
    limits = tolerance(DType.BF16 if "bf16" in one.note else one.dtype)
    done = subprocess.run(
        [command, "verify", path, "--rtol", str(limits.rtol), "--atol", str(limits.atol)],
        capture_output=True,
        text=True,
    )
    return "pass" if done.returncode == 0 else f"FAIL {(done.stdout + done.stderr).strip()}"


def table_of(verdicts: dict[str, str]) -> Iterator[str]:
    """The lines of a Markdown table: operators by dtypes."""
    dtypes = [DType.BOOL, *INTS, DType.INT32, DType.FP16, DType.BF16, DType.FP32]
    yield f"| operator | {' | '.join(NAMES[dtype] for dtype in dtypes)} |"
    yield "|---" * (len(dtypes) + 1) + "|"
    for op in sorted({one.op for one in CASES}):
        cells = []
        for dtype in dtypes:
            found = [verdicts[it.title] for it in CASES if (it.op, it.dtype) == (op, dtype)]
            words = {verdict.split(" ")[0] for verdict in found}
            cells.append("" if not found else words.pop() if len(words) == 1 else "FAIL")
        yield f"| `{op}` | {' | '.join(cells)} |"


def print_table(command: str, as_tosa: bool) -> None:
    verdicts = {}
    with tempfile.TemporaryDirectory() as folder:
        for one in CASES:
            verdicts[one.title] = verified(command, one, folder, as_tosa)
            if verdicts[one.title] != "pass":
                print(f"{one.title}: {verdicts[one.title]}", file=sys.stderr, flush=True)
    print("\n".join(table_of(verdicts)))


class Net(torch.nn.Module):
    """Convolutions of each kind, a residual, a mean and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.depthwise = torch.nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.pointwise = torch.nn.Conv2d(8, 12, 1)
        self.last = torch.nn.Linear(12, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(x))
        x = x + torch.nn.functional.hardtanh(self.depthwise(x), 0.0, 6.0)
        return self.last(self.pointwise(x).mean((2, 3)))


class Head(torch.nn.Module):
    """Attention of one head, with layer norm and softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(8)
        self.q, self.k, self.v = (torch.nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(x)
        scores = self.q(x) @ self.k(x).transpose(1, 2)
        return torch.softmax(scores, -1) @ self.v(x)


class Branches(torch.nn.Module):
    """A branch that depends on a scalar, which one delegate passes to another."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def shifted(x: torch.Tensor) -> torch.Tensor:
            return x + 1.5

        def doubled(x: torch.Tensor) -> torch.Tensor:
            return x * 2.0

        return torch.cond(x.sum() > 0, shifted, doubled, (self.linear(x),))


class Reference(torch.fx.Interpreter):
    """Runs a program on the host, and its delegate in the TOSA reference model."""

    def __init__(self, program: Any, tosa: bytes) -> None:
        super().__init__(program.graph_module)
        self.program, self.tosa = program, tosa

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if "executorch_call_delegate" not in str(target):
            return super().call_function(target, args, kwargs)
        given = [x.detach().contiguous().numpy() for x in args[1:]]
        outputs, status = tosa_reference_model.run(self.tosa, given, verbosity="NONE")
        assert status == tosa_reference_model.GraphStatus.TOSA_VALID, status
        return [torch.from_numpy(x) for x in outputs]

    def outputs(self, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        signature, stored = self.program.graph_signature, {}
        stored |= self.program.state_dict | self.program.constants
        names = {
            **signature.inputs_to_parameters,
            **signature.inputs_to_buffers,
            **signature.inputs_to_lifted_tensor_constants,
        }
        given = iter(inputs)
        places = [node.name for node in self.program.graph.nodes if node.op == "placeholder"]
        found = [stored[names[name]] if name in names else next(given) for name in places]
        with torch.no_grad():
            return tuple(self.run(*found))


def int8_graph(
    module: torch.nn.Module, cases: Sequence[tuple[torch.Tensor, ...]], kind: str
) -> torch.nn.Module:
    """Quantizes a module with `VgfQuantizer`; the cases calibrate it."""
    from executorch.backends.arm.quantizer import VgfQuantizer, get_symmetric_quantization_config
    from executorch.backends.arm.vgf import VgfCompileSpec
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    quantizer = VgfQuantizer(VgfCompileSpec(kind))
    quantizer.set_global(get_symmetric_quantization_config(is_per_channel=True))
    exported = torch.export.export(module, cases[0]).module(check_guards=False)
    prepared = prepare_pt2e(exported, quantizer)
    for inputs in cases:
        prepared(*inputs)
    return convert_pt2e(prepared)


def network(
    name: str,
    module: torch.nn.Module,
    cases: Sequence[tuple[torch.Tensor, ...]],
    int8: bool,
) -> tuple[bytes, Any, Tolerance]:
    """Exports a network with `VgfPartitioner`. Returns the program with the outputs of the TOSA
    reference model, its description, and the bounds on differences."""
    from executorch.backends.arm.vgf import VgfCompileSpec, VgfPartitioner
    from executorch.exir import to_edge_transform_and_lower

    kind = "TOSA-1.0+INT" if int8 else "TOSA-1.0+FP"
    module = int8_graph(module.eval(), cases, kind) if int8 else module.eval()
    with tempfile.TemporaryDirectory() as folder:
        spec = VgfCompileSpec(kind).dump_intermediate_artifacts_to(folder)
        exported = torch.export.export(module, cases[0])
        edge = to_edge_transform_and_lower(exported, partitioner=[VgfPartitioner(spec)])
        manager = edge.to_executorch()
        parts = sorted(Path(folder).glob("*_tag*.tosa"))
        assert len(parts) == 1, f"{name}: expected one delegate, found {parts}"
        tosa = parts[0].read_bytes()
    reference = Reference(edge.exported_program(), tosa)
    expected, step = [reference.outputs(inputs) for inputs in cases], 0.0
    for node in edge.exported_program().graph.nodes:
        if getattr(node.target, "_opname", "") == "dequantize_per_tensor":
            step = node.args[1]
    method = SimpleNamespace(cases=cases, expected=lambda: expected)
    holder = SimpleNamespace(buffer=manager.buffer, executorch_program=manager.executorch_program)
    data = serialize_from_bundled_program_to_flatbuffer(_Bundle(holder, {"forward": method}))
    # A value close to the middle between two quantized values may become the other one.
    limits = Tolerance(0.0, round(2.01 * step, 6)) if int8 else Tolerance(1e-4, 1e-5)
    return data, manager.executorch_program, limits


def small_network(
    manifest: Manifest, name: str, module: torch.nn.Module, shape: Sequence[int], int8: bool
) -> None:
    torch.manual_seed(0)
    cases = [(torch.randn(shape),) for _ in range(2)]
    data, program, limits = network(name, module, cases, int8)
    write(manifest, f"{FOLDER}/network/{name}", data, program, limits)


def branches(manifest: Manifest) -> None:
    """Writes a program with control flow between its delegates, with the outputs of PyTorch."""
    from executorch.backends.arm.vgf import VgfCompileSpec, VgfPartitioner
    from executorch.exir import to_edge_transform_and_lower

    torch.manual_seed(0)
    module = Branches().eval()
    cases = [(torch.full((2, 4), value),) for value in (0.5, -0.5)]
    exported = torch.export.export(module, cases[0])
    partitioner = VgfPartitioner(VgfCompileSpec("TOSA-1.0+FP"))
    manager = to_edge_transform_and_lower(exported, partitioner=[partitioner]).to_executorch()
    with torch.no_grad():
        expected = [(module(*inputs),) for inputs in cases]
    method = SimpleNamespace(cases=cases, expected=lambda: expected)
    holder = SimpleNamespace(buffer=manager.buffer, executorch_program=manager.executorch_program)
    data = serialize_from_bundled_program_to_flatbuffer(_Bundle(holder, {"forward": method}))
    path = f"{FOLDER}/network/branches"
    write(manifest, path, data, manager.executorch_program, Tolerance(1e-4, 1e-5))


def write(
    manifest: Manifest, path: str, data: bytes, program: schema.Program, limits: Tolerance
) -> None:
    target = FIXTURES / f"{path}.bpte"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)
    fixture = SimpleNamespace(path=path, tolerance=limits, sequence=False, note="")
    manifest._add(fixture, program, [])


def write_operators(manifest: Manifest) -> None:
    """Writes all operators of a dtype as one graph, as far as the reference model has them."""
    for dtype, name in NAMES.items():
        graph = operators_of(dtype, name)
        data, program = bundle_of(graph)
        write(manifest, f"{FOLDER}/operators/{name}", data, program, tolerance(dtype))


def write_flatbuffers(manifest: Manifest) -> None:
    """Writes the same graphs as TOSA flatbuffers, for two dtypes."""
    for dtype in (DType.FP32, DType.INT8):
        graph = operators_of(dtype, NAMES[dtype])
        data, program = bundle_of(graph, as_tosa=True)
        path = f"{FOLDER}/tosa/{NAMES[dtype]}"
        write(manifest, path, data, program, tolerance(dtype))


def operators_of(dtype: int, name: str) -> Graph:
    """All operators of a dtype as one graph."""
    graph = Graph(name)
    for one in CASES:
        # Moves depend on the size of elements only.
        is_move = one.build in MOVES and dtype in (DType.INT16, DType.FP16, DType.BF16)
        if one.dtype == dtype and not is_move:
            one.build(graph, dtype)
    return graph


if __name__ == "__main__":
    if sys.argv[1:2] in (["--table"], ["--tosa"]):
        print_table(sys.argv[2], sys.argv[1] == "--tosa")
    else:
        entries = Manifest("vgf")
        write_operators(entries)
        write_flatbuffers(entries)
        small_network(entries, "convolutions_fp32", Net(), (1, 3, 16, 16), int8=False)
        small_network(entries, "convolutions_int8", Net(), (1, 3, 16, 16), int8=True)
        small_network(entries, "attention_fp32", Head(), (1, 6, 8), int8=False)
        small_network(entries, "attention_int8", Head(), (1, 6, 8), int8=True)
        branches(entries)
        entries.save()
