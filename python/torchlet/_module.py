"""`Module`: a program file, ready to call."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any, Optional, Sequence, Union

from torchlet import _arrays, _torchlet
from torchlet._errors import invalid_argument
from torchlet._torchlet import MethodInfo

#: A file by its path, its bytes, or a file that is open.
Source = Union[str, "os.PathLike[str]", bytes, bytearray, memoryview, Any]


def as_source(source: Source) -> Union[str, bytes]:
    """A path or bytes, as the native module takes files."""
    if isinstance(source, (str, bytes)):
        return source
    if isinstance(source, os.PathLike):
        return os.fspath(source)
    if isinstance(source, (bytearray, memoryview)):
        return bytes(source)
    if hasattr(source, "read"):
        read = source.read()
        if not isinstance(read, (bytes, bytearray)):
            raise TypeError(f"a program is bytes, and the file gave {type(read).__name__}: open it with 'rb'")
        return bytes(read)
    raise TypeError(
        f"Expected data to be bytes, bytearray, a path to a .pte file, or a file-like object, "
        f"but got {type(source).__name__}."
    )


def _flat(value: Any) -> Iterator[Any]:
    """The inputs in a value: exported programs take what is in lists, tuples and dictionaries one by one, in order."""
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _flat(item)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _flat(item)
    else:
        yield value


class Module:
    """A program and its loaded methods.

    Methods are loaded when they are first called. Any thread may call them; calls of one module come one after the other, and the
    interpreter's lock is released meanwhile. `share()` gives another module over the same opened file, which runs at the same time.

    Tensors of PyTorch, NumPy and JAX and whatever else has DLPack or the buffer protocol go in; outputs are of the library of the
    first tensor that went in, or of the one named by `outputs`: `"torch"`, `"numpy"`, `"jax"` or `"torchlet"`.

    Arguments:
        source: A `.pte` or `.bpte` file: a path, bytes, or a file that is open.
        backend: What it runs on: `"auto"`, `"cpu"`, `"vulkan"`, or `"as-exported"`.
        data: Files of external data (`.ptd`).
        threads: Threads that kernels use; as many as there are processors, unless set.
        outputs: The library of the output tensors.
        profile: Whether to measure where the time goes; see `profile`.
        memory_limit: The most bytes that a method may take, 4 GiB unless set.
        compile_cache: A folder for compiled programs, which nobody else can write to.
        map: Whether files are mapped instead of read: they must not change then as long as the module is used.
    """

    def __init__(
        self,
        source: Source,
        backend: str = "auto",
        *,
        data: Union[Source, Sequence[Source]] = (),
        threads: Optional[int] = None,
        outputs: Optional[str] = None,
        profile: bool = False,
        memory_limit: Optional[int] = None,
        compile_cache: Optional[Union[str, "os.PathLike[str]"]] = None,
        map: bool = False,
    ) -> None:
        self._make = None if outputs is None else _arrays.maker(outputs)
        self._name = os.fspath(source) if isinstance(source, (str, os.PathLike)) else "in memory"
        self._backend = backend
        data = list(data) if isinstance(data, (list, tuple)) else [data]
        self._native = _torchlet.Module.open(
            as_source(source),
            data=[as_source(item) for item in data],
            backend=backend,
            threads=threads,
            memory_limit=memory_limit,
            compile_cache=compile_cache,
            map=map,
            record="profile" if profile else None,
        )

    def forward(self, *inputs: Any) -> list[Any]:
        """Runs the method `forward`."""
        return self.execute("forward", *inputs)

    def __call__(self, *inputs: Any) -> list[Any]:
        """Runs the method `forward`."""
        return self.execute("forward", *inputs)

    def execute(self, method: str, *inputs: Any) -> list[Any]:
        """Runs a method. What is in lists, tuples and dictionaries is taken one by one, as `torch.export` does. The outputs are copies.

        Shapes may be any within those that the program was exported with, and memory layouts any at all.
        """
        flat = list(_flat(inputs))
        given = [_arrays.as_input(value, index, method) for index, value in enumerate(flat)]
        make = self._make or _arrays.own_maker(_arrays.library_of(flat))
        return _arrays.outputs(self._native.execute(method, given), make)

    @property
    def method_names(self) -> list[str]:
        """The names of the methods, in the order of the file."""
        return self._native.method_names()

    @property
    def methods(self) -> dict[str, "Method"]:
        """The methods by name."""
        return {name: Method(self, name) for name in self.method_names}

    def __getitem__(self, method: str) -> "Method":
        """The method of a name."""
        return Method(self, method)

    def load(self, method: str = "forward") -> None:
        """Loads a method before it is first called."""
        self._native.load_method(method)

    def is_loaded(self, method: str = "forward") -> bool:
        """Whether a method is loaded."""
        return self._native.is_method_loaded(method)

    def unload(self, method: str = "forward") -> bool:
        """Frees a loaded method with its state; whether it was loaded."""
        return self._native.unload(method)

    def share(self) -> "Module":
        """Another module over the same opened file, with methods and state of its own, for another thread."""
        other = object.__new__(Module)
        other._make, other._name, other._backend = self._make, self._name, self._backend
        other._native = self._native.share()
        return other

    def cancel(self) -> None:
        """Ends the run in progress, if there is one, and all that follow, with an error, until `resume`."""
        self._native.cancel()

    def resume(self) -> None:
        """Lets methods run again after `cancel`."""
        self._native.resume()

    @property
    def threads(self) -> int:
        """The number of threads that kernels use."""
        return self._native.threads

    def set_threads(self, threads: int) -> int:
        """Lets kernels of this module, and of those that share its file, use so many threads, and gives how many these are.

        It is one at least, and as many as the module was opened with at most. Results stay the same bit for bit.
        """
        return self._native.set_threads(threads)

    @property
    def origin(self) -> str:
        """Where what runs comes from: `compiled`, `cached`, or `exported`, with the reason if it could not be compiled."""
        return self._native.origin()

    def save_state(self) -> bytes:
        """The state of all loaded methods, as the bytes of a safetensors file."""
        return self._native.save_state()

    def load_state(self, state: bytes) -> None:
        """Loads what `save_state` gave: all of it or, if something does not fit, none."""
        self._native.load_state(bytes(state))

    @property
    def profile(self) -> "Profile":
        """Where the time went, in modules that were opened with `profile=True`."""
        entries = self._native.profile()
        if entries is None:
            raise invalid_argument("nothing was measured: open the module with profile=True")
        return Profile([ProfileEntry(*entry) for entry in entries])

    def clear_profile(self) -> None:
        """Forgets what was measured, for instance after warming up."""
        self._native.clear_profile()

    def _info(self, method: str) -> MethodInfo:
        return self._native.method_info(method)

    def __repr__(self) -> str:
        methods = "".join(f"\n  {self._info(name)!r}" for name in self.method_names)
        return f"Module({self._name!r}, backend={self._backend!r}, {self.origin}){methods}"

    def _repr_html_(self) -> str:
        rows = []
        for name in self.method_names:
            info = self._info(name)
            cells = [info.name, _lines(info.inputs), _lines(info.outputs)]
            cells += [", ".join(info.backends), "yes" if self.is_loaded(name) else "no"]
            rows.append(cells)
        head = ["method", "inputs", "outputs", "delegates", "loaded"]
        title = f"{self._name}: {self._native.file_size():,} bytes, {self._backend}, {self.origin}"
        return _table(title, head, rows)


class Method:
    """A method of a module."""

    def __init__(self, module: Module, name: str) -> None:
        self._module = module
        self._info = module._info(name)
        self.name = name

    def __call__(self, *inputs: Any) -> list[Any]:
        """Runs the method."""
        return self._module.execute(self.name, *inputs)

    @property
    def inputs(self) -> tuple[_torchlet.ValueInfo, ...]:
        """What the inputs take."""
        return self._info.inputs

    @property
    def outputs(self) -> tuple[_torchlet.ValueInfo, ...]:
        """What the outputs give."""
        return self._info.outputs

    @property
    def state(self) -> list["StateTensor"]:
        """The tensors that the method keeps from run to run; it is loaded for that."""
        native = self._module._native
        return [StateTensor(self, value, name) for value, name in native.state(self.name)]

    def reset(self) -> None:
        """Gives the state its initial values again."""
        self._module._native.reset(self.name)

    def memory(self) -> dict[str, int]:
        """The bytes that the method takes, known before it is loaded."""
        names = ("arena", "planned", "scratch", "unplanned")
        return dict(zip(names, self._module._native.memory_report(self.name)))

    def __repr__(self) -> str:
        return repr(self._info)


@dataclass(frozen=True)
class StateTensor:
    """A tensor that a method keeps from run to run."""

    method: Method
    #: The index of its value in the method.
    value: int
    #: Its name in the model, where the exporter kept it.
    name: Optional[str]

    def read(self) -> _torchlet.Tensor:
        """A copy of it."""
        return self.method._module._native.read_state(self.method.name, self.value)

    def write(self, tensor: Any) -> None:
        """Writes it."""
        tensor = _arrays.as_input(tensor, 0, self.method.name)
        self.method._module._native.write_state(self.method.name, self.value, tensor)

    def __repr__(self) -> str:
        return f"StateTensor({self.name or f'#{self.value}'} of {self.method.name})"


@dataclass(frozen=True)
class ProfileEntry:
    """The time that one instruction, or one part of a delegate, took over all runs."""

    #: `Load`, `DelegateInit`, `Execute`, `Operator`, `Delegate`, `DelegatePart` or `DelegateInitPart`.
    kind: str
    #: The operator, backend or method.
    name: str
    #: The instruction's index.
    instruction: int
    #: What a delegate adds.
    detail: str
    #: How often it ran.
    count: int
    #: Nanoseconds of all runs.
    total: int
    #: Nanoseconds of the longest run.
    longest: int


class Profile(Sequence[ProfileEntry]):
    """Where the time of a module went."""

    def __init__(self, entries: list[ProfileEntry]) -> None:
        self._entries = entries

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, index: Any) -> Any:
        return self._entries[index]

    def _cells(self) -> list[list[str]]:
        def milliseconds(nanoseconds: int) -> str:
            return f"{nanoseconds / 1e6:.3f}"

        return [
            [
                entry.kind,
                f"{entry.name} {entry.detail}".rstrip(),
                str(entry.count),
                milliseconds(entry.total),
                milliseconds(entry.longest),
            ]
            for entry in self._entries
        ]

    _HEAD = ["kind", "name", "count", "total ms", "longest ms"]

    def __repr__(self) -> str:
        rows = [self._HEAD, *self._cells()]
        widths = [max(len(row[column]) for row in rows) for column in range(len(self._HEAD))]
        lines = [
            "  ".join(
                cell.ljust(width) if column < 2 else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(row, widths))
            ).rstrip()
            for row in rows
        ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return _table("profile", self._HEAD, self._cells())


def _lines(values: Sequence[Any]) -> str:
    return "\n".join(repr(value) for value in values)


def _table(title: str, head: list[str], rows: list[list[str]]) -> str:
    """A table as HTML. Whatever a file says is text in it."""

    def cells(tag: str, texts: list[str]) -> str:
        def cell(text: str) -> str:
            return escape(text).replace("\n", "<br>")

        return "<tr>" + "".join(f"<{tag}>{cell(text)}</{tag}>" for text in texts) + "</tr>"

    body = "".join(cells("td", row) for row in rows)
    return f"<table><caption>{escape(title)}</caption>{cells('th', head)}{body}</table>"
