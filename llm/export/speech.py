"""Exports a small random speech recognition model in the form of Optimum's Whisper exports, with
its expected outputs.

    python speech.py [--rules]

Writes `../forms/speech.pte`, an audio file, and `../forms/speech.json`: samples and sums of the
features of Hugging Face's `WhisperFeatureExtractor`, and the generated tokens. Requires
`transformers`. `--rules` writes `../forms/speech_rules.json` only: the tokens that the existing
program generates in ExecuTorch's runtime with Hugging Face's logits processors for Whisper, which
suppress tokens and keep timestamps in order.
"""

from __future__ import annotations

import json
import math
import struct
import sys

import numpy
import torch
from forms import OUT, lively, write
from runtime import load
from torch import nn
from torch.export import export
from torch.nn import functional as F
from transformers import GenerationConfig, WhisperFeatureExtractor
from transformers.generation import (
    SuppressTokensAtBeginLogitsProcessor,
    SuppressTokensLogitsProcessor,
    WhisperTimeStampLogitsProcessor,
)

WIDTH, HEADS, VOCABULARY, MELS, SECONDS, CONTEXT = 16, 2, 61, 80, 2, 32
START = [50, 51]
RATE = 16000


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def heads(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (HEADS, WIDTH // HEADS)).transpose(1, 2)

    def forward(
        self, x: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask=None
    ) -> torch.Tensor:
        made = F.scaled_dot_product_attention(self.heads(self.q(x)), keys, values, attn_mask=mask)
        return self.out(made.transpose(1, 2).flatten(2))


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (
            nn.Conv1d(MELS, WIDTH, 3, padding=1),
            nn.Conv1d(WIDTH, WIDTH, 3, stride=2, padding=1),
        )
        self.norm, self.attention = nn.LayerNorm(WIDTH), Attention()

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        x = F.gelu(self.second(F.gelu(self.first(features)))).transpose(1, 2)
        normed, attention = self.norm(x), self.attention
        return x + attention(
            normed, attention.heads(attention.k(normed)), attention.heads(attention.v(normed))
        )


class Decoder(nn.Module):
    """Decodes one token at a position, given the encoder's output, with a KV cache."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(3))
        self.own, self.cross = Attention(), Attention()
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(1, HEADS, CONTEXT, WIDTH // HEADS))

    def forward(
        self, tokens: torch.Tensor, heard: torch.Tensor, position: torch.Tensor
    ) -> torch.Tensor:
        x = self.tokens(tokens) + self.places(position)
        normed = self.norms[0](x)
        self.keys.index_copy_(2, position, self.own.heads(self.own.k(normed)))
        self.values.index_copy_(2, position, self.own.heads(self.own.v(normed)))
        mask = torch.arange(CONTEXT) <= position
        x = x + self.own(normed, self.keys, self.values, mask.view(1, 1, 1, -1))
        keys, values = self.cross.heads(self.cross.k(heard)), self.cross.heads(self.cross.v(heard))
        x = x + self.cross(self.norms[1](x), keys, values)
        return self.norms[2](x) @ self.tokens.weight.T


def sound() -> numpy.ndarray:
    """One and a half seconds of 16-bit audio: rising tones and noise."""
    at = numpy.arange(int(1.5 * RATE)) / RATE
    noise = torch.randn(len(at), generator=torch.Generator().manual_seed(3)).numpy()
    wave = (
        0.4 * numpy.sin(2 * math.pi * (200 + 900 * at) * at)
        + 0.2 * numpy.sin(2 * math.pi * 3000 * at)
        + 0.02 * noise
    )
    return (wave * 32767).clip(-32768, 32767).astype("<i2")


def wav(samples: numpy.ndarray) -> bytes:
    data = samples.tobytes()
    head = struct.pack(
        "<4sI4s4sIHHIIHH",
        b"RIFF",
        36 + len(data),
        b"WAVE",
        b"fmt ",
        16,
        1,
        1,
        RATE,
        2 * RATE,
        2,
        16,
    )
    return head + struct.pack("<4sI", b"data", len(data)) + data


def features(samples: numpy.ndarray, bins: int, seconds: int) -> torch.Tensor:
    extractor = WhisperFeatureExtractor(feature_size=bins, chunk_length=seconds)
    made = extractor(samples.astype("float32") / 32768.0, sampling_rate=RATE, return_tensors="pt")
    return made.input_features


def described(samples: numpy.ndarray, bins: int, seconds: int) -> dict:
    made = features(samples, bins, seconds)[0]
    some = [
        [row, frame, float(made[row, frame])]
        for row in range(0, bins, 7)
        for frame in range(0, made.shape[1], 13)
    ]
    return {
        "bins": bins,
        "seconds": seconds,
        "frames": made.shape[1],
        "mean": float(made.mean()),
        "some": some,
    }


# In Whisper's order: text, end, start, languages, tasks, `<|notimestamps|>`, timestamps.
RULES = {
    "eos_token_id": 39,
    "decoder_start_token_id": 40,
    "lang_to_id": {"<|en|>": 41, "<|de|>": 42, "<|fr|>": 43},
    "task_to_id": {"translate": 44, "transcribe": 45},
    "no_timestamps_token_id": 46,
    "max_initial_timestamp_index": 4,
}


def ruled(
    samples: numpy.ndarray, timestamps: bool, task: str, suppress: list[int], first: list[int]
) -> dict:
    # Loaded anew for each case, so that its caches are empty.
    program = load(OUT / "speech.pte")
    heard = program.run_method("encoder", (features(samples, MELS, SECONDS),))[0].clone()

    def decoder(*inputs: torch.Tensor) -> torch.Tensor:
        return program.run_method("text_decoder", inputs)[0].clone().reshape(1, -1)

    config = GenerationConfig(**RULES)
    languages = torch.tensor(list(RULES["lang_to_id"].values()))
    with torch.no_grad():
        logits = decoder(
            torch.tensor([[RULES["decoder_start_token_id"]]]), heard, torch.tensor([0])
        )[0]
        language = int(languages[logits[languages].argmax()])
        tokens = [RULES["decoder_start_token_id"], language, RULES["task_to_id"][task]]
        tokens += [] if timestamps else [RULES["no_timestamps_token_id"]]
        start = len(tokens)
        processors = [
            SuppressTokensLogitsProcessor(suppress),
            SuppressTokensAtBeginLogitsProcessor(first, start),
        ]
        processors += [WhisperTimeStampLogitsProcessor(config, start)] if timestamps else []
        least, forced = float("inf"), 0
        for at in range(CONTEXT):
            logits = decoder(torch.tensor([[tokens[at]]]), heard, torch.tensor([at]))
            if at + 1 < start:
                continue
            top = int(logits.argmax())
            for process in processors:
                logits = process(torch.tensor([tokens]), logits)
            best = logits.flatten().topk(2)
            least = min(least, float(best.values[0] - best.values[1]))
            tokens.append(int(best.indices[0]))
            forced += tokens[-1] != top
            if tokens[-1] == RULES["eos_token_id"]:
                break
    print(
        task,
        "timestamps" if timestamps else "text",
        f"least lead {least:.2g}, {forced} of {len(tokens)} by rule",
    )
    name = next(name for name, token in RULES["lang_to_id"].items() if token == language)
    return {
        "timestamps": timestamps,
        "task": task,
        "suppress": suppress,
        "suppress_first": first,
        "language": name.strip("<|>"),
        "chosen": tokens[start:],
    }


def rules(samples: numpy.ndarray) -> None:
    ruled_cases = [
        ruled(samples, False, "transcribe", [5, 7], [RULES["eos_token_id"]]),
        ruled(samples, False, "translate", list(range(0, 30, 3)), []),
        ruled(samples, True, "transcribe", [], []),
        ruled(samples, True, "transcribe", [RULES["eos_token_id"], *range(40, 46)], [47]),
        ruled(samples, True, "translate", [RULES["eos_token_id"], *range(40, 46), 50, 51, 52], []),
    ]
    lines = ",\n".join(json.dumps(case) for case in ruled_cases)
    text = f'{{"config": {json.dumps(RULES)},\n"cases": [\n{lines}\n]}}\n'
    (OUT / "speech_rules.json").write_text(text)


def main() -> None:
    samples = sound()
    if "--rules" in sys.argv:
        rules(samples)
        return
    (OUT / "speech.wav").write_bytes(wav(samples))
    encoder, decoder = lively(Encoder(), 21), lively(Decoder(), 22)
    heard = encoder(features(samples, MELS, SECONDS))
    example = (torch.tensor([[1]]), torch.zeros(heard.shape), torch.tensor([0]))
    methods = {
        "encoder": export(encoder, (torch.zeros(1, MELS, SECONDS * 100),), strict=False),
        "text_decoder": export(decoder, example, strict=False),
    }
    write(
        "speech",
        methods,
        {"get_eos_ids": [60], "get_max_context_len": CONTEXT, "get_vocab_size": VOCABULARY},
    )
    chosen, least, tokens = [], float("inf"), list(START)
    with torch.no_grad():
        for at in range(CONTEXT):
            logits = decoder(torch.tensor([[tokens[at]]]), heard, torch.tensor([at])).flatten()
            if at + 1 < len(START):
                continue
            best = logits.topk(2)
            least = min(least, float(best.values[0] - best.values[1]))
            chosen.append(int(best.indices[0]))
            tokens.append(chosen[-1])
    print("least lead", least)
    # The last one is padded to Whisper's 30 seconds, mostly silence.
    cases = [
        described(samples, 80, SECONDS),
        described(samples, 128, SECONDS),
        described(samples[:8000], 80, 30),
    ]
    cases[2]["samples"] = 8000
    cases[2]["some"] = cases[2]["some"][::10]
    text = json.dumps({"start": START, "chosen": chosen, "least_lead": least, "features": cases})
    (OUT / "speech.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
