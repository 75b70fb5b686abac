"""Exports the models of `cargo xtask bench vulkan`, lowered with `VulkanPartitioner`:

    vulkan_models.py FOLDER [NAME...]

Each is a bundled program, NAME.bpte, with one test case whose outputs are those of PyTorch's eager
mode. Weights are random with a fixed seed; times do not depend on them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Callable

import torch
import torch.nn.functional as F
import torchvision
from torch import nn

sys.path.append(str(Path(__file__).resolve().parent.parent / "export"))

Model = tuple[nn.Module, tuple[torch.Tensor, ...]]

WEIGHT_PERIOD = 16384
"""Period after which weights repeat, so that files compress to a fiftieth for transfers.

The values differ for each parameter: equal parameters would be stored once.
"""


def classifier(name: str) -> Model:
    return torchvision.models.get_model(name, weights=None), (torch.rand(1, 3, 224, 224),)


class Residual(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.inner(x)


def edsr() -> Model:
    """Upscales by two: residual blocks without normalization, then a pixel shuffle."""
    width, blocks = 32, 8
    body = [
        Residual(
            nn.Sequential(
                nn.Conv2d(width, width, 3, padding=1),
                nn.ReLU(),
                nn.Conv2d(width, width, 3, padding=1),
            )
        )
        for _ in range(blocks)
    ]
    model = nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1),
        Residual(nn.Sequential(*body, nn.Conv2d(width, width, 3, padding=1))),
        nn.Conv2d(width, 4 * width, 3, padding=1),
        nn.PixelShuffle(2),
        nn.Conv2d(width, 3, 3, padding=1),
    )
    return model, (torch.rand(1, 3, 64, 64),)


class Unet(nn.Module):
    """Levels of two convolutions each, with skip connections."""

    def __init__(self, widths: tuple[int, ...], classes: int) -> None:
        super().__init__()
        channels = (3, *widths)
        self.down = nn.ModuleList(self.level(a, b) for a, b in zip(channels, channels[1:]))
        pairs = list(zip(widths, widths[1:]))[::-1]
        self.rise = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in pairs)
        self.up = nn.ModuleList(self.level(2 * a, a) for a, _ in pairs)
        self.head = nn.Conv2d(widths[0], classes, 1)

    @staticmethod
    def level(inputs: int, outputs: int) -> nn.Module:
        def convolution(channels: int) -> list[nn.Module]:
            return [
                nn.Conv2d(channels, outputs, 3, padding=1, bias=False),
                nn.BatchNorm2d(outputs),
                nn.ReLU(),
            ]

        return nn.Sequential(*convolution(inputs), *convolution(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        across = []
        for depth, level in enumerate(self.down):
            x = level(F.max_pool2d(x, 2) if depth else x)
            across.append(x)
        across.pop()
        for rise, level in zip(self.rise, self.up):
            x = level(torch.cat([across.pop(), rise(x)], 1))
        return self.head(x)


def unet() -> Model:
    return Unet((16, 32, 64, 128), 4), (torch.rand(1, 3, 128, 128),)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def split(y: torch.Tensor) -> torch.Tensor:
            return y.unflatten(-1, (self.heads, -1)).transpose(1, 2)

        mixed = F.scaled_dot_product_attention(
            split(self.query(x)), split(self.key(x)), split(self.value(x))
        )
        return self.out(mixed.transpose(1, 2).flatten(2))


class Encoder(nn.Module):
    """BERT's encoder: post-norm, GELU."""

    def __init__(self, layers: int, width: int, heads: int, vocabulary: int, tokens: int) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.places = nn.Parameter(torch.randn(1, tokens, width))
        self.norm = nn.LayerNorm(width)

        def block() -> list[nn.Module]:
            wide = nn.Sequential(
                nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
            )
            return [
                Residual(Attention(width, heads)),
                nn.LayerNorm(width),
                Residual(wide),
                nn.LayerNorm(width),
            ]

        self.blocks = nn.Sequential(*[part for _ in range(layers) for part in block()])

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.blocks(self.norm(self.words(tokens) + self.places))


def bert() -> Model:
    vocabulary, tokens = 1000, 64
    return Encoder(4, 256, 4, vocabulary, tokens), (torch.randint(0, vocabulary, (1, tokens)),)


class Recurrent(nn.Module):
    def __init__(self, features: int, width: int, classes: int) -> None:
        super().__init__()
        self.cell = nn.LSTM(features, width, batch_first=True)
        self.head = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states, _ = self.cell(x)
        return self.head(states[:, -1])


def lstm() -> Model:
    return Recurrent(16, 32, 5), (torch.randn(1, 24, 16),)


def generator() -> Model:
    """The generator of a DCGAN: images from noise, by transposed convolutions."""
    widths = (512, 256, 128, 64)
    layers: list[nn.Module] = [nn.ConvTranspose2d(100, widths[0], 4, bias=False)]
    for a, b in zip(widths, widths[1:]):
        layers += [nn.BatchNorm2d(a), nn.ReLU(), nn.ConvTranspose2d(a, b, 4, 2, 1, bias=False)]
    layers += [
        nn.BatchNorm2d(widths[-1]),
        nn.ReLU(),
        nn.ConvTranspose2d(widths[-1], 3, 4, 2, 1),
        nn.Tanh(),
    ]
    return nn.Sequential(*layers), (torch.randn(1, 100, 1, 1),)


class Vocoder(nn.Module):
    """HiFi-GAN's vocoder: transposed convolutions and dilated residual blocks over time."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv1d(80, width, 7, padding=3)
        self.rise, self.residuals = nn.ModuleList(), nn.ModuleList()
        for rate in (8, 8, 2, 2):
            self.rise.append(nn.ConvTranspose1d(width, width // 2, 2 * rate, rate, rate // 2))
            width //= 2
            dilated = (nn.Conv1d(width, width, 3, padding=d, dilation=d) for d in (1, 3, 5))
            self.residuals.append(
                nn.Sequential(
                    *[Residual(nn.Sequential(nn.LeakyReLU(0.1), layer)) for layer in dilated]
                )
            )
        self.last = nn.Conv1d(width, 1, 7, padding=3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for rise, residuals in zip(self.rise, self.residuals):
            x = residuals(rise(F.leaky_relu(x, 0.1)))
        return torch.tanh(self.last(F.leaky_relu(x)))


def vocoder() -> Model:
    return Vocoder(256), (torch.randn(1, 80, 50),)


class Gru(nn.Module):
    def __init__(self, features: int, width: int, classes: int) -> None:
        super().__init__()
        self.cells = nn.GRU(features, width, 2, batch_first=True)
        self.head = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.cells(x)[0])


def gru() -> Model:
    return Gru(80, 256, 64), (torch.randn(1, 50, 80),)


def digits() -> Model:
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * 4 * 4, 10),
    )
    return model, (torch.rand(1, 1, 8, 8),)


MODELS: dict[str, Callable[[], Model]] = {
    "mobilenet_v2": lambda: classifier("mobilenet_v2"),
    "resnet18": lambda: classifier("resnet18"),
    "resnet50": lambda: classifier("resnet50"),
    "mobilenet_v3_small": lambda: classifier("mobilenet_v3_small"),
    "squeezenet1_1": lambda: classifier("squeezenet1_1"),
    "vit_b_16": lambda: classifier("vit_b_16"),
    "edsr": edsr,
    "unet": unet,
    "bert": bert,
    "lstm": lstm,
    "gru": gru,
    "generator": generator,
    "vocoder": vocoder,
    "digits": digits,
}

PRECISIONS = {"fp32": {}, "fp16": {"force_fp16": True}}

NAMES = [f"{model}_{precision}" for model in MODELS for precision in PRECISIONS]


def build(model: str) -> Model:
    """A model with weights in evaluation mode, and its inputs."""
    torch.manual_seed(0)
    module, inputs = MODELS[model]()
    module.requires_grad_(False)
    for weight in module.parameters():
        if weight.dim() > 1 and not weight.any():
            # Some layers are initialized with zeros, which would hide the layers before them.
            nn.init.xavier_uniform_(weight)
        weight.copy_(weight.flatten()[torch.arange(weight.numel()) % WEIGHT_PERIOD].view_as(weight))
    normalise(module, inputs)
    return module.eval(), inputs


def normalise(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
    """Sets batch norm statistics as after training and scales outputs to about 1.

    No layer's values vanish, so errors stay visible. All factors are powers of two, so that folding
    them into weights is exact.
    """
    layers = [layer for layer in module.modules() if isinstance(layer, nn.BatchNorm2d)]
    module.eval()
    for layer in layers:
        layer.train()
        layer.momentum = None  # cumulative average
    if layers:
        with torch.no_grad():
            module(*(torch.rand(4, *x.shape[1:]) for x in inputs))
    for layer in layers:
        deviation = torch.exp2(torch.ceil(torch.log2(layer.running_var + layer.eps) / 2))
        layer.running_var.copy_(deviation**2 - layer.eps)
    if layers:
        head = [
            layer
            for layer in module.modules()
            if isinstance(layer, (nn.Conv2d, nn.ConvTranspose2d, nn.Linear))
        ][-1]
        with torch.no_grad():
            scale = torch.exp2(-torch.round(torch.log2(module.eval()(*inputs).abs().max())))
        head.weight *= scale
        head.bias *= scale


def export(folder: Path, name: str) -> None:
    # Imported here, because other runtimes build the models on machines without the exporter.
    from common import Method, bundled
    from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner
    from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower

    model, _, precision = name.rpartition("_")
    module, inputs = build(model)
    method = Method(module, [inputs])
    program = to_edge_transform_and_lower(
        method.export(),
        partitioner=[VulkanPartitioner(PRECISIONS[precision])],
        compile_config=EdgeCompileConfig(_check_ir_validity=False),
    ).to_executorch()
    (folder / f"{name}.bpte").write_bytes(bundled(program, {"forward": method}))


def main() -> None:
    folder = Path(sys.argv[1])
    for name in sys.argv[2:] or NAMES:
        export(folder, name)


if __name__ == "__main__":
    main()
