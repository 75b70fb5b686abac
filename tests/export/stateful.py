"""Models that carry state from call to call, written as real models write it."""

from __future__ import annotations

import torch
from executorch.exir import ExecutorchBackendConfig
from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass
from torch import nn


class KeyValue(nn.Module):
    """Attention with a KV cache: each call writes the entries of its position."""

    def __init__(self, size: int = 8, context: int = 6) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(size, size) for _ in range(3))
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(1, context, size))
        self.register_buffer("places", torch.arange(context), persistent=False)

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        self.keys[:, position] = self.k(x)
        self.values[:, position] = self.v(x)
        scores = self.q(x) @ self.keys.transpose(1, 2) * 0.35
        scores = scores.masked_fill(self.places > position, float("-inf"))
        return scores.softmax(-1) @ self.values


class Rows(nn.Module):
    """Overwrites part of a buffer and reads all of it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", torch.ones(2, 5, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.kept[:, 1:3] = x + self.kept[:, 3:5]
        return self.kept * 2.0


class Recurrent(nn.Module):
    """A recurrent cell that keeps its hidden state."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(3, 4)
        self.register_buffer("hidden", torch.zeros(2, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.hidden.copy_(self.cell(x, self.hidden))
        return self.hidden * 1.0


class Line(nn.Module):
    """Delay line: each buffer receives the previous one's old value."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("first", torch.zeros(2, 3))
        self.register_buffer("second", torch.ones(2, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 2.0 + self.second
        # Without the copy, ExecuTorch 1.5 exports a program that never updates the second buffer.
        first = self.first.clone()
        self.first.copy_(x)
        self.second.copy_(first)
        return y


class Swap(nn.Module):
    """Swaps two buffers and uses their old values."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("a", torch.zeros(2, 3))
        self.register_buffer("b", torch.ones(2, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = self.a.clone(), self.b.clone()
        self.a.copy_(b)
        self.b.copy_(a)
        return x + a * 2.0 + b * 3.0


class Given(nn.Module):
    """Returns a buffer as an output."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(2, 3))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.total.add_(x)
        return self.total, self.total * 2.0


class Noted(nn.Module):
    """Writes a buffer that only the caller reads, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("last", torch.zeros(2, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.last.copy_(x * 2.0)
        return x + 1.0


class Twice(nn.Module):
    """Reads a buffer before and after an operator that only the CPU supports."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", torch.ones(2, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * self.kept + 1.0
        largest = torch.sort(y, dim=1).values * 0.5
        self.kept.copy_(self.kept * 0.25 + largest)
        return largest - x


def config(module: nn.Module) -> ExecutorchBackendConfig:
    """Export config that keeps the buffers' names and initial values."""
    buffers = [name for name, _ in module.named_buffers() if name != "places"]
    return ExecutorchBackendConfig(
        passes=[InitializedMutableBufferPass(buffers)], emit_mutable_buffer_names=True
    )


def steps(*shape: int, count: int = 4) -> list[tuple[torch.Tensor, ...]]:
    return [(torch.randn(*shape),) for _ in range(count)]


def positions(*indices: int) -> list[tuple[torch.Tensor, ...]]:
    return [(torch.randn(1, 1, 8), torch.tensor([index])) for index in indices]


def models() -> dict[str, tuple[nn.Module, list[tuple[torch.Tensor, ...]]]]:
    """Each model with the inputs of several consecutive calls."""
    cases = {
        "key_value": (KeyValue(), positions(0, 1, 2, 1, 5)),
        "rows": (Rows(), steps(2, 2, 4)),
        "recurrent": (Recurrent(), steps(2, 3)),
        "line": (Line(), steps(2, 3)),
        "swap": (Swap(), steps(2, 3, count=3)),
        "given": (Given(), steps(2, 3)),
        "noted": (Noted(), steps(2, 3)),
        "twice": (Twice(), steps(2, 3)),
    }
    for module, _ in cases.values():
        # Exporters copy results into buffers, which fails for tensors that require gradients.
        module.requires_grad_(False)
    return cases
