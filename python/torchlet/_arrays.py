"""Conversion of other libraries' tensors, without importing libraries that are not in use."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any, Callable, Iterable, Sequence

from torchlet._errors import Error, invalid_argument
from torchlet._torchlet import Tensor

#: Conversions of outputs, by library.
_MAKERS: dict[str, Callable[[Tensor], Any]] = {}


def _imported(name: str) -> Any:
    """A module, if it is imported; otherwise no value can be of its types."""
    return sys.modules.get(name)


def is_torch(value: Any) -> bool:
    torch = _imported("torch")
    return torch is not None and isinstance(value, getattr(torch, "Tensor", ()))


def _is_numpy(value: Any) -> bool:
    numpy = _imported("numpy")
    return numpy is not None and isinstance(value, getattr(numpy, "ndarray", ()))


def _is_jax(value: Any) -> bool:
    jax = _imported("jax")
    return jax is not None and isinstance(value, getattr(jax, "Array", ()))


def as_input(value: Any, index: int, method: str) -> Any:
    """Converts an input for the native module.

    A PyTorch tensor is moved to the host, and to a form that its DLPack export supports.
    """
    if is_torch(value):
        return _torch_input(value, index, method)
    if _is_numpy(value) and value.dtype.name in _WITHOUT_BUFFER:
        return Tensor(value.view(f"u{value.dtype.itemsize}")).with_dtype(value.dtype.name)
    return value


#: Element types of NumPy extensions (`ml_dtypes`), which have no format in the buffer protocol.
_WITHOUT_BUFFER = {
    "bfloat16",
    "float8_e5m2",
    "float8_e4m3fn",
    "float8_e5m2fnuz",
    "float8_e4m3fnuz",
}


def _torch_input(value: Any, index: int, method: str) -> Any:
    torch = _imported("torch")
    kind = value.device.type
    if kind == "cuda":
        value = value.cpu()
    elif kind != "cpu" and value.numel() != 0:
        raise invalid_argument(
            f"Input {index} for method {method} is on device {value.device}, "
            "and only CPU and CUDA tensors can be passed to a method"
        )
    elif kind != "cpu":
        value = torch.empty_like(value, device="cpu")
    if value.layout != torch.strided:
        raise invalid_argument(
            f"Input {index} for method {method} has layout {value.layout}; make it dense first"
        )
    if value.is_quantized:
        value = value.int_repr()
    value = value.detach()
    if value.is_conj() or value.is_neg():
        value = value.resolve_conj().resolve_neg()
    return value


def to_torch(tensor: Tensor) -> Any:
    """A PyTorch tensor over the same memory."""
    import torch

    return torch.from_dlpack(tensor)


def to_numpy(tensor: Tensor) -> Any:
    """A NumPy array over the same memory."""
    import numpy

    if tensor.dtype in _WITHOUT_BUFFER:
        try:
            import ml_dtypes
        except ImportError:
            raise Error(
                f"NumPy has no {tensor.dtype}: install ml_dtypes, or use `torch()`", 0x10
            ) from None
        bits = tensor.with_dtype("uint16" if tensor.dtype == "bfloat16" else "uint8")
        return numpy.asarray(bits).view(getattr(ml_dtypes, tensor.dtype))
    return numpy.asarray(tensor)


def _to_jax(tensor: Tensor) -> Any:
    import jax

    return jax.dlpack.from_dlpack(tensor)


_MAKERS.update(torch=to_torch, numpy=to_numpy, jax=_to_jax, torchlet=lambda tensor: tensor)


def has(library: str) -> bool:
    """Whether a library is installed, without importing it."""
    return library in sys.modules or importlib.util.find_spec(library) is not None


def maker(library: str) -> Callable[[Tensor], Any]:
    """The conversion to tensors of a library."""
    found = _MAKERS.get(library)
    if found is None:
        known = ", ".join(repr(name) for name in _MAKERS)
        raise invalid_argument(f"unknown output library {library!r}; expected one of {known}")
    return found


def own_maker(library: str) -> Callable[[Tensor], Any]:
    """Like `maker`, for the default library: keeps tensors of unsupported types unchanged."""
    make = maker(library)
    if library != "numpy" or has("ml_dtypes"):
        return make
    return lambda tensor: tensor if tensor.dtype in _WITHOUT_BUFFER else make(tensor)


def library_of(values: Iterable[Any]) -> str:
    """The library of the first tensor among the values."""
    for value in values:
        if is_torch(value):
            return "torch"
        if _is_numpy(value):
            return "numpy"
        if _is_jax(value):
            return "jax"
    return "torchlet"


def outputs(values: Sequence[Any], make: Callable[[Tensor], Any]) -> list[Any]:
    """Converts the tensors among the outputs."""
    return [make(value) if isinstance(value, Tensor) else value for value in values]


def nested(numbers: list[Any], shape: Sequence[int]) -> Any:
    """Converts elements in row-major order to nested lists."""
    if not shape:
        return numbers[0]
    for size in reversed(shape[1:]):
        if size == 0:
            return _empty(shape)
        numbers = [numbers[start : start + size] for start in range(0, len(numbers), size)]
    return numbers


def _empty(shape: Sequence[int]) -> list[Any]:
    if len(shape) == 1:
        return [0] * shape[0] if shape[0] == 0 else []
    return [_empty(shape[1:]) for _ in range(shape[0])]


def default_library() -> str:
    """The default library of outputs: PyTorch if installed, else NumPy, else torchlet."""
    for library in ("torch", "numpy"):
        if has(library):
            return library
    return "torchlet"
