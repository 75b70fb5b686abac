"""Tests of ExecuTorch's Python API, with and without PyTorch."""

import io
import struct
from pathlib import Path
from typing import Any

import pytest
from conftest import cases, entries, fixture

import torchlet
from torchlet import _torchlet, portable_lib
from torchlet.portable_lib import Verification
from torchlet.runtime import Runtime

numpy = pytest.importorskip("numpy")

DIGITS = fixture("digits/digits.pte")


def test_programs_are_loaded_from_paths_bytes_and_files(image: Any) -> None:
    runtime = Runtime.get()
    assert runtime is Runtime.get()
    data = DIGITS.read_bytes()
    for level in Verification:
        for source in (DIGITS, str(DIGITS), data, bytearray(data), io.BytesIO(data)):
            program = runtime.load_program(source, verification=level)
            assert program.method_names == {"forward"}
            method = program.load_method("forward")
            assert method is program.load_method("forward")
            (logits,) = method.execute([image])
            assert int(logits.argmax()) == 2
    with pytest.raises(TypeError, match="Expected data to be bytes"):
        runtime.load_program(7)
    with pytest.raises(TypeError, match="Verification"):
        runtime.load_program(DIGITS, verification=7)
    with pytest.raises(KeyError):
        program.load_method("backward")


def test_wrong_number_of_inputs_is_an_invalid_argument(image: Any) -> None:
    method = Runtime.get().load_program(DIGITS).load_method("forward")
    for inputs in ([], [image, image]):
        with pytest.raises(torchlet.Error, match="expects 1 input, found .") as caught:
            method.execute(inputs)
        assert caught.value.code == 0x12


def test_external_data_is_a_file(image: Any) -> None:
    weights = fixture("digits/digits_external._default_external_constant.ptd")
    program = Runtime.get().load_program(fixture("digits/digits_external.pte"), data_path=weights)
    assert int(program.load_method("forward").execute([image])[0].argmax()) == 2


def test_metadata() -> None:
    meta = Runtime.get().load_program(DIGITS).metadata("forward")
    assert str(meta) == (
        "MethodMeta(name='forward', num_inputs=1, input_tensor_meta=["
        "'TensorInfo(sizes=[1, 1, 8, 8], dtype=Float, is_memory_planned=True, nbytes=256)'], "
        "num_outputs=1, output_tensor_meta=["
        "'TensorInfo(sizes=[1, 10], dtype=Float, is_memory_planned=True, nbytes=40)'])"
    )
    tensor = meta.input_tensor_meta(0)
    assert (tensor.sizes(), tensor.dtype(), tensor.nbytes()) == ((1, 1, 8, 8), 6, 256)
    for index in (1, -1):
        with pytest.raises(IndexError):
            meta.input_tensor_meta(index)
        with pytest.raises(IndexError):
            meta.output_tensor_meta(index)
    values = portable_lib._load_program(str(fixture("programs/many_inputs.bpte")))
    values = values.method_meta("forward")
    assert "'Int', 'Bool', 'Double', 'None'" in str(values)
    with pytest.raises(IndexError, match="Int"):
        values.input_tensor_meta(1)
    assert values.num_attributes() == 0


def test_registries() -> None:
    runtime = Runtime.get()
    names = runtime.operator_registry.operator_names
    assert "aten::add.out" in names and "aten::convolution.out" in names
    assert "XnnpackBackend" in runtime.backend_registry.registered_backend_names
    assert runtime.backend_registry.is_available("XnnpackBackend")
    assert not runtime.backend_registry.is_available("NoBackend")


def test_modules_run_by_every_name(image: Any) -> None:
    module = portable_lib._load_for_executorch(str(DIGITS))
    assert module.method_names() == ["forward"] and not module.has_etdump()
    for outputs in (
        module(image),
        module([image]),
        module.forward((image,)),
        module.run_method("forward", [image]),
        module.run_method("forward", [image], clone_outputs=False),
    ):
        assert int(outputs[0].argmax()) == 2
    with pytest.raises(RuntimeError):
        module.run_method("backward", [image])
    with pytest.raises(RuntimeError, match="Unsupported python type <class 'list'>"):
        module.forward([[image]])
    empty = portable_lib._load_for_executorch(str(fixture("programs/no_inputs.bpte")))
    assert empty.plan_execute("forward")[0].shape == (2, 2)
    with pytest.raises(RuntimeError):
        module.plan_execute("forward")


def test_outputs_without_clone_stay_valid(image: Any) -> None:
    module = portable_lib._load_for_executorch(str(DIGITS))
    (first,) = module.forward([image], clone_outputs=False)
    kept = first.tolist()
    (second,) = module.forward([image * 0], clone_outputs=False)
    assert first.tolist() == second.tolist() != kept
    (clone,) = module.forward([image])
    assert first.tolist() == second.tolist() != clone.tolist() == kept
    del module
    assert first.tolist() == second.tolist()


def test_methods_by_parts(image: Any) -> None:
    program = portable_lib._load_program(str(DIGITS))
    assert (program.num_methods(), program.get_method_name(0)) == (1, "forward")
    for index in (1, -1):
        with pytest.raises(RuntimeError):
            program.get_method_name(index)
    method = program.load_method("forward")
    with pytest.raises(RuntimeError, match="set_inputs"):
        method.execute()
    method.set_inputs([image])
    method.execute()
    assert int(method.get_outputs()[0].argmax()) == 2
    assert int(method.call([image])[0].argmax()) == 2
    with pytest.raises(RuntimeError):
        method.set_inputs([image, image])
    with pytest.raises(RuntimeError):
        program.load_method("backward")


def test_attributes_and_state_that_methods_share() -> None:
    program = portable_lib._load_program(str(fixture("programs/state_named.bpte")))
    meta = program.method_meta("forward")
    names = {tensor.name for tensor in meta._info.attributes}
    method = program.load_method("forward")
    zeros = numpy.zeros((2, 3), "float32")
    before = {name: method.get_attribute(name).tolist() for name in names}
    method([zeros + 1])
    assert {name: method.get_attribute(name).tolist() for name in names} != before
    again = program.load_method("forward")
    assert {name: again.get_attribute(name).tolist() for name in names} == before
    with pytest.raises(RuntimeError, match="no attribute"):
        method.get_attribute("nothing")

    shared = portable_lib._load_program(str(fixture("programs/state_shared.bpte")))
    write, read = shared.load_method("write"), shared.load_method("read")
    native = _torchlet.Module.open(str(fixture("programs/state_shared.bpte")))
    suites = {method: (inputs, expected) for method, inputs, expected in cases(native)}
    alone = read(suites["read"][0])[0].tolist()
    write(suites["write"][0])
    assert read(suites["read"][0])[0].tolist() != alone


@pytest.mark.parametrize("entry", entries("digits")[:4], ids=lambda entry: entry["file"])
def test_bundled_programs_are_verified(entry: dict[str, Any]) -> None:
    data = fixture(entry["file"]).read_bytes()
    bundle = portable_lib._load_bundled_program_from_buffer(data)
    tolerance = {"rtol": entry["rtol"], "atol": entry["atol"]}
    outputs = bundle.verify_result_with_bundled_expected_output("forward", 0, **tolerance)
    assert outputs[0].shape == (1, 10)
    module = portable_lib._load_for_executorch_from_bundled_program(bundle)
    module.verify_result_with_bundled_expected_output(bundle, "forward", 0, **tolerance)
    with pytest.raises(RuntimeError, match="test case 1000 "):
        bundle.verify_result_with_bundled_expected_output("forward", 1000)


def test_wrong_results_of_bundled_programs_are_errors() -> None:
    data = bytearray(fixture("programs/identity.bpte").read_bytes())
    bundle = portable_lib._load_bundled_program_from_buffer(bytes(data))
    _, expected = bundle._native.test_case("forward", 0)
    elements = struct.pack("<6f", *numpy.ravel(expected[0].tolist()))
    # The last copy in the file is the expected output.
    place = data.rindex(elements)
    data[place : place + 4] = struct.pack("<f", 1e9)
    wrong = portable_lib._load_bundled_program_from_buffer(bytes(data))
    bundle.verify_result_with_bundled_expected_output("forward", 0)
    with pytest.raises(torchlet.Error, match="1 of 6 elements are out of tolerance") as caught:
        wrong.verify_result_with_bundled_expected_output("forward", 0)
    assert caught.value.code == 0x23


def test_damaged_files_are_errors(image: Any, tmp_path: Path) -> None:
    data = DIGITS.read_bytes()
    with pytest.raises(RuntimeError, match="cannot read") as caught:
        portable_lib._load_for_executorch(str(tmp_path / "none.pte"))
    assert caught.value.code == 0x22
    for damaged in (b"", b"short", data[: len(data) // 2], data[:4] + b"XXXX" + data[8:]):
        with pytest.raises(RuntimeError) as caught:
            portable_lib._load_program_from_buffer(damaged).load_method("forward")
        assert isinstance(caught.value, torchlet.Error) and caught.value.code in range(1, 0x40)
        # Like in ExecuTorch, modules are opened at their first use.
        module = portable_lib._load_for_executorch_from_buffer(damaged)
        with pytest.raises(RuntimeError):
            module.forward([image])


def test_any_byte_can_be_damaged(image: Any) -> None:
    data = DIGITS.read_bytes()
    refused = 0
    for place in range(0, len(data), 97):
        damaged = bytearray(data)
        damaged[place] ^= 0xFF
        try:
            portable_lib._load_program_from_buffer(bytes(damaged)).load_method("forward")([image])
        except RuntimeError:
            refused += 1
    assert refused


def test_custom_data_loaders(image: Any) -> None:
    class Loader(portable_lib.PyDataLoader):
        def size(self) -> int:
            return DIGITS.stat().st_size

        def load(self, offset: int, size: int) -> bytes:
            return DIGITS.read_bytes()[offset : offset + size]

    module = portable_lib._load_for_executorch_from_data_loader(Loader())
    assert int(module([image])[0].argmax()) == 2


def test_events_are_written(image: Any, tmp_path: Path) -> None:
    program = Runtime.get().load_program(DIGITS, enable_etdump=True, debug_buffer_size=100_000)
    program.load_method("forward").execute([image])
    dump, buffer = tmp_path / "events.etdp", tmp_path / "values.bin"
    program.write_etdump_result_to_file(str(dump), str(buffer))
    written = dump.read_bytes()
    # The size prefix and the file identifier.
    assert struct.unpack("<I", written[:4])[0] == len(written) - 4 and written[8:12] == b"ED00"
    assert b"Execute\0" in written and b"Method::execute\0" in written
    # The last recorded value is the logits.
    (logits,) = program.load_method("forward").execute([image])
    logits = numpy.asarray(logits)
    assert buffer.read_bytes().endswith(logits.tobytes())
    # Instruction indices are those of the file.
    assert b"native_call_convolution.out\0" in written
    with pytest.raises(RuntimeError, match="enable_etdump"):
        Runtime.get().load_program(DIGITS).write_etdump_result_to_file(str(dump), str(buffer))


def test_threads_and_the_old_profiler(image: Any) -> None:
    before = portable_lib._threadpool_get_thread_count()
    assert before >= 1
    try:
        portable_lib._unsafe_reset_threadpool(3)
        assert portable_lib._threadpool_get_thread_count() == 3
        program = portable_lib._load_program(str(DIGITS))
        assert program._native.threads == 3
        with pytest.raises(RuntimeError):
            portable_lib._unsafe_reset_threadpool(0)
    finally:
        portable_lib._Threads.count = None
    portable_lib._create_profile_block("block")
    assert portable_lib._dump_profile_results() == b""
    portable_lib._reset_profile_results()
    with pytest.raises(TypeError):
        portable_lib._create_profile_block(7)
    with pytest.raises(TypeError):
        portable_lib._load_for_executorch(str(DIGITS), debug_buffer_size=-1)
