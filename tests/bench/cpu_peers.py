"""Measures a model of torchvision's with another runtime on the CPU: cpu_peers.py RUNTIME NAME THREADS, then one number of
iterations per line of input; each is answered by a line with that many times in milliseconds.

The weights are those of export.py. Where the runtime is not here, the answer is a line that says why.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Callable

import torch
import torchvision


class NotHere(Exception):
    """Why a runtime cannot be measured."""


def onnxruntime(model: torch.nn.Module, inputs: tuple[torch.Tensor, ...], threads: int) -> Callable[[], object]:
    try:
        import onnxruntime as runtime
        import onnxscript  # noqa: F401 (PyTorch's exporter needs it)
    except ImportError as error:
        raise NotHere(str(error)) from error
    file = Path(tempfile.mkdtemp()) / "model.onnx"
    torch.onnx.export(model, inputs, file, dynamo=True, verbose=False)
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = runtime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    given = {entry.name: value.numpy() for entry, value in zip(session.get_inputs(), inputs)}
    return lambda: session.run(None, given)


def ncnn(model: torch.nn.Module, inputs: tuple[torch.Tensor, ...], threads: int) -> Callable[[], object]:
    try:
        import ncnn as runtime
        import pnnx
    except ImportError as error:
        raise NotHere(str(error)) from error
    folder = Path(tempfile.mkdtemp())
    pnnx.export(model, str(folder / "model.pt"), inputs, fp16=False)
    net = runtime.Net()
    net.opt.num_threads = threads
    net.opt.use_fp16_packed = net.opt.use_fp16_storage = net.opt.use_fp16_arithmetic = False
    net.opt.use_bf16_storage = False
    if net.load_param(str(folder / "model.ncnn.param")) or net.load_model(str(folder / "model.ncnn.bin")):
        raise NotHere("ncnn does not load what pnnx made of the model")
    # Its tensors have no batch.
    arrays = [value[0].contiguous().numpy() for value in inputs]

    def run() -> object:
        extractor = net.create_extractor()
        for index, array in enumerate(arrays):
            extractor.input(f"in{index}", runtime.Mat(array))
        status, output = extractor.extract("out0")
        if status:
            raise RuntimeError(f"ncnn: {status}")
        return output

    return run


RUNTIMES = {"onnxruntime": onnxruntime, "ncnn": ncnn}


def main() -> None:
    runtime, name, threads = sys.argv[1:]
    torch.set_num_threads(int(threads))
    torch.manual_seed(0)
    model = torchvision.models.get_model(name, weights=None).eval()
    try:
        run = RUNTIMES[runtime](model, (torch.rand(1, 3, 224, 224),), int(threads))
    except NotHere as why:
        print(f"not here: {why}", flush=True)
        return
    run()
    print("ready", flush=True)
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            start = time.perf_counter()
            run()
            times.append((time.perf_counter() - start) * 1000)
        print(" ".join(f"{t:.6f}" for t in times), flush=True)


if __name__ == "__main__":
    main()
