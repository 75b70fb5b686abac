"""Real programs match PyTorch, without any other package."""

from typing import Any

import pytest
from conftest import assert_close, cases, entries, fixture

import torchlet
from torchlet import _torchlet

ENTRIES = entries("digits", "programs", "cells", "models", "xnnpack", "tinyml")


@pytest.mark.parametrize("entry", ENTRIES, ids=[entry["file"] for entry in ENTRIES])
def test_outputs_match_pytorch(entry: dict[str, Any]) -> None:
    data = [str(fixture(name)) for name in entry["data"]]
    native = _torchlet.Module.open(str(fixture(entry["file"])), data=data)
    found = 0
    for method, inputs, expected in cases(native):
        outputs = native.execute(method, inputs)
        assert_close(outputs, expected, entry["rtol"], entry["atol"])
        found += 1
    assert found


def test_a_module_is_opened_from_paths_bytes_and_files(image: Any) -> None:
    path = fixture("digits/digits.pte")
    with open(path, "rb") as file:
        sources = [path, str(path), path.read_bytes(), bytearray(path.read_bytes()), file]
        results = [torchlet.Module(source).forward(image)[0] for source in sources]
    assert all((result == results[0]).all() for result in results)
    assert results[0].argmax() == 2
    with pytest.raises(TypeError, match="a path to a .pte file"):
        torchlet.Module(7)
    with (
        open(path, encoding="latin-1") as text,
        pytest.raises(TypeError, match="open it with 'rb'"),
    ):
        torchlet.Module(text)


def test_external_data(image: Any) -> None:
    program = fixture("digits/digits_external.pte")
    weights = fixture("digits/digits_external._default_external_constant.ptd")
    for data in (weights, [weights], weights.read_bytes()):
        assert torchlet.Module(program, data=data)(image)[0].argmax() == 2
    with pytest.raises(torchlet.Error, match="forward"):
        torchlet.Module(program)(image)


@pytest.mark.parametrize("backend", ["auto", "cpu", "as-exported"])
def test_backends_agree(backend: str, image: Any) -> None:
    assert torchlet.Module(fixture("digits/digits.pte"), backend)(image)[0].argmax() == 2


def test_dynamic_shapes() -> None:
    module = torchlet.Module(fixture("programs/dynamic_rows.bpte"), outputs="torchlet")
    (taken,) = module["forward"].inputs
    assert (taken.shape, taken.dynamic, taken.dtype) == ((12, 3), True, "float32")
    for rows in (1, 5, 12):
        (output,) = module(torchlet.Tensor.zeros([rows, 3]))
        assert output.shape == (rows, 3)
    with pytest.raises(torchlet.Error, match="13"):
        module(torchlet.Tensor.zeros([13, 3]))


def test_several_methods() -> None:
    module = torchlet.Module(fixture("programs/two_methods.pte"))
    assert list(module.methods) == module.method_names == ["encode", "forward"]
    (code,) = module["encode"](torchlet.Tensor.zeros([1, 4]))
    assert code.shape == (1, 2)
    assert module.is_loaded("encode") and not module.is_loaded("forward")
    assert module.unload("encode") and not module.is_loaded("encode")
    with pytest.raises(torchlet.Error, match="no method 'decode'; it has encode, forward"):
        module["decode"]


def test_nested_inputs_are_flattened() -> None:
    native = _torchlet.Module.open(str(fixture("programs/nested_containers.bpte")))
    _, (a, b, c, d), expected = next(cases(native))
    module = torchlet.Module(fixture("programs/nested_containers.bpte"))
    for nested in [(a, b, c, d), ((a, [b]), {"x": c, "y": (d,)}), ([[a, b], [c, d]],)]:
        assert_close(module.forward(*nested), expected, 0, 0)


def test_scalar_values() -> None:
    module = torchlet.Module(fixture("programs/many_inputs.bpte"))
    native = _torchlet.Module.open(str(fixture("programs/many_inputs.bpte")))
    for _, inputs, expected in cases(native):
        assert_close(module.forward(*inputs), expected, 1e-5, 1e-6)
        assert [type(value) for value in inputs[1:]] == [int, bool, float, type(None)]


def test_string_outputs() -> None:
    module = torchlet.Module(fixture("programs/training.pte"))
    names = module.execute("__et_training_fqn_forward")
    assert len(names) == 4 and all(isinstance(name, str) for name in names)


def test_state_persists_and_can_be_read_written_and_saved() -> None:
    path = fixture("programs/state_named.bpte")
    native = _torchlet.Module.open(str(path))
    steps = list(cases(native))
    module = torchlet.Module(path)
    for _, inputs, expected in steps:
        assert_close(module(*inputs), expected, 1e-5, 1e-6)
    names = [tensor.name for tensor in module["forward"].state]
    assert all(names) and len(set(names)) == len(names)
    saved = module.save_state()
    after = [tensor.read() for tensor in module["forward"].state]
    module["forward"].reset()
    assert_close(module(*steps[0][1]), steps[0][2], 1e-5, 1e-6)
    module.load_state(saved)
    assert_close([tensor.read() for tensor in module["forward"].state], after, 0, 0)
    module["forward"].reset()
    for tensor, value in zip(module["forward"].state, after):
        tensor.write(value)
    assert_close([tensor.read() for tensor in module["forward"].state], after, 0, 0)
    with pytest.raises(torchlet.Error):
        module["forward"].state[0].write(torchlet.Tensor.zeros([1, 1, 1]))
    with pytest.raises(torchlet.Error):
        module.load_state(b"no such file")


def test_shared_modules_have_state_of_their_own() -> None:
    path = fixture("programs/state_named.bpte")
    steps = list(cases(_torchlet.Module.open(str(path))))
    module = torchlet.Module(path)
    module(*steps[0][1])
    assert_close(module.share()(*steps[0][1]), steps[0][2], 1e-5, 1e-6)
    assert_close(module(*steps[1][1]), steps[1][2], 1e-5, 1e-6)


def test_memory_is_known_before_loading(digits: torchlet.Module) -> None:
    memory = digits["forward"].memory()
    assert set(memory) == {"arena", "planned", "scratch", "unplanned"}
    assert memory["arena"] > 0 and not digits.is_loaded()
    small = torchlet.Module(fixture("digits/digits.pte"), memory_limit=10)
    with pytest.raises(torchlet.Error, match="memory limit") as caught:
        small.load()
    assert caught.value.code == 0x21 and caught.value.name == "MemoryAllocationFailed"


def test_profiles_and_descriptions(image: Any) -> None:
    module = torchlet.Module(fixture("digits/digits.pte"), "as-exported", profile=True)
    module(image)
    module(image)
    operators = [entry for entry in module.profile if entry.kind == "Operator"]
    assert operators and all(
        entry.count == 2 and entry.total >= entry.longest for entry in operators
    )
    assert "aten::convolution.out" in repr(module.profile)
    assert module.profile._repr_html_().count("<tr>") == len(module.profile) + 1
    module.clear_profile()
    assert len(module.profile) == 0
    with pytest.raises(torchlet.Error, match="profile=True"):
        torchlet.Module(fixture("digits/digits.pte")).profile
    assert "forward(float32[1, 1, 8, 8]) -> (float32[1, 10])" in repr(module)
    assert "float32[1, 1, 8, 8]" in module._repr_html_()


def test_html_escapes_names(tmp_path: Any) -> None:
    path = tmp_path / "<img src=x onerror=alert(1)>.pte"
    path.write_bytes(fixture("digits/digits.pte").read_bytes())
    html = torchlet.Module(path)._repr_html_()
    assert "<img" not in html and "&lt;img" in html


def test_compile_cache_stores_programs(tmp_path: Any, image: Any) -> None:
    origins = []
    for _ in range(2):
        module = torchlet.Module(fixture("digits/digits.pte"), "cpu", compile_cache=tmp_path)
        assert module(image)[0].argmax() == 2
        origins.append(module.origin)
    assert origins == ["compiled", "cached"]


def test_cancelled_modules_run_again(digits: torchlet.Module, image: Any) -> None:
    digits.cancel()
    with pytest.raises(torchlet.Error, match="cancel"):
        digits(image)
    digits.resume()
    assert digits(image)[0].argmax() == 2
