"""Training programs: their gradients, and the parameters after steps of PyTorch's optimizers.

- `layers.pte` contains the layers whose gradients are separate operators.
- `layers.json` contains its training batches and the parameters after each optimizer's last step.
- `saved_NAME.safetensors` contains parameters and optimizer state after half of the steps.
- `digits.pte` is a network for handwritten digits with random weights.
- `digits.bin` contains 600 training and 400 test images: one byte for each of the 64 pixels, from 0
  to 16, then one for the digit.
"""

from __future__ import annotations

import copy
import json
import math
import struct
from typing import Any, Callable

import numpy as np
import torch
from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge
from sklearn.datasets import load_digits
from torch import nn
from torch.export import export
from torch.export.experimental import _export_forward_backward

from common import FIXTURES, seed

FOLDER = FIXTURES / "training"
STEPS = 6


class Loss(nn.Module):
    """Returns the loss and the predicted class."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = self.model(x)
        return nn.functional.cross_entropy(logits, labels), logits.detach().argmax(1)


def layers() -> nn.Module:
    return nn.Sequential(
        nn.Linear(5, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 6), nn.GELU(), nn.Linear(6, 3)
    )


def digits() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.GroupNorm(2, 8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * 2 * 2, 10),
    )


def write(
    name: str, model: nn.Module, inputs: tuple[torch.Tensor, ...], external: bool = False
) -> None:
    """Writes the program and, with `external`, a variant whose parameters are in a `.ptd` file.

    ExecuTorch cannot externalise parameters that are used in other shapes.
    """
    joint = _export_forward_backward(export(Loss(model), inputs, strict=False))
    edge = to_edge(joint, compile_config=EdgeCompileConfig(_check_ir_validity=False))
    if external:
        program = copy.deepcopy(edge).to_executorch(
            ExecutorchBackendConfig(external_mutable_weights=True)
        )
        (FOLDER / f"{name}_external.pte").write_bytes(program.buffer)
        program._tensor_data[f"{name}_external"] = program._tensor_data.pop(
            "_default_external_constant"
        )
        program.write_tensor_data_to_file(str(FOLDER))
    (FOLDER / f"{name}.pte").write_bytes(edge.to_executorch().buffer)


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "sgd_momentum": lambda p: torch.optim.SGD(
        p, lr=0.05, momentum=0.9, dampening=0.3, weight_decay=0.01
    ),
    "sgd_nesterov": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.02),
    "adam_amsgrad": lambda p: torch.optim.Adam(p, lr=0.02, betas=(0.5, 0.7), amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.02, weight_decay=0.1),
}


def short(tensor: torch.Tensor) -> list[float]:
    """The elements, rounded to the digits that fp32 holds."""
    return [float(f"{value:.8g}") for value in tensor.flatten().tolist()]


# Optimizers without state, with one state tensor, and with all of them.
SAVED = ("sgd", "sgd_momentum", "adam_amsgrad")


def save(name: str, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Writes what `TrainingModule::save_training` would: length, JSON header, elements."""
    tensors = {}
    for key, parameter in model.named_parameters():
        tensors[key] = parameter.detach()
        for what, value in optimizer.state[parameter].items():
            if value is not None:
                tensors[f"{key}/{what}"] = value.to(torch.int64) if what == "step" else value
    header, data = {}, b""
    # 8-byte elements come first, so that all tensors are aligned.
    for key, tensor in sorted(tensors.items(), key=lambda entry: (-entry[1].itemsize, entry[0])):
        end = len(data) + tensor.nbytes
        kind = {torch.int64: "I64", torch.float32: "F32"}[tensor.dtype]
        header[key] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [len(data), end]}
        data += tensor.contiguous().numpy().tobytes()
    text = json.dumps(header, separators=(",", ":")).encode()
    text = text.ljust(8 * math.ceil(len(text) / 8))
    (FOLDER / f"saved_{name}.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


def trained(start: nn.Module, batches: list[tuple[torch.Tensor, torch.Tensor]]) -> dict[str, Any]:
    found = {}
    for name, make in OPTIMIZERS.items():
        model = Loss(copy.deepcopy(start))
        optimizer, losses = make(model.parameters()), []
        for x, labels in batches:
            optimizer.zero_grad()
            loss, _ = model(x, labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if name in SAVED and len(losses) == STEPS // 2:
                save(name, model, optimizer)
        parameters = {key: short(value) for key, value in model.named_parameters()}
        found[name] = {"losses": losses, "parameters": parameters}
    return found


def main() -> None:
    seed(7)
    FOLDER.mkdir(exist_ok=True)
    model = layers()
    batches = [(torch.randn(4, 5), torch.randint(0, 3, (4,))) for _ in range(STEPS)]
    write("layers", model, batches[0], external=True)
    page = {
        "batches": [{"x": short(x), "labels": labels.tolist()} for x, labels in batches],
        "optimizers": trained(model, batches),
    }
    (FOLDER / "layers.json").write_text(json.dumps(page) + "\n")

    seed(8)
    write("digits", digits(), (torch.rand(20, 1, 8, 8), torch.randint(0, 10, (20,))))
    images = load_digits()
    rows = np.concatenate([images.images.reshape(-1, 64), images.target[:, None]], 1).astype(
        np.uint8
    )
    rows = rows[np.random.default_rng(0).permutation(len(rows))[:1000]]
    (FOLDER / "digits.bin").write_bytes(rows.tobytes())


if __name__ == "__main__":
    main()
