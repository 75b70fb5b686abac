"""Calls of operators with PyTorch's outputs, for lazy tensors, and a small vision transformer.

`calls.json` has calls by the names of operators: arguments, and the outputs of PyTorch in eager
mode. `views.json` has random programs of views and writes. `vit.safetensors` has the weights of the transformer of `examples/vit.rs`, and `vit.json` an
image and its logits.
"""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from random import Random
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

FOLDER = Path(__file__).resolve().parent.parent / "fixtures" / "lazy"

torch.set_num_threads(1)
torch.manual_seed(0)


def floats(*shape: int) -> torch.Tensor:
    return (torch.randn(shape) * 64).round() / 32


def positive(*shape: int) -> torch.Tensor:
    return floats(*shape).abs() + 0.25


X, Y = floats(2, 3), floats(2, 3)
IMAGE = floats(1, 4, 6, 6)
INTS = torch.tensor([[3, -1, 4], [1, 5, -9]])
BYTES = torch.tensor([1, 2, 200], dtype=torch.uint8)
INDEX = torch.tensor([[0, 2, 1], [1, 0, 2]])
MASK = torch.tensor([[True, False, True], [False, False, True]])
HALF = floats(3, 1).to(torch.float16)

GRU = [floats(*shape) for shape in 2 * ((6, 3), (6, 2), (6,), (6,))]
LSTM = [floats(*shape) for shape in ((8, 3), (8, 2), (8,), (8,))]
STATES = [floats(1, 1, 2), floats(1, 1, 2)]

UNARY = """abs acos asin atan ceil cos cosh erf exp expm1 floor hardsigmoid hardswish
    isfinite isinf isnan log_sigmoid logical_not mish neg reciprocal relu relu6 round selu
    sigmoid sign silu sin sinh square tan tanh trunc""".split()
POSITIVE = "log log10 log1p log2 rsqrt sqrt".split()

# Name, arguments. The operators of PyTorch's Vulkan tutorial and of its folder `ops` come first.
CALLS: list[tuple[str, list[Any]]] = [
    ("_adaptive_avg_pool2d", [IMAGE, [2, 3]]),
    ("cat", [[X, Y], 1]),
    ("add.Tensor", [X, Y, 2]),
    ("add.Scalar", [INTS, 1.5]),
    ("addmm", [floats(2), X, floats(3, 2), 0.5, 2.0]),
    ("avg_pool2d", [IMAGE, [3, 2], [2, 2], [1, 0], False, False]),
    ("clamp", [X, -0.5, 1.0]),
    ("clamp", [INTS, None, 2]),
    (
        "convolution",
        [IMAGE, floats(6, 2, 3, 3), floats(6), [2, 1], [1, 1], [1, 1], False, [0, 0], 2],
    ),
    ("convolution", [IMAGE, floats(4, 2, 3, 3), None, [2, 2], [1, 1], [1, 1], True, [1, 1], 1]),
    ("conv2d", [IMAGE, floats(2, 4, 3, 3), floats(2), [1, 1], [1, 1]]),
    ("conv1d", [floats(1, 2, 8), floats(3, 2, 3)]),
    ("hardtanh", [X, -0.5, 0.5]),
    ("max_pool2d", [IMAGE, [2, 2]]),
    ("max_pool2d", [IMAGE, [3, 3], [2, 2], [1, 1], [1, 1], True]),
    ("mean.dim", [IMAGE, [2, 3], True]),
    ("mm", [X, floats(3, 4)]),
    ("mul.Tensor", [X, floats(3)]),
    ("reshape", [IMAGE, [2, -1]]),
    ("slice.Tensor", [X, 1, 0, 3, 2]),
    ("transpose.int", [IMAGE, 1, -1]),
    ("unsqueeze", [X, -1]),
    ("upsample_nearest2d", [IMAGE, [9, 7]]),
    ("view", [X, [3, 2]]),
    ("sub.Tensor", [X, Y]),
    ("div.Tensor", [X, positive(2, 3)]),
    ("div.Tensor_mode", [INTS, torch.tensor(2), "floor"]),
    ("floor_divide", [INTS, torch.tensor([2, 3, -2])]),
    ("pow.Tensor_Scalar", [X, 2]),
    ("pow.Tensor_Tensor", [positive(2, 3), Y]),
    ("pow.Scalar", [2.0, X]),
    ("batch_norm", [IMAGE, floats(4), floats(4), floats(4), positive(4), False, 0.1, 1e-5, False]),
    ("baddbmm", [floats(2, 2, 4), floats(2, 2, 3), floats(2, 3, 4)]),
    ("bmm", [floats(2, 2, 3), floats(2, 3, 4)]),
    ("cumsum", [X, 1]),
    ("expand", [floats(3, 1), [2, 3, 4]]),
    ("flip", [X, [0, 1]]),
    ("gelu", [X]),
    ("gelu", [X, "tanh"]),
    ("glu", [IMAGE, 1]),
    ("hardshrink", [X, 0.5]),
    ("layer_norm", [X, [3], floats(3), floats(3)]),
    ("leaky_relu", [X, 0.1]),
    ("lerp.Scalar", [X, Y, 0.25]),
    ("lerp.Tensor", [X, Y, floats(3)]),
    ("linear", [X, floats(4, 3), floats(4)]),
    ("log_softmax.int", [X, 0]),
    ("masked_fill.Scalar", [X, MASK, 7.0]),
    ("permute", [IMAGE, [0, 2, 3, 1]]),
    ("reflection_pad2d", [IMAGE, [1, 2, 0, 1]]),
    ("replication_pad2d", [IMAGE, [1, 0, 2, 1]]),
    ("repeat", [X, [2, 1, 2]]),
    ("select.int", [X, 1, -1]),
    ("softmax.int", [X, -1]),
    ("softplus", [X]),
    ("squeeze", [IMAGE]),
    ("squeeze.dim", [IMAGE, 0]),
    ("stack", [[X, Y], 2]),
    ("sum.dim_IntList", [X, [0]]),
    ("sum", [INTS]),
    ("threshold", [X, 0.5, -1.0]),
    ("tile", [X, [2]]),
    ("t", [X]),
    ("upsample_bilinear2d", [IMAGE, [9, 7], True]),
    ("var.correction", [X, [1]]),
    ("matmul", [floats(2, 1, 2, 3), floats(4, 3, 2)]),
    ("matmul", [floats(3), floats(2, 3, 4)]),
    ("amax", [X, [1], True]),
    ("argmax", [X, 1]),
    ("max.dim", [X, 1]),
    ("any.dim", [MASK, 1]),
    ("atan2", [X, Y]),
    ("bitwise_and.Tensor", [INTS, INDEX]),
    ("constant_pad_nd", [X, [1, 2, 0, 1], 9.0]),
    ("copysign.Tensor", [X, Y]),
    ("diagonal", [IMAGE, 1, 2, 3]),
    ("elu", [X, 0.5]),
    ("embedding", [floats(4, 2), INDEX]),
    ("eq.Tensor", [INTS, INDEX]),
    ("flatten.using_ints", [IMAGE, 1, 2]),
    ("fmod.Scalar", [X, 0.75]),
    ("full_like", [X, 3]),
    ("gather", [X, 1, INDEX]),
    ("group_norm", [IMAGE, 2, floats(4), floats(4)]),
    ("gt.Scalar", [X, 0]),
    ("index.Tensor", [X, [None, torch.tensor([2, 0])]]),
    ("index_select", [X, 1, torch.tensor([2, 0, 0])]),
    ("logsumexp", [X, [1]]),
    ("maximum", [X, HALF[:2]]),
    ("mul.Scalar", [HALF, 2]),
    ("add.Tensor", [BYTES, torch.tensor(100)]),
    ("add.Tensor", [HALF[:2], X]),
    ("narrow", [X, 1, 1, 2]),
    ("native_layer_norm", [X, [3], None, None, 1e-5]),
    ("one_hot", [INDEX, 3]),
    ("pixel_shuffle", [IMAGE, 2]),
    ("prod.dim_int", [INTS, 1]),
    ("remainder.Tensor", [INTS, torch.tensor(4)]),
    ("rms_norm", [X, [3], floats(3)]),
    ("roll", [X, [1], [1]]),
    ("rsub.Scalar", [X, 1.0]),
    ("scaled_dot_product_attention", [floats(1, 2, 3, 4), floats(1, 2, 5, 4), floats(1, 2, 5, 4)]),
    ("scatter.src", [X, 1, INDEX, Y]),
    ("slice_scatter", [X, floats(2, 1), 1, 1, 2]),
    ("sort", [X, 1, True]),
    ("split.Tensor", [IMAGE, 3, 1]),
    ("std.correction", [X, None]),
    ("topk", [X, 2]),
    ("tril", [X]),
    ("unbind.int", [X, 0]),
    ("unfold", [X, 1, 2, 1]),
    ("where.self", [MASK, X, torch.tensor(0.0)]),
    ("zeros_like", [INTS]),
    ("gru.input", [floats(4, 1, 3), floats(2, 1, 2), GRU, True, 1, 0.0, False, True, False]),
    ("lstm.input", [floats(1, 4, 3), STATES, LSTM, True, 1, 0.0, False, False, True]),
    *((name, [X]) for name in UNARY),
    *((name, [positive(2, 3)]) for name in POSITIVE),
    ("exp", [INTS]),
    ("neg", [HALF]),
]


def number(x: bool | int | float) -> bool | int | float | None:
    """A number in JSON, which lacks NaN."""
    if isinstance(x, (bool, int)):
        return x
    assert not math.isinf(x)
    return None if math.isnan(x) else float(f"{x:.8g}")


def described(value: Any) -> Any:
    """An argument or output in JSON."""
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        return {
            "dtype": dtype,
            "shape": list(value.shape),
            "values": [number(x) for x in value.reshape(-1).tolist()],
        }
    if isinstance(value, (list, tuple)):
        return [described(item) for item in value]
    return value


def called(name: str, arguments: list[Any]) -> Any:
    """Calls an operator with all arguments by position, though PyTorch wants names for some."""
    base, _, overload = name.partition(".")
    packet = getattr(torch.ops.aten, base)
    operator = getattr(packet, overload or "default", None)
    if operator is None:
        return packet(*arguments)
    parameters = operator._schema.arguments
    named = {
        parameter.name: argument
        for parameter, argument in zip(parameters, arguments)
        if parameter.kwarg_only
    }
    return operator(*arguments[: len(arguments) - len(named)], **named)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(x).reshape(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        x = F.scaled_dot_product_attention(query, key, value)
        return self.proj(x.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.fc1, self.fc2 = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class VisionTransformer(nn.Module):
    """The architecture of timm's `vit_*`, with the same names of weights where they matter."""

    def __init__(self) -> None:
        super().__init__()
        width, heads, depth, patch, side = 16, 2, 2, 4, 16
        self.patch_embed = nn.Conv2d(3, width, patch, stride=patch)
        self.cls_token = nn.Parameter(torch.randn(1, 1, width))
        self.pos_embed = nn.Parameter(torch.randn(1, (side // patch) ** 2 + 1, width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 5)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.patch_embed(image).flatten(2).transpose(1, 2)
        x = torch.cat((self.cls_token.expand(x.shape[0], -1, -1), x), 1) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


def aliased(seed: int) -> dict[str, Any]:
    """A random program of views and writes to them, and what its tensors hold in the end.

    A step is a source, the name of an operator, and arguments; views are added to the tensors.
    """
    random = Random(seed)
    tensors = [torch.arange(24.0).reshape(2, 3, 4)]
    steps: list[list[Any]] = []
    while len(steps) < 12:
        source = random.randrange(len(tensors))
        own = tensors[source]
        rank = own.dim()
        dim = random.randrange(-rank, rank) if rank else 0
        size = own.shape[dim] if rank else 1
        views: list[tuple[str, list[Any]]] = [
            ("unsqueeze", [random.randint(-rank - 1, rank)]),
            ("flatten.using_ints", [0, -1]),
            ("squeeze", []),
            ("reshape", [[2, -1] if own.numel() % 2 == 0 else [-1]]),
            ("detach", []),
        ]
        if rank:
            start = random.randint(-size, size)
            views += [
                ("select.int", [dim, random.randrange(-size, size)]) if size else ("detach", []),
                ("slice.Tensor", [dim, start, random.randint(start, size), random.randint(1, 2)]),
                ("transpose.int", [dim, random.randrange(rank)]),
                ("permute", [random.sample(range(rank), rank)]),
                ("narrow", [dim, min(1, size), max(size - 1, 0)]),
            ]
        if rank > 1:
            views.append(("diagonal", [random.randint(-1, 1), 0, 1]))
        writes: list[tuple[str, list[Any]]] = [
            ("add_.Scalar", [random.randint(1, 9)]),
            ("mul_.Scalar", [random.randint(2, 3)]),
            ("fill_.Scalar", [random.randint(-9, 9)]),
            ("neg_", []),
        ]
        if random.random() < 0.6:
            name, arguments = random.choice(views)
            tensors.append(called(name, [own, *arguments]))
        else:
            name, arguments = random.choice(writes)
            called(name, [own, *arguments])
        steps.append([source, name, arguments])
    return {"steps": steps, "tensors": described(tensors)}


def safetensors(tensors: dict[str, torch.Tensor]) -> bytes:
    """The bytes of a safetensors file of float32 tensors."""
    header, data = {}, b""
    for name, tensor in sorted(tensors.items()):
        bytes_ = tensor.detach().contiguous().numpy().tobytes()
        header[name] = {
            "dtype": "F32",
            "shape": list(tensor.shape),
            "data_offsets": [len(data), len(data) + len(bytes_)],
        }
        data += bytes_
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    lines = []
    for name, arguments in CALLS:
        outputs = called(name, arguments)
        outputs = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
        case = {"name": name, "arguments": described(arguments), "outputs": described(outputs)}
        lines.append(json.dumps(case))
    (FOLDER / "calls.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")
    programs = [json.dumps(aliased(seed)) for seed in range(40)]
    (FOLDER / "views.json").write_text("[\n" + ",\n".join(programs) + "\n]\n")
    # Weights that do not depend on the calls above.
    torch.manual_seed(1)
    model = VisionTransformer().eval()
    (FOLDER / "vit.safetensors").write_bytes(safetensors(model.state_dict()))
    with torch.no_grad():
        x = torch.arange(3 * 16 * 16).reshape(1, 3, 16, 16)
        image = (x * 37 % 101).float() / 101
        case = {"logits": described(model(image))["values"]}
    (FOLDER / "vit.json").write_text(json.dumps(case) + "\n")


if __name__ == "__main__":
    main()
