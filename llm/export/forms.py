"""Exports small random models in all forms of language models, with PyTorch's greedy tokens.

    python forms.py [--only NAME ...]

Writes the programs of each form to `../forms`. `expected.json` contains prompts and the tokens that
the same module generates greedily in PyTorch, with its KV caches. `llama_*` come from ExecuTorch's
own Llama exporter, with other dims than `../model`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import tempfile
from pathlib import Path

import torch
from executorch.examples.models.llama.export_llama_lib import (
    _prepare_for_llama_export,
    build_args_parser,
    export_llama,
)
from executorch.examples.models.llama.llama_transformer import construct_transformer
from executorch.examples.models.llama.model_args import ModelArgs
from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge
from executorch.exir.passes import MemoryPlanningPass
from executorch.extension.llm.export.config.llm_config import LlmConfig
from runtime import load
from torch import nn
from torch.export import Dim, export

OUT = Path(__file__).parent.parent / "forms"
CONTEXT, CHUNK, COUNT = 64, 16, 40
SMALL = {
    "dim": 24,
    "n_layers": 2,
    "n_heads": 4,
    "n_kv_heads": 2,
    "vocab_size": 89,
    "hidden_dim": 40,
    "norm_eps": 1e-5,
    "rope_theta": 500.0,
}
PROMPTS = ([5, 17, 80, 3, 41], [7])

# Arguments of the exporter, and overrides of `SMALL`.
LLAMA = {
    "llama_wide": (
        ["-kv", "--use_sdpa_with_kv_cache"],
        {"dim": 40, "n_heads": 5, "n_kv_heads": 1, "vocab_size": 131},
    ),
    "llama_one_by_one": (["-kv", "--disable_dynamic_shape"], {"n_kv_heads": 4}),
    "llama_all_logits": (["-kv", "--use_sdpa_with_kv_cache", "--generate_full_logits"], {}),
    # Accepts one token fewer than its metadata says.
    "llama_no_cache": (["--max_seq_length", str(CONTEXT)], {"n_layers": 1}),
    "llama_quantized_cache": (["-kv", "--use_sdpa_with_kv_cache", "--quantize_kv_cache"], {}),
    "llama_sliding_window": (["-kv", "--local_global_attention", "[8,0]"], {}),
    "llama_attention_sink": (["-kv", "--use_attention_sink", "2,12"], {}),
    # Like Qwen 3: norms of queries and keys, biases, wider heads, RoPE by halves.
    "llama_qwen": (
        ["-kv", "--use_sdpa_with_kv_cache"],
        {
            "vocab_size": 151,
            "head_dim": 10,
            "attention_qkv_bias": True,
            "use_qk_norm": True,
            "qk_norm_before_rope": True,
            "use_hf_rope": True,
        },
    ),
    # Like Gemma: post-norms, scaled embeddings, GELU.
    "llama_gemma": (
        ["-kv"],
        {
            "vocab_size": 257,
            "n_kv_heads": 1,
            "post_attention_norm": True,
            "post_ffn_norm": True,
            "rms_norm_add_unit_offset": True,
            "act_fn": "gelu_approx",
            "embedding_scale_factor": 4.9,
        },
    ),
    # Like Phi 4 mini and SmolLM 3: partial RoPE, and a layer without RoPE.
    "llama_phi": (
        ["-kv", "--use_sdpa_with_kv_cache", "-X"],
        {
            "n_heads": 3,
            "n_kv_heads": 3,
            "partial_rotary_factor": 0.75,
            "use_hf_rope": True,
            "no_rope_layer_interval": 2,
        },
    ),
    # Like LFM 2: convolution layers that keep their last inputs, and an attention layer.
    "llama_lfm": (
        ["-kv", "--use_sdpa_with_kv_cache"],
        {
            "n_layers": 3,
            "layer_types": ["conv", "full_attention", "conv"],
            "use_qk_norm": True,
            "qk_norm_before_rope": True,
        },
    ),
    # Expected tokens come from ExecuTorch's own runtime, which computes with int8 activations.
    "llama_8da4w": (
        [
            *["-kv", "--use_sdpa_with_kv_cache", "-X", "--xnnpack-extended-ops", "-qmode", "8da4w"],
            *["--group_size", "32", "--embedding-quantize", "4,32"],
        ],
        {"dim": 64, "hidden_dim": 96, "vocab_size": 163},
    ),
    # A single key head, longer groups, int8 embeddings.
    "llama_8da4w_shared": (
        [
            *["-kv", "--use_sdpa_with_kv_cache", "-X", "--xnnpack-extended-ops", "-qmode", "8da4w"],
            *["--group_size", "64", "--embedding-quantize", "8,0"],
        ],
        {"dim": 64, "n_kv_heads": 1, "hidden_dim": 128, "vocab_size": 97},
    ),
}


def lively(module: nn.Module, seed: int) -> nn.Module:
    """Random weights large enough for the generated tokens to vary."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        if parameter.dim() > 1:
            parameter.data.normal_(std=1.2 / parameter.shape[-1] ** 0.5, generator=generator)
    return module.eval().requires_grad_(False)


def greedy(
    step, prompt: list[int], count: int = COUNT, closest: float = 0.0
) -> tuple[list[int], float]:
    """Greedy tokens and the smallest lead of a chosen token over the next best.

    Stops at a lead below `closest`. `step` maps tokens and the first position to logits.
    """
    tokens, at, chosen, least = list(prompt), 0, [], float("inf")
    with torch.no_grad():
        for _ in range(count):
            logits = step(torch.tensor([tokens]), at)
            logits = logits.flatten(0, -2)[-1] if logits.dim() > 1 else logits
            best = logits.topk(2)
            lead = float(best.values[0] - best.values[1])
            if lead < closest:
                break
            least = min(least, lead)
            at += len(tokens)
            tokens = [int(best.indices[0])]
            chosen += tokens
    return chosen, least


def as_stored(model: nn.Module) -> nn.Module:
    """The model with group scales rounded to bfloat16, as the exporter stores them for XNNPACK."""
    for module in model.modules():
        scale = getattr(getattr(module, "weight", None), "scale", None)
        if scale is not None:
            scale.copy_(scale.to(torch.bfloat16).to(scale.dtype))
    return model


def llama(name: str) -> list[dict]:
    options, other = LLAMA[name]
    params = SMALL | other
    with tempfile.TemporaryDirectory() as folder:
        args = ModelArgs(**params, max_seq_len=CHUNK, max_context_len=CONTEXT)
        model = lively(construct_transformer(args), len(name))
        torch.save(model.state_dict(), f"{folder}/model.pth")
        Path(folder, "params.json").write_text(json.dumps(params))
        command = [
            "-d",
            "fp32",
            "--checkpoint",
            f"{folder}/model.pth",
            "--params",
            f"{folder}/params.json",
        ]
        command += ["--max_seq_length", str(CHUNK), "--max_context_length", str(CONTEXT), *options]
        command += ["--metadata", json.dumps({"get_bos_id": 1, "get_eos_ids": [2]})]
        command += ["--output_name", f"{name}.pte"]
        parse = build_args_parser().parse_args
        # The exporter writes to the working directory.
        with contextlib.chdir(folder):
            export_llama(parse(command))
        shutil.move(f"{folder}/{name}.pte", OUT / f"{name}.pte")
        cases = []
        for prompt in PROMPTS:
            eager = _prepare_for_llama_export(LlmConfig.from_args(parse(command))).model
            is_quantized = name.startswith("llama_8da4w")
            if is_quantized:
                eager, module = as_stored(eager), load(OUT / f"{name}.pte")
            seen: list[int] = []

            def step(tokens: torch.Tensor, at: int) -> torch.Tensor:
                seen.extend(tokens[0].tolist())
                if name == "llama_no_cache":
                    out = eager(torch.tensor([seen]))
                elif is_quantized:
                    out = module.forward([tokens, torch.tensor([at])])[0].clone()
                elif name == "llama_one_by_one":
                    # One token per call, as the program.
                    for offset, token in enumerate(tokens[0].tolist()):
                        out = eager(
                            torch.tensor([[token]]), {"input_pos": torch.tensor([at + offset])}
                        )
                else:
                    out = eager(tokens, {"input_pos": torch.tensor([at])})
                return out[0] if isinstance(out, tuple) else out

            # Beyond the context length if the cache evicts old tokens.
            count = 3 * CONTEXT if "sink" in name else COUNT
            # Near ties may be decided differently by the quantized program.
            chosen, least = greedy(step, prompt, count, 0.02 if is_quantized else 0.0)
            cases.append({"ids": prompt, "chosen": chosen, "least_lead": least})
            if is_quantized:
                cases[-1]["largest"] = largest(eager, prompt + chosen[:-1])
    return cases


def largest(eager: nn.Module, tokens: list[int]) -> list[list[tuple[int, float]]]:
    """The three largest logits after each token."""
    found = []
    with torch.no_grad():
        for at, token in enumerate(tokens):
            out = eager(torch.tensor([[token]]), {"input_pos": torch.tensor([at])})
            best = (out[0] if isinstance(out, tuple) else out).flatten().topk(3)
            found.append([(int(i), round(float(x), 6)) for i, x in zip(best.indices, best.values)])
    return found


class WholeModel(nn.Module):
    """Maps tokens or embeddings, and the first position, to the logits of the last token."""

    def __init__(self, model: nn.Module, of_tokens: bool) -> None:
        super().__init__()
        self.model, self.of_tokens = model, of_tokens

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        options = {"input_pos": position}
        if self.of_tokens:
            return self.model(x, options)
        return self.model(None, options, h=x)


class Shard(nn.Module):
    """A shard of a model: the first has the embeddings, the last the output layer."""

    def __init__(self, model: nn.Module, first: int, last: int) -> None:
        super().__init__()
        self.rope, self.layers = model.rope, nn.ModuleList(model.layers[first:last])
        self.embeddings = model.tok_embeddings if first == 0 else None
        self.head = nn.Sequential(model.norm, model.output) if last == len(model.layers) else None

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        h = x if self.embeddings is None else self.embeddings(x)
        cos, sin = self.rope.get_freqs(position, h.shape[1])
        for layer in self.layers:
            h, _ = layer(h, cos, sin, {"input_pos": position})
        return h if self.head is None else self.head(h[:, -1])


class Uncached(nn.Module):
    """A model without a KV cache: each call passes all tokens."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.places = nn.Parameter(torch.zeros(CONTEXT, SMALL["dim"]))

    def forward(self, tokens: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        places = position + torch.arange(tokens.shape[1])
        return self.model(None, {}, h=self.model.tok_embeddings(tokens) + self.places[places])


class Encoder(nn.Module):
    """Encoder: embeds patches of an image or frames of audio."""

    def __init__(self, convolution: nn.Module) -> None:
        super().__init__()
        self.convolution = convolution

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.convolution(x)).flatten(2).transpose(1, 2)


def cached(seed: int, **other) -> nn.Module:
    args = ModelArgs(
        **(SMALL | other),
        max_seq_len=CHUNK,
        max_context_len=CONTEXT,
        use_kv_cache=True,
        enable_dynamic_shape=True,
    )
    return lively(construct_transformer(args), seed)


def metadata(has_cache: bool = True, **other) -> dict:
    return {
        "get_max_seq_len": CHUNK,
        "get_max_context_len": CONTEXT,
        "get_vocab_size": SMALL["vocab_size"],
        "use_kv_cache": has_cache,
        "enable_dynamic_shape": True,
        "get_eos_ids": [2],
        **other,
    }


def write(name: str, methods: dict, constants: dict | None, share: bool = False) -> None:
    config = EdgeCompileConfig(_check_ir_validity=False, _skip_dim_order=True)
    program = to_edge(methods, constant_methods=constants, compile_config=config)
    planning = MemoryPlanningPass(share_mutable_buffers=share)
    made = program.to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning))
    (OUT / f"{name}.pte").write_bytes(made.buffer)


def some(bound: int = CHUNK) -> dict:
    return {1: Dim("length", min=1, max=bound)}


def prefill_decode(name: str) -> list[dict]:
    model = WholeModel(cached(11), True)
    tokens, one, at = (
        torch.zeros(1, CHUNK, dtype=torch.long),
        torch.zeros(1, 1, dtype=torch.long),
        torch.tensor([0]),
    )
    methods = {
        "prefill": export(model, (tokens, at), dynamic_shapes=(some(), None), strict=False),
        "decode": export(model, (one, at), strict=False),
    }
    write(name, methods, metadata(), share=True)
    return cases_of(lambda: WholeModel(cached(11), True))


def cases_of(make) -> list[dict]:
    cases = []
    for prompt in PROMPTS:
        model = make()
        chosen, least = greedy(lambda tokens, at: model(tokens, torch.tensor([at])), prompt)
        cases.append({"ids": prompt, "chosen": chosen, "least_lead": least})
    return cases


def shards(name: str) -> list[dict]:
    model = cached(12)
    tokens, hidden, at = (
        torch.zeros(1, CHUNK, dtype=torch.long),
        torch.zeros(1, CHUNK, SMALL["dim"]),
        torch.tensor([0]),
    )
    for part, (first, last) in enumerate([(0, 1), (1, 2)]):
        x = tokens if part == 0 else hidden
        method = export(
            Shard(model, first, last), (x, at), dynamic_shapes=(some(), None), strict=False
        )
        write(f"{name}_{part}", {"forward": method}, metadata() if part == 0 else None)
    return cases_of(lambda: WholeModel(cached(12), True))


def uncached(name: str) -> list[dict]:
    def make() -> nn.Module:
        # Otherwise, guards of torch.export would exclude the maximum length.
        args = ModelArgs(**SMALL, max_seq_len=2 * CONTEXT, max_context_len=2 * CONTEXT)
        return lively(Uncached(construct_transformer(args)), 13)

    tokens, at = torch.zeros(1, CONTEXT - 1, dtype=torch.long), torch.tensor([0])
    method = export(make(), (tokens, at), dynamic_shapes=(some(CONTEXT), None), strict=False)
    write(name, {"forward": method}, metadata(has_cache=False, get_max_seq_len=CONTEXT))
    model, cases = make(), []
    for prompt in PROMPTS:
        seen: list[int] = []

        def step(tokens: torch.Tensor, at: int) -> torch.Tensor:
            seen.extend(tokens[0].tolist())
            return model(torch.tensor([seen]), torch.tensor([0]))

        chosen, least = greedy(step, prompt)
        cases.append({"ids": prompt, "chosen": chosen, "least_lead": least})
    return cases


def multimodal(name: str) -> list[dict]:
    model = cached(14)
    text = WholeModel(model, False)
    sight = lively(Encoder(nn.Conv2d(3, SMALL["dim"], 8, stride=8)), 15)
    hearing = lively(Encoder(nn.Conv1d(8, SMALL["dim"], 3, stride=2)), 16)
    image, sound = torch.zeros(1, 3, 16, 16), torch.zeros(1, 8, 11)
    hidden, at = torch.zeros(1, CHUNK, SMALL["dim"]), torch.tensor([0])
    tokens = torch.zeros(1, CHUNK, dtype=torch.long)
    methods = {
        "token_embedding": export(
            model.tok_embeddings, (tokens,), dynamic_shapes=(some(),), strict=False
        ),
        "text_decoder": export(text, (hidden, at), dynamic_shapes=(some(), None), strict=False),
        "vision_encoder": export(sight, (image,), strict=False),
        "audio_encoder": export(hearing, (sound,), strict=False),
    }
    write(name, methods, metadata())
    cases = cases_of(lambda: WholeModel(cached(14), True))
    # Text, an image, text, audio and text: their embeddings in order.
    generator = torch.Generator().manual_seed(17)
    image = (torch.randint(0, 256, (16, 16, 3), generator=generator) / 255.0).permute(2, 0, 1)[None]
    sound = torch.randn(1, 8, 11, generator=generator).mul(100).round().div(100)
    embed = model.tok_embeddings
    pieces = [
        embed(torch.tensor([PROMPTS[0]])),
        sight(image),
        embed(torch.tensor([[9]])),
        hearing(sound),
    ]
    pieces.append(embed(torch.tensor([PROMPTS[1]])))
    fresh, at = WholeModel(cached(14), False), 0
    for piece in pieces:
        logits = fresh(piece, torch.tensor([at]))
        at += piece.shape[1]
    first = int(logits.argmax())

    def step(tokens: torch.Tensor, offset: int) -> torch.Tensor:
        return fresh(embed(tokens), torch.tensor([at + offset]))

    chosen, least = greedy(step, [first], 24)
    pixels = image[0].permute(1, 2, 0).mul(255).round().int().flatten().tolist()
    case = {"chosen": [first, *chosen], "least_lead": least, "picture": pixels}
    case["sound"] = [round(value, 2) for value in sound.flatten().tolist()]
    return [*cases, case]


def gemma4(name: str) -> list[dict]:
    """ExecuTorch's own Gemma 4.

    Inputs are tokens, positions, and embeddings that replace the tokens of images and audio. Later
    layers share the keys of earlier ones.
    """
    from executorch.examples.models.gemma4.text_decoder.gemma4_config import Gemma4Config
    from executorch.examples.models.gemma4.text_decoder.gemma4_model import Gemma4Model

    width, vocabulary = SMALL["dim"], SMALL["vocab_size"]
    config = Gemma4Config(
        hidden_size=width,
        num_hidden_layers=5,
        num_attention_heads=4,
        head_dim=8,
        global_head_dim=16,
        vocab_size=vocabulary,
        intermediate_size=40,
        query_pre_attn_scalar=8,
        sliding_window=16,
        layer_types=[
            "sliding_attention",
            "sliding_attention",
            "full_attention",
            "sliding_attention",
            "full_attention",
        ],
        hidden_size_per_layer_input=4,
        vocab_size_per_layer_input=vocabulary,
        num_kv_shared_layers=2,
        audio_token_id=vocabulary - 1,
        image_token_id=vocabulary - 2,
        max_seq_len=CONTEXT,
        max_context_len=CONTEXT,
        enable_dynamic_shape=True,
        use_custom_sdpa=False,
    )

    def made() -> Gemma4Model:
        wrapper = Gemma4Model(config=config, dtype=torch.float32)
        lively(wrapper.get_eager_model(), 18)
        return wrapper

    wrapper = made()
    tokens, at, beside = wrapper.get_example_inputs_with_audio(seq_len=CHUNK)
    method = export(
        wrapper.get_eager_model(),
        (tokens,),
        kwargs={"input_pos": at, "inputs_embeds": beside},
        dynamic_shapes=wrapper.get_dynamic_shapes(with_audio_embeds=True),
        strict=False,
    )
    write(name, {"text_decoder": method}, metadata())

    def eager():
        model = made().get_eager_model()
        return lambda tokens, at: model(
            tokens,
            input_pos=at + torch.arange(tokens.shape[1]),
            inputs_embeds=torch.zeros(*tokens.shape, width),
        )

    cases = []
    for prompt in PROMPTS:
        model = eager()
        chosen, least = greedy(model, prompt)
        cases.append({"ids": prompt, "chosen": chosen, "least_lead": least})
    return cases


FORMS = {
    **{name: llama for name in LLAMA},
    "prefill_decode": prefill_decode,
    "shards": shards,
    "uncached_with_position": uncached,
    "multimodal": multimodal,
    "gemma4": gemma4,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*", choices=list(FORMS), default=list(FORMS))
    options = parser.parse_args()
    OUT.mkdir(exist_ok=True)
    path = OUT / "expected.json"
    expected = json.loads(path.read_text()) if path.exists() else {}
    torch.set_num_threads(1)
    for name in options.only:
        expected[name] = FORMS[name](name)
        print(name, [f"{case['least_lead']:.2g}" for case in expected[name]], flush=True)
    lines = ",\n".join(
        f"{json.dumps(name)}: {json.dumps(expected[name])}" for name in FORMS if name in expected
    )
    path.write_text("{" + lines + "}\n")


if __name__ == "__main__":
    main()
