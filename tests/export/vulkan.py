"""Writes the cases for the Vulkan delegate, lowered with `VulkanPartitioner`:
`fixtures/vulkan/<family>/<case>.bpte`.

    python vulkan.py [family ...]
"""

from __future__ import annotations

import functools
import sys
import zlib
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from common import (
    FIXTURES,
    Fixture,
    Manifest,
    Method,
    Tolerance,
    backends,
    flatten,
    operators,
    seed,
)

import torch
from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner
from executorch.backends.vulkan.patterns.pattern_registry import fusable_patterns
from executorch.exir import ExecutorchBackendConfig
from op_cases.table import module_of
from vulkan_cases import matrix, pointwise, programs, quantized, reduce, shape, spatial
from vulkan_cases.table import Delegated

FOLDER = "vulkan"
FAMILIES = {
    name: cases
    for group in (pointwise, reduce, matrix, spatial, shape, quantized, programs)
    for name, cases in group.FAMILIES.items()
}

# Cached, because the partitioner exports its patterns again for each program, which dominates the
# run time.
for entry in fusable_patterns.values():
    if entry.get_graphs_fn is not None:
        entry.get_graphs_fn = functools.lru_cache(entry.get_graphs_fn)


def tolerance(case: Delegated, method: Method) -> Tolerance:
    """Scales with the largest output; in half precision the GPU rounds all intermediate values."""
    outputs = [t for out in method.expected() for t in flatten(out) if isinstance(t, torch.Tensor)]
    floats = [t.float() for t in outputs if t.is_floating_point() and t.numel()]
    finite = [t[t.isfinite()].abs().max().item() for t in floats if t.isfinite().any()]
    largest = max([1.0, *finite])
    if not floats:
        rtol, atol = 0.0, 0.0
    elif case.options.get("force_fp16") or any(t.dtype == torch.float16 for t in outputs):
        rtol, atol = 5e-3, float(f"{4e-3 * largest:.1g}")
    else:
        rtol, atol = 1e-4, float(f"{1e-5 * largest:.1g}")
    return Tolerance(
        rtol if case.rtol is None else case.rtol, atol if case.atol is None else case.atol
    )


def method_of(case: Delegated) -> Method:
    module = module_of(case.run)
    dynamic = case.dynamic
    if case.quantize is not None:
        module = case.quantize(module.eval(), case.inputs)
    elif dynamic is not None and not isinstance(case.run, torch.nn.Module):
        dynamic = (dynamic,)
    return Method(module, list(case.inputs), dynamic)


def fixture(family: str, case: Delegated) -> Fixture:
    method = method_of(case)
    options = dict(case.options)
    if case.dynamic is not None:
        options.setdefault("require_dynamic_shapes", True)
    others = {
        name: Method(module_of(run), list(inputs)) for name, (run, inputs) in case.methods.items()
    }
    return Fixture(
        f"{FOLDER}/{family}/{case.name}",
        {"forward": method, **others},
        tolerance(case, method),
        sequence=case.sequence,
        note=case.note,
        config=case.config or ExecutorchBackendConfig(),
        partitioner=VulkanPartitioner(options),
        preserve=case.preserve,
        dim_order=case.dim_order,
    )


def unexpected(case: Delegated, program: Any) -> str | None:
    """Describes how the program differs from the case's expectation.

    A case that falls back to the CPU would not test the delegate.
    """
    plan = program.executorch_program
    delegates = sum(len(method.delegates) for method in plan.execution_plan)
    outside = operators(plan)
    if outside != sorted(case.outside) or delegates != case.delegates:
        return f"{delegates} delegates {backends(plan)}, outside {outside}"
    return None


def write_family(family: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Writes a family; returns its manifest entries and errors."""
    folder = FIXTURES / FOLDER / family
    for stale in folder.glob("*.*"):
        stale.unlink()
    seed(zlib.crc32(family.encode()))
    manifest, failures, seen = Manifest("vulkan"), [], set()
    for case in FAMILIES[family]():
        name = f"{family}/{case.name}"
        if name in seen:
            failures.append(f"{name}: there are two of this name")
        seen.add(name)
        try:
            what = unexpected(case, manifest.write(fixture(family, case)))
            if case.refused:
                manifest.entries.pop()
        except Exception as error:
            what = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        if what is not None:
            failures.append(f"{name}: {what}")
    return manifest.entries, failures


def main() -> None:
    families = sys.argv[1:] or list(FAMILIES)
    manifest = Manifest("vulkan", families=[f"{FOLDER}/{family}" for family in families])
    failed = False
    with ProcessPoolExecutor(2) as pool:
        for entries, failures in pool.map(write_family, families):
            manifest.entries += entries
            for failure in failures:
                failed = True
                print(failure)
    manifest.save()
    print(f"{len(manifest.entries)} cases for the Vulkan delegate")
    sys.exit(failed)


if __name__ == "__main__":
    main()
