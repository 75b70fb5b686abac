"""Tensors of other libraries, without importing any that the program does not use."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any, Callable, Iterable, Sequence

from torchlet._errors import Error, invalid_argument
from torchlet._torchlet import Tensor

#: Libraries whose tensors can be had as outputs, and how.
_MAKERS: dict[str, Callable[[Tensor], Any]] = {}


def _imported(name: str) -> Any:
    """A module, if the program has imported it: what it has not, none of its values is of."""
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
    """What the native module takes: a tensor of PyTorch in memory of the host, without what its DLPack refuses to show."""
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
    """A tensor of PyTorch over the same memory."""
    import torch

    return torch.from_dlpack(tensor)


def to_numpy(tensor: Tensor) -> Any:
    """An array of NumPy over the same memory."""
    import numpy

    if tensor.dtype in _WITHOUT_BUFFER:
        try:
            import ml_dtypes
        except ImportError:
            raise Error(
                f"NumPy has no {tensor.dtype}: install ml_dtypes, or take `torch()`", 0x10
            ) from None
        bits = tensor.with_dtype("uint16" if tensor.dtype == "bfloat16" else "uint8")
        return numpy.asarray(bits).view(getattr(ml_dtypes, tensor.dtype))
    return numpy.asarray(tensor)


def _to_jax(tensor: Tensor) -> Any:
    import jax

    return jax.dlpack.from_dlpack(tensor)


_MAKERS.update(torch=to_torch, numpy=to_numpy, jax=_to_jax, torchlet=lambda tensor: tensor)


def has(library: str) -> bool:
    """Whether a library is there, without importing it."""
    return library in sys.modules or importlib.util.find_spec(library) is not None


def maker(library: str) -> Callable[[Tensor], Any]:
    """What makes tensors of a library."""
    found = _MAKERS.get(library)
    if found is None:
        known = ", ".join(repr(name) for name in _MAKERS)
        raise invalid_argument(f"outputs cannot be those of {library!r}; they may be of {known}")
    return found


def own_maker(library: str) -> Callable[[Tensor], Any]:
    """The same for a library that nobody asked for: what it lacks the type for stays as it is."""
    make = maker(library)
    if library != "numpy" or has("ml_dtypes"):
        return make
    return lambda tensor: tensor if tensor.dtype in _WITHOUT_BUFFER else make(tensor)


def library_of(values: Iterable[Any]) -> str:
    """The library that the first tensor among values is of."""
    for value in values:
        if is_torch(value):
            return "torch"
        if _is_numpy(value):
            return "numpy"
        if _is_jax(value):
            return "jax"
    return "torchlet"


def outputs(values: Sequence[Any], make: Callable[[Tensor], Any]) -> list[Any]:
    """Outputs, with their tensors as those of a library."""
    return [make(value) if isinstance(value, Tensor) else value for value in values]


def nested(numbers: list[Any], shape: Sequence[int]) -> Any:
    """Numbers in row-major order as nested lists."""
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
    """The library of outputs where nothing says which: PyTorch if it is installed, else NumPy, else none."""
    for library in ("torch", "numpy"):
        if has(library):
            return library
    return "torchlet"
