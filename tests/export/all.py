"""Regenerates every fixture and the manifest.

pip install -r requirements.txt
python all.py
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
FIXTURES = HERE.parent / "fixtures"
SCRIPTS = (
    "digits.py",
    "tinyml.py",
    "programs.py",
    "flow.py",
    "models.py",
    "formats.py",
    "pt2.py",
    "lazy.py",
    "operators.py",
    "training.py",
    "language.py",
    "vulkan.py",
    "xnnpack.py",
    "vgf.py",
    "refused.py",
)


def clear() -> None:
    """Deletes everything but the README that explains the fixtures."""
    for entry in FIXTURES.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        elif entry.name != "README.md":
            entry.unlink()


def main() -> None:
    clear()
    for script in SCRIPTS:
        print(script, flush=True)
        subprocess.run([sys.executable, str(HERE / script)], check=True)


if __name__ == "__main__":
    main()
