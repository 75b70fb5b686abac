"""Programs that vary the file layout: delegates and their data, named data, alignment."""

from __future__ import annotations

from typing import Any

import torch
from executorch.exir import ExecutorchBackendConfig
from executorch.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.backend.test.backend_with_compiler_demo import BackendWithCompilerDemo
from executorch.exir.backend.test.backend_with_named_data_map import BackendWithNamedDataMap
from executorch.exir.dialects._ops import ops as exir_ops
from torch import nn

from common import Fixture, Manifest, seed

FOLDER = "formats"
DEMO = BackendWithCompilerDemo.__name__
NAMED = BackendWithNamedDataMap.__name__


class OneByOne(Partitioner):
    """Delegates every node with one of the targets to the backend, one delegate per node."""

    def __init__(self, backend: str, *targets: Any, specs: list[CompileSpec] | None = None) -> None:
        super().__init__()
        self.delegation = DelegationSpec(backend, specs or [])
        self.targets = targets

    def partition(self, exported_program: torch.export.ExportedProgram) -> PartitionResult:
        tags = {}
        for node in exported_program.graph.nodes:
            if node.op == "call_function" and node.target in self.targets:
                node.meta["delegation_tag"] = tag = f"part{len(tags)}"
                tags[tag] = self.delegation
        return PartitionResult(tagged_exported_program=exported_program, partition_tags=tags)


class SinBetween(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x) * 2 + 1


class SinTwice(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(torch.relu(torch.sin(x)) - 1)


class AddTwice(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x + x) * (x + 2.0)


class Weighted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x))


SIN = exir_ops.edge.aten.sin.default
ADD = exir_ops.edge.aten.add.Tensor


def fixtures() -> list[Fixture]:
    cases = [(torch.randn(2, 3),)]
    demo = OneByOne(DEMO, SIN)
    with_specs = OneByOne(
        DEMO, SIN, specs=[CompileSpec("max_value", bytes([4, 0, 0, 0])), CompileSpec("empty", b"")]
    )
    inline = ExecutorchBackendConfig(extract_delegate_segments=False)
    aligned = ExecutorchBackendConfig(segment_alignment=4096)
    note = "runs nowhere without a backend of this name: for tests of loading"

    def fixture(
        name: str,
        module: nn.Module,
        inputs: list,
        partitioner: Partitioner | None = None,
        **options: Any,
    ) -> Fixture:
        if partitioner is not None:
            options |= {"to_backend": lambda edge: edge.to_backend(partitioner), "note": note}
        return Fixture.forward(f"{FOLDER}/{name}", module, inputs, plain=True, **options)

    vectors = [(torch.randn(3, 6),)]
    return [
        fixture("delegate_segment", SinBetween(), cases, demo),
        fixture("delegate_inline", SinBetween(), cases, demo, config=inline),
        fixture("delegate_align_4096", SinBetween(), cases, demo, config=aligned),
        fixture("delegates_two", SinTwice(), cases, demo),
        fixture("delegates_two_inline", SinTwice(), cases, demo, config=inline),
        fixture("delegate_compile_specs", SinBetween(), cases, with_specs),
        fixture("delegate_named_data", AddTwice(), cases, OneByOne(NAMED, ADD)),
        fixture(
            "weights_align_16",
            Weighted(),
            vectors,
            config=ExecutorchBackendConfig(segment_alignment=16),
        ),
        fixture("weights_align_4096", Weighted(), vectors, config=aligned),
        fixture(
            "weights_tensor_align_64",
            Weighted(),
            vectors,
            config=ExecutorchBackendConfig(constant_tensor_alignment=64),
        ),
    ]


def main() -> None:
    seed(3)
    manifest = Manifest("format")
    for fixture in fixtures():
        try:
            manifest.write(fixture)
        except Exception as error:
            print(f"{fixture.path}: not exported: {type(error).__name__}: {str(error)[:400]}")
    manifest.save()


if __name__ == "__main__":
    main()
