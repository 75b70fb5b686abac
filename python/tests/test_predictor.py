"""Batches of any size match single calls."""

import pytest
from conftest import fixture

import torchlet

numpy = pytest.importorskip("numpy")

IMAGES = fixture("digits/held_out.npy")


@pytest.mark.parametrize("name", ["digits/digits.pte", "digits/digits_dynamic_batch.bpte"])
@pytest.mark.parametrize("count", [0, 1, 3, 20])
def test_rows_match_single_calls(name: str, count: int) -> None:
    images = numpy.load(IMAGES)[:count]
    single = torchlet.Module(fixture("digits/digits.pte"))
    predict = torchlet.Predictor(fixture(name), inputs=["image"], outputs=["logits"])
    batch = predict({"image": images, "index": numpy.arange(count)})
    assert list(batch) == ["image", "index", "logits"]
    assert batch["logits"].shape == (count, 10) and batch["logits"].dtype == "float32"
    for image, logits in zip(images, batch["logits"]):
        assert numpy.allclose(single(image[None])[0][0], logits, rtol=1e-4, atol=1e-5)


def test_static_batches_are_padded() -> None:
    # The method has a static batch of three rows.
    path = fixture("programs/two_methods.pte")
    predict = torchlet.Predictor(path, inputs=["x"], outputs=["y"], keep=[])
    rows = numpy.random.default_rng(0).random((7, 4), "float32")
    whole = numpy.concatenate(
        [torchlet.Module(path)(rows[start : start + 3])[0] for start in (0, 3)]
    )
    found = predict({"x": rows, "other": rows})
    assert list(found) == ["y"] and found["y"].shape == (7, 2)
    assert numpy.allclose(found["y"][:6], whole)


def test_static_batches_with_dynamic_dimensions_are_padded() -> None:
    # The method has a static batch of two rows with at most nine elements.
    path = fixture("vulkan/reduction/mean_dynamic.bpte")
    single = torchlet.Module(path, backend="cpu")
    predict = torchlet.Predictor(path, backend="cpu")
    for width in (9, 5):
        rows = numpy.random.default_rng(width).random((3, width), "float32")
        expected = numpy.concatenate([single(rows[:2])[0], single(rows[1:])[0][1:]])
        assert numpy.allclose(predict({"input": rows})["output"], expected)


def test_invalid_arguments() -> None:
    digits = fixture("digits/digits.pte")
    for options in ({"inputs": ["a", "b"]}, {"outputs": []}):
        with pytest.raises(torchlet.Error, match="has 1"):
            torchlet.Predictor(digits, **options)
    with pytest.raises(torchlet.Error, match="tensors with a batch dim"):
        torchlet.Predictor(
            fixture("programs/many_inputs.bpte"), inputs=list("abcde"), outputs=list("abcdefgh")
        )
    predict = torchlet.Predictor(digits)
    with pytest.raises(torchlet.Error, match="lacks the columns"):
        predict({"image": numpy.zeros((1, 1, 8, 8), "float32")})
