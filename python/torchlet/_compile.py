"""`torch.compile(model, backend="torchlet")`.

Dynamo calls `compile_graph` for each graph that it captures. AOTAutograd makes the graph
functional, and runs what it cannot contain: it writes results into inputs that the model
overwrites, and derives outputs that are views of inputs. What remains is a `Graph`, which a
`CompiledGraph` runs.

Parameters and buffers that the graph does not overwrite are constants of the program, so that it
can rearrange them for its kernels once. A call compares their identities, storages, layouts and
version counters with those of the program:

- Other tensors, such as those of another instance of the module, get a program of their own.
- Changed tensors get a new program. Those that change before each of two consecutive calls become
  inputs.

A write that leaves the version counter as it is, through `.data` or `.numpy()`, is not noticed.
With the option `freeze=False`, all tensors are passed at each call.
"""

from __future__ import annotations

import threading
import warnings
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
from torch.multiprocessing.reductions import StorageWeakRef

from torchlet import _arrays
from torchlet._errors import Error, invalid_argument
from torchlet._graphs import (
    MAX_BOUND,
    NOT_SUPPORTED,
    Bounds,
    Graph,
    Symbols,
    specialize,
    unsupported,
    varying,
)
from torchlet._module import Module

#: The number of programs for fixed sizes of a dynamic graph.
MAX_SPECIALIZED = 16
#: The total size of the weights in programs for fixed sizes of a dynamic graph, in bytes. The first
#: program may have more.
MAX_SPECIALIZED_WEIGHTS = 256 << 20


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
        return _raises(error.sentence, error.code)
    try:
        _check_gradients(module)
        backend = aot_autograd(
            fw_compiler=_refuse_training,
            inference_compiler=lambda traced, _: _compile_traced(traced, parsed),
            decompositions=_decompositions(),
        )
        compiled = backend(module, example_inputs)
    except Error as error:
        compiled = _raises(error.sentence, error.code)
    except TorchDynamoException:
        # Dynamo asks for another graph.
        raise
    except Exception as failure:
        compiled = _raises(f"AOTAutograd cannot trace the graph: {failure}", NOT_SUPPORTED)
    return _Fallback(module, compiled) if parsed.fallback else _Strict(compiled)


def _raises(sentence: str, code: int) -> Callable[..., Any]:
    """A function that raises an error.

    It has no exception, because tracebacks refer to the inputs of the first call.
    """

    def run(*_: Any) -> Any:
        raise Error(sentence, code)

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
            reason = str(error)
        # Nothing was written to the inputs: that happens after all computations.
        if not self._has_warned:
            self._has_warned = True
            warnings.warn(f"torchlet: a graph runs in PyTorch: {reason}", stacklevel=2)
        return self._module.forward(*args)


def _check_gradients(module: fx.GraphModule) -> None:
    """Raises `Error` if an output requires gradients and is computed here."""
    enables = module.graph.find_nodes(op="call_function", target=torch._C._set_grad_enabled)
    if not torch.is_grad_enabled() and not enables:
        return
    (output,) = module.graph.find_nodes(op="output")
    for node in output.all_input_nodes:
        if node.op in ("placeholder", "get_attr"):
            continue
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
    return CompiledGraph(traced, constants, options)


class Dynamic:
    """A functional graph with dynamic sizes or numbers.

    If a program cannot have them as variables, for instance because floats are computed from sizes,
    each combination of sizes has a program of its own. So has each integer beyond `MAX_BOUND`.
    Weights are constants of the first ones, up to `MAX_SPECIALIZED_WEIGHTS`, and inputs of the
    others.
    """

    _boxed_call = True

    def __init__(
        self, traced: fx.GraphModule, constants: Sequence[int], options: _Options
    ) -> None:
        self._traced = traced
        self._constants = constants
        self._options = options
        self._varying = varying(traced)
        self._general: Optional[CompiledGraph] = None
        self._special: OrderedDict[tuple[Any, ...], CompiledGraph] = OrderedDict()
        self._lock = threading.Lock()
        try:
            self._general = CompiledGraph(traced, constants, options)
        except Error:
            pass

    def __call__(self, args: list[Any]) -> list[Any]:
        general = self._general
        if general is not None and general.has_bounds(args):
            try:
                return general(args)
            except Error:
                if general.can_run:
                    raise
                self._general = None
        return self._specialized(args)(args)

    def _specialized(self, args: Sequence[Any]) -> CompiledGraph:
        """Returns the program for the sizes and numbers of a call."""
        key = tuple(_identify(args[index]) for index in self._varying)
        with self._lock:
            program = self._special.pop(key, None)
            if program is None:
                constants = self._constants
                count = 1 + sum(other.has_weights for other in self._special.values())
                size = sum(args[index].nbytes for index in constants)
                if count > 1 and count * size > MAX_SPECIALIZED_WEIGHTS:
                    constants = []
                program = CompiledGraph(specialize(self._traced, args), constants, self._options)
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
    #: The `_state` of each weight.
    state: list[tuple[Any, ...]]
    bounds: Bounds
    #: The storages of the weights. No other storage has the address of one that is referenced here.
    storages: list[StorageWeakRef]
    #: Whether it replaced a program because a weight had changed.
    is_replacement: bool
    calls: int = 0

    @property
    def has_expired(self) -> bool:
        """Whether a weight was freed."""
        return any(storage.expired() for storage in self.storages)


def _state(weight: torch.Tensor) -> tuple[Any, ...]:
    """Differs for tensors of other contents, if PyTorch counted all writes."""
    storage = weight.untyped_storage()._cdata
    layout = weight.data_ptr(), weight.shape, weight.stride(), weight.dtype
    return weight._version, storage, *layout


class CompiledGraph:
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
        #: The sentence and code of the error if the graph is not supported.
        self._error: Optional[tuple[str, int]] = None
        self._has_loaded = False

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

    @property
    def has_weights(self) -> bool:
        """Whether weights are constants of the programs."""
        return bool(self._graph.weights)

    def has_bounds(self, args: Sequence[Any]) -> bool:
        """Whether the integers among the arguments can be within bounds."""
        return all(abs(value) <= MAX_BOUND for value in self._graph.symbols(args).values())

    def _find(self, args: Sequence[Any], symbols: Symbols) -> _Loaded:
        """Returns the program for the weights among the arguments."""
        if self._error is not None:
            raise Error(*self._error)
        weights = [args[index] for index in self._graph.weights]
        try:
            state = [_state(weight) for weight in weights]
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
        self._free_expired(every=loaded is None or has_changed)
        if loaded is None or has_changed or not _includes(loaded.bounds, symbols):
            self._bounds = self._graph.bounds(symbols, self._bounds)
            module = self._load(weights)
            storages = [StorageWeakRef(weight.untyped_storage()) for weight in weights]
            loaded = _Loaded(module, state, self._bounds, storages, has_changed)
            self._loaded[key] = loaded
        loaded.calls += 1
        return loaded

    def _free_expired(self, every: bool) -> None:
        """Frees the programs of freed weights: every one, or one for each call.

        `torch.utils.swap_tensors` refuses tensors with weak references, whose callbacks could do
        this earlier.
        """
        for key in list(self._loaded) if every else [next(iter(self._loaded))]:
            loaded = self._loaded.pop(key)
            if not loaded.has_expired:
                self._loaded[key] = loaded

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
            if not self._has_loaded:
                self._error = error.sentence, error.code
            raise
        self._has_loaded = True
        return module


def _includes(bounds: Bounds, symbols: Symbols) -> bool:
    """Whether all symbols are within their bounds."""
    return all(low <= symbols[symbol] <= high for symbol, (low, high) in bounds.items())
