"""JAX arrays, if JAX is installed."""

from typing import Any

import pytest
from conftest import fixture

import torchlet

jax = pytest.importorskip("jax")


def test_arrays_as_inputs_and_outputs(image: Any) -> None:
    (output,) = torchlet.Module(fixture("digits/digits.pte"))(jax.numpy.asarray(image))
    assert isinstance(output, jax.Array) and int(output.argmax()) == 2


def test_bfloat16_needs_dlpack() -> None:
    ones = torchlet.Tensor(jax.numpy.ones((2, 3), jax.numpy.bfloat16))
    assert (ones.dtype, ones.tolist()) == ("bfloat16", [[1, 1, 1], [1, 1, 1]])
    zeros = jax.numpy.zeros((1, 1, 8, 8), jax.numpy.bfloat16)
    (output,) = torchlet.Module(fixture("digits/digits_bf16.bpte"))(zeros)
    assert output.dtype == jax.numpy.bfloat16
