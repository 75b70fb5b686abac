"""Measures a model of vulkan_models.py with another runtime: vulkan_peers.py RUNTIME MODEL PRECISION FILE, then one number
of iterations per line of input; each is answered by a line with that many times in milliseconds.

Inputs come from the host and outputs go back to it. Where the runtime is not here, the answer is a line that says why.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Callable


class NotHere(Exception):
    """Why a runtime cannot be measured."""


Run = Callable[[], object]


def executorch(model: str, precision: str, file: Path) -> Run:
    """ExecuTorch's own Vulkan delegate, on the same file."""
    try:
        from executorch.extension.pybindings import portable_lib
    except ImportError as error:
        raise NotHere(str(error)) from error
    if "VulkanBackend" not in portable_lib._get_registered_backend_names():
        raise NotHere("this build of the Python package executorch has no Vulkan backend")
    from vulkan_models import build

    bundle = portable_lib._load_bundled_program_from_buffer(file.read_bytes())
    program = portable_lib._load_for_executorch_from_bundled_program(bundle)
    inputs = build(model)[1]
    return lambda: program.run_method("forward", inputs)


def ncnn(model: str, precision: str, file: Path) -> Run:
    try:
        import ncnn as runtime
        import pnnx
    except ImportError as error:
        raise NotHere(str(error)) from error
    if runtime.get_gpu_count() == 0:
        raise NotHere("ncnn finds no Vulkan device")
    import torch
    from vulkan_models import build

    module, inputs = build(model)
    # The converter writes Python with the names of parts, which for `Sequential` are numbers unless they are within something.
    whole = torch.nn.ModuleDict({"model": module})
    whole.forward = module.forward
    folder = Path(tempfile.mkdtemp())
    # The converter keeps numbers in half precision unless it is told not to.
    pnnx.export(whole, str(folder / "model.pt"), inputs, fp16=precision == "fp16")
    net = runtime.Net()
    net.opt.use_vulkan_compute = True
    half = precision == "fp16"
    net.opt.use_fp16_packed = net.opt.use_fp16_storage = net.opt.use_fp16_arithmetic = half
    if net.load_param(str(folder / "model.ncnn.param")) or net.load_model(str(folder / "model.ncnn.bin")):
        raise NotHere("ncnn does not load what pnnx made of the model")
    # Its tensors have no batch, and its integers 32 bits.
    arrays = [(x[0].int() if x.dtype == torch.int64 else x[0]).contiguous().numpy() for x in inputs]

    def run() -> object:
        extractor = net.create_extractor()
        for index, array in enumerate(arrays):
            extractor.input(f"in{index}", runtime.Mat(array))
        status, output = extractor.extract("out0")
        if status:
            raise RuntimeError(f"ncnn: {status}")
        return output

    return run


def on_cuda(model: str, precision: str):
    """The module and its inputs on the device, and the inputs on the host."""
    try:
        import torch
    except ImportError as error:
        raise NotHere(str(error)) from error
    from vulkan_models import build

    if not torch.cuda.is_available():
        raise NotHere("PyTorch finds no CUDA device")
    module, inputs = build(model)
    dtype = torch.float16 if precision == "fp16" else torch.float32
    host = [x.to(dtype).pin_memory() if x.is_floating_point() else x.pin_memory() for x in inputs]
    return module.to("cuda", dtype), [x.cuda() for x in host], host


def cuda(model: str, precision: str, file: Path) -> Run:
    """PyTorch eager."""
    module, _, host = on_cuda(model, precision)
    import torch

    def run() -> object:
        with torch.inference_mode():
            return module(*[x.cuda(non_blocking=True) for x in host]).cpu()

    return run


def cuda_graph(model: str, precision: str, file: Path) -> Run:
    """PyTorch eager's kernels, captured once and replayed."""
    module, device, host = on_cuda(model, precision)
    import torch

    graph = torch.cuda.CUDAGraph()
    with torch.inference_mode():
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                module(*device)
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(graph):
            output = module(*device)

    def run() -> object:
        for there, here in zip(device, host):
            there.copy_(here, non_blocking=True)
        graph.replay()
        return output.cpu()

    return run


RUNTIMES = {"executorch": executorch, "ncnn": ncnn, "cuda": cuda, "cuda-graph": cuda_graph}


def main() -> None:
    runtime, model, precision, file = sys.argv[1:]
    try:
        run = RUNTIMES[runtime](model, precision, Path(file))
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
