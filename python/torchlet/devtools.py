"""What PyTorch computes on the way, recorded for `torchlet diff`: for those who export programs.

    program = to_edge_transform_and_lower(exported, generate_etrecord=True)
    executorch = program.to_executorch()
    torchlet.devtools.record(executorch.get_etrecord(), [image], "recorded.npz")

It needs the packages `executorch`, `torch` and `numpy`, which nothing else of this package does.
"""

import os
from collections.abc import Sequence
from typing import Any, Union

__all__ = ["record"]


def record(
    etrecord: Any, inputs: Sequence[Any], path: Union[str, "os.PathLike[str]"], method: str = "forward"
) -> list[str]:
    """Runs the exported graph of an ETRecord (an object, or a file) in PyTorch, and writes what its nodes compute as an archive of arrays.

    An array is called `instruction_4`, or `instruction_4.1` for the second result, after the instruction of the program that computes
    it: debug handles tell which node that is. What the program returns is called `output_0` and so on. Gives the names.
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
        raise ValueError(f"the ETRecord does not know which instructions of {method!r} its nodes became")
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
    """What nodes compute, by debug handle and in order, and what the graph returns."""
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


def _nodes_of_instructions(handles: dict[Any, Any], results: dict[int, list[Any]]) -> dict[int, Any]:
    """What each instruction computes. Several that share a handle are its nodes in order; where their numbers differ, the last is the last."""
    shared: dict[int, list[int]] = {}
    for instruction, found in handles.items():
        # A delegate has the handles of all of its nodes: what it computes is not told by them.
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
    """A tensor or number as an array; none for what is neither."""
    import numpy
    import torch

    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        return (value.float() if value.dtype == torch.bfloat16 else value).numpy()
    return numpy.asarray(value) if isinstance(value, (bool, int, float)) else None
