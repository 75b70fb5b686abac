"""Writes `fixtures/language/`: ExecuTorch's operators for language models, with KV caches.

    python language.py

Expected outputs are those of ExecuTorch's own operators when called from PyTorch.
"""

from __future__ import annotations

import copy
from typing import Any, Iterator

import torch
from executorch.examples.models.llama.llama_transformer import construct_transformer
from executorch.examples.models.llama.model_args import ModelArgs
from executorch.examples.models.llama.source_transformation.custom_kv_cache import (
    replace_kv_cache_with_custom_kv_cache,
    replace_kv_cache_with_quantized_kv_cache,
)
from executorch.examples.models.llama.source_transformation.quantize import EmbeddingQuantHandler
from executorch.examples.models.llama.source_transformation.sdpa import (
    replace_sdpa_with_custom_op,
)
from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401
from executorch.extension.llm.custom_ops import op_fallback, op_tile_crop_aot  # noqa: F401
from torch import nn
from torch.export import Dim

from common import BF16, EXACT, F16, F32, Fixture, Manifest, Tolerance, seed

FOLDER = "language"
L = torch.ops.llama
TOLERANCES = {torch.float32: F32, torch.float16: F16, torch.bfloat16: BF16}
NAMES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}


class Cached(nn.Module):
    """Writes keys and values to caches and attends over the caches."""

    def __init__(self, dtype: torch.dtype, together: bool, batch: int = 1, room: int = 12) -> None:
        super().__init__()
        self.together, self.room = together, room
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(batch, room, 2, 8, dtype=dtype))

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, position: torch.Tensor
    ) -> torch.Tensor:
        start, length = position.item(), q.size(1)
        torch._check_is_size(start)
        torch._check(start < self.room)
        torch._check(start + length <= self.room)
        if self.together:
            return L.sdpa_with_kv_cache(
                q, k, v, self.keys, self.values, start, length, None, 0, True
            )
        L.update_cache(k, self.keys, start)
        L.update_cache(v, self.values, start)
        return L.custom_sdpa(q, self.keys, self.values, start, None, 0.0, True)


class Indexed(nn.Module):
    """Writes keys to the cache positions given by an index tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(2, 5, 2, 3))

    def forward(self, x: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        L.update_cache_with_indices(x, self.cache, 0, indices)
        return self.cache * 2.0


class Call(nn.Module):
    """One operator with fixed non-tensor arguments."""

    def __init__(self, operator: Any, *rest: Any, **named: Any) -> None:
        super().__init__()
        self.operator, self.rest, self.named = operator, rest, named

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.operator(*inputs, *self.rest, **self.named)


def one(
    name: str, module: nn.Module, *inputs: tuple, tolerance: Tolerance = F32, **options: Any
) -> Fixture:
    return Fixture.forward(f"{FOLDER}/{name}", module, list(inputs), tolerance=tolerance, **options)


def steps(dtype: torch.dtype, batch: int, *lengths: int) -> list[tuple]:
    made, at = [], 0
    for length in lengths:
        q, k, v = (torch.randn(batch, length, heads, 8).to(dtype) for heads in (4, 2, 2))
        made.append((q, k, v, torch.tensor([at])))
        at += length
    return made


def caches() -> Iterator[Fixture]:
    length = Dim("length", min=1, max=8)
    dynamic = ({1: length}, {1: length}, {1: length}, None)
    for dtype in TOLERANCES:
        for together in (False, True):
            name = f"{'sdpa_with_kv_cache' if together else 'update_cache'}_{NAMES[dtype]}"
            inputs = steps(dtype, 1, 4, 1, 1, 3)
            module = Cached(dtype, together)
            shapes = None if dtype == torch.float32 and together else dynamic
            if shapes is None:
                inputs = steps(dtype, 1, 3, 3, 3)
            yield one(
                name,
                module,
                *inputs,
                tolerance=TOLERANCES[dtype],
                sequence=True,
                dynamic_shapes=shapes,
            )
    yield one(
        "update_cache_batch",
        Cached(torch.float32, False, 3),
        *steps(torch.float32, 3, 2, 2, 2),
        sequence=True,
    )
    rows = [
        (torch.randn(2, 2, 2, 3), torch.tensor([[0, 4], [1, 0]])),
        (torch.randn(2, 2, 2, 3), torch.tensor([[4, 2], [3, 3]])),
    ]
    yield one("update_cache_with_indices", Indexed(), *rows, tolerance=EXACT, sequence=True)


def attention() -> Iterator[Fixture]:
    def qkv(
        batch: int,
        queries: int,
        keys: int,
        heads: int,
        shared: int,
        depth: int,
        dtype=torch.float32,
    ) -> tuple:
        shapes = (
            (batch, queries, heads * shared, depth),
            (batch, keys, heads, depth),
            (batch, keys, heads, depth),
        )
        return tuple(torch.randn(shape).to(dtype) for shape in shapes)

    yield one("sdpa_causal", Call(L.custom_sdpa, 3, None, 0.0, True), qkv(2, 4, 9, 2, 3, 8))
    yield one("sdpa_all_before", Call(L.custom_sdpa, 3, None, 0.0, False), qkv(1, 4, 9, 2, 1, 5))
    yield one("sdpa_scaled", Call(L.custom_sdpa, 0, None, 0.0, True, 0.3), qkv(1, 4, 4, 1, 1, 8))
    yield one("sdpa_many_keys", Call(L.custom_sdpa, 290, None, 0.0, True), qkv(1, 3, 300, 1, 2, 4))
    yield one(
        "sdpa_many_queries", Call(L.custom_sdpa, 0, None, 0.0, True), qkv(1, 150, 150, 1, 2, 4)
    )
    half = qkv(1, 70, 140, 1, 2, 4, torch.float16)
    yield one("sdpa_half", Call(L.custom_sdpa, 65, None, 0.0, True), half, tolerance=F16)
    # 70 query heads share a key head: more rows than a tile.
    yield one("sdpa_wide_group", Call(L.custom_sdpa, 2, None, 0.0, True), qkv(1, 2, 4, 2, 70, 2))
    masked = lambda q, k, v, mask: L.custom_sdpa(q, k, v, 2, mask, 0.0, False)  # noqa: E731
    hidden = torch.randn(4, 9)
    hidden[1, 3:] = float("-inf")
    hidden[2] = float("-inf")
    yield one("sdpa_mask", Call(masked), (*qkv(1, 4, 9, 2, 2, 8), hidden))
    wide = torch.zeros(2, 260)
    # All keys but those of the last tile are masked.
    wide[0, :258] = float("-inf")
    yield one("sdpa_mask_late", Call(masked), (*qkv(1, 2, 260, 1, 1, 4), wide))
    for heads_first in (False, True):
        yield quantized(heads_first)


def quantized(heads_first: bool) -> Fixture:
    def quantized_heads(heads: int, positions: int) -> tuple:
        shape = (1, heads, positions, 8) if heads_first else (1, positions, heads, 8)
        vectors = (*shape[:3], 1)
        values = torch.randint(-100, 100, shape, dtype=torch.int8)
        zeros = torch.randint(-5, 5, vectors, dtype=torch.int8)
        return values, zeros, torch.rand(vectors) * 0.02 + 0.001

    (q, qz, qs), (k, kz, ks), (v, vz, vs) = (
        quantized_heads(4, 3),
        quantized_heads(4 if heads_first else 2, 7),
        quantized_heads(4 if heads_first else 2, 7),
    )

    def run(q, k, v, qz, qs, kz, ks, vz, vs):
        return L.custom_quantized_sdpa(
            q, k, v, 4, None, 0.0, True, None, qz, qs, kz, ks, vz, vs, heads_first
        )

    name = f"quantized_sdpa_{'heads_first' if heads_first else 'positions_first'}"
    return one(name, Call(run), (q, k, v, qz, qs, kz, ks, vz, vs))


def recurrences() -> Iterator[Fixture]:
    for name, batch, heads, shared, length, by_element in (
        ("decode", 2, 2, 2, 1, True),
        ("prefill", 1, 2, 1, 5, True),
        ("one_gate", 1, 2, 3, 4, False),
    ):
        width, depth = 5, 6
        inputs = (
            torch.randn(batch, heads * shared, length, width),
            torch.randn(batch, heads, length, width),
            torch.randn(batch, heads, length, depth),
            torch.rand((batch, heads, length, width) if by_element else (batch, heads, length)),
            torch.rand(batch, heads, length),
            torch.randn(batch, heads, width, depth),
        )
        yield one(
            f"gated_delta_{name}", Call(L.gated_delta_rule), inputs, tolerance=Tolerance(1e-3, 1e-4)
        )
        if name == "decode":
            yield one("channelwise_gated_delta", Call(L.channelwise_gated_delta_rule), inputs)


def other_operators() -> Iterator[Fixture]:
    for length in (1, 8, 28, 112):
        yield one(
            f"hadamard_{length}", Call(L.fast_hadamard_transform), (torch.randn(2, 3, length),)
        )
    yield one(
        "hadamard_half",
        Call(L.fast_hadamard_transform),
        (torch.randn(3, 16).half(),),
        tolerance=F16,
    )
    yield one("fallback", Call(L.fallback), (torch.randn(2, 3),), tolerance=EXACT)
    crop = torch.ops.preprocess.tile_crop
    yield one("tile_crop", Call(crop, 2), (torch.randn(3, 4, 4),), tolerance=EXACT)
    for name, bits, function, biased in (
        ("sigmoid", 4, "sigmoid", True),
        ("sigmoid_plain", 8, "sigmoid", False),
        ("softmax", 4, "softmax", False),
    ):
        yield one(f"experts_{name}", Experts(bits, function, biased), (torch.randn(5, 32),))


class Experts(nn.Module):
    """Mixture of experts: each token is routed to a few feed-forward layers."""

    def __init__(self, bits: int, function: str, biased: bool, group: int = 16) -> None:
        super().__init__()
        self.settings = (2, 4, 48, 32, group, bits, function, 2.5)
        self.register_buffer("gate", torch.randn(4, 32))
        self.register_buffer("bias", torch.randn(4) if biased else torch.empty(0))
        self.register_buffer(
            "first", torch.stack([packed(torch.randn(96, 32), group, bits) for _ in range(4)])
        )
        self.register_buffer(
            "second", torch.stack([packed(torch.randn(32, 48), group, bits) for _ in range(4)])
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return L.quantized_moe_ffn(x, self.gate, self.bias, self.first, self.second, *self.settings)


def packed(weights: torch.Tensor, group: int, bits: int) -> torch.Tensor:
    """Packs weights in torchao's universal layout: blocks of 8 x 16 values, as two 8 x 8 halves."""
    rows, width = weights.shape
    top = 2 ** (bits - 1) - 1
    groups = weights.reshape(rows, width // group, group)
    scales = groups.abs().amax(-1) / top
    quantized_heads = (groups / scales[..., None]).round().clamp(-top - 1, top).to(torch.int64)
    parts = [as_bytes(torch.tensor([6712, 1] + [0] * 14, dtype=torch.int32))]
    for first in range(0, rows, 8):
        for number in range(width // group):
            block = quantized_heads[first : first + 8, number]
            for at in range(0, group, 16):
                part = block[:, at : at + 16].reshape(8, 2, 8).transpose(0, 1).reshape(-1)
                if bits == 4:
                    part = (part + 8).reshape(4, 2, 16)
                    part = part[:, 0] | part[:, 1] << 4
                parts.append((part & 255).to(torch.uint8).reshape(-1))
            parts.append(as_bytes(scales[first : first + 8, number].contiguous()))
            parts.append(as_bytes(block.sum(-1).to(torch.int32)))
    return torch.cat(parts)


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(torch.uint8).reshape(-1)


class Decoder(nn.Module):
    """A tiny random instance of ExecuTorch's example Llama that returns the last token's logits."""

    def __init__(self, *changes: Any, **settings: Any) -> None:
        super().__init__()
        args = ModelArgs(
            dim=32,
            n_layers=2,
            n_heads=4,
            n_kv_heads=2,
            vocab_size=48,
            hidden_dim=64,
            max_seq_len=16,
            max_context_len=16,
            use_kv_cache=True,
            use_sdpa_with_kv_cache_op=True,
            enable_dynamic_shape=True,
            **settings,
        )
        model = construct_transformer(args).eval()
        for parameter in model.parameters():
            # A larger standard deviation than the default, so that logits differ clearly.
            nn.init.normal_(
                parameter,
                std=0.3 if parameter.dim() > 1 else 0.1,
                mean=0.0 if parameter.dim() > 1 else 1.0,
            )
        for change in changes:
            model = change(model)
        self.model = model

    def forward(self, tokens: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        return self.model(tokens, {"input_pos": position})


def small_embeddings(bits: int, group: int | None) -> Any:
    return lambda model: EmbeddingQuantHandler(
        model, bitwidth=bits, group_size=group, packed=bits < 8
    ).quantized_model()


def greedy(model: nn.Module, prompt: list[int], count: int) -> list[tuple]:
    """Inputs of greedy decoding: the prompt, then one token per call."""
    model, calls, at = copy.deepcopy(model), [], 0
    tokens = prompt
    with torch.no_grad():
        for _ in range(count):
            calls.append((torch.tensor([tokens]), torch.tensor([at])))
            logits = model(*calls[-1])
            at, tokens = at + len(tokens), [int(logits.argmax())]
    return calls


def decoders() -> Iterator[Fixture]:
    custom = replace_sdpa_with_custom_op
    caches = replace_kv_cache_with_custom_kv_cache
    length = Dim("length", min=1, max=15)
    for name, changes in {
        "llama": (caches, custom),
        "llama_4bit_embedding": (small_embeddings(4, 32), caches, custom),
        "llama_byte_embedding": (small_embeddings(8, None), caches, custom),
        "llama_2bit_embedding": (small_embeddings(2, None), caches, custom),
        "llama_quantized_cache": (replace_kv_cache_with_quantized_kv_cache, custom),
    }.items():
        model = Decoder(*changes)
        calls = greedy(model, [3, 14, 15, 9], 6)
        yield one(
            name,
            model,
            *calls,
            sequence=True,
            dynamic_shapes=({1: length}, None),
            tolerance=Tolerance(1e-3, 1e-3),
        )


def main() -> None:
    seed()
    manifest = Manifest("language")
    for group in (caches, attention, recurrences, other_operators, decoders):
        manifest.write_all(group())
    manifest.save()
    print(f"{len(manifest.entries)} programs of language models' operators")


if __name__ == "__main__":
    main()
