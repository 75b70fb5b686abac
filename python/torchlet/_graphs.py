"""Programs from the graphs of `torch.compile`.

AOTAutograd reduces a graph of Dynamo to functional calls of ATen operators. `Graph` writes these as
an archive of `torch.export.save`, which the runtime reads, and defines how values cross:

- Inputs are the tensors and integers that the calls use. Weights are constants of the program.
- Outputs are the tensors that the calls compute. Sizes are computed here.
- Outputs have the strides that PyTorch computes, and share memory if they do so in PyTorch.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Optional

import torch
from torch import fx
from torch.export import ExportedProgram, ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymIntArgument,
    TensorArgument,
)
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_structure
from torch.utils._sympy.value_ranges import ValueRanges

from torchlet._errors import Error

#: The least bound of a dynamic size.
LEAST_BOUND = 16
#: `ErrorCode::NotSupported`.
NOT_SUPPORTED = 0x10

#: An integer, or an expression over symbols.
Number = Any
#: The values of symbols.
Symbols = dict[Any, int]
#: The smallest and largest values of symbols.
Bounds = dict[Any, tuple[int, int]]


def unsupported(why: str) -> Error:
    """An error for what cannot run here."""
    return Error(why, NOT_SUPPORTED)


def _number(value: Any) -> Number:
    """The integer or expression of an integer of a graph."""
    if isinstance(value, int):
        return value
    expression = value.node.expr
    return expression if expression.free_symbols else int(expression)


def _evaluate(number: Number, symbols: Symbols) -> int:
    return number if isinstance(number, int) else int(number.xreplace(symbols))


def _value(node: Any) -> Any:
    """The value of a node while the graph was traced; a fake tensor, for example."""
    return node.meta.get("val") if isinstance(node, fx.Node) else node


def _storage(tensor: torch.Tensor) -> int:
    """Identifies the memory of a tensor of the trace."""
    return tensor.untyped_storage()._cdata


@dataclass(frozen=True)
class _Layout:
    """Sizes, strides and offset in elements."""

    sizes: tuple[Number, ...]
    strides: tuple[Number, ...]
    offset: Number

    @staticmethod
    def of(tensor: torch.Tensor, base: torch.Tensor) -> _Layout:
        """The layout of a tensor, with an offset from a tensor in the same memory."""
        offset = _number(tensor.storage_offset()) - _number(base.storage_offset())
        sizes = tuple(_number(size) for size in tensor.shape)
        return _Layout(sizes, tuple(_number(stride) for stride in tensor.stride()), offset)

    def view(self, tensor: torch.Tensor, symbols: Symbols) -> torch.Tensor:
        """The view with this layout of a tensor."""
        sizes = [_evaluate(size, symbols) for size in self.sizes]
        strides = [_evaluate(stride, symbols) for stride in self.strides]
        offset = tensor.storage_offset() + _evaluate(self.offset, symbols)
        return tensor.as_strided(sizes, strides, offset)

    def lay_out(self, tensor: torch.Tensor, symbols: Symbols) -> torch.Tensor:
        """A tensor with these strides: the given one if it has them, otherwise a copy."""
        strides = [_evaluate(stride, symbols) for stride in self.strides]
        dims = list(zip(tensor.shape, tensor.stride(), strides))
        if tensor.numel() == 0 or all(size == 1 or own == new for size, own, new in dims):
            return tensor
        # The elements of an expanded dim are one element in memory.
        distinct = [1 if new == 0 else size for size, _, new in dims]
        copy = torch.empty_strided(distinct, strides, dtype=tensor.dtype)
        for dim, size in enumerate(distinct):
            tensor = tensor.narrow(dim, 0, size)
        return copy.copy_(tensor).expand([size for size, _, _ in dims])


@dataclass(frozen=True)
class _View:
    """An output in the memory of an argument or of a result of the program."""

    index: int
    is_argument: bool
    #: `None` for all of it.
    layout: Optional[_Layout]


class Graph:
    """A functional graph of ATen calls.

    Raises `Error` if a program cannot express it.

    Arguments:
        module: The graph.
        constants: The indices of arguments that do not change between calls.
    """

    def __init__(self, module: fx.GraphModule, constants: Sequence[int]) -> None:
        _check(module)
        self._module = module
        self._placeholders = list(module.graph.find_nodes(op="placeholder"))
        #: The nodes that the program returns, with the layouts that PyTorch gives them.
        self._results: dict[fx.Node, _Layout] = {}
        self._outputs = self._plan_outputs()
        used = _ancestors(self._results)
        self._nodes = [node for node in module.graph.nodes if node in used]
        indices = {index for index, node in enumerate(self._placeholders) if node in used}
        #: The indices of the arguments that are constants of the program.
        self.weights = sorted(indices.intersection(constants))
        #: The indices of the arguments that are inputs of the program.
        self.inputs = sorted(indices.difference(constants))
        self._sources = self._plan_symbols()
        self._check_symbols()

    @property
    def is_trivial(self) -> bool:
        """Whether there is nothing to compute."""
        return not self._results

    def _plan_outputs(self) -> list[Any]:
        """Returns the outputs as views, expressions or constants."""
        (output,) = self._module.graph.find_nodes(op="output")
        outputs = list(output.args[0])
        first: dict[int, fx.Node] = {}
        for node in self._module.graph.nodes:
            if isinstance(_value(node), torch.Tensor):
                first.setdefault(_storage(_value(node)), node)
        tensors = {node for node in outputs if isinstance(_value(node), torch.Tensor)}
        sharing = Counter(_storage(_value(node)) for node in tensors)
        plans: list[Any] = []
        for node in outputs:
            value = _value(node)
            if isinstance(value, torch.Tensor):
                storage = _storage(value)
                plans.append(self._plan_tensor(node, first[storage], sharing[storage] > 1))
            elif isinstance(value, torch.SymInt):
                plans.append(_number(value))
            elif isinstance(value, (torch.SymFloat, torch.SymBool)):
                raise unsupported(f"an output of type {type(value).__name__}")
            else:
                plans.append(value)
        return plans

    def _plan_tensor(self, node: fx.Node, root: fx.Node, shares: bool) -> _View:
        """Plans an output. `root` is the first node in the same memory."""
        value, whole = _value(node), _value(root)
        if value.dtype != whole.dtype:
            if shares and root.op != "placeholder":
                raise unsupported("outputs of different dtypes that share memory")
            # AOTAutograd itself makes views of inputs.
            root, whole, shares = node, value, False
        layout = None if node is root else _Layout.of(value, whole)
        if root.op == "placeholder":
            return _View(self._placeholders.index(root), True, layout)
        if not shares and not _is_at_least(value.numel(), whole.numel()):
            # The program returns less than the memory that the output is a part of.
            root, whole, layout = node, value, None
        self._results.setdefault(root, _Layout.of(whole, whole))
        return _View(list(self._results).index(root), False, layout)

    def _plan_symbols(self) -> dict[Any, tuple[int, Optional[int]]]:
        """Returns where symbols are found: an argument, and its dim if it is a tensor."""
        sources: dict[Any, tuple[int, Optional[int]]] = {}
        for index, node in enumerate(self._placeholders):
            value = _value(node)
            if isinstance(value, torch.SymInt):
                numbers: list[tuple[Any, Optional[int]]] = [(value, None)]
            elif isinstance(value, torch.Tensor):
                numbers = [(size, dim) for dim, size in enumerate(value.shape)]
            else:
                continue
            for number, dim in numbers:
                expression = _number(number)
                if getattr(expression, "is_symbol", False):
                    sources.setdefault(expression, (index, dim))
        return sources

    def _check_symbols(self) -> None:
        """Raises `Error` if an output depends on a number that is no argument."""
        views = [plan.layout for plan in self._outputs if isinstance(plan, _View) and plan.layout]
        numbers = [plan for plan in self._outputs if not isinstance(plan, _View)]
        numbers += [number for it in views for number in (*it.sizes, *it.strides, it.offset)]
        numbers += [stride for it in self._results.values() for stride in it.strides]
        for number in numbers:
            if getattr(number, "free_symbols", set()) - set(self._sources):
                raise unsupported("outputs whose sizes depend on the values of tensors")

    def symbols(self, args: Sequence[Any]) -> Symbols:
        """The values of the symbols in a call."""
        return {
            symbol: args[index] if dim is None else args[index].shape[dim]
            for symbol, (index, dim) in self._sources.items()
        }

    def outputs(
        self, args: Sequence[Any], results: Sequence[torch.Tensor], symbols: Symbols
    ) -> list[Any]:
        """The outputs of a call."""
        layouts = self._results.values()
        results = [layout.lay_out(result, symbols) for layout, result in zip(layouts, results)]
        outputs: list[Any] = []
        for plan in self._outputs:
            if isinstance(plan, _View):
                tensor = (args if plan.is_argument else results)[plan.index]
                whole = plan.layout is None
                outputs.append(tensor if whole else plan.layout.view(tensor, symbols))
            elif hasattr(plan, "free_symbols"):
                outputs.append(_evaluate(plan, symbols))
            else:
                outputs.append(plan)
        return outputs

    def bounds(self, symbols: Symbols, known: Bounds) -> Bounds:
        """Bounds of the symbols that include the given values and the known bounds.

        Bounds are powers of two, so that the number of programs for growing sizes is logarithmic.
        """
        bounds: Bounds = {}
        for symbol, value in symbols.items():
            low, high = self._declared(symbol)
            bound = max(LEAST_BOUND, 1 << max(abs(value) - 1, 1).bit_length())
            old_low, old_high = known.get(symbol, (0, 0))
            bounds[symbol] = (max(low, min(-bound, old_low)), min(high, max(bound, old_high)))
        return bounds

    def _declared(self, symbol: Any) -> tuple[int, int]:
        """The range of a symbol in the trace."""
        limit = 2**31 - 1
        index, dim = self._sources[symbol]
        value = _value(self._placeholders[index])
        number = value if dim is None else value.shape[dim]
        declared = number.node.shape_env.var_to_range[symbol]
        low = -limit if declared.lower < -limit else int(declared.lower)
        high = limit if declared.upper > limit else int(declared.upper)
        return low, high

    def archive(self, weights: Sequence[torch.Tensor], bounds: Bounds) -> bytes:
        """Writes the program for these weights, with these bounds of the symbols.

        Raises `Error` if `torch.export` cannot write a call.
        """
        file = io.BytesIO()
        try:
            torch.export.save(self._program(weights, bounds), file)
        except Exception as error:
            raise unsupported(f"torch.export cannot write the graph: {error}") from error
        return file.getvalue()

    def _program(self, weights: Sequence[torch.Tensor], bounds: Bounds) -> ExportedProgram:
        graph = fx.Graph()
        copies: dict[fx.Node, fx.Node] = {}
        inputs: list[InputSpec] = []
        state: dict[str, torch.Tensor] = {}
        constants: dict[str, torch.Tensor] = {}
        root: dict[str, Any] = {}
        # Placeholders are first in a graph.
        for index in self.weights:
            node = self._placeholders[index]
            copies[node] = _copy(graph, node)
            name = copies[node].name
            state[name] = _compact(weights[len(state)])
            argument = TensorArgument(name)
            inputs.append(InputSpec(InputKind.BUFFER, argument, name, persistent=True))
        for node in self._nodes:
            if node.op != "get_attr":
                continue
            value = getattr(self._module, node.target)
            if isinstance(value, torch.Tensor):
                copies[node] = graph.placeholder(node.name)
                copies[node].meta = {"val": _value(node)}
                name = copies[node].name
                constants[name] = _compact(value)
                inputs.append(InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(name), name))
            else:
                root[node.target] = _plain(value)
        for index in self.inputs:
            node = self._placeholders[index]
            copies[node] = _copy(graph, node)
            is_tensor = isinstance(_value(node), torch.Tensor)
            argument = (TensorArgument if is_tensor else SymIntArgument)(copies[node].name)
            inputs.append(InputSpec(InputKind.USER_INPUT, argument, None))
        for node in self._nodes:
            if node not in copies:
                copies[node] = _copy(graph, node, copies.__getitem__)
        results = [copies[node] for node in self._results]
        graph.output(tuple(results))
        outputs = [
            OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(node.name), None) for node in results
        ]
        taken = tree_structure(((0,) * len(self.inputs), {}))
        given = tree_structure((0,) * len(results))
        call = ModuleCallSignature(inputs=[], outputs=[], in_spec=taken, out_spec=given)
        return ExportedProgram(
            root=root,
            graph=graph,
            graph_signature=ExportGraphSignature(inputs, outputs),
            state_dict=state,
            range_constraints={
                symbol: ValueRanges(low, high) for symbol, (low, high) in bounds.items()
            },
            module_call_graph=[ModuleCallEntry("", call)],
            constants=constants,
        )


def _copy(
    graph: fx.Graph, node: fx.Node, argument: Callable[[fx.Node], fx.Node] = lambda node: node
) -> fx.Node:
    """Copies a node without its metadata of other compilers, which `torch.export` cannot write."""
    copy = graph.node_copy(node, argument)
    if node.target is torch.ops.prims.convert_element_type.default:
        # AOTAutograd makes these calls for numbers that it converts to tensors.
        operand, dtype = copy.args
        copy.target = torch.ops.aten._to_copy.default
        copy.args, copy.kwargs = (operand,), {"dtype": dtype}
    copy.meta = {"val": node.meta["val"]} if "val" in node.meta else {}
    return copy


def _compact(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor with the same elements that has all of its memory, in row-major order."""
    tensor = tensor.detach().contiguous()
    return tensor.clone() if tensor.untyped_storage().nbytes() != tensor.nbytes else tensor


def _plain(module: Any) -> Any:
    """A copy of a subgraph with the metadata that `torch.export` writes."""
    if not isinstance(module, fx.GraphModule):
        return module
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in module.graph.nodes:
        copies[node] = _copy(graph, node, copies.__getitem__)
    parts = {name: _plain(part) for name, part in module.named_children()}
    tensors = {
        node.target: getattr(module, node.target)
        for node in module.graph.find_nodes(op="get_attr")
        if node.target not in parts
    }
    return fx.GraphModule({**parts, **tensors}, graph)


def specialize(module: fx.GraphModule, args: Sequence[Any]) -> fx.GraphModule:
    """The graph with the sizes and numbers of these arguments as constants.

    It has the same arguments. Raises `Error` if PyTorch cannot trace it again.
    """
    trace = make_fx(fx.Interpreter(module).run, tracing_mode="fake", _allow_non_fake_inputs=True)
    try:
        with torch.no_grad():
            return trace(*args)
    except Exception as error:
        raise unsupported(f"the graph cannot be traced for fixed sizes: {error}") from error


def varying(module: fx.GraphModule) -> list[int]:
    """The indices of the arguments that are numbers, or tensors of dynamic shapes."""
    indices = []
    for index, node in enumerate(module.graph.find_nodes(op="placeholder")):
        value = _value(node)
        numbers = [*value.shape, *value.stride()] if isinstance(value, torch.Tensor) else [value]
        if any(isinstance(number, (torch.SymInt, torch.SymFloat)) for number in numbers):
            indices.append(index)
    return indices


def _is_at_least(size: Any, other: Any) -> bool:
    """Whether a size of the trace is at least another one, for the traced inputs."""
    hints = [number if isinstance(number, int) else number.node.hint for number in (size, other)]
    return None not in hints and hints[0] >= hints[1]


def _ancestors(results: Sequence[fx.Node]) -> set[fx.Node]:
    """The nodes from which the results are computed, and these."""
    found: set[fx.Node] = set()
    pending = list(results)
    while pending:
        node = pending.pop()
        if node not in found:
            found.add(node)
            pending.extend(node.all_input_nodes)
    return found


def _check(module: fx.GraphModule) -> None:
    """Raises `Error` for calls whose results would differ from those of PyTorch."""
    for part in module.modules():
        if not isinstance(part, fx.GraphModule):
            continue
        for node in part.graph.nodes:
            if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
                raise unsupported(f"random numbers of {node.target}")
            values = _value(node)
            if node.op == "placeholder" and isinstance(values, torch.SymFloat):
                raise unsupported("a Python float that varies between calls; pass it as a tensor")
            if node.target in _FAST_PATHS:
                raise unsupported(
                    f"{node.target}; call torch.backends.mha.set_fastpath_enabled(False)"
                )
            for value in values if isinstance(values, (list, tuple)) else [values]:
                _check_value(value)


#: Calls of the fast path of `torch.nn.TransformerEncoderLayer` and `torch.nn.MultiheadAttention`.
_FAST_PATHS = (
    torch.ops.aten._transformer_encoder_layer_fwd.default,
    torch.ops.aten._native_multi_head_attention.default,
)


def _check_value(value: Any) -> None:
    if not isinstance(value, torch.Tensor):
        return
    if value.device.type != "cpu":
        raise unsupported(f"a tensor on device {value.device}; expected all on cpu")
    if value.layout != torch.strided:
        raise unsupported(f"a tensor with the layout {value.layout}; make it dense first")
