"""Measures a program with ExecuTorch's own runtime.

    executorch_runtime.py FILE THREADS

Each line of input contains a number of iterations; the reply is a line of their times in
milliseconds. The package contains XNNPACK; programs that are not lowered for XNNPACK run on the CPU
kernels only.
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
    # XNNPACK has its own threads.
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
