"""Networks for microcontrollers: MLPerf Tiny's four and the digits in int8, and small fp32 ones.

The int8 networks follow ExecuTorch's Cortex-M path: quantized by `CortexMQuantizer`, lowered by
`CortexMPassManager` for a Cortex-M4. Expected outputs come from the lowered program in PyTorch,
whose operators use the integer arithmetic of CMSIS-NN. All weights are random except those of the
digits.
"""

from __future__ import annotations

import contextlib
import copy
import io
import sys
from dataclasses import dataclass
from typing import Any
from unittest.mock import MagicMock

import torch
import torch.nn.functional as F
from torch import nn

# The Cortex-M passes import modules shared with the Arm accelerators, which import this package;
# the package itself requires another version of NumPy.
sys.modules.setdefault("tosa_serializer", MagicMock())

from common import EXACT, F32, Fixture, Manifest, Method, Tolerance, seed
from digits import load, one_by_one, train
from executorch.backends.cortex_m.edge_compile_config import cortex_m_edge_compile_config
from executorch.backends.cortex_m.passes.cortex_m_pass_manager import CortexMPassManager
from executorch.backends.cortex_m.quantizer.quantizer import CortexMQuantizer
from executorch.backends.cortex_m.target_config import CortexM, CortexMTargetConfig
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from executorch.exir import ExecutorchBackendConfig, to_edge
from executorch.exir.passes import MemoryPlanningPass
from torch.export.exported_program import ExportedProgram, InputKind
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

with contextlib.redirect_stdout(io.StringIO()):
    import executorch.kernels.quantized  # noqa: F401  (the out variants)

FOLDER = "tinyml"
TARGET = CortexMTargetConfig(cpu=CortexM.M4)


def to_cortex_m(edge: Any, explicit_layout: bool = False) -> Any:
    """Replaces the operators of each method by those of `cortex_m`; drops the original weights."""
    for name, program in edge._edge_programs.items():
        passes = CortexMPassManager(
            program, target_config=TARGET, use_explicit_layout=explicit_layout
        )
        lowered = passes.transform()
        edge._edge_programs[name] = without_unused(lowered)
    return edge


def without_unused(program: ExportedProgram) -> ExportedProgram:
    """Drops unused buffers such as the original weights; ExecuTorch drops parameters only."""
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    kinds = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
    specs = program.graph_signature.input_specs
    for spec in [spec for spec in specs if spec.kind in kinds and not nodes[spec.arg.name].users]:
        specs.remove(spec)
        program.graph.erase_node(nodes[spec.arg.name])
        program._state_dict.pop(spec.target, None)
        program._constants.pop(spec.target, None)
    program.graph_module.recompile()
    return program


@dataclass
class Quantized(Method):
    """An int8 network, calibrated on its test inputs and additional ones."""

    calibration: tuple = ()
    explicit_layout: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        graph = torch.export.export(copy.deepcopy(self.module), self.cases[0]).module(
            check_guards=False
        )
        prepared = prepare_pt2e(graph, CortexMQuantizer(use_explicit_layout=self.explicit_layout))
        with torch.no_grad():
            for inputs in (*self.calibration, *self.cases):
                prepared(*inputs)
        self.module = convert_pt2e(prepared)

    def expected(self) -> list[Any]:
        edge = to_edge({"forward": self.export()}, compile_config=cortex_m_edge_compile_config())
        edge = to_cortex_m(edge, self.explicit_layout)
        module = edge.exported_program().module()
        with torch.no_grad():
            return [copy.deepcopy(module(*copy.deepcopy(inputs))) for inputs in self.cases]


def quantized(
    name: str,
    module: nn.Module,
    cases: list[tuple],
    calibration: list[tuple],
    explicit_layout: bool = False,
) -> Fixture:
    module = module.eval().requires_grad_(False)
    method = Quantized(
        module, cases, calibration=tuple(calibration), explicit_layout=explicit_layout
    )
    return Fixture(
        f"{FOLDER}/{name}",
        {"forward": method},
        EXACT,
        plain=True,
        to_backend=lambda edge: to_cortex_m(edge, explicit_layout),
        preserve=cortex_m_edge_compile_config().preserve_ops,
    )


def conv(
    inputs: int, outputs: int, size: Any = 3, stride: Any = 1, groups: int = 1, padding: Any = None
) -> list[nn.Module]:
    padding = size // 2 if padding is None else padding
    return [
        nn.Conv2d(inputs, outputs, size, stride, padding, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    ]


def separable(inputs: int, outputs: int, stride: int = 1) -> list[nn.Module]:
    return [*conv(inputs, inputs, 3, stride, groups=inputs), *conv(inputs, outputs, 1)]


def keyword_spotting() -> nn.Module:
    """DS-CNN: 49 frames of 10 coefficients, 12 words."""
    body = [layer for _ in range(4) for layer in separable(64, 64)]
    first = conv(1, 64, (10, 4), (2, 2), padding=(5, 1))
    return nn.Sequential(*first, *body, nn.AvgPool2d((25, 5)), nn.Flatten(), nn.Linear(64, 12))


def visual_wake_words() -> nn.Module:
    """MobileNetV1 with a quarter of the channels: 96 x 96 images, person or no person."""
    widths = [(8, 16, 1), (16, 32, 2), (32, 32, 1), (32, 64, 2), (64, 64, 1), (64, 128, 2)]
    widths += [(128, 128, 1)] * 5 + [(128, 256, 2), (256, 256, 1)]
    body = [layer for width in widths for layer in separable(*width)]
    return nn.Sequential(*conv(3, 8, 3, 2), *body, nn.AvgPool2d(3), nn.Flatten(), nn.Linear(256, 2))


class Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        second = conv(outputs, outputs)[:2]
        self.block = nn.Sequential(*conv(inputs, outputs, 3, stride), *second)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.block(x) + self.shortcut(x))


def image_classification() -> nn.Module:
    """ResNet-8: 32 x 32 images, 10 classes."""
    body = [Residual(16, 16, 1), Residual(16, 32, 2), Residual(32, 64, 2)]
    return nn.Sequential(*conv(3, 16), *body, nn.AvgPool2d(8), nn.Flatten(), nn.Linear(64, 10))


def anomaly_detection() -> nn.Module:
    """An autoencoder of five spectrogram frames."""
    widths = [640, 128, 128, 128, 128, 8, 128, 128, 128, 128]
    hidden = [[nn.Linear(a, b), nn.BatchNorm1d(b), nn.ReLU()] for a, b in zip(widths, widths[1:])]
    return nn.Sequential(*(layer for layers in hidden for layer in layers), nn.Linear(128, 640))


def scaled(module: nn.Module, inputs: list[tuple]) -> nn.Module:
    """Random weights that keep activations in range; batch norms use the inputs' statistics."""
    module.train()
    for layer in module.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            layer.momentum = None
            nn.init.uniform_(layer.weight, 0.5, 1.5)
            nn.init.normal_(layer.bias, std=0.2)
    with torch.no_grad():
        module(torch.cat([x for (x,) in inputs]))
    fuse_linear_norms(module)
    return module.eval()


def fuse_linear_norms(module: nn.Module) -> None:
    """Folds batch norms into linear layers; the quantizer folds them into convolutions only."""
    module.eval()
    names = list(module._modules)
    for name, following in zip(names, names[1:]):
        linear, norm = module._modules[name], module._modules[following]
        if isinstance(linear, nn.Linear) and isinstance(norm, nn.BatchNorm1d):
            module._modules[name] = nn.utils.fusion.fuse_linear_bn_eval(linear, norm)
            module._modules[following] = nn.Identity()


def samples(count: int, *sizes: int) -> list[tuple]:
    """Smooth random inputs from -1 to 1; images are channels-last."""
    found = []
    for _ in range(count):
        x = torch.tanh(torch.randn(1, *sizes))
        if len(sizes) == 3:
            x = (x + torch.nn.functional.avg_pool2d(torch.randn(1, *sizes), 3, 1, 1) * 2).clamp(
                -1, 1
            )
            x = x.to(memory_format=torch.channels_last)
        found.append((x,))
    return found


def random_network(name: str, module: nn.Module, sizes: tuple[int, ...], count: int = 2) -> Fixture:
    inputs = samples(8 + count, *sizes)
    module = scaled(module, inputs)
    cases, calibration = inputs[:count], inputs[count:]
    return quantized(name, module, cases, calibration)


def explicit_layout() -> Fixture:
    """Operators whose sizes are given in memory order.

    Average pooling uses 3 x 3 windows: for ties, PyTorch's operator rounds to even and CMSIS-NN
    away from zero, and nine elements never tie.
    """
    layers = [
        *conv(3, 8),
        *conv(8, 8, groups=8),
        nn.ConvTranspose2d(8, 6, 2, 2),
        nn.ReLU(),
        nn.AvgPool2d(3),
    ]
    network = nn.Sequential(*layers, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(24, 5))
    inputs = [(torch.randn(1, 3, 6, 6),) for _ in range(10)]
    return quantized(
        "explicit_layout", scaled(network, inputs), inputs[:2], inputs[2:], explicit_layout=True
    )


class Padded(nn.Module):
    """Image operators after paddings that exporters decompose to indexing.

    Indexing makes the layout contiguous.
    """

    def __init__(self) -> None:
        super().__init__()
        self.plain = nn.Conv2d(4, 6, 3)
        self.grouped = nn.Conv2d(6, 6, 3, 2, groups=2)
        self.depthwise = nn.Conv2d(6, 6, 3, groups=6)
        self.transposed = nn.ConvTranspose2d(6, 4, 2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.plain(F.pad(x, (1, 1, 2, 1), mode="reflect"))
        x = self.depthwise(F.pad(x, (1, 2, 1, 1), mode="replicate"))
        x = self.grouped(F.pad(x, (2, 1, 1, 2), mode="reflect"))
        x = self.transposed(F.pad(x, (1, 0, 0, 1), mode="replicate"))
        return F.max_pool2d(F.pad(x, (1, 1, 1, 1), mode="reflect"), 2)


def padded(channels_last: bool) -> Fixture:
    order = torch.channels_last if channels_last else torch.contiguous_format
    inputs = [(torch.randn(2, 4, 7, 6).to(memory_format=order),) for _ in range(6)]
    name = "padded_channels_last" if channels_last else "padded"
    return quantized(name, Padded(), inputs[:2], inputs[2:])


class Parts(nn.Module):
    """The building blocks of int8 networks."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, 2, 1)
        self.depthwise = nn.Conv2d(8, 8, 3, 1, 1, groups=8)
        self.grouped = nn.Conv2d(8, 8, 3, groups=2)
        self.pointwise = nn.Conv2d(16, 12, 1)
        self.linear = nn.Linear(12, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu6(self.first(x))
        x = x + F.relu(self.depthwise(x))
        y = F.max_pool2d(self.grouped(F.pad(x, (1, 1, 1, 1))), 2)
        x = F.avg_pool2d(x, 2) * y
        x = F.hardswish(self.pointwise(torch.cat((x, y), 1)))
        return self.linear(x.mean((2, 3)))


class Int8(Method):
    """An int8 network by PyTorch's quantizer for XNNPACK, not yet lowered to any backend."""

    def __init__(self, module: nn.Module, cases: list[tuple], calibration: list[tuple]) -> None:
        super().__init__(module, cases)
        graph = torch.export.export(copy.deepcopy(module), cases[0]).module(check_guards=False)
        config = get_symmetric_quantization_config(is_per_channel=True)
        prepared = prepare_pt2e(graph, XNNPACKQuantizer().set_global(config))
        with torch.no_grad():
            for inputs in (*calibration, *cases):
                prepared(*inputs)
        self.module = convert_pt2e(prepared)


def parts(backend: str) -> Fixture:
    """The same network with or without a backend; results may be off by two steps of 0.00266."""
    partitioner = {"portable": None, "xnnpack": XnnpackPartitioner()}[backend]
    inputs = [(torch.randn(1, 3, 16, 12),) for _ in range(8)]
    method = Int8(Parts().eval().requires_grad_(False), inputs[:3], inputs[3:])
    name = f"{FOLDER}/parts_{backend}"
    return Fixture(name, {"forward": method}, Tolerance(0.0, 0.0054), partitioner=partitioner)


def digits() -> Fixture:
    """The network of `digits/` in int8."""
    train_x, test_x, train_y, test_y = load()
    model = train(train_x, train_y)
    last = torch.channels_last
    cases, calibration = (
        [(x.to(memory_format=last),) for (x,) in one_by_one(xs)] for xs in (test_x, train_x)
    )
    fixture = quantized("digits", model.to(memory_format=last), cases, calibration)
    answers = [logits.argmax().item() for logits in fixture.methods["forward"].expected()]
    assert answers == test_y[: len(answers)].tolist(), (
        "the int8 network is wrong about what it is tested on"
    )
    return fixture


class LstmStep(nn.Module):
    """One frame of a signal per call; both states are buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(8, 16)
        self.head = nn.Linear(16, 4)
        self.register_buffer("hidden", torch.zeros(1, 16))
        self.register_buffer("kept", torch.zeros(1, 16))

    def forward(self, frame: torch.Tensor) -> torch.Tensor:
        hidden, kept = self.cell(frame, (self.hidden, self.kept))
        self.hidden.copy_(hidden)
        self.kept.copy_(kept)
        return self.head(hidden)


def lstm_step() -> Fixture:
    frames = [(torch.randn(1, 8),) for _ in range(6)]
    step = LstmStep().requires_grad_(False)
    return Fixture.forward(
        f"{FOLDER}/lstm_step", step, frames, tolerance=F32, sequence=True, plain=True
    )


def lstm_step_apart() -> Fixture:
    """The same with its states in a separate memory arena."""
    frames = [(torch.randn(1, 8),) for _ in range(6)]
    apart = ExecutorchBackendConfig(
        memory_planning_pass=MemoryPlanningPass(share_mutable_buffers=True)
    )
    step = LstmStep().requires_grad_(False)
    return Fixture.forward(
        f"{FOLDER}/lstm_step_apart", step, frames, tolerance=F32, sequence=True, config=apart
    )


def mlp() -> Fixture:
    """The network of ExecuTorch's tutorial for the Raspberry Pi Pico 2."""
    layers = [
        nn.Flatten(),
        nn.Linear(784, 32),
        nn.ReLU(),
        nn.Linear(32, 16),
        nn.ReLU(),
        nn.Linear(16, 10),
    ]
    pictures = [((torch.rand(1, 28, 28) > 0.8).float(),) for _ in range(2)]
    network = nn.Sequential(*layers).requires_grad_(False)
    return Fixture.forward(f"{FOLDER}/mlp", network, pictures, tolerance=F32, plain=True)


NETWORKS = {
    "digits": digits,
    "keyword_spotting": lambda: random_network("keyword_spotting", keyword_spotting(), (1, 49, 10)),
    "visual_wake_words": lambda: random_network(
        "visual_wake_words", visual_wake_words(), (3, 96, 96), 1
    ),
    "image_classification": lambda: random_network(
        "image_classification", image_classification(), (3, 32, 32), 1
    ),
    "anomaly_detection": lambda: random_network("anomaly_detection", anomaly_detection(), (640,)),
    "explicit_layout": explicit_layout,
    "padded": lambda: padded(False),
    "padded_channels_last": lambda: padded(True),
    "parts_portable": lambda: parts("portable"),
    "parts_xnnpack": lambda: parts("xnnpack"),
    "lstm_step": lstm_step,
    "lstm_step_apart": lstm_step_apart,
    "mlp": mlp,
}


def main() -> None:
    manifest = Manifest("tinyml")
    for make in NETWORKS.values():
        seed(0)
        manifest.write(make())
    manifest.save()


if __name__ == "__main__":
    main()
