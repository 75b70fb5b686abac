"""Exports the models of `cargo xtask bench`: export.py FOLDER NAME..."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torchvision
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower


def export(folder: Path, name: str) -> None:
    """Writes the model unlowered and lowered for XNNPACK.

    Weights are random with a fixed seed; times do not depend on them.
    """
    torch.manual_seed(0)
    model = torchvision.models.get_model(name, weights=None).eval()
    inputs = (torch.rand(1, 3, 224, 224),)
    program = torch.export.export(model, inputs)
    for suffix, partitioners in (("", []), (".xnnpack", [XnnpackPartitioner()])):
        lowered = to_edge_transform_and_lower(program, partitioner=partitioners).to_executorch()
        (folder / f"{name}{suffix}.pte").write_bytes(lowered.buffer)


def main() -> None:
    folder = Path(sys.argv[1])
    for name in sys.argv[2:]:
        export(folder, name)


if __name__ == "__main__":
    main()
