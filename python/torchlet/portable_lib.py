"""Compatible replacement of `executorch.extension.pybindings.portable_lib`.

Code for ExecuTorch runs after changing one import. This package's README lists the differences.
"""

from __future__ import annotations

import enum
import os
from typing import Any, List, Optional, Sequence, Set, Tuple, Union

from torchlet import _arrays, _torchlet
from torchlet._errors import Error, invalid_argument

__all__ = [
    "BundledModule",
    "ExecuTorchMethod",
    "ExecuTorchModule",
    "ExecuTorchProgram",
    "MethodMeta",
    "PyDataLoader",
    "TensorInfo",
    "Verification",
]


class Verification(enum.IntEnum):
    """How thoroughly ExecuTorch verifies a file. This runtime always verifies all data it reads."""

    Minimal = 0
    InternalConsistency = 1


class TensorInfo:
    """Shape and element type of a tensor of a method."""

    def __init__(self, info: _torchlet.ValueInfo) -> None:
        self._info = info

    def sizes(self) -> Tuple[int, ...]:
        """The shape; the upper bound of a dynamic shape."""
        return self._info.shape

    def dtype(self) -> int:
        """The element type's value in ExecuTorch's `ScalarType`."""
        return self._scalar_type()[1]

    def _scalar_type(self) -> Tuple[str, int]:
        found = self._info.scalar_type
        assert found is not None, "only tensors have a TensorInfo"
        return found

    def is_memory_planned(self) -> bool:
        """Whether it is in planned memory or a constant of the program."""
        return self._info.planned

    def nbytes(self) -> int:
        """Size of the data in bytes."""
        return self._info.nbytes

    def __repr__(self) -> str:
        return (
            f"TensorInfo(sizes={list(self.sizes())}, dtype={self._scalar_type()[0]}, "
            f"is_memory_planned={self.is_memory_planned()}, nbytes={self.nbytes()})"
        )


class MethodMeta:
    """Metadata of a method."""

    def __init__(self, info: _torchlet.MethodInfo) -> None:
        self._info = info

    def name(self) -> str:
        """The name of the method, such as `forward`."""
        return self._info.name

    def num_inputs(self) -> int:
        """Number of inputs."""
        return len(self._info.inputs)

    def num_outputs(self) -> int:
        """Number of outputs."""
        return len(self._info.outputs)

    def num_attributes(self) -> int:
        """Number of tensors whose names the exporter kept."""
        return len(self._info.attributes)

    def input_tensor_meta(self, index: int) -> TensorInfo:
        """Metadata of an input; `IndexError` if it does not exist or is not a tensor."""
        return _tensor_info(self._info.inputs, index, "input")

    def output_tensor_meta(self, index: int) -> TensorInfo:
        """Metadata of an output; `IndexError` if it does not exist or is not a tensor."""
        return _tensor_info(self._info.outputs, index, "output")

    def attribute_tensor_meta(self, index: int) -> TensorInfo:
        """Metadata of a named tensor; `IndexError` if it does not exist."""
        return _tensor_info(self._info.attributes, index, "attribute")

    def __repr__(self) -> str:
        def texts(values: Sequence[_torchlet.ValueInfo]) -> List[str]:
            return [
                repr(TensorInfo(value)) if value.kind == "Tensor" else value.kind
                for value in values
            ]

        return (
            f"MethodMeta(name='{self.name()}', num_inputs={self.num_inputs()}, "
            f"input_tensor_meta={texts(self._info.inputs)}, num_outputs={self.num_outputs()}, "
            f"output_tensor_meta={texts(self._info.outputs)})"
        )


def _tensor_info(values: Sequence[_torchlet.ValueInfo], index: int, what: str) -> TensorInfo:
    if not 0 <= index < len(values):
        raise IndexError(f"Cannot get {what} tensor meta at {index}: there are {len(values)}")
    if values[index].kind != "Tensor":
        raise IndexError(f"Cannot get {what} tensor meta at {index}: it is a {values[index].kind}")
    return TensorInfo(values[index])


class PyDataLoader:
    """Storage of a program: subclasses implement `size` and `load`."""

    def size(self) -> int:
        """Size of the file in bytes."""
        raise NotImplementedError

    def load(self, offset: int, size: int) -> bytes:
        """Reads `size` bytes at `offset`."""
        raise NotImplementedError


class _File:
    """A program file with its options, and external data as files or bytes."""

    def __init__(
        self,
        source: Union[str, bytes],
        data: Sequence[Union[str, bytes, None]],
        enable_etdump: bool,
        debug_buffer_size: int,
        verification: Verification = Verification.InternalConsistency,
    ) -> None:
        if not isinstance(verification, Verification):
            raise TypeError(
                f"program_verification: expected a Verification, found {verification!r}"
            )
        if debug_buffer_size < 0:
            raise TypeError(f"debug_buffer_size is {debug_buffer_size}; it must not be negative")
        self._source = source
        self._data = [item for item in data if item is not None]
        for path in (source, *self._data):
            # Unreadable files are reported now, other errors when the program is used.
            if isinstance(path, str):
                _check_readable(path)
        self.enable_etdump = enable_etdump
        self._debug_buffer_size = debug_buffer_size

    def open(self) -> _torchlet.Module:
        if self.enable_etdump:
            # Instruction indices must match the ETRecord. XNNPACK delegates only run compiled.
            opened = self._open("as-exported")
            infos = map(opened.method_info, opened.method_names())
            if not any("XnnpackBackend" in info.backends for info in infos):
                return opened
        return self._open("auto")

    def _open(self, backend: str) -> _torchlet.Module:
        return _torchlet.Module.open(
            self._source,
            data=self._data,
            backend=backend,
            threads=_Threads.count,
            record="events" if self.enable_etdump else None,
            record_values=self._debug_buffer_size,
        )


def _path(path: Optional[str]) -> Optional[str]:
    return None if path is None else os.fspath(path)


def _check_readable(path: str) -> None:
    try:
        with open(path, "rb"):
            pass
    except OSError as error:
        raise Error(f"cannot read '{path}': {error.strerror}", 0x22) from None


class _Threads:
    """Number of threads for opening modules."""

    count: Optional[int] = None


class _Library:
    """The library of outputs: PyTorch, as in ExecuTorch, if installed, else NumPy."""

    make: Any = None


def _outputs(values: Sequence[Any]) -> List[Any]:
    if _Library.make is None:
        _Library.make = _arrays.own_maker(_arrays.default_library())
    return _arrays.outputs(values, _Library.make)


def _inputs(inputs: Any, method: str) -> List[Any]:
    """Converts the inputs of a call: a sequence, or a single tensor."""
    if _arrays.is_torch(inputs) or hasattr(inputs, "__dlpack__"):
        inputs = [inputs]
    return [_arrays.as_input(value, index, method) for index, value in enumerate(inputs)]


def _write_etdump(
    native: Optional[_torchlet.Module], path: str, debug_buffer_path: Optional[str]
) -> None:
    recorded = None if native is None else native.etdump()
    if recorded is None:
        raise Error("No etdump found: load the program with enable_etdump=True", 0x02)
    with open(path, "wb") as file:
        file.write(recorded[0])
    if isinstance(debug_buffer_path, str):
        with open(debug_buffer_path, "wb") as file:
            file.write(recorded[1])


class ExecuTorchModule:
    """A program and its methods. File and methods are loaded on first use."""

    def __init__(self, file: _File) -> None:
        self._file = file
        self._opened: Optional[_torchlet.Module] = None

    @property
    def _native(self) -> _torchlet.Module:
        if self._opened is None:
            self._opened = self._file.open()
        return self._opened

    def __call__(self, inputs: Any = (), clone_outputs: bool = True) -> List[Any]:
        """Runs the method `forward`."""
        return self.run_method("forward", inputs, clone_outputs)

    def forward(self, inputs: Any = (), clone_outputs: bool = True) -> List[Any]:
        """Runs the method `forward`."""
        return self.run_method("forward", inputs, clone_outputs)

    def run_method(
        self, method_name: str, inputs: Any = (), clone_outputs: bool = True
    ) -> List[Any]:
        """Runs a method. Without `clone_outputs`, the next run reuses the outputs' memory."""
        given = _inputs(inputs, method_name)
        return _outputs(self._native.execute(method_name, given, not clone_outputs))

    def plan_execute(self, method_name: str, clone_outputs: bool = True) -> List[Any]:
        """Runs a method without inputs."""
        return self.run_method(method_name, (), clone_outputs)

    def load_bundled_input(
        self, bundle: "BundledModule", method_name: str, testset_idx: int
    ) -> None:
        """Sets the inputs of a test case."""
        inputs, _ = bundle._native.test_case(method_name, testset_idx)
        self._native.set_inputs(method_name, inputs)

    def verify_result_with_bundled_expected_output(
        self,
        bundle: "BundledModule",
        method_name: str,
        testset_idx: int,
        rtol: float = 1e-5,
        atol: float = 1e-8,
    ) -> List[Any]:
        """Runs a test case and compares its outputs with the expected ones."""
        return _verify(self._native, bundle._native, method_name, testset_idx, rtol, atol)

    def has_etdump(self) -> bool:
        """Whether events are recorded."""
        return self._file.enable_etdump

    def write_etdump_result_to_file(
        self, path: str, debug_buffer_path: Optional[str] = None
    ) -> None:
        """Writes the recorded events."""
        _write_etdump(self._opened, path, debug_buffer_path)

    def method_meta(self, method_name: str) -> MethodMeta:
        """Metadata of a method."""
        return MethodMeta(self._native.method_info(method_name))

    def method_names(self) -> List[str]:
        """The names of the methods."""
        return self._native.method_names()


class BundledModule:
    """A program with test cases."""

    def __init__(self, file: bytes) -> None:
        self._bytes = file
        self._opened: Optional[_torchlet.Module] = None

    @property
    def _native(self) -> _torchlet.Module:
        if self._opened is None:
            self._opened = _torchlet.Module.open(self._bytes, threads=_Threads.count)
        return self._opened

    def verify_result_with_bundled_expected_output(
        self, method_name: str, testset_idx: int, rtol: float = 1e-5, atol: float = 1e-8
    ) -> List[Any]:
        """Runs a test case and compares its outputs with the expected ones."""
        return _verify(self._native, self._native, method_name, testset_idx, rtol, atol)


def _verify(
    native: _torchlet.Module,
    bundle: _torchlet.Module,
    method: str,
    index: int,
    rtol: float,
    atol: float,
) -> List[Any]:
    inputs, expected = bundle.test_case(method, index)
    found = native.execute(method, inputs)
    if not expected:
        raise Error(f"test case {index} of '{method}' expects no outputs", 0x10)
    if len(found) != len(expected):
        raise invalid_argument(
            f"test case {index} of '{method}' expects {len(expected)} outputs, not {len(found)}"
        )
    for output, (value, wanted) in enumerate(zip(found, expected)):
        _compare(f"output {output} of test case {index} of '{method}'", value, wanted, rtol, atol)
    return _outputs(found)


def _compare(what: str, found: Any, expected: Any, rtol: float, atol: float) -> None:
    if isinstance(found, _torchlet.Tensor) and isinstance(expected, _torchlet.Tensor):
        distance, mismatches = found.compare(expected, rtol, atol)
        if mismatches:
            raise Error(
                f"{what}: {mismatches} of {found.numel} elements are out of tolerance, "
                f"with a maximum difference of {distance:g}",
                0x23,
            )
    elif found != expected:
        raise Error(f"{what}: expected {expected!r}, found {found!r}", 0x23)


class ExecuTorchMethod:
    """A loaded method of a program."""

    def __init__(self, native: _torchlet.Module, name: str) -> None:
        self._native = native
        self._name = name
        self._has_inputs = not native.method_info(name).inputs

    def set_inputs(self, inputs: Any) -> None:
        """Sets all inputs for the next run."""
        self._native.set_inputs(self._name, _inputs(inputs, self._name))
        self._has_inputs = True

    def execute(self) -> None:
        """Runs the method with the inputs that were set."""
        if not self._has_inputs:
            raise Error(f"the inputs of '{self._name}' are not set: call set_inputs first", 0x02)
        self._native.run(self._name)

    def get_outputs(self, clone_outputs: bool = True) -> List[Any]:
        """The outputs of the last run."""
        return _outputs(self._native.outputs(self._name, not clone_outputs))

    def call(self, inputs: Any = (), clone_outputs: bool = True) -> List[Any]:
        """Sets the inputs, runs, and returns the outputs."""
        given = _inputs(inputs, self._name)
        values = self._native.execute(self._name, given, not clone_outputs)
        self._has_inputs = True
        return _outputs(values)

    def __call__(self, inputs: Any = (), clone_outputs: bool = True) -> List[Any]:
        """Sets the inputs, runs, and returns the outputs."""
        return self.call(inputs, clone_outputs)

    def method_meta(self) -> MethodMeta:
        """Metadata of the method."""
        return MethodMeta(self._native.method_info(self._name))

    def get_attribute(self, name: str) -> Any:
        """A copy of a state tensor by name."""
        for value, found in self._native.state(self._name):
            if found == name:
                return _outputs([self._native.read_state(self._name, value)])[0]
        raise Error(f"'{self._name}' has no attribute '{name}'", 0x20)


class ExecuTorchProgram:
    """An opened program."""

    def __init__(self, file: _File) -> None:
        self._file = file
        self._native = file.open()
        self._given: Set[str] = set()

    def num_methods(self) -> int:
        """Number of methods."""
        return len(self._native.method_names())

    def get_method_name(self, method_index: int) -> str:
        """The name of a method by its index in the file."""
        names = self._native.method_names()
        if not 0 <= method_index < len(names):
            raise invalid_argument(
                f"method index {method_index} is out of range; the program has {len(names)} methods"
            )
        return names[method_index]

    def load_method(self, method_name: str) -> ExecuTorchMethod:
        """Loads a method; each further load of the same method has separate state."""
        native = self._native
        # Methods that share state are loaded together, but not returned.
        if method_name in self._given:
            native = native.share()
        native.load_method(method_name)
        self._given.add(method_name)
        return ExecuTorchMethod(native, method_name)

    def method_meta(self, method_name: str) -> MethodMeta:
        """Metadata of a method."""
        return MethodMeta(self._native.method_info(method_name))

    def has_etdump(self) -> bool:
        """Whether events are recorded."""
        return self._file.enable_etdump

    def write_etdump_result_to_file(
        self, path: str, debug_buffer_path: Optional[str] = None
    ) -> None:
        """Writes the recorded events."""
        _write_etdump(self._native, path, debug_buffer_path)


def _load_for_executorch(
    program_path: str,
    data_path: Optional[str] = None,
    enable_etdump: bool = False,
    debug_buffer_size: int = 0,
    program_verification: Verification = Verification.InternalConsistency,
) -> ExecuTorchModule:
    """Creates a module from a file."""
    source = os.fspath(program_path)
    return ExecuTorchModule(
        _File(source, [_path(data_path)], enable_etdump, debug_buffer_size, program_verification)
    )


def _load_for_executorch_from_buffer(
    buffer: bytes,
    data_map_buffer: Optional[bytes] = None,
    enable_etdump: bool = False,
    debug_buffer_size: int = 0,
    program_verification: Verification = Verification.InternalConsistency,
) -> ExecuTorchModule:
    """Creates a module from the bytes of a file."""
    data = None if data_map_buffer is None else bytes(data_map_buffer)
    return ExecuTorchModule(
        _File(bytes(buffer), [data], enable_etdump, debug_buffer_size, program_verification)
    )


def _load_for_executorch_from_bundled_program(
    ptr: BundledModule,
    data_map_buffer: Union[bytes, str, None] = None,
    enable_etdump: bool = False,
    debug_buffer_size: int = 0,
    *,
    data_path: Optional[str] = None,
) -> ExecuTorchModule:
    """Creates a module from a bundled program, with external data as bytes or in a file."""
    data = [data_map_buffer, data_path]
    return ExecuTorchModule(_File(ptr._bytes, data, enable_etdump, debug_buffer_size))


def _load_for_executorch_from_data_loader(
    loader: PyDataLoader,
    data_path: Optional[str] = None,
    enable_etdump: bool = False,
    debug_buffer_size: int = 0,
) -> ExecuTorchModule:
    """Creates a module from a data loader, whose file is read as a whole."""
    source = bytes(loader.load(0, loader.size()))
    return ExecuTorchModule(_File(source, [_path(data_path)], enable_etdump, debug_buffer_size))


def _load_bundled_program_from_buffer(
    buffer: bytes, non_const_pool_size: int = 16 * 1024
) -> BundledModule:
    """Opens a bundled program; the memory pool size is not needed here."""
    if non_const_pool_size < 0:
        raise TypeError(f"non_const_pool_size is {non_const_pool_size}")
    return BundledModule(bytes(buffer))


def _load_program(
    path: str,
    enable_etdump: bool = False,
    debug_buffer_size: int = 0,
    program_verification: Verification = Verification.Minimal,
    data_path: Optional[str] = None,
) -> ExecuTorchProgram:
    """Opens a program from a file."""
    source = os.fspath(path)
    return ExecuTorchProgram(
        _File(source, [_path(data_path)], enable_etdump, debug_buffer_size, program_verification)
    )


def _load_program_from_buffer(
    buffer: bytes,
    enable_etdump: bool = False,
    debug_buffer_size: int = 0,
    program_verification: Verification = Verification.Minimal,
    data_path: Optional[str] = None,
) -> ExecuTorchProgram:
    """Opens a program from the bytes of a file."""
    source = bytes(buffer)
    return ExecuTorchProgram(
        _File(source, [_path(data_path)], enable_etdump, debug_buffer_size, program_verification)
    )


def _get_operator_names() -> List[str]:
    """The names of all operators, once per kernel."""
    return _torchlet.operator_names()


def _get_registered_backend_names() -> List[str]:
    """The supported delegate backends."""
    return _torchlet.backend_names()


def _is_available(backend_name: str) -> bool:
    """Whether a backend is available on this machine."""
    return _torchlet.is_backend_available(backend_name)


def _create_profile_block(name: str) -> None:
    """Does nothing: ExecuTorch's old profiler, which its own wheels also lack."""
    if not isinstance(name, str):
        raise TypeError(f"name: expected a str, found {type(name).__name__}")


def _dump_profile_results() -> bytes:
    """Returns nothing: ExecuTorch's old profiler, which its own wheels also lack."""
    return b""


def _reset_profile_results() -> None:
    """Does nothing: ExecuTorch's old profiler."""


def _unsafe_reset_threadpool(num_threads: int) -> None:
    """Sets the number of threads for programs that are loaded later."""
    if num_threads < 1:
        raise invalid_argument(f"num_threads is {num_threads}; it must be at least 1")
    _Threads.count = int(num_threads)


def _threadpool_get_thread_count() -> int:
    """Number of threads for programs that are loaded later."""
    if _Threads.count is not None:
        return _Threads.count
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
