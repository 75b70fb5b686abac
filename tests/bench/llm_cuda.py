"""A model of llm.py's shapes in PyTorch on CUDA, in bfloat16 with random weights.

    llm_cuda.py SHAPE TOKENS

The protocol is that of peer.py. A run feeds TOKENS tokens. A single token is decoded with half of
the KV cache filled, as a captured CUDA graph that includes sampling. Several tokens are a prompt at
the start of the cache, without a graph.
"""

from __future__ import annotations

import sys

import llm
from peer import NotHere, Run, answer, needed


def start(shape: str, count: int) -> Run:
    torch = needed("torch")
    if not torch.cuda.is_available():
        raise NotHere("PyTorch finds no CUDA device")
    functional = torch.nn.functional
    sizes = llm.SHAPES[shape]
    width, heads, shared, inner = (
        sizes[key] for key in ("dim", "n_heads", "n_kv_heads", "hidden_dim")
    )
    depth, room = width // heads, llm.ROOM.get(shape, (llm.CONTEXT, llm.CHUNK))[0]

    def random(*size: int) -> torch.Tensor:
        return torch.randn(*size, device="cuda", dtype=torch.bfloat16) * size[-1] ** -0.5

    layers = [
        {
            "norms": (torch.ones(width, device="cuda", dtype=torch.bfloat16),) * 2,
            "qkv": random((heads + 2 * shared) * depth, width),
            "out": random(width, width),
            "gate_up": random(2 * inner, width),
            "down": random(width, inner),
            "keys": random(1, shared, room, depth),
            "values": random(1, shared, room, depth),
        }
        for _ in range(sizes["n_layers"])
    ]
    words, last_norm = random(sizes["vocab_size"], width), layers[0]["norms"][0]
    turns = torch.arange(room, device="cuda")[:, None] * sizes.get("rope_theta", 1e4) ** (
        -torch.arange(0, depth, 2, device="cuda") / depth
    )
    cos, sin = turns.cos().bfloat16(), turns.sin().bfloat16()
    tokens = torch.zeros(1, count, device="cuda", dtype=torch.int64)
    first = room // 2 if count == 1 else 0
    places = torch.arange(count, device="cuda") + first

    def turned(x: torch.Tensor) -> torch.Tensor:
        even, odd = x[..., 0::2], x[..., 1::2]
        c, s = cos[places], sin[places]
        return torch.stack((even * c - odd * s, even * s + odd * c), -1).flatten(-2)

    def step() -> torch.Tensor:
        x = functional.embedding(tokens, words)
        for layer in layers:
            normed = functional.rms_norm(x, (width,), layer["norms"][0], 1e-5)
            q, k, v = functional.linear(normed, layer["qkv"]).split(
                [heads * depth, shared * depth, shared * depth], -1
            )
            q, k, v = (part.unflatten(-1, (-1, depth)).transpose(1, 2) for part in (q, k, v))
            layer["keys"].index_copy_(2, places, turned(k))
            layer["values"].index_copy_(2, places, v)
            keys, values = (layer[name][:, :, : first + count] for name in ("keys", "values"))
            mixed = functional.scaled_dot_product_attention(
                turned(q), keys, values, is_causal=count > 1, enable_gqa=True
            )
            x = x + functional.linear(mixed.transpose(1, 2).flatten(2), layer["out"])
            normed = functional.rms_norm(x, (width,), layer["norms"][1], 1e-5)
            gate, up = functional.linear(normed, layer["gate_up"]).chunk(2, -1)
            x = x + functional.linear(functional.silu(gate) * up, layer["down"])
        logits = functional.linear(functional.rms_norm(x[:, -1:], (width,), last_norm, 1e-5), words)
        return logits.argmax(-1)

    graph = None
    with torch.inference_mode():
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        if count == 1:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                tokens.copy_(step())

    def run() -> object:
        with torch.inference_mode():
            if graph is None:
                return step().cpu()
            graph.replay()
            return tokens.cpu()

    return run


def main() -> None:
    shape, count = sys.argv[1], int(sys.argv[2])
    answer(lambda: start(shape, count))


if __name__ == "__main__":
    main()
