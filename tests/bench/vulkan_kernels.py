"""The operators of `cargo xtask bench kernels`, each in a shape of a real network.

    vulkan_kernels.py export FOLDER [NAME...]
    vulkan_kernels.py list
    vulkan_kernels.py time [NAME...]

`export` writes NAME.pte, lowered with `VulkanPartitioner`. `list` writes a line per operator: NAME,
family, shape and precision, separated by tabs. `time` writes NAME and PyTorch's time on CUDA in
microseconds.

Values are random with a fixed seed and repeat in long tensors, so that files compress well for
transfers.
"""

from __future__ import annotations

import math
import statistics
import sys
from pathlib import Path
from typing import Callable, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

Made = torch.Tensor | tuple[torch.Tensor, ...]

REPEATED = 16384
"""Number of distinct values in a weight; longer weights repeat them."""

GROUP = 64
"""Number of int4 weights that share a scale; int8 weights share one per row."""


class Calls(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Made]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Made:
        return self.function(*inputs)


class States(nn.Module):
    """All states of a recurrent layer, one per step."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)[0]


class Residual(nn.Module):
    """Residual addition and norm, both of which have later users."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, stream: torch.Tensor, x: torch.Tensor) -> Made:
        stream = stream + x
        return stream, self.norm(stream)


class Repeated(nn.Module):
    """Expands small inputs on the device, and returns a small part of the module's output.

    Inputs are thus in caches as after a preceding operator. Large copies would make the device wait
    for the host and lower its clock.
    """

    def __init__(self, module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        super().__init__()
        self.module = module
        self.shapes = [x.shape for x in inputs]

    def forward(self, *inputs: torch.Tensor) -> Made:
        pairs = zip(inputs, self.shapes)
        whole = [
            x.repeat([whole // few for whole, few in zip(shape, x.shape)]) for x, shape in pairs
        ]
        made = self.module(*whole)
        return tuple(x[..., :16] for x in made) if isinstance(made, tuple) else made[..., :16]


class Kernel(NamedTuple):
    family: str
    shape: str
    build: Callable[[], tuple[nn.Module, tuple[torch.Tensor, ...]]]
    precisions: tuple[str, ...] = ("fp32", "fp16")
    bits: int | None = None
    """Bits of quantized weights."""


def repeated_part(x: torch.Tensor) -> torch.Tensor:
    """The values from which `Repeated` builds an input: at most half of it."""
    most = min(REPEATED, (x.numel() + 1) // 2)
    sizes = list(x.shape)
    for dim, size in enumerate(sizes):
        wanted = size * most // math.prod(sizes)
        if wanted < size:
            sizes[dim] = next(few for few in range(max(wanted, 1), 0, -1) if size % few == 0)
    return x[tuple(slice(size) for size in sizes)].clone()


def random(*sizes: int) -> torch.Tensor:
    return torch.rand(*sizes) - 0.5


def function(of: Callable[..., torch.Tensor], *shapes: tuple[int, ...]):
    return lambda: (Calls(of), tuple(random(*shape) for shape in shapes))


def layer(make: Callable[[], nn.Module], *shapes: tuple[int, ...]):
    return lambda: (make(), tuple(random(*shape) for shape in shapes))


def attention(
    heads: int, rows: int, keys: int, depth: int, causal: bool = False, key_heads: int | None = None
):
    shared = (1, key_heads or heads, keys, depth)

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(
            q, k, v, is_causal=causal, enable_gqa=key_heads is not None
        )

    return function(attend, (1, heads, rows, depth), shared, shared)


def recurrent(make: Callable[[], nn.Module], *shape: int):
    return layer(lambda: States(make()), shape)


def convolution(
    channels: int, filters: int, window: int, side: int, stride: int = 1, groups: int = 1
):
    make = lambda: nn.Conv2d(channels, filters, window, stride, window // 2, groups=groups)  # noqa: E731
    return layer(make, (1, channels, side, side))


def linear(rows: int, inputs: int, outputs: int):
    return layer(lambda: nn.Linear(inputs, outputs, bias=False), (rows, inputs))


HALF, QUANTIZED = ("fp16",), ("fp32", "fp16", "int8")

KERNELS: dict[str, Kernel] = {
    "matmul_4096": Kernel(
        "GEMM",
        "4096×4096 · 4096×4096",
        function(torch.mm, (4096, 4096), (4096, 4096)),
        ("fp32", "fp16", "bf16"),
    ),
    "linear_vit": Kernel("GEMM", "197×768 · 768×3072", linear(197, 768, 3072)),
    "linear_prompt": Kernel(
        "GEMM", "512×2048 · 2048×8192", linear(512, 2048, 8192), ("fp16", "bf16", "int8")
    ),
    "linear_token": Kernel("GEMV", "1×2048 · 2048×8192", linear(1, 2048, 8192)),
    "q4_token": Kernel("int4 GEMV", "1×2048 · 2048×8192", linear(1, 2048, 8192), HALF, 4),
    "q4_head": Kernel("int4 GEMV", "1×2048 · 2048×128256", linear(1, 2048, 128256), HALF, 4),
    "q4_prompt": Kernel("int4 GEMM", "512×2048 · 2048×8192", linear(512, 2048, 8192), HALF, 4),
    "q8_token": Kernel("int8 GEMV", "1×2048 · 2048×8192", linear(1, 2048, 8192), bits=8),
    "conv_stem": Kernel(
        "convolution", "7×7/2, 3→64, 224²", convolution(3, 64, 7, 224, 2), QUANTIZED
    ),
    "conv_wide": Kernel("convolution", "3×3, 64→64, 56²", convolution(64, 64, 3, 56), QUANTIZED),
    "conv_deep": Kernel("convolution", "3×3, 512→512, 7²", convolution(512, 512, 3, 7), QUANTIZED),
    "conv_pointwise": Kernel(
        "convolution", "1×1, 64→256, 56²", convolution(64, 256, 1, 56), QUANTIZED
    ),
    "conv_pointwise_strided": Kernel(
        "convolution", "1×1/2, 256→512, 56²", convolution(256, 512, 1, 56, 2), QUANTIZED
    ),
    "conv_depthwise": Kernel(
        "depthwise", "3×3, 144, 56²", convolution(144, 144, 3, 56, 1, 144), QUANTIZED
    ),
    "conv_depthwise_deep": Kernel(
        "depthwise", "3×3, 960, 7²", convolution(960, 960, 3, 7, 1, 960), QUANTIZED
    ),
    "conv_transposed": Kernel(
        "transposed",
        "4×4/2, 256→128, 16²",
        layer(lambda: nn.ConvTranspose2d(256, 128, 4, 2, 1), (1, 256, 16, 16)),
    ),
    "attention_vit": Kernel("attention", "12 heads, 197×197×64", attention(12, 197, 197, 64)),
    "attention_prompt": Kernel(
        "attention", "32 heads, 1024×1024×64, causal", attention(32, 1024, 1024, 64, True), HALF
    ),
    "attention_token": Kernel("attention", "32 heads, 1×2048×64", attention(32, 1, 2048, 64)),
    "grouped_prompt": Kernel(
        "attention", "32 heads by 8, 512×512×128, causal", attention(32, 512, 512, 128, True, 8)
    ),
    "grouped_token": Kernel(
        "attention", "32 heads by 8, 1×2048×128", attention(32, 1, 2048, 128, key_heads=8)
    ),
    "wide_prompt": Kernel(
        "attention", "8 heads by 4, 512×512×256, causal", attention(8, 512, 512, 256, True, 4)
    ),
    "wide_token": Kernel(
        "attention", "8 heads by 4, 1×2048×256", attention(8, 1, 2048, 256, key_heads=4)
    ),
    "one_key_prompt": Kernel(
        "attention", "8 heads by 1, 512×512×256, causal", attention(8, 512, 512, 256, True, 1)
    ),
    "one_key_token": Kernel(
        "attention", "8 heads by 1, 1×2048×256", attention(8, 1, 2048, 256, key_heads=1)
    ),
    "softmax": Kernel(
        "rows", "softmax, 4096×1024", function(lambda x: torch.softmax(x, -1), (4096, 1024))
    ),
    "layer_norm": Kernel(
        "rows", "layer norm, 4096×768", layer(lambda: nn.LayerNorm(768), (4096, 768))
    ),
    "residual_norm": Kernel(
        "rows",
        "sum and layer norm, 4096×768",
        layer(lambda: Residual(nn.LayerNorm(768)), (4096, 768), (4096, 768)),
    ),
    "sum_rows": Kernel(
        "rows", "mean, 1280×7²", function(lambda x: x.mean((2, 3)), (1, 1280, 7, 7))
    ),
    "lstm": Kernel(
        "recurrent",
        "LSTM, 24 steps, 128→128",
        recurrent(lambda: nn.LSTM(128, 128, batch_first=True), 1, 24, 128),
    ),
    "gru": Kernel(
        "recurrent",
        "GRU, 50 steps, 2×256",
        recurrent(lambda: nn.GRU(256, 256, 2, batch_first=True), 1, 50, 256),
    ),
    "add": Kernel("element-wise", "sum, 2²⁴", function(torch.add, (1 << 24,), (1 << 24,))),
    "gelu": Kernel("element-wise", "GELU, 2²⁴", function(F.gelu, (1 << 24,))),
}


def names() -> list[str]:
    return [
        f"{name}_{precision}" for name, kernel in KERNELS.items() for precision in kernel.precisions
    ]


def of(name: str) -> tuple[Kernel, str]:
    kernel, _, precision = name.rpartition("_")
    return KERNELS[kernel], precision


def build(name: str) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    kernel, precision = of(name)
    module, inputs = kernel.build()
    module.requires_grad_(False)
    for weight in module.parameters():
        flat = weight.view(-1)
        flat.copy_(flat[:REPEATED].repeat(flat.numel() // REPEATED + 1)[: flat.numel()])
    if precision == "fp16":
        # Quantization requires fp32 modules.
        module = module if kernel.bits else module.half()
        inputs = inputs if kernel.bits else tuple(x.half() for x in inputs)
    elif precision == "bf16":
        module, inputs = module.bfloat16(), tuple(x.bfloat16() for x in inputs)
    return module.eval(), inputs


def quantized(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> nn.Module:
    """Quantizes inputs and outputs per tensor and weights per channel, to int8."""
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    quantizer = XNNPACKQuantizer().set_global(
        get_symmetric_quantization_config(is_per_channel=True)
    )
    prepared = prepare_pt2e(torch.export.export(module, inputs).module(), quantizer)
    prepared(*inputs)
    return convert_pt2e(prepared)


def export(folder: Path, name: str) -> None:
    from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner
    from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower

    kernel, precision = of(name)
    module, inputs = build(name)
    module = Repeated(module, inputs).eval()
    inputs = tuple(map(repeated_part, inputs))
    # The partitioner rejects bfloat16, so such programs reach the GPU without a delegate.
    partitioners = [] if precision == "bf16" else [VulkanPartitioner({})]
    if precision == "int8":
        module = quantized(module, inputs)
    if kernel.bits:
        from torchao.quantization import IntxWeightOnlyConfig, quantize_
        from torchao.quantization.granularity import PerAxis, PerGroup
        from torchao.utils import unwrap_tensor_subclass

        weights, granularity = (
            (torch.int4, PerGroup(GROUP)) if kernel.bits == 4 else (torch.int8, PerAxis(0))
        )
        quantize_(module, IntxWeightOnlyConfig(weight_dtype=weights, granularity=granularity))
        module = unwrap_tensor_subclass(module) or module
        partitioners = [VulkanPartitioner({"force_fp16": precision == "fp16"})]
    program = to_edge_transform_and_lower(
        torch.export.export(module, inputs),
        partitioner=partitioners,
        compile_config=EdgeCompileConfig(_check_ir_validity=False),
    ).to_executorch()
    (folder / f"{name}.pte").write_bytes(program.buffer)


def time(name: str) -> float:
    """Microseconds of a call on the device: many calls, captured once and replayed.

    Quantized kernels are compared with the fp16 ones.
    """
    module, inputs = build(name)
    half = name.endswith(("_fp16", "_int8"))
    module = (module.half() if half else module).cuda()
    inputs = tuple((x.half() if half else x).cuda() for x in inputs)
    calls = 50
    graph = torch.cuda.CUDAGraph()
    with torch.inference_mode():
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                module(*inputs)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            for _ in range(calls):
                module(*inputs)
    times = []
    for _ in range(12):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / calls)
    return statistics.median(times[2:])


def main() -> None:
    command, *arguments = sys.argv[1:]
    if command == "list":
        for name in names():
            kernel, precision = of(name)
            print(name, kernel.family, kernel.shape, precision, sep="\t")
    elif command == "export":
        folder, *chosen = arguments
        for name in chosen or names():
            export(Path(folder), name)
    elif command == "time":
        if not torch.cuda.is_available():
            print("not here: PyTorch finds no CUDA device")
            return
        for name in arguments or names():
            print(name, time(name), sep="\t", flush=True)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
