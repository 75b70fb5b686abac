"""Runs an exported model in ExecuTorch's own runtime: reference for quantized models, and
benchmark.

    python runtime.py MODEL.pte EXPECTED.json [--write FILE]
    python runtime.py MODEL.pte --bench TOKENS

The first form compares or writes the greedy tokens and some logits. The second prints the time per
token, the fastest of five rounds.

PyTorch's eager mode is no reference for int4 weights with int8 activations: it multiplies
dequantized values, while XNNPACK multiplies quantized ones.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch

# In this order: operators are added to the runtime that is loaded first.
# isort: off
from executorch.extension.pybindings import portable_lib
from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401
import executorch.kernels.quantized  # noqa: F401

# isort: on


def load(path: Path):
    return portable_lib._load_for_executorch(str(path))


def logits_of(module, tokens: list[int], position: int) -> torch.Tensor:
    return module.forward([torch.tensor([tokens]), torch.tensor([position])])[0].flatten().clone()


def greedy(path: Path, prompt: list[int], count: int) -> tuple[list[int], list[list[float]], float]:
    """The greedy tokens, some logits of each step, and the smallest lead over another token."""
    module, at, tokens, chosen, rows, least = load(path), 0, prompt, [], [], float("inf")
    for _ in range(count):
        logits = logits_of(module, tokens, at)
        best = logits.topk(2)
        least = min(least, float(best.values[0] - best.values[1]))
        at += len(tokens)
        tokens = [int(best.indices[0])]
        chosen += tokens
        rows.append(
            [
                round(float(best.values[0]), 4),
                round(float(best.values[1]), 4),
                round(float(logits[5]), 4),
            ]
        )
    return chosen, rows, least


def bench(path: Path, count: int) -> None:
    module, fastest = load(path), float("inf")
    logits_of(module, [1], 0)
    for _ in range(5):
        start = time.perf_counter()
        for at in range(count):
            logits_of(module, [5 + at % 50], at)
        fastest = min(fastest, time.perf_counter() - start)
    print(json.dumps({"tokens_per_second": count / fastest, "threads": torch.get_num_threads()}))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("expected", type=Path, nargs="?")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--bench", type=int)
    options = parser.parse_args()
    if options.bench:
        bench(options.model, options.bench)
        return
    cases = []
    for case in json.loads(options.expected.read_text()):
        chosen, rows, least = greedy(options.model, case["ids"], len(case["chosen"]))
        same = next(
            (at for at, pair in enumerate(zip(chosen, case["chosen"])) if pair[0] != pair[1]),
            len(chosen),
        )
        print(f"{same} of {len(chosen)} tokens as in {options.expected}, least lead {least:.3g}")
        cases.append({"ids": case["ids"], "chosen": chosen, "least_lead": least, "logits": rows})
    if options.write:
        lines = ",\n".join(json.dumps(case) for case in cases)
        options.write.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
