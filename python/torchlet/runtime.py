"""Compatible replacement of `executorch.runtime`.

from torchlet.runtime import Runtime

program = Runtime.get().load_program("model.pte")
outputs = program.load_method("forward").execute([image])
"""

from __future__ import annotations

import functools
import os
from types import ModuleType
from typing import Any, BinaryIO, Dict, List, Optional, Sequence, Set, Union

from torchlet import portable_lib
from torchlet._module import as_source
from torchlet.portable_lib import (
    ExecuTorchMethod,
    ExecuTorchProgram,
    MethodMeta,
    TensorInfo,
    Verification,
)

#: Its name in newer documentation.
MethodMetadata = MethodMeta

__all__ = [
    "BackendRegistry",
    "Method",
    "MethodMeta",
    "MethodMetadata",
    "OperatorRegistry",
    "Program",
    "Runtime",
    "TensorInfo",
    "Verification",
]


class Method:
    """A loaded method of a program."""

    def __init__(self, method: ExecuTorchMethod) -> None:
        self._method = method

    def execute(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """Runs the method. The outputs are copies."""
        return self._method(inputs)

    @property
    def metadata(self) -> MethodMeta:
        """Metadata of the method."""
        return self._method.method_meta()

    def __repr__(self) -> str:
        return f"Method({self.metadata!r})"


class Program:
    """An opened program."""

    def __init__(self, program: ExecuTorchProgram, data: Optional[bytes]) -> None:
        # ExecuTorch's programs borrow the bytes; these have a copy.
        del data
        self._program = program
        names = (program.get_method_name(index) for index in range(program.num_methods()))
        self._methods: Dict[str, Optional[Method]] = dict.fromkeys(names)

    @property
    def method_names(self) -> Set[str]:
        """The names of the methods."""
        return set(self._methods)

    def load_method(self, name: str) -> Optional[Method]:
        """Returns a method, loading it if necessary. `KeyError` if it does not exist."""
        method = self._methods[name]
        if method is None:
            method = Method(self._program.load_method(name))
            self._methods[name] = method
        return method

    def metadata(self, method_name: str) -> MethodMeta:
        """Metadata of a method, without loading it."""
        return self._program.method_meta(method_name)

    def write_etdump_result_to_file(self, etdump_path: str, debug_buffer_path: str) -> None:
        """Writes the recorded events; requires `enable_etdump=True` at loading."""
        self._program.write_etdump_result_to_file(etdump_path, debug_buffer_path)

    def __repr__(self) -> str:
        return f"Program({', '.join(self._methods)})"


class BackendRegistry:
    """The supported delegate backends."""

    def __init__(self, legacy_module: ModuleType) -> None:
        self._legacy_module = legacy_module

    @property
    def registered_backend_names(self) -> List[str]:
        """The names of all backends."""
        names: List[str] = self._legacy_module._get_registered_backend_names()
        return names

    def is_available(self, backend_name: str) -> bool:
        """Whether a backend is available on this machine."""
        return bool(self._legacy_module._is_available(backend_name))


class OperatorRegistry:
    """The operators with CPU kernels."""

    def __init__(self, legacy_module: ModuleType) -> None:
        self._legacy_module = legacy_module

    @property
    def operator_names(self) -> Set[str]:
        """The names of all operators, such as `aten::add.out`."""
        return set(self._legacy_module._get_operator_names())


class Runtime:
    """The runtime, a singleton."""

    @staticmethod
    @functools.lru_cache(maxsize=1)
    def get() -> "Runtime":
        """The runtime."""
        return Runtime(legacy_module=portable_lib)

    def __init__(self, *, legacy_module: ModuleType) -> None:
        self.backend_registry = BackendRegistry(legacy_module)
        self.operator_registry = OperatorRegistry(legacy_module)
        self._legacy_module = legacy_module

    def load_program(
        self,
        data: Union[bytes, bytearray, BinaryIO, "os.PathLike[str]", str],
        *,
        verification: Verification = Verification.InternalConsistency,
        enable_etdump: bool = False,
        debug_buffer_size: int = 0,
        data_path: Optional[Union["os.PathLike[str]", str]] = None,
    ) -> Program:
        """Opens a program from a path, bytes, or an open file, with external data in a file."""
        source = as_source(data)
        options = {
            "enable_etdump": enable_etdump,
            "debug_buffer_size": debug_buffer_size,
            "program_verification": verification,
            "data_path": None if data_path is None else os.fspath(data_path),
        }
        if isinstance(source, str):
            return Program(self._legacy_module._load_program(source, **options), data=None)
        program = self._legacy_module._load_program_from_buffer(source, **options)
        return Program(program, data=source)
