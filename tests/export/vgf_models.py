"""Exports networks of ExecuTorch's `backends/arm/test` with `VgfPartitioner`, with the outputs of
the TOSA reference model: `<folder>/<network>_<fp32|int8>.bpte`. Weights are random.

    python vgf_models.py FOLDER [network ...] [--run COMMAND]
    python vgf_models.py FOLDER --speed COMMAND

With `--run`, `COMMAND verify` runs each network on the CPU and on a Vulkan device, and
`COMMAND inspect --plan` counts its regions; a table is printed. With `--speed COMMAND`, the script
instead writes MobileNetV2 in int8 at 224 by 224 three times, for VGF, XNNPACK and Vulkan, unless
the folder has them. `COMMAND bench` times them in turns: VGF and XNNPACK on one CPU thread, VGF and
Vulkan on a Vulkan device. A table has the lowest times and their ratios. Use a release build on an
idle machine.

Needs, beside what `vgf.py` needs: `torchvision`, `timm`, `transformers`.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import subprocess
from pathlib import Path
from typing import Callable, Iterator

import torch
from torch import nn
from vgf import network

Inputs = tuple[torch.Tensor, ...]


def settled(module: nn.Module) -> nn.Module:
    """Gives batch norms the statistics of random weights, so that values keep their range."""
    module.train()
    with torch.no_grad():
        for layer in module.modules():
            if isinstance(layer, nn.modules.batchnorm._BatchNorm):
                layer.momentum = None
                layer.reset_running_stats()
    return module


def image_network(make: Callable[[], nn.Module], size: int) -> tuple[nn.Module, list[Inputs]]:
    module = settled(make())
    cases: list[Inputs] = [(torch.randn(1, 3, size, size),) for _ in range(2)]
    with torch.no_grad():
        module(torch.randn(8, 3, size, size))
    return module.eval(), cases


def torchvision_network(name: str, size: int) -> tuple[nn.Module, list[Inputs]]:
    import torchvision

    return image_network(lambda: getattr(torchvision.models, name)(weights=None), size)


def deit() -> tuple[nn.Module, list[Inputs]]:
    import timm

    module = timm.models.deit.deit_tiny_patch16_224(pretrained=False)
    return module.eval(), [(torch.randn(1, 3, 224, 224),) for _ in range(2)]


class Wav2Letter(nn.Module):
    """The convolutions of Wav2Letter, as in torchaudio, on power spectra."""

    def __init__(self, features: int = 64, classes: int = 40) -> None:
        super().__init__()
        sizes = [(features, 250, 48, 2, 23), *[(250, 250, 7, 1, 3)] * 7]
        sizes += [(250, 2000, 32, 1, 16), (2000, 2000, 1, 1, 0), (2000, classes, 1, 1, 0)]
        layers: list[nn.Module] = []
        for inputs, outputs, kernel, stride, padding in sizes:
            layers += [nn.Conv1d(inputs, outputs, kernel, stride, padding), nn.ReLU()]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.log_softmax(self.layers(x), 1)


def wav2letter() -> tuple[nn.Module, list[Inputs]]:
    return Wav2Letter().eval(), [(torch.randn(1, 64, 80),) for _ in range(2)]


class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        from torch.nn.quantizable.modules import rnn

        self.lstm = rnn.LSTM(10, 20, 2)

    def forward(self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> Inputs:
        out, (hidden, cell) = self.lstm(x, (h, c))
        return out, hidden, cell


def lstm() -> tuple[nn.Module, list[Inputs]]:
    def case() -> Inputs:
        return torch.randn(5, 3, 10), torch.randn(2, 3, 20), torch.randn(2, 3, 20)

    return Lstm().eval(), [case() for _ in range(2)]


class Decoder(nn.Module):
    """A Llama decoder without KV cache: embeddings in, logits out."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import LlamaConfig, LlamaForCausalLM

        config = LlamaConfig(
            vocab_size=96,
            hidden_size=48,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            attn_implementation="eager",
            use_cache=False,
        )
        self.model = LlamaForCausalLM(config)

    def forward(self, embeddings: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.model(inputs_embeds=embeddings, attention_mask=mask).logits


def llama() -> tuple[nn.Module, list[Inputs]]:
    mask = torch.full((1, 1, 16, 16), -50.0).triu(1)
    return Decoder().eval(), [(torch.randn(1, 16, 48), mask) for _ in range(2)]


def layers(*modules: nn.Module) -> nn.Module:
    return nn.Sequential(*modules)


def keyword_spotting() -> tuple[nn.Module, list[Inputs]]:
    """DS-CNN."""

    def block(inputs: int, outputs: int, kernel: int, groups: int) -> list[nn.Module]:
        convolution = nn.Conv2d(inputs, outputs, kernel, 1, kernel // 2, groups=groups)
        return [convolution, nn.BatchNorm2d(outputs), nn.ReLU()]

    first = [nn.Conv2d(1, 64, (10, 4), (2, 2), (5, 1)), nn.BatchNorm2d(64), nn.ReLU()]
    blocks = [module for _ in range(4) for module in block(64, 64, 3, 64) + block(64, 64, 1, 1)]
    last = [nn.AvgPool2d((25, 5)), nn.Flatten(), nn.Linear(64, 12)]
    module = settled(layers(*first, *blocks, *last))
    with torch.no_grad():
        module(torch.randn(8, 1, 49, 10))
    return module.eval(), [(torch.randn(1, 1, 49, 10),) for _ in range(2)]


def autoencoder() -> tuple[nn.Module, list[Inputs]]:
    sizes = [640, 128, 128, 128, 128, 8, 128, 128, 128, 128, 640]
    modules: list[nn.Module] = []
    for inputs, outputs in zip(sizes, sizes[1:]):
        modules += [nn.Linear(inputs, outputs), nn.ReLU()]
    return layers(*modules[:-1]).eval(), [(torch.randn(1, 640),) for _ in range(2)]


NETWORKS: dict[str, Callable[[], tuple[nn.Module, list[Inputs]]]] = {
    "mobilenet_v2": lambda: torchvision_network("mobilenet_v2", 96),
    "mobilenet_v3_small": lambda: torchvision_network("mobilenet_v3_small", 96),
    "resnet18": lambda: torchvision_network("resnet18", 64),
    "deit_tiny": deit,
    "wav2letter": wav2letter,
    "lstm": lstm,
    "llama": llama,
    "ds_cnn": keyword_spotting,
    "autoencoder": autoencoder,
}


def exported(folder: Path, names: list[str]) -> Iterator[tuple[str, Path, float, float]]:
    """Exports networks; yields title, file and bounds on differences."""
    for name in names:
        for kind in ("fp32", "int8"):
            torch.manual_seed(0)
            module, cases = NETWORKS[name]()
            path, title = folder / f"{name}_{kind}.bpte", f"{name} {kind}"
            data, _, limits = network(title, module, cases, kind == "int8")
            path.write_bytes(data)
            yield title, path, limits.rtol, limits.atol


def verdict(command: str, path: Path, device: str, rtol: float, atol: float) -> str:
    limits = ["--rtol", str(rtol), "--atol", str(atol)]
    verify = [command, "verify", path, "--backend", device, *limits]
    done = subprocess.run(verify, capture_output=True, text=True)
    text = done.stdout + done.stderr
    largest = re.search(r"off by at most ([0-9.e+-]+)", text)
    if "cases, exact" in text:
        return "exact"
    if largest is None:
        return f"FAIL {text.strip()[-200:]}"
    # The bound of int8 networks is about two steps of the output's scale.
    steps = round(2.01 * float(largest.group(1)) / atol)
    return f"{steps} steps" if rtol == 0.0 else largest.group(1)


def parts(command: str, path: Path, device: str) -> str:
    """Number of calls on kernels, and number of regions."""
    plan = [command, "inspect", path, "--plan", "--backend", device]
    text = subprocess.run(plan, capture_output=True, text=True).stdout
    found = re.search(r"(\d+) in CPU kernels, (\d+) delegate", text)
    return f"{found.group(1)} + {found.group(2)}" if found else "?"


def timed(command: str, path: Path, options: list[str]) -> float:
    """Time of the fastest run in milliseconds."""
    bench = [command, "bench", path, "--random", "--json", "--compile-cache", "off", *options]
    done = subprocess.run(bench, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)["min_ms"]


def speed(folder: Path, command: str) -> None:
    """Times MobileNetV2 for VGF beside the other backends, on their processors."""
    if not all((folder / f"mobilenet_v2_{name}.pte").exists() for name in SPEED):
        write_for_speed(folder)
    cpu = ["--backend", "cpu", "--threads", "1", "--iterations", "50"]
    vulkan = ["--backend", "vulkan", "--iterations", "10"]
    print("| processor | VGF, ms | other, ms | ratio |\n|---|---|---|---|")
    for other, options in (("xnnpack", cpu), ("vulkan", vulkan)):
        best = {"vgf": math.inf, other: math.inf}
        for name in list(best) * 5:
            path = folder / f"mobilenet_v2_{name}.pte"
            best[name] = min(best[name], timed(command, path, options))
        own, theirs = best["vgf"], best[other]
        processor = "CPU, XNNPACK" if other == "xnnpack" else "Vulkan"
        print(f"| {processor} | {own:.2f} | {theirs:.2f} | {own / theirs:.2f} |", flush=True)


SPEED = ("vgf", "xnnpack", "vulkan")


def write_for_speed(folder: Path) -> None:
    """MobileNetV2 in int8 for VGF, XNNPACK and Vulkan."""
    from executorch.backends.arm.vgf import VgfCompileSpec, VgfPartitioner
    from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from executorch.exir import to_edge_transform_and_lower
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from vgf import int8_graph

    torch.manual_seed(0)
    module, cases = torchvision_network("mobilenet_v2", 224)
    kind = "TOSA-1.0+INT"
    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(True))
    prepared = prepare_pt2e(torch.export.export(module, cases[0]).module(), quantizer)
    for inputs in cases:
        prepared(*inputs)
    symmetric = convert_pt2e(prepared)
    for name, graph, partitioner in (
        ("vgf", int8_graph(module, cases, kind), VgfPartitioner(VgfCompileSpec(kind))),
        ("xnnpack", symmetric, XnnpackPartitioner()),
        ("vulkan", symmetric, VulkanPartitioner()),
    ):
        program = torch.export.export(graph, cases[0])
        edge = to_edge_transform_and_lower(program, partitioner=[partitioner])
        (folder / f"mobilenet_v2_{name}.pte").write_bytes(edge.to_executorch().buffer)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", help=", ".join(NETWORKS))
    parser.add_argument("--run", metavar="COMMAND")
    parser.add_argument("--speed", metavar="COMMAND")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    if given.speed:
        return speed(given.folder, given.speed)
    for title, path, *limits in exported(given.folder, given.names or list(NETWORKS)):
        cells = [title, f"{path.stat().st_size / 1e6:.1f} MB"]
        if given.run:
            for device in ("cpu", "vulkan"):
                cells += [verdict(given.run, path, device, *limits), parts(given.run, path, device)]
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
