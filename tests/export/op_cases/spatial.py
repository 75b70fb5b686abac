"""Convolution, pooling, normalization, resampling."""

from __future__ import annotations

from typing import Any, Iterator

import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

from .table import Case, bf16, case, each, f16, f32, f64, i32, last, specials, u8, values


def convolutions() -> Iterator[Case]:
    kinds = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
    options: dict[str, dict[str, Any]] = {
        "plain": {},
        "no_bias": {"bias": False},
        "stride": {"stride": 2},
        "padding": {"padding": 1},
        "dilation": {"dilation": 2, "padding": 2},
        "groups": {"groups": 2},
        "all": {"stride": 2, "padding": 2, "dilation": 2, "groups": 2},
    }
    for rank, kind in kinds.items():
        size = {1: (9,), 2: (7, 6), 3: (5, 4, 5)}[rank]
        for name, chosen in options.items():
            yield case(
                f"conv{rank}d_{name}",
                kind(4, 6, 3, **({"padding": 1} | chosen if rank == 3 else chosen)),
                (values(f32, 2, 4, *size),),
            )
        yield case(
            f"conv{rank}d_depthwise",
            kind(4, 4, 3, padding=1, groups=4),
            (values(f32, 1, 4, *size),),
        )
        yield case(
            f"conv{rank}d_depthwise_multiplied",
            kind(4, 8, 3, groups=4, padding=1),
            (values(f32, 1, 4, *size),),
        )
        yield case(f"conv{rank}d_pointwise", kind(4, 5, 1), (values(f32, 1, 4, *size),))
        yield case(f"conv{rank}d_same", kind(4, 3, 3, padding="same"), (values(f32, 1, 4, *size),))
    yield case(
        "conv2d_uneven",
        nn.Conv2d(2, 3, (1, 4), stride=(1, 2), padding=(0, 3), dilation=(1, 2)),
        (values(f32, 1, 2, 5, 9),),
    )
    yield case("conv2d_large_kernel", nn.Conv2d(1, 2, 7, padding=3), (values(f32, 1, 1, 6, 6),))
    yield case("conv2d_no_batch", nn.Conv2d(2, 3, 3), (values(f32, 2, 5, 5),))
    yield case("conv1d_no_batch", nn.Conv1d(2, 3, 3), (values(f32, 2, 8),))
    yield case(
        "conv2d_many_channels",
        nn.Conv2d(19, 17, 3, padding=1),
        (values(f32, 1, 19, 5, 5, scale=1.0),),
    )
    yield case(
        "conv2d_reflected",
        nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect"),
        (values(f32, 1, 2, 5, 5),),
    )
    yield case(
        "conv2d_channels_last",
        nn.Conv2d(3, 4, 3, padding=1).to(memory_format=torch.channels_last),
        (last(values(f32, 2, 3, 5, 6)),),
    )
    yield case(
        "conv2d_channels_last_depthwise",
        nn.Conv2d(3, 3, 3, padding=1, groups=3).to(memory_format=torch.channels_last),
        (last(values(f32, 2, 3, 5, 6)),),
    )
    yield case("conv2d_channels_last_input", nn.Conv2d(3, 4, 3), (last(values(f32, 2, 3, 5, 6)),))
    yield case("conv2d_infinite", nn.Conv2d(1, 1, 3, padding=1), (specials(f32, 1, 1, 5, 5),))
    yield case(
        "conv2d_weight_input",
        F.conv2d,
        (values(f32, 1, 2, 5, 5), values(f32, 3, 2, 3, 3), values(f32, 3)),
    )
    yield case(
        "conv2d_dynamic",
        nn.Conv2d(2, 3, 3, stride=2, padding=1),
        *[(values(f32, 1, 2, n, n + 1),) for n in (6, 3, 10)],
        dynamic=({2: Dim("h", min=3, max=10), 3: Dim("w", min=4, max=11)},),
    )
    yield from each(
        "conv2d",
        F.conv2d,
        (f64, f16, bf16),
        lambda d: (values(d, 1, 3, 5, 5), values(d, 4, 3, 3, 3, scale=0.3), values(d, 4)),
    )
    yield from each(
        "conv1d",
        F.conv1d,
        (f16,),
        lambda d: (values(d, 1, 3, 8), values(d, 4, 3, 3, scale=0.3), values(d, 4)),
    )


def transposed() -> Iterator[Case]:
    kinds = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
    options: dict[str, dict[str, Any]] = {
        "plain": {},
        "no_bias": {"bias": False},
        "stride": {"stride": 2},
        "padding": {"padding": 1},
        "output_padding": {"stride": 2, "padding": 1, "output_padding": 1},
        "dilation": {"dilation": 2},
        "groups": {"groups": 2, "stride": 2},
    }
    for rank, kind in kinds.items():
        size = {1: (6,), 2: (4, 5), 3: (3, 2, 3)}[rank]
        for name, chosen in options.items():
            yield case(
                f"conv_transpose{rank}d_{name}",
                kind(4, 6, 3, **chosen),
                (values(f32, 1, 4, *size),),
            )
    yield case(
        "conv_transpose2d_channels_last",
        nn.ConvTranspose2d(3, 4, 3, stride=2).to(memory_format=torch.channels_last),
        (last(values(f32, 2, 3, 4, 4)),),
    )
    yield from each(
        "conv_transpose2d",
        F.conv_transpose2d,
        (f16,),
        lambda d: (values(d, 1, 3, 4, 4), values(d, 3, 4, 2, 2, scale=0.3)),
    )


def transposed_of_many_channels() -> Iterator[Case]:
    """Transposed convolutions with enough channels for a GPU to compute them by GEMM and col2im."""
    layers = {
        "plain": nn.ConvTranspose2d(16, 5, 3),
        "doubling": nn.Sequential(nn.ConvTranspose2d(16, 6, 4, 2, 1), nn.ReLU()),
        "uneven": nn.ConvTranspose2d(12, 3, (3, 4), (2, 3), (1, 2), (1, 2), bias=False),
        "groups": nn.ConvTranspose2d(48, 6, (2, 3), 2, groups=3),
        "dilation": nn.ConvTranspose2d(16, 4, 3, (2, 3), (1, 0), dilation=(3, 2)),
        "apart": nn.ConvTranspose2d(32, 4, 2, (4, 6), dilation=(2, 3)),
    }
    for name, layer in layers.items():
        channels = (layer[0] if isinstance(layer, nn.Sequential) else layer).in_channels
        yield case(f"many_{name}", layer, (values(f32, 2, channels, 4, 5),))
    yield case("many_alone", nn.ConvTranspose2d(16, 6, 3, 2), (values(f32, 16, 4, 5),))
    # No multiple of the stride leads from one filter tap to another.
    yield case(
        "many_far", nn.ConvTranspose2d(32, 1, 2, 300000001, dilation=2), (values(f32, 1, 32, 1, 1),)
    )
    yield case("many_line", nn.ConvTranspose1d(16, 8, 8, 4, 2), (values(f32, 1, 16, 9),))
    yield case(
        "many_halves", nn.ConvTranspose2d(16, 6, 4, 2, 1).half(), (values(f16, 1, 16, 4, 5),)
    )
    yield case(
        "many_dynamic",
        nn.ConvTranspose2d(16, 4, 3, 2, 1),
        *[(values(f32, 1, 16, n, n + 1),) for n in (6, 1, 9)],
        dynamic=({2: Dim("h", min=1, max=9), 3: Dim("w", min=2, max=10)},),
    )


def pooling() -> Iterator[Case]:
    sizes = {1: (9,), 2: (7, 8), 3: (5, 6, 5)}
    for rank in (1, 2, 3):
        size = sizes[rank]
        average, biggest = getattr(F, f"avg_pool{rank}d"), getattr(F, f"max_pool{rank}d")
        for name, options in {
            "plain": {"kernel_size": 2},
            "overlapping": {"kernel_size": 3, "stride": 1},
            "padding": {"kernel_size": 3, "stride": 2, "padding": 1},
            "ceil": {"kernel_size": 3, "stride": 2, "ceil_mode": True},
            "ceil_padding": {"kernel_size": 2, "stride": 2, "padding": 1, "ceil_mode": True},
        }.items():
            yield case(
                f"avg_pool{rank}d_{name}",
                lambda x, f=average, o=options: f(x, **o),
                (values(f32, 2, 3, *size),),
            )
            yield case(
                f"max_pool{rank}d_{name}",
                lambda x, f=biggest, o=options: f(x, **o),
                (values(f32, 2, 3, *size),),
            )
        yield case(
            f"avg_pool{rank}d_padding_not_counted",
            lambda x, f=average: f(x, 3, 2, 1, count_include_pad=False),
            (values(f32, 1, 2, *size),),
        )
        yield case(
            f"max_pool{rank}d_dilation",
            lambda x, f=biggest: f(x, 2, 1, dilation=2),
            (values(f32, 1, 2, *size),),
        )
        yield case(
            f"max_pool{rank}d_no_batch", lambda x, f=biggest: f(x, 2), (values(f32, 2, *size),)
        )
        yield case(
            f"max_pool{rank}d_indices",
            lambda x, f=biggest: f(x, 2, return_indices=True),
            (values(f32, 1, 2, *size),),
        )
        yield case(
            f"max_pool{rank}d_specials", lambda x, f=biggest: f(x, 2), (specials(f32, 1, 2, *size),)
        )
        for goal in (1, 2, 3):
            adaptive = getattr(F, f"adaptive_avg_pool{rank}d")
            yield case(
                f"adaptive_avg_pool{rank}d_to_{goal}",
                lambda x, f=adaptive, g=goal: f(x, g),
                (values(f32, 2, 3, *size),),
            )
            adaptive = getattr(F, f"adaptive_max_pool{rank}d")
            yield case(
                f"adaptive_max_pool{rank}d_to_{goal}",
                lambda x, f=adaptive, g=goal: f(x, g),
                (values(f32, 2, 3, *size),),
            )
    yield case(
        "adaptive_avg_pool2d_uneven",
        lambda x: F.adaptive_avg_pool2d(x, (3, None)),
        (values(f32, 1, 2, 7, 5),),
    )
    yield case(
        "avg_pool2d_divisor",
        lambda x: F.avg_pool2d(x, 2, divisor_override=3),
        (values(f32, 1, 2, 4, 4),),
    )
    yield case(
        "avg_pool2d_uneven",
        lambda x: F.avg_pool2d(x, (1, 3), (2, 1), (0, 1)),
        (values(f32, 1, 2, 5, 6),),
    )
    yield case(
        "avg_pool2d_channels_last", lambda x: F.avg_pool2d(x, 2), (last(values(f32, 2, 3, 4, 6)),)
    )
    yield case(
        "max_pool2d_channels_last", lambda x: F.max_pool2d(x, 2), (last(values(f32, 2, 3, 4, 6)),)
    )
    yield from each(
        "avg_pool2d",
        lambda x: F.avg_pool2d(x, 2),
        (f16, bf16, f64),
        lambda d: (values(d, 1, 2, 4, 4),),
    )
    yield from each(
        "max_pool2d",
        lambda x: F.max_pool2d(x, 2),
        (f16, bf16, f64, u8, i32),
        lambda d: (values(d, 1, 2, 4, 4),),
    )
    yield case(
        "max_pool2d_dynamic",
        lambda x: F.max_pool2d(x, 2),
        *[(values(f32, 1, 2, n, 4),) for n in (6, 2, 10)],
        dynamic=({2: 2 * Dim("h", min=1, max=5)},),
    )


class Normalized(nn.Module):
    """A norm with weights other than one and biases other than zero."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm
        for name, tensor in norm.state_dict().items():
            if tensor.is_floating_point():
                low = 0.5 if name in ("weight", "running_var") else -0.5
                nn.init.uniform_(tensor, low, low + 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)


def normalization() -> Iterator[Case]:
    for name, norm, shape in (
        ("batch_norm_1d", nn.BatchNorm1d(3), (4, 3)),
        ("batch_norm_1d_length", nn.BatchNorm1d(3), (2, 3, 5)),
        ("batch_norm_2d", nn.BatchNorm2d(3), (2, 3, 4, 5)),
        ("batch_norm_2d_eps", nn.BatchNorm2d(3, eps=0.1), (1, 3, 2, 2)),
        ("batch_norm_2d_not_affine", nn.BatchNorm2d(3, affine=False), (1, 3, 2, 2)),
        ("batch_norm_2d_no_statistics", nn.BatchNorm2d(3, track_running_stats=False), (2, 3, 2, 2)),
        ("batch_norm_3d", nn.BatchNorm3d(2), (1, 2, 2, 3, 2)),
        ("layer_norm", nn.LayerNorm(5), (2, 3, 5)),
        ("layer_norm_two_dims", nn.LayerNorm((3, 5)), (2, 3, 5)),
        ("layer_norm_not_affine", nn.LayerNorm(5, elementwise_affine=False), (3, 5)),
        ("layer_norm_no_bias", nn.LayerNorm(5, bias=False), (3, 5)),
        ("layer_norm_eps", nn.LayerNorm(5, eps=0.1), (3, 5)),
        ("layer_norm_long", nn.LayerNorm(300), (1, 300)),
        ("group_norm", nn.GroupNorm(2, 4), (2, 4, 3, 3)),
        ("group_norm_one_group", nn.GroupNorm(1, 4), (2, 4, 6)),
        ("group_norm_not_affine", nn.GroupNorm(4, 4, affine=False), (2, 4, 3)),
        ("instance_norm_1d", nn.InstanceNorm1d(3), (2, 3, 6)),
        ("instance_norm_2d", nn.InstanceNorm2d(3, affine=True), (2, 3, 4, 4)),
        ("instance_norm_3d", nn.InstanceNorm3d(2, affine=True), (1, 2, 3, 2, 3)),
        ("rms_norm", nn.RMSNorm(6, eps=1e-5), (2, 6)),
        ("local_response_norm", nn.LocalResponseNorm(2), (1, 4, 3, 3)),
    ):
        yield case(
            name, Normalized(norm), (values(f32, *shape),), (values(f32, *shape, scale=10.0),)
        )
    for dtype, suffix in ((f16, "f16"), (bf16, "bf16"), (f64, "f64")):
        yield case(
            f"layer_norm_{suffix}", Normalized(nn.LayerNorm(5)).to(dtype), (values(dtype, 3, 5),)
        )
        yield case(
            f"group_norm_{suffix}",
            Normalized(nn.GroupNorm(2, 4)).to(dtype),
            (values(dtype, 2, 4, 3),),
        )
        yield case(
            f"batch_norm_{suffix}",
            Normalized(nn.BatchNorm2d(3)).to(dtype),
            (values(dtype, 1, 3, 2, 2),),
        )
    yield case(
        "batch_norm_channels_last", Normalized(nn.BatchNorm2d(3)), (last(values(f32, 2, 3, 4, 4)),)
    )
    yield case("layer_norm_constant", Normalized(nn.LayerNorm(4)), (torch.full((2, 4), 7.0),))
    yield case(
        "layer_norm_dynamic",
        Normalized(nn.LayerNorm(5)),
        *[(values(f32, n, 5),) for n in (4, 1, 8)],
        dynamic=({0: Dim("n", min=1, max=8)},),
    )
    yield case("dropout", nn.Dropout(0.5), (values(f32, 3, 5),))
    yield case(
        "native_dropout",
        lambda x: torch.ops.aten.native_dropout(x, 0.5, False),
        (values(f32, 3, 5),),
    )
    yield case("normalize", lambda x: F.normalize(x, dim=-1), (values(f32, 3, 5),))


def resampling() -> Iterator[Case]:
    x = values(f32, 1, 2, 4, 5)
    for name, options in {
        "nearest": {"scale_factor": 2.0},
        "nearest_size": {"size": (7, 3)},
        "nearest_fraction": {"scale_factor": 1.6},
        "nearest_down": {"scale_factor": 0.5},
        "bilinear": {"scale_factor": 2.0, "mode": "bilinear"},
        "bilinear_corners": {"scale_factor": 2.0, "mode": "bilinear", "align_corners": True},
        "bilinear_size": {"size": (7, 3), "mode": "bilinear"},
        "bilinear_size_corners": {"size": (3, 9), "mode": "bilinear", "align_corners": True},
        "bilinear_one": {"size": (1, 1), "mode": "bilinear", "align_corners": True},
        "bilinear_fraction": {"scale_factor": 1.6, "mode": "bilinear"},
        "bilinear_fraction_recomputed": {
            "scale_factor": 1.6,
            "mode": "bilinear",
            "recompute_scale_factor": True,
        },
        "bilinear_antialias": {"size": (2, 3), "mode": "bilinear", "antialias": True},
        "bicubic": {"scale_factor": 2.0, "mode": "bicubic"},
    }.items():
        yield case(f"upsample_{name}", lambda x, o=options: F.interpolate(x, **o), (x,))
    for name, operator in {
        "nearest": torch.ops.aten.upsample_nearest2d.vec,
        "bilinear": torch.ops.aten.upsample_bilinear2d.vec,
    }.items():
        for scale in (2.0, 1.6):
            yield case(
                f"upsample_{name}_preserved_{str(scale).replace('.', '_')}",
                lambda x, m=name, s=scale: F.interpolate(x, scale_factor=s, mode=m),
                (x,),
                preserve=[operator],
            )
        yield from each(
            f"upsample_{name}",
            lambda x, m=name: F.interpolate(x, size=(5, 7), mode=m),
            (f16,),
            lambda d: (values(d, 1, 2, 3, 4),),
            preserve=[operator],
        )
        yield case(
            f"upsample_{name}_channels_last",
            lambda x, m=name: F.interpolate(x, scale_factor=2.0, mode=m),
            (last(values(f32, 1, 3, 2, 3)),),
            preserve=[operator],
        )
    grid = torch.rand(1, 3, 4, 2) * 2.4 - 1.2
    keep = [torch.ops.aten.grid_sampler_2d.default]
    for mode in ("bilinear", "nearest", "bicubic"):
        for padding in ("zeros", "border", "reflection"):
            for corners in (False, True):
                yield case(
                    f"grid_sample_{mode}_{padding}{'_corners' if corners else ''}",
                    lambda x, g, m=mode, p=padding, c=corners: F.grid_sample(x, g, m, p, c),
                    (x, grid),
                    preserve=keep,
                )
    yield case(
        "grid_sample_decomposed", lambda x, g: F.grid_sample(x, g, align_corners=False), (x, grid)
    )
    yield case(
        "affine_grid",
        lambda t: F.affine_grid(t, [1, 1, 3, 4], align_corners=False),
        (torch.tensor([[[1.0, 0.2, 0.1], [0.0, 0.9, -0.3]]]),),
    )


class Added(nn.Module):
    """A 3-D convolution followed by an addition."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__()
        self.convolution = nn.Conv3d(*args, **options)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.convolution(x) + y)


def volumes() -> Iterator[Case]:
    """3-D convolutions for each GPU algorithm: tiled, patches, along depth; with epilogues."""
    far = Added(8, 34, (2, 3, 1), padding=(3, 0, 2), dilation=(2, 1, 1), groups=2)
    yield case("added", far, (values(f32, 2, 8, 3, 5, 4), values(f32, 2, 34, 7, 3, 8)))
    wide = nn.Sequential(nn.Conv3d(7, 33, 3, stride=(1, 2, 1), padding=1), nn.ReLU())
    yield case("wide", wide, (values(f32, 2, 7, 4, 5, 6),))
    yield case(
        "planes",
        nn.Conv3d(9, 33, (1, 3, 3), padding=(0, 1, 1), bias=False),
        (values(f32, 1, 9, 3, 6, 5),),
    )
    yield case("pointwise_strided", nn.Conv3d(34, 36, 1, stride=2), (values(f32, 1, 34, 5, 7, 6),))
    yield case(
        "padded_planes",
        nn.Conv3d(2, 3, (1, 2, 3), padding=(2, 0, 1), stride=(2, 1, 1)),
        (values(f32, 1, 2, 3, 4, 5),),
    )
    yield case(
        "patches", nn.Conv3d(3, 36, (2, 4, 4), stride=(2, 4, 4)), (values(f32, 1, 3, 4, 13, 12),)
    )
    deep = nn.Conv3d(
        3, 6, (3, 3, 2), groups=3, padding=(2, 1, 0), dilation=(2, 1, 1), stride=(1, 1, 2)
    )
    yield case("depthwise", deep, (values(f32, 2, 3, 4, 5, 7),))
    yield case(
        "along_depth",
        Added(4, 5, (3, 1, 1), padding=(1, 0, 0)),
        (values(f32, 1, 4, 5, 2, 3), values(f32, 1, 5, 5, 2, 3)),
    )
    yield case("no_batch", nn.Conv3d(2, 3, (2, 3, 2)), (values(f32, 2, 4, 5, 3),))
    yield case("halves", nn.Conv3d(3, 5, 3, padding=1).half(), (values(f16, 1, 3, 2, 4, 5),))
    yield case(
        "varying",
        nn.Sequential(nn.Conv3d(2, 3, 3, padding=1), nn.ReLU(), nn.Conv3d(3, 2, (1, 3, 3))),
        *[(values(f32, 1, 2, depth, 5, 4),) for depth in (4, 2, 5)],
        dynamic=({2: Dim("depth", min=2, max=5)},),
    )


FAMILIES = {
    "convolution": convolutions,
    "volumes": volumes,
    "transposed_convolution": transposed,
    "transposed_of_many_channels": transposed_of_many_channels,
    "pooling": pooling,
    "normalization": normalization,
    "resampling": resampling,
}
