"""`torch.compile(model, backend="torchlet")`.

Dynamo calls `compile_graph` for each graph that it captures. AOTAutograd makes the graph
functional, and runs what it cannot contain: it writes results into inputs that the model
overwrites, and derives outputs that are views of inputs. What remains is a `Graph`, which a
`Program` runs.

Parameters and buffers that the graph does not overwrite are constants of the program, so that it
can rearrange them for its kernels once. A call compares their identities, addresses and version
counters with those of the program:

- Other tensors, such as those of another instance of the module, get a program of their own.
- Changed tensors get a new program. Those that change again after its first call are inputs from
  then on.

A write that leaves the version counter as it is, through `.data` or `.numpy()`, is not noticed.
With the option `freeze=False`, all tensors are passed at each call.
"""

from __future__ import annotations

import threading
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Optional

import torch
from torch import fx
from torch._decomp import get_decompositions
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.exc import TorchDynamoException
from torch._guards import TracingContext

from torchlet import _arrays
from torchlet._errors import Error, invalid_argument
from torchlet._graphs import Bounds, Graph, Symbols, specialize, unsupported, varying
from torchlet._module import Module

#: The number of programs for fixed sizes of a dynamic graph.
MAX_SPECIALIZED = 16


@dataclass(frozen=True)
class _Options:
    """Options of the backend, and their defaults."""

    #: `backend` of `Module`.
    device: str = "auto"
    #: Whether graphs that cannot run here run in PyTorch.
    fallback: bool = False
    #: Whether parameters and buffers are constants of the programs.
    freeze: bool = True
    #: `memory_limit` of `Module`.
    memory_limit: Optional[int] = None
    #: Number of kernel threads; by default that of PyTorch.
    threads: Optional[int] = None

    @staticmethod
    def parse(mode: Optional[str], options: Optional[Mapping[str, Any]]) -> _Options:
        """Raises `Error` for unknown options and values of other types."""
        if mode not in (None, "default"):
            raise invalid_argument(
                f"mode={mode!r} is not supported by the backend 'torchlet'; use options={{...}}"
            )
        given = dict(options or {})
        types = {"device": str, "fallback": bool, "freeze": bool, "memory_limit": int}
        types["threads"] = int
        known = [option.name for option in fields(_Options)]
        for name, value in given.items():
            if name not in known:
                raise invalid_argument(
                    f"unknown option {name!r} of the backend 'torchlet'; expected one of "
                    + ", ".join(repr(option) for option in known)
                )
            if type(value) is not types[name]:
                raise invalid_argument(
                    f"option {name!r} of the backend 'torchlet': expected {types[name].__name__}, "
                    f"found {value!r}"
                )
            if type(value) is int and value < 1:
                raise invalid_argument(
                    f"option {name!r} of the backend 'torchlet': expected at least 1, found {value}"
                )
        return _Options(**given)


def compile_graph(
    module: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: Optional[str] = None,
    options: Optional[Mapping[str, Any]] = None,
    name: Optional[str] = None,
) -> Callable[..., Any]:
    """Compiles a graph of Dynamo for inference: the backend `torchlet` of `torch.compile`.

    Returns a function that runs the graph. Errors are raised when it is called: those that are
    raised here would reach the user inside another exception.

    Arguments:
        module: The graph.
        example_inputs: Its inputs.
        mode: Must be the default.
        options: `device` (`"auto"`, `"cpu"`, `"vulkan"`), `fallback`, `freeze`, `threads` and
            `memory_limit`.
        name: The name of the compiled region; it has no effect here.
    """
    try:
        parsed = _Options.parse(mode, options)
    except Error as error:
        return _raises(error)
    try:
        _check_gradients(module)
        backend = aot_autograd(
            fw_compiler=_refuse_training,
            inference_compiler=lambda traced, _: _compile_traced(traced, parsed),
            decompositions=_decompositions(),
        )
        compiled = backend(module, example_inputs)
    except Error as error:
        compiled = _raises(error)
    except TorchDynamoException:
        # Dynamo asks for another graph.
        raise
    except Exception as failure:
        error = unsupported(f"AOTAutograd cannot trace the graph: {failure}")
        error.__cause__ = failure
        compiled = _raises(error)
    return _Fallback(module, compiled) if parsed.fallback else _Strict(compiled)


def _raises(error: Error) -> Callable[..., Any]:
    """A function that raises an error."""

    def run(*_: Any) -> Any:
        # One exception would collect the tracebacks of all calls.
        raise Error(error.sentence, error.code) from error.__cause__

    return run


class _Strict:
    """A compiled graph whose errors name the option `fallback`."""

    def __init__(self, compiled: Callable[..., Any]) -> None:
        self._compiled = compiled

    def __call__(self, *args: Any) -> Any:
        try:
            return self._compiled(*args)
        except Error as error:
            raise Error(
                f"backend 'torchlet' of torch.compile: {error.sentence}. With "
                'options={"fallback": True}, graphs that fail run in PyTorch',
                error.code,
            ) from error


class _Fallback:
    """A compiled graph that runs in PyTorch if it fails."""

    def __init__(self, module: fx.GraphModule, compiled: Callable[..., Any]) -> None:
        self._module = module
        self._compiled = compiled
        self._has_warned = False

    def __call__(self, *args: Any) -> Any:
        try:
            return self._compiled(*args)
        except Error as error:
            reason = error
        # Nothing was written to the inputs: that happens after all computations.
        if not self._has_warned:
            self._has_warned = True
            warnings.warn(f"torchlet: a graph runs in PyTorch: {reason}", stacklevel=2)
        return self._module.forward(*args)


def _check_gradients(module: fx.GraphModule) -> None:
    """Raises `Error` if an output requires gradients."""
    (output,) = module.graph.find_nodes(op="output")
    for node in output.all_input_nodes:
        value = node.meta.get("example_value")
        if isinstance(value, torch.Tensor) and value.requires_grad:
            _refuse_training()


def _refuse_training(*_: Any) -> Any:
    raise unsupported(
        "an output requires gradients, and only inference is supported; call the model within "
        "torch.inference_mode() or torch.no_grad()"
    )


def _decompositions() -> dict[Any, Any]:
    """Decompositions to core ATen operators."""
    aten = torch.ops.aten
    # AOTAutograd makes these calls where a buffer is overwritten.
    functional = [aten._native_batch_norm_legit_functional, aten._batch_norm_with_update_functional]
    return {**torch.export.default_decompositions(), **get_decompositions(functional)}


def _compile_traced(traced: fx.GraphModule, options: _Options) -> Callable[..., Any]:
    """Compiles a functional graph."""
    constants: list[int] = []
    context = TracingContext.try_get()
    metadata = None if context is None else context.fw_metadata
    if options.freeze and metadata is not None:
        inputs = metadata.input_info
        # Tensor subclasses are several inputs of the graph each.
        if len(inputs) == len(traced.graph.find_nodes(op="placeholder")):
            static = metadata.static_input_indices
            constants = [index for index in static if not inputs[index].mutates_data]
    if varying(traced):
        return Dynamic(traced, constants, options)
    return Program(traced, constants, options)


class Dynamic:
    """A functional graph with dynamic sizes or numbers.

    If a program cannot have them as variables, for instance because floats are computed from sizes,
    each combination of sizes has a program of its own.
    """

    _boxed_call = True

    def __init__(
        self, traced: fx.GraphModule, constants: Sequence[int], options: _Options
    ) -> None:
        self._traced = traced
        self._constants = constants
        self._options = options
        self._varying = varying(traced)
        self._general: Optional[Program] = None
        self._special: OrderedDict[tuple[Any, ...], Program] = OrderedDict()
        self._lock = threading.Lock()
        try:
            self._general = Program(traced, constants, options)
        except Error:
            pass

    def __call__(self, args: list[Any]) -> list[Any]:
        general = self._general
        if general is not None:
            try:
                return general(args)
            except Error:
                if general.can_run:
                    raise
                self._general = None
        return self._specialized(args)(args)

    def _specialized(self, args: Sequence[Any]) -> Program:
        """Returns the program for the sizes and numbers of a call."""
        key = tuple(_identify(args[index]) for index in self._varying)
        with self._lock:
            program = self._special.pop(key, None)
            if program is None:
                program = Program(specialize(self._traced, args), self._constants, self._options)
            self._special[key] = program
            if len(self._special) > MAX_SPECIALIZED:
                self._special.popitem(last=False)
        return program


def _identify(value: Any) -> Any:
    """A key for a number, or for the shape of a tensor."""
    if isinstance(value, torch.Tensor):
        return value.shape, value.stride()
    # Zeros of both signs are equal.
    return value.hex() if isinstance(value, float) else value


@dataclass
class _Loaded:
    """A loaded program, and what it was made for."""

    module: Module
    #: Versions and addresses of the weights.
    state: list[tuple[int, int]]
    bounds: Bounds
    #: These remove the program when a weight is freed.
    references: list[Any]
    #: Whether it replaced a program because a weight had changed.
    is_replacement: bool
    calls: int = 0


class Program:
    """A functional graph, and its programs for the weights that it was called with.

    Arguments:
        traced: The graph.
        constants: The indices of the arguments that are parameters and buffers.
        options: The options of the backend.
    """

    #: The arguments are in a list, which is emptied.
    _boxed_call = True

    def __init__(
        self, traced: fx.GraphModule, constants: Sequence[int], options: _Options
    ) -> None:
        self._traced = traced
        self._options = options
        self._graph = Graph(traced, constants)
        self._bounds: Bounds = {}
        self._loaded: dict[tuple[int, ...], _Loaded] = {}
        self._lock = threading.Lock()
        self._error: Optional[Error] = None

    def __call__(self, args: list[Any]) -> list[Any]:
        graph, loaded = self._graph, None
        symbols = graph.symbols(args)
        results: list[torch.Tensor] = []
        if not graph.is_trivial:
            with self._lock:
                loaded = self._find(args, symbols)
                graph = self._graph
            inputs = [_arrays.as_input(args[index], index, "forward") for index in graph.inputs]
            results = loaded.module._native.execute("forward", inputs)
        outputs = graph.outputs(args, [_arrays.to_torch(it) for it in results], symbols)
        args.clear()
        return outputs

    @property
    def can_run(self) -> bool:
        """Whether the graph is supported, as far as is known."""
        return self._error is None

    def _find(self, args: Sequence[Any], symbols: Symbols) -> _Loaded:
        """Returns the program for the weights among the arguments."""
        if self._error is not None:
            raise Error(self._error.sentence, self._error.code)
        weights = [args[index] for index in self._graph.weights]
        try:
            state = [(weight._version, weight.data_ptr()) for weight in weights]
        except RuntimeError:
            # Tensors that were created in inference mode have no version counters.
            uncounted = [index for index in self._graph.weights if args[index].is_inference()]
            if not uncounted:
                raise
            self._pass(uncounted)
            return self._find(args, symbols)
        key = tuple(map(id, weights))
        loaded = self._loaded.get(key)
        has_changed = loaded is not None and loaded.state != state
        if has_changed and loaded.is_replacement and loaded.calls == 1:
            changed = zip(self._graph.weights, loaded.state, state)
            self._pass([index for index, old, new in changed if old != new])
            return self._find(args, symbols)
        if loaded is None or has_changed or not _includes(loaded.bounds, symbols):
            self._bounds = self._graph.bounds(symbols, self._bounds)
            module = self._load(weights)
            loaded = _Loaded(module, state, self._bounds, [], has_changed)
            drop = self._loaded.pop
            loaded.references += [
                weakref.ref(weight, lambda _: drop(key, None)) for weight in weights
            ]
            self._loaded[key] = loaded
        loaded.calls += 1
        return loaded

    def _pass(self, indices: list[int]) -> None:
        """Makes these weights inputs of the program."""
        if indices:
            constants = set(self._graph.weights).difference(indices)
            self._graph = Graph(self._traced, sorted(constants))
            self._loaded.clear()

    def _load(self, weights: list[torch.Tensor]) -> Module:
        """Loads a program for these weights and the current bounds."""
        options = self._options
        try:
            module = Module(
                self._graph.archive(weights, self._bounds),
                options.device,
                threads=options.threads or torch.get_num_threads(),
                memory_limit=options.memory_limit,
            )
            module.load()
        except Error as error:
            # If one was loaded, the graph is supported; its sizes may be too large this time.
            if not self._loaded:
                self._error = error
            raise
        return module


def _includes(bounds: Bounds, symbols: Symbols) -> bool:
    """Whether all symbols are within their bounds."""
    return all(low <= symbols[symbol] <= high for symbol, (low, high) in bounds.items())
