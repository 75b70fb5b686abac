"""Shared by all export scripts: lowers a PyTorch module to a fixture and its manifest entry.

A fixture is one program, written as a bundled program (`.bpte`: the program, inputs and the outputs
that PyTorch computes for them in eager mode), as a plain program (`.pte`), or both. `manifest.json`
lists every fixture with the metadata that tests need, so that tests need not walk the folders.
"""

from __future__ import annotations

import copy
import json
import logging
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Iterable, Sequence

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

import torch
from executorch.devtools.bundled_program import schema as bundle
from executorch.devtools.bundled_program.serialize import (
    serialize_from_bundled_program_to_flatbuffer,
)
from executorch.devtools.bundled_program.version import BUNDLED_PROGRAM_SCHEMA_VERSION
from executorch.exir import (
    EdgeCompileConfig,
    ExecutorchBackendConfig,
    ExecutorchProgramManager,
    schema,
    to_edge,
    to_edge_transform_and_lower,
)
from executorch.exir.scalar_type import ScalarType
from executorch.exir.tensor import enum_to_scalar_map, scalar_type_enum, scalar_type_table
from flatbuffers.table import Table
from torch.utils._pytree import tree_flatten, tree_map

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"

torch.set_num_threads(1)
torch.use_deterministic_algorithms(True, warn_only=True)

Inputs = tuple[Any, ...]

# The schema has `uint64`; the exporter's table lacks it.
scalar_type_table.setdefault(torch.uint64, ScalarType.UINT64)
enum_to_scalar_map.setdefault(ScalarType.UINT64, torch.uint64)


@dataclass(frozen=True)
class Tolerance:
    """Maximum error of an output: |got - expected| <= atol + rtol * |expected|."""

    rtol: float
    atol: float


EXACT = Tolerance(0.0, 0.0)
F64 = Tolerance(1e-9, 1e-11)
F32 = Tolerance(1e-4, 1e-5)
F16 = Tolerance(2e-3, 2e-3)
BF16 = Tolerance(1.6e-2, 1e-2)


def tolerance_of(dtype: torch.dtype) -> Tolerance:
    """Tolerance of a single operator whose outputs have this dtype."""
    return {
        torch.float64: F64,
        torch.float32: F32,
        torch.float16: F16,
        torch.bfloat16: BF16,
    }.get(dtype, EXACT)


@dataclass
class Method:
    """One method of a program: its `forward` module and the inputs of its test cases."""

    module: torch.nn.Module
    cases: Sequence[Inputs]
    dynamic_shapes: Any = None
    strict: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.module, torch.fx.GraphModule):  # torch.export's reject `eval`
            self.module.eval()

    def export(self) -> torch.export.ExportedProgram:
        module = copy.deepcopy(self.module)
        example = _apart(self.cases[0])
        return torch.export.export(
            module, example, dynamic_shapes=self.dynamic_shapes, strict=self.strict
        )

    def expected(self) -> list[Any]:
        """Outputs of PyTorch in eager mode.

        All cases run in order on one module, so that its state carries over from case to case.
        """
        module = copy.deepcopy(self.module)
        with torch.no_grad():
            return [copy.deepcopy(module(*_apart(inputs))) for inputs in self.cases]


def _apart(inputs: Inputs) -> Inputs:
    """Copies inputs without aliasing: torch.export merges aliased inputs."""
    return tree_map(lambda value: copy.deepcopy(value), inputs)


def seed(value: int = 0) -> None:
    torch.manual_seed(value)


def lower(
    methods: dict[str, Method],
    *,
    config: ExecutorchBackendConfig | None = None,
    to_backend: Callable[[Any], Any] | None = None,
    partitioner: Any = None,
    preserve: Sequence[Any] = (),
    dim_order: bool = True,
) -> ExecutorchProgramManager:
    """Exports all methods into one program.

    - `to_backend` can delegate parts of the edge program to backends.
    - A `partitioner` claims operators before they are decomposed.
    - `preserve` lists operators to keep undecomposed.
    - `dim_order=False` keeps ATen's copy operators, as exporters before ExecuTorch 0.6 did.
    """
    exported = {name: method.export() for name, method in methods.items()}
    checks = EdgeCompileConfig(
        _check_ir_validity=False, _skip_dim_order=not dim_order, preserve_ops=list(preserve)
    )
    if partitioner is None:
        edge = to_edge(exported, compile_config=checks)
    else:
        edge = to_edge_transform_and_lower(
            exported, partitioner=[partitioner], compile_config=checks
        )
    if to_backend is not None:
        edge = to_backend(edge)
    return edge.to_executorch(config or ExecutorchBackendConfig())


def _plan(program: schema.Program, name: str) -> schema.ExecutionPlan:
    return next(plan for plan in program.execution_plan if plan.name == name)


def _encode_tensor(tensor: torch.Tensor, declared: Any) -> bundle.Tensor:
    """Encodes the tensor in the dim order that the program declares for this value."""
    if isinstance(declared, schema.Tensor) and len(declared.dim_order) == tensor.dim():
        dim_order = [int(d) for d in declared.dim_order]
    else:
        dim_order = list(range(tensor.dim()))
    laid_out = tensor.detach().permute(dim_order).contiguous().reshape(-1)
    return bundle.Tensor(
        scalar_type=scalar_type_enum(tensor.dtype),
        sizes=list(tensor.shape),
        data=laid_out.view(torch.uint8).numpy().tobytes() if laid_out.numel() else b"",
        dim_order=bytes(dim_order),
    )


def _encode(value: Any, declared: Any) -> bundle.Value:
    """Encodes a value; `None` becomes a value with an empty union."""
    if isinstance(value, torch.Tensor):
        return bundle.Value(val=_encode_tensor(value, declared))
    if isinstance(value, bool):
        return bundle.Value(val=bundle.Bool(bool_val=value))
    if isinstance(value, int):
        return bundle.Value(val=bundle.Int(int_val=value))
    if isinstance(value, float):
        return bundle.Value(val=bundle.Double(double_val=value))
    if value is None:
        return bundle.Value(val=None)
    raise TypeError(f"a bundled program cannot hold {type(value)}")


def flatten(values: Any) -> list[Any]:
    return tree_flatten(values)[0]


class _Bundle:
    """Replaces ExecuTorch's `BundledProgram`, which rejects outputs that are not tensors."""

    def __init__(self, program: ExecutorchProgramManager, methods: dict[str, Method]):
        self.program = program
        self.methods = methods

    def serialize_to_schema(self) -> bundle.BundledProgram:
        suites = [self._suite(name, method) for name, method in sorted(self.methods.items())]
        return bundle.BundledProgram(
            version=BUNDLED_PROGRAM_SCHEMA_VERSION,
            method_test_suites=suites,
            program=self.program.buffer,
        )

    def _suite(self, name: str, method: Method) -> bundle.BundledMethodTestSuite:
        plan = _plan(self.program.executorch_program, name)
        cases = [
            bundle.BundledMethodTestCase(
                inputs=self._values(plan, plan.inputs, inputs),
                expected_outputs=self._values(plan, plan.outputs, outputs),
            )
            for inputs, outputs in zip(method.cases, method.expected())
        ]
        return bundle.BundledMethodTestSuite(method_name=name, test_cases=cases)

    @staticmethod
    def _values(plan: schema.ExecutionPlan, indices: list[int], values: Any) -> list[bundle.Value]:
        flat = flatten(values)
        if len(flat) != len(indices):
            raise ValueError(
                f"the program has {len(indices)} values where the module has {len(flat)}"
            )
        return [_encode(value, plan.values[index].val) for value, index in zip(flat, indices)]


def bundled(program: ExecutorchProgramManager, methods: dict[str, Method]) -> bytes:
    return serialize_from_bundled_program_to_flatbuffer(_Bundle(program, methods))


def operators(program: schema.Program) -> list[str]:
    """Operators that the program's methods call, as `namespace::name.overload`."""
    names = set()
    for plan in program.execution_plan:
        for op in plan.operators:
            names.add(f"{op.name}.{op.overload}" if op.overload else op.name)
    return sorted(names)


def backends(program: schema.Program) -> list[str]:
    return sorted({delegate.id for plan in program.execution_plan for delegate in plan.delegates})


def delegated(program: schema.Program) -> list[str]:
    """Operators that the Vulkan delegates call."""
    from executorch.backends.vulkan.serialization.vulkan_graph_serialize import (
        extract_vk_flatbuffer,
    )

    names = set()
    for plan in program.execution_plan:
        for delegate in plan.delegates:
            if delegate.id == "VulkanBackend":
                blob = program.backend_delegate_data[delegate.processed.index].data
                names.update(_called(extract_vk_flatbuffer(bytes(blob))))
    return sorted(names)


def _called(graph: bytes) -> Iterable[str]:
    """Operator names in a serialized Vulkan graph: field 1 of the graph, field 1 of each call."""
    root = Table(graph, int.from_bytes(graph[:4], "little"))
    chain = root.Offset(6)
    for index in range(root.VectorLen(chain) if chain else 0):
        call = Table(graph, root.Indirect(root.Vector(chain) + 4 * index))
        yield call.String(call.Offset(6) + call.Pos).decode()


@dataclass
class Fixture:
    """One program and its destination: `path` is relative to the fixtures folder, no suffix."""

    path: str
    methods: dict[str, Method]
    tolerance: Tolerance = F32
    sequence: bool = False
    plain: bool = False
    """Whether a `.pte` is written beside the `.bpte`."""
    note: str = ""
    config: ExecutorchBackendConfig | None = None
    to_backend: Callable[[Any], Any] | None = None
    partitioner: Any = None
    preserve: Sequence[Any] = ()
    dim_order: bool = True

    @staticmethod
    def forward(
        path: str, module: torch.nn.Module, cases: Sequence[Inputs], **options: Any
    ) -> "Fixture":
        method = Method(
            module, cases, options.pop("dynamic_shapes", None), options.pop("strict", False)
        )
        return Fixture(path, {"forward": method}, **options)


@dataclass
class Manifest:
    """Manifest entries of one script; saving replaces the old entries of the same kind only."""

    kind: str
    families: Sequence[str] | None = None
    """Restricts the replacement to these folders, if a script wrote only some of its folders."""
    entries: list[dict[str, Any]] = field(default_factory=list)

    def write(self, fixture: Fixture) -> ExecutorchProgramManager:
        program = lower(
            fixture.methods,
            config=fixture.config,
            to_backend=fixture.to_backend,
            partitioner=fixture.partitioner,
            preserve=fixture.preserve,
            dim_order=fixture.dim_order,
        )
        target = FIXTURES / fixture.path
        target.parent.mkdir(parents=True, exist_ok=True)
        data = self._write_external_data(program, fixture)
        bundle_bytes = bundled(program, fixture.methods)
        with_suffix(target, ".bpte").write_bytes(bundle_bytes)
        if fixture.plain:
            with_suffix(target, ".pte").write_bytes(program.buffer)
        self._add(fixture, program.executorch_program, data)
        return program

    def _write_external_data(
        self, program: ExecutorchProgramManager, fixture: Fixture
    ) -> list[str]:
        """Writes the program's `.ptd` files; returns their names in the manifest."""
        names = []
        for tag, blob in sorted(program._tensor_data.items()):
            name = f"{fixture.path}.{tag}.ptd"
            (FIXTURES / name).write_bytes(bytes(blob))
            names.append(name)
        return names

    def _add(self, fixture: Fixture, program: schema.Program, data: list[str]) -> None:
        of_vulkan = (
            {"delegated": delegated(program)} if "VulkanBackend" in backends(program) else {}
        )
        self.entries.append(
            {
                "file": f"{fixture.path}.bpte",
                "kind": self.kind,
                "family": str(Path(fixture.path).parent),
                "operators": operators(program),
                "backends": backends(program),
                **of_vulkan,
                "data": data,
                "rtol": fixture.tolerance.rtol,
                "atol": fixture.tolerance.atol,
                "sequence": fixture.sequence,
                "note": fixture.note,
            }
        )

    def write_all(self, fixtures: Iterable[Fixture]) -> None:
        for fixture in fixtures:
            self.write(fixture)

    def save(self) -> None:
        path = FIXTURES / "manifest.json"
        old = json.loads(path.read_text()) if path.exists() else []
        kept = [entry for entry in old if not self._replaces(entry)]
        merged = sorted(kept + self.entries, key=lambda entry: entry["file"])
        lines = ",\n".join(json.dumps(entry) for entry in merged)
        path.write_text(f"[\n{lines}\n]\n")

    def _replaces(self, entry: dict[str, Any]) -> bool:
        return entry["kind"] == self.kind and (
            self.families is None or entry["family"] in self.families
        )


def with_suffix(path: Path, suffix: str) -> Path:
    """Appends a suffix; unlike `Path.with_suffix`, keeps dots in the name."""
    return path.with_name(path.name + suffix)
