"""Whole models in `torch.compile(model, backend="torchlet")`: compares the outputs with eager mode.

    python sweep_compile.py [--suite torchvision] [--only REGEX] [--device cpu]

The models are those of `sweep_pt2.py`. Each one is compiled in its own process, which must be able
to import the package `torchlet`. The number of graphs is printed: more than one means graph breaks.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from sweep_pt2 import LARGEST, SUITES, parser, randomize, relative_error, sweep, tensors

import torch


def error(found: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    """The largest relative error of all outputs."""
    worst = 0.0
    if len(found) != len(expected):
        raise ValueError(f"{len(found)} outputs, expected {len(expected)}")
    for index, (one, other) in enumerate(zip(found, expected)):
        if one.dtype != other.dtype:
            raise ValueError(f"output {index}: {one.dtype}, expected {other.dtype}")
        try:
            worst = max(worst, relative_error(one.double().numpy(), other.double().numpy()))
        except ValueError as failure:
            raise ValueError(f"output {index}: {failure}") from failure
    return worst


def measure(suite: str, name: str, chosen: argparse.Namespace, results: Any) -> None:
    """Puts an outcome (`ok`, `wrong`, `refused` or `eager`) and a detail into the queue."""
    from torch._dynamo.utils import counters

    torch.manual_seed(0)
    try:
        module, args, kwargs = SUITES[suite][1](name)
        module.eval()
        randomize(module)
        with torch.no_grad():
            expected = tensors(module(*args, **kwargs))
    except Exception as failure:
        results.put(("eager", f"{type(failure).__name__}: {str(failure).strip()[:200]}"))
        return
    compiled = torch.compile(module, backend="torchlet", options={"device": chosen.device})
    start = time.monotonic()
    try:
        with torch.no_grad():
            found = tensors(compiled(*args, **kwargs))
            worst = error(found, expected)
            # The second call has no compilation, and must not depend on the first one.
            worst = max(worst, error(tensors(compiled(*args, **kwargs)), expected))
    except ValueError as failure:
        results.put(("wrong", str(failure)))
        return
    except Exception as failure:
        results.put(("refused", f"{type(failure).__name__}: {str(failure).strip()[:600]}"))
        return
    graphs = counters["stats"]["unique_graphs"]
    seconds = time.monotonic() - start
    detail = f"{worst:.1e}, {graphs} graph{'s' * (graphs != 1)}, {seconds:.0f} s"
    results.put(("ok" if worst <= LARGEST else "wrong", detail))


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--device", default="cpu")
    sys.exit(not sweep(arguments.parse_args(), measure, "eager"))


if __name__ == "__main__":
    main()
