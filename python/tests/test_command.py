"""Tests of `python -m torchlet`, and of pickled errors."""

import pickle
import subprocess
import sys
from typing import Any

import pytest
from conftest import fixture

import torchlet


def run(*arguments: str) -> Any:
    command = [sys.executable, "-m", "torchlet", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_command_runs_programs() -> None:
    digits = str(fixture("digits/digits.pte"))
    result = run("run", digits, "--image", str(fixture("digits/image_2.png")))
    assert result.returncode == 0 and "2" in result.stdout
    assert "forward" in run("inspect", digits).stdout
    assert run("verify", str(fixture("digits/digits.bpte"))).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "status", "where", "what"),
    [
        (["--help"], 0, "stdout", "Usage"),
        (["frobnicate"], 2, "stderr", "frobnicate"),
        ([], 2, "stderr", "Usage"),
        (["run", "none.pte", "--random"], 1, "stderr", "none.pte"),
    ],
)
def test_the_command_exits_with_its_status(
    arguments: list[str], status: int, where: str, what: str
) -> None:
    result = run(*arguments)
    assert result.returncode == status and what in getattr(result, where)


def test_imports_are_lazy() -> None:
    code = (
        "import sys, torchlet, torchlet.runtime, torchlet.portable_lib\n"
        f"torchlet.Module({str(fixture('digits/digits.pte'))!r})(torchlet.Tensor.zeros([1, 1, 8, 8]))\n"
        "assert not {'torch', 'numpy', 'jax'} & set(sys.modules), sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_errors_survive_pickling() -> None:
    error = torchlet.Error("something went wrong", 0x12)
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.code, copy.name) == (str(error), 0x12, "InvalidArgument")
    assert str(error) == "something went wrong (error 0x12: InvalidArgument)"
    assert isinstance(error, RuntimeError)
