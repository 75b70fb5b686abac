"""Tensors are exchanged without copies, in any layout; invalid ones are errors."""

import array
import ctypes
import gc
import weakref
from typing import Any

import pytest
from conftest import fixture

import torchlet
from torchlet import Tensor, portable_lib

numpy = pytest.importorskip("numpy")

DTYPES = [
    "bool",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
]


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_and_tensors_share_memory(dtype: str) -> None:
    given = numpy.arange(6).reshape(2, 3).astype(dtype)
    tensor = Tensor(given)
    assert (tensor.shape, tensor.dtype, tensor.strides) == ((2, 3), dtype, (3, 1))
    back = tensor.numpy()
    assert back.dtype == given.dtype and (back == given).all()
    assert back.ctypes.data == given.ctypes.data
    through_dlpack = numpy.from_dlpack(tensor)
    assert (through_dlpack == given).all() and through_dlpack.ctypes.data == given.ctypes.data
    given[1, 2] = 0
    assert back[1, 2] == 0


def test_dense_layouts_are_kept() -> None:
    given = numpy.arange(120, dtype="float32").reshape(2, 3, 4, 5)
    for order in [(0, 1, 2, 3), (0, 2, 3, 1), (3, 2, 1, 0), (1, 0, 3, 2)]:
        turned = given.transpose(numpy.argsort(order))
        tensor = Tensor(turned)
        assert tensor.numpy().ctypes.data == given.ctypes.data
        assert tensor.numpy().strides == turned.strides
        assert (tensor.numpy() == turned).all() and tensor.tolist() == turned.tolist()


def test_strided_layouts_with_gaps_are_copied() -> None:
    given = numpy.arange(120, dtype="int32").reshape(2, 3, 4, 5)
    for view in [
        given[:, ::2],
        given[..., ::-1],
        given[:, :, 1:3, 2],
        numpy.broadcast_to(given[:1], (4, 3, 4, 5)),
        given[::-1, :, ::-1, ::3],
    ]:
        tensor = Tensor(view)
        assert tensor.shape == view.shape and tensor.tolist() == view.tolist()
        assert not numpy.shares_memory(tensor.numpy(), given)


def test_unusual_shapes() -> None:
    for shape in [(), (0,), (3, 0, 2), (1, 1, 1), (2, 1, 3, 1, 1)]:
        given = numpy.ones(shape, "float32")
        tensor = Tensor(given)
        assert tensor.shape == shape and tensor.tolist() == given.tolist()
        assert tensor.numpy().shape == shape and tensor.nbytes == given.nbytes
    assert Tensor(numpy.float32(2.5)).item() == 2.5
    with pytest.raises(torchlet.Error, match="dims"):
        Tensor(numpy.ones((1,) * 17, "float32"))
    with pytest.raises(TypeError):
        len(Tensor(numpy.float32(1)))


def test_buffers_of_the_standard_library() -> None:
    assert Tensor(b"abc").tolist() == [97, 98, 99]
    assert Tensor(array.array("d", [1.5, 2.5])).tolist() == [1.5, 2.5]
    numbers = (ctypes.c_int16 * 3)(1, -2, 3)
    tensor = Tensor(numbers)
    assert (tensor.dtype, tensor.tolist()) == ("int16", [1, -2, 3])
    memoryview(tensor)[0] = 7
    assert numbers[0] == 7


def test_memory_lives_as_long_as_it_is_used() -> None:
    class Array(numpy.ndarray):
        pass

    given = numpy.arange(1000, dtype="float32").view(Array)
    alive = weakref.ref(given)
    view = memoryview(Tensor(given))
    del given
    gc.collect()
    assert alive() is not None and view[999] == 999
    view.release()
    gc.collect()
    assert alive() is None

    kept = Tensor.zeros([1000]).numpy()
    gc.collect()
    assert kept.sum() == 0
    capsule = Tensor.zeros([10]).__dlpack__()
    del capsule


def test_read_only_tensors_cannot_be_written() -> None:
    given = numpy.arange(3, dtype="float32")
    given.flags.writeable = False
    tensor = Tensor(given)
    assert not tensor.writable and not tensor.numpy().flags.writeable
    assert memoryview(tensor).readonly
    assert not numpy.from_dlpack(tensor).flags.writeable
    with pytest.raises(BufferError, match="read-only"):
        tensor.__dlpack__()
    assert not Tensor(b"abc").writable


def test_unsupported_dlpack_requests() -> None:
    tensor = Tensor.zeros([2])
    assert tensor.__dlpack_device__() == (1, 0)
    with pytest.raises(BufferError, match="CPU"):
        tensor.__dlpack__(dl_device=(2, 0))
    with pytest.raises(torchlet.Error, match="stream"):
        tensor.__dlpack__(stream=1)
    copied = numpy.from_dlpack(tensor, copy=True)
    assert copied.ctypes.data != tensor.numpy().ctypes.data

    class Used:
        capsule = tensor.__dlpack__()

        def __dlpack__(self, **_: Any) -> Any:
            return self.capsule

    used = Used()
    assert Tensor(used).tolist() == [0, 0]
    with pytest.raises(torchlet.Error, match="used before"):
        Tensor(used)

    class Liar:
        def __dlpack__(self, **_: Any) -> Any:
            return b"no capsule"

    class Failing:
        def __dlpack__(self, **_: Any) -> Any:
            raise ValueError("not today")

    class Old:
        def __dlpack__(self, stream: None = None) -> Any:
            return tensor.__dlpack__()

    with pytest.raises(torchlet.Error, match="no capsule"):
        Tensor(Liar())
    with pytest.raises(ValueError, match="not today"):
        Tensor(Failing())
    assert Tensor(Old()).shape == (2,)


def test_invalid_tensors() -> None:
    for nothing in (object(), 7, "text", None, [1.0]):
        with pytest.raises(TypeError, match="__dlpack__"):
            Tensor(nothing)
    for array_ in (numpy.zeros(2, ">f4"), numpy.zeros(2, "M8[s]"), numpy.zeros(2, "f4,i4")):
        with pytest.raises((torchlet.Error, ValueError, BufferError)):
            Tensor(array_)
    with pytest.raises(torchlet.Error, match="unknown dtype"):
        Tensor.zeros([1], "float31")
    with pytest.raises(torchlet.Error):
        Tensor.zeros([2**31 - 1] * 3)
    with pytest.raises(torchlet.Error):
        Tensor.zeros([-1])
    with pytest.raises(torchlet.Error, match="differ in element size"):
        Tensor.zeros([1]).with_dtype("int8")


def test_16_bit_floats() -> None:
    ones = Tensor(numpy.full((2, 2), 0x3F80, "uint16")).with_dtype("bfloat16")
    assert ones.dtype == "bfloat16" and ones.tolist() == [[1, 1], [1, 1]]
    with pytest.raises(BufferError, match="bfloat16"):
        memoryview(ones)
    module = torchlet.Module(fixture("digits/digits_half.bpte"))
    (output,) = module(numpy.zeros((1, 1, 8, 8), "float16"))
    assert output.dtype == "float16"
    bfloat16 = torchlet.Module(fixture("digits/digits_bf16.bpte"), outputs="torchlet")
    (output,) = bfloat16(Tensor.zeros([1, 1, 8, 8], "bfloat16"))
    assert output.dtype == "bfloat16"


def test_types_that_numpy_lacks() -> None:
    try:
        import ml_dtypes
    except ImportError:
        ml_dtypes = None
    module = torchlet.Module(fixture("digits/digits_bf16.bpte"), outputs="numpy")
    program = portable_lib._load_for_executorch(str(fixture("digits/digits_bf16.bpte")))
    zeros = Tensor.zeros([1, 1, 8, 8], "bfloat16")
    if ml_dtypes:
        assert module(zeros)[0].dtype == ml_dtypes.bfloat16
    else:
        with pytest.raises(torchlet.Error, match="install ml_dtypes"):
            module(zeros)
    assert str(program.forward([zeros])[0].dtype).endswith("bfloat16")


def test_repr_shows_the_elements() -> None:
    assert "7" in repr(Tensor(numpy.full((2, 2), 7, "int32")))


def test_inputs_of_any_layout_are_equivalent(digits: torchlet.Module, image: Any) -> None:
    (expected,) = digits(image)
    wide = numpy.zeros((1, 1, 8, 16), "float32")
    wide[..., ::2] = image
    readonly = image.copy()
    readonly.flags.writeable = False
    turned = numpy.ascontiguousarray(image.transpose(0, 1, 3, 2)).transpose(0, 1, 3, 2)
    for given in (wide[..., ::2], readonly, turned, Tensor(image)):
        assert (numpy.asarray(digits(given)[0]) == expected).all()


def test_outputs_are_copies(digits: torchlet.Module, image: Any) -> None:
    (first,) = digits(image)
    kept = first.copy()
    first[:] = 0
    (second,) = digits(image)
    assert (second == kept).all() and not numpy.shares_memory(first, second)
    digits(image * 0)
    assert (second == kept).all()


def test_outputs_are_converted_to_the_requested_library(image: Any) -> None:
    path = fixture("digits/digits.pte")
    assert isinstance(torchlet.Module(path)(image)[0], numpy.ndarray)
    assert isinstance(torchlet.Module(path)(Tensor(image))[0], Tensor)
    assert isinstance(torchlet.Module(path, outputs="torchlet")(image)[0], Tensor)
    assert isinstance(torchlet.Module(path, outputs="numpy")(Tensor(image))[0], numpy.ndarray)
    with pytest.raises(torchlet.Error, match="'cupy'"):
        torchlet.Module(path, outputs="cupy")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (lambda x: x[..., :4], "expected shape"),
        (lambda x: x[0], "expected shape"),
        (lambda x: x.astype("float64"), "float64"),
        (lambda x: [x, x], "expects 1 input"),
        (lambda x: [], "expects 1 input, found 0"),
        (lambda x: None, "expected tensor"),
        (lambda x: 1.0, "expected tensor"),
        (lambda x: "text", "expected tensor"),
        (lambda x: object(), "Unsupported python type"),
        (lambda x: 2**70, "does not fit"),
        (lambda x: numpy.lib.stride_tricks.as_strided(x, (1, 1, 8, 8), (0, 0, 0, 0)), None),
    ],
)
def test_mismatched_inputs(digits: torchlet.Module, image: Any, given: Any, sentence: Any) -> None:
    if sentence is None:
        assert digits(given(image))[0].shape == (1, 10)
        return
    with pytest.raises(torchlet.Error, match=sentence):
        digits(given(image))
    assert digits(image)[0].argmax() == 2
