"""Tiny programs, each for one feature of the executor: jumps, state, methods, inputs, outputs."""

from __future__ import annotations

from typing import Any, Callable

import torch
from executorch.exir import ExecutorchBackendConfig
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass
from torch import nn
from torch._higher_order_ops.map import map as map_over
from torch._higher_order_ops.scan import scan
from torch.export import Dim
from torch.export.experimental import _export_forward_backward

from common import EXACT, Fixture, Manifest, Method, seed
import stateful

FOLDER = "programs"


def program(name: str, module: nn.Module, cases: list[tuple], **options: Any) -> Fixture:
    return Fixture.forward(f"{FOLDER}/{name}", module, cases, **options)


class Cond(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x * 2 + 1, lambda x: x - 3, (x,)) + 1


class NestedCond(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        def positive(x, y):
            return torch.cond(y.sum() > 0, lambda x, y: x + y, lambda x, y: x * y, (x, y))

        def negative(x, y):
            return torch.cond(
                y.sum() > 10, lambda x, y: x - y, lambda x, y: torch.relu(x) - 1, (x, y)
            )

        return torch.cond(x.sum() > 0, positive, negative, (x, y))


class CondOnInput(nn.Module):
    def forward(self, flag: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.cond(flag, lambda x: (x + 1, x * x), lambda x: (x - 1, -x), (x,))


class CondsInARow(nn.Module):
    """Results that outlive the next `cond`, whose branches ExecuTorch 1.5 plans over them."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        def nested(x, y):
            return torch.cond(y.sum() > 0, lambda x: x + 1, lambda x: x * 2, (x,))

        def same(z):
            return z.clone()

        def more(z):
            return z + 3

        first = torch.cond(x.sum() > 0, nested, lambda x, y: x - 1, (x, y))
        second = torch.cond(first.sum() > 100, same, more, (first,))
        third = torch.cond(first.sum() > 100, more, same, (first,))
        return first, second, third, first + second * third


class Map(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, xs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return map_over(lambda x, y: torch.tanh(x) + y, xs, y) + self.linear(y)


class Scan(nn.Module):
    def forward(self, start: torch.Tensor, xs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        def step(carry, x):
            carry = torch.tanh(carry + x)
            return carry, carry * 2

        return scan(step, start, xs)


class Counter(nn.Module):
    """Adds its input to a buffer and counts the calls."""

    def __init__(self, start: float) -> None:
        super().__init__()
        self.register_buffer("total", torch.full((2, 3), start))
        self.register_buffer("calls", torch.full((1,), int(start), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.total.add_(x)
        self.calls.add_(1)
        return self.total * 1, self.calls + 0


class Window(nn.Module):
    """Keeps the last four inputs in a shifting buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.zeros(4, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.window.copy_(torch.cat([self.window[1:], x[None]]))
        return self.window.mean(0)


class WriteAt(nn.Module):
    """Writes a buffer row at a position given by an input, as a KV cache does."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(5, 2))

    def forward(self, position: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
        self.cache.index_put_((position,), row)
        return self.cache.sum(0)


class Shared(nn.Module):
    """One module shared by two methods."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)


class Encode(Shared):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x))


class Store(nn.Module):
    """State in the same memory for several methods, by `share_mutable_buffers`."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", torch.full((3,), 7.0))
        self.register_buffer("count", torch.tensor([100], dtype=torch.int64))


class StoreWrite(Store):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.kept.copy_(x)
        self.count += 1
        return torch.relu(x) * 2 - x.sum()


class StoreRead(Store):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.kept + x


class StoreCount(Store):
    def forward(self) -> torch.Tensor:
        return self.count * 10


class Rows(nn.Module):
    """State that one method only writes, and another only reads."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(4, 64))
        self.register_buffer("weight", torch.arange(64 * 32).reshape(64, 32) % 7 - 3.0)


class RowsWrite(Rows):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.rows.copy_(x * 2)
        return x.sum()


class RowsRead(Rows):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.rows + x) @ self.weight


class StoreNothing(nn.Module):
    """A stateless method that lists the others' planned buffer, as exporters do."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(x)


class ManyInputs(nn.Module):
    """Scalars are fixed at export; only tensors become inputs."""

    def forward(self, x, count: int, flag: bool, scale: float, nothing):
        y = x * scale + count
        if flag:
            y = -y
        values, indices = torch.topk(y, 2)
        return {
            "values": values,
            "indices": indices,
            "count": count + 1,
            "flag": flag,
            "scale": scale,
            "none": nothing,
            "above": (y > 0, y.argmax(1)),
        }


class Nested(nn.Module):
    def forward(self, pair: tuple[torch.Tensor, torch.Tensor], named: dict[str, torch.Tensor]):
        return [pair[0] + named["a"], (pair[1] - named["b"], {"product": pair[0] * pair[1]})]


class ManyDtypes(nn.Module):
    def forward(self, f, d, h, i, l, b, byte):
        return (
            f + 1,
            d * 2,
            h + h,
            i + 3,
            l * l,
            torch.logical_not(b),
            byte + 1,
            i.to(torch.float32) * f,
        )


class Elements(nn.Module):
    def __init__(self, run: Callable[..., Any]) -> None:
        super().__init__()
        self.run = run

    def forward(self, *inputs):
        return self.run(*inputs)


class Constants(nn.Module):
    """Outputs that no instruction computes."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.arange(6, dtype=torch.float32).reshape(2, 3))

    def forward(self, x: torch.Tensor):
        doubled = x * 2
        return self.table, x, doubled, doubled


class LinearA(nn.Module):
    def __init__(self, hidden: nn.Linear) -> None:
        super().__init__()
        self.hidden = hidden

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.hidden(x)


class LinearB(LinearA):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.hidden(x)) + 1


def ints(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64)


def control_flow() -> list[Fixture]:
    ones, minus = torch.ones(2, 3), -torch.ones(2, 3)
    yes, no = torch.tensor(True), torch.tensor(False)
    xs, y = torch.randn(4, 2, 3), torch.randn(2, 3)
    return [
        program("cond", Cond(), [(ones,), (minus,), (torch.zeros(2, 3),)]),
        program(
            "cond_nested",
            NestedCond(),
            [(ones, ones), (ones, minus), (minus, ones), (minus, ones * 5)],
        ),
        program(
            "conds_in_a_row",
            CondsInARow(),
            [(ones, ones), (ones, minus), (minus, ones), (ones * 99, ones)],
        ),
        program(
            "conds_in_a_row_unplanned",
            CondsInARow(),
            [(ones, ones), (ones, minus), (minus, ones), (ones * 99, ones)],
            config=ExecutorchBackendConfig(
                memory_planning_pass=MemoryPlanningPass(alloc_graph_output=False)
            ),
            note="outputs are not memory planned: the host lends memory for them",
        ),
        program("cond_on_input", CondOnInput(), [(yes, ones), (no, ones)]),
        program("map", Map(), [(xs, y), (xs * 2, -y)]),
        program("scan", Scan(), [(y, xs), (-y, xs + 1)]),
    ]


def state() -> list[Fixture]:
    steps = [(torch.full((2, 3), float(i)),) for i in range(1, 5)]
    rows = [(torch.randn(2),) for _ in range(6)]
    writes = [(ints(i), torch.randn(1, 2)) for i in (0, 3, 4, 3)]
    initialized = ExecutorchBackendConfig(passes=[InitializedMutableBufferPass(["total", "calls"])])
    named = ExecutorchBackendConfig(emit_mutable_buffer_names=True)
    unplanned = ExecutorchBackendConfig(
        memory_planning_pass=MemoryPlanningPass(alloc_mutable_buffers=False),
        emit_mutable_buffer_names=True,
    )

    def shared(*initialized: str, named: bool = False) -> ExecutorchBackendConfig:
        return ExecutorchBackendConfig(
            passes=[InitializedMutableBufferPass(list(initialized))] if initialized else [],
            memory_planning_pass=MemoryPlanningPass(share_mutable_buffers=True),
            emit_mutable_buffer_names=named,
        )

    def store() -> dict[str, Method]:
        x = torch.ones(3)
        return {
            "write": Method(from_zero(StoreWrite()), [(x,)]),
            "read": Method(from_zero(StoreRead()), [(x,)]),
            "count": Method(from_zero(StoreCount()), [()]),
            "nothing": Method(StoreNothing(), [(x,)]),
        }

    def from_zero(module: Store) -> Store:
        for buffer in module.buffers():
            buffer.zero_()
        return module

    kept = {
        "write": Method(StoreWrite(), [(torch.ones(3),)]),
        "read": Method(StoreRead(), [(torch.ones(3),)]),
        "count": Method(StoreCount(), [()]),
    }
    x = torch.linspace(-1, 1, 256).reshape(4, 64)
    rows_of_two = {"write": Method(RowsWrite(), [(x,)]), "read": Method(RowsRead(), [(x,)])}
    fresh = "methods share state; expected outputs are those of fresh methods"
    return [
        program("state_from_zero", Counter(0.0), steps, sequence=True),
        program(
            "state_initialized",
            Counter(40.0),
            steps,
            sequence=True,
            config=initialized,
            note="the mutable buffers' first values are in the file",
        ),
        program("state_named", Counter(0.0), steps, sequence=True, config=named),
        program(
            "state_unplanned",
            Counter(0.0),
            steps,
            sequence=True,
            config=unplanned,
            note="the mutable buffers are not memory planned: the host allocates them",
        ),
        program("state_window", Window(), rows, sequence=True),
        program("state_write_at", WriteAt(), writes, sequence=True),
        Fixture(f"{FOLDER}/state_shared", store(), config=shared(named=True), note=fresh),
        Fixture(
            f"{FOLDER}/state_apart",
            store(),
            note="methods have the same state, each a copy among its activations",
        ),
        Fixture(f"{FOLDER}/state_shared_unnamed", store(), config=shared(), note=fresh),
        Fixture(f"{FOLDER}/state_shared_rows", rows_of_two, config=shared(), note=fresh),
        Fixture(
            f"{FOLDER}/state_shared_initialized", kept, config=shared("kept", "count"), note=fresh
        ),
    ]


def cells() -> list[Fixture]:
    """Stateful models with named, initialized buffers."""

    def cell(name: str, module: nn.Module, inputs: list[tuple]) -> Fixture:
        return Fixture.forward(
            f"cells/{name}", module, inputs, sequence=True, config=stateful.config(module)
        )

    return [cell(name, module, inputs) for name, (module, inputs) in stateful.models().items()]


def methods() -> list[Fixture]:
    cases = [(torch.randn(3, 4),), (torch.randn(3, 4),)]
    linear, encode = Shared(), Encode()
    encode.load_state_dict(linear.state_dict())
    return [
        Fixture(
            f"{FOLDER}/two_methods",
            {"forward": Method(linear, cases), "encode": Method(encode, [(torch.randn(1, 4),)])},
            plain=True,
        ),
    ]


def inputs_and_outputs() -> list[Fixture]:
    x, y = torch.randn(2, 5), torch.randn(2, 3)
    every_dtype = (
        torch.randn(2, 3),
        torch.randn(2, 3).double(),
        torch.randn(2, 3).half(),
        torch.arange(6, dtype=torch.int32).reshape(2, 3),
        ints(1, -2, 3),
        torch.tensor([True, False]),
        torch.tensor([0, 7, 255], dtype=torch.uint8),
    )
    unplanned = ExecutorchBackendConfig(
        memory_planning_pass=MemoryPlanningPass(alloc_graph_input=False, alloc_graph_output=False)
    )
    return [
        program(
            "many_inputs",
            ManyInputs(),
            [(x, 3, True, 0.5, None), (-x, 3, True, 0.5, None)],
            note="inputs and outputs that are integers, booleans, doubles and none",
        ),
        program("nested_containers", Nested(), [((y, y + 1), {"a": y * 2, "b": -y})]),
        program("many_dtypes", ManyDtypes(), [every_dtype]),
        program(
            "outputs_not_computed",
            Constants(),
            [(y,), (-y,)],
            note="outputs: a constant, an input, the same value twice",
        ),
        program("outputs_not_computed_unplanned", Constants(), [(y,), (-y,)], config=unplanned),
        program("identity", Elements(lambda x: x), [(y,)], note="a program without instructions"),
        program("no_inputs", Elements(lambda: torch.ones(2, 2) + torch.arange(2)), [()]),
        program(
            "zero_dim", Elements(lambda a, b: a * b), [(torch.tensor(2.0), torch.tensor(-3.0))]
        ),
        program("empty", Elements(lambda a: (a + 1, a.sum())), [(torch.empty(0, 3),)]),
        program(
            "deep_chain",
            Elements(deep_chain),
            [(torch.randn(4),)],
            note="many small calls after each other",
        ),
    ]


def deep_chain(x: torch.Tensor) -> torch.Tensor:
    for _ in range(40):
        x = torch.sin(x) + x
    return x


def dynamic_shapes() -> list[Fixture]:
    n = Dim("n", min=1, max=12)
    half_rows = Dim("half", min=1, max=8)

    def sized(*lengths: int) -> list[tuple[torch.Tensor]]:
        return [(torch.randn(length, 3),) for length in lengths]

    def arithmetic(x: torch.Tensor) -> torch.Tensor:
        n = x.shape[0]
        positions = torch.arange(n * 2 + 1, dtype=torch.float32)
        return positions[: n + 1].sum() + x.reshape(n * 3) * (n // 2) + (n % 3) - n / 4

    def both(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, y]).reshape(-1)

    def one_hot_rows(x: torch.Tensor) -> torch.Tensor:
        return torch.zeros(x.shape[0], 4) + x[:, :1]

    two = [
        (torch.randn(4, 3), torch.randn(2, 3)),
        (torch.randn(16, 3), torch.randn(8, 3)),
        (torch.randn(2, 3), torch.randn(1, 3)),
    ]
    return [
        program(
            "dynamic_rows",
            Elements(lambda x: torch.relu(x) + x.mean(0)),
            sized(5, 1, 12),
            dynamic_shapes=(({0: n},),),
        ),
        program(
            "dynamic_arithmetic", Elements(arithmetic), sized(5, 2, 12), dynamic_shapes=(({0: n},),)
        ),
        program(
            "dynamic_two",
            Elements(both),
            two,
            dynamic_shapes=(({0: 2 * half_rows}, {0: half_rows}),),
        ),
        program(
            "dynamic_created", Elements(one_hot_rows), sized(5, 1, 12), dynamic_shapes=(({0: n},),)
        ),
        program(
            "nonzero",
            Elements(torch.nonzero),
            [
                (torch.tensor([[1.0, 0.0, 2.0], [0.0, 0.0, 3.0]]),),
                (torch.zeros(2, 3),),
                (torch.ones(2, 3),),
            ],
            tolerance=EXACT,
            note="the output's shape depends on the data",
        ),
        program(
            "nonzero_gathered",
            Elements(lambda x: x.reshape(-1)[torch.nonzero(x.reshape(-1)).squeeze(1)] * 2),
            [(torch.tensor([[1.0, 0.0], [0.0, -3.0]]),), (torch.ones(2, 2),)],
        ),
        program(
            "masked_select",
            Elements(lambda x: torch.masked_select(x, x > 0)),
            [(torch.tensor([1.0, -2.0, 3.0, 0.0]),), (-torch.ones(4),)],
        ),
    ]


def external_weights() -> list[Fixture]:
    linear = nn.Linear(3, 4)
    cases = [(torch.randn(2, 3),)]
    config = ExecutorchBackendConfig(external_constants=lambda node: "shared")
    return [
        program(
            "external_a",
            LinearA(linear),
            cases,
            config=config,
            plain=True,
            note="external_a and external_b run on either's .ptd",
        ),
        program("external_b", LinearB(linear), cases, config=config, plain=True),
        program(
            "external_two_files",
            nn.Sequential(linear, nn.ReLU(), nn.Linear(4, 2)),
            cases,
            plain=True,
            config=ExecutorchBackendConfig(
                external_constants=lambda n: "bias" if "bias" in n.name else "weight"
            ),
        ),
    ]


class Loss(nn.Module):
    """A network and its loss, as in on-device training."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))

    def forward(self, x: torch.Tensor, label: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        prediction = self.net(x)
        return nn.functional.cross_entropy(prediction, label), prediction.detach().argmax(dim=1)


class Training(Method):
    """Outputs: the loss, other results, the gradients of the parameters, the parameters."""

    def export(self) -> torch.export.ExportedProgram:
        return _export_forward_backward(super().export())

    def expected(self) -> list[list[torch.Tensor]]:
        return [self._step(inputs) for inputs in self.cases]

    def _step(self, inputs: tuple) -> list[torch.Tensor]:
        self.module.zero_grad()
        loss, *others = self.module(*inputs)
        loss.backward()
        parameters = list(self.module.parameters())
        return [
            loss.detach(),
            *others,
            *(p.grad.clone() for p in parameters),
            *(p.detach().clone() for p in parameters),
        ]


def training() -> list[Fixture]:
    cases = [(torch.randn(2, 4), ints(0, 2)), (torch.randn(2, 4), ints(1, 1))]
    note = "a joint forward and backward program"
    return [
        Fixture(f"{FOLDER}/training", {"forward": Training(Loss(), cases)}, note=note, plain=True)
    ]


def main() -> None:
    seed(1)
    manifest = Manifest("program")
    for group in (
        control_flow,
        state,
        methods,
        inputs_and_outputs,
        dynamic_shapes,
        external_weights,
        training,
        cells,
    ):
        for fixture in group():
            try:
                manifest.write(fixture)
            except Exception as error:
                print(f"{fixture.path}: not exported: {type(error).__name__}: {str(error)[:300]}")
    manifest.save()


if __name__ == "__main__":
    main()
