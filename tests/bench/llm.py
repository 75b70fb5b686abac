"""Language models for `cargo xtask bench llm`, and ExecuTorch's own runtime on them.

    python llm.py export FOLDER NAME
    python llm.py serve MODEL THREADS TOKENS

`export` writes FOLDER/NAME.pte with random weights. NAME is a shape and a weight format:
`stories15m_fp32`, `stories15m_8da4w`, `wide_fp32`, `wide_8da4w`; for GPUs `llama1b_vulkan_4bit` and
`llama1b_vulkan_fp16`. `serve` writes `ready`. It then replies to each line with a number of runs by
a line of their times in milliseconds. A run feeds TOKENS tokens, continuing the previous run's.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

CONTEXT, CHUNK = 256, 128
ROOM = {"llama1b": (1024, 512)}
"""Context length and maximum prefill length, if not `CONTEXT` and `CHUNK`."""

SHAPES = {
    "stories15m": {
        "dim": 288,
        "n_layers": 6,
        "n_heads": 6,
        "n_kv_heads": 6,
        "hidden_dim": 768,
        "vocab_size": 32000,
    },
    # Weights that exceed all CPU caches.
    "wide": {
        "dim": 1536,
        "n_layers": 6,
        "n_heads": 12,
        "n_kv_heads": 4,
        "hidden_dim": 4096,
        "vocab_size": 4096,
    },
    # Llama 3.2 1B, whose output layer shares the embeddings.
    "llama1b": {
        "dim": 2048,
        "n_layers": 16,
        "n_heads": 32,
        "n_kv_heads": 8,
        "hidden_dim": 8192,
        "vocab_size": 128256,
        "rope_theta": 500000.0,
    },
}
PERIOD = {"llama1b": 16384, "wide": 16384}
"""Period after which weights repeat, so that files compress well; it differs for each weight."""

FORMS = {
    "fp32": ["--use_sdpa_with_kv_cache", "-X"],
    "8da4w": [
        "--use_sdpa_with_kv_cache",
        "-X",
        "--xnnpack-extended-ops",
        "-qmode",
        "8da4w",
        "--group_size",
        "32",
    ],
    "vulkan_fp16": ["--use_sdpa_with_kv_cache", "--vulkan", "--vulkan-force-fp16"],
    "vulkan_4bit": [
        "--use_sdpa_with_kv_cache",
        "--vulkan",
        "--vulkan-force-fp16",
        "-qmode",
        "4w",
        "--group_size",
        "64",
    ],
}


def export(folder: Path, name: str) -> None:
    import torch
    from executorch.examples.models.llama.export_llama_lib import build_args_parser, export_llama
    from executorch.examples.models.llama.llama_transformer import construct_transformer
    from executorch.examples.models.llama.model_args import ModelArgs

    shape, form = name.split("_", 1)
    context, chunk = ROOM.get(shape, (CONTEXT, CHUNK))
    params = {"norm_eps": 1e-5, "rope_theta": 10000.0, **SHAPES[shape]}
    torch.manual_seed(0)
    model = construct_transformer(ModelArgs(**params, max_seq_len=chunk, max_context_len=context))
    if period := PERIOD.get(shape):
        with torch.no_grad():
            for weight in model.parameters():
                flat = weight.view(-1)
                flat.copy_(flat[:period].repeat(flat.numel() // period + 1)[: flat.numel()])
    with tempfile.TemporaryDirectory() as work, contextlib.chdir(work):
        torch.save(model.state_dict(), "model.pth")
        Path("params.json").write_text(json.dumps(params))
        command = [
            "-kv",
            "-d",
            "fp32",
            "--checkpoint",
            f"{work}/model.pth",
            "--params",
            f"{work}/params.json",
        ]
        command += ["--max_seq_length", str(chunk), "--max_context_length", str(context)]
        export_llama(
            build_args_parser().parse_args([*command, *FORMS[form], "--output_name", f"{name}.pte"])
        )
        shutil.move(f"{name}.pte", folder / f"{name}.pte")


def serve(model: Path, threads: int, count: int) -> None:
    try:
        import torch
        from executorch.extension.pybindings import portable_lib
        from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401
        import executorch.kernels.quantized  # noqa: F401
    except ImportError as error:
        print(f"not here: {error}", flush=True)
        return
    torch.set_num_threads(threads)
    with contextlib.suppress(AttributeError):
        portable_lib._unsafe_reset_threadpool(threads)
    module = portable_lib._load_for_executorch(str(model))
    tokens = torch.arange(count).remainder(97).unsqueeze(0)
    places = [torch.tensor([at]) for at in range(0, CHUNK - count + 1, count)]
    module.forward([tokens, places[0]])
    print("ready", flush=True)
    for line in sys.stdin:
        times = []
        for run in range(int(line)):
            start = time.perf_counter()
            module.forward([tokens, places[run % len(places)]])
            times.append(time.perf_counter() - start)
        print(" ".join(f"{seconds * 1e3:.5f}" for seconds in times), flush=True)


def main() -> None:
    what, first, second, *rest = sys.argv[1:]
    if what == "export":
        export(Path(first).resolve(), second)
    else:
        serve(Path(first), int(second), int(rest[0]))


if __name__ == "__main__":
    main()
