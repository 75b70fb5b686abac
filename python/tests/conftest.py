"""What the tests share: the fixtures of the repository, and their expected outputs."""

import json
from pathlib import Path
from typing import Any, Iterator

import pytest

import torchlet
from torchlet import _torchlet

FIXTURES = Path(__file__).parents[2] / "tests" / "fixtures"


def fixture(name: str) -> Path:
    """The path of a fixture."""
    return FIXTURES / name


def entries(*folders: str) -> list[dict[str, Any]]:
    """The entries of the manifest in these folders, without delegates that need other backends."""
    with open(FIXTURES / "manifest.json", encoding="utf-8") as file:
        manifest = json.load(file)
    return [
        entry
        for entry in manifest
        if entry["file"].split("/")[0] in folders
        and not set(entry["backends"]) - {"XnnpackBackend"}
    ]


def cases(native: _torchlet.Module) -> Iterator[tuple[str, list[Any], list[Any]]]:
    """Method, inputs and expected outputs of every test case of a program."""
    for method in native.method_names():
        for index in range(native.test_case_count(method)):
            inputs, expected = native.test_case(method, index)
            yield method, inputs, expected


def assert_close(found: list[Any], expected: list[Any], rtol: float, atol: float) -> None:
    """Asserts that outputs are the expected ones."""
    assert len(found) == len(expected)
    for value, wanted in zip(found, expected):
        if isinstance(wanted, torchlet.Tensor):
            distance, mismatches = value.compare(wanted, rtol, atol)
            assert mismatches == 0, f"{mismatches} of {value.numel} differ, by {distance} at most"
        else:
            assert value == wanted


@pytest.fixture
def digits() -> torchlet.Module:
    """The classifier of handwritten digits."""
    return torchlet.Module(fixture("digits/digits.pte"))


@pytest.fixture
def image() -> Any:
    """A picture of a 2, as an array."""
    numpy = pytest.importorskip("numpy")
    return numpy.load(fixture("digits/image_2.npy"))
