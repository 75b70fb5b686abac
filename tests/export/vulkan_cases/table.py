"""Building blocks of the case tables for the Vulkan delegate."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Callable, Iterable, Iterator, Sequence

from op_cases.table import Case, Inputs, Run

Quantize = Callable[[Any, Inputs], Any]


@dataclass
class Delegated(Case):
    """A case that runs in Vulkan delegates entirely, except for the operators in `outside`."""

    options: dict[str, Any] = field(default_factory=dict)
    """Compile options of the partitioner."""
    outside: Sequence[str] = ()
    """Operators that stay on the CPU."""
    delegates: int = 1
    """Number of delegates in all methods together."""
    quantize: Quantize | None = None
    """Maps the module and its first inputs to the module to export and compare with."""
    methods: dict[str, tuple[Run, Sequence[Inputs]]] = field(default_factory=dict)
    """Methods in addition to `forward`."""
    config: Any = None
    """Serialization options."""
    sequence: bool = False
    """Whether the inputs are consecutive calls on the same state."""
    note: str = ""
    refused: bool = False
    """Whether the delegate must reject the file as ambiguous; the manifest omits it then."""


def case(name: str, run: Run, *inputs: Inputs, **options: Any) -> Delegated:
    return Delegated(name, run, inputs, **options)


def halved(cases: Iterable[Delegated]) -> Iterator[Delegated]:
    """Each case twice: as it is, and in half precision on the device."""
    for each in cases:
        yield each
        yield half(each)


def half(each: Delegated) -> Delegated:
    return replace(each, name=f"{each.name}_fp16", options=each.options | {"force_fp16": True})
