"""Measures a program with ExecuTorch's own runtime: executorch_runtime.py FILE THREADS, then one number of
iterations per line of input; each is answered by a line with that many times in milliseconds.

The package registers XNNPACK beside its CPU kernels; a program that was not lowered for XNNPACK runs on the
CPU kernels alone, as it does here.
"""

from __future__ import annotations

import contextlib
import sys
import time

import torch
from executorch.extension.pybindings import portable_lib
from executorch.runtime import Runtime


def main() -> None:
    torch.set_num_threads(int(sys.argv[2]))
    # XNNPACK has threads of its own.
    with contextlib.suppress(AttributeError):
        portable_lib._unsafe_reset_threadpool(int(sys.argv[2]))
    method = Runtime.get().load_program(sys.argv[1]).load_method("forward")
    meta = method.metadata
    inputs = [torch.rand(meta.input_tensor_meta(i).sizes()) for i in range(meta.num_inputs())]
    print("ready", flush=True)
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            start = time.perf_counter()
            method.execute(inputs)
            times.append((time.perf_counter() - start) * 1000)
        print(" ".join(f"{t:.6f}" for t in times), flush=True)


if __name__ == "__main__":
    main()
