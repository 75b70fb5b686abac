"""Writes programs that torchlet refuses to load: `fixtures/refused/<operator>.pte`.

Each calls a supported operator in an unsupported dtype (complex).

    python refused.py
"""

from __future__ import annotations

from typing import Any, Callable, Iterator

from common import FIXTURES, Method, lower, seed

import torch
from op_cases.table import module_of

FOLDER = "refused"


def of_complex(run: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a complex function so that inputs and outputs are pairs of real values."""

    def pairs(*inputs: torch.Tensor) -> Any:
        outputs = run(*(torch.view_as_complex(pair) for pair in inputs))
        several = outputs if isinstance(outputs, tuple) else (outputs,)
        return tuple(
            torch.view_as_real(output) if output.is_complex() else output for output in several
        )

    return pairs


def programs() -> Iterator[tuple[str, Callable[..., Any], int]]:
    """Yields the operator's name, the function and its number of matrix inputs."""
    yield "addmm", lambda x, y: torch.addmm(x, x, y), 2
    yield "cumprod", lambda x: x.cumprod(0), 1
    yield "pow", lambda x: torch.pow(x, 2.5), 1
    yield "prod", lambda x: x.prod(0), 1
    yield "cumsum", lambda x: x.cumsum(0), 1
    yield "linalg_eig", lambda x: tuple(torch.linalg.eig(x)), 1
    yield "linalg_eigvals", torch.linalg.eigvals, 1
    yield "linalg_ldl_factor_ex", lambda x: tuple(torch.linalg.ldl_factor_ex(x))[0], 1
    yield "linalg_inv_ex", lambda x: torch.linalg.inv_ex(x)[0], 1


def main() -> None:
    (FIXTURES / FOLDER).mkdir(exist_ok=True)
    for stale in (FIXTURES / FOLDER).glob("*.pte"):
        stale.unlink()
    for name, run, count in programs():
        seed()
        inputs = tuple(torch.randn(3, 3, 2) for _ in range(count))
        program = lower({"forward": Method(module_of(of_complex(run)), [inputs])})
        (FIXTURES / FOLDER / f"{name}.pte").write_bytes(program.buffer)


if __name__ == "__main__":
    main()
