"""Measures a model of vulkan_models.py with another runtime.

    vulkan_peers.py RUNTIME MODEL PRECISION FILE

The protocol is that of peer.py. Inputs come from the host and outputs return to it.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from peer import NotHere, Run, answer, ncnn_run, needed


def executorch(model: str, precision: str, file: Path) -> Run:
    """ExecuTorch's own Vulkan delegate, on the same file."""
    portable_lib = needed("executorch.extension.pybindings.portable_lib")
    if "VulkanBackend" not in portable_lib._get_registered_backend_names():
        raise NotHere("this build of the Python package executorch has no Vulkan backend")
    from vulkan_models import build

    bundle = portable_lib._load_bundled_program_from_buffer(file.read_bytes())
    program = portable_lib._load_for_executorch_from_bundled_program(bundle)
    inputs = build(model)[1]
    return lambda: program.run_method("forward", inputs)


def ncnn(model: str, precision: str, file: Path) -> Run:
    pnnx = needed("pnnx")
    if needed("ncnn").get_gpu_count() == 0:
        raise NotHere("ncnn finds no Vulkan device")
    import torch
    from vulkan_models import build

    module, inputs = build(model)
    # The converter generates Python with module names; a bare `Sequential` has numbers as names.
    whole = torch.nn.ModuleDict({"model": module})
    whole.forward = module.forward
    folder = Path(tempfile.mkdtemp())
    # By default, the converter stores weights in half precision.
    half = precision == "fp16"
    pnnx.export(whole, str(folder / "model.pt"), inputs, fp16=half)
    halves = ["use_fp16_packed", "use_fp16_storage", "use_fp16_arithmetic"]
    options = {"use_vulkan_compute": True, **dict.fromkeys(halves, half)}
    # Integers have 32 bits there.
    arrays = [(x[0].int() if x.dtype == torch.int64 else x[0]).contiguous().numpy() for x in inputs]
    return ncnn_run(
        str(folder / "model.ncnn.param"), str(folder / "model.ncnn.bin"), arrays, options
    )


def on_cuda(model: str, precision: str):
    """The module and its inputs on the device, and the inputs on the host."""
    torch = needed("torch")
    from vulkan_models import build

    if not torch.cuda.is_available():
        raise NotHere("PyTorch finds no CUDA device")
    module, inputs = build(model)
    dtype = torch.float16 if precision == "fp16" else torch.float32
    host = [x.to(dtype).pin_memory() if x.is_floating_point() else x.pin_memory() for x in inputs]
    return module.to("cuda", dtype), [x.cuda() for x in host], host


def cuda(model: str, precision: str, file: Path) -> Run:
    """PyTorch in eager mode."""
    module, _, host = on_cuda(model, precision)
    import torch

    def run() -> object:
        with torch.inference_mode():
            return module(*[x.cuda(non_blocking=True) for x in host]).cpu()

    return run


def cuda_graph(model: str, precision: str, file: Path) -> Run:
    """PyTorch's eager kernels, captured as a CUDA graph."""
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
    answer(lambda: RUNTIMES[runtime](model, precision, Path(file)))


if __name__ == "__main__":
    main()
