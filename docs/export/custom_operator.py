"""Exports the program of the chapter "Writing a kernel": a linear layer and a custom operator.

    python docs/export/custom_operator.py

writes docs/models/custom_operator.bpte, with a test case whose expected outputs are PyTorch's.
"""

from pathlib import Path

import torch
from executorch.devtools import BundledProgram
from executorch.devtools.bundled_program.config import MethodTestCase, MethodTestSuite
from executorch.devtools.bundled_program.serialize import (
    serialize_from_bundled_program_to_flatbuffer,
)
from executorch.exir import to_edge

library = torch.library.Library("book", "DEF")
library.define("soft_clip(Tensor x, float limit) -> Tensor")
library.define("soft_clip.out(Tensor x, float limit, *, Tensor(a!) out) -> Tensor(a!)")


@torch.library.impl(library, "soft_clip", "CompositeExplicitAutograd")
def soft_clip(x: torch.Tensor, limit: float) -> torch.Tensor:
    """Clips smoothly to the limit; close to the identity near zero."""
    return limit * torch.tanh(x / limit)


@torch.library.impl(library, "soft_clip.out", "CompositeExplicitAutograd")
def soft_clip_out(x: torch.Tensor, limit: float, *, out: torch.Tensor) -> torch.Tensor:
    """Out variant, which exporters require."""
    return out.copy_(soft_clip(x, limit))


class Model(torch.nn.Module):
    """A linear layer, followed by the operator."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.book.soft_clip(self.linear(x), 0.5)


def main() -> None:
    torch.manual_seed(0)
    model, inputs = Model().eval(), (torch.linspace(-1, 1, 8).reshape(2, 4),)
    program = to_edge(torch.export.export(model, inputs)).to_executorch()
    case = MethodTestCase(inputs=inputs, expected_outputs=[model(*inputs).detach()])
    bundle = BundledProgram(program, [MethodTestSuite("forward", [case])])
    path = Path(__file__).parent.parent / "models/custom_operator.bpte"
    path.write_bytes(serialize_from_bundled_program_to_flatbuffer(bundle))


if __name__ == "__main__":
    main()
