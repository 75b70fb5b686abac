"""Common model families reduced to a few kilobytes: the same blocks with few channels and layers.

Weights are random. So are the running statistics of batch norms: means of 0 and variances of 1
would hide mistakes.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim
from torchvision.models import (
    convnext,
    densenet,
    efficientnet,
    mobilenetv2,
    mobilenetv3,
    resnet,
    shufflenetv2,
    squeezenet,
)
from torchvision.models.swin_transformer import SwinTransformer
from torchvision.models.vision_transformer import VisionTransformer

from common import Fixture, Manifest, Tolerance, flatten, seed
from digits import quantize

FOLDER = "models"
CLASSES = 5


def randomize_statistics(module: nn.Module) -> nn.Module:
    for layer in module.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            nn.init.normal_(layer.running_mean, std=0.2)
            nn.init.uniform_(layer.running_var, 0.5, 1.5)
            nn.init.uniform_(layer.weight, 0.5, 1.5)
            nn.init.normal_(layer.bias, std=0.2)
    return module.eval().requires_grad_(False)


def tolerance(module: nn.Module, cases: list[tuple], relative: float) -> Tolerance:
    """A tolerance relative to the largest output."""
    module = copy.deepcopy(module)
    with torch.no_grad():
        outputs = [out for inputs in cases for out in flatten(module(*copy.deepcopy(inputs)))]
    largest = max(
        out.double().abs().max().item() for out in outputs if isinstance(out, torch.Tensor)
    )
    return Tolerance(relative, float(f"{relative * largest:.2g}"))


FP32, HALF, BF16, INT8 = 1e-4, 5e-3, 4e-2, 0.0


def model(
    name: str, module: nn.Module, cases: list[tuple], relative: float = FP32, **options: Any
) -> Fixture:
    module = randomize_statistics(module)
    return Fixture.forward(
        f"{FOLDER}/{name}", module, cases, tolerance=tolerance(module, cases, relative), **options
    )


def images(count: int, channels: int, size: int) -> list[tuple]:
    return [(torch.randn(1, channels, size, size),) for _ in range(count)]


class Classifier(nn.Module):
    """Stem, body, global average pooling and linear layer: shared by all image classifiers here."""

    def __init__(
        self, stem: int, body: nn.Module, features: int, activation: type[nn.Module] = nn.ReLU
    ) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, stem, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(stem),
            activation(),
        )
        self.body = body
        self.head = nn.Linear(features, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.adaptive_avg_pool2d(self.body(self.stem(x)), 1)
        return self.head(torch.flatten(x, 1))


def mobilenet_v2() -> nn.Module:
    block = mobilenetv2.InvertedResidual
    return Classifier(
        8, nn.Sequential(block(8, 8, 1, 1), block(8, 12, 2, 6), block(12, 12, 1, 6)), 12, nn.ReLU6
    )


def mobilenet_v3() -> nn.Module:
    def block(*settings: Any) -> nn.Module:
        return mobilenetv3.InvertedResidual(
            mobilenetv3.InvertedResidualConfig(*settings, width_mult=1.0), nn.BatchNorm2d
        )

    # in, kernel, expanded, out, squeeze-and-excitation, activation, stride, dilation
    body = nn.Sequential(block(8, 3, 16, 8, True, "RE", 2, 1), block(8, 5, 24, 8, True, "HS", 1, 1))
    return Classifier(8, body, 8, nn.Hardswish)


def resnet_basic() -> nn.Module:
    down = nn.Sequential(nn.Conv2d(8, 12, 1, stride=2, bias=False), nn.BatchNorm2d(12))
    body = nn.Sequential(
        nn.MaxPool2d(3, 2, 1), resnet.BasicBlock(8, 8), resnet.BasicBlock(8, 12, 2, down)
    )
    return Classifier(8, body, 12)


def resnet_bottleneck() -> nn.Module:
    down = nn.Sequential(nn.Conv2d(8, 16, 1, bias=False), nn.BatchNorm2d(16))
    grouped = resnet.Bottleneck(16, 4, groups=2, base_width=64)
    return Classifier(8, nn.Sequential(resnet.Bottleneck(8, 4, 1, down), grouped), 16)


def squeeze_net() -> nn.Module:
    body = nn.Sequential(
        squeezenet.Fire(8, 4, 8, 8),
        nn.MaxPool2d(3, 2, ceil_mode=True),
        squeezenet.Fire(16, 4, 6, 6),
    )
    return Classifier(8, body, 12)


def efficient_net() -> nn.Module:
    def block(*settings: Any) -> nn.Module:
        # expansion, kernel, stride, in, out, layers
        return efficientnet.MBConv(efficientnet.MBConvConfig(*settings), 0.0, nn.BatchNorm2d)

    body = nn.Sequential(block(1, 3, 1, 8, 8, 1), block(4, 5, 2, 8, 8, 1), block(4, 3, 1, 8, 8, 1))
    return Classifier(8, body, 8, nn.SiLU)


def shuffle_net() -> nn.Module:
    block = shufflenetv2.InvertedResidual
    return Classifier(8, nn.Sequential(block(8, 16, 2), block(16, 16, 1)), 16)


def dense_net() -> nn.Module:
    body = nn.Sequential(
        densenet._DenseBlock(3, 8, bn_size=2, growth_rate=4, drop_rate=0.0),
        densenet._Transition(20, 10),
    )
    return Classifier(8, body, 10)


def conv_next() -> nn.Module:
    block = convnext.CNBlock(8, layer_scale=0.5, stochastic_depth_prob=0.0)
    return Classifier(8, nn.Sequential(block, convnext.LayerNorm2d(8)), 8, nn.GELU)


class Inception(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Conv2d(8, 4, 1)
        self.three = nn.Sequential(
            nn.Conv2d(8, 4, 1), nn.ReLU(), nn.Conv2d(4, 6, (1, 3), padding=(0, 1))
        )
        self.pooled = nn.Sequential(nn.AvgPool2d(3, 1, 1), nn.Conv2d(8, 2, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(torch.cat([self.one(x), self.three(x), self.pooled(x)], 1))


class DepthwiseSpeech(nn.Module):
    """Keyword spotting: depthwise separable convolutions over a spectrogram."""

    def __init__(self) -> None:
        super().__init__()

        def separable(channels: int) -> list[nn.Module]:
            return [
                nn.Conv2d(channels, channels, 3, padding=1, groups=channels),
                nn.BatchNorm2d(channels),
                nn.ReLU(),
                nn.Conv2d(channels, channels, 1),
                nn.BatchNorm2d(channels),
                nn.ReLU(),
            ]

        self.net = nn.Sequential(
            nn.Conv2d(1, 8, (10, 4), stride=2, padding=(5, 1)),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            *separable(8),
            *separable(8),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(8, CLASSES),
            nn.Softmax(1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)


class Unet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.outer = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU())
        self.inner = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(6, 8, 3, padding=1), nn.ReLU())
        self.up = nn.ConvTranspose2d(8, 6, 2, stride=2)
        self.out = nn.Conv2d(12, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outer = self.outer(x)
        return self.out(torch.cat([outer, self.up(self.inner(outer))], 1))


class Segmenter(nn.Module):
    """Dilated convolutions, followed by a bilinear resize to the input size."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 6, 3, stride=2, padding=1),
            nn.GroupNorm(2, 6),
            nn.ReLU(),
            nn.Conv2d(6, 6, 3, padding=2, dilation=2),
            nn.InstanceNorm2d(6, affine=True),
            nn.LeakyReLU(0.1),
            nn.Conv2d(6, 3, 1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        small = self.features(x)
        smooth = F.interpolate(small, size=x.shape[-2:], mode="bilinear", align_corners=False)
        return smooth + F.interpolate(small, scale_factor=2.0, mode="nearest")


class SuperResolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.ReflectionPad2d(2),
            nn.Conv2d(1, 8, 5),
            nn.PReLU(8),
            nn.Conv2d(8, 4, 3, padding=1),
            nn.PixelShuffle(2),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.clamp(self.net(x), -1, 1)


def video() -> nn.Module:
    return nn.Sequential(
        nn.Conv3d(2, 4, 3, padding=1),
        nn.BatchNorm3d(4),
        nn.ReLU(),
        nn.MaxPool3d(2),
        nn.Conv3d(4, 4, (1, 3, 3)),
        nn.ReLU(),
        nn.AdaptiveAvgPool3d(1),
        nn.Flatten(),
        nn.Linear(4, CLASSES),
    )


def waveform() -> nn.Module:
    return nn.Sequential(
        nn.Conv1d(1, 8, 7, stride=2, padding=3),
        nn.BatchNorm1d(8),
        nn.ReLU(),
        nn.MaxPool1d(2),
        nn.Conv1d(8, 8, 3, padding=2, dilation=2),
        nn.ELU(),
        nn.AvgPool1d(2),
        nn.ConvTranspose1d(8, 4, 4, stride=2),
        nn.AdaptiveAvgPool1d(4),
        nn.Flatten(),
        nn.Linear(16, CLASSES),
        nn.LogSoftmax(1),
    )


def autoencoder() -> nn.Module:
    return nn.Sequential(
        nn.Linear(20, 12),
        nn.BatchNorm1d(12),
        nn.ReLU(),
        nn.Linear(12, 4),
        nn.Tanh(),
        nn.Linear(4, 12),
        nn.GELU(),
        nn.Linear(12, 20),
        nn.Sigmoid(),
    )


class Recurrent(nn.Module):
    def __init__(self, cell: type[nn.Module], **options: Any) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 6)
        self.cell = cell(6, 8, batch_first=True, **options)
        self.head = nn.Linear(16 if options.get("bidirectional") else 8, CLASSES)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        states, _ = self.cell(self.embedding(tokens))
        return self.head(states[:, -1])


class StreamingGru(nn.Module):
    """Processes one frame per call; the hidden state is a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(4, 6)
        self.register_buffer("hidden", torch.zeros(1, 6))

    def forward(self, frame: torch.Tensor) -> torch.Tensor:
        self.hidden.copy_(self.cell(frame, self.hidden))
        return self.hidden * 1


def bert() -> nn.Module:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=40,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
        attn_implementation="eager",
        return_dict=False,
    )
    return Outputs(BertModel(config), "input_ids", "attention_mask")


class Outputs(nn.Module):
    """Names the arguments of a transformers model, so that inputs are plain tensors."""

    def __init__(self, inner: nn.Module, *names: str) -> None:
        super().__init__()
        self.inner = inner
        self.names = names

    def forward(self, *inputs: torch.Tensor):
        return self.inner(**dict(zip(self.names, inputs)))


class LlamaAttention(nn.Module):
    """Grouped-query attention with RoPE and a KV cache in buffers."""

    def __init__(self, width: int, heads: int, shared: int, context: int) -> None:
        super().__init__()
        self.heads, self.shared, self.size = heads, shared, width // heads
        self.q = nn.Linear(width, heads * self.size, bias=False)
        self.k = nn.Linear(width, shared * self.size, bias=False)
        self.v = nn.Linear(width, shared * self.size, bias=False)
        self.o = nn.Linear(width, width, bias=False)
        self.register_buffer("keys", torch.zeros(1, shared, context, self.size))
        self.register_buffer("values", torch.zeros(1, shared, context, self.size))

    def _split(self, x: torch.Tensor, heads: int) -> torch.Tensor:
        return x.view(1, -1, heads, self.size).transpose(1, 2)

    def forward(self, x, cos, sin, mask, position):
        q = rotate(self._split(self.q(x), self.heads), cos, sin)
        k = rotate(self._split(self.k(x), self.shared), cos, sin)
        self.keys.index_copy_(2, position, k)
        self.values.index_copy_(2, position, self._split(self.v(x), self.shared))
        repeats = self.heads // self.shared
        keys = self.keys.repeat_interleave(repeats, 1)
        values = self.values.repeat_interleave(repeats, 1)
        y = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
        return self.o(y.transpose(1, 2).reshape(1, -1, self.heads * self.size))


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


class LlamaBlock(nn.Module):
    def __init__(self, width: int, heads: int, shared: int, context: int) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(width, eps=1e-5)
        self.attention = LlamaAttention(width, heads, shared, context)
        self.norm = nn.RMSNorm(width, eps=1e-5)
        self.gate = nn.Linear(width, width * 2, bias=False)
        self.up = nn.Linear(width, width * 2, bias=False)
        self.down = nn.Linear(width * 2, width, bias=False)

    def forward(self, x, cos, sin, mask, position):
        x = x + self.attention(self.attention_norm(x), cos, sin, mask, position)
        y = self.norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    """A decoder of the Llama architecture: maps tokens and positions to the last token's logits."""

    def __init__(
        self,
        vocabulary: int = 32,
        width: int = 16,
        heads: int = 4,
        shared: int = 2,
        context: int = 12,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(LlamaBlock(width, heads, shared, context) for _ in range(2))
        self.norm = nn.RMSNorm(width, eps=1e-5)
        self.head = nn.Linear(width, vocabulary, bias=False)
        size = width // heads
        angles = torch.outer(
            torch.arange(context), 10000.0 ** (-torch.arange(0, size, 2) / size)
        ).repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        self.register_buffer("causal", torch.ones(context, context, dtype=torch.bool).tril())

    def forward(self, tokens: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        cos, sin, mask = self.cos[position], self.sin[position], self.causal[position]
        for block in self.blocks:
            x = block(x, cos, sin, mask, position)
        return self.head(self.norm(x[:, -1]))


def decoding(*lengths: int) -> list[tuple]:
    """Consecutive chunks of a sequence."""
    cases, start = [], 0
    for length in lengths:
        cases.append((torch.randint(0, 32, (1, length)), torch.arange(start, start + length)))
        start += length
    return cases


def image_models() -> list[Fixture]:
    small = images(2, 3, 16)
    last = [(x.contiguous(memory_format=torch.channels_last),) for (x,) in small]
    v2, v3 = mobilenet_v2(), mobilenet_v3()
    side = Dim("side", min=4, max=12)
    sizes = [(torch.randn(1, 3, s, s),) for s in (16, 8, 24)]
    return [
        model("mobilenet_v2", v2, small, plain=True),
        model("mobilenet_v2_half", copy.deepcopy(v2).half(), [(x.half(),) for (x,) in small], HALF),
        model(
            "mobilenet_v2_bf16",
            copy.deepcopy(v2).bfloat16(),
            [(x.bfloat16(),) for (x,) in small],
            BF16,
        ),
        model(
            "mobilenet_v2_channels_last",
            copy.deepcopy(v2).to(memory_format=torch.channels_last),
            last,
        ),
        model(
            "mobilenet_v2_dynamic_size",
            copy.deepcopy(v2),
            sizes,
            dynamic_shapes=({2: 2 * side, 3: 2 * side},),
        ),
        model("mobilenet_v3", v3, small),
        model("resnet_basic", resnet_basic(), small),
        model("resnet_bottleneck", resnet_bottleneck(), small),
        model("squeezenet", squeeze_net(), small),
        model("efficientnet", efficient_net(), small),
        model("shufflenet", shuffle_net(), small),
        model("densenet", dense_net(), small),
        model("convnext", conv_next(), small),
        model("inception", Classifier(8, Inception(), 12), small),
        model("unet", Unet(), images(2, 3, 8)),
        model("segmenter", Segmenter(), images(2, 3, 8)),
        model("super_resolution", SuperResolution(), images(2, 1, 6)),
        model("vit", VisionTransformer(16, 8, 2, 2, 16, 32, num_classes=CLASSES), small),
        model(
            "swin",
            SwinTransformer([2, 2], 8, [2, 1], [2, 2], [2, 2], num_classes=CLASSES),
            images(2, 3, 16),
        ),
        model("video", video(), [(torch.randn(1, 2, 4, 6, 6),)]),
    ]


def quantized_models() -> list[Fixture]:
    fixtures = []
    for name, module, shape in (
        ("mobilenet_v2_int8", mobilenet_v2(), (3, 16, 16)),
        ("depthwise_speech_int8", DepthwiseSpeech(), (1, 20, 10)),
        ("autoencoder_int8", autoencoder(), (20,)),
    ):
        module = randomize_statistics(module)
        calibration = torch.randn(8, *shape)
        cases = [(x[None].clone(),) for x in calibration[:3]]
        converted = quantize(module, calibration)
        spread = tolerance(converted, cases, 1.0).atol
        quanta = Tolerance(0.0, float(f"{4 * 2 * spread / 255:.2g}"))
        fixtures.append(
            Fixture.forward(
                f"{FOLDER}/{name}",
                converted,
                cases,
                tolerance=quanta,
                note="the tolerance is four quanta of the output",
            )
        )
    return fixtures


def signal_models() -> list[Fixture]:
    return [
        model(
            "depthwise_speech", DepthwiseSpeech(), [(torch.randn(1, 1, 20, 10),) for _ in range(2)]
        ),
        model("waveform", waveform(), [(torch.randn(1, 1, 48),) for _ in range(2)]),
        model("autoencoder", autoencoder(), [(torch.randn(3, 20),) for _ in range(2)]),
    ]


def sequence_models() -> list[Fixture]:
    tokens = [(torch.randint(0, 20, (2, 5)),) for _ in range(2)]
    text = [
        (torch.randint(0, 40, (1, 8)), torch.tensor([[1] * real + [0] * (8 - real)]))
        for real in (8, 5)
    ]
    length = Dim("length", min=1, max=12)
    prefill = decoding(4, 1, 1, 3)
    return [
        model("lstm", Recurrent(nn.LSTM, num_layers=2), tokens),
        model("lstm_bidirectional", Recurrent(nn.LSTM, bidirectional=True), tokens),
        model("gru", Recurrent(nn.GRU), tokens),
        model("rnn", Recurrent(nn.RNN), tokens),
        model(
            "gru_streaming", StreamingGru(), [(torch.randn(1, 4),) for _ in range(5)], sequence=True
        ),
        model("bert", bert(), text),
        model(
            "transformer_encoder",
            nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True),
            [(torch.randn(2, 4, 16),)],
        ),
        model("llama", Llama(), decoding(1, 1, 1, 1, 1), sequence=True, plain=True),
        model("llama_half", Llama().half(), decoding(1, 1, 1, 1, 1), HALF, sequence=True),
        model(
            "llama_prefill",
            Llama(),
            prefill,
            sequence=True,
            dynamic_shapes=({1: length}, {0: length}),
            note="the prompt in one piece, then tokens",
        ),
    ]


def main() -> None:
    seed(2)
    manifest = Manifest("model")
    for group in (image_models, signal_models, sequence_models, quantized_models):
        for fixture in group():
            try:
                manifest.write(fixture)
            except Exception as error:
                print(f"{fixture.path}: not exported: {type(error).__name__}: {str(error)[:400]}")
    manifest.save()


if __name__ == "__main__":
    main()
