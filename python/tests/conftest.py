"""Helpers of the tests: fixtures of the repository and their expected outputs."""

import json
from pathlib import Path
from typing import Any, Iterator

import pytest

import torchlet
from torchlet import _torchlet

FIXTURES = Path(__file__).parents[2] / "tests" / "fixtures"


def fixture(name: str) -> Path:
    """Returns the path of a fixture."""
    return FIXTURES / name


def entries(*folders: str) -> list[dict[str, Any]]:
    """Returns the manifest's entries in these folders, except those for unsupported backends."""
    with open(FIXTURES / "manifest.json", encoding="utf-8") as file:
        manifest = json.load(file)
    return [
        entry
        for entry in manifest
        if entry["file"].split("/")[0] in folders
        and not set(entry["backends"]) - {"XnnpackBackend"}
    ]


def cases(native: _torchlet.Module) -> Iterator[tuple[str, list[Any], list[Any]]]:
    """Yields method, inputs and expected outputs of each test case of a program."""
    for method in native.method_names():
        for index in range(native.test_case_count(method)):
            inputs, expected = native.test_case(method, index)
            yield method, inputs, expected


def assert_close(found: list[Any], expected: list[Any], rtol: float, atol: float) -> None:
    """Asserts that outputs match the expected ones."""
    assert len(found) == len(expected)
    for value, wanted in zip(found, expected):
        if isinstance(wanted, torchlet.Tensor):
            distance, mismatches = value.compare(wanted, rtol, atol)
            assert mismatches == 0, f"{mismatches} of {value.numel} differ, by {distance} at most"
        else:
            assert value == wanted


@pytest.fixture
def digits() -> torchlet.Module:
    """The digits classifier."""
    return torchlet.Module(fixture("digits/digits.pte"))


@pytest.fixture
def image() -> Any:
    """An image of a 2, as an array."""
    numpy = pytest.importorskip("numpy")
    return numpy.load(fixture("digits/image_2.npy"))
