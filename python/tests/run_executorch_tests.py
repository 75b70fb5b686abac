"""Runs ExecuTorch's own tests of its Python runtime, with the import swapped.

    python run_executorch_tests.py CHECKOUT [arguments of pytest]

CHECKOUT is a clone of pytorch/executorch. Requires the packages `executorch` and `torch`, which
export the programs.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

TESTS = [
    "extension/pybindings/test/test_backend_pybinding.py",
    "extension/pybindings/test/test_pybindings.py",
    "runtime/test/test_runtime.py",
    "runtime/test/test_runtime_etdump_gen.py",
    "runtime/test/test_runtime_xnnpack.py",
]

# The imports and their replacements.
SWAPS = [
    (r"^(\s*)from executorch\.runtime import", r"\1from torchlet.runtime import"),
    (
        r"^(\s*)from executorch\.extension\.pybindings import portable_lib",
        r"\1from torchlet import portable_lib",
    ),
]

# Without it, the exporter rejects quantized operators for any runtime.
PREPARE = "import executorch.kernels.quantized\n"


def main() -> int:
    """Copies the tests, replaces their imports, and runs the copies."""
    checkout = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        for name in TESTS:
            text = (checkout / name).read_text(encoding="utf-8")
            swapped = 0
            for pattern, replacement in SWAPS:
                text, count = re.subn(pattern, replacement, text, flags=re.MULTILINE)
                swapped += count
            if not swapped:
                sys.exit(f"{name} imports nothing that could be swapped")
            (Path(folder) / Path(name).name).write_text(PREPARE + text, encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", folder, *sys.argv[2:]]
        return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
