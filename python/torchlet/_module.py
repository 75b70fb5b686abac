"""`Module`: a loaded program."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Optional, Sequence, Union

from torchlet import _arrays, _torchlet
from torchlet._errors import invalid_argument
from torchlet._torchlet import MethodInfo

if TYPE_CHECKING:
    from torch.export import ExportedProgram

#: A file: path, bytes, or an open file.
Source = Union[str, "os.PathLike[str]", bytes, bytearray, memoryview, Any]


def as_source(source: Source) -> Union[str, bytes]:
    """Converts a file to a path or bytes, for the native module."""
    if isinstance(source, (str, bytes)):
        return source
    if isinstance(source, os.PathLike):
        return os.fspath(source)
    if isinstance(source, (bytearray, memoryview)):
        return bytes(source)
    if hasattr(source, "read"):
        read = source.read()
        if not isinstance(read, (bytes, bytearray)):
            raise TypeError(
                f"expected bytes from the file, found {type(read).__name__}: open it with 'rb'"
            )
        return bytes(read)
    raise TypeError(
        f"Expected data to be bytes, bytearray, a path to a .pte file, or a file-like object, "
        f"but got {type(source).__name__}."
    )


def _flat(value: Any) -> Iterator[Any]:
    """Flattens lists, tuples and dictionaries into inputs, in order, as `torch.export` does."""
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

    Methods are loaded when they are first called. Any thread may call them; calls of one module are
    serialized, and release the GIL. `share()` returns another module over the same opened file,
    which runs concurrently.

    Inputs can be tensors of PyTorch, NumPy and JAX, and all objects with DLPack or the buffer
    protocol. Outputs are tensors of the first input tensor's library, or of `outputs`: `"torch"`,
    `"numpy"`, `"jax"` or `"torchlet"`.

    Arguments:
        source: A `.pt2`, `.pte` or `.bpte` file: a path, bytes, or an open file.
        backend: Where it runs: `"auto"`, `"cpu"`, `"vulkan"`, or `"as-exported"`.
        data: Files of external data (`.ptd`).
        threads: Number of kernel threads; one per processor by default.
        outputs: The library of the output tensors.
        profile: Whether to measure the time of operators; see `profile`.
        memory_limit: Memory limit of a method in bytes, 4 GiB by default.
        compile_cache: A folder for compiled programs. Others must not be able to write to it.
        map: Whether to map files instead of reading them. Mapped files must not change while the
            module is in use.
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
        """Runs a method, and returns copies of its outputs.

        Lists, tuples and dictionaries are flattened, as `torch.export` does. Shapes may vary within
        the exported bounds; any memory layout is accepted.
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
        """The method of this name."""
        return Method(self, method)

    def load(self, method: str = "forward") -> None:
        """Loads a method ahead of its first call."""
        self._native.load_method(method)

    def is_loaded(self, method: str = "forward") -> bool:
        """Whether a method is loaded."""
        return self._native.is_method_loaded(method)

    def unload(self, method: str = "forward") -> bool:
        """Unloads a method and its state; returns whether it was loaded."""
        return self._native.unload(method)

    def share(self) -> "Module":
        """Another module over the same opened file, with its own methods and state."""
        other = object.__new__(Module)
        other._make, other._name, other._backend = self._make, self._name, self._backend
        other._native = self._native.share()
        return other

    def cancel(self) -> None:
        """Cancels the current run and all later ones, which fail, until `resume`."""
        self._native.cancel()

    def resume(self) -> None:
        """Permits runs again after `cancel`."""
        self._native.resume()

    @property
    def threads(self) -> int:
        """Number of kernel threads."""
        return self._native.threads

    def set_threads(self, threads: int) -> int:
        """Limits the kernel threads of this module, and of those that share its file.

        Returns the resulting number: at least one, and at most the number at opening. Results stay
        bit-identical.
        """
        return self._native.set_threads(threads)

    @property
    def origin(self) -> str:
        """How the program was obtained: `compiled`, `cached`, or `exported`, with a reason."""
        return self._native.origin()

    def save_state(self) -> bytes:
        """The state of all loaded methods, as the bytes of a safetensors file."""
        return self._native.save_state()

    def load_state(self, state: bytes) -> None:
        """Loads the result of `save_state`: all of it or, if something does not match, nothing."""
        self._native.load_state(bytes(state))

    @property
    def profile(self) -> "Profile":
        """The profile, for modules opened with `profile=True`."""
        entries = self._native.profile()
        if entries is None:
            raise invalid_argument("profiling is off: open the module with profile=True")
        return Profile([ProfileEntry(*entry) for entry in entries])

    def clear_profile(self) -> None:
        """Clears the profile, for instance after warm-up."""
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


def load(program: "ExportedProgram", backend: str = "auto", **options: Any) -> Module:
    """Loads a `torch.export.ExportedProgram` without a file.

    Later changes of the program, such as those of its weights, have no effect.

    Arguments:
        program: The result of `torch.export.export`.
        backend: Where it runs, as for `Module`.
        options: Other options of `Module`: `threads`, `outputs`, ...
    """
    # PyTorch is not imported for other objects: an exported program cannot exist without it.
    export = sys.modules.get("torch.export")
    if export is None or not isinstance(program, export.ExportedProgram):
        raise TypeError(
            "load: expected the torch.export.ExportedProgram that torch.export.export returns, "
            f"found {type(program).__name__}; open files with torchlet.Module"
        )
    file = io.BytesIO()
    export.save(program, file)
    return Module(file.getvalue(), backend, **options)


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
        """Metadata of the inputs."""
        return self._info.inputs

    @property
    def outputs(self) -> tuple[_torchlet.ValueInfo, ...]:
        """Metadata of the outputs."""
        return self._info.outputs

    @property
    def state(self) -> list["StateTensor"]:
        """The state tensors of the method, which is loaded if necessary."""
        native = self._module._native
        return [StateTensor(self, value, name) for value, name in native.state(self.name)]

    def reset(self) -> None:
        """Resets the state to its initial values."""
        self._module._native.reset(self.name)

    def memory(self) -> dict[str, int]:
        """Memory of the method in bytes, known before it is loaded."""
        names = ("arena", "planned", "scratch", "unplanned")
        return dict(zip(names, self._module._native.memory_report(self.name)))

    def __repr__(self) -> str:
        return repr(self._info)


@dataclass(frozen=True)
class StateTensor:
    """A state tensor of a method."""

    method: Method
    #: The index of its value in the method.
    value: int
    #: Its name in the model, if the exporter kept it.
    name: Optional[str]

    def read(self) -> _torchlet.Tensor:
        """Returns a copy."""
        return self.method._module._native.read_state(self.method.name, self.value)

    def write(self, tensor: Any) -> None:
        """Overwrites its elements."""
        tensor = _arrays.as_input(tensor, 0, self.method.name)
        self.method._module._native.write_state(self.method.name, self.value, tensor)

    def __repr__(self) -> str:
        return f"StateTensor({self.name or f'#{self.value}'} of {self.method.name})"


@dataclass(frozen=True)
class ProfileEntry:
    """The time of an instruction, or of a part of a delegate, over all runs."""

    #: `Load`, `DelegateInit`, `Execute`, `Operator`, `Delegate`, `DelegatePart` or
    #: `DelegateInitPart`.
    kind: str
    #: The operator, backend or method.
    name: str
    #: The instruction's index.
    instruction: int
    #: Details from a delegate.
    detail: str
    #: Number of runs.
    count: int
    #: Total time in nanoseconds.
    total: int
    #: Longest run in nanoseconds.
    longest: int


class Profile(Sequence[ProfileEntry]):
    """The profile of a module."""

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
    """Formats an HTML table; all text is escaped."""

    def cells(tag: str, texts: list[str]) -> str:
        def cell(text: str) -> str:
            return escape(text).replace("\n", "<br>")

        return "<tr>" + "".join(f"<{tag}>{cell(text)}</{tag}>" for text in texts) + "</tr>"

    body = "".join(cells("td", row) for row in rows)
    return f"<table><caption>{escape(title)}</caption>{cells('th', head)}{body}</table>"
