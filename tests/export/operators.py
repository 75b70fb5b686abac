"""Writes the operator cases `fixtures/ops/<family>/<case>.bpte`, each a program of one operator.

python operators.py [family ...]
"""

from __future__ import annotations

import sys
import zlib
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from common import (
    EXACT,
    FIXTURES,
    Fixture,
    Manifest,
    Method,
    Tolerance,
    flatten,
    seed,
    tolerance_of,
)

import torch
from executorch.exir import ExecutorchBackendConfig
from op_cases import (
    bounds,
    by_name,
    create,
    devices,
    further,
    gradients,
    index,
    lines,
    many,
    matrix,
    others,
    pointwise,
    quantized,
    reduce,
    remaining,
    scarce,
    shape,
    spatial,
    special,
    spectral,
)
from op_cases.skipped import SKIPPED
from op_cases.table import Case, module_of

FOLDER = "ops"
FAMILIES = {
    name: cases
    for group in (
        pointwise,
        reduce,
        matrix,
        spatial,
        spectral,
        shape,
        index,
        create,
        quantized,
        gradients,
        special,
        scarce,
        further,
        remaining,
        by_name,
        bounds,
        others,
        lines,
        devices,
        many,
    )
    for name, cases in group.FAMILIES.items()
}


def tolerance(case: Case, method: Method) -> Tolerance:
    """The loosest tolerance of the outputs' dtypes.

    Low precision scales with the largest output.
    """
    outputs = [t for out in method.expected() for t in flatten(out) if isinstance(t, torch.Tensor)]
    rtol, atol = EXACT.rtol, EXACT.atol
    for output in outputs:
        of_dtype = tolerance_of(output.dtype)
        rtol, atol = max(rtol, of_dtype.rtol), max(atol, of_dtype.atol)
    return Tolerance(
        rtol if case.rtol is None else case.rtol, atol if case.atol is None else case.atol
    )


def fixture(family: str, case: Case) -> Fixture:
    method = Method(module_of(case.run), list(case.inputs), dynamic_shapes(case))
    return Fixture(
        f"{FOLDER}/{family}/{case.name}",
        {"forward": method},
        tolerance(case, method),
        preserve=case.preserve,
        dim_order=case.dim_order,
        config=ExecutorchBackendConfig(run_reinplace_pass=case.reinplace),
    )


def dynamic_shapes(case: Case) -> Any:
    """Adapts the shapes: `Function` has one variadic argument, other modules name theirs."""
    if case.dynamic is None or isinstance(case.run, torch.nn.Module):
        return case.dynamic
    return (case.dynamic,)


def write_family(family: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Writes a family; returns its manifest entries and errors."""
    folder = FIXTURES / FOLDER / family
    for stale in folder.glob("*.bpte"):
        stale.unlink()
    seed(zlib.crc32(family.encode()))
    manifest, failures, seen = Manifest("operator"), [], set()
    for case in FAMILIES[family]():
        name = f"{family}/{case.name}"
        if name in SKIPPED:
            continue
        if name in seen:
            failures.append(f"{name}: there are two of this name")
        seen.add(name)
        try:
            manifest.write(fixture(family, case))
        except Exception as error:
            failures.append(f"{name}: {type(error).__name__}: {' '.join(str(error).split())[:300]}")
    return manifest.entries, failures


def main() -> None:
    families = sys.argv[1:] or list(FAMILIES)
    manifest = Manifest("operator", families=[f"{FOLDER}/{family}" for family in families])
    failed = False
    with ProcessPoolExecutor(2) as pool:
        for entries, failures in pool.map(write_family, families):
            manifest.entries += entries
            for failure in failures:
                failed = True
                print(failure)
    manifest.save()
    print(f"{len(manifest.entries)} operator cases")
    sys.exit(failed)


if __name__ == "__main__":
    main()
