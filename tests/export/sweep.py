"""Operators times dtypes: exports PyTorch's samples of each operator, runs them in torchlet and
compares the results with PyTorch in eager mode.

    python sweep.py --torchlet ../../target/release/torchlet --table ../../docs/operators.md
        [--only REGEX] [--resume]

The samples are those of PyTorch's own tests (`op_db` in
`torch.testing._internal.common_methods_invocations`). Each becomes a program whose tensors are
inputs and whose other arguments are constants. Samples that the exporter rejects say nothing about
torchlet.

The table is rewritten after every few operators, with the rest marked as untried, so that an
interrupted sweep can resume. Each operator is exported in its own process: a hanging export loses
only its own cells.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import re
import shutil
import subprocess
import sys
import textwrap
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Iterator

import common
import torch
from torch import nn
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_unflatten

DTYPES = {
    "f32": torch.float32,
    "f64": torch.float64,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "i64": torch.int64,
    "i32": torch.int32,
    "i16": torch.int16,
    "i8": torch.int8,
    "u8": torch.uint8,
    "bool": torch.bool,
}
COMPLEX = {"c64": torch.complex64}
"""Swept on request only: few programs have complex tensors outside of Fourier transforms."""
ALL = DTYPES | COMPLEX
LARGEST = 2048
"""Maximum number of elements per sample tensor."""
SAMPLES = 3
"""Default number of samples per operator and dtype."""
TOGETHER = 20
"""Number of operators verified and written to the table at a time."""
UNTRIED = "…"
LEGEND = {
    "pass": "passes",
    "open": "differs where PyTorch or the exporter defines no exact result; see below the table",
    "WRONG": "differs from PyTorch",
    "no kernel": "calls an operator without a kernel",
    "refused": "refused with an error",
    UNTRIED: "not tried",
    "–": "not tested: the exporter refuses it, results are random, or no sample fits",
    "": "PyTorch does not support this dtype on CPUs",
}
EQUALS = "PyTorch does not define which of several equal elements is returned"
RANDOM = "results are random"
SIGNS = "the signs of vectors are not defined"
ORDERS = "the order of eigenvalues and the directions of eigenvectors are not defined"
BATCHES = "PyTorch rounds to the dtype after each batch, torchlet once"
NARROW = (
    "the exporter writes a factor as `float32` for every dtype, "
    "so ExecuTorch's results differ as well"
)
TAPS = "PyTorch rounds to the dtype several times, torchlet once, which is closer to `float64`"
STEPS = (
    "PyTorch rounds coordinates and weights to the dtype at each step, "
    "torchlet computes in `float32`"
)
WIDENED = "the exporter declares the result as `float32`"
POLES = (
    "at poles, PyTorch's sine of multiples of pi is not zero: "
    "its result is large, torchlet's infinite"
)
WIDE = "the exporter computes in `float32`, PyTorch in fp16, where the exponential overflows"
FAR = (
    "PyTorch's error is up to 4e-7, torchlet's at most 5e-14, "
    "compared with a high-precision reference"
)
EXPLAINED = {
    "topk": ("output 1", EQUALS, ()),
    "kthvalue": ("output 1", EQUALS, ()),
    "empty_like": ("output 0", "elements are uninitialized", ()),
    "bernoulli": ("output 0", RANDOM, ()),
    "new_empty_strided": ("output 0", "elements are uninitialized", ()),
    "normal": ("output 0", RANDOM, ()),
    "normal.number_mean": ("output 0", RANDOM, ()),
    "multinomial": ("output 0", RANDOM, ()),
    "rand_like": ("output 0", RANDOM, ()),
    "randn_like": ("output 0", RANDOM, ()),
    "randint_like": ("output 0", RANDOM, ()),
    "svd": ("output 0", SIGNS, ()),
    "linalg.svd": ("output 0", SIGNS, ()),
    "linalg.eigh": ("output 1", SIGNS, ()),
    "linalg.eig": ("output [01]", ORDERS, ()),
    "linalg.eigvals": ("output 0", ORDERS, ()),
    "addbmm": ("output 0", BATCHES, ("f16", "bf16")),
    **{f"nn.functional.conv_transpose{n}d": ("output 0", TAPS, ("f16",)) for n in (2, 3)},
    "grid_sampler_2d": ("output 0", STEPS, ("f16", "bf16")),
    "masked.std": ("output 0", WIDENED, ("f16", "bf16")),
    "masked.var": ("output 0", WIDENED, ("f16", "bf16")),
    "nn.functional.grid_sample": ("output 0", STEPS, ("f16", "bf16")),
    "deg2rad": ("output 0", NARROW, ("f64",)),
    "logaddexp2": ("output 0", NARROW, ("f64",)),
    "rad2deg": ("output 0", NARROW, ("f64",)),
    "sinc": ("output 0", NARROW, ("f64",)),
    "special.log_ndtr": ("output 0", NARROW, ("f64",)),
    **{
        f"special.{name}": ("output 0", FAR, ("f64",))
        for name in ("airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1")
    },
    "nn.functional.soft_margin_loss": ("output 0", WIDE, ("f16",)),
    **{f"polygamma.polygamma_n_{n}": ("output 0", POLES, ("i16", "i8")) for n in range(5)},
    "special.polygamma.special_polygamma_n_0": ("output 0", POLES, ("i16", "i8")),
    "torch.ops.aten._scaled_dot_product_flash_attention_for_cpu": (
        "output 1",
        "the exporter writes other calls, whose second output has another shape",
        (),
    ),
}
"""Operators whose outputs may differ.

Each has a pattern for the first such output, the reason, and the dtypes if not all.
"""
BYTES = "for bytes, PyTorch interpolates with 16-bit weights"
HOLES = {
    "nn.functional.interpolate.bilinear": BYTES,
    "nn.functional.upsample_bilinear": BYTES,
    "matrix_exp": "PyTorch's fp16 results are far off, such as infinite for small matrices",
}
"""Reasons for operators without a kernel, or whose kernel rejects some dtypes."""
ORDER = ["WRONG", "open", "refused", "no kernel", "pass", "–"]


class Sample(nn.Module):
    """One call of an operator: tensors are inputs, all other arguments are constants."""

    def __init__(self, operator: Any, sample: Any) -> None:
        super().__init__()
        leaves, self.spec = tree_flatten(((sample.input, *sample.args), sample.kwargs))
        self.operator = operator
        self.constants = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        self.indices = [
            index for index, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)
        ]
        self.inputs = tuple(
            leaf.detach().contiguous() for leaf in leaves if isinstance(leaf, torch.Tensor)
        )

    def forward(self, *inputs: torch.Tensor) -> Any:
        leaves = list(self.constants)
        for index, tensor in zip(self.indices, inputs):
            leaves[index] = tensor
        (first, *args), kwargs = tree_unflatten(leaves, self.spec)
        made = self.operator(first, *args, **kwargs)
        return tuple(made) if isinstance(made, (tuple, list)) else made


@dataclass
class Row:
    """Results of an operator's samples by dtype, and the programs written for them."""

    name: str
    cells: dict[str, str] = field(default_factory=dict)
    files: dict[str, tuple[str, float, float]] = field(default_factory=dict)

    def is_unexplained(self) -> bool:
        states = set(self.cells.values())
        return bool(states & {"WRONG", UNTRIED}) or (
            bool(states & {"no kernel", "refused"}) and self.name not in HOLES
        )


def samples(operator: Any, dtype: torch.dtype, count: int) -> Iterator[Sample]:
    seen = set()
    for sample in operator.sample_inputs("cpu", dtype, requires_grad=False):
        try:
            made = Sample(operator.op, sample)
        except Exception:
            continue
        shapes = tuple(tuple(tensor.shape) for tensor in made.inputs)
        fits = made.inputs and all(0 < tensor.numel() <= LARGEST for tensor in made.inputs)
        if fits and shapes not in seen and made.inputs[0].dim() > 0:
            seen.add(shapes)
            yield made
        if len(seen) == count:
            return


def is_open(name: str, dtype: str, said: str) -> bool:
    """Whether the difference is in an output that PyTorch leaves undefined."""
    output, _, types = EXPLAINED.get(name, ("", "", ()))
    return (
        name in EXPLAINED
        and re.search(f": {output}: ", said) is not None
        and (not types or dtype in types)
    )


def is_random(sample: Sample) -> bool:
    found = []
    for number in (1, 2):
        torch.manual_seed(number)
        found.append(
            [
                leaf
                for leaf in tree_flatten(sample(*common._apart(sample.inputs)))[0]
                if isinstance(leaf, torch.Tensor)
            ]
        )
    return not all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(*found))


def export(number: int, folder: Path, count: int, dtypes: list[str], tell: Connection) -> None:
    """Writes the programs of one operator, and reports each dtype once its programs are written."""
    operator = op_db[number]
    for name in dtypes:
        files = {}
        torch.manual_seed(number)
        try:
            for index, sample in enumerate(samples(operator, ALL[name], count)):
                try:
                    if is_random(sample):
                        break
                    methods = {"forward": common.Method(sample, [sample.inputs])}
                    data = common.bundled(common.lower(methods), methods)
                    outputs = [
                        t
                        for t in common.flatten(methods["forward"].expected())
                        if isinstance(t, torch.Tensor)
                    ]
                except Exception:
                    continue
                path = folder / f"{number}_{name}_{index}.bpte"
                path.write_bytes(data)
                of_types = [
                    common.tolerance_of(
                        output.dtype.to_real() if output.is_complex() else output.dtype
                    )
                    for output in outputs
                ]
                rtol, atol = (
                    max((t.rtol for t in of_types), default=0.0),
                    max((t.atol for t in of_types), default=0.0),
                )
                files[path.name] = (name, rtol, atol)
        except Exception:
            pass
        tell.send((name, files))


def exported(tasks: dict[int, list[str]], options: argparse.Namespace) -> Iterator[Row]:
    """Yields each operator once its export ends or times out."""
    context, left = multiprocessing.get_context("fork"), list(tasks.items())
    running: dict[Connection, tuple[multiprocessing.Process, Row, float]] = {}
    while left or running:
        while left and len(running) < options.jobs:
            number, dtypes = left.pop(0)
            row = Row(full_name(op_db[number]), dict.fromkeys(dtypes, UNTRIED))
            here, there = context.Pipe(duplex=False)
            process = context.Process(
                target=export, args=(number, options.folder, options.samples, dtypes, there)
            )
            process.start()
            there.close()
            running[here] = process, row, time.monotonic() + options.seconds
        ready = wait(list(running), timeout=1)
        for here, (process, row, end) in list(running.items()):
            try:
                if here in ready:
                    name, files = here.recv()
                    row.cells[name] = "–"
                    row.files |= files
                    continue
            except EOFError:
                end = 0
            if time.monotonic() < end:
                continue
            process.kill()
            process.join()
            del running[here]
            yield row


def run(
    torchlet: str, folder: Path, files: dict[str, tuple[str, float, float]]
) -> dict[str, tuple[str, str]]:
    """Runs the files; returns each file's state and message."""
    by_tolerance = defaultdict(list)
    for file, (_, rtol, atol) in files.items():
        by_tolerance[rtol, atol].append(file)
    found = {}
    for (rtol, atol), names in by_tolerance.items():
        for start in range(0, len(names), 200):
            command = [
                torchlet,
                "verify",
                "--json",
                "--backend",
                "as-exported",
                "--rtol",
                str(rtol),
                "--atol",
                str(atol),
            ]
            command += [str(folder / name) for name in names[start : start + 200]]
            done = subprocess.run(command, capture_output=True, text=True)
            for line in done.stdout.splitlines():
                page = json.loads(line)
                found[Path(page["file"]).name] = judge(page)
    return found


def judge(page: dict[str, Any]) -> tuple[str, str]:
    said = str(page["error"] or "")
    if page["status"] == "error":
        return ("no kernel" if "not registered" in said else "refused"), said
    return ("pass" if page["status"] == "pass" else "WRONG"), said


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--torchlet", required=True)
    parser.add_argument("--table", type=Path)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/torchlet-sweep"))
    parser.add_argument("--only", default="")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--types", nargs="*", choices=list(ALL), default=list(DTYPES))
    parser.add_argument("--samples", type=int, default=SAMPLES)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=int, default=600)
    options = parser.parse_args()
    shutil.rmtree(options.folder, ignore_errors=True)
    options.folder.mkdir(parents=True)
    rows = {full_name(operator): Row(full_name(operator)) for operator in op_db}
    if options.table and (options.resume or options.only):
        rows |= {row.name: row for row in rows_of(options.table, options.types)}
    tasks = {}
    for number, operator in enumerate(op_db):
        row = rows[full_name(operator)]
        if not re.search(options.only, row.name):
            continue
        supported = operator.supported_dtypes("cpu")
        dtypes = [
            name
            for name in options.types
            if ALL[name] in supported and (not options.resume or row.cells.get(name) == UNTRIED)
        ]
        row.cells |= dict.fromkeys(dtypes, UNTRIED)
        if dtypes:
            tasks[number] = dtypes
    done: list[Row] = []
    for count, row in enumerate(exported(tasks, options), 1):
        done.append(row)
        if count % TOGETHER == 0 or count == len(tasks):
            verify(done, options)
            for row in done:
                rows[row.name].cells |= row.cells
            done.clear()
            if options.table:
                options.table.write_text(table(list(rows.values()), options.types, options.samples))
            print(f"{count} of {len(tasks)} operators", flush=True)
    print(dict(Counter(state for row in rows.values() for state in row.cells.values())))
    unexplained = sorted(row.name for row in rows.values() if row.is_unexplained())
    if unexplained:
        sys.exit(f"not explained: {', '.join(unexplained)}")


def verify(rows: list[Row], options: argparse.Namespace) -> None:
    """Runs the exported programs, reports failures and deletes the programs that pass."""
    found = run(
        options.torchlet,
        options.folder,
        {file: of for row in rows for file, of in row.files.items()},
    )
    for row in rows:
        for file, (dtype, *_) in row.files.items():
            state, said = found.get(file, ("refused", "torchlet ended"))
            if state == "WRONG" and is_open(row.name, dtype, said):
                state = "open"
            if state == "pass" and EXPLAINED.get(row.name, ("", "", ()))[1] == RANDOM:
                # Passed by chance: another sweep could differ.
                state = "open"
            row.cells[dtype] = min(row.cells[dtype], state, key=ORDER.index)
            if found.get(file, ("", ""))[0] == "pass":
                (options.folder / file).unlink()
            else:
                print(f"{row.name} {dtype} {file}: {state}: {said}")


def full_name(operator: Any) -> str:
    return ".".join(filter(None, [operator.name, operator.variant_test_name]))


def rows_of(path: Path, dtypes: list[str]) -> list[Row]:
    """Rows of an existing table with the same dtypes; others were never exported."""
    rows = {full_name(operator): Row(full_name(operator)) for operator in op_db}
    for operator in op_db:
        cells = {name: "–" for name in dtypes if ALL[name] in operator.supported_dtypes("cpu")}
        rows[full_name(operator)].cells.update(cells)
    for name, cells in re.findall(r"^\| `([^`]+)` \|(.*)\|$", path.read_text(), re.MULTILINE):
        states = [cell.strip() for cell in cells.split(" | ")]
        if len(states) == len(dtypes) and name in rows:
            rows[name].cells = {dtype: state for dtype, state in zip(dtypes, states) if state}
    return list(rows.values())


def grouped(reasons: dict[str, str]) -> list[str]:
    """Returns one list item per reason, with the operators that have it."""
    names: dict[str, list[str]] = {}
    for name in sorted(reasons):
        names.setdefault(reasons[name], []).append(f"`{name}`")
    return [wrapped(f"- {', '.join(names[reason])}: {reason}.") for reason in names]


def wrapped(text: str) -> str:
    """Fills a Markdown paragraph or list item at 100 columns."""
    indent = "  " if text.startswith("- ") else ""
    return textwrap.fill(
        text, 100, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def table(rows: list[Row], dtypes: list[str], samples: int) -> str:
    count = Counter(state for row in rows for state in row.cells.values())
    counted = lambda state: f" ({count[state]})" if state in count else ""  # noqa: E731
    command = "cargo xtask sweep"
    command += "" if dtypes == list(DTYPES) else f" --types {' '.join(dtypes)}"
    command += "" if samples == SAMPLES else f" --samples {samples}"
    lines = [
        "# Operators and types",
        "",
        wrapped(
            f"PyTorch {torch.__version__.split('+')[0]}'s samples of its operators, exported, run "
            f"on CPU kernels and compared with eager mode. Generated by `{command}`. Samples per "
            f"operator and dtype: at most {samples}. Tolerances are those of the fixtures "
            f"(`tests/export/common.py`). {sum(count.values())} cells:"
        ),
        "",
        *(
            wrapped(f"- {f'`{state}`' if state else 'empty'}: {says}{counted(state)}")
            for state, says in LEGEND.items()
        ),
        "",
        "| operator | " + " | ".join(dtypes) + " |",
        "|---" * (len(dtypes) + 1) + "|",
    ]
    for row in sorted(rows, key=lambda row: row.name):
        if any(state != "–" for state in row.cells.values()):
            lines.append(
                f"| `{row.name}` | " + " | ".join(row.cells.get(name, "") for name in dtypes) + " |"
            )
    names = {row.name for row in rows if "open" in row.cells.values()}
    lines += ["", "Reasons for `open`:", "", *grouped({name: EXPLAINED[name][1] for name in names})]
    names = {row.name for row in rows if {"no kernel", "refused"} & set(row.cells.values())}
    known = grouped({name: HOLES[name] for name in names if name in HOLES})
    if known:
        lines += ["", "Reasons for `refused` and `no kernel`:", "", *known]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
