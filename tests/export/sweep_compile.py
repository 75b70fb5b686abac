"""Whole models in `torch.compile(model, backend="torchlet")`: compares the outputs with eager mode.

    python sweep_compile.py [--suite torchvision] [--only REGEX] [--device cpu]

The models are those of `sweep_pt2.py`. Each one is compiled in its own process, which must be able
to import the package `torchlet`. The number of graphs is printed: more than one means graph breaks.
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import sys
import time
from collections import Counter
from typing import Any

from sweep_pt2 import LARGEST, SECONDS, SUITES, randomize, tensors

import torch


def error(found: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    """The largest relative error of all outputs."""
    worst = 0.0
    if len(found) != len(expected):
        raise ValueError(f"{len(found)} outputs, expected {len(expected)}")
    for index, (one, other) in enumerate(zip(found, expected)):
        if (one.shape, one.dtype) != (other.shape, other.dtype):
            raise ValueError(f"output {index}: another shape or dtype")
        one, other = one.double(), other.double()
        finite = other.isfinite()
        if (finite != one.isfinite()).any():
            raise ValueError(f"output {index}: other values are infinite or not numbers")
        if finite.any():
            largest = other[finite].abs().max().clamp(min=1e-30)
            worst = max(worst, float((one - other)[finite].abs().max() / largest))
    return worst


def measure(suite: str, name: str, device: str, results: Any) -> None:
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
    compiled = torch.compile(module, backend="torchlet", options={"device": device})
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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suite", choices=SUITES, action="append")
    parser.add_argument("--only", default="", help="regular expression of names")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    failed = False
    for suite in options.suite or SUITES:
        counts: Counter[str] = Counter()
        for name in filter(re.compile(options.only).search, SUITES[suite][0]()):
            results: Any = multiprocessing.Queue()
            arguments = (suite, name, options.device, results)
            process = multiprocessing.Process(target=measure, args=arguments)
            process.start()
            try:
                outcome, detail = results.get(timeout=SECONDS)
            except Exception:
                outcome, detail = "refused", f"no result within {SECONDS} seconds"
            process.terminate()
            process.join()
            counts[outcome] += 1
            print(f"{suite:12} {name:32} {outcome:8} {detail}", flush=True)
        tried = sum(counts.values()) - counts["eager"]
        print(f"{suite}: {counts['ok']} of {tried} have eager's values; {dict(counts)}")
        failed |= counts["ok"] < 0.95 * tried
    sys.exit(failed)


if __name__ == "__main__":
    main()
