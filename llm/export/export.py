"""Exports the trained model (`train.py`) with ExecuTorch's Llama exporter, and writes its expected
outputs.

    python export.py OUT FIXTURES

OUT is the folder that `train.py` wrote. FIXTURES receives:

- `fp32.pte` (CPU kernels), `8da4w.pte` (XNNPACK, int4 weights in groups of 32, int4 embeddings)
- `vulkan_4bit.pte`, and `vulkan_fp16.pte` (too large for the repository)
- the tokenizer
- `expected.json`: the tokens that PyTorch chooses greedily
- `expected_vulkan_4bit.json`: the same with the int4 weights
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import text
import torch
from executorch.examples.models.llama.llama_transformer import construct_transformer
from executorch.examples.models.llama.model_args import ModelArgs
from executorch.examples.models.llama.source_transformation.quantize import quantize
from tokenizers import Tokenizer

LENGTH, CONTEXT = 128, 512
FORMS = {
    "fp32": ["--use_sdpa_with_kv_cache"],
    "8da4w": [
        "--use_sdpa_with_kv_cache",
        "-X",
        "--xnnpack-extended-ops",
        "-qmode",
        "8da4w",
        "--group_size",
        "32",
        "--embedding-quantize",
        "4,32",
    ],
    "vulkan_fp16": ["--use_sdpa_with_kv_cache", "--vulkan", "--vulkan-force-fp16"],
    "vulkan_4bit": ["--use_sdpa_with_kv_cache", "--vulkan", "-qmode", "4w", "--group_size", "64"],
}
PROMPTS = (
    "In the beginning",
    "<|im_start|>user\nTell me about Moses.<|im_end|>\n<|im_start|>assistant\n",
)


def export(out: Path, fixtures: Path, name: str) -> None:
    tokenizer = Tokenizer.from_file(str(out / "tokenizer.json"))
    ends = [tokenizer.token_to_id(token) for token in (text.END, text.TURN_END)]
    metadata = json.dumps({"get_bos_id": tokenizer.token_to_id(text.BEGIN), "get_eos_ids": ends})
    command = [
        sys.executable,
        "-m",
        "executorch.examples.models.llama.export_llama",
        "-kv",
        "-d",
        "fp32",
    ]
    command += [
        "--checkpoint",
        str(out / "model.pth"),
        "--params",
        str(out / "params.json"),
        "--metadata",
        metadata,
    ]
    command += [
        "--max_seq_length",
        str(LENGTH),
        "--max_context_length",
        str(CONTEXT),
        "--output_name",
        f"{name}.pte",
    ]
    with tempfile.TemporaryDirectory() as folder:
        # The exporter writes to the working directory.
        subprocess.run(
            command + FORMS[name],
            cwd=folder,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        shutil.move(Path(folder) / f"{name}.pte", fixtures / f"{name}.pte")


def eager(out: Path) -> torch.nn.Module:
    """The model without a KV cache: processes all positions at once, as in training."""
    params = json.loads((out / "params.json").read_text())
    args = ModelArgs(
        **params, max_seq_len=CONTEXT, max_context_len=CONTEXT, generate_full_logits=True
    )
    model = construct_transformer(args).eval()
    model.load_state_dict(torch.load(out / "model.pth"), strict=False)
    return model


def greedy(
    model: torch.nn.Module, prompt: list[int], count: int
) -> tuple[list[int], float, list[float]]:
    """The greedily chosen tokens, the smallest lead over another token, and the first logits."""
    tokens, least, first = list(prompt), float("inf"), []
    with torch.no_grad():
        for _ in range(count):
            logits = model(torch.tensor([tokens]))
            logits = (logits[0] if isinstance(logits, tuple) else logits)[0, -1]
            first = first or logits[:16].tolist()
            best = logits.topk(2)
            least = min(least, float(best.values[0] - best.values[1]))
            tokens.append(int(best.indices[0]))
    return tokens[len(prompt) :], least, first


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("fixtures", type=Path)
    parser.add_argument("--only", choices=[*FORMS, "expected"])
    options = parser.parse_args()
    options.fixtures.mkdir(parents=True, exist_ok=True)
    for name in FORMS:
        if options.only in (None, name):
            export(options.out, options.fixtures, name)
    if options.only not in (None, "expected"):
        return
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(options.out / name, options.fixtures / name)
    tokenizer = Tokenizer.from_file(str(options.out / "tokenizer.json"))
    write_expected(tokenizer, eager(options.out), 256, options.fixtures / "expected.json")
    four = quantize(eager(options.out), "4w", group_size=64)
    write_expected(tokenizer, four, 64, options.fixtures / "expected_vulkan_4bit.json")


def write_expected(tokenizer: Tokenizer, model: torch.nn.Module, count: int, path: Path) -> None:
    expected = []
    for prompt in PROMPTS:
        ids = tokenizer.encode(text.BEGIN + prompt).ids
        chosen, least, logits = greedy(model, ids, count)
        said = tokenizer.decode(chosen, skip_special_tokens=True)
        expected.append(
            {
                "prompt": prompt,
                "ids": ids,
                "chosen": chosen,
                "text": said,
                "least_lead": least,
                "logits": logits,
            }
        )
        print(json.dumps(said), f"lead {least:.2g}")
    lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in expected)
    path.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
