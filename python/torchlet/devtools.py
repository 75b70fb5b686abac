"""Records PyTorch's intermediate values for `torchlet diff`.

    program = to_edge_transform_and_lower(exported, generate_etrecord=True)
    executorch = program.to_executorch()
    torchlet.devtools.record(executorch.get_etrecord(), [image], "recorded.npz")

This module requires `executorch`, `torch` and `numpy`; the rest of the package does not.
"""

import os
from collections.abc import Sequence
from typing import Any, Union

__all__ = ["record"]


def record(
    etrecord: Any,
    inputs: Sequence[Any],
    path: Union[str, "os.PathLike[str]"],
    method: str = "forward",
) -> list[str]:
    """Runs the exported graph of an ETRecord (object or file) in PyTorch, and saves all values.

    The values are written to a `.npz` archive. An array is named `instruction_4`, or
    `instruction_4.1` for the second result, after the program's instruction that computes it, which
    debug handles map to graph nodes. Outputs are named `output_0`, `output_1`, ... Returns the
    names.
    """
    import numpy
    from torch.utils import _pytree

    if isinstance(etrecord, (str, os.PathLike)):
        from executorch.devtools import parse_etrecord

        etrecord = parse_etrecord(os.fspath(etrecord))
    program = etrecord.edge_dialect_program
    if isinstance(program, dict):
        program = program[method]
    results, outputs = _run(program.module(), list(inputs))
    handles = (etrecord._debug_handle_map or {}).get(method)
    if not handles:
        raise ValueError(f"the ETRecord has no debug handles for the instructions of {method!r}")
    arrays: dict[str, Any] = {}
    for instruction, nodes in _nodes_of_instructions(handles, results).items():
        for index, value in enumerate(_pytree.tree_leaves(nodes)):
            array = _array(value)
            if array is not None:
                arrays[f"instruction_{instruction}" + (f".{index}" if index else "")] = array
    for index, value in enumerate(_pytree.tree_leaves(outputs)):
        array = _array(value)
        if array is not None:
            arrays[f"output_{index}"] = array
    with open(path, "wb") as file:
        numpy.savez(file, **arrays)
    return list(arrays)


def _run(module: Any, inputs: list[Any]) -> tuple[dict[int, list[Any]], Any]:
    """Returns the values of nodes by debug handle, in order, and the outputs of the graph."""
    import operator

    import torch

    results: dict[int, list[Any]] = {}

    class Recorder(torch.fx.Interpreter):
        def run_node(self, node: torch.fx.Node) -> Any:
            value = super().run_node(node)
            handle = node.meta.get("debug_handle")
            if node.op == "call_function" and node.target is not operator.getitem:
                for one in handle if isinstance(handle, (list, tuple)) else [handle]:
                    if one is not None:
                        results.setdefault(int(one), []).append(value)
            return value

    with torch.no_grad():
        outputs = Recorder(module).run(*inputs)
    return results, outputs


def _nodes_of_instructions(
    handles: dict[Any, Any], results: dict[int, list[Any]]
) -> dict[int, Any]:
    """Maps instructions to values.

    Instructions that share a handle match its nodes in order; if their numbers differ, only the
    last ones match.
    """
    shared: dict[int, list[int]] = {}
    for instruction, found in handles.items():
        # A delegate has the handles of all its nodes, so its results are unknown.
        if isinstance(found, (list, tuple)):
            if len(found) != 1:
                continue
            (found,) = found
        shared.setdefault(int(found), []).append(int(instruction))
    nodes = {}
    for handle, instructions in shared.items():
        values = results.get(handle, [])
        if len(values) == len(instructions):
            nodes.update(zip(sorted(instructions), values))
        elif values:
            nodes[max(instructions)] = values[-1]
    return nodes


def _array(value: Any) -> Any:
    """Converts a tensor or number to an array; `None` for other values."""
    import numpy
    import torch

    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        return (value.float() if value.dtype == torch.bfloat16 else value).numpy()
    return numpy.asarray(value) if isinstance(value, (bool, int, float)) else None
