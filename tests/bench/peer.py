"""Shared by the scripts that measure other runtimes beside torchlet.

A script writes `ready`. It then replies to each line with a number of inferences by a line of their
times in milliseconds. If the runtime is not installed, it writes the reason and exits.
"""

from __future__ import annotations

import importlib
import sys
import time
from types import ModuleType
from typing import TYPE_CHECKING, Callable

if TYPE_CHECKING:
    import numpy

Run = Callable[[], object]


class NotHere(Exception):
    """Why a runtime cannot be measured."""


def needed(name: str) -> ModuleType:
    """Imports a module that the runtime requires."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise NotHere(str(error)) from error


def ncnn_run(
    param: str, weights: str, arrays: list[numpy.ndarray], options: dict[str, object]
) -> Run:
    """A network of ncnn, from its two files; inputs have no batch dim."""
    runtime = needed("ncnn")
    net = runtime.Net()
    for name, value in options.items():
        setattr(net.opt, name, value)
    if net.load_param(param) or net.load_model(weights):
        raise NotHere("ncnn does not load what pnnx made of the model")

    def run() -> object:
        extractor = net.create_extractor()
        for index, array in enumerate(arrays):
            extractor.input(f"in{index}", runtime.Mat(array))
        status, output = extractor.extract("out0")
        if status:
            raise RuntimeError(f"ncnn: {status}")
        return output

    return run


def answer(start: Callable[[], Run]) -> None:
    """Starts the runtime and measures it as the input lines request."""
    try:
        run = start()
    except NotHere as why:
        print(f"not here: {why}", flush=True)
        return
    run()
    print("ready", flush=True)
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            begin = time.perf_counter()
            run()
            times.append((time.perf_counter() - begin) * 1000)
        print(" ".join(f"{t:.6f}" for t in times), flush=True)
