"""ExecuTorch's tools read torchlet's recordings, and torchlet compares values with PyTorch's."""

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("executorch.devtools")
torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")

from torchlet import devtools  # noqa: E402
from torchlet.runtime import Runtime  # noqa: E402


# Warnings of these packages do not concern torchlet.
pytestmark = pytest.mark.filterwarnings("default")


class Model(torch.nn.Module):
    """A few operators, one of which is a view."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)
        self.norm = torch.nn.LayerNorm(16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.first(x)).relu()
        return self.second(x).view(2, 12).softmax(-1)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The exported model, its ETRecord, and an input."""
    from executorch.exir import to_edge_transform_and_lower

    torch.manual_seed(0)
    model, x = Model().eval(), torch.randn(6, 8)
    edge = to_edge_transform_and_lower(torch.export.export(model, (x,)), generate_etrecord=True)
    program = edge.to_executorch()
    record = program.get_etrecord()
    record.update_representative_inputs([x])
    folder = tmp_path_factory.mktemp("devtools")
    (folder / "model.pte").write_bytes(program.buffer)
    record.save(str(folder / "model.etrecord"))
    return {"folder": folder, "x": x, "model": model}


def inspector(exported: dict[str, Any], runs: int) -> Any:
    """Returns an Inspector of runs of the program."""
    from executorch.devtools import Inspector

    folder = exported["folder"]
    program = Runtime.get().load_program(
        folder / "model.pte", enable_etdump=True, debug_buffer_size=1 << 20
    )
    method = program.load_method("forward")
    for _ in range(runs):
        method.execute([exported["x"]])
    program.write_etdump_result_to_file(str(folder / "run.etdp"), str(folder / "run.bin"))
    return Inspector(
        etdump_path=str(folder / "run.etdp"),
        etrecord=str(folder / "model.etrecord"),
        debug_buffer_path=str(folder / "run.bin"),
    )


def test_the_inspector_reads_events(exported: dict[str, Any]) -> None:
    found = inspector(exported, runs=3)
    assert [block.name for block in found.event_blocks] == ["Load", "Execute"]
    events = {event.name: event for event in found.event_blocks[1].events}
    assert len(events["Method::execute"].perf_data.raw) == 3
    norm = events["native_call_native_layer_norm.out"]
    assert norm.op_types == ["aten.native_layer_norm.default"] and norm.perf_data.p50 > 0
    assert any("norm" in str(modules) for modules in norm.module_hierarchy.values())
    table = io.StringIO()
    found.print_data_tabular(table)
    assert "native_call_relu.out" in table.getvalue()
    assert {"Method::execute", "native_call__softmax.out"} <= set(
        found.to_dataframe()["event_name"]
    )


def test_the_inspector_reads_values(exported: dict[str, Any]) -> None:
    found = inspector(exported, runs=2)
    (output,) = found.event_blocks[1].run_output
    torch.testing.assert_close(output, exported["model"](exported["x"]))
    gaps = found.calculate_numeric_gap("MSE")
    assert len(gaps) >= 4
    assert all(gap[0] < 1e-10 for gap in gaps["gap"])


class Several(torch.nn.Module):
    """An operator that returns a list, and one that returns a scalar."""

    def forward(self, x: torch.Tensor, n: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, int]:
        first, second = x.split(2)
        number = n.item()
        torch._check(number >= 0)
        return first + 1, second * 2, number + 3


def test_the_inspector_reads_lists_and_numbers(tmp_path: Path) -> None:
    from executorch.devtools import Inspector
    from executorch.exir import to_edge_transform_and_lower

    x, n = torch.arange(12.0).view(4, 3), torch.tensor([5])
    exported = torch.export.export(Several(), (x, n))
    (tmp_path / "model.pte").write_bytes(
        to_edge_transform_and_lower(exported).to_executorch().buffer
    )
    program = Runtime.get().load_program(
        tmp_path / "model.pte", enable_etdump=True, debug_buffer_size=1 << 20
    )
    program.load_method("forward").execute([x, n])
    program.write_etdump_result_to_file(str(tmp_path / "run.etdp"), str(tmp_path / "run.bin"))
    found = Inspector(
        etdump_path=str(tmp_path / "run.etdp"), debug_buffer_path=str(tmp_path / "run.bin")
    )
    block = found.event_blocks[1]
    assert block.run_output[2] == 8
    values = {event.name: event.debug_data for event in block.events if event.debug_data}
    (split,) = values["native_call_split_with_sizes_copy.out"]
    torch.testing.assert_close(split, [x[:2], x[2:]])
    assert values["native_call__local_scalar_dense"] == [5]
    assert values["native_call_add.Scalar"] == [8]


def test_recorded_values_are_compared(exported: dict[str, Any], tmp_path: Path) -> None:
    folder = exported["folder"]
    names = devtools.record(folder / "model.etrecord", [exported["x"]], tmp_path / "recorded.npz")
    assert "output_0" in names and "instruction_0" in names
    numpy.save(tmp_path / "x.npy", exported["x"].numpy())
    command = [sys.executable, "-m", "torchlet", "diff", str(folder / "model.pte")]
    command += ["--input", str(tmp_path / "x.npy"), "--against"]
    same = subprocess.run(
        [*command, str(tmp_path / "recorded.npz")], capture_output=True, text=True
    )
    assert same.returncode == 0 and "all in tolerance" in same.stdout, same.stdout + same.stderr

    # Changes the value of the second call, which the comparison must name.
    arrays = dict(numpy.load(tmp_path / "recorded.npz"))
    arrays["instruction_1"] = arrays["instruction_1"] + 1
    numpy.savez(tmp_path / "other.npz", **arrays)
    other = subprocess.run([*command, str(tmp_path / "other.npz")], capture_output=True, text=True)
    assert other.returncode == 1 and "computed by instruction 1 " in other.stdout, other.stdout
