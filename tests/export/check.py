"""Runs the fixtures on ExecuTorch's own CPU runtime and prints where it disagrees with PyTorch.

This cross-checks the fixtures; it does not test torchlet. A disagreement is a bug in an export
script or a limitation of that runtime. Every file runs in its own process because that runtime may
abort.

    python check.py [part of a file name ...]
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from common import FIXTURES

import torch
from executorch.devtools.bundled_program.serialize.generated import (
    bundled_program_flatbuffer as flatbuffer,
)
from executorch.exir.tensor import get_scalar_type
from executorch.extension.pybindings import portable_lib


def _reveal_classes() -> None:
    """Works around the package's readers, which refer to modules instead of their classes."""
    modules = {
        name: module for name, module in vars(flatbuffer).items() if isinstance(module, ModuleType)
    }
    for module in modules.values():
        for name, other in modules.items():
            if name in vars(module) and hasattr(other, name):
                setattr(module, name, vars(other)[name])


_reveal_classes()
from executorch.devtools.bundled_program.serialize.generated.bundled_program_flatbuffer.BundledProgram import (
    BundledProgram,
)

Suite = tuple[str, list[tuple[list[Any], list[Any]]]]


def _tensor(table: Any) -> torch.Tensor:
    sizes = [table.Sizes(i) for i in range(table.SizesLength())]
    dim_order = [table.DimOrder(i) for i in range(table.DimOrderLength())]
    dtype = get_scalar_type(table.ScalarType())
    if table.DataLength() == 0:
        return torch.empty(sizes, dtype=dtype)
    flat = torch.frombuffer(bytearray(table.DataAsNumpy().tobytes()), dtype=dtype)
    laid_out = flat.reshape([sizes[d] for d in dim_order])
    return laid_out.permute([dim_order.index(d) for d in range(len(sizes))])


def _value(value: Any) -> Any:
    kinds = {
        1: (flatbuffer.Tensor.Tensor, _tensor),
        2: (flatbuffer.Int.Int, lambda t: t.IntVal()),
        3: (flatbuffer.Bool.Bool, lambda t: t.BoolVal()),
        4: (flatbuffer.Double.Double, lambda t: t.DoubleVal()),
    }
    if value.ValType() not in kinds:
        return None
    reader, get = kinds[value.ValType()]
    table, typed = value.Val(), reader()
    typed.Init(table.Bytes, table.Pos)
    return get(typed)


def read_bundle(path: Path) -> tuple[bytes, list[Suite]]:
    root = BundledProgram.GetRootAs(bytearray(path.read_bytes()), 0)
    suites = []
    for i in range(root.MethodTestSuitesLength()):
        suite = root.MethodTestSuites(i)
        cases = []
        for j in range(suite.TestCasesLength()):
            case = suite.TestCases(j)
            inputs = [_value(case.Inputs(k)) for k in range(case.InputsLength())]
            outputs = [_value(case.ExpectedOutputs(k)) for k in range(case.ExpectedOutputsLength())]
            cases.append((inputs, outputs))
        suites.append((suite.MethodName().decode(), cases))
    return root.ProgramAsNumpy().tobytes(), suites


def difference(got: Any, expected: Any, rtol: float, atol: float) -> str | None:
    if not isinstance(expected, torch.Tensor):
        return None if got == expected else f"{got} is not {expected}"
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return f"{got.dtype}{list(got.shape)} is not {expected.dtype}{list(expected.shape)}"
    a, b = got.to(torch.float64), expected.to(torch.float64)
    if torch.allclose(a, b, rtol=rtol, atol=atol, equal_nan=True):
        return None
    return f"off by {(a - b).abs().max().item():.3g}, largest expected {b.abs().max().item():.3g}"


def check(entry: dict[str, Any]) -> str | None:
    program, suites = read_bundle(FIXTURES / entry["file"])
    data = [(FIXTURES / name).read_bytes() for name in entry["data"]]
    if len(data) > 1:
        return "this runtime's Python binding takes one data file"
    module = portable_lib._load_for_executorch_from_buffer(program, *data)
    for method, cases in suites:
        for number, (inputs, outputs) in enumerate(cases):
            got = module.run_method(method, inputs)
            for index, (g, e) in enumerate(zip(got, outputs, strict=True)):
                why = difference(g, e, entry["rtol"], entry["atol"])
                if why is not None:
                    return f"{method} case {number} output {index}: {why}"
    return None


def check_apart(entry: dict[str, Any]) -> str | None:
    """Runs `check` in a child process, which contains an abort."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        try:
            answer = check(entry) or ""
        except Exception as error:
            answer = f"{type(error).__name__}: {error}".splitlines()[0]
        os.write(writer, answer.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    return f"died with status {status}" if status else answer or None


def main() -> None:
    parts = sys.argv[1:]
    entries = json.loads((FIXTURES / "manifest.json").read_text())
    chosen = [e for e in entries if not parts or any(part in e["file"] for part in parts)]
    failed = 0
    for entry in chosen:
        why = check_apart(entry)
        if why is not None:
            failed += 1
            print(f"{entry['file']}: {why}")
    print(f"{len(chosen) - failed} of {len(chosen)} agree")


if __name__ == "__main__":
    main()
