"""Whole programs: several delegates and methods, state, external weights, small models."""

from __future__ import annotations

from typing import Any, Iterator

import torch
from executorch.backends.vulkan.serialization.vulkan_graph_schema import VkStorageType
from executorch.exir import ExecutorchBackendConfig
from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401  (registers operators)
import stateful
from op_cases.table import Run, f32, values
from torch import nn
from torch.export import Dim
from torchao.quantization import IntxWeightOnlyConfig
from torchvision.models.vision_transformer import VisionTransformer

from .quantized import grouped
from .reduce import RmsNorm, trained
from .table import Delegated, case, half, halved


class Residual(nn.Module):
    """A tiny image classifier with residual blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1), trained(nn.BatchNorm2d(8)), nn.ReLU6()
        )
        self.blocks = nn.ModuleList(self.block(8, 16) for _ in range(2))
        self.head = nn.Linear(8, 5)

    @staticmethod
    def block(channels: int, inner: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(channels, inner, 1),
            nn.ReLU6(),
            nn.Conv2d(inner, inner, 3, padding=1, groups=inner),
            nn.Hardswish(),
            nn.Conv2d(inner, channels, 1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x.mean((2, 3), keepdim=True).flatten(1))


class UnsupportedBetween(nn.Module):
    """An unsupported operator between two supported parts."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.erf(torch.relu(self.first(x)))
        return torch.erf(self.second(x) * 2) + 1


class Running(nn.Module):
    """A sum that persists between calls."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.full((2, 3), 0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(x * 2)
        return self.total * 3


class Two(nn.Module):
    """Two buffers of the same shape with different updates."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("sum", torch.zeros(2, 3))
        self.register_buffer("decayed", torch.ones(2, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.sum.add_(x)
        self.decayed.mul_(0.5).add_(x)
        return self.sum - self.decayed


class Fibonacci(nn.Module):
    """Each buffer's new value depends on the other's old value."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("a", torch.zeros(2, 3))
        self.register_buffer("b", torch.ones(2, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = self.b.clone(), self.a + self.b
        self.a.copy_(a)
        self.b.copy_(b)
        return self.a + x


class Delay(nn.Module):
    """Delay line: each buffer receives the previous one's old value, the first one the input."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("first", torch.zeros(2, 3))
        self.register_buffer("second", torch.zeros(2, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x + self.first * 2.0 + self.second * 3.0
        self.second.copy_(self.first * 0.5)
        self.first.copy_(x * 1.5)
        return y


class Ring(nn.Module):
    """Ring buffer indexed by a 64-bit counter."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(3, 2))
        self.register_buffer("calls", torch.zeros(1, dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        here = (torch.arange(3) == self.calls).view(3, 1)
        self.rows.copy_(torch.where(here, x, self.rows))
        self.calls.add_(1)
        return self.rows * 2.0


class DistinctBuffers(nn.Module):
    """Buffers distinguishable by shape or dtype, so that new values match them unambiguously."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(2, 1))
        self.register_buffer("columns", torch.ones(1, 3))
        self.register_buffer("calls", torch.zeros(2, 1, dtype=torch.int32))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x * self.rows + self.columns
        self.columns.copy_(x.sum(0, keepdim=True) * 0.5)
        self.calls.add_(1)
        self.rows.add_(x.sum(1, keepdim=True))
        return y, self.calls * 2


class Trained(nn.Module):
    """A weight updated by each call, after a constant one of the same shape."""

    def __init__(self) -> None:
        super().__init__()
        self.fixed = nn.Linear(3, 3)
        self.register_buffer("weight", values(f32, 3, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = nn.functional.linear(self.fixed(x), self.weight)
        self.weight.copy_(x.T @ x)
        return y


class Decayed(nn.Module):
    """A weight that decays."""

    def __init__(self, function: Run, *shape: int) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("weight", values(f32, *shape))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.function(x, self.weight)
        self.weight.mul_(0.5)
        return y


class Normalized(nn.Module):
    """Batch norm with a mean that each call updates."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("variance", torch.ones(3) * 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = nn.functional.batch_norm(x, self.mean, self.variance, training=False)
        self.mean.mul_(0.5).add_(1.5)
        return y


class Unread(nn.Module):
    """A sum, and an input that is only checked: an argument of the call but not of the graph."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("sum", torch.zeros(2, 3))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        torch._check(y[0].item() >= 0)
        self.sum.add_(x)
        return self.sum * 2.0


class Overwritten(nn.Module):
    """An input overwritten before it is read.

    It is an argument of the call but not of the graph, and has the shape of the other input.
    """

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        y = y.clone()
        y[:] = x
        return x * 2.0 + y


class Block(nn.Module):
    """One layer of a language model."""

    def __init__(self, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.norm_after = RmsNorm(width), RmsNorm(width)
        self.qkv, self.out = (
            nn.Linear(width, 3 * width, bias=False),
            nn.Linear(width, width, bias=False),
        )
        self.gate, self.up, self.down = (
            nn.Linear(width, 24),
            nn.Linear(width, 24),
            nn.Linear(24, width),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = torch.chunk(self.qkv(self.norm(x)), 3, -1)
        q, k, v = (
            t.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for t in (q, k, v)
        )
        attended = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        y = self.norm_after(x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))


class Language(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 16)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(16, 20, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Cached(nn.Module):
    """Attention with a KV cache, written at a given position."""

    def __init__(self, heads: int = 4, shared: int = 2, size: int = 8, context: int = 8) -> None:
        super().__init__()
        self.heads, self.shared, self.size, self.context = heads, shared, size, context
        self.q, self.k, self.v = (nn.Linear(16, n * size) for n in (heads, shared, shared))
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(1, context, shared, size))

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        start = position[0].item()
        torch._check(start >= 0)
        torch._check(start + x.shape[1] <= self.context)
        q = self.q(x).view(1, -1, self.heads, self.size)
        k = self.k(x).view(1, -1, self.shared, self.size)
        v = self.v(x).view(1, -1, self.shared, self.size)
        torch.ops.llama.update_cache(k, self.keys, start)
        torch.ops.llama.update_cache(v, self.values, start)
        return torch.ops.llama.custom_sdpa(
            q, self.keys, self.values, start, None, 0.0, True
        ).reshape(1, -1, 32)


class Decoder(nn.Module):
    """One decoding step over a long KV cache, with int4 weights."""

    def __init__(self, context: int = 160) -> None:
        super().__init__()
        self.attention = Cached(heads=4, shared=2, size=8, context=context)
        sizes = ((32, 16), (16, 64), (16, 64), (64, 16))
        self.out, self.gate, self.up, self.down = (
            nn.Linear(inputs, outputs) for inputs, outputs in sizes
        )

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        x = x + self.out(self.attention(x, position))
        return x + self.down(nn.functional.silu(self.gate(x)) * self.up(x))


class Noted(nn.Module):
    """A cache that is written and read without attention."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(1, 6, 2, 4))

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        start = position[0].item()
        torch._check(start >= 0)
        torch._check(start + x.shape[1] <= 6)
        torch.ops.llama.update_cache(x, self.cache, start)
        return self.cache * 2


def steps(*positions: int) -> list[tuple]:
    return [(values(f32, 1, 1, 16), torch.tensor([position])) for position in positions]


def model() -> Iterator[Delegated]:
    tokens = [(torch.randint(0, 20, (1, 6)),) for _ in range(2)]
    yield from halved([case("residual", Residual(), (values(f32, 1, 3, 12, 10),))])
    outside = ["aten::any.out", "aten::mul.Scalar_out"]
    yield from halved([case("language", Language(), *tokens, outside=outside, delegates=5)])
    yield case(
        "language_dynamic",
        Language(),
        *[(torch.randint(0, 20, (1, n)),) for n in (5, 1, 8, 3)],
        dynamic=({1: Dim("n", min=1, max=8)},),
        outside=[*outside, "aten::expand_copy.out", "aten::full_like.out"],
        delegates=7,
    )
    yield case("lstm", Recurrent(), (values(f32, 2, 4, 5),))
    yield from halved(
        [case("vision", vision(), (values(f32, 1, 3, 16, 16),), outside=outside, delegates=5)]
    )


def vision() -> nn.Module:
    """A standard vision transformer; the partitioner splits each attention into three parts."""
    module = VisionTransformer(16, 8, 2, 2, 16, 32, num_classes=5)
    # Its head is initialized with zeros.
    nn.init.normal_(module.heads.head.weight)
    return module


class Recurrent(nn.Module):
    def __init__(self, inputs: int = 5, hidden: int = 6) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(inputs, hidden, batch_first=True), nn.Linear(hidden, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(x)[0][:, -1])


def program() -> Iterator[Delegated]:
    x = (values(f32, 3, 6),)
    yield case("several_delegates", UnsupportedBetween(), x, outside=["aten::erf.out"], delegates=3)
    yield case("running_sum", Running(), *[(values(f32, 2, 3),) for _ in range(4)], sequence=True)
    yield case(
        "two_states", Two(), *[(values(f32, 2, 3),) for _ in range(4)], sequence=True, refused=True
    )
    yield case("cache", Cached(), *steps(0, 1, 2, 3, 4), sequence=True)
    notes = [(values(f32, 1, 1, 2, 4), torch.tensor([position])) for position in (0, 1, 3, 1)]
    yield case("noted", Noted(), *notes, sequence=True)
    yield case("unused_input", lambda x, y: x * 2, (values(f32, 3), values(f32, 4)))
    yield case("input_is_output", lambda x: (x, x + 1), (values(f32, 3),))
    # Skipped positions stay zero in the cache.
    positions = steps(0, 1, 2, 70, 71, 3, 159)
    four_bits = grouped(IntxWeightOnlyConfig, 16)
    yield case(
        "decoder", Decoder(), *positions, sequence=True, quantize=four_bits, rtol=1e-3, atol=1e-3
    )
    yield case("same_output_twice", lambda x: (x + 1, x + 1), (values(f32, 3),))
    yield case("many_outputs", lambda x: tuple(x * n for n in range(1, 10)), (values(f32, 5),))
    yield case("long_chain", chain, (values(f32, 5),))


def constants() -> Iterator[Delegated]:
    """Constants derived from others when the graph is compiled."""
    x = values(f32, 2, 3)
    i = torch.tensor([[1, 2, 3], [2, 4, 2]], dtype=torch.int32)
    yield case("number_of_integers_first", lambda x, i: (i == 2, x**2, x > 2), (x, i))
    yield case("number_of_floats_first", lambda x, i: (x > 2, x**2, i == 2, i > 2), (x, i))
    yield case("weights_of_one_matrix", OneMatrix(), (values(f32, 1, 4, 5), values(f32, 3, 4)))
    picture = (values(f32, 2, 3, 4, 5),)
    yield from halved([case("same_statistics", SameStatistics(), picture)])
    yield case("same_weights", SameWeights(), picture)


class OneMatrix(nn.Module):
    """A weight used by a linear layer and by a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(values(f32, 6, 4))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        wide = nn.functional.linear(y, self.weight)
        return nn.functional.conv1d(x, self.weight.unsqueeze(-1)), wide


class SameStatistics(nn.Module):
    """Batch norms with the same statistics that differ in one other argument each."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", values(f32, 3))
        self.register_buffer("variance", values(f32, 3).abs() + 0.5)
        for name in ("weight", "other_weight", "bias", "other_bias"):
            self.register_buffer(name, values(f32, 3))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        def norm(
            weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float = 1e-5
        ) -> torch.Tensor:
            return nn.functional.batch_norm(x, self.mean, self.variance, weight, bias, eps=eps)

        weights = norm(self.weight, self.bias), norm(self.other_weight, self.bias)
        biases = norm(self.weight, self.other_bias), norm(self.weight, None), norm(None, self.bias)
        return *weights, *biases, norm(self.weight, self.bias, 0.5), norm(None, None)


class SameWeights(nn.Module):
    """Batch norms with the same mean or the same variance."""

    def __init__(self) -> None:
        super().__init__()
        for name in ("mean", "other_mean"):
            self.register_buffer(name, values(f32, 3))
        for name in ("variance", "other_variance"):
            self.register_buffer(name, values(f32, 3).abs() + 0.5)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        norm = nn.functional.batch_norm
        means = norm(x, self.mean, self.variance), norm(x, self.other_mean, self.variance)
        return *means, norm(x, self.mean, self.other_variance)


ALIASED = {"alias_buffer_mutations": True}


def state() -> Iterator[Delegated]:
    """Mutable state: new values must match their buffers; no result may be stale."""

    def steps(*shape: int) -> list[tuple[torch.Tensor, ...]]:
        return [(values(f32, *shape),) for _ in range(4)]

    def sequence(name: str, module: nn.Module, *inputs: tuple, **options: Any) -> Delegated:
        return case(name, module, *inputs, sequence=True, **options)

    linear, conv2d = nn.functional.linear, nn.functional.conv2d
    yield sequence("apart", DistinctBuffers(), *steps(2, 3))
    yield sequence("delay_aliased", Delay(), *steps(2, 3), options=ALIASED)
    yield sequence("two_states_aliased", Two(), *steps(2, 3), options=ALIASED)
    yield sequence("weight", Trained(), *steps(3, 3))
    for suffix, options in (("", {}), ("_aliased", ALIASED)):
        yield sequence(f"linear{suffix}", Decayed(linear, 4, 3), *steps(2, 3), options=options)
        yield sequence(
            f"conv2d{suffix}", Decayed(conv2d, 4, 3, 3, 3), *steps(1, 3, 5, 5), options=options
        )
        pointwise = Decayed(conv2d, 4, 3, 1, 1)
        yield sequence(f"conv2d_pointwise{suffix}", pointwise, *steps(1, 3, 5, 5), options=options)
        depthwise = Decayed(lambda x, w: conv2d(x, w, groups=3), 3, 1, 3, 3)
        yield sequence(f"conv2d_depthwise{suffix}", depthwise, *steps(1, 3, 5, 5), options=options)
        transposed = Decayed(nn.functional.conv_transpose2d, 3, 4, 2, 2)
        yield sequence(f"transposed{suffix}", transposed, *steps(1, 3, 4, 4), options=options)
        yield sequence(f"batch_norm{suffix}", Normalized(), *steps(2, 3, 4, 5), options=options)
    checked = [(values(f32, 2, 3), torch.tensor([3])) for _ in range(3)]
    yield sequence("unread_input", Unread(), *checked)
    yield case(
        "overwritten_input", Overwritten(), (values(f32, 2, 3), values(f32, 2, 3)), refused=True
    )
    yield sequence("fibonacci", Fibonacci(), *steps(2, 3), refused=True)
    yield sequence("fibonacci_aliased", Fibonacci(), *steps(2, 3), options=ALIASED, refused=True)
    yield sequence("delay", Delay(), *steps(2, 3), refused=True)
    yield sequence("ring", Ring(), *steps(2))


class Shared(nn.Module):
    """Methods that share weights."""

    def __init__(self, linear: nn.Linear, scale: float) -> None:
        super().__init__()
        self.linear, self.scale = linear, scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x)) * self.scale


def cells() -> Iterator[Delegated]:
    """Stateful models, and the operators that partitioners leave between delegates."""
    outside = {
        "key_value": ["aten::copy_", "aten::index_put.out", "aten::scalar_tensor.out"],
        "rows": ["aten::copy_", "aten::slice_scatter.out"],
        "recurrent": [],
        "noted": ["aten::copy_"],
    }
    models = stateful.models()
    # ExecuTorch 1.5's partitioner cannot express the others, or changes their meaning.
    for name, around in outside.items():
        module, inputs = models[name]
        delegates = 2 if name in ("key_value", "rows") else 1
        config = stateful.config(module)
        yield case(
            name,
            module,
            *inputs,
            sequence=True,
            options=ALIASED,
            outside=around,
            delegates=delegates,
            config=config,
        )


def split_and_joined(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Slices that are concatenated, used again and returned."""
    a, b, c = torch.split(torch.relu(x), [16, 32, 16], 1)
    d, e = a * 2, b + 1
    joined = torch.cat([d, c + a, e, d, a], 1)
    twice = torch.cat([joined, joined.neg()], 1)
    rows = torch.stack([d, c - 1])
    return joined, twice[:, 80:208] + 1, rows[1] * d, e.select(0, 0), c


def uneven(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The same with slices at offsets that a device cannot bind."""
    y = x * 2
    a, b, c = torch.split(y, [3, 18, 43], 1)
    return (
        torch.cat([b + 1, a, y], 1),
        torch.cat([c - 1, a - 1, c + 1], 1),
        y[:, 5:9].select(1, 2) + 1,
    )


class Shortened(nn.Module):
    """Shapes that depend on elements of a tensor."""

    def forward(self, x: torch.Tensor, n: torch.Tensor) -> tuple[torch.Tensor, ...]:
        length = n[1].item()
        torch._check(length >= 1)
        torch._check(length <= 8)
        y = x.narrow(0, 0, length + 3)
        return torch.softmax(y * 2, 0), y.mean(0), x.narrow(0, 2, length) + 1


class Latest(nn.Module):
    """Buffers updated by slices of an intermediate result and of an input."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("computed", torch.zeros(64))
        self.register_buffer("given", torch.zeros(32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 3.0
        out = self.computed * 2.0 + torch.cat([self.given, y[:32]])
        self.computed.copy_(y[64:])
        self.given.copy_(x[96:])
        return out


def parts() -> Iterator[Delegated]:
    yield from halved([case("split_and_joined", split_and_joined, (values(f32, 1, 64),))])
    yield from halved([case("uneven", uneven, (values(f32, 1, 64),))])
    yield case("lstm", Recurrent(5, 16), (values(f32, 1, 4, 5),), (values(f32, 1, 4, 5),))
    lengths = [(values(f32, 16, 8), torch.tensor([0, n])) for n in (3, 8, 1)]
    yield case("shortened", Shortened(), *lengths, outside=["aten::mean.out"])
    yield case("latest", Latest(), *[(values(f32, 128),) for _ in range(3)], sequence=True)


def file() -> Iterator[Delegated]:
    """Serialization variants."""
    inputs = [(values(f32, 1, 3, 8, 6),) for _ in range(2)]
    small = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(96, 5))
    inline = ExecutorchBackendConfig(extract_delegate_segments=False)
    aligned = ExecutorchBackendConfig(segment_alignment=64, constant_tensor_alignment=32)
    yield case("plain", small, *inputs)
    yield case("inline", small, *inputs, config=inline)
    yield case("aligned", small, *inputs, config=aligned)
    yield case(
        "weights_outside", small, *inputs, options={"external_constants_max_data_bytes": 1 << 20}
    )
    yield case(
        "weights_in_several_files",
        small,
        *inputs,
        options={"external_constants_max_data_bytes": 1920},
    )
    yield case("buffers", small, *inputs, options={"storage_type_override": VkStorageType.BUFFER})
    yield case("small_textures", small, *inputs, options={"small_texture_limits": True})
    yield case("not_planned", small, *inputs, options={"skip_memory_planning": True})
    linear, x = nn.Linear(6, 5), [(values(f32, 3, 6),)]
    yield case(
        "two_methods",
        Shared(linear, 2.0),
        *x,
        methods={"other": (Shared(linear, -1.0), x)},
        delegates=2,
    )


def chain(x: torch.Tensor) -> torch.Tensor:
    for step in range(60):
        x = torch.sin(x) + step / 50
    return x


class Zeroed(nn.Module):
    """Zeroes slices of weights, as the attention of Swin transformers (v2) does.

    The CPU writes the zeros into weights that a delegate outputs.
    """

    def __init__(self):
        super().__init__()
        self.scale, self.shift = nn.Parameter(values(f32, 6)), nn.Parameter(values(f32, 6))

    def forward(self, x):
        scale, shift = self.scale.clone(), self.shift.clone()
        scale[2:4].zero_()
        shift[1:3].zero_()
        return x * scale + shift


def weights_from_delegate() -> Iterator[Delegated]:
    inputs = [(values(f32, 3, 6),), (values(f32, 3, 6),)]
    yield case("constants", Zeroed(), *inputs, outside=["aten::slice_scatter.out"], delegates=2)


def weights_from_delegate_fp16() -> Iterator[Delegated]:
    for each in weights_from_delegate():
        yield half(each)


class Recurrent(nn.Module):
    """A recurrent layer that returns all states, the last ones, or both."""

    def __init__(
        self, layer: nn.RNNBase, given: bool = False, states: bool = True, last: bool = False
    ) -> None:
        super().__init__()
        self.layer, self.given, self.states, self.last = layer, given, states, last

    def forward(self, x, *before):
        before = (before if len(before) > 1 else before[0]) if self.given else None
        states, last = self.layer(x, before)
        last = tuple(last) if isinstance(last, tuple) else (last,)
        return (states.neg(),) * self.states + tuple(each.abs() for each in last) * self.last


def recurrent() -> Iterator[Delegated]:
    sequence = values(f32, 6, 2, 4)
    yield from halved(
        [
            case("lstm", Recurrent(nn.LSTM(4, 8)), (sequence,)),
            case("gru", Recurrent(nn.GRU(4, 8)), (sequence,)),
            case("tanh", Recurrent(nn.RNN(4, 8)), (sequence,)),
            case("relu", Recurrent(nn.RNN(4, 8, nonlinearity="relu")), (sequence,)),
            case("odd", Recurrent(nn.LSTM(4, 5), last=True), (sequence,)),
            case("odd_gates", Recurrent(nn.GRU(4, 7), last=True), (sequence,)),
        ]
    )
    # Weights small enough to stay in registers, and weights that each step reads.
    for hidden in (32, 100):
        yield case(
            f"hidden_{hidden}",
            Recurrent(nn.LSTM(4, hidden, batch_first=True)),
            (values(f32, 1, 3, 4),),
        )
        yield case(
            f"gates_{hidden}",
            Recurrent(nn.GRU(4, hidden, batch_first=True)),
            (values(f32, 1, 3, 4),),
        )
    yield case("last", Recurrent(nn.LSTM(4, 8), states=False, last=True), (sequence,))
    yield case("no_bias", Recurrent(nn.LSTM(4, 8, bias=False)), (sequence,))
    yield case(
        "both_ways",
        Recurrent(nn.LSTM(4, 8, num_layers=2, bidirectional=True), last=True),
        (sequence,),
    )
    yield case(
        "gates_both_ways",
        Recurrent(nn.GRU(4, 8, num_layers=2, bidirectional=True), last=True),
        (sequence,),
    )
    states = values(f32, 1, 2, 8), values(f32, 1, 2, 8)
    yield case("given", Recurrent(nn.LSTM(4, 8), given=True, last=True), (sequence, *states))
    yield case("gates_given", Recurrent(nn.GRU(4, 8), given=True, last=True), (sequence, states[0]))
    rows = Dim("rows", min=1, max=5)
    grown = [(values(f32, 3, n, 4), values(f32, 1, n, 8), values(f32, 1, n, 8)) for n in (5, 2, 1)]
    yield case(
        "rows",
        Recurrent(nn.LSTM(4, 8), given=True),
        *grown,
        dynamic=({1: rows}, ({1: rows}, {1: rows})),
    )
    # Each step is split over several workgroups, forwards and backwards. The GRU returns only its
    # last state.
    wide = case("steps", Recurrent(nn.LSTM(4, 120, bidirectional=True), last=True), (sequence,))
    yield list(halved([wide]))[-1]
    yield case("gates_steps", Recurrent(nn.GRU(4, 132), states=False, last=True), (sequence,))


class Capital(nn.Module):
    """The exporter plans memory for batch norms folded into modules with capitalised names."""

    def __init__(self) -> None:
        super().__init__()
        self.Stem = nn.Sequential(
            nn.Conv2d(3, 4, 3, bias=False), trained(nn.BatchNorm2d(4)), nn.ReLU()
        )
        self.Row = nn.Sequential(nn.Conv2d(4, 4, (1, 3), groups=4), trained(nn.BatchNorm2d(4)))
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.Row(self.Stem(x)).mean((2, 3)))


def capital() -> Iterator[Delegated]:
    yield from halved([case("batch_norms", Capital(), (values(f32, 1, 3, 9, 8),))])


FAMILIES = {
    "capital": capital,
    "given": weights_from_delegate,
    "given_narrowed": weights_from_delegate_fp16,
    "recurrent": recurrent,
    "model": model,
    "program": program,
    "parts": parts,
    "constants": constants,
    "state": state,
    "cells": cells,
    "file": file,
}
