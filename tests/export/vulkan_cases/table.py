"""The words in which the tables of cases for the Vulkan delegate are written."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Callable, Iterable, Iterator, Sequence

from op_cases.table import Case, Inputs, Run

Quantize = Callable[[Any, Inputs], Any]


@dataclass
class Delegated(Case):
    """A case whose operators run in Vulkan delegates: all of them, unless `outside` says otherwise."""

    options: dict[str, Any] = field(default_factory=dict)
    """Compile options of the partitioner."""
    outside: Sequence[str] = ()
    """The operators that stay with the CPU."""
    delegates: int = 1
    """How many delegates there are in all methods."""
    quantize: Quantize | None = None
    """From the module and its first inputs to the module that is exported, and that expected outputs come from."""
    methods: dict[str, tuple[Run, Sequence[Inputs]]] = field(default_factory=dict)
    """Methods beside `forward`."""
    config: Any = None
    """How the file is written."""
    sequence: bool = False
    """Whether the inputs are steps of one history."""
    note: str = ""
    refused: bool = False
    """Whether the delegate refuses the file, since it cannot tell what it means; the manifest does not list it then."""


def case(name: str, run: Run, *inputs: Inputs, **options: Any) -> Delegated:
    return Delegated(name, run, inputs, **options)


def halved(cases: Iterable[Delegated]) -> Iterator[Delegated]:
    """Each case, and the same in half precision on the device."""
    for each in cases:
        yield each
        yield half(each)


def half(each: Delegated) -> Delegated:
    return replace(each, name=f"{each.name}_fp16", options=each.options | {"force_fp16": True})
