"""Measures a torchvision model with another runtime on the CPU.

    cpu_peers.py RUNTIME NAME THREADS

The protocol is that of peer.py, the weights are those of export.py.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import torch
import torchvision
from peer import Run, answer, ncnn_run, needed


def onnxruntime(model: torch.nn.Module, inputs: tuple[torch.Tensor, ...], threads: int) -> Run:
    runtime = needed("onnxruntime")
    needed("onnxscript")  # Required by PyTorch's ONNX exporter.
    file = Path(tempfile.mkdtemp()) / "model.onnx"
    torch.onnx.export(model, inputs, file, dynamo=True, verbose=False)
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = runtime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    given = {entry.name: value.numpy() for entry, value in zip(session.get_inputs(), inputs)}
    return lambda: session.run(None, given)


def ncnn(model: torch.nn.Module, inputs: tuple[torch.Tensor, ...], threads: int) -> Run:
    needed("ncnn")
    folder = Path(tempfile.mkdtemp())
    needed("pnnx").export(model, str(folder / "model.pt"), inputs, fp16=False)
    halves = ["use_fp16_packed", "use_fp16_storage", "use_fp16_arithmetic", "use_bf16_storage"]
    options = {"num_threads": threads, **dict.fromkeys(halves, False)}
    arrays = [value[0].contiguous().numpy() for value in inputs]
    return ncnn_run(
        str(folder / "model.ncnn.param"), str(folder / "model.ncnn.bin"), arrays, options
    )


RUNTIMES = {"onnxruntime": onnxruntime, "ncnn": ncnn}


def main() -> None:
    runtime, name, threads = sys.argv[1:]
    torch.set_num_threads(int(threads))
    torch.manual_seed(0)
    model = torchvision.models.get_model(name, weights=None).eval()
    answer(lambda: RUNTIMES[runtime](model, (torch.rand(1, 3, 224, 224),), int(threads)))


if __name__ == "__main__":
    main()
