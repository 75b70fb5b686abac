"""Images and signals: convolution, pooling, resampling, padding."""

from __future__ import annotations

from typing import Any, Iterator

import torch
import torch.nn.functional as F
from op_cases.table import f32, values
from torch import nn
from torch.export import Dim

from .table import Delegated, case, half, halved


def image(channels: int, height: int = 7, width: int = 6) -> tuple[torch.Tensor]:
    return (values(f32, 1, channels, height, width),)


def convolution() -> Iterator[Delegated]:
    plain = {
        "plain": nn.Conv2d(3, 5, 3),
        "padded": nn.Conv2d(3, 8, 3, padding=1),
        "strided": nn.Conv2d(3, 4, 3, stride=2, padding=1),
        "dilated": nn.Conv2d(3, 4, 3, dilation=2, padding=2),
        "uneven": nn.Conv2d(3, 4, (3, 2), stride=(1, 2), padding=(2, 1), dilation=(2, 1)),
        "pointwise": nn.Conv2d(6, 9, 1),
        "pointwise_strided": nn.Conv2d(6, 5, 1, stride=2),
        "large_kernel": nn.Conv2d(2, 3, 5, padding=2),
        "no_bias": nn.Conv2d(3, 4, 3, bias=False),
        "one_channel": nn.Conv2d(1, 1, 3),
        "whole": nn.Conv2d(3, 4, (7, 6)),
    }
    for name, module in plain.items():
        yield case(f"conv2d_{name}", module, image(module.in_channels))
    groups = {
        "grouped": nn.Conv2d(6, 4, 3, groups=2),
        "grouped_three": nn.Conv2d(6, 9, 3, padding=1, groups=3),
        "depthwise": nn.Conv2d(6, 6, 3, padding=1, groups=6),
        "depthwise_strided": nn.Conv2d(6, 6, 3, stride=2, padding=1, groups=6),
        "depthwise_dilated": nn.Conv2d(5, 5, 3, padding=2, dilation=2, groups=5),
        "depthwise_five": nn.Conv2d(4, 4, 5, padding=2, groups=4, bias=False),
        "depthwise_twice": nn.Conv2d(4, 8, 3, padding=1, groups=4),
    }
    for name, module in groups.items():
        yield case(f"conv2d_{name}", module, image(module.in_channels))
    yield half(case("conv2d", nn.Conv2d(3, 8, 3, padding=1), image(3)))
    yield half(case("conv2d_pointwise", nn.Conv2d(6, 9, 1), image(6)))
    yield half(case("conv2d_depthwise", nn.Conv2d(6, 6, 3, padding=1, groups=6), image(6)))
    yield case("conv2d_relu", nn.Sequential(nn.Conv2d(3, 5, 3), nn.ReLU()), image(3))
    yield case("conv2d_relu6", nn.Sequential(nn.Conv2d(3, 5, 3, padding=1), nn.ReLU6()), image(3))
    yield case(
        "conv2d_hardtanh", nn.Sequential(nn.Conv2d(3, 5, 1), nn.Hardtanh(-0.3, 0.6)), image(3)
    )
    yield case("conv2d_silu", nn.Sequential(nn.Conv2d(3, 5, 3), nn.SiLU()), image(3))
    yield case("conv2d_many_channels", nn.Conv2d(35, 33, 1), image(35, 3, 3))
    yield case("conv2d_large", nn.Conv2d(3, 4, 3, padding=1), image(3, 33, 31))
    # Wide enough for tiled GEMM on large GPUs.
    wide = {
        "wide": (nn.Conv2d(16, 40, 3, stride=2, padding=1), 1, 15, 14),
        "wide_grouped": (nn.Conv2d(32, 66, 3, padding=(0, 2), dilation=(1, 2), groups=2), 1, 9, 11),
        "wide_relu": (nn.Sequential(nn.Conv2d(5, 33, (7, 3), padding=3), nn.ReLU()), 1, 10, 9),
        "wide_pointwise_strided": (nn.Conv2d(130, 36, 1, stride=2), 1, 15, 13),
    }
    for name, (module, batch, height, width) in wide.items():
        channels = next(module.parameters()).shape[1] * getattr(module, "groups", 1)
        yield case(f"conv2d_{name}", module, (values(f32, batch, channels, height, width),))
    yield case(
        "conv2d_dynamic",
        nn.Conv2d(3, 4, 3, padding=1),
        *[(values(f32, 1, 3, n, 6),) for n in (7, 3, 10, 5)],
        dynamic=({2: Dim("n", min=3, max=10)},),
    )
    yield case(
        "conv2d_strided_dynamic",
        nn.Sequential(
            nn.Conv2d(3, 4, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(4, 4, 3, padding=1, groups=4),
        ),
        *[(values(f32, 1, 3, n, n),) for n in (8, 4, 12, 6)],
        dynamic=({2: 2 * Dim("n", min=2, max=6), 3: 2 * Dim("n", min=2, max=6)},),
    )


class DepthwiseOutput(nn.Module):
    """A depthwise convolution whose result is also an output."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(6, 6, 3, groups=6), nn.Conv2d(6, 5, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.first(x)
        return x, self.second(x)


class Inverted(nn.Module):
    """An inverted residual block."""

    def __init__(self, channels: int, inner: int) -> None:
        super().__init__()
        self.inside = nn.Sequential(
            nn.Conv2d(channels, inner, 1),
            nn.ReLU6(),
            nn.Conv2d(inner, inner, 3, padding=1, groups=inner),
            nn.ReLU6(),
            nn.Conv2d(inner, channels, 1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.inside(x)


def separable() -> Iterator[Delegated]:
    def separated(
        channels: int, out: int, kernel: int | tuple, *between: nn.Module, **options: Any
    ) -> nn.Module:
        first = nn.Conv2d(channels, channels, kernel, groups=channels, **options)
        return nn.Sequential(first, *between, nn.Conv2d(channels, out, 1))

    modules = {
        "plain": (separated(12, 20, 3, nn.ReLU6(), padding=1), 7, 7),
        "strided": (separated(33, 37, 3, nn.ReLU(), stride=2, padding=1), 9, 11),
        "aligned": (separated(8, 16, 3, padding=1, bias=False), 6, 12),
        "strided_aligned": (separated(10, 24, 3, nn.ReLU6(), stride=2, padding=1), 12, 20),
        "five": (nn.Sequential(separated(9, 11, 5, nn.Hardswish(), padding=2), nn.ReLU()), 8, 9),
        "uneven": (separated(6, 5, (2, 5), stride=(3, 1), padding=(0, 3), dilation=(2, 1)), 13, 10),
        "dilated": (nn.Sequential(separated(7, 9, 3, padding=2, dilation=2), nn.SiLU()), 5, 14),
        "far": (separated(4, 6, 3, padding=9, dilation=9), 12, 11),
        "many_channels": (separated(210, 44, 3, nn.ReLU6(), padding=1), 7, 7),
        "wide": (separated(5, 6, 3, nn.ReLU(), padding=1), 21, 35),
        "residual": (Inverted(8, 40), 14, 14),
        "beside": (DepthwiseOutput(), 6, 5),
    }
    for name, (module, height, width) in modules.items():
        channels = next(
            layer for layer in module.modules() if isinstance(layer, nn.Conv2d)
        ).in_channels
        yield from halved([case(f"separable_{name}", module, image(channels, height, width))])
    line = nn.Sequential(nn.Conv1d(6, 6, 3, padding=1, groups=6), nn.ReLU(), nn.Conv1d(6, 10, 1))
    yield case("separable_line", line, (values(f32, 1, 6, 13),))
    yield case(
        "separable_dynamic",
        separated(10, 12, 3, nn.ReLU6(), padding=1),
        *[(values(f32, 1, 10, n, 2 * n),) for n in (8, 3, 6, 5)],
        dynamic=({2: (n := Dim("n", min=3, max=8)), 3: 2 * n},),
    )


def convolution_1d() -> Iterator[Delegated]:
    modules = {
        "plain": nn.Conv1d(3, 5, 3),
        "padded": nn.Conv1d(3, 4, 3, padding=1),
        "strided": nn.Conv1d(3, 4, 3, stride=2),
        "dilated": nn.Conv1d(3, 4, 3, dilation=2),
        "pointwise": nn.Conv1d(6, 5, 1),
        "depthwise": nn.Conv1d(6, 6, 3, padding=1, groups=6),
        "grouped": nn.Conv1d(6, 4, 3, groups=2),
        "no_bias": nn.Conv1d(3, 5, 3, bias=False),
    }
    for name, module in modules.items():
        yield case(f"conv1d_{name}", module, (values(f32, 1, module.in_channels, 11),))
    yield case("conv1d_batch", nn.Conv1d(3, 5, 3), (values(f32, 2, 3, 9),))
    yield half(case("conv1d", nn.Conv1d(3, 5, 3), (values(f32, 1, 3, 11),)))
    yield half(
        case("conv1d_depthwise", nn.Conv1d(6, 6, 3, padding=1, groups=6), (values(f32, 1, 6, 11),))
    )
    yield case(
        "conv1d_relu", nn.Sequential(nn.Conv1d(3, 5, 3), nn.ReLU()), (values(f32, 1, 3, 11),)
    )


def transposed() -> Iterator[Delegated]:
    modules = {
        "plain": nn.ConvTranspose2d(3, 4, 3),
        "strided": nn.ConvTranspose2d(3, 4, 3, stride=2),
        "padded": nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1),
        "output_padding": nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1),
        "two_by_two": nn.ConvTranspose2d(5, 2, 2, stride=2),
        "no_bias": nn.ConvTranspose2d(3, 4, (2, 3), bias=False),
    }
    for name, module in modules.items():
        yield case(f"transposed_{name}", module, image(module.in_channels, 4, 5))
    yield half(case("transposed", nn.ConvTranspose2d(3, 4, 3, stride=2), image(3, 4, 5)))


def pooling() -> Iterator[Delegated]:
    yield from halved(
        [
            case("max_pool2d", nn.MaxPool2d(2), image(3)),
            case("avg_pool2d", nn.AvgPool2d(2), image(3)),
            case("adaptive_to_one", nn.AdaptiveAvgPool2d(1), image(5)),
        ]
    )
    yield case("max_pool2d_padded", nn.MaxPool2d(3, stride=2, padding=1), image(3))
    yield case("max_pool2d_dilated", nn.MaxPool2d(2, stride=1, dilation=2), image(3))
    yield case("max_pool2d_ceil", nn.MaxPool2d(3, stride=2, ceil_mode=True), image(3))
    yield case("max_pool2d_uneven", nn.MaxPool2d((3, 2), stride=(1, 2)), image(3))
    yield case("max_pool2d_indices", lambda x: F.max_pool2d(x, 2, return_indices=True), image(3))
    yield case(
        "max_pool2d_negative",
        nn.MaxPool2d(3, stride=2, padding=1),
        (-values(f32, 1, 2, 5, 5).abs() - 1,),
    )
    yield case("avg_pool2d_padded", nn.AvgPool2d(3, stride=2, padding=1), image(3))
    yield case(
        "avg_pool2d_padding_not_counted", nn.AvgPool2d(3, 2, 1, count_include_pad=False), image(3)
    )
    yield case("avg_pool2d_ceil", nn.AvgPool2d(3, stride=2, ceil_mode=True), image(3))
    yield case("avg_pool2d_divisor", nn.AvgPool2d(2, divisor_override=3), image(3))
    yield case("max_pool1d", nn.MaxPool1d(2), (values(f32, 1, 3, 8),))
    yield case("avg_pool1d", nn.AvgPool1d(3, stride=2), (values(f32, 1, 3, 9),))
    yield case(
        "max_pool2d_dynamic",
        nn.MaxPool2d(2),
        *[(values(f32, 1, 3, n, 6),) for n in (8, 4, 10, 6)],
        dynamic=({2: 2 * Dim("n", min=1, max=5)},),
    )


def resampling() -> Iterator[Delegated]:
    def resize(**options):
        return lambda x: F.interpolate(x, **options)

    yield from halved(
        [
            case("nearest_twice", resize(scale_factor=2, mode="nearest"), image(3, 3, 4)),
            case(
                "bilinear_twice",
                resize(scale_factor=2, mode="bilinear", align_corners=False),
                image(3, 3, 4),
            ),
            case("pixel_shuffle", nn.PixelShuffle(2), image(8, 3, 4)),
        ]
    )
    yield case("nearest_size", resize(size=(5, 7), mode="nearest"), image(2, 3, 4))
    yield case("nearest_smaller", resize(size=(2, 3), mode="nearest"), image(2, 5, 7))
    yield case(
        "bilinear_size", resize(size=(5, 7), mode="bilinear", align_corners=False), image(2, 3, 4)
    )
    yield case(
        "bilinear_corners", resize(size=(5, 7), mode="bilinear", align_corners=True), image(2, 3, 4)
    )
    yield case(
        "bilinear_smaller",
        resize(size=(2, 3), mode="bilinear", align_corners=False),
        image(2, 5, 7),
    )
    yield case(
        "bilinear_factor",
        resize(scale_factor=1.5, mode="bilinear", align_corners=False),
        image(2, 4, 6),
    )
    yield case("pixel_shuffle_three", nn.PixelShuffle(3), image(9, 2, 3))
    grid = (torch.rand(1, 4, 5, 2) * 2.4 - 1.2,)

    def sample(x, grid):
        return F.grid_sample(x, grid, mode="bilinear", padding_mode="border", align_corners=True)

    yield from halved([case("grid_sample", sample, image(3, 5, 6) + grid)])
    priors = torch.ops.et_vk.grid_priors
    yield case("grid_priors", lambda x: priors(x, 8, 0.5), image(2, 3, 4))


def padding() -> Iterator[Delegated]:
    yield from halved([case("pad", lambda x: F.pad(x, (1, 2)), (values(f32, 2, 3, 5),))])
    yield case("pad_value", lambda x: F.pad(x, (1, 0, 2, 1), value=-1.5), (values(f32, 2, 3, 5),))
    yield case("pad_picture", lambda x: F.pad(x, (1, 2, 3, 1)), image(3, 4, 5))
    yield case("pad_channels", lambda x: F.pad(x, (0, 0, 0, 0, 1, 2)), image(3, 4, 5))
    yield case("pad_crop", lambda x: F.pad(x, (-1, 2)), (values(f32, 2, 3, 5),))
    yield case(
        "pad_convolution",
        nn.Sequential(nn.ZeroPad2d((1, 2, 0, 1)), nn.Conv2d(3, 4, 3)),
        image(3, 5, 5),
    )


class ConvNext(nn.Module):
    """ConvNeXt blocks: depthwise convolutions between channels-last layers."""

    def __init__(self, stride: int = 1, **options) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 2, stride=2)
        convolution = lambda **more: nn.Conv2d(8, 8, groups=8, **more)
        self.depthwise = nn.ModuleList(
            [
                convolution(kernel_size=3, padding=1),
                convolution(kernel_size=(5, 3), padding=(4, 1), dilation=(2, 1), bias=False),
            ]
        )
        self.down = convolution(kernel_size=3, stride=(2, 1), padding=1)
        self.norms = nn.ModuleList(nn.LayerNorm(8) for _ in range(3))
        self.wide = nn.ModuleList(nn.Linear(8, 16) for _ in range(2))
        self.narrow = nn.ModuleList(nn.Linear(16, 8) for _ in range(2))
        self.scales = nn.ParameterList(
            nn.Parameter(torch.tensor([0.5, 0.25, 1, 2, 0.5, 1, 3, 1]).view(8, 1, 1))
            for _ in range(2)
        )

    def forward(self, x):
        x = self.stem(x)
        for convolution, norm, wide, narrow, scale in zip(
            self.depthwise, self.norms, self.wide, self.narrow, self.scales
        ):
            y = norm(convolution(x).permute(0, 2, 3, 1))
            x = x + scale * narrow(nn.functional.gelu(wide(y))).permute(0, 3, 1, 2)
        return self.norms[2](self.down(x).permute(0, 2, 3, 1)), x


def channels_last() -> Iterator[Delegated]:
    yield from halved([case("blocks", ConvNext(), (values(f32, 2, 3, 14, 22),))])


class Dense(nn.Module):
    """Densely connected layers: each layer's input is the concatenation of all earlier outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Conv2d(4 + 4 * number, 4, 3, padding=1) for number in range(4)
        )

    def forward(self, x):
        made = [x.neg()]
        for layer in self.layers:
            made.append(layer(torch.cat(made, 1)).relu())
        return torch.cat(made, 1).exp()


class Gaps(nn.Module):
    """Concatenations with short gaps: four neighbouring elements span two rows, or just fit."""

    def forward(self, a, b, c):
        joined = (
            torch.cat([a, b], 1),
            torch.cat([a, c], 1),
            torch.cat([c, a, b], 1),
            torch.cat([b, b, c], 1),
        )
        return tuple(each.neg() for each in joined)


def dense() -> Iterator[Delegated]:
    parts = [values(f32, 7, count, 1) for count in (1, 2, 3)]
    yield from halved(
        [
            case("gaps", Gaps(), tuple(parts)),
            case("odd_gaps", Gaps(), tuple(values(f32, 5, count, 3) for count in (1, 2, 4))),
        ]
    )
    yield from halved([case("layers", Dense(), (values(f32, 1, 4, 8, 8),))])


class LargeConv(nn.Module):
    """A convolution large enough to keep a big GPU busy.

    Small inputs are broadcast, and the results are reduced to a few distinguishing values.
    """

    def __init__(
        self, layer: nn.Conv2d, plane: tuple[int, int], follows: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.layer, self.follows = layer, follows
        self.register_buffer("places", values(f32, 1, 1, *plane).abs() + 0.5)

    def forward(self, x, each):
        made = self.layer(x + each)
        if self.follows is not None:
            made = self.follows(made + each.mean((1, 2, 3), keepdim=True))
        seen = made * self.places
        return seen.amax((2, 3)), seen.mean((2, 3)), made[0, :2]


def overlapping() -> Iterator[Delegated]:
    def images(count: int, channels: int, height: int, width: int) -> tuple:
        return values(f32, 1, channels, height, width), values(f32, count, 1, 1, 1)

    # At this batch size, the exporter leaves some operators on the CPU.
    outside = {
        "outside": ("aten::amax.out", "aten::convolution.out", "aten::mean.out"),
        "delegates": 2,
    }
    yield from halved(
        [
            case(
                "small",
                LargeConv(nn.Conv2d(16, 32, 3, padding=1), (7, 7)),
                images(112, 16, 7, 7),
                **outside,
            ),
            case(
                "odd",
                LargeConv(
                    nn.Conv2d(19, 70, (3, 2), padding=(2, 1), dilation=(1, 2)), (7, 9), nn.SiLU()
                ),
                images(40, 19, 5, 9),
                **outside,
            ),
            case(
                "shared",
                LargeConv(nn.Conv2d(33, 64, 3, padding=1, bias=False), (6, 6), nn.ReLU()),
                images(62, 33, 6, 6),
                **outside,
            ),
            case(
                "strips",
                LargeConv(nn.Conv2d(16, 32, (2, 3), padding=(0, 1)), (95, 134)),
                (values(f32, 1, 16, 1, 134), values(f32, 1, 1, 96, 1)),
                outside=("aten::amax.out", "aten::mean.out"),
            ),
        ]
    )


FAMILIES = {
    "overlapping": overlapping,
    "channels_last": channels_last,
    "dense": dense,
    "convolution": convolution,
    "separable": separable,
    "convolution_1d": convolution_1d,
    "transposed": transposed,
    "pooling": pooling,
    "resampling": resampling,
    "padding": padding,
}
