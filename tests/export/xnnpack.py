"""Writes the cases for XNNPACK's delegate, lowered with `XnnpackPartitioner`:
`fixtures/xnnpack/<family>/<case>.bpte`.

They cover each kind of call that the partitioner emits, in each dtype that it supports, and small
networks. Quantized cases are compared with PyTorch's quantized module, within one quantization
step.

    python xnnpack.py [family ...]
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any, Callable, Iterator, Sequence

from common import (
    F16,
    FIXTURES,
    Fixture,
    Inputs,
    Manifest,
    Method,
    Tolerance,
    backends,
    operators,
    seed,
)

import torch
import torch.nn.functional as F
from executorch.backends.xnnpack.partition.xnnpack_partitioner import (
    XnnpackDynamicallyQuantizedPartitioner,
    XnnpackPartitioner,
)
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from executorch.exir.passes.external_constants_pass import delegate_external_constants_pass_unlifted
from op_cases.table import module_of
from torch import nn, rand, randn
from torch.export import Dim
from torchao.quantization import Int8DynamicActivationIntxWeightConfig, PerAxis, PerGroup, quantize_
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

FOLDER = "xnnpack"
ROUNDED = Tolerance(0.0, 0.06)
TYPED = ("dim_order_ops::_to_dim_order_copy.out",)
"""Scalar operands are cast to the tensor's dtype outside of the delegate."""


@dataclass
class Case:
    name: str
    run: nn.Module | Callable[..., Any]
    cases: Sequence[Inputs]
    tolerance: Tolerance = Tolerance(1e-4, 1e-5)
    dynamic: Any = None
    quantizer: XNNPACKQuantizer | None = None
    partitioner: Any = field(default_factory=XnnpackPartitioner)
    outside: Sequence[str] = ()
    """Operators outside of the delegates."""
    external: bool = False
    """Whether weights are stored in a `.ptd` file."""
    second: nn.Module | None = None
    """Module of another method, `second`, with the same inputs."""
    by_row: bool = False
    """Whether expected outputs are computed one row at a time."""


class ByRow(Method):
    """Runs the module on one row of its inputs at a time."""

    def expected(self) -> list[Any]:
        rows = [
            [self.module(*(x[row : row + 1] for x in inputs)) for row in range(len(inputs[0]))]
            for inputs in self.cases
        ]
        return [tuple(torch.cat(outputs) for outputs in zip(*case)) for case in rows]


def one(
    name: str, run: nn.Module | Callable[..., Any], *inputs: torch.Tensor, **options: Any
) -> Case:
    return Case(name, run, [inputs], **options)


def unary() -> Iterator[Case]:
    x = randn(2, 3, 5, 4)
    for name in ("abs", "ceil", "cos", "exp", "floor", "neg", "sigmoid", "sin", "square", "tanh"):
        yield one(name, getattr(torch, name), x)
    for name in ("log", "rsqrt", "sqrt"):
        yield one(name, getattr(torch, name), rand(2, 7) + 0.1)
    yield one("gelu", F.gelu, x)
    yield one("hardswish", F.hardswish, x)
    yield one("leaky_relu", lambda a: F.leaky_relu(a, 0.2), x)
    yield one("relu", F.relu, x)
    yield one("hardtanh", lambda a: F.hardtanh(a, -0.3, 0.6), x)
    yield one("clamp_low", lambda a: a.clamp(min=-0.2), x)
    yield one("softmax", lambda a: a.softmax(-1), x)
    yield one("prelu", nn.PReLU(3, 0.3), x)
    yield one("number", lambda a: a * 2.5 + 1, randn(()), outside=TYPED)


def binary() -> Iterator[Case]:
    for name in ("add", "sub", "mul", "div", "minimum", "maximum"):
        yield one(name, getattr(torch, name), randn(2, 3, 4), rand(3, 1) + 0.5)
    yield one("add_relu", lambda a, b: F.relu(a + b), randn(2, 3, 4), randn(1, 4))
    yield one("bmm", torch.bmm, randn(2, 3, 4), randn(2, 4, 5))


def shape() -> Iterator[Case]:
    x = randn(2, 3, 5, 4)
    for count in range(2, 6):
        inputs = tuple(randn(2, size + 1) for size in range(count))
        yield one(f"cat{count}", lambda *all: torch.cat(all, -1), *inputs)
    yield one("slice", lambda a: a[:, 1:3, :, 2:] + 0.5, x)
    yield one("pad", lambda a: F.pad(a, (1, 2, 0, 1), value=0.5), x)
    yield one(
        "pad_channels_last",
        lambda a: F.pad(F.relu(F.max_pool2d(a, 2)), (1, 2, 3, 0)),
        randn(1, 3, 8, 8),
    )
    yield one("permute", lambda a: a.permute(3, 0, 2, 1) * 2, x, outside=TYPED)
    yield one("view", lambda a: a.view(2, -1) * 2, x, outside=TYPED)


def space() -> Iterator[Case]:
    x = randn(1, 3, 9, 10)
    yield one("max_pool", lambda a: F.max_pool2d(a, 3, 2, 1), x)
    yield one(
        "max_pool_ceil", lambda a: F.max_pool2d(a, 3, 2, 0, ceil_mode=True), randn(1, 3, 10, 12)
    )
    yield one("max_pool_dilated", lambda a: F.max_pool2d(a, 2, 1, 0, 2), x)
    yield one("avg_pool", lambda a: F.avg_pool2d(a, 3, 2, 1, count_include_pad=False), x)
    yield one("mean", lambda a: a.mean((2, 3), keepdim=True), x)
    yield one(
        "bilinear",
        lambda a: F.interpolate(a, scale_factor=2, mode="bilinear", align_corners=False),
        x,
    )
    yield one(
        "bilinear_corners",
        lambda a: F.interpolate(a, size=(9, 7), mode="bilinear", align_corners=True),
        x,
    )


def convolution() -> Iterator[Case]:
    x, small = randn(1, 4, 9, 7), randn(1, 4, 5, 6)
    yield one("conv2d", nn.Sequential(nn.Conv2d(3, 6, 3, 2, 1), nn.ReLU6()), randn(2, 3, 9, 11))
    yield one("groups", nn.Conv2d(4, 8, 3, groups=2, bias=False), x)
    yield one("depthwise", nn.Sequential(nn.Conv2d(4, 8, 3, groups=4, padding=1), nn.Hardtanh()), x)
    yield one("conv1d", nn.Conv1d(4, 6, 3, padding=1), randn(2, 4, 11))
    yield one("dilated", nn.Conv2d(4, 5, (3, 2), (1, 2), (2, 0), (2, 1)), x)
    yield one("transposed", nn.ConvTranspose2d(4, 6, 3, 2, 1, 1), small)
    yield one("transposed_groups", nn.ConvTranspose2d(4, 6, (3, 2), (2, 1), 0, groups=2), small)
    yield one(
        "half",
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).half(),
        randn(1, 3, 6, 7).half(),
        tolerance=F16,
    )


def channels_last() -> Iterator[Case]:
    """Channels-last inputs, with sizes from which the layout can and cannot be inferred."""

    def last(*sizes: int) -> torch.Tensor:
        return randn(*sizes).to(memory_format=torch.channels_last)

    yield one(
        "sizes_differ", nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU()), last(1, 3, 8, 9)
    )
    yield one(
        "sizes_alike", nn.Sequential(nn.Conv2d(6, 6, 3, padding=1), nn.ReLU()), last(2, 6, 6, 6)
    )
    yield one("both_orders", torch.mul, last(1, 3, 3, 3), randn(1, 3, 3, 3))


def linear() -> Iterator[Case]:
    yield one("linear", nn.Linear(6, 5), randn(3, 6))
    yield one(
        "rows",
        nn.Sequential(nn.Linear(6, 5, bias=False), nn.ReLU(), nn.Linear(5, 4)),
        randn(2, 3, 6),
    )
    yield one(
        "half", nn.Sequential(nn.Linear(8, 6), nn.ReLU()).half(), randn(3, 8).half(), tolerance=F16
    )


class Inverted(nn.Module):
    """A MobileNet block: expand, depthwise, project, add."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(
            nn.Conv2d(8, 24, 1, bias=False),
            nn.BatchNorm2d(24),
            nn.ReLU6(),
            nn.Conv2d(24, 24, 3, 1, 1, groups=24, bias=False),
            nn.BatchNorm2d(24),
            nn.ReLU6(),
            nn.Conv2d(24, 8, 1, bias=False),
            nn.BatchNorm2d(8),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.block(x)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(5, 6, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lstm(x)[0]


def network() -> Iterator[Case]:
    batch = Dim("batch", min=1, max=6)
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
    yield one(
        "inverted", nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), Inverted(), *head), randn(1, 3, 16, 16)
    )
    attention = nn.TransformerEncoderLayer(16, 2, 24, batch_first=True)
    masks = (
        "any.out",
        "eq.Scalar_out",
        "full_like.out",
        "logical_not.out",
        "mul.Scalar_out",
        "where.self_out",
    )
    moves = (
        "expand_copy.out",
        "select_copy.int_out",
        "squeeze_copy.dims_out",
        "unsqueeze_copy.out",
    )
    outside = [f"aten::{name}" for name in (*masks, *moves, "native_layer_norm.out")]
    yield one("attention", attention, randn(2, 5, 16), outside=outside)
    steps = ("full.out", "split_with_sizes_copy.out", "squeeze_copy.dims_out", "unsqueeze_copy.out")
    yield one("lstm", Recurrent(), randn(1, 4, 5), outside=[f"aten::{name}" for name in steps])
    yield Case(
        "batches",
        nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), Inverted(), *head),
        [(randn(size, 3, 12, 12),) for size in (2, 6, 1)],
        dynamic=({0: batch},),
        outside=["aten::sym_size.int", "executorch_prim::et_view.default"],
    )
    yield one(
        "unused_input",
        lambda a, b, c: (a * 2, c + 1),
        randn(2, 3),
        randn(4),
        randn(5),
        outside=TYPED,
    )


def quantized() -> Iterator[Case]:
    def quantizer(per_channel: bool, dynamic: bool = False) -> XNNPACKQuantizer:
        config = get_symmetric_quantization_config(is_per_channel=per_channel, is_dynamic=dynamic)
        return XNNPACKQuantizer().set_global(config)

    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, 1, 1, groups=8),
        nn.Hardtanh(),
        nn.Conv2d(8, 6, 1),
        nn.MaxPool2d(2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(6, 5),
    )
    x = randn(1, 3, 16, 16)
    yield one("per_tensor", net, x, tolerance=ROUNDED, quantizer=quantizer(False))
    yield one("per_channel", net, x, tolerance=ROUNDED, quantizer=quantizer(True))
    rows = nn.Sequential(nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 4))
    yield one(
        "dynamic",
        rows,
        randn(3, 16),
        tolerance=ROUNDED,
        quantizer=quantizer(True, dynamic=True),
        partitioner=XnnpackDynamicallyQuantizedPartitioner(),
        outside=["aten::relu.out"],
    )
    for name, granularity in (
        ("four_bits_by_channel", PerAxis(0)),
        ("four_bits_by_group", PerGroup(32)),
    ):
        rows = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 6)).eval()
        quantize_(
            rows,
            Int8DynamicActivationIntxWeightConfig(
                weight_dtype=torch.int4, weight_granularity=granularity
            ),
        )
        yield one(name, rows, randn(3, 64), tolerance=ROUNDED)
    windows = nn.Sequential(nn.Conv2d(3, 6, 3, 1, 1), nn.ReLU(), nn.ConvTranspose2d(6, 4, 2, 2))
    dynamic = quantizer(True, dynamic=True)
    yield one(
        "dynamic_convolution", windows, randn(1, 3, 6, 7), tolerance=ROUNDED, quantizer=dynamic
    )
    sizes = {2: Dim("height", min=4, max=9), 3: Dim("width", min=4, max=9)}
    cases = [(randn(1, 3, *size),) for size in ((6, 7), (9, 4))]
    yield Case("dynamic_convolution_sizes", windows, cases, ROUNDED, (sizes,), dynamic)


def integers() -> Iterator[Case]:
    """int8 operators: grouped and transposed convolutions, binary arithmetic, data movement."""

    def quantizer(per_channel: bool = True) -> XNNPACKQuantizer:
        return XNNPACKQuantizer().set_global(
            get_symmetric_quantization_config(is_per_channel=per_channel)
        )

    def of(name: str, net: nn.Module, x: torch.Tensor, per_channel: bool = True) -> Case:
        return one(name, net, x, tolerance=ROUNDED, quantizer=quantizer(per_channel))

    class Both(nn.Module):
        """A function of the results of two convolutions."""

        def __init__(
            self, function: Callable[..., torch.Tensor], channels: int, other: int
        ) -> None:
            super().__init__()
            self.function, self.own, self.other = (
                function,
                nn.Conv2d(3, channels, 1),
                nn.Conv2d(3, other, 1),
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.function(self.own(x), self.other(x))

    class Excited(nn.Module):
        """Squeeze-and-excitation: scales channels by a gate of their mean, as in EfficientNet."""

        def __init__(self) -> None:
            super().__init__()
            self.first, self.gate = nn.Conv2d(3, 6, 1), nn.Conv2d(6, 6, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.first(x)
            return x * self.gate(x.mean((2, 3), keepdim=True))

    x = randn(1, 3, 9, 7)
    yield of(
        "groups",
        nn.Sequential(nn.Conv2d(3, 8, 1), nn.Conv2d(8, 12, 3, 1, 1, groups=2), nn.ReLU()),
        x,
    )
    yield of(
        "groups_that_fill", nn.Sequential(nn.Conv2d(3, 40, 1), nn.Conv2d(40, 40, 3, 2, groups=2)), x
    )
    yield of(
        "groups_of_one",
        nn.Sequential(nn.Conv2d(3, 6, 1), nn.Conv2d(6, 12, 3, 1, (2, 0), (2, 1), groups=6)),
        x,
    )
    yield of(
        "rows",
        nn.Sequential(nn.Conv1d(3, 8, 1), nn.Conv1d(8, 6, 3, 1, 1, groups=2)),
        randn(2, 3, 11),
    )
    yield of(
        "transposed",
        nn.Sequential(nn.Conv2d(3, 5, 1), nn.ConvTranspose2d(5, 6, 4, 2, 1), nn.ReLU()),
        x,
    )
    yield of(
        "transposed_far",
        nn.ConvTranspose2d(3, 4, (3, 5), (2, 3), (1, 2), (1, 1)),
        randn(2, 3, 5, 4),
    )
    yield of(
        "transposed_dilated", nn.ConvTranspose2d(3, 20, (3, 2), (1, 2), (1, 0), dilation=(2, 3)), x
    )
    yield of("transposed_near", nn.ConvTranspose2d(3, 4, 2, 2, 1), x, per_channel=False)
    for name in ("add", "sub", "mul"):
        yield of(name, Both(getattr(torch, name), 5, 5), x)
    yield of("add_one", Both(torch.add, 5, 1), x)
    yield of("excited", Excited(), x)
    yield of("cat", Both(lambda a, b: torch.cat((a, b), 1), 5, 3), x)
    yield of("moved", Both(lambda a, b: (a + b).permute(0, 2, 3, 1)[:, 2:, 1:], 5, 5), x)


def tiles() -> Iterator[Case]:
    """int8 convolutions and linear layers with enough channels for tiled kernels: all window
    shapes, planes that are no multiple of a word, split-K, and rows.
    """

    def of(name: str, net: nn.Module, x: torch.Tensor) -> Case:
        quantizer = XNNPACKQuantizer().set_global(
            get_symmetric_quantization_config(is_per_channel=True)
        )
        return one(name, net, x, tolerance=ROUNDED, quantizer=quantizer)

    class Residual(nn.Module):
        """A residual block followed by pooling."""

        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Conv2d(3, 24, 1), nn.Conv2d(24, 24, 3, 1, 1)
            self.pool, self.last = nn.MaxPool2d(3, 2, 1), nn.Conv2d(24, 17, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.first(x)
            return self.last(self.pool(nn.functional.relu(x + self.second(x))))

    windows = nn.Sequential(
        nn.Conv2d(3, 33, 3, 2, 1),
        nn.ReLU(),
        nn.Conv2d(33, 40, 3, 1, 2, 2),
        nn.Conv2d(40, 48, (3, 2), (1, 2), (2, 1), groups=2),
        nn.Conv2d(48, 20, 1),
    )
    yield of("windows", windows, randn(2, 3, 19, 13))
    yield of(
        "shared",
        nn.Sequential(nn.Conv2d(4, 96, 1), nn.Conv2d(96, 32, 3, padding=1)),
        randn(1, 4, 5, 7),
    )
    yield of("residual", Residual(), randn(1, 3, 9, 12))
    yield of(
        "rows", nn.Sequential(nn.Linear(48, 64), nn.ReLU(), nn.Linear(64, 18)), randn(3, 7, 48)
    )
    sizes = {2: Dim("height", min=4, max=19), 3: Dim("width", min=4, max=19)}
    cases = [(randn(1, 3, *size),) for size in ((19, 16), (8, 9), (4, 19))]
    net = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 24, 3, 1, 1))
    quantizer = XNNPACKQuantizer().set_global(
        get_symmetric_quantization_config(is_per_channel=True)
    )
    yield Case("sizes", net, cases, ROUNDED, (sizes,), quantizer)


def places() -> Iterator[Case]:
    """Chains of int8 convolutions, some depthwise, with channels that are no multiple of 16."""

    def of(name: str, net: nn.Module, x: torch.Tensor) -> Case:
        quantizer = XNNPACKQuantizer().set_global(
            get_symmetric_quantization_config(is_per_channel=True)
        )
        return one(name, net, x, tolerance=ROUNDED, quantizer=quantizer)

    def alone(channels: int, size: int, stride: int, padding: int, dilation: int = 1) -> nn.Module:
        return nn.Conv2d(channels, channels, size, stride, padding, dilation, groups=channels)

    class Blocks(nn.Module):
        """A sum with two users, and a result with a second user in either order."""

        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = (
                nn.Sequential(nn.Conv2d(3, 20, 3, 2, 1), nn.ReLU6()),
                nn.Sequential(alone(20, 5, 1, 2), nn.ReLU6()),
            )
            self.third, self.fourth = (
                nn.Conv2d(20, 33, 1),
                nn.Sequential(alone(33, 3, 1, 2, 2), nn.ReLU()),
            )
            self.fifth, self.last = (
                nn.Conv2d(33, 33, 1),
                nn.Sequential(alone(33, 3, 2, 1), nn.Conv2d(33, 24, 1), nn.ReLU6()),
            )

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            x = self.third(self.second(self.first(x)))
            x = x + self.fifth(self.fourth(x))
            return self.last(x), x

    class Gates(nn.Module):
        """Lookup tables, a multiplication and a concatenation."""

        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.third = (
                nn.Conv2d(16, 32, 3, 1, 1),
                alone(32, (3, 1), 1, (1, 0)),
                nn.Conv2d(32, 32, 1),
            )
            self.last = nn.Conv2d(64, 16, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = nn.functional.hardswish(self.first(x))
            y = self.third(torch.sigmoid(self.second(x)) * x)
            return self.last(torch.cat((x, y), 1))

    yield of("blocks", Blocks(), randn(1, 3, 33, 32))
    yield of("gates", Gates(), randn(1, 16, 5, 9))


def dynamic() -> Iterator[Case]:
    """Dynamically quantized convolutions; each image of a batch has its own scale."""
    config = get_symmetric_quantization_config(is_per_channel=True, is_dynamic=True)

    def of(name: str, net: nn.Module, x: torch.Tensor) -> Case:
        return one(name, net, x, tolerance=ROUNDED, quantizer=XNNPACKQuantizer().set_global(config))

    # Images of different magnitude, whose size is no multiple of a word.
    batch = randn(3, 3, 5, 7) * torch.tensor([0.1, 1.0, 4.0]).reshape(3, 1, 1, 1)
    yield of("batch", nn.Conv2d(3, 5, 3, 1, 1), batch)
    yield of("strided", nn.Conv2d(3, 20, (3, 2), (2, 1), (0, 1), (1, 2), bias=False), batch.abs())
    yield of("groups", nn.Conv2d(6, 4, 3, 1, (2, 1), groups=2), randn(2, 6, 4, 6))
    yield of("pixels", nn.Conv2d(8, 24, 1), randn(2, 8, 5, 5))
    yield of("transposed", nn.ConvTranspose2d(3, 6, 3, 2, 1, 1), batch)


def rows() -> Iterator[Case]:
    """Dynamically quantized linear layers.

    XNNPACK quantizes each row by itself, so the expected outputs are computed one row at a time.
    Over all rows at once, PyTorch's operators would choose a single scale, and small rows would
    lose their digits.
    """
    config = get_symmetric_quantization_config(is_per_channel=True, is_dynamic=True)
    batch = Dim("batch", min=1, max=6)

    def of(name: str, net: nn.Module, *cases: Inputs) -> Case:
        sizes = tuple({0: batch} for _ in cases[0])
        quantizer = XNNPACKQuantizer().set_global(config)
        partitioner = XnnpackDynamicallyQuantizedPartitioner()
        tolerance = Tolerance(0.0, 0.003)
        return Case(name, net, cases, tolerance, sizes, quantizer, partitioner, by_row=True)

    class Both(nn.Module):
        """Two parallel linear layers, one followed by a third."""

        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.third = nn.Linear(4, 5), nn.Linear(4, 5), nn.Linear(5, 3)

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.first(x), self.third(self.second(y))

    def far(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        scale = 10.0 ** -torch.arange(count).reshape(count, 1).float()
        return randn(count, 4) * 8 * scale, randn(count, 4) * 8 * scale

    yield of("parallel_and_sequential", Both(), far(4), far(1), far(6))


def ties() -> Iterator[Case]:
    """Dynamic quantization with exact ties: values round before the odd zero point is added."""
    ties_of_scale_one = torch.cat((torch.tensor([-127.0, 128.0]), torch.arange(-31, 31) + 0.5))
    by_channel = Int8DynamicActivationIntxWeightConfig(
        weight_dtype=torch.int8, weight_granularity=PerAxis(0)
    )
    by_group = Int8DynamicActivationIntxWeightConfig(
        torch.int4, PerGroup(32), weight_scale_dtype=torch.bfloat16
    )
    for name, weights in (("product", by_channel), ("product_of_4_bits", by_group)):
        net = nn.Linear(64, 5).eval()
        quantize_(net, weights)
        yield one(name, net, ties_of_scale_one.reshape(1, 64))
    config = get_symmetric_quantization_config(is_per_channel=True, is_dynamic=True)
    yield one(
        "convolution",
        nn.Conv2d(4, 6, 3),
        ties_of_scale_one.reshape(1, 4, 4, 4),
        quantizer=XNNPACKQuantizer().set_global(config),
    )


def grouped() -> Iterator[Case]:
    """Grouped convolutions with groups as wide as a vector, or several groups per vector."""

    def of(name: str, layer: nn.Module, x: torch.Tensor, dynamic: bool = False) -> Case:
        net = (
            layer
            if dynamic
            else nn.Sequential(nn.Conv2d(x.shape[1], layer.in_channels, 1), layer, nn.ReLU())
        )
        config = get_symmetric_quantization_config(is_per_channel=True, is_dynamic=dynamic)
        return one(name, net, x, tolerance=ROUNDED, quantizer=XNNPACKQuantizer().set_global(config))

    x = randn(2, 3, 9, 7)
    yield of("wide", nn.Conv2d(48, 96, 3, 1, 1, groups=3), x)
    yield of("narrow", nn.Conv2d(32, 32, 3, 2, (1, 0), groups=8), x)
    yield of("odd", nn.Conv2d(10, 32, (2, 3), 1, (0, 2), (1, 2), groups=2), x)
    yield of("pixels", nn.Conv2d(32, 64, 1, groups=4), x)
    yield of("dynamic", nn.Conv2d(6, 64, 3, 1, 1, groups=2), randn(2, 6, 7, 5), dynamic=True)


def lookups() -> Iterator[Case]:
    """Unary functions between int8 values, computed by lookup tables."""

    def of(name: str, function: nn.Module, x: torch.Tensor) -> Case:
        net = nn.Sequential(nn.Conv2d(3, 5, 1), function, nn.Conv2d(5, 4, 3))
        config = get_symmetric_quantization_config(is_per_channel=True)
        return one(name, net, x, tolerance=ROUNDED, quantizer=XNNPACKQuantizer().set_global(config))

    for name, function in (
        ("hardswish", nn.Hardswish()),
        ("leaky_relu", nn.LeakyReLU(0.2)),
        ("sigmoid", nn.Sigmoid()),
        ("gelu", nn.GELU()),
        ("tanh", nn.Tanh()),
    ):
        yield of(name, function, randn(2, 3, 7, 9) * 3)


def parts() -> Iterator[Case]:
    """Programs with several delegates or methods, or external weights."""
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
    net = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), Inverted(), *head)
    yield one(
        "each_call", net, randn(1, 3, 12, 12), partitioner=XnnpackPartitioner(per_op_mode=True)
    )
    yield one(
        "external",
        nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)),
        randn(2, 6),
        external=True,
    )
    shared = nn.Linear(6, 5)
    yield one(
        "two_methods",
        nn.Sequential(shared, nn.ReLU()),
        randn(2, 6),
        second=nn.Sequential(shared, nn.Tanh()),
    )


FAMILIES = {
    function.__name__: function
    for function in (
        unary,
        binary,
        shape,
        space,
        convolution,
        channels_last,
        linear,
        network,
        quantized,
        integers,
        tiles,
        places,
        dynamic,
        rows,
        ties,
        grouped,
        lookups,
        parts,
    )
}


def fixture(family: str, case: Case) -> Fixture:
    module = module_of(case.run).eval()
    if case.quantizer is not None:
        traced = torch.export.export(
            module, case.cases[0], dynamic_shapes=case.dynamic, strict=True
        ).module()
        prepared = prepare_pt2e(traced, case.quantizer)
        for inputs in case.cases:
            prepared(*inputs)
        module = convert_pt2e(prepared)
    dynamic = case.dynamic
    if dynamic is not None and not isinstance(case.run, nn.Module):
        dynamic = (dynamic,)
    if case.external:
        module = torch.export.export(module, case.cases[0], dynamic_shapes=dynamic).module()
        delegate_external_constants_pass_unlifted(module, lambda _: "weights")
    kind = ByRow if case.by_row else Method
    methods = {"forward": kind(module, list(case.cases), dynamic, strict=case.external)}
    if case.second is not None:
        methods["second"] = Method(case.second.eval(), list(case.cases), dynamic)
    path = f"{FOLDER}/{family}/{case.name}"
    return Fixture(path, methods, case.tolerance, partitioner=case.partitioner)


def main() -> None:
    families = sys.argv[1:] or list(FAMILIES)
    manifest, failed = (
        Manifest("xnnpack", families=[f"{FOLDER}/{family}" for family in families]),
        False,
    )
    for family in families:
        for stale in (FIXTURES / FOLDER / family).glob("*.*"):
            stale.unlink()
        seed(len(family))
        for case in FAMILIES[family]():
            program = manifest.write(fixture(family, case)).executorch_program
            outside = operators(program)
            if outside != sorted(case.outside) or backends(program) != ["XnnpackBackend"]:
                failed = True
                print(f"{family}/{case.name}: {backends(program)}, outside {outside}")
    manifest.save()
    print(f"{len(manifest.entries)} cases for XNNPACK's delegate")
    sys.exit(failed)


if __name__ == "__main__":
    main()
