"""PyTorch tensors, if PyTorch is installed."""

from typing import Any

import pytest
from conftest import fixture

import torchlet
from torchlet import Tensor, portable_lib

torch = pytest.importorskip("torch")

DTYPES = [
    "bool",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
]


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_share_memory(dtype: str) -> None:
    given = torch.arange(24).reshape(1, 2, 3, 4).to(getattr(torch, dtype))
    for layout in (torch.contiguous_format, torch.channels_last):
        laid = given.to(memory_format=layout)
        tensor = Tensor(laid)
        assert (tensor.dtype, tensor.shape) == (dtype, (1, 2, 3, 4))
        assert tensor.torch().data_ptr() == laid.data_ptr()
        assert tensor.torch().equal(given) and tensor.torch().stride() == laid.stride()


def test_tensors_that_dlpack_cannot_export() -> None:
    module = torchlet.Module(fixture("digits/digits.pte"))
    image = torch.rand(1, 1, 8, 8)
    (expected,) = module(image)
    assert isinstance(expected, torch.Tensor)
    assert module(image.clone().requires_grad_())[0].equal(expected)
    assert module(torch.nn.Parameter(image))[0].equal(expected)
    negative = torch._neg_view(-image)
    assert negative.is_neg() and module(negative)[0].equal(expected)
    assert module(image.expand(1, 1, 8, 8).flip(3).flip(3))[0].equal(expected)
    assert module(image.permute(0, 1, 3, 2).contiguous().permute(0, 1, 3, 2))[0].equal(expected)
    for wrong in (image.to("meta"), image.to_sparse(), image.double(), image[0]):
        with pytest.raises(torchlet.Error):
            module(wrong)
    with pytest.raises(torchlet.Error, match="Input 0 for method forward is on device meta"):
        module(image.to("meta"))


def test_channels_last_programs_accept_any_layout() -> None:
    module = torchlet.Module(fixture("models/mobilenet_v2_channels_last.bpte"))
    image = torch.rand(module["forward"].inputs[0].shape)
    (expected,) = module(image)
    (output,) = module(image.to(memory_format=torch.channels_last))
    assert torch.equal(output, expected)


def test_freed_tensors_are_not_used() -> None:
    module = torchlet.Module(fixture("digits/digits.pte"))
    for _ in range(20):
        (output,) = module(torch.rand(1, 1, 8, 8))
    kept = output.clone()
    del module
    assert output.equal(kept)
    view = Tensor(torch.arange(1000))
    torch.rand(100000)
    assert view.torch().equal(torch.arange(1000))


def test_a_single_tensor_is_the_only_input() -> None:
    module = portable_lib._load_for_executorch(str(fixture("digits/digits.pte")))
    image = torch.rand(1, 1, 8, 8)
    assert torch.equal(module(image)[0], module([image])[0])
    assert isinstance(module(image)[0], torch.Tensor)


def test_outputs_match_executorch() -> None:
    # ExecuTorch's import prints warnings.
    try:
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from executorch.extension.pybindings import portable_lib as theirs
    except ImportError:
        pytest.skip("executorch is not installed")

    def outputs(library: Any, path: str, inputs: list[Any]) -> list[Any]:
        return library._load_for_executorch(path).forward(inputs)

    for name in ("digits/digits.pte", "models/mobilenet_v2.pte", "programs/two_methods.pte"):
        path = str(fixture(name))
        meta = portable_lib._load_for_executorch(path).method_meta("forward")
        assert repr(meta) == repr(theirs._load_for_executorch(path).method_meta("forward"))
        inputs = [torch.rand(meta.input_tensor_meta(0).sizes())]
        for ours, expected in zip(
            outputs(portable_lib, path, inputs), outputs(theirs, path, inputs)
        ):
            assert torch.allclose(ours, expected, rtol=1e-4, atol=1e-5)
