"""Quantized operators, as the exporter fuses them, and fake quantization by its own operators."""

from __future__ import annotations

import contextlib
import copy
import io
from typing import Any, Iterator

import torch

with contextlib.redirect_stdout(io.StringIO()):
    import executorch.kernels.quantized  # noqa: F401  (the out variants)
    from executorch.backends.vulkan.quantizer import vulkan_quantizer as vulkan
    from executorch.backends.xnnpack.quantizer import xnnpack_quantizer as xnnpack
    from executorch.exir.passes import _quant_patterns_and_replacements  # noqa: F401
    from torchao.quantization import (
        Int8DynamicActivationIntxWeightConfig,
        IntxWeightOnlyConfig,
        quantize_,
    )
    from torchao.quantization.granularity import PerGroup
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.utils import unwrap_tensor_subclass

from op_cases.table import Inputs, f32, i8, i32, u8, values
from torch import nn
from torch.export import Dim

from .reduce import RmsNorm
from .table import Delegated, case, half

Q = torch.ops.quantized_decomposed
VK = torch.ops.et_vk


def calibrated(quantizer: Any, module: nn.Module, inputs: list[Inputs]) -> nn.Module:
    """Quantizes the graph with ranges calibrated on the inputs."""
    graph = torch.export.export(copy.deepcopy(module), inputs[0]).module()
    prepared = prepare_pt2e(graph, quantizer)
    with torch.no_grad():
        for each in inputs:
            prepared(*each)
    return convert_pt2e(prepared)


def static(module: nn.Module, inputs: list[Inputs]) -> nn.Module:
    """8-bit quantization: weights per channel, activations per tensor."""
    config = xnnpack.get_symmetric_quantization_config(is_per_channel=True)
    return calibrated(xnnpack.XNNPACKQuantizer().set_global(config), module, inputs)


def weights_only(bits: int) -> Any:
    """Quantizes weights per channel to `bits` bits."""

    def quantize(module: nn.Module, inputs: list[Inputs]) -> nn.Module:
        config = vulkan.get_symmetric_quantization_config(weight_bits=bits)
        return calibrated(vulkan.VulkanQuantizer().set_global(config), module, inputs)

    return quantize


def grouped(config: type, group: int, dtype: torch.dtype = torch.int4) -> Any:
    """Quantizes weights per group, or per channel if the group spans the row."""
    name = (
        "weight_granularity" if config is Int8DynamicActivationIntxWeightConfig else "granularity"
    )

    def quantize(module: nn.Module, inputs: list[Inputs]) -> nn.Module:
        module = copy.deepcopy(module)
        quantize_(module, config(weight_dtype=dtype, **{name: PerGroup(group)}))
        return unwrap_tensor_subclass(module) or module

    return quantize


def linear() -> Iterator[Delegated]:
    """fp32 results match the dequantized computation up to rounding of the activations."""
    plain, biased = nn.Linear(64, 12, bias=False), nn.Linear(64, 24)
    one, rows, batch = (values(f32, 1, 64),), (values(f32, 5, 64),), (values(f32, 1, 6, 64),)
    only, dynamic = IntxWeightOnlyConfig, Int8DynamicActivationIntxWeightConfig
    yield case("q4gsw", plain, rows, quantize=grouped(only, 32), rtol=1e-3, atol=1e-3)
    yield case("q4gsw_one", plain, one, quantize=grouped(only, 64), rtol=1e-3, atol=1e-3)
    yield case("q4gsw_bias", biased, batch, quantize=grouped(only, 16), rtol=1e-3, atol=1e-3)
    yield half(case("q4gsw", biased, rows, quantize=grouped(only, 32), atol=0.05))
    yield case("dq8ca_q4gsw", plain, rows, quantize=grouped(dynamic, 32), rtol=0.0, atol=0.02)
    yield case("dq8ca_q4gsw_one", plain, one, quantize=grouped(dynamic, 64), rtol=0.0, atol=0.02)
    yield case(
        "dq8ca_q4gsw_bias", biased, batch, quantize=grouped(dynamic, 32), rtol=0.0, atol=0.02
    )
    yield case("qcs4w", plain, rows, quantize=weights_only(4), rtol=1e-3, atol=1e-3)
    yield case("qcs4w_bias", biased, one, quantize=weights_only(4), rtol=1e-3, atol=1e-3)
    yield case("int8pack", plain, rows, quantize=weights_only(8), rtol=1e-3, atol=1e-3)
    yield case("int8pack_bias", biased, batch, quantize=weights_only(8), rtol=1e-3, atol=1e-3)
    # Enough rows for the weights to be dequantized ahead of the GEMM.
    wide, many = nn.Linear(128, 64), (values(f32, 1, 72, 128),)
    yield half(case("q4gsw_many", wide, many, quantize=grouped(only, 32), atol=0.05))
    yield case("int8pack_many", wide, many, quantize=weights_only(8), rtol=1e-3, atol=1e-3)
    some = [(values(f32, 1, rows, 128),) for rows in (72, 1, 40, 3)]
    dynamic_rows = ({1: Dim("rows", min=1, max=72)},)
    yield case(
        "q4gsw_rows",
        wide,
        *some,
        quantize=grouped(only, 32),
        dynamic=dynamic_rows,
        rtol=1e-3,
        atol=1e-3,
    )


def dequantized_int8() -> Iterator[Delegated]:
    """int8 weights that the exporter dequantizes at run time."""
    only = IntxWeightOnlyConfig
    plain, biased, odd = nn.Linear(64, 12, bias=False), nn.Linear(64, 24), nn.Linear(64, 11)
    one, rows = (values(f32, 1, 64),), (values(f32, 5, 64),)
    for name, module, inputs, group in (
        ("by_row", plain, rows, 64),
        ("by_row_one", biased, one, 64),
        ("by_group", biased, rows, 16),
        ("odd", odd, rows, 64),
    ):
        quantize = grouped(only, group, torch.int8)
        yield case(name, module, inputs, quantize=quantize, rtol=1e-3, atol=1e-3)
    yield half(case("by_row", biased, rows, quantize=grouped(only, 64, torch.int8), atol=0.05))
    many = (values(f32, 1, 72, 64),)
    yield case(
        "by_row_many", biased, many, quantize=grouped(only, 64, torch.int8), rtol=1e-3, atol=1e-3
    )


class FeedForward(nn.Module):
    """A gated feed-forward layer: RMSNorm, gate and up projections, down projection."""

    def __init__(self, activation: nn.Module, width: int, inner: int) -> None:
        super().__init__()
        self.norm = RmsNorm(width)
        self.gate, self.up = (
            nn.Linear(width, inner, bias=False),
            nn.Linear(width, inner, bias=False),
        )
        self.down = nn.Linear(inner, width, bias=False)
        self.activation = activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed = self.norm(x)
        return x + self.down(self.activation(self.gate(normed)) * self.up(normed))


class Shared(FeedForward):
    """The norm and the gate have other users, too."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        normed = self.norm(x)
        gate = self.activation(self.gate(normed))
        return gate * self.up(normed), gate, normed - 1.0


def feed_forward() -> Iterator[Delegated]:
    """For few rows, GEMV kernels have the norm and the gate fused."""
    only = grouped(IntxWeightOnlyConfig, 32)
    tight = {"quantize": only, "rtol": 1e-3, "atol": 1e-3}
    some = [(values(f32, 1, rows, 128),) for rows in (72, 1, 40, 3)]
    dynamic = {"dynamic": ({1: Dim("rows", min=1, max=72)},)}
    silu = FeedForward(nn.SiLU(), 128, 96)
    yield case("rows", silu, *some, **tight, **dynamic)
    yield half(case("rows", silu, *some, quantize=only, atol=0.05, **dynamic))
    # Rows of 16 bytes of weights per invocation of a subgroup, then shorter ones.
    yield case("wide", FeedForward(nn.SiLU(), 1024, 64), (values(f32, 1, 2, 1024),), **tight)
    yield case("gelu", FeedForward(nn.GELU(), 64, 160), (values(f32, 1, 1, 64),), **tight)
    yield case("sigmoid", FeedForward(nn.Sigmoid(), 64, 32), (values(f32, 4, 64),), **tight)
    yield case("shared", Shared(nn.SiLU(), 64, 32), (values(f32, 1, 2, 64),), **tight)
    # Weights that are not quantized.
    dynamic = {"dynamic": ({1: Dim("rows", min=1, max=40)},)}
    some = [(values(f32, 1, rows, 136),) for rows in (40, 1, 33, 3)]
    yield case("floats", FeedForward(nn.SiLU(), 136, 36), *some, **dynamic)
    some = [(values(f32, 1, rows, 264),) for rows in (40, 1, 33, 3)]
    yield half(case("floats", FeedForward(nn.SiLU(), 264, 36), *some, **dynamic))


def long_rows() -> Iterator[Delegated]:
    """fp16 rows long enough for each invocation to load 16 bytes of weights."""
    only, loose = IntxWeightOnlyConfig, {"rtol": 4e-3, "atol": 4e-3}
    row, rows = (values(f32, 1, 1024),), (values(f32, 2, 1024),)
    yield half(case("q4gsw", nn.Linear(1024, 8), row, quantize=grouped(only, 64), **loose))
    yield half(
        case("qcs4w", nn.Linear(1024, 8, bias=False), rows, quantize=weights_only(4), **loose)
    )
    yield half(case("int8pack", nn.Linear(1024, 8), row, quantize=weights_only(8), **loose))
    feed = FeedForward(nn.SiLU(), 1024, 64)
    yield half(
        case("feed_forward", feed, (values(f32, 1, 2, 1024),), quantize=grouped(only, 32), **loose)
    )


def static_case(name: str, module: nn.Module, *inputs: Inputs) -> Delegated:
    """A fully quantized module; the tolerance allows one quantization step per layer."""
    module.eval()
    with torch.no_grad():
        outputs = [module(*each) for each in inputs]
    spread = max(o.max().item() for o in outputs) - min(o.min().item() for o in outputs)
    return case(
        name, module, *inputs, quantize=static, rtol=0.0, atol=float(f"{1.05 * spread / 255:.2g}")
    )


def layers() -> Iterator[Delegated]:
    yield static_case("linear", nn.Linear(16, 12), (values(f32, 5, 16),))
    yield static_case("linear_one", nn.Linear(16, 12, bias=False), (values(f32, 1, 16),))
    yield static_case(
        "linear_relu", nn.Sequential(nn.Linear(16, 10), nn.ReLU()), (values(f32, 5, 16),)
    )
    yield static_case(
        "linear_chain",
        nn.Sequential(nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 8)),
        (values(f32, 4, 16),),
    )
    yield static_case("conv2d", nn.Conv2d(3, 8, 3, padding=1), (values(f32, 1, 3, 6, 7),))
    yield static_case("conv2d_odd_channels", nn.Conv2d(3, 5, 3), (values(f32, 1, 3, 6, 7),))
    yield static_case(
        "conv2d_strided",
        nn.Conv2d(4, 8, 3, stride=2, padding=1, bias=False),
        (values(f32, 1, 4, 7, 8),),
    )
    yield static_case("conv2d_dilated", nn.Conv2d(4, 8, 3, dilation=2), (values(f32, 1, 4, 7, 8),))
    yield static_case(
        "conv2d_relu", nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()), (values(f32, 1, 3, 6, 7),)
    )
    yield static_case("conv2d_pointwise", nn.Conv2d(8, 12, 1), (values(f32, 1, 8, 5, 6),))
    yield static_case(
        "conv2d_depthwise", nn.Conv2d(8, 8, 3, padding=1, groups=8), (values(f32, 1, 8, 6, 5),)
    )
    yield static_case(
        "conv2d_grouped", nn.Conv2d(8, 8, 3, padding=1, groups=2), (values(f32, 1, 8, 6, 5),)
    )
    yield static_case(
        "conv2d_transposed", nn.ConvTranspose2d(4, 8, 3, stride=2), (values(f32, 1, 4, 4, 5),)
    )
    yield static_case("conv2d_chain", Chain(), (values(f32, 1, 3, 8, 8),))
    yield static_case("add", Residual(), (values(f32, 1, 4, 6, 5),))
    yield static_case(
        "pixel_shuffle",
        nn.Sequential(nn.Conv2d(4, 16, 1), nn.PixelShuffle(2)),
        (values(f32, 1, 4, 3, 4),),
    )


class Separable(nn.Module):
    """Depthwise and pointwise convolutions with clamps."""

    def __init__(self) -> None:
        super().__init__()
        depthwise = nn.Conv2d(24, 24, 3, 2, 1, groups=24)
        self.first = nn.Sequential(nn.Conv2d(3, 24, 3, padding=1), nn.ReLU6())
        self.second = nn.Sequential(depthwise, nn.ReLU(), nn.Conv2d(24, 40, 1))
        self.third = nn.Sequential(nn.Conv2d(40, 40, 1), nn.Hardtanh(-0.5, 0.25))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.second(self.first(x))
        return x + self.third(x)


def int8_chain() -> Iterator[Delegated]:
    """int8 convolutions that keep the device's channels-last layout between them."""
    yield static_case("separable", Separable(), (values(f32, 2, 3, 13, 10),))


class ExactSums(nn.Module):
    """A layer whose inputs and weights are integers times a power of two.

    Sums are exact in any order. The output scale is half as fine, so half of the sums lie midway
    between two quantized values.
    """

    def __init__(self, layer: nn.Module, scale: float, out: tuple[float, int]) -> None:
        super().__init__()
        self.layer, self.out = layer, out
        weight = layer.weight
        channels = weight.shape[0]
        self.register_buffer("codes", torch.randint(-2, 3, weight.shape, dtype=i8))
        self.register_buffer("scales", torch.full((channels,), scale))
        self.register_buffer("zeros", torch.zeros(channels, dtype=torch.int64))
        layer.bias.data = torch.randint(-8, 9, (channels,)) * out[0] / 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = Q.dequantize_per_channel(self.codes, self.scales, self.zeros, 0, -127, 127, i8)
        if isinstance(self.layer, nn.Linear):
            y = nn.functional.linear(x, weight, self.layer.bias)
        else:
            y = nn.functional.conv2d(
                x, weight, self.layer.bias, 1, self.layer.padding, 1, self.layer.groups
            )
        return fake_quantize(y, *self.out)


def fake_quantize(x: torch.Tensor, scale: float, zero: int) -> torch.Tensor:
    """Quantizes and dequantizes `x`."""
    return Q.dequantize_per_tensor(
        Q.quantize_per_tensor(x, scale, zero, -128, 127, i8), scale, zero, -128, 127, i8
    )


class ExactConvolutions(nn.Module):
    """Convolutions of each kind, and an addition."""

    def __init__(self) -> None:
        super().__init__()
        self.first = ExactSums(nn.Conv2d(3, 24, 3, padding=1), 1 / 16, (1 / 32, 3))
        self.second = ExactSums(nn.Conv2d(24, 24, 3, padding=1, groups=24), 1 / 2, (1 / 32, -5))
        self.third = ExactSums(nn.Conv2d(24, 24, 1), 1 / 2, (1 / 32, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.second(self.first(fake_quantize(x, 1 / 4, -1)))
        return fake_quantize(x + self.third(x), 1 / 16, 7)


class ExactLinear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.product = ExactSums(nn.Linear(16, 12), 1 / 16, (1 / 32, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.product(fake_quantize(x, 1 / 4, -1))


def exact_ties() -> Iterator[Delegated]:
    """Exact ties between two quantized values.

    They must round to even before the zero point is added.
    """
    image = torch.randint(-4, 5, (2, 3, 6, 7)) / 4
    yield case("convolutions", ExactConvolutions(), (image,), rtol=0.0, atol=0.0)
    for name, rows in (("product", 5), ("product_one", 1)):
        yield case(name, ExactLinear(), (torch.randint(-4, 5, (rows, 16)) / 4,), rtol=0.0, atol=0.0)


class Chain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3, padding=1, groups=8),
            nn.Conv2d(8, 12, 1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        return x + self.second(x)


def conversion() -> Iterator[Delegated]:
    x, ints = values(f32, 3, 8), values(i8, 3, 8)
    there = lambda x: Q.quantize_per_tensor(x, 0.05, 3, -128, 127, i8)  # noqa: E731
    back = lambda x: Q.dequantize_per_tensor(x, 0.05, 3, -128, 127, i8)  # noqa: E731
    yield case("quantize", there, (x,))
    yield case("relu", lambda x: back(there(torch.relu(back(there(x))))), (x,), rtol=0.0, atol=1e-5)
    image = (values(f32, 1, 8, 3, 4),)
    shuffle = lambda x: back(there(torch.pixel_shuffle(back(there(x)), 2)))  # noqa: E731
    yield case("shuffle", shuffle, image, rtol=0.0, atol=1e-5)
    sum_of = lambda x: back(there(back(there(x)) + back(there(x * 0.5))))  # noqa: E731
    yield case("sum", sum_of, image, rtol=0.0, atol=0.051)
    yield case("quantize_picture", there, (values(f32, 1, 3, 5, 6),))
    yield case("dequantize", back, (ints,))
    scales, zeros = torch.rand(3) * 0.1 + 0.01, torch.tensor([0, 3, -4])
    yield case(
        "quantize_channel",
        lambda x, s, z: Q.quantize_per_channel(x, s, z, 0, -128, 127, i8),
        (x, scales, zeros),
    )
    yield case(
        "dequantize_channel",
        lambda x, s, z: Q.dequantize_per_channel(x, s, z, 0, -128, 127, i8),
        (ints, scales, zeros),
    )
    by_row, zero_by_row = scales.double()[:, None], zeros[:, None]
    yield case(
        "quantize_token",
        lambda x, s, z: Q.quantize_per_token(x, s, z, -128, 127, i8),
        (x, by_row, zero_by_row),
    )
    yield case(
        "choose_qparams", lambda x: Q.choose_qparams.tensor(x, -128, 127, 1e-5, i8), (x,), rtol=1e-5
    )
    yield case(
        "choose_token", lambda x: Q.choose_qparams_per_token_asymmetric(x, i8), (x,), rtol=1e-5
    )


def packed(rows: int, columns: int) -> torch.Tensor:
    return torch.randint(0, 256, (rows, columns // 2), dtype=u8)


def embedding() -> Iterator[Delegated]:
    indices = torch.randint(0, 9, (2, 3), dtype=i32)
    yield case("embedding_4bit", Embedding4(9, 64, 32), (indices,))
    yield case("embedding_4bit_rows", Embedding4(9, 32, 32), (indices[0],))


class Embedding4(nn.Module):
    def __init__(self, count: int, width: int, group: int) -> None:
        super().__init__()
        self.register_buffer("weight", packed(count, width))
        self.register_buffer("scales", torch.rand(count, width // group) * 0.1 + 0.01)

    def forward(self, indices: torch.Tensor) -> torch.Tensor:
        return Q.embedding_4bit.dtype(self.weight, self.scales, None, -8, 7, indices, dtype=f32)


def training() -> Iterator[Delegated]:
    labels = torch.tensor([2, 0, -1, 6], dtype=i32)
    yield case("fused_ce", lambda x, y: VK.fused_ce(x, y, 3.0), (values(f32, 4, 7), labels))
    yield case("linear_dw", VK.linear_dW, (values(f32, 5, 6), values(f32, 5, 8)))


FAMILIES = {
    "quantized_linear": linear,
    "quantized_codes": dequantized_int8,
    "feed_forward": feed_forward,
    "long_rows": long_rows,
    "quantized_layers": layers,
    "quantized_conversion": conversion,
    "quantized_places": int8_chain,
    "quantized_halves": exact_ties,
    "quantized_embedding": embedding,
    "training": training,
}
